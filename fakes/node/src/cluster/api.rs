//! The API of the cluster that machines form: the small Kubernetes API server of the lab (`vlab_kube`) over the nodes' etcd.
//!
//! Every master has one, and all of them share what etcd has. Each keeps a copy, reads before every request what the others changed,
//! and writes what a request changed in one transaction that fails when somebody else was faster; then the request is done again.
//! Here is also what the controller-manager and the kubelets of a real cluster do: approved certificate requests are signed, and the
//! logs of pods are found.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{Mutex, Notify, mpsc};
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request, Response};
use vlab_kube::{Authorization, Caller, Core, Failure, Options, Reply, ResourceId, WatchId, Write};

use super::etcd::EtcdEntry;
use super::faults;
use super::kinds;
use super::mcs;
use super::pki::Pki;
use super::store::{COUNTER, OBJECTS, Store};
use crate::say;

/// How often a watch looks for what other masters changed.
const LOOK: Duration = Duration::from_millis(500);
/// So often a request is done again because another master was faster.
const TRIES: u32 = 16;

/// What etcd has of the counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Counter {
    /// The last resource version.
    rv: u64,
    /// How many objects were removed so far: whoever knows fewer has to look what is gone.
    gone: u64,
}

/// This server's copy of what etcd has.
struct Replica {
    core: Core,
    /// etcd's revision of the counter that was read last; nothing below it is unknown.
    revision: i64,
    counter: Counter,
    /// What every server makes for itself, and etcd knows nothing of.
    own: BTreeSet<(ResourceId, Arc<str>)>,
    /// The objects before a change that may not have come to etcd.
    before: Option<vlab_kube::Store>,
}

/// The API of one master, or of the bootstrap.
pub struct Api {
    /// Where the objects are.
    pub store: Store,
    /// Signs certificates.
    pub pki: Pki,
    replica: Mutex<Replica>,
    news: Notify,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("store", &self.store).finish_non_exhaustive()
    }
}

/// What comes of a request.
#[derive(Debug)]
pub enum Answer {
    /// A response.
    Done(Response),
    /// The lines of a watch, as they come.
    Watch(mpsc::Receiver<Bytes>),
}

/// The token of a service account: every master knows it without asking.
pub fn service_account_token(pki: &Pki, namespace: &str, name: &str) -> String {
    derived(pki, &format!("service account {namespace}/{name}"))
}

/// What new nodes show. It is the same after a restart and on every master.
pub fn bootstrap_token(pki: &Pki) -> String {
    derived(pki, "bootstrap token")
}

/// A secret that whoever has the authority's key can make, and nobody else.
fn derived(pki: &Pki, what: &str) -> String {
    use sha2::Digest;
    let hash = sha2::Sha256::digest(format!("vlab {what}\n{}", pki.ca.key));
    hash.iter().take(16).map(|b| format!("{b:02x}")).collect()
}

/// The service account under which the controller runs.
pub const CONTROLLER_ACCOUNT: (&str, &str) = ("assisted-installer", "assisted-installer-controller");

/// A server with what is there from the start; all of them are the same, so that their numbers agree.
fn new_replica(pki: &Pki) -> Replica {
    let (namespace, name) = CONTROLLER_ACCOUNT;
    let newcomer = Caller::named("system:bootstrap:vlab", &[kinds::NEWCOMERS]);
    let account = Caller::named(
        &format!("system:serviceaccount:{namespace}:{name}"),
        &["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")],
    );
    let tokens =
        BTreeMap::from([(bootstrap_token(pki), newcomer), (service_account_token(pki, namespace, name), account)]);
    let options = Options { authorization: Authorization::Roles, tokens, ..Options::default() };
    let mut core = Core::new(options, Timestamp::default());
    for (path, object) in kinds::from_the_start() {
        core.handle(Timestamp::default(), &Caller::admin(), &Request::new(Method::Post, path).json(&object));
    }
    let store = core.store();
    let own = store.kinds().into_iter().flat_map(|id| store.keys(id).into_iter().map(move |key| (id, key))).collect();
    store.keep_journal();
    core.reseed(rand_seed());
    Replica { core, revision: 0, counter: Counter::default(), own, before: None }
}

/// A number that no other server has.
fn rand_seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

impl Replica {
    /// An entry's key in etcd.
    fn path(&self, write: &Write) -> Option<String> {
        let resource = self.core.kind_of(write.resource)?;
        let group = if resource.group.is_empty() { "core" } else { &resource.group };
        Some(format!("{OBJECTS}{group}/{}/{}", resource.plural, write.key))
    }

    /// An entry of etcd as a write of whoever made it.
    fn write(&self, key: &str, value: &[u8]) -> Option<Write> {
        let mut words = key.strip_prefix(OBJECTS)?.splitn(3, '/');
        let (group, plural, key) = (words.next()?, words.next()?, words.next()?);
        let resource = self.core.kind(if group == "core" { "" } else { group }, plural)?.id;
        let object: Value = serde_json::from_slice(value).ok()?;
        let rv = object["metadata"]["resourceVersion"].as_str()?.parse().ok()?;
        Some(Write { resource, key: key.to_owned(), rv, object: Some(Bytes::copy_from_slice(value)) })
    }

    /// Takes over what others wrote: what changed, and, where all that there is was read, what is gone.
    fn take_over(&mut self, mut writes: Vec<Write>, all: bool, counter: Counter) {
        if all {
            let there: BTreeSet<(ResourceId, &str)> = writes.iter().map(|w| (w.resource, w.key.as_str())).collect();
            let store = self.core.store();
            let known = store.kinds().into_iter().flat_map(|id| store.keys(id).into_iter().map(move |key| (id, key)));
            let known: Vec<(ResourceId, Arc<str>)> = known.collect();
            let gone = known.into_iter().filter(|(id, key)| {
                !there.contains(&(*id, key.as_ref())) && !self.own.contains(&(*id, Arc::clone(key)))
            });
            let gone: Vec<Write> = gone
                .map(|(resource, key)| Write { resource, key: key.to_string(), rv: counter.rv, object: None })
                .collect();
            let store = self.core.store();
            writes.retain(|w| store.get(w.resource, &w.key).is_none_or(|known| known.rv != w.rv));
            writes.extend(gone);
        }
        writes.sort_by_key(|w| w.rv);
        for write in &writes {
            self.core.replay(write);
        }
        self.core.store().advance(counter.rv);
        self.counter = counter;
    }
}

impl Api {
    /// The API over a store.
    pub fn new(store: Store, pki: Pki) -> Self {
        let replica = Mutex::new(new_replica(&pki));
        Self { store, pki, replica, news: Notify::new() }
    }

    /// Answers a request of somebody.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn handle(self: &Arc<Self>, caller: &Caller, request: &Request, now: Timestamp) -> io::Result<Answer> {
        let (path, query) = request.split_path();
        let requests = path.contains("/certificatesigningrequests");
        if path.ends_with("/log") {
            self.find_logs(path, query, now).await?;
        }
        let mut replica = self.replica.lock().await;
        if requests && let Some(name) = path.strip_suffix("/approval") {
            self.catch_up(&mut replica).await?;
            if let Some(refused) = faults::refuses(&replica.core, name.rsplit('/').next().unwrap_or_default()) {
                return Ok(Answer::Done(refused.response()));
            }
        }
        let reply = self.carry_out(&mut replica, caller, request, now).await?;
        let taken = matches!(&reply, Reply::Done(response) if response.status == 200);
        if requests && self.sign_approved(&mut replica, now).await? > 0 && request.method == Method::Put && taken {
            // Who approved it is shown it as it is now; who came too late is told so.
            let again = Request::new(Method::Get, path.trim_end_matches("/approval"));
            let shown = self.carry_out(&mut replica, caller, &again, now).await?;
            return Ok(self.answer(shown));
        }
        drop(replica);
        Ok(self.answer(reply))
    }

    /// The same for somebody who asks over a connection: first it is found out who that is.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn serve(
        self: &Arc<Self>,
        certificate: Option<(String, Vec<String>)>,
        request: &Request,
        now: Timestamp,
    ) -> io::Result<Answer> {
        let known = self.replica.lock().await.core.authenticate(request, certificate);
        match known {
            Ok(caller) => self.handle(&caller, request, now).await,
            Err(failure) => Ok(Answer::Done(failure.response())),
        }
    }

    fn answer(self: &Arc<Self>, reply: Reply) -> Answer {
        match reply {
            Reply::Done(response) => Answer::Done(response),
            Reply::Watch(id) => {
                let (send, receive) = mpsc::channel(16);
                tokio::spawn(Arc::clone(self).tell(id, send));
                Answer::Watch(receive)
            }
            // Nobody can make a webhook here that would be asked.
            Reply::Pending(_) => {
                Answer::Done(Failure::new(501, "NotImplemented", "the lab's clusters call no webhooks").response())
            }
        }
    }

    /// Tells who watches what comes, until he goes or the watch is over.
    async fn tell(self: Arc<Self>, id: WatchId, to: mpsc::Sender<Bytes>) {
        loop {
            let told = {
                let mut replica = self.replica.lock().await;
                // Without etcd there is no news; who watches waits.
                let _ = self.catch_up(&mut replica).await;
                let now = Timestamp::now();
                replica.core.wake(now);
                replica.core.poll_watch(now, id)
            };
            let mut open = !to.is_closed();
            for line in told.lines {
                open = open && to.send(line.bytes()).await.is_ok();
            }
            if told.over || !open {
                break;
            }
            tokio::select! {
                () = self.news.notified() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        self.replica.lock().await.core.close_watch(id);
    }

    /// Reads what other servers changed.
    async fn catch_up(&self, replica: &mut Replica) -> io::Result<()> {
        if let Some(before) = replica.before.take() {
            *replica.core.store() = before;
        }
        let (mut entry, mut entries) = self.store.look(replica.revision).await?;
        let mut all = false;
        loop {
            let Some(counter) = &entry else { return Ok(()) };
            if counter.revision == replica.revision {
                return Ok(());
            }
            let count: Counter = serde_json::from_slice(&counter.value)
                .map_err(|e| io::Error::other(format!("{COUNTER} in etcd: {e}")))?;
            if count.gone != replica.counter.gone && !all {
                all = true;
                (entry, entries) = self.store.look(0).await?;
                continue;
            }
            let read = |entry: &EtcdEntry| {
                let write = replica.write(&entry.key, &entry.value);
                if write.is_none() {
                    say::note("api", &format!("{} in etcd is no object that this server knows", entry.key));
                }
                write
            };
            let writes = entries.iter().filter_map(read).collect();
            replica.revision = counter.revision;
            replica.take_over(writes, all, count);
            self.news.notify_waiters();
            return Ok(());
        }
    }

    /// Does what a request wants here and in etcd; again, when another server was faster.
    async fn carry_out(
        &self,
        replica: &mut Replica,
        caller: &Caller,
        request: &Request,
        now: Timestamp,
    ) -> io::Result<Reply> {
        for _ in 0..TRIES {
            self.catch_up(replica).await?;
            let before = replica.core.store().clone();
            let reply = replica.core.handle(now, caller, request);
            let writes = replica.core.store().take_writes();
            if writes.is_empty() {
                return Ok(reply);
            }
            // Whoever is interrupted from here on does not know whether etcd has it: the next one looks.
            replica.before = Some(before);
            let mut changed: BTreeMap<String, Option<Vec<u8>>> = BTreeMap::new();
            let mut counter = replica.counter;
            for write in &writes {
                counter.rv = counter.rv.max(write.rv);
                counter.gone += u64::from(write.object.is_none());
                if let Some(path) = replica.path(write) {
                    changed.insert(path, write.object.as_ref().map(|b| b.to_vec()));
                }
            }
            changed.insert(COUNTER.to_owned(), Some(serde_json::to_vec(&counter).map_err(io::Error::other)?));
            let entries: Vec<(String, Option<Vec<u8>>)> = changed.into_iter().collect();
            if let Some(revision) = self.store.commit(replica.revision, &entries).await? {
                replica.before = None;
                (replica.revision, replica.counter) = (revision, counter);
                self.news.notify_waiters();
                return Ok(reply);
            }
        }
        // Not 409: that one says what the object is like.
        let busy = Failure::new(429, "TooManyRequests", format!("other masters were faster {TRIES} times; try again"));
        Ok(Reply::Done(busy.response().header("retry-after", "1")))
    }

    /// Gives approved requests their certificates; how many. One that cannot be signed says why in a condition.
    async fn sign_approved(&self, replica: &mut Replica, now: Timestamp) -> io::Result<usize> {
        let all = replica.core.objects("certificates.k8s.io", "certificatesigningrequests");
        let waits = |csr: &Value| {
            let finished = condition(csr, "Failed") == "True" || csr["status"]["certificate"].is_string();
            condition(csr, "Approved") == "True" && !finished
        };
        let mut signed = 0;
        for mut csr in all.into_iter().filter(|csr| waits(csr)).map(Arc::unwrap_or_clone) {
            let name = csr["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let request = csr["spec"]["request"].as_str().and_then(|r| BASE64.decode(r).ok());
            let request = request.and_then(|r| String::from_utf8(r).ok());
            let pem = request.ok_or_else(|| io::Error::other("spec.request is not base64 of PEM"));
            match pem.and_then(|r| self.pki.sign(&r)) {
                Ok(pem) => csr["status"]["certificate"] = json!(BASE64.encode(pem)),
                Err(e) => {
                    if let Some(conditions) = csr["status"]["conditions"].as_array_mut() {
                        conditions.push(json!({ "type": "Failed", "status": "True", "reason": "SigningFailed", "message": e.to_string() }));
                    }
                }
            }
            let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}/status");
            let request = Request::new(Method::Put, path).json(&csr);
            self.carry_out(replica, &Caller::admin(), &request, now).await?;
            signed += 1;
        }
        Ok(signed)
    }

    /// Looks for what a pod's container said, where the request is about one.
    async fn find_logs(&self, path: &str, query: &str, now: Timestamp) -> io::Result<()> {
        let words: Vec<&str> = path.trim_matches('/').split('/').collect();
        let ["api", "v1", "namespaces", namespace, "pods", pod, "log"] = words[..] else { return Ok(()) };
        let mut replica = self.replica.lock().await;
        self.catch_up(&mut replica).await?;
        let Some(found) = replica.core.object("", "pods", namespace, pod) else { return Ok(()) };
        let container = found["spec"]["containers"][0]["name"].as_str().unwrap_or_default().to_owned();
        let text = if container == mcs::CONTAINER {
            let seconds = query.split('&').find_map(|p| p.strip_prefix("sinceSeconds=")?.parse().ok());
            mcs::log_of(&replica.core.objects("", "events"), now, seconds)
        } else {
            let kept = replica.core.object("", "configmaps", namespace, &format!("{pod}{LOG_OF}"));
            kept.and_then(|kept| Some(kept["data"]["log"].as_str()?.to_owned())).unwrap_or_default()
        };
        replica.core.set_log(namespace, pod, &container, text);
        Ok(())
    }
}

/// Where a master keeps the end of what its pod said: a ConfigMap of the pod's name and this. In a real cluster a kubelet is asked.
pub const LOG_OF: &str = "-vlab-log";

/// A time as events and leases have it, with microseconds.
pub fn micro(at: Timestamp) -> String {
    let whole = Timestamp::from_secs(at.as_secs()).to_string();
    let whole = whole.split(['.', 'Z']).next().unwrap_or_default().to_owned();
    format!("{whole}.{:06}Z", at.as_micros().rem_euclid(1_000_000))
}

/// Status of a condition of an object.
pub fn condition(object: &Value, kind: &str) -> String {
    let all = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let status = all.filter(|c| c["type"] == kind).find_map(|c| c["status"].as_str());
    status.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
