//! The suite over a core of the simulated service in memory, each check with a core and a clock of its own that jumps.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use vlab_api::Timestamp;
use vlab_api::http::{Request, Response, TransportError};
use vlab_model::settings::{SettingError, Settings};
use vlab_service::alteration::Alteration;
use vlab_service::{Core, CoreConfig, Snapshot};

use crate::target::ProbeError;
use crate::wire::{Later, Wire};
use crate::{CheckOutcome, ConformanceCheck, ConformanceVerdict, Pace, Target, suite};

/// Not of the core: the HTTP shell answers them.
pub const OF_THE_SHELL: &str = "!service/health/";

/// When its time begins.
const BEGINNING: Timestamp = Timestamp::from_secs(1_795_176_000);

/// A core of the simulated service and its clock.
#[derive(Debug)]
pub struct CoreWire {
    core: Core,
    now: Timestamp,
}

impl CoreWire {
    /// A new service; perhaps one that is wrong on purpose.
    pub fn new(settings: Settings, alteration: Option<Alteration>) -> Self {
        let config = CoreConfig {
            settings,
            seed: 1,
            base_url: "http://127.0.0.1:8090".into(),
            image_service_url: String::new(),
            alteration,
        };
        let mut wire = Self { core: Core::new(config, Snapshot::default()), now: BEGINNING };
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
        let response = self.core.handle(self.now, request);
        self.commit();
        // A request takes time; two of them are never at the same moment.
        self.now = self.now + Duration::from_millis(1);
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

/// The settings of such a service, with that interval of the hosts' monitor.
///
/// # Errors
/// The interval cannot be read.
pub fn settings(host_monitor: &str) -> Result<Settings, SettingError> {
    let own = crate::SETTINGS.iter().copied();
    let pace = [("HOST_MONITOR_INTERVAL", host_monitor), ("CLUSTER_MONITOR_INTERVAL", "1s")];
    Settings::from_vars(own.chain(pace))
}

/// What the suite knows about such a service, which was asked when nothing was wrong with it.
///
/// # Errors
/// See [`Target::probe`].
pub async fn target(settings: &Settings) -> Result<Target, ProbeError> {
    let second = Duration::from_secs(1);
    let disconnection = settings.host_max_disconnection_time;
    let pace = Pace { host_monitor: second, cluster_monitor: second, disconnection, scaled: false };
    let secret = r#"{"auths":{"quay.io":{"auth":"dXNlcjpwYXNz"}}}"#;
    Target::probe(&mut CoreWire::new(settings.clone(), None), pace, true, Some("4.20"), secret, 7).await
}

/// Performs checks one after the other until one fails: that one, and how many were performed.
pub async fn first_failure(
    checks: &[ConformanceCheck],
    target: &Arc<Target>,
    settings: &Settings,
    alteration: Alteration,
) -> (Option<CheckOutcome>, usize) {
    for (done, check) in checks.iter().enumerate() {
        let wire = |_: &ConformanceCheck| Box::new(CoreWire::new(settings.clone(), Some(alteration))) as Box<dyn Wire>;
        let one = vec![check.clone()];
        let outcomes = suite::run(one, Arc::clone(target), 1, wire, CancellationToken::new(), |_| ()).await;
        let failed = |outcome: &CheckOutcome| matches!(outcome.verdict, ConformanceVerdict::Failed { .. });
        if let Some(outcome) = outcomes.into_iter().find(failed) {
            return (Some(outcome), done + 1);
        }
    }
    (None, checks.len())
}
