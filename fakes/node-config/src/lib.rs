//! What `vlab` and the programs in lab machines agree on. By itself, because `vlab` needs nothing else of those programs, and they
//! bring TLS and much more.
//!
//! * [`machine`] is the machine, and the configuration that the lab puts on it.
//! * [`say`] is how its programs speak to the harness, over the console.

pub mod machine;
pub mod say;
