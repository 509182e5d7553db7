//! The server itself: requests in, answers out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request, Response};

use crate::admission::{Answer, Call, CallId};
use crate::auth::{Access, Authorization, Caller};
use crate::collect::Work;
use crate::failure::Failure;
use crate::fault::{Faults, Order, USURPER};
use crate::path::{self, Query, ResourcePath, Target};
use crate::resource::{Registry, Resource, ResourceId, Version};
use crate::store::{Did, Store, Stored, Write};
use crate::watch::{WatchId, Watches};
use crate::{crd, discovery, openapi};

/// How the server is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where uids and generated names come from.
    pub seed: u64,
    /// How many changes of each kind are remembered for watches.
    pub history: usize,
    /// May objects be made in namespaces that do not exist? A real server refuses that.
    pub any_namespace: bool,
    /// Who may do what.
    pub authorization: Authorization,
    /// Bearer tokens and who has them.
    pub tokens: BTreeMap<String, Caller>,
    /// How long after a deletion what it owned is collected. `None`: never.
    pub collection: Option<Duration>,
    /// Are the owners of fields written down (`managedFields`)?
    pub owners_of_fields: bool,
    /// How long a watch lives at most when its client does not say.
    pub watch_limit: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            history: 1000,
            any_namespace: false,
            authorization: Authorization::AlwaysAllow,
            tokens: BTreeMap::new(),
            collection: Some(Duration::ZERO),
            owners_of_fields: true,
            watch_limit: Duration::from_secs(1800),
        }
    }
}

/// A request that waits for a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What comes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The answer.
    Done(Response),
    /// A watch began: its lines come from [`Core::poll_watch`].
    Watch(WatchId),
    /// A webhook is asked first: see [`Core::take_calls`] and [`Core::answered`].
    Pending(Ticket),
}

/// What a request came to inside.
pub(crate) enum Out {
    Response(Response),
    Watch(WatchId),
}

impl From<Response> for Out {
    fn from(response: Response) -> Self {
        Out::Response(response)
    }
}

/// Why a request did not come to its end.
pub(crate) enum Stop {
    Failure(Failure),
    Call(Box<Call>),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Failure(failure)
    }
}

/// A request on its way through the server.
pub(crate) struct Ask {
    pub(crate) now: Timestamp,
    /// What the server's clock shows, which may be wrong on purpose.
    pub(crate) clock: Timestamp,
    pub(crate) caller: Caller,
    pub(crate) request: Request,
    pub(crate) path: ResourcePath,
    pub(crate) query: Query,
    pub(crate) resource: Arc<Resource>,
    pub(crate) version: Arc<Version>,
    pub(crate) warnings: Vec<String>,
    pub(crate) dice: ChaCha8Rng,
    /// What webhooks answered so far, and how many of the answers were used.
    pub(crate) answers: Vec<Answer>,
    pub(crate) used: usize,
}

impl Ask {
    pub(crate) fn name(&self) -> &str {
        self.path.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.path.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn subresource(&self) -> &str {
        self.path.subresource.as_deref().unwrap_or_default()
    }

    pub(crate) fn key(&self) -> String {
        let namespace = if self.resource.namespaced { self.namespace() } else { "" };
        crate::store::key(namespace, self.name())
    }

    pub(crate) fn api_version(&self) -> String {
        self.resource.api_version(&self.version.name)
    }
}

#[derive(Clone, Debug)]
struct Waiting {
    ticket: Ticket,
    caller: Caller,
    request: Request,
    seed: u64,
    answers: Vec<Answer>,
}

/// The server without sockets and clock.
#[derive(Debug)]
pub struct Core {
    pub(crate) options: Options,
    pub(crate) registry: Registry,
    pub(crate) store: Store,
    pub(crate) watches: Watches,
    pub(crate) work: Work,
    /// What goes wrong on purpose.
    pub faults: Faults,
    pub(crate) logs: BTreeMap<(String, String, String), String>,
    pub(crate) documents: openapi::Documents,
    dice: ChaCha8Rng,
    waiting: BTreeMap<CallId, Waiting>,
    calls: Vec<Call>,
    next_call: u64,
    next_ticket: u64,
    /// Those that waited when the server restarted.
    lost: Vec<Ticket>,
    restarted: bool,
}

impl Core {
    /// A server with the namespaces that every cluster has.
    pub fn new(options: Options, now: Timestamp) -> Self {
        let mut core = Self {
            registry: Registry::builtin(),
            store: Store::new(options.history),
            watches: Watches::default(),
            work: Work::default(),
            faults: Faults::default(),
            logs: BTreeMap::new(),
            documents: openapi::Documents::default(),
            dice: ChaCha8Rng::seed_from_u64(options.seed),
            waiting: BTreeMap::new(),
            calls: Vec::new(),
            next_call: 0,
            next_ticket: 0,
            lost: Vec::new(),
            restarted: false,
            options,
        };
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            let request = Request::new(Method::Post, "/api/v1/namespaces").json(&body);
            core.handle(now, &Caller::admin(), &request);
        }
        core
    }

    /// How the API server of another cluster behind the same door is begun.
    pub fn options_of_member(&self, name: &str) -> Options {
        let seed = name.bytes().fold(self.options.seed, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        Options { seed, any_namespace: true, ..self.options.clone() }
    }

    /// Answers a request of somebody.
    pub fn handle(&mut self, now: Timestamp, caller: &Caller, request: &Request) -> Reply {
        let seed = self.dice.next_u64();
        self.next_ticket += 1;
        let waiting = Waiting {
            ticket: Ticket(self.next_ticket),
            caller: caller.clone(),
            request: request.clone(),
            seed,
            answers: Vec::new(),
        };
        self.carry(now, waiting)
    }

    fn carry(&mut self, now: Timestamp, waiting: Waiting) -> Reply {
        self.settle(now);
        let mut warnings = Vec::new();
        let outcome = self.dispatch(now, &waiting, &mut warnings);
        self.settle(now);
        self.restart_if_due(now);
        match outcome {
            Ok(Out::Watch(id)) => Reply::Watch(id),
            Ok(Out::Response(response)) => Reply::Done(warned(response, &warnings)),
            Err(Stop::Failure(failure)) => Reply::Done(warned(failure.response(), &warnings)),
            Err(Stop::Call(call)) => {
                self.next_call += 1;
                let id = CallId(self.next_call);
                self.calls.push(Call { id, ..*call });
                let ticket = waiting.ticket;
                self.waiting.insert(id, waiting);
                Reply::Pending(ticket)
            }
        }
    }

    /// Webhooks that are to be called; each call goes out once.
    pub fn take_calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }

    /// What a webhook answered. The request that waited for it comes to its answer, or to the next webhook.
    pub fn answered(&mut self, now: Timestamp, id: CallId, answer: Answer) -> Option<(Ticket, Reply)> {
        let mut waiting = self.waiting.remove(&id)?;
        waiting.answers.push(answer);
        let ticket = waiting.ticket;
        Some((ticket, self.carry(now, waiting)))
    }

    fn dispatch(&mut self, now: Timestamp, waiting: &Waiting, warnings: &mut Vec<String>) -> Result<Out, Stop> {
        let request = &waiting.request;
        let (target, query) = path::parse(request);
        self.store.set_now(now);
        if let Some(failure) = self.faults.outage(now) {
            return Err(failure.into());
        }
        let found = match target {
            Target::Resource(path) => {
                let mut ask = self.ask(now, waiting, path, query)?;
                let out = self.resource(&mut ask);
                warnings.append(&mut ask.warnings);
                return out;
            }
            other if request.method != Method::Get && request.method != Method::Head => {
                drop(other);
                return Err(Failure::method_not_allowed().into());
            }
            Target::Plain(path) => {
                self.authorize(&waiting.caller, &Access::path("get", &path))?;
                self.plain(&path, request)?
            }
            Target::LegacyVersions => discovery::legacy(&self.registry, request),
            Target::Groups => discovery::groups(&self.registry, request),
            Target::Group(group) => discovery::group(&self.registry, &group)?,
            Target::Version { group, version } => discovery::version(&self.registry, &group, &version)?,
        };
        Ok(Out::Response(found))
    }

    fn ask(&self, now: Timestamp, waiting: &Waiting, path: ResourcePath, query: Query) -> Result<Ask, Stop> {
        let none = || self.registry.none_at(&path.group);
        let resource = self.registry.find(&path.group, &path.resource).ok_or_else(none)?;
        let version = Arc::clone(resource.version(&path.version).ok_or_else(none)?);
        let namespaced = resource.namespaced;
        if path.namespace.is_some() && !namespaced || path.namespace.is_none() && namespaced && path.name.is_some() {
            return Err(Failure::no_such_path().into());
        }
        Ok(Ask {
            now,
            clock: self.faults.clock(now),
            caller: waiting.caller.clone(),
            request: waiting.request.clone(),
            resource: Arc::clone(resource),
            path,
            query,
            warnings: version.deprecated.clone().into_iter().collect(),
            version,
            dice: ChaCha8Rng::seed_from_u64(waiting.seed),
            answers: waiting.answers.clone(),
            used: 0,
        })
    }

    fn plain(&mut self, path: &str, request: &Request) -> Result<Response, Failure> {
        let text = |text: &str| Response::empty(200).header("content-type", "text/plain; charset=utf-8").with(text);
        Ok(match path {
            "/healthz" | "/livez" | "/readyz" => text("ok"),
            "/version" => Response::json(200, &discovery::server_version()),
            "/" => Response::json(200, &discovery::paths(&self.registry)),
            "/openapi/v2" => openapi::v2(&self.registry, request)?,
            "/openapi/v3" => self.documents.index(&self.registry),
            _ if path.starts_with("/healthz/") || path.starts_with("/readyz/") || path.starts_with("/livez/") => {
                text("ok")
            }
            _ => match path.strip_prefix("/openapi/v3/") {
                Some(group) => self.documents.group(&self.registry, group).ok_or_else(Failure::no_such_page)?,
                None => return Err(Failure::no_such_page()),
            },
        })
    }

    fn resource(&mut self, ask: &mut Ask) -> Result<Out, Stop> {
        let verb = verb(ask);
        self.authorize(&ask.caller, &Access::of(ask, verb))?;
        if let Some(failure) = self.faults.request(&ask.resource, verb, ask.subresource(), ask.name()) {
            return Err(failure.into());
        }
        if ask.resource.review {
            return if verb == "create" {
                Ok(self.review(ask)?.into())
            } else {
                Err(Failure::method_not_allowed().into())
            };
        }
        if ask.path.subresource.is_some() {
            return self.subresource(ask, verb);
        }
        match verb {
            "get" => Ok(self.get(ask)?.into()),
            "list" => Ok(self.list(ask)?.into()),
            "watch" => Ok(Out::Watch(self.watch(ask)?)),
            "create" => Ok(self.create(ask)?.into()),
            "update" => Ok(self.update(ask)?.into()),
            "patch" => Ok(self.patch(ask)?.into()),
            "delete" => Ok(self.delete(ask)?.into()),
            "deletecollection" => Ok(self.delete_collection(ask)?.into()),
            _ if ask.resource.custom && ask.path.name.is_none() => {
                Err(Failure::bad_request("name must be provided").into())
            }
            _ => Err(Failure::method_not_allowed().into()),
        }
    }

    fn subresource(&mut self, ask: &mut Ask, verb: &str) -> Result<Out, Stop> {
        let sub = ask.subresource().to_owned();
        let known = ask.resource.subresources.contains(&sub.as_str())
            || sub == "status" && ask.version.status
            || sub == "scale" && ask.version.scale.is_some();
        if !known && ask.resource.custom {
            return Err(ask.resource.not_found(ask.name()).into());
        }
        if !known {
            return Err(Failure::no_such_path().into());
        }
        match (sub.as_str(), verb) {
            ("log", "get") => Ok(self.pod_log(ask)?.into()),
            ("token", "create") => Ok(self.token(ask)?.into()),
            ("eviction", "create") => Ok(self.evict(ask)?.into()),
            ("scale", "get" | "update" | "patch") => Ok(self.scale(ask, verb)?.into()),
            ("status" | "approval", "get") => Ok(self.get(ask)?.into()),
            ("status" | "approval" | "finalize", "update") => Ok(self.update(ask)?.into()),
            ("status" | "approval", "patch") => Ok(self.patch(ask)?.into()),
            _ => Err(Failure::method_not_allowed().into()),
        }
    }

    /// Stores an object, tells those who watch, and does what follows from it.
    pub(crate) fn put(&mut self, now: Timestamp, resource: &Resource, object: Value) -> Stored {
        let stored = self.store.put(resource.id, object);
        self.faults.stamped(resource, &stored.meta.name);
        self.after(now, resource, &stored, Did::Modified);
        stored
    }

    /// Removes an object, tells those who watch, and does what follows from it.
    pub(crate) fn remove(&mut self, now: Timestamp, resource: &Resource, key: &str) -> Option<Stored> {
        let stored = self.store.remove(resource.id, key)?;
        self.after(now, resource, &stored, Did::Deleted);
        Some(stored)
    }

    fn after(&mut self, now: Timestamp, resource: &Resource, stored: &Stored, did: Did) {
        self.watches.changed(resource.id);
        self.faults.stored(now, resource, &stored.meta.name);
        if resource.plural == "customresourcedefinitions" {
            self.definition(stored, did);
        }
        self.look_after(now, resource.id, stored, did);
    }

    fn definition(&mut self, stored: &Stored, did: Did) {
        let object = stored.object();
        if did == Did::Deleted {
            let spec = &object["spec"];
            let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            self.registry.remove(&name(&spec["group"]), &name(&spec["names"]["plural"]));
            return;
        }
        let new = crd::resource(&object);
        let old = self.registry.find(&new.group, &new.plural).cloned();
        let same = |old: &Resource| {
            old.versions.len() == new.versions.len()
                && old.storage == new.storage
                && old.versions.iter().zip(&new.versions).all(|(a, b)| a.name == b.name && a.published == b.published)
        };
        let restate = old.as_deref().is_some_and(|old| !same(old));
        let resource = self.registry.put(new);
        if restate {
            self.restate(&resource);
        }
    }

    /// Objects that were stored under an older schema are read with the new one.
    fn restate(&mut self, resource: &Resource) {
        let all: Vec<(Arc<str>, Stored)> =
            self.store.objects(resource.id, "", "").map(|(k, s)| (Arc::clone(k), s.clone())).collect();
        let schema = Arc::clone(&resource.stored().schema);
        for (key, stored) in all {
            let mut object = stored.value();
            crate::schema::prune(&schema, &mut object, crate::schema::At::Root(""), &mut Vec::new());
            crate::schema::fill_defaults(&schema, &mut object);
            self.store.restate(resource.id, &key, object);
        }
    }

    /// When [`Core::wake`] has something to do; `None` while nothing is due.
    pub fn next_wake(&self) -> Option<Timestamp> {
        [self.work.next(), self.watches.next(), self.faults.next()].into_iter().flatten().min()
    }

    /// Does what is due. Watches with news are in [`Core::take_woken`].
    pub fn wake(&mut self, now: Timestamp) {
        self.store.set_now(now);
        self.settle(now);
        self.watches.due(now);
        if self.faults.due(now) {
            self.watches.all_changed();
        }
        for (order, namespace, name, duration) in self.faults.renewals(now) {
            if self.usurp(now, &namespace, &name, duration) {
                self.faults.taken(order);
            }
        }
        self.restart_if_due(now);
    }

    /// Somebody else takes a lease, or renews it.
    fn usurp(&mut self, now: Timestamp, namespace: &str, name: &str, duration: Duration) -> bool {
        let all = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        let held = self.object("coordination.k8s.io", "leases", namespace, name);
        let spec = held.as_ref().map(|lease| &lease["spec"]);
        let ours = spec.is_some_and(|spec| spec["holderIdentity"] == USURPER);
        let mut spec = json!({
            "holderIdentity": USURPER, "renewTime": now.to_micro_string(), "leaseDurationSeconds": duration.as_secs().max(1),
            "leaseTransitions": spec.and_then(|s| s["leaseTransitions"].as_i64()).unwrap_or(0) + i64::from(!ours),
        });
        if !ours {
            spec["acquireTime"] = json!(now.to_micro_string());
        }
        let request = if held.is_some() {
            let patch = Request::new(Method::Patch, format!("{all}/{name}")).json(&json!({ "spec": spec }));
            let headers = patch.headers.iter().filter(|(name, _)| name != "content-type").cloned().collect();
            Request { headers, ..patch }.header("content-type", "application/merge-patch+json")
        } else {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name }, "spec": spec,
            });
            Request::new(Method::Post, all).json(&lease)
        };
        let reply = self.handle(now, &Caller::admin(), &request);
        // Nobody waits for the answer.
        self.faults.take_late();
        matches!(reply, Reply::Done(response) if response.is_success())
    }

    /// Watches that have something new since the last call.
    pub fn take_woken(&mut self) -> BTreeSet<WatchId> {
        self.watches.take_woken()
    }

    /// The kind with that group and plural.
    pub fn kind(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.registry.find(group, plural)
    }

    /// The kind with that number.
    pub fn kind_of(&self, id: ResourceId) -> Option<&Arc<Resource>> {
        self.registry.get(id)
    }

    /// The kind with that name in objects.
    pub fn kind_named(&self, group: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.registry.by_kind(group, kind)
    }

    /// An object without a request: for checks and reports. `None`: there is none.
    pub fn object(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let id = self.registry.find(group, plural)?.id;
        Some(self.store.get(id, &crate::store::key(namespace, name))?.object())
    }

    /// All objects of a kind without a request.
    pub fn objects(&self, group: &str, plural: &str) -> Vec<Arc<Value>> {
        let Some(resource) = self.registry.find(group, plural) else { return Vec::new() };
        self.store.objects(resource.id, "", "").map(|(_, s)| s.object()).collect()
    }

    /// All kinds of which there are objects, with how many.
    pub fn counts(&self) -> Vec<(Arc<Resource>, usize)> {
        let known = |id: ResourceId| Some((Arc::clone(self.registry.get(id)?), self.store.count(id)));
        self.store.kinds().into_iter().filter_map(known).collect()
    }

    /// The resource version of the last change.
    pub const fn resource_version(&self) -> u64 {
        self.store.rv()
    }

    /// What a pod's container has said.
    pub fn set_log(&mut self, namespace: &str, pod: &str, container: &str, text: impl Into<String>) {
        self.logs.insert((namespace.to_owned(), pod.to_owned(), container.to_owned()), text.into());
    }

    /// The store, for shells that keep its writes and for looking at what changed.
    pub fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Takes over what another server wrote into a database that both share: those who watch are told. What follows from the write
    /// (what it owned goes, namespaces are emptied) is done by who made it.
    pub fn replay(&mut self, write: &Write) {
        self.store.replay(write);
        self.watches.changed(write.resource);
    }

    /// Deals uids and names from another seed: servers that share a database must not deal the same ones.
    pub fn reseed(&mut self, seed: u64) {
        self.dice = ChaCha8Rng::seed_from_u64(seed);
    }

    /// The server's process ends and comes back: watches end, requests that waited for webhooks are lost; what was stored stays. What
    /// changed before is no longer remembered, as in the watch cache of a real server: who begins a watch from there gets 410.
    pub fn restart(&mut self, now: Timestamp) {
        self.tell_the_faithful(now);
        self.watches.end_all();
        self.store.compact(self.store.rv());
        self.lost.extend(std::mem::take(&mut self.waiting).into_values().map(|waiting| waiting.ticket));
        self.calls.clear();
        self.restarted = true;
    }

    fn restart_if_due(&mut self, now: Timestamp) {
        if self.faults.take_restart() {
            self.restart(now);
        }
    }

    /// Has the server restarted since the last call? Then its connections are to end.
    pub fn take_restarted(&mut self) -> bool {
        std::mem::take(&mut self.restarted)
    }

    /// Requests that are never answered, because the server restarted.
    pub fn take_lost(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.lost)
    }

    /// Something is to go wrong from now on; gives the number of the order.
    pub fn order(&mut self, now: Timestamp, order: Order) -> usize {
        let number = self.faults.order(now, order);
        self.restart_if_due(now);
        number
    }
}

/// An answer with a text.
pub(crate) trait With {
    fn with(self, text: &str) -> Self;
}

impl With for Response {
    fn with(mut self, text: &str) -> Self {
        self.body = text.into();
        self
    }
}

fn warned(mut response: Response, warnings: &[String]) -> Response {
    let mut said: Vec<&String> = Vec::new();
    for warning in warnings {
        if !said.contains(&warning) {
            said.push(warning);
            let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
            response.headers.push(("warning".into(), format!("299 - \"{quoted}\"")));
        }
    }
    response
}

/// The verb of a request, as roles name it.
fn verb(ask: &Ask) -> &'static str {
    let watch = ask.path.watch || ask.query.is_set("watch");
    match (ask.request.method, ask.path.name.is_some()) {
        (Method::Get, _) if watch && ask.path.subresource.is_none() => "watch",
        (Method::Get | Method::Head, true) => "get",
        (Method::Get | Method::Head, false) => "list",
        (Method::Post, _) => "create",
        (Method::Put, true) => "update",
        (Method::Patch, true) => "patch",
        (Method::Delete, true) => "delete",
        (Method::Delete, false) => "deletecollection",
        _ => "",
    }
}
