//! The installer on a host: the script of its role (`vlab_agents::installer`) with real hands. It lays out the bootstrap's files,
//! starts bootkube, lets coreos-installer write the disk with the host's own ignition, sends logs, reboots.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use uuid::Uuid;
use vlab_agents::installer::{File, Job};
use vlab_agents::{ClusterPlan, DnsView, Fleet, FleetConfig, Hands, HostPlan, Work};
use vlab_api::Timestamp;
use vlab_api::ops;
use vlab_api::types::{Cluster, Host, HostRole, InstallCmdRequest};
use vlab_client::Client;

use crate::agent::reboot;
use crate::cluster::watch;
use crate::machine::{NodeConfig, Root, config_path};
use crate::offer;
use crate::shell::{Event, Events, Shell, drive, find_service, in_background, steady_now};
use crate::steps::{self, Site};
use crate::{bootstrap, ignition, image_writer, inventory, machine, say};

mod clean;
mod standstill;

pub use clean::say_where_this_is;

/// Command line of the installer: that of the real one.
#[derive(Clone, Debug, clap::Args)]
pub struct InstallArgs {
    /// `bootstrap`, `master`, `arbiter` or `worker`
    #[arg(long)]
    pub role: String,
    /// Infra-env of the host
    #[arg(long)]
    pub infra_env_id: Uuid,
    /// Cluster that is installed
    #[arg(long)]
    pub cluster_id: Uuid,
    /// This host
    #[arg(long)]
    pub host_id: Uuid,
    /// Disk to install on
    #[arg(long)]
    pub boot_device: String,
    /// URL of the service
    #[arg(long)]
    pub url: String,
    /// Version to install
    #[arg(long, default_value = "")]
    pub openshift_version: String,
    /// Image of the controller
    #[arg(long, default_value = "")]
    pub controller_image: String,
    /// Image of the agent
    #[arg(long, default_value = "")]
    pub agent_image: String,
    /// Image of the machine-config operator
    #[arg(long)]
    pub mco_image: Option<String>,
    /// Image that gathers
    #[arg(long)]
    pub must_gather_image: Option<String>,
    /// Image of the operating system
    #[arg(long)]
    pub coreos_image: Option<String>,
    /// Hosts of the control plane
    #[arg(long, default_value_t = 3)]
    pub control_plane_count: i64,
    /// Arguments for coreos-installer, a JSON list
    #[arg(long)]
    pub installer_args: Option<String>,
    /// Disks of which the beginning is cleared
    #[arg(long)]
    pub format_disk: Vec<String>,
    /// Do not verify the service's certificate
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub insecure: Option<bool>,
    /// File with further certificates to believe
    #[arg(long)]
    pub cacert: Option<String>,
    /// Proxies, as the service hands them out
    #[arg(long)]
    pub http_proxy: Option<String>,
    /// Likewise
    #[arg(long)]
    pub https_proxy: Option<String>,
    /// Likewise
    #[arg(long)]
    pub no_proxy: Option<String>,
    /// Addresses of the service, with commas between
    #[arg(long)]
    pub service_ips: Option<String>,
    /// Wait for the cluster version operator, too
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub check_cluster_version: Option<bool>,
    /// Leave what is on the installation disk
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub skip_installation_disk_cleanup: Option<bool>,
    /// Save a reboot
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub enable_skip_mco_reboot: Option<bool>,
    /// Tell the service how often the node rebooted
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub notify_num_reboots: Option<bool>,
}

impl InstallArgs {
    fn request(&self) -> Result<InstallCmdRequest, String> {
        let roles = [HostRole::Bootstrap, HostRole::Master, HostRole::Arbiter, HostRole::Worker];
        let role = roles.into_iter().find(|r| r.as_str() == self.role);
        Ok(InstallCmdRequest {
            cluster_id: self.cluster_id,
            infra_env_id: self.infra_env_id,
            host_id: self.host_id,
            role: role.ok_or_else(|| format!("--role {}: expected bootstrap, master, arbiter or worker", self.role))?,
            boot_device: self.boot_device.clone(),
            controller_image: self.controller_image.clone(),
            installer_image: String::new(),
            control_plane_count: Some(self.control_plane_count),
            proxy: None,
            check_cvo: self.check_cluster_version,
            disks_to_format: Some(self.format_disk.clone()),
            must_gather_image: self.must_gather_image.clone(),
            mco_image: self.mco_image.clone(),
            openshift_version: Some(self.openshift_version.clone()),
            service_ips: None,
            installer_args: self.installer_args.clone(),
            skip_installation_disk_cleanup: self.skip_installation_disk_cleanup,
            enable_skip_mco_reboot: self.enable_skip_mco_reboot,
            notify_num_reboots: self.notify_num_reboots,
            coreos_image: self.coreos_image.clone(),
        })
    }
}

/// Where the bootstrap's files lie.
pub const ASSETS: &str = "/opt/openshift";
/// Where the host's ignition is put together.
const INSTALL_FOLDER: &str = "/opt/install-dir";
/// Tells bootkube, and through it the controller, about the service.
pub const SERVICE_FILE: &str = "/opt/openshift/vlab-service.json";

/// On the installed system of the host that was the bootstrap.
pub const WAS_BOOTSTRAP: &str = "/etc/vlab/was-bootstrap";

/// What the jobs need, shared between their threads.
struct Hand {
    root: Root,
    config: NodeConfig,
    request: InstallCmdRequest,
    url: String,
    /// `<name>.<base domain>`, and the cluster's virtual addresses.
    domain: String,
    api_vips: Vec<String>,
    ingress_vips: Vec<String>,
    files: Mutex<BTreeMap<&'static str, Vec<u8>>>,
    runtime: tokio::runtime::Handle,
}

/// Runs the installer until the machine reboots or it failed.
///
/// # Errors
/// Words for people.
pub async fn install(args: InstallArgs) -> Result<(), String> {
    let config = NodeConfig::load().map_err(|e| e.to_string())?;
    let request = args.request()?;
    let service = find_service("installer", &args.url).await.map_err(|e| e.to_string())?;
    let client = Client::new(service.clone(), Duration::from_secs(30));
    let cluster = cluster_of(&client, args.cluster_id).await;
    let mut fleet_config = FleetConfig::new(config.seed, config.timing.clone(), args.agent_image.as_str());
    fleet_config.hands = Hands::Real;
    fleet_config.secret_key = std::env::var("PULL_SECRET_TOKEN").unwrap_or_default().into();
    let hosts = cluster.hosts.clone().unwrap_or_default();
    let plans = plans(&hosts, args.host_id, args.infra_env_id);
    let mut fleet = Fleet::new(fleet_config, vec![plan(&cluster, args.control_plane_count)], plans);
    fleet.install(steady_now(), 0, &request)?;
    say::moment(
        "installer",
        "started",
        &json!({ "role": args.role, "host_id": args.host_id, "disk": args.boot_device }),
    );

    let (events, incoming) = mpsc::unbounded_channel();
    if request.role == HostRole::Bootstrap {
        let order: Vec<Host> = ordered(&hosts, args.host_id);
        let root = Root::of_this_machine();
        tokio::spawn(watch::for_installer(root, order, config.timing.installer_poll, events.clone()));
    }
    let hand = Arc::new(Hand {
        root: Root::of_this_machine(),
        config: config.clone(),
        request,
        url: args.url,
        domain: format!(
            "{}.{}",
            cluster.name.clone().unwrap_or_default(),
            cluster.base_dns_domain.clone().unwrap_or_default()
        ),
        api_vips: cluster.api_vips.iter().flatten().filter_map(|v| v.ip.clone()).collect(),
        ingress_vips: cluster.ingress_vips.iter().flatten().filter_map(|v| v.ip.clone()).collect(),
        files: Mutex::default(),
        runtime: tokio::runtime::Handle::current(),
    });
    // A word of the history, which has no blanks.
    if let Some(identity) = hand.identity() {
        say::moment("installer", &format!("installing-to:{}", identity.replace(' ', "-")), &json!({}));
    }
    end_when_told(&events)?;
    let request_timeout = config.timing.request_timeout;
    let stop = events.clone();
    let work = move |position: usize, work: Work, events: &Events| match work {
        Work::Got(file, bytes) => {
            let name = match file {
                File::BootstrapIgnition => "bootstrap.ign",
                File::HostIgnition => "host.ign",
            };
            hand.files.lock().unwrap_or_else(PoisonError::into_inner).insert(name, bytes);
        }
        Work::Job { token, job } => {
            let (hand, progress) = (Arc::clone(&hand), events.clone());
            in_background(events, move || {
                let told = move |percent| {
                    say::moment("installer", "image-written", &json!({ "percent": percent }));
                    let _ = progress.send(Event::Progress(position, token, percent));
                };
                Event::Done(position, token, hand.job(job, &told))
            });
        }
        Work::Reboot => {
            reboot(&hand.config, "installer");
            let _ = stop.send(Event::Stop);
        }
        Work::Failed(problem) => say::moment("installer", "failed", &json!({ "problem": problem })),
        Work::Step { .. } => {}
    };
    drive(Shell { part: "installer", service, events, incoming, request_timeout }, fleet, work).await;
    Ok(())
}

/// Who ends the installer with SIGHUP sees it fail, as one does whose container exits with an error. (SIGTERM and SIGKILL are
/// those of podman, which stops it without a word.)
fn end_when_told(events: &Events) -> Result<(), String> {
    let mut told = signal(SignalKind::hangup()).map_err(|e| format!("SIGHUP: {e}"))?;
    let events = events.clone();
    tokio::spawn(async move {
        if told.recv().await.is_some() {
            let _ = events.send(Event::End(0, "the installer was ended by SIGHUP"));
        }
    });
    Ok(())
}

/// The cluster with its hosts; asked again until the service answers.
async fn cluster_of(client: &Client, id: Uuid) -> Cluster {
    loop {
        match client.call(ops::get_cluster(id)).await {
            Ok(cluster) => return cluster,
            Err(e) => say::note("installer", &format!("cannot read cluster {id}: {e}; trying again")),
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

/// The hosts of a cluster with this one first.
pub fn ordered(hosts: &[Host], own: Uuid) -> Vec<Host> {
    let (mine, others): (Vec<Host>, Vec<Host>) = hosts.iter().cloned().partition(|h| h.id == own);
    mine.into_iter().chain(others).collect()
}

/// A time that never comes: other hosts are known, but do nothing in this program.
pub const NEVER: i64 = 4_000_000_000;

fn plans(hosts: &[Host], own: Uuid, infra_env: Uuid) -> Vec<HostPlan> {
    let never = Timestamp::from_secs(NEVER);
    let others = hosts.iter().filter(|h| h.id != own).map(|h| (h.id, h.infra_env_id.unwrap_or(infra_env)));
    std::iter::once((own, infra_env))
        .chain(others)
        .zip(0u32..)
        .map(|((id, infra_env), index)| HostPlan::real(index, id.to_string(), id, infra_env, never))
        .collect()
}

/// What the core is told of the cluster.
pub fn plan(cluster: &Cluster, control_plane_count: i64) -> ClusterPlan {
    ClusterPlan {
        cluster_id: cluster.id,
        name: cluster.name.clone().unwrap_or_default(),
        base_domain: cluster.base_dns_domain.clone().unwrap_or_default(),
        control_plane_count: u32::try_from(control_plane_count).unwrap_or(3),
        api_vips: Vec::new(),
        ingress_vips: Vec::new(),
        dns: DnsView::default(),
    }
}

impl Hand {
    fn job(&self, job: Job, told: &dyn Fn(u32)) -> Result<Vec<u8>, String> {
        say::moment("installer", &format!("job-{}", words(job)), &json!({}));
        match job {
            Job::CleanDisks => self.clean_disks(),
            Job::PrepareBootstrap => self.prepare_bootstrap(),
            Job::StartBootkube => self.start_bootkube(),
            Job::PrepareIgnition => self.prepare_ignition(),
            Job::WriteImage => self.write_image(told),
            Job::BeforeReboot => {
                self.set_boot_order();
                Ok(Vec::new())
            }
            Job::GatherLogs => {
                let site = Site {
                    root: self.root.clone(),
                    config: self.config.clone(),
                    service: self.url.clone(),
                    agent_version: String::new(),
                    runtime: self.runtime.clone(),
                };
                Ok(steps::collect_logs(&site))
            }
        }
    }

    fn got(&self, name: &'static str) -> Result<Vec<u8>, String> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(name).cloned().ok_or_else(|| format!("{name} was not downloaded"))
    }

    /// The first 512 bytes of each disk to format are zeroed, and the installation disk is cleaned. What fails is only noted, as in
    /// the real installer.
    fn clean_disks(&self) -> Result<Vec<u8>, String> {
        for disk in self.request.disks_to_format.iter().flatten() {
            if let Err(e) = clean::format(&self.root.path(disk)) {
                say::note("installer", &format!("cannot format {disk}: {e}"));
            }
        }
        if self.request.skip_installation_disk_cleanup != Some(true) {
            let disk = self.installation_disk();
            let done = clean::clean(&self.config, &disk);
            let word = if done.problems.is_empty() { "disk-cleaned" } else { "disk-not-cleaned" };
            let details = json!({
                "disk": disk, "volume groups": done.groups, "volumes": done.volumes, "mapped": done.mapped,
                "arrays": done.arrays, "problems": done.problems,
            });
            say::moment("installer", word, &details);
        }
        Ok(Vec::new())
    }

    /// The device of the installation disk, whichever of its names the service gave.
    fn installation_disk(&self) -> String {
        let path = self.root.path(&self.request.boot_device);
        fs::canonicalize(&path).unwrap_or(path).display().to_string()
    }

    /// What tells the installation disk from others.
    fn identity(&self) -> Option<String> {
        let device = self.installation_disk();
        inventory::identity(&self.root, device.rsplit('/').next()?)
    }

    /// Whether the firmware takes it or not, the installation goes on.
    fn set_boot_order(&self) {
        match clean::boot_from(&self.config, &self.root, &self.installation_disk()) {
            None => say::note("installer", "a BIOS has no boot order that could be set"),
            Some(Ok(shown)) => {
                let lines: Vec<&str> = shown.lines().map(|line| line.split('\t').next().unwrap_or_default()).collect();
                say::moment("installer", "boot-order-set", &json!({ "firmware": lines }));
            }
            Some(Err(problem)) => say::moment("installer", "boot-order-not-set", &json!({ "problem": problem })),
        }
    }

    fn prepare_bootstrap(&self) -> Result<Vec<u8>, String> {
        let config = self.got("bootstrap.ign")?;
        bootstrap::lay_out(&config, &self.root).map_err(|e| format!("bootstrap.ign: {e}"))?;
        let service = json!({
            "url": self.url, "cluster_id": self.request.cluster_id, "infra_env_id": self.request.infra_env_id,
            "host_id": self.request.host_id, "control_plane_count": self.request.control_plane_count,
            "openshift_version": self.request.openshift_version, "domain": self.domain,
            "api_vips": self.api_vips, "ingress_vips": self.ingress_vips,
            "token": std::env::var("PULL_SECRET_TOKEN").unwrap_or_default(), "users": ignition::users(&config),
        });
        let path = self.root.path(SERVICE_FILE);
        fs::create_dir_all(self.root.path(ASSETS)).map_err(|e| format!("{ASSETS}: {e}"))?;
        fs::write(&path, service.to_string()).map_err(|e| format!("{SERVICE_FILE}: {e}"))?;
        Ok(Vec::new())
    }

    fn start_bootkube(&self) -> Result<Vec<u8>, String> {
        let systemctl = self.config.program("systemctl");
        for args in [&["daemon-reload"][..], &["start", "--no-block", "bootkube.service"]] {
            let status = Command::new(&systemctl).args(args).stdin(Stdio::null()).status();
            match status {
                Ok(status) if status.success() => {}
                Ok(status) => return Err(format!("systemctl {}: {status}", args.join(" "))),
                Err(e) => return Err(format!("{}: {e}", systemctl.display())),
            }
        }
        Ok(Vec::new())
    }

    fn host_ignition_path(&self) -> String {
        let role = if self.request.role == HostRole::Bootstrap { "master" } else { self.request.role.as_str() };
        format!("{INSTALL_FOLDER}/{role}-{}.ign", self.request.host_id)
    }

    /// The host's own config as the service gave it; that of a single node, which was its own bootstrap, has what that left for it on
    /// top. The lab's configuration goes along, so that the installed system has it.
    fn prepare_ignition(&self) -> Result<Vec<u8>, String> {
        let mut config = self.got("host.ign")?;
        if self.request.control_plane_count == Some(1) && self.request.role == HostRole::Bootstrap {
            let own = format!("{ASSETS}/master.ign");
            let bytes = fs::read(self.root.path(&own)).map_err(|e| format!("{own}: {e}"))?;
            config = match ignition::layout(&config) {
                Ok(_) => ignition::put_all(&config, &bytes).map_err(|e| format!("{own}: {e}"))?,
                Err(problem) => {
                    say::note(
                        "installer",
                        &format!("the host's ignition: {problem}; only that of the bootstrap is used"),
                    );
                    bytes
                }
            };
        }
        if let Ok(own) = fs::read(config_path()) {
            say::note("installer", &format!("{} goes into the host's ignition", machine::CONFIG_FILE));
            let entry = ignition::file(machine::CONFIG_FILE, 0o644, &own);
            config = ignition::put(&config, vec![entry], vec![]).map_err(|e| format!("the host's ignition: {e}"))?;
        }
        ignition::layout(&config).map_err(|e| format!("the host's ignition: {e}"))?;
        if let Some(identity) = self.identity() {
            let entry = ignition::file(clean::INSTALLED_TO, 0o644, identity.as_bytes());
            config = ignition::put(&config, vec![entry], vec![]).map_err(|e| format!("the host's ignition: {e}"))?;
        }
        if self.request.role == HostRole::Bootstrap {
            let entry = ignition::file(WAS_BOOTSTRAP, 0o644, b"");
            config = ignition::put(&config, vec![entry], vec![]).map_err(|e| format!("the host's ignition: {e}"))?;
        }
        let path = self.host_ignition_path();
        fs::create_dir_all(self.root.path(INSTALL_FOLDER)).map_err(|e| format!("{INSTALL_FOLDER}: {e}"))?;
        fs::write(self.root.path(&path), config).map_err(|e| format!("{path}: {e}"))?;
        Ok(Vec::new())
    }

    fn coreos_installer_args(&self) -> Result<Vec<String>, String> {
        let text = self.request.installer_args.as_deref().filter(|t| !t.is_empty()).unwrap_or("[]");
        let asked: Vec<String> = serde_json::from_str(text).map_err(|e| format!("--installer-args {text}: {e}"))?;
        let ignition = self.root.path(&self.host_ignition_path()).display().to_string();
        let mut args: Vec<String> = ["install", "--insecure", "-i"].map(str::to_owned).to_vec();
        args.push(ignition);
        args.extend(image_writer::image_args(&self.config));
        args.extend(self.config.coreos_installer_args.iter().cloned());
        args.extend(asked);
        args.push(self.root.path(&self.request.boot_device).display().to_string());
        Ok(args)
    }

    /// Waits for the disk image of the live system, unless another one is to be written.
    fn wait_for_image(&self, args: &[String]) -> Result<(), String> {
        if image_writer::names_image(args) {
            return Ok(());
        }
        image_writer::wait_for_offer(&self.root, &self.config)
    }

    fn write_image(&self, told: &dyn Fn(u32)) -> Result<Vec<u8>, String> {
        const TRIES: u32 = 3;
        let args = self.coreos_installer_args()?;
        self.wait_for_image(&args)?;
        // It waits for udev, two minutes at most, and udev could wait so far.
        offer::raise(&self.root, "systemd-udevd.service");
        let mut problem = String::new();
        for tried in 1..=TRIES {
            match self.write_once(&args, told) {
                Ok(()) => {
                    say::moment(
                        "installer",
                        "disk-written",
                        &json!({ "disk": self.request.boot_device, "tries": tried }),
                    );
                    return Ok(Vec::new());
                }
                Err(e) => {
                    say::note("installer", &format!("try {tried} of {TRIES}: {e}"));
                    problem = e;
                    std::thread::sleep(Duration::from_secs(1));
                }
            }
        }
        Err(format!("failed to write the image to {}: {problem}", self.request.boot_device))
    }

    fn write_once(&self, args: &[String], told: &dyn Fn(u32)) -> Result<(), String> {
        let program = self.config.program("coreos-installer");
        let mut child = Command::new(&program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{}: {e}", program.display()))?;
        let mut progress = Progress::new(self.config.timing.write_image_report_step);
        let stderr = child.stderr.take().ok_or("the writer has no standard error")?;
        let (writer, last) = (child.id(), Cell::new(0));
        let heard = |text: &str| {
            for percent in progress.read(text) {
                last.set(percent);
                told(percent);
            }
        };
        let silent = |looks| standstill::tell(&self.root, writer, &self.request.boot_device, last.get(), looks);
        if let Err(e) = standstill::read(stderr, standstill::LOOK, heard, silent) {
            say::note("installer", &format!("what coreos-installer says cannot be read: {e}"));
        }
        let status = child.wait().map_err(|e| e.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("coreos-installer: {status}: {}", progress.last_words())) }
    }
}

fn words(job: Job) -> &'static str {
    match job {
        Job::CleanDisks => "clean-disks",
        Job::PrepareBootstrap => "prepare-bootstrap",
        Job::StartBootkube => "start-bootkube",
        Job::PrepareIgnition => "prepare-ignition",
        Job::WriteImage => "write-image",
        Job::BeforeReboot => "before-reboot",
        Job::GatherLogs => "gather-logs",
    }
}

/// Reads percentages out of what coreos-installer writes while it works: lines, ended by a carriage return, with `(42%)`.
#[derive(Debug)]
pub struct Progress {
    step: u32,
    told: u32,
    rest: String,
    lines: Vec<String>,
}

impl Progress {
    /// Percentages that have grown by `step` points at least are told.
    pub fn new(step: i64) -> Self {
        Self { step: u32::try_from(step).unwrap_or(5).clamp(1, 100), told: 0, rest: String::new(), lines: Vec::new() }
    }

    /// More output; the percentages that are to be told.
    pub fn read(&mut self, text: &str) -> Vec<u32> {
        self.rest.push_str(text);
        let mut told = Vec::new();
        while let Some(at) = self.rest.find(['\r', '\n']) {
            let line: String = self.rest.drain(..=at).collect();
            match percentage(&line) {
                Some(percent) if percent >= self.told + self.step => {
                    self.told = percent;
                    told.push(percent);
                }
                Some(_) => {}
                None if line.trim().is_empty() => {}
                None => {
                    self.lines.push(line.trim().to_owned());
                    if self.lines.len() > 5 {
                        self.lines.remove(0);
                    }
                }
            }
        }
        told
    }

    /// The last lines that were no percentages.
    pub fn last_words(&self) -> String {
        let rest = Some(self.rest.trim()).filter(|r| !r.is_empty());
        self.lines.iter().map(String::as_str).chain(rest).collect::<Vec<_>>().join("; ")
    }
}

fn percentage(line: &str) -> Option<u32> {
    let (before, _) = line.split_once("%)")?;
    let (_, digits) = before.rsplit_once('(')?;
    digits.trim().parse().ok().filter(|p| *p <= 100)
}

/// What the installer told bootkube about the service.
pub fn read_service(root: &Root) -> Option<Value> {
    serde_json::from_str(&root.text(SERVICE_FILE)?).ok()
}

#[cfg(test)]
mod tests;
