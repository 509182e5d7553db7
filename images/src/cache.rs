//! A folder of what was fetched and built. Things are put there whole or not at all, under names that say what is in them.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::ImageError;

/// What is being made has a name that begins so.
const HALF: &str = ".part-";
/// Nothing takes so long to make: who began it was killed.
const ABANDONED: Duration = Duration::from_secs(2 * 3600);

/// The folder.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// This user's: see [`vlab_setup::images_folder`].
    #[must_use]
    pub fn of_this_user() -> Self {
        Self::at(vlab_setup::images_folder())
    }

    /// In this folder, which is made when something is put there.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The place of `name` in the part `part` of the cache; the folder around it is there afterwards.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn place(&self, part: &str, name: &str) -> Result<PathBuf, ImageError> {
        let folder = self.root.join(part);
        fs::create_dir_all(&folder).map_err(|error| self.unusable(error))?;
        Ok(folder.join(name))
    }

    fn unusable(&self, error: io::Error) -> ImageError {
        ImageError::Cache { path: self.root.clone(), error }
    }

    /// What lies at that place; `make` fills it when nothing does. It is given another file, which takes the place only
    /// when it is whole: a killed build leaves no half of anything, and two builds at once do not disturb each other.
    ///
    /// # Errors
    /// Those of `make` and of the file system.
    pub fn filled(
        &self,
        part: &str,
        name: &str,
        make: impl FnOnce(&Path) -> Result<(), ImageError>,
    ) -> Result<PathBuf, ImageError> {
        let place = self.place(part, name)?;
        if place.exists() {
            return Ok(place);
        }
        let folder = self.root.join(part);
        forget_halves(&folder, ABANDONED);
        let beside = tempfile::Builder::new()
            .prefix(HALF)
            .tempfile_in(&folder)
            .map_err(|error| self.unusable(error))?
            .into_temp_path();
        make(&beside)?;
        beside.persist(&place).map_err(|error| ImageError::Io { path: place.clone(), error: error.error })?;
        Ok(place)
    }
}

/// Removes what killed builds have left half done in a folder.
fn forget_halves(folder: &Path, older_than: Duration) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let half = entry.file_name().to_string_lossy().starts_with(HALF);
        let age = entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
        if half && age.is_some_and(|age| age > older_than) {
            // Somebody else may be doing the same.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// SHA-256 of some bytes, as hexadecimal digits.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-256 of what a reader gives.
///
/// # Errors
/// Those of the reader.
pub fn sha256_of(mut reader: impl Read) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(hex(&digest.finalize())),
            count => digest.update(&buffer[..count]),
        }
    }
}

/// SHA-256 of a file.
///
/// # Errors
/// It cannot be read.
pub fn sha256_file(path: &Path) -> Result<String, ImageError> {
    File::open(path).and_then(sha256_of).map_err(ImageError::io(path))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_filled_once_and_only_with_what_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("cache"));
        let failed = cache.filled("x", "a", |path| {
            fs::write(path, "half").unwrap();
            Err(ImageError::Tree("killed".into()))
        });
        assert_eq!(failed.unwrap_err().to_string(), "killed");
        assert_eq!(fs::read_dir(folder.path().join("cache/x")).unwrap().count(), 0, "nothing half is left");
        let fill = |text: &'static str| {
            cache.filled("x", "a", move |path| fs::write(path, text).map_err(ImageError::io(path))).unwrap()
        };
        assert_eq!(fs::read_to_string(fill("first")).unwrap(), "first");
        assert_eq!(fs::read_to_string(fill("second")).unwrap(), "first");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_told_with_what_to_do() {
        let said = Cache::at("/proc/no-home/cache").place("programs", "a").unwrap_err().to_string();
        assert!(said.contains("/proc/no-home/cache") && said.contains("VLAB_IMAGES"), "{said}");
    }

    #[test]
    fn what_a_killed_build_left_is_removed_and_what_is_being_made_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new, whole) =
            (folder.path().join(".part-old"), folder.path().join(".part-new"), folder.path().join("x"));
        for path in [&old, &new, &whole] {
            fs::write(path, "").unwrap();
        }
        let then = std::time::SystemTime::now() - 2 * ABANDONED;
        for path in [&old, &whole] {
            File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
        }
        forget_halves(folder.path(), ABANDONED);
        assert!(!old.exists() && new.exists() && whole.exists());
    }

    #[test]
    fn checksums_are_the_known_ones() {
        const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), ABC);
        assert_eq!(sha256_of(&b"abc"[..]).unwrap(), ABC);
    }
}
