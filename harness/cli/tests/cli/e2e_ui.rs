//! `vlab ui` in a real browser: the list, a run that goes on, and its report once it has ended.

use std::fs;

use vlab_browser::Browser;
use vlab_run::rundir::Started;

use crate::bench::{CliFixture, RUN, until};

/// The page at that address, once it is as `expression` says.
fn page(browser: &mut Browser, address: &str, expression: &str) -> String {
    browser.open(address);
    browser.until(expression);
    browser.value("document.documentElement.outerHTML").as_str().unwrap().to_owned()
}

/// A run that goes on, as its folder looks: the marker of a living process (this one), and the first half of a history.
fn begin_again(bench: &CliFixture) -> (std::path::PathBuf, String) {
    let done = fs::canonicalize(bench.latest()).unwrap();
    let mut started: Started = serde_json::from_slice(&fs::read(done.join("started.json")).unwrap()).unwrap();
    (started.run_id, started.pid) = ("99990101000000-sno-1".to_owned(), std::process::id());
    started.at = vlab_api::Timestamp::now();
    let folder = bench.path("runs").join(&started.run_id);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("started.json"), serde_json::to_vec(&started).unwrap()).unwrap();
    fs::copy(done.join("scenario.yaml"), folder.join("scenario.yaml")).unwrap();
    let history = fs::read_to_string(done.join("history.jsonl")).unwrap();
    let lines = history.lines().count();
    let half: String = history.lines().take(lines / 2).map(|line| format!("{line}\n")).collect();
    fs::write(folder.join("history.jsonl"), &half).unwrap();
    (folder, history)
}

/// A load draws its charts while it goes on, and its page takes their place.
#[test]
fn a_load_is_followed() {
    let Some(mut browser) = Browser::start() else { return };
    let bench = CliFixture::new();
    let plan = bench.file(
        "short.yaml",
        "version: 1\nname: short\nmode: idle\npopulation: {unbound: 20}\ncadence: 1s\nphases:\n  - ramp: 1s\n  - hold: 1h\n",
    );
    bench.vlab(&["load", "validate", &plan]).ends_with(0);
    let ui = bench.start_into("address", &["ui", "--listen", "127.0.0.1:0"]);
    let address = || fs::read_to_string(bench.path("address")).unwrap_or_default();
    until("the address", RUN, || address().ends_with("/\n"));
    let load =
        bench.start_into("said", &["load", &plan, "--stub", "--json", &bench.path("short.json").to_string_lossy()]);
    let folder = || {
        let mut runs = fs::read_dir(bench.path("runs")).ok()?.flatten();
        runs.find_map(|run| run.file_name().into_string().ok().filter(|name| name.contains("load-short")))
    };
    until("its folder", RUN, || folder().is_some());
    let (list, folder) = (address().trim_end().to_owned(), folder().unwrap());
    browser.window(360, 800);
    browser.open(&format!("{list}runs/{folder}/"));
    browser.until("document.querySelectorAll('figure polyline').length >= 8");
    browser.until("Number(/(\\d+) answered/.exec(document.body.innerText)[1]) > 20");
    assert_eq!(browser.value("document.documentElement.scrollWidth <= innerWidth"), true);
    load.signal("TERM");
    load.end(RUN).ends_with(3);
    browser
        .until("document.body.innerText.includes('v2GetNextSteps') || document.body.innerText.includes('Operations')");
    browser.open(&list);
    browser.until("document.body.innerText.includes('it was interrupted')");
    for verb in ["report", "check"] {
        bench.vlab(&[verb, &folder]).ends_with(2).says(&["that is a load"]);
    }
    ui.signal("TERM");
    ui.end(RUN).ends_with(0);
}

#[test]
fn runs_are_shown_followed_and_reported() {
    let Some(mut browser) = Browser::start() else { return };
    let bench = CliFixture::new();
    bench.vlab(&["scenario", "sno"]).ends_with(0);
    let (folder, history) = begin_again(&bench);
    let ui = bench.start_into("address", &["ui", "--listen", "127.0.0.1:0"]);
    let address = || fs::read_to_string(bench.path("address")).unwrap_or_default();
    until("the address", RUN, || address().ends_with("/\n"));
    let address = address().trim_end().to_owned();

    let list = page(&mut browser, &address, "document.body.dataset.ready === '1'");
    assert!(list.contains("data-ready=\"1\"") && list.contains("1 running") && list.contains(">passed<"), "{list}");

    let running = format!("{address}runs/99990101000000-sno-1/");
    let live = page(&mut browser, &running, "Number(document.body.dataset.looks) > 0");
    assert!(live.contains("data-looks=\""), "the script asked: {live}");
    for part in ["id=\"standing\"", "id=\"timeline\"", "What happened last", "node-0"] {
        assert!(live.contains(part), "{part}: {live}");
    }

    // The run ends: its report takes the place of the page.
    fs::write(folder.join("history.jsonl"), history).unwrap();
    let done = fs::canonicalize(bench.latest()).unwrap();
    for file in ["report.html", "result.json"] {
        fs::copy(done.join(file), folder.join(file)).unwrap();
    }
    let report = page(&mut browser, &running, "document.body.dataset.ready === '1'");
    assert!(report.contains("id=\"checks\"") && !report.contains("data-looks"), "{report}");

    ui.signal("TERM");
    ui.end(RUN).ends_with(0);
    bench.vlab(&["ui", "--listen", "0.0.0.0:0"]).ends_with(2).says(&["use an address of the loopback interface"]);
}
