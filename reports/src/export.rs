//! A run for other programs that show what happened when: [`perfetto`] writes Chrome's trace events, which
//! <https://ui.perfetto.dev> opens; [`otlp`] writes traces as OpenTelemetry's collectors read them.
//!
//! Both are functions of a history: the same one gives the same bytes, ids included.

pub mod otlp;
pub mod perfetto;

use std::borrow::Cow;

use uuid::Uuid;
use vlab_model::history::{Observation, RunInfo, What};

use crate::redact::Redactor;
use crate::timeline::Lane;

/// Microseconds as they are at least: something that is over at once could not be seen.
const SHORTEST: i64 = 1;

/// What a run is, when the history has its beginning.
fn run_info(history: &[Observation]) -> Option<&RunInfo> {
    history.iter().find_map(|o| match &o.what {
        What::RunStarted(info) => Some(info),
        _ => None,
    })
}

/// A part of a lane with one value; they do not overlap.
struct Slice<'a> {
    from: i64,
    to: i64,
    name: &'a str,
    info: &'a str,
}

/// The statuses of a lane, or its stages. What lasts no time at all is left out, unless nothing else would be there.
fn slices<'a>(lane: &Lane<'a>, stages: bool) -> Vec<Slice<'a>> {
    let spans = if stages { &lane.stages } else { &lane.statuses };
    let is_long = |span: &&crate::timeline::Span<'_>| span.to - span.from >= SHORTEST;
    spans.iter().filter(is_long).map(|s| Slice { from: s.from, to: s.to, name: s.value, info: s.info }).collect()
}

/// The role of a host in words.
fn role(lane: &Lane<'_>) -> Option<String> {
    let role = lane.role?;
    Some(if lane.bootstrap { format!("{role}, bootstrap") } else { role.to_string() })
}

/// An id of as many hexadecimal digits as are wanted, at most 32, out of words: always the same, and never only zeros.
fn id(parts: &[&str], digits: usize) -> String {
    // FNV-1a over 128 bits; a length before each part keeps the parts apart.
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let mut eat = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    };
    for part in parts {
        eat(&part.len().to_le_bytes());
        eat(part.as_bytes());
    }
    let id = Uuid::from_u128(hash.max(1)).simple().to_string();
    // The low half is mixed best.
    id[32 - digits.min(32)..].to_owned()
}

/// Texts without secrets.
struct Clean<'r>(&'r Redactor);

impl Clean<'_> {
    fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.0.redact(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_always_the_same_and_differ_with_every_part() {
        assert_eq!(id(&["a", "b"], 16), id(&["a", "b"], 16));
        assert_eq!((id(&["a"], 16).len(), id(&["a"], 32).len()), (16, 32));
        let mut all = vec![id(&["a", "b"], 16), id(&["ab"], 16), id(&["ab", ""], 16), id(&["b", "a"], 16), id(&[], 16)];
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 5);
    }
}
