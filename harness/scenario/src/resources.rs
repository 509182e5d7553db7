//! Resources of a scenario that is driven over Kubernetes: which of them belong to a host or to a cluster, and which conditions they have.

use crate::words::ResourceKind;

/// Whose resource it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceOf {
    /// Of a host: it is called as the host's id, a BareMetalHost and its PreprovisioningImage as the host.
    Host,
    /// Of a cluster: it is called as the cluster.
    Cluster,
}

/// Kinds that belong to a host or a cluster, with the types of their conditions.
const CONDITIONS: &[(ResourceKind, ResourceOf, &[&str])] = &[
    (
        ResourceKind::Agent,
        ResourceOf::Host,
        &["SpecSynced", "Connected", "RequirementsMet", "Validated", "Installed", "Bound", "Cleanup"],
    ),
    (
        ResourceKind::AgentClusterInstall,
        ResourceOf::Cluster,
        &[
            "SpecSynced",
            "Validated",
            "RequirementsMet",
            "Completed",
            "Failed",
            "Stopped",
            "LastInstallationPreparationFailed",
        ],
    ),
    (
        ResourceKind::ClusterDeployment,
        ResourceOf::Cluster,
        &[
            "ClusterInstallFailed",
            "ClusterInstallCompleted",
            "ClusterInstallStopped",
            "ClusterInstallRequirementsMet",
            "Provisioned",
        ],
    ),
    (ResourceKind::InfraEnv, ResourceOf::Cluster, &["ImageCreated"]),
    (ResourceKind::BareMetalHost, ResourceOf::Host, &[]),
    (ResourceKind::PreprovisioningImage, ResourceOf::Host, &["Ready", "Error"]),
];

impl ResourceKind {
    /// Whose it is, and its types of conditions; `None` for kinds that belong to nobody in particular.
    pub fn conditions(self) -> Option<(ResourceOf, &'static [&'static str])> {
        CONDITIONS.iter().find(|row| row.0 == self).map(|row| (row.1, row.2))
    }

    /// Is it called as its host, and not as the id that the service gives that?
    pub fn is_called_as_its_host(self) -> bool {
        matches!(self, Self::BareMetalHost | Self::PreprovisioningImage)
    }

    /// The kinds that belong to a host, or to a cluster.
    pub fn all_of(of: ResourceOf) -> impl Iterator<Item = ResourceKind> {
        CONDITIONS.iter().filter(move |row| row.1 == of).map(|row| row.0)
    }
}

/// All types of conditions, each once.
pub fn condition_types() -> Vec<&'static str> {
    let mut types: Vec<&str> = CONDITIONS.iter().flat_map(|row| row.2.iter().copied()).collect();
    types.sort_unstable();
    types.dedup();
    types
}
