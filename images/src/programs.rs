//! Programs of this project that go into images: static, so that they run on whatever is there, and the same bytes for the same
//! sources. Kept in the cache; built again only when a source of the project changed, because asking cargo would cost more than
//! everything else of a build that has nothing to do.
//!
//! Whoever has just built them for this machine says where (`VLAB_BUILT`): such a program is taken where the lab OS has the libraries that
//! it wants, and minutes are saved. It is not kept, and does not leave this machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::ImageError;
use crate::cache::{Cache, sha256, sha256_file};

/// Raise it when programs are built in another way.
const FORM: u32 = 2;

/// Files outside of their crates that crates have in them: profiles in every program, the whole catalogue in `vlab`.
const PROFILES: &str = "scenarios/profiles/hardware";
const CATALOGUE: &str = "scenarios";

/// Target of our static programs. Not musl: this one needs nothing but what every build of Rust needs, and its allocator is
/// the one that the figures of the README were measured with.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Cargo's profile for all of them: what two of them use is compiled once.
const PROFILE: &str = "image";

/// The project's sources, when this program was built from them and they are still there.
#[must_use]
pub fn workspace() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    here.join("images/images.yaml").is_file().then(|| here.to_owned())
}

/// A program of this project that goes into images.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    /// The crate.
    package: &'static str,
    /// The program.
    name: &'static str,
    /// Folder with files that are in it and in none of its crates.
    beside: &'static str,
}

/// What machines of the lab have in them.
pub(crate) const NODE: Program = Program { package: "vlab-node", name: "vlab-node", beside: PROFILES };
/// The simulated service, for its container.
pub(crate) const SERVICE: Program = Program { package: "vlab-service-server", name: "vlab-service", beside: PROFILES };
/// `vlab` itself, for its container.
pub(crate) const VLAB: Program = Program { package: "vlab-cli", name: "vlab", beside: CATALOGUE };

/// The program in the folder that the variable `VLAB_BUILT` names, if it runs on the lab OS.
pub(crate) fn built(program: &Program) -> Option<PathBuf> {
    built_in(&PathBuf::from(std::env::var_os("VLAB_BUILT")?), program)
}

fn built_in(folder: &Path, program: &Program) -> Option<PathBuf> {
    let file = folder.join(program.name);
    crate::os::libraries(&file).is_ok().then_some(file)
}

/// The part of the cache with programs.
pub(crate) const PART: &str = "programs";

/// The name of a program's static form in the cache: it has the checksum of its sources.
pub(crate) fn place(workspace: &Path, program: &Program) -> Result<String, ImageError> {
    let sources = sources(workspace, program)?;
    Ok(format!("{}-{}", program.name, &sources[..16]))
}

/// The static form of a program, or the one that was built for this machine; `begun` is told before cargo is asked for it.
///
/// # Errors
/// There are no sources; cargo fails.
pub(crate) fn program(
    cache: &Cache,
    workspace: Option<&Path>,
    program: Program,
    begun: &dyn Fn(),
) -> Result<PathBuf, ImageError> {
    let Program { package, name, .. } = program;
    let workspace = workspace.ok_or_else(|| ImageError::Program {
        program: name.to_owned(),
        problem: "is built from the sources of this project: run `cargo xtask images` in a clone".to_owned(),
    })?;
    let place = place(workspace, &program)?;
    if !cache.place(PART, &place)?.exists()
        && let Some(built) = built(&program)
    {
        return Ok(built);
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
    let target = target.join("images");
    cache.filled(PART, &place, |into| {
        begun();
        let cargo_home = std::env::var("CARGO_HOME")
            .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")))
            .unwrap_or_default();
        // Paths of this machine would be in the program (in messages of panics) and make other bytes elsewhere.
        let flags = [
            "-Ctarget-feature=+crt-static".to_owned(),
            format!("--remap-path-prefix={cargo_home}=/cargo"),
            format!("--remap-path-prefix={}=/vlab", workspace.display()),
        ];
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .args(["build", "--locked", "--profile", PROFILE, "--package", package, "--bin", name])
            .args(["--target", TARGET, "--target-dir"])
            .arg(&target)
            .current_dir(workspace)
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
            .env_remove("RUSTFLAGS")
            // Not the commit: the same sources are the same bytes.
            .env("VLAB_COMMIT", &place)
            .stdin(Stdio::null())
            .stdout(std::io::stderr());
        vlab_setup::installer::own_cargo(&mut command);
        let failed = |problem: String| ImageError::Program { program: format!("cargo build of {name}"), problem };
        match command.status() {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(failed(status.to_string())),
            Err(error) => return Err(failed(error.to_string())),
        }
        let program = target.join(TARGET).join(PROFILE).join(name);
        fs::copy(&program, into).map(|_| ()).map_err(ImageError::io(&program))
    })
}

/// Checksum of the sources of a crate, of those of this project that it uses, and of the compiler's version.
fn sources(workspace: &Path, program: &Program) -> Result<String, ImageError> {
    let mut files = BTreeMap::new();
    for name in ["Cargo.toml", "Cargo.lock"] {
        files.insert(PathBuf::from(name), sha256_file(&workspace.join(name))?);
    }
    collect(workspace, &workspace.join(program.beside), &mut files)?;
    for folder in crates(workspace, program.package)? {
        collect(workspace, &workspace.join(folder), &mut files)?;
    }
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("-vV").current_dir(workspace).output().map(|out| out.stdout);
    let mut all = format!("{FORM} {}\n", String::from_utf8_lossy(&version.unwrap_or_default()));
    for (path, sum) in files {
        all += &format!("{} {sum}\n", path.display());
    }
    Ok(sha256(all.as_bytes()))
}

/// Folders of a crate and of all crates of this project that it is built from.
fn crates(workspace: &Path, name: &str) -> Result<Vec<String>, ImageError> {
    let read = |path: PathBuf| fs::read_to_string(&path).map_err(ImageError::io(path));
    let all = read(workspace.join("Cargo.toml"))?;
    let folder_of = |name: &str| {
        let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = { path = \""));
        line.and_then(|rest| rest.split('"').next()).map(str::to_owned).ok_or_else(|| ImageError::Program {
            program: name.to_owned(),
            problem: "has no `path` in the workspace's Cargo.toml".to_owned(),
        })
    };
    let mut names = vec![name.to_owned()];
    let mut folders = Vec::new();
    let mut next = 0;
    while let Some(name) = names.get(next) {
        let folder = folder_of(name)?;
        let manifest = read(workspace.join(&folder).join("Cargo.toml"))?;
        // Those of tests are not in the program.
        let used = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
        for line in used.take_while(|line| !line.starts_with('[')).filter(|line| line.starts_with("vlab-")) {
            let used = line.split(['.', ' ']).next().unwrap_or_default().to_owned();
            if !names.contains(&used) {
                names.push(used);
            }
        }
        folders.push(folder);
        next += 1;
    }
    folders.sort();
    Ok(folders)
}

fn collect(root: &Path, folder: &Path, into: &mut BTreeMap<PathBuf, String>) -> Result<(), ImageError> {
    for entry in fs::read_dir(folder).map_err(ImageError::io(folder))? {
        let path = entry.map_err(ImageError::io(folder))?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            if name != "tests" && name != "target" {
                collect(root, &path, into)?;
            }
        } else {
            let shown = path.strip_prefix(root).unwrap_or(&path).to_owned();
            into.insert(shown, sha256_file(&path)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_built_for_this_machine_goes_into_images_where_it_runs_there() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(built_in(folder.path(), &NODE), None, "nobody built it");
        let file = folder.path().join("vlab-node");
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        fs::write(&file, &own).unwrap();
        assert_eq!(built_in(folder.path(), &NODE), Some(file.clone()));
        let wanted = b"\0libc.so.6\0";
        let at = own.windows(wanted.len()).position(|bytes| bytes == wanted).unwrap();
        fs::write(&file, [&own[..at], b"\0libx.so.6\0", &own[at + wanted.len()..]].concat()).unwrap();
        assert_eq!(built_in(folder.path(), &NODE), None, "the lab OS has no such library");
    }

    #[test]
    fn only_what_a_program_is_made_of_counts() {
        let workspace = workspace().unwrap();
        let node = crates(&workspace, "vlab-node").unwrap();
        let folders = [
            "fakes/agents",
            "fakes/kube",
            "fakes/node",
            "fakes/node-config",
            "harness/api",
            "harness/client",
            "harness/model",
        ];
        assert_eq!(node, folders);
        let service = crates(&workspace, SERVICE.package).unwrap();
        let fakes = ["fakes/image-service", "fakes/installer", "fakes/service", "fakes/service-server"];
        assert_eq!(service[..4], fakes);
        assert!(service[4..].iter().all(|folder| folder.starts_with("harness/")), "{service:?}");
        let vlab = crates(&workspace, VLAB.package).unwrap();
        assert!(vlab.contains(&"harness/cli".to_owned()) && vlab.contains(&"images".to_owned()), "{vlab:?}");
        let error = crates(&workspace, "vlab-nothing").unwrap_err().to_string();
        assert!(error.contains("vlab-nothing") && error.contains("Cargo.toml"), "{error}");
    }
}
