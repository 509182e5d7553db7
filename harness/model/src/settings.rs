//! The service's tunables under their own names, and how long simulated hosts take.
//!
//! [`Settings`] is what the real service reads from its environment, as typed fields; [`Constants`] is what it has compiled
//! in. Both are scaled together, so that a time profile keeps every ratio. [`HostTiming`] is the hosts' side of the same
//! thing, and a [`TimeProfile`] ties the two together. Durations are written as Go writes them (`1h2m3.5s`, `133ms`).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use vlab_api::types::{
    FinalizingStage, HostStage, ReleaseImage, VersionedClusterHostRequirementsDetails, VersionedHostRequirements,
};

// --- durations as Go writes them -----------------------------------------------------------------------------------

/// Text that is no Go duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration: {reason}; write for example 90s, 5m, 1h30m or 133ms")]
pub struct BadDuration {
    /// What was found.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// Reads a duration in Go's form: decimal numbers with a unit each (`ns`, `us`, `ms`, `s`, `m`, `h`), or a bare `0`.
/// Negative ones are refused, because none of the tunables has a meaning below zero. What is finer than a nanosecond is cut.
pub fn parse_duration(text: &str) -> Result<Duration, BadDuration> {
    let bad = |reason| BadDuration { text: text.to_owned(), reason };
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.starts_with('-') {
        return Err(bad("it is negative"));
    }
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(bad("it is empty"));
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let unit_nanos: u128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "" => return Err(bad("a number has no unit")),
            _ => return Err(bad("a unit is not one of ns, us, ms, s, m, h")),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(bad("a unit has no number before it"));
        }
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| bad("a number is too large"))? };
        nanos =
            whole.checked_mul(unit_nanos).and_then(|n| nanos.checked_add(n)).ok_or_else(|| bad("it is too long"))?;
        let mut digit_nanos = unit_nanos;
        for digit in fraction.bytes() {
            digit_nanos /= 10;
            nanos = nanos.saturating_add(u128::from(digit - b'0') * digit_nanos);
        }
        rest = after;
    }
    // Go's durations are 63 bits of nanoseconds.
    match i64::try_from(nanos) {
        Ok(_) => Ok(Duration::from_nanos_u128(nanos)),
        Err(_) => Err(bad("it is longer than 292 years")),
    }
}

/// Writes a duration as Go does: `0s`, `133ms`, `1.5s`, `8m0s`, `1h2m3.5s`.
pub fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let decimal = |value: u128, unit: u128, suffix: &str| {
        let (whole, rest) = (value / unit, value % unit);
        if rest == 0 {
            return format!("{whole}{suffix}");
        }
        let width = unit.ilog10() as usize;
        let fraction = format!("{rest:0width$}");
        format!("{whole}.{}{suffix}", fraction.trim_end_matches('0'))
    };
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => decimal(nanos, 1_000, "µs"),
        1_000_000..1_000_000_000 => decimal(nanos, 1_000_000, "ms"),
        _ => {
            let (minutes, rest) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
            let seconds = decimal(rest, 1_000_000_000, "s");
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, m) => format!("{m}m{seconds}"),
                (h, m) => format!("{h}h{m}m{seconds}"),
            }
        }
    }
}

/// A duration divided by a number, cut to whole microseconds, which is what the project's clock can tell apart; a duration
/// that was not zero stays at least one microsecond, so that scaling never turns a timer off.
fn divide(duration: Duration, divisor: f64) -> Duration {
    if duration.is_zero() {
        return duration;
    }
    let micros = (duration.as_secs_f64() / divisor * 1e6).round().max(1.0);
    // Longer than this is out of reach of the clock anyway.
    Duration::from_micros(if micros >= 9e18 { 9_000_000_000_000_000_000 } else { micros as u64 })
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn mins(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

const fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3600)
}

// --- one tunable --------------------------------------------------------------------------------------------------

/// A value that can be written as the text of one variable.
trait Variable: Sized {
    /// Is it a length of time?
    const IS_TIME: bool = false;
    /// Is it a length of time or another amount?
    const IS_AMOUNT: bool = Self::IS_TIME;

    fn read(text: &str) -> Result<Self, String>;
    fn write(&self) -> String;
    /// Divides what is a time.
    fn divide(&mut self, _divisor: f64) {}
    /// Multiplies what is an amount.
    fn multiply(&mut self, factor: f64) {
        self.divide(1.0 / factor);
    }
}

impl Variable for Duration {
    const IS_TIME: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        parse_duration(text).map_err(|e| e.to_string())
    }
    fn write(&self) -> String {
        format_duration(*self)
    }
    fn divide(&mut self, divisor: f64) {
        *self = divide(*self, divisor);
    }
}

/// Empty text: not set.
impl Variable for Option<Duration> {
    const IS_TIME: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { Duration::read(text).map(Some) }
    }
    fn write(&self) -> String {
        self.as_ref().map(Variable::write).unwrap_or_default()
    }
    fn divide(&mut self, divisor: f64) {
        if let Some(duration) = self {
            Variable::divide(duration, divisor);
        }
    }
}

/// Go's words for truth.
impl Variable for bool {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
            _ => Err(format!("{text:?} is neither true nor false")),
        }
    }
    fn write(&self) -> String {
        self.to_string()
    }
}

impl Variable for i64 {
    const IS_AMOUNT: bool = true;

    fn multiply(&mut self, factor: f64) {
        *self = (*self as f64 * factor).round() as i64;
    }
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("{text:?} is not a whole number"))
    }
    fn write(&self) -> String {
        self.to_string()
    }
}

impl Variable for String {
    fn read(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
    fn write(&self) -> String {
        self.clone()
    }
}

/// Words with commas between them.
impl Variable for Vec<String> {
    fn read(text: &str) -> Result<Self, String> {
        Ok(text.split(',').map(str::trim).filter(|w| !w.is_empty()).map(str::to_owned).collect())
    }
    fn write(&self) -> String {
        self.join(",")
    }
}

macro_rules! json_variable {
    ($($ty:ty),*) => { $(impl Variable for $ty {
        fn read(text: &str) -> Result<Self, String> {
            serde_json::from_str(text).map_err(|e| format!("it is not JSON of the expected form: {e}"))
        }
        fn write(&self) -> String {
            serde_json::to_string(self).unwrap_or_default()
        }
    })* };
}
json_variable!(Vec<ReleaseImage>);

impl Variable for Vec<VersionedHostRequirements> {
    fn read(text: &str) -> Result<Self, String> {
        let rows: Self = serde_json::from_str(text).map_err(|e| format!("it is not JSON of the expected form: {e}"))?;
        whole_requirements(&rows)?;
        Ok(rows)
    }
    fn write(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The real service does not start with requirements that are not whole: a row for all versions must tell cores, memory and disk of
/// masters, workers and single nodes (arbiters and edge workers are as workers where nothing is said), and the rows of versions
/// change parts of it.
fn whole_requirements(rows: &[VersionedHostRequirements]) -> Result<(), String> {
    let version = |row: &VersionedHostRequirements| row.version.clone().unwrap_or_default();
    let default = rows.iter().find(|row| version(row) == "default" && row.match_type.as_deref() != Some("min_version"));
    let mut seen = std::collections::BTreeSet::new();
    for row in rows {
        let name = version(row);
        if name.is_empty() {
            return Err("a row has no `version`; write `default` for all versions".into());
        }
        let at_least = match row.match_type.as_deref() {
            None | Some("" | "exact") => false,
            Some("min_version") => true,
            Some(other) => {
                return Err(format!("`match_type` of {name} is {other:?}: expected `exact` or `min_version`"));
            }
        };
        if !seen.insert((at_least, name.clone())) {
            return Err(format!("two rows are for {name}"));
        }
        if at_least && default.is_none() {
            return Err(format!("the row from {name} on needs one for `default` beside it"));
        }
        // What a row does not say is taken from the one for all versions.
        let base = default.filter(|base| !std::ptr::eq(*base, row));
        let as_worker = |role: &Option<VersionedClusterHostRequirementsDetails>, row: &VersionedHostRequirements| {
            role.clone().or_else(|| row.worker.clone())
        };
        let roles = |row: &VersionedHostRequirements| {
            [
                ("master", row.master.clone()),
                ("arbiter", as_worker(&row.arbiter, row)),
                ("worker", row.worker.clone()),
                ("sno", row.sno.clone()),
                ("edge-worker", as_worker(&row.edge_worker, row)),
            ]
        };
        let bases = base.map(roles);
        for (number, (role, own)) in roles(row).into_iter().enumerate() {
            let base = bases.as_ref().and_then(|bases| bases[number].1.clone());
            if own.is_none() && base.is_none() {
                return Err(format!("nothing is said of the role {role} for the version {name}"));
            }
            let value = |of: fn(&VersionedClusterHostRequirementsDetails) -> Option<i64>| {
                own.as_ref().and_then(of).or_else(|| base.as_ref().and_then(of)).unwrap_or(0)
            };
            for (what, amount) in [
                ("cpu_cores", value(|r| r.cpu_cores)),
                ("ram_mib", value(|r| r.ram_mib)),
                ("disk_size_gb", value(|r| r.disk_size_gb)),
            ] {
                if amount <= 0 {
                    return Err(format!("`{what}` of the role {role} for the version {name} is not above 0"));
                }
            }
            if value(|r| r.installation_disk_speed_threshold_ms) < 0 {
                return Err(format!(
                    "`installation_disk_speed_threshold_ms` of the role {role} for the version {name} is below 0"
                ));
            }
        }
    }
    Ok(())
}

/// A variable that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// No such name.
    #[error("the service has no setting {name}{}", nearest.map(|n| format!("; did you mean {n}?")).unwrap_or_default())]
    Unknown {
        /// What was given.
        name: String,
        /// The known name that looks most like it.
        nearest: Option<&'static str>,
    },
    /// The real service knows the name, but nothing here acts on it.
    #[error("the real service has a setting {name}, but the simulated one has nothing that it could change")]
    NotSimulated {
        /// What was given.
        name: String,
    },
    /// The value cannot be read.
    #[error("setting {name}: {reason}")]
    BadValue {
        /// Name of the setting.
        name: &'static str,
        /// What is wrong.
        reason: String,
    },
}

macro_rules! variables {
    (
        $(#[$meta:meta])*
        $outer:ident $(with $extra:ident: $extra_ty:ty)? {
            $( $(#[$field_meta:meta])* $env:literal => $field:ident: $ty:ty = $default:expr; )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $outer {
            $( $(#[$field_meta])* #[doc = concat!("\n\nName: `", $env, "`.")] pub $field: $ty, )*
            $(
                /// What is compiled into the real service.
                pub $extra: $extra_ty,
            )?
        }

        impl Default for $outer {
            fn default() -> Self {
                Self { $( $field: $default, )* $($extra: Default::default(),)? }
            }
        }

        impl $outer {
            /// All names, in the order of the fields.
            pub const NAMES: &'static [&'static str] = &[$($env),*];

            /// Takes one value; `None` when there is no such name.
            fn set(&mut self, name: &str, text: &str) -> Option<Result<(), SettingError>> {
                match name {
                    $( $env => Some(match Variable::read(text) {
                        Ok(value) => { self.$field = value; Ok(()) }
                        Err(reason) => Err(SettingError::BadValue { name: $env, reason }),
                    }), )*
                    _ => None,
                }
            }

            /// Is the variable of that name a length of time?
            pub fn is_time(name: &str) -> bool {
                match name {
                    $( $env => <$ty as Variable>::IS_TIME, )*
                    _ => false,
                }
            }

            /// Is the variable of that name a length of time or another amount?
            pub fn is_amount(name: &str) -> bool {
                match name {
                    $( $env => <$ty as Variable>::IS_AMOUNT, )*
                    _ => false,
                }
            }

            /// Multiplies the amount of that name; nothing where there is no such name.
            fn multiply_one(&mut self, name: &str, factor: f64) {
                match name {
                    $( $env => Variable::multiply(&mut self.$field, factor), )*
                    _ => {}
                }
            }

            /// Names and values, in the order of the fields.
            fn vars(&self) -> Vec<(&'static str, String)> {
                vec![$( ($env, Variable::write(&self.$field)), )*]
            }

            /// Divides all times.
            fn divide(&mut self, divisor: f64) {
                $( Variable::divide(&mut self.$field, divisor); )*
                $( self.$extra.divide(divisor); )?
            }
        }
    };
}

variables! {
    /// What the real service has compiled in. It cannot be set there; a time profile scales it with the rest, because ratios
    /// between the service's times would change otherwise.
    Constants {
        /// A host may be in `installing` for so long without reporting a stage; then it goes to `error`.
        "INSTALLING_WITHOUT_PROGRESS" => installing_without_progress: Duration = mins(20);
        /// A host may be in `reclaiming` or `reclaiming-rebooting` for so long.
        "RECLAIM_TIMEOUT" => reclaim_timeout: Duration = mins(60);
        /// Stage timer of `Rebooting` on a single node.
        "SNO_REBOOTING_TIMEOUT" => sno_rebooting_timeout: Duration = mins(80);
        /// The bootstrap may be silent for so much longer than others.
        "BOOTSTRAP_EXTRA_DISCONNECTION" => bootstrap_extra_disconnection: Duration = mins(2);
        /// Stage timer of stages that have no setting.
        "DEFAULT_STAGE_TIMEOUT" => default_stage_timeout: Duration = mins(60);
        /// The stage timer of a host that waits while its cluster waits for the user is restarted this often.
        "STAGE_TIMER_REFRESH" => stage_timer_refresh: Duration = mins(1);
        /// Added to the longer of the two preparation checks for the least time that a host gets to prepare.
        "HOST_PREPARE_MARGIN" => host_prepare_margin: Duration = mins(1);
        /// The same for a cluster.
        "CLUSTER_PREPARE_MARGIN" => cluster_prepare_margin: Duration = mins(2);
        /// `next_instruction_seconds` in most states. Whole seconds on the wire, therefore never scaled: the hosts scale it.
        "NEXT_INSTRUCTION_SECONDS" => next_instruction_seconds: i64 = 60;
        /// `next_instruction_seconds` of hosts that are disconnected, in error or resetting. Never scaled.
        "NEXT_INSTRUCTION_SECONDS_BACKED_OFF" => next_instruction_seconds_backed_off: i64 = 120;
        /// The service's clock may be ahead of a host's by this (validation `time-synced-between-host-and-service`). Never
        /// scaled: both are wall clocks.
        "SERVICE_AHEAD_MINUTES" => service_ahead_minutes: i64 = 20;
        /// A host's clock may be ahead of the service's by this. Never scaled.
        "HOST_AHEAD_MINUTES" => host_ahead_minutes: i64 = 60;
        /// Clocks of a cluster's hosts may differ by this (validation `ntp-server-configured`). Never scaled.
        "HOSTS_CLOCK_SKEW_MINUTES" => hosts_clock_skew_minutes: i64 = 4;
        /// Rows touched within this are looked at on every monitor run.
        "MONITOR_ACTIVE_WINDOW" => monitor_active_window: Duration = mins(5);
        /// Rows touched within this are looked at on the runs at a minute's boundary.
        "MONITOR_QUIET_WINDOW" => monitor_quiet_window: Duration = mins(15);
        /// How often the quiet window is used.
        "MONITOR_QUIET_PERIOD" => monitor_quiet_period: Duration = mins(1);
        /// How often all rows are looked at.
        "MONITOR_FULL_PERIOD" => monitor_full_period: Duration = mins(5);
        /// A DHCP lease for VIPs that takes longer is warned about.
        "DHCP_VIP_LEASE_WARNING" => dhcp_vip_lease_warning: Duration = mins(2);
        /// Connectivity checks per minute and cluster, when it has more hosts than this.
        "CONNECTIVITY_CHECKS_PER_MINUTE" => connectivity_checks_per_minute: i64 = 150;
        /// Timer of the finalizing stage that waits for the cluster's operators, with hard timeouts, when no variable sets it.
        "WAITING_FOR_CLUSTER_OPERATORS_HARD" => waiting_for_cluster_operators_hard: Duration = hours(10);
        /// The same with soft timeouts.
        "WAITING_FOR_CLUSTER_OPERATORS_SOFT" => waiting_for_cluster_operators_soft: Duration = mins(70);
        /// `timeout_seconds` of a monitored operator that comes with the product. Whole seconds on the wire, therefore never scaled.
        "BUILTIN_OPERATOR_TIMEOUT_SECONDS" => builtin_operator_timeout_seconds: i64 = 3600;
    }
}

variables! {
    /// All that tunes the service: what its environment says, one member for each variable, and what is compiled in.
    ///
    /// Serialised it is a map of the variables' names to their text, plus `constants`, a map of the same form.
    Settings with constants: Constants {
        // monitors
        /// Period of the host monitor.
        "HOST_MONITOR_INTERVAL" => host_monitor_interval: Duration = secs(8);
        /// Period of the cluster monitor.
        "CLUSTER_MONITOR_INTERVAL" => cluster_monitor_interval: Duration = secs(10);
        /// Clusters or infra-envs per page of the host monitor.
        "HOST_MONITOR_BATCH_SIZE" => host_monitor_batch_size: i64 = 100;
        /// Clusters per page of the cluster monitor.
        "CLUSTER_MONITOR_BATCH_SIZE" => cluster_monitor_batch_size: i64 = 100;
        /// Time that one cluster may take in the monitor.
        "CLUSTER_MONITOR_PER_CLUSTER_DEADLINE" => cluster_monitor_per_cluster_deadline: Duration = mins(2);
        /// Pause for a cluster that took longer.
        "CLUSTER_MONITOR_BLACKLIST_DURATION" => cluster_monitor_blacklist_duration: Duration = mins(15);
        /// Time that one run of the cluster monitor may take.
        "CLUSTER_MONITOR_CYCLE_DEADLINE" => cluster_monitor_cycle_deadline: Duration = mins(4);
        /// `/health` fails when a monitor has not begun a run for so long.
        "LIVENESS_VALIDATION_TIMEOUT" => liveness_validation_timeout: Duration = mins(5);

        // hosts
        /// A host that has not asked for instructions for longer is disconnected.
        "HOST_MAX_DISCONNECTION_TIME" => host_max_disconnection_time: Duration = mins(3);
        /// Time for a host to prepare; see [`Settings::host_prepare_timeout`] for what counts.
        "PREPARE_FOR_INSTALLATION_HOST_TIMEOUT" => prepare_for_installation_host_timeout: Duration = mins(8);
        /// Limit of the disk speed check, sent to the agent.
        "DISK_CHECK_TIMEOUT" => disk_check_timeout: Duration = mins(8);
        /// Limit of the image availability check, sent to the agent.
        "IMAGE_AVAILABILITY_TIMEOUT" => image_availability_timeout: Duration = mins(16);
        /// A host that waits for the user for longer goes to `error`, where the cluster can do without it.
        "HOST_INSTALLING_PENDING_USER_ACTION_TIMEOUT" => host_installing_pending_user_action_timeout: Duration = mins(60);
        /// Stage timer.
        "HOST_STAGE_STARTING_INSTALLATION_TIMEOUT" => host_stage_starting_installation_timeout: Duration = mins(30);
        /// Stage timer.
        "HOST_STAGE_INSTALLING_TIMEOUT" => host_stage_installing_timeout: Duration = mins(60);
        /// Stage timer.
        "HOST_STAGE_WRITING_IMAGE_TO_DISK_TIMEOUT" => host_stage_writing_image_to_disk_timeout: Duration = mins(30);
        /// Stage timer.
        "HOST_STAGE_COPYING_REGISTRY_DATA_TO_DISK_TIMEOUT" => host_stage_copying_registry_data_to_disk_timeout: Duration = mins(90);
        /// Stage timer.
        "HOST_STAGE_WAITING_FOR_CONTROL_PLANE_TIMEOUT" => host_stage_waiting_for_control_plane_timeout: Duration = mins(60);
        /// Stage timer.
        "HOST_STAGE_WAITING_FOR_BOOTKUBE_TIMEOUT" => host_stage_waiting_for_bootkube_timeout: Duration = mins(60);
        /// Stage timer.
        "HOST_STAGE_WAITING_FOR_CONTROLLER_TIMEOUT" => host_stage_waiting_for_controller_timeout: Duration = mins(60);
        /// Stage timer of hosts of multi-node clusters; see [`Constants::sno_rebooting_timeout`] for the single node.
        "HOST_STAGE_REBOOTING_TIMEOUT" => host_stage_rebooting_timeout: Duration = mins(40);
        /// Stage timer.
        "HOST_STAGE_WAITING_FOR_IGNITION_TIMEOUT" => host_stage_waiting_for_ignition_timeout: Duration = hours(24);
        /// Stage timer.
        "HOST_STAGE_CONFIGURING_TIMEOUT" => host_stage_configuring_timeout: Duration = mins(60);
        /// Stage timer.
        "HOST_STAGE_JOINED_TIMEOUT" => host_stage_joined_timeout: Duration = mins(60);
        /// A failed host's logs may take so long from when they were asked for.
        "HOST_LOG_COLLECTION_TIMEOUT" => host_log_collection_timeout: Duration = mins(10);
        /// A failed host's logs must be asked for within this.
        "HOST_LOG_PENDING_TIMEOUT" => host_log_pending_timeout: Duration = mins(2);
        /// Read by the real service and used by none of its present rules.
        "RESET_CLUSTER_TIMEOUT" => reset_cluster_timeout: Duration = mins(3);
        /// Roles are chosen automatically.
        "ENABLE_AUTO_ASSIGN" => enable_auto_assign: bool = true;
        /// MAC of the host that shall be the bootstrap; empty: the service chooses.
        "BOOTSTRAP_HOST_MAC" => bootstrap_host_mac: String = String::new();
        /// Bridges, veth pairs and the like are kept in the stored inventory.
        "ENABLE_VIRTUAL_INTERFACES" => enable_virtual_interfaces: bool = false;
        /// Host validations that are switched off.
        "DISABLED_HOST_VALIDATIONS" => disabled_host_validations: Vec<String> = Vec::new();
        /// Step types that are never sent.
        "DISABLED_STEPS" => disabled_steps: Vec<String> = Vec::new();
        /// Above 0: the agent is asked to cut its inventory to this size.
        "AGENT_INVENTORY_MAX_SIZE" => agent_inventory_max_size: i64 = 0;
        /// Above 0: the agent is asked to leave out smaller disks.
        "AGENT_INVENTORY_DISK_MIN_SIZE" => agent_inventory_disk_min_size: i64 = 0;

        // clusters
        /// Time for a cluster to prepare; see [`Settings::cluster_prepare_timeout`] for what counts.
        "PREPARE_FOR_INSTALLATION_TIMEOUT" => prepare_for_installation_timeout: Duration = mins(10);
        /// Time for a whole installation.
        "INSTALLATION_TIMEOUT" => installation_timeout: Duration = hours(24);
        /// Time in `finalizing`, with hard timeouts.
        "FINALIZING_TIMEOUT" => finalizing_timeout: Duration = hours(5);
        /// Finalizing stage timer. Not set: 10 h with hard timeouts, 70 m with soft ones.
        "FINALIZING_STAGE_WAITING_FOR_CLUSTER_OPERATORS_TIMEOUT" => finalizing_stage_waiting_for_cluster_operators_timeout: Option<Duration> = None;
        /// Finalizing stage timer.
        "FINALIZING_STAGE_ADDING_ROUTER_CA_TIMEOUT" => finalizing_stage_adding_router_ca_timeout: Duration = mins(70);
        /// Finalizing stage timer.
        "FINALIZING_STAGE_APPLYING_OLM_MANIFESTS_TIMEOUT" => finalizing_stage_applying_olm_manifests_timeout: Duration = mins(10);
        /// Finalizing stage timer.
        "FINALIZING_STAGE_WAITING_FOR_OLM_OPERATORS_CSV_INITIALIZATION_TIMEOUT" => finalizing_stage_waiting_for_olm_operators_csv_initialization_timeout: Duration = mins(70);
        /// Finalizing stage timer.
        "FINALIZING_STAGE_WAITING_FOR_OLM_OPERATORS_CSV_TIMEOUT" => finalizing_stage_waiting_for_olm_operators_csv_timeout: Duration = mins(70);
        /// Finalizing stage timer.
        "FINALIZING_STAGE_WAITING_FOR_OLM_OPERATOR_SETUP_JOBS_TIMEOUT" => finalizing_stage_waiting_for_olm_operator_setup_jobs_timeout: Duration = mins(10);
        /// Finalizing stage timer.
        "FINALIZING_STAGE_DONE_TIMEOUT" => finalizing_stage_done_timeout: Duration = mins(70);
        /// The controller's logs may take so long from when they were asked for.
        "LOG_COLLECTION_TIMEOUT" => log_collection_timeout: Duration = mins(60);
        /// The controller's logs must be asked for within this.
        "LOG_PENDING_TIMEOUT" => log_pending_timeout: Duration = mins(10);
        /// Stage timers warn instead of failing (where the cluster's organisation has them, too).
        "ENABLE_SOFT_TIMEOUTS" => enable_soft_timeouts: bool = false;
        /// Installers save the reboot for which the machine-config operator would ask (from 4.15 on).
        "ENABLE_SKIP_MCO_REBOOT" => enable_skip_mco_reboot: bool = true;
        /// New clusters have the operator `cvo`.
        "CHECK_CLUSTER_VERSION" => check_cluster_version: bool = false;
        /// Cluster validations that are switched off.
        "DISABLED_CLUSTER_VALIDATIONS" => disabled_cluster_validations: Vec<String> = Vec::new();
        /// Two masters and an arbiter are allowed.
        "TNA_CLUSTERS_SUPPORT" => tna_clusters_support: bool = true;
        /// Two masters with fencing are allowed.
        "TNF_CLUSTERS_SUPPORT" => tnf_clusters_support: bool = false;

        // bare metal on a hub
        /// The service and metal3 share hosts, where the hub's operator is new enough.
        "ALLOW_CONVERGED_FLOW" => allow_converged_flow: bool = true;
        /// Image of metal3's agent for a discovery image, where the hub names none.
        "IRONIC_AGENT_IMAGE" => ironic_agent_image: String = "quay.io/openshift-release-dev/ocp-v4.0-art-dev@sha256:d3f1d4d3cd5fbcf1b9249dd71d01be4b901d337fdc5f8f66569eb71df4d9d446".to_owned();

        // background work
        /// Period of the purge of deleted rows.
        "DELETION_WORKER_INTERVAL" => deletion_worker_interval: Duration = hours(1);
        /// Period of the purge of orphaned infra-envs.
        "INFRAENV_DELETION_WORKER_INTERVAL" => infraenv_deletion_worker_interval: Duration = hours(1);
        /// Period of the removal of inactive clusters.
        "DEREGISTER_WORKER_INTERVAL" => deregister_worker_interval: Duration = hours(1);
        /// Deleted rows are purged.
        "ENABLE_DELETE_UNREGISTER_GC" => enable_delete_unregister_gc: bool = true;
        /// Inactive clusters are removed.
        "ENABLE_DEREGISTER_INACTIVE_GC" => enable_deregister_inactive_gc: bool = true;
        /// Deleted rows are kept for so long.
        "DELETED_UNREGISTERED_AFTER" => deleted_unregistered_after: Duration = hours(72);
        /// Clusters that are not touched are kept for so long.
        "DELETED_INACTIVE_AFTER" => deleted_inactive_after: Duration = hours(480);
        /// Infra-envs that are not touched are kept for so long.
        "INFRAENV_DELETED_INACTIVE_AFTER" => infraenv_deleted_inactive_after: Duration = hours(480);
        /// Clusters per run of the garbage collectors.
        "MAX_GC_CLUSTERS_PER_INTERVAL" => max_gc_clusters_per_interval: i64 = 100;
        /// Infra-envs per run of the garbage collectors.
        "MAX_GC_INFRAENVS_PER_INTERVAL" => max_gc_infraenvs_per_interval: i64 = 100;
        /// Connections to the database.
        "DB_MAX_OPEN_CONNECTIONS" => db_max_open_connections: i64 = 90;

        // networks and hardware
        /// What hosts need, by version and role. The real service's default is an empty list, with which no host is ever
        /// refreshed; here it is the list that the real one is deployed with.
        "HW_VALIDATOR_REQUIREMENTS" => hw_validator_requirements: Vec<VersionedHostRequirements> = stock_requirements();
        /// Product names that make an aarch64 worker an edge worker.
        "EDGE_WORKERS_PRODUCT_NAMES" => edge_workers_product_names: Vec<String> = vec!["BlueField SoC".to_owned()];
        /// Cluster network of new clusters.
        "CLUSTER_NETWORK_CIDR" => cluster_network_cidr: String = "10.128.0.0/14".to_owned();
        /// Its host prefix.
        "CLUSTER_NETWORK_HOST_PREFIX" => cluster_network_host_prefix: i64 = 23;
        /// The same for IPv6.
        "CLUSTER_NETWORK_CIDR_IPV6" => cluster_network_cidr_ipv6: String = "fd01::/48".to_owned();
        /// Its host prefix.
        "CLUSTER_NETWORK_HOST_PREFIX_IPV6" => cluster_network_host_prefix_ipv6: i64 = 64;
        /// Service network of new clusters.
        "SERVICE_NETWORK_CIDR" => service_network_cidr: String = "172.30.0.0/16".to_owned();
        /// The same for IPv6.
        "SERVICE_NETWORK_CIDR_IPV6" => service_network_cidr_ipv6: String = "fd02::/112".to_owned();
        /// IPv6 is allowed.
        "IPV6_SUPPORT" => ipv6_support: bool = true;
        /// Disk encryption is allowed.
        "DISK_ENCRYPTION_SUPPORT" => disk_encryption_support: bool = true;
        /// How often controllers ask a cluster about a host that is joining it.
        "APPROVE_CSRS_REQUEUE_DURATION" => approve_csrs_requeue_duration: Duration = mins(1);
        /// The single node resolves its own names; its DNS validations are dropped.
        "ENABLE_SINGLE_NODE_DNSMASQ" => enable_single_node_dnsmasq: bool = false;
        /// Delay that new infra-envs insert before static networks are configured, in seconds.
        "NETWORK_DISCOVERY_DELAY_SECONDS" => network_discovery_delay_seconds: i64 = 0;
        /// NTP server of clusters that name none.
        "NTP_DEFAULT_SERVER" => ntp_default_server: String = String::new();

        // requests and images
        /// Requests with members that the API does not have are refused.
        "ENABLE_REJECT_UNKNOWN_FIELDS" => enable_reject_unknown_fields: bool = true;
        /// Agents of another version are told to upgrade.
        "ENABLE_UPGRADE_AGENT" => enable_upgrade_agent: bool = true;
        /// The agent's image; agents must send exactly this as their version.
        "AGENT_DOCKER_IMAGE" => agent_docker_image: String = "quay.io/edge-infrastructure/assisted-installer-agent:latest".to_owned();
        /// The installer's image.
        "INSTALLER_IMAGE" => installer_image: String = "quay.io/edge-infrastructure/assisted-installer:latest".to_owned();
        /// The controller's image.
        "CONTROLLER_IMAGE" => controller_image: String = "quay.io/edge-infrastructure/assisted-installer-controller:latest".to_owned();
        /// Start limit of the agent's unit in the discovery ignition.
        "AGENT_TIMEOUT_START" => agent_timeout_start: Duration = mins(10);
        /// Agents do not verify the service's certificate.
        "SKIP_CERT_VERIFICATION" => skip_cert_verification: bool = false;
        /// Registries that need no entry in a pull secret.
        "PUBLIC_CONTAINER_REGISTRIES" => public_container_registries: Vec<String> = vec!["quay.io".to_owned(), "registry.ci.openshift.org".to_owned()];
        /// Releases that can be installed. The real service's default is an empty list; here it is one production release of
        /// each of the last versions.
        "RELEASE_IMAGES" => release_images: Vec<ReleaseImage> = stock_releases();
        /// URL of the service as the hosts see it; empty: the URL under which it was started.
        "SERVICE_BASE_URL" => service_base_url: String = String::new();
        /// URL of the image service; empty: none.
        "IMAGE_SERVICE_BASE_URL" => image_service_base_url: String = String::new();
        /// Versions that are left out of the list of supported ones.
        "IGNORED_OPENSHIFT_VERSIONS" => ignored_openshift_versions: Vec<String> = Vec::new();
        /// From this version on static networks are configured by the host's own nmstate service.
        "MIN_VERSION_FOR_NMSTATE_SERVICE" => min_version_for_nmstate_service: String = "4.18".to_owned();
        /// Life of an image's token.
        "IMAGE_EXPIRATION_TIME" => image_expiration_time: Duration = hours(4);
    }
}

/// What hosts need where nobody says otherwise: the list that the real service is deployed with.
fn stock_requirements() -> Vec<VersionedHostRequirements> {
    let role = |cpu_cores, ram_mib, disk_size_gb, network: Option<(f64, f64)>| {
        Some(VersionedClusterHostRequirementsDetails {
            cpu_cores: Some(cpu_cores),
            ram_mib: Some(ram_mib),
            disk_size_gb: Some(disk_size_gb),
            installation_disk_speed_threshold_ms: Some(10),
            network_latency_threshold_ms: network.map(|n| n.0),
            packet_loss_percentage: network.map(|n| n.1),
        })
    };
    vec![
        VersionedHostRequirements {
            version: Some("default".to_owned()),
            match_type: None,
            master: role(4, 16384, 100, Some((100.0, 0.0))),
            arbiter: role(2, 8192, 50, Some((1000.0, 0.0))),
            worker: role(2, 8192, 100, Some((1000.0, 10.0))),
            sno: role(8, 16384, 100, None),
            edge_worker: role(2, 8192, 15, None),
        },
        // A single node needs fewer cores from this version on; the rest is as above.
        VersionedHostRequirements {
            version: Some("4.22".to_owned()),
            match_type: Some("min_version".to_owned()),
            sno: Some(VersionedClusterHostRequirementsDetails { cpu_cores: Some(4), ..Default::default() }),
            ..Default::default()
        },
    ]
}

/// The version that the real service offers first.
const STOCK_DEFAULT: &str = "4.22";

/// Releases that can be installed where nobody says otherwise: the newest of each version that the real service is deployed with
/// (`harness/facts/tables/releases.yaml`; a test compares both).
fn stock_releases() -> Vec<ReleaseImage> {
    [
        ("4.16", "4.16.68", "maintenance"),
        ("4.17", "4.17.56", "maintenance"),
        ("4.18", "4.18.52", "production"),
        ("4.19", "4.19.42", "production"),
        ("4.20", "4.20.33", "production"),
        ("4.21", "4.21.28", "production"),
        ("4.22", "4.22.9", "production"),
        ("5.0", "5.0.0-ec.5", "beta"),
    ]
    .into_iter()
    .map(|(minor, version, support)| ReleaseImage {
        openshift_version: minor.to_owned(),
        cpu_architecture: "x86_64".to_owned(),
        cpu_architectures: Some(vec!["x86_64".to_owned()]),
        url: format!("quay.io/openshift-release-dev/ocp-release:{version}-x86_64"),
        version: version.to_owned(),
        default: Some(minor == STOCK_DEFAULT),
        support_level: Some(support.to_owned()),
    })
    .collect()
}

/// Names that the real service reads and that nothing in a simulated one could act on.
const NOT_SIMULATED: &[&str] = &[
    "ALLOWED_DOMAINS",
    "AUTH_TYPE",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "CLUSTER_EVENTS_UPLOADER_INTERVAL",
    "CNV_SNO_POOL_SIZE_REQUEST_HPP_GIB",
    "CREATE_S3_BUCKET",
    "DATA_UPLOAD_ENDPOINT",
    "DB_CONNECTIONS_MAX_LIFETIME",
    "DB_HOST",
    "DB_LOG_SLOW_QUERIES",
    "DB_MAX_IDLE_CONNECTIONS",
    "DB_NAME",
    "DB_PASS",
    "DB_PORT",
    "DB_SLOW_QUERY_HTTP_ROUTES",
    "DB_SLOW_QUERY_SCOPES",
    "DB_SLOW_QUERY_THRESHOLD",
    "DB_USER",
    "DEPLOY_TARGET",
    "DUMMY_IGNITION",
    "EC_PRIVATE_KEY_PEM",
    "EC_PUBLIC_KEY_PEM",
    "ENABLE_DATA_COLLECTION",
    "ENABLE_EVENT_STREAMING",
    "ENABLE_IMAGE_SERVICE",
    "ENABLE_KUBE_API",
    "ENABLE_OKD_SUPPORT",
    "ENABLE_XATTR_FALLBACK",
    "EPHEMERAL_INSTALLER_CLUSTER_TLS_CERTS_OVERRIDE_DIR",
    "EVENT_RATE_LIMITS",
    "FILESYSTEM_USAGE_THRESHOLD",
    "HOST_MONITOR_PER_HOST_TIMEOUT",
    "HTTPS_CERT_FILE",
    "HTTPS_KEY_FILE",
    "HTTP_LISTEN_PORT",
    "HW_VALIDATOR_MAX_TIME_DIFF_MINUTES",
    "IMAGE_EXPIRATION_INTERVAL",
    "INSTALLER_CACHE_CAPACITY",
    "INSTALLER_CACHE_MAX_RELEASE_SIZE",
    "INSTALLER_CACHE_RELEASE_FETCH_RETRY_INTERVAL",
    "INSTALL_INVOKER",
    "INSTALL_RH_CA",
    "LEADER_LEASE_DURATION",
    "LEADER_RENEW_DEADLINE",
    "LEADER_RETRY_INTERVAL",
    "LOG_FORMAT",
    "LOG_LEVEL",
    "LVM_MEMORY_PER_HOST_MIB",
    "MUST_GATHER_IMAGES",
    "OCM_BASE_URL",
    "OPENSHIFT_INSTALL_RELEASE_IMAGE_MIRROR",
    "OPENSHIFT_RELEASE_SYNCER_INTERVAL",
    "OS_IMAGES",
    "RELEASE_SOURCES",
    "S3_BUCKET",
    "S3_ENDPOINT_URL",
    "S3_REGION",
    "SERVE_HTTPS",
    "SLOW_CLUSTER_MONITOR_LOG_THRESHOLD",
    "SLOW_HOST_MONITOR_LOG_THRESHOLD",
    "STORAGE",
    "TLS_CIPHER_SUITES",
    "TLS_MIN_VERSION",
    "WORK_DIR",
];

/// The known name that looks most like `name`, unless none does.
fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let wanted = name.to_ascii_uppercase();
    known
        .iter()
        .map(|k| (strsim::damerau_levenshtein(&wanted, &k.to_ascii_uppercase()), *k))
        .min()
        .filter(|(distance, k)| *distance <= (k.len() / 3).max(2))
        .map(|(_, k)| k)
}

/// Name of a setting without the prefix that the real service also takes: its library for variables (envconfig) is given the
/// word `myapp`, and looks for each name with it first.
pub fn plain_name(name: &str) -> &str {
    name.strip_prefix("MYAPP_").unwrap_or(name)
}

impl Settings {
    /// Defaults with these variables on top. Each name may carry the prefix of the real service, see [`plain_name`].
    pub fn from_vars<'a>(vars: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, SettingError> {
        let mut settings = Self::default();
        settings.apply_vars(vars)?;
        Ok(settings)
    }

    /// Puts these variables on top.
    pub fn apply_vars<'a>(&mut self, vars: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<(), SettingError> {
        for (full, text) in vars {
            let name = plain_name(full);
            match self.set(name, text) {
                Some(done) => done?,
                None if NOT_SIMULATED.contains(&name) => {
                    return Err(SettingError::NotSimulated { name: name.to_owned() });
                }
                None => {
                    return Err(SettingError::Unknown { name: full.to_owned(), nearest: nearest(name, Self::NAMES) });
                }
            }
        }
        Ok(())
    }

    /// Puts one variable of a scenario on top, under a profile that runs `clock_scale` times faster than `real`. A time in it is
    /// time as it passes under `real`, like every other one of a scenario; `10s wall` is time of the wall clock.
    ///
    /// # Errors
    /// As [`Settings::apply_vars`]; a scale that is not a number above zero counts as 1.
    pub fn apply_in_profile(&mut self, name: &str, text: &str, clock_scale: f64) -> Result<(), SettingError> {
        let plain = plain_name(name);
        if !Self::is_time(plain) {
            return self.apply_vars([(name, text)]);
        }
        let (text, clock_scale) = match text.trim_end().strip_suffix("wall") {
            Some(time) if time.ends_with(char::is_whitespace) => (time.trim(), 1.0),
            _ => (text, clock_scale),
        };
        let scaled = Self::from_vars([(name, text)])?.scaled(clock_scale);
        let value = scaled.vars().into_iter().find(|(n, _)| *n == plain);
        self.apply_vars(value.iter().map(|(n, v)| (*n, v.as_str())))
    }

    /// All variables with their values. [`Settings::from_vars`] of them gives the same tunables.
    pub fn to_vars(&self) -> Vec<(&'static str, String)> {
        self.vars()
    }

    /// The variables whose value is not the default.
    pub fn changed_vars(&self) -> Vec<(&'static str, String)> {
        let defaults = Settings::default().vars();
        self.vars().into_iter().zip(defaults).filter(|(mine, default)| mine != default).map(|(mine, _)| mine).collect()
    }

    /// All intervals and timeouts divided by `divisor`. What is a number of seconds on the wire (`next_instruction_seconds`)
    /// stays: the hosts divide it. Wall clocks are compared in minutes, which stay, too; and so does what the service's own
    /// computing may take, because the computer is not faster than its clock.
    #[must_use]
    pub fn scaled(&self, divisor: f64) -> Settings {
        let mut scaled = self.clone();
        if divisor.is_finite() && divisor > 0.0 && divisor != 1.0 {
            scaled.divide(divisor);
            scaled.cluster_monitor_per_cluster_deadline = self.cluster_monitor_per_cluster_deadline;
            scaled.cluster_monitor_blacklist_duration = self.cluster_monitor_blacklist_duration;
            scaled.cluster_monitor_cycle_deadline = self.cluster_monitor_cycle_deadline;
            scaled.liveness_validation_timeout = self.liveness_validation_timeout;
        }
        scaled
    }

    /// The same with one amount, of the settings or of the constants, multiplied.
    #[must_use]
    pub fn with_factor(&self, name: &str, factor: f64) -> Settings {
        let mut other = self.clone();
        other.multiply_one(name, factor);
        other.constants.multiply_one(name, factor);
        other
    }

    /// The longer of the two preparation checks.
    fn longest_check(&self) -> Duration {
        self.disk_check_timeout.max(self.image_availability_timeout)
    }

    /// Time that a host has to prepare: never less than its checks may take.
    pub fn host_prepare_timeout(&self) -> Duration {
        self.prepare_for_installation_host_timeout.max(self.longest_check() + self.constants.host_prepare_margin)
    }

    /// Time that a cluster has to prepare: never less than its hosts' checks may take.
    pub fn cluster_prepare_timeout(&self) -> Duration {
        self.prepare_for_installation_timeout.max(self.longest_check() + self.constants.cluster_prepare_margin)
    }

    /// How long a host may be silent before it is disconnected.
    pub fn max_disconnection(&self, bootstrap: bool) -> Duration {
        let extra = if bootstrap { self.constants.bootstrap_extra_disconnection } else { Duration::ZERO };
        self.host_max_disconnection_time + extra
    }

    /// Timer of an installation stage.
    pub fn stage_timeout(&self, stage: HostStage, single_node: bool) -> Duration {
        match stage {
            HostStage::StartingInstallation => self.host_stage_starting_installation_timeout,
            HostStage::Installing => self.host_stage_installing_timeout,
            HostStage::WritingImageToDisk => self.host_stage_writing_image_to_disk_timeout,
            HostStage::CopyingRegistryDataToDisk => self.host_stage_copying_registry_data_to_disk_timeout,
            HostStage::WaitingForControlPlane => self.host_stage_waiting_for_control_plane_timeout,
            HostStage::WaitingForBootkube => self.host_stage_waiting_for_bootkube_timeout,
            HostStage::WaitingForController => self.host_stage_waiting_for_controller_timeout,
            HostStage::Rebooting if single_node => self.constants.sno_rebooting_timeout,
            HostStage::Rebooting => self.host_stage_rebooting_timeout,
            HostStage::WaitingForIgnition => self.host_stage_waiting_for_ignition_timeout,
            HostStage::Configuring => self.host_stage_configuring_timeout,
            HostStage::Joined => self.host_stage_joined_timeout,
            HostStage::Done | HostStage::Failed => self.constants.default_stage_timeout,
        }
    }

    /// Timer of a finalizing stage. `longest_operator` is the largest timeout of the cluster's OLM operators, which the stages
    /// that wait for those never undercut.
    pub fn finalizing_stage_timeout(&self, stage: FinalizingStage, soft: bool, longest_operator: Duration) -> Duration {
        match stage {
            FinalizingStage::WaitingForClusterOperators => {
                match self.finalizing_stage_waiting_for_cluster_operators_timeout {
                    Some(given) => given,
                    None if soft => self.constants.waiting_for_cluster_operators_soft,
                    None => self.constants.waiting_for_cluster_operators_hard,
                }
            }
            FinalizingStage::AddingRouterCa => self.finalizing_stage_adding_router_ca_timeout,
            FinalizingStage::ApplyingOlmManifests => self.finalizing_stage_applying_olm_manifests_timeout,
            FinalizingStage::WaitingForOlmOperatorsCsvInitialization => {
                self.finalizing_stage_waiting_for_olm_operators_csv_initialization_timeout.max(longest_operator)
            }
            FinalizingStage::WaitingForOlmOperatorsCsv => {
                self.finalizing_stage_waiting_for_olm_operators_csv_timeout.max(longest_operator)
            }
            FinalizingStage::WaitingForOLMOperatorSetupJobs => {
                self.finalizing_stage_waiting_for_olm_operator_setup_jobs_timeout.max(longest_operator)
            }
            FinalizingStage::Done => self.finalizing_stage_done_timeout,
        }
    }
}

// --- serialised form ------------------------------------------------------------------------------------------------

/// The text that a variable would have for a value of a configuration file.
fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Text of a list of words, and of everything else.
fn value_text(value: &Value) -> String {
    match value {
        Value::Array(items) if items.iter().all(Value::is_string) => {
            items.iter().map(as_text).collect::<Vec<_>>().join(",")
        }
        other => as_text(other),
    }
}

impl Serialize for Constants {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, text) in self.vars() {
            map.serialize_entry(name, &text)?;
        }
        map.end()
    }
}

impl Constants {
    /// Names and values, as [`Constants`] is read.
    pub fn to_json(&self) -> String {
        // A map of texts: nothing in it can fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for Constants {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut constants = Self::default();
        for (name, value) in BTreeMap::<String, Value>::deserialize(deserializer)? {
            match constants.set(&name, &value_text(&value)) {
                Some(done) => done.map_err(D::Error::custom)?,
                None => {
                    let nearest = nearest(&name, Self::NAMES);
                    return Err(D::Error::custom(SettingError::Unknown { name, nearest }));
                }
            }
        }
        Ok(constants)
    }
}

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, text) in self.vars() {
            map.serialize_entry(name, &text)?;
        }
        map.serialize_entry("constants", &self.constants)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut members = BTreeMap::<String, Value>::deserialize(deserializer)?;
        let constants = match members.remove("constants") {
            Some(value) => serde_json::from_value(value).map_err(D::Error::custom)?,
            None => Constants::default(),
        };
        let mut settings = Settings { constants, ..Settings::default() };
        for (name, value) in &members {
            settings.apply_vars([(name.as_str(), value_text(value).as_str())]).map_err(D::Error::custom)?;
        }
        Ok(settings)
    }
}

// --- hosts' timing --------------------------------------------------------------------------------------------------

/// A time that is drawn anew for each host: anything from `min` to `max`, both included. Written `10s..20s`, or `10s` when
/// both are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The shortest time that it takes.
    pub min: Duration,
    /// Longest; never less than `min`.
    pub max: Duration,
}

impl Span {
    /// From `min` to `max`; the two are put in order.
    pub const fn new(min: Duration, max: Duration) -> Self {
        if min.as_nanos() <= max.as_nanos() { Self { min, max } } else { Self { min: max, max: min } }
    }

    /// The time that lies at `fraction` (0 to 1) between the two ends; hosts draw the fraction from their seed.
    pub fn at(&self, fraction: f64) -> Duration {
        self.min + (self.max - self.min).mul_f64(fraction.clamp(0.0, 1.0))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.write())
    }
}

impl Variable for Span {
    fn read(text: &str) -> Result<Self, String> {
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        let (min, max) = (Duration::read(min)?, Duration::read(max)?);
        if min > max { Err(format!("{text:?} begins after its end")) } else { Ok(Span { min, max }) }
    }
    fn write(&self) -> String {
        if self.min == self.max {
            format_duration(self.min)
        } else {
            format!("{}..{}", format_duration(self.min), format_duration(self.max))
        }
    }
    fn divide(&mut self, divisor: f64) {
        self.min = divide(self.min, divisor);
        self.max = divide(self.max, divisor);
    }
}

impl Variable for f64 {
    fn read(text: &str) -> Result<Self, String> {
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
            _ => Err(format!("{text:?} is not a number above zero")),
        }
    }
    fn write(&self) -> String {
        self.to_string()
    }
    /// A divisor of times: it grows as times shrink.
    fn divide(&mut self, divisor: f64) {
        *self *= divisor;
    }
}

const fn s(min: u64, max: u64) -> Span {
    Span::new(secs(min), secs(max))
}

const fn ms(min: u64, max: u64) -> Span {
    Span::new(Duration::from_millis(min), Duration::from_millis(max))
}

macro_rules! timing {
    (
        $(#[$meta:meta])*
        $outer:ident {
            $( $(#[$field_meta:meta])* $scale:ident $field:ident: $ty:ty = $default:expr; )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $outer {
            $( $(#[$field_meta])* #[doc = concat!("\n\nScaled by: ", stringify!($scale), ".")] pub $field: $ty, )*
        }

        impl Default for $outer {
            fn default() -> Self {
                Self { $( $field: $default, )* }
            }
        }

        impl $outer {
            /// All names, in the order of the fields.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field)),*];

            /// Takes one value.
            fn set(&mut self, name: &str, text: &str) -> Result<(), SettingError> {
                match name {
                    $( stringify!($field) => {
                        self.$field = Variable::read(text)
                            .map_err(|reason| SettingError::BadValue { name: stringify!($field), reason })?;
                        Ok(())
                    } )*
                    _ => Err(SettingError::Unknown { name: name.to_owned(), nearest: nearest(name, Self::NAMES) }),
                }
            }

            fn vars(&self) -> Vec<(&'static str, String)> {
                vec![$( (stringify!($field), Variable::write(&self.$field)), )*]
            }

            /// Waiting (polls, back-offs, cache lives) divided by `clock`, work (boots, writes, reboots) divided by `work`.
            #[must_use]
            pub fn scaled(&self, clock: f64, work: f64) -> Self {
                let mut scaled = self.clone();
                for (which, by) in [("clock", clock), ("work", work)] {
                    if by.is_finite() && by > 0.0 && by != 1.0 {
                        $( if stringify!($scale) == which { Variable::divide(&mut scaled.$field, by); } )*
                    }
                }
                scaled
            }
        }
    };
}

timing! {
    /// How long simulated hosts wait and work. The defaults are those of real hardware: waits are the real programs' own, work
    /// adds up to an install of about an hour.
    HostTiming {
        // the agent
        /// `next_instruction_seconds` of the service is divided by this before the host waits.
        clock next_instruction_divisor: f64 = 1.0;
        /// Seconds that the service tells the runner to wait before it starts again are divided by this, too.
        clock retry_divisor: f64 = 1.0;
        /// Registration is tried again after this.
        clock registration_retry: Duration = secs(60);
        /// Wait after an answer without a command to run, or after the runner failed without a time to wait.
        clock runner_failure_wait: Duration = hours(1);
        /// First wait after a failed GET of instructions.
        clock backoff_initial: Duration = Duration::from_millis(500);
        /// Longest wait after a failed GET of instructions.
        clock backoff_max: Duration = secs(60);
        /// After failing for so long the runner gives up and the agent registers again.
        clock backoff_give_up: Duration = mins(15);
        /// Wait between the transport's own tries.
        clock transport_retry: Span = s(2, 10);
        /// An identical successful answer of the same step type is not sent again within this.
        clock reply_cache_life: Duration = hours(1);
        /// A request without an answer is given up.
        clock request_timeout: Duration = secs(30);

        // booting
        /// From power-on to the agent's first registration: firmware, live image, network, pull of the agent's image.
        work boot_to_registration: Span = s(150, 240);
        /// From the agent's exit to its next registration.
        work agent_restart: Span = s(3, 5);
        /// From the agent's upgrade to its next registration.
        work agent_upgrade: Span = s(20, 60);

        // steps
        /// Step `inventory`.
        work step_inventory: Span = ms(800, 3_000);
        /// Step `connectivity-check`.
        work step_connectivity_check: Span = s(10, 15);
        /// Step `free-network-addresses`.
        work step_free_network_addresses: Span = s(5, 15);
        /// Step `dhcp-lease-allocate`.
        work step_dhcp_lease_allocate: Span = s(2, 8);
        /// Step `api-vip-connectivity-check`.
        work step_api_vip_connectivity_check: Span = s(1, 3);
        /// Step `tang-connectivity-check`.
        work step_tang_connectivity_check: Span = s(1, 3);
        /// Step `ntp-synchronizer`.
        work step_ntp_synchronizer: Span = ms(300, 2_000);
        /// Step `installation-disk-speed-check`.
        work step_installation_disk_speed_check: Span = s(15, 40);
        /// Step `container-image-availability`.
        work step_container_image_availability: Span = s(20, 90);
        /// Step `domain-resolution`.
        work step_domain_resolution: Span = ms(100, 1_000);
        /// Step `verify-vips`.
        work step_verify_vips: Span = s(1, 4);
        /// Step `install`, from the instruction to the start of the installer: disk checks and the image's pull.
        work step_install: Span = s(10, 40);
        /// Step `logs-gather`, until the logs are sent.
        work step_logs_gather: Span = s(20, 60);
        /// Step `stop-installation`.
        work step_stop_installation: Span = s(1, 3);
        /// Step `upgrade-agent`, until it is answered.
        work step_upgrade_agent: Span = s(10, 30);
        /// Step `download-boot-artifacts`.
        work step_download_boot_artifacts: Span = s(20, 60);
        /// Step `reboot-for-reclaim`.
        work step_reboot_for_reclaim: Span = s(1, 2);
        /// A step of a type that the host does not know.
        work step_unknown: Span = ms(10, 50);

        // the installer on the host
        /// The installer's loops: waiting for masters, bootkube and the controller.
        clock installer_poll: Duration = secs(5);
        /// The bootstrap reads the machine-config server's logs this often.
        clock mcs_log_poll: Duration = secs(30);
        /// A failed request of the installer or the controller is tried again after this.
        clock installer_retry: Span = s(2, 10);
        /// Tries of the installer before it gives up on one request.
        fixed installer_retries: i64 = 360;
        /// Disks are formatted and cleaned.
        work disk_cleanup: Span = s(2, 10);
        /// The bootstrap's own preparation: ignition, machine-config daemon, images, start of bootkube.
        work bootstrap_preparation: Span = s(60, 120);
        /// The host's ignition is downloaded.
        work ignition_download: Span = s(1, 3);
        /// A machine's installer waits so long for the disk image that its live system prepares: less than the stage may take.
        clock disk_image_wait: Duration = mins(20);
        /// The whole of the image is written to the disk.
        work write_image: Span = s(150, 240);
        /// Percentage points between two reports while the image is written. Real installers report from 5 points on.
        fixed write_image_report_step: i64 = 5;
        /// The container registry of the medium, where it carries one, is copied to the disk.
        work copy_registry: Span = s(120, 300);
        /// Boot order and cleaning up before the reboot.
        work before_reboot: Span = s(5, 15);
        /// From the installer's start of bootkube until its temporary control plane answers.
        work bootkube_temporary_control_plane: Span = s(120, 240);
        /// From the last master that bootkube needs until bootkube is done. On a single node from the temporary control plane.
        work bootkube_done: Span = s(240, 420);
        /// From bootkube being done until etcd's bootstrap member has left.
        work etcd_bootstrap_done: Span = s(60, 180);
        /// From bootkube being done until the controller is ready.
        work controller_ready: Span = s(30, 90);
        /// Host logs are gathered and sent before the reboot.
        work log_gather: Span = s(15, 45);
        /// The shutdown's delay after `Rebooting` was reported; none on a single node.
        work reboot_delay: Span = s(60, 60);

        // after the reboot
        /// From the shutdown until the installed system fetches its ignition.
        work reboot: Span = s(240, 420);
        /// The same on a single node, where the first boot does more.
        work reboot_single_node: Span = s(300, 480);
        /// From the ignition's fetch until the node is in the cluster.
        work configuring_to_joined: Span = s(180, 360);
        /// From the node's being in the cluster until it is ready.
        work joined_to_ready: Span = s(60, 150);
        /// The same on a single node, whose control plane has to come up again.
        work joined_to_ready_single_node: Span = s(300, 540);

        // the controller
        /// Controller waits for the service and for the API.
        clock controller_ready_poll: Duration = secs(1);
        /// Controller's loops over nodes and logs of the machine-config server, certificates and node labels.
        clock controller_loop: Duration = secs(30);
        /// Controller asks for the cluster's operators.
        clock controller_operators_poll: Duration = secs(60);
        /// Controller tries to add the router's CA.
        clock controller_router_ca_poll: Duration = secs(10);
        /// Controller asks for OLM operators.
        clock controller_olm_poll: Duration = secs(30);
        /// Controller watches the cluster's status.
        clock controller_status_watch: Duration = secs(60);
        /// Controller sends its logs.
        clock controller_log_upload: Duration = mins(5);
        /// Controller tries to complete the installation.
        clock controller_complete_poll: Duration = secs(60);
        /// From the control plane's being up until the console is available.
        work operators_available: Span = s(600, 960);
        /// The same on a single node.
        work operators_available_single_node: Span = s(480, 780);
        /// From the console's being available until the router has its certificate.
        work router_ca_available: Span = s(1, 5);
        /// From its subscription until an OLM operator is installed.
        work olm_operator_available: Span = s(120, 300);
        /// The controller's logs are packed and sent.
        work controller_log_gather: Span = s(10, 60);
    }
}

impl HostTiming {
    /// How long a host waits that was told `next_instruction_seconds`.
    pub fn next_instruction(&self, seconds: i64) -> Duration {
        let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        divide(seconds, self.next_instruction_divisor)
    }
}

impl Serialize for HostTiming {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.vars())
    }
}

impl<'de> Deserialize<'de> for HostTiming {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut timing = Self::default();
        for (name, value) in BTreeMap::<String, Value>::deserialize(deserializer)? {
            timing.set(&name, &value_text(&value)).map_err(D::Error::custom)?;
        }
        Ok(timing)
    }
}

/// How time runs in a run: both sides scaled, then single values put on top.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeProfile {
    /// Name, for example `fast`.
    pub name: String,
    /// One line for people.
    #[serde(default)]
    pub description: String,
    /// Another profile, whose settings and hosts' times stand below those of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub like: Option<String>,
    /// Intervals, timeouts, polls and back-offs of service and hosts are divided by this.
    #[serde(default = "one")]
    pub clock_scale: f64,
    /// The work of hosts is divided by this.
    #[serde(default = "one")]
    pub work_scale: f64,
    /// Variables of the service that are put on top of the scaled ones, as they are.
    #[serde(default)]
    pub settings: BTreeMap<String, Value>,
    /// Members of [`HostTiming`] that are put on top of the scaled ones, as they are.
    #[serde(default)]
    pub hosts: BTreeMap<String, Value>,
}

const fn one() -> f64 {
    1.0
}

impl TimeProfile {
    /// The profile in which everything takes as long as on real hardware.
    pub fn real() -> Self {
        Self {
            name: "real".to_owned(),
            description: "Everything takes as long as on real hardware.".to_owned(),
            like: None,
            clock_scale: 1.0,
            work_scale: 1.0,
            settings: BTreeMap::new(),
            hosts: BTreeMap::new(),
        }
    }

    /// What this profile does not say is as `base` says it; the scales are its own.
    pub fn put_on(&mut self, base: &Self) {
        for (name, value) in &base.settings {
            self.settings.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for (name, value) in &base.hosts {
            self.hosts.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }

    /// The service's tunables under this profile.
    pub fn settings(&self) -> Result<Settings, SettingError> {
        self.settings_on(&Settings::default())
    }

    /// The same, beginning with tunables that someone else chose, which are scaled.
    pub fn settings_on(&self, base: &Settings) -> Result<Settings, SettingError> {
        let mut settings = base.scaled(checked_scale("clock_scale", self.clock_scale)?);
        for (name, value) in &self.settings {
            settings.apply_vars([(name.as_str(), value_text(value).as_str())])?;
        }
        Ok(settings)
    }

    /// The hosts' times under this profile.
    pub fn host_timing(&self) -> Result<HostTiming, SettingError> {
        let clock = checked_scale("clock_scale", self.clock_scale)?;
        let mut timing = HostTiming::default().scaled(clock, checked_scale("work_scale", self.work_scale)?);
        for (name, value) in &self.hosts {
            timing.set(name, &value_text(value))?;
        }
        Ok(timing)
    }
}

fn checked_scale(name: &'static str, scale: f64) -> Result<f64, SettingError> {
    if scale.is_finite() && scale > 0.0 {
        Ok(scale)
    } else {
        Err(SettingError::BadValue { name, reason: format!("{scale} is not a number above zero") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("0", 0, "0s")]
    #[case("0s", 0, "0s")]
    #[case("1ns", 1, "1ns")]
    #[case("1.5us", 1_500, "1.5µs")]
    #[case("133ms", 133_000_000, "133ms")]
    #[case("1500ms", 1_500_000_000, "1.5s")]
    #[case("90s", 90_000_000_000, "1m30s")]
    #[case("8m", 480_000_000_000, "8m0s")]
    #[case("1h2m3.5s", 3_723_500_000_000, "1h2m3.5s")]
    #[case("24h", 86_400_000_000_000, "24h0m0s")]
    #[case(".5h", 1_800_000_000_000, "30m0s")]
    #[case("+2s", 2_000_000_000, "2s")]
    fn go_durations(#[case] text: &str, #[case] nanos: u64, #[case] written: &str) {
        let duration = parse_duration(text).unwrap();
        assert_eq!(duration, Duration::from_nanos(nanos));
        assert_eq!(format_duration(duration), written);
    }

    #[rstest]
    #[case("", "empty")]
    #[case("5", "no unit")]
    #[case("-5s", "negative")]
    #[case("5d", "not one of")]
    #[case("s", "no number")]
    #[case("1.2.3s", "no number")]
    #[case("9999999h", "292 years")]
    #[case("99999999999999999999999999999999999999999h", "too large")]
    #[case("5 m", "not one of")]
    fn bad_durations_say_why(#[case] text: &str, #[case] why: &str) {
        let error = parse_duration(text).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn defaults_are_the_real_services() {
        let s = Settings::default();
        assert_eq!(s.host_monitor_interval, secs(8));
        assert_eq!(s.cluster_monitor_interval, secs(10));
        assert_eq!(s.host_prepare_timeout(), mins(17));
        assert_eq!(s.cluster_prepare_timeout(), mins(18));
        assert_eq!(s.max_disconnection(false), mins(3));
        assert_eq!(s.max_disconnection(true), mins(5));
        assert_eq!(s.stage_timeout(HostStage::Rebooting, false), mins(40));
        assert_eq!(s.stage_timeout(HostStage::Rebooting, true), mins(80));
        let operators = FinalizingStage::WaitingForClusterOperators;
        assert_eq!(s.finalizing_stage_timeout(operators, false, Duration::ZERO), hours(10));
        assert_eq!(s.finalizing_stage_timeout(operators, true, Duration::ZERO), mins(70));
        let csv = FinalizingStage::WaitingForOlmOperatorsCsv;
        assert_eq!(s.finalizing_stage_timeout(csv, false, hours(2)), hours(2));
        assert_eq!(s.changed_vars(), []);
    }

    /// As short as the real service takes them.
    const REQUIREMENTS: &str = r#"[
        {"version":"default","master":{"cpu_cores":4,"ram_mib":9,"disk_size_gb":9},
         "worker":{"cpu_cores":4,"ram_mib":9,"disk_size_gb":9},"sno":{"cpu_cores":2,"ram_mib":9,"disk_size_gb":9}},
        {"version":"4.22","match_type":"min_version","sno":{"cpu_cores":1}}]"#;

    #[rstest]
    #[case::twice(r#"{"version":"4.22","match_type":"min_version"}"#, "two rows are for 4.22")]
    #[case::none(
        r#"{"version":"4.19","master":{"cpu_cores":0}}"#,
        "`cpu_cores` of the role master for the version 4.19"
    )]
    #[case::negative(
        r#"{"version":"4.19","sno":{"installation_disk_speed_threshold_ms":-1}}"#,
        "of the role sno for the version 4.19 is below 0"
    )]
    fn rows_of_versions_change_parts_of_the_one_for_all(#[case] row: &str, #[case] says: &str) {
        let more = format!("{},{row}]", REQUIREMENTS.strip_suffix(']').unwrap());
        let error = Settings::from_vars([("HW_VALIDATOR_REQUIREMENTS", more.as_str())]).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn variables_are_read_under_their_own_names() {
        let s = Settings::from_vars([
            ("HOST_MONITOR_INTERVAL", "1s"),
            ("MYAPP_ENABLE_UPGRADE_AGENT", "false"),
            ("DISABLED_HOST_VALIDATIONS", "ntp-synced, mtu-valid"),
            ("HW_VALIDATOR_REQUIREMENTS", REQUIREMENTS),
            ("PREPARE_FOR_INSTALLATION_HOST_TIMEOUT", "1h"),
        ])
        .unwrap();
        assert_eq!(s.host_monitor_interval, secs(1));
        assert!(!s.enable_upgrade_agent);
        assert_eq!(s.disabled_host_validations, ["ntp-synced", "mtu-valid"]);
        assert_eq!(s.hw_validator_requirements[0].sno.as_ref().unwrap().cpu_cores, Some(2));
        assert_eq!(s.host_prepare_timeout(), hours(1));
        assert_eq!(s.changed_vars().len(), 5);
        let vars = s.to_vars();
        assert_eq!(Settings::from_vars(vars.iter().map(|(n, v)| (*n, v.as_str()))).unwrap(), s);
    }

    #[rstest]
    #[case("HOST_MONITOR_INTERVALL", "1s", "did you mean HOST_MONITOR_INTERVAL?")]
    #[case("host_monitor_interval", "1s", "did you mean HOST_MONITOR_INTERVAL?")]
    #[case("XYZZY", "1s", "no setting XYZZY")]
    #[case("DB_HOST", "x", "simulated one has nothing")]
    #[case("HOST_MONITOR_INTERVAL", "8", "HOST_MONITOR_INTERVAL: \"8\" is not a duration")]
    #[case("ENABLE_SOFT_TIMEOUTS", "yes", "neither true nor false")]
    #[case("RELEASE_IMAGES", "{", "not JSON of the expected form")]
    #[case("HW_VALIDATOR_REQUIREMENTS", "[", "not JSON of the expected form")]
    #[case("HW_VALIDATOR_REQUIREMENTS", r#"[{"sno":{"cpu_cores":2}}]"#, "no `version`")]
    #[case(
        "HW_VALIDATOR_REQUIREMENTS",
        r#"[{"version":"default","sno":{"cpu_cores":2,"ram_mib":9,"disk_size_gb":9}}]"#,
        "role master for the version default"
    )]
    #[case(
        "HW_VALIDATOR_REQUIREMENTS",
        r#"[{"version":"4.22","match_type":"min_version","sno":{"cpu_cores":2}}]"#,
        "needs one for `default`"
    )]
    #[case("HW_VALIDATOR_REQUIREMENTS", r#"[{"version":"4.22","match_type":"newest"}]"#, "\"newest\"")]
    #[case("HW_VALIDATOR_REQUIREMENTS", r#"[{"version":"4.22"}]"#, "role master for the version 4.22")]
    fn bad_variables_are_refused(#[case] name: &str, #[case] value: &str, #[case] says: &str) {
        let error = Settings::from_vars([(name, value)]).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn scaling_divides_times_and_leaves_seconds_of_the_wire() {
        let s = Settings::default().scaled(60.0);
        assert_eq!(s.host_max_disconnection_time, secs(3));
        assert_eq!(s.host_prepare_timeout(), secs(17));
        assert_eq!(s.constants.installing_without_progress, secs(20));
        assert_eq!(
            s.finalizing_stage_timeout(FinalizingStage::WaitingForClusterOperators, false, Duration::ZERO),
            mins(10)
        );
        assert_eq!(s.constants.next_instruction_seconds, 60);
        assert_eq!(s.constants.service_ahead_minutes, 20);
        assert_eq!(s.host_monitor_batch_size, 100);
        assert_eq!((s.cluster_monitor_per_cluster_deadline, s.cluster_monitor_blacklist_duration), (mins(2), mins(15)));
        assert_eq!((s.cluster_monitor_cycle_deadline, s.liveness_validation_timeout), (mins(4), mins(5)));
        assert_eq!(Settings::default().scaled(1.0), Settings::default());
    }

    #[rstest]
    #[case("HOST_MAX_DISCONNECTION_TIME", "5m", 60.0, Ok("5s"))]
    #[case("MYAPP_HOST_MAX_DISCONNECTION_TIME", "5m", 60.0, Ok("5s"))]
    #[case("HOST_MAX_DISCONNECTION_TIME", "5m wall", 60.0, Ok("5m0s"))]
    #[case("HOST_MAX_DISCONNECTION_TIME", "5m", 1.0, Ok("5m0s"))]
    #[case("FINALIZING_STAGE_WAITING_FOR_CLUSTER_OPERATORS_TIMEOUT", "20m", 60.0, Ok("20s"))]
    #[case("FINALIZING_STAGE_WAITING_FOR_CLUSTER_OPERATORS_TIMEOUT", "", 60.0, Ok(""))]
    #[case("HOST_MONITOR_BATCH_SIZE", "120", 60.0, Ok("120"))]
    #[case("HOST_MAX_DISCONNECTION_TIME", "5mwall", 60.0, Err("is not a duration"))]
    #[case("HOST_MONITOR_BATCH_SIZE", "5 wall", 60.0, Err("not a whole number"))]
    #[case("HOST_MAX_DISCONNECTION", "5m", 60.0, Err("did you mean HOST_MAX_DISCONNECTION_TIME?"))]
    fn times_of_a_scenario_pass_as_its_profile_says(
        #[case] name: &str,
        #[case] text: &str,
        #[case] scale: f64,
        #[case] expected: Result<&str, &str>,
    ) {
        let mut settings = Settings::default().scaled(scale);
        let done = settings.apply_in_profile(name, text, scale);
        let plain = plain_name(name);
        match expected {
            Ok(value) => {
                assert_eq!(done, Ok(()));
                let set = settings.to_vars().into_iter().find(|(n, _)| *n == plain).unwrap();
                assert_eq!(set.1, value);
            }
            Err(says) => {
                let error = done.unwrap_err().to_string();
                assert!(error.contains(says), "{error}");
            }
        }
    }

    #[test]
    fn hosts_scale_waiting_and_work_apart() {
        let t = HostTiming::default().scaled(60.0, 900.0);
        assert_eq!(t.next_instruction(60), secs(1));
        assert_eq!(t.next_instruction(0), Duration::ZERO);
        assert_eq!(t.controller_loop, Duration::from_millis(500));
        assert_eq!(t.reply_cache_life, secs(60));
        assert_eq!(t.step_install.max, Duration::from_micros(44_444));
        assert_eq!(t.reboot.min, Duration::from_micros(266_667));
        assert_eq!(t.write_image_report_step, 5);
        assert!(t.step_inventory.at(0.0) == t.step_inventory.min && t.step_inventory.at(1.0) == t.step_inventory.max);
    }

    #[test]
    fn a_profile_scales_first_and_overrides_then() {
        let profile: TimeProfile = serde_json::from_str(
            r#"{"name":"fast","clock_scale":60,"work_scale":900,"settings":{"HOST_MONITOR_INTERVAL":"100ms","CLUSTER_MONITOR_BATCH_SIZE":7},
                "hosts":{"reboot":"1s..2s"}}"#,
        )
        .unwrap();
        let (settings, hosts) = (profile.settings().unwrap(), profile.host_timing().unwrap());
        assert_eq!(settings.host_monitor_interval, Duration::from_millis(100));
        assert_eq!(settings.cluster_monitor_batch_size, 7);
        assert_eq!(settings.cluster_monitor_interval.as_micros(), 166_667);
        assert_eq!(hosts.reboot, s(1, 2));
        assert_eq!(TimeProfile::real().settings().unwrap(), Settings::default());
        assert_eq!(TimeProfile::real().host_timing().unwrap(), HostTiming::default());
        let wrong = TimeProfile { clock_scale: 0.0, ..TimeProfile::real() };
        assert!(wrong.settings().unwrap_err().to_string().contains("clock_scale"));
        let wrong = TimeProfile { hosts: BTreeMap::from([("rebot".to_owned(), Value::Null)]), ..TimeProfile::real() };
        assert!(wrong.host_timing().unwrap_err().to_string().contains("did you mean reboot?"));
        assert!(serde_json::from_str::<TimeProfile>(r#"{"name":"x","clockscale":2}"#).is_err());
    }

    #[test]
    fn serialised_forms_come_back() {
        let settings = Settings::default().scaled(7.0);
        let json = serde_json::to_value(&settings).unwrap();
        assert_eq!(json["HOST_MONITOR_INTERVAL"], "1.142857s");
        assert_eq!(serde_json::from_value::<Settings>(json).unwrap(), settings);
        let timing = HostTiming::default().scaled(7.0, 11.0);
        let json = serde_json::to_value(&timing).unwrap();
        assert_eq!(json["controller_loop"], "4.285714s");
        assert_eq!(serde_json::from_value::<HostTiming>(json).unwrap(), timing);
        assert!(serde_json::from_str::<Settings>(r#"{"HOST_MONITOR_INTERVAL":"1s","NOPE":1}"#).is_err());
        assert!(serde_json::from_str::<Settings>(r#"{"constants":{"NOPE":1}}"#).is_err());
        assert!(serde_json::from_str::<HostTiming>(r#"{"reboot":"2s..1s"}"#).is_err());
    }

    proptest! {
        #[test]
        fn every_duration_comes_back(nanos in 0..i64::MAX as u64) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&format_duration(duration)).unwrap(), duration);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,20}", number in "[0-9.]{0,12}[a-zµ]{0,3}") {
            let _ = parse_duration(&text);
            if let Ok(duration) = parse_duration(&number) {
                prop_assert_eq!(parse_duration(&format_duration(duration)).unwrap(), duration);
            }
        }

        #[test]
        fn scaling_keeps_the_order_of_times(a in 1..1_000_000_u64, b in 1..1_000_000_u64, by in 0.1..2000.0_f64) {
            let (a, b) = (Duration::from_millis(a), Duration::from_millis(b));
            prop_assert!(!divide(a, by).is_zero());
            prop_assert!((a <= b) == (divide(a, by) <= divide(b, by)) || divide(a, by) == divide(b, by));
        }
    }
}
