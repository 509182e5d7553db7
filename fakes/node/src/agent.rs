//! The discovery agent: registers this machine with the service, asks for steps and does them.

use std::process::Command;
use std::sync::Once;

use serde_json::json;
use tokio::sync::mpsc;
use uuid::Uuid;
use vlab_agents::{Fleet, FleetConfig, Hands, HostPlan, Work};

use crate::machine::{NodeConfig, Root};
use crate::net::link;
use crate::nmstate::CONNECTIONS;
use crate::shell::{Event, Shell, drive, find_service, in_background, steady_now};
use crate::steps::{self, Site};
use crate::{inventory, medium, say};

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
    medium::keep_program_in_memory(&root);
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
    let plan = HostPlan::real(0, name, host_id, args.infra_env_id, steady_now());
    let fleet = Fleet::new(fleet_config, Vec::new(), vec![plan]);
    // With the addresses the harness finds this host among its machines: it knows their MACs.
    let macs: Vec<String> = link::links().unwrap_or_default().iter().map(|l| l.mac.to_string()).collect();
    let secure_boot = inventory::secure_boot(&root);
    let details = json!({ "host_id": host_id, "macs": macs, "secure_boot": secure_boot, "service": args.url });
    say::moment("agent", "started", &details);

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
            in_background(events, move || {
                // Not before: what makes the connections may run beside the agent, and is through when the service is reached.
                static ONCE: Once = Once::new();
                ONCE.call_once(|| {
                    if let Some((moment, connections)) = network_of_image(&site.root) {
                        say::moment("agent", moment, &json!({ "connections": connections }));
                    }
                });
                let ran = medium::with_medium(&site.root, || steps::run(&site, &step_type, &args));
                Event::Ran(position, serial, ran)
            });
        }
        Work::Reboot => reboot(&site.config, "agent"),
        Work::Got(..) | Work::Job { .. } | Work::Failed(_) => {}
    };
    drive(Shell { part: "agent", service, events, incoming, request_timeout }, fleet, work).await;
    Ok(())
}

/// What became of the static networks in the image, in the words of simulated hosts, and the files that NetworkManager has of
/// them. `None` where there is nothing of the kind: what a minimal ISO has for other machines stays in its initrd.
fn network_of_image(root: &Root) -> Option<(&'static str, Vec<String>)> {
    let mut connections = root.names(CONNECTIONS);
    connections.retain(|name| name.ends_with(".nmconnection"));
    match connections.is_empty() {
        false => Some(("static-network", connections)),
        true => root.has("/etc/assisted/network").then_some(("no-static-network", connections)),
    }
}

/// What `systemctl reboot` does in the end. It would first ask for a logind over D-Bus, of which nothing runs here.
pub(crate) const START_REBOOT: &[&str] = &["--no-block", "--job-mode=replace-irreversibly", "start", "reboot.target"];

/// Reboots the machine.
pub fn reboot(config: &NodeConfig, part: &str) {
    say::moment(part, "reboot-now", &json!({}));
    let command = match config.programs.get("reboot") {
        Some(program) => Command::new(program).status(),
        None => Command::new("systemctl").args(START_REBOOT).status(),
    };
    match command {
        Ok(status) if status.success() => {}
        Ok(status) => say::note(part, &format!("the reboot failed: {status}")),
        Err(e) => say::note(part, &format!("the reboot failed: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::dhcp(&["etc/NetworkManager/system-connections/.keep"], None)]
    #[case::its_own(
        &["etc/assisted/network/host0/eth0.nmconnection", "etc/NetworkManager/system-connections/eth0.nmconnection"],
        Some(("static-network", &["eth0.nmconnection"][..]))
    )]
    #[case::a_minimal_iso(
        &["etc/NetworkManager/system-connections/b.nmconnection", "etc/NetworkManager/system-connections/a.nmconnection"],
        Some(("static-network", &["a.nmconnection", "b.nmconnection"][..]))
    )]
    #[case::of_others(&["etc/assisted/network/host0/eth0.nmconnection"], Some(("no-static-network", &[][..])))]
    fn what_became_of_the_networks_in_the_image(#[case] files: &[&str], #[case] says: Option<(&str, &[&str])>) {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let said = network_of_image(&Root::at(folder.path()));
        let says = says.map(|(moment, names)| (moment, names.iter().map(|name| name.to_string()).collect()));
        assert_eq!(said, says);
    }
}
