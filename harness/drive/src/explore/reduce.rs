//! Makes any scenario small that fails a check, over its file: parts go, numbers and times become smaller, as long as the same check
//! fails and says the same. For what was drawn from a tape see [`super::shrink`].

use serde_json::Value;
use vlab_judge::result::CheckVerdict;
use vlab_scenario::{Catalogue, HostKind, Scenario, SourceFile};

use super::oracle::violation;
use crate::prepare::{Choices, Nowhere, Prepared, prepare};
use crate::simulate::run_whole;
use crate::target::Target;

/// How a scenario is run while it is made small.
#[derive(Clone, Debug)]
pub struct How {
    /// Seed of the run.
    pub seed: u64,
    /// Its time profile.
    pub time_profile: String,
    /// At most so many runs.
    pub most: u64,
}

/// A scenario that was made small.
#[derive(Clone, Debug)]
pub struct Reduced {
    /// Its file.
    pub source: SourceFile,
    /// The check that fails.
    pub check: String,
    /// What it says.
    pub message: String,
    /// How many runs it took.
    pub runs: u64,
    /// Nothing more could go; otherwise the runs were used up.
    pub is_minimal: bool,
}

/// Where a part of a file is: keys and positions from the top.
type Place = Vec<Step>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Item(usize),
}

/// Parts that a scenario cannot be without, or that say nothing of what happens.
const STAYS: &[&str] = &["version", "name", "seed"];

/// More things do not happen in a run that is made small.
const MOST_STEPS: u64 = 1_000_000;

struct Reducer<'a> {
    catalogue: &'a Catalogue,
    how: &'a How,
    path: String,
    check: &'a str,
    signature: String,
    best: Value,
    message: String,
    runs: u64,
    tell: &'a mut dyn FnMut(u64, usize),
}

/// Makes a scenario small that fails that check. `tell` is told after each run how many there were and how many lines are left.
///
/// # Errors
/// It cannot be read, or the check does not fail in virtual time; for people.
pub fn reduce(
    source: &SourceFile,
    catalogue: &Catalogue,
    check: &str,
    how: &How,
    tell: &mut dyn FnMut(u64, usize),
) -> Result<Reduced, String> {
    let value = vlab_scenario::read_value(source).map_err(|error| error.to_string())?;
    let mut reducer = Reducer {
        catalogue,
        how,
        path: source.name.clone(),
        check,
        signature: String::new(),
        best: value,
        message: String::new(),
        runs: 0,
        tell,
    };
    let first = reducer.fails(&reducer.best.clone());
    let (signature, message) =
        first.ok_or_else(|| format!("the check {check:?} does not fail in virtual time with the seed {}", how.seed))?;
    (reducer.signature, reducer.message) = (signature, message);
    let is_minimal = reducer.run();
    let source = SourceFile::new(reducer.path.clone(), as_yaml(&reducer.best));
    Ok(Reduced { source, check: check.to_owned(), message: reducer.message, runs: reducer.runs, is_minimal })
}

impl Reducer<'_> {
    /// The signature and the words with which the check fails; `None`: it does not, or that is no scenario.
    fn fails(&mut self, value: &Value) -> Option<(String, String)> {
        let source = SourceFile::new(self.path.clone(), as_yaml(value));
        let scenario = vlab_scenario::load(&source, self.catalogue).ok()?;
        self.runs += 1;
        let (check, message) = failed(scenario.clone(), self.catalogue, self.check, self.how)?;
        Some((violation(&scenario, &check, &message).signature, message))
    }

    /// Is that still it? Then it is the best.
    fn take(&mut self, value: Value) -> bool {
        let failed = self.fails(&value).filter(|(signature, _)| *signature == self.signature);
        (self.tell)(self.runs, as_yaml(&self.best).lines().count());
        let Some((_, message)) = failed else { return false };
        self.message = message;
        self.best = value;
        true
    }

    fn run(&mut self) -> bool {
        loop {
            let before = self.best.clone();
            for change in [Change::Remove, Change::Least, Change::Half] {
                let mut at = 0;
                loop {
                    let mut places = places(&self.best);
                    // What is large goes first.
                    places.sort_by_key(|place| std::cmp::Reverse(get(&self.best, place).map_or(0, weight)));
                    let Some(place) = places.get(at) else { break };
                    if self.runs >= self.how.most {
                        return false;
                    }
                    let taken = changed(&self.best, place, change).is_some_and(|value| self.take(value));
                    at += usize::from(!taken);
                }
            }
            if self.best == before {
                return true;
            }
        }
    }
}

/// The failed check of that name, and what it says.
fn failed(scenario: Scenario, catalogue: &Catalogue, check: &str, how: &How) -> Option<(String, String)> {
    let choices = Choices {
        seed: Some(how.seed),
        time_profile: Some(how.time_profile.clone()),
        service: Some(Target::Simulated),
        hosts: Some(HostKind::Simulated),
        ..Choices::default()
    };
    let prepared: Prepared = prepare(scenario, catalogue, &choices, &Nowhere).ok()?;
    let whole = run_whole(&prepared, MOST_STEPS);
    let is_it = |c: &&vlab_judge::result::CheckResult| c.name == check && c.verdict == CheckVerdict::Failed;
    whole.result.checks.iter().find(is_it).map(|c| (c.name.clone(), c.message.clone()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Remove,
    Least,
    Half,
}

/// Every part of a file, but for those that stay.
fn places(value: &Value) -> Vec<Place> {
    fn walk(value: &Value, here: &Place, all: &mut Vec<Place>) {
        let mut inside = |step: Step, value: &Value| {
            let place: Place = here.iter().cloned().chain([step]).collect();
            all.push(place.clone());
            walk(value, &place, all);
        };
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| inside(Step::Key(key.clone()), value)),
            Value::Array(list) => list.iter().enumerate().for_each(|(at, value)| inside(Step::Item(at), value)),
            _ => {}
        }
    }
    let mut all = Vec::new();
    walk(value, &Vec::new(), &mut all);
    all.retain(|place| !matches!(place.first(), Some(Step::Key(key)) if STAYS.contains(&key.as_str())));
    all
}

fn get<'v>(value: &'v Value, place: &[Step]) -> Option<&'v Value> {
    place.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get(key),
        Step::Item(at) => value.get(at),
    })
}

fn get_mut<'v>(value: &'v mut Value, place: &[Step]) -> Option<&'v mut Value> {
    place.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Item(at) => value.get_mut(at),
    })
}

/// How much there is of a part.
fn weight(value: &Value) -> usize {
    1 + match value {
        Value::Object(map) => map.values().map(weight).sum(),
        Value::Array(list) => list.iter().map(weight).sum(),
        _ => 0,
    }
}

/// The file with that change at that place; `None`: there is nothing to change.
fn changed(value: &Value, place: &[Step], change: Change) -> Option<Value> {
    let mut value = value.clone();
    if change == Change::Remove {
        let (last, above) = place.split_last()?;
        match (get_mut(&mut value, above)?, last) {
            (Value::Object(map), Step::Key(key)) => _ = map.remove(key),
            (Value::Array(list), Step::Item(at)) => _ = list.remove(*at),
            _ => return None,
        }
        return Some(value);
    }
    let part = get_mut(&mut value, place)?;
    let new = match part {
        Value::Number(number) => {
            let number = number.as_u64()?;
            let new = if change == Change::Least { 1 } else { number / 2 };
            (new < number).then(|| Value::from(new))?
        }
        Value::String(text) => {
            // A time with one unit.
            let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
            let number: u64 = number.parse().ok().filter(|_| ["s", "m", "h", "ms"].contains(&unit))?;
            let new = if change == Change::Least { 1 } else { number / 2 };
            (0 < new && new < number).then(|| Value::from(format!("{new}{unit}")))?
        }
        _ => return None,
    };
    *part = new;
    Some(value)
}

/// Keys of a scenario in the order in which people write them.
const ORDER: &[&str] = &[
    "version",
    "name",
    "description",
    "tags",
    "seed",
    "needs",
    "service",
    "infra_env",
    "cluster",
    "clusters",
    "hosts",
    "hosts_settings",
    "actions",
    "faults",
    "interleaving",
    "tolerate",
    "expect",
    "pivot",
    "until",
    "budgets",
    "load",
    "report",
];

/// A scenario as a file: a line for each part, or for each item of a list.
pub fn as_yaml(value: &Value) -> String {
    let Some(map) = value.as_object() else { return flow(value) };
    let mut keys: Vec<&String> = map.keys().collect();
    keys.sort_by_key(|key| ORDER.iter().position(|known| known == key).unwrap_or(ORDER.len()));
    let mut text = String::new();
    for key in keys {
        match &map[key] {
            Value::Array(list) if list.iter().any(|item| item.is_object() || item.is_array()) => {
                text.push_str(&format!("{key}:\n"));
                list.iter().for_each(|item| text.push_str(&format!("  - {}\n", flow(item))));
            }
            value => text.push_str(&format!("{key}: {}\n", flow(value))),
        }
    }
    text
}

/// A value in one line. JSON is YAML, but for what people would not put in quotes.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let all: Vec<String> =
                map.iter().map(|(key, value)| format!("{}: {}", flow_text(key), flow(value))).collect();
            format!("{{{}}}", all.join(", "))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::String(text) => flow_text(text),
        other => other.to_string(),
    }
}

fn flow_text(text: &str) -> String {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || " -_./".contains(c)) && !text.ends_with(' ');
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic());
    // A time or an address begins with a digit; a version would be a number.
    let time = text.starts_with(|c: char| c.is_ascii_digit()) && text.ends_with(['s', 'm', 'h']);
    let reserved = ["true", "false", "null", "yes", "no", "on", "off"].contains(&text.to_ascii_lowercase().as_str());
    if plain && (word || time) && !reserved { text.to_owned() } else { Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let catalogue = Catalogue::embedded();
        for entry in catalogue.list() {
            let source = catalogue.find(&entry.name).unwrap();
            let value = vlab_scenario::read_value(&source).unwrap_or_else(|e| panic!("{e}"));
            let again = vlab_scenario::read_value(&SourceFile::new("again.yaml", as_yaml(&value)));
            assert_eq!(again.unwrap_or_else(|e| panic!("{e}\n{}", as_yaml(&value))), value, "{}", entry.name);
        }
    }

    #[test]
    fn a_failing_scenario_becomes_small() {
        let text = "version: 1\nname: t\ncluster: {name: c, topology: sno}\nhosts: [{name: node}]\n\
                    faults:\n  - {name: other, at: 5m, target: node-0, inject: slow-polls, for: 10m, with: {every: 90s}}\n  \
                    - {name: dies, at: {host: node-0, status: installing}, then: 40s, target: node-0, inject: crash}\n\
                    expect:\n  - {name: it is installed, eventually: {cluster: c, status: installed}}\n  \
                    - {eventually: {host: node-0, status: known}}\n";
        let how = How { seed: 1, time_profile: "real".to_owned(), most: 150 };
        let source = SourceFile::new("t.yaml", text);
        let reduced = reduce(&source, &Catalogue::embedded(), "it is installed", &how, &mut |_, _| {}).unwrap();
        let small = String::from_utf8_lossy(&reduced.source.bytes).into_owned();
        assert!(!small.contains("slow-polls") && small.contains("crash") && !small.contains("known"), "{small}");
        let refused = reduce(&source, &Catalogue::embedded(), "no such check", &how, &mut |_, _| {}).unwrap_err();
        assert!(refused.contains("does not fail in virtual time"), "{refused}");
    }
}
