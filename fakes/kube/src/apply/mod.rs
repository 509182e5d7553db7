//! Server-side apply: who owns which field, and what happens when somebody states only the fields that he cares about.

mod fields;
mod managed;
mod merge;

pub(crate) use managed::{Manager, after_apply, after_update};
