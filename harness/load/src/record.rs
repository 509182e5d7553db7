//! What is counted while a plan is carried out.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use vlab_api::http::{Response, TransportError};
use vlab_api::types::ErrorBody;

use crate::result::{Counted, MOST_WORDS, NO_DESCRIPTOR, OTHER_WORDS, Second, TURNED_AWAY};

/// One microsecond to two minutes, three digits.
pub(crate) const LONGEST_US: u64 = 120_000_000;
/// Longer than that (a week) no installation is followed.
const LONGEST_SPAN_US: u64 = 7 * 24 * 3600 * 1_000_000;

/// So many seconds are kept in full. An answer is of the second in which it came, and waits no longer than a request may take until it is
/// counted. Each of them has a histogram of some 100 KiB.
const KEPT_SECONDS: usize = 40;

/// A histogram of microseconds: of requests, of which none takes longer than [`LONGEST_US`].
pub(crate) fn histogram() -> Histogram<u64> {
    up_to(LONGEST_US)
}

/// The same for what takes as long as an installation.
pub(crate) fn histogram_of_spans() -> Histogram<u64> {
    up_to(LONGEST_SPAN_US)
}

fn up_to(longest: u64) -> Histogram<u64> {
    // The bounds are constants and valid; a histogram that grows is the next best.
    Histogram::new_with_bounds(1, longest, 3)
        .unwrap_or_else(|_| Histogram::new(1).unwrap_or_else(|_| unreachable!("one digit is valid")))
}

/// A span in whole microseconds, for a histogram of spans.
pub(crate) fn micros_of_span(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).clamp(1, LONGEST_SPAN_US)
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).clamp(1, LONGEST_US)
}

/// How a request came out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Came<'a> {
    /// That answer.
    Answer(&'a Response),
    /// None.
    None(&'a TransportError),
    /// It was not sent: too many wait on its connection already.
    NotSent,
}

impl<'a> Came<'a> {
    pub(crate) fn of(result: &'a Result<Response, TransportError>) -> Self {
        match result {
            Ok(response) => Came::Answer(response),
            Err(error) => Came::None(error),
        }
    }

    /// The kind of error; `None`: it went well.
    fn error(self) -> Option<String> {
        Some(match self {
            Came::Answer(answer) if answer.status < 400 => return None,
            Came::Answer(answer) if answer.status == 429 => TURNED_AWAY.to_owned(),
            Came::Answer(answer) => format!("HTTP {}", answer.status),
            Came::None(TransportError::Connect(why)) if is_out_of_descriptors(why) => NO_DESCRIPTOR.to_owned(),
            Came::None(TransportError::Connect(_)) => "cannot connect".to_owned(),
            Came::None(TransportError::Lost(_)) => "connection lost".to_owned(),
            Came::None(TransportError::Timeout(_)) => "no answer in time".to_owned(),
            Came::NotSent => "not sent: too many were waiting on the connection".to_owned(),
        })
    }

    /// Was it looked at? The time in which somebody is sent away again says nothing about how long those wait that are not.
    fn was_looked_at(self) -> bool {
        match self {
            Came::Answer(answer) => answer.status != 429,
            Came::None(TransportError::Connect(why)) => !is_out_of_descriptors(why),
            Came::None(_) => true,
            Came::NotSent => false,
        }
    }

    /// What was said about a refusal.
    fn words(self) -> Option<String> {
        match self {
            Came::Answer(answer) if (400..500).contains(&answer.status) && answer.status != 429 => {
                let said = answer.decode::<ErrorBody>().map(|error| error.reason).unwrap_or_default();
                let colon = if said.is_empty() { "" } else { ": " };
                Some(format!("HTTP {}{colon}{}", answer.status, without_names(&said)))
            }
            _ => None,
        }
    }
}

/// Is it this process, or this computer, that has no file free (ENFILE, EMFILE)? Then nothing is known of the service.
fn is_out_of_descriptors(why: &str) -> bool {
    ["(os error 23)", "(os error 24)"].iter().any(|code| why.contains(code))
}

/// No words are kept beyond so many letters.
const LONGEST_WORDS: usize = 160;

/// The text without what differs from one host and cluster to the next: their ids.
fn without_names(text: &str) -> String {
    let is_id = |word: &str| word.len() == 36 && uuid::Uuid::try_parse(word).is_ok();
    let mut all = String::new();
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '-') {
        let bare = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        match is_id(bare) {
            true => {
                all.push_str("ID");
                all.push_str(&word[bare.len()..]);
            }
            false => all.push_str(word),
        }
    }
    all.chars().take(LONGEST_WORDS).collect()
}

/// Position of a phase, an operation, and what was counted of both.
pub(crate) type OfOperation = (usize, &'static str, Counted);

/// What was counted of an operation.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) offered: u64,
    pub(crate) answered: u64,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) said: BTreeMap<String, u64>,
    pub(crate) latency: Histogram<u64>,
}

/// Counts of a part of a plan.
pub(crate) struct Record {
    lines: BTreeMap<(usize, &'static str), Line>,
    /// How late requests were made.
    late: Histogram<u64>,
    seconds: Vec<(Second, Option<Histogram<u64>>)>,
}

impl Default for Record {
    fn default() -> Self {
        Self { lines: BTreeMap::new(), late: histogram(), seconds: Vec::new() }
    }
}

impl Record {
    fn line(&mut self, phase: usize, operation: &'static str) -> &mut Line {
        self.lines.entry((phase, operation)).or_insert_with(|| Line {
            offered: 0,
            answered: 0,
            errors: BTreeMap::new(),
            said: BTreeMap::new(),
            latency: histogram(),
        })
    }

    fn second(&mut self, at: Duration) -> &mut (Second, Option<Histogram<u64>>) {
        let index = usize::try_from(at.as_secs()).unwrap_or(usize::MAX).min(7 * 24 * 3600);
        while self.seconds.len() <= index {
            let at = self.seconds.len() as u64;
            // What is over need not be kept in full; answers that come now are of this second.
            if let Some(done) = self.seconds.len().checked_sub(KEPT_SECONDS).and_then(|n| self.seconds.get_mut(n)) {
                settle(done);
            }
            self.seconds.push((Second { at, ..Second::default() }, None));
        }
        &mut self.seconds[index]
    }

    /// A request was to be made at `intended` and is made `late` after that.
    pub(crate) fn offer(&mut self, phase: usize, operation: &'static str, intended: Duration, late: Duration) {
        self.line(phase, operation).offered += 1;
        self.late.saturating_record(micros(late));
        let second = &mut self.second(intended).0;
        second.offered += 1;
        second.late_us = second.late_us.max(micros(late));
    }

    /// It came out so, `took` after it was to be made.
    pub(crate) fn came(
        &mut self,
        phase: usize,
        operation: &'static str,
        now: Duration,
        took: Duration,
        came: Came<'_>,
    ) {
        let error = came.error();
        let line = self.line(phase, operation);
        let looked_at = came.was_looked_at();
        if looked_at {
            line.latency.saturating_record(micros(took));
        }
        if let Some(words) = came.words() {
            let known = line.said.contains_key(&words) || line.said.len() < MOST_WORDS;
            *line.said.entry(if known { words } else { OTHER_WORDS.to_owned() }).or_default() += 1;
        }
        match &error {
            None => line.answered += 1,
            Some(kind) => *line.errors.entry(kind.clone()).or_default() += 1,
        }
        let (second, histogram_of) = self.second(now);
        match error {
            None => second.answered += 1,
            Some(_) => second.failed += 1,
        }
        if looked_at {
            histogram_of.get_or_insert_with(histogram).saturating_record(micros(took));
        }
    }

    /// All phases of each operation together.
    pub(crate) fn operations(&self) -> BTreeMap<&'static str, Line> {
        let mut all: BTreeMap<&'static str, Line> = BTreeMap::new();
        for ((_, operation), line) in &self.lines {
            let Some(sum) = all.get_mut(operation) else {
                all.insert(operation, line.clone());
                continue;
            };
            sum.offered += line.offered;
            sum.answered += line.answered;
            for (kind, count) in &line.errors {
                *sum.errors.entry(kind.clone()).or_default() += count;
            }
            // Both have the same bounds.
            let _ = sum.latency.add(&line.latency);
        }
        all
    }

    /// How late requests were made, in microseconds.
    pub(crate) fn late(&self) -> &Histogram<u64> {
        &self.late
    }

    /// What the processes did in that second.
    pub(crate) fn note(&mut self, at: Duration, note: impl FnOnce(&mut Second)) {
        note(&mut self.second(at).0);
    }

    /// Answered and failed requests of the last seconds before `now`.
    pub(crate) fn lately(&self, now: Duration, seconds: u64) -> (u64, u64) {
        let from = now.as_secs().saturating_sub(seconds);
        let of = self.seconds.iter().rev().map(|(s, _)| s).take_while(|s| s.at >= from);
        of.fold((0, 0), |(answered, failed), s| (answered + s.answered, failed + s.failed))
    }

    /// Quantiles of the last second that is over, in microseconds.
    pub(crate) fn last_second(&self, now: Duration) -> Option<(&Second, u64, u64)> {
        let index = usize::try_from(now.as_secs().checked_sub(1)?).ok()?;
        let (second, histogram) = self.seconds.get(index)?;
        let at = |q| histogram.as_ref().map_or(0, |h| h.value_at_quantile(q));
        Some((second, at(0.5), at(0.99)))
    }

    /// Every second that is over.
    pub(crate) fn seconds(&self, now: Duration) -> Vec<Second> {
        // Of the one that goes on there is too little.
        let over = self.seconds.iter().filter(|(second, _)| second.at < now.as_secs());
        over.map(|(second, histogram)| settled(second, histogram.as_ref())).collect()
    }

    /// What was counted, in the form in which it is kept.
    pub(crate) fn finish(mut self) -> (Vec<OfOperation>, Histogram<u64>, Vec<Second>) {
        self.seconds.iter_mut().for_each(settle);
        let counted = self.lines.into_iter().map(|((phase, operation), line)| {
            let counted = Counted {
                offered: line.offered,
                answered: line.answered,
                errors: line.errors,
                said: line.said,
                latency: line.latency.into(),
            };
            (phase, operation, counted)
        });
        (counted.collect(), self.late, self.seconds.into_iter().map(|(second, _)| second).collect())
    }
}

fn settle((second, histogram): &mut (Second, Option<Histogram<u64>>)) {
    *second = settled(second, histogram.take().as_ref());
}

/// A second with the quantiles of its answers.
fn settled(second: &Second, histogram: Option<&Histogram<u64>>) -> Second {
    let mut second = second.clone();
    if let Some(histogram) = histogram {
        second.p50_us = histogram.value_at_quantile(0.5);
        second.p99_us = histogram.value_at_quantile(0.99);
    }
    second
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, reason: &str) -> Response {
        Response::json(status, &ErrorBody { reason: reason.to_owned(), ..ErrorBody::default() })
    }

    #[test]
    fn what_is_refused_is_told_in_the_services_words() {
        let mut record = Record::default();
        let ms = Duration::from_millis;
        for id in ["00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"] {
            let refused = refusal(
                409,
                &format!("cluster {id} is not ready: it is installing (Installation is (still) going on)"),
            );
            record.came(0, "v2InstallCluster", ms(1), ms(1), Came::Answer(&refused));
        }
        record.came(0, "v2InstallCluster", ms(1), ms(1), Came::Answer(&Response::empty(404)));
        for n in 0..100 {
            record.came(0, "v2GetCluster", ms(1), ms(1), Came::Answer(&refusal(400, &format!("wrong {n}"))));
        }
        let (lines, ..) = record.finish();
        let of = |operation: &str| &lines.iter().find(|(_, of, _)| *of == operation).unwrap().2;
        let said: Vec<_> = of("v2InstallCluster").said.iter().map(|(words, n)| (words.as_str(), *n)).collect();
        assert_eq!(
            said,
            [
                ("HTTP 404", 1),
                ("HTTP 409: cluster ID is not ready: it is installing (Installation is (still) going on)", 2)
            ]
        );
        assert_eq!(of("v2InstallCluster").errors.values().sum::<u64>(), 3);
        // Words that never come twice do not fill the memory, and are counted all the same.
        let many = of("v2GetCluster");
        assert_eq!((many.said.len(), many.said.values().sum::<u64>()), (MOST_WORDS + 1, 100));
    }

    #[test]
    fn who_has_no_descriptor_free_does_not_blame_the_service() {
        let mut record = Record::default();
        for code in [nix::errno::Errno::EMFILE, nix::errno::Errno::ENFILE, nix::errno::Errno::ECONNREFUSED] {
            let error = TransportError::Connect(std::io::Error::from_raw_os_error(code as i32).to_string());
            record.came(0, "v2GetNextSteps", Duration::ZERO, Duration::ZERO, Came::None(&error));
        }
        let (lines, ..) = record.finish();
        let wanted = BTreeMap::from([(NO_DESCRIPTOR.to_owned(), 2), ("cannot connect".to_owned(), 1)]);
        assert_eq!(lines[0].2.errors, wanted);
        // They waited for nobody.
        assert_eq!(lines[0].2.latency.count(), 1);
    }

    #[test]
    fn what_is_over_is_not_kept_in_full() {
        let mut record = Record::default();
        for n in 0..1000 {
            let at = Duration::from_secs(n);
            record.came(0, "v2GetNextSteps", at, Duration::from_millis(n), Came::Answer(&Response::empty(200)));
        }
        let in_full = record.seconds.iter().filter(|(_, histogram)| histogram.is_some()).count();
        assert!(KEPT_SECONDS as u64 >= crate::lines::BUDGET.as_secs() && in_full <= KEPT_SECONDS, "{in_full}");
        let (.., seconds) = record.finish();
        assert!((99_000..101_000).contains(&seconds[100].p50_us), "{:?}", seconds[100]);
    }

    #[test]
    fn who_is_turned_away_does_not_make_the_service_look_fast() {
        let mut record = Record::default();
        let ms = Duration::from_millis;
        record.came(0, "v2GetNextSteps", ms(900), ms(900), Came::Answer(&Response::empty(200)));
        for _ in 0..99 {
            record.came(0, "v2GetNextSteps", ms(900), ms(1), Came::Answer(&refusal(429, "later")));
        }
        let (lines, _, seconds) = record.finish();
        let counted = &lines[0].2;
        assert_eq!(counted.errors, BTreeMap::from([(TURNED_AWAY.to_owned(), 99)]));
        assert_eq!((counted.answered, counted.latency.count(), counted.said.len()), (1, 1, 0));
        assert!(counted.latency.quantile_ms(0.5) > 890.0 && seconds[0].p50_us > 890_000);
        assert_eq!((seconds[0].answered, seconds[0].failed), (1, 99));
    }
}
