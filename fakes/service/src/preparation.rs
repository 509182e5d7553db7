//! The part of an installation's preparation that the service does by itself, in the background: all files of the cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ApiVip, ClusterStatus, IngressVip, LastInstallationPreparation, Severity, VipVerification};
use vlab_installer::{ArtifactInput, HostInput};
use vlab_model::network;

use crate::alteration::Conduct;
use crate::commands::manifests;
use crate::rows::{ClusterRow, HostRow};
use crate::{Core, go};

impl Core {
    /// The part of an installation's preparation that the service does itself: all files of the cluster.
    pub(crate) fn prepare(&mut self, now: Timestamp, id: Uuid) {
        let Some(row) = self.state.cluster(id).cloned() else { return };
        if row.cluster().status != ClusterStatus::PreparingForInstallation {
            self.state.edit_cluster(id, now, |row| row.private.preparation_due = None);
            self.state.end_unit();
            return;
        }
        let hosts = self.state.hosts_of_cluster(id);
        // The node of a single-node cluster is its own API and ingress.
        if row.view.is_sno()
            && let Some(address) = hosts.first().and_then(|h| node_address(h, &row))
        {
            self.state.edit_cluster(id, now, |row| {
                let c = &mut row.view.cluster;
                let verification: Option<VipVerification> = None;
                c.api_vips = Some(vec![ApiVip { cluster_id: Some(id), ip: Some(address.clone()), verification }]);
                c.ingress_vips = Some(vec![IngressVip { cluster_id: Some(id), ip: Some(address), verification }]);
            });
        }
        if self.does(Conduct::PreparationNeverDone) {
            self.state.edit_cluster(id, now, |row| row.private.preparation_due = None);
            self.state.end_unit();
            return;
        }
        for (key, bytes) in manifests::of_time(self, id) {
            self.state.put_file(key, bytes);
        }
        let openshift_id = self.state.new_id();
        let result = match self.does(Conduct::PreparationFails) {
            true => Err("the service is wrong on purpose".to_owned()),
            false => self.generate(now, id, &hosts),
        };
        match result {
            Ok(files) => {
                let metadata = files.iter().find(|(n, _)| n == "metadata.json").map(|(_, b)| b.as_slice());
                let generated = metadata
                    .and_then(|b| serde_json::from_slice::<serde_json::Value>(b).ok())
                    .and_then(|m| go::parse_uuid(m.get("clusterID")?.as_str()?));
                for (name, bytes) in files {
                    self.state.put_file(format!("{id}/{name}"), bytes);
                }
                self.state.edit_cluster(id, now, |row| {
                    row.private.preparation_due = None;
                    let c = &mut row.view.cluster;
                    c.openshift_cluster_id = Some(generated.unwrap_or(openshift_id));
                    c.last_installation_preparation = Some(LastInstallationPreparation {
                        status: Some("success".into()),
                        reason: Some("Installation preparation successful".into()),
                    });
                });
                let text = "Cluster starting to prepare for installation".to_owned();
                self.cluster_event(now, id, "cluster_prepare_installation_started", Severity::Info, text);
            }
            Err(reason) => {
                self.state.edit_cluster(id, now, |row| {
                    row.private.preparation_due = None;
                    row.view.cluster.last_installation_preparation = Some(LastInstallationPreparation {
                        status: Some("failed".into()),
                        reason: Some(reason.clone()),
                    });
                });
                let text = format!("Failed to prepare the installation due to an unexpected error: {reason}");
                self.cluster_event(now, id, "prepare_installation_failed", Severity::Warning, text);
            }
        }
        self.state.end_unit();
    }

    /// The install config as it would be made now.
    pub(crate) fn preview_install_config(&self, now: Timestamp, row: &ClusterRow) -> Result<String, String> {
        let hosts = self.state.hosts_of_cluster(row.cluster().id);
        let files = self.generate(now, row.cluster().id, &hosts)?;
        let config = files.iter().find(|(name, _)| name == "install-config.yaml");
        config
            .map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned())
            .ok_or_else(|| "no install config was made".to_owned())
    }

    fn generate(&self, now: Timestamp, id: Uuid, hosts: &[Arc<HostRow>]) -> Result<Vec<(String, Vec<u8>)>, String> {
        let row = self.state.cluster(id).ok_or("the cluster no longer exists")?;
        let names: Vec<String> =
            hosts.iter().map(|h| h.view.hostname().map_or_else(|| h.host().id.to_string(), str::to_owned)).collect();
        let inputs: Vec<HostInput<'_>> = hosts
            .iter()
            .zip(&names)
            .map(|(h, name)| HostInput { host: h.host(), role: h.view.effective_role(), hostname: name })
            .collect();
        let prefix = format!("{id}/manifests/");
        let manifests: Vec<(String, Vec<u8>)> = self
            .state
            .files_under(&prefix)
            .filter_map(|(key, bytes)| Some((key[prefix.len()..].split_once('/')?.1.to_owned(), bytes.to_vec())))
            .collect();
        let infra_envs: BTreeSet<Uuid> = hosts.iter().map(|host| host.infra_env_id()).collect();
        let infra_envs = infra_envs.into_iter().filter_map(|id| self.state.infra_env(id));
        let trusted: Vec<String> = infra_envs
            .flat_map(|row| {
                let of_mirrors = row.mirrors.as_ref().map(|mirrors| mirrors.ca_bundle.clone());
                [row.infra_env.additional_trust_bundle.clone(), of_mirrors]
            })
            .flatten()
            .collect();
        let input = ArtifactInput {
            cluster: row.cluster(),
            hosts: &inputs,
            pull_secret: &row.private.pull_secret,
            manifests: &manifests,
            mirrors: row.private.mirrors.as_ref(),
            trusted: &trusted,
            seed: row.private.artifact_seed,
            now,
        };
        let files = vlab_installer::generate(&input).map_err(|e| e.to_string())?;
        let mut files: Vec<(String, Vec<u8>)> = files.into_iter().map(|f| (f.name, f.bytes)).collect();
        files.push(("custom_manifests.json".to_owned(), crate::commands::clusters::operator_manifests(row)));
        files.push(("custom_manifests.yaml".to_owned(), Vec::new()));
        Ok(files)
    }
}

/// The address of a single node in its machine network.
fn node_address(host: &HostRow, cluster: &ClusterRow) -> Option<String> {
    let inventory = host.view.inventory.as_ref()?;
    let machine = cluster.view.machine_networks();
    network::addresses(inventory)
        .map(|a| a.addr())
        .find(|a| machine.iter().any(|n| n.contains(a)))
        .map(|a| a.to_string())
}
