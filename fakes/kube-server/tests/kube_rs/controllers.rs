//! A whole controller: finalizer, a child that it owns, status. It comes to the same end whatever goes wrong at the server.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{self, finalizer};
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use rstest::rstest;
use serde_json::json;
use vlab_kube::{Fault, Order};

use crate::{Lab, a_thing, soon, thing};

const FINALIZER: &str = "lab.example.com/cleanup";

struct Context {
    client: Client,
    cleaned: Mutex<BTreeSet<String>>,
}

/// A thing has a config map with its count, and is ready when that is written.
async fn applied(thing_of: &DynamicObject, client: &Client) -> kube::Result<()> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let owner = thing_of.controller_owner_ref(&thing()).unwrap();
    let count = thing_of.data["spec"]["count"].to_string();
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "ownerReferences": [owner] }, "data": { "count": count } });
    maps.patch(&thing_of.name_any(), &PatchParams::apply("tests").force(), &Patch::Apply(map)).await?;
    let things: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &thing());
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    things.patch_status(&thing_of.name_any(), &PatchParams::default(), &Patch::Merge(status)).await.map(drop)
}

async fn reconcile(of: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, finalizer::Error<kube::Error>> {
    let things = Api::default_namespaced_with(context.client.clone(), &thing());
    let within = Arc::clone(&context);
    finalizer(&things, FINALIZER, of, |event| async move {
        match event {
            finalizer::Event::Apply(of) => applied(&of, &within.client).await?,
            finalizer::Event::Cleanup(of) => drop(within.cleaned.lock().unwrap().insert(of.name_any())),
        }
        Ok(Action::await_change())
    })
    .await
}

fn fault(fault: Fault, resource: &str, verb: &str, after: u64, times: u64) -> Order {
    Order { verb: verb.into(), after, times, ..Order::new(fault, resource) }
}

#[rstest]
#[case::in_peace(None)]
#[case::its_finalizer_is_refused(Some(fault(Fault::Conflict, "things", "patch", 0, 2)))]
#[case::its_child_is_refused(Some(fault(Fault::Refuse(500), "configmaps", "patch", 0, 2)))]
#[case::its_status_is_refused(Some(fault(Fault::Conflict, "things", "patch", 1, 2)))]
#[case::every_watch_of_things_is_cut_with_410(Some(fault(Fault::Cut, "things", "", 1, 1)))]
// Not at the deletion of the child: who lists anew does not hear of what is gone, and that runtime looks at no owner then.
#[case::every_watch_of_children_is_cut_with_410(Some(fault(Fault::Cut, "configmaps", "", 0, 1)))]
#[case::restart_behind_the_finalizer(Some(fault(
    Fault::Restart(Duration::from_millis(100)),
    "things",
    "patch",
    0,
    1
)))]
#[case::restart_behind_the_child(Some(fault(
    Fault::Restart(Duration::from_millis(100)),
    "configmaps",
    "patch",
    0,
    1
)))]
#[case::restart_behind_the_deletion(Some(fault(
    Fault::Restart(Duration::from_millis(100)),
    "things",
    "delete",
    0,
    1
)))]
#[tokio::test]
async fn a_controller_comes_to_the_same_end(#[case] order: Option<Order>) {
    let lab = Lab::new().await;
    let order = order.map(|order| lab.order(order));
    let things = lab.things();
    let maps: Api<ConfigMap> = Api::default_namespaced(lab.client.clone());
    let context = Arc::new(Context { client: lab.client.clone(), cleaned: Mutex::default() });
    let controller = Controller::new_with(things.clone(), watcher::Config::default(), thing())
        .owns(maps.clone(), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(20)), Arc::clone(&context))
        .for_each(|_| async {});
    let running = tokio::spawn(controller);

    let made = things.create(&PostParams::default(), &a_thing("x", 1)).await.unwrap();
    let says = |count: &'static str| {
        move |map: Option<&ConfigMap>| map.and_then(|m| m.data.as_ref()).is_some_and(|d| d["count"] == count)
    };
    let ready =
        |of: Option<&DynamicObject>| of.is_some_and(|of| of.data["status"]["conditions"][0]["status"] == "True");
    soon(until(&things, "x", ready)).await;
    let map = soon(until(&maps, "x", says("1"))).await.unwrap();
    assert_eq!(map.owner_references()[0].uid, made.uid().unwrap());

    // What somebody else takes away from it, it makes again; what it is told, it does.
    maps.delete("x", &DeleteParams::default()).await.unwrap();
    let again = soon(until(&maps, "x", says("1"))).await.unwrap();
    assert_ne!(again.uid(), map.uid());
    things.patch("x", &PatchParams::default(), &Patch::Merge(json!({ "spec": { "count": 2 } }))).await.unwrap();
    soon(until(&maps, "x", says("2"))).await;

    // It cleans up before the thing is gone, and the server takes the child.
    things.delete("x", &DeleteParams::default()).await.unwrap();
    soon(until(&things, "x", conditions::is_deleted(&made.uid().unwrap()))).await;
    assert!(context.cleaned.lock().unwrap().contains("x"));
    soon(until(&maps, "x", conditions::is_deleted(&again.uid().unwrap()))).await;
    if let Some(order) = order {
        assert!(lab.fired(order) > 0, "nothing went wrong");
    }
    running.abort();
}

/// Waits for that, also while the server restarts: then one asks it anew.
async fn until<K>(api: &Api<K>, name: &str, condition: impl Condition<K>) -> Option<K>
where
    K: Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + kube::Resource + 'static,
{
    loop {
        match await_condition(api.clone(), name, |found: Option<&K>| condition.matches_object(found)).await {
            Ok(found) => return found,
            Err(error) => drop(error),
        }
        tokio::task::yield_now().await;
    }
}
