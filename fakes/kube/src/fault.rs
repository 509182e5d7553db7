//! What goes wrong on purpose, as data: an order says which requests or events it is about and what happens to them.
//!
//! An order is used up when it has happened as often as it says. [`Faults::fired`] tells how often each has happened, because a fault
//! that never happened proves nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use vlab_api::Timestamp;

use crate::failure::{Failure, Subject};
use crate::resource::Resource;
use crate::store::Change;

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// A write is refused: somebody else was quicker (409).
    Conflict,
    /// A request is refused with that status: 429 and 503 carry `Retry-After: 1`.
    Refuse(u16),
    /// A request is carried out at once, and answered so much later.
    Slow(Duration),
    /// A write is refused: the namespace's quota is used up (403).
    Quota,
    /// Reads and lists show what was there that long ago.
    Stale(Duration),
    /// Watches do not tell of a change.
    Withhold,
    /// Watches tell of a change twice.
    Twice,
    /// Watches tell of a change that much later.
    Delay(Duration),
    /// Watches end with 410 at a change.
    Cut,
    /// Watches end without a word at a change.
    Close,
    /// Calls to webhooks get no answer in time.
    WebhookTimeout,
    /// An admission webhook that is not registered here, and would be where the kind is used, fails for a new or changed object: the
    /// write is refused (500), and where the call takes its time, answered so much later.
    Webhook {
        /// Its name.
        name: String,
        /// Why the call failed, in the words of the API server.
        why: String,
        /// How long that took.
        took: Duration,
    },
    /// The server's clock is wrong, by so many microseconds ahead: what it stamps itself has such times.
    Clock(i64),
    /// The lease of that name is taken over by somebody else, who renews it as long as this lasts.
    LeaseTaken {
        /// Its namespace.
        namespace: String,
        /// How long the new holder lets others wait after he has renewed it.
        duration: Duration,
        /// How often he renews it.
        retry: Duration,
    },
    /// Nothing is answered for that long: every request gets 503.
    Outage(Duration),
    /// The server restarts behind a write that was stored, or at once where no kind, no object and no number of writes is said: watches
    /// end, what changed before is no longer known to those that begin again (410), and for that long every request gets 503.
    Restart(Duration),
}

/// An order for something to go wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// What happens.
    pub fault: Fault,
    /// The plural of the kind it is about; empty: every kind.
    pub resource: String,
    /// The verb: `create`, `update`, `patch`, `delete`; `write` is any of them; empty: any that the fault can meet.
    pub verb: String,
    /// `status`, or empty for the object itself; `*` for both.
    pub subresource: String,
    /// The name of the object; empty: every object.
    pub name: String,
    /// How many fitting requests or events pass first.
    pub after: u64,
    /// How often it happens.
    pub times: u64,
    /// It is told of the first time only.
    #[serde(default)]
    pub quiet: bool,
}

impl Order {
    /// This fault at the first write or event of that kind, once.
    pub fn new(fault: Fault, resource: impl Into<String>) -> Self {
        Self {
            fault,
            resource: resource.into(),
            verb: String::new(),
            subresource: "*".into(),
            name: String::new(),
            after: 0,
            times: 1,
            quiet: false,
        }
    }

    fn waits_for_nothing(&self) -> bool {
        self.resource.is_empty() && self.name.is_empty() && self.after == 0 && self.times == 1
    }
}

#[derive(Clone, Debug)]
struct State {
    order: Order,
    seen: u64,
    fired: u64,
    /// It is over, however often it has happened.
    over: bool,
    /// When the holder of a lease that was taken renews it next.
    renews: Option<Timestamp>,
}

impl State {
    fn take(&mut self) -> bool {
        self.seen += 1;
        let now = !self.over && self.seen > self.order.after && self.fired < self.order.times;
        self.fired += u64::from(now);
        now
    }

    /// Is it told of what has just happened?
    fn tells(&self) -> bool {
        !self.order.quiet || self.fired == 1
    }

    fn about(&self, resource: &Resource, name: &str) -> bool {
        (self.order.resource.is_empty() || self.order.resource == resource.plural)
            && (self.order.name.is_empty() || self.order.name == name)
    }
}

/// What happens to one event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Tell,
    Withhold,
    Twice,
    Later(Timestamp),
    Cut,
    Close,
}

/// What is told when a server that restarted is asked for something again.
pub const BACK: &str = "the server is back";

/// The orders in force.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    orders: Vec<State>,
    out_until: Option<Timestamp>,
    /// What was decided of a change, by its resource version: every watch of the kind meets the same.
    decided: Vec<(u64, Event)>,
    /// How many decisions were forgotten again.
    forgotten: usize,
    held: Option<Timestamp>,
    /// The server is to restart, and is back then.
    restarts: Option<Timestamp>,
    /// The order for which it is away.
    away_for: Option<usize>,
    /// How much later the answer to the request is given that was carried out last.
    late: Duration,
    /// What happened since somebody asked: the order's number, and to what.
    happened: Vec<(usize, String)>,
}

impl Faults {
    /// The server's time, where its clock is wrong on purpose. What is due when, and what is how old, goes by the right one.
    pub(crate) fn clock(&self, now: Timestamp) -> Timestamp {
        let ahead = |state: &State| match state.order.fault {
            Fault::Clock(ahead) if !state.over => ahead,
            _ => 0,
        };
        Timestamp::from_micros(now.as_micros() + self.orders.iter().map(ahead).sum::<i64>())
    }

    /// Something is stored whose times may be wrong: each order tells of the first.
    pub(crate) fn stamped(&mut self, resource: &Resource, name: &str) {
        for (n, state) in self.orders.iter_mut().enumerate() {
            if matches!(state.order.fault, Fault::Clock(_)) && !state.over && state.fired == 0 {
                state.fired = 1;
                let what = words(resource, name, "");
                self.happened.push((n, format!("{what} is the first that was stored by the wrong clock")));
            }
        }
    }

    /// Adds an order; its number is for [`Faults::fired`]. An outage begins at once, and so does a restart that waits for no write.
    pub fn order(&mut self, now: Timestamp, order: Order) -> usize {
        let mut state = State { order, seen: 0, fired: 0, over: false, renews: None };
        if let Fault::Restart(down) = state.order.fault
            && state.order.waits_for_nothing()
        {
            state.fired = 1;
            self.restarts = Some(now + down);
            self.away_for = Some(self.orders.len());
            self.happened.push((self.orders.len(), "the server restarts".to_owned()));
        }
        if let Fault::Outage(span) = state.order.fault {
            self.out_until = Some(now + span);
            state.fired = 1;
            self.happened.push((self.orders.len(), "every request gets 503".to_owned()));
        }
        if matches!(state.order.fault, Fault::LeaseTaken { .. }) {
            state.renews = Some(now);
        }
        self.orders.push(state);
        self.orders.len() - 1
    }

    /// Ends an order. What it has done stays done; an outage is over.
    pub fn cancel(&mut self, order: usize) {
        if let Some(state) = self.orders.get_mut(order) {
            state.over = true;
            state.renews = None;
            if matches!(state.order.fault, Fault::Outage(_)) {
                self.out_until = None;
            }
        }
    }

    /// What happened since the last call: numbers of orders, and what each was done to.
    pub fn take_happened(&mut self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.happened)
    }

    /// Something was stored: does the server restart now?
    pub(crate) fn stored(&mut self, now: Timestamp, resource: &Resource, name: &str) {
        for (n, state) in self.orders.iter_mut().enumerate() {
            let Fault::Restart(down) = state.order.fault else { continue };
            if state.about(resource, name) && state.take() {
                self.happened.push((n, format!("the server restarts behind a write of {}", words(resource, name, ""))));
                self.restarts = Some(now + down);
                self.away_for = Some(n);
            }
        }
    }

    /// Is the server to restart? Asked once for each time; then nothing is answered until it is back.
    pub(crate) fn take_restart(&mut self) -> bool {
        let Some(back) = self.restarts.take() else { return false };
        self.out_until = Some(self.out_until.map_or(back, |out| out.max(back)));
        true
    }

    /// How often an order has happened.
    pub fn fired(&self, order: usize) -> u64 {
        self.orders.get(order).map_or(0, |s| s.fired)
    }

    /// Ends all orders.
    pub fn clear(&mut self) {
        // Watches have noted how many there were.
        *self = Self { forgotten: self.decisions(), ..Self::default() };
    }

    pub(crate) fn outage(&mut self, now: Timestamp) -> Option<Failure> {
        let until = self.out_until?;
        if now >= until {
            self.out_until = None;
            self.happened.extend(self.away_for.take().map(|order| (order, BACK.to_owned())));
            return None;
        }
        Some(refused(503))
    }

    /// Does this request meet something?
    pub(crate) fn request(
        &mut self,
        resource: &Resource,
        verb: &str,
        subresource: &str,
        name: &str,
    ) -> Option<Failure> {
        for (n, state) in self.orders.iter_mut().enumerate() {
            let meets = |state: &mut State| {
                state.about(resource, name) && fits(&state.order, verb, subresource) && state.take()
            };
            let what = words(resource, name, subresource);
            match state.order.fault.clone() {
                Fault::Refuse(code) if meets(state) => {
                    if state.tells() {
                        self.happened.push((n, format!("{verb} {what}: {code}")));
                    }
                    return Some(refused(code));
                }
                // A watch is answered by what it tells.
                Fault::Slow(span) if verb != "watch" && meets(state) => {
                    if state.tells() {
                        self.happened.push((n, format!("{verb} {what}: answered {} s later", span.as_secs_f64())));
                    }
                    self.late = self.late.max(span);
                }
                _ => {}
            }
        }
        None
    }

    /// How much later the answer to the request is given that was carried out last; asked once.
    pub fn take_late(&mut self) -> Duration {
        std::mem::take(&mut self.late)
    }

    /// Does this write, just before it is stored, meet something?
    pub(crate) fn write(&mut self, resource: &Resource, verb: &str, subresource: &str, name: &str) -> Option<Failure> {
        let subject = || Subject { name, ..resource.named(name) };
        for (n, state) in self.orders.iter_mut().enumerate() {
            let failure = match state.order.fault {
                Fault::Conflict if verb != "create" => Failure::modified(subject()),
                Fault::Quota if verb == "create" => Failure::forbidden(
                    subject(),
                    "exceeded quota: vlab, requested: count=1, used: count=0, limited: count=0",
                ),
                _ => continue,
            };
            if state.about(resource, name) && fits(&state.order, verb, subresource) && state.take() {
                self.happened.push((n, format!("{verb} {}: refused", words(resource, name, subresource))));
                return Some(failure);
            }
        }
        None
    }

    /// How old is what a reader gets?
    pub(crate) fn stale(&mut self, resource: &Resource, name: &str) -> Option<Duration> {
        let mut orders = self.orders.iter_mut().enumerate();
        let (n, age) = orders.find_map(|(n, state)| {
            let Fault::Stale(age) = state.order.fault else { return None };
            (state.about(resource, name) && state.take()).then_some((n, age))
        })?;
        self.happened.push((n, format!("{}: as they were {} s ago", resource.plural, age.as_secs_f64())));
        Some(age)
    }

    /// Does a webhook fail for this write that is not registered here?
    pub(crate) fn admission(
        &mut self,
        resource: &Resource,
        verb: &str,
        subresource: &str,
        name: &str,
    ) -> Option<Failure> {
        if verb == "delete" {
            return None;
        }
        for (n, state) in self.orders.iter_mut().enumerate() {
            let Fault::Webhook { name: webhook, why, took } = state.order.fault.clone() else { continue };
            if state.about(resource, name) && fits(&state.order, verb, subresource) && state.take() {
                let what = words(resource, name, subresource);
                self.happened.push((n, format!("{verb} {what}: the webhook {webhook} failed")));
                self.late = self.late.max(took);
                return Some(Failure::webhook(&webhook, &why));
            }
        }
        None
    }

    pub(crate) fn webhook(&mut self, resource: &Resource) -> bool {
        self.orders
            .iter_mut()
            .any(|state| state.order.fault == Fault::WebhookTimeout && state.about(resource, "") && state.take())
    }

    /// How many decisions there were until now: what a watch notes when it begins.
    pub(crate) fn decisions(&self) -> usize {
        self.forgotten + self.decided.len()
    }

    /// What a watch is told of a change that began when there were so many decisions.
    pub(crate) fn event(&mut self, now: Timestamp, resource: &Resource, change: &Change, begun: usize) -> Event {
        let known = self.decided.iter().position(|(rv, _)| *rv == change.rv);
        let late = known.is_some_and(|at| self.forgotten + at < begun);
        let known = known.map(|at| self.decided[at].1);
        // Who asks again from where a watch was closed goes on.
        if late && known == Some(Event::Close) {
            return Event::Tell;
        }
        let event = known.unwrap_or_else(|| {
            let decided = self.decide(resource, change);
            if !self.orders.is_empty() {
                self.decided.push((change.rv, decided));
                let most = 10_000;
                if self.decided.len() > most {
                    self.decided.drain(..most / 2);
                    self.forgotten += most / 2;
                }
            }
            decided
        });
        match event {
            Event::Later(due) if now >= due => Event::Tell,
            Event::Later(due) => {
                self.held = Some(self.held.map_or(due, |held| held.min(due)));
                event
            }
            other => other,
        }
    }

    fn decide(&mut self, resource: &Resource, change: &Change) -> Event {
        for (n, state) in self.orders.iter_mut().enumerate() {
            let event = match state.order.fault {
                Fault::Withhold => Event::Withhold,
                Fault::Twice => Event::Twice,
                Fault::Delay(span) => Event::Later(change.at + span),
                Fault::Cut => Event::Cut,
                Fault::Close => Event::Close,
                _ => continue,
            };
            let name = &change.after.meta.name;
            if state.about(resource, name) && state.take() {
                let version = change.rv;
                self.happened.push((n, format!("{} at version {version}", words(resource, name, ""))));
                return event;
            }
        }
        Event::Tell
    }

    /// When an event that is held back is due, or a lease that was taken is to be renewed.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.orders.iter().filter_map(|state| state.renews).chain(self.held).min()
    }

    /// Leases that were taken and are to be renewed now: numbers of orders, namespaces, names, and how long they last then.
    pub(crate) fn renewals(&mut self, now: Timestamp) -> Vec<(usize, String, String, Duration)> {
        let mut all = Vec::new();
        for (n, state) in self.orders.iter_mut().enumerate() {
            let Fault::LeaseTaken { namespace, duration, retry } = &state.order.fault else { continue };
            if state.renews.is_some_and(|at| at <= now) {
                state.renews = Some(now + *retry);
                all.push((n, namespace.clone(), state.order.name.clone(), *duration));
            }
        }
        all
    }

    /// A lease was taken.
    pub(crate) fn taken(&mut self, order: usize) {
        let Some(state) = self.orders.get_mut(order) else { return };
        state.fired += 1;
        if state.fired == 1 {
            self.happened.push((order, format!("leases/{} was taken over by {USURPER}", state.order.name)));
        }
    }

    pub(crate) fn due(&mut self, now: Timestamp) -> bool {
        let due = self.held.is_some_and(|held| now >= held);
        if due {
            self.held = None;
        }
        due
    }
}

/// Who takes a lease that is not his.
pub(crate) const USURPER: &str = "somebody-else";

/// What something was done to.
fn words(resource: &Resource, name: &str, subresource: &str) -> String {
    let of = |text: &str| if text.is_empty() { String::new() } else { format!("/{text}") };
    format!("{}{}{}", resource.plural, of(name), of(subresource))
}

fn fits(order: &Order, verb: &str, subresource: &str) -> bool {
    let write = matches!(verb, "create" | "update" | "patch" | "delete");
    let verb_fits = match order.verb.as_str() {
        "" => true,
        "write" => write,
        other => other == verb,
    };
    verb_fits && (order.subresource == "*" || order.subresource == subresource)
}

fn refused(code: u16) -> Failure {
    let (reason, message) = match code {
        429 => ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request",
        ),
        403 => ("Forbidden", "forbidden"),
        _ => ("InternalError", "an error on the server has prevented the request from succeeding"),
    };
    let mut failure = Failure::new(code, reason, message);
    if matches!(code, 429 | 503) {
        failure.details = json!({ "retryAfterSeconds": 1 });
    }
    failure
}
