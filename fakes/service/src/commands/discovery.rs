//! What hosts get before they register: the ignition of the discovery image, the script of a boot from the network, static networks
//! and the proxy in the initial RAM disk.

use std::sync::Arc;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{HostStage, HostStatus, ImageType, InfraEnv, KernelArgument};
use vlab_image_service::cpio::{Archive, gzip};
use vlab_installer::networks::{self, ConnectionMaker, NetworkFile};
use vlab_installer::{DiscoveryInput, discovery_ignition};

use super::infra_envs::find;
use super::logs::tar;
use crate::Core;
use crate::refusal::Refusal;
use crate::rows::HostRow;

/// The ignition of the discovery image; `image_type` replaces the infra-env's own.
pub(crate) fn ignition(core: &Core, id: Uuid, image_type: Option<ImageType>) -> Result<Vec<u8>, Refusal> {
    let row = find(core, id)?;
    // What a disconnected image boots is its cluster's: without one there is nothing to boot.
    let cluster = row.infra_env.cluster_id.and_then(|id| core.state.cluster(id));
    if row.infra_env.type_ == ImageType::DisconnectedIso && cluster.is_none() {
        return Err(Refusal::no_record());
    }
    let settings = &core.config.settings;
    let mut infra_env = row.infra_env.clone();
    infra_env.type_ = image_type.unwrap_or(infra_env.type_);
    let input = DiscoveryInput {
        infra_env: &infra_env,
        pull_secret: &row.pull_secret,
        service_base_url: core.base_url(),
        agent_image: &settings.agent_docker_image,
        insecure: settings.skip_cert_verification,
        agent_timeout_start_secs: settings.agent_timeout_start.as_secs(),
        pull_secret_token: None,
        mirrors: row.mirrors.as_ref(),
        internal_override: row.internal_ignition.as_deref(),
        first_nmstate_version: &settings.min_version_for_nmstate_service,
    };
    discovery_ignition(&input).map_err(|e| Refusal::internal(e.to_string()))
}

/// When a script of a boot from the network is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BootOrder<'a> {
    /// The discovery image, whoever asks.
    DiscoveryImageAlways,
    /// What the host with this MAC is to boot now; without one, a script that asks again with it.
    OfHost(Option<&'a str>),
}

/// The script with which hosts boot from the network.
pub(crate) fn ipxe_script(core: &Core, id: Uuid, order: BootOrder<'_>) -> Result<String, Refusal> {
    let row = find(core, id)?;
    match order {
        BootOrder::DiscoveryImageAlways => {}
        BootOrder::OfHost(None) => {
            return Ok(format!(
                "#!ipxe\nchain {}/api/assisted-install/v2/infra-envs/{id}/downloads/files?file_name=ipxe-script&ipxe_script_type=boot-order-control&mac=${{net0/mac}}\n",
                core.base_url()
            ));
        }
        BootOrder::OfHost(Some(mac)) => refuse_when_installed(core, id, mac)?,
    }
    let base = core.config.image_service_url.trim_end_matches('/');
    if base.is_empty() {
        return Err(Refusal::invalid("the image service is disabled"));
    }
    let infra_env = &row.infra_env;
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

/// A host whose disk is written gets no script, so that it boots from there.
fn refuse_when_installed(core: &Core, id: Uuid, mac: &str) -> Result<(), Refusal> {
    let has = |row: &&Arc<HostRow>| {
        let interfaces = row.view.inventory.iter().flat_map(|i| i.interfaces.iter().flatten());
        interfaces.filter_map(|i| i.mac_address.as_deref()).any(|m| m.eq_ignore_ascii_case(mac))
    };
    let hosts = core.state.hosts_of_infra_env(id);
    let mut found = hosts.into_iter().filter(has);
    let Some(host) = found.next() else { return Ok(()) };
    if found.next().is_some() {
        return Err(Refusal::internal(format!("several hosts have the MAC address {mac}")));
    }
    let rebooted = host.view.stage().is_some_and(|s| {
        matches!(
            s,
            HostStage::Rebooting
                | HostStage::WaitingForIgnition
                | HostStage::Configuring
                | HostStage::Joined
                | HostStage::Done
        )
    });
    match host.host().status {
        HostStatus::Installed => {}
        HostStatus::InstallingInProgress if rebooted => {}
        _ => return Ok(()),
    }
    Err(Refusal::not_found(format!("host {} boots from its disk", host.host().id)))
}

/// Who makes the connections of the infra-env's hosts.
fn network_maker(core: &Core, infra_env: &InfraEnv) -> ConnectionMaker {
    ConnectionMaker::of(infra_env.openshift_version.as_deref(), &core.config.settings.min_version_for_nmstate_service)
}

/// Files of the static networks as hosts find them; none without such networks.
fn network_files(core: &Core, infra_env: &InfraEnv) -> Result<Vec<NetworkFile>, Refusal> {
    match infra_env.static_network_config.as_deref().filter(|c| !c.is_empty()) {
        Some(stored) => {
            networks::files(stored, network_maker(core, infra_env)).map_err(|e| Refusal::internal(e.to_string()))
        }
        None => Ok(Vec::new()),
    }
}

/// The static networks as an archive; empty where there are none.
pub(crate) fn static_networks(core: &Core, now: Timestamp, id: Uuid) -> Result<Vec<u8>, Refusal> {
    let files = network_files(core, &find(core, id)?.infra_env)?;
    if files.is_empty() {
        return Ok(Vec::new());
    }
    tar(files.into_iter().map(|file| (file.path, file.content)), now)
}

/// A compressed cpio archive with what a minimal image must know before it can load the rest (static networks, proxy); `None`
/// when there is nothing to know.
pub(crate) fn minimal_initrd(core: &Core, id: Uuid) -> Result<Option<Vec<u8>>, Refusal> {
    let row = find(core, id)?;
    let proxy = row.infra_env.proxy.clone().unwrap_or_default();
    let value = |text: Option<String>| text.unwrap_or_default();
    let (http, https, no) = (value(proxy.http_proxy), value(proxy.https_proxy), value(proxy.no_proxy));
    let networks = network_files(core, &row.infra_env)?;
    let proxied = [&http, &https, &no].iter().any(|text| !text.is_empty());
    if networks.is_empty() && !proxied {
        return Ok(None);
    }
    let mut archive = Archive::default();
    for file in &networks {
        archive.add_with_folders(&file.path, 0o100_600, file.content.as_bytes());
    }
    if !networks.is_empty() {
        let maker = network_maker(core, &row.infra_env);
        let delay = row.infra_env.network_discovery_delay_seconds;
        let delay = delay.unwrap_or(core.config.settings.network_discovery_delay_seconds);
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
    gzip(&archive.finish()).map(Some).map_err(|e| Refusal::internal(e.to_string()))
}
