//! Tells the program which commit it is built from (`vlab --version`). A commit builds this crate again, and no other one.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=VLAB_COMMIT");
    // Whoever builds without a repository (an archive, a package) may say it.
    let named = std::env::var("VLAB_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = named.or_else(|| {
        // Both are files that git writes at each commit and each change of branch; in a work tree they are elsewhere.
        for name in ["HEAD", "logs/HEAD"] {
            let path = git(&["rev-parse", "--path-format=absolute", "--git-path", name]);
            // A file that is not there would count as changed at each build.
            if let Some(path) = path.filter(|path| Path::new(path).exists()) {
                println!("cargo::rerun-if-changed={path}");
            }
        }
        git(&["rev-parse", "--short=12", "HEAD"])
    });
    let shown = commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
    println!("cargo::rustc-env=VLAB_COMMIT={shown}");
}

/// What git says; nothing where there is no git or no repository.
fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok().filter(|out| out.status.success())?;
    let text = String::from_utf8(out.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
