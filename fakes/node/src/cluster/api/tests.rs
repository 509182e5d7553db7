//! The API over a store in memory.

use rstest::rstest;

use super::*;
use crate::cluster::pki::node_request;

fn api() -> Api {
    Api { store: Store::in_memory(), pki: Pki::make(&["localhost".into()]).unwrap() }
}

fn admin() -> User {
    User::Somebody("system:admin".into())
}

async fn ask(api: &Api, user: User, method: &str, path: &str, body: &Value) -> ApiAnswer {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let request = ApiRequest {
        method: method.into(),
        path: path.into(),
        query: query.into(),
        body: if body.is_null() { vec![] } else { body.to_string().into_bytes() },
        user,
        ..ApiRequest::default()
    };
    api.handle(&request, Timestamp::from_secs(1_800_000_000)).await
}

#[tokio::test]
async fn a_node_from_its_request_to_its_object() {
    let api = api();
    let (_, request) = node_request("master-1").unwrap();
    let csr = json!({ "metadata": { "name": "csr-1" }, "spec": { "request": BASE64.encode(request), "username": "newcomer" } });
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    assert_eq!(ask(&api, User::Newcomer, "POST", path, &csr).await.0, 201);
    let (code, pending) = ask(&api, User::Newcomer, "GET", &format!("{path}/csr-1"), &Value::Null).await;
    assert_eq!((code, pending["status"].is_null()), (200, true));

    let approval = json!({ "status": { "conditions": [{ "type": "Approved", "status": "True" }] } });
    let own = ask(&api, User::Newcomer, "PUT", &format!("{path}/csr-1/approval"), &approval).await;
    assert_eq!(own.0, 403, "nobody approves his own");
    assert_eq!(ask(&api, admin(), "PUT", &format!("{path}/csr-1/approval"), &approval).await.0, 200);
    let (_, signed) = ask(&api, User::Newcomer, "GET", &format!("{path}/csr-1"), &Value::Null).await;
    let pem = BASE64.decode(signed["status"]["certificate"].as_str().unwrap()).unwrap();
    assert!(String::from_utf8(pem).unwrap().starts_with("-----BEGIN CERTIFICATE-----"));

    let node = json!({ "metadata": { "name": "master-1" } });
    assert_eq!(ask(&api, User::Newcomer, "POST", "/api/v1/nodes", &node).await.0, 403);
    let (code, made) = ask(&api, admin(), "POST", "/api/v1/nodes", &node).await;
    assert_eq!((code, made["kind"].as_str(), made["apiVersion"].as_str()), (201, Some("Node"), Some("v1")));
    assert_eq!(ask(&api, admin(), "POST", "/api/v1/nodes", &node).await.0, 409);
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    assert_eq!(ask(&api, admin(), "PATCH", "/api/v1/nodes/master-1/status", &ready).await.0, 200);
    let (_, node) = ask(&api, admin(), "GET", "/api/v1/nodes/master-1", &Value::Null).await;
    assert_eq!(condition(&node, "Ready"), "True");
    assert_eq!(node["metadata"]["uid"], made["metadata"]["uid"]);
}

#[tokio::test]
async fn a_request_that_cannot_be_signed_says_so() {
    let api = api();
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let csr = json!({ "metadata": { "name": "bad" }, "spec": { "request": "bm90aGluZw==" } });
    ask(&api, admin(), "POST", path, &csr).await;
    let approval = json!({ "status": { "conditions": [{ "type": "Approved", "status": "True" }] } });
    let (_, answer) = ask(&api, admin(), "PUT", &format!("{path}/bad/approval"), &approval).await;
    assert_eq!(condition(&answer, "Failed"), "True");
    assert!(answer["status"].get("certificate").is_none());
}

#[rstest]
#[case("GET", "/healthz", 200)]
#[case("GET", "/version", 200)]
#[case("GET", "/api/v1/nodes", 401)]
#[case("GET", "/apis", 401)]
#[tokio::test]
async fn what_nobody_may(#[case] method: &str, #[case] path: &str, #[case] expected: u16) {
    assert_eq!(ask(&api(), User::Nobody, method, path, &Value::Null).await.0, expected);
}

#[rstest]
#[case("GET", "/api", 200)]
#[case("GET", "/apis/config.openshift.io/v1", 200)]
#[case("GET", "/apis/apps/v1", 404)]
#[case("GET", "/api/v1/nodes/none", 404)]
#[case("DELETE", "/api/v1/nodes/none", 404)]
#[case("PATCH", "/api/v1/nodes/none", 400)]
#[case("GET", "/api/v1/nodes?watch=true", 501)]
#[case("PUT", "/api/v1/nodes", 405)]
#[case("GET", "/api/v1/namespaces/x/secrets", 200)]
#[tokio::test]
async fn codes(#[case] method: &str, #[case] path: &str, #[case] expected: u16) {
    let (code, body) = ask(&api(), admin(), method, path, &Value::Null).await;
    assert_eq!(code, expected, "{body}");
}

#[tokio::test]
async fn an_old_version_is_a_conflict() {
    let api = api();
    let path = "/api/v1/namespaces/kube-system/configmaps";
    let (_, made) =
        ask(&api, admin(), "POST", path, &json!({ "metadata": { "name": "a" }, "data": { "x": "1" } })).await;
    let mut first = made.clone();
    first["data"]["x"] = json!("2");
    assert_eq!(ask(&api, admin(), "PUT", &format!("{path}/a"), &first).await.0, 200);
    assert_eq!(ask(&api, admin(), "PUT", &format!("{path}/a"), &first).await.0, 409);
    let (_, other) = ask(&api, admin(), "GET", "/api/v1/namespaces/default/configmaps", &Value::Null).await;
    assert_eq!(other["items"], json!([]), "another namespace");
    let (_, all) = ask(&api, admin(), "GET", "/api/v1/configmaps", &Value::Null).await;
    assert_eq!(all["items"][0]["data"]["x"], "2");
}

#[tokio::test]
async fn a_table_for_kubectl() {
    let api = api();
    let operator = json!({ "metadata": { "name": "console" }, "status": { "conditions": [{ "type": "Available", "status": "True" }] } });
    ask(&api, admin(), "POST", "/apis/config.openshift.io/v1/clusteroperators", &operator).await;
    let request = ApiRequest {
        method: "GET".into(),
        path: "/apis/config.openshift.io/v1/clusteroperators".into(),
        accept: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json".into(),
        user: admin(),
        ..ApiRequest::default()
    };
    let (_, table) = api.handle(&request, Timestamp::from_secs(0)).await;
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["rows"][0]["cells"], json!(["console", "True", "", "", "2027-01-15T08:00:00Z"]));
}
