//! Judges the expectations of a scenario.

use vlab_scenario::{moment_words, never_words, seen_words, subject_words};

use super::words::*;
use super::*;

impl Judge<'_> {
    pub(super) fn expectation(&self, expectation: &Expectation) -> CheckResult {
        let mut check = CheckResult::new(CheckKind::Expectation, expectation.name.clone(), CheckVerdict::Passed);
        let (expected, outcome) = self.check(&expectation.check);
        check.expected = expected;
        match outcome {
            Ok(seen) => check.seen = seen,
            Err(failure) => {
                check.verdict = if failure.missed && self.timeline.truth == Source::Poll {
                    // The product may have done right: who only looks now and then cannot tell.
                    CheckVerdict::Inconclusive {
                        reason: "states were only polled, so what happened between two polls is not known".to_owned(),
                    }
                } else {
                    CheckVerdict::Failed
                };
                check.message = failure.seen.clone();
                check.seen = failure.seen;
                check.at = failure.at.map(|a| a.time);
                check.seq = failure.at.map(|a| a.seq);
                if let Some(host) = failure.host {
                    check.last_things = self.timeline.last_things(host, LAST_THINGS, failure.at.map(|a| a.seq));
                    check.subject = Some(self.timeline.host_name(host));
                }
                if failure.subject.is_some() {
                    check.subject = failure.subject;
                }
            }
        }
        check
    }

    fn check(&self, check: &Criterion) -> (String, Result<String, Failure>) {
        match check {
            Criterion::Sequence { subject, steps, mode } => self.sequence(subject, steps, *mode),
            Criterion::Eventually { moment, within } => self.eventually(moment, *within),
            Criterion::Never { moment } => self.never(moment),
            Criterion::Order { see, before, after, within } => {
                self.order(see, before.as_ref(), after.as_ref(), *within)
            }
            Criterion::Validation { subject, id, status, when } => self.validation(subject, id, *status, *when),
            Criterion::Event { subject, name, severity, min, max } => {
                let wanted = match max {
                    Some(max) if max == min => format!("exactly {min}"),
                    Some(max) => format!("{min} to {max}"),
                    None => format!("at least {min}"),
                };
                (
                    format!("{wanted} × event {name} for {}", subject_words(subject)),
                    self.events(subject, name, severity.as_ref().copied(), *min, *max),
                )
            }
            Criterion::StageDuration { subject, stage, at_least, at_most } => {
                let limits: Vec<String> = [("at least", at_least), ("at most", at_most)]
                    .into_iter()
                    .filter_map(|(word, span)| span.map(|s| format!("{word} {}", self.span_text(s))))
                    .collect();
                (
                    format!("{} spends {} in {stage}", subject_words(subject), limits.join(" and ")),
                    self.stage_duration(subject, *stage, *at_least, *at_most),
                )
            }
            Criterion::Operator { cluster, name, status } => {
                let expected = format!("operator {name} of {cluster} is {status} at the end");
                let id = self.directory().clusters.get(cluster);
                let last = self.history.iter().rev().find_map(|o| match &o.what {
                    What::Operator { cluster: c, name: n, status, .. } if Some(c) == id && n == name => {
                        Some((*status, At { time: o.at(), seq: o.seq }))
                    }
                    _ => None,
                });
                let outcome = match last {
                    Some((Some(seen), _)) if seen == *status => Ok(format!("{seen}")),
                    Some((seen, at)) => Err(Failure::new(match seen {
                        Some(seen) => format!("the operator is {seen}"),
                        None => "the operator never reported a status".to_owned(),
                    })
                    .of(cluster.clone())
                    .at(Some(at))),
                    None => Err(Failure::new(format!("no operator {name} was seen")).of(cluster.clone())),
                };
                (expected, outcome)
            }
        }
    }

    /// The hosts that a subject means, in the order of their names.
    fn hosts(&self, subject: &Subject) -> Result<Vec<(Uuid, &HostLine)>, Failure> {
        let wanted: Vec<Uuid> = match subject {
            Subject::Hosts(names) => names
                .iter()
                .map(|n| {
                    self.directory()
                        .hosts
                        .get(n)
                        .copied()
                        .ok_or_else(|| Failure::new("the host is not part of the run").of(n.clone()))
                })
                .collect::<Result<_, _>>()?,
            Subject::Cluster(name) => {
                let id = self.directory().clusters.get(name);
                self.directory().cluster_of.iter().filter(|(_, c)| Some(*c) == id).map(|(h, _)| *h).collect()
            }
            Subject::Role { .. } => hosts_of(self.directory(), subject).into_iter().collect(),
            Subject::Run => self.timeline.hosts.keys().copied().collect(),
        };
        if wanted.is_empty() {
            return Err(Failure::new(format!("there is no host that is {}", subject_words(subject))));
        }
        wanted
            .into_iter()
            .map(|id| match self.timeline.hosts.get(&id) {
                Some(line) => Ok((id, line)),
                None => Err(Failure::new("the host never registered").host(id)),
            })
            .collect()
    }

    fn cluster_id(&self, subject: &Subject) -> Result<Uuid, Failure> {
        match subject {
            Subject::Cluster(name) => self
                .directory()
                .clusters
                .get(name)
                .copied()
                .ok_or_else(|| Failure::new("the cluster was never created").of(name.clone())),
            other => Err(Failure::new(format!("{} is not a cluster", subject_words(other)))),
        }
    }

    fn sequence(&self, subject: &Subject, steps: &Steps, mode: SequenceMode) -> (String, Result<String, Failure>) {
        let word = match mode {
            SequenceMode::Exact => "exactly",
            SequenceMode::Partial => "among others",
        };
        match steps {
            Steps::HostStatuses(wanted) => (
                format!("{} goes through {word}: {}", subject_words(subject), arrows(wanted)),
                self.host_sequences(subject, wanted, mode, |line| &line.statuses),
            ),
            Steps::Stages(wanted) => (
                format!("{} goes through the stages {word}: {}", subject_words(subject), arrows(wanted)),
                self.host_sequences(subject, wanted, mode, |line| &line.stages),
            ),
            Steps::ClusterStatuses(wanted) => (
                format!("{} goes through {word}: {}", subject_words(subject), arrows(wanted)),
                self.cluster_id(subject).and_then(|id| {
                    let seen = self.timeline.clusters.get(&id).map(|c| c.statuses.as_slice()).unwrap_or_default();
                    compare(wanted, seen, mode)
                        .map_err(|d| Failure::new(d.text).of(self.directory().name(id)).at(d.at).missed(d.gaps_only))
                }),
            ),
            Steps::FinalizingStages(wanted) => (
                format!("{} finalizes {word}: {}", subject_words(subject), arrows(wanted)),
                self.cluster_id(subject).and_then(|id| {
                    let seen = self.timeline.clusters.get(&id).map(|c| c.finalizing.as_slice()).unwrap_or_default();
                    compare(wanted, seen, mode)
                        .map_err(|d| Failure::new(d.text).of(self.directory().name(id)).at(d.at).missed(d.gaps_only))
                }),
            ),
            Steps::Reasons { resource, condition, steps } => (
                format!(
                    "condition {condition} of the {resource} of {} has {word} the reasons: {}",
                    subject_words(subject),
                    arrows(steps)
                ),
                self.reasons(subject, *resource, condition, steps, mode),
            ),
        }
    }

    fn reasons(
        &self,
        subject: &Subject,
        resource: ResourceKind,
        condition: &str,
        steps: &[SequenceStep<String>],
        mode: SequenceMode,
    ) -> Result<String, Failure> {
        fn borrowed(step: &SequenceStep<String>) -> SequenceStep<&str> {
            SequenceStep { any_of: step.any_of.iter().map(String::as_str).collect(), times: step.times }
        }
        let wanted: Vec<SequenceStep<&str>> = steps.iter().map(borrowed).collect();
        if let Subject::Cluster(name) = subject {
            let seen = self.reasons_of(resource, name, condition);
            return compare(&wanted, &seen, mode).map_err(|d| Failure::new(d.text).of(name.clone()).at(d.at));
        }
        let hosts = self.hosts(subject)?;
        let mut text = String::new();
        for (id, _) in &hosts {
            let seen = self.reasons_of(resource, &self.called(resource, *id), condition);
            text = compare(&wanted, &seen, mode).map_err(|d| Failure::new(d.text).host(*id).at(d.at))?;
        }
        Ok(if hosts.len() == 1 { text } else { format!("so did all {} hosts", hosts.len()) })
    }

    /// How that resource of a host is called.
    fn called(&self, resource: ResourceKind, host: Uuid) -> String {
        let name = self.directory().host_names.get(&host).filter(|_| resource.is_called_as_its_host());
        name.cloned().unwrap_or_else(|| host.to_string())
    }

    /// What reasons a condition had, one after the other. A resource that is made again begins anew.
    fn reasons_of(&self, of: ResourceKind, called: &str, condition: &str) -> Vec<StateChange<&str>> {
        let mut seen: Vec<StateChange<&str>> = Vec::new();
        let mut is: Option<&str> = None;
        for observation in self.history {
            let What::Resource { kind, name, is: state, conditions, .. } = &observation.what else { continue };
            if kind != of.as_str() || name != called {
                continue;
            }
            if *state == ResourceState::Gone {
                is = None;
            }
            let Some(now) = conditions.get(condition) else { continue };
            let now = now.as_ref().map(|condition| condition.reason.as_str());
            if let Some(reason) = now.filter(|_| now != is) {
                seen.push(StateChange { to: reason, at: observation.at(), seq: observation.seq });
            }
            is = now;
        }
        seen
    }

    fn host_sequences<T: Copy + PartialEq + std::fmt::Display>(
        &self,
        subject: &Subject,
        wanted: &[SequenceStep<T>],
        mode: SequenceMode,
        of: impl Fn(&HostLine) -> &Vec<StateChange<T>>,
    ) -> Result<String, Failure> {
        let hosts = self.hosts(subject)?;
        let mut seen = String::new();
        for (id, line) in &hosts {
            seen = compare(wanted, of(line), mode)
                .map_err(|d| Failure::new(d.text).host(*id).at(d.at).missed(d.gaps_only))?;
        }
        Ok(if hosts.len() == 1 { seen } else { format!("so did all {} hosts", hosts.len()) })
    }

    fn track(&self, moment: &Moment) -> Tracker {
        let mut tracker = Tracker::new(moment.clone());
        for observation in self.history {
            tracker.observe(self.directory(), observation);
        }
        tracker
    }

    /// The moment did not come: for whom, and what that one did instead.
    fn not_seen(&self, tracker: &Tracker, moment: &Moment) -> Failure {
        let missing = tracker.missing(self.directory());
        let Some(first) = missing.first() else {
            let text = format!("{} was not seen often enough", seen_words(&moment.seen));
            return Failure::new(text).missed(is_state(&moment.seen));
        };
        let host = self.directory().hosts.get(first).copied();
        let instead = match host.and_then(|h| self.timeline.hosts.get(&h)) {
            Some(line) => match line.statuses.last() {
                Some(last) => format!("; its last status is {}", last.to),
                None => String::new(),
            },
            None => match self.directory().clusters.get(first).and_then(|c| self.timeline.clusters.get(c)) {
                Some(line) => {
                    line.statuses.last().map(|s| format!("; its last status is {}", s.to)).unwrap_or_default()
                }
                None if host.is_some() => "; it never registered".to_owned(),
                None => String::new(),
            },
        };
        let others = if missing.len() > 1 { format!(" (nor for {} more)", missing.len() - 1) } else { String::new() };
        let failure = Failure::new(format!("{} was never seen{others}{instead}", seen_words(&moment.seen)))
            .of(first.clone())
            .missed(is_state(&moment.seen));
        match host {
            Some(host) => failure.host(host),
            None => failure,
        }
    }

    fn eventually(&self, moment: &Moment, within: Option<Span>) -> (String, Result<String, Failure>) {
        let limit = within.map(|w| format!(" within {}", self.span_text(w))).unwrap_or_default();
        let expected = format!("{}{limit}", moment_words(moment));
        let tracker = self.track(moment);
        let outcome = match tracker.complete(self.directory()) {
            None => Err(self.not_seen(&tracker, moment)),
            Some(at) => match within {
                Some(span) if at.time.since(self.start()) > self.under(span) => {
                    let who = tracker.hits(self.directory()).into_iter().find(|(_, a)| *a == at).and_then(|(w, _)| w);
                    let failure = Failure::new(format!("it took {}", self.since_start(at.time))).at(Some(at));
                    Err(match who {
                        Some(id) if self.timeline.hosts.contains_key(&id) => failure.host(id),
                        Some(id) => failure.of(self.directory().name(id)),
                        None => failure,
                    })
                }
                _ => Ok(format!("after {}", self.since_start(at.time))),
            },
        };
        (expected, outcome)
    }

    fn never(&self, moment: &Moment) -> (String, Result<String, Failure>) {
        let expected = never_words(moment);
        let tracker = self.track(moment);
        let outcome = match tracker.first(self.directory()) {
            None => match self.nobody(moment) {
                None => Ok("it was not seen".to_owned()),
                // What never was cannot do anything wrong.
                Some(nobody) => Err(Failure::new(format!("that shows nothing: {nobody}"))),
            },
            Some((who, at)) => {
                let failure =
                    Failure::new(format!("{} was seen after {}", seen_words(&moment.seen), self.since_start(at.time)))
                        .at(Some(at));
                Err(match who {
                    Some(id) if self.timeline.hosts.contains_key(&id) => failure.host(id),
                    Some(id) => failure.of(self.directory().name(id)),
                    None => failure,
                })
            }
        };
        (expected, outcome)
    }

    /// Why a moment could not have been seen, because those of whom it is never were there to have such a state.
    fn nobody(&self, moment: &Moment) -> Option<String> {
        let hosts = match moment.seen {
            // That a host never registers is said so.
            Seen::HostStatus(HostStatus::Discovering | HostStatus::DiscoveringUnbound) => return None,
            Seen::HostStatus(_) | Seen::HostTransition { .. } | Seen::Stage(_) | Seen::Progress { .. } => true,
            Seen::ClusterStatus(_) | Seen::ClusterTransition { .. } | Seen::FinalizingStage(_) => false,
            Seen::Validation { .. } => !matches!(moment.subject, Subject::Cluster(_)),
            _ => return None,
        };
        let was_there = |id: &Uuid| self.timeline.hosts.get(id).is_some_and(|line| !line.statuses.is_empty());
        match (&moment.subject, hosts) {
            (Subject::Hosts(_) | Subject::Role { .. }, true) => {
                let of = hosts_of(self.directory(), &moment.subject);
                (!of.iter().any(was_there)).then(|| format!("{} never registered", subject_words(&moment.subject)))
            }
            (Subject::Cluster(name), false) => {
                let id = self.directory().clusters.get(name);
                let line = id.and_then(|id| self.timeline.clusters.get(id));
                line.is_none_or(|line| line.statuses.is_empty()).then(|| format!("{name} never had a status"))
            }
            _ => None,
        }
    }

    fn order(
        &self,
        see: &Moment,
        before: Option<&Moment>,
        after: Option<&Moment>,
        within: Option<Span>,
    ) -> (String, Result<String, Failure>) {
        let mut expected = moment_words(see);
        if let Some(b) = before {
            expected.push_str(&format!(", before {}", moment_words(b)));
        }
        if let Some(a) = after {
            expected.push_str(&format!(", after {}", moment_words(a)));
        }
        if let Some(w) = within {
            expected.push_str(&format!(", within {}", self.span_text(w)));
        }
        (expected, self.order_outcome(see, before, after, within))
    }

    fn order_outcome(
        &self,
        see: &Moment,
        before: Option<&Moment>,
        after: Option<&Moment>,
        within: Option<Span>,
    ) -> Result<String, Failure> {
        let tracker = self.track(see);
        let complete = tracker.complete(self.directory()).ok_or_else(|| self.not_seen(&tracker, see))?;
        let (first_who, first) = tracker.first(self.directory()).ok_or_else(|| self.not_seen(&tracker, see))?;
        let late = |text: String, at: At, who: Option<Uuid>| {
            let failure = Failure::new(text).at(Some(at));
            match who {
                Some(id) if self.timeline.hosts.contains_key(&id) => failure.host(id),
                Some(id) => failure.of(self.directory().name(id)),
                None => failure,
            }
        };
        let mut gap = None;
        if let Some(moment) = before {
            let other = self.track(moment);
            let (_, other_first) = other.first(self.directory()).ok_or_else(|| self.not_seen(&other, moment))?;
            self.in_one_look(see, complete, moment, other_first)?;
            if other_first < complete {
                let text = format!(
                    "{} came after {}, {} only after {}",
                    seen_words(&moment.seen),
                    self.since_start(other_first.time),
                    seen_words(&see.seen),
                    self.since_start(complete.time)
                );
                return Err(late(text, complete, None));
            }
            gap = Some(other_first.time.since(complete.time));
        }
        if let Some(moment) = after {
            let other = self.track(moment);
            let other_complete = other.complete(self.directory()).ok_or_else(|| self.not_seen(&other, moment))?;
            self.in_one_look(see, first, moment, other_complete)?;
            if first < other_complete {
                let text = format!(
                    "{} came after {} already, {} only after {}",
                    seen_words(&see.seen),
                    self.since_start(first.time),
                    seen_words(&moment.seen),
                    self.since_start(other_complete.time)
                );
                return Err(late(text, first, first_who));
            }
            gap = Some(complete.time.since(other_complete.time));
        }
        match (within, gap) {
            (Some(span), Some(gap)) if gap > self.under(span) => {
                Err(late(format!("{:.3} s lie between them", gap.as_secs_f64()), complete, None))
            }
            (_, Some(gap)) => Ok(format!("{:.3} s lie between them", gap.as_secs_f64())),
            (_, None) => Ok(format!("after {}", self.since_start(complete.time))),
        }
    }

    fn validation(
        &self,
        subject: &Subject,
        id: &str,
        wanted: ValidationStatus,
        when: When,
    ) -> (String, Result<String, Failure>) {
        let word = word(&wanted);
        let expected = format!(
            "validation {id} of {} is {word} {}",
            subject_words(subject),
            match when {
                When::End => "at the end",
                When::Ever => "at some time",
                When::Always => "whenever it is evaluated",
            }
        );
        let judge = |values: Option<&Vec<StateChange<Option<ValidationStatus>>>>| -> Result<(), (String, Option<At>)> {
            let Some(values) = values.filter(|v| !v.is_empty()) else {
                return Err(("it was never evaluated".to_owned(), None));
            };
            let bad = match when {
                When::End => values.last().filter(|s| s.to != Some(wanted)),
                When::Ever => (!values.iter().any(|s| s.to == Some(wanted))).then(|| values.last()).flatten(),
                When::Always => values.iter().find(|s| s.to.is_some_and(|v| v != wanted)),
            };
            match bad {
                None => Ok(()),
                Some(step) => {
                    let text = match step.to {
                        Some(value) => format!("it is {}", self::word(&value)),
                        None => "it is no longer evaluated".to_owned(),
                    };
                    Err((text, Some(At { time: step.at, seq: step.seq })))
                }
            }
        };
        let outcome = match subject {
            Subject::Cluster(name) if id.parse::<vlab_api::types::ClusterValidationId>().is_ok() => {
                self.cluster_id(subject).and_then(|cluster| {
                    judge(self.timeline.clusters.get(&cluster).and_then(|c| c.validations.get(id)))
                        .map_err(|(text, at)| Failure::new(text).of(name.clone()).at(at))
                })
            }
            _ => self.hosts(subject).and_then(|hosts| {
                hosts.iter().try_for_each(|(host, line)| {
                    judge(line.validations.get(id)).map_err(|(text, at)| Failure::new(text).host(*host).at(at))
                })
            }),
        };
        (expected, outcome.map(|()| word))
    }

    fn events(
        &self,
        subject: &Subject,
        wanted: &str,
        severity: Option<vlab_api::types::Severity>,
        min: u64,
        max: Option<u64>,
    ) -> Result<String, Failure> {
        // One pass over the history, whatever the number of hosts.
        let mut of_run: (u64, Option<At>) = (0, None);
        let mut of: BTreeMap<Uuid, (u64, Option<At>)> = BTreeMap::new();
        for o in self.history {
            if let What::Event { name, severity: s, cluster, host, .. } = &o.what
                && name == wanted
                && severity.is_none_or(|w| w == *s)
            {
                let at = Some(At { time: o.at(), seq: o.seq });
                of_run = (of_run.0 + 1, at);
                for id in [cluster, host].into_iter().flatten() {
                    let entry = of.entry(*id).or_default();
                    *entry = (entry.0 + 1, at);
                }
            }
        }
        let count = |id: Uuid| of.get(&id).copied().unwrap_or_default();
        let verdict = |found: u64, last: Option<At>| {
            if found < min || max.is_some_and(|m| found > m) {
                Err(Failure::new(format!("{found} were seen")).at(last))
            } else {
                Ok(format!("{found} were seen"))
            }
        };
        match subject {
            Subject::Run => {
                let (found, last) = of_run;
                verdict(found, last)
            }
            Subject::Cluster(name) => {
                let id = self.cluster_id(subject)?;
                let (found, last) = count(id);
                verdict(found, last).map_err(|f| f.of(name.clone()))
            }
            _ => {
                let mut seen = String::new();
                for (host, _) in self.hosts(subject)? {
                    let (found, last) = count(host);
                    seen = verdict(found, last).map_err(|f| f.host(host))?;
                }
                Ok(seen)
            }
        }
    }

    fn stage_duration(
        &self,
        subject: &Subject,
        stage: vlab_api::types::HostStage,
        at_least: Option<Span>,
        at_most: Option<Span>,
    ) -> Result<String, Failure> {
        let mut shown = Vec::new();
        for (host, line) in self.hosts(subject)? {
            let at = line.stages.iter().find(|s| s.to == stage).map(|s| At { time: s.at, seq: s.seq });
            let took = match line.stage_duration(stage) {
                None => return Err(Failure::new("the stage was never reached").host(host).missed(true)),
                Some((_, None)) => return Err(Failure::new("the stage never ended").host(host).at(at)),
                Some((_, Some(took))) => took,
            };
            let text = format!("{:.3} s", took.as_secs_f64());
            if at_least.is_some_and(|s| took < self.under(s)) || at_most.is_some_and(|s| took > self.under(s)) {
                return Err(Failure::new(format!("it took {text}")).host(host).at(at));
            }
            shown.push(text);
        }
        Ok(shown.join(", "))
    }

    /// What one look at the service showed at once has no order that anybody knows.
    fn in_one_look(&self, one: &Moment, at: At, other: &Moment, other_at: At) -> Result<(), Failure> {
        if self.timeline.truth != Source::Poll || at.time != other_at.time {
            return Ok(());
        }
        let text = format!("{} and {} were seen in the same poll", seen_words(&one.seen), seen_words(&other.seen));
        Err(Failure::new(text).at(Some(at)).missed(true))
    }
}

/// Compares what was gone through with what should be.
fn compare<T: Copy + PartialEq + std::fmt::Display>(
    wanted: &[SequenceStep<T>],
    seen: &[StateChange<T>],
    mode: SequenceMode,
) -> Result<String, Deviation> {
    let states: Vec<T> = seen.iter().map(|s| s.to).collect();
    let Err(deviation) = follow(wanted, mode, &states) else { return Ok(arrows(&states)) };
    let mut next: Vec<String> = Vec::new();
    for word in deviation.expected.iter().flat_map(|i| &wanted[*i].any_of).map(ToString::to_string) {
        if !next.contains(&word) {
            next.push(word);
        }
    }
    let expected = if next.is_empty() { "nothing more".to_owned() } else { next.join(" or ") };
    let text = match states.get(deviation.seen) {
        Some(found) => format!("step {} is {found}, not {expected}", deviation.seen + 1),
        None => format!("{expected} was never reached"),
    };
    let at = seen.get(deviation.seen).or(seen.last()).map(|s| At { time: s.at, seq: s.seq });
    // Nothing but wanted states in the wanted order, up to the last one: only those between are missing.
    let mut gaps: Vec<SequenceStep<T>> = wanted.to_vec();
    if let Some((_, others)) = gaps.split_last_mut() {
        others.iter_mut().filter(|step| step.times == Times::Once).for_each(|step| step.times = Times::AtMostOnce);
    }
    let gaps_only = follow(&gaps, SequenceMode::Exact, &states).is_ok();
    Err(Deviation { text: format!("{text}; seen: {}", arrows(&states)), at, gaps_only })
}

/// Is it something that is there for a while and then not any more, which who looks now and then can miss?
fn is_state(seen: &Seen) -> bool {
    matches!(
        seen,
        Seen::HostStatus(_)
            | Seen::ClusterStatus(_)
            | Seen::HostTransition { .. }
            | Seen::ClusterTransition { .. }
            | Seen::Stage(_)
            | Seen::Progress { .. }
            | Seen::FinalizingStage(_)
            | Seen::Validation { .. }
    )
}

/// How what was gone through differs from what should be.
#[derive(Debug)]
struct Deviation {
    text: String,
    at: Option<At>,
    /// Some of what should be was not seen, and nothing else was seen.
    gaps_only: bool,
}
