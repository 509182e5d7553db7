//! What each kind of fault does to a simulated host, to the way between hosts, to the inside of a cluster, and to the service,
//! its database and the way there.

use std::net::IpAddr;
use std::time::Duration;

use uuid::Uuid;
use vlab_agents::{ClusterFault, Garble, HostFault, Reachability};
use vlab_api::http::Method;
use vlab_api::types::{FinalizingStage, HostStage};
use vlab_scenario::{Cluster, Fault, FaultKind, ParamValue, Span};

use crate::requests::{Point, Rule, Select, Side, Wrong};

/// What a kind does, as far as simulated hosts are concerned.
#[derive(Clone, Debug, PartialEq)]
pub enum Doing {
    /// Something is wrong with each host.
    Host(HostFault),
    /// Each host restarts.
    Reboot,
    /// The agent of each host restarts.
    RestartAgent,
    /// The way between hosts is like that; in one direction only?
    Link(Reachability, bool),
    /// Something is wrong with the cluster.
    Cluster(Vec<ClusterFault>),
    /// Something is done to the service, to its database, or to the way there: nothing that hosts know of.
    Outside(Outside),
}

/// What is done to the service, to its database, or to the way there.
#[derive(Clone, Debug, PartialEq)]
pub enum Outside {
    /// A program ends and is started again.
    Restart {
        /// Which.
        who: Program,
        /// With SIGKILL?
        kill: bool,
        /// It is down so long before it is started.
        down: Duration,
    },
    /// A program stands still.
    Pause(Program),
    /// Each transaction that writes into the service's tables waits so long before its first write.
    SlowQueries(Duration),
    /// Some requests go wrong.
    Requests(Rule),
}

/// A program of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The service under test.
    Service,
    /// Its PostgreSQL.
    Postgres,
}

impl Program {
    /// For messages.
    pub const fn words(self) -> &'static str {
        match self {
            Program::Service => "the service",
            Program::Postgres => "PostgreSQL",
        }
    }
}

/// Who is who, for kinds that speak of another host.
pub trait Lookup {
    /// Id of the host with that name.
    fn id(&self, name: &str) -> Option<Uuid>;
    /// First address of the host with that name.
    fn address(&self, name: &str) -> Option<IpAddr>;
    /// The cluster that is hit.
    fn cluster(&self) -> Option<&Cluster>;
    /// A length of time by the run's clock.
    fn span(&self, span: Span) -> Duration;
}

/// A value that the checker has let through.
struct With<'a>(&'a Fault);

impl With<'_> {
    fn number(&self, name: &str) -> u64 {
        match self.0.with.get(name) {
            Some(ParamValue::Number(n)) => *n,
            _ => 0,
        }
    }
    fn small(&self, name: &str) -> u32 {
        u32::try_from(self.number(name)).unwrap_or(u32::MAX)
    }
    fn text(&self, name: &str) -> &str {
        match self.0.with.get(name) {
            Some(ParamValue::Text(text)) => text,
            _ => "",
        }
    }
    fn span(&self, name: &str) -> Span {
        match self.0.with.get(name) {
            Some(ParamValue::Span(span)) => *span,
            _ => Span::ZERO,
        }
    }
    fn stage(&self) -> Option<HostStage> {
        match self.0.with.get("stage") {
            Some(ParamValue::Stage(stage)) => Some(*stage),
            _ => None,
        }
    }
    fn finalizing_stage(&self) -> Option<FinalizingStage> {
        match self.0.with.get("stage") {
            Some(ParamValue::FinalizingStage(stage)) => Some(*stage),
            _ => None,
        }
    }
    fn address(&self) -> Result<IpAddr, String> {
        match self.0.with.get("address") {
            Some(ParamValue::Address(address)) => Ok(*address),
            _ => Err("the address is not known".to_owned()),
        }
    }
    /// One that need not be there.
    fn word(&self, name: &str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.is_empty()).map(str::to_owned)
    }
    fn count(&self, name: &str) -> Option<u64> {
        Some(self.number(name)).filter(|_| self.0.with.contains_key(name))
    }
    fn point(&self) -> Point {
        if self.text("lost") == "answer" { Point::Answer } else { Point::Request }
    }
    fn rule(&self, who: &dyn Lookup, wrong: Wrong) -> Result<Doing, String> {
        let host = match self.word("host") {
            None => None,
            Some(name) => Some(who.id(&name).ok_or_else(|| format!("there is no host {name}"))?),
        };
        let select = Select {
            side: match self.text("from") {
                "hosts" => Some(Side::Hosts),
                "user" => Some(Side::User),
                _ => None,
            },
            operation: self.word("operation"),
            path: self.word("path"),
            method: self.word("method").map(|name| Method::from_name(&name)),
            host,
        };
        let (percent, at_most) = (self.small("percent"), self.count("at_most"));
        let rule = Rule { fault: self.0.name.as_str().into(), select, percent, at_most, wrong };
        Ok(Doing::Outside(Outside::Requests(rule)))
    }
    fn one_way(&self) -> bool {
        self.text("direction") == "one-way"
    }
}

/// What that fault does. The error says why it cannot be done.
///
/// # Errors
/// A parameter that does not fit what is hit, for example an address of the other family.
pub fn doing(fault: &Fault, who: &dyn Lookup) -> Result<Doing, String> {
    let with = With(fault);
    let other = |name: &str| format!("there is no host {name}");
    let poor = |rtt_ms: f64, loss_percent: f64, mtu: i64| Reachability::Poor { rtt_ms, loss_percent, mtu };
    // Of a good link, as the simulated network has them.
    const GOOD_RTT_MS: f64 = 0.4;
    let host = |fault: HostFault| Ok(Doing::Host(fault));
    let cluster = |fault: ClusterFault| Ok(Doing::Cluster(vec![fault]));
    let stage = || with.stage().ok_or_else(|| "the stage is not known".to_owned());
    let restart = |program: Program, kill: bool| {
        Ok(Doing::Outside(Outside::Restart { who: program, kill, down: who.span(with.span("down")) }))
    };
    match fault.kind {
        FaultKind::Crash => host(HostFault::NoPower),
        FaultKind::Reboot => Ok(Doing::Reboot),
        FaultKind::AgentRestart => Ok(Doing::RestartAgent),
        FaultKind::SlowPolls => host(HostFault::SlowPolls(who.span(with.span("every")))),
        FaultKind::SilentAgent => host(HostFault::SilentAgent),
        FaultKind::Disconnect => host(HostFault::Offline),
        FaultKind::DuplicateId => {
            let name = with.text("of");
            host(HostFault::IdOf(who.id(name).ok_or_else(|| other(name))?))
        }
        FaultKind::ClockSkew => {
            let seconds = i64::try_from(with.number("seconds")).unwrap_or(i64::MAX);
            host(HostFault::Clock(if with.text("direction") == "behind" { -seconds } else { seconds }))
        }
        FaultKind::NtpUnreachable => host(HostFault::NoNtp),
        FaultKind::FewCores => host(HostFault::Cores(with.small("cores"))),
        FaultKind::LittleMemory => host(HostFault::MemoryBytes(with.number("mib") << 20)),
        FaultKind::SmallDisks => host(HostFault::DiskBytes(with.number("gb") * 1_000_000_000)),
        FaultKind::SlowDisk => host(HostFault::FsyncMs(with.small("fsync_ms"))),
        FaultKind::DiskFails => host(HostFault::DiskFailsAt(with.small("percent"))),
        FaultKind::ImageUnavailable => host(HostFault::NoImage(with.text("image").to_owned())),
        FaultKind::WrongHostname => host(HostFault::Hostname(with.text("name").to_owned())),
        FaultKind::WrongBootOrder => host(HostFault::BootsDiscovery),
        FaultKind::StuckStage => host(HostFault::StuckAt(stage()?)),
        FaultKind::InstallerFails => host(HostFault::FailsAt(stage()?, with.text("text").to_owned())),
        FaultKind::LogsLost => host(HostFault::NoLogs),
        FaultKind::BadInventory => host(HostFault::Inventory(match with.text("form") {
            "malformed" => Garble::Malformed,
            "truncated" => Garble::Truncated,
            _ => Garble::Huge(usize::try_from(with.number("mib") << 20).unwrap_or(usize::MAX)),
        })),
        FaultKind::MediaLost => host(HostFault::NoMedia),
        FaultKind::UplinkCut => host(HostFault::NoUplink),
        FaultKind::NoAddress => host(HostFault::NoAddress),
        FaultKind::DuplicateAddress => {
            let name = with.text("of");
            host(HostFault::Address(who.address(name).ok_or_else(|| format!("the host {name} has no address"))?))
        }
        FaultKind::Partition => Ok(Doing::Link(Reachability::Cut, with.one_way())),
        FaultKind::Latency => Ok(Doing::Link(poor(with.number("rtt_ms") as f64, 0.0, i64::MAX), with.one_way())),
        FaultKind::PacketLoss => {
            Ok(Doing::Link(poor(GOOD_RTT_MS, with.number("percent") as f64, i64::MAX), with.one_way()))
        }
        FaultKind::MtuBlackHole => {
            let bytes = i64::try_from(with.number("bytes")).unwrap_or(i64::MAX);
            Ok(Doing::Link(poor(GOOD_RTT_MS, 0.0, bytes), with.one_way()))
        }
        FaultKind::VipTaken => {
            let plan = who.cluster().ok_or("there is no such cluster")?;
            let (vips, what) = match with.text("vip") {
                "ingress" => (&plan.ingress_vips, "ingress"),
                _ => (&plan.api_vips, "API"),
            };
            let vip = vips.first().ok_or_else(|| format!("the cluster {} has no {what} address", plan.name))?;
            cluster(ClusterFault::AddressTaken(*vip))
        }
        FaultKind::DnsMissing => names(who, with.text("name"), None),
        FaultKind::DnsWrong => names(who, with.text("name"), Some(with.address()?)),
        FaultKind::DnsWildcard => {
            let plan = who.cluster().ok_or("there is no such cluster")?;
            let domain = format!("*.{}.{}", plan.name, plan.base_domain);
            cluster(ClusterFault::Dns(domain.to_ascii_lowercase(), Some(with.address()?)))
        }
        FaultKind::ApiUnreachable => cluster(ClusterFault::NoApi),
        FaultKind::IgnitionUnreachable => cluster(ClusterFault::NoMachineConfigServer),
        FaultKind::NeverJoins => host(HostFault::NeverJoins),
        FaultKind::CsrNotApproved => host(HostFault::NoCertificate),
        FaultKind::BootkubeFails => cluster(ClusterFault::BootkubeFails),
        FaultKind::BootkubeHangs => cluster(ClusterFault::BootkubeHangs),
        FaultKind::EtcdStuck => cluster(ClusterFault::EtcdStays),
        FaultKind::QuorumLost => cluster(ClusterFault::QuorumLost),
        FaultKind::OperatorDegraded => cluster(ClusterFault::OperatorDegraded(with.text("operator").to_owned())),
        FaultKind::FinalizingStuck => {
            let stage = with.finalizing_stage().ok_or("the stage is not known")?;
            cluster(ClusterFault::FinalizingStuck(stage))
        }
        FaultKind::ServiceRestart => restart(Program::Service, false),
        FaultKind::ServiceKill => restart(Program::Service, true),
        FaultKind::ServicePause => Ok(Doing::Outside(Outside::Pause(Program::Service))),
        FaultKind::PostgresRestart => restart(Program::Postgres, false),
        FaultKind::PostgresKill => restart(Program::Postgres, true),
        FaultKind::PostgresUnreachable => Ok(Doing::Outside(Outside::Pause(Program::Postgres))),
        FaultKind::SlowQueries => Ok(Doing::Outside(Outside::SlowQueries(Duration::from_millis(with.number("ms"))))),
        FaultKind::HttpError => {
            let status = u16::try_from(with.number("status")).unwrap_or(503);
            with.rule(who, Wrong::Status { status, retry_after: with.count("retry_after") })
        }
        FaultKind::SlowAnswer => with.rule(who, Wrong::Late(who.span(with.span("by")))),
        FaultKind::DroppedConnection => with.rule(who, Wrong::Dropped(with.point())),
        FaultKind::ResetConnection => with.rule(who, Wrong::Reset(with.point())),
        FaultKind::StaleKeepAlive => with.rule(who, Wrong::StaleKeepAlive),
    }
}

/// The names of a cluster that a word means. The service asks for several below `apps`.
fn names(who: &dyn Lookup, name: &str, answer: Option<IpAddr>) -> Result<Doing, String> {
    let plan = who.cluster().ok_or("there is no such cluster")?;
    let domain = format!("{}.{}", plan.name, plan.base_domain).to_ascii_lowercase();
    let full = match name {
        "apps" => format!("console-openshift-console.apps.{domain}"),
        other => format!("{other}.{domain}"),
    };
    Ok(Doing::Cluster(vec![ClusterFault::Dns(full, answer)]))
}
