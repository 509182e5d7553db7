//! The reports of made-up runs: what they say, that nothing in them can break out, and that a browser draws the page.

#![expect(clippy::unwrap_used, reason = "tests: a panic is the report")]

mod browser;
mod export;
mod hands;
mod sample;
mod shown;

use std::fs;

use proptest::prelude::*;
use rstest::rstest;
use vlab_api::types::{ClusterStatus, HostRole, HostStatus, Severity};
use vlab_judge::result::*;
use vlab_model::history::{
    ClusterMoment, FaultPhase, HistoryPart, HostMoment, HostsKind, MachineMoment, Observation, RunEnd, Source,
    TargetKind, UserVerb, What,
};
use vlab_reports::console::{self, Style};
use vlab_reports::{Redactor, html, junit, write_all};

const HOSTILE: &str = "</script><script>alert(1)</script><img src=x onerror='alert(2)'>\"&\u{1b}[31m\u{0}]]>{{7*7}}";

#[test]
fn result_json() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&sample::sno_failed().0).unwrap());
}

#[rstest]
#[case::passed(sample::ha().0)]
#[case::failed(sample::sno_failed().0)]
#[case::load(sample::fleet(10, 0).0)]
fn result_json_goes_both_ways(#[case] result: RunResult) {
    let text = serde_json::to_string(&result).unwrap();
    assert_eq!(serde_json::from_str::<RunResult>(&text).unwrap(), result);
}

#[test]
fn junit_of_a_failure() {
    insta::assert_snapshot!(junit::render(&sample::sno_failed().0));
}

#[test]
fn junit_of_a_run_that_was_cut_short_is_no_pass() {
    let mut result = sample::ha().0;
    result.cut_short(exit::INTERRUPTED, "interrupted by the user");
    let xml = junit::render(&result);
    assert!(xml.contains(r#"<skipped message="inconclusive: interrupted by the user"/>"#), "{xml}");
    assert!(xml.contains(r#"<property name="exit_code" value="130"/>"#), "{xml}");
}

#[test]
fn junit_names_are_unique() {
    let mut result = sample::sno_failed().0;
    for (host, verdict) in [("master-1", CheckVerdict::Passed), ("master-2", CheckVerdict::Failed)] {
        let mut check = CheckResult::new(CheckKind::Expectation, "host installs", verdict);
        check.subject = Some(host.into());
        result.checks.push(check);
    }
    let xml = junit::render(&result);
    for host in ["master-0", "master-1", "master-2"] {
        assert!(xml.contains(&format!("name=\"host installs [{host}]\"")), "{xml}");
    }
}

#[test]
fn junit_is_xml_whatever_is_in_it() {
    let mut result = sample::sno_failed().0;
    for check in &mut result.checks {
        check.name = HOSTILE.into();
        check.message = HOSTILE.into();
        check.last_things = vec![HOSTILE.into()];
    }
    let xml = junit::render(&result);
    assert!(!xml.contains('\u{1b}') && !xml.contains('\0') && !xml.contains("[31m"), "{xml}");
    assert!(!xml.contains("<script>"), "{xml}");
    assert_eq!(xml.matches("<testcase ").count(), result.checks.len());
}

#[rstest]
#[case("sno", "junit_sno.xml")]
#[case("../../etc/passwd", "junit_.._.._etc_passwd.xml")]
#[case("a b/ü", "junit_a_b__.xml")]
#[case("", "junit_scenario.xml")]
fn junit_file_names(#[case] scenario: &str, #[case] name: &str) {
    assert_eq!(junit::file_name(scenario), name);
}

/// What was not met in it stands behind what broke.
fn in_a_lab_that_broke() -> RunResult {
    let mut result = sample::sno_failed().0;
    (result.cause, result.reason) = (None, None);
    for check in &mut result.checks {
        check.follows = false;
    }
    let reason = "node-0: its QEMU was killed or crashed (stopped, failed), 32.4 s after the start of the run";
    let open = CheckVerdict::Inconclusive { reason: reason.into() };
    result.checks.push(CheckResult::new(CheckKind::Lab, "machines", open));
    result.conclude();
    result
}

#[rstest]
#[case::failed_wide(sample::sno_failed().0, 100)]
#[case::failed_narrow(sample::sno_failed().0, 48)]
#[case::passed(sample::ha().0, 80)]
#[case::a_lab_that_broke(in_a_lab_that_broke(), 90)]
fn console_report(#[case] result: RunResult, #[case] width: usize) {
    let text = console::render(&result, Style { width, color: false });
    assert!(text.lines().all(|l| l.chars().count() <= width), "{text}");
    assert!(!text.contains('\u{1b}'));
    insta::assert_snapshot!(format!("console_{}_{width}", result.verdict), text);
}

#[test]
fn console_has_colours_only_when_asked() {
    let text = console::render(&sample::sno_failed().0, Style { width: 80, color: true });
    assert!(text.contains("\u{1b}[1;31m✗ the installer on master-0 gave up"), "{text}");
    assert!(!Style::of(Some("1"), None, true, Some(120)).color);
    assert!(Style::of(Some(""), None, true, None).color);
    assert_eq!(Style::of(None, None, true, Some(120)), Style { width: 120, color: true });
    assert_eq!(Style::of(None, Some("77"), false, Some(120)), Style { width: 77, color: false });
}

#[test]
fn console_is_safe_for_a_terminal() {
    let mut result = sample::sno_failed().0;
    result.checks[1].message = HOSTILE.into();
    let text = console::render(&result, Style { width: 60, color: false });
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
}

/// What a page has from `begin` to the next `end`, an element a line.
fn fragment(page: &str, begin: &str, end: &str) -> String {
    let page = &page[page.find(begin).unwrap_or_else(|| panic!("no {begin} in {page}"))..];
    let length = page[1..].find(end).map_or(page.len(), |i| i + 1);
    page[..length].replace("><", ">\n<")
}

#[rstest]
#[case("header", "<header>", "</header>")]
#[case("failures", "<section id=\"failures\">", "</section>")]
#[case("labels", "<div class=\"labels\">", "<div class=\"scroll\"")]
#[case("lane_of_the_user", "<rect class=\"lane user\"", "<rect class=\"lane ")]
#[case("lane_of_a_fault", "<rect class=\"lane fault\"", "<rect class=\"lane ")]
#[case("first_failure", "<line class=\"failed\"", "</svg>")]
#[case("legend", "<ul class=\"legend\">", "</ul>")]
#[case("durations", "<section id=\"durations\">", "</section>")]
#[case("checks", "<section id=\"checks\">", "</section>")]
#[case("events", "<section id=\"events\">", "<tr><td>80 ms")]
#[case("about", "<section id=\"about\">", "</section>")]
fn page_of_a_failed_run(#[case] name: &str, #[case] begin: &str, #[case] end: &str) {
    let (result, history) = sample::sno_failed();
    let page = html::render(&result, &history, &Redactor::default());
    insta::assert_snapshot!(format!("page_{name}"), fragment(&page, begin, end));
}

#[test]
fn page_of_what_a_fleet_measured() {
    let (result, history) = sample::fleet(60, 0);
    let page = html::render(&result, &history, &Redactor::default());
    insta::assert_snapshot!("page_measured", fragment(&page, "<section id=\"load\">", "</section>"));
    insta::assert_snapshot!("page_group", fragment(&page, "<rect class=\"lane group\"", "<rect class=\"lane "));
}

#[test]
fn the_same_history_gives_the_same_page() {
    let (result, history) = sample::ha();
    assert_eq!(
        html::render(&result, &history, &Redactor::default()),
        html::render(&result, &history, &Redactor::default())
    );
}

#[test]
fn the_page_needs_no_network() {
    let (result, history) = sample::ha();
    let page = html::render(&result, &history, &Redactor::default());
    for word in ["http:", "https:", "//cdn", "@import", "url(http", "<link rel=\"stylesheet", " src="] {
        assert!(!page.contains(word), "{word}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn an_empty_history_has_a_page_too() {
    let page = html::render(&RunResult::default(), &[], &Redactor::default());
    assert!(page.contains("Inconclusive") && page.contains("data-lanes=\"0\""), "{page}");
}

/// Everything that a user or a service can write is hostile.
fn hostile() -> (RunResult, Vec<Observation>) {
    let (mut result, mut history) = sample::sno_failed();
    let text = || HOSTILE.to_owned();
    for o in &mut history {
        match &mut o.what {
            What::HostNamed { name, .. } | What::ClusterNamed { name, .. } | What::Fault { name, .. } => *name = text(),
            What::HostStatus { info, .. } | What::HostStage { info, .. } | What::ClusterStatus { info, .. } => {
                *info = text()
            }
            What::UserAction { action, reason, status, .. } => {
                (*action, *reason) = (UserVerb::Other(text()), text());
                *status = 400;
            }
            What::Event { name, message, .. } => (*name, *message) = (text(), text()),
            _ => {}
        }
    }
    let at = history[0].harness_time;
    let (cluster, host) = (sample::id(sample::CLUSTER), sample::id(1));
    for what in [
        What::HostDid { host, what: HostMoment::Other(text()) },
        What::InCluster { cluster, host: Some(host), what: ClusterMoment::Other(text()) },
        What::Note { text: text() },
        What::BadAnswer { host: Some(host), request: text(), status: 500, took_ms: 1 },
        What::Killed { program: text(), detail: text() },
        What::Unreadable { subject: Some(host), of: text(), error: text() },
        What::Incomplete { part: HistoryPart::Other(text()), machine: Some(text()), why: text() },
        What::Starved { program: text(), waited_ms: 1, within_ms: 2 },
        What::DatabaseAway { for_ms: 1, why: text() },
        What::Machine { machine: text(), did: MachineMoment::Other(text()), detail: text() },
        What::Console { machine: text(), line: text(), finding: Some(text()) },
        What::Operator { cluster, name: text(), status: None, kind: None },
        What::LastLook {},
        What::Validation { subject: host, is_cluster: false, id: text(), from: None, to: None, message: text() },
        What::RunFinished { how: RunEnd::Other(text()) },
    ] {
        history.push(Observation {
            v: 1,
            seq: 0,
            source: Source::Database,
            service_time: None,
            harness_time: at,
            what,
        });
    }
    let run = &mut result.run;
    (run.service, run.hosts) = (TargetKind::Other(text()), HostsKind::Other(text()));
    for member in [
        &mut run.run_id,
        &mut run.scenario,
        &mut run.scenario_path,
        &mut run.time_profile,
        &mut run.vlab_version,
        &mut result.how_to_repeat,
    ] {
        *member = text();
    }
    run.versions.insert(text(), text());
    result.reason = Some(text());
    result.accel = Some(text());
    result.environment.insert(text(), text());
    result.files.push(FileRef { path: text(), what: text() });
    for check in &mut result.checks {
        (check.name, check.message, check.expected, check.seen) = (text(), text(), text(), text());
        check.subject = Some(text());
        check.last_things = vec![text()];
    }
    for duration in &mut result.durations {
        duration.name = text();
        duration.subject = Some(text());
        duration.budget_source = Some(text());
    }
    result.load = Some(LoadReport {
        errors: [(text(), 3)].into(),
        latency: vec![OperationLatency { operation: text(), ..OperationLatency::default() }],
        ..LoadReport::default()
    });
    (result, history)
}

#[test]
fn hostile_names_stay_text() {
    let (result, history) = hostile();
    let page = html::render(&result, &history, &Redactor::default());
    let ours = html::render(&RunResult::default(), &[], &Redactor::default());
    for word in ["<script", "</script", "<img", "<!--"] {
        assert_eq!(page.matches(word).count(), ours.matches(word).count(), "{word}");
    }
    assert!(!page.contains('\u{1b}') && !page.contains('\0'));
    let data =
        page.split("id=\"data\" type=\"application/json\">").nth(1).and_then(|p| p.split("</script>").next()).unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert!(data["strings"].as_array().unwrap().iter().any(|s| s.as_str().is_some_and(|s| s.starts_with("</script>"))));
}

#[test]
fn three_hundred_thousand_observations_make_a_page_of_bounded_size() {
    let (mut result, history) = sample::fleet(10_000, 26);
    assert!(history.len() > 300_000, "{}", history.len());
    for i in 0..20_000 {
        let mut check = CheckResult::new(CheckKind::Expectation, format!("host {i}"), CheckVerdict::Failed);
        check.seen = "x".repeat(5000);
        result.checks.push(check);
    }
    let page = html::render(&result, &history, &Redactor::default());
    assert!(page.len() <= html::LARGEST_PAGE, "{}", page.len());
    assert!(page.contains("8,000 hosts") && page.contains("2,000 hosts"));
    assert!(page.contains("all of them are in <code>history.jsonl</code>"));
}

#[test]
fn names_of_any_length_fit() {
    let (mut result, mut history) = sample::sno_failed();
    let long = |i: usize| format!("{i} {}", "x".repeat(300_000));
    for i in 0..24 {
        let what = What::Fault {
            name: long(i),
            phase: FaultPhase::Begin,
            inject: String::new(),
            host: None,
            cluster: None,
            detail: String::new(),
        };
        let observation = Observation { what, ..history[0].clone() };
        history.push(observation);
        result.environment.insert(long(i), "x".into());
        result.run.versions.insert(long(i), "x".into());
    }
    let page = html::render(&result, &history, &Redactor::default());
    assert!(page.len() <= html::LARGEST_PAGE, "{}", page.len());
    assert!(page.contains("host installs"), "nothing else had to go");
}

#[test]
fn a_host_that_flaps_for_ever_fits() {
    let (result, history) = sample::fleet(1, 50_000);
    let page = html::render(&result, &history, &Redactor::default());
    assert!(page.contains("49703 more"), "the lane must say how much it leaves out");
    assert!(page.len() <= html::LARGEST_PAGE, "{}", page.len());
}

#[test]
fn everything_is_written_and_redacted() {
    let dir = tempfile::tempdir().unwrap();
    let (mut result, mut history) = sample::sno_failed();
    let secret = "hunter2<&>\"quoted\"";
    result.checks[1].seen = format!("the password {secret} was refused");
    result.reason = Some(secret.into());
    let message = format!("pull secret {secret}");
    // Where the page cuts long texts, the beginning of a secret must not stay.
    let message = format!("{message} {}{secret}", "x".repeat(400 - 8 - message.len()));
    let what = What::Event { name: "x".into(), severity: Severity::Info, message, cluster: None, host: None };
    let at = history[0].harness_time;
    history.push(Observation { v: 1, seq: 99, source: Source::Events, service_time: None, harness_time: at, what });
    let written = write_all(dir.path(), &result, &history, &Redactor::new([secret.to_owned()])).unwrap();
    for path in [&written.junit, &written.html, &written.result] {
        let text = fs::read_to_string(path).unwrap();
        assert!(!text.contains("hunter2") && text.contains("(redacted)"), "{}", path.display());
    }
    let back: RunResult = serde_json::from_str(&fs::read_to_string(&written.result).unwrap()).unwrap();
    assert_eq!(back.reason.as_deref(), Some("(redacted)"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "nothing else is left there");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let (result, history) = sample::sno_failed();
    let error = write_all("/nowhere/at-all".as_ref(), &result, &history, &Redactor::default()).unwrap_err();
    assert!(error.to_string().contains("/nowhere/at-all/junit_sno-disk-fails.xml"), "{error}");
}

fn observation() -> impl Strategy<Value = What> {
    let host = (0_u128..6).prop_map(sample::id);
    let status = prop::sample::select(HostStatus::ALL);
    let cluster_status = prop::sample::select(ClusterStatus::ALL);
    let stage = prop::option::of(prop::sample::select(vlab_api::types::HostStage::ALL));
    prop_oneof![
        (host.clone(), prop::option::of(status.clone()), status, "\\PC{0,12}")
            .prop_map(|(host, from, to, info)| { What::HostStatus { host, cluster: None, from, to, info } }),
        (host.clone(), stage.clone(), stage, "\\PC{0,12}").prop_map(|(host, from, to, info)| What::HostStage {
            host,
            from,
            to,
            info,
            percentage: 0
        }),
        (host.clone(), cluster_status, "\\PC{0,12}").prop_map(|(cluster, to, info)| What::ClusterStatus {
            cluster,
            from: None,
            to,
            info
        }),
        (host.clone(), "\\PC{0,12}").prop_map(|(host, name)| What::HostNamed {
            host,
            name,
            kind: HostsKind::Simulated
        }),
        host.clone().prop_map(|host| What::HostDeleted { host }),
        host.clone().prop_map(|host| What::HostRole { host, role: HostRole::Worker, bootstrap: false }),
        (host, "\\PC{0,12}").prop_map(|(host, what)| What::HostDid { host, what: HostMoment::of(&what) }),
        ("[ab]", prop::sample::select(vec![FaultPhase::Begin, FaultPhase::Effect, FaultPhase::End])).prop_map(
            |(name, phase)| What::Fault {
                name: name.clone(),
                phase,
                inject: String::new(),
                host: None,
                cluster: None,
                detail: name,
            }
        ),
    ]
}

proptest! {
    /// Whatever a history holds, in whatever order: lanes have no overlapping spans, and there is a page.
    #[test]
    fn any_history_can_be_drawn(
        items in prop::collection::vec((observation(), -5_000_i64..60_000, prop::option::of(-70_000_000_i64..60_000), 0..6_usize), 0..60)
    ) {
        let sources = [Source::Database, Source::Events, Source::Poll, Source::Harness, Source::Hosts, Source::Console];
        let history: Vec<Observation> = items.into_iter().enumerate().map(|(i, (what, ms, service, source))| Observation {
            v: 1,
            seq: i as u64,
            source: sources[source],
            service_time: service.map(|ms| sample::at(ms as f64)),
            harness_time: sample::at(ms as f64),
            what,
        }).collect();
        let timeline = vlab_reports::timeline::Lanes::read(&history);
        for lane in timeline.hosts.iter().chain(&timeline.clusters) {
            for spans in [&lane.statuses, &lane.stages] {
                prop_assert!(spans.iter().all(|s| 0 <= s.from && s.from <= s.to && s.to <= timeline.length), "{spans:?}");
                prop_assert!(spans.windows(2).all(|w| w[0].to <= w[1].from), "{spans:?}");
            }
        }
        let wrong = export::wrong(&history);
        prop_assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let page = html::render(&RunResult::default(), &history, &Redactor::default());
        prop_assert!(page.ends_with("</html>\n"));
        let lanes = format!("data-lanes=\"{}\"", page.matches("<rect class=\"lane ").count());
        prop_assert!(page.contains(&lanes));
    }
}
