//! Defects of the real service that any check may meet by bad luck. A check that did not pass for such a reason is tried again,
//! and that is said; each defect has a scenario of its own and its paragraph in `docs/fidelity.md`.

use super::*;

/// A defect and how it is recognised.
struct Known {
    /// What the result says.
    says: &'static str,
    /// All parts of one of these are in the reason for which the cluster's preparation failed, or in the error that a request was
    /// answered with.
    reasons: &'static [&'static [&'static str]],
}

impl Known {
    fn is_told(&self, text: &str) -> bool {
        self.reasons.iter().any(|parts| parts.iter().all(|part| text.contains(part)))
    }
}

const NO_FILE: &str = ": no such file or directory";

const KNOWN: &[Known] = &[Known {
    says: "the preparation stumbled over a file of another cluster that vanished meanwhile (scenario \
           `clusters-prepare-at-once`)",
    reasons: &[
        // A folder is opened, its names are read, and each of them is looked at: it may be gone before any of these.
        &["open ", NO_FILE],
        &["readdirent ", NO_FILE],
        &["lstat ", NO_FILE],
        // What a request is answered with that meets it.
        &["Failed to list files in "],
    ],
}];

impl Script<'_> {
    /// The known defect that a cluster of this check has met, in its preparation or in an answer.
    pub(super) async fn known_defect(&mut self) -> Option<&'static str> {
        let in_answer = |known: &&Known| self.trace.iter().any(|line| line.contains(" → 5") && known.is_told(line));
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
                && let Some(known) = KNOWN.iter().find(|known| known.is_told(reason))
            {
                return Some(known.says);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::looked_at("lstat /data/c1/manifests/a.yaml: no such file or directory", true)]
    #[case::read(
        "failed generating install config for cluster c2: readdirent /data/c1: no such file or directory",
        true
    )]
    #[case::opened("open /data/c1/manifests: no such file or directory", true)]
    #[case::answered("Failed to list files in c2/", true)]
    #[case::forbidden("open /data/c1/manifests: permission denied", false)]
    #[case::another_reason("host c2 is not ready", false)]
    fn a_folder_that_vanishes_is_known_however_it_is_met(#[case] reason: &str, #[case] known: bool) {
        assert_eq!(KNOWN.iter().any(|k| k.is_told(reason)), known);
    }
}
