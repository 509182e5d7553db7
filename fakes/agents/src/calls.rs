//! Requests on their way: what is tried again, how often and after how long. One table for each program that makes requests.

use std::time::Duration;

use vlab_api::http::{Request, Response, TransportError};
use vlab_model::settings::{HostTiming, Span};

use crate::rng::Stream;

/// When a failed request is tried again.
#[derive(Debug)]
pub struct RetryPolicy {
    /// Rows; the first that fits decides. Without one the failure is final.
    pub rows: &'static [RetryRow],
    /// Wait before the next try.
    pub delay: fn(&HostTiming) -> Span,
}

/// A row of a [`RetryPolicy`].
#[derive(Debug)]
pub struct RetryRow {
    /// Which failures.
    pub on: On,
    /// How often they are tried again.
    pub retries: fn(&HostTiming) -> u32,
}

/// Kinds of failure.
#[derive(Debug)]
pub enum On {
    /// These status codes.
    Status(&'static [u16]),
    /// 500 and above.
    ServerError,
    /// No answer at all.
    NoAnswer,
}

/// The agent's transport: three tries.
pub const AGENT: RetryPolicy = RetryPolicy {
    rows: &[RetryRow { on: On::Status(&[503, 504]), retries: |_| 2 }, RetryRow { on: On::NoAnswer, retries: |_| 2 }],
    delay: |t| t.transport_retry,
};

/// The installer on the host: patient with a service that is down.
pub const INSTALLER: RetryPolicy = RetryPolicy {
    rows: &[
        RetryRow { on: On::Status(&[404, 423, 425]), retries: |_| 10 },
        RetryRow { on: On::Status(&[408, 429]), retries: installer_retries },
        RetryRow { on: On::ServerError, retries: installer_retries },
        RetryRow { on: On::NoAnswer, retries: installer_retries },
    ],
    delay: |t| t.installer_retry,
};

/// The controller inside the cluster.
pub const CONTROLLER: RetryPolicy = RetryPolicy {
    rows: &[
        RetryRow { on: On::Status(&[404, 423, 425]), retries: |_| 10 },
        RetryRow { on: On::Status(&[408, 429]), retries: |_| 15 },
        RetryRow { on: On::ServerError, retries: |_| 15 },
        RetryRow { on: On::NoAnswer, retries: |_| 15 },
    ],
    delay: |t| t.installer_retry,
};

fn installer_retries(timing: &HostTiming) -> u32 {
    u32::try_from(timing.installer_retries).unwrap_or(0)
}

/// What a request gave.
pub type HttpResult = Result<Response, TransportError>;

impl RetryPolicy {
    /// Is that outcome, the `tried`-th in a row (from 1), to be tried again?
    pub fn again(&self, timing: &HostTiming, tried: u32, outcome: &HttpResult) -> bool {
        let fits = |on: &On| match (on, outcome) {
            (On::Status(codes), Ok(r)) => codes.contains(&r.status),
            (On::ServerError, Ok(r)) => r.status >= 500,
            (On::NoAnswer, Err(_)) => true,
            _ => false,
        };
        self.rows.iter().find(|r| fits(&r.on)).is_some_and(|r| tried <= (r.retries)(timing))
    }
}

/// Requests of one connection that have no final answer yet.
#[derive(Debug)]
pub(crate) struct Calls<P> {
    pending: Vec<Pending<P>>,
    next: u32,
}

#[derive(Debug)]
struct Pending<P> {
    id: u32,
    purpose: P,
    request: Request,
    policy: &'static RetryPolicy,
    tried: u32,
}

/// What to do about an answer.
pub(crate) enum RetryDecision<P> {
    /// Ask again after that time.
    Again(Duration),
    /// That is the answer.
    Final(P, HttpResult),
    /// Nobody waits for it any more.
    Stale,
}

impl<P> Calls<P> {
    pub(crate) fn new() -> Self {
        Self { pending: Vec::new(), next: 0 }
    }

    /// Notes a request; its id.
    pub(crate) fn start(&mut self, purpose: P, request: Request, policy: &'static RetryPolicy) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.pending.push(Pending { id: self.next, purpose, request, policy, tried: 0 });
        self.next
    }

    /// The request with that id, to be sent (again).
    pub(crate) fn request(&mut self, id: u32) -> Option<Request> {
        let call = self.pending.iter_mut().find(|c| c.id == id)?;
        call.tried += 1;
        Some(call.request.clone())
    }

    /// An answer arrived.
    pub(crate) fn answered(
        &mut self,
        id: u32,
        outcome: HttpResult,
        timing: &HostTiming,
        dice: &mut Stream,
    ) -> RetryDecision<P> {
        let Some(at) = self.pending.iter().position(|c| c.id == id) else {
            return RetryDecision::Stale;
        };
        let call = &self.pending[at];
        if call.policy.again(timing, call.tried, &outcome) {
            return RetryDecision::Again((call.policy.delay)(timing).at(dice.unit()));
        }
        let call = self.pending.remove(at);
        // An idle host has no request on its way: give the memory back.
        if self.pending.is_empty() {
            self.pending = Vec::new();
        }
        RetryDecision::Final(call.purpose, outcome)
    }

    pub(crate) fn any(&self, test: impl Fn(&P) -> bool) -> bool {
        self.pending.iter().any(|c| test(&c.purpose))
    }

    pub(crate) fn forget(&mut self, test: impl Fn(&P) -> bool) {
        self.pending.retain(|c| !test(&c.purpose));
    }

    pub(crate) fn clear(&mut self) {
        self.pending = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::agent_gives_up_after_three(&AGENT, Ok(503), 3)]
    #[case::agent_takes_500_as_it_is(&AGENT, Ok(500), 1)]
    #[case::agent_without_answer(&AGENT, Err(()), 3)]
    #[case::agent_404(&AGENT, Ok(404), 1)]
    #[case::installer_404(&INSTALLER, Ok(404), 11)]
    #[case::installer_500(&INSTALLER, Ok(500), 361)]
    #[case::installer_429(&INSTALLER, Ok(429), 361)]
    #[case::installer_no_answer(&INSTALLER, Err(()), 361)]
    #[case::installer_409(&INSTALLER, Ok(409), 1)]
    #[case::controller_502(&CONTROLLER, Ok(502), 16)]
    #[case::controller_425(&CONTROLLER, Ok(425), 11)]
    #[case::controller_success(&CONTROLLER, Ok(200), 1)]
    fn tries(#[case] policy: &'static RetryPolicy, #[case] outcome: Result<u16, ()>, #[case] expected: u32) {
        let timing = HostTiming::default();
        let outcome = || match outcome {
            Ok(status) => Ok(Response::empty(status)),
            Err(()) => Err(TransportError::Connect("refused".into())),
        };
        let mut calls = Calls::new();
        let mut dice = Stream::new(1, 0, crate::rng::Dice::Delays);
        let id = calls.start((), Request::new(vlab_api::http::Method::Get, "/x"), policy);
        let mut tried = 0;
        loop {
            calls.request(id).unwrap();
            tried += 1;
            match calls.answered(id, outcome(), &timing, &mut dice) {
                RetryDecision::Again(wait) => assert!((2.0..=10.0).contains(&wait.as_secs_f64()), "{wait:?}"),
                RetryDecision::Final((), _) => break,
                RetryDecision::Stale => panic!("the call was forgotten"),
            }
        }
        assert_eq!(tried, expected);
        assert!(matches!(calls.answered(id, outcome(), &timing, &mut dice), RetryDecision::Stale));
    }
}
