//! The times of rows: each moves when what it times changes, and only then.

use std::collections::HashMap;
use std::time::Duration;

use vlab_history::Timeline;
use vlab_model::history::{Oddity, Source, What};

use super::found::Found;
use super::limits::Limits;
use super::resources::{Disturbed, called};
use super::{Invariant, InvariantResult};

/// The invariant.
pub(super) const TIMES: Invariant = Invariant {
    id: "times-follow",
    number: "I23",
    title: "the time of a status, a stage or a condition moves when that changes, and only then",
    needs: "the database's rows with their times, or resources of a hub",
};

/// So long after its time a condition may turn again and say the same time: it has whole seconds. (In real time that is seen later still.)
const ONE_SECOND: Duration = Duration::from_secs(2);

/// The times of conditions of resources.
fn conditions(timeline: &Timeline<'_>, found: &mut Found) {
    let disturbed = Disturbed::new(timeline);
    let limits = Limits::new(timeline.run);
    let one_second = ONE_SECOND + limits.settles();
    let mut turned = HashMap::new();
    for o in timeline.observations {
        let What::Resource { kind, namespace, name, conditions, odd, .. } = &o.what else { continue };
        if !conditions.is_empty() {
            found.check(o.seq, true, String::new);
        }
        for odd in odd {
            let stands = odd.since.is_none_or(|since| o.at() > since + one_second);
            let what = match odd.is {
                Oddity::Stayed if stands => "turned, and its time stayed",
                // Who reads an old copy after its own write tells the same turn once more: the real controllers patch without a version.
                Oddity::Moved
                    if turned
                        .get(&(kind, namespace, name, &odd.condition))
                        .is_some_and(|turn| o.at() < *turn + limits.settles()) =>
                {
                    continue;
                }
                // Who missed a turn and the turn back sees only the time.
                Oddity::Moved if !disturbed.within(o.harness_time, o.harness_time, Duration::from_secs(60)) => {
                    "has another time, and did not turn"
                }
                _ => continue,
            };
            found.check(o.seq, false, || {
                let since = odd.since.map_or("not set".to_owned(), |since| since.to_string());
                let whose = called((kind, namespace, name), timeline);
                format!("{whose}: {} {what}: {since}", odd.condition)
            });
        }
        turned.extend(conditions.keys().map(|condition| ((kind, namespace, name, condition), o.at())));
    }
}

/// Judges it: a history tells only the times that are odd, where it says that it follows them.
pub(super) fn times_follow(timeline: &Timeline<'_>) -> InvariantResult {
    let mut found = Found::default();
    let followed = timeline.run.is_some_and(|run| run.times_followed) && timeline.truth == Source::Database;
    conditions(timeline, &mut found);
    let one_moment = Limits::new(timeline.run).in_flight() + Duration::from_millis(1);
    for o in timeline.observations.iter().filter(|o| followed && o.source == Source::Database) {
        match &o.what {
            What::HostStatus { .. } | What::ClusterStatus { .. } | What::HostStage { .. } => {
                found.check(o.seq, true, String::new);
            }
            // Two changes of one moment have one time.
            What::OddTime { moved: false, value: Some(value), .. } if o.at() <= *value + one_moment => {}
            What::OddTime { subject, name, moved, value, .. } => found.check(o.seq, false, || {
                let whose = timeline.directory.name(*subject);
                let now = value.map_or("not set".to_owned(), |value| value.to_string());
                match moved {
                    true => format!("{whose}: {name} moved to {now}, and what it times did not change"),
                    false => format!("{whose}: {name} stayed at {now} when what it times changed"),
                }
            }),
            _ => {}
        }
    }
    found.result((&TIMES).into(), || {
        let why = if timeline.truth == Source::Database {
            "the times of rows were not followed"
        } else {
            "states were polled"
        };
        format!("not checked: {why}")
    })
}
