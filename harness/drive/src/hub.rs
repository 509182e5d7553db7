//! A hub in virtual time: the Kubernetes API server in memory, and the service's controllers that ask it. Requests are on their way as long
//! as those to the service; what watches have to tell comes as late.
//!
//! [`Scribe`] and [`command_behind`] are for real time, too: what a history says of resources, and of what controllers do.

mod secrets;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::{Request, Response};
use vlab_api::types::{ClusterStatus, HostStatus};
pub use vlab_kube::Order;
use vlab_kube::{Memory, News, Options, WatchId, Watches};
use vlab_model::history::{
    ActionKind, ConditionStatus, OddCondition, Oddity, ResourceCondition, ResourceState, UserVerb, What, is_nothing,
};
use vlab_model::lease;
pub use vlab_service::kube::Kind;
use vlab_service::kube::{Ask, Door, DoorConfig, DoorStats, Elector, definitions, operator};
use vlab_service::{Core, Write};

use self::secrets::Secrets;

/// The API server, its controllers, and who watches.
pub(crate) struct Hub {
    memory: Memory,
    door: Door,
    config: DoorConfig,
    /// The lease of the controllers.
    elector: Elector,
    /// How often the service was started.
    starts: u64,
    /// Those of the controllers.
    watches: Watches,
    /// The harness's own watches: what it writes into the history.
    own: BTreeMap<WatchId, Kind>,
    scribe: Scribe,
    /// The faults that are orders here, by number of the order.
    orders: Vec<Arc<str>>,
}

/// Watches a kind for the history: whatever faults keep from others.
fn follow(memory: &mut Memory, now: Timestamp, kind: Kind) -> Result<WatchId, Response> {
    let watch = memory.watch(now, &kind.path())?;
    memory.core.make_faithful(watch);
    Ok(watch)
}

/// A condition as the history has it.
fn condition(object: &Value) -> Option<(String, ResourceCondition)> {
    let text = |member: &str| object[member].as_str().unwrap_or_default();
    let status = ConditionStatus::from_word(text("status"))?;
    Some((text("type").to_owned(), ResourceCondition { status, reason: text("reason").to_owned() }))
}

/// Members of a kind's status that repeat what a row of the service says.
const REPEATED: &[(Kind, &[&str])] = &[
    (Kind::AgentClusterInstall, &["debugInfo.state", "debugInfo.stateInfo", "progress.totalPercentage"]),
    (
        Kind::Agent,
        &[
            "debugInfo.state",
            "debugInfo.stateInfo",
            "progress.currentStage",
            "progress.installationPercentage",
            "role",
            "bootstrap",
        ],
    ),
];

/// Kinds whose conditions the service itself writes.
const CONDITIONED: &[Kind] =
    &[Kind::AgentClusterInstall, Kind::Agent, Kind::InfraEnv, Kind::AgentClassification, Kind::PreprovisioningImage];

/// What a status repeats of a row; null where it is not there.
fn repeated(kind: Kind, status: &Value) -> BTreeMap<String, Value> {
    let of = REPEATED.iter().filter(|(of, _)| *of == kind).flat_map(|(_, paths)| *paths);
    of.map(|path| ((*path).to_owned(), path.split('.').fold(status, |at, name| &at[name]).clone())).collect()
}

/// Its message is why the preparation failed: where it did not, the real controllers say nothing.
const PREPARATION: &str = "LastInstallationPreparationFailed";

/// Conditions with a time or a text that they should not have. `before`: what they were, if they were seen.
///
/// A condition has the time of its last turn; one of an AgentClusterInstall that of its last change, also of its reason or text. Source:
/// the real controllers, which set the conditions of that kind by a function of their own.
fn odd(kind: Kind, before: &Conditions, conditions: &Value) -> Vec<OddCondition> {
    let with_words = kind == Kind::AgentClusterInstall;
    let mut odd = Vec::new();
    for object in conditions.as_array().into_iter().flatten() {
        let text = |member: &str| object[member].as_str().unwrap_or_default();
        let Some((name, now)) = condition(object) else { continue };
        let since = text("lastTransitionTime");
        let mut is = |is| odd.push(OddCondition { condition: name.clone(), is, since: since.parse().ok() });
        if text("message").is_empty() && name != PREPARATION {
            is(Oddity::Silent);
        }
        let Some((then, words, at)) = before.get(&name) else { continue };
        let says_else = with_words && *words != (now.reason.clone(), text("message").to_owned());
        match (then.status != now.status || says_else, at == since) {
            (true, true) => is(Oddity::Stayed),
            (false, false) => is(Oddity::Moved),
            _ => {}
        }
    }
    odd
}

/// Conditions by type: what they are, their reason and text, and since when in their own words.
type Conditions = BTreeMap<String, (ResourceCondition, (String, String), String)>;

/// Since when conditions are what they are, in their own words.
fn times(conditions: &Value) -> Conditions {
    let text = |object: &Value, member: &str| object[member].as_str().unwrap_or_default().to_owned();
    let of = |object: &Value| {
        let (name, is) = condition(object)?;
        let words = (is.reason.clone(), text(object, "message"));
        Some((name, (is, words, text(object, "lastTransitionTime"))))
    };
    conditions.as_array().into_iter().flatten().filter_map(of).collect()
}

/// Turns what watches tell into lines of the history.
#[derive(Debug, Default)]
pub struct Scribe {
    /// What was told last, by kind and key.
    told: BTreeMap<(Kind, String), Told>,
    secrets: Secrets,
}

/// What was told last of a resource.
#[derive(Debug, Default)]
struct Told {
    version: u64,
    conditions: BTreeMap<String, ResourceCondition>,
    /// Since when they are so.
    times: Conditions,
    /// What it repeats of a row.
    repeats: BTreeMap<String, Value>,
    /// By its generation one sees whether it is another one.
    generation: Option<i64>,
    spec: Value,
}

/// Do two values of a member say the same?
fn is_same(before: &Value, now: &Value) -> bool {
    match (before, now) {
        (Value::Object(a), Value::Object(b)) => a.keys().chain(b.keys()).all(|name| is_same(&before[name], &now[name])),
        _ => before == now || (is_nothing(before) && is_nothing(now)),
    }
}

/// The members that are not the same in both.
fn different(before: &Value, now: &Value) -> Vec<String> {
    let names = |of: &Value| of.as_object().into_iter().flat_map(|map| map.keys().cloned()).collect::<BTreeSet<_>>();
    let all = &names(before) | &names(now);
    all.into_iter().filter(|name| !is_same(&before[name], &now[name])).collect()
}

impl Scribe {
    /// What must not be shown anywhere: Secrets are not in a history, but looked for in what is.
    pub fn learn(&mut self, secret: &Value) {
        self.secrets.learn(secret);
    }

    /// The kinds that a history follows.
    pub fn kinds() -> impl Iterator<Item = Kind> {
        Kind::all().filter(|kind| kind.api_version() != "v1")
    }

    /// What the history says of an event of a watch.
    pub fn line(&mut self, kind: Kind, event: &str, object: &Value) -> Option<What> {
        let meta = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text(&meta["namespace"]), text(&meta["name"]));
        let key = (kind, format!("{namespace}/{name}"));
        let version = text(&meta["resourceVersion"]).parse().unwrap_or(0);
        if event != "DELETED" && self.told.get(&key).is_some_and(|told| told.version >= version) {
            // A watch that has begun again tells first what there is.
            return None;
        }
        let is = match event {
            "DELETED" => ResourceState::Gone,
            "ADDED" | "MODIFIED" if !meta["deletionTimestamp"].is_null() => ResourceState::Deleting,
            "ADDED" | "MODIFIED" if !self.told.contains_key(&key) => ResourceState::There,
            "ADDED" | "MODIFIED" => ResourceState::Changed,
            _ => return None,
        };
        let (mut conditions, mut spec, mut secrets) = (BTreeMap::new(), Vec::new(), Vec::new());
        let (mut odd, mut shows) = (Vec::new(), BTreeMap::new());
        let generation = meta["generation"].as_i64();
        if is == ResourceState::Gone {
            self.told.remove(&key);
        } else {
            secrets = self.secrets.shown_in(object);
            let is_new = is == ResourceState::There;
            let last = self.told.entry(key).or_default();
            last.version = version;
            if is_new || last.generation != generation {
                last.generation = generation;
                let before = std::mem::replace(&mut last.spec, object["spec"].clone());
                spec = if is_new { Vec::new() } else { different(&before, &last.spec) };
            }
            if CONDITIONED.contains(&kind) {
                odd = self::odd(kind, &last.times, &object["status"]["conditions"]);
            }
            last.times = times(&object["status"]["conditions"]);
            let repeats = repeated(kind, &object["status"]);
            let new = repeats.iter().filter(|(path, now)| *last.repeats.get(*path).unwrap_or(&Value::Null) != **now);
            shows = new.map(|(path, now)| (path.clone(), now.clone())).collect();
            last.repeats = repeats;
            let told = &mut last.conditions;
            let now: BTreeMap<String, ResourceCondition> =
                object["status"]["conditions"].as_array().into_iter().flatten().filter_map(condition).collect();
            let gone = told.keys().filter(|kind| !now.contains_key(*kind)).map(|kind| (kind.clone(), None));
            let new = now.iter().filter(|(kind, c)| told.get(*kind) != Some(*c));
            conditions = gone.chain(new.map(|(kind, c)| (kind.clone(), Some(c.clone())))).collect();
            *told = now;
        }
        let finalizers = meta["finalizers"].as_array().into_iter().flatten().map(text);
        Some(What::Resource {
            kind: kind.name().to_owned(),
            namespace,
            name,
            version,
            generation,
            is,
            conditions,
            finalizers: finalizers.filter(|_| is == ResourceState::Deleting).collect(),
            spec,
            secrets,
            odd,
            shows,
        })
    }
}

/// The command of the service's controllers that a change in its tables shows, and to which cluster or host: who only sees a service from
/// outside is not told it.
pub fn command_behind(what: &What) -> Option<(ActionKind, Uuid)> {
    Some(match what {
        What::ClusterStatus { cluster, from, to, .. } => match to {
            ClusterStatus::PreparingForInstallation if *from == Some(ClusterStatus::Ready) => {
                (ActionKind::Install, *cluster)
            }
            ClusterStatus::Cancelled => (ActionKind::Cancel, *cluster),
            ClusterStatus::AddingHosts if from.is_some() => (ActionKind::AllowAddHosts, *cluster),
            _ => return None,
        },
        What::HostStatus { host, from, to, .. } => match to {
            HostStatus::Binding => (ActionKind::Bind, *host),
            HostStatus::Unbinding | HostStatus::UnbindingPendingUserAction | HostStatus::Reclaiming => {
                (ActionKind::Unbind, *host)
            }
            // Hosts of a cluster that is installed as a whole are prepared before.
            HostStatus::Installing if *from == Some(HostStatus::Known) => (ActionKind::InstallHost, *host),
            _ => return None,
        },
        What::HostDeleted { host } => (ActionKind::DeleteHost, *host),
        _ => return None,
    })
}

/// How the history has a command of the service's controllers.
pub fn by_controllers(kind: ActionKind, subject: Uuid) -> What {
    let (action, reason) = (UserVerb::Action(kind), "by the service's controllers".to_owned());
    What::UserAction { action, subject: Some(subject), status: 200, reason, planned: None }
}

/// Each start of the service is somebody of its own.
fn elector(start: u64, pace: f64) -> Elector {
    Elector::new(format!("vlab_{start}"), pace)
}

impl Hub {
    /// `bare_metal`: the version of the hub's operator for bare metal, if it has one.
    pub(crate) fn new(seed: u64, pace: f64, now: Timestamp, bare_metal: Option<&str>) -> Result<Self, String> {
        let options = Options { seed, ..Options::default() };
        let mut memory = Memory::new(options, now);
        memory.keep_parsed();
        memory.create_all(now, &definitions()).map_err(|status| format!("the kinds are refused: {status}"))?;
        let mut own = BTreeMap::new();
        for kind in Scribe::kinds().chain([Kind::Secret]) {
            let watch = follow(&mut memory, now, kind);
            let watch = watch.map_err(|answer| format!("{} cannot be watched: {}", kind.name(), answer.status))?;
            own.insert(watch, kind);
        }
        // Clusters have theirs behind the same door.
        let clusters = Some(Memory::URL.to_owned());
        let config = DoorConfig { pace, service: true, hive: true, metal3: true, clusters };
        let door = Door::new(config.clone());
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": lease::NAMESPACE } });
        memory
            .create_all(now, &[namespace])
            .map_err(|status| format!("the service's namespace is refused: {status}"))?;
        memory.ask_all(now, &bare_metal.map(operator).unwrap_or_default())?;
        let (elector, starts) = (elector(0, pace), 0);
        let (watches, scribe, orders) = (Watches::default(), Scribe::default(), Vec::new());
        Ok(Self { memory, door, config, elector, starts, watches, own, scribe, orders })
    }

    /// A fault begins.
    pub(crate) fn order(&mut self, now: Timestamp, fault: Arc<str>, order: Order) {
        self.memory.core.order(now, order);
        self.orders.push(fault);
    }

    /// A fault ends.
    pub(crate) fn cancel(&mut self, fault: &str) {
        for (n, _) in self.orders.iter().enumerate().filter(|(_, name)| ***name == *fault) {
            self.memory.core.faults.cancel(n);
        }
    }

    /// What faults have done since the last call.
    pub(crate) fn effects(&mut self) -> Vec<(Arc<str>, String)> {
        let happened = self.memory.core.faults.take_happened();
        happened.into_iter().filter_map(|(n, what)| Some((self.orders.get(n)?.clone(), what))).collect()
    }

    /// Answers a request of the user, and how much later than usual.
    pub(crate) fn ask(&mut self, now: Timestamp, request: &Request) -> (Response, Duration) {
        (self.memory.handle(now, request), self.memory.core.faults.take_late())
    }

    /// Answers a request of the controllers, and how much later than usual; nothing when it is a watch that begins.
    pub(crate) fn ask_for_door(&mut self, now: Timestamp, ask: &Ask) -> Option<(Result<Response, String>, Duration)> {
        if ask.server.is_some() {
            return Some((self.memory.handle_at(now, ask.server.as_deref(), &ask.request), Duration::ZERO));
        }
        if !ask.watch {
            let (response, late) = self.ask(now, &ask.request);
            return Some((Ok(response), late));
        }
        let refused = self.watches.begin(&mut self.memory, now, &ask.request.path, ask.tag)?;
        Some((Ok(refused), Duration::ZERO))
    }

    /// What watches have to tell: to the controllers, and to the history.
    pub(crate) fn news(&mut self, now: Timestamp) -> (Vec<News>, Vec<What>) {
        let (mut news, mut lines) = (Vec::new(), Vec::new());
        for watch in self.memory.core.take_woken() {
            if let Some(kind) = self.own.get(&watch).copied() {
                let (events, over) = self.memory.poll_watch(now, watch);
                for event in events {
                    if kind == Kind::Secret {
                        self.scribe.learn(&event.object);
                        continue;
                    }
                    lines.extend(self.scribe.line(kind, &event.kind, &event.object));
                }
                if over {
                    self.own.remove(&watch);
                    if let Ok(again) = follow(&mut self.memory, now, kind) {
                        self.own.insert(again, kind);
                    }
                }
            } else {
                news.extend(self.watches.news(&mut self.memory, now, watch));
            }
        }
        (news, lines)
    }

    /// The controllers.
    pub(crate) fn door(&mut self) -> &mut Door {
        &mut self.door
    }

    /// What the controllers ask, and who keeps their lease.
    pub(crate) fn take_asks(&mut self) -> Vec<Ask> {
        let mut asks = self.elector.take_asks();
        asks.extend(self.door.take_asks());
        asks
    }

    /// The answer to one of these.
    pub(crate) fn answered(&mut self, core: &mut Core, now: Timestamp, tag: u64, answer: Result<Response, String>) {
        if Elector::asked(tag) {
            self.elector.answered(now, tag, answer);
        } else {
            self.door.answered(core, now, tag, answer);
        }
    }

    /// The controllers have lost their lease: the service ends, and is started again after this.
    pub(crate) fn has_lost_lease(&self) -> Option<Duration> {
        self.elector.has_lost().then(|| lease::Times::at(self.config.pace).down)
    }

    pub(crate) fn rows_changed(&mut self, now: Timestamp, writes: &[Write]) {
        self.door.rows_changed(now, writes);
    }

    /// The service ended, and its controllers with it.
    pub(crate) fn door_ended(&mut self) {
        self.watches.end(&mut self.memory);
        self.door = Door::new(self.config.clone());
        self.starts += 1;
        self.elector = elector(self.starts, self.config.pace);
    }

    /// When the API server, or (unless the service is away) a controller, has something to do.
    pub(crate) fn next_wake(&self, up: bool) -> Option<Timestamp> {
        let door = if up && self.elector.leads() { self.door.next_wake() } else { None };
        let lease = if up { self.elector.next_wake() } else { None };
        [self.memory.core.next_wake(), door, lease].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(crate) fn wake(&mut self, core: Option<&mut Core>, now: Timestamp) {
        if self.memory.core.next_wake().is_some_and(|at| at <= now) {
            self.memory.core.wake(now);
        }
        let Some(core) = core else { return };
        if self.elector.next_wake().is_some_and(|at| at <= now) {
            self.elector.wake(now);
        }
        if self.elector.leads() && self.door.next_wake().is_some_and(|at| at <= now) {
            self.door.wake(core, now);
        }
    }

    /// Resources with their versions, and what the controllers did.
    pub(crate) fn end(mut self) -> HubEnd {
        let mut objects = Vec::new();
        for kind in Kind::all() {
            let (group, _) = kind.api_version().split_once('/').unwrap_or(("", ""));
            objects.extend(self.memory.core.objects(group, kind.plural()).into_iter().map(|object| (kind, object)));
        }
        HubEnd { objects, stats: std::mem::replace(&mut self.door, Door::new(self.config.clone())).stats() }
    }
}

/// A hub after a run.
#[derive(Debug)]
pub struct HubEnd {
    /// All resources.
    pub objects: Vec<(Kind, Arc<Value>)>,
    /// What the controllers did.
    pub stats: DoorStats,
}

impl HubEnd {
    /// The resources of that kind.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |(k, _)| *k == kind).map(|(_, object)| &**object)
    }

    /// A condition of a resource as `Status Reason`; empty when it has none of that type.
    pub fn condition(object: &Value, kind: &str) -> String {
        let all = object["status"]["conditions"].as_array();
        let found = all.into_iter().flatten().find(|c| c["type"] == kind);
        let text = |member: &str| found.and_then(|c| c[member].as_str()).unwrap_or_default();
        format!("{} {}", text("status"), text("reason")).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::left_out(json!({"hold": false, "n": 0, "list": [], "in": {"a": ""}}), json!({"x": 1}), &["x"])]
    #[case::put_in(json!({}), json!({"hold": false, "in": {"a": {"b": null}}}), &[])]
    #[case::deeper(json!({"in": {"a": 1}}), json!({"in": {"a": 1, "b": false}}), &[])]
    #[case::otherwise(json!({"hold": true, "in": {"a": 1}}), json!({"in": {"a": 2}}), &["hold", "in"])]
    #[case::gone(json!({"ref": {"name": "x"}}), json!({}), &["ref"])]
    fn a_member_that_says_nothing_is_as_one_that_is_not_there(
        #[case] before: Value,
        #[case] now: Value,
        #[case] told: &[&str],
    ) {
        assert_eq!(different(&before, &now), told);
    }

    fn aci(version: u64, status: &str, since: &str, message: &str, percent: u64) -> Value {
        json!({ "metadata": { "name": "c", "namespace": "c", "resourceVersion": version.to_string() },
                "status": { "progress": { "totalPercentage": percent }, "conditions": [
                    { "type": "Failed", "status": status, "reason": "r", "message": message, "lastTransitionTime": since }] } })
    }

    #[test]
    fn what_is_odd_and_what_a_row_says_are_told() {
        let mut scribe = Scribe::default();
        let mut tell = |event, object| match scribe.line(Kind::AgentClusterInstall, event, &object) {
            Some(What::Resource { odd, shows, .. }) => {
                let odd: Vec<Oddity> = odd.into_iter().map(|odd| odd.is).collect();
                (odd, shows.get("progress.totalPercentage").and_then(Value::as_u64))
            }
            other => panic!("{other:?}"),
        };
        const T0: &str = "2026-01-01T00:00:00Z";
        const T1: &str = "2026-01-01T00:01:00Z";
        assert_eq!(tell("ADDED", aci(1, "False", T0, "m", 5)), (vec![], Some(5)));
        assert_eq!(tell("MODIFIED", aci(2, "True", T0, "m", 5)), (vec![Oddity::Stayed], None));
        assert_eq!(tell("MODIFIED", aci(3, "True", T1, "m", 6)), (vec![Oddity::Moved], Some(6)));
        assert_eq!(tell("MODIFIED", aci(4, "False", T0, "", 6)), (vec![Oddity::Silent], None));
        assert_eq!(tell("MODIFIED", aci(5, "False", T1, "other words", 6)), (vec![], None), "that is a change, too");
    }

    fn cluster(from: Option<ClusterStatus>, to: ClusterStatus) -> What {
        What::ClusterStatus { cluster: Uuid::nil(), from, to, info: String::new() }
    }

    fn host(from: Option<HostStatus>, to: HostStatus) -> What {
        What::HostStatus { host: Uuid::nil(), cluster: None, from, to, info: String::new() }
    }

    #[rstest]
    #[case(cluster(Some(ClusterStatus::Ready), ClusterStatus::PreparingForInstallation), Some(ActionKind::Install))]
    #[case(cluster(Some(ClusterStatus::Installed), ClusterStatus::AddingHosts), Some(ActionKind::AllowAddHosts))]
    #[case::imported(cluster(None, ClusterStatus::AddingHosts), None)]
    #[case(cluster(Some(ClusterStatus::Installing), ClusterStatus::Cancelled), Some(ActionKind::Cancel))]
    #[case(cluster(Some(ClusterStatus::PreparingForInstallation), ClusterStatus::Installing), None)]
    #[case::of_day_2(host(Some(HostStatus::Known), HostStatus::Installing), Some(ActionKind::InstallHost))]
    #[case(host(Some(HostStatus::PreparingSuccessful), HostStatus::Installing), None)]
    #[case(host(Some(HostStatus::KnownUnbound), HostStatus::Binding), Some(ActionKind::Bind))]
    #[case(host(Some(HostStatus::Known), HostStatus::Unbinding), Some(ActionKind::Unbind))]
    #[case(What::HostDeleted { host: Uuid::nil() }, Some(ActionKind::DeleteHost))]
    fn what_controllers_do_shows_in_the_tables(#[case] what: What, #[case] command: Option<ActionKind>) {
        assert_eq!(command_behind(&what).map(|(kind, _)| kind), command);
    }

    /// The judge must know when a server is there again: it excuses what comes late until then.
    #[test]
    fn the_judge_knows_what_a_server_says_that_is_back() {
        assert_eq!(vlab_kube::BACK, vlab_judge::invariants::SERVER_IS_BACK);
    }
}
