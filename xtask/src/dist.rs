//! `dist`: what is given to machines that have no source: `vlab` and its helper for containers as static programs, the helper for
//! libvirt (which links libvirt, so it is not static) where it can be built, shell completions, man pages, the list of crates.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::{INCONCLUSIVE, can_build_machines, cargo, root, run, say, sbom, target};

/// Target of the static programs: glibc's own static form, which every installation of Rust can make.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Optimised: whoever gets a program does not wait for its build.
const PROFILE: &str = "load";

/// `dist [folder]`.
pub(crate) fn dist(args: &[OsString]) -> ExitCode {
    let folder = args.first().map_or_else(|| target().join("dist/vlab"), PathBuf::from);
    match make(&folder) {
        Ok(()) => {
            say(&format!("{}: everything is there; `cp` it to where you want it", folder.display()));
            ExitCode::SUCCESS
        }
        Err(why) => {
            say(&format!("dist: {why}"));
            ExitCode::from(INCONCLUSIVE)
        }
    }
}

fn make(folder: &Path) -> Result<(), String> {
    let (bin, share) = (folder.join("bin"), folder.join("share"));
    for place in [&bin, &share] {
        fs::create_dir_all(place).map_err(|error| format!("{}: {error}", place.display()))?;
    }
    say("building static programs, optimised: on two cores with other work beside it took 17 minutes");
    let vlab = put(&statically("vlab-cli", "vlab", &["--features", "vlab-cli/manual"])?, &bin)?;
    let name = "vlab-container-helper";
    put(&statically(name, name, &[])?, &bin)?;
    if can_build_machines() {
        let name = "vlab-libvirt-helper";
        let mut command = cargo();
        command.args(["build", "--locked", "--profile", PROFILE, "--package", name, "--bin", name]);
        run(command)?;
        put(&target().join(PROFILE).join(name), &bin)?;
    } else {
        say(
            "libvirt's header is not here: without its helper `vlab` runs no virtual machines (`cargo xtask setup` installs it)",
        );
    }
    let mut manual = Command::new(&vlab);
    manual.arg("manual").arg(&share);
    run(manual)?;
    let list = share.join("vlab.cdx.json");
    fs::write(&list, sbom::text()?).map_err(|error| format!("{}: {error}", list.display()))?;
    for name in ["LICENSE", "README.md"] {
        put(&root().join(name), folder)?;
    }
    let mut version = Command::new(&vlab);
    version.arg("--version");
    run(version)
}

/// A program that links no library at run time.
fn statically(package: &str, name: &str, more: &[&str]) -> Result<PathBuf, String> {
    let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    // Paths of this machine would be in the program.
    let flags = [
        "-Ctarget-feature=+crt-static".to_owned(),
        format!("--remap-path-prefix={}=/cargo", home.unwrap_or_default()),
        format!("--remap-path-prefix={}=/vlab", root().display()),
    ];
    let mut command = cargo();
    command.args(["build", "--locked", "--profile", PROFILE, "--package", package, "--bin", name, "--target", TARGET]);
    command.args(more).env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}")).env_remove("RUSTFLAGS");
    run(command)?;
    let program = target().join(TARGET).join(PROFILE).join(name);
    let bytes = fs::read(&program).map_err(|error| format!("{}: {error}", program.display()))?;
    match interpreter(&bytes) {
        Some(false) => Ok(program),
        Some(true) => Err(format!("{} is not static: it wants a loader", program.display())),
        None => Err(format!("{} is not a 64-bit program", program.display())),
    }
}

/// Does an ELF program want a loader, and so libraries? `None`: it is no such program.
fn interpreter(file: &[u8]) -> Option<bool> {
    const INTERP: usize = 3;
    let number = |at: usize, size: usize| -> Option<usize> {
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(file.get(at..at.checked_add(size)?)?);
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let kinds = (0..count).map(|index| number(table.checked_add(index.checked_mul(size)?)?, 4));
    kinds.collect::<Option<Vec<_>>>().map(|kinds| kinds.contains(&INTERP))
}

/// Copies a file into a folder.
fn put(file: &Path, folder: &Path) -> Result<PathBuf, String> {
    let place = folder.join(file.file_name().unwrap_or_default());
    // A program that is running could not be written over.
    let _ = fs::remove_file(&place);
    fs::copy(file, &place).map_err(|error| format!("{} to {}: {error}", file.display(), place.display()))?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_wants_libraries_is_told_from_one_that_does_not() {
        // This test is one that does.
        let mut own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(interpreter(&own), Some(true));
        let (table, size, count) = (
            u64::from_le_bytes(own[32..40].try_into().unwrap()),
            u64::from(u16::from_le_bytes(own[54..56].try_into().unwrap())),
            u64::from(u16::from_le_bytes(own[56..58].try_into().unwrap())),
        );
        for header in (0..count).map(|index| usize::try_from(table + index * size).unwrap()) {
            if own[header] == 3 {
                own[header] = 0;
            }
        }
        assert_eq!(interpreter(&own), Some(false));
        assert_eq!(interpreter(b"#!/bin/sh\n"), None);
        assert_eq!(interpreter(&own[..40]), None, "cut off");
    }
}
