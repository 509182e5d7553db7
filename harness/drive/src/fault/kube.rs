//! Faults of a hub's API server, as orders for it.

use std::time::Duration;

use vlab_kube::{Fault, Order};
use vlab_model::lease::{self, Times};
use vlab_scenario::{
    HookFailure, HookedKind, KubeChanges, KubeInjection, KubePart, KubeRequests, KubeStored, KubeVerb, KubeWrites,
    LeaseLoss, ResourceKind, Skew, Span,
};
use vlab_service::kube::Kind;

use super::effect::Lookup;

/// Leases, as the API server calls them.
const LEASES: &str = "leases";

/// Longer than any run: an outage ends when its fault does.
const FOR_GOOD: Duration = Duration::from_hours(24 * 365);

/// What the API server is told.
pub(super) fn effect(injection: &KubeInjection, who: &dyn Lookup) -> Order {
    let (fault, about) = match injection {
        KubeInjection::KubeConflict { about } => return of_requests(Fault::Conflict, about, who),
        KubeInjection::KubeError { status, about } => return of_requests(Fault::Refuse(*status), about, who),
        KubeInjection::KubeSlow { by, about } => return of_requests(Fault::Slow(who.span(*by)), about, who),
        KubeInjection::KubeWebhook { resource, failure, timeout, about } => {
            return of_webhook((*resource, *failure, *timeout), about, who);
        }
        KubeInjection::KubeClock { by, direction } => {
            let by = i64::try_from(who.span(*by).as_micros()).unwrap_or(i64::MAX);
            let ahead = match direction {
                Skew::Ahead => by,
                Skew::Behind => -by,
            };
            return Order::new(Fault::Clock(ahead), "");
        }
        KubeInjection::KubeLeaseLost { how: LeaseLoss::Taken } => {
            let Times { duration, retry, .. } = who.lease();
            let fault = Fault::LeaseTaken { namespace: lease::NAMESPACE.to_owned(), duration, retry };
            return Order { name: lease::NAME.to_owned(), ..Order::new(fault, LEASES) };
        }
        KubeInjection::KubeLeaseLost { how: LeaseLoss::Refused } => return of_lease(Fault::Refuse(500)),
        KubeInjection::KubeLeaseSlow { by } => return of_lease(Fault::Slow(who.span(*by))),
        KubeInjection::KubeRestart { down, about } => {
            let KubeStored { resource, object, after, times } = about;
            let name = object.as_deref().map(|name| called(name, *resource, who)).unwrap_or_default();
            let fault = Fault::Restart(who.span(*down));
            return Order { name, after: *after, times: *times, ..Order::new(fault, plural(*resource)) };
        }
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

/// What happens to every write of the controllers' lease.
fn of_lease(fault: Fault) -> Order {
    Order {
        name: lease::NAME.to_owned(),
        verb: "write".to_owned(),
        times: u64::MAX,
        quiet: true,
        ..Order::new(fault, LEASES)
    }
}

/// The product's webhooks are answered by its own API, which is asked through the API server.
fn of_webhook(
    (resource, failure, timeout): (HookedKind, HookFailure, Span),
    about: &KubeWrites,
    who: &dyn Lookup,
) -> Order {
    // Which writes it is asked about stands in its registration.
    let (kind, review, verb) = match resource {
        HookedKind::AgentClusterInstall => (Kind::AgentClusterInstall, "agentclusterinstallvalidators", "write"),
        HookedKind::InfraEnv => (Kind::InfraEnv, "infraenvvalidators", "write"),
        HookedKind::Agent => (Kind::Agent, "agentvalidators", "update"),
    };
    let (why, took) = match failure {
        HookFailure::Timeout => {
            let url =
                format!("https://kubernetes.default.svc:443/apis/admission.agentinstall.openshift.io/v1/{review}");
            let why = format!("Post \"{url}?timeout={}s\": context deadline exceeded", timeout.as_written().as_secs());
            (why, who.span(timeout))
        }
        HookFailure::Unavailable => ("the server is currently unable to handle the request".to_owned(), Duration::ZERO),
    };
    let name = format!("{review}.admission.agentinstall.openshift.io");
    let KubeWrites { object, after, times } = about;
    let of = (kind == Kind::Agent).then_some(ResourceKind::Agent);
    Order {
        name: object.as_deref().map(|name| called(name, of, who)).unwrap_or_default(),
        verb: verb.to_owned(),
        subresource: String::new(),
        after: *after,
        times: *times,
        ..Order::new(Fault::Webhook { name, why, took }, kind.plural())
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
