//! The times of rows. Each belongs to something that it times and moves with it; only one that does not is told
//! ([`What::OddTime`]), so that a history does not say twice when a thing changed.

use serde::{Deserialize, Deserializer};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::ClusterStatus;
use vlab_model::history::What;

use crate::facts::{ClusterFacts, HostFacts, OperatorFacts};

/// A time as a row has it. One that cannot be read is as one that is not there.
pub(crate) fn time<'de, D: Deserializer<'de>>(row: D) -> Result<Option<Timestamp>, D::Error> {
    Ok(Option::<String>::deserialize(row)?.and_then(|text| text.parse().ok()))
}

/// What became of what a time times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timed {
    /// It changed: the time moves.
    Changed,
    /// It did not: the time stays.
    Same,
    /// The time may do either.
    Either,
}

impl Timed {
    fn changed(changed: bool) -> Self {
        if changed { Self::Changed } else { Self::Same }
    }
}

struct Odd {
    subject: Uuid,
    is_cluster: bool,
    found: Vec<What>,
}

impl Odd {
    fn of(subject: Uuid, is_cluster: bool) -> Self {
        Self { subject, is_cluster, found: Vec::new() }
    }

    fn see(&mut self, name: &str, (old, new): (Option<Timestamp>, Option<Timestamp>), timed: Timed) {
        // A row that never had it may be one of a table without that column.
        let odd = match timed {
            Timed::Changed => old == new && new.is_some(),
            Timed::Same => old != new,
            Timed::Either => false,
        };
        if odd {
            let (subject, is_cluster, name) = (self.subject, self.is_cluster, name.to_owned());
            let (moved, value) = (timed == Timed::Same, new.filter(|time| time.is_set()));
            self.found.push(What::OddTime { subject, is_cluster, name, moved, value });
        }
    }
}

/// Times of a host that do not follow. `old` is `None` for one that was not seen before, which has its times from the beginning.
pub fn odd_times_of_host(id: Uuid, old: Option<&HostFacts>, new: &HostFacts) -> Vec<What> {
    let Some(old) = old else { return Vec::new() };
    let mut odd = Odd::of(id, false);
    let (status, stage) = (old.status != new.status, old.progress_current_stage != new.progress_current_stage);
    odd.see("status_updated_at", (old.status_updated_at, new.status_updated_at), Timed::changed(status));
    let cleared = new.progress_current_stage.is_empty();
    let words = stage || old.progress_progress_info != new.progress_progress_info;
    let started = (old.progress_stage_started_at, new.progress_stage_started_at);
    odd.see("progress.stage_started_at", started, if cleared { Timed::Either } else { Timed::changed(stage) });
    // The same may be told again, and what a host waits for beside its stages begins anew while the user is needed.
    let updated = (old.progress_stage_updated_at, new.progress_stage_updated_at);
    let timed = if words && !cleared { Timed::Changed } else { Timed::Either };
    odd.see("progress.stage_updated_at", updated, timed);
    odd.found
}

/// The same of a cluster.
pub fn odd_times_of_cluster(id: Uuid, old: Option<&ClusterFacts>, new: &ClusterFacts) -> Vec<What> {
    let Some(old) = old else { return Vec::new() };
    let mut odd = Odd::of(id, true);
    let moves = old.status != new.status;
    odd.see("status_updated_at", (old.status_updated_at, new.status_updated_at), Timed::changed(moves));
    // Between a beginning and the next, and an end and the next, other things may have to do with these.
    let follows = |follows: bool| if follows { Timed::Changed } else { Timed::Either };
    let begins = moves && new.status == ClusterStatus::PreparingForInstallation;
    let is_over = matches!(new.status, ClusterStatus::Installed | ClusterStatus::Error | ClusterStatus::Cancelled);
    let stage = &new.progress_finalizing_stage;
    let goes_on = *stage != old.progress_finalizing_stage && !stage.is_empty();
    odd.see("install_started_at", (old.install_started_at, new.install_started_at), follows(begins));
    odd.see("install_completed_at", (old.install_completed_at, new.install_completed_at), follows(moves && is_over));
    let since = (old.progress_finalizing_stage_started_at, new.progress_finalizing_stage_started_at);
    odd.see("progress.finalizing_stage_started_at", since, follows(goes_on));
    odd.found
}

/// The same of a monitored operator, told of its cluster.
pub fn odd_times_of_operator(cluster: Uuid, old: Option<&OperatorFacts>, new: &OperatorFacts) -> Vec<What> {
    let Some(old) = old else { return Vec::new() };
    let mut odd = Odd::of(cluster, true);
    // It may have said more about the same status.
    let timed = if old.status != new.status { Timed::Changed } else { Timed::Either };
    let name = format!("status_updated_at of {}", new.name);
    odd.see(&name, (old.status_updated_at, new.status_updated_at), timed);
    odd.found
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_api::types::HostStatus;

    use super::*;

    fn at(seconds: i64) -> Option<Timestamp> {
        Some(Timestamp::from_secs(seconds))
    }

    fn host() -> HostFacts {
        HostFacts {
            status: HostStatus::Installing,
            progress_current_stage: "Installing".into(),
            status_updated_at: at(1),
            progress_stage_started_at: at(1),
            progress_stage_updated_at: at(1),
            ..HostFacts::default()
        }
    }

    #[rstest]
    #[case::it_begins(ClusterStatus::PreparingForInstallation, |c: &mut ClusterFacts| c.install_started_at = at(2), &[])]
    #[case::it_begins_at_no_time(ClusterStatus::PreparingForInstallation, |_: &mut ClusterFacts| (), &["install_started_at"])]
    #[case::it_ends(ClusterStatus::Installed, |c: &mut ClusterFacts| c.install_completed_at = at(2), &[])]
    #[case::it_ends_at_no_time(ClusterStatus::Installed, |_: &mut ClusterFacts| (), &["install_completed_at"])]
    #[case::it_fails_at_no_time(ClusterStatus::Error, |_: &mut ClusterFacts| (), &["install_completed_at"])]
    #[case::reset(ClusterStatus::Insufficient, |_: &mut ClusterFacts| (), &[])]
    #[case::a_stage(
        ClusterStatus::Finalizing,
        |c: &mut ClusterFacts| c.progress_finalizing_stage = "Done".into(),
        &["progress.finalizing_stage_started_at"]
    )]
    fn times_of_an_installation_move_with_it(
        #[case] status: ClusterStatus,
        #[case] change: fn(&mut ClusterFacts),
        #[case] told: &[&str],
    ) {
        let old = ClusterFacts {
            status: ClusterStatus::Finalizing,
            status_updated_at: at(1),
            install_started_at: at(1),
            install_completed_at: at(1),
            progress_finalizing_stage_started_at: at(1),
            ..ClusterFacts::default()
        };
        let mut new = ClusterFacts { status, ..old.clone() };
        if status != old.status {
            new.status_updated_at = at(2);
        }
        change(&mut new);
        let found = odd_times_of_cluster(Uuid::nil(), Some(&old), &new);
        let names = found.iter().filter_map(|what| match what {
            What::OddTime { name, moved: false, .. } => Some(name.as_str()),
            _ => None,
        });
        assert_eq!(names.collect::<Vec<_>>(), told);
    }

    #[rstest]
    #[case::nothing(|_: &mut HostFacts| (), None)]
    #[case::status_and_time(|h: &mut HostFacts| { h.status = HostStatus::Error; h.status_updated_at = at(2); }, None)]
    #[case::status_alone(|h: &mut HostFacts| h.status = HostStatus::Error, Some(("status_updated_at", false)))]
    #[case::time_alone(|h: &mut HostFacts| h.status_updated_at = at(2), Some(("status_updated_at", true)))]
    #[case::stage_without_its_start(
        |h: &mut HostFacts| { h.progress_current_stage = "Done".into(); h.progress_stage_updated_at = at(2); },
        Some(("progress.stage_started_at", false))
    )]
    #[case::words_alone(|h: &mut HostFacts| h.progress_progress_info = "5%".into(), Some(("progress.stage_updated_at", false)))]
    #[case::told_again(|h: &mut HostFacts| h.progress_stage_updated_at = at(2), None)]
    #[case::cleared(
        |h: &mut HostFacts| { h.progress_current_stage = String::new(); h.progress_stage_started_at = None; },
        None
    )]
    fn a_time_that_does_not_follow_is_told(#[case] change: fn(&mut HostFacts), #[case] told: Option<(&str, bool)>) {
        let mut new = host();
        change(&mut new);
        let found = odd_times_of_host(Uuid::nil(), Some(&host()), &new);
        let found: Vec<_> = found
            .iter()
            .map(|what| match what {
                What::OddTime { name, moved, .. } => (name.as_str(), *moved),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, told.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn tables_without_times_tell_nothing() {
        let row = |status: &str| serde_json::from_str::<HostFacts>(&format!(r#"{{"status":"{status}"}}"#)).unwrap();
        assert_eq!(odd_times_of_host(Uuid::nil(), Some(&row("known")), &row("installing")), []);
        let odd: HostFacts = serde_json::from_str(r#"{"status":"known","status_updated_at":"long ago"}"#).unwrap();
        assert_eq!(odd.status_updated_at, None);
        let text = r#"{"status":"known","status_updated_at":"2026-11-25T01:02:03.25+00:00"}"#;
        let good: HostFacts = serde_json::from_str(text).unwrap();
        assert_eq!(good.status_updated_at.map(|t| t.to_string()).as_deref(), Some("2026-11-25T01:02:03.250Z"));
    }
}
