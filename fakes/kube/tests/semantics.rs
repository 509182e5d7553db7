//! The semantics that clients rely on, one by one, over the server in memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![recursion_limit = "256"]

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request};
use vlab_kube::{Answer, Authorization, Caller, Fault, Memory, Options, Order};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const THINGS: &str = "/apis/lab.example.com/v1/namespaces/default/things";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_secs(1_700_000_000 + seconds)
}

/// A definition with what the real ones use.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "things.lab.example.com" },
        "spec": {
            "group": "lab.example.com", "scope": "Namespaced",
            "names": { "plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList", "shortNames": ["th"] },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {}, "scale": { "specReplicasPath": ".spec.count", "statusReplicasPath": ".status.count" } },
                "additionalPrinterColumns": [
                    { "name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status" },
                    { "name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1 },
                ],
                "schema": { "openAPIV3Schema": { "type": "object", "required": ["spec"], "properties": {
                    "apiVersion": { "type": "string" }, "kind": { "type": "string" }, "metadata": { "type": "object" },
                    "spec": { "type": "object", "properties": {
                        "mode": { "type": "string", "enum": ["a", "b"], "default": "a" },
                        "count": { "type": "integer", "minimum": 0 },
                        "platform": { "type": "string", "x-kubernetes-validations": [{ "rule": "self == oldSelf || oldSelf == 'Unknown'", "message": "is frozen" }] },
                        "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                    } },
                    "status": { "type": "object", "properties": {
                        "count": { "type": "integer" },
                        "conditions": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"], "items": { "type": "object", "required": ["type"], "properties": {
                            "type": { "type": "string" }, "status": { "type": "string" } } } },
                    } },
                } } },
            }],
        },
    })
}

fn thing(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "lab.example.com/v1", "kind": "Thing", "metadata": { "name": name }, "spec": spec })
}

fn map(name: &str, data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

fn server() -> Memory {
    let mut memory = Memory::new(Options::default(), at(0));
    memory.create(at(0), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition()).unwrap();
    memory
}

fn rv(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn kinds(memory: &mut Memory, now: Timestamp, watch: vlab_kube::WatchId) -> Vec<String> {
    let (events, _) = memory.poll_watch(now, watch);
    events.iter().map(|e| format!("{} {}", e.kind, e.object["metadata"]["name"].as_str().unwrap_or_default())).collect()
}

#[test]
fn a_write_that_changes_nothing_keeps_its_version_and_tells_nobody() {
    let mut m = server();
    let made = m.create(at(1), THINGS, &thing("x", json!({ "count": 1 }))).unwrap();
    assert_eq!(made["spec"]["mode"], "a", "defaults are filled in");
    assert_eq!(made["metadata"]["generation"], 1);
    let watch = m.watch(at(1), &format!("{THINGS}?resourceVersion={}", rv(&made))).unwrap();
    let one = format!("{THINGS}/x");
    assert_eq!(rv(&m.update(at(2), &one, &made).unwrap()), rv(&made));
    assert_eq!(rv(&m.merge(at(2), &one, &json!({})).unwrap()), rv(&made));
    assert_eq!(rv(&m.merge(at(2), &one, &json!({ "spec": { "count": 1 } })).unwrap()), rv(&made));
    assert_eq!(rv(&m.merge(at(2), &format!("{one}/status"), &json!({ "spec": { "count": 9 } })).unwrap()), rv(&made));
    assert!(kinds(&mut m, at(3), watch).is_empty());
    let changed = m.merge(at(3), &one, &json!({ "spec": { "count": 2 } })).unwrap();
    assert!(rv(&changed) > rv(&made));
    assert_eq!(changed["metadata"]["generation"], 2);
    assert_eq!(kinds(&mut m, at(3), watch), ["MODIFIED x"]);
}

#[test]
fn status_is_written_by_itself() {
    let mut m = server();
    let mut sent = thing("x", json!({}));
    sent["status"] = json!({ "count": 5 });
    let made = m.create(at(1), THINGS, &sent).unwrap();
    assert_eq!(made["status"], Value::Null, "a new object has none");
    let one = format!("{THINGS}/x");
    let mut new = made.clone();
    new["status"] = json!({ "count": 3 });
    new["spec"]["count"] = json!(7);
    new["metadata"]["labels"] = json!({ "a": "b" });
    let status = m.update(at(2), &format!("{one}/status"), &new).unwrap();
    assert_eq!(
        (&status["status"]["count"], &status["spec"]["count"], &status["metadata"]["labels"]),
        (&json!(3), &Value::Null, &Value::Null)
    );
    assert_eq!(status["metadata"]["generation"], 1);
    new["metadata"]["resourceVersion"] = status["metadata"]["resourceVersion"].clone();
    new["status"] = json!({ "count": 99 });
    let main = m.update(at(3), &one, &new).unwrap();
    assert_eq!((&main["status"]["count"], &main["spec"]["count"]), (&json!(3), &json!(7)));
    assert_eq!(main["metadata"]["generation"], 2);
}

#[rstest]
#[case::stale(json!({ "resourceVersion": "1" }), 409, "Operation cannot be fulfilled on things.lab.example.com \"x\": the object has been modified; please apply your changes to the latest version and try again")]
#[case::none(json!({}), 422, "things.lab.example.com \"x\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update")]
#[case::uid(json!({ "uid": "other" }), 409, "Operation cannot be fulfilled on things.lab.example.com \"x\": StorageError: invalid object, Code: 4, Key: /registry/lab.example.com/things/default/x, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: other, UID in object meta: ")]
fn who_writes_over_something_else_is_told(#[case] meta: Value, #[case] code: u16, #[case] text: &str) {
    let mut m = server();
    m.create(at(1), THINGS, &thing("x", json!({}))).unwrap();
    let mut new = thing("x", json!({ "count": 4 }));
    for (name, value) in meta.as_object().unwrap() {
        new["metadata"][name] = value.clone();
    }
    let failure = m.update(at(2), &format!("{THINGS}/x"), &new).unwrap_err();
    assert_eq!(failure["code"], code);
    assert!(failure["message"].as_str().unwrap().starts_with(text), "{failure}");
}

#[test]
fn built_in_kinds_may_be_written_over_without_a_version() {
    let mut m = server();
    m.create(at(1), MAPS, &map("x", json!({ "a": "1" }))).unwrap();
    assert_eq!(m.update(at(1), &format!("{MAPS}/x"), &map("x", json!({ "a": "2" }))).unwrap()["data"]["a"], "2");
    let failure = m.update(at(1), &format!("{MAPS}/y"), &map("y", json!({}))).unwrap_err();
    assert_eq!(failure["message"], "configmaps \"y\" not found");
    let failure = m.create(at(1), MAPS, &map("x", json!({}))).unwrap_err();
    assert_eq!(
        (failure["reason"].as_str(), failure["message"].as_str()),
        (Some("AlreadyExists"), Some("configmaps \"x\" already exists"))
    );
}

#[rstest]
#[case(json!({ "mode": "z" }), "Thing.lab.example.com \"x\" is invalid: [spec.mode: Unsupported value: \"z\": supported values: \"a\", \"b\", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]")]
#[case(json!({ "count": -1, "mode": 3 }), "Thing.lab.example.com \"x\" is invalid: [spec.count: Invalid value: -1: spec.count in body should be greater than or equal to 0, spec.mode: Invalid value: \"integer\": spec.mode in body must be of type string: \"integer\", spec.mode: Unsupported value: 3: supported values: \"a\", \"b\", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]")]
fn what_the_schema_refuses(#[case] spec: Value, #[case] message: &str) {
    let failure = server().create(at(1), THINGS, &thing("x", spec)).unwrap_err();
    assert_eq!(failure["message"], message);
    assert_eq!((&failure["code"], &failure["reason"]), (&json!(422), &json!("Invalid")));
    assert_eq!(failure["details"]["kind"], "Thing");
}

#[test]
fn rules_see_the_old_value() {
    let mut m = server();
    m.create(at(1), THINGS, &thing("x", json!({ "platform": "Unknown" }))).unwrap();
    let one = format!("{THINGS}/x");
    m.merge(at(1), &one, &json!({ "spec": { "platform": "vendor" } })).unwrap();
    let failure = m.merge(at(1), &one, &json!({ "spec": { "platform": "other" } })).unwrap_err();
    assert!(
        failure["message"].as_str().unwrap().contains("spec.platform: Invalid value: \"other\": is frozen"),
        "{failure}"
    );
}

#[rstest]
#[case(
    "Strict",
    Some("Thing in version \"v1\" cannot be handled as a Thing: strict decoding error: unknown field \"spec.more\"")
)]
#[case("Warn", None)]
#[case("Ignore", None)]
fn unknown_fields(#[case] how: &str, #[case] refused: Option<&str>) {
    let mut m = server();
    let path = format!("{THINGS}?fieldValidation={how}");
    let body = thing("x", json!({ "more": 1, "free": { "kept": 1 } }));
    let response = m.handle(at(1), &vlab_api::http::Request::new(vlab_api::http::Method::Post, path).json(&body));
    let object: Value = response.decode().unwrap();
    if let Some(message) = refused {
        assert_eq!(object["message"], message);
        return;
    }
    assert_eq!(object["spec"], json!({ "free": { "kept": 1 }, "mode": "a" }));
    let warning = response.get_header("warning");
    assert_eq!(warning, (how == "Warn").then_some("299 - \"unknown field \\\"spec.more\\\"\""));
}

const MERGE: &str = "application/merge-patch+json";
const STEPS: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// The words follow the source of apimachinery; no real server was asked. A patch is shown whole, so only the end of the text is
/// compared where it is long.
#[rstest]
#[case::merge(THINGS, MERGE, json!({ "spec": { "more": 1 } }), 422, "strict decoding error: unknown field \"spec.more\"")]
#[case::steps(THINGS, STEPS, json!([{ "op": "add", "path": "/spec/more", "value": 1 }]), 422, "strict decoding error: unknown field \"spec.more\"")]
#[case::odd_step(THINGS, STEPS, json!([{ "op": "add", "path": "/spec/count", "value": 1, "why": "" }]), 422, "strict decoding error: json patch unknown field \"[0].why\"")]
#[case::of_metadata(THINGS, MERGE, json!({ "metadata": { "label": {} } }), 422, "strict decoding error: unknown field \"metadata.label\"")]
#[case::of_the_core(MAPS, MERGE, json!({ "date": {} }), 422, "strict decoding error: unknown field \"date\"")]
#[case::strategic(MAPS, STRATEGIC, json!({ "date": { "b": 1, "a": [true] } }), 422, " \"\" is invalid: patch: Invalid value: \"map[date:map[a:[true] b:1]]\": strict decoding error: unknown field \"date\"")]
#[case::applied(THINGS, APPLY, thing("x", json!({ "more": 1 })), 500, "failed to create typed patch object (default/x; lab.example.com/v1, Kind=Thing): .spec.more: field not declared in schema")]
#[case::applied_twice(THINGS, APPLY, thing("x", json!({ "more": 1, "b": 1 })), 500, "failed to create typed patch object (default/x; lab.example.com/v1, Kind=Thing): errors:\n  .spec.b: field not declared in schema\n  .spec.more: field not declared in schema")]
#[case::good(THINGS, MERGE, json!({ "spec": { "count": 1, "free": { "any": 1 } } }), 200, "")]
fn a_strict_patch_with_unknown_members_is_refused(
    #[case] place: &str,
    #[case] media: &str,
    #[case] patch: Value,
    #[case] code: u16,
    #[case] message: &str,
) {
    let mut m = server();
    m.create(at(1), THINGS, &thing("x", json!({}))).unwrap();
    m.create(at(1), MAPS, &map("x", json!({}))).unwrap();
    let before = m.get(at(1), &format!("{place}/x")).unwrap();
    let path = format!("{place}/x?fieldValidation=Strict&fieldManager=me");
    let mut request = Request::new(Method::Patch, path);
    request.body = patch.to_string().into();
    let answer = m.handle(at(2), &request.header("content-type", media));
    let object: Value = answer.decode().unwrap();
    assert_eq!(answer.status, code, "{object}");
    if code != 200 {
        let told = object["message"].as_str().unwrap();
        assert!(told.ends_with(message), "{told}");
        assert_eq!(m.get(at(3), &format!("{place}/x")).unwrap(), before, "nothing was written");
    }
}

#[test]
fn a_member_that_a_strict_patch_has_twice_is_refused() {
    let mut m = server();
    m.create(at(1), THINGS, &thing("x", json!({}))).unwrap();
    let mut request = Request::new(Method::Patch, format!("{THINGS}/x?fieldValidation=Strict"));
    request.body = r#"{"spec": {"count": 1, "count": 2}}"#.into();
    let answer = m.handle(at(2), &request.header("content-type", MERGE));
    let object: Value = answer.decode().unwrap();
    let told = object["message"].as_str().unwrap();
    assert!(told.ends_with("strict decoding error: duplicate field \"spec.count\""), "{told}");
    assert!(told.starts_with(" \"\" is invalid: patch: Invalid value: \"{\\\"apiVersion\\\":"), "{told}");
    assert_eq!(object["details"]["kind"], Value::Null, "{object}");
}

#[test]
fn finalizers_come_first() {
    let mut m = server();
    let mut object = thing("x", json!({}));
    object["metadata"]["finalizers"] = json!(["lab.example.com/wait"]);
    m.create(at(1), THINGS, &object).unwrap();
    let one = format!("{THINGS}/x");
    let watch = m.watch(at(1), &format!("{THINGS}?resourceVersion={}", m.core.resource_version())).unwrap();
    let marked = m.delete(at(2), &one).unwrap();
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked["metadata"]["generation"], 2);
    assert_eq!(rv(&m.delete(at(3), &one).unwrap()), rv(&marked), "once more changes nothing");
    let failure = m
        .merge(at(3), &one, &json!({ "metadata": { "finalizers": ["lab.example.com/wait", "lab.example.com/new"] } }))
        .unwrap_err();
    assert!(
        failure["message"].as_str().unwrap().contains("no new finalizers can be added if the object is being deleted"),
        "{failure}"
    );
    let undone = m.merge(at(3), &one, &json!({ "metadata": { "deletionTimestamp": null } })).unwrap();
    assert!(undone["metadata"]["deletionTimestamp"].is_string(), "the mark stays");
    let gone = m.merge(at(4), &one, &json!({ "metadata": { "finalizers": null } })).unwrap();
    assert_eq!(gone["metadata"]["name"], "x");
    assert_eq!(m.get(at(4), &one).unwrap_err()["code"], 404);
    assert_eq!(kinds(&mut m, at(4), watch), ["MODIFIED x", "DELETED x"]);
}

fn owned(name: &str, owner: &Value, blocks: bool) -> Value {
    let mut object = map(name, json!({}));
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks,
    }]);
    object
}

#[rstest]
#[case("Background", &["owner", "child"])]
#[case("Foreground", &["child", "owner"])]
#[case("Orphan", &["owner"])]
fn those_who_are_owned(#[case] policy: &str, #[case] order: &[&str]) {
    let mut m = server();
    let owner = m.create(at(1), MAPS, &map("owner", json!({}))).unwrap();
    m.create(at(1), MAPS, &owned("child", &owner, true)).unwrap();
    let watch = m.watch(at(1), &format!("{MAPS}?resourceVersion={}", m.core.resource_version())).unwrap();
    m.delete(at(2), &format!("{MAPS}/owner?propagationPolicy={policy}")).unwrap();
    m.core.wake(at(3));
    let gone: Vec<String> =
        kinds(&mut m, at(3), watch).iter().filter_map(|e| e.strip_prefix("DELETED ")).map(str::to_owned).collect();
    assert_eq!(gone, order);
    if policy == "Orphan" {
        assert_eq!(m.get(at(3), &format!("{MAPS}/child")).unwrap()["metadata"]["ownerReferences"], Value::Null);
    }
}

#[test]
fn collection_can_be_late_or_off() {
    for (collection, left) in [(Some(Duration::from_secs(10)), [1, 0]), (None, [1, 1])] {
        let mut m = Memory::new(Options { collection, ..Options::default() }, at(0));
        let owner = m.create(at(1), MAPS, &map("owner", json!({}))).unwrap();
        m.create(at(1), MAPS, &owned("child", &owner, false)).unwrap();
        m.core.wake(at(12));
        m.delete(at(20), &format!("{MAPS}/owner")).unwrap();
        let count = |m: &mut Memory, now| m.get(now, MAPS).unwrap()["items"].as_array().unwrap().len();
        assert_eq!(count(&mut m, at(21)), left[0]);
        m.core.wake(at(31));
        assert_eq!(count(&mut m, at(31)), left[1]);
    }
}

#[test]
fn namespaces_are_emptied_before_they_go() {
    let mut m = server();
    m.create(
        at(1),
        "/api/v1/namespaces",
        &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "lab" } }),
    )
    .unwrap();
    let mut object = thing("x", json!({}));
    object["metadata"]["finalizers"] = json!(["lab.example.com/wait"]);
    let things = THINGS.replace("default", "lab");
    m.create(at(1), &things, &object).unwrap();
    m.create(
        at(1),
        "/api/v1/namespaces/lab/secrets",
        &json!({ "metadata": { "name": "s" }, "stringData": { "k": "v" } }),
    )
    .unwrap();
    let deleted = m.delete(at(2), "/api/v1/namespaces/lab").unwrap();
    assert_eq!(deleted["status"]["phase"], "Terminating");
    assert_eq!(m.get(at(2), "/api/v1/namespaces/lab/secrets/s").unwrap_err()["code"], 404);
    let failure = m.create(at(3), &things, &thing("y", json!({}))).unwrap_err();
    assert_eq!(
        failure["message"],
        "things.lab.example.com \"y\" is forbidden: unable to create new content in namespace lab because it is being terminated"
    );
    m.merge(at(4), &format!("{things}/x"), &json!({ "metadata": { "finalizers": null } })).unwrap();
    assert_eq!(m.get(at(4), "/api/v1/namespaces/lab").unwrap_err()["message"], "namespaces \"lab\" not found");
    let failure = m.create(at(5), &things, &thing("y", json!({}))).unwrap_err();
    assert_eq!(failure["message"], "namespaces \"lab\" not found");
}

#[test]
fn definitions_take_their_objects_with_them() {
    let mut m = server();
    m.create(at(1), THINGS, &thing("x", json!({}))).unwrap();
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.lab.example.com";
    assert_eq!(m.get(at(1), crd).unwrap()["status"]["conditions"][1]["type"], "Established");
    m.delete(at(2), crd).unwrap();
    let gone = m.handle(at(2), &Request::new(Method::Get, THINGS));
    assert_eq!((gone.status, gone.body.as_slice()), (404, &b"404 page not found\n"[..]));
    assert_eq!(m.get(at(2), crd).unwrap_err()["code"], 404);
}

#[test]
fn lists_come_in_pages_of_one_moment() {
    let mut m = server();
    for n in 0..5 {
        m.create(at(1), MAPS, &map(&format!("m{n}"), json!({}))).unwrap();
    }
    let first = m.get(at(1), &format!("{MAPS}?limit=2")).unwrap();
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    m.delete(at(2), &format!("{MAPS}/m3")).unwrap();
    let mut names = Vec::new();
    let mut page = first.clone();
    loop {
        assert_eq!(page["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
        names.extend(
            page["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["metadata"]["continue"].as_str() else { break };
        page = m.get(at(3), &format!("{MAPS}?limit=2&continue={next}")).unwrap();
    }
    assert_eq!(names, ["m0", "m1", "m2", "m3", "m4"]);
    m.core.store().compact(u64::MAX);
    let failure = m
        .get(at(4), &format!("{MAPS}?limit=2&continue={}", first["metadata"]["continue"].as_str().unwrap()))
        .unwrap_err();
    assert_eq!((&failure["code"], &failure["reason"]), (&json!(410), &json!("Expired")));
}

#[test]
fn selectors_of_lists_and_watches() {
    let mut m = server();
    let mut one = map("a", json!({}));
    one["metadata"]["labels"] = json!({ "k": "v" });
    let made = m.create(at(1), MAPS, &one).unwrap();
    m.create(at(1), MAPS, &map("b", json!({}))).unwrap();
    assert_eq!(m.get(at(1), &format!("{MAPS}?labelSelector=k%3Dv")).unwrap()["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        m.get(at(1), &format!("{MAPS}?fieldSelector=metadata.name%3Db")).unwrap()["items"][0]["metadata"]["name"],
        "b"
    );
    assert_eq!(m.get(at(1), &format!("{MAPS}?fieldSelector=data.x%3Db")).unwrap_err()["code"], 400);
    let watch = m.watch(at(1), &format!("{MAPS}?labelSelector=k%3Dv&resourceVersion={}", rv(&made))).unwrap();
    m.merge(at(2), &format!("{MAPS}/b"), &json!({ "metadata": { "labels": { "k": "v" } } })).unwrap();
    m.merge(at(2), &format!("{MAPS}/b"), &json!({ "data": { "x": "y" } })).unwrap();
    m.merge(at(2), &format!("{MAPS}/a"), &json!({ "metadata": { "labels": null } })).unwrap();
    assert_eq!(kinds(&mut m, at(3), watch), ["ADDED b", "MODIFIED b", "DELETED a"]);
}

#[test]
fn a_watch_begins_where_it_is_told() {
    let mut m = server();
    let made = m.create(at(1), MAPS, &map("a", json!({}))).unwrap();
    let all = m.watch(at(1), MAPS).unwrap();
    assert_eq!(kinds(&mut m, at(1), all), ["ADDED a"]);
    let list = m
        .watch(
            at(1),
            &format!("{MAPS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"),
        )
        .unwrap();
    let (events, _) = m.poll_watch(at(1), list);
    assert_eq!(events.len(), 2);
    assert_eq!(events[1].object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert!(m.watch(at(1), &format!("{MAPS}?sendInitialEvents=true")).is_err());
    m.core.store().compact(u64::MAX);
    let old = m.watch(at(2), &format!("{MAPS}?resourceVersion={}", rv(&made) - 1)).unwrap();
    let (events, over) = m.poll_watch(at(2), old);
    assert_eq!((events[0].kind.as_str(), events[0].object["code"].as_u64(), over), ("ERROR", Some(410), true));
    let short = m.watch(at(3), &format!("{MAPS}?timeoutSeconds=5&allowWatchBookmarks=true")).unwrap();
    assert!(!m.poll_watch(at(3), short).1);
    assert_eq!(m.core.next_wake(), Some(at(8)));
    assert!(m.poll_watch(at(8), short).1);
}

#[test]
fn apply_states_only_what_it_cares_about() {
    let mut m = server();
    let one = format!("{THINGS}/x?fieldManager=");
    let media = "application/apply-patch+yaml";
    let made = m.patch(at(1), &format!("{one}a"), media, &thing("x", json!({ "count": 1 }))).unwrap();
    assert_eq!(made["metadata"]["managedFields"][0]["fieldsV1"], json!({ "f:spec": { "f:count": {} } }));
    assert_eq!(rv(&m.patch(at(2), &format!("{one}a"), media, &thing("x", json!({ "count": 1 }))).unwrap()), rv(&made));
    let failure = m.patch(at(2), &format!("{one}b"), media, &thing("x", json!({ "count": 2 }))).unwrap_err();
    assert_eq!(failure["message"], "Apply failed with 1 conflict: conflict with \"a\": .spec.count");
    let forced = m.patch(at(3), &format!("{one}b&force=true"), media, &thing("x", json!({ "count": 2 }))).unwrap();
    assert_eq!(forced["spec"]["count"], 2);
    let failure = m.patch(at(3), &format!("{THINGS}/x"), media, &thing("x", json!({}))).unwrap_err();
    assert!(failure["message"].as_str().unwrap().contains("fieldManager: Required value"));
}

#[rstest]
#[case("application/json-patch+json", json!([{ "op": "add", "path": "/data/b", "value": "2" }]), Ok(json!({ "a": "1", "b": "2" })))]
#[case("application/merge-patch+json", json!({ "data": { "a": null } }), Ok(Value::Null))]
#[case("application/strategic-merge-patch+json", json!({ "data": { "c": "3" } }), Ok(json!({ "a": "1", "c": "3" })))]
#[case("application/json-patch+json", json!([{ "op": "remove", "path": "/data/z" }]), Err(422))]
#[case("text/plain", json!({}), Err(415))]
fn patches(#[case] media: &str, #[case] patch: Value, #[case] wanted: Result<Value, u16>) {
    let mut m = server();
    m.create(at(1), MAPS, &map("x", json!({ "a": "1" }))).unwrap();
    let got = m.patch(at(1), &format!("{MAPS}/x"), media, &patch);
    match wanted {
        Ok(data) if data.is_null() => assert!(got.unwrap()["data"].as_object().is_none_or(serde_json::Map::is_empty)),
        Ok(data) => assert_eq!(got.unwrap()["data"], data),
        Err(code) => assert_eq!(got.unwrap_err()["code"], code),
    }
}

#[test]
fn strategic_patches_of_custom_kinds_are_refused() {
    let mut m = server();
    m.create(at(1), THINGS, &thing("x", json!({}))).unwrap();
    let failure =
        m.patch(at(1), &format!("{THINGS}/x"), "application/strategic-merge-patch+json", &json!({})).unwrap_err();
    assert_eq!(failure["code"], 415);
}

#[test]
fn tries_store_nothing() {
    let mut m = server();
    m.create(at(1), &format!("{MAPS}?dryRun=All"), &map("x", json!({}))).unwrap();
    assert_eq!(m.get(at(1), &format!("{MAPS}/x")).unwrap_err()["code"], 404);
    m.create(at(1), MAPS, &map("x", json!({ "a": "1" }))).unwrap();
    assert_eq!(
        m.merge(at(1), &format!("{MAPS}/x?dryRun=All"), &json!({ "data": { "a": "2" } })).unwrap()["data"]["a"],
        "2"
    );
    m.delete(at(1), &format!("{MAPS}/x?dryRun=All")).unwrap();
    assert_eq!(m.get(at(1), &format!("{MAPS}/x")).unwrap()["data"]["a"], "1");
    assert_eq!(m.create(at(1), &format!("{MAPS}?dryRun=Some"), &map("y", json!({}))).unwrap_err()["code"], 422);
}

#[test]
fn generated_names_and_texts_of_secrets() {
    let mut m = server();
    let made = m
        .create(
            at(1),
            "/api/v1/namespaces/default/secrets",
            &json!({ "metadata": { "generateName": "s-" }, "stringData": { "k": "v" } }),
        )
        .unwrap();
    assert!(made["metadata"]["name"].as_str().unwrap().starts_with("s-"));
    assert_eq!(made["metadata"]["name"].as_str().unwrap().len(), 7);
    assert_eq!(
        (&made["data"]["k"], &made["type"], &made["stringData"]),
        (&json!("dg=="), &json!("Opaque"), &Value::Null)
    );
}

#[test]
fn the_same_seed_gives_the_same_server() {
    let run = || {
        let mut m = server();
        for n in 0..20 {
            m.create(at(n), MAPS, &json!({ "metadata": { "generateName": "x-" } })).unwrap();
        }
        m.get(at(30), MAPS).unwrap()
    };
    assert_eq!(run(), run());
}

#[test]
fn tables_have_the_columns_of_the_definition() {
    let mut m = server();
    m.create(at(1), THINGS, &thing("x", json!({}))).unwrap();
    m.merge(
        at(1),
        &format!("{THINGS}/x/status"),
        &json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }),
    )
    .unwrap();
    let request = vlab_api::http::Request::new(vlab_api::http::Method::Get, THINGS)
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
    let table: Value = m.handle(at(2), &request).decode().unwrap();
    let names: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Name", "Ready", "Mode"]);
    assert_eq!(table["rows"][0]["cells"], json!(["x", "True", "a"]));
}

#[test]
fn scale() {
    let mut m = server();
    m.create(at(1), THINGS, &thing("x", json!({ "count": 2 }))).unwrap();
    let path = format!("{THINGS}/x/scale");
    assert_eq!(m.get(at(1), &path).unwrap()["spec"]["replicas"], 2);
    assert_eq!(m.merge(at(1), &path, &json!({ "spec": { "replicas": 5 } })).unwrap()["spec"]["replicas"], 5);
    assert_eq!(m.get(at(1), &format!("{THINGS}/x")).unwrap()["spec"]["count"], 5);
}

#[test]
fn roles() {
    let mut m = Memory::new(Options { authorization: Authorization::Roles, ..Options::default() }, at(0));
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    m.create(at(1), &format!("{rbac}/roles"), &json!({ "metadata": { "name": "r" }, "rules": [{ "verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"] }] })).unwrap();
    m.create(at(1), &format!("{rbac}/rolebindings"), &json!({ "metadata": { "name": "r" }, "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r" }, "subjects": [{ "kind": "User", "name": "jane" }] })).unwrap();
    m.set_caller(Caller::named("jane", &["system:authenticated"]));
    assert!(m.get(at(2), MAPS).is_ok());
    let failure = m.create(at(2), MAPS, &map("x", json!({}))).unwrap_err();
    assert_eq!(
        failure["message"],
        "configmaps is forbidden: User \"jane\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    assert_eq!(m.get(at(2), &MAPS.replace("default", "kube-system")).unwrap_err()["code"], 403);
    let review = |verb: &str| json!({ "spec": { "resourceAttributes": { "verb": verb, "resource": "configmaps", "namespace": "default" } } });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(m.create(at(2), path, &review("list")).unwrap()["status"]["allowed"], true);
    assert_eq!(m.create(at(2), path, &review("delete")).unwrap()["status"]["allowed"], false);
}

fn hook(kind: &str, policy: &str) -> Value {
    json!({ "metadata": { "name": "h" }, "kind": kind, "apiVersion": "admissionregistration.k8s.io/v1", "webhooks": [{
        "name": "h.example.com", "clientConfig": { "url": "https://127.0.0.1:1/x" }, "failurePolicy": policy, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{ "apiGroups": ["lab.example.com"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["things"] }],
    }] })
}

#[test]
fn webhooks_change_and_refuse() {
    let mut m = server();
    let group = "/apis/admissionregistration.k8s.io/v1";
    m.create(at(1), &format!("{group}/mutatingwebhookconfigurations"), &hook("MutatingWebhookConfiguration", "Fail"))
        .unwrap();
    m.create(
        at(1),
        &format!("{group}/validatingwebhookconfigurations"),
        &hook("ValidatingWebhookConfiguration", "Fail"),
    )
    .unwrap();
    let failure = m.create(at(1), THINGS, &thing("x", json!({}))).unwrap_err();
    assert!(failure["message"].as_str().unwrap().contains("failed calling webhook \"h.example.com\""), "{failure}");
    m.set_webhooks(Box::new(|call| {
        let object = &call.review["request"]["object"];
        let mutating = object["spec"]["count"].is_null();
        Answer::Review(if mutating {
            // `replace` of what is not there, as the real server's library takes it; base64 of [{"op":"replace","path":"/spec/count","value":4}].
            json!({ "response": { "allowed": true, "patchType": "JSONPatch", "patch": "W3sib3AiOiJyZXBsYWNlIiwicGF0aCI6Ii9zcGVjL2NvdW50IiwidmFsdWUiOjR9XQ==" } })
        } else {
            json!({ "response": { "allowed": object["spec"]["count"] != 5, "status": { "message": "five is right out" } } })
        })
    }));
    assert_eq!(m.create(at(2), THINGS, &thing("x", json!({}))).unwrap()["spec"]["count"], 4);
    let failure = m.create(at(2), THINGS, &thing("y", json!({ "count": 5 }))).unwrap_err();
    assert_eq!(failure["message"], "admission webhook \"h.example.com\" denied the request: five is right out");
    assert_eq!(failure["code"], 403);
}

#[test]
fn faults_happen_as_ordered_and_say_how_often() {
    let mut m = server();
    m.create(at(1), MAPS, &map("x", json!({}))).unwrap();
    let one = format!("{MAPS}/x");
    let second = m.core.faults.order(at(1), Order { after: 1, ..Order::new(Fault::Conflict, "configmaps") });
    m.merge(at(1), &one, &json!({ "data": { "n": "1" } })).unwrap();
    assert_eq!(m.merge(at(1), &one, &json!({ "data": { "n": "2" } })).unwrap_err()["reason"], "Conflict");
    m.merge(at(1), &one, &json!({ "data": { "n": "3" } })).unwrap();
    assert_eq!(m.core.faults.fired(second), 1);
    m.core.faults.order(at(1), Order::new(Fault::Quota, "configmaps"));
    assert!(
        m.create(at(1), MAPS, &map("y", json!({}))).unwrap_err()["message"]
            .as_str()
            .unwrap()
            .contains("exceeded quota")
    );
    m.core.faults.order(at(10), Order::new(Fault::Stale(Duration::from_secs(5)), "configmaps"));
    assert_eq!(m.merge(at(10), &one, &json!({ "data": { "n": "4" } })).unwrap()["data"]["n"], "4");
    assert_eq!(m.get(at(10), MAPS).unwrap()["items"][0]["data"]["n"], "3", "five seconds ago");
    assert_eq!(m.get(at(10), MAPS).unwrap()["items"][0]["data"]["n"], "4");
    m.core.faults.order(at(20), Order::new(Fault::Outage(Duration::from_secs(5)), ""));
    assert_eq!(m.get(at(21), MAPS).unwrap_err()["code"], 503);
    assert!(m.get(at(25), MAPS).is_ok());
}

#[rstest]
#[case(Fault::Withhold, &["MODIFIED x"], false)]
#[case(Fault::Twice, &["MODIFIED x", "MODIFIED x", "MODIFIED x"], false)]
#[case(Fault::Cut, &["ERROR "], true)]
#[case(Fault::Close, &[], true)]
fn faults_of_watches(#[case] fault: Fault, #[case] told: &[&str], #[case] ends: bool) {
    let mut m = server();
    let made = m.create(at(1), MAPS, &map("x", json!({}))).unwrap();
    let watch = m.watch(at(1), &format!("{MAPS}?resourceVersion={}", rv(&made))).unwrap();
    m.core.faults.order(at(1), Order::new(fault, "configmaps"));
    let one = format!("{MAPS}/x");
    m.merge(at(2), &one, &json!({ "data": { "n": "1" } })).unwrap();
    m.merge(at(2), &one, &json!({ "data": { "n": "2" } })).unwrap();
    let (events, over) = m.poll_watch(at(2), watch);
    let kinds: Vec<String> = events
        .iter()
        .map(|e| format!("{} {}", e.kind, e.object["metadata"]["name"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!((kinds.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), over), (told, ends));
}

/// Each watch that was there is closed; who goes on from where it was hears of the change.
#[test]
fn a_watch_that_was_closed_goes_on_where_it_was() {
    let mut m = server();
    let made = m.create(at(1), MAPS, &map("x", json!({}))).unwrap();
    let path = format!("{MAPS}?resourceVersion={}", rv(&made));
    let watches = [m.watch(at(1), &path).unwrap(), m.watch(at(1), &path).unwrap()];
    m.core.faults.order(at(1), Order::new(Fault::Close, "configmaps"));
    m.merge(at(2), &format!("{MAPS}/x"), &json!({ "data": { "n": "1" } })).unwrap();
    for watch in watches {
        let (events, over) = m.poll_watch(at(2), watch);
        assert_eq!((events.len(), over), (0, true));
    }
    let again = m.watch(at(2), &path).unwrap();
    let (events, over) = m.poll_watch(at(2), again);
    assert_eq!((events.len(), over), (1, false));
}

#[test]
fn an_event_that_is_held_back_comes_when_it_is_due() {
    let mut m = server();
    let made = m.create(at(1), MAPS, &map("x", json!({}))).unwrap();
    let watch = m.watch(at(1), &format!("{MAPS}?resourceVersion={}", rv(&made))).unwrap();
    m.core.faults.order(at(1), Order::new(Fault::Delay(Duration::from_secs(7)), "configmaps"));
    m.merge(at(2), &format!("{MAPS}/x"), &json!({ "data": { "n": "1" } })).unwrap();
    assert!(kinds(&mut m, at(2), watch).is_empty());
    assert_eq!(m.core.next_wake(), Some(at(9)));
    m.core.wake(at(9));
    assert!(m.core.take_woken().contains(&watch));
    assert_eq!(kinds(&mut m, at(9), watch), ["MODIFIED x"]);
}

#[test]
fn a_restart_ends_watches_and_keeps_objects() {
    let mut m = server();
    m.create(at(1), MAPS, &map("x", json!({}))).unwrap();
    let watch = m.watch(at(1), MAPS).unwrap();
    m.core.restart(at(2));
    assert_eq!(m.poll_watch(at(2), watch), (Vec::new(), true));
    assert!(m.get(at(2), &format!("{MAPS}/x")).is_ok());
}

/// It is the second write of the kind behind which the server restarts: that is stored, its watches end, and who goes on from before it
/// must list again. Who writes down what really happens hears everything.
#[test]
fn a_server_restarts_between_two_writes() {
    let mut m = server();
    let first = m.create(at(1), MAPS, &map("x", json!({}))).unwrap();
    let (watch, scribe) = (m.watch(at(1), MAPS).unwrap(), m.watch(at(1), MAPS).unwrap());
    m.core.make_faithful(scribe);
    let order = Order { after: 1, ..Order::new(Fault::Restart(Duration::from_secs(3)), "configmaps") };
    m.core.order(at(1), order);
    let one = format!("{MAPS}/x");
    m.merge(at(2), &one, &json!({ "data": { "n": "1" } })).unwrap();
    assert_eq!(kinds(&mut m, at(2), watch), ["ADDED x", "MODIFIED x"], "one passes");
    m.create(at(2), THINGS, &thing("other", json!({}))).unwrap();
    let last = m.merge(at(3), &one, &json!({ "data": { "n": "2" } })).unwrap();
    assert_eq!(last["data"]["n"], "2");
    assert_eq!(m.poll_watch(at(3), watch), (Vec::new(), true));
    assert_eq!(m.get(at(4), &one).unwrap_err()["code"], 503);
    assert_eq!(m.get(at(6), &one).unwrap(), last, "what was stored stays");
    let from = |m: &mut Memory, version: u64| {
        let watch = m.watch(at(6), &format!("{MAPS}?resourceVersion={version}")).unwrap();
        let (events, over) = m.poll_watch(at(6), watch);
        (events.iter().map(|e| (e.kind.clone(), e.object["code"].clone())).collect::<Vec<_>>(), over)
    };
    assert_eq!(from(&mut m, rv(&first)), (vec![("ERROR".to_owned(), json!(410))], true));
    assert_eq!(from(&mut m, rv(&last)), (Vec::new(), false));
    m.merge(at(7), &one, &json!({ "data": { "n": "3" } })).unwrap();
    assert_eq!(kinds(&mut m, at(7), scribe), ["ADDED x", "MODIFIED x", "MODIFIED x", "MODIFIED x"]);
    let happened: Vec<String> = m.core.faults.take_happened().into_iter().map(|(_, what)| what).collect();
    assert!(
        matches!(&happened[..], [restarts, back] if restarts.contains("restarts behind a write") && back == "the server is back")
    );
}

#[test]
fn a_restart_that_waits_for_nothing_is_at_once() {
    let mut m = server();
    let watch = m.watch(at(1), MAPS).unwrap();
    m.core.order(at(1), Order::new(Fault::Restart(Duration::from_secs(3)), ""));
    assert_eq!(m.poll_watch(at(1), watch), (Vec::new(), true));
    assert_eq!(m.get(at(2), MAPS).unwrap_err()["code"], 503);
    assert!(m.get(at(4), MAPS).is_ok());
}

/// It is carried out at once: only the answer comes later, and only where the order says so.
#[test]
fn an_answer_that_is_late_is_that_of_a_write_that_was_done() {
    let mut m = server();
    m.create(at(1), MAPS, &map("x", json!({ "a": "1" }))).unwrap();
    let late = Duration::from_secs(30);
    let order = Order { verb: "patch".into(), after: 1, ..Order::new(Fault::Slow(late), "configmaps") };
    m.core.faults.order(at(1), order);
    let one = format!("{MAPS}/x");
    let mut written = |value: &str| {
        m.merge(at(2), &one, &json!({ "data": { "a": value } })).unwrap();
        let read = m.get(at(2), &one).unwrap()["data"]["a"].clone();
        (read, m.core.faults.take_late())
    };
    assert_eq!(written("2"), (json!("2"), Duration::ZERO), "one passes first");
    assert_eq!(written("3"), (json!("3"), late));
    assert_eq!(written("4"), (json!("4"), Duration::ZERO), "once");
    assert_eq!(m.core.faults.take_happened().len(), 1);
}

/// The form of the answer is the one that clients of a real server read.
#[test]
fn a_webhook_that_fails_refuses_what_it_is_asked_about() {
    let mut m = server();
    m.create(at(1), THINGS, &thing("x", json!({}))).unwrap();
    let (name, took) = ("things.hooks.example.com".to_owned(), Duration::from_secs(10));
    let why = "Post \"https://a.b.svc:443/things?timeout=10s\": context deadline exceeded".to_owned();
    let fault = Fault::Webhook { name, why, took };
    let order = Order { verb: "update".into(), subresource: String::new(), times: 2, ..Order::new(fault, "things") };
    m.core.faults.order(at(1), order);
    m.create(at(2), THINGS, &thing("y", json!({}))).unwrap();
    let one = format!("{THINGS}/x");
    m.merge(at(2), &format!("{one}/status"), &json!({ "status": { "count": 1 } })).unwrap();
    assert_eq!(m.core.faults.take_late(), Duration::ZERO);
    let failure = m.merge(at(2), &one, &json!({ "spec": { "mode": "b" } })).unwrap_err();
    assert_eq!(m.core.faults.take_late(), took);
    let said = "failed calling webhook \"things.hooks.example.com\": failed to call webhook: \
                Post \"https://a.b.svc:443/things?timeout=10s\": context deadline exceeded";
    let message = format!("Internal error occurred: {said}");
    assert_eq!(
        failure,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
            "message": message, "details": { "causes": [{ "message": said }] },
        })
    );
    assert_eq!(m.get(at(2), &one).unwrap()["spec"]["mode"], "a", "nothing was stored");
    m.delete(at(2), &format!("{THINGS}/y")).unwrap();
    m.merge(at(2), &one, &json!({ "spec": { "mode": "b" } })).unwrap_err();
    m.merge(at(2), &one, &json!({ "spec": { "mode": "b" } })).unwrap();
    assert_eq!(m.core.faults.take_happened().len(), 2);
}

/// What the server stamps itself is wrong, what goes by its clock inside is not: an event that is held back comes when it is due.
#[test]
fn a_clock_that_is_wrong_shows_in_what_the_server_stamps() {
    let mut m = server();
    let order = m.core.faults.order(at(1), Order::new(Fault::Clock(3_600_000_000), ""));
    let stamp = |seconds| json!(at(seconds).to_string().replace(".000Z", "Z"));
    let made = m.create(at(2), THINGS, &thing("x", json!({}))).unwrap();
    assert_eq!(made["metadata"]["creationTimestamp"], stamp(3602));
    assert_eq!(made["metadata"]["managedFields"][0]["time"], stamp(3602));
    let one = format!("{THINGS}/x");
    let held = m.merge(at(3), &one, &json!({ "metadata": { "finalizers": ["a.example.com/x"] } })).unwrap();
    let watch = m.watch(at(3), &format!("{THINGS}?resourceVersion={}", rv(&held))).unwrap();
    m.core.faults.order(at(3), Order::new(Fault::Delay(Duration::from_secs(7)), "things"));
    assert_eq!(m.delete(at(4), &one).unwrap()["metadata"]["deletionTimestamp"], stamp(3604));
    assert!(kinds(&mut m, at(4), watch).is_empty());
    assert_eq!(m.core.next_wake(), Some(at(11)));
    m.core.wake(at(11));
    assert_eq!(m.poll_watch(at(11), watch).0.len(), 1);
    m.core.faults.cancel(order);
    let made = m.create(at(12), THINGS, &thing("y", json!({}))).unwrap();
    assert_eq!(made["metadata"]["creationTimestamp"], stamp(12));
    let of_clock = m.core.faults.take_happened().into_iter().filter(|(n, _)| *n == order);
    assert_eq!(
        of_clock.map(|(_, what)| what).collect::<Vec<_>>(),
        ["things/x is the first that was stored by the wrong clock"]
    );
}

/// Somebody else is the holder as long as the order lasts, and lets it expire then.
#[test]
fn a_lease_can_be_taken_over() {
    let mut m = server();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let mine = json!({ "metadata": { "name": "it" }, "spec": { "holderIdentity": "me", "leaseTransitions": 2 } });
    let mine = m.create(at(1), leases, &mine).unwrap();
    let (duration, retry) = (Duration::from_secs(15), Duration::from_secs(2));
    let fault = |namespace: &str| Fault::LeaseTaken { namespace: namespace.to_owned(), duration, retry };
    let order = |namespace, name: &str| Order { name: name.to_owned(), ..Order::new(fault(namespace), "leases") };
    let taken = m.core.faults.order(at(2), order("default", "it"));
    let made = m.core.faults.order(at(2), order("kube-system", "other"));
    let nowhere = m.core.faults.order(at(2), order("missing", "it"));
    assert_eq!(m.core.next_wake(), Some(at(2)));
    m.core.wake(at(2));
    let one = format!("{leases}/it");
    let spec = m.get(at(2), &one).unwrap()["spec"].clone();
    assert_eq!(
        (&spec["holderIdentity"], &spec["leaseTransitions"], &spec["renewTime"]),
        (&json!("somebody-else"), &json!(3), &json!(at(2).to_micro_string()))
    );
    assert_eq!(m.update(at(3), &one, &mine).unwrap_err()["reason"], "Conflict", "whoever held it hears of it");
    assert_eq!(m.core.next_wake(), Some(at(4)));
    m.core.wake(at(4));
    let spec = m.get(at(4), &one).unwrap()["spec"].clone();
    assert_eq!((&spec["leaseTransitions"], &spec["renewTime"]), (&json!(3), &json!(at(4).to_micro_string())));
    for order in [taken, made, nowhere] {
        m.core.faults.cancel(order);
    }
    assert_eq!(m.core.next_wake(), None);
    let told =
        [(taken, "leases/it was taken over by somebody-else"), (made, "leases/other was taken over by somebody-else")];
    assert_eq!(m.core.faults.take_happened(), told.map(|(n, what)| (n, what.to_owned())));
}
