//! The page in a real headless browser.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use vlab_reports::{Redactor, html};

use crate::sample;

/// A browser; `None`: the test is skipped.
fn browser() -> Option<PathBuf> {
    let found = vlab_setup::browser();
    if found.is_none() {
        vlab_skip::skip!("no Chromium found (apt-get install chromium, or name one in VLAB_CHROMIUM)");
    }
    found
}

/// Runs the browser on `page` with `args`; what it prints. It gets 60 s.
fn open(browser: &Path, dir: &Path, page: &Path, args: &[&str]) -> String {
    let out = fs::File::create(dir.join("out")).unwrap();
    let mut child = Command::new(browser)
        .args(vlab_setup::BROWSER_ARGS)
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .args(args)
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return fs::read_to_string(dir.join("out")).unwrap();
        }
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the browser did not end within 60 s");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn attribute<'a>(dom: &'a str, name: &str) -> Option<&'a str> {
    let start = dom.find(&format!(" {name}=\""))? + name.len() + 3;
    dom[start..].split('"').next()
}

#[test]
fn a_browser_lays_the_page_out() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("report.html");
    let (result, history) = sample::ha();
    fs::write(&page, html::render(&result, &history, &Redactor::default())).unwrap();
    let dom = open(&browser, dir.path(), &page, &["--window-size=1400,1200", "--dump-dom"]);
    let body = &dom[dom.find("<body").unwrap()..];
    assert_eq!(attribute(body, "data-ready"), Some("1"));
    // The user's, the cluster's, five hosts'.
    assert_eq!(attribute(body, "data-lanes"), Some("7"));
    let words: usize = attribute(body, "data-words").unwrap().parse().unwrap();
    assert!(words > 30, "only {words} spans are wide enough for their words");
    // The script made the rows again, all of them, from the data.
    let rows = body.split("data-table=\"transitions\"").nth(1).unwrap().split("</table>").next().unwrap();
    assert_eq!(rows.matches("<tr>").count(), 100 + 1);
    assert!(rows.contains("class=\"d k-inst\""), "statuses have their colours in the table");
}

#[test]
fn a_browser_runs_nothing_of_what_hosts_say() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("report.html");
    let (result, history) = crate::hostile();
    fs::write(&page, html::render(&result, &history, &Redactor::default())).unwrap();
    let dom = open(&browser, dir.path(), &page, &["--dump-dom"]);
    assert_eq!(attribute(&dom[dom.find("<body").unwrap()..], "data-ready"), Some("1"));
    assert!(!dom.contains("<img"), "a name became an element");
}

#[test]
fn a_picture_of_the_page_is_not_blank() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (page, blank) = (dir.path().join("report.html"), dir.path().join("blank.html"));
    let (result, history) = sample::ha();
    fs::write(&page, html::render(&result, &history, &Redactor::default())).unwrap();
    fs::write(&blank, "<!doctype html><title>blank</title>").unwrap();
    let mut sizes = Vec::new();
    for page in [&page, &blank] {
        let picture = page.with_extension("png");
        let shot = format!("--screenshot={}", picture.display());
        open(&browser, dir.path(), page, &["--window-size=1400,1000", &shot]);
        let png = fs::read(picture).unwrap();
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
        let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
        assert_eq!(number(16), 1400);
        sizes.push(png.len());
    }
    // A picture of one colour compresses to almost nothing.
    assert!(sizes[0] > 60_000 && sizes[0] > sizes[1] * 10, "{sizes:?}");
}

#[test]
fn what_went_wrong_first_stands_on_top_and_the_rest_is_folded() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("report.html");
    let (result, history) = sample::sno_failed();
    fs::write(&page, html::render(&result, &history, &Redactor::default())).unwrap();
    let dom = open(&browser, dir.path(), &page, &["--window-size=1400,1200", "--dump-dom"]);
    let place = |text: &str| dom.find(text).unwrap_or_else(|| panic!("no {text}"));
    let (cause, follow) = (place("<article id=\"cause\""), place("<details id=\"follow\">"));
    assert!(place("id=\"failures\"") < cause && cause < follow && follow < place("id=\"timeline\""));
    assert!(dom[cause..follow].contains("the installer on master-0 gave up"), "the cause has its title");
    assert!(dom[cause..follow].contains("write /dev/sda: input/output error"), "and the program's own words");
    let folded = &dom[follow..follow + dom[follow..].find("</details>").unwrap()];
    assert!(folded.contains("2 checks that follow from it"), "{folded}");
    assert_eq!(folded.matches("<article").count(), 2);
}
