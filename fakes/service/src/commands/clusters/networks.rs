//! A cluster's networks and virtual addresses: whether they can be, and the form in which they are stored.

use std::net::IpAddr;

use ipnet::IpNet;
use uuid::Uuid;
use vlab_api::types::{ApiVip, ClusterNetwork, IngressVip, MachineNetwork, ServiceNetwork};
use vlab_model::disks::version_at_least;

use crate::commands::checks::complaints;
use crate::refusal::Refusal;

/// Networks that are no CIDRs. Their size and host bits are not looked at here: host bits are cut off when they are stored,
/// and whether a network is large enough is for the validations to say.
pub(crate) fn check_networks(
    cluster: Option<&[ClusterNetwork]>,
    service: Option<&[ServiceNetwork]>,
    machine: Option<&[MachineNetwork]>,
) -> Result<(), Refusal> {
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

pub(crate) fn ips_of_api(vips: Option<&[ApiVip]>) -> Vec<String> {
    vips.unwrap_or(&[]).iter().map(|v| v.ip.clone().unwrap_or_default()).collect()
}

pub(crate) fn ips_of_ingress(vips: Option<&[IngressVip]>) -> Vec<String> {
    vips.unwrap_or(&[]).iter().map(|v| v.ip.clone().unwrap_or_default()).collect()
}

/// VIPs must be addresses, at most two (one of each family), and differ unless the user brings the load balancer.
pub(crate) fn check_vips(api: &[String], ingress: &[String], user_balancer: bool) -> Result<(), Refusal> {
    let mut errors = Vec::new();
    for (kind, vips) in [("apiVIPs", api), ("ingressVIPs", ingress)] {
        if vips.len() > 2 {
            errors.push(format!("{kind} supports 2 vips. got: {}", vips.len()));
        }
        for vip in vips {
            if vip.parse::<IpAddr>().is_err() {
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
            return Err(Refusal::invalid(format!("dual-stack {kind} must include exactly one {missing} address")));
        }
    }
    Ok(())
}

/// VIPs of two families are for releases from 4.12 on.
pub(crate) fn check_two_vips(version: &str, api: &[String], ingress: &[String]) -> Result<(), Refusal> {
    if (api.len() > 1 || ingress.len() > 1) && !version_at_least(version, 4, 12) {
        return Err(Refusal::invalid(format!("dual-stack VIPs are not supported in OpenShift {version}")));
    }
    Ok(())
}

/// VIPs must be in the machine networks, where those are named; the first that is not is reported.
pub(crate) fn check_vips_in(networks: &[MachineNetwork], api: &[String], ingress: &[String]) -> Result<(), Refusal> {
    let nets: Vec<IpNet> = networks.iter().filter_map(|n| n.cidr.as_deref()?.parse().ok()).collect();
    for (kind, vips) in [("api-vip", api), ("ingress-vip", ingress)] {
        for (i, vip) in vips.iter().enumerate() {
            let Ok(ip) = vip.parse::<IpAddr>() else { continue };
            if let Some(net) = nets.iter().find(|net| is_broadcast(&ip, net)) {
                let what = format!("{kind} <{vip}> is the broadcast address of machine-network-cidr <{net}>");
                return complaints(&[what]);
            }
            if nets.is_empty() || nets.iter().any(|n| n.contains(&ip)) {
                continue;
            }
            let net = nets.get(i).unwrap_or(&nets[0]);
            return complaints(&[format!("{kind} <{vip}> does not belong to machine-network-cidr <{net}>")]);
        }
    }
    Ok(())
}

/// Only networks of IPv4 have one.
fn is_broadcast(ip: &IpAddr, net: &IpNet) -> bool {
    net.addr().is_ipv4() && *ip == net.broadcast()
}

/// Who makes the VIPs: with user-managed networking nobody sets them (unless the user brings the load balancer), with DHCP
/// the service does.
pub(crate) fn check_vip_owner(
    umn: bool,
    dhcp: bool,
    user_balancer: bool,
    api: &[String],
    ingress: &[String],
) -> Result<(), Refusal> {
    let bad = |text: &str| Err(Refusal::invalid(text));
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

pub(crate) fn api_vips(id: Uuid, vips: Option<&[ApiVip]>) -> Vec<ApiVip> {
    ips_of_api(vips).into_iter().map(|ip| ApiVip { cluster_id: Some(id), ip: Some(ip), verification: None }).collect()
}

pub(crate) fn ingress_vips(id: Uuid, vips: Option<&[IngressVip]>) -> Vec<IngressVip> {
    ips_of_ingress(vips)
        .into_iter()
        .map(|ip| IngressVip { cluster_id: Some(id), ip: Some(ip), verification: None })
        .collect()
}

pub(crate) fn owned_cluster_networks(id: Uuid, networks: &[ClusterNetwork]) -> Vec<ClusterNetwork> {
    networks
        .iter()
        .map(|n| ClusterNetwork { cluster_id: Some(id), cidr: trimmed(n.cidr.as_ref()), ..n.clone() })
        .collect()
}

pub(crate) fn owned_service_networks(id: Uuid, networks: &[ServiceNetwork]) -> Vec<ServiceNetwork> {
    networks.iter().map(|n| ServiceNetwork { cluster_id: Some(id), cidr: trimmed(n.cidr.as_ref()) }).collect()
}

pub(crate) fn owned_machine_networks(id: Uuid, networks: &[MachineNetwork]) -> Vec<MachineNetwork> {
    networks.iter().map(|n| MachineNetwork { cluster_id: Some(id), cidr: trimmed(n.cidr.as_ref()) }).collect()
}
