//! Events: writing, listing with its filters and counters, and those that agents and the controller post.

use serde::Serialize;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::Response;
use vlab_api::types::{ClusterStatus, Event, Host, HostStatus, Severity};

use crate::Core;
use crate::answer::{Answer, Fail};
use crate::router::Call;
use crate::state::{HostKey, user_event};

/// Most events that a listing returns when it names no limit.
const DEFAULT_LIMIT: i64 = 5000;

/// Severity of `host_status_updated` for the new status.
fn status_severity(status: HostStatus) -> Severity {
    match status {
        HostStatus::Disconnected | HostStatus::Insufficient | HostStatus::InstallingPendingUserAction => {
            Severity::Warning
        }
        HostStatus::Error => Severity::Error,
        _ => Severity::Info,
    }
}

impl Core {
    /// Writes an event about a cluster.
    pub(crate) fn cluster_event(&mut self, now: Timestamp, id: Uuid, name: &str, severity: Severity, message: String) {
        let event = user_event(now, name, severity, message);
        self.state.append_event(Event { cluster_id: Some(id), ..event });
    }

    /// Writes an event about an infra-env.
    pub(crate) fn infra_env_event(
        &mut self,
        now: Timestamp,
        id: Uuid,
        name: &str,
        severity: Severity,
        message: String,
    ) {
        // Also when it is bound to a cluster: the cluster's list does not tell of it.
        let event = user_event(now, name, severity, message);
        self.state.append_event(Event { infra_env_id: Some(id), ..event });
    }

    /// Writes an event about a host.
    pub(crate) fn host_event(&mut self, now: Timestamp, key: HostKey, name: &str, severity: Severity, message: String) {
        let cluster_id = self.state.host(key).and_then(|r| r.host().cluster_id);
        let event = user_event(now, name, severity, message);
        self.state.append_event(Event { infra_env_id: Some(key.0), host_id: Some(key.1), cluster_id, ..event });
    }

    /// Name of a host in events.
    pub(crate) fn host_name(&self, key: HostKey) -> String {
        self.state.host(key).and_then(|r| r.view.hostname().map(str::to_owned)).unwrap_or_else(|| key.1.to_string())
    }

    /// `host_status_updated`
    pub(crate) fn host_status_event(&mut self, now: Timestamp, key: HostKey, from: HostStatus, to: &Host) {
        let message =
            format!("Host {}: updated status from {from} to {} ({})", self.host_name(key), to.status, to.status_info);
        let severity = status_severity(to.status);
        self.host_event(now, key, "host_status_updated", severity, message);
    }

    /// `cluster_status_updated`
    pub(crate) fn cluster_status_event(&mut self, now: Timestamp, id: Uuid, to: ClusterStatus, info: &str) {
        let message = format!("Updated status of the cluster to {to} ({info})");
        self.cluster_event(now, id, "cluster_status_updated", Severity::Info, message);
    }
}

/// An event as it is listed: category and request id stay inside.
#[derive(Serialize)]
struct Listed<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_id: Option<Uuid>,
    event_time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    infra_env_id: Option<Uuid>,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    props: Option<&'a str>,
    severity: Severity,
}

/// `GET /v2/events`
pub(crate) fn list(call: &mut Call<'_>) -> Answer {
    let cluster = call.query_id("cluster_id");
    let infra_env = call.query_id("infra_env_id");
    let mut hosts: Vec<Uuid> =
        call.query_list("host_ids").unwrap_or_default().iter().filter_map(|t| crate::check::parse_uuid(t)).collect();
    hosts.extend(call.query_id("host_id"));
    let text = call.query("message").map(str::to_lowercase).filter(|_| cluster.is_some());
    let severities = call.query_list("severities").filter(|s| !s.is_empty());
    let categories = call.query_list("categories").filter(|c| !c.is_empty()).unwrap_or_else(|| vec!["user".to_owned()]);
    let deleted_hosts = cluster.is_some() && call.query_flag("deleted_hosts");
    let cluster_level = cluster.is_some() && call.query_flag("cluster_level");
    let number = |name: &str| call.query(name).and_then(|v| v.parse::<i64>().ok());
    let limit = match number("limit").unwrap_or(DEFAULT_LIMIT) {
        n if n < 0 => usize::MAX,
        n => usize::try_from(n).unwrap_or(usize::MAX),
    };
    let offset = usize::try_from(number("offset").unwrap_or(0)).unwrap_or(0);
    let descending = call.query("order") == Some("descending");

    let state = &call.core.state;
    let wanted = |event: &Event| {
        let by_host = hosts.is_empty() && !deleted_hosts && !cluster_level
            || event.host_id.is_some_and(|h| hosts.contains(&h))
            || deleted_hosts && event.host_id.is_some_and(|h| state.find_host(h).is_none())
            || cluster_level && event.host_id.is_none();
        cluster.is_none_or(|c| event.cluster_id == Some(c))
            && infra_env.is_none_or(|i| event.infra_env_id == Some(i))
            && by_host
            && text.as_ref().is_none_or(|t| event.message.to_lowercase().contains(t))
            && categories.iter().any(|c| event.category.as_deref().unwrap_or("user") == c)
    };
    let rows = state.events();
    // An event of a cluster is found through its index; the others are few and looked for everywhere.
    let candidates: Box<dyn Iterator<Item = &Event>> = match cluster {
        Some(id) => {
            Box::new(state.events_of_cluster(id).iter().filter_map(|s| rows.get(*s as usize)).map(|r| &r.event))
        }
        None => Box::new(rows.iter().map(|r| &r.event)),
    };
    let mut counts = [0u64; 4];
    let mut matching: Vec<&Event> = Vec::new();
    for event in candidates.filter(|e| wanted(e)) {
        counts[event.severity as usize] += 1;
        if severities.as_ref().is_none_or(|s| s.iter().any(|w| w == event.severity.as_str())) {
            matching.push(event);
        }
    }
    let scoped = cluster.is_some() || infra_env.is_some() || !hosts.is_empty();
    let total = if scoped { matching.len() } else { 0 };
    if cluster.is_none() {
        counts = [0; 4];
    }
    if descending {
        matching.reverse();
    }
    let page: Vec<Listed<'_>> = matching
        .into_iter()
        .skip(offset)
        .take(limit)
        .map(|e| Listed {
            cluster_id: e.cluster_id,
            event_time: e.event_time,
            host_id: e.host_id,
            infra_env_id: e.infra_env_id,
            message: &e.message,
            name: e.name.as_deref(),
            props: e.props.as_deref(),
            severity: e.severity,
        })
        .collect();
    let mut response = Response::json(200, &page).header("event-count", total.to_string());
    for (severity, count) in Severity::ALL.iter().zip(counts) {
        response = response.header(&format!("severity-count-{severity}"), count.to_string());
    }
    Ok(response)
}

/// `POST /v2/events`
pub(crate) fn trigger(call: &mut Call<'_>) -> Answer {
    let mut event: Event = call.body("trigger-event-params")?;
    let category = event.category.take().filter(|c| !c.is_empty()).unwrap_or_else(|| "user".to_owned());
    if !matches!(category.as_str(), "user" | "metrics") {
        return Err(Fail::bad_request(format!("unknown event category {category}")));
    }
    event.category = Some(category);
    // The service's own clock counts; properties that are no JSON are dropped.
    event.event_time = call.now;
    event.props = event.props.filter(|p| serde_json::from_str::<serde_json::Value>(p).is_ok());
    call.core.state.append_event(event);
    Ok(Response::empty(201))
}
