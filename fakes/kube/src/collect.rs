//! What happens by itself after a write: those who lost their owner go, foreground deletions and orphanings come to their end,
//! namespaces and definitions are emptied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use vlab_api::Timestamp;

use crate::core::Core;
use crate::crd;
use crate::delete::{Policy, front};
use crate::resource::{Resource, ResourceId};
use crate::store::{Did, Stored, key};

/// Objects that have to be looked after, and when.
#[derive(Debug, Default)]
pub(crate) struct Work {
    due: BTreeMap<(ResourceId, String), Timestamp>,
}

impl Work {
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.due.values().min().copied()
    }

    fn add(&mut self, resource: ResourceId, key: String, due: Timestamp) {
        self.due.entry((resource, key)).or_insert(due);
    }

    fn take(&mut self, now: Timestamp) -> Vec<(ResourceId, String)> {
        let ready: Vec<_> = self.due.iter().filter(|(_, due)| **due <= now).map(|(at, _)| at.clone()).collect();
        for at in &ready {
            self.due.remove(at);
        }
        ready
    }
}

impl Core {
    /// Notes what a change may have consequences for.
    pub(crate) fn look_after(&mut self, now: Timestamp, resource: ResourceId, stored: &Stored, did: Did) {
        let Some(delay) = self.options.collection else { return };
        let due = now + delay;
        let meta = Arc::clone(&stored.meta);
        let own = key(&meta.namespace, &meta.name);
        if did != Did::Deleted {
            if meta.deleting || !meta.owners.is_empty() {
                self.work.add(resource, own, due);
            }
            if let Some(namespaces) = self.registry.find("", "namespaces")
                && !meta.namespace.is_empty()
                && self.store.get(namespaces.id, &meta.namespace).is_some_and(|n| n.meta.deleting)
            {
                self.work.add(namespaces.id, meta.namespace.clone(), due);
            }
            return;
        }
        for (id, dependent) in self.store.dependents(&meta.uid) {
            self.work.add(id, key(&dependent.meta.namespace, &dependent.meta.name), due);
        }
        for owner in &meta.owners {
            if let Some((id, owner)) = self.store.by_uid(&owner.uid)
                && owner.meta.deleting
            {
                let at = key(&owner.meta.namespace, &owner.meta.name);
                self.work.add(id, at, due);
            }
        }
        self.look_after_containers(resource, &meta.namespace, due);
    }

    /// The namespace and the definition of an object that has gone may have waited for it.
    fn look_after_containers(&mut self, resource: ResourceId, namespace: &str, due: Timestamp) {
        if let Some(namespaces) = self.registry.find("", "namespaces")
            && self.store.get(namespaces.id, namespace).is_some_and(|n| n.meta.deleting)
        {
            self.work.add(namespaces.id, namespace.to_owned(), due);
        }
        if let (Some(kind), Some(crds)) =
            (self.registry.get(resource), self.registry.find("apiextensions.k8s.io", "customresourcedefinitions"))
            && kind.custom
        {
            let name = format!("{}.{}", kind.plural, kind.group);
            if self.store.get(crds.id, &name).is_some_and(|c| c.meta.deleting) {
                self.work.add(crds.id, name, due);
            }
        }
    }

    /// Does what is due, and what follows from it.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        loop {
            let ready = self.work.take(now);
            if ready.is_empty() {
                return;
            }
            for (resource, key) in ready {
                self.tend(now, resource, &key);
            }
        }
    }

    fn tend(&mut self, now: Timestamp, id: ResourceId, at: &str) {
        let Some(resource) = self.registry.get(id).cloned() else { return };
        let Some(stored) = self.store.get(id, at).cloned() else { return };
        let has = |name: &str| stored.meta.finalizers.iter().any(|f| f == name);
        if stored.meta.deleting {
            if has("orphan") {
                self.orphan(now, &stored);
                self.drop_finalizer(now, &resource, at, "orphan");
            } else if has("foregroundDeletion") {
                self.foreground(now, &resource, at, &stored);
            }
            if resource.group.is_empty() && resource.plural == "namespaces" {
                self.empty_namespace(now, &resource, &stored);
            }
            if has(crd::FINALIZER) {
                self.empty_definition(now, &resource, at, &stored);
            }
        }
        self.ownerless(now, &resource, at);
    }

    /// Deletes an object all of whose owners are gone; drops the owners that are gone from one that has others.
    fn ownerless(&mut self, now: Timestamp, resource: &Resource, at: &str) {
        let Some(stored) = self.store.get(resource.id, at).cloned() else { return };
        let owners = &stored.meta.owners;
        if owners.is_empty() {
            return;
        }
        let gone: BTreeSet<&str> =
            owners.iter().filter(|o| self.store.by_uid(&o.uid).is_none()).map(|o| o.uid.as_str()).collect();
        if gone.is_empty() {
            return;
        }
        if gone.len() == owners.len() {
            if !stored.meta.deleting {
                self.delete_object(now, resource, at, Policy::Unsaid.or_background(&stored));
            }
            return;
        }
        self.edit(now, resource, at, |object| {
            if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
                owners.retain(|o| !gone.contains(o["uid"].as_str().unwrap_or_default()));
            }
        });
    }

    fn orphan(&mut self, now: Timestamp, owner: &Stored) {
        for (id, dependent) in self.store.dependents(&owner.meta.uid) {
            let Some(resource) = self.registry.get(id).cloned() else { continue };
            let at = key(&dependent.meta.namespace, &dependent.meta.name);
            self.edit(now, &resource, &at, |object| {
                let Some(meta) = object["metadata"].as_object_mut() else { return };
                let Some(owners) = meta.get_mut("ownerReferences").and_then(Value::as_array_mut) else { return };
                owners.retain(|o| o["uid"] != json!(owner.meta.uid));
                if owners.is_empty() {
                    meta.shift_remove("ownerReferences");
                }
            });
        }
    }

    fn foreground(&mut self, now: Timestamp, resource: &Resource, at: &str, owner: &Stored) {
        for (id, dependent) in self.store.dependents(&owner.meta.uid) {
            let Some(kind) = self.registry.get(id).cloned() else { continue };
            if !dependent.meta.deleting {
                let at = key(&dependent.meta.namespace, &dependent.meta.name);
                self.delete_object(now, &kind, &at, Policy::Foreground);
            }
        }
        let blocked = self
            .store
            .dependents(&owner.meta.uid)
            .iter()
            .any(|(_, d)| d.meta.owners.iter().any(|o| o.uid == owner.meta.uid && o.blocks));
        if !blocked {
            self.drop_finalizer(now, resource, at, "foregroundDeletion");
        }
    }

    fn empty_namespace(&mut self, now: Timestamp, namespaces: &Resource, namespace: &Stored) {
        let name = &namespace.meta.name;
        let kinds: Vec<Arc<Resource>> = self.registry.all().filter(|r| r.namespaced && !r.review).cloned().collect();
        let mut left = 0;
        for kind in kinds {
            let all: Vec<(String, bool)> =
                self.store.objects(kind.id, name, "").map(|(k, s)| (k.to_string(), s.meta.deleting)).collect();
            for (at, deleting) in all {
                if !deleting {
                    self.delete_object(now, &kind, &at, Policy::Background);
                }
                left += usize::from(self.store.get(kind.id, &at).is_some());
            }
        }
        if left == 0 && namespace.meta.finalizers.is_empty() {
            self.remove(now, namespaces, name);
        }
    }

    fn empty_definition(&mut self, now: Timestamp, crds: &Resource, at: &str, stored: &Stored) {
        let object = stored.value();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, plural) = (text(&object["spec"]["group"]), text(&object["spec"]["names"]["plural"]));
        if let Some(kind) = self.registry.find(&group, &plural).cloned() {
            let all: Vec<(String, bool)> =
                self.store.objects(kind.id, "", "").map(|(k, s)| (k.to_string(), s.meta.deleting)).collect();
            for (at, deleting) in all {
                if !deleting {
                    self.delete_object(now, &kind, &at, Policy::Background);
                }
            }
            if self.store.count(kind.id) > 0 {
                return;
            }
        }
        self.drop_finalizer(now, crds, at, crd::FINALIZER);
    }

    fn drop_finalizer(&mut self, now: Timestamp, resource: &Resource, at: &str, finalizer: &str) {
        self.edit(now, resource, at, |object| {
            let Some(meta) = object["metadata"].as_object_mut() else { return };
            let Some(list) = meta.get_mut("finalizers").and_then(Value::as_array_mut) else { return };
            list.retain(|f| f != finalizer);
            if list.is_empty() {
                meta.shift_remove("finalizers");
            }
        });
    }

    /// Changes an object on behalf of the server; one that waited only for this goes.
    fn edit(&mut self, now: Timestamp, resource: &Resource, at: &str, change: impl FnOnce(&mut Value)) {
        let Some(stored) = self.store.get(resource.id, at).cloned() else { return };
        let mut object = stored.value();
        change(&mut object);
        if object == stored.value() {
            return;
        }
        let left = object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
        if stored.meta.deleting && !left && !self.keeps_itself(resource, &object) {
            self.remove(now, resource, at);
            return;
        }
        if !resource.custom {
            front(&mut object);
        }
        self.put(now, resource, object);
    }
}

impl Policy {
    /// As its finalizers say, otherwise in the background.
    fn or_background(self, stored: &Stored) -> Policy {
        let said = stored.meta.finalizers.iter().any(|f| f == "orphan" || f == "foregroundDeletion");
        if said { self } else { Policy::Background }
    }
}
