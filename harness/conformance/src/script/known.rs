//! Defects of the real service that any check may meet by bad luck. A check that did not pass for such a reason is tried again,
//! and that is said; each defect has a scenario of its own and its paragraph in `docs/fidelity.md`.

use super::*;

/// A defect and how it is recognised.
struct Known {
    /// What the result says.
    says: &'static str,
    /// All of these are in the reason for which the cluster's preparation failed, or in the error that a request was answered with.
    reason: &'static [&'static str],
}

const KNOWN: &[Known] = &[Known {
    says: "the preparation stumbled over a file of another cluster that vanished meanwhile (scenario \
           `clusters-prepare-at-once`)",
    reason: &["lstat ", ": no such file or directory"],
}];

impl Script<'_> {
    /// The known defect that a cluster of this check has met, in its preparation or in an answer.
    pub(super) async fn known_defect(&mut self) -> Option<&'static str> {
        let in_answer = |known: &&Known| {
            self.trace.iter().any(|line| line.contains(" → 5") && known.reason.iter().all(|part| line.contains(part)))
        };
        if let Some(known) = KNOWN.iter().find(in_answer) {
            return Some(known.says);
        }
        let clusters: Vec<String> =
            self.made.iter().filter(|made| made.what == "clusters").map(|made| made.id.clone()).collect();
        for id in clusters {
            let Ok(shown) = self.must(200, Method::Get, &format!("/clusters/{id}"), None).await else { continue };
            let preparation = &shown["last-installation-preparation"];
            let reason = preparation["reason"].as_str().unwrap_or_default();
            if preparation["status"] == "failed"
                && let Some(known) = KNOWN.iter().find(|known| known.reason.iter().all(|part| reason.contains(part)))
            {
                return Some(known.says);
            }
        }
        None
    }
}
