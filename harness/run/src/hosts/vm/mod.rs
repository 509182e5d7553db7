//! Virtual machines, made with libvirt: whether this computer can run some, their network, their medium, what becomes of them
//! and what they say.
//!
//! The conductor knows machines as hosts that are there; it tells what is to be done to them ([`MachineOrder`]), and learns what
//! happened ([`News`]). What is planned is in [`plan`], without I/O.
//!
//! [`MachineOrder`]: vlab_drive::conductor::MachineOrder
//! [`News`]: super::News

mod console;
mod events;
mod faults;
mod freeze;
mod inside;
mod medium;
pub mod plan;
mod power;
pub mod programs;
mod running;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use vlab_drive::addresses::gateway_of;
use vlab_drive::prepare::Prepared;
use vlab_drive::target::Target;
use vlab_judge::result::RunResult;
use vlab_lab::ledger::Ledger;
use vlab_lab::machines::probe::{self, Acceleration};
use vlab_lab::machines::{Accel, Machine, memory};
use vlab_scenario::{HostKind, Need};

pub use self::medium::{lab_iso, whole};
use self::plan::{Plan, PlannedMachine, images_url, plan};
use self::running::VirtualLab;
use super::{HostFile, HostProvider, HostsOrder, RunningHosts};
use crate::error::{LabError, lab};
use crate::service::{BoxFuture, Inside};

/// This place can run virtual machines.
#[derive(Clone, Debug)]
pub struct Ability {
    /// What runs their processors.
    pub acceleration: Acceleration,
}

/// Can this place run virtual machines? Examines it (a second or two): QEMU, libvirt with our helper, the lab network.
///
/// # Errors
/// Why not, and what to do.
pub async fn ability(runs: &Path) -> Result<Ability, String> {
    vlab_lab::machines::find_helper().map_err(|error| error.to_string())?;
    for need in [Need::Libvirt, Need::Netns] {
        if let Some(reason) = crate::needs::lacking(&need, runs).await {
            return Err(format!("{need}: {reason}"));
        }
    }
    let probed = tokio::task::spawn_blocking(probe::probe).await.map_err(|panic| panic.to_string())?;
    Ok(Ability { acceleration: probed.map_err(|error| error.to_string())? })
}

/// Would all machines of a plan fit into this machine's memory? Asked before anything is made.
///
/// # Errors
/// The refusal, with all numbers.
fn fits(ledger: &Arc<Ledger>, plan: &Plan, accel: Accel) -> Result<(), LabError> {
    let wanted = plan.machines.iter().map(|machine| memory::need(&machine.spec, accel)).sum();
    memory::reserve(ledger, wanted).map(drop).map_err(lab("memory"))
}

/// The machines that are on, by the name of their host.
type Made = Arc<Mutex<BTreeMap<String, Arc<Machine>>>>;

/// Name of a host's console in the run's folder.
pub fn console_file(host: &str) -> String {
    format!("{host}.console.log")
}

/// Name of the picture of a host's screen in the run's folder.
pub fn screenshot_file(host: &str) -> String {
    format!("{host}.screen.png")
}

/// The provider of virtual machines.
#[derive(Clone, Copy, Debug)]
pub struct Libvirt;

impl HostProvider for Libvirt {
    fn kind(&self) -> HostKind {
        HostKind::Vm
    }

    fn start<'a>(
        &'a self,
        order: &'a HostsOrder<'a>,
        result: &'a mut RunResult,
    ) -> BoxFuture<'a, Result<Box<dyn RunningHosts>, LabError>> {
        Box::pin(async move { Ok(Box::new(start(order, result).await?) as Box<dyn RunningHosts>) })
    }

    fn files(&self, prepared: &Prepared) -> Vec<HostFile> {
        let hosts = prepared.scenario.hosts.iter().filter(|host| host.kind == self.kind());
        let file = |name: String, what: String, log: bool| HostFile { name, what, log };
        let of_hosts = hosts.flat_map(|host| {
            [
                file(console_file(&host.name), format!("console of {}", host.name), true),
                file(inside::log_file(&host.name), format!("what faults inside of {} said", host.name), true),
                file(screenshot_file(&host.name), format!("screen of {} at the end", host.name), false),
            ]
        });
        let of_all = [
            file("machines.log".to_owned(), "log of the program that runs the machines".to_owned(), true),
            file("network/dnsmasq.log".to_owned(), "DHCP and DNS of the lab network".to_owned(), true),
        ];
        of_hosts.chain(of_all).collect()
    }
}

async fn start(order: &HostsOrder<'_>, result: &mut RunResult) -> Result<VirtualLab, LabError> {
    let scenario = &order.prepared.scenario;
    let ability = match order.ability {
        Some(ability) => ability.clone(),
        None => ability(order.runs).await.map_err(lab("virtual machines"))?,
    };
    let plan = plan(order.prepared).map_err(lab("virtual machines"))?;
    result.environment.extend(about_machines(&plan.machines, &ability));
    let accel = ability.acceleration.accel;
    fits(order.ledger, &plan, accel)?;
    (order.tell)(&format!("virtual machines: {}", ability.acceleration.why));
    let iso = match &scenario.infra_env.iso {
        // Its images are made of what it has.
        _ if plan.service.is_foreign => std::path::PathBuf::new(),
        Some(iso) => std::path::absolute(iso).map_err(lab("infra_env.iso"))?,
        None => tokio::select! {
            built = lab_iso(order.tell) => built.map_err(lab("lab images"))?,
            () = order.interrupted.cancelled() => return Err(LabError::interrupted()),
        },
    };
    let base_url = plan.service.base_url.clone();
    let images_url = match order.prepared.target {
        // It has its own.
        Target::Simulated | Target::Remote { .. } => base_url.clone(),
        _ => images_url(gateway_of(scenario).ok_or_else(|| LabError::new("lab network", "there is no gateway"))?),
    };
    let inside = Inside { base_url, images_url, iso };
    let machines = VirtualLab::start(order, accel, plan, inside).await?;
    result.run.versions.extend(machines.versions().map(|(name, version)| (name.to_owned(), version)));
    Ok(machines)
}

/// What is known of the machines before they are there.
fn about_machines(machines: &[PlannedMachine], ability: &Ability) -> BTreeMap<String, String> {
    let of = |words: &dyn Fn(&PlannedMachine) -> String| {
        let words: Vec<String> = machines
            .iter()
            .map(|machine| (machine, words(machine)))
            .filter(|(_, words)| !words.is_empty())
            .map(|(machine, words)| format!("{}: {words}", machine.spec.name))
            .collect();
        words.join("; ")
    };
    let mut about = BTreeMap::from([
        ("acceleration".to_owned(), ability.acceleration.why.clone()),
        ("machines".to_owned(), of(&|machine| machine.is.clone())),
    ]);
    let declared = of(&|machine| machine.declared.join(", "));
    if !declared.is_empty() {
        about.insert("declared, not there".to_owned(), declared);
    }
    about
}
