//! Percentages of hosts and clusters. All are whole numbers, cut and not rounded, as the service shows them.

use vlab_api::types::{ClusterProgressInfo, HostStage, MonitoredOperator, OperatorStatus, OperatorType};

/// Share of the preparation in the whole, in percent.
pub const PREPARING_WEIGHT: i64 = 10;
/// Share of the hosts' installation in the whole, in percent.
pub const INSTALLING_WEIGHT: i64 = 70;
/// Share of finalizing in the whole, in percent. The three sum to 95: the rest comes with the status `installed`.
pub const FINALIZING_WEIGHT: i64 = 15;

/// Place of the stage in its role's list, counted from 1; 0 for no stage and for one that is not in the list.
fn place(stages: &[HostStage], stage: Option<HostStage>) -> i64 {
    let at = stage.and_then(|stage| stages.iter().position(|s| *s == stage));
    at.map_or(0, |i| i64::try_from(i + 1).unwrap_or(i64::MAX))
}

fn length(stages: &[HostStage]) -> i64 {
    i64::try_from(stages.len()).unwrap_or(i64::MAX)
}

fn percent(part: i64, whole: i64) -> i64 {
    if whole <= 0 { 0 } else { part.saturating_mul(100) / whole }
}

/// `installation_percentage` of a host in that stage of its role's list.
pub fn host_percentage(stages: &[HostStage], stage: Option<HostStage>) -> i64 {
    percent(place(stages, stage), length(stages))
}

/// `installing_stage_percentage` of a cluster: stages that its hosts reached, of all that they have.
pub fn installing_percentage<'a>(hosts: impl Iterator<Item = (&'a [HostStage], Option<HostStage>)>) -> i64 {
    let add = |(part, whole): (i64, i64), (stages, stage)| (part + place(stages, stage), whole + length(stages));
    let (part, whole) = hosts.fold((0, 0), add);
    percent(part, whole)
}

/// Is the operator done: available, or (only one that does not come with the product) failed?
pub fn operator_done(operator: &MonitoredOperator) -> bool {
    match operator.status {
        Some(OperatorStatus::Available) => true,
        Some(OperatorStatus::Failed) => operator.operator_type == Some(OperatorType::Olm),
        _ => false,
    }
}

/// `finalizing_stage_percentage` of a cluster: operators that are done, of all. A cluster without any has nothing to wait for.
pub fn finalizing_percentage(operators: &[MonitoredOperator]) -> i64 {
    let done = operators.iter().filter(|o| operator_done(o)).count();
    if operators.is_empty() { 100 } else { percent(done as i64, operators.len() as i64) }
}

/// `total_percentage` from the three parts, before the cluster is installed.
pub fn total_percentage(preparing: i64, installing: i64, finalizing: i64) -> i64 {
    (PREPARING_WEIGHT * preparing + INSTALLING_WEIGHT * installing + FINALIZING_WEIGHT * finalizing) / 100
}

/// Zero is how the service writes nothing.
fn shown(percentage: i64) -> Option<i64> {
    (percentage != 0).then_some(percentage)
}

/// Writes the three parts and the total; `None` leaves a part as it is.
pub fn set_percentages(
    progress: &mut ClusterProgressInfo,
    preparing: Option<i64>,
    installing: Option<i64>,
    finalizing: Option<i64>,
) {
    let parts = [
        (preparing, &mut progress.preparing_for_installation_stage_percentage),
        (installing, &mut progress.installing_stage_percentage),
        (finalizing, &mut progress.finalizing_stage_percentage),
    ];
    let mut now = [0; 3];
    for ((new, part), now) in parts.into_iter().zip(&mut now) {
        if let Some(new) = new {
            *part = shown(new);
        }
        *now = part.unwrap_or(0);
    }
    progress.total_percentage = shown(total_percentage(now[0], now[1], now[2]));
}

/// What the status `installed` does: finalizing and the total become 100.
pub fn set_installed(progress: &mut ClusterProgressInfo) {
    progress.finalizing_stage_percentage = Some(100);
    progress.total_percentage = Some(100);
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::stages::{StageRole, stages_of};

    /// What the real service showed for a single node in each stage.
    #[rstest]
    #[case(None, 0, 10)]
    #[case(Some(HostStage::StartingInstallation), 12, 18)]
    #[case(Some(HostStage::Installing), 25, 27)]
    #[case(Some(HostStage::WaitingForBootkube), 37, 35)]
    #[case(Some(HostStage::WritingImageToDisk), 50, 45)]
    #[case(Some(HostStage::Rebooting), 75, 62)]
    #[case(Some(HostStage::Joined), 87, 70)]
    #[case(Some(HostStage::Done), 100, 80)]
    #[case(Some(HostStage::Failed), 0, 10)]
    fn single_node(#[case] stage: Option<HostStage>, #[case] host: i64, #[case] total: i64) {
        let stages = stages_of(StageRole::SingleNode);
        assert_eq!(host_percentage(stages, stage), host);
        assert_eq!(installing_percentage([(stages, stage)].into_iter()), host);
        let mut progress = ClusterProgressInfo::default();
        set_percentages(&mut progress, Some(100), Some(host), None);
        assert_eq!(progress.total_percentage, Some(total));
        assert_eq!(progress.installing_stage_percentage, (host != 0).then_some(host), "zero is not written");
    }

    #[test]
    fn several_hosts_count_stage_by_stage() {
        let of = |role, stage| (stages_of(role), Some(stage));
        let hosts = [of(StageRole::Master, HostStage::Done), of(StageRole::Worker, HostStage::Installing)];
        assert_eq!(installing_percentage(hosts.into_iter()), (8 + 2) * 100 / (8 + 9));
        assert_eq!(installing_percentage(std::iter::empty()), 0);
    }

    #[rstest]
    #[case(OperatorType::Builtin, Some(OperatorStatus::Available), 100)]
    #[case(OperatorType::Builtin, Some(OperatorStatus::Failed), 50)]
    #[case(OperatorType::Olm, Some(OperatorStatus::Failed), 100)]
    #[case(OperatorType::Olm, Some(OperatorStatus::Progressing), 50)]
    #[case(OperatorType::Olm, None, 50)]
    fn operators(#[case] kind: OperatorType, #[case] status: Option<OperatorStatus>, #[case] percentage: i64) {
        let operator = |kind, status| MonitoredOperator { operator_type: Some(kind), status, ..Default::default() };
        let console = operator(OperatorType::Builtin, Some(OperatorStatus::Available));
        assert_eq!(finalizing_percentage(&[console, operator(kind, status)]), percentage);
    }

    #[test]
    fn finalizing_and_installed() {
        let mut progress = ClusterProgressInfo::default();
        set_percentages(&mut progress, Some(100), Some(100), Some(100));
        assert_eq!(progress.total_percentage, Some(95));
        set_installed(&mut progress);
        assert_eq!(progress.total_percentage, Some(100));
        assert_eq!(finalizing_percentage(&[]), 100);
    }
}
