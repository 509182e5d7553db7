//! All validations as data, with evaluators.
//!
//! [`HOST`] and [`CLUSTER`] hold one row for every id of the API, whether the service ever emits it or not.
//! [`evaluate_host`] and [`evaluate_cluster`] are pure: the answer depends on what they are given, and `now` is given too.

mod cluster_rules;
mod host_rules;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, ClusterValidationId, HostStage, HostValidationId};

pub use host_rules::{FORBIDDEN_HOSTNAMES, HOSTNAME_PATTERN, valid_hostname};

use crate::settings::Settings;
use crate::view::{ClusterView, HostView, Scope};

/// Result of a validation, as the API spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValidationStatus {
    /// Holds.
    Success,
    /// Does not hold.
    Failure,
    /// Cannot be decided yet.
    Pending,
    /// Cannot be decided because of broken input.
    Error,
    /// Switched off.
    Disabled,
}

impl ValidationStatus {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            ValidationStatus::Success => "success",
            ValidationStatus::Failure => "failure",
            ValidationStatus::Pending => "pending",
            ValidationStatus::Error => "error",
            ValidationStatus::Disabled => "disabled",
        }
    }
}

/// What a host validation holds back while it is not satisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostGate {
    /// The host is disconnected.
    Connection,
    /// The host stays in discovering.
    Inventory,
    /// The host is insufficient, whatever else holds.
    MinimumHardware,
    /// The host is insufficient, even while the user must give more.
    BeforeInput,
    /// The host is pending-for-input.
    PendingInput,
    /// The host is insufficient.
    Sufficient,
    /// It decides in preparing-for-installation, not before.
    Preparing,
    /// Nothing: it only informs.
    NotBlocking,
}

impl HostGate {
    /// Can it keep a host from being installed?
    pub const fn blocking(self) -> bool {
        !matches!(self, HostGate::NotBlocking)
    }
}

/// What a cluster validation holds back while it is not satisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterGate {
    /// The cluster is pending-for-input.
    PendingInput,
    /// The cluster is pending-for-input; where DHCP leases the VIPs it is insufficient instead.
    Vips,
    /// The cluster is insufficient.
    Sufficient,
    /// Nothing: it only informs.
    NotBlocking,
}

impl ClusterGate {
    /// Can it keep a cluster from being ready?
    pub const fn blocking(self) -> bool {
        !matches!(self, ClusterGate::NotBlocking)
    }
}

/// A host validation as data. Order of the table is the order of the service's answers.
#[derive(Debug)]
pub struct HostValidationSpec {
    /// Id of the validation, as the API has it.
    pub id: HostValidationId,
    /// `network`, `hardware` or `operators`.
    pub category: &'static str,
    /// What it holds back.
    pub gate: HostGate,
    /// Can it keep a host from being installed?
    pub blocking: bool,
    /// May the user have it ignored?
    pub ignorable: bool,
    /// What it needs.
    pub needs: &'static str,
    /// In these stages its answer is a success that is not shown (see [`HIDING_STAGES`]).
    pub hidden_in: &'static [HostStage],
    /// Why the service never emits it; `None` for those that it does.
    pub never: Option<&'static str>,
}

/// A cluster validation as data. Order of the table is the order of the service's answers.
#[derive(Debug)]
pub struct ClusterValidationSpec {
    /// Id of the validation, as the API has it.
    pub id: ClusterValidationId,
    /// `configuration`, `hosts-data`, `network` or `operators`.
    pub category: &'static str,
    /// What it holds back.
    pub gate: ClusterGate,
    /// Can it keep a cluster from being ready?
    pub blocking: bool,
    /// May the user have it ignored?
    pub ignorable: bool,
    /// What it needs.
    pub needs: &'static str,
    /// Why the service never emits it; `None` for those that it does.
    pub never: Option<&'static str>,
}

/// Stages from the reboot on, in which a host's agent is gone and what it last said does not count.
pub const HIDING_STAGES: &[HostStage] =
    &[HostStage::Rebooting, HostStage::WaitingForIgnition, HostStage::Configuring, HostStage::Joined, HostStage::Done];

const fn host(
    id: HostValidationId,
    category: &'static str,
    gate: HostGate,
    ignorable: bool,
    needs: &'static str,
) -> HostValidationSpec {
    HostValidationSpec { id, category, gate, blocking: gate.blocking(), ignorable, needs, hidden_in: &[], never: None }
}

impl HostValidationSpec {
    const fn hidden_in(mut self, stages: &'static [HostStage]) -> Self {
        self.hidden_in = stages;
        self
    }

    const fn never(mut self, why: &'static str) -> Self {
        self.never = Some(why);
        self.blocking = false;
        self
    }
}

const fn operator(id: HostValidationId) -> HostValidationSpec {
    host(
        id,
        "operators",
        HostGate::Sufficient,
        true,
        "what the operator asks of a host; nothing while it is not selected",
    )
}

const fn cluster(
    id: ClusterValidationId,
    category: &'static str,
    gate: ClusterGate,
    ignorable: bool,
    needs: &'static str,
) -> ClusterValidationSpec {
    ClusterValidationSpec { id, category, gate, blocking: gate.blocking(), ignorable, needs, never: None }
}

const fn cluster_operator(id: ClusterValidationId) -> ClusterValidationSpec {
    cluster(
        id,
        "operators",
        ClusterGate::Sufficient,
        true,
        "what the operator asks of a cluster; nothing while it is not selected",
    )
}

impl ClusterValidationSpec {
    const fn never(mut self, why: &'static str) -> Self {
        self.never = Some(why);
        self.blocking = false;
        self
    }
}

/// Why there is no `ocs-requirements-satisfied`.
const OCS: &str = "ocs is the former name of odf; the service answers under the new one";

/// All host validations.
pub static HOST: &[HostValidationSpec] = {
    use HostGate::*;
    use HostValidationId as V;
    &[
        host(V::HasInventory, "hardware", Inventory, false, "an inventory was received"),
        host(V::InventoryNotPartiallyTruncated, "hardware", NotBlocking, true, "the inventory was not cut in part"),
        host(V::InventoryNotFullyTruncated, "hardware", Inventory, false, "the inventory was not cut to nothing"),
        host(V::HasMinCpuCores, "hardware", MinimumHardware, true, "CPU cores of the least demanding role"),
        host(V::HasMinMemory, "hardware", MinimumHardware, true, "memory of the least demanding role"),
        host(V::HasMinValidDisks, "hardware", MinimumHardware, true, "a disk that can be installed to"),
        host(V::HasCpuCoresForRole, "hardware", Sufficient, true, "CPU cores of its role"),
        host(V::HasMemoryForRole, "hardware", Sufficient, true, "memory of its role"),
        host(V::HostnameUnique, "hardware", Sufficient, false, "a name that no other host of the cluster has"),
        host(V::HostnameValid, "hardware", Sufficient, false, "a name of the allowed form that is not localhost"),
        host(
            V::SufficientInstallationDiskSpeed,
            "hardware",
            Sufficient,
            true,
            "a speed test of the disk that succeeded",
        ),
        host(V::CompatibleWithClusterPlatform, "hardware", MinimumHardware, true, "a vendor that the platform runs on"),
        host(V::DiskEncryptionRequirementsSatisfied, "hardware", MinimumHardware, true, "a TPM 2.0 or a tang server"),
        host(V::VsphereDiskUuidEnabled, "hardware", BeforeInput, true, "disk UUIDs on VMware machines"),
        host(V::CompatibleAgent, "hardware", Sufficient, true, "the agent image that the service names")
            .hidden_in(HostStage::ALL),
        host(V::NoSkipInstallationDisk, "hardware", Sufficient, true, "the installation disk may be formatted"),
        host(V::NoSkipMissingDisk, "hardware", Sufficient, true, "disks that must not be formatted exist"),
        host(V::Connected, "network", Connection, false, "an instruction poll not long ago").hidden_in(HIDING_STAGES),
        host(V::MediaConnected, "network", Connection, true, "the boot medium answers").hidden_in(HIDING_STAGES),
        host(V::MachineCidrDefined, "network", PendingInput, false, "a machine network"),
        host(V::BelongsToMachineCidr, "network", Sufficient, true, "an address in every machine network"),
        host(V::IgnitionDownloadable, "network", Sufficient, true, "the ignition can be fetched (day 2)"),
        host(V::BelongsToMajorityGroup, "network", Sufficient, true, "it and most other hosts reach each other"),
        host(V::MtuValid, "network", NotBlocking, true, "full-size packets pass"),
        host(
            V::ValidPlatformNetworkSettings,
            "network",
            Sufficient,
            true,
            "a machine that managed networking works on",
        ),
        host(V::NtpSynced, "network", NotBlocking, true, "a synchronised time source").hidden_in(HIDING_STAGES),
        host(V::TimeSyncedBetweenHostAndService, "network", Sufficient, true, "a clock near the service's")
            .hidden_in(HIDING_STAGES),
        host(V::ContainerImagesAvailable, "network", Preparing, true, "no image that failed to pull"),
        host(
            V::SufficientNetworkLatencyRequirementForRole,
            "network",
            Sufficient,
            true,
            "round trips to hosts of its role below the role's threshold",
        ),
        host(
            V::SufficientPacketLossRequirementForRole,
            "network",
            Sufficient,
            true,
            "packet loss to hosts of its role below the role's threshold",
        ),
        host(V::HasDefaultRoute, "network", Sufficient, true, "a default route with a gateway"),
        host(V::ApiDomainNameResolvedCorrectly, "network", Sufficient, true, "api.<cluster> resolves"),
        host(V::ApiIntDomainNameResolvedCorrectly, "network", Sufficient, true, "api-int.<cluster> resolves"),
        host(V::AppsDomainNameResolvedCorrectly, "network", Sufficient, true, "a name below apps.<cluster> resolves"),
        host(
            V::ReleaseDomainNameResolvedCorrectly,
            "network",
            NotBlocking,
            true,
            "the release registry's name resolves",
        )
        .never("switched off in the service's own code"),
        host(V::DnsWildcardNotConfigured, "network", Sufficient, true, "a made-up name does not resolve"),
        host(V::NonOverlappingSubnets, "network", Sufficient, true, "interfaces in networks that do not overlap"),
        host(V::NoIpCollisionsInNetwork, "network", Sufficient, true, "nobody else answers for its addresses"),
        host(
            V::NoIscsiNicBelongsToMachineCidr,
            "network",
            Sufficient,
            true,
            "the NIC of an iSCSI installation disk is outside the machine network",
        ),
        operator(V::AmdGpuRequirementsSatisfied),
        operator(V::AuthorinoRequirementsSatisfied),
        operator(V::ClusterObservabilityRequirementsSatisfied),
        operator(V::CnvRequirementsSatisfied),
        operator(V::FenceAgentsRemediationRequirementsSatisfied),
        operator(V::KmmRequirementsSatisfied),
        operator(V::KubeDeschedulerRequirementsSatisfied),
        operator(V::LokiRequirementsSatisfied),
        operator(V::LsoRequirementsSatisfied),
        operator(V::LvmRequirementsSatisfied),
        operator(V::MceRequirementsSatisfied),
        operator(V::MetallbRequirementsSatisfied),
        operator(V::MtvRequirementsSatisfied),
        operator(V::NmstateRequirementsSatisfied),
        operator(V::NodeFeatureDiscoveryRequirementsSatisfied),
        operator(V::NodeHealthcheckRequirementsSatisfied),
        operator(V::NodeMaintenanceRequirementsSatisfied),
        operator(V::NumaResourcesRequirementsSatisfied),
        operator(V::NvidiaGpuRequirementsSatisfied),
        operator(V::OadpRequirementsSatisfied),
        operator(V::OcsRequirementsSatisfied).never(OCS),
        operator(V::OdfRequirementsSatisfied),
        operator(V::OpenshiftAiRequirementsSatisfied),
        operator(V::OpenshiftLoggingRequirementsSatisfied),
        operator(V::OscRequirementsSatisfied),
        operator(V::PipelinesRequirementsSatisfied),
        operator(V::SelfNodeRemediationRequirementsSatisfied),
        operator(V::ServerlessRequirementsSatisfied),
        operator(V::ServicemeshRequirementsSatisfied),
    ]
};

/// All cluster validations.
pub static CLUSTER: &[ClusterValidationSpec] = {
    use ClusterGate::*;
    use ClusterValidationId as V;
    &[
        cluster(
            V::PlatformRequirementsSatisfied,
            "configuration",
            NotBlocking,
            true,
            "manifests of the user's own where the external platform asks for them",
        ),
        cluster(V::PullSecretSet, "configuration", PendingInput, false, "a pull secret"),
        cluster(V::AllHostsAreReadyToInstall, "hosts-data", Sufficient, false, "every host is known or preparing"),
        cluster(V::SufficientMastersCount, "hosts-data", Sufficient, false, "exactly the wanted number of masters"),
        cluster(V::ApiVipsDefined, "network", Vips, false, "an API VIP where the cluster has one"),
        cluster(V::ApiVipsValid, "network", Sufficient, true, "API VIPs inside the machine network and free"),
        cluster(V::ClusterCidrDefined, "network", PendingInput, true, "a cluster network"),
        cluster(
            V::CustomManifestsRequirementsSatisfied,
            "network",
            Sufficient,
            true,
            "manifests of the user's own where the network plug-in is a third party's",
        ),
        cluster(V::DnsDomainDefined, "network", PendingInput, true, "a base domain"),
        cluster(V::IngressVipsDefined, "network", Vips, false, "an ingress VIP where the cluster has one"),
        cluster(V::IngressVipsValid, "network", Sufficient, true, "ingress VIPs inside the machine network and free"),
        cluster(V::MachineCidrDefined, "network", PendingInput, true, "a machine network"),
        cluster(
            V::MachineCidrEqualsToCalculatedCidr,
            "network",
            Sufficient,
            true,
            "the machine network is the one that the VIPs lie in",
        ),
        cluster(V::NetworkPrefixValid, "network", Sufficient, true, "room for all hosts in the cluster network"),
        cluster(V::NetworkTypeValid, "network", Sufficient, true, "a network plug-in that fits the topology"),
        cluster(V::NetworksSameAddressFamilies, "network", Sufficient, true, "the same IP versions in all networks"),
        cluster(V::NoCidrsOverlapping, "network", Sufficient, true, "networks that do not overlap"),
        cluster(V::NtpServerConfigured, "network", Sufficient, true, "host clocks near each other"),
        cluster(V::ServiceCidrDefined, "network", PendingInput, true, "a service network"),
        cluster_operator(V::AmdGpuRequirementsSatisfied),
        cluster_operator(V::AuthorinoRequirementsSatisfied),
        cluster_operator(V::ClusterObservabilityRequirementsSatisfied),
        cluster_operator(V::CnvRequirementsSatisfied),
        cluster_operator(V::FenceAgentsRemediationRequirementsSatisfied),
        cluster_operator(V::KmmRequirementsSatisfied),
        cluster_operator(V::KubeDeschedulerRequirementsSatisfied),
        cluster_operator(V::LokiRequirementsSatisfied),
        cluster_operator(V::LsoRequirementsSatisfied),
        cluster_operator(V::LvmRequirementsSatisfied),
        cluster_operator(V::MceRequirementsSatisfied),
        cluster_operator(V::MetallbRequirementsSatisfied),
        cluster_operator(V::MtvRequirementsSatisfied),
        cluster_operator(V::NmstateRequirementsSatisfied),
        cluster_operator(V::NodeFeatureDiscoveryRequirementsSatisfied),
        cluster_operator(V::NodeHealthcheckRequirementsSatisfied),
        cluster_operator(V::NodeMaintenanceRequirementsSatisfied),
        cluster_operator(V::NumaResourcesRequirementsSatisfied),
        cluster_operator(V::NvidiaGpuRequirementsSatisfied),
        cluster_operator(V::OadpRequirementsSatisfied),
        cluster_operator(V::OcsRequirementsSatisfied).never(OCS),
        cluster_operator(V::OdfRequirementsSatisfied),
        cluster(
            V::OpenshiftAiGpuRequirementsSatisfied,
            "operators",
            NotBlocking,
            true,
            "a supported GPU for openshift-ai; nothing while it is not selected",
        ),
        cluster_operator(V::OpenshiftAiRequirementsSatisfied),
        cluster_operator(V::OpenshiftLoggingRequirementsSatisfied),
        cluster_operator(V::OscRequirementsSatisfied),
        cluster_operator(V::PipelinesRequirementsSatisfied),
        cluster_operator(V::SelfNodeRemediationRequirementsSatisfied),
        cluster_operator(V::ServerlessRequirementsSatisfied),
        cluster_operator(V::ServicemeshRequirementsSatisfied),
    ]
};

/// The row of a host validation.
pub fn host_spec(id: HostValidationId) -> &'static HostValidationSpec {
    &HOST[HOST_INDEX[id as usize]]
}

/// The row of a cluster validation.
pub fn cluster_spec(id: ClusterValidationId) -> &'static ClusterValidationSpec {
    &CLUSTER[CLUSTER_INDEX[id as usize]]
}

/// Position in [`HOST`] by the id's own number. A table that lacks an id does not compile.
static HOST_INDEX: [usize; HostValidationId::ALL.len()] = {
    let mut index = [usize::MAX; HostValidationId::ALL.len()];
    let mut i = 0;
    while i < HOST.len() {
        index[HOST[i].id as usize] = i;
        i += 1;
    }
    let mut i = 0;
    while i < index.len() {
        assert!(index[i] != usize::MAX, "a host validation has no row");
        i += 1;
    }
    index
};

/// Position in [`CLUSTER`] by the id's own number. A table that lacks an id does not compile.
static CLUSTER_INDEX: [usize; ClusterValidationId::ALL.len()] = {
    let mut index = [usize::MAX; ClusterValidationId::ALL.len()];
    let mut i = 0;
    while i < CLUSTER.len() {
        index[CLUSTER[i].id as usize] = i;
        i += 1;
    }
    let mut i = 0;
    while i < index.len() {
        assert!(index[i] != usize::MAX, "a cluster validation has no row");
        i += 1;
    }
    index
};

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validation {
    /// Id on the wire.
    pub id: &'static str,
    /// Category on the wire.
    pub category: &'static str,
    /// What the rule came to.
    pub status: ValidationStatus,
    /// The service's words.
    pub message: Cow<'static, str>,
    /// It counts but is not shown.
    pub hidden: bool,
    /// The user wants it ignored: it counts as satisfied whatever its status is.
    pub ignored: bool,
}

impl Validation {
    /// Does it count as satisfied? Only `success` and `disabled` do, and what is ignored.
    pub fn satisfied(&self) -> bool {
        self.ignored || matches!(self.status, ValidationStatus::Success | ValidationStatus::Disabled)
    }
}

/// A text that is no `validations_info`.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// Not JSON, or of another shape.
    #[error("validations_info is not {{category: [{{id, status, message}}]}}: {0}")]
    Json(#[from] serde_json::Error),
    /// An id or a category that the API does not have.
    #[error("validations_info speaks of {id:?} in category {category:?}, which the API does not have")]
    Unknown {
        /// Category found.
        category: String,
        /// Id found.
        id: String,
    },
}

#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    status: ValidationStatus,
    message: &'a str,
}

#[derive(Deserialize)]
struct Read {
    id: String,
    status: ValidationStatus,
    #[serde(default)]
    message: String,
}

/// The text of `validations_info`.
fn to_json_text(all: &[Validation]) -> String {
    let mut categories: BTreeMap<&str, Vec<Shown<'_>>> = BTreeMap::new();
    for v in all.iter().filter(|v| !v.hidden) {
        let shown = Shown { id: v.id, status: v.status, message: &v.message };
        categories.entry(v.category).or_default().push(shown);
    }
    // Text keys and text values: there is nothing in it that JSON could refuse.
    serde_json::to_string(&categories).unwrap_or_default()
}

fn from_json_text(
    text: &str,
    known: impl Fn(&str) -> Option<(&'static str, &'static str)>,
) -> Result<Vec<Validation>, ParseError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let read: BTreeMap<String, Vec<Read>> = serde_json::from_str(text)?;
    let mut all = Vec::new();
    for (category, entries) in read {
        for Read { id, status, message } in entries {
            match known(&id) {
                Some((id, c)) if c == category => {
                    all.push(Validation {
                        id,
                        category: c,
                        status,
                        message: message.into(),
                        hidden: false,
                        ignored: false,
                    });
                }
                _ => return Err(ParseError::Unknown { category, id }),
            }
        }
    }
    Ok(all)
}

/// Looks where the entry is when nothing is missing, then everywhere.
fn find<'a>(all: &'a [Validation], guess: usize, id: &str) -> Option<&'a Validation> {
    all.get(guess).filter(|v| v.id == id).or_else(|| all.iter().find(|v| v.id == id))
}

/// All answers about one host, in the order of [`HOST`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostValidations(pub Vec<Validation>);

impl HostValidations {
    /// The answer; `None` when it is hidden without having been evaluated, or nothing was evaluated.
    pub fn get(&self, id: HostValidationId) -> Option<&Validation> {
        find(&self.0, HOST_INDEX[id as usize], id.as_str())
    }

    /// Its status.
    pub fn status(&self, id: HostValidationId) -> Option<ValidationStatus> {
        self.get(id).map(|v| v.status)
    }

    /// Does it count as satisfied? An entry that is missing among others is one that the service does not show because it
    /// does not apply; while nothing was evaluated, nothing is satisfied.
    pub fn satisfied(&self, id: HostValidationId) -> bool {
        self.get(id).map_or(!self.0.is_empty(), Validation::satisfied)
    }

    /// Are all of a gate satisfied?
    pub fn gate(&self, gate: HostGate) -> bool {
        HOST.iter().filter(|s| s.gate == gate && s.never.is_none()).all(|s| self.satisfied(s.id))
    }

    /// The text of `validations_info`.
    pub fn to_json_text(&self) -> String {
        to_json_text(&self.0)
    }

    /// Reads the text of `validations_info`; hidden entries are not in it.
    ///
    /// # Errors
    /// Text of another shape, or an id that the API does not have.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let known = |id: &str| id.parse().ok().map(|id: HostValidationId| (id.as_str(), host_spec(id).category));
        Ok(Self(from_json_text(text, known)?))
    }
}

/// All answers about one cluster, in the order of [`CLUSTER`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterValidations(pub Vec<Validation>);

impl ClusterValidations {
    /// The answer; `None` when nothing was evaluated.
    pub fn get(&self, id: ClusterValidationId) -> Option<&Validation> {
        find(&self.0, CLUSTER_INDEX[id as usize], id.as_str())
    }

    /// Its status.
    pub fn status(&self, id: ClusterValidationId) -> Option<ValidationStatus> {
        self.get(id).map(|v| v.status)
    }

    /// Does it count as satisfied? See [`HostValidations::satisfied`].
    pub fn satisfied(&self, id: ClusterValidationId) -> bool {
        self.get(id).map_or(!self.0.is_empty(), Validation::satisfied)
    }

    /// Are all of a gate satisfied?
    pub fn gate(&self, gate: ClusterGate) -> bool {
        CLUSTER.iter().filter(|s| s.gate == gate && s.never.is_none()).all(|s| self.satisfied(s.id))
    }

    /// The text of `validations_info`.
    pub fn to_json_text(&self) -> String {
        to_json_text(&self.0)
    }

    /// Reads the text of `validations_info`.
    ///
    /// # Errors
    /// Text of another shape, or an id that the API does not have.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let known = |id: &str| id.parse().ok().map(|id: ClusterValidationId| (id.as_str(), cluster_spec(id).category));
        Ok(Self(from_json_text(text, known)?))
    }
}

/// What a rule says: status, message, and whether it is shown.
type Evaluation = (ValidationStatus, Cow<'static, str>, bool);

fn ok(message: impl Into<Cow<'static, str>>) -> Evaluation {
    (ValidationStatus::Success, message.into(), false)
}

fn fail(message: impl Into<Cow<'static, str>>) -> Evaluation {
    (ValidationStatus::Failure, message.into(), false)
}

fn pending(message: impl Into<Cow<'static, str>>) -> Evaluation {
    (ValidationStatus::Pending, message.into(), false)
}

fn error(message: impl Into<Cow<'static, str>>) -> Evaluation {
    (ValidationStatus::Error, message.into(), false)
}

/// A success that is not shown, because the question does not arise.
fn hidden() -> Evaluation {
    (ValidationStatus::Success, Cow::Borrowed(""), true)
}

const SWITCHED_OFF: &str = "Validation is disabled by configuration";

/// What selected operators get whose needs are not built.
const NOT_EVALUATED: &str = "not evaluated by the simulated service";

/// Name of the operator that the validation is about.
fn operator_name(id: &'static str) -> &'static str {
    match id.strip_suffix("-requirements-satisfied").unwrap_or(id) {
        // The one operator whose name is not that of its validation.
        "numa-resources" => "numaresources",
        name => name,
    }
}

/// Names of all operators that OLM can install with a cluster: each has a validation of its hosts.
pub fn olm_operators() -> impl Iterator<Item = &'static str> {
    HOST.iter().filter(|spec| spec.category == "operators").map(|spec| operator_name(spec.id.as_str()))
}

/// The answer about an operator that is not selected.
fn operator_off(name: &'static str) -> Evaluation {
    // There are dozens of them in each list of answers.
    static TEXTS: LazyLock<BTreeMap<&str, String>> = LazyLock::new(|| {
        let ids = HOST.iter().map(|spec| spec.id.as_str()).chain(CLUSTER.iter().map(|spec| spec.id.as_str()));
        ids.map(operator_name).map(|name| (name, format!("{name} is disabled"))).collect()
    });
    match TEXTS.get(name) {
        Some(text) => ok(text.as_str()),
        None => ok(format!("{name} is disabled")),
    }
}

/// Does the user want it ignored?
fn ignored(ignorable: bool, list: &[String], id: &str) -> bool {
    ignorable && list.iter().any(|i| i == "all" || i == id)
}

/// All validations of a host.
pub fn evaluate_host(subject: &HostView, scope: &Scope<'_>, settings: &Settings, now: Timestamp) -> HostValidations {
    let rules = host_rules::Subject::new(subject, scope, settings, now);
    let ignore = scope.cluster.map_or(&[][..], |c| &c.ignored_host_validations);
    // A list of the cluster's own takes the place of the service's.
    let disabled = if ignore.is_empty() { settings.disabled_host_validations.as_slice() } else { &[] };
    let mut all = Vec::with_capacity(HOST.len());
    for spec in HOST.iter().filter(|s| s.never.is_none()) {
        let id = spec.id.as_str();
        let (status, message, hidden) = if disabled.iter().any(|d| d == id) {
            (ValidationStatus::Disabled, Cow::Borrowed(SWITCHED_OFF), false)
        } else if rules.hidden_by_stage(spec.hidden_in) {
            hidden()
        } else {
            rules.answer(spec.id)
        };
        let ignored = ignored(spec.ignorable, ignore, id);
        all.push(Validation { id, category: spec.category, status, message, hidden, ignored });
    }
    HostValidations(all)
}

/// All validations of a cluster. The service evaluates them only while the cluster's status is one of [`EVALUATED_IN`].
/// `now` is there for rules about time; those of today compare the hosts' clocks with each other only.
pub fn evaluate_cluster(
    subject: &ClusterView,
    hosts: &[&HostView],
    settings: &Settings,
    now: Timestamp,
) -> ClusterValidations {
    let _ = now;
    let rules = cluster_rules::Subject::new(subject, hosts, settings);
    let mut all = Vec::with_capacity(CLUSTER.len());
    for spec in CLUSTER.iter().filter(|s| s.never.is_none()) {
        let id = spec.id.as_str();
        let (status, message, hidden) = if settings.disabled_cluster_validations.iter().any(|d| d == id) {
            (ValidationStatus::Disabled, Cow::Borrowed(SWITCHED_OFF), false)
        } else {
            rules.answer(spec.id)
        };
        let ignored = ignored(spec.ignorable, &subject.ignored_cluster_validations, id);
        all.push(Validation { id, category: spec.category, status, message, hidden, ignored });
    }
    ClusterValidations(all)
}

/// Statuses in which the service evaluates a cluster's validations; in others the last answers stand.
pub const EVALUATED_IN: &[ClusterStatus] = &[
    ClusterStatus::Insufficient,
    ClusterStatus::Ready,
    ClusterStatus::PendingForInput,
    ClusterStatus::PreparingForInstallation,
];

/// When the host counts as disconnected if it does not ask for instructions before: the first instant at which `connected`
/// fails. `None` when that cannot happen: from the reboot on nobody expects it to ask.
pub fn connection_deadline(subject: &HostView, settings: &Settings) -> Option<Timestamp> {
    if subject.stage().is_some_and(|s| HIDING_STAGES.contains(&s)) {
        return None;
    }
    let last = subject.host.checked_in_at.unwrap_or_default();
    Some(last + settings.max_disconnection(subject.is_bootstrap()) + Duration::from_micros(1))
}

/// When the host's clock counts as behind the service's if it does not send its time before: the first instant at which
/// `time-synced-between-host-and-service` fails. `None` when it never sent it, or when that cannot happen any more.
pub fn time_sync_deadline(subject: &HostView, settings: &Settings) -> Option<Timestamp> {
    let sent = subject.host.timestamp.filter(|t| *t > 0)?;
    let hidden = subject.stage().is_some_and(|s| HIDING_STAGES.contains(&s));
    let limit = settings.constants.service_ahead_minutes.saturating_mul(60);
    (!hidden).then(|| Timestamp::from_secs(sent.saturating_add(limit).saturating_add(1)))
}
