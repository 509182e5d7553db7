//! What can be wrong on purpose with the simulated service, hosts and clusters, as one list: planted defects for whoever wants to know
//! what the judge notices. [`all`] is the list; [`crate::prepare::Prepared::alteration`] chooses one for a run in virtual time.
//!
//! Rows of tables that no run can reach ([`crate::coverage::UNREACHABLE`]) have no alterations: what never happens cannot be wrong.

pub mod bench;
pub mod unnoticed;

use std::collections::BTreeSet;

use vlab_history::rules::{Machine, RuleId};
use vlab_model::machine::{Rule, Wrong};
use vlab_model::{cluster, host};

use crate::coverage::{RULES, UNREACHABLE};

/// One thing that is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Alteration {
    /// With the service.
    Service(vlab_service::alteration::Alteration),
    /// With hosts, or inside of clusters.
    Hosts(vlab_agents::Alteration),
}

impl Alteration {
    /// Its name, by which it is found again.
    pub fn name(&self) -> String {
        match self {
            Alteration::Service(alteration) => alteration.name(),
            Alteration::Hosts(alteration) => alteration.name(),
        }
    }

    /// What is wrong, in a few words.
    pub fn about(&self) -> String {
        match self {
            Alteration::Service(alteration) => alteration.about(),
            Alteration::Hosts(alteration) => alteration.about(),
        }
    }

    /// What it is about: the first part of its name.
    pub fn family(&self) -> String {
        self.name().split('/').next().unwrap_or_default().to_owned()
    }

    /// The rule of a state machine that it changes.
    pub fn rule(&self) -> Option<RuleId> {
        use vlab_service::alteration::Alteration::{Clusters, Hosts};
        match self {
            Alteration::Service(Hosts(wrong)) => RuleId::of_host_rule(row(wrong)?),
            Alteration::Service(Clusters(wrong)) => RuleId::of_cluster_rule(row(wrong)?),
            _ => None,
        }
    }

    /// Does it change nothing, by the table alone? So it is where a row is not there that leaves everything as it is, and where no
    /// row that stands behind it would do anything instead: a refresh that finds no row leaves everything as it is, too.
    pub fn changes_nothing(&self) -> bool {
        use vlab_service::alteration::Alteration::{Clusters, Hosts};
        match self {
            Alteration::Service(Hosts(Wrong::Without(rule))) => {
                let table = if host::RULES.contains(rule) { host::RULES } else { host::POOL_RULES };
                let stays = |r: &host::HostRule| {
                    r.event == host::HostEvent::RefreshHost
                        && r.words == host::HostWords::Keep
                        && r.effects.is_empty()
                        && r.from == [r.to]
                };
                nothing_instead(table, rule, stays)
            }
            Alteration::Service(Clusters(Wrong::Without(rule))) => {
                let stays = |r: &cluster::ClusterRule| {
                    r.event == cluster::ClusterEvent::RefreshStatus
                        && r.words == cluster::ClusterWords::Keep
                        && r.effects.is_empty()
                        && r.from == [r.to]
                };
                nothing_instead(cluster::RULES, rule, stays)
            }
            _ => false,
        }
    }
}

fn row<E, S, C, W, F>(wrong: &Wrong<E, S, C, W, F>) -> Option<&'static Rule<E, S, C, W, F>> {
    match wrong {
        Wrong::Without(r) | Wrong::LeadsTo(r, _) | Wrong::Omits(r, _) | Wrong::Misspeaks(r) => Some(r),
        Wrong::Believes(..) => None,
    }
}

/// Does the row leave everything as it is, and so does each that could fire in its place?
fn nothing_instead<E: PartialEq, S: PartialEq, C, W, F>(
    table: &'static [Rule<E, S, C, W, F>],
    rule: &'static Rule<E, S, C, W, F>,
    stays: impl Fn(&Rule<E, S, C, W, F>) -> bool,
) -> bool {
    let behind = table.iter().skip_while(|r| *r != rule).skip(1);
    let instead = |r: &&Rule<E, S, C, W, F>| r.event == rule.event && r.from.iter().any(|s| rule.from.contains(s));
    stays(rule) && behind.filter(instead).all(stays)
}

/// Each row that can be reached, wrong in each way.
fn of_tables() -> Vec<Alteration> {
    let reachable: BTreeSet<RuleId> = RuleId::all().filter(|id| is_reachable(*id)).collect();
    let asked = |of: &dyn Fn(RuleId) -> bool| reachable.iter().any(|id| of(*id));
    let service = vlab_service::alteration::alterations().into_iter().filter(|alteration| {
        use vlab_service::alteration::Alteration::{Clusters, Event, Hosts};
        match alteration {
            Hosts(Wrong::Believes(c, _)) => asked(&|id| match id.machine {
                Machine::Host => host::RULES[id.index].guard.asks(*c),
                Machine::Pool => host::POOL_RULES[id.index].guard.asks(*c),
                Machine::Cluster => false,
            }),
            Clusters(Wrong::Believes(c, _)) => {
                asked(&|id| id.machine == Machine::Cluster && cluster::RULES[id.index].guard.asks(*c))
            }
            Hosts(_) | Clusters(_) => Alteration::Service(*alteration).rule().is_some_and(|id| reachable.contains(&id)),
            Event(name, _) => UNREACHABLE.iter().all(|u| u.section != "events" || !u.names(name)),
            _ => true,
        }
    });
    let hosts = vlab_agents::alteration::alterations().into_iter().map(Alteration::Hosts);
    service.map(Alteration::Service).chain(hosts).collect()
}

/// Everything that can be wrong and changes something, in the order of the tables.
pub fn all() -> Vec<Alteration> {
    of_tables().into_iter().filter(|alteration| !alteration.changes_nothing()).collect()
}

/// What would change nothing, by the tables alone.
pub fn changing_nothing() -> Vec<Alteration> {
    of_tables().into_iter().filter(Alteration::changes_nothing).collect()
}

/// The one with that name.
pub fn find(name: &str) -> Option<Alteration> {
    all().into_iter().find(|alteration| alteration.name() == name)
}

/// Can runs reach that rule?
pub fn is_reachable(id: RuleId) -> bool {
    let section = match id.machine {
        Machine::Host => RULES[0],
        Machine::Pool => RULES[1],
        Machine::Cluster => RULES[2],
    };
    UNREACHABLE.iter().all(|u| u.section != section || !u.names(&id.index.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_that_can_be_reached_is_altered() {
        let altered: BTreeSet<RuleId> = all().iter().filter_map(Alteration::rule).collect();
        let reachable: BTreeSet<RuleId> = RuleId::all().filter(|id| is_reachable(*id)).collect();
        assert_eq!(altered, reachable);
        assert_eq!(altered.len(), 109);
    }

    #[test]
    fn names_find_their_alterations() {
        for alteration in all() {
            assert_eq!(find(&alteration.name()), Some(alteration));
        }
    }
}
