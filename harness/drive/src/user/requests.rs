//! What the user asks the service for.

use serde_json::Value;
use vlab_api::requests::{About, user_request};

use super::*;

/// What a scenario says in the API's own words beside what the language has keys for.
fn with_params(mut request: vlab_api::http::Request, params: &BTreeMap<String, Value>) -> vlab_api::http::Request {
    // What the harness makes itself is an object.
    if !params.is_empty()
        && let Ok(Value::Object(mut body)) = serde_json::from_slice(&request.body)
    {
        body.extend(params.iter().map(|(name, value)| (name.clone(), value.clone())));
        request.body = Value::Object(body).to_string().into();
    }
    request
}

impl User {
    pub(super) fn action_request(&self, index: usize, host: Option<usize>) -> Option<vlab_api::http::Request> {
        let action = &self.scenario.actions[index];
        let cluster =
            action.cluster.as_deref().and_then(|name| self.members.cluster(name)).and_then(|c| self.clusters[c].id);
        let host = host.and_then(|h| self.host_address(h));
        let vips = |ips: &[std::net::IpAddr]| ips.iter().map(|ip| ip.to_string()).collect::<Vec<_>>();
        Some(match action.kind {
            ActionKind::Install => ops::install_cluster(cluster?).request,
            ActionKind::Cancel => ops::cancel_installation(cluster?).request,
            ActionKind::Reset => ops::reset_cluster(cluster?).request,
            ActionKind::SetVips => {
                let params = V2ClusterUpdateParams {
                    api_vips: Some(vips(&action.api_vips).into_iter().map(api_vip).collect()),
                    ingress_vips: Some(vips(&action.ingress_vips).into_iter().map(ingress_vip).collect()),
                    ..V2ClusterUpdateParams::default()
                };
                ops::update_cluster(cluster?, &params).request
            }
            ActionKind::PatchHost => {
                let (infra_env, id) = host?;
                let params = HostUpdateParams {
                    host_role: action.role.map(|r| r.as_str().to_owned()),
                    host_name: action.hostname.clone(),
                    ..HostUpdateParams::default()
                };
                ops::update_host(infra_env, id, &params).request
            }
            ActionKind::DeleteHost => {
                let (infra_env, id) = host?;
                ops::delete_host(infra_env, id).request
            }
            ActionKind::Bind => {
                let (infra_env, id) = host?;
                ops::bind_host(infra_env, id, &BindHostParams { cluster_id: cluster? }).request
            }
            ActionKind::Unbind => {
                let (infra_env, id) = host?;
                ops::unbind_host(infra_env, id).request
            }
            ActionKind::AllowAddHosts => ops::allow_add_hosts(cluster?).request,
            ActionKind::InstallHost => {
                let (infra_env, id) = host?;
                ops::install_host(infra_env, id).request
            }
            ActionKind::Request => self.api_request(action, cluster, host)?,
            // Resources there are only on a hub.
            ActionKind::BootDiscovery
            | ActionKind::ApplyResource
            | ActionKind::PatchResource
            | ActionKind::DeleteResource
            | ActionKind::Approve
            | ActionKind::Annotate => return None,
        })
    }

    /// A request for which there is no action. What is about an infra-env without a cluster is about that of the pool.
    fn api_request(
        &self,
        action: &vlab_scenario::Action,
        cluster: Option<Uuid>,
        host: Option<(Uuid, Uuid)>,
    ) -> Option<vlab_api::http::Request> {
        let asked = action.request.as_ref()?;
        let operation = user_request(asked.operation)?;
        let of_cluster = || match action.cluster.as_deref().and_then(|name| self.members.cluster(name)) {
            Some(index) => self.clusters[index].infra_env,
            None => self.pool.infra_env,
        };
        let ids = match operation.about {
            About::Service => vec![],
            About::Cluster => vec![("cluster", cluster?.to_string())],
            About::InfraEnv => vec![("infra_env", of_cluster()?.to_string())],
            About::Host => {
                let (infra_env, id) = host?;
                vec![("infra_env", infra_env.to_string()), ("host", id.to_string())]
            }
        };
        Some(operation.request(&ids, &asked.with, asked.body.as_ref()))
    }

    /// The request that makes a cluster.
    pub(super) fn create_cluster(&self, index: usize) -> vlab_api::http::Request {
        let request = ops::create_cluster(&self.cluster_params(index)).request;
        with_params(request, &self.scenario.clusters[index].params)
    }

    /// The request that makes an infra-env.
    pub(super) fn create_infra_env(&self, whose: Whose) -> vlab_api::http::Request {
        let request = ops::create_infra_env(&self.infra_env_params(whose)).request;
        with_params(request, &self.scenario.infra_env.params)
    }

    pub(super) fn state(&self, whose: Whose) -> &ClusterState {
        match whose {
            Whose::Pool => &self.pool,
            Whose::Cluster(index) => &self.clusters[index],
        }
    }

    pub(super) fn state_mut(&mut self, whose: Whose) -> &mut ClusterState {
        match whose {
            Whose::Pool => &mut self.pool,
            Whose::Cluster(index) => &mut self.clusters[index],
        }
    }

    /// The static networks of that cluster's infra-env, or of the pool's.
    pub(super) fn networks(&self, whose: Whose) -> Vec<HostStaticNetworkConfig> {
        let name = match whose {
            Whose::Pool => None,
            Whose::Cluster(index) => Some(self.scenario.clusters[index].name.as_str()),
        };
        let members = self.members.of(name).iter();
        let hosts: Vec<&str> = members.map(|index| self.scenario.hosts[*index].name.as_str()).collect();
        let mapping = |(mac, name): &(String, String)| MacInterfaceMapItem {
            mac_address: mac.clone(),
            logical_nic_name: Some(name.clone()),
        };
        let networks = self.scenario.infra_env.networks_of(&hosts);
        networks
            .map(|n| HostStaticNetworkConfig {
                network_yaml: Some(n.network_yaml.clone()),
                mac_interface_map: Some(n.mac_interface_map.iter().map(mapping).collect()),
            })
            .collect()
    }

    /// The host's infra-env (the one it booted from) and id.
    pub(super) fn host_address(&self, host: usize) -> Option<(Uuid, Uuid)> {
        let state = match self.scenario.hosts[host].cluster.as_deref() {
            Some(name) => &self.clusters[self.scenario.clusters.iter().position(|c| c.name == name)?],
            None => &self.pool,
        };
        Some((state.infra_env?, self.hosts[host].id))
    }

    pub(super) fn cluster_params(&self, index: usize) -> ClusterCreateParams {
        let cluster = &self.scenario.clusters[index];
        let managed = !cluster.user_managed_networking && cluster.control_plane_count > 1;
        let given = managed && !cluster.vip_dhcp_allocation;
        ClusterCreateParams {
            name: cluster.name.clone(),
            openshift_version: cluster.openshift_version.clone(),
            pull_secret: self.config.pull_secret.clone(),
            base_dns_domain: Some(cluster.base_domain.clone()),
            control_plane_count: Some(i64::from(cluster.control_plane_count)),
            high_availability_mode: Some(if cluster.control_plane_count == 1 { "None" } else { "Full" }.to_owned()),
            cluster_networks: Some(
                cluster
                    .cluster_networks
                    .iter()
                    .map(|n| ClusterNetwork {
                        cidr: Some(n.cidr.to_string()),
                        host_prefix: Some(i64::from(n.host_prefix)),
                        ..ClusterNetwork::default()
                    })
                    .collect(),
            ),
            service_networks: Some(
                cluster
                    .service_networks
                    .iter()
                    .map(|n| ServiceNetwork { cidr: Some(n.to_string()), ..ServiceNetwork::default() })
                    .collect(),
            ),
            // The service derives the machine network of a cluster from its VIPs, and refuses to be told both, unless there are
            // two families. That of a single node it takes from the host.
            machine_networks: ((!managed && cluster.control_plane_count > 1) || cluster.is_dual_stack()).then(|| {
                cluster
                    .machine_networks
                    .iter()
                    .map(|n| MachineNetwork { cidr: Some(n.to_string()), ..MachineNetwork::default() })
                    .collect()
            }),
            api_vips: given.then(|| cluster.api_vips.iter().map(|ip| api_vip(ip.to_string())).collect()),
            ingress_vips: given.then(|| cluster.ingress_vips.iter().map(|ip| ingress_vip(ip.to_string())).collect()),
            platform: (cluster.control_plane_count > 1)
                .then(|| Platform { type_: cluster.platform, ..Platform::default() }),
            user_managed_networking: (cluster.control_plane_count > 1 || cluster.user_managed_networking)
                .then_some(cluster.user_managed_networking),
            vip_dhcp_allocation: cluster.vip_dhcp_allocation.then_some(true),
            // The network that is the default since 4.12 does not go with leased VIPs.
            network_type: cluster.vip_dhcp_allocation.then(|| "OpenShiftSDN".to_owned()),
            ssh_public_key: keys([cluster.ssh_public_key.as_deref(), self.config.ssh_key.as_deref()]),
            additional_ntp_source: cluster.additional_ntp_source.clone(),
            ..ClusterCreateParams::default()
        }
    }

    pub(super) fn infra_env_params(&self, whose: Whose) -> InfraEnvCreateParams {
        let shared = &self.scenario.infra_env;
        let (name, cluster_id, version) = match whose {
            Whose::Pool => ("pool".to_owned(), None, None),
            Whose::Cluster(index) => {
                let cluster = &self.scenario.clusters[index];
                (cluster.name.clone(), self.clusters[index].id, Some(cluster.openshift_version.clone()))
            }
        };
        InfraEnvCreateParams {
            name,
            cluster_id,
            openshift_version: version,
            pull_secret: self.config.pull_secret.clone(),
            cpu_architecture: Some(shared.cpu_architecture.clone()),
            image_type: Some(shared.image_type),
            ssh_authorized_key: self.config.ssh_key.clone(),
            additional_ntp_sources: match shared.additional_ntp_sources.as_slice() {
                [] => self.config.ntp_source.clone(),
                named => Some(named.join(",")),
            },
            static_network_config: Some(self.networks(whose)).filter(|n| !n.is_empty()),
            kernel_arguments: (!shared.kernel_arguments.is_empty()).then(|| {
                shared
                    .kernel_arguments
                    .iter()
                    .map(|value| KernelArgument { operation: Some("append".to_owned()), value: Some(value.clone()) })
                    .collect()
            }),
            ..InfraEnvCreateParams::default()
        }
    }
}
