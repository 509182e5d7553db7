//! Changing a cluster: the checks in the order of the real service, then one edit.

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{MonitoredOperator, Platform, PlatformType, Severity, V2ClusterUpdateParams, VipVerification};
use vlab_model::network;

use super::create::some_text;
use super::networks::{
    api_vips, check_networks, check_two_vips, check_vip_owner, check_vips, check_vips_in, ingress_vips, ips_of_api,
    ips_of_ingress, owned_cluster_networks, owned_machine_networks, owned_service_networks,
};
use super::olm;
use super::platform::{
    check_domain, check_encryption, check_external, check_name, check_network_type, check_tags, check_vip_allocation,
    platform_rules, topology,
};
use crate::Core;
use crate::commands::checks::{check_changed_pull_secret, check_ntp, check_proxy, check_ssh_key};
use crate::commands::infra_envs::check_managed;
use crate::commands::usage::Usage;
use crate::refusal::Refusal;
use crate::rows::ClusterRow;
use crate::state::is_open;

/// What a patch comes to, after all checks.
struct Change<'a> {
    patch: &'a V2ClusterUpdateParams,
    /// New number of control plane nodes, and the mode that goes with it.
    topology: Option<(i64, &'static str)>,
    /// New platform and whether the user manages the networking.
    networking: Option<(PlatformType, bool)>,
    /// The VIPs as they are to be.
    api: Vec<String>,
    ingress: Vec<String>,
    /// Whether VIPs are leased changes, so those that are there are forgotten.
    lease_changed: bool,
    /// The cluster manages its networking again.
    managed_again: bool,
    /// The OLM operators that it is to have, where that changes.
    operators: Option<Vec<MonitoredOperator>>,
}

/// Changes a cluster.
pub(crate) fn update(core: &mut Core, now: Timestamp, id: Uuid, patch: &V2ClusterUpdateParams) -> Result<(), Refusal> {
    let row = core.state.cluster(id).cloned().ok_or_else(|| super::missing(id))?;
    if !is_open(row.cluster().status) {
        return Err(Refusal::conflict(format!(
            "Cluster {id} is in {} state, cluster can be updated only in status insufficient, ready, pending-for-input or adding-hosts",
            row.cluster().status
        )));
    }
    let change = check(core, &row, patch)?;
    let proxy_changed = [
        (&patch.http_proxy, &row.cluster().http_proxy),
        (&patch.https_proxy, &row.cluster().https_proxy),
        (&patch.no_proxy, &row.cluster().no_proxy),
    ]
    .iter()
    .any(|(new, old)| new.is_some() && new.as_deref().unwrap_or("") != old.as_deref().unwrap_or(""));
    core.state.edit_cluster(id, now, |row| change.apply(now, row));
    // An empty list in the place of none changes nothing.
    let had = olm::names(row.cluster()).next().is_some();
    if change.operators.as_ref().is_some_and(|operators| had || !operators.is_empty()) {
        olm::choose_roles_anew(core, now, id);
    }
    if proxy_changed {
        core.cluster_event(now, id, "proxy_settings_changed", Severity::Info, "Proxy settings changed".into());
    }
    if patch.api_vips.is_some() || patch.ingress_vips.is_some() {
        core.derive_machine_networks(now, id);
    }
    core.refresh_interactively(now, id);
    note_virtual_hosts(core, now, id);
    Ok(())
}

fn note_virtual_hosts(core: &mut Core, now: Timestamp, id: Uuid) {
    let hosts = core.state.hosts_of_cluster(id);
    let views: Vec<_> = hosts.iter().map(|h| &h.view).collect();
    core.state.edit_cluster(id, now, |row| {
        let mut usage = Usage::of(&row.view.cluster);
        usage.virtual_hosts(&row.view, &views);
        usage.write(&mut row.view.cluster);
    });
}

/// All checks; of several mistakes the real service tells the first, so their order counts.
fn check<'a>(core: &Core, row: &ClusterRow, patch: &'a V2ClusterUpdateParams) -> Result<Change<'a>, Refusal> {
    check_texts(row.cluster().id, patch)?;
    check_sources_of_time(row, patch)?;
    let topology = match patch.control_plane_count {
        // A cluster stays what it is: one node or many.
        Some(n) => {
            let mode = if row.view.is_sno() { "None" } else { "Full" };
            Some(topology(core, Some(n), Some(mode), row.view.openshift_version())?)
        }
        None => None,
    };
    let single = topology.map_or(row.view.is_sno(), |t| t.0 == 1);
    let networking = match patch.platform.is_some() || patch.user_managed_networking.is_some() || topology.is_some() {
        true => Some(check_platform(row, patch, single)?),
        false => None,
    };
    let (platform, umn) = networking.unwrap_or((row.view.platform(), row.view.user_managed_networking()));
    if let Some(name) = &patch.name {
        check_name(name, platform)?;
    }
    let own = core.state.infra_envs().into_iter().filter(|r| r.infra_env.cluster_id == Some(row.cluster().id));
    for infra_env in own {
        check_managed(row, umn, infra_env.infra_env.cpu_architecture.as_deref().unwrap_or("x86_64"))?;
    }
    let user_balancer = match &patch.load_balancer {
        Some(balancer) => balancer.type_.as_deref() == Some("user-managed"),
        None => row.view.user_managed_load_balancer(),
    };
    check_networks(
        patch.cluster_networks.as_deref(),
        patch.service_networks.as_deref(),
        patch.machine_networks.as_deref(),
    )?;
    let leased_before = row.view.vip_dhcp_allocation();
    let mode = Networking { single, umn, user_balancer, dhcp: patch.vip_dhcp_allocation.unwrap_or(leased_before) };
    let api = ips_of_api(patch.api_vips.as_deref().or(row.cluster().api_vips.as_deref()));
    let ingress = ips_of_ingress(patch.ingress_vips.as_deref().or(row.cluster().ingress_vips.as_deref()));
    let (new_api, new_ingress) = (ips_of_api(patch.api_vips.as_deref()), ips_of_ingress(patch.ingress_vips.as_deref()));
    check_two_vips(row.view.openshift_version(), &new_api, &new_ingress)?;
    if umn && (patch.platform.is_some() || patch.user_managed_networking.is_some()) {
        check_handed_over(mode.dhcp, leased_before, (&api, &ingress))?;
    }
    if patch.api_vips.is_some() || patch.ingress_vips.is_some() {
        check_changed_vips(core, row, patch, mode, (&api, &ingress))?;
    }
    check_ntp(patch.additional_ntp_source.as_deref())?;
    check_ntp(patch.ntp_sources.as_deref())?;
    check_tags(patch.tags.as_deref())?;
    check_encryption(patch.disk_encryption.as_ref())?;
    check_network_type(patch.network_type.as_deref(), row.view.openshift_version(), single)?;
    check_combinations(row, patch, mode)?;
    check_imported(row, patch)?;
    let of = olm::Of {
        version: row.view.openshift_version(),
        architecture: row.cluster().cpu_architecture.as_deref().unwrap_or("x86_64"),
        single,
    };
    let bundles = patch.operator_bundles.iter().flatten().next().is_some();
    let operators = olm::chosen(patch.olm_operators.as_deref(), bundles, &of)?;
    Ok(Change {
        operators,
        patch,
        topology,
        networking,
        api,
        ingress,
        lease_changed: !umn && patch.vip_dhcp_allocation.is_some_and(|dhcp| dhcp != leased_before),
        managed_again: row.view.user_managed_networking() && !umn,
    })
}

/// A cluster has sources beside the others, or nothing but its own.
fn check_sources_of_time(row: &ClusterRow, patch: &V2ClusterUpdateParams) -> Result<(), Refusal> {
    let is_set = |patched: &Option<String>, stored: &Option<String>| {
        patched.as_ref().or(stored.as_ref()).is_some_and(|text| !text.is_empty())
    };
    let cluster = row.cluster();
    if is_set(&patch.additional_ntp_source, &cluster.additional_ntp_source)
        && is_set(&patch.ntp_sources, &cluster.ntp_sources)
    {
        return Err(Refusal::invalid("ntp_sources and additional_ntp_source are mutually exclusive"));
    }
    Ok(())
}

fn check_texts(id: Uuid, patch: &V2ClusterUpdateParams) -> Result<(), Refusal> {
    if let Some(secret) = &patch.pull_secret {
        check_changed_pull_secret(secret, &format!("cluster {id}"))?;
    }
    check_ssh_key(patch.ssh_public_key.as_deref().unwrap_or(""))?;
    check_proxy(patch.http_proxy.as_deref(), patch.https_proxy.as_deref(), patch.no_proxy.as_deref())?;
    check_domain(patch.base_dns_domain.as_deref().unwrap_or(""))
}

/// Platform and networking mode of a cluster whose platform, networking mode or size is patched.
fn check_platform(
    row: &ClusterRow,
    patch: &V2ClusterUpdateParams,
    single: bool,
) -> Result<(PlatformType, bool), Refusal> {
    let asked = patch.platform.as_ref().map(|p| p.type_);
    // Without a word about the platform it follows the networking, unless that stays as it is.
    let same = patch.user_managed_networking.is_none_or(|u| u == row.view.user_managed_networking());
    let platform =
        asked.or_else(|| same.then(|| row.view.platform()).filter(|own| !single || *own == PlatformType::External));
    check_external(patch.platform.as_ref())?;
    if single
        && (patch.user_managed_networking == Some(false)
            || asked.is_some_and(|a| !matches!(a, PlatformType::None | PlatformType::External)))
    {
        return Err(Refusal::invalid(
            "disabling User Managed Networking or setting platform different than none or oci platforms is not allowed in single node Openshift",
        ));
    }
    // An external platform does not turn the networking over by itself; `none` does.
    let umn = patch
        .user_managed_networking
        .or_else(|| (asked == Some(PlatformType::External) && !single).then(|| row.view.user_managed_networking()));
    platform_rules(single, platform, umn)
}

/// Who manages the networking of a cluster, as the patch leaves it.
#[derive(Clone, Copy)]
struct Networking {
    /// It is one node.
    single: bool,
    /// The user manages the networking.
    umn: bool,
    /// The user brings the load balancer.
    user_balancer: bool,
    /// VIPs are leased.
    dhcp: bool,
}

/// The user takes the networking over: nothing of the service's may be left. What was leased goes with the lease.
fn check_handed_over(dhcp: bool, leased: bool, (api, ingress): (&[String], &[String])) -> Result<(), Refusal> {
    let left = match () {
        () if dhcp => "VIP DHCP Allocation",
        () if !leased && !api.is_empty() => "API VIPs",
        () if !leased && !ingress.is_empty() => "Ingress VIPs",
        () => return Ok(()),
    };
    Err(Refusal::invalid(format!("User Managed Networking cannot be set with {left}")))
}

fn check_changed_vips(
    core: &Core,
    row: &ClusterRow,
    patch: &V2ClusterUpdateParams,
    mode: Networking,
    (api, ingress): (&[String], &[String]),
) -> Result<(), Refusal> {
    let Networking { umn, user_balancer, dhcp, .. } = mode;
    check_vips(api, ingress, user_balancer)?;
    check_vip_owner(umn, dhcp, user_balancer, api, ingress)?;
    // Resources may come in any order: what they say is not held against hosts that are not there yet.
    if umn || dhcp || user_balancer || patch.machine_networks.is_some() || row.private.kube_key.is_some() {
        return Ok(());
    }
    // With two families the user names the networks.
    if row.view.is_dual_stack() {
        return check_vips_in(row.cluster().machine_networks.as_deref().unwrap_or(&[]), api, ingress);
    }
    let hosts = core.state.hosts_of_cluster(row.cluster().id);
    let views: Vec<_> = hosts.iter().map(|h| &h.view).collect();
    // The machine network is that of the hosts in which the VIP is: one must have it.
    if let Some(vip) = api.first().filter(|vip| !network::any_host_reaches(vip, &views)) {
        return Err(Refusal::invalid(format!(
            "Calculate machine network CIDR: No suitable matching CIDR found for VIP {vip}"
        )));
    }
    // Only the hosts' lists of free addresses are asked, not what they found out about the VIPs before.
    for (kind, vips) in [("api-vip", api), ("ingress-vip", ingress)] {
        let Some(ip) = vips.first().and_then(|vip| vip.parse().ok()) else { continue };
        if network::verification_from_free_addresses(&ip, &views) == VipVerification::Failed {
            let nets =
                views.iter().filter_map(|h| h.inventory.as_ref()).flat_map(|inventory| network::addresses(inventory));
            let net = nets.map(|a| a.trunc()).find(|net| net.contains(&ip));
            let net = net.map(|net| net.to_string()).unwrap_or_default();
            return Err(Refusal::invalid(format!("{kind} <{ip}> is already in use in cidr {net}")));
        }
    }
    Ok(())
}

/// Settings that do not go together.
fn check_combinations(row: &ClusterRow, patch: &V2ClusterUpdateParams, mode: Networking) -> Result<(), Refusal> {
    if patch.vip_dhcp_allocation == Some(true) && mode.single {
        return Err(Refusal::invalid(
            "cannot use Single Node OpenShift because it's not compatible with VIP Automatic Allocation",
        ));
    }
    check_vip_allocation(mode.dhcp, &row.view)?;
    if patch.load_balancer.is_some() && mode.user_balancer && mode.umn {
        return Err(Refusal::invalid(
            "cannot use User Managed Networking because it's not compatible with User Managed Load Balancer",
        ));
    }
    // None at all is no wish. Controllers may say what they like.
    let asked = patch.machine_networks.as_deref().filter(|list| !list.is_empty() && row.private.kube_key.is_none());
    let dual = asked.map_or(0, <[_]>::len) > 1;
    let of_the_user = mode.umn || mode.single || mode.user_balancer || mode.dhcp || dual;
    if asked.is_some() && !of_the_user {
        return Err(Refusal::invalid(
            "Setting the Machine Network CIDR is forbidden when the cluster is neither in VIP DHCP allocation mode nor using a user-managed load balancer",
        ));
    }
    Ok(())
}

/// Settings that only an imported cluster has, and one that it takes from its hosts.
fn check_imported(row: &ClusterRow, patch: &V2ClusterUpdateParams) -> Result<(), Refusal> {
    let id = row.cluster().id;
    if let Some(name) = patch.api_vip_dns_name.as_ref().filter(|_| row.cluster().kind != "AddHostsCluster") {
        return Err(Refusal::invalid(format!("Can't update api vip to {name} for day1 cluster {id}")));
    }
    if patch.disk_encryption.is_some() && row.cluster().imported == Some(true) {
        return Err(Refusal::invalid(format!(
            "cannot update cluster {id}, it is not permitted to change disk encryption settings for an imported cluster"
        )));
    }
    Ok(())
}

impl Change<'_> {
    fn apply(&self, now: Timestamp, row: &mut ClusterRow) {
        let before = row.view.cluster.clone();
        self.apply_texts(row);
        self.apply_settings(row);
        self.apply_networks(now, row);
        if let Some(secret) = &self.patch.pull_secret {
            row.view.has_pull_secret = true;
            row.view.cluster.pull_secret_set = Some(true);
            row.private.pull_secret.clone_from(secret);
        }
        let id = row.view.cluster.id;
        let gone = self.operators.as_ref().map(|operators| olm::give(&mut row.view.cluster, id, operators));
        let mut usage = Usage::of(&row.view.cluster);
        gone.iter().flatten().for_each(|name| usage.set(&name.to_uppercase(), false));
        usage.operators(&row.view.cluster);
        usage.change(&before, &row.view, self.patch);
        usage.write(&mut row.view.cluster);
    }

    fn apply_texts(&self, row: &mut ClusterRow) {
        let (c, p) = (&mut row.view.cluster, self.patch);
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
    }

    fn apply_settings(&self, row: &mut ClusterRow) {
        let (c, p) = (&mut row.view.cluster, self.patch);
        if let Some((count, mode)) = self.topology {
            c.control_plane_count = Some(count);
            c.high_availability_mode = Some(mode.into());
        }
        if let Some((platform, umn)) = self.networking {
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
        // What is not said of them stays.
        if let Some(encryption) = &p.disk_encryption {
            let all = c.disk_encryption.get_or_insert_default();
            let servers = encryption.tang_servers.clone().filter(|servers| !servers.is_empty());
            all.enable_on = encryption.enable_on.clone().or(all.enable_on.take());
            all.mode = encryption.mode.clone().or(all.mode.take());
            all.tang_servers = servers.or(all.tang_servers.take());
        }
        if let Some(endpoint) = &p.ignition_endpoint {
            let all = c.ignition_endpoint.get_or_insert_default();
            text(&mut all.url, &endpoint.url);
            text(&mut all.ca_certificate, &endpoint.ca_certificate);
        }
        if let Some(balancer) = &p.load_balancer {
            c.load_balancer = Some(balancer.clone());
        }
    }

    fn apply_networks(&self, now: Timestamp, row: &mut ClusterRow) {
        let (c, p) = (&mut row.view.cluster, self.patch);
        let id = c.id;
        if self.lease_changed {
            // What was leased is not the user's choice, and what the user chose is not leased.
            (c.api_vips, c.ingress_vips, c.machine_networks) = (Some(vec![]), Some(vec![]), Some(vec![]));
            row.private.machine_network_set_at = Some(now);
        }
        // New VIPs have to be verified; the same ones keep what was found.
        if p.api_vips.is_some() && self.api != ips_of_api(c.api_vips.as_deref()) {
            c.api_vips = Some(api_vips(id, p.api_vips.as_deref()));
        }
        if p.ingress_vips.is_some() && self.ingress != ips_of_ingress(c.ingress_vips.as_deref()) {
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
        } else if self.managed_again {
            // Those of the user are forgotten; new ones follow from virtual addresses.
            c.machine_networks = Some(Vec::new());
        }
    }
}

/// A text takes the place of the one before, and an empty one takes it away.
fn text(place: &mut Option<String>, new: &Option<String>) {
    if let Some(new) = new {
        *place = some_text(Some(new.clone()));
    }
}
