//! What specs ask for, as parameters of commands.

use std::collections::BTreeMap;

use serde_json::Value;
use vlab_api::types::{
    ApiVip, ClusterCreateParams, ClusterNetwork, DiskEncryption, HostStaticNetworkConfig, IgnitionEndpoint, ImageType,
    InfraEnvCreateParams, InfraEnvUpdateParams, IngressVip, KernelArgument, LoadBalancer, MacInterfaceMapItem,
    MachineNetwork, Platform, PlatformExternal, PlatformType, Proxy, ServiceNetwork, V2ClusterUpdateParams,
};

use super::object::{filled, text, texts};

/// How AgentClusterInstalls call the platforms.
const PLATFORMS: &[(&str, PlatformType)] = &[
    ("BareMetal", PlatformType::Baremetal),
    ("None", PlatformType::None),
    ("VSphere", PlatformType::Vsphere),
    ("Nutanix", PlatformType::Nutanix),
    ("External", PlatformType::External),
];

/// Label that says who asked for a cluster; the cluster has it among its tags.
const CONSUMER: &str = "agentclusterinstalls.agent-install.openshift.io/consumer";

/// A platform by the word of resources.
fn platform_of(word: &str) -> Option<PlatformType> {
    PLATFORMS.iter().find(|(known, _)| *known == word).map(|(_, platform)| *platform)
}

/// The word of resources for a platform.
pub(super) fn platform_word(platform: PlatformType) -> &'static str {
    PLATFORMS.iter().find(|(_, known)| *known == platform).map_or("", |(word, _)| word)
}

fn count(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// How many hosts of each role a cluster is to have: masters, workers, arbiters.
pub(super) fn expected(aci: &Value) -> (i64, i64, i64) {
    let wanted = &aci["spec"]["provisionRequirements"];
    (count(&wanted["controlPlaneAgents"]), count(&wanted["workerAgents"]), count(&wanted["arbiterAgents"]))
}

/// One VIP in the older member, or all in the newer one.
fn vips(spec: &Value, many: &str, one: &str) -> Vec<String> {
    let all = texts(&spec[many]);
    if all.is_empty() { filled(&spec[one]).into_iter().collect() } else { all }
}

/// Which pools run with hyperthreading, in the word of the API: where one is named at all, only those that are named.
fn hyperthreading(spec: &Value) -> Option<String> {
    let named = |pool: &Value| !pool.is_null();
    let on = |pool: &Value| named(pool) && text(&pool["hyperthreading"]) != "Disabled";
    let workers: Vec<&Value> =
        spec["compute"].as_array().into_iter().flatten().filter(|pool| text(&pool["name"]) == "worker").collect();
    if !named(&spec["controlPlane"]) && !named(&spec["arbiter"]) && workers.is_empty() {
        return None;
    }
    let pools = [
        (on(&spec["controlPlane"]), "masters"),
        (on(&spec["arbiter"]), "arbiters"),
        (workers.into_iter().any(on), "workers"),
    ];
    let words: Vec<&str> = pools.iter().filter(|(is_on, _)| *is_on).map(|(_, word)| *word).collect();
    Some(if words.is_empty() { "none".to_owned() } else { words.join(",") })
}

/// A release, as a ClusterImageSet names it.
pub(super) struct Release {
    pub(super) version: String,
    pub(super) image: String,
    pub(super) architecture: Option<String>,
}

/// The platform that is asked for, with what an external one is.
fn platform(spec: &Value) -> Option<Platform> {
    let type_ = platform_of(text(&spec["platformType"]))?;
    let of = &spec["external"];
    let external = (type_ == PlatformType::External && of.is_object()).then(|| PlatformExternal {
        platform_name: filled(&of["platformName"]),
        cloud_controller_manager: of["cloudControllerManager"].as_str().map(str::to_owned),
    });
    Some(Platform { type_, external })
}

/// What a cluster is to be.
pub(super) fn cluster(
    cd: &Value,
    aci: &Value,
    pull_secret: String,
    release: Release,
    endpoint: Option<IgnitionEndpoint>,
) -> ClusterCreateParams {
    let spec = &aci["spec"];
    let networking = &spec["networking"];
    let (masters, ..) = expected(aci);
    let networks = |name: &str| networking[name].as_array().cloned().filter(|list| !list.is_empty());
    let mut params = ClusterCreateParams {
        name: text(&cd["spec"]["clusterName"]).to_owned(),
        base_dns_domain: filled(&cd["spec"]["baseDomain"]),
        openshift_version: release.version,
        ocp_release_image: Some(release.image),
        cpu_architecture: release.architecture,
        pull_secret,
        control_plane_count: Some(masters),
        high_availability_mode: Some(if masters == 1 { "None" } else { "Full" }.to_owned()),
        user_managed_networking: networking["userManagedNetworking"].as_bool(),
        network_type: filled(&networking["networkType"]),
        platform: platform(spec),
        ssh_public_key: filled(&spec["sshPublicKey"]),
        ntp_sources: Some(texts(&spec["ntpSources"]).join(",")).filter(|sources| !sources.is_empty()),
        http_proxy: filled(&spec["proxy"]["httpProxy"]),
        https_proxy: filled(&spec["proxy"]["httpsProxy"]),
        no_proxy: filled(&spec["proxy"]["noProxy"]),
        schedulable_masters: spec["mastersSchedulable"].as_bool(),
        hyperthreading: hyperthreading(spec),
        ignition_endpoint: endpoint,
        tags: aci["metadata"]["labels"][CONSUMER].as_str().map(str::to_owned),
        ..ClusterCreateParams::default()
    };
    params.cluster_networks = networks("clusterNetwork").map(|list| {
        let one = |n: &Value| ClusterNetwork {
            cidr: filled(&n["cidr"]),
            host_prefix: n["hostPrefix"].as_i64(),
            ..ClusterNetwork::default()
        };
        list.iter().map(one).collect()
    });
    params.service_networks = networks("serviceNetwork")
        .map(|list| list.iter().map(|n| ServiceNetwork { cidr: filled(n), ..ServiceNetwork::default() }).collect());
    params.machine_networks = networks("machineNetwork").map(|list| {
        list.iter().map(|n| MachineNetwork { cidr: filled(&n["cidr"]), ..MachineNetwork::default() }).collect()
    });
    let api = vips(spec, "apiVIPs", "apiVIP");
    let ingress = vips(spec, "ingressVIPs", "ingressVIP");
    params.api_vips =
        (!api.is_empty()).then(|| api.into_iter().map(|ip| ApiVip { ip: Some(ip), ..ApiVip::default() }).collect());
    params.ingress_vips = (!ingress.is_empty())
        .then(|| ingress.into_iter().map(|ip| IngressVip { ip: Some(ip), ..IngressVip::default() }).collect());
    if text(&spec["loadBalancer"]["type"]) == "UserManaged" {
        params.load_balancer = Some(LoadBalancer { type_: Some("user-managed".into()) });
    }
    let encryption = &spec["diskEncryption"];
    if filled(&encryption["enableOn"]).is_some_and(|on| on != "none") {
        params.disk_encryption = Some(DiskEncryption {
            enable_on: filled(&encryption["enableOn"]),
            mode: filled(&encryption["mode"]),
            tang_servers: filled(&encryption["tangServers"]),
        });
    }
    params
}

/// What of a cluster changes from the one spec to the other; nothing where they say the same.
pub(super) fn cluster_change(old: &ClusterCreateParams, new: &ClusterCreateParams) -> Option<V2ClusterUpdateParams> {
    if old == new {
        return None;
    }
    fn other<T: PartialEq + Clone>(old: &Option<T>, new: &Option<T>, gone: impl FnOnce() -> T) -> Option<T> {
        if old == new { None } else { Some(new.clone().unwrap_or_else(gone)) }
    }
    let names_vips = new.api_vips.is_some() || new.ingress_vips.is_some();
    let differs = |old: &Option<String>, new: &Option<String>| other(old, new, String::new);
    Some(V2ClusterUpdateParams {
        name: (old.name != new.name).then(|| new.name.clone()),
        base_dns_domain: differs(&old.base_dns_domain, &new.base_dns_domain),
        pull_secret: (old.pull_secret != new.pull_secret).then(|| new.pull_secret.clone()),
        ssh_public_key: differs(&old.ssh_public_key, &new.ssh_public_key),
        ntp_sources: differs(&old.ntp_sources, &new.ntp_sources),
        http_proxy: differs(&old.http_proxy, &new.http_proxy),
        https_proxy: differs(&old.https_proxy, &new.https_proxy),
        no_proxy: differs(&old.no_proxy, &new.no_proxy),
        network_type: if old.network_type == new.network_type { None } else { new.network_type.clone() },
        hyperthreading: other(&old.hyperthreading, &new.hyperthreading, || "all".into()),
        schedulable_masters: other(&old.schedulable_masters, &new.schedulable_masters, || false),
        user_managed_networking: other(&old.user_managed_networking, &new.user_managed_networking, || false),
        platform: if old.platform == new.platform { None } else { new.platform.clone() },
        control_plane_count: if old.control_plane_count == new.control_plane_count {
            None
        } else {
            new.control_plane_count
        },
        // Who names none leaves them to the service: it may have found some itself.
        api_vips: if names_vips { other(&old.api_vips, &new.api_vips, Vec::new) } else { None },
        ingress_vips: if names_vips { other(&old.ingress_vips, &new.ingress_vips, Vec::new) } else { None },
        cluster_networks: if old.cluster_networks == new.cluster_networks {
            None
        } else {
            new.cluster_networks.clone()
        },
        service_networks: if old.service_networks == new.service_networks {
            None
        } else {
            new.service_networks.clone()
        },
        machine_networks: if old.machine_networks == new.machine_networks {
            None
        } else {
            new.machine_networks.clone()
        },
        disk_encryption: if old.disk_encryption == new.disk_encryption { None } else { new.disk_encryption.clone() },
        ignition_endpoint: other(&old.ignition_endpoint, &new.ignition_endpoint, || IgnitionEndpoint {
            url: Some(String::new()),
            ca_certificate: Some(String::new()),
        }),
        // A label that is gone changes nothing.
        tags: if old.tags == new.tags { None } else { new.tags.clone() },
        load_balancer: if old.load_balancer == new.load_balancer { None } else { new.load_balancer.clone() },
        ..V2ClusterUpdateParams::default()
    })
}

/// A host's static network from its NMStateConfig.
pub(super) fn static_network(config: &Value) -> HostStaticNetworkConfig {
    let interfaces = config["spec"]["interfaces"].as_array().cloned().unwrap_or_default();
    let map = interfaces
        .iter()
        .map(|i| MacInterfaceMapItem {
            logical_nic_name: filled(&i["name"]),
            mac_address: text(&i["macAddress"]).to_owned(),
        })
        .collect();
    let state = &config["spec"]["config"];
    let yaml = if state.is_null() { String::new() } else { serde_yaml::to_string(state).unwrap_or_default() };
    HostStaticNetworkConfig { mac_interface_map: Some(map), network_yaml: Some(yaml) }
}

/// Which image: unless one is named the smaller one, which there is not for that architecture.
fn image_type(spec: &Value) -> ImageType {
    let named = filled(&spec["imageType"]).and_then(|word| word.parse().ok());
    let full = text(&spec["cpuArchitecture"]) == "s390x";
    named.unwrap_or(if full { ImageType::FullIso } else { ImageType::MinimalIso })
}

/// What an infra-env is to be.
pub(super) fn infra_env(
    object: &Value,
    pull_secret: String,
    networks: Vec<HostStaticNetworkConfig>,
    version: Option<String>,
) -> InfraEnvCreateParams {
    let spec = &object["spec"];
    let sources = |name: &str| Some(texts(&spec[name]).join(",")).filter(|all| !all.is_empty());
    let proxy = &spec["proxy"];
    let kernel: Vec<KernelArgument> = spec["kernelArguments"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|a| KernelArgument { operation: filled(&a["operation"]), value: filled(&a["value"]) })
        .collect();
    InfraEnvCreateParams {
        name: text(&object["metadata"]["name"]).to_owned(),
        pull_secret,
        openshift_version: filled(&spec["osImageVersion"]).or(version),
        cpu_architecture: filled(&spec["cpuArchitecture"]),
        image_type: Some(image_type(spec)),
        ssh_authorized_key: filled(&spec["sshAuthorizedKey"]),
        additional_ntp_sources: sources("additionalNTPSources"),
        ntp_sources: sources("ntpSources"),
        ignition_config_override: filled(&spec["ignitionConfigOverride"]),
        additional_trust_bundle: filled(&spec["additionalTrustBundle"]),
        network_discovery_delay_seconds: spec["networkDiscoveryDelaySeconds"].as_i64(),
        kernel_arguments: (!kernel.is_empty()).then_some(kernel),
        static_network_config: (!networks.is_empty()).then_some(networks),
        proxy: proxy.is_object().then(|| Proxy {
            http_proxy: filled(&proxy["httpProxy"]),
            https_proxy: filled(&proxy["httpsProxy"]),
            no_proxy: filled(&proxy["noProxy"]),
        }),
        ..InfraEnvCreateParams::default()
    }
}

/// The whole of an infra-env as a change: what is not said any more is emptied.
pub(super) fn infra_env_change(new: &InfraEnvCreateParams) -> InfraEnvUpdateParams {
    InfraEnvUpdateParams {
        proxy: new.proxy.clone(),
        additional_ntp_sources: Some(new.additional_ntp_sources.clone().unwrap_or_default()),
        ntp_sources: Some(new.ntp_sources.clone().unwrap_or_default()),
        ssh_authorized_key: Some(new.ssh_authorized_key.clone().unwrap_or_default()),
        pull_secret: Some(new.pull_secret.clone()),
        static_network_config: Some(new.static_network_config.clone().unwrap_or_default()),
        image_type: new.image_type,
        ignition_config_override: Some(new.ignition_config_override.clone().unwrap_or_default()),
        kernel_arguments: Some(new.kernel_arguments.clone().unwrap_or_default()),
        additional_trust_bundle: Some(new.additional_trust_bundle.clone().unwrap_or_default()),
        openshift_version: new.openshift_version.clone(),
        network_discovery_delay_seconds: Some(new.network_discovery_delay_seconds.unwrap_or(0)),
        ..InfraEnvUpdateParams::default()
    }
}

/// Words of a comma-separated annotation.
pub(super) fn words(text: &str) -> Vec<String> {
    text.split(',').map(|w| w.trim().to_owned()).filter(|w| !w.is_empty()).collect()
}

/// Labels or the like as a map of texts.
pub(super) fn text_map(value: &Value) -> BTreeMap<String, String> {
    let members = value.as_object().into_iter().flatten();
    members.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn release() -> Release {
        Release { version: "4.16".into(), image: "image".into(), architecture: None }
    }

    #[test]
    fn a_cluster_has_the_architecture_of_its_release() {
        let release = Release { architecture: Some("arm64".into()), ..release() };
        let params = cluster(&json!({}), &json!({}), "p".into(), release, None);
        assert_eq!(params.cpu_architecture.as_deref(), Some("arm64"));
    }

    #[rstest::rstest]
    #[case::none("x86_64", "", ImageType::MinimalIso)]
    #[case::mainframe("s390x", "", ImageType::FullIso)]
    #[case::named("s390x", "minimal-iso", ImageType::MinimalIso)]
    fn an_image_is_the_smaller_one_where_there_is_one(#[case] of: &str, #[case] named: &str, #[case] is: ImageType) {
        assert_eq!(image_type(&json!({ "cpuArchitecture": of, "imageType": named })), is);
    }

    #[test]
    fn a_spec_that_says_the_same_changes_nothing() {
        let cd = json!({"spec": {"clusterName": "c", "baseDomain": "b"}});
        let aci = |vip: &str| {
            json!({"spec": {"provisionRequirements": {"controlPlaneAgents": 3}, "apiVIP": vip,
                            "networking": {"clusterNetwork": [{"cidr": "10.128.0.0/14", "hostPrefix": 23}]}}})
        };
        let of = |vip| cluster(&cd, &aci(vip), "p".into(), release(), None);
        assert_eq!(cluster_change(&of("10.0.0.1"), &of("10.0.0.1")), None);
        let change = cluster_change(&of("10.0.0.1"), &of("10.0.0.2")).unwrap();
        assert_eq!(change.api_vips.unwrap()[0].ip.as_deref(), Some("10.0.0.2"));
        assert_eq!(change.name, None);
        // VIPs that are not named any more stay, as networks do.
        let none = json!({"spec": {"provisionRequirements": {"controlPlaneAgents": 3}, "mastersSchedulable": true}});
        let none = cluster(&cd, &none, "p".into(), release(), None);
        let change = cluster_change(&of("10.0.0.1"), &none).unwrap();
        assert_eq!((change.api_vips, change.cluster_networks), (None, None));
        // What is taken back is emptied.
        let place = IgnitionEndpoint { url: Some("https://a".into()), ca_certificate: Some("b".into()) };
        let with = |endpoint| cluster(&cd, &aci("10.0.0.1"), "p".into(), release(), endpoint);
        let change = cluster_change(&with(Some(place.clone())), &with(None)).unwrap();
        assert_eq!(
            change.ignition_endpoint,
            Some(IgnitionEndpoint { url: Some(String::new()), ca_certificate: Some(String::new()) })
        );
        let change = cluster_change(&with(None), &with(Some(place.clone()))).unwrap();
        assert_eq!(change.ignition_endpoint, Some(place));
    }
}
