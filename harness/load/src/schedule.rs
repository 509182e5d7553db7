//! When each host does what, as the plan has it: a pure function. Nothing here depends on how fast anybody is.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vlab_scenario::{Arrivals, LoadMode, LoadPlan, PhaseKind};

/// A part of a plan: one of several generators that do not know of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which one, from 0.
    pub index: u32,
    /// Of how many.
    pub of: u32,
}

/// A part is written `1/4`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no part: write the number of the part and how many there are, for example `1/4`")]
pub struct BadPart(pub String);

impl Part {
    /// All of it.
    pub const WHOLE: Part = Part { index: 0, of: 1 };

    /// Is that host one of this part?
    pub fn has(self, host: u32) -> bool {
        host % self.of == self.index
    }
}

impl std::str::FromStr for Part {
    type Err = BadPart;
    fn from_str(text: &str) -> Result<Self, BadPart> {
        let bad = || BadPart(text.to_owned());
        let (number, of) = text.split_once('/').ok_or_else(bad)?;
        let (number, of): (u32, u32) = (number.parse().map_err(|_| bad())?, of.parse().map_err(|_| bad())?);
        if number == 0 || number > of {
            return Err(bad());
        }
        Ok(Self { index: number - 1, of })
    }
}

/// Something that a host does at its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostAction {
    /// It makes itself known, and polls from then on.
    Register,
    /// It is away from one moment to the other: what was under way is lost.
    GoAway,
    /// It comes back over a new connection, and registers again.
    Reboot,
    /// It comes back over a new connection.
    Reconnect,
    /// It asks no more.
    Stop,
}

/// An action with its time since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// When.
    pub at: Duration,
    /// Which host, from 0.
    pub host: u32,
    /// What.
    pub action: HostAction,
}

/// The moments within a phase at which `count` hosts do something.
fn moments(arrivals: Arrivals, count: u32, takes: Duration, dice: &mut ChaCha8Rng) -> Vec<Duration> {
    let share = |n: u32, of: u32| takes.mul_f64(f64::from(n) / f64::from(of.max(1)));
    match arrivals {
        Arrivals::Even => (0..count).map(|n| share(n, count)).collect(),
        Arrivals::Burst => {
            (0..count).map(|n| share(u32::try_from(u64::from(n) * 10 / u64::from(count)).unwrap_or(9), 10)).collect()
        }
        // Of a Poisson process of which the number of arrivals is known these are independent and uniform.
        Arrivals::Poisson => {
            let mut at: Vec<Duration> =
                (0..count).map(|_| takes.mul_f64(f64::from(dice.next_u32()) / (f64::from(u32::MAX) + 1.0))).collect();
            at.sort();
            at
        }
    }
}

/// Where a host of a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Position of its kind among the plan's clusters.
    pub kind: usize,
    /// Which of all the plan's settlements, of all kinds: what one scenario makes, which may be several clusters.
    pub settlement: u32,
    /// Position among that one's hosts.
    pub position: u32,
}

/// The seats of the hosts of clusters, in their order: that of the first host that is not unbound comes first.
pub fn seats(plan: &LoadPlan) -> Vec<Seat> {
    let mut seats = Vec::new();
    let mut settlement = 0;
    for (kind, clusters) in plan.clusters.iter().enumerate() {
        let hosts = u32::try_from(clusters.scenario.hosts.len()).unwrap_or(u32::MAX);
        for _ in 0..clusters.count {
            seats.extend((0..hosts).map(|position| Seat { kind, settlement, position }));
            settlement += 1;
        }
    }
    seats
}

/// What stays together when a plan is shared out among several generators: an unbound host by itself, the hosts of a settlement.
fn group_of(plan: &LoadPlan, seats: &[Seat], host: u32) -> u32 {
    let seat = host.checked_sub(plan.unbound).and_then(|n| seats.get(n as usize));
    seat.map_or(host, |seat| plan.unbound + seat.settlement)
}

/// The settlements of a part: the number and the kind of each.
pub fn settlements(plan: &LoadPlan, part: Part) -> Vec<(u32, usize)> {
    let mut all: Vec<(u32, usize)> = seats(plan).iter().map(|seat| (seat.settlement, seat.kind)).collect();
    all.dedup();
    all.retain(|(settlement, _)| part.has(plan.unbound + settlement));
    all
}

/// Lets `all` come in another order.
fn mix<T>(all: &mut [T], dice: &mut ChaCha8Rng) {
    for n in (1..all.len()).rev() {
        all.swap(n, ((u64::from(dice.next_u32()) * (n as u64 + 1)) >> 32) as usize);
    }
}

/// All actions of the hosts of a part, in order. Which host does something when is the same however many parts there are.
pub fn actions(plan: &LoadPlan, part: Part) -> Vec<Entry> {
    let mut dice = ChaCha8Rng::seed_from_u64(plan.seed);
    let mut entries = Vec::new();
    let seats = seats(plan);
    let mut hosts: Vec<u32> = (0..plan.hosts).collect();
    if !seats.is_empty() {
        // Who belongs to a cluster does not come after all others.
        mix(&mut hosts, &mut dice);
    }
    for (begins, phase) in plan.timetable() {
        if phase.kind == PhaseKind::Hold {
            continue;
        }
        let at = moments(plan.arrivals, plan.hosts, phase.takes, &mut dice);
        let of_part = |host: u32| part.has(group_of(plan, &seats, host));
        for (host, offset) in hosts.iter().copied().zip(at).filter(|(host, _)| of_part(*host)) {
            let mut add = |at, action| entries.push(Entry { at, host, action });
            match (phase.kind, plan.mode) {
                (PhaseKind::Ramp, _) => add(begins + offset, HostAction::Register),
                (PhaseKind::Drain, _) => add(begins + offset, HostAction::Stop),
                (PhaseKind::Storm, LoadMode::Reconnect) => {
                    // An outage is for all at once; coming back takes its time.
                    add(begins, HostAction::GoAway);
                    add(begins + offset, HostAction::Reconnect);
                }
                (PhaseKind::Storm, _) => {
                    add(begins, HostAction::GoAway);
                    add(begins + offset, HostAction::Reboot);
                }
                (PhaseKind::Hold, _) => {}
            }
        }
    }
    entries.sort();
    entries
}

/// When an installation begins, and which one it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Beginning {
    /// When.
    pub at: Duration,
    /// Its number, from 0.
    pub slot: u32,
    /// Position of its kind among the plan's clusters.
    pub kind: usize,
}

/// When the installations of a part begin, in order: the kinds are mixed by the seed.
pub fn beginnings(plan: &LoadPlan, part: Part) -> Vec<Beginning> {
    let mut dice = ChaCha8Rng::seed_from_u64(plan.seed);
    let mut kinds: Vec<usize> =
        plan.clusters.iter().enumerate().flat_map(|(kind, c)| std::iter::repeat_n(kind, c.count as usize)).collect();
    mix(&mut kinds, &mut dice);
    let ramp = plan.timetable().find(|(_, phase)| phase.kind == PhaseKind::Ramp);
    let (begins, takes) = ramp.map_or((Duration::ZERO, Duration::ZERO), |(at, phase)| (at, phase.takes));
    let count = u32::try_from(kinds.len()).unwrap_or(u32::MAX);
    let at = moments(plan.arrivals, count, takes, &mut dice);
    let all = (0..count).zip(kinds).zip(at).map(|((slot, kind), at)| Beginning { at: begins + at, slot, kind });
    let mut all: Vec<Beginning> = all.filter(|beginning| part.has(beginning.slot)).collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_scenario::{Catalogue, SourceFile, load_plan};

    use super::*;

    fn plan(rest: &str) -> LoadPlan {
        let text = format!("version: 1\nname: p\npopulation: {{unbound: 20}}\n{rest}");
        load_plan(&SourceFile::new("p.yaml", text), &Catalogue::embedded()).unwrap()
    }

    #[rstest]
    #[case("1/1", Some((0, 1)))]
    #[case("3/4", Some((2, 4)))]
    #[case("0/4", None)]
    #[case("5/4", None)]
    #[case("x", None)]
    fn parts_are_read(#[case] text: &str, #[case] is: Option<(u32, u32)>) {
        assert_eq!(text.parse::<Part>().ok().map(|part| (part.index, part.of)), is);
    }

    #[rstest]
    #[case("even")]
    #[case("poisson")]
    #[case("burst")]
    fn the_parts_are_the_whole(#[case] arrivals: &str) {
        let plan = plan(&format!(
            "mode: reboot-storm\narrivals: {arrivals}\nphases: [ramp: 10s, hold: 5s, storm: 2s, drain: 1s]"
        ));
        let whole = actions(&plan, Part::WHOLE);
        assert_eq!(whole.len(), 80);
        let mut parts: Vec<Entry> = (0..3).flat_map(|index| actions(&plan, Part { index, of: 3 })).collect();
        parts.sort();
        assert_eq!(parts, whole);
        assert!(whole.iter().all(|entry| entry.at < plan.takes()));
        let registered = whole.iter().filter(|e| e.action == HostAction::Register);
        assert!(registered.into_iter().all(|e| e.at < Duration::from_secs(10)));
    }

    #[test]
    fn the_hosts_of_a_cluster_are_of_one_part_and_come_among_the_others() {
        let text = "version: 1\nname: p\nmode: idle\npopulation: {unbound: 20, clusters: [{scenario: sno, count: 3}, {scenario: ha-3-2, count: 4}]}\nphases: [ramp: 10s]";
        let plan = load_plan(&SourceFile::new("p.yaml", text), &Catalogue::embedded()).unwrap();
        assert_eq!((plan.hosts, plan.unbound), (43, 20));
        let seats = seats(&plan);
        assert_eq!(seats[3], Seat { kind: 1, settlement: 3, position: 0 });
        let mut parts = Vec::new();
        for index in 0..3 {
            let part = Part { index, of: 3 };
            let own = settlements(&plan, part);
            let actions = actions(&plan, part);
            for entry in actions.iter().filter(|entry| entry.host >= 20) {
                let seat = seats[entry.host as usize - 20];
                assert!(own.contains(&(seat.settlement, seat.kind)), "{entry:?} of {own:?}");
            }
            parts.extend(actions);
        }
        parts.sort();
        let whole = actions(&plan, Part::WHOLE);
        assert_eq!((parts.len(), settlements(&plan, Part::WHOLE).len()), (43, 7));
        assert_eq!(parts, whole);
        let first_half = whole.iter().take(20).filter(|entry| entry.host >= 20).count();
        assert!((3..=17).contains(&first_half), "{first_half} of the first twenty");
    }

    #[rstest]
    #[case("even")]
    #[case("poisson")]
    #[case("burst")]
    fn all_installations_begin_within_the_ramp(#[case] arrivals: &str) {
        let text = format!(
            "version: 1\nname: p\nmode: installs\npopulation: {{clusters: [{{scenario: sno, count: 30}}, {{scenario: ha-3-2, count: 10}}]}}\narrivals: {arrivals}\nphases: [ramp: 10s, hold: 5s]"
        );
        let plan = load_plan(&SourceFile::new("p.yaml", text), &Catalogue::embedded()).unwrap();
        let whole = beginnings(&plan, Part::WHOLE);
        assert_eq!(whole.iter().filter(|b| b.kind == 1).count(), 10);
        assert_eq!(whole.len(), 40);
        assert!(whole.iter().all(|b| b.at < Duration::from_secs(10)));
        assert!(whole[..20].iter().any(|b| b.kind == 1), "the kinds are mixed");
        let mut parts: Vec<Beginning> = (0..3).flat_map(|index| beginnings(&plan, Part { index, of: 3 })).collect();
        parts.sort();
        assert_eq!(parts, whole);
    }

    #[test]
    fn even_and_burst_are_what_they_say() {
        let of = |arrivals: &str| {
            let plan = plan(&format!("mode: idle\narrivals: {arrivals}\nphases: [ramp: 10s]"));
            actions(&plan, Part::WHOLE).into_iter().map(|e| e.at.as_millis()).collect::<Vec<_>>()
        };
        assert_eq!(of("even")[..3], [0, 500, 1000]);
        assert_eq!(of("burst")[..5], [0, 0, 1000, 1000, 2000]);
    }
}
