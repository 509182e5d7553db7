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
