//! Switching machines on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vlab_lab::machines::console::Follow;
use vlab_lab::machines::{Machine, MachineSpec, Machines};
use vlab_model::console::Classifier;
use vlab_model::history::{HistoryPart, MachineMoment, Source, What};

use super::Made;
use super::console::{Belonging, Listener};
use crate::error::{LabError, lab};
use crate::hosts::News;

/// What switches machines on.
#[derive(Clone)]
pub(super) struct Switch {
    pub(super) machines: Machines,
    pub(super) made: Made,
    pub(super) grown: watch::Sender<()>,
    pub(super) news: mpsc::UnboundedSender<News>,
    pub(super) reading: Arc<Mutex<JoinSet<()>>>,
    pub(super) over: CancellationToken,
    pub(super) clusters: Belonging,
    pub(super) classifiers: BTreeMap<String, Arc<Classifier>>,
    pub(super) frozen: Arc<AtomicBool>,
}

impl Switch {
    pub(super) fn tell(&self, what: What) {
        let _ = self.news.send(News::Seen(Source::Harness, what));
    }

    pub(super) fn broken(&self, error: LabError) {
        let _ = self.news.send(News::Broken(error));
    }

    /// Boots a machine that is there from this medium once, whatever it runs.
    pub(super) async fn again(&self, name: &str, medium: &Path) {
        let machine = self.made.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        let Some(machine) = machine else {
            let error = format!("{name} cannot boot its discovery image again: it was not switched on yet");
            return self.broken(LabError::new("machines", error));
        };
        match machine.boot_medium(medium).await {
            Ok(()) => self.tell(What::Note { text: format!("{name} boots its discovery image again") }),
            Err(error) => self.broken(lab("machines")(error)),
        }
    }

    pub(super) async fn on(&self, spec: MachineSpec, medium: PathBuf) {
        let (name, id) = (spec.name.clone(), spec.uuid);
        let begun = Instant::now();
        let machine = match self.machines.create(MachineSpec { cdrom: Some(medium), ..spec }).await {
            Ok(machine) => Arc::new(machine),
            Err(error) => return self.broken(lab("machines")(error)),
        };
        let detail = format!("defined and started in {} ms", begun.elapsed().as_millis());
        self.tell(What::Machine { machine: name.clone(), did: MachineMoment::Defined, detail });
        match machine.console() {
            Ok(console) => self.listen(machine, id, console, 0),
            Err(error) => self.broken(LabError::new("consoles", format!("{name}: {error}"))),
        }
    }

    /// A machine is there, and what its console says is heard. It has said so many lines already.
    pub(super) fn listen(&self, machine: Arc<Machine>, id: Uuid, mut console: Follow, lines: usize) {
        let name = machine.name().to_owned();
        self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), machine);
        self.grown.send_replace(());
        let mut listener = Listener {
            classifier: self.classifiers.get(&name).cloned().unwrap_or_default(),
            machine: name,
            host: id,
            clusters: Arc::clone(&self.clusters),
            lines,
        };
        let (news, over, frozen) = (self.news.clone(), self.over.clone(), Arc::clone(&self.frozen));
        let read = async move {
            loop {
                let lines = tokio::select! {
                    line = console.next_line() => line.map(|line| vec![line]),
                    () = over.cancelled() => break,
                };
                match lines {
                    Ok(lines) => listener.hear(&lines, &news),
                    Err(error) => {
                        let error = format!("the console of {} can no longer be read: {error}", listener.machine);
                        let _ = news.send(News::Broken(LabError::new("consoles", error)));
                        return;
                    }
                }
            }
            let rest = match frozen.load(Ordering::Relaxed) {
                true => console.whole_lines(),
                false => console.drain(),
            };
            match rest {
                Ok(lines) => listener.hear(&lines, &news),
                Err(error) => {
                    let what = listener.incomplete(HistoryPart::Console, error.to_string());
                    let _ = news.send(News::Seen(Source::Harness, what));
                }
            }
        };
        self.reading.lock().unwrap_or_else(PoisonError::into_inner).spawn(read);
    }
}
