//! From a scenario and what the user chose beside it to everything that a run needs to know, before anything is started.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vlab_agents::HardwareProfile;
use vlab_agents::profile::ProfileError;
use vlab_api::types::{ClusterStatus, HostRole};
use vlab_model::history::{HostsKind, RunInfo, Source, TargetKind};
use vlab_model::settings::{HostTiming, SettingError, Settings, plain_name};
use vlab_scenario::{
    Catalogue, Criterion, FrontDoor, Host, HostKind, LoadError, Moment, Scenario, Seen, SequenceStep, Steps, Subject,
    Times, moment_words,
};
use vlab_service::CoreConfig;

use crate::addresses::{gateway_of, networks_of_host};
use crate::alterations::Alteration;
use crate::conductor::ConductorConfig;
use crate::target::{OWNED, Target, TargetError, host_and_port};
use crate::user::{KubeUser, POOL};

mod door;

use self::door::{not_over_kube, not_over_rest};

/// Version of the harness.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Above this many hosts single steps are left out of the history: they would be most of it and say little.
const RECORD_STEPS_UP_TO: usize = 100;

/// Service time between two looks of the user where the database is watched.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Wall time between two looks of the user where these looks are all that is known about states.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// What the user chose beside the scenario.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// Seed instead of the scenario's.
    pub seed: Option<u64>,
    /// Time profile instead of the scenario's.
    pub time_profile: Option<String>,
    /// Service under test instead of the scenario's.
    pub service: Option<Target>,
    /// Image of PostgreSQL for a service in a container, instead of the scenario's or the usual one.
    pub postgres_image: Option<String>,
    /// What all hosts are, instead of what the scenario says.
    pub hosts: Option<HostKind>,
    /// The service under test finds its tools in `PATH`, and no stand-ins before them.
    pub real_tools: bool,
    /// What hosts of `kind: auto` become, and why; without it they are simulated.
    pub auto: Option<(HostKind, String)>,
    /// How the user asks the service, instead of what the scenario says.
    pub api: Option<FrontDoor>,
    /// The product's own programs, which all machines run in the place of the lab's.
    pub real_node: Option<RealNode>,
    /// The API server of a run that asks over Kubernetes.
    pub hub: HubChoice,
}

/// Which API server a run has that asks over Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HubChoice {
    /// The lab's own, for the run alone.
    #[default]
    Ours,
    /// A real one with its etcd, for the run alone; the folder with the programs.
    Assets(PathBuf),
    /// One that is there already, with the service in it; its kubeconfig.
    Existing(PathBuf),
}

impl HubChoice {
    /// The folder with the programs of a real API server.
    pub fn assets(&self) -> Option<&Path> {
        if let Self::Assets(folder) = self { Some(folder) } else { None }
    }

    /// The kubeconfig of the one that is there.
    pub fn existing(&self) -> Option<&Path> {
        if let Self::Existing(kubeconfig) = self { Some(kubeconfig) } else { None }
    }

    /// As it is chosen on the command line.
    pub fn option(&self) -> String {
        match self {
            Self::Ours => String::new(),
            Self::Assets(folder) => format!(" --hub-assets {}", folder.display()),
            Self::Existing(kubeconfig) => format!(" --kubeconfig {}", kubeconfig.display()),
        }
    }
}

/// The product's own programs for machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealNode {
    /// The folder that was named.
    pub folder: PathBuf,
    /// The agent.
    pub agent: PathBuf,
    /// The installer, with its folder `deploy` beside it.
    pub installer: PathBuf,
    /// The controller in the cluster.
    pub controller: PathBuf,
}

/// Everything that a run needs to know.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The scenario.
    pub scenario: Arc<Scenario>,
    /// Seed of the run.
    pub seed: u64,
    /// Name of the time profile.
    pub time_profile: String,
    /// Name of the one that it has where nobody chooses another.
    pub usual_time_profile: String,
    /// How much faster than `real` the clockwork runs.
    pub clock_scale: f64,
    /// The service under test.
    pub target: Target,
    /// Is it another one than the scenario's?
    pub other_target: bool,
    /// The service's settings.
    pub settings: Settings,
    /// Settings that only the real service has, under their names.
    pub only_real: BTreeMap<String, String>,
    /// How long things take on hosts.
    pub timing: HostTiming,
    /// Hardware profiles by name.
    pub profiles: BTreeMap<String, Arc<HardwareProfile>>,
    /// Pull secret of the run: well-formed, and good for nothing.
    pub pull_secret: String,
    /// Why its hosts are what they are, where the scenario leaves that open.
    pub hosts_why: Option<String>,
    /// Were its hosts chosen beside the scenario?
    pub hosts_chosen: bool,
    /// What is wrong with the simulated service or hosts on purpose. No scenario can ask for it.
    pub alteration: Option<Alteration>,
    /// The service is asked over Kubernetes.
    pub kube: bool,
    /// Where it is then asked.
    pub hub: HubChoice,
    /// What to call the scenario to run it again: its name where the catalogue has it, else its path.
    pub called: String,
    /// The folder with the product's own programs for its machines, where one was named.
    pub real_node: Option<PathBuf>,
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// It has parts that this version cannot run.
    #[error("{}", .0.join("\n"))]
    NotBuilt(Vec<String>),
    /// The time profile cannot be used.
    #[error("time profile {name:?}: {error}")]
    TimeProfile {
        /// Name of the profile.
        name: String,
        /// What is wrong with it, for people.
        error: String,
    },
    /// The service under test cannot be used.
    #[error("service: {0}")]
    Target(#[from] TargetError),
    /// The service under test cannot do what the scenario wants of it.
    #[error("the service {target} cannot run this scenario: {why}")]
    Unfit {
        /// The service.
        target: String,
        /// Why not.
        why: String,
    },
    /// The live image that the scenario gives cannot be booted.
    #[error("infra_env.iso: {} {why}", .path.display())]
    Iso {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, as the end of a sentence that begins with its name.
        why: String,
    },
    /// A program that is given cannot run on a machine.
    #[error("vm.{key}: {} {why}", .path.display())]
    Program {
        /// What it is given as.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it, as the end of a sentence that begins with its name.
        why: String,
    },
    /// The product's programs are given, and no host would run them.
    #[error("--real-node: {0}")]
    RealNode(String),
    /// A setting cannot be used.
    #[error("setting of the service: {0}")]
    Setting(#[from] SettingError),
    /// A hardware profile cannot be used.
    #[error("hardware profile {name:?}: {error}")]
    Hardware {
        /// Name of the profile.
        name: String,
        /// What is wrong with it, for people.
        error: ProfileError,
    },
    /// There is no hardware profile of that name.
    #[error("there is no hardware profile {0:?}")]
    NoHardware(String),
}

impl From<(&str, LoadError)> for PrepareError {
    fn from((name, error): (&str, LoadError)) -> Self {
        PrepareError::TimeProfile { name: name.to_owned(), error: error.to_string().trim().to_owned() }
    }
}

/// What preparing asks of the computer that it happens on.
pub trait Place {
    /// A seed for a run for which nobody has chosen one.
    fn new_seed(&self) -> u64;

    /// Is that file a live image that machines can boot?
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence that begins with its name.
    fn check_live_iso(&self, path: &Path) -> Result<(), String>;

    /// Is that file a program that can run on a machine?
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence that begins with its name.
    fn check_program(&self, path: &Path) -> Result<(), String>;

    /// Are the manifests of that installer beside it?
    ///
    /// # Errors
    /// What is missing, as the end of a sentence that begins with the installer's name.
    fn check_deploy(&self, installer: &Path) -> Result<(), String>;
}

/// No place at all: the same seed each time, and files are taken to be what they should be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nowhere;

impl Place for Nowhere {
    fn new_seed(&self) -> u64 {
        1
    }

    fn check_live_iso(&self, _: &Path) -> Result<(), String> {
        Ok(())
    }

    fn check_program(&self, _: &Path) -> Result<(), String> {
        Ok(())
    }

    fn check_deploy(&self, _: &Path) -> Result<(), String> {
        Ok(())
    }
}

/// Brings together what a run needs to know.
///
/// # Errors
/// [`PrepareError`]; nothing was started.
pub fn prepare(
    mut scenario: Scenario,
    catalogue: &Catalogue,
    choices: &Choices,
    place: &dyn Place,
) -> Result<Prepared, PrepareError> {
    let hosts_why = settle_hosts(&mut scenario, choices);
    if let Some(programs) = &choices.real_node {
        give(&mut scenario, programs, hosts_why.as_deref())?;
    }
    let of_scenario = Target::of_scenario(&scenario.service);
    let other_target = choices.service.is_some() && choices.service.as_ref() != of_scenario.as_ref().ok();
    if !scenario.not_built.is_empty() && scenario.hosts.iter().any(|h| h.is_machine()) {
        return Err(PrepareError::NotBuilt(scenario.not_built.iter().map(|n| n.diagnostic.clone()).collect()));
    }
    let mut target = match choices.service.clone() {
        Some(target) => target,
        None => of_scenario?,
    };
    if let (Target::Container { postgres, .. }, Some(chosen)) = (&mut target, &choices.postgres_image) {
        *postgres = Some(chosen.clone());
    }
    fits(&target, &scenario, choices.real_tools, place)?;
    let kube = choices.api.unwrap_or(scenario.api) == FrontDoor::Kube;
    if kube && scenario.api == FrontDoor::Rest {
        as_over_kube(&mut scenario);
    }
    if let (HubChoice::Existing(kubeconfig), false) = (&choices.hub, kube) {
        let why = format!("it asks over REST, and not on the hub of {}: add `--api kube`", kubeconfig.display());
        return Err(PrepareError::Unfit { target: target.to_string(), why });
    }
    let hub = match (&choices.hub, &scenario.hub_assets) {
        (HubChoice::Ours, Some(folder)) if kube => HubChoice::Assets(folder.clone()),
        (chosen, _) => chosen.clone(),
    };
    let unfit = if kube { not_over_kube(&target, &scenario, &hub) } else { not_over_rest(&scenario) };
    if let Some(why) = unfit {
        return Err(PrepareError::Unfit { target: target.to_string(), why });
    }
    let usual_time_profile = usual_time_profile(&scenario, catalogue)?;
    let time_profile = choices.time_profile.clone().unwrap_or_else(|| usual_time_profile.clone());
    let profile = catalogue.time_profile(&time_profile).map_err(|e| (time_profile.as_str(), e))?;
    let in_profile = |e: SettingError| PrepareError::TimeProfile { name: time_profile.clone(), error: e.to_string() };
    let mut settings = profile.settings().map_err(in_profile)?;
    let mut only_real = BTreeMap::new();
    for (name, value) in &scenario.service.settings {
        match settings.apply_in_profile(name, value, profile.clock_scale) {
            Err(SettingError::NotSimulated { name })
                if matches!(target, Target::Process { .. } | Target::Container { .. }) =>
            {
                only_real.insert(name, value.clone());
            }
            other => other?,
        }
    }
    // What it would fetch to save a reboot is the release's own, which no lab has: it would look for it for twenty minutes.
    let real_installer = scenario.hosts.iter().any(|host| host.is_machine() && host.vm.installer.is_some());
    if real_installer && !scenario.service.settings.contains_key(SKIP_REBOOT) {
        settings.apply_vars([(SKIP_REBOOT, "false")])?;
    }
    let timing = profile.host_timing().map_err(in_profile)?;
    let mut profiles = BTreeMap::new();
    for host in &scenario.hosts {
        if profiles.contains_key(&host.profile) {
            continue;
        }
        let text =
            catalogue.hardware_profile(&host.profile).ok_or_else(|| PrepareError::NoHardware(host.profile.clone()))?;
        let hardware = HardwareProfile::from_yaml(&text)
            .map_err(|error| PrepareError::Hardware { name: host.profile.clone(), error })?;
        profiles.insert(host.profile.clone(), Arc::new(hardware));
    }
    let seed = choices.seed.or(scenario.seed).unwrap_or_else(|| place.new_seed());
    let called = match catalogue.find(&scenario.name) {
        Ok(source) if source.name == scenario.path => scenario.name.clone(),
        _ => scenario.path.clone(),
    };
    Ok(Prepared {
        scenario: Arc::new(scenario),
        hosts_why,
        hosts_chosen: choices.hosts.is_some(),
        called,
        real_node: choices.real_node.as_ref().map(|programs| programs.folder.clone()),
        alteration: None,
        kube,
        hub,
        seed,
        clock_scale: profile.clock_scale,
        time_profile,
        usual_time_profile,
        target,
        other_target,
        settings,
        only_real,
        timing,
        profiles,
        pull_secret: pull_secret(seed),
    })
}

/// Events of requests to the REST API: the controllers do the same without a word.
const TOLD_OVER_REST: &[&str] = &["host_bind_succeeded", "host_unbind_succeeded"];

/// What a scenario for the REST API expects, as it is over Kubernetes: an installed cluster takes more hosts at once, so that this may come
/// after `installed`; and some events are not there.
fn as_over_kube(scenario: &mut Scenario) {
    for expectation in &mut scenario.expect {
        match &mut expectation.check {
            Criterion::Sequence { steps: Steps::ClusterStatuses(steps), .. }
                if steps.last().is_some_and(|step| step.any_of == [ClusterStatus::Installed]) =>
            {
                steps.push(SequenceStep { any_of: vec![ClusterStatus::AddingHosts], times: Times::AtMostOnce });
            }
            Criterion::Event { name, min, max, .. } if TOLD_OVER_REST.contains(&name.as_str()) => {
                (*min, *max) = (0, Some(0));
            }
            _ => {}
        }
    }
}

/// The setting with which the service has installers save a reboot.
const SKIP_REBOOT: &str = "ENABLE_SKIP_MCO_REBOOT";

/// Gives all machines the product's programs.
fn give(scenario: &mut Scenario, programs: &RealNode, hosts_why: Option<&str>) -> Result<(), PrepareError> {
    let mut given = false;
    for host in scenario.hosts.iter_mut().filter(|host| host.is_machine()) {
        let RealNode { agent, installer, controller, .. } = programs.clone();
        (host.vm.agent, host.vm.installer, host.vm.controller) = (Some(agent), Some(installer), Some(controller));
        given = true;
    }
    if given {
        return Ok(());
    }
    let why = hosts_why.map(|why| format!(": {why}")).unwrap_or_default();
    Err(PrepareError::RealNode(format!("no host of {} is a virtual machine, use `--hosts vm`{why}", scenario.name)))
}

/// Decides what each host is; why, where the scenario leaves it open.
fn settle_hosts(scenario: &mut Scenario, choices: &Choices) -> Option<String> {
    let mut why = None;
    for host in &mut scenario.hosts {
        host.kind = match (choices.hosts, host.kind, &choices.auto) {
            (Some(chosen), ..) => chosen,
            (None, HostKind::Auto, Some((kind, reason))) => {
                why.get_or_insert_with(|| reason.clone());
                *kind
            }
            (None, HostKind::Auto, None) => HostKind::Simulated,
            (None, kind, _) => kind,
        };
    }
    why
}

/// What of a scenario only virtual machines show, where its hosts are simulated.
pub fn wants_machines(scenario: &Scenario) -> Option<String> {
    let is_machine = |name: &String| scenario.host(name).is_some_and(Host::is_machine);
    let nobodys = |moment: &&Moment| match (&moment.seen, &moment.subject) {
        (Seen::Console(_), Subject::Hosts(names)) => !names.iter().any(is_machine),
        (Seen::Console(_), _) => !scenario.hosts.iter().any(Host::is_machine),
        _ => false,
    };
    let moment = scenario.moments().find(nobodys)?;
    let words = moment_words(moment);
    Some(format!(
        "only virtual machines have a serial console, and hosts are simulated here: {words}; `--hosts vm` runs it"
    ))
}

/// The time profile that counts where nobody chooses another. Virtual machines take the time they take, so with them `vm` stands
/// in the place of those under which hosts work faster than real ones.
fn usual_time_profile(scenario: &Scenario, catalogue: &Catalogue) -> Result<String, PrepareError> {
    let own = scenario.service.time_profile.as_str();
    let machines = scenario.hosts.iter().any(Host::is_machine);
    let stands_in = machines && catalogue.time_profile(own).map_err(|e| (own, e))?.work_scale > 1.0;
    let given = scenario.hosts.iter().any(|host| host.is_machine() && host.vm.programs().next().is_some());
    Ok(match (stands_in, given) {
        (true, true) => "real-agent",
        (true, false) => "vm",
        (false, _) => own,
    }
    .to_owned())
}

/// What a target cannot do must not be left out silently.
fn fits(target: &Target, scenario: &Scenario, real_tools: bool, place: &dyn Place) -> Result<(), PrepareError> {
    let unfit = |why: String| Err(PrepareError::Unfit { target: target.to_string(), why });
    if scenario.service.replicas > 1 && !target.needs_postgres_here() {
        return unfit("it wants several replicas of the service, and only a service that is a program of this computer is started more than once".to_owned());
    }
    if scenario.hosts.iter().any(Host::is_machine) {
        if let Target::Remote { url } = target
            && let Some(why) = unreachable(url, scenario)
        {
            return unfit(why);
        }
        // Dummy ignition configs tell nobody where a machine-config server is; a single node needs none.
        let dummies = scenario.service.settings.get("DUMMY_IGNITION").map_or(real_tools, |said| said != "false");
        let of_machines =
            |cluster: &&vlab_scenario::Cluster| crate::fault::machine::has_machines(scenario, &cluster.name);
        let several = scenario.clusters.iter().filter(of_machines).find(|cluster| cluster.control_plane_count > 1);
        let real = matches!(target, Target::Process { .. } | Target::Container { .. });
        if let (true, true, Some(cluster)) = (real, dummies, several) {
            return unfit(format!(
                "the machines of {} would get dummy ignition configs, with which only a single node installs: `DUMMY_IGNITION: \"false\"` in \
                 the service's settings lets it start the release's installer, or without `--real-tools` the lab's; `--hosts sim` runs it \
                 as it is",
                cluster.name
            ));
        }
        if let Some(why) = crate::fault::machine::unfit(scenario) {
            return unfit(why);
        }
        if let Some(host) = scenario.hosts.iter().find(|host| host.is_machine() && host.registry_on_medium) {
            return unfit(format!(
                "host {} is to have a medium with a container registry (`registry_on_medium`), and the lab's media carry none; \
                 `--hosts sim` runs it",
                host.name
            ));
        }
        let leased = |host: &&vlab_scenario::Host| {
            let clusters = || host.clusters().filter_map(|name| scenario.cluster(name));
            host.is_machine() && clusters().any(|c| c.vip_dhcp_allocation)
        };
        if let Some(host) = scenario.hosts.iter().find(leased) {
            return unfit(format!(
                "the cluster of {} has its VIPs leased by DHCP (`vip_dhcp_allocation`), for which machines of the lab cannot \
                 ask yet; `--hosts sim` runs it",
                host.name
            ));
        }
        if let Some(path) = &scenario.infra_env.iso
            && let Err(why) = place.check_live_iso(path)
        {
            return Err(PrepareError::Iso { path: path.clone(), why });
        }
        check_programs(scenario, place)?;
    }
    if let Some((fault, why)) = scenario.faults.iter().find_map(|fault| Some((fault, target.can(fault).err()?))) {
        return unfit(format!("the fault {} ({}): {why}", fault.name, fault.word()));
    }
    match target {
        Target::Simulated => Ok(()),
        Target::Process { .. } | Target::Container { .. } => {
            match scenario.service.settings.keys().map(|name| plain_name(name)).find(|name| OWNED.contains(name)) {
                Some(name) => unfit(format!("it sets {name}, which the run must choose itself")),
                None => Ok(()),
            }
        }
        Target::Remote { .. } => {
            if let Some(name) = scenario.service.settings.keys().next() {
                return unfit(format!("it sets {name}, and a remote service is never set up by a run"));
            }
            // What a cluster's hosts do is seen by looking at the cluster; nobody looks at the others yet.
            if let Some(host) = scenario.hosts.iter().find(|h| h.cluster.is_none()) {
                return unfit(format!(
                    "host {} belongs to no cluster, and such hosts are not polled yet: their states would not be seen",
                    host.name
                ));
            }
            Ok(())
        }
    }
}

/// Why machines cannot reach a service that runs already where its images say.
fn unreachable(url: &str, scenario: &Scenario) -> Option<String> {
    let (host, _) = host_and_port(url)?;
    let address = host.parse::<IpAddr>().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback() || address.is_unspecified()) {
        return Some(format!(
            "virtual machines would look for {host} in themselves: name an address of this computer, at which the service listens and \
             which its images have (SERVICE_BASE_URL)"
        ));
    }
    let address = address?;
    let networks =
        scenario.hosts.iter().filter(|host| host.is_machine()).flat_map(|host| networks_of_host(scenario, host));
    let network = networks.into_iter().find(|network| network.contains(&address))?;
    Some(format!(
        "{address} is in the machine network {network}, which the lab makes itself: give the cluster another one"
    ))
}

/// The programs that are given must run on machines. Many hosts have the same ones, which are large: each is looked at once.
fn check_programs(scenario: &Scenario, place: &dyn Place) -> Result<(), PrepareError> {
    let hosts = scenario.hosts.iter().filter(|host| host.is_machine());
    let programs: BTreeSet<(&'static str, &PathBuf)> = hosts.flat_map(|host| host.vm.programs()).collect();
    for (key, path) in programs {
        let wrong = |why| PrepareError::Program { key, path: path.clone(), why };
        place.check_program(path).map_err(wrong)?;
        if key == "installer" {
            place.check_deploy(path).map_err(wrong)?;
        }
    }
    Ok(())
}

/// A pull secret of the right form for the public registries that the default images come from.
fn pull_secret(seed: u64) -> String {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(1 << 61);
    let password: String =
        (0..24).map(|_| char::from(b"abcdefghijkmnpqrstuvwxyz23456789"[(rng.next_u32() % 32) as usize])).collect();
    let auth = base64::engine::general_purpose::STANDARD.encode(format!("vlab:{password}"));
    let registries = ["cloud.openshift.com", "quay.io", "registry.redhat.io"];
    let auths: Vec<String> =
        registries.iter().map(|r| format!(r#""{r}":{{"auth":"{auth}","email":"vlab@example.com"}}"#)).collect();
    format!(r#"{{"auths":{{{}}}}}"#, auths.join(","))
}

impl Prepared {
    /// Has it hosts of that kind?
    pub fn has(&self, kind: HostKind) -> bool {
        self.scenario.hosts.iter().any(|host| host.kind == kind)
    }

    /// The namespaces in which the user applies resources, where the service is asked over Kubernetes.
    pub fn namespaces(&self) -> Vec<String> {
        let pool = self.scenario.hosts.iter().any(|host| host.cluster.is_none()).then(|| POOL.to_owned());
        self.scenario.clusters.iter().map(|cluster| cluster.name.clone()).chain(pool).collect()
    }

    /// Has it hosts that a provider runs, and not the conductor?
    pub fn has_machines(&self) -> bool {
        self.scenario.hosts.iter().any(Host::is_machine)
    }

    /// What its hosts are.
    pub fn hosts_kind(&self) -> HostsKind {
        let mut kinds = self.scenario.hosts.iter().map(|host| host.kind.in_history());
        let first = kinds.next().unwrap_or(HostsKind::Simulated);
        if kinds.all(|kind| kind == first) { first } else { HostsKind::Mixed }
    }

    /// The words of the run that must not be written anywhere.
    pub fn secrets(&self) -> Vec<String> {
        vec![self.pull_secret.clone()]
    }

    /// First line of the history.
    pub fn info(&self, run_id: &str, virtual_time: bool, versions: BTreeMap<String, String>) -> RunInfo {
        RunInfo {
            run_id: run_id.to_owned(),
            scenario: self.scenario.name.clone(),
            scenario_path: self.scenario.path.clone(),
            seed: self.seed,
            service: TargetKind::of(&self.target.to_string()),
            hosts: self.hosts_kind(),
            time_profile: self.time_profile.clone(),
            virtual_time,
            vlab_version: VERSION.to_owned(),
            versions,
            settings: (self.target == Target::Simulated).then(|| Box::new(self.settings.clone())),
            given: matches!(self.target, Target::Process { .. } | Target::Container { .. })
                .then(|| Box::new(self.settings.clone())),
            clock_scale: (self.target.state_source() == Source::Database).then_some(self.clock_scale),
            // Both kinds of tables have them.
            times_followed: self.target.state_source() == Source::Database,
            states_from: Some(self.target.state_source()).filter(|source| *source != Source::Database),
            expected_hosts: self
                .scenario
                .hosts
                .iter()
                .map(|h| (h.name.clone(), h.role))
                .collect::<BTreeMap<String, HostRole>>(),
        }
    }

    /// What a conductor must know. `ingress_pem` is fresh in a real run and fixed in virtual time.
    pub fn conductor_config(&self, info: RunInfo, ingress_pem: String) -> ConductorConfig {
        let records = self.scenario.report.steps && self.scenario.hosts.len() <= RECORD_STEPS_UP_TO;
        ConductorConfig {
            scenario: self.scenario.clone(),
            info,
            profiles: self.profiles.clone(),
            timing: self.timing.clone(),
            clock_scale: self.clock_scale,
            agent_version: self.settings.agent_docker_image.clone(),
            ingress_pem,
            pull_secret: self.pull_secret.clone(),
            state_source: self.target.state_source(),
            look_every: match self.target.state_source() {
                Source::Database => LOOK_EVERY.div_f64(self.clock_scale.max(f64::MIN_POSITIVE)),
                _ => POLL_EVERY,
            },
            ntp_source: gateway_of(&self.scenario).map(|gateway| gateway.to_string()),
            ssh_key: None,
            // What the scenario itself looks at must be there.
            record_steps: self.scenario.mentions_steps() || records,
            record_requests: records,
            alteration: match self.alteration {
                Some(Alteration::Hosts(alteration)) => Some(alteration),
                _ => None,
            },
            kube: self.kube.then(|| KubeUser {
                label: None,
                releases: self.settings.release_images.iter().map(|r| (r.version.clone(), r.url.clone())).collect(),
            }),
            freeze_at: None,
        }
    }

    /// What the service's core must know, for a core in this process.
    pub fn core_config(&self, base_url: &str) -> CoreConfig {
        CoreConfig {
            settings: self.settings.clone(),
            seed: self.seed,
            base_url: base_url.to_owned(),
            image_service_url: base_url.to_owned(),
            alteration: match self.alteration {
                Some(Alteration::Service(alteration)) => Some(alteration),
                _ => None,
            },
        }
    }

    /// The door by which the service is asked, where that is another one than the scenario's.
    pub fn other_door(&self) -> Option<FrontDoor> {
        let door = if self.kube { FrontDoor::Kube } else { FrontDoor::Rest };
        (door != self.scenario.api).then_some(door)
    }

    /// Command that repeats the run.
    pub fn how_to_repeat(&self, verb: &str) -> String {
        let profile = if self.time_profile == self.usual_time_profile {
            String::new()
        } else {
            format!(" --time-profile {}", self.time_profile)
        };
        // Virtual time knows only the simulated one.
        let service =
            if self.other_target && verb != "simulate" { format!(" --service {}", self.target) } else { String::new() };
        let postgres = match (&self.target, &self.scenario.service.postgres_image) {
            (Target::Container { postgres: Some(image), .. }, of_scenario) if Some(image) != of_scenario.as_ref() => {
                format!(" --postgres-image {image}")
            }
            _ => String::new(),
        };
        let postgres = if verb == "simulate" { String::new() } else { postgres };
        // What was decided by what the machine can do must not be decided again elsewhere.
        let hosts = match (verb, self.hosts_why.is_some() || self.hosts_chosen, self.has_machines()) {
            ("simulate", ..) | (_, false, _) => "",
            (_, true, true) => " --hosts vm",
            (_, true, false) => " --hosts sim",
        };
        let api = self.other_door().map(|door| format!(" --api {door}")).unwrap_or_default();
        let node =
            self.real_node.as_ref().map(|folder| format!(" --real-node {}", folder.display())).unwrap_or_default();
        let hub = if self.kube && verb != "simulate" { self.hub.option() } else { String::new() };
        format!("vlab {verb} {} --seed {}{profile}{service}{postgres}{hosts}{api}{node}{hub}", self.called, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pull_secret_is_json_and_depends_on_the_seed() {
        let value: serde_json::Value = serde_json::from_str(&pull_secret(1)).unwrap();
        assert!(value["auths"]["quay.io"]["auth"].as_str().unwrap().len() > 20);
        assert_ne!(pull_secret(1), pull_secret(2));
    }

    #[test]
    fn several_masters_need_more_than_dummy_ignition_configs() {
        let with = |cluster: &str, count: u32, settings: &str, hosts, real_tools| {
            let text = format!(
                "version: 1\nname: t\nservice: {{kind: process, program: /bin/true{settings}}}\ncluster: {{{cluster}}}\nhosts: [{{name: n, \
                 role: master, count: {count}}}]\n"
            );
            let catalogue = Catalogue::embedded();
            let source = vlab_scenario::SourceFile::new("t.yaml", text);
            let scenario = vlab_scenario::load(&source, &catalogue).unwrap_or_else(|e| panic!("{e}"));
            let choices = Choices { hosts: Some(hosts), real_tools, ..Choices::default() };
            prepare(scenario, &catalogue, &choices, &Nowhere).map(drop).map_err(|e| e.to_string())
        };
        let ha = "topology: compact, api_vips: [192.168.126.5], ingress_vips: [192.168.126.6]";
        let (dummies, installer) = (", settings: {DUMMY_IGNITION: 'true'}", ", settings: {DUMMY_IGNITION: 'false'}");
        for (settings, real_tools) in [(dummies, false), ("", true)] {
            let refused = with(ha, 3, settings, HostKind::Vm, real_tools).unwrap_err();
            assert!(refused.contains("the machines of t would get dummy ignition configs"), "{refused}");
            assert_eq!(with(ha, 3, settings, HostKind::Simulated, real_tools), Ok(()));
            assert_eq!(with("topology: sno", 1, settings, HostKind::Vm, real_tools), Ok(()));
        }
        assert_eq!(with(ha, 3, "", HostKind::Vm, false), Ok(()), "the lab's own installer");
        assert_eq!(with(ha, 3, installer, HostKind::Vm, true), Ok(()));
    }

    #[rstest::rstest]
    #[case("kind: simulated", "fast", "fast")]
    #[case("kind: vm", "fast", "vm")]
    #[case("kind: vm, vm: {agent: /bin/true}", "fast", "real-agent")]
    #[case("kind: vm, vm: {installer: /bin/true}", "fast", "real-agent")]
    #[case("kind: vm, vm: {controller: /bin/true}", "fast", "real-agent")]
    #[case("kind: vm, vm: {agent: /bin/true}", "real", "real")]
    #[case("kind: simulated, vm: {agent: /bin/true}", "fast", "fast")]
    fn machines_get_a_profile_that_suits_them(#[case] host: &str, #[case] own: &str, #[case] profile: &str) {
        let text = format!(
            "version: 1\nname: t\nservice: {{time_profile: {own}}}\ncluster: {{topology: sno}}\nhosts: [{{name: n, {host}}}]\n"
        );
        let catalogue = Catalogue::embedded();
        let scenario = vlab_scenario::load(&vlab_scenario::SourceFile::new("t.yaml", text), &catalogue).unwrap();
        assert_eq!(prepare(scenario, &catalogue, &Choices::default(), &Nowhere).unwrap().time_profile, profile);
    }

    #[rstest::rstest]
    #[case("http://192.0.2.7:8090", None)]
    #[case("http://assisted.example:8090", None)]
    #[case("http://127.0.0.1:8090", Some("would look for 127.0.0.1 in themselves"))]
    #[case("http://localhost:8090", Some("would look for localhost in themselves"))]
    #[case("http://192.168.126.9:8090", Some("192.168.126.9 is in the machine network 192.168.126.0/24"))]
    fn machines_reach_a_service_that_runs_already(#[case] url: &str, #[case] why: Option<&str>) {
        let catalogue = Catalogue::embedded();
        let text = "version: 1\nname: t\ncluster: {topology: sno, machine_networks: [192.168.126.0/24]}\nhosts: [{name: n, kind: vm}]\n";
        let scenario =
            vlab_scenario::load(&vlab_scenario::SourceFile::new("t.yaml", text.to_owned()), &catalogue).unwrap();
        let service = Some(Target::Remote { url: url.to_owned() });
        let refused = prepare(scenario, &catalogue, &Choices { service, ..Choices::default() }, &Nowhere).map(drop);
        match why {
            Some(why) => assert!(refused.unwrap_err().to_string().contains(why)),
            None => assert!(refused.is_ok()),
        }
    }

    #[rstest::rstest]
    #[case("cluster: {topology: sno}\nhosts: [{name: n, registry_on_medium: true}]", "`registry_on_medium`")]
    #[case(
        "cluster: {topology: compact, openshift_version: 4.14, vip_dhcp_allocation: true}\nhosts: [{name: n, count: 3}]",
        "`vip_dhcp_allocation`"
    )]
    fn what_machines_of_the_lab_cannot_is_for_simulated_hosts(#[case] rest: &str, #[case] key: &str) {
        let catalogue = Catalogue::embedded();
        let with = |kind| {
            let source = vlab_scenario::SourceFile::new("t.yaml", format!("version: 1\nname: t\n{rest}\n"));
            let scenario = vlab_scenario::load(&source, &catalogue).unwrap();
            prepare(scenario, &catalogue, &Choices { hosts: Some(kind), ..Choices::default() }, &Nowhere)
        };
        assert!(with(HostKind::Simulated).is_ok());
        let refused = with(HostKind::Vm).map(drop).unwrap_err().to_string();
        assert!(refused.contains("n-0") && refused.contains(key), "{refused}");
    }
}
