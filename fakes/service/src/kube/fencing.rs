//! Credentials with which other nodes of a cluster switch a host off. A BareMetalHost names the Secret with them, or has it made of what it
//! says of its BMC; its Agent names it from then on.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use vlab_api::types::FencingCredentialsParams;

use super::client::Kind;
use super::object::{decoded, filled, name, namespace, text};
use super::pass::{Halt, Pass, Problem, Stop, merge, post, put};
use crate::rows::HostRow;

/// The Secret of that name has them.
const NAMED: &str = "bmac.agent-install.openshift.io/fencing-credentials-secret-name";
/// A Secret with them is to be made.
const MADE: &str = "bmac.agent-install.openshift.io/create-fencing-credentials-secret";

/// Lets the Agent of a BareMetalHost name its credentials.
pub(super) fn credentials(pass: &Pass<'_>, bmh: &Value, agent: &Value) -> Result<(), Stop> {
    let annotations = &bmh["metadata"]["annotations"];
    let named = match annotations.get(NAMED) {
        Some(named) => text(named).to_owned(),
        None if annotations.get(MADE).is_some() => make(pass, bmh, agent)?,
        None => return Ok(()),
    };
    if text(&agent["spec"]["fencingCredentialsSecretRef"]) == named {
        return Ok(());
    }
    let version = &agent["metadata"]["resourceVersion"];
    let said = json!({ "metadata": { "resourceVersion": version }, "spec": { "fencingCredentialsSecretRef": named } });
    Err(merge(agent, "", &said))
}

/// Makes the Secret of what the BareMetalHost says of its BMC; gives its name.
fn make(pass: &Pass<'_>, bmh: &Value, agent: &Value) -> Result<String, Stop> {
    let bmc = &bmh["spec"]["bmc"];
    let of_bmc = format!("{}/{}", namespace(bmh), text(&bmc["credentialsName"]));
    // It is not waited for: somebody may make it yet.
    let of_bmc = pass.get(Kind::Secret, &of_bmc).ok_or(Stop::Failed)?;
    pass.mark_as_used(&of_bmc)?;
    let verified = if bmc["disableCertificateVerification"] == true { "Disabled" } else { "Enabled" };
    let data = json!({
        "address": STANDARD.encode(text(&bmc["address"])),
        "username": of_bmc["data"]["username"].as_str().unwrap_or_default(),
        "password": of_bmc["data"]["password"].as_str().unwrap_or_default(),
        "certificateVerification": STANDARD.encode(verified),
    });
    let called = format!("{}-fencing-credentials", name(agent));
    let Some(secret) = pass.get(Kind::Secret, &format!("{}/{called}", namespace(agent))) else {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "data": data,
            "metadata": { "name": called, "namespace": namespace(agent) },
        });
        return Err(post(Kind::Secret, namespace(agent), secret));
    };
    if secret["data"] != data {
        let mut changed = (*secret).clone();
        changed["data"] = data;
        return Err(put(changed));
    }
    pass.mark_as_used(&secret)?;
    Ok(called)
}

/// The credentials that an Agent names, where the service has others for its host.
pub(super) fn of_agent(
    pass: &Pass<'_>,
    agent: &Value,
    row: &HostRow,
) -> Result<Option<FencingCredentialsParams>, Halt> {
    let Some(named) = filled(&agent["spec"]["fencingCredentialsSecretRef"]) else { return Ok(None) };
    let key = format!("{}/{named}", namespace(agent));
    let missing = || Problem::Backend(format!("failed to get the fencing credentials: Secret {key:?} not found"));
    let secret = pass.get(Kind::Secret, &key).ok_or_else(missing)?;
    let said = |member: &str| decoded(text(&secret["data"][member]));
    let verification = secret["data"].get("certificateVerification").map(|_| said("certificateVerification"));
    let wanted = FencingCredentialsParams {
        address: said("address"),
        username: said("username"),
        password: said("password"),
        certificate_verification: verification,
        mac_address: None,
    };
    let is: Option<FencingCredentialsParams> =
        row.host().fencing_credentials.as_deref().and_then(|text| serde_json::from_str(text).ok());
    Ok((is.as_ref() != Some(&wanted)).then_some(wanted))
}
