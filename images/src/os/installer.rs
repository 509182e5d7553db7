//! coreos-installer: the real one, from its crate, because Debian has no package of it. Built once, kept in the cache. What the
//! image is made of is the program's checksum, whoever built it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::ImageError;
use crate::cache::Cache;

/// The version of the crate.
pub(super) const VERSION: &str = "0.27.0";

/// Packages that its build needs beside a C compiler.
const NEEDS: &str = "pkg-config libssl-dev libzstd-dev liblzma-dev";

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

/// The program: the one that is named, else that of the cache, else a new one; `begun` is told before cargo is asked.
pub(super) fn program(cache: &Cache, named: Option<&Path>, begun: &dyn Fn()) -> Result<PathBuf, ImageError> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let settings: String = PROFILE.iter().map(|(name, value)| format!("{name}={value} ")).collect();
    let settings = settings + &PLAIN.join(" ");
    let content = crate::cache::sha256(format!("{VERSION} {settings}").as_bytes());
    cache.filled("programs", &format!("coreos-installer-{VERSION}-{}", &content[..16]), |into| {
        begun();
        let root = tempfile::tempdir().map_err(ImageError::io("temporary folder"))?;
        let failed = |problem: String| ImageError::Program {
            program: "cargo install coreos-installer".to_owned(),
            problem: format!("{problem}; it needs {NEEDS}. `--coreos-installer FILE` takes one that you have"),
        };
        let cargo_home = std::env::var("CARGO_HOME")
            .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")))
            .unwrap_or_default();
        let target = root.path().join("target");
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .args(["install", "coreos-installer", "--version", VERSION, "--locked", "--no-track", "--root"])
            .arg(root.path())
            .env("CARGO_TARGET_DIR", &target)
            .env_remove("RUSTFLAGS")
            .env(
                "CARGO_ENCODED_RUSTFLAGS",
                format!("--remap-path-prefix={cargo_home}=/cargo\u{1f}--remap-path-prefix={}=/build", target.display()),
            )
            .current_dir(root.path())
            .stdin(Stdio::null())
            .stdout(std::io::stderr());
        for (name, value) in PROFILE {
            command.env(format!("CARGO_PROFILE_RELEASE_{name}"), value);
        }
        for name in PLAIN {
            command.args(["--config", &format!("profile.release.package.{name}.opt-level=0")]);
        }
        crate::programs::own_cargo(&mut command);
        let status = command.status().map_err(|error| failed(error.to_string()))?;
        if !status.success() {
            return Err(failed(status.to_string()));
        }
        let made = root.path().join("bin/coreos-installer");
        fs::copy(&made, into).map(|_| ()).map_err(ImageError::io(&made))
    })
}
