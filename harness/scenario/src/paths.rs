//! What the tables of the model say about the sequences of an expectation.

use std::collections::BTreeMap;

use vlab_api::types::{HostRole, HostStage};
use vlab_model::stages::{StageRole, stages_of};
use vlab_model::{cluster, host};

use crate::types::{Cluster, Host, Subject};
use crate::words::{RoleName, Topology};

/// Does some rule lead a host from one status to the other?
pub(crate) fn host_edge(from: &str, to: &str) -> bool {
    host::RULES.iter().chain(host::POOL_RULES).any(|r| r.to.as_str() == to && r.from.iter().any(|f| f.as_str() == from))
        || host::OUTSIDE_THE_MACHINE.iter().any(|(f, t, _)| f.as_str() == from && t.as_str() == to)
}

/// Does some rule lead a cluster from one status to the other?
pub(crate) fn cluster_edge(from: &str, to: &str) -> bool {
    cluster::RULES.iter().any(|r| r.to.as_str() == to && r.from.iter().any(|f| f.as_str() == from))
        || cluster::OUTSIDE_THE_MACHINE.iter().any(|(f, t, _)| f.as_str() == from && t.as_str() == to)
}

/// The lists of stages that hosts of the subject can have, each with words for who has it. Nothing for what is no host.
pub(crate) fn stage_lists(
    subject: &Subject,
    clusters: &[Cluster],
    hosts: &[Host],
    member: &BTreeMap<&str, Option<&str>>,
) -> Vec<(String, &'static [HostStage])> {
    let topology = |name: &str| clusters.iter().find(|c| c.name == name).map(|c| c.topology);
    let list = |role: StageRole| {
        let who = match role {
            StageRole::Bootstrap => "a bootstrap host",
            StageRole::Master => "a master",
            StageRole::Worker => "a worker",
            StageRole::Added => "a host that is added",
            StageRole::SingleNode => "a single node",
        };
        (who.to_owned(), stages_of(role))
    };
    let mut roles: Vec<StageRole> = vec![];
    let mut add = |role: StageRole| {
        if !roles.contains(&role) {
            roles.push(role);
        }
    };
    match subject {
        Subject::Role { role, cluster } => match (topology(cluster), role) {
            (Some(Topology::Sno), _) => add(StageRole::SingleNode),
            (_, RoleName::Bootstrap) => add(StageRole::Bootstrap),
            (_, RoleName::Master | RoleName::Arbiter) => add(StageRole::Master),
            (_, RoleName::Worker) => add(StageRole::Worker),
        },
        Subject::Hosts(names) => {
            for host in hosts.iter().filter(|h| names.contains(&h.name)) {
                let Some(cluster) = member.get(host.name.as_str()).copied().flatten() else { continue };
                match (topology(cluster), host.role) {
                    _ if host.day2 => add(StageRole::Worker),
                    (Some(Topology::Sno), _) => add(StageRole::SingleNode),
                    (_, HostRole::Worker) => add(StageRole::Worker),
                    (_, HostRole::Arbiter) => add(StageRole::Master),
                    (_, HostRole::AutoAssign) => {
                        add(StageRole::Bootstrap);
                        add(StageRole::Master);
                        add(StageRole::Worker);
                    }
                    // Which master is the bootstrap, the service decides.
                    (_, HostRole::Master | HostRole::Bootstrap) => {
                        add(StageRole::Bootstrap);
                        add(StageRole::Master);
                    }
                }
            }
        }
        Subject::Cluster(_) | Subject::Run => {}
    }
    roles.into_iter().map(list).collect()
}
