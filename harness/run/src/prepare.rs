//! From a scenario and what the user chose beside it to everything that a run needs to know, before anything is started.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vlab_agents::HardwareProfile;
use vlab_agents::profile::ProfileError;
use vlab_api::Timestamp;
use vlab_api::types::HostRole;
use vlab_model::history::{RunInfo, Source};
use vlab_model::settings::{HostTiming, SettingError, Settings};
use vlab_scenario::{Catalogue, HostKind, LoadError, Scenario, ServiceKind};

use vlab_service::core::CoreConfig;

use crate::conductor::Score;

/// Version of the harness.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Above this many hosts single steps are left out of the history: they would be most of it and say little.
const RECORD_STEPS_UP_TO: usize = 100;

/// Service time between two looks of the user where the database is watched.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// What the user chose beside the scenario.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// Seed instead of the scenario's.
    pub seed: Option<u64>,
    /// Time profile instead of the scenario's.
    pub time_profile: Option<String>,
}

/// Everything that a run needs to know.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The scenario.
    pub scenario: Arc<Scenario>,
    /// Seed of the run.
    pub seed: u64,
    /// Name of the time profile.
    pub time_profile: String,
    /// How much faster than `real` the clockwork runs.
    pub clock_scale: f64,
    /// The service's settings.
    pub settings: Settings,
    /// How long things take on hosts.
    pub timing: HostTiming,
    /// Hardware profiles by name.
    pub profiles: BTreeMap<String, Arc<HardwareProfile>>,
    /// Pull secret of the run: well-formed, and good for nothing.
    pub pull_secret: String,
    /// What to call the scenario to run it again: its name where the catalogue has it, else its path.
    pub called: String,
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// It has parts that this version cannot run.
    #[error("{}", .0.join("\n"))]
    NotBuilt(Vec<String>),
    /// The time profile cannot be used.
    #[error("time profile {name:?}: {error}")]
    TimeProfile {
        /// Name.
        name: String,
        /// Cause.
        error: String,
    },
    /// A setting cannot be used.
    #[error("setting of the service: {0}")]
    Setting(#[from] SettingError),
    /// A hardware profile cannot be used.
    #[error("hardware profile {name:?}: {error}")]
    Hardware {
        /// Name.
        name: String,
        /// Cause.
        error: ProfileError,
    },
    /// There is no hardware profile of that name.
    #[error("there is no hardware profile {0:?}")]
    NoHardware(String),
}

impl From<(&str, LoadError)> for PrepareError {
    fn from((name, error): (&str, LoadError)) -> Self {
        PrepareError::TimeProfile { name: name.to_owned(), error: error.to_string().trim().to_owned() }
    }
}

/// Brings together what a run needs to know.
///
/// # Errors
/// [`PrepareError`]; nothing was started.
pub fn prepare(scenario: Scenario, catalogue: &Catalogue, choices: &Choices) -> Result<Prepared, PrepareError> {
    let mut not_built: Vec<String> = scenario.not_built.iter().map(|n| n.diagnostic.clone()).collect();
    // The scenario room tells what of its language cannot run; these two are asked again so that a gap there cannot become
    // a run that silently leaves something out.
    if not_built.is_empty() {
        if scenario.service.kind != ServiceKind::Simulated {
            not_built.push(format!("service kind {} is not built yet", scenario.service.kind));
        }
        if let Some(host) = scenario.hosts.iter().find(|h| h.kind != HostKind::Simulated) {
            not_built.push(format!("host {}: hosts of kind {} are not built yet", host.name, host.kind));
        }
    }
    if !not_built.is_empty() {
        return Err(PrepareError::NotBuilt(not_built));
    }
    let time_profile = choices.time_profile.clone().unwrap_or_else(|| scenario.service.time_profile.clone());
    let profile = catalogue.time_profile(&time_profile).map_err(|e| (time_profile.as_str(), e))?;
    let in_profile = |e: SettingError| PrepareError::TimeProfile { name: time_profile.clone(), error: e.to_string() };
    let mut settings = profile.settings().map_err(in_profile)?;
    settings.apply_vars(scenario.service.settings.iter().map(|(n, v)| (n.as_str(), v.as_str())))?;
    let timing = profile.host_timing().map_err(in_profile)?;
    let mut profiles = BTreeMap::new();
    for host in &scenario.hosts {
        if profiles.contains_key(&host.profile) {
            continue;
        }
        let text =
            catalogue.hardware_profile(&host.profile).ok_or_else(|| PrepareError::NoHardware(host.profile.clone()))?;
        let hardware = HardwareProfile::from_yaml(&text)
            .map_err(|error| PrepareError::Hardware { name: host.profile.clone(), error })?;
        profiles.insert(host.profile.clone(), Arc::new(hardware));
    }
    let seed =
        choices.seed.or(scenario.seed).unwrap_or_else(|| Timestamp::now().as_micros().unsigned_abs() % 1_000_000_007);
    let called = match catalogue.find(&scenario.name) {
        Ok(source) if source.name == scenario.path => scenario.name.clone(),
        _ => scenario.path.clone(),
    };
    Ok(Prepared {
        scenario: Arc::new(scenario),
        called,
        seed,
        clock_scale: profile.clock_scale,
        time_profile,
        settings,
        timing,
        profiles,
        pull_secret: pull_secret(seed),
    })
}

/// A pull secret of the right form for the public registries that the default images come from.
fn pull_secret(seed: u64) -> String {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(1 << 61);
    let password: String =
        (0..24).map(|_| char::from(b"abcdefghijkmnpqrstuvwxyz23456789"[(rng.next_u32() % 32) as usize])).collect();
    let auth = base64::engine::general_purpose::STANDARD.encode(format!("vlab:{password}"));
    let registries = ["cloud.openshift.com", "quay.io", "registry.redhat.io"];
    let auths: Vec<String> =
        registries.iter().map(|r| format!(r#""{r}":{{"auth":"{auth}","email":"vlab@example.com"}}"#)).collect();
    format!(r#"{{"auths":{{{}}}}}"#, auths.join(","))
}

impl Prepared {
    /// The words of the run that must not be written anywhere.
    pub fn secrets(&self) -> Vec<String> {
        vec![self.pull_secret.clone()]
    }

    /// First line of the history.
    pub fn info(&self, run_id: &str, virtual_time: bool, versions: BTreeMap<String, String>) -> RunInfo {
        RunInfo {
            run_id: run_id.to_owned(),
            scenario: self.scenario.name.clone(),
            scenario_path: self.scenario.path.clone(),
            seed: self.seed,
            service: self.scenario.service.kind.to_string(),
            hosts: "simulated".to_owned(),
            time_profile: self.time_profile.clone(),
            virtual_time,
            vlab_version: VERSION.to_owned(),
            versions,
            expected_hosts: self
                .scenario
                .hosts
                .iter()
                .map(|h| (h.name.clone(), h.role))
                .collect::<BTreeMap<String, HostRole>>(),
        }
    }

    /// What a conductor must know. `ingress_pem` is fresh in a real run and fixed in virtual time.
    pub fn score(&self, info: RunInfo, ingress_pem: String) -> Score {
        Score {
            scenario: self.scenario.clone(),
            info,
            profiles: self.profiles.clone(),
            timing: self.timing.clone(),
            clock_scale: self.clock_scale,
            agent_version: self.settings.agent_docker_image.clone(),
            ingress_pem,
            pull_secret: self.pull_secret.clone(),
            state_source: Source::Database,
            look_every: LOOK_EVERY.div_f64(self.clock_scale.max(f64::MIN_POSITIVE)),
            record_steps: self.scenario.report.steps && self.scenario.hosts.len() <= RECORD_STEPS_UP_TO,
        }
    }

    /// What the service's core must know, for a core in this process.
    pub fn core_config(&self, base_url: &str) -> CoreConfig {
        CoreConfig {
            settings: self.settings.clone(),
            seed: self.seed,
            base_url: base_url.to_owned(),
            image_service_url: base_url.to_owned(),
        }
    }

    /// Command that repeats the run.
    pub fn how_to_repeat(&self, verb: &str) -> String {
        let profile = if self.time_profile == self.scenario.service.time_profile {
            String::new()
        } else {
            format!(" --time-profile {}", self.time_profile)
        };
        format!("vlab {verb} {} --seed {}{profile}", self.called, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pull_secret_is_json_and_depends_on_the_seed() {
        let value: serde_json::Value = serde_json::from_str(&pull_secret(1)).unwrap();
        assert!(value["auths"]["quay.io"]["auth"].as_str().unwrap().len() > 20);
        assert_ne!(pull_secret(1), pull_secret(2));
    }
}
