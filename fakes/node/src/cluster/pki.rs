//! Keys and certificates of a cluster: those of the bootstrap's files, or made here where a service gives none.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

use x509_parser::prelude::FromDer as _;

use crate::net::http::Credentials;

/// A certificate and its key (PEM).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The certificate, as PEM.
    pub cert: String,
    /// Private key.
    pub key: String,
}

/// Keys of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pki {
    /// The authority.
    pub ca: Pair,
    /// Of the API server.
    pub api: Pair,
    /// Of the machine-config server.
    pub mcs: Pair,
    /// Of the administrator.
    pub admin: Pair,
}

/// Names of the files: authority, API server, machine-config server, administrator.
const FILES: [&str; 4] = ["root-ca", "kube-apiserver", "machine-config-server", "admin"];

fn failed(e: rcgen::Error) -> io::Error {
    io::Error::other(e)
}

impl Pki {
    /// Reads the keys of a folder.
    ///
    /// # Errors
    /// When one is missing; its path is in the message.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let read = |name: &str| {
            let file = |ending: &str| {
                let path = folder.join(format!("{name}.{ending}"));
                fs::read_to_string(&path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
            };
            Ok::<_, io::Error>(Pair { cert: file("crt")?, key: file("key")? })
        };
        let [ca, api, mcs, admin] = FILES.map(read);
        Ok(Self { ca: ca?, api: api?, mcs: mcs?, admin: admin? })
    }

    /// Makes keys of its own; servers are reached under these names and addresses.
    ///
    /// # Errors
    /// When the operating system gives no random numbers, or a name cannot be one.
    pub fn make(names: &[String]) -> io::Result<Self> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(Vec::new()).map_err(failed)?;
        params.distinguished_name.push(DnType::CommonName, "vlab-root-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let cert = params.self_signed(&key).map_err(failed)?;
        let ca = Pair { cert: cert.pem(), key: key.serialize_pem() };
        let issuer = Issuer::new(params, key);
        let issue = |common: &str, names: &[String], organisation: Option<&str>| {
            let key = KeyPair::generate().map_err(failed)?;
            let mut params = CertificateParams::new(names.to_vec()).map_err(failed)?;
            params.distinguished_name.push(DnType::CommonName, common);
            if let Some(organisation) = organisation {
                params.distinguished_name.push(DnType::OrganizationName, organisation);
            }
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            let cert = params.signed_by(&key, &issuer).map_err(failed)?;
            Ok::<_, io::Error>(Pair { cert: cert.pem(), key: key.serialize_pem() })
        };
        Ok(Self {
            api: issue("kube-apiserver", names, None)?,
            mcs: issue("machine-config-server", names, None)?,
            admin: issue("system:admin", &[], Some("system:masters"))?,
            ca,
        })
    }

    /// Writes them into a folder, for root's eyes only.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        for (name, pair) in FILES.iter().zip([&self.ca, &self.api, &self.mcs, &self.admin]) {
            for (ending, text) in [("crt", &pair.cert), ("key", &pair.key)] {
                let path = folder.join(format!("{name}.{ending}"));
                fs::write(&path, text)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            }
        }
        Ok(())
    }

    /// What the administrator shows, and whom he believes.
    pub fn admin_credentials(&self) -> Credentials {
        Credentials { ca: Some(self.ca.cert.clone()), own: Some((self.admin.cert.clone(), self.admin.key.clone())) }
    }

    /// A server certificate for this machine's own addresses, signed by the cluster's authority. The bootstrap's files only have
    /// those of names and virtual addresses.
    ///
    /// # Errors
    /// When the authority's key cannot be used.
    pub fn server(&self, common: &str, names: &[String]) -> io::Result<Pair> {
        let issuer = self.issuer()?;
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(names.to_vec()).map_err(failed)?;
        params.distinguished_name.push(DnType::CommonName, common);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let cert = params.signed_by(&key, &issuer).map_err(failed)?;
        Ok(Pair { cert: cert.pem(), key: key.serialize_pem() })
    }

    fn issuer(&self) -> io::Result<Issuer<'static, KeyPair>> {
        let key = KeyPair::from_pem(&self.ca.key).map_err(failed)?;
        Issuer::from_ca_cert_pem(&self.ca.cert, key).map_err(failed)
    }

    /// Signs a certificate request (PEM) as a client.
    ///
    /// # Errors
    /// When it is none.
    pub fn sign(&self, request: &str) -> io::Result<String> {
        let mut request = CertificateSigningRequestParams::from_pem(request).map_err(failed)?;
        request.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        request.params.is_ca = IsCa::NoCa;
        Ok(request.signed_by(&self.issuer()?).map_err(failed)?.pem())
    }
}

/// A new key and a request for a node's certificate.
///
/// # Errors
/// When the operating system gives no random numbers.
pub fn node_request(node: &str) -> io::Result<(String, String)> {
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::new(Vec::new()).map_err(failed)?;
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    let request = params.serialize_request(&key).map_err(failed)?.pem().map_err(failed)?;
    Ok((key.serialize_pem(), request))
}

/// The node that a certificate request (PEM) is for.
pub fn node_of_request(request: &str) -> Option<String> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(request.as_bytes()).ok()?;
    let (_, request) = x509_parser::certification_request::X509CertificationRequest::from_der(&pem.contents).ok()?;
    let name = request.certification_request_info.subject.iter_common_name().next()?.as_str().ok()?;
    name.strip_prefix("system:node:").map(str::to_owned)
}

/// Common name and organisations of a certificate (DER): the user and its groups.
pub fn subject(der: &[u8]) -> Option<(String, Vec<String>)> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject.iter_organization().filter_map(|a| a.as_str().ok().map(str::to_owned)).collect();
    Some((name, groups))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_s_request_is_signed_with_its_names() {
        let pki = Pki::make(&["localhost".into(), "127.0.0.1".into()]).unwrap();
        let (_, request) = node_request("master-1").unwrap();
        assert_eq!(node_of_request(&request).as_deref(), Some("master-1"));
        assert_eq!(node_of_request("nothing"), None);
        let signed = pki.sign(&request).unwrap();
        let der = crate::net::http::certificates(&signed).unwrap();
        assert_eq!(subject(&der[0]), Some(("system:node:master-1".into(), vec!["system:nodes".into()])));
        assert!(pki.sign("nothing").is_err());
    }

    #[test]
    fn keys_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let pki = Pki::make(&["localhost".into()]).unwrap();
        pki.write(folder.path()).unwrap();
        assert_eq!(Pki::read(folder.path()).unwrap(), pki);
        fs::remove_file(folder.path().join("admin.key")).unwrap();
        assert!(Pki::read(folder.path()).unwrap_err().to_string().contains("admin.key"));
    }
}
