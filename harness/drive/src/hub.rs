//! A hub in virtual time: the Kubernetes API server in memory, and the service's controllers that ask it. Requests are on their way as long
//! as those to the service; what watches have to tell comes as late.

use std::collections::BTreeMap;

use serde_json::Value;
use vlab_api::Timestamp;
use vlab_api::http::{Request, Response};
use vlab_kube::{Memory, Options, Order, WatchId};
use vlab_service::kube::{Ask, Door, DoorConfig, DoorStats, Kind, definitions};
use vlab_service::{Core, Write};

/// What a watch told: kinds of events with their objects, and whether it is over.
pub(crate) type News = (u64, Vec<(String, Value)>, bool);

/// The API server, its controllers, and who watches.
pub(crate) struct Hub {
    memory: Memory,
    door: Door,
    config: DoorConfig,
    /// Watches of the controllers, with the number under which they asked.
    watches: BTreeMap<WatchId, u64>,
    /// The harness's own watches: what it writes into the history.
    own: BTreeMap<WatchId, Kind>,
    /// Conditions as they were told last, by kind and key.
    told: BTreeMap<(Kind, String), String>,
}

/// Is that a request to a Kubernetes API server?
pub(crate) fn is_for_hub(path: &str) -> bool {
    path.starts_with("/api/v1/") || path.starts_with("/apis/")
}

impl Hub {
    pub(crate) fn new(seed: u64, pace: f64, orders: &[Order], now: Timestamp) -> Result<Self, String> {
        let options = Options { seed, ..Options::default() };
        let mut memory = Memory::new(options, now);
        memory.create_all(now, &definitions()).map_err(|status| format!("the kinds are refused: {status}"))?;
        let mut own = BTreeMap::new();
        for kind in Kind::all().filter(|kind| kind.api_version() != "v1") {
            let watch = memory.watch(now, &kind.path());
            let watch = watch.map_err(|answer| format!("{} cannot be watched: {}", kind.name(), answer.status))?;
            own.insert(watch, kind);
        }
        for order in orders {
            memory.core.faults.order(now, order.clone());
        }
        let config = DoorConfig { pace, hive: true, metal3: true };
        let door = Door::new(config.clone());
        Ok(Self { memory, door, config, watches: BTreeMap::new(), own, told: BTreeMap::new() })
    }

    /// Answers a request of the user.
    pub(crate) fn ask(&mut self, now: Timestamp, request: &Request) -> Response {
        self.memory.handle(now, request)
    }

    /// Answers a request of the controllers; nothing when it is a watch that begins.
    pub(crate) fn ask_for_door(&mut self, now: Timestamp, ask: &Ask) -> Option<Response> {
        if !ask.watch {
            return Some(self.memory.handle(now, &ask.request));
        }
        match self.memory.watch(now, &ask.request.path) {
            Ok(watch) => {
                self.watches.insert(watch, ask.tag);
                None
            }
            Err(refused) => Some(refused),
        }
    }

    /// What watches have to tell: to the controllers, and lines for the history.
    pub(crate) fn news(&mut self, now: Timestamp) -> (Vec<News>, Vec<String>) {
        let (mut news, mut lines) = (Vec::new(), Vec::new());
        for watch in self.memory.core.take_woken() {
            if let Some(kind) = self.own.get(&watch).copied() {
                let (events, over) = self.memory.poll_watch(now, watch);
                for event in events {
                    lines.extend(self.line(kind, &event.kind, &event.object));
                }
                if over {
                    self.own.remove(&watch);
                    if let Ok(again) = self.memory.watch(now, &kind.path()) {
                        self.own.insert(again, kind);
                    }
                }
            } else if let Some(tag) = self.watches.get(&watch).copied() {
                let (events, over) = self.memory.poll_watch(now, watch);
                if over {
                    self.watches.remove(&watch);
                }
                if over || !events.is_empty() {
                    news.push((tag, events.into_iter().map(|event| (event.kind, event.object)).collect(), over));
                }
            }
        }
        (news, lines)
    }

    /// What the history says of an event: what is new about a resource's conditions.
    fn line(&mut self, kind: Kind, event: &str, object: &Value) -> Option<String> {
        let meta = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let key = format!("{}/{}", text(&meta["namespace"]), text(&meta["name"]));
        let conditions: Vec<String> = object["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|c| format!("{}={} {}", text(&c["type"]), text(&c["status"]), text(&c["reason"])))
            .collect();
        let mut now = conditions.join(", ");
        if !meta["deletionTimestamp"].is_null() {
            now.push_str(" (is being deleted)");
        }
        let known = self.told.get(&(kind, key.clone()));
        let (gone, version) = (event == "DELETED", text(&meta["resourceVersion"]));
        if !matches!(event, "ADDED" | "MODIFIED" | "DELETED") || (!gone && known == Some(&now)) {
            return None;
        }
        let what = match (gone, known) {
            (true, _) => "is gone".to_owned(),
            (false, None) => "is there".to_owned(),
            (false, Some(_)) => now.trim().to_owned(),
        };
        if gone {
            self.told.remove(&(kind, key.clone()));
        } else {
            self.told.insert((kind, key.clone()), now);
        }
        Some(format!("{} {} {what} (version {version})", kind.name(), key.trim_start_matches('/')))
    }

    /// The controllers, and what they ask.
    pub(crate) fn door(&mut self) -> &mut Door {
        &mut self.door
    }

    pub(crate) fn rows_changed(&mut self, now: Timestamp, writes: &[Write]) {
        self.door.rows_changed(now, writes);
    }

    /// The service ended, and its controllers with it.
    pub(crate) fn door_ended(&mut self) {
        for watch in std::mem::take(&mut self.watches).into_keys() {
            self.memory.core.close_watch(watch);
        }
        self.door = Door::new(self.config.clone());
    }

    /// When the API server, or (unless the service is away) a controller, has something to do.
    pub(crate) fn next_wake(&self, up: bool) -> Option<Timestamp> {
        let door = if up { self.door.next_wake() } else { None };
        [self.memory.core.next_wake(), door].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(crate) fn wake(&mut self, core: Option<&mut Core>, now: Timestamp) {
        if self.memory.core.next_wake().is_some_and(|at| at <= now) {
            self.memory.core.wake(now);
        }
        if let Some(core) = core
            && self.door.next_wake().is_some_and(|at| at <= now)
        {
            self.door.wake(core, now);
        }
    }

    /// Resources with their versions, what the controllers did, and how often each order of a fault was carried out.
    pub(crate) fn end(mut self, orders: usize) -> HubEnd {
        let mut objects = Vec::new();
        for kind in Kind::all() {
            let (group, _) = kind.api_version().split_once('/').unwrap_or(("", ""));
            objects.extend(self.memory.core.objects(group, kind.plural()).into_iter().map(|object| (kind, object)));
        }
        let fired = (0..orders).map(|order| self.memory.core.faults.fired(order)).collect();
        HubEnd { objects, stats: std::mem::replace(&mut self.door, Door::new(self.config.clone())).stats(), fired }
    }
}

/// A hub after a run.
#[derive(Debug)]
pub struct HubEnd {
    /// All resources.
    pub objects: Vec<(Kind, Value)>,
    /// What the controllers did.
    pub stats: DoorStats,
    /// How often each order of a fault was carried out.
    pub fired: Vec<u64>,
}

impl HubEnd {
    /// The resources of that kind.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |(k, _)| *k == kind).map(|(_, object)| object)
    }

    /// A condition of a resource as `Status Reason`; empty when it has none of that type.
    pub fn condition(object: &Value, kind: &str) -> String {
        let all = object["status"]["conditions"].as_array();
        let found = all.into_iter().flatten().find(|c| c["type"] == kind);
        let text = |member: &str| found.and_then(|c| c[member].as_str()).unwrap_or_default();
        format!("{} {}", text("status"), text("reason")).trim().to_owned()
    }
}
