//! Sequences of statuses and stages, and what the tables of the model say about them.

use std::collections::{BTreeMap, BTreeSet};

use vlab_api::types::{ClusterStatus, HostStage, HostStatus};

use super::subject::who;
use super::{Checker, Known, Place};
use crate::diagnostic::quoted;
use crate::file::{ExpectFile, SequenceFile};
use crate::paths::{cluster_edge, host_edge, stage_lists};
use crate::spanned::{AnyStatus, At, Scalar, Step, Text, split_step};
use crate::types::{Check, Steps, Subject};
use crate::words::SequenceMode;

/// What the tables say about statuses.
struct Machine {
    what: &'static str,
    edge: fn(&str, &str) -> bool,
    starts: &'static [&'static str],
}

const HOST_MACHINE: Machine =
    Machine { what: "host", edge: host_edge, starts: &["discovering", "discovering-unbound"] };
const CLUSTER_MACHINE: Machine =
    Machine { what: "cluster", edge: cluster_edge, starts: &["insufficient", "adding-hosts", "unmonitored"] };

/// The steps of a sequence as they are written.
struct Written<T> {
    words: Vec<Text<T>>,
    /// Which of them may be missing.
    optional: Vec<bool>,
}

impl<T> Written<T> {
    fn new(steps: &[Text<Step<T>>]) -> Self {
        let (words, optional) = steps.iter().map(split_step).unzip();
        Self { words, optional }
    }

    fn place(&self, i: usize) -> &Place {
        &self.words[i].span
    }
}

impl Checker<'_> {
    pub(super) fn sequence(&mut self, item: &At<SequenceFile>, _: &ExpectFile, known: &Known<'_>) -> Option<Check> {
        let subject = self.subject(who!(item), known);
        let mode = self.read_option(&item.mode).unwrap_or(SequenceMode::Exact);
        self.one_kind_of_steps(item)?;
        let subject = subject?;
        let (subject, steps, optional) = if let Some(statuses) = &item.statuses {
            self.statuses(item, statuses, subject, mode)?
        } else if let Some(stages) = &item.stages {
            self.stages(item, stages, subject, known)?
        } else if let Some(stages) = &item.finalizing_stages {
            let written = Written::new(stages);
            let all = self.steps(&written.words)?;
            let subject = self.needs_cluster(subject, &item.span, known, "a stage of finalizing")?;
            let optional = positions(&written.optional);
            return Some(Check::Sequence { subject, steps: Steps::FinalizingStages(all), optional, mode });
        } else {
            return None;
        };
        if optional.iter().all(|o| *o) {
            self.refuse(
                &item.span,
                "every step of the sequence is optional",
                "expects nothing",
                "remove the `?` from at least one step",
            );
        }
        Some(Check::Sequence { subject, steps, optional: positions(&optional), mode })
    }

    fn one_kind_of_steps(&mut self, item: &At<SequenceFile>) -> Option<()> {
        let kinds = [
            item.statuses.as_ref().map(|s| (&s.span, s.is_empty())),
            item.stages.as_ref().map(|s| (&s.span, s.is_empty())),
            item.finalizing_stages.as_ref().map(|s| (&s.span, s.is_empty())),
        ];
        let given: Vec<(&Place, bool)> = kinds.into_iter().flatten().collect();
        match given.as_slice() {
            [(place, true)] => self.refuse(place, "the sequence is empty", "no steps", "list the steps"),
            [_] => return Some(()),
            [] => self.refuse(
                &item.span,
                "the sequence has no steps",
                "no steps here",
                "add `statuses`, `stages` or `finalizing_stages`",
            ),
            [(there, _), (place, _), ..] => {
                self.refuse(place, "a sequence has only one kind of step", "the second kind", "write two expectations");
                self.also(there, "the first kind");
            }
        }
        None
    }

    fn steps<T: Scalar>(&mut self, words: &[Text<T>]) -> Option<Vec<T>> {
        let read: Vec<Option<T>> = words.iter().map(|t| self.read(t)).collect();
        read.into_iter().collect()
    }

    fn statuses(
        &mut self,
        item: &At<SequenceFile>,
        statuses: &[Text<Step<AnyStatus>>],
        subject: Option<Subject>,
        mode: SequenceMode,
    ) -> Option<(Subject, Steps, Vec<bool>)> {
        let written = Written::new(statuses);
        let Some(subject) = subject else {
            self.refuse(
                &item.span,
                "no host or cluster is named",
                "whose?",
                "add `host`, `hosts`, `role` or `cluster`",
            );
            return None;
        };
        let steps = if let Subject::Cluster(_) = subject {
            let read: Vec<Option<ClusterStatus>> = written.words.iter().map(|t| self.cluster_status(t)).collect();
            let all: Vec<ClusterStatus> = read.into_iter().collect::<Option<_>>()?;
            let names: Vec<&str> = all.iter().map(|s| s.as_str()).collect();
            self.status_path(&names, &written, mode, &CLUSTER_MACHINE);
            Steps::ClusterStatuses(all)
        } else {
            let read: Vec<Option<HostStatus>> = written.words.iter().map(|t| self.host_status(t)).collect();
            let all: Vec<HostStatus> = read.into_iter().collect::<Option<_>>()?;
            let names: Vec<&str> = all.iter().map(|s| s.as_str()).collect();
            self.status_path(&names, &written, mode, &HOST_MACHINE);
            Steps::HostStatuses(all)
        };
        Some((subject, steps, written.optional))
    }

    fn stages(
        &mut self,
        item: &At<SequenceFile>,
        stages: &[Text<Step<HostStage>>],
        subject: Option<Subject>,
        known: &Known<'_>,
    ) -> Option<(Subject, Steps, Vec<bool>)> {
        let written = Written::new(stages);
        let all: Vec<HostStage> = self.steps(&written.words)?;
        let Some(subject) = subject else {
            self.refuse(&item.span, "no host is named", "whose?", "add `host`, `hosts` or `role`");
            return None;
        };
        if !self.needs_hosts(&subject, &item.span, "an installation stage") {
            return None;
        }
        self.stage_path(&subject, &all, &written, known);
        Some((subject, Steps::Stages(all), written.optional))
    }

    /// An exact sequence must follow the rules of the machine; any sequence must not repeat itself without a change.
    fn status_path<T>(&mut self, names: &[&str], written: &Written<T>, mode: SequenceMode, machine: &Machine) {
        let what = machine.what;
        for (i, name) in names.iter().enumerate() {
            // Steps that can come directly before this one: back to the first that cannot be missing.
            let mut before = vec![];
            let mut first = true;
            for j in (0..i).rev() {
                before.push(j);
                if !written.optional[j] {
                    first = false;
                    break;
                }
            }
            if mode == SequenceMode::Exact && first && !machine.starts.contains(name) && before.is_empty() {
                self.refuse(
                    written.place(i),
                    format!("no {what} starts in status `{name}`"),
                    "cannot be the first",
                    format!(
                        "an exact sequence begins with {}; with `mode: partial` it may begin anywhere",
                        quoted(machine.starts, "or")
                    ),
                );
            } else if let Some(&j) = before.first() {
                if names[j] == *name {
                    self.refuse(
                        written.place(i),
                        format!("`{name}` follows itself"),
                        "no change",
                        "a sequence lists changes; remove the repeated status",
                    );
                } else if mode == SequenceMode::Exact && !before.iter().any(|j| (machine.edge)(names[*j], name)) {
                    self.refuse(
                        written.place(i),
                        format!("a {what} never goes from `{}` to `{name}`", names[j]),
                        "cannot follow",
                        "add the statuses in between, or write `mode: partial`",
                    );
                    self.also(written.place(j), "from here");
                }
            }
        }
    }

    /// The stage must be one that the subject's role has.
    pub(super) fn stage_exists(&mut self, subject: &Subject, stage: HostStage, place: &Place, known: &Known<'_>) {
        let lists = lists_of(subject, known);
        if stage == HostStage::Failed || lists.is_empty() || lists.iter().any(|(_, l)| l.contains(&stage)) {
            return;
        }
        let (role, list) = &lists[0];
        let names: Vec<&str> = list.iter().map(|s| s.as_str()).collect();
        self.refuse(
            place,
            format!("{role} has no stage `{stage}`"),
            "never reported",
            format!("its stages are {}", quoted(&names, "and")),
        );
    }

    /// Stages must come in the order of some role that the subject can have.
    fn stage_path<T>(&mut self, subject: &Subject, stages: &[HostStage], written: &Written<T>, known: &Known<'_>) {
        let lists = lists_of(subject, known);
        let mut worst: Option<(usize, &String, &[HostStage])> = None;
        for (role, list) in &lists {
            match first_misplaced(stages, list, known.resets) {
                None => return,
                Some(i) => {
                    if worst.as_ref().is_none_or(|(j, ..)| i > *j) {
                        worst = Some((i, role, list));
                    }
                }
            }
        }
        if let Some((i, role, list)) = worst {
            let names: Vec<&str> = list.iter().map(|s| s.as_str()).collect();
            let message = if list.contains(&stages[i]) {
                format!("{role} cannot report `{}` at this point: stages never go back", stages[i])
            } else {
                format!("{role} has no stage `{}`", stages[i])
            };
            self.refuse(
                written.place(i),
                message,
                "not possible here",
                format!("its stages, in this order, are {}", quoted(&names, "and")),
            );
        }
    }
}

fn lists_of(subject: &Subject, known: &Known<'_>) -> Vec<(String, &'static [HostStage])> {
    let member: &BTreeMap<&str, Option<&str>> = &known.member;
    stage_lists(subject, known.clusters, known.hosts, member)
}

fn positions(optional: &[bool]) -> BTreeSet<usize> {
    optional.iter().enumerate().filter(|(_, o)| **o).map(|(i, _)| i).collect()
}

/// The first stage that is not in the list, or that comes before one that was there already. With `resets` a host may begin
/// anew.
fn first_misplaced(stages: &[HostStage], list: &[HostStage], resets: bool) -> Option<usize> {
    let mut next = 0;
    for (i, stage) in stages.iter().enumerate() {
        if *stage == HostStage::Failed {
            continue;
        }
        if resets && list.first() == Some(stage) {
            next = 0;
        }
        match list.iter().position(|s| s == stage) {
            Some(at) if at >= next => next = at + 1,
            _ => return Some(i),
        }
    }
    None
}
