//! What the user finds out by looking: clusters, their hosts, and events.

use vlab_api::types::Host;

use super::*;

/// What is looked at.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Look {
    Cluster(usize),
    Events(Whose),
    /// In the last look: the list of clusters.
    Clusters,
    /// In the last look: the list of an infra-env's hosts.
    Hosts(Whose),
    /// In the last look: a host by itself.
    Host(usize),
}

impl User {
    pub(super) fn queue_looks(&mut self) {
        for (index, cluster) in self.clusters.iter().enumerate() {
            if cluster.id.is_some() {
                self.look_queue.push_back(Look::Cluster(index));
                self.look_queue.push_back(Look::Events(Whose::Cluster(index)));
            }
        }
        if self.pool.infra_env.is_some() {
            self.look_queue.push_back(Look::Events(Whose::Pool));
        }
        if self.final_look {
            self.queue_lists();
        }
    }

    pub(super) fn look(&mut self, look: Look) {
        let request = match &look {
            Look::Cluster(index) => self.clusters[*index].id.map(|id| ops::get_cluster(id).request),
            Look::Events(whose) => {
                let state = self.state(*whose);
                let query = EventsQuery {
                    cluster: state.id,
                    infra_env: if state.id.is_some() { None } else { state.infra_env },
                    offset: Some(state.events.offset()),
                    ..EventsQuery::default()
                };
                Some(ops::list_events(&query).request)
            }
            Look::Clusters => Some(ops::list_clusters().request),
            Look::Hosts(whose) => self.state(*whose).infra_env.map(|id| ops::list_hosts(id).request),
            Look::Host(index) => self.host_address(*index).map(|(infra_env, id)| ops::get_host(infra_env, id).request),
        };
        if let Some(request) = request {
            self.looking = Some(look);
            self.sends.push(Send { connection: LOOK, tag: 0, request });
        }
    }

    pub(super) fn saw_cluster(&mut self, index: usize, cluster: &Cluster) {
        for host in cluster.hosts.as_deref().unwrap_or_default() {
            self.saw_host(host);
        }
        self.saw_cluster_itself(index, cluster);
    }

    /// A host as an answer shows it, and who it is.
    pub(super) fn saw_host(&mut self, host: &Host) -> Option<usize> {
        let &h = self.host_index.get(&host.id)?;
        let facts = HostFacts::from(host);
        let changes = diff_host(host.id, self.hosts[h].facts.as_ref(), &facts);
        self.hosts[h].facts = Some(facts);
        for what in changes {
            if !self.config.events_tell_states || !self.hosts[h].states.take(&what) {
                self.seen.push(Seen { source: Source::Poll, service_time: None, what });
            }
        }
        Some(h)
    }

    /// A cluster as an answer shows it, without its hosts. It comes after these: it follows them, and who reads a look as a sequence must
    /// not find one that is installing before it has a bootstrap.
    pub(super) fn saw_cluster_itself(&mut self, index: usize, cluster: &Cluster) {
        let facts = ClusterFacts::from(cluster);
        let state = &mut self.clusters[index];
        for what in diff_cluster(cluster.id, state.facts.as_ref(), &facts) {
            if !self.config.events_tell_states || !state.states.take(&what) {
                self.seen.push(Seen { source: Source::Poll, service_time: None, what });
            }
        }
        state.facts = Some(facts);
    }

    /// The state that an event tells of, before the event itself.
    fn states_of_event(&mut self, event: &Event) {
        let Some(told) = told(event.name.as_deref().unwrap_or_default(), &event.message) else { return };
        let host = event.host_id.and_then(|id| self.host_index.get(&id).copied());
        let cluster = event.cluster_id.and_then(|id| self.cluster_index.get(&id).copied());
        let at = event.event_time;
        match (told, host, cluster) {
            (ToldByEvent::HostStatus(from, to, info), Some(h), _) => {
                for change in self.hosts[h].states.status.event(Some(from), to) {
                    let info = if change.to == to { info.clone() } else { String::new() };
                    self.host_changed(h, Some(at), change, info, event.cluster_id);
                }
            }
            (ToldByEvent::HostStage(stage, info), Some(h), _) => {
                for change in self.hosts[h].states.stage.event(None, Some(stage)) {
                    self.host_stage_changed(h, Some(at), change, info.clone());
                }
            }
            (ToldByEvent::ClusterStatus(to), None, Some(c)) => {
                for change in self.clusters[c].states.status.event(None, to) {
                    self.cluster_changed(c, Some(at), change);
                }
            }
            (ToldByEvent::Finalizing(stage), None, Some(c)) => {
                for change in self.clusters[c].states.finalizing.event(None, Some(stage)) {
                    self.finalizing_changed(c, Some(at), change);
                }
            }
            _ => {}
        }
    }

    /// All events of a cluster were read: what only looks have shown. Hosts before their cluster, as in a look.
    fn states_of_looks(&mut self, index: usize) {
        let name = self.scenario.clusters[index].name.clone();
        let members = self.members.of(Some(&name)).to_vec();
        for h in members {
            let facts = self.hosts[h].facts.clone().unwrap_or_default();
            for change in self.hosts[h].states.status.round(self.final_look) {
                let info = if change.to == facts.status { facts.status_info.clone() } else { String::new() };
                self.host_changed(h, None, change, info, facts.cluster_id);
            }
            for change in self.hosts[h].states.stage.round(self.final_look) {
                self.host_stage_changed(h, None, change, facts.progress_progress_info.clone());
            }
        }
        for change in self.clusters[index].states.status.round(self.final_look) {
            self.cluster_changed(index, None, change);
        }
        for change in self.clusters[index].states.finalizing.round(self.final_look) {
            self.finalizing_changed(index, None, change);
        }
    }

    fn changed<S>(&mut self, at: Option<Timestamp>, change: &MergedChange<S>, what: What) {
        let service_time = at.filter(|_| change.source == Source::Events);
        self.seen.push(Seen { source: change.source, service_time, what });
    }

    fn host_changed(
        &mut self,
        index: usize,
        at: Option<Timestamp>,
        change: MergedChange<HostStatus>,
        info: String,
        cluster: Option<Uuid>,
    ) {
        let host = self.hosts[index].id;
        self.changed(at, &change, What::HostStatus { host, cluster, from: change.from, to: change.to, info });
    }

    fn host_stage_changed(
        &mut self,
        index: usize,
        at: Option<Timestamp>,
        change: MergedChange<Option<HostStage>>,
        info: String,
    ) {
        // Events do not tell the percentage; the last look's is the best there is.
        let percentage = self.hosts[index].facts.as_ref().map_or(0, |f| f.progress_installation_percentage);
        let host = self.hosts[index].id;
        let from = change.from.flatten();
        self.changed(at, &change, What::HostStage { host, from, to: change.to, info, percentage });
    }

    fn cluster_changed(&mut self, index: usize, at: Option<Timestamp>, change: MergedChange<ClusterStatus>) {
        let Some(cluster) = self.clusters[index].id else { return };
        // Events of clusters tell no words.
        let facts = self.clusters[index].facts.as_ref();
        let info = facts.filter(|f| f.status == change.to).map(|f| f.status_info.clone()).unwrap_or_default();
        self.changed(at, &change, What::ClusterStatus { cluster, from: change.from, to: change.to, info });
    }

    fn finalizing_changed(
        &mut self,
        index: usize,
        at: Option<Timestamp>,
        change: MergedChange<Option<FinalizingStage>>,
    ) {
        if let (Some(cluster), Some(stage)) = (self.clusters[index].id, change.to) {
            self.changed(at, &change, What::ClusterFinalizingStage { cluster, stage });
        }
    }

    pub(super) fn looked(&mut self, look: Look, reply: Reply) {
        match look {
            Look::Cluster(index) => {
                let cluster = match read(ops::get_cluster(Uuid::nil()), reply) {
                    Ok(cluster) => cluster,
                    Err(_) if self.clusters[index].gone => return,
                    Err(failure) => return self.look_failed(HistoryPart::LastLook, self.clusters[index].id, failure),
                };
                self.saw_cluster(index, &cluster);
                if self.final_look {
                    self.lists.saw(cluster.hosts.as_deref().unwrap_or_default().iter().map(|host| host.id));
                }
                for operator in cluster.monitored_operators.unwrap_or_default() {
                    self.saw_operator(cluster.id, operator);
                }
            }
            Look::Clusters => match read(ops::list_clusters(), reply) {
                Ok(clusters) => self.saw_clusters(&clusters),
                Err(failure) => self.look_failed(HistoryPart::LastLook, None, failure),
            },
            Look::Hosts(whose) => match read(ops::list_hosts(Uuid::nil()), reply) {
                Ok(hosts) => self.saw_hosts(whose, &hosts),
                Err(failure) => self.look_failed(HistoryPart::LastLook, self.state(whose).id, failure),
            },
            Look::Host(index) => match read(ops::get_host(Uuid::nil(), Uuid::nil()), reply) {
                Ok(host) => _ = self.saw_host(&host),
                Err(failure) if failure.status() == Some(404) => self.lacks("v2GetHost", Look::Host(index), &[index]),
                Err(failure) => self.look_failed(HistoryPart::LastLook, Some(self.hosts[index].id), failure),
            },
            Look::Events(whose) => {
                match read(ops::list_events(&EventsQuery::default()), reply) {
                    Ok(events) => self.saw_events(whose, events),
                    Err(failure) => self.look_failed(HistoryPart::Events, self.state(whose).id, failure),
                }
                if self.config.events_tell_states
                    && let Whose::Cluster(index) = whose
                {
                    self.states_of_looks(index);
                }
            }
        }
    }

    fn saw_events(&mut self, whose: Whose, events: Vec<Event>) {
        let events = self.state_mut(whose).events.news(events);
        if self.final_look && !events.is_empty() {
            // The service gives a page at a time: only one without news is the last.
            if self.state_mut(whose).events.has_a_page_left() {
                self.look_queue.push_front(Look::Events(whose));
            } else {
                let why = format!("the service has more events than the {LAST_PAGES} pages that were read at the end");
                let what = What::Incomplete { part: HistoryPart::Events, machine: None, why };
                self.seen.push(Seen { source: Source::Harness, service_time: None, what });
            }
        }
        for event in events {
            // A host of the pool that was bound is told of in both lists: once is enough.
            let of_cluster = event.cluster_id.is_some_and(|c| self.cluster_index.contains_key(&c));
            if whose == Whose::Pool && of_cluster {
                continue;
            }
            if self.config.events_tell_states {
                self.states_of_event(&event);
            }
            self.seen.push(saw_event(event));
        }
    }

    /// A look showed nothing. One of the last is not made up for by another.
    pub(super) fn look_failed(&mut self, part: HistoryPart, subject: Option<Uuid>, failure: Failure) {
        if let Failure::Unreadable { operation, error, .. } = &failure {
            if self.unreadable.insert(format!("{operation}: {error}")) {
                let what = What::Unreadable { subject, of: (*operation).to_owned(), error: error.clone() };
                self.seen.push(Seen { source: Source::Poll, service_time: None, what });
            }
        } else if self.final_look {
            let what = What::Incomplete { part, machine: None, why: failure.to_string() };
            self.seen.push(Seen { source: Source::Harness, service_time: None, what });
        }
    }

    fn saw_operator(&mut self, cluster: Uuid, operator: vlab_api::types::MonitoredOperator) {
        let name = operator.name.unwrap_or_default();
        let kind = operator.operator_type;
        let what = What::Operator { cluster, name: name.clone(), status: operator.status, kind };
        // The state of operators is small: whether it is news is looked up in what was told before.
        if operator.status.is_some() && self.operators.insert((cluster, name), operator.status) != Some(operator.status)
        {
            self.seen.push(Seen { source: Source::Poll, service_time: operator.status_updated_at, what });
        }
    }
}

impl HostStates {
    /// Takes a change that a look shows, when it is one of states.
    fn take(&mut self, what: &What) -> bool {
        match what {
            What::HostStatus { to, .. } => self.status.look(*to),
            What::HostStage { from, to, .. } if from != to => self.stage.look(*to),
            // The text about a stage that nobody has told of yet.
            What::HostStage { to, .. } => return self.stage.now() != Some(*to),
            _ => return false,
        }
        true
    }
}

impl ClusterStates {
    /// Takes a change that a look shows, when it is one of states.
    fn take(&mut self, what: &What) -> bool {
        match what {
            What::ClusterStatus { to, .. } => self.status.look(*to),
            What::ClusterFinalizingStage { stage, .. } => self.finalizing.look(Some(*stage)),
            _ => return false,
        }
        true
    }
}
