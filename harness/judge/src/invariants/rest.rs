//! The fixed point: a service to which nobody tells anything new comes to rest. What changes by itself is the doing of timers,
//! each of which goes off once; something that comes back to what it was, again and again, is a loop.

use std::collections::HashMap;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_history::{Timeline, watched_until};
use vlab_model::history::{Source, What};

use super::found::Found;
use super::limits::Limits;
use super::views::{Item, Value, item};
use super::{Invariant, InvariantResult};

/// The invariant.
pub(super) const REST: Invariant = Invariant {
    id: "at-rest",
    number: "I24",
    title: "without news from outside nothing changes back and forth",
    needs: "a time in which hosts, controller and user told nothing new",
};

/// It is quiet when nothing new was told for so many rounds of the monitor.
const ROUNDS: u32 = 3;

/// It may come back to what it was this often: the change that was on its way may have been undone.
const RETURNS: usize = 2;

#[derive(Default)]
struct Track<'h> {
    /// The time between two news that these are of.
    stretch: usize,
    values: Vec<Value<'h>>,
    last: Option<Value<'h>>,
}

/// Judges it.
pub(super) fn at_rest(timeline: &Timeline<'_>) -> InvariantResult {
    let mut found = Found::default();
    let quiet = Limits::new(timeline.run).settings.host_monitor_interval * ROUNDS;
    let has_steps = timeline.observations.iter().any(|o| matches!(o.what, What::Step { .. }));
    if timeline.truth != Source::Database || !has_steps {
        let why = if has_steps { "states were polled" } else { "the history does not hold what hosts answered" };
        return found.result((&REST).into(), || format!("not checked: {why}"));
    }
    let mut news = news(timeline);
    news.sort_unstable();
    let mut next = 0;
    let mut last_news = timeline.start().unwrap_or_default();
    let mut tracks: HashMap<(Uuid, Item<'_>), Track<'_>> = HashMap::new();
    for o in timeline.observations.iter().filter(|o| o.source == Source::Database) {
        let at = o.at();
        while let Some(when) = news.get(next).filter(|when| **when <= at) {
            found.quiet(last_news, *when, quiet);
            last_news = *when;
            next += 1;
        }
        let Some((key, value)) = item(&o.what) else { continue };
        let track = tracks.entry(key).or_default();
        if track.stretch != next {
            track.stretch = next;
            track.values.clear();
            track.values.extend(track.last);
        }
        let returns = track.values.iter().filter(|old| **old == value).count();
        track.values.push(value);
        track.last = Some(value);
        if returns >= RETURNS {
            found.check(o.seq, false, || {
                let name = timeline.directory.name(key.0);
                format!("{name}: its {} goes back and forth, and nobody told the service anything new", key.1.word())
            });
        }
    }
    let end = watched_until(timeline.observations);
    let left = news[next.min(news.len())..].iter().copied();
    for when in left.chain([end]) {
        found.quiet(last_news, when, quiet);
        last_news = when;
    }
    found.result((&REST).into(), || "nobody was silent for long enough".to_owned())
}

impl Found {
    /// A time without news was long enough to show that the service rests.
    fn quiet(&mut self, from: Timestamp, to: Timestamp, quiet: std::time::Duration) {
        if to.since(from) >= quiet {
            self.check(0, true, String::new);
        }
    }
}

/// When something new was told to the service, or done to it. Of what hosts and controller tell without a step the rows say that it
/// came. A service that writes such a row itself, there and back, is no news: a value counts when it is there for the first time.
pub(super) fn news(timeline: &Timeline<'_>) -> Vec<Timestamp> {
    let mut news = Vec::new();
    let mut told: HashMap<(Uuid, Item<'_>), Vec<Value<'_>>> = HashMap::new();
    for o in timeline.observations {
        match &o.what {
            // One that was answered as before is not sent. To be asked is the first sign of an answer.
            What::Step { cached: true, .. } => {}
            What::Polls { from, to, .. } => news.extend([*from, *to]),
            What::Step { .. }
            | What::HostDid { .. }
            | What::InCluster { .. }
            | What::UserAction { .. }
            | What::Fault { .. }
            | What::Machine { .. }
            | What::Inventory { .. }
            | What::Operator { .. }
            | What::HostDeleted { .. } => news.push(o.at()),
            What::HostStage { .. }
            | What::HostLogs { .. }
            | What::ClusterLogs { .. }
            | What::ClusterFinalizingStage { .. } => {
                let Some((key, value)) = item(&o.what) else { continue };
                let values = told.entry(key).or_default();
                if !values.contains(&value) {
                    values.push(value);
                    news.push(o.at());
                }
            }
            _ => {}
        }
    }
    news
}
