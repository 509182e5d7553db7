//! What the service knows without any cluster: versions, defaults, requirements, supported features.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use uuid::Uuid;
use vlab_api::http::Response;
use vlab_api::types::{
    ClusterDefaultConfig, ClusterHostRequirementsDetails, HostRole, HostTypeHardwareRequirements,
    HostTypeHardwareRequirementsWrapper, ListVersions, OpenshiftVersion, PlatformType, PreflightHardwareRequirements,
};
use vlab_model::roles::{self, Profile, Requirement};
use vlab_model::validation::FORBIDDEN_HOSTNAMES;
use vlab_model::{disks, network};

use super::RestCall;
use super::answer::RestResult;
use super::routes::ROUTES;
use crate::commands::clusters;
use crate::refusal::Refusal;

/// Operations that the real service answers and this one refuses with 501, by operation id. (Beside these, some OLM
/// operators in cluster requests are refused the same way.)
const NOT_BUILT: &[&str] = &["GetDetailedSupportedFeatures"];

/// For operations of [`NOT_BUILT`].
pub(super) fn not_built(_call: &mut RestCall<'_>) -> RestResult {
    debug_assert!(NOT_BUILT.iter().all(|name| ROUTES.iter().any(|r| r.operation == *name)));
    Err(Refusal::not_built(NOT_BUILT[0]).into())
}

/// `GET …/supported-platforms`
pub(super) fn supported_platforms(call: &mut RestCall<'_>) -> RestResult {
    let id = call.ids[0];
    let row = clusters::find(call.core, id)?;
    let hosts = call.core.state.hosts_of_cluster(id);
    // Nothing is known yet about where it will run.
    if hosts.is_empty() {
        return Ok(Response::json(200, &[PlatformType::None]));
    }
    if row.view.is_sno() {
        return Ok(Response::json(200, &[PlatformType::None, PlatformType::External]));
    }
    let mut platforms = vec![PlatformType::Baremetal, PlatformType::None, PlatformType::External];
    let all = |word: &str| {
        hosts.iter().all(|h| {
            let vendor = h.view.inventory.as_ref().and_then(|i| i.system_vendor.as_ref());
            vendor.and_then(|v| v.manufacturer.as_deref()).is_some_and(|m| m.contains(word))
        })
    };
    if all("VMware") {
        platforms.push(PlatformType::Vsphere);
    }
    if all("Nutanix") {
        platforms.push(PlatformType::Nutanix);
    }
    Ok(Response::json(200, &platforms))
}

/// `GET /v2/clusters/default-config`
pub(super) fn default_config(call: &mut RestCall<'_>) -> RestResult {
    let settings = &call.core.config.settings;
    let nil = Uuid::nil();
    let bare = |mut networks: Vec<vlab_api::types::ClusterNetwork>| {
        networks.iter_mut().for_each(|n| n.cluster_id = None);
        Some(networks)
    };
    let bare_service = |mut networks: Vec<vlab_api::types::ServiceNetwork>| {
        networks.iter_mut().for_each(|n| n.cluster_id = None);
        Some(networks)
    };
    let config = ClusterDefaultConfig {
        cluster_network_cidr: Some(settings.cluster_network_cidr.clone()),
        cluster_network_host_prefix: Some(settings.cluster_network_host_prefix),
        inactive_deletion_hours: Some((settings.deleted_inactive_after.as_secs() / 3600) as i64),
        service_network_cidr: Some(settings.service_network_cidr.clone()),
        ntp_source: Some(settings.ntp_default_server.clone()),
        cluster_networks_ipv4: bare(network::default_cluster_networks(nil, true, false, settings)),
        cluster_networks_dualstack: bare(network::default_cluster_networks(nil, true, true, settings)),
        service_networks_ipv4: bare_service(network::default_service_networks(nil, true, false, settings)),
        service_networks_dualstack: bare_service(network::default_service_networks(nil, true, true, settings)),
        forbidden_hostnames: Some(FORBIDDEN_HOSTNAMES.iter().map(|n| (*n).to_owned()).collect()),
    };
    Ok(Response::json(200, &config))
}

/// `GET /v2/domains`: no domains are managed here.
pub(super) fn domains(_call: &mut RestCall<'_>) -> RestResult {
    Ok(Response::json(200, &json!([])))
}

fn details(r: &Requirement) -> HostTypeHardwareRequirements {
    HostTypeHardwareRequirements {
        quantitative: Some(ClusterHostRequirementsDetails {
            cpu_cores: Some(r.cpu_cores),
            ram_mib: Some(r.ram_mib),
            disk_size_gb: Some(r.disk_size_gb),
            installation_disk_speed_threshold_ms: r.disk_speed_ms,
            network_latency_threshold_ms: r.latency_ms,
            packet_loss_percentage: r.loss_percent,
            tpm_enabled_in_bios: None,
        }),
        qualitative: None,
    }
}

/// `GET …/preflight-requirements`
pub(super) fn preflight(call: &mut RestCall<'_>) -> RestResult {
    let row = clusters::find(call.core, call.ids[0])?;
    let settings = &call.core.config.settings;
    let encryption = row.view.cluster.disk_encryption.as_ref().filter(|e| e.mode.as_deref() == Some("tpmv2"));
    let on = encryption.and_then(|e| e.enable_on.as_deref()).unwrap_or("none");
    let need = |profile, role| {
        let mut need = details(&roles::requirement(settings, row.view.openshift_version(), profile)?);
        if let Some(amounts) = need.quantitative.as_mut().filter(|_| roles::is_encrypted(on, role)) {
            amounts.tpm_enabled_in_bios = Some(true);
        }
        Some(need)
    };
    let master = if row.view.is_sno() { Profile::SingleNode } else { Profile::Master };
    let ocp = HostTypeHardwareRequirementsWrapper {
        worker: need(Profile::Worker, HostRole::Worker),
        master: need(master, HostRole::Master),
    };
    Ok(Response::json(200, &PreflightHardwareRequirements { operators: Some(Vec::new()), ocp: Some(ocp) }))
}

/// `GET /v2/supported-operators`: no operator is built in.
pub(super) fn supported_operators(_call: &mut RestCall<'_>) -> RestResult {
    Ok(Response::json(200, &json!(clusters::built_operators().collect::<Vec<_>>())))
}

/// `GET /v2/supported-operators/{operator_name}`. None of those that are built has properties.
pub(super) fn operator_properties(call: &mut RestCall<'_>) -> RestResult {
    if clusters::built_operators().any(|name| name == call.word) {
        return Ok(Response::json(200, &json!([])));
    }
    Err(Refusal::not_found(format!("Operator {} not found", call.word)).into())
}

/// `GET /v2/operators/bundles`
pub(super) fn bundles(_call: &mut RestCall<'_>) -> RestResult {
    Ok(Response::json(200, &json!([])))
}

/// `GET /v2/operators/bundles/{id}`
pub(super) fn bundle(call: &mut RestCall<'_>) -> RestResult {
    Err(Refusal::not_found(format!("bundle {} not found", call.word)).into())
}

/// `GET /v2/component-versions`
pub(super) fn component_versions(call: &mut RestCall<'_>) -> RestResult {
    let s = &call.core.config.settings;
    let versions: BTreeMap<String, String> = [
        ("assisted-installer", s.installer_image.clone()),
        ("assisted-installer-controller", s.controller_image.clone()),
        ("discovery-agent", s.agent_docker_image.clone()),
        ("assisted-installer-service", format!("vlab-simulated:{}", env!("CARGO_PKG_VERSION"))),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_owned(), v))
    .collect();
    Ok(Response::json(200, &ListVersions { versions: Some(versions), release_tag: Some(String::new()) }))
}

/// `GET /v2/openshift-versions`
pub(super) fn openshift_versions(call: &mut RestCall<'_>) -> RestResult {
    let settings = &call.core.config.settings;
    let filter = call.query("version").filter(|v| !v.is_empty());
    let mut versions: BTreeMap<String, OpenshiftVersion> = BTreeMap::new();
    for release in &settings.release_images {
        if filter.is_some_and(|f| !release.version.starts_with(f))
            || settings.ignored_openshift_versions.contains(&release.version)
        {
            continue;
        }
        let archs = release.cpu_architectures.clone().unwrap_or_else(|| vec![release.cpu_architecture.clone()]);
        let entry = versions.entry(release.version.clone()).or_insert_with(|| OpenshiftVersion {
            display_name: release.version.clone(),
            support_level: release.support_level.clone().unwrap_or_else(|| "production".to_owned()),
            default: None,
            cpu_architectures: Vec::new(),
        });
        if release.default == Some(true) {
            entry.default = Some(true);
        }
        for arch in archs {
            if !entry.cpu_architectures.contains(&arch) {
                entry.cpu_architectures.push(arch);
            }
        }
    }
    if call.query_flag("only_latest") {
        let minor = |v: &str| v.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
        let order = |v: &str| v.split(['.', '-']).map(|p| p.parse::<u64>().unwrap_or(0)).collect::<Vec<_>>();
        let all: Vec<String> = versions.keys().cloned().collect();
        versions.retain(|v, _| !all.iter().any(|o| minor(o) == minor(v) && order(o) > order(v)));
    }
    Ok(Response::json(200, &versions))
}

/// `GET /v2/release-sources`
pub(super) fn release_sources(_call: &mut RestCall<'_>) -> RestResult {
    Ok(Response::json(200, &json!([])))
}

fn known_version<'c>(call: &'c RestCall<'_>) -> Result<&'c str, Refusal> {
    let version = call.query("openshift_version").unwrap_or("");
    let plausible = version.split('.').count() >= 2 && version.split('.').take(2).all(|p| p.parse::<u32>().is_ok());
    if plausible { Ok(version) } else { Err(Refusal::invalid(format!("OpenShift version {version} is not valid"))) }
}

/// `GET /v2/support-levels/features`: only what this service really does is called supported.
pub(super) fn features(call: &mut RestCall<'_>) -> RestResult {
    let version = known_version(call)?.to_owned();
    let x86 = matches!(call.query("cpu_architecture").unwrap_or("x86_64"), "x86_64" | "");
    let level = |on: bool| if on { "supported" } else { "unavailable" };
    let mut features: Map<String, Value> = Map::new();
    for (name, on) in [
        ("SNO", x86),
        ("BAREMETAL_PLATFORM", x86),
        ("NONE_PLATFORM", x86),
        ("CLUSTER_MANAGED_NETWORKING", x86),
        ("USER_MANAGED_NETWORKING", x86),
        ("USER_MANAGED_LOAD_BALANCER", x86 && disks::version_at_least(&version, 4, 16)),
        ("NON_STANDARD_HA_CONTROL_PLANE", x86 && disks::version_at_least(&version, 4, 18)),
        ("TNA", x86 && disks::version_at_least(&version, 4, 19) && call.core.config.settings.tna_clusters_support),
        ("TNF", x86 && disks::version_at_least(&version, 4, 19) && call.core.config.settings.tnf_clusters_support),
        ("FULL_ISO", x86),
        ("MINIMAL_ISO", x86),
        ("CUSTOM_MANIFEST", x86),
        ("VIP_AUTO_ALLOC", x86 && !disks::version_at_least(&version, 4, 15)),
        ("SINGLE_NODE_EXPANSION", false),
        ("LVM", false),
        ("ODF", false),
        ("LSO", false),
        ("CNV", false),
        ("MCE", false),
    ] {
        features.insert(name.to_owned(), json!(level(on)));
    }
    Ok(Response::json(200, &json!({ "features": features })))
}

/// `GET /v2/support-levels/architectures`
pub(super) fn architectures(call: &mut RestCall<'_>) -> RestResult {
    let version = known_version(call)?.to_owned();
    let mut levels = Map::new();
    for (name, arch) in [
        ("X86_64_ARCHITECTURE", "x86_64"),
        ("ARM64_ARCHITECTURE", "arm64"),
        ("PPC64LE_ARCHITECTURE", "ppc64le"),
        ("S390X_ARCHITECTURE", "s390x"),
        ("MULTIARCH_RELEASE_IMAGE", "multi"),
    ] {
        let on = call.core.release(&version, arch).is_some();
        let supported = if arch == "multi" { "tech-preview" } else { "supported" };
        levels.insert(name.to_owned(), json!(if on { supported } else { "unavailable" }));
    }
    Ok(Response::json(200, &json!({ "architectures": levels })))
}
