//! What happens to machines, as news.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tokio::sync::mpsc;
use vlab_lab::machines::{DomainEvent, MachineEvent};
use vlab_model::history::{MachineMoment, Source, What};

use crate::hosts::News;

/// Passes on what happens to machines, whose disks are in that folder.
pub(super) async fn tell_events(
    mut events: tokio::sync::broadcast::Receiver<MachineEvent>,
    folder: PathBuf,
    news: mpsc::UnboundedSender<News>,
) {
    use tokio::sync::broadcast::error::RecvError;
    // A disk that fails does so with each of thousands of requests: once is enough, until something else happens.
    let mut failing: BTreeSet<(String, String)> = BTreeSet::new();
    loop {
        let event = match events.recv().await {
            Ok(event) => event,
            Err(RecvError::Lagged(lost)) => {
                let text = format!("{lost} events of machines were lost");
                let _ = news.send(News::Seen(Source::Harness, What::Note { text }));
                continue;
            }
            Err(RecvError::Closed) => return,
        };
        let (did, detail) = event.words();
        match &event.event {
            DomainEvent::IoError { .. } if !failing.insert((event.machine.clone(), detail.clone())) => continue,
            DomainEvent::IoError { .. } => {}
            _ => failing.retain(|(machine, _)| *machine != event.machine),
        }
        let what =
            What::Machine { machine: event.machine.clone(), did: MachineMoment::of(did), detail: detail.clone() };
        let _ = news.send(News::Seen(Source::Harness, what));
        if event.is_loss() {
            let how = format!("its QEMU was killed or crashed ({did}, {detail})");
            let _ = news.send(News::Lost { machine: event.machine, how, advice: String::new() });
        } else if event.is_out_of_space() {
            let how = format!("the disk of this computer is full, so it cannot write its own ({did}, {detail})");
            let advice = format!(
                "its disk is in {}: make room there, or set TMPDIR to a folder with more room, and run it again",
                folder.join(&event.machine).display()
            );
            let _ = news.send(News::Lost { machine: event.machine, how, advice });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(event: DomainEvent) -> MachineEvent {
        MachineEvent { machine: "m-0".into(), at: std::time::SystemTime::UNIX_EPOCH, event }
    }

    fn io_error(action: &str, reason: &str) -> MachineEvent {
        event(DomainEvent::IoError { device: "ua-vda".into(), action: action.into(), reason: reason.into() })
    }

    /// What is told of these events: what they did, and what is said of a machine that is lost.
    async fn told_of(all: Vec<MachineEvent>) -> (Vec<String>, Vec<String>) {
        let (sender, events) = tokio::sync::broadcast::channel(64);
        for event in all {
            sender.send(event).unwrap();
        }
        drop(sender);
        let (news, mut told) = mpsc::unbounded_channel();
        tell_events(events, PathBuf::from("/scratch/vlab-m-1"), news).await;
        let (mut did, mut lost) = (Vec::new(), Vec::new());
        while let Some(item) = told.recv().await {
            match item {
                News::Seen(_, What::Machine { did: what, detail, .. }) => did.push(format!("{what} {detail}")),
                News::Lost { machine, how, advice } => lost.push(format!("{machine}: {how}; {advice}")),
                other => panic!("{other:?}"),
            }
        }
        (did, lost)
    }

    #[tokio::test]
    async fn a_full_disk_of_this_computer_ends_the_run() {
        let (did, lost) = told_of(vec![io_error("pause", "enospc")]).await;
        assert_eq!(did, ["io-error ua-vda pause enospc"]);
        assert_eq!(
            lost,
            [
                "m-0: the disk of this computer is full, so it cannot write its own (io-error, ua-vda pause enospc); its disk is in \
              /scratch/vlab-m-1/m-0: make room there, or set TMPDIR to a folder with more room, and run it again"
            ]
        );
    }

    #[tokio::test]
    async fn a_disk_that_fails_on_and_on_is_told_once() {
        let failing = io_error("report", "");
        let mut all = vec![failing.clone(); 5];
        all.extend([event(DomainEvent::Rebooted), failing.clone(), failing]);
        let (did, lost) = told_of(all).await;
        assert_eq!(did, ["io-error ua-vda report", "rebooted ", "io-error ua-vda report"]);
        assert_eq!(lost, [""; 0], "the guest's own affair");
    }
}
