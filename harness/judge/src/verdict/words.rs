//! Expectations in words, for messages.

use super::*;

pub(super) fn steps_text<T: std::fmt::Display>(steps: &[T], optional: &BTreeSet<usize>) -> String {
    let words: Vec<String> = steps
        .iter()
        .enumerate()
        .map(|(i, s)| if optional.contains(&i) { format!("[{s}]") } else { s.to_string() })
        .collect();
    words.join(" → ")
}

pub(super) fn arrows<T: std::fmt::Display>(states: &[T]) -> String {
    if states.is_empty() {
        return "nothing".to_owned();
    }
    states.iter().map(ToString::to_string).collect::<Vec<_>>().join(" → ")
}

pub(super) fn subject_text(subject: &Subject) -> String {
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

pub(super) fn seen_text(seen: &Seen) -> String {
    match seen {
        Seen::HostStatus(s) => format!("status {s}"),
        Seen::ClusterStatus(s) => format!("status {s}"),
        Seen::HostTransition { from, to } => format!("way from {from} to {to}"),
        Seen::ClusterTransition { from, to } => format!("way from {from} to {to}"),
        Seen::Console(text) => format!("console line with {text:?}"),
        Seen::Stage(s) => format!("stage {s}"),
        Seen::FinalizingStage(s) => format!("finalizing stage {s}"),
        Seen::Validation { id, status } => format!("validation {id} {}", word(status)),
        Seen::Event { name, .. } => format!("event {name}"),
        Seen::Operator { name, status } => format!("operator {name} {status}"),
        Seen::Action(kind) => format!("the user's {kind}"),
        Seen::Progress { stage, percent } => format!("stage {stage} at {percent}%"),
        Seen::Step(step) => format!("step {step}"),
        Seen::Fault { name, phase } => format!("{phase} of the fault {name}"),
        Seen::Did(what) => what.clone(),
    }
}

pub(super) fn moment_text(moment: &Moment) -> String {
    let many = match moment.of {
        Quantity::All => String::new(),
        Quantity::AtLeast(1) => "any of ".to_owned(),
        Quantity::AtLeast(n) => format!("at least {n} of "),
    };
    format!("{many}{}: {}", subject_text(&moment.subject), seen_text(&moment.seen))
}

pub(super) fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        other => format!("{other:?}"),
    }
}
