//! The same host on a real machine. A simulated host does its work by waiting; one with real hands says what is to be done and is
//! told what came of it. Registration, polling, tries, the cache of answers, the installer's script and the controller's loops
//! stay what they are in this crate: there is one implementation of each.

use std::sync::Arc;

use uuid::Uuid;
use vlab_api::Timestamp;

use crate::cluster::NodeState;
use crate::installer::{File, Job};
use crate::plan::HostPlan;
use crate::profile::{BootProfile, CpuProfile, HardwareProfile, HostAddresses, MemoryProfile, VendorProfile};
use crate::steps::StepAnswer;

/// Who does the work of a fleet's hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Hands {
    /// Nobody: it takes the time that the fleet's timing says, and answers come from the hardware profile.
    #[default]
    Simulated,
    /// Whoever drives the fleet: see [`Work`].
    Real,
}

/// Something that is to be done on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// A step of the service. Answer with [`crate::Fleet::step_ran`].
    Step {
        /// Which one, to be given back.
        serial: u32,
        /// Type on the wire.
        step_type: String,
        /// Its arguments.
        args: Vec<String>,
    },
    /// The installer got a file of the service. No answer.
    Got(File, Vec<u8>),
    /// A line of the installer's script. Answer with [`crate::Fleet::job_done`]; while the image is written tell
    /// percentages with [`crate::Fleet::job_progress`].
    Job {
        /// Which one, to be given back.
        token: u32,
        /// The work to be done.
        job: Job,
    },
    /// The installer reported that it failed. No answer: it does nothing more.
    Failed(String),
    /// The machine is to reboot, now. No answer.
    Reboot,
}

/// What came of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// The answer for the service.
    pub answer: StepAnswer,
    /// What `logs-gather` gathered: sent before the answer.
    pub archive: Vec<u8>,
}

/// What is known of a real cluster, as the installer and the controller look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Nodes by the position of their hosts in the fleet.
    pub nodes: Vec<ObservedNode>,
    /// bootkube is through.
    pub bootkube_done: bool,
    /// etcd runs on the masters only.
    pub etcd_bootstrap_done: bool,
    /// The controller is to run.
    pub controller_runs: bool,
    /// The controller told the cluster that it is ready.
    pub controller_ready: bool,
    /// Operators that are available.
    pub operators: Vec<String>,
    /// The router has its certificate.
    pub router_ca: bool,
}

/// A node of a real cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedNode {
    /// Position of its host in the fleet.
    pub position: usize,
    /// How far it is.
    pub state: NodeState,
    /// Belongs to the control plane.
    pub is_master: bool,
    /// When it fetched its ignition from the machine-config server, if that was seen.
    pub ignition_fetched: Option<Timestamp>,
}

impl HostPlan {
    /// A real machine: what it is made of is not planned but found. It registers at `start_at`.
    pub fn real(index: u32, name: String, host_id: Uuid, infra_env_id: Uuid, start_at: Timestamp) -> Self {
        let profile = HardwareProfile {
            name: "real".into(),
            description: String::new(),
            vendor: VendorProfile::default(),
            cpu: CpuProfile::default(),
            memory: MemoryProfile::default(),
            disks: Vec::new(),
            nics: Vec::new(),
            boot: BootProfile::default(),
            tpm: "none".into(),
        };
        Self {
            index,
            name,
            host_id,
            infra_env_id,
            cluster: None,
            profile: Arc::new(profile),
            addresses: HostAddresses::default(),
            boot: None,
            medium_first: false,
            registry_on_medium: false,
            start_at,
        }
    }
}
