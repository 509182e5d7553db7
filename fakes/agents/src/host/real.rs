//! A host whose work real programs do: what they are given, and what came of it.

use super::*;
use vlab_model::history::HostMoment;

impl Host {
    pub(super) fn work(&self, w: &mut World, work: Work) {
        w.work.push((self.position as usize, work));
    }

    /// A step was run by real hands; `false` when nobody waits for it any more.
    pub(crate) fn step_ran(&mut self, now: Timestamp, w: &mut World, serial: u32, ran: Ran) -> bool {
        let Some(at) = self.steps.iter().position(|s| s.serial == serial) else { return false };
        let effect = self.steps[at].kind.map_or(Effect::None, |k| STEPS[k].effect);
        if effect == Effect::GatherLogs
            && ran.answer.exit_code == 0
            && let Some(cluster) = logs_cluster(&self.steps[at])
        {
            self.send_archive(now, w, cluster, LogsFor::Step(serial), &ran.archive);
            return true;
        }
        let running = self.take_step(at);
        self.finish_step(now, w, running, ran.answer, effect);
        true
    }

    /// The installer starts, in whatever program this is.
    pub(crate) fn begin_install(
        &mut self,
        now: Timestamp,
        w: &mut World,
        request: &InstallCmdRequest,
    ) -> Result<(), String> {
        if self.installer.is_some() {
            return Err("the installer runs already".into());
        }
        self.take_up(self.installer_for(w, request)?);
        w.host_did(now, self.plan.host_id, HostMoment::InstallerStarted);
        self.installer_goes_on(now, w);
        Ok(())
    }

    pub(super) fn give_job(&mut self, w: &mut World, job: Job) {
        let token = self.installer_token();
        if let Some(installer) = self.installer.as_mut() {
            installer.job = Some(job);
        }
        self.work(w, Work::Job { token, job });
    }

    pub(super) fn has_token(&self, token: u32) -> bool {
        self.installer.as_ref().is_some_and(|i| i.token == token && !i.dead)
    }

    /// A job was done by real hands.
    pub(crate) fn job_done(&mut self, now: Timestamp, w: &mut World, token: u32, result: Result<Vec<u8>, String>) {
        if !self.has_token(token) {
            return;
        }
        let Some(installer) = self.installer.as_mut() else { return };
        let cluster = installer.cluster_id;
        match (result, installer.job.take()) {
            (_, None) => {}
            (Err(problem), _) => self.fail(now, w, &problem),
            (Ok(archive), Some(Job::GatherLogs)) => {
                self.send_archive(now, w, cluster, LogsFor::Installer, &archive);
            }
            (Ok(_), Some(Job::WriteImage)) => {
                if let Some(writing) = installer.writing.as_mut() {
                    writing.done = true;
                }
                self.disk_boots = true;
                if !self.percentage_is_out() {
                    self.finish_writing(now, w);
                }
            }
            (Ok(_), Some(_)) => self.installer_goes_on(now, w),
        }
    }

    /// So much of the image was written.
    pub(crate) fn job_progress(&mut self, now: Timestamp, w: &mut World, token: u32, percent: u32) {
        let writing = self.installer.as_ref().is_some_and(|i| i.writing.is_some());
        // One report at a time, and 100 % is told when the whole image is there.
        if self.has_token(token) && writing && percent < 100 && !self.percentage_is_out() {
            self.tell_stage(now, w, Asked::Percentage, HostStage::WritingImageToDisk, &format!("{percent}%"));
        }
    }
}
