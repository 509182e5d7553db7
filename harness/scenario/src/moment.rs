//! A moment in a few words, for the command line: `bootkube done`, `Rebooting`, `node-0: Joined`, `cluster finalizing`.

use vlab_api::types::{ClusterStatus, FinalizingStage, HostStage, HostStatus};

use crate::diagnostic::suggestion;
use crate::spanned::happenings;
use crate::types::{Moment, Scenario, Seen, Subject};
use crate::words::Quantity;

/// The moment that these words mean in a scenario: something that happens to hosts or inside of a cluster, a stage of a host or of
/// finalizing, or `host` or `cluster` and a status; before it, with a colon, the host or the cluster where that matters.
///
/// # Errors
/// They mean nothing, and what comes nearest.
pub fn named_moment(scenario: &Scenario, text: &str) -> Result<Moment, String> {
    let (who, what) = match text.split_once(": ") {
        Some((who, what)) => (Some(who.trim()), what.trim()),
        None => (None, text.trim()),
    };
    let subject = match who {
        None => Subject::Run,
        Some(name) if scenario.hosts.iter().any(|host| host.name == name) => Subject::Hosts(vec![name.to_owned()]),
        Some(name) if scenario.cluster(name).is_some() => Subject::Cluster(name.to_owned()),
        Some(name) => {
            let hosts = scenario.hosts.iter().map(|host| host.name.as_str());
            let names = hosts.chain(scenario.clusters.iter().map(|cluster| cluster.name.as_str()));
            let near = suggestion(name, names);
            return Err(format!("`{name}` is neither a host nor a cluster of {}; {near}", scenario.name));
        }
    };
    Ok(Moment { subject, seen: seen(what)?, of: Quantity::All })
}

fn seen(what: &str) -> Result<Seen, String> {
    let word = what.to_lowercase().replace([' ', '_'], "-");
    if happenings().any(|name| name == word) {
        return Ok(Seen::Did(word));
    }
    let same = |name: &&&str| name.to_lowercase().replace(' ', "-") == word;
    if let Some(stage) = HostStage::NAMES.iter().find(same).and_then(|name| name.parse().ok()) {
        return Ok(Seen::Stage(stage));
    }
    if let Some(stage) = FinalizingStage::NAMES.iter().find(same).and_then(|name| name.parse().ok()) {
        return Ok(Seen::FinalizingStage(stage));
    }
    let statuses = |kind: &str, names: &[&str]| names.iter().map(|name| format!("{kind}-{name}")).collect::<Vec<_>>();
    if let Some(status) = word.strip_prefix("host-").and_then(|word| word.parse().ok()) {
        return Ok(Seen::HostStatus(status));
    }
    if let Some(status) = word.strip_prefix("cluster-").and_then(|word| word.parse().ok()) {
        return Ok(Seen::ClusterStatus(status));
    }
    let mut names: Vec<String> = happenings().map(str::to_owned).collect();
    names.extend(HostStage::NAMES.iter().chain(FinalizingStage::NAMES).map(|name| name.replace(' ', "-")));
    names.extend(statuses("host", HostStatus::NAMES).into_iter().chain(statuses("cluster", ClusterStatus::NAMES)));
    let near = suggestion(&word, names.iter().map(String::as_str));
    Err(format!(
        "`{what}` is no moment: write what happens (bootkube-done, node-ready), a stage (Rebooting), or host or cluster and a \
         status (cluster finalizing); {near}"
    ))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::{Catalogue, SourceFile, load};

    fn scenario() -> Scenario {
        let text = "version: 1\nname: t\ncluster: {name: lab, topology: sno}\nhosts: [{name: node}]\n";
        load(&SourceFile::new("t.yaml", text), &Catalogue::embedded()).unwrap()
    }

    #[rstest]
    #[case("bootkube done", Subject::Run, Seen::Did("bootkube-done".into()))]
    #[case("bootkube-done", Subject::Run, Seen::Did("bootkube-done".into()))]
    #[case("node-0: Writing image to disk", Subject::Hosts(vec!["node-0".into()]), Seen::Stage(HostStage::WritingImageToDisk))]
    #[case("rebooting", Subject::Run, Seen::Did("rebooting".into()))]
    #[case("cluster finalizing", Subject::Run, Seen::ClusterStatus(ClusterStatus::Finalizing))]
    #[case("host known", Subject::Run, Seen::HostStatus(HostStatus::Known))]
    #[case("lab: cluster-ready", Subject::Cluster("lab".into()), Seen::ClusterStatus(ClusterStatus::Ready))]
    fn a_moment_has_a_few_words(#[case] text: &str, #[case] subject: Subject, #[case] seen: Seen) {
        let moment = named_moment(&scenario(), text).unwrap();
        assert_eq!((moment.subject, moment.seen), (subject, seen));
    }

    #[rstest]
    #[case("bootkube dnoe", "`bootkube dnoe` is no moment: write what happens", "did you mean `bootkube-done`")]
    #[case("cluster finalising", "is no moment", "did you mean `cluster-finalizing`")]
    #[case("nod-0: Joined", "`nod-0` is neither a host nor a cluster of t", "did you mean `node-0`")]
    fn what_is_no_moment_is_told_with_what_comes_nearest(#[case] text: &str, #[case] said: &str, #[case] near: &str) {
        let error = named_moment(&scenario(), text).unwrap_err();
        assert!(error.contains(said) && error.contains(near), "{error}");
    }
}
