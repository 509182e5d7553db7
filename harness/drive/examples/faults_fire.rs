//! How often each kind of fault really happens: every scenario that ships, has faults and can run in virtual time, there, with so
//! many seeds (100 without an argument). A fault counts when it had an effect on all that it was to hit.
//!
//! `cargo run -p vlab-run --example faults_fire -- 100`

use std::collections::BTreeMap;

use vlab_agents::ingress::LAB_INGRESS_PEM;
use vlab_drive::prepare::{Choices, Nowhere, prepare};
use vlab_drive::simulate::simulate;
use vlab_history::Recorder;
use vlab_judge::lives::lives;
use vlab_scenario::{Catalogue, Need};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seeds: u64 = std::env::args().nth(1).map_or(Ok(100), |n| n.parse())?;
    let catalogue = Catalogue::discover()?;
    let mut kinds: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for entry in catalogue.list() {
        let scenario = vlab_scenario::load(&catalogue.find(&entry.name)?, &catalogue)?;
        let machines = scenario.hosts.iter().any(|host| host.is_machine());
        if scenario.faults.is_empty() || scenario.needs.contains(&Need::RealTime) || machines {
            continue;
        }
        for seed in 1..=seeds {
            let choices = Choices { seed: Some(seed), time_profile: Some("fast".to_owned()), ..Choices::default() };
            let prepared = prepare(scenario.clone(), &catalogue, &choices, &Nowhere)?;
            let info = prepared.info("faults-fire", true, BTreeMap::new());
            let core = prepared.core_config("http://127.0.0.1:8090");
            let done = simulate(prepared.conductor_config(info, LAB_INGRESS_PEM.to_owned()), core, Recorder::new(None));
            let history = done.conductor.finish(done.now, vlab_model::history::RunEnd::Ended);
            let lives = lives(&history);
            for fault in &scenario.faults {
                let fired = lives.get(fault.name.as_str()).is_some_and(|l| l.effect.is_some() && l.spared.is_empty());
                let (declared, happened) = kinds.entry(fault.word()).or_default();
                *declared += 1;
                *happened += u64::from(fired);
                if !fired {
                    println!("{} with seed {seed}: {} ({}) did not happen", scenario.name, fault.name, fault.word());
                }
            }
        }
    }
    for (kind, (declared, happened)) in &kinds {
        println!("{kind}: {happened} of {declared}");
    }
    Ok(())
}
