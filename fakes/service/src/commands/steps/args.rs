//! The arguments of each step.

use std::net::IpAddr;

use base64::Engine as _;
use ipnet::IpNet;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{
    Cluster, ConnectivityCheckHost, ConnectivityCheckNic, HostRole, HostStatus, InstallCmdRequest,
    LogsGatherCmdRequest, Proxy, Severity, StepType, VerifyVip, VipType,
};
use vlab_model::view::ClusterView;
use vlab_model::{disks, network};

use crate::Core;
use crate::rows::{ClusterRow, HostRow};
use crate::state::HostKey;

/// Whom a step is for, and when.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) now: Timestamp,
    pub(super) key: HostKey,
    pub(super) row: &'a HostRow,
    pub(super) cluster: Option<&'a ClusterRow>,
}

fn text(value: Value) -> Option<Vec<String>> {
    Some(vec![value.to_string()])
}

impl Core {
    /// Arguments of a step; `None` when it has no place now.
    pub(super) fn step_args(&mut self, kind: StepType, of: &Subject<'_>) -> Option<Vec<String>> {
        match kind {
            StepType::Inventory => Some(self.inventory_args(of.key)),
            StepType::ConnectivityCheck => self.connectivity_args(of),
            // Over Kubernetes nobody asks for them.
            StepType::FreeNetworkAddresses if self.has_controllers => None,
            StepType::FreeNetworkAddresses => free_addresses_args(of.row),
            StepType::DhcpLeaseAllocate => dhcp_lease_args(of),
            StepType::NtpSynchronizer => self.ntp_args(of),
            StepType::DomainResolution => domain_args(of.cluster?),
            StepType::VerifyVips => vip_args(of),
            StepType::TangConnectivityCheck => tang_args(of),
            StepType::ApiVipConnectivityCheck => api_vip_args(of),
            StepType::InstallationDiskSpeedCheck => self.disk_speed_args(of.row),
            StepType::ContainerImageAvailability => self.image_args(of),
            StepType::Install => self.install_args(of),
            StepType::LogsGather => self.logs_args(of),
            StepType::StopInstallation => Some(Vec::new()),
            StepType::DownloadBootArtifacts => self.boot_artifact_args(of.key.0),
            StepType::RebootForReclaim => text(json!({"host_fs_mount_dir": "/host"})),
            StepType::UpgradeAgent | StepType::Execute | StepType::NextStepRunner => None,
        }
    }

    fn inventory_args(&self, key: HostKey) -> Vec<String> {
        let settings = &self.config.settings;
        let mut args = vec![key.1.to_string()];
        if settings.agent_inventory_max_size > 0 {
            args.push(format!("--output-max-size={}", settings.agent_inventory_max_size));
        }
        if settings.agent_inventory_disk_min_size > 0 {
            args.push(format!("--disk-min-size={}", settings.agent_inventory_disk_min_size));
        }
        args
    }

    fn ntp_args(&self, of: &Subject<'_>) -> Option<Vec<String>> {
        let source = self.sources_of_time(of.key.0, of.cluster);
        text(json!({"ntp_source": source}))
    }

    /// The sources of time that a host is told, separated by commas: those of its cluster, else of its infra-env, else of the service.
    pub(crate) fn sources_of_time(&self, infra_env: Uuid, cluster: Option<&ClusterRow>) -> String {
        let own = self
            .state
            .infra_env(infra_env)
            .and_then(|r| r.infra_env.additional_ntp_sources.clone().or_else(|| r.infra_env.ntp_sources.clone()));
        let shared =
            cluster.and_then(|c| c.cluster().additional_ntp_source.clone().or_else(|| c.cluster().ntp_sources.clone()));
        shared.or(own).unwrap_or_else(|| self.config.settings.ntp_default_server.clone())
    }

    fn disk_speed_args(&self, row: &HostRow) -> Option<Vec<String>> {
        let disk = row.view.installation_disk()?;
        let persistent =
            row.view.inventory.as_ref().and_then(|i| i.boot.as_ref()).and_then(|b| b.device_type.as_deref())
                == Some("persistent");
        let keeps = row.host().installer_args.as_deref().is_some_and(|a| a.contains("--save-part"));
        let measured = row.view.disks_info.get(disks::identifier(disk)).and_then(|i| i.disk_speed.as_ref());
        if persistent || keeps || measured.is_some_and(|m| m.tested == Some(true)) {
            return None;
        }
        let path = json!({"path": disks::boot_device(disk)}).to_string();
        Some(vec![path, format!("{:.2}", self.config.settings.disk_check_timeout.as_secs_f64())])
    }

    fn image_args(&self, of: &Subject<'_>) -> Option<Vec<String>> {
        let settings = &self.config.settings;
        let release = of.cluster?.cluster().ocp_release_image.clone().unwrap_or_default();
        let mut images =
            vec![release.clone(), mco_image(&release), must_gather_image(&release), settings.installer_image.clone()];
        images.retain(|i| !i.is_empty() && !of.row.view.images_status.contains_key(i));
        // The agent gets whole seconds; a scaled-down limit must not become none.
        let timeout = settings.image_availability_timeout.as_secs().max(1);
        (!images.is_empty()).then(|| vec![json!({"images": images, "timeout": timeout}).to_string()])
    }

    fn logs_args(&self, of: &Subject<'_>) -> Option<Vec<String>> {
        let cluster = of.cluster?;
        if of.row.host().logs_collected_at.is_some_and(Timestamp::is_set) {
            return None;
        }
        let bootstrap = of.row.view.is_bootstrap();
        let master_ips = if bootstrap { self.addresses_of_others(cluster) } else { Vec::new() };
        let request = LogsGatherCmdRequest {
            cluster_id: cluster.cluster().id,
            infra_env_id: of.key.0,
            host_id: of.key.1,
            bootstrap,
            installer_gather: true,
            master_ips: (!master_ips.is_empty()).then_some(master_ips),
        };
        serde_json::to_string(&request).ok().map(|t| vec![t])
    }

    fn boot_artifact_args(&self, infra_env: Uuid) -> Option<Vec<String>> {
        let base = &self.config.image_service_url;
        let version =
            self.state.infra_env(infra_env).and_then(|r| r.infra_env.openshift_version.clone()).unwrap_or_default();
        text(json!({
            "kernel_url": format!("{base}/boot-artifacts/kernel?version={version}"),
            "rootfs_url": format!("{base}/boot-artifacts/rootfs?version={version}"),
            "initrd_url": format!("{base}/images/{infra_env}/pxe-initrd?version={version}"),
            "host_fs_mount_dir": "/host",
        }))
    }

    /// The other hosts that this one shall try to reach.
    fn connectivity_args(&mut self, of: &Subject<'_>) -> Option<Vec<String>> {
        let id = of.cluster?.cluster().id;
        let hosts = self.state.hosts_of_cluster(id);
        let mut others = Vec::new();
        for row in &hosts {
            if matches!(row.host().status, HostStatus::Discovering | HostStatus::Disconnected) {
                continue;
            }
            let interfaces = row.view.inventory.as_ref()?.interfaces.as_deref().filter(|i| !i.is_empty())?;
            if row.host().id == of.key.1 {
                continue;
            }
            let nics = interfaces
                .iter()
                .map(|i| ConnectivityCheckNic {
                    name: i.name.clone(),
                    mac: i.mac_address.clone(),
                    ip_addresses: Some(network::interface_addresses(i).map(|a| a.addr().to_string()).collect()),
                })
                .collect();
            others.push(ConnectivityCheckHost { host_id: Some(row.host().id), nics: Some(nics) });
        }
        if others.is_empty() {
            return None;
        }
        // Large clusters: so many checks a minute, the others wait for their next poll.
        let limit = self.config.settings.constants.connectivity_checks_per_minute;
        if hosts.len() as i64 > limit {
            let minute = of.now.as_secs() / 60;
            let used = self.connectivity_checks.entry(id).or_insert((minute, 0));
            if used.0 != minute {
                *used = (minute, 0);
            }
            if used.1 >= limit {
                return None;
            }
            used.1 += 1;
        }
        serde_json::to_string(&others).ok().map(|t| vec![t])
    }

    /// Where the bootstrap finds the others that are no workers: the address of each in the cluster's network, if it has one there.
    fn addresses_of_others(&self, cluster: &ClusterRow) -> Vec<String> {
        let machine = cluster.view.machine_networks().first().copied();
        let hosts = self.state.hosts_of_cluster(cluster.cluster().id);
        let others = hosts.iter().filter(|h| !h.view.is_bootstrap() && h.view.effective_role() != HostRole::Worker);
        let address = |h: &HostRow| {
            let all: Vec<IpNet> = network::addresses(h.view.inventory.as_ref()?).collect();
            let inside = all.iter().find(|a| machine.is_some_and(|network| network.contains(&a.addr())));
            inside.or(all.first()).map(|a| a.addr().to_string())
        };
        others.filter_map(|h| address(h)).collect()
    }

    /// Arguments for the writing of the image: the user's, and that the network is copied where it was set; else that the host
    /// gets its addresses by DHCP where it has those of the machine network, unless the user said how.
    fn installer_args(&self, infra_env: Uuid, row: &HostRow, cluster: &ClusterView) -> Option<String> {
        const COPY: &str = "--copy-network";
        let own = row.host().installer_args.as_deref().filter(|text| !text.is_empty());
        let mut args: Vec<String> = own.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let is_static = self
            .state
            .infra_env(infra_env)
            .is_some_and(|row| row.infra_env.static_network_config.as_deref().is_some_and(|c| !c.is_empty()));
        if is_static {
            if !args.iter().any(|a| a == COPY) {
                args.push(COPY.to_owned());
            }
        } else if !args.iter().any(|arg| arg.starts_with("ip=")) {
            let machine = cluster.machine_networks().first().copied().or_else(|| self.bootstrap_network(cluster));
            let inventory = row.view.inventory.as_ref();
            let interfaces = inventory.and_then(|i| i.interfaces.as_deref()).unwrap_or_default();
            for interface in interfaces {
                let is_in = |network: &IpNet| {
                    network::interface_addresses(interface).any(|address| network.contains(&address.addr()))
                };
                if let Some(network) = machine.filter(is_in) {
                    let how = match network {
                        _ if cluster.is_dual_stack() => "dhcp,dhcp6",
                        IpNet::V4(_) => "dhcp",
                        IpNet::V6(_) => "dhcp6",
                    };
                    let mac = interface.mac_address.as_deref().unwrap_or_default().replace(':', "-");
                    args.extend(["--append-karg".to_owned(), format!("ip={mac}:{how}")]);
                }
            }
        }
        (!args.is_empty()).then(|| serde_json::to_string(&args).ok()).flatten()
    }

    /// The first network of the bootstrap, of a day-1 cluster that has no machine network.
    fn bootstrap_network(&self, cluster: &ClusterView) -> Option<IpNet> {
        let hosts = self.state.hosts_of_cluster(cluster.cluster.id);
        let bootstrap = hosts.iter().find(|row| row.view.is_bootstrap())?;
        network::inventory_networks(bootstrap.view.inventory.as_ref()?).first().copied()
    }

    fn install_args(&mut self, of: &Subject<'_>) -> Option<Vec<String>> {
        let Subject { key, row, .. } = *of;
        let cluster = of.cluster?;
        let disk = row.view.installation_disk()?;
        let c = cluster.cluster();
        let settings = &self.config.settings;
        let release = c.ocp_release_image.clone().unwrap_or_default();
        let format: Vec<String> = disks::disks_to_format(&row.view).into_iter().map(str::to_owned).collect();
        let skipped: Vec<String> = row.view.skip_formatting().map(str::to_owned).collect();
        let role = if row.view.is_bootstrap() { HostRole::Bootstrap } else { row.view.effective_role() };
        let present = |p: &Option<String>| p.as_deref().is_some_and(|p| !p.is_empty());
        let proxy = (present(&c.http_proxy) || present(&c.https_proxy)).then(|| Proxy {
            http_proxy: c.http_proxy.clone(),
            https_proxy: c.https_proxy.clone(),
            no_proxy: Some(installers_no_proxy(c)),
        });
        let request = InstallCmdRequest {
            cluster_id: c.id,
            infra_env_id: key.0,
            host_id: key.1,
            role,
            boot_device: disks::boot_device(disk).to_owned(),
            controller_image: settings.controller_image.clone(),
            installer_image: settings.installer_image.clone(),
            control_plane_count: Some(cluster.view.control_plane_count()),
            proxy,
            check_cvo: Some(settings.check_cluster_version),
            disks_to_format: Some(format.clone()),
            must_gather_image: Some(must_gather_image(&release)),
            mco_image: Some(mco_image(&release)),
            openshift_version: c.openshift_version.clone(),
            service_ips: None,
            skip_installation_disk_cleanup: keeps_partitions(row).then_some(true),
            installer_args: self.installer_args(key.0, row, &cluster.view),
            enable_skip_mco_reboot: Some(
                settings.enable_skip_mco_reboot && disks::version_at_least(cluster.view.openshift_version(), 4, 15),
            ),
            notify_num_reboots: Some(!self.has_controllers),
            coreos_image: None,
        };
        let text = serde_json::to_string(&request).ok()?;
        let image = settings.installer_image.clone();
        self.announce_formatting(of, image, (format, skipped));
        Some(vec![text])
    }

    /// Tells once which disks are formatted before the installation and which are not, as the user wished.
    fn announce_formatting(
        &mut self,
        of: &Subject<'_>,
        installer: String,
        (format, skipped): (Vec<String>, Vec<String>),
    ) {
        let Subject { now, key, row, .. } = *of;
        if row.private.formatting_announced {
            return;
        }
        self.state.edit_host(key, now, |row| {
            row.private.formatting_announced = true;
            row.view.host.installer_version = Some(installer);
        });
        let named = |id: &str| {
            let known = row.view.disks().iter().find(|disk| disks::identifier(disk) == id);
            known.and_then(|d| d.name.as_ref()).map_or_else(|| id.to_owned(), |name| format!("{name} ({id})"))
        };
        let told = [
            ("quick_disk_format_performed", "is formatted", format),
            ("quick_disk_format_skipped", "is not formatted", skipped),
        ];
        for (name, done, disks) in told {
            for disk in disks {
                let host = self.host_name(key);
                let text = format!("Host {host}: disk {} {done} before the installation", named(&disk));
                self.host_event(now, key, name, Severity::Info, text);
            }
        }
    }
}

fn free_addresses_args(row: &HostRow) -> Option<Vec<String>> {
    let inventory = row.view.inventory.as_ref()?;
    let small = |n: &IpNet| n.addr().is_ipv4() && n.prefix_len() >= 22;
    let networks: Vec<String> =
        network::inventory_networks(inventory).iter().filter(|n| small(n)).map(ToString::to_string).collect();
    (!networks.is_empty()).then(|| vec![json!(networks).to_string()])
}

fn dhcp_lease_args(of: &Subject<'_>) -> Option<Vec<String>> {
    let cluster = of.cluster.filter(|c| c.view.vip_dhcp_allocation())?;
    let machine = cluster.view.machine_networks().into_iter().next()?;
    let interfaces = of.row.view.inventory.as_ref()?.interfaces.as_deref()?;
    let interface = interfaces.iter().find(|i| network::interface_addresses(i).any(|a| machine.contains(&a.addr())))?;
    let mac = |name: &str| {
        let hash = Sha256::digest(format!("{}{name}", cluster.cluster().id));
        format!("00:1a:4a:{:02x}:{:02x}:{:02x}", hash[0], hash[1], hash[2])
    };
    text(json!({
        "interface": interface.name, "api_vip_mac": mac("api"), "ingress_vip_mac": mac("ingress"),
        "api_vip_lease": cluster.private.api_vip_lease.as_deref().unwrap_or(""),
        "ingress_vip_lease": cluster.private.ingress_vip_lease.as_deref().unwrap_or(""),
    }))
}

fn domain_args(cluster: &ClusterRow) -> Option<Vec<String>> {
    let (name, base) = (cluster.cluster().name.as_deref()?, cluster.cluster().base_dns_domain.as_deref()?);
    if name.is_empty() || base.is_empty() {
        return None;
    }
    let mut names = vec![
        format!("api.{name}.{base}"),
        format!("api-int.{name}.{base}"),
        format!("console-openshift-console.apps.{name}.{base}"),
        format!("validateNoWildcardDNS.{name}.{base}."),
        format!("validateNoWildcardDNS.{name}.{base}"),
    ];
    let registry = cluster.cluster().ocp_release_image.as_deref().and_then(|i| i.split('/').next());
    if let Some(registry) = registry.map(|r| r.split(':').next().unwrap_or(r))
        && !cluster.view.is_day2()
        && !registry.is_empty()
        && registry.parse::<IpAddr>().is_err()
    {
        names.push(registry.to_owned());
    }
    let domains: Vec<_> = names.iter().map(|n| json!({"domain_name": n})).collect();
    text(json!({"domains": domains}))
}

fn vip_args(of: &Subject<'_>) -> Option<Vec<String>> {
    let c = of.cluster?.cluster();
    of.row.view.inventory.as_ref()?;
    let api = c.api_vips.iter().flatten().map(|v| (v.ip.clone(), VipType::Api));
    let ingress = c.ingress_vips.iter().flatten().map(|v| (v.ip.clone(), VipType::Ingress));
    let vips: Vec<VerifyVip> = api.chain(ingress).map(|(vip, kind)| VerifyVip { vip, vip_type: Some(kind) }).collect();
    (!vips.is_empty()).then(|| serde_json::to_string(&vips).ok()).flatten().map(|t| vec![t])
}

fn tang_args(of: &Subject<'_>) -> Option<Vec<String>> {
    let encryption = of.cluster?.cluster().disk_encryption.as_ref()?;
    let on = encryption.enable_on.as_deref().unwrap_or("none");
    if encryption.mode.as_deref() != Some("tang") || on == "none" {
        return None;
    }
    let role = match of.row.view.effective_role() {
        HostRole::Master | HostRole::Bootstrap => "masters",
        HostRole::Arbiter => "arbiters",
        _ => "workers",
    };
    (on == "all" || on.split(',').any(|r| r == role))
        .then(|| vec![json!({"tang_servers": encryption.tang_servers}).to_string()])
}

fn api_vip_args(of: &Subject<'_>) -> Option<Vec<String>> {
    let (cluster, row) = (of.cluster?, of.row);
    let role = match row.view.effective_role() {
        HostRole::AutoAssign => HostRole::Worker,
        role => role,
    };
    let pool = row.host().machine_config_pool_name.as_deref().filter(|pool| !pool.is_empty()).unwrap_or(role.as_str());
    let endpoint = cluster.cluster().ignition_endpoint.as_ref();
    let authorities = endpoint.and_then(|e| e.ca_certificate.as_ref()).filter(|ca| !ca.trim().is_empty());
    if let Some(authorities) = authorities {
        // Without a URL beside them nobody has looked at them, and a host whose step cannot be made does not get it.
        base64::engine::general_purpose::STANDARD.decode(authorities).ok()?;
    }
    let url = match (endpoint.and_then(|e| e.url.as_deref()).filter(|u| !u.is_empty()), authorities) {
        (Some(url), _) => format!("{}/{pool}", url.trim_end_matches('/')),
        (None, None) => format!("http://{}:22624/config/{pool}", api_host(&cluster.view)),
        // The certificate there is for the internal name.
        (None, Some(_)) => {
            let host = api_host(&cluster.view);
            let internal = host.strip_prefix("api.").map(|rest| format!("api-int.{rest}"));
            format!("https://{}:22623/config/{pool}", internal.unwrap_or(host))
        }
    };
    let mut request = json!({"url": url});
    if let Some(authorities) = authorities {
        request["ca_certificate"] = json!(authorities);
    }
    if let Some(token) = &row.private.ignition_endpoint_token {
        request["ignition_endpoint_token"] = json!(token);
    }
    if let Some(headers) = row.private.ignition_endpoint_http_headers.as_deref() {
        request["request_headers"] = serde_json::from_str(headers).unwrap_or_default();
    }
    text(request)
}

/// Where the API of a running cluster is reached.
pub(crate) fn api_host(cluster: &ClusterView) -> String {
    let c = &cluster.cluster;
    c.api_vip_dns_name.clone().filter(|n| !n.is_empty()).unwrap_or_else(|| {
        format!("api-int.{}.{}", c.name.as_deref().unwrap_or(""), c.base_dns_domain.as_deref().unwrap_or(""))
    })
}

/// The real service asks the release image for the images in it; here their names follow from the release's name.
fn image_of(release: &str, what: &str) -> String {
    if release.is_empty() {
        return String::new();
    }
    let digest: String = Sha256::digest(format!("{release}/{what}")).iter().map(|b| format!("{b:02x}")).collect();
    format!("quay.io/openshift-release-dev/ocp-v4.0-art-dev@sha256:{digest}")
}

fn mco_image(release: &str) -> String {
    image_of(release, "machine-config-operator")
}

fn must_gather_image(release: &str) -> String {
    image_of(release, "must-gather")
}

/// Does the user want partitions of the disk to stay? Then nothing on it is removed first.
fn keeps_partitions(row: &HostRow) -> bool {
    let args: Vec<String> =
        row.host().installer_args.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    args.iter().any(|arg| arg == "--save-partlabel" || arg == "--save-partindex")
}

/// What an installer reaches without the proxy: what the user says, its own machine and the names of the cluster.
fn installers_no_proxy(cluster: &Cluster) -> String {
    let users = cluster.no_proxy.as_deref().unwrap_or_default().trim();
    if users == "*" {
        return users.to_owned();
    }
    let (name, domain) = (cluster.name.as_deref(), cluster.base_dns_domain.as_deref());
    let internal = format!("api-int.{}.{}", name.unwrap_or_default(), domain.unwrap_or_default());
    let own = ["127.0.0.1", "localhost", ".svc", ".cluster.local", &internal];
    let mut all: Vec<&str> = if users.is_empty() { Vec::new() } else { users.split(',').collect() };
    for name in own {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all.join(",")
}
