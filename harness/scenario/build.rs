//! Puts a copy of the catalogue into the program, so that it works without the source.
//!
//! In optimised builds, which are what people run, the copy is *not* renewed when a scenario changes: in a checkout the files
//! themselves are read, and a changed line in a scenario must not compile anything. Packaging sets `VLAB_PACKAGE` (to any new
//! value), which renews it; a clean build does too. Debug builds, which are what tests use, always have the present files.

#![expect(clippy::disallowed_methods, reason = "cargo tells a build script by its environment")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=VLAB_PACKAGE");
    let follow = std::env::var("PROFILE").is_ok_and(|p| p == "debug");
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../scenarios");
    let mut code = String::from("&[\n");
    if follow {
        // A folder's time changes with what is in it, a file's with its text: cargo looks at all below a folder.
        println!("cargo::rerun-if-changed={}", root.display());
    }
    let mut files = vec![];
    yaml_files(&root, "", &mut files)?;
    files.sort();
    for key in files {
        let text = std::fs::read_to_string(root.join(&key))?;
        let _ = writeln!(code, "    ({key:?}, {text:?}),");
    }
    code.push(']');
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    std::fs::write(out.join("embedded.rs"), code)
}

/// Every YAML file of a folder and of the folders in it, as `folder/file.yaml`.
fn yaml_files(root: &Path, folder: &str, files: &mut Vec<String>) -> std::io::Result<()> {
    let here = root.join(folder);
    if !here.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(here)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let key = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        if entry.path().is_dir() {
            yaml_files(root, &key, files)?;
        } else if key.ends_with(".yaml") {
            files.push(key);
        }
    }
    Ok(())
}
