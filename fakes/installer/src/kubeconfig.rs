//! The admin's kubeconfig: without the ingress certificate at first, with it once the cluster has told its own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use x509_parser::pem::Pem;

use crate::ArtifactError;
use crate::keys::PemPair;

/// A kubeconfig with one cluster, one context and one user, in YAML.
pub(crate) fn admin(cluster: &str, server: &str, ca: &str, client: &PemPair) -> Result<Vec<u8>, ArtifactError> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": cluster,
            "cluster": { "server": server, "certificate-authority-data": BASE64.encode(ca) },
        }],
        "contexts": [{ "name": "admin", "context": { "cluster": cluster, "user": "admin" } }],
        "current-context": "admin",
        "preferences": {},
        "users": [{
            "name": "admin",
            "user": {
                "client-certificate-data": BASE64.encode(&client.cert),
                "client-key-data": BASE64.encode(&client.key),
            },
        }],
    });
    write(&config)
}

/// Checks that `pem` holds at least one X.509 certificate, and nothing that is not one.
///
/// # Errors
/// [`ArtifactError::Certificate`]
pub fn parse_ca(pem: &str) -> Result<(), ArtifactError> {
    let mut count = 0;
    for block in Pem::iter_from_buffer(pem.as_bytes()) {
        let block = block.map_err(|e| ArtifactError::Certificate(format!("not PEM: {e}")))?;
        if block.label != "CERTIFICATE" {
            return Err(ArtifactError::Certificate(format!("a PEM block is a {}, not a CERTIFICATE", block.label)));
        }
        block.parse_x509().map_err(|e| ArtifactError::Certificate(format!("not an X.509 certificate: {e}")))?;
        count += 1;
    }
    if count == 0 {
        return Err(ArtifactError::Certificate("no PEM certificate found".into()));
    }
    Ok(())
}

/// The kubeconfig with the ingress CA (`pem`, one certificate or a bundle) appended to the CA data of its clusters.
///
/// # Errors
/// [`ArtifactError::Kubeconfig`] and [`ArtifactError::Certificate`]
pub fn merge_ingress_cert(kubeconfig: &[u8], pem: &str) -> Result<Vec<u8>, ArtifactError> {
    parse_ca(pem)?;
    let bad = |what: String| ArtifactError::Kubeconfig(what);
    let mut config: Value = serde_yaml::from_slice(kubeconfig).map_err(|e| bad(e.to_string()))?;
    let clusters = config
        .get_mut("clusters")
        .and_then(Value::as_array_mut)
        .filter(|c| !c.is_empty())
        .ok_or_else(|| bad("it has no clusters".into()))?;
    for cluster in clusters {
        let data = cluster
            .pointer_mut("/cluster/certificate-authority-data")
            .ok_or_else(|| bad("a cluster has no certificate-authority-data".into()))?;
        let text = data.as_str().ok_or_else(|| bad("certificate-authority-data is not text".into()))?;
        let mut bundle = BASE64.decode(text).map_err(|e| bad(format!("certificate-authority-data: {e}")))?;
        if bundle.last().is_some_and(|b| *b != b'\n') {
            bundle.push(b'\n');
        }
        bundle.extend_from_slice(pem.trim().as_bytes());
        bundle.push(b'\n');
        *data = Value::String(BASE64.encode(bundle));
    }
    write(&config)
}

fn write(config: &Value) -> Result<Vec<u8>, ArtifactError> {
    serde_yaml::to_string(config).map(String::into_bytes).map_err(|e| ArtifactError::Kubeconfig(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Authority, Usage};
    use rstest::rstest;
    use vlab_api::Timestamp;

    fn authority(seed: u8) -> Authority {
        Authority::new(&[seed; 32], Timestamp::from_secs(1_800_000_000), "root-ca").unwrap()
    }

    fn bundle(kubeconfig: &[u8]) -> String {
        let v: Value = serde_yaml::from_slice(kubeconfig).unwrap();
        let data = v.pointer("/clusters/0/cluster/certificate-authority-data").unwrap().as_str().unwrap().to_owned();
        String::from_utf8(BASE64.decode(data).unwrap()).unwrap()
    }

    #[test]
    fn the_ingress_certificate_is_added_to_the_bundle() {
        let (ca, ingress) = (authority(1), authority(2));
        let client = ca.issue("system:admin", &Usage::Client("system:masters")).unwrap();
        let before = admin("lab", "https://api.lab.example.org:6443", &ca.pair.cert, &client).unwrap();
        let after = merge_ingress_cert(&before, &ingress.pair.cert).unwrap();
        assert_eq!(bundle(&before), ca.pair.cert);
        assert_eq!(bundle(&after), format!("{}{}", ca.pair.cert, ingress.pair.cert));
        // Nothing else changed.
        let strip = |bytes: &[u8]| {
            let mut v: Value = serde_yaml::from_slice(bytes).unwrap();
            *v.pointer_mut("/clusters/0/cluster/certificate-authority-data").unwrap() = Value::Null;
            v
        };
        assert_eq!(strip(&before), strip(&after));
    }

    #[rstest]
    #[case::empty("", "no PEM certificate")]
    #[case::text("this is no certificate", "no PEM certificate")]
    #[case::not_x509("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "not an X.509 certificate")]
    #[case::key("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "a PRIVATE KEY, not a CERTIFICATE")]
    #[case::cut("-----BEGIN CERTIFICATE-----\nAAAA\n", "not PEM")]
    fn bad_certificates_are_refused(#[case] pem: &str, #[case] reason: &str) {
        let error = parse_ca(pem).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }

    #[rstest]
    #[case::empty("", "it has no clusters")]
    #[case::none("clusters: []", "it has no clusters")]
    #[case::no_data("clusters: [{name: a, cluster: {}}]", "no certificate-authority-data")]
    #[case::bad_data(
        "clusters: [{name: a, cluster: {certificate-authority-data: '***'}}]",
        "certificate-authority-data: "
    )]
    #[case::not_yaml("{", "")]
    fn bad_kubeconfigs_are_refused(#[case] text: &str, #[case] reason: &str) {
        let error = merge_ingress_cert(text.as_bytes(), &authority(1).pair.cert).unwrap_err();
        assert!(matches!(&error, ArtifactError::Kubeconfig(r) if r.contains(reason)), "{error}");
    }
}
