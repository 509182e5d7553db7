//! The conformance suite: what the public API of an assisted-service does, as checks that run against any service behind a URL.
//! A check is a row of data ([`table`]); nothing in it knows which service answers. The same checks run against the simulated
//! service and the real one, so a disagreement between the two is a failed check and has a name.
//!
//! * [`table`] is the language of the checks, and the files in `checks/`; [`matcher`] says what an expectation means.
//! * [`script`] performs one check, with hosts of its own, and removes what it has made.
//! * [`suite`] runs many; [`report`] tells what came out; [`target`] is what is known about the service.
//! * [`memory`] runs it over a core of the simulated service in memory, with nothing wrong or with something wrong on purpose.
//! * [`wire`] is how a service is reached: HTTP and the clock on the wall, or a core in memory and a clock that jumps.

mod hosts;
pub mod matcher;
pub mod memory;
pub mod report;
pub mod script;
pub mod suite;
pub mod table;
pub mod target;
pub mod wire;

pub use suite::{CheckOutcome, ConformanceVerdict};
pub use table::{ConformanceCheck, Need};
pub use target::{Pace, Target};

/// Settings that the suite gives to a service of its own, beside those of the time profile: times of the wall clock.
pub const SETTINGS: &[(&str, &str)] = &[
    // Long enough for a busy machine, short enough to wait for.
    ("HOST_MAX_DISCONNECTION_TIME", "8s"),
    // Shorter than a check can wait for it, longer than a check takes for what it does meanwhile.
    ("HOST_INSTALLING_PENDING_USER_ACTION_TIMEOUT", "15s"),
    ("HOST_LOG_PENDING_TIMEOUT", "3s"),
    ("APPROVE_CSRS_REQUEUE_DURATION", "1s"),
    ("HOST_LOG_COLLECTION_TIMEOUT", "8s"),
    ("LOG_COLLECTION_TIMEOUT", "9s"),
    ("LOG_PENDING_TIMEOUT", "10s"),
    // Stages in which no check stays but those of `timers.yaml`.
    ("HOST_STAGE_INSTALLING_TIMEOUT", "25s"),
    ("HOST_STAGE_WRITING_IMAGE_TO_DISK_TIMEOUT", "25s"),
    ("HOST_STAGE_COPYING_REGISTRY_DATA_TO_DISK_TIMEOUT", "25s"),
    ("HOST_STAGE_WAITING_FOR_CONTROL_PLANE_TIMEOUT", "25s"),
    ("HOST_STAGE_WAITING_FOR_BOOTKUBE_TIMEOUT", "25s"),
    ("HOST_STAGE_WAITING_FOR_CONTROLLER_TIMEOUT", "25s"),
    ("HOST_STAGE_REBOOTING_TIMEOUT", "40s"),
    ("HOST_STAGE_WAITING_FOR_IGNITION_TIMEOUT", "25s"),
    ("HOST_STAGE_CONFIGURING_TIMEOUT", "25s"),
    ("HOST_STAGE_JOINED_TIMEOUT", "25s"),
    ("FINALIZING_STAGE_ADDING_ROUTER_CA_TIMEOUT", "15s"),
    ("FINALIZING_STAGE_APPLYING_OLM_MANIFESTS_TIMEOUT", "15s"),
    ("FINALIZING_STAGE_WAITING_FOR_OLM_OPERATORS_CSV_INITIALIZATION_TIMEOUT", "15s"),
    ("FINALIZING_STAGE_WAITING_FOR_OLM_OPERATORS_CSV_TIMEOUT", "15s"),
    ("FINALIZING_STAGE_WAITING_FOR_OLM_OPERATOR_SETUP_JOBS_TIMEOUT", "15s"),
    ("FINALIZING_STAGE_DONE_TIMEOUT", "15s"),
];
