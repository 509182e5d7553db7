//! Whole images: read, filled, made minimal; damaged ones; and what real programs say about them, where they are installed.

use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use proptest::prelude::*;
use rstest::rstest;

use crate::base::{BaseImage, Fill};
use crate::iso::{Iso, IsoNode, NodeKind};
use crate::layout::{Laid, Layout, ReadAt};
use crate::minimal::{minimal, rootfs_url};
use crate::testing::{KARGS, Live, all, noise};

const URL: &str = "http://127.0.0.1:8090/boot-artifacts/rootfs?arch=x86_64&version=4.16";

fn files(nodes: &[IsoNode], above: &str, image: &impl ReadAt, out: &mut Vec<(String, Vec<u8>)>) {
    for node in nodes {
        let path = format!("{above}{}", node.name);
        match &node.kind {
            NodeKind::Dir(below) => files(below, &format!("{path}/"), image, out),
            NodeKind::File { offset, len } => out.push((path, image.bytes_at(*offset, *len as usize).unwrap())),
            NodeKind::Other => panic!("{path} is something else"),
        }
    }
}

fn all_files(image: &impl ReadAt) -> Vec<(String, Vec<u8>)> {
    let mut out = Vec::new();
    files(&Iso::read(image).unwrap().root, "", image, &mut out);
    out.sort();
    out
}

fn file(image: &impl ReadAt, path: &str) -> Vec<u8> {
    Iso::read(image).unwrap().contents(image, path, 1 << 24).unwrap().unwrap()
}

fn text(image: &impl ReadAt, path: &str) -> String {
    String::from_utf8(file(image, path)).unwrap()
}

/// The parts of a text without the long filler.
fn short(text: &str) -> String {
    text.lines()
        .map(|l| if l.starts_with("####") { format!("#…# ({})\n", l.len()) } else { format!("{l}\n") })
        .collect()
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

/// The boot information table of the loader and the place that it must name.
fn check_loader(image: &impl ReadAt) {
    let iso = Iso::read(image).unwrap();
    let boot = iso.boot.as_ref().unwrap();
    let place = iso.place("isolinux/isolinux.bin").unwrap();
    let loader = image.bytes_at(place.offset, place.len as usize).unwrap();
    let lba = (place.offset / 2048) as u32;
    assert_eq!((boot.entries[0].platform, boot.entries[0].sectors, boot.entries[0].lba), (0, 4, lba));
    assert_eq!([le32(&loader[8..]), le32(&loader[12..]), le32(&loader[16..])], [16, lba, 24_577]);
    let sum = loader[64..].chunks(4).fold(0u32, |sum, w| {
        let word = w.iter().rev().fold(0u32, |n, b| n << 8 | u32::from(*b));
        sum.wrapping_add(word)
    });
    assert_eq!(le32(&loader[20..]), sum);
    let efi = iso.place("images/efiboot.img").unwrap();
    let sectors = (efi.len.div_ceil(2048) * 4) as u16;
    assert_eq!((boot.entries[1].platform, boot.entries[1].sectors), (0xEF, sectors));
    assert_eq!(u64::from(boot.entries[1].lba) * 2048, efi.offset);
    assert_eq!(u64::from(boot.catalog) * 2048, iso.place("isolinux/boot.cat").unwrap().offset);
}

#[test]
fn what_was_written_is_read() {
    let live = Live::default();
    let image = live.image();
    let iso = Iso::read(&image).unwrap();
    assert_eq!((iso.volume_id.as_str(), iso.rock_ridge), ("rhcos-lab", true));
    assert_eq!(iso.find("coreos/kargs.json").unwrap().id, b"KARGS.JSO;1");
    assert_eq!(iso.find("coreos/kargs.json"), iso.find_plain("coreos/kargs.json"));
    assert_eq!(iso.find("COREOS/KARGS.JSO"), None);
    assert!(matches!(iso.find("/images/pxeboot").unwrap().kind, NodeKind::Dir(_)));
    let changes = ["isolinux/boot.cat", "isolinux/isolinux.bin"];
    let mut expected: Vec<_> = live.files().into_iter().map(|(p, b)| (p.to_owned(), b)).collect();
    expected.sort();
    let found = all_files(&image);
    for ((path, bytes), (expected_path, expected_bytes)) in found.iter().zip(&expected) {
        assert_eq!(path, expected_path);
        assert!(bytes == expected_bytes || changes.contains(&path.as_str()), "{path} differs");
    }
    assert_eq!(found.len(), expected.len());
    check_loader(&image);
    assert_eq!(BaseImage::read(&image).unwrap().warnings(), &[] as &[String]);
}

#[rstest]
#[case::no_ignition(Live { without: &["images/ignition.img"], ..Live::default() }, "has no images/ignition.img, where the ignition goes (so says coreos/igninfo.json): neither the image service nor `coreos-installer iso ignition embed` takes it. Is it a live image?")]
#[case::neither(Live { without: &["images/ignition.img", "coreos/igninfo.json"], ..Live::default() }, "has no images/ignition.img, where the ignition goes: neither the image service nor `coreos-installer iso ignition embed` takes it. Is it a live image?")]
#[case::elsewhere(Live { with: vec![("coreos/igninfo.json", br#"{"file":"images/efiboot.img","offset":69000,"length":2000}"#.to_vec())], ..Live::default() }, "says that the ignition is at bytes 69000 to 71000 of images/efiboot.img, which has 70000")]
#[case::broken_json(Live { with: vec![("coreos/igninfo.json", b"{".to_vec())], ..Live::default() }, "has a coreos/igninfo.json that cannot be read: EOF while parsing an object at line 1 column 1")]
#[case::broken_kargs(Live { with: vec![("coreos/kargs.json", b"[1".to_vec())], ..Live::default() }, "has a coreos/kargs.json that cannot be read: invalid type: integer `1`, expected a string at line 1 column 2")]
fn images_that_cannot_be_served(#[case] live: Live, #[case] expected: &str) {
    assert_eq!(BaseImage::read(&live.image()).unwrap_err().to_string(), expected);
}

#[rstest]
#[case::label(Live { label: "lab", ..Live::default() }, &["its label is \"lab\"; the real image service only downloads images whose label begins with rhcos-, fedora-coreos-, scos-"])]
#[case::large_area(Live { kargs_size: 3000, ..Live::default() }, &["its kernel argument areas have 3000 bytes, not 1 to 2048: `coreos-installer iso kargs` refuses it"])]
#[case::different(Live { with: vec![("isolinux/isolinux.cfg", [noise(1, 127), b"other\n######".to_vec(), noise(2, 2000)].concat())], ..Live::default() }, &["kernel arguments cannot be added: /isolinux/isolinux.cfg has no area that ends with # COREOS_KARG_EMBED_AREA", "its kernel argument areas differ from each other: `coreos-installer iso kargs` refuses it"])]
#[case::too_short(Live { with: vec![("isolinux/isolinux.cfg", b"x\n#### COREOS_KARG_EMBED_AREA".to_vec())], ..Live::default() }, &["coreos/kargs.json names an area in \"isolinux/isolinux.cfg\" that is not there: `coreos-installer iso kargs` refuses it"])]
fn what_other_tools_refuse_is_said(#[case] live: Live, #[case] expected: &[&str]) {
    assert_eq!(BaseImage::read(&live.image()).unwrap().warnings(), expected);
}

#[test]
fn an_area_within_a_file_is_found() {
    let info = br#"{"file":"images/efiboot.img","offset":1000,"length":5000}"#.to_vec();
    let image = Live { with: vec![("coreos/igninfo.json", info)], ..Live::default() }.image();
    let base = BaseImage::read(&image).unwrap();
    let efi = base.iso.place("images/efiboot.img").unwrap();
    assert_eq!((base.ignition_area().offset, base.ignition_area().len), (efi.offset + 1000, 5000));
    let layout = base.fill(&Layout::of_base(base.len), &Fill { ignition: b"{}", ..Fill::default() }).unwrap();
    let out = all(&Laid { layout, base: Arc::new(image.clone()) });
    let (from, to) = (efi.offset as usize + 1000, efi.offset as usize + 6000);
    assert_eq!((&out[..from], &out[to..]), (&image[..from], &image[to..]));
    assert_ne!(out[from..to], image[from..to]);
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap();
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn outside_of_the_areas_nothing_changes(
        config in proptest::collection::vec(any::<u8>(), 1..50_000),
        arguments in proptest::option::of(proptest::collection::vec("[a-z=0-9.]{1,20}", 0..20)),
        from in 0..900_000u64,
        len in 0..300_000u64,
    ) {
        let image = Live::default().image();
        let base = BaseImage::read(&image).unwrap();
        let fill = Fill { ignition: &config, custom: None, kargs: arguments.as_deref() };
        let layout = base.fill(&Layout::of_base(base.len), &fill).unwrap();
        prop_assert!(layout.in_memory() <= config.len() as u64 + 4096, "only what differs is in memory");
        let laid = Laid { layout, base: Arc::new(image.clone()) };
        let out = all(&laid);
        prop_assert_eq!(out.len(), image.len());

        let area = base.ignition_area();
        let whole = area.offset as usize..(area.offset + area.len) as usize;
        let packed = &out[whole.clone()];
        let mut areas = Vec::from([whole]);
        let archive = gunzip(packed);
        let at = 112 + "config.ign".len() + 2;
        prop_assert_eq!(&archive[at..at + config.len()], &config[..]);
        let used = crate::cpio::ignition_archive(&config).unwrap().len();
        prop_assert!(packed[used..].iter().all(|b| *b == 0));
        if let Some(arguments) = &arguments {
            let expected = format!(" {}\n", arguments.join(" "));
            for place in base.kargs_areas() {
                let range = place.offset as usize..place.offset as usize + expected.len();
                prop_assert_eq!(&out[range.clone()], expected.as_bytes());
                areas.push(range);
            }
            prop_assert_eq!(areas.len(), 3);
        }
        let mut same = image.clone();
        for range in areas {
            same[range.clone()].copy_from_slice(&out[range]);
        }
        prop_assert!(same == out, "something else changed");

        // Any range is that range of the whole.
        let (from, to) = (from.min(laid.size()), (from + len).min(laid.size()));
        let part = Laid { layout: laid.layout.slice(from..to), base: laid.base.clone() };
        prop_assert!(all(&part) == out[from as usize..to as usize]);
    }

    #[test]
    fn damaged_images_are_refused_or_read_but_never_a_crash(
        changes in proptest::collection::vec((0..60_000usize, any::<u8>()), 1..12),
        cut in proptest::option::of(0..1_000_000usize),
    ) {
        let mut image = Live { rootfs: 5000, ..Live::default() }.image();
        for (at, byte) in changes {
            // Descriptors, tables and folders are there.
            image[(32_768 + at).min(60_000)] = byte;
        }
        image.truncate(cut.unwrap_or(usize::MAX).min(image.len()));
        if let Ok(base) = BaseImage::read(&image) {
            let _ = base.fill(&Layout::of_base(base.len), &Fill { ignition: b"{}", custom: None, kargs: Some(&[]) });
            let _ = minimal(&base, &Arc::new(image), "x86_64", URL);
        }
    }
}

#[test]
fn a_cut_image_is_refused() {
    let mut image = Live::default().image();
    image.truncate(image.len() - 1);
    let says = image.len() + 1;
    assert_eq!(
        BaseImage::read(&image).unwrap_err().to_string(),
        format!("is cut off: it has {} of {says} bytes", image.len())
    );
}

#[test]
fn what_does_not_fit_is_refused() {
    let image = Live::default().image();
    let base = BaseImage::read(&image).unwrap();
    let over = Layout::of_base(base.len);
    let large = noise(7, 270_000);
    let error = |fill: Fill<'_>| base.fill(&over, &fill).unwrap_err().to_string();
    let packed = crate::cpio::ignition_archive(&large).unwrap().len();
    assert_eq!(
        error(Fill { ignition: &large, ..Fill::default() }),
        format!("ignition: content length ({packed}) exceeds embed area size (262144)")
    );
    // A blank and a newline with it; what is free is the filler and the newline before it.
    let free = 1139 - KARGS.len();
    let arguments = |len: usize| vec!["x".repeat(len)];
    let fits = arguments(free - 2);
    assert!(base.fill(&over, &Fill { kargs: Some(&fits), ..Fill::default() }).is_ok());
    let too_long = arguments(free - 1);
    assert_eq!(
        error(Fill { kargs: Some(&too_long), ..Fill::default() }),
        format!("kernel arguments: content length ({}) exceeds embed area size ({free})", free + 1)
    );
    assert_eq!(
        error(Fill { custom: Some(b"x"), ..Fill::default() }),
        "the image has no place for a RAM disk: there is no /images/assisted_installer_custom.img"
    );
    let image = Live { without: &["isolinux/isolinux.cfg"], ..Live::default() }.image();
    let base = BaseImage::read(&image).unwrap();
    assert_eq!(
        base.fill(&over, &Fill { kargs: Some(&[]), ..Fill::default() }).unwrap_err().to_string(),
        "the image has no place for kernel arguments: there is no /isolinux/isolinux.cfg"
    );
}

fn make_minimal(live: &Live) -> Laid<Vec<u8>> {
    let image = live.image();
    let base = BaseImage::read(&image).unwrap();
    minimal(&base, &Arc::new(image), "x86_64", URL).unwrap()
}

#[test]
fn a_minimal_image_has_everything_but_the_root_file_system() {
    let live = Live::default();
    let full = live.image();
    let laid = make_minimal(&live);
    // Folders, tables and edited files; the rest is the base image's.
    assert!(laid.layout.in_memory() < 64 * 1024, "{} bytes in memory", laid.layout.in_memory());
    let image = all(&laid);
    assert_eq!(all(&make_minimal(&live)), image, "the same again");

    let edited = ["EFI/redhat/grub.cfg", "coreos/kargs.json", "isolinux/isolinux.cfg"];
    let placed = ["isolinux/boot.cat", "isolinux/isolinux.bin"];
    let found = all_files(&image);
    let mut paths: Vec<String> = live.files().into_iter().map(|(p, _)| p.to_owned()).collect();
    paths.retain(|p| p != "images/pxeboot/rootfs.img");
    paths.push("images/assisted_installer_custom.img".to_owned());
    paths.sort();
    assert_eq!(found.iter().map(|(p, _)| p.as_str()).collect::<Vec<_>>(), paths);
    for (path, bytes) in &found {
        if path == "images/assisted_installer_custom.img" {
            assert!(bytes.len() == 1 << 20 && bytes.iter().all(|b| *b == 0));
        } else if !edited.contains(&path.as_str()) && !placed.contains(&path.as_str()) {
            assert!(*bytes == file(&full, path), "{path} differs");
        }
    }
    check_loader(&image);
    let iso = Iso::read(&image).unwrap();
    assert_eq!(iso.volume_id, "rhcos-lab");
    insta::assert_snapshot!(
        "minimal_image",
        edited.map(|path| format!("--- {path}\n{}", short(&text(&image, path)))).join("")
    );

    // What kargs.json says is where it says it, in each file.
    let info: crate::base::KargsInfo = serde_json::from_slice(&file(&image, "coreos/kargs.json")).unwrap();
    for entry in &info.files {
        let text = text(&image, entry.path.as_deref().unwrap());
        let area = &text[entry.offset.unwrap() as usize..][..info.size as usize];
        assert_eq!(area.trim_end_matches('#').trim(), info.default);
        assert!(text[entry.offset.unwrap() as usize + area.len()..].starts_with("# COREOS_KARG_EMBED_AREA"));
    }

    // It can be filled like the full one, and has a place for the RAM disk.
    let base = BaseImage::read(&image).unwrap();
    assert_eq!(base.warnings(), &[] as &[String]);
    let fill = Fill { ignition: b"{}", custom: Some(b"archive"), kargs: Some(&["a=b".to_owned()]) };
    let layout = base.fill(&laid.layout, &fill).unwrap();
    let filled = all(&Laid { layout, base: laid.base.clone() });
    let custom = file(&filled, "images/assisted_installer_custom.img");
    assert!(custom.starts_with(b"archive\0") && custom.len() == 1 << 20);
    assert!(text(&filled, "EFI/redhat/grub.cfg").contains("&version=4.16\" a=b\n###"));
}

#[rstest]
#[case::no_rootfs(Live { without: &["images/pxeboot/rootfs.img"], ..Live::default() }, "x86_64", URL, "the image has no images/pxeboot/rootfs.img")]
#[case::no_grub(Live { without: &["EFI/redhat/grub.cfg"], ..Live::default() }, "x86_64", URL, "the image has no grub.cfg, looked for as EFI/redhat/grub.cfg, EFI/fedora/grub.cfg, boot/grub/grub.cfg, EFI/centos/grub.cfg")]
#[case::no_isolinux(Live { without: &["isolinux/isolinux.cfg"], ..Live::default() }, "x86_64", URL, "the image has no isolinux/isolinux.cfg")]
#[case::mainframe(Live::default(), "s390x", URL, "there are no minimal images for s390x")]
#[case::dollar(
    Live::default(),
    "x86_64",
    "http://h/$x",
    "the URL of the root file system, http://h/$x, contains '$', which boot loaders do not take literally"
)]
#[case::there_already(Live { with: vec![("images/assisted_installer_custom.img", vec![1])], ..Live::default() }, "x86_64", URL, "images/assisted_installer_custom.img of the image: it is there already")]
#[case::crossing(Live { kargs: "coreos.liveiso=x", with: vec![("coreos/kargs.json", br#"{"default":"a","size":9,"files":[{"path":"isolinux/isolinux.cfg","offset":130}]}"#.to_vec())], ..Live::default() }, "x86_64", URL, "isolinux/isolinux.cfg of the image: an edit at 123..139 would cross the beginning of the kernel arguments at 130")]
fn images_without_a_minimal_one(#[case] live: Live, #[case] arch: &str, #[case] url: &str, #[case] expected: &str) {
    let image = live.image();
    let base = BaseImage::read(&image).unwrap();
    assert_eq!(minimal(&base, &Arc::new(image), arch, url).unwrap_err().to_string(), expected);
}

#[test]
fn without_boot_loaders_and_kargs_json_there_is_a_minimal_image_that_does_not_boot() {
    let without: &[&str] = &[
        "isolinux/boot.cat",
        "isolinux/isolinux.bin",
        "images/efiboot.img",
        "coreos/kargs.json",
        "coreos/igninfo.json",
    ];
    let image = all(&make_minimal(&Live { without, ..Live::default() }));
    assert_eq!(Iso::read(&image).unwrap().boot, None);
    assert!(text(&image, "isolinux/isolinux.cfg").contains("rootfs_url"));
}

#[test]
fn urls_of_the_root_file_system() {
    assert_eq!(
        rootfs_url("http://127.0.0.1:8090/", "x86_64", "416.94 a+b"),
        "http://127.0.0.1:8090/boot-artifacts/rootfs?arch=x86_64&version=416.94+a%2Bb"
    );
}

// --- real programs -------------------------------------------------------------------------------------------------------

/// Runs a program on files; `None` and a word about it when it is not installed.
fn run(program: &str, args: &[&str], dir: &Path) -> Option<String> {
    let output = match Command::new(program).args(args).current_dir(dir).output() {
        Ok(output) => output,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            vlab_skip::skip!("{program} is not in PATH");
            return None;
        }
        Err(e) => panic!("{program}: {e}"),
    };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {args:?}: {out}{err}");
    Some(out.into_owned())
}

/// A full and a minimal image, each filled, as files.
fn filled_images(dir: &Path, config: &[u8]) {
    let live = Live::default();
    let full = live.image();
    let base = BaseImage::read(&full).unwrap();
    let kargs = ["console=ttyS0".to_owned(), "a=b".to_owned()];
    let fill = Fill { ignition: config, custom: None, kargs: Some(&kargs) };
    let layout = base.fill(&Layout::of_base(base.len), &fill).unwrap();
    std::fs::write(dir.join("base.iso"), &full).unwrap();
    std::fs::write(dir.join("full.iso"), all(&Laid { layout, base: Arc::new(full) })).unwrap();
    let laid = make_minimal(&live);
    let small = BaseImage::read(&laid).unwrap();
    let layout = small.fill(&laid.layout, &Fill { custom: Some(b"x"), ..fill }).unwrap();
    std::fs::write(dir.join("minimal.iso"), all(&Laid { layout, base: laid.base })).unwrap();
}

#[test]
fn coreos_installer_reads_what_was_filled_in() {
    let dir = tempfile::tempdir().unwrap();
    let config = br#"{"ignition":{"version":"3.1.0"}}"#;
    filled_images(dir.path(), config);
    let url = format!("rw ignition.firstboot ignition.platform.id=metal coreos.live.rootfs_url=\"{URL}\"");
    for (image, arguments) in [("full.iso", KARGS), ("minimal.iso", url.as_str())] {
        let Some(shown) = run("coreos-installer", &["iso", "ignition", "show", image], dir.path()) else { return };
        assert_eq!(shown.as_bytes(), config);
        let shown = run("coreos-installer", &["iso", "kargs", "show", image], dir.path()).unwrap();
        assert_eq!(shown.trim_end(), format!("{arguments} console=ttyS0 a=b"), "{image}");
    }
    // And it undoes it.
    run("coreos-installer", &["iso", "reset", "full.iso"], dir.path()).unwrap();
    let reset = std::fs::read(dir.path().join("full.iso")).unwrap();
    assert!(reset == std::fs::read(dir.path().join("base.iso")).unwrap(), "reset is not the base image");
}

#[test]
fn xorriso_reads_the_images() {
    let dir = tempfile::tempdir().unwrap();
    filled_images(dir.path(), b"{}");
    for image in ["base.iso", "minimal.iso"] {
        let args = [
            "-abort_on",
            "WARNING",
            "-indev",
            image,
            "-osirrox",
            "on",
            "-extract",
            "/",
            "out",
            "-report_el_torito",
            "plain",
        ];
        let Some(boot) = run("xorriso", &args, dir.path()) else { return };
        assert!(boot.contains("/isolinux/isolinux.bin") && boot.contains("/images/efiboot.img"), "{boot}");
        let image = std::fs::read(dir.path().join(image)).unwrap();
        for (path, bytes) in all_files(&image) {
            let extracted = std::fs::read(dir.path().join("out").join(&path)).unwrap();
            assert!(extracted == bytes, "{path} differs");
        }
        // Files of folders without write permission cannot be removed by others than root.
        run("chmod", &["-R", "u+w", "out"], dir.path()).unwrap();
        std::fs::remove_dir_all(dir.path().join("out")).unwrap();
    }
}
