//! Mirrors of registries: where images are, too. Users say it as the `registries.conf` of containers.

use serde::{Deserialize, Serialize};
use toml_edit::{DocumentMut, Item, TableLike, Value};

/// Mirrors that were read, and the certificates of those who have them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mirrors {
    /// `registries.conf` as it was given.
    pub registries_conf: String,
    /// Certificates, PEM; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ca_bundle: String,
}

/// A registry and what has its images, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirrored {
    /// The registry, or a part of it.
    pub source: String,
    /// Its mirrors, in the order in which they are asked.
    pub mirrors: Vec<String>,
}

/// Why there are no mirrors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MirrorsError {
    /// It is no TOML.
    #[error("registries.conf is not TOML: {0}")]
    Toml(String),
    /// It has no registry.
    #[error("registries.conf has no [[registry]]")]
    NoRegistry,
    /// No registry in it has a mirror.
    #[error("no registry of registries.conf has a mirror")]
    NoMirror,
}

/// The tables of a list of them, in either form that TOML has.
fn tables(item: Option<&Item>) -> Option<Vec<&dyn TableLike>> {
    match item? {
        Item::ArrayOfTables(list) => Some(list.iter().map(|table| table as &dyn TableLike).collect()),
        Item::Value(Value::Array(list)) => {
            list.iter().map(|value| value.as_inline_table().map(|table| table as &dyn TableLike)).collect()
        }
        _ => None,
    }
}

fn text<'t>(table: &'t dyn TableLike, name: &str) -> Option<&'t str> {
    table.get(name).and_then(Item::as_str)
}

/// Registries with the mirrors that are asked by digest, and whether there are others.
fn read(registries_conf: &str) -> Result<(Vec<Mirrored>, bool), MirrorsError> {
    let bad = |error: toml_edit::TomlError| MirrorsError::Toml(error.message().to_owned());
    let document: DocumentMut = registries_conf.parse().map_err(bad)?;
    let registries = tables(document.get("registry")).ok_or(MirrorsError::NoRegistry)?;
    let (mut by_digest, mut by_tag) = (Vec::new(), false);
    for registry in registries {
        let (Some(source), Some(all)) = (text(registry, "location"), tables(registry.get("mirror"))) else { continue };
        let mut mirrors = Vec::new();
        for mirror in all {
            let Some(location) = text(mirror, "location") else { continue };
            match text(mirror, "pull-from-mirror") {
                None | Some("digest-only") => mirrors.push(location.to_owned()),
                Some("tag-only") => by_tag = true,
                Some(_) => {}
            }
        }
        if !mirrors.is_empty() {
            by_digest.push(Mirrored { source: source.to_owned(), mirrors });
        }
    }
    if by_digest.is_empty() && !by_tag {
        return Err(MirrorsError::NoMirror);
    }
    Ok((by_digest, by_tag))
}

impl Mirrors {
    /// Reads what the user gave; an empty `registries.conf` is none.
    ///
    /// # Errors
    /// [`MirrorsError`]
    pub fn read(registries_conf: &str, ca_bundle: &str) -> Result<Option<Self>, MirrorsError> {
        if registries_conf.is_empty() {
            return Ok(None);
        }
        read(registries_conf)?;
        Ok(Some(Self { registries_conf: registries_conf.to_owned(), ca_bundle: ca_bundle.to_owned() }))
    }

    /// Registries whose images are asked for by digest, as those of a release are.
    pub fn by_digest(&self) -> Vec<Mirrored> {
        read(&self.registries_conf).map(|(by_digest, _)| by_digest).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::one("[[registry]]\nlocation = 'a'\n[[registry.mirror]]\nlocation = 'b'\n", "a: b")]
    #[case::two_of_one(
        "[[registry]]\nlocation = 'a'\n[[registry.mirror]]\nlocation = 'b'\ninsecure = true\n[[registry.mirror]]\nlocation = 'c'\n",
        "a: b, c"
    )]
    #[case::inline("registry = [{ location = 'a', mirror = [{ location = 'b' }] }]", "a: b")]
    #[case::tags_are_another_thing(
        "[[registry]]\nlocation = 'a'\n[[registry.mirror]]\nlocation = 'b'\npull-from-mirror = 'tag-only'\n\
         [[registry]]\nlocation = 'c'\n[[registry.mirror]]\nlocation = 'd'\npull-from-mirror = 'digest-only'\n",
        "c: d"
    )]
    #[case::one_without_mirrors(
        "[[registry]]\nlocation = 'a'\n[[registry]]\nlocation = 'c'\n[[registry.mirror]]\nlocation = 'd'\n",
        "c: d"
    )]
    #[case::only_tags(
        "[[registry]]\nlocation = 'a'\n[[registry.mirror]]\nlocation = 'b'\npull-from-mirror = 'tag-only'\n",
        ""
    )]
    fn mirrors_are_read(#[case] text: &str, #[case] expected: &str) {
        let found = Mirrors::read(text, "").unwrap().unwrap().by_digest();
        let found: Vec<String> = found.iter().map(|m| format!("{}: {}", m.source, m.mirrors.join(", "))).collect();
        assert_eq!(found.join("; "), expected);
    }

    #[rstest]
    #[case::garbage("?;,!", "registries.conf is not TOML: ")]
    #[case::an_address_without_quotes("[[registry]]\nlocation = 192.168.1.1:5000\n", "registries.conf is not TOML: ")]
    #[case::nothing_of_ours("unqualified-search-registries = ['a']", "registries.conf has no [[registry]]")]
    #[case::no_list("registry = 'a'", "registries.conf has no [[registry]]")]
    #[case::no_mirror("[[registry]]\nlocation = 'a'\n", "no registry of registries.conf has a mirror")]
    fn what_is_none_is_said(#[case] text: &str, #[case] says: &str) {
        let error = Mirrors::read(text, "").unwrap_err().to_string();
        assert!(error.starts_with(says), "{error}");
    }

    #[test]
    fn nothing_is_no_mirrors() {
        assert_eq!(Mirrors::read("", "a certificate"), Ok(None));
    }
}
