//! Options that several verbs share, and what follows from them.

use std::path::PathBuf;

use tokio_util::sync::CancellationToken;
use vlab_drive::prepare::HubChoice;
use vlab_judge::result::{RunResult, exit};
use vlab_reports::spread::Series;
use vlab_run::live::Show;
use vlab_run::real::{self, RealOptions};
use vlab_run::service::hub::{self, HubOrder};
use vlab_scenario::HostKind;
use vlab_service_server::program::stop_on_signals;

use crate::error::CliError;
use crate::say;
use crate::tools::print;

/// How this machine is used for it.
#[derive(clap::Args, Clone)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) lab: LabArgs,
    /// Show no progress on the terminal.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// `--hosts`.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hosts {
    /// Simulated.
    Sim,
    /// Virtual machines.
    Vm,
}

impl From<Hosts> for HostKind {
    fn from(hosts: Hosts) -> Self {
        match hosts {
            Hosts::Sim => Self::Simulated,
            Hosts::Vm => Self::Vm,
        }
    }
}

/// How the lab is made, whatever is done in it.
#[derive(clap::Args, Clone)]
pub(crate) struct LabArgs {
    /// With `process` and `container`: let the service find `oc` in PATH, instead of a stand-in that answers without a registry.
    #[arg(long)]
    pub(crate) real_tools: bool,
    /// With `process`: the service's controllers work, too, on an API server of the run with the CustomResourceDefinitions in this folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) definitions: Option<PathBuf>,
    /// Over Kubernetes: a real API server for the run, of the programs in this folder (etcd, kube-apiserver, kubectl: the one that envtest
    /// uses), instead of the lab's own.
    #[arg(long, value_name = "FOLDER", conflicts_with = "kubeconfig")]
    pub(crate) hub_assets: Option<PathBuf>,
    /// Over Kubernetes: the hub that is there already, with the service in it; `--service remote:http://HOST:PORT` says where hosts reach that.
    /// Only namespaces and image sets of the run are made there, and deleted at the end. Wants kubectl.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// With `container`: the PostgreSQL image. Without it, `vlab-postgres` if this machine has it, else `postgres:16` from
    /// Docker's registry.
    #[arg(long, env = "VLAB_POSTGRES_IMAGE", value_name = "IMAGE")]
    pub(crate) postgres_image: Option<String>,
    /// How many seconds to wait until PostgreSQL's container and the service are ready; for a slow machine.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) ready_within: Option<u64>,
    /// Folder in which each run gets a folder of its own.
    #[arg(long, env = "VLAB_RUNS")]
    pub(crate) output_dir: Option<PathBuf>,
    /// Do not install anything that is missing.
    #[arg(long)]
    pub(crate) no_setup: bool,
}

impl LabArgs {
    /// PostgreSQL's image, when one was named: an empty variable of the environment names none.
    pub(crate) fn postgres_image(&self) -> Option<String> {
        self.postgres_image.clone().filter(|image| !image.is_empty())
    }

    /// The API server of a run that asks over Kubernetes.
    pub(crate) fn hub(&self) -> Result<HubChoice, CliError> {
        match (&self.hub_assets, &self.kubeconfig) {
            (Some(folder), _) => {
                hub::assets::check(folder).map_err(|why| CliError::usage(format!("--hub-assets: {why}")))?;
                Ok(HubChoice::Assets(folder.clone()))
            }
            (None, Some(file)) => {
                hub::existing::check(file).map_err(|why| CliError::usage(format!("--kubeconfig: {why}")))?;
                Ok(HubChoice::Existing(file.clone()))
            }
            (None, None) => Ok(HubChoice::Ours),
        }
    }

    /// The same for verbs that only ask over REST, or on an API server of the run.
    pub(crate) fn hub_of_the_run(&self) -> Result<HubChoice, CliError> {
        match self.kubeconfig {
            Some(_) => Err(CliError::usage("--kubeconfig is for runs of scenarios over Kubernetes: leave it out here")),
            None => self.hub(),
        }
    }

    /// Folder of the runs.
    pub(crate) fn runs(&self) -> PathBuf {
        self.output_dir.clone().unwrap_or_else(runs_folder)
    }

    /// The options of one run.
    pub(crate) fn options(&self, scenario_text: Vec<u8>, interrupted: CancellationToken, live: Show) -> RealOptions {
        RealOptions {
            // What is started later is this program, also when it was built anew while it runs.
            vlab: PathBuf::from("/proc/self/exe"),
            runs: self.runs(),
            scenario_text,
            interrupted,
            live,
            keep: false,
            pause_on_failure: false,
            real_tools: self.real_tools,
            hub: self.definitions.clone().map(|folder| HubOrder { definitions: Some(folder), ..HubOrder::default() }),
            ready_within: self.ready_within.map(std::time::Duration::from_secs),
            ability: None,
            tell: say,
            freeze: None,
            from: None,
        }
    }
}

/// What is done with the figures of several runs.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct SeriesArgs {
    /// With `--repeat`: write the figures to this file.
    #[arg(long, value_name = "FILE", requires = "repeat")]
    save_series: Option<PathBuf>,
    /// With `--repeat`: compare with the figures in this file. A change of a median by less than 5 % is noise.
    #[arg(long, value_name = "FILE", requires = "repeat")]
    compare: Option<PathBuf>,
}

impl SeriesArgs {
    /// The series to compare with, before anything is run.
    pub(crate) fn earlier(&self) -> Result<Option<Series>, CliError> {
        let Some(file) = &self.compare else { return Ok(None) };
        let complain = |problem: String| CliError::usage(format!("{}: {problem}", file.display()));
        let text = std::fs::read(file).map_err(|e| complain(e.to_string()))?;
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|e| complain(format!("no series of runs ({e}); `--save-series` writes one")))
    }

    /// The same for a command that can run several scenarios: a file has the figures of one.
    pub(crate) fn of_one_scenario(&self, scenarios: usize) -> Result<Option<Series>, CliError> {
        if scenarios > 1 && (self.save_series.is_some() || self.compare.is_some()) {
            let why = format!("--save-series and --compare are for one scenario, and {scenarios} are selected");
            return Err(CliError::usage(why));
        }
        self.earlier()
    }

    /// Shows what the runs of each scenario took that was run more than once.
    pub(crate) fn show_each(&self, results: &[RunResult], earlier: Option<&Series>) -> Result<(), CliError> {
        let mut scenarios: Vec<&str> = Vec::new();
        for result in results {
            if !scenarios.contains(&result.run.scenario.as_str()) {
                scenarios.push(&result.run.scenario);
            }
        }
        let several = scenarios.len() > 1;
        for scenario in scenarios {
            let of_it: Vec<RunResult> = results.iter().filter(|r| r.run.scenario == scenario).cloned().collect();
            // One run has no spread; but who asked for a file or a comparison gets it.
            if of_it.len() > 1 || self.save_series.is_some() || earlier.is_some() {
                print(&if several { format!("\n{scenario}\n") } else { "\n".to_owned() });
                self.show(&of_it, earlier)?;
            }
        }
        Ok(())
    }

    /// Shows what the runs took, against the earlier series, and writes it where it was asked for.
    pub(crate) fn show(&self, results: &[RunResult], earlier: Option<&Series>) -> Result<(), CliError> {
        let series = Series::of(results);
        if let Some(why) = earlier.and_then(|e| series.differs_from(e)) {
            return Err(CliError::usage(format!("the series cannot be compared: {why}")));
        }
        print(&series.table(earlier));
        let Some(file) = &self.save_series else { return Ok(()) };
        let text = serde_json::to_string_pretty(&series).unwrap_or_default();
        std::fs::write(file, text + "\n").map_err(|e| CliError::inconclusive(format!("{}: {e}", file.display())))
    }
}

/// The folder of all runs when nothing else is said.
pub(crate) fn runs_folder() -> PathBuf {
    std::env::var_os("VLAB_RUNS").map_or_else(real::default_runs, PathBuf::from)
}

/// Ctrl-C once asks to stop, twice stops at once; what is left then is the supervisor's.
pub(crate) fn interrupted() -> CancellationToken {
    let token = CancellationToken::new();
    let ours = token.clone();
    stop_on_signals(i32::from(exit::INTERRUPTED), move || {
        say("stopping; press Ctrl-C again to stop at once");
        ours.cancel();
    });
    token
}
