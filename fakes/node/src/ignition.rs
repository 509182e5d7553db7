//! The little of Ignition configs that is needed where Ignition itself does not run: laying out the bootstrap's files on the live
//! system, and putting a file into a config before it is written to a disk. Nodes run the real Ignition.

use std::fs;
use std::io;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::machine::Root;

/// Largest file of a config in bytes, unpacked: some kilobytes of a product that is wrong could become gigabytes.
const LARGEST_FILE: u64 = 64 << 20;

/// A file of a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Absolute path.
    pub path: String,
    /// Permission bits of the file.
    pub mode: u32,
    /// What is in the file.
    pub bytes: Vec<u8>,
    /// Goes to the end of what is there.
    pub append: bool,
}

/// A unit of a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Name of the unit, such as `kubelet.service`.
    pub name: String,
    /// Its file, when it brings one.
    pub contents: Option<String>,
    /// Drop-ins: name and content.
    pub dropins: Vec<(String, String)>,
    /// Enable it?
    pub enabled: bool,
}

/// What is laid out of a config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Files, in the config's order.
    pub files: Vec<File>,
    /// Units, likewise.
    pub units: Vec<Unit>,
}

fn unpacked(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut plain = Vec::new();
    let unpacking = flate2::read::GzDecoder::new(bytes).take(LARGEST_FILE + 1).read_to_end(&mut plain);
    unpacking.map_err(|error| error.to_string())?;
    if plain.len() as u64 > LARGEST_FILE {
        return Err(format!("it is larger than {} MiB unpacked", LARGEST_FILE >> 20));
    }
    Ok(plain)
}

/// Reads a config. Users, disks and links are not for here.
///
/// # Errors
/// Words for people, with the path of the file that cannot be read.
pub fn layout(config: &[u8]) -> Result<Layout, String> {
    let config: Value = serde_json::from_slice(config).map_err(|e| format!("this is not an Ignition config: {e}"))?;
    if config.pointer("/ignition/version").and_then(Value::as_str).is_none() {
        return Err("this is not an Ignition config: it has no ignition.version".into());
    }
    let list = |pointer: &str| config.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let mut layout = Layout::default();
    for file in list("/storage/files") {
        let path = text(&file, "path").ok_or("a file has no path")?;
        let mode =
            file.get("mode").and_then(Value::as_u64).and_then(|m| u32::try_from(m).ok()).unwrap_or(0o644) & 0o7777;
        let sources = |name: &str| file.get(name).cloned().unwrap_or_default();
        let mut add = |resource: &Value, append: bool| -> Result<(), String> {
            let source = resource.get("source").and_then(Value::as_str).unwrap_or("data:,");
            let mut bytes = data_url(source).ok_or_else(|| format!("{path}: the source is not a data URL"))?;
            if resource.get("compression").and_then(Value::as_str) == Some("gzip") {
                bytes = unpacked(&bytes).map_err(|e| format!("{path}: {e}"))?;
            }
            layout.files.push(File { path: path.clone(), mode, bytes, append });
            Ok(())
        };
        let contents = sources("contents");
        if contents.is_object() {
            add(&contents, false)?;
        }
        for more in sources("append").as_array().into_iter().flatten() {
            add(more, true)?;
        }
    }
    for unit in list("/systemd/units") {
        let dropins = unit.get("dropins").and_then(Value::as_array).cloned().unwrap_or_default();
        layout.units.push(Unit {
            name: text(&unit, "name").ok_or("a unit has no name")?,
            contents: text(&unit, "contents"),
            dropins: dropins.iter().filter_map(|d| Some((text(d, "name")?, text(d, "contents")?))).collect(),
            enabled: unit.get("enabled").and_then(Value::as_bool).unwrap_or(false),
        });
    }
    Ok(layout)
}

/// Content of a `data:` URL; `None` when it is none.
pub fn data_url(url: &str) -> Option<Vec<u8>> {
    let (kind, data) = url.strip_prefix("data:")?.split_once(',')?;
    if kind.ends_with(";base64") {
        return BASE64.decode(data).ok();
    }
    let mut bytes = Vec::new();
    let mut rest = data.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            byte => bytes.push(byte),
        }
    }
    Some(bytes)
}

/// Writes files and units below a root; names of the enabled units, in order. Nothing is started.
///
/// # Errors
/// When something cannot be written; the path is in the message.
pub fn lay_out(layout: &Layout, root: &Root) -> io::Result<Vec<String>> {
    let write = |path: &str, bytes: &[u8], mode: u32, append: bool| {
        let place = root.path(path);
        let work = || {
            if let Some(folder) = place.parent() {
                fs::create_dir_all(folder)?;
            }
            let mut all = if append { fs::read(&place).unwrap_or_default() } else { Vec::new() };
            all.extend_from_slice(bytes);
            fs::write(&place, all)?;
            fs::set_permissions(&place, fs::Permissions::from_mode(mode))
        };
        work().map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))
    };
    for file in &layout.files {
        write(&file.path, &file.bytes, file.mode, file.append)?;
    }
    for unit in &layout.units {
        let folder = "/etc/systemd/system";
        if let Some(contents) = &unit.contents {
            write(&format!("{folder}/{}", unit.name), contents.as_bytes(), 0o644, false)?;
        }
        for (name, contents) in &unit.dropins {
            write(&format!("{folder}/{}.d/{name}", unit.name), contents.as_bytes(), 0o644, false)?;
        }
    }
    Ok(layout.units.iter().filter(|u| u.enabled).map(|u| u.name.clone()).collect())
}

/// A file entry of a config.
pub fn file(path: &str, mode: u32, bytes: &[u8]) -> Value {
    let source = format!("data:;base64,{}", BASE64.encode(bytes));
    json!({ "path": path, "mode": mode, "overwrite": true, "contents": { "source": source } })
}

/// A unit entry of a config.
pub fn unit(name: &str, contents: &str) -> Value {
    json!({ "name": name, "enabled": true, "contents": contents })
}

/// Puts entries into a list of a config (`/storage/files`, `/systemd/units`): those of the same path or name are replaced.
///
/// # Errors
/// When the config is none.
pub fn put(config: &[u8], files: Vec<Value>, units: Vec<Value>) -> Result<Vec<u8>, String> {
    layout(config)?;
    let mut config: Value = serde_json::from_slice(config).map_err(|e| e.to_string())?;
    for (outer, inner, key, entries) in [("storage", "files", "path", files), ("systemd", "units", "name", units)] {
        if entries.is_empty() {
            continue;
        }
        let list = &mut config[outer][inner];
        let mut all = list.as_array().cloned().unwrap_or_default();
        all.retain(|old| !entries.iter().any(|new| new.get(key) == old.get(key)));
        all.extend(entries);
        *list = Value::Array(all);
    }
    Ok(config.to_string().into_bytes())
}

/// The users of a config (`passwd.users`); none, when it names none.
pub fn users(config: &[u8]) -> Vec<Value> {
    let config: Option<Value> = serde_json::from_slice(config).ok();
    config.and_then(|config| config.pointer("/passwd/users")?.as_array().cloned()).unwrap_or_default()
}

/// Puts all files and units of another config on top of one.
///
/// # Errors
/// When either is no config.
pub fn put_all(config: &[u8], other: &[u8]) -> Result<Vec<u8>, String> {
    layout(other)?;
    let other: Value = serde_json::from_slice(other).map_err(|e| e.to_string())?;
    let list = |pointer: &str| other.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut merged: Value = serde_json::from_slice(&put(config, list("/storage/files"), list("/systemd/units"))?)
        .map_err(|e| e.to_string())?;
    // Who may log in is the other config's to say when this one says nothing.
    if merged.get("passwd").is_none()
        && let Some(passwd) = other.get("passwd")
    {
        merged["passwd"] = passwd.clone();
    }
    Ok(merged.to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("data:,a%20b", Some("a b"))]
    #[case("data:text/plain;charset=utf-8;base64,aGk=", Some("hi"))]
    #[case("data:,", Some(""))]
    #[case("data:,%2", None)]
    #[case("https://x.test/", None)]
    fn data_urls(#[case] url: &str, #[case] expected: Option<&str>) {
        assert_eq!(data_url(url), expected.map(|t| t.as_bytes().to_vec()));
    }

    #[test]
    fn a_small_file_that_unpacks_to_a_huge_one_is_refused() {
        let bomb = |size: u64| {
            let mut packed = Vec::new();
            let mut zeroes = io::repeat(0).take(size);
            flate2::read::GzEncoder::new(&mut zeroes, flate2::Compression::best()).read_to_end(&mut packed).unwrap();
            let source = format!("data:;base64,{}", BASE64.encode(packed));
            let file = json!({ "path": "/bomb", "contents": { "source": source, "compression": "gzip" } });
            json!({ "ignition": { "version": "3.2.0" }, "storage": { "files": [file] } }).to_string()
        };
        assert_eq!(layout(bomb(1000).as_bytes()).unwrap().files[0].bytes.len(), 1000);
        let error = layout(bomb(LARGEST_FILE + 1).as_bytes()).unwrap_err();
        assert_eq!(error, "/bomb: it is larger than 64 MiB unpacked");
    }

    #[test]
    fn a_config_is_laid_out() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let config = json!({ "ignition": { "version": "3.2.0" },
            "storage": { "files": [
                file("/usr/local/bin/x.sh", 0o755, b"#!/bin/sh\n"),
                { "path": "/etc/list", "append": [{ "source": "data:,one%0A" }, { "source": "data:,two%0A" }] }] },
            "systemd": { "units": [unit("a.service", "[Service]\n"),
                { "name": "b.service", "dropins": [{ "name": "1.conf", "contents": "[Unit]\n" }] }] } });
        let layout = layout(config.to_string().as_bytes()).unwrap();
        assert_eq!(lay_out(&layout, &root).unwrap(), ["a.service"]);
        assert_eq!(root.text("/etc/list").as_deref(), Some("one\ntwo"));
        assert_eq!(root.text("/etc/systemd/system/b.service.d/1.conf").as_deref(), Some("[Unit]"));
        let mode = fs::metadata(root.path("/usr/local/bin/x.sh")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }

    #[rstest]
    #[case::dummy(b"data".as_slice(), "this is not an Ignition config")]
    #[case::no_version(b"{}".as_slice(), "it has no ignition.version")]
    #[case::remote(br#"{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/x","contents":{"source":"http://x"}}]}}"#.as_slice(), "/x: the source is not a data URL")]
    fn what_cannot_be_laid_out(#[case] config: &[u8], #[case] expected: &str) {
        let error = layout(config).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_file_takes_the_place_of_one_with_its_path() {
        let config = json!({ "ignition": { "version": "3.2.0" }, "storage": { "files": [file("/a", 0o644, b"old"), file("/b", 0o600, b"b")] } });
        let put = put(config.to_string().as_bytes(), vec![file("/a", 0o644, b"new")], vec![]).unwrap();
        let files: Vec<_> = layout(&put).unwrap().files.into_iter().map(|f| (f.path, f.bytes)).collect();
        assert_eq!(files, [("/b".to_owned(), b"b".to_vec()), ("/a".to_owned(), b"new".to_vec())]);
    }

    #[test]
    fn the_other_config_s_users_come_along_when_there_are_none() {
        let config = json!({ "ignition": { "version": "3.2.0" } }).to_string();
        let other = json!({ "ignition": { "version": "3.2.0" }, "passwd": { "users": [{ "name": "core" }] },
            "systemd": { "units": [unit("a.service", "x")] } })
        .to_string();
        let merged: Value = serde_json::from_slice(&put_all(config.as_bytes(), other.as_bytes()).unwrap()).unwrap();
        assert_eq!(merged["passwd"]["users"][0]["name"], "core");
        assert_eq!(merged["systemd"]["units"][0]["name"], "a.service");
    }
}
