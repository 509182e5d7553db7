//! Keys of the server: an authority of its own, the server's certificate, an administrator's.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::json;

/// A certificate and its key (PEM).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Certificate.
    pub cert: String,
    /// Private key.
    pub key: String,
}

/// Keys of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The authority.
    pub ca: Pair,
    /// The server's.
    pub server: Pair,
    /// The administrator's, of `system:masters`.
    pub admin: Pair,
}

fn failed(e: rcgen::Error) -> io::Error {
    io::Error::other(e)
}

fn leaf(
    issuer: &Issuer<'_, KeyPair>,
    name: &str,
    group: &str,
    hosts: &[String],
    usage: ExtendedKeyUsagePurpose,
) -> io::Result<Pair> {
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::new(hosts.to_vec()).map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, name);
    if !group.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.extended_key_usages = vec![usage];
    let cert = params.signed_by(&key, issuer).map_err(failed)?;
    Ok(Pair { cert: cert.pem(), key: key.serialize_pem() })
}

impl Keys {
    /// New keys for a server that is reached under these names and addresses.
    ///
    /// # Errors
    /// When a name cannot stand in a certificate.
    pub fn make(hosts: &[String]) -> io::Result<Self> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "vlab-kube-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let cert = params.self_signed(&key).map_err(failed)?;
        let ca = Pair { cert: cert.pem(), key: key.serialize_pem() };
        let issuer = Issuer::new(params, key);
        let server = leaf(&issuer, "vlab-kube", "", hosts, ExtendedKeyUsagePurpose::ServerAuth)?;
        let admin = leaf(&issuer, "kubernetes-admin", "system:masters", &[], ExtendedKeyUsagePurpose::ClientAuth)?;
        Ok(Self { ca, server, admin })
    }

    fn files(&self) -> [(&'static str, &str); 6] {
        [
            ("ca.crt", &self.ca.cert),
            ("ca.key", &self.ca.key),
            ("server.crt", &self.server.cert),
            ("server.key", &self.server.key),
            ("admin.crt", &self.admin.cert),
            ("admin.key", &self.admin.key),
        ]
    }

    /// The keys of a folder; made and written there when it has none.
    ///
    /// # Errors
    /// When they cannot be read, made or written; the path is in the message.
    pub fn of_folder(folder: &Path, hosts: &[String]) -> io::Result<Self> {
        let read = |name: &str| fs::read_to_string(folder.join(name));
        let pair = |name: &str| -> io::Result<Pair> {
            Ok(Pair { cert: read(&format!("{name}.crt"))?, key: read(&format!("{name}.key"))? })
        };
        if let (Ok(ca), Ok(server), Ok(admin)) = (pair("ca"), pair("server"), pair("admin")) {
            return Ok(Self { ca, server, admin });
        }
        let keys = Self::make(hosts)?;
        fs::create_dir_all(folder)?;
        for (name, text) in keys.files() {
            write_secret(&folder.join(name), text)?;
        }
        Ok(keys)
    }
}

/// Writes a file that only its owner can read.
///
/// # Errors
/// When it cannot be written; its path is in the message.
pub fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    let at = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    fs::write(path, text).map_err(at)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(at)
}

/// A kubeconfig with everything in it: the server's URL, its authority, the administrator's certificate. Without keys it is for HTTP.
pub fn kubeconfig(url: &str, keys: Option<&Keys>) -> String {
    let mut cluster = json!({ "server": url });
    let mut user = json!({});
    if let Some(keys) = keys {
        cluster["certificate-authority-data"] = json!(STANDARD.encode(&keys.ca.cert));
        user = json!({
            "client-certificate-data": STANDARD.encode(&keys.admin.cert), "client-key-data": STANDARD.encode(&keys.admin.key),
        });
    }
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "vlab", "preferences": {},
        "clusters": [{ "name": "vlab", "cluster": cluster }],
        "contexts": [{ "name": "vlab", "context": { "cluster": "vlab", "user": "admin", "namespace": "default" } }],
        "users": [{ "name": "admin", "user": user }],
    });
    serde_yaml::to_string(&config).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_once_and_kept_to_oneself() {
        let folder = tempfile::tempdir().unwrap();
        let first = Keys::of_folder(folder.path(), &["127.0.0.1".into(), "localhost".into()]).unwrap();
        assert_eq!(Keys::of_folder(folder.path(), &[]).unwrap(), first);
        let mode = fs::metadata(folder.path().join("ca.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let config: serde_json::Value = serde_yaml::from_str(&kubeconfig("https://127.0.0.1:1", Some(&first))).unwrap();
        assert_eq!(config["clusters"][0]["cluster"]["server"], "https://127.0.0.1:1");
        assert!(config["users"][0]["user"]["client-key-data"].is_string());
    }
}
