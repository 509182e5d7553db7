//! coreos-installer, which goes into the lab OS: how it is built from its crate. Two programs ask for it: `cargo xtask`, which begins with it
//! while other things are built, and `vlab-images`, which needs it. Whoever builds holds the folder's lock, and the other one finds what was
//! made: two that install the same at once disturb each other.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The version of the crate.
pub const VERSION: &str = "0.27.0";

/// Packages that its build needs beside a C compiler.
pub const NEEDS: &str = "pkg-config libssl-dev libzstd-dev liblzma-dev";

/// Names one that is there already, for who has it.
pub const NAMED: &str = "VLAB_COREOS_INSTALLER";

/// Settings of its build: quick to build; what takes time in it (writing, checksums) is in libraries of C.
const PROFILE: &[(&str, &str)] =
    &[("OPT_LEVEL", "1"), ("LTO", "off"), ("CODEGEN_UNITS", "16"), ("DEBUG", "0"), ("STRIP", "symbols")];

/// Crates in it that are not optimised at all: long to build, and not asked for much when an image is written.
const PLAIN: &[&str] = &[
    "aho-corasick",
    "clap_builder",
    "darling_core",
    "encoding_rs",
    "h2",
    "ignition-config",
    "nix",
    "nmstate",
    "openssl",
    "regex-automata",
    "regex-syntax",
    "reqwest",
    "rust_decimal",
    "serde_yaml",
    "syn",
    "winnow",
    "zerocopy",
    "zvariant",
    "zvariant_utils",
];

/// What decides about its bytes, as words: whoever keeps the program names it after them.
#[must_use]
pub fn settings() -> String {
    let profile: String = PROFILE.iter().map(|(name, value)| format!("{name}={value} ")).collect();
    format!("{VERSION} {profile}{}", PLAIN.join(" "))
}

/// How eagerly it is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Somebody waits for it.
    Normal,
    /// With what others leave of the processors.
    Idle,
}

/// The folder in which it is built, below that of images; another one for each way to build it. Not among the temporary files: the system
/// may not let programs start there, and a build that was ended goes on here.
#[must_use]
pub fn folder(images: &Path) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    settings().hash(&mut hasher);
    images.join("build").join(format!("coreos-installer-{VERSION}-{:016x}", hasher.finish()))
}

/// The file that is locked by who builds in this folder.
#[must_use]
pub fn lock(folder: &Path) -> PathBuf {
    folder.join("lock")
}

/// The program, where it was built in this folder: it is there when it is whole.
#[must_use]
pub fn made(folder: &Path) -> PathBuf {
    folder.join("bin/coreos-installer")
}

/// The command that builds it in a folder that is there. With [`Priority::Idle`] it takes the lock, else its caller has it.
#[must_use]
pub fn build(folder: &Path, priority: Priority) -> Command {
    let cargo_home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")))
        .unwrap_or_default();
    let target = folder.join("target");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = match priority {
        Priority::Normal => Command::new(cargo),
        // Each of them becomes the next one: the lock ends with cargo, and so does all of it when it is ended.
        Priority::Idle => {
            let mut locked = Command::new("flock");
            locked.arg("--no-fork").arg(lock(folder)).args(["nice", "-n", "19"]).arg(cargo);
            locked
        }
    };
    command
        .args(["install", "coreos-installer", "--version", VERSION, "--locked", "--no-track", "--root"])
        .arg(folder)
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("RUSTFLAGS")
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            format!("--remap-path-prefix={cargo_home}=/cargo\u{1f}--remap-path-prefix={}=/build", target.display()),
        )
        .current_dir(folder)
        .stdin(Stdio::null());
    for (name, value) in PROFILE {
        command.env(format!("CARGO_PROFILE_RELEASE_{name}"), value);
    }
    for name in PLAIN {
        command.args(["--config", &format!("profile.release.package.{name}.opt-level=0")]);
    }
    own_cargo(&mut command);
    command
}

/// What cargo tells a program that it runs must not reach the next cargo, nor must a tool that looks at what is built build it: the
/// same bytes, whoever asks for them. Without its bar: two may run at once, and each line of one would be drawn over by the other.
pub fn own_cargo(command: &mut Command) {
    command.env_remove("RUSTC_WORKSPACE_WRAPPER").env("CARGO_TERM_PROGRESS_WHEN", "never");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|n| n.starts_with("CARGO_PKG_") || n.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_patient_asks_cargo_for_the_same() {
        let words = |priority| -> Vec<String> {
            let command = build(Path::new("/folder"), priority);
            let args = command.get_args().map(|word| word.to_string_lossy().into_owned());
            std::iter::once(command.get_program().to_string_lossy().into_owned()).chain(args).collect()
        };
        let (normal, idle) = (words(Priority::Normal), words(Priority::Idle));
        assert_eq!(idle[..6], ["flock", "--no-fork", "/folder/lock", "nice", "-n", "19"]);
        assert_eq!(idle[6..], normal);
        assert!(normal.contains(&"--locked".to_owned()) && normal.contains(&VERSION.to_owned()), "{normal:?}");
    }
}
