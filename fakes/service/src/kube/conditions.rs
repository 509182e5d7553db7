//! The conditions of AgentClusterInstalls, Agents and InfraEnvs: which status of a row is which condition. Match them by type, status and
//! reason; the texts are our own.

use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostStatus, LastInstallationPreparation};

use super::object::time;
use super::pass::Problem;

/// A condition as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) kind: &'static str,
    pub(super) is: &'static str,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Condition {
    pub(super) fn new(
        kind: &'static str,
        is: &'static str,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { kind, is, reason: reason.into(), message: message.into() }
    }
}

/// The list of conditions in which these are: what does not change keeps its times. Those that say when they were looked at last
/// (`probed`) have the time of their last change, whatever changed; the others that of their last turn.
pub(super) fn merged(old: &Value, wanted: &[Condition], now: Timestamp, probed: bool) -> Value {
    let mut list: Vec<Value> = old.as_array().cloned().unwrap_or_default();
    for condition in wanted {
        let place = list.iter().position(|c| c["type"] == condition.kind);
        if let Some(same) = place.map(|at| &list[at])
            && same["status"] == condition.is
            && same["reason"] == condition.reason.as_str()
            && same["message"] == condition.message.as_str()
        {
            continue;
        }
        let turned = match place.map(|at| &list[at]) {
            Some(old) if old["status"] == condition.is && !probed => old["lastTransitionTime"].clone(),
            _ => time(now),
        };
        let mut new = json!({
            "type": condition.kind, "status": condition.is, "reason": condition.reason, "message": condition.message,
            "lastTransitionTime": turned,
        });
        if probed {
            new["lastProbeTime"] = time(now);
        }
        match place {
            Some(at) => list[at] = new,
            None => list.push(new),
        }
    }
    Value::Array(list)
}

/// `SpecSynced`: did the service take what the spec says?
pub(super) fn synced(outcome: &Result<(), Problem>, good: &str) -> Condition {
    match outcome {
        Ok(()) => Condition::new("SpecSynced", "True", "SyncOK", good),
        Err(Problem::Input(text)) => Condition::new(
            "SpecSynced",
            "False",
            "InputError",
            format!("The Spec could not be synced due to an input error: {text}"),
        ),
        Err(Problem::Backend(text)) => Condition::new(
            "SpecSynced",
            "False",
            "BackendError",
            format!("The Spec could not be synced due to backend error: {text}"),
        ),
    }
}

/// All of them, when there is no row.
pub(super) fn not_available(kinds: &[&'static str], why: &str) -> Vec<Condition> {
    kinds.iter().map(|kind| Condition::new(kind, "Unknown", "NotAvailable", why)).collect()
}

/// Messages of the validations that fail, and whether there are any validations at all.
fn failures(validations: &Value, pending: bool) -> (Vec<String>, bool) {
    let mut failing = Vec::new();
    let entries = validations.as_object().into_iter().flat_map(|map| map.values());
    for validation in entries.filter_map(Value::as_array).flatten() {
        let status = validation["status"].as_str().unwrap_or_default();
        if matches!(status, "failure" | "error") || (pending && status == "pending") {
            failing.push(validation["message"].as_str().unwrap_or_default().to_owned());
        }
    }
    (failing, validations.as_object().is_some_and(|map| !map.is_empty()))
}

/// What decides about a cluster's conditions beside its status.
#[derive(Clone, Debug)]
pub(super) struct OfCluster<'a> {
    pub(super) info: &'a str,
    /// As the API shows them; null when there are none.
    pub(super) validations: &'a Value,
    pub(super) held: bool,
    /// At `ready`: why it is not installed all the same, as reason and text.
    pub(super) waits: Option<(&'static str, String)>,
    /// What became of the last preparation.
    pub(super) preparation: Option<&'a LastInstallationPreparation>,
}

/// Types of an AgentClusterInstall's conditions that need a row.
pub(super) const OF_CLUSTERS: &[&str] = &["Validated", "RequirementsMet", "Completed", "Failed", "Stopped"];

/// The conditions of an AgentClusterInstall.
pub(super) fn of_cluster(status: ClusterStatus, of: &OfCluster<'_>) -> Vec<Condition> {
    let mut all = vec![
        validated_cluster(status, of),
        requirements_of_cluster(status, of),
        completed(status, of),
        failed(status, of),
        stopped(status),
    ];
    all.extend(preparation(of));
    all
}

fn validated_cluster(status: ClusterStatus, of: &OfCluster<'_>) -> Condition {
    use ClusterStatus::{AddingHosts, Insufficient, PendingForInput};
    let (failing, any) = failures(of.validations, status == PendingForInput);
    let (is, reason, message) = match status {
        Insufficient => ("False", "ValidationsFailing", text("The cluster's validations are failing: ", &failing)),
        PendingForInput => {
            ("False", "ValidationsUserPending", text("The cluster's validations are pending for user: ", &failing))
        }
        // Those of a cluster that takes more hosts are calculated no more.
        _ if !any && status != AddingHosts => {
            ("Unknown", "ValidationsUnknown", "The cluster's validations have not yet been calculated".into())
        }
        _ => ("True", "ValidationsPassing", "The cluster's validations are passing".into()),
    };
    Condition::new("Validated", is, reason, message)
}

fn text(prefix: &str, messages: &[String]) -> String {
    format!("{prefix}{}", messages.join(","))
}

fn requirements_of_cluster(status: ClusterStatus, of: &OfCluster<'_>) -> Condition {
    use ClusterStatus::*;
    let (is, reason, message): (_, _, String) = match status {
        Ready => match &of.waits {
            Some((reason, why)) => ("False", *reason, why.clone()),
            None => ("True", "ClusterIsReady", "The cluster is ready to begin the installation".into()),
        },
        Insufficient | PendingForInput => {
            ("False", "ClusterNotReady", "The cluster is not ready to begin the installation".into())
        }
        PreparingForInstallation | Installing | InstallingPendingUserAction | Finalizing | AddingHosts => {
            ("True", "ClusterAlreadyInstalling", "The cluster requirements are met".into())
        }
        Installed | Error => ("True", "ClusterInstallationStopped", "The cluster installation stopped".into()),
        _ => ("Unknown", "UnknownStatus", format!("The installation status is currently not recognized: {status}")),
    };
    Condition::new("RequirementsMet", is, reason, message)
}

fn completed(status: ClusterStatus, of: &OfCluster<'_>) -> Condition {
    use ClusterStatus::*;
    let told = |prefix: &str| format!("{prefix}{}", of.info);
    let (is, reason, message) = match status {
        Ready if of.held => {
            ("False", "InstallationOnHold", "The installation is on hold; lift the hold to begin it".to_owned())
        }
        Insufficient | PendingForInput | Ready => {
            ("False", "InstallationNotStarted", "The installation has not yet started".to_owned())
        }
        PreparingForInstallation | Installing | InstallingPendingUserAction | Finalizing => {
            ("False", "InstallationInProgress", told("The installation is in progress: "))
        }
        Error => ("False", "InstallationFailed", told("The installation has failed: ")),
        Installed | AddingHosts => ("True", "InstallationCompleted", told("The installation has completed: ")),
        _ => ("Unknown", "UnknownStatus", format!("The installation status is currently not recognized: {status}")),
    };
    Condition::new("Completed", is, reason, message)
}

fn failed(status: ClusterStatus, of: &OfCluster<'_>) -> Condition {
    if status == ClusterStatus::Error {
        return Condition::new("Failed", "True", "InstallationFailed", format!("The installation failed: {}", of.info));
    }
    Condition::new("Failed", "False", "InstallationNotFailed", "The installation has not failed")
}

fn stopped(status: ClusterStatus) -> Condition {
    let (is, reason, message) = match status {
        ClusterStatus::Error => ("True", "InstallationFailed", "The installation has stopped due to error"),
        ClusterStatus::Cancelled => ("True", "InstallationCancelled", "The installation has stopped, cancelled"),
        ClusterStatus::Installed | ClusterStatus::AddingHosts => {
            ("True", "InstallationCompleted", "The installation has stopped because it completed successfully")
        }
        _ => ("False", "InstallationNotStopped", "The installation is waiting to start or in progress"),
    };
    Condition::new("Stopped", is, reason, message)
}

/// Its reasons are phrases with spaces: so the real service has them. While a preparation is begun anew it stays as it is.
fn preparation(of: &OfCluster<'_>) -> Option<Condition> {
    let last = of.preparation?;
    let (is, reason, message) = match last.status.as_deref().unwrap_or_default() {
        "" => ("False", "Cluster preparation has never been performed for this cluster", ""),
        "success" => ("False", "There is no failing prior preparation attempt", ""),
        "failed" => ("True", "The last installation preparation failed", last.reason.as_deref().unwrap_or_default()),
        _ => return None,
    };
    Some(Condition::new("LastInstallationPreparationFailed", is, reason, message))
}

/// Types of an Agent's conditions that need a row.
pub(super) const OF_HOSTS: &[&str] = &["Connected", "RequirementsMet", "Validated", "Installed", "Bound"];

/// The conditions of an Agent.
pub(super) fn of_host(status: HostStatus, info: &str, validations: &Value, approved: bool) -> Vec<Condition> {
    vec![
        connected(status),
        requirements_of_host(status, approved),
        validated_host(status, validations),
        installed(status, info),
        bound(status),
    ]
}

fn connected(status: HostStatus) -> Condition {
    if matches!(status, HostStatus::Disconnected | HostStatus::DisconnectedUnbound) {
        return Condition::new("Connected", "False", "AgentIsDisconnected", "The agent has not contacted the service");
    }
    Condition::new("Connected", "True", "AgentIsConnected", "The agent's connection to the service is unimpaired")
}

fn requirements_of_host(status: HostStatus, approved: bool) -> Condition {
    use HostStatus::*;
    let (is, reason, message): (_, _, String) = match status {
        Known | KnownUnbound if approved => {
            ("True", "AgentIsReady", "The agent is ready to begin the installation".into())
        }
        Known | KnownUnbound => ("False", "AgentIsNotApproved", "The agent is not approved".into()),
        Discovering | Insufficient | Disconnected | PendingForInput | DiscoveringUnbound | InsufficientUnbound
        | DisconnectedUnbound => ("False", "AgentNotReady", "The agent is not ready to begin the installation".into()),
        PreparingForInstallation
        | PreparingSuccessful
        | Installing
        | InstallingInProgress
        | InstallingPendingUserAction => {
            ("True", "AgentAlreadyInstalling", "Installation already started and is in progress".into())
        }
        Installed | Error | AddedToExistingCluster => {
            ("True", "AgentInstallationStopped", "The agent installation stopped".into())
        }
        Binding => ("False", "Binding", "The agent is currently binding to a cluster".into()),
        Unbinding | UnbindingPendingUserAction => {
            ("False", "Unbinding", "The agent is currently unbinding from a cluster".into())
        }
        _ => ("Unknown", "UnknownStatus", format!("The installation status is currently not recognized: {status}")),
    };
    Condition::new("RequirementsMet", is, reason, message)
}

fn validated_host(status: HostStatus, validations: &Value) -> Condition {
    use HostStatus::*;
    let (failing, any) = failures(validations, status == PendingForInput);
    let (is, reason, message) = match status {
        Binding => ("False", "Binding", "The agent is currently binding to a cluster".to_owned()),
        Unbinding | UnbindingPendingUserAction => {
            ("False", "Unbinding", "The agent is currently unbinding from a cluster".to_owned())
        }
        Insufficient | InsufficientUnbound => {
            ("False", "ValidationsFailing", text("The agent's validations are failing: ", &failing))
        }
        PendingForInput => {
            ("False", "ValidationsUserPending", text("The agent's validations are pending for user: ", &failing))
        }
        _ if !any => {
            ("Unknown", "ValidationsUnknown", "The agent's validations have not yet been calculated".to_owned())
        }
        _ => ("True", "ValidationsPassing", "The agent's validations are passing".to_owned()),
    };
    Condition::new("Validated", is, reason, message)
}

fn installed(status: HostStatus, info: &str) -> Condition {
    use HostStatus::*;
    let (is, reason, message) = match status {
        Installed | AddedToExistingCluster => {
            ("True", "InstallationCompleted", format!("The installation has completed: {info}"))
        }
        Error => ("False", "InstallationFailed", format!("The installation has failed: {info}")),
        PreparingForInstallation
        | PreparingSuccessful
        | Installing
        | InstallingInProgress
        | InstallingPendingUserAction => {
            ("False", "InstallationInProgress", format!("The installation is in progress: {info}"))
        }
        Binding => ("False", "Binding", "The agent is currently binding to a cluster".to_owned()),
        Unbinding | UnbindingPendingUserAction => {
            ("False", "Unbinding", "The agent is currently unbinding from a cluster".to_owned())
        }
        Discovering | Known | Insufficient | Disconnected | PendingForInput | DiscoveringUnbound | KnownUnbound
        | InsufficientUnbound | DisconnectedUnbound => {
            ("False", "InstallationNotStarted", "The installation has not yet started".to_owned())
        }
        _ => ("Unknown", "UnknownStatus", format!("The installation status is currently not recognized: {status}")),
    };
    Condition::new("Installed", is, reason, message)
}

fn bound(status: HostStatus) -> Condition {
    use HostStatus::*;
    let (is, reason, message) = match status {
        Binding => ("False", "Binding", "The agent is currently binding to a cluster"),
        Unbinding => ("False", "Unbinding", "The agent is currently unbinding from a cluster"),
        UnbindingPendingUserAction => {
            ("False", "UnbindingPendingUserAction", "The agent must be booted from its discovery image to be unbound")
        }
        DiscoveringUnbound | KnownUnbound | InsufficientUnbound | DisconnectedUnbound | DisabledUnbound => {
            ("False", "Unbound", "The agent is not bound to any cluster deployment")
        }
        _ => ("True", "Bound", "The agent is bound to a cluster deployment"),
    };
    Condition::new("Bound", is, reason, message)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(ClusterStatus::Insufficient, "ClusterNotReady", "InstallationNotStarted", "InstallationNotStopped")]
    #[case(ClusterStatus::Ready, "ClusterIsReady", "InstallationNotStarted", "InstallationNotStopped")]
    #[case(ClusterStatus::Installing, "ClusterAlreadyInstalling", "InstallationInProgress", "InstallationNotStopped")]
    #[case(ClusterStatus::Error, "ClusterInstallationStopped", "InstallationFailed", "InstallationFailed")]
    #[case(ClusterStatus::Installed, "ClusterInstallationStopped", "InstallationCompleted", "InstallationCompleted")]
    #[case(ClusterStatus::AddingHosts, "ClusterAlreadyInstalling", "InstallationCompleted", "InstallationCompleted")]
    #[case(ClusterStatus::Cancelled, "UnknownStatus", "UnknownStatus", "InstallationCancelled")]
    fn a_cluster_s_status_is_these_conditions(
        #[case] status: ClusterStatus,
        #[case] requirements: &str,
        #[case] completed: &str,
        #[case] stopped: &str,
    ) {
        let of = OfCluster { info: "", validations: &Value::Null, held: false, waits: None, preparation: None };
        let all = of_cluster(status, &of);
        let reason = |kind: &str| all.iter().find(|c| c.kind == kind).map(|c| c.reason.clone()).unwrap_or_default();
        assert_eq!(
            (reason("RequirementsMet").as_str(), reason("Completed").as_str(), reason("Stopped").as_str()),
            (requirements, completed, stopped)
        );
    }

    /// Nobody calculates the validations of a cluster that takes more hosts.
    #[rstest]
    #[case(ClusterStatus::AddingHosts, "ValidationsPassing")]
    #[case(ClusterStatus::Ready, "ValidationsUnknown")]
    #[case(ClusterStatus::Insufficient, "ValidationsFailing")]
    fn without_validations_a_cluster_is(#[case] status: ClusterStatus, #[case] reason: &str) {
        let of = OfCluster { info: "", validations: &Value::Null, held: false, waits: None, preparation: None };
        assert_eq!(validated_cluster(status, &of).reason, reason);
    }

    #[rstest]
    #[case(HostStatus::Known, "AgentIsNotApproved", "InstallationNotStarted", "Bound")]
    #[case(HostStatus::KnownUnbound, "AgentIsNotApproved", "InstallationNotStarted", "Unbound")]
    #[case(HostStatus::Reclaiming, "UnknownStatus", "UnknownStatus", "Bound")]
    #[case(HostStatus::AddedToExistingCluster, "AgentInstallationStopped", "InstallationCompleted", "Bound")]
    fn a_host_s_status_is_these_conditions(
        #[case] status: HostStatus,
        #[case] requirements: &str,
        #[case] installed: &str,
        #[case] bound: &str,
    ) {
        let all = of_host(status, "", &Value::Null, false);
        let reason = |kind: &str| all.iter().find(|c| c.kind == kind).map(|c| c.reason.clone()).unwrap_or_default();
        assert_eq!(
            (reason("RequirementsMet").as_str(), reason("Installed").as_str(), reason("Bound").as_str()),
            (requirements, installed, bound)
        );
    }

    #[test]
    fn times_stay_where_nothing_changes() {
        let at = |s: i64| Timestamp::from_secs(1000 + s);
        let first = merged(&Value::Null, &[Condition::new("A", "True", "R", "m")], at(0), true);
        assert_eq!(merged(&first, &[Condition::new("A", "True", "R", "m")], at(5), true), first);
        let other = merged(&first, &[Condition::new("A", "True", "R", "n")], at(5), false);
        assert_eq!(other[0]["lastTransitionTime"], first[0]["lastTransitionTime"]);
        let turned = merged(&other, &[Condition::new("A", "False", "R", "n")], at(9), false);
        assert_ne!(turned[0]["lastTransitionTime"], first[0]["lastTransitionTime"]);
        // Those of an AgentClusterInstall move with their words, too.
        let other = merged(&first, &[Condition::new("A", "True", "R", "n")], at(5), true);
        assert_ne!(other[0]["lastTransitionTime"], first[0]["lastTransitionTime"]);
        assert_ne!(other[0]["lastProbeTime"], first[0]["lastProbeTime"]);
    }
}
