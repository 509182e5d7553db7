//! What the service does when it is asked, whoever asks: each command is a function of the core, the time and typed parameters,
//! decides, carries its decision out, and gives back what came of it or a [`crate::refusal::Refusal`]. Nothing here knows of HTTP: REST is in
//! `rest`, and another way to ask would be its neighbour. That holds at build time: types of HTTP are disallowed in this crate (`clippy.toml`)
//! but for the modules that say that they are REST.

pub(crate) mod binding;
pub(crate) mod checks;
pub(crate) mod clusters;
pub(crate) mod discovery;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod hosts;
pub(crate) mod infra_envs;
pub(crate) mod install;
pub(crate) mod logs;
pub(crate) mod manifests;
pub(crate) mod operators;
pub(crate) mod progress;
pub(crate) mod register;
pub(crate) mod replies;
pub(crate) mod steps;
pub(crate) mod usage;
