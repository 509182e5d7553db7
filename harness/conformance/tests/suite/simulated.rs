//! The simulated service passes every check.

use vlab_conformance::memory::Services;
use vlab_conformance::suite::Count;
use vlab_conformance::{ConformanceVerdict, Need, table};

use crate::{OF_THE_SHELL, run, settings};

/// Checks that the simulated service skips, with the reason: it has no image service here.
const SKIPPED: &[&str] = &["service/image-url", "service/image-url/changed", "events/sent/image_info_updated"];

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
    assert!(count.passed >= 700, "{count:?}");
    // A check removes what it has made.
    let left: Vec<String> = outcomes.iter().flat_map(|o| o.left.iter().map(|l| format!("{}: {l}", o.id))).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// In memory there can be an image service, too: nothing is skipped for good.
#[tokio::test]
async fn what_needs_an_image_service_passes_with_one() {
    let services = Services::new(settings("1s")).await.unwrap();
    let checks = table::built_in().unwrap().into_iter().filter(|check| check.needs.contains(&Need::ImageService));
    let mut performed = 0;
    for check in checks {
        let outcome = services.perform(&check, None).await.unwrap();
        assert_eq!(outcome.verdict, ConformanceVerdict::Passed, "{}", outcome.id);
        performed += 1;
    }
    assert_eq!(performed, SKIPPED.len());
}
