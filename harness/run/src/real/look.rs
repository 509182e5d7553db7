//! The last look at everything, once the run has come to its end.

use std::time::Duration;

use tokio::time::Instant;
use vlab_drive::conductor::Conductor;
use vlab_drive::target::Target;
use vlab_model::history::{HistoryPart, Source, What};

use super::perform::{UnderWay, observe};

/// How long the last look at everything may take.
pub(super) const LAST_LOOK: Duration = Duration::from_secs(10);
/// Time between two of these looks at a service that writes its events later than what they are about.
const EVENTS_SETTLE: Duration = Duration::from_millis(300);

impl UnderWay<'_> {
    /// What the events and the service's own view say at the end.
    ///
    /// The simulated service writes an event together with the change that it is about. The real one writes it a little later
    /// (a cluster is `installed` some milliseconds before its event says so), so that one is looked at until a look
    /// brings no event that was not there at the look before.
    pub(super) async fn last_look(&mut self) {
        let deadline = Instant::now() + LAST_LOOK;
        let mut before = None;
        loop {
            if !self.look_once(deadline).await {
                let (part, why) = match before {
                    None => (HistoryPart::LastLook, "the service did not show everything"),
                    Some(_) => (HistoryPart::Events, "the service did not stop sending events"),
                };
                let why = format!("{why} within {} s after the end", LAST_LOOK.as_secs());
                let what = What::Incomplete { part, machine: None, why };
                self.conductor.observe(self.run.clock.now(), Source::Harness, None, what);
                return;
            }
            let events = self.conductor.recorder().observations().iter();
            let now = events.filter(|observation| observation.source == Source::Events).count();
            if self.run.prepared.target == Target::Simulated || before == Some(now) {
                return;
            }
            before = Some(now);
            let again = Instant::now() + EVENTS_SETTLE;
            loop {
                tokio::select! {
                    () = tokio::time::sleep_until(again.min(deadline)) => break,
                    Some(news) = self.watch.news.recv() => drop(observe(&mut self.conductor, news)),
                }
            }
        }
    }

    /// One look at everything; `false` when it took too long.
    async fn look_once(&mut self, deadline: Instant) -> bool {
        let Self { run, conductor, traffic, answers, watch, .. } = self;
        conductor.look_once_more(run.clock.now());
        while !conductor.has_looked() {
            for send in conductor.take_sends() {
                // The hosts are through; only the user still asks.
                if Conductor::is_user(send.connection) {
                    traffic.send(send);
                }
            }
            let now = run.clock.now();
            let pause = conductor.next_wake().map(|at| at.since(now)).unwrap_or(LAST_LOOK);
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => return false,
                Some(answer) = answers.recv() => {
                    let reply = traffic.count(answer);
                    if Conductor::is_user(reply.connection) {
                        conductor.deliver(run.clock.now(), reply);
                    }
                }
                // What it cannot read any more is told when watching ends.
                Some(news) = watch.news.recv() => drop(observe(conductor, news)),
                () = tokio::time::sleep(pause.max(Duration::from_millis(1))) => conductor.wake(run.clock.now()),
            }
        }
        true
    }
}
