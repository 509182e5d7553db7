//! Debian packages: from names to exact versions ([`resolve`]), from those to files ([`fetch`]) and to what is in them
//! ([`contents`]). Nothing is installed: no script of a package runs, no root is needed, the machine's own packages do not
//! count. `apt` does the choosing and the fetching, so that its proxies and its signatures count; `dpkg-deb` opens.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::ImageError;
use crate::cache::{Cache, sha256_file};
use crate::manifest::{Debian, Manifest, Set};

/// apt's own fetcher: no list, no database, one file, and the checksum is looked at.
const APT_HELPER: &str = "/usr/lib/apt/apt-helper";

/// A package, exactly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// Name of the Debian package.
    pub name: String,
    /// Version of the Debian package.
    pub version: String,
    /// The archive that offers it: a key of [`Debian::archives`].
    pub archive: String,
    /// Its file, from the root of the archive.
    pub path: String,
    /// Size of the file in bytes.
    pub size: u64,
    /// SHA-256 of the file.
    pub sha256: String,
}

impl Package {
    fn failed(&self, problem: impl Into<String>) -> ImageError {
        ImageError::Package { package: format!("{} {}", self.name, self.version), problem: problem.into() }
    }
}

/// What a set means today: its packages and all that they depend on, without what the set leaves out. Asks Debian's servers;
/// whatever is installed on this machine does not count. The lists of packages are kept in the cache.
///
/// # Errors
/// No `apt-get`, no network, no such package.
pub fn resolve(cache: &Cache, debian: &Debian, set: &Set) -> Result<Vec<Package>, ImageError> {
    let config = private_apt(cache, debian)?;
    let names: Vec<&str> = set.packages.iter().map(String::as_str).collect();
    let out = apt(&config, &[&["install", "--print-uris", "-y", "-qq"][..], &names].concat())?;
    let mut found = Vec::new();
    for line in out.lines().filter(|line| line.starts_with('\'')) {
        let package = from_uri_line(debian, line)?;
        if set.takes(&package.name) {
            found.push(package);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    for name in &set.packages {
        if !found.iter().any(|package| package.name == *name) {
            return Err(ImageError::Package {
                package: name.clone(),
                problem: "apt chose none of that name (a virtual package? name one that provides it)".to_owned(),
            });
        }
    }
    Ok(found)
}

/// Fetches the lists of packages anew. Call it once before [`resolve`].
///
/// # Errors
/// No `apt-get`, no network.
pub fn update(cache: &Cache, debian: &Debian) -> Result<(), ImageError> {
    apt(&private_apt(cache, debian)?, &["update", "-qq"]).map(|_| ())
}

/// `'http://host/debian/pool/main/d/dash/dash_0.5-2_amd64.deb' dash_0.5-2_amd64.deb 91848 SHA256:33ea…`
fn from_uri_line(debian: &Debian, line: &str) -> Result<Package, ImageError> {
    let strange = || ImageError::Program { program: "apt-get".to_owned(), problem: format!("strange answer: {line}") };
    let mut words = line.split_whitespace();
    let uri = words.next().and_then(|w| w.strip_prefix('\'')?.strip_suffix('\'')).ok_or_else(strange)?;
    let file = words.next().ok_or_else(strange)?;
    let size = words.next().and_then(|w| w.parse().ok()).ok_or_else(strange)?;
    let sha256 = words.next().and_then(|w| w.strip_prefix("SHA256:")).ok_or_else(strange)?.to_owned();
    let mut parts = file.split('_');
    let (name, version) = (parts.next().ok_or_else(strange)?, parts.next().ok_or_else(strange)?);
    // The longest name first: `debian` is the beginning of `debian-security`.
    let mut archives: Vec<&String> = debian.archives.keys().collect();
    archives.sort_by_key(|name| std::cmp::Reverse(name.len()));
    let (archive, path) = archives
        .into_iter()
        .find_map(|archive| uri.split_once(&format!("/{archive}/")).map(|(_, path)| (archive.clone(), path.to_owned())))
        .ok_or_else(strange)?;
    Ok(Package { name: name.to_owned(), version: version.replace("%3a", ":"), archive, path, size, sha256 })
}

/// A configuration of apt that knows nothing of this machine's packages.
fn private_apt(cache: &Cache, debian: &Debian) -> Result<PathBuf, ImageError> {
    let config = cache.place("apt", "apt.conf")?;
    let root = cache.root().join("apt");
    for folder in ["lists/partial", "archives/partial"] {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).map_err(ImageError::io(&folder))?;
    }
    let write = |name: &str, text: String| {
        let path = root.join(name);
        fs::write(&path, text).map_err(ImageError::io(&path))
    };
    let base = debian.mirrors.first().ok_or_else(|| ImageError::Manifest("there is no mirror".to_owned()))?;
    let mut sources = String::new();
    for (archive, suites) in &debian.archives {
        let base = base.replace("{archive}", archive);
        for suite in suites {
            sources += &format!("deb [signed-by={}] {base} {suite} main\n", debian.keyring);
        }
    }
    write("sources.list", sources)?;
    write("status", String::new())?;
    let at = |name: &str| root.join(name).display().to_string();
    write(
        "apt.conf",
        format!(
            "Dir::State \"{}\";\nDir::State::Lists \"{}\";\nDir::State::status \"{}\";\nDir::Cache \"{}\";\n\
             Dir::Cache::archives \"{}\";\nDir::Etc::sourcelist \"{}\";\nDir::Etc::sourceparts \"/dev/null\";\n\
             Dir::Etc::preferencesparts \"/dev/null\";\nAPT::Architecture \"{arch}\";\n\
             APT::Architectures {{ \"{arch}\"; }};\nAPT::Install-Recommends \"false\";\n\
             Acquire::Languages \"none\";\nAcquire::ForceHash \"SHA256\";\nDebug::NoLocking \"true\";\n",
            root.display(),
            at("lists"),
            at("status"),
            root.display(),
            at("archives"),
            at("sources.list"),
            arch = debian.architecture,
        ),
    )?;
    Ok(config)
}

fn apt(config: &Path, args: &[&str]) -> Result<String, ImageError> {
    let mut command = Command::new("apt-get");
    // Fetching as the user `_apt` would need a cache that it can enter.
    command.arg("-c").arg(config).args(["-o", "APT::Sandbox::User="]).args(args);
    output("apt-get", command)
}

fn output(program: &str, mut command: Command) -> Result<String, ImageError> {
    let failed = |problem: String| ImageError::Program { program: program.to_owned(), problem };
    let out = command.env("LC_ALL", "C").stdin(Stdio::null()).output().map_err(|error| {
        failed(format!(
            "cannot be started ({error}): packages are opened with the tools of Debian or Ubuntu (apt, dpkg)"
        ))
    })?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        let last: Vec<&str> = said.trim().lines().rev().take(3).collect();
        return Err(failed(format!("{}: {}", out.status, last.into_iter().rev().collect::<Vec<_>>().join("; "))));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The package's file, from the cache or from the first mirror that has exactly this one. `VLAB_DEBIAN_MIRROR` (a folder's
/// address that holds the archives, for example `http://deb.debian.org`) is asked before those of the manifest.
///
/// # Errors
/// No mirror has it, or it is not the one that the manifest means.
pub fn fetch(cache: &Cache, manifest: &Manifest, package: &Package) -> Result<PathBuf, ImageError> {
    cache.filled("packages", &format!("{}.deb", package.sha256), |into| {
        let own = std::env::var("VLAB_DEBIAN_MIRROR").ok().filter(|mirror| !mirror.is_empty());
        let own = own.map(|mirror| format!("{}/{{archive}}", mirror.trim_end_matches('/')));
        let mut problems = Vec::new();
        for mirror in own.iter().chain(&manifest.debian.mirrors) {
            let base = mirror.replace("{archive}", &package.archive).replace("{snapshot}", &manifest.snapshot);
            // apt removes what `file:` names when it has another checksum; `copy:` leaves a mirror on this machine alone.
            let uri = format!("{base}/{}", package.path).replacen("file://", "copy://", 1);
            let mut command = Command::new(APT_HELPER);
            command
                .args(["-o", "APT::Sandbox::User=", "download-file", &uri])
                .arg(into)
                .arg(format!("SHA256:{}", package.sha256));
            match output("apt-helper", command) {
                // Whatever the fetcher says: the checksum is what this build is about.
                Ok(_) if sha256_file(into)? == package.sha256 => return Ok(()),
                Ok(_) => problems.push(format!("{uri}: not the file that images.yaml means")),
                Err(error) => problems.push(format!("{uri}: {error}")),
            }
        }
        Err(package.failed(format!(
            "no mirror has it; Debian keeps only the newest version of each, `cargo xtask images --update` takes \
             those\n  {}",
            problems.join("\n  ")
        )))
    })
}

/// The files of a package as a plain tar archive in the cache, for [`Rootfs::add_tar`](crate::rootfs::Rootfs::add_tar).
///
/// # Errors
/// Those of [`fetch`], and a file that `dpkg-deb` cannot open.
pub fn contents(cache: &Cache, manifest: &Manifest, package: &Package) -> Result<PathBuf, ImageError> {
    cache.filled("contents", &format!("{}.tar", package.sha256), |into| {
        let deb = fetch(cache, manifest, package)?;
        let file = fs::File::create(into).map_err(ImageError::io(into))?;
        let status =
            Command::new("dpkg-deb").arg("--fsys-tarfile").arg(&deb).stdin(Stdio::null()).stdout(file).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(package.failed(format!("dpkg-deb cannot open it: {status}"))),
            Err(error) => Err(package.failed(format!("dpkg-deb cannot be started: {error}"))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_apt_says_about_a_package_is_understood() {
        let debian = Manifest::built_in().unwrap().debian;
        let line = "'http://x/debian-security/pool/updates/main/z/zlib/zlib1g_1%3a1.2.13.dfsg-1_amd64.deb' \
                    zlib1g_1%3a1.2.13.dfsg-1_amd64.deb 86684 SHA256:d7dd";
        let package = from_uri_line(&debian, line).unwrap();
        assert_eq!((package.name.as_str(), package.version.as_str()), ("zlib1g", "1:1.2.13.dfsg-1"));
        assert_eq!(package.archive, "debian-security");
        assert_eq!(package.path, "pool/updates/main/z/zlib/zlib1g_1%3a1.2.13.dfsg-1_amd64.deb");
        assert_eq!(package.size, 86684);
        assert!(from_uri_line(&debian, "'http://x/y' a_1_all.deb 5 MD5Sum:ff").is_err(), "no weak checksum");
    }

    #[test]
    fn a_mirror_without_the_package_is_an_error_that_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::built_in().unwrap();
        manifest.debian.mirrors = vec![format!("file://{}/{{archive}}", folder.path().display())];
        let package = Package {
            name: "gone".into(),
            version: "1".into(),
            archive: "debian".into(),
            path: "pool/gone_1_all.deb".into(),
            size: 4,
            sha256: crate::cache::sha256(b"that"),
        };
        let cache = Cache::at(folder.path().join("cache"));
        let error = fetch(&cache, &manifest, &package).unwrap_err().to_string();
        assert!(error.contains("gone 1") && error.contains("--update"), "{error}");
        let file = folder.path().join("debian/pool/gone_1_all.deb");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "this").unwrap();
        assert!(fetch(&cache, &manifest, &package).is_err(), "another file is not taken");
        fs::write(&file, "that").unwrap();
        let found = fetch(&cache, &manifest, &package).unwrap();
        assert_eq!(fs::read_to_string(&found).unwrap(), "that");
        fs::remove_file(&file).unwrap();
        assert_eq!(fetch(&cache, &manifest, &package).unwrap(), found, "a fetched one is not fetched again");
    }
}
