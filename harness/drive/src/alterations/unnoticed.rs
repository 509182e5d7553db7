//! What nobody can notice, and why: alterations that change nothing which anybody could see. Each is named; none is there because it
//! would be hard.

/// Alterations that nobody can notice, for one reason.
#[derive(Clone, Copy, Debug)]
pub struct Unnoticed {
    /// Their names.
    pub names: &'static [&'static str],
    /// Why.
    pub reason: &'static str,
}

/// Why nobody can notice that alteration.
pub fn reason(name: &str) -> Option<&'static str> {
    UNNOTICED.iter().find(|row| row.names.contains(&name)).map(|row| row.reason)
}

/// Rules of the state machines that a run shows to be wrong in a way that no check notices yet: each is work to be done.
pub const OPEN_RULES: &[&str] = &[];

/// All of them. `cargo xtask mutation` says so when one of them is noticed after all.
pub const UNNOTICED: &[Unnoticed] = &[
    Unnoticed {
        names: &[
            "host-rule/4/without",
            "host-source/4/not-from-installing",
            "host-source/4/not-from-installing-in-progress",
            "host-condition/KubeApi/true",
            "host-condition/KubeApi/false",
            "host-condition/ReportsRebooting/false",
        ],
        reason: "\"default host progress changed\" fires instead, and it leads to the same status with the same words and effects; over REST the report is stored as Done, so that this row is not asked",
    },
    Unnoticed {
        names: &["host-rule/76/leads-elsewhere", "host-rule/76/misspeaks"],
        reason: "the registration of an installed host is refused, and where the row leads and what it says is only for one that is taken",
    },
    Unnoticed {
        names: &["host-rule/77/omits-forget-installation"],
        reason: "all that it forgets is a suggested role that is not the host's, and an installation has made both the same",
    },
    Unnoticed {
        names: &["host-rule/78/omits-forget-progress"],
        reason: "before an installation a host has no progress, and its images are forgotten because it leaves the cluster",
    },
    Unnoticed {
        names: &[
            "unbound-host-rule/0/omits-forget-progress",
            "unbound-host-rule/9/omits-forget-progress",
            "unbound-host-rule/9/omits-forget-logs",
        ],
        reason: "a host of the pool has neither progress nor logs: both were forgotten when it left its cluster",
    },
    Unnoticed {
        names: &[
            "steps/discovering/adds-install",
            "steps/binding/adds-install",
            "steps/unbinding/adds-install",
            "steps/unbinding-pending-user-action/adds-install",
            "steps/known-unbound/adds-install",
            "steps/disconnected-unbound/adds-install",
            "steps/insufficient-unbound/adds-install",
            "steps/discovering-unbound/adds-install",
            "steps/day2-discovering/adds-install",
        ],
        reason: "in this status a host has no cluster or no inventory, so it has no disk to install to, and a step without arguments is left out",
    },
    Unnoticed {
        names: &[
            "steps/day2-pending-for-input/lacks-inventory",
            "steps/day2-pending-for-input/lacks-connectivity-check",
            "steps/day2-pending-for-input/lacks-api-vip-connectivity-check",
            "steps/day2-pending-for-input/lacks-tang-connectivity-check",
            "steps/day2-pending-for-input/adds-install",
            "steps/day2-pending-for-input/other-pace",
            "steps/day2-pending-for-input/other-end",
        ],
        reason: "a host of day 2 is never pending-for-input: the one validation whose failure leads there always holds for it",
    },
    Unnoticed {
        names: &["host-condition/StageIsWritingImage/false", "host-condition/StageIsCopyingRegistryData/false"],
        reason: "the row for all other stages fires instead, and it leads to the same status with the same words and effects",
    },
    Unnoticed {
        names: &["host-condition/DiskSpeedUnknown/true", "host-condition/ImagesUnknown/true"],
        reason: "where neither is unknown a row that stands before has fired: both are good, or one has failed",
    },
    Unnoticed {
        names: &["host-condition/RoleCanInstall/true"],
        reason: "when a cluster begins to prepare, the roles of all its hosts are settled, and it takes in no other host",
    },
    Unnoticed {
        names: &[
            "host-rule/18/omits-forget-inventory",
            "host-rule/18/omits-forget-progress",
            "host-rule/18/omits-forget-logs",
            "host-rule/18/omits-leave-cluster",
            "host-rule/19/omits-forget-inventory",
            "host-rule/19/omits-forget-progress",
            "host-rule/19/omits-forget-logs",
            "host-rule/19/omits-leave-cluster",
        ],
        reason: "a host that is reclaimed has forgotten all that and left its cluster when that began: there is nothing left to do",
    },
    Unnoticed {
        names: &[
            "host-source/31/not-from-disconnected",
            "unbound-host-source/2/not-from-disconnected-unbound",
            "host-source/54/not-from-discovering",
        ],
        reason: "there the row only keeps a host where it is, and no other row takes one that is silent, or without an inventory, elsewhere",
    },
    Unnoticed { names: &["host-source/77/not-from-resetting"], reason: "no rule leads to that status" },
    Unnoticed {
        names: &["host-source/32/not-from-resetting-pending-user-action"],
        reason: "a cluster whose hosts are reset is not in error any more: its reset comes first",
    },
    Unnoticed {
        names: &["amount/CLUSTER_MONITOR_INTERVAL/quarter"],
        reason: "who looks more often decides the same, only sooner, and nobody is promised that it waits",
    },
    Unnoticed {
        names: &["conduct/reset-keeps-files"],
        reason: "files are not given out of a cluster that was reset, and the next preparation writes all of them anew",
    },
    Unnoticed {
        names: &["cluster-validation/pull-secret-set/success"],
        reason: "no cluster is made without a pull secret; one that was imported has none, and its validations are not looked at",
    },
    Unnoticed {
        names: &[
            "amount/DEFAULT_STAGE_TIMEOUT/quarter",
            "amount/DEFAULT_STAGE_TIMEOUT/double",
            "amount/DEFAULT_STAGE_TIMEOUT/endless",
        ],
        reason: "it limits two stages in which nobody stays: a host that is done is installed with the next look, and one that failed keeps the stage before",
    },
    Unnoticed {
        names: &["kube-wake/Agent-cluster/not-woken"],
        reason: "the real service means to be woken by an Agent that becomes synced, and is not (it compares a reason with a type): a check that asks for it fails there; what becomes of hosts wakes the cluster all the same",
    },
    Unnoticed {
        names: &["kube-wake/ClusterImageSet-cluster/not-woken", "kube-wake/ConfigMap-infra-env/not-woken"],
        reason: "the real service is not woken by it either: what waits for one looks again ten seconds later, as ours does, and a check can ask for no more",
    },
    Unnoticed {
        names: &["kube-condition/Agent-Cleanup/time-stands"],
        reason: "the condition is false as long as it is there, and with what is cleaned up the Agent goes: it never turns",
    },
    Unnoticed {
        names: &[
            "kube-spec/InfraEnv.clusterRef.name/first",
            "kube-spec/InfraEnv.clusterRef.namespace/first",
            "kube-spec/InfraEnv.cpuArchitecture/first",
            "kube-spec/AgentClassification.labelKey/first",
            "kube-spec/AgentClassification.labelValue/first",
        ],
        reason: "the webhooks of the product refuse to change it once the resource is there",
    },
    Unnoticed {
        names: &["kube-status/PreprovisioningImage.architecture/first"],
        reason: "it is that of the InfraEnv, which the webhooks of the product refuse to change",
    },
    Unnoticed {
        names: &["kube-wake/BareMetalHost-image/not-woken"],
        reason: "all that an image asks of its BareMetalHost it asks again and again by itself, as the real service does: what it waits for comes, only later",
    },
];
