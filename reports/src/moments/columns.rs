//! [`Moments`] as they stand in the page: JSON whose columns are texts of numbers, which a browser reads in milliseconds.
//!
//! A number is its digits to the base 32, the lowest first, a character each ([`DIGITS`]); all but the last digit of a number
//! are from the upper half. Times are differences, in milliseconds.

use std::collections::{BTreeMap, HashMap};

use serde_json::json;

use super::{Moment, MomentKind, Moments, Sort};
use crate::redact::Redactor;
use crate::text::{shorten, thousands};

/// Digits 0 to 31, and the same when more follow. Nothing that means something in HTML, in JSON or in the shape of a secret.
const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_$";
/// Characters of a name.
const NAME: usize = 60;

/// How much of the moments is written: what is tried in this order until it fits.
const LEVELS: [Level; 10] = [
    Level { text: 1200, out: 0 },
    Level { text: 400, out: 0 },
    Level { text: 200, out: 0 },
    Level { text: 200, out: 1 },
    Level { text: 200, out: 3 },
    Level { text: 100, out: 4 },
    Level { text: 60, out: 6 },
    Level { text: 60, out: 7 },
    Level { text: 60, out: 8 },
    Level { text: 0, out: OUT.len() },
];

/// Kinds in the order in which they are left out.
const OUT: [MomentKind; 11] = [
    MomentKind::Log,
    MomentKind::Request,
    MomentKind::Step,
    MomentKind::Did,
    MomentKind::Event,
    MomentKind::Warning,
    MomentKind::Console,
    MomentKind::Validation,
    MomentKind::Words,
    MomentKind::Percent,
    MomentKind::Logs,
];

#[derive(Clone, Copy, Debug)]
struct Level {
    /// Characters of a text of more words.
    text: usize,
    /// So many of [`OUT`] are left out.
    out: usize,
}

impl Level {
    /// Kinds that are left out.
    fn without(self) -> &'static [MomentKind] {
        OUT.get(..self.out).unwrap_or(&OUT)
    }
}

/// Moments as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// JSON, without `<`.
    pub json: String,
    /// What was left out, in words for people.
    pub left_out: Vec<String>,
}

impl Moments<'_> {
    /// Everything, or as much as fits into that many bytes: whole kinds are left out, then hosts. `length` is that of the
    /// timeline in microseconds.
    pub fn columns(&self, most: usize, length: i64, redactor: &Redactor) -> Columns {
        let mut writer = Writer { moments: self, redactor, clean: HashMap::new() };
        for level in LEVELS {
            // Six bytes an item is little: what is far too much is not written only to be thrown away.
            let items = self.kept(level, self.who.len());
            if items.len() * 3 > most {
                continue;
            }
            let json = writer.write(&items, level, length);
            if json.len() <= most {
                return Columns { json, left_out: self.left_out(level, self.who.len()) };
            }
        }
        let [.., level] = LEVELS;
        let mut who = self.who.len();
        while who > 1 {
            who /= 2;
            let items = self.kept(level, who);
            if items.len() * 3 > most {
                continue;
            }
            let json = writer.write(&items, level, length);
            if json.len() <= most {
                return Columns { json, left_out: self.left_out(level, who) };
            }
        }
        let left_out = vec![format!("all {} moments", thousands(self.items.len() as u64))];
        Columns { json: writer.write(&[], level, length), left_out }
    }

    /// What a level has of the first `who`.
    fn kept(&self, level: Level, who: usize) -> Vec<Moment> {
        let is_kept = |item: &&Moment| {
            (item.who as usize) < who && !level.without().contains(&self.facts[item.fact as usize].kind)
        };
        self.items.iter().filter(is_kept).copied().collect()
    }

    fn left_out(&self, level: Level, who: usize) -> Vec<String> {
        let mut counts: BTreeMap<MomentKind, u64> = BTreeMap::new();
        for item in &self.items {
            *counts.entry(self.facts[item.fact as usize].kind).or_default() += 1;
        }
        let of = |kind: &MomentKind| counts.get(kind).map(|n| format!("{} {}", thousands(*n), kind.plural()));
        let mut words: Vec<String> = level.without().iter().filter_map(of).collect();
        if who < self.who.len() {
            words.push(format!(
                "{} of {} hosts",
                thousands((self.who.len() - who) as u64),
                thousands(self.who.len() as u64)
            ));
        }
        let long = |fact: &super::Fact<'_>| {
            !level.without().contains(&fact.kind) && fact.info.chars().count() > level.text && !fact.info.is_empty()
        };
        if self.facts.iter().any(long) {
            words.push(match level.text {
                0 => "the words of the service".to_owned(),
                most => format!("what texts have beyond {most} characters"),
            });
        }
        words
    }
}

struct Writer<'m> {
    moments: &'m Moments<'m>,
    redactor: &'m Redactor,
    /// Texts without secrets. Each is looked through once, whatever is tried.
    clean: HashMap<&'m str, String>,
}

impl<'m> Writer<'m> {
    fn write(&mut self, items: &[Moment], level: Level, length: i64) -> String {
        let mut strings = Strings { texts: vec![String::new()], places: HashMap::from([(String::new(), 0)]) };
        let (mut times, mut who, mut what) = (String::new(), String::new(), String::new());
        let mut facts = String::new();
        let mut places: Vec<Option<u64>> = vec![None; self.moments.facts.len()];
        let (mut next, mut before) = (0, 0);
        for item in items {
            let at = item.at / 1000;
            number(&mut times, (at - before).unsigned_abs());
            before = at;
            number(&mut who, u64::from(item.who));
            let place = places[item.fact as usize].unwrap_or_else(|| {
                let fact = &self.moments.facts[item.fact as usize];
                number(&mut facts, fact.kind as u64);
                let words: [(&'m str, usize); 3] = [(&fact.key, NAME), (&fact.value, 400), (&fact.info, level.text)];
                for (text, most) in words {
                    let text = self.short(text, most);
                    number(&mut facts, strings.place(text));
                }
                next += 1;
                next - 1
            });
            places[item.fact as usize] = Some(place);
            number(&mut what, place);
        }
        let names: Vec<String> = self.moments.who.iter().map(|who| self.short(&who.name, NAME)).collect();
        let sort = |sort: Sort| match sort {
            Sort::Run => 'r',
            Sort::Cluster => 'c',
            Sort::Host => 'h',
        };
        let data = json!({
            "length": length / 1000,
            "count": items.len(),
            "kinds": MomentKind::ALL.map(MomentKind::word),
            "names": names,
            "sorts": self.moments.who.iter().map(|who| sort(who.sort)).collect::<String>(),
            "strings": strings.texts,
            "facts": facts,
            "times": times,
            "who": who,
            "what": what,
        });
        data.to_string().replace('<', "\\u003c")
    }

    /// The beginning of a text. What is secret goes first, for the cut could go through the middle of it.
    fn short(&mut self, text: &'m str, most: usize) -> String {
        if most == 0 || text.is_empty() {
            return String::new();
        }
        let redactor = self.redactor;
        shorten(self.clean.entry(text).or_insert_with(|| redactor.redact(text).into_owned()), most)
    }
}

#[derive(Default)]
struct Strings {
    texts: Vec<String>,
    places: HashMap<String, u64>,
}

impl Strings {
    fn place(&mut self, text: String) -> u64 {
        if let Some(place) = self.places.get(&text) {
            return *place;
        }
        let place = self.texts.len() as u64;
        self.texts.push(text.clone());
        self.places.insert(text, place);
        place
    }
}

/// Writes a number in digits.
fn number(out: &mut String, mut value: u64) {
    loop {
        let (digit, rest) = ((value % 32) as usize, value / 32);
        let more = if rest > 0 { 32 } else { 0 };
        out.push(char::from(DIGITS[digit + more]));
        if rest == 0 {
            return;
        }
        value = rest;
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::super::{Fact, Who};
    use super::*;

    fn numbers(text: &str) -> Vec<u64> {
        let (mut all, mut value, mut shift) = (Vec::new(), 0, 0);
        for byte in text.bytes() {
            let digit = DIGITS.iter().position(|d| *d == byte).unwrap() as u64;
            value += (digit % 32) << shift;
            shift += 5;
            if digit < 32 {
                all.push(value);
                (value, shift) = (0, 0);
            }
        }
        all
    }

    #[test]
    fn numbers_can_be_read_back() {
        let all = [0, 1, 31, 32, 33, 1023, 1024, 123_456_789, u64::from(u32::MAX)];
        let mut text = String::new();
        all.into_iter().for_each(|n| number(&mut text, n));
        assert_eq!(numbers(&text), all);
        assert_eq!(text.len(), 4 - 1 + 2 + 2 + 2 + 3 + 6 + 7);
    }

    fn moments(hosts: usize, each: usize) -> Moments<'static> {
        let who = (0..=hosts)
            .map(|i| Who { name: Cow::Owned(format!("host-{i}")), sort: if i == 0 { Sort::Run } else { Sort::Host } });
        let fact = |kind, value: String| Fact {
            kind,
            key: Cow::Borrowed(""),
            value: Cow::Owned(value),
            info: Cow::Borrowed("hunter2 said so"),
        };
        let facts = vec![fact(MomentKind::Status, "known".into()), fact(MomentKind::Step, "<inventory>".into())];
        let item = |i: usize| Moment { at: (i * 1500) as i64, who: (i % hosts + 1) as u32, fact: (i % 2) as u32 };
        Moments { who: who.collect(), facts, items: (0..hosts * each).map(item).collect() }
    }

    #[test]
    fn columns_hold_everything_and_nothing_secret() {
        let redactor = Redactor::new(["hunter2".to_owned()]);
        let columns = moments(2, 3).columns(10_000, 9_000, &redactor);
        assert!(columns.left_out.is_empty(), "{:?}", columns.left_out);
        assert!(!columns.json.contains('<') && !columns.json.contains("hunter2"), "{}", columns.json);
        let data: serde_json::Value = serde_json::from_str(&columns.json).unwrap();
        let column = |name: &str| numbers(data[name].as_str().unwrap());
        assert_eq!(column("times"), [0, 1, 2, 1, 2, 1]);
        assert_eq!(column("who"), [1, 2, 1, 2, 1, 2]);
        assert_eq!(column("what"), [0, 1, 0, 1, 0, 1]);
        assert_eq!(column("facts"), [0, 0, 1, 2, 10, 0, 3, 2]);
        assert_eq!(data["strings"][3], "<inventory>");
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_said() {
        let moments = moments(100, 40);
        let redactor = Redactor::default();
        let whole = moments.columns(1_000_000, 9_000, &redactor).json.len();
        let without_steps = moments.columns(whole - 1, 9_000, &redactor);
        assert_eq!(without_steps.left_out, ["2,000 steps"]);
        let few = moments.columns(5_000, 9_000, &redactor);
        assert!(few.json.len() <= 5_000);
        assert!(few.left_out.iter().any(|words| words.ends_with("of 101 hosts")), "{:?}", few.left_out);
        let none = moments.columns(10, 9_000, &redactor);
        assert_eq!(none.left_out, ["all 4,000 moments"]);
    }
}
