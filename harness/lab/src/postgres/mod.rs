//! PostgreSQL without Docker: a private server from the system's own binaries, or databases of our own on the server that
//! `DATABASE_URL` names.
//!
//! - [`PgCluster`] is the server of a run: start, connection strings, databases, `kill9`, `restart`, `stop`.
//! - `binaries` finds `initdb` and `postgres` and asks for their version.
//! - `template` keeps what `initdb` makes, because it takes most of the time of a start.
//! - `remains` ends a server of which only the data directory is known, for clean-up after a dead harness.

mod binaries;
mod cluster;
mod error;
pub(crate) mod remains;
mod template;

pub use binaries::{Binaries, Found, OLDEST};
pub(crate) use cluster::drop_left_behind;
pub use cluster::{OWNER_FILE, PREFIX, PgCluster, PgOptions, StartTimes, Tcp, connect, random_hex};
pub use error::{PgError, explain};
pub(crate) use template::cache_dir;
