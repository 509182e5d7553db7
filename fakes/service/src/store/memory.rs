//! The store that forgets when its last handle goes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::{PoolState, Store, StoreError, fold};
use crate::core::{ClusterRow, EventRow, FileRow, HostRow, InfraEnvRow, Snapshot, Write};

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
        put(&mut tables.clusters, batch.clusters);
        put(&mut tables.infra_envs, batch.infra_envs);
        put(&mut tables.files, batch.files);
        for (key, write) in batch.hosts {
            match write.row {
                Some(Some(row)) => {
                    tables.hosts.insert(key, row);
                }
                Some(None) => {
                    tables.hosts.remove(&key);
                }
                None => {}
            }
            if let (Some((checked_in_at, timestamp)), Some(row)) = (write.heartbeat, tables.hosts.get_mut(&key)) {
                let host = &mut Arc::make_mut(row).view.host;
                host.checked_in_at = Some(checked_in_at);
                host.timestamp = timestamp.or(host.timestamp);
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

fn put<K: Ord, V>(table: &mut BTreeMap<K, V>, rows: BTreeMap<K, Option<V>>) {
    for (key, row) in rows {
        match row {
            Some(row) => {
                table.insert(key, row);
            }
            None => {
                table.remove(&key);
            }
        }
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
