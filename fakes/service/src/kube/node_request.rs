//! What a node asks its cluster for: a certificate as a client, and then one as a server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use vlab_api::http::{Method, Request};

/// Where requests for certificates are.
pub(super) const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// Who asks for the first certificate of a node.
pub(super) const BOOTSTRAPPER: &str = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";
/// The groups that he has, no more and no less.
pub(super) const BOOTSTRAPPERS: [&str; 3] =
    ["system:serviceaccounts:openshift-machine-config-operator", "system:serviceaccounts", "system:authenticated"];
/// What the names of nodes as users begin with.
pub(super) const NODE_PREFIX: &str = "system:node:";
/// The group that nodes are in.
pub(super) const NODE_GROUP: &str = "system:nodes";

/// A request of a node for a certificate, as kubelets make it. Who tests what is approved changes something of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRequest {
    /// Who asks.
    pub user: String,
    /// The groups that he is in.
    pub groups: Vec<String>,
    /// Whose certificate it is to be.
    pub common_name: String,
    /// And of which organization.
    pub organization: String,
    /// Names and addresses that it is to be good for.
    pub names: Vec<String>,
    /// What it is to be used for.
    pub usages: Vec<String>,
    /// Who is to sign it.
    pub signer: &'static str,
}

impl NodeRequest {
    /// As a client, before the node is there.
    pub fn client(node: &str) -> Self {
        Self {
            user: BOOTSTRAPPER.to_owned(),
            groups: BOOTSTRAPPERS.map(str::to_owned).to_vec(),
            ..Self::of(node, "client auth", "kubernetes.io/kube-apiserver-client-kubelet")
        }
    }

    /// As a server of these names and addresses.
    pub fn serving(node: &str, names: Vec<String>) -> Self {
        Self { names, ..Self::of(node, "server auth", "kubernetes.io/kubelet-serving") }
    }

    fn of(node: &str, usage: &str, signer: &'static str) -> Self {
        let user = format!("{NODE_PREFIX}{node}");
        Self {
            common_name: user.clone(),
            user,
            groups: [NODE_GROUP, "system:authenticated"].map(str::to_owned).to_vec(),
            organization: NODE_GROUP.to_owned(),
            names: Vec::new(),
            usages: ["digital signature", usage].map(str::to_owned).to_vec(),
            signer,
        }
    }

    /// The request to an API server, whose administrator is this user for it.
    ///
    /// # Errors
    /// One of the names can stand in no certificate.
    pub fn post(&self, name: &str) -> Result<Request, String> {
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": name },
            "spec": { "request": STANDARD.encode(self.pem()?), "signerName": self.signer, "usages": self.usages },
        });
        let post = Request::new(Method::Post, REQUESTS).json(&object).header("impersonate-user", self.user.as_str());
        Ok(self.groups.iter().fold(post, |post, group| post.header("impersonate-group", group.as_str())))
    }

    /// The same for the same words: its key is nobody's secret.
    fn pem(&self) -> Result<String, String> {
        // PKCS#8 of an Ed25519 key, up to its 32 bytes.
        let mut key = vec![0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
        key.extend(Sha256::digest(&self.common_name));
        let written = || {
            let key = KeyPair::try_from(key)?;
            let mut params = CertificateParams::new(self.names.clone())?;
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::OrganizationName, self.organization.as_str());
            params.distinguished_name.push(DnType::CommonName, self.common_name.as_str());
            params.serialize_request(&key)?.pem()
        };
        written().map_err(|error: rcgen::Error| format!("a certificate for {}: {error}", self.common_name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_each_time_and_a_name_that_cannot_be_is_told() {
        let request = NodeRequest::serving("worker-0", vec!["worker-0".to_owned(), "192.168.126.10".to_owned()]);
        assert_eq!(request.post("a"), request.post("a"));
        let wrong = NodeRequest::serving("worker-0", vec!["wörker".to_owned()]).post("a").unwrap_err();
        assert!(wrong.contains("system:node:worker-0"), "{wrong}");
    }
}
