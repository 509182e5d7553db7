//! A run that is over, read back from its folder, and judged once more.

use std::path::Path;

use vlab_drive::prepare::{Choices, Prepared};
use vlab_judge::result::{CheckKind, RESULT_VERSION, RunResult, Verdict, exit};
use vlab_judge::verdict;
use vlab_model::history::{Observation, What};
use vlab_scenario::{Catalogue, FrontDoor, HostKind};

use crate::hosts::vm::programs::named;
use crate::prepare::prepare;
use crate::rundir::{HISTORY, RESULT, RunDir, STARTED};

/// Why a result says that it is inconclusive when the user has stopped the run.
pub const INTERRUPTED: &str = "interrupted by the user";

/// A run read back from its folder.
#[derive(Debug)]
pub struct OldRun {
    /// Its folder.
    pub dir: RunDir,
    /// Its scenario, as it was run.
    pub prepared: Prepared,
    /// Its history.
    pub history: Vec<Observation>,
    /// What was written then; `None`: the run was killed before its end.
    pub result: Option<RunResult>,
}

/// Why a folder cannot be read as a run.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// With the name of the file that it is about.
fn about(file: &Path) -> impl Fn(&dyn std::fmt::Display) -> Unreadable {
    move |error| Unreadable(format!("{}: {error}", file.display()))
}

impl OldRun {
    /// Reads a folder.
    ///
    /// # Errors
    /// It is not that of a run, or one of its files cannot be read.
    pub fn open(folder: &Path, catalogue: &Catalogue) -> Result<Self, Unreadable> {
        let plain = |error: &dyn std::fmt::Display| Unreadable(error.to_string());
        let (dir, started) = RunDir::open(folder).map_err(|e| plain(&e))?;
        let source = dir.scenario().map_err(Unreadable)?;
        let scenario = vlab_scenario::load(&source, catalogue).map_err(|e| plain(&e))?;
        // Runs of before there was a choice have none in their marker: the scenario's own counts.
        let service = match started.service.as_str() {
            "" => None,
            text => Some(text.parse().map_err(|e| about(&dir.file(STARTED))(&e))?),
        };
        // Where they were of several kinds, each host's own counts.
        let hosts = HostKind::from_word(&started.hosts).filter(|kind| *kind != HostKind::Auto);
        let choices = Choices {
            seed: Some(started.seed),
            time_profile: Some(started.time_profile),
            service,
            hosts,
            api: FrontDoor::from_word(&started.api),
            // Whether it is still there does not matter: it is not run.
            real_node: started.real_node.as_deref().map(named),
            ..Choices::default()
        };
        let prepared = prepare(scenario, catalogue, &choices).map_err(|e| plain(&e))?;
        let history = vlab_history::read(&dir.file(HISTORY)).map_err(|e| plain(&e))?;
        let result = match std::fs::read(dir.file(RESULT)) {
            Ok(bytes) => Some(serde_json::from_slice(&bytes).map_err(|e| about(&dir.file(RESULT))(&e))?),
            Err(_) => None,
        };
        Ok(Self { dir, prepared, history, result })
    }

    /// The result judged again: what was measured then stays, what follows from the history is made anew.
    pub fn judged_again(&self) -> RunResult {
        let mut result = self.result.clone().unwrap_or_default();
        result.checks.retain(|c| {
            matches!(c.kind, CheckKind::Leak | CheckKind::Lab)
                || c.name.starts_with("load: ")
                || c.name == verdict::OVERHEAD
                || verdict::MADE_WHILE_RUNNING.contains(&c.name.as_str())
        });
        if let Some(What::RunStarted(info)) = self.history.first().map(|o| &o.what) {
            let versions = std::mem::take(&mut result.run.versions);
            result.run = info.clone();
            result.run.versions.extend(versions);
        }
        result.version = RESULT_VERSION;
        result.reason = None;
        verdict::put_together(&mut result, &self.prepared.scenario, self.prepared.clock_scale, &self.history);
        match &self.result {
            None => {
                result.started_at = self.history.first().map(|o| o.harness_time).unwrap_or_default();
                result.finished_at = self.history.last().map(|o| o.harness_time).unwrap_or_default();
                result.how_to_repeat = self.prepared.how_to_repeat("scenario");
                result.cut_short(exit::INCONCLUSIVE, "the run was killed before its end: it has no result");
            }
            Some(then) if then.verdict == Verdict::Inconclusive && then.reason.as_deref() == Some(INTERRUPTED) => {
                result.cut_short(exit::INCONCLUSIVE, INTERRUPTED);
            }
            Some(_) => {}
        }
        result
    }
}
