//! The lab of a run: its hosts and the service under test, from the ledger to the last check for leaks.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Arc;

use vlab_drive::target::Target;
use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict, RunResult};
use vlab_judge::verdict::killed_check;
use vlab_lab::ledger::{self, Ledger};
use vlab_lab::proc::ProcessId;
use vlab_lab::supervisor::Supervisor;
use vlab_lab::{gc, leaks};

use super::files::logs;
use super::freeze::From;
use super::{RealRun, lab_check};
use crate::error::{LabError, lab};
use crate::hosts::{self, RunningHosts};
use crate::service::hub::HubOrder;
use crate::service::{self, Inside, RunningService};

/// What the service under test is called where it had to be killed.
pub(super) const SERVICE: &str = "the service";
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
        let down = self.service.stop().await;
        problems.into_iter().chain(down.problems).for_each(|problem| lab_check(result, problem));
        result.checks.extend(down.killed.map(|how| killed_check(SERVICE, &how)));
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
        // Killed from here on, it leaves no log with a secret in it.
        self.tell_supervisor();
        let order = hosts::HostsOrder {
            prepared: self.prepared,
            folder: self.dir.path(),
            runs: &self.options.runs,
            vlab: &self.options.vlab,
            ledger: &ledger,
            ability: self.options.ability.as_ref(),
            movable: self.options.freeze.is_some(),
            from: self.options.from.as_ref().map(|snapshot| snapshot.folder()),
            tell: self.options.tell,
            interrupted: &self.options.interrupted,
        };
        let mut hosts = hosts::provider(self.prepared).start(&order, result).await?;
        if let Err(error) = self.thaw(&mut *hosts).await {
            let (problems, _) = hosts.stop().await;
            problems.into_iter().for_each(|problem| lab_check(result, problem));
            return Err(error);
        }
        match Box::pin(self.start_service(result, ledger, hosts.inside())).await {
            Ok(service) => {
                // Starting it has brought others.
                self.tell_supervisor();
                Ok(Lab { service, hosts })
            }
            Err(error) => {
                let (problems, _) = hosts.stop().await;
                problems.into_iter().for_each(|problem| lab_check(result, problem));
                Err(error)
            }
        }
    }

    /// Hosts that were frozen are there again, and stand still. From now on times count as they did then.
    async fn thaw(&mut self, hosts: &mut dyn RunningHosts) -> Result<(), LabError> {
        let Some(snapshot) = &self.options.from else { return Ok(()) };
        let left = snapshot.try_out(self.prepared).map_err(lab("snapshot"))?;
        hosts.thaw(snapshot.folder(), &snapshot.manifest.machines, left.done).await?;
        let shift = snapshot.shift(self.clock.now());
        self.from = Some(From { snapshot: Arc::clone(snapshot), shift });
        Ok(())
    }

    /// Which words the supervisor takes out of which logs should this process be killed.
    fn tell_supervisor(&mut self) {
        let logs = logs(self.prepared).iter().map(|log| self.dir.file(log)).collect();
        let secrets = self.secrets.all();
        if let Some((_, supervisor)) = &mut self.ledger
            && let Err(error) = supervisor.will_redact(secrets, logs)
        {
            tracing::warn!(%error, "supervisor");
        }
    }

    async fn start_service(
        &self,
        result: &mut RunResult,
        ledger: Arc<Ledger>,
        inside: Option<&Inside>,
    ) -> Result<Arc<dyn RunningService>, LabError> {
        let run_id = result.run.run_id.clone();
        let usual = HubOrder::default();
        let order = service::ServiceOrder {
            prepared: self.prepared,
            run_id: &run_id,
            folder: self.dir.path(),
            vlab: &self.options.vlab,
            ledger: Some(ledger),
            real_tools: self.options.real_tools,
            ready_within: self.options.ready_within,
            inside,
            hub: self.options.hub.as_ref().or(self.prepared.kube.then_some(&usual)),
            from: self.from.as_ref().map(|from| (from.snapshot.folder(), from.shift)),
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
        lines.extend(about.hub.iter().map(|(_, path)| format!("kubectl:  export KUBECONFIG={}", path.display())));
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
        let strays = ledger.strays();
        let closed = ledger.close();
        // What else the machine has: the ledger knows only what the harness made.
        let (run, with_engine) = (result.run.run_id.clone(), matches!(self.prepared.target, Target::Container { .. }));
        let found = tokio::task::spawn_blocking(move || on_the_machine(&run, &strays, with_engine)).await;
        let mut left = found.unwrap_or_else(|error| vec![error.to_string()]);
        match closed {
            Ok(open) if open.is_empty() => {
                if let Err(error) = supervisor.dismiss() {
                    tracing::warn!(%error, "supervisor");
                }
            }
            Ok(open) => {
                left.extend(open.iter().map(ToString::to_string));
                // Letting go of the supervisor without a word makes it clean up.
                drop(supervisor);
            }
            Err(error) => {
                left.push(error.to_string());
                drop(supervisor);
            }
        }
        check.seen = match left.as_slice() {
            [] => "every process, container, folder and socket of the run is gone".to_owned(),
            [one] => format!("one thing was left: {one}"),
            more => format!("{} things were left: {}", more.len(), more.join(", ")),
        };
        if !left.is_empty() {
            check.verdict = CheckVerdict::Failed;
            check.message = check.seen.clone();
        }
        result.checks.push(check);
        let _ = std::io::stderr().flush();
    }
}

/// Removes what the machine has of a run that should be gone, and that no ledger knows; what that was, in words.
fn on_the_machine(run: &str, strays: &BTreeSet<ProcessId>, with_engine: bool) -> Vec<String> {
    let mut left = leaks::end_processes(run, strays, leaks::PATIENCE);
    for path in leaks::folders(run, &ledger::registry(), &gc::temporary_folders()) {
        let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        let how = removed.err().map(|error| format!(" (it cannot be removed: {error})")).unwrap_or_default();
        left.push(format!("{}{how}", path.display()));
    }
    if with_engine && let Ok(engine) = vlab_container_engine::find() {
        // What is in the ledger is told and removed by those who read it.
        match leaks::labelled(run, &engine) {
            Ok(things) => left.extend(things),
            Err(error) => left.push(format!("what the container engine has cannot be listed: {error}")),
        }
    }
    left
}
