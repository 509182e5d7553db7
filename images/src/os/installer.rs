//! coreos-installer: the real one. Debian has no package of it, so it is built from its crate, once, and kept in the cache; where the
//! distribution has one of this version (Fedora does), that one is taken, if it runs on the lab OS. What the image is made of is
//! the program's checksum, whoever built it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vlab_setup::installer::{self as recipe, Priority};

use crate::ImageError;
use crate::cache::Cache;

/// Loader of the lab OS.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
/// Libraries of the lab OS that programs of others may want.
const LIBRARIES: &[&str] = &[
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libcrypto.so.3",
    "libdl.so.2",
    "libgcc_s.so.1",
    "liblzma.so.5",
    "libm.so.6",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
    "libssl.so.3",
    "libzstd.so.1",
];

/// The lab OS has this version of the C library (2.36).
const GLIBC: u32 = 36;

/// The distribution's own program, when it has the right version and finds what it needs in the lab OS.
fn of_this_system() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|dir| dir.join("coreos-installer")).find(|file| file.is_file())?;
    let out = Command::new(&found).arg("--version").stdin(Stdio::null()).output().ok()?;
    let version = String::from_utf8_lossy(&out.stdout).split_whitespace().last().map(str::to_owned);
    let runs = version.as_deref() == Some(recipe::VERSION) && runs_in_the_lab(&fs::read(&found).ok()?);
    runs.then_some(found)
}

/// Does the lab OS have the libraries that this program wants, and a C library that is new enough for it?
fn runs_in_the_lab(program: &[u8]) -> bool {
    !super::elf::needed(program).is_empty() && lacks(program).is_none()
}

/// Does this program of ours want libraries, all of which the lab OS has?
///
/// # Errors
/// It cannot be read; it wants something that the lab OS has not.
pub(crate) fn libraries(program: &Path) -> Result<bool, ImageError> {
    let content = fs::read(program).map_err(ImageError::io(program))?;
    match lacks(&content) {
        None => Ok(!super::elf::needed(&content).is_empty()),
        Some(problem) => Err(ImageError::Program { program: program.display().to_string(), problem }),
    }
}

/// What the lab OS lacks to run this program, as the end of a sentence that begins with its name; `None`: it has it all, or the
/// program needs nothing.
pub fn lacks(program: &[u8]) -> Option<String> {
    if let Some(loader) = super::elf::interpreter(program).filter(|loader| loader != LOADER) {
        return Some(format!("needs the loader {loader}, and the lab OS has {LOADER} only"));
    }
    let needed = super::elf::needed(program);
    if let Some(library) = needed.iter().find(|name| !LIBRARIES.contains(&name.as_str())) {
        return Some(format!("needs the library {library}, which the lab OS has not"));
    }
    let versions = super::elf::versions(program);
    let minors =
        versions.iter().filter_map(|name| name.strip_prefix("GLIBC_2.")?.split('.').next()?.parse::<u32>().ok());
    let newest = minors.max().filter(|minor| *minor > GLIBC)?;
    Some(format!("needs glibc 2.{newest}, and the lab OS has 2.{GLIBC}"))
}

/// Its name in the cache: it has the checksum of the version and of how it is built.
pub(super) fn place() -> String {
    let content = crate::cache::sha256(recipe::settings().as_bytes());
    format!("coreos-installer-{}-{}", recipe::VERSION, &content[..16])
}

/// The program: the one that is named, else that of the cache, else a new one; `begun` is told before cargo is asked.
pub(super) fn program(cache: &Cache, named: Option<&Path>, begun: &dyn Fn()) -> Result<PathBuf, ImageError> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    // What is in the cache already goes first: a new package of the distribution does not make new images.
    if !cache.place(crate::programs::PART, &place())?.exists()
        && let Some(found) = of_this_system()
    {
        return cache.filled(crate::programs::PART, &place(), |into| {
            fs::copy(&found, into).map(drop).map_err(ImageError::io(&found))
        });
    }
    cache.filled(crate::programs::PART, &place(), |into| {
        begun();
        let folder = recipe::folder(cache.root());
        fs::create_dir_all(&folder).map_err(ImageError::io(&folder))?;
        let failed = |problem: String| ImageError::Program {
            program: "cargo install coreos-installer".to_owned(),
            problem: format!(
                "{problem}; it needs {}. `--coreos-installer FILE` takes one that you have",
                recipe::NEEDS
            ),
        };
        // Somebody else may build it already.
        let lock = recipe::lock(&folder);
        let file = fs::File::create(&lock).map_err(ImageError::io(&lock))?;
        file.lock().map_err(ImageError::io(&lock))?;
        let there = cache.place(crate::programs::PART, &place())?;
        if there.exists() {
            return fs::copy(&there, into).map(drop).map_err(ImageError::io(&there));
        }
        let made = recipe::made(&folder);
        if !made.exists() {
            let mut command = recipe::build(&folder, Priority::Normal);
            let status = command.stdout(std::io::stderr()).status().map_err(|error| failed(error.to_string()))?;
            if !status.success() {
                return Err(failed(status.to_string()));
            }
        }
        fs::copy(&made, into).map_err(ImageError::io(&made))?;
        // Half a gigabyte that nobody needs any more.
        let _ = fs::remove_dir_all(&folder);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_the_distribution_must_run_on_the_lab_os() {
        // This test is a program that wants the C library of this machine and nothing that the lab lacks.
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!super::super::elf::needed(&own).is_empty());
        assert!(!runs_in_the_lab(b"#!/bin/sh\n"), "a script says nothing about what it needs");
        let replaced = |from: &[u8], to: &[u8]| {
            let mut other = own.clone();
            let places: Vec<usize> = (0..own.len() - from.len()).filter(|at| own[*at..].starts_with(from)).collect();
            places.iter().for_each(|at| other[*at..*at + to.len()].copy_from_slice(to));
            assert!(!runs_in_the_lab(&other));
            lacks(&other).unwrap()
        };
        let loader = replaced(LOADER.as_bytes(), b"/lib64/ld-musl-x86-64.so.1\0");
        assert!(loader.starts_with("needs the loader /lib64/ld-musl-x86-64.so.1, and the lab OS has"), "{loader}");
        let library = replaced(b"\0libc.so.6\0", b"\0libx.so.6\0");
        assert_eq!(library, "needs the library libx.so.6, which the lab OS has not");
        let symbols = replaced(b"\0GLIBC_2.34\0", b"\0GLIBC_2.99\0");
        assert_eq!(symbols, "needs glibc 2.99, and the lab OS has 2.36");
    }
}
