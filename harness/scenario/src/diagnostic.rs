//! What is wrong with a file, shown so that the reader can mend it: file, line, column, excerpt, what was expected, what to do.

use std::path::{Path, PathBuf};

/// A file's name and its bytes, which may be anything.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// As messages should name it.
    pub name: String,
    /// Where it is on the disk, if it is.
    pub path: Option<PathBuf>,
    /// Its contents.
    pub bytes: Vec<u8>,
}

impl SourceFile {
    /// A file that is in memory.
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), path: None, bytes: bytes.into() }
    }

    /// Reads a file. A file that cannot be read, or of more than 10 MB, is an error that says so.
    pub fn read(path: &Path) -> Result<Self, LoadError> {
        let _ = path;
        unimplemented!("reading scenarios")
    }
}

/// All that is wrong with a file.
#[derive(Debug)]
pub struct LoadError {}

impl std::fmt::Display for LoadError {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        unimplemented!("rendering of diagnostics")
    }
}

impl std::error::Error for LoadError {}
