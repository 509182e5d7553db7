//! The kinds of faults, in families: `host`, `network`, `control_plane`, `service`. A family is one table, which the checker, the
//! schema, the fault engine, the docs and the coverage report read: each entry is the word of a kind, what it can hit, and its
//! parameters with their types. [`Injection`] is what the checker makes of an entry and of what a scenario says under `with`.
//!
//! What a kind does to simulated hosts and to machines is where these live.

mod control_plane;
mod host;
mod kube;
mod network;
mod params;
mod service;

use serde::Serialize;
use vlab_api::types::HostStage;

pub use self::control_plane::ControlPlaneInjection;
pub use self::host::HostInjection;
pub use self::kube::{KubeChanges, KubeInjection, KubeRequests, KubeStored, KubeWrites};
pub use self::network::NetworkInjection;
pub use self::params::{
    HostName, OWN_STAGES, OperationId, ParamDefault, ParamForm, ParamRow, RequestMethod, operation_ids,
};

use self::params::Value;
pub use self::service::{Requests, ServiceInjection};
use crate::words::{FaultPlace, Lasting};

/// A kind of fault.
#[derive(Debug)]
pub struct FaultRow {
    /// Its word.
    pub word: &'static str,
    /// Where it is: a host, the network, the control plane, the service.
    pub place: FaultPlace,
    /// What it can hit.
    pub targets: &'static [TargetForm],
    /// Does it happen in a moment, or last?
    pub lasts: Lasting,
    /// Which hosts can have it.
    pub hosts: FaultHosts,
    /// One line for people.
    pub purpose: &'static str,
    /// Its own parameters.
    pub params: &'static [ParamRow],
    /// Parameters that say which requests it is about.
    pub requests: &'static [ParamRow],
    pub(crate) read: fn(&mut dyn Parameters) -> Option<Injection>,
}

/// What a kind of fault can hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetForm {
    /// Hosts: by name, group or role, or some of them chosen by the seed.
    Hosts,
    /// The way between hosts.
    Link,
    /// A cluster's inside, its names or its addresses.
    Cluster,
    /// The service under test.
    Service,
    /// The service's database.
    Postgres,
    /// The way between hosts and the service.
    Gateway,
    /// The hub's API server.
    Kube,
}

impl TargetForm {
    /// For messages.
    pub const fn words(self) -> &'static str {
        match self {
            TargetForm::Hosts => "hosts",
            TargetForm::Link => "the link `between` hosts",
            TargetForm::Cluster => "a cluster",
            TargetForm::Service => "the `service`",
            TargetForm::Postgres => "`postgres`",
            TargetForm::Gateway => "the `gateway`",
            TargetForm::Kube => "`kube`, the hub's API server",
        }
    }
}

/// Which hosts can have a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultHosts {
    /// Simulated ones only, so far.
    Simulated,
    /// Both; how it is done differs.
    Any,
}

/// What a fault does, with all that the scenario says about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Injection {
    /// To hosts.
    Host(HostInjection),
    /// To the network.
    Network(NetworkInjection),
    /// To the inside of a cluster.
    ControlPlane(ControlPlaneInjection),
    /// To the service, its database, or the way to it.
    Service(ServiceInjection),
    /// To the hub's API server.
    Kube(KubeInjection),
}

impl Injection {
    /// Its row of the table.
    pub const fn row(&self) -> &'static FaultRow {
        match self {
            Injection::Host(injection) => injection.row(),
            Injection::Network(injection) => injection.row(),
            Injection::ControlPlane(injection) => injection.row(),
            Injection::Service(injection) => injection.row(),
            Injection::Kube(injection) => injection.row(),
        }
    }
}

/// Where the parameters of a fault come from.
pub(crate) trait Parameters {
    /// What is written for it and where, or its default.
    fn text(&mut self, row: &'static ParamRow) -> Given;
    /// Names of the hosts that there are.
    fn hosts(&self) -> Vec<String>;
    /// It cannot be read.
    fn refuse(&mut self, row: &'static ParamRow, complaint: crate::spanned::Complaint);
}

/// What is written for a parameter.
pub(crate) enum Given {
    /// This text, as it is written.
    Text(String),
    /// Nothing, and nothing need be.
    Nothing,
    /// Nothing, and that was refused.
    Refused,
}

/// The value of a parameter; `None` when it was refused.
fn value<T: Value>(parameters: &mut dyn Parameters, row: &'static ParamRow) -> Option<T> {
    match parameters.text(row) {
        Given::Refused => None,
        Given::Nothing => T::NOTHING,
        Given::Text(text) => match T::read(&text, row, &|| parameters.hosts()) {
            Ok(value) => Some(value),
            Err(complaint) => {
                parameters.refuse(row, complaint);
                None
            }
        },
    }
}

/// What can be said about which requests or changes a fault concerns: a struct, and its rows of the table.
macro_rules! selection {
    ($(#[$meta:meta])* $name:ident; $( #[doc = $about:literal] $field:ident: $ty:ty = $param:expr, )*) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        pub struct $name {
            $( #[doc = $about] pub $field: $ty, )*
        }

        impl $name {
            pub(super) const ROWS: &'static [$crate::faults::ParamRow] = &[$({
                const PARAM: $crate::faults::params::Param<$ty> = $param;
                PARAM.row(stringify!($field), $about)
            }),*];

            /// `None` when something of it was refused.
            pub(super) fn read(parameters: &mut dyn $crate::faults::Parameters) -> Option<Self> {
                let mut rows = Self::ROWS.iter();
                $( let $field: Option<$ty> = $crate::faults::value(parameters, rows.next()?); )*
                Some(Self { $( $field: $field?, )* })
            }
        }
    };
}
use selection;

/// A family of kinds of faults: its enum, and the rows of the table. The first line of each entry is its purpose for people. A
/// parameter is called like its field, and what may be written for it follows from the field's type.
macro_rules! family {
    (
        $(#[$meta:meta])*
        $name:ident in $place:ident {
            $(
                #[doc = $purpose:literal]
                $variant:ident = $word:literal hits [$($target:ident),+], $lasts:ident, $hosts:ident
                $({ $( #[doc = $about:literal] $field:ident: $ty:ty = $param:expr, )* $(..$requests:ident: $of:ident)? })?;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $(
                #[doc = $purpose]
                $variant $({
                    $( #[doc = $about] $field: $ty, )*
                    $( #[doc = " Which requests it is about."] $requests: $crate::faults::$of, )?
                })?,
            )*
        }

        #[expect(non_upper_case_globals, reason = "each row is named after its variant")]
        mod rows {
            use super::*;
            $(
                pub(super) static $variant: $crate::faults::FaultRow = $crate::faults::FaultRow {
                    word: $word,
                    place: $crate::words::FaultPlace::$place,
                    targets: &[$($crate::faults::TargetForm::$target),+],
                    lasts: $crate::words::Lasting::$lasts,
                    hosts: $crate::faults::FaultHosts::$hosts,
                    purpose: $purpose.trim_ascii(),
                    params: &[$($({
                        const PARAM: $crate::faults::params::Param<$ty> = $param;
                        PARAM.row(stringify!($field), $about)
                    },)*)?],
                    requests: family!(@requests $($($of)?)?),
                    read: |parameters| {
                        // Not every kind has parameters.
                        let _ = &parameters;
                        $(
                            $( let $field: Option<$ty> = $crate::faults::value(parameters, $variant.param(stringify!($field))?); )*
                            $( let $requests = $crate::faults::$of::read(parameters); )?
                        )?
                        Some($crate::faults::Injection::$place($name::$variant $({
                            $( $field: $field?, )*
                            $( $requests: $requests?, )?
                        })?))
                    },
                };
            )*
        }

        impl $name {
            /// Its row of the table.
            pub const fn row(&self) -> &'static $crate::faults::FaultRow {
                match self {
                    $( $name::$variant $({ $($field: _,)* $($requests: _,)? })? => &rows::$variant, )*
                }
            }

            /// All rows of the family.
            pub(super) const ROWS: &'static [&'static $crate::faults::FaultRow] = &[$(&rows::$variant),*];
        }
    };
    (@requests) => { &[] };
    (@requests $of:ident) => { $crate::faults::$of::ROWS };
}
use family;

/// Every kind, family by family.
pub fn fault_rows() -> impl Iterator<Item = &'static FaultRow> {
    let families = [
        HostInjection::ROWS,
        NetworkInjection::ROWS,
        ControlPlaneInjection::ROWS,
        ServiceInjection::ROWS,
        KubeInjection::ROWS,
    ];
    families.into_iter().flatten().copied()
}

/// The words of all kinds, in the order of the table.
pub fn fault_words() -> Vec<&'static str> {
    fault_rows().map(|row| row.word).collect()
}

impl FaultRow {
    /// Everything that can be said about it.
    pub fn all_params(&self) -> impl Iterator<Item = &'static ParamRow> + use<> {
        self.params.iter().chain(self.requests)
    }

    /// The parameter of that name that is its own.
    fn param(&'static self, name: &str) -> Option<&'static ParamRow> {
        self.params.iter().find(|param| param.name == name)
    }

    /// Is it one of a hub's API server? Only scenarios with `api: kube` have one.
    pub fn needs_hub(&self) -> bool {
        self.targets.contains(&TargetForm::Kube)
    }

    /// Does virtual time have no form of it? There the service is one core without a database.
    pub fn needs_real_time(&self) -> bool {
        self.targets.contains(&TargetForm::Postgres)
    }
}

impl Injection {
    /// The other host that it speaks of, which must not be hit itself.
    pub const fn other_host(&self) -> Option<&HostName> {
        match self {
            Injection::Host(HostInjection::DuplicateId { of })
            | Injection::Network(NetworkInjection::DuplicateAddress { of }) => Some(of),
            _ => None,
        }
    }

    /// Is it done to a virtual machine by somebody who logs in? That takes its time.
    pub const fn is_done_inside(&self) -> bool {
        match self {
            Injection::Host(host) => matches!(
                host,
                HostInjection::AgentRestart
                    | HostInjection::SilentAgent
                    | HostInjection::ClockSkew { .. }
                    | HostInjection::WrongHostname { .. }
                    | HostInjection::StuckStage { .. }
                    | HostInjection::InstallerFails { .. }
            ),
            Injection::Network(network) => matches!(network, NetworkInjection::DuplicateAddress { .. }),
            Injection::ControlPlane(inside) => matches!(
                inside,
                ControlPlaneInjection::CsrNotApproved
                    | ControlPlaneInjection::BootkubeFails
                    | ControlPlaneInjection::BootkubeHangs
                    | ControlPlaneInjection::OperatorDegraded { .. }
            ),
            Injection::Service(_) | Injection::Kube(_) => false,
        }
    }

    /// The stage of a host that it waits for.
    pub const fn stage(&self) -> Option<HostStage> {
        match self {
            Injection::Host(HostInjection::StuckStage { stage } | HostInjection::InstallerFails { stage, .. }) => {
                Some(*stage)
            }
            _ => None,
        }
    }

    /// Ids of the console checks that it makes a machine fail by itself: there they tell of the fault, and of nothing that is wrong.
    pub const fn on_consoles(&self) -> &'static [&'static str] {
        match self {
            Injection::Host(HostInjection::DiskFails { .. }) => &["disk-error"],
            Injection::Host(HostInjection::SlowDisk { .. }) => &["starved", "writing-stands-still"],
            // What was not read yet cannot be started.
            Injection::Host(HostInjection::MediaLost) => &["disk-error", "unit-failed", "lab-unit-failed"],
            // The unit says so each time.
            Injection::ControlPlane(ControlPlaneInjection::BootkubeFails) => &["unit-failed", "lab-unit-failed"],
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Answers with what is needed and no more, and remembers what it was asked.
    struct Asked(Vec<&'static str>, bool);

    impl Parameters for Asked {
        fn text(&mut self, row: &'static ParamRow) -> Given {
            self.0.push(row.name);
            let text = match (row.default, row.form) {
                (ParamDefault::Is(default), _) => default.to_owned(),
                (ParamDefault::Nothing, _) if !self.1 => return Given::Nothing,
                (_, ParamForm::Span) => "5s".to_owned(),
                (_, ParamForm::Number(least, _)) => least.to_string(),
                (_, ParamForm::Text) => "x".to_owned(),
                (_, ParamForm::Words(words)) => words[0].to_owned(),
                (_, ParamForm::Address) => "192.0.2.1".to_owned(),
                (_, ParamForm::Host) => "h".to_owned(),
                (_, ParamForm::Stage) => OWN_STAGES[0].as_str().to_owned(),
                (_, ParamForm::FinalizingStage) => "Adding router ca".to_owned(),
                (_, ParamForm::Operation) => operation_ids()[0].to_owned(),
            };
            Given::Text(text)
        }
        fn hosts(&self) -> Vec<String> {
            vec!["h".to_owned()]
        }
        fn refuse(&mut self, row: &'static ParamRow, complaint: crate::spanned::Complaint) {
            panic!("{}: {}", row.name, complaint.message);
        }
    }

    #[test]
    fn every_kind_reads_the_parameters_of_its_row_and_their_defaults() {
        let mut words = BTreeSet::new();
        for row in fault_rows() {
            for optional_too in [false, true] {
                let mut asked = Asked(vec![], optional_too);
                let injection = (row.read)(&mut asked).unwrap_or_else(|| panic!("{} was refused", row.word));
                assert!(std::ptr::eq(injection.row(), row), "{}", row.word);
                assert_eq!(asked.0, row.all_params().map(|p| p.name).collect::<Vec<_>>(), "{}", row.word);
            }
            assert!(words.insert(row.word), "{} is there twice", row.word);
            assert!(!row.targets.is_empty() && row.purpose.len() > 20, "{}", row.word);
            assert!(row.all_params().all(|p| !p.purpose.is_empty()), "{}", row.word);
            let chooses = [TargetForm::Gateway, TargetForm::Kube].iter().any(|form| row.targets.contains(form));
            assert!(chooses || row.requests.is_empty(), "{}", row.word);
        }
    }
}
