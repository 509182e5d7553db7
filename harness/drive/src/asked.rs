//! What was asked over which connection until it is answered, and what of that the history tells: which answers nobody should
//! get, and who asked for what.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::actor::{Connection, Reply, Send};
use vlab_api::http::{Method, Response, TransportError};
use vlab_api::types::Steps;
use vlab_model::history::What;

use crate::contacts::{Contact, Contacts, Ended};

/// In a fleet too large for every step to be recorded one bad answer of a kind is enough in this time: an outage of a second
/// would otherwise be thousands of lines.
const SAMPLE: Duration = Duration::from_secs(1);

/// Questions that are open.
#[derive(Debug)]
pub(crate) struct Asked {
    open: BTreeMap<(Connection, u64), Question>,
    /// What hosts told.
    contacts: Contacts,
    /// When an answer of that status was recorded last, to the user or to others.
    last: BTreeMap<(bool, u16), Timestamp>,
    /// What was answered last to those who read something.
    read: BTreeMap<(Option<Uuid>, String), u16>,
    keeps: Keeps,
}

/// What of requests a history keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeps {
    /// Every answer that nobody should get; else one of a kind in a while.
    pub(crate) all_bad: bool,
    /// Every request that is news.
    pub(crate) requests: bool,
}

/// A request that has come to its end.
#[derive(Debug)]
pub(crate) struct AskedFor {
    /// Host that had asked, or the cluster whose controller had; `None`: the user.
    pub(crate) who: Option<Uuid>,
    /// Method and path, without the query.
    pub(crate) request: String,
    /// HTTP status; 0: there was no answer.
    pub(crate) status: u16,
    /// Nobody should be answered so.
    pub(crate) bad: bool,
    pub(crate) took: Duration,
}

#[derive(Debug)]
struct Question {
    sent: Timestamp,
    method: Method,
    path: String,
    contact: Option<Contact>,
}

impl Asked {
    /// Nothing is asked yet. `silence`: as in [`Contacts::new`].
    pub(crate) fn new(silence: Duration, keeps: Keeps) -> Self {
        let (open, last, read) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { open, contacts: Contacts::new(silence), last, read, keeps }
    }

    /// A question is sent.
    pub(crate) fn sent(&mut self, now: Timestamp, send: &Send) {
        let (method, path) = (send.request.method, send.request.path.clone());
        let contact = Contact::of(&send.request);
        contact.iter().for_each(|contact| self.contacts.begun(contact));
        self.open.insert((send.connection, send.tag), Question { sent: now, method, path, contact });
    }

    /// When an open question was sent.
    pub(crate) fn when(&self, reply: &Reply) -> Option<Timestamp> {
        self.open.get(&(reply.connection, reply.tag)).map(|question| question.sent)
    }

    /// What hosts told, for the history.
    pub(crate) fn contacts(&mut self) -> &mut Contacts {
        &mut self.contacts
    }

    /// An answer came; what it is for the history. `who`: as in [`What::BadAnswer`].
    pub(crate) fn answered(&mut self, now: Timestamp, reply: &Reply, who: Option<Uuid>) -> Option<What> {
        let Question { sent: at, method, path, contact } = self.open.remove(&(reply.connection, reply.tag))?;
        if let (Some(Contact::Asks(host)), Ok(response)) = (&contact, &reply.result)
            && response.is_success()
        {
            self.instructed(*host, (at, now), response);
        }
        if let Some(contact) = contact {
            self.contacts.ended((at, now), contact, Ended::of(&reply.result));
        }
        let (status, bad) = match &reply.result {
            Ok(response) => (response.status, response.status >= 500),
            // A connection that ends in the middle, or an answer that is late, may be the doing of a busy computer.
            Err(error) => (0, matches!(error, TransportError::Connect(_))),
        };
        if !bad && !self.keeps.requests {
            return None;
        }
        let request = format!("{method} {}", path.split('?').next().unwrap_or_default());
        self.told(now, AskedFor { who, request, status, bad, took: now.since(at) })
    }

    /// What a request that has come to its end is for the history, whoever asked.
    pub(crate) fn told(&mut self, now: Timestamp, asked: AskedFor) -> Option<What> {
        let AskedFor { who, request, status, bad, took } = asked;
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        if bad {
            let kind = (who.is_none(), status);
            if !self.keeps.all_bad && self.last.get(&kind).is_some_and(|last| now.since(*last) < SAMPLE) {
                return None;
            }
            self.last.insert(kind, now);
            return Some(What::BadAnswer { host: who, request, status, took_ms });
        }
        // Whoever reads the same again and again and is answered alike tells nothing new.
        let is_news = !request.starts_with("GET ") || self.read.insert((who, request.clone()), status) != Some(status);
        (self.keeps.requests && is_news).then_some(What::Request { host: who, request, status, took_ms })
    }

    /// What cannot be read is the host's to tell, who could not, either.
    fn instructed(&mut self, host: Uuid, when: (Timestamp, Timestamp), response: &Response) {
        if let Some(steps) = response.body.as_object::<Steps>() {
            self.contacts.instructed(host, when, steps);
        } else if let Ok(steps) = serde_json::from_slice::<Steps>(&response.body) {
            self.contacts.instructed(host, when, &steps);
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_api::http::Request;

    use super::*;

    fn asked(all_bad: bool, requests: bool) -> Asked {
        Asked::new(Duration::from_secs(150), Keeps { all_bad, requests })
    }

    fn answer(status: u16) -> Result<Response, TransportError> {
        Ok(Response::empty(status))
    }

    #[rstest]
    #[case(answer(200), None)]
    #[case(answer(409), None)]
    #[case(answer(500), Some(500))]
    #[case(answer(503), Some(503))]
    #[case(Err(TransportError::Connect("refused".into())), Some(0))]
    #[case(Err(TransportError::Lost("reset".into())), None)]
    #[case(Err(TransportError::Timeout(Duration::from_secs(30))), None)]
    fn errors_of_the_service_are_recorded(
        #[case] result: Result<Response, TransportError>,
        #[case] recorded: Option<u16>,
    ) {
        let mut asked = asked(true, false);
        let request = Request::new(Method::Get, "/v2/events?cluster_id=1");
        let (connection, tag) = (3, 9);
        let now = Timestamp::from_secs(100);
        asked.sent(now, &Send { connection, tag, request });
        let reply = Reply { connection, tag, result };
        let later = now + Duration::from_millis(40);
        let what = asked.answered(later, &reply, None);
        let expected = recorded.map(|status| What::BadAnswer {
            host: None,
            request: "GET /v2/events".into(),
            status,
            took_ms: 40,
        });
        assert_eq!(what, expected);
        assert_eq!(asked.answered(later, &reply, None), None, "it was answered");
    }

    #[test]
    fn every_request_is_told_and_what_is_read_again_only_when_it_is_answered_otherwise() {
        let mut asked = asked(true, true);
        let who = Some(Uuid::nil());
        let mut told = |method: Method, path: &str, result: Result<Response, TransportError>| {
            let now = Timestamp::from_secs(100);
            asked.sent(now, &Send { connection: 3, tag: 1, request: Request::new(method, path) });
            let reply = Reply { connection: 3, tag: 1, result };
            match asked.answered(now + Duration::from_millis(7), &reply, who)? {
                What::Request { host, request, status, took_ms: 7 } if host == who => {
                    Some(format!("{request} {status}"))
                }
                other => Some(format!("{other:?}").split_whitespace().next().unwrap_or_default().to_owned()),
            }
        };
        let lost = || Err(TransportError::Lost("reset".into()));
        assert_eq!(told(Method::Get, "/x?a=1", answer(200)).as_deref(), Some("GET /x 200"));
        assert_eq!(told(Method::Get, "/x?a=2", answer(200)), None);
        assert_eq!(told(Method::Get, "/y", answer(200)).as_deref(), Some("GET /y 200"));
        assert_eq!(told(Method::Get, "/x", answer(404)).as_deref(), Some("GET /x 404"));
        assert_eq!(told(Method::Get, "/x", lost()).as_deref(), Some("GET /x 0"));
        assert_eq!(told(Method::Get, "/x", answer(200)).as_deref(), Some("GET /x 200"));
        assert_eq!(told(Method::Post, "/x", answer(201)).as_deref(), Some("POST /x 201"));
        assert_eq!(told(Method::Post, "/x", answer(201)).as_deref(), Some("POST /x 201"));
        assert_eq!(told(Method::Post, "/x", answer(500)).as_deref(), Some("BadAnswer"));
    }

    #[test]
    fn of_a_large_fleet_one_a_second_is_enough() {
        let mut asked = asked(false, false);
        let mut count = |millis: i64, status: u16| {
            let now = Timestamp::from_micros(1_000_000_000 + millis * 1000);
            asked.sent(now, &Send { connection: 3, tag: 1, request: Request::new(Method::Get, "/x") });
            let reply = Reply { connection: 3, tag: 1, result: answer(status) };
            asked.answered(now, &reply, Some(Uuid::nil())).is_some()
        };
        assert_eq!(
            [count(0, 500), count(10, 500), count(20, 503), count(990, 500), count(1000, 500)],
            [true, false, true, false, true]
        );
    }
}
