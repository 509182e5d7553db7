//! What the status of a resource repeats of a row of the service: statuses, stages, percentages.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_history::{Timeline, watched_until};
use vlab_model::history::{ResourceState, Source, What, is_nothing};

use super::found::Found;
use super::resources::{Disturbed, Key, called, row_of};

/// Since when a row has a value: by the sooner and the later of the two clocks; nothing where the row is gone.
struct Since {
    at: Timestamp,
    seen: Timestamp,
    value: Option<Value>,
}

/// What rows have: by subject and by where a resource repeats it.
type Rows = HashMap<Uuid, BTreeMap<&'static str, Vec<Since>>>;

/// The state of what a resource shows, change by change.
type Shown<'h> = Vec<(Timestamp, u64, ResourceState, &'h BTreeMap<String, Value>)>;

/// Since when a resource says that it knows nothing of its row, or that it does again: after some mistakes in a spec the real controllers
/// do not look at the row, and take the old words away.
type KnowsNothing = Vec<(Timestamp, bool)>;

fn rows(timeline: &Timeline<'_>) -> Rows {
    let mut rows = Rows::new();
    for o in timeline.observations.iter().filter(|o| o.source == Source::Database) {
        let (subject, has): (Uuid, Vec<(&'static str, Option<Value>)>) = match &o.what {
            What::HostStatus { host, to, info, .. } => {
                (*host, vec![("debugInfo.state", Some(json!(to))), ("debugInfo.stateInfo", Some(json!(info)))])
            }
            What::ClusterStatus { cluster, to, info, .. } => {
                (*cluster, vec![("debugInfo.state", Some(json!(to))), ("debugInfo.stateInfo", Some(json!(info)))])
            }
            What::StatusInfo { subject, info, .. } => (*subject, vec![("debugInfo.stateInfo", Some(json!(info)))]),
            What::HostStage { host, to, percentage, .. } => (
                *host,
                vec![
                    ("progress.currentStage", Some(json!(to))),
                    ("progress.installationPercentage", Some(json!(percentage))),
                ],
            ),
            What::HostRole { host, bootstrap, .. } => (*host, vec![("bootstrap", Some(json!(bootstrap)))]),
            What::ClusterProgress { cluster, total, .. } => {
                (*cluster, vec![("progress.totalPercentage", Some(json!(total)))])
            }
            What::HostDeleted { host } => {
                let known = rows.get(host).into_iter().flat_map(|row| row.keys());
                (*host, known.map(|path| (*path, None)).collect())
            }
            _ => continue,
        };
        for (path, value) in has {
            let at = o.at().min(o.harness_time);
            rows.entry(subject).or_default().entry(path).or_default().push(Since { at, seen: o.harness_time, value });
        }
    }
    rows
}

/// What of that is shown just before that time, and by which change; `None` where the resource is not there then, or is to go.
fn shown_before<'h>(shown: &Shown<'h>, path: &str, until: Timestamp) -> Option<(u64, &'h Value)> {
    let before = shown.iter().rev().skip_while(|(at, ..)| *at >= until);
    let (_, seq, is, _) = before.clone().next()?;
    if matches!(is, ResourceState::Gone | ResourceState::Deleting) {
        return None;
    }
    let mut since_made = before.take_while(|(_, _, is, _)| *is != ResourceState::Gone);
    Some((*seq, since_made.find_map(|(.., shows)| shows.get(path)).unwrap_or(&Value::Null)))
}

/// Does each resource repeat what its row says, once that has stayed so for a while?
pub(super) fn repeats_agree(
    timeline: &Timeline<'_>,
    names: &HashMap<Uuid, &str>,
    (disturbed, settled): (&Disturbed, Duration),
    found: &mut Found,
) {
    let mut resources: BTreeMap<Key<'_>, (Shown<'_>, KnowsNothing)> = BTreeMap::new();
    for o in timeline.observations {
        if let What::Resource { kind, namespace, name, is, shows, conditions, .. } = &o.what {
            let (shown, knows_nothing) = resources.entry((kind, namespace, name)).or_default();
            shown.push((o.harness_time, o.seq, *is, shows));
            if let Some(Some(condition)) = conditions.get("RequirementsMet") {
                knows_nothing.push((o.harness_time, condition.reason == "NotAvailable"));
            }
        }
    }
    let rows = rows(timeline);
    let end = watched_until(timeline.observations);
    for ((kind, namespace, name), (shown, knows_nothing)) in resources {
        // Histories of before have none of it.
        if shown.iter().all(|(.., shows)| shows.is_empty()) {
            continue;
        }
        for (path, values) in row_of(names, kind, name).and_then(|id| rows.get(&id)).into_iter().flatten() {
            for (n, since) in values.iter().enumerate() {
                let until = values.get(n + 1).map_or(end, |next| next.at);
                let Some(wanted) = &since.value else { continue };
                if until.since(since.seen) < settled || disturbed.within(since.seen, until, settled) {
                    continue;
                }
                let Some((seq, told)) = shown_before(&shown, path, until) else { continue };
                let excused =
                    || knows_nothing.iter().rev().find(|(at, _)| *at < until).is_some_and(|(_, nothing)| *nothing);
                let agrees = told == wanted || (is_nothing(told) && (is_nothing(wanted) || excused()));
                found.check(seq, agrees, || {
                    let whose = called((kind, namespace, name), timeline);
                    format!("{whose}: status.{path} is {told} while the row says {wanted}")
                });
            }
        }
    }
}
