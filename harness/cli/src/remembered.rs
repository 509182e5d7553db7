//! Which tapes a service was asked already: a file in the folder of tapes, so that the next search goes on where the last one ended.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use vlab_drive::alterations::Alteration;
use vlab_drive::explore::against::name_of_target;
use vlab_drive::target::Target;

use crate::error::CliError;

/// Name of the file.
const FILE: &str = "asked.jsonl";

/// A tape that came to a verdict: a line of the file.
#[derive(Serialize, Deserialize)]
struct Asked {
    /// The service, and its build where that can be told.
    service: String,
    time_profile: String,
    numbers: Vec<u64>,
}

/// What one service was asked under one time profile.
pub(crate) struct Remembered {
    service: String,
    time_profile: String,
    path: PathBuf,
    file: Mutex<File>,
}

/// The service, and its build: another program of the same name has been asked nothing.
fn service(target: &Target, alteration: Option<Alteration>) -> String {
    let wrong = alteration.map(|wrong| format!(" with {}", wrong.name())).unwrap_or_default();
    let name = format!("{}{wrong}", name_of_target(target));
    let about = match target {
        Target::Process { program } => std::fs::metadata(program),
        // It is in this program.
        Target::Simulated => std::env::current_exe().and_then(std::fs::metadata),
        _ => return name,
    };
    let Ok(about) = about else { return name };
    let built = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    format!("{name} {} {}", about.len(), built.as_secs())
}

impl Remembered {
    /// Opens the file of a folder; with what this service was asked already.
    ///
    /// # Errors
    /// It cannot be read or written, or has a line that is none of ours, with its place.
    pub(crate) fn open(
        folder: &Path,
        (target, alteration): (&Target, Option<Alteration>),
        time_profile: &str,
    ) -> Result<(Self, BTreeSet<Vec<u64>>), CliError> {
        let path = folder.join(FILE);
        let wrong = |error: std::io::Error| CliError::inconclusive(format!("{}: {error}", path.display()));
        std::fs::create_dir_all(folder).map_err(wrong)?;
        let (service, time_profile) = (service(target, alteration), time_profile.to_owned());
        let mut asked = BTreeSet::new();
        if let Ok(file) = File::open(&path) {
            for (number, line) in BufReader::new(file).lines().enumerate() {
                let line = line.map_err(wrong)?;
                let one: Asked = serde_json::from_str(&line).map_err(|error| {
                    let place = format!("{}:{}", path.display(), number + 1);
                    CliError::usage(format!("{place}: {error}; remove the file to ask everything anew"))
                })?;
                if (&one.service, &one.time_profile) == (&service, &time_profile) {
                    asked.insert(one.numbers);
                }
            }
        }
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(wrong)?;
        Ok((Self { service, time_profile, path, file: Mutex::new(file) }, asked))
    }

    /// A tape came to a verdict.
    ///
    /// # Errors
    /// It cannot be written down, with the reason for people.
    pub(crate) fn add(&self, numbers: &[u64]) -> Result<(), String> {
        let (service, time_profile) = (self.service.clone(), self.time_profile.clone());
        let line = serde_json::to_string(&Asked { service, time_profile, numbers: numbers.to_vec() });
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let text = line.map_err(|error| error.to_string())?;
        writeln!(file, "{text}").map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_build_was_asked_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("service");
        std::fs::write(&program, "one").unwrap();
        let target: Target = format!("process:{}", program.display()).parse().unwrap();
        let open = |profile: &str| Remembered::open(dir.path(), (&target, None), profile).unwrap();
        let (first, asked) = open("rapid");
        assert!(asked.is_empty());
        first.add(&[1, 2]).unwrap();
        first.add(&[]).unwrap();
        assert_eq!(open("rapid").1, BTreeSet::from([vec![], vec![1, 2]]));
        assert_eq!(open("fast").1, BTreeSet::new());
        std::fs::write(&program, "another").unwrap();
        assert_eq!(open("rapid").1, BTreeSet::new());
    }

    #[test]
    fn a_line_that_is_none_of_ours_is_told_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "{}\n").unwrap();
        let error = Remembered::open(dir.path(), (&Target::Simulated, None), "rapid").map(|_| ()).unwrap_err();
        assert!(format!("{error:?}").contains("asked.jsonl:1: missing field"), "{error:?}");
    }
}
