//! Watchers and reflectors: what they know is what is there, whatever happened to their watches.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::api::{DeleteParams, DynamicObject, PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, predicates, watcher};
use kube::{Api, ResourceExt as _};
use rstest::rstest;
use serde_json::json;
use std::time::Duration;
use vlab_kube::{Fault, Order};

use crate::{Lab, a_thing, soon, thing};

/// What a store knows: names and their counts.
fn known(store: &Store<DynamicObject>) -> BTreeMap<String, u64> {
    store.state().iter().map(|thing| (thing.name_any(), thing.data["spec"]["count"].as_u64().unwrap_or(0))).collect()
}

fn expected(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
    of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// A reflector begins with three objects; then one is changed, one made, one deleted, while its watch goes wrong.
#[rstest]
#[case::in_peace(None)]
#[case::cut_with_410(Some(Fault::Cut))]
#[case::closed(Some(Fault::Close))]
#[case::told_twice(Some(Fault::Twice))]
#[case::told_late(Some(Fault::Delay(Duration::from_millis(50))))]
#[case::server_restarts(Some(Fault::Restart(Duration::from_millis(50))))]
#[tokio::test]
async fn a_reflector_knows_what_is_there(
    #[case] fault: Option<Fault>,
    #[values(watcher::Config::default().page_size(2), watcher::Config::default().streaming_lists())]
    config: watcher::Config,
) {
    let lab = Lab::new().await;
    let things = lab.things();
    let post = PostParams::default();
    for (name, count) in [("a", 1), ("b", 1), ("c", 1)] {
        things.create(&post, &a_thing(name, count)).await.unwrap();
    }
    let writer = reflector::store::Writer::new(thing());
    let store = writer.as_reader();
    let mut changes = Box::pin(watcher(things.clone(), config).default_backoff().reflect(writer));
    // Errors are what the watcher is there to get over.
    let mut until = async |wanted: BTreeMap<String, u64>| {
        while known(&store) != wanted {
            drop(soon(changes.next()).await.expect("a watcher never ends"));
        }
    };
    until(expected(&[("a", 1), ("b", 1), ("c", 1)])).await;
    let order = fault.map(|fault| lab.order(Order::new(fault, "things")));
    let count = Patch::Merge(json!({ "spec": { "count": 2 } }));
    things.patch("a", &PatchParams::default(), &count).await.unwrap();
    // While a server restarts it answers with 503.
    let again = async |again: &mut dyn FnMut() -> futures_util::future::BoxFuture<'static, kube::Result<()>>| {
        while let Err(error) = again().await {
            assert!(matches!(&error, kube::Error::Api(status) if status.code == 503), "{error:?}");
            tokio::task::yield_now().await;
        }
    };
    let api = things.clone();
    again(&mut || {
        let api = api.clone();
        Box::pin(async move { api.create(&PostParams::default(), &a_thing("d", 4)).await.map(drop) })
    })
    .await;
    again(&mut || {
        let api = api.clone();
        Box::pin(async move { api.delete("b", &DeleteParams::default()).await.map(drop) })
    })
    .await;
    until(expected(&[("a", 2), ("c", 1), ("d", 4)])).await;
    if let Some(order) = order {
        assert_eq!(lab.fired(order), 1, "nothing went wrong");
    }
}

/// Events as a watcher gives them: the list, then what changes; objects that leave the selector are deleted for it.
#[tokio::test]
async fn a_watcher_tells_each_change_once() {
    let lab = Lab::new().await;
    let things = lab.things();
    let mut first = a_thing("first", 1);
    first.labels_mut().insert("in".into(), "yes".into());
    things.create(&PostParams::default(), &first).await.unwrap();
    things.create(&PostParams::default(), &a_thing("other", 1)).await.unwrap();
    let mut events = Box::pin(watcher(things.clone(), watcher::Config::default().labels("in=yes")));
    let mut next = async || match soon(events.try_next()).await.unwrap().unwrap() {
        watcher::Event::Init => "begins".to_owned(),
        watcher::Event::InitApply(thing) => format!("there: {}", thing.name_any()),
        watcher::Event::InitDone => "all".to_owned(),
        watcher::Event::Apply(thing) => format!("applied: {} {}", thing.name_any(), thing.data["spec"]["count"]),
        watcher::Event::Delete(thing) => format!("gone: {}", thing.name_any()),
    };
    for told in ["begins", "there: first", "all"] {
        assert_eq!(next().await, told);
    }
    let patch =
        async |name: &str, patch| things.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    patch("first", json!({ "spec": { "count": 2 } })).await;
    assert_eq!(next().await, "applied: first 2");
    patch("first", json!({ "spec": { "count": 2 } })).await;
    patch("first", json!({ "metadata": { "labels": { "in": null } } })).await;
    assert_eq!(next().await, "gone: first");
    patch("other", json!({ "metadata": { "labels": { "in": "yes" } } })).await;
    assert_eq!(next().await, "applied: other 1");
    things.delete("other", &DeleteParams::default()).await.unwrap();
    assert_eq!(next().await, "gone: other");
}

/// A watch of metadata alone, of one object, and of generations: status writes do not count.
#[tokio::test]
async fn watches_of_less() {
    let lab = Lab::new().await;
    let things: Api<DynamicObject> = lab.things();
    things.create(&PostParams::default(), &a_thing("x", 1)).await.unwrap();
    let metadata: Api<PartialObjectMeta<DynamicObject>> = Api::default_namespaced_with(lab.client.clone(), &thing());
    let mut metadata = Box::pin(
        watcher(metadata, watcher::Config::default())
            .touched_objects()
            .predicate_filter(predicates::generation, kube::runtime::PredicateConfig::default()),
    );
    let mut one = Box::pin(kube::runtime::watcher::watch_object(things.clone(), "x"));
    assert_eq!(soon(metadata.try_next()).await.unwrap().unwrap().name_any(), "x");
    assert!(soon(one.try_next()).await.unwrap().unwrap().is_some());
    let status = Patch::Merge(json!({ "status": { "conditions": [] } }));
    things.patch_status("x", &PatchParams::default(), &status).await.unwrap();
    assert!(
        soon(one.try_next())
            .await
            .unwrap()
            .unwrap()
            .is_some_and(|thing| thing.data["status"]["conditions"] == json!([]))
    );
    things.patch("x", &PatchParams::default(), &Patch::Merge(json!({ "spec": { "count": 2 } }))).await.unwrap();
    assert_eq!(soon(metadata.try_next()).await.unwrap().unwrap().metadata.generation, Some(2));
    assert!(soon(one.try_next()).await.unwrap().unwrap().is_some());
    things.delete("x", &DeleteParams::default()).await.unwrap();
    assert!(soon(one.try_next()).await.unwrap().unwrap().is_none());
}
