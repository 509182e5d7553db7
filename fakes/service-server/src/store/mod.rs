//! Where the service's state outlives the process: a [`Store`] keeps rows and gives them all back.
//!
//! The core decides what the rows are; a store only has to be honest: what [`Store::commit`] acknowledged is in every later
//! [`Store::load`], and a batch is stored whole or not at all. [`MemoryStore`] is for tests and for the virtual-time
//! simulator (which uses it without async); [`crate::pg::PgStore`] is PostgreSQL. Both pass the same test-suite.

mod fold;
mod memory;

use std::future::Future;

use vlab_service::{Snapshot, Write};

pub(crate) use fold::{Folded, RowStep, fold};
pub use memory::MemoryStore;

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The batch was refused and nothing of it is stored. The store itself works.
    #[error("the database refused the batch: {0}")]
    Rejected(String),
    /// The store cannot be reached; nothing was sent.
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    /// The connection was lost while the batch was under way: it may be stored or not. Only a new [`Store::load`] tells.
    #[error("the connection to the database was lost in the middle of a batch: {0}")]
    Unknown(String),
    /// A second service uses this database.
    #[error(
        "the database {database:?} is in use by another service (backend pid {holder}). One database serves one service: \
         stop the other one, or give this one a database of its own"
    )]
    InUse {
        /// Name of the database.
        database: String,
        /// Backend that holds the lock, as the database numbers them.
        holder: String,
    },
    /// The schema is not one that this program can use.
    #[error("{0}")]
    Schema(String),
    /// A row cannot be read back.
    #[error(
        "table {table}, row {key}: {reason}. The row was not written by this version of the service, or was changed by hand"
    )]
    Corrupt {
        /// Name of the table.
        table: &'static str,
        /// Its key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl StoreError {
    /// Can trying again help? False for what a person must put right.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Rejected(_) | Self::Unavailable(_) | Self::Unknown(_))
    }

    /// Does the stored state have to be read again before anything else is written?
    pub fn needs_reload(&self) -> bool {
        !matches!(self, Self::Rejected(_))
    }
}

/// Keeps the service's rows.
pub trait Store: Send + 'static {
    /// All rows, after connecting (again) where that is needed. Events are sorted by `seq`.
    fn load(&mut self) -> impl Future<Output = Result<Snapshot, StoreError>> + Send;

    /// Stores a batch, whole or not at all. When this returns `Ok`, the batch survives the death of the service and of
    /// the database server.
    fn commit(&mut self, writes: Vec<Write>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Is the store there and able to answer?
    fn health(&mut self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// For the metrics page: connections open, and how often one was made.
    fn pool(&self) -> PoolState;
}

/// State of a store's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Connections that are open now.
    pub open: u64,
    /// Connections made since the start.
    pub made: u64,
}

#[cfg(test)]
mod tests;
