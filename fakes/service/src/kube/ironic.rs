//! Metal3's agent in a discovery image (the converged flow): it runs on the host first, and starts the service's own when metal3 says so.

use serde_json::{Value, json};
use vlab_api::types::InfraEnv;

use super::client::Kind;
use super::object::{annotation, decoded, filled, key_of, text, time};
use super::operator::{ABOUT_IRONIC, INSPECTOR_URL, IRONIC_IMAGE, IRONIC_URL};
use super::pass::Pass;
use crate::commands::infra_envs;

/// On an InfraEnv: another image of metal3's agent.
const OTHER_IMAGE: &str = "infraenv.agent-install.openshift.io/ironic-agent-image-override";
/// Ports that URLs without one have.
const IRONIC_PORT: u16 = 6385;
const INSPECTOR_PORT: u16 = 5050;

/// Sees to it that metal3's agent is in the image of that InfraEnv; `Ok(true)`: the image is a new one, or is about to be shown as that.
pub(super) fn add(pass: &mut Pass<'_>, infra_env: &Value) -> Result<bool, String> {
    let key = key_of(infra_env);
    let id = pass.infra_env(&key).ok_or("there is no such infra-env yet")?;
    let row = infra_envs::find(pass.core, id).map_err(|refusal| refusal.text)?;
    let wanted = ignition(&row.infra_env, &about(pass, infra_env)?).to_string();
    if row.internal_ignition.as_deref() != Some(wanted.as_str()) {
        infra_envs::set_internal_ignition(pass.core, pass.now, id, wanted);
        return Ok(true);
    }
    let shown = &infra_env["status"]["createdTime"];
    Ok(!shown.is_null() && *shown != time(row.infra_env.updated_at))
}

/// Where metal3 is, and the image of its agent.
struct About {
    ironic: String,
    inspector: String,
    image: String,
}

fn about(pass: &Pass<'_>, infra_env: &Value) -> Result<About, String> {
    let secret = pass.get(Kind::Secret, ABOUT_IRONIC).ok_or_else(|| format!("there is no Secret {ABOUT_IRONIC}"))?;
    let said = |name: &str| decoded(text(&secret["data"][name]));
    let ironic = filled(&json!(said(IRONIC_URL))).ok_or_else(|| format!("{ABOUT_IRONIC} has no {IRONIC_URL}"))?;
    let candidates = [annotation(infra_env, OTHER_IMAGE).to_owned(), said(IRONIC_IMAGE)];
    let image = candidates.into_iter().find(|image| !image.is_empty());
    let image = image.unwrap_or_else(|| pass.core.config.settings.ironic_agent_image.clone());
    Ok(About { ironic, inspector: said(INSPECTOR_URL), image })
}

/// A URL with the port that it means.
fn with_port(url: &str, port: u16) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let port = if has_port { String::new() } else { format!(":{port}") };
    format!("{scheme}://{authority}{port}{path}")
}

/// Several of these, with commas between them.
fn each(urls: &str, port: u16, path: &str) -> String {
    let urls = urls.split(',').filter(|url| !url.is_empty());
    let urls = urls.map(|url| {
        let url = with_port(url, port);
        if url.ends_with(path) { url } else { format!("{url}{path}") }
    });
    urls.collect::<Vec<_>>().join(",")
}

/// The ignition that brings metal3's agent into the image.
fn ignition(infra_env: &InfraEnv, about: &About) -> Value {
    let (ironic, image) = (each(&about.ironic, IRONIC_PORT, ""), &about.image);
    let inspector = each(&about.inspector, INSPECTOR_PORT, "/v1/continue");
    // Where the networks are given it is not to make others.
    let vlans = if filled(&json!(infra_env.static_network_config)).is_some() { "" } else { "all" };
    let conf = format!(
        "[DEFAULT]\napi_url = {ironic}\ninspection_callback_url = {inspector}\ninsecure = True\n\
         enable_vlan_interfaces = {vlans}\n"
    );
    let proxy = infra_env.proxy.clone().unwrap_or_default();
    let proxy = [("HTTP_PROXY", proxy.http_proxy), ("HTTPS_PROXY", proxy.https_proxy), ("NO_PROXY", proxy.no_proxy)];
    // A unit file takes `%` for the beginning of a specifier.
    let environment: String = proxy
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.filter(|value| !value.is_empty())?.replace('%', "%%"))))
        .map(|(name, value)| format!("Environment=\"{name}={value}\"\n"))
        .collect();
    let unit = format!(
        "[Unit]\nDescription=Agent of metal3\nWants=network-online.target\nAfter=network-online.target\n\n\
         [Service]\nRestart=on-failure\nTimeoutStartSec=0\n{environment}\
         ExecStartPre=/bin/podman pull {image}\n\
         ExecStart=/bin/podman run --rm --privileged --network host --name ironic-agent \
         -v /etc/ironic-python-agent.conf:/etc/ironic-python-agent/ignition.conf -v /dev:/dev -v /sys:/sys \
         -v /:/mnt/coreos {image}\n\n[Install]\nWantedBy=multi-user.target\n"
    );
    let encoded: String = conf.bytes().map(|byte| format!("%{byte:02X}")).collect();
    json!({
        "ignition": { "version": "3.2.0" },
        "storage": { "files": [{ "path": "/etc/ironic-python-agent.conf", "mode": 0o644, "overwrite": false,
                                 "contents": { "source": format!("data:text/plain,{encoded}") } }] },
        "systemd": { "units": [{ "name": "ironic-agent.service", "enabled": true, "contents": unit }] },
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("https://192.0.2.10", "https://192.0.2.10:6385")]
    #[case("https://192.0.2.10:6180/", "https://192.0.2.10:6180/")]
    #[case("https://[2001:db8::1]", "https://[2001:db8::1]:6385")]
    fn a_url_has_a_port(#[case] url: &str, #[case] expected: &str) {
        assert_eq!(with_port(url, IRONIC_PORT), expected);
    }

    #[test]
    fn metal3s_agent_is_in_the_ignition() {
        let about = About {
            ironic: "https://192.0.2.10,https://192.0.2.11".into(),
            inspector: "https://192.0.2.10".into(),
            image: "quay.example.org/agent:1".into(),
        };
        let made = ignition(&InfraEnv::default(), &about);
        let unit = text(&made["systemd"]["units"][0]["contents"]);
        assert!(unit.contains("podman pull quay.example.org/agent:1"), "{unit}");
        let fixed = InfraEnv { static_network_config: Some("[]".into()), ..InfraEnv::default() };
        assert_ne!(made, ignition(&fixed, &about), "static networks make a difference");
        assert_eq!(each(&about.ironic, 1, "/x"), "https://192.0.2.10:1/x,https://192.0.2.11:1/x");
    }
}
