//! Does a plan fit this computer? What cannot is refused with the numbers, before anything is sent.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use vlab_scenario::{LoadMode, LoadPlan};

use crate::schedule::Part;

/// Descriptors that the generator needs beside its connections.
const OWN_DESCRIPTORS: u64 = 64;
/// Memory of a host with a connection of its own, in KiB: an estimate on the safe side.
const KIB_PER_HOST: u64 = 24;
/// Memory of a host in a cluster, with its share of the cluster, its user and what was seen of them.
const KIB_PER_HOST_IN_A_CLUSTER: u64 = 400;
/// The user of an installation has two connections, and the controller in the cluster one.
const CONNECTIONS_OF_INSTALLATION: u64 = 3;
/// Ports for connections from one source address to one service, as Linux has them.
const PORTS_OF_ADDRESS: u64 = 28_000;

/// What this computer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Descriptors that a process may have, at most.
    pub descriptors: u64,
    /// Memory that is free, in KiB.
    pub free_kib: u64,
    /// Is the service on this computer? From its loopback interface there are more source addresses than one.
    pub service_is_here: bool,
}

impl Machine {
    /// This one. The limit of descriptors is raised as far as it may be.
    pub fn this(service_is_here: bool) -> Self {
        let hard = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(_, hard)| hard);
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let free = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
        let free_kib = free.and_then(|text| text.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0);
        Self { descriptors: hard, free_kib, service_is_here }
    }
}

/// Installations of a plan.
fn installations(plan: &LoadPlan) -> u64 {
    if plan.mode != LoadMode::Installs {
        return 0;
    }
    plan.clusters.iter().map(|clusters| u64::from(clusters.count)).sum()
}

/// Connections of a part of a plan.
fn connections(plan: &LoadPlan, part: Part) -> u64 {
    let hosts = u64::from(plan.hosts.div_ceil(part.of.max(1)));
    let others = installations(plan).div_ceil(u64::from(part.of.max(1))) * CONNECTIONS_OF_INSTALLATION;
    plan.pool.map_or(hosts, |pool| u64::from(pool.min(plan.hosts))) + others
}

/// Why that part of a plan does not fit, one line each. `stub`: the part whose connections end at a stub in the process that asks,
/// where there is one; that starts others for the parts of it, or carries it out itself.
pub fn refusals(plan: &LoadPlan, part: Part, machine: Machine, stub: Option<Part>) -> Vec<String> {
    let (hosts, connections) = (u64::from(plan.hosts.div_ceil(part.of.max(1))), connections(plan, part));
    let installations = installations(plan);
    let ends = stub.map_or(0, |stub| self::connections(plan, stub));
    let per_host = if installations > 0 { KIB_PER_HOST_IN_A_CLUSTER } else { KIB_PER_HOST };
    let mut all = Vec::new();
    let descriptors = connections + OWN_DESCRIPTORS;
    let both = if stub == Some(part) { connections + ends } else { ends };
    if ends > 0 && both + OWN_DESCRIPTORS > machine.descriptors {
        let whose = if stub == Some(part) { "both ends of " } else { "the stub's ends of " };
        all.push(format!(
            "{whose}{ends} connections and {OWN_DESCRIPTORS} other files are {} descriptors, and a process may have {}: raise the \
             hard limit (`ulimit -Hn`), give the `--url` of a stub of its own (`vlab load stub`), or use `connections: pooled`",
            both + OWN_DESCRIPTORS,
            machine.descriptors
        ));
    } else if descriptors > machine.descriptors {
        all.push(format!(
            "{connections} connections and {OWN_DESCRIPTORS} other files are {descriptors} descriptors, and a process may have \
             {}: raise the hard limit (`ulimit -Hn`), use `--workers {}`, or `connections: pooled`",
            machine.descriptors,
            descriptors.div_ceil(machine.descriptors.max(1)).max(2)
        ));
    }
    let kib = hosts * per_host;
    if kib > machine.free_kib {
        all.push(format!(
            "{hosts} hosts of {per_host} KiB each are {} MiB, and {} MiB of memory are free",
            kib / 1024,
            machine.free_kib / 1024
        ));
    }
    if connections > PORTS_OF_ADDRESS && !machine.service_is_here {
        all.push(format!(
            "{connections} connections to one service need more ports than the {PORTS_OF_ADDRESS} that one source address has: \
             spread the plan over several computers (`--partition`), or use `connections: pooled`"
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_scenario::{Catalogue, SourceFile, load_plan};

    use super::*;

    const BIG: Machine = Machine { descriptors: 1 << 20, free_kib: 1 << 30, service_is_here: true };

    /// Both ends are in one process, or the stub's are in the one that has started the others.
    #[rstest]
    #[case(40_000, 1, Some("both ends of 30000 connections and 64 other files are 60064 descriptors"))]
    #[case(40_000, 4, None)]
    #[case(20_000, 4, Some("the stub's ends of 30000 connections and 64 other files are 30064 descriptors"))]
    #[case(70_000, 1, None)]
    fn the_ends_at_a_stub_count(#[case] descriptors: u64, #[case] workers: u32, #[case] says: Option<&str>) {
        let text = "version: 1\nname: p\nmode: idle\npopulation: {unbound: 30000}\nphases: [ramp: 1s]";
        let plan = load_plan(&SourceFile::new("p.yaml", text), &Catalogue::embedded()).unwrap();
        let machine = Machine { descriptors, ..BIG };
        let said = refusals(&plan, Part { index: 0, of: workers }, machine, Some(Part { index: 0, of: 1 }));
        match says {
            None => assert_eq!(said, [] as [&str; 0]),
            Some(says) => {
                assert!(said.len() == 1 && said[0].contains(says) && !said[0].contains("--workers"), "{said:?}")
            }
        }
    }

    #[rstest]
    #[case::fits(BIG, "", 1, None)]
    #[case::descriptors(Machine { descriptors: 20_000, ..BIG }, "", 1, Some("30000 connections and 64 other files are 30064 descriptors, and a process may have 20000"))]
    #[case::two_parts(Machine { descriptors: 20_000, ..BIG }, "", 2, None)]
    #[case::pooled(Machine { descriptors: 100, ..BIG }, "connections: pooled\npool: 16\n", 1, None)]
    #[case::memory(Machine { free_kib: 1024, ..BIG }, "", 1, Some("30000 hosts of 24 KiB each are 703 MiB, and 1 MiB of memory are free"))]
    #[case::ports(Machine { service_is_here: false, ..BIG }, "", 1, Some("more ports than the 28000"))]
    fn what_does_not_fit_is_refused_with_the_numbers(
        #[case] machine: Machine,
        #[case] more: &str,
        #[case] parts: u32,
        #[case] says: Option<&str>,
    ) {
        let text = format!("version: 1\nname: p\nmode: idle\npopulation: {{unbound: 30000}}\n{more}phases: [ramp: 1s]");
        let plan = load_plan(&SourceFile::new("p.yaml", text), &Catalogue::embedded()).unwrap();
        let said = refusals(&plan, Part { index: 0, of: parts }, machine, None);
        match says {
            None => assert_eq!(said, [] as [&str; 0]),
            Some(says) => assert!(said.len() == 1 && said[0].contains(says), "{said:?}"),
        }
    }
}
