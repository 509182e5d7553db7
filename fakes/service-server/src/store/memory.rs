//! The store that forgets when its last handle goes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::{PoolState, RowStep, Store, StoreError, fold};
use vlab_service::{ClusterRow, EventRow, FileRow, HostRow, InfraEnvRow, Snapshot, Write};

/// Rows in memory. Clones are handles to the same rows, as two connections to one database would be.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    tables: Arc<Mutex<Tables>>,
}

#[derive(Debug, Default)]
struct Tables {
    clusters: BTreeMap<Uuid, Arc<ClusterRow>>,
    infra_envs: BTreeMap<Uuid, Arc<InfraEnvRow>>,
    /// By (infra-env, host).
    hosts: BTreeMap<(Uuid, Uuid), Arc<HostRow>>,
    events: BTreeMap<u64, EventRow>,
    files: BTreeMap<String, Arc<[u8]>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// All rows, without async: for the simulator.
    pub fn snapshot(&self) -> Snapshot {
        let tables = self.tables();
        Snapshot {
            clusters: tables.clusters.values().map(|r| (**r).clone()).collect(),
            infra_envs: tables.infra_envs.values().map(|r| (**r).clone()).collect(),
            hosts: tables.hosts.values().map(|r| (**r).clone()).collect(),
            events: tables.events.values().cloned().collect(),
            files: tables.files.iter().map(|(key, bytes)| FileRow { key: key.clone(), bytes: bytes.clone() }).collect(),
        }
    }

    /// Stores a batch, without async: for the simulator.
    ///
    /// # Errors
    /// [`StoreError::Rejected`] for an event whose position is taken; nothing of the batch is stored then.
    pub fn apply(&self, writes: Vec<Write>) -> Result<(), StoreError> {
        let batch = fold(writes);
        let mut tables = self.tables();
        let mut seen = std::collections::BTreeSet::new();
        if let Some(event) = batch.events.iter().find(|e| tables.events.contains_key(&e.seq) || !seen.insert(e.seq)) {
            return Err(StoreError::Rejected(format!("event {} is stored already", event.seq)));
        }
        for step in batch.steps {
            match step {
                RowStep::PutClusters(rows) => tables.clusters.extend(rows.into_iter().map(|r| (r.view.cluster.id, r))),
                RowStep::DeleteClusters(ids) => ids.iter().for_each(|id| drop(tables.clusters.remove(id))),
                RowStep::PutInfraEnvs(rows) => tables.infra_envs.extend(rows.into_iter().map(|r| (r.infra_env.id, r))),
                RowStep::DeleteInfraEnvs(ids) => ids.iter().for_each(|id| drop(tables.infra_envs.remove(id))),
                RowStep::PutHosts(rows) => {
                    tables.hosts.extend(rows.into_iter().map(|r| ((r.infra_env_id(), r.view.host.id), r)));
                }
                RowStep::DeleteHosts(keys) => keys.iter().for_each(|key| drop(tables.hosts.remove(key))),
            }
        }
        for (key, (checked_in_at, timestamp)) in batch.heartbeats {
            if let Some(row) = tables.hosts.get_mut(&key) {
                let host = &mut Arc::make_mut(row).view.host;
                host.checked_in_at = Some(checked_in_at);
                host.timestamp = timestamp.or(host.timestamp);
            }
        }
        for (key, bytes) in batch.files {
            match bytes {
                Some(bytes) => drop(tables.files.insert(key, bytes)),
                None => drop(tables.files.remove(&key)),
            }
        }
        tables.events.extend(batch.events.into_iter().map(|e| (e.seq, e)));
        Ok(())
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // A panic while the lock was held cannot leave half a batch: the maps are only touched after all checks.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    async fn load(&mut self) -> Result<Snapshot, StoreError> {
        Ok(self.snapshot())
    }

    async fn commit(&mut self, writes: Vec<Write>) -> Result<(), StoreError> {
        self.apply(writes)
    }

    async fn health(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn pool(&self) -> PoolState {
        PoolState::default()
    }
}
