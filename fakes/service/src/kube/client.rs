//! What the controllers know of the API server: for each kind a list, then a watch from where the list was. Lists and watches that end
//! begin again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request, Response};

use super::object::{INFRA_ENV_LABEL, key_of, label, namespace, reference, version_of};

/// A kind that is not there is asked for so much later.
const NOT_THERE: Duration = Duration::from_secs(10);

/// A kind that the controllers look at or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `Secret`
    Secret,
    /// `ConfigMap`
    ConfigMap,
    /// `ClusterImageSet`
    ClusterImageSet,
    /// `ClusterDeployment`
    ClusterDeployment,
    /// `AgentClusterInstall`
    AgentClusterInstall,
    /// `InfraEnv`
    InfraEnv,
    /// `NMStateConfig`
    NMStateConfig,
    /// `Agent`
    Agent,
    /// `AgentClassification`
    AgentClassification,
    /// `AgentServiceConfig`
    AgentServiceConfig,
    /// `BareMetalHost`
    BareMetalHost,
    /// `PreprovisioningImage`
    PreprovisioningImage,
}

/// A kind, its name, group and version, plural, and whether it is in a namespace.
type Row = (Kind, &'static str, &'static str, &'static str, bool);

const KINDS: &[Row] = &[
    (Kind::Secret, "Secret", "v1", "secrets", true),
    (Kind::ConfigMap, "ConfigMap", "v1", "configmaps", true),
    (Kind::ClusterImageSet, "ClusterImageSet", "hive.openshift.io/v1", "clusterimagesets", false),
    (Kind::ClusterDeployment, "ClusterDeployment", "hive.openshift.io/v1", "clusterdeployments", true),
    (
        Kind::AgentClusterInstall,
        "AgentClusterInstall",
        "extensions.hive.openshift.io/v1beta1",
        "agentclusterinstalls",
        true,
    ),
    (Kind::InfraEnv, "InfraEnv", "agent-install.openshift.io/v1beta1", "infraenvs", true),
    (Kind::NMStateConfig, "NMStateConfig", "agent-install.openshift.io/v1beta1", "nmstateconfigs", true),
    (Kind::Agent, "Agent", "agent-install.openshift.io/v1beta1", "agents", true),
    (
        Kind::AgentClassification,
        "AgentClassification",
        "agent-install.openshift.io/v1beta1",
        "agentclassifications",
        true,
    ),
    (
        Kind::AgentServiceConfig,
        "AgentServiceConfig",
        "agent-install.openshift.io/v1beta1",
        "agentserviceconfigs",
        false,
    ),
    (Kind::BareMetalHost, "BareMetalHost", "metal3.io/v1alpha1", "baremetalhosts", true),
    (Kind::PreprovisioningImage, "PreprovisioningImage", "metal3.io/v1alpha1", "preprovisioningimages", true),
];

impl Kind {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Kind> {
        KINDS.iter().map(|row| row.0)
    }

    fn row(self) -> &'static Row {
        // Every kind is in the table, in its order: a test holds that.
        &KINDS[self as usize]
    }

    /// Its name, for example `InfraEnv`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Its group and version.
    pub fn api_version(self) -> &'static str {
        self.row().2
    }

    /// Its plural, as in paths.
    pub fn plural(self) -> &'static str {
        self.row().3
    }

    /// Is it in a namespace?
    pub fn is_namespaced(self) -> bool {
        self.row().4
    }

    /// The kind of that name.
    pub fn of(name: &str) -> Option<Kind> {
        KINDS.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Where all of them are.
    pub fn path(self) -> String {
        let root = if self.api_version().contains('/') { "apis" } else { "api" };
        format!("/{root}/{}/{}", self.api_version(), self.plural())
    }

    /// Where those of a namespace are made; of a kind without namespaces all of them.
    pub fn path_in(self, namespace: &str) -> String {
        if !self.is_namespaced() {
            return self.path();
        }
        let root = if self.api_version().contains('/') { "apis" } else { "api" };
        format!("/{root}/{}/namespaces/{namespace}/{}", self.api_version(), self.plural())
    }

    /// Is it metal3's? A hub need not have it.
    pub fn is_of_metal3(self) -> bool {
        self.api_version() == "metal3.io/v1alpha1"
    }

    /// The kind of that resource.
    pub(super) fn of_object(object: &Value) -> Option<Kind> {
        Kind::of(object["kind"].as_str().unwrap_or_default())
    }

    /// The key of the one that a path is about; without a name where it is about all of a namespace.
    pub(super) fn key_in(self, path: &str) -> Option<String> {
        let root = if self.api_version().contains('/') { "apis" } else { "api" };
        let mut words = path.strip_prefix(&format!("/{root}/{}/", self.api_version()))?.split('/');
        let mut namespace = String::new();
        if self.is_namespaced() {
            words.next().filter(|word| *word == "namespaces")?;
            namespace = format!("{}/", words.next()?);
        }
        words.next().filter(|word| *word == self.plural())?;
        Some(format!("{namespace}{}", words.next().unwrap_or_default()))
    }

    /// Where that one is, by its key (`namespace/name`, or the name).
    pub fn path_of(self, key: &str) -> String {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        format!("{}/{name}", self.path_in(namespace))
    }
}

/// Something that is to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What the answer is to be given under.
    pub tag: u64,
    /// The request.
    pub request: Request,
    /// Is it a watch? It is not answered once but goes on.
    pub watch: bool,
    /// The base URL of another API server that is meant, that of a cluster; nothing: the hub.
    pub server: Option<String>,
}

/// A resource changed, as far as is known here.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) kind: Kind,
    pub(super) key: String,
    pub(super) old: Option<Arc<Value>>,
    pub(super) new: Option<Arc<Value>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To be listed then.
    Waits(Timestamp),
    Lists(u64),
    Watches(u64),
}

#[derive(Debug)]
struct Known {
    state: State,
    /// Listed at least once.
    complete: bool,
    version: String,
    objects: BTreeMap<String, Arc<Value>>,
    /// Keys of objects by what they belong to.
    members: BTreeMap<String, BTreeSet<String>>,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            state: State::Waits(Timestamp::UNSET),
            complete: false,
            version: String::new(),
            objects: BTreeMap::new(),
            members: BTreeMap::new(),
        }
    }
}

/// The key of what an object belongs to: of Agents, BareMetalHosts and PreprovisioningImages their InfraEnv, of InfraEnvs and
/// AgentClusterInstalls their ClusterDeployment. Who looks for those of one need not look at all.
fn belongs(kind: Kind, object: &Value) -> Option<String> {
    let of = match kind {
        Kind::Agent | Kind::BareMetalHost | Kind::PreprovisioningImage => {
            let infra_env = label(object, INFRA_ENV_LABEL);
            if infra_env.is_empty() { String::new() } else { format!("{}/{infra_env}", namespace(object)) }
        }
        Kind::InfraEnv => reference(&object["spec"]["clusterRef"], ""),
        Kind::AgentClusterInstall => reference(&object["spec"]["clusterDeploymentRef"], namespace(object)),
        _ => String::new(),
    };
    (!of.is_empty()).then_some(of)
}

impl Known {
    fn put(&mut self, kind: Kind, key: &str, object: Arc<Value>) {
        let of = belongs(kind, &object);
        let before = self.objects.insert(key.to_owned(), object).and_then(|old| belongs(kind, &old));
        if before != of {
            self.leave(before, key);
            if let Some(of) = of {
                self.members.entry(of).or_default().insert(key.to_owned());
            }
        }
    }

    fn remove(&mut self, kind: Kind, key: &str) {
        let before = self.objects.remove(key).and_then(|old| belongs(kind, &old));
        self.leave(before, key);
    }

    fn leave(&mut self, of: Option<String>, key: &str) {
        let Some(of) = of else { return };
        if let Some(keys) = self.members.get_mut(&of) {
            keys.remove(key);
            if keys.is_empty() {
                self.members.remove(&of);
            }
        }
    }
}

/// What is known of the API server.
#[derive(Debug)]
pub(super) struct Client {
    known: BTreeMap<Kind, Known>,
    asks: Vec<Ask>,
    next_tag: u64,
}

/// The object of an answer. Where the server is in this process that is what it has stored.
pub(super) fn object(response: &Response) -> Option<Arc<Value>> {
    match response.body.as_object::<Arc<Value>>() {
        Some(object) => Some(Arc::clone(object)),
        None => response.decode().ok().map(Arc::new),
    }
}

impl Default for Client {
    fn default() -> Self {
        let known = Kind::all().map(|kind| (kind, Known::default())).collect();
        Self { known, asks: Vec::new(), next_tag: 0 }
    }
}

impl Client {
    pub(super) fn take_asks(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.asks)
    }

    pub(super) fn ask(&mut self, request: Request) -> u64 {
        self.send(request, false)
    }

    /// Asks another API server, that of a cluster.
    pub(super) fn ask_cluster(&mut self, server: String, request: Request) -> u64 {
        let tag = self.send(request, false);
        if let Some(ask) = self.asks.last_mut() {
            ask.server = Some(server);
        }
        tag
    }

    fn send(&mut self, request: Request, watch: bool) -> u64 {
        self.next_tag += 1;
        self.asks.push(Ask { tag: self.next_tag, request, watch, server: None });
        self.next_tag
    }

    /// Is every kind known? Passes before that would take what they have not seen for missing.
    pub(super) fn is_complete(&self) -> bool {
        self.known.values().all(|known| known.complete)
    }

    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        self.known
            .values()
            .filter_map(|known| match known.state {
                State::Waits(at) => Some(at),
                _ => None,
            })
            .min()
    }

    /// Lists what is due.
    pub(super) fn wake(&mut self, now: Timestamp) {
        for kind in Kind::all() {
            if self.known.get(&kind).is_some_and(|known| matches!(known.state, State::Waits(at) if at <= now)) {
                let tag = self.send(Request::new(Method::Get, kind.path()), false);
                if let Some(known) = self.known.get_mut(&kind) {
                    known.state = State::Lists(tag);
                }
            }
        }
    }

    fn by_state(&mut self, state: State) -> Option<Kind> {
        self.known.iter().find(|(_, known)| known.state == state).map(|(kind, _)| *kind)
    }

    /// A list was answered; one that was not is asked for again at `again`.
    pub(super) fn answered(&mut self, again: Timestamp, tag: u64, answer: Result<Response, String>) -> Vec<Change> {
        // A watch that is answered was refused.
        let Some(kind) = self.by_state(State::Lists(tag)).or_else(|| self.by_state(State::Watches(tag))) else {
            return Vec::new();
        };
        let is_missing = kind.is_of_metal3() && answer.as_ref().is_ok_and(|response| response.status == 404);
        let list: Option<Value> = answer.ok().filter(Response::is_success).and_then(|response| response.decode().ok());
        let Some(Value::Array(items)) = list.as_ref().map(|list| list["items"].clone()) else {
            if let Some(known) = self.known.get_mut(&kind) {
                // A hub without the kind has nothing of it, and nobody expects it to come.
                known.state = State::Waits(if is_missing { again + NOT_THERE } else { again });
                known.complete |= is_missing;
            }
            return Vec::new();
        };
        let version = list.as_ref().and_then(|l| l["metadata"]["resourceVersion"].as_str()).unwrap_or("").to_owned();
        let mut fresh = BTreeMap::new();
        for mut item in items {
            // Items of lists do not say what they are.
            item["kind"] = kind.name().into();
            item["apiVersion"] = kind.api_version().into();
            fresh.insert(key_of(&item), Arc::new(item));
        }
        let path = format!("{}?watch=true&allowWatchBookmarks=true&resourceVersion={version}", kind.path());
        let tag = self.send(Request::new(Method::Get, path), true);
        let Some(known) = self.known.get_mut(&kind) else { return Vec::new() };
        known.state = State::Watches(tag);
        known.version = version;
        known.complete = true;
        let before = std::mem::take(&mut known.objects);
        known.members.clear();
        fresh.into_iter().for_each(|(key, object)| known.put(kind, &key, object));
        let mut changes: Vec<Change> = before
            .iter()
            .filter(|(key, _)| !known.objects.contains_key(*key))
            .map(|(key, old)| Change { kind, key: key.clone(), old: Some(old.clone()), new: None })
            .collect();
        for (key, new) in &known.objects {
            let old = before.get(key).cloned();
            if old.as_ref().is_none_or(|old| version_of(old) != version_of(new)) {
                changes.push(Change { kind, key: key.clone(), old, new: Some(new.clone()) });
            }
        }
        changes
    }

    /// A watch told something, or is over.
    pub(super) fn told(
        &mut self,
        now: Timestamp,
        tag: u64,
        events: Vec<(String, Arc<Value>)>,
        over: bool,
    ) -> Vec<Change> {
        let Some(kind) = self.by_state(State::Watches(tag)) else { return Vec::new() };
        let Some(known) = self.known.get_mut(&kind) else { return Vec::new() };
        let mut changes = Vec::new();
        let mut over = over;
        for (word, object) in events {
            if word == "ERROR" {
                // Whatever it is, a list is what helps: 410 is one of them.
                over = true;
                continue;
            }
            if let Some(version) = object["metadata"]["resourceVersion"].as_str() {
                known.version = version.to_owned();
            }
            if word == "BOOKMARK" {
                continue;
            }
            let key = key_of(&object);
            let old = known.objects.get(&key).cloned();
            if word == "DELETED" {
                known.remove(kind, &key);
                changes.push(Change { kind, key, old: old.or(Some(object)), new: None });
            } else if old.as_ref().is_none_or(|old| version_of(old) < version_of(&object)) {
                known.put(kind, &key, object.clone());
                changes.push(Change { kind, key, old, new: Some(object) });
            }
        }
        if over {
            known.state = State::Waits(now);
        }
        changes
    }

    /// Everything that was asked is lost: all kinds are listed again then.
    pub(super) fn lost(&mut self, at: Timestamp) {
        self.asks.clear();
        for known in self.known.values_mut() {
            known.state = State::Waits(at);
        }
    }

    /// A write gave that object: who wrote need not wait for the watch to know it.
    pub(super) fn wrote(&mut self, object: Arc<Value>) -> Option<Change> {
        let kind = Kind::of(object["kind"].as_str()?)?;
        let known = self.known.get_mut(&kind)?;
        let key = key_of(&object);
        let old = known.objects.get(&key).cloned();
        let meta = &object["metadata"];
        let gone = !meta["deletionTimestamp"].is_null() && meta["finalizers"].as_array().is_none_or(Vec::is_empty);
        if gone {
            known.remove(kind, &key);
            return Some(Change { kind, key, old, new: None });
        }
        if old.as_ref().is_some_and(|old| version_of(old) >= version_of(&object)) {
            return None;
        }
        known.put(kind, &key, object.clone());
        Some(Change { kind, key, old, new: Some(object) })
    }

    pub(super) fn get(&self, kind: Kind, key: &str) -> Option<&Arc<Value>> {
        self.known.get(&kind)?.objects.get(key)
    }

    pub(super) fn all(&self, kind: Kind) -> impl Iterator<Item = (&String, &Arc<Value>)> {
        self.known.get(&kind).into_iter().flat_map(|known| known.objects.iter())
    }

    /// Those of a kind that belong to what has that key: see [`belongs`].
    pub(super) fn all_of(&self, kind: Kind, of: &str) -> impl Iterator<Item = (&String, &Arc<Value>)> {
        let known = self.known.get(&kind);
        let keys = known.and_then(|known| known.members.get(of)).into_iter().flatten();
        keys.filter_map(move |key| known?.objects.get_key_value(key))
    }

    pub(super) fn all_in(&self, kind: Kind, namespace: &str) -> impl Iterator<Item = (&String, &Arc<Value>)> {
        let prefix = format!("{namespace}/");
        let from = self.known.get(&kind).into_iter().flat_map({
            let prefix = prefix.clone();
            move |known| known.objects.range(prefix.clone()..)
        });
        from.take_while(move |(key, _)| key.starts_with(&prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_kinds() {
        for (at, kind) in Kind::all().enumerate() {
            assert_eq!(kind as usize, at, "{kind:?}");
        }
        assert_eq!(Kind::Agent.path_of("ns/a"), "/apis/agent-install.openshift.io/v1beta1/namespaces/ns/agents/a");
        assert_eq!(Kind::Secret.path_of("ns/a"), "/api/v1/namespaces/ns/secrets/a");
        assert_eq!(Kind::ClusterImageSet.path_of("a"), "/apis/hive.openshift.io/v1/clusterimagesets/a");
    }
}
