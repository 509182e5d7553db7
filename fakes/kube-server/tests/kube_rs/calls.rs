//! One call after the other.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy, ValidationDirective,
};
use kube::discovery::{Discovery, Scope, verbs};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::wait::delete::delete_and_finalize;
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;
use vlab_kube::{Fault, Order};

use crate::{Lab, a_thing, refused, soon, thing};

#[tokio::test]
async fn discovery_finds_kinds_and_what_can_be_done_with_them() {
    let lab = Lab::new().await;
    assert_eq!(lab.client.apiserver_version().await.unwrap().major, "1");
    for discovery in [
        Discovery::new(lab.client.clone()).run().await.unwrap(),
        Discovery::new(lab.client.clone()).run_aggregated().await.unwrap(),
    ] {
        let group = discovery.get("lab.example.com").unwrap();
        let (resource, can) = group.recommended_kind("Thing").unwrap();
        assert_eq!((resource.plural.as_str(), &can.scope), ("things", &Scope::Namespaced));
        assert!(
            can.supports_operation(verbs::WATCH)
                && can.subresources.iter().any(|(sub, _)| sub.plural.ends_with("status"))
        );
        assert!(discovery.groups().any(|group| group.name() == "coordination.k8s.io"));
    }
}

#[tokio::test]
async fn apply_keeps_the_owners_of_fields_apart() {
    let lab = Lab::new().await;
    let things = lab.things();
    let spec = |mode: &str| {
        Patch::Apply(json!({ "apiVersion": "lab.example.com/v1", "kind": "Thing", "spec": { "mode": mode } }))
    };
    let one = PatchParams::apply("one");
    let made = things.patch("x", &one, &spec("a")).await.unwrap();
    let again = things.patch("x", &one, &spec("a")).await.unwrap();
    assert_eq!(made.resource_version(), again.resource_version(), "what changes nothing writes nothing");
    let two = PatchParams::apply("two");
    let (code, reason) = refused(things.patch("x", &two, &spec("b")).await);
    assert_eq!((code, reason.as_str()), (409, "Conflict"));
    let forced = things.patch("x", &two.clone().force(), &spec("b")).await.unwrap();
    assert_eq!(forced.data["spec"]["mode"], "b");
    let managers: Vec<_> = forced.managed_fields().iter().filter_map(|m| m.manager.as_deref()).collect();
    assert!(managers.contains(&"two"), "{managers:?}");
    // What nobody applies any more goes away, and the default comes back.
    let nothing = Patch::Apply(json!({ "apiVersion": "lab.example.com/v1", "kind": "Thing" }));
    assert_eq!(things.patch("x", &two, &nothing).await.unwrap().data["spec"]["mode"], json!(null));
    let dry = things.patch("y", &one.dry_run(), &spec("a")).await.unwrap();
    assert_eq!((dry.name_any().as_str(), things.get_opt("y").await.unwrap().is_none()), ("y", true));
    let mut strict = PatchParams::apply("one");
    strict.field_validation = Some(ValidationDirective::Strict);
    let unknown = Patch::Apply(json!({ "apiVersion": "lab.example.com/v1", "kind": "Thing", "spec": { "more": 1 } }));
    // The real one takes it for an error of its own, too.
    assert_eq!(refused(things.patch("x", &strict, &unknown).await).0, 500);
}

#[tokio::test]
async fn patches_of_every_kind() {
    let lab = Lab::new().await;
    let things = lab.things();
    let made = things.create(&PostParams::default(), &a_thing("x", 1)).await.unwrap();
    let params = PatchParams::default();
    let merged = things.patch("x", &params, &Patch::Merge(json!({ "spec": { "count": 2 } }))).await.unwrap();
    assert_eq!((&merged.data["spec"]["count"], merged.meta().generation), (&json!(2), Some(2)));
    let steps = json!([{ "op": "test", "path": "/spec/count", "value": 2 }, { "op": "replace", "path": "/spec/count", "value": 3 }]);
    let steps: Patch<()> = Patch::Json(serde_json::from_value(steps).unwrap());
    assert_eq!(things.patch("x", &params, &steps).await.unwrap().data["spec"]["count"], 3);
    assert_eq!(refused(things.patch("x", &params, &steps).await).0, 422, "the test in it is not met any more");
    assert_eq!(refused(things.patch("x", &params, &Patch::Strategic(json!({ "spec": {} }))).await).0, 415);
    let status = Patch::Merge(
        json!({ "spec": { "count": 9 }, "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }),
    );
    let told = things.patch_status("x", &params, &status).await.unwrap();
    assert_eq!(
        (&told.data["spec"]["count"], &told.data["status"]["conditions"][0]["type"]),
        (&json!(3), &json!("Ready"))
    );
    assert_eq!(things.get_status("x").await.unwrap().resource_version(), told.resource_version());
    // A lock: the version that is in it is an old one.
    let stale =
        Patch::Merge(json!({ "metadata": { "resourceVersion": made.resource_version() }, "spec": { "count": 4 } }));
    assert_eq!(refused(things.patch("x", &params, &stale).await), (409, "Conflict".into()));
    assert_eq!(refused(things.replace("x", &PostParams::default(), &made).await), (409, "Conflict".into()));
    let labels = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    assert_eq!(things.patch_metadata("x", &params, &labels).await.unwrap().labels()["a"], "b");
    let maps: Api<ConfigMap> = Api::default_namespaced(lab.client.clone());
    let map = serde_json::from_value(json!({ "metadata": { "name": "m" }, "data": { "a": "1" } })).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let strategic = Patch::Strategic(json!({ "data": { "b": "2" } }));
    assert_eq!(maps.patch("m", &params, &strategic).await.unwrap().data.unwrap().len(), 2);
    // Get, change, put.
    let mut entry =
        maps.entry("m").await.unwrap().and_modify(|map| drop(map.data.take())).or_insert(ConfigMap::default);
    entry.commit(&PostParams::default()).await.unwrap();
    assert!(maps.get("m").await.unwrap().data.is_none());
    let secrets: Api<Secret> = Api::default_namespaced(lab.client.clone());
    let secret =
        serde_json::from_value(json!({ "metadata": { "generateName": "s-" }, "stringData": { "k": "v" } })).unwrap();
    let secret = secrets.create(&PostParams::default(), &secret).await.unwrap();
    assert_eq!((secret.data.unwrap()["k"].0.as_slice(), secret.metadata.name.unwrap().len()), (b"v".as_slice(), 7));
}

#[tokio::test]
async fn lists_pages_selectors_and_metadata_alone() {
    let lab = Lab::new().await;
    let things = lab.things();
    for count in 0..7 {
        let mut thing = a_thing(&format!("t{count}"), count);
        thing.labels_mut().insert("odd".into(), (count % 2 == 1).to_string());
        things.create(&PostParams::default(), &thing).await.unwrap();
    }
    let (mut params, mut names, mut pages) = (ListParams::default().limit(3), Vec::new(), 0);
    loop {
        let page = things.list(&params).await.unwrap();
        pages += 1;
        names.extend(page.items.iter().map(|thing| thing.name_any()));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    assert_eq!((pages, names.len(), names.is_sorted()), (3, 7, true));
    assert_eq!(things.list(&ListParams::default().labels("odd=true")).await.unwrap().items.len(), 3);
    assert_eq!(things.list(&ListParams::default().labels("odd notin (true),odd")).await.unwrap().items.len(), 4);
    assert_eq!(things.list(&ListParams::default().fields("metadata.name=t4")).await.unwrap().items.len(), 1);
    let metadata = things.list_metadata(&ListParams::default().labels("odd=true")).await.unwrap();
    assert_eq!(metadata.items.len(), 3);
    assert_eq!(things.get_metadata("t1").await.unwrap().labels()["odd"], "true");
    let gone = things.delete_collection(&DeleteParams::default(), &ListParams::default().labels("odd=false")).await;
    gone.unwrap();
    assert_eq!(things.list(&ListParams::default()).await.unwrap().items.len(), 3);
    let everywhere = Api::<kube::api::DynamicObject>::all_with(lab.client.clone(), &thing());
    assert_eq!(everywhere.list(&ListParams::default()).await.unwrap().items.len(), 3);
}

#[tokio::test]
async fn deletion_waits_for_finalizers_and_preconditions() {
    let lab = Lab::new().await;
    let things = lab.things();
    let mut held = a_thing("held", 1);
    held.finalizers_mut().push("lab.example.com/held".into());
    let uid = things.create(&PostParams::default(), &held).await.unwrap().uid().unwrap();
    let other = Preconditions { uid: Some("other".into()), resource_version: None };
    assert_eq!(refused(things.delete("held", &DeleteParams::default().preconditions(other)).await).0, 409);
    let foreground =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    let marked = things.delete("held", &foreground).await.unwrap().left().unwrap();
    assert!(marked.metadata.deletion_timestamp.is_some());
    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let params = PatchParams::default();
    let (released, gone) = tokio::join!(
        things.patch("held", &params, &release),
        soon(await_condition(things.clone(), "held", conditions::is_deleted(&uid))),
    );
    released.unwrap();
    assert!(gone.unwrap().is_none());
    things.create(&PostParams::default(), &a_thing("x", 1)).await.unwrap();
    soon(delete_and_finalize(things.clone(), "x", &DeleteParams::default())).await.unwrap();
    assert_eq!(refused(things.get("x").await), (404, "NotFound".into()));
    assert_eq!(refused(things.delete("x", &DeleteParams::default()).await).0, 404);
    // A namespace takes what is in it with it.
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "away" } })).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let away = Api::<kube::api::DynamicObject>::namespaced_with(lab.client.clone(), "away", &thing());
    away.create(&PostParams::default(), &a_thing("x", 1)).await.unwrap();
    soon(delete_and_finalize(namespaces, "away", &DeleteParams::default())).await.unwrap();
    assert!(away.get_opt("x").await.unwrap().is_none());
}

#[tokio::test]
async fn conditions_are_waited_for() {
    let lab = Lab::new().await;
    let things = lab.things();
    let ready = |thing: Option<&kube::api::DynamicObject>| {
        thing.is_some_and(|t| t.data["status"]["conditions"][0]["status"] == "True")
    };
    let waited = tokio::spawn(await_condition(things.clone(), "x", conditions::is_created().and(ready)));
    things.create(&PostParams::default(), &a_thing("x", 1)).await.unwrap();
    for status in ["False", "True"] {
        let status = Patch::Merge(json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } }));
        things.patch_status("x", &PatchParams::default(), &status).await.unwrap();
    }
    assert_eq!(soon(waited).await.unwrap().unwrap().unwrap().name_any(), "x");
}

/// What an election of a leader is made of: one makes it, the other finds it taken, and of two who renew an old one the second loses.
#[tokio::test]
async fn a_lease_has_one_holder() {
    let lab = Lab::new().await;
    let leases: Api<Lease> = Api::default_namespaced(lab.client.clone());
    let lease = |holder: &str| -> Lease {
        let spec =
            json!({ "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z" });
        serde_json::from_value(json!({ "metadata": { "name": "leader" }, "spec": spec })).unwrap()
    };
    leases.create(&PostParams::default(), &lease("one")).await.unwrap();
    assert_eq!(refused(leases.create(&PostParams::default(), &lease("two")).await), (409, "AlreadyExists".into()));
    let mut seen = leases.get("leader").await.unwrap();
    let renewed = leases.replace("leader", &PostParams::default(), &seen).await.unwrap();
    assert_eq!(renewed.resource_version(), seen.resource_version());
    let spec = seen.spec.as_mut().unwrap();
    spec.holder_identity = Some("two".into());
    spec.lease_transitions = Some(1);
    let old = renewed.clone();
    leases.replace("leader", &PostParams::default(), &seen).await.unwrap();
    let mut late = old;
    late.spec.as_mut().unwrap().lease_duration_seconds = Some(30);
    assert_eq!(refused(leases.replace("leader", &PostParams::default(), &late).await), (409, "Conflict".into()));
    assert_eq!(leases.get("leader").await.unwrap().spec.unwrap().holder_identity.as_deref(), Some("two"));
}

#[tokio::test]
async fn events_are_published_and_counted() {
    let lab = Lab::new().await;
    let made = lab.things().create(&PostParams::default(), &a_thing("x", 1)).await.unwrap();
    let reporter = Reporter { controller: "tests".into(), instance: None };
    let recorder = Recorder::new(lab.client.clone(), reporter);
    for _ in 0..2 {
        let event = Event {
            type_: EventType::Normal,
            reason: "Seen".into(),
            note: Some("It was seen.".into()),
            action: "Looking".into(),
            secondary: None,
        };
        recorder.publish(&event, &made.object_ref(&thing())).await.unwrap();
    }
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::default_namespaced(lab.client.clone());
    let told = events.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(told.iter().map(|e| e.series.as_ref().map(|s| s.count)).collect::<Vec<_>>(), [Some(2)]);
}

#[tokio::test]
async fn what_the_server_refuses_is_an_error_that_says_so() {
    let lab = Lab::new().await;
    let things = lab.things();
    let post = PostParams::default();
    let mut wrong = a_thing("x", 1);
    wrong.data["spec"]["mode"] = json!("z");
    assert_eq!(refused(things.create(&post, &wrong).await), (422, "Invalid".into()));
    for (fault, code) in [(Fault::Quota, 403), (Fault::Refuse(500), 500)] {
        let order = lab.order(Order::new(fault, "things"));
        assert_eq!(refused(things.create(&post, &a_thing("x", 1)).await).0, code);
        assert_eq!(lab.fired(order), 1);
    }
    things.create(&post, &a_thing("x", 1)).await.unwrap();
    assert_eq!(refused(things.create(&post, &a_thing("x", 1)).await), (409, "AlreadyExists".into()));
    let order = lab.order(Order::new(Fault::Conflict, "things"));
    let patch = Patch::Merge(json!({ "spec": { "count": 2 } }));
    assert_eq!(refused(things.patch("x", &PatchParams::default(), &patch).await), (409, "Conflict".into()));
    assert_eq!(lab.fired(order), 1);
}
