//! A live image and the areas in it that are made to be written over: the ignition, the kernel arguments, the RAM disk of
//! minimal images. And the whole of it with them filled in.
//!
//! Facts: `reference/coreos-iso.md`. Where coreos-installer and the image service differ in what they accept, this follows
//! the image service, and [`BaseImage::warnings`] says what coreos-installer would refuse.

use serde::Deserialize;

use crate::cpio;
use crate::iso::{Iso, IsoError, Place};
use crate::layout::{Layout, OutOfRange, ReadAt};

/// Where the ignition goes, when `igninfo.json` does not say otherwise.
const IGNITION: &str = "images/ignition.img";
const IGNITION_INFO: &str = "coreos/igninfo.json";
/// Description of the kernel argument areas.
pub const KARGS_INFO: &str = "coreos/kargs.json";
/// Place of the RAM disk with static networks and the proxy in minimal images.
pub const CUSTOM: &str = "images/assisted_installer_custom.img";
/// Files with kernel arguments in images without `kargs.json`.
const KARGS_FILES: &[&str] = &["EFI/redhat/grub.cfg", "isolinux/isolinux.cfg"];
/// Directly behind the filler of an area.
const MARKER: &[u8] = b"# COREOS_KARG_EMBED_AREA";
/// Labels of images that the real image service downloads.
const LABELS: &[&str] = &["rhcos-", "fedora-coreos-", "scos-"];
/// Configuration files of boot loaders and JSON files are not longer than this.
pub const SMALL: u64 = 1 << 20;
/// coreos-installer refuses larger areas.
const KARGS_MAX: u64 = 2048;

/// Why an image cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// The structure of the image.
    #[error(transparent)]
    Iso(#[from] IsoError),
    /// There is no place for the ignition.
    #[error(
        "has no {path}, where the ignition goes{said}: neither the image service nor `coreos-installer iso ignition \
         embed` takes it. Is it a live image?"
    )]
    NoIgnitionArea {
        /// The file.
        path: String,
        /// Who said so.
        said: &'static str,
    },
    /// A JSON file of the image.
    #[error("has a {path} that cannot be read: {why}")]
    Json {
        /// The file.
        path: &'static str,
        /// The parser's words.
        why: String,
    },
    /// An area is not inside of its file.
    #[error("says that the ignition is at bytes {offset} to {end} of {path}, which has {len}")]
    Outside {
        /// The file.
        path: String,
        /// First byte.
        offset: u64,
        /// Byte behind the last.
        end: u64,
        /// Length of the file.
        len: u64,
    },
}

/// Why an image cannot be filled in. The image service answers 500.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// Too large for its area. The words are the real service's.
    #[error("{what}: content length ({has}) exceeds embed area size ({room})")]
    TooLarge {
        /// Which content.
        what: &'static str,
        /// Bytes that it has.
        has: u64,
        /// Bytes of the area.
        room: u64,
    },
    /// There is no such area.
    #[error("the image has no place for {what}: {why}")]
    NoArea {
        /// What was to be filled in.
        what: &'static str,
        /// What is missing.
        why: String,
    },
    /// An area lies outside of the image.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// The ignition cannot be compressed.
    #[error("the ignition cannot be packed: {0}")]
    Pack(#[from] std::io::Error),
}

/// `igninfo.json`.
#[derive(Debug, Default, Deserialize)]
struct IgnitionInfo {
    #[serde(default)]
    file: String,
    #[serde(default)]
    length: u64,
    #[serde(default)]
    offset: u64,
}

/// `kargs.json`. Of the files only their paths matter to the image service; the rest is for [`BaseImage::warnings`] and for
/// the minimal image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct KargsInfo {
    /// Arguments of the image as it was built.
    #[serde(default)]
    pub default: String,
    /// Where the areas are.
    #[serde(default)]
    pub files: Vec<KargsFile>,
    /// Length of each area.
    #[serde(default)]
    pub size: i64,
}

/// An area as `kargs.json` has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct KargsFile {
    /// Character that ends the arguments; newline when it is not said.
    pub end: Option<String>,
    /// First byte of the area in the file.
    pub offset: Option<i64>,
    /// Character that fills the rest; `#` when it is not said.
    pub pad: Option<String>,
    /// Path of the file, without a leading slash.
    pub path: Option<String>,
}

/// A live image.
#[derive(Clone, Debug)]
pub struct BaseImage {
    /// Its structure.
    pub iso: Iso,
    /// Its length in bytes.
    pub len: u64,
    /// Where the ignition goes.
    ignition: Place,
    /// Where kernel arguments are appended; or what is missing.
    kargs: Result<Vec<Place>, String>,
    /// Where the RAM disk of a minimal image goes.
    custom: Option<Place>,
    warnings: Vec<String>,
}

/// What is filled in for one infra-env.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fill<'a> {
    /// The discovery ignition.
    pub ignition: &'a [u8],
    /// The compressed archive for the RAM disk of a minimal image.
    pub custom: Option<&'a [u8]>,
    /// Kernel arguments to append.
    pub kargs: Option<&'a [String]>,
}

impl BaseImage {
    /// Reads the structure of an image and finds its areas.
    ///
    /// # Errors
    /// [`BaseError`]; the text goes on where "FILE " ends.
    pub fn read(image: &(impl ReadAt + ?Sized)) -> Result<Self, BaseError> {
        let iso = Iso::read(image)?;
        let mut info = IgnitionInfo { file: IGNITION.to_owned(), ..IgnitionInfo::default() };
        let mut said = "";
        if let Some(text) = iso.contents(image, IGNITION_INFO, SMALL)? {
            info = serde_json::from_slice(&text)
                .map_err(|e| BaseError::Json { path: IGNITION_INFO, why: e.to_string() })?;
            said = " (so says coreos/igninfo.json)";
        }
        let Some(file) = iso.place(&info.file) else {
            return Err(BaseError::NoIgnitionArea { path: info.file, said });
        };
        if info.length == 0 && info.offset == 0 {
            info.length = file.len;
        }
        if info.offset.checked_add(info.length).is_none_or(|end| end > file.len) {
            let end = info.offset.saturating_add(info.length);
            return Err(BaseError::Outside { path: info.file, offset: info.offset, end, len: file.len });
        }
        let ignition = Place { offset: file.offset + info.offset, len: info.length };
        let described = iso.contents(image, KARGS_INFO, SMALL)?;
        let kargs_info: Option<KargsInfo> = match &described {
            None => None,
            Some(text) => Some(
                serde_json::from_slice(text).map_err(|e| BaseError::Json { path: KARGS_INFO, why: e.to_string() })?,
            ),
        };
        let kargs = kargs_places(&iso, image, kargs_info.as_ref())?;
        let warnings = warnings(&iso, image, &info.file, kargs_info.as_ref(), &kargs)?;
        let custom = iso.place(CUSTOM);
        Ok(Self { len: image.size(), iso, ignition, kargs, custom, warnings })
    }

    /// What other tools would refuse about this image, one sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Where the ignition goes.
    pub fn ignition_area(&self) -> Place {
        self.ignition
    }

    /// Where kernel arguments are appended.
    pub fn kargs_areas(&self) -> &[Place] {
        self.kargs.as_deref().unwrap_or(&[])
    }

    /// The whole image, filled in. `over` is what the image is itself: its base file, or the composition of a minimal one.
    ///
    /// # Errors
    /// [`FillError`].
    pub fn fill(&self, over: &Layout, fill: &Fill<'_>) -> Result<Layout, FillError> {
        let packed = cpio::ignition_archive(fill.ignition)?;
        let area = self.area("ignition", self.ignition, packed, true)?;
        let mut out = over.replace(self.ignition.offset, &area)?;
        if let Some(archive) = fill.custom {
            let missing = || FillError::NoArea { what: "a RAM disk", why: format!("there is no /{CUSTOM}") };
            let place = self.custom.ok_or_else(missing)?;
            // What is behind it stays.
            let area = self.area("ramdisk", place, archive.to_vec(), false)?;
            out = out.replace(place.offset, &area)?;
        }
        if let Some(arguments) = fill.kargs {
            let places = self.kargs.as_ref();
            let places = places.map_err(|why| FillError::NoArea { what: "kernel arguments", why: why.clone() })?;
            let text = format!(" {}\n", arguments.join(" "));
            for place in places {
                let area = self.area("kernel arguments", *place, text.clone().into_bytes(), false)?;
                out = out.replace(place.offset, &area)?;
            }
        }
        Ok(out)
    }

    fn area(&self, what: &'static str, place: Place, content: Vec<u8>, pad: bool) -> Result<Layout, FillError> {
        let has = content.len() as u64;
        if has > place.len {
            return Err(FillError::TooLarge { what, has, room: place.len });
        }
        let mut area = Layout::default();
        area.push_bytes(content);
        if pad {
            area.push_zeros(place.len - has);
        }
        Ok(area)
    }
}

/// The free rest of each area: from the newline behind the arguments to the marker.
fn kargs_places(
    iso: &Iso,
    image: &(impl ReadAt + ?Sized),
    info: Option<&KargsInfo>,
) -> Result<Result<Vec<Place>, String>, IsoError> {
    let paths: Vec<&str> = match info {
        Some(info) => info.files.iter().filter_map(|f| f.path.as_deref()).collect(),
        None => KARGS_FILES.to_vec(),
    };
    let mut places = Vec::new();
    for path in paths {
        let Some(file) = iso.place(path) else { return Ok(Err(format!("there is no /{path}"))) };
        if file.len > SMALL {
            return Ok(Err(format!("/{path} has {} bytes and is not the configuration of a boot loader", file.len)));
        }
        let text = iso.contents(image, path, SMALL)?.unwrap_or_default();
        let Some((start, end)) = free_area(&text) else {
            return Ok(Err(format!("/{path} has no area that ends with {}", String::from_utf8_lossy(MARKER))));
        };
        places.push(Place { offset: file.offset + start as u64, len: (end - start) as u64 });
    }
    Ok(Ok(places))
}

/// A newline and the `#`s behind it, directly before the marker: the first such place.
fn free_area(text: &[u8]) -> Option<(usize, usize)> {
    let mut from = 0;
    while let Some(found) = text[from..].windows(MARKER.len()).position(|w| w == MARKER) {
        let marker = from + found;
        let filler = text[..marker].iter().rev().take_while(|b| **b == b'#').count();
        let start = marker - filler;
        if start > 0 && text[start - 1] == b'\n' {
            return Some((start - 1, marker));
        }
        from = marker + 1;
    }
    None
}

fn warnings(
    iso: &Iso,
    image: &(impl ReadAt + ?Sized),
    ignition: &str,
    kargs: Option<&KargsInfo>,
    places: &Result<Vec<Place>, String>,
) -> Result<Vec<String>, IsoError> {
    let mut out = Vec::new();
    let installer = "`coreos-installer iso` refuses it";
    if !LABELS.iter().any(|label| iso.volume_id.starts_with(label)) {
        out.push(format!(
            "its label is {:?}; the real image service only downloads images whose label begins with {}",
            iso.volume_id,
            LABELS.join(", ")
        ));
    }
    if !iso.rock_ridge {
        out.push("it has no Rock Ridge names; the real image service does not find its files".to_owned());
    }
    if iso.find(IGNITION_INFO).is_some() && iso.find_plain(IGNITION_INFO).is_none() {
        out.push(format!("/{IGNITION_INFO} has no plain name COREOS/IGNINFO.JSO: {installer} or takes another area"));
    }
    if iso.find_plain(ignition).is_none() {
        out.push(format!("/{ignition} has no plain ISO 9660 name of that kind: {installer}"));
    }
    if let Err(why) = places {
        out.push(format!("kernel arguments cannot be added: {why}"));
    }
    let Some(kargs) = kargs else { return Ok(out) };
    if iso.find_plain(KARGS_INFO).is_none() {
        out.push(format!("/{KARGS_INFO} has no plain name COREOS/KARGS.JSO: `coreos-installer iso kargs` refuses it"));
    }
    let installer = "`coreos-installer iso kargs` refuses it";
    let size = u64::try_from(kargs.size).unwrap_or(0);
    if size == 0 || size > KARGS_MAX {
        out.push(format!("its kernel argument areas have {} bytes, not 1 to {KARGS_MAX}: {installer}", kargs.size));
        return Ok(out);
    }
    if kargs.default.len() as u64 > size {
        out.push(format!("the default kernel arguments are longer than their areas of {size} bytes: {installer}"));
    }
    let mut texts = Vec::new();
    for file in &kargs.files {
        let path = file.path.as_deref().unwrap_or("");
        let at = file.offset.and_then(|o| u64::try_from(o).ok());
        let place = iso.find_plain(path).and_then(crate::iso::IsoNode::place);
        match (at, place) {
            (Some(at), Some(place)) if at.checked_add(size).is_some_and(|end| end <= place.len) => {
                let pad = file.pad.as_deref().unwrap_or("#").as_bytes().first().copied().unwrap_or(b'#');
                let bytes = image.bytes_at(place.offset + at, size as usize)?;
                let text = String::from_utf8_lossy(&bytes).into_owned();
                texts.push(text.trim_end_matches(char::from(pad)).trim().to_owned());
            }
            _ => out.push(format!("{KARGS_INFO} names an area in {path:?} that is not there: {installer}")),
        }
    }
    if texts.windows(2).any(|pair| pair[0] != pair[1]) {
        out.push(format!("its kernel argument areas differ from each other: {installer}"));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::usual("linux /vmlinuz a b\n####### COREOS_KARG_EMBED_AREA\n", Some((18, 25)))]
    #[case::no_room("a\n# COREOS_KARG_EMBED_AREA\n", Some((1, 2)))]
    #[case::written_before("a\n b\n### COREOS_KARG_EMBED_AREA", Some((4, 7)))]
    #[case::no_newline("a#### COREOS_KARG_EMBED_AREA", None)]
    #[case::the_first_with_a_newline("a# COREOS_KARG_EMBED_AREA\n## COREOS_KARG_EMBED_AREA", Some((25, 27)))]
    #[case::none("linux a\n####\n", None)]
    #[case::only_the_marker("# COREOS_KARG_EMBED_AREA", None)]
    fn areas_are_found_by_their_marker(#[case] text: &str, #[case] expected: Option<(usize, usize)>) {
        assert_eq!(free_area(text.as_bytes()), expected);
    }
}
