//! Clusters that are there and that nobody installs: their users make them before the plan begins, and their hosts are played by the
//! generator, which answers for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use vlab_agents::Fleet;
use vlab_api::Timestamp;
use vlab_api::actor::{Actor as _, Reply};
use vlab_client::{Endpoint, HttpConnection};
use vlab_drive::conductor::{Conductor, Ending};
use vlab_drive::prepare::Prepared;
use vlab_history::Recorder;
use vlab_scenario::{Catalogue, LoadPlan};

use crate::generate::LoadError;
use crate::installs;
use crate::lines::BUDGET;
use crate::schedule::{Part, settlements};

/// So many are made at a time: a service is not under load before the plan begins.
const AT_ONCE: usize = 8;
/// A settlement that is not made after so long will not be.
const PATIENCE: Duration = Duration::from_secs(120);

/// Makes the clusters of a part of a plan; their hosts by the number of the settlement.
///
/// # Errors
/// [`LoadError::Scenario`] for a scenario whose hosts cannot stand by, [`LoadError::Cluster`] when the service makes none.
pub(crate) async fn settle(
    plan: &LoadPlan,
    part: Part,
    catalogue: &Catalogue,
    (endpoint, url): (&Endpoint, &str),
) -> Result<BTreeMap<u32, Fleet>, LoadError> {
    let kinds: Vec<Arc<Prepared>> = installs::ready(plan, catalogue, url)?.kinds.into_iter().map(Arc::new).collect();
    let mut fleets = BTreeMap::new();
    let mut making = JoinSet::new();
    let mut left = settlements(plan, part).into_iter();
    loop {
        while making.len() < AT_ONCE
            && let Some((number, kind)) = left.next()
        {
            // Ids of its own for each.
            let seed = plan.seed.wrapping_add(u64::from(number) << 20);
            let (prepared, endpoint) = (kinds[kind].clone(), endpoint.clone());
            let named = plan.clusters[kind].named.clone();
            making.spawn(async move { (number, named, make(&prepared, seed, endpoint).await) });
        }
        match making.join_next().await {
            Some(Ok((number, _, Ok(fleet)))) => {
                fleets.insert(number, fleet);
            }
            Some(Ok((_, name, Err(why)))) => {
                return Err(LoadError::Cluster { url: url.to_owned(), scenario: name, why });
            }
            Some(Err(error)) => {
                let why = format!("a defect of the generator: {error}");
                return Err(LoadError::Cluster { url: url.to_owned(), scenario: String::new(), why });
            }
            None => return Ok(fleets),
        }
    }
}

/// Plays the user of a scenario until all that hosts need is there.
async fn make(prepared: &Prepared, seed: u64, endpoint: Endpoint) -> Result<Fleet, String> {
    let mut info = prepared.info(&format!("load-{seed}"), false, BTreeMap::new());
    info.seed = seed;
    let mut config = prepared.conductor_config(info, vlab_agents::ingress::LAB_INGRESS_PEM.to_owned());
    (config.record_steps, config.record_requests) = (false, false);
    let mut conductor = Conductor::new(config, Recorder::new(None));
    let mut connection = HttpConnection::new(endpoint);
    let until = Instant::now() + PATIENCE;
    conductor.start(Timestamp::now());
    while conductor.infra_envs_left() > 0 {
        let sends = conductor.take_sends();
        if sends.is_empty() {
            match conductor.ending(Timestamp::now()) {
                Some(Ending::Stuck(why) | Ending::Dead(why)) => return Err(why),
                _ if Instant::now() >= until => {
                    let left = conductor.infra_envs_left();
                    return Err(format!("after {} s {left} of its infra-envs were not there", PATIENCE.as_secs()));
                }
                _ => {}
            }
            let pause = conductor.next_wake().map(|at| at.since(Timestamp::now())).unwrap_or(PATIENCE);
            tokio::time::sleep_until((Instant::now() + pause).min(until)).await;
            conductor.wake(Timestamp::now());
        }
        for send in sends {
            if Conductor::is_user(send.connection) {
                let result = connection.send(&send.request, BUDGET).await;
                conductor.deliver(Timestamp::now(), Reply { connection: send.connection, tag: send.tag, result });
            }
        }
    }
    let mut fleet = conductor.into_fleet();
    // What they would do by themselves is done by the plan.
    drop(fleet.take_sends());
    fleet.stand_by();
    Ok(fleet)
}
