//! Who has the controllers: the process that holds the lease ([`vlab_model::lease`]).
//!
//! [`Elector`] is a client of the API server as plain data, as [`super::Door`] is, and beside it: where controllers wait for the database,
//! the lease is renewed all the same. A holder renews what it has seen last, and looks again only when that was refused.

use std::sync::Arc;

use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request, Response};
use vlab_model::lease::{NAME, NAMESPACE, Times};

use super::client::{self, Ask};

/// Numbers of what is asked for the lease begin here: those of the controllers stay below.
const TAGS: u64 = 1 << 63;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// The lease as it is.
    Lease,
    /// That it be ours.
    Write,
    /// A namespace for it: nobody has made one where no pod of the service is.
    Namespace,
}

/// Takes the lease, and keeps it.
#[derive(Debug)]
pub struct Elector {
    me: String,
    times: Times,
    leads: bool,
    lost: bool,
    /// The lease as it was seen last, and since when it is like that.
    seen: Option<(Arc<Value>, Timestamp)>,
    /// It may be another one by now.
    stale: bool,
    asked: Option<(u64, Asked)>,
    next: Timestamp,
    /// Since when it is tried to renew it.
    trying: Option<Timestamp>,
    asks: Vec<Ask>,
    tag: u64,
}

impl Elector {
    /// One that has asked nothing yet; `me` is nobody else's name.
    pub fn new(me: String, pace: f64) -> Self {
        Self {
            me,
            times: Times::at(pace),
            leads: false,
            lost: false,
            seen: None,
            stale: true,
            asked: None,
            next: Timestamp::UNSET,
            trying: None,
            asks: Vec::new(),
            tag: TAGS,
        }
    }

    /// Does it hold the lease?
    pub fn leads(&self) -> bool {
        self.leads && !self.lost
    }

    /// Has it held the lease and lost it? The service ends then.
    pub fn has_lost(&self) -> bool {
        self.lost
    }

    /// Is that the number of something that it has asked?
    pub fn asked(tag: u64) -> bool {
        tag >= TAGS
    }

    /// What is to be asked, since the last call; answered with [`Elector::answered`].
    pub fn take_asks(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.asks)
    }

    /// When [`Elector::wake`] has something to do.
    pub fn next_wake(&self) -> Option<Timestamp> {
        if self.lost {
            return None;
        }
        let attempt = self.asked.is_none().then_some(self.next);
        [attempt, self.given_up()].into_iter().flatten().min()
    }

    fn given_up(&self) -> Option<Timestamp> {
        self.trying.filter(|_| self.leads).map(|since| since + self.times.deadline)
    }

    /// Does what is due.
    pub fn wake(&mut self, now: Timestamp) {
        if self.given_up().is_some_and(|at| at <= now) {
            self.lost = true;
        }
        if self.lost || self.asked.is_some() || self.next > now {
            return;
        }
        if self.leads {
            self.trying.get_or_insert(now);
        }
        match &self.seen {
            Some((lease, _)) if self.leads && !self.stale => {
                let request = self.ours(now, lease);
                self.ask(Asked::Write, request);
            }
            _ => self.ask(Asked::Lease, Request::new(Method::Get, path())),
        }
    }

    /// An answer is there; `Err`: there was none, and why.
    pub fn answered(&mut self, now: Timestamp, tag: u64, answer: Result<Response, String>) {
        let Some((_, asked)) = self.asked.take_if(|(asked, _)| *asked == tag) else { return };
        self.next = now + self.times.retry;
        let status = answer.as_ref().map_or(0, |response| response.status);
        let object = answer.ok().filter(Response::is_success).and_then(|response| client::object(&response));
        match (asked, object) {
            (Asked::Lease, Some(lease)) => self.looked(now, lease),
            (Asked::Lease, None) if status == 404 => {
                self.seen = None;
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": { "name": NAME, "namespace": NAMESPACE },
                });
                let request = self.ours(now, &lease);
                self.ask(Asked::Write, request);
            }
            (Asked::Write, Some(lease)) => {
                self.seen = Some((lease, now));
                (self.leads, self.stale, self.trying) = (true, false, None);
            }
            (Asked::Write, None) if status == 404 && self.seen.is_none() => {
                let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
                self.ask(Asked::Namespace, Request::new(Method::Post, "/api/v1/namespaces").object(namespace));
            }
            (Asked::Namespace, Some(_)) => self.next = now,
            _ => self.stale = true,
        }
    }

    /// The lease is like this: it is taken when it is ours, nobody's, or its holder's no more.
    fn looked(&mut self, now: Timestamp, lease: Arc<Value>) {
        let same = |seen: &Value| seen["metadata"]["resourceVersion"] == lease["metadata"]["resourceVersion"];
        let since = self.seen.as_ref().filter(|(seen, _)| same(seen)).map_or(now, |(_, since)| *since);
        self.seen = Some((Arc::clone(&lease), since));
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let over = since + self.times.duration;
        if holder.is_empty() || holder == self.me || over <= now {
            let request = self.ours(now, &lease);
            self.ask(Asked::Write, request);
        }
    }

    /// The request that makes a lease ours, or keeps it so.
    fn ours(&self, now: Timestamp, lease: &Value) -> Request {
        let mut lease = lease.clone();
        let new = lease["metadata"]["resourceVersion"].is_null();
        let ours = lease["spec"]["holderIdentity"] == self.me.as_str();
        let spec = &mut lease["spec"];
        if !ours {
            let times = spec["leaseTransitions"].as_i64().map_or(0, |times| times + 1);
            spec["leaseTransitions"] = json!(times);
            spec["acquireTime"] = json!(now.to_micro_string());
            spec["holderIdentity"] = json!(self.me);
        }
        // Whole seconds, and never nothing.
        spec["leaseDurationSeconds"] = json!(self.times.duration.as_secs().max(1));
        spec["renewTime"] = json!(now.to_micro_string());
        if new {
            Request::new(Method::Post, all()).object(lease)
        } else {
            Request::new(Method::Put, path()).object(lease)
        }
    }

    fn ask(&mut self, what: Asked, request: Request) {
        self.tag += 1;
        self.asked = Some((self.tag, what));
        self.asks.push(Ask { tag: self.tag, request, watch: false, server: None });
    }
}

fn all() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")
}

fn path() -> String {
    format!("{}/{NAME}", all())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000 + millis * 1000)
    }

    fn lease(version: u64, holder: &str) -> Response {
        let spec = json!({ "holderIdentity": holder, "leaseTransitions": 3 });
        Response::json(
            200,
            &json!({ "metadata": { "name": NAME, "resourceVersion": version.to_string() }, "spec": spec }),
        )
    }

    /// Does what is due then, and gives what it asks.
    fn asks(elector: &mut Elector, millis: i64) -> Vec<Ask> {
        elector.wake(at(millis));
        elector.take_asks()
    }

    /// What it asks, answered with that.
    fn answer(elector: &mut Elector, millis: i64, response: Response) -> (Method, Value) {
        let [Ask { tag, request, .. }] = asks(elector, millis).try_into().unwrap();
        assert!(Elector::asked(tag));
        elector.answered(at(millis), tag, Ok(response));
        (request.method, serde_json::from_slice(&request.body).unwrap_or_default())
    }

    fn holder() -> Elector {
        let mut elector = Elector::new("me".into(), 1.0);
        answer(&mut elector, 0, lease(1, ""));
        answer(&mut elector, 0, lease(2, "me"));
        assert!(elector.leads());
        elector
    }

    #[test]
    fn where_there_is_none_it_is_made_and_a_namespace_for_it() {
        let mut elector = Elector::new("me".into(), 1.0);
        assert_eq!(answer(&mut elector, 0, Response::empty(404)).0, Method::Get);
        assert_eq!(answer(&mut elector, 0, Response::empty(404)).0, Method::Post);
        let (_, namespace) = answer(&mut elector, 0, Response::json(201, &json!({})));
        assert_eq!(namespace["metadata"]["name"], NAMESPACE);
        assert_eq!(answer(&mut elector, 0, Response::empty(404)).0, Method::Get);
        let (method, made) = answer(&mut elector, 0, lease(1, "me"));
        assert_eq!((method, &made["spec"]["holderIdentity"]), (Method::Post, &json!("me")));
        assert!(elector.leads());
    }

    #[test]
    fn it_is_renewed_and_lost_when_that_is_refused_long_enough() {
        let mut elector = holder();
        assert_eq!(elector.next_wake(), Some(at(2000)));
        assert_eq!(answer(&mut elector, 2000, lease(3, "me")).0, Method::Put);
        // A refusal is no loss: it looks what there is, and renews that.
        answer(&mut elector, 4000, Response::empty(409));
        assert_eq!(answer(&mut elector, 6000, lease(4, "me")).0, Method::Get);
        answer(&mut elector, 6000, lease(5, "me"));
        assert_eq!(elector.next_wake(), Some(at(8000)));
        for millis in [8000, 10_000, 12_000, 14_000, 16_000] {
            answer(&mut elector, millis, Response::empty(500));
            assert!(elector.leads());
        }
        assert_eq!(elector.next_wake(), Some(at(18_000)));
        assert_eq!(asks(&mut elector, 18_000), []);
        assert!(elector.has_lost() && !elector.leads() && elector.next_wake().is_none());
    }

    #[test]
    fn an_answer_that_does_not_come_loses_it_and_a_pause_does_not() {
        let mut elector = holder();
        // The whole process stood still meanwhile.
        answer(&mut elector, 600_000, lease(3, "me"));
        assert!(elector.leads());
        assert_eq!(asks(&mut elector, 602_000).len(), 1);
        assert_eq!(elector.next_wake(), Some(at(612_000)));
        asks(&mut elector, 612_000);
        assert!(elector.has_lost());
    }

    #[test]
    fn that_of_somebody_else_is_taken_once_it_is_not_renewed() {
        let mut elector = Elector::new("me".into(), 1.0);
        answer(&mut elector, 0, lease(1, "they"));
        answer(&mut elector, 14_000, lease(2, "they"));
        answer(&mut elector, 28_000, lease(2, "they"));
        assert_eq!(elector.next_wake(), Some(at(30_000)), "it has not changed for 14 s");
        answer(&mut elector, 30_000, lease(2, "they"));
        let (method, taken) = answer(&mut elector, 30_000, lease(3, "me"));
        assert_eq!((method, &taken["spec"]["leaseTransitions"]), (Method::Put, &json!(4)));
        assert!(elector.leads());
    }
}
