//! Where the API keeps its objects: entries of etcd, one for each object, and one that counts. In memory where a test needs no etcd.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::etcd::{Etcd, EtcdEntry};

/// All objects are below this.
pub const OBJECTS: &str = "/registry/";
/// The entry that every write changes, so that of two who write at once one loses.
pub const COUNTER: &str = "/vlab/counter";

/// Where objects are kept.
#[derive(Debug)]
pub enum Store {
    /// In etcd.
    Etcd(Etcd),
    /// In memory, for as many servers as have it.
    Shared(Arc<Mutex<Memory>>),
}

/// Entries with their revisions.
#[derive(Debug, Default)]
pub struct Memory {
    entries: BTreeMap<String, (Vec<u8>, i64)>,
    last: i64,
}

impl Memory {
    fn entry(&self, key: &str) -> Option<EtcdEntry> {
        let (value, revision) = self.entries.get(key)?;
        Some(EtcdEntry { key: key.to_owned(), value: value.clone(), revision: *revision })
    }
}

impl Store {
    /// An empty store in memory.
    pub fn in_memory() -> Self {
        Self::Shared(Arc::default())
    }

    /// The counter, and the objects that changed after a revision, as they are at one moment.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn look(&self, after: i64) -> io::Result<(Option<EtcdEntry>, Vec<EtcdEntry>)> {
        match self {
            Self::Etcd(etcd) => etcd.look(COUNTER, OBJECTS, after).await,
            Self::Shared(memory) => {
                let memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
                let newer = memory.entries.iter().filter(|(k, (_, r))| k.starts_with(OBJECTS) && *r > after);
                Ok((memory.entry(COUNTER), newer.filter_map(|(k, _)| memory.entry(k)).collect()))
            }
        }
    }

    /// Writes entries (`None`: removes them), all or none: if the counter has still that revision (0: there is none). `None`: somebody
    /// else was faster.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn commit(&self, counter: i64, writes: &[(String, Option<Vec<u8>>)]) -> io::Result<Option<i64>> {
        match self {
            Self::Etcd(etcd) => etcd.commit((COUNTER, counter), writes).await,
            Self::Shared(memory) => {
                let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
                if memory.entry(COUNTER).map_or(0, |e| e.revision) != counter {
                    return Ok(None);
                }
                let Memory { entries, last } = &mut *memory;
                *last += 1;
                for (key, value) in writes {
                    match value {
                        Some(value) => entries.insert(key.clone(), (value.clone(), *last)),
                        None => entries.remove(key),
                    };
                }
                Ok(Some(*last))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> (String, Option<Vec<u8>>) {
        (key.to_owned(), Some(value.as_bytes().to_vec()))
    }

    #[tokio::test]
    async fn who_comes_second_loses() {
        let store = Store::in_memory();
        assert_eq!(store.commit(0, &[put("/registry/a", "1"), put(COUNTER, "1")]).await.unwrap(), Some(1));
        assert_eq!(store.commit(0, &[put("/registry/a", "2"), put(COUNTER, "2")]).await.unwrap(), None);
        assert_eq!(store.commit(1, &[put("/registry/b", "2"), put(COUNTER, "2")]).await.unwrap(), Some(2));
        let (counter, newer) = store.look(1).await.unwrap();
        assert_eq!(counter.map(|c| c.revision), Some(2));
        assert_eq!(newer.iter().map(|e| e.key.as_str()).collect::<Vec<_>>(), ["/registry/b"]);
        store.commit(2, &[("/registry/b".to_owned(), None), put(COUNTER, "3")]).await.unwrap();
        assert_eq!(store.look(0).await.unwrap().1.len(), 1);
    }
}
