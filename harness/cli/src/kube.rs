//! `vlab kube`: the small Kubernetes API server, which is a program of its own, because `vlab` is built without TLS.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use vlab_run::service::hub;

use crate::error::{CliError, ExitResult};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct KubeArgs {
    /// Options of the program `vlab-kube`, which has to be beside `vlab`; `vlab kube --help` shows them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

pub(crate) fn kube(args: &KubeArgs) -> ExitResult {
    let program = hub::program().map_err(CliError::inconclusive)?;
    // It takes our place: signals, terminal and exit code are its own.
    let error = Command::new(&program).args(&args.options).exec();
    Err(CliError::inconclusive(format!("cannot start {}: {error}", program.display())))
}
