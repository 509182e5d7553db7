//! How long things may take in a run: what the service's settings say, as far as they are told, and what a computer may add to it.

use std::time::Duration;

use vlab_model::history::RunInfo;
use vlab_model::settings::Settings;

/// Two things that were on their way at the same time may be seen in any order within this. It is no span of the service's, so
/// that no time profile makes it shorter.
pub(super) const IN_FLIGHT: Duration = Duration::from_millis(500);

/// What a busy computer may add to something that the service is to do in time: so many rounds of the monitor that does it, on a
/// clock that runs faster; on the real one a round is longer than that.
const BUSY_ROUNDS: u32 = 30;
/// At most.
const BUSY: Duration = Duration::from_secs(10);

/// The real service writes the event of a change after the change: 0.2 to 0.9 s later where ten processes share a processor
/// (measured). A younger change may be without its event when a history ends.
const EVENT_FOLLOWS: Duration = Duration::from_secs(2);

/// The real service writes what hosts have reported and what that is worth one after the other.
const SETTLES: Duration = Duration::from_secs(5);

/// Rounds begin at whole milliseconds, and times are whole milliseconds: both are rounded.
const WHOLE: Duration = Duration::from_millis(2);

/// An answer may be so old when it is seen, on a busy computer, where a history does not say when it was asked for.
const ANSWER: Duration = Duration::from_secs(10);
/// The same in virtual time, where it is on its way for a millisecond.
const VIRTUAL_ANSWER: Duration = Duration::from_millis(10);

/// The limits of one run.
pub(super) struct Limits {
    /// The service's; the real one's own where nobody told it others.
    pub(super) settings: Settings,
    /// These are the settings that the service has.
    pub(super) known: bool,
    /// It is the built-in service: the settings are its own, and it is as quick as they say.
    pub(super) built_in: bool,
    /// Time is virtual: nothing is late, and what happens together has one time.
    virtual_time: bool,
    /// So many times faster than real ones are the intervals of hosts and controllers.
    scale: f64,
}

impl Limits {
    pub(super) fn new(run: Option<&RunInfo>) -> Self {
        let told = run.and_then(|run| run.settings.as_deref());
        let scale = run.and_then(|run| run.clock_scale).filter(|scale| scale.is_finite() && *scale > 0.0);
        let given = run.and_then(|run| run.given.as_deref());
        // What is fixed in the real service runs at its usual speed.
        let usual = || Settings::default().constants;
        let given = given.map(|given| Settings { constants: usual(), ..given.clone() });
        Self {
            known: told.is_some() || given.is_some(),
            settings: told.cloned().or(given).unwrap_or_else(|| Settings::default().scaled(scale.unwrap_or(1.0))),
            built_in: told.is_some(),
            virtual_time: run.is_some_and(|run| run.virtual_time),
            scale: scale.unwrap_or(1.0),
        }
    }

    fn unless_virtual(&self, span: Duration) -> Duration {
        if self.virtual_time { Duration::ZERO } else { span }
    }

    /// What is made good within this was on its way.
    pub(super) fn in_flight(&self) -> Duration {
        self.unless_virtual(IN_FLIGHT)
    }

    /// The event of a change is there after this.
    pub(super) fn event_follows(&self) -> Duration {
        self.unless_virtual(EVENT_FOLLOWS)
    }

    /// What follows from a report is written after this.
    pub(super) fn settles(&self) -> Duration {
        self.unless_virtual(SETTLES)
    }

    /// An answer of the service shows something that was so at most this long ago.
    pub(super) fn answer(&self) -> Duration {
        if self.virtual_time { VIRTUAL_ANSWER } else { ANSWER }
    }

    /// What one source saw and another one saw too is not further apart: the service's times are whole milliseconds.
    pub(super) fn apart(&self) -> Duration {
        self.in_flight() + Duration::from_millis(1)
    }

    /// What hosts and controllers do again and again after that time of theirs.
    pub(super) fn of_hosts(&self, interval: Duration) -> Duration {
        interval.div_f64(self.scale) + self.settles()
    }

    /// So many rounds of the cluster monitor take at most this.
    pub(super) fn cluster_rounds(&self, rounds: u32) -> Duration {
        self.rounds(self.settings.cluster_monitor_interval, rounds)
    }

    /// So many rounds of the host monitor take at most this.
    pub(super) fn host_rounds(&self, rounds: u32) -> Duration {
        self.rounds(self.settings.host_monitor_interval, rounds)
    }

    /// What a round of the host monitor decides by itself is decided after this. The round that sees it may be one of the next ones, but
    /// for virtual time, where none is late.
    pub(super) fn next_host_round(&self, late: u32) -> Duration {
        self.host_rounds(if self.virtual_time { 1 } else { late }) + WHOLE
    }

    /// The same of the cluster monitor.
    pub(super) fn next_cluster_round(&self, late: u32) -> Duration {
        self.cluster_rounds(if self.virtual_time { 1 } else { late }) + WHOLE
    }

    fn rounds(&self, interval: Duration, rounds: u32) -> Duration {
        interval * rounds + self.unless_virtual((interval * BUSY_ROUNDS).min(BUSY))
    }
}
