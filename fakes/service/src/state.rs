//! The tables in memory, and the one place through which they change. Every change leaves its pre-image here (for
//! [`ServiceState::rollback`]) and becomes a [`Write`]; it also says whose turn it is with the monitors.
//!
//! Everything is in whole milliseconds, because that is what survives the stored JSON: the core rounds `now` down on the way
//! in, and due times up on the way out. So a restart from the stored rows sees exactly what the running service saw.

mod touches;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, Event, HostStatus, Severity, Text};

use self::touches::Touches;
use crate::alteration::{Alteration, Conduct, EVENT_LATE_BY, WrongEvent, other_severity};
use crate::rows::{ClusterRow, EventRow, FileRow, HostRow, InfraEnvRow, Snapshot, Write};

/// A host's key: infra-env and host.
pub(crate) type HostKey = (Uuid, Uuid);

/// Work by the time at which it is due. One entry per key; scheduling again keeps the earlier time.
#[derive(Clone, Debug)]
pub(crate) struct Agenda<K> {
    by_time: BTreeSet<(Timestamp, K)>,
    by_key: BTreeMap<K, Timestamp>,
}

impl<K> Default for Agenda<K> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), by_key: BTreeMap::new() }
    }
}

impl<K: Ord + Copy> Agenda<K> {
    pub(crate) fn schedule(&mut self, key: K, at: Timestamp) {
        match self.by_key.get(&key) {
            Some(old) if *old <= at => return,
            Some(old) => {
                self.by_time.remove(&(*old, key));
            }
            None => {}
        }
        self.by_key.insert(key, at);
        self.by_time.insert((at, key));
    }

    pub(crate) fn forget(&mut self, key: K) {
        if let Some(at) = self.by_key.remove(&key) {
            self.by_time.remove(&(at, key));
        }
    }

    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes that one out, if it is due at `now`.
    pub(crate) fn take(&mut self, key: K, now: Timestamp) -> bool {
        let due = self.by_key.get(&key).is_some_and(|at| *at <= now);
        if due {
            self.forget(key);
        }
        due
    }

    /// Takes out what is due at `now`.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Vec<K> {
        let mut due = Vec::new();
        while let Some((at, key)) = self.by_time.first().copied() {
            if at > now {
                break;
            }
            self.by_time.remove(&(at, key));
            self.by_key.remove(&key);
            due.push(key);
        }
        due
    }
}

/// Pre-image of one change; undone last to first.
#[derive(Clone, Debug)]
enum Undo {
    Cluster(Uuid, Option<Arc<ClusterRow>>),
    InfraEnv(Uuid, Option<Arc<InfraEnvRow>>),
    Host(HostKey, Option<Arc<HostRow>>),
    Heartbeat(HostKey, Option<Timestamp>, Option<i64>),
    Event,
    File(String, Option<Arc<[u8]>>),
}

/// What a unit of work (one request, one run of a monitor) touched; its final value is what gets written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Touched {
    Cluster(Uuid),
    InfraEnv(Uuid),
    Host(HostKey),
    Heartbeat(HostKey),
    Event(u64),
    File(String),
}

/// The tables.
#[derive(Debug)]
pub(crate) struct ServiceState {
    clusters: BTreeMap<Uuid, Arc<ClusterRow>>,
    infra_envs: BTreeMap<Uuid, Arc<InfraEnvRow>>,
    hosts: BTreeMap<HostKey, Arc<HostRow>>,
    events: Vec<EventRow>,
    files: BTreeMap<String, Arc<[u8]>>,
    // Derived from the tables.
    by_cluster: BTreeMap<Uuid, BTreeMap<u64, HostKey>>,
    events_by_cluster: BTreeMap<Uuid, Vec<u64>>,
    events_by_infra_env: BTreeMap<Uuid, Vec<u64>>,
    events_by_host: BTreeMap<Uuid, Vec<u64>>,
    /// The infra-envs that know a host: one that has changed its discovery image is known to two.
    envs_of_host: BTreeMap<Uuid, BTreeSet<Uuid>>,
    next_ordinal: u64,
    // The open transaction.
    undo: Vec<Undo>,
    touched: Vec<Touched>,
    touched_set: BTreeSet<Touched>,
    writes: Vec<Write>,
    rng: ChaCha8Rng,
    rng_confirmed: ChaCha8Rng,
    ordinal_confirmed: u64,
    // Whose turn it is.
    pub(crate) host_agenda: Agenda<HostKey>,
    pub(crate) cluster_agenda: Agenda<Uuid>,
    pub(crate) preparations: Agenda<Uuid>,
    /// Clusters whose majority groups and address collisions must be computed again.
    pub(crate) stale_connectivity: BTreeSet<Uuid>,
    /// Id of the request that is being handled, for its events.
    pub(crate) request_id: Option<Uuid>,
    /// The instant of the unit of work that runs: what it puts on an agenda "at once" is due from then on.
    pub(crate) clock: Timestamp,
    altered: Altered,
    /// When what was touched, for monitors with a pace.
    pub(crate) touches: Touches,
}

/// What is wrong on purpose with what is written, and what that needs.
#[derive(Debug, Default)]
struct Altered {
    alteration: Option<Alteration>,
    /// Rows as they should be.
    hosts: BTreeMap<HostKey, HostRow>,
    clusters: BTreeMap<Uuid, ClusterRow>,
    /// Rows as they should have been when the unit of work began, for what is written with the next one: within a unit a row is
    /// written once, so what another edit of the same unit makes good was never wrong.
    hosts_before: BTreeMap<HostKey, HostRow>,
    clusters_before: BTreeMap<Uuid, ClusterRow>,
    /// Events that are late, and when they come.
    late: VecDeque<(Timestamp, Event)>,
}

impl ServiceState {
    pub(crate) fn new(seed: u64, snapshot: Snapshot, alteration: Option<Alteration>) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let mut state = Self {
            clusters: BTreeMap::new(),
            infra_envs: BTreeMap::new(),
            hosts: BTreeMap::new(),
            events: Vec::new(),
            files: snapshot.files.into_iter().map(|f| (f.key, f.bytes)).collect(),
            by_cluster: BTreeMap::new(),
            events_by_cluster: BTreeMap::new(),
            events_by_infra_env: BTreeMap::new(),
            events_by_host: BTreeMap::new(),
            envs_of_host: BTreeMap::new(),
            next_ordinal: 0,
            undo: Vec::new(),
            touched: Vec::new(),
            touched_set: BTreeSet::new(),
            writes: Vec::new(),
            rng_confirmed: rng.clone(),
            rng,
            ordinal_confirmed: 0,
            host_agenda: Agenda::default(),
            cluster_agenda: Agenda::default(),
            preparations: Agenda::default(),
            stale_connectivity: BTreeSet::new(),
            request_id: None,
            clock: Timestamp::UNSET,
            altered: Altered { alteration, ..Altered::default() },
            touches: Touches::default(),
        };
        for row in snapshot.clusters {
            state.next_ordinal = state.next_ordinal.max(row.private.ordinal + 1);
            state.set_cluster(row.view.cluster.id, Some(Arc::new(row)));
        }
        for row in snapshot.infra_envs {
            state.next_ordinal = state.next_ordinal.max(row.ordinal + 1);
            state.infra_envs.insert(row.infra_env.id, Arc::new(row));
        }
        for row in snapshot.hosts {
            state.next_ordinal = state.next_ordinal.max(row.private.ordinal + 1);
            state.set_host((row.infra_env_id(), row.host().id), Some(Arc::new(row)));
        }
        let mut events = snapshot.events;
        events.sort_by_key(|e| e.seq);
        for row in events {
            state.push_event(row);
        }
        state.ordinal_confirmed = state.next_ordinal;
        state
    }

    // --- reading ---

    pub(crate) fn cluster(&self, id: Uuid) -> Option<&Arc<ClusterRow>> {
        self.clusters.get(&id)
    }

    pub(crate) fn infra_env(&self, id: Uuid) -> Option<&Arc<InfraEnvRow>> {
        self.infra_envs.get(&id)
    }

    pub(crate) fn host(&self, key: HostKey) -> Option<&Arc<HostRow>> {
        self.hosts.get(&key)
    }

    /// Clusters in order of creation.
    pub(crate) fn clusters(&self) -> Vec<&Arc<ClusterRow>> {
        let mut rows: Vec<_> = self.clusters.values().collect();
        rows.sort_by_key(|r| r.private.ordinal);
        rows
    }

    /// Clusters in the order of their ids.
    pub(crate) fn clusters_by_id(&self) -> impl Iterator<Item = (&Uuid, &Arc<ClusterRow>)> {
        self.clusters.iter()
    }

    /// Infra-envs with hosts that are in no cluster.
    pub(crate) fn infra_envs_with_a_pool(&self) -> Vec<Uuid> {
        let pool = self.hosts.iter().filter(|(_, row)| row.host().cluster_id.is_none());
        let mut ids: Vec<Uuid> = pool.map(|((infra_env, _), _)| *infra_env).collect();
        ids.dedup();
        ids
    }

    /// Keys of an infra-env's hosts that are in no cluster.
    pub(crate) fn pool_keys(&self, infra_env: Uuid) -> Vec<HostKey> {
        let of = self.hosts.range((infra_env, Uuid::nil())..=(infra_env, Uuid::max()));
        of.filter(|(_, row)| row.host().cluster_id.is_none()).map(|(key, _)| *key).collect()
    }

    /// Infra-envs in order of creation.
    pub(crate) fn infra_envs(&self) -> Vec<&Arc<InfraEnvRow>> {
        let mut rows: Vec<_> = self.infra_envs.values().collect();
        rows.sort_by_key(|r| r.ordinal);
        rows
    }

    /// Hosts of an infra-env in order of registration.
    pub(crate) fn hosts_of_infra_env(&self, id: Uuid) -> Vec<&Arc<HostRow>> {
        let mut rows: Vec<_> = self.hosts.range((id, Uuid::nil())..=(id, Uuid::max())).map(|(_, r)| r).collect();
        rows.sort_by_key(|r| r.private.ordinal);
        rows
    }

    /// Hosts of a cluster in order of registration. The rows are shared, not copied.
    pub(crate) fn hosts_of_cluster(&self, id: Uuid) -> Vec<Arc<HostRow>> {
        let keys = self.by_cluster.get(&id);
        keys.into_iter().flat_map(|k| k.values()).filter_map(|k| self.hosts.get(k).cloned()).collect()
    }

    /// Keys of a cluster's hosts in order of registration.
    pub(crate) fn host_keys_of_cluster(&self, id: Uuid) -> Vec<HostKey> {
        self.by_cluster.get(&id).into_iter().flat_map(|k| k.values()).copied().collect()
    }

    /// A host by its id alone, wherever it is.
    pub(crate) fn find_host(&self, id: Uuid) -> Option<&Arc<HostRow>> {
        let infra_env = self.envs_of_host.get(&id)?.first()?;
        self.hosts.get(&(*infra_env, id))
    }

    pub(crate) fn all_hosts(&self) -> impl Iterator<Item = &Arc<HostRow>> {
        self.hosts.values()
    }

    pub(crate) fn events(&self) -> &[EventRow] {
        &self.events
    }

    /// Positions of a cluster's events, ascending.
    pub(crate) fn events_of_cluster(&self, id: Uuid) -> &[u64] {
        self.events_by_cluster.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The same of an infra-env.
    pub(crate) fn events_of_infra_env(&self, id: Uuid) -> &[u64] {
        self.events_by_infra_env.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The same of a host, in whatever infra-env.
    pub(crate) fn events_of_host(&self, id: Uuid) -> &[u64] {
        self.events_by_host.get(&id).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn file(&self, key: &str) -> Option<&Arc<[u8]>> {
        self.files.get(key)
    }

    /// Files whose key begins with `prefix`, by key.
    pub(crate) fn files_under<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a Arc<[u8]>)> {
        self.files.range(prefix.to_owned()..).take_while(move |(k, _)| k.starts_with(prefix))
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (&String, &Arc<[u8]>)> {
        self.files.iter()
    }

    // --- chance ---

    /// A random (version 4) id.
    pub(crate) fn new_id(&mut self) -> Uuid {
        let mut bytes = [0; 16];
        self.rng.fill_bytes(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// A service that begins with what another has stored must not deal the ids of that one again. What was dealt is not stored
    /// (the ids of steps), so how much is stored does not say it; when it was started does.
    pub(crate) fn deal_anew(&mut self, now: Timestamp) {
        if !self.events.is_empty() {
            self.rng.set_stream((now.as_micros().unsigned_abs() << 12) ^ self.events.len() as u64);
            self.rng_confirmed = self.rng.clone();
        }
    }

    /// Random bytes for keys.
    pub(crate) fn new_seed(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }

    /// Random 32 bits for step ids.
    pub(crate) fn new_u32(&mut self) -> u32 {
        self.rng.next_u32()
    }

    /// Next position in the order of creation.
    pub(crate) fn new_ordinal(&mut self) -> u64 {
        self.next_ordinal += 1;
        self.next_ordinal - 1
    }

    // --- changing ---

    fn touch(&mut self, what: Touched) {
        if self.touched_set.insert(what.clone()) {
            self.touched.push(what);
        }
    }

    /// Puts a row into the table and its indices, without recording anything.
    fn set_cluster(&mut self, id: Uuid, row: Option<Arc<ClusterRow>>) {
        self.preparations.forget(id);
        match row {
            Some(row) => {
                if let Some(due) = row.private.preparation_due {
                    self.preparations.schedule(id, due);
                }
                self.cluster_agenda.schedule(id, self.clock);
                self.touches.of_cluster(self.clusters.get(&id), &row, self.clock);
                let networks = &row.view.cluster.machine_networks;
                if self.clusters.get(&id).is_none_or(|old| old.view.cluster.machine_networks != *networks) {
                    self.stale_connectivity.insert(id);
                }
                self.clusters.insert(id, row);
            }
            None => {
                self.clusters.remove(&id);
                self.cluster_agenda.forget(id);
            }
        }
    }

    fn set_host(&mut self, key: HostKey, row: Option<Arc<HostRow>>) {
        fn seen(row: &Arc<HostRow>) -> (Option<Uuid>, &Option<Text>, &Option<Text>, HostStatus) {
            let host = row.host();
            (host.cluster_id, &host.inventory, &host.connectivity, host.status)
        }
        let old = self.hosts.get(&key);
        if old.map(seen) != row.as_ref().map(seen) {
            let clusters = [old.and_then(|r| r.host().cluster_id), row.as_ref().and_then(|r| r.host().cluster_id)];
            self.stale_connectivity.extend(clusters.into_iter().flatten());
        }
        let old_place = self.hosts.get(&key).map(|r| (r.host().cluster_id, r.private.ordinal));
        let new_place = row.as_ref().map(|r| (r.host().cluster_id, r.private.ordinal));
        if old_place != new_place {
            if let Some((Some(cluster), ordinal)) = old_place
                && let Some(keys) = self.by_cluster.get_mut(&cluster)
            {
                keys.remove(&ordinal);
                if keys.is_empty() {
                    self.by_cluster.remove(&cluster);
                }
            }
            if let Some((Some(cluster), ordinal)) = new_place {
                self.by_cluster.entry(cluster).or_default().insert(ordinal, key);
            }
        }
        match row {
            Some(row) => {
                self.host_agenda.schedule(key, self.clock);
                self.touches.of_host(self.hosts.get(&key), &row, self.clock);
                self.hosts.insert(key, row);
                self.envs_of_host.entry(key.1).or_default().insert(key.0);
            }
            None => {
                self.hosts.remove(&key);
                if let Some(infra_envs) = self.envs_of_host.get_mut(&key.1) {
                    infra_envs.remove(&key.0);
                }
                self.host_agenda.forget(key);
            }
        }
    }

    fn push_event(&mut self, row: EventRow) {
        if let Some(cluster) = row.event.cluster_id {
            self.events_by_cluster.entry(cluster).or_default().push(row.seq);
        }
        if let Some(infra_env) = row.event.infra_env_id {
            self.events_by_infra_env.entry(infra_env).or_default().push(row.seq);
        }
        if let Some(host) = row.event.host_id {
            self.events_by_host.entry(host).or_default().push(row.seq);
        }
        self.events.push(row);
    }

    /// All hosts of the cluster may judge differently now.
    fn wake_hosts_of(&mut self, cluster: Uuid) {
        for key in self.host_keys_of_cluster(cluster) {
            self.host_agenda.schedule(key, self.clock);
        }
    }

    /// Inserts a new cluster.
    pub(crate) fn insert_cluster(&mut self, row: ClusterRow) {
        let id = row.view.cluster.id;
        self.undo.push(Undo::Cluster(id, self.clusters.get(&id).cloned()));
        self.set_cluster(id, Some(Arc::new(row)));
        self.touch(Touched::Cluster(id));
    }

    /// Changes a cluster. Nothing is recorded when nothing changed. Returns whether something did.
    pub(crate) fn edit_cluster(&mut self, id: Uuid, now: Timestamp, edit: impl FnOnce(&mut ClusterRow)) -> bool {
        let Some(old) = self.clusters.get(&id).cloned() else { return false };
        let mut new = self.altered.clusters.get(&id).unwrap_or(&old).clone();
        // What is noted without an edit is not altered.
        new.view.cluster.updated_at = old.view.cluster.updated_at;
        edit(&mut new);
        if let Some(alteration @ Alteration::ClusterMember(..)) = self.altered.alteration {
            let meant = self.altered.clusters.get(&id).unwrap_or(&old);
            let before = self.altered.clusters_before.entry(id).or_insert_with(|| meant.clone());
            if let Some(wrong) = alteration.cluster_row(&old, before, &new) {
                self.altered.clusters.insert(id, std::mem::replace(&mut new, wrong));
            }
        }
        if new == *old {
            return false;
        }
        new.view.cluster.updated_at = Some(now);
        if matters_to_hosts(&old, &new) {
            self.wake_hosts_of(id);
        }
        self.undo.push(Undo::Cluster(id, Some(old)));
        self.set_cluster(id, Some(Arc::new(new)));
        self.touch(Touched::Cluster(id));
        true
    }

    /// Removes a cluster; its hosts and files are the caller's business.
    pub(crate) fn delete_cluster(&mut self, id: Uuid) {
        if let Some(old) = self.clusters.get(&id).cloned() {
            self.undo.push(Undo::Cluster(id, Some(old)));
            self.set_cluster(id, None);
            self.altered.clusters.remove(&id);
            self.altered.clusters_before.remove(&id);
            self.touch(Touched::Cluster(id));
        }
    }

    /// Inserts a new infra-env.
    pub(crate) fn insert_infra_env(&mut self, row: InfraEnvRow) {
        let id = row.infra_env.id;
        self.undo.push(Undo::InfraEnv(id, self.infra_envs.get(&id).cloned()));
        self.infra_envs.insert(id, Arc::new(row));
        self.touch(Touched::InfraEnv(id));
    }

    /// Changes an infra-env; its hosts are looked at again.
    pub(crate) fn edit_infra_env(&mut self, id: Uuid, now: Timestamp, edit: impl FnOnce(&mut InfraEnvRow)) -> bool {
        let Some(old) = self.infra_envs.get(&id).cloned() else { return false };
        let mut new = (*old).clone();
        edit(&mut new);
        if new == *old {
            return false;
        }
        new.infra_env.updated_at = now;
        self.undo.push(Undo::InfraEnv(id, Some(old)));
        self.infra_envs.insert(id, Arc::new(new));
        self.touch(Touched::InfraEnv(id));
        let keys: Vec<HostKey> = self.hosts.range((id, Uuid::nil())..=(id, Uuid::max())).map(|(k, _)| *k).collect();
        for key in keys {
            self.host_agenda.schedule(key, self.clock);
        }
        true
    }

    /// Removes an infra-env.
    pub(crate) fn delete_infra_env(&mut self, id: Uuid) {
        if let Some(old) = self.infra_envs.remove(&id) {
            self.undo.push(Undo::InfraEnv(id, Some(old)));
            self.touch(Touched::InfraEnv(id));
        }
    }

    /// Inserts a new host (or one that was deleted before).
    pub(crate) fn insert_host(&mut self, row: HostRow) {
        let key = (row.infra_env_id(), row.host().id);
        let cluster = row.host().cluster_id;
        self.undo.push(Undo::Host(key, self.hosts.get(&key).cloned()));
        self.set_host(key, Some(Arc::new(row)));
        self.touch(Touched::Host(key));
        if let Some(cluster) = cluster {
            self.cluster_agenda.schedule(cluster, self.clock);
            self.wake_hosts_of(cluster);
        }
    }

    /// Changes a host. Nothing is recorded when nothing changed. Returns whether something did.
    pub(crate) fn edit_host(&mut self, key: HostKey, now: Timestamp, edit: impl FnOnce(&mut HostRow)) -> bool {
        let Some(old) = self.hosts.get(&key).cloned() else { return false };
        let mut new = self.altered.hosts.get(&key).unwrap_or(&old).clone();
        // What is noted without an edit is not altered.
        let (noted, host) = (&old.view.host, &mut new.view.host);
        (host.updated_at, host.checked_in_at, host.timestamp) =
            (noted.updated_at, noted.checked_in_at, noted.timestamp);
        edit(&mut new);
        if let Some(alteration @ Alteration::HostMember(..)) = self.altered.alteration {
            let meant = self.altered.hosts.get(&key).unwrap_or(&old);
            let before = self.altered.hosts_before.entry(key).or_insert_with(|| meant.clone());
            if let Some(wrong) = alteration.host_row(&old, before, &new) {
                self.altered.hosts.insert(key, std::mem::replace(&mut new, wrong));
            }
        }
        if new == *old {
            return false;
        }
        new.view.host.updated_at = Some(now);
        let clusters = [old.host().cluster_id, new.host().cluster_id];
        let others = matters_to_others(&old, &new);
        self.undo.push(Undo::Host(key, Some(old)));
        self.set_host(key, Some(Arc::new(new)));
        self.touch(Touched::Host(key));
        for cluster in clusters.into_iter().flatten() {
            self.cluster_agenda.schedule(cluster, self.clock);
            if others {
                self.wake_hosts_of(cluster);
            }
        }
        true
    }

    /// Removes a host.
    pub(crate) fn delete_host(&mut self, key: HostKey) {
        if let Some(old) = self.hosts.get(&key).cloned() {
            let cluster = old.host().cluster_id;
            self.undo.push(Undo::Host(key, Some(old)));
            self.set_host(key, None);
            self.altered.hosts.remove(&key);
            self.altered.hosts_before.remove(&key);
            self.touch(Touched::Host(key));
            if let Some(cluster) = cluster {
                self.cluster_agenda.schedule(cluster, self.clock);
                self.wake_hosts_of(cluster);
            }
        }
    }

    /// A host polled. The monitor looks at it only when that can change its mind: it was not connected, or its clock was
    /// not known, or is far off.
    pub(crate) fn heartbeat(&mut self, key: HostKey, now: Timestamp, timestamp: Option<i64>) {
        const SUSPICIOUS_SECS: u64 = 60;
        let Some(arc) = self.hosts.get_mut(&key) else { return };
        // In place when nobody else holds the row, which is the rule.
        let row = Arc::make_mut(arc);
        let host = &mut row.view.host;
        self.undo.push(Undo::Heartbeat(key, host.checked_in_at, host.timestamp));
        let off = |t: Option<i64>| t.is_none_or(|t| t.abs_diff(now.as_secs()) > SUSPICIOUS_SECS);
        let late = host.timestamp.is_none() && timestamp.is_some()
            || timestamp.is_some() && off(timestamp)
            || timestamp.is_some()
                && host
                    .checked_in_at
                    .is_some_and(|c| host.timestamp.is_some_and(|t| t.abs_diff(c.as_secs()) > SUSPICIOUS_SECS));
        let lost = matches!(host.status, HostStatus::Disconnected | HostStatus::DisconnectedUnbound)
            || host.connection_timed_out == Some(true);
        let lost = lost && self.altered.alteration != Some(Alteration::Conduct(Conduct::ReturnNotNoticed));
        host.checked_in_at = Some(now);
        if timestamp.is_some() {
            host.timestamp = timestamp;
        }
        let cluster = host.cluster_id;
        self.touch(Touched::Heartbeat(key));
        if late || lost {
            self.host_agenda.schedule(key, self.clock);
            if let (true, Some(cluster)) = (late, cluster) {
                self.cluster_agenda.schedule(cluster, self.clock);
            }
        }
    }

    /// Appends an event.
    pub(crate) fn append_event(&mut self, mut event: Event) {
        event.request_id = self.request_id;
        match self.altered.alteration {
            Some(Alteration::Event(name, how)) if event.name.as_deref() == Some(name) => match how {
                WrongEvent::Missing => return,
                WrongEvent::Twice => self.write_event(event.clone()),
                WrongEvent::Late => return self.altered.late.push_back((event.event_time + EVENT_LATE_BY, event)),
                WrongEvent::OtherSeverity => event.severity = other_severity(event.severity),
            },
            _ => {}
        }
        self.write_event(event);
    }

    /// Writes the events that are late on purpose and whose time has come.
    pub(crate) fn write_late_events(&mut self) {
        while self.altered.late.front().is_some_and(|(at, _)| *at <= self.clock) {
            let Some((_, mut event)) = self.altered.late.pop_front() else { return };
            event.event_time = self.clock;
            self.write_event(event);
        }
    }

    fn write_event(&mut self, event: Event) {
        let seq = self.events.len() as u64;
        self.undo.push(Undo::Event);
        self.push_event(EventRow { seq, event });
        self.touch(Touched::Event(seq));
    }

    /// Inserts or replaces a file.
    pub(crate) fn put_file(&mut self, key: String, bytes: Vec<u8>) {
        let bytes: Arc<[u8]> = bytes.into();
        let old = self.files.insert(key.clone(), bytes);
        self.undo.push(Undo::File(key.clone(), old));
        self.touch(Touched::File(key));
    }

    /// Removes a file, if it is there.
    pub(crate) fn delete_file(&mut self, key: &str) {
        if let Some(old) = self.files.remove(key) {
            self.undo.push(Undo::File(key.to_owned(), Some(old)));
            self.touch(Touched::File(key.to_owned()));
        }
    }

    // --- transactions ---

    /// Ends a unit of work: what it touched becomes writes. Within a unit only the last value of a row is written; between
    /// units every value is, so that a reader of the stored rows sees every transition.
    pub(crate) fn end_unit(&mut self) {
        self.request_id = None;
        self.altered.hosts_before.clear();
        self.altered.clusters_before.clear();
        self.touched_set.clear();
        let touched = std::mem::take(&mut self.touched);
        // A row that was put has its heartbeat in it.
        let put: BTreeSet<HostKey> =
            touched.iter().filter_map(|t| if let Touched::Host(k) = t { Some(*k) } else { None }).collect();
        for what in touched {
            let write = match what {
                Touched::Cluster(id) => match self.clusters.get(&id) {
                    Some(row) => Write::PutCluster(row.clone()),
                    None => Write::DeleteCluster(id),
                },
                Touched::InfraEnv(id) => match self.infra_envs.get(&id) {
                    Some(row) => Write::PutInfraEnv(row.clone()),
                    None => Write::DeleteInfraEnv(id),
                },
                Touched::Host(key) => match self.hosts.get(&key) {
                    Some(row) => Write::PutHost(row.clone()),
                    None => Write::DeleteHost { infra_env_id: key.0, host_id: key.1 },
                },
                Touched::Heartbeat(key) => match self.hosts.get(&key) {
                    Some(row) if !put.contains(&key) => Write::Heartbeat {
                        infra_env_id: key.0,
                        host_id: key.1,
                        checked_in_at: row.host().checked_in_at.unwrap_or_default(),
                        timestamp: row.host().timestamp,
                    },
                    _ => continue,
                },
                Touched::Event(seq) => match self.events.get(seq as usize) {
                    Some(row) => Write::AppendEvent(row.clone()),
                    None => continue,
                },
                Touched::File(key) => match self.files.get(&key) {
                    Some(bytes) => Write::PutFile(FileRow { key, bytes: bytes.clone() }),
                    None => Write::DeleteFile(key),
                },
            };
            self.writes.push(write);
        }
    }

    pub(crate) fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.writes)
    }

    pub(crate) fn confirm(&mut self) {
        self.undo.clear();
        self.rng_confirmed = self.rng.clone();
        self.ordinal_confirmed = self.next_ordinal;
    }

    pub(crate) fn rollback(&mut self) {
        self.touched.clear();
        self.touched_set.clear();
        self.writes.clear();
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Cluster(id, row) => {
                    self.set_cluster(id, row);
                    self.wake_hosts_of(id);
                }
                Undo::InfraEnv(id, Some(row)) => {
                    self.infra_envs.insert(id, row);
                }
                Undo::InfraEnv(id, None) => {
                    self.infra_envs.remove(&id);
                }
                Undo::Host(key, row) => {
                    let place = self.hosts.get(&key).or(row.as_ref()).and_then(|r| r.host().cluster_id);
                    self.set_host(key, row);
                    if let Some(cluster) = place {
                        self.cluster_agenda.schedule(cluster, self.clock);
                        self.wake_hosts_of(cluster);
                    }
                }
                Undo::Heartbeat(key, checked_in_at, timestamp) => {
                    if let Some(row) = self.hosts.get_mut(&key) {
                        let host = &mut Arc::make_mut(row).view.host;
                        host.checked_in_at = checked_in_at;
                        host.timestamp = timestamp;
                        self.host_agenda.schedule(key, self.clock);
                    }
                }
                Undo::Event => {
                    if let Some(row) = self.events.pop() {
                        forget_last(&mut self.events_by_cluster, row.event.cluster_id);
                        forget_last(&mut self.events_by_infra_env, row.event.infra_env_id);
                        forget_last(&mut self.events_by_host, row.event.host_id);
                    }
                }
                Undo::File(key, Some(bytes)) => {
                    self.files.insert(key, bytes);
                }
                Undo::File(key, None) => {
                    self.files.remove(&key);
                }
            }
        }
        self.rng = self.rng_confirmed.clone();
        self.next_ordinal = self.ordinal_confirmed;
    }

    /// All rows, as a restart would read them.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            clusters: self.clusters.values().map(|r| (**r).clone()).collect(),
            infra_envs: self.infra_envs.values().map(|r| (**r).clone()).collect(),
            hosts: self.hosts.values().map(|r| (**r).clone()).collect(),
            events: self.events.clone(),
            files: self.files.iter().map(|(key, bytes)| FileRow { key: key.clone(), bytes: bytes.clone() }).collect(),
        }
    }
}

/// Takes the last event of that cluster or infra-env out of the index.
fn forget_last(index: &mut BTreeMap<Uuid, Vec<u64>>, of: Option<Uuid>) {
    if let Some(id) = of
        && let Some(seqs) = index.get_mut(&id)
    {
        seqs.pop();
        if seqs.is_empty() {
            index.remove(&id);
        }
    }
}

/// Can hosts judge differently after this change of their cluster? What only counts or reports is left out.
fn matters_to_hosts(old: &ClusterRow, new: &ClusterRow) -> bool {
    const REPORTS: [&str; 10] = [
        "updated_at",
        "progress",
        "validations_info",
        "status_info",
        "host_networks",
        "ready_host_count",
        "enabled_host_count",
        "total_host_count",
        "logs_info",
        "feature_usage",
    ];
    let (a, b) = (&old.view, &new.view);
    // The rest of a view is what the cluster's texts say.
    a.kubeconfig_uploaded != b.kubeconfig_uploaded
        || a.has_custom_manifests != b.has_custom_manifests
        || a.has_pull_secret != b.has_pull_secret
        || a.cluster.differs_beside(&b.cluster, &REPORTS)
}

/// Can the other hosts of the cluster judge differently after this change of one? They look at its name, inventory and
/// role, and, while the cluster installs, at its status.
fn matters_to_others(old: &HostRow, new: &HostRow) -> bool {
    let (a, b) = (&old.view.host, &new.view.host);
    a.cluster_id != b.cluster_id
        || a.requested_hostname != b.requested_hostname
        || a.inventory != b.inventory
        || a.role != b.role
        || a.suggested_role != b.suggested_role
        || a.bootstrap != b.bootstrap
        || (a.status != b.status && (is_installing(a.status) || is_installing(b.status)))
}

/// Is the status one of an installation that runs?
pub(crate) fn is_installing(status: HostStatus) -> bool {
    matches!(
        status,
        HostStatus::Installing
            | HostStatus::InstallingInProgress
            | HostStatus::InstallingPendingUserAction
            | HostStatus::Installed
            | HostStatus::Error
    )
}

/// Statuses in which a cluster can be changed and takes new hosts.
pub(crate) fn is_open(status: ClusterStatus) -> bool {
    matches!(
        status,
        ClusterStatus::Insufficient
            | ClusterStatus::Ready
            | ClusterStatus::PendingForInput
            | ClusterStatus::AddingHosts
    )
}

/// An event of category `user`.
pub(crate) fn user_event(now: Timestamp, name: &str, severity: Severity, message: String) -> Event {
    debug_assert!(
        vlab_model::event::written().any(|known| known == name),
        "the event {name} is missing in the list of events"
    );
    Event {
        name: Some(name.to_owned()),
        severity,
        category: Some("user".to_owned()),
        message,
        event_time: now,
        ..Event::default()
    }
}
