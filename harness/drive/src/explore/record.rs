//! What is known about a finding, for programs: a file beside its scenario.

use serde::{Deserialize, Serialize};
use vlab_api::Timestamp;

use super::base::Added;
use super::end::ENDS_ALIKE;
use super::oracle::Violation;

/// Version of a record. Raised when the meaning of a member changes.
pub const RECORD_VERSION: u32 = 1;
/// Ending of a record's file.
pub const RECORD: &str = "json";
/// The service of a finding in virtual time, as records name it.
pub const VIRTUAL: &str = "virtual-time";

/// Where and how often a finding showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shows {
    /// The service, as on the command line but for folders of the machine; [`VIRTUAL`]: the built-in one in virtual time.
    pub target: String,
    /// Its version, as the run knows it.
    pub service_version: String,
    /// Time profile of the runs.
    pub time_profile: String,
    /// Seed of the runs.
    pub seed: u64,
    /// In so many runs of the scenario it showed,
    pub k: u32,
    /// of so many that were made once it was found.
    pub n: u32,
    /// Does the simulated service show the same in virtual time?
    pub same_on_simulated: bool,
    /// The runs went on from the snapshot of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// What is wrong, without names and numbers.
    pub signature: String,
    /// The check that failed.
    pub check: String,
    /// What it said.
    pub message: String,
    /// Where and how often.
    pub shows: Shows,
    /// Lines of the scenario beyond its base.
    pub lines: usize,
    /// Faults beyond its base.
    pub faults: usize,
    /// Actions beyond its base.
    pub actions: usize,
    /// Nothing more could be left out; otherwise the runs were used up.
    pub is_minimal: bool,
    /// When it was found.
    pub found_at: Timestamp,
}

/// Why a file is no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// No JSON of this form.
    #[error("this is no record of a finding ({0}); `vlab explore` writes them")]
    Form(String),
    /// Of another version.
    #[error(
        "this is a record of version {0}, and this program reads version {RECORD_VERSION}: explore again, or use the program that wrote it"
    )]
    Version(u64),
}

impl Record {
    /// The record of something that was found.
    pub fn new(violation: &Violation, shows: Shows, added: &Added, is_minimal: bool, found_at: Timestamp) -> Self {
        Self {
            version: RECORD_VERSION,
            signature: violation.signature.clone(),
            check: violation.check.clone(),
            message: violation.message.clone(),
            shows,
            lines: added.lines(),
            faults: added.faults.len(),
            actions: added.actions.len(),
            is_minimal,
            found_at,
        }
    }

    /// As it is written.
    pub fn write(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// How large its scenario is, for people.
    pub fn size(&self) -> String {
        let end = if self.is_minimal { "" } else { ", not shrunk to the end" };
        format!("{} lines, {} faults, {} actions{end}", self.lines, self.faults, self.actions)
    }

    /// How to see it again; `file` is the scenario's.
    pub fn command(&self, file: &str) -> String {
        let Shows { target, time_profile, from, .. } = &self.shows;
        if let Some(from) = from {
            return format!("vlab scenario {file} --from {from}");
        }
        match target.as_str() {
            VIRTUAL => format!("vlab simulate {file}"),
            // The scenario alone does not know how it ends elsewhere.
            target if self.check == ENDS_ALIKE => {
                format!("vlab differential {file} --against {target} --time-profile {time_profile}")
            }
            target => format!("vlab scenario {file} --service {target} --time-profile {time_profile}"),
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`BadRecord`].
    pub fn read(text: &str) -> Result<Self, BadRecord> {
        let form = |error: serde_json::Error| BadRecord::Form(error.to_string());
        let value: serde_json::Value = serde_json::from_str(text).map_err(form)?;
        match value["version"].as_u64() {
            Some(version) if version != u64::from(RECORD_VERSION) => Err(BadRecord::Version(version)),
            // From the text once more: then an error has its line.
            _ => serde_json::from_str(text).map_err(form),
        }
    }
}

impl Shows {
    /// In virtual time a run is the same each time.
    pub fn in_virtual_time(service_version: &str, time_profile: &str, seed: u64) -> Self {
        Self {
            target: VIRTUAL.to_owned(),
            service_version: service_version.to_owned(),
            time_profile: time_profile.to_owned(),
            seed,
            k: 1,
            n: 1,
            same_on_simulated: true,
            from: None,
        }
    }

    /// For people.
    pub fn words(&self) -> String {
        match (self.target.as_str(), self.k, self.n) {
            (VIRTUAL, ..) => "always, in virtual time".to_owned(),
            (_, _, 0) => "once; it was not tried again".to_owned(),
            (_, k, n) => format!("in {k} of {n} runs once it was found"),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn some(signature: &str, target: &str, k: u32) -> Record {
        let violation = Violation {
            signature: signature.to_owned(),
            check: format!("{}: holds", signature.split(':').next().unwrap()),
            message: "node-0 did | what it must not".to_owned(),
        };
        let shows = Shows { target: target.to_owned(), k, n: 3, ..Shows::in_virtual_time("1.2", "rapid", 7) };
        Record::new(&violation, shows, &Added::default(), true, Timestamp::from_micros(0))
    }

    #[test]
    fn what_is_written_is_read() {
        let record = some("a: b", "process:x", 2);
        assert_eq!(Record::read(&record.write()).unwrap(), record);
    }

    #[rstest::rstest]
    #[case("{", "no record of a finding (EOF")]
    #[case("{\"version\": 1}", "missing field")]
    #[case("{\"version\": 2, \"sign\": 1}", "of version 2, and this program reads version 1")]
    fn what_is_no_record_is_refused(#[case] text: &str, #[case] why: &str) {
        let error = Record::read(text).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn how_often_it_shows_is_not_made_better_than_it_is() {
        let mut record = some("a: b", "process:x", 1);
        assert_eq!(record.command("a.yaml"), "vlab scenario a.yaml --service process:x --time-profile rapid");
        record.check = ENDS_ALIKE.to_owned();
        assert_eq!(record.command("a.yaml"), "vlab differential a.yaml --against process:x --time-profile rapid");
        record.shows.from = Some("pivot".to_owned());
        assert_eq!(record.command("a.yaml"), "vlab scenario a.yaml --from pivot");
        assert_eq!(record.size(), "1 lines, 0 faults, 0 actions");
        let mut shows = record.shows;
        assert_eq!(shows.words(), "in 1 of 3 runs once it was found");
        shows.n = 0;
        assert!(shows.words().contains("not tried again"));
    }
}
