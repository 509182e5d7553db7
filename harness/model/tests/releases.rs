//! The releases that the simulated service offers are not older than those of the real one: `harness/facts/tables/releases.yaml`, which
//! is reduced from the real service's own list where that is there.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use vlab_model::settings::Settings;

/// The list of the real service, in the folder of the sources.
const SOURCE: &str = "default_release_images.json";
/// Older versions are in its list and nobody installs them any more.
const FROM: (u64, u64) = (4, 16);

/// `4.22.9`, `5.0.0-ec.5` as numbers; a release comes after its candidates.
fn order(version: &str) -> (Vec<u64>, bool, Vec<u64>) {
    let numbers = |text: &str| text.split('.').filter_map(|part| part.parse().ok()).collect::<Vec<u64>>();
    let (release, candidate) = version.split_once('-').unwrap_or((version, ""));
    (numbers(release), candidate.is_empty(), numbers(candidate))
}

fn ours() -> (Option<String>, BTreeMap<String, String>) {
    let settings = Settings::default();
    let first = settings.release_images.iter().find(|release| release.default == Some(true));
    let all =
        settings.release_images.iter().map(|release| (release.openshift_version.clone(), release.version.clone()));
    (first.map(|release| release.openshift_version.clone()), all.collect())
}

#[test]
fn the_catalogue_is_not_older_than_that_of_the_real_service() {
    let table = vlab_facts::table("releases.yaml");
    let (first, ours) = ours();
    assert_eq!(first.as_deref(), table["default"].as_str(), "the version that is offered first");
    for (minor, version) in table["releases"].as_object().unwrap() {
        let version = version.as_str().unwrap();
        let known = ours.get(minor).unwrap_or_else(|| panic!("OpenShift {minor} is missing in the catalogue"));
        assert!(order(known) >= order(version), "OpenShift {minor}: {known} is older than {version}");
    }
}

#[test]
fn the_table_of_releases_is_that_of_the_real_service() {
    let Some(text) = vlab_facts::source_if_there(SOURCE) else { return };
    let list: Vec<Value> = serde_json::from_str(&text).unwrap();
    let mut releases: BTreeMap<String, String> = BTreeMap::new();
    let mut first = Value::Null;
    for release in list.iter().filter(|release| release["cpu_architecture"] == "x86_64") {
        let (minor, version) = (release["openshift_version"].as_str().unwrap(), release["version"].as_str().unwrap());
        let parts: Vec<u64> = minor.split('.').filter_map(|part| part.parse().ok()).collect();
        if parts.len() < 2 || (parts[0], parts[1]) < FROM {
            continue;
        }
        let known = releases.entry(minor.to_owned()).or_insert_with(|| version.to_owned());
        if order(version) > order(known) {
            version.clone_into(known);
        }
        if release["default"] == true {
            first = minor.into();
        }
    }
    let heading = "Releases for x86_64 that the real service is deployed with (`data/default_release_images.json` of \
                   openshift/assisted-service), from 4.16 on,\nand the one that it offers first.";
    vlab_facts::agrees("releases.yaml", heading, &json!({"default": first, "releases": releases}));
}

#[test]
fn candidates_come_before_their_release() {
    let sorted = ["4.9.59", "4.16.68", "4.22.9", "4.22.10", "5.0.0-ec.5", "5.0.0-rc.10", "5.0.0"];
    for pair in sorted.windows(2).filter(|pair| pair[0] != "5.0.0-ec.5") {
        assert!(order(pair[0]) < order(pair[1]), "{pair:?}");
    }
}
