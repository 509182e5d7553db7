//! The images there are to serve: the command line's `--os-image`, or the real service's `OS_IMAGES`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;

/// What a base image is good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OsImageKind {
    /// Full and minimal images, and boot from the network.
    #[default]
    Full,
    /// `disconnected.iso`: an image that brings its own installer.
    Disconnected,
}

/// A base image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsImage {
    /// Version of the image, for example `416.94.202406172220-0`. `None`: the image is for every version.
    pub version: Option<String>,
    /// Version of OpenShift that it is for, for example `4.16`.
    pub openshift_version: Option<String>,
    /// CPU architecture.
    pub arch: String,
    /// The file.
    pub path: PathBuf,
    /// What it is good for.
    pub kind: OsImageKind,
}

impl OsImage {
    /// A live image for x86_64 that is good for every version.
    pub fn of_every_version(path: &Path) -> Self {
        Self {
            version: None,
            openshift_version: None,
            arch: "x86_64".to_owned(),
            path: path.to_owned(),
            kind: OsImageKind::Full,
        }
    }
}

/// An image that cannot be meant like this. The text says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OsImageError(String);

fn kind(text: &str) -> Result<OsImageKind, OsImageError> {
    match text {
        "" | "full-iso" => Ok(OsImageKind::Full),
        "disconnected-iso" => Ok(OsImageKind::Disconnected),
        other => Err(OsImageError(format!("type {other:?} is unknown; use full-iso or disconnected-iso"))),
    }
}

/// A file's path, as it is or as a `file:` URL.
fn path(text: &str) -> Result<PathBuf, OsImageError> {
    let lower = text.to_ascii_lowercase();
    if lower.starts_with("http://") || lower.starts_with("https://") {
        return Err(OsImageError(format!("{text} is not downloaded here: download it and name the file instead")));
    }
    let bare = text.strip_prefix("file://").or_else(|| text.strip_prefix("file:")).unwrap_or(text);
    if bare.is_empty() {
        return Err(OsImageError("the image file has no name".into()));
    }
    Ok(PathBuf::from(bare))
}

impl FromStr for OsImage {
    type Err = OsImageError;

    /// `[version=V,][openshift=V,][arch=A,][type=T,]iso=FILE`, or only `FILE`. A comma in the file's name is part of the name.
    fn from_str(text: &str) -> Result<Self, OsImageError> {
        let form = "write version=V,arch=A,iso=FILE, or only iso=FILE for an image for every version";
        let mut image = OsImage::of_every_version(Path::new(""));
        if !text.contains('=') {
            image.path = path(text)?;
            return Ok(image);
        }
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(file) = rest.strip_prefix("iso=") {
                image.path = path(file)?;
                return Ok(image);
            }
            let (word, after) = rest.split_once(',').unwrap_or((rest, ""));
            rest = after;
            match word.split_once('=') {
                Some((_, "")) | None => return Err(OsImageError(format!("{word:?} has no value: {form}"))),
                Some(("version", value)) => image.version = Some(value.to_owned()),
                Some(("openshift", value)) => image.openshift_version = Some(value.to_owned()),
                Some(("arch", value)) => image.arch = value.to_owned(),
                Some(("type", value)) => image.kind = kind(value)?,
                Some((name, _)) => return Err(OsImageError(format!("{name:?} is not a property of an image: {form}"))),
            }
        }
        Err(OsImageError(format!("the file is missing: {form}; iso= comes last")))
    }
}

/// The images of the setting `OS_IMAGES`, a JSON list as the real service has it. `url` must be a file.
///
/// # Errors
/// [`OsImageError`].
pub fn from_setting(json: &str) -> Result<Vec<OsImage>, OsImageError> {
    #[derive(Deserialize)]
    struct Row {
        openshift_version: Option<String>,
        cpu_architecture: Option<String>,
        url: Option<String>,
        version: Option<String>,
        #[serde(default, rename = "type")]
        kind: String,
    }
    let rows: Vec<Row> =
        serde_json::from_str(json).map_err(|e| OsImageError(format!("this is not a list of images: {e}")))?;
    let images = rows.into_iter().enumerate().map(|(i, row)| {
        let need = |value: Option<String>, name: &str| {
            value.filter(|v| !v.is_empty()).ok_or_else(|| OsImageError(format!("image {i} has no {name}")))
        };
        Ok(OsImage {
            version: Some(need(row.version, "version")?),
            openshift_version: Some(need(row.openshift_version, "openshift_version")?),
            arch: need(row.cpu_architecture, "cpu_architecture")?,
            path: path(&need(row.url, "url")?)?,
            kind: kind(&row.kind)?,
        })
    });
    images.collect()
}

/// The image for a version, which is the version of an image or else of OpenShift, or else any when an image is for all.
pub fn choose<'a, T>(images: &'a [(OsImage, T)], version: &str, arch: &str) -> Option<&'a OsImage> {
    let of_arch = || images.iter().map(|(image, _)| image).filter(|image| image.arch == arch);
    of_arch()
        .find(|i| i.version.as_deref() == Some(version))
        .or_else(|| of_arch().find(|i| i.openshift_version.as_deref() == Some(version)))
        .or_else(|| of_arch().find(|i| i.version.is_none() && i.openshift_version.is_none()))
}

impl std::fmt::Display for OsImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let version = match (&self.version, &self.openshift_version) {
            (None, None) => "any version".to_owned(),
            (Some(version), Some(openshift)) => format!("{version} ({openshift})"),
            (Some(version), None) | (None, Some(version)) => version.clone(),
        };
        write!(f, "{version} {}", self.arch)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn image(version: Option<&str>, openshift: Option<&str>, arch: &str, path: &str) -> OsImage {
        OsImage {
            version: version.map(Into::into),
            openshift_version: openshift.map(Into::into),
            arch: arch.into(),
            path: path.into(),
            kind: OsImageKind::Full,
        }
    }

    #[rstest]
    #[case("live.iso", image(None, None, "x86_64", "live.iso"))]
    #[case("iso=a=b,c.iso", image(None, None, "x86_64", "a=b,c.iso"))]
    #[case(
        "version=416.94,openshift=4.16,arch=aarch64,iso=/x/live.iso",
        image(Some("416.94"), Some("4.16"), "aarch64", "/x/live.iso")
    )]
    #[case("version=4.16,iso=file:///x/live.iso", image(Some("4.16"), None, "x86_64", "/x/live.iso"))]
    fn flags(#[case] text: &str, #[case] expected: OsImage) {
        assert_eq!(text.parse(), Ok(expected));
    }

    #[rstest]
    #[case(
        "version=4.16",
        "the file is missing: write version=V,arch=A,iso=FILE, or only iso=FILE for an image for every version; iso= comes last"
    )]
    #[case("iso=", "the image file has no name")]
    #[case(
        "version=,iso=x",
        "\"version=\" has no value: write version=V,arch=A,iso=FILE, or only iso=FILE for an image for every version"
    )]
    #[case(
        "size=1,iso=x",
        "\"size\" is not a property of an image: write version=V,arch=A,iso=FILE, or only iso=FILE for an image for every version"
    )]
    #[case("type=small,iso=x", "type \"small\" is unknown; use full-iso or disconnected-iso")]
    #[case(
        "https://example.org/live.iso",
        "https://example.org/live.iso is not downloaded here: download it and name the file instead"
    )]
    fn wrong_flags(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(text.parse::<OsImage>().unwrap_err().to_string(), expected);
    }

    #[test]
    fn the_real_services_setting() {
        let text = r#"[{"openshift_version":"4.16","cpu_architecture":"x86_64","url":"file:///x.iso","version":"416.1"},
            {"openshift_version":"4.16","cpu_architecture":"x86_64","url":"/y.iso","version":"416.1","type":"disconnected-iso"}]"#;
        let second =
            OsImage { kind: OsImageKind::Disconnected, ..image(Some("416.1"), Some("4.16"), "x86_64", "/y.iso") };
        assert_eq!(from_setting(text), Ok(vec![image(Some("416.1"), Some("4.16"), "x86_64", "/x.iso"), second]));
    }

    #[rstest]
    #[case("{}", "this is not a list of images: invalid type: map, expected a sequence at line 1 column 0")]
    #[case(r#"[{"openshift_version":"4.16","cpu_architecture":"x86_64","url":"/x.iso"}]"#, "image 0 has no version")]
    #[case(
        r#"[{"openshift_version":"4.16","cpu_architecture":"x86_64","url":"http://h/x.iso","version":"1"}]"#,
        "http://h/x.iso is not downloaded here: download it and name the file instead"
    )]
    fn wrong_settings(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(from_setting(text).unwrap_err().to_string(), expected);
    }

    #[rstest]
    #[case("4.16", "x86_64", Some("by-version"))]
    #[case("4.17", "x86_64", Some("by-openshift"))]
    #[case("4.18", "x86_64", Some("any"))]
    #[case("4.16", "aarch64", None)]
    fn choosing(#[case] version: &str, #[case] arch: &str, #[case] expected: Option<&str>) {
        let images: Vec<(OsImage, ())> = [
            image(None, None, "x86_64", "any"),
            image(Some("x"), Some("4.16"), "x86_64", "never"),
            image(Some("4.16"), Some("4.99"), "x86_64", "by-version"),
            image(Some("y"), Some("4.17"), "x86_64", "by-openshift"),
        ]
        .into_iter()
        .map(|i| (i, ()))
        .collect();
        assert_eq!(choose(&images, version, arch).and_then(|i| i.path.to_str()), expected);
    }
}
