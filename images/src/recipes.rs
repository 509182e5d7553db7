//! Which images there are and what is in them. A new image is a function here, a row in [`RECIPES`], and its packages in
//! `images.yaml`.
//!
//! What an image is made of has a checksum (its *content*): the same content is never built twice, and the engine is asked
//! for it by a label, so that nothing is loaded twice either.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::ImageError;
use crate::cache::{Cache, sha256, sha256_file};
use crate::container::{self, Start};
use crate::manifest::Manifest;
use crate::packages::Package;
use crate::rootfs::Rootfs;
use crate::{os, packages, programs};

/// Raise it when the builder itself changes what images look like.
const FORM: u32 = 1;

/// The label with the checksum of what an image is made of.
pub const LABEL_CONTENT: &str = "vlab.content";

/// What recipes work with.
#[derive(Debug)]
pub struct Kitchen<'a> {
    /// What was fetched and built before.
    pub cache: &'a Cache,
    /// Packages and versions.
    pub manifest: &'a Manifest,
    /// The sources of this project, for programs of ours.
    pub workspace: Option<PathBuf>,
    /// The service's program, instead of building a static one.
    pub service_program: Option<PathBuf>,
}

/// What an image is made of.
#[derive(Debug)]
struct Ingredients {
    /// All that decides about its bytes.
    content: String,
    /// Puts it together.
    assemble: Assemble,
}

#[derive(Debug)]
enum Assemble {
    /// With the packages whose libraries it wants.
    Service {
        program: PathBuf,
        libraries: Vec<Package>,
    },
    Postgres,
    Vlab {
        program: PathBuf,
    },
}

/// An image that can be built.
#[derive(Debug, Clone, Copy)]
pub struct Recipe {
    /// Name of the image, without tag.
    pub name: &'static str,
    /// What it is, in a line.
    pub what: &'static str,
    /// Built only when it is named: no test needs it, and it takes minutes.
    pub on_request: bool,
    ingredients: fn(&Kitchen<'_>) -> Result<Ingredients, ImageError>,
}

/// All of them.
pub const RECIPES: &[Recipe] = &[
    Recipe {
        name: "vlab-service",
        what: "the simulated assisted-service, one static program",
        on_request: false,
        ingredients: service,
    },
    Recipe { name: "vlab-postgres", what: "PostgreSQL from Debian packages", on_request: false, ingredients: postgres },
    Recipe {
        name: "vlab",
        what: "vlab itself, with PostgreSQL: runs with simulated hosts (only when it is named)",
        on_request: true,
        ingredients: vlab,
    },
];

/// An image as an archive in the cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    /// Name with tag.
    pub name: String,
    /// Checksum of what it is made of.
    pub content: String,
    /// Id of the image: checksum of its description.
    pub id: String,
    /// Checksum of the archive.
    pub sha256: String,
    /// Size of the archive in bytes.
    pub size: u64,
    /// The archive.
    pub archive: PathBuf,
    /// It was there already.
    #[serde(skip)]
    pub cached: bool,
    /// How long it took.
    #[serde(skip)]
    pub took: Duration,
}

impl Recipe {
    /// The image, from the cache when the same one was built before.
    ///
    /// # Errors
    /// A package that cannot be had, a program that cannot be built, a disk that is full.
    pub fn build(&self, kitchen: &Kitchen<'_>) -> Result<Built, ImageError> {
        let begun = Instant::now();
        let Ingredients { content, assemble } = (self.ingredients)(kitchen)?;
        let name = format!("{}:latest", self.name);
        let about = kitchen.cache.place("images", &format!("{}-{}.json", self.name, &content[..16]))?;
        let known: Option<Built> = fs::read(&about).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        // Where it lies now: the cache may have been kept and brought elsewhere.
        let archive = kitchen.cache.place("images", &format!("{}-{}.tar", self.name, &content[..16]))?;
        if let Some(known) = known.filter(|k| k.content == content && archive.exists()) {
            return Ok(Built { cached: true, took: begun.elapsed(), archive, ..known });
        }
        let mut start = Start::default();
        let tree = match assemble {
            Assemble::Service { program, libraries } => service_tree(kitchen, &program, &libraries, &mut start)?,
            Assemble::Postgres => postgres_tree(kitchen, &mut start)?,
            Assemble::Vlab { program } => vlab_tree(kitchen, &program, &mut start)?,
        };
        start.labels.insert(LABEL_CONTENT.to_owned(), content.clone());
        let mut id = String::new();
        let archive = format!("{}-{}.tar", self.name, &content[..16]);
        let _ = fs::remove_file(kitchen.cache.place("images", &archive)?);
        let archive = kitchen.cache.filled("images", &archive, |into| {
            id = container::write(&tree, &start, &kitchen.manifest.debian.architecture, &name, into)?;
            Ok(())
        })?;
        let size = fs::metadata(&archive).map_err(ImageError::io(&archive))?.len();
        let built = Built {
            name,
            content,
            id,
            sha256: sha256_file(&archive)?,
            size,
            archive,
            cached: false,
            took: begun.elapsed(),
        };
        let text = serde_json::to_vec_pretty(&built).map_err(|e| ImageError::Tree(e.to_string()))?;
        fs::write(&about, text).map_err(ImageError::io(&about))?;
        Ok(built)
    }
}

/// Names of users that programs look up.
fn users(tree: &mut Rootfs, users: &[(&str, u32, u32, &str)]) {
    let mut passwd = "root:x:0:0:root:/:/bin/sh\n".to_owned();
    let mut group = "root:x:0:\n".to_owned();
    for (name, uid, gid, home) in users {
        passwd += &format!("{name}:x:{uid}:{gid}:{name}:{home}:/bin/sh\n");
        if *gid != 0 {
            group += &format!("{name}:x:{gid}:\n");
        }
    }
    tree.file("etc/passwd", 0o644, passwd);
    tree.file("etc/group", 0o644, group);
    tree.directory("tmp", 0o1777);
}

fn service(kitchen: &Kitchen<'_>) -> Result<Ingredients, ImageError> {
    let program = match &kitchen.service_program {
        Some(program) => program.clone(),
        None => programs::program(kitchen.cache, kitchen.workspace.as_deref(), programs::SERVICE, &|| ())?,
    };
    let libraries = os::libraries(&program)?.then(|| c_library(kitchen.manifest)).transpose()?.unwrap_or_default();
    let mut content = format!("{FORM} vlab-service {}", sha256_file(&program)?);
    for package in &libraries {
        content += &format!("\n{} {} {}", package.name, package.version, package.sha256);
    }
    Ok(Ingredients { content: sha256(content.as_bytes()), assemble: Assemble::Service { program, libraries } })
}

/// The packages with what a program of Rust wants that is not static: those of the lab OS.
fn c_library(manifest: &Manifest) -> Result<Vec<Package>, ImageError> {
    let wanted = |package: &&Package| ["libc6", "libgcc-s1"].contains(&package.name.as_str());
    Ok(manifest.packages("os")?.iter().filter(wanted).cloned().collect())
}

fn service_tree(
    kitchen: &Kitchen<'_>,
    program: &Path,
    libraries: &[Package],
    start: &mut Start,
) -> Result<Rootfs, ImageError> {
    let mut tree = if libraries.is_empty() { Rootfs::new() } else { Rootfs::merged_usr() };
    for package in libraries {
        tree.add_tar(&packages::contents(kitchen.cache, kitchen.manifest, package)?)?;
    }
    for unused in ["usr/share", "usr/lib/x86_64-linux-gnu/gconv"] {
        tree.remove(unused);
    }
    users(&mut tree, &[("assisted", 1001, 0, "/tmp")]);
    tree.file_from("vlab-service", 0o755, program)?;
    tree.directory("data", 0o1777);
    start.entrypoint = vec!["/vlab-service".to_owned()];
    start.user = "1001:0".to_owned();
    start.directory = "/".to_owned();
    start.ports = vec![8090];
    Ok(tree)
}

const POSTGRES_START: &str = include_str!("../files/vlab-postgres-start");

fn postgres(kitchen: &Kitchen<'_>) -> Result<Ingredients, ImageError> {
    let mut all = format!("{FORM} vlab-postgres {}\n", sha256(POSTGRES_START.as_bytes()));
    for package in kitchen.manifest.packages("postgres")? {
        all += &format!("{} {} {}\n", package.name, package.version, package.sha256);
    }
    Ok(Ingredients { content: sha256(all.as_bytes()), assemble: Assemble::Postgres })
}

fn vlab(kitchen: &Kitchen<'_>) -> Result<Ingredients, ImageError> {
    let program = programs::program(kitchen.cache, kitchen.workspace.as_deref(), programs::VLAB, &|| ())?;
    let database = postgres(kitchen)?.content;
    let content = sha256(format!("{FORM} vlab {} {database}", sha256_file(&program)?).as_bytes());
    Ok(Ingredients { content, assemble: Assemble::Vlab { program } })
}

/// PostgreSQL's programs, and `vlab` as an ordinary user: `docker run --rm -v "$PWD:/lab" vlab scenario sno --hosts sim`.
fn vlab_tree(kitchen: &Kitchen<'_>, program: &Path, start: &mut Start) -> Result<Rootfs, ImageError> {
    const USER: u32 = 1001;
    let mut tree = postgres_tree(kitchen, start)?;
    users(&mut tree, &[("vlab", USER, USER, "/tmp")]);
    tree.file_from("usr/local/bin/vlab", 0o755, program)?;
    tree.directory("lab", 0o1777);
    start.entrypoint = vec!["/usr/local/bin/vlab".to_owned()];
    start.env.insert("HOME".to_owned(), "/tmp".to_owned());
    start.user = format!("{USER}:{USER}");
    start.directory = "/lab".to_owned();
    start.ports = Vec::new();
    Ok(tree)
}

fn postgres_tree(kitchen: &Kitchen<'_>, start: &mut Start) -> Result<Rootfs, ImageError> {
    /// The same numbers as in the upstream image, so that a volume of the one can be used by the other.
    const POSTGRES: u32 = 999;
    let mut tree = Rootfs::merged_usr();
    for package in kitchen.manifest.packages("postgres")? {
        tree.add_tar(&packages::contents(kitchen.cache, kitchen.manifest, package)?)?;
    }
    for unused in ["usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian"] {
        tree.remove(unused);
    }
    // Bitcode for the compiler of queries, which is left out.
    tree.remove("usr/lib/postgresql/15/lib/bitcode");
    users(&mut tree, &[("postgres", POSTGRES, POSTGRES, "/var/lib/postgresql")]);
    for (path, mode) in [("var/lib/postgresql", 0o755), ("var/lib/postgresql/data", 0o700), ("run/postgresql", 0o2775)]
    {
        tree.directory(path, mode);
        tree.chown(path, POSTGRES.into(), POSTGRES.into())?;
    }
    tree.symlink("bin/sh", "dash");
    tree.file("usr/local/bin/vlab-postgres-start", 0o755, POSTGRES_START);
    start.entrypoint = vec!["/usr/local/bin/vlab-postgres-start".to_owned()];
    start.env = BTreeMap::from([
        ("PATH".to_owned(), "/usr/local/bin:/usr/lib/postgresql/15/bin:/usr/bin:/bin".to_owned()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
    ]);
    start.user = format!("{POSTGRES}:{POSTGRES}");
    start.directory = "/".to_owned();
    start.ports = vec![5432];
    // A quick end: connections are closed, nothing is lost.
    start.stop_signal = "SIGINT".to_owned();
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_change_is_not_built_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("cache"));
        let manifest = Manifest::built_in().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, "one").unwrap();
        let kitchen =
            Kitchen { cache: &cache, manifest: &manifest, workspace: None, service_program: Some(program.clone()) };
        let recipe = RECIPES.iter().find(|recipe| recipe.name == "vlab-service").unwrap();
        let first = recipe.build(&kitchen).unwrap();
        let second = recipe.build(&kitchen).unwrap();
        assert!(!first.cached && second.cached);
        assert_eq!((&first.id, &first.sha256), (&second.id, &second.sha256));
        fs::remove_dir_all(cache.root()).unwrap();
        let from_nothing = recipe.build(&kitchen).unwrap();
        assert_eq!((&first.id, &first.sha256), (&from_nothing.id, &from_nothing.sha256), "the same bytes");
        fs::write(&program, "two").unwrap();
        let other = recipe.build(&kitchen).unwrap();
        assert!(!other.cached && other.id != first.id && other.content != first.content);
    }

    #[test]
    fn what_takes_minutes_and_no_test_needs_is_built_only_when_it_is_named() {
        let usual: Vec<&str> = RECIPES.iter().filter(|recipe| !recipe.on_request).map(|recipe| recipe.name).collect();
        assert_eq!(usual, ["vlab-service", "vlab-postgres"]);
    }

    #[test]
    fn a_program_of_ours_needs_the_sources() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let manifest = Manifest::built_in().unwrap();
        let kitchen = Kitchen { cache: &cache, manifest: &manifest, workspace: None, service_program: None };
        assert!(RECIPES[0].build(&kitchen).unwrap_err().to_string().contains("cargo xtask images"));
    }
}
