//! Progress on the terminal while runs go on: of one run a line per host, of several runs at once a line each. Quiet when
//! nobody looks.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use uuid::Uuid;
use vlab_model::history::{Observation, Source, What};
use vlab_scenario::Scenario;

/// More hosts than this are summed up in one line.
const LINES: usize = 24;

/// What a run shows of itself while it goes on.
#[derive(Clone, Debug, Default)]
pub enum Show {
    /// Nothing.
    #[default]
    Nothing,
    /// A line for itself and one for each of its hosts.
    Hosts(Screen),
    /// One line, among those of others.
    Line(Screen),
}

/// The terminal, which several runs may share. What is printed through it does not get between the lines of progress.
#[derive(Clone, Debug, Default)]
pub struct Screen(MultiProgress);

impl Screen {
    /// Calls `print` while no line of progress is drawn.
    pub fn suspend(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }
}

/// The terminal of a run.
pub struct Live {
    bars: Option<Bars>,
    states_from: Source,
    seen: usize,
    names: BTreeMap<Uuid, String>,
    states: BTreeMap<Uuid, (String, String)>,
    cluster: String,
}

struct Bars {
    head: ProgressBar,
    hosts: BTreeMap<String, ProgressBar>,
    all: MultiProgress,
    width: usize,
    /// Everything in the first line.
    one_line: bool,
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

impl Live {
    /// Draws as `show` says.
    pub fn new(show: &Show, scenario: &Scenario, states_from: Source) -> Self {
        let (screen, one_line) = match show {
            Show::Nothing => (None, false),
            Show::Hosts(screen) => (Some(screen), false),
            Show::Line(screen) => (Some(screen), true),
        };
        let bars = screen.map(|Screen(all)| {
            let head = all.add(ProgressBar::new_spinner());
            if one_line {
                head.set_style(style("{spinner} {prefix}  {wide_msg} {elapsed}"));
                head.set_prefix(scenario.name.clone());
            } else {
                head.set_style(style("{spinner} {msg} {elapsed}"));
                head.set_message(scenario.name.clone());
            }
            head.enable_steady_tick(Duration::from_millis(120));
            let width = scenario.hosts.iter().map(|h| h.name.len()).max().unwrap_or(0);
            Bars { head, hosts: BTreeMap::new(), all: all.clone(), width, one_line }
        });
        let (names, states, cluster) = (BTreeMap::new(), BTreeMap::new(), String::new());
        Self { bars, states_from, seen: 0, names, states, cluster }
    }

    /// Takes in what is new.
    pub fn draw(&mut self, observations: &[Observation]) {
        let Some(bars) = &mut self.bars else { return };
        let mut changed: Vec<Uuid> = Vec::new();
        for o in observations.get(self.seen..).unwrap_or_default() {
            match &o.what {
                What::HostNamed { host: id, name, .. } | What::ClusterNamed { cluster: id, name, .. } => {
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
                    self.cluster = format!("{name}: {to}");
                    if !bars.one_line {
                        bars.head.set_message(self.cluster.clone());
                    }
                }
                _ => {}
            }
        }
        self.seen = observations.len();
        if bars.one_line || self.states.len() > LINES {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for (status, _) in self.states.values() {
                *counts.entry(status).or_default() += 1;
            }
            let text: Vec<String> = counts.iter().map(|(status, n)| format!("{n} {status}")).collect();
            for bar in bars.hosts.values() {
                bar.finish_and_clear();
            }
            bars.hosts.clear();
            let cluster =
                if bars.one_line && !self.cluster.is_empty() { format!("{}; ", self.cluster) } else { String::new() };
            bars.head.set_message(format!("{cluster}{}", text.join(", ")));
            return;
        }
        for id in changed {
            let name = self.names.get(&id).cloned().unwrap_or_else(|| id.to_string());
            let (status, stage) = self.states.get(&id).cloned().unwrap_or_default();
            let bar = bars.hosts.entry(name.clone()).or_insert_with(|| {
                let bar = bars.all.add(ProgressBar::new_spinner());
                bar.set_style(style("  {msg}"));
                bar
            });
            bar.set_message(format!("{name:<width$}  {status:<26} {stage}", width = bars.width));
        }
    }

    /// Leaves the terminal as it was.
    pub fn finish(&mut self) {
        if let Some(bars) = self.bars.take() {
            for bar in bars.hosts.values() {
                bar.finish_and_clear();
            }
            bars.head.finish_and_clear();
        }
    }
}
