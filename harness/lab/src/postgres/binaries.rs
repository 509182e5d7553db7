//! Finds `initdb` and `postgres`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::PgError;

/// The oldest major version that works: `DROP DATABASE … WITH (FORCE)` came with it.
pub const OLDEST: u32 = 13;

/// A folder with the server's programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    /// The folder.
    pub dir: PathBuf,
    /// What `postgres --version` says after the name: `15.18 (Debian 15.18-0+deb12u1)`.
    pub version: String,
    /// The first number of it.
    pub major: u32,
}

/// A folder with both programs, whatever their version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// They say their version.
    Runs(Binaries),
    /// They are there and do not run, or say something else.
    Broken {
        /// The folder.
        dir: PathBuf,
        /// What happened.
        problem: String,
    },
}

impl Binaries {
    /// The first usable ones: those of `named` (`VLAB_PG_BIN`) and no others when given; else of `PATH`, then of the places
    /// where distributions put them, newest first.
    ///
    /// # Errors
    /// None there, none that runs, none new enough.
    pub fn find(named: Option<&Path>) -> Result<Self, PgError> {
        let candidates = match named {
            Some(dir) => vec![dir.to_path_buf()],
            None => usual_places(&std::env::var_os("PATH").unwrap_or_default(), Path::new("/")),
        };
        let looked_in: Vec<String> = candidates.iter().map(|dir| dir.display().to_string()).collect();
        let (mut too_old, mut broken) = (Vec::new(), None);
        for dir in candidates {
            match inspect(&dir) {
                None => {}
                Some(Found::Runs(binaries)) if binaries.major >= OLDEST => return Ok(binaries),
                Some(Found::Runs(old)) => too_old.push(format!("{} in {}", old.version, old.dir.display())),
                Some(Found::Broken { dir, problem }) => broken = broken.or(Some(PgError::Unusable { dir, problem })),
            }
        }
        match (too_old.is_empty(), broken) {
            (false, _) => Err(PgError::WrongVersion { found: too_old }),
            (true, Some(broken)) => Err(broken),
            (true, None) => Err(PgError::NotFound { looked_in }),
        }
    }

    /// The path of one program.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// What a folder holds; `None` without both programs.
fn inspect(dir: &Path) -> Option<Found> {
    if !dir.join("initdb").is_file() || !dir.join("postgres").is_file() {
        return None;
    }
    let broken = |problem: String| Found::Broken { dir: dir.to_path_buf(), problem };
    let output = match Command::new(dir.join("postgres")).arg("--version").output() {
        Ok(output) if output.status.success() => output.stdout,
        Ok(output) => {
            let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Some(broken(format!("`postgres --version` ended with {}: {words}", output.status)));
        }
        Err(error) => return Some(broken(format!("`postgres --version`: {error}"))),
    };
    let text = String::from_utf8_lossy(&output);
    Some(match parse_version(&text) {
        Some((version, major)) => Found::Runs(Binaries { dir: dir.to_path_buf(), version, major }),
        None => broken(format!("`postgres --version` says {:?}", text.trim())),
    })
}

/// `postgres (PostgreSQL) 15.18 (Debian …)` → (`15.18 (Debian …)`, 15). Also `9.6.24`, `18beta1`.
fn parse_version(text: &str) -> Option<(String, u32)> {
    let version = text.trim().strip_prefix("postgres (PostgreSQL) ")?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    Some((version.to_owned(), digits.parse().ok()?))
}

/// Folders in the order in which they are tried, each once.
fn usual_places(path: &std::ffi::OsStr, root: &Path) -> Vec<PathBuf> {
    let mut versioned = Vec::new();
    // Debian and Ubuntu: /usr/lib/postgresql/15/bin. Fedora, RHEL (PGDG): /usr/pgsql-15/bin.
    for (parent, prefix) in [("usr/lib/postgresql", ""), ("usr", "pgsql-")] {
        for entry in fs::read_dir(root.join(parent)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number =
                name.to_str().and_then(|name| name.strip_prefix(prefix)).and_then(|rest| rest.parse::<u32>().ok());
            versioned.extend(number.map(|number| (number, entry.path().join("bin"))));
        }
    }
    versioned.sort_by(|a, b| b.cmp(a));
    let mut seen = BTreeSet::new();
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .chain(versioned.into_iter().map(|(_, dir)| dir))
        .chain([root.join("usr/local/pgsql/bin")])
        .filter(|dir| seen.insert(dir.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", Some(("15.18 (Debian 15.18-0+deb12u1)", 15)))]
    #[case("postgres (PostgreSQL) 9.6.24\n", Some(("9.6.24", 9)))]
    #[case("postgres (PostgreSQL) 18beta1\n", Some(("18beta1", 18)))]
    #[case("psql (PostgreSQL) 15.1\n", None)]
    #[case("postgres (PostgreSQL) devel\n", None)]
    fn versions(#[case] text: &str, #[case] expected: Option<(&str, u32)>) {
        assert_eq!(parse_version(text), expected.map(|(version, major)| (version.to_owned(), major)));
    }

    #[test]
    fn newest_first_and_each_folder_once() {
        let root = tempfile::tempdir().unwrap();
        for dir in
            ["usr/lib/postgresql/9/bin", "usr/lib/postgresql/15/bin", "usr/pgsql-16/bin", "usr/lib/postgresql/common"]
        {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        let in_path = root.path().join("usr/lib/postgresql/9/bin");
        let path = std::env::join_paths([Path::new("/opt/x"), &in_path, Path::new("relative")]).unwrap();
        let places: Vec<String> = usual_places(&path, root.path())
            .iter()
            .map(|dir| dir.strip_prefix(root.path()).unwrap_or(dir).display().to_string())
            .collect();
        assert_eq!(
            places,
            [
                "/opt/x",
                "usr/lib/postgresql/9/bin",
                "usr/pgsql-16/bin",
                "usr/lib/postgresql/15/bin",
                "usr/local/pgsql/bin"
            ]
        );
    }

    fn fake(dir: &Path, script: &str) {
        for name in ["initdb", "postgres"] {
            fs::write(dir.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn too_old_says_what_is_there_and_what_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        fake(dir.path(), "echo 'postgres (PostgreSQL) 9.6.24'");
        let text = Binaries::find(Some(dir.path())).unwrap_err().to_string();
        assert!(text.contains("wrong version of PostgreSQL: found 9.6.24 in "), "{text}");
        assert!(text.contains("needed is 13 or newer") && text.contains("fix: "), "{text}");
    }

    #[test]
    fn programs_that_do_not_run_are_not_missing() {
        let dir = tempfile::tempdir().unwrap();
        fake(dir.path(), "echo 'libpq.so.5: cannot open' >&2; exit 127");
        let text = Binaries::find(Some(dir.path())).unwrap_err().to_string();
        assert!(text.contains("do not run") && text.contains("libpq.so.5: cannot open"), "{text}");
    }

    #[test]
    fn an_empty_folder_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let text = Binaries::find(Some(dir.path())).unwrap_err().to_string();
        assert!(text.contains("no PostgreSQL server found"), "{text}");
        assert!(text.contains(&dir.path().display().to_string()) && text.contains("fix: "), "{text}");
    }
}
