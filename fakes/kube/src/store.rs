//! Where objects are: one counter of resource versions for all kinds, and for each kind what changed last, for those who watch.
//!
//! Objects are kept as the bytes that clients get. Reading, listing and watching copy them; only a write parses one. The same buffer is
//! the line of a watch: `{"type":"MODIFIED","object":…}`. Where clients are in the same process ([`Store::keep_parsed`]) objects are kept
//! as they are instead, which needs more memory and saves most of a write; bytes are made for who wants them.
//!
//! The store is in memory. Where objects shall survive, [`Store::take_writes`] says what changed, and [`Store::load`] takes it back: a
//! shell puts the former into its database before it sends an answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_api::http::Body;

use crate::resource::ResourceId;

/// What a change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// There was no such object.
    Added,
    /// There was one.
    Modified,
    /// There is none any more.
    Deleted,
}

impl Did {
    /// As a watch says it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Did::Added => "ADDED",
            Did::Modified => "MODIFIED",
            Did::Deleted => "DELETED",
        }
    }
}

/// An owner, as an object names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The owner's uid.
    pub uid: String,
    /// Must it wait for this object when it is deleted in the foreground?
    pub blocks: bool,
}

/// What the server itself reads of an object again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Empty for objects without a namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its owners.
    pub owners: Vec<Owner>,
    /// What has to be done before it may go.
    pub finalizers: Vec<String>,
    /// Is it being deleted?
    pub deleting: bool,
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Meta {
    /// Reads `metadata`.
    pub fn of(object: &Value) -> Self {
        let meta = &object["metadata"];
        let text = |name: &str| meta[name].as_str().unwrap_or_default().to_owned();
        let owner = |o: &Value| Owner {
            uid: o["uid"].as_str().unwrap_or_default().to_owned(),
            blocks: o["blockOwnerDeletion"].as_bool().unwrap_or(false),
        };
        Self {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            labels: meta["labels"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned()))
                .collect(),
            owners: meta["ownerReferences"].as_array().into_iter().flatten().map(owner).collect(),
            finalizers: texts(&meta["finalizers"]),
            deleting: meta["deletionTimestamp"].is_string(),
        }
    }
}

/// The key of an object among those of its kind: `namespace/name`, or the name.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// An object as it is stored.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The resource version of its last change.
    pub rv: u64,
    /// What the server reads of it.
    pub meta: Arc<Meta>,
    held: Arc<Held>,
}

/// An object: as the line of a watch, or as it is, or as both. One of them is always there.
#[derive(Debug)]
struct Held {
    did: Did,
    object: Option<Arc<Value>>,
    line: OnceLock<Bytes>,
}

/// What stands before the object in the line of a watch.
fn head(did: Did) -> String {
    format!("{{\"type\":\"{}\",\"object\":", did.as_str())
}

fn line_of(did: Did, object: &Value) -> Bytes {
    let mut line = head(did).into_bytes();
    // Values with text keys can always be written.
    serde_json::to_writer(&mut line, object).unwrap_or_default();
    line.extend_from_slice(b"}\n");
    line.into()
}

impl Stored {
    fn new(did: Did, rv: u64, object: Value, parsed: bool) -> Self {
        let meta = Arc::new(Meta::of(&object));
        let held = if parsed {
            Held { did, object: Some(Arc::new(object)), line: OnceLock::new() }
        } else {
            Held { did, object: None, line: OnceLock::from(line_of(did, &object)) }
        };
        Self { rv, meta, held: Arc::new(held) }
    }

    /// The line of a watch that said so.
    pub fn line(&self) -> Bytes {
        let made = || self.held.object.as_ref().map(|object| line_of(self.held.did, object)).unwrap_or_default();
        self.held.line.get_or_init(made).clone()
    }

    /// The line of a watch that says so of this object: the one that there is, where it says the same.
    pub(crate) fn line_of(&self, did: Did) -> Bytes {
        if self.held.did == did {
            return self.line();
        }
        let object = self.bytes();
        let mut line = head(did).into_bytes();
        line.extend_from_slice(&object);
        line.extend_from_slice(b"}\n");
        line.into()
    }

    /// The object as JSON.
    pub fn bytes(&self) -> Bytes {
        let line = self.line();
        line.slice(head(self.held.did).len()..line.len() - 2)
    }

    /// The object, to be changed.
    pub fn value(&self) -> Value {
        Arc::unwrap_or_clone(self.object())
    }

    /// The object.
    pub fn object(&self) -> Arc<Value> {
        // Written by ourselves.
        let parsed = || Arc::new(serde_json::from_slice(&self.bytes()).unwrap_or_default());
        self.held.object.clone().unwrap_or_else(parsed)
    }

    /// The object as the body of an answer.
    pub(crate) fn body(&self) -> Body {
        match &self.held.object {
            Some(object) => shared(Arc::clone(object)),
            None => self.bytes().to_vec().into(),
        }
    }
}

/// An object that several have, as a body.
pub(crate) fn shared(object: Arc<Value>) -> Body {
    Body::object_as(object, |object: &Arc<Value>| serde_json::to_vec(&**object).unwrap_or_default())
}

/// A change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The resource version that it made.
    pub rv: u64,
    /// When it was made.
    pub at: Timestamp,
    /// What it did.
    pub did: Did,
    /// The key of the object.
    pub key: Arc<str>,
    /// The object before.
    pub before: Option<Stored>,
    /// The object after; as it last was, if it is gone.
    pub after: Stored,
}

/// A write for a shell that keeps objects elsewhere, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The kind.
    pub resource: ResourceId,
    /// The key among its kind.
    pub key: String,
    /// The resource version.
    pub rv: u64,
    /// The object; `None`: it is gone.
    pub object: Option<Bytes>,
}

#[derive(Clone, Debug, Default)]
struct Shelf {
    objects: BTreeMap<Arc<str>, Stored>,
    changes: VecDeque<Change>,
    /// The resource version of the last change that was forgotten.
    forgotten: u64,
}

/// All objects.
#[derive(Clone, Debug)]
pub struct Store {
    rv: u64,
    shelves: BTreeMap<ResourceId, Shelf>,
    by_uid: BTreeMap<String, (ResourceId, Arc<str>)>,
    dependents: BTreeMap<String, BTreeSet<(ResourceId, Arc<str>)>>,
    keep: usize,
    journal: Option<Vec<Write>>,
    now: Timestamp,
    parsed: bool,
}

impl Store {
    /// An empty store that remembers that many changes of each kind.
    pub fn new(keep: usize) -> Self {
        Self {
            rv: 1,
            shelves: BTreeMap::new(),
            by_uid: BTreeMap::new(),
            dependents: BTreeMap::new(),
            keep: keep.max(1),
            journal: None,
            now: Timestamp::default(),
            parsed: false,
        }
    }

    /// From now on objects are kept as they are, and not as bytes.
    pub fn keep_parsed(&mut self) {
        self.parsed = true;
    }

    /// Are objects kept as they are?
    pub(crate) const fn keeps_parsed(&self) -> bool {
        self.parsed
    }

    /// The resource version of the last change.
    pub const fn rv(&self) -> u64 {
        self.rv
    }

    /// The time at which the next changes are made.
    pub(crate) fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// From now on [`Store::take_writes`] says what changed.
    pub fn keep_journal(&mut self) {
        self.journal.get_or_insert_default();
    }

    /// What changed since the last call.
    pub fn take_writes(&mut self) -> Vec<Write> {
        self.journal.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes an object back that was stored elsewhere. What changed before that is not known: watches from an older version get 410.
    pub fn load(&mut self, resource: ResourceId, rv: u64, object: Value) {
        let stored = Stored::new(Did::Added, rv, object, self.parsed);
        let key: Arc<str> = key(&stored.meta.namespace, &stored.meta.name).into();
        self.index(resource, &key, None, Some(&stored.meta));
        self.rv = self.rv.max(rv);
        let rv = self.rv;
        self.shelves.entry(resource).or_default().objects.insert(key, stored);
        for shelf in self.shelves.values_mut() {
            shelf.forgotten = rv;
        }
    }

    /// Takes over what another server wrote into a database that both share, under the resource version that it has there. Those who
    /// watch are told as of a write of our own; the journal knows nothing of it.
    pub fn replay(&mut self, write: &Write) {
        let journal = self.journal.take();
        let last = self.rv;
        self.rv = write.rv.saturating_sub(1);
        match &write.object {
            // Written by a server like this one.
            Some(bytes) => drop(self.put(write.resource, serde_json::from_slice(bytes).unwrap_or_default())),
            None => drop(self.remove(write.resource, &write.key)),
        }
        self.rv = last.max(write.rv);
        self.journal = journal;
    }

    /// Resource versions up to that one were dealt elsewhere.
    pub fn advance(&mut self, rv: u64) {
        self.rv = self.rv.max(rv);
    }

    /// The keys of a kind.
    pub fn keys(&self, resource: ResourceId) -> Vec<Arc<str>> {
        self.shelves.get(&resource).into_iter().flat_map(|shelf| shelf.objects.keys().cloned()).collect()
    }

    fn index(&mut self, resource: ResourceId, key: &Arc<str>, old: Option<&Meta>, new: Option<&Meta>) {
        let at = (resource, Arc::clone(key));
        if let Some(old) = old {
            for owner in &old.owners {
                if let Some(set) = self.dependents.get_mut(&owner.uid) {
                    set.remove(&at);
                    if set.is_empty() {
                        self.dependents.remove(&owner.uid);
                    }
                }
            }
            if new.is_none_or(|new| new.uid != old.uid) {
                self.by_uid.remove(&old.uid);
            }
        }
        if let Some(new) = new {
            for owner in &new.owners {
                self.dependents.entry(owner.uid.clone()).or_default().insert(at.clone());
            }
            self.by_uid.insert(new.uid.clone(), at);
        }
    }

    /// Stores an object with the next resource version, which it gets in its metadata.
    pub fn put(&mut self, resource: ResourceId, mut object: Value) -> Stored {
        self.rv += 1;
        object["metadata"]["resourceVersion"] = json!(self.rv.to_string());
        let text = |member: &str| object["metadata"][member].as_str().unwrap_or_default();
        let key: Arc<str> = key(text("namespace"), text("name")).into();
        let before = self.get(resource, &key).cloned();
        let did = if before.is_some() { Did::Modified } else { Did::Added };
        let after = Stored::new(did, self.rv, object, self.parsed);
        self.index(resource, &key, before.as_ref().map(|b| &*b.meta), Some(&after.meta));
        self.shelves.entry(resource).or_default().objects.insert(Arc::clone(&key), after.clone());
        self.remember(resource, Change { rv: self.rv, at: self.now, did, key, before, after: after.clone() });
        after
    }

    /// Removes an object; the answer is how it last was, with the resource version of its end.
    pub fn remove(&mut self, resource: ResourceId, key: &str) -> Option<Stored> {
        let (key, before) = self.shelves.get_mut(&resource)?.objects.remove_entry(key)?;
        self.rv += 1;
        let mut object = before.value();
        object["metadata"]["resourceVersion"] = json!(self.rv.to_string());
        let after = Stored::new(Did::Deleted, self.rv, object, self.parsed);
        self.index(resource, &key, Some(&before.meta), None);
        self.remember(
            resource,
            Change { rv: self.rv, at: self.now, did: Did::Deleted, key, before: Some(before), after: after.clone() },
        );
        Some(after)
    }

    /// Writes an object anew without a change, because its schema is another one.
    pub fn restate(&mut self, resource: ResourceId, key: &str, object: Value) {
        let parsed = self.parsed;
        if let Some(stored) = self.shelves.get_mut(&resource).and_then(|s| s.objects.get_mut(key)) {
            *stored = Stored::new(Did::Modified, stored.rv, object, parsed);
        }
    }

    fn remember(&mut self, resource: ResourceId, change: Change) {
        if let Some(journal) = &mut self.journal {
            journal.push(Write {
                resource,
                key: change.key.to_string(),
                rv: change.rv,
                object: (change.did != Did::Deleted).then(|| change.after.bytes()),
            });
        }
        let shelf = self.shelves.entry(resource).or_default();
        shelf.changes.push_back(change);
        while shelf.changes.len() > self.keep {
            if let Some(change) = shelf.changes.pop_front() {
                shelf.forgotten = change.rv;
            }
        }
    }

    /// Forgets what changed up to that resource version.
    pub fn compact(&mut self, rv: u64) {
        for shelf in self.shelves.values_mut() {
            while shelf.changes.front().is_some_and(|c| c.rv <= rv) {
                shelf.changes.pop_front();
            }
            shelf.forgotten = shelf.forgotten.max(rv.min(self.rv));
        }
    }

    /// An object.
    pub fn get(&self, resource: ResourceId, key: &str) -> Option<&Stored> {
        self.shelves.get(&resource)?.objects.get(key)
    }

    /// The object with that uid.
    pub fn by_uid(&self, uid: &str) -> Option<(ResourceId, &Stored)> {
        let (resource, key) = self.by_uid.get(uid)?;
        Some((*resource, self.get(*resource, key)?))
    }

    /// Who names that uid as an owner.
    pub fn dependents(&self, uid: &str) -> Vec<(ResourceId, Stored)> {
        let all = self.dependents.get(uid).into_iter().flatten();
        all.filter_map(|(resource, key)| Some((*resource, self.get(*resource, key)?.clone()))).collect()
    }

    /// The objects of a kind in the order of their keys, from a key on; in one namespace, or in all.
    pub fn objects<'s>(
        &'s self,
        resource: ResourceId,
        namespace: &str,
        from: &str,
    ) -> impl Iterator<Item = (&'s Arc<str>, &'s Stored)> + use<'s> {
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let start: Arc<str> = from.max(prefix.as_str()).into();
        self.shelves
            .get(&resource)
            .into_iter()
            .flat_map(move |shelf| shelf.objects.range(Arc::clone(&start)..))
            .take_while(move |(key, _)| key.starts_with(&prefix))
    }

    /// How many there are of a kind.
    pub fn count(&self, resource: ResourceId) -> usize {
        self.shelves.get(&resource).map_or(0, |s| s.objects.len())
    }

    /// The objects of a kind as they were at that resource version. `None`: that is forgotten.
    pub fn at(&self, resource: ResourceId, namespace: &str, rv: u64) -> Option<BTreeMap<Arc<str>, Stored>> {
        let mut objects: BTreeMap<Arc<str>, Stored> =
            self.objects(resource, namespace, "").map(|(k, v)| (Arc::clone(k), v.clone())).collect();
        let Some(shelf) = self.shelves.get(&resource) else { return Some(objects) };
        if rv < shelf.forgotten {
            return None;
        }
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        for change in shelf.changes.iter().rev().take_while(|c| c.rv > rv).filter(|c| c.key.starts_with(&prefix)) {
            match &change.before {
                Some(before) => objects.insert(Arc::clone(&change.key), before.clone()),
                None => objects.remove(&change.key),
            };
        }
        Some(objects)
    }

    /// The resource version of the last change of a kind that was made by then; what is forgotten counts as made.
    pub fn version_at(&self, resource: ResourceId, then: Timestamp) -> u64 {
        let Some(shelf) = self.shelves.get(&resource) else { return self.rv };
        let changes = shelf.changes.iter().take_while(|c| c.at <= then);
        changes.last().map_or(shelf.forgotten, |c| c.rv)
    }

    /// The changes of a kind after that resource version. `None`: some of them are forgotten.
    pub fn changes(&self, resource: ResourceId, after: u64) -> Option<impl Iterator<Item = &Change>> {
        let shelf = self.shelves.get(&resource);
        if shelf.is_some_and(|s| after < s.forgotten) {
            return None;
        }
        let changes = shelf.map(|s| {
            let start = s.changes.partition_point(|c| c.rv <= after);
            s.changes.range(start..)
        });
        Some(changes.into_iter().flatten())
    }

    /// The oldest resource version from which changes of a kind are known.
    pub fn oldest(&self, resource: ResourceId) -> u64 {
        self.shelves.get(&resource).map_or(0, |s| s.forgotten)
    }

    /// Kinds of which there are objects.
    pub fn kinds(&self) -> Vec<ResourceId> {
        self.shelves.iter().filter(|(_, s)| !s.objects.is_empty()).map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KIND: ResourceId = ResourceId(3);

    fn object(name: &str, n: u32) -> Value {
        json!({ "metadata": { "name": name, "namespace": "x", "uid": name }, "n": n })
    }

    proptest! {
        /// Whoever reads at a version and then the changes after it has what there is now; and a state of the past is what it was.
        #[test]
        fn changes_lead_from_any_past_to_the_present(steps in proptest::collection::vec((0..4_u32, 0..3_u32), 1..60)) {
            let mut store = Store::new(1000);
            let mut past = vec![(store.rv(), BTreeMap::new())];
            for (at, (name, what)) in steps.into_iter().enumerate() {
                let name = format!("o{name}");
                if what == 0 {
                    store.remove(KIND, &key("x", &name));
                } else {
                    store.put(KIND, object(&name, u32::try_from(at).unwrap()));
                }
                let now: BTreeMap<String, u64> = store.objects(KIND, "x", "").map(|(k, v)| (k.to_string(), v.rv)).collect();
                past.push((store.rv(), now));
            }
            let now = past.last().unwrap().1.clone();
            for (rv, then) in past {
                let read: BTreeMap<String, u64> = store.at(KIND, "x", rv).unwrap().iter().map(|(k, v)| (k.to_string(), v.rv)).collect();
                prop_assert_eq!(&read, &then);
                let mut state = then;
                for change in store.changes(KIND, rv).unwrap() {
                    match change.did {
                        Did::Deleted => state.remove(&*change.key),
                        _ => state.insert(change.key.to_string(), change.rv),
                    };
                }
                prop_assert_eq!(&state, &now);
            }
        }
    }

    #[test]
    fn what_another_server_wrote_is_seen_by_those_who_watch() {
        let (mut one, mut two) = (Store::new(10), Store::new(10));
        one.keep_journal();
        two.keep_journal();
        for n in 1..4 {
            one.put(KIND, object("a", n));
        }
        one.put(KIND, object("b", 1));
        one.remove(KIND, &key("x", "a"));
        let before = two.rv();
        one.take_writes().iter().for_each(|write| two.replay(write));
        assert_eq!(two.rv(), one.rv());
        assert!(two.take_writes().is_empty(), "it was not ours");
        let told = |store: &Store| -> Vec<(u64, Did)> {
            store.changes(KIND, before).unwrap().map(|c| (c.rv, c.did)).collect()
        };
        assert_eq!(told(&two), told(&one));
        assert_eq!(two.keys(KIND), one.keys(KIND));
        assert_eq!(two.get(KIND, "x/b").unwrap().value(), one.get(KIND, "x/b").unwrap().value());
    }

    #[test]
    fn what_is_forgotten_is_said() {
        let mut store = Store::new(2);
        let first = store.put(KIND, object("a", 1)).rv;
        for n in 2..5 {
            store.put(KIND, object("a", n));
        }
        assert!(store.changes(KIND, first).is_none());
        assert!(store.at(KIND, "", first).is_none());
        assert_eq!(store.changes(KIND, store.rv() - 1).unwrap().count(), 1);
        store.compact(store.rv());
        assert_eq!(store.oldest(KIND), store.rv());
    }

    #[test]
    fn owners_are_found_both_ways() {
        let mut store = Store::new(10);
        store.put(KIND, object("owner", 1));
        let mut child = object("child", 1);
        child["metadata"]["ownerReferences"] = json!([{ "uid": "owner", "blockOwnerDeletion": true }]);
        store.put(KIND, child);
        let dependents = store.dependents("owner");
        assert_eq!(dependents.len(), 1);
        assert!(dependents[0].1.meta.owners[0].blocks);
        store.put(KIND, object("child", 2));
        assert!(store.dependents("owner").is_empty());
        assert_eq!(store.by_uid("child").unwrap().1.meta.name, "child");
        store.remove(KIND, &key("x", "child"));
        assert!(store.by_uid("child").is_none());
    }
}
