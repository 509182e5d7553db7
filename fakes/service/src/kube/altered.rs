//! What can be wrong with the controllers on purpose ([`crate::alteration`]), made from the tables that they act by: the members of
//! their kinds, their conditions, finalizers and commands, and whose change wakes whom.
//!
//! It takes hold where a pass reads ([`WrongController::seen`]) and where it writes, so that what is wrong is wrong for good: a pass that
//! does not see a member does not see that it is missing either, and does not write again and again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use vlab_api::http::{Method, Request};

use super::client::{Client, Kind};
use super::conditions::{OF_CLUSTERS, OF_HOSTS};
use super::definitions::members;
use super::object::key_of;
use super::{Command, Who, preprovisioning};

/// One thing that is wrong with the controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongController {
    /// A condition of a kind.
    Condition(Kind, &'static str, WrongCondition),
    /// A member of a kind's status.
    Status(Kind, &'static str, WrongMember),
    /// A member of a kind's spec, as the controllers read it.
    Spec(Kind, &'static str, WrongMember),
    /// The finalizer of a kind.
    Finalizer(Kind, WrongFinalizer),
    /// A command is not given, and taken for given.
    NotGiven(Command),
    /// A change of a resource of that kind wakes that pass no more.
    NotWoken(Kind, Who),
    /// A label or annotation that the controllers write is not written.
    NotMarked(Kind, &'static str),
    /// One of the demands on a request for a certificate is not made.
    NotDemanded(Demand),
    /// What is made or removed beside.
    Beside(Beside),
}

/// What is wrong with a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongCondition {
    /// It is not there.
    Missing,
    /// It stays as it was first.
    First,
    /// It is true where it is false, and the other way round.
    Inverted,
    /// It has another reason.
    OtherReason,
    /// It has no message.
    NoMessage,
    /// Its time does not move when it turns.
    TimeStands,
}

/// What is wrong with a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongMember {
    /// It is not there.
    Missing,
    /// It stays as it was first.
    First,
}

/// What is wrong with a finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongFinalizer {
    /// It is not set.
    NotSet,
    /// It is not taken away.
    Stays,
}

/// A demand on a request for a certificate of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// It is about the node of that name.
    Name,
    /// It is for that use and no other.
    Usages,
    /// Who asks.
    User,
    /// In which groups he is.
    Groups,
    /// The organization that is asked for.
    Organization,
    /// The names and addresses that are asked for.
    Names,
}

/// What the controllers make or remove beside their own kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// The Secret with the kubeconfig is not made.
    NoKubeconfig,
    /// It stays as it was first: without the ingress certificate.
    KubeconfigStays,
    /// The Secret with the password is not made.
    NoPassword,
    /// Secrets have no owner.
    NoOwner,
    /// The AgentClusterInstall is not told where they are.
    NoMetadata,
    /// Manifests that nobody names any more stay.
    ManifestsStay,
    /// An installation is begun although it is held.
    HoldNotSeen,
    /// An installation is begun without the approval of its hosts.
    ApprovalNotAsked,
    /// An installation is begun with other hosts than are asked for.
    CountsNotAsked,
    /// Agents that came with a cluster stay when it is deleted.
    AgentsStay,
    /// What failed is not tried again.
    NotAgain,
    /// What is waited for is not looked at again.
    NotLater,
    /// The node of a host that leaves stays in its cluster.
    NodeStays,
    /// Labels are not put on nodes.
    NodeLabelsMissing,
    /// The pool of workers is not paused.
    PoolRuns,
    /// A new image is given to a host under its feet.
    ImageUnderFeet,
    /// metal3 is not kept away from a host that is installed.
    NotDetached,
    /// A host that was lost is not made again.
    NotRestored,
    /// A condition tells the pull secret.
    SecretTold,
    /// A status is written each time that it is looked at, although nothing in it has changed.
    WrittenAgain,
    /// The specs of installations that are under way are written.
    SpecWritten,
}

const FINALIZERS: &[Kind] = &[
    Kind::ClusterDeployment,
    Kind::AgentClusterInstall,
    Kind::InfraEnv,
    Kind::Agent,
    Kind::AgentClassification,
    Kind::BareMetalHost,
    Kind::PreprovisioningImage,
];

/// Whose change wakes whom. Others' controllers, which are played, are not in it.
const WAKES: &[(Kind, Who)] = &[
    (Kind::ClusterDeployment, Who::Cluster),
    (Kind::ClusterDeployment, Who::InfraEnv),
    (Kind::AgentClusterInstall, Who::Cluster),
    (Kind::InfraEnv, Who::InfraEnv),
    (Kind::InfraEnv, Who::Bmh),
    (Kind::NMStateConfig, Who::InfraEnv),
    (Kind::Agent, Who::Agent),
    (Kind::Agent, Who::Bmh),
    (Kind::Agent, Who::Classification),
    (Kind::Agent, Who::Cluster),
    (Kind::Secret, Who::Cluster),
    (Kind::Secret, Who::InfraEnv),
    (Kind::Secret, Who::Agent),
    (Kind::Secret, Who::ServiceConfig),
    (Kind::ConfigMap, Who::Cluster),
    (Kind::ConfigMap, Who::InfraEnv),
    (Kind::ConfigMap, Who::ServiceConfig),
    (Kind::ClusterImageSet, Who::Cluster),
    (Kind::BareMetalHost, Who::Bmh),
    (Kind::BareMetalHost, Who::Image),
    (Kind::InfraEnv, Who::Image),
    (Kind::PreprovisioningImage, Who::Image),
    (Kind::PreprovisioningImage, Who::Bmh),
    (Kind::AgentClassification, Who::Classification),
    (Kind::AgentServiceConfig, Who::ServiceConfig),
];

/// Labels and annotations that the controllers write.
const MARKS: &[(Kind, &str)] = &[
    (Kind::Agent, "infraenvs.agent-install.openshift.io"),
    (Kind::Agent, "agent-install.openshift.io/bmh"),
    (Kind::Agent, "agent-install.openshift.io/clusterdeployment-namespace"),
    (Kind::Agent, "agent.agent-install.openshift.io/state"),
    (Kind::Agent, "agent.agent-install.openshift.io/inventory"),
    (Kind::Agent, "agent.agent-install.openshift.io/validations-info"),
    (Kind::Agent, "agent.agent-install.openshift.io/role"),
    (Kind::Agent, "agent.agent-install.openshift.io/current-stage"),
    (Kind::Agent, "inventory.agent-install.openshift.io/storage-hasnonrotationaldisk"),
    (Kind::Agent, "inventory.agent-install.openshift.io/cpu-architecture"),
    (Kind::Agent, "inventory.agent-install.openshift.io/cpu-virtenabled"),
    (Kind::Agent, "inventory.agent-install.openshift.io/host-manufacturer"),
    (Kind::Agent, "inventory.agent-install.openshift.io/host-productname"),
    (Kind::Agent, "inventory.agent-install.openshift.io/host-isvirtual"),
    (Kind::Agent, "inventory.agent-install.openshift.io/version"),
    (Kind::BareMetalHost, "inspect.metal3.io"),
    (Kind::BareMetalHost, "inspect.metal3.io/hardwaredetails"),
    (Kind::BareMetalHost, "baremetalhost.metal3.io/detached"),
    (Kind::BareMetalHost, "baremetalhost.metal3.io/paused"),
    (Kind::BareMetalHost, "baremetalhost.metal3.io/status"),
    (Kind::BareMetalHost, "cluster.open-cluster-management.io/backup"),
    (Kind::BareMetalHost, "reboot.metal3.io"),
    (Kind::BareMetalHost, "bmac.agent-install.openshift.io/drain-status"),
    (Kind::BareMetalHost, "bmac.agent-install.openshift.io/drain-started-at"),
    (Kind::PreprovisioningImage, "velero.io/exclude-from-backup"),
    (Kind::InfraEnv, "infraenv.agent-install.openshift.io/enable-ironic-agent"),
    (Kind::Secret, "agent-install.openshift.io/watch"),
    (Kind::Secret, "cluster.open-cluster-management.io/backup"),
    (Kind::Secret, "hive.openshift.io/cluster-deployment-name"),
    (Kind::Secret, "hive.openshift.io/secret-type"),
    (Kind::ConfigMap, "agent-install.openshift.io/watch"),
    (Kind::ConfigMap, "cluster.open-cluster-management.io/backup"),
];

/// Kinds whose spec the controllers read; that of a ClusterImageSet is its image.
const READ: &[Kind] = &[
    Kind::ClusterImageSet,
    Kind::ClusterDeployment,
    Kind::AgentClusterInstall,
    Kind::InfraEnv,
    Kind::NMStateConfig,
    Kind::Agent,
    Kind::AgentClassification,
    Kind::BareMetalHost,
    Kind::PreprovisioningImage,
];

/// Kinds whose status the controllers write.
const WRITTEN: &[Kind] =
    &[Kind::AgentClusterInstall, Kind::InfraEnv, Kind::Agent, Kind::AgentClassification, Kind::PreprovisioningImage];

/// Members that the controllers neither read nor write: they are others' affair, or stay as the definition makes them.
const NOT_OURS: &[(Kind, &[&str])] = &[
    (
        Kind::ClusterDeployment,
        &[
            "spec.platform",
            "spec.clusterInstallRef.version",
            "spec.manageDNS",
            "spec.controlPlaneConfig",
            "spec.ingress",
            "spec.provisioning",
            "spec.installAttemptsLimit",
            "spec.clusterMetadata.clusterID",
            "spec.clusterMetadata.infraID",
            "spec.clusterMetadata.platform",
            "spec.clusterMetadata.adminPasswordSecretRef.name",
        ],
    ),
    (
        Kind::AgentClusterInstall,
        &[
            "spec.external.platformName",
            "spec.external.cloudControllerManager",
            "spec.controlPlane.name",
            "spec.arbiter.name",
            "spec.clusterDeploymentRef.name",
            "spec.clusterMetadata.infraID",
            "spec.clusterMetadata.adminKubeconfigSecretRef.name",
            "spec.clusterMetadata.adminPasswordSecretRef.name",
        ],
    ),
    (Kind::PreprovisioningImage, &["spec.networkDataName", "status.networkData.name", "status.networkData.version"]),
    (
        Kind::BareMetalHost,
        &[
            "spec.online",
            "spec.bootMode",
            "spec.image.format",
            "spec.image.checksum",
            "spec.preprovisioningNetworkDataName",
            "spec.hardwareProfile",
            "spec.consumerRef",
        ],
    ),
];

/// Members of statuses that never change once they are there: what they were first they are.
const CONSTANT: &[(Kind, &[&str])] = &[
    (Kind::AgentClusterInstall, &["status.debugInfo.eventsURL", "status.debugInfo.logsURL"]),
    (
        Kind::InfraEnv,
        &[
            "status.agentLabelSelector.matchLabels",
            "status.bootArtifacts.discoveryIgnitionURL",
            "status.debugInfo.eventsURL",
            "status.debugInfo.staticNetworkDownloadURL",
        ],
    ),
    (Kind::Agent, &["status.kind", "status.debugInfo.eventsURL", "status.debugInfo.logsURL"]),
];

fn is_in(table: &[(Kind, &[&str])], kind: Kind, path: &str) -> bool {
    table.iter().any(|(of, paths)| *of == kind && paths.contains(&path))
}

fn conditions() -> impl Iterator<Item = (Kind, &'static str)> {
    let of = |kind: Kind, types: &'static [&'static str]| types.iter().map(move |of| (kind, *of));
    of(Kind::AgentClusterInstall, OF_CLUSTERS)
        .chain(of(Kind::AgentClusterInstall, &["SpecSynced", "LastInstallationPreparationFailed"]))
        .chain(of(Kind::Agent, OF_HOSTS))
        .chain(of(Kind::Agent, &["SpecSynced", "Cleanup"]))
        .chain(of(Kind::InfraEnv, &["ImageCreated"]))
        .chain(of(Kind::AgentClassification, &["QueryErrors"]))
        .chain(of(Kind::PreprovisioningImage, preprovisioning::CONDITIONS))
}

/// Everything that can be wrong with the controllers, in the order of the tables.
pub fn wrong_controllers() -> Vec<WrongController> {
    use WrongController::{Condition, Finalizer, NotWoken, Spec, Status};
    let mut all = Vec::new();
    for (kind, of) in conditions() {
        use WrongCondition::{First, Inverted, Missing, NoMessage, OtherReason, TimeStands};
        all.extend([Missing, First, Inverted, OtherReason, NoMessage, TimeStands].map(|how| Condition(kind, of, how)));
    }
    let both = [WrongMember::Missing, WrongMember::First];
    let ours = |kind: Kind, path: &&str| !is_in(NOT_OURS, kind, path);
    for kind in WRITTEN {
        let paths = members(kind.name(), "status").into_iter().filter(|path| ours(*kind, path));
        let each = paths.flat_map(|path| both.map(|how| (path, how)));
        let moves = |(path, how): &(&str, WrongMember)| *how == WrongMember::Missing || !is_in(CONSTANT, *kind, path);
        all.extend(each.filter(moves).map(|(path, how)| Status(*kind, path, how)));
    }
    for kind in READ {
        let paths = members(kind.name(), "spec").into_iter().filter(|path| ours(*kind, path));
        all.extend(paths.flat_map(|path| both.map(|how| Spec(*kind, path, how))));
    }
    let both = [WrongFinalizer::NotSet, WrongFinalizer::Stays];
    all.extend(FINALIZERS.iter().flat_map(|kind| both.map(|how| Finalizer(*kind, how))));
    all.extend(Command::ALL.map(WrongController::NotGiven));
    all.extend(WAKES.iter().map(|(kind, who)| NotWoken(*kind, *who)));
    all.extend(MARKS.iter().map(|(kind, name)| WrongController::NotMarked(*kind, name)));
    all.extend(Demand::ALL.map(WrongController::NotDemanded));
    all.extend(Beside::ALL.map(WrongController::Beside));
    all
}

impl Demand {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Name, Self::Usages, Self::User, Self::Groups, Self::Organization, Self::Names];
}

impl Beside {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::NoKubeconfig,
        Self::KubeconfigStays,
        Self::NoPassword,
        Self::NoOwner,
        Self::NoMetadata,
        Self::ManifestsStay,
        Self::HoldNotSeen,
        Self::ApprovalNotAsked,
        Self::CountsNotAsked,
        Self::AgentsStay,
        Self::NotAgain,
        Self::NotLater,
        Self::NodeStays,
        Self::NodeLabelsMissing,
        Self::PoolRuns,
        Self::ImageUnderFeet,
        Self::NotDetached,
        Self::NotRestored,
        Self::SecretTold,
        Self::WrittenAgain,
        Self::SpecWritten,
    ];
}

/// What resources were like when they were seen first, by uid, and what was written of their marks.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<BTreeMap<String, Value>>);

impl Memory {
    /// What it was first; that is remembered.
    fn first(&self, of: &str, now: &Value) -> Value {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(of.to_owned()).or_insert_with(|| now.clone()).clone()
    }

    fn get(&self, of: &str) -> Option<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(of).cloned()
    }

    fn put(&self, of: &str, value: Value) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(of.to_owned(), value);
    }
}

/// Puts a member where the path leads; null takes it away. Where the object around it is not there, nothing is.
fn set(object: &mut Value, path: &str, value: Value) {
    let (outer, name) = path.rsplit_once('.').unwrap_or(("", path));
    let mut parts = outer.split('.').filter(|part| !part.is_empty());
    let Some(around) = parts.try_fold(object, |at, part| at.get_mut(part)) else { return };
    if let Some(map) = around.as_object_mut() {
        if value.is_null() {
            map.remove(name);
        } else {
            map.insert(name.to_owned(), value);
        }
    }
}

fn value_at(object: &Value, path: &str) -> Value {
    path.split('.').fold(object, |at, part| &at[part]).clone()
}

fn of_object(object: &Value) -> String {
    object["metadata"]["uid"].as_str().map_or_else(|| key_of(object), str::to_owned)
}

fn mark_of(object: &Value, name: &str) -> Option<(&'static str, Value)> {
    ["labels", "annotations"].into_iter().find_map(|list| {
        let value = object["metadata"][list].get(name)?;
        Some((list, value.clone()))
    })
}

impl WrongController {
    /// A resource as a pass sees it.
    pub(super) fn seen(&self, kind: Kind, object: &Arc<Value>, memory: &Memory) -> Arc<Value> {
        match self {
            Self::Spec(of, path, how) if *of == kind => {
                let is = value_at(object, path);
                let value = match how {
                    WrongMember::Missing => Value::Null,
                    WrongMember::First => memory.first(&of_object(object), &is),
                };
                if value == is {
                    return object.clone();
                }
                let mut seen = (**object).clone();
                set(&mut seen, path, value);
                Arc::new(seen)
            }
            Self::NotMarked(of, name) if *of == kind => {
                let Some(mark) = memory.get(&of_object(object)) else { return object.clone() };
                let mut seen = (**object).clone();
                if let Some(list) = mark["list"].as_str() {
                    seen["metadata"][list][*name] = mark["value"].clone();
                }
                Arc::new(seen)
            }
            _ => object.clone(),
        }
    }

    /// A write as it is sent: with what is not seen as it is, and without the mark that is not written.
    pub(super) fn sent(&self, request: Request, client: &Client, memory: &Memory) -> Request {
        let whole = request.body.as_object::<Value>().cloned();
        let patch = || serde_json::from_slice::<Value>(&request.body).ok();
        match self {
            Self::Spec(kind, path, _) if request.method == Method::Put => {
                let Some(mut object) = whole.filter(|object| Kind::of_object(object) == Some(*kind)) else {
                    return request;
                };
                let Some(is) = client.get(*kind, &key_of(&object)) else { return request };
                set(&mut object, path, value_at(is, path));
                request.object(object)
            }
            Self::NotMarked(kind, name) => {
                let Some(key) = kind.key_in(&request.path) else { return request };
                let is = client.get(*kind, &key).cloned();
                let Some(mut body) = whole.clone().or_else(patch) else { return request };
                let Some((list, value)) = mark_of(&body, name) else { return request };
                if let Some(is) = &is {
                    memory.put(&of_object(is), json!({ "list": list, "value": value }));
                }
                // A resource that is put is put with the mark that it has.
                let old =
                    is.filter(|_| request.method == Method::Put).and_then(|is| is["metadata"][list].get(name).cloned());
                if let Some(marks) = body["metadata"][list].as_object_mut() {
                    match old {
                        Some(old) => _ = marks.insert((*name).to_owned(), old),
                        None => _ = marks.remove(*name),
                    }
                }
                if whole.is_some() {
                    return request.object(body);
                }
                let mut request = request;
                request.body = body.to_string().into_bytes().into();
                request
            }
            _ => request,
        }
    }

    /// A status as it is written.
    pub(super) fn status(&self, kind: Kind, object: &Value, mut status: Value, memory: &Memory) -> Value {
        match self {
            Self::Status(of, path, how) if *of == kind => {
                let path = path.strip_prefix("status.").unwrap_or(path);
                let value = match (how, value_at(&status, path)) {
                    (WrongMember::Missing, _) => Value::Null,
                    (WrongMember::First, Value::Null) => return status,
                    (WrongMember::First, is) => memory.first(&of_object(object), &is),
                };
                set(&mut status, path, value);
            }
            Self::Condition(of, name, how) if *of == kind => {
                let old = object["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == *name);
                let Some(list) = status["conditions"].as_array_mut() else { return status };
                if *how == WrongCondition::Missing {
                    list.retain(|c| c["type"] != *name);
                }
                let Some(now) = list.iter_mut().find(|c| c["type"] == *name) else { return status };
                match how {
                    WrongCondition::Missing => {}
                    WrongCondition::First => *now = memory.first(&of_object(object), now),
                    WrongCondition::Inverted => match now["status"].as_str() {
                        Some("True") => now["status"] = json!("False"),
                        Some("False") => now["status"] = json!("True"),
                        _ => {}
                    },
                    WrongCondition::OtherReason => now["reason"] = json!("Other"),
                    WrongCondition::NoMessage => now["message"] = json!(""),
                    WrongCondition::TimeStands => {
                        if let Some(old) = old {
                            now["lastTransitionTime"] = old["lastTransitionTime"].clone();
                        }
                    }
                }
            }
            _ => {}
        }
        status
    }

    /// Its name: stable as long as the row is in its table.
    pub fn name(&self) -> String {
        let short = |path: &'static str| path.split_once('.').map_or(path, |(_, rest)| rest);
        match self {
            Self::Condition(kind, of, how) => format!("condition/{}-{of}/{}", kind.name(), word(how)),
            Self::Status(kind, path, how) => format!("status/{}.{}/{}", kind.name(), short(path), word(how)),
            Self::Spec(kind, path, how) => format!("spec/{}.{}/{}", kind.name(), short(path), word(how)),
            Self::Finalizer(kind, how) => format!("finalizer/{}/{}", kind.name(), word(how)),
            Self::NotGiven(command) => format!("command/{}/not-given", word(command)),
            Self::NotWoken(kind, who) => format!("wake/{}-{}/not-woken", kind.name(), word(who)),
            Self::NotMarked(kind, name) => format!("mark/{}:{}/missing", kind.name(), name.replace('/', ":")),
            Self::NotDemanded(demand) => format!("request/{}/not-demanded", word(demand)),
            Self::Beside(beside) => format!("controllers/{}", word(beside)),
        }
    }

    /// What is wrong, in a few words.
    pub fn about(&self) -> String {
        match self {
            Self::Condition(kind, of, how) => format!("{of} of {}: {}", kind.name(), word(how)),
            Self::Status(kind, path, WrongMember::Missing) => format!("{path} of {} is not written", kind.name()),
            Self::Status(kind, path, WrongMember::First) => format!("{path} of {} is written once", kind.name()),
            Self::Spec(kind, path, WrongMember::Missing) => format!("{path} of {} is not read", kind.name()),
            Self::Spec(kind, path, WrongMember::First) => format!("{path} of {} is read once", kind.name()),
            Self::Finalizer(kind, WrongFinalizer::NotSet) => format!("{} gets no finalizer", kind.name()),
            Self::Finalizer(kind, WrongFinalizer::Stays) => format!("the finalizer of {} stays", kind.name()),
            Self::NotGiven(command) => format!("{} is not given, and taken for given", word(command)),
            Self::NotWoken(kind, who) => format!("a change of {} does not wake the pass of {}", kind.name(), word(who)),
            Self::NotMarked(kind, name) => format!("{name} is not put on {}", kind.name()),
            Self::NotDemanded(demand) => {
                format!("requests for certificates are approved whatever their {}", word(demand))
            }
            Self::Beside(beside) => word(beside).replace('-', " "),
        }
    }
}

/// `OtherReason` as `other-reason`.
fn word(of: &impl std::fmt::Debug) -> String {
    crate::alteration::word_of(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_one_alteration_each() {
        let all = wrong_controllers();
        let names: std::collections::BTreeSet<String> = all.iter().map(WrongController::name).collect();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn a_member_that_is_not_seen_is_written_as_it_is() {
        let memory = Memory::default();
        let object = |vip: &str| {
            Arc::new(json!({ "kind": "AgentClusterInstall", "metadata": { "uid": "u", "name": "n", "namespace": "s" },
                             "spec": { "apiVIP": vip, "networking": { "networkType": "x" } } }))
        };
        let wrong = |path, how| WrongController::Spec(Kind::AgentClusterInstall, path, how);
        let seen = |wrong: WrongController, object| wrong.seen(Kind::AgentClusterInstall, &object, &memory);
        let missing = wrong("spec.networking.networkType", WrongMember::Missing);
        assert_eq!(seen(missing, object("a"))["spec"], json!({ "apiVIP": "a", "networking": {} }));
        let first = wrong("spec.apiVIP", WrongMember::First);
        assert_eq!(seen(first, object("a"))["spec"]["apiVIP"], "a");
        assert_eq!(seen(first, object("b"))["spec"]["apiVIP"], "a", "changes are not seen");
        let list = wrong("spec.apiVIPs", WrongMember::Missing);
        assert_eq!(seen(list, object("a")), object("a"), "what is not there is not missed");
    }

    #[test]
    fn a_status_is_bent_in_one_place() {
        let memory = Memory::default();
        let object = json!({ "metadata": { "uid": "u" }, "status": { "conditions": [
            { "type": "Completed", "status": "False", "reason": "No", "lastTransitionTime": "t0" }] } });
        let status = json!({ "progress": { "totalPercentage": 5 }, "conditions": [
            { "type": "Completed", "status": "True", "reason": "Yes", "message": "m", "lastTransitionTime": "t1" },
            { "type": "Failed", "status": "False", "reason": "No", "message": "m", "lastTransitionTime": "t1" }] });
        let bent = |wrong: WrongController| wrong.status(Kind::AgentClusterInstall, &object, status.clone(), &memory);
        let condition = |how| bent(WrongController::Condition(Kind::AgentClusterInstall, "Completed", how));
        assert_eq!(condition(WrongCondition::Missing)["conditions"].as_array().unwrap().len(), 1);
        assert_eq!(condition(WrongCondition::Inverted)["conditions"][0]["status"], "False");
        assert_eq!(condition(WrongCondition::TimeStands)["conditions"][0]["lastTransitionTime"], "t0");
        assert_eq!(condition(WrongCondition::OtherReason)["conditions"][1], status["conditions"][1]);
        let of = |how| bent(WrongController::Status(Kind::AgentClusterInstall, "status.progress.totalPercentage", how));
        assert_eq!(of(WrongMember::Missing)["progress"], json!({}));
        assert_eq!(of(WrongMember::First), status);
        let another = WrongController::Status(Kind::Agent, "status.progress", WrongMember::Missing);
        assert_eq!(bent(another), status);
    }
}
