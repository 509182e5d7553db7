//! The simulated service passes every check.

use vlab_conformance::ConformanceVerdict;
use vlab_conformance::suite::Count;

use crate::{OF_THE_SHELL, run, settings};

/// Checks that the simulated service skips, with the reason: it has no image service here.
const SKIPPED: &[&str] = &["service/image-url"];

#[tokio::test]
async fn the_simulated_service_passes_all_checks() {
    let outcomes = run(&[OF_THE_SHELL], settings("1s"), None).await;
    let bad: Vec<String> = outcomes
        .iter()
        .filter_map(|outcome| match &outcome.verdict {
            ConformanceVerdict::Passed => None,
            ConformanceVerdict::Skipped { .. } if SKIPPED.contains(&outcome.id.as_str()) => None,
            other => Some(format!("{}: {other:?}", outcome.id)),
        })
        .collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    let count = Count::of(&outcomes);
    assert_eq!(count.skipped, SKIPPED.len());
    // The suite must not shrink unseen.
    assert!(count.passed >= 500, "{count:?}");
    // A check removes what it has made.
    let left: Vec<String> = outcomes.iter().flat_map(|o| o.left.iter().map(|l| format!("{}: {l}", o.id))).collect();
    assert!(left.is_empty(), "{left:?}");
}
