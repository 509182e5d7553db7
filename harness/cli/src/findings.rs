//! The verb `findings`: shows a folder of findings, and makes the page of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vlab_drive::explore::findings::{Finding, known, page, read, table};
use vlab_drive::explore::record::RECORD;
use vlab_judge::result::exit;

use crate::error::{CliError, ExitResult};
use crate::tools::print;

const CLASSES: &str = "\
What each of them is, a person says in `classes.yaml` in that folder:

  - finding: one-event-each-59f6b7     # the name of its file, or its signature
    class: defect                      # or by-design, or ours: the lab is wrong
    since: 2026-11-25                  # since when it is known; a version will do
    note: >
      Why it is that.";

#[derive(clap::Args)]
#[command(after_help = CLASSES)]
pub(crate) struct FindingsArgs {
    /// Folder of the findings, as `vlab explore` writes it.
    #[arg(default_value = "findings", value_name = "DIR")]
    folder: PathBuf,
    /// Write the page of all of them into this file, too.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

pub(crate) fn findings(args: &FindingsArgs) -> ExitResult {
    let folder = &args.folder;
    let findings = read_folder(folder)?;
    if findings.is_empty() {
        return Err(CliError::nothing_selected(format!("{} has no findings", folder.display())));
    }
    print(&table(&findings));
    if let Some(file) = &args.markdown {
        let beside = file.parent().unwrap_or(Path::new(""));
        let seen_from_page = folder.strip_prefix(beside).unwrap_or(folder);
        let text = page(&findings, &seen_from_page.display().to_string(), &folder.display().to_string());
        std::fs::write(file, text).map_err(|e| CliError::usage(format!("{}: {e}", file.display())))?;
    }
    Ok(exit::PASSED)
}

fn read_folder(folder: &Path) -> Result<Vec<Finding>, CliError> {
    read(&texts(folder)?).map_err(|error| CliError::usage(folder.join(error.to_string()).display()))
}

/// What a search need not tell as new, by its signature; see [`known`].
pub(crate) fn known_in(folder: Option<&Path>) -> Result<BTreeMap<String, String>, CliError> {
    folder.map_or_else(|| Ok(BTreeMap::new()), |folder| Ok(known(&read_folder(folder)?)))
}

/// The scenarios, records and classes of a folder.
fn texts(folder: &Path) -> Result<BTreeMap<String, String>, CliError> {
    let no_folder = |e: std::io::Error| {
        let why = "name the folder into which `vlab explore --findings` wrote";
        CliError::usage(format!("{}: {e}; {why}", folder.display()))
    };
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(no_folder)? {
        let path = entry.map_err(no_folder)?.path();
        if !path.extension().is_some_and(|ext| ext == "yaml" || ext == RECORD) {
            continue;
        }
        let text = std::fs::read_to_string(&path).map_err(|e| CliError::usage(format!("{}: {e}", path.display())))?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        files.insert(name, text);
    }
    Ok(files)
}
