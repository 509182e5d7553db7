//! The certificate that the in-cluster controller uploads as the ingress CA. The service must be able to parse it.

/// Why no certificate could be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make an ingress certificate: {0}")]
pub struct IngressError(#[from] rcgen::Error);

/// Makes a fresh self-signed certificate in PEM form. Its key comes from the operating system's random numbers, so shells
/// that run in real time call this once at their start; the hosts themselves are given the text.
///
/// # Errors
/// When the operating system gives no random numbers.
pub fn make_ingress_pem() -> Result<String, IngressError> {
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "vlab ingress");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.not_before = rcgen::date_time_ymd(2024, 1, 1);
    params.not_after = rcgen::date_time_ymd(2044, 1, 1);
    Ok(params.self_signed(&key)?.pem())
}

/// A certificate for laboratories, made once: the same in every run, for virtual time. Its private
/// key was thrown away.
pub const LAB_INGRESS_PEM: &str = include_str!("lab-ingress.pem");

#[cfg(test)]
mod tests {
    use super::*;

    fn looks_like_a_certificate(pem: &str) {
        assert!(pem.starts_with("-----BEGIN CERTIFICATE-----\n"), "{pem}");
        assert!(pem.trim_end().ends_with("-----END CERTIFICATE-----"), "{pem}");
        let parsed = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap().1;
        let certificate = parsed.parse_x509().unwrap();
        assert!(certificate.subject().to_string().contains("ingress"), "{}", certificate.subject());
    }

    #[test]
    fn the_lab_certificate_is_parsable() {
        looks_like_a_certificate(LAB_INGRESS_PEM);
    }

    #[test]
    fn a_fresh_certificate_is_parsable_and_fresh() {
        let (a, b) = (make_ingress_pem().unwrap(), make_ingress_pem().unwrap());
        looks_like_a_certificate(&a);
        assert_ne!(a, b);
    }
}
