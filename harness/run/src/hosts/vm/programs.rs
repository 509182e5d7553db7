//! Programs that a run gives its machines: whether they can run there, and the pages from which machines fetch them.

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
            X86_64 => Ok(()),
            other => Err(format!("is a program for another processor (ELF machine {other}): lab machines are x86_64")),
        },
        _ => Err("is not a program: expected an ELF file for x86_64".to_owned()),
    }
}

/// Serves these files, by the path of their page, until it is given up.
///
/// # Errors
/// When no connection can be accepted any more.
pub async fn serve(listener: StdListener, pages: BTreeMap<String, PathBuf>) -> io::Result<()> {
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

async fn page<B>(pages: &BTreeMap<String, PathBuf>, request: &hyper::Request<B>) -> hyper::Response<Full<Bytes>> {
    let (status, body) = match pages.get(request.uri().path()) {
        None => (hyper::StatusCode::NOT_FOUND, Bytes::from_static(b"the run gives no such program\n")),
        Some(file) => match tokio::fs::read(file).await {
            Ok(content) => (hyper::StatusCode::OK, Bytes::from(content)),
            Err(error) => {
                let why = format!("{}: {error}\n", file.display());
                (hyper::StatusCode::INTERNAL_SERVER_ERROR, Bytes::from(why))
            }
        },
    };
    let mut response = hyper::Response::new(Full::new(body));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_client::{Endpoint, download};

    use super::*;

    fn elf(machine: u16) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(18, 0);
        bytes.extend(machine.to_le_bytes());
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
        let serving = tokio::spawn(serve(listener, BTreeMap::from([("/node-0/agent".to_owned(), file)])));
        let mut got = Vec::new();
        let patience = std::time::Duration::from_secs(10);
        download(&endpoint, "/node-0/agent", &mut got, patience).await.unwrap();
        assert_eq!(got, elf(X86_64));
        let refused = download(&endpoint, "/node-1/agent", &mut got, patience).await.unwrap_err().to_string();
        assert!(refused.contains("404"), "{refused}");
        serving.abort();
    }
}
