//! How fast virtual time is, and that it does the same as before.
//!
//! `cargo run --profile load -p vlab-drive --example virtual_time -- sno ha-3-2 --runs 50` runs each scenario with so many
//! consecutive seeds on one core, judges every run with all checks, and says how many installations a minute that is (by the
//! processor time of this process, so that other work on the computer counts little).
//!
//! `… --digests 1 2` runs every scenario of the catalogue with these seeds and prints a digest of each history and its exit code:
//! what is changed for speed must leave these lines as they are.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use vlab_drive::prepare::{Choices, Nowhere, Prepared, prepare};
use vlab_drive::simulate::{as_lines, rehearse, run};
use vlab_judge::result::exit;
use vlab_scenario::{Catalogue, Need, Scenario};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Fallible<()> {
    let mut words = std::env::args().skip(1).peekable();
    let mut scenarios = Vec::new();
    let mut seeds = Vec::new();
    let mut runs = 50;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--digests" => seeds = words.by_ref().map(|seed| seed.parse()).collect::<Result<Vec<u64>, _>>()?,
            "--runs" => runs = words.next().unwrap_or_default().parse()?,
            name => scenarios.push(name.to_owned()),
        }
    }
    let catalogue = Catalogue::discover()?;
    if seeds.is_empty() { speed(&catalogue, &scenarios, runs) } else { digests(&catalogue, &scenarios, &seeds) }
}

fn prepared(catalogue: &Catalogue, scenario: &Scenario, seed: u64) -> Fallible<Prepared> {
    let choices = Choices { seed: Some(seed), time_profile: Some("real".to_owned()), ..Choices::default() };
    Ok(prepare(scenario.clone(), catalogue, &choices, &Nowhere)?)
}

fn speed(catalogue: &Catalogue, names: &[String], runs: u64) -> Fallible<()> {
    println!("| scenario | runs | judged, installations a minute | ms each | of it without the judge |");
    println!("| --- | --- | --- | --- | --- |");
    for name in names {
        let scenario = vlab_scenario::load(&catalogue.find(name)?, catalogue)?;
        let prepared = (1..=runs).map(|seed| prepared(catalogue, &scenario, seed)).collect::<Fallible<Vec<_>>>()?;
        let begun = processor_time()?;
        for one in &prepared {
            let (result, _) = run(one);
            if result.exit_code != exit::PASSED {
                return Err(format!("{name} with seed {} did not pass", one.seed).into());
            }
        }
        let judged = processor_time()? - begun;
        let begun = processor_time()?;
        for one in &prepared {
            std::hint::black_box(rehearse(one));
        }
        let played = processor_time()? - begun;
        let each = |time: Duration| time.as_secs_f64() * 1000.0 / runs as f64;
        println!("| `{name}` | {runs} | {:.0} | {:.2} | {:.2} |", 60_000.0 / each(judged), each(judged), each(played));
    }
    Ok(())
}

fn digests(catalogue: &Catalogue, names: &[String], seeds: &[u64]) -> Fallible<()> {
    for entry in catalogue.list() {
        if !names.is_empty() && !names.contains(&entry.name) {
            continue;
        }
        let scenario = vlab_scenario::load(&catalogue.find(&entry.name)?, catalogue)?;
        if scenario.needs.contains(&Need::RealTime) {
            println!("{} needs real time", entry.name);
            continue;
        }
        for seed in seeds {
            let prepared = match prepared(catalogue, &scenario, *seed) {
                Ok(prepared) => prepared,
                Err(error) => {
                    println!("{} {seed} {error}", entry.name);
                    continue;
                }
            };
            let (result, history) = run(&prepared);
            let mut hasher = DefaultHasher::new();
            as_lines(&history).hash(&mut hasher);
            let verdicts = result.checks.iter().map(|c| format!("{} {:?} {}", c.name, c.verdict, c.message));
            let mut judged = DefaultHasher::new();
            verdicts.for_each(|verdict| verdict.hash(&mut judged));
            println!("{} {seed} {:016x} {:016x} {}", entry.name, hasher.finish(), judged.finish(), result.exit_code);
        }
    }
    Ok(())
}

/// Processor time that this process has used.
fn processor_time() -> Fallible<Duration> {
    // In nanoseconds, the first field; of the main thread, which is the only one.
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    Ok(Duration::from_nanos(text.split_whitespace().next().unwrap_or_default().parse()?))
}
