//! The service's own folder.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vlab_lab::ledger::{Ledger, Resource, Token};

use super::StartError;

/// Stand-in for `oc`; see the file itself.
pub(super) const OC: &str = include_str!("../../stand-ins/oc");

/// A folder of the service's own outside the run's folder: its working directory and the stand-ins. In the ledger.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    entry: Option<(Arc<Ledger>, Token)>,
}

impl Scratch {
    /// Makes the folder, with `work` and (`tools`) the stand-ins in it.
    ///
    /// # Errors
    /// Those of the file system and of the ledger.
    pub fn create(run_id: &str, ledger: Option<Arc<Ledger>>, tools: bool) -> Result<Self, StartError> {
        let path = std::env::temp_dir().join(format!("vlab-service-{run_id}"));
        let entry = match ledger {
            Some(ledger) => {
                let token = ledger.record(Resource::Directory { path: path.clone() })?;
                Some((ledger, token))
            }
            None => None,
        };
        if let Err(error) = folder(&path) {
            // Not made, so not ours: what is there under that name is left alone.
            if let Some((ledger, token)) = entry {
                ledger.release(token)?;
            }
            return Err(StartError::Scratch { path, error });
        }
        let scratch = Self { path, entry };
        if let Err(error) = scratch.fill(tools) {
            let path = scratch.path.clone();
            // What could be made goes again; what cannot be removed stays in the ledger.
            let _ = scratch.remove();
            return Err(StartError::Scratch { path, error });
        }
        Ok(scratch)
    }

    fn fill(&self, stand_ins: bool) -> io::Result<()> {
        folder(&work(&self.path))?;
        if stand_ins {
            folder(&tools(&self.path))?;
            let oc = tools(&self.path).join("oc");
            fs::write(&oc, OC)?;
            fs::set_permissions(&oc, fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it.
    ///
    /// # Errors
    /// Those of the file system and of the ledger; what is left stays in the ledger.
    pub fn remove(self) -> Result<(), StartError> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StartError::Scratch { path: self.path, error });
            }
            _ => {}
        }
        if let Some((ledger, token)) = self.entry {
            ledger.release(token)?;
        }
        Ok(())
    }
}

/// A new folder that only its owner can enter.
fn folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// The working directory in such a folder.
pub(super) fn work(scratch: &Path) -> PathBuf {
    scratch.join("work")
}

/// The stand-ins in such a folder.
pub(super) fn tools(scratch: &Path) -> PathBuf {
    scratch.join("tools")
}
