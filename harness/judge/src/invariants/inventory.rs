//! Validations of hardware against the inventories that the service took, as the hosts sent them ([`What::Inventory`]).

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{HostRole, HostStatus, OperatorType};
use vlab_history::Timeline;
use vlab_history::timeline::HostLine;
use vlab_model::history::{HostsKind, Source, What};
use vlab_model::roles::{Profile, Requirement, memory_suffices, requirement};
use vlab_model::validation::ValidationStatus;

use super::found::Found;
use super::limits::Limits;
use super::{Id, InvariantResult};

/// The service looks at a new inventory within so many rounds of the monitor.
const ROUNDS: u32 = 3;

struct Taken {
    /// It was sent, and taken between the two.
    sent: Timestamp,
    at: Timestamp,
    cores: i64,
    memory: i64,
    meminfo: bool,
    disk: Option<i64>,
    /// Perhaps it was not taken: no answer came.
    perhaps: bool,
}

/// What must be of a value: that much at least for a success, less than that for a failure.
struct Bounds {
    least: i64,
    most: i64,
}

struct Judge<'h> {
    timeline: &'h Timeline<'h>,
    limits: Limits,
    /// Operators that ask for more are wanted.
    has_extras: bool,
    found: Found,
}

/// Judges it.
pub(super) fn validations_agree(timeline: &Timeline<'_>) -> InvariantResult {
    let of = Id::ValidationsAgree.named();
    let because = |reason: &str| Found::default().result(of, || format!("not checked: {reason}"));
    if timeline.truth != Source::Database {
        return because("states were polled, so that nobody knows which inventory a validation is about");
    }
    let limits = Limits::new(timeline.run);
    let mut taken: BTreeMap<Uuid, Vec<Taken>> = BTreeMap::new();
    let mut has_extras = false;
    for o in timeline.observations {
        match o.what {
            What::Inventory { host, sent, cores, memory, meminfo, disk, unanswered: perhaps, .. } => {
                taken.entry(host).or_default().push(Taken { sent, at: o.at(), cores, memory, meminfo, disk, perhaps });
            }
            What::Operator { kind, .. } => has_extras |= kind != Some(OperatorType::Builtin),
            _ => {}
        }
    }
    let mut judge = Judge { timeline, limits, has_extras, found: Found::default() };
    let none = Vec::new();
    let hears = !taken.is_empty();
    for (host, line) in timeline.hosts.iter().filter(|_| hears) {
        judge.host(*host, line, taken.get(host).unwrap_or(&none));
    }
    judge.found.result(of, || match timeline.run.map(|run| &run.hosts) {
        Some(HostsKind::Vm) => {
            "not checked: machines tell their inventories where the harness does not hear it".to_owned()
        }
        _ => "not checked: the history does not hold the inventories that the service took".to_owned(),
    })
}

/// Validations that an inventory alone decides.
const DECIDED: [&str; 6] = [
    "has-inventory",
    "has-min-cpu-cores",
    "has-min-memory",
    "has-min-valid-disks",
    "has-cpu-cores-for-role",
    "has-memory-for-role",
];

impl Judge<'_> {
    fn host(&mut self, host: Uuid, line: &HostLine, taken: &[Taken]) {
        for id in DECIDED {
            let Some(values) = line.validations.get(id) else { continue };
            for value in values {
                self.value((host, line, taken), id, value.to, (value.at, value.seq));
            }
            // What was so once may not be so any more.
            for known in line.statuses.iter().filter(|s| s.to == HostStatus::Known) {
                let value = values.iter().rfind(|v| v.at <= known.at).and_then(|v| v.to);
                self.value((host, line, taken), id, value, (known.at, known.seq));
            }
        }
    }

    /// A host's validation has that value at that time.
    fn value(
        &mut self,
        (host, line, taken): (Uuid, &HostLine, &[Taken]),
        id: &'static str,
        value: Option<ValidationStatus>,
        (at, seq): (Timestamp, u64),
    ) {
        let success = match value {
            Some(ValidationStatus::Success) => true,
            Some(ValidationStatus::Failure) => false,
            _ => return,
        };
        let since = before(at, self.limits.host_rounds(ROUNDS));
        let replaced = |n: usize| taken[n + 1..].iter().any(|later| !later.perhaps && later.at < since);
        let mut in_force = taken.iter().enumerate().filter(|(n, one)| one.sent <= at && !replaced(*n));
        let name = || self.timeline.host_name(host);
        if id == "has-inventory" {
            // It forgets an inventory when a host comes back, and not before.
            let any = in_force.next().is_some();
            if success || !any {
                self.found.check(seq, success == any, || {
                    format!("{}: {id} succeeds, and the service has taken no inventory", name())
                });
            }
            return;
        }
        let bounds = self.bounds(id, line, since, at, success);
        let Some(Bounds { least, most }) = bounds else { return };
        let mut any = false;
        let agrees = in_force.any(|(_, one)| {
            any = true;
            match (success, id) {
                (true, "has-min-valid-disks") => one.disk.is_some_and(|bytes| bytes >= least * 1_000_000_000),
                (false, "has-min-valid-disks") => one.disk.is_none_or(|bytes| bytes < most * 1_000_000_000),
                (true, "has-min-memory" | "has-memory-for-role") => memory_suffices(one.counted(id), least),
                (false, "has-min-memory" | "has-memory-for-role") => !memory_suffices(one.counted(id), most),
                (true, _) => one.cores >= least,
                (false, _) => one.cores < most,
            }
        });
        let word = if success { "succeeds" } else { "fails" };
        self.found.check(seq, agrees, || match any {
            true => format!("{}: {id} {word} with an inventory that says otherwise", name()),
            false => format!("{}: {id} {word}, and the service has taken no inventory", name()),
        });
    }

    /// What that validation asks of a host, as far as the history tells its role.
    fn bounds(&self, id: &str, line: &HostLine, since: Timestamp, at: Timestamp, success: bool) -> Option<Bounds> {
        use Profile::{Arbiter, Master, SingleNode, Worker};
        let for_role = id != "has-min-cpu-cores" && id != "has-min-memory";
        let mut profiles = if for_role { vec![SingleNode] } else { vec![Master, Worker] };
        if for_role {
            let held = line
                .roles
                .iter()
                .enumerate()
                .filter(|(n, role)| role.at <= at && line.roles.get(n + 1).is_none_or(|next| next.at >= since));
            profiles.extend(held.map(|(_, role)| match role.to.0 {
                HostRole::Master | HostRole::Bootstrap => Master,
                HostRole::Arbiter => Arbiter,
                HostRole::Worker | HostRole::AutoAssign => Worker,
            }));
            if profiles.len() == 1 || (!success && self.has_extras && id != "has-min-valid-disks") {
                return None;
            }
        }
        // A history does not tell the cluster's version: what any version asks for at least, and at most.
        let rows = &self.limits.settings.hw_validator_requirements;
        let mut bounds: Option<Bounds> = None;
        for row in rows {
            let of = |profile: &Profile| {
                requirement(&self.limits.settings, row.version.as_deref().unwrap_or_default(), *profile)
            };
            let amounts: Option<Vec<i64>> = profiles.iter().map(|p| of(p).map(|needs| amount(id, &needs))).collect();
            let amounts = amounts?;
            let least = amounts.iter().copied().min()?;
            let most = if for_role { amounts.iter().copied().max()? } else { least };
            let so_far = bounds.get_or_insert(Bounds { least, most });
            (so_far.least, so_far.most) = (so_far.least.min(least), so_far.most.max(most));
        }
        bounds
    }
}

fn amount(id: &str, needs: &Requirement) -> i64 {
    match id {
        "has-min-valid-disks" => needs.disk_size_gb,
        "has-min-memory" | "has-memory-for-role" => needs.ram_mib,
        _ => needs.cpu_cores,
    }
}

impl Taken {
    /// Memory as that validation counts it: of the kernel's own figure the least one adds what the kernel keeps.
    fn counted(&self, id: &str) -> i64 {
        if self.meminfo && id == "has-min-memory" { self.memory.saturating_add(self.memory / 50) } else { self.memory }
    }
}

fn before(at: Timestamp, span: Duration) -> Timestamp {
    let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(at.as_micros().saturating_sub(micros))
}
