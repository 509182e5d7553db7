use super::*;

fn conductor(text: &str) -> Conductor {
    let catalogue = vlab_scenario::Catalogue::embedded();
    let scenario = vlab_scenario::load(&vlab_scenario::SourceFile::new("t.yaml", text), &catalogue).unwrap();
    let choices = crate::prepare::Choices { seed: Some(1), ..Default::default() };
    let prepared = crate::prepare::prepare(scenario, &catalogue, &choices, &crate::prepare::Nowhere).unwrap();
    Conductor::new(prepared.conductor_config(RunInfo::default(), String::new()), Recorder::new(None))
}

/// Seen: a run waited nine minutes for a machine whose kernel had panicked after four seconds.
#[rstest::rstest]
#[case(Some("kernel-panic"), true)]
#[case(Some("emergency-shell"), true)]
#[case(Some("unit-failed"), false)]
#[case(None, false)]
fn a_run_ends_when_a_machine_does_nothing_any_more(#[case] finding: Option<&str>, #[case] ends: bool) {
    let mut conductor = conductor("version: 1\nname: t\ncluster: {topology: sno}\nhosts: [{name: n, kind: vm}]\n");
    let now = Timestamp::from_secs(100);
    conductor.start(now);
    let (machine, line) = ("n-0".to_owned(), "what it said".to_owned());
    conductor.observe(now, Source::Console, None, What::Console { machine, line, finding: finding.map(Into::into) });
    match conductor.ending(now) {
        Some(Ending::Dead(why)) if ends => {
            assert!(why.starts_with("n-0 ") && why.contains("what it said"), "{why}")
        }
        None if !ends => {}
        other => panic!("{other:?}"),
    }
}

/// What is done to an installer waits until it is in its stage; what is done to a cluster names the machines of its control plane.
#[test]
fn an_installer_is_held_up_in_its_stage() {
    let text = "version: 1\nname: t\ncluster: {topology: compact, user_managed_networking: true}\n\
                hosts: [{name: n, count: 3, kind: vm}]\n\
                faults:\n- {name: stuck, at: 1h, target: n-1, inject: stuck-stage, with: {stage: Rebooting}}\n\
                - {name: hangs, at: 1h, target: control-plane, inject: bootkube-hangs}\n";
    let mut conductor = conductor(text);
    let now = Timestamp::from_secs(100);
    conductor.start(now);
    let faults = conductor.config.scenario.faults.clone();
    let stage = |conductor: &mut Conductor, host: usize, to: HostStage| {
        let host = conductor.host_ids[host];
        let what = What::HostStage { host, from: None, to: Some(to), info: String::new(), percentage: 0 };
        conductor.observe(now, Source::Database, None, what);
        conductor.take_machine_orders().len()
    };
    conductor.carry_out(now, FaultOrder::Inject(faults[0].clone(), ResolvedTarget::Hosts(vec!["n-1".to_owned()])));
    assert_eq!(conductor.take_machine_orders(), []);
    assert_eq!(stage(&mut conductor, 1, HostStage::WritingImageToDisk), 0);
    assert_eq!(stage(&mut conductor, 0, HostStage::Rebooting), 0, "another host");
    assert_eq!(stage(&mut conductor, 1, HostStage::Rebooting), 1);
    conductor.carry_out(now, FaultOrder::Inject(faults[1].clone(), ResolvedTarget::Cluster("t".to_owned())));
    let orders = conductor.take_machine_orders();
    let [MachineOrder::Fault { on, to, .. }] = &orders[..] else { panic!("{orders:?}") };
    assert_eq!((on.join(" ").as_str(), to.join(" ").as_str()), ("t", "n-0 n-1 n-2"));
}

/// A disk that is to fail in the middle waits until the service knows that so much is written.
#[test]
fn a_disk_fails_when_so_much_is_written() {
    let text = "version: 1\nname: t\ncluster: {topology: sno}\nhosts: [{name: n, kind: vm}]\n\
                faults: [{name: disk, at: 1h, target: n-0, inject: disk-fails, with: {percent: 40}}]\n";
    let mut conductor = conductor(text);
    let now = Timestamp::from_secs(100);
    conductor.start(now);
    let host = conductor.host_ids[0];
    let fault = conductor.config.scenario.faults[0].clone();
    let hit = || ResolvedTarget::Hosts(vec!["n-0".to_owned()]);
    let writes = |conductor: &mut Conductor, info: &str| {
        let what = What::HostStage {
            host,
            from: None,
            to: Some(HostStage::WritingImageToDisk),
            info: info.to_owned(),
            percentage: 0,
        };
        conductor.observe(now, Source::Database, None, what);
        conductor.take_machine_orders().len()
    };
    conductor.carry_out(now, FaultOrder::Inject(fault.clone(), hit()));
    assert_eq!(conductor.take_machine_orders(), []);
    assert_eq!([writes(&mut conductor, ""), writes(&mut conductor, "35%")], [0, 0]);
    assert_eq!([writes(&mut conductor, "41%"), writes(&mut conductor, "45%")], [1, 0], "once");
    conductor.carry_out(now, FaultOrder::Undo(fault.clone(), hit()));
    assert_eq!(conductor.take_machine_orders().len(), 1, "what has failed is healed");
    // When so much is written already, at once; and a fault that ends before its time does nothing at all.
    conductor.carry_out(now, FaultOrder::Inject(fault.clone(), hit()));
    assert_eq!(conductor.take_machine_orders().len(), 1);
    assert_eq!(writes(&mut conductor, ""), 0);
    conductor.carry_out(now, FaultOrder::Inject(fault.clone(), hit()));
    conductor.carry_out(now, FaultOrder::Undo(fault, hit()));
    assert_eq!(conductor.take_machine_orders(), []);
    assert_eq!(writes(&mut conductor, "90%"), 0);
}

/// Machines of the pool: their consoles tell of the cluster to which they are bound, and what they were is over when the user boots
/// them again.
#[test]
fn machines_of_the_pool_are_told_where_they_belong_and_when_they_boot_again() {
    let text = "version: 1\nname: t\nclusters: [{name: a, topology: sno}, {name: b, topology: sno}]\n\
                hosts: [{name: n, kind: vm, cluster: none}, {name: own, kind: vm, cluster: b}]\n\
                actions: [{do: bind, host: n-0, cluster: a, at: 1h}, {do: boot-discovery, host: n-0, at: 3h}]\n\
                faults: [{name: hangs, at: 1h, target: {cluster: b}, inject: bootkube-hangs}]\n";
    let mut conductor = conductor(text);
    let now = Timestamp::from_secs(100);
    conductor.start(now);
    let (host, own, cluster) = (conductor.host_ids[0], conductor.host_ids[1], Uuid::from_u128(9));
    let belongs = |conductor: &mut Conductor, host: Uuid, cluster: Option<Uuid>| {
        let what = What::HostStatus { host, cluster, from: None, to: HostStatus::Binding, info: String::new() };
        conductor.observe(now, Source::Database, None, what);
        conductor.take_machine_orders()
    };
    assert_eq!(belongs(&mut conductor, host, None), []);
    assert_eq!(belongs(&mut conductor, host, Some(cluster)), [MachineOrder::Bound { machine: 0, cluster }]);
    assert_eq!(belongs(&mut conductor, host, Some(cluster)), [], "once");
    assert_eq!(belongs(&mut conductor, host, None), [], "it still runs what was installed");
    assert_eq!(belongs(&mut conductor, own, Some(cluster)), [], "it was told at the beginning");
    let stage = Some(HostStage::WritingImageToDisk);
    let what = What::HostStage { host, from: None, to: stage, info: "60%".to_owned(), percentage: 0 };
    conductor.observe(now, Source::Database, None, what);
    assert_eq!(conductor.written.get(&host), Some(&60));
    conductor.boot_machine(host);
    assert_eq!(conductor.take_machine_orders(), [], "it is not there yet, and will boot that image anyway");
    conductor.present.hosts.insert("n-0".to_owned());
    conductor.boot_machine(host);
    assert_eq!(conductor.take_machine_orders(), [MachineOrder::BootDiscovery { machine: 0 }]);
    assert_eq!((conductor.written.get(&host), conductor.stages.get(&host)), (None, None));
    assert_eq!(belongs(&mut conductor, host, Some(cluster)), [MachineOrder::Bound { machine: 0, cluster }], "anew");
    let fault = conductor.config.scenario.faults[0].clone();
    conductor.carry_out(now, FaultOrder::Inject(fault, ResolvedTarget::Cluster("b".to_owned())));
    let orders = conductor.take_machine_orders();
    let [MachineOrder::Fault { to, .. }] = &orders[..] else { panic!("{orders:?}") };
    assert_eq!(to.join(" "), "own-0", "the machines of that cluster alone");
}
