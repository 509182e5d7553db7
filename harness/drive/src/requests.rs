//! Which request is hit by what. A pure function of the rules, the request and the rules' own dice.

use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use uuid::Uuid;
use vlab_api::http::{Method, Response};
use vlab_api::ops;
pub use vlab_scenario::LostAt;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A host: its agent, its installer, the controller in its cluster.
    Hosts,
    /// The user, who creates, installs and looks.
    User,
}

/// What is known of a request before anything is done with it.
#[derive(Clone, Copy, Debug)]
pub struct RequestFacts<'a> {
    /// Who asks.
    pub side: Side,
    /// HTTP method.
    pub method: Method,
    /// Path and query.
    pub path: &'a str,
    /// Is it the first one on its connection?
    pub first_on_connection: bool,
}

impl RequestFacts<'_> {
    /// The host that asks, or that is asked for, as far as the path tells it.
    pub fn host(&self) -> Option<Uuid> {
        let mut parts = self.path.split('?').next()?.split('/');
        parts.find(|part| *part == "hosts")?;
        parts.next()?.parse().ok()
    }
}

/// Which requests a rule is about. What is `None` does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Select {
    /// Of this side.
    pub side: Option<Side>,
    /// Id of the operation, see [`ops::operations`].
    pub operation: Option<String>,
    /// The path (with its query) has this in it.
    pub path: Option<String>,
    /// HTTP method; `None`: any.
    pub method: Option<Method>,
    /// Of this host, or about it: its id is in the path.
    pub host: Option<Uuid>,
}

impl Select {
    /// Is that request meant?
    pub fn takes(&self, facts: &RequestFacts<'_>) -> bool {
        self.side.is_none_or(|side| side == facts.side)
            && self.method.is_none_or(|method| method == facts.method)
            && self.path.as_ref().is_none_or(|part| facts.path.contains(part.as_str()))
            && self.host.is_none_or(|host| facts.host() == Some(host))
            && self.operation.as_deref().is_none_or(|id| ops::operation_of(facts.method, facts.path) == Some(id))
    }
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// This status is answered in the service's place.
    Status {
        /// Status, 400 to 599.
        status: u16,
        /// Seconds for the header `Retry-After`.
        retry_after: Option<u64>,
    },
    /// The answer comes so much later.
    Late(Duration),
    /// The connection is closed without an answer.
    Dropped(LostAt),
    /// The connection is reset (TCP RST) without an answer.
    Reset(LostAt),
    /// A kept-alive connection is closed at the moment its next request comes. A request on a new connection gets through.
    StaleKeepAlive,
}

/// A rule: what a fault does to which requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Name of the fault.
    pub fault: Arc<str>,
    /// To which.
    pub select: Select,
    /// To so many in a hundred of them, 1 to 100.
    pub percent: u32,
    /// To so many at most; `None`: no end.
    pub at_most: Option<u64>,
    /// What happens to the request.
    pub wrong: RequestFault,
}

#[derive(Debug)]
struct Live {
    rule: Rule,
    dice: ChaCha8Rng,
    applied: u64,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// By which fault.
    pub fault: Arc<str>,
    /// What happens to the request.
    pub wrong: RequestFault,
    /// Is it the fault's first?
    pub first: bool,
}

/// The rules of a gateway.
#[derive(Debug)]
pub struct Rules {
    seed: u64,
    live: Vec<Live>,
}

/// Streams of the gateway's dice: above those of hosts and faults, see `crate::conductor`.
const STREAM: u64 = 1 << 63;

impl Rules {
    /// No rules: everything gets through.
    pub fn new(seed: u64) -> Self {
        Self { seed, live: Vec::new() }
    }

    /// From now on this happens, too. Of several rules that take a request the first one that was put on decides.
    pub fn inject(&mut self, rule: Rule) {
        let mut dice = ChaCha8Rng::seed_from_u64(self.seed);
        // Its own dice for each fault, by its name: what other faults do must not change them.
        let name = rule.fault.bytes().fold(0_u64, |n, b| n.wrapping_mul(31).wrapping_add(u64::from(b)));
        dice.set_stream(STREAM | name >> 1);
        self.live.push(Live { rule, dice, applied: 0 });
    }

    /// Takes off what the fault put on; how many requests it hit. `None`: there was nothing.
    pub fn clear(&mut self, fault: &str) -> Option<u64> {
        let at = self.live.iter().position(|live| *live.rule.fault == *fault)?;
        Some(self.live.remove(at).applied)
    }

    /// Nothing is wrong with any request.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// What happens to that request; `None`: nothing.
    pub fn apply(&mut self, facts: &RequestFacts<'_>) -> Option<Applied> {
        for live in &mut self.live {
            let rule = &live.rule;
            let stale = rule.wrong == RequestFault::StaleKeepAlive;
            if (stale && facts.first_on_connection)
                || rule.at_most.is_some_and(|most| live.applied >= most)
                || !rule.select.takes(facts)
                || live.dice.next_u32() % 100 >= rule.percent
            {
                continue;
            }
            live.applied += 1;
            return Some(Applied { fault: rule.fault.clone(), wrong: rule.wrong.clone(), first: live.applied == 1 });
        }
        None
    }
}

/// What stands in for an answer of the service: as a proxy in front of it would say it, not as the service does.
pub fn answer(status: u16, retry_after: Option<u64>) -> Response {
    let body =
        format!("<html><body><h1>{status}</h1>\nNo server is available to handle this request.\n</body></html>\n");
    let mut response = Response::empty(status).header("content-type", "text/html");
    if let Some(seconds) = retry_after {
        response = response.header("retry-after", seconds.to_string());
    }
    response.body = body.into();
    response
}

/// What happened, in words, for the history.
pub fn words(wrong: &RequestFault, method: Method, path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let what = ops::operation_of(method, path).map_or_else(|| format!("{method} {path}"), str::to_owned);
    match wrong {
        RequestFault::Status { status, .. } => format!("{what} was answered {status}"),
        RequestFault::Late(by) => format!("the answer to {what} came {} ms late", by.as_millis()),
        RequestFault::Dropped(LostAt::Request) => format!("{what} was lost with its connection"),
        RequestFault::Dropped(LostAt::Answer) => format!("the answer to {what} was lost with its connection"),
        RequestFault::Reset(LostAt::Request) => format!("the connection of {what} was reset"),
        RequestFault::Reset(LostAt::Answer) => format!("the connection was reset before the answer to {what}"),
        RequestFault::StaleKeepAlive => format!("the kept-alive connection was closed when {what} came"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const HOST: Uuid = Uuid::from_u128(7);

    fn path(rest: &str) -> String {
        format!("/api/assisted-install/v2/infra-envs/{}/hosts/{HOST}{rest}", Uuid::nil())
    }

    fn poll(path: &str) -> RequestFacts<'_> {
        RequestFacts { side: Side::Hosts, method: Method::Get, path, first_on_connection: false }
    }

    fn rule(fault: &str, select: Select, percent: u32, at_most: Option<u64>) -> Rule {
        let wrong = RequestFault::Status { status: 503, retry_after: None };
        Rule { fault: fault.into(), select, percent, at_most, wrong }
    }

    #[rstest]
    #[case::anything(Select::default(), true)]
    #[case::operation(Select { operation: Some("v2GetNextSteps".into()), ..Select::default() }, true)]
    #[case::other_operation(Select { operation: Some("v2PostStepReply".into()), ..Select::default() }, false)]
    #[case::host(Select { host: Some(HOST), ..Select::default() }, true)]
    #[case::other_host(Select { host: Some(Uuid::max()), ..Select::default() }, false)]
    #[case::method(Select { method: Some(Method::Get), ..Select::default() }, true)]
    #[case::other_method(Select { method: Some(Method::Put), ..Select::default() }, false)]
    #[case::path(Select { path: Some("/instructions".into()), ..Select::default() }, true)]
    #[case::other_path(Select { path: Some("/clusters".into()), ..Select::default() }, false)]
    #[case::side(Select { side: Some(Side::Hosts), ..Select::default() }, true)]
    #[case::other_side(Select { side: Some(Side::User), ..Select::default() }, false)]
    fn requests_are_selected(#[case] select: Select, #[case] expected: bool) {
        assert_eq!(select.takes(&poll(&path("/instructions?timestamp=5"))), expected);
    }

    #[test]
    fn a_rule_has_its_first_and_its_last() {
        let path = path("/instructions");
        let mut rules = Rules::new(1);
        assert_eq!(rules.apply(&poll(&path)), None);
        rules.inject(rule("f", Select::default(), 100, Some(2)));
        assert!(rules.apply(&poll(&path)).unwrap().first);
        assert!(!rules.apply(&poll(&path)).unwrap().first);
        assert_eq!(rules.apply(&poll(&path)), None, "two at most");
        assert_eq!((rules.clear("f"), rules.clear("f")), (Some(2), None));
        assert!(rules.is_empty());
    }

    #[test]
    fn a_new_connection_is_never_stale() {
        let path = path("/instructions");
        let mut rules = Rules::new(1);
        rules.inject(Rule { wrong: RequestFault::StaleKeepAlive, ..rule("f", Select::default(), 100, None) });
        assert!(rules.apply(&poll(&path)).is_some());
        assert_eq!(rules.apply(&RequestFacts { first_on_connection: true, ..poll(&path) }), None);
    }

    proptest! {
        /// The share is kept, and the same seed hits the same requests whatever other faults there are.
        #[test]
        fn a_share_is_of_the_seed(seed: u64, percent in 1_u32..=100) {
            let path = path("/instructions");
            let hits = |rules: &mut Rules| (0..2000).map(|_| rules.apply(&poll(&path)).is_some()).collect::<Vec<_>>();
            let mut rules = Rules::new(seed);
            rules.inject(rule("f", Select::default(), percent, None));
            let alone = hits(&mut rules);
            let mut rules = Rules::new(seed);
            rules.inject(rule("other", Select { method: Some(Method::Put), ..Select::default() }, 50, None));
            rules.inject(rule("f", Select::default(), percent, None));
            prop_assert_eq!(&hits(&mut rules), &alone);
            let share = alone.iter().filter(|hit| **hit).count() as f64 / 20.0;
            prop_assert!((share - f64::from(percent)).abs() < 6.0, "{share} of {percent}");
        }
    }
}
