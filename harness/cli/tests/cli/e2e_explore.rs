//! Exploring a service in real time, and the folder of what was found.

use std::fs;
use std::time::Duration;

use rstest::rstest;
use vlab_drive::explore::Record;

use crate::bench::CliFixture;

/// A service that writes an event twice: found by the plainest tape, and written with how often it showed.
#[test]
fn what_is_wrong_with_a_service_in_real_time_is_written() {
    let bench = CliFixture::new();
    let [corpus, findings] = ["corpus", "findings"].map(|folder| bench.path(folder));
    fs::create_dir(&corpus).unwrap();
    fs::write(corpus.join("0000.tape"), "vlab tape 1\nspace 0\n").unwrap();
    let folders = ["--corpus", corpus.to_str().unwrap(), "--findings", findings.to_str().unwrap()];
    let wrong = "event/host_registration_succeeded/twice";
    let how = ["--against", "simulated", "--runs", "1", "--again", "0", "--alteration", wrong];
    let said = bench.vlab(&[&["explore", "insufficient-hardware"], &how[..], &folders[..]].concat()).ends_with(1);
    said.says(&[
        "1 tapes, 1 runs on simulated",
        "found: ",
        "different things are wrong",
        "the simulated service does not",
    ]);
    let records: Vec<String> = fs::read_dir(&findings)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".json").map(str::to_owned))
        .collect();
    assert!(!records.is_empty());
    for name in &records {
        let record = Record::read(&fs::read_to_string(findings.join(format!("{name}.json"))).unwrap()).unwrap();
        assert!(record.signature.contains("host_registration_succeeded"), "{record:?}");
        assert_eq!((record.shows.target.as_str(), record.shows.k, record.shows.n), ("simulated", 0, 0));
        assert!(record.shows.service_version.ends_with(wrong) && !record.shows.same_on_simulated, "{record:?}");
        assert_eq!((record.lines, record.faults, record.actions, record.is_minimal), (1, 0, 0, true));
        let file = findings.join(format!("{name}.yaml"));
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("# Against simulated (simulated ") && text.contains("it was not tried again"), "{text}");
        bench.vlab(&["validate", file.to_str().unwrap()]).ends_with(0);
    }
    // The next search goes on with others.
    let again = ["explore", "insufficient-hardware", "--against", "simulated", "--runs", "0", "--alteration", wrong];
    let asked = "1 tapes were asked before";
    bench.vlab(&[&again[..], &folders[..]].concat()).ends_with(3).says(&[asked]);
    let anew = bench.vlab(&[&again[..], &folders[..], &["--anew"]].concat()).ends_with(3);
    assert!(!anew.err.contains(asked), "{}", anew.err);
    let page = bench.path("findings.md");
    let shown = ["findings", findings.to_str().unwrap(), "--markdown", page.to_str().unwrap()];
    bench.vlab(&shown).ends_with(0).says(&["not classed", "0 of 0", "nobody has said in classes.yaml", &records[0]]);
    assert!(fs::read_to_string(page).unwrap().contains(&format!("(findings/{}.yaml)", records[0])));
    bench.nothing_is_left();
}

/// Whoever ends a search has what it found until then.
#[test]
fn a_search_that_is_ended_keeps_its_tapes() {
    let bench = CliFixture::new();
    let [corpus, findings] = ["corpus", "findings"].map(|folder| bench.path(folder));
    let folders = ["--corpus", corpus.to_str().unwrap(), "--findings", findings.to_str().unwrap()];
    let mut search = bench.start(&[&["explore", "sno", "--minutes", "30"], &folders[..]].concat());
    while !search.says_next().contains("tapes kept") {}
    search.signal("TERM");
    let said = search.end(Duration::from_secs(120));
    assert!([Some(0), Some(1)].contains(&said.code), "{said:?}");
    said.says(&["runs in ", "different things are wrong"]);
    assert!(fs::read_dir(&corpus).unwrap().count() > 0);
}

/// What somebody has looked at is counted and named, and nothing to fail for; what the lab itself does wrong is.
#[test]
fn what_is_known_is_nothing_to_fail_for() {
    let bench = CliFixture::new();
    let [corpus, found, known] = ["corpus", "found", "known"].map(|folder| bench.path(folder));
    let folder = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let explore = |findings: &std::path::Path, more: &[&str]| {
        let _ = fs::remove_dir_all(&corpus);
        let (corpus, findings) = (folder(&corpus), folder(findings));
        let how = ["explore", "sno", "--runs", "1", "--alteration", "event/host_registration_succeeded/twice"];
        bench.vlab(&[&how[..], &["--corpus", &corpus, "--findings", &findings], more].concat())
    };
    explore(&known, &[]).ends_with(1);
    let names = fs::read_dir(&known).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect();
    let class = |class: &str| {
        let classed = names.iter().map(|name| format!("- {{finding: {name}, class: {class}, note: planted}}\n"));
        fs::write(known.join("classes.yaml"), classed.collect::<String>()).unwrap();
    };
    let is_known = folder(&known);
    class("ours");
    explore(&found, &["--known", &is_known]).ends_with(1).says(&[&names[0]]);
    fs::remove_dir_all(&found).unwrap();
    class("by-design");
    let told = format!("{}, by-design", names[0]);
    explore(&found, &["--known", &is_known]).ends_with(0).says(&["0 different things are wrong", "are known", &told]);
    assert_eq!(fs::read_dir(&found).unwrap().count(), 0);
    bench.vlab(&["explore", "sno", "--runs", "1", "--known", "nowhere"]).ends_with(2).says(&["nowhere"]);
}

#[rstest]
#[case::no_record("a.json", "{", 2, "a.json: this is no record of a finding")]
#[case::older("a.json", "{\"version\": 0}", 2, "a record of version 0")]
#[case::no_scenario("a.yaml", "version: 1\n", 2, "its record a.json is not beside it")]
#[case::class("classes.yaml", "- {finding: x, class: ours, note: y}\n", 2, "classes.yaml:1: \"x\" is neither the name")]
#[case::empty("a.txt", "", 4, "has no findings")]
fn a_folder_that_is_none_of_findings_is_refused(
    #[case] file: &str,
    #[case] text: &str,
    #[case] code: i32,
    #[case] says: &str,
) {
    let bench = CliFixture::new();
    let folder = bench.path("of");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join(file), text).unwrap();
    bench.vlab(&["findings", folder.to_str().unwrap()]).ends_with(code).says(&[says, folder.to_str().unwrap()]);
}

#[test]
fn what_needs_real_time_is_not_explored_in_virtual_time() {
    let bench = CliFixture::new();
    bench
        .vlab(&["explore", "postgres-locked", "--runs", "1"])
        .ends_with(3)
        .says(&["skipped: postgres-locked needs real time"]);
}

#[rstest]
#[case::no_folder(&["findings", "no-such-folder"], "name the folder into which `vlab explore --findings` wrote")]
#[case::no_target(&["explore", "--against", "docker:x"], "container:<image>")]
#[case::no_profile(&["explore", "sno", "--against", "simulated", "--time-profile", "fats"], "fats")]
#[case::again_alone(&["explore", "sno", "--again", "2"], "--against")]
#[case::one_port(&["explore", "sno", "--against", "process:/bin/true", "--definitions", "d", "--jobs", "2"], "port 8080")]
#[case::exhaustive(&["explore", "sno", "--exhaustive", "--against", "simulated"], "cannot be used with")]
#[case::no_such_alteration(&["service", "--alteration", "no-such"], "there is no alteration \"no-such\"")]
fn what_cannot_be_explored_is_a_mistake_of_usage(#[case] args: &[&str], #[case] says: &str) {
    let bench = CliFixture::new();
    let mut command = bench.command(args);
    command.current_dir(bench.path("tmp"));
    let said: crate::bench::Said = command.output().unwrap().into();
    said.ends_with(2).says(&[says]);
}
