//! Deleting: finalizers first, and how those who are owned go with it.

use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_api::http::Response;

use crate::admission::Operation;
use crate::body;
use crate::core::{Ask, Core, Stop};
use crate::failure::{Cause, Failure, Subject};
use crate::meta;
use crate::read::Selection;
use crate::resource::Resource;
use crate::store::{Meta, Stored, key};
use crate::view;

/// What becomes of those who are owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// As the object's finalizers say.
    Unsaid,
    /// They go afterwards.
    Background,
    /// They go before.
    Foreground,
    /// They stay.
    Orphan,
}

/// What a deletion left.
#[derive(Clone, Debug)]
pub(crate) enum Deleted {
    /// It is gone; this is how it last was.
    Gone(Stored),
    /// Something has to be done first.
    Marked(Stored),
}

fn options(ask: &Ask) -> Result<Value, Failure> {
    let mut options = body::read(&ask.request)?;
    if !options.is_null() && options["kind"].as_str().is_some_and(|k| k != "DeleteOptions") {
        return Err(Failure::bad_request(format!(
            "decoded object cannot be converted to DeleteOptions: kind {}",
            options["kind"]
        )));
    }
    if options.is_null() {
        options = json!({});
    }
    if let Some(policy) = ask.query.get("propagationPolicy") {
        options["propagationPolicy"] = json!(policy);
    }
    if let Some(orphan) = ask.query.get("orphanDependents") {
        options["orphanDependents"] = json!(orphan == "true");
    }
    if ask.query.get("dryRun") == Some("All") {
        options["dryRun"] = json!(["All"]);
    }
    Ok(options)
}

fn policy(options: &Value) -> Result<Policy, Failure> {
    Ok(match (options["propagationPolicy"].as_str(), options["orphanDependents"].as_bool()) {
        (Some("Background"), _) | (None, Some(false)) => Policy::Background,
        (Some("Foreground"), _) => Policy::Foreground,
        (Some("Orphan"), _) | (None, Some(true)) => Policy::Orphan,
        (None, None) => Policy::Unsaid,
        (Some(other), _) => {
            let allowed = ["Foreground", "Background", "Orphan", "nil"].map(str::to_owned);
            let cause = Cause::unsupported("propagationPolicy", &json!(other), &allowed);
            return Err(Failure::invalid_options("DeleteOptions", vec![cause]));
        }
    })
}

impl Core {
    pub(crate) fn delete(&mut self, ask: &mut Ask) -> Result<Response, Stop> {
        let options = options(ask)?;
        self.delete_with(ask, &options)
    }

    /// Evicts a pod: no budget stands against it here.
    pub(crate) fn evict(&mut self, ask: &mut Ask) -> Result<Response, Stop> {
        let eviction = body::read(&ask.request)?;
        let options = match &eviction["deleteOptions"] {
            Value::Object(_) => eviction["deleteOptions"].clone(),
            _ => json!({}),
        };
        self.delete_with(ask, &options)?;
        Ok(Response::json(
            201,
            &json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 }),
        ))
    }

    fn delete_with(&mut self, ask: &mut Ask, options: &Value) -> Result<Response, Stop> {
        let Some(live) = self.store.get(ask.resource.id, &ask.key()).cloned() else {
            return Err(ask.resource.not_found(ask.name()).into());
        };
        let policy = policy(options)?;
        preconditions(ask, options, &live)?;
        let old = live.value();
        self.admit(ask, Operation::Delete, None, Some(&old))?;
        if let Some(failure) = self.faults.write(&ask.resource, "delete", "", ask.name()) {
            return Err(failure.into());
        }
        if let Some(why) = protected(&ask.resource, ask.name()) {
            return Err(Failure::forbidden(ask.resource.named(ask.name()), why).into());
        }
        let resource = ask.resource.clone();
        if options["dryRun"].as_array().is_some_and(|d| !d.is_empty()) {
            return Ok(success(&resource, &live.meta));
        }
        match self.delete_object(ask.now, &resource, &ask.key(), policy) {
            Some(Deleted::Marked(stored)) => {
                let status = if options["orphanDependents"] == false { 202 } else { 200 };
                Ok(view::stored(ask, status, &stored))
            }
            Some(Deleted::Gone(stored)) if shows_itself(&resource) => Ok(view::stored(ask, 200, &stored)),
            Some(Deleted::Gone(stored)) => Ok(success(&resource, &stored.meta)),
            None => Err(ask.resource.not_found(ask.name()).into()),
        }
    }

    pub(crate) fn delete_collection(&mut self, ask: &mut Ask) -> Result<Response, Stop> {
        let options = options(ask)?;
        let selection = Selection::of(ask)?;
        let policy = policy(&options)?;
        let resource = ask.resource.clone();
        if resource.namespaced && ask.namespace().is_empty() || resource.plural == "namespaces" {
            return Err(Failure::method_not_allowed().into());
        }
        let all: Vec<Stored> = self
            .store
            .objects(resource.id, ask.namespace(), "")
            .map(|(_, s)| s.clone())
            .filter(|s| selection.takes(&ask.version, s))
            .collect();
        let dry = options["dryRun"].as_array().is_some_and(|d| !d.is_empty());
        let mut items = Vec::new();
        for stored in &all {
            items.push(view::value(&resource, &ask.version, stored));
            self.admit(ask, Operation::Delete, None, Some(&stored.value()))?;
        }
        for stored in all.iter().filter(|_| !dry) {
            let at = key(&stored.meta.namespace, &stored.meta.name);
            self.delete_object(ask.now, &resource, &at, policy);
        }
        let mut meta = json!({ "resourceVersion": self.store.rv().to_string() });
        if resource.custom {
            meta["continue"] = json!("");
        }
        let list =
            json!({ "kind": resource.list_kind, "apiVersion": ask.api_version(), "metadata": meta, "items": items });
        Ok(Response::json(200, &list))
    }

    /// Deletes an object, or marks it when something has to be done first. `None`: it is not there.
    pub(crate) fn delete_object(
        &mut self,
        now: Timestamp,
        resource: &Resource,
        key: &str,
        policy: Policy,
    ) -> Option<Deleted> {
        let live = self.store.get(resource.id, key)?.clone();
        let mut object = live.value();
        let mut finalizers = live.meta.finalizers.clone();
        let has = |list: &[String], name: &str| list.iter().any(|f| f == name);
        let (foreground, orphan) = match policy {
            Policy::Unsaid => (has(&finalizers, "foregroundDeletion"), has(&finalizers, "orphan")),
            Policy::Background => (false, false),
            Policy::Foreground => (true, false),
            Policy::Orphan => (false, true),
        };
        finalizers.retain(|f| f != "foregroundDeletion" && f != "orphan");
        if foreground {
            finalizers.push("foregroundDeletion".into());
        }
        if orphan {
            finalizers.push("orphan".into());
        }
        if finalizers.is_empty() && !self.keeps_itself(resource, &object) {
            return self.remove(now, resource, key).map(Deleted::Gone);
        }
        let meta = meta::of(&mut object);
        if finalizers.is_empty() {
            meta.shift_remove("finalizers");
        } else {
            meta.insert("finalizers".into(), json!(finalizers));
        }
        if !live.meta.deleting {
            meta.insert("deletionTimestamp".into(), json!(meta::stamp(self.faults.clock(now))));
            meta.insert("deletionGracePeriodSeconds".into(), json!(0));
            if let Some(generation) = meta.get("generation").and_then(Value::as_i64) {
                meta.insert("generation".into(), json!(generation + 1));
            }
            if resource.plural == "namespaces" && resource.group.is_empty() {
                meta.shift_remove("deletionGracePeriodSeconds");
                object["status"]["phase"] = json!("Terminating");
            }
            if resource.plural == "customresourcedefinitions" {
                crate::crd::terminating(&mut object, &meta::stamp(self.faults.clock(now)));
            }
        }
        object.sort_all_objects();
        if object == {
            let mut old = live.value();
            old.sort_all_objects();
            old
        } {
            return Some(Deleted::Marked(live));
        }
        if !resource.custom {
            front(&mut object);
        }
        Some(Deleted::Marked(self.put(now, resource, object)))
    }

    /// Has a namespace something in it that must go first?
    pub(crate) fn keeps_itself(&self, resource: &Resource, object: &Value) -> bool {
        resource.plural == "namespaces"
            && resource.group.is_empty()
            && object["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty())
    }
}

/// `kind` and `apiVersion` first, as Go writes them.
pub(crate) fn front(object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    for name in ["metadata", "apiVersion", "kind"] {
        if let Some(value) = map.shift_remove(name) {
            map.shift_insert(0, name.to_owned(), value);
        }
    }
}

fn preconditions(ask: &Ask, options: &Value, live: &Stored) -> Result<(), Failure> {
    // Here the real server names the kind.
    let subject = Subject { resource: &ask.resource.kind, ..ask.resource.named(ask.name()) };
    if let Some(uid) = options["preconditions"]["uid"].as_str().filter(|uid| *uid != live.meta.uid) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then \
             recreated",
            live.meta.uid
        );
        return Err(Failure::conflict(subject, &why));
    }
    if let Some(rv) = options["preconditions"]["resourceVersion"].as_str().filter(|rv| *rv != live.rv.to_string()) {
        let why = format!(
            "the ResourceVersion in the precondition ({rv}) does not match the ResourceVersion in record ({}). The object might have \
             been modified",
            live.rv
        );
        return Err(Failure::conflict(subject, &why));
    }
    Ok(())
}

/// Namespaces that every cluster keeps.
fn protected(resource: &Resource, name: &str) -> Option<&'static str> {
    let kept = resource.plural == "namespaces" && ["default", "kube-system", "kube-public"].contains(&name);
    kept.then_some("this namespace may not be deleted")
}

/// Kinds whose deletion answers with the object.
fn shows_itself(resource: &Resource) -> bool {
    resource.group.is_empty()
        && matches!(
            resource.plural.as_str(),
            "pods" | "services" | "serviceaccounts" | "persistentvolumeclaims" | "resourcequotas"
        )
}

fn success(resource: &Resource, meta: &Meta) -> Response {
    let mut details = json!({ "name": meta.name });
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    details["kind"] = json!(resource.plural);
    details["uid"] = json!(meta.uid);
    Response::json(
        200,
        &json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details }),
    )
}
