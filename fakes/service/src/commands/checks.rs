//! Checks of what clusters and infra-envs have in common: pull secrets, SSH keys, proxies, time servers.

use ipnet::IpNet;

use crate::go;
use crate::refusal::Refusal;

/// Why a pull secret is refused.
pub(crate) fn check_pull_secret(secret: &str, what: &str) -> Result<(), Refusal> {
    use base64::Engine as _;
    let bad = |why: String| Err(Refusal::invalid(format!("pull secret for {what} is invalid: {why}")));
    let Ok(value) = serde_json::from_str::<serde_json::Value>(secret) else {
        return bad("pull secret must be a well-formed JSON".into());
    };
    let Some(auths) = value.get("auths").and_then(|a| a.as_object()).filter(|a| !a.is_empty()) else {
        return bad("pull secret must contain 'auths' JSON-object field".into());
    };
    for (registry, entry) in auths {
        // An entry without `auth` is nothing to the service.
        let Some(auth) = entry.get("auth").and_then(|a| a.as_str()) else { continue };
        let Some(decoded) =
            base64::engine::general_purpose::STANDARD.decode(auth).ok().and_then(|d| String::from_utf8(d).ok())
        else {
            return bad(format!("invalid pull secret: 'auth' field of \"{registry}\" is not base64-encoded"));
        };
        if decoded.split_once(':').is_none_or(|(user, password)| user.is_empty() || password.is_empty()) {
            return bad(format!("invalid pull secret: 'auth' for {registry} is not in 'user:password' format"));
        }
    }
    Ok(())
}

/// The same for a changed one: what is no JSON at all is told without a word about where.
pub(crate) fn check_changed_pull_secret(secret: &str, what: &str) -> Result<(), Refusal> {
    if serde_json::from_str::<serde_json::Value>(secret).is_err() {
        return Err(Refusal::invalid("pull secret must be a well-formed JSON"));
    }
    check_pull_secret(secret, what)
}

/// Is it an ignition config of a version that is understood?
pub(crate) fn check_ignition_text(text: &str) -> Result<(), Refusal> {
    let wrong = |why: &str, report: String| {
        Err(Refusal::invalid(format!("error parsing ignition: {why}, error report: {report}")))
    };
    let value = match serde_json::from_str::<serde_json::Value>(text) {
        Ok(value) => value,
        Err(error) => {
            let words = go::parse_text::<serde_json::Value>(text).err().unwrap_or_else(|| error.to_string());
            let report = format!("error at line {} col {}: {words}", error.line(), error.column());
            return wrong("config is not valid", report);
        }
    };
    match value.pointer("/ignition/version").and_then(serde_json::Value::as_str) {
        Some(version) if version.starts_with("3.") => Ok(()),
        _ => wrong("unsupported config version", String::new()),
    }
}

/// An SSH public key as `ssh-keygen` writes it; empty is allowed.
pub(crate) fn check_ssh_key(key: &str) -> Result<(), Refusal> {
    use base64::Engine as _;
    const KINDS: &[&str] = &[
        "ssh-rsa",
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ecdsa-sha2-nistp256@openssh.com",
        "sk-ssh-ed25519@openssh.com",
        "ssh-dss",
    ];
    for line in key.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let mut parts = line.split_whitespace();
        let kind = parts.next().filter(|k| KINDS.contains(k));
        let blob = parts.next().and_then(|b| base64::engine::general_purpose::STANDARD.decode(b).ok());
        // The key itself begins with its kind, as a string with a length before it.
        let named = kind.zip(blob).is_some_and(|(kind, blob)| {
            blob.get(..4).is_some_and(|l| u32::from_be_bytes([l[0], l[1], l[2], l[3]]) as usize == kind.len())
                && blob.get(4..4 + kind.len()) == Some(kind.as_bytes())
        });
        if !named {
            return Err(Refusal::invalid(format!(
                "SSH key: {line} does not match any supported type: ssh-rsa, ssh-ed25519, ecdsa-[VARIANT]"
            )));
        }
    }
    Ok(())
}

/// A proxy's URL; `https` proxies are not supported for plain HTTP.
pub(crate) fn check_proxy(http: Option<&str>, https: Option<&str>, no_proxy: Option<&str>) -> Result<(), Refusal> {
    for (name, url) in [("HTTP", http), ("HTTPS", https)] {
        let Some(url) = url.filter(|u| !u.is_empty()) else { continue };
        let bad = |why: String| Err(Refusal::invalid(format!("Failed to validate {name} Proxy: {why}")));
        let Some((scheme, rest)) = url.split_once("://").filter(|(_, rest)| !rest.is_empty()) else {
            return bad(format!("Proxy URL format is not valid: '{url}'"));
        };
        if scheme == "https" {
            return bad(format!("The URL scheme must be http and specified in the URL: '{url}'"));
        }
        if scheme != "http" || rest.starts_with('/') {
            return bad(format!("Proxy URL format is not valid: '{url}'"));
        }
    }
    for part in no_proxy.unwrap_or("").split(',').filter(|p| !p.is_empty() && *p != "*") {
        let plain = part.trim_start_matches("*.").trim_start_matches('.');
        let domain =
            !plain.is_empty() && plain.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':'));
        if !domain && part.parse::<IpNet>().is_err() {
            return Err(Refusal::invalid(format!(
                "NO Proxy format is not valid: '{part}'. NO Proxy is a comma-separated list of destination domain names, domains, IP addresses or other network CIDRs"
            )));
        }
    }
    Ok(())
}

/// A comma-separated list of NTP servers: addresses or names.
pub(crate) fn check_ntp(sources: Option<&str>) -> Result<(), Refusal> {
    for source in sources.unwrap_or("").split(',').filter(|s| !s.is_empty()) {
        let fine = source.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':'));
        if !fine {
            return Err(Refusal::invalid(format!("Invalid NTP source: {source}")));
        }
    }
    Ok(())
}

/// Several complaints in the form in which the real service joins them.
pub(crate) fn complaints(errors: &[String]) -> Result<(), Refusal> {
    if errors.is_empty() {
        return Ok(());
    }
    let noun = if errors.len() == 1 { "error" } else { "errors" };
    let list: String = errors.iter().map(|e| format!("\t* {e}\n")).collect();
    Err(Refusal::invalid(format!("{} {noun} occurred:\n{list}\n", errors.len())))
}
