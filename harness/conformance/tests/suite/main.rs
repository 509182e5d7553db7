//! The suite itself: it passes on the simulated service, in virtual time, and it notices when a service is wrong. Checks run over
//! a core in memory, each with a core of its own.

#![expect(clippy::unwrap_used, reason = "what a test cannot get is its failure")]

mod mutations;
mod simulated;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use vlab_api::Timestamp;
use vlab_api::http::{Request, Response, TransportError};
use vlab_conformance::wire::{Later, Wire};
use vlab_conformance::{Check, Outcome, Pace, Target, suite, table};
use vlab_model::settings::Settings;
use vlab_service::{Core, CoreConfig, Snapshot};

/// Not of the core: the HTTP shell answers them, and `vlab`'s own tests run them over HTTP.
const OF_THE_SHELL: &str = "!service/health/";

/// Changes what the service answers.
pub(crate) type Mutation = fn(&Request, &mut Response);

/// A core of the simulated service and its clock.
pub(crate) struct CoreWire {
    core: Core,
    now: Timestamp,
    mutation: Option<Mutation>,
}

impl CoreWire {
    pub(crate) fn new(settings: Settings, mutation: Option<Mutation>) -> Self {
        let config = CoreConfig {
            settings,
            seed: 1,
            base_url: "http://127.0.0.1:8090".into(),
            image_service_url: String::new(),
        };
        let mut wire = Self {
            core: Core::new(config, Snapshot::default()),
            now: "2026-11-20T12:00:00.000Z".parse().unwrap(),
            mutation,
        };
        wire.core.wake(wire.now);
        wire.commit();
        wire
    }

    fn commit(&mut self) {
        let _ = self.core.take_writes();
        self.core.confirm();
    }
}

impl Wire for CoreWire {
    fn send<'a>(&'a mut self, request: &'a Request) -> Later<'a, Result<Response, TransportError>> {
        let mut response = self.core.handle(self.now, request);
        self.commit();
        // A request takes time; two of them are never at the same moment.
        self.now = self.now + Duration::from_millis(1);
        if let Some(mutation) = self.mutation {
            mutation(request, &mut response);
        }
        Box::pin(async move { Ok(response) })
    }

    fn sleep(&mut self, time: Duration) -> Later<'_, ()> {
        let end = self.now + time;
        while let Some(at) = self.core.next_wake().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.core.wake(self.now);
            self.commit();
        }
        self.now = end;
        Box::pin(async {})
    }

    fn now(&self) -> Timestamp {
        self.now
    }
}

pub(crate) fn settings(host_monitor: &str) -> Settings {
    let own = vlab_conformance::SETTINGS.iter().copied();
    let pace = [("HOST_MONITOR_INTERVAL", host_monitor), ("CLUSTER_MONITOR_INTERVAL", "1s")];
    Settings::from_vars(own.chain(pace)).unwrap()
}

/// Runs the checks that the patterns select.
pub(crate) async fn run(patterns: &[&str], settings: Settings, mutation: Option<Mutation>) -> Vec<Outcome> {
    let second = Duration::from_secs(1);
    let pace =
        Pace { host_monitor: second, cluster_monitor: second, disconnection: settings.host_max_disconnection_time };
    let secret = r#"{"auths":{"quay.io":{"auth":"dXNlcjpwYXNz"}}}"#;
    // What the service is, is asked without the fault: the checks shall find it.
    let mut wire = CoreWire::new(settings.clone(), None);
    let target = Target::probe(&mut wire, pace, true, Some("4.20"), secret, 7).await.unwrap();
    let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
    let checks: Vec<Check> = table::built_in().unwrap();
    let checks: Vec<Check> = checks.into_iter().filter(|check| suite::selected(&check.id, &patterns)).collect();
    assert!(!checks.is_empty(), "{patterns:?} select nothing");
    let wire = |_: &Check| Box::new(CoreWire::new(settings.clone(), mutation)) as Box<dyn Wire>;
    suite::run(checks, Arc::new(target), 1, wire, CancellationToken::new(), |_| ()).await
}
