//! Infra-envs: creating, changing, deleting.

use std::sync::Arc;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{
    Event, HostStaticNetworkConfig, ImageType, InfraEnv, InfraEnvCreateParams, InfraEnvUpdateParams, KernelArgument,
    Severity,
};
use vlab_image_service::cpio::gzip;
use vlab_installer::{Mirrors, networks};

use super::checks::{
    check_changed_pull_secret, check_ignition_text, check_ntp, check_proxy, check_pull_secret, check_ssh_key,
    complaints,
};
use super::clusters::{check_vip_allocation, is_oci};
use super::usage;
use crate::Core;
use crate::refusal::Refusal;
use crate::rows::{ClusterRow, InfraEnvRow};
use crate::state::user_event;

fn check_kernel_arguments(arguments: Option<&[KernelArgument]>) -> Result<Option<String>, Refusal> {
    let Some(arguments) = arguments else { return Ok(None) };
    for argument in arguments {
        let operation = argument.operation.as_deref().unwrap_or("append");
        if operation != "append" {
            return Err(Refusal::invalid(format!(
                "Only kernel argument operation append is supported.  Got {operation}"
            )));
        }
    }
    Ok((!arguments.is_empty()).then(|| serde_json::to_string(arguments).unwrap_or_default()))
}

/// The static networks, checked and in the form in which they are stored.
fn check_static_networks(hosts: Option<&[HostStaticNetworkConfig]>) -> Result<Option<String>, Refusal> {
    let Some(hosts) = hosts else { return Ok(None) };
    let errors = networks::problems(hosts);
    complaints(&errors)?;
    Ok(networks::stored(hosts))
}

/// PEM certificates, as many as the user likes.
fn check_trust_bundle(bundle: Option<&str>) -> Result<(), Refusal> {
    match bundle.filter(|b| !b.is_empty()) {
        Some(text) if !text.contains("-----BEGIN CERTIFICATE-----") => Err(Refusal::invalid("invalid block")),
        _ => Ok(()),
    }
}

fn check_ignition(text: Option<&str>) -> Result<(), Refusal> {
    const LIMIT: usize = 256 * 1024;
    let Some(text) = text.filter(|t| !t.is_empty()) else { return Ok(()) };
    check_ignition_text(text)?;
    let packed = gzip(text.as_bytes()).map_err(|e| Refusal::internal(e.to_string()))?;
    if packed.len() > LIMIT {
        return Err(Refusal::invalid(format!(
            "The ignition archive size ({} KiB) is over the maximum allowable size (256 KiB)",
            packed.len() / 1024
        )));
    }
    Ok(())
}

impl Core {
    /// URL of the image; empty without an image service.
    pub(crate) fn image_link(&self, infra_env: &InfraEnv) -> Option<String> {
        let base = self.config.image_service_url.trim_end_matches('/');
        if base.is_empty() {
            return None;
        }
        let file = match infra_env.type_ {
            ImageType::FullIso => "full.iso",
            ImageType::MinimalIso => "minimal.iso",
            ImageType::DisconnectedIso => "disconnected.iso",
        };
        let version = infra_env.openshift_version.as_deref().unwrap_or("");
        let arch = infra_env.cpu_architecture.as_deref().unwrap_or("x86_64");
        Some(format!("{base}/byid/{}/{version}/{arch}/{file}", infra_env.id))
    }

    fn announce_image(&mut self, now: Timestamp, id: Uuid) {
        let Some(infra_env) = self.state.infra_env(id).map(|row| row.infra_env.clone()) else { return };
        let Some(link) = self.image_link(&infra_env) else { return };
        self.state.edit_infra_env(id, now, |row| row.infra_env.download_url = Some(link));
        let text = format!("Updated image information (Image type is \"{}\")", infra_env.type_);
        let event = user_event(now, "image_info_updated", Severity::Info, text);
        // It is told to its cluster, too, as nothing else of an infra-env is.
        self.state.append_event(Event { infra_env_id: Some(id), cluster_id: infra_env.cluster_id, ..event });
    }
}

/// An infra-env, or the refusal where there is none.
pub(crate) fn find(core: &Core, id: Uuid) -> Result<Arc<InfraEnvRow>, Refusal> {
    core.state.infra_env(id).cloned().ok_or_else(Refusal::no_record)
}

/// What a request for a new infra-env comes to, after all checks.
struct Checked {
    arch: String,
    version: Option<String>,
    kernel_arguments: Option<String>,
    static_network_config: Option<String>,
}

/// Makes an infra-env; gives its id. A refusal is an event, too.
pub(crate) fn create(core: &mut Core, now: Timestamp, params: InfraEnvCreateParams) -> Result<Uuid, Refusal> {
    let checked = check(core, &params).inspect_err(|refusal| {
        let text = format!("Failed to register infra env: {}", refusal.text);
        let event = user_event(now, "infra_env_registration_failed", Severity::Error, text);
        core.state.append_event(event);
    })?;
    let id = core.state.new_id();
    let pull_secret = params.pull_secret.clone();
    let row = InfraEnvRow {
        infra_env: blank(now, id, params, checked),
        ordinal: core.state.new_ordinal(),
        pull_secret,
        signing_key_generation: 0,
        ..InfraEnvRow::default()
    };
    let (cluster, own) = (row.infra_env.cluster_id, &row.infra_env);
    let (ignition, networks) = (own.ignition_config_override.is_some(), own.static_network_config.is_some());
    let arguments = own.kernel_arguments.is_some();
    core.state.insert_infra_env(row);
    usage::note(core, now, cluster, |usage| {
        usage.ignition("infra-env", ignition);
        usage.set("Static Network Config", networks);
        usage.set("discovery kernel arguments", arguments);
    });
    core.infra_env_event(now, id, "infra_env_registered", Severity::Info, format!("Registered infra env {id}"));
    core.announce_image(now, id);
    Ok(id)
}

/// The checks in the order in which the real service makes them.
fn check(core: &Core, p: &InfraEnvCreateParams) -> Result<Checked, Refusal> {
    let cluster = match p.cluster_id {
        Some(id) => Some(
            core.state
                .cluster(id)
                .cloned()
                .ok_or_else(|| Refusal::not_found(format!("Cluster ID {id} does not exist")))?,
        ),
        None => None,
    };
    if let Some(proxy) = &p.proxy {
        check_proxy(proxy.http_proxy.as_deref(), proxy.https_proxy.as_deref(), proxy.no_proxy.as_deref())?;
    }
    // Only here the real service does not repeat the key.
    check_ssh_key(p.ssh_authorized_key.as_deref().unwrap_or(""))
        .map_err(|_| Refusal::invalid("SSH key is not valid"))?;
    check_ignition(p.ignition_config_override.as_deref())?;
    check_pull_secret(&p.pull_secret, "new infraEnv")?;
    if p.additional_ntp_sources.is_some() && p.ntp_sources.is_some() {
        return Err(Refusal::invalid("additional_ntp_sources and ntp_sources are mutually exclusive"));
    }
    check_ntp(p.additional_ntp_sources.as_deref())?;
    check_ntp(p.ntp_sources.as_deref())?;
    check_trust_bundle(p.additional_trust_bundle.as_deref())?;
    let kernel_arguments = check_kernel_arguments(p.kernel_arguments.as_deref())?;
    let static_network_config = check_static_networks(p.static_network_config.as_deref())?;
    let arch = p.cpu_architecture.clone().filter(|a| !a.is_empty()).unwrap_or_else(|| "x86_64".to_owned());
    if let Some(cluster) = &cluster {
        let own = cluster.cluster().cpu_architecture.as_deref().unwrap_or("");
        if !own.is_empty() && own != "multi" && own != arch {
            return Err(Refusal::invalid(format!(
                "Specified CPU architecture ({arch}) doesn't match the cluster ({own})"
            )));
        }
        check_vip_allocation(cluster.view.vip_dhcp_allocation(), &cluster.view)?;
        let image_type = p.image_type.unwrap_or(ImageType::FullIso);
        check_image_type(cluster, &arch, image_type)?;
        check_managed(cluster, cluster.view.user_managed_networking(), &arch)?;
        if image_type == ImageType::FullIso && cluster.cluster().platform.as_ref().is_some_and(is_oci) {
            return Err(Refusal::invalid(
                "cannot use Oracle Cloud Infrastructure external platform because it's not compatible with Full ISO",
            ));
        }
    }
    let version = p.openshift_version.clone().filter(|v| !v.is_empty());
    check_os_image(core, version.as_deref(), &arch)?;
    let version = version.or_else(|| {
        core.config
            .settings
            .release_images
            .iter()
            .find(|r| r.default == Some(true))
            .map(|r| r.openshift_version.clone())
    });
    Ok(Checked { arch, version, kernel_arguments, static_network_config })
}

/// Whoever has an image service has an image of that version for it.
fn check_os_image(core: &Core, version: Option<&str>, arch: &str) -> Result<(), Refusal> {
    match version.filter(|v| !v.is_empty() && !core.config.image_service_url.is_empty()) {
        Some(version) if core.release(version, arch).is_none() => {
            Err(Refusal::invalid(format!("No OS image for Openshift version {version} and architecture {arch}")))
        }
        _ => Ok(()),
    }
}

/// A mainframe does not boot from a minimal image. Only where the cluster is known is anything said about it.
fn check_image_type(cluster: &ClusterRow, arch: &str, image_type: ImageType) -> Result<(), Refusal> {
    let version = cluster.view.openshift_version();
    if is_judged(cluster) && arch == "s390x" && image_type == ImageType::MinimalIso {
        return Err(Refusal::invalid(format!(
            "cannot use Minimal ISO because it's not compatible with the s390x architecture on version {version} of OpenShift"
        )));
    }
    Ok(())
}

/// On some architectures the user has to manage the networks.
pub(crate) fn check_managed(cluster: &ClusterRow, umn: bool, arch: &str) -> Result<(), Refusal> {
    let version = cluster.view.openshift_version();
    if !umn && is_judged(cluster) && matches!(arch, "s390x" | "ppc64le") {
        return Err(Refusal::invalid(format!(
            "cannot use Cluster Managed Networking because it's not compatible with the {arch} architecture on version {version} of OpenShift"
        )));
    }
    Ok(())
}

/// Is anything said about what goes together in the cluster?
fn is_judged(cluster: &ClusterRow) -> bool {
    cluster.cluster().kind != "AddHostsCluster" && !cluster.view.openshift_version().is_empty()
}

fn blank(now: Timestamp, id: Uuid, p: InfraEnvCreateParams, checked: Checked) -> InfraEnv {
    let Checked { arch, version, kernel_arguments, static_network_config } = checked;
    InfraEnv {
        kind: "InfraEnv".into(),
        id,
        href: format!("/api/assisted-install/v2/infra-envs/{id}"),
        openshift_version: version,
        name: p.name,
        user_name: Some("admin".into()),
        email_domain: Some("Unknown".into()),
        proxy: Some(p.proxy.unwrap_or_default()),
        additional_ntp_sources: p.additional_ntp_sources.filter(|t| !t.is_empty()),
        ntp_sources: p.ntp_sources.filter(|t| !t.is_empty()),
        ssh_authorized_key: p.ssh_authorized_key.filter(|t| !t.is_empty()),
        pull_secret_set: Some(true),
        static_network_config,
        rendezvous_ip: p.rendezvous_ip,
        type_: p.image_type.unwrap_or(ImageType::FullIso),
        ignition_config_override: p.ignition_config_override.filter(|t| !t.is_empty()),
        cluster_id: p.cluster_id,
        updated_at: now,
        created_at: now,
        expires_at: Some(Timestamp::UNSET),
        cpu_architecture: Some(arch),
        kernel_arguments,
        additional_trust_bundle: p.additional_trust_bundle.filter(|t| !t.is_empty()),
        network_discovery_delay_seconds: p.network_discovery_delay_seconds.filter(|n| *n != 0),
        ..InfraEnv::default()
    }
}

/// Changes an infra-env.
pub(crate) fn update(core: &mut Core, now: Timestamp, id: Uuid, p: &InfraEnvUpdateParams) -> Result<(), Refusal> {
    let row = find(core, id)?;
    if let Some(proxy) = &p.proxy {
        check_proxy(proxy.http_proxy.as_deref(), proxy.https_proxy.as_deref(), proxy.no_proxy.as_deref())?;
    }
    check_ssh_key(p.ssh_authorized_key.as_deref().unwrap_or(""))?;
    check_ignition(p.ignition_config_override.as_deref())?;
    if let Some(secret) = &p.pull_secret {
        check_changed_pull_secret(secret, &format!("infraEnv {id}"))?;
    }
    check_ntp(p.additional_ntp_sources.as_deref())?;
    check_ntp(p.ntp_sources.as_deref())?;
    check_trust_bundle(p.additional_trust_bundle.as_deref())?;
    let kernel_arguments = check_kernel_arguments(p.kernel_arguments.as_deref())?;
    let static_networks = check_static_networks(p.static_network_config.as_deref())?;
    let own = &row.infra_env;
    let arch = own.cpu_architecture.as_deref().unwrap_or("x86_64");
    check_os_image(core, p.openshift_version.as_deref().or(own.openshift_version.as_deref()), arch)?;
    if let Some(cluster) = own.cluster_id.and_then(|id| core.state.cluster(id)) {
        check_image_type(cluster, arch, p.image_type.unwrap_or(own.type_))?;
    }
    note_usage(core, now, own, p, (static_networks.as_deref(), kernel_arguments.is_some()));
    core.state.edit_infra_env(id, now, |row| {
        let i = &mut row.infra_env;
        let text = |place: &mut Option<String>, new: &Option<String>| {
            if let Some(new) = new {
                *place = Some(new.clone()).filter(|t| !t.is_empty());
            }
        };
        text(&mut i.additional_ntp_sources, &p.additional_ntp_sources);
        text(&mut i.ntp_sources, &p.ntp_sources);
        text(&mut i.ssh_authorized_key, &p.ssh_authorized_key);
        text(&mut i.rendezvous_ip, &p.rendezvous_ip);
        text(&mut i.ignition_config_override, &p.ignition_config_override);
        text(&mut i.additional_trust_bundle, &p.additional_trust_bundle);
        text(&mut i.openshift_version, &p.openshift_version);
        if let Some(proxy) = &p.proxy {
            i.proxy = Some(proxy.clone());
        }
        if let Some(kind) = p.image_type {
            i.type_ = kind;
        }
        if p.kernel_arguments.is_some() {
            i.kernel_arguments = kernel_arguments;
        }
        if p.static_network_config.is_some() {
            i.static_network_config = static_networks;
        }
        if let Some(delay) = p.network_discovery_delay_seconds {
            i.network_discovery_delay_seconds = (delay != 0).then_some(delay);
        }
        if let Some(secret) = &p.pull_secret {
            row.pull_secret.clone_from(secret);
        }
    });
    core.announce_image(now, id);
    Ok(())
}

/// The cluster uses what is changed in its infra-env. An ignition that is taken away is not noticed.
fn note_usage(
    core: &mut Core,
    now: Timestamp,
    own: &InfraEnv,
    p: &InfraEnvUpdateParams,
    (networks, arguments): (Option<&str>, bool),
) {
    let ignition = p.ignition_config_override.as_deref().filter(|i| !i.is_empty());
    let changed = ignition.is_some() && ignition != own.ignition_config_override.as_deref();
    let moved = p.static_network_config.is_some() && networks != own.static_network_config.as_deref();
    usage::note(core, now, own.cluster_id, |usage| {
        if changed {
            usage.ignition("infra-env", true);
        }
        if moved {
            usage.set("Static Network Config", networks.is_some());
        }
        if p.kernel_arguments.is_some() {
            usage.set("discovery kernel arguments", arguments);
        }
    });
}

/// Gives an infra-env mirrors of registries of its own, or takes them away.
pub(crate) fn set_mirrors(core: &mut Core, now: Timestamp, id: Uuid, mirrors: Option<Mirrors>) -> Result<(), Refusal> {
    find(core, id)?;
    core.state.edit_infra_env(id, now, |row| row.mirrors = mirrors);
    core.announce_image(now, id);
    Ok(())
}

/// Puts into its ignition what the controllers themselves want there.
pub(crate) fn set_internal_ignition(core: &mut Core, now: Timestamp, id: Uuid, ignition: String) {
    if core.state.edit_infra_env(id, now, |row| row.internal_ignition = Some(ignition)) {
        core.announce_image(now, id);
    }
}

/// Removes an infra-env that has no hosts any more.
pub(crate) fn delete(core: &mut Core, now: Timestamp, id: Uuid) -> Result<(), Refusal> {
    find(core, id)?;
    let hosts = core.state.hosts_of_infra_env(id).len();
    if hosts > 0 {
        let reason = format!("failed to deregister infraEnv {id}, {hosts} hosts are still associated");
        core.infra_env_event(now, id, "infra_env_deregister_failed", Severity::Error, reason.clone());
        return Err(Refusal::invalid(reason));
    }
    core.infra_env_event(now, id, "infra_env_deregistered", Severity::Info, format!("Deregistered infra env {id}"));
    core.state.delete_infra_env(id);
    Ok(())
}

/// URL of the image.
pub(crate) fn image_url(core: &Core, id: Uuid) -> Result<String, Refusal> {
    let row = find(core, id)?;
    core.image_link(&row.infra_env).ok_or_else(|| Refusal::invalid("the image service is disabled"))
}

/// Makes links that were signed with the old key worthless.
pub(crate) fn regenerate_signing_key(core: &mut Core, now: Timestamp, id: Uuid) -> Result<(), Refusal> {
    find(core, id)?;
    core.state.edit_infra_env(id, now, |row| row.signing_key_generation += 1);
    Ok(())
}
