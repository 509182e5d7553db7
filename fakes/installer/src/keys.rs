//! Keys and certificates out of a seed.
//!
//! Ed25519 is used throughout because both its keys and its signatures are functions of their inputs: ECDSA would need a
//! random nonce for every signature, and two runs with the same seed would differ. Go's and Rust's TLS stacks, OpenSSL and
//! Ignition all accept Ed25519 certificates.

use std::net::IpAddr;
use std::time::Duration;

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ED25519, SanType, SerialNumber, date_time_ymd,
};
use sha2::{Digest, Sha256};
use vlab_api::Timestamp;

use crate::ArtifactError;

/// Certificates are valid for ten years.
const VALID_FOR: Duration = Duration::from_secs(3650 * 86_400);
/// They begin to be valid this long before "now": clocks of hosts may lag.
const VALID_BEFORE: Duration = Duration::from_secs(86_400);

/// DER of a PKCS#8 version 1 Ed25519 private key up to the 32 bytes of the key itself (RFC 8410).
const ED25519_PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// 32 bytes that depend on the seed and on what they are for.
pub(crate) fn derive(seed: &[u8; 32], purpose: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"vlab artifacts 1\0");
    hash.update(purpose.as_bytes());
    hash.update([0]);
    hash.update(seed);
    hash.finalize().into()
}

/// `length` characters of `alphabet`, evenly distributed, that depend on the seed and on what they are for.
pub(crate) fn derive_text(seed: &[u8; 32], purpose: &str, alphabet: &[u8], length: usize) -> String {
    let fair = 256 - 256 % alphabet.len();
    let mut text = String::with_capacity(length);
    let mut block = derive(seed, purpose);
    loop {
        for byte in block {
            if text.len() == length {
                return text;
            }
            if usize::from(byte) < fair {
                text.push(char::from(alphabet[usize::from(byte) % alphabet.len()]));
            }
        }
        block = derive(&block, purpose);
    }
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub(crate) struct PemPair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

/// The cluster's certificate authority.
pub(crate) struct Authority {
    seed: [u8; 32],
    now: Timestamp,
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pair: PemPair,
}

/// What a certificate that the authority signs is for.
pub(crate) enum Usage<'a> {
    /// A server that is reached under these names and addresses.
    Server(&'a [String]),
    /// A client; the text is its organisation (group, for Kubernetes).
    Client(&'a str),
}

impl Authority {
    pub(crate) fn new(seed: &[u8; 32], now: Timestamp, common_name: &str) -> Result<Self, ArtifactError> {
        let key = key_pair(seed, common_name)?;
        let mut params = params(seed, now, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::OrganizationalUnitName, "openshift");
        let cert: Certificate = params.self_signed(&key).map_err(signing)?;
        let pair = PemPair { cert: unix_lines(&cert.pem()), key: unix_lines(&key.serialize_pem()) };
        Ok(Self { seed: *seed, now, issuer: Issuer::new(params, key), pair })
    }

    pub(crate) fn issue(&self, common_name: &str, usage: &Usage<'_>) -> Result<PemPair, ArtifactError> {
        let key = key_pair(&self.seed, common_name)?;
        let mut params = params(&self.seed, self.now, common_name);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        match usage {
            Usage::Server(names) => {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                for name in *names {
                    params.subject_alt_names.push(match name.parse::<IpAddr>() {
                        Ok(address) => SanType::IpAddress(address),
                        Err(_) => SanType::DnsName(Ia5String::try_from(name.as_str()).map_err(signing)?),
                    });
                }
            }
            Usage::Client(organisation) => {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                params.distinguished_name.push(DnType::OrganizationName, *organisation);
            }
        }
        let cert = params.signed_by(&key, &self.issuer).map_err(signing)?;
        Ok(PemPair { cert: unix_lines(&cert.pem()), key: unix_lines(&key.serialize_pem()) })
    }
}

fn key_pair(seed: &[u8; 32], purpose: &str) -> Result<KeyPair, ArtifactError> {
    let mut der = ED25519_PKCS8_PREFIX.to_vec();
    der.extend_from_slice(&derive(seed, &format!("key {purpose}")));
    KeyPair::from_pkcs8_der_and_sign_algo(&der.as_slice().into(), &PKCS_ED25519).map_err(signing)
}

fn params(seed: &[u8; 32], now: Timestamp, common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    let micros = u64::try_from((now - VALID_BEFORE).as_micros()).unwrap_or(0);
    // Whole seconds: that is all a certificate can hold.
    params.not_before = date_time_ymd(1970, 1, 1) + Duration::from_secs(micros / 1_000_000);
    params.not_after = params.not_before + VALID_FOR;
    // 16 bytes with the first bit off: a positive number, well below the 20 bytes that are allowed.
    let mut serial = derive(seed, &format!("serial {common_name}"))[..16].to_vec();
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from(serial));
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    params.distinguished_name = name;
    params
}

fn unix_lines(pem: &str) -> String {
    pem.replace("\r\n", "\n")
}

fn signing(error: impl std::fmt::Display) -> ArtifactError {
    ArtifactError::Signing(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::pem::parse_x509_pem;

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
        let now = Timestamp::from_secs(1_800_000_000);
        let make = |seed: u8| {
            let ca = Authority::new(&[seed; 32], now, "root-ca").unwrap();
            let leaf = ca.issue("server", &Usage::Server(&["api.x.y".into(), "192.0.2.1".into()])).unwrap();
            (ca.pair.cert, ca.pair.key, leaf.cert, leaf.key)
        };
        assert_eq!(make(1), make(1));
        let (a, b) = (make(1), make(2));
        assert!(a.0 != b.0 && a.1 != b.1 && a.2 != b.2 && a.3 != b.3);
    }

    #[test]
    fn certificates_verify_against_their_authority() {
        let now = Timestamp::from_secs(1_800_000_000);
        let ca = Authority::new(&[7; 32], now, "root-ca").unwrap();
        let leaf = ca.issue("system:admin", &Usage::Client("system:masters")).unwrap();
        let (_, ca_pem) = parse_x509_pem(ca.pair.cert.as_bytes()).unwrap();
        let (_, leaf_pem) = parse_x509_pem(leaf.cert.as_bytes()).unwrap();
        let (ca_cert, leaf_cert) = (ca_pem.parse_x509().unwrap(), leaf_pem.parse_x509().unwrap());
        assert!(ca_cert.is_ca() && !leaf_cert.is_ca());
        assert_eq!(leaf_cert.issuer(), ca_cert.subject());
        assert_eq!(leaf_cert.subject().to_string(), "CN=system:admin, O=system:masters");
        let valid = leaf_cert.validity();
        assert_eq!(valid.not_before.timestamp(), 1_800_000_000 - 86_400);
        assert_eq!(valid.not_after.timestamp() - valid.not_before.timestamp(), 3650 * 86_400);
        leaf_cert.verify_signature(Some(ca_cert.public_key())).unwrap();
        ca_cert.verify_signature(None).unwrap();
    }

    #[test]
    fn derived_text_uses_the_whole_alphabet() {
        let text = derive_text(&[3; 32], "x", b"ab", 2000);
        assert_eq!(text.len(), 2000);
        let a = text.bytes().filter(|b| *b == b'a').count();
        assert!((800..1200).contains(&a), "{a}");
    }
}
