//! What can be wrong on purpose with the simulated service, hosts and clusters, as one list: planted defects for whoever wants to know
//! what the judge notices. [`all`] is the list; [`crate::prepare::Prepared::alteration`] chooses one for a run in virtual time.
//!
//! Rows of tables that no run can reach ([`crate::coverage::UNREACHABLE`]) have no alterations: what never happens cannot be wrong.

pub mod bench;
pub mod hits;
pub mod hunt;
pub mod unnoticed;

use std::collections::BTreeSet;

use vlab_history::rules::{Machine, RuleId};
use vlab_model::machine::{Guard, Rule, Wrong};
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

    /// Is it about the controllers of the Kubernetes door? Where the service is asked over REST there are none.
    pub fn is_of_controllers(&self) -> bool {
        matches!(self, Alteration::Service(vlab_service::alteration::Alteration::Controllers(_)))
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

    /// Does a rule not fire in one of the states from which it does? These count apart from the rules as such.
    pub fn is_of_a_source(&self) -> bool {
        use vlab_service::alteration::Alteration::{Clusters, Hosts};
        matches!(self, Alteration::Service(Hosts(Wrong::NotFrom(..)) | Clusters(Wrong::NotFrom(..))))
    }

    /// Does it change nothing, by the table alone? So it is where a row is not there that leaves everything as it is, and where no
    /// row that stands behind it would do anything instead: a refresh that finds no row leaves everything as it is, too.
    pub fn changes_nothing(&self) -> bool {
        use vlab_service::alteration::Alteration::{Clusters, Hosts};
        match self {
            Alteration::Service(Hosts(wrong)) => {
                let (Some(rule), states) = (row(wrong), missed(wrong)) else { return false };
                if let [state] = states[..]
                    && !is_looked_at(rule.event, state)
                {
                    return true;
                }
                let table = if host::RULES.contains(rule) { host::RULES } else { host::POOL_RULES };
                let keeps = |r: &host::HostRule| {
                    r.words == host::HostWords::Keep
                        || table.iter().all(|other| other.to != r.to || said_alike(&r.words, &other.words))
                };
                let stays =
                    |r: &host::HostRule| r.event == host::HostEvent::RefreshHost && keeps(r) && r.effects.is_empty();
                nothing_instead(table, (rule, &states), stays, ONE_OF_HOSTS)
            }
            Alteration::Service(Clusters(wrong)) => {
                let (Some(rule), states) = (row(wrong), missed(wrong)) else { return false };
                let stays = |r: &cluster::ClusterRule| {
                    r.event == cluster::ClusterEvent::RefreshStatus
                        && r.words == cluster::ClusterWords::Keep
                        && r.effects.is_empty()
                };
                nothing_instead(cluster::RULES, (rule, &states), stays, &[])
            }
            _ => false,
        }
    }
}

/// A row for what the monitor decides is not missed where the monitor does not look.
fn is_looked_at(event: host::HostEvent, state: host::HostState) -> bool {
    event != host::HostEvent::RefreshHost
        || !matches!(state, host::HostState::At(status) if host::NOT_MONITORED.contains(&status))
}

/// In which states a row is missed that is not there.
fn missed<E, S: Copy, C, W, F>(wrong: &Wrong<E, S, C, W, F>) -> Vec<S> {
    match wrong {
        Wrong::Without(rule) => rule.from.to_vec(),
        Wrong::NotFrom(_, from) => vec![*from],
        _ => Vec::new(),
    }
}

/// Does the status say the same whichever of the two rows led to it?
fn said_alike(one: &host::HostWords, other: &host::HostWords) -> bool {
    use host::HostWords::{Keep, Say};
    match (one, other) {
        (_, Keep) => true,
        (Say(one), Say(other)) => one == other,
        _ => false,
    }
}

/// Of each of these groups of conditions at most one holds: they ask for values of the same thing.
const ONE_OF_HOSTS: &[&[host::HostCond]] = {
    use host::HostCond::*;
    &[
        &[ClusterPreparing, ClusterInstalling, ClusterInError, ClusterPendingUserAction, ClusterInstalledOrAddingHosts],
        &[StageIsWritingImage, StageIsCopyingRegistryData, StageIsRebooting, StageIsDone],
        &[DiskSpeedChecked, DiskSpeedFailed, DiskSpeedUnknown],
        &[ImagesAvailable, ImagesFailed, ImagesUnknown],
    ]
};

fn row<E, S, C, W, F>(wrong: &Wrong<E, S, C, W, F>) -> Option<&'static Rule<E, S, C, W, F>> {
    match wrong {
        Wrong::Without(r) | Wrong::NotFrom(r, _) | Wrong::LeadsTo(r, _) => Some(r),
        Wrong::Omits(r, _) | Wrong::Misspeaks(r) => Some(r),
        Wrong::Believes(..) => None,
    }
}

/// Does the row leave everything as it is in these states, and so does each that could fire in its place?
fn nothing_instead<E: PartialEq, S: Copy + PartialEq, C: Copy + PartialEq, W, F>(
    table: &'static [Rule<E, S, C, W, F>],
    (rule, states): (&'static Rule<E, S, C, W, F>, &[S]),
    stays: impl Fn(&Rule<E, S, C, W, F>) -> bool,
    one_of: &[&[C]],
) -> bool {
    let leaves = |r: &Rule<E, S, C, W, F>| stays(r) && states.iter().all(|s| !r.from.contains(s) || *s == r.to);
    let behind = table.iter().skip_while(|r| *r != rule).skip(1);
    let instead = |r: &&Rule<E, S, C, W, F>| r.event == rule.event && r.from.iter().any(|s| states.contains(s));
    !states.is_empty()
        && leaves(rule)
        && behind.filter(instead).all(|r| leaves(r) || never_both(&rule.guard, &r.guard, one_of))
}

/// Guards of more conditions are not compared: every combination is tried.
const MOST_CONDITIONS: usize = 16;

/// Can the two guards not hold at the same time, whatever their conditions are?
fn never_both<C: Copy + PartialEq>(one: &Guard<C>, other: &Guard<C>, one_of: &[&[C]]) -> bool {
    let mut conditions: Vec<C> = Vec::new();
    let mut add = |c: C| {
        if !conditions.contains(&c) {
            conditions.push(c);
        }
    };
    one.each(&mut add);
    other.each(&mut add);
    if conditions.len() > MOST_CONDITIONS {
        return false;
    }
    let holds = |bits: u32, c: C| conditions.iter().position(|known| *known == c).is_some_and(|at| bits >> at & 1 == 1);
    let possible = |bits: u32| one_of.iter().all(|group| group.iter().filter(|c| holds(bits, **c)).count() <= 1);
    (0..1_u32 << conditions.len())
        .filter(|bits| possible(*bits))
        .all(|bits| !(one.holds(&|c| holds(bits, c)) && other.holds(&|c| holds(bits, c))))
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
        assert_eq!(altered.len(), 115);
    }

    #[test]
    fn names_find_their_alterations() {
        let mut found = std::collections::BTreeMap::new();
        for alteration in all() {
            assert_eq!(found.insert(alteration.name(), alteration), None, "two have one name");
        }
        let (name, last) = found.last_key_value().unwrap();
        assert_eq!(find(name), Some(*last));
    }
}
