//! What expectations say, in words for people. The name that an expectation has when it was given none, the diagnostics of the
//! judge and the report all say it in these words.

use crate::types::{Criterion, Moment, Seen, Steps, Subject};
use crate::words::{FaultPhase, Quantity, SequenceMode, When};

/// Whom it is about.
pub fn subject_words(subject: &Subject) -> String {
    match subject {
        Subject::Cluster(name) => format!("cluster {name}"),
        Subject::Hosts(names) => match names.as_slice() {
            [one] => one.clone(),
            [first, .., last] => format!("{} hosts ({first} … {last})", names.len()),
            [] => "no host".to_owned(),
        },
        Subject::Role { role, cluster } => format!("{role} of {cluster}"),
        Subject::Run => "the run".to_owned(),
    }
}

/// What is seen.
pub fn seen_words(seen: &Seen) -> String {
    match seen {
        Seen::HostStatus(status) => format!("status {status}"),
        Seen::ClusterStatus(status) => format!("status {status}"),
        Seen::HostTransition { from, to } => format!("change from {from} to {to}"),
        Seen::ClusterTransition { from, to } => format!("change from {from} to {to}"),
        Seen::Console(text) => format!("console line with {text:?}"),
        Seen::Stage(stage) => format!("stage {stage}"),
        Seen::FinalizingStage(stage) => format!("finalizing stage {stage}"),
        Seen::Validation { id, status } => format!("validation {id} {}", status_word(status)),
        Seen::Event { name, severity: None } => format!("event {name}"),
        Seen::Event { name, severity: Some(severity) } => format!("event {name} ({severity})"),
        Seen::Operator { name, status } => format!("operator {name} {status}"),
        Seen::Action(kind) => format!("the user's {kind}"),
        Seen::Progress { stage, percent } => format!("stage {stage} at {percent}%"),
        Seen::Step(step) => format!("step {step}"),
        Seen::Fault { name, phase } => match phase {
            FaultPhase::Begin => format!("beginning of the fault {name}"),
            FaultPhase::Effect => format!("effect of the fault {name}"),
            FaultPhase::End => format!("end of the fault {name}"),
        },
        Seen::Did(what) => what.clone(),
        Seen::Condition { resource, condition, status, reason } => {
            let reason = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!("condition {condition} of its {resource} {status}{reason}")
        }
        Seen::Resource { resource, state } => format!("its {resource} {state}"),
        Seen::Held { resource, finalizer } => format!("its {resource} held by {finalizer}"),
    }
}

/// What is seen, of whom, and of how many.
pub fn moment_words(moment: &Moment) -> String {
    let many = match moment.of {
        Quantity::All => String::new(),
        Quantity::AtLeast(1) => "any of ".to_owned(),
        Quantity::AtLeast(n) => format!("at least {n} of "),
    };
    format!("{many}{}: {}", subject_words(&moment.subject), seen_words(&moment.seen))
}

/// The same for what must not be seen: once is too often.
pub fn never_words(moment: &Moment) -> String {
    let one = matches!(&moment.subject, Subject::Hosts(names) if names.len() == 1);
    let of = if one { Quantity::All } else { Quantity::AtLeast(1) };
    format!("never: {}", moment_words(&Moment { of, ..moment.clone() }))
}

fn status_word(status: &impl std::fmt::Debug) -> String {
    format!("{status:?}").to_lowercase()
}

/// The name of an expectation that was given none.
pub(crate) fn check(check: &Criterion) -> String {
    match check {
        Criterion::Sequence { subject, steps, mode, .. } => {
            let what = match steps {
                Steps::HostStatuses(_) | Steps::ClusterStatuses(_) => "statuses",
                Steps::Stages(_) => "stages",
                Steps::FinalizingStages(_) => "finalizing stages",
                Steps::Reasons { condition, .. } => &format!("reasons of {condition}"),
            };
            let how = if *mode == SequenceMode::Partial { " in order" } else { "" };
            format!("{}: {what}{how}", subject_words(subject))
        }
        Criterion::Eventually { moment, within } => {
            let limit = within.map(|w| format!(" within {w}")).unwrap_or_default();
            format!("{}{limit}", moment_words(moment))
        }
        Criterion::Never { moment } => never_words(moment),
        Criterion::Order { see, before, after, within } => {
            let before = before.as_ref().map(|m| format!(", before {}", moment_words(m))).unwrap_or_default();
            let after = after.as_ref().map(|m| format!(", after {}", moment_words(m))).unwrap_or_default();
            let within = within.map(|w| format!(", within {w}")).unwrap_or_default();
            format!("{}{before}{after}{within}", moment_words(see))
        }
        Criterion::Validation { subject, id, status, when } => {
            let when = match when {
                When::End => "at the end",
                When::Ever => "at some time",
                When::Always => "always",
            };
            format!("{}: validation {id} is {} {when}", subject_words(subject), status_word(status))
        }
        Criterion::Event { subject, name, severity, min, max } => {
            let severity = severity.map(|s| format!(" ({s})")).unwrap_or_default();
            let many = match (min, max) {
                (a, Some(b)) if a == b => format!("{a} times"),
                (a, Some(b)) => format!("{a} to {b} times"),
                (a, None) => format!("at least {a} times"),
            };
            format!("{}: event {name}{severity} {many}", subject_words(subject))
        }
        Criterion::StageDuration { subject, stage, at_least, at_most } => {
            let at_least = at_least.map(|s| format!(" at least {s}")).unwrap_or_default();
            let at_most = at_most.map(|s| format!(" at most {s}")).unwrap_or_default();
            format!("{}: stage {stage} takes{at_least}{at_most}", subject_words(subject))
        }
        Criterion::Operator { cluster, name, status } => format!("cluster {cluster}: operator {name} is {status}"),
    }
}
