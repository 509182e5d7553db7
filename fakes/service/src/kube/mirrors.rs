//! ConfigMaps with mirrors of registries, which InfraEnvs and AgentClusterInstalls name.

use serde_json::Value;
use vlab_installer::Mirrors;

use super::client::Kind;
use super::object::reference;
use super::pass::{Pass, Stop};

/// What the ConfigMap says that a spec names as `mirrorRegistryRef`; `Err` inside: why it says nothing.
pub(super) fn named(pass: &Pass<'_>, at: &Value, own_namespace: &str) -> Result<Result<Option<Mirrors>, String>, Stop> {
    let key = reference(at, own_namespace);
    if key.is_empty() {
        return Ok(Ok(None));
    }
    let Some(map) = pass.get(Kind::ConfigMap, &key) else {
        return Ok(Err(format!("Failed to get referenced ConfigMap: ConfigMap {key:?} not found")));
    };
    let Some(registries) = map["data"]["registries.conf"].as_str() else {
        return Ok(Err(format!("ConfigMap {key} does not contain registries.conf key")));
    };
    let certificates = map["data"]["ca-bundle.crt"].as_str().unwrap_or_default();
    match Mirrors::read(registries, certificates) {
        Ok(mirrors) => {
            if mirrors.is_some() {
                pass.mark_as_used(&map)?;
            }
            Ok(Ok(mirrors))
        }
        Err(error) => Ok(Err(error.to_string())),
    }
}
