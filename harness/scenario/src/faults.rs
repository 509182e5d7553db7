//! The kinds of faults: one table that the checker, the schema, the engine, the docs and the coverage report read. What a kind
//! does to a host or a cluster is where these live; here is what a scenario can say about it.

use std::net::IpAddr;

use serde::Serialize;
use vlab_api::types::{FinalizingStage, HostStage};

use crate::time::Span;
use crate::words::{FaultKind, FaultPlace, Lasting};

/// A kind of fault.
#[derive(Debug)]
pub struct FaultRow {
    /// Its word.
    pub kind: FaultKind,
    /// Where it is: a host, the network, the control plane, the service.
    pub place: FaultPlace,
    /// What it can hit.
    pub targets: &'static [TargetForm],
    /// Does it happen in a moment, or last?
    pub lasts: Lasting,
    /// What can be said about it.
    pub params: &'static [ParamRow],
    /// Which hosts can have it.
    pub hosts: FaultHosts,
    /// One line for people.
    pub purpose: &'static str,
}

/// What a kind of fault can hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetForm {
    /// Hosts: by name, group or role, or some of them chosen by the seed.
    Hosts,
    /// The way between hosts.
    Link,
    /// A cluster's inside, its names or its addresses.
    Cluster,
    /// The service under test.
    Service,
    /// The service's database.
    Postgres,
    /// The way between hosts and the service.
    Gateway,
}

impl TargetForm {
    /// For messages.
    pub const fn words(self) -> &'static str {
        match self {
            TargetForm::Hosts => "hosts",
            TargetForm::Link => "the way `between` hosts",
            TargetForm::Cluster => "a cluster",
            TargetForm::Service => "the `service`",
            TargetForm::Postgres => "`postgres`",
            TargetForm::Gateway => "the `gateway`",
        }
    }
}

/// Which hosts can have a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultHosts {
    /// Simulated ones only, so far.
    Simulated,
    /// Both; how it is done differs.
    Any,
}

/// A parameter of a kind of fault.
#[derive(Debug)]
pub struct ParamRow {
    /// Its name under `with`.
    pub name: &'static str,
    /// What can be written.
    pub form: ParamForm,
    /// The value without it, as it would be written; `None`: must be given. An empty one: nothing.
    pub default: Option<&'static str>,
    /// One line for people.
    pub purpose: &'static str,
}

/// What can be written for a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamForm {
    /// A duration.
    Span,
    /// A whole number within these limits.
    Number(u64, u64),
    /// Any text.
    Text,
    /// One of these words.
    Words(&'static [&'static str]),
    /// An IP address.
    Address,
    /// Name of a host of the scenario.
    Host,
    /// An installation stage that the host itself reports.
    Stage,
    /// A stage of finalizing.
    FinalizingStage,
    /// Id of an operation of the API.
    Operation,
}

/// Value of a parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ParamValue {
    /// A duration.
    Span(Span),
    /// A number.
    Number(u64),
    /// A text, a word, or the name of a host.
    Text(String),
    /// An IP address.
    Address(IpAddr),
    /// An installation stage.
    Stage(HostStage),
    /// A stage of finalizing.
    FinalizingStage(FinalizingStage),
}

/// Stages that a host reports itself; the others are reported by somebody else once it is a node.
pub const OWN_STAGES: &[HostStage] = &[
    HostStage::StartingInstallation,
    HostStage::Installing,
    HostStage::WritingImageToDisk,
    HostStage::CopyingRegistryDataToDisk,
    HostStage::WaitingForControlPlane,
    HostStage::WaitingForBootkube,
    HostStage::WaitingForController,
    HostStage::Rebooting,
];

const fn param(name: &'static str, form: ParamForm, default: Option<&'static str>, purpose: &'static str) -> ParamRow {
    ParamRow { name, form, default, purpose }
}

use FaultHosts::{Any, Simulated};
use FaultKind as K;
use FaultPlace as P;
use Lasting::{Moment, Time};
use ParamForm as F;
use TargetForm::{Cluster, Gateway, Hosts, Link, Postgres, Service};

/// Which requests a fault of the gateway is about.
macro_rules! of_requests {
    ($($own:expr),*) => {
        &[
            $($own,)*
            param("operation", F::Operation, Some(""), "only requests of this operation"),
            param("path", F::Text, Some(""), "only requests that have this in their path"),
            param("method", F::Words(&["GET", "POST", "PUT", "PATCH", "DELETE"]), Some(""), "only requests of this method"),
            param("host", F::Host, Some(""), "only requests that have this host's id in their path"),
            param("from", F::Words(&["hosts", "user", "all"]), Some("hosts"), "only what hosts ask, or the user, or both"),
            param("percent", F::Number(1, 100), Some("100"), "so many in a hundred of these, chosen by the seed"),
            param("at_most", F::Number(1, 1_000_000_000), Some(""), "so many requests at most"),
        ]
    };
}

const DOWN: ParamRow = param("down", F::Span, Some("5s"), "it is down so long before it is started again");
const LOST_AT: ParamRow = param(
    "lost",
    F::Words(&["request", "answer"]),
    Some("request"),
    "`request`: the service never sees it; `answer`: it has done what was asked, and the answer is lost",
);

/// Every kind, in the order of its words. A test compares it with the list of the words.
pub static FAULTS: &[FaultRow] = &[
    // --- hosts
    FaultRow {
        kind: K::Crash,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[],
        hosts: Any,
        purpose: "the power is cut; it comes back when the fault ends, else never",
    },
    FaultRow {
        kind: K::Reboot,
        place: P::Host,
        targets: &[Hosts],
        lasts: Moment,
        params: &[],
        hosts: Any,
        purpose: "the machine restarts: from its disk when a system is on it, else from the discovery image",
    },
    FaultRow {
        kind: K::AgentRestart,
        place: P::Host,
        targets: &[Hosts],
        lasts: Moment,
        params: &[],
        hosts: Simulated,
        purpose: "the agent ends and is started again; an installer that runs goes on",
    },
    FaultRow {
        kind: K::SlowPolls,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[param("every", F::Span, None, "the host asks for instructions only so often")],
        hosts: Simulated,
        purpose: "the agent asks for instructions less often than it was told",
    },
    FaultRow {
        kind: K::SilentAgent,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[],
        hosts: Simulated,
        purpose: "the agent hangs and asks for nothing; an installer that runs goes on",
    },
    FaultRow {
        kind: K::Disconnect,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[],
        hosts: Any,
        purpose: "the host and the service do not reach each other; its neighbours reach it",
    },
    FaultRow {
        kind: K::DuplicateId,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[param("of", F::Host, None, "the host whose id it has")],
        hosts: Simulated,
        purpose: "the machine has the id of another one, as boards with one and the same UUID do",
    },
    FaultRow {
        kind: K::ClockSkew,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[
            param("seconds", F::Number(1, 10_000_000), None, "by so many seconds, of whatever clock"),
            param("direction", F::Words(&["ahead", "behind"]), Some("ahead"), "which way"),
        ],
        hosts: Simulated,
        purpose: "the host's clock is wrong",
    },
    FaultRow {
        kind: K::NtpUnreachable,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[],
        hosts: Any,
        purpose: "no NTP source answers the host",
    },
    FaultRow {
        kind: K::FewCores,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[param("cores", F::Number(1, 4096), Some("2"), "number of cores")],
        hosts: Simulated,
        purpose: "fewer processor cores than the machine has are found",
    },
    FaultRow {
        kind: K::LittleMemory,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[param("mib", F::Number(1, 67_108_864), Some("4096"), "memory in MiB")],
        hosts: Simulated,
        purpose: "less memory than the machine has is found",
    },
    FaultRow {
        kind: K::SmallDisks,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[param("gb", F::Number(1, 1_048_576), Some("20"), "size of every disk in GB (10^9 bytes)")],
        hosts: Simulated,
        purpose: "every disk is smaller than it was",
    },
    FaultRow {
        kind: K::SlowDisk,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[param(
            "fsync_ms",
            F::Number(1, 100_000),
            Some("40"),
            "what a synchronous write takes, in milliseconds",
        )],
        hosts: Any,
        purpose: "the disk speed check finds a slow disk",
    },
    FaultRow {
        kind: K::DiskFails,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[param(
            "percent",
            F::Number(0, 100),
            Some("50"),
            "when so much of the image is written; 0: already when its speed is measured",
        )],
        hosts: Any,
        purpose: "the disk fails while the image is written",
    },
    FaultRow {
        kind: K::ImageUnavailable,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[param("image", F::Text, Some("/"), "part of the name of the images; all of them without it")],
        hosts: Simulated,
        purpose: "the host cannot pull container images",
    },
    FaultRow {
        kind: K::WrongHostname,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[param("name", F::Text, None, "what it calls itself: `localhost`, another host's name, nonsense")],
        hosts: Simulated,
        purpose: "the host has a name that is invalid, or another one's",
    },
    FaultRow {
        kind: K::WrongBootOrder,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[],
        hosts: Simulated,
        purpose: "after the installation the discovery image is booted again; when the fault ends, somebody puts that right",
    },
    FaultRow {
        kind: K::StuckStage,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[param("stage", F::Stage, None, "the stage that it does not leave")],
        hosts: Simulated,
        purpose: "the installer hangs in a stage",
    },
    FaultRow {
        kind: K::InstallerFails,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[
            param("stage", F::Stage, None, "the stage in which it fails"),
            param("text", F::Text, Some("the installer failed, as the scenario says"), "what it tells the service"),
        ],
        hosts: Simulated,
        purpose: "the installer fails in a stage",
    },
    FaultRow {
        kind: K::LogsLost,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[],
        hosts: Simulated,
        purpose: "the host announces its logs and never sends them",
    },
    FaultRow {
        kind: K::BadInventory,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[
            param("form", F::Words(&["malformed", "truncated", "huge"]), None, "what is wrong with it"),
            param("mib", F::Number(1, 64), Some("10"), "size of a huge one, in MiB"),
        ],
        hosts: Simulated,
        purpose: "the inventory that the host sends is no JSON, ends in the middle, or is huge",
    },
    FaultRow {
        kind: K::MediaLost,
        place: P::Host,
        targets: &[Hosts],
        lasts: Time,
        params: &[],
        hosts: Any,
        purpose: "the discovery medium is taken out; a virtual machine misses that of a full ISO only",
    },
    // --- network
    FaultRow {
        kind: K::UplinkCut,
        place: P::Network,
        targets: &[Hosts],
        lasts: Time,
        params: &[],
        hosts: Any,
        purpose: "the host's cable is cut: it reaches nobody, and nobody reaches it",
    },
    FaultRow {
        kind: K::NoAddress,
        place: P::Network,
        targets: &[Hosts],
        lasts: Time,
        params: &[],
        hosts: Any,
        purpose: "DHCP has no address left for the host",
    },
    FaultRow {
        kind: K::DuplicateAddress,
        place: P::Network,
        targets: &[Hosts],
        lasts: Time,
        params: &[param("of", F::Host, None, "the host whose address it has")],
        hosts: Simulated,
        purpose: "the host has the address of another one",
    },
    FaultRow {
        kind: K::Partition,
        place: P::Network,
        targets: &[Link],
        lasts: Time,
        params: &[ONE_WAY],
        hosts: Any,
        purpose: "hosts do not reach each other; both reach the service",
    },
    FaultRow {
        kind: K::Latency,
        place: P::Network,
        targets: &[Link],
        lasts: Time,
        params: &[param("rtt_ms", F::Number(1, 600_000), Some("1500"), "round-trip time in milliseconds"), ONE_WAY],
        hosts: Any,
        purpose: "packets between hosts take long",
    },
    FaultRow {
        kind: K::PacketLoss,
        place: P::Network,
        targets: &[Link],
        lasts: Time,
        params: &[param("percent", F::Number(1, 100), Some("20"), "share of the packets"), ONE_WAY],
        hosts: Any,
        purpose: "packets between hosts are lost",
    },
    FaultRow {
        kind: K::MtuBlackHole,
        place: P::Network,
        targets: &[Link],
        lasts: Time,
        params: &[param("bytes", F::Number(68, 65_535), Some("1400"), "the largest packet that gets through"), ONE_WAY],
        hosts: Any,
        purpose: "large packets between hosts are lost without a word",
    },
    FaultRow {
        kind: K::VipTaken,
        place: P::Network,
        targets: &[Cluster],
        lasts: Time,
        params: &[param("vip", F::Words(&["api", "ingress"]), Some("api"), "which address")],
        hosts: Any,
        purpose: "somebody else has one of the cluster's virtual addresses",
    },
    FaultRow {
        kind: K::DnsMissing,
        place: P::Network,
        targets: &[Cluster],
        lasts: Time,
        params: &[DNS_NAME],
        hosts: Any,
        purpose: "the DNS does not know a name of the cluster",
    },
    FaultRow {
        kind: K::DnsWrong,
        place: P::Network,
        targets: &[Cluster],
        lasts: Time,
        params: &[DNS_NAME, param("address", F::Address, Some("198.51.100.66"), "what it answers")],
        hosts: Any,
        purpose: "the DNS gives a wrong address for a name of the cluster",
    },
    FaultRow {
        kind: K::DnsWildcard,
        place: P::Network,
        targets: &[Cluster],
        lasts: Time,
        params: &[param("address", F::Address, Some("198.51.100.66"), "what it answers")],
        hosts: Any,
        purpose: "the DNS knows every name below the cluster's domain",
    },
    // --- control plane
    FaultRow {
        kind: K::ApiUnreachable,
        place: P::ControlPlane,
        targets: &[Cluster],
        lasts: Time,
        params: &[],
        hosts: Any,
        purpose: "nobody reaches the cluster's API, nor its machine-config server",
    },
    FaultRow {
        kind: K::IgnitionUnreachable,
        place: P::ControlPlane,
        targets: &[Cluster],
        lasts: Time,
        params: &[],
        hosts: Any,
        purpose: "the machine-config server does not answer: nodes wait for their ignition",
    },
    FaultRow {
        kind: K::NeverJoins,
        place: P::ControlPlane,
        targets: &[Hosts],
        lasts: Time,
        params: &[],
        hosts: Simulated,
        purpose: "the installed system boots and does not ask for its place in the cluster",
    },
    FaultRow {
        kind: K::CsrNotApproved,
        place: P::ControlPlane,
        targets: &[Hosts],
        lasts: Time,
        params: &[],
        hosts: Simulated,
        purpose: "nobody approves the certificate with which the host wants to become a node",
    },
    FaultRow {
        kind: K::BootkubeFails,
        place: P::ControlPlane,
        targets: &[Cluster],
        lasts: Time,
        params: &[],
        hosts: Simulated,
        purpose: "bootkube fails and is started again, as long as the fault lasts",
    },
    FaultRow {
        kind: K::BootkubeHangs,
        place: P::ControlPlane,
        targets: &[Cluster],
        lasts: Time,
        params: &[],
        hosts: Simulated,
        purpose: "bootkube does not come to its end",
    },
    FaultRow {
        kind: K::EtcdStuck,
        place: P::ControlPlane,
        targets: &[Cluster],
        lasts: Time,
        params: &[],
        hosts: Simulated,
        purpose: "etcd does not leave the bootstrap host: a member fails, and there is no quorum without it",
    },
    FaultRow {
        kind: K::QuorumLost,
        place: P::ControlPlane,
        targets: &[Cluster],
        lasts: Time,
        params: &[],
        hosts: Simulated,
        purpose: "etcd has left the bootstrap host and has too few members up: no API as long as the fault lasts",
    },
    FaultRow {
        kind: K::OperatorDegraded,
        place: P::ControlPlane,
        targets: &[Cluster],
        lasts: Time,
        params: &[param("operator", F::Text, Some("console"), "which one")],
        hosts: Simulated,
        purpose: "an operator does not become available",
    },
    FaultRow {
        kind: K::FinalizingStuck,
        place: P::ControlPlane,
        targets: &[Cluster],
        lasts: Time,
        params: &[param("stage", F::FinalizingStage, None, "the stage that it does not leave")],
        hosts: Simulated,
        purpose: "the controller hangs while the cluster finalizes",
    },
    // --- the service, its database, and the way to it
    FaultRow {
        kind: K::ServiceRestart,
        place: P::Service,
        targets: &[Service],
        lasts: Moment,
        params: &[DOWN],
        hosts: Any,
        purpose: "the service is asked to stop (SIGTERM), and started again",
    },
    FaultRow {
        kind: K::ServiceKill,
        place: P::Service,
        targets: &[Service],
        lasts: Moment,
        params: &[DOWN],
        hosts: Any,
        purpose: "the service is killed with -9, and started again",
    },
    FaultRow {
        kind: K::ServicePause,
        place: P::Service,
        targets: &[Service],
        lasts: Time,
        params: &[],
        hosts: Any,
        purpose: "the service stands still (SIGSTOP): what is asked of it waits",
    },
    FaultRow {
        kind: K::PostgresRestart,
        place: P::Service,
        targets: &[Postgres],
        lasts: Moment,
        params: &[DOWN],
        hosts: Any,
        purpose: "PostgreSQL is stopped (open transactions are rolled back), and started again",
    },
    FaultRow {
        kind: K::PostgresKill,
        place: P::Service,
        targets: &[Postgres],
        lasts: Moment,
        params: &[DOWN],
        hosts: Any,
        purpose: "PostgreSQL and all its backends are killed with -9, and it is started again",
    },
    FaultRow {
        kind: K::PostgresUnreachable,
        place: P::Service,
        targets: &[Postgres],
        lasts: Time,
        params: &[],
        hosts: Any,
        purpose: "PostgreSQL answers nobody: open connections hang, new ones do not come about",
    },
    FaultRow {
        kind: K::SlowQueries,
        place: P::Service,
        targets: &[Postgres],
        lasts: Time,
        params: &[param("ms", F::Number(1, 600_000), Some("200"), "so many milliseconds more, of the wall clock")],
        hosts: Any,
        purpose: "each transaction that writes into the service's tables waits before its first write",
    },
    FaultRow {
        kind: K::HttpError,
        place: P::Service,
        targets: &[Gateway],
        lasts: Time,
        params: of_requests!(
            param("status", F::Number(400, 599), Some("503"), "what is answered in the service's place"),
            param("retry_after", F::Number(0, 86_400), Some(""), "seconds for the header `Retry-After`")
        ),
        hosts: Any,
        purpose: "requests are answered with an error, and the service never sees them",
    },
    FaultRow {
        kind: K::SlowAnswer,
        place: P::Service,
        targets: &[Gateway],
        lasts: Time,
        params: of_requests!(param("by", F::Span, None, "so much later")),
        hosts: Any,
        purpose: "answers of the service come late",
    },
    FaultRow {
        kind: K::DroppedConnection,
        place: P::Service,
        targets: &[Gateway],
        lasts: Time,
        params: of_requests!(LOST_AT),
        hosts: Any,
        purpose: "the connection is closed without an answer",
    },
    FaultRow {
        kind: K::ResetConnection,
        place: P::Service,
        targets: &[Gateway],
        lasts: Time,
        params: of_requests!(LOST_AT),
        hosts: Any,
        purpose: "the connection is reset (TCP RST) without an answer",
    },
    FaultRow {
        kind: K::StaleKeepAlive,
        place: P::Service,
        targets: &[Gateway],
        lasts: Time,
        params: of_requests!(),
        hosts: Any,
        purpose: "a kept-alive connection is closed just when its next request comes; a request on a new one gets through",
    },
];

impl FaultRow {
    /// Does virtual time have no form of it? There the service is one core without a database.
    pub fn needs_real_time(&self) -> bool {
        self.targets.contains(&TargetForm::Postgres)
    }

    /// Ids of the console checks that it makes a machine fail by itself: there they tell of the fault, and of nothing that is wrong.
    pub fn on_consoles(&self) -> &'static [&'static str] {
        match self.kind {
            K::DiskFails => &["disk-error"],
            // What was not read yet cannot be started.
            K::MediaLost => &["disk-error", "unit-failed", "lab-unit-failed"],
            _ => &[],
        }
    }
}

const ONE_WAY: ParamRow = param(
    "direction",
    F::Words(&["both", "one-way"]),
    Some("both"),
    "`one-way`: only what the first says to the second, as behind a firewall that lets answers through",
);
const DNS_NAME: ParamRow =
    param("name", F::Words(&["api", "api-int", "apps"]), Some("api"), "which name; `apps` is that of every route");

/// Ids of the operations that a fault of the gateway can be about, in order.
pub fn operation_ids() -> Vec<&'static str> {
    let mut ids: Vec<&str> = vlab_api::ops::operations().map(|o| o.id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The row of a kind.
pub fn fault_row(kind: FaultKind) -> &'static FaultRow {
    // The order is that of the words, which a test makes sure of.
    &FAULTS[kind as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_row() {
        let rows: Vec<&str> = FAULTS.iter().map(|r| r.kind.as_str()).collect();
        assert_eq!(rows, FaultKind::NAMES);
        for row in FAULTS {
            assert_eq!(fault_row(row.kind).kind, row.kind);
            assert!(!row.targets.is_empty() && row.purpose.len() > 20, "{}", row.kind);
        }
    }
}
