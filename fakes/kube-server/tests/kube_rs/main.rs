//! The Rust client `kube` and its runtime over HTTPS: calls, watches that are cut, and a whole controller, also through a restart of the
//! server. What passed stands in `docs/kube.md`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod calls;
#[path = "../common/mod.rs"]
mod common;
mod controllers;
mod watches;

use std::future::Future;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_kube::Order;
use vlab_kube_server::Server;

/// A server of our own, and their client, which knows of it what the kubeconfig says.
struct Lab {
    server: Server,
    client: Client,
}

impl Lab {
    /// With the definition of the kind `Thing`, applied by the client.
    async fn new() -> Self {
        let (server, kubeconfig) = common::server().await;
        let config = Kubeconfig::from_yaml(&kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        let client = Client::try_from(config).unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let name = "things.lab.example.com";
        let definition: Value = serde_yaml::from_str(include_str!("../clients/thing.yaml")).unwrap();
        definitions.patch(name, &PatchParams::apply("tests"), &Patch::Apply(definition)).await.unwrap();
        soon(await_condition(definitions, name, conditions::is_crd_established())).await.unwrap();
        Self { server, client }
    }

    fn things(&self) -> Api<DynamicObject> {
        Api::default_namespaced_with(self.client.clone(), &thing())
    }

    /// Something is to go wrong from now on.
    fn order(&self, order: Order) -> usize {
        self.server.with_core(|core| core.order(Timestamp::now(), order))
    }

    /// How often it did.
    fn fired(&self, order: usize) -> u64 {
        self.server.with_core(|core| core.faults.fired(order))
    }
}

fn thing() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("lab.example.com", "v1", "Thing"))
}

fn a_thing(name: &str, count: u64) -> DynamicObject {
    DynamicObject::new(name, &thing()).data(json!({ "spec": { "count": count } }))
}

/// Whatever is waited for comes, or the test has failed.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("it does not come")
}

/// The code with which the server has refused.
fn refused<T: std::fmt::Debug>(answer: kube::Result<T>) -> (u16, String) {
    match answer.unwrap_err() {
        kube::Error::Api(status) => (status.code, status.reason.clone()),
        other => panic!("{other:?}"),
    }
}
