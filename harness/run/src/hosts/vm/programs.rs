//! Programs that a run gives its machines: whether they can run there, where a folder has them, and the pages from which machines
//! fetch them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::TcpListener as StdListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use vlab_agents::archive::tar_gz;
use vlab_drive::prepare::RealNode;

/// Bytes at the beginning of an ELF file that say what it is for.
const ELF_HEADER: usize = 20;
/// `e_machine` of x86_64.
const X86_64: u16 = 62;

/// Can that file run on a machine of the lab?
///
/// # Errors
/// Why not, as the end of a sentence that begins with its name.
pub fn runs(program: &Path) -> Result<(), String> {
    let unreadable = |e: io::Error| format!("cannot be read: {e}");
    let about = std::fs::metadata(program).map_err(unreadable)?;
    if !about.is_file() {
        return Err("is not a file: give the program itself".to_owned());
    }
    if about.permissions().mode() & 0o111 == 0 {
        return Err("is not executable: is it the program? then `chmod +x` it".to_owned());
    }
    let mut header = Vec::new();
    let file = File::open(program).map_err(unreadable)?;
    file.take(ELF_HEADER as u64).read_to_end(&mut header).map_err(unreadable)?;
    match header.get(18..ELF_HEADER) {
        Some(machine) if header.starts_with(b"\x7fELF\x02\x01") => match u16::from_le_bytes([machine[0], machine[1]]) {
            X86_64 => {}
            other => {
                return Err(format!(
                    "is a program for another processor (ELF machine {other}): lab machines are x86_64"
                ));
            }
        },
        _ => return Err("is not a program: expected an ELF file for x86_64".to_owned()),
    }
    let content = std::fs::read(program).map_err(unreadable)?;
    match vlab_images::os::lacks(&content) {
        Some(why) => Err(format!("{why}: build it without, as Go does with CGO_ENABLED=0")),
        None => Ok(()),
    }
}

/// The folder beside an installer with the manifests that lie in its image, which it reads there: `deploy` of its source tree, or
/// what is in it.
///
/// # Errors
/// What is missing, as the end of a sentence that begins with the installer's name.
pub fn deploy_folder(installer: &Path) -> Result<PathBuf, String> {
    let beside = installer.parent().unwrap_or(Path::new("")).join("deploy");
    let of_tree = beside.join("assisted-installer-controller");
    let folder = if of_tree.is_dir() { of_tree } else { beside };
    let files = files(&folder).unwrap_or_default();
    if files.iter().any(|(name, _)| name.ends_with(".template")) {
        return Ok(folder);
    }
    let is = if folder.is_dir() { "has no template (*.template)" } else { "is not there" };
    Err(format!(
        "wants the manifests of the controller beside it, as its image has them, and {} {is}: copy the folder `deploy` of its \
         source tree",
        folder.display()
    ))
}

/// Names and texts of the files in a folder, sorted.
fn files(folder: &Path) -> io::Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            all.push((name, std::fs::read_to_string(&path)?));
        }
    }
    all.sort();
    Ok(all)
}

/// Names under which a folder may have each of the programs.
const NAMES: [&[&str]; 3] = [&["agent"], &["installer"], &["assisted-installer-controller", "controller"]];

/// The product's programs in a folder, with the manifests that the installer wants beside it.
///
/// # Errors
/// What is not there, by the names under which it was looked for.
pub fn in_folder(folder: &Path) -> Result<RealNode, String> {
    let found = |names: &[&str]| {
        let files = names.iter().map(|name| folder.join(name));
        { files }.find(|file| file.is_file()).ok_or_else(|| {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            format!("{} has no {}", folder.display(), names.join(" and no "))
        })
    };
    let [agent, installer, controller] = NAMES;
    let given = RealNode {
        // Named again from wherever somebody repeats the run.
        folder: std::path::absolute(folder).map_err(|e| format!("{}: {e}", folder.display()))?,
        agent: found(agent)?,
        installer: found(installer)?,
        controller: found(controller)?,
    };
    deploy_folder(&given.installer).map_err(|why| format!("{} {why}", given.installer.display()))?;
    Ok(given)
}

/// What a run was given whose programs lay in that folder, be they there or not.
pub fn named(folder: &Path) -> RealNode {
    let [agent, installer, controller] = NAMES.map(|names| folder.join(names[0]));
    RealNode { folder: folder.to_owned(), agent, installer, controller }
}

/// What is on a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// This file.
    File(PathBuf),
    /// The files of this folder, as a tar archive.
    Archive(PathBuf),
}

impl Page {
    fn read(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::File(file) => std::fs::read(file),
            Self::Archive(folder) => {
                let files = files(folder)?;
                let files: Vec<(&str, &str)> =
                    files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
                Ok(tar_gz(&files))
            }
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Archive(path) => path,
        }
    }
}

/// Serves these, by the path of their page, until it is given up.
///
/// # Errors
/// When no connection can be accepted any more.
pub async fn serve(listener: StdListener, pages: BTreeMap<String, Page>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let pages = Arc::new(pages);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                let pages = pages.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| {
                        let pages = pages.clone();
                        async move { Ok::<_, Infallible>(page(&pages, &request).await) }
                    });
                    if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await {
                        tracing::debug!(%error, "a machine did not fetch its program to the end");
                    }
                });
            }
        }
    }
}

async fn page<B>(pages: &BTreeMap<String, Page>, request: &hyper::Request<B>) -> hyper::Response<Full<Bytes>> {
    let (status, body) = match pages.get(request.uri().path()) {
        None => (hyper::StatusCode::NOT_FOUND, Bytes::from_static(b"the run gives no such program\n")),
        Some(page) => {
            let (path, page) = (page.path().to_owned(), page.clone());
            let read = tokio::task::spawn_blocking(move || page.read()).await;
            match read.map_err(io::Error::other).flatten() {
                Ok(content) => (hyper::StatusCode::OK, Bytes::from(content)),
                Err(error) => {
                    let why = format!("{}: {error}\n", path.display());
                    (hyper::StatusCode::INTERNAL_SERVER_ERROR, Bytes::from(why))
                }
            }
        }
    };
    let mut response = hyper::Response::new(Full::new(body));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
pub(crate) mod tests {
    use rstest::rstest;
    use vlab_client::{Endpoint, download};

    use super::*;

    fn elf(machine: u16) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(18, 0);
        bytes.extend(machine.to_le_bytes());
        bytes
    }

    /// A program that needs nothing, as Go makes them; as much of it as is looked at.
    pub(crate) fn static_program() -> Vec<u8> {
        let mut bytes = elf(X86_64);
        bytes.resize(64, 0);
        bytes
    }

    #[rstest]
    #[case(elf(X86_64), 0o755, "")]
    #[case(elf(X86_64), 0o644, "is not executable")]
    #[case(elf(183), 0o755, "another processor (ELF machine 183)")]
    #[case(b"#!/bin/sh\n".to_vec(), 0o755, "is not a program")]
    #[case(Vec::new(), 0o755, "is not a program")]
    fn what_runs_on_a_machine(#[case] content: Vec<u8>, #[case] mode: u32, #[case] expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent");
        std::fs::write(&file, content).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let said = runs(&file).err().unwrap_or_default();
        assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{said}");
        assert!(runs(folder.path()).unwrap_err().contains("is not a file"));
        assert!(runs(&folder.path().join("none")).unwrap_err().contains("cannot be read"));
    }

    #[tokio::test]
    async fn a_machine_fetches_its_program() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent");
        std::fs::write(&file, elf(X86_64)).unwrap();
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::new(listener.local_addr().unwrap());
        let page = Page::File(file);
        let serving = tokio::spawn(serve(listener, BTreeMap::from([("/node-0/agent".to_owned(), page)])));
        let mut got = Vec::new();
        let patience = std::time::Duration::from_secs(10);
        download(&endpoint, "/node-0/agent", &mut got, patience).await.unwrap();
        assert_eq!(got, elf(X86_64));
        let refused = download(&endpoint, "/node-1/agent", &mut got, patience).await.unwrap_err().to_string();
        assert!(refused.contains("404"), "{refused}");
        serving.abort();
    }

    #[test]
    fn a_program_that_wants_what_the_lab_os_lacks_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("installer");
        // One segment: the name of a loader, behind the header.
        let mut content = static_program();
        content.resize(64 + 56, 0);
        content[32] = 64;
        content[54] = 56;
        content[56] = 1;
        content[64] = 3;
        let loader = b"/lib/ld-musl-x86_64.so.1\0";
        content[64 + 8] = 120;
        content[64 + 32] = u8::try_from(loader.len()).unwrap();
        content.extend(loader);
        std::fs::write(&file, content).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let why = runs(&file).unwrap_err();
        assert!(why.contains("needs the loader /lib/ld-musl-x86_64.so.1") && why.contains("CGO_ENABLED=0"), "{why}");
    }

    const TEMPLATE: &str = "assisted-installer-controller-cm.yaml.template";

    #[rstest]
    #[case::plain("deploy")]
    #[case::source_tree("deploy/assisted-installer-controller")]
    fn manifests_lie_beside_the_installer(#[case] place: &str) {
        let folder = tempfile::tempdir().unwrap();
        let installer = folder.path().join("installer");
        let why = deploy_folder(&installer).unwrap_err();
        assert!(why.contains("/deploy is not there"), "{why}");
        let place = folder.path().join(place);
        std::fs::create_dir_all(&place).unwrap();
        let why = deploy_folder(&installer).unwrap_err();
        assert!(why.contains("has no template"), "{why}");
        std::fs::write(place.join(TEMPLATE), "{{.}}").unwrap();
        assert_eq!(deploy_folder(&installer), Ok(place.clone()));
        let packed = Page::Archive(place).read().unwrap();
        assert_eq!(packed, tar_gz(&[(TEMPLATE, "{{.}}")]));
    }

    #[test]
    fn a_folder_has_all_programs_or_is_refused_with_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let refused = || in_folder(folder.path()).unwrap_err();
        let file = |name: &str| folder.path().join(name);
        assert!(refused().ends_with(" has no `agent`"), "{}", refused());
        std::fs::write(file("agent"), "").unwrap();
        assert!(refused().ends_with(" has no `installer`"), "{}", refused());
        std::fs::write(file("installer"), "").unwrap();
        assert!(refused().ends_with(" has no `assisted-installer-controller` and no `controller`"), "{}", refused());
        std::fs::write(file("controller"), "").unwrap();
        assert!(refused().contains("/installer wants the manifests of the controller beside it"), "{}", refused());
        std::fs::create_dir(file("deploy")).unwrap();
        std::fs::write(file("deploy").join(TEMPLATE), "").unwrap();
        let controller = |name: &str| assert_eq!(in_folder(folder.path()).unwrap().controller, file(name));
        controller("controller");
        std::fs::write(file("assisted-installer-controller"), "").unwrap();
        controller("assisted-installer-controller");
    }
}
