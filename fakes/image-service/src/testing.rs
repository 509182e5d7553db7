//! A small live image with everything that `reference/coreos-iso.md` §11 asks for, made by this module's own writer; what
//! other programs make of it is tested where they are installed.

use std::sync::Arc;

use crate::layout::{Layout, ReadAt};
use crate::write::{BootFile, EntryContent, Tree, TreeEntry, compose};

/// What to put into the image. The default is complete.
#[derive(Clone, Debug)]
pub struct Live {
    /// Label of the volume.
    pub label: &'static str,
    /// Kernel arguments.
    pub kargs: &'static str,
    /// Bytes reserved for them.
    pub kargs_size: usize,
    /// Paths to leave out.
    pub without: &'static [&'static str],
    /// Files to exchange or add.
    pub with: Vec<(&'static str, Vec<u8>)>,
    /// Bytes of the root file system.
    pub rootfs: usize,
}

/// Kernel arguments of the image.
pub const KARGS: &str = "rw coreos.liveiso=rhcos-lab ignition.firstboot ignition.platform.id=metal";

impl Default for Live {
    fn default() -> Self {
        Self { label: "rhcos-lab", kargs: KARGS, kargs_size: 1139, without: &[], with: Vec::new(), rootfs: 300_001 }
    }
}

/// Bytes that differ from place to place.
pub fn noise(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_769) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect()
}

impl Live {
    fn area(&self) -> String {
        format!("{}\n{}# COREOS_KARG_EMBED_AREA\n", self.kargs, "#".repeat(self.kargs_size - self.kargs.len() - 1))
    }

    /// The files with their paths.
    pub fn files(&self) -> Vec<(&'static str, Vec<u8>)> {
        let grub_before = "set timeout=1\n\nmenuentry 'Lab' {\n\tlinux /images/pxeboot/vmlinuz ";
        let grub_after = "\tinitrd /images/pxeboot/initrd.img /images/ignition.img\n}\n";
        let linux_before = "default linux\nlabel linux\n  kernel /images/pxeboot/vmlinuz\n  append initrd=/images/pxeboot/initrd.img,/images/ignition.img ";
        let kargs = serde_json::json!({
            "default": self.kargs,
            "files": [
                {"end": "\n", "offset": grub_before.len(), "pad": "#", "path": "EFI/redhat/grub.cfg"},
                {"end": "\n", "offset": linux_before.len(), "pad": "#", "path": "isolinux/isolinux.cfg"},
            ],
            "size": self.kargs_size,
        });
        let mut loader = noise(1, 24_577);
        // A boot information table; the writer fills in where it is.
        loader[8..20].copy_from_slice(&[16u32.to_le_bytes(), [0; 4], 24_577u32.to_le_bytes()].concat());
        let mut files: Vec<(&'static str, Vec<u8>)> = vec![
            ("EFI/redhat/grub.cfg", format!("{grub_before}{}{grub_after}", self.area()).into_bytes()),
            ("coreos/features.json", br#"{"installer-config": true, "live-initrd-network": true}"#.to_vec()),
            ("coreos/igninfo.json", br#"{"file": "images/ignition.img"}"#.to_vec()),
            ("coreos/kargs.json", serde_json::to_vec_pretty(&kargs).unwrap()),
            ("images/efiboot.img", noise(2, 70_000)),
            ("images/ignition.img", vec![0; 262_144]),
            ("images/pxeboot/initrd.img", noise(3, 40_000)),
            ("images/pxeboot/rootfs.img", noise(4, self.rootfs)),
            ("images/pxeboot/vmlinuz", noise(5, 50_000)),
            ("isolinux/boot.cat", vec![0; 2048]),
            ("isolinux/isolinux.bin", loader),
            ("isolinux/isolinux.cfg", format!("{linux_before}{}", self.area()).into_bytes()),
        ];
        files.retain(|(path, _)| !self.without.contains(path));
        for (path, bytes) in &self.with {
            files.retain(|(p, _)| p != path);
            files.push((path, bytes.clone()));
        }
        files
    }

    /// The image.
    pub fn image(&self) -> Vec<u8> {
        let date = [126, 11, 20, 12, 50, 8, 0];
        let mut root = Vec::new();
        for (path, bytes) in self.files() {
            let mut entries = &mut root;
            let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
            for part in folders.split('/').filter(|p| !p.is_empty()) {
                let at = entries.iter().position(|e: &TreeEntry| e.name == part).unwrap_or_else(|| {
                    let id = part.to_uppercase().into_bytes();
                    entries.push(TreeEntry { id, name: part.to_owned(), date, what: EntryContent::Dir(Vec::new()) });
                    entries.len() - 1
                });
                let EntryContent::Dir(below) = &mut entries[at].what else { panic!("{part} is a file") };
                entries = below;
            }
            let mut content = Layout::default();
            content.push_bytes(bytes);
            let id = format!("{};1", crate::iso::eight_three(name)).into_bytes();
            entries.push(TreeEntry { id, name: name.to_owned(), date, what: EntryContent::File(content) });
        }
        let mut descriptor = vec![b' '; 2048];
        descriptor[..8].copy_from_slice(b"\x01CD001\x01\0");
        descriptor[40..40 + self.label.len()].copy_from_slice(self.label.as_bytes());
        descriptor[72..190].fill(0);
        for (at, n) in [(120, 1u16), (124, 1), (128, 2048)] {
            descriptor[at..at + 2].copy_from_slice(&n.to_le_bytes());
            descriptor[at + 2..at + 4].copy_from_slice(&n.to_be_bytes());
        }
        for at in [813, 830, 847, 864] {
            descriptor[at..at + 17].copy_from_slice(b"2026112012500800\0");
        }
        descriptor[881..].fill(0);
        descriptor[881] = 1;
        let boot = [(0u8, 4u16, "/isolinux/isolinux.bin"), (0xEF, 140, "/images/efiboot.img")];
        let boot = boot
            .into_iter()
            .filter(|(_, _, path)| !self.without.contains(&&path[1..]))
            .map(|(platform, sectors, path)| BootFile { path: path.to_owned(), platform, sectors, old_lba: 0 });
        let tree =
            Tree { descriptor, date, root, boot: boot.collect(), catalog: Some("/isolinux/boot.cat".to_owned()) };
        let base = Arc::new(Vec::<u8>::new());
        let layout = compose(&base, tree).unwrap();
        let mut bytes = vec![0; layout.len() as usize];
        layout.read_exact_at(&*base, 0, &mut bytes).unwrap();
        bytes
    }
}

/// All bytes of something.
pub fn all(file: &impl ReadAt) -> Vec<u8> {
    file.bytes_at(0, file.size() as usize).unwrap()
}
