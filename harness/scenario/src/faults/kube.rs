//! Faults of a hub's API server: what its clients, the service's controllers first of all, must live with.

use super::params::{Param, ParamRow};
use super::{Parameters, family, value};
use crate::time::Span;
use crate::words::{KubePart, KubeVerb, ResourceKind};

/// Which requests or changes a fault is about. All that is said must hold.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct KubeSelect {
    /// Kind of the resource.
    pub resource: Option<ResourceKind>,
    /// Name of the object.
    pub object: Option<String>,
    /// What is asked for.
    pub verb: Option<KubeVerb>,
    /// Which part of the object is written.
    pub part: Option<KubePart>,
    /// So many that fit pass first.
    pub after: u64,
    /// And then it happens so often.
    pub times: u64,
}

impl KubeSelect {
    const RESOURCE: Param<Option<ResourceKind>> = Param::needed().optional();
    const OBJECT: Param<Option<String>> = Param::needed().optional();
    const VERB: Param<Option<KubeVerb>> = Param::needed().optional();
    const PART: Param<Option<KubePart>> = Param::needed().optional();
    const AFTER: Param<u64> = Param::number(0, 1_000_000).or("0");
    const TIMES: Param<u64> = Param::number(1, 1_000_000).or("1");

    pub(super) const ROWS: &'static [ParamRow] = &[
        Self::RESOURCE.row("resource", "only resources of this kind"),
        Self::OBJECT.row("object", "only the resource of this name; of an Agent the host's name"),
        Self::VERB.row("verb", "only requests that do this; watches have no such choice"),
        Self::PART.row("part", "only requests for this part of the object"),
        Self::AFTER.row("after", "so many that fit pass first"),
        Self::TIMES.row("times", "it happens so often"),
    ];

    /// `None` when something of it was refused.
    pub(super) fn read(parameters: &mut dyn Parameters) -> Option<Self> {
        let [resource, object, verb, part, after, times] = Self::ROWS else { return None };
        let (resource, object) = (value(parameters, resource), value(parameters, object));
        let (verb, part) = (value(parameters, verb), value(parameters, part));
        let (after, times) = (value(parameters, after), value(parameters, times));
        Some(Self { resource: resource?, object: object?, verb: verb?, part: part?, after: after?, times: times? })
    }
}

family! {
    /// What goes wrong at a hub's API server.
    KubeInjection in Kube {
        /// a write is refused with 409, as if somebody else had been quicker
        KubeConflict = "kube-conflict" hits [Kube], Time, Any {
            ..about: KubeSelect
        };
        /// requests are answered with an error and not carried out
        KubeError = "kube-error" hits [Kube], Time, Any {
            /// the status of the answer
            status: u16 = Param::number(400, 599).or("503"),
            ..about: KubeSelect
        };
        /// a new object is refused, because the quota of its namespace is used up (403)
        KubeQuota = "kube-quota" hits [Kube], Time, Any {
            ..about: KubeSelect
        };
        /// reads and lists show what was there some time ago
        KubeStale = "kube-stale" hits [Kube], Time, Any {
            /// so old is what they show
            by: Span = Param::needed(),
            ..about: KubeSelect
        };
        /// watches do not tell of a change
        KubeEventLost = "kube-event-lost" hits [Kube], Time, Any {
            ..about: KubeSelect
        };
        /// watches tell of a change twice
        KubeEventTwice = "kube-event-twice" hits [Kube], Time, Any {
            ..about: KubeSelect
        };
        /// watches tell of a change late
        KubeEventLate = "kube-event-late" hits [Kube], Time, Any {
            /// so much later
            by: Span = Param::needed(),
            ..about: KubeSelect
        };
        /// at a change watches end with 410 (Gone): what they knew is too old
        KubeWatchExpired = "kube-watch-expired" hits [Kube], Time, Any {
            ..about: KubeSelect
        };
        /// at a change watches end without a word
        KubeWatchClosed = "kube-watch-closed" hits [Kube], Time, Any {
            ..about: KubeSelect
        };
        /// the API server answers every request with 503
        KubeDown = "kube-down" hits [Kube], Time, Any;
    }
}
