//! Each member that a request can change, by the schema, is changed by a check, or is named here with the reason.

use std::collections::BTreeSet;

use vlab_api::spec::WireObject;
use vlab_api::types::{HostUpdateParams, InfraEnvUpdateParams, V2ClusterUpdateParams};
use vlab_conformance::table::{self, CheckStep};

/// Members that no check changes.
const NOT_CHANGED: &[(&str, &[&str])] = &[
    (
        "the old form of a member, which the service does not act by",
        &["cluster_network_cidr", "cluster_network_host_prefix", "service_network_cidr"],
    ),
    ("about operators beside those that come with the product", &["olm_operators", "operator_bundles"]),
    ("no answer shows it", &["ignition_endpoint_http_headers", "rendezvous_ip"]),
    (
        "it shows in files of the image alone",
        &["additional_trust_bundle", "network_discovery_delay_seconds", "openshift_version"],
    ),
];

/// The members in the bodies of the requests that begin with that text and end there.
fn changed(begins: &str, ends: &str) -> BTreeSet<String> {
    let checks = table::built_in().unwrap();
    let calls = checks.iter().flat_map(|check| &check.steps).filter_map(|step| match step {
        CheckStep::Call(call) if call.call.starts_with(begins) && call.call.ends_with(ends) => Some(call),
        _ => None,
    });
    calls.filter_map(|call| call.body.as_object()).flat_map(|body| body.keys().cloned()).collect()
}

fn all_changed<T: WireObject>(begins: &str, ends: &str) {
    let changed = changed(begins, ends);
    let excused = |name: &str| NOT_CHANGED.iter().any(|(_, names)| names.contains(&name));
    let fields = T::SPEC.fields.iter().map(|field| field.name);
    let left: Vec<&str> = fields.filter(|name| !changed.contains(*name) && !excused(name)).collect();
    assert!(left.is_empty(), "no check changes {left:?} with {begins}…{ends}");
}

#[test]
fn each_member_that_can_be_changed_is_changed_by_a_check() {
    all_changed::<V2ClusterUpdateParams>("PATCH /clusters/", "<cluster>");
    all_changed::<InfraEnvUpdateParams>("PATCH /infra-envs/", "<infra_env>");
    all_changed::<HostUpdateParams>("PATCH /infra-envs/", "<a>");
}
