//! Progress on the terminal while a run goes on: one line per host, quiet when nobody looks.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use uuid::Uuid;
use vlab_model::history::{Observation, Source, What};
use vlab_scenario::Scenario;

/// More hosts than this are summed up in one line.
const LINES: usize = 24;

/// The terminal of a run.
pub struct Live {
    screen: Option<Screen>,
    states_from: Source,
    seen: usize,
    names: BTreeMap<Uuid, String>,
    states: BTreeMap<Uuid, (String, String)>,
}

struct Screen {
    head: ProgressBar,
    bars: BTreeMap<String, ProgressBar>,
    all: MultiProgress,
    width: usize,
}

impl Live {
    /// Draws when `on`; the caller knows whether somebody looks.
    pub fn new(on: bool, scenario: &Scenario, states_from: Source) -> Self {
        let screen = on.then(|| {
            let all = MultiProgress::new();
            let head = all.add(ProgressBar::new_spinner());
            head.set_style(
                ProgressStyle::with_template("{spinner} {msg} {elapsed}")
                    .unwrap_or_else(|_| ProgressStyle::default_spinner()),
            );
            head.set_message(scenario.name.clone());
            head.enable_steady_tick(Duration::from_millis(120));
            let width = scenario.hosts.iter().map(|h| h.name.len()).max().unwrap_or(0);
            Screen { head, bars: BTreeMap::new(), all, width }
        });
        Self { screen, states_from, seen: 0, names: BTreeMap::new(), states: BTreeMap::new() }
    }

    /// Takes in what is new.
    pub fn draw(&mut self, observations: &[Observation]) {
        let Some(screen) = &mut self.screen else { return };
        let mut changed: Vec<Uuid> = Vec::new();
        for o in observations.get(self.seen..).unwrap_or_default() {
            match &o.what {
                What::HostNamed { host: id, name, .. } | What::ClusterNamed { cluster: id, name } => {
                    self.names.insert(*id, name.clone());
                }
                What::HostStatus { host, to, .. } if o.source.tells_states(self.states_from) => {
                    self.states.entry(*host).or_default().0 = to.to_string();
                    changed.push(*host);
                }
                What::HostStage { host, to, info, .. } if o.source.tells_states(self.states_from) => {
                    let stage = to.map(|s| s.to_string()).unwrap_or_default();
                    self.states.entry(*host).or_default().1 = format!("{stage} {info}").trim().to_owned();
                    changed.push(*host);
                }
                What::ClusterStatus { cluster, to, .. } if o.source.tells_states(self.states_from) => {
                    let name = self.names.get(cluster).cloned().unwrap_or_default();
                    screen.head.set_message(format!("{name}: {to}"));
                }
                _ => {}
            }
        }
        self.seen = observations.len();
        if self.states.len() > LINES {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for (status, _) in self.states.values() {
                *counts.entry(status).or_default() += 1;
            }
            let text: Vec<String> = counts.iter().map(|(status, n)| format!("{n} {status}")).collect();
            for bar in screen.bars.values() {
                bar.finish_and_clear();
            }
            screen.bars.clear();
            screen.head.set_message(text.join(", "));
            return;
        }
        for id in changed {
            let name = self.names.get(&id).cloned().unwrap_or_else(|| id.to_string());
            let (status, stage) = self.states.get(&id).cloned().unwrap_or_default();
            let bar = screen.bars.entry(name.clone()).or_insert_with(|| {
                let bar = screen.all.add(ProgressBar::new_spinner());
                bar.set_style(
                    ProgressStyle::with_template("  {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()),
                );
                bar
            });
            bar.set_message(format!("{name:<width$}  {status:<26} {stage}", width = screen.width));
        }
    }

    /// Leaves the terminal as it was.
    pub fn finish(&mut self) {
        if let Some(screen) = self.screen.take() {
            for bar in screen.bars.values() {
                bar.finish_and_clear();
            }
            screen.head.finish_and_clear();
        }
    }
}
