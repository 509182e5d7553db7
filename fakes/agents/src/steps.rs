//! What an agent answers: one row for each step type, with how long it takes and a function from what the host sees to the
//! answer. Shapes are those of the real agent's answers.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use serde::Serialize;
use serde::de::DeserializeOwned;
use vlab_api::types::*;
use vlab_model::settings::{HostTiming, Span};

use crate::fault::{ActiveFaults, ClusterFault, HostFault};
use crate::network::Network;
use crate::plan::{DnsView, HostPlan};
use crate::rng;

/// Exit code of a step that the agent itself could not run.
pub const AGENT_FAILURE: i64 = -1;
/// Exit code of every step once the discovery medium is gone.
pub const MEDIA_DISCONNECTED: i64 = 256;
/// Name of the NTP source that a host has when the service names none.
pub const DEFAULT_NTP_SOURCE: &str = "ntp.lab.test";

/// What came of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepAnswer {
    /// Exit code; 0 is success.
    pub exit_code: i64,
    /// Text that the service reads, JSON for most types.
    pub output: String,
    /// Text for people.
    pub error: String,
}

impl StepAnswer {
    fn json(value: &impl Serialize) -> Self {
        // Wire types are plain data with string keys: serialising them cannot fail.
        Self { output: serde_json::to_string(value).unwrap_or_default(), ..Self::default() }
    }

    fn failed(exit_code: i64, error: impl Into<String>) -> Self {
        Self { exit_code, output: String::new(), error: error.into() }
    }

    fn with_exit(mut self, exit_code: i64, error: impl Into<String>) -> Self {
        self.exit_code = exit_code;
        self.error = error.into();
        self
    }
}

/// What a host sees when it answers.
pub(crate) struct Site<'a> {
    pub(crate) seed: u64,
    /// Position of the host in its fleet.
    pub(crate) position: usize,
    pub(crate) plan: &'a HostPlan,
    pub(crate) dns: &'a DnsView,
    /// What is wrong with the host, and with the names and addresses of its cluster.
    pub(crate) faults: &'a ActiveFaults<HostFault>,
    pub(crate) dns_faults: &'a ActiveFaults<ClusterFault>,
    /// Faults that made the answer another one, and how.
    pub(crate) effects: RefCell<Vec<(Arc<str>, &'static str)>>,
    pub(crate) network: &'a mut Network,
    /// Does an API server answer at that address? `None`: no cluster of the fleet has that address.
    pub(crate) api_answers: &'a dyn Fn(IpAddr) -> Option<bool>,
}

impl Site<'_> {
    fn note_effect(&self, fault: Arc<str>, detail: &'static str) {
        self.effects.borrow_mut().push((fault, detail));
    }

    /// What is wrong with the host in that way, noted.
    pub(crate) fn active<U>(&self, pick: impl Fn(&HostFault) -> Option<U>, detail: &'static str) -> Option<U> {
        let (fault, found) = self.faults.find(pick)?;
        self.note_effect(fault, detail);
        Some(found)
    }

    /// Addresses of a name as this host's DNS gives them.
    fn lookup(&self, name: &str) -> Vec<IpAddr> {
        let plain = name.trim_end_matches('.').to_ascii_lowercase();
        let wrong = self.dns_faults.find(|fault| match fault {
            ClusterFault::Dns(of, address) if *of == plain => Some(*address),
            _ => None,
        });
        if let Some((fault, address)) = wrong {
            self.note_effect(fault, "DNS gave a wrong answer");
            return address.into_iter().collect();
        }
        let found = self.dns.lookup(name);
        if !found.is_empty() {
            return found;
        }
        // A wildcard answers for what has no record of its own.
        let wildcard = self.dns_faults.find(|fault| match fault {
            ClusterFault::Dns(of, Some(address)) => {
                of.strip_prefix("*.").is_some_and(|domain| plain.ends_with(&format!(".{domain}"))).then_some(*address)
            }
            _ => None,
        });
        wildcard.map_or(found, |(fault, address)| {
            self.note_effect(fault, "DNS resolved a name that does not exist");
            vec![address]
        })
    }
}

/// What happens on the host besides the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// The installer starts.
    StartInstaller,
    /// The installer is stopped.
    StopInstaller,
    /// Logs are gathered and sent before the answer.
    GatherLogs,
    /// After a success the agent starts again in its new version.
    RestartUpgraded,
    /// The machine reboots into the discovery image after the answer.
    RebootDiscovery,
}

/// A row of the table of step types.
pub struct StepRow {
    /// Type on the wire.
    pub step_type: &'static str,
    /// How long it takes.
    pub takes: fn(&HostTiming) -> Span,
    pub(crate) answer: fn(&mut Site<'_>, &[String]) -> StepAnswer,
    /// What happens besides.
    pub effect: Effect,
}

impl std::fmt::Debug for StepRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StepRow({}, {:?})", self.step_type, self.effect)
    }
}

macro_rules! steps {
    ($($name:literal, $takes:ident, $answer:expr, $effect:ident;)*) => {
        &[$(StepRow { step_type: $name, takes: |t| t.$takes, answer: $answer, effect: Effect::$effect }),*]
    };
}

/// Every step type that an agent knows. `execute` and `next-step-runner` are in the API's list but no agent of this kind runs
/// them.
pub const STEPS: &[StepRow] = steps! {
    "inventory", step_inventory, inventory, None;
    "connectivity-check", step_connectivity_check, connectivity_check, None;
    "free-network-addresses", step_free_network_addresses, free_network_addresses, None;
    "dhcp-lease-allocate", step_dhcp_lease_allocate, dhcp_lease_allocate, None;
    "api-vip-connectivity-check", step_api_vip_connectivity_check, api_vip_connectivity_check, None;
    "tang-connectivity-check", step_tang_connectivity_check, tang_connectivity_check, None;
    "ntp-synchronizer", step_ntp_synchronizer, ntp_synchronizer, None;
    "installation-disk-speed-check", step_installation_disk_speed_check, installation_disk_speed_check, None;
    "container-image-availability", step_container_image_availability, container_image_availability, None;
    "domain-resolution", step_domain_resolution, domain_resolution, None;
    "verify-vips", step_verify_vips, verify_vips, None;
    "install", step_install, install, StartInstaller;
    "logs-gather", step_logs_gather, logs_gather, GatherLogs;
    "stop-installation", step_stop_installation, |_, _| StepAnswer::default(), StopInstaller;
    "upgrade-agent", step_upgrade_agent, upgrade_agent, RestartUpgraded;
    "download-boot-artifacts", step_download_boot_artifacts, download_boot_artifacts, None;
    "reboot-for-reclaim", step_reboot_for_reclaim, reboot_for_reclaim, RebootDiscovery;
};

/// Position of a step type in [`STEPS`].
pub fn find(step_type: &str) -> Option<usize> {
    STEPS.iter().position(|s| s.step_type == step_type)
}

/// The agent's answer to a step type that it does not know.
pub fn unknown(step_type: &str) -> StepAnswer {
    StepAnswer::failed(AGENT_FAILURE, format!("failed to find action for step type {step_type}"))
}

/// The agent's answer to everything once the discovery medium is gone.
pub fn media_disconnected() -> StepAnswer {
    StepAnswer::failed(MEDIA_DISCONNECTED, "cannot read from the discovery medium")
}

/// The step's argument as a typed object.
fn argument<T: DeserializeOwned>(step_type: &str, args: &[String]) -> Result<T, StepAnswer> {
    let [text, ..] = args else {
        return Err(StepAnswer::failed(AGENT_FAILURE, format!("{step_type}: no argument was given")));
    };
    serde_json::from_str(text).map_err(|e| {
        StepAnswer::failed(AGENT_FAILURE, format!("{step_type}: the argument is not what was expected: {e}"))
    })
}

/// Unwraps an argument or answers with what is wrong with it.
macro_rules! take {
    ($step:literal, $args:ident) => {
        match argument($step, $args) {
            Ok(value) => value,
            Err(answer) => return answer,
        }
    };
}

fn inventory(site: &mut Site<'_>, args: &[String]) -> StepAnswer {
    if args.len() != 1 {
        return StepAnswer::failed(AGENT_FAILURE, format!("inventory: expected one argument and got {}", args.len()));
    }
    let plan = site.plan;
    let called = |fault: &HostFault| if let HostFault::Hostname(name) = fault { Some(name.clone()) } else { None };
    let hostname = site.active(called, "it reported another name").unwrap_or_else(|| plan.name.clone());
    let mut inventory = plan.profile.instantiate(plan.index, &hostname, &plan.addresses);
    let other = |fault: &HostFault| matches!(fault, HostFault::Address(_)).then_some(());
    let _ = site.active(other, "it reported another host's address");
    let cores = |fault: &HostFault| if let HostFault::Cores(n) = fault { Some(i64::from(*n)) } else { None };
    if let Some(cores) = site.active(cores, "it reported fewer cores") {
        inventory.cpu.get_or_insert_default().count = Some(cores);
    }
    let bytes = |fault: &HostFault| if let HostFault::MemoryBytes(n) = fault { i64::try_from(*n).ok() } else { None };
    if let Some(bytes) = site.active(bytes, "it reported less memory") {
        let memory = inventory.memory.get_or_insert_default();
        (memory.physical_bytes, memory.usable_bytes) = (Some(bytes), Some(bytes));
    }
    let bytes = |fault: &HostFault| if let HostFault::DiskBytes(n) = fault { i64::try_from(*n).ok() } else { None };
    if let Some(bytes) = site.active(bytes, "it reported smaller disks") {
        inventory.disks.iter_mut().flatten().for_each(|disk| disk.size_bytes = Some(bytes));
    }
    StepAnswer::json(&inventory)
}

/// The NIC from which an address is reached: the one in its network, else that of the default gateway.
fn outgoing(plan: &HostPlan, to: IpAddr) -> Option<(usize, Option<IpAddr>)> {
    let on_link = |to: IpAddr| {
        plan.addresses.nics.iter().enumerate().take(plan.profile.nics.len()).find_map(|(i, nic)| {
            let own = match to {
                IpAddr::V4(to) => nic.ipv4.iter().find(|n| n.contains(&to)).map(|n| IpAddr::V4(n.addr())),
                IpAddr::V6(to) => nic.ipv6.iter().find(|n| n.contains(&to)).map(|n| IpAddr::V6(n.addr())),
            };
            own.map(|own| (i, own))
        })
    };
    if let Some((i, own)) = on_link(to) {
        return Some((i, Some(own)));
    }
    let gateway = match to {
        IpAddr::V4(_) => plan.addresses.gateway_v4.map(IpAddr::V4),
        IpAddr::V6(_) => plan.addresses.gateway_v6.map(IpAddr::V6),
    };
    gateway.and_then(on_link).map(|(i, _)| (i, None))
}

fn connectivity_check(site: &mut Site<'_>, args: &[String]) -> StepAnswer {
    let others: Vec<ConnectivityCheckHost> = take!("connectivity-check", args);
    let remote_hosts = others.iter().map(|other| connectivity_to(site, other)).collect();
    StepAnswer::json(&ConnectivityReport { remote_hosts: Some(remote_hosts) })
}

fn connectivity_to(site: &Site<'_>, other: &ConnectivityCheckHost) -> ConnectivityRemoteHost {
    let (mut l2, mut l3, mut mtu) = (Vec::new(), Vec::new(), Vec::new());
    for nic in other.nics.iter().flatten() {
        for text in nic.ip_addresses.iter().flatten() {
            let Ok(address) = text.parse::<IpAddr>() else { continue };
            let Some((own, on_link)) = outgoing(site.plan, address) else { continue };
            let own = &site.plan.profile.nics[own];
            let (answering, effects) = site.network.paths(site.position, address);
            effects.into_iter().for_each(|fault| site.note_effect(fault, "a connectivity check found the link bad"));
            if let Some(own_address) = on_link {
                // One entry for each machine that answers: two of them are an address collision.
                l2.extend(answering.iter().map(|(_, path)| {
                    let mac = path.mac.to_string();
                    L2Connectivity {
                        outgoing_nic: Some(own.name.clone()),
                        outgoing_ip_address: Some(own_address.to_string()),
                        remote_ip_address: Some(text.clone()),
                        successful: Some(nic.mac.as_deref().is_none_or(|m| m.eq_ignore_ascii_case(&mac))),
                        remote_mac: Some(mac),
                    }
                }));
            }
            let path = answering.first().map(|(_, path)| path).filter(|p| p.loss_percent < 100.0);
            l3.push(L3Connectivity {
                outgoing_nic: Some(own.name.clone()),
                remote_ip_address: Some(text.clone()),
                successful: Some(path.is_some()),
                average_rtt_ms: Some(path.map_or(0.0, |p| p.rtt_ms)),
                packet_loss_percentage: Some(path.map_or(100.0, |p| p.loss_percent)),
            });
            mtu.push(MtuReport {
                outgoing_nic: Some(own.name.clone()),
                remote_ip_address: Some(text.clone()),
                mtu_successful: Some(path.is_some_and(|p| p.mtu >= own.mtu)),
            });
        }
    }
    ConnectivityRemoteHost {
        host_id: other.host_id,
        l2_connectivity: Some(l2),
        l3_connectivity: Some(l3),
        mtu_report: Some(mtu),
    }
}

fn free_network_addresses(site: &mut Site<'_>, args: &[String]) -> StepAnswer {
    let networks: Vec<String> = take!("free-network-addresses", args);
    let mut entries = Vec::new();
    for text in &networks {
        match text.parse::<Ipv4Net>() {
            Ok(network) => entries.push(site.network.free_addresses(site.position, network)),
            Err(_) => {
                return StepAnswer::failed(
                    AGENT_FAILURE,
                    format!("free-network-addresses: {text:?} is not an IPv4 network in CIDR notation"),
                );
            }
        }
    }
    StepAnswer { output: format!("[{}]", entries.join(",")), ..StepAnswer::default() }
}

fn dhcp_lease_allocate(site: &mut Site<'_>, args: &[String]) -> StepAnswer {
    let request: DhcpAllocationRequest = take!("dhcp-lease-allocate", args);
    let nics = site.plan.profile.nics.iter().zip(&site.plan.addresses.nics);
    let network =
        nics.filter(|(nic, _)| nic.name == request.interface).find_map(|(_, own)| own.ipv4.first().map(Ipv4Net::trunc));
    let Some(network) = network else {
        return StepAnswer::failed(
            AGENT_FAILURE,
            format!("dhcp-lease-allocate: interface {:?} has no IPv4 network", request.interface),
        );
    };
    let (api, ingress) = (&request.api_vip_mac, &request.ingress_vip_mac);
    let Some(api_vip) = lease(site, network, api, None) else {
        return StepAnswer::failed(AGENT_FAILURE, format!("dhcp-lease-allocate: no free address in {network}"));
    };
    let Some(ingress_vip) = lease(site, network, ingress, Some(api_vip)) else {
        return StepAnswer::failed(AGENT_FAILURE, format!("dhcp-lease-allocate: no second free address in {network}"));
    };
    let text = |address: IpAddr| {
        Some(format!("lease {{\n  interface \"{}\";\n  fixed-address {address};\n}}\n", request.interface))
    };
    StepAnswer::json(&DhcpAllocationResponse {
        api_vip_address: api_vip.to_string(),
        ingress_vip_address: ingress_vip.to_string(),
        api_vip_lease: text(api_vip),
        ingress_vip_lease: text(ingress_vip),
    })
}

/// What a DHCP server would lease to that MAC: the same address for whichever host asks.
fn lease(site: &Site<'_>, network: Ipv4Net, mac: &str, not: Option<IpAddr>) -> Option<IpAddr> {
    let free: Vec<IpAddr> = network
        .hosts()
        .map(IpAddr::V4)
        .filter(|a| Some(*a) != not && !site.network.is_taken(site.position, *a))
        .take(4096)
        .collect();
    let salt = mac.bytes().fold(0u64, |sum, b| sum.wrapping_mul(31).wrapping_add(u64::from(b)));
    let at = (rng::fixed(site.seed, 0, salt) * free.len() as f64) as usize;
    free.get(at).copied()
}

/// Host part of a URL, without user and port.
fn url_host(url: &str) -> Option<&str> {
    let rest = url.split_once("://").map(|(_, rest)| rest)?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split_once(']')?.0,
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    (!host.is_empty()).then_some(host)
}

fn api_vip_connectivity_check(site: &mut Site<'_>, args: &[String]) -> StepAnswer {
    let request: ApiVipConnectivityRequest = take!("api-vip-connectivity-check", args);
    let problem = match url_host(&request.url) {
        None => Some("the URL has no host".to_owned()),
        Some(host) => {
            let addresses = site.lookup(host);
            match addresses.first() {
                None => Some(format!("{host} does not resolve")),
                Some(_) if !site.dns.answers(host) => Some(format!("{host} does not answer")),
                Some(address) if (site.api_answers)(*address) == Some(false) => {
                    Some(format!("{host} ({address}) refuses the connection"))
                }
                Some(_) => None,
            }
        }
    };
    // The agent exits 0 also when the download failed.
    StepAnswer::json(&ApiVipConnectivityResponse {
        is_success: Some(problem.is_none()),
        url: Some(request.url.clone()),
        ignition: problem.is_none().then(|| r#"{"ignition":{"version":"3.2.0"}}"#.to_owned()),
        download_error: problem.map(|p| format!("cannot download the ignition: {p}")),
    })
}

fn tang_connectivity_check(site: &mut Site<'_>, args: &[String]) -> StepAnswer {
    #[derive(serde::Deserialize)]
    struct Server {
        url: String,
    }
    let request: TangConnectivityRequest = take!("tang-connectivity-check", args);
    let servers: Vec<Server> = match serde_json::from_str(&request.tang_servers) {
        Ok(servers) => servers,
        Err(e) => {
            return StepAnswer::failed(
                AGENT_FAILURE,
                format!("tang-connectivity-check: the list is not readable: {e}"),
            );
        }
    };
    let mut answers = Vec::new();
    for server in &servers {
        match url_host(&server.url) {
            Some(host) if site.dns.answers(host) => answers.push(TangConnectivityResponseTangServerResponse {
                tang_url: Some(server.url.clone()),
                payload: Some("eyJrZXlzIjpbXX0".into()),
                signatures: Some(vec![TangConnectivityResponseTangServerResponseSignatures {
                    protected: Some("eyJhbGciOiJFUzUxMiJ9".into()),
                    signature: Some("AA".into()),
                }]),
            }),
            _ => {
                let report = TangConnectivityResponse { is_success: Some(false), tang_server_response: Some(answers) };
                return StepAnswer::json(&report).with_exit(1, format!("tang server {} does not answer", server.url));
            }
        }
    }
    StepAnswer::json(&TangConnectivityResponse { is_success: Some(true), tang_server_response: Some(answers) })
}

fn ntp_synchronizer(site: &mut Site<'_>, args: &[String]) -> StepAnswer {
    let request: NtpSynchronizationRequest = take!("ntp-synchronizer", args);
    let mut names: Vec<&str> = request.ntp_source.split(',').map(str::trim).filter(|n| !n.is_empty()).collect();
    if names.is_empty() {
        names.push(DEFAULT_NTP_SOURCE);
    }
    let mut synced = false;
    let ntp_sources = names
        .into_iter()
        .map(|name| {
            let none =
                site.active(|fault| (*fault == HostFault::NoNtp).then_some(()), "no NTP source answered").is_some();
            let reachable = !none && (name == DEFAULT_NTP_SOURCE || site.dns.answers(name));
            // A clock follows one source and keeps the others in reserve.
            let state = match (reachable, synced) {
                (false, _) => SourceState::Unreachable,
                (true, false) => SourceState::Synced,
                (true, true) => SourceState::Combined,
            };
            synced |= reachable;
            NtpSource { source_name: Some(name.to_owned()), source_state: Some(state) }
        })
        .collect();
    StepAnswer::json(&NtpSynchronizationResponse { ntp_sources: Some(ntp_sources) })
}

fn installation_disk_speed_check(site: &mut Site<'_>, args: &[String]) -> StepAnswer {
    let request: DiskSpeedCheckRequest = take!("installation-disk-speed-check", args);
    let disk = site.plan.disk(&request.path);
    let answer =
        |ms: u32| DiskSpeedCheckResponse { io_sync_duration: Some(i64::from(ms)), path: Some(request.path.clone()) };
    let broken = |fault: &HostFault| (*fault == HostFault::DiskFailsAt(0)).then_some(());
    match disk {
        Some(_) if site.active(broken, "the speed of its disk could not be measured").is_some() => {
            StepAnswer::json(&answer(0)).with_exit(1, format!("{} cannot be written to", request.path))
        }
        Some(disk) => {
            let slow = |fault: &HostFault| if let HostFault::FsyncMs(ms) = fault { Some(*ms) } else { None };
            StepAnswer::json(&answer(site.active(slow, "the speed check found a slow disk").unwrap_or(disk.fsync_ms)))
        }
        None => StepAnswer::json(&answer(0)).with_exit(1, format!("there is no disk {}", request.path)),
    }
}

/// Host part of an image's name.
fn registry(image: &str) -> &str {
    let first = image.split('/').next().unwrap_or(image);
    match first.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(v6),
        None => first.split(':').next().unwrap_or(first),
    }
}

fn can_pull(site: &Site<'_>, image: &str) -> bool {
    let missing = |fault: &HostFault| {
        if let HostFault::NoImage(part) = fault { image.contains(part).then_some(()) } else { None }
    };
    site.dns.answers(registry(image)) && site.active(missing, "an image could not be pulled").is_none()
}

fn container_image_availability(site: &mut Site<'_>, args: &[String]) -> StepAnswer {
    let request: ContainerImageAvailabilityRequest = take!("container-image-availability", args);
    let images: Vec<_> = request.images.iter().map(|image| pull(site, image)).collect();
    let failed: Vec<_> =
        images.iter().filter(|i| i.result.as_deref() != Some("success")).filter_map(|i| i.name.clone()).collect();
    let answer = StepAnswer::json(&ContainerImageAvailabilityResponse { images });
    if failed.is_empty() { answer } else { answer.with_exit(2, format!("cannot pull {}", failed.join(", "))) }
}

fn pull(site: &Site<'_>, image: &str) -> ContainerImageAvailability {
    let name = Some(image.to_owned());
    if !can_pull(site, image) {
        return ContainerImageAvailability {
            name,
            result: Some("failure".into()),
            size_bytes: Some(0.0),
            time: Some(0.0),
            download_rate: Some(0.0),
        };
    }
    let salt = image.bytes().fold(7u64, |sum, b| sum.wrapping_mul(131).wrapping_add(u64::from(b)));
    let size_bytes = (2e8 + 6e8 * rng::fixed(site.seed, 0, salt)).round();
    // Bytes a second: each machine has a rate of its own.
    let rate = (4e7 + 8e7 * rng::fixed(site.seed, site.plan.index, salt)).round();
    ContainerImageAvailability {
        name,
        result: Some("success".into()),
        size_bytes: Some(size_bytes),
        time: Some((size_bytes / rate * 1000.0).round() / 1000.0),
        download_rate: Some(rate),
    }
}

fn domain_resolution(site: &mut Site<'_>, args: &[String]) -> StepAnswer {
    #[derive(serde::Deserialize)]
    struct Domain {
        domain_name: String,
    }
    #[derive(serde::Deserialize)]
    struct Request {
        domains: Vec<Domain>,
    }
    let request: Request = take!("domain-resolution", args);
    let resolutions = request
        .domains
        .into_iter()
        .map(|domain| {
            let addresses = site.lookup(&domain.domain_name);
            let family = |v4: bool| addresses.iter().filter(|a| a.is_ipv4() == v4).map(ToString::to_string).collect();
            DomainResolutionResponseResolutions {
                domain_name: domain.domain_name,
                ipv4_addresses: Some(family(true)),
                ipv6_addresses: Some(family(false)),
                cnames: None,
            }
        })
        .collect();
    StepAnswer::json(&DomainResolutionResponse { resolutions })
}

fn verify_vips(site: &mut Site<'_>, args: &[String]) -> StepAnswer {
    let vips: Vec<VerifyVip> = take!("verify-vips", args);
    let verified: Vec<VerifiedVip> = vips
        .into_iter()
        .map(|v| {
            let address = v.vip.as_deref().and_then(|a| a.parse::<IpAddr>().ok());
            // A virtual address must be one that nobody has yet, in a network that this host is in.
            let verification = match address {
                Some(a) if site.network.is_taken(site.position, a) => {
                    if let Some(fault) = site.network.taken_by(site.position, a) {
                        site.note_effect(fault, "a virtual address was found in use");
                    }
                    VipVerification::Failed
                }
                Some(a) if outgoing(site.plan, a).is_some_and(|(_, on_link)| on_link.is_some()) => {
                    VipVerification::Succeeded
                }
                _ => VipVerification::Unverified,
            };
            VerifiedVip { vip: v.vip, vip_type: v.vip_type, verification: Some(verification) }
        })
        .collect();
    StepAnswer::json(&verified)
}

fn install(site: &mut Site<'_>, args: &[String]) -> StepAnswer {
    let request: InstallCmdRequest = take!("install", args);
    let disks = std::iter::once(&request.boot_device).chain(request.disks_to_format.iter().flatten());
    for path in disks {
        if site.plan.disk(path).is_none() {
            return StepAnswer::failed(AGENT_FAILURE, format!("install: there is no disk {path}"));
        }
    }
    if !can_pull(site, &request.installer_image) {
        return StepAnswer::failed(125, format!("cannot pull the installer image {}", request.installer_image));
    }
    StepAnswer::default()
}

fn logs_gather(_: &mut Site<'_>, args: &[String]) -> StepAnswer {
    let _: LogsGatherCmdRequest = take!("logs-gather", args);
    StepAnswer::default()
}

fn upgrade_agent(site: &mut Site<'_>, args: &[String]) -> StepAnswer {
    let request: UpgradeAgentRequest = take!("upgrade-agent", args);
    let ok = request.agent_image.as_deref().is_some_and(|image| can_pull(site, image));
    // Exit code 0 both ways: the result is in the text.
    StepAnswer::json(&UpgradeAgentResponse {
        agent_image: request.agent_image,
        result: Some(if ok { "success" } else { "failure" }.into()),
    })
}

/// The image of an upgrade that worked, by the answer to the step.
pub fn upgraded_to(output: &str) -> Option<String> {
    let response: UpgradeAgentResponse = serde_json::from_str(output).ok()?;
    response.agent_image.filter(|_| response.result.as_deref() == Some("success"))
}

fn download_boot_artifacts(site: &mut Site<'_>, args: &[String]) -> StepAnswer {
    let request: DownloadBootArtifactsRequest = take!("download-boot-artifacts", args);
    for url in [&request.kernel_url, &request.initrd_url, &request.rootfs_url] {
        let missing = |fault: &HostFault| {
            if let HostFault::NoImage(part) = fault { url.contains(part).then_some(()) } else { None }
        };
        let is_there = url_host(url).is_some_and(|host| site.dns.answers(host));
        if !is_there || site.active(missing, "what it boots to be given back could not be fetched").is_some() {
            return StepAnswer::failed(AGENT_FAILURE, format!("download-boot-artifacts: cannot download {url}"));
        }
    }
    StepAnswer::default()
}

fn reboot_for_reclaim(_: &mut Site<'_>, args: &[String]) -> StepAnswer {
    let _: RebootForReclaimRequest = take!("reboot-for-reclaim", args);
    StepAnswer::default()
}

impl HostPlan {
    /// The first interface gets another address of the same family, with the prefix length that it had; the one before.
    pub(crate) fn change_address(&mut self, network: &mut Network, position: usize, to: IpAddr) -> Option<IpAddr> {
        let mac = self.profile.mac(self.index, 0);
        let nic = self.addresses.nics.first_mut()?;
        let before = match to {
            IpAddr::V4(to) => {
                let first = nic.ipv4.first_mut()?;
                let before = first.addr();
                *first = Ipv4Net::new(to, first.prefix_len()).ok()?;
                IpAddr::V4(before)
            }
            IpAddr::V6(to) => {
                let first = nic.ipv6.first_mut()?;
                let before = first.addr();
                *first = ipnet::Ipv6Net::new(to, first.prefix_len()).ok()?;
                IpAddr::V6(before)
            }
        };
        network.move_address(position, before, to, nic.mac.unwrap_or(mac));
        Some(before)
    }

    /// The disk that has that device name.
    pub(crate) fn disk(&self, path: &str) -> Option<&crate::profile::DiskProfile> {
        self.profile.disks.iter().find(|d| d.device_names(self.index).iter().any(|n| n == path))
    }
}

#[cfg(test)]
mod tests;
