//! What no run can reach, and why.

/// Things of one section that cannot be reached, for one reason.
#[derive(Clone, Copy, Debug)]
pub struct Unreachable {
    /// Id of the section.
    pub section: &'static str,
    /// The things; one that ends in `*` stands for all that begin so, one that begins with it for all that end so.
    pub items: &'static [&'static str],
    /// The reason, for people; it stands in the coverage.
    pub reason: &'static str,
}

impl Unreachable {
    /// Does it speak of that thing?
    pub fn names(&self, item: &str) -> bool {
        self.items.iter().any(|pattern| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
            (Some(end), _) => item.ends_with(end),
            (None, Some(begin)) => item.starts_with(begin),
            (None, None) => item == *pattern,
        })
    }
}

const RECLAIM: &str =
    "controllers reclaim a host whose node is in its cluster, and then it is installed; others they unbind";

/// All of them. A test runs the catalogue and fails when one of these is reached.
pub const UNREACHABLE: &[Unreachable] = &[
    Unreachable {
        section: "host-rules",
        items: &["8", "10"],
        reason: "the API answers 409 to a report of progress in this status, before the machine is asked",
    },
    Unreachable {
        section: "host-rules",
        items: &["9"],
        reason: "rule 7 comes before it, has no condition and matches this status as well",
    },
    Unreachable { section: "host-rules", items: &["16", "17"], reason: RECLAIM },
    Unreachable {
        section: "host-rules",
        items: &["64", "71", "72"],
        reason: "no rule leads to `resetting`: it is left from older versions",
    },
    Unreachable {
        section: "unbound-host-rules",
        items: &["5"],
        reason: "a host in `binding` belongs to a cluster already, so that the machine of bound hosts is asked",
    },
    Unreachable {
        section: "unbound-host-rules",
        items: &["6"],
        reason: "the hosts' monitor does not look at a host that waits to be unbound, neither here nor in the real service",
    },
    Unreachable {
        section: "cluster-rules",
        items: &["24"],
        reason: "the service must be tied to a subscription system that waits for the console's address",
    },
    Unreachable {
        section: "cluster-rules",
        items: &["35"],
        reason: "clusters that are known without being managed are made by the service's controllers in Kubernetes alone",
    },
];
