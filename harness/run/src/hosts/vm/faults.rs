//! What faults do to machines and to what is between them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use uuid::Uuid;
use vlab_drive::fault::machine::{InsideFault, MachineFault};
use vlab_lab::machines::{DiskFault, Machine};
use vlab_lab::network::{Network, Peer};
use vlab_lab::ssh::Door;
use vlab_model::disturbance::Frames;
use vlab_model::history::{Source, What};
use vlab_scenario::FaultPhase;

use super::plan::PlannedCluster;
use super::{Made, inside};
use crate::error::LabError;
use crate::hosts::News;

/// What faults have to do with.
pub(super) struct Reach {
    pub(super) made: Made,
    pub(super) network: Arc<Network>,
    /// The discovery images that were fetched, by machine.
    pub(super) media: BTreeMap<String, PathBuf>,
    /// The clusters of machines, by name.
    pub(super) clusters: BTreeMap<String, PlannedCluster>,
    /// The way into machines.
    pub(super) door: Door,
    /// The run's folder.
    pub(super) folder: PathBuf,
}

/// Between two tries to do something inside of a machine, which may be on its way from one system to another: at first, and at most.
const AGAIN: Duration = Duration::from_secs(2);
const AGAIN_AT_MOST: Duration = Duration::from_secs(10);
/// So often it is tried to undo something inside of a machine, which may be off.
const UNDO_TRIES: u32 = 3;

/// A fault that begins or ends on one machine.
pub(super) struct Injection {
    pub(super) reach: Arc<Reach>,
    /// Name of the fault.
    pub(super) name: String,
    pub(super) fault: MachineFault,
    pub(super) machine: String,
    /// The host, where one is hit in particular.
    pub(super) host: Option<Uuid>,
    /// Of a link the other end; of what is done inside of a cluster its machines.
    pub(super) to: Vec<String>,
    pub(super) undo: bool,
    pub(super) news: mpsc::UnboundedSender<News>,
    /// Told whenever a machine is on for the first time.
    pub(super) grown: watch::Receiver<()>,
    /// What became of faults so far.
    pub(super) injected: Arc<Mutex<Injected>>,
    /// How many are just being done.
    pub(super) at_work: Arc<watch::Sender<usize>>,
}

/// What became of faults so far.
#[derive(Debug, Default)]
pub(super) struct Injected {
    /// Faults that are over.
    pub(super) over: BTreeSet<String>,
    /// What was done inside of machines: fault, machine.
    done: BTreeSet<(String, String)>,
    /// What could not be done inside of machines so far, and why.
    failing: BTreeMap<(String, String), String>,
}

impl Injected {
    /// What the lab has not managed: with it the run proves nothing. What is done to a cluster through any of its machines
    /// (`of_cluster`) was managed where one of them had it.
    pub(super) fn unmanaged(&self, of_cluster: impl Fn(&str) -> bool) -> Vec<LabError> {
        let somewhere = |fault: &str| self.done.iter().any(|(done, _)| done == fault);
        let open = self.failing.iter().filter(|((fault, _), _)| !(of_cluster(fault) && somewhere(fault)));
        let error = |((fault, machine), why): (&(String, String), &String)| {
            LabError::new("faults in machines", format!("{fault} could not be injected into {machine}: {why}"))
        };
        open.map(error).collect()
    }
}

/// One that is just being done: who ends the run waits a moment for it, because its effect may be what ended it.
struct AtWork<'a>(&'a watch::Sender<usize>);

impl<'a> AtWork<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Injection {
    /// Waits for the machine where it has to be on, and tells what came of it. What is done inside of a machine is tried until it
    /// works or the fault is over: machines reboot, and clusters come up.
    pub(super) async fn carry_out(self) {
        let mut grown = self.grown.clone();
        let Self { reach, name, fault, machine, to, undo, .. } = &self;
        let (undo, inside) = (*undo, matches!(fault, MachineFault::Inside(_)));
        let there = || reach.machine(machine).is_ok();
        if !undo && fault.is_of_the_machine() && grown.wait_for(|()| there()).await.is_err() {
            return;
        }
        let (mut told, mut tries) = (String::new(), 0);
        loop {
            if !undo && self.is_over() {
                return;
            }
            // Nothing was done that could be undone.
            if undo && inside && !self.injected().done.contains(&self.key()) {
                return;
            }
            tries += 1;
            let at_work = AtWork::new(&self.at_work);
            let why = match reach.apply(fault, machine, to, undo).await {
                Ok(()) => {
                    self.tell(self.done());
                    if inside && !undo {
                        let mut injected = self.injected();
                        injected.failing.remove(&self.key());
                        injected.done.insert(self.key());
                    }
                    // It may have ended while it was done, and whoever was to undo it found nothing.
                    if inside && !undo && self.is_over() {
                        let _ = reach.apply(fault, machine, to, true).await;
                    }
                    return;
                }
                Err(why) => why,
            };
            drop(at_work);
            if why != told {
                let done = if undo { "removed from" } else { "injected into" };
                let again = if inside { ", trying again" } else { "" };
                self.tell(What::Note { text: format!("the fault {name} could not be {done} {machine}{again}: {why}") });
                told = why;
            }
            if !inside || (undo && tries >= UNDO_TRIES) {
                return;
            }
            if !undo {
                self.injected().failing.insert(self.key(), told.clone());
            }
            tokio::time::sleep((AGAIN * tries).min(AGAIN_AT_MOST)).await;
        }
    }

    /// What is told when it was done.
    fn done(&self) -> What {
        let Self { name, machine, .. } = self;
        match self.undo {
            true => What::Note { text: format!("the fault {name} was removed from {machine}") },
            false => What::Fault {
                name: name.clone(),
                phase: FaultPhase::Effect,
                inject: String::new(),
                host: self.host,
                cluster: None,
                detail: self.fault.done().to_owned(),
            },
        }
    }

    fn injected(&self) -> MutexGuard<'_, Injected> {
        self.injected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self) -> (String, String) {
        (self.name.clone(), self.machine.clone())
    }

    fn is_over(&self) -> bool {
        self.injected().over.contains(&self.name)
    }

    fn tell(&self, what: What) {
        let _ = self.news.send(News::Seen(Source::Harness, what));
    }
}

impl Reach {
    fn machine(&self, name: &str) -> Result<Arc<Machine>, String> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.get(name).cloned().ok_or_else(|| format!("{name} was not switched on yet"))
    }

    fn cluster(&self, name: &str) -> Result<&PlannedCluster, String> {
        self.clusters.get(name).ok_or_else(|| format!("no machine belongs to the cluster {name}"))
    }

    /// Who is not reached any more when ports of a cluster are closed: everybody where nobody else is there, else its machines.
    fn closed(&self, cluster: &str) -> Result<Vec<Peer>, String> {
        let machines = &self.cluster(cluster)?.machines;
        match machines.len() == self.network.spec().hosts.len() {
            true => Ok(vec![Peer::Everybody]),
            false => machines.iter().map(|machine| peer(&self.network, machine)).collect(),
        }
    }

    /// Applies a fault to a machine, or undoes it.
    pub(super) async fn apply(
        &self,
        fault: &MachineFault,
        name: &str,
        to: &[String],
        undo: bool,
    ) -> Result<(), String> {
        let (network, medium) = (&*self.network, self.media.get(name).map(PathBuf::as_path));
        let machine = || self.machine(name);
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let loss = |percent: u8| if undo { 0 } else { percent };
        match *fault {
            MachineFault::PowerCut if undo => machine()?.power_on().await.map_err(|e| text(&e)),
            MachineFault::PowerCut => machine()?.power_off().await.map_err(|e| text(&e)),
            MachineFault::Reset => machine()?.reset().await.map_err(|e| text(&e)),
            MachineFault::CableOut => {
                let machine = machine()?;
                for nic in &machine.spec().nics {
                    machine.set_link(&nic.mac, undo).await.map_err(|e| text(&e))?;
                }
                Ok(())
            }
            MachineFault::Eject if undo => machine()?.set_medium(medium).await.map_err(|e| text(&e)),
            MachineFault::Eject => machine()?.eject().await.map_err(|e| text(&e)),
            // Which of several the service chooses is not known here: all of them.
            MachineFault::DiskFails { .. } => {
                let machine = machine()?;
                for disk in machine.spec().disks.iter().map(|disk| &disk.name) {
                    match undo {
                        true => machine.heal_disk(disk).await.map_err(|e| text(&e))?,
                        false => machine.fail_disk(disk, DiskFault::All).await.map_err(|e| text(&e))?,
                    }
                }
                Ok(())
            }
            MachineFault::SlowDisk { writes } => {
                let machine = machine()?;
                for disk in machine.spec().disks.iter().map(|disk| &disk.name) {
                    machine.limit_writes(disk, (!undo).then_some(writes)).await.map_err(|e| text(&e))?;
                }
                Ok(())
            }
            MachineFault::GatewayCut => {
                let (host, gateway) = (peer(network, name)?, peer(network, "gateway")?);
                network.set_loss(host, gateway, loss(100)).await.map_err(|e| text(&e))?;
                network.set_loss(gateway, host, loss(100)).await.map_err(|e| text(&e))
            }
            MachineFault::Unheard(frames) => {
                let (host, gateway) = (peer(network, name)?, peer(network, "gateway")?);
                network.set_loss_of(host, gateway, frames, loss(100)).await.map_err(|e| text(&e))
            }
            MachineFault::Loss { frames, percent, one_way } => {
                for other in to.iter().filter(|other| *other != name) {
                    let (a, b) = (peer(network, name)?, peer(network, other)?);
                    network.set_loss_of(a, b, frames, loss(percent)).await.map_err(|e| text(&e))?;
                    if !one_way {
                        network.set_loss_of(b, a, frames, loss(percent)).await.map_err(|e| text(&e))?;
                    }
                }
                Ok(())
            }
            MachineFault::Delay { rtt_ms, one_way } => {
                let rtt = Duration::from_millis(if undo { 0 } else { rtt_ms.into() });
                for other in to.iter().filter(|other| *other != name) {
                    let (a, b) = (peer(network, name)?, peer(network, other)?);
                    network.set_delay(a, b, if one_way { rtt } else { rtt / 2 }).await.map_err(|e| text(&e))?;
                    if !one_way {
                        network.set_delay(b, a, rtt / 2).await.map_err(|e| text(&e))?;
                    }
                }
                Ok(())
            }
            MachineFault::WrongName(wrong) => {
                let domain = &self.cluster(name)?.domain;
                network.answer_wrongly(domain, wrong, !undo).await.map_err(|e| text(&e))
            }
            MachineFault::TakeAddress(address) => network.take_address(address, !undo).await.map_err(|e| text(&e)),
            MachineFault::Closed(ports) => {
                let (all, frames) = (Peer::Everybody, Frames::Tcp(ports));
                for to in self.closed(name)? {
                    network.set_loss_of(all, to, frames, loss(100)).await.map_err(|e| text(&e))?;
                }
                Ok(())
            }
            MachineFault::Inside(ref inside) => self.inside(inside, name, to, undo).await,
            MachineFault::Mute(ports) => {
                let host = peer(network, name)?;
                network.set_loss_of(host, Peer::Everybody, Frames::Tcp(ports), loss(100)).await.map_err(|e| text(&e))
            }
        }
    }
}

impl Reach {
    /// Does something inside of a machine, or of the first of the control plane that can: what it says when it does not work.
    async fn inside(&self, fault: &InsideFault, name: &str, to: &[String], undo: bool) -> Result<(), String> {
        let address = match fault {
            InsideFault::AddressOf(other) => {
                Some(self.network.address_of(other).ok_or_else(|| format!("{other} has no address here"))?)
            }
            _ => None,
        };
        let script = inside::script(fault, name, address, undo);
        let asked: &[String] = match fault.is_told_to_the_cluster() {
            true => to,
            false => &[name.to_owned()],
        };
        let mut why = "no machine of the control plane is on".to_owned();
        for machine in asked {
            if let Err(error) = self.machine(machine) {
                why = error;
                continue;
            }
            let log = self.folder.join(inside::log_file(machine));
            match self.door.run(machine, &script, &log, inside::BUDGET).await {
                Ok(said) if said.code == Some(0) => return Ok(()),
                Ok(said) => why = format!("{machine}: {}", said.last_line),
                Err(error) => why = error.to_string(),
            }
        }
        Err(why)
    }
}

fn peer(network: &Network, name: &str) -> Result<Peer, String> {
    network.peer_of(name).map_err(|error| error.to_string())
}
