//! The suite itself: it passes on the simulated service, in virtual time, and it notices when a service is wrong. Checks run over
//! a core in memory, each with a core of its own.

#![expect(clippy::unwrap_used, reason = "what a test cannot get is its failure")]

mod mutations;
mod schema;
mod simulated;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use vlab_api::Timestamp;
use vlab_api::http::{Request, Response, TransportError, is_for_hub};
use vlab_conformance::memory::{self, CoreWire, OF_THE_SHELL};
use vlab_conformance::wire::{Later, Wire};
use vlab_conformance::{CheckOutcome, ConformanceCheck, suite, table};
use vlab_model::settings::Settings;

/// Changes what the service answers.
pub(crate) type Mutation = fn(&Request, &mut Response);

/// A core of the simulated service whose answers are changed on their way.
struct ChangedWire(CoreWire, Option<Mutation>);

impl Wire for ChangedWire {
    fn send<'a>(&'a mut self, request: &'a Request) -> Later<'a, Result<Response, TransportError>> {
        Box::pin(async move {
            let mut response = self.0.send(request).await?;
            if let Some(change) = self.1 {
                change(request, &mut response);
            }
            Ok(response)
        })
    }

    fn sleep(&mut self, time: Duration) -> Later<'_, ()> {
        self.0.sleep(time)
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn hub(&self) -> String {
        self.0.hub()
    }
}

pub(crate) fn settings(host_monitor: &str) -> Settings {
    memory::settings(host_monitor).unwrap()
}

/// A core of the simulated service with controllers and an API server that says one text where it should say another.
struct ChangedHub(CoreWire, Option<(String, String)>);

impl Wire for ChangedHub {
    fn send<'a>(&'a mut self, request: &'a Request) -> Later<'a, Result<Response, TransportError>> {
        Box::pin(async move {
            let mut response = self.0.send(request).await?;
            if let Some((right, wrong)) = self.1.as_ref().filter(|_| is_for_hub(&request.path)) {
                response.body = String::from_utf8_lossy(&response.body).replace(right, wrong).into();
            }
            Ok(response)
        })
    }

    fn sleep(&mut self, time: Duration) -> Later<'_, ()> {
        self.0.sleep(time)
    }

    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn hub(&self) -> String {
        self.0.hub()
    }
}

/// Performs a check over Kubernetes.
pub(crate) async fn over_kube(check: &ConformanceCheck, change: Option<(String, String)>) -> CheckOutcome {
    let settings = settings("1s");
    let target = memory::target(&settings).await.unwrap();
    let wire = |_: &ConformanceCheck| {
        let wire = CoreWire::new(settings.clone(), None).with_hub();
        Box::new(ChangedHub(wire, change.clone())) as Box<dyn Wire>
    };
    let one = vec![check.clone()];
    suite::run(one, Arc::new(target), 1, wire, CancellationToken::new(), |_| ()).await.pop().unwrap()
}

/// Performs a check over Kubernetes on a hub with an operator for bare metal.
pub(crate) async fn on_operator(check: &ConformanceCheck, settings: Settings, version: &str) -> CheckOutcome {
    let target = memory::target(&settings).await.unwrap();
    let wire = |_: &ConformanceCheck| {
        Box::new(CoreWire::with_images(settings.clone(), None).with_hub_of(Some(version))) as Box<dyn Wire>
    };
    let one = vec![check.clone()];
    suite::run(one, Arc::new(target), 1, wire, CancellationToken::new(), |_| ()).await.pop().unwrap()
}

/// Runs the checks that the patterns select.
pub(crate) async fn run(patterns: &[&str], settings: Settings, mutation: Option<Mutation>) -> Vec<CheckOutcome> {
    // What the service is, is asked without the fault: the checks shall find it.
    let target = memory::target(&settings).await.unwrap();
    let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
    let checks: Vec<ConformanceCheck> = table::built_in().unwrap();
    let checks: Vec<ConformanceCheck> =
        checks.into_iter().filter(|check| suite::selected(&check.id, &patterns)).collect();
    assert!(!checks.is_empty(), "{patterns:?} select nothing");
    let wire =
        |_: &ConformanceCheck| Box::new(ChangedWire(CoreWire::new(settings.clone(), None), mutation)) as Box<dyn Wire>;
    suite::run(checks, Arc::new(target), 1, wire, CancellationToken::new(), |_| ()).await
}
