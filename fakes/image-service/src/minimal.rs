//! The minimal image: the full one without its root file system, which the live system then fetches from the image service.
//!
//! Facts: `reference/coreos-iso.md` §7. Edits of the boot loaders' files and of `kargs.json` are those of the real service,
//! byte for byte. The image around them is composed over the base image ([`crate::write`]) instead of unpacked and built
//! again, and keeps the plain names, so that coreos-installer reads it, too.
//!
//! Not built: `images/nmstate.img`, which the real service adds from 4.18 on so that RHCOS can apply static networks.

use std::ops::Range;
use std::sync::Arc;

use regex::Regex;
use serde::Serialize;

use crate::base::{BaseImage, CUSTOM, KARGS_INFO, KargsInfo, SMALL};
use crate::iso::{DESCRIPTORS, IsoNode, NodeKind, SECTOR, eight_three};
use crate::layout::{Laid, Layout, ReadAt};
use crate::write::{BootFile, EntryContent, Tree, TreeEntry, WriteError, compose};

/// What is taken out.
pub(crate) const ROOTFS: &str = "images/pxeboot/rootfs.img";
/// Bytes for the RAM disk with static networks and the proxy.
const CUSTOM_LEN: u64 = 1 << 20;
/// The first of these that is there is edited.
const GRUB: &[&str] = &["EFI/redhat/grub.cfg", "EFI/fedora/grub.cfg", "boot/grub/grub.cfg", "EFI/centos/grub.cfg"];
const ISOLINUX: &str = "isolinux/isolinux.cfg";
const EFI: u8 = 0xEF;

/// Why there is no minimal image.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MinimalError {
    /// A file is missing.
    #[error("the image has no {0}")]
    Missing(String),
    /// An image of this architecture has none.
    #[error("there are no minimal images for {0}")]
    Architecture(String),
    /// The URL cannot stand in the files.
    #[error("the URL of the root file system, {url}, contains {character:?}, which boot loaders do not take literally")]
    Url {
        /// The URL.
        url: String,
        /// The character.
        character: char,
    },
    /// A file is not what it should be.
    #[error("{path} of the image: {why}")]
    File {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// An edit would be half in an area.
    #[error("{path} of the image: an edit at {edit:?} would cross the beginning of the kernel arguments at {start}")]
    Crossing {
        /// The file.
        path: String,
        /// Bytes to replace.
        edit: Range<usize>,
        /// First byte of the area.
        start: i64,
    },
    /// The image cannot be read.
    #[error(transparent)]
    Iso(#[from] crate::iso::IsoError),
    /// The image cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// A text and, when its area is known, where that begins.
struct Text {
    path: String,
    text: String,
    area: Option<i64>,
}

impl Text {
    /// Replaces the group `replace` of the first match. No match: nothing happens.
    fn edit(&mut self, pattern: &str, with: &str) -> Result<(), MinimalError> {
        // The patterns are this module's own.
        let pattern = Regex::new(pattern).map_err(|e| self.wrong(e.to_string()))?;
        let Some(found) = pattern.captures(&self.text).and_then(|c| Some(c.name("replace")?.range())) else {
            return Ok(());
        };
        if self.text[found.clone()] == *with {
            return Ok(());
        }
        if let Some(start) = self.area {
            let (from, to) = (found.start as i64, found.end as i64);
            if from < start && to > start {
                return Err(MinimalError::Crossing { path: self.path.clone(), edit: found, start });
            }
            if to <= start {
                self.area = Some(start + with.len() as i64 - (to - from));
            }
        }
        self.text.replace_range(found, with);
        Ok(())
    }

    fn wrong(&self, why: impl Into<String>) -> MinimalError {
        MinimalError::File { path: self.path.clone(), why: why.into() }
    }

    /// Takes the label of the full image out and puts the URL in, where `at` matches.
    fn edit_arguments(&mut self, at: &str, url: &str) -> Result<(), MinimalError> {
        self.edit(r"\b(?P<replace>coreos\.liveiso=\S+ ?)", "")?;
        self.edit(at, &format!(" coreos.live.rootfs_url=\"{url}\""))
    }
}

/// `kargs.json` as the real service writes it.
#[derive(Serialize)]
struct KargsOut<'a> {
    default: &'a str,
    files: Vec<KargsFileOut<'a>>,
    size: i64,
}

#[derive(Serialize)]
struct KargsFileOut<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pad: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
}

fn kargs_json(info: &KargsInfo) -> String {
    let files = info.files.iter().map(|f| KargsFileOut {
        end: f.end.as_deref(),
        offset: f.offset,
        pad: f.pad.as_deref(),
        path: f.path.as_deref(),
    });
    let out = KargsOut { default: &info.default, files: files.collect(), size: info.size };
    // Plain data: serialising it cannot fail. Go's encoder escapes three characters more.
    let text = serde_json::to_string_pretty(&out).unwrap_or_default();
    text.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

/// The URL of the root file system.
pub(crate) fn rootfs_url(base_url: &str, arch: &str, version: &str) -> String {
    let (arch, version) = (crate::routes::encode(arch), crate::routes::encode(version));
    format!("{}/boot-artifacts/rootfs?arch={arch}&version={version}", base_url.trim_end_matches('/'))
}

/// The minimal image of a full one.
///
/// # Errors
/// [`MinimalError`].
pub(crate) fn minimal<B: ReadAt>(
    image: &BaseImage,
    base: &Arc<B>,
    arch: &str,
    url: &str,
) -> Result<Laid<B>, MinimalError> {
    if arch == "s390x" {
        return Err(MinimalError::Architecture(arch.to_owned()));
    }
    if let Some(character) = url.chars().find(|c| matches!(c, '$' | '\\')) {
        return Err(MinimalError::Url { url: url.to_owned(), character });
    }
    let iso = &image.iso;
    if iso.place(ROOTFS).is_none() {
        return Err(MinimalError::Missing(ROOTFS.to_owned()));
    }
    let read = |path: &str| -> Result<Option<String>, MinimalError> {
        let Some(bytes) = iso.contents(&**base, path, SMALL)? else { return Ok(None) };
        let text = String::from_utf8(bytes);
        text.map(Some).map_err(|e| MinimalError::File { path: path.to_owned(), why: e.to_string() })
    };
    let mut kargs: Option<KargsInfo> = match read(KARGS_INFO)? {
        None => None,
        Some(text) => Some(
            serde_json::from_str(&text)
                .map_err(|e| MinimalError::File { path: KARGS_INFO.into(), why: e.to_string() })?,
        ),
    };
    let mut edited = Vec::new();
    let mut edit = |path: &str, kargs: &mut Option<KargsInfo>, arguments: &str, disks: &str, with: &str| {
        let Some(text) = read(path)? else { return Err(MinimalError::Missing(path.to_owned())) };
        let mut file = kargs.iter_mut().flat_map(|k| k.files.iter_mut()).find(|f| f.path.as_deref() == Some(path));
        let mut text = Text { path: path.to_owned(), text, area: file.as_ref().and_then(|f| f.offset) };
        text.edit_arguments(arguments, url)?;
        text.edit(disks, with)?;
        if let (Some(file), Some(area)) = (file.as_mut(), text.area) {
            file.offset = Some(area);
        }
        edited.push((text.path, text.text.into_bytes()));
        Ok(())
    };
    let grub = GRUB.iter().find(|path| iso.place(path).is_some());
    let grub = grub.ok_or_else(|| MinimalError::Missing(format!("grub.cfg, looked for as {}", GRUB.join(", "))))?;
    edit(
        grub,
        &mut kargs,
        r"(?m)^(\s+linux .+)(?P<replace>$)",
        r"(?m)^(\s+initrd .+)(?P<replace>$)",
        &format!(" /{CUSTOM}"),
    )?;
    if arch != "ppc64le" {
        edit(
            ISOLINUX,
            &mut kargs,
            r"(?m)^(\s+append .+)(?P<replace>$)",
            r"(?m)^(\s+append.*initrd=\S+)(?P<replace>)",
            &format!(",/{CUSTOM}"),
        )?;
    }
    if let Some(kargs) = &mut kargs {
        let before = kargs.default.len() as i64;
        let mut text = Text { path: KARGS_INFO.into(), text: std::mem::take(&mut kargs.default), area: None };
        text.edit_arguments("(?P<replace>$)", url)?;
        kargs.default = text.text;
        kargs.size += kargs.default.len() as i64 - before;
        edited.push((KARGS_INFO.to_owned(), kargs_json(kargs).into_bytes()));
    }

    let mut root = entries(&iso.root, "", &mut edited)?;
    let mut space = Layout::default();
    space.push_zeros(CUSTOM_LEN);
    insert(&mut root, CUSTOM, iso.date, space)?;
    let (boot, catalog) = boot_files(image)?;
    // It was read before.
    let descriptor = base.bytes_at(DESCRIPTORS * SECTOR, SECTOR as usize).map_err(WriteError::from)?;
    let layout = compose(base, Tree { descriptor, date: iso.date, root, boot, catalog })?;
    Ok(Laid { layout, base: base.clone() })
}

/// The tree without the root file system, edited files exchanged.
fn entries(
    nodes: &[IsoNode],
    above: &str,
    edited: &mut Vec<(String, Vec<u8>)>,
) -> Result<Vec<TreeEntry>, MinimalError> {
    let mut out = Vec::new();
    for node in nodes {
        let path = format!("{above}{}", node.name);
        if path == ROOTFS {
            continue;
        }
        let what = match &node.kind {
            NodeKind::Dir(below) => EntryContent::Dir(entries(below, &format!("{path}/"), edited)?),
            NodeKind::File { offset, len } => {
                let mut content = Layout::default();
                match edited.iter().position(|(p, _)| *p == path) {
                    Some(i) => content.push_bytes(edited.swap_remove(i).1),
                    None => content.push_base(*offset, *len),
                }
                EntryContent::File(content)
            }
            NodeKind::Other => {
                let why = "it is a link, a device or a moved folder, which minimal images are not made with".to_owned();
                return Err(MinimalError::File { path, why });
            }
        };
        out.push(TreeEntry { id: node.id.clone(), name: node.name.clone(), date: node.date, what });
    }
    Ok(out)
}

/// Adds a file to a folder that is there.
fn insert(root: &mut Vec<TreeEntry>, path: &str, date: [u8; 7], content: Layout) -> Result<(), MinimalError> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut entries = root;
    for part in folder.split('/').filter(|p| !p.is_empty()) {
        let below = entries.iter_mut().find(|e| e.name == part).map(|e| &mut e.what);
        let Some(EntryContent::Dir(below)) = below else { return Err(MinimalError::Missing(folder.to_owned())) };
        entries = below;
    }
    let id = format!("{};1", eight_three(name)).into_bytes();
    if entries.iter().any(|e| e.id == id || e.name == name) {
        return Err(MinimalError::File { path: path.to_owned(), why: "it is there already".into() });
    }
    entries.push(TreeEntry { id, name: name.to_owned(), date, what: EntryContent::File(content) });
    Ok(())
}

/// The boot images of the base image by their paths, and the path of its catalogue.
fn boot_files(image: &BaseImage) -> Result<(Vec<BootFile>, Option<String>), MinimalError> {
    let Some(boot) = &image.iso.boot else { return Ok((Vec::new(), None)) };
    let mut files = Vec::new();
    paths(&image.iso.root, "", &mut files);
    let at = |lba: u32| files.iter().find(|(_, offset, len)| *offset == u64::from(lba) * SECTOR && *len > 0);
    let mut out = Vec::new();
    for entry in &boot.entries {
        let Some((path, _, len)) = at(entry.lba) else {
            let why = format!("the boot image at sector {} is not a file, so it cannot be moved", entry.lba);
            return Err(MinimalError::File { path: "boot catalogue".into(), why });
        };
        // EFI firmware loads the whole file system; what the base image says may be cut to 16 bits or left out.
        let sectors = match entry.platform {
            EFI => u16::try_from(len.div_ceil(SECTOR) * 4).unwrap_or(u16::MAX),
            _ => entry.sectors,
        };
        out.push(BootFile { path: path.clone(), platform: entry.platform, sectors, old_lba: entry.lba });
    }
    Ok((out, at(boot.catalog).map(|(path, ..)| path.clone())))
}

fn paths(nodes: &[IsoNode], above: &str, out: &mut Vec<(String, u64, u64)>) {
    for node in nodes {
        let path = format!("{above}/{}", node.name);
        match &node.kind {
            NodeKind::Dir(below) => paths(below, &path, out),
            NodeKind::File { offset, len } => out.push((path, *offset, *len)),
            NodeKind::Other => {}
        }
    }
}
