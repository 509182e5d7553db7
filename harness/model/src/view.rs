//! What the rules look at: the API objects, with the JSON texts inside them parsed once when they change.
//!
//! The API object is the truth; the parsed members beside it only save time. Whoever changes a JSON text does it through
//! the setters here, which keep both in step.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use ipnet::IpNet;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;
use vlab_api::types::{
    ApiVipConnectivityResponse, Cluster, ClusterNetwork, ConnectivityReport, ContainerImageAvailability,
    ContainerImageAvailabilityResponse, Disk, DiskInfo, DomainResolutionResponse, FreeNetworkAddresses, Host, HostRole,
    HostStage, InfraEnv, Inventory, NtpSource, PlatformType, ServiceNetwork, TangConnectivityResponse, Text,
    VipVerification,
};

use crate::network::MajorityGroups;
use crate::validation::{ClusterValidations, HostValidations};

/// A host: the API object is the truth, the rest is what its JSON texts say (`None`: absent or not parsable). What is large is
/// shared: a row is copied with each change of it.
#[derive(Clone, Debug, Default)]
pub struct HostView {
    /// The object as the API shows it.
    pub host: Host,
    /// `host.inventory`
    pub inventory: Option<Arc<Inventory>>,
    /// `host.connectivity`
    pub connectivity: Option<Arc<ConnectivityReport>>,
    /// `host.ntp_sources`
    pub ntp_sources: Option<Arc<Vec<NtpSource>>>,
    /// `host.domain_name_resolutions`
    pub domain_name_resolutions: Option<Arc<DomainResolutionResponse>>,
    /// `host.disks_info`: disk id to what was measured on it
    pub disks_info: Arc<BTreeMap<String, DiskInfo>>,
    /// `host.images_status`: image name to what pulling it gave
    pub images_status: Arc<BTreeMap<String, ContainerImageAvailability>>,
    /// `host.free_addresses`
    pub free_addresses: Option<Arc<Vec<FreeNetworkAddresses>>>,
    /// `host.api_vip_connectivity`
    pub api_vip_connectivity: Option<Arc<ApiVipConnectivityResponse>>,
    /// `host.tang_connectivity`
    pub tang_connectivity: Option<Arc<TangConnectivityResponse>>,
    /// What `host.validations_info` was made of, see [`Self::evaluated`].
    pub validations: Evaluated<HostValidations>,
}

/// Validations, and the text that was made of them. Whoever writes another text makes them void.
#[derive(Clone, Debug, Default)]
pub struct Evaluated<T>(Option<(Text, Arc<T>)>);

impl<T> Evaluated<T> {
    fn of(&self, shown: &Option<Text>) -> Option<&Arc<T>> {
        let (text, all) = self.0.as_ref()?;
        shown.as_ref().is_some_and(|shown| Arc::ptr_eq(shown, text)).then_some(all)
    }
}

/// They only save time: what counts is the text, which the object has.
impl<T> PartialEq for Evaluated<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// What the texts say follows from them.
impl PartialEq for HostView {
    fn eq(&self, other: &Self) -> bool {
        self.host == other.host
    }
}

/// Does the text hold anything? (The service writes an absent text as an empty one in some places.)
pub(crate) fn filled<T: Deref<Target = str>>(text: &Option<T>) -> Option<&str> {
    text.as_deref().filter(|t| !t.is_empty())
}

fn parse<T: DeserializeOwned>(text: &Option<impl Deref<Target = str>>) -> Option<T> {
    serde_json::from_str(filled(text)?).ok()
}

/// The wire types hold nothing that JSON cannot (their keys are text), so an empty text here cannot happen in practice.
fn text_of<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Setter of a member whose text and parsed form are kept in step.
macro_rules! setter {
    ($(#[$meta:meta])* $set:ident, $field:ident : $ty:ty) => {
        $(#[$meta])*
        pub fn $set(&mut self, value: impl Into<Option<$ty>>) {
            let value = value.into();
            self.host.$field = value.as_ref().map(|value| text_of(value).into());
            self.$field = value.map(Into::into);
        }
    };
}

impl HostView {
    /// The view of `host`: parses its texts.
    pub fn new(host: Host) -> Self {
        Self {
            inventory: parse(&host.inventory).map(Arc::new),
            connectivity: parse(&host.connectivity).map(Arc::new),
            ntp_sources: parse(&host.ntp_sources).map(Arc::new),
            domain_name_resolutions: parse(&host.domain_name_resolutions).map(Arc::new),
            disks_info: parse(&host.disks_info).map(Arc::new).unwrap_or_default(),
            images_status: Arc::new(images_from_text(&host.images_status)),
            free_addresses: parse(&host.free_addresses).map(Arc::new),
            api_vip_connectivity: parse(&host.api_vip_connectivity).map(Arc::new),
            tang_connectivity: parse(&host.tang_connectivity).map(Arc::new),
            validations: Evaluated::default(),
            host,
        }
    }

    setter!(
        /// What the host has; `None` wipes it.
        set_inventory, inventory: Inventory
    );
    setter!(
        /// Whom it reached; `None` wipes it.
        set_connectivity, connectivity: ConnectivityReport
    );
    setter!(
        /// Its time sources; `None` wipes them.
        set_ntp_sources, ntp_sources: Vec<NtpSource>
    );
    setter!(
        /// What names resolved to; `None` wipes it.
        set_domain_name_resolutions, domain_name_resolutions: DomainResolutionResponse
    );
    setter!(
        /// Addresses that nobody answers for; `None` wipes them.
        set_free_addresses, free_addresses: Vec<FreeNetworkAddresses>
    );
    setter!(
        /// Could it fetch its ignition (day 2)? `None` wipes it.
        set_api_vip_connectivity, api_vip_connectivity: ApiVipConnectivityResponse
    );
    setter!(
        /// Could it reach the tang servers? `None` wipes it.
        set_tang_connectivity, tang_connectivity: TangConnectivityResponse
    );

    /// What was measured on its disks, by disk id; an empty map wipes it.
    pub fn set_disks_info(&mut self, disks: BTreeMap<String, DiskInfo>) {
        self.host.disks_info = (!disks.is_empty()).then(|| text_of(&disks).into());
        self.disks_info = Arc::new(disks);
    }

    /// What pulling images gave, by image name; an empty map wipes it.
    pub fn set_images_status(&mut self, images: BTreeMap<String, ContainerImageAvailability>) {
        self.host.images_status = (!images.is_empty()).then(|| text_of(&images).into());
        self.images_status = Arc::new(images);
    }

    /// What was evaluated.
    pub fn set_validations(&mut self, all: Arc<HostValidations>) {
        let text: Text = all.to_json_text().into();
        self.host.validations_info = Some(text.clone());
        self.validations = Evaluated(Some((text, all)));
    }

    /// What `host.validations_info` says, with what it does not show. `None`: the text was not made here, but read or written by
    /// somebody.
    pub fn evaluated(&self) -> Option<&Arc<HostValidations>> {
        self.validations.of(&self.host.validations_info)
    }

    /// Role that counts: the one the user set, else the suggested one, else auto-assign.
    pub fn effective_role(&self) -> HostRole {
        match self.host.role {
            Some(role) if role != HostRole::AutoAssign => role,
            _ => self.host.suggested_role.unwrap_or(HostRole::AutoAssign),
        }
    }

    /// Its name: the one that the user asked for, else the inventory's. `None` while unknown.
    pub fn hostname(&self) -> Option<&str> {
        filled(&self.host.requested_hostname).or_else(|| filled(&self.inventory.as_ref()?.hostname))
    }

    /// Is it the bootstrap?
    pub fn is_bootstrap(&self) -> bool {
        self.host.bootstrap == Some(true)
    }

    /// Installation stage, once one was reported.
    pub fn stage(&self) -> Option<HostStage> {
        self.host.progress.as_ref().and_then(|p| p.current_stage)
    }

    /// Does it join a cluster that exists already?
    pub fn is_day2(&self) -> bool {
        self.host.kind == "AddToExistingClusterHost"
    }

    /// Is it in no cluster?
    pub fn is_unbound(&self) -> bool {
        self.host.cluster_id.is_none()
    }

    /// Its disks.
    pub fn disks(&self) -> &[Disk] {
        self.inventory.as_ref().and_then(|i| i.disks.as_deref()).unwrap_or(&[])
    }

    /// The disk that the system will be written to.
    pub fn installation_disk(&self) -> Option<&Disk> {
        let id = filled(&self.host.installation_disk_id)?;
        self.disks().iter().find(|d| crate::disks::identifier(d) == id)
    }

    /// Ids of the disks that must not be formatted.
    pub fn skip_formatting(&self) -> impl Iterator<Item = &str> {
        filled(&self.host.skip_formatting_disks).unwrap_or("").split(',').filter(|id| !id.is_empty())
    }
}

/// The service stores a map; replies carry a list. Both forms are read.
fn images_from_text(text: &Option<Text>) -> BTreeMap<String, ContainerImageAvailability> {
    parse(text).unwrap_or_else(|| {
        let list: Option<ContainerImageAvailabilityResponse> = parse(text);
        let images = list.map(|l| l.images).unwrap_or_default();
        images.into_iter().filter_map(|i| Some((i.name.clone()?, i))).collect()
    })
}

/// A cluster without its hosts: the API object plus what the API does not show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterView {
    /// The object as the API shows it; `hosts` is `None` here.
    pub cluster: Cluster,
    /// A pull secret was given (the secret itself is the service's).
    pub has_pull_secret: bool,
    /// The ingress certificate was uploaded, that is, the final kubeconfig exists.
    pub kubeconfig_uploaded: bool,
    /// `cluster.connectivity_majority_groups`: machine network CIDR (or `IPv4` / `IPv6` for layer 3) to the members of its
    /// majority group. `None`: not computed yet.
    pub majority_groups: Option<BTreeMap<String, Vec<Uuid>>>,
    /// The other half of that text: host to those of its addresses that all others reach.
    pub l3_connected_addresses: BTreeMap<Uuid, Vec<String>>,
    /// `cluster.ip_collisions`: address to the MACs that answer for it.
    pub ip_collisions: BTreeMap<String, Vec<String>>,
    /// The user uploaded manifests of their own.
    pub has_custom_manifests: bool,
    /// `cluster.ignored_host_validations`
    pub ignored_host_validations: Vec<String>,
    /// `cluster.ignored_cluster_validations`
    pub ignored_cluster_validations: Vec<String>,
    /// What `cluster.validations_info` was made of, see [`Self::evaluated`].
    pub validations: Evaluated<ClusterValidations>,
}

impl ClusterView {
    /// The view of `cluster`: parses its texts and takes its hosts out. What the API does not show is taken as absent.
    pub fn new(mut cluster: Cluster) -> Self {
        cluster.hosts = None;
        let groups: Option<MajorityGroups> = parse(&cluster.connectivity_majority_groups);
        Self {
            has_pull_secret: cluster.pull_secret_set == Some(true),
            kubeconfig_uploaded: false,
            l3_connected_addresses: groups.as_ref().map(|g| g.l3_connected_addresses.clone()).unwrap_or_default(),
            majority_groups: groups.map(|g| g.majority_groups),
            ip_collisions: parse(&cluster.ip_collisions).unwrap_or_default(),
            has_custom_manifests: false,
            ignored_host_validations: parse(&cluster.ignored_host_validations).unwrap_or_default(),
            ignored_cluster_validations: parse(&cluster.ignored_cluster_validations).unwrap_or_default(),
            validations: Evaluated::default(),
            cluster,
        }
    }

    /// Who can talk to whom; `None` wipes it.
    pub fn set_majority_groups(&mut self, groups: impl Into<Option<MajorityGroups>>) {
        let groups = groups.into();
        self.cluster.connectivity_majority_groups = groups.as_ref().map(text_of);
        let (groups, addresses) = groups.map(|g| (g.majority_groups, g.l3_connected_addresses)).unzip();
        self.majority_groups = groups;
        self.l3_connected_addresses = addresses.unwrap_or_default();
    }

    /// Addresses that several machines answer for; an empty map says that there are none.
    pub fn set_ip_collisions(&mut self, collisions: BTreeMap<String, Vec<String>>) {
        self.cluster.ip_collisions = Some(text_of(&collisions));
        self.ip_collisions = collisions;
    }

    /// Host validations that the user wants ignored (`all` stands for all that may be).
    pub fn set_ignored_host_validations(&mut self, ids: Vec<String>) {
        self.cluster.ignored_host_validations = Some(text_of(&ids));
        self.ignored_host_validations = ids;
    }

    /// Cluster validations that the user wants ignored (`all` stands for all that may be).
    pub fn set_ignored_cluster_validations(&mut self, ids: Vec<String>) {
        self.cluster.ignored_cluster_validations = Some(text_of(&ids));
        self.ignored_cluster_validations = ids;
    }

    /// What was evaluated.
    pub fn set_validations(&mut self, all: Arc<ClusterValidations>) {
        let text: Text = all.to_json_text().into();
        self.cluster.validations_info = Some(text.clone());
        self.validations = Evaluated(Some((text, all)));
    }

    /// What `cluster.validations_info` says, with what it does not show. `None`: the text was not made here, but read or
    /// written by somebody.
    pub fn evaluated(&self) -> Option<&Arc<ClusterValidations>> {
        self.validations.of(&self.cluster.validations_info)
    }

    /// Were IP collisions looked for?
    pub fn collisions_evaluated(&self) -> bool {
        filled(&self.cluster.ip_collisions).is_some()
    }

    /// Wanted number of masters: `control_plane_count`, else what `high_availability_mode` stands for.
    pub fn control_plane_count(&self) -> i64 {
        match (self.cluster.control_plane_count, self.cluster.high_availability_mode.as_deref()) {
            (Some(n), _) if n > 0 => n,
            (_, Some("None")) => 1,
            _ => 3,
        }
    }

    /// A single node?
    pub fn is_sno(&self) -> bool {
        self.control_plane_count() == 1
    }

    /// Does it take hosts into a cluster that exists already?
    pub fn is_day2(&self) -> bool {
        self.cluster.kind == "AddHostsCluster"
    }

    /// Does the user bring load balancers and names?
    pub fn user_managed_networking(&self) -> bool {
        self.cluster.user_managed_networking == Some(true)
    }

    /// Does the user bring the load balancer only?
    pub fn user_managed_load_balancer(&self) -> bool {
        self.cluster.load_balancer.as_ref().and_then(|l| l.type_.as_deref()) == Some("user-managed")
    }

    /// Are the VIPs leased by DHCP?
    pub fn vip_dhcp_allocation(&self) -> bool {
        self.cluster.vip_dhcp_allocation == Some(true)
    }

    /// Platform; baremetal when none is given.
    pub fn platform(&self) -> PlatformType {
        self.cluster.platform.as_ref().map_or(PlatformType::Baremetal, |p| p.type_)
    }

    /// Name of the external platform, when it is one.
    pub fn external_platform_name(&self) -> Option<&str> {
        let external =
            self.cluster.platform.as_ref().filter(|p| p.type_ == PlatformType::External)?.external.as_ref()?;
        filled(&external.platform_name)
    }

    /// OpenShift version, for example `4.16.68`; empty when unknown.
    pub fn openshift_version(&self) -> &str {
        self.cluster.openshift_version.as_deref().unwrap_or("")
    }

    /// Texts of the machine networks.
    pub fn machine_network_texts(&self) -> impl Iterator<Item = &str> {
        self.cluster.machine_networks.iter().flatten().filter_map(|n| filled(&n.cidr))
    }

    /// Machine networks; what does not parse is left out.
    pub fn machine_networks(&self) -> Vec<IpNet> {
        self.machine_network_texts().filter_map(|c| c.parse().ok()).collect()
    }

    /// Is there a machine network?
    pub fn has_machine_network(&self) -> bool {
        self.machine_network_texts().next().is_some()
    }

    /// Cluster networks.
    pub fn cluster_networks(&self) -> &[ClusterNetwork] {
        self.cluster.cluster_networks.as_deref().unwrap_or(&[])
    }

    /// Service networks.
    pub fn service_networks(&self) -> &[ServiceNetwork] {
        self.cluster.service_networks.as_deref().unwrap_or(&[])
    }

    /// Are the machine networks those in which hosts and VIPs are? Else the user gives them, or the only node has them.
    pub fn machine_networks_follow_vips(&self) -> bool {
        !self.is_sno()
            && !self.user_managed_networking()
            && !self.user_managed_load_balancer()
            && !self.vip_dhcp_allocation()
    }

    /// Are there networks of both families, of any one kind?
    pub fn is_dual_stack(&self) -> bool {
        let both = |networks: &[IpNet]| {
            networks.iter().any(|n| matches!(n, IpNet::V4(_))) && networks.iter().any(|n| matches!(n, IpNet::V6(_)))
        };
        let read = |cidr: &Option<String>| cidr.as_deref().and_then(|c| c.parse().ok());
        let cluster: Vec<IpNet> = self.cluster_networks().iter().filter_map(|n| read(&n.cidr)).collect();
        let service: Vec<IpNet> = self.service_networks().iter().filter_map(|n| read(&n.cidr)).collect();
        both(&self.machine_networks()) || both(&service) || both(&cluster)
    }

    /// API VIPs with their verification; what does not parse as an address is left out.
    pub fn api_vips(&self) -> Vec<(IpAddr, VipVerification)> {
        let vips = self.cluster.api_vips.iter().flatten();
        vips.filter_map(|v| Some((filled(&v.ip)?.parse().ok()?, v.verification.unwrap_or_default()))).collect()
    }

    /// Ingress VIPs with their verification; what does not parse as an address is left out.
    pub fn ingress_vips(&self) -> Vec<(IpAddr, VipVerification)> {
        let vips = self.cluster.ingress_vips.iter().flatten();
        vips.filter_map(|v| Some((filled(&v.ip)?.parse().ok()?, v.verification.unwrap_or_default()))).collect()
    }

    /// Is the operator of that name selected (as a monitored OLM operator)?
    pub fn has_operator(&self, name: &str) -> bool {
        self.cluster.monitored_operators.iter().flatten().any(|o| o.name.as_deref() == Some(name))
    }
}

/// All that decides about one host.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The host's infra-env.
    pub infra_env: &'a InfraEnv,
    /// Its cluster, when it is bound.
    pub cluster: Option<&'a ClusterView>,
    /// All hosts of that cluster, the host itself included, in order of registration. Empty for an unbound host.
    pub hosts: &'a [&'a HostView],
}
