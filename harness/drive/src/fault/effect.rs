//! What a fault does to simulated hosts, to the way between them, to the inside of a cluster, and to the service, its database and
//! the way there. The families say it, each in its own file.

use std::net::IpAddr;
use std::time::Duration;

use uuid::Uuid;
use vlab_agents::{ClusterFault, HostFault, Reachability};
use vlab_model::lease::Times;
use vlab_scenario::{Cluster, Fault, Injection, LinkDirection, LockedTable, Span, WhichReplica};

use vlab_kube::Order;

use super::{control_plane, host, kube, network, service};
use crate::requests::Rule;

/// What a fault does, as far as simulated hosts are concerned.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Something is wrong with each host.
    Host(HostFault),
    /// Each host restarts.
    Reboot,
    /// The agent of each host restarts.
    RestartAgent,
    /// The way between hosts is like that.
    Link(Reachability, LinkDirection),
    /// Something is wrong with the cluster.
    Cluster(ClusterFault),
    /// Something is done to the service, to its database, or to the way there: nothing that hosts know of.
    Service(ServiceFault),
}

/// What is done to the service, to its database, or to the way there.
#[derive(Clone, Debug, PartialEq)]
pub enum ServiceFault {
    /// A program ends and is started again.
    Restart {
        /// The program that is restarted.
        who: Program,
        /// Which of it, where there are several.
        of: WhichReplica,
        /// With SIGKILL?
        kill: bool,
        /// It is down so long before it is started.
        down: Duration,
    },
    /// A program stands still, which of it where there are several.
    Pause(Program, WhichReplica),
    /// Each transaction that writes into the service's tables waits so long before its first write.
    SlowQueries(Duration),
    /// Whoever writes into this table waits: somebody else holds a lock on it.
    Lock(LockedTable),
    /// Some requests go wrong.
    Requests(Rule),
    /// Something goes wrong at the hub's API server.
    Hub(Order),
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
    /// How long things take with the lease of the service's controllers.
    fn lease(&self) -> Times;
}

/// What that fault does. The error says why it cannot be done.
///
/// # Errors
/// Something that the fault speaks of is not there.
pub fn effect(fault: &Fault, who: &dyn Lookup) -> Result<Effect, String> {
    match &fault.injection {
        Injection::Host(injection) => host::effect(injection, who),
        Injection::Network(injection) => network::effect(injection, who),
        Injection::ControlPlane(injection) => Ok(control_plane::effect(injection)),
        Injection::Service(injection) => service::effect(injection, &fault.name, who).map(Effect::Service),
        Injection::Kube(injection) => Ok(Effect::Service(ServiceFault::Hub(kube::effect(injection, who)))),
    }
}
