//! Objects of the API in etcd: one entry for each, JSON as clients sent it. In memory where a test needs no etcd.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::etcd::{Etcd, EtcdEntry};

/// Where objects are kept.
#[derive(Debug)]
pub enum Store {
    /// In etcd.
    Etcd(Etcd),
    /// In memory.
    Memory(Mutex<Memory>),
}

/// Entries with their revisions.
#[derive(Debug, Default)]
pub struct Memory {
    entries: BTreeMap<String, (Vec<u8>, i64)>,
    last: i64,
}

impl Store {
    /// An empty store in memory.
    pub fn in_memory() -> Self {
        Self::Memory(Mutex::default())
    }

    /// Entries whose keys begin so.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn list(&self, prefix: &str) -> io::Result<Vec<EtcdEntry>> {
        match self {
            Self::Etcd(etcd) => etcd.list(prefix).await,
            Self::Memory(memory) => {
                let memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
                let entry = |(key, (value, revision)): (&String, &(Vec<u8>, i64))| EtcdEntry {
                    key: key.clone(),
                    value: value.clone(),
                    revision: *revision,
                };
                Ok(memory.entries.iter().filter(|(k, _)| k.starts_with(prefix)).map(entry).collect())
            }
        }
    }

    /// The entry with that key.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn get(&self, key: &str) -> io::Result<Option<EtcdEntry>> {
        match self {
            Self::Etcd(etcd) => etcd.get(key).await,
            Self::Memory(_) => Ok(self.list(key).await?.into_iter().find(|e| e.key == key)),
        }
    }

    /// Writes an entry (`None`: removes it) when its revision is the expected one, as [`Etcd::put`].
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn write(&self, key: &str, value: Option<&[u8]>, expected: Option<i64>) -> io::Result<Option<i64>> {
        match (self, value) {
            (Self::Etcd(etcd), Some(value)) => etcd.put(key, value, expected).await,
            (Self::Etcd(etcd), None) => etcd.delete(key, expected).await,
            (Self::Memory(memory), value) => {
                let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
                let Memory { entries, last } = &mut *memory;
                let present = entries.get(key).map_or(0, |(_, r)| *r);
                if expected.is_some_and(|e| e != present) {
                    return Ok(None);
                }
                *last += 1;
                match value {
                    Some(value) => entries.insert(key.to_owned(), (value.to_vec(), *last)),
                    None => entries.remove(key),
                };
                Ok(Some(*last))
            }
        }
    }
}

/// An object with the version that it has in etcd.
pub fn object(entry: &EtcdEntry) -> Value {
    let mut object: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
    object["metadata"]["resourceVersion"] = json!(entry.revision.to_string());
    object
}

/// Puts the members of `patch` into `target` (RFC 7386): objects member by member, `null` removes, all else replaces.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(members) = target.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            members.remove(name);
        } else {
            merge(members.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_comes_second_loses() {
        let store = Store::in_memory();
        let first = store.write("/a", Some(b"1"), Some(0)).await.unwrap();
        assert_eq!(first, Some(1));
        assert_eq!(store.write("/a", Some(b"2"), Some(0)).await.unwrap(), None, "it is there already");
        assert_eq!(store.write("/a", Some(b"2"), Some(1)).await.unwrap(), Some(2));
        assert_eq!(store.write("/a", None, Some(1)).await.unwrap(), None, "it has changed");
        assert_eq!(store.write("/a", None, None).await.unwrap(), Some(3));
        assert_eq!(store.get("/a").await.unwrap(), None);
    }

    #[test]
    fn a_patch_is_merged() {
        let mut target = json!({ "a": { "b": 1, "c": 2 }, "l": [1, 2] });
        merge(&mut target, &json!({ "a": { "b": null, "d": { "e": null, "f": 3 } }, "l": [3] }));
        assert_eq!(target, json!({ "a": { "c": 2, "d": { "f": 3 } }, "l": [3] }));
    }
}
