//! The user's part where the service is asked over Kubernetes: what a person would apply, and what they look at.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use vlab_api::http::{Method, Request};
use vlab_api::types::PlatformType;
use vlab_service::kube::{INFRA_ENV_LABEL, Kind};

use super::*;

/// The namespace of the pool's resources.
pub const POOL: &str = "pool";
/// Label of the NMStateConfigs of an infra-env.
const NETWORKS_LABEL: &str = "vlab-infra-env";
/// Annotations of a BareMetalHost that become its Agent's.
const HOSTNAME: &str = "bmac.agent-install.openshift.io/hostname";
const ROLE: &str = "bmac.agent-install.openshift.io/role";
/// Wall time between two looks at a resource that is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A resource that says at so many looks in a row that it is wrong must be changed. Before that the controllers may not have seen what it
/// needs, though it is there.
const LOOKS_THAT_ARE_WRONG: u32 = 30;

/// What the user knows beside the scenario to apply resources.
#[derive(Clone, Debug, Default)]
pub struct KubeUser {
    /// Versions of the releases that the service knows, and their images.
    pub releases: Vec<(String, String)>,
    /// A label that what is applied beside namespaces, and namespaces themselves, get: its name and value. By it they are found again on a
    /// hub that is somebody's.
    pub label: Option<(String, String)>,
}

/// A resource to apply.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Apply {
    kind: Kind,
    namespace: String,
    object: Value,
}

/// How AgentClusterInstalls call a platform.
fn platform_word(platform: PlatformType) -> &'static str {
    match platform {
        PlatformType::Baremetal => "BareMetal",
        PlatformType::None => "None",
        PlatformType::Vsphere => "VSphere",
        PlatformType::Nutanix => "Nutanix",
        PlatformType::External => "External",
    }
}

/// What the user writes has no member that the kind has not: who mistypes one is told, instead of waiting for what never comes.
fn strictly(path: &str) -> String {
    let with = if path.contains('?') { '&' } else { '?' };
    format!("{path}{with}fieldValidation=Strict")
}

fn merge(path: String, patch: &Value) -> Request {
    let mut request = Request::new(Method::Patch, strictly(&path));
    request.body = patch.to_string().into();
    request.header("content-type", "application/merge-patch+json")
}

impl User {
    pub(super) fn is_kube(&self) -> bool {
        self.config.kube.is_some()
    }

    /// What is applied at the beginning, in the order of a person.
    pub(super) fn kube_todo(&self) -> VecDeque<UserTask> {
        let mut todo = VecDeque::new();
        let of_clusters = (0..self.scenario.clusters.len()).map(Whose::Cluster);
        for whose in of_clusters.chain(self.pool()) {
            todo.push_back(UserTask::Namespace(self.namespace(whose)));
            todo.extend(self.resources(whose).into_iter().map(|apply| UserTask::Apply(Box::new(apply))));
            if matches!(whose, Whose::Cluster(_)) {
                todo.push_back(UserTask::AwaitCluster(whose));
            }
        }
        todo.extend(self.bootable_now());
        todo
    }

    fn pool(&self) -> Option<Whose> {
        self.scenario.hosts.iter().any(|h| h.cluster.is_none()).then_some(Whose::Pool)
    }

    /// The pool, when every cluster has its row. Hosts boot only then, from the image of a cluster's infra-env after that cluster has its row: the
    /// names that they see in the DNS are those of a cluster that is known.
    fn bootable_now(&self) -> Option<UserTask> {
        let known = self.clusters.iter().all(|cluster| cluster.id.is_some());
        self.pool().filter(|_| known).map(UserTask::AwaitInfraEnv)
    }

    /// Namespace and name of that cluster's resources, or of the pool's.
    fn namespace(&self, whose: Whose) -> String {
        match whose {
            Whose::Pool => POOL.to_owned(),
            Whose::Cluster(index) => self.scenario.clusters[index].name.clone(),
        }
    }

    /// Gives an object of no namespace the run's label, where there is one.
    fn label(&self, object: &mut Value) {
        if let Some((name, value)) = self.config.kube.as_ref().and_then(|kube| kube.label.as_ref()) {
            object["metadata"]["labels"][name] = json!(value);
        }
    }

    fn resource(&self, kind: Kind, whose: Whose, name: &str, rest: Value) -> Apply {
        let namespace = self.namespace(whose);
        let mut object = json!({ "apiVersion": kind.api_version(), "kind": kind.name(), "metadata": { "name": name } });
        if kind.is_namespaced() {
            object["metadata"]["namespace"] = json!(namespace);
        } else {
            self.label(&mut object);
        }
        if let (Some(members), Value::Object(rest)) = (object.as_object_mut(), rest) {
            members.extend(rest);
        }
        Apply { kind, namespace, object }
    }

    fn resources(&self, whose: Whose) -> Vec<Apply> {
        let name = self.namespace(whose);
        let data = json!({ ".dockerconfigjson": STANDARD.encode(&self.config.pull_secret) });
        let secret = json!({ "type": "kubernetes.io/dockerconfigjson", "data": data });
        let mut all = vec![self.resource(Kind::Secret, whose, "pull-secret", secret)];
        if let Whose::Cluster(index) = whose {
            let version = &self.scenario.clusters[index].openshift_version;
            let image = self.release_image(version);
            let set = format!("openshift-{version}");
            all.push(self.resource(Kind::ClusterImageSet, whose, &set, json!({ "spec": { "releaseImage": image } })));
            all.push(self.resource(Kind::ClusterDeployment, whose, &name, self.cluster_deployment(index)));
            all.push(self.resource(Kind::AgentClusterInstall, whose, &name, self.cluster_install(index, &set)));
        }
        let networks = self.networks(whose);
        for (at, network) in networks.iter().enumerate() {
            let interfaces: Vec<Value> = network
                .mac_interface_map
                .iter()
                .flatten()
                .map(|i| json!({ "name": i.logical_nic_name, "macAddress": i.mac_address }))
                .collect();
            let text = network.network_yaml.as_deref().unwrap_or_default();
            let config: Value = serde_yaml::from_str(text).unwrap_or(Value::Null);
            let mut apply = self.resource(
                Kind::NMStateConfig,
                whose,
                &format!("{name}-{at}"),
                json!({ "spec": { "config": config, "interfaces": interfaces } }),
            );
            apply.object["metadata"]["labels"] = json!({ NETWORKS_LABEL: name });
            all.push(apply);
        }
        all.push(self.resource(Kind::InfraEnv, whose, &name, self.infra_env(whose, !networks.is_empty())));
        all.extend(self.members_of(whose).filter(|host| !host.day2).filter_map(|host| self.bare_metal_host(host)));
        all
    }

    pub(super) fn members_of(&self, whose: Whose) -> impl Iterator<Item = &vlab_scenario::Host> {
        let name = match whose {
            Whose::Pool => None,
            Whose::Cluster(index) => Some(self.scenario.clusters[index].name.as_str()),
        };
        self.members.of(name).iter().map(|index| &self.scenario.hosts[*index])
    }

    /// How the user describes a host; nothing when the scenario does not want that.
    fn bare_metal_host(&self, host: &vlab_scenario::Host) -> Option<Apply> {
        let mac = self.config.macs.get(host.index).filter(|_| host.bare_metal_host)?;
        let whose = match &host.cluster {
            Some(name) => Whose::Cluster(self.members.cluster(name)?),
            None => Whose::Pool,
        };
        let spec = json!({ "bootMACAddress": mac, "online": true, "automatedCleaningMode": "disabled" });
        let mut apply = self.resource(Kind::BareMetalHost, whose, &host.name, json!({ "spec": spec }));
        let metadata = &mut apply.object["metadata"];
        metadata["labels"] = json!({ INFRA_ENV_LABEL: self.namespace(whose) });
        metadata["annotations"] = json!({ HOSTNAME: host.name });
        if host.role != HostRole::AutoAssign {
            metadata["annotations"][ROLE] = json!(host.role);
        }
        Some(apply)
    }

    /// The BareMetalHosts of a cluster's hosts that come on day 2.
    pub(super) fn describe_more(&mut self, index: usize) {
        let more: Vec<Apply> = self
            .members_of(Whose::Cluster(index))
            .filter(|host| host.day2)
            .filter_map(|host| self.bare_metal_host(host))
            .collect();
        self.todo.extend(more.into_iter().map(|apply| UserTask::Apply(Box::new(apply))));
    }

    /// A BareMetalHost was changed: is its host to be switched on?
    pub(super) fn bare_metal_host_changed(&mut self, name: &str) {
        let index = self.members.host(name).filter(|index| self.scenario.hosts[*index].bare_metal_host);
        let task = index.map(|host| UserTask::LookAtBareMetalHost { host });
        self.todo.extend(task.filter(|task| !self.todo.contains(task)));
    }

    /// A node is ready: one that joined an installed cluster joins it over Kubernetes, too.
    pub(super) fn node_is_up(&mut self, host: Uuid) {
        let index = self.hosts.iter().position(|known| known.id == host).filter(|_| self.is_kube());
        let task = index.filter(|index| self.scenario.hosts[*index].day2).map(|host| UserTask::NodeIsUp { host });
        self.todo.extend(task);
    }

    /// The newest release of that version.
    fn release_image(&self, version: &str) -> String {
        let parts = |v: &str| v.split(['.', '-']).map(|p| p.parse::<u64>().unwrap_or(0)).collect::<Vec<_>>();
        let releases = self.config.kube.iter().flat_map(|kube| &kube.releases);
        let fits = |v: &str| v == version || v.starts_with(&format!("{version}."));
        let newest = releases.filter(|(v, _)| fits(v)).max_by_key(|(v, _)| parts(v));
        newest.map_or_else(|| format!("no-release-of-{version}"), |(_, image)| image.clone())
    }

    fn cluster_deployment(&self, index: usize) -> Value {
        let cluster = &self.scenario.clusters[index];
        json!({ "spec": {
            "baseDomain": cluster.base_domain, "clusterName": cluster.name,
            "platform": { "agentBareMetal": { "agentSelector": {} } },
            "pullSecretRef": { "name": "pull-secret" },
            "clusterInstallRef": {
                "group": "extensions.hive.openshift.io", "version": "v1beta1", "kind": "AgentClusterInstall",
                "name": cluster.name,
            },
        } })
    }

    fn cluster_install(&self, index: usize, image_set: &str) -> Value {
        let cluster = &self.scenario.clusters[index];
        let params = self.cluster_params(index);
        let of_cluster = |h: &&vlab_scenario::Host| {
            !h.day2 && (h.cluster.as_ref() == Some(&cluster.name) || h.bound_to.contains(&cluster.name))
        };
        let members = self.scenario.hosts.iter().filter(of_cluster);
        let arbiters = members.clone().filter(|h| h.role == HostRole::Arbiter).count();
        let masters = cluster.control_plane_count as usize;
        let workers = members.count().saturating_sub(masters + arbiters);
        let networks: Vec<Value> = params
            .cluster_networks
            .iter()
            .flatten()
            .map(|n| json!({ "cidr": n.cidr, "hostPrefix": n.host_prefix }))
            .collect();
        let services: Vec<Value> = params.service_networks.iter().flatten().map(|n| json!(n.cidr)).collect();
        let mut spec = json!({
            "clusterDeploymentRef": { "name": cluster.name },
            "imageSetRef": { "name": image_set },
            "provisionRequirements": {
                "controlPlaneAgents": masters, "workerAgents": workers, "arbiterAgents": arbiters,
            },
            "networking": { "clusterNetwork": networks, "serviceNetwork": services },
        });
        if let Some(machine) = &params.machine_networks {
            let machine: Vec<Value> = machine.iter().map(|n| json!({ "cidr": n.cidr })).collect();
            spec["networking"]["machineNetwork"] = json!(machine);
        }
        if let Some(umn) = params.user_managed_networking {
            spec["networking"]["userManagedNetworking"] = json!(umn);
        }
        if let Some(platform) = &params.platform {
            spec["platformType"] = json!(platform_word(platform.type_));
        }
        let ips = |list: Vec<Option<String>>| json!(list.into_iter().flatten().collect::<Vec<_>>());
        if let Some(vips) = params.api_vips.filter(|vips| !vips.is_empty()) {
            spec["apiVIPs"] = ips(vips.into_iter().map(|v| v.ip).collect());
        }
        if let Some(vips) = params.ingress_vips.filter(|vips| !vips.is_empty()) {
            spec["ingressVIPs"] = ips(vips.into_iter().map(|v| v.ip).collect());
        }
        if let Some(key) = params.ssh_public_key {
            spec["sshPublicKey"] = json!(key);
        }
        if cluster.install != InstallMode::Auto {
            spec["holdInstallation"] = json!(true);
        }
        json!({ "spec": spec })
    }

    fn infra_env(&self, whose: Whose, networks: bool) -> Value {
        let params = self.infra_env_params(whose);
        let mut spec = json!({
            "pullSecretRef": { "name": "pull-secret" }, "cpuArchitecture": params.cpu_architecture,
            "imageType": params.image_type,
        });
        if let Whose::Cluster(index) = whose {
            let cluster = &self.scenario.clusters[index];
            spec["clusterRef"] = json!({ "name": cluster.name, "namespace": cluster.name });
            if let (None, Some(source)) = (&params.additional_ntp_sources, &cluster.additional_ntp_source) {
                spec["additionalNTPSources"] = json!(source.split(',').collect::<Vec<_>>());
            }
        }
        if let Some(sources) = &params.additional_ntp_sources {
            spec["additionalNTPSources"] = json!(sources.split(',').collect::<Vec<_>>());
        }
        if let Some(key) = params.ssh_authorized_key {
            spec["sshAuthorizedKey"] = json!(key);
        }
        let arguments: Vec<Value> = params
            .kernel_arguments
            .iter()
            .flatten()
            .map(|a| json!({ "operation": a.operation, "value": a.value }))
            .collect();
        if !arguments.is_empty() {
            spec["kernelArguments"] = json!(arguments);
        }
        if networks {
            let name = self.namespace(whose);
            spec["nmStateConfigLabelSelector"] = json!({ "matchLabels": { NETWORKS_LABEL: name } });
        }
        json!({ "spec": spec })
    }

    /// Where the Agent of a host is: in the namespace of the InfraEnv that it booted from.
    fn agent_path(&self, host: usize) -> String {
        let namespace = match self.scenario.hosts[host].cluster.as_deref() {
            Some(name) => name.to_owned(),
            None => self.namespace(Whose::Pool),
        };
        Kind::Agent.path_of(&format!("{namespace}/{}", self.hosts[host].id))
    }

    /// Where a resource is that is called as its host.
    fn described_path(&self, kind: Kind, host: usize) -> String {
        let host = &self.scenario.hosts[host];
        let namespace = host.cluster.as_deref().unwrap_or(POOL);
        kind.path_of(&format!("{namespace}/{}", host.name))
    }

    /// The request of a task; nothing for tasks that are the same over both doors.
    pub(super) fn kube_request(&self, task: &UserTask) -> Option<Request> {
        let at = |kind: Kind, whose: Whose| {
            let name = self.namespace(whose);
            Request::new(Method::Get, kind.path_of(&format!("{name}/{name}")))
        };
        Some(match task {
            UserTask::Namespace(name) => {
                let mut object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
                self.label(&mut object);
                Request::new(Method::Post, strictly("/api/v1/namespaces")).json(&object)
            }
            UserTask::Apply(apply) => {
                Request::new(Method::Post, strictly(&apply.kind.path_in(&apply.namespace))).json(&apply.object)
            }
            UserTask::AwaitCluster(whose) => at(Kind::AgentClusterInstall, *whose),
            UserTask::AwaitInfraEnv(whose) => at(Kind::InfraEnv, *whose),
            UserTask::LookAtBareMetalHost { host } => {
                Request::new(Method::Get, self.described_path(Kind::BareMetalHost, *host))
            }
            UserTask::Approve { host } => merge(self.agent_path(*host), &self.approval(*host)),
            UserTask::NodeIsUp { host } => {
                let (cluster, id) =
                    (self.scenario.hosts[*host].cluster.as_deref().unwrap_or_default(), self.hosts[*host].id);
                let server = vlab_service::kube::server_of_cluster("", &format!("{cluster}/{cluster}"));
                let lease = vlab_service::kube::lease_of_node(&id.to_string());
                Request::new(Method::Post, format!("{server}{}", lease.0)).json(&lease.1)
            }
            UserTask::Action(index, host) => self.kube_action(*index, *host)?,
            _ => return None,
        })
    }

    /// The patch that approves the Agent of a host, with the role that the scenario gives it.
    fn approval(&self, host: usize) -> Value {
        let mut spec = json!({ "approved": true });
        let planned = &self.scenario.hosts[host];
        if planned.role != HostRole::AutoAssign {
            spec["role"] = json!(planned.role);
        }
        json!({ "spec": spec })
    }

    fn kube_action(&self, index: usize, host: Option<usize>) -> Option<Request> {
        let action = &self.scenario.actions[index];
        let cluster = action.cluster.as_deref().unwrap_or_default();
        let install = Kind::AgentClusterInstall.path_of(&format!("{cluster}/{cluster}"));
        let agent = host.map(|host| self.agent_path(host));
        let described = host.map(|host| self.described_path(Kind::BareMetalHost, host));
        let image = host.map(|host| self.described_path(Kind::PreprovisioningImage, host));
        let ips = |ips: &[std::net::IpAddr]| ips.iter().map(|ip| ip.to_string()).collect::<Vec<_>>();
        let spec = |spec: Value| json!({ "spec": spec });
        Some(match action.kind {
            ActionKind::Install => merge(install, &spec(json!({ "holdInstallation": false }))),
            ActionKind::SetVips => {
                let vips = json!({ "apiVIPs": ips(&action.api_vips), "ingressVIPs": ips(&action.ingress_vips) });
                merge(install, &spec(vips))
            }
            ActionKind::PatchHost => {
                let mut members = json!({});
                if let Some(role) = action.role {
                    members["role"] = json!(role);
                }
                if let Some(hostname) = &action.hostname {
                    members["hostname"] = json!(hostname);
                }
                merge(agent?, &spec(members))
            }
            ActionKind::DeleteHost => Request::new(Method::Delete, agent?),
            ActionKind::Bind => {
                let name = json!({ "name": cluster, "namespace": cluster });
                merge(agent?, &spec(json!({ "clusterDeploymentName": name })))
            }
            ActionKind::Unbind => merge(agent?, &spec(json!({ "clusterDeploymentName": null }))),
            ActionKind::InstallHost => merge(agent?, &spec(json!({ "approved": true }))),
            // The controllers do it by themselves once the cluster is installed; there is nothing to apply.
            ActionKind::AllowAddHosts => {
                Request::new(Method::Get, Kind::ClusterDeployment.path_of(&format!("{cluster}/{cluster}")))
            }
            ActionKind::ApplyResource => {
                let kind = Kind::of(action.resource?.as_str())?;
                let mut object = action.object.clone()?;
                object["apiVersion"] = json!(kind.api_version());
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or(cluster).to_owned();
                if kind.is_namespaced() {
                    object["metadata"]["namespace"] = json!(namespace);
                }
                let name = object["metadata"]["name"].as_str()?;
                let key = if kind.is_namespaced() { format!("{namespace}/{name}") } else { name.to_owned() };
                let path = format!("{}?fieldManager=vlab&force=true", kind.path_of(&key));
                let mut request = Request::new(Method::Patch, strictly(&path));
                request.body = object.to_string().into();
                request.header("content-type", "application/apply-patch+yaml")
            }
            ActionKind::Approve => merge(agent?, &self.approval(host?)),
            ActionKind::PatchResource | ActionKind::Annotate => {
                merge(self.resource_path(action, cluster, [agent, described, image])?, action.object.as_ref()?)
            }
            ActionKind::DeleteResource => {
                Request::new(Method::Delete, self.resource_path(action, cluster, [agent, described, image])?)
            }
            // Refused when the run was prepared.
            ActionKind::Cancel | ActionKind::Reset | ActionKind::BootDiscovery | ActionKind::Request => return None,
        })
    }

    /// Where the resource of a host or a cluster is that an action is about.
    fn resource_path(
        &self,
        action: &vlab_scenario::Action,
        cluster: &str,
        [agent, described, image]: [Option<String>; 3],
    ) -> Option<String> {
        match Kind::of(action.resource?.as_str())? {
            Kind::Agent => agent,
            Kind::BareMetalHost => described,
            Kind::PreprovisioningImage => image,
            kind => Some(kind.path_of(&format!("{cluster}/{cluster}"))),
        }
    }

    /// A host is there: it is approved, with the role that the scenario gives it; once.
    pub(super) fn want_approval(&mut self, index: usize) {
        // Where hosts of day 2 are installed one by one, each is approved when it is its turn.
        let one_by_one = self.scenario.actions.iter().any(|action| action.kind == ActionKind::InstallHost);
        let host = &self.hosts[index];
        // The controllers approve what a BareMetalHost describes.
        let described = self.scenario.hosts[index].bare_metal_host;
        // Whom the scenario approves, nobody else does.
        let name = &self.scenario.hosts[index].name;
        let by_action = self
            .scenario
            .actions
            .iter()
            .any(|action| action.kind == ActionKind::Approve && action.hosts.contains(name));
        if host.role_set
            || !host.registered
            || described
            || by_action
            || (one_by_one && self.scenario.hosts[index].day2)
        {
            return;
        }
        self.hosts[index].role_set = true;
        self.todo.push_back(UserTask::Approve { host: index });
    }

    /// Takes in the answer to a task that only Kubernetes has; gives back those that are the same over both doors.
    pub(super) fn kube_acted(&mut self, now: Timestamp, task: UserTask, reply: Reply) -> Option<(UserTask, Reply)> {
        match &task {
            UserTask::Namespace(_) | UserTask::Apply(_) => {
                let (status, reason) = said(&reply);
                if status == 0 || status >= 500 {
                    self.later.push((now + LOOK_AGAIN, task));
                } else if !matches!(status, 200..=299 | 409) {
                    self.fatal.get_or_insert_with(|| format!("apply: {status}: {reason}"));
                }
            }
            UserTask::AwaitCluster(whose) | UserTask::AwaitInfraEnv(whose) => {
                let cluster = matches!(task, UserTask::AwaitCluster(_));
                let object: Value = reply.result.ok().and_then(|response| response.decode().ok()).unwrap_or_default();
                match self.found(*whose, cluster, &object) {
                    Some(()) => {}
                    None => self.later.push((now + LOOK_AGAIN, task)),
                }
            }
            UserTask::LookAtBareMetalHost { host } => {
                let (code, _) = said(&reply);
                if code == 0 || code >= 500 {
                    self.later.push((now + LOOK_AGAIN, task));
                    return None;
                }
                let object: Value = reply.result.ok().and_then(|response| response.decode().ok()).unwrap_or_default();
                let status = &object["status"];
                // Where metal3 deploys it, the host runs before that is done.
                let state = &status["provisioning"]["state"];
                let runs = match object["spec"]["customDeploy"].is_object() {
                    true => *state == "provisioning" || *state == "provisioned",
                    false => {
                        let url = object["spec"]["image"]["url"].as_str();
                        url.is_some_and(|url| !url.is_empty()) && *state == "provisioned"
                    }
                };
                let on = runs && status["poweredOn"] == true;
                if on && !std::mem::replace(&mut self.hosts[*host].powered, true) {
                    self.powered.push(*host);
                }
            }
            UserTask::NodeIsUp { .. } => {
                // A hub that is not the lab's has no such server, and nobody plays nodes there.
                let (status, _) = said(&reply);
                if status == 0 || status >= 500 {
                    self.later.push((now + LOOK_AGAIN, task));
                }
            }
            UserTask::Approve { host } => {
                let (status, reason) = said(&reply);
                if !(200..=299).contains(&status) {
                    // The Agent comes a moment after its host.
                    self.later.push((now + LOOK_AGAIN, task));
                    return None;
                }
                let subject = Some(self.hosts[*host].id);
                let what = What::UserAction { action: UserVerb::SetRole, subject, status: OK, reason, planned: None };
                self.seen.push(Seen { source: Source::Harness, service_time: None, what });
            }
            _ => return Some((task, reply)),
        }
        None
    }

    /// The service has a row for the resource: its status says which.
    fn found(&mut self, whose: Whose, cluster: bool, object: &Value) -> Option<()> {
        if let Some(wrong) = input_error(object) {
            let state = self.state_mut(whose);
            state.wrong += 1;
            if state.wrong < LOOKS_THAT_ARE_WRONG {
                return None;
            }
            self.fatal.get_or_insert(wrong);
            return Some(());
        }
        self.state_mut(whose).wrong = 0;
        let url = object["status"]["debugInfo"]["eventsURL"].as_str()?;
        let id: Uuid = url.split_once("_id=")?.1.parse().ok()?;
        if cluster {
            let Whose::Cluster(index) = whose else { return None };
            let of_scenario = &self.scenario.clusters[index];
            let (name, vip_dhcp) = (of_scenario.name.clone(), of_scenario.vip_dhcp_allocation);
            self.clusters[index].id = Some(id);
            self.cluster_index.insert(id, index);
            let what = What::ClusterNamed { cluster: id, name, vip_dhcp };
            self.seen.push(Seen { source: Source::Harness, service_time: None, what });
            self.told_of(UserVerb::CreateCluster, Some(id));
            self.todo.push_back(UserTask::AwaitInfraEnv(whose));
            self.todo.extend(self.bootable_now());
            return Some(());
        }
        let url = object["status"]["isoDownloadURL"].as_str()?.to_owned();
        let state = self.state_mut(whose);
        state.infra_env = Some(id);
        state.download_url = url;
        let cluster = state.id;
        self.told_of(UserVerb::CreateInfraEnv, cluster);
        if self.networks(whose).is_empty() {
            self.bootable(whose, None);
        } else {
            self.todo.push_front(UserTask::FetchImage(whose));
        }
        Some(())
    }

    fn told_of(&mut self, action: UserVerb, subject: Option<Uuid>) {
        let what = What::UserAction { action, subject, status: OK, reason: String::new(), planned: None };
        self.seen.push(Seen { source: Source::Harness, service_time: None, what });
    }
}

/// What the service finds wrong with a resource that somebody must change.
fn input_error(object: &Value) -> Option<String> {
    let conditions = object["status"]["conditions"].as_array();
    let wrong = conditions
        .into_iter()
        .flatten()
        .find(|c| c["status"] == "False" && (c["reason"] == "InputError" || c["reason"] == "ImageCreationError"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    Some(format!("{kind} {name}: {} {}: {}", text(&wrong["type"]), text(&wrong["reason"]), text(&wrong["message"])))
}

fn said(reply: &Reply) -> (u16, String) {
    match &reply.result {
        Ok(response) => {
            let body: Value = response.decode().unwrap_or_default();
            let reason = if response.is_success() { "" } else { body["message"].as_str().unwrap_or_default() };
            (response.status, reason.to_owned())
        }
        Err(error) => (0, error.to_string()),
    }
}
