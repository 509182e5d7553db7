//! The folder of a load: its start marker, how it goes while it goes on, and its page when it has ended. `vlab ui` shows it
//! among the runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vlab_api::Timestamp;
use vlab_drive::prepare::VERSION;
use vlab_judge::result::Verdict;
use vlab_reports::write_whole;

use crate::rundir::{STARTED, Started, new_run_id};

/// How it goes: a piece of a page, written anew each second.
const NOW: &str = "now.html";
/// How it ended.
const ENDED: &str = "load.json";
/// Its page.
const PAGE: &str = "report.html";

/// The folder of a load that goes on.
#[derive(Debug)]
pub struct LoadFolder {
    path: PathBuf,
    begun: Timestamp,
}

/// How a load ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadEnded {
    /// What it comes to.
    pub verdict: Verdict,
    /// Why it did not pass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// How long it took, in milliseconds.
    pub took_ms: f64,
}

impl LoadFolder {
    /// Makes a folder below that of the runs, for a load that begins now.
    ///
    /// # Errors
    /// Those of the file system, with the path in their text.
    pub fn begin(runs: &Path, plan: &str, seed: u64, url: &str) -> io::Result<Self> {
        let begun = Timestamp::now();
        let run_id = new_run_id(begun, &format!("load-{plan}"));
        let path = runs.join(&run_id);
        fs::create_dir_all(&path)
            .map_err(|e| io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display())))?;
        let started = Started {
            run_id,
            scenario: format!("load {plan}"),
            seed,
            time_profile: String::new(),
            service: url.to_owned(),
            hosts: String::new(),
            api: String::new(),
            real_node: None,
            pid: std::process::id(),
            at: begun,
            vlab_version: VERSION.to_owned(),
        };
        let folder = Self { path, begun };
        folder.now("<p class=\"note\">Nothing is counted yet.</p>")?;
        write_whole(&folder.path.join(STARTED), &serde_json::to_string_pretty(&started)?)?;
        Ok(folder)
    }

    /// Tells how it goes, as a piece of a page.
    ///
    /// # Errors
    /// Those of the file system, with the path in their text.
    pub fn now(&self, fragment: &str) -> io::Result<()> {
        write_whole(&self.path.join(NOW), fragment)
    }

    /// It has ended, and this is its page.
    ///
    /// # Errors
    /// Those of the file system, with the path in their text.
    pub fn end(&self, verdict: Verdict, why: &str, page: &str) -> io::Result<()> {
        write_whole(&self.path.join(PAGE), page)?;
        let took_ms = Timestamp::now().since(self.begun).as_secs_f64() * 1e3;
        let ended = LoadEnded { verdict, why: why.to_owned(), took_ms };
        write_whole(&self.path.join(ENDED), &serde_json::to_string(&ended)?)
    }

    /// It could not begin: there is nothing to show.
    pub fn forget(&self) {
        // What stays is shown as killed.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Is that the folder of a load?
pub fn is_load(path: &Path) -> bool {
    path.join(NOW).exists()
}

/// How it goes.
pub(crate) fn now(path: &Path) -> Option<String> {
    fs::read_to_string(path.join(NOW)).ok()
}

/// How it ended, if it has.
pub(crate) fn ended(path: &Path) -> Option<LoadEnded> {
    serde_json::from_slice(&fs::read(path.join(ENDED)).ok()?).ok()
}
