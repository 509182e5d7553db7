//! Rules of a cluster's platform, its size and its networking mode, and the words of its other members.

use vlab_api::types::{DiskEncryption, Platform, PlatformType};
use vlab_model::disks;
use vlab_model::view::ClusterView;

use crate::Core;
use crate::refusal::Refusal;

pub(crate) fn check_name(name: &str, platform: PlatformType) -> Result<(), Refusal> {
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
    Err(Refusal::invalid(format!(
        "Cluster name format is not valid: '{name}'. Name must start and end with either a letter or number and consist of lower-case letters, numbers, and hyphens. Subdomains in cluster names are only valid with none platform."
    )))
}

pub(crate) fn check_domain(domain: &str) -> Result<(), Refusal> {
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
    Err(Refusal::invalid(format!(
        "DNS format mismatch: {domain} domain name is not valid. Must match regex [{PATTERN}], be no more than 255 characters, and not be in dotted decimal format (##.##.##.##)"
    )))
}

/// A comma-separated list of words (letters, digits, underscores, blanks).
pub(crate) fn check_tags(tags: Option<&str>) -> Result<(), Refusal> {
    let Some(tags) = tags.filter(|t| !t.is_empty()) else { return Ok(()) };
    let word = |w: &str| {
        let w = w.trim();
        !w.is_empty() && w.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ' '))
    };
    if tags.split(',').all(word) {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "Invalid format for Tags: {tags}. Tags should be a comma-separated list (e.g. tag1,tag2,tag3). Each tag can consist of the following characters: Alphanumeric (aA-zZ, 0-9), underscore (_) and white-spaces."
    )))
}

pub(crate) fn check_encryption(encryption: Option<&DiskEncryption>) -> Result<(), Refusal> {
    let tang = encryption
        .is_some_and(|e| e.mode.as_deref() == Some("tang") && e.tang_servers.as_deref().unwrap_or("").is_empty());
    if tang { Err(Refusal::invalid("Setting Tang mode but tang_servers isn't set")) } else { Ok(()) }
}

/// An external platform needs to be described.
pub(crate) fn check_external(platform: Option<&Platform>) -> Result<(), Refusal> {
    match platform {
        Some(p) if p.type_ == PlatformType::External && p.external.is_none() => {
            Err(Refusal::invalid("External setting must be set when using platform type external"))
        }
        Some(p)
            if is_oci(p)
                && p.external.as_ref().and_then(|e| e.cloud_controller_manager.as_deref()) != Some("External") =>
        {
            Err(Refusal::invalid("Cloud controller manager must be enabled when using oci external integration"))
        }
        _ => Ok(()),
    }
}

/// Is it the external platform of Oracle's cloud?
pub(crate) fn is_oci(platform: &Platform) -> bool {
    let name = platform.external.as_ref().and_then(|external| external.platform_name.as_deref());
    platform.type_ == PlatformType::External && name == Some("oci")
}

/// Platform and user-managed networking as they follow from what is asked for.
pub(crate) fn platform_rules(
    single: bool,
    platform: Option<PlatformType>,
    umn: Option<bool>,
) -> Result<(PlatformType, bool), Refusal> {
    use PlatformType::*;
    let bad = |text: String| Err(Refusal::invalid(text));
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
pub(crate) fn topology(
    core: &Core,
    count: Option<i64>,
    mode: Option<&str>,
    version: &str,
) -> Result<(i64, &'static str), Refusal> {
    let bad = |text: &str| Err(Refusal::invalid(text));
    let newer = |minor| disks::version_at_least(version, 4, minor);
    let two = newer(19) && (core.config.settings.tna_clusters_support || core.config.settings.tnf_clusters_support);
    let out_of_range = || {
        let (least, since) = if two { (2, "4.19") } else { (3, "4.18") };
        Refusal::invalid(format!(
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

/// OpenShiftSDN is gone since 4.15 and never was for a single node.
pub(crate) fn check_network_type(kind: Option<&str>, version: &str, single: bool) -> Result<(), Refusal> {
    if kind != Some("OpenShiftSDN") {
        return Ok(());
    }
    if single {
        return Err(Refusal::invalid("OpenShiftSDN network type is not allowed in single node mode"));
    }
    if disks::version_at_least(version, 4, 15) {
        return Err(Refusal::invalid(format!(
            "Openshift version {version} is not supported for OpenShiftSDN NetworkType"
        )));
    }
    Ok(())
}

/// Virtual addresses that DHCP leases end with OpenShift 4.15. A cluster with them can be created all the same; what is refused is
/// every change that leaves it so, and its infra-env.
pub(crate) fn check_vip_allocation(dhcp: bool, cluster: &ClusterView) -> Result<(), Refusal> {
    let version = cluster.openshift_version();
    if !dhcp || !disks::version_at_least(version, 4, 15) {
        return Ok(());
    }
    let arch = cluster.cluster.cpu_architecture.as_deref().unwrap_or("x86_64");
    Err(Refusal::invalid(format!(
        "cannot use VIP Automatic Allocation because it's not compatible with the {arch} architecture on version {version} of OpenShift"
    )))
}
