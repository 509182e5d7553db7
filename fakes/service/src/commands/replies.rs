//! What hosts answer to steps: every type is parsed, checked and stored.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use vlab_api::Timestamp;
use vlab_api::types::{
    ApiVip, ApiVipConnectivityResponse, ConnectivityReport, ContainerImageAvailabilityResponse, DhcpAllocationResponse,
    Disk, DiskInfo, DiskSpeed, DiskSpeedCheckResponse, DomainResolutionResponse, FreeNetworkAddresses, HostRole,
    IngressVip, Inventory, NtpSynchronizationResponse, Severity, StepReply, StepType, TangConnectivityResponse,
    UpgradeAgentResponse, VerifiedVip, VipType, VipVerification,
};
use vlab_model::host::{HostEvent, INSTALL_COMMAND_FAILED, takes_inventory};
use vlab_model::{disks, roles};

use super::register::{find, set_installation_disk};
use crate::alteration::Conduct;
use crate::refusal::Refusal;
use crate::state::HostKey;
use crate::{Core, go};

/// Exit code by which an agent says that its boot medium is gone.
const MEDIA_GONE: i64 = 256;
/// Exit code of a container that could not be started.
const CONTAINER_FAILED: i64 = 125;

/// Stores what a host answers to a step.
pub(crate) fn store(core: &mut Core, now: Timestamp, key: HostKey, reply: &StepReply) -> Result<(), Refusal> {
    let row = find(core, key)?;
    let exit = reply.exit_code.unwrap_or(0);
    if core.does(Conduct::RepliesNotStored) {
        return Ok(());
    }
    if exit == MEDIA_GONE && core.does(Conduct::MediaNotNoticed) {
        return Ok(());
    }
    if exit == MEDIA_GONE {
        // A status without such a row stays; the answer is the same.
        core.host_machine(now, key, HostEvent::MediaDisconnect, "");
        return Ok(());
    }
    if exit == 0 && row.host().media_status.as_deref() == Some("disconnected") {
        core.state.edit_host(key, now, |row| row.view.host.media_status = Some("connected".into()));
    }
    match reply.step_type.as_deref().and_then(|t| t.parse::<StepType>().ok()) {
        Some(kind) => core.store_reply(now, key, kind, reply),
        None => Ok(()),
    }
}

fn parse<T: DeserializeOwned>(output: &str) -> Result<T, Refusal> {
    go::parse_text(output).map_err(Refusal::invalid)
}

impl Core {
    fn store_reply(&mut self, now: Timestamp, key: HostKey, kind: StepType, reply: &StepReply) -> Result<(), Refusal> {
        let exit = reply.exit_code.unwrap_or(0);
        let output = reply.output.as_deref().unwrap_or("");
        let error = reply.error.as_deref().unwrap_or("");
        let ok = exit == 0;
        match kind {
            StepType::Install if !ok => {
                if !(exit == CONTAINER_FAILED && error.contains("container name") && error.contains("already in use")) {
                    let reason = format!("{INSTALL_COMMAND_FAILED}: {error}");
                    self.host_machine(now, key, HostEvent::HostInstallationFailed, &reason);
                }
            }
            StepType::ContainerImageAvailability => {
                if !output.is_empty() {
                    self.store_images(now, key, parse(output)?);
                }
            }
            StepType::InstallationDiskSpeedCheck => {
                if !output.is_empty() {
                    self.store_disk_speed(now, key, exit, &parse(output)?);
                }
            }
            StepType::TangConnectivityCheck => {
                let report = if ok { Ok(parse(output)?) } else { Err(error) };
                self.store_tang(now, key, report);
            }
            StepType::DownloadBootArtifacts => {
                let event = if ok { HostEvent::RebootingForReclaim } else { HostEvent::ReclaimHostFailed };
                self.host_machine(now, key, event, error);
            }
            _ if !ok => {}
            other => self.store_success(now, key, other, output)?,
        }
        Ok(())
    }

    /// What a step found that went well.
    fn store_success(&mut self, now: Timestamp, key: HostKey, kind: StepType, output: &str) -> Result<(), Refusal> {
        match kind {
            StepType::Inventory => self.store_inventory(now, key, parse(output)?)?,
            StepType::ConnectivityCheck => {
                let report: ConnectivityReport = parse(output)?;
                let text = connectivity_text(&report);
                self.state.edit_host(key, now, |row| {
                    row.view.set_connectivity(report);
                    row.view.host.connectivity = text.map(Into::into);
                });
            }
            StepType::FreeNetworkAddresses => {
                let free: Vec<FreeNetworkAddresses> = parse(output)?;
                if free.is_empty() {
                    return Err(Refusal::internal(format!("Free addresses array is empty for host {}", key.1)));
                }
                self.state.edit_host(key, now, |row| row.view.set_free_addresses(free));
                self.wake_cluster_of(key);
            }
            StepType::NtpSynchronizer => {
                let response: NtpSynchronizationResponse = parse(output)?;
                let sources = response.ntp_sources.unwrap_or_default();
                self.state.edit_host(key, now, |row| row.view.set_ntp_sources(sources));
            }
            StepType::DomainResolution => {
                let response: DomainResolutionResponse = parse(output)?;
                self.state.edit_host(key, now, |row| {
                    row.view.set_domain_name_resolutions(response);
                    // Names without aliases say so: `"cnames": null`.
                    let text = row.view.host.domain_name_resolutions.as_deref().unwrap_or("");
                    row.view.host.domain_name_resolutions = Some(with_null_cnames(text).into());
                });
            }
            StepType::ApiVipConnectivityCheck => {
                let response: ApiVipConnectivityResponse = parse(output)?;
                self.state.edit_host(key, now, |row| row.view.set_api_vip_connectivity(response));
            }
            StepType::VerifyVips => self.store_vips(now, key, &parse::<Vec<VerifiedVip>>(output)?),
            StepType::DhcpLeaseAllocate => self.store_lease(now, key, parse(output)?)?,
            StepType::UpgradeAgent => self.tell_upgrade(now, key, &parse(output)?),
            StepType::Install
            | StepType::InstallationDiskSpeedCheck
            | StepType::ContainerImageAvailability
            | StepType::TangConnectivityCheck
            | StepType::DownloadBootArtifacts
            | StepType::LogsGather
            | StepType::StopInstallation
            | StepType::RebootForReclaim
            | StepType::Execute
            | StepType::NextStepRunner => {}
        }
        Ok(())
    }

    /// What the host found of the Tang servers, or how its attempt failed.
    fn store_tang(&mut self, now: Timestamp, key: HostKey, report: Result<TangConnectivityResponse, &str>) {
        self.state.edit_host(key, now, |row| match report {
            Ok(report) => row.view.set_tang_connectivity(report),
            Err(error) => {
                // The text is kept as it is, so what it says when it is read again is what counts.
                row.view.host.tang_connectivity = Some(error.into());
                row.view.tang_connectivity = serde_json::from_str(error).ok().map(Arc::new);
            }
        });
    }

    fn tell_upgrade(&mut self, now: Timestamp, key: HostKey, response: &UpgradeAgentResponse) {
        let image = response.agent_image.as_deref().unwrap_or_default();
        if response.result.as_deref() == Some("success") {
            let what = format!("has upgraded its agent to {image}");
            self.upgrade_event(now, key, "upgrade_agent_finished", Severity::Info, what);
        } else {
            let what = format!("failed to upgrade its agent to {image}");
            self.upgrade_event(now, key, "upgrade_agent_failed", Severity::Error, what);
        }
    }

    fn wake_cluster_of(&mut self, key: HostKey) {
        if let Some(id) = self.state.host(key).and_then(|r| r.host().cluster_id) {
            self.state.cluster_agenda.schedule(id, self.state.clock);
        }
    }

    fn store_inventory(&mut self, now: Timestamp, key: HostKey, mut inventory: Inventory) -> Result<(), Refusal> {
        let row = find(self, key)?;
        if !takes_inventory(row.host().status) {
            return Err(Refusal::internal(format!(
                "host {} is in {} state, hardware info can't be updated",
                key.1,
                row.host().status
            )));
        }
        let settings = &self.config.settings;
        if !settings.enable_virtual_interfaces
            && let Some(interfaces) = &mut inventory.interfaces
        {
            interfaces.retain(|i| matches!(i.type_.as_deref().unwrap_or(""), "" | "physical" | "vlan" | "bond"));
        }
        let cluster = row.host().cluster_id.and_then(|id| self.state.cluster(id)).cloned();
        let version = cluster
            .as_ref()
            .and_then(|c| c.cluster().openshift_version.clone())
            .or_else(|| self.state.infra_env(key.0).and_then(|r| r.infra_env.openshift_version.clone()))
            .unwrap_or_default();
        // The least that any role of the cluster needs: the role may not be known yet.
        let mut view = row.view.clone();
        view.set_inventory(inventory.clone());
        let role = match view.effective_role() {
            HostRole::AutoAssign => HostRole::Worker,
            role => role,
        };
        let profile = roles::profile(&view, role, cluster.as_ref().map(|c| &c.view), settings);
        let need_gb = roles::requirement(settings, &version, profile).map_or(0, |r| r.disk_size_gb);
        disks::mark_eligibility(&mut inventory, need_gb, &version);
        let need = disks::Need::new(need_gb, &version, &inventory);
        let disk = disks::choose_installation_disk(row.host(), &inventory, &need)
            .map(|d| (disks::identifier(d).to_owned(), disks::full_name(d)));
        self.state.edit_host(key, now, |row| {
            row.view.set_inventory(inventory);
            set_installation_disk(row, disk);
        });
        Ok(())
    }

    fn store_images(&mut self, now: Timestamp, key: HostKey, response: ContainerImageAvailabilityResponse) {
        let Some(row) = self.state.host(key).cloned() else { return };
        let mut images = (*row.view.images_status).clone();
        let mut told = Vec::new();
        for image in response.images {
            let Some(name) = image.name.clone() else { continue };
            // How large an image is and how long it took is known from its first pull; later ones find it there.
            if let Some(known) = images.get_mut(&name) {
                known.result = image.result;
                continue;
            }
            told.push((name.clone(), image.result.clone().unwrap_or_default()));
            images.insert(name, image);
        }
        self.state.edit_host(key, now, |row| row.view.set_images_status(images));
        for (name, result) in told {
            let text = format!("Host {}: new image status {name}. result: {result}.", self.host_name(key));
            self.host_event(now, key, "image_status_updated", Severity::Info, text);
        }
    }

    fn store_disk_speed(&mut self, now: Timestamp, key: HostKey, exit: i64, response: &DiskSpeedCheckResponse) {
        let Some(row) = self.state.host(key).cloned() else { return };
        let path = response.path.clone().unwrap_or_default();
        // The agent names the device; results are kept under the disk's id.
        let names = |d: &&Disk| [&d.id, &d.by_id, &d.by_path, &d.path].into_iter().flatten().any(|n| *n == path);
        let id = row.view.disks().iter().find(names).map_or(path.as_str(), disks::identifier).to_owned();
        let mut info: BTreeMap<String, DiskInfo> = (*row.view.disks_info).clone();
        let speed = DiskSpeed {
            tested: Some(true),
            exit_code: (exit != 0).then_some(exit),
            speed_ms: response.io_sync_duration.filter(|_| exit == 0),
        };
        info.insert(id, DiskInfo { id: None, path: Some(path.clone()), disk_speed: Some(speed) });
        self.state.edit_host(key, now, |row| row.view.set_disks_info(info));
        let cluster = row.host().cluster_id.and_then(|id| self.state.cluster(id)).cloned();
        let version = cluster.as_ref().map_or("", |c| c.view.openshift_version());
        let settings = &self.config.settings;
        let profile = roles::profile(&row.view, row.view.effective_role(), cluster.as_ref().map(|c| &c.view), settings);
        let threshold = roles::requirement(settings, version, profile).and_then(|r| r.disk_speed_ms);
        if let (Some(limit), Some(ms)) = (threshold, response.io_sync_duration.filter(|_| exit == 0))
            && ms > limit
        {
            let text = format!(
                "Host {}: disk {path} is slower than supported: {ms} ms for one fdatasync",
                self.host_name(key)
            );
            self.host_event(now, key, "disk_speed_slower_than_supported", Severity::Warning, text);
        }
    }

    fn store_vips(&mut self, now: Timestamp, key: HostKey, vips: &[VerifiedVip]) {
        let Some(id) = self.state.host(key).and_then(|r| r.host().cluster_id) else { return };
        self.state.edit_cluster(id, now, |row| {
            for verified in vips {
                let result = Some(verified.verification.unwrap_or(VipVerification::Unverified));
                let c = &mut row.view.cluster;
                match verified.vip_type {
                    Some(VipType::Api) | None => {
                        for vip in c.api_vips.iter_mut().flatten().filter(|v| v.ip == verified.vip) {
                            vip.verification = result;
                        }
                    }
                    Some(VipType::Ingress) => {
                        for vip in c.ingress_vips.iter_mut().flatten().filter(|v| v.ip == verified.vip) {
                            vip.verification = result;
                        }
                    }
                }
            }
        });
    }

    fn store_lease(&mut self, now: Timestamp, key: HostKey, lease: DhcpAllocationResponse) -> Result<(), Refusal> {
        let Some(id) = self.state.host(key).and_then(|r| r.host().cluster_id) else { return Ok(()) };
        let Some(cluster) = self.state.cluster(id).cloned() else { return Ok(()) };
        if !cluster.view.vip_dhcp_allocation() {
            return Err(Refusal::internal(format!("cluster {id} has no VIPs from DHCP")));
        }
        let machine = cluster.view.machine_networks();
        for address in [&lease.api_vip_address, &lease.ingress_vip_address] {
            let inside = address.parse::<IpAddr>().is_ok_and(|a| machine.iter().any(|n| n.contains(&a)));
            if !inside {
                return Err(Refusal::internal(format!(
                    "address {address} is not in the machine network of cluster {id}"
                )));
            }
        }
        let changed = self.state.edit_cluster(id, now, |row| {
            let verification = Some(VipVerification::Succeeded);
            let c = &mut row.view.cluster;
            c.api_vips =
                Some(vec![ApiVip { cluster_id: Some(id), ip: Some(lease.api_vip_address.clone()), verification }]);
            c.ingress_vips = Some(vec![IngressVip {
                cluster_id: Some(id),
                ip: Some(lease.ingress_vip_address.clone()),
                verification,
            }]);
            row.private.api_vip_lease.clone_from(&lease.api_vip_lease);
            row.private.ingress_vip_lease.clone_from(&lease.ingress_vip_lease);
        });
        if changed {
            let text = format!("API VIP is {}, ingress VIP is {}", lease.api_vip_address, lease.ingress_vip_address);
            self.cluster_event(now, id, "api_ingress_vip_updated", Severity::Info, text);
        }
        Ok(())
    }
}

/// The stored resolutions with `"cnames": null` where there are none.
fn with_null_cnames(text: &str) -> String {
    let Ok(mut value) = serde_json::from_str::<serde_json::Value>(text) else { return text.to_owned() };
    for resolution in value.get_mut("resolutions").and_then(|r| r.as_array_mut()).into_iter().flatten() {
        if let Some(members) = resolution.as_object_mut() {
            members.entry("cnames").or_insert(serde_json::Value::Null);
        }
    }
    value.to_string()
}

/// What is kept of a report: of every host that was asked for, each way to reach it, be it `null`.
fn connectivity_text(report: &ConnectivityReport) -> Option<String> {
    let mut kept = serde_json::to_value(report).ok()?;
    for host in kept["remote_hosts"].as_array_mut().into_iter().flatten().filter_map(|host| host.as_object_mut()) {
        for way in ["l2_connectivity", "l3_connectivity", "mtu_report"] {
            host.entry(way).or_insert_with(|| serde_json::Value::Null);
        }
    }
    Some(kept.to_string())
}
