//! The lab OS and its media: what virtual machines of the lab boot and what is installed on their disks.
//!
//! It is Debian, laid out as CoreOS: the same ISO layout, the same place for Ignition's configuration, the same partitions, the
//! same arguments of the kernel. Ignition, coreos-installer, systemd, NetworkManager, etcd, keepalived, haproxy and GRUB in it
//! are the real ones. There is no SELinux, no ostree and no container runtime: `podman` is a stand-in, one of the names of
//! `vlab-node`, which is agent, installer and control plane of lab machines.
//!
//! One artefact is one file ([`ARTEFACTS`]). Everything that decides about its bytes goes into its *content*, a checksum; the
//! same content is not built twice.

mod disk;
mod elf;
mod files;
mod initrd;
mod installer;
mod kernel;
mod live;
mod osmet;
mod root;

pub use installer::lacks;
pub(crate) use installer::libraries;
pub use root::network_initrd;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cache::{Cache, sha256, sha256_file};
use crate::manifest::Manifest;
use crate::rootfs::{FileKind, Rootfs};
use crate::{ImageError, packages, programs, tools};

/// Raise it when this file changes what artefacts look like; that of the files beside it is seen by itself ([`recipe`]).
const FORM: u32 = 1;

/// The source of what makes an artefact. A change to it makes the artefact anew: a cache that knew of files and packages only would
/// go on giving what an earlier version of the builder has made.
fn recipe(step: BuildTarget) -> &'static str {
    match step {
        BuildTarget::Kernel => include_str!("kernel.rs"),
        BuildTarget::Initrd => include_str!("initrd.rs"),
        BuildTarget::Root => include_str!("root.rs"),
        BuildTarget::Disk => include_str!("disk.rs"),
        BuildTarget::Osmet => include_str!("osmet.rs"),
        BuildTarget::Rootfs | BuildTarget::LiveInitrd | BuildTarget::Iso | BuildTarget::Minimal => {
            include_str!("live.rs")
        }
    }
}

/// Name of the ISO's file system. The assisted-image-service takes no ISO whose name does not begin like one of CoreOS.
pub const VOLUME: &str = "rhcos-vlab-1";

/// Sets of the manifest that the lab OS is made of.
const SETS: &[&str] = &["os", "os-kernel", "os-initrd", "os-boot"];

/// The part of the cache with artefacts.
pub(crate) const PART: &str = "os";

/// So many builds of an artefact stay in the cache.
const KEPT: usize = 4;

/// How long it usually takes, for people who wait: measured on two idle cores (docs/measurements.md).
const USUAL_INSTALLER: &str = "two minutes";

/// [`crate::archive::TIME`] as xorriso wants it.
const DATE: &str = "2023061000000000";

/// A file that can be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum BuildTarget {
    Kernel,
    Initrd,
    Root,
    Disk,
    Osmet,
    Rootfs,
    LiveInitrd,
    Iso,
    Minimal,
}

/// One of the artefacts.
#[derive(Debug, Clone, Copy)]
pub struct Artefact {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub what: &'static str,
    /// End of its file's name.
    end: &'static str,
    step: BuildTarget,
    /// What it is made of.
    of: &'static [BuildTarget],
}

/// What can be asked for, and [`INNER`] what is only made on the way.
pub const ARTEFACTS: &[Artefact] = &[
    Artefact {
        name: "lab-iso",
        what: "live discovery ISO, BIOS and UEFI",
        end: "iso",
        step: BuildTarget::Iso,
        of: &[BuildTarget::Kernel, BuildTarget::LiveInitrd, BuildTarget::Rootfs],
    },
    Artefact {
        name: "lab-minimal-iso",
        what: "the same without its root file system, which it fetches over HTTP",
        end: "iso",
        step: BuildTarget::Minimal,
        of: &[BuildTarget::Kernel, BuildTarget::LiveInitrd],
    },
    Artefact { name: "lab-kernel", what: "kernel, for iPXE", end: "vmlinuz", step: BuildTarget::Kernel, of: &[] },
    Artefact {
        name: "lab-initrd",
        what: "initrd of the live system, for iPXE",
        end: "img",
        step: BuildTarget::LiveInitrd,
        of: &[BuildTarget::Kernel, BuildTarget::Initrd, BuildTarget::Rootfs, BuildTarget::Root, BuildTarget::Osmet],
    },
    Artefact {
        name: "lab-rootfs",
        what: "root file system of the live system, for iPXE and the minimal ISO",
        end: "img",
        step: BuildTarget::Rootfs,
        of: &[BuildTarget::Root, BuildTarget::Osmet],
    },
    Artefact {
        name: "lab-disk",
        what: "disk image that coreos-installer writes (it is also in lab-rootfs)",
        end: "raw",
        step: BuildTarget::Disk,
        of: &[BuildTarget::Kernel, BuildTarget::Initrd, BuildTarget::Root],
    },
];

/// What is only made on the way to those.
const INNER: &[Artefact] = &[
    Artefact {
        name: "os-initrd",
        what: "initrd on disk",
        end: "img",
        step: BuildTarget::Initrd,
        of: &[BuildTarget::Kernel],
    },
    Artefact {
        name: "os-root",
        what: "root file system",
        end: "squashfs",
        step: BuildTarget::Root,
        of: &[BuildTarget::Kernel],
    },
    Artefact {
        name: "os-osmet",
        what: "disk image as coreos-installer looks for it",
        end: "osmet",
        step: BuildTarget::Osmet,
        of: &[BuildTarget::Disk, BuildTarget::Root],
    },
];

fn artefact(step: BuildTarget) -> &'static Artefact {
    // Each step has a row; a test sees to it.
    ARTEFACTS.iter().chain(INNER).find(|artefact| artefact.step == step).unwrap_or(&ARTEFACTS[0])
}

/// What was built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Name of the artefact.
    pub name: String,
    /// Checksum of what it is made of.
    pub content: String,
    /// Checksum of the file.
    pub sha256: String,
    /// Size of the file in bytes.
    pub size: u64,
    /// The file.
    pub path: PathBuf,
    /// It was there already.
    #[serde(skip)]
    pub cached: bool,
    /// How long it took.
    #[serde(skip)]
    pub took: Duration,
}

/// Builds artefacts.
pub struct Builder<'a> {
    /// What was fetched and built before.
    pub cache: &'a Cache,
    /// Packages and versions.
    pub manifest: &'a Manifest,
    /// `vlab-node`, instead of a static one that is built from the sources of this project.
    pub node: Option<PathBuf>,
    /// Folders whose files are put over the root file system, in this order: other agents and installers come in here.
    pub overlays: Vec<PathBuf>,
    /// coreos-installer, instead of building it.
    pub coreos_installer: Option<PathBuf>,
    /// Is told what is being done.
    pub say: &'a (dyn Fn(&str) + Sync),
}

/// coreos-installer that the variable `VLAB_COREOS_INSTALLER` names.
#[must_use]
pub fn named_installer() -> Option<PathBuf> {
    std::env::var_os(vlab_setup::installer::NAMED).map(PathBuf::from)
}

/// The artefact `name` of this user's cache as the sources of this project make it today. What is missing is built, and `say` is told
/// what is being done; when nothing changed it takes a moment.
///
/// # Errors
/// Those of [`Builder::make`].
pub fn current(name: &str, say: &(dyn Fn(&str) + Sync)) -> Result<Made, ImageError> {
    let (cache, manifest) = (Cache::of_this_user(), Manifest::built_in()?);
    let builder = Builder {
        cache: &cache,
        manifest: &manifest,
        node: None,
        overlays: Vec::new(),
        coreos_installer: named_installer(),
        say,
    };
    builder.make(name)
}

impl std::fmt::Debug for Builder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("cache", &self.cache).field("overlays", &self.overlays).finish_non_exhaustive()
    }
}

impl Builder<'_> {
    /// The artefact of this name, from the cache when the same one was built before.
    ///
    /// # Errors
    /// No such artefact; a package that cannot be had; a tool that is missing; a disk that is full.
    pub fn make(&self, name: &str) -> Result<Made, ImageError> {
        let artefact = ARTEFACTS
            .iter()
            .find(|artefact| artefact.name == name)
            .ok_or_else(|| ImageError::Tree(format!("there is no artefact {name}")))?;
        let (installer, node) = self.programs()?;
        self.work(installer, node)?.make(artefact.step)
    }

    /// The artefact of this name as [`Builder::make`] would give it, if nothing has to be built for it: neither it nor a program
    /// that is in it. `None`: something has to be.
    ///
    /// # Errors
    /// A source of this project, or the cache, cannot be read.
    pub fn present(&self, artefact: &Artefact) -> Result<Option<Made>, ImageError> {
        let [installer, node] = self.known_programs()?;
        match (installer, node) {
            (Some(installer), Some(node)) => {
                let work = self.work(installer, node)?;
                work.known(artefact, &work.content(artefact.step))
            }
            _ => Ok(None),
        }
    }

    /// coreos-installer and `vlab-node`, if they are named or in the cache.
    pub(crate) fn known_programs(&self) -> Result<[Option<PathBuf>; 2], ImageError> {
        let cached = |name: &str| self.cache.place(programs::PART, name).map(|path| path.exists().then_some(path));
        let installer = match &self.coreos_installer {
            Some(named) => Some(named.clone()),
            None => cached(&installer::place())?,
        };
        let node = match (&self.node, programs::workspace()) {
            (Some(named), _) => Some(named.clone()),
            (None, Some(workspace)) => {
                cached(&programs::place(&workspace, &programs::NODE)?)?.or_else(|| programs::built(&programs::NODE))
            }
            (None, None) => None,
        };
        Ok([installer, node])
    }

    /// What decides about the bytes of artefacts, before anything of it is built: whoever keeps the cache keeps it under this name.
    ///
    /// # Errors
    /// There are no sources of this project, or they cannot be read.
    pub fn key(&self) -> Result<String, ImageError> {
        let workspace = programs::workspace().ok_or_else(|| ImageError::Program {
            program: "vlab-node".to_owned(),
            problem: "its sources decide about the images, and they are not here: run this in a clone".to_owned(),
        })?;
        // In the place of a program's checksum stands that of what it is made of.
        let inputs = self.inputs(&installer::place(), &programs::place(&workspace, &programs::NODE)?)?;
        let work = Work { builder: self, installer: PathBuf::new(), node: PathBuf::new(), inputs };
        let all: String = ARTEFACTS.iter().map(|artefact| work.content(artefact.step)).collect();
        Ok(sha256(all.as_bytes()))
    }

    fn work(&self, installer: PathBuf, node: PathBuf) -> Result<Work<'_>, ImageError> {
        let inputs = self.inputs(&sha256_file(&installer)?, &sha256_file(&node)?)?;
        Ok(Work { builder: self, installer, node, inputs })
    }

    fn inputs(&self, installer: &str, node: &str) -> Result<Inputs, ImageError> {
        let mut root = self.manifest_content("os")?;
        root += &files::content(files::ROOT, &[files::LINKS, files::MASK, files::MODULES, files::PRUNE]);
        root += installer;
        root += node;
        for overlay in &self.overlays {
            root += &root::overlay_content(overlay)?;
        }
        let initrd = self.manifest_content("os-initrd")? + &files::content(files::INITRD, &[files::MODULES]);
        Ok(Inputs {
            kernel: self.manifest_content("os-kernel")?,
            boot: self.manifest_content("os-boot")?,
            initrd,
            root,
        })
    }

    /// coreos-installer and `vlab-node`. While cargo builds what is missing of them, packages are fetched: the one waits for
    /// processors, the other for the network.
    fn programs(&self) -> Result<(PathBuf, PathBuf), ImageError> {
        let (cache, manifest, say) = (self.cache, self.manifest, self.say);
        let (building, begun) = mpsc::channel();
        thread::scope(|scope| {
            let packages = scope.spawn(move || match begun.recv() {
                Ok(()) => SETS
                    .iter()
                    .try_for_each(|set| {
                        let mut packages = manifest.packages(set)?.iter();
                        packages.try_for_each(|package| packages::contents(cache, manifest, package).map(drop))
                    })
                    .inspect_err(|e| say(&format!("{e}; this ends when the programs that are being built are done"))),
                Err(mpsc::RecvError) => Ok(()),
            });
            let (named, node_begun) = (self.node.clone(), building.clone());
            let node = scope.spawn(move || match named {
                Some(program) => libraries(&program).map(|_| program),
                None => {
                    let begun = || {
                        say("vlab-node: the programs in machines, built from this project's sources when those change");
                        let _ = node_begun.send(());
                    };
                    programs::program(cache, programs::workspace().as_deref(), programs::NODE, &begun)
                }
            });
            let installer = installer::program(cache, self.coreos_installer.as_deref(), &|| {
                (self.say)(&format!(
                    "coreos-installer {}: built from its crate, once; usually {USUAL_INSTALLER} on two idle cores",
                    vlab_setup::installer::VERSION
                ));
                let _ = building.send(());
            });
            drop(building);
            let node = node.join().unwrap_or_else(|panic| resume_unwind(panic));
            packages.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            Ok((installer?, node?))
        })
    }

    fn manifest_content(&self, set: &str) -> Result<String, ImageError> {
        let mut all = String::new();
        for package in self.manifest.packages(set)? {
            all += &format!("{} {} {}\n", package.name, package.version, package.sha256);
        }
        Ok(all)
    }
}

/// What artefacts are made of beside other artefacts.
#[derive(Debug, Clone, Default)]
struct Inputs {
    kernel: String,
    boot: String,
    initrd: String,
    root: String,
}

/// One request.
struct Work<'a> {
    builder: &'a Builder<'a>,
    installer: PathBuf,
    node: PathBuf,
    inputs: Inputs,
}

impl Work<'_> {
    /// All that decides about the bytes of an artefact.
    fn content(&self, step: BuildTarget) -> String {
        let own = match step {
            BuildTarget::Kernel => &self.inputs.kernel,
            BuildTarget::Initrd => &self.inputs.initrd,
            BuildTarget::Root => &self.inputs.root,
            BuildTarget::Disk | BuildTarget::Iso | BuildTarget::Minimal => &self.inputs.boot,
            // Bash is in it.
            BuildTarget::LiveInitrd => &self.inputs.initrd,
            BuildTarget::Osmet | BuildTarget::Rootfs => "",
        };
        let mut all = format!("{FORM} {step:?} {} {own}\n", sha256(recipe(step).as_bytes()));
        for part in artefact(step).of {
            all += &self.content(*part);
        }
        sha256(all.as_bytes())
    }

    fn make(&self, step: BuildTarget) -> Result<Made, ImageError> {
        let begun = Instant::now();
        let artefact = artefact(step);
        let cache = self.builder.cache;
        let content = self.content(step);
        let stem = format!("{}-{}", artefact.name, &content[..16]);
        let about = cache.place(PART, &format!("{stem}.json"))?;
        if let Some(known) = self.known(artefact, &content)? {
            return Ok(Made { took: begun.elapsed(), ..known });
        }
        // Those first: what they say comes before what this one says.
        for part in artefact.of {
            self.make(*part)?;
        }
        (self.builder.say)(&format!("{}: {}", artefact.name, artefact.what));
        let file = format!("{stem}.{}", artefact.end);
        let _ = fs::remove_file(cache.place(PART, &file)?);
        let path = cache.filled(PART, &file, |into| {
            self.write(step, into)?;
            // Files that were made as temporary ones are nobody else's; QEMU may run as another user.
            fs::set_permissions(into, fs::Permissions::from_mode(0o644)).map_err(ImageError::io(into))
        })?;
        let size = fs::metadata(&path).map_err(ImageError::io(&path))?.len();
        let made = Made {
            name: artefact.name.to_owned(),
            content,
            sha256: sha256_file(&path)?,
            size,
            path,
            cached: false,
            took: begun.elapsed(),
        };
        let text = serde_json::to_vec_pretty(&made).map_err(|error| ImageError::Tree(error.to_string()))?;
        fs::write(&about, text).map_err(ImageError::io(&about))?;
        self.forget_old(artefact)?;
        Ok(made)
    }

    /// An artefact of this content in the cache. Where the cache lies does not matter: it may have been kept and brought elsewhere.
    fn known(&self, artefact: &Artefact, content: &str) -> Result<Option<Made>, ImageError> {
        let cache = self.builder.cache;
        let stem = format!("{}-{}", artefact.name, &content[..16]);
        let about = cache.place(PART, &format!("{stem}.json"))?;
        let path = cache.place(PART, &format!("{stem}.{}", artefact.end))?;
        let known: Option<Made> = fs::read(&about).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let whole = |made: &Made| made.content == content && fs::metadata(&path).is_ok_and(|m| m.len() == made.size);
        Ok(known.filter(whole).map(|made| Made { cached: true, path: path.clone(), ..made }))
    }

    /// Removes all but the newest [`KEPT`] files of an artefact. What a machine has open stays until it is closed.
    fn forget_old(&self, artefact: &Artefact) -> Result<(), ImageError> {
        let folder = self.builder.cache.place(PART, "")?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).map_err(ImageError::io(&folder))? {
            let path = entry.map_err(ImageError::io(&folder))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let of_it = name.strip_prefix(artefact.name).is_some_and(|rest| rest.starts_with('-'));
            if of_it && name.ends_with(&format!(".{}", artefact.end)) {
                let made = fs::metadata(&path).and_then(|meta| meta.modified()).map_err(ImageError::io(&path))?;
                found.push((made, path));
            }
        }
        found.sort();
        found.reverse();
        for (_, path) in found.into_iter().skip(KEPT) {
            let _ = fs::remove_file(path.with_extension("json"));
            fs::remove_file(&path).map_err(ImageError::io(&path))?;
        }
        Ok(())
    }

    fn path(&self, step: BuildTarget) -> Result<PathBuf, ImageError> {
        self.make(step).map(|made| made.path)
    }

    fn write(&self, step: BuildTarget, into: &Path) -> Result<(), ImageError> {
        let (cache, manifest) = (self.builder.cache, self.builder.manifest);
        let kernel = || kernel::Kernel::open(cache, manifest);
        let put = |bytes: &[u8]| fs::write(into, bytes).map_err(ImageError::io(into));
        match step {
            BuildTarget::Kernel => put(&kernel()?.image.bytes()?),
            BuildTarget::Initrd => put(&initrd::packed(&initrd::tree(cache, manifest, &kernel()?)?)?),
            BuildTarget::Root => {
                let programs = root::Programs { installer: &self.installer, node: &self.node };
                let tree = root::tree(cache, manifest, &kernel()?, programs, &self.builder.overlays)?;
                root::squashfs(&tree, into)
            }
            BuildTarget::Disk => self.with_disk(|parts| parts.write(into)),
            BuildTarget::Osmet => {
                let (image, squashfs) = (self.path(BuildTarget::Disk)?, self.path(BuildTarget::Root)?);
                let partition = self.with_disk(|parts| parts.root_partition(&image))?;
                // In rootfs.img the file system begins behind its name.
                let begin = crate::cpio::first_content("root.squashfs");
                let parts: Vec<osmet::Part> = partition
                    .parts
                    .into_iter()
                    .map(|part| osmet::Part { in_file: part.in_file + begin, ..part })
                    .collect();
                osmet::Image {
                    path: &image,
                    start: partition.start,
                    end: partition.end,
                    parts: &parts,
                    object: object(&squashfs)?,
                    description: "vlab lab OS",
                }
                .write(into)
            }
            BuildTarget::Rootfs => live::rootfs(&self.path(BuildTarget::Root)?, &self.path(BuildTarget::Osmet)?, into),
            BuildTarget::LiveInitrd => {
                let mut tree = Rootfs::new();
                initrd::bash(cache, manifest, &mut tree)?;
                let (rootfs, squashfs) = (self.path(BuildTarget::Rootfs)?, self.path(BuildTarget::Root)?);
                live::initrd_part(&rootfs, &squashfs, &self.path(BuildTarget::Osmet)?, &mut tree)?;
                let on_disk = self.path(BuildTarget::Initrd)?;
                let mut bytes = fs::read(&on_disk).map_err(ImageError::io(&on_disk))?;
                bytes.extend(initrd::packed(&tree)?);
                put(&bytes)
            }
            BuildTarget::Iso => self.iso(live::Iso::Full(&self.path(BuildTarget::Rootfs)?), into),
            BuildTarget::Minimal => self.iso(live::Iso::Minimal, into),
        }
    }

    fn iso(&self, kind: live::Iso<'_>, into: &Path) -> Result<(), ImageError> {
        let boot = self.boot()?;
        let file = |path: &str| file(&boot, path);
        let bios = live::Bios {
            isolinux: file("usr/lib/ISOLINUX/isolinux.bin")?,
            ldlinux: file("usr/lib/syslinux/modules/bios/ldlinux.c32")?,
            boot_sector: file("usr/lib/ISOLINUX/isohdpfx.bin")?,
        };
        let kernel = self.path(BuildTarget::Kernel)?;
        let kernel = fs::read(&kernel).map_err(ImageError::io(&kernel))?;
        live::iso(kind, &kernel, &self.path(BuildTarget::LiveInitrd)?, &bios, &Efi::of(&boot)?, into)
    }

    fn with_disk<T>(&self, what: impl FnOnce(&disk::Parts<'_>) -> Result<T, ImageError>) -> Result<T, ImageError> {
        let boot = self.boot()?;
        let grub_bios = grub_folder(&boot)?;
        what(&disk::Parts {
            kernel: &self.path(BuildTarget::Kernel)?,
            initrd: &self.path(BuildTarget::Initrd)?,
            squashfs: &self.path(BuildTarget::Root)?,
            efi: &Efi::of(&boot)?,
            grub_bios: grub_bios.path(),
        })
    }

    /// The packages of the boot loaders.
    fn boot(&self) -> Result<Rootfs, ImageError> {
        let (cache, manifest) = (self.builder.cache, self.builder.manifest);
        let mut tree = Rootfs::merged_usr();
        for package in manifest.packages("os-boot")? {
            tree.add_tar(&packages::contents(cache, manifest, package)?)?;
        }
        Ok(tree)
    }
}

/// The name under which the live system's file of this squashfs is known to coreos-installer.
fn object(squashfs: &Path) -> Result<[u8; 32], ImageError> {
    use sha2::{Digest as _, Sha256};
    let mut digest = Sha256::new();
    let mut file = fs::File::open(squashfs).map_err(ImageError::io(squashfs))?;
    std::io::copy(&mut file, &mut digest).map_err(ImageError::io(squashfs))?;
    Ok(digest.finalize().into())
}

/// What UEFI machines boot, as Debian has it: shim, which Microsoft has signed, and GRUB, whose signature shim knows. The kernel has one of
/// the same key. So there is one way for all of them, with secure boot and without.
#[derive(Debug)]
struct Efi {
    shim: Vec<u8>,
    grub: Vec<u8>,
}

/// The file that this GRUB runs first, on the file system that it was started from.
const GRUB_FIRST: &str = "EFI/debian/grub.cfg";

impl Efi {
    fn of(boot: &Rootfs) -> Result<Self, ImageError> {
        Ok(Self {
            shim: file(boot, "usr/lib/shim/shimx64.efi.signed")?,
            grub: file(boot, "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed")?,
        })
    }
}

/// A file of the boot loaders' packages.
fn file(boot: &Rootfs, path: &str) -> Result<Vec<u8>, ImageError> {
    match boot.find(path).map(|node| &node.kind) {
        Some(FileKind::File(content)) => content.bytes(),
        _ => Err(ImageError::Tree(format!("the packages of the boot loaders have no {path}"))),
    }
}

/// The modules of GRUB for BIOS as a folder, which `grub-mkimage` wants.
fn grub_folder(boot: &Rootfs) -> Result<tempfile::TempDir, ImageError> {
    let folder = tempfile::tempdir().map_err(ImageError::io("temporary folder"))?;
    for (path, node) in boot.iter() {
        if let (Some(name), FileKind::File(content)) = (path.strip_prefix("usr/lib/grub/i386-pc/"), &node.kind)
            && !name.contains('/')
        {
            let path = folder.path().join(name);
            fs::write(&path, content.bytes()?).map_err(ImageError::io(&path))?;
        }
    }
    Ok(folder)
}

/// GRUB for BIOS as one program: its core, these modules, and a script that it runs first.
fn grub_image(modules: &Path, script: &str, prefix: &str, names: &[&str]) -> Result<Vec<u8>, ImageError> {
    let folder = tempfile::tempdir().map_err(ImageError::io("temporary folder"))?;
    let (config, made) = (folder.path().join("config"), folder.path().join("image"));
    fs::write(&config, script).map_err(ImageError::io(&config))?;
    let mut command = tools::command("grub-mkimage")?;
    command.args(["-O", "i386-pc", "-d"]).arg(modules).args(["-p", prefix, "-c"]).arg(&config).arg("-o").arg(&made);
    command.args(names);
    tools::run(command)?;
    fs::read(&made).map_err(ImageError::io(&made))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[BuildTarget] = &[
        BuildTarget::Kernel,
        BuildTarget::Initrd,
        BuildTarget::Root,
        BuildTarget::Disk,
        BuildTarget::Osmet,
        BuildTarget::Rootfs,
        BuildTarget::LiveInitrd,
        BuildTarget::Iso,
        BuildTarget::Minimal,
    ];

    #[test]
    fn every_step_has_one_row_and_none_needs_itself() {
        fn needs(step: BuildTarget, of: BuildTarget) -> bool {
            artefact(step).of.iter().any(|part| *part == of || needs(*part, of))
        }
        for step in ALL {
            assert_eq!(ARTEFACTS.iter().chain(INNER).filter(|artefact| artefact.step == *step).count(), 1, "{step:?}");
            assert!(!needs(*step, *step), "{step:?}");
        }
        assert!(needs(BuildTarget::Iso, BuildTarget::Root) && !needs(BuildTarget::Disk, BuildTarget::Rootfs));
    }

    #[test]
    fn what_an_artefact_is_made_of_decides_about_its_content() {
        let (cache, manifest) = (Cache::at("/nowhere"), Manifest::built_in().unwrap());
        let say = |_: &str| {};
        let builder = Builder {
            cache: &cache,
            manifest: &manifest,
            node: None,
            overlays: Vec::new(),
            coreos_installer: None,
            say: &say,
        };
        let of = |change: fn(&mut Inputs)| -> Vec<String> {
            let mut inputs = Inputs::default();
            change(&mut inputs);
            let work = Work { builder: &builder, installer: PathBuf::new(), node: PathBuf::new(), inputs };
            ALL.iter().map(|step| work.content(*step)).collect()
        };
        let changed = |change: fn(&mut Inputs)| -> Vec<BuildTarget> {
            let (before, after) = (of(|_| {}), of(change));
            (0..ALL.len()).filter(|index| before[*index] != after[*index]).map(|index| ALL[index]).collect()
        };
        use BuildTarget::{Disk, Initrd, Iso, LiveInitrd, Minimal, Osmet, Root, Rootfs};
        assert_eq!(changed(|_| {}), []);
        assert_eq!(changed(|inputs| inputs.kernel.push('x')), ALL);
        assert_eq!(changed(|i| i.root.push('x')), [Root, Disk, Osmet, Rootfs, LiveInitrd, Iso, Minimal]);
        assert_eq!(changed(|i| i.initrd.push('x')), [Initrd, Disk, Osmet, Rootfs, LiveInitrd, Iso, Minimal]);
        assert_eq!(changed(|i| i.boot.push('x')), [Disk, Osmet, Rootfs, LiveInitrd, Iso, Minimal]);
    }
}
