//! Asking the cluster's API as the administrator, without a socket between: what a machine of the control plane does to its own
//! cluster.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request};
use vlab_kube::Caller;

use super::api::{Answer, Api};
use super::facts::manifest;
use super::kinds::{self, Place};
use crate::say;

/// Status and body of an answer.
///
/// # Errors
/// When etcd does not answer.
pub async fn ask(api: &Arc<Api>, request: &Request) -> io::Result<(u16, Value)> {
    match api.handle(&Caller::admin(), request, Timestamp::now()).await? {
        Answer::Done(response) => Ok((response.status, serde_json::from_slice(&response.body).unwrap_or_default())),
        Answer::Watch(_) => Err(io::Error::other("a watch where an answer was expected")),
    }
}

/// What there is at a path.
///
/// # Errors
/// When there is nothing, or etcd does not answer.
pub async fn get(api: &Arc<Api>, path: &str) -> io::Result<Value> {
    match ask(api, &Request::new(Method::Get, path)).await? {
        (200, found) => Ok(found),
        (status, body) => Err(io::Error::other(format!("GET {path}: {status} {}", body["message"]))),
    }
}

/// Makes an object; `false`: there is one already.
///
/// # Errors
/// When the API refuses it, or etcd does not answer.
pub async fn create(api: &Arc<Api>, object: &Value) -> io::Result<bool> {
    let Place { collection, .. } = kinds::place(object)?;
    match ask(api, &Request::new(Method::Post, collection.clone()).json(object)).await? {
        (201, _) => Ok(true),
        (409, body) if body["reason"] == "AlreadyExists" => Ok(false),
        (status, body) => Err(io::Error::other(format!("POST {collection}: {status} {}", body["message"]))),
    }
}

/// Makes an object with its status, which a creation leaves out. Of one that is there already only the status is written, where whoever
/// made it was interrupted before that.
///
/// # Errors
/// As [`create`].
pub async fn create_with_status(api: &Arc<Api>, object: &Value) -> io::Result<bool> {
    let made = create(api, object).await?;
    let own = kinds::place(object)?.own;
    if object["status"].is_null() || (!made && !lacks_status(&get(api, &own).await?)) {
        return Ok(made);
    }
    let path = format!("{own}/status");
    let patch = Request::new(Method::Patch, path.clone()).json(&json!({ "status": object["status"] }));
    let patch = Request { headers: vec![("content-type".into(), "application/merge-patch+json".into())], ..patch };
    match ask(api, &patch).await? {
        (200, _) => Ok(made),
        (status, body) => Err(io::Error::other(format!("PATCH {path}: {status} {}", body["message"]))),
    }
}

/// Has nobody written the status of that object yet?
fn lacks_status(object: &Value) -> bool {
    object["status"].as_object().is_none_or(serde_json::Map::is_empty)
}

/// Objects of the files of a bootstrap's folders, in the order of their names.
fn objects_of(assets: &Path) -> Vec<(PathBuf, Value)> {
    let mut all = Vec::new();
    for folder in ["manifests", "openshift"] {
        let mut files: Vec<PathBuf> =
            fs::read_dir(assets.join(folder)).into_iter().flatten().flatten().map(|e| e.path()).collect();
        files.sort();
        for path in files {
            match fs::read_to_string(&path).ok().and_then(|t| manifest(&t).ok()) {
                Some(object) if object.is_object() => all.push((path, object)),
                _ => say::note("pivot", &format!("{}: not an object", path.display())),
            }
        }
    }
    all
}

/// Puts the manifests into the API, again and again while some are refused and others are not: one may need a namespace that a later
/// file makes. How many there are; what the API does not take is noted.
pub async fn apply_manifests(api: &Arc<Api>, assets: &Path) -> usize {
    let mut left = objects_of(assets);
    let mut applied = 0;
    loop {
        let before = left.len();
        let mut refused = Vec::new();
        for (path, object) in left {
            match create_with_status(api, &object).await {
                // What the lab has already is described by the product again.
                Ok(_) => applied += 1,
                Err(e) => refused.push((path, object, e)),
            }
        }
        if refused.is_empty() || refused.len() == before {
            for (path, _, e) in &refused {
                say::note("pivot", &format!("{}: {e}", path.display()));
            }
            return applied;
        }
        left = refused.into_iter().map(|(path, object, _)| (path, object)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::super::pki::Pki;
    use super::super::store::Store;
    use super::*;

    #[tokio::test]
    async fn manifests_of_known_kinds_are_applied_whatever_their_order() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("manifests")).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join("manifests").join(name), text).unwrap();
        write(
            "a.yaml",
            "kind: ClusterVersion\napiVersion: config.openshift.io/v1\nmetadata:\n  name: version\n  namespace: x\n",
        );
        write("b.yaml", "kind: Unheard\napiVersion: x/v1\nmetadata:\n  name: y\n");
        write("c.yaml", "kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: c\n  namespace: late\n");
        write("d.yaml", "kind: Namespace\napiVersion: v1\nmetadata:\n  name: late\n");
        write(
            "e.yaml",
            "kind: Infrastructure\napiVersion: config.openshift.io/v1\nmetadata:\n  name: cluster\nstatus:\n  infrastructureName: lab\n",
        );
        let api = Arc::new(Api::new(Store::in_memory(), Pki::make(&["localhost".into()]).unwrap()));
        assert_eq!(apply_manifests(&api, folder.path()).await, 4);
        let found = get(&api, "/apis/config.openshift.io/v1/infrastructures/cluster").await.unwrap();
        assert_eq!(found["status"]["infrastructureName"], "lab");
        get(&api, "/api/v1/namespaces/late/configmaps/c").await.unwrap();
        assert_eq!(apply_manifests(&api, folder.path()).await, 4, "they are there already");
    }
}
