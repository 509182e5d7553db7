//! The image service over loopback sockets, with the real core.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rstest::rstest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use vlab_api::http::{Method, Request, Response};
use vlab_client::{Endpoint, HttpConnection};

use super::*;
use crate::store::MemoryStore;
use vlab_image_service::base::BaseImage;
use vlab_image_service::testing::{Live, noise};

const API: &str = "/api/assisted-install/v2";
const SECRET: &str = r#"{"auths":{"quay.io":{"auth":"dXNlcjpwYXNz"}}}"#;
const BUDGET: Duration = Duration::from_secs(20);

struct Service {
    address: SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
    dir: tempfile::TempDir,
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn os_image(words: &str, path: &Path) -> OsImage {
    format!("{words}iso={}", path.display()).parse().unwrap()
}

fn options(images: Vec<OsImage>) -> ServeOptions<MemoryStore> {
    let config = CoreConfig {
        settings: vlab_model::settings::Settings::default(),
        seed: 1,
        base_url: String::new(),
        image_service_url: String::new(),
        alteration: None,
    };
    let listen = Listen::Address(([127, 0, 0, 1], 0).into());
    ServeOptions { images, ..ServeOptions::new(listen, MemoryStore::default(), config) }
}

impl Service {
    async fn start(images: impl FnOnce(&Path) -> Vec<OsImage>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (ready, is_ready) = oneshot::channel();
        let shutdown = CancellationToken::new();
        let options = ServeOptions { ready: Some(ready), ..options(images(dir.path())) };
        let task = tokio::spawn(serve(options, shutdown.clone()));
        Self { address: is_ready.await.unwrap(), shutdown, task, dir }
    }

    /// With the small live image for every version.
    async fn small() -> Self {
        Self::start(|dir| vec![os_image("", &write(dir, "live.iso", &Live::default().image()))]).await
    }

    async fn send(&self, request: Request) -> Response {
        HttpConnection::new(Endpoint::new(self.address)).send(&request, BUDGET).await.unwrap()
    }

    async fn get(&self, path: &str) -> Response {
        self.send(Request::new(Method::Get, path)).await
    }

    /// A new infra-env; gives it back as the service shows it.
    async fn infra_env(&self, more: serde_json::Value) -> serde_json::Value {
        let mut body = serde_json::json!({"name": "lab", "pull_secret": SECRET, "openshift_version": "4.20"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let response = self.send(Request::new(Method::Post, format!("{API}/infra-envs")).json(&body)).await;
        assert_eq!(response.status, 201, "{}", text(&response));
        serde_json::from_slice(&response.body).unwrap()
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

fn path_of(url: &str) -> &str {
    let after = url.strip_prefix("http://").unwrap();
    &after[after.find('/').unwrap()..]
}

/// The config in a compressed archive that begins `bytes`.
fn config(bytes: &[u8]) -> String {
    let mut archive = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut archive).unwrap();
    assert_eq!(&archive[110..121], b"config.ign\0");
    let size = usize::from_str_radix(std::str::from_utf8(&archive[54..62]).unwrap(), 16).unwrap();
    String::from_utf8(archive[124..124 + size].to_vec()).unwrap()
}

#[tokio::test]
async fn the_download_url_gives_an_image_with_the_infra_envs_own_ignition() {
    let service = Service::small().await;
    let base = Live::default().image();
    let arguments = serde_json::json!([{"operation": "append", "value": "a=b"}, {"operation": "append", "value": "c"}]);
    let made = service.infra_env(serde_json::json!({"kernel_arguments": arguments})).await;
    let id = made["id"].as_str().unwrap();
    let url = made["download_url"].as_str().unwrap();
    assert_eq!(url, format!("http://{}/byid/{id}/4.20/x86_64/full.iso", service.address));

    let image = service.get(path_of(url)).await;
    assert_eq!(image.status, 200);
    let ignition = service.get(&format!("{API}/infra-envs/{id}/downloads/files?file_name=discovery.ign")).await;
    for (name, expected) in [
        ("content-disposition", format!("attachment; filename={id}-discovery.iso")),
        ("content-length", base.len().to_string()),
        ("content-type", "application/octet-stream".to_owned()),
        ("accept-ranges", "bytes".to_owned()),
        ("last-modified", ignition.get_header("last-modified").unwrap().to_owned()),
    ] {
        assert_eq!(image.get_header(name), Some(expected.as_str()), "{name}");
    }
    let structure = BaseImage::read(&base).unwrap();
    let area = structure.ignition_area();
    assert_eq!(config(&image.body[area.offset as usize..]), text(&ignition));
    let kargs = structure.kargs_areas();
    assert_eq!(kargs.len(), 2);
    for place in kargs {
        assert!(image.body[place.offset as usize..].starts_with(b" a=b c\n####"));
    }
    // Nowhere else is it different.
    let mut rest = image.body.to_vec();
    for place in kargs.iter().chain([&area]) {
        let range = place.offset as usize..(place.offset + place.len) as usize;
        rest[range.clone()].copy_from_slice(&base[range]);
    }
    assert!(rest == base);

    // Every other way to the same image.
    let json = format!("{{\"infra_env_id\":\"{id}\"}}");
    let token = format!("e30.{}.c2ln", base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, json));
    for path in [
        format!("/byapikey/{token}/4.20/x86_64/full.iso"),
        format!("/bytoken/{token}/4.20/x86_64/full.iso"),
        format!("/images/{id}?version=4.20&type=full-iso"),
    ] {
        assert!(service.get(&path).await.body == image.body, "{path}");
    }

    // Parts, and nothing when nothing changed.
    let path = path_of(url);
    let asked = |name: &str, value: &str| Request::new(Method::Get, path).header(name, value);
    let part = service.send(asked("range", "bytes=32768-33000")).await;
    assert_eq!((part.status, part.get_header("content-length")), (206, Some("233")));
    assert_eq!(part.get_header("content-range"), Some(format!("bytes 32768-33000/{}", base.len()).as_str()));
    assert!(part.body == image.body[32768..=33000]);
    let parts = service.send(asked("range", "bytes=0-1,-2")).await;
    assert_eq!(parts.status, 206);
    assert!(parts.get_header("content-type").unwrap().starts_with("multipart/byteranges; boundary="));
    let modified = image.get_header("last-modified").unwrap();
    let same = service.send(asked("if-modified-since", modified)).await;
    assert_eq!((same.status, same.body.len()), (304, 0));
    let behind = service.send(asked("range", "bytes=99999999-")).await;
    let none = format!("bytes */{}", base.len());
    assert_eq!((behind.status, behind.get_header("content-range")), (416, Some(none.as_str())));

    // HEAD says the length and sends nothing.
    let head = service.send(Request::new(Method::Head, path)).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.get_header("content-length"), Some(base.len().to_string().as_str()));
    service.stop().await;
}

#[tokio::test]
async fn minimal_images_and_network_boot_have_the_proxy_in_their_ram_disk() {
    let service = Service::small().await;
    let proxy = serde_json::json!({"http_proxy": "http://u:p%40@proxy:3128", "no_proxy": "lab"});
    let made = service.infra_env(serde_json::json!({"image_type": "minimal-iso", "proxy": proxy})).await;
    let id = made["id"].as_str().unwrap();
    let archive = service.get(&format!("{API}/infra-envs/{id}/downloads/minimal-initrd")).await;
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(archive.body.as_slice()).read_to_end(&mut unpacked).unwrap();
    let unpacked = String::from_utf8(unpacked).unwrap();
    assert!(unpacked.contains("/etc/systemd/system/coreos-livepxe-rootfs.service.d/10-proxy.conf\0"));
    assert!(
        unpacked.contains("[Service]\nEnvironment=http_proxy=http://u:p%%40@proxy:3128\nEnvironment=https_proxy=\n")
    );

    let url = made["download_url"].as_str().unwrap();
    assert!(url.ends_with("/4.20/x86_64/minimal.iso"));
    let image = service.get(path_of(url)).await;
    assert_eq!(image.status, 200);
    let structure = BaseImage::read(&image.body[..]).unwrap();
    let custom = structure.iso.place("images/assisted_installer_custom.img").unwrap();
    assert!(image.body[custom.offset as usize..].starts_with(&archive.body));
    let grub = structure.iso.contents(&image.body[..], "EFI/redhat/grub.cfg", 1 << 20).unwrap().unwrap();
    let grub = String::from_utf8(grub).unwrap();
    let rootfs = grub.split("coreos.live.rootfs_url=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(rootfs, format!("http://{}/boot-artifacts/rootfs?arch=x86_64&version=any", service.address));

    // What the image will fetch, and the other artifacts.
    let file = |name: &str| Live::default().files().into_iter().find(|(n, _)| *n == name).unwrap().1;
    for (path, name, expected) in [
        (path_of(rootfs), "rootfs.img", file("images/pxeboot/rootfs.img")),
        ("/boot-artifacts/kernel?version=4.20", "vmlinuz", file("images/pxeboot/vmlinuz")),
    ] {
        let artifact = service.get(path).await;
        assert_eq!(artifact.status, 200, "{path}");
        assert_eq!(artifact.get_header("content-disposition"), Some(format!("attachment; filename={name}").as_str()));
        assert!(artifact.get_header("last-modified").is_some());
        assert!(artifact.body == expected, "{path}");
    }

    // The RAM disk for network boot: the image's, the ignition, the archive.
    let initrd = service.get(&format!("/images/{id}/pxe-initrd?version=4.20&arch=x86_64")).await;
    assert_eq!(
        initrd.get_header("content-disposition"),
        Some(format!("attachment; filename={id}-initrd.img").as_str())
    );
    let own = file("images/pxeboot/initrd.img");
    assert!(initrd.body.starts_with(&own) && initrd.body.ends_with(&archive.body));
    let ignition = service.get(&format!("{API}/infra-envs/{id}/downloads/files?file_name=discovery.ign")).await;
    assert_eq!(config(&initrd.body[own.len()..]), text(&ignition));

    // The script of the infra-env points here.
    let script = service.get(&format!("{API}/infra-envs/{id}/downloads/files?file_name=ipxe-script")).await;
    let script = text(&script);
    let kernel = script.split("kernel ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(service.get(path_of(kernel)).await.body == file("images/pxeboot/vmlinuz"), "{script}");
    service.stop().await;
}

#[tokio::test]
async fn refusals_say_what_to_do() {
    let service = Service::start(|dir| {
        let file = write(dir, "live.iso", &Live { without: &["isolinux/isolinux.cfg"], ..Live::default() }.image());
        vec![os_image("version=416.94,openshift=4.16,", &file)]
    })
    .await;
    let made = service.infra_env(serde_json::json!({})).await;
    let id = made["id"].as_str().unwrap();
    let nobody = "0f0e0d0c-1111-2222-3333-444455556666";
    let other = "version for 4.99 x86_64, not found; there is 416.94 (4.16) x86_64";
    let artifact = format!("Failed to parse query parameters: {other}");
    for (path, status, why) in [
        (format!("/byid/{id}/4.99/x86_64/full.iso"), 404, other),
        (format!("/images/{id}/pxe-initrd?version=4.99"), 400, other),
        ("/boot-artifacts/kernel?version=4.99".to_owned(), 400, artifact.as_str()),
        (format!("/byid/{nobody}/4.16/x86_64/full.iso"), 404, "the service answered 404"),
        (format!("/images/{nobody}/pxe-initrd?version=4.16"), 404, "the service answered 404"),
        (
            format!("/byid/{id}/4.16/x86_64/minimal.iso"),
            500,
            "there is no minimal image: the image has no isolinux/isolinux.cfg",
        ),
        (format!("/byid/{id}/4.16/x86_64/disconnected.iso"), 500, "there is no OS image of type disconnected-iso"),
        (format!("/byid/{id}/4.16/x86_64/half.iso"), 404, "unrecognized file name half.iso"),
    ] {
        let response = service.get(&path).await;
        assert_eq!(response.status, status, "{path}: {}", text(&response));
        assert!(text(&response).starts_with(why), "{path}: {}", text(&response));
    }
    let posted = service.send(Request::new(Method::Post, "/boot-artifacts/kernel?version=4.16")).await;
    assert_eq!((posted.status, posted.body.len()), (405, 0));
    // By the version of OpenShift or of the image.
    for version in ["4.16", "416.94"] {
        assert_eq!(service.get(&format!("/byid/{id}/{version}/x86_64/full.iso")).await.status, 200);
    }
    // Kernel arguments have no place in an image without its boot loader's file.
    let arguments = serde_json::json!([{"operation": "append", "value": "a"}]);
    let made = service.infra_env(serde_json::json!({"kernel_arguments": arguments})).await;
    let path = format!("/byid/{}/4.16/x86_64/full.iso", made["id"].as_str().unwrap());
    let response = service.get(&path).await;
    assert_eq!(
        (response.status, text(&response).trim_end()),
        (500, "the image has no place for kernel arguments: there is no /isolinux/isolinux.cfg")
    );
    assert_eq!(service.get("/live").await.status, 200);
    service.stop().await;
}

#[tokio::test]
async fn without_an_os_image_the_answer_says_what_to_set() {
    let service = Service::start(|_| Vec::new()).await;
    let made = service.infra_env(serde_json::json!({})).await;
    assert_eq!(made.get("download_url"), None, "there is nothing to download");
    let response = service.get(&format!("/byid/{}/4.20/x86_64/full.iso", made["id"].as_str().unwrap())).await;
    let why = "no OS image is configured: start the service with `--os-image iso=FILE`, or set OS_IMAGES";
    assert_eq!((response.status, text(&response).trim_end()), (404, why));
    service.stop().await;
}

#[tokio::test]
async fn a_config_that_does_not_fit_is_an_error_and_not_a_cut_config() {
    let service = Service::start(|dir| {
        let file = Live { with: vec![("images/ignition.img", vec![0; 1024])], ..Live::default() };
        vec![os_image("", &write(dir, "live.iso", &file.image()))]
    })
    .await;
    let made = service.infra_env(serde_json::json!({})).await;
    let response = service.get(path_of(made["download_url"].as_str().unwrap())).await;
    assert_eq!(response.status, 500);
    assert!(text(&response).contains(") exceeds embed area size (1024)"), "{}", text(&response));
    service.stop().await;
}

#[rstest]
#[case::none(None, "cannot be opened: No such file or directory (os error 2)")]
#[case::something(Some(vec![1; 5000]), "is not an ISO 9660 image: there is no volume descriptor CD001 at byte 32768")]
#[tokio::test]
async fn a_service_with_a_bad_image_does_not_start(#[case] bytes: Option<Vec<u8>>, #[case] why: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("live.iso");
    if let Some(bytes) = bytes {
        write(dir.path(), "live.iso", &bytes);
    }
    let error = serve(options(vec![os_image("", &path)]), CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("the OS image {} {why}", path.display()));
}

/// A large image, most of it a hole: what it holds does not matter.
fn large(dir: &Path, bytes: u64) -> PathBuf {
    let small = Live::default().image();
    let path = write(dir, "large.iso", &small);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(bytes).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_byte_of_a_large_image_comes_at_once_and_nothing_is_written_to_disk() {
    const LEN: u64 = 8 << 30;
    let service = Service::start(|dir| vec![os_image("", &large(dir, LEN))]).await;
    let before: Vec<_> = std::fs::read_dir(service.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    let mut took = Vec::new();
    for _ in 0..10 {
        let made = service.infra_env(serde_json::json!({})).await;
        let path = path_of(made["download_url"].as_str().unwrap()).to_owned();
        let mut stream = TcpStream::connect(service.address).await.unwrap();
        let start = Instant::now();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        let mut seen = Vec::new();
        let mut chunk = vec![0; 4096];
        while !seen.windows(4).any(|w| w == b"\r\n\r\n") || seen.ends_with(b"\r\n\r\n") {
            let count = stream.read(&mut chunk).await.unwrap();
            assert_ne!(count, 0, "the answer ended early");
            seen.extend_from_slice(&chunk[..count]);
        }
        took.push(start.elapsed());
        assert!(String::from_utf8_lossy(&seen).contains(&format!("content-length: {LEN}\r\n")));
        // The client has seen enough; the service reads no more for it.
    }
    took.sort();
    println!("first byte of an image of 8 GiB for a new infra-env: {:?} at best, median {:?}", took[0], took[5]);
    // The best of ten, and far above the 10 ms that it takes: a busy machine must not fail this, a copy of the image would.
    assert!(took[0] <= Duration::from_secs(1), "{took:?}");
    let after: Vec<_> = std::fs::read_dir(service.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(after, before);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_base_image_that_shrinks_breaks_the_download_off() {
    let service = Service::start(|dir| vec![os_image("", &large(dir, 64 << 20))]).await;
    let made = service.infra_env(serde_json::json!({})).await;
    let path = path_of(made["download_url"].as_str().unwrap()).to_owned();
    let file = std::fs::OpenOptions::new().write(true).open(service.dir.path().join("large.iso")).unwrap();
    file.set_len(32 << 20).unwrap();
    let request = Request::new(Method::Get, path);
    let result = HttpConnection::new(Endpoint::new(service.address)).send(&request, BUDGET).await;
    assert!(result.is_err(), "an image that is not whole looks whole");
    // Everything else goes on.
    assert_eq!(service.get("/boot-artifacts/kernel?version=4.20").await.body.len(), 50_000);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_slow_clients_cost_little_memory() {
    let service = Service::start(|dir| vec![os_image("", &large(dir, 1 << 30))]).await;
    let made = service.infra_env(serde_json::json!({})).await;
    let path = path_of(made["download_url"].as_str().unwrap()).to_owned();
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    };
    let before = resident();
    let mut clients = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(service.address).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).await.unwrap();
        clients.push(stream);
    }
    let more = resident().saturating_sub(before);
    // Two chunks of 256 KiB each, and what hyper keeps; an image has 1 GiB.
    assert!(more < 64 * (2 << 20), "64 clients cost {} MiB", more >> 20);
    // They are not in the way of others.
    assert_eq!(service.get("/boot-artifacts/kernel?version=4.20").await.body, noise(5, 50_000));
    drop(clients);
    service.stop().await;
}
