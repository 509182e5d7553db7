//! OLM operators that are installed with a cluster: which there are, what each brings along, and the rows in which the service follows them.
//!
//! Those are built whose needs of a host follow from its role, processors, memory and disks alone. The others are refused by name, and so are
//! bundles. Source of names, namespaces, subscriptions and times: `internal/operators` of the real service.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{Cluster, HostRole, MonitoredOperator, OperatorCreateParams, OperatorType};
use vlab_model::disks::version_at_least;
use vlab_model::validation::olm_operators;

use crate::Core;
use crate::refusal::Refusal;
use crate::rows::ClusterRow;

/// An operator that is built.
struct Olm {
    name: &'static str,
    namespace: &'static str,
    subscription: &'static str,
    /// In seconds, on the wire and therefore never scaled.
    timeout: i64,
    /// What is installed with it.
    needs: &'static [&'static str],
    /// What the controller applies when the operator is there: API group with version, and kind.
    resource: Option<(&'static str, &'static str)>,
}

const BUILT: &[Olm] = &[
    Olm {
        name: "lso",
        namespace: "openshift-local-storage",
        subscription: "local-storage-operator",
        timeout: 70 * 60,
        needs: &[],
        resource: None,
    },
    Olm {
        name: "lvm",
        namespace: "openshift-storage",
        subscription: "lvms-operator",
        timeout: 30 * 60,
        needs: &[],
        resource: Some(("lvm.topolvm.io/v1alpha1", "LVMCluster")),
    },
    Olm {
        name: "cnv",
        namespace: "openshift-cnv",
        subscription: "hco-operatorhub",
        timeout: 60 * 60,
        needs: &[],
        resource: Some(("hco.kubevirt.io/v1beta1", "HyperConverged")),
    },
    Olm {
        name: "mce",
        namespace: "multicluster-engine",
        subscription: "multicluster-engine",
        timeout: 60 * 60,
        needs: &[],
        resource: Some(("multicluster.openshift.io/v1", "MultiClusterEngine")),
    },
    Olm {
        name: "mtv",
        namespace: "openshift-mtv",
        subscription: "mtv-operator",
        timeout: 60 * 60,
        needs: &["cnv"],
        resource: Some(("forklift.konveyor.io/v1beta1", "ForkliftController")),
    },
];

/// What of the cluster decides whether it can have an operator.
pub(super) struct Of<'a> {
    pub(super) version: &'a str,
    pub(super) architecture: &'a str,
    pub(super) single: bool,
}

/// The operators that a request names, with those that they need; `None` where it names no list.
pub(super) fn chosen(
    operators: Option<&[OperatorCreateParams]>,
    bundles: bool,
    of: &Of<'_>,
) -> Result<Option<Vec<MonitoredOperator>>, Refusal> {
    if bundles {
        return Err(Refusal::not_built("bundles of OLM operators"));
    }
    let Some(asked) = operators else { return Ok(None) };
    let mut all: Vec<MonitoredOperator> = Vec::new();
    for operator in asked {
        let row = row(operator.name.as_deref().unwrap_or(""))?;
        all.push(MonitoredOperator { properties: operator.properties.clone(), ..row });
    }
    let has = |all: &[MonitoredOperator], name: &str| all.iter().any(|o| o.name.as_deref() == Some(name));
    for olm in BUILT.iter().filter(|olm| asked.iter().any(|o| o.name.as_deref() == Some(olm.name))) {
        for needed in olm.needs {
            if !has(&all, needed) {
                all.push(MonitoredOperator { dependency_only: Some(true), ..row(needed)? });
            }
        }
    }
    if !all.is_empty() && of.architecture != "x86_64" {
        return Err(Refusal::not_built("OLM operators on other architectures than x86_64"));
    }
    if has(&all, "mce") && has(&all, "lvm") {
        return Err(Refusal::not_built("the disks that mce and lvm need together"));
    }
    if has(&all, "lvm") && has(&all, "cnv") && !version_at_least(of.version, 4, 15) && !of.single {
        return Err(Refusal::invalid(
            "Logical Volume Manager is only supported for highly available openshift with version 4.15.0 or above",
        ));
    }
    Ok(Some(all))
}

fn row(name: &str) -> Result<MonitoredOperator, Refusal> {
    let Some(olm) = BUILT.iter().find(|olm| olm.name == name) else {
        // `ocs` is what `odf` was called before.
        let is_known = name == "ocs" || olm_operators().any(|known| known == name);
        return Err(match is_known {
            true => Refusal::not_built(&format!("the OLM operator {name}")),
            false => Refusal::invalid(format!("operator {name} isn't supported")),
        });
    };
    Ok(MonitoredOperator {
        name: Some(olm.name.into()),
        namespace: Some(olm.namespace.into()),
        subscription_name: Some(olm.subscription.into()),
        operator_type: Some(OperatorType::Olm),
        timeout_seconds: Some(olm.timeout),
        status_updated_at: Some(Timestamp::UNSET),
        ..MonitoredOperator::default()
    })
}

fn is_olm(operator: &MonitoredOperator) -> bool {
    operator.operator_type == Some(OperatorType::Olm)
}

/// Gives a cluster these operators instead of those that it has; the names of those that are gone.
pub(super) fn give(cluster: &mut Cluster, id: Uuid, operators: &[MonitoredOperator]) -> Vec<String> {
    let all = cluster.monitored_operators.get_or_insert_default();
    let stays = |o: &MonitoredOperator| !is_olm(o) || operators.iter().any(|new| new.name == o.name);
    let gone = all.iter().filter(|o| !stays(o)).filter_map(|o| o.name.clone()).collect();
    all.retain(|operator| !is_olm(operator));
    all.extend(operators.iter().map(|o| MonitoredOperator { cluster_id: Some(id), ..o.clone() }));
    gone
}

/// Names of the operators that a cluster has by choice.
pub(crate) fn names(cluster: &Cluster) -> impl Iterator<Item = &str> {
    cluster.monitored_operators.iter().flatten().filter(|o| is_olm(o)).filter_map(|o| o.name.as_deref())
}

/// Operators change what a role needs, so that roles which the service has chosen are chosen anew.
pub(super) fn choose_roles_anew(core: &mut Core, now: Timestamp, id: Uuid) {
    for key in core.state.host_keys_of_cluster(id) {
        core.state.edit_host(key, now, |row| {
            if row.host().role == Some(HostRole::AutoAssign) {
                row.view.host.suggested_role = Some(HostRole::AutoAssign);
            }
        });
    }
}

/// What the controller applies when the operators are there, as the file `custom_manifests.json`.
pub(crate) fn manifests(row: &ClusterRow) -> Vec<u8> {
    let of = |name: &str| {
        let olm = BUILT.iter().find(|olm| olm.name == name)?;
        let content = olm.resource.map_or(String::new(), |(api, kind)| {
            let metadata = json!({"name": name, "namespace": olm.namespace});
            let resource = json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": {}});
            STANDARD.encode(resource.to_string())
        });
        Some(json!({"Name": name, "Content": content}))
    };
    json!(names(row.cluster()).filter_map(of).collect::<Vec<_>>()).to_string().into_bytes()
}

/// Names of those that are built.
pub(crate) fn built() -> impl Iterator<Item = &'static str> {
    BUILT.iter().map(|olm| olm.name)
}
