//! The lab of a run: its hosts and the service under test, from the ledger to the last check for leaks.

use std::io::Write as _;
use std::sync::Arc;

use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict, RunResult};
use vlab_lab::ledger::{self, Ledger};
use vlab_lab::supervisor::Supervisor;

use super::{RealRun, lab_check};
use crate::error::{LabError, lab};
use crate::hosts::{self, RunningHosts};
use crate::service::{self, Inside, RunningService};

/// Name of the check for leaks.
const LEAKS: &str = "nothing is left behind";

/// A lab that is up.
pub(super) struct Lab {
    pub(super) service: Arc<dyn RunningService>,
    pub(super) hosts: Box<dyn RunningHosts>,
}

impl Lab {
    /// Stops everything, the hosts first: nobody may write to what is already gone.
    pub(super) async fn take_down(self, result: &mut RunResult) {
        let (problems, _) = self.hosts.stop().await;
        let more = self.service.stop().await;
        problems.into_iter().chain(more).for_each(|problem| lab_check(result, problem));
    }
}

impl RealRun<'_> {
    /// The ledger and its supervisor, the hosts, and the service with what it stands on.
    pub(super) async fn set_up(&mut self, result: &mut RunResult) -> Result<Lab, LabError> {
        let ledger = Ledger::create(&ledger::registry(), &result.run.run_id).map_err(lab("ledger"))?;
        if self.options.keep {
            ledger.keep();
        }
        let ledger = Arc::new(ledger);
        let supervisor = Supervisor::spawn_as(&self.options.vlab, &ledger, &self.dir.file("supervisor.log"));
        let supervisor = supervisor.map_err(|error| {
            // Nothing is in it yet, and there is nobody to remove it.
            let _ = ledger.close();
            lab("supervisor")(error)
        })?;
        self.ledger = Some((ledger.clone(), supervisor));
        let order = hosts::Order {
            prepared: self.prepared,
            folder: self.dir.path(),
            runs: &self.options.runs,
            vlab: &self.options.vlab,
            ledger: &ledger,
            ability: self.options.ability.as_ref(),
            tell: self.options.tell,
            interrupted: &self.options.interrupted,
        };
        let hosts = hosts::provider(self.prepared).start(&order, result).await?;
        match Box::pin(self.start_service(result, ledger, hosts.inside())).await {
            Ok(service) => Ok(Lab { service, hosts }),
            Err(error) => {
                let (problems, _) = hosts.stop().await;
                problems.into_iter().for_each(|problem| lab_check(result, problem));
                Err(error)
            }
        }
    }

    async fn start_service(
        &self,
        result: &mut RunResult,
        ledger: Arc<Ledger>,
        inside: Option<&Inside>,
    ) -> Result<Arc<dyn RunningService>, LabError> {
        let run_id = result.run.run_id.clone();
        let order = service::Order {
            prepared: self.prepared,
            run_id: &run_id,
            folder: self.dir.path(),
            vlab: &self.options.vlab,
            ledger: Some(ledger),
            real_tools: self.options.real_tools,
            ready_within: self.options.ready_within,
            inside,
            secrets: &self.secrets,
            interrupted: &self.options.interrupted,
        };
        let service = service::start(&order).await?;
        let about = service.about();
        result.startup = about.startup.clone();
        result.run.versions.extend(about.stands_on.clone());
        result.run.versions.insert("service".to_owned(), about.version.clone());
        Ok(service)
    }

    /// How to get into a lab that is up, for people.
    pub(super) fn entrance(&self, service: &dyn RunningService) -> Vec<String> {
        let about = service.about();
        let mut lines = vec![format!("service:  http://{}", about.endpoint.address())];
        lines.extend(about.conninfo.iter().map(|conninfo| format!("database: psql '{conninfo}'")));
        lines.push(format!("logs:     {}", self.dir.path().display()));
        lines
    }

    /// Closes the ledger: what is still open in it was left behind. The supervisor removes it, and the run says so.
    pub(super) async fn clean_up(&mut self, result: &mut RunResult) {
        let Some((ledger, supervisor)) = self.ledger.take() else { return };
        if !self.kept.is_empty() {
            if let Err(error) = supervisor.keep() {
                tracing::warn!(%error, "supervisor");
            }
            let reason = "the lab is kept".to_owned();
            result.checks.push(CheckResult::new(CheckKind::Leak, LEAKS, CheckVerdict::Skipped { reason }));
            return;
        }
        let mut check = CheckResult::new(CheckKind::Leak, LEAKS, CheckVerdict::Passed);
        match ledger.close() {
            Ok(left) if left.is_empty() => {
                check.seen = "every process, container, folder and socket of the run is gone".to_owned();
                if let Err(error) = supervisor.dismiss() {
                    tracing::warn!(%error, "supervisor");
                }
            }
            Ok(left) => {
                check.verdict = CheckVerdict::Failed;
                check.message = format!("{} things are left: {left:?}", left.len());
                check.seen = check.message.clone();
                // Letting go of the supervisor without a word makes it clean up.
                drop(supervisor);
            }
            Err(error) => {
                check.verdict = CheckVerdict::Failed;
                check.message = error.to_string();
                drop(supervisor);
            }
        }
        result.checks.push(check);
        let _ = std::io::stderr().flush();
    }
}
