//! `vlab`: a virtual lab and end-to-end test harness for the OpenShift Assisted Installer.
//!
//! The verbs are thin: they read the command line, call the rooms, print, and turn the verdict into an exit code. A verb that
//! cannot be carried out ends with one kind of error ([`error`]), which has the exit code and the message.

mod again;
mod against;
mod args;
mod branches;
mod conformance;
mod coverage;
mod diff;
mod error;
mod explore;
mod export;
mod findings;
mod flakes;
mod frozen;
mod images;
mod installer;
mod kube;
mod load;
mod machines;
#[cfg(any(test, feature = "manual"))]
mod manual;
mod matrix;
mod mutation;
mod pipeline;
#[cfg(test)]
mod reference;
mod remembered;
mod scenario;
mod service;
mod session;
mod shrink;
mod simulate;
mod stop;
mod tools;
mod ui;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use vlab_judge::result::exit;

use error::{CliError, ExitResult};

/// The version, with the commit that it was built from where there was one.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("VLAB_COMMIT"));

/// A virtual lab and end-to-end test harness for the OpenShift Assisted Installer.
#[derive(Parser)]
#[command(name = "vlab", version = VERSION, propagate_version = true, after_help = exit_codes())]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// The exit codes in one sentence, for `--help`.
fn exit_codes() -> String {
    let all: Vec<String> = exit::CODES.iter().map(|code| format!("{} {}", code.code, code.name)).collect();
    format!("Exit codes: {}.", all.join(", "))
}

#[derive(Subcommand)]
enum Verb {
    /// Run scenarios against a real PostgreSQL and a service process, and judge them.
    Scenario(scenario::ScenarioArgs),
    /// Run every scenario of the catalogue (`--tag` selects): the catalogue is the test suite of an installer.
    Test(scenario::TestArgs),
    /// Run again what did not pass in a session, with the same seeds.
    Rerun(session::RerunArgs),
    /// Install in all combinations of topology, version, address family, firmware and target, and show the table.
    Matrix(matrix::MatrixArgs),
    /// Show how often scenarios pass, since when they do not, and what they fail of.
    Flakes(flakes::FlakesArgs),
    /// Run a scenario in virtual time: same code, same verdict, no waiting.
    Simulate(simulate::SimulateArgs),
    /// Put a service under the load of a plan: thousands of hosts that register, ask and reboot at their times.
    Load(Box<load::LoadArgs>),
    /// Look for defects: draw scenarios, faults and interleavings, run them in virtual time (or on another service, `--against`), and
    /// write the shortest scenario that shows each defect.
    Explore(Box<explore::ExploreArgs>),
    /// Show what exploring has found, and what people say of it.
    Findings(findings::FindingsArgs),
    /// Write the smallest scenario that fails as a run did, by running it in virtual time again and again.
    Shrink(shrink::ShrinkArgs),
    /// Check the API of a service with a few hundred requests, and judge the answers.
    Conformance(conformance::ConformanceArgs),
    /// Run only the simulated assisted-service.
    Service(service::ServiceArgs),
    /// Run a small Kubernetes API server by itself.
    Kube(kube::KubeArgs),
    /// List the scenarios.
    List(tools::ListArgs),
    /// Check scenarios without running them.
    Validate(tools::ValidateArgs),
    /// Print the JSON Schema of the scenario language.
    Schema,
    /// Rewrite the reports of a run from its history.
    Report(again::ReportArgs),
    /// Show the runs of a folder in the browser, and follow those that go on.
    Ui(ui::UiArgs),
    /// Judge a run again from its history.
    Check(again::CheckArgs),
    /// Show which rules of the service's state machines, stages, steps, validations, events and faults runs have exercised.
    Coverage(coverage::CoverageArgs),
    /// Write a run for other programs: Perfetto, or what reads OTLP.
    Export(export::ExportArgs),
    /// Compare two runs and show where their histories diverge.
    Diff(diff::DiffArgs),
    /// Run scenarios on the simulated service and on another one, and compare the histories.
    Differential(diff::DifferentialArgs),
    /// Boot a medium in a virtual machine and show its console until it stops or Ctrl-C ends it.
    Spawn(machines::SpawnArgs),
    /// Attach to the console of a running virtual machine (Ctrl-] detaches).
    Console(machines::ConsoleArgs),
    /// Open a shell in a virtual machine of a run in progress, or run a command there.
    Ssh(machines::SshArgs),
    /// List the running virtual machines.
    Machines(machines::MachinesArgs),
    /// List the labs that were frozen (`scenario --snapshot-at`), or remove some.
    Snapshots(frozen::SnapshotsArgs),
    /// Build the media of virtual machines, and take them from one machine to another.
    Images(images::ImagesArgs),
    /// Show what this machine has, what works, and how to get the rest.
    Doctor(tools::DoctorArgs),
    /// Install what runs need and this machine lacks.
    Setup(tools::SetupArgs),
    /// Find and remove what dead runs have left behind.
    Gc(tools::GcArgs),
    /// Judge the judge: make the simulated service and hosts wrong in one thing at a time, and see which check notices.
    #[command(hide = true)]
    Mutation(mutation::MutationArgs),
    /// What a real service starts in the place of the release's installer.
    #[command(hide = true)]
    OpenshiftInstall(installer::InstallerArgs),
    /// Write shell completions and man pages into a folder.
    #[cfg(feature = "manual")]
    #[command(hide = true)]
    Manual {
        /// The folder.
        folder: std::path::PathBuf,
    },
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    // Before any thread starts: the supervisor is a fork of a small single-threaded program.
    if args.get(1).is_some_and(|verb| verb == vlab_lab::supervisor::VERB) {
        return vlab_lab::supervisor::supervise_main(&args[2..], vlab_run::rundir::redact_logs);
    }
    // Before any thread starts: only such a process can enter a user namespace.
    if args.get(1).is_some_and(|verb| verb == vlab_lab::network::namespace::VERB) {
        return vlab_lab::network::namespace::in_namespace_main(&args[2..]);
    }
    if args.get(1).is_some_and(|verb| verb == vlab_lab::pod::VERB) {
        return vlab_lab::pod::in_pod_main(&args[2..]);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { exit::USAGE } else { exit::PASSED };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    log();
    let code = carry_out(cli.verb).unwrap_or_else(|error| {
        error.print();
        error.code
    });
    ExitCode::from(code)
}

fn carry_out(verb: Verb) -> ExitResult {
    // Before any thread starts: it enters namespaces, too.
    if let Verb::Ssh(args) = &verb {
        return machines::ssh(args);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::internal(format!("cannot start: {error}")))?;
    let ended = runtime.block_on(async {
        match verb {
            Verb::Scenario(args) => scenario::scenario(args).await,
            Verb::Test(args) => scenario::test(args).await,
            Verb::Rerun(args) => session::rerun(args).await,
            Verb::Matrix(args) => Box::pin(matrix::matrix(args)).await,
            Verb::Flakes(args) => flakes::flakes(&args),
            Verb::Simulate(args) => simulate::simulate(args),
            Verb::Load(args) => Box::pin(load::load(*args)).await,
            Verb::Explore(args) => Box::pin(explore::explore(&args)).await,
            Verb::Findings(args) => findings::findings(&args),
            Verb::Shrink(args) => shrink::shrink(&args),
            Verb::Conformance(args) => conformance::conformance(args).await,
            Verb::Service(args) => Box::pin(service::service(args)).await,
            Verb::Kube(args) => kube::kube(&args),
            Verb::List(args) => tools::list(&args),
            Verb::Validate(args) => tools::validate(&args),
            Verb::Schema => tools::schema(),
            Verb::Report(args) => again::report(&args),
            Verb::Ui(args) => ui::ui(args).await,
            Verb::Check(args) => again::check(&args),
            Verb::Coverage(args) => coverage::coverage(&args),
            Verb::Export(args) => export::export(&args),
            Verb::Diff(args) => diff::diff(&args),
            Verb::Differential(args) => diff::differential(args).await,
            Verb::Spawn(args) => machines::spawn(args).await,
            Verb::Console(args) => machines::console(args).await,
            Verb::Ssh(_) => unreachable!("done above"),
            Verb::Snapshots(args) => frozen::snapshots(args),
            Verb::Machines(args) => machines::list(&args),
            Verb::Images(args) => images::images(&args),
            Verb::Doctor(args) => tools::doctor(args).await,
            Verb::Setup(args) => tools::set_up(&args),
            Verb::Gc(args) => tools::gc(&args),
            Verb::Mutation(args) => mutation::mutation(args).await,
            Verb::OpenshiftInstall(args) => installer::openshift_install(&args),
            #[cfg(feature = "manual")]
            Verb::Manual { folder } => manual::manual(<Cli as clap::CommandFactory>::command(), &folder),
        }
    });
    // Tasks that still wait for somebody must not keep the process.
    runtime.shutdown_background();
    ended
}

/// Logs go to stderr; `VLAB_LOG` says how much (the syntax of `RUST_LOG`).
fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("VLAB_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false).init();
}

/// Prints a line of the tool itself to stderr. Also used by the set-up, which this program shares with `cargo xtask`.
fn say(text: &str) {
    tools::tell(&format!("vlab: {text}\n"));
}
