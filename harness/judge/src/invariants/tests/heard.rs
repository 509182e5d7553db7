//! Invariants over what is heard beside the states: each holds over a good story, and notices an altered one.

use std::time::Duration;

use vlab_model::validation::ValidationStatus::{self, Failure, Success};

use super::*;

fn ready() -> Story {
    let mut s = Story::default();
    s.cluster(ClusterStatus::Insufficient);
    s.host(0, HostStatus::Discovering);
    s.host(0, HostStatus::Known);
    s
}

impl Story {
    fn polls(&mut self, from: i64, to: i64) {
        let at = Timestamp::from_secs;
        let what = What::Polls { host: id(0), from: at(from), to: at(to), count: 9, longest_ms: 60_000, tried: at(to) };
        self.say(Source::Hosts, what);
    }
    /// What that host was answered from then until now.
    fn instructed(&self, host: usize, from: Timestamp, (steps, next): (&[&str], i64)) -> What {
        let (to, steps) = (Timestamp::from_secs(self.now()), steps.iter().map(|s| (*s).to_owned()).collect());
        What::Instructed { host: id(host), from, to, count: 9, longest_ms: 60_000, steps, next, exit: false }
    }
    fn validation(&mut self, source: Source, name: &str, to: ValidationStatus) {
        let (subject, id, message) = (id(0), name.to_owned(), String::new());
        self.say(source, What::Validation { subject, is_cluster: false, id, from: None, to: Some(to), message });
    }
    fn run(&mut self, info: RunInfo) {
        let first = Observation { what: What::RunStarted(info), ..self.lines[0].clone() };
        self.lines.insert(0, first);
        for (seq, line) in self.lines.iter_mut().enumerate() {
            line.seq = seq as u64;
        }
    }
}

fn says(story: &Story, id: &str) -> String {
    match verdict(story, id) {
        InvariantVerdict::Held => "held".to_owned(),
        InvariantVerdict::Violated { details, .. } => details.join("; "),
        InvariantVerdict::NotApplicable { reason } => reason,
    }
}

/// A host that asked from the beginning until so many seconds before it was disconnected, or is not.
#[rstest]
#[case::all_the_time(-60, true, "asks for instructions all the time")]
#[case::too_soon(60, true, "is disconnected 60 s after it asked, and not 180 s")]
#[case::in_time(200, true, "held")]
#[case::silent_and_not_for_long(150, false, "no host was silent")]
#[case::silent_for_long(900, false, "is still known")]
fn silence_disconnects_those_who_are_silent(#[case] silent: i64, #[case] gone: bool, #[case] expected: &str) {
    let mut s = ready();
    s.skipped += 2000;
    let now = s.now();
    if gone {
        s.host(0, HostStatus::Disconnected);
    }
    s.polls(1_000, now - silent);
    assert!(says(&s, "silence-disconnects").contains(expected), "{}", says(&s, "silence-disconnects"));
}

#[test]
fn silence_disconnects_hears_the_validation_too_and_says_what_it_cannot_hear() {
    let mut s = ready();
    s.skipped += 500;
    s.validation(Source::Database, "connected", Failure);
    let now = s.now();
    s.polls(1_000, now);
    assert!(says(&s, "silence-disconnects").contains("all the time"));
    let mut s = ready();
    s.run(RunInfo { hosts: vlab_model::history::HostsKind::Vm, ..RunInfo::default() });
    assert!(says(&s, "silence-disconnects").starts_with("not checked: machines"));
    let mut polled = Story::default();
    let (to, info) = (HostStatus::Known, String::new());
    polled.say(Source::Poll, What::HostStatus { host: id(0), cluster: Some(C), from: None, to, info });
    for id in ["silence-disconnects", "validations-agree", "api-agrees", "times-follow", "at-rest"] {
        assert!(says(&polled, id).starts_with("not checked: "), "{id}: {}", says(&polled, id));
    }
}

/// The service has not heard yet what is still on its way.
#[test]
fn silence_disconnects_does_not_count_a_question_that_is_on_its_way() {
    let mut s = ready();
    let begin = s.now();
    s.polls(begin - 100, begin);
    s.skipped += 185;
    s.host(0, HostStatus::Disconnected);
    let then = s.lines.last().unwrap().harness_time;
    let (from, tried) = (then - Duration::from_millis(2), then + Duration::from_secs(5));
    s.say(Source::Hosts, What::Polls { host: id(0), from, to: tried, count: 9, longest_ms: 1_000, tried });
    assert_eq!(says(&s, "silence-disconnects"), "held");
}

/// Two hosts are known, one of which is cancelled and so stays; what one of them was answered in that time.
#[rstest]
#[case::all(HostStatus::Known, &["inventory", "connectivity-check", "ntp-synchronizer", "verify-vips"], 60, "held")]
#[case::no_ntp(HostStatus::Known, &["inventory", "connectivity-check"], 60, "is known and was not asked for ntp-synchronizer")]
#[case::nobody_to_reach(HostStatus::Known, &["inventory", "ntp-synchronizer"], 60, "not asked for connectivity-check")]
#[case::more(HostStatus::Known, &["inventory", "connectivity-check", "ntp-synchronizer", "install"], 60, "was asked for install")]
#[case::too_soon(HostStatus::Known, &["inventory", "connectivity-check", "ntp-synchronizer"], 6, "after 6 s, not 60 s")]
#[case::upgrade(HostStatus::Known, &["upgrade-agent"], 60, "held")]
#[case::stop(HostStatus::Cancelled, &["logs-gather", "stop-installation"], 120, "held")]
#[case::no_logs(HostStatus::Cancelled, &["stop-installation"], 120, "is cancelled and was not asked for logs-gather")]
#[case::of_before(HostStatus::Cancelled, &["inventory", "connectivity-check", "ntp-synchronizer"], 60, "is cancelled and was asked for")]
#[case::too_often(HostStatus::Cancelled, &["logs-gather", "stop-installation"], 60, "after 60 s, not 120 s")]
#[case::nothing(HostStatus::InstallingInProgress, &[], 60, "held")]
fn hosts_are_asked_for_what_their_status_asks_of_them(
    #[case] status: HostStatus,
    #[case] steps: &[&str],
    #[case] next: i64,
    #[case] expected: &str,
) {
    let mut s = ready();
    s.host(1, HostStatus::Known);
    s.skipped += 100;
    if status != HostStatus::Known {
        s.host(0, status);
    }
    s.skipped += 100;
    let from = Timestamp::from_secs(s.now());
    s.skipped += 600;
    let told = s.instructed(0, from, (steps, next));
    s.say(Source::Hosts, told);
    s.run(RunInfo { settings: Some(Box::default()), ..RunInfo::default() });
    let said = says(&s, "asked-for-all");
    assert!(said.contains(expected), "{said}");
}

/// Whom it could have reached came late, and was there for long enough.
#[rstest]
#[case(300, "was not asked for connectivity-check")]
#[case(30, "held")]
fn hosts_are_asked_to_reach_others_as_soon_as_there_are_any(#[case] together: i64, #[case] expected: &str) {
    let mut s = ready();
    s.skipped += 100;
    let from = Timestamp::from_secs(s.now());
    s.skipped += 300;
    s.host(1, HostStatus::Discovering);
    s.host(1, HostStatus::Known);
    s.skipped += together;
    let told = s.instructed(0, from, (&["inventory", "ntp-synchronizer"], 60));
    s.say(Source::Hosts, told);
    s.run(RunInfo { settings: Some(Box::default()), ..RunInfo::default() });
    let said = says(&s, "asked-for-all");
    assert!(said.contains(expected), "{said}");
}

/// The service's times are whole milliseconds: a question that came in the same one as a change may be answered for the status before it,
/// also in virtual time, where nothing else is late.
#[rstest]
#[case(400, "held")]
#[case(4_000, "and was told to ask again after 120 s, not 60 s")]
fn what_a_host_is_answered_in_the_millisecond_of_a_change(#[case] micros: u64, #[case] expected: &str) {
    let mut s = ready();
    s.skipped += 100;
    s.host(0, HostStatus::Disconnected);
    s.skipped += 48;
    let from = Timestamp::from_secs(s.now()) + Duration::from_micros(micros);
    s.host(0, HostStatus::Discovering);
    let (steps, to) = (vec!["inventory".to_owned()], from + Duration::from_millis(1));
    let told = What::Instructed { host: id(0), from, to, count: 1, longest_ms: 1, steps, next: 120, exit: false };
    s.say(Source::Hosts, told);
    s.run(RunInfo { settings: Some(Box::default()), virtual_time: true, ..RunInfo::default() });
    let said = says(&s, "asked-for-all");
    assert!(said.contains(expected), "{said}");
}

/// An answer may be for the status before or after, and a host whose logs are there is not asked for them.
#[test]
fn what_a_host_is_answered_while_it_moves_is_for_one_status_or_the_other() {
    let known: &[&str] = &["inventory", "ntp-synchronizer"];
    let stop: &[&str] = &["stop-installation"];
    let all: &[&str] = &["logs-gather", "stop-installation"];
    let told = |steps: &[&str], next, logs: bool| {
        let mut s = ready();
        s.skipped += 100;
        let from = Timestamp::from_secs(s.now() - 1);
        s.host(0, HostStatus::Cancelled);
        if logs {
            s.say(Source::Database, What::HostLogs { host: id(0), state: LogsState::Collecting });
        }
        let told = s.instructed(0, from, (steps, next));
        s.say(Source::Hosts, told);
        s.run(RunInfo { settings: Some(Box::default()), ..RunInfo::default() });
        says(&s, "asked-for-all")
    };
    assert_eq!(told(known, 60, false), "held");
    assert_eq!(told(all, 120, false), "held");
    assert_eq!(told(stop, 120, true), "held");
    assert!(told(stop, 120, false).contains("not asked for logs-gather"), "{}", told(stop, 120, false));
    assert!(told(&["install"], 60, true).contains("asked for install"));
}

/// Cores, memory in GiB, disk in GB.
#[rstest]
#[case::enough(Some((8, 16, 120)), "has-min-cpu-cores", Success, "held")]
#[case::too_few_cores(Some((1, 16, 120)), "has-min-cpu-cores", Success, "succeeds with an inventory that says otherwise")]
#[case::too_little_memory(Some((8, 4, 120)), "has-min-memory", Success, "succeeds with")]
#[case::memory_is_there(Some((8, 64, 120)), "has-min-memory", Failure, "has-min-memory fails with")]
#[case::too_small_a_disk(Some((8, 16, 20)), "has-min-valid-disks", Success, "succeeds with")]
#[case::memory_for_no_role(Some((8, 2, 120)), "has-memory-for-role", Success, "succeeds with")]
#[case::no_inventory(None, "has-inventory", Success, "the service has taken no inventory")]
fn validations_agree_with_what_the_host_said(
    #[case] said: Option<(i64, i64, i64)>,
    #[case] validation: &str,
    #[case] status: ValidationStatus,
    #[case] expected: &str,
) {
    let mut s = ready();
    s.role(0, HostRole::Worker, false);
    let tell = |s: &mut Story, host: usize, (cores, memory, disk): (i64, i64, i64)| {
        let (host, sent) = (id(host), Timestamp::from_secs(s.now()));
        let (memory, disk, name) = (memory << 30, Some(disk * 1_000_000_000), "n".to_owned());
        s.say(
            Source::Hosts,
            What::Inventory { host, sent, cores, memory, meminfo: false, disk, name, unanswered: false },
        );
    };
    // Somebody is heard.
    tell(&mut s, 1, (8, 16, 120));
    if let Some(said) = said {
        tell(&mut s, 0, said);
    }
    s.validation(Source::Database, validation, status);
    assert!(says(&s, "validations-agree").contains(expected), "{}", says(&s, "validations-agree"));
}

/// Whose answer was lost may have been taken, or not.
#[rstest]
#[case("has-inventory", Success)]
#[case("has-inventory", Failure)]
#[case("has-min-cpu-cores", Success)]
#[case("has-min-cpu-cores", Failure)]
fn an_inventory_without_an_answer_may_have_been_taken(#[case] validation: &str, #[case] status: ValidationStatus) {
    let mut s = ready();
    s.role(0, HostRole::Worker, false);
    let tell = |s: &mut Story, cores: i64, unanswered: bool| {
        let (host, sent, name) = (id(0), Timestamp::from_secs(s.now()), "n".to_owned());
        let (memory, disk) = (16 << 30, Some(120_000_000_000));
        s.say(Source::Hosts, What::Inventory { host, sent, cores, memory, meminfo: false, disk, name, unanswered });
    };
    if validation != "has-inventory" {
        tell(&mut s, 1, false);
    }
    tell(&mut s, 8, true);
    s.validation(Source::Database, validation, status);
    let said = says(&s, "validations-agree");
    assert!(said == "held" || said.starts_with("not checked"), "{said}");
}

#[test]
fn one_service_decides_each_transition() {
    let writer = |name: &str| What::Writer { name: name.to_owned() };
    let mut s = Story::default();
    s.say(Source::Database, writer("a"));
    s.cluster(ClusterStatus::Insufficient);
    s.host(0, HostStatus::Discovering);
    assert_eq!(says(&s, "one-service-decides"), "not checked: one service wrote all changes (a)");
    s.say(Source::Database, writer("b"));
    s.host(0, HostStatus::Known);
    assert_eq!(says(&s, "one-service-decides"), "held");
    s.say(Source::Database, writer("a"));
    let (name, value) = ("status_updated_at".to_owned(), None);
    s.say(Source::Database, What::OddTime { subject: id(0), is_cluster: false, name, moved: true, value });
    assert!(says(&s, "one-service-decides").contains("a applied a change of the status again that b had made"));
    assert!(says(&ready(), "one-service-decides").contains("does not say which service wrote"));
}

#[test]
fn times_follow_what_they_time() {
    let odd = |moved: Option<bool>, times_followed: bool| {
        let mut s = ready();
        let (subject, name) = (id(0), "status_updated_at".to_owned());
        if let Some(moved) = moved {
            s.say(Source::Database, What::OddTime { subject, is_cluster: false, name, moved, value: None });
        }
        s.run(RunInfo { times_followed, ..RunInfo::default() });
        says(&s, "times-follow")
    };
    assert_eq!(odd(None, true), "held");
    assert_eq!(odd(None, false), "not checked: the times of rows were not followed");
    assert!(odd(Some(true), true).contains("status_updated_at moved to not set, and what it times did not change"));
    assert!(odd(Some(false), true).contains("status_updated_at stayed at not set when what it times changed"));
}

#[rstest]
#[case::at_rest(0, false, "held")]
#[case::changes_and_is_changed_back(2, false, "held")]
#[case::a_loop(6, false, "its validation ntp-synced goes back and forth")]
#[case::told_each_time(6, true, "held")]
fn at_rest_nothing_goes_back_and_forth(#[case] times: usize, #[case] told: bool, #[case] expected: &str) {
    let mut s = ready();
    s.step(0, StepType::Inventory);
    s.skipped += 600;
    for n in 0..times {
        if told {
            s.step(0, StepType::NtpSynchronizer);
        }
        s.validation(Source::Database, "ntp-synced", if n % 2 == 0 { Success } else { Failure });
    }
    s.skipped += 600;
    s.wait(1);
    assert!(says(&s, "at-rest").contains(expected), "{}", says(&s, "at-rest"));
}

/// What the service writes itself is no news to it.
#[rstest]
#[case::once_there_and_back(2, "held")]
#[case::a_loop(6, "state of its logs goes back and forth")]
fn at_rest_rows_that_the_service_writes_are_no_news(#[case] times: usize, #[case] expected: &str) {
    let mut s = ready();
    s.step(0, StepType::Inventory);
    s.skipped += 600;
    for n in 0..times {
        let state = if n % 2 == 0 { LogsState::Collecting } else { LogsState::Requested };
        s.say(Source::Database, What::HostLogs { host: id(0), state });
    }
    s.skipped += 600;
    s.wait(1);
    assert!(says(&s, "at-rest").contains(expected), "{}", says(&s, "at-rest"));
}

#[test]
fn events_tell_how_serious_a_status_is_and_each_stage() {
    let real = |told: HostStage| {
        let mut s = until_installing();
        s.stage(0, HostStage::WritingImageToDisk);
        let text = format!("Host 0: reached installation stage {told}");
        for stage in [HostStage::StartingInstallation, HostStage::Installing] {
            let text = format!("Host 0: reached installation stage {stage}");
            (0..5)
                .for_each(|host| s.event_says("host_install_progress_updated", Some(C), Some(id(host)), text.clone()));
        }
        s.event_says("host_install_progress_updated", Some(C), Some(id(0)), text);
        s.wait(10);
        s.say(Source::Harness, What::LastLook {});
        s
    };
    let says = |mut s: Story| {
        s.run(RunInfo::default());
        self::says(&s, "events-tell")
    };
    assert!(says(real(HostStage::Rebooting)).contains("tells of its stage Writing image to disk"));
    let mut wrong = real(HostStage::WritingImageToDisk);
    wrong.host(0, HostStatus::Error);
    for line in &mut wrong.lines {
        if let What::Event { name, severity, .. } = &mut line.what
            && name == "host_status_updated"
        {
            *severity = vlab_api::types::Severity::Info;
        }
    }
    assert!(says(wrong).contains("has severity info and not error of a host that is error"));
}

/// What another service was told to wait is how long it waits.
#[test]
fn silence_is_measured_by_what_the_service_was_given() {
    let says = |given: Option<u64>| {
        let mut s = ready();
        s.skipped += 2000;
        let now = s.now();
        s.host(0, HostStatus::Disconnected);
        s.polls(1_000, now - 60);
        let given = given.map(|seconds| {
            let host_max_disconnection_time = Duration::from_secs(seconds);
            Box::new(vlab_model::settings::Settings { host_max_disconnection_time, ..Default::default() })
        });
        s.run(RunInfo { given, ..RunInfo::default() });
        self::says(&s, "silence-disconnects")
    };
    assert!(says(None).contains("and not 180 s"));
    assert!(says(Some(100)).contains("and not 100 s"));
    assert_eq!(says(Some(50)), "held");
}

#[test]
fn api_agrees_in_all_that_both_tell() {
    let mut s = until_installing();
    s.validation(Source::Database, "ntp-synced", Success);
    s.validation(Source::Poll, "ntp-synced", Success);
    s.say(Source::Poll, What::HostRole { host: id(0), role: HostRole::Master, bootstrap: false });
    assert_eq!(says(&s, "api-agrees"), "held");
    let mut wrong = Story { lines: s.lines.clone(), ..Story::default() };
    wrong.validation(Source::Poll, "ntp-synced", Failure);
    assert!(says(&wrong, "api-agrees").contains("validation ntp-synced"), "{}", says(&wrong, "api-agrees"));
    s.say(Source::Poll, What::HostRole { host: id(0), role: HostRole::Worker, bootstrap: false });
    assert!(says(&s, "api-agrees").contains("with role: role worker, which the database did not hold then"));
}

#[test]
fn api_agrees_shows_in_the_last_look_what_is_there() {
    let mut s = until_installing();
    let named = What::ClusterNamed { cluster: C, name: "c".into(), vip_dhcp: false };
    s.say(Source::Harness, named);
    s.validation(Source::Database, "ntp-synced", Success);
    s.validation(Source::Poll, "ntp-synced", Success);
    s.validation(Source::Database, "ntp-synced", Failure);
    s.skipped += 60;
    let looks = |mut s: Story, shown: bool| {
        s.say(Source::Harness, What::LastLook {});
        if shown {
            s.validation(Source::Poll, "ntp-synced", Failure);
        }
        says(&s, "api-agrees")
    };
    let copy = |s: &Story| Story { lines: s.lines.clone(), skipped: s.skipped, ..Story::default() };
    assert_eq!(looks(copy(&s), true), "held");
    assert!(looks(s, false).contains("still at the end"));
}
