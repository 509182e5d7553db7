//! Draws what a user does to resources on a hub: changes of specs and annotations.
//!
//! Members and values are in a table, the plainest first; those that the controllers must refuse come last.

use vlab_scenario::{ResourceKind, ResourceOf};

use super::base::Base;
use super::scenario::index;
use super::tape::Draw;

/// The kind, the member and its values as JSON.
type Row = (ResourceKind, &'static str, &'static [&'static str]);

/// Changes of specs.
const PATCHES: &[Row] = &[
    (ResourceKind::AgentClusterInstall, "holdInstallation", &["false", "true"]),
    (ResourceKind::AgentClusterInstall, "imageSetRef", &[r#"{"name": "openshift-4.18"}"#, r#"{"name": "none-such"}"#]),
    (ResourceKind::AgentClusterInstall, "mastersSchedulable", &["true", "false"]),
    (ResourceKind::AgentClusterInstall, "sshPublicKey", &[r#""""#, r#""no key""#]),
    (ResourceKind::AgentClusterInstall, "ntpSources", &[r#"["ntp.lab.example"]"#, "null"]),
    (
        ResourceKind::AgentClusterInstall,
        "provisionRequirements",
        &[
            r#"{"controlPlaneAgents": 3, "workerAgents": 2}"#,
            r#"{"controlPlaneAgents": 1}"#,
            r#"{"controlPlaneAgents": 3}"#,
        ],
    ),
    (
        ResourceKind::AgentClusterInstall,
        "controlPlane",
        &[r#"{"name": "master", "hyperthreading": "Disabled"}"#, r#"{"name": "master", "hyperthreading": "Enabled"}"#],
    ),
    (
        ResourceKind::AgentClusterInstall,
        "diskEncryption",
        &[r#"{"enableOn": "all", "mode": "tpmv2"}"#, r#"{"enableOn": "none"}"#],
    ),
    (
        ResourceKind::AgentClusterInstall,
        "proxy",
        &[r#"{"httpProxy": "http://proxy.lab.example:3128"}"#, r#"{"httpProxy": "proxy"}"#, "null"],
    ),
    (ResourceKind::AgentClusterInstall, "manifestsConfigMapRefs", &[r#"[{"name": "nowhere"}]"#, "null"]),
    (
        ResourceKind::AgentClusterInstall,
        "ignitionEndpoint",
        &[r#"{"url": "https://ignition.lab.example:22624/config"}"#, "null", r#"{"url": "no url"}"#],
    ),
    (ResourceKind::AgentClusterInstall, "apiVIPs", &[r#"["192.168.126.200"]"#, r#"["10.0.0.1"]"#, "null"]),
    (
        ResourceKind::AgentClusterInstall,
        "networking",
        &[r#"{"machineNetwork": [{"cidr": "10.0.0.0/24"}]}"#, r#"{"serviceNetwork": ["no network"]}"#],
    ),
    (ResourceKind::ClusterDeployment, "baseDomain", &[r#""other.example""#, r#""not a domain""#]),
    (ResourceKind::ClusterDeployment, "clusterName", &[r#""other""#, r#""Not a name""#]),
    (ResourceKind::ClusterDeployment, "preserveOnDelete", &["true"]),
    (ResourceKind::ClusterDeployment, "pullSecretRef", &["null", r#"{"name": "none-such"}"#]),
    (ResourceKind::InfraEnv, "additionalNTPSources", &[r#"["ntp.lab.example"]"#, r#"["not a name"]"#, "null"]),
    (
        ResourceKind::InfraEnv,
        "kernelArguments",
        &[r#"[{"operation": "append", "value": "lab=1"}]"#, "null", r#"[{"operation": "append", "value": "a b"}]"#],
    ),
    (
        ResourceKind::InfraEnv,
        "ignitionConfigOverride",
        &[r#""{\"ignition\": {\"version\": \"3.1.0\"}}""#, r#""""#, r#""not json""#],
    ),
    (ResourceKind::InfraEnv, "sshAuthorizedKey", &[r#""""#, r#""no key""#]),
    (
        ResourceKind::InfraEnv,
        "proxy",
        &[r#"{"httpProxy": "http://proxy.lab.example:3128"}"#, r#"{"httpProxy": "proxy"}"#, "null"],
    ),
    (ResourceKind::InfraEnv, "pullSecretRef", &[r#"{"name": "none-such"}"#]),
    (ResourceKind::Agent, "approved", &["true", "false"]),
    (ResourceKind::Agent, "role", &[r#""worker""#, r#""master""#, r#""""#]),
    (ResourceKind::Agent, "hostname", &[r#""renamed""#, r#""localhost""#, r#""Not A Name""#]),
    (ResourceKind::Agent, "installerArgs", &[r#""[\"--append-karg\", \"lab=1\"]""#, r#""""#, r#""not a list""#]),
    (
        ResourceKind::Agent,
        "ignitionConfigOverrides",
        &[r#""{\"ignition\": {\"version\": \"3.1.0\"}}""#, r#""""#, r#""not json""#],
    ),
    (ResourceKind::Agent, "nodeLabels", &[r#"{"lab.example/rack": "r1"}"#, "null"]),
    (ResourceKind::Agent, "machineConfigPool", &[r#""infra""#, r#""""#]),
    (ResourceKind::Agent, "installation_disk_id", &[r#""/dev/disk/by-id/none""#, r#""""#]),
    (ResourceKind::Agent, "ignitionEndpointTokenReference", &[r#"{"name": "none-such", "namespace": "none"}"#, "null"]),
    (ResourceKind::BareMetalHost, "online", &["true", "false"]),
];

/// Changes of annotations.
const ANNOTATIONS: &[Row] = &[
    (
        ResourceKind::AgentClusterInstall,
        "agent-install.openshift.io/install-config-overrides",
        &[r#""{\"fips\": true}""#, "null", r#""no JSON""#],
    ),
    (
        ResourceKind::AgentClusterInstall,
        "agent-install.openshift.io/ignored-host-validations",
        &[r#""ntp-synced""#, "null", r#""none such""#],
    ),
    (
        ResourceKind::AgentClusterInstall,
        "agent-install.openshift.io/ignored-cluster-validations",
        &[r#""ntp-server-configured""#, "null", r#""none such""#],
    ),
    (ResourceKind::ClusterDeployment, "hive.openshift.io/reconcile-pause", &[r#""true""#, "null"]),
    (ResourceKind::BareMetalHost, "bmac.agent-install.openshift.io/role", &[r#""worker""#, r#""master""#, r#""none""#]),
    (ResourceKind::BareMetalHost, "bmac.agent-install.openshift.io/hostname", &[r#""renamed""#, r#""Not A Name""#]),
    (
        ResourceKind::BareMetalHost,
        "bmac.agent-install.openshift.io/installer-args",
        &[r#""[\"--append-karg\", \"lab=1\"]""#, r#""no list""#],
    ),
    (ResourceKind::BareMetalHost, "bmac.agent-install.openshift.io.node-label.rack", &[r#""r1""#, "null"]),
    (
        ResourceKind::BareMetalHost,
        "bmac.agent-install.openshift.io.agent-label.site",
        &[r#""north""#, r#""south""#, "null"],
    ),
    (ResourceKind::BareMetalHost, "inspect.metal3.io", &[r#""disabled""#, "null"]),
    (ResourceKind::BareMetalHost, "baremetalhost.metal3.io/paused", &[r#""lab""#, "null"]),
];

/// What is drawn from tables here that may grow.
pub(super) fn tables() -> impl Iterator<Item = &'static str> {
    let of = |(_, member, values): &Row| std::iter::once(*member).chain(values.iter().copied());
    PATCHES.iter().chain(ANNOTATIONS).flat_map(of)
}

/// Draws one of a table: whose resource it is (`host: master-0, resource: Agent`), and what becomes of which member.
fn change(draw: &mut Draw<'_>, base: &Base, what: &'static str, table: &[Row]) -> Option<(String, String)> {
    let (kind, member, values) = draw.pick_kind(what, table)?;
    let whose = if ResourceKind::all_of(ResourceOf::Host).any(|of_host| of_host == kind) {
        format!("host: {}", base.hosts[index(draw, "host", base.hosts.len())])
    } else if base.clusters.is_empty() {
        return None;
    } else {
        format!("cluster: {}", base.clusters[index(draw, "cluster", base.clusters.len())].0)
    };
    let value = draw.early("value", values)?;
    Some((format!("{whose}, resource: {kind}"), format!("{{{member}: {value}}}")))
}

/// Draws a change of a spec.
pub(super) fn patch(draw: &mut Draw<'_>, base: &Base) -> Option<String> {
    let (of, spec) = change(draw, base, "member of a spec", PATCHES)?;
    Some(format!("{of}, patch: {{spec: {spec}}}"))
}

/// Draws a change of an annotation.
pub(super) fn annotate(draw: &mut Draw<'_>, base: &Base) -> Option<String> {
    let (of, annotations) = change(draw, base, "annotation", ANNOTATIONS)?;
    Some(format!("{of}, annotations: {annotations}"))
}

#[cfg(test)]
mod tests {
    use vlab_scenario::Catalogue;

    use super::*;

    #[test]
    fn the_values_are_json() {
        for (_, member, values) in PATCHES.iter().chain(ANNOTATIONS) {
            for value in *values {
                serde_json::from_str::<serde_json::Value>(value).unwrap_or_else(|e| panic!("{member}: {value}: {e}"));
            }
        }
    }

    /// Whatever is drawn, the language takes it.
    #[test]
    fn what_is_drawn_is_taken_by_the_language() {
        let catalogue = Catalogue::embedded();
        let base = Base::new(&catalogue.find("kube-bare-metal-hosts").unwrap(), &catalogue).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..600 {
            let mut draw = Draw::go_on(&[], seed, None);
            let action = match seed % 2 {
                0 => format!("patch-resource, {}", patch(&mut draw, &base).unwrap()),
                _ => format!("annotate, {}", annotate(&mut draw, &base).unwrap()),
            };
            let added =
                super::super::base::Added { actions: vec![format!("{{do: {action}, at: 5m}}")], ..Default::default() };
            let source = base.with("drawn", "", &added);
            vlab_scenario::load(&source, &catalogue).unwrap_or_else(|error| panic!("{error}\n{action}"));
            seen.insert(action);
        }
        assert!(seen.len() > 100, "{}", seen.len());
    }
}
