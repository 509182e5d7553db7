//! What nobody can notice, and why: alterations that change nothing which anybody could see. Each is named; none is there because it
//! would be hard.

/// Alterations that nobody can notice, for one reason.
#[derive(Clone, Copy, Debug)]
pub struct Unnoticed {
    /// Their names.
    pub names: &'static [&'static str],
    /// Why.
    pub reason: &'static str,
}

/// Why nobody can notice that alteration.
pub fn reason(name: &str) -> Option<&'static str> {
    UNNOTICED.iter().find(|row| row.names.contains(&name)).map(|row| row.reason)
}

/// Rules of the state machines that a run shows to be wrong in a way that no check notices yet: each is work to be done.
pub const OPEN_RULES: &[&str] = &[
    "host-rule/1/without",
    "host-rule/2/without",
    "host-rule/5/misspeaks",
    "host-rule/11/misspeaks",
    "host-rule/22/without",
    "host-rule/28/without",
    "host-rule/36/without",
    "host-rule/36/omits-note-connection-timeout",
    "host-rule/37/without",
    "host-rule/37/omits-forget-connection-timeout",
    "host-rule/38/without",
    "host-rule/38/omits-note-connection-timeout",
    "host-rule/39/without",
    "host-rule/40/without",
    "host-rule/40/omits-restart-stage-timer",
    "host-rule/54/without",
    "host-rule/55/without",
    "host-rule/56/without",
    "host-rule/60/without",
    "host-rule/60/omits-note-logs-timeout",
    "host-rule/61/without",
    "host-rule/61/omits-note-logs-timeout",
    "host-rule/69/omits-forget-progress",
    "host-rule/69/omits-restart-cluster-preparation",
    "host-rule/75/without",
    "host-rule/76/without",
    "host-rule/76/leads-elsewhere",
    "host-rule/77/omits-forget-installation",
    "unbound-host-rule/1/leads-elsewhere",
    "cluster-rule/3/without",
    "cluster-rule/3/leads-elsewhere",
    "cluster-rule/10/leads-elsewhere",
    "cluster-rule/12/omits-end-installation",
    "cluster-rule/12/omits-tell-failure",
    "cluster-rule/13/omits-end-installation",
    "cluster-rule/13/omits-tell-failure",
    "cluster-rule/14/omits-end-installation",
    "cluster-rule/15/omits-end-installation",
    "cluster-rule/16/omits-end-installation",
    "cluster-rule/18/without",
    "cluster-rule/20/omits-restart-finalizing-stage",
    "cluster-rule/23/without",
    "cluster-rule/25/omits-end-installation",
    "cluster-rule/25/omits-complete-progress",
    "cluster-rule/26/omits-end-installation",
    "cluster-rule/27/without",
    "cluster-rule/27/leads-elsewhere",
    "cluster-rule/27/omits-note-logs-timeout",
    "cluster-rule/28/without",
    "cluster-rule/28/omits-note-logs-timeout",
    "cluster-rule/36/omits-forget-installation",
];

/// All of them. `cargo xtask mutation` says so when one of them is noticed after all.
pub const UNNOTICED: &[Unnoticed] = &[];
