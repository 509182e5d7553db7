//! What is known about the service under test before its first check: what it answers with by itself, how fast its monitors run,
//! and what it does not offer.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use vlab_api::BASE_PATH;
use vlab_api::http::{Method, Request, Response, TransportError};

use crate::table::Need;
use crate::wire::Wire;

/// The slowest monitors with which waiting for changes of state makes sense.
const QUICK: Duration = Duration::from_secs(1);
/// How long something may take to come on a computer that has much else to do: only a check that fails waits that long.
const PATIENCE: Duration = Duration::from_secs(90);
/// The longest silence for which a check waits.
const SHORT_SILENCE: Duration = Duration::from_secs(15);

/// How fast the service runs, as its settings say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Interval of the hosts' monitor.
    pub host_monitor: Duration,
    /// Interval of the clusters' monitor.
    pub cluster_monitor: Duration,
    /// Silence after which a host counts as disconnected.
    pub disconnection: Duration,
    /// Its times are not the real service's, but so many times shorter.
    pub scaled: bool,
}

/// The service under test.
#[derive(Clone, Debug)]
pub struct Target {
    /// OpenShift version of the clusters that checks make.
    pub version: String,
    /// Release image of that version, which a ClusterImageSet names; empty where nobody has said it.
    pub release_image: String,
    /// Image of the discovery agent that the service wants.
    pub agent_version: String,
    /// A pull secret that it takes.
    pub pull_secret: String,
    /// Time between two looks, and between two rounds of the hosts.
    pub tick: Duration,
    /// The longer one of the two monitors' intervals.
    pub monitor: Duration,
    /// How long something may take to come.
    pub patience: Duration,
    /// The same of an event of something that has happened.
    pub patience_for_events: Duration,
    /// Number of the run: names and ids of two runs differ.
    pub run: u64,
    /// Needs that it does not meet, with the reason.
    pub unmet: BTreeMap<Need, String>,
}

/// The service cannot be examined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// No answer.
    #[error("the service does not answer: {0}")]
    NoAnswer(#[from] TransportError),
    /// It names no version.
    #[error("the service lists no OpenShift version (GET /v2/openshift-versions): name one with --openshift-version")]
    NoVersion,
    /// Another answer than expected.
    #[error("{asked}: the service answers {status}: {body}")]
    Answer {
        /// What was asked.
        asked: String,
        /// HTTP status of the answer.
        status: u16,
        /// The answer's body, as text.
        body: String,
    },
}

impl Target {
    /// Asks the service what it is and makes one infra-env, which it removes again, to see whether there is an image service.
    /// `own_settings`: the suite has started it with its own settings ([`crate::SETTINGS`]). `version`: that of OpenShift for the
    /// clusters of checks; without it the service's default, which not every service tells.
    ///
    /// # Errors
    /// When it does not answer, or not as an assisted-service does.
    pub async fn probe(
        wire: &mut dyn Wire,
        pace: Pace,
        own_settings: bool,
        version: Option<&str>,
        pull_secret: &str,
        run: u64,
    ) -> Result<Self, ProbeError> {
        let version = match version {
            Some(version) => version.to_owned(),
            None => {
                let versions = get(wire, "/openshift-versions").await?;
                let default = |map: &serde_json::Map<String, Value>| {
                    let chosen = map.iter().find(|(_, v)| v["default"] == true).or_else(|| map.iter().next());
                    chosen.map(|(name, _)| name.clone())
                };
                versions.as_object().and_then(default).ok_or(ProbeError::NoVersion)?
            }
        };
        let components = get(wire, "/component-versions").await?;
        let agent_version = components["versions"]["discovery-agent"].as_str().unwrap_or_default().to_owned();
        let monitor = pace.host_monitor.max(pace.cluster_monitor);
        let patience = (monitor * 20).max(PATIENCE) + pace.disconnection.min(SHORT_SILENCE);
        let mut target = Self {
            version,
            release_image: String::new(),
            agent_version,
            pull_secret: pull_secret.to_owned(),
            tick: pace.host_monitor.clamp(Duration::from_millis(100), Duration::from_secs(2)),
            monitor,
            patience,
            patience_for_events: patience,
            run,
            unmet: BTreeMap::new(),
        };
        let mut lacks = |need: Need, why: String| target.unmet.insert(need, why);
        if monitor > QUICK {
            lacks(Need::QuickMonitors, format!("its monitors run every {} s", monitor.as_secs_f64()));
        }
        if monitor > QUICK || pace.disconnection > SHORT_SILENCE {
            let why = format!("a host counts as disconnected after {} s", pace.disconnection.as_secs_f64());
            lacks(Need::ShortDisconnection, why);
        }
        if pace.scaled {
            lacks(Need::RealTimes, "its time profile makes them shorter".to_owned());
        }
        if !own_settings {
            lacks(Need::OwnSettings, "the service is not started by the suite".to_owned());
            lacks(Need::Alone, "the service may have other users".to_owned());
        }
        match target.has_image_service(wire).await? {
            true => target.unmet.insert(Need::NoImageService, "it has an image service".to_owned()),
            false => target.unmet.insert(Need::ImageService, "it runs without an image service".to_owned()),
        };
        Ok(target)
    }

    async fn has_image_service(&self, wire: &mut dyn Wire) -> Result<bool, ProbeError> {
        let name = self.name("probe");
        let body = serde_json::json!({"name": name, "pull_secret": self.pull_secret});
        let request = Request::new(Method::Post, format!("{BASE_PATH}/infra-envs")).json(&body);
        let answer = wire.send(&request).await?;
        if answer.status != 201 {
            return Err(unexpected(&request, &answer));
        }
        let made: Value = answer.decode().unwrap_or_default();
        let path = format!("{BASE_PATH}/infra-envs/{}", made["id"].as_str().unwrap_or_default());
        let url = Request::new(Method::Get, format!("{path}/downloads/image-url"));
        let status = wire.send(&url).await?.status;
        let delete = Request::new(Method::Delete, path);
        let gone = wire.send(&delete).await?;
        if gone.status != 204 {
            return Err(unexpected(&delete, &gone));
        }
        Ok(status == 200)
    }

    /// An id that no other check and no other run has.
    pub(crate) fn id(&self, check: &str, n: u64) -> String {
        let high = u128::from(hash(self.run, check));
        uuid::Uuid::from_u128((high << 64) | u128::from(n)).to_string()
    }

    /// The same for names.
    pub(crate) fn name(&self, check: &str) -> String {
        format!("vc-{:012x}", hash(self.run, check) & 0xffff_ffff_ffff)
    }
}

/// FNV-1a: it only has to tell names apart.
fn hash(run: u64, text: &str) -> u64 {
    let bytes = run.to_le_bytes().into_iter().chain(text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

async fn get(wire: &mut dyn Wire, path: &str) -> Result<Value, ProbeError> {
    let request = Request::new(Method::Get, format!("{BASE_PATH}{path}"));
    let answer = wire.send(&request).await?;
    match (answer.status, answer.decode()) {
        (200, Ok(value)) => Ok(value),
        _ => Err(unexpected(&request, &answer)),
    }
}

fn unexpected(request: &Request, answer: &Response) -> ProbeError {
    ProbeError::Answer {
        asked: format!("{} {}", request.method, request.path),
        status: answer.status,
        body: crate::matcher::shortened(&String::from_utf8_lossy(&answer.body)),
    }
}
