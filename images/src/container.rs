//! A tree of files as a container image, in the form that `docker load` and `podman load` take: a tar archive with one
//! layer, its description, and a list that names both.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::json;
use tar::Builder;

use crate::ImageError;
use crate::archive;
use crate::cache::{sha256, sha256_file};
use crate::rootfs::Rootfs;

/// How a container of the image is started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Start {
    /// The program and its arguments.
    pub entrypoint: Vec<String>,
    /// Its environment.
    pub env: BTreeMap<String, String>,
    /// Its user, by number.
    pub user: String,
    /// Its working directory.
    pub directory: String,
    /// TCP ports that it listens on.
    pub ports: Vec<u16>,
    /// What else is to be known about the image.
    pub labels: BTreeMap<String, String>,
    /// The signal that ends it; empty: SIGTERM.
    pub stop_signal: String,
}

/// Writes the image `name` (with its tag) to `into` and returns its id, the checksum of its description.
///
/// # Errors
/// A file of the tree cannot be read, or `into` cannot be written.
pub fn write(tree: &Rootfs, start: &Start, architecture: &str, name: &str, into: &Path) -> Result<String, ImageError> {
    let folder = into.parent().unwrap_or(Path::new("."));
    let layer = tempfile::Builder::new().prefix(".layer-").tempfile_in(folder).map_err(ImageError::io(folder))?;
    archive::write(tree, BufWriter::new(layer.as_file()))?;
    let layer_sum = sha256_file(layer.path())?;
    let env: Vec<String> = start.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let ports: BTreeMap<String, serde_json::Value> =
        start.ports.iter().map(|p| (format!("{p}/tcp"), json!({}))).collect();
    let mut config = json!({
        "Entrypoint": start.entrypoint,
        "Env": env,
        "ExposedPorts": ports,
        "Labels": start.labels,
        "User": start.user,
        "WorkingDir": start.directory,
    });
    if !start.stop_signal.is_empty() {
        config["StopSignal"] = json!(start.stop_signal);
    }
    let description = json!({
        "architecture": architecture,
        "config": config,
        // archive::TIME
        "created": "2023-06-10T00:00:00Z",
        "history": [{"created": "2023-06-10T00:00:00Z", "created_by": "vlab images"}],
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_sum}")]},
    })
    .to_string();
    let id = sha256(description.as_bytes());
    let (config_file, layer_file) = (format!("{id}.json"), format!("{layer_sum}/layer.tar"));
    let list = json!([{"Config": config_file, "RepoTags": [name], "Layers": [layer_file]}]).to_string();

    let failed = |error| ImageError::Io { path: into.to_owned(), error };
    let mut builder = Builder::new(BufWriter::new(File::create(into).map_err(failed)?));
    let mut small = |name: &str, bytes: &[u8]| {
        let mut header = archive::header(0o644);
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, name, bytes).map_err(failed)
    };
    small("manifest.json", list.as_bytes())?;
    small(&config_file, description.as_bytes())?;
    let mut header = archive::header(0o644);
    header.set_size(fs::metadata(layer.path()).map_err(ImageError::io(layer.path()))?.len());
    let open = File::open(layer.path()).map_err(ImageError::io(layer.path()))?;
    builder.append_data(&mut header, &layer_file, open).map_err(failed)?;
    builder.into_inner().and_then(|mut into| into.flush()).map_err(failed)?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_inputs_give_the_same_bytes_and_other_ones_others() {
        let folder = tempfile::tempdir().unwrap();
        let make = |file: &str, text: &str, user: &str| {
            let mut tree = Rootfs::merged_usr();
            tree.file("etc/x", 0o644, text);
            let start = Start { user: user.into(), ports: vec![80], ..Start::default() };
            let path = folder.path().join(file);
            let id = write(&tree, &start, "amd64", "vlab-x:1", &path).unwrap();
            (id, fs::read(path).unwrap())
        };
        let one = make("one", "x", "1");
        assert_eq!(make("two", "x", "1"), one);
        assert_ne!(make("three", "y", "1").0, one.0, "other files");
        assert_ne!(make("four", "x", "2").0, one.0, "another user");
    }

    #[test]
    fn the_list_names_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image.tar");
        let mut tree = Rootfs::new();
        tree.file("hello", 0o755, "hi");
        let id = write(&tree, &Start::default(), "amd64", "vlab-x:1", &path).unwrap();
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(File::open(&path).unwrap()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
            files.insert(entry.path().unwrap().display().to_string(), bytes);
        }
        let list: serde_json::Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        assert_eq!(list[0]["RepoTags"][0], "vlab-x:1");
        let config = list[0]["Config"].as_str().unwrap();
        assert_eq!(config, format!("{id}.json"));
        let description: serde_json::Value = serde_json::from_slice(&files[config]).unwrap();
        let layer = &files[list[0]["Layers"][0].as_str().unwrap()];
        assert_eq!(description["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256(layer)));
    }
}
