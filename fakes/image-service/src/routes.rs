//! Paths of the image service (`reference/rest-api.md` §9) and what they ask for.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde::Deserialize;
use uuid::Uuid;
use vlab_api::http::{Method, Request};
use vlab_api::types::ImageType;

/// Architecture that is meant when none is named.
const DEFAULT_ARCH: &str = "x86_64";

/// Who asks, to be passed on to the service. It decides; the image service only carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// Query parameter `api_key`.
    ApiKey(String),
    /// Header `Image-Token`.
    ImageToken(String),
    /// Header `Authorization`.
    Authorization(String),
    /// None.
    None,
}

/// The version and architecture of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsVersion {
    /// Version of the image or of OpenShift.
    pub version: String,
    /// CPU architecture.
    pub arch: String,
}

/// A boot artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Artifact {
    /// The kernel of the medium.
    Kernel,
    /// Root file system.
    Rootfs,
    /// `generic.ins` of s390x.
    InsFile,
}

/// What a request asks the image service for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageRequest {
    /// The discovery image of an infra-env.
    Iso {
        /// Infra-env; as the path or the token has it, checked by the service.
        id: String,
        /// The version and architecture that the image is for.
        which: OsVersion,
        /// Full, minimal, disconnected.
        kind: ImageType,
        /// Who asks.
        credentials: Credentials,
    },
    /// The RAM disk for booting from the network; or only the description of its size, which s390x needs.
    Initrd {
        /// Infra-env.
        id: String,
        /// The version and architecture that the image is for.
        which: OsVersion,
        /// `s390x-initrd-addrsize` instead of the RAM disk.
        only_size: bool,
        /// Who asks.
        credentials: Credentials,
    },
    /// A boot artifact.
    Artifact {
        /// Of which image.
        artifact: Artifact,
        /// The version and architecture that the image is for.
        which: OsVersion,
    },
    /// Does the program live?
    Live,
}

/// A request that is refused for its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Status code.
    pub status: u16,
    /// The reason, in the words of the answer.
    pub why: String,
}

fn refuse<T>(status: u16, why: impl Into<String>) -> Result<T, Refused> {
    Err(Refused { status, why: why.into() })
}

/// A request on its way: what it asks for, and the name of its path for counting (without ids and tokens).
pub type Routed = (&'static str, Result<ImageRequest, Refused>);

/// What a request asks for. `None`: the path is none of the image service.
pub fn route(request: &Request) -> Option<Routed> {
    let (path, query) = request.split_path();
    let query = Query::parse(query);
    let parts: Vec<String> = path.split('/').skip(1).map(decode).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let not_found = || refuse(404, "404 page not found");
    let (first, rest) = parts.split_first()?;
    Some(match (*first, rest) {
        ("live", []) => ("/live", Ok(ImageRequest::Live)),
        ("byid", [id, version, arch, file]) => {
            let wanted = if is_id(id) { short(id, version, arch, file, query.or_header(request)) } else { not_found() };
            ("/byid/{id}/{version}/{arch}/{file}", wanted)
        }
        ("byapikey", [key, version, arch, file]) => {
            let id = id_of_token(key);
            let credentials = Credentials::ApiKey((*key).to_owned());
            ("/byapikey/{key}/{version}/{arch}/{file}", id.and_then(|id| short(&id, version, arch, file, credentials)))
        }
        ("bytoken", [token, version, arch, file]) => {
            let id = id_of_token(token);
            // A key in the query comes first, as in the real service.
            let credentials = match query.get("api_key") {
                Some(key) => Credentials::ApiKey(key.to_owned()),
                None => Credentials::ImageToken((*token).to_owned()),
            };
            ("/bytoken/{token}/{version}/{arch}/{file}", id.and_then(|id| short(&id, version, arch, file, credentials)))
        }
        ("images", [id]) => ("/images/{id}", if is_id(id) { long(id, &query, request) } else { not_found() }),
        ("images", [id, "pxe-initrd"]) => {
            ("/images/{id}/pxe-initrd", if is_id(id) { initrd(id, &query, request, false) } else { not_found() })
        }
        ("images", [id, "s390x-initrd-addrsize"]) => {
            let wanted = if is_id(id) { initrd(id, &query, request, true) } else { not_found() };
            ("/images/{id}/s390x-initrd-addrsize", wanted)
        }
        ("boot-artifacts", [..]) => ("/boot-artifacts/{file}", artifact(request.method, rest, &query)),
        ("byid" | "byapikey" | "bytoken" | "images", _) | ("s390x-initrd-addrsize", []) => ("/images", not_found()),
        _ => return None,
    })
}

/// Ids in paths are lower case.
fn is_id(text: &str) -> bool {
    text.len() == 36 && Uuid::parse_str(text).is_ok() && !text.bytes().any(|b| b.is_ascii_uppercase())
}

fn short(id: &str, version: &str, arch: &str, file: &str, credentials: Credentials) -> Result<ImageRequest, Refused> {
    let kind = match file {
        "full.iso" => ImageType::FullIso,
        "minimal.iso" => ImageType::MinimalIso,
        "disconnected.iso" => ImageType::DisconnectedIso,
        _ => return refuse(404, format!("unrecognized file name {file}")),
    };
    let which = OsVersion { version: version.to_owned(), arch: arch.to_owned() };
    Ok(ImageRequest::Iso { id: id.to_owned(), which, kind, credentials })
}

fn long(id: &str, query: &Query, request: &Request) -> Result<ImageRequest, Refused> {
    let Some(version) = query.get("version") else { return refuse(400, "'version' parameter required") };
    let Some(kind) = query.get("type") else { return refuse(400, "'type' parameter required") };
    let Ok(kind) = kind.parse::<ImageType>() else {
        return refuse(400, format!("invalid value '{kind}' for parameter 'type'"));
    };
    let which = OsVersion { version: version.to_owned(), arch: query.get("arch").unwrap_or(DEFAULT_ARCH).to_owned() };
    Ok(ImageRequest::Iso { id: id.to_owned(), which, kind, credentials: query.or_header(request) })
}

fn initrd(id: &str, query: &Query, request: &Request, only_size: bool) -> Result<ImageRequest, Refused> {
    let Some(version) = query.get("version") else {
        return refuse(400, "'version' parameter required for initrd download");
    };
    let arch = if only_size { "s390x" } else { query.get("arch").unwrap_or(DEFAULT_ARCH) };
    let which = OsVersion { version: version.to_owned(), arch: arch.to_owned() };
    Ok(ImageRequest::Initrd { id: id.to_owned(), which, only_size, credentials: query.or_header(request) })
}

fn artifact(method: Method, rest: &[&str], query: &Query) -> Result<ImageRequest, Refused> {
    if !matches!(method, Method::Get | Method::Head) {
        return refuse(405, "");
    }
    let Some(version) = query.get("version") else {
        return refuse(400, "Failed to parse query parameters: 'version' parameter required");
    };
    let arch = query.get("arch").unwrap_or(DEFAULT_ARCH);
    let artifact = match rest {
        ["rootfs"] => Artifact::Rootfs,
        ["kernel"] => Artifact::Kernel,
        ["ins-file"] if arch == "s390x" => Artifact::InsFile,
        ["ins-file"] => {
            let why = "ins-file is only available for the s390x architecture. Current arch";
            return refuse(404, format!("Failed to parse artifact: {why}: {arch}"));
        }
        _ => {
            let path = rest.join("/");
            return refuse(404, format!("Failed to parse artifact: malformed download path: /boot-artifacts/{path}"));
        }
    };
    Ok(ImageRequest::Artifact { artifact, which: OsVersion { version: version.to_owned(), arch: arch.to_owned() } })
}

/// The infra-env that a token is for. Nothing is verified: the service does, when it is asked with the token.
fn id_of_token(token: &str) -> Result<String, Refused> {
    #[derive(Deserialize)]
    struct Payload {
        #[serde(default)]
        sub: String,
        #[serde(default)]
        infra_env_id: String,
    }
    let mut parts = token.rsplitn(3, '.');
    let (Some(signature), Some(payload), Some(header)) = (parts.next(), parts.next(), parts.next()) else {
        return refuse(404, "failed to parse JWT from URL");
    };
    if signature.is_empty() || payload.is_empty() || header.is_empty() {
        return refuse(404, "failed to parse JWT from URL");
    }
    let decoded = URL_SAFE_NO_PAD.decode(payload).or_else(|_| STANDARD_NO_PAD.decode(payload));
    let decoded = decoded.map_err(|e| Refused { status: 404, why: e.to_string() })?;
    let payload: Payload = serde_json::from_slice(&decoded).map_err(|e| Refused { status: 404, why: e.to_string() })?;
    match (payload.sub, payload.infra_env_id) {
        (sub, _) if !sub.is_empty() => Ok(sub),
        (_, id) if !id.is_empty() => Ok(id),
        _ => refuse(404, "InfraEnv ID not found in token"),
    }
}

/// Parameters of a query; of repeated ones the first counts, an empty one is none.
struct Query(Vec<(String, String)>);

impl Query {
    fn parse(text: &str) -> Self {
        let pair = |p: &str| {
            let (name, value) = p.split_once('=').unwrap_or((p, ""));
            (decode(&name.replace('+', " ")), decode(&value.replace('+', " ")))
        };
        Self(text.split('&').filter(|p| !p.is_empty()).map(pair).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str()).filter(|v| !v.is_empty())
    }

    fn or_header(&self, request: &Request) -> Credentials {
        if let Some(key) = self.get("api_key") {
            Credentials::ApiKey(key.to_owned())
        } else if let Some(token) = self.get("image_token") {
            Credentials::ImageToken(token.to_owned())
        } else if let Some(header) = request.get_header("authorization").filter(|h| !h.is_empty()) {
            Credentials::Authorization(header.to_owned())
        } else {
            Credentials::None
        }
    }
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let byte = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte.filter(|_| bytes[at] == b'%') {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A value of a query parameter, encoded.
pub fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const ID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    fn token(payload: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(payload))
    }

    fn wanted(path: &str) -> Result<ImageRequest, (u16, String)> {
        route(&Request::new(Method::Get, path)).unwrap().1.map_err(|r| (r.status, r.why))
    }

    fn iso(kind: ImageType, arch: &str, credentials: Credentials) -> ImageRequest {
        let which = OsVersion { version: "4.16".into(), arch: arch.into() };
        ImageRequest::Iso { id: ID.into(), which, kind, credentials }
    }

    #[rstest]
    #[case(&format!("/byid/{ID}/4.16/x86_64/full.iso"), iso(ImageType::FullIso, "x86_64", Credentials::None))]
    #[case(&format!("/byid/{ID}/4.16/aarch64/minimal.iso?api_key=k"), iso(ImageType::MinimalIso, "aarch64", Credentials::ApiKey("k".into())))]
    #[case(&format!("/images/{ID}?version=4.16&type=disconnected-iso"), iso(ImageType::DisconnectedIso, "x86_64", Credentials::None))]
    #[case(&format!("/images/{ID}?version=4.16&type=full-iso&arch=s390x&image_token=t%2B"), iso(ImageType::FullIso, "s390x", Credentials::ImageToken("t+".into())))]
    fn images(#[case] path: &str, #[case] expected: ImageRequest) {
        assert_eq!(wanted(path), Ok(expected));
    }

    #[rstest]
    #[case("sub")]
    #[case("infra_env_id")]
    fn tokens_name_their_infra_env(#[case] member: &str) {
        // A payload whose encoding has a letter of the URL alphabet only.
        let token = token(&format!("{{\"{member}\":\"{ID}\",\"x\":\"???>>>\"}}"));
        assert!(token.contains(['-', '_']), "{token}");
        let by_key = wanted(&format!("/byapikey/{token}/4.16/x86_64/full.iso"));
        assert_eq!(by_key, Ok(iso(ImageType::FullIso, "x86_64", Credentials::ApiKey(token.clone()))));
        let by_token = wanted(&format!("/bytoken/{token}/4.16/x86_64/full.iso"));
        assert_eq!(by_token, Ok(iso(ImageType::FullIso, "x86_64", Credentials::ImageToken(token))));
    }

    #[rstest]
    #[case("/byid/nobody/4.16/x86_64/full.iso", 404, "404 page not found")]
    #[case(&format!("/byid/{}/4.16/x86_64/full.iso", ID.to_uppercase()), 404, "404 page not found")]
    #[case(&format!("/byid/{ID}/4.16/full.iso"), 404, "404 page not found")]
    #[case(&format!("/byid/{ID}/4.16/x86_64/half.iso"), 404, "unrecognized file name half.iso")]
    #[case("/byapikey/abc/4.16/x86_64/full.iso", 404, "failed to parse JWT from URL")]
    #[case("/byapikey/a..c/4.16/x86_64/full.iso", 404, "failed to parse JWT from URL")]
    #[case("/byapikey/e30.e30.e30/4.16/x86_64/full.iso", 404, "InfraEnv ID not found in token")]
    #[case(&format!("/images/{ID}?type=full-iso"), 400, "'version' parameter required")]
    #[case(&format!("/images/{ID}?version=4.16"), 400, "'type' parameter required")]
    #[case(&format!("/images/{ID}?version=4.16&type=half"), 400, "invalid value 'half' for parameter 'type'")]
    #[case(&format!("/images/{ID}/pxe-initrd"), 400, "'version' parameter required for initrd download")]
    #[case(&format!("/images/{ID}/kernel"), 404, "404 page not found")]
    #[case("/boot-artifacts/kernel", 400, "Failed to parse query parameters: 'version' parameter required")]
    #[case(
        "/boot-artifacts/initrd?version=4.16",
        404,
        "Failed to parse artifact: malformed download path: /boot-artifacts/initrd"
    )]
    #[case(
        "/boot-artifacts/ins-file?version=4.16",
        404,
        "Failed to parse artifact: ins-file is only available for the s390x architecture. Current arch: x86_64"
    )]
    fn refusals(#[case] path: &str, #[case] status: u16, #[case] why: &str) {
        assert_eq!(wanted(path), Err((status, why.to_owned())));
    }

    #[test]
    fn other_paths_are_somebody_elses() {
        for path in ["/", "/health", "/live/x", "/api/assisted-install/v2/clusters", "/bootartifacts/kernel"] {
            assert_eq!(route(&Request::new(Method::Get, path)), None, "{path}");
        }
    }

    #[test]
    fn artifacts_are_only_read() {
        let request = Request::new(Method::Post, "/boot-artifacts/kernel?version=4.16");
        assert_eq!(route(&request).unwrap().1.unwrap_err().status, 405);
    }

    #[test]
    fn names_for_counting_have_no_secrets() {
        let (name, _) = route(&Request::new(Method::Get, "/byapikey/a.secret.c/4.16/x86_64/full.iso")).unwrap();
        assert_eq!(name, "/byapikey/{key}/{version}/{arch}/{file}");
    }

    #[rstest]
    #[case("a%20b", "a b")]
    #[case("100%", "100%")]
    #[case("%zz", "%zz")]
    #[case("%é", "%é")]
    fn decoding(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(decode(text), expected);
    }

    #[test]
    fn encoding_is_undone_by_decoding() {
        let text = "4.16 +&=/%é";
        assert_eq!(decode(&encode(text).replace('+', " ")), text);
    }
}
