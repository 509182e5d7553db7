//! Exploring from a snapshot: what is drawn must begin after the moment at which the lab was frozen.

use std::time::Duration;

use super::base::Added;

/// From when on, by the scenario's clock, and for how long something may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The moment of the snapshot, since the start of the run.
    pub from: Duration,
    /// For so long after it.
    pub long: Duration,
}

impl Window {
    /// Moves everything that is drawn for a time into the window. What waits for something to be seen stays: it is found out when it is
    /// tried whether that was seen before.
    pub fn moved(self, added: &mut Added) {
        for line in added.faults.iter_mut().chain(&mut added.actions) {
            *line = self.line(line);
        }
    }

    /// Everything begins at a time in the window, whatever it was to wait for: what that was seen before the snapshot.
    pub fn timed(self, added: &mut Added) {
        for line in added.faults.iter_mut().chain(&mut added.actions) {
            *line = self.at_a_time(line);
        }
    }

    /// `at: {…}` or `after: {…}` of a line, with what may follow it, becomes a time that depends on the line alone.
    fn at_a_time(self, line: &str) -> String {
        let Some((start, open)) = [", at: {", ", after: {"].iter().find_map(|key| Some((line.find(key)?, key.len())))
        else {
            return line.to_owned();
        };
        let Some(close) = line[start + open..].find('}').map(|close| start + open + close + 1) else {
            return line.to_owned();
        };
        let then = ", then: ";
        let end = match line[close..].strip_prefix(then) {
            Some(rest) => close + then.len() + rest.find([',', '}']).unwrap_or(rest.len()),
            None => close,
        };
        // FNV-1a.
        let hash =
            line.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        let time = self.from.as_secs() + 1 + hash % self.long.as_secs().max(1);
        format!("{}, at: {time}s{}", &line[..start], &line[end..])
    }

    /// `at: 12m5s` as it is drawn, in a line; everything else in it stays.
    fn line(self, line: &str) -> String {
        const AT: &str = ", at: ";
        let time = |rest: &str| -> Option<(u64, usize)> {
            let end = rest.find([',', '}'])?;
            let (minutes, seconds) = match rest[..end].split_once('m') {
                Some((minutes, "")) => (minutes, "0"),
                Some((minutes, seconds)) => (minutes, seconds.strip_suffix('s')?),
                None => ("0", rest[..end].strip_suffix('s')?),
            };
            Some((minutes.parse::<u64>().ok()? * 60 + seconds.parse::<u64>().ok()?, end))
        };
        let Some(at) = line.find(AT).map(|at| at + AT.len()) else { return line.to_owned() };
        let Some((seconds, end)) = time(&line[at..]) else { return line.to_owned() };
        let moved = self.from.as_secs() + 1 + seconds % self.long.as_secs().max(1);
        format!("{}{moved}s{}", &line[..at], &line[at + end..])
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("{name: f1, at: 1s, target: service}", "{name: f1, at: 602s, target: service}")]
    #[case("{name: f1, at: 4m, target: service}", "{name: f1, at: 841s, target: service}")]
    #[case("{name: f1, at: 6m5s, target: service}", "{name: f1, at: 666s, target: service}")]
    #[case("{do: cancel, cluster: c, at: 7s}", "{do: cancel, cluster: c, at: 608s}")]
    #[case("{name: f1, at: {host: a, status: known}, for: 5m}", "{name: f1, at: {host: a, status: known}, for: 5m}")]
    #[case("{name: f1, for: 5m}", "{name: f1, for: 5m}")]
    fn what_begins_at_a_time_begins_after_the_snapshot(#[case] line: &str, #[case] moved: &str) {
        let window = Window { from: Duration::from_secs(600), long: Duration::from_secs(300) };
        let mut added = Added { faults: vec![line.to_owned()], ..Added::default() };
        window.moved(&mut added);
        assert_eq!(added.faults, [moved]);
    }

    #[rstest]
    #[case("{name: f1, at: {host: a, status: known}, for: 5m}", "{name: f1, at: ", "s, for: 5m}")]
    #[case("{name: f1, at: {host: a, stage: Done}, then: 60s, target: a}", "{name: f1, at: ", "s, target: a}")]
    #[case(
        "{do: reset, cluster: c, after: {cluster: c, status: ready}, then: 5s}",
        "{do: reset, cluster: c, at: ",
        "s}"
    )]
    #[case("{name: f1, at: 700s, target: a}", "{name: f1, at: 700", "s, target: a}")]
    fn what_waits_can_be_given_a_time(#[case] line: &str, #[case] begin: &str, #[case] end: &str) {
        let window = Window { from: Duration::from_secs(600), long: Duration::from_secs(300) };
        let mut added = Added { actions: vec![line.to_owned()], ..Added::default() };
        window.timed(&mut added);
        let [found] = &added.actions[..] else { panic!("{added:?}") };
        let time =
            found.strip_prefix(begin).and_then(|rest| rest.strip_suffix(end)).unwrap_or_else(|| panic!("{found}"));
        assert!(time.is_empty() || (601..=900).contains(&time.parse::<u64>().unwrap()), "{found}");
    }
}
