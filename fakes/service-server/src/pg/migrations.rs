//! Versioned migrations: embedded SQL files, applied in order in one transaction, each with a checksum that is compared at every
//! start. There is no way back: a database that is ahead of the program is refused.

use sha2::{Digest, Sha256};
use tokio_postgres::{Client, IsolationLevel};

use super::connection_error;
use crate::store::StoreError;

/// A step of the schema.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// 1, 2, 3, …
    pub version: i32,
    /// What it is about.
    pub name: &'static str,
    /// The SQL of the migration.
    pub sql: &'static str,
}

/// All steps, oldest first. A step that was released is never edited: add another one.
pub const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "initial", sql: include_str!("../../migrations/0001_initial.sql") },
    Migration { version: 2, name: "logs_info", sql: include_str!("../../migrations/0002_logs_info.sql") },
];

/// Second number of the advisory lock that a migration holds; the first is [`super::LOCK_CLASS`].
const LOCK_MIGRATION: i32 = 2;

impl Migration {
    /// SHA-256 of the statements in hex; line ends do not count.
    pub fn checksum(&self) -> String {
        let digest = Sha256::digest(self.sql.replace("\r\n", "\n").as_bytes());
        digest.iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// Brings the database's schema up to the last of `migrations`. Returns how many steps were applied; 0 when it was up to date.
///
/// # Errors
/// [`StoreError::Schema`] when the database is newer, was migrated with other texts, or holds tables of somebody else; nothing is
/// changed then.
pub async fn migrate(client: &mut Client, migrations: &[Migration]) -> Result<usize, StoreError> {
    let down = |e: tokio_postgres::Error| connection_error(&e);
    let transaction =
        client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await.map_err(down)?;
    transaction
        .execute("SELECT pg_advisory_xact_lock($1, $2)", &[&super::LOCK_CLASS, &LOCK_MIGRATION])
        .await
        .map_err(down)?;
    let database: String = transaction.query_one("SELECT current_database()::text", &[]).await.map_err(down)?.get(0);

    let ours: bool =
        transaction.query_one("SELECT to_regclass('schema_migrations') IS NOT NULL", &[]).await.map_err(down)?.get(0);
    if !ours {
        let strangers = transaction
            .query(
                "SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema() \
                 AND table_name IN ('clusters', 'hosts', 'infra_envs', 'events', 'files') ORDER BY 1",
                &[],
            )
            .await
            .map_err(down)?;
        if !strangers.is_empty() {
            let names: Vec<String> = strangers.iter().map(|r| r.get(0)).collect();
            return Err(StoreError::Schema(format!(
                "database {database:?} has tables that are not the simulated service's ({}), probably those of a real service. \
                 Give the simulated service an empty database of its own",
                names.join(", ")
            )));
        }
        transaction
            .batch_execute(
                "CREATE TABLE schema_migrations (version integer PRIMARY KEY, name text NOT NULL, \
                 applied_at timestamptz NOT NULL DEFAULT now(), checksum text NOT NULL)",
            )
            .await
            .map_err(down)?;
    }

    let rows = transaction
        .query("SELECT version, name, checksum FROM schema_migrations ORDER BY version", &[])
        .await
        .map_err(down)?;
    let applied: Vec<(i32, String, String)> = rows.iter().map(|r| (r.get(0), r.get(1), r.get(2))).collect();
    check(&database, &applied, migrations).map_err(StoreError::Schema)?;

    let missing = &migrations[applied.len()..];
    for step in missing {
        transaction.batch_execute(step.sql).await.map_err(|e| match e.as_db_error() {
            Some(db) => StoreError::Schema(format!(
                "migration {} ({}) failed on database {database:?} and was undone: {}",
                step.version,
                step.name,
                db.message()
            )),
            None => connection_error(&e),
        })?;
        transaction
            .execute(
                "INSERT INTO schema_migrations (version, name, checksum) VALUES ($1, $2, $3)",
                &[&step.version, &step.name, &step.checksum()],
            )
            .await
            .map_err(down)?;
    }
    transaction.commit().await.map_err(down)?;
    Ok(missing.len())
}

/// Is what was applied a beginning of what this program knows?
fn check(database: &str, applied: &[(i32, String, String)], known: &[Migration]) -> Result<(), String> {
    let last_known = known.last().map_or(0, |m| m.version);
    if let Some((newest, name, _)) = applied.last()
        && *newest > last_known
    {
        return Err(format!(
            "database {database:?} has schema version {newest} ({name}), but this program knows versions up to {last_known} only: \
             a newer program has used it. Use that program, or give this one another database"
        ));
    }
    for (position, (version, name, checksum)) in applied.iter().enumerate() {
        let Some(step) = known.get(position).filter(|m| m.version == *version) else {
            return Err(format!(
                "database {database:?} has migration {version} ({name}) where this program expects {}: its list of migrations \
                 has a gap. Drop the database and make it anew",
                known.get(position).map_or_else(|| "none".to_owned(), |m| m.version.to_string())
            ));
        };
        if step.checksum() != *checksum {
            return Err(format!(
                "migration {version} ({name}) of database {database:?} has checksum {}, but this program's has {}: the database \
                 was made by a different build of the same version. Use that build, or drop the database and make it anew",
                short(checksum),
                short(&step.checksum())
            ));
        }
    }
    Ok(())
}

fn short(checksum: &str) -> String {
    checksum.chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::collections::BTreeSet;

    #[test]
    fn the_folder_and_the_table_agree() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
        let files: BTreeSet<String> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        let table: BTreeSet<String> = MIGRATIONS.iter().map(|m| format!("{:04}_{}.sql", m.version, m.name)).collect();
        assert_eq!(files, table);
        assert!(MIGRATIONS.iter().zip(1..).all(|(m, version)| m.version == version), "versions have gaps");
    }

    const ONE: Migration = Migration { version: 1, name: "one", sql: "SELECT 1" };
    const TWO: Migration = Migration { version: 2, name: "two", sql: "SELECT 2" };

    fn row(m: &Migration) -> (i32, String, String) {
        (m.version, m.name.to_owned(), m.checksum())
    }

    #[test]
    fn a_beginning_of_the_list_is_accepted() {
        for applied in [vec![], vec![row(&ONE)], vec![row(&ONE), row(&TWO)]] {
            assert_eq!(check("db", &applied, &[ONE, TWO]), Ok(()));
        }
    }

    #[rstest]
    #[case::newer(vec![row(&ONE), row(&TWO)], &[ONE], "schema version 2 (two), but this program knows versions up to 1 only")]
    #[case::gap(vec![row(&TWO)], &[ONE, TWO], "has migration 2 (two) where this program expects 1")]
    #[case::other(
        vec![(1, "one".to_owned(), "0123456789abcdef".to_owned())],
        &[ONE],
        "migration 1 (one) of database \"db\" has checksum 0123456789ab, but this program's has "
    )]
    fn anything_else_is_refused(
        #[case] applied: Vec<(i32, String, String)>,
        #[case] known: &[Migration],
        #[case] message: &str,
    ) {
        let error = check("db", &applied, known).unwrap_err();
        assert!(error.contains(message), "{error}");
    }

    #[test]
    fn line_ends_do_not_change_a_checksum() {
        let unix = Migration { version: 1, name: "x", sql: "a\nb\n" };
        let dos = Migration { version: 1, name: "x", sql: "a\r\nb\r\n" };
        assert_eq!(unix.checksum(), dos.checksum());
        assert_ne!(unix.checksum(), ONE.checksum());
    }
}
