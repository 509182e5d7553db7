//! The table of the built-in kinds.

use std::sync::Arc;

use super::messages::Schemas;
use crate::resource::{Column, Resource, ResourceId, Version};
use crate::schema::{Schema, Type};

/// A row of the table.
#[derive(Debug)]
struct Row {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    short: &'static [&'static str],
    /// `n` in namespaces, `c` not, `r` a review, `R` a review in a namespace, `s` only as a subresource of something else.
    scope: char,
    /// The message it is made of; empty takes everything.
    message: &'static str,
    subresources: &'static [&'static str],
}

macro_rules! rows {
    ($($group:literal $version:literal $plural:literal $singular:literal $kind:literal $short:expr, $scope:literal, $message:literal, $sub:expr;)*) => {
        &[$(Row { group: $group, version: $version, plural: $plural, singular: $singular, kind: $kind, short: $short, scope: $scope,
                  message: $message, subresources: $sub }),*]
    };
}

const ROWS: &[Row] = rows! {
    "" "v1" "configmaps" "configmap" "ConfigMap" &["cm"], 'n', "core.ConfigMap", &[];
    "" "v1" "events" "event" "Event" &["ev"], 'n', "core.Event", &[];
    "" "v1" "namespaces" "namespace" "Namespace" &["ns"], 'c', "core.Namespace", &["status", "finalize"];
    "" "v1" "nodes" "node" "Node" &["no"], 'c', "core.Node", &["status"];
    "" "v1" "persistentvolumeclaims" "persistentvolumeclaim" "PersistentVolumeClaim" &["pvc"], 'n', "core.PersistentVolumeClaim", &["status"];
    "" "v1" "pods" "pod" "Pod" &["po"], 'n', "core.Pod", &["status", "log", "eviction"];
    "" "v1" "resourcequotas" "resourcequota" "ResourceQuota" &["quota"], 'n', "core.ResourceQuota", &["status"];
    "" "v1" "secrets" "secret" "Secret" &[], 'n', "core.Secret", &[];
    "" "v1" "serviceaccounts" "serviceaccount" "ServiceAccount" &["sa"], 'n', "core.ServiceAccount", &["token"];
    "" "v1" "services" "service" "Service" &["svc"], 'n', "core.Service", &["status"];
    "admissionregistration.k8s.io" "v1" "mutatingwebhookconfigurations" "mutatingwebhookconfiguration" "MutatingWebhookConfiguration" &[], 'c', "admissionregistration.MutatingWebhookConfiguration", &[];
    "admissionregistration.k8s.io" "v1" "validatingwebhookconfigurations" "validatingwebhookconfiguration" "ValidatingWebhookConfiguration" &[], 'c', "admissionregistration.ValidatingWebhookConfiguration", &[];
    "apiextensions.k8s.io" "v1" "customresourcedefinitions" "customresourcedefinition" "CustomResourceDefinition" &["crd", "crds"], 'c', "", &["status"];
    "apps" "v1" "daemonsets" "daemonset" "DaemonSet" &["ds"], 'n', "apps.DaemonSet", &["status"];
    "apps" "v1" "deployments" "deployment" "Deployment" &["deploy"], 'n', "apps.Deployment", &["status", "scale"];
    "apps" "v1" "replicasets" "replicaset" "ReplicaSet" &["rs"], 'n', "apps.ReplicaSet", &["status", "scale"];
    "apps" "v1" "statefulsets" "statefulset" "StatefulSet" &["sts"], 'n', "apps.StatefulSet", &["status", "scale"];
    "authentication.k8s.io" "v1" "selfsubjectreviews" "selfsubjectreview" "SelfSubjectReview" &[], 'r', "authentication.SelfSubjectReview", &[];
    "authentication.k8s.io" "v1" "tokenreviews" "tokenreview" "TokenReview" &[], 'r', "authentication.TokenReview", &[];
    "authorization.k8s.io" "v1" "localsubjectaccessreviews" "localsubjectaccessreview" "LocalSubjectAccessReview" &[], 'R', "authorization.LocalSubjectAccessReview", &[];
    "authorization.k8s.io" "v1" "selfsubjectaccessreviews" "selfsubjectaccessreview" "SelfSubjectAccessReview" &[], 'r', "authorization.SelfSubjectAccessReview", &[];
    "authorization.k8s.io" "v1" "selfsubjectrulesreviews" "selfsubjectrulesreview" "SelfSubjectRulesReview" &[], 'r', "authorization.SelfSubjectRulesReview", &[];
    "authorization.k8s.io" "v1" "subjectaccessreviews" "subjectaccessreview" "SubjectAccessReview" &[], 'r', "authorization.SubjectAccessReview", &[];
    "batch" "v1" "jobs" "job" "Job" &[], 'n', "batch.Job", &["status"];
    "certificates.k8s.io" "v1" "certificatesigningrequests" "certificatesigningrequest" "CertificateSigningRequest" &["csr"], 'c', "certificates.CertificateSigningRequest", &["status", "approval"];
    "coordination.k8s.io" "v1" "leases" "lease" "Lease" &[], 'n', "coordination.Lease", &[];
    "events.k8s.io" "v1" "events" "event" "Event" &["ev"], 'n', "events.Event", &[];
    "networking.k8s.io" "v1" "networkpolicies" "networkpolicy" "NetworkPolicy" &["netpol"], 'n', "", &[];
    "policy" "v1" "poddisruptionbudgets" "poddisruptionbudget" "PodDisruptionBudget" &["pdb"], 'n', "policy.PodDisruptionBudget", &["status"];
    "rbac.authorization.k8s.io" "v1" "clusterrolebindings" "clusterrolebinding" "ClusterRoleBinding" &[], 'c', "rbac.ClusterRoleBinding", &[];
    "rbac.authorization.k8s.io" "v1" "clusterroles" "clusterrole" "ClusterRole" &[], 'c', "rbac.ClusterRole", &[];
    "rbac.authorization.k8s.io" "v1" "rolebindings" "rolebinding" "RoleBinding" &[], 'n', "rbac.RoleBinding", &[];
    "rbac.authorization.k8s.io" "v1" "roles" "role" "Role" &[], 'n', "rbac.Role", &[];
};

/// Heading, type, priority, path.
type Cell = (&'static str, &'static str, i64, &'static str);

/// Columns of built-in kinds: plural, then heading, type, priority, path. A path that begins with `@` is computed.
const COLUMNS: &[(&str, &[Cell])] = &[
    ("configmaps", &[("Data", "string", 0, "@data"), AGE]),
    ("customresourcedefinitions", &[("Created At", "string", 0, ".metadata.creationTimestamp")]),
    (
        "certificatesigningrequests",
        &[
            AGE,
            ("SignerName", "string", 0, ".spec.signerName"),
            ("Requestor", "string", 0, ".spec.username"),
            ("RequestedDuration", "string", 0, "@duration"),
            ("Condition", "string", 0, "@csr"),
        ],
    ),
    (
        "events",
        &[
            ("Last Seen", "string", 0, "@last-seen"),
            ("Type", "string", 0, ".type"),
            ("Reason", "string", 0, ".reason"),
            ("Object", "string", 0, "@involved"),
            ("Message", "string", 0, ".message"),
        ],
    ),
    (
        "daemonsets",
        &[
            ("Desired", "integer", 0, ".status.desiredNumberScheduled"),
            ("Current", "integer", 0, ".status.currentNumberScheduled"),
            ("Ready", "integer", 0, ".status.numberReady"),
            AGE,
        ],
    ),
    (
        "deployments",
        &[
            ("Ready", "string", 0, "@ready"),
            ("Up-to-date", "integer", 0, ".status.updatedReplicas"),
            ("Available", "integer", 0, ".status.availableReplicas"),
            AGE,
        ],
    ),
    ("statefulsets", &[("Ready", "string", 0, "@ready"), AGE]),
    ("leases", &[("Holder", "string", 0, ".spec.holderIdentity"), AGE]),
    ("namespaces", &[("Status", "string", 0, ".status.phase"), AGE]),
    (
        "nodes",
        &[
            ("Status", "string", 0, "@node-status"),
            ("Roles", "string", 0, "@node-roles"),
            AGE,
            ("Version", "string", 0, ".status.nodeInfo.kubeletVersion"),
            ("Internal-IP", "string", 1, "@node-ip"),
            ("OS-Image", "string", 1, ".status.nodeInfo.osImage"),
            ("Kernel-Version", "string", 1, ".status.nodeInfo.kernelVersion"),
            ("Container-Runtime", "string", 1, ".status.nodeInfo.containerRuntimeVersion"),
        ],
    ),
    (
        "pods",
        &[
            ("Ready", "string", 0, "@pod-ready"),
            ("Status", "string", 0, "@pod-status"),
            ("Restarts", "string", 0, "@pod-restarts"),
            AGE,
            ("IP", "string", 1, ".status.podIP"),
            ("Node", "string", 1, ".spec.nodeName"),
        ],
    ),
    ("secrets", &[("Type", "string", 0, ".type"), ("Data", "string", 0, "@data"), AGE]),
    ("serviceaccounts", &[AGE]),
    ("services", &[("Type", "string", 0, ".spec.type"), ("Cluster-IP", "string", 0, ".spec.clusterIP"), AGE]),
    ("roles", &[("Created At", "string", 0, ".metadata.creationTimestamp")]),
    ("clusterroles", &[("Created At", "string", 0, ".metadata.creationTimestamp")]),
    ("rolebindings", &[("Role", "string", 0, "@role-ref"), AGE]),
    ("clusterrolebindings", &[("Role", "string", 0, "@role-ref"), AGE]),
    ("mutatingwebhookconfigurations", &[("Webhooks", "integer", 0, "@webhooks"), AGE]),
    ("validatingwebhookconfigurations", &[("Webhooks", "integer", 0, "@webhooks"), AGE]),
];

const AGE: Cell = ("Age", "string", 0, "@age");

/// Fields by which built-in kinds can be selected beside name and namespace.
const FIELDS: &[(&str, &[&str])] = &[
    (
        "events",
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    ),
    (
        "pods",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
    ),
    ("namespaces", &["status.phase"]),
    ("nodes", &["spec.unschedulable"]),
    ("secrets", &["type"]),
    ("certificatesigningrequests", &["spec.signerName"]),
    ("replicasets", &["status.replicas"]),
];

/// All built-in kinds.
pub(crate) fn all() -> Vec<Resource> {
    let mut schemas = Schemas::default();
    ROWS.iter().map(|row| resource(row, &mut schemas)).collect()
}

/// The schema of the root of an object: what is in every object is not its kind's business.
pub(crate) fn root(mut schema: Schema) -> Schema {
    for name in ["apiVersion", "kind", "metadata"] {
        schema.properties.remove(name);
        schema.required.retain(|r| r != name);
    }
    schema.embedded = true;
    schema.kind = Some(Type::Object);
    schema
}

fn resource(row: &Row, schemas: &mut Schemas) -> Resource {
    let schema = if row.message.is_empty() { Schema::any() } else { (*schemas.of(row.message)).clone() };
    let text = |s: &&str| (*s).to_owned();
    let rows = COLUMNS.iter().find(|(plural, _)| *plural == row.plural).map_or(&[AGE][..], |(_, c)| *c);
    let columns = rows
        .iter()
        .map(|(name, kind, priority, path)| Column {
            name: (*name).to_owned(),
            kind: (*kind).to_owned(),
            priority: *priority,
            path: (*path).to_owned(),
            ..Column::default()
        })
        .collect();
    let fields = FIELDS
        .iter()
        .find(|(plural, _)| *plural == row.plural && row.group != "events.k8s.io")
        .map_or(&[][..], |(_, f)| *f);
    let fields = fields
        .iter()
        .map(|f| {
            let path = if *f == "source" { ".source.component".to_owned() } else { format!(".{f}") };
            ((*f).to_owned(), path)
        })
        .collect();
    let version = Version {
        name: row.version.to_owned(),
        served: true,
        schema: Arc::new(root(schema)),
        published: Arc::from(""),
        status: row.subresources.contains(&"status"),
        scale: row.subresources.contains(&"scale").then(|| crate::resource::Scale {
            wanted: ".spec.replicas".into(),
            found: ".status.replicas".into(),
            selector: String::new(),
        }),
        columns,
        fields,
        deprecated: None,
    };
    Resource {
        id: ResourceId(0),
        group: row.group.to_owned(),
        plural: row.plural.to_owned(),
        singular: row.singular.to_owned(),
        kind: row.kind.to_owned(),
        list_kind: format!("{}List", row.kind),
        short: row.short.iter().map(text).collect(),
        categories: if matches!(
            row.plural,
            "pods" | "services" | "deployments" | "daemonsets" | "statefulsets" | "replicasets" | "jobs"
        ) {
            vec!["all".into()]
        } else if row.plural == "customresourcedefinitions" || row.plural.ends_with("webhookconfigurations") {
            vec!["api-extensions".into()]
        } else {
            Vec::new()
        },
        namespaced: matches!(row.scope, 'n' | 'R'),
        custom: false,
        review: matches!(row.scope, 'r' | 'R'),
        subresources: row.subresources,
        message: row.message,
        versions: vec![Arc::new(version)],
        storage: row.version.to_owned(),
    }
}

/// The message of the kind with that name in objects.
pub(crate) fn message(group: &str, kind: &str) -> Option<&'static str> {
    ROWS.iter().find(|row| row.group == group && row.kind == kind).map(|row| row.message)
}
