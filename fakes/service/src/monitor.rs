//! The monitors: what the passing of time and the replies of hosts make of hosts and clusters. What to do is the model's
//! decision; carrying it out (status, words, validations, events, side effects) is here.
//!
//! The real service goes over its tables on every tick, but skips quiet ones: rows that nobody touched for five minutes are
//! looked at once a minute, after fifteen only every five minutes. That is not copied, because it would only make a
//! late reply look slow. Instead each row is on an agenda: at once when something changed that its rules look at, else when
//! the model says that time alone could change its mind. A tick looks at what is due, so thousands of idle hosts
//! cost nothing. (Who asks what its skipping and its slowness come to gives the monitors a pace: see `pace`.)

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::types::{ClusterStatus, HostRole, HostStatus, LastInstallationPreparation, LogsState, Severity};
use vlab_model::cluster::{ClusterDecision, ClusterEffect};
use vlab_model::host::{HostDecision, HostEffect, HostRule};
use vlab_model::validation::{
    ClusterValidations, EVALUATED_IN, HostValidations, Validation, ValidationStatus, evaluate_cluster, evaluate_host,
};
use vlab_model::view::{HostView, Scope};
use vlab_model::{cluster, host, network, progress, roles};

use crate::Core;
use crate::alteration::{Conduct, Planted};
use crate::rows::{ClusterRow, HostRow};
use crate::show::no_progress;
use crate::state::HostKey;

/// Statuses of clusters in which their network is still derived from their hosts and roles are suggested.
fn before_installation(status: ClusterStatus) -> bool {
    matches!(status, ClusterStatus::Insufficient | ClusterStatus::Ready | ClusterStatus::PendingForInput)
}

/// Statuses of clusters whose machine network is still looked for.
fn undecided(status: ClusterStatus) -> bool {
    matches!(status, ClusterStatus::PendingForInput | ClusterStatus::Insufficient)
}

/// The first tick that is neither before `work` nor at or before `last`. Ticks come `phase` after the multiples of the interval
/// since the Unix epoch, rounded up to whole milliseconds, so that a restart (or many) keeps their rhythm.
pub(crate) fn tick(interval: Duration, phase: Duration, last: Timestamp, work: Timestamp) -> Timestamp {
    let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    let (interval, phase) = (micros(interval).max(1_000), micros(phase));
    let after = work.as_micros().max(last.as_micros().saturating_add(1));
    let mut n = after.saturating_sub(phase).div_euclid(interval);
    loop {
        let at = ceil_ms(Timestamp::from_micros(n.saturating_mul(interval).saturating_add(phase)));
        if at.as_micros() >= after {
            return at;
        }
        n += 1;
    }
}

/// Rounded up to whole milliseconds, see `state`.
pub(crate) fn ceil_ms(at: Timestamp) -> Timestamp {
    let micros = at.as_micros();
    Timestamp::from_micros(micros.saturating_add(999).div_euclid(1000).saturating_mul(1000))
}

impl Core {
    /// One run of the host monitor.
    pub(crate) fn run_host_monitor(&mut self, now: Timestamp) {
        self.host_monitor_runs += 1;
        let mut due = self.state.host_agenda.take_due(now);
        if self.does(Conduct::HostMonitorSleeps) {
            due.clear();
        }
        self.look_at_hosts(now, due);
        self.state.end_unit();
    }

    /// Looks at these hosts.
    pub(crate) fn look_at_hosts(&mut self, now: Timestamp, mut due: Vec<HostKey>) {
        // Cluster by cluster, hosts in order of registration; the pool first.
        due.sort_by_cached_key(|key| {
            let row = self.state.host(*key);
            (row.and_then(|r| r.host().cluster_id), row.map(|r| r.private.ordinal))
        });
        let mut prepared: Option<Uuid> = None;
        for key in due {
            let cluster = self.state.host(key).and_then(|r| r.host().cluster_id);
            if self.state.host(key).is_some_and(|row| host::NOT_MONITORED.contains(&row.host().status)) {
                continue;
            }
            if self.does(Conduct::MonitorSkipsLast) && self.came_last(key, cluster) {
                continue;
            }
            if let Some(id) = cluster
                && prepared != Some(id)
            {
                prepared = Some(id);
                self.derive_connectivity(now, id);
                self.suggest_roles(now, id);
            }
            self.refresh_host(now, key);
        }
    }

    /// Is that the host of a cluster of several that came last?
    fn came_last(&self, key: HostKey, cluster: Option<Uuid>) -> bool {
        let hosts = cluster.map(|id| self.state.hosts_of_cluster(id)).unwrap_or_default();
        let last = hosts.iter().max_by_key(|row| row.private.ordinal);
        hosts.len() > 1 && last.is_some_and(|row| row.host().id == key.1)
    }

    /// One run of the cluster monitor.
    pub(crate) fn run_cluster_monitor(&mut self, now: Timestamp) {
        self.cluster_monitor_runs += 1;
        let mut due = self.state.cluster_agenda.take_due(now);
        if self.does(Conduct::ClusterMonitorSleeps) {
            due.clear();
        }
        due.sort_by_cached_key(|id| self.state.cluster(*id).map(|r| r.private.ordinal));
        for id in due {
            self.look_at_cluster(now, id);
        }
        self.state.end_unit();
    }

    /// Looks at this cluster.
    pub(crate) fn look_at_cluster(&mut self, now: Timestamp, id: Uuid) {
        self.derive_connectivity(now, id);
        self.refresh_cluster(now, id);
        self.warn_about_leases(now, id);
        // After the look at the cluster, as the recordings of the real service show: it counts from the next run on.
        self.derive_machine_networks(now, id);
        self.drop_machine_networks(now, id);
    }

    /// Looks at a host: validations, status, side effects; and notes when to look again.
    pub(crate) fn refresh_host(&mut self, now: Timestamp, key: HostKey) {
        let Some(row) = self.state.host(key).cloned() else { return };
        let Some(infra_env) = self.state.infra_env(key.0).cloned() else { return };
        self.hosts_refreshed += 1;
        let (cluster, hosts) = self.neighbours(&row);
        let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
        let narrow = cluster.as_ref().filter(|_| self.does(Conduct::FirstMachineNetworkOnly)).map(|c| {
            let mut view = c.view.clone();
            view.cluster.machine_networks.iter_mut().for_each(|networks| networks.truncate(1));
            view
        });
        let seen = narrow.as_ref().or(cluster.as_ref().map(|c| &c.view));
        let scope = Scope { infra_env: &infra_env.infra_env, cluster: seen, hosts: &views };
        let settings = &self.config.settings;
        let mut validations = evaluate_host(&row.view, &scope, settings, now);
        if let Some(alteration) = &self.config.alteration {
            alteration.validations(&mut validations.0);
        }
        let decision = host::refresh_with(&row.view, &scope, settings, now, validations, self.hosts_wrong());
        if self.is_planted(Planted::NoLock) && decision.to != row.host().status {
            self.monitored.insert(key, (now, decision.to));
        }
        self.apply_host(now, key, &decision);
        // After a change the row is on the agenda already; this is for the passing of time.
        let Some(row) = self.state.host(key).cloned() else { return };
        let (cluster, hosts) = self.neighbours(&row);
        let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
        let scope =
            Scope { infra_env: &infra_env.infra_env, cluster: cluster.as_ref().map(|c| &c.view), hosts: &views };
        if let Some(at) = host::next_deadline(&row.view, &scope, &self.config.settings, now) {
            self.state.host_agenda.schedule(key, ceil_ms(at));
        }
    }

    /// A host's cluster and all hosts of it.
    pub(crate) fn neighbours(&self, row: &HostRow) -> (Option<Arc<ClusterRow>>, Vec<Arc<HostRow>>) {
        match row.host().cluster_id {
            Some(id) => (self.state.cluster(id).cloned(), self.state.hosts_of_cluster(id)),
            None => (None, Vec::new()),
        }
    }

    /// Notes that a rule of a host's machine fired.
    pub(crate) fn note_fired(&mut self, rule: Option<&'static HostRule>) {
        if let Some(rule) = rule
            && !self.fired_of_hosts.contains(&rule)
        {
            self.fired_of_hosts.push(rule);
        }
    }

    /// Notes which rule of a host's machine followed which.
    fn note_pair(&mut self, key: HostKey, rule: Option<&'static HostRule>) {
        let Some(rule) = rule else { return };
        if let Some(before) = self.last_of_host.insert(key, rule)
            && before != rule
            && !self.pairs.contains(&(before, rule))
        {
            self.pairs.push((before, rule));
        }
    }

    /// Carries a decision about a host out.
    pub(crate) fn apply_host(&mut self, now: Timestamp, key: HostKey, decision: &HostDecision) {
        self.note_fired(decision.rule);
        self.note_pair(key, decision.rule);
        let Some(old) = self.state.host(key).cloned() else { return };
        let cluster = old.host().cluster_id.and_then(|id| self.state.cluster(id)).cloned();
        let sno = cluster.as_ref().is_some_and(|c| c.view.is_sno());
        let validations = decision.validations.as_ref().filter(|new| old.view.evaluated() != Some(new));
        if let Some(new) = validations {
            self.tell_host_validations(now, key, &old.view, new);
        }
        let changes = decision.changes_status(&old.view);
        let leaves = decision.effects.contains(&HostEffect::LeaveCluster);
        let changed = self.state.edit_host(key, now, |row| {
            if let Some(new) = validations {
                row.view.set_validations(new.clone());
            }
            let h = &mut row.view.host;
            h.status_info.clone_from(&decision.status_info);
            if changes {
                h.status = decision.to;
                h.status_updated_at = Some(now);
            }
            for effect in &decision.effects {
                apply_host_effect(row, *effect, now, sno);
            }
        });
        if !changed {
            return;
        }
        if decision.effects.contains(&HostEffect::RestartClusterPreparation)
            && let Some(cluster) = &cluster
        {
            self.state.edit_cluster(cluster.cluster().id, now, |row| {
                row.view.cluster.last_installation_preparation = Some(no_preparation());
            });
        }
        if decision.stage_timed_out {
            let stage = old.view.stage().map_or("", |s| s.as_str());
            let message = format!("Host {}: stage {stage} takes longer than it should", self.host_name(key));
            self.host_event(now, key, "host_stage_timed_out", Severity::Warning, message);
        }
        if decision.effects.contains(&HostEffect::MediaGone) {
            let message = format!("Host {}: cannot read from its boot medium", self.host_name(key));
            self.host_event(now, key, "host_media_disconnected", Severity::Error, message);
        }
        if changes && let Some(new) = self.state.host(key).cloned() {
            self.host_status_event(now, key, old.host().status, new.host());
        }
        if leaves && let Some(id) = old.host().cluster_id {
            self.state.cluster_agenda.schedule(id, self.state.clock);
        }
    }

    fn tell_host_validations(&mut self, now: Timestamp, key: HostKey, old: &HostView, new: &HostValidations) {
        let read = || HostValidations::parse(old.host.validations_info.as_deref()?).ok().map(Arc::new);
        let Some(old) = old.evaluated().cloned().or_else(read) else { return };
        for (before, after) in changes(&old.0, &new.0) {
            let name = self.host_name(key);
            if let Some(how) = began_to_fail(before.status, after.status) {
                let text = format!("Host {name}: validation '{}' {how}", after.id);
                self.host_event(now, key, "host_validation_failed", Severity::Warning, text);
            } else if is_fixed(before.status, after.status) {
                let text = format!("Host {name}: validation '{}' is now fixed", after.id);
                self.host_event(now, key, "host_validation_fixed", Severity::Info, text);
            }
        }
    }

    /// Looks at a cluster: validations, status, side effects; and notes when to look again.
    pub(crate) fn refresh_cluster(&mut self, now: Timestamp, id: Uuid) {
        let Some(row) = self.state.cluster(id).cloned() else { return };
        let hosts = self.state.hosts_of_cluster(id);
        let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
        let settings = &self.config.settings;
        let evaluated = EVALUATED_IN.contains(&row.cluster().status);
        let mut validations = evaluated.then(|| evaluate_cluster(&row.view, &views, settings, now));
        if let (Some(alteration), Some(validations)) = (&self.config.alteration, &mut validations) {
            alteration.validations(&mut validations.0);
        }
        let decision = cluster::refresh_with(&row.view, &views, settings, now, validations, self.clusters_wrong());
        self.apply_cluster(now, id, &decision);
        if let Some(row) = self.state.cluster(id)
            && let Some(at) = cluster::next_deadline(&row.view, &self.config.settings, now)
        {
            self.state.cluster_agenda.schedule(id, ceil_ms(at));
        }
    }

    /// Carries a decision about a cluster out.
    pub(crate) fn apply_cluster(&mut self, now: Timestamp, id: Uuid, decision: &ClusterDecision) {
        if let Some(rule) = decision.rule
            && !self.fired_of_clusters.contains(&rule)
        {
            self.fired_of_clusters.push(rule);
        }
        let timer_survives = self.is_planted(Planted::TimerSurvives);
        let Some(old) = self.state.cluster(id).cloned() else { return };
        let validations = decision.validations.as_ref().filter(|new| old.view.evaluated() != Some(new));
        let read = || ClusterValidations::parse(old.cluster().validations_info.as_deref()?).ok().map(Arc::new);
        if let Some(new) = validations
            && let Some(before) = old.view.evaluated().cloned().or_else(read)
        {
            for (before, after) in changes(&before.0, &new.0) {
                if let Some(how) = began_to_fail(before.status, after.status) {
                    let text = format!("Cluster validation '{}' {how}", after.id);
                    self.cluster_event(now, id, "cluster_validation_failed", Severity::Warning, text);
                } else if is_fixed(before.status, after.status) {
                    let text = format!("Cluster validation '{}' is now fixed", after.id);
                    self.cluster_event(now, id, "cluster_validation_fixed", Severity::Info, text);
                }
            }
        }
        let changes = decision.changes_status(&old.view);
        let prepared = if self.does(Conduct::PreparingPercentage) { None } else { Some(100) };
        let changed = self.state.edit_cluster(id, now, |row| {
            if let Some(new) = validations {
                row.view.set_validations(new.clone());
            }
            let c = &mut row.view.cluster;
            c.status_info.clone_from(&decision.status_info);
            if changes {
                c.status = decision.to;
                c.status_updated_at = Some(now);
                if decision.to == ClusterStatus::Installing
                    && old.cluster().status == ClusterStatus::PreparingForInstallation
                {
                    progress::set_percentages(c.progress.get_or_insert_default(), prepared, None, None);
                }
            }
            let began = row.view.cluster.install_started_at.filter(|at| timer_survives && at.is_set());
            for effect in &decision.effects {
                apply_cluster_effect(row, *effect, now);
            }
            row.view.cluster.install_started_at = began.or(row.view.cluster.install_started_at);
        });
        if !changed {
            return;
        }
        for effect in &decision.effects {
            match effect {
                ClusterEffect::TellFailure => {
                    let text = format!("Failed installing cluster: {}", decision.status_info);
                    self.cluster_event(now, id, "cluster_installation_failed", Severity::Critical, text);
                }
                ClusterEffect::NotePreparationTimeout => {
                    let text = "Preparing the cluster for installation took too long".to_owned();
                    self.cluster_event(now, id, "installation_preparing_timed_out", Severity::Warning, text);
                }
                ClusterEffect::NoteFinalizingStageTimeout => {
                    let stage =
                        old.cluster().progress.as_ref().and_then(|p| p.finalizing_stage).map_or("", |s| s.as_str());
                    let text = format!("Finalizing stage '{stage}' takes longer than it should");
                    self.cluster_event(now, id, "finalizing_stage_timed_out", Severity::Warning, text);
                }
                ClusterEffect::ForgetInstallation if self.does(Conduct::ResetKeepsFiles) => {}
                ClusterEffect::ForgetInstallation => self.delete_generated_files(id),
                _ => {}
            }
        }
        if changes {
            self.cluster_status_event(now, id, decision.to, &decision.status_info);
            if decision.to == ClusterStatus::Installed {
                let text = "Successfully completed installing cluster".to_owned();
                self.cluster_event(now, id, "cluster_installation_completed", Severity::Info, text);
            }
        }
    }

    /// Removes what a preparation generated; manifests of the user and logs stay.
    fn delete_generated_files(&mut self, id: Uuid) {
        let prefix = format!("{id}/");
        let keep = [format!("{id}/manifests/user/"), format!("{id}/logs/")];
        let keys: Vec<String> = self.state.files_under(&prefix).map(|(k, _)| k.clone()).collect();
        for key in keys.iter().filter(|k| !keep.iter().any(|p| k.starts_with(p))) {
            self.state.delete_file(key);
        }
    }

    /// Majority groups and address collisions, while the cluster is not being installed.
    pub(crate) fn derive_connectivity(&mut self, now: Timestamp, id: Uuid) {
        if !self.state.stale_connectivity.remove(&id) {
            return;
        }
        let Some(row) = self.state.cluster(id).cloned() else { return };
        if !before_installation(row.cluster().status) || self.does(Conduct::NoMajorityGroup) {
            return;
        }
        let hosts = self.state.hosts_of_cluster(id);
        let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
        let groups = network::majority_groups(&row.view, &views);
        let collisions = network::ip_collisions(&views);
        self.state.edit_cluster(id, now, |row| {
            row.view.set_majority_groups(groups);
            row.view.set_ip_collisions(collisions);
        });
        // The edit above marks the cluster again only if its machine networks changed.
        self.state.stale_connectivity.remove(&id);
    }

    /// The machine network of a single node, or the one that the VIPs are in.
    pub(crate) fn derive_machine_networks(&mut self, now: Timestamp, id: Uuid) {
        let Some(row) = self.state.cluster(id).cloned() else { return };
        if !before_installation(row.cluster().status) || row.view.is_day2() || self.does(Conduct::NoMachineNetwork) {
            return;
        }
        let hosts = self.state.hosts_of_cluster(id);
        let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
        let networks = if row.view.is_sno() {
            match views.as_slice() {
                [only] if !row.view.has_machine_network() => network::sno_machine_networks(only),
                _ => return,
            }
        } else if row.view.vip_dhcp_allocation() {
            // The VIPs are leased in the machine network: it must be known first, and is where all hosts are, unless they are in
            // several and the user has to choose.
            let all: BTreeSet<IpNet> =
                views.iter().filter_map(|v| v.inventory.as_deref()).flat_map(network::inventory_networks).collect();
            if !undecided(row.cluster().status) || all.len() != 1 {
                return;
            }
            all.into_iter().collect()
        } else if !row.view.machine_networks_follow_vips() {
            return;
        } else {
            network::calculated_machine_networks(&row.view, &views)
        };
        // A second network that the user gave stays, although no VIP is in it, as long as the first one is right.
        if row.view.machine_networks().starts_with(&networks) {
            return;
        }
        let wanted = network::to_machine_networks(id, &networks);
        if row.cluster().machine_networks.as_ref() != Some(&wanted) {
            self.state.edit_cluster(id, now, |row| {
                row.view.cluster.machine_networks = Some(wanted);
                row.private.machine_network_set_at = Some(now);
            });
            self.derive_connectivity(now, id);
        }
    }

    /// As long as no host is in the network of a VIP, the monitor takes the machine networks away again, the user's own
    /// too: it writes what it has calculated, and that is nothing. They come back with the hosts. Dual-stack clusters keep them.
    fn drop_machine_networks(&mut self, now: Timestamp, id: Uuid) {
        let Some(row) = self.state.cluster(id) else { return };
        let view = &row.view;
        let may = undecided(row.cluster().status)
            && view.machine_networks_follow_vips()
            && !view.is_day2()
            && !view.is_dual_stack();
        if !may || !view.has_machine_network() {
            return;
        }
        let hosts = self.state.hosts_of_cluster(id);
        let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
        if network::calculated_machine_networks(view, &views).is_empty() {
            self.state.edit_cluster(id, now, |row| {
                row.view.cluster.machine_networks = Some(Vec::new());
                row.private.machine_network_set_at = Some(now);
            });
            self.derive_connectivity(now, id);
        }
    }

    /// Says once that no VIPs were leased in time after the machine network became known.
    fn warn_about_leases(&mut self, now: Timestamp, id: Uuid) {
        let Some(row) = self.state.cluster(id).cloned() else { return };
        let has_vips = row.cluster().api_vips.as_ref().is_some_and(|v| !v.is_empty());
        let Some(set_at) = row.private.machine_network_set_at else { return };
        if !row.view.vip_dhcp_allocation() || has_vips || row.private.dhcp_warned {
            return;
        }
        let limit = self.config.settings.constants.dhcp_vip_lease_warning;
        if now.since(set_at) < limit {
            self.state.cluster_agenda.schedule(id, ceil_ms(set_at + limit));
            return;
        }
        self.state.edit_cluster(id, now, |row| row.private.dhcp_warned = true);
        let text = format!("API and ingress VIPs were not leased within {} s", limit.as_secs_f64());
        self.cluster_event(now, id, "api_ingress_vip_timed_out", Severity::Warning, text);
    }

    /// Suggested roles, once every host of the cluster has an inventory.
    fn suggest_roles(&mut self, now: Timestamp, id: Uuid) {
        let Some(row) = self.state.cluster(id).cloned() else { return };
        if !before_installation(row.cluster().status) || self.does(Conduct::NoRoleSuggested) {
            return;
        }
        let hosts = self.state.hosts_of_cluster(id);
        if hosts.iter().all(|h| h.host().role.is_some_and(|r| r != HostRole::AutoAssign)) {
            return;
        }
        let views: Vec<&HostView> = hosts.iter().map(|h| &h.view).collect();
        let Some(suggested) = roles::suggested_roles(&row.view, &views, &self.config.settings) else { return };
        for (host, role) in hosts.iter().zip(suggested) {
            let open = host.host().role.is_none_or(|r| r == HostRole::AutoAssign);
            let role = match role {
                _ if self.does(Conduct::WorkersSuggested) => HostRole::Worker,
                _ if self.does(Conduct::MastersSuggested) => HostRole::Master,
                role => role,
            };
            if open && host.host().suggested_role != Some(role) {
                let key = (host.infra_env_id(), host.host().id);
                self.state.edit_host(key, now, |row| row.view.host.suggested_role = Some(role));
                let message = format!("Host {}: calculated role is {role}", self.host_name(key));
                self.host_event(now, key, "host_role_updated", Severity::Info, message);
            }
        }
    }

    /// What a change by the user shows at once: all hosts of the cluster and the cluster are looked at.
    pub(crate) fn refresh_interactively(&mut self, now: Timestamp, id: Uuid) {
        self.derive_connectivity(now, id);
        for key in self.state.host_keys_of_cluster(id) {
            self.refresh_host(now, key);
        }
        self.refresh_cluster(now, id);
    }
}

/// How the event says that a validation has begun to fail, when it has: whatever it was before, if not looked at for the first
/// time.
fn began_to_fail(before: ValidationStatus, after: ValidationStatus) -> Option<&'static str> {
    match (before, after) {
        (ValidationStatus::Failure, _) => None,
        (ValidationStatus::Success, ValidationStatus::Failure) => Some("that used to succeed is now failing"),
        (_, ValidationStatus::Failure) => Some("failed"),
        _ => None,
    }
}

/// Does the event say that a validation is fixed? Only after a failure: one that was pending was never broken.
fn is_fixed(before: ValidationStatus, after: ValidationStatus) -> bool {
    (before, after) == (ValidationStatus::Failure, ValidationStatus::Success)
}

/// Pairs of validations whose status differs. One that is hidden (a host that reboots asks no time source) is not there.
fn changes<'a>(old: &'a [Validation], new: &'a [Validation]) -> Vec<(&'a Validation, &'a Validation)> {
    let shown = |all: &'a [Validation]| all.iter().filter(|v| !v.hidden);
    let pairs = shown(new).filter_map(|after| Some((shown(old).find(|before| before.id == after.id)?, after)));
    pairs.filter(|(before, after)| before.status != after.status).collect()
}

fn apply_host_effect(row: &mut HostRow, effect: HostEffect, now: Timestamp, sno: bool) {
    match effect {
        HostEffect::ForgetInventory => {
            row.view.set_inventory(None);
            // Also of a single node, which is its cluster's bootstrap from its first registration until it registers again.
            row.view.host.bootstrap = None;
        }
        HostEffect::ForgetProgress => {
            row.view.host.progress = no_progress();
            row.view.set_images_status(Default::default());
            row.private.formatting_announced = false;
        }
        HostEffect::ForgetTimeSources => row.view.set_ntp_sources(None),
        HostEffect::ForgetLogs => {
            let h = &mut row.view.host;
            h.logs_info = None;
            h.logs_collected_at = Some(Timestamp::UNSET);
            h.logs_started_at = Some(Timestamp::UNSET);
        }
        HostEffect::ForgetFailedImages => {
            if host::images_failed(&row.view) {
                row.view.set_images_status(Default::default());
            }
        }
        HostEffect::RestartClusterPreparation => {}
        HostEffect::ForgetInstallation => {
            let h = &mut row.view.host;
            // The rest stays as it is until the host registers again.
            h.suggested_role = if sno { h.suggested_role } else { Some(h.role.unwrap_or(HostRole::AutoAssign)) };
        }
        HostEffect::LeaveCluster => {
            let v = &mut row.view;
            v.set_connectivity(None);
            v.set_domain_name_resolutions(None);
            v.set_free_addresses(None);
            v.set_images_status(Default::default());
            v.set_api_vip_connectivity(None);
            let h = &mut v.host;
            h.installation_disk_id = None;
            h.installation_disk_path = None;
            h.machine_config_pool_name = None;
            h.cluster_id = None;
            h.kind = "Host".into();
            h.role = Some(HostRole::AutoAssign);
            h.suggested_role = Some(HostRole::AutoAssign);
            h.bootstrap = None;
        }
        HostEffect::MediaGone => row.view.host.media_status = Some("disconnected".into()),
        HostEffect::NoteStageTimeout => row.view.host.progress.get_or_insert_default().stage_timed_out = Some(true),
        HostEffect::RestartStageTimer => {
            row.view.host.progress.get_or_insert_default().stage_updated_at = Some(now);
        }
        HostEffect::NoteConnectionTimeout => row.view.host.connection_timed_out = Some(true),
        HostEffect::ForgetConnectionTimeout => row.view.host.connection_timed_out = None,
        HostEffect::NoteLogsTimeout => row.view.host.logs_info = Some(LogsState::Timeout),
    }
}

/// As a cluster tells it whose installation has not been prepared, or not yet again.
fn no_preparation() -> LastInstallationPreparation {
    let reason = Some("Installation preparation not performed".to_owned());
    LastInstallationPreparation { status: Some("not_started".into()), reason }
}

fn apply_cluster_effect(row: &mut ClusterRow, effect: ClusterEffect, now: Timestamp) {
    let sno = row.view.is_sno();
    let c = &mut row.view.cluster;
    let no_progress = || {
        Some(vlab_api::types::ClusterProgressInfo {
            finalizing_stage_started_at: Some(Timestamp::UNSET),
            ..Default::default()
        })
    };
    match effect {
        // Progress and the time of completion stay as they are: only a reset forgets them.
        ClusterEffect::BeginInstallation => {
            c.install_started_at = Some(now);
            c.last_installation_preparation = Some(no_preparation());
            c.logs_info = None;
            c.controller_logs_collected_at = Some(Timestamp::UNSET);
            c.controller_logs_started_at = Some(Timestamp::UNSET);
        }
        ClusterEffect::EndInstallation => c.install_completed_at = Some(now),
        ClusterEffect::RestartFinalizingStage => {
            if let Some(progress) = c.progress.as_mut() {
                progress.finalizing_stage_started_at = Some(now);
                progress.finalizing_stage_timed_out = Some(false);
            }
        }
        ClusterEffect::ForgetInstallation => {
            c.progress = no_progress();
            c.logs_info = None;
            c.controller_logs_collected_at = Some(Timestamp::UNSET);
            c.controller_logs_started_at = Some(Timestamp::UNSET);
            c.openshift_cluster_id = None;
            c.last_installation_preparation = Some(no_preparation());
            if sno {
                c.api_vips = Some(Vec::new());
                c.ingress_vips = Some(Vec::new());
            }
            for operator in c.monitored_operators.iter_mut().flatten() {
                operator.status = None;
                operator.status_info = None;
                operator.version = None;
                operator.status_updated_at = Some(Timestamp::UNSET);
            }
            row.view.kubeconfig_uploaded = false;
            row.private.preparation_due = None;
        }
        ClusterEffect::NotePreparationTimeout => {
            c.last_installation_preparation = Some(LastInstallationPreparation {
                status: Some("failed".into()),
                reason: Some("Preparing the cluster for installation took too long".into()),
            });
            row.private.preparation_due = None;
        }
        ClusterEffect::NoteFinalizingStageTimeout => {
            c.progress.get_or_insert_default().finalizing_stage_timed_out = Some(true);
        }
        ClusterEffect::TellFailure => {}
        ClusterEffect::CompleteProgress => progress::set_installed(c.progress.get_or_insert_default()),
        ClusterEffect::NoteLogsTimeout => c.logs_info = Some(LogsState::Timeout),
    }
}

/// Statuses of hosts that take part in the preparation or the installation.
pub(crate) fn in_installation(status: HostStatus) -> bool {
    matches!(
        status,
        HostStatus::PreparingForInstallation
            | HostStatus::PreparingSuccessful
            | HostStatus::PreparingFailed
            | HostStatus::Installing
            | HostStatus::InstallingInProgress
            | HostStatus::InstallingPendingUserAction
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_validation_that_is_hidden_has_not_changed() {
        let at = |status, hidden| Validation {
            id: "ntp-synced",
            category: "network",
            status,
            message: "".into(),
            hidden,
            ignored: false,
        };
        let (failed, fixed) = (at(ValidationStatus::Failure, false), at(ValidationStatus::Success, false));
        let hidden = at(ValidationStatus::Success, true);
        assert_eq!(changes(std::slice::from_ref(&failed), std::slice::from_ref(&fixed)).len(), 1);
        assert_eq!(changes(&[failed], &[hidden]).len(), 0);
    }

    /// Rows seen on the real service.
    #[rstest]
    #[case(ValidationStatus::Success, ValidationStatus::Failure, Some("that used to succeed is now failing"), false)]
    #[case(ValidationStatus::Pending, ValidationStatus::Failure, Some("failed"), false)]
    #[case(ValidationStatus::Error, ValidationStatus::Failure, Some("failed"), false)]
    #[case(ValidationStatus::Failure, ValidationStatus::Success, None, true)]
    #[case(ValidationStatus::Pending, ValidationStatus::Success, None, false)]
    #[case(ValidationStatus::Failure, ValidationStatus::Pending, None, false)]
    fn what_is_told_of_a_validation(
        #[case] before: ValidationStatus,
        #[case] after: ValidationStatus,
        #[case] failed: Option<&str>,
        #[case] fixed: bool,
    ) {
        assert_eq!((began_to_fail(before, after), is_fixed(before, after)), (failed, fixed));
    }

    #[test]
    fn ticks_are_multiples_of_the_interval_and_never_early() {
        let eight = Duration::from_secs(8);
        let at = |s: i64| Timestamp::from_secs(800 + s);
        let tick = |interval, last, work| tick(interval, Duration::ZERO, last, work);
        assert_eq!(tick(eight, Timestamp::UNSET, at(0)), at(0));
        assert_eq!(tick(eight, at(0), Timestamp::UNSET), at(8));
        assert_eq!(tick(eight, at(3), Timestamp::UNSET), at(8));
        assert_eq!(tick(eight, at(8), at(8)), at(16));
        assert_eq!(tick(eight, at(0), at(17)), at(24));
        // An interval that is not a whole number of milliseconds: the tick is rounded up, and the next one is a later one.
        let odd = Duration::from_micros(133_333);
        let zero = Timestamp::from_micros(0);
        let first = tick(odd, zero, Timestamp::UNSET);
        assert_eq!(first.as_micros(), 134_000);
        assert_eq!(tick(odd, first, Timestamp::UNSET).as_micros(), 267_000);
    }

    /// A tick between two milliseconds would never come: the service's time is in whole ones.
    #[test]
    fn a_tick_comes_so_long_after_its_multiple_in_whole_milliseconds() {
        let (interval, phase) = (Duration::from_millis(133), Duration::from_micros(12_166));
        let zero = Timestamp::from_micros(0);
        let first = tick(interval, phase, zero, Timestamp::UNSET);
        assert_eq!(first.as_micros(), 13_000);
        assert_eq!(tick(interval, phase, first, Timestamp::UNSET).as_micros(), 146_000);
        assert_eq!(tick(interval, phase, zero, Timestamp::from_micros(13_001)).as_micros(), 146_000);
    }
}
