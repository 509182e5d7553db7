//! What can go wrong with PostgreSQL, said for the person at the keyboard.

use std::error::Error as _;
use std::path::PathBuf;
use std::time::Duration;

use super::binaries::OLDEST;
use crate::ledger::LedgerError;
use crate::process::ProcessError;

/// What can go wrong with PostgreSQL.
#[derive(Debug, thiserror::Error)]
pub enum PgError {
    /// No folder holds the programs.
    #[error(
        "no PostgreSQL server found: looked for `initdb` and `postgres` in {}\n\
         fix: `cargo xtask setup` (Debian: apt-get install postgresql), or name the folder in VLAB_PG_BIN, or an existing \
         server in DATABASE_URL", .looked_in.join(", ")
    )]
    NotFound {
        /// The folders.
        looked_in: Vec<String>,
    },
    /// There are programs, all too old.
    #[error(
        "wrong version of PostgreSQL: found {}; needed is {OLDEST} or newer\n\
         fix: install a newer one (Debian: apt-get install postgresql), or name its folder in VLAB_PG_BIN", .found.join(", ")
    )]
    WrongVersion {
        /// `13.4 in /usr/lib/…`, one for each.
        found: Vec<String>,
    },
    /// The programs are there and do not run.
    #[error("the PostgreSQL programs in {} do not run: {problem}", .dir.display())]
    Unusable {
        /// The folder.
        dir: PathBuf,
        /// What happened.
        problem: String,
    },
    /// The path of the unix socket does not fit into a socket address.
    #[error(
        "the path of PostgreSQL's unix socket would be {length} bytes long ({}); the kernel takes at most {limit}\n\
         fix: a shorter folder (TMPDIR, or the option for the parent folder)", .path.display()
    )]
    SocketPathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
        /// What is possible.
        limit: usize,
    },
    /// The port that was asked for is taken.
    #[error("port {port} of 127.0.0.1 is taken\nfix: ask for another port, or for any free one")]
    PortTaken {
        /// The port.
        port: u16,
    },
    /// We are root, PostgreSQL refuses root, and there is nobody else to be.
    #[error("PostgreSQL does not run as root, and there is neither a user `postgres` nor `nobody` to run it as")]
    NoUser,
    /// A file or directory.
    #[error("PostgreSQL: cannot {what} {}: {error}", .path.display())]
    Io {
        /// make, copy, remove …
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// `initdb` failed.
    #[error("initdb failed ({status}): {output}")]
    Initdb {
        /// Its exit status.
        status: String,
        /// What it said.
        output: String,
    },
    /// The server did not become ready, or ended.
    #[error("PostgreSQL: {0}")]
    Process(#[from] ProcessError),
    /// It did not stop in time, even by force.
    #[error("PostgreSQL (pid {pid}) is still there {after:?} after SIGKILL")]
    DoesNotDie {
        /// The postmaster.
        pid: u32,
        /// How long was waited.
        after: Duration,
    },
    /// A query.
    #[error("PostgreSQL: {what}: {problem}")]
    Query {
        /// What was asked.
        what: String,
        /// The answer.
        problem: String,
    },
    /// `DATABASE_URL` cannot be used.
    #[error("DATABASE_URL: {0}")]
    Url(String),
    /// Only a server that we started can be killed or restarted.
    #[error(
        "cannot {0} PostgreSQL: the server is the one of DATABASE_URL, which does not belong to this run\n\
         fix: unset DATABASE_URL, then a private server is started"
    )]
    NotOurs(&'static str),
    /// `stop` was called before.
    #[error("PostgreSQL of this run has been stopped and removed")]
    Stopped,
    /// A name that cannot be one of a database.
    #[error("`{0}` cannot be the name of a database: 1 to 63 bytes, no NUL")]
    DatabaseName(String),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// An error of the driver with all that lies below it; its own text is often only "db error".
#[must_use]
pub fn explain(error: &tokio_postgres::Error) -> String {
    if let Some(answer) = error.as_db_error() {
        return format!("{}: {} (SQLSTATE {})", answer.severity(), answer.message(), answer.code().code());
    }
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(cause) = below {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        below = cause.source();
    }
    text
}
