//! The laws of the ledger: what a reader sees is what was recorded and not released, in order, wherever the writer was
//! interrupted.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use vlab_lab::ledger::{Ledger, Resource, Snapshot, Token};
use vlab_lab::proc::ProcessId;

#[derive(Debug, Clone)]
enum LedgerStep {
    Record(Resource),
    /// Of the n-th entry made so far.
    Release(usize),
    Identify(usize),
}

fn resource() -> impl Strategy<Value = Resource> {
    let path = "/[a-z\"\\\\ é]{1,12}".prop_map(PathBuf::from);
    prop_oneof![
        path.clone().prop_map(|path| Resource::Directory { path }),
        path.clone().prop_map(|path| Resource::File { path }),
        path.clone().prop_map(|path| Resource::Socket { path }),
        path.prop_map(|data_dir| Resource::PostgresCluster { data_dir }),
        "[a-z\n]{1,8}".prop_map(|what| Resource::Process { what, process: None, pgid: None }),
        "[a-z]{1,8}".prop_map(|name| Resource::Database { server: "h:1".into(), name }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<LedgerStep>> {
    let step = prop_oneof![
        3 => resource().prop_map(LedgerStep::Record),
        2 => any::<prop::sample::Index>().prop_map(|at| LedgerStep::Release(at.index(40))),
        1 => any::<prop::sample::Index>().prop_map(|at| LedgerStep::Identify(at.index(40))),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_sees_what_the_writer_has(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::create(dir.path(), "r1").unwrap();
        let (mut tokens, mut expected): (Vec<Token>, Vec<(Token, Resource)>) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                LedgerStep::Record(resource) => {
                    let token = ledger.record(resource.clone()).unwrap();
                    tokens.push(token);
                    expected.push((token, resource));
                }
                LedgerStep::Release(at) => if let Some(token) = tokens.get(at) {
                    ledger.release(*token).unwrap();
                    expected.retain(|(other, _)| other != token);
                },
                LedgerStep::Identify(at) => if let Some(token) = tokens.get(at) {
                    let id = ProcessId { pid: 7, start_time: 8 };
                    ledger.identify(*token, id, 9).unwrap();
                    for (other, resource) in &mut expected {
                        if let (true, Resource::Process { process, pgid, .. }) = (other == token, resource) {
                            (*process, *pgid) = (Some(id), Some(9));
                        }
                    }
                },
            }
        }
        let snapshot = Snapshot::read(ledger.path()).unwrap();
        prop_assert_eq!(&snapshot.open, &expected);
        prop_assert_eq!(snapshot.strange_lines, 0);
        prop_assert_eq!(ledger.open_entries(), expected);
    }

    /// Killed in the middle of a write: the torn line does not count, all before it does.
    #[test]
    fn a_torn_last_line_loses_only_itself(resources in prop::collection::vec(resource(), 1..8), cut in any::<prop::sample::Index>()) {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::create(dir.path(), "r1").unwrap();
        let mut sizes = vec![fs::metadata(ledger.path()).unwrap().len()];
        for resource in &resources {
            ledger.record(resource.clone()).unwrap();
            sizes.push(fs::metadata(ledger.path()).unwrap().len());
        }
        let bytes = fs::read(ledger.path()).unwrap();
        let header = usize::try_from(sizes[0]).unwrap();
        let length = header + cut.index(bytes.len() - header + 1);
        fs::write(ledger.path(), &bytes[..length]).unwrap();
        let snapshot = Snapshot::read(ledger.path()).unwrap();
        // A line that is there but for its line feed is whole.
        let whole = sizes.iter().skip(1).filter(|size| usize::try_from(**size).unwrap() <= length + 1).count();
        let seen: Vec<Resource> = snapshot.open.into_iter().map(|(_, resource)| resource).collect();
        prop_assert_eq!(&seen[..], &resources[..whole]);
        prop_assert_eq!(snapshot.strange_lines, 0);
    }
}

#[test]
fn entries_of_another_version_are_kept_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::create(dir.path(), "r1").unwrap();
    let mut text = fs::read_to_string(ledger.path()).unwrap();
    text += "{\"record\":{\"token\":1,\"resource\":{\"kind\":\"tap\",\"name\":\"vlab0\"}}}\n";
    text += "{\"rename\":{\"token\":1}}\n";
    fs::write(ledger.path(), text).unwrap();
    let snapshot = Snapshot::read(ledger.path()).unwrap();
    assert_eq!(snapshot.open.len(), 1);
    let Resource::Unknown(value) = &snapshot.open[0].1 else { panic!("{snapshot:?}") };
    assert_eq!(value, &serde_json::json!({"kind": "tap", "name": "vlab0"}));
    assert_eq!(snapshot.open[0].1.to_string(), "`tap` of another version");
    assert_eq!(snapshot.strange_lines, 1);
}

#[test]
fn a_run_has_one_ledger_which_closing_removes() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::create(dir.path(), "r1").unwrap();
    assert!(Ledger::create(dir.path(), "r1").is_err(), "the same run twice");
    for wrong in ["", "../r1", ".r1", "a:b"] {
        assert!(Ledger::create(dir.path(), wrong).is_err(), "{wrong:?}");
    }
    let token = ledger.record(Resource::File { path: "/nowhere/x".into() }).unwrap();
    assert_eq!(ledger.close().unwrap().len(), 1, "a leak is said");
    assert!(ledger.path().exists(), "and stays for gc");
    ledger.release(token).unwrap();
    assert_eq!(ledger.close().unwrap(), []);
    assert!(!ledger.path().exists());
}

#[test]
fn a_file_that_is_no_ledger_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [("empty", ""), ("text", "hello\n"), ("list", "[1,2]\n")] {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        let error = Snapshot::read(&path).unwrap_err().to_string();
        assert!(error.contains("the first line does not say whose ledger it is"), "{error}");
    }
}
