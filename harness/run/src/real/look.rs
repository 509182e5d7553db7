//! The last look at everything, once the run has come to its end.

use std::time::Duration;

use tokio::time::Instant;
use vlab_drive::conductor::Conductor;
use vlab_drive::target::Target;
use vlab_model::history::{HistoryPart, Source, What};

use super::perform::{UnderWay, observe};

/// How long one look at everything may take, and how long it is looked again at a service that goes on sending events.
pub(super) const LAST_LOOK: Duration = Duration::from_secs(10);
/// Time between two of these looks at a service that writes its events later than what they are about.
const EVENTS_SETTLE: Duration = Duration::from_millis(300);

/// What a look at everything has shown.
#[derive(Clone, Copy)]
struct Looked {
    /// So many events were there after the look before; `None`: it was the first.
    before: Option<usize>,
    /// So many are there now; `None`: it took too long.
    now: Option<usize>,
    /// It has been looked for as long as it may.
    is_late: bool,
}

/// What comes after a look.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Next {
    /// Everything was seen.
    Done,
    /// Another look.
    Again,
    /// That part of the history is not complete, and why.
    Incomplete(HistoryPart, &'static str),
}

impl Looked {
    /// Whether that was the last one. There is a second one however long the first has taken.
    fn next(self) -> Next {
        match (self.before, self.now) {
            (None, None) => Next::Incomplete(HistoryPart::LastLook, "the service did not show everything"),
            (Some(_), None) => Next::Incomplete(HistoryPart::Events, "the service did not show everything once more"),
            (Some(before), Some(now)) if before == now => Next::Done,
            (Some(_), Some(_)) if self.is_late => {
                Next::Incomplete(HistoryPart::Events, "the service did not stop sending events")
            }
            (_, Some(_)) => Next::Again,
        }
    }
}

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
            let is_seen = self.look_once(Instant::now() + LAST_LOOK).await;
            if is_seen && self.run.prepared.target == Target::Simulated {
                return;
            }
            let events = self.conductor.recorder().observations().iter();
            let now = is_seen.then(|| events.filter(|observation| observation.source == Source::Events).count());
            match (Looked { before, now, is_late: Instant::now() >= deadline }).next() {
                Next::Done => return,
                Next::Again => before = now,
                Next::Incomplete(part, why) => {
                    let why = format!("{why} within {} s", LAST_LOOK.as_secs());
                    let what = What::Incomplete { part, machine: None, why };
                    self.conductor.observe(self.run.clock.now(), Source::Harness, None, what);
                    return;
                }
            }
            let again = Instant::now() + EVENTS_SETTLE;
            loop {
                tokio::select! {
                    () = tokio::time::sleep_until(again) => break,
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
                    let _ = traffic.send(send);
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing_was_seen(
        None,
        None,
        true,
        Next::Incomplete(HistoryPart::LastLook, "the service did not show everything")
    )]
    #[case::the_first_takes_long(None, Some(7), true, Next::Again)]
    #[case::nothing_came(Some(7), Some(7), true, Next::Done)]
    #[case::something_came(Some(7), Some(8), false, Next::Again)]
    #[case::something_always_comes(
        Some(7),
        Some(8),
        true,
        Next::Incomplete(HistoryPart::Events, "the service did not stop sending events")
    )]
    #[case::the_second_takes_too_long(
        Some(7),
        None,
        true,
        Next::Incomplete(HistoryPart::Events, "the service did not show everything once more")
    )]
    fn a_service_is_looked_at_until_no_event_comes(
        #[case] before: Option<usize>,
        #[case] now: Option<usize>,
        #[case] is_late: bool,
        #[case] next: Next,
    ) {
        assert_eq!(Looked { before, now, is_late }.next(), next);
    }
}
