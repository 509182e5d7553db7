//! Where the pages are, and a place in which their commands are run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::markdown::Page;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The text of a file of the repository.
pub(crate) fn text_of(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// All pages that people read.
pub(crate) fn pages() -> Vec<Page> {
    let mut paths: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "images/README.md", "ci/README.md"].map(PathBuf::from).into();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                paths.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    paths.sort();
    let read = |path: &PathBuf| Page::read(path, &text_of(path.to_str().unwrap())).unwrap_or_else(|e| panic!("{e}"));
    paths.iter().map(read).collect()
}

/// A temporary folder with `vlab` in its PATH, and a `cargo` whose `xtask` passes verbs on to it, as the real one does.
pub(crate) struct Place {
    root: tempfile::TempDir,
}

/// Verbs of `cargo xtask` that are not those of `vlab`.
const OWN_VERBS: &[&str] = &["test", "setup", "images", "dist", "fresh-machine", "sbom", "vlab"];

/// The verbs of `cargo xtask`, from its table. The program itself is built with a profile of its own, which tests do not wait for.
pub(crate) fn xtask_verbs() -> Vec<String> {
    let text = text_of("xtask/src/args.rs");
    let (_, table) = text.split_once("VERBS: &[Verb] = &[").expect("a table of verbs");
    let (table, _) = table.split_once("\n];").expect("the end of the table");
    table.split("name: \"").skip(1).filter_map(|rest| rest.split_once('"')).map(|(name, _)| name.to_owned()).collect()
}

/// A `cargo` that knows `xtask` and the verbs that are passed on to `vlab`.
fn cargo() -> String {
    let verbs = xtask_verbs();
    let passed: Vec<&str> = verbs.iter().map(String::as_str).filter(|verb| !OWN_VERBS.contains(verb)).collect();
    format!(
        "#!/bin/sh\n\
         [ \"$1\" = xtask ] || {{ echo \"only 'cargo xtask' can be run here\"; exit 97; }}\n\
         shift\n\
         case $1 in\n    vlab) shift ;;\n    {}) ;;\n    \
         *) echo \"'cargo xtask $1' cannot be run by a test\"; exit 97 ;;\nesac\n\
         exec vlab \"$@\"\n",
        passed.join(" | ")
    )
}

impl Place {
    pub(crate) fn new() -> Self {
        // Not the folder of TMPDIR: the path of a unix socket has little room.
        let root = tempfile::Builder::new().prefix("vlab-docs-").tempdir_in("/tmp").unwrap();
        let place = Self { root };
        for (folder, mode) in
            [(".", 0o755), ("bin", 0o755), ("work", 0o755), ("tmp", 0o1777), ("ledgers", 0o755), ("runs", 0o755)]
        {
            fs::create_dir_all(place.path(folder)).unwrap();
            fs::set_permissions(place.path(folder), fs::Permissions::from_mode(mode)).unwrap();
        }
        place.program("cargo", &cargo());
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_vlab"), place.path("bin/vlab")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The folder in which commands are run.
    pub(crate) fn work(&self) -> PathBuf {
        self.path("work")
    }

    /// Puts a program before all others.
    pub(crate) fn program(&self, name: &str, text: &str) {
        let file = self.path("bin").join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Writes a file for the commands.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path("work").join(name), text).unwrap();
    }

    /// Runs a line of shell. Both outputs are one.
    pub(crate) fn run(&self, line: &str) -> (Option<i32>, String) {
        let path = std::env::var("PATH").unwrap();
        let output: Output = Command::new("bash")
            .args(["-o", "pipefail", "-c", &format!("exec 2>&1\n{line}")])
            .current_dir(self.path("work"))
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("XDG_RUNTIME_DIR", self.path("ledgers"))
            .env("TMPDIR", self.path("tmp"))
            .env("VLAB_RUNS", self.path("runs"))
            .env("NO_COLOR", "1")
            // What CI sets, too: whether this machine could run virtual ones is not a question of the documentation.
            .env("VLAB_HOSTS", "sim")
            .env_remove("DATABASE_URL")
            .env_remove("VLAB_SCENARIOS")
            .env_remove("VLAB_LOG")
            .env_remove("GITHUB_ACTIONS")
            .env_remove("GITHUB_STEP_SUMMARY")
            .env_remove("ARTIFACT_DIR")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
