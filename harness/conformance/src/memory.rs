//! The suite over a core of the simulated service in memory, each check with a core and a clock of its own that jumps. Checks over
//! Kubernetes have an API server in memory, too, and the service's controllers.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use vlab_api::Timestamp;
use vlab_api::http::{Request, Response, TransportError, is_for_hub};
use vlab_kube::{Memory, Options, Watches};
use vlab_model::settings::{SettingError, Settings};
use vlab_service::alteration::Alteration;
use vlab_service::kube::{Door, DoorConfig, definitions, operator};
use vlab_service::{Core, CoreConfig, Snapshot};

use crate::target::ProbeError;
use crate::wire::{Later, Wire};
use crate::{CheckOutcome, ConformanceCheck, ConformanceVerdict, Need, Pace, Target, suite};

/// Not of the core: the HTTP shell answers them.
pub const OF_THE_SHELL: &str = "!service/health/";

/// An operator for bare metal that shares hosts.
const OPERATOR: &str = "4.20.0";

/// When its time begins.
const BEGINNING: Timestamp = Timestamp::from_secs(1_795_176_000);

/// A core of the simulated service and its clock.
#[derive(Debug)]
pub struct CoreWire {
    core: Core,
    now: Timestamp,
    /// What answers for an API server; else why nobody does.
    hub: Result<Hub, String>,
}

/// An API server, and the controllers on it.
#[derive(Debug)]
struct Hub {
    memory: Memory,
    door: Door,
    /// Those of the controllers.
    watches: Watches,
}

impl Hub {
    /// `bare_metal`: the version of its operator for bare metal, if it has one.
    fn new(now: Timestamp, bare_metal: Option<&str>) -> Result<Self, String> {
        let mut memory = Memory::new(Options { seed: 1, ..Options::default() }, now);
        memory.keep_parsed();
        memory.create_all(now, &definitions()).map_err(|status| format!("the kinds are refused: {status}"))?;
        memory.ask_all(now, &bare_metal.map(operator).unwrap_or_default())?;
        // Nobody joins a cluster but what the checks say.
        let door = Door::new(DoorConfig { pace: 1.0, service: true, hive: true, metal3: true, clusters: None });
        Ok(Self { memory, door, watches: Watches::default() })
    }

    fn next_wake(&self) -> Option<Timestamp> {
        [self.memory.core.next_wake(), self.door.next_wake()].into_iter().flatten().min()
    }

    /// Does what is due, and carries what controllers and API server say to each other; `false`: there was nothing.
    fn step(&mut self, core: &mut Core, now: Timestamp) -> bool {
        let mut did = false;
        if self.memory.core.next_wake().is_some_and(|at| at <= now) {
            self.memory.core.wake(now);
            did = true;
        }
        if self.door.next_wake().is_some_and(|at| at <= now) {
            self.door.wake(core, now);
            did = true;
        }
        for ask in self.door.take_asks() {
            did = true;
            let answer = match ask.watch {
                true => self.watches.begin(&mut self.memory, now, &ask.request.path, ask.tag).map(Ok),
                false => Some(self.memory.handle_at(now, ask.server.as_deref(), &ask.request)),
            };
            if let Some(answer) = answer {
                self.door.answered(core, now, ask.tag, answer);
            }
        }
        for watch in self.memory.core.take_woken() {
            if let Some((tag, events, over)) = self.watches.news(&mut self.memory, now, watch) {
                did = true;
                self.door.told(core, now, tag, events, over);
            }
        }
        did
    }
}

impl CoreWire {
    /// A new service; perhaps one that is wrong on purpose.
    pub fn new(settings: Settings, alteration: Option<Alteration>) -> Self {
        Self::with(settings, alteration, "")
    }

    /// The same with an image service behind it, which nobody asks for anything.
    pub fn with_images(settings: Settings, alteration: Option<Alteration>) -> Self {
        Self::with(settings, alteration, "http://127.0.0.1:8888")
    }

    fn with(settings: Settings, alteration: Option<Alteration>, image_service_url: &str) -> Self {
        let config = CoreConfig {
            settings,
            seed: 1,
            base_url: "http://127.0.0.1:8090".into(),
            image_service_url: image_service_url.to_owned(),
            alteration,
        };
        let mut wire = Self {
            core: Core::new(config, Snapshot::default()),
            now: BEGINNING,
            hub: Err("there is no API server".into()),
        };
        wire.core.wake(wire.now);
        wire.commit();
        wire
    }

    /// The same with an API server on which the service's controllers work.
    #[must_use]
    pub fn with_hub(self) -> Self {
        self.with_hub_of(None)
    }

    /// The same for a hub with an operator for bare metal of that version.
    #[must_use]
    pub fn with_hub_of(mut self, bare_metal: Option<&str>) -> Self {
        self.hub = Hub::new(self.now, bare_metal);
        self.core = self.core.with_controllers();
        self.commit();
        self
    }

    /// Stores what was written; controllers see it, and go on until they have nothing to do.
    fn commit(&mut self) {
        loop {
            let writes = self.core.take_writes();
            self.core.confirm();
            let Ok(hub) = &mut self.hub else { return };
            hub.door.rows_changed(self.now, &writes);
            if !hub.step(&mut self.core, self.now) && writes.is_empty() {
                return;
            }
            // What they ask is under way a moment.
            self.now = self.now + Duration::from_micros(100);
        }
    }

    fn next_wake(&self) -> Option<Timestamp> {
        [self.core.next_wake(), self.hub.as_ref().ok().and_then(Hub::next_wake)].into_iter().flatten().min()
    }
}

impl Wire for CoreWire {
    fn send<'a>(&'a mut self, request: &'a Request) -> Later<'a, Result<Response, TransportError>> {
        let response = match &mut self.hub {
            Ok(hub) if is_for_hub(&request.path) => Ok(hub.memory.handle(self.now, request)),
            Err(why) if is_for_hub(&request.path) => Err(TransportError::Connect(why.clone())),
            _ => Ok(self.core.handle(self.now, request)),
        };
        self.commit();
        // A request takes time; two of them are never at the same moment.
        self.now = self.now + Duration::from_millis(1);
        Box::pin(async move { response })
    }

    fn sleep(&mut self, time: Duration) -> Later<'_, ()> {
        let end = self.now + time;
        while let Some(at) = self.next_wake().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            if self.core.next_wake().is_some_and(|at| at <= self.now) {
                self.core.wake(self.now);
            }
            self.commit();
        }
        self.now = self.now.max(end);
        Box::pin(async {})
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn hub(&self) -> String {
        Memory::URL.to_owned()
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

/// Where time jumps nothing is late because a computer is busy: an event is there when the next round of the monitors is over.
const PATIENCE_FOR_EVENTS: Duration = Duration::from_secs(10);

/// What the suite knows about such a service, which was asked when nothing was wrong with it.
///
/// # Errors
/// See [`Target::probe`].
pub async fn target(settings: &Settings) -> Result<Target, ProbeError> {
    probe(settings, &mut CoreWire::new(settings.clone(), None)).await
}

async fn probe(settings: &Settings, wire: &mut CoreWire) -> Result<Target, ProbeError> {
    let second = Duration::from_secs(1);
    let disconnection = settings.host_max_disconnection_time;
    let pace = Pace { host_monitor: second, cluster_monitor: second, disconnection, scaled: false };
    let secret = r#"{"auths":{"quay.io":{"auth":"dXNlcjpwYXNz"}}}"#;
    let target = Target::probe(wire, pace, true, Some("4.20"), secret, 7).await?;
    let release = settings.release_images.iter().find(|release| release.openshift_version == "4.20");
    let release_image = release.map(|release| release.url.clone()).unwrap_or_default();
    Ok(Target { patience_for_events: PATIENCE_FOR_EVENTS, release_image, ..target })
}

/// Services in memory for all checks: with an image service for those that need one.
#[derive(Debug)]
pub struct Services {
    settings: Settings,
    plain: Arc<Target>,
    with_images: Arc<Target>,
}

impl Services {
    /// Asks what they are, with nothing wrong.
    ///
    /// # Errors
    /// See [`Target::probe`].
    pub async fn new(settings: Settings) -> Result<Self, ProbeError> {
        let with_images = probe(&settings, &mut CoreWire::with_images(settings.clone(), None)).await?;
        Ok(Self { plain: Arc::new(target(&settings).await?), with_images: Arc::new(with_images), settings })
    }

    /// Performs a check on a new service, perhaps one that is wrong on purpose; `None`: it was stopped.
    pub async fn perform(&self, check: &ConformanceCheck, alteration: Option<Alteration>) -> Option<CheckOutcome> {
        // InfraEnvs have their image from it.
        let images = check.over_kube || check.needs.contains(&Need::ImageService);
        let target = if images { &self.with_images } else { &self.plain };
        let wire = |_: &ConformanceCheck| {
            let settings = self.settings.clone();
            let wire =
                if images { CoreWire::with_images(settings, alteration) } else { CoreWire::new(settings, alteration) };
            let bare_metal = check.needs.contains(&Need::ConvergedFlow).then_some(OPERATOR);
            Box::new(if check.over_kube { wire.with_hub_of(bare_metal) } else { wire }) as Box<dyn Wire>
        };
        let one = vec![check.clone()];
        suite::run(one, Arc::clone(target), 1, wire, CancellationToken::new(), |_| ()).await.pop()
    }

    /// Does the check fail on a service with that alteration?
    pub async fn fails(&self, check: &ConformanceCheck, alteration: Alteration) -> bool {
        let outcome = self.perform(check, Some(alteration)).await;
        outcome.is_some_and(|outcome| matches!(outcome.verdict, ConformanceVerdict::Failed { .. }))
    }
}
