//! What happens inside of a cluster, and in which order.

use super::*;
use crate::alteration::Alteration;

/// Runs a cluster until nothing is due any more; what happened when, in seconds from the start.
fn run(
    plane: &mut ControlPlane,
    mut now: Timestamp,
    until: impl Fn(&ControlPlane) -> bool,
) -> Vec<(Timestamp, Happening)> {
    let mut seen = Vec::new();
    for _ in 0..10_000 {
        seen.extend(plane.advance(now).into_iter().map(|h| (now, h)));
        if until(plane) {
            break;
        }
        match plane.next_due() {
            Some(due) => now = due.max(now),
            None => break,
        }
    }
    seen
}

/// But for members of etcd, which are added while others become ready.
fn words(seen: &[(Timestamp, Happening)]) -> Vec<String> {
    seen.iter()
        .map(|(_, h)| h)
        .filter(|h| !matches!(h, Happening::EtcdMemberAdded(_)))
        .map(|h| h.moment().to_string())
        .collect()
}

#[test]
fn three_masters_pivot_in_order() {
    let mut plane = ControlPlane::new(1, 0, 3, &HostTiming::default());
    let start = Timestamp::from_secs(1000);
    assert_eq!(plane.start_bootkube(start, 0), [Happening::BootkubeStarted(0)]);
    plane.node_booted(start, 1, NodeRole::Master);
    plane.node_booted(start, 2, NodeRole::Master);
    assert!(!plane.api_is_up());
    let seen = run(&mut plane, start, ControlPlane::etcd_bootstrap_is_done);
    assert_eq!(
        words(&seen),
        ["temporary-control-plane-up", "node-ready", "node-ready", "bootkube-done", "etcd-bootstrap-done"]
    );
    let added = |seen: &[(Timestamp, Happening)], p| seen.iter().position(|(_, h)| *h == Happening::EtcdMemberAdded(p));
    let ready = |seen: &[(Timestamp, Happening)], p| seen.iter().position(|(_, h)| *h == Happening::NodeReady(p));
    for master in [1, 2] {
        assert!(added(&seen, master).is_some() && added(&seen, master) < ready(&seen, master), "{seen:?}");
    }
    let (end, _) = *seen.last().unwrap();
    plane.machine_down(0);
    assert!(plane.api_is_up(), "the masters carry the API after the pivot");
    plane.node_booted(end, 0, NodeRole::Master);
    let seen = run(&mut plane, end, |_| false);
    assert_eq!(words(&seen), ["node-ready", "operator-available:console", "operator-available:cvo"]);
    assert!(plane.controller_runs());
    assert_eq!(added(&seen, 0), Some(0), "the bootstrap's host comes back as a member like the others");
    assert!(plane.router_ca_is_there(seen[2].0 + std::time::Duration::from_secs(5)));
}

/// A cluster of so many masters that has pivoted; its end, and the positions of its other nodes.
fn pivoted(count: u32, others: &[NodeRole]) -> (ControlPlane, Timestamp, Vec<String>) {
    let mut plane = ControlPlane::new(1, 0, count, &HostTiming::default());
    let start = Timestamp::from_secs(1000);
    plane.start_bootkube(start, 0);
    for (i, role) in others.iter().enumerate() {
        plane.node_booted(start, i + 1, *role);
    }
    let seen = run(&mut plane, start, ControlPlane::etcd_bootstrap_is_done);
    let end = seen.last().unwrap().0;
    (plane, end, words(&seen))
}

#[test]
fn with_an_arbiter_bootkube_waits_for_it() {
    let (plane, _, seen) = pivoted(2, &[NodeRole::Master, NodeRole::Arbiter]);
    assert_eq!(seen[1..], ["node-ready", "node-ready", "bootkube-done", "etcd-bootstrap-done"]);
    assert!(plane.api_is_up());
    let mut alone = ControlPlane::new(1, 0, 2, &HostTiming::default());
    let start = Timestamp::from_secs(1000);
    alone.start_bootkube(start, 0);
    alone.node_booted(start, 1, NodeRole::Master);
    let seen = run(&mut alone, start, ControlPlane::etcd_bootstrap_is_done);
    assert_eq!(words(&seen), ["temporary-control-plane-up", "node-ready"], "a master alone is not enough");
}

#[test]
fn two_members_of_etcd_need_each_other() {
    let (mut plane, end, _) = pivoted(3, &[NodeRole::Master, NodeRole::Master, NodeRole::Worker]);
    plane.machine_down(3);
    assert_eq!(plane.advance(end), [], "a worker is no member");
    plane.machine_down(2);
    assert_eq!(plane.advance(end), [Happening::EtcdQuorumLost(2)]);
    assert!(!plane.api_is_up());
    plane.node_booted(end, 2, NodeRole::Master);
    assert_eq!(plane.advance(end), [Happening::EtcdQuorumBack], "the member comes up with the machine");
    assert!(plane.api_is_up());
}

#[test]
fn three_members_can_do_without_one() {
    let (mut plane, end, _) = pivoted(3, &[NodeRole::Master, NodeRole::Master]);
    plane.node_booted(end, 0, NodeRole::Master);
    let seen = run(&mut plane, end, |p| p.ready_masters() == 3);
    let end = seen.last().unwrap().0;
    plane.machine_down(1);
    run(&mut plane, end, |_| true);
    assert!(plane.api_is_up());
    plane.machine_down(2);
    assert_eq!(plane.advance(end), [Happening::EtcdQuorumLost(1)]);
}

#[rstest::rstest]
#[case(Alteration::SkipsBootkube, &["temporary-control-plane-up", "node-ready", "node-ready", "etcd-bootstrap-done"])]
#[case(Alteration::LosesQuorum, &["temporary-control-plane-up", "node-ready", "node-ready", "bootkube-done",
    "etcd-bootstrap-done", "etcd-quorum-lost"])]
fn altered_clusters_do_it_wrong(#[case] alteration: Alteration, #[case] expected: &[&str]) {
    let mut plane = ControlPlane::new(1, 0, 3, &HostTiming::default());
    plane.alter(Some(alteration));
    let start = Timestamp::from_secs(1000);
    plane.start_bootkube(start, 0);
    plane.node_booted(start, 1, NodeRole::Master);
    plane.node_booted(start, 2, NodeRole::Master);
    let seen = run(&mut plane, start, ControlPlane::etcd_bootstrap_is_done);
    assert_eq!(words(&seen), expected);
}

#[test]
fn a_bootstrap_that_dies_early_takes_the_cluster_with_it() {
    let mut plane = ControlPlane::new(1, 0, 3, &HostTiming::default());
    let start = Timestamp::from_secs(1000);
    plane.start_bootkube(start, 0);
    plane.node_booted(start, 1, NodeRole::Master);
    plane.node_booted(start, 2, NodeRole::Master);
    run(&mut plane, start, |p| p.nodes()[&1].state == NodeState::Configuring);
    plane.machine_down(0);
    assert!(!plane.api_is_up());
    for second in 0..10_000 {
        let seen = plane.advance(start + std::time::Duration::from_secs(second));
        assert_eq!(seen, [], "nothing can happen without an API");
    }
}

/// However late the service's answer is.
#[rstest::rstest]
#[case::the_installer_tells_of_masters(LogReader::Installer, NodeRole::Master, true)]
#[case::the_controller_tells_of_masters(LogReader::Controller, NodeRole::Master, true)]
#[case::the_controller_tells_of_workers(LogReader::Controller, NodeRole::Worker, true)]
#[case::the_installer_does_not(LogReader::Installer, NodeRole::Worker, false)]
fn a_node_joins_when_it_was_told_that_it_has_its_ignition(
    #[case] reader: LogReader,
    #[case] role: NodeRole,
    #[case] waits: bool,
) {
    let joined = |p: &ControlPlane| p.nodes()[&1].state >= NodeState::Joined;
    let begin = || {
        let mut plane = ControlPlane::new(1, 0, 3, &HostTiming::default());
        let start = Timestamp::from_secs(1000);
        plane.start_bootkube(start, 0);
        plane.node_booted(start, 1, role);
        run(&mut plane, start, |p| p.nodes()[&1].state == NodeState::Configuring);
        plane
    };
    let mut unread = begin();
    let due = unread.nodes()[&1].due.unwrap();
    unread.advance(due);
    assert!(joined(&unread), "nobody reads the log");

    let mut plane = begin();
    let hour = std::time::Duration::from_secs(3600);
    plane.log_is_followed(reader, due + hour);
    plane.log_is_read(reader);
    plane.advance(due + hour / 2);
    assert_eq!(joined(&plane), !waits);
    plane.log_was_told(reader);
    plane.advance(due + hour / 2 + HostTiming::default().mcs_log_poll);
    assert!(joined(&plane), "it was told");

    let mut plane = begin();
    plane.log_is_followed(reader, due + hour);
    plane.log_is_read(reader);
    run(&mut plane, due, joined);
    assert!(joined(&plane), "the reader is no more");
}

#[test]
fn a_single_node_pivots_on_its_own_disk() {
    let mut plane = ControlPlane::new(1, 0, 1, &HostTiming::default());
    let start = Timestamp::from_secs(1000);
    plane.start_bootkube(start, 0);
    let seen = run(&mut plane, start, |_| false);
    assert_eq!(words(&seen), ["temporary-control-plane-up", "bootkube-done"]);
    let rebooted = seen[1].0 + std::time::Duration::from_secs(300);
    plane.machine_down(0);
    plane.node_booted(rebooted, 0, NodeRole::Master);
    let seen = run(&mut plane, rebooted, |_| false);
    assert_eq!(
        words(&seen),
        ["etcd-bootstrap-done", "node-ready", "operator-available:console", "operator-available:cvo"]
    );
}

#[test]
fn a_node_that_was_a_member_comes_back_without_ignition() {
    let mut plane = ControlPlane::new(1, 0, 1, &HostTiming::default());
    let start = Timestamp::from_secs(1000);
    plane.start_bootkube(start, 0);
    plane.node_booted(start, 0, NodeRole::Master);
    let seen = run(&mut plane, start, |p| p.ready_masters() == 1);
    let end = seen.last().unwrap().0;
    plane.machine_down(0);
    assert_eq!(plane.nodes()[&0].state, NodeState::Lost);
    plane.node_booted(end, 0, NodeRole::Master);
    assert_eq!(plane.nodes()[&0].state, NodeState::Joined);
    run(&mut plane, end, |p| p.ready_masters() == 1);
    assert_eq!(plane.nodes()[&0].state, NodeState::Ready);
}
