//! The server over sockets: TLS, watches, webhooks, times.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use vlab_kube::{Authorization, Caller, Options};
use vlab_kube_server::{Keys, ServeOptions, Server, serve};

type Sender = hyper::client::conn::http1::SendRequest<Full<Bytes>>;

fn options(keys: Option<Keys>, core: Options) -> ServeOptions {
    ServeOptions { listen: "127.0.0.1:0".parse().unwrap(), keys, also: None, core, services: BTreeMap::new() }
}

async fn plain(server: &Server) -> Sender {
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn secure(server: &Server, keys: &Keys, certificate: bool) -> Sender {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(keys.ca.cert.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let config = if certificate {
        let chain = vec![CertificateDer::from_pem_slice(keys.admin.cert.as_bytes()).unwrap()];
        builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(keys.admin.key.as_bytes()).unwrap()).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    let stream = TcpStream::connect(server.also().unwrap_or(server.address())).await.unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect("127.0.0.1".try_into().unwrap(), stream)
        .await
        .unwrap();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn ask(sender: &mut Sender, method: &str, path: &str, body: &Value, token: &str) -> (u16, Value) {
    let mut request = hyper::Request::builder().method(method).uri(path).header("host", "x");
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let response = sender.send_request(request.body(Full::new(body)).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Programs in pods speak only TLS, and others nothing but HTTP.
#[tokio::test]
async fn one_server_can_be_asked_by_both() {
    let keys = Keys::make(&["127.0.0.1".into()]).unwrap();
    let mut core = Options::default();
    core.tokens.insert("known".into(), Caller::admin());
    let also = Some(("127.0.0.1:0".parse().unwrap(), keys.clone()));
    let server = serve(ServeOptions { also, ..options(None, core) }).await.unwrap();
    let made = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "lab" } });
    let (status, said) = ask(&mut plain(&server).await, "POST", "/api/v1/namespaces", &made, "").await;
    assert_eq!(status, 201, "{said}");
    let mut pod = secure(&server, &keys, false).await;
    let (status, seen) = ask(&mut pod, "GET", "/api/v1/namespaces/lab", &Value::Null, "known").await;
    assert_eq!((status, &seen["metadata"]["name"]), (200, &json!("lab")));
    let (status, _) = ask(&mut pod, "GET", "/api/v1/namespaces/lab", &Value::Null, "guessed").await;
    assert_eq!(status, 401);
}

#[tokio::test]
async fn certificates_and_tokens_say_who_one_is() {
    let keys = Keys::make(&["127.0.0.1".into()]).unwrap();
    let tokens = [("secret".to_owned(), Caller::named("jane", &[]))].into();
    let core = Options { authorization: Authorization::Roles, tokens, ..Options::default() };
    let server = serve(options(Some(keys.clone()), core)).await.unwrap();
    let mut admin = secure(&server, &keys, true).await;
    assert_eq!(ask(&mut admin, "GET", MAPS, &Value::Null, "").await.0, 200);
    let mut other = secure(&server, &keys, false).await;
    let (status, body) = ask(&mut other, "GET", MAPS, &Value::Null, "secret").await;
    assert_eq!((status, body["message"].as_str().unwrap().contains("User \"jane\" cannot list")), (403, true));
    assert_eq!(ask(&mut other, "GET", MAPS, &Value::Null, "wrong").await.0, 401);
    let (status, body) = ask(&mut other, "GET", MAPS, &Value::Null, "").await;
    assert_eq!((status, body["message"].as_str().unwrap().contains("system:anonymous")), (403, true));
    assert_eq!(ask(&mut other, "GET", "/readyz", &Value::Null, "").await.0, 200);
}

#[tokio::test]
async fn a_watch_sends_lines_as_they_come_and_ends_when_its_time_is_up() {
    let server = serve(options(None, Options::default())).await.unwrap();
    let mut watcher = plain(&server).await;
    let request = hyper::Request::get(format!("{MAPS}?watch=true&timeoutSeconds=1")).header("host", "x");
    let mut watch = watcher.send_request(request.body(Full::default()).unwrap()).await.unwrap().into_body();
    let mut sender = plain(&server).await;
    for name in ["a", "b"] {
        let (status, _) = ask(&mut sender, "POST", MAPS, &json!({ "metadata": { "name": name } }), "").await;
        assert_eq!(status, 201);
    }
    let mut text = String::new();
    while let Some(frame) = watch.frame().await {
        text.push_str(std::str::from_utf8(frame.unwrap().data_ref().unwrap()).unwrap());
    }
    let names: Vec<String> = text
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap())
        .map(|e| format!("{} {}", e["type"].as_str().unwrap(), e["object"]["metadata"]["name"].as_str().unwrap()))
        .collect();
    assert_eq!(names, ["ADDED a", "ADDED b"]);
    server.with_core(|core| assert_eq!(core.watch_count(), 0));
}

/// A webhook that allows everything and labels it.
async fn webhook(listener: TcpListener) {
    let (stream, _) = listener.accept().await.unwrap();
    let service = hyper::service::service_fn(|request: hyper::Request<hyper::body::Incoming>| async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let review: Value = serde_json::from_slice(&body).unwrap();
        let uid = review["request"]["uid"].clone();
        // [{"op":"add","path":"/data","value":{"seen":"yes"}}]
        let patch = "W3sib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEiLCJ2YWx1ZSI6eyJzZWVuIjoieWVzIn19XQ==";
        let answer = json!({ "response": { "uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": patch } });
        Ok::<_, hyper::Error>(hyper::Response::new(Full::new(Bytes::from(answer.to_string()))))
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// What a harness tells the server beside the API: only without TLS, where everybody is the administrator.
/// Each cluster has a server of its own behind the same port, watches included.
#[tokio::test]
async fn clusters_are_behind_the_same_port() {
    let server = serve(options(None, Options::default())).await.unwrap();
    let mut sender = plain(&server).await;
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a" } });
    let nodes = "/clusters/edge/api/v1/nodes";
    assert_eq!(ask(&mut sender, "POST", nodes, &node, "").await.0, 201);
    assert_eq!(ask(&mut sender, "GET", &format!("{nodes}/a"), &Value::Null, "").await.0, 200);
    for elsewhere in ["/api/v1/nodes/a", "/clusters/other/api/v1/nodes/a"] {
        assert_eq!(ask(&mut sender, "GET", elsewhere, &Value::Null, "").await.0, 404, "{elsewhere}");
    }
    let watch = format!("{nodes}?watch=true&timeoutSeconds=1");
    let mut watching = plain(&server).await;
    let request = hyper::Request::get(watch).header("host", "x").body(Full::new(Bytes::new())).unwrap();
    let response = watching.send_request(request).await.unwrap();
    let lines = response.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&lines).contains("\"ADDED\""), "{lines:?}");
}

#[tokio::test]
async fn what_is_to_go_wrong_is_told_over_plain_http() {
    let server = serve(options(None, Options::default())).await.unwrap();
    let mut harness = plain(&server).await;
    let order = |fault: Value, times: u64| json!({"fault": fault, "resource": "configmaps", "verb": "", "subresource": "*", "name": "", "after": 0, "times": times});
    assert_eq!(ask(&mut harness, "POST", "/vlab/faults", &json!({"fault": "Nothing"}), "").await.0, 400);
    assert_eq!(ask(&mut harness, "DELETE", "/vlab/faults/one", &Value::Null, "").await.0, 400);
    assert_eq!(ask(&mut harness, "PUT", "/vlab/faults", &Value::Null, "").await.0, 404);
    let first = ask(&mut harness, "POST", "/vlab/faults", &order(json!("Quota"), 1), "").await;
    assert_eq!(first, (200, json!({"order": 0})));
    // Of the watches only the one that is to hear everything hears of what is withheld.
    let second = ask(&mut harness, "POST", "/vlab/faults", &order(json!("Withhold"), 1), "").await;
    assert_eq!(second, (200, json!({"order": 1})));
    let mut watches = Vec::new();
    for faithful in [true, false] {
        let mut request = hyper::Request::builder().uri(format!("{MAPS}?watch=true")).header("host", "x");
        if faithful {
            request = request.header("vlab-faithful", "true");
        }
        let mut sender = plain(&server).await;
        let answer = sender.send_request(request.body(Full::new(Bytes::new())).unwrap()).await.unwrap();
        watches.push((sender, answer.into_body()));
    }
    let map = |name: &str| json!({"metadata": {"name": name}});
    assert_eq!(ask(&mut harness, "POST", MAPS, &map("refused"), "").await.0, 403);
    assert_eq!(ask(&mut harness, "POST", MAPS, &map("withheld"), "").await.0, 201);
    assert_eq!(ask(&mut harness, "POST", MAPS, &map("told"), "").await.0, 201);
    for ((_, watch), expected) in watches.iter_mut().zip(["withheld", "told"]) {
        let line = watch.frame().await.unwrap().unwrap().into_data().unwrap();
        let line = String::from_utf8(line.to_vec()).unwrap();
        assert!(line.lines().next().unwrap().contains(&format!("\"name\":\"{expected}\"")), "{line}");
    }
    let (status, told) = ask(&mut harness, "GET", "/vlab/faults", &Value::Null, "").await;
    assert_eq!((status, told[0].clone()), (200, json!([0, "create configmaps/refused: refused"])));
    assert!(told[1][1].as_str().unwrap().starts_with("configmaps/withheld at version "), "{told}");
    assert_eq!(ask(&mut harness, "GET", "/vlab/faults", &Value::Null, "").await.1, json!([]));
    // One that is over does nothing any more.
    let third = ask(&mut harness, "POST", "/vlab/faults", &order(json!("Quota"), 100), "").await;
    assert_eq!(third, (200, json!({"order": 2})));
    assert_eq!(ask(&mut harness, "DELETE", "/vlab/faults/2", &Value::Null, "").await.0, 200);
    assert_eq!(ask(&mut harness, "POST", MAPS, &map("again"), "").await.0, 201);
    let keys = Keys::make(&["127.0.0.1".into()]).unwrap();
    let closed = serve(options(Some(keys.clone()), Options::default())).await.unwrap();
    let mut admin = secure(&closed, &keys, true).await;
    assert_eq!(ask(&mut admin, "POST", "/vlab/faults", &order(json!("Quota"), 1), "").await.0, 405);
}

#[tokio::test]
async fn webhooks_are_called_where_their_service_is() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(webhook(listener));
    let server = serve(options(None, Options::default())).await.unwrap();
    let mut sender = plain(&server).await;
    let hook = json!({ "metadata": { "name": "h" }, "webhooks": [{
        "name": "h.example.com", "clientConfig": { "url": format!("http://{address}/x") }, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }],
    }] });
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    assert_eq!(ask(&mut sender, "POST", path, &hook, "").await.0, 201);
    let (status, made) = ask(&mut sender, "POST", MAPS, &json!({ "metadata": { "name": "x" } }), "").await;
    assert_eq!((status, &made["data"]["seen"]), (201, &json!("yes")), "{made}");
}
