//! Events over REST: their filters, their counters, and how they are listed.

use serde::Serialize;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::{Body, Response};
use vlab_api::types::{Event, Severity};

use super::RestCall;
use super::answer::RestResult;
use crate::commands::events::{self, EventFilter};
use crate::go;

/// Most events that a listing returns when it names no limit.
const DEFAULT_LIMIT: i64 = 5000;

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

impl<'a> Listed<'a> {
    fn of(event: &'a Event) -> Self {
        Self {
            cluster_id: event.cluster_id,
            event_time: event.event_time,
            host_id: event.host_id,
            infra_env_id: event.infra_env_id,
            message: &event.message,
            name: event.name.as_deref(),
            props: event.props.as_deref(),
            severity: event.severity,
        }
    }
}

fn filter(call: &RestCall<'_>) -> EventFilter {
    let cluster = call.query_id("cluster_id");
    let mut hosts: Vec<Uuid> =
        call.query_list("host_ids").unwrap_or_default().iter().filter_map(|t| go::parse_uuid(t)).collect();
    hosts.extend(call.query_id("host_id"));
    EventFilter {
        cluster,
        infra_env: call.query_id("infra_env_id"),
        hosts,
        deleted_hosts: cluster.is_some() && call.query_flag("deleted_hosts"),
        cluster_level: cluster.is_some() && call.query_flag("cluster_level"),
        message: call.query("message").map(str::to_lowercase).filter(|_| cluster.is_some()),
        categories: call.query_list("categories").filter(|c| !c.is_empty()).unwrap_or_else(|| vec!["user".to_owned()]),
        severities: call.query_list("severities").filter(|s| !s.is_empty()),
    }
}

/// A page of events in JSON.
#[expect(clippy::ptr_arg, reason = "it writes the object that the body holds, which is a Vec")]
fn listed(page: &Vec<Event>) -> Vec<u8> {
    let page: Vec<Listed<'_>> = page.iter().map(Listed::of).collect();
    serde_json::to_vec(&page).unwrap_or_default()
}

/// `GET /v2/events`
pub(super) fn list(call: &mut RestCall<'_>) -> RestResult {
    let filter = filter(call);
    let number = |name: &str| call.query(name).and_then(|v| v.parse::<i64>().ok());
    let limit = match number("limit").unwrap_or(DEFAULT_LIMIT) {
        n if n < 0 => usize::MAX,
        n => usize::try_from(n).unwrap_or(usize::MAX),
    };
    let offset = usize::try_from(number("offset").unwrap_or(0)).unwrap_or(0);
    let mut found = events::find(call.core, &filter);
    let scoped = filter.cluster.is_some() || filter.infra_env.is_some() || !filter.hosts.is_empty();
    let total = if scoped { found.events.len() } else { 0 };
    if filter.cluster.is_none() {
        found.counts = Default::default();
    }
    if call.query("order") == Some("descending") {
        found.events.reverse();
    }
    let shown = |event: &Event| Event { category: None, request_id: None, ..event.clone() };
    let page: Vec<Event> = found.events.into_iter().skip(offset).take(limit).map(shown).collect();
    let mut response = Response::empty(200).header("content-type", "application/json");
    response.body = Body::object_as(page, listed);
    let mut response = response.header("event-count", total.to_string());
    for (severity, count) in Severity::ALL.iter().zip(found.counts) {
        response = response.header(&format!("severity-count-{severity}"), count.to_string());
    }
    Ok(response)
}

/// `POST /v2/events`
pub(super) fn trigger(call: &mut RestCall<'_>) -> RestResult {
    let event: Event = call.body("trigger-event-params")?;
    events::trigger(call.core, call.now, event)?;
    Ok(Response::empty(201))
}
