//! Sequences of statuses and stages, and what the tables of the model say about them.

use std::collections::BTreeMap;

use vlab_api::types::{ClusterStatus, HostStage, HostStatus};

use super::subject::who;
use super::{Checker, Known, Place};
use crate::diagnostic::quoted;
use crate::file::{ExpectFile, SequenceFile};
use crate::follow::{SequenceStep, Times};
use crate::paths::{cluster_edge, host_edge, stage_lists};
use crate::spanned::{AnyStatus, At, Plain, Scalar, Text, WrittenStep, split_step, stretch_of};
use crate::stretch::STRETCHES;
use crate::types::{Criterion, Steps, Subject};
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

/// The steps of a sequence as they are written, stretches taken apart.
struct Written<T>(Vec<SequenceStep<Text<T>>>);

impl<T: Scalar> Written<T> {
    fn new(steps: &[Text<WrittenStep<T>>]) -> Self {
        Self(steps.iter().flat_map(split_step).collect())
    }

    fn place(&self, i: usize) -> &Place {
        &self.0[i].any_of[0].span
    }

    /// The steps with what their words mean; `None` when a word means nothing.
    fn read<V>(&self, mut word: impl FnMut(&Text<T>) -> Option<V>) -> Option<Vec<SequenceStep<V>>> {
        let mut step = |step: &SequenceStep<Text<T>>| {
            let all: Vec<Option<V>> = step.any_of.iter().map(&mut word).collect();
            Some(SequenceStep { any_of: all.into_iter().collect::<Option<_>>()?, times: step.times })
        };
        let all: Vec<Option<SequenceStep<V>>> = self.0.iter().map(&mut step).collect();
        all.into_iter().collect()
    }
}

impl Checker<'_> {
    pub(super) fn sequence(&mut self, item: &At<SequenceFile>, _: &ExpectFile, known: &Known<'_>) -> Option<Criterion> {
        let subject = self.subject(who!(item), known);
        let mode = self.read_option(&item.mode).unwrap_or(SequenceMode::Exact);
        self.one_kind_of_steps(item)?;
        let subject = subject?;
        let (subject, steps) = if let Some(statuses) = &item.statuses {
            self.statuses(item, statuses, subject, mode)?
        } else if let Some(stages) = &item.stages {
            self.stages(item, stages, subject, known)?
        } else if let Some(stages) = &item.finalizing_stages {
            let written = Written::new(stages);
            let all = written.read(|word| self.read(word))?;
            let subject = self.needs_cluster(subject, &item.span, known, "a stage of finalizing")?;
            self.expects_something(item, &all);
            (subject, Steps::FinalizingStages(all))
        } else if let Some(reasons) = &item.reasons {
            self.reasons(item, reasons, subject, known)?
        } else {
            return None;
        };
        Some(Criterion::Sequence { subject, steps, mode })
    }

    /// Not every step may be missing.
    fn expects_something<T>(&mut self, item: &At<SequenceFile>, steps: &[SequenceStep<T>]) {
        if steps.iter().all(SequenceStep::may_be_missing) {
            self.refuse(
                &item.span,
                "every step of the sequence is optional",
                "expects nothing",
                "remove the `?` or `*` from at least one step",
            );
        }
    }

    fn one_kind_of_steps(&mut self, item: &At<SequenceFile>) -> Option<()> {
        let kinds = [
            item.statuses.as_ref().map(|s| (&s.span, s.is_empty())),
            item.stages.as_ref().map(|s| (&s.span, s.is_empty())),
            item.finalizing_stages.as_ref().map(|s| (&s.span, s.is_empty())),
            item.reasons.as_ref().map(|s| (&s.span, s.is_empty())),
        ];
        let of_reasons = [item.condition.as_ref().map(|t| &t.span), item.resource.as_ref().map(|t| &t.span)];
        for place in of_reasons.into_iter().flatten().filter(|_| item.reasons.is_none()) {
            self.refuse(
                place,
                "only `reasons` are those of a condition",
                "not used here",
                "remove it, or add `reasons`",
            );
        }
        let given: Vec<(&Place, bool)> = kinds.into_iter().flatten().collect();
        match given.as_slice() {
            [(place, true)] => self.refuse(place, "the sequence is empty", "no steps", "list the steps"),
            [_] => return Some(()),
            [] => self.refuse(
                &item.span,
                "the sequence has no steps",
                "no steps here",
                "add `statuses`, `stages`, `finalizing_stages` or `reasons`",
            ),
            [(there, _), (place, _), ..] => {
                self.refuse(place, "a sequence has only one kind of step", "the second kind", "write two expectations");
                self.also(there, "the first kind");
            }
        }
        None
    }

    fn statuses(
        &mut self,
        item: &At<SequenceFile>,
        statuses: &[Text<WrittenStep<AnyStatus>>],
        subject: Option<Subject>,
        mode: SequenceMode,
    ) -> Option<(Subject, Steps)> {
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
        let of_cluster = matches!(subject, Subject::Cluster(_));
        self.stretches_fit(statuses, of_cluster)?;
        let steps = if of_cluster {
            let all = written.read(|word| self.cluster_status(word))?;
            self.status_path(&names(&all, ClusterStatus::as_str), &written, mode, &CLUSTER_MACHINE);
            self.expects_something(item, &all);
            Steps::ClusterStatuses(all)
        } else {
            let all = written.read(|word| self.host_status(word))?;
            self.status_path(&names(&all, HostStatus::as_str), &written, mode, &HOST_MACHINE);
            self.expects_something(item, &all);
            Steps::HostStatuses(all)
        };
        Some((subject, steps))
    }

    /// Stretches are those of a cluster, or those of a host.
    fn stretches_fit(&mut self, statuses: &[Text<WrittenStep<AnyStatus>>], of_cluster: bool) -> Option<()> {
        let mut fit = Some(());
        for text in statuses {
            let Some(stretch) = stretch_of::<AnyStatus>(&text.text).filter(|s| s.of_cluster != of_cluster) else {
                continue;
            };
            let whose = |of_cluster| if of_cluster { "a cluster" } else { "hosts" };
            let words: Vec<&str> = STRETCHES.iter().filter(|s| s.of_cluster == of_cluster).map(|s| s.word).collect();
            self.refuse(
                &text.span,
                format!("`{}` is a stretch of {}", stretch.word, whose(stretch.of_cluster)),
                format!("not of {}", whose(of_cluster)),
                format!("write {}, or the statuses themselves", quoted(&words, "or")),
            );
            fit = None;
        }
        fit
    }

    fn stages(
        &mut self,
        item: &At<SequenceFile>,
        stages: &[Text<WrittenStep<HostStage>>],
        subject: Option<Subject>,
        known: &Known<'_>,
    ) -> Option<(Subject, Steps)> {
        let written = Written::new(stages);
        let all = written.read(|word| self.read(word))?;
        let Some(subject) = subject else {
            self.refuse(&item.span, "no host is named", "whose?", "add `host`, `hosts` or `role`");
            return None;
        };
        if !self.needs_hosts(&subject, &item.span, "an installation stage") {
            return None;
        }
        self.stage_path(&subject, &all, &written, known);
        self.expects_something(item, &all);
        Some((subject, Steps::Stages(all)))
    }

    fn reasons(
        &mut self,
        item: &At<SequenceFile>,
        reasons: &At<Vec<Text<WrittenStep<Plain>>>>,
        subject: Option<Subject>,
        known: &Known<'_>,
    ) -> Option<(Subject, Steps)> {
        let written = Written::new(reasons);
        let steps = written.read(|word| Some(word.text.clone()))?;
        let Some(condition) = &item.condition else {
            let help = "add `condition`, for example `condition: Completed`";
            self.refuse(&reasons.span, "these reasons are of no condition", "whose?", help);
            return None;
        };
        let (subject, resource) = self.its_condition(condition, subject, &item.span, item.resource.as_ref(), known)?;
        for (i, pair) in steps.windows(2).enumerate() {
            if pair[0] == pair[1] && pair[0].times == Times::Once {
                let name = &pair[0].any_of[0];
                let help = "a sequence lists changes; remove the repeated reason";
                self.refuse(written.place(i + 1), format!("`{name}` follows itself"), "no change", help);
            }
        }
        self.expects_something(item, &steps);
        Some((subject, Steps::Reasons { resource, condition: condition.text.clone(), steps }))
    }

    /// An exact sequence must follow the rules of the machine; any sequence must not repeat itself without a change.
    fn status_path<T: Scalar>(
        &mut self,
        steps: &[SequenceStep<&str>],
        written: &Written<T>,
        mode: SequenceMode,
        machine: &Machine,
    ) {
        let what = machine.what;
        for (i, step) in steps.iter().enumerate() {
            // Steps that can come directly before this one: back to the first that cannot be missing.
            let back = (0..i).rev();
            let must = back.clone().find(|j| !steps[*j].may_be_missing());
            let before: Vec<usize> = back.take_while(|j| must.is_none_or(|must| *j >= must)).collect();
            let itself = (step.times == Times::Any).then_some(i);
            let comes_from: Vec<&str> =
                before.iter().copied().chain(itself).flat_map(|j| &steps[j].any_of).copied().collect();
            for name in &step.any_of {
                let Some(&last) = before.first() else {
                    if mode == SequenceMode::Exact && !machine.starts.contains(name) {
                        self.refuse(
                            written.place(i),
                            format!("no {what} starts in status `{name}`"),
                            "cannot be the first",
                            format!(
                                "an exact sequence begins with {}; with `mode: partial` it may begin anywhere",
                                quoted(machine.starts, "or")
                            ),
                        );
                    }
                    continue;
                };
                let repeats = |j: usize| steps[j].times == Times::Any;
                if !repeats(i) && !repeats(last) && steps[last].any_of == [*name] {
                    self.refuse(
                        written.place(i),
                        format!("`{name}` follows itself"),
                        "no change",
                        "a sequence lists changes; remove the repeated status",
                    );
                } else if mode == SequenceMode::Exact
                    && !comes_from.iter().any(|from| from != name && (machine.edge)(from, name))
                {
                    self.refuse(
                        written.place(i),
                        format!("a {what} never goes from `{}` to `{name}`", steps[last].any_of.join("` or `")),
                        "cannot follow",
                        "add the statuses in between, or write `mode: partial`",
                    );
                    self.also(written.place(last), "from here");
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
    fn stage_path<T: Scalar>(
        &mut self,
        subject: &Subject,
        stages: &[SequenceStep<HostStage>],
        written: &Written<T>,
        known: &Known<'_>,
    ) {
        let lists = lists_of(subject, known);
        let mut worst: Option<(Misplaced, &String, &[HostStage])> = None;
        for (role, list) in &lists {
            match first_misplaced(stages, list, known.resets) {
                None => return,
                Some(found) => {
                    if worst.as_ref().is_none_or(|(other, ..)| found.step > other.step) {
                        worst = Some((found, role, list));
                    }
                }
            }
        }
        if let Some((Misplaced { step: i, stage }, role, list)) = worst {
            let names: Vec<&str> = list.iter().map(|s| s.as_str()).collect();
            let message = if list.contains(&stage) {
                format!("{role} cannot report `{stage}` at this point: stages never go back")
            } else {
                format!("{role} has no stage `{stage}`")
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

/// The steps by the names of their statuses.
fn names<T: Copy>(steps: &[SequenceStep<T>], name: fn(T) -> &'static str) -> Vec<SequenceStep<&'static str>> {
    let of = |step: &SequenceStep<T>| SequenceStep {
        any_of: step.any_of.iter().map(|word| name(*word)).collect(),
        times: step.times,
    };
    steps.iter().map(of).collect()
}

/// A stage that cannot come there.
struct Misplaced {
    step: usize,
    stage: HostStage,
}

/// The first stage that is not in the list, or that comes before one that was there already. With `resets` a host may begin
/// anew.
fn first_misplaced(steps: &[SequenceStep<HostStage>], list: &[HostStage], resets: bool) -> Option<Misplaced> {
    let mut next = 0;
    for (step, stages) in steps.iter().enumerate() {
        let mut done = next;
        for stage in stages.any_of.iter().copied().filter(|stage| *stage != HostStage::Failed) {
            if resets && list.first() == Some(&stage) {
                (next, done) = (0, 0);
            }
            match list.iter().position(|s| *s == stage) {
                Some(at) if at >= next => done = done.max(at + 1),
                _ => return Some(Misplaced { step, stage }),
            }
        }
        next = done;
    }
    None
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    #[rstest]
    #[case(
        "{cluster: ocp, condition: Completed, reasons: [InstallationOnHold]}",
        false,
        "add `api: kube` to the scenario"
    )]
    #[case("{cluster: ocp, condition: Completed, reasons: [InstallationOnHold]}", true, "")]
    #[case("{hosts: all, condition: Installed, reasons: ['A|B*', 'C?', D], mode: partial}", true, "")]
    #[case("{cluster: ocp, reasons: [InstallationOnHold]}", true, "add `condition`, for example")]
    #[case(
        "{cluster: ocp, condition: Bound, reasons: [A]}",
        true,
        "there is no condition of the resource AgentClusterInstall `Bound`"
    )]
    #[case(
        "{hosts: all, condition: Bound, resource: InfraEnv, reasons: [A]}",
        true,
        "a host has no InfraEnv of its own"
    )]
    #[case("{hosts: all, condition: Bound, reasons: [A, A]}", true, "`A` follows itself")]
    #[case("{hosts: all, condition: Bound, reasons: ['A?', 'B*']}", true, "every step of the sequence is optional")]
    #[case("{hosts: all, condition: Bound, statuses: [discovering]}", true, "only `reasons` are those of a condition")]
    #[case("{hosts: all, statuses: [discovering], reasons: [A]}", true, "a sequence has only one kind of step")]
    fn reasons_are_those_of_a_condition(#[case] sequence: &str, #[case] kube: bool, #[case] refused: &str) {
        let api = if kube { "version: 1\napi: kube\n" } else { "version: 1\n" };
        let expectation = format!("sequence: {sequence}");
        let text = format!(
            "{api}name: t\ncluster: {{name: ocp, topology: sno}}\nhosts: [{{name: node}}]\nexpect:\n- {expectation}\n"
        );
        let read = crate::load(&crate::SourceFile::new("t.yaml", text), &crate::Catalogue::embedded());
        match (read, refused) {
            (Ok(_), "") => {}
            (Err(error), said) if !said.is_empty() => assert!(error.to_string().contains(said), "{error}"),
            (read, _) => panic!("{:?}", read.map(|_| ()).map_err(|error| error.to_string())),
        }
    }
}
