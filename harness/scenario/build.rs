//! Puts a copy of the catalogue into the program, so that it works without the source.
//!
//! In optimised builds, which are what people run, the copy is *not* renewed when a scenario changes: in a checkout the files
//! themselves are read, and a changed line in a scenario must not compile anything. Packaging sets `VLAB_PACKAGE` (to any new
//! value), which renews it; a clean build does too. Debug builds, which are what tests use, always have the present files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=VLAB_PACKAGE");
    let follow = std::env::var("PROFILE").is_ok_and(|p| p == "debug");
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../scenarios");
    let mut code = String::from("&[\n");
    for (folder, key) in [("", ""), ("profiles/time", "profiles/time/"), ("profiles/hardware", "profiles/hardware/")] {
        if follow {
            println!("cargo::rerun-if-changed={}", root.join(folder).display());
        }
        for path in yaml_files(&root.join(folder))? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path)?;
            let _ = writeln!(code, "    ({:?}, {text:?}),", format!("{key}{name}"));
        }
    }
    code.push(']');
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    std::fs::write(out.join("embedded.rs"), code)
}

fn yaml_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(vec![]);
    }
    let mut files = vec![];
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
