//! The core as a whole: scripted installations, restarts, rollbacks, bad input, and the recorded exchanges of the real
//! service where `VLAB_REFERENCE` names them.

mod asked;
mod errors;
mod faults;
mod fidelity;
mod install;
mod lab;
mod replay;
