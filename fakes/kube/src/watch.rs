//! Watches: the changes of a kind as they come, from a resource version on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use vlab_api::Timestamp;

use crate::core::{Ask, Core, Stop};
use crate::failure::{Cause, Failure};
use crate::fault::{Event, Faults};
use crate::read::Selection;
use crate::resource::{Resource, ResourceId, Version};
use crate::store::{Change, Did, Store, Stored};
use crate::table::{self, Include};
use crate::view::{self, Form};

/// A watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// What a watch has to say.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// One after the other.
    pub lines: Vec<Line>,
    /// Is it over?
    pub over: bool,
}

/// Something that a watch tells.
#[derive(Clone, Debug)]
pub enum Line {
    /// That was done to that object.
    Object(Did, Stored),
    /// A line of JSON, with its newline.
    Text(Bytes),
}

impl Line {
    /// JSON, with a newline.
    pub fn bytes(&self) -> Bytes {
        match self {
            Line::Object(did, stored) => stored.line_of(*did),
            Line::Text(bytes) => bytes.clone(),
        }
    }
}

const BOOKMARKS: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Watch {
    resource: Arc<Resource>,
    version: Arc<Version>,
    namespace: String,
    selection: Selection,
    form: Form,
    include: Include,
    heading: bool,
    after: u64,
    ready: VecDeque<Line>,
    bookmark: Option<Timestamp>,
    end: Timestamp,
    /// When it is to be woken for a bookmark or its end. `None`: it was, and has not looked yet, because its client reads slowly.
    due: Option<Timestamp>,
    over: bool,
    /// No fault concerns it.
    faithful: bool,
    /// How much was decided about what watches are told when it began.
    begun: usize,
}

/// All watches.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    all: BTreeMap<WatchId, Watch>,
    due: BTreeSet<(Timestamp, WatchId)>,
    next: u64,
    woken: BTreeSet<WatchId>,
}

impl Watches {
    /// Something of that kind changed.
    pub(crate) fn changed(&mut self, resource: ResourceId) {
        let of_it = self.all.iter().filter(|(_, w)| w.resource.id == resource);
        self.woken.extend(of_it.map(|(id, _)| *id));
    }

    pub(crate) fn all_changed(&mut self) {
        self.woken.extend(self.all.keys());
    }

    pub(crate) fn take_woken(&mut self) -> BTreeSet<WatchId> {
        std::mem::take(&mut self.woken)
    }

    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }

    pub(crate) fn due(&mut self, now: Timestamp) {
        while let Some((due, id)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, id));
            if let Some(watch) = self.all.get_mut(&id) {
                watch.due = None;
                self.woken.insert(id);
            }
        }
    }

    /// Notes when a watch is to be woken next.
    fn schedule(&mut self, id: WatchId) {
        let Some(watch) = self.all.get_mut(&id) else { return };
        let due = watch.bookmark.map_or(watch.end, |bookmark| bookmark.min(watch.end));
        if watch.due != Some(due) {
            if let Some(before) = watch.due.replace(due) {
                self.due.remove(&(before, id));
            }
            self.due.insert((due, id));
        }
    }

    fn forget(&mut self, id: WatchId) {
        if let Some(due) = self.all.remove(&id).and_then(|watch| watch.due) {
            self.due.remove(&(due, id));
        }
    }

    /// All end without a word but those of whoever writes down what really happens.
    pub(crate) fn end_all(&mut self) {
        for (id, watch) in self.all.iter_mut().filter(|(_, watch)| !watch.faithful) {
            watch.over = true;
            watch.ready.clear();
            if let Some(due) = watch.due.take() {
                self.due.remove(&(due, *id));
            }
        }
        self.all_changed();
    }
}

fn line(kind: &str, object: &Value) -> Line {
    Line::Text(format!("{}\n", json!({ "type": kind, "object": object })).into())
}

impl Watch {
    fn bookmark(&self, first: bool) -> Line {
        let mut meta = json!({ "resourceVersion": self.after.to_string() });
        if first {
            meta["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        line(
            "BOOKMARK",
            &json!({ "kind": self.resource.kind, "apiVersion": self.resource.api_version(&self.version.name), "metadata": meta }),
        )
    }

    fn plain(&self) -> bool {
        self.form == Form::Whole && self.version.name == self.resource.storage
    }

    fn shown(&mut self, did: Did, stored: &Stored, rv: u64, now: Timestamp) -> Line {
        if self.plain() && stored.rv == rv {
            return Line::Object(did, stored.clone());
        }
        let kind = did.as_str();
        let mut object = view::value(&self.resource, &self.version, stored);
        object["metadata"]["resourceVersion"] = json!(rv.to_string());
        match self.form {
            Form::Whole => line(kind, &object),
            Form::Metadata => line(kind, &view::metadata(&object)),
            Form::Table => {
                let rows = vec![table::row(&self.version, &object, now, self.include)];
                let heading = std::mem::take(&mut self.heading);
                let meta = json!({ "resourceVersion": rv.to_string() });
                line(kind, &table::table(&self.version, rows, &meta, heading))
            }
        }
    }

    fn tell(&mut self, change: &Change, now: Timestamp) -> Option<Line> {
        if !self.namespace.is_empty() && change.after.meta.namespace != self.namespace {
            return None;
        }
        let everything = self.selection.is_everything();
        if everything && self.plain() {
            return Some(Line::Object(change.did, change.after.clone()));
        }
        let before = change.before.as_ref().is_some_and(|b| self.selection.takes(&self.version, b));
        let after = change.did != Did::Deleted && self.selection.takes(&self.version, &change.after);
        match (before, after) {
            (true, true) => Some(self.shown(Did::Modified, &change.after, change.rv, now)),
            (false, true) => Some(self.shown(Did::Added, &change.after, change.rv, now)),
            // One that is gone is as it last was, with the resource version of its end, already.
            (true, false) if change.did == Did::Deleted => {
                Some(self.shown(Did::Deleted, &change.after, change.rv, now))
            }
            (true, false) => {
                let last = change.before.as_ref().unwrap_or(&change.after);
                Some(self.shown(Did::Deleted, last, change.rv, now))
            }
            (false, false) => None,
        }
    }
}

impl Watch {
    fn catch_up(&mut self, now: Timestamp, store: &Store, faults: &mut Faults, told: &mut Told) {
        let expired = |after: u64, known: u64| {
            let failure = Failure::expired(format!("too old resource version: {after} ({known})"));
            line("ERROR", &failure.status())
        };
        let Some(changes) = store.changes(self.resource.id, self.after) else {
            told.lines.push(expired(self.after, store.oldest(self.resource.id)));
            told.over = true;
            return;
        };
        for change in changes {
            let event = if self.faithful { Event::Tell } else { faults.event(now, &self.resource, change, self.begun) };
            match event {
                Event::Later(_) => return,
                Event::Cut => {
                    told.lines.push(expired(self.after, change.rv));
                    told.over = true;
                    return;
                }
                Event::Close => {
                    told.over = true;
                    return;
                }
                Event::Withhold | Event::Tell | Event::Twice => {}
            }
            self.after = change.rv;
            if event == Event::Withhold {
                continue;
            }
            if let Some(line) = self.tell(change, now) {
                if event == Event::Twice {
                    told.lines.push(line.clone());
                }
                told.lines.push(line);
            }
        }
        // What others wrote meanwhile does not concern it, but a bookmark may say that far.
        self.after = self.after.max(store.rv());
    }
}

impl Core {
    /// Begins a watch.
    pub(crate) fn watch(&mut self, ask: &mut Ask) -> Result<WatchId, Stop> {
        let selection = Selection::of(ask)?;
        let form = view::form(&ask.request)?;
        let initial = ask.query.is_set("sendInitialEvents");
        let after = self.start_of(ask, initial)?;
        let limit = ask.query.get("timeoutSeconds").and_then(|t| t.parse().ok()).map(Duration::from_secs);
        let limit = limit.filter(|l| !l.is_zero()).unwrap_or(self.options.watch_limit);
        let bookmarks = ask.query.is_set("allowWatchBookmarks");
        let mut watch = Watch {
            resource: Arc::clone(&ask.resource),
            version: Arc::clone(&ask.version),
            namespace: ask.namespace().to_owned(),
            selection,
            form,
            include: view::include(ask),
            heading: true,
            after: after.unwrap_or(self.store.rv()),
            ready: VecDeque::new(),
            bookmark: bookmarks.then_some(ask.now + BOOKMARKS),
            end: ask.now + limit,
            due: None,
            over: false,
            faithful: false,
            begun: self.faults.decisions(),
        };
        if after.is_none() {
            for (_, stored) in self.store.objects(ask.resource.id, ask.namespace(), "") {
                if !watch.selection.takes(&watch.version, stored) {
                    continue;
                }
                let line = watch.shown(Did::Added, stored, stored.rv, ask.now);
                watch.ready.push_back(line);
            }
            if initial && bookmarks {
                let line = watch.bookmark(true);
                watch.ready.push_back(line);
            }
        }
        self.watches.next += 1;
        let id = WatchId(self.watches.next);
        self.watches.all.insert(id, watch);
        self.watches.schedule(id);
        self.watches.woken.insert(id);
        Ok(id)
    }

    /// The version after which changes are told; `None`: first what there is.
    fn start_of(&self, ask: &Ask, initial: bool) -> Result<Option<u64>, Failure> {
        let matching = ask.query.get("resourceVersionMatch");
        if initial && matching != Some("NotOlderThan") || !initial && matching.is_some() {
            let why = if initial {
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            } else {
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            };
            return Err(Failure::invalid_options("ListOptions", vec![Cause::forbidden("resourceVersionMatch", why)]));
        }
        match ask.query.get("resourceVersion") {
            None | Some("0") => Ok(None),
            Some(_) if initial => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                Failure::unexpected(format!(
                    "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
                ))
            }),
        }
    }

    /// What a watch has to say now. A watch that is over is forgotten with this call.
    pub fn poll_watch(&mut self, now: Timestamp, id: WatchId) -> Told {
        let Core { watches, store, faults, .. } = self;
        let Some(watch) = watches.all.get_mut(&id) else { return Told { lines: Vec::new(), over: true } };
        let mut told = Told { lines: watch.ready.drain(..).collect(), over: false };
        if !watch.over {
            watch.catch_up(now, store, faults, &mut told);
        }
        if watch.bookmark.is_some_and(|due| now >= due) && !told.over {
            told.lines.push(watch.bookmark(false));
            watch.bookmark = Some(now + BOOKMARKS);
        }
        told.over |= watch.over || now >= watch.end;
        if told.over {
            watches.forget(id);
        } else {
            watches.schedule(id);
        }
        told
    }

    /// Faults do not concern this watch: it is of somebody who writes down what really happens.
    pub fn make_faithful(&mut self, id: WatchId) {
        if let Some(watch) = self.watches.all.get_mut(&id) {
            watch.faithful = true;
        }
    }

    /// Those who write down what really happens get to know it before it is forgotten.
    pub(crate) fn tell_the_faithful(&mut self, now: Timestamp) {
        for (_, watch) in self.watches.all.iter_mut().filter(|(_, watch)| watch.faithful && !watch.over) {
            let mut told = Told { lines: Vec::new(), over: false };
            watch.catch_up(now, &self.store, &mut self.faults, &mut told);
            watch.ready.extend(told.lines);
            watch.over = told.over;
        }
    }

    /// The client of a watch has gone.
    pub fn close_watch(&mut self, id: WatchId) {
        self.watches.forget(id);
        self.watches.woken.remove(&id);
    }

    /// How many watches there are.
    pub fn watch_count(&self) -> usize {
        self.watches.all.len()
    }
}
