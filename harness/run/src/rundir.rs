//! The folder of a run: a start marker that is written first, a result that is written last, and everything between, so that
//! the folder of a run that was killed can be told from one that ended.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};
use vlab_api::Timestamp;
use vlab_drive::prepare::{Prepared, VERSION};
use vlab_reports::{RedactingWriter, Redactor};
use vlab_scenario::{FrontDoor, SourceFile};

/// Name of the start marker.
pub const STARTED: &str = "started.json";
/// Name of the result, the end marker.
pub const RESULT: &str = "result.json";
/// Name of the history.
pub const HISTORY: &str = "history.jsonl";
/// Name of the copy of the scenario.
pub const SCENARIO: &str = "scenario.yaml";
/// Texts of the files that the scenario names, by the path that it has for them; only when it names some.
pub const RESOURCES: &str = "resources.json";
/// Name of the link to the newest run.
pub const LATEST: &str = "latest";

/// What the start marker says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Id of the run.
    pub run_id: String,
    /// Name of the scenario.
    pub scenario: String,
    /// Seed of the run's random choices.
    pub seed: u64,
    /// Time profile that was asked for instead of the scenario's.
    pub time_profile: String,
    /// Service under test, as on the command line; empty: the scenario's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service: String,
    /// What its hosts are: `simulated`, `vm`, `mixed`; empty in runs of before there was a choice.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hosts: String,
    /// How the service is asked: `rest`, `kube`; empty in runs of before there was a choice.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api: String,
    /// Folder with the product's own programs for its machines, where one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_node: Option<PathBuf>,
    /// Process that runs it.
    pub pid: u32,
    /// When the run started.
    pub at: Timestamp,
    /// Version of the harness.
    pub vlab_version: String,
}

impl Started {
    /// The start marker of a run that begins now, in this process.
    pub fn of(prepared: &Prepared, run_id: &str, at: Timestamp) -> Self {
        Self {
            run_id: run_id.to_owned(),
            scenario: prepared.scenario.name.clone(),
            seed: prepared.seed,
            time_profile: prepared.time_profile.clone(),
            service: prepared.target.to_string(),
            hosts: prepared.hosts_kind().to_string(),
            api: (if prepared.kube { FrontDoor::Kube } else { FrontDoor::Rest }).to_string(),
            real_node: prepared.real_node.clone(),
            pid: std::process::id(),
            at,
            vlab_version: VERSION.to_owned(),
        }
    }
}

/// The folder of a run.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Makes the folder `<runs>/<run id>` with its start marker and the scenario, and points `<runs>/latest` at it.
    ///
    /// # Errors
    /// Those of the file system, with the path in the text.
    pub fn create(
        runs: &Path,
        started: &Started,
        scenario_text: &[u8],
        resources: &BTreeMap<String, String>,
        redactor: &Redactor,
    ) -> io::Result<Self> {
        let path = runs.join(&started.run_id);
        let named =
            |what: &Path, e: io::Error| io::Error::new(e.kind(), format!("cannot write {}: {e}", what.display()));
        fs::create_dir_all(runs).map_err(|e| named(runs, e))?;
        // Process numbers are unique on one machine, not in a folder that several containers write to.
        fs::create_dir(&path).map_err(|e| named(&path, e))?;
        let marker = path.join(STARTED);
        let mut text = serde_json::to_vec_pretty(started).map_err(io::Error::other)?;
        text.push(b'\n');
        fs::write(&marker, text).map_err(|e| named(&marker, e))?;
        let copy = path.join(SCENARIO);
        // What is no text is no scenario either.
        let text = String::from_utf8_lossy(scenario_text);
        fs::write(&copy, redactor.redact(&text).as_bytes()).map_err(|e| named(&copy, e))?;
        if !resources.is_empty() {
            let file = path.join(RESOURCES);
            // Each by itself: a text in JSON is not what it is by itself.
            let clean = |(path, text): (&String, &String)| (path.clone(), redactor.redact(text).into_owned());
            let resources: BTreeMap<String, String> = resources.iter().map(clean).collect();
            let text = serde_json::to_vec_pretty(&resources).map_err(io::Error::other)?;
            fs::write(&file, text).map_err(|e| named(&file, e))?;
        }
        let dir = Self { path };
        dir.point_latest(runs, &started.run_id).map_err(|e| named(&runs.join(LATEST), e))?;
        Ok(dir)
    }

    /// The link is made beside and renamed, so that it is never missing. Two runs that start together: the later one wins.
    fn point_latest(&self, runs: &Path, run_id: &str) -> io::Result<()> {
        let beside = runs.join(format!(".{LATEST}-{run_id}"));
        let _ = fs::remove_file(&beside);
        symlink(run_id, &beside)?;
        fs::rename(&beside, runs.join(LATEST))
    }

    /// An existing folder of a run.
    ///
    /// # Errors
    /// When it has no start marker.
    pub fn open(path: &Path) -> io::Result<(Self, Started)> {
        let marker = path.join(STARTED);
        let bytes = fs::read(&marker).map_err(|e| {
            io::Error::new(
                e.kind(),
                format!("{} is not the folder of a run: cannot read {}: {e}", path.display(), marker.display()),
            )
        })?;
        let started = serde_json::from_slice(&bytes)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {e}", marker.display())))?;
        Ok((Self { path: path.to_owned() }, started))
    }

    /// The scenario as it was run, with the files that it names.
    ///
    /// # Errors
    /// In words: it cannot be read.
    pub fn scenario(&self) -> Result<SourceFile, String> {
        let mut source = SourceFile::read(&self.file(SCENARIO)).map_err(|e| e.to_string())?;
        let file = self.file(RESOURCES);
        match fs::read(&file) {
            Ok(text) => {
                source.resources = serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", file.display()))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{}: {error}", file.display())),
        }
        Ok(source)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file for writing through the redactor. New, and only readable by its owner and group: logs may hold more
    /// than one thinks.
    ///
    /// # Errors
    /// Those of the file system, with the path in the text.
    pub fn redacted_file(&self, name: &str, redactor: &Redactor) -> io::Result<RedactingWriter<BufWriter<File>>> {
        redacted_file(&self.file(name), redactor)
    }

    /// Replaces a log that another program wrote by its redacted form. A log that is not there is left out.
    ///
    /// # Errors
    /// Those of the file system, with the path in the text.
    pub fn redact_log(&self, name: &str, redactor: &Redactor) -> io::Result<()> {
        redact_log(&self.file(name), redactor)
    }
}

fn redacted_file(path: &Path, redactor: &Redactor) -> io::Result<RedactingWriter<BufWriter<File>>> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o640)
        .open(path)
        .map_err(|e| io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display())))?;
    Ok(RedactingWriter::new(BufWriter::new(file), redactor.clone()))
}

fn redact_log(path: &Path, redactor: &Redactor) -> io::Result<()> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("redacting {}: {e}", path.display()));
    let mut raw = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(named(e)),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let clean = path.with_file_name(format!(".{name}.redacted"));
    let mut out = redacted_file(&clean, redactor)?;
    io::copy(&mut raw, &mut out).map_err(named)?;
    out.flush().map_err(named)?;
    drop(out);
    fs::rename(clean, path).map_err(named)
}

/// What the supervisor does with the logs of a run that was killed, see [`vlab_lab::supervisor::Redact`]. Nobody is left to be
/// told of what goes wrong but its own log.
pub fn redact_logs(secrets: &[String], logs: &[PathBuf]) {
    let redactor = Redactor::new(secrets.iter().cloned());
    for log in logs {
        if let Err(error) = redact_log(log, &redactor) {
            eprintln!("supervisor: {error}");
        }
    }
}

/// Id of a run that this process begins now. No two of its runs have the same.
pub fn new_run_id(now: Timestamp, scenario: &str) -> String {
    static BEGUN: AtomicU32 = AtomicU32::new(0);
    let id = run_id(now, scenario, std::process::id());
    match BEGUN.fetch_add(1, Ordering::Relaxed) {
        0 => id,
        n => format!("{id}-{}", n + 1),
    }
}

/// Id of a session that this process begins now.
pub fn session_id(now: Timestamp) -> String {
    run_id(now, "session", std::process::id())
}

/// Id of a run: the time, sortable, the scenario, and the process, so that two runs at once differ.
fn run_id(now: Timestamp, scenario: &str, pid: u32) -> String {
    let time: String = now.to_string().chars().filter(char::is_ascii_digit).take(14).collect();
    let name: String = scenario
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' })
        .take(60)
        .collect();
    format!("{time}-{name}-{pid}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(id: &str) -> Started {
        Started {
            run_id: id.into(),
            scenario: "sno".into(),
            seed: 1,
            time_profile: "fast".into(),
            service: String::new(),
            hosts: String::new(),
            api: String::new(),
            real_node: None,
            pid: 1,
            at: Timestamp::from_secs(0),
            vlab_version: "0".into(),
        }
    }

    #[test]
    fn latest_points_at_the_newest_and_the_marker_can_be_read() {
        let runs = tempfile::tempdir().unwrap();
        let nothing = Redactor::default();
        RunDir::create(runs.path(), &started("a"), b"x", &BTreeMap::new(), &nothing).unwrap();
        let dir = RunDir::create(runs.path(), &started("b"), b"y", &BTreeMap::new(), &nothing).unwrap();
        assert_eq!(fs::read_link(runs.path().join(LATEST)).unwrap(), Path::new("b"));
        let (_, read) = RunDir::open(&runs.path().join(LATEST)).unwrap();
        assert_eq!(read, started("b"));
        assert_eq!(fs::read(dir.file(SCENARIO)).unwrap(), b"y");
        let twice = RunDir::create(runs.path(), &started("b"), b"z", &BTreeMap::new(), &nothing).unwrap_err();
        assert_eq!(twice.kind(), io::ErrorKind::AlreadyExists, "two runs never share a folder: {twice}");
        assert_eq!(fs::read(dir.file(SCENARIO)).unwrap(), b"y");
        assert!(RunDir::open(runs.path()).unwrap_err().to_string().contains("is not the folder of a run"));
    }

    #[test]
    fn a_log_is_redacted_in_place() {
        let runs = tempfile::tempdir().unwrap();
        let redactor = Redactor::new(["swordfish77".to_owned()]);
        let dir = RunDir::create(runs.path(), &started("a"), b"x", &BTreeMap::new(), &redactor).unwrap();
        fs::create_dir(dir.file("network")).unwrap();
        for log in ["service.log", "network/dnsmasq.log"] {
            fs::write(dir.file(log), "the word is swordfish77\n").unwrap();
            dir.redact_log(log, &redactor).unwrap();
            let text = fs::read_to_string(dir.file(log)).unwrap();
            assert!(!text.contains("swordfish77") && text.starts_with("the word is "), "{text}");
        }
        dir.redact_log("missing.log", &redactor).unwrap();
        fs::write(dir.file("service.log"), "the word is swordfish77\n").unwrap();
        redact_logs(&["swordfish77".to_owned()], &[dir.file("missing.log"), dir.file("service.log")]);
        assert!(!fs::read_to_string(dir.file("service.log")).unwrap().contains("swordfish77"));
    }

    #[test]
    fn the_scenario_and_its_files_are_kept_without_secrets_and_can_be_read_again() {
        let runs = tempfile::tempdir().unwrap();
        let secret = r#"{"auths":{"quay.io":{"auth":"dXNlcjpzd29yZGZpc2g3Nw=="}}}"#;
        let redactor = Redactor::new([secret.to_owned(), "swordfish77".to_owned()]);
        let text = format!(
            "version: 1\nname: t\ndescription: '{secret}'\ninfra_env: {{kernel_arguments: [swordfish77, \"swordfish77\"]}}\n\
             cluster: {{topology: sno, ssh_public_key: swordfish77}}\nhosts: [{{name: n}}]\n"
        );
        let resources = BTreeMap::from([("n.yaml".to_owned(), "spec: {password: swordfish77}\n".to_owned())]);
        let dir = RunDir::create(runs.path(), &started("a"), text.as_bytes(), &resources, &redactor).unwrap();
        for file in [SCENARIO, RESOURCES] {
            let kept = fs::read_to_string(dir.file(file)).unwrap();
            assert!(!kept.contains("swordfish") && !kept.contains("dXNlcjpzd29yZGZpc2g3Nw"), "{kept}");
        }
        let read = dir.scenario().unwrap();
        assert_eq!(read.resources["n.yaml"], "spec: {password: (redacted)}\n");
        let scenario = vlab_scenario::load(&read, &vlab_scenario::Catalogue::embedded());
        let scenario = scenario.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(scenario.clusters[0].ssh_public_key.as_deref(), Some("(redacted)"));
        assert_eq!(scenario.infra_env.kernel_arguments, ["(redacted)", "(redacted)"]);
    }

    #[test]
    fn ids_sort_by_time_and_are_file_names() {
        let id = run_id(Timestamp::from_secs(1_767_225_600), "a/b c", 7);
        assert_eq!(id, "20260101000000-a-b-c-7");
    }
}
