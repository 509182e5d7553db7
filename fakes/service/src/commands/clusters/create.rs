//! New clusters: those that are installed, those that are imported to add hosts to them, those without a network.

use std::net::IpAddr;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{
    Cluster, ClusterCreateParams, ClusterNetwork, ClusterProgressInfo, ClusterStatus, DisconnectedClusterCreateParams,
    DiskEncryption, IgnitionEndpoint, ImageInfo, ImportClusterParams, LastInstallationPreparation, LoadBalancer,
    MonitoredOperator, OperatorType, Platform, PlatformExternal, PlatformType, ReleaseImage, ServiceNetwork, Severity,
};
use vlab_model::cluster::{WORDS_OF_ADDING_HOSTS, WORDS_OF_UNMONITORED};
use vlab_model::network;
use vlab_model::settings::Settings;
use vlab_model::view::ClusterView;

use super::networks::{
    api_vips, check_networks, check_two_vips, check_vip_owner, check_vips, check_vips_in, ingress_vips, ips_of_api,
    ips_of_ingress, owned_cluster_networks, owned_machine_networks, owned_service_networks,
};
use super::olm;
use super::platform::{
    check_domain, check_encryption, check_external, check_name, check_network_type, check_tags, platform_rules,
    topology,
};
use crate::Core;
use crate::commands::checks::{check_ntp, check_proxy, check_pull_secret, check_ssh_key};
use crate::commands::usage::Usage;
use crate::refusal::Refusal;
use crate::rows::{ClusterPrivate, ClusterRow};

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

pub(super) fn some_text(text: Option<String>) -> Option<String> {
    text.filter(|t| !t.is_empty())
}

/// What a request for a new cluster comes to, after all checks.
struct Checked {
    release: ReleaseImage,
    arch: String,
    control_plane_count: i64,
    high_availability_mode: &'static str,
    platform: PlatformType,
    user_managed_networking: bool,
    operators: Vec<MonitoredOperator>,
}

/// Makes a cluster that can be installed; gives its id.
pub(crate) fn create(core: &mut Core, now: Timestamp, params: ClusterCreateParams) -> Result<Uuid, Refusal> {
    let checked = check(core, &params)?;
    let id = core.state.new_id();
    let mut row = blank(core, now, id, "Cluster");
    row.private.pull_secret.clone_from(&params.pull_secret);
    olm::give(&mut row.view.cluster, id, &checked.operators);
    fill(&mut row.view.cluster, params, checked, &core.config.settings);
    row.view.has_pull_secret = true;
    Usage::of_new(&row.view).write(&mut row.view.cluster);
    core.state.insert_cluster(row);
    let text = "Successfully registered cluster".to_owned();
    core.cluster_event(now, id, "cluster_registration_succeeded", Severity::Info, text);
    Ok(id)
}

/// The checks in the order in which the real service makes them: of several mistakes it tells the first.
fn check(core: &Core, p: &ClusterCreateParams) -> Result<Checked, Refusal> {
    let arch = some_text(p.cpu_architecture.clone()).unwrap_or_else(|| "x86_64".to_owned());
    let (count, mode) =
        topology(core, p.control_plane_count, p.high_availability_mode.as_deref(), &p.openshift_version)?;
    let (api, ingress) = (ips_of_api(p.api_vips.as_deref()), ips_of_ingress(p.ingress_vips.as_deref()));
    check_two_vips(&p.openshift_version, &api, &ingress)?;
    check_external(p.platform.as_ref())?;
    let (platform, umn) = platform_rules(count == 1, p.platform.as_ref().map(|p| p.type_), p.user_managed_networking)?;
    check_pull_secret(&p.pull_secret, "new cluster")?;
    check_ssh_key(p.ssh_public_key.as_deref().unwrap_or(""))?;
    check_proxy(p.http_proxy.as_deref(), p.https_proxy.as_deref(), p.no_proxy.as_deref())?;
    if p.additional_ntp_source.is_some() && p.ntp_sources.is_some() {
        return Err(Refusal::invalid("additional_ntp_source and ntp_sources are mutually exclusive"));
    }
    check_ntp(p.additional_ntp_source.as_deref())?;
    check_ntp(p.ntp_sources.as_deref())?;
    check_tags(p.tags.as_deref())?;
    check_encryption(p.disk_encryption.as_ref())?;
    let user_balancer = p.load_balancer.as_ref().and_then(|l| l.type_.as_deref()) == Some("user-managed");
    check_networks(p.cluster_networks.as_deref(), p.service_networks.as_deref(), p.machine_networks.as_deref())?;
    check_vips(&api, &ingress, user_balancer)?;
    // A single node that is not told about the networking may name VIPs; they mean nothing then.
    let asked_umn = if count == 1 { p.user_managed_networking == Some(true) } else { umn };
    check_vip_owner(asked_umn, p.vip_dhcp_allocation.unwrap_or(false), user_balancer, &api, &ingress)?;
    check_vips_in(p.machine_networks.as_deref().unwrap_or(&[]), &api, &ingress)?;
    check_dual_stack(p, user_balancer)?;
    core.check_architecture(&p.openshift_version, &arch)?;
    let release = core.supported(&p.openshift_version, &arch)?;
    // Hosts of any of its architectures may come, whichever was asked for.
    let arch = if release.cpu_architectures.iter().flatten().nth(1).is_some() { "multi".to_owned() } else { arch };
    check_network_type(p.network_type.as_deref(), &release.version, count == 1)?;
    check_name(&p.name, platform)?;
    check_domain(p.base_dns_domain.as_deref().unwrap_or(""))?;
    let of = olm::Of { version: &release.version, architecture: &arch, single: count == 1 };
    let bundles = p.operator_bundles.iter().flatten().next().is_some();
    let operators = olm::chosen(p.olm_operators.as_deref(), bundles, &of)?.unwrap_or_default();
    Ok(Checked {
        release,
        operators,
        arch,
        control_plane_count: count,
        high_availability_mode: mode,
        platform,
        user_managed_networking: umn,
    })
}

/// Networks of both families want to be told in which networks the hosts are, and no load balancer of the user's.
fn check_dual_stack(p: &ClusterCreateParams, user_balancer: bool) -> Result<(), Refusal> {
    let asked = Cluster {
        machine_networks: p.machine_networks.clone(),
        cluster_networks: p.cluster_networks.clone(),
        service_networks: p.service_networks.clone(),
        ..Cluster::default()
    };
    if !ClusterView::new(asked).is_dual_stack() {
        return Ok(());
    }
    if user_balancer {
        return Err(Refusal::invalid(
            "cannot use Dual-Stack because it's not compatible with User Managed Load Balancer",
        ));
    }
    if p.machine_networks.as_deref().unwrap_or(&[]).is_empty() && p.vip_dhcp_allocation != Some(true) {
        return Err(Refusal::invalid("Dual-stack cluster cannot be created with empty Machine Networks"));
    }
    Ok(())
}

/// Writes what was asked for into a blank cluster, and the defaults for the rest.
fn fill(c: &mut Cluster, p: ClusterCreateParams, checked: Checked, settings: &Settings) {
    let id = c.id;
    c.name = Some(p.name);
    c.high_availability_mode = Some(checked.high_availability_mode.into());
    c.control_plane_count = Some(checked.control_plane_count);
    c.openshift_version = Some(checked.release.version);
    c.ocp_release_image = Some(some_text(p.ocp_release_image).unwrap_or(checked.release.url));
    c.base_dns_domain = some_text(p.base_dns_domain);
    c.cpu_architecture = Some(checked.arch);
    c.user_managed_networking = Some(checked.user_managed_networking);
    c.vip_dhcp_allocation = Some(p.vip_dhcp_allocation.unwrap_or(false));
    c.platform = Some(Platform {
        type_: checked.platform,
        external: Some(p.platform.and_then(|p| p.external).unwrap_or_default()),
    });
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
    c.cluster_networks = Some(match (p.cluster_networks, p.cluster_network_cidr) {
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
}

/// Takes in a cluster that runs already, to add hosts to it; gives its id.
pub(crate) fn import(core: &mut Core, now: Timestamp, params: ImportClusterParams) -> Uuid {
    let id = core.state.new_id();
    let mut row = blank(core, now, id, "AddHostsCluster");
    let c = &mut row.view.cluster;
    let (name, domain) = match name_and_domain(&params.api_vip_dnsname) {
        Some((name, domain)) => (name.to_owned(), Some(domain.to_owned())),
        None => (params.name, None),
    };
    c.name = Some(name.clone());
    c.base_dns_domain = domain;
    c.api_vip_dns_name = Some(params.api_vip_dnsname);
    c.openshift_cluster_id = Some(params.openshift_cluster_id);
    c.openshift_version = params.openshift_version;
    c.imported = Some(true);
    c.status = ClusterStatus::AddingHosts;
    c.status_info = WORDS_OF_ADDING_HOSTS.into();
    c.platform = Some(Platform { type_: PlatformType::Baremetal, external: Some(PlatformExternal::default()) });
    c.user_managed_networking = Some(false);
    c.vip_dhcp_allocation = Some(false);
    c.monitored_operators = Some(Vec::new());
    insert_named(core, now, row, &name);
    id
}

/// What the name of a cluster's API says about the cluster, `api.NAME.DOMAIN`: more than what the user calls it.
fn name_and_domain(api: &str) -> Option<(&str, &str)> {
    let is_address = api.parse::<IpAddr>().is_ok();
    api.strip_prefix("api.").filter(|_| !is_address)?.split_once('.')
}

/// Makes a cluster whose hosts never reach the service; gives its id.
pub(crate) fn create_disconnected(core: &mut Core, now: Timestamp, params: DisconnectedClusterCreateParams) -> Uuid {
    let id = core.state.new_id();
    let mut row = blank(core, now, id, "DisconnectedCluster");
    let c = &mut row.view.cluster;
    c.name = Some(params.name.clone());
    c.openshift_version = Some(params.openshift_version);
    c.status = ClusterStatus::Unmonitored;
    c.status_info = WORDS_OF_UNMONITORED.into();
    c.monitored_operators = Some(Vec::new());
    insert_named(core, now, row, &params.name);
    id
}

fn insert_named(core: &mut Core, now: Timestamp, row: ClusterRow, name: &str) {
    let id = row.cluster().id;
    core.state.insert_cluster(row);
    let text = format!("Successfully registered cluster {name}");
    core.cluster_event(now, id, "cluster_registration_succeeded", Severity::Info, text);
}
