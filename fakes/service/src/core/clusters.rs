//! Clusters: creating, changing, deleting, and the rules of their platform and networks.

use ipnet::IpNet;
use serde_json::json;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::Response;
use vlab_api::types::{
    ApiVip, Cluster, ClusterCreateParams, ClusterNetwork, ClusterProgressInfo, ClusterStatus, ClusterValidationId,
    DisconnectedClusterCreateParams, DiskEncryption, HostValidationId, IgnitionEndpoint, IgnoredValidations, ImageInfo,
    ImportClusterParams, IngressVip, LastInstallationPreparation, LoadBalancer, MachineNetwork, MonitoredOperator,
    OperatorType, Platform, PlatformExternal, PlatformType, ReleaseImage, ServiceNetwork, Severity,
    V2ClusterUpdateParams,
};
use vlab_model::view::ClusterView;
use vlab_model::{disks, network, validation};

use super::Core;
use super::answer::{Answer, Fail};
use super::router::Call;
use super::rows::{ClusterPrivate, ClusterRow};

/// Why a pull secret is refused.
pub(super) fn check_pull_secret(secret: &str, what: &str) -> Result<(), Fail> {
    use base64::Engine as _;
    let bad = |why: String| Err(Fail::bad_request(format!("pull secret for {what} is invalid: {why}")));
    let Ok(value) = serde_json::from_str::<serde_json::Value>(secret) else {
        return bad("pull secret must be a well-formed JSON".into());
    };
    let Some(auths) = value.get("auths").and_then(|a| a.as_object()).filter(|a| !a.is_empty()) else {
        return bad("pull secret must contain 'auths' JSON-object field".into());
    };
    for (registry, entry) in auths {
        let Some(auth) = entry.get("auth").and_then(|a| a.as_str()) else {
            return bad(format!("invalid: \"{registry}\" JSON-object requires either 'auth' or 'credsStore' field"));
        };
        let Some(decoded) =
            base64::engine::general_purpose::STANDARD.decode(auth).ok().and_then(|d| String::from_utf8(d).ok())
        else {
            return bad(format!("'auth' fields of \"{registry}\" are not base64-encoded"));
        };
        if decoded.split_once(':').is_none_or(|(user, password)| user.is_empty() || password.is_empty()) {
            return bad(format!("'auth' for {registry} is not in 'user:password' format"));
        }
    }
    Ok(())
}

/// An SSH public key as `ssh-keygen` writes it; empty is allowed.
pub(super) fn check_ssh_key(key: &str) -> Result<(), Fail> {
    use base64::Engine as _;
    const KINDS: &[&str] = &[
        "ssh-rsa",
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ecdsa-sha2-nistp256@openssh.com",
        "sk-ssh-ed25519@openssh.com",
        "ssh-dss",
    ];
    for line in key.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let mut parts = line.split_whitespace();
        let kind = parts.next().filter(|k| KINDS.contains(k));
        let blob = parts.next().and_then(|b| base64::engine::general_purpose::STANDARD.decode(b).ok());
        // The key itself begins with its kind, as a string with a length before it.
        let named = kind.zip(blob).is_some_and(|(kind, blob)| {
            blob.get(..4).is_some_and(|l| u32::from_be_bytes([l[0], l[1], l[2], l[3]]) as usize == kind.len())
                && blob.get(4..4 + kind.len()) == Some(kind.as_bytes())
        });
        if !named {
            return Err(Fail::bad_request("SSH key is not valid"));
        }
    }
    Ok(())
}

/// A proxy's URL; `https` proxies are not supported for plain HTTP.
pub(super) fn check_proxy(http: Option<&str>, https: Option<&str>, no_proxy: Option<&str>) -> Result<(), Fail> {
    for (name, url) in [("HTTP", http), ("HTTPS", https)] {
        let Some(url) = url.filter(|u| !u.is_empty()) else { continue };
        let bad = |why: String| Err(Fail::bad_request(format!("Failed to validate {name} Proxy: {why}")));
        let Some((scheme, rest)) = url.split_once("://").filter(|(_, rest)| !rest.is_empty()) else {
            return bad(format!("Proxy URL format is not valid: '{url}'"));
        };
        if scheme == "https" {
            return bad(format!("The URL scheme must be http; https is currently not supported: '{url}'"));
        }
        if scheme != "http" || rest.starts_with('/') {
            return bad(format!("Proxy URL format is not valid: '{url}'"));
        }
    }
    for part in no_proxy.unwrap_or("").split(',').filter(|p| !p.is_empty() && *p != "*") {
        let plain = part.trim_start_matches('.');
        let domain =
            !plain.is_empty() && plain.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':'));
        if !domain && part.parse::<IpNet>().is_err() {
            return Err(Fail::bad_request(format!(
                "NO Proxy format is not valid: '{part}'. NO Proxy is a comma-separated list of destination domain names, domains, IP addresses or other network CIDRs"
            )));
        }
    }
    Ok(())
}

fn check_name(name: &str, platform: PlatformType) -> Result<(), Fail> {
    let label = |l: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        edge(l.chars().next())
            && edge(l.chars().last())
            && l.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    let dots = platform == PlatformType::None;
    let valid = if dots { name.split('.').all(label) } else { label(name) };
    if valid {
        return Ok(());
    }
    Err(Fail::bad_request(format!(
        "Cluster name format is not valid: '{name}'. Name must start and end with either a letter or number and consist of lower-case letters, numbers, and hyphens. Subdomains in cluster names are only valid with none platform."
    )))
}

fn check_domain(domain: &str) -> Result<(), Fail> {
    const PATTERN: &str = r"^([a-z\d]([\-]*[a-z\d]+)*\.)+[a-z\d]+([\-]*[a-z\d]+)+$";
    let dotted_decimal =
        domain.split('.').count() == 4 && domain.split('.').all(|p| p.chars().all(|c| c.is_ascii_digit()));
    let valid = domain.len() <= 255 && !dotted_decimal && regex::Regex::new(PATTERN).is_ok_and(|r| r.is_match(domain));
    if domain.is_empty() || valid {
        return Ok(());
    }
    Err(Fail::bad_request(format!(
        "DNS format mismatch: {domain} domain name is not valid. Must match regex [{PATTERN}], be no more than 255 characters, and not be in dotted decimal format (##.##.##.##)"
    )))
}

/// Several complaints in the form in which the real service joins them.
fn complaints(errors: &[String]) -> Result<(), Fail> {
    if errors.is_empty() {
        return Ok(());
    }
    let noun = if errors.len() == 1 { "error" } else { "errors" };
    let list: String = errors.iter().map(|e| format!("\t* {e}\n")).collect();
    Err(Fail::bad_request(format!("{} {noun} occurred:\n{list}\n", errors.len())))
}

/// Networks that are no CIDRs.
fn check_networks(
    cluster: Option<&[ClusterNetwork]>,
    service: Option<&[ServiceNetwork]>,
    machine: Option<&[MachineNetwork]>,
) -> Result<(), Fail> {
    let mut errors = Vec::new();
    let mut check = |kind: &str, cidrs: Vec<&str>, minimum: bool| {
        for (i, cidr) in cidrs.into_iter().enumerate() {
            match cidr.parse::<IpNet>() {
                Err(_) => {
                    errors.push(format!("Could not parse {kind} CIDR {cidr} (index {i}): invalid CIDR address: {cidr}"))
                }
                Ok(net) if net.trunc() != net => {
                    errors.push(format!(
                        "{kind} CIDR {cidr} (index {i}): the host part of the address must be zero, as in {}",
                        net.trunc()
                    ));
                }
                Ok(net) if minimum => errors
                    .extend(network::network_too_small(&net).map(|e| format!("{kind} CIDR {cidr} (index {i}): {e}"))),
                Ok(_) => {}
            }
        }
    };
    let text = |c: &Option<String>| c.as_deref().unwrap_or("").to_owned();
    let list: Vec<String> = machine.unwrap_or(&[]).iter().map(|n| text(&n.cidr)).collect();
    check("Machine Network", list.iter().map(String::as_str).collect(), false);
    let list: Vec<String> = cluster.unwrap_or(&[]).iter().map(|n| text(&n.cidr)).collect();
    check("Cluster Network", list.iter().map(String::as_str).collect(), true);
    let list: Vec<String> = service.unwrap_or(&[]).iter().map(|n| text(&n.cidr)).collect();
    check("Service Network", list.iter().map(String::as_str).collect(), true);
    complaints(&errors)
}

fn ips_of_api(vips: Option<&[ApiVip]>) -> Vec<String> {
    vips.unwrap_or(&[]).iter().map(|v| v.ip.clone().unwrap_or_default()).collect()
}

fn ips_of_ingress(vips: Option<&[IngressVip]>) -> Vec<String> {
    vips.unwrap_or(&[]).iter().map(|v| v.ip.clone().unwrap_or_default()).collect()
}

/// VIPs must be addresses, at most two (one of each family), and differ unless the user brings the load balancer.
fn check_vips(api: &[String], ingress: &[String], user_balancer: bool) -> Result<(), Fail> {
    let mut errors = Vec::new();
    for (kind, vips) in [("apiVIPs", api), ("ingressVIPs", ingress)] {
        if vips.len() > 2 {
            errors.push(format!("{kind}: at most 2 addresses are allowed, got {}", vips.len()));
        }
        for vip in vips {
            if vip.parse::<std::net::IpAddr>().is_err() {
                errors.push(format!("{kind}: {vip:?} is not a valid IP address"));
            }
        }
    }
    if api.len() != ingress.len() && !api.is_empty() && !ingress.is_empty() {
        errors.push("configuration must include the same number of apiVIPs and ingressVIPs".to_owned());
    }
    if !user_balancer {
        for vip in api.iter().filter(|v| ingress.contains(v)) {
            errors.push(format!("The IP address \"{vip}\" appears both in apiVIPs and ingressVIPs"));
        }
    }
    complaints(&errors)
}

/// Platform and user-managed networking as they follow from what is asked for.
fn platform_rules(
    single: bool,
    platform: Option<PlatformType>,
    umn: Option<bool>,
) -> Result<(PlatformType, bool), Fail> {
    use PlatformType::*;
    let bad = |text: String| Err(Fail::bad_request(text));
    if single {
        if umn == Some(false) {
            return bad("disabling User Managed Networking or setting platform different than none platform is not allowed in single node Openshift".into());
        }
        return match platform {
            Option::None => Ok((PlatformType::None, true)),
            Some(p @ (PlatformType::None | External)) => Ok((p, true)),
            Some(p) => bad(format!("platform {p} is not allowed in single node Openshift; use none or external")),
        };
    }
    match (platform, umn) {
        (Option::None, Some(true)) => Ok((PlatformType::None, true)),
        (Option::None, _) => Ok((Baremetal, false)),
        (Some(p @ (PlatformType::None | External)), Some(false)) => {
            bad(format!("can't set {p} platform with user-managed-networking disabled"))
        }
        (Some(p @ (PlatformType::None | External)), _) => Ok((p, true)),
        (Some(p @ (Baremetal | Nutanix)), Some(true)) => {
            bad(format!("can't enable user-managed-networking for a cluster with platform {p}"))
        }
        (Some(p @ (Baremetal | Nutanix)), _) => Ok((p, false)),
        (Some(Vsphere), umn) => Ok((Vsphere, umn.unwrap_or(false))),
    }
}

/// How many masters; and the legacy mode that goes with the number.
fn topology(core: &Core, count: Option<i64>, mode: Option<&str>, version: &str) -> Result<(i64, &'static str), Fail> {
    let bad = |text: &str| Err(Fail::bad_request(text));
    let newer = |minor| disks::version_at_least(version, 4, minor);
    let count = match (count, mode) {
        (Some(1), Some("Full")) => {
            return bad("single-node clusters must have a single control plane node and high availability mode None");
        }
        (Some(n), Some("None")) if n != 1 => return bad("single-node clusters must have a single control plane node"),
        (Some(n), _) => n,
        (None, Some("None")) => 1,
        (None, _) => 3,
    };
    match count {
        1 => Ok((1, "None")),
        3 => Ok((3, "Full")),
        2 if newer(19) && (core.config.settings.tna_clusters_support || core.config.settings.tnf_clusters_support) => {
            Ok((2, "Full"))
        }
        4 | 5 if newer(18) => Ok((count, "Full")),
        _ if !newer(18) => bad(
            "there should be exactly 3 dedicated control plane nodes for high availability mode Full in openshift version older than 4.18",
        ),
        _ => Err(Fail::bad_request(format!(
            "there should be 2 to 5 dedicated control plane nodes for high availability mode Full, got {count}"
        ))),
    }
}

impl Core {
    /// The newest release of that version (`4.16` or `4.16.68`) for that architecture.
    pub(super) fn release(&self, version: &str, arch: &str) -> Option<&ReleaseImage> {
        let fits = |r: &&ReleaseImage| {
            let by_arch = r.cpu_architecture == arch || r.cpu_architectures.iter().flatten().any(|a| a == arch);
            let bare = version.trim_end_matches("-multi");
            by_arch && (r.version == bare || r.openshift_version == bare || r.version.starts_with(&format!("{bare}.")))
        };
        self.config
            .settings
            .release_images
            .iter()
            .filter(fits)
            .max_by_key(|r| r.version.split(['.', '-']).map(|p| p.parse::<u64>().unwrap_or(0)).collect::<Vec<_>>())
    }

    /// Is there a release of that version for any architecture (or is none named)?
    fn supported(&self, version: &str, arch: &str) -> Result<ReleaseImage, Fail> {
        self.release(version, arch).cloned().ok_or_else(|| {
            Fail::bad_request(format!(
                "Openshift version {version} for CPU architecture {arch} is not supported: no release image found for openshiftVersion: '{version}' and CPU architecture '{arch}'"
            ))
        })
    }
}

/// What every new cluster has.
fn blank(core: &mut Core, now: Timestamp, id: Uuid, kind: &str) -> ClusterRow {
    let unset = Some(Timestamp::UNSET);
    let mut operators = vec!["console"];
    if core.config.settings.check_cluster_version {
        operators.push("cvo");
    }
    let timeout = core.config.settings.constants.builtin_operator_timeout.as_secs() as i64;
    let monitored = operators
        .into_iter()
        .map(|name| MonitoredOperator {
            cluster_id: Some(id),
            name: Some(name.into()),
            operator_type: Some(OperatorType::Builtin),
            timeout_seconds: Some(timeout.max(1)),
            status_updated_at: unset,
            ..MonitoredOperator::default()
        })
        .collect();
    let cluster = Cluster {
        kind: kind.into(),
        id,
        href: format!("/api/assisted-install/v2/clusters/{id}"),
        user_name: Some("admin".into()),
        email_domain: Some("Unknown".into()),
        status: ClusterStatus::Insufficient,
        status_info: "The cluster is not ready to be installed".into(),
        status_updated_at: Some(now),
        created_at: Some(now),
        updated_at: Some(now),
        install_started_at: unset,
        install_completed_at: unset,
        controller_logs_started_at: unset,
        controller_logs_collected_at: unset,
        image_info: ImageInfo { created_at: unset, expires_at: unset, ..ImageInfo::default() },
        ignition_endpoint: Some(IgnitionEndpoint::default()),
        progress: Some(ClusterProgressInfo { finalizing_stage_started_at: unset, ..ClusterProgressInfo::default() }),
        last_installation_preparation: Some(LastInstallationPreparation::default()),
        org_soft_timeouts_enabled: Some(true),
        monitored_operators: Some(monitored),
        operator_bundles: Some(Vec::new()),
        api_vips: Some(Vec::new()),
        ingress_vips: Some(Vec::new()),
        machine_networks: Some(Vec::new()),
        cluster_networks: Some(Vec::new()),
        service_networks: Some(Vec::new()),
        ..Cluster::default()
    };
    ClusterRow {
        view: ClusterView::new(cluster),
        private: ClusterPrivate { ordinal: core.state.new_ordinal(), ..ClusterPrivate::default() },
    }
}

fn api_vips(id: Uuid, vips: Option<&[ApiVip]>) -> Vec<ApiVip> {
    ips_of_api(vips).into_iter().map(|ip| ApiVip { cluster_id: Some(id), ip: Some(ip), verification: None }).collect()
}

fn ingress_vips(id: Uuid, vips: Option<&[IngressVip]>) -> Vec<IngressVip> {
    ips_of_ingress(vips)
        .into_iter()
        .map(|ip| IngressVip { cluster_id: Some(id), ip: Some(ip), verification: None })
        .collect()
}

fn owned_cluster_networks(id: Uuid, networks: &[ClusterNetwork]) -> Vec<ClusterNetwork> {
    networks.iter().map(|n| ClusterNetwork { cluster_id: Some(id), ..n.clone() }).collect()
}

fn owned_service_networks(id: Uuid, networks: &[ServiceNetwork]) -> Vec<ServiceNetwork> {
    networks.iter().map(|n| ServiceNetwork { cluster_id: Some(id), ..n.clone() }).collect()
}

fn owned_machine_networks(id: Uuid, networks: &[MachineNetwork]) -> Vec<MachineNetwork> {
    networks.iter().map(|n| MachineNetwork { cluster_id: Some(id), ..n.clone() }).collect()
}

/// What of the API's features the cluster uses, as JSON text.
fn feature_usage(view: &ClusterView) -> String {
    let mut features = serde_json::Map::new();
    let mut add = |name: &str, id: &str| {
        features.insert(name.into(), json!({"id": id, "name": name}));
    };
    if view.cluster.network_type.as_deref() == Some("OVNKubernetes") {
        add("OVN network type", "OVN_NETWORK_TYPE");
    }
    if view.is_sno() {
        add("SNO", "SNO");
    }
    if view.cluster.http_proxy.is_some() || view.cluster.https_proxy.is_some() {
        add("Proxy", "PROXY");
    }
    if view.cluster.additional_ntp_source.is_some() {
        add("Additional NTP Source", "ADDITIONAL_NTP_SOURCE");
    }
    let hyperthreading = view.cluster.hyperthreading.as_deref().unwrap_or("all");
    features.insert(
        "Hyperthreading".into(),
        json!({"data": {"hyperthreading_enabled": hyperthreading}, "id": "HYPERTHREADING", "name": "Hyperthreading"}),
    );
    serde_json::Value::Object(features).to_string()
}

fn some_text(text: Option<String>) -> Option<String> {
    text.filter(|t| !t.is_empty())
}

/// `POST /v2/clusters`
pub(super) fn create(call: &mut Call<'_>) -> Answer {
    let p: ClusterCreateParams = call.body("new-cluster-params")?;
    let now = call.now;
    let core = &mut *call.core;
    let arch = some_text(p.cpu_architecture.clone()).unwrap_or_else(|| "x86_64".to_owned());
    let (count, mode) =
        topology(core, p.control_plane_count, p.high_availability_mode.as_deref(), &p.openshift_version)?;
    let (platform, umn) = platform_rules(count == 1, p.platform.as_ref().map(|p| p.type_), p.user_managed_networking)?;
    check_pull_secret(&p.pull_secret, "new cluster")?;
    check_ssh_key(p.ssh_public_key.as_deref().unwrap_or(""))?;
    check_proxy(p.http_proxy.as_deref(), p.https_proxy.as_deref(), p.no_proxy.as_deref())?;
    if p.additional_ntp_source.is_some() && p.ntp_sources.is_some() {
        return Err(Fail::bad_request("additional_ntp_source and ntp_sources are mutually exclusive"));
    }
    let user_balancer = p.load_balancer.as_ref().and_then(|l| l.type_.as_deref()) == Some("user-managed");
    check_networks(p.cluster_networks.as_deref(), p.service_networks.as_deref(), p.machine_networks.as_deref())?;
    check_vips(&ips_of_api(p.api_vips.as_deref()), &ips_of_ingress(p.ingress_vips.as_deref()), user_balancer)?;
    let release = core.supported(&p.openshift_version, &arch)?;
    check_name(&p.name, platform)?;
    check_domain(p.base_dns_domain.as_deref().unwrap_or(""))?;
    if p.olm_operators.iter().flatten().next().is_some() || p.operator_bundles.iter().flatten().next().is_some() {
        return Err(Fail::not_built("OLM operators"));
    }
    let id = core.state.new_id();
    let mut row = blank(core, now, id, "Cluster");
    let settings = &core.config.settings;
    let c = &mut row.view.cluster;
    c.name = Some(p.name.clone());
    c.high_availability_mode = Some(mode.into());
    c.control_plane_count = Some(count);
    c.openshift_version = Some(release.version.clone());
    c.ocp_release_image = Some(some_text(p.ocp_release_image).unwrap_or(release.url));
    c.base_dns_domain = some_text(p.base_dns_domain);
    c.cpu_architecture = Some(arch);
    c.user_managed_networking = Some(umn);
    c.vip_dhcp_allocation = Some(p.vip_dhcp_allocation.unwrap_or(false));
    c.platform =
        Some(Platform { type_: platform, external: Some(p.platform.and_then(|p| p.external).unwrap_or_default()) });
    c.load_balancer = Some(p.load_balancer.unwrap_or(LoadBalancer { type_: Some("cluster-managed".into()) }));
    c.network_type = Some(p.network_type.unwrap_or_else(|| "OVNKubernetes".to_owned()));
    c.hyperthreading = Some(p.hyperthreading.unwrap_or_else(|| "all".to_owned()));
    c.schedulable_masters = Some(p.schedulable_masters.unwrap_or(false));
    c.ssh_public_key = some_text(p.ssh_public_key);
    c.http_proxy = some_text(p.http_proxy);
    c.https_proxy = some_text(p.https_proxy);
    c.no_proxy = some_text(p.no_proxy);
    c.additional_ntp_source = some_text(p.additional_ntp_source);
    c.ntp_sources = some_text(p.ntp_sources);
    c.tags = some_text(p.tags);
    c.disk_encryption = Some(p.disk_encryption.unwrap_or(DiskEncryption {
        enable_on: Some("none".into()),
        mode: Some("tpmv2".into()),
        tang_servers: None,
    }));
    if let Some(endpoint) = p.ignition_endpoint {
        c.ignition_endpoint = Some(endpoint);
    }
    c.api_vips = Some(api_vips(id, p.api_vips.as_deref()));
    c.ingress_vips = Some(ingress_vips(id, p.ingress_vips.as_deref()));
    c.machine_networks = Some(owned_machine_networks(id, p.machine_networks.as_deref().unwrap_or(&[])));
    let cluster_networks = p.cluster_networks.filter(|n| !n.is_empty());
    c.cluster_networks = Some(match (cluster_networks, p.cluster_network_cidr) {
        (Some(networks), _) => owned_cluster_networks(id, &networks),
        (None, Some(cidr)) => {
            let host_prefix = p.cluster_network_host_prefix.or(Some(settings.cluster_network_host_prefix));
            vec![ClusterNetwork { cluster_id: Some(id), cidr: Some(cidr), host_prefix }]
        }
        (None, None) => network::default_cluster_networks(id, true, false, settings),
    });
    let service_networks = p.service_networks.filter(|n| !n.is_empty());
    c.service_networks = Some(match (service_networks, p.service_network_cidr) {
        (Some(networks), _) => owned_service_networks(id, &networks),
        (None, Some(cidr)) => vec![ServiceNetwork { cluster_id: Some(id), cidr: Some(cidr) }],
        (None, None) => network::default_service_networks(id, true, false, settings),
    });
    c.pull_secret_set = Some(true);
    row.view.has_pull_secret = true;
    row.view.cluster.feature_usage = Some(feature_usage(&row.view));
    row.private.pull_secret = p.pull_secret;
    core.state.insert_cluster(row);
    let text = format!("Successfully registered cluster {}", p.name);
    core.cluster_event(now, id, "cluster_registration_succeeded", Severity::Info, text);
    shown(core, id, 201)
}

fn shown(core: &Core, id: Uuid, status: u16) -> Answer {
    let cluster = core.show_cluster(id, true).ok_or_else(|| Fail::not_found("record not found"))?;
    Ok(Response::json(status, &cluster))
}

/// `GET /v2/clusters`
pub(super) fn list(call: &mut Call<'_>) -> Answer {
    let with_hosts = call.query_flag("with_hosts");
    let openshift = call.query_id("openshift_cluster_id");
    let owner = call.query("owner").filter(|o| !o.is_empty());
    let ids: Vec<Uuid> = call
        .core
        .state
        .clusters()
        .iter()
        .filter(|r| openshift.is_none_or(|o| r.cluster().openshift_cluster_id == Some(o)))
        .filter(|r| owner.is_none_or(|o| r.cluster().user_name.as_deref() == Some(o)))
        .map(|r| r.cluster().id)
        .collect();
    let clusters: Vec<Cluster> = ids.into_iter().filter_map(|id| call.core.show_cluster(id, with_hosts)).collect();
    Ok(Response::json(200, &clusters))
}

/// `GET /v2/clusters/{c}`
pub(super) fn get(call: &mut Call<'_>) -> Answer {
    let with_hosts = !call.query_flag("exclude-hosts");
    let cluster = call.core.show_cluster(call.ids[0], with_hosts).ok_or_else(|| Fail::not_found("record not found"))?;
    Ok(Response::json(200, &cluster))
}

/// `DELETE /v2/clusters/{c}`
pub(super) fn delete(call: &mut Call<'_>) -> Answer {
    let (id, now) = (call.ids[0], call.now);
    let core = &mut *call.core;
    let row = core.state.cluster(id).cloned().ok_or_else(|| Fail::not_found("record not found"))?;
    if row.cluster().status == ClusterStatus::Installing {
        let reason = format!("cluster {id} can not be removed while being installed");
        core.cluster_event(now, id, "cluster_deregister_failed", Severity::Error, reason.clone());
        return Err(Fail::not_found(reason));
    }
    for key in core.state.host_keys_of_cluster(id) {
        let text = format!("Host {}: deregistered", core.host_name(key));
        core.host_event(now, key, "host_deregistered", Severity::Info, text);
        core.state.delete_host(key);
    }
    let bound: Vec<Uuid> =
        core.state.infra_envs().iter().filter(|r| r.infra_env.cluster_id == Some(id)).map(|r| r.infra_env.id).collect();
    for infra_env in bound {
        // One with the cluster's own id lives and dies with it; others lose the binding.
        if infra_env == id {
            core.state.delete_infra_env(infra_env);
        } else {
            core.state.edit_infra_env(infra_env, now, |row| row.infra_env.cluster_id = None);
        }
    }
    let keys: Vec<String> = core.state.files_under(&format!("{id}/")).map(|(k, _)| k.clone()).collect();
    for key in keys {
        core.state.delete_file(&key);
    }
    core.cluster_event(now, id, "cluster_deregistered", Severity::Info, "Deregistered cluster".into());
    core.state.delete_cluster(id);
    Ok(Response::empty(204))
}

/// Statuses in which a cluster can be changed.
fn changeable(status: ClusterStatus) -> bool {
    matches!(
        status,
        ClusterStatus::Insufficient
            | ClusterStatus::Ready
            | ClusterStatus::PendingForInput
            | ClusterStatus::AddingHosts
    )
}

/// `PATCH /v2/clusters/{c}`
pub(super) fn update(call: &mut Call<'_>) -> Answer {
    let p: V2ClusterUpdateParams = call.body("cluster-update-params")?;
    let (id, now) = (call.ids[0], call.now);
    let core = &mut *call.core;
    let row = core.state.cluster(id).cloned().ok_or_else(|| Fail::not_found("record not found"))?;
    if !changeable(row.cluster().status) {
        return Err(Fail::conflict(format!(
            "Cluster {id} is in {} state, cluster can be updated only in status insufficient, ready, pending-for-input or adding-hosts",
            row.cluster().status
        )));
    }
    if let Some(secret) = &p.pull_secret {
        check_pull_secret(secret, &format!("cluster {id}"))?;
    }
    check_ssh_key(p.ssh_public_key.as_deref().unwrap_or(""))?;
    check_proxy(p.http_proxy.as_deref(), p.https_proxy.as_deref(), p.no_proxy.as_deref())?;
    check_domain(p.base_dns_domain.as_deref().unwrap_or(""))?;
    if p.additional_ntp_source.is_some() && p.ntp_sources.is_some() {
        return Err(Fail::bad_request("additional_ntp_source and ntp_sources are mutually exclusive"));
    }
    if p.olm_operators.iter().flatten().next().is_some() || p.operator_bundles.iter().flatten().next().is_some() {
        return Err(Fail::not_built("OLM operators"));
    }
    let topology = match p.control_plane_count {
        Some(n) => Some(topology(core, Some(n), None, row.view.openshift_version())?),
        None => None,
    };
    let single = topology.map_or(row.view.is_sno(), |t| t.0 == 1);
    let networking = if p.platform.is_some() || p.user_managed_networking.is_some() || topology.is_some() {
        let asked = p.platform.as_ref().map(|p| p.type_);
        // Without a word about the platform it follows the networking, unless that stays as it is.
        let same = p.user_managed_networking.is_none_or(|u| u == row.view.user_managed_networking());
        let platform = asked.or_else(|| same.then(|| row.view.platform()).filter(|_| !single));
        Some(platform_rules(single, platform, p.user_managed_networking)?)
    } else {
        None
    };
    let platform = networking.map_or(row.view.platform(), |n| n.0);
    let umn = networking.map_or(row.view.user_managed_networking(), |n| n.1);
    if let Some(name) = &p.name {
        check_name(name, platform)?;
    }
    let user_balancer = match &p.load_balancer {
        Some(balancer) => balancer.type_.as_deref() == Some("user-managed"),
        None => row.view.user_managed_load_balancer(),
    };
    check_networks(p.cluster_networks.as_deref(), p.service_networks.as_deref(), p.machine_networks.as_deref())?;
    let api =
        p.api_vips.as_deref().map_or_else(|| ips_of_api(row.cluster().api_vips.as_deref()), |v| ips_of_api(Some(v)));
    let ingress = p
        .ingress_vips
        .as_deref()
        .map_or_else(|| ips_of_ingress(row.cluster().ingress_vips.as_deref()), |v| ips_of_ingress(Some(v)));
    if p.api_vips.is_some() || p.ingress_vips.is_some() {
        let dhcp = p.vip_dhcp_allocation.unwrap_or(row.view.vip_dhcp_allocation());
        let given = !api.is_empty() || !ingress.is_empty();
        if dhcp && given {
            return Err(Fail::bad_request(
                "Setting API VIPs or ingress VIPs is forbidden when cluster is in vip-dhcp-allocation mode",
            ));
        }
        if umn && !user_balancer && !single && given {
            return Err(Fail::bad_request("API VIPs and ingress VIPs cannot be set with User Managed Networking"));
        }
        check_vips(&api, &ingress, user_balancer)?;
    }
    let dual = p.machine_networks.as_deref().map_or(0, <[_]>::len) > 1;
    if p.machine_networks.is_some()
        && !umn
        && !single
        && !dual
        && !user_balancer
        && !p.vip_dhcp_allocation.unwrap_or(row.view.vip_dhcp_allocation())
    {
        return Err(Fail::bad_request(
            "Setting Machine network CIDR is forbidden when cluster is not in vip-dhcp-allocation mode",
        ));
    }
    let proxy_changed = [
        (&p.http_proxy, &row.cluster().http_proxy),
        (&p.https_proxy, &row.cluster().https_proxy),
        (&p.no_proxy, &row.cluster().no_proxy),
    ]
    .iter()
    .any(|(new, old)| new.is_some() && new.as_deref().unwrap_or("") != old.as_deref().unwrap_or(""));
    core.state.edit_cluster(id, now, |row| {
        let c = &mut row.view.cluster;
        let text = |place: &mut Option<String>, new: &Option<String>| {
            if let Some(new) = new {
                *place = some_text(Some(new.clone()));
            }
        };
        text(&mut c.name, &p.name);
        text(&mut c.base_dns_domain, &p.base_dns_domain);
        text(&mut c.api_vip_dns_name, &p.api_vip_dns_name);
        text(&mut c.ssh_public_key, &p.ssh_public_key);
        text(&mut c.http_proxy, &p.http_proxy);
        text(&mut c.https_proxy, &p.https_proxy);
        text(&mut c.no_proxy, &p.no_proxy);
        text(&mut c.additional_ntp_source, &p.additional_ntp_source);
        text(&mut c.ntp_sources, &p.ntp_sources);
        text(&mut c.hyperthreading, &p.hyperthreading);
        text(&mut c.network_type, &p.network_type);
        text(&mut c.tags, &p.tags);
        if let Some((count, mode)) = topology {
            c.control_plane_count = Some(count);
            c.high_availability_mode = Some(mode.into());
        }
        if networking.is_some() {
            c.user_managed_networking = Some(umn);
            let external = p.platform.as_ref().and_then(|p| p.external.clone()).unwrap_or_default();
            c.platform = Some(Platform { type_: platform, external: Some(external) });
        }
        if let Some(dhcp) = p.vip_dhcp_allocation {
            c.vip_dhcp_allocation = Some(dhcp);
        }
        if let Some(schedulable) = p.schedulable_masters {
            c.schedulable_masters = Some(schedulable);
        }
        if let Some(encryption) = &p.disk_encryption {
            c.disk_encryption = Some(encryption.clone());
        }
        if let Some(endpoint) = &p.ignition_endpoint {
            c.ignition_endpoint = Some(endpoint.clone());
        }
        if let Some(balancer) = &p.load_balancer {
            c.load_balancer = Some(balancer.clone());
        }
        // New VIPs have to be verified; the same ones keep what was found.
        if p.api_vips.is_some() && api != ips_of_api(c.api_vips.as_deref()) {
            c.api_vips = Some(api_vips(id, p.api_vips.as_deref()));
        }
        if p.ingress_vips.is_some() && ingress != ips_of_ingress(c.ingress_vips.as_deref()) {
            c.ingress_vips = Some(ingress_vips(id, p.ingress_vips.as_deref()));
        }
        if let Some(networks) = &p.cluster_networks {
            c.cluster_networks = Some(owned_cluster_networks(id, networks));
        }
        if let Some(networks) = &p.service_networks {
            c.service_networks = Some(owned_service_networks(id, networks));
        }
        if let Some(networks) = &p.machine_networks {
            c.machine_networks = Some(owned_machine_networks(id, networks));
            row.private.machine_network_set_at = Some(now);
        } else if let Some(cidr) = &p.machine_network_cidr {
            c.machine_networks = Some(vec![MachineNetwork { cluster_id: Some(id), cidr: Some(cidr.clone()) }]);
            row.private.machine_network_set_at = Some(now);
        }
        if let Some(secret) = p.pull_secret.clone() {
            row.view.has_pull_secret = true;
            row.view.cluster.pull_secret_set = Some(true);
            row.private.pull_secret = secret;
        }
        row.view.cluster.feature_usage = Some(feature_usage(&row.view));
    });
    if proxy_changed {
        core.cluster_event(now, id, "proxy_settings_changed", Severity::Info, "Proxy settings changed".into());
    }
    if p.api_vips.is_some() || p.ingress_vips.is_some() {
        core.derive_machine_networks(now, id);
    }
    core.refresh_interactively(now, id);
    shown(core, id, 201)
}

/// `POST /v2/clusters/import`
pub(super) fn import(call: &mut Call<'_>) -> Answer {
    let p: ImportClusterParams = call.body("new-import-cluster-params")?;
    let now = call.now;
    let core = &mut *call.core;
    let id = core.state.new_id();
    let mut row = blank(core, now, id, "AddHostsCluster");
    let c = &mut row.view.cluster;
    c.name = Some(p.name.clone());
    c.api_vip_dns_name = Some(p.api_vip_dnsname);
    c.openshift_cluster_id = Some(p.openshift_cluster_id);
    c.openshift_version = p.openshift_version;
    c.imported = Some(true);
    c.status = ClusterStatus::AddingHosts;
    c.status_info = "The cluster takes more hosts".into();
    c.platform = Some(Platform { type_: PlatformType::Baremetal, external: Some(PlatformExternal::default()) });
    c.user_managed_networking = Some(false);
    c.vip_dhcp_allocation = Some(false);
    c.monitored_operators = Some(Vec::new());
    core.state.insert_cluster(row);
    let text = format!("Successfully registered cluster {}", p.name);
    core.cluster_event(now, id, "cluster_registration_succeeded", Severity::Info, text);
    shown(core, id, 201)
}

/// `POST /v2/clusters/disconnected`
pub(super) fn disconnected(call: &mut Call<'_>) -> Answer {
    let p: DisconnectedClusterCreateParams = call.body("new-cluster-params")?;
    let now = call.now;
    let core = &mut *call.core;
    let id = core.state.new_id();
    let mut row = blank(core, now, id, "DisconnectedCluster");
    let c = &mut row.view.cluster;
    c.name = Some(p.name.clone());
    c.openshift_version = Some(p.openshift_version);
    c.status = ClusterStatus::Unmonitored;
    c.status_info = "The cluster is not monitored".into();
    c.monitored_operators = Some(Vec::new());
    core.state.insert_cluster(row);
    let text = format!("Successfully registered cluster {}", p.name);
    core.cluster_event(now, id, "cluster_registration_succeeded", Severity::Info, text);
    shown(core, id, 201)
}

/// `GET …/ignored-validations`
pub(super) fn ignored_validations(call: &mut Call<'_>) -> Answer {
    let row = call.core.state.cluster(call.ids[0]).ok_or_else(|| Fail::not_found("record not found"))?;
    Ok(Response::json(
        200,
        &IgnoredValidations {
            cluster_validation_ids: row.cluster().ignored_cluster_validations.clone(),
            host_validation_ids: row.cluster().ignored_host_validations.clone(),
        },
    ))
}

/// `PUT …/ignored-validations`
pub(super) fn set_ignored_validations(call: &mut Call<'_>) -> Answer {
    let p: IgnoredValidations = call.body("ignored_validations")?;
    let (id, now) = (call.ids[0], call.now);
    if call.core.state.cluster(id).is_none() {
        return Err(Fail::not_found("record not found"));
    }
    let parse = |text: &Option<String>| -> Result<Vec<String>, Fail> {
        let Some(text) = text.as_deref().filter(|t| !t.is_empty()) else { return Ok(Vec::new()) };
        serde_json::from_str(text)
            .map_err(|e| Fail::bad_request(format!("Unable to unmarshal the ignored validations: {e}")))
    };
    let hosts = parse(&p.host_validation_ids)?;
    let clusters = parse(&p.cluster_validation_ids)?;
    for word in hosts.iter().filter(|w| *w != "all") {
        let known: HostValidationId =
            word.parse().map_err(|_| Fail::bad_request(format!("{word} is not a known host validation")))?;
        if !validation::host_spec(known).ignorable {
            return Err(Fail::bad_request(format!("unable to ignore the following host validations ({word})")));
        }
    }
    for word in clusters.iter().filter(|w| *w != "all") {
        let known: ClusterValidationId =
            word.parse().map_err(|_| Fail::bad_request(format!("{word} is not a known cluster validation")))?;
        if !validation::cluster_spec(known).ignorable {
            return Err(Fail::bad_request(format!("unable to ignore the following cluster validations ({word})")));
        }
    }
    call.core.state.edit_cluster(id, now, |row| {
        row.view.set_ignored_host_validations(hosts);
        row.view.set_ignored_cluster_validations(clusters);
    });
    ignored_validations(call).map(|r| Response { status: 201, ..r })
}

/// `GET …/ui-settings`
pub(super) fn ui_settings(call: &mut Call<'_>) -> Answer {
    let row = call.core.state.cluster(call.ids[0]).ok_or_else(|| Fail::not_found("record not found"))?;
    Ok(Response::json(200, &row.private.ui_settings))
}

/// `PUT …/ui-settings`
pub(super) fn set_ui_settings(call: &mut Call<'_>) -> Answer {
    let text = call.text_body("ui-settings")?;
    let (id, now) = (call.ids[0], call.now);
    if call.core.state.cluster(id).is_none() {
        return Err(Fail::not_found("record not found"));
    }
    call.core.state.edit_cluster(id, now, |row| row.private.ui_settings.clone_from(&text));
    Ok(Response::json(200, &text))
}
