//! `images.yaml`: which packages an image is made of, by name for people, and by version and checksum for the builder.
//!
//! The part below [`MARKER`] is written by `vlab images --update`; what is above it is written by people and kept as it is.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;

use crate::ImageError;
use crate::packages::Package;

/// The manifest of this version of the program.
pub const BUILT_IN: &str = include_str!("../images.yaml");

/// From this line on the file is written by the program.
pub const MARKER: &str = "# Below: written by `cargo xtask images --update`. Do not edit.";

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Where packages come from.
    pub debian: Debian,
    /// Sets of packages by name.
    pub sets: BTreeMap<String, Set>,
    /// When the lists of packages were looked at: `YYYYMMDDTHHMMSSZ`, as snapshot.debian.org has it.
    #[serde(default)]
    pub snapshot: String,
    /// The packages of each set, with those that they depend on.
    #[serde(default)]
    pub locked: BTreeMap<String, Vec<Package>>,
}

/// A release of Debian and where it is offered.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Debian {
    /// Debian's name of the architecture.
    pub architecture: String,
    /// Suites of each archive.
    pub archives: BTreeMap<String, Vec<String>>,
    /// Addresses, tried in this order; `{archive}` and `{snapshot}` stand for those.
    pub mirrors: Vec<String>,
    /// File with the keys that sign the lists, on the machine that makes the lock.
    pub keyring: String,
}

/// A set of packages.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// What is wanted; what it depends on comes with it.
    pub packages: Vec<String>,
    /// What is left out although something depends on it.
    #[serde(default)]
    pub without: Vec<String>,
    /// When it is not empty: nothing else is taken, whatever something depends on. A `*` at the end stands for any text.
    #[serde(default)]
    pub only: Vec<String>,
}

impl Set {
    /// Is this package, that something depends on, part of the set?
    #[must_use]
    pub fn takes(&self, package: &str) -> bool {
        let named = |pattern: &String| match pattern.strip_suffix('*') {
            Some(start) => package.starts_with(start),
            None => package == pattern,
        };
        (self.only.is_empty() || self.only.iter().any(named)) && !self.without.iter().any(|name| name == package)
    }
}

impl Manifest {
    /// Reads it.
    ///
    /// # Errors
    /// Not of this form.
    pub fn read(text: &str) -> Result<Self, ImageError> {
        serde_yaml::from_str(text).map_err(|error| ImageError::Manifest(error.to_string()))
    }

    /// That of this program.
    ///
    /// # Errors
    /// Never, as long as the tests pass.
    pub fn built_in() -> Result<Self, ImageError> {
        Self::read(BUILT_IN)
    }

    /// The packages of a set, exactly.
    ///
    /// # Errors
    /// No such set, or one that was not locked yet.
    pub fn packages(&self, set: &str) -> Result<&[Package], ImageError> {
        match self.locked.get(set) {
            Some(packages) if !packages.is_empty() => Ok(packages),
            _ => Err(ImageError::Manifest(format!(
                "the set {set} has no packages yet: run `cargo xtask images --update`"
            ))),
        }
    }
}

/// The text of a manifest with another locked part.
///
/// # Errors
/// The text has no [`MARKER`].
pub fn with_lock(text: &str, snapshot: &str, locked: &BTreeMap<String, Vec<Package>>) -> Result<String, ImageError> {
    let end = text.find(MARKER).ok_or_else(|| ImageError::Manifest(format!("the line `{MARKER}` is missing")))?;
    let mut new = format!("{}{MARKER}\nsnapshot: {snapshot}\nlocked:\n", &text[..end]);
    for (set, packages) in locked {
        let _ = writeln!(new, "  {set}:");
        for p in packages {
            let _ = writeln!(
                new,
                "    - {{name: {}, version: \"{}\", archive: {}, path: \"{}\", size: {}, sha256: \"{}\"}}",
                p.name, p.version, p.archive, p.path, p.size, p.sha256
            );
        }
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_of_this_program_is_locked() {
        let manifest = Manifest::built_in().unwrap();
        for (name, set) in &manifest.sets {
            let locked = manifest.packages(name).unwrap();
            for wanted in &set.packages {
                assert!(locked.iter().any(|p| p.name == *wanted), "{name} lacks {wanted}");
            }
            for unwanted in &set.without {
                assert!(locked.iter().all(|p| p.name != *unwanted), "{name} has {unwanted}");
            }
            for package in locked {
                assert!(set.takes(&package.name), "{name} has {}", package.name);
                assert_eq!(package.sha256.len(), 64, "{}", package.name);
                assert!(manifest.debian.archives.contains_key(&package.archive), "{}", package.name);
            }
        }
    }

    #[test]
    fn writing_the_lock_keeps_what_people_wrote() {
        let manifest = Manifest::built_in().unwrap();
        let again = with_lock(BUILT_IN, &manifest.snapshot, &manifest.locked).unwrap();
        assert_eq!(again, BUILT_IN);
        assert!(with_lock("debian: {}", "x", &manifest.locked).is_err());
    }
}
