//! When faults begin and end, and whom they hit.

use rstest::rstest;
use uuid::Uuid;
use vlab_api::types::{HostRole, HostStage, HostStatus};
use vlab_history::Recorder;
use vlab_judge::lives::lives;
use vlab_model::history::{HostsKind, Source};
use vlab_scenario::{HostInjection, Injection, Moment, Quantity, RoleName, Seen, Span};

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_secs(seconds)
}

fn secs(n: u64) -> Span {
    Span::Service(std::time::Duration::from_secs(n))
}

fn hosts(names: &[&str]) -> Subject {
    Subject::Hosts(names.iter().map(|n| (*n).to_owned()).collect())
}

fn fault(injection: HostInjection, when: ActionTime, of: Subject, choose: Option<u32>) -> Fault {
    Fault {
        name: "it".into(),
        injection: Injection::Host(injection),
        when,
        target: FaultTarget::Hosts(WantedHosts { of, choose }),
        lasts: None,
        until: None,
        line: 1,
    }
}

struct FaultFixture {
    recorder: Recorder,
    directory: Directory,
    engine: Engine,
    present: Present,
}

impl FaultFixture {
    fn new(fault: Fault, seed: u64) -> Self {
        let mut bench = Self {
            recorder: Recorder::new(None),
            directory: Directory::new(Source::Database),
            engine: Engine::new(&[fault], seed, 10.0),
            present: Present::default(),
        };
        for i in 0..5u128 {
            let name = format!("h-{i}");
            bench.present.hosts.insert(name.clone());
            bench.see(0, What::HostNamed { host: Uuid::from_u128(i), name, kind: HostsKind::Simulated });
        }
        bench.see(0, What::ClusterNamed { cluster: Uuid::from_u128(99), name: "c".into(), vip_dhcp: false });
        bench.engine.start(at(0));
        bench
    }

    fn see(&mut self, when: i64, what: What) {
        let observation = self.recorder.record(Source::Database, None, at(when), what);
        self.directory.observe(observation);
        self.engine.observe(&self.directory, observation);
    }

    fn status(&mut self, when: i64, host: u128, to: HostStatus) {
        let (host, cluster) = (Uuid::from_u128(host), Some(Uuid::from_u128(99)));
        self.see(when, What::HostStatus { host, cluster, from: None, to, info: String::new() });
    }

    /// Words for what the engine orders at that time.
    fn orders(&mut self, when: i64) -> Vec<String> {
        self.engine.wake(at(when), &self.directory, &self.present);
        let hit = |hit: ResolvedTarget| {
            if let ResolvedTarget::Hosts(names) = hit { names.join(" ") } else { format!("{hit:?}") }
        };
        let (notes, orders) = self.engine.take();
        for what in notes {
            self.see(when, what);
        }
        let words = orders.into_iter().map(|order| match order {
            FaultOrder::Inject(_, on) => format!("+ {}", hit(on)),
            FaultOrder::Undo(_, on) => format!("- {}", hit(on)),
        });
        words.collect()
    }
}

#[test]
fn a_time_is_service_time_and_the_guard_takes_it_off() {
    let mut it = fault(HostInjection::Disconnect, ActionTime::At(secs(50)), hosts(&["h-1", "h-2"]), None);
    it.lasts = Some(secs(100));
    let mut bench = FaultFixture::new(it, 1);
    assert_eq!(bench.orders(4), [""; 0]);
    assert_eq!(bench.engine.next_wake(at(4)), Some(at(5)));
    assert_eq!(bench.orders(5), ["+ h-1 h-2"]);
    assert_eq!(bench.engine.next_wake(at(5)), Some(at(15)));
    assert_eq!(bench.orders(14), [""; 0]);
    assert_eq!(bench.orders(15), ["- h-1 h-2"]);
    assert_eq!(bench.orders(1000), [""; 0], "once is enough");
    assert_eq!(bench.engine.next_wake(at(15)), None);
    let lives = lives(bench.recorder.observations());
    assert_eq!(lives["it"].hit, ["disconnect of h-1", "disconnect of h-2"]);
    assert_eq!(lives["it"].ended, Some((at(15), "its time is up".into())));
    assert_eq!(lives["it"].effect, None, "the engine does not claim effects");
}

#[test]
fn what_is_on_at_the_end_is_taken_off_and_nothing_begins_any_more() {
    let it = fault(HostInjection::Crash, ActionTime::At(secs(0)), hosts(&["h-0"]), None);
    let mut bench = FaultFixture::new(it, 1);
    assert_eq!(bench.orders(0), ["+ h-0"]);
    bench.engine.finish(&bench.directory);
    assert_eq!(bench.orders(1), ["- h-0"]);
    let late = fault(HostInjection::Crash, ActionTime::At(secs(0)), hosts(&["h-0"]), None);
    let mut bench = FaultFixture::new(late, 1);
    bench.engine.finish(&bench.directory);
    assert_eq!(bench.orders(1), [""; 0]);
}

#[test]
fn a_moment_has_nothing_to_be_taken_off() {
    let it = fault(HostInjection::Reboot, ActionTime::At(secs(0)), hosts(&["h-0"]), None);
    let mut bench = FaultFixture::new(it, 1);
    assert_eq!(bench.orders(0), ["+ h-0"]);
    assert!(lives(bench.recorder.observations())["it"].ended.is_some());
    bench.engine.finish(&bench.directory);
    assert_eq!(bench.orders(1), [""; 0]);
}

#[rstest]
#[case::a_status(Seen::HostStatus(HostStatus::Known), false)]
#[case::a_percentage(Seen::Progress { stage: HostStage::WritingImageToDisk, percent: 40 }, true)]
fn it_begins_after_what_is_seen_and_ends_with_what_is_seen(#[case] seen: Seen, #[case] progress: bool) {
    let moment = Moment { subject: hosts(&["h-3"]), seen, of: Quantity::All };
    let mut it = fault(HostInjection::Disconnect, ActionTime::After { moment, then: secs(20) }, hosts(&["h-3"]), None);
    let back = Moment { subject: hosts(&["h-3"]), seen: Seen::HostStatus(HostStatus::Disconnected), of: Quantity::All };
    it.until = Some(back);
    let mut bench = FaultFixture::new(it, 1);
    // What was seen before it began does not end it.
    bench.status(1, 3, HostStatus::Disconnected);
    let (host, to) = (Uuid::from_u128(3), Some(HostStage::WritingImageToDisk));
    if progress {
        for (when, info) in [(1, ""), (2, "39%"), (3, "nonsense")] {
            bench.see(when, What::HostStage { host, from: None, to, info: info.into(), percentage: 0 });
        }
    }
    assert_eq!(bench.orders(5), [""; 0]);
    match progress {
        true => bench.see(6, What::HostStage { host, from: to, to, info: "45%".into(), percentage: 0 }),
        false => bench.status(6, 3, HostStatus::Known),
    }
    assert_eq!(bench.orders(6), [""; 0]);
    assert_eq!(bench.engine.next_wake(at(6)), Some(at(8)));
    assert_eq!(bench.orders(8), ["+ h-3"]);
    assert_eq!(bench.orders(9), [""; 0]);
    bench.status(10, 3, HostStatus::Disconnected);
    assert_eq!(bench.orders(10), ["- h-3"]);
}

#[test]
fn it_waits_for_what_it_hits() {
    let of = Subject::Role { role: RoleName::Bootstrap, cluster: "c".into() };
    let mut bench = FaultFixture::new(fault(HostInjection::Crash, ActionTime::At(secs(10)), of, None), 1);
    assert_eq!(bench.orders(20), [""; 0]);
    assert_eq!(bench.engine.next_wake(at(20)), None, "only something that is seen can bring it on");
    bench.status(30, 4, HostStatus::Installing);
    bench.see(30, What::HostRole { host: Uuid::from_u128(4), role: HostRole::Master, bootstrap: true });
    bench.present.hosts.remove("h-4");
    assert_eq!(bench.orders(30), [""; 0]);
    bench.present.hosts.insert("h-4".into());
    assert_eq!(bench.orders(31), ["+ h-4"]);
}

#[test]
fn the_seed_chooses_and_everybody_can_be_chosen() {
    let all = hosts(&["h-0", "h-1", "h-2", "h-3", "h-4"]);
    let chosen = |seed| {
        FaultFixture::new(fault(HostInjection::Crash, ActionTime::At(secs(0)), all.clone(), Some(2)), seed).orders(0)
    };
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        assert_eq!(chosen(seed), chosen(seed));
        let words = chosen(seed);
        let names: Vec<&str> = words[0].split(' ').skip(1).collect();
        assert!(names.len() == 2 && names[0] < names[1], "{names:?}");
        seen.insert(words);
    }
    assert_eq!(seen.len(), 10, "every pair of five");
}
