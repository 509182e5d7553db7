//! Faults of a hub's API server: what its clients, the service's controllers first of all, must live with.

use super::params::Param;
use super::{family, selection};
use crate::time::Span;
use crate::words::{HookFailure, HookedKind, KubePart, KubeVerb, LeaseLoss, ResourceKind, Skew};

selection! {
    /// Which requests a fault of the API server is about. All that is said must hold.
    KubeRequests;
    /// only resources of this kind
    resource: Option<ResourceKind> = Param::needed().optional(),
    /// only the resource of this name; of an Agent the host's name
    object: Option<String> = Param::needed().optional(),
    /// of `kube-conflict`, `kube-error` and `kube-slow`: only requests that do this
    verb: Option<KubeVerb> = Param::needed().optional(),
    /// of `kube-conflict`, `kube-error` and `kube-slow`: only requests for this part of the object
    part: Option<KubePart> = Param::needed().optional(),
    /// so many that fit pass first
    after: u64 = Param::number(0, 1_000_000).or("0"),
    /// it happens so often
    times: u64 = Param::number(1, 1_000_000).or("1"),
}

selection! {
    /// Which changes, reads or new objects a fault of the API server is about. All that is said must hold.
    KubeChanges;
    /// only resources of this kind
    resource: Option<ResourceKind> = Param::needed().optional(),
    /// only the resource of this name; of an Agent the host's name
    object: Option<String> = Param::needed().optional(),
    /// so many that fit pass first
    after: u64 = Param::number(0, 1_000_000).or("0"),
    /// it happens so often
    times: u64 = Param::number(1, 1_000_000).or("1"),
}

selection! {
    /// Which writes of objects of one kind a fault of the API server is about. All that is said must hold.
    KubeWrites;
    /// only the object of this name; of an Agent the host's name
    object: Option<String> = Param::needed().optional(),
    /// so many that fit pass first
    after: u64 = Param::number(0, 1_000_000).or("0"),
    /// it happens so often
    times: u64 = Param::number(1, 1_000_000).or("1"),
}

selection! {
    /// Behind which writes a restart of the API server comes: between them and the next. Without any of these it comes at once.
    KubeStored;
    /// behind a write of a resource of this kind
    resource: Option<ResourceKind> = Param::needed().optional(),
    /// behind a write of the resource of this name; of an Agent the host's name
    object: Option<String> = Param::needed().optional(),
    /// so many that fit pass first
    after: u64 = Param::number(0, 1_000_000).or("0"),
    /// it happens so often
    times: u64 = Param::number(1, 1_000_000).or("1"),
}

family! {
    /// What goes wrong at a hub's API server.
    KubeInjection in Kube {
        /// a write is refused with 409, as if somebody else had been quicker
        KubeConflict = "kube-conflict" hits [Kube], Time, Any {
            ..about: KubeRequests
        };
        /// requests are answered with an error and not carried out
        KubeError = "kube-error" hits [Kube], Time, Any {
            /// the status of the answer
            status: u16 = Param::number(400, 599).or("503"),
            ..about: KubeRequests
        };
        /// requests are carried out at once and answered late
        KubeSlow = "kube-slow" hits [Kube], Time, Any {
            /// so much later
            by: Span = Param::needed(),
            ..about: KubeRequests
        };
        /// a new object is refused, because the quota of its namespace is used up (403)
        KubeQuota = "kube-quota" hits [Kube], Time, Any {
            ..about: KubeChanges
        };
        /// an admission webhook of the product gives no answer: writes that it must be asked about are refused (500)
        KubeWebhook = "kube-webhook" hits [Kube], Time, Any {
            /// the kind that it is about; of an Agent it is asked about changes, of the others about new objects, too
            resource: HookedKind = Param::needed(),
            /// what becomes of the call
            failure: HookFailure = Param::needed().or("timeout"),
            /// of `timeout`: the API server gives it up after this
            timeout: Span = Param::needed().or("10s"),
            ..about: KubeWrites
        };
        /// the API server's clock is wrong: when objects were made, changed and deleted is written down with such times
        KubeClock = "kube-clock" hits [Kube], Time, Any {
            /// so much it is off
            by: Span = Param::needed(),
            /// which way
            direction: Skew = Param::needed().or("ahead"),
        };
        /// the service's controllers cannot keep their lease as long as this lasts: the service ends, and is started again
        KubeLeaseLost = "kube-lease-lost" hits [Kube], Time, Any {
            /// why not
            how: LeaseLoss = Param::needed().or("taken"),
        };
        /// whoever writes the lease of the service's controllers is answered late; later than they try, it is lost
        KubeLeaseSlow = "kube-lease-slow" hits [Kube], Time, Any {
            /// so much later
            by: Span = Param::needed(),
        };
        /// lists show what was there some time ago
        KubeStale = "kube-stale" hits [Kube], Time, Any {
            /// so old is what they show
            by: Span = Param::needed(),
            ..about: KubeChanges
        };
        /// watches do not tell of a change
        KubeEventLost = "kube-event-lost" hits [Kube], Time, Any {
            ..about: KubeChanges
        };
        /// watches tell of a change twice
        KubeEventTwice = "kube-event-twice" hits [Kube], Time, Any {
            ..about: KubeChanges
        };
        /// watches tell of a change late
        KubeEventLate = "kube-event-late" hits [Kube], Time, Any {
            /// so much later
            by: Span = Param::needed(),
            ..about: KubeChanges
        };
        /// at a change watches end with 410 (Gone): what they knew is too old
        KubeWatchExpired = "kube-watch-expired" hits [Kube], Time, Any {
            ..about: KubeChanges
        };
        /// at a change watches end without a word
        KubeWatchClosed = "kube-watch-closed" hits [Kube], Time, Any {
            ..about: KubeChanges
        };
        /// the API server restarts: watches and connections end, who goes on with a watch must list again (410), what was stored stays
        KubeRestart = "kube-restart" hits [Kube], Time, Any {
            /// every request gets 503 until it is back
            down: Span = Param::needed().or("3s"),
            ..about: KubeStored
        };
        /// the API server answers every request with 503
        KubeDown = "kube-down" hits [Kube], Time, Any;
    }
}
