//! What an expectation says, in one line: its name in the report when it was given none.

use crate::types::{Check, Moment, Seen, Steps, Subject};
use crate::words::{Quantity, SequenceMode, When};

fn subject(subject: &Subject) -> String {
    match subject {
        Subject::Cluster(name) => format!("cluster {name}"),
        Subject::Hosts(names) => match names.as_slice() {
            [one] => format!("host {one}"),
            [first, .., last] => format!("hosts {first}..{last}"),
            [] => "no host".to_owned(),
        },
        Subject::Role { role, cluster } => format!("{role} of {cluster}"),
        Subject::Run => "run".to_owned(),
    }
}

pub(crate) fn moment(moment: &Moment) -> String {
    let what = match &moment.seen {
        Seen::HostStatus(s) => format!("is {s}"),
        Seen::ClusterStatus(s) => format!("is {s}"),
        Seen::HostTransition { from, to } => format!("goes from {from} to {to}"),
        Seen::ClusterTransition { from, to } => format!("goes from {from} to {to}"),
        Seen::Console(text) => format!("console shows {text:?}"),
        Seen::Stage(s) => format!("reports {s}"),
        Seen::FinalizingStage(s) => format!("reports {s}"),
        Seen::Validation { id, status } => format!("has {id} {}", format!("{status:?}").to_lowercase()),
        Seen::Event { name, severity: None } => format!("sends {name}"),
        Seen::Event { name, severity: Some(s) } => format!("sends {name} ({s})"),
        Seen::Operator { name, status } => format!("has operator {name} {status}"),
        Seen::Action(kind) => format!("user does {kind}"),
        Seen::Progress { stage, percent } => format!("reports {stage} {percent}%"),
        Seen::Step(step) => format!("is given {step}"),
        Seen::Fault { name, phase } => format!("fault {name} {phase}s"),
        Seen::Did(what) => format!("did {what}"),
    };
    let of = match moment.of {
        Quantity::All => String::new(),
        Quantity::AtLeast(n) => format!("{n} of "),
    };
    format!("{of}{} {what}", subject(&moment.subject))
}

pub(crate) fn check(check: &Check) -> String {
    match check {
        Check::Sequence { subject: who, steps, mode, .. } => {
            let what = match steps {
                Steps::HostStatuses(_) | Steps::ClusterStatuses(_) => "statuses",
                Steps::Stages(_) => "stages",
                Steps::FinalizingStages(_) => "finalizing stages",
            };
            let how = if *mode == SequenceMode::Partial { " in order" } else { "" };
            format!("{what} of {}{how}", subject(who))
        }
        Check::Eventually { moment: m, within } => {
            let limit = within.map(|w| format!(" within {w}")).unwrap_or_default();
            format!("{}{limit}", moment(m))
        }
        Check::Never { moment: m } => format!("never: {}", moment(m)),
        Check::Order { see, before, after, within } => {
            let before = before.as_ref().map(|m| format!(" before {}", moment(m))).unwrap_or_default();
            let after = after.as_ref().map(|m| format!(" after {}", moment(m))).unwrap_or_default();
            let within = within.map(|w| format!(" within {w}")).unwrap_or_default();
            format!("{}{before}{after}{within}", moment(see))
        }
        Check::Validation { subject: who, id, status, when } => {
            let status = format!("{status:?}").to_lowercase();
            let when = match when {
                When::End => "in the end",
                When::Ever => "at some time",
                When::Always => "always",
            };
            format!("{id} of {} is {status} {when}", subject(who))
        }
        Check::Event { subject: who, name, severity, min, max } => {
            let severity = severity.map(|s| format!(" ({s})")).unwrap_or_default();
            let many = match (min, max) {
                (a, Some(b)) if a == b => format!("{a} times"),
                (a, Some(b)) => format!("{a} to {b} times"),
                (a, None) => format!("at least {a} times"),
            };
            format!("event {name}{severity} of {} {many}", subject(who))
        }
        Check::StageDuration { subject: who, stage, at_least, at_most } => {
            let at_least = at_least.map(|s| format!(" at least {s}")).unwrap_or_default();
            let at_most = at_most.map(|s| format!(" at most {s}")).unwrap_or_default();
            format!("{stage} of {} takes{at_least}{at_most}", subject(who))
        }
        Check::Operator { cluster, name, status } => format!("operator {name} of {cluster} is {status}"),
    }
}
