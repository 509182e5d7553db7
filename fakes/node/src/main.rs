//! `vlab-node`: one program of many names. Called under the name of a program that it stands for (`podman`, `agent`, `inventory`,
//! ...) it is that program.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use vlab_node::agent::AgentArgs;
use vlab_node::cluster::bootkube::{self, BootkubeArgs};
use vlab_node::cluster::faults::{self, FaultArgs};
use vlab_node::cluster::node::{self, NodeArgs};
use vlab_node::install::{self, InstallArgs};
use vlab_node::machine::{NodeConfig, Root};
use vlab_node::steps::{self, Site};
use vlab_node::{agent, nmstate, podman, say, tools};

/// What runs inside machines of the lab.
#[derive(Parser)]
#[command(name = "vlab-node", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// The discovery agent: registers this machine and does what the service asks
    Agent(AgentArgs),
    /// One step, as the service asks for it: the answer on standard output, its exit code
    Step {
        /// Type of the step
        step: String,
        /// Its arguments
        args: Vec<String>,
    },
    /// The installer: writes the disk and reboots; on the bootstrap it starts bootkube
    Install(Box<InstallArgs>),
    /// The bootstrap's temporary control plane
    Bootkube(BootkubeArgs),
    /// Approves what new nodes ask for, until bootkube is through
    ApproveCsr(BootkubeArgs),
    /// Waits until the bootstrap is not needed any more, and says so in the cluster
    Progress(BootkubeArgs),
    /// An installed machine's part in the cluster
    Node(NodeArgs),
    /// Begins or ends what a fault of the scenario does to the cluster, from a machine of its control plane
    Fault(FaultArgs),
    /// Does this machine's own API live? Exit code 0: it does
    Alive,
    /// Stands in for a program that the product's own ones call: fio, nmap, oc, shutdown, ...
    #[command(disable_help_flag = true)]
    Tool {
        /// Its name
        name: String,
        /// What it would be called with
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Stands in for nmstatectl
    #[command(disable_help_flag = true)]
    Nmstatectl {
        /// What it would be called with
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Stands in for podman
    #[command(disable_help_flag = true)]
    Podman {
        /// What podman would be called with
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

/// Under which names the program is called, and what it does then.
fn arguments() -> Vec<String> {
    let mut words: Vec<String> = std::env::args().collect();
    let name = words.first().and_then(|w| w.rsplit('/').next()).unwrap_or_default().to_owned();
    let verb: Vec<String> = match name.as_str() {
        "podman" | "nmstatectl" | "agent" => vec![name],
        _ if tools::is_one(&name) => vec!["tool".into(), name],
        "next_step_runner" => vec!["agent".into()],
        "installer" | "assisted-installer" => vec!["install".into()],
        "vlab-bootstrap" => vec!["bootkube".into()],
        other => steps::of_program(other).map(|step| vec!["step".into(), step.into()]).unwrap_or_default(),
    };
    words.splice(1..1, verb);
    words
}

fn main() -> ExitCode {
    let arguments = Arguments::parse_from(arguments());
    if let Verb::Podman { words } = &arguments.verb {
        return ExitCode::from(u8::try_from(podman::podman(words)).unwrap_or(125));
    }
    let said = match &arguments.verb {
        Verb::Tool { name, words } => Some(tools::run(name, words)),
        Verb::Nmstatectl { words } => Some(NodeConfig::load().map_err(|e| e.to_string()).and_then(|config| {
            let call = |program: &str, words: &[&str]| nmstate::call(&config.program(program), words);
            nmstate::nmstatectl(&Root::of_this_machine(), words, call)
        })),
        _ => None,
    };
    if let Some(said) = said {
        return match said {
            Ok(said) => {
                print!("{said}");
                ExitCode::SUCCESS
            }
            Err(problem) => {
                eprintln!("{problem}");
                ExitCode::FAILURE
            }
        };
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("vlab-node: {e}");
            return ExitCode::from(70);
        }
    };
    let result = match arguments.verb {
        Verb::Agent(args) => runtime.block_on(agent::agent(args)),
        Verb::Install(args) => runtime.block_on(install::install(*args)),
        Verb::Bootkube(args) => runtime.block_on(bootkube::bootkube(args)),
        Verb::ApproveCsr(args) => runtime.block_on(bootkube::approve_csr(args)),
        Verb::Progress(args) => runtime.block_on(bootkube::progress(args)),
        Verb::Node(args) => runtime.block_on(node::node(args)),
        Verb::Fault(args) => runtime.block_on(faults::fault(args)),
        Verb::Alive => runtime.block_on(node::alive()),
        Verb::Step { step, args } => return one_step(runtime.handle(), &step, &args),
        Verb::Podman { .. } | Verb::Tool { .. } | Verb::Nmstatectl { .. } => Ok(()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            say::note("error", &problem);
            ExitCode::FAILURE
        }
    }
}

fn one_step(runtime: &tokio::runtime::Handle, step: &str, args: &[String]) -> ExitCode {
    let config = match NodeConfig::load() {
        Ok(config) => config,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::FAILURE;
        }
    };
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let site = Site {
        root: Root::of_this_machine(),
        config,
        service: variable("VLAB_SERVICE_URL"),
        agent_version: variable("VLAB_AGENT_VERSION"),
        runtime: runtime.clone(),
    };
    let ran = steps::run(&site, step, args);
    print!("{}", ran.answer.output);
    if !ran.answer.error.is_empty() {
        eprintln!("{}", ran.answer.error);
    }
    // A process has no negative exit code: −1 is 255.
    ExitCode::from((ran.answer.exit_code & 0xff) as u8)
}
