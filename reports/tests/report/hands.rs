//! The page as it is used: in windows of any width, dark and light, with the keyboard alone; and what programs logged.

use rstest::rstest;
use vlab_browser::Key;
use vlab_judge::result::{RunResult, Verdict};
use vlab_model::history::{Observation, What};
use vlab_reports::Redactor;
use vlab_reports::html;
use vlab_reports::html::live::{self, Entry, Standing};
use vlab_reports::logs::LogLine;
use vlab_reports::record::Statistics;

use crate::sample;
use crate::shown::Shown;

/// A failed run whose service logged something while its host installed, and asked for something.
fn logged() -> (RunResult, Vec<Observation>, Vec<LogLine>) {
    let (result, mut history) = sample::sno_failed();
    let begin = history[0].at();
    let host = history.iter().find_map(|o| match &o.what {
        What::HostStatus { host, .. } => Some(*host),
        _ => None,
    });
    let mut asked = history[history.len() / 2].clone();
    let request = "PUT /api/assisted-install/v2/infra-envs/1/hosts/2/progress".to_owned();
    asked.what = What::Request { host, request, status: 200, took_ms: 12 };
    asked.harness_time = begin + std::time::Duration::from_millis(3300);
    asked.service_time = None;
    history.push(asked);
    let line = |ms: u64, level: &'static str, text: String| LogLine {
        at: begin + std::time::Duration::from_millis(ms),
        program: "service",
        level,
        text,
    };
    let logs = vec![
        line(3290, "", format!("host {} reports its progress", host.unwrap())),
        line(3295, "error", "cannot reach the <b>archive</b>".to_owned()),
    ];
    (result, history, logs)
}

fn with_logs() -> String {
    let (result, history, logs) = logged();
    html::render_with_logs(&result, &history, &logs, &Redactor::default())
}

fn ha() -> String {
    let (result, history) = sample::ha();
    html::render(&result, &history, &Redactor::default())
}

fn two() -> String {
    let ((a, of_a), (b, of_b)) = (sample::ha(), sample::sno_failed());
    let redactor = &Redactor::default();
    html::beside::render([
        html::beside::Run { result: &a, history: &of_a, logs: &[], redactor },
        html::beside::Run { result: &b, history: &of_b, logs: &[], redactor },
    ])
}

const AROUND: &str = "document.querySelector('.around').innerText";

#[test]
fn what_programs_logged_and_who_asked_stand_around_the_moment() {
    let Some(mut shown) = Shown::new(&with_logs()) else { return };
    shown.open("#t=3300");
    let around = shown.text(AROUND);
    for part in [
        "log service: host ",
        "error service: cannot reach the <b>archive</b>",
        "request PUT /api",
        "HTTP 200 after 12 ms",
    ] {
        assert!(around.contains(part), "{part}: {around}");
    }
    // Whose line it is: the host's, whose id is in it; the other is the run's.
    let whose = shown.text("Array.from(document.querySelectorAll('.around li')).filter(l => /service: /.test(l.innerText)).map(l => l.querySelector('b').innerText).join()");
    assert_eq!(whose, "master-0,the run");
    shown.open("#t=3300&no=log,request");
    let around = shown.text(AROUND);
    assert!(!around.contains("log service") && !around.contains("request PUT"), "{around}");
    assert!(around.contains("error service"), "what is serious stays: {around}");
    shown.open("#t=3300&of=master-0");
    let around = shown.text(AROUND);
    assert!(around.contains("log service") && !around.contains("error service"), "{around}");
}

/// From the first Tab to a failed check's moment, and there through time, with no mouse.
#[test]
fn everything_is_done_with_the_keyboard_alone() {
    let Some(mut shown) = Shown::new(&with_logs()) else { return };
    shown.tab_to("e.className === 'show'");
    shown.browser.press(Key::ENTER);
    assert_eq!(shown.text("document.activeElement.id"), "mr", "the dial has the focus now");
    let at = |shown: &mut Shown| shown.text("document.body.dataset.moment").parse::<i64>().unwrap();
    let failed = at(&mut shown);
    shown.browser.press_with(Key::LEFT, true);
    assert_eq!(at(&mut shown), failed - 1);
    shown.browser.press(Key::HOME);
    assert_eq!(at(&mut shown), 0);
    shown.browser.press(Key::END);
    assert!(at(&mut shown) >= failed);
    // Back to the arrows before the dial.
    shown.browser.press_with(Key::TAB, true);
    assert_eq!(shown.text("document.activeElement.id"), "mf");
    shown.browser.press_with(Key::TAB, true);
    let end = at(&mut shown);
    shown.browser.press(Key::SPACE);
    assert!(at(&mut shown) < end, "‹ goes to the observation before");
    shown.tab_to("e.id === 'mh'");
    shown.browser.write("master-0");
    shown.browser.until("document.querySelectorAll('.state').length <= 2");
    shown.open("#t=3300");
    shown.tab_to("e.type === 'checkbox' && e.parentElement.innerText === 'log lines'");
    shown.browser.press(Key::SPACE);
    let around = shown.text(AROUND);
    assert!(!around.contains("log service"), "{around}");
    shown.browser.until("location.hash.indexOf('no=log') > 0");
    shown.tab_to("e.classList.contains('go')");
    let to = shown.text("document.activeElement.dataset.to");
    assert_ne!(to, "3300");
    shown.browser.press(Key::ENTER);
    assert_eq!(at(&mut shown).to_string(), to);
}

/// Where the focus is can be seen, and Tab comes to everything that can be pressed.
#[rstest]
#[case::report(with_logs())]
#[case::two_runs(two())]
#[case::list(list())]
#[case::live(going())]
fn tab_comes_to_everything_and_shows_where_it_is(#[case] page: String) {
    let Some(mut shown) = Shown::new(&page) else { return };
    let all = "Array.from(document.querySelectorAll('button, input, a[href], summary, select'))\
               .filter(e => e.checkVisibility() && !e.disabled)";
    let total = shown.browser.value(&format!("{all}.length")).as_u64().unwrap();
    shown.browser.value("window.reached = new Set(); window.unseen = []; 0");
    for _ in 0..total + 5 {
        shown.browser.press(Key::TAB);
        shown.browser.value(
            "{ const e = document.activeElement, s = getComputedStyle(e); reached.add(e); \
               if (e !== document.body && s.outlineStyle === 'none' && s.boxShadow === 'none') unseen.push(e.outerHTML.slice(0, 80)); 0 }",
        );
    }
    let left =
        shown.text(&format!("{all}.filter(e => !reached.has(e)).map(e => e.outerHTML.slice(0, 80)).join('\\n')"));
    assert_eq!(left, "", "Tab does not come there");
    assert_eq!(shown.text("unseen.join('\\n')"), "", "nothing shows that they have the focus");
}

/// A run as the list of `vlab ui` has it.
fn entry(scenario: &str, standing: Standing) -> Entry {
    Entry {
        run_id: format!("20260101120000-{scenario}-1"),
        scenario: scenario.to_owned(),
        why: if standing == Standing::Running { "" } else { "master-0: the installer on master-0 gave up" }.to_owned(),
        standing,
        started_at: "2026-01-01T12:00:00Z".parse().unwrap(),
        took_ms: Some(61_000.0),
        service: "process:/usr/local/bin/assisted-service".to_owned(),
        hosts: "simulated".to_owned(),
        seed: 7,
        history: true,
    }
}

/// The list of runs.
fn list() -> String {
    let entries = [
        entry("a-scenario-with-a-rather-long-name-of-many-words", Standing::Running),
        entry("sno", Standing::Ended(Verdict::Passed)),
        entry("ha-3-2", Standing::Ended(Verdict::Failed)),
        entry("ha-3-1", Standing::Ended(Verdict::Inconclusive)),
        entry("cancel", Standing::Killed),
    ];
    let statistics = Statistics {
        scenario: "ha-3-2".to_owned(),
        service: "simulated".to_owned(),
        hosts: "simulated".to_owned(),
        runs: 12,
        passed: 9,
        failed: 2,
        inconclusive: 1,
        last: "....F..?.F".to_owned(),
        first_failure: Some(("2026-01-01T12:00:00Z".parse().unwrap(), "20260101120000-ha-3-2-1".to_owned())),
        median_ms: 8_000.0,
        slowest: (61_000.0, "20260101120000-ha-3-2-1".to_owned()),
        heaps: vec![("all hosts are installed".to_owned(), 2, "20260101120000-ha-3-2-1".to_owned())],
    };
    live::list("/home/somebody/project/target/vlab/runs", &live::runs(&entries, 3, &[statistics]))
}

/// A run that goes on.
fn going() -> String {
    let (_, history) = sample::ha();
    live::run(&entry("ha-3-2", Standing::Running), &live::now(&history[..history.len() / 2], &Redactor::default()))
}

/// Texts against what is behind them, as WCAG 2 counts contrast: 4.5 is enough for everybody, 3 for large letters.
const FAINT: &str = r"(() => {
  const rgb = (c) => { const m = c.match(/[\d.]+/g).map(Number); return { r: m[0], g: m[1], b: m[2], a: m.length > 3 ? m[3] : 1 }; };
  const over = (t, u) => ({ r: t.r * t.a + u.r * (1 - t.a), g: t.g * t.a + u.g * (1 - t.a), b: t.b * t.a + u.b * (1 - t.a), a: 1 });
  const lum = (c) => { const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); };
    return 0.2126 * f(c.r) + 0.7152 * f(c.g) + 0.0722 * f(c.b); };
  const behind = (e) => { const layers = []; for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); layers.push(c); if (c.a === 1) break; }
    return layers.reverse().reduce((under, c) => over(c, under), { r: 255, g: 255, b: 255, a: 1 }); };
  const faint = new Map();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement, s = getComputedStyle(e);
    if (!walk.currentNode.data.trim() || e.closest('svg, script, style') || !e.checkVisibility()) continue;
    const back = behind(e), front = over(rgb(s.color), back), [a, b] = [lum(front), lum(back)].sort((x, y) => y - x);
    const size = parseFloat(s.fontSize), large = size >= 24 || (size >= 18.6 && Number(s.fontWeight) >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) faint.set(e.tagName + '.' + e.className + ' ' + s.color + ' ' + s.backgroundColor, ratio.toFixed(2) + ' ' + walk.currentNode.data.trim().slice(0, 40));
  }
  return Array.from(faint).map((f) => f.join(': ')).join('\n');
})()";

#[rstest]
fn every_text_can_be_read_in_the_dark_and_in_the_light(
    #[values("dark", "light")] scheme: &str,
    #[values(with_logs(), ha(), two(), list(), going())] page: String,
) {
    let Some(mut shown) = Shown::new(&page) else { return };
    shown.browser.scheme(scheme);
    assert_eq!(shown.browser.value(&format!("matchMedia('(prefers-color-scheme: {scheme})').matches")), true);
    assert_eq!(shown.text(FAINT), "", "too faint in the {scheme}");
}

/// The page is not the same in the dark.
#[test]
fn the_dark_is_dark() {
    let Some(mut shown) = Shown::new(&ha()) else { return };
    let light = |shown: &mut Shown| {
        let colour = shown.text("getComputedStyle(document.body).backgroundColor");
        colour.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u32>().ok()).take(3).sum::<u32>()
    };
    shown.browser.scheme("light");
    let (day, by_day) = (light(&mut shown), shown.browser.picture());
    shown.browser.scheme("dark");
    let (night, by_night) = (light(&mut shown), shown.browser.picture());
    assert!(day > 600 && night < 150, "{day} by day, {night} by night");
    // A picture of one colour compresses to almost nothing.
    assert!(by_day != by_night && by_day.len().min(by_night.len()) > 60_000, "both are pictures of something");
}

/// Nothing of a page is wider than the window, however narrow it is.
#[rstest]
fn pages_fit_into_their_window(
    #[values(360, 768, 1400)] width: u32,
    #[values(with_logs(), ha(), two(), list(), going())] page: String,
) {
    let Some(mut shown) = Shown::new(&page) else { return };
    shown.browser.window(width, 900);
    let over = shown.browser.value("document.documentElement.scrollWidth - innerWidth").as_i64().unwrap();
    let widest = "Array.from(document.body.querySelectorAll('*')).filter(e => e.checkVisibility() && \
                  e.getBoundingClientRect().right > innerWidth + 1).slice(0, 5).map(e => e.outerHTML.slice(0, 120)).join('\\n')";
    assert!(over <= 0, "{over} pixels too wide: {}", shown.text(widest));
    assert_eq!(shown.browser.value("innerWidth"), width);
}
