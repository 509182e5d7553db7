//! Infra-envs: creating, changing, deleting, and what is downloaded of them.

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::Response;
use vlab_api::types::{
    HostStage, HostStaticNetworkConfig, HostStatus, ImageType, InfraEnv, InfraEnvCreateParams, InfraEnvUpdateParams,
    KernelArgument, PresignedUrl, Severity,
};

use crate::Core;
use crate::answer::{Answer, Fail, attachment};
use crate::clusters::{
    check_changed_pull_secret, check_ntp, check_proxy, check_pull_secret, check_ssh_key, check_vip_allocation,
};
use crate::logs;
use crate::router::Call;
use crate::rows::InfraEnvRow;
use vlab_image_service::cpio::{Archive, gzip};
use vlab_installer::networks::{self, Maker, NetworkFile};
use vlab_installer::{self as artifacts, DiscoveryInput};

fn check_kernel_arguments(arguments: Option<&[KernelArgument]>) -> Result<Option<String>, Fail> {
    let Some(arguments) = arguments else { return Ok(None) };
    for argument in arguments {
        let operation = argument.operation.as_deref().unwrap_or("append");
        if operation != "append" {
            return Err(Fail::bad_request(format!(
                "Only kernel argument operation append is supported.  Got {operation}"
            )));
        }
    }
    Ok((!arguments.is_empty()).then(|| serde_json::to_string(arguments).unwrap_or_default()))
}

/// The static networks, checked and in the form in which they are stored.
fn check_static_networks(hosts: Option<&[HostStaticNetworkConfig]>) -> Result<Option<String>, Fail> {
    let Some(hosts) = hosts else { return Ok(None) };
    let errors = networks::problems(hosts);
    if !errors.is_empty() {
        let noun = if errors.len() == 1 { "error" } else { "errors" };
        let list: String = errors.iter().map(|e| format!("\t* {e}\n")).collect();
        return Err(Fail::bad_request(format!("{} {noun} occurred:\n{list}\n", errors.len())));
    }
    Ok(networks::stored(hosts))
}

/// PEM certificates, as many as the user likes.
fn check_trust_bundle(bundle: Option<&str>) -> Result<(), Fail> {
    match bundle.filter(|b| !b.is_empty()) {
        Some(text) if !text.contains("-----BEGIN CERTIFICATE-----") => Err(Fail::bad_request("invalid block")),
        _ => Ok(()),
    }
}

fn check_ignition(text: Option<&str>) -> Result<(), Fail> {
    const LIMIT: usize = 256 * 1024;
    let Some(text) = text.filter(|t| !t.is_empty()) else { return Ok(()) };
    let value: serde_json::Value = crate::check::parse_text(text)
        .map_err(|e| Fail::bad_request(format!("Failed to parse ignition config: {e}")))?;
    let version = value.pointer("/ignition/version").and_then(serde_json::Value::as_str);
    if !version.is_some_and(|v| v.starts_with("3.")) {
        return Err(Fail::bad_request("error parsing ignition: unsupported config version, error report: "));
    }
    let packed = gzip(text.as_bytes()).map_err(|e| Fail::internal(e.to_string()))?;
    if packed.len() > LIMIT {
        return Err(Fail::bad_request(format!(
            "The ignition archive size ({} KiB) is over the maximum allowable size (256 KiB)",
            packed.len() / 1024
        )));
    }
    Ok(())
}

impl Core {
    /// URL of the image; empty without an image service.
    fn image_link(&self, infra_env: &InfraEnv) -> Option<String> {
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
        let Some(link) = self.state.infra_env(id).map(|r| self.image_link(&r.infra_env)) else { return };
        if link.is_some() {
            self.state.edit_infra_env(id, now, |row| row.infra_env.download_url = link);
            let kind = self.state.infra_env(id).map(|r| r.infra_env.type_).unwrap_or_default();
            self.infra_env_event(
                now,
                id,
                "image_info_updated",
                Severity::Info,
                format!("Updated image information (Image type is \"{kind}\")"),
            );
        }
    }
}

/// `POST /v2/infra-envs`
pub(crate) fn create(call: &mut Call<'_>) -> Answer {
    let p: InfraEnvCreateParams = call.body("infraenv-create-params")?;
    let now = call.now;
    match try_create(call.core, now, p) {
        Ok(response) => Ok(response),
        Err(fail) => {
            let text = format!("Failed to register infra env: {}", fail.reason());
            let event = crate::state::user_event(now, "infra_env_registration_failed", Severity::Error, text);
            call.core.state.append_event(event);
            Err(fail)
        }
    }
}

fn try_create(core: &mut Core, now: Timestamp, p: InfraEnvCreateParams) -> Answer {
    let cluster = match p.cluster_id {
        Some(id) => Some(
            core.state
                .cluster(id)
                .cloned()
                .ok_or_else(|| Fail::not_found(format!("Cluster ID {id} does not exist")))?,
        ),
        None => None,
    };
    if let Some(proxy) = &p.proxy {
        check_proxy(proxy.http_proxy.as_deref(), proxy.https_proxy.as_deref(), proxy.no_proxy.as_deref())?;
    }
    // Only here the real service does not repeat the key.
    check_ssh_key(p.ssh_authorized_key.as_deref().unwrap_or(""))
        .map_err(|_| Fail::bad_request("SSH key is not valid"))?;
    check_ignition(p.ignition_config_override.as_deref())?;
    check_pull_secret(&p.pull_secret, "new infraEnv")?;
    if p.additional_ntp_sources.is_some() && p.ntp_sources.is_some() {
        return Err(Fail::bad_request("additional_ntp_sources and ntp_sources are mutually exclusive"));
    }
    check_ntp(p.additional_ntp_sources.as_deref())?;
    check_ntp(p.ntp_sources.as_deref())?;
    check_trust_bundle(p.additional_trust_bundle.as_deref())?;
    let kernel_arguments = check_kernel_arguments(p.kernel_arguments.as_deref())?;
    let static_network_config = check_static_networks(p.static_network_config.as_deref())?;
    let arch = p.cpu_architecture.filter(|a| !a.is_empty()).unwrap_or_else(|| "x86_64".to_owned());
    if let Some(cluster) = &cluster {
        let own = cluster.cluster().cpu_architecture.as_deref().unwrap_or("");
        if !own.is_empty() && own != "multi" && own != arch {
            return Err(Fail::bad_request(format!(
                "Specified CPU architecture ({arch}) doesn't match the cluster ({own})"
            )));
        }
        check_vip_allocation(cluster.view.vip_dhcp_allocation(), &cluster.view)?;
    }
    let version = p.openshift_version.filter(|v| !v.is_empty());
    if !core.config.image_service_url.is_empty()
        && let Some(version) = &version
        && core.release(version, &arch).is_none()
    {
        return Err(Fail::bad_request(format!("No OS image for Openshift version {version} and architecture {arch}")));
    }
    let version = version.or_else(|| {
        core.config
            .settings
            .release_images
            .iter()
            .find(|r| r.default == Some(true))
            .map(|r| r.openshift_version.clone())
    });
    let id = core.state.new_id();
    let infra_env = InfraEnv {
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
    };
    let row = InfraEnvRow {
        infra_env,
        ordinal: core.state.new_ordinal(),
        pull_secret: p.pull_secret,
        signing_key_generation: 0,
    };
    core.state.insert_infra_env(row);
    core.infra_env_event(now, id, "infra_env_registered", Severity::Info, format!("Registered infra env {id}"));
    core.announce_image(now, id);
    shown(core, id, 201)
}

fn shown(core: &Core, id: Uuid, status: u16) -> Answer {
    let row = core.state.infra_env(id).ok_or_else(|| Fail::not_found("record not found"))?;
    Ok(Response::json(status, &row.infra_env))
}

fn find(core: &Core, id: Uuid) -> Result<std::sync::Arc<InfraEnvRow>, Fail> {
    core.state.infra_env(id).cloned().ok_or_else(|| Fail::not_found("record not found"))
}

/// `GET /v2/infra-envs`
pub(crate) fn list(call: &mut Call<'_>) -> Answer {
    let cluster = call.query_id("cluster_id");
    let owner = call.query("owner").filter(|o| !o.is_empty());
    let rows = call.core.state.infra_envs();
    let list: Vec<&InfraEnv> = rows
        .iter()
        .map(|r| &r.infra_env)
        .filter(|i| cluster.is_none_or(|c| i.cluster_id == Some(c)))
        .filter(|i| owner.is_none_or(|o| i.user_name.as_deref() == Some(o)))
        .collect();
    Ok(Response::json(200, &list))
}

/// `GET /v2/infra-envs/{i}`
pub(crate) fn get(call: &mut Call<'_>) -> Answer {
    shown(call.core, call.ids[0], 200)
}

/// `PATCH /v2/infra-envs/{i}`
pub(crate) fn update(call: &mut Call<'_>) -> Answer {
    let p: InfraEnvUpdateParams = call.body("infra-env-update-params")?;
    let (id, now) = (call.ids[0], call.now);
    let core = &mut *call.core;
    find(core, id)?;
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
    shown(core, id, 201)
}

/// `DELETE /v2/infra-envs/{i}`
pub(crate) fn delete(call: &mut Call<'_>) -> Answer {
    let (id, now) = (call.ids[0], call.now);
    let core = &mut *call.core;
    find(core, id)?;
    let hosts = core.state.hosts_of_infra_env(id).len();
    if hosts > 0 {
        let reason = format!("failed to deregister infraEnv {id}, {hosts} hosts are still associated");
        core.infra_env_event(now, id, "infra_env_deregister_failed", Severity::Error, reason.clone());
        return Err(Fail::bad_request(reason));
    }
    core.infra_env_event(now, id, "infra_env_deregistered", Severity::Info, format!("Deregistered infra env {id}"));
    core.state.delete_infra_env(id);
    Ok(Response::empty(204))
}

/// `GET …/downloads/image-url`
pub(crate) fn image_url(call: &mut Call<'_>) -> Answer {
    let row = find(call.core, call.ids[0])?;
    let Some(url) = call.core.image_link(&row.infra_env) else {
        return Err(Fail::bad_request("the image service is disabled"));
    };
    Ok(Response::json(200, &PresignedUrl { url, expires_at: Some(Timestamp::UNSET) }))
}

/// `POST …/regenerate-signing-key`
pub(crate) fn regenerate_key(call: &mut Call<'_>) -> Answer {
    let (id, now) = (call.ids[0], call.now);
    find(call.core, id)?;
    call.core.state.edit_infra_env(id, now, |row| row.signing_key_generation += 1);
    Ok(Response::empty(204))
}

/// `GET …/downloads/files-presigned`
pub(crate) fn files_presigned(call: &mut Call<'_>) -> Answer {
    let id = call.ids[0];
    find(call.core, id)?;
    let name = call.query("file_name").unwrap_or("");
    let mut url =
        format!("{}/api/assisted-install/v2/infra-envs/{id}/downloads/files?file_name={name}", call.core.base_url());
    if let Some(kind) = call.query("ipxe_script_type") {
        url.push_str(&format!("&ipxe_script_type={kind}"));
    }
    Ok(Response::json(200, &PresignedUrl { url, expires_at: Some(Timestamp::UNSET) }))
}

/// `GET …/downloads/files`
pub(crate) fn files(call: &mut Call<'_>) -> Answer {
    let id = call.ids[0];
    let row = find(call.core, id)?;
    let core = &*call.core;
    let (name, bytes) = match call.query("file_name").unwrap_or("") {
        "discovery.ign" => {
            let settings = &core.config.settings;
            let mut infra_env = row.infra_env.clone();
            if let Some(kind) = call.query("discovery_iso_type").and_then(|t| t.parse().ok()) {
                infra_env.type_ = kind;
            }
            let input = DiscoveryInput {
                infra_env: &infra_env,
                pull_secret: &row.pull_secret,
                service_base_url: core.base_url(),
                agent_image: &settings.agent_docker_image,
                insecure: settings.skip_cert_verification,
                agent_timeout_start_secs: settings.agent_timeout_start.as_secs(),
                pull_secret_token: None,
                first_nmstate_version: &settings.min_version_for_nmstate_service,
            };
            let bytes = artifacts::discovery_ignition(&input).map_err(|e| Fail::internal(e.to_string()))?;
            ("discovery.ign", bytes)
        }
        "ipxe-script" => ("ipxe-script", ipxe_script(call, &row.infra_env)?.into_bytes()),
        _ => {
            // Without one the file is empty.
            let archive = static_network_archive(&network_files(core, &row.infra_env)?, call.now)?;
            ("static-network-config", archive)
        }
    };
    Ok(attachment(name, &bytes).header("last-modified", http_date(row.infra_env.updated_at)))
}

fn ipxe_script(call: &Call<'_>, infra_env: &InfraEnv) -> Result<String, Fail> {
    let core = &*call.core;
    let id = infra_env.id;
    if call.query("ipxe_script_type") == Some("boot-order-control") {
        let Some(mac) = call.query("mac").filter(|m| !m.is_empty()) else {
            return Ok(format!(
                "#!ipxe\nchain {}/api/assisted-install/v2/infra-envs/{id}/downloads/files?file_name=ipxe-script&ipxe_script_type=boot-order-control&mac=${{net0/mac}}\n",
                core.base_url()
            ));
        };
        let has = |row: &&std::sync::Arc<crate::rows::HostRow>| {
            let interfaces = row.view.inventory.iter().flat_map(|i| i.interfaces.iter().flatten());
            interfaces.filter_map(|i| i.mac_address.as_deref()).any(|m| m.eq_ignore_ascii_case(mac))
        };
        let hosts = core.state.hosts_of_infra_env(id);
        let mut found = hosts.into_iter().filter(has);
        if let Some(host) = found.next() {
            if found.next().is_some() {
                return Err(Fail::internal(format!("several hosts have the MAC address {mac}")));
            }
            let from_disk = host.host().status == HostStatus::Installed
                || host.host().status == HostStatus::InstallingInProgress
                    && host.view.stage().is_some_and(|s| {
                        matches!(
                            s,
                            HostStage::Rebooting
                                | HostStage::WaitingForIgnition
                                | HostStage::Configuring
                                | HostStage::Joined
                                | HostStage::Done
                        )
                    });
            if from_disk {
                return Err(Fail::not_found(format!("host {} boots from its disk", host.host().id)));
            }
        }
    }
    let base = core.config.image_service_url.trim_end_matches('/');
    if base.is_empty() {
        return Err(Fail::bad_request("the image service is disabled"));
    }
    let version = infra_env.openshift_version.as_deref().unwrap_or("");
    let arch = infra_env.cpu_architecture.as_deref().unwrap_or("x86_64");
    let extra: Vec<KernelArgument> =
        infra_env.kernel_arguments.as_deref().and_then(|t| serde_json::from_str(t).ok()).unwrap_or_default();
    let extra: String = extra.iter().filter_map(|a| a.value.as_deref()).map(|v| format!(" {v}")).collect();
    Ok(format!(
        "#!ipxe\ninitrd --name initrd {base}/images/{id}/pxe-initrd?arch={arch}&version={version}\n\
         kernel {base}/boot-artifacts/kernel?arch={arch}&version={version} initrd=initrd \
         coreos.live.rootfs_url={base}/boot-artifacts/rootfs?arch={arch}&version={version} random.trust_cpu=on \
         rd.luks.options=discard ignition.firstboot ignition.platform.id=metal console=tty1 console=ttyS1,115200n8 \
         coreos.inst.persistent-kargs=\"console=tty1 console=ttyS1,115200n8\"{extra}\nboot\n"
    ))
}

/// Who makes the connections of the infra-env's hosts.
fn network_maker(core: &Core, infra_env: &InfraEnv) -> Maker {
    Maker::of(infra_env.openshift_version.as_deref(), &core.config.settings.min_version_for_nmstate_service)
}

/// Files of the static networks as hosts find them; none without such networks.
fn network_files(core: &Core, infra_env: &InfraEnv) -> Result<Vec<NetworkFile>, Fail> {
    match infra_env.static_network_config.as_deref().filter(|c| !c.is_empty()) {
        Some(stored) => {
            networks::files(stored, network_maker(core, infra_env)).map_err(|e| Fail::internal(e.to_string()))
        }
        None => Ok(Vec::new()),
    }
}

fn static_network_archive(files: &[NetworkFile], now: Timestamp) -> Result<Vec<u8>, Fail> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let mut tar = Vec::new();
    for file in files {
        logs::append_tar(&mut tar, &file.path, file.content.as_bytes(), now.as_secs())
            .map_err(|e| Fail::internal(e.to_string()))?;
    }
    tar.extend_from_slice(&[0; 1024]);
    Ok(tar)
}

/// `GET …/downloads/minimal-initrd`: a compressed cpio archive with what a minimal image must know before it can load the
/// rest (static networks, proxy); 204 when there is nothing to know.
pub(crate) fn minimal_initrd(call: &mut Call<'_>) -> Answer {
    let row = find(call.core, call.ids[0])?;
    let proxy = row.infra_env.proxy.clone().unwrap_or_default();
    let value = |text: Option<String>| text.unwrap_or_default();
    let (http, https, no) = (value(proxy.http_proxy), value(proxy.https_proxy), value(proxy.no_proxy));
    let networks = network_files(call.core, &row.infra_env)?;
    let proxied = [&http, &https, &no].iter().any(|text| !text.is_empty());
    if networks.is_empty() && !proxied {
        return Ok(Response::empty(204));
    }
    let mut archive = Archive::default();
    for file in &networks {
        archive.add_with_folders(&file.path, 0o100_600, file.content.as_bytes());
    }
    if !networks.is_empty() {
        let maker = network_maker(call.core, &row.infra_env);
        let delay = row.infra_env.network_discovery_delay_seconds;
        let delay = delay.unwrap_or(call.core.config.settings.network_discovery_delay_seconds);
        for (path, script) in maker.scripts() {
            archive.add_with_folders(path, 0o100_755, script.as_bytes());
        }
        archive.add_with_folders(networks::UNIT_PATH, 0o100_644, maker.ram_disk_unit(delay).as_bytes());
        archive.add_with_folders(networks::UNIT_LINK, 0o120_777, networks::UNIT_PATH.as_bytes());
    }
    if proxied {
        // For the unit that fetches the root file system. A unit file takes `%` for the beginning of a specifier.
        let (http, https) = (http.replace('%', "%%"), https.replace('%', "%%"));
        let values = [("http_proxy", &http), ("https_proxy", &https), ("no_proxy", &no)];
        let upper = values.iter().map(|(name, value)| (name.to_ascii_uppercase(), *value));
        let lines = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).chain(upper);
        let unit =
            lines.fold("[Service]".to_owned(), |text, (name, value)| format!("{text}\nEnvironment={name}={value}"));
        let path = "/etc/systemd/system/coreos-livepxe-rootfs.service.d/10-proxy.conf";
        archive.add_with_folders(path, 0o100_664, unit.as_bytes());
    }
    let packed = gzip(&archive.finish()).map_err(|e| Fail::internal(e.to_string()))?;
    Ok(attachment("minimal-initrd.img", &packed))
}

/// A date as HTTP headers have it.
fn http_date(at: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let text = at.to_string();
    let part = |a: usize, b: usize| text.get(a..b).unwrap_or("0");
    let month = part(5, 7).parse::<usize>().unwrap_or(1).clamp(1, 12);
    let day = at.as_secs().div_euclid(86_400).rem_euclid(7) as usize;
    format!("{}, {} {} {} {} GMT", DAYS[day], part(8, 10), MONTHS[month - 1], part(0, 4), part(11, 19))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_headers() {
        let at: Timestamp = "2026-11-20T12:50:08.954Z".parse().unwrap();
        assert_eq!(http_date(at), "Fri, 20 Nov 2026 12:50:08 GMT");
    }
}
