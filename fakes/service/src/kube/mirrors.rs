//! ConfigMaps with mirrors of registries, which InfraEnvs and AgentClusterInstalls name.

use serde_json::Value;
use vlab_installer::Mirrors;

use super::client::Kind;
use super::object::reference;
use super::pass::{Halt, Pass, Problem};

/// What the ConfigMap says that a spec names as `mirrorRegistryRef`. Whose problem it is when it says nothing, differs by kind.
pub(super) fn named(
    pass: &Pass<'_>,
    at: &Value,
    own_namespace: &str,
    problem: fn(String) -> Problem,
) -> Result<Option<Mirrors>, Halt> {
    let key = reference(at, own_namespace);
    if key.is_empty() {
        return Ok(None);
    }
    let Some(map) = pass.get(Kind::ConfigMap, &key) else {
        let (_, name) = key.split_once('/').unwrap_or(("", &key));
        return Err(problem(format!("Failed to get referenced ConfigMap: ConfigMap {name:?} not found")).into());
    };
    let Some(registries) = map["data"]["registries.conf"].as_str() else {
        return Err(problem(format!("ConfigMap {key} does not contain registries.conf key")).into());
    };
    let certificates = map["data"]["ca-bundle.crt"].as_str().unwrap_or_default();
    let mirrors = Mirrors::read(registries, certificates).map_err(|error| problem(error.to_string()))?;
    if mirrors.is_some() {
        pass.mark_as_used(&map)?;
    }
    Ok(mirrors)
}
