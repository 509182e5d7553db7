//! The leases by which one process of the service has its controllers, and one its monitors. Names and times are those of the real service: its manager takes
//! it at the start, does not give it back when it ends, and ends the whole service when it loses it.

use std::time::Duration;

/// Its name.
pub const NAME: &str = "77190dcb.agent-install.openshift.io";
/// The name of the one that says which of several services runs the monitors. It is not given back either, and who loses it only waits for
/// it again.
pub const ELECTION: &str = "assisted-service-leader-election-helper";
/// The namespace of the service, where it is.
pub const NAMESPACE: &str = "assisted-installer";
/// What a service says that ends because it has lost it.
pub const LOST: &str = "leader election lost";

/// A service that has lost its lease is started again after this: as long as a pod's kubelet waits after the first time.
const STARTED_AGAIN: Duration = Duration::from_secs(10);
/// However fast a run's clock goes: a computer that is busy must be able to renew it in time.
const FASTEST: f64 = 3.0;

/// How long things take with a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Nobody else takes it from a holder who was seen to renew it less long ago.
    pub duration: Duration,
    /// A holder who tries so long to renew it in vain has lost it.
    pub deadline: Duration,
    /// Between one attempt and the next.
    pub retry: Duration,
    /// Who has lost it is started again after this.
    pub down: Duration,
}

impl Times {
    /// Those of the real service, where the run's clock goes `pace` times faster than a real one.
    pub fn at(pace: f64) -> Self {
        let pace = if pace.is_finite() && pace > 0.0 { pace } else { 1.0 };
        let of = |seconds: u64| Duration::from_secs(seconds).div_f64(pace.min(FASTEST));
        Self { duration: of(15), deadline: of(10), retry: of(2), down: STARTED_AGAIN.div_f64(pace) }
    }

    /// So long it takes at most from the time at which the lease can be had again until controllers work.
    pub fn regained(self) -> Duration {
        self.down + self.duration + self.retry * 2
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::real(1.0, 15_000, 10_000)]
    #[case::fast(60.0, 5_000, 10_000 / 60)]
    #[case::nonsense(0.0, 15_000, 10_000)]
    fn a_fast_clock_leaves_time_to_renew_it(#[case] pace: f64, #[case] duration: u128, #[case] down: u128) {
        let times = Times::at(pace);
        assert_eq!((times.duration.as_millis(), times.down.as_millis()), (duration, down));
        assert!(times.retry * 3 < times.deadline && times.deadline < times.duration);
    }
}
