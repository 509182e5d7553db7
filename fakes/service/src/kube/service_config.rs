//! AgentServiceConfig: the operator's part, as far as a resource can be right or wrong by itself.

use serde_json::Value;
use vlab_installer::parse_ca;
use vlab_model::lease::NAMESPACE;

use super::client::Kind;
use super::conditions::{Condition, merged};
use super::object::{annotation, filled, text};
use super::pass::{Pass, Stop};

/// What is asked for at least: member, how it is called, and gibibytes. Images may have no storage at all.
const STORAGE: &[(&str, &str, u64)] =
    &[("databaseStorage", "Database", 1), ("filesystemStorage", "Filesystem", 1), ("imageStorage", "Image", 10)];

/// Status, reason and text.
type Judged = (&'static str, &'static str, String);

/// A quantity of Kubernetes in bytes; a part of one is one.
fn bytes(quantity: &Value) -> Option<u128> {
    let words = match quantity {
        Value::Number(number) => number.to_string(),
        other => other.as_str()?.to_owned(),
    };
    let digits = words.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(words.len());
    let (number, unit) = words.split_at(digits);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let unit = match unit {
        "" => 1,
        unit => {
            let (base, units) = if unit.ends_with('i') {
                (1024_u128, ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
            } else {
                (1000, ["k", "M", "G", "T", "P", "E"])
            };
            base.checked_pow(u32::try_from(units.iter().position(|known| *known == unit)? + 1).ok()?)?
        }
    };
    let scale = 10_u128.checked_pow(u32::try_from(part.len()).ok()?)?;
    let all: u128 = format!("{whole}{part}").parse().ok()?;
    Some(all.checked_mul(unit)?.div_ceil(scale))
}

/// What is wrong with the storage that it asks for.
fn storage(spec: &Value) -> Vec<String> {
    let too_small = |(member, called, least): &(&str, &str, u64)| {
        let asked = &spec[*member]["resources"]["requests"]["storage"];
        let needless = *member == "imageStorage" && spec[*member].is_null();
        let enough = bytes(asked).unwrap_or(0) >= u128::from(*least) << 30;
        let shown = filled(asked).unwrap_or_else(|| "0".to_owned());
        (!needless && !enough).then(|| format!("{called} storage {shown} is too small, it must be at least {least}Gi"))
    };
    STORAGE.iter().filter_map(too_small).collect()
}

/// The certificates for images of the operating system; `Err`: what is wrong with them.
fn image_certificates(map: Option<&Value>, name: &str) -> Result<(), String> {
    let map = map.ok_or_else(|| format!("configmaps \"{name}\" not found"))?;
    let data: Vec<(&String, &Value)> = map["data"].as_object().into_iter().flatten().collect();
    let [(key, bundle)] = data.as_slice() else {
        return Err("ConfigMap referenced by OSImageCACertRef must contain exactly one key".to_owned());
    };
    let wrong = |why: String| format!("file {key} does not contain a valid PEM certificate, {why}");
    parse_ca(text(bundle)).map(drop).map_err(|error| wrong(error.to_string()))
}

/// Members of the Secret with what is added to requests for images; `Err`: what is wrong with it.
fn image_parameters(secret: Option<&Value>, name: &str) -> Result<(), String> {
    let secret = secret.ok_or_else(|| format!("secrets \"{name}\" not found"))?;
    let known = |key: &String| ["headers", "query_params"].contains(&key.as_str());
    if secret["data"].as_object().into_iter().flatten().all(|(key, _)| known(key)) {
        return Ok(());
    }
    Err("the secret of OSImageAdditionalParamsRef may have `headers` and `query_params`, and no other entry".to_owned())
}

/// Judges it in the operator's order: the first thing that is wrong is told. `config_map` and `secret` give what is in the operator's
/// namespace.
fn judged<'o>(
    config: &Value,
    config_map: impl Fn(&str) -> Option<&'o Value>,
    secret: impl Fn(&str) -> Option<&'o Value>,
) -> Judged {
    let (own, spec) = (text(&config["metadata"]["name"]), &config["spec"]);
    if own != "agent" {
        let text = format!("Invalid name: an AgentServiceConfig must be called agent, not {own}");
        return ("False", "ConfigFailure", text);
    }
    // These two are told as completed, which they are not: so does the operator.
    if let Some(name) = filled(&spec["OSImageCACertRef"]["name"])
        && let Err(why) = image_certificates(config_map(&name), &name)
    {
        return ("True", "OSImageCACertRefFailure", why);
    }
    if let Some(name) = filled(&spec["OSImageAdditionalParamsRef"]["name"])
        && let Err(why) = image_parameters(secret(&name), &name)
    {
        return ("True", "ReasonOSImageAdditionalParamsRefFailure", why);
    }
    let small = storage(spec);
    if !small.is_empty() {
        return ("False", "StorageFailure", format!("{}.", small.join(". ")));
    }
    let images = spec["osImages"].as_array().is_some_and(|images| !images.is_empty());
    let served = annotation(config, "agent-install.openshift.io/enable-image-service");
    if images && !["", "true"].contains(&served) {
        let text = "osImages should be empty when image service is disabled".to_owned();
        return ("False", "OSImagesShouldBeEmptyFailure", text);
    }
    let mirrors = filled(&spec["mirrorRegistryRef"]["name"]);
    let deployed =
        mirrors.is_none_or(|name| config_map(&name).is_some_and(|map| map["data"]["registries.conf"].is_string()));
    if !deployed {
        let text = "Failed to generate definition for AssistedServiceDeployment".to_owned();
        return ("False", "DeploymentFailure", text);
    }
    ("True", "ReconcileSucceeded", "AgentServiceConfig reconcile completed without error.".to_owned())
}

pub(super) fn pass(pass: &mut Pass<'_>, key: &str) -> Result<(), Stop> {
    let Some(config) = pass.get(Kind::AgentServiceConfig, key) else { return Ok(()) };
    let of = |kind: Kind, name: &str| pass.client.get(kind, &format!("{NAMESPACE}/{name}")).map(|object| &**object);
    let (is, reason, message) = judged(&config, |name| of(Kind::ConfigMap, name), |name| of(Kind::Secret, name));
    let mut wanted = vec![Condition::new("ReconcileCompleted", is, reason, message)];
    // What is wrong ends the work before anything is deployed.
    if reason == "ReconcileSucceeded" {
        let text = "All the deployments are healthy";
        wanted.push(Condition::new("DeploymentsHealthy", "True", "DeploymentSucceeded", text));
    }
    let mut status = config["status"].clone();
    status["conditions"] = merged(&config["status"]["conditions"], &wanted, pass.now, true);
    pass.status(&config, status)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(json!("1Gi"), Some(1 << 30))]
    #[case(json!("0.5Gi"), Some(1 << 29))]
    #[case(json!("1.5k"), Some(1500))]
    #[case(json!("0.1"), Some(1))]
    #[case(json!(1024), Some(1024))]
    #[case(json!("2E"), Some(2_000_000_000_000_000_000))]
    #[case(json!("10Q"), None)]
    #[case(json!("Gi"), None)]
    #[case(json!(null), None)]
    fn quantities_are_bytes(#[case] quantity: Value, #[case] expected: Option<u128>) {
        assert_eq!(bytes(&quantity), expected);
    }

    fn with(name: &str, change: &Value) -> Value {
        let storage = |size: &str| json!({ "resources": { "requests": { "storage": size } } });
        let mut config = json!({ "metadata": { "name": name, "annotations": {} }, "spec": {
            "databaseStorage": storage("10Gi"), "filesystemStorage": storage("1Gi"), "imageStorage": storage("50Gi"),
        } });
        for (member, value) in change.as_object().into_iter().flatten() {
            match member.as_str() {
                "annotations" => config["metadata"]["annotations"] = value.clone(),
                member => config["spec"][member] = value.clone(),
            }
        }
        config
    }

    #[rstest]
    #[case::as_it_should_be("agent", json!({}), "True", "ReconcileSucceeded", "without error")]
    #[case::no_image_storage("agent", json!({ "imageStorage": null }), "True", "ReconcileSucceeded", "without error")]
    #[case::another_name("other", json!({}), "False", "ConfigFailure", "called agent, not other")]
    #[case::no_size("agent", json!({ "databaseStorage": {} }), "False", "StorageFailure", "Database storage 0 is too small")]
    #[case::small("agent", json!({ "filesystemStorage": { "resources": { "requests": { "storage": "1000M" } } } }), "False", "StorageFailure", "Filesystem storage 1000M")]
    #[case::images("agent", json!({ "imageStorage": { "resources": { "requests": { "storage": "9Gi" } } } }), "False", "StorageFailure", "at least 10Gi.")]
    #[case::no_certificates("agent", json!({ "OSImageCACertRef": { "name": "nowhere" } }), "True", "OSImageCACertRefFailure", "not found")]
    #[case::two_certificates("agent", json!({ "OSImageCACertRef": { "name": "two" } }), "True", "OSImageCACertRefFailure", "exactly one key")]
    #[case::no_pem("agent", json!({ "OSImageCACertRef": { "name": "mirrors" } }), "True", "OSImageCACertRefFailure", "registries.conf")]
    #[case::parameters("agent", json!({ "OSImageAdditionalParamsRef": { "name": "good" } }), "True", "ReconcileSucceeded", "")]
    #[case::other_parameters("agent", json!({ "OSImageAdditionalParamsRef": { "name": "bad" } }), "True", "ReasonOSImageAdditionalParamsRefFailure", "no other entry")]
    #[case::no_parameters("agent", json!({ "OSImageAdditionalParamsRef": { "name": "nowhere" } }), "True", "ReasonOSImageAdditionalParamsRefFailure", "not found")]
    #[case::images_of_nobody(
        "agent",
        json!({ "osImages": [{}], "annotations": { "agent-install.openshift.io/enable-image-service": "false" } }),
        "False",
        "OSImagesShouldBeEmptyFailure",
        "osImages"
    )]
    #[case::mirrors("agent", json!({ "mirrorRegistryRef": { "name": "mirrors" } }), "True", "ReconcileSucceeded", "")]
    #[case::no_mirrors("agent", json!({ "mirrorRegistryRef": { "name": "nowhere" } }), "False", "DeploymentFailure", "")]
    #[case::mirrors_without_registries("agent", json!({ "mirrorRegistryRef": { "name": "two" } }), "False", "DeploymentFailure", "")]
    fn it_is_judged(
        #[case] name: &str,
        #[case] change: Value,
        #[case] is: &str,
        #[case] reason: &str,
        #[case] says: &str,
    ) {
        let maps =
            json!({ "two": { "data": { "a": "", "b": "" } }, "mirrors": { "data": { "registries.conf": "x" } } });
        let secrets =
            json!({ "good": { "data": { "headers": "e30=" } }, "bad": { "data": { "headers": "", "more": "" } } });
        let config = with(name, &change);
        let found = judged(&config, |name| maps.get(name), |name| secrets.get(name));
        assert_eq!((found.0, found.1), (is, reason), "{}", found.2);
        assert!(found.2.contains(says), "{}", found.2);
    }
}
