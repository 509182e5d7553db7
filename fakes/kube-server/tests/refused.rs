//! What is refused, and with what: always the API's own status object, at once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rstest::rstest;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use vlab_kube::{Authorization, Caller, Options};
use vlab_kube_server::{Keys, Pair, ServeOptions, Server, serve};

const DEFINITION: &str = include_str!("clients/thing.yaml");
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/lab.example.com/v1/namespaces/default/things";

async fn server(keys: Option<Keys>, core: Options) -> Server {
    let listen = "127.0.0.1:0".parse().unwrap();
    serve(ServeOptions { listen, keys, also: None, core, services: BTreeMap::new() }).await.unwrap()
}

type Sender = hyper::client::conn::http1::SendRequest<Full<Bytes>>;

async fn plain(server: &Server) -> Sender {
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// With a client certificate.
async fn with_certificate(server: &Server, ca: &Pair, client: &Pair) -> Sender {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.cert.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let chain = vec![CertificateDer::from_pem_slice(client.cert.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(client.key.as_bytes()).unwrap();
    let config = builder.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = connector.connect("127.0.0.1".try_into().unwrap(), stream).await.unwrap();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Status, warnings and body.
async fn ask(
    sender: &mut Sender,
    method: &str,
    path: &str,
    kind: &str,
    body: &str,
    token: &str,
) -> (u16, String, Value) {
    let mut request =
        hyper::Request::builder().method(method).uri(path).header("host", "x").header("content-type", kind);
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let response = sender.send_request(request.body(Full::new(Bytes::from(body.to_owned()))).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let warnings: Vec<&str> = response.headers().get_all("warning").iter().filter_map(|w| w.to_str().ok()).collect();
    let warnings = warnings.join("; ");
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, warnings, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

const JSON: &str = "application/json";
const THING: &str = r#"{"apiVersion": "lab.example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": SPEC}"#;

#[rstest]
#[case::wrong_type(
    "POST",
    THINGS,
    JSON,
    r#"{"count": "many"}"#,
    (422, "Invalid", "spec.count: Invalid value: \"string\""))]
#[case::wrong_value("POST", THINGS, JSON, r#"{"mode": "z"}"#, (422, "Invalid", "supported values: \"a\", \"b\""))]
#[case::too_small("POST", THINGS, JSON, r#"{"count": -1}"#, (422, "Invalid", "should be greater than or equal to 0"))]
#[case::unknown_field(
    "POST",
    "/apis/lab.example.com/v1/namespaces/default/things?fieldValidation=Strict",
    JSON,
    r#"{"more": 1}"#,
    (400, "BadRequest", "unknown field \"spec.more\""))]
#[case::no_json("POST", THINGS, JSON, "{", (400, "BadRequest", ""))]
#[case::no_object("POST", THINGS, JSON, "[]", (422, "Invalid", "spec"))]
#[case::other_media("POST", THINGS, "text/plain", "{}", (415, "UnsupportedMediaType", "application/json"))]
#[case::strategic(
    "PATCH",
    "/apis/lab.example.com/v1/namespaces/default/things/x",
    "application/strategic-merge-patch+json",
    "{}",
    (415, "UnsupportedMediaType", "application/merge-patch+json"))]
#[case::not_there(
    "GET",
    "/apis/lab.example.com/v1/namespaces/default/things/none",
    JSON,
    "",
    (404, "NotFound", "things.lab.example.com \"none\" not found"))]
#[case::no_namespace(
    "POST",
    "/apis/lab.example.com/v1/namespaces/none/things",
    JSON,
    "{}",
    (404, "NotFound", "namespaces \"none\" not found"))]
#[case::no_such_kind("GET", "/api/v1/namespaces/default/others", JSON, "", (404, "NotFound", ""))]
#[case::no_such_version("GET", "/apis/apps/v9/deployments", JSON, "", (404, "NotFound", ""))]
#[case::bad_selector(
    "GET",
    "/apis/lab.example.com/v1/namespaces/default/things?labelSelector=a%20b",
    JSON,
    "",
    (400, "BadRequest", ""))]
#[case::bad_field(
    "GET",
    "/apis/lab.example.com/v1/namespaces/default/things?fieldSelector=spec.mode%3Da",
    JSON,
    "",
    (400, "BadRequest", "spec.mode"))]
#[case::bad_version(
    "GET",
    "/apis/lab.example.com/v1/namespaces/default/things?resourceVersion=x",
    JSON,
    "",
    (400, "BadRequest", ""))]
#[case::method("PUT", "/api/v1/namespaces/default/configmaps", JSON, "{}", (405, "MethodNotAllowed", ""))]
#[tokio::test]
async fn bad_input_is_answered_with_a_status(
    #[case] method: &str,
    #[case] path: &str,
    #[case] media: &str,
    #[case] spec: &str,
    #[case] (code, reason, message): (u16, &str, &str),
) {
    let server = server(None, Options::default()).await;
    let mut sender = plain(&server).await;
    let made = ask(&mut sender, "POST", DEFINITIONS, "application/yaml", DEFINITION, "").await;
    assert_eq!(made.0, 201, "{}", made.2);
    let body = if method == "POST" { THING.replace("SPEC", spec) } else { spec.to_owned() };
    let (status, _, said) = ask(&mut sender, method, path, media, &body, "").await;
    assert_eq!(
        (status, said["kind"].as_str(), said["reason"].as_str()),
        (code, Some("Status"), Some(reason)),
        "{said}"
    );
    assert_eq!((said["status"].as_str(), said["code"].as_u64()), (Some("Failure"), Some(code.into())), "{said}");
    assert!(said["message"].as_str().unwrap().contains(message), "{said}");
    // Nothing of it is left, and the next one is answered.
    let (status, _, list) = ask(&mut sender, "GET", THINGS, JSON, "", "").await;
    assert_eq!((status, &list["items"]), (200, &json!([])));
}

#[tokio::test]
async fn unknown_fields_are_dropped_with_a_warning() {
    let server = server(None, Options::default()).await;
    let mut sender = plain(&server).await;
    ask(&mut sender, "POST", DEFINITIONS, "application/yaml", DEFINITION, "").await;
    let body = THING.replace("SPEC", r#"{"more": 1, "count": 2}"#);
    let (status, warnings, made) = ask(&mut sender, "POST", THINGS, JSON, &body, "").await;
    assert_eq!((status, &made["spec"]), (201, &json!({ "count": 2, "mode": "a" })), "{made}");
    assert!(warnings.contains("unknown field \\\"spec.more\\\""), "{warnings}");
}

#[tokio::test]
async fn who_has_no_rights_is_told_so_also_when_he_watches() {
    let tokens = [("secret".to_owned(), Caller::named("system:serviceaccount:default:robot", &[]))].into();
    let core = Options { authorization: Authorization::Roles, tokens, ..Options::default() };
    let server = server(None, core).await;
    let mut sender = plain(&server).await;
    for (method, path) in [
        ("GET", "/api/v1/namespaces/default/secrets"),
        ("GET", "/api/v1/secrets?watch=true"),
        ("POST", "/api/v1/namespaces/default/secrets"),
        ("DELETE", "/api/v1/namespaces/default/secrets/x"),
    ] {
        let (status, _, said) = ask(&mut sender, method, path, JSON, "{}", "secret").await;
        assert_eq!((status, said["reason"].as_str()), (403, Some("Forbidden")), "{said}");
        let message = said["message"].as_str().unwrap();
        assert!(message.contains("User \"system:serviceaccount:default:robot\" cannot"), "{message}");
    }
    assert_eq!(ask(&mut sender, "GET", "/api/v1/secrets", JSON, "", "other").await.0, 401);
}

/// A certificate of that authority, good until that year.
fn leaf(issuer: &Issuer<'_, KeyPair>, name: &str, usage: ExtendedKeyUsagePurpose, until: i32) -> Pair {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params.extended_key_usages = vec![usage];
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    Pair { cert: params.signed_by(&key, issuer).unwrap().pem(), key: key.serialize_pem() }
}

#[tokio::test]
async fn a_certificate_that_is_not_good_is_401_and_no_broken_connection() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let ca = Pair { cert: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() };
    let issuer = Issuer::new(params, key);
    let keys = Keys {
        server: leaf(&issuer, "server", ExtendedKeyUsagePurpose::ServerAuth, 2100),
        admin: leaf(&issuer, "admin", ExtendedKeyUsagePurpose::ClientAuth, 2100),
        ca: ca.clone(),
    };
    let tokens = [("secret".to_owned(), Caller::admin())].into();
    let server = server(Some(keys.clone()), Options { tokens, ..Options::default() }).await;
    let expired = leaf(&issuer, "admin", ExtendedKeyUsagePurpose::ClientAuth, 2001);
    let stranger = Keys::make(&["127.0.0.1".into()]).unwrap().admin;
    for (pair, code) in [(&keys.admin, 200), (&expired, 401), (&stranger, 401)] {
        let mut sender = with_certificate(&server, &ca, pair).await;
        let (status, _, said) = ask(&mut sender, "GET", "/api/v1/namespaces/default/secrets", JSON, "", "").await;
        assert_eq!(status, code, "{said}");
        if code == 401 {
            assert_eq!(
                (said["kind"].as_str(), said["reason"].as_str()),
                (Some("Status"), Some("Unauthorized")),
                "{said}"
            );
            assert_eq!(ask(&mut sender, "GET", "/api", JSON, "", "secret").await.0, 200, "a token says who it is");
        }
    }
}

/// Half a request, and a client that does not read, stop nobody else.
#[tokio::test]
async fn a_client_that_stops_in_the_middle_holds_nobody_up() {
    let server = server(None, Options::default()).await;
    let mut half = TcpStream::connect(server.address()).await.unwrap();
    let head = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{";
    half.write_all(head.as_bytes()).await.unwrap();
    let mut deaf = TcpStream::connect(server.address()).await.unwrap();
    deaf.write_all(b"GET /api/v1/configmaps?watch=true HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut sender = plain(&server).await;
    let large = "x".repeat(200_000);
    for n in 0..50 {
        let body = json!({ "metadata": { "name": format!("m{n}") }, "data": { "x": large } }).to_string();
        let asked = ask(&mut sender, "POST", "/api/v1/namespaces/default/configmaps", JSON, &body, "");
        let (status, ..) = tokio::time::timeout(Duration::from_secs(60), asked).await.unwrap();
        assert_eq!(status, 201);
    }
    drop(deaf);
    let gone = async {
        while server.with_core(|core| core.watch_count()) > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
}
