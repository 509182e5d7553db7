//! Faults of a hub's API server, as orders for it.

use std::time::Duration;

use vlab_kube::{Fault, Order};
use vlab_scenario::{KubeChanges, KubeInjection, KubePart, KubeRequests, KubeVerb, ResourceKind};
use vlab_service::kube::Kind;

use super::effect::Lookup;

/// Longer than any run: an outage ends when its fault does.
const FOR_GOOD: Duration = Duration::from_hours(24 * 365);

/// What the API server is told.
pub(super) fn effect(injection: &KubeInjection, who: &dyn Lookup) -> Order {
    let (fault, about) = match injection {
        KubeInjection::KubeConflict { about } => return of_requests(Fault::Conflict, about, who),
        KubeInjection::KubeError { status, about } => return of_requests(Fault::Refuse(*status), about, who),
        KubeInjection::KubeSlow { by, about } => return of_requests(Fault::Slow(who.span(*by)), about, who),
        KubeInjection::KubeDown => return Order::new(Fault::Outage(FOR_GOOD), ""),
        KubeInjection::KubeQuota { about } => (Fault::Quota, about),
        KubeInjection::KubeStale { by, about } => (Fault::Stale(who.span(*by)), about),
        KubeInjection::KubeEventLost { about } => (Fault::Withhold, about),
        KubeInjection::KubeEventTwice { about } => (Fault::Twice, about),
        KubeInjection::KubeEventLate { by, about } => (Fault::Delay(who.span(*by)), about),
        KubeInjection::KubeWatchExpired { about } => (Fault::Cut, about),
        KubeInjection::KubeWatchClosed { about } => (Fault::Close, about),
    };
    let KubeChanges { resource, object, after, times } = about;
    let name = object.as_deref().map(|name| called(name, *resource, who)).unwrap_or_default();
    Order { name, after: *after, times: *times, ..Order::new(fault, plural(*resource)) }
}

fn of_requests(fault: Fault, about: &KubeRequests, who: &dyn Lookup) -> Order {
    let KubeRequests { resource, object, verb, part, after, times } = about;
    let part = part.map_or("*", |part| match part {
        KubePart::Spec => "",
        KubePart::Status => "status",
    });
    Order {
        name: object.as_deref().map(|name| called(name, *resource, who)).unwrap_or_default(),
        verb: verb.map_or("", KubeVerb::as_str).to_owned(),
        subresource: part.to_owned(),
        after: *after,
        times: *times,
        ..Order::new(fault, plural(*resource))
    }
}

fn plural(resource: Option<ResourceKind>) -> &'static str {
    resource.and_then(|kind| Kind::of(kind.as_str())).map_or("", Kind::plural)
}

/// An Agent is called as its host's id.
fn called(name: &str, resource: Option<ResourceKind>, who: &dyn Lookup) -> String {
    match (resource, who.id(name)) {
        (Some(ResourceKind::Agent) | None, Some(id)) => id.to_string(),
        _ => name.to_owned(),
    }
}
