//! The ignition that the discovery image boots with: it starts the agent and points it at the service.

use vlab_api::types::InfraEnv;

use super::ArtifactError;

/// What [`discovery_ignition`] needs.
#[derive(Clone, Copy, Debug)]
pub struct DiscoveryInput<'a> {
    /// The infra-env; proxy, SSH key, NTP sources, trust bundle, override come from it.
    pub infra_env: &'a InfraEnv,
    /// Its pull secret.
    pub pull_secret: &'a str,
    /// Base URL under which hosts reach the service, without the API's path.
    pub service_base_url: &'a str,
    /// Image (and version) of the agent.
    pub agent_image: &'a str,
    /// The agent does not verify the service's certificate.
    pub insecure: bool,
    /// How long systemd lets the agent's preparation (pulling its image) take, in seconds. `AGENT_TIMEOUT_START`.
    pub agent_timeout_start_secs: u64,
    /// Token for the agent, with authentication on.
    pub pull_secret_token: Option<&'a str>,
}

/// The discovery ignition (version 3.1.0), the infra-env's override merged in.
///
/// # Errors
/// When the override is not an Ignition config.
pub fn discovery_ignition(input: &DiscoveryInput<'_>) -> Result<Vec<u8>, ArtifactError> {
    let _ = input;
    unimplemented!("artifacts::discovery_ignition")
}
