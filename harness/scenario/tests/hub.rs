//! The API server that a scenario brings, and how many services there are.

use std::path::PathBuf;

use rstest::rstest;
use vlab_scenario::{Catalogue, LoadError, Scenario, SourceFile, load};

/// What is read of a scenario in that file which says this, besides, from its fifth line on.
fn read(file: &str, more: &str) -> Result<Scenario, LoadError> {
    let text = format!(
        "version: 1\nname: test\ncluster: {{name: edge, topology: sno, machine_networks: [192.168.126.0/24]}}\n\
         hosts: [{{name: node}}]\n{more}\n"
    );
    load(&SourceFile::new(file, text), &Catalogue::embedded())
}

/// Where a scenario wants a real API server, its path is read from the scenario's folder.
#[rstest]
#[case("a/test.yaml", "tools/k8s", "a/tools/k8s")]
#[case("test.yaml", "../k8s", "../k8s")]
#[case("a/test.yaml", "/opt/k8s", "/opt/k8s")]
fn the_api_server_of_a_scenario(#[case] file: &str, #[case] written: &str, #[case] folder: &str) {
    let scenario = read(file, &format!("api: kube\nhub: {{assets: {written}}}")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(scenario.hub_assets, Some(PathBuf::from(folder)));
}

/// With an operator for bare metal the API server may be either.
#[rstest]
#[case("{baremetal_operator: 4.20.0}", "4.20.0", false)]
#[case("{baremetal_operator: 4.12.0-0.nightly-2022-09-01, assets: /k8s}", "4.12.0-0.nightly-2022-09-01", true)]
fn the_operator_of_a_hub(#[case] hub: &str, #[case] version: &str, #[case] real: bool) {
    let scenario = read("test.yaml", &format!("api: kube\nhub: {hub}")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(scenario.baremetal_operator.as_deref(), Some(version));
    assert_eq!(scenario.hub_assets.is_some(), real);
}

#[rstest]
#[case::over_rest("test.yaml", "hub: {assets: k8s}", "a run that asks over REST has no API server", 5)]
#[case::empty("test.yaml", "api: kube\nhub: {assets: ''}", "`assets` is empty", 6)]
#[case::nothing("test.yaml", "api: kube\nhub: {}", "assets", 6)]
#[case::no_version(
    "test.yaml",
    "api: kube\nhub: {baremetal_operator: newest}",
    "`baremetal_operator` is no version",
    6
)]
#[case::no_finalizer(
    "test.yaml",
    "api: kube\nexpect: [{never: {cluster: edge, held_by: deprovision}}]",
    "`deprovision` is not the name of a finalizer",
    6
)]
#[case::unknown("test.yaml", "api: kube\nhub: {asets: k8s}", "asets", 6)]
#[case::inside(
    "built-in:a/test.yaml",
    "api: kube\nhub: {assets: k8s}",
    "a scenario inside the program has no folder",
    6
)]
#[case::with_a_fault_of_the_hub(
    "test.yaml",
    "api: kube\nhub: {assets: k8s}\nfaults:\n  - {name: it, at: 1m, target: kube, inject: kube-down, for: 1m}",
    "`kube-down` is done by the lab's own API server",
    8
)]
fn what_is_wrong_with_a_hub_is_refused_where_it_stands(
    #[case] file: &str,
    #[case] more: &str,
    #[case] message: &str,
    #[case] line: usize,
) {
    let error = read(file, more).expect_err("it was taken");
    let problem = error.problems().iter().find(|p| p.message.contains(message));
    let place = problem.and_then(|p| error.line_column(p)).map(|(line, _)| line);
    assert_eq!(place, Some(line), "{error}");
}

#[rstest]
#[case("{replicas: 0}", "", "the number of replicas is 0; it must be between 1 and 5")]
#[case("{replicas: 2}", "needs: [rest]\n", "add `real-time` to `needs`")]
#[case("{replicas: 2}", "needs: [real-time]\n", "add `rest` to `needs`")]
#[case(
    "{kind: container, image: a, replicas: 2}",
    "needs: [real-time, rest]\n",
    "only a service that is a program of this computer"
)]
fn replicas_that_cannot_be_are_refused(#[case] service: &str, #[case] needs: &str, #[case] expected: &str) {
    let error = read("test.yaml", &format!("{needs}service: {service}")).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_fault_hits_a_replica_that_is_there() {
    let fault = "faults:\n  - {name: it, at: 1m, target: service, inject: service-kill, with: {replica: other}}";
    let error = read("test.yaml", fault).unwrap_err().to_string();
    assert!(error.contains("the service has no other replica"), "{error}");
    let two = format!("needs: [real-time, rest]\nservice: {{replicas: 2}}\n{fault}");
    let scenario = read("test.yaml", &two).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(scenario.service.replicas, 2);
}
