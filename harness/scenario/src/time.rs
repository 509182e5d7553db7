//! Durations as people write them, and the one rule how they relate to the wall clock.
//!
//! **The rule.** A duration in a scenario (`90s`, `5m`, `1h30m`, `250ms`) is *service time*: time as it passes under the
//! `real` time profile. A profile runs the service's clockwork `clock_scale` times faster, so `within: 10m` under a profile
//! with `clock_scale: 60` is ten seconds on the wall. A scenario thus means the same under every profile. Where the wall
//! clock itself is meant (the harness's own speed, for example), say so: `10s wall`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time in a scenario. See the module for the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Time as it passes under the `real` profile.
    Service(Duration),
    /// Time of the wall clock, whatever the profile.
    Wall(Duration),
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span::Service(Duration::ZERO);

    /// The time to measure against the run's clock, under a profile that runs `clock_scale` times faster than `real`.
    /// A scale that is not a positive number counts as 1.
    pub fn under(self, clock_scale: f64) -> Duration {
        match self {
            Span::Wall(d) => d,
            Span::Service(d) if clock_scale.is_finite() && clock_scale > 0.0 => {
                Duration::try_from_secs_f64(d.as_secs_f64() / clock_scale).unwrap_or(Duration::MAX)
            }
            Span::Service(d) => d,
        }
    }

    /// The duration as it was written, without regard to which clock it is of.
    pub fn as_written(self) -> Duration {
        match self {
            Span::Service(d) | Span::Wall(d) => d,
        }
    }
}

impl Default for Span {
    fn default() -> Self {
        Span::ZERO
    }
}

/// The longest time that a scenario can name.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSpan {
    /// Nothing there.
    #[error("a duration is missing")]
    Empty,
    /// A number without its unit.
    #[error("a duration needs a unit")]
    NoUnit,
    /// A unit that does not exist.
    #[error("{0:?} is not a unit of time")]
    Unit(String),
    /// Not a number.
    #[error("{0:?} is not a duration")]
    Number(String),
    /// More than a year.
    #[error("a duration cannot be longer than 366 days")]
    TooLong,
}

/// What a duration looks like, for help texts.
pub(crate) const SPAN_HELP: &str = "write a number with a unit (ms, s, m, h, d), for example `90s`, `5m`, `1h30m`; add ` wall` for wall-clock time, for example `10s wall`";

fn parse_duration(text: &str) -> Result<Duration, BadSpan> {
    if text.is_empty() {
        return Err(BadSpan::Empty);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        if number.is_empty() {
            return Err(BadSpan::Number(text.to_owned()));
        }
        let letters = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(letters);
        let seconds_per_unit = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            "" => return Err(BadSpan::NoUnit),
            other => return Err(BadSpan::Unit(other.trim().to_owned())),
        };
        let number: f64 = number.parse().map_err(|_| BadSpan::Number(text.to_owned()))?;
        let part = Duration::try_from_secs_f64(number * seconds_per_unit).map_err(|_| BadSpan::TooLong)?;
        total = total.checked_add(part).filter(|t| *t <= LONGEST).ok_or(BadSpan::TooLong)?;
        rest = next;
    }
    // Nothing in a run is finer than a microsecond.
    Ok(Duration::from_micros(u64::try_from(total.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)))
}

impl FromStr for Span {
    type Err = BadSpan;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        match text.strip_suffix("wall") {
            Some(rest) if rest.ends_with(char::is_whitespace) => Ok(Span::Wall(parse_duration(rest.trim())?)),
            _ => Ok(Span::Service(parse_duration(text)?)),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut micros = self.as_written().as_micros();
        if micros == 0 {
            f.write_str("0s")?;
        }
        for (unit, size) in [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000)] {
            let n = micros / size;
            micros %= size;
            if n > 0 {
                write!(f, "{n}{unit}")?;
            }
        }
        if micros > 0 {
            let fraction = format!("{:.3}", micros as f64 / 1000.0);
            write!(f, "{}ms", fraction.trim_end_matches('0').trim_end_matches('.'))?;
        }
        if matches!(self, Span::Wall(_)) {
            f.write_str(" wall")?;
        }
        Ok(())
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|e| serde::de::Error::custom(format!("{e}; {SPAN_HELP}")))
    }
}

impl JsonSchema for Span {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Span".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A length of time: `90s`, `5m`, `1h30m`, `250ms`. It is service time, that is, time as it passes under the `real` profile; a profile that runs the clockwork 60 times faster divides it by 60. `10s wall` is time of the wall clock.",
            "pattern": r"^\s*([0-9]*\.?[0-9]+(ms|s|m|h|d))+(\s+wall)?\s*$",
        })
    }
}
