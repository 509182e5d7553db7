//! The sans-I/O core of the simulated assisted-service: the whole state in memory, requests in, answers out. No sockets, no
//! clock, no database; randomness only from a stream that is seeded by the configuration.
//!
//! A shell feeds [`Core::handle`] and [`Core::wake`], stores what [`Core::take_writes`] returns, and answers only after
//! that is stored: then [`Core::confirm`], or [`Core::rollback`] when storing failed. [`Core::new`] over the stored rows
//! continues where the writes ended.

mod rows;

use std::collections::BTreeMap;

use vlab_api::Timestamp;
use vlab_api::http::{Request, Response};

pub use rows::{
    ClusterPrivate, ClusterRow, EventRow, FileRow, HostPrivate, HostRow, InfraEnvRow, Snapshot, Write, parse_host,
};

/// Stand-in until the model has its settings; becomes `vlab_model::settings::Settings`.
#[derive(Clone, Debug, Default)]
pub struct Settings {}

/// What a core must know besides its state.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// Tunables of the service.
    pub settings: Settings,
    /// Seed of ids, keys and passwords.
    pub seed: u64,
    /// URL under which hosts reach the service, without the API's path, for example `http://127.0.0.1:8090`.
    pub base_url: String,
    /// URL of the image service, for example `http://127.0.0.1:8888`.
    pub image_service_url: String,
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
}

impl Core {
    /// A service over what was stored. An empty snapshot is a new service.
    pub fn new(config: CoreConfig, snapshot: Snapshot) -> Self {
        let _ = snapshot;
        Self { config }
    }

    /// The configuration that the core was made with.
    pub fn config(&self) -> &CoreConfig {
        &self.config
    }

    /// Answers a request. Everything under the API's base path is known here; any other path is answered 404.
    pub fn handle(&mut self, now: Timestamp, request: &Request) -> Response {
        let _ = (now, request);
        unimplemented!("Core::handle")
    }

    /// Does what is due: background preparation, host monitor, cluster monitor.
    pub fn wake(&mut self, now: Timestamp) {
        let _ = now;
        unimplemented!("Core::wake")
    }

    /// When [`Core::wake`] has something to do next. `None`: nothing, until a request changes something.
    pub fn next_wake(&self) -> Option<Timestamp> {
        unimplemented!("Core::next_wake")
    }

    /// Changes since the last call, in the order in which they happened.
    pub fn take_writes(&mut self) -> Vec<Write> {
        unimplemented!("Core::take_writes")
    }

    /// All changes up to now are stored.
    pub fn confirm(&mut self) {
        unimplemented!("Core::confirm")
    }

    /// Storing failed: the state is what it was at the last [`Core::confirm`] (or at the start).
    pub fn rollback(&mut self) {
        unimplemented!("Core::rollback")
    }

    /// Counts for the metrics page.
    pub fn stats(&self) -> Stats {
        unimplemented!("Core::stats")
    }
}
