//! Several services on one database: each transition is applied by one of them.

use std::collections::BTreeMap;

use vlab_history::Timeline;
use vlab_history::timeline::HostOrCluster;
use vlab_model::history::{Source, What};

use super::found::Found;
use super::{Id, InvariantResult};

/// Judges it: a status that was written again by another service than the one that brought it has its time moved, and does not
/// change.
pub(super) fn one_service_decides(timeline: &Timeline<'_>) -> InvariantResult {
    let mut writers: Vec<&str> = Vec::new();
    for o in timeline.observations {
        if let What::Writer { name } = &o.what
            && !writers.contains(&name.as_str())
        {
            writers.push(name);
        }
    }
    let mut found = Found::default();
    if writers.len() > 1 {
        compare(timeline, &mut found);
    }
    found.result(Id::OneServiceDecides.named(), || match writers[..] {
        [] => "not checked: the history does not say which service wrote".to_owned(),
        [one] => format!("not checked: one service wrote all changes ({one})"),
        _ => "not checked: none of the services that wrote changed a status".to_owned(),
    })
}

fn compare(timeline: &Timeline<'_>, found: &mut Found) {
    let mut writer = "";
    let mut decided: BTreeMap<HostOrCluster, &str> = BTreeMap::new();
    for o in timeline.observations.iter().filter(|o| o.source == Source::Database) {
        match &o.what {
            What::Writer { name } => writer = name,
            what @ (What::HostStatus { .. } | What::ClusterStatus { .. }) => {
                found.check(o.seq, true, String::new);
                decided.extend(HostOrCluster::of(what).map(|subject| (subject, writer)));
            }
            What::OddTime { subject, is_cluster, name, moved: true, .. } if name == "status_updated_at" => {
                let whose = if *is_cluster { HostOrCluster::Cluster(*subject) } else { HostOrCluster::Host(*subject) };
                let by = decided.get(&whose).copied().unwrap_or(writer);
                let again = writer.to_owned();
                found.check(o.seq, by == writer, || {
                    let name = timeline.directory.name(*subject);
                    format!("{name}: {again} applied a change of the status again that {by} had made")
                });
            }
            _ => {}
        }
    }
}
