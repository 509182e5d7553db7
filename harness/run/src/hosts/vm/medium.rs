//! Live ISOs: the lab's own, and the discovery image that the service makes of one.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use uuid::Uuid;
use vlab_client::{DownloadError, Endpoint, download};
use vlab_image_service::iso::Iso;
use vlab_image_service::layout::BaseFile;

use crate::error::{LabError, lab};

/// How long a piece of the discovery image may take to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// The lab's own live ISO, built when it is not there yet. `tell` is told what is being built.
///
/// # Errors
/// It cannot be built here.
pub async fn lab_iso(tell: fn(&str)) -> Result<PathBuf, String> {
    // Minutes, the first time. A thread of its own, which nobody waits for when the program ends.
    let (done, built) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = done.send(build_lab_iso(tell));
    });
    built.await.unwrap_or_else(|_| Err("the build ended without a message".to_owned()))
}

fn build_lab_iso(tell: fn(&str)) -> Result<PathBuf, String> {
    let made = vlab_images::os::current("lab-iso", &|what| tell(&format!("images: {what}")));
    made.map(|made| made.path).map_err(|error| error.to_string())
}

/// Fetches the discovery image; what was done, in words. The address is that of machines, and from here the image service is
/// elsewhere: only its path counts.
pub(super) async fn fetch(images: &Endpoint, url: &str, medium: &Path) -> Result<String, LabError> {
    let path = url.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]));
    let path = path.ok_or_else(|| LabError::new("discovery image", format!("the service names no image: {url:?}")))?;
    let begun = Instant::now();
    let written = async {
        let mut file = tokio::fs::File::create(medium).await?;
        let length = download(images, path, &mut file, PATIENCE).await?;
        file.sync_data().await?;
        Ok::<u64, DownloadError>(length)
    };
    let length = written.await.map_err(lab("discovery image"))?;
    let name = path.split('?').next().unwrap_or_default();
    Ok(format!("fetched {name}: {:.1} MB in {:.1} s", length as f64 / 1e6, begun.elapsed().as_secs_f64()))
}

/// The image service of a service that runs already, if its images lead machines back to it.
pub(super) async fn foreign_images(
    service: &Endpoint,
    base_url: &str,
    infra_env: Uuid,
    download_url: &str,
) -> Result<Endpoint, LabError> {
    let path = format!("/api/assisted-install/v2/infra-envs/{infra_env}/downloads/files?file_name=discovery.ign");
    let mut config = Vec::new();
    download(service, &path, &mut config, PATIENCE).await.map_err(lab("discovery image"))?;
    if !String::from_utf8_lossy(&config).contains(base_url) {
        let error = format!(
            "the images of the service do not name {base_url}, so that machines would not find it: use the URL that is its \
             SERVICE_BASE_URL"
        );
        return Err(LabError::new("discovery image", error));
    }
    let (authority, minimal) =
        (download_url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/"), download_url.contains("minimal"));
    if minimal && authority != base_url {
        let error = format!(
            "a minimal image fetches its root file system from {authority}, which machines do not reach: use `image_type: full-iso`"
        );
        return Err(LabError::new("discovery image", error));
    }
    Endpoint::resolve(&authority).await.map_err(lab("image service"))
}

/// Is that file a live ISO, and all of it?
///
/// # Errors
/// What is wrong with it, as the end of a sentence that begins with its name.
pub fn whole(iso: &Path) -> Result<(), String> {
    let file = BaseFile::open(iso).map_err(|error| format!("cannot be read: {error}"))?;
    Iso::read(&file).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_is_cut_off_or_none_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let said = |name: &str, content: &[u8]| {
            let file = folder.path().join(name);
            std::fs::write(&file, content).unwrap();
            whole(&file).unwrap_err()
        };
        assert!(said("empty.iso", b"").starts_with("is not an ISO 9660 image"));
        assert!(said("page.iso", b"<html>502 Bad Gateway</html>").starts_with("is not an ISO 9660 image"));
        let mut image = vec![0; 40_000];
        image[32768..32774].copy_from_slice(b"\x01CD001");
        image[32768 + 80..32768 + 84].copy_from_slice(&50_000_u32.to_le_bytes());
        image[32768 + 128..32768 + 130].copy_from_slice(&2048_u16.to_le_bytes());
        assert_eq!(said("half.iso", &image), "is cut off: it has 40000 of 102400000 bytes");
        assert!(whole(&folder.path().join("none.iso")).unwrap_err().starts_with("cannot be read: No such file"));
    }
}
