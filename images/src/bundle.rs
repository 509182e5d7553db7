//! Images that were built elsewhere, as one file: what one machine has built, another one need not build.
//!
//! A bundle is a tar archive. Its first member, [`INDEX`], lists the others with their checksums; they are files of the cache, under
//! the names that they have there. These names come from what the files are made of. So nothing has to be told apart on import: what
//! fits to the sources is found, what does not is built. Whoever gives you a bundle gives you what your machines boot: take it from
//! people whom you trust.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write as _};
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};

use crate::ImageError;
use crate::cache::{Cache, sha256_file};
use crate::os::{self, Artefact, Builder};
use crate::programs;

/// Name of the first member.
pub const INDEX: &str = "vlab-images.json";

/// Version of the form. Readers refuse others.
const VERSION: u32 = 1;

/// What is in a bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    version: u32,
    /// The members after this one, in their order.
    pub files: Vec<Member>,
}

/// A file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name in the cache: part and file.
    pub path: String,
    /// Its checksum.
    pub sha256: String,
    /// Its size in bytes.
    pub size: u64,
}

/// What came of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    /// Files that are new in the cache.
    pub new: usize,
    /// Files that were there.
    pub known: usize,
    /// Bytes of the new ones.
    pub bytes: u64,
}

/// Writes these artefacts, and the programs that are in them, into one file. It appears whole or not at all.
///
/// # Errors
/// One of them is not built yet, with the command that builds it; the file cannot be written.
pub fn export(builder: &Builder<'_>, artefacts: &[&Artefact], into: &Path) -> Result<Index, ImageError> {
    let mut paths = BTreeSet::new();
    for program in builder.known_programs()?.into_iter().flatten() {
        // One that was named lies elsewhere: whoever imports names it, too.
        if program.starts_with(builder.cache.root()) {
            paths.insert(program);
        }
    }
    for artefact in artefacts {
        let Some(made) = builder.present(artefact)? else {
            let problem =
                format!("{} is not built yet as the sources have it now: `vlab images build {0}`", artefact.name);
            return Err(ImageError::Tree(problem));
        };
        paths.insert(made.path.with_extension("json"));
        paths.insert(made.path);
    }
    let mut index = Index { version: VERSION, files: Vec::new() };
    for path in &paths {
        let within = path.strip_prefix(builder.cache.root()).unwrap_or(path);
        index.files.push(Member {
            path: within.display().to_string(),
            sha256: sha256_file(path)?,
            size: fs::metadata(path).map_err(ImageError::io(path))?.len(),
        });
    }
    let folder = into.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let half = tempfile::Builder::new().prefix(".bundle-").tempfile_in(folder).map_err(ImageError::io(folder))?;
    write(&index, builder.cache, half.as_file()).map_err(ImageError::io(into))?;
    half.persist(into).map_err(|error| ImageError::Io { path: into.to_owned(), error: error.error })?;
    Ok(index)
}

fn write(index: &Index, cache: &Cache, file: &File) -> std::io::Result<()> {
    let mut tar = tar::Builder::new(BufWriter::new(file));
    let head = |size: u64, mode: u32| {
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(mode);
        header
    };
    let text = serde_json::to_vec_pretty(index)?;
    tar.append_data(&mut head(text.len() as u64, 0o644), INDEX, &*text)?;
    for member in &index.files {
        let program = member.path.starts_with(programs::PART);
        let content = File::open(cache.root().join(&member.path))?;
        tar.append_data(&mut head(member.size, if program { 0o755 } else { 0o644 }), &member.path, content)?;
    }
    tar.into_inner()?.flush()
}

/// Puts the files of a bundle into the cache. Each is compared with its checksum first; what is there already stays as it is.
///
/// # Errors
/// No bundle, one that is cut off or of another version, a member that is not what the index says.
pub fn import(cache: &Cache, from: &Path) -> Result<Imported, ImageError> {
    let wrong = |problem: &str| ImageError::Tree(format!("{}: {problem}", from.display()));
    let unreadable = |error: std::io::Error| wrong(&format!("no bundle of images, or not all of one: {error}"));
    let file = File::open(from).map_err(ImageError::io(from))?;
    let mut tar = tar::Archive::new(BufReader::new(file));
    let mut members = tar.entries().map_err(unreadable)?;
    let mut first = members.next().ok_or_else(|| wrong("it is empty"))?.map_err(unreadable)?;
    let mut text = String::new();
    if first.path().map_err(unreadable)? != Path::new(INDEX) || first.size() > 1 << 20 {
        return Err(wrong("no bundle of images; `vlab images export` writes one"));
    }
    first.read_to_string(&mut text).map_err(unreadable)?;
    let index: Index = serde_json::from_str(&text).map_err(|error| match error.is_eof() {
        true => wrong("no bundle of images, or not all of one: its list is cut off"),
        false => wrong(&format!("its list: {error}")),
    })?;
    if index.version != VERSION {
        return Err(wrong(&format!("its form is version {}, and this program reads {VERSION}", index.version)));
    }
    let mut done = Imported::default();
    let mut rest = index.files.iter();
    for entry in members {
        let mut entry = entry.map_err(unreadable)?;
        let member = rest.next().ok_or_else(|| wrong("it has more files than its list"))?;
        if entry.path().map_err(unreadable)? != Path::new(&member.path) {
            return Err(wrong(&format!("{} is missing", member.path)));
        }
        let (part, name) = place(&member.path).ok_or_else(|| wrong(&format!("{}: no such part", member.path)))?;
        if cache.place(part, name)?.exists() {
            done.known += 1;
            continue;
        }
        cache.filled(part, name, |into| {
            let mut file = File::create(into).map_err(ImageError::io(into))?;
            std::io::copy(&mut entry, &mut file).map_err(unreadable)?;
            if sha256_file(into)? != member.sha256 {
                return Err(wrong(&format!("{} is not what its checksum says", member.path)));
            }
            mode(into, if part == programs::PART { 0o755 } else { 0o644 })
        })?;
        done.new += 1;
        done.bytes += member.size;
    }
    match rest.next() {
        Some(missing) => Err(wrong(&format!("it is cut off: {} is missing", missing.path))),
        None => Ok(done),
    }
}

fn mode(path: &Path, mode: u32) -> Result<(), ImageError> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(ImageError::io(path))
}

/// Part and name, if it is a place in the cache where a bundle may put something.
fn place(path: &str) -> Option<(&'static str, &str)> {
    let (part, name) = path.split_once('/')?;
    let part = [programs::PART, os::PART].into_iter().find(|known| *known == part)?;
    let plain = matches!(Path::new(name).components().collect::<Vec<_>>()[..], [Component::Normal(_)]);
    (plain && !name.starts_with('.')).then_some((part, name))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// A bundle of two files, of a cache that has nothing else.
    fn bundle(folder: &Path) -> (Index, std::path::PathBuf) {
        let cache = Cache::at(folder.join("one"));
        let mut index = Index { version: VERSION, files: Vec::new() };
        for (path, text) in [("programs/node-1", "program"), ("os/lab-iso-1.iso", "medium")] {
            let (part, name) = place(path).unwrap();
            let file = cache.filled(part, name, |into| fs::write(into, text).map_err(ImageError::io(into))).unwrap();
            let size = text.len() as u64;
            index.files.push(Member { path: path.to_owned(), sha256: sha256_file(&file).unwrap(), size });
        }
        let file = folder.join("bundle.tar");
        write(&index, &cache, &File::create(&file).unwrap()).unwrap();
        (index, file)
    }

    #[test]
    fn what_one_machine_has_built_another_one_has_after_the_import() {
        let folder = tempfile::tempdir().unwrap();
        let (_, file) = bundle(folder.path());
        let cache = Cache::at(folder.path().join("two"));
        assert_eq!(import(&cache, &file).unwrap(), Imported { new: 2, known: 0, bytes: 13 });
        assert_eq!(fs::read_to_string(cache.place("os", "lab-iso-1.iso").unwrap()).unwrap(), "medium");
        use std::os::unix::fs::PermissionsExt as _;
        let program = fs::metadata(cache.place("programs", "node-1").unwrap()).unwrap();
        assert_eq!(program.permissions().mode() & 0o777, 0o755);
        assert_eq!(import(&cache, &file).unwrap(), Imported { new: 0, known: 2, bytes: 0 });
    }

    #[test]
    fn what_is_cut_off_or_changed_is_refused_and_leaves_no_half() {
        let folder = tempfile::tempdir().unwrap();
        let (mut index, file) = bundle(folder.path());
        let bytes = fs::read(&file).unwrap();
        let refused = |bytes: &[u8], expected: &str| {
            let (other, cache) = (folder.path().join("other.tar"), Cache::at(folder.path().join("three")));
            fs::write(&other, bytes).unwrap();
            let error = import(&cache, &other).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("other.tar"), "{error}");
            let left = fs::read_dir(cache.root().join("os")).into_iter().flatten().count();
            assert_eq!(left, 0, "a medium that is not whole is not there");
            let _ = fs::remove_dir_all(cache.root());
        };
        refused(b"", "empty");
        refused(b"no archive at all, and long enough to be looked at", "no bundle");
        refused(&bytes[..bytes.len() / 2], "cut off");
        refused(&bytes[..700], "not all of one");
        let at = bytes.windows(6).rposition(|part| part == b"medium").unwrap();
        let mut changed = bytes.clone();
        changed[at] = b'M';
        refused(&changed, "os/lab-iso-1.iso is not what its checksum says");
        index.version = 9;
        let newer = folder.path().join("newer.tar");
        write(&index, &Cache::at(folder.path().join("one")), &File::create(&newer).unwrap()).unwrap();
        refused(&fs::read(&newer).unwrap(), "version 9, and this program reads 1");
    }

    #[rstest]
    #[case("os/x.iso", Some(("os", "x.iso")))]
    #[case("os/../programs/x", None)]
    #[case("os/.part-x", None)]
    #[case("packages/x.deb", None)]
    #[case("/etc/passwd", None)]
    #[case("x", None)]
    fn only_some_places_can_be_filled(#[case] path: &str, #[case] expected: Option<(&'static str, &str)>) {
        assert_eq!(place(path), expected);
    }
}
