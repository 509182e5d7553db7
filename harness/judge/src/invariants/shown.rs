//! What resources on a hub show, and what of them may not be changed any more.

use std::collections::HashMap;
use std::time::Duration;

use vlab_api::Timestamp;
use vlab_history::Timeline;
use vlab_model::history::{ActionKind, Observation, ResourceState, UserVerb, What};

use super::found::Found;
use super::resources::{NO_HUB, called};
use super::{Invariant, InvariantResult};

pub(super) const HIDDEN: Invariant = Invariant {
    id: "secrets-hidden",
    number: "I34",
    title: "no pull secret, password, kubeconfig or private key stands in a status, condition, label or annotation of a resource",
    needs: "changes of resources on a hub",
};

pub(super) const FROZEN: Invariant = Invariant {
    id: "spec-frozen",
    number: "I35",
    title: "what of a spec is frozen stays as it is: nearly all of an installation's once it is under way, an image's cluster and \
            architecture, a classification's label",
    needs: "changes of resources on a hub",
};

/// Judges [`HIDDEN`].
pub(super) fn secrets_hidden(timeline: &Timeline<'_>) -> InvariantResult {
    let mut found = Found::default();
    for o in timeline.observations {
        let What::Resource { kind, namespace, name, secrets, .. } = &o.what else { continue };
        let key = (kind.as_str(), namespace.as_str(), name.as_str());
        found.check(o.seq, secrets.is_empty(), || format!("{} shows {}", called(key, timeline), secrets.join(", ")));
    }
    found.result((&HIDDEN).into(), || NO_HUB.to_owned())
}

/// What the controllers themselves add to an AgentClusterInstall while its cluster is installed.
const ADDED: [&str; 2] = ["clusterMetadata", "ignitionEndpoint"];

/// May that member of its spec not be changed? `completed`: why an AgentClusterInstall is not complete, or that it is. Source: what the
/// product's admission webhooks refuse. The release, which they freeze at once, a user may mend where there are none, until it is installed.
fn is_frozen(kind: &str, member: &str, completed: &str) -> bool {
    match kind {
        "AgentClusterInstall" => match completed {
            "InstallationInProgress" | "InstallationFailed" => !ADDED.contains(&member),
            "InstallationCompleted" => !ADDED.contains(&member) && member != "provisionRequirements",
            _ => false,
        },
        "InfraEnv" => matches!(member, "clusterRef" | "cpuArchitecture"),
        "AgentClassification" => matches!(member, "labelKey" | "labelValue"),
        _ => false,
    }
}

/// So near to an action of the user a change is the user's: it may be told before the answer to the action or after it.
const NEAR: Duration = Duration::from_secs(2);

/// When the scenario had its user change resources, and those of which cluster, where that is told. A hub without the product's webhooks
/// takes it.
fn changed_by_the_user(timeline: &Timeline<'_>) -> Vec<(Timestamp, Option<String>)> {
    use ActionKind::{ApplyResource, PatchResource, SetVips};
    let by_the_user = |o: &Observation| {
        let What::UserAction { action: UserVerb::Action(kind), subject, status, planned: Some(_), .. } = &o.what else {
            return None;
        };
        let is_change = *status < 400 && matches!(kind, SetVips | PatchResource | ApplyResource);
        is_change.then(|| (o.harness_time, subject.map(|cluster| timeline.cluster_name(cluster))))
    };
    timeline.observations.iter().filter_map(by_the_user).collect()
}

/// Judges [`FROZEN`].
pub(super) fn spec_frozen(timeline: &Timeline<'_>) -> InvariantResult {
    let mut found = Found::default();
    let by_the_user = changed_by_the_user(timeline);
    // Why each installation is not complete, before the change that is looked at.
    let mut completed: HashMap<(&str, &str, &str), &str> = HashMap::new();
    for o in timeline.observations {
        let What::Resource { kind, namespace, name, is, conditions, spec, .. } = &o.what else { continue };
        let key = (kind.as_str(), namespace.as_str(), name.as_str());
        let reason = completed.get(&key).copied().unwrap_or_default();
        found.right(1);
        let is_users = by_the_user.iter().any(|(at, cluster)| {
            let apart = at.since(o.harness_time).max(o.harness_time.since(*at));
            apart <= NEAR && cluster.as_ref().is_none_or(|cluster| cluster == namespace)
        });
        for member in spec.iter().filter(|member| !is_users && is_frozen(kind, member, reason)) {
            found.check(o.seq, false, || {
                let since = if reason.is_empty() { String::new() } else { format!(" after {reason}") };
                format!("{}: spec.{member} was changed{since}", called(key, timeline))
            });
        }
        match conditions.get("Completed") {
            _ if *is == ResourceState::Gone => _ = completed.remove(&key),
            Some(Some(condition)) => _ = completed.insert(key, condition.reason.as_str()),
            _ => {}
        }
    }
    found.result((&FROZEN).into(), || NO_HUB.to_owned())
}
