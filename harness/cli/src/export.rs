//! `vlab export`: a run for other programs that show what happened when.

use std::path::PathBuf;

use vlab_judge::result::exit;
use vlab_reports::Redactor;
use vlab_reports::export::{otlp, perfetto};
use vlab_run::rundir;

use crate::again::open;
use crate::error::{CliError, ExitResult};
use crate::tools::print;

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("format").required(true))]
pub(crate) struct ExportArgs {
    /// A run: its folder, its id, or `latest`.
    #[arg(default_value = rundir::LATEST)]
    run: String,
    /// Write Chrome's trace events, which `https://ui.perfetto.dev` opens (in the browser; nothing is uploaded).
    #[arg(long, group = "format")]
    perfetto: bool,
    /// Write traces as OTLP has them in JSON: a span for each host, cluster, fault, status and stage.
    #[arg(long, group = "format")]
    otlp: bool,
    /// Write this file instead of `perfetto.json` or `otlp.json` in the folder of the run; `-` is the standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Folder of the runs.
    #[arg(long, env = "VLAB_RUNS")]
    output_dir: Option<PathBuf>,
}

pub(crate) fn export(args: &ExportArgs) -> ExitResult {
    debug_assert!(args.perfetto != args.otlp, "the command line has one of them");
    let old = open(&args.run, &args.output_dir)?;
    let redactor = Redactor::new(old.prepared.secrets());
    let (name, text) = if args.perfetto {
        ("perfetto.json", perfetto::render(&old.history, &redactor))
    } else {
        ("otlp.json", otlp::render(&old.history, &redactor))
    };
    let file = args.output.clone().unwrap_or_else(|| old.dir.file(name));
    if file.as_os_str() == "-" {
        print(&text);
        return Ok(exit::PASSED);
    }
    std::fs::write(&file, text).map_err(|e| CliError::inconclusive(format!("cannot write {}: {e}", file.display())))?;
    print(&format!("{}\n", file.display()));
    Ok(exit::PASSED)
}
