//! `vlab kube`: the small Kubernetes API server, which is a program of its own, because `vlab` is built without TLS.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::error::{CliError, ExitResult};

/// Name of the program. It lies beside `vlab`; `VLAB_KUBE` names another place.
const PROGRAM: &str = "vlab-kube";

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct KubeArgs {
    /// Options of the program `vlab-kube`, which has to be beside `vlab`; `vlab kube --help` shows them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

pub(crate) fn kube(args: &KubeArgs) -> ExitResult {
    let named = std::env::var_os("VLAB_KUBE").filter(|path| !path.is_empty()).map(PathBuf::from);
    let program = named.unwrap_or_else(|| std::env::current_exe().unwrap_or_default().with_file_name(PROGRAM));
    if !program.is_file() {
        return Err(CliError::inconclusive(format!(
            "{} is not there. Build it with `cargo build --profile lab -p vlab-kube-server`, or name it with VLAB_KUBE",
            program.display()
        )));
    }
    // It takes our place: signals, terminal and exit code are its own.
    let error = Command::new(&program).args(&args.options).exec();
    Err(CliError::inconclusive(format!("cannot start {}: {error}", program.display())))
}
