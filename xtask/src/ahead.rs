//! What takes long to build and waits for nothing is begun ahead of time, with what other builds leave of the processors:
//! coreos-installer. Who then needs it waits for this one to end, and finds what it made; if it failed, they try again and say why.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use vlab_setup::images_folder;
use vlab_setup::installer::{self, NAMED, Priority, VERSION};

use crate::say;

/// The build; it ends with this.
pub(crate) struct Ahead(Option<Child>);

impl Ahead {
    /// Begins, if nothing of the kind is there yet.
    pub(crate) fn begin() -> Self {
        let images = images_folder();
        if std::env::var_os(NAMED).is_some() || on_path() || in_cache(&images) {
            return Self(None);
        }
        let folder = installer::folder(&images);
        if fs::create_dir_all(&folder).is_err() {
            return Self(None);
        }
        say(&format!(
            "coreos-installer {VERSION}: built from its crate, once, with what other builds leave of the processors"
        ));
        Self(installer::build(&folder, Priority::Idle).stdout(Stdio::null()).spawn().ok())
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Nobody waits for it any more.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Does this computer have one? Whether it is the right one is looked at later.
fn on_path() -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("coreos-installer").is_file()))
}

/// Was one of this version built before?
fn in_cache(images: &Path) -> bool {
    let files = fs::read_dir(images.join("programs")).into_iter().flatten().flatten();
    let name = format!("coreos-installer-{VERSION}-");
    files.map(|entry| entry.file_name()).any(|file| file.to_string_lossy().starts_with(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_built_before_is_seen() {
        let folder = std::env::temp_dir().join(format!("xtask-ahead-{}", std::process::id()));
        assert!(!in_cache(&folder));
        let programs = folder.join("programs");
        fs::create_dir_all(&programs).unwrap();
        fs::write(programs.join("coreos-installer-0.1.0-0123456789abcdef"), "").unwrap();
        fs::write(programs.join(".part-x"), "").unwrap();
        assert!(!in_cache(&folder), "only one of this version counts");
        fs::write(programs.join(format!("coreos-installer-{VERSION}-0123456789abcdef")), "").unwrap();
        assert!(in_cache(&folder));
        fs::remove_dir_all(&folder).unwrap();
    }
}
