//! What hosts do and are asked for: one installer at a time, and nothing but logs and the stop after a cancellation.

use vlab_api::types::StepType;
use vlab_model::history::HostMoment;

use super::Id;
use super::limits::IN_FLIGHT;
use super::reader::{Moment, Reader};

/// Does no installer run on the host after that? It was stopped, or the machine went down.
pub(super) fn ends_installer(what: &HostMoment) -> bool {
    matches!(
        what,
        HostMoment::InstallerStopped
            | HostMoment::Rebooting
            | HostMoment::PoweredOn
            | HostMoment::BootedDiscovery
            | HostMoment::BootedInstalledOs
    )
}

impl Reader<'_> {
    /// Something happened on a host.
    pub(super) fn host_did(&mut self, host: usize, what: &HostMoment, moment: Moment) {
        if *what == HostMoment::InstallerStarted {
            let running = self.hosts[host].installer_running;
            self.check(Id::OneInstaller, moment.seq, !running, |c| {
                format!("{} started an installer while another one ran", c.host_name(host))
            });
            self.hosts[host].installer_running = true;
        } else if ends_installer(what) {
            self.hosts[host].installer_running = false;
        }
    }

    /// A host was asked for something.
    pub(super) fn asked(&mut self, host: usize, step_type: &str, moment: Moment) {
        let line = &mut self.hosts[host];
        // Steps of one answer are asked for at one time.
        if line.asked_at != Some(moment.at) {
            line.asked_before = line.asked_at.replace(moment.at);
        }
        let is_cancelled = line.cancelled_at.is_some_and(|t| moment.at > t + IN_FLIGHT);
        if is_cancelled && !self.late_answers.may_be_late(line.asked_before, moment.at) {
            let allowed = [StepType::LogsGather, StepType::StopInstallation].iter().any(|s| s.as_str() == step_type);
            self.check(Id::CancelledOnlyStops, moment.seq, allowed, |c| {
                format!("{} was cancelled and asked for {step_type}", c.host_name(host))
            });
        }
    }
}
