//! The discovery agent: registers this machine with the service, asks for steps and does them.

use std::process::Command;

use serde_json::json;
use tokio::sync::mpsc;
use uuid::Uuid;
use vlab_agents::{Fleet, FleetConfig, Hands, HostPlan, Work};
use vlab_api::Timestamp;

use crate::machine::{NodeConfig, Root};
use crate::net::link;
use crate::shell::{Event, drive, find_service, in_background};
use crate::steps::{self, Site};
use crate::{inventory, say};

/// Command line of the agent: that of the real one.
#[derive(Clone, Debug, clap::Args)]
pub struct AgentArgs {
    /// URL of the service, without the API's path
    #[arg(long)]
    pub url: String,
    /// Infra-env whose discovery image this is
    #[arg(long)]
    pub infra_env_id: Uuid,
    /// Image of the agent, which is also its version
    #[arg(long)]
    pub agent_version: String,
    /// Do not verify the service's certificate
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub insecure: bool,
    /// File with further certificates to believe
    #[arg(long)]
    pub cacert: Option<String>,
    /// Seconds between two tries to register
    #[arg(long)]
    pub interval: Option<u64>,
    /// Register under this id instead of the machine's own
    #[arg(long)]
    pub host_id: Option<Uuid>,
    /// Accepted as the real agent's: all output goes to standard error, whatever these say
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", hide = true)]
    pub with_journal_logging: Option<bool>,
    #[expect(missing_docs, reason = "as above")]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", hide = true)]
    pub with_text_logging: Option<bool>,
    #[expect(missing_docs, reason = "as above")]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", hide = true)]
    pub with_stdout_logging: Option<bool>,
}

/// Runs the agent until the machine goes down.
///
/// # Errors
/// When the configuration or the URL cannot be used; words for people.
pub async fn agent(args: AgentArgs) -> Result<(), String> {
    let config = NodeConfig::load().map_err(|e| e.to_string())?;
    let root = Root::of_this_machine();
    let host_id = args.host_id.unwrap_or_else(|| inventory::host_id(&root));
    let service = find_service("agent", &args.url).await.map_err(|e| e.to_string())?;
    let mut timing = config.timing.clone();
    if let Some(seconds) = args.interval {
        timing.registration_retry = std::time::Duration::from_secs(seconds);
    }
    let request_timeout = timing.request_timeout;
    let mut fleet_config = FleetConfig::new(config.seed, timing, args.agent_version.as_str());
    fleet_config.hands = Hands::Real;
    // Empty when there is none: the header is sent all the same.
    fleet_config.secret_key = std::env::var("PULL_SECRET_TOKEN").unwrap_or_default().into();
    let name = root.text("/proc/sys/kernel/hostname").unwrap_or_default();
    let plan = HostPlan::real(0, name, host_id, args.infra_env_id, Timestamp::now());
    let fleet = Fleet::new(fleet_config, Vec::new(), vec![plan]);
    // With the addresses the harness finds this host among its machines: it knows their MACs.
    let macs: Vec<String> = link::links().unwrap_or_default().iter().map(|l| l.mac.to_string()).collect();
    say::moment("agent", "started", &json!({ "host_id": host_id, "macs": macs, "service": args.url }));

    let (events, incoming) = mpsc::unbounded_channel();
    let site = Site {
        root,
        config,
        service: args.url,
        agent_version: args.agent_version,
        runtime: tokio::runtime::Handle::current(),
    };
    let work = move |position: usize, work: Work, events: &crate::shell::Events| match work {
        Work::Step { serial, step_type, args } => {
            let site = site.clone();
            in_background(events, move || Event::Ran(position, serial, steps::run(&site, &step_type, &args)));
        }
        Work::Reboot => reboot(&site.config, "agent"),
        Work::Got(..) | Work::Job { .. } | Work::Failed(_) => {}
    };
    drive("agent", fleet, service, events, incoming, request_timeout, work).await;
    Ok(())
}

/// Reboots the machine.
pub fn reboot(config: &NodeConfig, part: &str) {
    say::moment(part, "reboot-now", &json!({}));
    let command = match config.programs.get("reboot") {
        Some(program) => Command::new(program).status(),
        // What `systemctl reboot` does in the end. It would first ask for a logind over D-Bus, of which nothing runs here.
        None => Command::new("systemctl")
            .args(["--no-block", "--job-mode=replace-irreversibly", "start", "reboot.target"])
            .status(),
    };
    match command {
        Ok(status) if status.success() => {}
        Ok(status) => say::note(part, &format!("the reboot failed: {status}")),
        Err(e) => say::note(part, &format!("the reboot failed: {e}")),
    }
}
