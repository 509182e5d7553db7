//! What a scenario has that only one of the two doors of the service can do: its REST API, or Kubernetes.

use vlab_scenario::{Action, ActionKind, Host, Moment, Need, Scenario, Seen, moment_words};
use vlab_service::kube::is_converged;

use super::HubChoice;
use crate::target::Target;

/// What of a scenario there is only on a hub.
pub(super) fn not_over_rest(scenario: &Scenario) -> Option<String> {
    let leave_out = "a hub has it, and REST was asked for: leave `--api rest` out";
    if scenario.needs.contains(&Need::Kube) {
        let why = "it needs `kube`: what it is about there is only where the service's controllers act on resources; ask with `--api kube`";
        return Some(why.to_owned());
    }
    if let Some(fault) = scenario.faults.iter().find(|fault| fault.row().needs_hub()) {
        return Some(format!("line {}: the fault {} ({}): {leave_out}", fault.line, fault.name, fault.word()));
    }
    if let Some(action) = scenario.actions.iter().find(|action| action.kind.needs_hub()) {
        return Some(format!("line {}: the action {}: {leave_out}", action.line, action.kind));
    }
    if let Some(host) = scenario.hosts.iter().find(|host| host.bare_metal_host) {
        return Some(format!("the group {} with `bare_metal_host`: {leave_out}", host.group));
    }
    let of_resources =
        |moment: &&Moment| matches!(moment.seen, Seen::Condition { .. } | Seen::Resource { .. } | Seen::Held { .. });
    scenario.moments().find(of_resources).map(|moment| format!("{}: {leave_out}", moment_words(moment)))
}

/// What of a scenario has no form as resources, or is not built for them.
pub(super) fn not_over_kube(target: &Target, scenario: &Scenario, hub: &HubChoice) -> Option<String> {
    let machines = scenario.hosts.iter().any(Host::is_machine);
    let why = match (target, hub) {
        (_, HubChoice::Existing(_)) if machines => Some(
            "virtual machines on a hub that is there are not built: their images name addresses of the hub's own: use `--hosts sim`",
        ),
        (_, HubChoice::Existing(_)) if scenario.hosts.iter().any(|host| host.bare_metal_host) => Some(
            "nobody on a hub that is there switches the lab's hosts on: leave `bare_metal_host` out, or use a hub of the run",
        ),
        (Target::Remote { .. }, HubChoice::Existing(_))
        | (Target::Simulated | Target::Process { .. }, HubChoice::Ours | HubChoice::Assets(_)) => None,
        (Target::Container { .. }, HubChoice::Assets(_)) => {
            Some("a service in a container reaches the lab's own API server only: leave `--hub-assets` out")
        }
        (Target::Container { .. }, HubChoice::Ours) if machines => {
            Some("virtual machines with a service in a container are not built over Kubernetes: use `--hosts sim`")
        }
        (Target::Container { .. }, HubChoice::Ours) => None,
        (_, HubChoice::Existing(_)) => Some(
            "a hub that is there has a service of its own: name the address where hosts reach it, `--service remote:http://HOST:PORT`",
        ),
        (Target::Remote { .. }, _) => Some(
            "over Kubernetes a service that runs already is asked through its hub: name that with `--kubeconfig FILE`, or use `--api rest`",
        ),
    };
    if let Some(why) = why {
        return Some(why.to_owned());
    }
    let converged = scenario.baremetal_operator.as_deref().is_some_and(is_converged);
    if let Some(host) = scenario.hosts.iter().find(|host| machines && converged && host.bare_metal_host) {
        return Some(format!(
            "the group {} with `bare_metal_host`: metal3's agent, which starts the service's in the converged flow, is played for simulated \
             hosts only: use `--hosts sim`, or an operator before 4.12",
            host.group
        ));
    }
    if scenario.baremetal_operator.is_some() && hub.existing().is_some() {
        let why = "a hub that is there has its own operators: leave `baremetal_operator` out, or use a hub of the run";
        return Some(why.to_owned());
    }
    if let Some(fault) = scenario.faults.iter().find(|fault| *hub != HubChoice::Ours && fault.row().needs_hub()) {
        return Some(format!(
            "line {}: the fault {} ({}): only the lab's own API server does something wrong on purpose: leave{} out",
            fault.line,
            fault.name,
            fault.word(),
            hub.option()
        ));
    }
    if let Some(host) = scenario.hosts.iter().find(|host| host.day2 && *hub != HubChoice::Ours) {
        return Some(format!(
            "{} is added on day 2: the service's controllers follow it in the API server of its cluster, which simulated hosts have \
             on the lab's own API server only: leave{} out",
            host.name,
            hub.option()
        ));
    }
    if let Some(cluster) = scenario.clusters.iter().find(|cluster| cluster.vip_dhcp_allocation) {
        let name = &cluster.name;
        return Some(format!("cluster {name} leases its VIPs by DHCP, for which an AgentClusterInstall has no member"));
    }
    if scenario.needs.contains(&Need::Rest) {
        let why = "it needs `rest`: its user acts where the service's controllers act by themselves, or says what no resource can hold";
        return Some(why.to_owned());
    }
    let formless = scenario.actions.iter().find_map(|action| Some((action, action.kind.without_resources()?)));
    if let Some((action, why)) = formless {
        return Some(format!("line {}: `{}` has no form over Kubernetes: {why}", action.line, action.kind));
    }
    if !scenario.infra_env.params.is_empty() {
        return Some("`params` of the infra-env are said in the words of the REST API".to_owned());
    }
    if let Some(cluster) = scenario.clusters.iter().find(|cluster| !cluster.params.is_empty()) {
        return Some(format!("`params` of the cluster {} are said in the words of the REST API", cluster.name));
    }
    let refused = scenario.actions.iter().find(|action| action.refused.is_some());
    if let Some(action) = refused {
        return Some(format!(
            "line {}: `{}` is to be refused by the REST API; over Kubernetes a refusal is a condition of the resource",
            action.line, action.kind
        ));
    }
    // What reclaims an installed host is a pod in its cluster, and the clusters of machines run none.
    let is_machine = |name: &String| scenario.host(name).is_some_and(Host::is_machine);
    let taken_out = |action: &&Action| action.kind == ActionKind::Unbind && action.hosts.iter().any(is_machine);
    if let Some(action) = scenario.actions.iter().find(taken_out) {
        return Some(format!(
            "line {}: `{}` of a virtual machine: over Kubernetes a pod in its cluster reclaims it, and clusters of machines run no pods; \
             `--hosts sim` runs it, and so does `--api rest`",
            action.line, action.kind
        ));
    }
    scenario.infra_env.refused.map(|status| {
        format!("the infra-env is to be refused with {status} by the REST API; over Kubernetes that is a condition")
    })
}

#[cfg(test)]
mod tests {
    use vlab_scenario::{Catalogue, HostKind};

    use super::super::{Choices, Nowhere, prepare};
    use super::*;

    #[test]
    fn a_machine_is_not_reclaimed_over_kubernetes() {
        let catalogue = Catalogue::embedded();
        let with = |kind| {
            let text = "version: 1\nname: t\napi: kube\ncluster: {topology: sno}\nhosts: [{name: n, cluster: none}]\n\
                        actions:\n- {do: bind, host: n-0, at: 5m}\n- {do: unbind, host: n-0, at: 5h}\n";
            let scenario = vlab_scenario::load(&vlab_scenario::SourceFile::new("t.yaml", text), &catalogue).unwrap();
            prepare(scenario, &catalogue, &Choices { hosts: Some(kind), ..Choices::default() }, &Nowhere).map(drop)
        };
        assert!(with(HostKind::Simulated).is_ok());
        let refused = with(HostKind::Vm).unwrap_err().to_string();
        assert!(refused.contains("line 8: `unbind` of a virtual machine"), "{refused}");
    }

    #[test]
    fn metal3s_agent_is_not_on_machines() {
        let catalogue = Catalogue::embedded();
        let with = |kind, version: &str| {
            let text = format!(
                "version: 1\nname: t\napi: kube\nhub: {{baremetal_operator: {version}}}\ncluster: {{topology: sno}}\n\
                 hosts: [{{name: n, bare_metal_host: true}}]\nexpect: [{{eventually: {{hosts: all, status: installed}}}}]\n"
            );
            let scenario = vlab_scenario::load(&vlab_scenario::SourceFile::new("t.yaml", text), &catalogue).unwrap();
            prepare(scenario, &catalogue, &Choices { hosts: Some(kind), ..Choices::default() }, &Nowhere).map(drop)
        };
        assert!(with(HostKind::Simulated, "4.20.0").is_ok());
        assert!(with(HostKind::Vm, "4.11.0").is_ok());
        let refused = with(HostKind::Vm, "4.20.0").unwrap_err().to_string();
        assert!(refused.contains("the group n with `bare_metal_host`: metal3's agent"), "{refused}");
    }

    #[test]
    fn hosts_are_added_on_the_labs_own_hub_only() {
        let text = "version: 1\nname: t\napi: kube\ncluster: {topology: sno}\nhosts: [{name: n}, {name: more, role: worker, day2: true}]\n\
                    actions: [{do: allow-add-hosts, after: {cluster: t, status: installed}}]\n";
        let source = vlab_scenario::SourceFile::new("t.yaml", text);
        let scenario = vlab_scenario::load(&source, &Catalogue::embedded()).unwrap();
        assert_eq!(not_over_kube(&Target::Simulated, &scenario, &HubChoice::Ours), None);
        let why = not_over_kube(&Target::Simulated, &scenario, &HubChoice::Assets("bin".into())).unwrap();
        assert!(why.contains("more-0 is added on day 2") && why.contains("--hub-assets"), "{why}");
    }
}
