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

use crate::Core;
use crate::answer::{Answer, Fail};
use crate::router::Call;
use crate::rows::{ClusterPrivate, ClusterRow};

/// Why a pull secret is refused.
pub(crate) fn check_pull_secret(secret: &str, what: &str) -> Result<(), Fail> {
    use base64::Engine as _;
    let bad = |why: String| Err(Fail::bad_request(format!("pull secret for {what} is invalid: {why}")));
    let Ok(value) = serde_json::from_str::<serde_json::Value>(secret) else {
        return bad("pull secret must be a well-formed JSON".into());
    };
    let Some(auths) = value.get("auths").and_then(|a| a.as_object()).filter(|a| !a.is_empty()) else {
        return bad("pull secret must contain 'auths' JSON-object field".into());
    };
    for (registry, entry) in auths {
        // An entry without `auth` is nothing to the service.
        let Some(auth) = entry.get("auth").and_then(|a| a.as_str()) else { continue };
        let Some(decoded) =
            base64::engine::general_purpose::STANDARD.decode(auth).ok().and_then(|d| String::from_utf8(d).ok())
        else {
            return bad(format!("invalid pull secret: 'auth' field of \"{registry}\" is not base64-encoded"));
        };
        if decoded.split_once(':').is_none_or(|(user, password)| user.is_empty() || password.is_empty()) {
            return bad(format!("invalid pull secret: 'auth' for {registry} is not in 'user:password' format"));
        }
    }
    Ok(())
}

/// The same for a changed one: what is no JSON at all is told without a word about where.
pub(crate) fn check_changed_pull_secret(secret: &str, what: &str) -> Result<(), Fail> {
    if serde_json::from_str::<serde_json::Value>(secret).is_err() {
        return Err(Fail::bad_request("pull secret must be a well-formed JSON"));
    }
    check_pull_secret(secret, what)
}

/// An SSH public key as `ssh-keygen` writes it; empty is allowed.
pub(crate) fn check_ssh_key(key: &str) -> Result<(), Fail> {
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
            return Err(Fail::bad_request(format!(
                "SSH key: {line} does not match any supported type: ssh-rsa, ssh-ed25519, ecdsa-[VARIANT]"
            )));
        }
    }
    Ok(())
}

/// A proxy's URL; `https` proxies are not supported for plain HTTP.
pub(crate) fn check_proxy(http: Option<&str>, https: Option<&str>, no_proxy: Option<&str>) -> Result<(), Fail> {
    for (name, url) in [("HTTP", http), ("HTTPS", https)] {
        let Some(url) = url.filter(|u| !u.is_empty()) else { continue };
        let bad = |why: String| Err(Fail::bad_request(format!("Failed to validate {name} Proxy: {why}")));
        let Some((scheme, rest)) = url.split_once("://").filter(|(_, rest)| !rest.is_empty()) else {
            return bad(format!("Proxy URL format is not valid: '{url}'"));
        };
        if scheme == "https" {
            return bad(format!("The URL scheme must be http and specified in the URL: '{url}'"));
        }
        if scheme != "http" || rest.starts_with('/') {
            return bad(format!("Proxy URL format is not valid: '{url}'"));
        }
    }
    for part in no_proxy.unwrap_or("").split(',').filter(|p| !p.is_empty() && *p != "*") {
        let plain = part.trim_start_matches("*.").trim_start_matches('.');
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
    // A single label is fine too; the message only tells of the longer ones.
    const LABEL: &str = r"^[a-z\d]+([\-]*[a-z\d]+)+$";
    let matches = |pattern| regex::Regex::new(pattern).is_ok_and(|r| r.is_match(domain));
    let valid = domain.len() <= 255 && !dotted_decimal && (matches(PATTERN) || matches(LABEL));
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

/// Networks that are no CIDRs. Their size and host bits are not looked at here: host bits are cut off when they are stored,
/// and whether a network is large enough is for the validations to say.
fn check_networks(
    cluster: Option<&[ClusterNetwork]>,
    service: Option<&[ServiceNetwork]>,
    machine: Option<&[MachineNetwork]>,
) -> Result<(), Fail> {
    let mut errors = Vec::new();
    let mut check = |kind: &str, cidrs: Vec<&str>| {
        for (i, cidr) in cidrs.into_iter().enumerate() {
            if cidr.parse::<IpNet>().is_err() {
                errors.push(format!("Could not parse {kind} CIDR {cidr} (index {i}): invalid CIDR address: {cidr}"));
            }
        }
    };
    check("Machine Network", machine.unwrap_or(&[]).iter().map(|n| n.cidr.as_deref().unwrap_or("")).collect());
    check("Cluster Network", cluster.unwrap_or(&[]).iter().map(|n| n.cidr.as_deref().unwrap_or("")).collect());
    check("Service Network", service.unwrap_or(&[]).iter().map(|n| n.cidr.as_deref().unwrap_or("")).collect());
    complaints(&errors)
}

/// A CIDR without host bits.
fn trimmed(cidr: Option<&String>) -> Option<String> {
    cidr.map(|c| c.parse::<IpNet>().map_or_else(|_| c.clone(), |net| net.trunc().to_string()))
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
            errors.push(format!("{kind} supports 2 vips. got: {}", vips.len()));
        }
        for vip in vips {
            if vip.parse::<std::net::IpAddr>().is_err() {
                errors.push(format!("{kind}: {vip:?} is not a valid IP address"));
            }
        }
    }
    if api.len() != ingress.len() {
        errors.push(format!(
            "configuration must include the same number of apiVIPs (got {}) and ingressVIPs (got {})",
            api.len(),
            ingress.len()
        ));
    }
    if !user_balancer {
        for vip in api.iter().filter(|v| ingress.contains(v)) {
            errors.push(format!("The IP address \"{vip}\" appears both in apiVIPs and ingressVIPs"));
        }
    }
    complaints(&errors)?;
    for (kind, vips) in [("apiVIPs", api), ("ingressVIPs", ingress)] {
        let v6 = vips.iter().filter(|v| v.contains(':')).count();
        if vips.len() == 2 && v6 != 1 {
            let missing = if v6 == 0 { "IPv6" } else { "IPv4" };
            return Err(Fail::bad_request(format!("dual-stack {kind} must include exactly one {missing} address")));
        }
    }
    Ok(())
}

/// VIPs must be in the machine networks, where those are named; the first that is not is reported.
fn check_vips_in(networks: &[MachineNetwork], api: &[String], ingress: &[String]) -> Result<(), Fail> {
    let nets: Vec<IpNet> = networks.iter().filter_map(|n| n.cidr.as_deref()?.parse().ok()).collect();
    for (kind, vips) in [("api-vip", api), ("ingress-vip", ingress)] {
        for (i, vip) in vips.iter().enumerate() {
            let Ok(ip) = vip.parse::<std::net::IpAddr>() else { continue };
            if nets.is_empty() || nets.iter().any(|n| n.contains(&ip)) {
                continue;
            }
            let net = nets.get(i).unwrap_or(&nets[0]);
            return complaints(&[format!("{kind} <{vip}> does not belong to machine-network-cidr <{net}>")]);
        }
    }
    Ok(())
}

/// Who makes the VIPs: with user-managed networking nobody sets them (unless the user brings the load balancer), with DHCP
/// the service does.
fn check_vip_owner(umn: bool, dhcp: bool, user_balancer: bool, api: &[String], ingress: &[String]) -> Result<(), Fail> {
    let bad = |text: &str| Err(Fail::bad_request(text));
    match (umn && !user_balancer, dhcp) {
        (true, true) => bad("VIP DHCP Allocation cannot be set with User Managed Networking"),
        (true, _) if !api.is_empty() => bad("API VIPs cannot be set with User Managed Networking"),
        (true, _) if !ingress.is_empty() => bad("Ingress VIPs cannot be set with User Managed Networking"),
        (_, true) if !api.is_empty() => {
            bad("Setting API VIPs is forbidden when cluster is in vip-dhcp-allocation mode")
        }
        (_, true) if !ingress.is_empty() => {
            bad("Setting Ingress VIPs is forbidden when cluster is in vip-dhcp-allocation mode")
        }
        _ => Ok(()),
    }
}

/// OpenShiftSDN is gone since 4.15 and never was for a single node.
fn check_network_type(kind: Option<&str>, version: &str, single: bool) -> Result<(), Fail> {
    if kind != Some("OpenShiftSDN") {
        return Ok(());
    }
    if single {
        return Err(Fail::bad_request("OpenShiftSDN network type is not allowed in single node mode"));
    }
    if disks::version_at_least(version, 4, 15) {
        return Err(Fail::bad_request(format!(
            "Openshift version {version} is not supported for OpenShiftSDN NetworkType"
        )));
    }
    Ok(())
}

/// Virtual addresses that DHCP leases end with OpenShift 4.15. A cluster with them can be created all the same; what is refused is
/// every change that leaves it so, and its infra-env.
pub(crate) fn check_vip_allocation(dhcp: bool, cluster: &ClusterView) -> Result<(), Fail> {
    let version = cluster.openshift_version();
    if !dhcp || !disks::version_at_least(version, 4, 15) {
        return Ok(());
    }
    let arch = cluster.cluster.cpu_architecture.as_deref().unwrap_or("x86_64");
    Err(Fail::bad_request(format!(
        "cannot use VIP Automatic Allocation because it's not compatible with the {arch} architecture on version {version} of OpenShift"
    )))
}

/// A comma-separated list of NTP servers: addresses or names.
pub(crate) fn check_ntp(sources: Option<&str>) -> Result<(), Fail> {
    for source in sources.unwrap_or("").split(',').filter(|s| !s.is_empty()) {
        let fine = source.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':'));
        if !fine {
            return Err(Fail::bad_request(format!("Invalid NTP source: {source}")));
        }
    }
    Ok(())
}

/// A comma-separated list of words (letters, digits, underscores, blanks).
fn check_tags(tags: Option<&str>) -> Result<(), Fail> {
    let Some(tags) = tags.filter(|t| !t.is_empty()) else { return Ok(()) };
    let word = |w: &str| {
        let w = w.trim();
        !w.is_empty() && w.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ' '))
    };
    if tags.split(',').all(word) {
        return Ok(());
    }
    Err(Fail::bad_request(format!(
        "Invalid format for Tags: {tags}. Tags should be a comma-separated list (e.g. tag1,tag2,tag3). Each tag can consist of the following characters: Alphanumeric (aA-zZ, 0-9), underscore (_) and white-spaces."
    )))
}

fn check_encryption(encryption: Option<&DiskEncryption>) -> Result<(), Fail> {
    let tang = encryption
        .is_some_and(|e| e.mode.as_deref() == Some("tang") && e.tang_servers.as_deref().unwrap_or("").is_empty());
    if tang { Err(Fail::bad_request("Setting Tang mode but tang_servers isn't set")) } else { Ok(()) }
}

/// Operators that the service would know are not built; others do not exist.
fn check_operators(operators: Option<&[vlab_api::types::OperatorCreateParams]>, bundles: bool) -> Result<(), Fail> {
    for operator in operators.unwrap_or(&[]) {
        let name = operator.name.as_deref().unwrap_or("");
        if !KNOWN_OPERATORS.contains(&name) {
            return Err(Fail::bad_request(format!("operator {name} isn't supported")));
        }
    }
    if bundles || operators.is_some_and(|o| !o.is_empty()) { Err(Fail::not_built("OLM operators")) } else { Ok(()) }
}

/// Operators that the real service can install.
const KNOWN_OPERATORS: &[&str] = &["lso", "ocs", "odf", "cnv", "lvm", "mce"];

/// An external platform needs to be described.
fn check_external(platform: Option<&Platform>) -> Result<(), Fail> {
    match platform {
        Some(p) if p.type_ == PlatformType::External && p.external.is_none() => {
            Err(Fail::bad_request("External setting must be set when using platform type external"))
        }
        _ => Ok(()),
    }
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
            return bad("Can't disable user-managed-networking on single node OpenShift".into());
        }
        return match platform {
            Option::None => Ok((PlatformType::None, true)),
            Some(p @ (PlatformType::None | External)) => Ok((p, true)),
            Some(p) => bad(format!("Can't set {p} platform on single node OpenShift")),
        };
    }
    match (platform, umn) {
        (Option::None, Some(true)) => Ok((PlatformType::None, true)),
        (Option::None, _) => Ok((Baremetal, false)),
        (Some(p @ (PlatformType::None | External)), Some(false)) => {
            bad(format!("Can't set {p} platform with user-managed-networking disabled"))
        }
        (Some(p @ (PlatformType::None | External)), _) => Ok((p, true)),
        (Some(p @ (Baremetal | Nutanix)), Some(true)) => {
            bad(format!("Can't set {p} platform with user-managed-networking enabled"))
        }
        (Some(p @ (Baremetal | Nutanix)), _) => Ok((p, false)),
        (Some(Vsphere), umn) => Ok((Vsphere, umn.unwrap_or(false))),
    }
}

/// How many masters; and the legacy mode that goes with the number.
fn topology(core: &Core, count: Option<i64>, mode: Option<&str>, version: &str) -> Result<(i64, &'static str), Fail> {
    let bad = |text: &str| Err(Fail::bad_request(text));
    let newer = |minor| disks::version_at_least(version, 4, minor);
    let two = newer(19) && (core.config.settings.tna_clusters_support || core.config.settings.tnf_clusters_support);
    let out_of_range = || {
        let (least, since) = if two { (2, "4.19") } else { (3, "4.18") };
        Fail::bad_request(format!(
            "there should be {least}-5 dedicated control plane nodes for high availability mode Full in openshift version {since} or newer"
        ))
    };
    let count = match (count, mode) {
        (Some(1), Some("Full")) if newer(18) => return Err(out_of_range()),
        (Some(1), Some("Full")) => {
            return bad(
                "there should be exactly 3 dedicated control plane nodes for high availability mode Full in openshift version older than 4.18",
            );
        }
        (Some(n), Some("None")) if n != 1 => return bad("single-node clusters must have a single control plane node"),
        (Some(n), _) => n,
        (None, Some("None")) => 1,
        (None, _) => 3,
    };
    match count {
        1 => Ok((1, "None")),
        3 => Ok((3, "Full")),
        2 if two => Ok((2, "Full")),
        4 | 5 if newer(18) => Ok((count, "Full")),
        _ if !newer(18) => bad(
            "there should be exactly 3 dedicated control plane nodes for high availability mode Full in openshift version older than 4.18",
        ),
        _ => Err(out_of_range()),
    }
}

impl Core {
    /// The newest release of that version (`4.16` or `4.16.68`) for that architecture.
    pub(crate) fn release(&self, version: &str, arch: &str) -> Option<&ReleaseImage> {
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
    let timeout = core.config.settings.constants.builtin_operator_timeout_seconds;
    let monitored = operators
        .into_iter()
        .map(|name| MonitoredOperator {
            cluster_id: Some(id),
            name: Some(name.into()),
            operator_type: Some(OperatorType::Builtin),
            timeout_seconds: Some(timeout),
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
        image_info: ImageInfo { created_at: Some(now), expires_at: unset, ..ImageInfo::default() },
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
    networks
        .iter()
        .map(|n| ClusterNetwork { cluster_id: Some(id), cidr: trimmed(n.cidr.as_ref()), ..n.clone() })
        .collect()
}

fn owned_service_networks(id: Uuid, networks: &[ServiceNetwork]) -> Vec<ServiceNetwork> {
    networks.iter().map(|n| ServiceNetwork { cluster_id: Some(id), cidr: trimmed(n.cidr.as_ref()) }).collect()
}

fn owned_machine_networks(id: Uuid, networks: &[MachineNetwork]) -> Vec<MachineNetwork> {
    networks.iter().map(|n| MachineNetwork { cluster_id: Some(id), cidr: trimmed(n.cidr.as_ref()) }).collect()
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
pub(crate) fn create(call: &mut Call<'_>) -> Answer {
    let p: ClusterCreateParams = call.body("new-cluster-params")?;
    let now = call.now;
    let core = &mut *call.core;
    let arch = some_text(p.cpu_architecture.clone()).unwrap_or_else(|| "x86_64".to_owned());
    let (count, mode) =
        topology(core, p.control_plane_count, p.high_availability_mode.as_deref(), &p.openshift_version)?;
    check_external(p.platform.as_ref())?;
    let (platform, umn) = platform_rules(count == 1, p.platform.as_ref().map(|p| p.type_), p.user_managed_networking)?;
    check_pull_secret(&p.pull_secret, "new cluster")?;
    check_ssh_key(p.ssh_public_key.as_deref().unwrap_or(""))?;
    check_proxy(p.http_proxy.as_deref(), p.https_proxy.as_deref(), p.no_proxy.as_deref())?;
    if p.additional_ntp_source.is_some() && p.ntp_sources.is_some() {
        return Err(Fail::bad_request("additional_ntp_source and ntp_sources are mutually exclusive"));
    }
    check_ntp(p.additional_ntp_source.as_deref())?;
    check_ntp(p.ntp_sources.as_deref())?;
    check_tags(p.tags.as_deref())?;
    check_encryption(p.disk_encryption.as_ref())?;
    let user_balancer = p.load_balancer.as_ref().and_then(|l| l.type_.as_deref()) == Some("user-managed");
    check_networks(p.cluster_networks.as_deref(), p.service_networks.as_deref(), p.machine_networks.as_deref())?;
    let (api, ingress) = (ips_of_api(p.api_vips.as_deref()), ips_of_ingress(p.ingress_vips.as_deref()));
    check_vips(&api, &ingress, user_balancer)?;
    // A single node that is not told about the networking may name VIPs; they mean nothing then.
    let asked_umn = if count == 1 { p.user_managed_networking == Some(true) } else { umn };
    check_vip_owner(asked_umn, p.vip_dhcp_allocation.unwrap_or(false), user_balancer, &api, &ingress)?;
    check_vips_in(p.machine_networks.as_deref().unwrap_or(&[]), &api, &ingress)?;
    let release = core.supported(&p.openshift_version, &arch)?;
    check_network_type(p.network_type.as_deref(), &release.version, count == 1)?;
    check_name(&p.name, platform)?;
    check_domain(p.base_dns_domain.as_deref().unwrap_or(""))?;
    check_operators(p.olm_operators.as_deref(), p.operator_bundles.iter().flatten().next().is_some())?;
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
    let cluster_networks = p.cluster_networks;
    c.cluster_networks = Some(match (cluster_networks, p.cluster_network_cidr) {
        (Some(networks), _) => owned_cluster_networks(id, &networks),
        (None, Some(cidr)) => {
            let host_prefix = p.cluster_network_host_prefix.or(Some(settings.cluster_network_host_prefix));
            vec![ClusterNetwork { cluster_id: Some(id), cidr: Some(cidr), host_prefix }]
        }
        (None, None) => network::default_cluster_networks(id, true, false, settings),
    });
    c.service_networks = Some(match (p.service_networks, p.service_network_cidr) {
        (Some(networks), _) => owned_service_networks(id, &networks),
        (None, Some(cidr)) => vec![ServiceNetwork { cluster_id: Some(id), cidr: Some(cidr) }],
        (None, None) => network::default_service_networks(id, true, false, settings),
    });
    c.pull_secret_set = Some(true);
    row.view.has_pull_secret = true;
    row.view.cluster.feature_usage = Some(feature_usage(&row.view));
    row.private.pull_secret = p.pull_secret;
    core.state.insert_cluster(row);
    let text = "Successfully registered cluster".to_owned();
    core.cluster_event(now, id, "cluster_registration_succeeded", Severity::Info, text);
    let mut cluster = core.show_cluster(id, true).ok_or_else(|| missing(id))?;
    // The date comes with storing; the first answer does not have it yet.
    cluster.image_info.created_at = Some(Timestamp::UNSET);
    Ok(Response::json(201, &cluster))
}

fn shown(core: &Core, id: Uuid, status: u16) -> Answer {
    let cluster = core.show_cluster(id, true).ok_or_else(|| Fail::not_found("record not found"))?;
    Ok(Response::json(status, &cluster))
}

/// `GET /v2/clusters`
pub(crate) fn list(call: &mut Call<'_>) -> Answer {
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
pub(crate) fn get(call: &mut Call<'_>) -> Answer {
    let with_hosts = !call.query_flag("exclude-hosts");
    let cluster = call.core.show_cluster(call.ids[0], with_hosts).ok_or_else(|| Fail::not_found("record not found"))?;
    Ok(Response::json(200, &cluster))
}

/// There is no such cluster, for what changes it.
fn missing(id: Uuid) -> Fail {
    Fail::not_found(format!("Failed to get cluster {id}: record not found"))
}

/// `DELETE /v2/clusters/{c}`
pub(crate) fn delete(call: &mut Call<'_>) -> Answer {
    let (id, now) = (call.ids[0], call.now);
    let core = &mut *call.core;
    let row = core.state.cluster(id).cloned().ok_or_else(|| missing(id))?;
    if row.cluster().status == ClusterStatus::Installing {
        let reason = format!(
            "cluster {id} can not be removed while being installed, wait for the installation to timeout or reset the installation"
        );
        return Err(Fail::conflict(reason));
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
pub(crate) fn update(call: &mut Call<'_>) -> Answer {
    let p: V2ClusterUpdateParams = call.body("cluster-update-params")?;
    let (id, now) = (call.ids[0], call.now);
    let core = &mut *call.core;
    let row = core.state.cluster(id).cloned().ok_or_else(|| missing(id))?;
    if !changeable(row.cluster().status) {
        return Err(Fail::conflict(format!(
            "Cluster {id} is in {} state, cluster can be updated only in status insufficient, ready, pending-for-input or adding-hosts",
            row.cluster().status
        )));
    }
    if let Some(secret) = &p.pull_secret {
        check_changed_pull_secret(secret, &format!("cluster {id}"))?;
    }
    check_ssh_key(p.ssh_public_key.as_deref().unwrap_or(""))?;
    check_proxy(p.http_proxy.as_deref(), p.https_proxy.as_deref(), p.no_proxy.as_deref())?;
    check_domain(p.base_dns_domain.as_deref().unwrap_or(""))?;
    if p.additional_ntp_source.is_some() && p.ntp_sources.is_some() {
        return Err(Fail::bad_request("additional_ntp_source and ntp_sources are mutually exclusive"));
    }
    check_operators(p.olm_operators.as_deref(), p.operator_bundles.iter().flatten().next().is_some())?;
    let topology = match p.control_plane_count {
        // A cluster stays what it is: one node or many.
        Some(n) => {
            let mode = if row.view.is_sno() { "None" } else { "Full" };
            Some(topology(core, Some(n), Some(mode), row.view.openshift_version())?)
        }
        None => None,
    };
    let single = topology.map_or(row.view.is_sno(), |t| t.0 == 1);
    let networking = if p.platform.is_some() || p.user_managed_networking.is_some() || topology.is_some() {
        let asked = p.platform.as_ref().map(|p| p.type_);
        // Without a word about the platform it follows the networking, unless that stays as it is.
        let same = p.user_managed_networking.is_none_or(|u| u == row.view.user_managed_networking());
        let platform =
            asked.or_else(|| same.then(|| row.view.platform()).filter(|own| !single || *own == PlatformType::External));
        check_external(p.platform.as_ref())?;
        if single
            && (p.user_managed_networking == Some(false)
                || asked.is_some_and(|a| !matches!(a, PlatformType::None | PlatformType::External)))
        {
            return Err(Fail::bad_request(
                "disabling User Managed Networking or setting platform different than none or oci platforms is not allowed in single node Openshift",
            ));
        }
        // An external platform does not turn the networking over by itself; `none` does.
        let umn = p
            .user_managed_networking
            .or_else(|| (asked == Some(PlatformType::External) && !single).then(|| row.view.user_managed_networking()));
        Some(platform_rules(single, platform, umn)?)
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
        check_vips(&api, &ingress, user_balancer)?;
        let dhcp = p.vip_dhcp_allocation.unwrap_or(row.view.vip_dhcp_allocation());
        check_vip_owner(umn, dhcp, user_balancer, &api, &ingress)?;
        // The machine network is that of the hosts in which the VIP is: one must have it.
        if let Some(vip) = api.first().filter(|_| !umn && !dhcp && !user_balancer && p.machine_networks.is_none()) {
            let hosts = core.state.hosts_of_cluster(id);
            let views: Vec<_> = hosts.iter().map(|h| &h.view).collect();
            if !network::any_host_reaches(vip, &views) {
                return Err(Fail::bad_request(format!(
                    "Calculate machine network CIDR: No suitable matching CIDR found for VIP {vip}"
                )));
            }
        }
    }
    check_ntp(p.additional_ntp_source.as_deref())?;
    check_ntp(p.ntp_sources.as_deref())?;
    check_tags(p.tags.as_deref())?;
    check_encryption(p.disk_encryption.as_ref())?;
    check_network_type(p.network_type.as_deref(), row.view.openshift_version(), single)?;
    if p.vip_dhcp_allocation == Some(true) && single {
        return Err(Fail::bad_request(
            "cannot use Single Node OpenShift because it's not compatible with VIP Automatic Allocation",
        ));
    }
    check_vip_allocation(p.vip_dhcp_allocation.unwrap_or(row.view.vip_dhcp_allocation()), &row.view)?;
    if p.load_balancer.is_some() && user_balancer && umn {
        return Err(Fail::bad_request(
            "cannot use User Managed Networking because it's not compatible with User Managed Load Balancer",
        ));
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
            "Setting the Machine Network CIDR is forbidden when the cluster is neither in VIP DHCP allocation mode nor using a user-managed load balancer",
        ));
    }
    let proxy_changed = [
        (&p.http_proxy, &row.cluster().http_proxy),
        (&p.https_proxy, &row.cluster().https_proxy),
        (&p.no_proxy, &row.cluster().no_proxy),
    ]
    .iter()
    .any(|(new, old)| new.is_some() && new.as_deref().unwrap_or("") != old.as_deref().unwrap_or(""));
    let managed_again = row.view.user_managed_networking() && !umn;
    let leased_before = row.view.vip_dhcp_allocation();
    let lease_changed = !umn && p.vip_dhcp_allocation.is_some_and(|dhcp| dhcp != leased_before);
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
        if lease_changed {
            // What was leased is not the user's choice, and what he chose is not leased.
            (c.api_vips, c.ingress_vips, c.machine_networks) = (Some(vec![]), Some(vec![]), Some(vec![]));
            row.private.machine_network_set_at = Some(now);
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
        } else if managed_again {
            // Those of the user are forgotten; new ones follow from virtual addresses.
            c.machine_networks = Some(Vec::new());
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
pub(crate) fn import(call: &mut Call<'_>) -> Answer {
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
pub(crate) fn disconnected(call: &mut Call<'_>) -> Answer {
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
pub(crate) fn ignored_validations(call: &mut Call<'_>) -> Answer {
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
pub(crate) fn set_ignored_validations(call: &mut Call<'_>) -> Answer {
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
pub(crate) fn ui_settings(call: &mut Call<'_>) -> Answer {
    let row = call.core.state.cluster(call.ids[0]).ok_or_else(|| Fail::not_found("record not found"))?;
    Ok(Response::json(200, &row.private.ui_settings))
}

/// `PUT …/ui-settings`
pub(crate) fn set_ui_settings(call: &mut Call<'_>) -> Answer {
    let text = call.text_body("ui-settings")?;
    let (id, now) = (call.ids[0], call.now);
    if call.core.state.cluster(id).is_none() {
        return Err(Fail::not_found("record not found"));
    }
    call.core.state.edit_cluster(id, now, |row| row.private.ui_settings.clone_from(&text));
    Ok(Response::json(200, &text))
}
