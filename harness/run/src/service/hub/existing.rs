//! A hub that is there already: somebody's cluster with the service in it. Nothing of it is touched but what the run makes itself: its
//! namespaces and image sets, which bear its label and are deleted at the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use vlab_api::http::{Method, Request};
use vlab_api::ops;
use vlab_client::Endpoint;
use vlab_drive::hub::Kind;
use vlab_lab::hub::{LABEL, kubectl};
use vlab_lab::ledger::{Ledger, Resource, Token};
use vlab_lab::wait;

use super::proxy::Proxy;
use super::{ANSWER, HubProgramEnd, ask, first_end};
use crate::service::{STOP, StartError};

/// How long it may take until everything is gone that was deleted: its finalizers are the service's.
const GONE_WITHIN: Duration = Duration::from_secs(120);
/// What the user of a run must be allowed to do.
const RIGHTS: [(&str, &str, &str); 7] = [
    ("create", "", "namespaces"),
    ("delete", "", "namespaces"),
    ("create", "", "secrets"),
    ("create", "hive.openshift.io", "clusterimagesets"),
    ("create", "extensions.hive.openshift.io", "agentclusterinstalls"),
    ("patch", "agent-install.openshift.io", "agents"),
    ("watch", "agent-install.openshift.io", "agents"),
];

/// The hub, and what the run has made in it.
#[derive(Debug)]
pub struct Existing {
    proxy: Proxy,
    /// Where it is, for people.
    pub kubeconfig: PathBuf,
    /// The namespaces of the run.
    pub namespaces: Vec<String>,
    label: String,
    entry: Option<(Arc<Ledger>, Token)>,
}

/// What a run does on a hub that is there.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Its kubeconfig; the current context counts.
    pub kubeconfig: &'a Path,
    /// The namespaces that the run will make.
    pub namespaces: &'a [String],
    /// The value of the run's label.
    pub label: &'a str,
    /// Gets the log of the proxy.
    pub folder: &'a Path,
}

/// Can a hub be asked at all?
///
/// # Errors
/// There is no such kubeconfig, or no kubectl: what to do.
pub fn check(kubeconfig: &Path) -> Result<(), String> {
    if !kubeconfig.is_file() {
        return Err(format!("there is no file {}", kubeconfig.display()));
    }
    kubectl(None).map(drop)
}

impl Existing {
    /// Looks whether the run can be done there: the hub answers, has the kinds, allows what is needed, and has none of the namespaces.
    ///
    /// # Errors
    /// [`StartError`] with what to do; nothing was made then.
    pub async fn find(plan: Plan<'_>, ledger: Option<Arc<Ledger>>) -> Result<Self, StartError> {
        let Plan { kubeconfig, namespaces, label, folder } = plan;
        check(kubeconfig).map_err(StartError::NoApiServer)?;
        let kubectl = kubectl(None).map_err(StartError::NoApiServer)?;
        let proxy = Proxy::start(&kubectl, kubeconfig, folder, ledger.clone()).await?;
        let fits = fits(&proxy.endpoint, namespaces).await;
        let entered = fits.map_err(|why| StartError::ExistingHub { kubeconfig: kubeconfig.to_owned(), why });
        let entered = entered.and_then(|()| {
            let entry = |ledger: Arc<Ledger>| {
                let absolute = std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_owned());
                let token = ledger.record(Resource::OnHub { kubeconfig: absolute, label: label.to_owned() })?;
                Ok::<_, StartError>((ledger, token))
            };
            ledger.map(entry).transpose()
        });
        match entered {
            Ok(entry) => Ok(Self {
                proxy,
                kubeconfig: kubeconfig.to_owned(),
                namespaces: namespaces.to_vec(),
                label: label.to_owned(),
                entry,
            }),
            Err(error) => {
                proxy.child.stop(STOP).await;
                Err(error)
            }
        }
    }

    /// Where it answers by plain HTTP.
    pub fn endpoint(&self) -> &Endpoint {
        &self.proxy.endpoint
    }

    /// Ends when the way to it does.
    pub async fn ended(&self) -> HubProgramEnd {
        first_end([&self.proxy.child]).await
    }

    /// Deletes what bears the run's label, and ends the way to it.
    ///
    /// # Errors
    /// What is still there after its time, and what it waits for; it stays in the ledger then.
    pub async fn leave(&self) -> Result<(), String> {
        let gone = self.delete().await;
        self.proxy.child.stop(STOP).await;
        gone?;
        if let Some((ledger, token)) = &self.entry {
            ledger.release(*token).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    async fn delete(&self) -> Result<(), String> {
        // Its clusters first, as long as there is a namespace in which their controllers can work.
        for namespace in &self.namespaces {
            for kind in [Kind::ClusterDeployment, Kind::Agent, Kind::InfraEnv] {
                // Where the namespace was never made there is nothing.
                let request = Request::new(Method::Delete, kind.path_in(namespace));
                ask(self.endpoint(), &request, ANSWER).await?;
            }
        }
        let what = format!("what the run made on the hub (`{LABEL}={}`) to be gone", self.label);
        let gone = wait::until(&what, GONE_WITHIN, Duration::from_millis(200), || async {
            let mut left = Vec::new();
            for path in [NAMESPACES.to_owned(), Kind::ClusterImageSet.path_in("")] {
                for object in self.labelled(&path).await? {
                    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                    if object["metadata"]["deletionTimestamp"].is_null() {
                        ask(self.endpoint(), &Request::new(Method::Delete, format!("{path}/{name}")), ANSWER).await?;
                    }
                    let kind = object["kind"].as_str().unwrap_or("namespace or image set").to_owned();
                    left.push(format!("{kind} {name}{}", waits_for(&object)));
                }
            }
            if left.is_empty() { Ok(Some(())) } else { Err(left.join("; ")) }
        });
        gone.await.map_err(|error| error.to_string())
    }

    async fn labelled(&self, path: &str) -> Result<Vec<Value>, String> {
        let request = Request::new(Method::Get, format!("{path}?labelSelector={LABEL}%3D{}", self.label));
        let response = ask(self.endpoint(), &request, ANSWER).await?;
        if !response.is_success() {
            return Err(format!("GET {path} answered {}", response.status));
        }
        let mut list: Value = response.decode().map_err(|error| error.to_string())?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }
}

const NAMESPACES: &str = "/api/v1/namespaces";

/// What a namespace that is being deleted says it waits for.
fn waits_for(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let waits = conditions.into_iter().flatten().filter(|c| c["status"] == "True");
    let messages: Vec<&str> = waits.filter_map(|c| c["message"].as_str()).collect();
    if messages.is_empty() { String::new() } else { format!(" ({})", messages.join(", ")) }
}

async fn fits(endpoint: &Endpoint, namespaces: &[String]) -> Result<(), String> {
    for kind in Kind::all().filter(|kind| kind.api_version() != "v1") {
        let path = format!("/apis/{}", kind.api_version());
        let response = ask(endpoint, &Request::new(Method::Get, path.clone()), ANSWER).await?;
        if matches!(response.status, 401 | 403) {
            return Err(format!("GET {path} answered {}: {}", response.status, ops::reason(&response)));
        }
        let list: Value = response.decode().unwrap_or_default();
        let names = list["resources"].as_array();
        // metal3 is on hubs that provision machines themselves.
        let needed = !kind.is_of_metal3();
        if needed && !names.into_iter().flatten().any(|resource| resource["name"] == kind.plural()) {
            return Err(format!(
                "it has no {} ({}): the operator with the assisted service is not installed there",
                kind.name(),
                kind.api_version()
            ));
        }
    }
    for (verb, group, resource) in RIGHTS {
        let attributes = json!({ "verb": verb, "group": group, "resource": resource });
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": attributes },
        });
        let request =
            Request::new(Method::Post, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").json(&review);
        let answer: Value = ask(endpoint, &request, ANSWER).await?.decode().unwrap_or_default();
        if answer["status"]["allowed"] != true {
            let of = if group.is_empty() { String::new() } else { format!(".{group}") };
            let why = answer["status"]["reason"].as_str().or(answer["message"].as_str()).unwrap_or_default();
            return Err(format!("its user may not {verb} {resource}{of} {why}").trim_end().to_owned());
        }
    }
    for namespace in namespaces {
        let request = Request::new(Method::Get, format!("{NAMESPACES}/{namespace}"));
        let response = ask(endpoint, &request, ANSWER).await?;
        if response.status != 404 {
            return Err(format!(
                "the namespace {namespace} is there already (GET answered {}), and a run touches only its own: give the cluster another \
                 name, or delete it",
                response.status
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_says_what_it_waits_for() {
        let of = |status: &str| {
            json!({ "status": { "conditions": [
            { "type": "NamespaceFinalizersRemaining", "status": status, "message": "agent in 1 resource instances" },
        ] } })
        };
        assert_eq!(waits_for(&of("True")), " (agent in 1 resource instances)");
        assert_eq!(waits_for(&of("False")), "");
    }
}
