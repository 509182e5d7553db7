//! Writes the reports of a run into its folder.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use vlab_model::history::Observation;

use crate::logs::{self, LogLine};
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

/// Writes all reports into `dir`, redacted. The page has the logs that are there, too. Each file appears whole or not at all; `result.json` is the last, so whoever
/// sees it can read the others.
///
/// Errors are those of the file system, with the path in their text.
pub fn write_all(dir: &Path, result: &RunResult, history: &[Observation], redactor: &Redactor) -> io::Result<Written> {
    // Without its logs the page still says what was observed.
    let logs = logs::read(dir, result.started_at).unwrap_or_else(|error| {
        vec![LogLine { at: result.started_at, program: "vlab", level: "error", text: error.to_string() }]
    });
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
    write_whole(&written.junit, &redactor.redact(&junit::render(&clean)))?;
    write_whole(&written.html, &redactor.redact(&html::render_with_logs(&clean, history, &logs, redactor)))?;
    write_whole(&written.result, &json)?;
    Ok(written)
}

/// Writes a file so that it appears whole or not at all: until then what was there before stays. What is no file, for example a
/// device, is written into.
///
/// # Errors
/// Those of the file system, with the path in their text.
pub fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let whole = || -> io::Result<()> {
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            return fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes());
        }
        // A link stays one.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new().prefix(".report-").tempfile_in(dir)?;
        file.write_all(text.as_bytes())?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        }
        file.persist(&path)?;
        Ok(())
    };
    whole().map_err(|e| io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn what_was_there_is_replaced_as_a_whole_and_a_device_is_written_into() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result.json");
        fs::write(&path, "before").unwrap();
        let mut before = fs::File::open(&path).unwrap();
        write_whole(&path, "after").unwrap();
        let mut text = String::new();
        before.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), fs::read_to_string(&path).unwrap().as_str()), ("before", "after"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        write_whole(Path::new("/dev/null"), "after").unwrap();
        assert!(write_whole(Path::new("/dev/full"), "after").is_err());
        assert!(write_whole(&folder.path().join("no/folder"), "after").is_err());
    }
}
