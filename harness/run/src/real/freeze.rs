//! Freezing a run, and going on with one that was frozen.
//!
//! Everything comes to rest from the outside to the inside, so that nothing is under way when it is written down: machines stand still, what
//! simulated hosts and the user have asked is answered, the service ends, the history is read to its end, and then each is written.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use vlab_drive::journal::{Left, Shift};
use vlab_drive::prepare::VERSION;
use vlab_judge::result::RunResult;
use vlab_model::history::{Source, What};

use super::perform::{UnderWay, observe};
use super::{RealRun, lab_check};
use crate::error::{LabError, lab};
use crate::hosts::News;
use crate::snapshot::{self, Manifest, Snapshot, Wanted};

/// How long answers may take that are still under way. A request is given up after half of it.
const ANSWERS: Duration = Duration::from_secs(60);

/// What a run goes on from.
pub(super) struct From {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) shift: Shift,
}

impl RealRun<'_> {
    /// Where a run begins: at its start, or where another one was.
    pub(super) fn begin(&self, under_way: &mut UnderWay<'_>) -> Result<Left, LabError> {
        let Some(From { snapshot, shift }) = &self.from else {
            under_way.conductor.start(under_way.begun);
            return Ok(Left::default());
        };
        under_way.begun = snapshot.began(shift);
        let left = snapshot.replay(&mut under_way.conductor, shift).map_err(lab("snapshot"))?;
        let text = format!(
            "the run goes on from the snapshot {} ({}), which was frozen {} s ago; all times before were moved by that",
            snapshot.folder().display(),
            snapshot.manifest.at,
            shift.by().as_secs()
        );
        under_way.conductor.observe(self.clock.now(), Source::Harness, None, What::Note { text });
        Ok(left)
    }
}

impl UnderWay<'_> {
    /// Is the run to be frozen now?
    pub(super) fn is_to_freeze(&self) -> bool {
        self.run.options.freeze.is_some() && self.conductor.is_to_freeze()
    }

    /// Does what was left to do when the run was frozen.
    pub(super) async fn take_up(&mut self, left: Left) -> Result<(), LabError> {
        if self.run.from.is_some() {
            self.hosts.go_on().await?;
        }
        let Left { sends, tasks, orders, .. } = left;
        for send in sends {
            self.send(send);
        }
        for task in tasks {
            self.outside.carry_out(task).await;
        }
        for order in orders {
            self.hosts.carry_out(order, self.run.clock.now());
        }
        Ok(())
    }

    /// Writes the run down; nothing of it goes on afterwards. What could not be done is in the result.
    pub(super) async fn freeze(&mut self, wanted: &Wanted, result: &mut RunResult) -> Option<Duration> {
        self.live.finish();
        match self.write_down(wanted).await {
            Ok(after) => Some(after),
            Err(error) => {
                lab_check(result, error);
                None
            }
        }
    }

    async fn write_down(&mut self, wanted: &Wanted) -> Result<Duration, LabError> {
        let run = self.run;
        let faults = self.conductor.faults_under_way();
        if !faults.is_empty() {
            let error = format!("a fault is under way ({}): what it does cannot be written down", faults.join(", "));
            return Err(LabError::new("snapshot", error));
        }
        snapshot::make_folder(&wanted.folder)
            .map_err(|error| LabError::new("snapshot", format!("{}: {error}", wanted.folder.display())))?;
        (run.options.tell)(&format!("`{}`: the lab is written down (seconds for each machine)", wanted.words));
        let written = self.write_into(wanted).await;
        if written.is_err() {
            let _ = std::fs::remove_dir_all(&wanted.folder);
        }
        written
    }

    /// Into its folder, which is there and empty. How long after its start the run stands still.
    async fn write_into(&mut self, wanted: &Wanted) -> Result<Duration, LabError> {
        let run = self.run;
        self.hosts.stand_still().await?;
        self.hear_answers().await?;
        Arc::clone(&self.service).rest().await?;
        self.stop_watching(false).await;
        let frozen = run.clock.now();
        let machines = self.hosts.freeze(&wanted.folder).await?;
        // What is told without waiting is what was said until then.
        while let Ok(news) = timeout(Duration::ZERO, self.hosts.news()).await {
            match news {
                News::Seen(Source::Console, what) => self.conductor.observe(frozen, Source::Console, None, what),
                // That machines stand still is nothing that happens to them.
                News::Seen(..) => {}
                News::Lost { machine, how, .. } => {
                    return Err(LabError::new("snapshot", format!("{machine}: {how}")));
                }
                News::Broken(error) => return Err(error),
            }
        }
        Arc::clone(&self.service).keep(wanted.folder.clone()).await?;
        let journal = self.conductor.close_journal();
        snapshot::write_journal(&wanted.folder, &journal).map_err(lab("snapshot"))?;
        let prepared = run.prepared;
        let manifest = Manifest {
            format: snapshot::FORMAT,
            vlab_version: VERSION.to_owned(),
            scenario: prepared.scenario.name.clone(),
            called: prepared.called.clone(),
            at: wanted.words.clone(),
            seed: prepared.seed,
            time_profile: prepared.time_profile.clone(),
            service: prepared.target.to_string(),
            hosts: prepared.hosts_kind().to_string(),
            real_node: prepared.real_node.clone(),
            began: self.begun.as_micros(),
            frozen: frozen.as_micros(),
            machines,
        };
        snapshot::write_manifest(&wanted.folder, &manifest).map_err(lab("snapshot"))?;
        Ok(frozen.since(self.begun))
    }

    /// Takes in what user and simulated hosts are still answered. They ask nothing more: it is left to who goes on.
    async fn hear_answers(&mut self) -> Result<(), LabError> {
        let deadline = Instant::now() + ANSWERS;
        while self.traffic.under_way() > 0 {
            let next = async {
                tokio::select! {
                    Some(answer) = self.answers.recv() => {
                        let reply = self.traffic.count(answer);
                        self.conductor.deliver(self.run.clock.now(), reply);
                    }
                    Some(news) = self.watch.news.recv() => drop(observe(&mut self.conductor, news)),
                }
            };
            if timeout_at(deadline, next).await.is_err() {
                let error =
                    format!("{} requests were not answered within {} s", self.traffic.under_way(), ANSWERS.as_secs());
                return Err(LabError::new("snapshot", error));
            }
        }
        Ok(())
    }
}
