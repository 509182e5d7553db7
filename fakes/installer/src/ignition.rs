//! Ignition configs: small builders over the `ignition-config` types, and the merge of overrides.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ignition_config::Config as AnyConfig;
use ignition_config::v3_2::{
    Config, File, Ignition, IgnitionConfig, Passwd, Proxy, Resource, Security, SecurityTls, Storage, Systemd, Unit,
    User,
};
use serde_json::{Map, Value};

use crate::ArtifactError;

/// A config under construction. Only members that exist since 3.1.0 are used, so that one set of types serves both versions.
pub(crate) struct Builder {
    version: &'static str,
    merge: Vec<Resource>,
    authorities: Vec<Resource>,
    proxy: Option<Proxy>,
    users: Vec<User>,
    files: Vec<File>,
    units: Vec<Unit>,
}

impl Builder {
    /// An empty config of that version: `3.1.0` or `3.2.0`.
    pub(crate) fn new(version: &'static str) -> Self {
        Self { version, merge: vec![], authorities: vec![], proxy: None, users: vec![], files: vec![], units: vec![] }
    }

    /// The node fetches the rest of its config from there.
    pub(crate) fn merge_from(mut self, source: &str, headers: &[(&str, String)]) -> Self {
        let http_headers = (!headers.is_empty()).then(|| {
            headers
                .iter()
                .map(|(name, value)| ignition_config::v3_2::HttpHeadersItem {
                    name: (*name).to_owned(),
                    value: Some(value.clone()),
                })
                .collect()
        });
        self.merge.push(Resource { source: Some(source.to_owned()), http_headers, ..Resource::default() });
        self
    }

    /// Ignition trusts this CA (PEM) when it fetches.
    pub(crate) fn trust(mut self, pem: &[u8]) -> Self {
        self.authorities.push(Resource { source: Some(data_url(pem)), ..Resource::default() });
        self
    }

    /// Ignition fetches through these proxies, but for what stands in `no`, parted by commas. Without a proxy there is nothing to say.
    pub(crate) fn proxied(mut self, http: Option<&str>, https: Option<&str>, no: Option<&str>) -> Self {
        if http.is_some() || https.is_some() {
            self.proxy = Some(Proxy {
                http_proxy: http.map(str::to_owned),
                https_proxy: https.map(str::to_owned),
                no_proxy: no.map(|no| no.split(',').map(|one| Some(one.to_owned())).collect()),
            });
        }
        self
    }

    /// The user `core` with these SSH keys, one a line; nothing when there is none.
    pub(crate) fn core_user(mut self, ssh_keys: Option<&str>) -> Self {
        let keys: Vec<String> =
            ssh_keys.unwrap_or("").lines().map(|k| k.trim().to_owned()).filter(|k| !k.is_empty()).collect();
        if !keys.is_empty() {
            self.users.push(User { ssh_authorized_keys: Some(keys), ..User::new("core".into()) });
        }
        self
    }

    /// A file owned by root that replaces what was there.
    pub(crate) fn file(self, path: &str, mode: i64, content: impl AsRef<[u8]>) -> Self {
        let source = data_url(content.as_ref());
        self.file_from(path, mode, source)
    }

    /// The same with the data URL given.
    pub(crate) fn file_from(mut self, path: &str, mode: i64, source: String) -> Self {
        self.files.push(File {
            contents: Some(Resource { source: Some(source), ..Resource::default() }),
            mode: Some(mode),
            overwrite: Some(true),
            user: Some(ignition_config::v3_2::NodeUser { id: None, name: Some("root".into()) }),
            ..File::new(path.to_owned())
        });
        self
    }

    /// A unit, enabled or not.
    pub(crate) fn unit(mut self, name: &str, enabled: bool, contents: impl Into<String>) -> Self {
        self.units.push(Unit { contents: Some(contents.into()), enabled: Some(enabled), ..Unit::new(name.to_owned()) });
        self
    }

    /// The config's JSON.
    pub(crate) fn build(self) -> Vec<u8> {
        let some = |list: &Vec<Resource>| (!list.is_empty()).then(|| list.clone());
        let config = Config {
            ignition: Ignition {
                version: Some(self.version.to_owned()),
                config: some(&self.merge).map(|merge| IgnitionConfig { merge: Some(merge), replace: None }),
                security: some(&self.authorities).map(|authorities| Security {
                    tls: Some(SecurityTls { certificate_authorities: Some(authorities) }),
                }),
                proxy: self.proxy,
                ..Ignition::default()
            },
            passwd: (!self.users.is_empty()).then_some(Passwd { users: Some(self.users), groups: None }),
            storage: (!self.files.is_empty()).then(|| Storage { files: Some(self.files), ..Storage::default() }),
            systemd: (!self.units.is_empty()).then_some(Systemd { units: Some(self.units) }),
        };
        // Plain structs with string keys: this cannot fail.
        let mut value = serde_json::to_value(&config).unwrap_or_default();
        strip_nulls(&mut value);
        value.to_string().into_bytes()
    }
}

/// A data URL in base64.
pub(crate) fn data_url(content: &[u8]) -> String {
    format!("data:text/plain;charset=utf-8;base64,{}", BASE64.encode(content))
}

/// A data URL with percent encoding: everything but letters, digits and `-._~` is encoded.
pub(crate) fn data_url_percent(content: &str) -> String {
    let mut url = String::from("data:,");
    for byte in content.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    url
}

/// The types write absent members as `null`; the configs of the field leave them out, and space in the discovery image's
/// embed area is scarce.
fn strip_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(strip_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}

/// Parses a config of any version that the crate knows, and says which.
fn parse(bytes: &[u8], what: &str) -> Result<(Value, (u64, u64, u64)), ArtifactError> {
    let bad = |reason: String| ArtifactError::Ignition { what: what.to_owned(), reason };
    // The typed parse is the check; the merge works on the JSON so that no version is forced on either side.
    AnyConfig::parse_slice(bytes).map_err(|e| bad(e.to_string()))?;
    let value: Value = serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
    let text = value.pointer("/ignition/version").and_then(Value::as_str).unwrap_or_default();
    let mut parts = text.split('.').map(|p| p.parse::<u64>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    Ok((value, version))
}

/// Merges an override into a config the way Ignition merges a child into its parent: files and links by path, users, units and
/// drop-ins by name, other lists united, single values replaced. The result has the higher of the two versions.
/// `what` names the override in errors.
///
/// # Errors
/// When either is not a valid Ignition config.
pub fn merge_override(base: &[u8], overrides: &str, what: &str) -> Result<Vec<u8>, ArtifactError> {
    let (mut parent, parent_version) = parse(base, "the config to override")?;
    let (child, child_version) = parse(overrides.as_bytes(), what)?;
    merge(&mut parent, child, "");
    let (major, minor, patch) = parent_version.max(child_version);
    if let Some(version) = parent.pointer_mut("/ignition/version") {
        *version = Value::String(format!("{major}.{minor}.{patch}"));
    }
    strip_nulls(&mut parent);
    let bytes = parent.to_string().into_bytes();
    parse(&bytes, &format!("the result of merging {what}"))?;
    Ok(bytes)
}

/// Lists whose members have an identity, and the member that is it. Everything else is a set of equal values.
const KEYED_LISTS: &[(&str, &str)] = &[
    ("files", "path"),
    ("directories", "path"),
    ("links", "path"),
    ("filesystems", "device"),
    ("disks", "device"),
    ("partitions", "number"),
    ("raid", "name"),
    ("luks", "name"),
    ("users", "name"),
    ("groups", "name"),
    ("units", "name"),
    ("dropins", "name"),
    ("httpHeaders", "name"),
    ("certificateAuthorities", "source"),
    ("merge", "source"),
    ("tang", "url"),
];

/// Lists of nodes of the file system: a path is in one of them only, and the child decides in which.
const NODE_LISTS: [&str; 3] = ["files", "directories", "links"];

fn merge(parent: &mut Value, child: Value, list_name: &str) {
    match (parent, child) {
        (_, Value::Null) => {}
        (Value::Object(parent), Value::Object(child)) => merge_objects(parent, child),
        (Value::Array(parent), Value::Array(child)) => {
            let key = KEYED_LISTS.iter().find(|(name, _)| *name == list_name).map(|(_, key)| *key);
            for item in child {
                let same = parent.iter_mut().find(|p| match key {
                    // Only one level of `groups` and `users` has objects: lists of names have no key and compare whole.
                    Some(key) if item.get(key).is_some() => p.get(key) == item.get(key),
                    _ => **p == item,
                });
                match same {
                    Some(existing) => merge(existing, item, ""),
                    None => parent.push(item),
                }
            }
        }
        (parent, child) => *parent = child,
    }
}

fn merge_objects(parent: &mut Map<String, Value>, child: Map<String, Value>) {
    for (name, value) in child {
        if NODE_LISTS.contains(&name.as_str()) {
            let paths: Vec<Value> =
                value.as_array().into_iter().flatten().filter_map(|n| n.get("path").cloned()).collect();
            for other in NODE_LISTS.iter().filter(|n| **n != name) {
                if let Some(list) = parent.get_mut(*other).and_then(Value::as_array_mut) {
                    list.retain(|n| !n.get("path").is_some_and(|p| paths.contains(p)));
                }
            }
        }
        match parent.get_mut(&name) {
            Some(existing) => merge(existing, value, &name),
            None => {
                parent.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn merged(base: Value, over: Value) -> Value {
        let bytes = merge_override(base.to_string().as_bytes(), &over.to_string(), "override").unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn files_are_replaced_by_path_and_others_kept() {
        let base = json!({"ignition": {"version": "3.1.0"}, "storage": {"files": [
            {"path": "/etc/a", "mode": 420, "contents": {"source": "data:,old"}},
            {"path": "/etc/b", "contents": {"source": "data:,b"}}]}});
        let over = json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [
            {"path": "/etc/a", "contents": {"source": "data:,new"}}, {"path": "/etc/c", "contents": {"source": "data:,c"}}]}});
        assert_eq!(
            merged(base, over),
            json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [
                {"path": "/etc/a", "mode": 420, "contents": {"source": "data:,new"}},
                {"path": "/etc/b", "contents": {"source": "data:,b"}},
                {"path": "/etc/c", "contents": {"source": "data:,c"}}]}})
        );
    }

    #[test]
    fn an_older_override_does_not_lower_the_version() {
        let out = merged(json!({"ignition": {"version": "3.4.0"}}), json!({"ignition": {"version": "3.1.0"}}));
        assert_eq!(out, json!({"ignition": {"version": "3.4.0"}}));
    }

    #[test]
    fn a_link_takes_the_place_of_a_file() {
        let base =
            json!({"ignition": {"version": "3.1.0"}, "storage": {"files": [{"path": "/etc/a"}, {"path": "/etc/b"}]}});
        let over =
            json!({"ignition": {"version": "3.1.0"}, "storage": {"links": [{"path": "/etc/a", "target": "/x"}]}});
        assert_eq!(
            merged(base, over)["storage"],
            json!({"files": [{"path": "/etc/b"}], "links": [{"path": "/etc/a", "target": "/x"}]})
        );
    }

    #[test]
    fn units_merge_down_to_their_drop_ins_and_ssh_keys_are_united() {
        let base = json!({"ignition": {"version": "3.1.0"},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k1"]}]},
            "systemd": {"units": [{"name": "a.service", "enabled": true, "contents": "x",
                "dropins": [{"name": "1.conf", "contents": "one"}]}]}});
        let over = json!({"ignition": {"version": "3.1.0"},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k1", "k2"]}, {"name": "eve"}]},
            "systemd": {"units": [{"name": "a.service", "enabled": false,
                "dropins": [{"name": "1.conf", "contents": "uno"}, {"name": "2.conf"}]}]}});
        let out = merged(base, over);
        assert_eq!(
            out["passwd"]["users"],
            json!([{"name": "core", "sshAuthorizedKeys": ["k1", "k2"]}, {"name": "eve"}])
        );
        assert_eq!(
            out["systemd"]["units"],
            json!([{"name": "a.service", "enabled": false, "contents": "x",
                "dropins": [{"name": "1.conf", "contents": "uno"}, {"name": "2.conf"}]}])
        );
    }

    #[rstest]
    #[case::not_json("{", "EOF")]
    #[case::no_version("{\"ignition\": {}}", "version")]
    #[case::version_2("{\"ignition\": {\"version\": \"2.2.0\"}}", "unsupported config version: 2.2.0")]
    #[case::wrong_type("{\"ignition\": {\"version\": \"3.1.0\"}, \"storage\": {\"files\": {}}}", "invalid type")]
    #[case::no_path("{\"ignition\": {\"version\": \"3.1.0\"}, \"storage\": {\"files\": [{}]}}", "missing field `path`")]
    fn a_bad_override_is_refused_by_name(#[case] text: &str, #[case] reason: &str) {
        let error =
            merge_override(b"{\"ignition\":{\"version\":\"3.1.0\"}}", text, "the override of host x").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("the override of host x is not a valid Ignition config: "), "{text}");
        assert!(text.contains(reason), "{text}");
    }

    #[test]
    fn percent_urls_decode_back() {
        assert_eq!(data_url_percent("{\"a\": 1}~"), "data:,%7B%22a%22%3A%201%7D~");
    }

    proptest::proptest! {
        /// Merging a config into itself changes nothing, and merging is stable when repeated.
        #[test]
        fn merging_is_idempotent(paths in proptest::collection::btree_set("/[a-c]{1,3}", 0..6), extra in "/[a-c]{1,3}") {
            let files: Vec<Value> = paths.iter().map(|p| json!({"path": p, "mode": 420})).collect();
            let base = json!({"ignition": {"version": "3.1.0"}, "storage": {"files": files}});
            proptest::prop_assert_eq!(&merged(base.clone(), base.clone()), &base);
            let over = json!({"ignition": {"version": "3.1.0"}, "storage": {"files": [{"path": extra, "mode": 384}]}});
            let once = merged(base, over.clone());
            proptest::prop_assert_eq!(&merged(once.clone(), over), &once);
        }
    }
}
