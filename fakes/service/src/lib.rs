//! The sans-I/O core of the simulated assisted-service: the whole state in memory, requests in, answers out. No sockets, no
//! clock, no database; randomness only from a stream that is seeded by the configuration.
//!
//! A shell feeds [`Core::handle`] and [`Core::wake`], stores what [`Core::take_writes`] returns, and answers only after
//! that is stored: then [`Core::confirm`], or [`Core::rollback`] when storing failed. Between `take_writes` and one of the
//! two it must not call `handle` or `wake`. [`Core::new`] over the stored rows continues where the writes ended.
//!
//! * `rows` is what is stored, `state` the tables and the one place through which they change.
//! * `commands` decide about what is asked for; they know no HTTP. `rest` is the way in over HTTP: it parses and shows; [`kube`] is the
//!   way in over Kubernetes resources.
//! * `monitor` is what time does, `preparation` what an installation makes in the background.
//! * [`alteration`] is what can be wrong with all that on purpose.
//! * `machines` asks the model's state machines, `journal` writes events, `show` is how rows look to users.

pub mod alteration;
mod commands;
mod go;
mod journal;
#[expect(clippy::disallowed_types, reason = "this asks an API server over HTTP, as plain data")]
pub mod kube;
mod machines;
mod monitor;
mod pace;
mod preparation;
mod refusal;
mod releases;
#[expect(clippy::disallowed_types, reason = "this is the way in over HTTP")]
mod rest;
mod rows;
mod show;
mod state;
#[cfg(test)]
#[expect(clippy::disallowed_types, reason = "tests ask over REST")]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::HostStatus;
use vlab_model::cluster::ClusterRule;
use vlab_model::host::HostRule;
use vlab_model::settings::Settings;

pub use pace::{Monitor, Pace, Pass};
pub use rest::takes_files;
pub use rows::{ClusterPrivate, ClusterRow, EventRow, FileRow, HostPrivate, HostRow, InfraEnvRow, Snapshot, Write};

use self::alteration::{Alteration, Conduct, Planted};
use self::rest::wrong::Answers;
use self::state::{HostKey, ServiceState};

/// What a core must know besides its state.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// Tunables of the service.
    pub settings: Settings,
    /// Seed of ids, keys and passwords.
    pub seed: u64,
    /// URL under which hosts reach the service, without the API's path, for example `http://127.0.0.1:8090`. The setting
    /// `SERVICE_BASE_URL` replaces it.
    pub base_url: String,
    /// URL of the image service, for example `http://127.0.0.1:8888`; empty: there is none.
    pub image_service_url: String,
    /// What is wrong with the service on purpose. Nobody but who tests a judge sets it.
    pub alteration: Option<Alteration>,
}

/// Counts for the metrics page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Hosts by status.
    pub hosts: BTreeMap<&'static str, u64>,
    /// Clusters by status.
    pub clusters: BTreeMap<&'static str, u64>,
    /// Infra-envs.
    pub infra_envs: u64,
    /// Events stored.
    pub events: u64,
    /// Files stored, and their bytes.
    pub files: (u64, u64),
    /// Runs of the host monitor since the core was made.
    pub host_monitor_runs: u64,
    /// Runs of the cluster monitor since the core was made.
    pub cluster_monitor_runs: u64,
    /// Hosts that the monitor really looked at (the others could not have changed).
    pub hosts_refreshed: u64,
}

/// The service's state and behaviour.
#[derive(Debug)]
pub struct Core {
    config: CoreConfig,
    state: ServiceState,
    /// Was the core told the time yet?
    begun: bool,
    last_host_tick: Timestamp,
    last_cluster_tick: Timestamp,
    /// Connectivity checks handed out: cluster to (minute, number). Only large clusters are throttled.
    connectivity_checks: BTreeMap<Uuid, (i64, i64)>,
    host_monitor_runs: u64,
    cluster_monitor_runs: u64,
    hosts_refreshed: u64,
    /// Rules that fired since the start, each once.
    fired_of_hosts: Vec<&'static HostRule>,
    fired_of_clusters: Vec<&'static ClusterRule>,
    /// The rule that fired last for each host, and which one followed which.
    last_of_host: BTreeMap<HostKey, &'static HostRule>,
    pairs: Vec<(&'static HostRule, &'static HostRule)>,
    /// What the host monitor decided last of each host, and when; what each host was at its last poll. For what is planted.
    monitored: BTreeMap<HostKey, (Timestamp, HostStatus)>,
    at_last_poll: BTreeMap<HostKey, HostStatus>,
    /// So much later than at the multiples of their intervals the monitors look: of hosts, of clusters.
    phases: [Duration; 2],
    /// What was answered, where an alteration needs it.
    answers: Answers,
    /// Operations that were asked for since the start, with the statuses of the answers, each once.
    answered: BTreeSet<(&'static str, u16)>,
    /// Is it asked over Kubernetes, too? Then controllers follow hosts of day 2 after their reboot.
    has_controllers: bool,
    /// Monitors take their time.
    paced: Option<pace::Paced>,
}

/// Whole milliseconds, see `state`.
fn floor_ms(now: Timestamp) -> Timestamp {
    Timestamp::from_micros(now.as_micros().div_euclid(1000) * 1000)
}

impl Core {
    /// The service has controllers (`ENABLE_KUBE_API` of the real one).
    #[must_use]
    pub fn with_controllers(mut self) -> Self {
        self.has_controllers = true;
        self
    }

    /// A service over what was stored. An empty snapshot is a new service.
    pub fn new(mut config: CoreConfig, snapshot: Snapshot) -> Self {
        if let Some(alteration) = config.alteration {
            config.settings = alteration.settings(config.settings);
        }
        let state = ServiceState::new(config.seed, snapshot, config.alteration);
        Self {
            config,
            state,
            begun: false,
            last_host_tick: Timestamp::UNSET,
            last_cluster_tick: Timestamp::UNSET,
            connectivity_checks: BTreeMap::new(),
            host_monitor_runs: 0,
            cluster_monitor_runs: 0,
            hosts_refreshed: 0,
            fired_of_hosts: Vec::new(),
            fired_of_clusters: Vec::new(),
            last_of_host: BTreeMap::new(),
            pairs: Vec::new(),
            monitored: BTreeMap::new(),
            at_last_poll: BTreeMap::new(),
            phases: [Duration::ZERO; 2],
            answers: Answers::default(),
            answered: BTreeSet::new(),
            has_controllers: false,
            paced: None,
        }
    }

    /// The rules of the machines that fired since this core was made, each once: what a history of it can show at most.
    pub fn fired(&self) -> (&[&'static HostRule], &[&'static ClusterRule]) {
        (&self.fired_of_hosts, &self.fired_of_clusters)
    }

    /// Which rule of the hosts' machines fired right after which other one for the same host, each pair once.
    pub fn pairs(&self) -> &[(&'static HostRule, &'static HostRule)] {
        &self.pairs
    }

    /// Lets the monitors look so much later than at the multiples of their intervals.
    pub fn shift_monitors(&mut self, hosts: Duration, clusters: Duration) {
        self.phases = [hosts, clusters];
    }

    /// The operations of the API that were asked for since this core was made, by the names of its schema, with the statuses of the
    /// answers. A path that the API does not have is an operation without a name.
    pub fn answered(&self) -> &BTreeSet<(&'static str, u16)> {
        &self.answered
    }

    /// The configuration that the core was made with.
    pub fn config(&self) -> &CoreConfig {
        &self.config
    }

    /// Is the service wrong in this place?
    fn does(&self, conduct: Conduct) -> bool {
        self.config.alteration == Some(Alteration::Conduct(conduct))
    }

    /// Is it wrong in a way that shows only at the wrong moment?
    fn is_planted(&self, planted: Planted) -> bool {
        self.config.alteration == Some(Alteration::Planted(planted))
    }

    /// What is wrong with the controllers.
    fn wrong_controller(&self) -> Option<kube::WrongController> {
        match self.config.alteration {
            Some(Alteration::Controllers(wrong)) => Some(wrong),
            _ => None,
        }
    }

    /// Does it store the events of what it does before the rest, on purpose?
    pub fn stores_events_first(&self) -> bool {
        self.is_planted(Planted::EventsFirst)
    }

    /// URL under which hosts reach the service.
    fn base_url(&self) -> &str {
        let own = self.config.settings.service_base_url.as_str();
        if own.is_empty() { &self.config.base_url } else { own }
    }

    fn begin(&mut self, now: Timestamp) -> Timestamp {
        let now = floor_ms(now);
        self.state.clock = now;
        self.state.write_late_events();
        if !self.begun {
            // What was stored is looked at on the first tick, not at once.
            self.begun = true;
            self.state.deal_anew(now);
            self.last_host_tick = now;
            self.last_cluster_tick = now;
        }
        now
    }

    /// Does what is due: background preparation, host monitor, cluster monitor.
    pub fn wake(&mut self, now: Timestamp) {
        let now = self.begin(now);
        for id in self.state.preparations.take_due(now) {
            self.prepare(now, id);
        }
        if self.paced.is_some() {
            return self.wake_at_pace(now);
        }
        if self.next_host_tick().is_some_and(|at| at <= now) {
            self.last_host_tick = now;
            self.run_host_monitor(now);
        }
        if self.next_cluster_tick().is_some_and(|at| at <= now) {
            self.last_cluster_tick = now;
            self.run_cluster_monitor(now);
        }
    }

    fn next_host_tick(&self) -> Option<Timestamp> {
        let work = self.state.host_agenda.next().filter(|_| self.begun)?;
        Some(monitor::tick(self.config.settings.host_monitor_interval, self.phases[0], self.last_host_tick, work))
    }

    fn next_cluster_tick(&self) -> Option<Timestamp> {
        let work = self.state.cluster_agenda.next().filter(|_| self.begun)?;
        let interval = self.config.settings.cluster_monitor_interval;
        Some(monitor::tick(interval, self.phases[1], self.last_cluster_tick, work))
    }

    /// When [`Core::wake`] has something to do next. `None`: nothing, until a request changes something. A core that was
    /// never told the time answers `None`: wake it once at the start.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let [hosts, clusters] = match &self.paced {
            None => [self.next_host_tick(), self.next_cluster_tick()],
            Some(_) => [self.next_look(), None],
        };
        [self.state.preparations.next(), hosts, clusters].into_iter().flatten().min()
    }

    /// Changes since the last call, in the order in which they happened. Those of one request (or one run of a monitor) are
    /// together; a row that changed in several requests is in it several times.
    pub fn take_writes(&mut self) -> Vec<Write> {
        self.state.take_writes()
    }

    /// All changes up to now are stored.
    pub fn confirm(&mut self) {
        self.state.confirm();
    }

    /// Storing failed: the state is what it was at the last [`Core::confirm`] (or at the start).
    pub fn rollback(&mut self) {
        self.state.rollback();
    }

    /// All rows as a restart would read them (for tests and for stores that keep no rows of their own).
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.state.snapshot();
        if self.does(Conduct::RestartForgets) {
            snapshot.hosts.clear();
        }
        snapshot
    }

    /// Counts for the metrics page.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            infra_envs: self.state.infra_envs().len() as u64,
            events: self.state.events().len() as u64,
            host_monitor_runs: self.host_monitor_runs,
            cluster_monitor_runs: self.cluster_monitor_runs,
            hosts_refreshed: self.hosts_refreshed,
            ..Stats::default()
        };
        for row in self.state.all_hosts() {
            *stats.hosts.entry(row.host().status.as_str()).or_default() += 1;
        }
        for row in self.state.clusters() {
            *stats.clusters.entry(row.cluster().status.as_str()).or_default() += 1;
        }
        for (_, bytes) in self.state.files() {
            stats.files.0 += 1;
            stats.files.1 += bytes.len() as u64;
        }
        stats
    }
}
