//! The sending of logs, for a step and for the installer.

use super::*;
use crate::alteration::Conduct;

impl Host {
    pub(super) fn logs_progress(&mut self, now: Timestamp, w: &mut World, stage: LogsStage, whose: LogsFor) {
        let logs_state = if stage == LogsStage::Requested { LogsState::Requested } else { LogsState::Completed };
        let params = LogsProgressParams { logs_state };
        let request = ops::update_host_logs_progress(self.plan.infra_env_id, self.plan.host_id, &params).request;
        self.call(now, w, Purpose::Logs(stage, whose), request, &INSTALLER);
    }

    pub(super) fn upload_logs(&mut self, now: Timestamp, w: &mut World, cluster: Uuid, whose: LogsFor) {
        let lost = w.does(Conduct::NoLogs);
        if lost
            || self.is_active(now, w, |fault| *fault == HostFault::NoLogs, "the logs that it announced were not sent")
        {
            // A step is never answered; the installer has other things to do.
            return if whose == LogsFor::Installer {
                self.installer_next_line(now, w)
            };
        }
        let text = format!("{now} {} {} agent={}\n", self.plan.name, self.plan.host_id, self.version);
        let archive = tar_gz(&[("agent.log", &text), ("installer.log", &self.installer_log(now))]);
        self.send_archive(now, w, cluster, whose, &archive);
    }

    pub(super) fn send_archive(
        &mut self,
        now: Timestamp,
        w: &mut World,
        cluster: Uuid,
        whose: LogsFor,
        archive: &[u8],
    ) {
        let request = ops::upload_logs(cluster, Some((self.plan.infra_env_id, self.plan.host_id)), archive).request;
        self.call(now, w, Purpose::Logs(LogsStage::Upload, whose), request, &INSTALLER);
    }

    pub(super) fn installer_log(&self, now: Timestamp) -> String {
        match &self.installer {
            Some(i) => format!("{now} role={} line={}/{} failed={}\n", i.role, i.line, i.script.len(), i.dead),
            None => String::new(),
        }
    }

    /// Whatever the answer was: the sender of logs goes on, as it has nobody to complain to.
    pub(super) fn logs_went(&mut self, now: Timestamp, w: &mut World, stage: LogsStage, whose: LogsFor) {
        match (stage, whose) {
            // The step itself waits for its own timer, the installer for the gathering.
            (LogsStage::Requested, LogsFor::Step(_)) => {}
            (LogsStage::Requested, LogsFor::Installer) => {
                if w.has_real_hands() {
                    return self.give_job(w, Job::GatherLogs);
                }
                let token = self.installer_token();
                self.after(now, w, |t| t.log_gather, Timer::LogsGathered(token));
            }
            (LogsStage::Upload, _) => self.logs_progress(now, w, LogsStage::Completed, whose),
            (LogsStage::Completed, LogsFor::Step(serial)) => {
                if let Some(at) = self.steps.iter().position(|s| s.serial == serial) {
                    let running = self.take_step(at);
                    self.finish_step(now, w, running, StepAnswer::default(), Effect::None);
                }
            }
            (LogsStage::Completed, LogsFor::Installer) => self.installer_next_line(now, w),
        }
    }
}

/// The cluster that a `logs-gather` step speaks of.
pub(super) fn logs_cluster(running: &Running) -> Option<Uuid> {
    let request: LogsGatherCmdRequest = serde_json::from_str(running.args.first()?).ok()?;
    Some(request.cluster_id)
}
