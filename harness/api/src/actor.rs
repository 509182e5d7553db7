//! The contract of everything that makes requests and does no I/O itself: simulated hosts, the in-cluster controller, the
//! user who creates a cluster and presses "install".
//!
//! An actor is driven from outside: it is told what time it is and what was answered, and it says what it wants to send
//! and when it wants to be woken. A real-time shell and the virtual-time simulator drive the same actors, so there is one
//! implementation of every behaviour (rule 1 of the design).

use crate::http::{Request, Response, TransportError};
use crate::time::Timestamp;

/// Which connection of the actor a request goes over. One simulated host is one connection; requests on one connection are
/// answered in order, requests on different ones in any order.
pub type Connection = u32;

/// A request that an actor wants sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send {
    /// Connection to use.
    pub connection: Connection,
    /// Comes back with the answer; the actor's own business.
    pub tag: u64,
    /// What to send.
    pub request: Request,
}

/// The answer to a [`Send`], or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Connection of the request.
    pub connection: Connection,
    /// Tag of the request.
    pub tag: u64,
    /// What came back.
    pub result: Result<Response, TransportError>,
}

/// A behaviour without I/O. After every `wake` and `deliver` the shell calls `take_sends` and `next_wake`.
pub trait Actor {
    /// Time has come to `now`: do all that is due. Called once at the start and whenever `next_wake` is reached.
    fn wake(&mut self, now: Timestamp);

    /// An answer arrived.
    fn deliver(&mut self, now: Timestamp, reply: Reply);

    /// Requests made since the last call, in the order in which they were made.
    fn take_sends(&mut self) -> Vec<Send>;

    /// When the actor wants to be woken, if ever.
    fn next_wake(&self) -> Option<Timestamp>;

    /// Has the actor nothing left to do for good?
    fn is_finished(&self) -> bool;
}
