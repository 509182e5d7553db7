//! Machines of a run written down as they are, and had again in another one.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use vlab_api::Timestamp;
use vlab_drive::conductor::MachineOrder;
use vlab_lab::machines::Machine;
use vlab_lab::tree::link_or_copy;
use vlab_lab::wait;
use vlab_model::history::What;

use super::events::tell_events;
use super::running::VirtualLab;
use crate::error::{LabError, lab};
use crate::hosts::Frozen;

/// Folder of the keys that let into the machines, in that of a snapshot.
pub(super) const KEYS: &str = "ssh";
/// Folder of the machines there, each with one of its own.
const MACHINES: &str = "machines";
/// Folder of the discovery images there.
const MEDIA: &str = "media";

/// How long it may take until a machine lets in who sets its clock. It may be starting just now.
const LETS_IN: Duration = Duration::from_secs(300);
/// How long setting it may take.
const SETS: Duration = Duration::from_secs(60);

fn folder(path: &Path) -> Result<(), LabError> {
    let made = fs::DirBuilder::new().mode(0o700).create(path);
    made.map_err(|error| LabError::new("snapshot", format!("{}: {error}", path.display())))
}

/// Links all files of a folder into another one that is there.
fn link_all(from: &Path, to: &Path) -> Result<(), LabError> {
    let failed = |error: std::io::Error| LabError::new("snapshot", format!("{}: {error}", from.display()));
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        link_or_copy(&entry.path(), &to.join(entry.file_name())).map_err(failed)?;
    }
    Ok(())
}

impl VirtualLab {
    fn all_made(&self) -> Vec<Arc<Machine>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(super) async fn all_stand_still(&mut self) -> Result<(), LabError> {
        let made = self.all_made();
        // Those that were to be switched on: what is still on its way to one cannot be written down.
        for name in self.media_of.keys() {
            let is_on = made.iter().any(|machine| machine.name() == name && machine.process().is_some());
            if !is_on {
                let error = format!(
                    "{name} is off or is just being switched on: only a lab whose machines all run can be frozen"
                );
                return Err(LabError::new("snapshot", error));
            }
        }
        for machine in &made {
            machine.pause().await.map_err(lab("snapshot"))?;
        }
        Ok(())
    }

    pub(super) async fn write_down(&mut self, into: &Path) -> Result<Frozen, LabError> {
        let (machines, media, keys) = (into.join(MACHINES), into.join(MEDIA), into.join(KEYS));
        for path in [&machines, &media, &keys] {
            folder(path)?;
        }
        self.keys.keep(&keys).map_err(lab("snapshot"))?;
        link_all(&self.media.0, &media)?;
        let mut all = JoinSet::new();
        for machine in self.all_made() {
            let into = machines.join(machine.name());
            all.spawn(async move { (machine.name().to_owned(), machine.freeze(&into).await) });
        }
        let qemu = self.machines.versions().qemu.clone();
        let mut frozen = Frozen { qemu: Some(qemu), ..Frozen::default() };
        while let Some(done) = all.join_next().await {
            let (name, said) = done.map_err(lab("snapshot"))?;
            frozen.machines.insert(name, said.map_err(lab("snapshot"))?);
        }
        // What they have said is heard to its end.
        self.frozen.store(true, Ordering::Relaxed);
        self.over.cancel();
        let mut reading = std::mem::take(&mut *self.reading.lock().unwrap_or_else(PoisonError::into_inner));
        while reading.join_next().await.is_some() {}
        Ok(frozen)
    }

    pub(super) async fn load(&mut self, from: &Path, frozen: &Frozen, done: Vec<MachineOrder>) -> Result<(), LabError> {
        // What one version writes, another one may read in another way.
        let here = &self.machines.versions().qemu;
        if let Some(then) = frozen.qemu.as_ref().filter(|then| *then != here) {
            let error = format!("its machines were written by QEMU {then}, and here is QEMU {here}: freeze it anew");
            return Err(LabError::new("snapshot", error));
        }
        link_all(&from.join(MEDIA), &self.media.0)?;
        for order in done {
            match order {
                MachineOrder::Boot { infra_env, cluster, machines, .. } => {
                    let medium = self.media.0.join(format!("{infra_env}.iso"));
                    for (index, _) in machines {
                        let Some((name, _)) = self.hosts.get(&index).cloned() else { continue };
                        self.media_of.insert(name.clone(), medium.clone());
                        if let Some(cluster) = cluster {
                            self.belongs().insert(name, cluster);
                        }
                    }
                }
                MachineOrder::Bound { machine, cluster } => {
                    if let Some((name, _)) = self.hosts.get(&machine).cloned() {
                        self.belongs().insert(name, cluster);
                    }
                }
                MachineOrder::BootDiscovery { machine } => {
                    if let Some((name, true)) = self.hosts.get(&machine).cloned() {
                        self.belongs().remove(&name);
                    }
                }
                // Over, or there would be no snapshot.
                MachineOrder::Fault { .. } => {}
            }
        }
        let mut all = JoinSet::new();
        for (name, said) in frozen.machines.clone() {
            let planned = self.plan.machines.iter().find(|machine| machine.spec.name == name);
            let Some(mut spec) = planned.map(|machine| machine.spec.clone()) else {
                let error = format!("{name}, which was frozen, is no machine of this scenario");
                return Err(LabError::new("snapshot", error));
            };
            spec.cdrom = self.media_of.get(&name).cloned();
            let (machines, kept) = (self.machines.clone(), from.join(MACHINES).join(&name));
            let id = spec.uuid;
            all.spawn(async move { (id, said, machines.thaw(spec, &kept).await) });
        }
        let switch = self.switch();
        while let Some(loaded) = all.join_next().await {
            let (id, said, machine) = loaded.map_err(lab("snapshot"))?;
            let machine = Arc::new(machine.map_err(lab("snapshot"))?);
            let before = fs::read(machine.console_log()).map_err(lab("consoles"))?;
            let lines = before.iter().filter(|byte| **byte == b'\n').count();
            let console = machine.console_from(said).map_err(lab("consoles"))?;
            switch.listen(machine, id, console, lines);
        }
        Ok(())
    }

    pub(super) async fn all_go_on(&mut self) -> Result<(), LabError> {
        let made = self.all_made();
        for machine in &made {
            machine.resume().await.map_err(lab("snapshot"))?;
        }
        let folder = self.machines.folder().to_path_buf();
        self.doing.spawn(tell_events(self.machines.events(), folder, self.news.clone()));
        for machine in made {
            self.set_clock(machine.name().to_owned());
        }
        Ok(())
    }

    /// A machine's clock stood still as long as it was frozen. Its own real-time clock did not, but nobody reads that twice.
    fn set_clock(&mut self, machine: String) {
        let (door, switch) = (self.keys.door(self.network.namespace()), self.switch());
        let log = self.folder.join(super::inside::log_file(&machine));
        self.doing.spawn(async move {
            let set = wait::until("the machine's clock is set", LETS_IN, Duration::from_secs(1), || async {
                let script = format!("sudo hwclock --hctosys --utc || sudo date -u -s @{}", Timestamp::now().as_secs());
                match door.run(&machine, &script, &log, SETS).await {
                    Ok(said) if said.code == Some(0) => Ok(Some(())),
                    Ok(said) => Err(said.last_line),
                    Err(error) => Err(error.to_string()),
                }
            });
            let text = match set.await {
                Ok(()) => format!("the clock of {machine} was set, which had stood still with it"),
                Err(error) => format!("the clock of {machine} still goes after by as long as it was frozen: {error}"),
            };
            switch.tell(What::Note { text });
        });
    }
}
