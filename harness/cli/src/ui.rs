//! `vlab ui`: the folder of runs in a browser.

use std::net::SocketAddr;
use std::path::PathBuf;

use vlab_judge::result::exit;
use vlab_run::ui;

use crate::args::{interrupted, runs_folder};
use crate::error::{CliError, ExitResult, OrExit as _};
use crate::say;
use crate::tools::print;

#[derive(clap::Args)]
pub(crate) struct UiArgs {
    /// Address to listen on, of the loopback interface; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8091")]
    listen: SocketAddr,
    /// Folder of the runs.
    #[arg(long, env = "VLAB_RUNS")]
    output_dir: Option<PathBuf>,
}

pub(crate) async fn ui(args: UiArgs) -> ExitResult {
    let folder = args.output_dir.unwrap_or_else(runs_folder);
    let (listener, address) = ui::listen(args.listen).map_err(|error| match error {
        ui::UiError::NotLoopback(_) => CliError::usage(error),
        other => CliError::inconclusive(other),
    })?;
    let stop = interrupted();
    print(&format!("http://{address}/\n"));
    say(&format!("shows the runs in {}; Ctrl-C ends it", folder.display()));
    ui::serve(listener, folder, stop).await.or_inconclusive()?;
    Ok(exit::PASSED)
}
