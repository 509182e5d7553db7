//! What must be true. [`KINDS`] is the one list of kinds of expectations: which key each has, and what makes a
//! [`Criterion`] of it.

use std::collections::BTreeMap;

use super::subject::who;
use super::{Checker, Known, Place};
use crate::diagnostic::quoted;
use crate::file::{EventFile, ExpectFile, ObservationFile, OperatorFile, StageDurationFile, ValidationFile};
use crate::spanned::At;
use crate::types::{Criterion, Expectation, Moment, Subject};
use crate::words::When;

/// A kind of expectation.
struct ExpectationForm {
    key: &'static str,
    given: fn(&ExpectFile) -> Option<&Place>,
    read: fn(&mut Checker<'_>, &ExpectFile, &Known<'_>) -> Option<Criterion>,
}

macro_rules! kinds {
    ($($key:ident),* $(,)?) => {
        &[$(ExpectationForm {
            key: stringify!($key),
            given: |file| file.$key.as_ref().map(|item| &item.span),
            read: |checker, file, known| match &file.$key {
                Some(item) => checker.$key(item, file, known),
                None => None,
            },
        }),*]
    };
}

/// Every kind of expectation, each read by the function of its name. Exactly one stands in an item.
const KINDS: &[ExpectationForm] = kinds![sequence, eventually, never, see, validation, event, stage_duration, operator];

/// Keys of the kinds of expectations.
pub(crate) fn kinds_of_expectations() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.key)
}

impl Checker<'_> {
    pub(super) fn expectations(&mut self, items: &[At<ExpectFile>], known: &Known<'_>) -> Vec<Expectation> {
        let mut all: Vec<Expectation> = vec![];
        let mut names: BTreeMap<String, Place> = BTreeMap::new();
        for item in items {
            let Some(check) = self.expectation(item, known) else { continue };
            let mut name = match &item.name {
                Some(text) if text.text.trim().is_empty() => {
                    self.refuse(
                        &text.span,
                        "the expectation's name is empty",
                        "nothing here",
                        "write a name, or remove `name`",
                    );
                    continue;
                }
                Some(text) => text.text.trim().to_owned(),
                None => crate::describe::check(&check),
            };
            let place = item.name.as_ref().map_or(item.span.clone(), |t| t.span.clone());
            if let Some(first) = names.get(&name).cloned() {
                if item.name.is_some() {
                    self.refuse(
                        &place,
                        format!("two expectations are named {name:?}"),
                        "the second one",
                        "give each a name of its own",
                    );
                    self.also(&first, "the first one");
                    continue;
                }
                name = format!("{name} (line {})", self.line(&item.span));
            }
            names.insert(name.clone(), place);
            all.push(Expectation { name, line: self.line(&item.span), check });
        }
        all
    }

    fn expectation(&mut self, item: &At<ExpectFile>, known: &Known<'_>) -> Option<Criterion> {
        let kind = self.kind_of_expectation(item)?;
        for (key, other) in [("before", &item.before), ("after", &item.after)] {
            if let Some(other) = other.as_ref().filter(|_| item.see.is_none()) {
                self.refuse(
                    &other.span,
                    format!("`{key}` only goes with `see`"),
                    "there is no `see`",
                    format!("write `see: ...` and `{key}: ...`"),
                );
            }
        }
        if let Some(within) = item.within.as_ref().filter(|_| item.see.is_none() && item.eventually.is_none()) {
            self.refuse(&within.span, "`within` only goes with `eventually` and `see`", "not used here", "remove it");
            self.read(within);
        }
        (kind.read)(self, item, known)
    }

    fn kind_of_expectation(&mut self, item: &At<ExpectFile>) -> Option<&'static ExpectationForm> {
        let given: Vec<(&ExpectationForm, &Place)> =
            KINDS.iter().filter_map(|kind| Some((kind, (kind.given)(item)?))).collect();
        match given.as_slice() {
            [(kind, _)] => Some(kind),
            [] => {
                let keys: Vec<&str> = kinds_of_expectations().collect();
                let help = format!("add one of {}", quoted(&keys, "or"));
                self.refuse(&item.span, "this expectation expects nothing", "nothing here", help);
                None
            }
            [(first, there), (second, place), ..] => {
                self.refuse(
                    place,
                    format!("`{}` and `{}` cannot be in one expectation", first.key, second.key),
                    "the second one",
                    "write two expectations, each with its own `- `",
                );
                self.also(there, "the first one");
                None
            }
        }
    }

    fn eventually(&mut self, item: &At<ObservationFile>, file: &ExpectFile, known: &Known<'_>) -> Option<Criterion> {
        let within = self.read_option(&file.within);
        Some(Criterion::Eventually { moment: self.observation(item, known)?, within })
    }

    fn never(&mut self, item: &At<ObservationFile>, _: &ExpectFile, known: &Known<'_>) -> Option<Criterion> {
        if let Some(n) = &item.at_least {
            self.refuse(&n.span, "`never` is about every host", "not used here", "remove `at_least`");
        }
        Some(Criterion::Never { moment: self.observation(item, known)? })
    }

    fn see(&mut self, see: &At<ObservationFile>, file: &ExpectFile, known: &Known<'_>) -> Option<Criterion> {
        let within = self.read_option(&file.within);
        let seen = self.observation(see, known);
        let before = file.before.as_ref().map(|m| self.observation(m, known));
        let after = file.after.as_ref().map(|m| self.observation(m, known));
        if before.is_none() && after.is_none() {
            self.refuse(
                &see.span,
                "`see` needs `before` or `after`",
                "when?",
                "add `before:` or `after:`, or write `eventually` instead of `see`",
            );
            return None;
        }
        // What is there and was refused takes all of it down.
        let readable = |moment: Option<Option<Moment>>| match moment {
            Some(None) => Err(()),
            other => Ok(other.flatten()),
        };
        let (before, after) = (readable(before).ok()?, readable(after).ok()?);
        Some(Criterion::Order { see: seen?, before, after, within })
    }

    fn validation(&mut self, item: &At<ValidationFile>, _: &ExpectFile, known: &Known<'_>) -> Option<Criterion> {
        let subject = self.subject(who!(item), known);
        let status = self.read(&item.is);
        let when = self.read_option(&item.when).unwrap_or(When::End);
        let Some(subject) = subject? else {
            self.refuse(
                &item.span,
                "no host or cluster is named",
                "whose?",
                "add `host`, `hosts`, `role` or `cluster`",
            );
            return None;
        };
        let id = self.validation_id(&item.id, matches!(subject, Subject::Cluster(_)))?;
        Some(Criterion::Validation { subject, id, status: status?, when })
    }

    fn event(&mut self, item: &At<EventFile>, _: &ExpectFile, known: &Known<'_>) -> Option<Criterion> {
        let subject = self.subject(who!(item), known);
        self.read(&item.name);
        let severity = self.read_option(&item.severity);
        let (min, max) = self.number_of_events(item);
        let subject = subject?.unwrap_or(Subject::Run);
        Some(Criterion::Event { subject, name: item.name.text.clone(), severity, min, max })
    }

    /// At least and at most so many.
    fn number_of_events(&mut self, item: &EventFile) -> (u64, Option<u64>) {
        if let (Some(count), Some(other)) = (&item.count, item.min.as_ref().or(item.max.as_ref())) {
            self.refuse(
                &other.span,
                "`count` cannot be used with `min` or `max`",
                "not used with `count`",
                "write `count`, or `min` and `max`",
            );
            self.also(&count.span, "here");
        }
        let count = self.positive_u64(&item.count, "the number of events", 0);
        let min = self.positive_u64(&item.min, "the least number of events", 0);
        let max = self.positive_u64(&item.max, "the greatest number of events", 0);
        if let (Some(min), Some(max), Some(place)) = (min, max, &item.max)
            && min > max
        {
            self.refuse(
                &place.span,
                format!("`max: {max}` is less than `min: {min}`"),
                "can never be true",
                "swap them",
            );
        }
        if let (Some(0), None, Some(place)) = (min, max, &item.min) {
            self.refuse(
                &place.span,
                "`min: 0` without `max` is always true",
                "expects nothing",
                "write `count: 0` for none, or add `max`",
            );
        }
        match count {
            Some(n) => (n, Some(n)),
            None => (min.unwrap_or(u64::from(max.is_none())), max),
        }
    }

    fn stage_duration(&mut self, item: &At<StageDurationFile>, _: &ExpectFile, known: &Known<'_>) -> Option<Criterion> {
        let subject = self.subject(who!(item), known);
        let stage = self.read(&item.stage);
        let at_least = self.read_option(&item.at_least);
        let at_most = self.read_option(&item.at_most);
        if item.at_least.is_none() && item.at_most.is_none() {
            self.refuse(&item.stage.span, "no duration is given", "how long?", "add `at_most` or `at_least`");
        }
        let Some(subject) = subject? else {
            self.refuse(&item.span, "no host is named", "whose?", "add `host`, `hosts` or `role`");
            return None;
        };
        if !self.needs_hosts(&subject, &item.stage.span, "an installation stage") {
            return None;
        }
        self.stage_exists(&subject, stage?, &item.stage.span, known);
        Some(Criterion::StageDuration { subject, stage: stage?, at_least, at_most })
    }

    fn operator(&mut self, item: &At<OperatorFile>, _: &ExpectFile, known: &Known<'_>) -> Option<Criterion> {
        self.read(&item.name);
        let status = self.read(&item.is);
        let cluster = self.the_cluster(item.cluster.as_ref(), &item.name.span, known)?.name.clone();
        Some(Criterion::Operator { cluster, name: item.name.text.clone(), status: status? })
    }
}
