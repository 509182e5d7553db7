//! What can be wrong with hosts and clusters on purpose, so that whoever judges them can be judged. An [`Alteration`] is chosen by
//! [`crate::FleetConfig::alteration`] and by nothing else: no scenario leads here. Faults are something else: those are asked for.

use crate::controller::{POST_INSTALL, PostInstall};
use crate::installer::{BOOTSTRAP, MASTER, SINGLE_NODE, Task, WORKER};
use crate::steps::STEPS;

/// One thing that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alteration {
    /// The bootstrap waits for nothing but its first companion, and reboots. The second one takes longer than that.
    RebootsTooEarly,
    /// etcd leaves the bootstrap, and one of the members that are left fails until the bootstrap is back.
    LosesQuorum,
    /// etcd leaves the bootstrap without bootkube having come to its end.
    SkipsBootkube,
    /// The installer leaves a line of its script out.
    LeavesOut(Script, usize),
    /// What the agent does with the steps of that place in [`STEPS`].
    Step(usize, WrongStep),
    /// The controller leaves that out.
    Skips(PostInstall),
    /// What hosts or controllers do in one place.
    Conduct(Conduct),
}

/// Whose script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// The bootstrap's.
    Bootstrap,
    /// The other masters'.
    Master,
    /// The workers'.
    Worker,
    /// The single node's.
    SingleNode,
}

impl Script {
    const ALL: [Script; 4] = [Script::Bootstrap, Script::Master, Script::Worker, Script::SingleNode];

    /// Its lines.
    pub(crate) const fn lines(self) -> &'static [Task] {
        match self {
            Script::Bootstrap => BOOTSTRAP,
            Script::Master => MASTER,
            Script::Worker => WORKER,
            Script::SingleNode => SINGLE_NODE,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Script::Bootstrap => "bootstrap",
            Script::Master => "master",
            Script::Worker => "worker",
            Script::SingleNode => "single-node",
        }
    }
}

/// What is wrong with how an agent takes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongStep {
    /// It never answers.
    Ignored,
    /// It answers what it has answered first.
    Stale,
    /// It answers that the step failed.
    Fails,
}

impl WrongStep {
    const fn word(self) -> &'static str {
        match self {
            WrongStep::Ignored => "ignored",
            WrongStep::Stale => "stale",
            WrongStep::Fails => "fails",
        }
    }
}

vlab_model::closed_words! {
    /// What hosts or controllers do in one place, without a table.
    Conduct {
        /// The agent starts an installer although one runs.
        SecondInstaller = "second-installer",
        /// The agent does not stop the installer.
        InstallerGoesOn = "installer-goes-on",
        /// The agent does not start over when it is told to.
        IgnoresExit = "ignores-exit",
        /// The agent asks ten times more rarely than it is told to.
        PollsRarely = "polls-rarely",
        /// The installer tells no percentages of what it writes.
        NoPercentages = "no-percentages",
        /// The installer reports a stage that was before when it has written the image.
        ReportsBackwards = "reports-backwards",
        /// A host that was told to reboot stays where it is.
        NoReboot = "no-reboot",
        /// Logs are announced and never sent.
        NoLogs = "no-logs",
        /// The controller says that nodes are done before they are ready.
        DoneTooEarly = "done-too-early",
        /// The controller does not say that nodes configure themselves.
        ConfiguringNotTold = "configuring-not-told",
        /// The controller does not say that nodes have joined.
        JoinedNotTold = "joined-not-told",
        /// The controller does not say how often nodes rebooted.
        RebootsNotTold = "reboots-not-told",
        /// The controller says that operators are available before they are.
        OperatorsTooEarly = "operators-too-early",
        /// The controller never says that an operator is available.
        OperatorsNotTold = "operators-not-told",
        /// The controller completes the installation before anything else.
        CompletesTooEarly = "completes-too-early",
        /// The controller does not leave a cluster that has failed.
        ControllerStays = "controller-stays",
        /// The controller sends no logs while it works.
        NoControllerLogs = "no-controller-logs",
    }
}

/// Steps that no run comes to: hosts are reclaimed by the service's controllers in Kubernetes alone.
const NEVER_ASKED: &[&str] = &["download-boot-artifacts", "reboot-for-reclaim"];

/// Steps whose answer says nothing but that they were done: the first one is as good as any other.
const SAYS_NOTHING: &[&str] = &["install", "logs-gather", "stop-installation", "upgrade-agent"];

/// Everything that can be wrong, in the order of the tables.
pub fn alterations() -> Vec<Alteration> {
    let mut all = vec![Alteration::RebootsTooEarly, Alteration::LosesQuorum, Alteration::SkipsBootkube];
    for script in Script::ALL {
        // What only takes time can be done in none: nobody promises how long a host works.
        let lines = script.lines().iter().enumerate().filter(|(_, task)| !matches!(task, Task::Work(..)));
        all.extend(lines.map(|(line, _)| Alteration::LeavesOut(script, line)));
    }
    for (kind, row) in STEPS.iter().enumerate().filter(|(_, row)| !NEVER_ASKED.contains(&row.step_type)) {
        let wrong = [WrongStep::Ignored, WrongStep::Stale, WrongStep::Fails].into_iter();
        let wrong = wrong.filter(|how| *how != WrongStep::Stale || !SAYS_NOTHING.contains(&row.step_type));
        all.extend(wrong.map(|how| Alteration::Step(kind, how)));
    }
    all.extend(POST_INSTALL.iter().map(|(step, _)| Alteration::Skips(*step)));
    all.extend(Conduct::ALL.iter().map(|conduct| Alteration::Conduct(*conduct)));
    all
}

impl Alteration {
    /// Its name: stable as long as the row is in its table.
    pub fn name(&self) -> String {
        match self {
            Alteration::RebootsTooEarly => "control-plane/reboots-too-early".to_owned(),
            Alteration::LosesQuorum => "control-plane/loses-quorum".to_owned(),
            Alteration::SkipsBootkube => "control-plane/skips-bootkube".to_owned(),
            Alteration::LeavesOut(script, line) => format!("installer/{}/without-{line}", script.word()),
            Alteration::Step(kind, how) => format!("agent/{}/{}", STEPS[*kind].step_type, how.word()),
            Alteration::Skips(step) => format!("controller/skips-{step:?}"),
            Alteration::Conduct(conduct) => format!("hosts/{}", conduct.as_str()),
        }
    }

    /// What is wrong, in a few words.
    pub fn about(&self) -> String {
        match self {
            Alteration::RebootsTooEarly => "the bootstrap reboots after its first companion".to_owned(),
            Alteration::LosesQuorum => "etcd loses a member when it leaves the bootstrap".to_owned(),
            Alteration::SkipsBootkube => "etcd leaves the bootstrap before bootkube is done".to_owned(),
            Alteration::LeavesOut(script, line) => {
                let what = match script.lines().get(*line) {
                    Some(Task::Report(stage, _)) => format!("the report of {stage}"),
                    Some(Task::Work(job, _)) => format!("the work {job:?}"),
                    Some(Task::Download(file)) => format!("the download {file:?}"),
                    Some(Task::WaitFor(condition)) => format!("waiting for {condition:?}"),
                    Some(other) => format!("{other:?}"),
                    None => String::new(),
                };
                format!("the {}'s installer leaves out {what}", script.word())
            }
            Alteration::Step(kind, how) => format!("{}: {}", STEPS[*kind].step_type, how.word()),
            Alteration::Skips(step) => format!("the controller leaves out {step:?}"),
            Alteration::Conduct(conduct) => conduct.meaning().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_alteration_has_a_name_of_its_own() {
        let all = alterations();
        let names: BTreeSet<String> = all.iter().map(Alteration::name).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.len() > 100, "{} alterations", all.len());
    }
}
