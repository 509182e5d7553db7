//! Events: which ones are asked for, and those that agents and the controller send.

use std::collections::BTreeSet;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{Event, Severity};

use crate::Core;
use crate::refusal::Refusal;

/// Which events are asked for. All conditions must hold; `None` and an empty list hold for every event.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventFilter {
    pub(crate) cluster: Option<Uuid>,
    pub(crate) infra_env: Option<Uuid>,
    pub(crate) hosts: Vec<Uuid>,
    /// Also events of hosts that are not there any more.
    pub(crate) deleted_hosts: bool,
    /// Also events of no host.
    pub(crate) cluster_level: bool,
    /// In lower case.
    pub(crate) message: Option<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) severities: Option<Vec<String>>,
}

/// Events that fit, oldest first.
pub(crate) struct Found<'a> {
    pub(crate) events: Vec<&'a Event>,
    /// How many there are of each severity, whatever severities are asked for.
    pub(crate) counts: [u64; Severity::ALL.len()],
}

/// Looks for events.
pub(crate) fn find<'a>(core: &'a Core, filter: &EventFilter) -> Found<'a> {
    let state = &core.state;
    let wanted = |event: &Event| {
        let by_host = filter.hosts.is_empty() && !filter.deleted_hosts && !filter.cluster_level
            || event.host_id.is_some_and(|h| filter.hosts.contains(&h))
            || filter.deleted_hosts && event.host_id.is_some_and(|h| state.find_host(h).is_none())
            || filter.cluster_level && event.host_id.is_none();
        filter.cluster.is_none_or(|c| event.cluster_id == Some(c))
            && filter.infra_env.is_none_or(|i| event.infra_env_id == Some(i))
            && by_host
            && filter.message.as_ref().is_none_or(|t| event.message.to_lowercase().contains(t))
            && filter.categories.iter().any(|c| event.category.as_deref().unwrap_or("user") == c)
    };
    let rows = state.events();
    let of_hosts: Vec<u64>;
    let only_hosts = !filter.hosts.is_empty() && !filter.deleted_hosts && !filter.cluster_level;
    let indexed = match (filter.cluster, filter.infra_env) {
        // With the infra-env goes the list of its events; they are still among all events.
        (None, Some(id)) if state.infra_env(id).is_none() => Some(&[][..]),
        _ if only_hosts => {
            let all: BTreeSet<u64> = filter.hosts.iter().flat_map(|id| state.events_of_host(*id)).copied().collect();
            of_hosts = all.into_iter().collect();
            Some(&of_hosts[..])
        }
        (Some(id), _) => Some(state.events_of_cluster(id)),
        (None, Some(id)) => Some(state.events_of_infra_env(id)),
        (None, None) => None,
    };
    let candidates: Box<dyn Iterator<Item = &Event>> = match indexed {
        Some(seqs) => Box::new(seqs.iter().filter_map(|s| rows.get(*s as usize)).map(|r| &r.event)),
        None => Box::new(rows.iter().map(|r| &r.event)),
    };
    let mut found = Found { events: Vec::new(), counts: Default::default() };
    for event in candidates.filter(|e| wanted(e)) {
        found.counts[event.severity as usize] += 1;
        if filter.severities.as_ref().is_none_or(|s| s.iter().any(|w| w == event.severity.as_str())) {
            found.events.push(event);
        }
    }
    found
}

/// Takes an event of an agent or the controller in.
pub(crate) fn trigger(core: &mut Core, now: Timestamp, mut event: Event) -> Result<(), Refusal> {
    let category = event.category.take().filter(|c| !c.is_empty()).unwrap_or_else(|| "user".to_owned());
    if !matches!(category.as_str(), "user" | "metrics") {
        return Err(Refusal::invalid(format!("unknown event category {category}")));
    }
    event.category = Some(category);
    // The service's own clock counts; properties that are no JSON are dropped.
    event.event_time = now;
    event.props = event.props.filter(|p| serde_json::from_str::<serde_json::Value>(p).is_ok());
    core.state.append_event(event);
    Ok(())
}
