//! The language as its users meet it: what is shipped loads, what is wrong is refused with a message that helps.

#![expect(clippy::disallowed_methods, reason = "a test may be told to write what it compares with")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use rstest::rstest;
use vlab_scenario::{
    ActionTime, BootOrder, Catalogue, CatalogueError, Criterion, FaultRow, Firmware, HostKind, InstallMode, LoadError,
    MAX_BYTES, ParamForm, ParamRow, Scenario, SourceFile, Span, Subject, TargetForm, Topology, Vm, fault_rows, load,
};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn catalogue() -> Catalogue {
    Catalogue::folder(folder())
}

fn read(text: impl Into<Vec<u8>>) -> Result<Scenario, LoadError> {
    load(&SourceFile::new("test.yaml", text), &catalogue())
}

/// A scenario that is right, with one text in place of another. The text must be there.
fn base(change: &[(&str, &str)]) -> String {
    let mut text = BASE.to_owned();
    for (from, to) in change {
        assert!(text.contains(from), "the base scenario has no {from:?}");
        text = text.replacen(from, to, 1);
    }
    text
}

const BASE: &str = "\
version: 1
name: base
cluster:
  name: ocp
  machine_networks: [192.168.126.0/24]
  api_vips: [192.168.126.100]
  ingress_vips: [192.168.126.101]
hosts:
  - name: master
    count: 3
    role: master
    addresses: {first: 192.168.126.10}
  - name: worker
    count: 2
    role: worker
    addresses: {first: 192.168.126.20}
expect:
  - never: {hosts: all, status: error}
";

#[test]
fn the_base_of_the_other_tests_is_right() {
    let scenario = read(base(&[])).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(scenario.clusters[0].topology, Topology::Ha);
    assert_eq!(scenario.clusters[0].control_plane_count, 3);
    assert_eq!(scenario.hosts.len(), 5);
    assert_eq!(scenario.hosts[4].name, "worker-1");
    assert_eq!(scenario.hosts[4].index, 4);
    assert_eq!(scenario.hosts[4].address.unwrap().to_string(), "192.168.126.21/24");
    assert_eq!(scenario.clusters[0].install, InstallMode::Auto);
    assert!(scenario.until.clusters_ended);
    assert!(scenario.not_built.is_empty());
}

#[rstest]
#[case("sno")]
#[case("ha-3-2")]
#[case("insufficient-hardware")]
#[case("fleet-2000")]
#[case("cancel")]
#[case("reset")]
fn shipped_scenarios_load(#[case] name: &str, #[values(true, false)] embedded: bool) {
    let catalogue = if embedded { Catalogue::embedded() } else { catalogue() };
    let source = catalogue.find(name).unwrap();
    let scenario = load(&source, &catalogue).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(scenario.name, name);
    assert!(!scenario.expect.is_empty());
    assert!(scenario.not_built.is_empty());
    assert!(!scenario.description.is_empty() && !scenario.tags.is_empty());
    // Editors find the schema by the first line.
    assert!(source.bytes.starts_with(b"# yaml-language-server: $schema=./schema.json\n"));
    // And the schema names every key that the file has at the top.
    let schema = vlab_scenario::schema();
    for line in
        String::from_utf8(source.bytes).unwrap().lines().filter(|l| l.starts_with(|c: char| c.is_ascii_lowercase()))
    {
        let key = line.split(':').next().unwrap();
        assert!(schema["properties"][key].is_object(), "{key} is not in the schema");
    }
    // The resolved form can be written as JSON.
    assert_eq!(serde_json::to_value(&scenario).unwrap()["name"], name);
}

#[test]
fn every_file_of_the_catalogue_is_right() {
    let catalogue = catalogue();
    let list = catalogue.list();
    let broken: Vec<_> = list.iter().filter_map(|e| e.broken.as_ref().map(|b| format!("{}: {b}", e.path))).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(list.len() >= 4);
    assert_eq!(list.iter().find(|e| e.name == "fleet-2000").unwrap().hosts, 2000);
    let profiles = catalogue.time_profile_names();
    assert!(profiles.contains(&"real".to_owned()) && profiles.contains(&"fast".to_owned()));
    for name in profiles {
        let profile = catalogue.time_profile(&name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(profile.settings().is_ok(), profile.host_timing().is_ok());
    }
    assert_eq!(catalogue.time_profile("real").unwrap().settings().unwrap(), Default::default());
    let fast = catalogue.time_profile("fast").unwrap();
    assert!(fast.clock_scale > 1.0 && fast.work_scale > 1.0);
    let [vm, real_agent] = ["vm", "real-agent"].map(|name| catalogue.time_profile(name).unwrap());
    assert_eq!(real_agent.hosts, vm.hosts, "it is like that one");
    assert_eq!(real_agent.settings["HOST_MONITOR_INTERVAL"], vm.settings["HOST_MONITOR_INTERVAL"]);
    assert_ne!(real_agent.settings["HOST_MAX_DISCONNECTION_TIME"], vm.settings["HOST_MAX_DISCONNECTION_TIME"]);
    assert_eq!(catalogue.hardware_profile("nothing"), None);
    for name in catalogue.hardware_profiles() {
        assert!(catalogue.hardware_profile(&name).unwrap().contains(&format!("name: {name}")));
    }
}

#[test]
fn a_fleet_has_an_address_for_each_host() {
    let catalogue = catalogue();
    let scenario = load(&catalogue.find("fleet-2000").unwrap(), &catalogue).unwrap();
    let addresses: std::collections::BTreeSet<_> = scenario.hosts.iter().map(|h| h.address.unwrap().addr()).collect();
    assert_eq!(addresses.len(), 2000);
    assert!(scenario.hosts.iter().all(|h| h.cluster.is_none() && h.address.unwrap().prefix_len() == 16));
    assert_eq!(scenario.until.idle_polls, 5);
    assert!(scenario.load.unwrap().measure);
}

#[test]
fn the_committed_schema_is_the_derived_one() {
    let path = folder().join("schema.json");
    let derived = vlab_scenario::schema_text();
    if std::env::var_os("VLAB_UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &derived).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == derived,
        "scenarios/schema.json is old: run this test with VLAB_UPDATE_SCHEMA=1 and commit it"
    );
}

/// The pages of the reference are what the definitions say. `VLAB_UPDATE_DOCS=1` writes them again.
#[rstest]
#[case("faults.md", vlab_scenario::reference_faults())]
fn the_committed_reference_is_the_generated_one(#[case] name: &str, #[case] page: String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("VLAB_UPDATE_DOCS").is_some_and(|value| !value.is_empty()) {
        std::fs::write(&path, &page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == page, "docs/reference/{name} is out of date: VLAB_UPDATE_DOCS=1 writes it again");
}

/// Nothing that a scenario says about a fault is left out or read as something else: a parameter that does not exist, or whose
/// value cannot be, is refused at its place.
mod parameters {
    use super::*;

    /// A scenario whose only fault is of that kind, and the column of what stands in the place of `VALUE`.
    fn with_fault(row: &FaultRow, with: &str) -> String {
        let target = match row.targets[0] {
            TargetForm::Hosts => "worker-1",
            TargetForm::Link => "{between: [master-0, worker-0]}",
            TargetForm::Cluster => "control-plane",
            TargetForm::Service => "service",
            TargetForm::Postgres => "postgres",
            TargetForm::Gateway => "gateway",
            TargetForm::Kube => "kube",
        };
        let api = if row.needs_hub() { "kube" } else { "rest" };
        let fault = format!(
            "needs: [real-time]\nfaults:\n  - name: it\n    at: 1m\n    target: {target}\n    inject: {}\n    with: {{{with}}}\napi: {api}\nexpect:",
            row.word
        );
        base(&[("expect:", &fault)])
    }

    /// A value that is right.
    fn good(form: ParamForm) -> String {
        match form {
            ParamForm::Span => "5s".to_owned(),
            ParamForm::Number(least, _) => least.to_string(),
            ParamForm::Text => "some text".to_owned(),
            ParamForm::Words(words) => words[0].to_owned(),
            ParamForm::Address => "192.0.2.1".to_owned(),
            ParamForm::Host => "master-0".to_owned(),
            ParamForm::Stage => "Installing".to_owned(),
            ParamForm::FinalizingStage => "Adding router ca".to_owned(),
            ParamForm::Operation => "v2GetCluster".to_owned(),
        }
    }

    /// Everything that the kind takes, with other text in the place of one name or value.
    fn mistyped(row: &FaultRow, at: usize, name: Option<&str>, value: Option<&str>) -> String {
        let item = |(i, param): (usize, &ParamRow)| match i == at {
            true => format!("{}: {:?}", name.unwrap_or(param.name), value.unwrap_or(&good(param.form))),
            false => format!("{}: {:?}", param.name, good(param.form)),
        };
        row.all_params().enumerate().map(item).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn whatever_a_kind_takes_can_be_written() {
        for row in fault_rows() {
            let scenario =
                read(with_fault(row, &mistyped(row, usize::MAX, None, None))).unwrap_or_else(|e| panic!("{e}"));
            assert!(std::ptr::eq(scenario.faults[0].row(), row));
        }
    }

    fn kinds_with_parameters() -> Vec<(&'static FaultRow, usize)> {
        fault_rows().flat_map(|row| (0..row.all_params().count()).map(move |at| (row, at))).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_mistyped_name_is_refused(pick: proptest::sample::Index, typo in "[a-z_]{1,12}") {
            let all = kinds_with_parameters();
            let (row, at) = all[pick.index(all.len())];
            prop_assume!(row.all_params().all(|p| p.name != typo));
            let text = with_fault(row, &mistyped(row, at, Some(&typo), None));
            let error = read(text).expect_err("it was taken");
            let expected = format!("there is no parameter of `{}` `{typo}`", row.word);
            let problem = error.problems().iter().find(|p| p.message == expected);
            prop_assert!(problem.is_some_and(|p| error.line_column(p).is_some_and(|(line, _)| line == 23)), "{error}");
        }

        #[test]
        fn a_value_that_cannot_be_is_refused(pick: proptest::sample::Index, junk in "[!-*:-~][ -~]{0,20}") {
            let all = kinds_with_parameters();
            let (row, at) = all[pick.index(all.len())];
            let param = row.all_params().nth(at).unwrap();
            // Any text is a text.
            prop_assume!(param.form != ParamForm::Text);
            let error = match read(with_fault(row, &mistyped(row, at, None, Some(&junk)))) {
                Err(error) => error,
                // It happened to be right: then it is what was written.
                Ok(scenario) => {
                    prop_assert!(format!("{:?}", scenario.faults[0]).contains(junk.trim()), "{junk:?} became {:?}", scenario.faults[0]);
                    return Ok(());
                }
            };
            prop_assert!(error.problems().iter().all(|p| error.line_column(p).is_some_and(|(line, _)| line == 23)), "{error}");
        }
    }
}

/// The diagnostic of a refused file, in full.
fn refused(name: &str, text: impl Into<Vec<u8>>) {
    let error = match read(text) {
        Ok(scenario) => panic!("{name} was not refused: {scenario:#?}"),
        Err(error) => error,
    };
    for problem in error.problems() {
        assert!(!problem.message.is_empty());
        assert!(!problem.message.contains("Spanned") && !problem.message.contains("File"), "{}", problem.message);
    }
    insta::with_settings!({ snapshot_path => "snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, error.to_string());
    });
}

#[rstest]
#[case::empty("empty", "")]
#[case::only_comments("only_comments", "# nothing\n---\n")]
#[case::no_mapping("no_mapping", "- a\n- b\n")]
#[case::a_word("a_word", "hello\n")]
#[case::not_utf8("not_utf8", b"version: 1\nname: caf\xe9\nhosts: []\n" as &[u8])]
#[case::tab("tab_indentation", "version: 1\nname: x\ncluster:\n\tname: y\n")]
#[case::no_yaml("unclosed_bracket", "version: 1\nname: [x\nhosts: []\n")]
#[case::colon("text_with_colon", "version: 1\nname: x\ndescription: a: b\nhosts: []\n")]
#[case::two_documents("two_documents", "version: 1\nname: x\nhosts: [{name: a}]\nuntil: {at: 1m}\n---\nversion: 1\n")]
#[case::unknown_alias("unknown_alias", "version: 1\nname: *x\nhosts: []\n")]
#[case::control("control_characters", "version: 1\nname: \"a\x1b[31mb\"\nhosts: [{name: a}]\nuntil: {at: 1m}\n")]
#[case::missing_key("missing_key", "version: 1\nname: x\n")]
#[case::no_hosts("no_hosts", "version: 1\nname: x\nhosts: []\nuntil: {at: 1m}\n")]
#[case::wrong_version("wrong_version", "version: 2\nname: x\nhosts: [{name: a}]\nuntil: {at: 1m}\n")]
#[case::no_end("nothing_ends_it", "version: 1\nname: x\nhosts: [{name: a}]\n")]
fn files_that_are_no_scenario(#[case] name: &str, #[case] text: impl Into<Vec<u8>>) {
    refused(name, text);
}

#[rstest]
#[case::unknown_key("unknown_key", &[("machine_networks", "machine_network")])]
#[case::unknown_top_key("unknown_key_at_the_top", &[("expect:", "expects:")])]
#[case::unknown_deep("unknown_key_in_a_flow", &[("status: error", "statsu: error")])]
#[case::duplicate("duplicate_key", &[("  name: ocp\n", "  name: ocp\n  name: ocp2\n")])]
#[case::wrong_type_number("wrong_type_number", &[("count: 3", "count: three")])]
#[case::wrong_type_list("wrong_type_list", &[("[192.168.126.0/24]", "192.168.126.0/24")])]
#[case::wrong_type_mapping("wrong_type_mapping", &[("{first: 192.168.126.10}", "192.168.126.10")])]
#[case::wrong_type_bool("wrong_type_bool", &[("  name: ocp\n", "  name: ocp\n  user_managed_networking: maybe\n")])]
#[case::scalar_for_hosts("wrong_type_hosts", &[("hosts: all", "hosts: [all]")])]
fn wrong_form(#[case] name: &str, #[case] change: &[(&str, &str)]) {
    refused(name, base(change));
}

#[rstest]
#[case::two_masters("two_masters", &[("count: 3", "count: 2")])]
#[case::too_many_masters("six_masters", &[("count: 3", "count: 6")])]
#[case::count_differs("role_count_differs", &[("  name: ocp\n", "  name: ocp\n  control_plane_count: 5\n")])]
#[case::count_less("fewer_masters_than_groups", &[("  name: ocp\n", "  name: ocp\n  control_plane_count: 3\n"), ("count: 3", "count: 4")])]
#[case::old_version("four_masters_old_version", &[("  name: ocp\n", "  name: ocp\n  openshift_version: 4.16\n"), ("count: 3", "count: 4")])]
#[case::compact_workers("compact_with_workers", &[("  name: ocp\n", "  name: ocp\n  topology: compact\n")])]
#[case::sno_worker("sno_with_worker_and_vips", &[("  name: ocp\n", "  name: ocp\n  topology: sno\n"), ("count: 3", "count: 1"), ("count: 2", "count: 1")])]
#[case::overlap("overlapping_networks", &[("  name: ocp\n", "  name: ocp\n  service_networks: [192.168.0.0/16]\n")])]
#[case::overlap_default("overlap_with_a_default", &[("192.168.126.0/24", "10.129.0.0/24"), ("192.168.126.100", "10.129.0.100"), ("192.168.126.101", "10.129.0.101"), ("{first: 192.168.126.10}", "{first: 10.129.0.10}"), ("{first: 192.168.126.20}", "{first: 10.129.0.20}")])]
#[case::vip_outside("vip_outside", &[("[192.168.126.100]", "[192.168.127.100]")])]
#[case::vip_missing("vips_missing", &[("  api_vips: [192.168.126.100]\n  ingress_vips: [192.168.126.101]\n", "")])]
#[case::vip_same("vips_equal", &[("[192.168.126.101]", "[192.168.126.100]")])]
#[case::vip_broadcast("vip_broadcast", &[("[192.168.126.101]", "[192.168.126.255]")])]
#[case::vip_umn("vips_with_user_managed_networking", &[("  name: ocp\n", "  name: ocp\n  user_managed_networking: true\n")])]
#[case::umn_platform("platform_against_networking", &[("  name: ocp\n", "  name: ocp\n  user_managed_networking: true\n  platform: baremetal\n"), ("  api_vips: [192.168.126.100]\n  ingress_vips: [192.168.126.101]\n", "")])]
#[case::leased_too("vips_leased_and_given", &[("  name: ocp\n", "  name: ocp\n  vip_dhcp_allocation: true\n  openshift_version: 4.14\n")])]
#[case::leased_late("vips_leased_too_late", &[("  name: ocp\n", "  name: ocp\n  vip_dhcp_allocation: true\n"), ("  api_vips: [192.168.126.100]\n  ingress_vips: [192.168.126.101]\n", "")])]
#[case::leased_unmanaged("vips_leased_with_user_managed_networking", &[("  name: ocp\n", "  name: ocp\n  vip_dhcp_allocation: true\n  user_managed_networking: true\n  openshift_version: 4.14\n"), ("  api_vips: [192.168.126.100]\n  ingress_vips: [192.168.126.101]\n", "")])]
#[case::leased_six("vips_leased_in_ipv6", &[("  name: ocp\n", "  name: ocp\n  vip_dhcp_allocation: true\n  openshift_version: 4.14\n"), ("[192.168.126.0/24]", "[192.168.126.0/24, 'fd00:1::/64']"), ("  api_vips: [192.168.126.100]\n  ingress_vips: [192.168.126.101]\n", "")])]
#[case::leased_unreadable("vips_leased_with_a_bad_version", &[("  name: ocp\n", "  name: ocp\n  vip_dhcp_allocation: true\n  openshift_version: latest\n"), ("  api_vips: [192.168.126.100]\n  ingress_vips: [192.168.126.101]\n", "")])]
#[case::no_room("cluster_network_without_room", &[("  name: ocp\n", "  name: ocp\n  cluster_networks: [{cidr: 10.200.0.0/24, host_prefix: 25}]\n")])]
#[case::host_outside("host_outside", &[("{first: 192.168.126.10}", "{first: 192.168.130.10}")])]
#[case::host_runs_out("addresses_run_out", &[("{first: 192.168.126.10}", "{first: 192.168.126.253}")])]
#[case::host_twice("host_address_twice", &[("{first: 192.168.126.20}", "{first: 192.168.126.12}")])]
#[case::host_is_vip("host_address_is_a_vip", &[("{first: 192.168.126.20}", "{first: 192.168.126.100}")])]
#[case::host_bits("network_with_host_bits", &[("192.168.126.0/24", "192.168.126.1/24")])]
#[case::zero("count_zero", &[("count: 2", "count: 0")])]
#[case::negative("count_negative", &[("count: 2", "count: -2")])]
#[case::too_many("count_too_big", &[("count: 2", "count: 20001")])]
#[case::too_many_together("counts_too_big_together", &[("count: 2", "count: 19999")])]
#[case::profile("unknown_profile", &[("    role: worker\n", "    role: worker\n    profile: standart\n")])]
#[case::time_profile("unknown_time_profile", &[("cluster:", "service: {time_profile: fats}\ncluster:")])]
#[case::setting("unknown_setting", &[("cluster:", "service:\n  settings: {HOST_MONITOR_INTERVALL: 1s}\ncluster:")])]
#[case::setting_value("bad_setting", &[("cluster:", "service:\n  settings: {HOST_MONITOR_INTERVAL: soon}\ncluster:")])]
#[case::need("unknown_need", &[("cluster:", "needs: [postgres, kvmm]\ncluster:")])]
#[case::name("bad_name", &[("name: base", "name: My Scenario")])]
#[case::group_twice("group_twice", &[("name: worker", "name: master")])]
#[case::cluster_name("unknown_cluster_of_group", &[("    role: worker\n", "    role: worker\n    cluster: ocq\n")])]
#[case::both("cluster_and_clusters", &[("hosts:\n", "clusters:\n  - name: two\nhosts:\n")])]
#[case::role("unknown_role", &[("role: worker", "role: wroker")])]
#[case::remote("remote_without_url", &[("cluster:", "service: {kind: remote}\ncluster:")])]
#[case::remote_settings("remote_with_settings", &[("cluster:", "service: {kind: remote, url: 'http://127.0.0.1:1', settings: {HOST_MONITOR_INTERVAL: 1s}}\ncluster:")])]
#[case::process("process_without_program", &[("cluster:", "service: {kind: process}\ncluster:")])]
#[case::program("program_of_a_remote_service", &[("cluster:", "service: {kind: remote, url: 'http://127.0.0.1:1', program: x}\ncluster:")])]
#[case::fault_target("fault_target_unknown", &[("expect:", "faults:\n  - name: cut\n    at: 5m\n    target: mastr-0\n    inject: link-down\nexpect:")])]
#[case::many("several_at_once", &[("count: 3", "count: 2"), ("[192.168.126.101]", "[192.168.127.101]"), ("status: error", "status: eror"), ("role: worker", "role: wroker")])]
fn contradictions(#[case] name: &str, #[case] change: &[(&str, &str)]) {
    refused(name, base(change));
}

#[rstest]
#[case("fault_kind_unknown", "{name: cut, at: 5m, target: master-0, inject: disconect}")]
#[case("fault_no_time", "{name: cut, at: 5, target: master-0, inject: disconnect}")]
#[case("fault_at_nothing", "{name: cut, at: {host: master-0}, target: master-0, inject: disconnect}")]
#[case("fault_at_typo", "{name: cut, at: {host: master-0, statsu: known}, target: master-0, inject: disconnect}")]
#[case("fault_after_itself", "{name: cut, at: {fault: cut, phase: end}, target: master-0, inject: disconnect}")]
#[case("fault_after_nobody", "{name: cut, at: {fault: cat}, target: master-0, inject: disconnect}")]
#[case(
    "fault_percent_of_a_stage_without",
    "{name: cut, at: {host: master-0, stage: Installing, percent: 4}, target: master-0, inject: crash}"
)]
#[case("fault_of_the_wrong_thing", "{name: cut, at: 5m, target: control-plane, inject: disconnect}")]
#[case("fault_of_a_link", "{name: cut, at: 5m, target: master-0, inject: partition}")]
#[case(
    "fault_link_of_three",
    "{name: cut, at: 5m, target: {between: [master-0, master-1, master-2]}, inject: partition}"
)]
#[case("fault_link_of_one", "{name: cut, at: 5m, target: {between: [master-0, master-0]}, inject: partition}")]
#[case("fault_too_many_chosen", "{name: cut, at: 5m, target: {hosts: master, choose: 4}, inject: crash}")]
#[case(
    "fault_two_ends",
    "{name: cut, at: 5m, target: master-0, inject: disconnect, for: 1m, until: {host: master-0, status: error}}"
)]
#[case("fault_moment_with_an_end", "{name: cut, at: 5m, target: master-0, inject: reboot, for: 1m}")]
#[case("fault_parameter_missing", "{name: cut, at: 5m, target: master-0, inject: stuck-stage}")]
#[case("fault_parameter_unknown", "{name: cut, at: 5m, target: master-0, inject: disk-fails, with: {percnt: 3}}")]
#[case("fault_parameter_of_none", "{name: cut, at: 5m, target: master-0, inject: disconnect, with: {how: hard}}")]
#[case("fault_parameter_too_big", "{name: cut, at: 5m, target: master-0, inject: disk-fails, with: {percent: 300}}")]
#[case(
    "fault_parameter_not_its_stage",
    "{name: cut, at: 5m, target: master-0, inject: stuck-stage, with: {stage: Joined}}"
)]
#[case("fault_parameter_itself", "{name: cut, at: 5m, target: master-0, inject: duplicate-id, with: {of: master-0}}")]
#[case("fault_parameter_no_address", "{name: cut, at: 5m, target: ocp, inject: dns-wrong, with: {address: here}}")]
#[case("fault_then_of_a_time", "{name: cut, at: 5m, then: 1m, target: master-0, inject: crash}")]
fn faults_that_cannot_be(#[case] name: &str, #[case] fault: &str) {
    refused(name, base(&[("expect:", &format!("faults:\n  - {fault}\nexpect:"))]));
}

/// An id is one in its infra-env, and each cluster has its own.
#[rstest]
#[case("fault_id_of_another_cluster", "a")]
#[case("fault_id_of_another_cluster_by_role", "{cluster: one, role: bootstrap}")]
fn an_id_is_taken_from_a_host_of_the_same_cluster(#[case] name: &str, #[case] target: &str) {
    let text = "\
version: 1
name: two
clusters: [{name: one, topology: sno}, {name: other, topology: sno}]
hosts: [{name: a, cluster: one}, {name: b, cluster: other}]
faults: [{name: twice, at: 5m, target: TARGET, inject: duplicate-id, for: 5m, with: {of: b-0}}]
";
    refused(name, text.replace("TARGET", target));
}

#[test]
fn faults_are_resolved() {
    let faults = "faults:
  - {name: a, at: 5m, target: bootstrap, inject: crash}
  - {name: b, at: {fault: a, phase: effect}, then: 10s, target: {hosts: all, choose: 2}, inject: disk-fails}
  - {name: c, at: {host: master-1, step: inventory}, target: {between: [master-0, master]}, inject: latency, for: 2m, with: {rtt_ms: 900}}
  - {name: d, at: {host: master-1, stage: Writing image to disk, percent: 40}, target: control-plane, inject: vip-taken, until: {fault: c, phase: end}}
expect:";
    let scenario = read(base(&[("expect:", faults)])).unwrap();
    let all: Vec<String> = scenario
        .faults
        .iter()
        .map(|f| {
            format!("{} {} {:?} {:?} {:?} {:?} {:?}", f.name, f.word(), f.when, f.target, f.lasts, f.until, f.injection)
        })
        .collect();
    insta::with_settings!({ snapshot_path => "snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("faults_are_resolved", all.join("\n"));
    });
    assert!(scenario.mentions_steps());
}

#[rstest]
#[case("expect_unknown_host", "never: {host: master-7, status: error}")]
#[case("expect_group_as_host", "never: {host: master, status: error}")]
#[case("expect_host_as_group", "never: {hosts: master-0, status: error}")]
#[case("expect_unknown_group", "never: {hosts: mastr, status: error}")]
#[case("expect_unknown_status", "never: {hosts: all, status: knwon}")]
#[case("expect_status_of_clusters", "never: {hosts: all, status: finalizing}")]
#[case("expect_status_of_hosts", "never: {cluster: ocp, status: known}")]
#[case("expect_unknown_stage", "never: {hosts: all, stage: Writing to disk}")]
#[case("expect_stage_of_another_role", "eventually: {role: worker, stage: Waiting for bootkube}")]
#[case("expect_unknown_validation", "validation: {hosts: all, id: has-cpu-cores-for-roles, is: success}")]
#[case("expect_validation_of_hosts", "validation: {cluster: ocp, id: has-inventory, is: success}")]
#[case("expect_bad_validation_status", "validation: {hosts: all, id: has-inventory, is: good}")]
#[case("expect_unknown_event", "event: {name: host_registration_suceeded}")]
#[case("expect_event_never_false", "event: {name: host_registration_succeeded, min: 0}")]
#[case("expect_event_min_above_max", "event: {name: host_registration_succeeded, min: 3, max: 2}")]
#[case("expect_negative_count", "event: {name: host_registration_succeeded, count: -1}")]
#[case("expect_impossible_edge", "sequence: {hosts: all, statuses: [discovering, installed]}")]
#[case("expect_impossible_start", "sequence: {hosts: all, statuses: [known, disconnected]}")]
#[case("expect_repeated_status", "sequence: {hosts: all, statuses: [discovering, known, known], mode: partial}")]
#[case("expect_stages_backwards", "sequence: {role: worker, stages: [Installing, Starting installation]}")]
#[case("expect_all_optional", "sequence: {hosts: all, statuses: ['discovering?']}")]
#[case("expect_all_may_be_missing", "sequence: {hosts: all, statuses: ['discovering|known*']}")]
#[case(
    "expect_unknown_word_of_several",
    "sequence: {hosts: all, statuses: [discovering, 'known|instaled*', known], mode: partial}"
)]
#[case(
    "expect_impossible_edge_of_several",
    "sequence: {hosts: all, statuses: [discovering, 'known|installed*', known]}"
)]
#[case("expect_stretch_of_a_cluster", "sequence: {hosts: all, statuses: [until-ready]}")]
#[case("expect_stretch_of_hosts", "sequence: {cluster: ocp, statuses: [until-known, installed], mode: partial}")]
#[case("expect_edge_after_a_stretch", "sequence: {cluster: ocp, statuses: [until-ready, installed]}")]
#[case("expect_empty_sequence", "sequence: {hosts: all, statuses: []}")]
#[case("expect_sequence_of_nobody", "sequence: {statuses: [discovering]}")]
#[case("expect_two_subjects", "never: {host: master-0, hosts: all, status: error}")]
#[case("expect_nothing_seen", "never: {hosts: all}")]
#[case("expect_two_things_seen", "never: {hosts: all, status: error, stage: Done}")]
#[case("expect_nothing", "name: empty")]
#[case("expect_two_kinds", "{never: {hosts: all, status: error}, event: {name: host_bind_failed}}")]
#[case("expect_see_alone", "see: {hosts: all, status: known}")]
#[case("expect_before_without_see", "{never: {hosts: all, status: error}, before: {cluster: ocp, status: ready}}")]
#[case("expect_nobody_of_role", "never: {role: arbiter, status: error}")]
#[case("expect_too_many", "eventually: {hosts: worker, status: known, at_least: 3}")]
#[case("expect_bad_duration", "{eventually: {hosts: all, status: known}, within: 10}")]
#[case("expect_bad_unit", "{eventually: {hosts: all, status: known}, within: 10 minutes}")]
#[case("expect_no_duration", "stage_duration: {hosts: all, stage: Rebooting}")]
#[case("expect_unknown_operator", "operator: {name: consol, is: available}")]
#[case("expect_unknown_deed", "never: {hosts: all, did: powered-of}")]
#[case("expect_deed_of_clusters", "never: {hosts: all, did: bootkube-done}")]
#[case("expect_deed_of_hosts", "never: {cluster: ocp, did: frozen}")]
#[case("expect_finalizing_stage_of_hosts", "eventually: {hosts: all, finalizing_stage: Done}")]
fn expectations_that_cannot_be(#[case] name: &str, #[case] item: &str) {
    refused(name, base(&[("never: {hosts: all, status: error}", item)]));
}

#[rstest]
#[case("pivot_unknown_key", "{order: strict, withn: 5m}")]
#[case("pivot_unknown_order", "{order: strikt}")]
#[case("pivot_unknown_stage", "{stages: {bootkube-dun: 5m}}")]
#[case("pivot_zero", "{stages: {bootkube-done: 0s}}")]
fn pivots_that_cannot_be(#[case] name: &str, #[case] pivot: &str) {
    refused(name, base(&[("expect:", &format!("pivot: {pivot}\nexpect:"))]));
}

#[test]
fn a_pivot_wants_a_cluster_that_has_it() {
    let single = "version: 1\nname: one\ncluster: {topology: sno}\nhosts: [{name: node}]\n";
    let joined = "pivot: {stages: {second-master-joined: 5m}}\n";
    refused("pivot_of_a_single_node", format!("{single}{joined}"));
    let never = single.replace("topology: sno", "topology: sno, install: never");
    refused("pivot_of_nobody", format!("{never}pivot: {{within: 1h}}\nuntil: {{at: 10m}}\n"));
}

#[test]
fn a_pivot_is_resolved() {
    use vlab_model::pivot::PivotMoment;
    let pivot = "pivot: {within: 40m, stages: {bootkube-done: 10m, etcd-quorum: 5m wall}}\nexpect:";
    let pivot = read(base(&[("expect:", pivot)])).unwrap_or_else(|e| panic!("{e}")).pivot.unwrap();
    assert_eq!(pivot.order, vlab_scenario::PivotOrder::Strict);
    let spans: Vec<_> = pivot.stages.iter().map(|(m, s)| (*m, s.to_string())).collect();
    let expected = [(PivotMoment::BootkubeDone, "10m"), (PivotMoment::EtcdQuorum, "5m wall")];
    assert_eq!(spans, expected.map(|(m, s)| (m, s.to_owned())));
}

#[rstest]
#[case("day2_without_opening", "")]
#[case("day2_master", "actions: [{do: allow-add-hosts, at: 2h}]\n")]
fn hosts_of_day_2_that_cannot_be(#[case] name: &str, #[case] actions: &str) {
    let role = if actions.is_empty() { "worker" } else { "master" };
    let text = base(&[
        ("expect:", &format!("{actions}expect:")),
        ("hosts:\n", &format!("hosts:\n  - {{name: extra, role: {role}, day2: true}}\n")),
    ]);
    refused(name, text);
}

#[test]
fn a_dual_stack_cluster_gives_its_hosts_two_addresses() {
    let text = "version: 1\nname: both\ncluster:\n  topology: compact\n  machine_networks: [10.1.0.0/24, 'fd00:1::/64']\n  \
        api_vips: [10.1.0.2, 'fd00:1::a']\n  ingress_vips: [10.1.0.3, 'fd00:1::3']\nhosts: [{name: m, count: 3, role: master}]\n";
    let scenario = read(text.to_owned()).unwrap_or_else(|e| panic!("{e}"));
    assert!(scenario.clusters[0].is_dual_stack());
    let second: Vec<String> = scenario.hosts.iter().map(|h| h.second_address.unwrap().to_string()).collect();
    // The tenth address is the API's.
    assert_eq!(second, ["fd00:1::b/64", "fd00:1::c/64", "fd00:1::d/64"]);
}

#[rstest]
#[case("action_unknown", "{do: instal, at: 5m}")]
#[case("action_without_time", "{do: cancel}")]
#[case("action_two_times", "{do: cancel, at: 5m, after: {cluster: ocp, status: installing}}")]
#[case("action_without_host", "{do: delete-host, at: 5m}")]
#[case("action_refused_machine", "{do: boot-discovery, at: 5m, host: master-0, refused: 409}")]
#[case("action_on_hosts_not_cluster", "{do: cancel, at: 5m, host: master-0}")]
#[case("action_changes_nothing", "{do: patch-host, at: 5m, host: master-0}")]
#[case("action_refusal_that_is_none", "{do: cancel, at: 5m, refused: 200}")]
fn actions_that_cannot_be(#[case] name: &str, #[case] item: &str) {
    refused(name, base(&[("expect:", &format!("actions:\n  - {item}\nexpect:"))]));
}

#[test]
fn actions_are_resolved() {
    let text = base(&[(
        "expect:",
        "actions:\n  - {do: cancel, after: {role: bootstrap, stage: Writing image to disk}, then: 30s, refused: 409}\nexpect:",
    )]);
    let scenario = read(text).unwrap_or_else(|e| panic!("{e}"));
    let action = &scenario.actions[0];
    assert_eq!((action.cluster.as_deref(), action.refused, action.line), (Some("ocp"), Some(409), 18));
    let ActionTime::After { moment, then } = &action.when else { panic!("{action:?}") };
    assert!(matches!(&moment.subject, Subject::Role { cluster, .. } if cluster == "ocp"));
    assert_eq!(*then, Span::Service(Duration::from_secs(30)));
}

#[test]
fn hosts_of_the_pool_that_are_bound_count_for_their_cluster() {
    let text = base(&[
        ("    role: master\n", "    role: master\n    cluster: none\n"),
        ("expect:", "actions:\n  - {do: bind, at: 5m, hosts: master}\nexpect:"),
    ]);
    let scenario = read(text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(scenario.hosts_of(None).count(), 3);
    assert_eq!(scenario.actions[0].hosts.len(), 3);
    assert_eq!(scenario.clusters[0].control_plane_count, 3);
}

#[test]
fn vips_can_be_set_later() {
    let text = base(&[
        ("  api_vips: [192.168.126.100]\n  ingress_vips: [192.168.126.101]\n", ""),
        (
            "expect:",
            "actions:\n  - {do: set-vips, at: 5m, api_vips: [192.168.126.100], ingress_vips: [192.168.126.101]}\nexpect:",
        ),
    ]);
    assert!(read(text).is_ok());
}

/// The base with its five hosts as virtual machines.
fn machines(change: &[(&str, &str)]) -> String {
    let kind = |role: &str| (format!("    role: {role}\n"), format!("    role: {role}\n    kind: vm\n"));
    let (masters, workers) = (kind("master"), kind("worker"));
    let mut all = vec![(masters.0.as_str(), masters.1.as_str()), (workers.0.as_str(), workers.1.as_str())];
    all.extend(change);
    base(&all)
}

#[test]
fn a_machine_has_what_the_group_says_and_else_what_is_usual() {
    let vm = "    kind: vm\n    vm: {cpus: 2, memory_mib: 700, disk_gb: 20, firmware: uefi, tpm: true, boot_order: cd-first, \
              agent: tools/agent, installer: i, controller: /c, ignore_console: [unit-failed]}\n";
    let scenario = read(machines(&[("    kind: vm\n", vm)])).unwrap_or_else(|e| panic!("{e}"));
    assert!(scenario.not_built.is_empty());
    assert!(scenario.hosts.iter().all(|host| host.kind == HostKind::Vm));
    let expected = Vm {
        cpus: 2,
        memory_mib: 700,
        disk_gb: Some(20),
        disks: vec![],
        firmware: Firmware::Uefi,
        tpm: true,
        boot_order: BootOrder::CdFirst,
        agent: Some("tools/agent".into()),
        installer: Some("i".into()),
        controller: Some("/c".into()),
        ignore_console: vec!["unit-failed".to_owned()],
    };
    assert_eq!(scenario.hosts[0].vm, expected);
    assert_eq!(scenario.hosts[3].vm, Vm::default());
}

#[rstest]
#[case("{cpus: 0}", "the number of the machine's processors is 0; it must be between 1 and 256")]
#[case("{memory_mib: 1}", "the machine's memory in MiB is 1")]
#[case("{firmware: grub}", "`grub` is not a firmware")]
#[case("{boot_order: disk}", "`disk` is not a boot order")]
#[case("{ignore_console: [kernel-panik]}", "there is no console check `kernel-panik`")]
#[case("{iso: x}", "unknown key `iso`")]
fn a_machine_that_cannot_be_is_refused(#[case] vm: &str, #[case] expected: &str) {
    let error =
        read(machines(&[("    kind: vm\n", &format!("    kind: vm\n    vm: {vm}\n"))])).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn hosts_of_a_cluster_are_of_one_kind() {
    let error = read(base(&[("    role: worker\n", "    role: worker\n    kind: vm\n")])).unwrap_err().to_string();
    assert!(error.contains("of two kinds: `master` is `simulated`, and `worker` is `vm`"), "{error}");
}

#[rstest]
#[case("{kind: container}", "needs an `image`")]
#[case("{kind: container, image: \"\"}", "image is empty or contains spaces")]
#[case("{kind: container, image: \"a b\"}", "image is empty or contains spaces")]
#[case("{kind: container, image: a, postgres_image: \"\"}", "PostgreSQL's image is empty or contains spaces")]
#[case("{kind: process, program: /p, image: a}", "`image` is only for a service of kind `container`")]
#[case("{postgres_image: a}", "`postgres_image` is only for a service of kind `container`")]
#[case("{kind: container, image: a, program: /p}", "`program` is only for a service of kind `process`")]
fn images_belong_to_containers(#[case] service: &str, #[case] expected: &str) {
    let error = read(base(&[("cluster:", &format!("service: {service}\ncluster:"))])).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_container_has_an_image_and_may_have_one_for_postgresql() {
    let service = "service: {kind: container, image: a:1, postgres_image: \"b:2\"}\ncluster:";
    let scenario = read(base(&[("cluster:", service)])).unwrap_or_else(|e| panic!("{e}"));
    assert!(scenario.not_built.is_empty());
    assert_eq!(scenario.service.image.as_deref(), Some("a:1"));
    assert_eq!(scenario.service.postgres_image.as_deref(), Some("b:2"));
}

#[test]
fn expectations_without_a_name_get_one() {
    let scenario = read(base(&[(
        "expect:\n",
        "expect:\n  - validation: {hosts: all, id: connected, is: success}\n  - validation: {hosts: all, id: connected, is: success}\n",
    )]))
    .unwrap_or_else(|e| panic!("{e}"));
    let names: Vec<_> = scenario.expect.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "5 hosts (master-0 … worker-1): validation connected is success at the end",
            "5 hosts (master-0 … worker-1): validation connected is success at the end (line 19)",
            "never: any of 5 hosts (master-0 … worker-1): status error",
        ]
    );
    assert!(matches!(&scenario.expect[2].check, Criterion::Never { .. }));
}

/// Without an expectation clusters end installed; where they cannot, the scenario says nothing that could fail.
#[rstest]
#[case::plain("cluster: {topology: sno}\nhosts: [{name: n}]", "")]
#[case::installed_by_hand(
    "cluster: {topology: sno, install: never}\nhosts: [{name: n}]\nactions: [{do: install, after: {cluster: x, status: ready}}]",
    ""
)]
#[case::no_cluster("hosts: [{name: n}]\nuntil: {at: 1m}", "there is no cluster")]
#[case::nobody_installs(
    "cluster: {topology: sno, install: never}\nhosts: [{name: n}]\nuntil: {at: 1m}",
    "nobody installs the cluster x"
)]
#[case::cancelled(
    "cluster: {topology: sno}\nhosts: [{name: n}]\nactions: [{do: cancel, at: 5m}]",
    "the user cancels the installation of x"
)]
#[case::not_waited_for(
    "cluster: {topology: sno}\nhosts: [{name: n}]\nuntil: {at: 1m}",
    "the run does not wait until its clusters are installed"
)]
fn a_scenario_without_expectations_ends_installed(#[case] rest: &str, #[case] why: &str) {
    let without = read(format!("version: 1\nname: x\n{rest}\n")).map(drop).map_err(|e| e.to_string());
    match why {
        "" => assert_eq!(without, Ok(())),
        why => {
            // The message is folded where it is long.
            let refused = without.unwrap_err().replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(refused.contains("nothing says what must come of it") && refused.contains(why), "{refused}");
        }
    }
    let with = format!("version: 1\nname: x\n{rest}\nexpect: [{{never: {{hosts: all, status: disabled}}}}]\n");
    read(with).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn anchors_and_merges_may_be_used() {
    let text = "version: 1\nname: x\nhosts:\n  - &one {name: a, role: worker}\n  - {<<: *one, name: b}\nuntil: {at: 1m}\n\
                expect: [{never: {hosts: all, status: disconnected-unbound}}]\n";
    let scenario = read(text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(scenario.hosts[1].role, scenario.hosts[0].role);
}

#[test]
fn too_long_is_refused_without_being_read() {
    let error = read(vec![b'#'; 10_000_000]).unwrap_err();
    insta::with_settings!({ snapshot_path => "snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("ten_megabytes", error.to_string());
    });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("big.yaml");
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let error = SourceFile::read(&path).unwrap_err().to_string();
    assert!(error.contains("longer than 1024 KiB"), "{error}");
    let just_fits = vec![b'#'; MAX_BYTES];
    assert!(read(just_fits).unwrap_err().to_string().contains("the file is empty"));
}

#[test]
fn what_cannot_be_read_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let missing = SourceFile::read(&dir.path().join("no.yaml")).unwrap_err().to_string();
    assert!(missing.contains("cannot read it") && missing.contains("no.yaml"), "{missing}");
    let folder = SourceFile::read(dir.path()).unwrap_err().to_string();
    assert!(folder.contains("it is a folder"), "{folder}");
}

/// Files made to hurt the reader: they must be refused, quickly, with a message of a sane length.
#[rstest]
#[case::flow("deep_flow", "[".repeat(100_000))]
#[case::maps("deep_maps", "{a: ".repeat(50_000))]
#[case::blocks("deep_blocks", (0..500).map(|i| format!("{}a:\n", " ".repeat(i))).collect::<String>())]
#[case::dashes("deep_dashes", "- ".repeat(20_000))]
#[case::typed("deep_in_a_value", format!("version: 1\nname: x\nservice:\n  settings:\n    A: {}1{}\nhosts: []\n", "[".repeat(40), "]".repeat(40)))]
#[case::bomb("alias_bomb", {
    let mut text = "version: 1\nname: x\nservice:\n  settings:\n    a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (one, next) in ["a", "b", "c", "d", "e", "f", "g"].windows(2).map(|w| (w[0], w[1])) {
        text += &format!("    {next}: &{next} [{}]\n", vec![format!("*{one}"); 10].join(", "));
    }
    text + "hosts: []\n"
})]
#[case::long_line("long_line", format!("version: 1\nname: x\ndescription: {}\nhosts: [{{name: a, cuont: 1}}] # {}\n", "y".repeat(100_000), "z".repeat(100_000)))]
fn hostile(#[case] name: &str, #[case] text: String) {
    let error = read(text).unwrap_err().to_string();
    assert!(error.len() < 6_000, "{} bytes", error.len());
    insta::with_settings!({ snapshot_path => "snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, error);
    });
}

#[test]
fn unknown_scenarios_get_the_nearest_names() {
    let Err(CatalogueError::NotFound(error)) = Catalogue::embedded().find("son") else { panic!("it was found") };
    assert_eq!(error.nearest, ["sno"]);
    assert_eq!(
        error.to_string(),
        "there is no scenario `son` in the built-in catalogue; did you mean `sno`? `vlab list` shows all"
    );
    let Err(CatalogueError::NotFound(error)) = Catalogue::embedded().find("qqq") else { panic!("it was found") };
    assert!(error.nearest.is_empty(), "{error}");
    let all = Catalogue::embedded().list().len();
    assert!(error.to_string().ends_with(&format!("; `vlab list` shows the {all} that are there")), "{error}");
    assert!(matches!(catalogue().find("./no/such.yaml"), Err(CatalogueError::Unreadable(_))));
    let by_path = folder().join("sno.yaml");
    assert_eq!(catalogue().find(by_path.to_str().unwrap()).unwrap().bytes, catalogue().find("sno").unwrap().bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is in a file: no panic, and an error that can be shown.
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Err(error) = read(bytes) {
            prop_assert!(!error.render(true).is_empty());
        }
    }

    /// The same with what looks like a scenario: pieces of one, cut and put together at will.
    #[test]
    fn any_mixture(cuts in proptest::collection::vec((0usize..700, 0usize..80, 0usize..700), 1..6), junk in "[\\PC\n\t]{0,12}") {
        let mut text: Vec<char> = BASE.chars().collect();
        for (from, len, to) in cuts {
            let from = from.min(text.len());
            let piece: Vec<char> = text[from..(from + len).min(text.len())].to_vec();
            let to = to.min(text.len());
            text.splice(to..to, piece.into_iter().chain(junk.chars()));
        }
        let text: String = text.into_iter().collect();
        if let Err(error) = read(text) {
            prop_assert!(!error.to_string().is_empty());
            for problem in error.problems() {
                prop_assert!(error.line_column(problem).is_none_or(|(l, c)| l > 0 && c > 0));
            }
        }
    }

    /// Durations: what is written back reads as the same.
    #[test]
    fn durations(micros in 0u64..31_000_000_000_000, wall in any::<bool>()) {
        let duration = Duration::from_micros(micros);
        let span = if wall { Span::Wall(duration) } else { Span::Service(duration) };
        prop_assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
    }
}

#[rstest]
#[case("90s", 1.0, 90_000)]
#[case("90s", 60.0, 1_500)]
#[case("90s wall", 60.0, 90_000)]
#[case("1h30m", 1.0, 5_400_000)]
#[case("250ms", 1.0, 250)]
#[case("1.5m", 1.0, 90_000)]
#[case("10s", f64::NAN, 10_000)]
#[case("10s", 0.0, 10_000)]
fn durations_are_service_time(#[case] text: &str, #[case] scale: f64, #[case] millis: u64) {
    assert_eq!(text.parse::<Span>().unwrap().under(scale), Duration::from_millis(millis));
}

#[rstest]
#[case("")]
#[case("10")]
#[case("s")]
#[case("10 s")]
#[case("10x")]
#[case("-5s")]
#[case("1.2.3s")]
#[case("400d")]
#[case("99999999999999999999999999999999999999h")]
#[case("10swall")]
fn bad_durations(#[case] text: &str) {
    assert!(text.parse::<Span>().is_err());
}

#[test]
fn the_schema_of_load_plans_is_that_of_the_code() {
    let path = folder().join("load/schema.json");
    let text = vlab_scenario::plan_schema_text();
    if std::env::var_os("VLAB_UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "scenarios/load/schema.json is old: run this test with VLAB_UPDATE_SCHEMA=1 and commit it"
    );
}

#[test]
fn every_load_plan_that_ships_is_valid() {
    let catalogue = catalogue();
    let mut names: Vec<String> = std::fs::read_dir(folder().join("load"))
        .unwrap()
        .filter_map(|entry| Some(entry.unwrap().file_name().to_str()?.strip_suffix(".yaml")?.to_owned()))
        .collect();
    names.sort();
    assert!(!names.is_empty());
    for name in names {
        let plan = vlab_scenario::load_plan(&catalogue.find_plan(&name).unwrap(), &catalogue)
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(plan.name, name);
        assert!(catalogue.list().iter().all(|entry| entry.name != name), "a load plan is no scenario");
    }
    assert!(catalogue.find_plan("idle-100").unwrap_err().to_string().contains("idle-1000"));
}
