//! A server over HTTPS, and the kubeconfig by which its administrator reaches it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;

use vlab_kube::Options;
use vlab_kube_server::{Keys, ServeOptions, Server, kubeconfig, serve};

pub(crate) async fn server() -> (Server, String) {
    let keys = Keys::make(&["127.0.0.1".into()]).unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let options = ServeOptions {
        listen,
        keys: Some(keys.clone()),
        also: None,
        core: Options::default(),
        services: BTreeMap::new(),
    };
    let server = serve(options).await.unwrap();
    let kubeconfig = kubeconfig(&server.url(), Some(&keys));
    (server, kubeconfig)
}
