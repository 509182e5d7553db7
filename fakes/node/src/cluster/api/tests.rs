//! The API over a store in memory; several servers share one.

use rstest::rstest;

use super::super::store::Store;
use super::*;
use crate::cluster::ask::{ask, create, create_with_status, get};
use crate::cluster::pki::node_request;

fn api() -> Arc<Api> {
    Arc::new(Api::new(Store::in_memory(), Pki::make(&["localhost".into()]).unwrap()))
}

fn now() -> Timestamp {
    Timestamp::from_secs(1_800_000_000)
}

async fn as_newcomer(api: &Arc<Api>, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let mut request =
        Request::new(method, path).header("authorization", format!("Bearer {}", bootstrap_token(&api.pki)));
    if !body.is_null() {
        request = request.json(body);
    }
    let Answer::Done(response) = api.serve(None, &request, now()).await.unwrap() else { panic!("a watch") };
    (response.status, serde_json::from_slice(&response.body).unwrap_or_default())
}

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn request_of(text: &str) -> Value {
    json!({ "metadata": { "name": "csr-1" }, "spec": { "request": BASE64.encode(text), "usages": ["client auth"],
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet" } })
}

#[tokio::test]
async fn a_node_from_its_request_to_its_object() {
    let api = api();
    let (_, request) = node_request("master-1").unwrap();
    assert_eq!(as_newcomer(&api, Method::Post, REQUESTS, &request_of(&request)).await.0, 201);
    let (code, pending) = as_newcomer(&api, Method::Get, &format!("{REQUESTS}/csr-1"), &Value::Null).await;
    assert_eq!((code, pending["spec"]["username"].as_str()), (200, Some("system:bootstrap:vlab")));

    let approval = crate::cluster::bootkube::approved(&pending);
    let own = as_newcomer(&api, Method::Put, &format!("{REQUESTS}/csr-1/approval"), &approval).await;
    assert_eq!(own.0, 403, "nobody approves his own");
    assert_eq!(crate::cluster::bootkube::approve(&api).await.unwrap(), ["csr-1"]);
    let (_, signed) = as_newcomer(&api, Method::Get, &format!("{REQUESTS}/csr-1"), &Value::Null).await;
    let pem = BASE64.decode(signed["status"]["certificate"].as_str().unwrap()).unwrap();
    assert!(String::from_utf8(pem).unwrap().starts_with("-----BEGIN CERTIFICATE-----"));

    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "master-1" } });
    assert_eq!(as_newcomer(&api, Method::Post, "/api/v1/nodes", &node).await.0, 403);
    assert!(create(&api, &node).await.unwrap());
    assert!(!create(&api, &node).await.unwrap(), "there is one already");
}

/// A fault of the scenario keeps one node's certificate from being approved, and nobody else's.
#[tokio::test]
async fn a_fault_refuses_the_approval_of_one_node() {
    let api = api();
    for (name, node) in [("csr-1", "worker-0"), ("csr-2", "worker-1")] {
        let mut asked = request_of(&node_request(node).unwrap().1);
        asked["metadata"]["name"] = json!(name);
        assert_eq!(as_newcomer(&api, Method::Post, REQUESTS, &asked).await.0, 201);
    }
    let path = "/api/v1/namespaces/kube-system/configmaps";
    let faults = |data: Value| json!({ "metadata": { "name": "vlab-faults" }, "data": data });
    let begins = Request::new(Method::Post, path).json(&faults(json!({ "csr-not-approved.worker-0": "yes" })));
    assert_eq!(ask(&api, &begins).await.unwrap().0, 201);
    assert_eq!(crate::cluster::bootkube::approve(&api).await.unwrap(), ["csr-2"]);
    let pending = get(&api, &format!("{REQUESTS}/csr-1")).await.unwrap();
    let approval = crate::cluster::bootkube::approved(&pending);
    let refused = ask(&api, &Request::new(Method::Put, format!("{REQUESTS}/csr-1/approval")).json(&approval)).await;
    let (code, body) = refused.unwrap();
    assert!(code == 403 && body["message"].as_str().unwrap().contains("worker-0"), "{code} {body}");
    let ends = Request::new(Method::Put, format!("{path}/vlab-faults")).json(&faults(json!({})));
    assert_eq!(ask(&api, &ends).await.unwrap().0, 200);
    assert_eq!(crate::cluster::bootkube::approve(&api).await.unwrap(), ["csr-1"]);
}

#[tokio::test]
async fn a_request_that_cannot_be_signed_says_so() {
    let api = api();
    as_newcomer(&api, Method::Post, REQUESTS, &request_of("nothing")).await;
    crate::cluster::bootkube::approve(&api).await.unwrap();
    let answer = get(&api, &format!("{REQUESTS}/csr-1")).await.unwrap();
    assert_eq!(condition(&answer, "Failed"), "True", "{answer}");
    assert!(answer["status"].get("certificate").is_none());
}

#[rstest]
#[case("/healthz", 200)]
#[case("/version", 200)]
#[case("/api/v1/nodes", 403)]
#[tokio::test]
async fn what_nobody_may(#[case] path: &str, #[case] expected: u16) {
    let Answer::Done(response) = api().serve(None, &Request::new(Method::Get, path), now()).await.unwrap() else {
        panic!("a watch")
    };
    assert_eq!(response.status, expected);
}

#[rstest]
#[case(Method::Get, "/apis/config.openshift.io/v1", 200)]
#[case(Method::Get, "/apis/metal3.io/v1alpha1", 200)]
#[case(Method::Get, "/apis/none/v1", 404)]
#[case(Method::Get, "/api/v1/nodes/none", 404)]
#[case(Method::Delete, "/api/v1/nodes/none", 404)]
#[case(Method::Put, "/api/v1/nodes", 405)]
#[case(Method::Get, "/api/v1/namespaces/x/secrets", 200)]
#[tokio::test]
async fn codes(#[case] method: Method, #[case] path: &str, #[case] expected: u16) {
    let (code, body) = ask(&api(), &Request::new(method, path)).await.unwrap();
    assert_eq!(code, expected, "{body}");
}

/// Two servers over one store, as two masters over one etcd.
fn two() -> [Arc<Api>; 2] {
    let pki = Pki::make(&["localhost".into()]).unwrap();
    let shared = Arc::new(std::sync::Mutex::new(super::super::store::Memory::default()));
    [(); 2].map(|()| Arc::new(Api::new(Store::Shared(Arc::clone(&shared)), pki.clone())))
}

fn config(name: &str, value: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "kube-system" }, "data": { "x": value } })
}

#[tokio::test]
async fn what_one_master_writes_another_one_knows() {
    let [one, other] = two();
    let path = "/api/v1/namespaces/kube-system/configmaps";
    create(&one, &config("a", "1")).await.unwrap();
    create(&other, &config("b", "1")).await.unwrap();
    let names = |list: Value| -> Vec<String> {
        list["items"].as_array().unwrap().iter().map(|o| o["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    for api in [&one, &other] {
        assert_eq!(names(get(api, path).await.unwrap()), ["a", "b"]);
    }
    assert_eq!(ask(&one, &Request::new(Method::Delete, format!("{path}/b"))).await.unwrap().0, 200);
    assert_eq!(names(get(&other, path).await.unwrap()), ["a"]);
    assert_eq!(ask(&other, &Request::new(Method::Get, format!("{path}/b"))).await.unwrap().0, 404);
    // Resource versions of both come from one counter.
    create(&other, &config("c", "1")).await.unwrap();
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let (a, c) = (get(&one, &format!("{path}/a")).await.unwrap(), get(&one, &format!("{path}/c")).await.unwrap());
    assert!(version(&a) < version(&c));
    // One that comes later reads all of it.
    let Store::Shared(shared) = &one.store else { panic!("shared") };
    let late = Arc::new(Api::new(Store::Shared(Arc::clone(shared)), one.pki.clone()));
    assert_eq!(names(get(&late, path).await.unwrap()), ["a", "c"]);
    assert!(create_with_status(&late, &config("d", "1")).await.unwrap());
}

/// One that was approved and not yet signed is signed by whoever comes next, and that does not make his own approval one.
#[tokio::test]
async fn who_approves_too_late_is_told_so() {
    let [one, other] = two();
    let (_, request) = node_request("master-1").unwrap();
    as_newcomer(&one, Method::Post, REQUESTS, &request_of(&request)).await;
    let pending = get(&one, &format!("{REQUESTS}/csr-1")).await.unwrap();
    let approval = crate::cluster::bootkube::approved(&pending);
    let approval = Request::new(Method::Put, format!("{REQUESTS}/csr-1/approval")).json(&approval);
    let mut replica = one.replica.lock().await;
    one.carry_out(&mut replica, &Caller::admin(), &approval, now()).await.unwrap();
    drop(replica);
    assert_eq!(ask(&other, &approval).await.unwrap().0, 409);
    let signed = get(&other, &format!("{REQUESTS}/csr-1")).await.unwrap();
    assert!(signed["status"]["certificate"].is_string(), "{signed}");
}

#[tokio::test]
async fn an_old_version_is_a_conflict_on_every_master() {
    let [one, other] = two();
    create(&one, &config("a", "1")).await.unwrap();
    let path = "/api/v1/namespaces/kube-system/configmaps/a";
    let mut first = get(&one, path).await.unwrap();
    first["data"]["x"] = json!("2");
    assert_eq!(ask(&one, &Request::new(Method::Put, path).json(&first)).await.unwrap().0, 200);
    assert_eq!(ask(&other, &Request::new(Method::Put, path).json(&first)).await.unwrap().0, 409);
}

#[tokio::test]
async fn a_watch_tells_what_another_master_did() {
    let [one, other] = two();
    let path = "/api/v1/namespaces/kube-system/configmaps?watch=true";
    let Answer::Watch(mut lines) =
        one.handle(&Caller::admin(), &Request::new(Method::Get, path), Timestamp::now()).await.unwrap()
    else {
        panic!("no watch")
    };
    create(&other, &config("a", "1")).await.unwrap();
    let line = tokio::time::timeout(Duration::from_secs(20), lines.recv()).await.unwrap().unwrap();
    let event: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!((event["type"].as_str(), event["object"]["data"]["x"].as_str()), (Some("ADDED"), Some("1")));
}

#[tokio::test]
async fn a_write_that_did_not_come_to_etcd_is_taken_back() {
    let [one, other] = two();
    create(&one, &config("a", "1")).await.unwrap();
    // As if the connection had broken off between the change and its way to etcd.
    {
        let mut replica = one.replica.lock().await;
        let before = replica.core.store().clone();
        let request =
            Request::new(Method::Post, "/api/v1/namespaces/kube-system/configmaps").json(&config("lost", "1"));
        replica.core.handle(now(), &Caller::admin(), &request);
        replica.core.store().take_writes();
        replica.before = Some(before);
    }
    let path = "/api/v1/namespaces/kube-system/configmaps/lost";
    for api in [&one, &other] {
        assert_eq!(ask(api, &Request::new(Method::Get, path)).await.unwrap().0, 404);
    }
}

#[tokio::test]
async fn the_controller_s_account_may_what_its_role_says() {
    let api = api();
    let (namespace, account) = CONTROLLER_ACCOUNT;
    let token = service_account_token(&api.pki, namespace, account);
    let list = Request::new(Method::Get, "/api/v1/nodes").header("authorization", format!("Bearer {token}"));
    let status = |answer: Answer| match answer {
        Answer::Done(response) => response.status,
        Answer::Watch(_) => 0,
    };
    assert_eq!(status(api.serve(None, &list, now()).await.unwrap()), 403);
    let version = "rbac.authorization.k8s.io/v1";
    create(
        &api,
        &json!({ "apiVersion": version, "kind": "ClusterRole", "metadata": { "name": "x" },
        "rules": [{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["list"] }] }),
    )
    .await
    .unwrap();
    create(
        &api,
        &json!({ "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": { "name": "x" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "x" },
        "subjects": [{ "kind": "ServiceAccount", "namespace": namespace, "name": account }] }),
    )
    .await
    .unwrap();
    assert_eq!(status(api.serve(None, &list, now()).await.unwrap()), 200);
}
