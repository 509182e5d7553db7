//! The lines around a cause.

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_history::Timeline;
use vlab_history::timeline::host_thing;
use vlab_model::history::{Observation, What};

use super::{Candidate, END, Whom};

/// So many lines are told before it, itself among them, and after it.
const BEFORE: usize = 7;
const AFTER: usize = 3;
/// So many lines of a console before and after.
const CONSOLE_BEFORE: usize = 12;
const CONSOLE_AFTER: usize = 3;
/// Characters of a line.
const LENGTH: usize = 240;

/// What happened to whom it is about, just before and after it.
pub(super) fn around(timeline: &Timeline<'_>, cause: &Candidate) -> Vec<String> {
    let until = if cause.seq == END { timeline.observations.last().map_or(0, |o| o.seq) } else { cause.seq };
    let told = |o: &Observation| Some((o.at(), thing(timeline, o, cause.whom)?));
    let split = timeline.observations.partition_point(|o| o.seq <= until);
    let (before, after) = timeline.observations.split_at(split);
    let mut things: Vec<(Timestamp, String)> = before.iter().rev().filter_map(told).take(BEFORE).collect();
    things.reverse();
    things.extend(after.iter().filter_map(told).take(AFTER));
    let start = timeline.start().unwrap_or_default();
    things.into_iter().map(|(at, text)| format!("+{:.3}s {}", at.since(start).as_secs_f64(), cut(&text))).collect()
}

/// What the console of the host said before that moment, and next.
pub(super) fn console(timeline: &Timeline<'_>, cause: &Candidate) -> Vec<String> {
    let Whom::Host(host) = cause.whom else { return Vec::new() };
    let name = timeline.host_name(host);
    let said = |o: &Observation| match &o.what {
        What::Console { machine, line, .. } if *machine == name && !line.trim().is_empty() => Some(cut(line)),
        _ => None,
    };
    let split = timeline.observations.partition_point(|o| o.seq <= cause.seq);
    let (before, after) = timeline.observations.split_at(split);
    let mut lines: Vec<String> = before.iter().rev().filter_map(said).take(CONSOLE_BEFORE).collect();
    lines.reverse();
    lines.extend(after.iter().filter_map(said).take(CONSOLE_AFTER));
    lines
}

fn cut(text: &str) -> String {
    let text = text.trim_end();
    match text.char_indices().nth(LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// In words, what an observation says about whom the cause is about.
fn thing(timeline: &Timeline<'_>, o: &Observation, whom: Whom) -> Option<String> {
    match whom {
        Whom::Host(host) => {
            host_thing(&o.what, host).or_else(|| of_machine(timeline, &o.what, host)).or_else(|| of_run(&o.what))
        }
        Whom::Cluster(cluster) => of_cluster(timeline, &o.what, cluster).or_else(|| of_run(&o.what)),
        Whom::Service | Whom::Run => of_run(&o.what),
    }
}

fn of_machine(timeline: &Timeline<'_>, what: &What, host: Uuid) -> Option<String> {
    match what {
        What::Machine { machine, did, detail } if *machine == timeline.host_name(host) => {
            Some(format!("machine {did} {detail}").trim_end().to_owned())
        }
        What::BadAnswer { host: Some(who), request, status, .. } if *who == host => Some(bad_answer(request, *status)),
        _ => None,
    }
}

fn of_cluster(timeline: &Timeline<'_>, what: &What, wanted: Uuid) -> Option<String> {
    let is_of = |host: &Uuid| timeline.directory.cluster_of.get(host) == Some(&wanted);
    match what {
        What::ClusterStatus { cluster, to, info, .. } if *cluster == wanted => {
            Some(format!("cluster status {to} ({info})"))
        }
        What::ClusterFinalizingStage { cluster, stage } if *cluster == wanted => {
            Some(format!("finalizing stage {stage}"))
        }
        What::ClusterProgress { cluster, total } if *cluster == wanted => Some(format!("installed by {total}%")),
        What::Operator { cluster, name, status: Some(status), .. } if *cluster == wanted => {
            Some(format!("operator {name} {status}"))
        }
        What::InCluster { cluster, what, .. } if *cluster == wanted => Some(format!("in the cluster: {what}")),
        What::Event { cluster: Some(cluster), host: None, name, message, .. } if *cluster == wanted => {
            Some(format!("event {name}: {message}"))
        }
        What::HostStatus { host, to, info, .. } if is_of(host) => {
            Some(format!("{}: status {to} ({info})", timeline.host_name(*host)))
        }
        _ => None,
    }
}

/// What concerns everybody.
fn of_run(what: &What) -> Option<String> {
    match what {
        What::UserAction { action, status, reason, .. } => {
            Some(format!("the user: {action}, answered with {status} {reason}").trim_end().to_owned())
        }
        What::BadAnswer { host: None, request, status, .. } => Some(bad_answer(request, *status)),
        What::Killed { program, detail } => Some(format!("{program} was killed: {detail}")),
        What::Unreadable { of, error, .. } => Some(format!("cannot be understood: {of}: {error}")),
        What::Fault { name, phase, detail, .. } => {
            Some(format!("fault {name}: {phase} {detail}").trim_end().to_owned())
        }
        What::Note { text } => Some(text.clone()),
        What::Interleaved { did, detail } => Some(format!("by the interleaving: {did}, {detail}")),
        _ => None,
    }
}

fn bad_answer(request: &str, status: u16) -> String {
    match status {
        0 => format!("connection refused: {request}"),
        status => format!("HTTP {status}: {request}"),
    }
}
