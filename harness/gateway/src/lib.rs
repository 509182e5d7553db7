//! The one place through which hosts and the user reach the service under test when a scenario has faults of the way there:
//! it forwards, counts, and answers wrongly, late or not at all as [`rules`] say.
//!
//! * [`rules`] decides, without I/O: a run in virtual time uses the same rules without the sockets.
//! * [`serve`] has the sockets: listeners come from outside, so that one of them can be inside a network namespace.
//!
//! Nothing of it stands between hosts and service in a run that has no such fault: a request costs one more hop.

pub mod rules;
pub mod serve;

pub use rules::{Facts, Point, Rule, Rules, Select, Side, Strike, Wrong};
pub use serve::{Count, Gateway, Struck};
