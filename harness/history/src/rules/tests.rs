use vlab_model::history::Source;

use super::*;
use crate::Recorder;

const HOST: Uuid = Uuid::from_u128(1);
const CLUSTER: Uuid = Uuid::from_u128(2);

/// What the database of the real service shows, a change at a time, each a second after the other.
fn shown_by(changes: &[What]) -> Vec<String> {
    let mut recorder = Recorder::new(None);
    for (second, what) in (1_700_000_000..).zip(changes) {
        let at = Timestamp::from_secs(second);
        recorder.record(Source::Database, Some(at), at, what.clone());
    }
    let certain = shown(&recorder.into_observations(), &Settings::default(), true).certain;
    certain.into_keys().map(|id| id.to_string()).collect()
}

fn status(from: Option<HostStatus>, to: HostStatus) -> What {
    What::HostStatus { host: HOST, cluster: Some(CLUSTER), from, to, info: String::new() }
}

fn stage(from: HostStage, to: HostStage) -> What {
    What::HostStage { host: HOST, from: Some(from), to: Some(to), info: String::new(), percentage: 0 }
}

/// The real service writes the stage first, and then asks its machine, which writes the status.
#[test]
fn a_rule_behind_one_that_always_holds_is_not_claimed() {
    let waiting = HostStatus::InstallingPendingUserAction;
    let seen = shown_by(&[
        status(None, waiting),
        stage(HostStage::Rebooting, HostStage::Configuring),
        status(Some(waiting), HostStatus::InstallingInProgress),
    ]);
    assert_eq!(seen, ["host#7"], "and not host#9");
}

#[test]
fn more_of_the_same_stage_is_no_report_that_a_machine_is_asked_about() {
    let (status, stage) =
        (status(None, HostStatus::InstallingInProgress), |to| stage(HostStage::WritingImageToDisk, to));
    assert_eq!(shown_by(&[status.clone(), stage(HostStage::WritingImageToDisk)]), [""; 0]);
    assert_eq!(shown_by(&[status, stage(HostStage::Rebooting)]), ["host#7"]);
}
