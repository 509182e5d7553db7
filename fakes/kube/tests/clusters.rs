//! API servers of clusters behind the same door, and who is somebody else for a request.

use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request};
use vlab_kube::{Authorization, Caller, Memory, Options};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_secs(1_700_000_000 + seconds)
}

fn map(name: &str, data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn certificate_request(name: &str) -> Value {
    json!({ "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": name },
            "spec": { "request": "eA==", "signerName": "example.com/x", "usages": ["client auth"] } })
}

/// Who asks for a certificate stands in the request, and an administrator may be somebody else.
#[test]
fn somebody_else_is_who_the_headers_say() {
    let mut server = Memory::new(Options::default(), at(0));
    let made = server.create(at(1), REQUESTS, &certificate_request("own")).unwrap();
    assert_eq!(made["spec"]["username"], "kubernetes-admin");
    let ask = |name: &str| Request::new(Method::Post, REQUESTS).json(&certificate_request(name));
    let other = ask("other").header("Impersonate-User", "robot").header("Impersonate-Group", "machines");
    let made: Value = server.handle(at(2), &other).decode().unwrap();
    assert_eq!(made["spec"]["username"], "robot");
    assert_eq!(made["spec"]["groups"], json!(["machines", "system:authenticated"]));
    let nobody = server.handle(at(3), &ask("nobody").header("Impersonate-Group", "machines"));
    assert_eq!(nobody.status, 400);

    let options = Options { authorization: Authorization::Roles, ..Options::default() };
    let mut server = Memory::new(options, at(0));
    server.set_caller(Caller::named("somebody", &["system:authenticated"]));
    let refused = server.handle(at(1), &Request::new(Method::Get, MAPS).header("Impersonate-User", "kubernetes-admin"));
    let said: Value = refused.decode().unwrap();
    assert_eq!(refused.status, 403);
    assert!(said["message"].as_str().unwrap().contains("cannot impersonate resource \"users\""), "{said}");
}

/// Below `/clusters` each name is a server of its own.
#[test]
fn clusters_have_servers_of_their_own() {
    let mut server = Memory::new(Options::default(), at(0));
    let of = |name: &str| format!("/clusters/{name}{MAPS}");
    server.create(at(1), &of("edge"), &map("a", json!({ "x": "1" }))).unwrap();
    assert!(server.get(at(2), &format!("{MAPS}/a")).is_err());
    assert!(server.get(at(2), &format!("{}/a", of("other"))).is_err());
    assert_eq!(server.get(at(2), &format!("{}/a", of("edge"))).unwrap()["data"]["x"], "1");
    // What belongs to something that was deleted goes there, too.
    let uid = server.get(at(2), &format!("{}/a", of("edge"))).unwrap()["metadata"]["uid"].clone();
    let mut owned = map("b", json!({}));
    owned["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": uid }]);
    server.create(at(3), &of("edge"), &owned).unwrap();
    server.delete(at(4), &format!("{}/a", of("edge"))).unwrap();
    assert!(server.get(at(5), &format!("{}/b", of("edge"))).is_err());

    let asked =
        |server: &mut Memory, at_url: Option<&str>| server.handle_at(at(6), at_url, &Request::new(Method::Get, MAPS));
    assert_eq!(asked(&mut server, None).unwrap().status, 200);
    assert_eq!(asked(&mut server, Some("http://hub/clusters/edge")).unwrap().status, 200);
    for nobody in ["http://hub", "http://hub/clusters/edge/more", "http://other/clusters/edge"] {
        assert!(asked(&mut server, Some(nobody)).unwrap_err().contains("nobody listens there"), "{nobody}");
    }
}
