//! `install-config.yaml`: the cluster in the words of `openshift-install`.

use serde_json::{Map, Value, json};
use vlab_api::types::{Host, HostRole, Inventory, PlatformType};
use vlab_model::disks::version_at_least;
use vlab_model::network::inventory_networks;

use crate::{ArtifactError, ArtifactInput, ClusterFacts};

/// What is reached without the proxy: what the user says, the cluster's own names, and its networks.
fn no_proxy(input: &ArtifactInput<'_>, facts: &ClusterFacts<'_>) -> String {
    let cluster = input.cluster;
    let said = cluster.no_proxy.as_deref().unwrap_or_default();
    if said == "*" {
        return said.to_owned();
    }
    let own = format!(".{}.{}", facts.name, facts.base_domain);
    let pods = cluster.cluster_networks.iter().flatten().filter_map(|n| n.cidr.clone());
    let services = cluster.service_networks.iter().flatten().filter_map(|n| n.cidr.clone());
    let machines = cluster.machine_networks.iter().flatten().filter_map(|n| n.cidr.clone());
    let said = said.split(',').filter(|part| !part.is_empty()).map(str::to_owned);
    said.chain([own]).chain(pods).chain(services).chain(machines).collect::<Vec<_>>().join(",")
}

/// Renders the install config, the user's overrides merged in.
pub(crate) fn render(input: &ArtifactInput<'_>, facts: &ClusterFacts<'_>) -> Result<Value, ArtifactError> {
    let cluster = input.cluster;
    let count = |role: HostRole| input.hosts.iter().filter(|h| h.role == role).count();
    let architecture = match cluster.cpu_architecture.as_deref() {
        Some("aarch64" | "arm64") => "arm64",
        Some("multi" | "x86_64") | None => "amd64",
        Some(other) => other,
    };
    let pool = |name: &str, replicas: usize| {
        json!({
            "name": name,
            "architecture": architecture,
            "hyperthreading": if hyperthreading(cluster.hyperthreading.as_deref(), name) { "Enabled" } else { "Disabled" },
            "replicas": replicas,
        })
    };

    let mut config = json!({
        "apiVersion": "v1",
        "baseDomain": facts.base_domain,
        "metadata": { "name": facts.name },
        "networking": {
            "networkType": cluster.network_type.as_deref().unwrap_or("OVNKubernetes"),
            "clusterNetwork": cluster.cluster_networks.iter().flatten()
                .map(|n| json!({ "cidr": n.cidr, "hostPrefix": n.host_prefix })).collect::<Vec<_>>(),
            "machineNetwork": machine_networks(input, facts).into_iter()
                .map(|cidr| json!({ "cidr": cidr })).collect::<Vec<_>>(),
            "serviceNetwork": cluster.service_networks.iter().flatten()
                .filter_map(|n| n.cidr.clone()).collect::<Vec<_>>(),
        },
        "compute": [pool("worker", count(HostRole::Worker))],
        "controlPlane": pool("master", count(HostRole::Master)),
    });
    let object = object(&mut config);
    // An empty list is not said.
    if let Some(networking) = object.get_mut("networking").and_then(Value::as_object_mut) {
        networking.retain(|_, networks| networks.as_array().is_none_or(|list| !list.is_empty()));
    }
    if count(HostRole::Arbiter) > 0 {
        object.insert("arbiter".into(), pool("arbiter", count(HostRole::Arbiter)));
    }
    let platform = cluster.platform.as_ref().map(|p| p.type_);
    let platform = if facts.single_node && platform != Some(PlatformType::External) {
        json!({ "none": {} })
    } else {
        platform_of(platform.unwrap_or(PlatformType::Baremetal), input, facts)
    };
    object.insert("platform".into(), platform);
    if facts.single_node {
        let disk = input
            .hosts
            .first()
            .and_then(|h| h.host.installation_disk_path.clone().or_else(|| h.host.installation_disk_id.clone()));
        object.insert("bootstrapInPlace".into(), json!({ "installationDisk": disk.unwrap_or_default() }));
    }
    object.insert("fips".into(), json!(false));
    object.insert("pullSecret".into(), json!(input.pull_secret));
    if let Some(key) = non_empty(cluster.ssh_public_key.as_deref()) {
        object.insert("sshKey".into(), json!(key));
    }
    let mut proxy = Map::new();
    for (name, value) in [("httpProxy", &cluster.http_proxy), ("httpsProxy", &cluster.https_proxy)] {
        if let Some(value) = non_empty(value.as_deref()) {
            proxy.insert(name.into(), json!(value));
        }
    }
    if !proxy.is_empty() {
        proxy.insert("noProxy".into(), json!(no_proxy(input, facts)));
        object.insert("proxy".into(), Value::Object(proxy));
    }

    if let Some(mirrors) = input.mirrors {
        let sources: Vec<Value> =
            mirrors.by_digest().iter().map(|m| json!({ "source": m.source, "mirrors": m.mirrors })).collect();
        let version = cluster.openshift_version.as_deref().unwrap_or_default();
        let member = if version_at_least(version, 4, 14) { "imageDigestSources" } else { "imageContentSources" };
        object.insert(member.into(), Value::Array(sources));
    }

    if let Some(text) = non_empty(cluster.install_config_overrides.as_deref()) {
        let overrides: Value =
            serde_json::from_str(text).map_err(|e| ArtifactError::InstallConfigOverrides(e.to_string()))?;
        if !overrides.is_object() {
            return Err(ArtifactError::InstallConfigOverrides("not a JSON object".into()));
        }
        merge(&mut config, overrides);
    }
    trust(&mut config, input);
    Ok(config)
}

/// Networks of the machines: the cluster's, else, where the user manages the networking, the bootstrap's first of each family.
fn machine_networks(input: &ArtifactInput<'_>, facts: &ClusterFacts<'_>) -> Vec<String> {
    let cluster = input.cluster;
    let own: Vec<String> = cluster.machine_networks.iter().flatten().filter_map(|n| n.cidr.clone()).collect();
    let platform = cluster.platform.as_ref().map(|p| p.type_);
    let of_the_user = facts.single_node
        || match platform {
            Some(PlatformType::None | PlatformType::External) => true,
            Some(PlatformType::Vsphere | PlatformType::Nutanix) => cluster.user_managed_networking == Some(true),
            Some(PlatformType::Baremetal) | None => false,
        };
    let bootstrap = input.hosts.iter().find(|h| h.host.bootstrap == Some(true));
    match bootstrap.and_then(|h| inventory(h.host)) {
        Some(inventory) if own.is_empty() && of_the_user => {
            let all = inventory_networks(&inventory);
            let first = |v6: bool| all.iter().find(|n| n.addr().is_ipv6() == v6).map(ToString::to_string);
            [first(false), first(true)].into_iter().flatten().collect()
        }
        _ => own,
    }
}

fn inventory(host: &Host) -> Option<Inventory> {
    serde_json::from_str(host.inventory.as_deref()?).ok()
}

/// Adds the certificates of mirrors and infra-envs to those that the user gave.
fn trust(config: &mut Value, input: &ArtifactInput<'_>) {
    const BUNDLE: &str = "additionalTrustBundle";
    let given = config[BUNDLE].as_str().unwrap_or_default();
    let of_mirrors = input.mirrors.map_or("", |mirrors| mirrors.ca_bundle.as_str());
    let all = [given, of_mirrors].into_iter().chain(input.trusted.iter().map(String::as_str));
    let all: Vec<&str> = all.filter(|certificates| !certificates.is_empty()).collect();
    if !all.is_empty() {
        config[BUNDLE] = json!(all.join("\n").trim());
    }
}

fn platform_of(platform: PlatformType, input: &ArtifactInput<'_>, facts: &ClusterFacts<'_>) -> Value {
    match platform {
        PlatformType::Baremetal => {
            let hosts: Vec<Value> = input
                .hosts
                .iter()
                .map(|h| {
                    let Inventory { interfaces, boot, .. } = inventory(h.host).unwrap_or_default();
                    let mac = interfaces.into_iter().flatten().find_map(|i| i.mac_address.filter(|m| !m.is_empty()));
                    let is_legacy = boot.is_some_and(|boot| boot.current_boot_mode.as_deref() != Some("uefi"));
                    json!({
                        "name": h.hostname,
                        "role": h.role.as_str(),
                        "bootMACAddress": mac.unwrap_or_default(),
                        "bootMode": if is_legacy { "legacy" } else { "UEFI" },
                    })
                })
                .collect();
            json!({ "baremetal": {
                "provisioningNetwork": "Disabled",
                "apiVIPs": facts.api_vips,
                "ingressVIPs": facts.ingress_vips,
                "hosts": hosts,
            }})
        }
        PlatformType::None => json!({ "none": {} }),
        PlatformType::Vsphere => {
            json!({ "vsphere": { "apiVIPs": facts.api_vips, "ingressVIPs": facts.ingress_vips } })
        }
        PlatformType::Nutanix => {
            json!({ "nutanix": { "apiVIPs": facts.api_vips, "ingressVIPs": facts.ingress_vips } })
        }
        PlatformType::External => {
            let external = input.cluster.platform.as_ref().and_then(|p| p.external.as_ref());
            json!({ "external": {
                "platformName": external.and_then(|e| e.platform_name.clone()).unwrap_or_default(),
                "cloudControllerManager":
                    external.and_then(|e| e.cloud_controller_manager.clone()).unwrap_or_default(),
            }})
        }
    }
}

/// `cluster.hyperthreading` lists the groups that have it, or `all` or `none`.
fn hyperthreading(setting: Option<&str>, pool: &str) -> bool {
    match setting {
        None | Some("all" | "") => true,
        Some(list) => list.split(',').any(|group| group.strip_suffix('s') == Some(pool)),
    }
}

fn non_empty(text: Option<&str>) -> Option<&str> {
    text.filter(|t| !t.is_empty())
}

fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        // The line above made it an object.
        _ => unreachable!("not an object"),
    }
}

/// Objects are merged member by member, everything else is replaced; `null` is a value like any other.
fn merge(base: &mut Value, overrides: Value) {
    match (base, overrides) {
        (Value::Object(base), Value::Object(overrides)) => {
            for (name, value) in overrides {
                match base.get_mut(&name) {
                    Some(existing) => merge(existing, value),
                    None => {
                        base.insert(name, value);
                    }
                }
            }
        }
        (base, value) => *base = value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(None, "master", true)]
    #[case(Some("all"), "worker", true)]
    #[case(Some("none"), "worker", false)]
    #[case(Some("masters"), "master", true)]
    #[case(Some("masters"), "worker", false)]
    #[case(Some("arbiters,workers"), "worker", true)]
    fn hyperthreading_by_pool(#[case] setting: Option<&str>, #[case] pool: &str, #[case] on: bool) {
        assert_eq!(hyperthreading(setting, pool), on);
    }

    #[test]
    fn overrides_reach_into_objects_and_replace_lists() {
        let mut base = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1});
        merge(&mut base, json!({"a": {"c": [3], "e": null}}));
        assert_eq!(base, json!({"a": {"b": 1, "c": [3], "e": null}, "d": 1}));
    }
}
