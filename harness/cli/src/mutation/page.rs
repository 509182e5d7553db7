//! The score, and the page that shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use vlab_drive::alterations::unnoticed::{UNNOTICED, reason};
use vlab_drive::alterations::{Alteration, changing_nothing};
use vlab_judge::invariants::INVARIANTS;

use super::Record;

/// So much of all alterations must be noticed, in percent.
const AT_LEAST: f64 = 95.0;

/// How many alterations were noticed, and which were not.
#[derive(Debug, Default)]
pub(super) struct Score {
    /// Those that were tried and that somebody could notice.
    all: usize,
    noticed: usize,
    /// The same of the rows of the state machines.
    rules: usize,
    rules_noticed: usize,
    /// Noticed by the catalogue, and by the conformance suite.
    by_catalogue: usize,
    by_conformance: usize,
    /// Nobody noticed them, and there is no reason why.
    open: Vec<String>,
    /// Somebody noticed them, although there is a reason why nobody could.
    reason_is_none: Vec<String>,
    panics: Vec<String>,
    /// So many were not tried.
    untried: usize,
}

impl Score {
    pub(super) fn of(all: &[Alteration], records: &BTreeMap<String, Record>) -> Self {
        let mut score = Self::default();
        for alteration in all {
            let name = alteration.name();
            let Some(record) = records.get(&name) else {
                score.untried += 1;
                continue;
            };
            match (record.is_noticed(), reason(&name)) {
                (false, Some(_)) => continue,
                (true, Some(_)) => score.reason_is_none.push(name.clone()),
                _ => {}
            }
            let is_rule = alteration.rule().is_some() && !alteration.is_of_a_source();
            score.all += 1;
            score.rules += usize::from(is_rule);
            score.by_catalogue += usize::from(record.check.is_some());
            score.by_conformance += usize::from(record.conformance.is_some());
            if record.panic.is_some() {
                score.panics.push(name.clone());
            }
            if record.is_noticed() {
                score.noticed += 1;
                score.rules_noticed += usize::from(is_rule);
            } else {
                score.open.push(name);
            }
        }
        score
    }

    fn percent(part: usize, of: usize) -> f64 {
        if of == 0 { 100.0 } else { part as f64 * 100.0 / of as f64 }
    }

    /// At least 95 percent of all, and all of the rules.
    pub(super) fn suffices(&self) -> bool {
        Self::percent(self.noticed, self.all) >= AT_LEAST
            && self.rules_noticed == self.rules
            && self.panics.is_empty()
            && self.reason_is_none.is_empty()
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (what, names) in [
            ("nobody notices", &self.open),
            ("noticed, although there is a reason why that cannot be", &self.reason_is_none),
            ("the altered program panics", &self.panics),
        ] {
            for name in names {
                let _ = writeln!(text, "{what}: {name}");
            }
        }
        let _ = writeln!(text, "{}", self.line());
        if self.untried > 0 {
            let _ = writeln!(text, "{} were not tried", self.untried);
        }
        text
    }

    fn line(&self) -> String {
        format!(
            "{} of {} alterations are noticed ({:.1} %), {} of {} of the state machines' rules ({:.1} %); {} by the catalogue, {} by \
             the conformance suite",
            self.noticed,
            self.all,
            Self::percent(self.noticed, self.all),
            self.rules_noticed,
            self.rules,
            Self::percent(self.rules_noticed, self.rules),
            self.by_catalogue,
            self.by_conformance,
        )
    }
}

/// Invariants that no alteration can make red, and why they are there all the same: each has a test of its own in which it is.
const SILENT: &[(&str, &str)] = &[
    (
        "stages-forward",
        "takes two mistakes at once: a host that goes back, and a service that takes it; hosts of their own never do, and the \
         service refuses it",
    ),
    (
        "one-service-decides",
        "needs two services on one database, and virtual time has one service and no database; `leader-killed-in-every-state` has it judged in real time",
    ),
];

const HEAD: &str = "# Mutations: the judge is judged

<!-- Made by `cargo xtask mutation --page docs/mutations.md`; a test compares the names with the tables. -->

What is a green verdict worth? As much as the red that it would have been. So the simulated service and its hosts are made wrong in
one thing at a time: a rule of a state machine is missing, leads elsewhere or does not hold in one of its states, a validation always
holds, a timer is four times as fast, a step lacks an argument, an event comes twice, a member of a row is never written, a condition
stays as it was first, a change of a resource wakes nobody. Each such *alteration* is tried on the scenarios of the catalogue in virtual
time, the most telling ones first, until a check fails that passes without it. The alterations are made from the tables by which service and hosts act, so a new row brings its own; no scenario can
ask for one.

<!-- not run: each alteration runs a part of the catalogue, all of them take hours -->
```console
$ cargo xtask mutation --filter host-rule/12
```

tries some of them, `cargo xtask mutation` all (it takes hours on two cores; it can be stopped and goes on where it was), and
`--page docs/mutations.md` writes this page. In the tables, *after* is the number of scenarios that were run: up to the one that
noticed, or all that were tried where none did; scenarios in which the altered row is never used are not run. The last column is the first check of the
[conformance suite](conformance.md) that fails on the altered service, in memory. The suite is asked where no scenario notices; about
validations, requirements, amounts, steps, events, members, answers and the controllers it is asked first, and then no scenario is run (*after* 0). Who
noticed an alteration before is asked first again.
";

/// The page.
pub(super) fn page(all: &[Alteration], records: &BTreeMap<String, Record>) -> String {
    let score = Score::of(all, records);
    let (controllers, rest): (Vec<Alteration>, Vec<Alteration>) =
        all.iter().copied().partition(Alteration::is_of_controllers);
    let (controllers, rest) = (Score::of(&controllers, records), Score::of(&rest, records));
    let mut page = format!(
        "{HEAD}\n## The score\n\nService and hosts: {}.\n\nControllers over Kubernetes: {} of {} alterations are noticed ({:.1} %).\n",
        rest.line(),
        controllers.noticed,
        controllers.all,
        Score::percent(controllers.noticed, controllers.all),
    );
    if score.untried > 0 {
        let _ = writeln!(page, "\nNot tried yet, as the tables say: {}.", score.untried);
    }
    by_family(&mut page, all, records);
    who_notices(&mut page, records);
    let _ = writeln!(page, "\n## Not noticed\n");
    let _ = writeln!(page, "| alteration | why nothing can notice it |\n| --- | --- |");
    for row in UNNOTICED {
        let names: Vec<String> = row.names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(page, "| {} | {} |", names.join(", "), row.reason);
    }
    let same: Vec<String> = changing_nothing().iter().map(|a| format!("`{}`", a.name())).collect();
    let _ = writeln!(
        page,
        "\nNot tried, because the table itself shows that nothing would change (the row leaves everything as it is, and so does what \
         stands behind it): {}.",
        same.join(", ")
    );
    if !score.open.is_empty() {
        let open: Vec<String> = score.open.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(page, "\nStill open, without a reason: {}.", open.join(", "));
    }
    tables(&mut page, all, records);
    page
}

/// What the rows of a page say of who noticed each alteration. All that failed beside the first check is not on it.
pub(super) fn rows(page: &str) -> BTreeMap<String, Record> {
    let code = |cell: &str| cell.strip_prefix('`').and_then(|c| c.strip_suffix('`')).map(str::to_owned);
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect();
        let [name, _, check, scenario, after, conformance] = cells.as_slice() else { return None };
        let (name, scenarios) = (code(name)?, after.parse().ok()?);
        if *check == "not tried" {
            return None;
        }
        let scenario = code(scenario).unwrap_or_default();
        let check = (!scenario.is_empty()).then(|| (*check).to_owned());
        let (all, conformance) = (Vec::new(), code(conformance));
        Some((name.clone(), Record { name, check, all, scenario, scenarios, conformance, panic: None }))
    };
    page.lines().filter_map(row).collect()
}

fn by_family(page: &mut String, all: &[Alteration], records: &BTreeMap<String, Record>) {
    let mut families: Vec<(String, Vec<Alteration>)> = Vec::new();
    for alteration in all {
        let family = alteration.family();
        match families.iter_mut().find(|(known, _)| *known == family) {
            Some((_, members)) => members.push(*alteration),
            None => families.push((family, vec![*alteration])),
        }
    }
    let _ = writeln!(
        page,
        "\n| what is altered | alterations | noticed | by the catalogue | by the conformance suite | have a reason |"
    );
    let _ = writeln!(page, "| --- | ---: | ---: | ---: | ---: | ---: |");
    for (family, members) in families {
        let score = Score::of(&members, records);
        let _ = writeln!(
            page,
            "| {family} | {} | {:.0} % | {} | {} | {} |",
            members.len(),
            Score::percent(score.noticed, score.all),
            score.by_catalogue,
            score.by_conformance,
            members.len() - score.all
        );
    }
}

/// Which checks notice something at all, and which invariants never do.
fn who_notices(page: &mut String, records: &BTreeMap<String, Record>) {
    let mut by: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for record in records.values() {
        if let Some(check) = &record.check {
            by.entry(kind_of(check)).or_default().0 += 1;
        }
        let kinds: BTreeSet<&str> = record.all.iter().chain(&record.check).map(|check| kind_of(check)).collect();
        for kind in kinds {
            by.entry(kind).or_default().1 += 1;
        }
    }
    let _ = writeln!(page, "\n## Who notices\n");
    let _ = writeln!(
        page,
        "| check | is the first | fails in a run in which something was noticed |\n| --- | ---: | ---: |"
    );
    for (check, (first, among)) in &by {
        let _ = writeln!(page, "| {check} | {first} | {among} |");
    }
    let only_first = records.values().filter(|record| record.check.is_some() && record.all.is_empty()).count();
    if only_first > 0 {
        let _ = writeln!(
            page,
            "\nOf {only_first} alterations the table has only the first check: they are rows of an earlier page."
        );
    }
    let silent: Vec<&str> =
        INVARIANTS.iter().map(|i| i.id).filter(|id| !by.contains_key(format!("invariant {id}").as_str())).collect();
    if silent.is_empty() {
        return;
    }
    let _ = writeln!(page, "\n| invariant that noticed nothing | why it is there |\n| --- | --- |");
    // Of rows of an earlier page nobody knows what failed beside the first check.
    let unexplained = if only_first > 0 { "not known: not all was measured again" } else { "to be mended or removed" };
    for id in silent {
        let why = SILENT.iter().find(|(of, _)| *of == id).map_or(unexplained, |(_, why)| why);
        let _ = writeln!(page, "| {id} | {why} |");
    }
}

/// A check without the scenario's own words.
fn kind_of(check: &str) -> &str {
    match check.split_once(':') {
        Some((kind, _)) => kind,
        None => check,
    }
}

fn tables(page: &mut String, all: &[Alteration], records: &BTreeMap<String, Record>) {
    let mut last = String::new();
    for alteration in all {
        let family = alteration.family();
        if family != last {
            let _ = writeln!(page, "\n## {family}\n");
            let _ = writeln!(page, "| alteration | what is wrong | first check | scenario | after | conformance |");
            let _ = writeln!(page, "| --- | --- | --- | --- | ---: | --- |");
            last = family;
        }
        let Some(record) = records.get(&alteration.name()) else {
            let _ = writeln!(page, "| `{}` | {} | not tried | – | 0 | – |", alteration.name(), alteration.about());
            continue;
        };
        let cell = |text: &str| text.replace('|', "\\|");
        let check = record.check.as_deref().map_or("–".to_owned(), cell);
        let scenario = if record.scenario.is_empty() { "–".to_owned() } else { format!("`{}`", record.scenario) };
        let conformance = record.conformance.as_deref().map_or("–".to_owned(), |id| format!("`{id}`"));
        let _ = writeln!(
            page,
            "| `{}` | {} | {check} | {scenario} | {} | {conformance} |",
            record.name,
            cell(&alteration.about()),
            record.scenarios
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_for_silence_are_of_invariants() {
        for (id, why) in SILENT {
            assert!(INVARIANTS.iter().any(|invariant| invariant.id == *id), "{id} is no invariant");
            assert!(!why.is_empty());
        }
    }

    #[test]
    fn a_page_tells_who_noticed_what() {
        let all = vlab_drive::alterations::all();
        let none = Record {
            name: String::new(),
            check: None,
            all: Vec::new(),
            scenario: String::new(),
            scenarios: 3,
            conformance: None,
            panic: None,
        };
        let scenario = Record { check: Some("expectation: a | b".into()), scenario: "sno".into(), ..none.clone() };
        let suite = Record { conformance: Some("register/new".into()), ..none.clone() };
        let records: BTreeMap<String, Record> = all
            .iter()
            .zip([scenario, suite, none].into_iter().cycle())
            .map(|(alteration, record)| (alteration.name(), Record { name: alteration.name(), ..record }))
            .collect();
        let read = rows(&page(&all, &records));
        assert_eq!(read.len(), all.len());
        for (name, record) in &records {
            let row = &read[name];
            assert_eq!((&row.scenario, &row.conformance), (&record.scenario, &record.conformance), "{name}");
            assert_eq!((row.check.is_some(), row.scenarios), (record.check.is_some(), 3), "{name}");
        }
    }
}
