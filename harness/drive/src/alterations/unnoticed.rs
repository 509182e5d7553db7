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
pub const OPEN_RULES: &[&str] = &[];

/// All of them. `cargo xtask mutation` says so when one of them is noticed after all.
pub const UNNOTICED: &[Unnoticed] = &[
    Unnoticed {
        names: &["host-rule/76/leads-elsewhere", "host-rule/76/misspeaks"],
        reason: "the registration of an installed host is refused, and where the row leads and what it says is only for one that is taken",
    },
    Unnoticed {
        names: &["host-rule/77/omits-forget-installation"],
        reason: "all that it forgets is a suggested role that is not the host's, and an installation has made both the same",
    },
    Unnoticed {
        names: &["host-rule/78/omits-forget-progress"],
        reason: "before an installation a host has no progress, and its images are forgotten because it leaves the cluster",
    },
    Unnoticed {
        names: &[
            "unbound-host-rule/0/omits-forget-progress",
            "unbound-host-rule/9/omits-forget-progress",
            "unbound-host-rule/9/omits-forget-logs",
        ],
        reason: "a host of the pool has neither progress nor logs: both were forgotten when it left its cluster",
    },
];
