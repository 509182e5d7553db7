//! A small Kubernetes API server without sockets and clock.
//!
//! [`Core`] takes requests and gives answers; watches are asked for their news ([`Core::poll_watch`]), webhooks go out as data
//! ([`Core::take_calls`]) and what is due later is done by [`Core::wake`]. [`Memory`] is the shell for virtual time and tests;
//! `vlab-kube-server` is the one with HTTPS.
//!
//! What it does is what the real server does as far as `docs/kube.md` says; the differences that stay are in `docs/fidelity.md`.

mod admission;
mod apply;
mod auth;
mod body;
mod builtin;
mod cluster;
mod collect;
mod core;
mod crd;
mod delete;
mod discovery;
mod failure;
mod fault;
mod jsonpath;
mod memory;
mod meta;
mod object;
mod openapi;
mod patch;
mod path;
mod protobuf;
mod read;
mod resource;
mod rules;
mod scale;
mod schema;
mod select;
mod store;
mod table;
mod view;
mod watch;
mod write;

pub use admission::{Answer, Call, CallId};
pub use auth::{Authorization, Caller};
pub use core::{Core, Options, Reply, Ticket};
pub use failure::{Cause, Failure};
pub use fault::{BACK, Fault, Faults, Order};
pub use memory::{Event, Memory, News, Watches, Webhooks, event};
pub use path::member;
pub use resource::{Resource, ResourceId};
pub use store::{Change, Did, Store, Stored, Write};
pub use watch::{Line, Told, WatchId};
