//! The words of a history: closed lists where a word is part of the form, and open ones where a file of another version, or a
//! program on a lab machine, may hold a word that this version does not know. Such a word is kept as it is.

use std::borrow::Cow;
use std::fmt;

use serde::de::Deserializer;
use serde::{Deserialize, Serialize, Serializer};

/// Makes an enum of a closed list of words; `meaning` is what the documentation of each says.
#[macro_export]
macro_rules! closed_words {
    ($(#[$meta:meta])* $name:ident { $($(#[doc = $meaning:literal])+ $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize)]
        pub enum $name {
            $($(#[doc = $meaning])+ #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$($name::$variant),*];
            /// All words, in order.
            pub const NAMES: &'static [&'static str] = &[$($word),*];
            /// The word in files.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),* }
            }
            /// What it means, for people.
            pub const fn meaning(self) -> &'static str {
                match self { $($name::$variant => concat!($($meaning),+).trim_ascii()),* }
            }
            /// The variant of that word.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some($name::$variant),)* _ => None }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

/// Makes an enum of words that keeps unknown ones as `Other`. Words behind `with` end with `:` and a value; behind `or`, a closed
/// list of words is part of it.
macro_rules! open_words {
    ($(#[$meta:meta])* $name:ident {
        $($(#[$vmeta:meta])* $variant:ident = $word:literal,)*
    } $(with {
        $($(#[$pmeta:meta])* $pvariant:ident($ptype:ty) = $prefix:literal,)*
    })? $(or {
        $(#[$cmeta:meta])* $cvariant:ident($ctype:ty),
    })?) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vmeta])* $variant,)*
            $($($(#[$pmeta])* $pvariant($ptype),)*)?
            $($(#[$cmeta])* $cvariant($ctype),)?
            /// A word that is not of this list.
            Other(String),
        }

        impl $name {
            /// The words that stand for themselves, in order.
            pub const NAMES: &'static [&'static str] = &[$($word),*];

            /// The word in a history.
            pub fn word(&self) -> Cow<'_, str> {
                match self {
                    $($name::$variant => Cow::Borrowed($word),)*
                    $($($name::$pvariant(value) => Cow::Owned(format!(concat!($prefix, ":{}"), value)),)*)?
                    $($name::$cvariant(word) => Cow::Borrowed(word.as_str()),)?
                    $name::Other(word) => Cow::Borrowed(word),
                }
            }

            /// What that word stands for.
            pub fn of(word: &str) -> Self {
                match word {
                    $($word => return $name::$variant,)*
                    _ => {}
                }
                $($(
                    if let Some(value) = word.strip_prefix(concat!($prefix, ":"))
                        && let Ok(value) = value.parse::<$ptype>()
                    {
                        let read = $name::$pvariant(value);
                        // One that would be written in another way stays as it was.
                        if read.word() == word {
                            return read;
                        }
                    }
                )*)?
                $(if let Some(known) = <$ctype>::from_word(word) {
                    return $name::$cvariant(known);
                })?
                $name::Other(word.to_owned())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.word())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.word())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::of(&Cow::<str>::deserialize(deserializer)?))
            }
        }
    };
}

closed_words! {
    /// A part of a fault's life. The list is closed: another one would be another form of history.
    FaultPhase {
        /// It was put on.
        Begin = "begin",
        /// It did something.
        Effect = "effect",
        /// It was taken off.
        End = "end",
    }
}

closed_words! {
    /// What an interleaving does.
    Interleaved {
        /// The service was killed.
        Killed = "killed",
        /// A request, or the answer to it, was lost.
        Lost = "lost",
        /// A request came twice.
        Twice = "twice",
    }
}

closed_words! {
    /// What becomes of a resource on a hub.
    ResourceState {
        /// It is there, and was not before.
        There = "there",
        /// It changed.
        Changed = "changed",
        /// It is to be deleted, and finalizers hold it.
        Deleting = "deleting",
        /// It is gone.
        Gone = "gone",
    }
}

closed_words! {
    /// Does a condition of a resource hold?
    ConditionStatus {
        /// It does.
        True = "True",
        /// It does not.
        False = "False",
        /// Nobody can tell.
        Unknown = "Unknown",
    }
}

closed_words! {
    /// What the user can do beyond creating things.
    ActionKind {
        /// Start the installation of a cluster.
        Install = "install",
        /// Cancel it.
        Cancel = "cancel",
        /// Reset a cluster.
        Reset = "reset",
        /// Set a cluster's API and ingress addresses.
        SetVips = "set-vips",
        /// Change a host's role or name.
        PatchHost = "patch-host",
        /// Remove a host from the service.
        DeleteHost = "delete-host",
        /// Bind a host of the pool to a cluster.
        Bind = "bind",
        /// Give a host back to the pool.
        Unbind = "unbind",
        /// Open an installed cluster for more hosts (day 2).
        AllowAddHosts = "allow-add-hosts",
        /// Install a host of day 2; this is never done automatically.
        InstallHost = "install-host",
        /// Boot a host from the discovery image, as the service asks the user to do after a reset. Nothing that the service
        /// could refuse.
        BootDiscovery = "boot-discovery",
        /// Ask for another operation of the REST API, by its id.
        Request = "request",
        /// Apply a resource on the hub (server-side apply).
        ApplyResource = "apply-resource",
        /// Change a resource of a host or a cluster on the hub (merge patch).
        PatchResource = "patch-resource",
        /// Delete a resource of a host or a cluster from the hub.
        DeleteResource = "delete-resource",
        /// Approve the Agent of a host on the hub. Such a host is not approved before.
        Approve = "approve",
        /// Set or take away annotations of a resource of a host or a cluster on the hub.
        Annotate = "annotate",
    }
}

impl ActionKind {
    /// Is it something that there is on a hub alone?
    pub const fn needs_hub(self) -> bool {
        matches!(
            self,
            ActionKind::ApplyResource
                | ActionKind::PatchResource
                | ActionKind::DeleteResource
                | ActionKind::Approve
                | ActionKind::Annotate
        )
    }

    /// Why it cannot be said by resources on a hub; `None` where it can.
    pub const fn without_resources(self) -> Option<&'static str> {
        match self {
            ActionKind::Reset => Some("one deletes the ClusterDeployment and applies it again"),
            ActionKind::Cancel => {
                Some("one deletes the AgentClusterInstall, and there is no cluster to look at any more")
            }
            ActionKind::Request => Some(
                "it is a request to the REST API; `apply-resource` and `patch-resource` say what a resource can hold",
            ),
            _ => None,
        }
    }
}

open_words! {
    /// Something that happened on a host and that the service does not see. Programs of lab machines tell others, too.
    HostMoment {
        /// The machine was switched on.
        PoweredOn = "powered-on",
        /// The machine was switched off.
        PoweredOff = "powered-off",
        /// The discovery image booted.
        BootedDiscovery = "booted-discovery",
        /// The service took its registration and gave it a command to run.
        Registered = "registered",
        /// The service took its registration and gave it nothing to run.
        RegisteredWithoutCommand = "registered-without-command",
        /// The service does not know it any more: the agent stopped for good.
        Frozen = "frozen",
        /// The agent asked in vain for too long.
        GaveUpPolling = "gave-up-polling",
        /// The agent's process ended.
        AgentExited = "agent-exited",
        /// The agent was replaced by another version.
        AgentUpgraded = "agent-upgraded",
        /// An agent was started in the installed system, to give the host back.
        ReclaimBegun = "reclaim-begun",
        /// It reaches nobody.
        NetworkLost = "network-lost",
        /// It reaches others again.
        NetworkBack = "network-back",
        /// It found its static network in the image.
        StaticNetwork = "static-network",
        /// The image has a static network that could not be read.
        StaticNetworkFailed = "static-network-failed",
        /// The image has no static network for it.
        NoStaticNetwork = "no-static-network",
        /// Its addresses cannot reach the service.
        CutOff = "cut-off",
        /// The installer was started.
        InstallerStarted = "installer-started",
        /// The installer has the ignition of the cluster's bootstrap.
        BootstrapIgnitionFetched = "bootstrap-ignition-fetched",
        /// The installer has the host's ignition.
        IgnitionFetched = "ignition-fetched",
        /// The installer was stopped from outside.
        InstallerStopped = "installer-stopped",
        /// The installer gave up.
        InstallerFailed = "installer-failed",
        /// The machine goes down to come up again.
        Rebooting = "rebooting",
        /// The installed system booted.
        BootedInstalledOs = "booted-installed-os",
        /// A system booted from a disk that the installer was not told to write.
        BootedAnotherDisk = "booted-another-disk",
        /// Something of what was on the installation disk could not be removed.
        DiskNotCleaned = "disk-not-cleaned",
    }
    with {
        /// The installer was told to write the disk with this serial number.
        InstallingTo(String) = "installing-to",
        /// The service refused its registration with this status.
        RegistrationRefused(u16) = "registration-refused",
        /// The service refused a report of its installer with this status.
        ReportRefused(u16) = "report-refused",
    }
}

impl HostMoment {
    /// Is it one that an installation without faults does not have? Reports show it as a warning.
    pub fn is_trouble(&self) -> bool {
        match self {
            HostMoment::Frozen
            | HostMoment::StaticNetworkFailed
            | HostMoment::InstallerFailed
            | HostMoment::BootedAnotherDisk
            | HostMoment::DiskNotCleaned => true,
            // What the programs of lab machines say when they end with an error.
            HostMoment::Other(word) => word == "failed",
            _ => false,
        }
    }
}

open_words! {
    /// Something that happened inside a cluster that is being installed. Programs of lab machines tell others, too.
    ClusterMoment {
        /// bootkube was started (on the host that is named, the bootstrap).
        BootkubeStarted = "bootkube-started",
        /// The temporary control plane answers: API and, on several nodes, the machine-config server.
        TemporaryControlPlaneUp = "temporary-control-plane-up",
        /// bootkube is through.
        BootkubeDone = "bootkube-done",
        /// etcd runs without the bootstrap's member.
        EtcdBootstrapDone = "etcd-bootstrap-done",
        /// etcd was told of a member (on the host that is named) that has not started yet.
        EtcdMemberAdded = "etcd-member-added",
        /// etcd has fewer members up than it needs (the host that is named is missing, where that is known).
        EtcdQuorumLost = "etcd-quorum-lost",
        /// And has enough again.
        EtcdQuorumBack = "etcd-quorum-back",
        /// The node on the host that is named is ready.
        NodeReady = "node-ready",
        /// The controller told the cluster that it is ready.
        ControllerReady = "controller-ready",
        /// The service took the controller's word that the installation is complete.
        InstallationCompleted = "installation-completed",
        /// bootkube failed and is started again.
        BootkubeFailed = "bootkube-failed",
    }
    with {
        /// That operator is available.
        OperatorAvailable(String) = "operator-available",
    }
}

impl ClusterMoment {
    /// Is it about one host of the cluster?
    pub fn is_of_host(&self) -> bool {
        matches!(
            self,
            ClusterMoment::BootkubeStarted
                | ClusterMoment::EtcdMemberAdded
                | ClusterMoment::EtcdQuorumLost
                | ClusterMoment::NodeReady
        )
    }
}

open_words! {
    /// A part of what a run observes.
    HistoryPart {
        /// The changes in the service's tables.
        Database = "database",
        /// The service's events.
        Events = "events",
        /// What the service shows of its clusters at the end.
        LastLook = "last-look",
        /// What a machine said on its console.
        Console = "console",
        /// The lines of a console beyond those that a history keeps; what means something is kept of these, too.
        ConsoleLines = "console-lines",
    }
}

open_words! {
    /// What the user did through the API.
    UserVerb {
        /// Create a cluster.
        CreateCluster = "create-cluster",
        /// Create an infra-env.
        CreateInfraEnv = "create-infra-env",
        /// Fetch a discovery image, or a part of it.
        FetchImage = "fetch-image",
        /// Give a host its role.
        SetRole = "set-role",
    }
    or {
        /// What scenarios can have done, too.
        Action(ActionKind),
    }
}

open_words! {
    /// What happened to a virtual machine, as the hypervisor reports it or by the harness's own hand.
    MachineMoment {
        /// It was made, and is off.
        Defined = "defined",
        /// It was switched on.
        Started = "started",
        /// It stands still.
        Suspended = "suspended",
        /// It goes on.
        Resumed = "resumed",
        /// Its system asked for the power to be cut.
        ShutDown = "shut-down",
        /// It is off.
        Stopped = "stopped",
        /// Its system crashed.
        Crashed = "crashed",
        /// It restarted.
        Rebooted = "rebooted",
        /// A disk gave an error.
        IoError = "io-error",
    }
}

open_words! {
    /// How a run ended. Whether it passed is no part of the history: that is judged from it.
    RunEnd {
        /// What was to be done is done, or did not come in its time.
        Ended = "ended",
        /// Something stopped the run before that.
        CutShort = "cut short",
    }
}

open_words! {
    /// What hosts are.
    HostsKind {
        /// Behaviours in the harness's own process.
        Simulated = "simulated",
        /// Virtual machines.
        Vm = "vm",
        /// Some are the one and some the other (of a run, not of a host).
        Mixed = "mixed",
    }
}

open_words! {
    /// What the service under test is. Where it is a program, an image or an address, that stands behind the word.
    TargetKind {
        /// The built-in one.
        Simulated = "simulated",
    }
    with {
        /// A program on this machine.
        Process(String) = "process",
        /// A container.
        Container(String) = "container",
        /// It runs somewhere already.
        Remote(String) = "remote",
    }
}

impl HostsKind {
    /// Has a host of this kind a serial console?
    pub fn has_console(&self) -> bool {
        *self == Self::Vm
    }
}

impl Default for HostsKind {
    /// Of a run of which nothing is known.
    fn default() -> Self {
        Self::Other(String::new())
    }
}

impl Default for TargetKind {
    /// Of a run of which nothing is known.
    fn default() -> Self {
        Self::Other(String::new())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::history::What;

    /// What is read is what is written: one line of a history, and whether all words of it are known.
    #[rstest]
    #[case(r#"{"host_did":{"host":"00000000-0000-0000-0000-000000000001","what":"registered"}}"#, true)]
    #[case(r#"{"host_did":{"host":"00000000-0000-0000-0000-000000000001","what":"registration-refused:409"}}"#, true)]
    #[case(r#"{"host_did":{"host":"00000000-0000-0000-0000-000000000001","what":"registration-refused:0409"}}"#, false)]
    #[case(r#"{"host_did":{"host":"00000000-0000-0000-0000-000000000001","what":"hardware-overlay"}}"#, false)]
    #[case(
        r#"{"in_cluster":{"cluster":"00000000-0000-0000-0000-000000000001","host":null,"what":"operator-available:dns"}}"#,
        true
    )]
    #[case(r#"{"run_finished":{"verdict":"cut short"}}"#, true)]
    #[case(r#"{"run_finished":{"verdict":"passed"}}"#, false)]
    #[case(r#"{"machine":{"machine":"m-0","did":"io-error","detail":"vda"}}"#, true)]
    #[case(r#"{"machine":{"machine":"m-0","did":"other","detail":""}}"#, false)]
    #[case(r#"{"user_action":{"action":"install","subject":null,"status":202,"reason":""}}"#, true)]
    #[case(r#"{"fault":{"name":"f","phase":"effect"}}"#, true)]
    fn words_of_any_version_stay_as_they_are(#[case] line: &str, #[case] known: bool) {
        let what: What = serde_json::from_str(line).unwrap();
        let mut again = serde_json::to_string(&what).unwrap();
        if line.contains("\"fault\"") {
            // Empty members may be left out.
            again = again.replace(r#","inject":"","detail":"""#, "");
        }
        assert_eq!(again, line);
        assert_eq!(!format!("{what:?}").contains("Other("), known);
    }

    #[test]
    fn another_phase_of_a_fault_is_another_form_of_history() {
        let read = serde_json::from_str::<What>(r#"{"fault":{"name":"f","phase":"pause"}}"#);
        assert!(read.unwrap_err().to_string().contains("unknown variant `pause`"));
    }

    #[test]
    fn the_service_under_test_may_have_a_name_behind_its_kind() {
        assert_eq!(TargetKind::of("remote:http://h:1/"), TargetKind::Remote("http://h:1/".into()));
        assert_eq!(TargetKind::of("simulated"), TargetKind::Simulated);
        assert_eq!(TargetKind::of("remote"), TargetKind::Other("remote".into()));
    }

    proptest! {
        #[test]
        fn no_word_is_lost(word in "(registration-refused:|operator-available:|process:)?\\PC{0,12}") {
            prop_assert_eq!(HostMoment::of(&word).to_string(), word.as_str());
            prop_assert_eq!(ClusterMoment::of(&word).to_string(), word.as_str());
            prop_assert_eq!(TargetKind::of(&word).to_string(), word.as_str());
        }
    }
}
