//! Real time: a scenario against a service that answers over HTTP, with PostgreSQL, processes, containers and machines.
//!
//! * [`real`] is a run; [`prepare`] what it needs to know, [`needs`] whether this computer can offer it.
//! * [`service`] is the service that it runs against, behind one interface; [`hosts`] are those that it makes, behind another.
//! * [`traffic`] carries what the user and simulated hosts say.
//! * [`session`] is several runs, [`again`] one that is over, read back from its folder.
//! * [`rundir`] is the folder of a run, [`live`] what people see while it goes on, [`ui`] the folder of runs in a browser.

pub mod again;
pub mod error;
pub mod hosts;
pub mod live;
pub mod loads;
pub mod needs;
pub mod prepare;
pub mod real;
pub mod rundir;
pub mod service;
pub mod session;
pub mod snapshot;
pub mod traffic;
pub mod ui;
