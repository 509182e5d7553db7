//! What else of a run is compared where two services have the same words, the same clock and the same hosts: a changed build and the one
//! before it, in virtual time. Words, instructions, answers and how long things last are compared then; ids and moments are not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_model::history::{Observation, What};
use vlab_scenario::Scenario;

use super::end::{Told, Whose};
use super::reach::Statuses;

/// What is compared beside the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closely {
    /// What was once said of a cluster or of any host of a group, asked of it, or answered to it.
    pub once: BTreeMap<Told, BTreeSet<String>>,
    /// The longest time in each status and stage that came to an end.
    pub stays: BTreeMap<Told, Duration>,
}

/// A stay is another one when it is so many times as long.
const TIMES: f64 = 1.5;
/// And by so much at least: a tick of a monitor is no difference.
const BY: Duration = Duration::from_secs(20);

/// What changes from run to run though the words are the same: ids, moments, spans of time.
static VOLATILE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let id = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}";
    let moment = r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?";
    let span = r"\b(\d+(\.\d+)?(h|ms|m|s|µs))+\b|\b\d+(\.\d+)? (hour|minute|second|millisecond)s?\b";
    Regex::new(&format!("{id}|{moment}|{span}")).ok()
});

/// Collects it from a history. `whose`: who a subject is.
pub(super) fn closely(scenario: &Scenario, history: &[Observation], whose: &Whose<'_>) -> Closely {
    let words = Words::new(scenario);
    let mut all = Closely::default();
    let mut now: BTreeMap<(Uuid, &'static str), (String, Timestamp)> = BTreeMap::new();
    let mut statuses = Statuses::default();
    for observation in history {
        let at = observation.at();
        let mut lasts = |subject: &Uuid, what: &'static str, value: String| {
            // Progress within a stage is no other stage.
            if now.get(&(*subject, what)).is_some_and(|(before, _)| *before == value) {
                return;
            }
            let before = now.insert((*subject, what), (value, at));
            if let (Some((before, since)), Some((kind, of))) = (before, whose.get(subject)) {
                let what = format!("{what} \"{before}\"");
                let stay = all.stays.entry(Told { whose: kind, what, of: (*of).to_owned() }).or_default();
                *stay = (*stay).max(at.since(since));
            }
        };
        match &observation.what {
            What::HostStatus { host, to, .. } => {
                statuses.note(*host, at, to.as_str());
                lasts(host, "the status", to.as_str().to_owned());
            }
            What::ClusterStatus { cluster, to, .. } => lasts(cluster, "the status", to.as_str().to_owned()),
            What::HostStage { host, to, .. } => {
                lasts(host, "the stage", to.map_or("", |stage| stage.as_str()).to_owned());
            }
            _ => {}
        }
        let (subject, what, value) = match &observation.what {
            What::HostStatus { host: subject, info, .. }
            | What::ClusterStatus { cluster: subject, info, .. }
            | What::StatusInfo { subject, info, .. } => {
                (Some(*subject), "the status in words".to_owned(), info.clone())
            }
            What::HostStage { host, info, percentage, .. } => {
                (Some(*host), "progress".to_owned(), format!("{info} ({percentage} %)"))
            }
            What::Validation { subject, id, message, .. } => {
                (Some(*subject), format!("the validation `{id}` in words"), message.clone())
            }
            What::Member { subject, name, value, .. } => {
                (Some(*subject), format!("the member `{name}`"), value.clone())
            }
            What::Event { name, message, host, cluster, .. } => {
                (host.or(*cluster), format!("the event {name} in words"), message.clone())
            }
            What::Instructed { host, from, steps, next, exit, .. } => {
                let status = statuses.at(*host, *from);
                let value =
                    format!("{}; next in {next} s{}", steps.join(", "), if *exit { "; start over" } else { "" });
                (Some(*host), format!("the list of steps in {status}"), value)
            }
            What::Request { host, request, status, .. } | What::BadAnswer { host, request, status, .. } => {
                (*host, format!("the answer to {}", words.plain(request)), status.to_string())
            }
            _ => continue,
        };
        let whose = subject.map_or(Some(&("the user", "the user")), |subject| whose.get(&subject));
        if let Some((kind, of)) = whose {
            let told = Told { whose: kind, what, of: (*of).to_owned() };
            all.once.entry(told).or_default().insert(words.plain(&value));
        }
    }
    all
}

/// Words without what is another one in each run.
struct Words {
    /// Names of hosts, the longest first, and their groups: of equal hosts one plays the part of another.
    hosts: Vec<(String, String)>,
}

impl Words {
    fn new(scenario: &Scenario) -> Self {
        let mut hosts: Vec<_> = scenario.hosts.iter().map(|host| (host.name.clone(), host.group.clone())).collect();
        hosts.retain(|(name, group)| name != group);
        hosts.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Self { hosts }
    }

    fn plain(&self, text: &str) -> String {
        let mut plain = match &*VOLATILE {
            Some(volatile) => volatile.replace_all(text, "…").into_owned(),
            None => text.to_owned(),
        };
        for (name, group) in &self.hosts {
            if plain.contains(name.as_str()) {
                plain = plain.replace(name.as_str(), group);
            }
        }
        plain
    }
}

/// Stays of another length than in each of those runs, in words.
pub(super) fn other_stays(theirs: &Closely, ours: &[&Closely]) -> Vec<String> {
    let mut all = Vec::new();
    for (told, there) in &theirs.stays {
        let here: Vec<Duration> = ours.iter().filter_map(|of| of.stays.get(told).copied()).collect();
        let (Some(shortest), Some(longest)) = (here.iter().min(), here.iter().max()) else { continue };
        let is_longer = *there > longest.mul_f64(TIMES) && *there > *longest + BY;
        let is_shorter = there.mul_f64(TIMES) < *shortest && *there + BY < *shortest;
        if is_longer || is_shorter {
            let (word, bound) = if is_longer { ("longer", longest) } else { ("shorter", shortest) };
            all.push(format!(
                "{} of {} lasts {word} than on the simulated service; {}: {there:.0?} there, {bound:.0?} here",
                told.what, told.whose, told.of
            ));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use vlab_scenario::Catalogue;

    use super::*;

    fn told(what: &str) -> Told {
        Told { whose: "a host", what: what.to_owned(), of: "master".to_owned() }
    }

    #[test]
    fn what_is_another_one_in_each_run_is_not_compared() {
        let catalogue = Catalogue::embedded();
        let scenario = vlab_scenario::load(&catalogue.find("ha-3-2").unwrap(), &catalogue).unwrap();
        let words = Words::new(&scenario);
        for (text, plain) in [
            ("Host master-1: updated", "Host master: updated"),
            ("GET /v2/clusters/7a4c3e50-b4ca-94f6-9a9c-e9ce77c593b6", "GET /v2/clusters/…"),
            ("at 2026-11-30T10:00:01.5Z", "at …"),
            ("timed out after 1h2m3.5s, 70 minutes", "timed out after …, …"),
            ("at least 4 CPU cores, 16.00 GiB", "at least 4 CPU cores, 16.00 GiB"),
        ] {
            assert_eq!(words.plain(text), plain);
        }
    }

    #[test]
    fn a_stay_is_another_one_when_it_is_so_in_all_orders() {
        let stays = |seconds: u64| Closely {
            stays: BTreeMap::from([(told("the status \"known\""), Duration::from_secs(seconds))]),
            ..Closely::default()
        };
        let other = |there: u64, here: &[u64]| -> Vec<String> {
            let here: Vec<Closely> = here.iter().map(|seconds| stays(*seconds)).collect();
            other_stays(&stays(there), &here.iter().collect::<Vec<_>>())
        };
        assert_eq!(other(100, &[90, 60]), [""; 0]);
        assert_eq!(other(16, &[5]), [""; 0]);
        assert_eq!(
            other(100, &[40, 60]),
            ["the status \"known\" of a host lasts longer than on the simulated service; master: 100s there, 60s here"]
        );
        assert_eq!(
            other(25, &[70, 60]),
            ["the status \"known\" of a host lasts shorter than on the simulated service; master: 25s there, 60s here"]
        );
    }
}
