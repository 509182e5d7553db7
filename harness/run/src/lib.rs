//! Real time: a scenario against a service that answers over HTTP, with PostgreSQL, processes, containers and machines.
//!
//! * [`real`] is a run; [`prepare`] what it needs to know, [`needs`] whether this computer can offer it.
//! * [`target`] is the service that it runs against, [`container`] the one in a container; [`service`] watches its tables.
//! * [`vm`] is what a run does with virtual machines, [`traffic`] what it does for simulated hosts.
//! * [`session`] is several runs, [`again`] one that is over, read back from its folder.
//! * [`rundir`] is the folder of a run, [`live`] what people see while it goes on.

pub mod again;
pub mod container;
pub mod live;
pub mod needs;
pub mod prepare;
pub mod real;
pub mod rundir;
pub mod service;
pub mod session;
pub mod target;
pub mod traffic;
pub mod vm;
