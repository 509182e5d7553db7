//! The kinds that are there without a definition: their names, what can be asked of them, and the messages they are made of.

pub(crate) mod kinds;
pub(crate) mod messages;
