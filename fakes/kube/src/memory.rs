//! The server in memory: a controller in virtual time, or a test, asks it like a function.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request, Response};

use crate::admission::{Answer, Call};
use crate::auth::Caller;
use crate::core::{Core, Options, Reply};
use crate::failure::Failure;
use crate::path;
use crate::watch::{Line, Told, WatchId};

/// What answers webhooks in memory.
pub type Webhooks = Box<dyn FnMut(&Call) -> Answer + Send>;

/// A server in memory, and who asks it.
pub struct Memory {
    /// The server.
    pub core: Core,
    caller: Caller,
    webhooks: Option<Webhooks>,
    /// The API servers of other clusters, by name.
    members: BTreeMap<String, Memory>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("core", &self.core).field("caller", &self.caller).finish_non_exhaustive()
    }
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK`, `ERROR`.
    pub kind: String,
    /// The object, or the status of an error.
    pub object: Arc<Value>,
}

/// What a watch told whoever asked for it under that number: kinds of events with their objects, and whether it is over.
pub type News = (u64, Vec<(String, Arc<Value>)>, bool);

/// Watches that somebody asks for under numbers: a controller, which is told later.
#[derive(Debug, Default)]
pub struct Watches(BTreeMap<WatchId, u64>);

impl Watches {
    /// Begins one; the answer, when it is refused.
    pub fn begin(&mut self, memory: &mut Memory, now: Timestamp, path: &str, tag: u64) -> Option<Response> {
        match memory.watch(now, path) {
            Ok(watch) => {
                self.0.insert(watch, tag);
                None
            }
            Err(refused) => Some(refused),
        }
    }

    /// What one of them has to tell now. Nothing, too, when it is none of these.
    pub fn news(&mut self, memory: &mut Memory, now: Timestamp, watch: WatchId) -> Option<News> {
        let tag = self.0.get(&watch).copied()?;
        let (events, over) = memory.poll_watch(now, watch);
        if over {
            self.0.remove(&watch);
        }
        let events: Vec<_> = events.into_iter().map(|event| (event.kind, event.object)).collect();
        (over || !events.is_empty()).then_some((tag, events, over))
    }

    /// Ends all of them.
    pub fn end(&mut self, memory: &mut Memory) {
        for watch in std::mem::take(&mut self.0).into_keys() {
            memory.core.close_watch(watch);
        }
    }
}

/// An event from its line.
///
/// # Errors
/// When the line is none.
pub fn event(line: &[u8]) -> Result<Event, serde_json::Error> {
    let mut value: Value = serde_json::from_slice(line)?;
    Ok(Event { kind: value["type"].as_str().unwrap_or_default().to_owned(), object: value["object"].take().into() })
}

impl Memory {
    /// The URL of a server in memory, for those who name one.
    pub const URL: &str = "http://hub";

    /// A new server, asked by an administrator.
    pub fn new(options: Options, now: Timestamp) -> Self {
        Self::over(Core::new(options, now))
    }

    fn over(core: Core) -> Self {
        Self { core, caller: Caller::admin(), webhooks: None, members: BTreeMap::new() }
    }

    /// The API server of another cluster, which is made when it is first asked.
    pub fn member(&mut self, now: Timestamp, name: &str) -> &mut Memory {
        let parsed = self.core.store.keeps_parsed();
        let core = &self.core;
        let member = self.members.entry(name.to_owned()).or_insert_with(|| {
            let mut member = Memory::over(Core::of_cluster(core.options_of_member(name), now));
            if parsed {
                member.keep_parsed();
            }
            member
        });
        while member.core.next_wake().is_some_and(|due| due <= now) {
            member.core.wake(now);
        }
        member
    }

    /// Objects are kept as they are from now on: who asks in memory needs no bytes.
    pub fn keep_parsed(&mut self) {
        self.core.store.keep_parsed();
    }

    /// Who asks from now on.
    pub fn set_caller(&mut self, caller: Caller) {
        self.caller = caller;
    }

    /// What answers webhooks. Without it a call of one fails, as if nobody listened there.
    pub fn set_webhooks(&mut self, webhooks: Webhooks) {
        self.webhooks = Some(webhooks);
    }

    /// Asks, webhooks included.
    fn ask(&mut self, now: Timestamp, request: &Request) -> Reply {
        let caller = match self.core.impersonated(request, &self.caller) {
            Ok(caller) => caller,
            Err(refused) => return Reply::Done(refused.response()),
        };
        let mut reply = self.core.handle(now, &caller, request);
        while let Reply::Pending(_) = reply {
            for call in self.core.take_calls() {
                let answer = if call.lost {
                    Answer::Failed("context deadline exceeded".into())
                } else if let Some(webhooks) = &mut self.webhooks {
                    webhooks(&call)
                } else {
                    Answer::Failed(format!("Post {:?}: nobody answers webhooks here", call.url))
                };
                if let Some((_, next)) = self.core.answered(now, call.id, answer) {
                    reply = next;
                }
            }
        }
        reply
    }

    /// Answers a request. A watch is begun with [`Memory::watch`].
    pub fn handle(&mut self, now: Timestamp, request: &Request) -> Response {
        if let Some((name, path)) = path::member(&request.path) {
            let inner = Request { path: path.to_owned(), ..request.clone() };
            return self.member(now, name).handle(now, &inner);
        }
        match self.ask(now, request) {
            Reply::Done(response) => response,
            Reply::Watch(id) => {
                self.core.close_watch(id);
                Failure::bad_request("begin a watch with `watch`").response()
            }
            Reply::Pending(_) => Failure::internal("a webhook was not answered").response(),
        }
    }

    /// Answers a request to the server of that base URL: one of a cluster (`http://…/clusters/NAME`), or this one.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn handle_at(&mut self, now: Timestamp, server: Option<&str>, request: &Request) -> Result<Response, String> {
        let Some(server) = server else { return Ok(self.handle(now, request)) };
        match server.strip_prefix(Self::URL).filter(|prefix| path::member(prefix).is_some_and(|(_, rest)| rest == "/"))
        {
            Some(prefix) => {
                Ok(self.handle(now, &Request { path: format!("{prefix}{}", request.path), ..request.clone() }))
            }
            None => Err(format!("{server}: nobody listens there")),
        }
    }

    /// Begins a watch at that path (with its parameters; `watch=true` is added).
    ///
    /// # Errors
    /// The answer, when it is refused.
    pub fn watch(&mut self, now: Timestamp, path: &str) -> Result<WatchId, Response> {
        let joint = if path.contains('?') { '&' } else { '?' };
        match self.ask(now, &Request::new(Method::Get, format!("{path}{joint}watch=true"))) {
            Reply::Watch(id) => Ok(id),
            Reply::Done(response) => Err(response),
            Reply::Pending(_) => Err(Failure::internal("a webhook was not answered").response()),
        }
    }

    /// What a watch has to say now.
    pub fn poll_watch(&mut self, now: Timestamp, id: WatchId) -> (Vec<Event>, bool) {
        let Told { lines, over } = self.core.poll_watch(now, id);
        let event = |line: &Line| match line {
            Line::Object(did, stored) => Some(Event { kind: did.as_str().to_owned(), object: stored.object() }),
            // Written by ourselves.
            Line::Text(bytes) => event(bytes).ok(),
        };
        (lines.iter().filter_map(event).collect(), over)
    }

    /// Reads an object or a list.
    ///
    /// # Errors
    /// The status object.
    pub fn get(&mut self, now: Timestamp, path: &str) -> Result<Value, Value> {
        decoded(&self.handle(now, &Request::new(Method::Get, path)))
    }

    /// Makes an object at the path of its kind.
    ///
    /// # Errors
    /// The status object.
    pub fn create(&mut self, now: Timestamp, path: &str, object: &Value) -> Result<Value, Value> {
        decoded(&self.handle(now, &Request::new(Method::Post, path).json(object)))
    }

    /// Writes an object over the one at its path.
    ///
    /// # Errors
    /// The status object.
    pub fn update(&mut self, now: Timestamp, path: &str, object: &Value) -> Result<Value, Value> {
        decoded(&self.handle(now, &Request::new(Method::Put, path).json(object)))
    }

    /// A merge patch.
    ///
    /// # Errors
    /// The status object.
    pub fn merge(&mut self, now: Timestamp, path: &str, patch: &Value) -> Result<Value, Value> {
        self.patch(now, path, "application/merge-patch+json", patch)
    }

    /// A patch of that media type.
    ///
    /// # Errors
    /// The status object.
    pub fn patch(&mut self, now: Timestamp, path: &str, media: &str, patch: &Value) -> Result<Value, Value> {
        let mut request = Request::new(Method::Patch, path).json(patch);
        request.headers.retain(|(name, _)| name != "content-type");
        decoded(&self.handle(now, &request.header("content-type", media)))
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// The status object.
    pub fn delete(&mut self, now: Timestamp, path: &str) -> Result<Value, Value> {
        decoded(&self.handle(now, &Request::new(Method::Delete, path)))
    }

    /// Makes what a file of YAML documents has in it: each object at the path of its kind.
    ///
    /// # Errors
    /// The first status object that is a failure.
    pub fn create_all(&mut self, now: Timestamp, objects: &[Value]) -> Result<Vec<Value>, Value> {
        objects
            .iter()
            .map(|object| {
                let path = self.path_of(object).ok_or_else(|| Failure::no_such_path().status())?;
                self.create(now, &path, object)
            })
            .collect()
    }

    /// Asks all of these, one after the other.
    ///
    /// # Errors
    /// The first that is refused, in words.
    pub fn ask_all(&mut self, now: Timestamp, requests: &[Request]) -> Result<(), String> {
        for request in requests {
            let answer = self.handle(now, request);
            if !answer.is_success() {
                return Err(format!("{} {} is answered with {}", request.method, request.path, answer.status));
            }
        }
        Ok(())
    }

    /// The path at which objects of the kind of this one are made.
    pub fn path_of(&self, object: &Value) -> Option<String> {
        let api_version = object["apiVersion"].as_str()?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = self.core.registry.by_kind(group, object["kind"].as_str()?)?;
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        if !resource.namespaced {
            return Some(format!("{root}/{}", resource.plural));
        }
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
        Some(format!("{root}/namespaces/{namespace}/{}", resource.plural))
    }

    /// All objects by kind and key, with their resource versions: two servers that did the same are the same.
    pub fn versions(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for (resource, _) in self.core.counts() {
            for (key, stored) in self.core.store.objects(resource.id, "", "") {
                all.insert(format!("{}.{}/{key}", resource.plural, resource.group), stored.rv);
            }
        }
        all
    }
}

fn decoded(response: &Response) -> Result<Value, Value> {
    let body: Value = response.decode().unwrap_or_else(|_| json!(String::from_utf8_lossy(&response.body)));
    if response.is_success() { Ok(body) } else { Err(body) }
}
