//! Writes the reports of a run into its folder.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use vlab_model::history::Observation;

use crate::redact::Redactor;
use crate::{html, junit};
use vlab_judge::result::RunResult;

/// What [`write_all`] wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// `junit_<scenario>.xml`
    pub junit: PathBuf,
    /// `report.html`
    pub html: PathBuf,
    /// `result.json`
    pub result: PathBuf,
}

/// Writes all reports into `dir`, redacted. Each file appears whole or not at all; `result.json` is the last, so whoever
/// sees it can read the others.
///
/// Errors are those of the file system, with the path in their text.
pub fn write_all(dir: &Path, result: &RunResult, history: &[Observation], redactor: &Redactor) -> io::Result<Written> {
    let written = Written {
        junit: dir.join(junit::file_name(&result.run.scenario)),
        html: dir.join("report.html"),
        result: dir.join("result.json"),
    };
    let mut json = serde_json::to_string_pretty(result).map_err(io::Error::other)?;
    json.push('\n');
    let json = redactor.redact(&json);
    // The other two are made of what is left, so that no way of writing a secret in XML or HTML can be forgotten; they are
    // looked through besides, and so they are when a secret was part of the form and the text is no result any more.
    let clean: RunResult = serde_json::from_str(&json).unwrap_or_else(|_| result.clone());
    write(&written.junit, &redactor.redact(&junit::render(&clean)))?;
    write(&written.html, &redactor.redact(&html::render(&clean, history, redactor)))?;
    write(&written.result, &json)?;
    Ok(written)
}

/// Writes a file so that it appears whole or not at all.
///
/// # Errors
/// Those of the file system, with the path in their text.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let whole = || -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".report-").tempfile_in(dir)?;
        file.write_all(text.as_bytes())?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        }
        file.persist(path)?;
        Ok(())
    };
    whole().map_err(|e| io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display())))
}
