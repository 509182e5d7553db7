//! One kind of instant for the whole project: microseconds since the Unix epoch, whether the clock is real or virtual.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant in microseconds since the Unix epoch (UTC). On the wire it is RFC 3339 with milliseconds, as the service
/// writes its dates; what is finer than a millisecond does not survive the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// How the service writes "never": the first instant of year 1.
    pub const UNSET: Timestamp = Timestamp(-62_135_596_800_000_000);

    /// The instant that lies `micros` microseconds after the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// The instant that lies `seconds` seconds after the epoch.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds * 1_000_000)
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// To the microsecond, as leases and events of Kubernetes have it.
    pub fn to_micro_string(self) -> String {
        let mut text = self.to_string();
        text.truncate(19);
        format!("{text}.{:06}Z", self.0.rem_euclid(1_000_000))
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn as_secs(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// The wall clock of this machine. Only shells call this; everything else is given its `now`.
    #[expect(clippy::disallowed_methods, reason = "the one clock, for shells; cores are told the time")]
    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }

    /// Is this a real date, and not [`Timestamp::UNSET`]?
    pub const fn is_set(self) -> bool {
        self.0 > Self::UNSET.0
    }

    /// Time from `earlier` to `self`; zero when `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// [`Timestamp::UNSET`].
impl Default for Timestamp {
    fn default() -> Self {
        Self::UNSET
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let micros = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_micros()).unwrap_or(i64::MAX),
        };
        Self(micros)
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, rhs: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(rhs.as_micros()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;
    fn sub(self, rhs: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(i64::try_from(rhs.as_micros()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0.div_euclid(1000)) {
            Ok(t) => write!(f, "{t:.3}"),
            Err(_) => write!(f, "out-of-range({}us)", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.parse::<jiff::Timestamp>()?.as_microsecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_is_how_the_service_writes_never() {
        assert_eq!(Timestamp::UNSET.to_string(), "0001-01-01T00:00:00.000Z");
        assert_eq!("0001-01-01T00:00:00Z".parse::<Timestamp>().unwrap(), Timestamp::UNSET);
        assert!(!Timestamp::default().is_set());
    }

    #[test]
    fn milliseconds_survive_the_wire() {
        let text = "\"2026-11-20T12:50:08.954Z\"";
        let t: Timestamp = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&t).unwrap(), text);
        assert_eq!((t + Duration::from_millis(1)).since(t), Duration::from_millis(1));
        assert_eq!(t.since(t + Duration::from_secs(1)), Duration::ZERO);
    }
}
