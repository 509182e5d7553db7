//! The end of a run, and how it differs from those of the same scenario on the simulated service: what a service that is wrong shows
//! though nothing that must always hold is broken.
//!
//! Of equal hosts one plays the part of another, so that hosts of a group are compared as a heap. Times, and what passes, are not
//! compared: what two services do at other moments is no difference; nor are the words in which they say it. Where the simulated
//! service ends in several ways, each of them is right.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use vlab_api::types::FinalizingStage;
use vlab_history::Timeline;
use vlab_model::history::{Observation, What};
use vlab_scenario::Scenario;

use super::closely::{Closely, closely, other_stays};
use super::oracle::{Violation, violation};

/// Name of the check that compares the end of a run with those of the simulated service.
pub const ENDS_ALIKE: &str = "ends-alike: the run ends as it does on the simulated service";

/// Events that hang on the moment, or on what a service has beside it: in virtual time there is another image service, and a role may be
/// suggested before the user gives one.
const APART: &[&str] = &["image_info_updated", "host_role_updated"];

/// The controller reports it when nothing is left to do. The service may have found the cluster installed by then, at the tick of its
/// monitor, and refuses the report: which of both comes first is a matter of the moment.
const LAST_STAGE: FinalizingStage = FinalizingStage::Done;

/// Requests that the simulated service is known to answer with another status than the real one, now and then: `docs/fidelity.md` has them.
const ANSWERED_OTHERWISE: &[&str] =
    &["GetInfraEnvDownloadURL", "V2ListOperatorProperties", "V2UpdateClusterManifest", "v2DownloadInfraEnvFiles"];

/// The end of a run, as far as two services are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Status of each cluster by its name.
    pub clusters: BTreeMap<String, String>,
    /// Statuses of the hosts of each group, in the order of the alphabet.
    pub hosts: BTreeMap<String, Vec<String>>,
    /// By the action's position in the scenario: the word for it, and the status with which it was refused, or 0.
    pub actions: BTreeMap<usize, (String, u16)>,
    /// What else is told of clusters, and of the hosts of each group: what it is, and what it is at the end, in the order of the
    /// alphabet.
    pub told: BTreeMap<Told, Vec<String>>,
    /// Which events there were, whenever and of whom.
    pub events: BTreeSet<String>,
    /// What was once told of a cluster, or of any host of a group, or asked of it: statuses, stages, steps.
    pub once: BTreeMap<Told, BTreeSet<String>>,
    /// What is compared where both have it.
    pub closely: Option<Closely>,
}

/// Something that is told of a cluster, or of hosts of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Told {
    /// Of what: `a cluster`, `a host`, `the user`.
    pub whose: &'static str,
    /// What, for people.
    pub what: String,
    /// The cluster, or the group.
    pub of: String,
}

/// Who a subject is: a cluster, and its name, or a host, and its group.
pub(super) type Whose<'a> = BTreeMap<Uuid, (&'static str, &'a str)>;

/// The end of a history.
pub fn end_of(scenario: &Scenario, history: &[Observation]) -> End {
    read(scenario, history, false)
}

/// The same, with all that is compared where two services have the same words and the same clock.
pub fn end_closely(scenario: &Scenario, history: &[Observation]) -> End {
    read(scenario, history, true)
}

fn read(scenario: &Scenario, history: &[Observation], is_close: bool) -> End {
    let timeline = Timeline::new(history);
    let mut end = End::default();
    let names: BTreeMap<Uuid, String> = timeline.clusters.keys().map(|id| (*id, timeline.cluster_name(*id))).collect();
    let mut whose: Whose<'_> = names.iter().map(|(id, name)| (*id, ("a cluster", name.as_str()))).collect();
    for (id, line) in &timeline.clusters {
        if let Some(last) = line.statuses.last() {
            end.clusters.insert(names[id].clone(), last.to.as_str().to_owned());
        }
    }
    let is_known = |at: usize| {
        let request = scenario.actions.get(at).and_then(|action| action.request.as_ref());
        request.is_some_and(|request| ANSWERED_OTHERWISE.contains(&request.operation))
    };
    let gone = |o: &Observation| if let What::HostDeleted { host } = o.what { Some(host) } else { None };
    let deleted: BTreeSet<Uuid> = history.iter().filter_map(gone).collect();
    for (id, line) in &timeline.hosts {
        let name = timeline.host_name(*id);
        let host = scenario.hosts.iter().find(|host| host.name == name);
        let deleted = deleted.contains(id);
        let last = line.statuses.last().map_or("", |last| last.to.as_str());
        let status = if deleted { "deleted" } else { last };
        if let Some(host) = host.filter(|_| !deleted) {
            whose.insert(*id, ("a host", host.group.as_str()));
        }
        let group = host.map_or(name.clone(), |host| host.group.clone());
        end.hosts.entry(group).or_default().push(status.to_owned());
    }
    end.hosts.values_mut().for_each(|statuses| statuses.sort());
    for observation in history {
        match &observation.what {
            What::UserAction { action, status, planned: Some(at), .. } if !is_known(*at) => {
                let refused = if *status >= 400 { *status } else { 0 };
                end.actions.insert(*at, (action.to_string(), refused));
            }
            What::Event { name, severity, host, cluster, .. }
                if !name.is_empty() && !APART.contains(&name.as_str()) =>
            {
                let of = match (host, cluster) {
                    (Some(_), _) => "a host",
                    (None, Some(_)) => "a cluster",
                    (None, None) => "neither host nor cluster",
                };
                end.events.insert(format!("{name} ({}) of {of}", severity.as_str()));
            }
            _ => {}
        }
    }
    end.told = told(history, &whose);
    end.once = once(history, &whose);
    end.closely = is_close.then(|| closely(scenario, history, &whose));
    end
}

/// What was once so, whenever. What lasts only a moment is seen by one run and not by another: that is asked for in several orders, and
/// values of validations, which come and go between two looks of a monitor, are left out.
fn once(history: &[Observation], whose: &Whose<'_>) -> BTreeMap<Told, BTreeSet<String>> {
    let mut all: BTreeMap<Told, BTreeSet<String>> = BTreeMap::new();
    for observation in history {
        let (subject, what, value) = match &observation.what {
            What::HostStatus { host, to, .. } => (host, "the status".to_owned(), to.as_str()),
            What::ClusterStatus { cluster, to, .. } => (cluster, "the status".to_owned(), to.as_str()),
            What::HostStage { host, to: Some(stage), .. } => (host, "the stage".to_owned(), stage.as_str()),
            What::ClusterFinalizingStage { cluster, stage } if *stage != LAST_STAGE => {
                (cluster, "the finalizing stage".to_owned(), stage.as_str())
            }
            What::Step { host, step_type, .. } => (host, "a step asked for".to_owned(), step_type.as_str()),
            _ => continue,
        };
        if let Some((kind, of)) = whose.get(subject) {
            let told = Told { whose: kind, what, of: (*of).to_owned() };
            all.entry(told).or_default().insert(value.to_owned());
        }
    }
    all
}

/// What each subject shows last of each thing.
fn told(history: &[Observation], whose: &Whose<'_>) -> BTreeMap<Told, Vec<String>> {
    let mut last: BTreeMap<(Uuid, String), String> = BTreeMap::new();
    for observation in history {
        let (subject, what, value) = match &observation.what {
            What::HostStage { host, to, .. } => {
                (*host, "the stage".to_owned(), to.map_or("", |stage| stage.as_str()).to_owned())
            }
            What::HostRole { host, role, bootstrap } => {
                let bootstrap = if *bootstrap { " and bootstrap" } else { "" };
                (*host, "the role".to_owned(), format!("{}{bootstrap}", role.as_str()))
            }
            What::HostLogs { host, state } => (*host, "the state of logs".to_owned(), state.as_str().to_owned()),
            What::ClusterLogs { cluster, state } => {
                (*cluster, "the state of logs".to_owned(), state.as_str().to_owned())
            }
            What::ClusterProgress { cluster, total } => (*cluster, "the percentage".to_owned(), format!("{total} %")),
            What::ClusterFinalizingStage { cluster, stage } if *stage != LAST_STAGE => {
                (*cluster, "the finalizing stage".to_owned(), stage.as_str().to_owned())
            }
            What::Validation { subject, id, to, .. } => {
                let status = to.map_or("", |status| status.as_str());
                (*subject, format!("the validation `{id}`"), status.to_owned())
            }
            What::Operator { cluster, name, status, .. } => {
                let status = status.map_or("", |status| status.as_str());
                (*cluster, format!("the operator `{name}`"), status.to_owned())
            }
            _ => continue,
        };
        // What is no more is as what never was: whether it was for a while is a matter of the moment.
        match value.is_empty() {
            true => _ = last.remove(&(subject, what)),
            false => _ = last.insert((subject, what), value),
        }
    }
    let mut told: BTreeMap<Told, Vec<String>> = BTreeMap::new();
    for ((subject, what), value) in last {
        if let Some((kind, of)) = whose.get(&subject) {
            let of = Told { whose: kind, what, of: (*of).to_owned() };
            told.entry(of).or_default().push(value);
        }
    }
    told.values_mut().for_each(|values| values.sort());
    told
}

/// How the end of a run differs from each end that it has on the simulated service. What only some of those have is no difference.
/// What else is told is compared where it ends in the same statuses: another status explains it.
pub fn differs(scenario: &Scenario, theirs: &End, ours: &[End]) -> Vec<Violation> {
    let Some(plain) = ours.first() else { return Vec::new() };
    let mut all = Vec::new();
    let mut differ = |what: String, more: String| {
        let text = format!("{what}; {more}");
        all.push(violation(scenario, ENDS_ALIKE, &text));
    };
    let names: BTreeSet<&String> = theirs.clusters.keys().chain(plain.clusters.keys()).collect();
    for name in names {
        let status = |end: &End| end.clusters.get(name).cloned().unwrap_or_else(|| "not there".to_owned());
        if ours.iter().all(|end| status(end) != status(theirs)) {
            let (there, here) = (status(theirs), status(plain));
            differ(format!("a cluster ends {there}, and {here} on the simulated service"), format!("cluster {name}"));
        }
    }
    let groups: BTreeSet<&String> = theirs.hosts.keys().chain(plain.hosts.keys()).collect();
    for group in groups {
        let of = |end: &End| end.hosts.get(group).cloned().unwrap_or_default();
        if ours.iter().all(|end| of(end) != of(theirs)) {
            let (there, here) = apart(&of(theirs), &of(plain));
            differ(
                format!("a host ends {there}, and {here} on the simulated service"),
                format!("hosts of {group}: {} there, {} here", of(theirs).join(", "), of(plain).join(", ")),
            );
        }
    }
    for (at, (action, refused)) in &theirs.actions {
        let here: Vec<u16> = ours.iter().filter_map(|end| Some(end.actions.get(at)?.1)).collect();
        if let Some(first) = here.first()
            && !here.contains(refused)
        {
            let words =
                |refused: u16| if refused == 0 { "taken".to_owned() } else { format!("refused with `{refused}`") };
            differ(
                format!("{action} is {}, and {} by the simulated service", words(*refused), words(*first)),
                format!("action {}", at + 1),
            );
        }
    }
    if all.is_empty() {
        // Of those that end as this one does.
        let alike: Vec<&End> =
            ours.iter().filter(|end| (&end.clusters, &end.hosts) == (&theirs.clusters, &theirs.hosts)).collect();
        all.extend(told_otherwise(scenario, theirs, &alike));
    }
    all
}

/// What is told otherwise than in each of the ends that are the same in their statuses.
fn told_otherwise(scenario: &Scenario, theirs: &End, ours: &[&End]) -> Vec<Violation> {
    let Some(plain) = ours.first() else { return Vec::new() };
    let mut all = Vec::new();
    let things: BTreeSet<&Told> = theirs.told.keys().chain(plain.told.keys()).collect();
    for thing in things {
        let of = |end: &End| end.told.get(thing).cloned().unwrap_or_default();
        if ours.iter().all(|end| of(end) != of(theirs)) {
            let (there, here) = apart(&of(theirs), &of(plain));
            let whose = thing.whose;
            let text = format!(
                "{} of {whose} ends as \"{there}\", and as \"{here}\" on the simulated service; {}: {} there, {} here",
                thing.what,
                thing.of,
                of(theirs).join(" | "),
                of(plain).join(" | ")
            );
            all.push(violation(scenario, ENDS_ALIKE, &text));
        }
    }
    let once_here: Vec<_> = ours.iter().map(|end| &end.once).collect();
    all.extend(once_otherwise(&theirs.once, &once_here).iter().map(|text| violation(scenario, ENDS_ALIKE, text)));
    let only_there = theirs.events.iter().filter(|event| ours.iter().all(|end| !end.events.contains(*event)));
    all.extend(only_there.map(|event| {
        violation(scenario, ENDS_ALIKE, &format!("there is an event {event}, and none on the simulated service"))
    }));
    let only_here = plain
        .events
        .iter()
        .filter(|event| !theirs.events.contains(*event) && ours.iter().all(|end| end.events.contains(*event)));
    all.extend(only_here.map(|event| {
        violation(scenario, ENDS_ALIKE, &format!("there is no event {event}, and there is on the simulated service"))
    }));
    let close: Vec<&Closely> = ours.iter().filter_map(|end| end.closely.as_ref()).collect();
    if let Some(theirs) = &theirs.closely
        && !close.is_empty()
    {
        let once_here: Vec<_> = close.iter().map(|of| &of.once).collect();
        let texts = once_otherwise(&theirs.once, &once_here).into_iter().chain(other_stays(theirs, &close));
        all.extend(texts.map(|text| violation(scenario, ENDS_ALIKE, &text)));
    }
    all
}

/// What was once so, and never in those runs; or never, and once in each of them.
fn once_otherwise(
    theirs: &BTreeMap<Told, BTreeSet<String>>,
    ours: &[&BTreeMap<Told, BTreeSet<String>>],
) -> Vec<String> {
    let Some(plain) = ours.first() else { return Vec::new() };
    let mut all = Vec::new();
    let none = BTreeSet::new();
    let things: BTreeSet<&Told> = theirs.keys().chain(plain.keys()).collect();
    for thing in things {
        let Told { whose, what, of } = thing;
        let there = theirs.get(thing).unwrap_or(&none);
        let here: Vec<&BTreeSet<String>> = ours.iter().map(|all| all.get(thing).unwrap_or(&none)).collect();
        for value in there.iter().filter(|value| here.iter().all(|values| !values.contains(*value))) {
            all.push(format!("{what} of {whose} was once \"{value}\", and never on the simulated service; {of}"));
        }
        let Some(first) = here.first() else { continue };
        for value in first.difference(there).filter(|value| here.iter().all(|values| values.contains(*value))) {
            all.push(format!("{what} of {whose} was never \"{value}\", and was once on the simulated service; {of}"));
        }
    }
    all
}

/// The first thing that one list has and the other has not.
fn apart(there: &[String], here: &[String]) -> (String, String) {
    let only = |one: &[String], other: &[String]| {
        let mut left = other.to_vec();
        let alone = one.iter().find(|one| match left.iter().position(|o| o == *one) {
            Some(at) => {
                left.remove(at);
                false
            }
            None => true,
        });
        alone.cloned().unwrap_or_else(|| "not there".to_owned())
    };
    (only(there, here), only(here, there))
}

#[cfg(test)]
mod tests {
    use vlab_scenario::Catalogue;

    use super::*;

    fn end(clusters: &str, validation: &str, events: &[&str]) -> End {
        let told = Told { whose: "a host", what: "the validation `v`".to_owned(), of: "master".to_owned() };
        End {
            clusters: BTreeMap::from([("c".to_owned(), clusters.to_owned())]),
            told: BTreeMap::from([(told, vec!["success".to_owned(), validation.to_owned()])]),
            events: events.iter().map(|event| (*event).to_owned()).collect(),
            ..End::default()
        }
    }

    /// What else is told is compared with the ends in the same statuses, and what any of them has is no difference.
    #[test]
    fn what_is_told_is_compared_where_the_statuses_are_the_same() {
        let catalogue = Catalogue::embedded();
        let scenario = vlab_scenario::load(&catalogue.find("sno").unwrap(), &catalogue).unwrap();
        let differ = |theirs: &End, ours: &[End]| -> Vec<String> {
            differs(&scenario, theirs, ours).into_iter().map(|found| found.signature).collect()
        };
        let ours = [end("error", "success", &["a", "b"]), end("error", "failure", &["a"])];
        assert_eq!(differ(&end("error", "failure", &["a"]), &ours), [""; 0]);
        assert_eq!(
            differ(&end("error", "pending", &["c"]), &ours),
            [
                "ends-alike: the validation `v` of a host ends as \"pending\" and as \"success\" on the simulated service",
                "ends-alike: there is an event c and none on the simulated service",
                "ends-alike: there is no event a and there is on the simulated service",
            ]
        );
        let other = differ(&end("installed", "pending", &["c"]), &ours);
        assert_eq!(other, ["ends-alike: a cluster ends installed and error on the simulated service"]);
    }

    /// What was once so is compared with all orders: only some of them show what lasts a moment.
    #[test]
    fn what_was_once_so_is_compared() {
        let catalogue = Catalogue::embedded();
        let scenario = vlab_scenario::load(&catalogue.find("sno").unwrap(), &catalogue).unwrap();
        let was = |values: &[&str]| {
            let told = Told { whose: "a cluster", what: "the status".to_owned(), of: "sno".to_owned() };
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            End { once: BTreeMap::from([(told, values)]), ..end("installed", "success", &[]) }
        };
        let differ = |theirs: &End, ours: &[End]| -> Vec<String> {
            differs(&scenario, theirs, ours).into_iter().map(|found| found.message).collect()
        };
        let ours = [was(&["ready", "insufficient"]), was(&["ready", "preparing"])];
        assert_eq!(differ(&was(&["ready"]), &ours), [""; 0]);
        assert_eq!(
            differ(&was(&["preparing", "error"]), &ours),
            [
                "the status of a cluster was once \"error\", and never on the simulated service; sno",
                "the status of a cluster was never \"ready\", and was once on the simulated service; sno",
            ]
        );
    }

    #[test]
    fn requests_that_are_answered_otherwise_are_there() {
        assert!(ANSWERED_OTHERWISE.iter().all(|id| vlab_api::requests::user_request(id).is_some()));
        assert!(ANSWERED_OTHERWISE.is_sorted());
    }

    #[test]
    fn hosts_that_play_other_parts_are_counted_by_group() {
        let one = ["error", "installed", "installed"].map(str::to_owned);
        let other = ["installed", "installed", "installed"].map(str::to_owned);
        assert_eq!(apart(&one, &other), ("error".to_owned(), "installed".to_owned()));
        assert_eq!(apart(&other[..2], &other), ("not there".to_owned(), "installed".to_owned()));
    }
}
