//! Images of the lab, made from Debian packages and programs of ours on a machine without a container registry, without root
//! and with the same bytes for the same inputs.
//!
//! What there is, from the bottom to the top; each part can be used without those above it:
//!
//! * [`cache`]: a folder of what was fetched and built, and SHA-256 of things;
//! * [`manifest`]: `images.yaml`, which names packages, versions and checksums;
//! * [`packages`]: Debian packages: which ones (`resolve`), their files (`fetch`), their contents (`contents`);
//! * [`rootfs`]: a tree of files that is assembled in memory; what packages bring stays in the cache and is only pointed to;
//! * [`archive`]: such a tree as a tar archive, the same bytes every time;
//! * [`container`]: archives as an image that `docker load` and `podman load` take;
//! * [`programs`]: static programs of this project;
//! * [`recipes`]: which images there are and what is in them;
//! * [`cpio`]: a tree as an initrd;
//! * [`tools`]: programs of this machine that make file systems;
//! * [`os`]: the lab OS: live ISO, disk image, files for iPXE;
//! * [`bundle`]: what was built, as a file for another machine.

pub mod archive;
pub mod bundle;
pub mod cache;
pub mod container;
pub mod cpio;
pub mod manifest;
pub mod os;
pub mod packages;
pub mod programs;
pub mod recipes;
pub mod rootfs;
pub mod tools;

use std::path::PathBuf;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A file or folder.
    #[error("{path}: {error}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The folder for what is fetched and built cannot be written.
    #[error(
        "what is fetched and built is kept in {path}, and that cannot be written ({error}): name another folder with VLAB_IMAGES"
    )]
    Cache {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A program that is needed cannot be started or failed.
    #[error("{program}: {problem}")]
    Program {
        /// Its name.
        program: String,
        /// What happened, and what to do.
        problem: String,
    },
    /// The manifest.
    #[error("images.yaml: {0}")]
    Manifest(String),
    /// A package cannot be had.
    #[error("Debian package {package}: {problem}")]
    Package {
        /// Name and version.
        package: String,
        /// Why, and what to do.
        problem: String,
    },
    /// A tree of files that is not what it should be.
    #[error("{0}")]
    Tree(String),
}

impl ImageError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { path, error }
    }
}
