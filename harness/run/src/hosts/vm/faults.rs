//! What faults do to machines and to what is between them.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use vlab_drive::fault::machine::MachineFault;
use vlab_lab::machines::{DiskFault, Machine};
use vlab_lab::network::{Network, Peer};
use vlab_model::disturbance::Frames;

use super::Made;
use super::plan::DISK;

/// What faults have to do with.
pub(super) struct Reach {
    pub(super) made: Made,
    pub(super) network: Arc<Network>,
    /// The discovery image, once it was fetched.
    pub(super) medium: Option<PathBuf>,
}

impl Reach {
    fn machine(&self, name: &str) -> Result<Arc<Machine>, String> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.get(name).cloned().ok_or_else(|| format!("{name} was not switched on yet"))
    }

    /// Applies a fault to a machine, or undoes it.
    pub(super) async fn apply(&self, fault: MachineFault, name: &str, to: &[String], undo: bool) -> Result<(), String> {
        let (network, medium) = (&*self.network, self.medium.as_deref());
        let machine = || self.machine(name);
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let loss = |percent: u8| if undo { 0 } else { percent };
        match fault {
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
            MachineFault::DiskFails { .. } if undo => machine()?.heal_disk(DISK).await.map_err(|e| text(&e)),
            MachineFault::DiskFails { .. } => machine()?.fail_disk(DISK, DiskFault::All).await.map_err(|e| text(&e)),
            MachineFault::SlowDisk { writes } => {
                machine()?.limit_writes(DISK, (!undo).then_some(writes)).await.map_err(|e| text(&e))
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
            MachineFault::WrongName(wrong) => network.answer_wrongly(wrong, !undo).await.map_err(|e| text(&e)),
            MachineFault::TakeAddress(address) => network.take_address(address, !undo).await.map_err(|e| text(&e)),
            MachineFault::Closed(ports) => {
                let (all, frames) = (Peer::Everybody, Frames::Tcp(ports));
                network.set_loss_of(all, all, frames, loss(100)).await.map_err(|e| text(&e))
            }
            MachineFault::Mute(ports) => {
                let host = peer(network, name)?;
                network.set_loss_of(host, Peer::Everybody, Frames::Tcp(ports), loss(100)).await.map_err(|e| text(&e))
            }
        }
    }
}

fn peer(network: &Network, name: &str) -> Result<Peer, String> {
    network.peer_of(name).map_err(|error| error.to_string())
}
