//! The image service itself: open base images, what the service says about an infra-env, and the answer made of both. It
//! asks the service with the same three requests as the real image service; who carries them is the caller's business.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use futures_util::future::{join, join3};
use serde::Deserialize;
use vlab_api::http::{Method, Request, Response};
use vlab_api::types::ImageType;

use crate::base::{BaseError, BaseImage, Fill};
use crate::catalog::{OsImage, OsImageKind, choose};
use crate::cpio;
use crate::http::{Content, Reply, parse_date, serve};
use crate::layout::{BaseFile, Laid, Layout, ReadAt as _};
use crate::minimal::{MinimalError, ROOTFS, minimal, rootfs_url};
use crate::routes::{Artifact, Credentials, ImageRequest, OsVersion};

const INITRD: &str = "images/pxeboot/initrd.img";
const KERNEL: &str = "images/pxeboot/vmlinuz";
/// Name of the kernel in images of s390x.
const KERNEL_S390X: &str = "images/pxeboot/kernel.img";
const INS_FILE: &str = "generic.ins";
const ADDRSIZE: &str = "images/initrd.addrsize";

/// Why the image service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file cannot be opened.
    #[error("the OS image {path} cannot be opened: {source}")]
    Open {
        /// The file.
        path: String,
        /// The system's words.
        source: std::io::Error,
    },
    /// A file is no live image.
    #[error("the OS image {path} {source}")]
    Image {
        /// The file.
        path: String,
        /// What is wrong with the image.
        source: BaseError,
    },
}

/// A base image that is open.
struct Loaded {
    file: Arc<BaseFile>,
    full: BaseImage,
    minimal: Result<(BaseImage, Layout), String>,
}

/// Serves images.
pub struct ImageService {
    images: Vec<(OsImage, Loaded)>,
}

impl std::fmt::Debug for ImageService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.images.iter().map(|(image, _)| image)).finish()
    }
}

/// An answer, and the file that its body is read from.
#[derive(Debug)]
pub struct ImageResponse {
    /// Status, headers, what is where.
    pub reply: Reply,
    /// The base file, when the body has parts of one.
    pub base: Option<Arc<BaseFile>>,
}

impl From<Reply> for ImageResponse {
    fn from(reply: Reply) -> Self {
        Self { reply, base: None }
    }
}

/// The service that knows the infra-envs.
pub trait AssistedService: Sync {
    /// Carries a request to it.
    fn ask(&self, request: Request) -> impl Future<Output = Response> + Send;
}

/// A refusal: status and why.
type Refusal = (u16, String);

impl ImageService {
    /// Opens the base images, and makes the minimal image of each. `base_url` is where machines reach the image service.
    ///
    /// # Errors
    /// [`OpenError`]. That no minimal image can be made is none; requests for it say so.
    pub fn open(images: &[OsImage], base_url: &str) -> Result<Self, OpenError> {
        let mut open = Vec::new();
        for image in images {
            let path = image.path.display().to_string();
            let file = BaseFile::open(&image.path).map_err(|source| OpenError::Open { path: path.clone(), source })?;
            let file = Arc::new(file);
            let full = BaseImage::read(&*file).map_err(|source| OpenError::Image { path: path.clone(), source })?;
            for warning in full.warnings() {
                tracing::warn!(image = path, "{warning}");
            }
            let minimal = match image.kind {
                OsImageKind::Disconnected => Err("a disconnected image has no minimal form".to_owned()),
                OsImageKind::Full => load_minimal(&full, &file, image, base_url),
            };
            if let Err(why) = &minimal {
                tracing::warn!(image = path, "there is no minimal image: {why}");
            }
            open.push((image.clone(), Loaded { file, full, minimal }));
        }
        Ok(Self { images: open })
    }

    /// Answers a request that [`crate::routes::route`] understood.
    pub async fn answer(
        &self,
        request: &Request,
        wanted: ImageRequest,
        service: &impl AssistedService,
    ) -> ImageResponse {
        let made = match wanted {
            ImageRequest::Iso { id, which, kind, credentials } => {
                self.iso(&id, &which, kind, &credentials, service).await
            }
            ImageRequest::Initrd { id, which, only_size, credentials } => {
                self.initrd(&id, &which, only_size, &credentials, service).await
            }
            ImageRequest::Artifact { artifact, which } => self.artifact(artifact, &which),
            ImageRequest::Live => return Reply::empty(200).into(),
        };
        match made {
            Ok((content, base)) => {
                // Keys of a new hasher are random: nobody can have put them into an image.
                let [a, b] = [(), ()].map(|()| RandomState::new().build_hasher().finish());
                let boundary = format!("vlab{a:016x}{b:016x}");
                ImageResponse { reply: serve(request, &content, &boundary), base: Some(base) }
            }
            Err((status, why)) => Reply::text(status, &why).into(),
        }
    }

    /// The base image for a version and of a kind.
    fn choose(&self, which: &OsVersion, kind: OsImageKind, unknown: u16) -> Result<&Loaded, Refusal> {
        let OsVersion { version, arch } = which;
        if self.images.is_empty() {
            let why = "no OS image is configured: start the service with `--os-image iso=FILE`, or set OS_IMAGES";
            return Err((unknown, why.to_owned()));
        }
        let Some(entry) = choose(&self.images, version, arch) else {
            let have: Vec<String> = self.images.iter().map(|(image, _)| image.to_string()).collect();
            return Err((unknown, format!("version for {version} {arch}, not found; there is {}", have.join(", "))));
        };
        let same = |image: &OsImage| image.version == entry.version && image.arch == entry.arch && image.kind == kind;
        let loaded = self.images.iter().find(|(image, _)| same(image)).map(|(_, loaded)| loaded);
        loaded.ok_or_else(|| {
            let kind = match kind {
                OsImageKind::Full => "full-iso",
                OsImageKind::Disconnected => "disconnected-iso",
            };
            (500, format!("there is no OS image of type {kind} for {entry}"))
        })
    }

    async fn iso(
        &self,
        id: &str,
        which: &OsVersion,
        kind: ImageType,
        credentials: &Credentials,
        service: &impl AssistedService,
    ) -> Result<(Content, Arc<BaseFile>), Refusal> {
        let wanted = match kind {
            ImageType::DisconnectedIso => OsImageKind::Disconnected,
            ImageType::FullIso | ImageType::MinimalIso => OsImageKind::Full,
        };
        // The real service asks for the image's type last.
        let unknown = self.choose(which, OsImageKind::Full, 404).err().filter(|(status, _)| *status == 404);
        if let Some(refusal) = unknown {
            return Err(refusal);
        }
        let asker = Asker { id, credentials, service };
        let (ignition, custom, kargs) = join3(
            asker.ignition(Some(kind)),
            async { if kind == ImageType::MinimalIso { asker.custom().await } else { Ok(None) } },
            asker.kargs(),
        )
        .await;
        let ((ignition, modified), custom, kargs) = (ignition?, custom?, kargs?);
        if kargs.is_some() && which.arch == "s390x" {
            return Err((400, "kargs cannot be modified in s390x architecture ISOs".to_owned()));
        }
        let loaded = self.choose(which, wanted, 404)?;
        let fill = Fill { ignition: &ignition, custom: custom.as_deref(), kargs: kargs.as_deref() };
        let filled = if kind == ImageType::MinimalIso {
            let minimal = loaded.minimal.as_ref();
            let (image, layout) = minimal.map_err(|why| (500, format!("there is no minimal image: {why}")))?;
            image.fill(layout, &fill)
        } else {
            loaded.full.fill(&Layout::of_base(loaded.full.len), &fill)
        };
        let layout = filled.map_err(|e| (500, e.to_string()))?;
        let file_name = match kind {
            ImageType::DisconnectedIso => format!("agent-ove.{}.iso", which.arch),
            ImageType::FullIso | ImageType::MinimalIso => format!("{id}-discovery.iso"),
        };
        Ok((Content { layout, file_name, modified }, loaded.file.clone()))
    }

    async fn initrd(
        &self,
        id: &str,
        which: &OsVersion,
        only_size: bool,
        credentials: &Credentials,
        service: &impl AssistedService,
    ) -> Result<(Content, Arc<BaseFile>), Refusal> {
        let loaded = self.choose(which, OsImageKind::Full, 400)?;
        let asker = Asker { id, credentials, service };
        let (ignition, custom) = join(asker.ignition(None), asker.custom()).await;
        let ((ignition, modified), custom) = (ignition?, custom?);
        let missing = |path: &str| (500, format!("the OS image has no {path}"));
        let place = loaded.full.iso.place(INITRD).ok_or_else(|| missing(INITRD))?;
        let mut layout = Layout::default();
        layout.push_base(place.offset, place.len);
        layout.push_bytes(cpio::ignition_archive(&ignition).map_err(|e| (500, e.to_string()))?);
        layout.push_bytes(custom.unwrap_or_default());
        let mut file_name = format!("{id}-initrd.img");
        if only_size {
            let size = layout.len();
            let place = loaded.full.iso.place(ADDRSIZE).filter(|p| p.len >= 8).ok_or_else(|| missing(ADDRSIZE))?;
            layout = Layout::default();
            layout.push_base(place.offset, 8);
            layout.push_bytes(size.to_be_bytes().to_vec());
            file_name = format!("{id}-initrd.addrsize");
        }
        Ok((Content { layout, file_name, modified }, loaded.file.clone()))
    }

    fn artifact(&self, artifact: Artifact, which: &OsVersion) -> Result<(Content, Arc<BaseFile>), Refusal> {
        let loaded = self.choose(which, OsImageKind::Full, 400).map_err(|(status, why)| match status {
            400 => (status, format!("Failed to parse query parameters: {why}")),
            _ => (status, why),
        })?;
        let (path, file_name) = match artifact {
            Artifact::Kernel => (KERNEL, "vmlinuz"),
            Artifact::Rootfs => (ROOTFS, "rootfs.img"),
            Artifact::InsFile => (INS_FILE, "generic.ins"),
        };
        let iso = &loaded.full.iso;
        let place = iso.place(path).or_else(|| {
            let other = artifact == Artifact::Kernel && which.arch == "s390x";
            if other { iso.place(KERNEL_S390X) } else { None }
        });
        let place = place.ok_or_else(|| (500, format!("the OS image has no {path}")))?;
        let mut layout = Layout::default();
        layout.push_base(place.offset, place.len);
        let modified = u64::try_from(loaded.file.modified_secs()).ok();
        Ok((Content { layout, file_name: file_name.to_owned(), modified }, loaded.file.clone()))
    }
}

fn load_minimal(
    full: &BaseImage,
    file: &Arc<BaseFile>,
    image: &OsImage,
    base_url: &str,
) -> Result<(BaseImage, Layout), String> {
    // An image for every version is found under every name.
    let version = image.version.as_deref().or(image.openshift_version.as_deref()).unwrap_or("any");
    let url = rootfs_url(base_url, &image.arch, version);
    let laid: Laid<BaseFile> = minimal(full, file, &image.arch, &url).map_err(|e: MinimalError| e.to_string())?;
    debug_assert!(laid.layout.in_memory() < laid.size());
    let image = BaseImage::read(&laid).map_err(|e| format!("the minimal image {e}"))?;
    Ok((image, laid.layout))
}

/// Asks the service about one infra-env.
struct Asker<'a, S> {
    id: &'a str,
    credentials: &'a Credentials,
    service: &'a S,
}

impl<S: AssistedService> Asker<'_, S> {
    async fn get(&self, below: &str) -> Result<Response, Refusal> {
        let mut path = format!("/api/assisted-install/v2/infra-envs/{}{below}", crate::routes::encode(self.id));
        if let Credentials::ApiKey(key) = self.credentials {
            path.push(if path.contains('?') { '&' } else { '?' });
            path.push_str(&format!("api_key={}", crate::routes::encode(key)));
        }
        let mut request = Request::new(Method::Get, path);
        match self.credentials {
            Credentials::ImageToken(token) => request = request.header("image-token", token.as_str()),
            Credentials::Authorization(value) => request = request.header("authorization", value.as_str()),
            Credentials::ApiKey(_) | Credentials::None => {}
        }
        let response = self.service.ask(request).await;
        if (200..300).contains(&response.status) {
            return Ok(response);
        }
        #[derive(Default, Deserialize)]
        struct Reason {
            #[serde(default)]
            reason: String,
            #[serde(default)]
            message: String,
        }
        let said: Reason = serde_json::from_slice(&response.body).unwrap_or_default();
        let said = if said.reason.is_empty() { said.message } else { said.reason };
        Err((response.status, format!("the service answered {} to {below:?}: {said}", response.status)))
    }

    /// The ignition, and when the infra-env was changed last.
    async fn ignition(&self, kind: Option<ImageType>) -> Result<(Vec<u8>, Option<u64>), Refusal> {
        let kind = kind.map(|k| format!("&discovery_iso_type={k}")).unwrap_or_default();
        let response = self.get(&format!("/downloads/files?file_name=discovery.ign{kind}")).await?;
        if response.status != 200 {
            return Err((response.status, "the service has no ignition".to_owned()));
        }
        let modified = response.get_header("last-modified").and_then(parse_date);
        Ok((response.body.into_vec(), modified))
    }

    /// The archive with static networks and the proxy; `None` when there is neither.
    async fn custom(&self) -> Result<Option<Vec<u8>>, Refusal> {
        let response = self.get("/downloads/minimal-initrd").await?;
        Ok((response.status != 204).then(|| response.body.into_vec()))
    }

    /// Kernel arguments to append.
    async fn kargs(&self) -> Result<Option<Vec<String>>, Refusal> {
        #[derive(Deserialize)]
        struct InfraEnv {
            kernel_arguments: Option<String>,
        }
        #[derive(Deserialize)]
        struct Argument {
            #[serde(default)]
            operation: String,
            #[serde(default)]
            value: String,
        }
        let response = self.get("").await?;
        let bad = |e: serde_json::Error| (500, format!("the infra-env cannot be understood: {e}"));
        let infra_env: InfraEnv = serde_json::from_slice(&response.body).map_err(bad)?;
        let Some(text) = infra_env.kernel_arguments else { return Ok(None) };
        let arguments: Vec<Argument> = serde_json::from_str(&text).map_err(bad)?;
        if let Some(other) = arguments.iter().find(|a| a.operation != "append") {
            return Err((500, format!("only 'append' operation is allowed.  got {}", other.operation)));
        }
        Ok(Some(arguments.into_iter().map(|a| a.value).collect()))
    }
}
