//! How many changes of a status the invariants' checkers judge in a second: `cargo run --profile load --example invariants`.

#![expect(clippy::disallowed_methods, reason = "it measures")]

use std::time::Instant;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::HostStatus;
use vlab_judge::invariants::{InvariantVerdict, check_all};
use vlab_model::history::{HISTORY_VERSION, Observation, Source, What};

fn main() {
    const HOSTS: u64 = 2_000;
    const CHANGES: u64 = 2_000_000;
    let cluster = Some(Uuid::from_u128(1));
    let path = [HostStatus::Discovering, HostStatus::Insufficient, HostStatus::Known, HostStatus::Disconnected];
    let history: Vec<Observation> = (0..CHANGES)
        .map(|seq| {
            let (host, round) = (seq % HOSTS, (seq / HOSTS) as usize);
            let from = round.checked_sub(1).map(|r| path[r % path.len()]);
            Observation {
                v: HISTORY_VERSION,
                seq,
                source: Source::Database,
                service_time: Some(Timestamp::from_micros(seq as i64 * 1_000)),
                harness_time: Timestamp::from_micros(seq as i64 * 1_000),
                what: What::HostStatus {
                    host: Uuid::from_u128(u128::from(host) + 1_000),
                    cluster,
                    from,
                    to: path[round % path.len()],
                    info: String::new(),
                },
            }
        })
        .collect();
    let begin = Instant::now();
    let results = check_all(&history);
    let took = begin.elapsed();
    let checked: usize = results.iter().map(|r| r.checked).sum();
    let violated = results.iter().filter(|r| matches!(r.verdict, InvariantVerdict::Violated { .. })).count();
    println!(
        "{CHANGES} changes of {HOSTS} hosts, {checked} checks, {violated} invariants violated: {:.2} million changes a second",
        CHANGES as f64 / took.as_secs_f64() / 1e6,
    );
}
