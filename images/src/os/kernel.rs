//! The kernel and its modules, from the Debian package. The package has no index of its modules (a script of the package
//! would make it): `depmod` makes it, on a copy, for exactly the modules that are taken.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use super::files;
use crate::ImageError;
use crate::cache::Cache;
use crate::manifest::Manifest;
use crate::rootfs::{Content, FileKind, Rootfs};
use crate::{packages, tools};

/// A kernel with its modules.
#[derive(Debug)]
pub(super) struct Kernel {
    /// Its name for itself: the folder of its modules.
    pub(super) version: String,
    /// The program.
    pub(super) image: Content,
    /// Files of modules by name (`-` as `_`).
    modules: BTreeMap<String, (String, Content)>,
    /// Lists that come with the kernel: `modules.builtin` and the like.
    lists: BTreeMap<String, Content>,
}

/// Where modules are to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the initrd.
    Initrd,
    /// In the root file system, which has those of the initrd, too.
    Root,
}

/// The modules that [`files::MODULES`] names for a place.
fn wanted(place: Place) -> impl Iterator<Item = &'static str> {
    files::lines(files::MODULES).filter_map(move |line| match line.split_once(' ') {
        Some(("initrd", name)) => Some(name),
        Some((_, name)) if place == Place::Root => Some(name),
        _ => None,
    })
}

/// The text of a field of a module's description; descriptions are texts that end with a zero byte.
fn field<'a>(module: &'a [u8], name: &str) -> Option<&'a str> {
    let start = format!("\0{name}=");
    let at = module.windows(start.len()).position(|window| window == start.as_bytes())? + start.len();
    let end = module[at..].iter().position(|byte| *byte == 0)? + at;
    std::str::from_utf8(&module[at..end]).ok()
}

impl Kernel {
    /// Opens the package.
    pub(super) fn open(cache: &Cache, manifest: &Manifest) -> Result<Self, ImageError> {
        let mut tree = Rootfs::new();
        for package in manifest.packages("os-kernel")? {
            tree.add_tar(&packages::contents(cache, manifest, package)?)?;
        }
        let (mut image, mut version) = (None, String::new());
        let (mut modules, mut lists) = (BTreeMap::new(), BTreeMap::new());
        for (path, node) in tree.iter() {
            let FileKind::File(content) = &node.kind else { continue };
            let name = path.rsplit('/').next().unwrap_or(path);
            if let Some(of) = path.strip_prefix("boot/vmlinuz-") {
                version = of.to_owned();
                image = Some(content.clone());
            } else if let Some((module, _)) = name.split_once(".ko") {
                modules.insert(module.replace('-', "_"), (path.to_owned(), content.clone()));
            } else if name.starts_with("modules.") {
                lists.insert(path.to_owned(), content.clone());
            }
        }
        let image = image.ok_or_else(|| ImageError::Tree("the kernel's package has no kernel".to_owned()))?;
        Ok(Self { version, image, modules, lists })
    }

    /// Is this module part of the kernel itself?
    fn built_in(&self, module: &str) -> Result<bool, ImageError> {
        for (path, content) in &self.lists {
            if path.ends_with("modules.builtin") {
                let text = String::from_utf8_lossy(&content.bytes()?).replace('-', "_");
                return Ok(text.lines().any(|line| line.rsplit('/').next() == Some(&format!("{module}.ko"))));
            }
        }
        Ok(false)
    }

    /// The modules of a place with all that they need, and their index, as files below `/`.
    pub(super) fn modules(&self, place: Place) -> Result<BTreeMap<String, Vec<u8>>, ImageError> {
        let mut taken = BTreeMap::new();
        let mut open: Vec<String> = wanted(place).map(|name| name.replace('-', "_")).collect();
        while let Some(name) = open.pop() {
            if taken.contains_key(&name) {
                continue;
            }
            let Some((path, content)) = self.modules.get(&name) else {
                if self.built_in(&name)? {
                    continue;
                }
                return Err(ImageError::Tree(format!("this kernel has no module {name}; see images/os/modules.txt")));
            };
            let module = plain(path, content)?;
            open.extend(field(&module, "depends").unwrap_or_default().split(',').map(|name| name.replace('-', "_")));
            open.retain(|name| !name.is_empty());
            taken.insert(name, (path.trim_end_matches(".xz").to_owned(), module));
        }
        let mut files: BTreeMap<String, Vec<u8>> = taken.into_values().collect();
        for (path, content) in &self.lists {
            files.insert(path.clone(), content.bytes()?);
        }
        let index = self.index(&files)?;
        files.extend(index);
        Ok(files)
    }

    fn index(&self, files: &BTreeMap<String, Vec<u8>>) -> Result<BTreeMap<String, Vec<u8>>, ImageError> {
        let folder = tempfile::tempdir().map_err(ImageError::io("temporary folder"))?;
        for (path, bytes) in files {
            let path = folder.path().join(path);
            let parent = path.parent().unwrap_or(folder.path());
            fs::create_dir_all(parent).map_err(ImageError::io(parent))?;
            fs::write(&path, bytes).map_err(ImageError::io(&path))?;
        }
        let mut command = tools::command("depmod")?;
        command.arg("-b").arg(folder.path()).arg(&self.version);
        tools::run(command)?;
        let place = format!("lib/modules/{}", self.version);
        let made = folder.path().join(&place);
        let mut index = BTreeMap::new();
        for entry in fs::read_dir(&made).map_err(ImageError::io(&made))? {
            let path = entry.map_err(ImageError::io(&made))?.path();
            if path.is_file() {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                index.insert(format!("{place}/{name}"), fs::read(&path).map_err(ImageError::io(&path))?);
            }
        }
        Ok(index)
    }
}

/// A module's bytes, the signature at their end included: where secure boot is on, the kernel takes no other modules. The squashfs and
/// the initrd are compressed as a whole, and better.
fn plain(path: &str, content: &Content) -> Result<Vec<u8>, ImageError> {
    let bytes = content.bytes()?;
    if !path.ends_with(".xz") {
        return Ok(bytes);
    }
    let mut command = tools::command("xz")?;
    command.arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped());
    let failed = |error| ImageError::Io { path: path.into(), error };
    let mut child = command.spawn().map_err(failed)?;
    let stdin = child.stdin.take();
    let writer = std::thread::spawn(move || stdin.map_or(Ok(()), |mut stdin| stdin.write_all(&bytes)));
    let out = child.wait_with_output().map_err(failed)?;
    let written = writer.join().map_err(|_| ImageError::Tree(format!("{path}: cannot be unpacked")))?;
    written.map_err(failed)?;
    if !out.status.success() {
        return Err(ImageError::Tree(format!("{path}: xz cannot unpack it ({})", out.status)));
    }
    Ok(out.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read() {
        let module = b"\x7fELF...\0license=GPL\0depends=libata,scsi-mod\0name=ahci\0";
        assert_eq!(field(module, "depends"), Some("libata,scsi-mod"));
        assert_eq!(field(module, "license"), Some("GPL"));
        assert_eq!(field(module, "parm"), None);
    }

    #[test]
    fn the_root_has_the_modules_of_the_initrd() {
        let root: Vec<&str> = wanted(Place::Root).collect();
        assert!(wanted(Place::Initrd).all(|name| root.contains(&name)));
        assert!(wanted(Place::Initrd).any(|name| name == "squashfs"));
        assert!(!wanted(Place::Initrd).any(|name| name == "bonding"));
    }
}
