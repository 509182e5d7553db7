//! The one place through which hosts and the user reach the service under test when a scenario has faults of the way there:
//! it forwards, counts, and answers wrongly, late or not at all as the rules of [`vlab_drive::requests`] say.
//!
//! The rules decide without I/O, and a run in virtual time uses the same ones. [`serve`] has the sockets: listeners come from
//! outside, so that one of them can be inside a network namespace.
//!
//! Nothing of it stands between hosts and service in a run that has no such fault: a request costs one more hop.

pub mod serve;

pub use serve::{Answered, Count, FaultEffect, Gateway, News};
