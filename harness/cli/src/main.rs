//! `vlab`: a virtual lab and end-to-end test harness for the OpenShift Assisted Installer.
//!
//! The verbs are thin: they read the command line, call the rooms, print, and turn the verdict into an exit code.

mod conformance;
mod coverage;
mod differ;
mod installer;
mod machines;
mod run;
mod service;
mod session;
mod tools;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use vlab_judge::result::exit;

/// A virtual lab and end-to-end test harness for the OpenShift Assisted Installer.
#[derive(Parser)]
#[command(name = "vlab", version, propagate_version = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 passed, 1 failed (the product is wrong), 2 usage or invalid scenario, \
3 inconclusive (the lab was wrong), 4 nothing selected, 5 budget missed, 6 leak, 7 flaky (passed only at a retry), 70 internal error, 130 interrupted.";

#[derive(Subcommand)]
enum Verb {
    /// Run scenarios against a real PostgreSQL and a service process, and judge them.
    Scenario(run::ScenarioArgs),
    /// Run every scenario of the catalogue (`--tag` selects): the catalogue is the test suite of an installer.
    Test(run::TestArgs),
    /// Run those of a session again that did not pass, with the seeds that they had.
    Rerun(session::RerunArgs),
    /// Run a scenario in virtual time: same code, same verdict, no waiting.
    Simulate(run::SimulateArgs),
    /// Ask a service a few hundred questions about its API, one check each, and judge the answers.
    Conformance(conformance::ConformanceArgs),
    /// Run the simulated assisted-service by itself.
    Service(service::ServiceArgs),
    /// List the scenarios.
    List(tools::ListArgs),
    /// Check scenarios without running them.
    Validate(tools::ValidateArgs),
    /// Print the JSON Schema of the scenario language.
    Schema,
    /// Write the reports of a run again from its history.
    Report(run::ReportArgs),
    /// Judge a run again from its history.
    Check(run::CheckArgs),
    /// Tell which rules of the service's machines, stages, steps, validations, events and faults runs have exercised.
    Coverage(coverage::CoverageArgs),
    /// Compare two runs: where do their histories part?
    Diff(differ::DiffArgs),
    /// Run scenarios on the simulated service and on another one, and compare the histories.
    Differential(differ::DifferentialArgs),
    /// Boot a medium in a virtual machine and show its console until it stops or Ctrl-C ends it.
    Spawn(machines::SpawnArgs),
    /// Sit down at the console of a virtual machine that runs (Ctrl-] leaves).
    Console(machines::ConsoleArgs),
    /// Open a shell in a virtual machine of a run that goes on, or run a command there.
    Ssh(machines::SshArgs),
    /// List the virtual machines that run.
    Machines(machines::MachinesArgs),
    /// Tell what this machine has, what works, and how to get the rest.
    Doctor(tools::DoctorArgs),
    /// Install what runs need and is missing.
    Setup(tools::SetupArgs),
    /// Find and remove what dead runs have left.
    Gc(tools::GcArgs),
    /// What a real service starts in the place of the release's installer.
    #[command(hide = true)]
    OpenshiftInstall(installer::InstallerArgs),
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    // Before any thread starts: the supervisor is a fork of a small single-threaded program.
    if args.get(1).is_some_and(|verb| verb == vlab_lab::supervisor::VERB) {
        return vlab_lab::supervisor::supervise_main(&args[2..]);
    }
    // Before any thread starts: only such a process can enter a user namespace.
    if args.get(1).is_some_and(|verb| verb == vlab_lab::network::namespace::VERB) {
        return vlab_lab::network::namespace::in_namespace_main(&args[2..]);
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
    // Before any thread starts: it enters namespaces, too.
    if let Verb::Ssh(args) = &cli.verb {
        return ExitCode::from(machines::ssh(args));
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("vlab: cannot start: {error}");
            return ExitCode::from(exit::INTERNAL);
        }
    };
    let code = runtime.block_on(async {
        match cli.verb {
            Verb::Scenario(args) => run::scenario(args).await,
            Verb::Test(args) => run::test(args).await,
            Verb::Rerun(args) => session::rerun(args).await,
            Verb::Simulate(args) => run::simulate(args),
            Verb::Conformance(args) => conformance::conformance(args).await,
            Verb::Service(args) => Box::pin(service::service(args)).await,
            Verb::List(args) => tools::list(&args),
            Verb::Validate(args) => tools::validate(&args),
            Verb::Schema => tools::schema(),
            Verb::Report(args) => run::report(&args),
            Verb::Check(args) => run::check(&args),
            Verb::Coverage(args) => coverage::coverage(&args),
            Verb::Diff(args) => differ::diff(&args),
            Verb::Differential(args) => differ::differential(args).await,
            Verb::Spawn(args) => machines::spawn(args).await,
            Verb::Console(args) => machines::console(args).await,
            Verb::Ssh(_) => unreachable!("done above"),
            Verb::Machines(args) => machines::list(&args),
            Verb::Doctor(args) => tools::doctor(args).await,
            Verb::Setup(args) => tools::set_up(&args),
            Verb::Gc(args) => tools::gc(&args),
            Verb::OpenshiftInstall(args) => installer::openshift_install(&args),
        }
    });
    // Tasks that still wait for somebody must not keep the process.
    runtime.shutdown_background();
    ExitCode::from(code)
}

/// Logs go to stderr; `VLAB_LOG` says how much (the syntax of `RUST_LOG`).
fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("VLAB_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

/// Prints a line of the tool itself to stderr. Also used by the set-up, which this program shares with `cargo xtask`.
fn say(text: &str) {
    eprintln!("vlab: {text}");
}
