//! How the following of a history grows with the hosts in it: `cargo run --profile load -p vlab-judge --example moments`.
//!
//! Hosts become known one after the other, and after each it is asked whether all of them, and how many, are: what a run does. The
//! time for a host must not grow with their number.

#![expect(clippy::disallowed_methods, reason = "it measures")]

use std::time::Instant;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::HostStatus;
use vlab_history::{Directory, Recorder};
use vlab_judge::moment::Tracker;
use vlab_model::history::{HostsKind, Source, What};
use vlab_scenario::{Moment, Quantity, Seen, Subject};

fn main() {
    println!("| hosts | µs for a host, all of them by name | µs for a host, at least as many |");
    println!("| --- | --- | --- |");
    for hosts in [1_000_u32, 5_000, 20_000, 50_000, 100_000] {
        let names: Vec<String> = (0..hosts).map(|n| format!("host-{n}")).collect();
        let named = Subject::Hosts(names.clone());
        let all = followed(&names, named, Quantity::All);
        let at_least = followed(&names, Subject::Run, Quantity::AtLeast(hosts));
        println!("| {hosts} | {all:.2} | {at_least:.2} |");
    }
}

/// Microseconds for a host.
fn followed(names: &[String], subject: Subject, of: Quantity) -> f64 {
    let mut directory = Directory::new(Source::Database);
    let mut tracker = Tracker::new(Moment { subject, seen: Seen::HostStatus(HostStatus::Known), of });
    let mut recorder = Recorder::new(None);
    let now = Timestamp::from_secs(1_800_000_000);
    for (n, name) in names.iter().enumerate() {
        let what = What::HostNamed { host: id(n), name: name.clone(), kind: HostsKind::Simulated };
        directory.observe(recorder.record(Source::Harness, None, now, what));
    }
    let begun = Instant::now();
    for n in 0..names.len() {
        let what =
            What::HostStatus { host: id(n), cluster: None, from: None, to: HostStatus::Known, info: String::new() };
        let observation = recorder.record(Source::Database, None, now, what);
        directory.observe(observation);
        tracker.observe(&directory, observation);
        assert_eq!(tracker.complete(&directory).is_some(), n + 1 == names.len());
    }
    begun.elapsed().as_secs_f64() * 1e6 / names.len() as f64
}

fn id(n: usize) -> Uuid {
    Uuid::from_u128(n as u128 + 1)
}
