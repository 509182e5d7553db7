//! The harness's own time.

use std::time::{Duration, Instant};

use vlab_api::Timestamp;

/// A clock that never goes back.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    started: Instant,
    wall: Timestamp,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { started: Instant::now(), wall: Timestamp::now() }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.wall + self.started.elapsed()
    }

    /// How far the machine's wall clock has moved against the monotonic one.
    pub(super) fn jump(&self) -> Duration {
        let (real, own) = (Timestamp::now(), self.now());
        real.since(own).max(own.since(real))
    }
}
