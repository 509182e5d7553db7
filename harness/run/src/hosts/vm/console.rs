//! What consoles say, as observations.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use uuid::Uuid;
use vlab_model::console::{Classifier, plain};
use vlab_model::history::{ClusterMoment, HistoryPart, HostMoment, Source, What};
use vlab_model::pivot::{self, Told};
use vlab_node_config::say;

use crate::hosts::News;

/// Lines of one console that the history keeps; of a machine that says more only what means something. The file has all.
const LINES: usize = 20_000;

/// The clusters that machines belong to, by the names of the machines: those of the pool are bound to one later.
pub(super) type Belonging = Arc<Mutex<BTreeMap<String, Uuid>>>;

/// Makes observations of what a console says.
pub(super) struct Listener {
    pub(super) machine: String,
    pub(super) host: Uuid,
    pub(super) clusters: Belonging,
    pub(super) classifier: Arc<Classifier>,
    pub(super) lines: usize,
}

impl Listener {
    pub(super) fn hear(&mut self, lines: &[String], news: &mpsc::UnboundedSender<News>) {
        for line in lines {
            for what in self.means(line) {
                let _ = news.send(News::Seen(Source::Console, what));
            }
        }
    }

    fn means(&mut self, line: &str) -> Vec<What> {
        let line = plain(line).into_owned();
        if line.trim().is_empty() {
            return Vec::new();
        }
        let finding = self.classifier.classify(&line).map(|check| check.id.to_owned());
        let moment = self.moment(&line);
        self.lines += 1;
        let kept = self.lines <= LINES || finding.is_some();
        let mut all = Vec::new();
        if kept {
            all.push(What::Console { machine: self.machine.clone(), line, finding });
        }
        if self.lines == LINES + 1 {
            all.push(self.incomplete(
                HistoryPart::ConsoleLines,
                format!("it said more than {LINES} lines; the others are in its file only"),
            ));
        }
        all.extend(moment);
        all
    }

    /// The history does not have all that the console says.
    pub(super) fn incomplete(&self, part: HistoryPart, why: String) -> What {
        What::Incomplete { part, machine: Some(self.machine.clone()), why }
    }

    /// What a program of the node says that it did: what happens on the host, and what happens inside its cluster.
    fn moment(&self, line: &str) -> Option<What> {
        let cluster = || self.clusters.lock().unwrap_or_else(PoisonError::into_inner).get(&self.machine).copied();
        // The pivot's moments have one form, whoever tells them.
        match (pivot::told(line), cluster()) {
            (Some(Told::HostDid(what)), _) => return Some(What::HostDid { host: self.host, what }),
            (Some(Told::InCluster(what)), Some(cluster)) => {
                let host = what.is_of_host().then_some(self.host);
                return Some(What::InCluster { cluster, host, what });
            }
            _ => {}
        }
        let (part, what, details) = say::read(line)?;
        if what == say::UNREADABLE {
            let text = |member: &str| details[member].as_str().unwrap_or_default().to_owned();
            return Some(What::Unreadable { subject: Some(self.host), of: text("of"), error: text("error") });
        }
        match (part, cluster()) {
            (_, _) if what == "note" => None,
            ("agent" | "installer", _) | (_, None) => {
                Some(What::HostDid { host: self.host, what: HostMoment::of(what) })
            }
            (_, Some(cluster)) => {
                Some(What::InCluster { cluster, host: Some(self.host), what: ClusterMoment::of(what) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(cluster: Option<Uuid>) -> Listener {
        let classifier = Arc::new(Classifier::default());
        let clusters = Arc::new(Mutex::new(cluster.map(|cluster| ("m-0".to_owned(), cluster)).into_iter().collect()));
        Listener { machine: "m-0".into(), host: Uuid::from_u128(1), clusters, classifier, lines: 0 }
    }

    #[test]
    fn lines_of_a_console_become_what_they_mean() {
        let cluster = Uuid::from_u128(2);
        let mut listener = listener(Some(cluster));
        let line = |line: &str, finding: Option<&str>| What::Console {
            machine: "m-0".into(),
            line: line.into(),
            finding: finding.map(Into::into),
        };
        assert_eq!(listener.means("  \r"), []);
        assert_eq!(listener.means("\u{1b}[1mhello\u{1b}[0m"), [line("hello", None)]);
        let panic = "[ 1.0] Kernel panic - not syncing: x";
        assert_eq!(listener.means(panic), [line(panic, Some("kernel-panic"))]);
        let said = "[   12.3] vlab-node: pivot bootkube-done {}";
        let done = What::InCluster { cluster, host: Some(Uuid::from_u128(1)), what: ClusterMoment::BootkubeDone };
        assert_eq!(listener.means(said), [line(said, None), done]);
        for (said, host, means) in [
            ("vlab-node: pivot etcd-bootstrap-removed {}", None, ClusterMoment::EtcdBootstrapDone),
            ("vlab-node: node ready {}", Some(Uuid::from_u128(1)), ClusterMoment::NodeReady),
        ] {
            let told = What::InCluster { cluster, host, what: means };
            assert_eq!(listener.means(said)[1..], [told], "the word of simulated clusters");
        }
        let said = "vlab-node: agent registered {\"a\": 1}";
        let done = What::HostDid { host: Uuid::from_u128(1), what: HostMoment::Registered };
        assert_eq!(listener.means(said)[1..], [done]);
        let said = r#"vlab-node: agent answer-unreadable {"of":"v2GetNextSteps","error":"no JSON"}"#;
        let (of, error) = ("v2GetNextSteps".to_owned(), "no JSON".to_owned());
        assert_eq!(listener.means(said)[1..], [What::Unreadable { subject: Some(Uuid::from_u128(1)), of, error }]);
        assert_eq!(listener.means("vlab-node: agent note \"x\"").len(), 1);
    }

    #[test]
    fn a_machine_of_the_pool_tells_of_the_cluster_to_which_it_is_bound() {
        let (mut listener, cluster) = (listener(None), Uuid::from_u128(2));
        let of = |told: &[What]| match told {
            [_, What::InCluster { cluster, .. }] => Some(*cluster),
            [_, What::HostDid { .. }] => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(of(&listener.means("vlab-node: node ready {}")), None);
        listener.clusters.lock().unwrap().insert("m-0".into(), cluster);
        assert_eq!(of(&listener.means("vlab-node: node ready {}")), Some(cluster));
    }

    #[test]
    fn a_console_that_never_ends_does_not_fill_the_history() {
        let mut listener = listener(None);
        listener.lines = LINES;
        let told = listener.means("more");
        let [What::Incomplete { part: HistoryPart::ConsoleLines, machine: Some(machine), .. }] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!(machine, "m-0");
        assert_eq!(listener.means("still more"), [], "once");
        assert_eq!(listener.means("Kernel panic - not syncing: x").len(), 1);
        assert_eq!(listener.means("vlab-node: node ready {}").len(), 1, "a moment is no line");
    }
}
