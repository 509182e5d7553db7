//! What a run leaves in its folder, and what is known of the computer that it ran on.

use std::collections::BTreeMap;

use vlab_drive::prepare::Prepared;
use vlab_judge::result::{FileRef, RunResult};
use vlab_reports::Redactor;

use super::lab_check;
use crate::error::LabError;
use crate::hosts::{HostFile, PROVIDERS};
use crate::rundir::{self, RunDir};

/// Logs of the programs of every run, and what they are.
const LOGS: &[(&str, &str)] = &[
    ("service.log", "log of the service under test"),
    ("service-1.log", "log of the service's replica service-1"),
    ("service-2.log", "log of the service's replica service-2"),
    ("service-3.log", "log of the service's replica service-3"),
    ("service-4.log", "log of the service's replica service-4"),
    ("postgresql.log", "log of PostgreSQL"),
    ("etcd.log", "log of the etcd that the API server stands on"),
    ("kubectl-proxy.log", "log of the way to the API server"),
    ("kube.log", "log of the API server that the service's controllers work on"),
    ("supervisor.log", "what the supervisor did"),
];

/// Files that the hosts of a run leave.
fn of_hosts(prepared: &Prepared) -> Vec<HostFile> {
    PROVIDERS.iter().filter(|provider| prepared.has(provider.kind())).flat_map(|p| p.files(prepared)).collect()
}

/// Logs of other programs, which do not know what must not stand in them.
pub(super) fn logs(prepared: &Prepared) -> Vec<String> {
    let of_hosts = of_hosts(prepared).into_iter().filter(|file| file.log).map(|file| file.name);
    LOGS.iter().map(|(name, _)| (*name).to_owned()).chain(of_hosts).collect()
}

/// Logs of other programs are redacted once these have ended.
pub(super) fn redact_logs(dir: &RunDir, prepared: &Prepared, redactor: &Redactor, result: &mut RunResult) {
    for log in logs(prepared) {
        if let Err(error) = dir.redact_log(&log, redactor) {
            lab_check(result, LabError::new("logs", error.to_string()));
        }
    }
}

/// The files of a run that are there.
pub(super) fn files(dir: &RunDir, prepared: &Prepared) -> Vec<FileRef> {
    let before = [
        (rundir::STARTED, "start marker"),
        (rundir::SCENARIO, "the scenario as it was run"),
        (rundir::RESOURCES, "files that the scenario names"),
        (rundir::HISTORY, "everything that was observed, one observation a line"),
    ];
    let after = [("report.html", "this run as a page"), (rundir::RESULT, "the verdict in full")];
    let named = |files: &[(&str, &str)]| -> Vec<(String, String)> {
        files.iter().map(|(name, what)| ((*name).to_owned(), (*what).to_owned())).collect()
    };
    let mut all = named(&before);
    all.extend(of_hosts(prepared).into_iter().map(|file| (file.name, file.what)));
    all.extend(named(LOGS));
    all.extend(named(&after));
    let there = |name: &str| {
        matches!(name, "report.html" | rundir::RESULT) || std::fs::metadata(dir.file(name)).is_ok_and(|m| m.len() > 0)
    };
    all.into_iter().filter(|(name, _)| there(name)).map(|(path, what)| FileRef { path, what }).collect()
}

/// What is known of this computer.
pub(super) fn environment() -> BTreeMap<String, String> {
    let mut environment = BTreeMap::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value.map(|v| v.trim().to_owned()).filter(|v| !v.is_empty()) {
            environment.insert(name.to_owned(), value);
        }
    };
    let line = |path: &str, key: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.lines().find(|l| l.starts_with(key))?;
        Some(line[key.len()..].trim_start_matches([' ', '\t', ':', '=']).trim_matches('"').to_owned())
    };
    add("kernel", std::fs::read_to_string("/proc/sys/kernel/osrelease").ok());
    add("os", line("/etc/os-release", "PRETTY_NAME"));
    add("cpu", line("/proc/cpuinfo", "model name"));
    add("memory", line("/proc/meminfo", "MemTotal"));
    add("cores", std::thread::available_parallelism().ok().map(|n| n.to_string()));
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_reads_every_log_that_a_run_leaves() {
        let read: Vec<&str> = vlab_reports::logs::LOGS.iter().map(|(name, _)| *name).collect();
        let missing: Vec<&str> = LOGS.iter().map(|(name, _)| *name).filter(|name| !read.contains(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
