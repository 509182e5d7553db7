//! Many simulated hosts, and the controllers of their clusters, as one [`Actor`].

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::actor::{Actor, Connection, Reply, Send};
use vlab_model::history::What;

use crate::plan::{ClusterPlan, FleetConfig, HostPlan};

/// Who uses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionUse {
    /// The host at that position of the fleet.
    Host(usize),
    /// The controller inside the cluster at that position.
    Controller(usize),
}

/// Many simulated hosts. Connection i is that of host i as given to [`Fleet::new`]; the controllers of the clusters follow;
/// what is added later gets the next free numbers ([`Fleet::connection_use`] tells).
#[derive(Debug)]
pub struct Fleet {
    _config: FleetConfig,
}

impl Fleet {
    /// A fleet; nothing happens before the first `wake`.
    pub fn new(config: FleetConfig, clusters: Vec<ClusterPlan>, hosts: Vec<HostPlan>) -> Self {
        let _ = (clusters, hosts);
        Self { _config: config }
    }

    /// One more cluster; its position for [`HostPlan::cluster`].
    pub fn add_cluster(&mut self, _plan: ClusterPlan) -> usize {
        unimplemented!("fleet")
    }

    /// More hosts; the position of the first of them.
    pub fn add_hosts(&mut self, _now: Timestamp, _hosts: Vec<HostPlan>) -> usize {
        unimplemented!("fleet")
    }

    /// How many connections the fleet uses: 0 up to (not including) this.
    pub fn connection_count(&self) -> u32 {
        unimplemented!("fleet")
    }

    /// Who uses that connection.
    pub fn connection_use(&self, _connection: Connection) -> Option<ConnectionUse> {
        unimplemented!("fleet")
    }

    /// Position of the host with that id.
    pub fn host_position(&self, _host_id: Uuid) -> Option<usize> {
        unimplemented!("fleet")
    }

    /// What the hosts saw and did since the last call: steps given, answered and not sent again, what happened on hosts and
    /// inside clusters.
    pub fn take_observations(&mut self) -> Vec<(Timestamp, What)> {
        unimplemented!("fleet")
    }
}

impl Actor for Fleet {
    fn wake(&mut self, _now: Timestamp) {
        unimplemented!("fleet")
    }
    fn deliver(&mut self, _now: Timestamp, _reply: Reply) {
        unimplemented!("fleet")
    }
    fn take_sends(&mut self) -> Vec<Send> {
        unimplemented!("fleet")
    }
    fn next_wake(&self) -> Option<Timestamp> {
        unimplemented!("fleet")
    }
    fn is_finished(&self) -> bool {
        unimplemented!("fleet")
    }
}
