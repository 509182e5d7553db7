//! Faults of the inside of a cluster: what they do to a simulated one, and to machines.

use vlab_agents::{ClusterFault, HostFault};
use vlab_model::disturbance::OPERATORS;
use vlab_scenario::{Cluster, ControlPlaneInjection, Scenario};

use super::effect::Effect;
use super::machine::{InsideFault, MachineFault, has_machines};

/// Ports of a cluster's API and of its machine-config server.
const API: &[u16] = &[6443, 22623, 22624];
/// Those of etcd, for clients and between members: without them nobody joins, and members have no quorum.
const ETCD: &[u16] = &[2379, 2380];
/// What an installed machine asks before it is a node: etcd of the masters, and the API. Its config it gets.
const JOINING: &[u16] = &[2379, 2380, 6443];
/// That of the machine-config server alone.
const MACHINE_CONFIG: &[u16] = &[22623, 22624];

/// What it does to a simulated cluster, or to its hosts.
pub(super) fn effect(injection: &ControlPlaneInjection) -> Effect {
    Effect::Cluster(match injection {
        ControlPlaneInjection::NeverJoins => return Effect::Host(HostFault::NeverJoins),
        ControlPlaneInjection::CsrNotApproved => return Effect::Host(HostFault::NoCertificate),
        ControlPlaneInjection::ApiUnreachable => ClusterFault::NoApi,
        ControlPlaneInjection::IgnitionUnreachable => ClusterFault::NoMachineConfigServer,
        ControlPlaneInjection::BootkubeFails => ClusterFault::BootkubeFails,
        ControlPlaneInjection::BootkubeHangs => ClusterFault::BootkubeHangs,
        ControlPlaneInjection::EtcdStuck => ClusterFault::EtcdStays,
        ControlPlaneInjection::QuorumLost => ClusterFault::QuorumLost,
        ControlPlaneInjection::OperatorDegraded { operator } => ClusterFault::OperatorDegraded(operator.clone()),
        ControlPlaneInjection::FinalizingStuck { stage } => ClusterFault::FinalizingStuck(*stage),
    })
}

/// What it does to the lab's network. `cluster` is the one that is hit, if its machines are in that network; `None`: machines
/// cannot have it.
pub(super) fn on_machines(
    injection: &ControlPlaneInjection,
    scenario: &Scenario,
    cluster: Result<&Cluster, String>,
) -> Result<Option<MachineFault>, String> {
    let ports = match injection {
        ControlPlaneInjection::ApiUnreachable => API,
        ControlPlaneInjection::IgnitionUnreachable => MACHINE_CONFIG,
        ControlPlaneInjection::EtcdStuck | ControlPlaneInjection::QuorumLost => ETCD,
        ControlPlaneInjection::NeverJoins => {
            let alone = |cluster: &Cluster| {
                has_machines(scenario, &cluster.name) && scenario.hosts_ever_of(&cluster.name).count() == 1
            };
            return match scenario.clusters.iter().any(alone) {
                true => Err(SELF.to_owned()),
                false => Ok(Some(MachineFault::Mute(JOINING))),
            };
        }
        ControlPlaneInjection::CsrNotApproved => return Ok(Some(MachineFault::Inside(InsideFault::NoCertificate))),
        ControlPlaneInjection::BootkubeFails => {
            return cluster.map(|_| Some(MachineFault::Inside(InsideFault::BootkubeFails)));
        }
        ControlPlaneInjection::BootkubeHangs => {
            return cluster.map(|_| Some(MachineFault::Inside(InsideFault::BootkubeHangs)));
        }
        ControlPlaneInjection::OperatorDegraded { operator } => {
            return match OPERATORS.contains(&operator.as_str()) {
                true => cluster.map(|_| Some(MachineFault::Inside(InsideFault::OperatorDegraded(operator.clone())))),
                false => Err(format!("the clusters of machines have the operators {}", OPERATORS.join(", "))),
            };
        }
        ControlPlaneInjection::FinalizingStuck { .. } => return Ok(None),
    };
    match scenario.hosts_of(Some(&cluster?.name)).count() {
        1 => Err(SELF.to_owned()),
        _ => Ok(Some(MachineFault::Closed(ports))),
    }
}

/// What it says to itself does not go over the network.
const SELF: &str = "a single node reaches itself, whatever happens to the network";
