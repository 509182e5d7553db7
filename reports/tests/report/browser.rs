//! The page in a real headless browser.

use rstest::rstest;
use vlab_browser::Key;
use vlab_reports::{Redactor, html};

use crate::sample;
use crate::shown::{Shown, attribute};

#[test]
fn a_browser_lays_the_page_out() {
    let (result, history) = sample::ha();
    let Some(mut shown) = Shown::new(&html::render(&result, &history, &Redactor::default())) else { return };
    let body = &shown.body("", "");
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
    let (result, history) = crate::hostile();
    let Some(mut shown) = Shown::new(&html::render(&result, &history, &Redactor::default())) else { return };
    assert_eq!(attribute(&shown.body("", ""), "data-ready"), Some("1"));
    assert_eq!(shown.browser.value("document.querySelectorAll('img').length"), 0, "a name became an element");
}

#[test]
fn what_went_wrong_first_stands_on_top_and_the_rest_is_folded() {
    let (result, history) = sample::sno_failed();
    let Some(mut shown) = Shown::new(&html::render(&result, &history, &Redactor::default())) else { return };
    let dom = shown.body("", "");
    let place = |text: &str| dom.find(text).unwrap_or_else(|| panic!("no {text}"));
    let (cause, follow) = (place("id=\"cause\""), place("<details id=\"follow\">"));
    assert!(place("id=\"failures\"") < cause && cause < follow && follow < place("id=\"timeline\""));
    assert!(dom[cause..follow].contains("the installer on master-0 gave up"), "the cause has its title");
    assert!(dom[cause..follow].contains("write /dev/sda: input/output error"), "and the program's own words");
    let folded = &dom[follow..follow + dom[follow..].find("</details>").unwrap()];
    assert!(folded.contains("2 checks that follow from it"), "{folded}");
    assert_eq!(folded.matches("<article").count(), 2);
}

/// What the card of a host or cluster says, tags left out.
fn card(body: &str, name: &str) -> String {
    let card = body.split("<article class=\"state").find(|part| part.contains(&format!("<h5>{name}<")));
    let card = card.unwrap_or_else(|| panic!("no card of {name} in {body}"));
    let card = card.split("</article>").next().unwrap();
    let mut text = String::new();
    for piece in card.split('<').skip(1) {
        let after = piece.split_once('>').map_or("", |(_, after)| after);
        text.push_str(after);
        if piece.starts_with("/p>") || piece.starts_with("/h5>") {
            text.push_str(" | ");
        }
    }
    text
}

#[rstest]
#[case::before_it_is_there("#t=100", "not there yet")]
#[case::to_the_millisecond("#t=1809", "preparing-successful for 0.109 s")]
#[case::a_millisecond_later("#t=1810", "installing for 0.000 s")]
#[case::stage_and_text("#t=3310", "Writing image to disk: 35%")]
#[case::role("#t=3310", "master, bootstrap")]
#[case::status("#t=3310", "installing-in-progress for 1.410 s")]
#[case::words("#t=3310", "Starting installation")]
#[case::at_the_end("#t=99999999", "error for")]
fn a_link_with_a_time_shows_the_run_at_that_moment(#[case] fragment: &str, #[case] expected: &str) {
    let (result, history) = sample::sno_failed();
    let Some(mut shown) = Shown::new(&html::render(&result, &history, &Redactor::default())) else { return };
    let body = shown.body(fragment, "");
    let card = card(&body, "master-0");
    assert!(card.contains(expected), "{card}");
}

#[test]
fn a_failed_check_leads_to_its_moment() {
    let (result, history) = sample::sno_failed();
    let Some(mut shown) = Shown::new(&html::render(&result, &history, &Redactor::default())) else { return };
    let body = shown.body("#t=0", "document.querySelector('#follow .card .show').click()");
    assert_eq!(attribute(&body, "data-moment"), Some("3710"));
    assert!(body.contains("class=\"state k-err named\""), "the host of the check is not marked");
    let around = body.split("<ol class=\"around\">").nth(1).unwrap().split("</ol>").next().unwrap();
    let now = around.find("<li class=\"now\">").unwrap();
    let failed = around.find("failed after 3 attempts").unwrap();
    let later = around.find("cluster has hosts in error").unwrap();
    assert!(failed < now && now < later, "{around}");
}

#[rstest]
#[case::right(Key::RIGHT, false, 1008)]
#[case::a_millisecond(Key::RIGHT, true, 1001)]
#[case::left(Key::LEFT, false, 992)]
#[case::page(Key::PAGE_DOWN, false, 920)]
#[case::home(Key::HOME, false, 0)]
#[case::end(Key::END, false, 4020)]
fn keys_move_the_time(#[case] key: Key, #[case] shift: bool, #[case] expected: i64) {
    let (result, history) = sample::sno_failed();
    let Some(mut shown) = Shown::new(&html::render(&result, &history, &Redactor::default())) else { return };
    shown.open("#t=1000");
    shown.browser.value("document.getElementById('mr').focus()");
    shown.browser.press_with(key, shift);
    assert_eq!(shown.text("document.body.dataset.moment"), expected.to_string());
}

#[test]
fn a_click_in_the_drawing_and_the_next_observation_move_the_time() {
    let (result, history) = sample::sno_failed();
    let Some(mut shown) = Shown::new(&html::render(&result, &history, &Redactor::default())) else { return };
    let body = shown.body(
        "",
        "const w = document.querySelector('.wide'), b = w.getBoundingClientRect(); \
         w.dispatchEvent(new MouseEvent('click', {clientX: b.left + b.width / 2, bubbles: true})); \
         document.body.dataset.clicked = document.body.dataset.moment; \
         document.getElementById('mf').click()",
    );
    let clicked: i64 = attribute(&body, "data-clicked").unwrap().parse().unwrap();
    assert!((2030..2040).contains(&clicked), "{clicked}");
    assert_eq!(attribute(&body, "data-moment"), Some("2040"), "the role is told then");
}

#[test]
fn hosts_are_filtered_by_their_names() {
    let (result, history) = sample::ha();
    let Some(mut shown) = Shown::new(&html::render(&result, &history, &Redactor::default())) else { return };
    let body = shown.body("#t=3000&of=master-1", "");
    let states = body.split("class=\"states\">").nth(1).unwrap().split("</div>").next().unwrap();
    assert_eq!(states.matches("<article").count(), 1, "{states}");
    let around = body.split("<ol class=\"around\">").nth(1).unwrap().split("</ol>").next().unwrap();
    assert!(around.contains("<b>master-1</b>") && !around.contains("<b>master-0</b>"), "{around}");
}

#[test]
fn a_large_history_opens_and_is_counted_at_any_moment() {
    let (result, history) = sample::fleet(10_000, 26);
    let text = html::render(&result, &history, &Redactor::default());
    let Some(mut shown) = Shown::new(&text) else { return };
    let body = shown.body("#t=5000", "");
    // How long it took is in docs/measurements.md; here only that it came to its end.
    eprintln!("{} bytes, {} ms", text.len(), attribute(&body, "data-took").unwrap());
    let counts = body.split("<p class=\"counts\">").nth(1).unwrap().split("</p>").next().unwrap();
    let numbers = counts.split("<b>").skip(1).map(|part| part.split('<').next().unwrap().replace(',', ""));
    assert_eq!(numbers.map(|n| n.parse::<u32>().unwrap()).sum::<u32>(), 10_000, "{counts}");
}

#[test]
fn two_runs_stand_on_one_axis() {
    let ((a, of_a), (b, of_b)) = (sample::ha(), sample::sno_failed());
    let redactor = &Redactor::default();
    let runs = [
        html::beside::Run { result: &a, history: &of_a, logs: &[], redactor },
        html::beside::Run { result: &b, history: &of_b, logs: &[], redactor },
    ];
    let Some(mut shown) = Shown::new(&html::beside::render(runs)) else { return };
    let body = shown.body("#t=0", "");
    assert_eq!((attribute(&body, "data-ready"), attribute(&body, "data-moment")), (Some("1"), Some("0")));
    // Both begin to prepare their installation at the same place of the axis.
    let place = |drawing: &str| {
        let span = drawing.split("<title>preparing-for-installation").next().unwrap();
        span.rsplit(" x=\"").next().unwrap().split('%').next().unwrap().to_owned()
    };
    let drawings: Vec<&str> = body.split("<div class=\"tl\"").skip(1).collect();
    assert_eq!(drawings.len(), 2);
    assert_eq!(place(drawings[0]), place(drawings[1]));
    let sides: Vec<&str> = body.split("<div class=\"side\"").skip(1).collect();
    for side in sides {
        let cluster = side.split("<article").nth(1).unwrap();
        assert!(cluster.contains("<b>preparing-for-installation</b><i> for 0.000 s</i>"), "{cluster}");
    }
}

/// What happened around the cause is read line by line: each has the whole width, and these are short enough for one line.
#[test]
fn the_lines_around_the_cause_have_the_whole_width() {
    let (result, history) = sample::sno_failed();
    let Some(mut shown) = Shown::new(&html::render(&result, &history, &Redactor::default())) else { return };
    let script = "var lines = Array.from(document.querySelectorAll('#cause ol li')); \
                  document.body.dataset.told = lines.length; \
                  document.body.dataset.high = Math.max.apply(null, lines.map(l => Math.ceil(l.getBoundingClientRect().height)));";
    let body = shown.body("", script);
    let number = |name: &str| attribute(&body, name).unwrap().parse::<i64>().unwrap();
    assert!(number("data-told") > 0, "there are lines to read");
    assert!(number("data-high") < 30, "a line is broken and {} pixels high", number("data-high"));
}
