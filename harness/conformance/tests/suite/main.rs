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
use vlab_api::http::{Request, Response, TransportError};
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
}

pub(crate) fn settings(host_monitor: &str) -> Settings {
    memory::settings(host_monitor).unwrap()
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
