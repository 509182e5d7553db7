//! Load tests: a plan ([`vlab_scenario::LoadPlan`]) is carried out against a service, and what came of it is one result that can be
//! shown, merged with others and compared.
//!
//! * [`schedule`] says when each host is to do what: a pure function of the plan, the seed and the part.
//! * [`generate`] does it. Each request has the moment at which it was to be made; how late it was made is the generator's, how
//!   late it was answered is counted from that moment, so that a service that makes others wait does not look fast.
//! * [`installs`] does it where clusters are installed: each with a user and hosts of its own, as a scenario has them.
//! * `standing` makes clusters that are there and that nobody installs.
//! * [`record`] is what is counted, [`metrics`] shows it while it goes on, [`result`] is what is left of it, [`compare`],
//!   [`html`] and [`otlp`] read that.
//! * [`rehearsal`] does it in virtual time, without a service that runs or hosts that wait.
//! * [`database`] asks the service's PostgreSQL for its own figures meanwhile.
//! * [`growth`] says whether memory grows while nothing new happens.
//! * [`preflight`] refuses a plan that does not fit this computer; [`stub`] answers at wire speed, to show what the generator
//!   alone can do.

pub mod compare;
pub mod database;
pub mod generate;
pub mod growth;
mod hosts;
pub mod html;
pub mod installs;
mod lines;
pub mod manifest;
pub mod metrics;
pub mod otlp;
pub mod preflight;
pub mod record;
pub mod rehearsal;
pub mod result;
pub mod schedule;
mod standing;
pub mod stub;
mod usage;
