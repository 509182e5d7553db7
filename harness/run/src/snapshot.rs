//! A lab that was frozen: its folder, what is known of it, and whether a scenario can go on from it.
//!
//! ```text
//! snapshot.json    what is known of it; written last
//! journal.jsonl    everything that the conductor was told and wanted
//! postgres/ work/  the service's database and its own files
//! machines/ media/ ssh/  each machine as QEMU writes it, its disks and console; discovery images; the way in
//! ```
//!
//! Who continues changes nothing in it: disks are layers over those that were kept, everything else is copied. It has secrets (the journal has
//! each answer, the keys let into the machines), so nobody else may enter it.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vlab_api::Timestamp;
use vlab_drive::conductor::Conductor;
use vlab_drive::journal::{Entry, Left, ReplayError, Shift};
use vlab_drive::prepare::{Prepared, VERSION};
use vlab_drive::target::Target;
use vlab_history::Recorder;
use vlab_model::history::RunInfo;
use vlab_scenario::{DiskBus, Host, Moment};

use crate::hosts::Frozen;

/// Version of the form of a snapshot. Raised whenever one of before cannot be continued any more.
pub const FORMAT: u32 = 1;
/// Name of the folder of the snapshots.
const SNAPSHOTS: &str = "snapshots";
/// What is known of a snapshot.
const MANIFEST: &str = "snapshot.json";
/// The conductor's journal.
const JOURNAL: &str = "journal.jsonl";

/// When and where a run is to be frozen.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// When that is seen.
    pub moment: Moment,
    /// The same as somebody has written it.
    pub words: String,
    /// The folder, which is not there yet.
    pub folder: PathBuf,
}

/// What is known of a snapshot. Instants are in microseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`] of the writer.
    pub format: u32,
    /// Version of the harness.
    pub vlab_version: String,
    /// Name of the scenario that was frozen.
    pub scenario: String,
    /// What to call it to run it again.
    pub called: String,
    /// The moment, as it was written.
    pub at: String,
    /// Seed of the run.
    pub seed: u64,
    /// Time profile.
    pub time_profile: String,
    /// Service under test, as on the command line.
    pub service: String,
    /// What its hosts are.
    pub hosts: String,
    /// Folder with the product's own programs for its machines, where one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_node: Option<PathBuf>,
    /// When the run began.
    pub began: i64,
    /// When it was frozen.
    pub frozen: i64,
    /// Its machines.
    pub machines: Frozen,
}

/// A snapshot.
#[derive(Clone, Debug)]
pub struct Snapshot {
    folder: PathBuf,
    /// What is known of it.
    pub manifest: Manifest,
}

/// Why a run cannot be frozen, whatever happens in it; asked before anything is started.
///
/// # Errors
/// Why not, for people.
pub fn can_be_frozen(prepared: &Prepared) -> Result<(), String> {
    if prepared.kube {
        return Err("a run over Kubernetes cannot be frozen: what its API server has is in memory".to_owned());
    }
    if !matches!(prepared.target, Target::Simulated | Target::Process { .. }) {
        return Err(format!(
            "a run on {} cannot be frozen: only a service that is a process of this computer can (`simulated`, `process:…`)",
            prepared.target
        ));
    }
    if std::env::var_os("DATABASE_URL").is_some_and(|url| !url.is_empty()) {
        return Err("a run on the PostgreSQL of DATABASE_URL cannot be frozen: its data is not the run's".to_owned());
    }
    let on_nvme = |host: &&Host| host.is_machine() && host.vm.disks.iter().any(|disk| disk.bus == DiskBus::Nvme);
    if let Some(host) = prepared.scenario.hosts.iter().find(on_nvme) {
        return Err(format!("{} has an NVMe disk, whose state QEMU cannot write down", host.name));
    }
    let on_network = |host: &&Host| host.is_machine() && host.vm.disks.iter().any(|disk| disk.bus.network_paths() > 0);
    if let Some(host) = prepared.scenario.hosts.iter().find(on_network) {
        return Err(format!("{} has a disk on the network, whose sessions end when the target does", host.name));
    }
    if prepared.scenario.service.replicas > 1 {
        return Err("a service with several replicas cannot be frozen".to_owned());
    }
    if prepared.scenario.load.is_some() {
        return Err("a run that measures load cannot be frozen: a pause would be measured as well".to_owned());
    }
    Ok(())
}

impl Snapshot {
    /// The snapshot in that folder.
    ///
    /// # Errors
    /// There is none, or this version cannot continue it; for people.
    pub fn open(folder: &Path) -> Result<Self, String> {
        let file = folder.join(MANIFEST);
        let text = fs::read(&file).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                format!("{} is no snapshot: it has no {MANIFEST}; `vlab snapshots` lists them", folder.display())
            }
            _ => format!("{}: {error}", file.display()),
        })?;
        // Of another format the rest may have another form.
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        let format = value["format"].as_u64().unwrap_or(0);
        if format != u64::from(FORMAT) {
            let of = value["vlab_version"].as_str().unwrap_or("unknown");
            return Err(format!(
                "{} is a snapshot of form {format}, made by vlab {of}; this is vlab {VERSION}, which continues form {FORMAT}: freeze it anew",
                folder.display()
            ));
        }
        let manifest = serde_json::from_value(value).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Self { folder: folder.to_owned(), manifest })
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// By how much its times are moved when it goes on now.
    #[must_use]
    pub fn shift(&self, now: Timestamp) -> Shift {
        let Manifest { began, frozen, .. } = self.manifest;
        Shift::new(Timestamp::from_micros(began), Timestamp::from_micros(frozen), now)
    }

    /// How long its run had gone on when it was frozen.
    #[must_use]
    pub fn after(&self) -> Duration {
        let Manifest { began, frozen, .. } = self.manifest;
        Timestamp::from_micros(frozen).since(Timestamp::from_micros(began))
    }

    /// When its run began, if it had not been frozen meanwhile.
    #[must_use]
    pub fn began(&self, shift: &Shift) -> Timestamp {
        Timestamp::from_micros(self.manifest.began) + shift.by()
    }

    /// Brings a conductor to where that of the frozen run was.
    ///
    /// # Errors
    /// It would have done otherwise, or the journal cannot be read.
    pub fn replay(&self, conductor: &mut Conductor, shift: &Shift) -> Result<Left, ReplayError> {
        let unreadable = |line: usize, why: String| ReplayError::Unreadable(line + 1, why);
        let file = File::open(self.folder.join(JOURNAL)).map_err(|error| unreadable(0, error.to_string()))?;
        let entries = BufReader::new(file).lines().enumerate().map(|(number, line)| {
            let line = line.map_err(|error| unreadable(number, error.to_string()))?;
            serde_json::from_str::<Entry>(&shift.text(&line)).map_err(|error| unreadable(number, error.to_string()))
        });
        conductor.replay(entries, shift)
    }

    /// Can that run go on from it? Tried out with a conductor that sends nothing: what was done to machines until then.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn try_out(&self, prepared: &Prepared) -> Result<Left, String> {
        can_be_frozen(prepared)?;
        let Manifest { seed, time_profile, hosts, service, .. } = &self.manifest;
        let kind = |service: &str| service.split(':').next().unwrap_or_default().to_owned();
        let different = [
            ("seed", seed.to_string(), prepared.seed.to_string()),
            ("time profile", time_profile.clone(), prepared.time_profile.clone()),
            ("kind of hosts", hosts.clone(), prepared.hosts_kind().to_string()),
            ("kind of service", kind(service), kind(&prepared.target.to_string())),
        ];
        if let Some((what, then, now)) = different.into_iter().find(|(_, then, now)| then != now) {
            return Err(format!("the {what} of the run that was frozen was {then}, and is to be {now}"));
        }
        let shift = self.shift(Timestamp::from_micros(self.manifest.frozen));
        let config = prepared.conductor_config(self.info(prepared), String::new());
        let mut conductor = Conductor::new(config, Recorder::new(None));
        self.replay(&mut conductor, &shift).map_err(|error| error.to_string())
    }

    fn info(&self, prepared: &Prepared) -> RunInfo {
        prepared.info(&self.manifest.scenario, false, std::collections::BTreeMap::new())
    }
}

/// Makes the folder of a snapshot, for its owner only.
///
/// # Errors
/// It is there already, or cannot be made.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::DirBuilder::new().mode(0o700).create(folder)
}

/// Writes the journal.
///
/// # Errors
/// It cannot be written.
pub fn write_journal(folder: &Path, journal: &[Entry]) -> io::Result<()> {
    let mut file = BufWriter::new(private(&folder.join(JOURNAL))?);
    for entry in journal {
        serde_json::to_writer(&mut file, entry)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

/// Writes what is known of it, which makes it a snapshot.
///
/// # Errors
/// It cannot be written.
pub fn write_manifest(folder: &Path, manifest: &Manifest) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(manifest)?;
    text.push(b'\n');
    private(&folder.join(MANIFEST))?.write_all(&text)
}

fn private(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// The folder of the snapshots: beside that of the runs, which people publish.
#[must_use]
pub fn all(runs: &Path) -> PathBuf {
    runs.parent().unwrap_or(Path::new("")).join(SNAPSHOTS)
}

/// The snapshot that people name: its folder, or its name among those of the runs' folder.
#[must_use]
pub fn find(runs: &Path, name: &str) -> PathBuf {
    let direct = PathBuf::from(name);
    if direct.join(MANIFEST).exists() { direct } else { all(runs).join(name) }
}

/// Is that folder a snapshot, of whatever version, or one of the runs that was not finished?
#[must_use]
pub fn is_one(runs: &Path, folder: &Path) -> bool {
    // `..` has no name.
    let is_ours = folder.file_name().is_some() && folder.parent() == Some(&all(runs));
    folder.join(MANIFEST).is_file() || is_ours && folder.is_dir()
}

/// A snapshot of a list, or what is wrong with that folder.
pub type Listed = (PathBuf, Result<Snapshot, String>);

/// All snapshots of the runs, by name.
///
/// # Errors
/// The folder cannot be read.
pub fn list(runs: &Path) -> io::Result<Vec<Listed>> {
    let entries = match fs::read_dir(all(runs)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let folders = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    let mut all: Vec<Listed> = folders.into_iter().map(|folder| (folder.clone(), Snapshot::open(&folder))).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_drive::prepare::Choices;
    use vlab_scenario::{Catalogue, HostKind};

    use super::*;
    use crate::prepare::prepare;

    #[rstest]
    #[case("sno", HostKind::Vm, None)]
    #[case("sno", HostKind::Simulated, None)]
    #[case("sno-used-disks", HostKind::Vm, Some("node-0 has an NVMe disk"))]
    #[case("sno-used-disks", HostKind::Simulated, None)]
    #[case("disks-on-the-network", HostKind::Vm, Some("node-0 has a disk on the network"))]
    #[case("fleet-2000", HostKind::Simulated, Some("measures load"))]
    #[case("kube-sno", HostKind::Simulated, Some("over Kubernetes"))]
    fn what_cannot_be_frozen_is_known_before(#[case] name: &str, #[case] hosts: HostKind, #[case] why: Option<&str>) {
        let catalogue = Catalogue::embedded();
        let scenario = vlab_scenario::load(&catalogue.find(name).unwrap(), &catalogue).unwrap();
        let choices = Choices { seed: Some(1), hosts: Some(hosts), ..Choices::default() };
        let can = can_be_frozen(&prepare(scenario, &catalogue, &choices).unwrap());
        match why {
            None => assert_eq!(can, Ok(())),
            Some(why) => assert!(can.as_ref().unwrap_err().contains(why), "{can:?}"),
        }
    }

    #[test]
    fn snapshots_lie_beside_the_runs() {
        assert_eq!(all(Path::new("target/vlab/runs")), Path::new("target/vlab/snapshots"));
        assert_eq!(all(Path::new("runs")), Path::new("snapshots"));
        assert_eq!(find(Path::new("a/runs"), "pivot"), Path::new("a/snapshots/pivot"));
        let place = tempfile::tempdir().unwrap();
        let runs = place.path().join("runs");
        for folder in [&runs, &all(&runs).join("half")] {
            fs::create_dir_all(folder).unwrap();
        }
        assert!(is_one(&runs, &all(&runs).join("half")), "one that was not finished");
        for other in ["..", ".", "none"] {
            assert!(!is_one(&runs, &all(&runs).join(other)), "{other}");
        }
        assert!(!is_one(&runs, &runs));
    }
}
