//! Faults of a hub's API server, as orders for it.

use std::time::Duration;

use vlab_kube::{Fault, Order};
use vlab_scenario::{KubeInjection, KubePart, KubeSelect, KubeVerb, ResourceKind};
use vlab_service::kube::Kind;

use super::effect::Lookup;

/// Longer than any run: an outage ends when its fault does.
const FOR_GOOD: Duration = Duration::from_hours(24 * 365);

/// What the API server is told.
pub(super) fn effect(injection: &KubeInjection, who: &dyn Lookup) -> Order {
    let (fault, about) = match injection {
        KubeInjection::KubeConflict { about } => (Fault::Conflict, about),
        KubeInjection::KubeError { status, about } => (Fault::Refuse(*status), about),
        KubeInjection::KubeQuota { about } => (Fault::Quota, about),
        KubeInjection::KubeStale { by, about } => (Fault::Stale(who.span(*by)), about),
        KubeInjection::KubeEventLost { about } => (Fault::Withhold, about),
        KubeInjection::KubeEventTwice { about } => (Fault::Twice, about),
        KubeInjection::KubeEventLate { by, about } => (Fault::Delay(who.span(*by)), about),
        KubeInjection::KubeWatchExpired { about } => (Fault::Cut, about),
        KubeInjection::KubeWatchClosed { about } => (Fault::Close, about),
        KubeInjection::KubeDown => return Order::new(Fault::Outage(FOR_GOOD), ""),
    };
    let KubeSelect { resource, object, verb, part, after, times } = about;
    let name = object.as_ref().map(|name| match (resource, who.id(name)) {
        (Some(ResourceKind::Agent) | None, Some(id)) => id.to_string(),
        _ => name.clone(),
    });
    let part = part.map(|part| match part {
        KubePart::Spec => "",
        KubePart::Status => "status",
    });
    Order {
        fault,
        resource: resource.and_then(|kind| Kind::of(kind.as_str())).map_or("", Kind::plural).to_owned(),
        verb: verb.map_or("", KubeVerb::as_str).to_owned(),
        subresource: part.unwrap_or("*").to_owned(),
        name: name.unwrap_or_default(),
        after: *after,
        times: *times,
    }
}
