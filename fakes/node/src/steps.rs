//! The steps of the service, really done: one row for each type. What a row cannot really do on a lab machine says so in its
//! answer or in its error.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ipnet::Ipv4Net;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use vlab_agents::Ran;
use vlab_agents::archive::tar_gz;
use vlab_agents::steps::{AGENT_FAILURE, StepAnswer};
use vlab_api::types::*;

use crate::inventory;
use crate::machine::{NodeConfig, Root};
use crate::net::http::{self, Credentials, HttpQuestion};
use crate::net::link::{self, Link};
use crate::net::{dns, echo, ntp};
use crate::say;

/// What a step can use. It runs in a thread of its own.
#[derive(Clone, Debug)]
pub struct Site {
    /// The machine.
    pub root: Root,
    /// What the lab put on it.
    pub config: NodeConfig,
    /// Service that the agent belongs to, to be given to the installer.
    pub service: String,
    /// Version of the agent, which is its image.
    pub agent_version: String,
    /// For the few things that are asynchronous.
    pub runtime: tokio::runtime::Handle,
}

/// Answers that a step gives: the text, or exit code and words.
type StepResult = Result<Ran, (i64, String)>;

/// A row of the table.
struct Row {
    step: &'static str,
    /// Name of the program in the agent's image that does this step alone, if there is one.
    program: Option<&'static str>,
    run: fn(&Site, &[String]) -> StepResult,
}

macro_rules! rows {
    ($($step:literal, $program:expr, $run:ident;)*) => {
        &[$(Row { step: $step, program: $program, run: $run }),*]
    };
}

/// Every step that a node can do.
const ROWS: &[Row] = rows! {
    "inventory", Some("inventory"), take_inventory;
    "connectivity-check", Some("connectivity_check"), connectivity;
    "free-network-addresses", Some("free_addresses"), free_addresses;
    "dhcp-lease-allocate", Some("dhcp_lease_allocate"), dhcp_leases;
    "api-vip-connectivity-check", Some("apivip_check"), api_vip;
    "tang-connectivity-check", Some("tang_connectivity_check"), tang;
    "ntp-synchronizer", Some("ntp_synchronizer"), clocks;
    "installation-disk-speed-check", Some("disk_speed_check"), disk_speed;
    "container-image-availability", Some("container_image_availability"), images;
    "domain-resolution", Some("domain_resolution"), domains;
    "verify-vips", Some("vips_verifier"), vips;
    "install", None, install;
    "logs-gather", None, gather_logs;
    "stop-installation", None, stop_installation;
    "upgrade-agent", None, upgrade_agent;
    "download-boot-artifacts", None, boot_artifacts;
    "reboot-for-reclaim", None, reboot_for_reclaim;
};

/// The step that a program of the agent's image does.
pub fn of_program(program: &str) -> Option<&'static str> {
    ROWS.iter().find(|r| r.program == Some(program)).map(|r| r.step)
}

/// Does a step. Blocks as long as it takes.
pub fn run(site: &Site, step: &str, args: &[String]) -> Ran {
    let outcome = match ROWS.iter().find(|r| r.step == step) {
        Some(row) => (row.run)(site, args),
        None => return Ran { answer: vlab_agents::steps::unknown(step), archive: Vec::new() },
    };
    outcome.unwrap_or_else(|(exit_code, error)| Ran {
        answer: StepAnswer { exit_code, output: String::new(), error: format!("{step}: {error}") },
        archive: Vec::new(),
    })
}

fn json_answer(value: &impl Serialize) -> StepResult {
    let output = serde_json::to_string(value).map_err(|e| (AGENT_FAILURE, e.to_string()))?;
    Ok(Ran { answer: StepAnswer { exit_code: 0, output, error: String::new() }, archive: Vec::new() })
}

fn argument<T: DeserializeOwned>(args: &[String]) -> Result<T, (i64, String)> {
    let text = args.first().ok_or((AGENT_FAILURE, "an argument is missing".to_owned()))?;
    serde_json::from_str(text).map_err(|e| (AGENT_FAILURE, format!("the argument cannot be read: {e}")))
}

fn os_error(e: std::io::Error) -> (i64, String) {
    (AGENT_FAILURE, e.to_string())
}

// --- inventory -----------------------------------------------------------------------------------------------------

fn take_inventory(site: &Site, _: &[String]) -> StepResult {
    json_answer(&inventory_of(site).map_err(os_error)?)
}

/// How long the inventory waits for the names of disks.
const UDEV: Duration = Duration::from_secs(60);

/// The lab's udev begins late and takes its time; the real agent's machine has its names of disks before the agent starts.
fn wait_for_udev(root: &Root, budget: Duration) {
    let end = Instant::now() + budget;
    loop {
        let unknown = inventory::unknown_to_udev(root);
        if unknown.is_empty() {
            return;
        }
        if Instant::now() >= end {
            say::note("agent", &format!("udev has not said anything of {} within {budget:?}", unknown.join(", ")));
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The machine's inventory with the lab's overlay, of which every change is said.
///
/// # Errors
/// When the kernel does not tell addresses.
pub fn inventory_of(site: &Site) -> std::io::Result<Inventory> {
    wait_for_udev(&site.root, UDEV);
    let mut taken = inventory::take(&site.root, &link::addresses()?);
    let changed = inventory::lay_over(&mut taken, &site.config.overlay);
    // The service asks again and again; a change of the change is said again.
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if *said != changed {
        said.clone_from(&changed);
        say::moment("agent", "hardware-overlay", &json!({ "declared, not there": changed }));
    }
    let disks = network_disks(&taken);
    static DISKS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut said = DISKS.lock().unwrap_or_else(PoisonError::into_inner);
    if *said != disks {
        said.clone_from(&disks);
        say::moment("agent", "disks-on-the-network", &json!({ "disks": disks }));
    }
    Ok(taken)
}

/// Disks on the network as the service is told of them: name and type, our own address on the way there, and what is made of them.
fn network_disks(inventory: &Inventory) -> Vec<String> {
    let is_one = |disk: &&Disk| matches!(disk.drive_type, Some(DriveType::ISCSI | DriveType::Multipath));
    let shown = |disk: &Disk| {
        let mut text = format!("{} {}", disk.name.as_deref()?, disk.drive_type?);
        if let Some(address) = disk.iscsi.as_ref().and_then(|iscsi| iscsi.host_ip_address.as_ref()) {
            text += &format!(" from {address}");
        }
        if let Some(holders) = &disk.holders {
            text += &format!(" in {holders}");
        }
        Some(text)
    };
    inventory.disks.iter().flatten().filter(is_one).filter_map(shown).collect()
}

// --- other machines ------------------------------------------------------------------------------------------------

const PINGS: u16 = 10;
const PINGS_APART: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_millis(1500);
/// So many remote addresses are looked at side by side.
const SIDE_BY_SIDE: usize = 8;

/// One remote address as seen over one own interface.
struct Probe<'a> {
    host: usize,
    mac: Option<&'a str>,
    text: &'a str,
    address: IpAddr,
    link: &'a Link,
    mtu: i64,
    id: u16,
}

struct Seen {
    l2: Vec<L2Connectivity>,
    l3: L3Connectivity,
    mtu: MtuReport,
}

fn connectivity(site: &Site, args: &[String]) -> StepResult {
    let others: Vec<ConnectivityCheckHost> = argument(args)?;
    let links = link::links().map_err(os_error)?;
    let mut probes = Vec::new();
    for (host, other) in others.iter().enumerate() {
        for nic in other.nics.iter().flatten() {
            for text in nic.ip_addresses.iter().flatten() {
                // Addresses come with or without the length of their prefix.
                let Ok(address) = text.split('/').next().unwrap_or_default().parse::<IpAddr>() else { continue };
                for link in links.iter().filter(|l| reaches(site, l, address)) {
                    probes.push(Probe {
                        host,
                        mac: nic.mac.as_deref(),
                        text,
                        address,
                        link,
                        mtu: site.root.number(&format!("/sys/class/net/{}/mtu", link.name)).unwrap_or(1500),
                        id: (std::process::id() as u16) ^ (probes.len() as u16).wrapping_mul(257),
                    });
                }
            }
        }
    }
    let mut seen: Vec<Option<std::io::Result<Seen>>> = Vec::new();
    for group in probes.chunks(SIDE_BY_SIDE) {
        std::thread::scope(|scope| {
            let running: Vec<_> = group.iter().map(|p| scope.spawn(|| look(p))).collect();
            seen.extend(running.into_iter().map(|thread| thread.join().ok()));
        });
    }
    let mut remote: Vec<ConnectivityRemoteHost> = others
        .iter()
        .map(|o| ConnectivityRemoteHost {
            host_id: o.host_id,
            l2_connectivity: Some(Vec::new()),
            l3_connectivity: Some(Vec::new()),
            mtu_report: Some(Vec::new()),
        })
        .collect();
    for (probe, seen) in probes.iter().zip(seen) {
        let seen = seen.ok_or((AGENT_FAILURE, "a probe ended early".to_owned()))?.map_err(os_error)?;
        let entry = &mut remote[probe.host];
        entry.l2_connectivity.get_or_insert_default().extend(seen.l2);
        entry.l3_connectivity.get_or_insert_default().push(seen.l3);
        entry.mtu_report.get_or_insert_default().push(seen.mtu);
    }
    json_answer(&ConnectivityReport { remote_hosts: Some(remote) })
}

/// Is that the way to the address: its network, or the interface of the default route?
fn reaches(site: &Site, link: &Link, address: IpAddr) -> bool {
    if link.on_link(address).is_some() {
        return true;
    }
    let elsewhere = !link::links().is_ok_and(|all| all.iter().any(|l| l.on_link(address).is_some()));
    let family = if address.is_ipv4() { 2 } else { 10 };
    elsewhere
        && inventory::take(&site.root, &[]).routes.iter().flatten().any(|r| {
            r.family == Some(family)
                && r.interface.as_deref() == Some(link.name.as_str())
                && r.gateway.is_some()
                && matches!(r.destination.as_deref(), Some("0.0.0.0" | "::"))
        })
}

fn look(probe: &Probe<'_>) -> std::io::Result<Seen> {
    let name = &probe.link.name;
    let mut l2 = Vec::new();
    if let Some(own) = probe.link.on_link(probe.address) {
        // One entry for each machine that answers: two of them are an address collision.
        for mac in link::who_has(probe.link, probe.address, PATIENCE)? {
            let mac = mac.to_string();
            l2.push(L2Connectivity {
                outgoing_nic: Some(name.clone()),
                outgoing_ip_address: Some(own.to_string()),
                remote_ip_address: Some(probe.text.to_owned()),
                successful: Some(probe.mac.is_none_or(|m| m.eq_ignore_ascii_case(&mac))),
                remote_mac: Some(mac),
            });
        }
    }
    let echoes = echo::ping(name, probe.address, probe.id, PINGS, PINGS_APART, PATIENCE)?;
    let mtu = usize::try_from(probe.mtu).unwrap_or(1500);
    let passes = echoes.answered > 0 && echo::passes(name, probe.address, probe.id.wrapping_add(1), mtu, PATIENCE)?;
    Ok(Seen {
        l2,
        l3: L3Connectivity {
            outgoing_nic: Some(name.clone()),
            remote_ip_address: Some(probe.text.to_owned()),
            successful: Some(echoes.answered > 0),
            average_rtt_ms: Some((echoes.mean_ms * 1000.0).round() / 1000.0),
            packet_loss_percentage: Some(echoes.loss_percent()),
        },
        mtu: MtuReport {
            outgoing_nic: Some(name.clone()),
            remote_ip_address: Some(probe.text.to_owned()),
            mtu_successful: Some(passes),
        },
    })
}

/// At most so many free addresses of a network are told.
const FREE_LIMIT: usize = 8000;

fn free_addresses(_: &Site, args: &[String]) -> StepResult {
    let networks: Vec<String> = argument(args)?;
    let links = link::links().map_err(os_error)?;
    let mut answer = Vec::new();
    for text in &networks {
        let network: Ipv4Net =
            text.parse().map_err(|_| (AGENT_FAILURE, format!("{text:?} is not an IPv4 network in CIDR notation")))?;
        let Some(link) = links.iter().find(|l| l.nets.iter().any(|n| network.contains(&n.addr_v4()))) else {
            return Err((AGENT_FAILURE, format!("no interface of this host is in {network}")));
        };
        let targets: Vec<Ipv4Addr> = network.hosts().collect();
        let taken = link::arp(link, &targets, Duration::from_millis(800)).map_err(os_error)?;
        let own: Vec<Ipv4Addr> = links.iter().flat_map(|l| l.nets.iter().map(AddrV4::addr_v4)).collect();
        let free = targets.iter().filter(|t| !taken.contains_key(*t) && !own.contains(t)).take(FREE_LIMIT);
        answer.push(FreeNetworkAddresses {
            network: Some(text.clone()),
            free_addresses: Some(free.map(ToString::to_string).collect()),
        });
    }
    json_answer(&answer)
}

/// The IPv4 address of a network entry; the unspecified one for IPv6, which is in no network.
trait AddrV4 {
    fn addr_v4(&self) -> Ipv4Addr;
}

impl AddrV4 for ipnet::IpNet {
    fn addr_v4(&self) -> Ipv4Addr {
        match self {
            ipnet::IpNet::V4(v4) => v4.addr(),
            ipnet::IpNet::V6(_) => Ipv4Addr::UNSPECIFIED,
        }
    }
}

fn vips(_: &Site, args: &[String]) -> StepResult {
    let vips: Vec<VerifyVip> = argument(args)?;
    let links = link::links().map_err(os_error)?;
    let mut verified = Vec::new();
    for vip in vips {
        let address = vip.vip.as_deref().and_then(|a| a.parse::<IpAddr>().ok());
        let link = address.and_then(|a| links.iter().find(|l| l.on_link(a).is_some()));
        let verification = match (address, link) {
            // A virtual address must be one that nobody has yet, ourselves included.
            (Some(a), Some(link)) => {
                let ours = links.iter().any(|l| l.nets.iter().any(|n| n.addr() == a));
                let taken = ours || !link::who_has(link, a, Duration::from_millis(900)).map_err(os_error)?.is_empty();
                if taken { VipVerification::Failed } else { VipVerification::Succeeded }
            }
            _ => VipVerification::Unverified,
        };
        verified.push(VerifiedVip { vip: vip.vip, vip_type: vip.vip_type, verification: Some(verification) });
    }
    json_answer(&verified)
}

fn dhcp_leases(_: &Site, args: &[String]) -> StepResult {
    let request: DhcpAllocationRequest = argument(args)?;
    let why = "lab machines cannot ask a DHCP server for addresses of virtual IPs yet";
    Err((
        AGENT_FAILURE,
        format!("{why} (interface {:?}); give the cluster its api_vips and ingress_vips", request.interface),
    ))
}

// --- names, clocks, servers ----------------------------------------------------------------------------------------

fn domains(site: &Site, args: &[String]) -> StepResult {
    #[derive(serde::Deserialize)]
    struct Domain {
        domain_name: String,
    }
    #[derive(serde::Deserialize)]
    struct Request {
        domains: Vec<Domain>,
    }
    let request: Request = argument(args)?;
    let resolver = dns::Resolver::of(&site.root);
    let resolutions = request.domains.into_iter().map(|domain| {
        // A name server that does not answer is, for the service, a name without addresses.
        let found = resolver.lookup(&domain.domain_name).unwrap_or_else(|e| {
            say::note("agent", &format!("domain-resolution {}: {e}", domain.domain_name));
            dns::DnsAnswer::default()
        });
        let family = |v4: bool| found.addresses.iter().filter(|a| a.is_ipv4() == v4).map(ToString::to_string).collect();
        DomainResolutionResponseResolutions {
            ipv4_addresses: Some(family(true)),
            ipv6_addresses: Some(family(false)),
            cnames: found.canonical.clone().map(|c| vec![c]),
            domain_name: domain.domain_name,
        }
    });
    json_answer(&DomainResolutionResponse { resolutions: resolutions.collect() })
}

fn clocks(site: &Site, args: &[String]) -> StepResult {
    let request: NtpSynchronizationRequest = argument(args)?;
    let named: Vec<&str> = request.ntp_source.split(',').map(str::trim).filter(|n| !n.is_empty()).collect();
    let sources = ntp::ask_chrony(&site.config.program("chronyc"), &named).unwrap_or_else(|| {
        let resolver = dns::Resolver::of(&site.root);
        let asked: Vec<_> = named.iter().map(|n| (*n, ntp::ask(&resolver, n))).collect();
        ntp::states(&asked)
    });
    json_answer(&NtpSynchronizationResponse { ntp_sources: Some(sources) })
}

fn api_vip(site: &Site, args: &[String]) -> StepResult {
    let request: ApiVipConnectivityRequest = argument(args)?;
    let mut headers = vec![("accept", "application/vnd.coreos.ignition+json;version=3.2.0")];
    let bearer = request.ignition_endpoint_token.as_deref().filter(|t| !t.is_empty()).map(|t| format!("Bearer {t}"));
    headers.extend(bearer.as_deref().map(|b| ("authorization", b)));
    let more = request.request_headers.iter().flatten();
    headers.extend(more.filter_map(|h| Some((h.key.as_deref()?, h.value.as_deref()?))));
    let ca = request.ca_certificate.as_deref().filter(|c| !c.is_empty()).map(|text| {
        use base64::Engine as _;
        // It comes as base64 of PEM.
        let decoded = base64::engine::general_purpose::STANDARD.decode(text.trim()).ok();
        decoded.and_then(|d| String::from_utf8(d).ok()).unwrap_or_else(|| text.to_owned())
    });
    let credentials = Credentials { ca, own: None };
    let asked = http::send(
        HttpQuestion { headers: &headers, ..HttpQuestion::get(&request.url) },
        &credentials,
        Duration::from_secs(20),
    );
    let (ignition, problem) = match site.runtime.block_on(asked) {
        Ok(answer) if !answer.is_success() => (None, Some(format!("{} answers {}", request.url, answer.status))),
        Ok(answer) => match serde_json::from_slice::<serde_json::Value>(&answer.body) {
            Ok(value) if value.get("ignition").is_some() => (Some(answer.text()), None),
            _ => (None, Some(format!("{} answered with something that is not an Ignition config", request.url))),
        },
        Err(e) => (None, Some(e.to_string())),
    };
    // The step itself succeeds also when the download did not.
    json_answer(&ApiVipConnectivityResponse {
        is_success: Some(problem.is_none()),
        url: Some(request.url.clone()),
        ignition,
        download_error: problem,
    })
}

fn tang(site: &Site, args: &[String]) -> StepResult {
    #[derive(serde::Deserialize)]
    struct Server {
        url: String,
    }
    let request: TangConnectivityRequest = argument(args)?;
    let servers: Vec<Server> = serde_json::from_str(&request.tang_servers)
        .map_err(|e| (AGENT_FAILURE, format!("the list of servers cannot be read: {e}")))?;
    let mut answers = Vec::new();
    for server in servers {
        let url = format!("{}/adv", server.url.trim_end_matches('/'));
        let nobody = Credentials::default();
        let asked = http::get(&url, &nobody, Duration::from_secs(10));
        let answer = site.runtime.block_on(asked).map_err(|e| (1, e.to_string()))?;
        let problem = |what: &str| (1, format!("{url}: {what}"));
        if !answer.is_success() {
            return Err(problem(&format!("the answer is {}", answer.status)));
        }
        let value: TangConnectivityResponseTangServerResponse =
            serde_json::from_slice(&answer.body).map_err(|e| problem(&format!("no advertisement: {e}")))?;
        answers.push(TangConnectivityResponseTangServerResponse { tang_url: Some(server.url), ..value });
    }
    json_answer(&TangConnectivityResponse { is_success: Some(true), tang_server_response: Some(answers) })
}

// --- disk, images --------------------------------------------------------------------------------------------------

/// The writes of the measurement: so big, so many at most, and no longer than so.
const WRITE: usize = 2300;
const WRITES: usize = 400;
const WRITING: Duration = Duration::from_secs(3);

fn disk_speed(site: &Site, args: &[String]) -> StepResult {
    let request: DiskSpeedCheckRequest = argument(args)?;
    let path = site.root.path(&request.path);
    let answer = |ms: i64| DiskSpeedCheckResponse { io_sync_duration: Some(ms), path: Some(request.path.clone()) };
    match sync_latency(&path) {
        Ok((duration, count)) => {
            say::note(
                "agent",
                &format!("disk speed of {}: 99th percentile of {count} synced writes {duration:?}", request.path),
            );
            // Whole milliseconds: what is faster than one is shown as one, since 0 reads as "not measured".
            json_answer(&answer(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).max(1)))
        }
        Err(e) => {
            let mut ran = json_answer(&answer(0))?;
            ran.answer.exit_code = 1;
            ran.answer.error = format!("cannot measure {}: {e}", request.path);
            Ok(ran)
        }
    }
}

/// The 99th percentile of how long small writes take until they are on the disk. What was there is read first and written back, so
/// nothing on the disk changes.
fn sync_latency(path: &std::path::Path) -> std::io::Result<(Duration, usize)> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut times = Vec::new();
    let (began, mut at) = (Instant::now(), 1u64 << 20);
    let mut block = [0u8; WRITE];
    while times.len() < WRITES && began.elapsed() < WRITING {
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut block)?;
        file.seek(SeekFrom::Start(at))?;
        let start = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        times.push(start.elapsed());
        at += WRITE as u64;
    }
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    let percentile = times.get(last.min(times.len() * 99 / 100)).copied();
    percentile.map(|p| (p, times.len())).ok_or_else(|| std::io::Error::other("no write was done"))
}

/// Nothing is pulled on a lab machine: every image stands for programs that are there. Size and time are therefore 0, which is
/// how an image that was there already looks.
fn images(_: &Site, args: &[String]) -> StepResult {
    let request: ContainerImageAvailabilityRequest = argument(args)?;
    say::note(
        "agent",
        &format!("container-image-availability: nothing is pulled, {} images are declared there", request.images.len()),
    );
    let images = request.images.into_iter().map(|image| ContainerImageAvailability {
        name: Some(image),
        result: Some("success".into()),
        size_bytes: Some(0.0),
        time: Some(0.0),
        download_rate: Some(0.0),
    });
    json_answer(&ContainerImageAvailabilityResponse { images: images.collect() })
}

fn upgrade_agent(_: &Site, args: &[String]) -> StepResult {
    let request: UpgradeAgentRequest = argument(args)?;
    say::note("agent", "upgrade-agent: the program stays the same, only the version that it calls itself changes");
    json_answer(&UpgradeAgentResponse { agent_image: request.agent_image, result: Some("success".into()) })
}

// --- installation --------------------------------------------------------------------------------------------------

/// Name of the installer's container; while there is one, no other is started.
pub const INSTALLER_CONTAINER: &str = "assisted-installer";

/// The installer's command line for that request, as agents make it.
pub fn installer_args(request: &InstallCmdRequest, service: &str, agent_image: &str) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    let mut add = |name: &str, value: &str| args.extend([name.to_owned(), value.to_owned()]);
    add("--role", request.role.as_str());
    add("--infra-env-id", &request.infra_env_id.to_string());
    add("--cluster-id", &request.cluster_id.to_string());
    add("--host-id", &request.host_id.to_string());
    add("--boot-device", &request.boot_device);
    add("--url", service);
    add("--controller-image", &request.controller_image);
    add("--agent-image", agent_image);
    if let Some(count) = request.control_plane_count.filter(|c| *c != 0) {
        add("--control-plane-count", &count.to_string());
    }
    let texts = [
        ("--mco-image", &request.mco_image),
        ("--must-gather-image", &request.must_gather_image),
        ("--openshift-version", &request.openshift_version),
        ("--installer-args", &request.installer_args),
        ("--coreos-image", &request.coreos_image),
    ];
    for (name, value) in texts {
        if let Some(value) = value.as_deref().filter(|v| !v.is_empty()) {
            add(name, value);
        }
    }
    for disk in request.disks_to_format.iter().flatten() {
        add("--format-disk", disk);
    }
    if let Some(proxy) = &request.proxy {
        let proxies = [
            ("--http-proxy", &proxy.http_proxy),
            ("--https-proxy", &proxy.https_proxy),
            ("--no-proxy", &proxy.no_proxy),
        ];
        for (name, value) in proxies {
            if let Some(value) = value.as_deref().filter(|v| !v.is_empty()) {
                add(name, value);
            }
        }
    }
    if let Some(ips) = request.service_ips.as_ref().filter(|i| !i.is_empty()) {
        add("--service-ips", &ips.join(","));
    }
    let switches = [
        ("--check-cluster-version", request.check_cvo),
        ("--skip-installation-disk-cleanup", request.skip_installation_disk_cleanup),
        ("--enable-skip-mco-reboot", request.enable_skip_mco_reboot),
        ("--notify-num-reboots", request.notify_num_reboots),
    ];
    args.extend(switches.iter().filter(|(_, on)| *on == Some(true)).map(|(name, _)| (*name).to_owned()));
    args
}

fn install(site: &Site, args: &[String]) -> StepResult {
    let request: InstallCmdRequest = argument(args)?;
    for disk in std::iter::once(&request.boot_device).chain(request.disks_to_format.iter().flatten()) {
        if !site.root.has(disk) {
            return Err((AGENT_FAILURE, format!("there is no disk {disk}")));
        }
    }
    let own = std::env::current_exe().map_err(os_error)?;
    let podman = site.config.programs.get("podman").cloned();
    let mut command = match podman {
        Some(podman) => Command::new(podman),
        None => {
            let mut command = Command::new(own);
            // Under its own name: on a discovery image this file is called `agent`.
            command.arg0("vlab-node").arg("podman");
            command
        }
    };
    command.arg("run");
    // The lab's own installer goes on by itself. For a given one the step is answered when it ends, as the real agent does it.
    if site.config.installer.is_none() {
        command.arg("--detach");
    }
    command
        .args(["--privileged", "--pid=host", "--net=host"])
        .arg(format!("--name={INSTALLER_CONTAINER}"))
        .arg(&request.installer_image)
        .arg("installer")
        .args(installer_args(&request, &site.service, &site.agent_version))
        .stdin(Stdio::null());
    let output = command.output().map_err(|e| (AGENT_FAILURE, format!("cannot start the installer: {e}")))?;
    let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.code() {
        Some(0) => Ok(Ran::default()),
        code => Err((code.map_or(AGENT_FAILURE, i64::from), error)),
    }
}

fn stop_installation(_: &Site, _: &[String]) -> StepResult {
    crate::podman::stop(INSTALLER_CONTAINER, crate::podman::PATIENCE).map_err(os_error)?;
    Ok(Ran::default())
}

/// Commands whose output goes into the logs: name of the file, program, arguments.
const LOG_COMMANDS: &[(&str, &str, &[&str])] = &[
    ("journal.log", "journalctl", &["--no-pager", "--boot", "--output=short-monotonic"]),
    ("dmesg.log", "dmesg", &[]),
    ("units.txt", "systemctl", &["--no-pager", "list-units", "--all"]),
    ("addresses.txt", "ip", &["address"]),
    ("routes.txt", "ip", &["route"]),
    ("disks.txt", "lsblk", &[]),
];

/// An archive of what the machine has to say. What a machine has no program for is in it as a line that says so.
pub fn collect_logs(site: &Site) -> Vec<u8> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for (name, program, args) in LOG_COMMANDS {
        let text = match Command::new(program).args(*args).stdin(Stdio::null()).output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(e) => format!("{program}: {e}\n"),
        };
        files.insert((*name).to_owned(), text);
    }
    if let Ok(inventory) = inventory_of(site) {
        files.insert("inventory.json".into(), serde_json::to_string_pretty(&inventory).unwrap_or_default());
    }
    for name in site.root.names(LOG_FOLDER) {
        if let Some(text) = site.root.text(&format!("{LOG_FOLDER}/{name}")) {
            files.insert(format!("vlab/{name}"), text);
        }
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
    tar_gz(&files)
}

/// Where programs of the lab that run in the background write.
pub const LOG_FOLDER: &str = "/var/log/vlab";

fn gather_logs(site: &Site, args: &[String]) -> StepResult {
    let _: LogsGatherCmdRequest = argument(args)?;
    Ok(Ran { answer: StepAnswer::default(), archive: collect_logs(site) })
}

fn boot_artifacts(_: &Site, args: &[String]) -> StepResult {
    let request: DownloadBootArtifactsRequest = argument(args)?;
    let why = "lab machines cannot boot a downloaded discovery image from their disk yet";
    Err((AGENT_FAILURE, format!("{why} ({})", request.kernel_url)))
}

fn reboot_for_reclaim(_: &Site, args: &[String]) -> StepResult {
    // The reboot follows the answer: the core asks for it.
    let _: RebootForReclaimRequest = argument(args)?;
    Ok(Ran::default())
}

#[cfg(test)]
mod tests;
