//! What can be seen. [`KINDS`] is the one list of kinds: which key each has, and what makes a [`Seen`] of it.

use vlab_api::types::{FinalizingStage, HostStage};

use super::hosts::MAX_HOSTS;
use super::subject::who;
use super::{Checker, Known, Place};
use crate::diagnostic::quoted;
use crate::file::ObservationFile;
use crate::resources::ResourceOf;
use crate::spanned::{
    AnyStatus, AnyValidation, At, ConditionType, EventName, Happening, OperatorName, Plain, Scalar, StepType, Text,
};
use crate::types::{Host, Moment, Seen, Subject};
use crate::words::{ActionKind, ConditionStatus, FaultPhase, Quantity, ResourceKind, ResourceState};

/// Stages whose progress text is a percentage.
const HAVE_PROGRESS: &[HostStage] = &[HostStage::WritingImageToDisk, HostStage::CopyingRegistryDataToDisk];

/// An observation while it is read.
#[derive(Clone, Copy)]
struct Item<'a> {
    file: &'a ObservationFile,
    place: &'a Place,
    known: &'a Known<'a>,
}

/// Of whom it is, and what is seen.
type Read = Option<(Subject, Seen)>;

/// A kind of what can be seen.
struct ObservationForm {
    key: &'static str,
    given: fn(&ObservationFile) -> Option<&Place>,
    read: fn(&mut Checker<'_>, Item<'_>, Option<Subject>) -> Read,
}

macro_rules! kinds {
    ($($key:ident => $read:ident),* $(,)?) => {
        &[$(ObservationForm {
            key: stringify!($key),
            given: |file| file.$key.as_ref().map(|text| &text.span),
            read: |checker, item, subject| match &item.file.$key {
                Some(text) => checker.$read(text, item, subject),
                None => None,
            },
        }),*]
    };
}

/// Every kind of what can be seen. Exactly one stands in an observation.
const KINDS: &[ObservationForm] = kinds! {
    status => seen_status,
    stage => seen_stage,
    finalizing_stage => seen_finalizing_stage,
    validation => seen_validation,
    event => seen_event,
    operator => seen_operator,
    action => seen_action,
    step => seen_step,
    fault => seen_fault,
    did => seen_did,
    console => seen_console,
    condition => seen_condition,
    resource_is => seen_resource,
    held_by => seen_held,
};

/// Keys of what can be seen.
pub(crate) fn kinds_of_observations() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.key)
}

/// A key that says more of some kinds, and has no meaning beside the others.
struct Companion {
    key: &'static str,
    given: fn(&ObservationFile) -> Option<&Place>,
    /// The kinds that it goes with.
    of: &'static [&'static str],
}

macro_rules! companions {
    ($($key:ident => [$($of:ident),+]),* $(,)?) => {
        &[$(Companion {
            key: stringify!($key),
            given: |file| file.$key.as_ref().map(|value| &value.span),
            of: &[$(stringify!($of)),+],
        }),*]
    };
}

const COMPANIONS: &[Companion] = companions! {
    severity => [event],
    is => [validation, operator, condition],
    reason => [condition],
    resource => [condition, resource_is, held_by],
    percent => [stage],
    from => [status],
    phase => [fault],
};

impl Checker<'_> {
    pub(super) fn observation(&mut self, item: &At<ObservationFile>, known: &Known<'_>) -> Option<Moment> {
        self.observed(&item.value, &item.span, known)
    }

    pub(super) fn observed(&mut self, file: &ObservationFile, place: &Place, known: &Known<'_>) -> Option<Moment> {
        let subject = self.subject(who!(file), known);
        let kind = self.kind_of_observation(file, place)?;
        let of = self.quantity(file, &subject, known)?;
        for companion in COMPANIONS {
            if let Some(place) = (companion.given)(file).filter(|_| !companion.of.contains(&kind.key)) {
                let of = quoted(companion.of, "or");
                self.refuse(
                    place,
                    format!("`{}` only goes with {of}", companion.key),
                    "not used here",
                    format!("remove it, or add {of}"),
                );
            }
        }
        let (subject, seen) = (kind.read)(self, Item { file, place, known }, subject?)?;
        Some(Moment { subject, seen, of })
    }

    fn kind_of_observation(&mut self, file: &ObservationFile, place: &Place) -> Option<&'static ObservationForm> {
        let given: Vec<(&ObservationForm, &Place)> =
            KINDS.iter().filter_map(|kind| Some((kind, (kind.given)(file)?))).collect();
        match given.as_slice() {
            [] => {
                let keys: Vec<&str> = kinds_of_observations().collect();
                self.refuse(
                    place,
                    "this does not say what to look for",
                    "nothing to look for",
                    format!("add one of {}", quoted(&keys, "or")),
                );
                None
            }
            [(kind, _)] => Some(kind),
            [(first, there), (second, place), ..] => {
                self.refuse(
                    place,
                    format!("`{}` and `{}` cannot be used together", first.key, second.key),
                    "the second one",
                    "an observation is about one thing; write two observations",
                );
                self.also(there, "the first one");
                None
            }
        }
    }

    /// Of how many hosts it must be seen.
    fn quantity(
        &mut self,
        file: &ObservationFile,
        subject: &Option<Option<Subject>>,
        known: &Known<'_>,
    ) -> Option<Quantity> {
        let Some(n) = &file.at_least else { return Some(Quantity::All) };
        let number = self.number(n, "the number of hosts that are enough", 1, MAX_HOSTS as i64)?;
        let number = u32::try_from(number).ok()?;
        let have = match subject {
            Some(Some(Subject::Hosts(names))) => names.len(),
            _ => known.hosts.len(),
        };
        if number as usize > have {
            self.refuse(
                &n.span,
                format!("{number} hosts are required, and there are {have}"),
                "can never happen",
                format!("write a number from 1 to {have}"),
            );
        }
        Some(Quantity::AtLeast(number))
    }

    /// The subject, which must be there.
    fn somebody(&mut self, subject: Option<Subject>, place: &Place) -> Option<Subject> {
        if subject.is_none() {
            self.refuse(place, "no host or cluster is named", "whose?", "add `host`, `hosts`, `role` or `cluster`");
        }
        subject
    }

    fn seen_status(&mut self, text: &Text<AnyStatus>, item: Item<'_>, subject: Option<Subject>) -> Read {
        let subject = self.somebody(subject, item.place)?;
        let seen = if let Subject::Cluster(_) = subject {
            let to = self.cluster_status(text)?;
            match &item.file.from {
                None => Seen::ClusterStatus(to),
                Some(from) => Seen::ClusterTransition { from: self.cluster_status(from)?, to },
            }
        } else {
            let to = self.host_status(text)?;
            match &item.file.from {
                None => Seen::HostStatus(to),
                Some(from) => Seen::HostTransition { from: self.host_status(from)?, to },
            }
        };
        Some((subject, seen))
    }

    fn seen_stage(&mut self, text: &Text<HostStage>, item: Item<'_>, subject: Option<Subject>) -> Read {
        let stage = self.read(text);
        let subject = self.somebody(subject, item.place)?;
        if !self.needs_hosts(&subject, &text.span, "an installation stage") {
            return None;
        }
        let stage = stage?;
        self.stage_exists(&subject, stage, &text.span, item.known);
        let seen = match &item.file.percent {
            None => Seen::Stage(stage),
            Some(percent) if HAVE_PROGRESS.contains(&stage) => {
                let percent = self.number(percent, "the percentage", 1, 100)?;
                Seen::Progress { stage, percent: u32::try_from(percent).ok()? }
            }
            Some(percent) => {
                let stages: Vec<&str> = HAVE_PROGRESS.iter().map(|s| s.as_str()).collect();
                self.refuse(
                    &percent.span,
                    format!("the stage `{stage}` has no percentage"),
                    "not used here",
                    format!("remove it, or name {}", quoted(&stages, "or")),
                );
                return None;
            }
        };
        Some((subject, seen))
    }

    fn seen_finalizing_stage(
        &mut self,
        text: &Text<FinalizingStage>,
        item: Item<'_>,
        subject: Option<Subject>,
    ) -> Read {
        let stage = self.read(text)?;
        let cluster = self.needs_cluster(subject, &text.span, item.known, "a stage of finalizing")?;
        Some((cluster, Seen::FinalizingStage(stage)))
    }

    fn seen_validation(&mut self, text: &Text<AnyValidation>, item: Item<'_>, subject: Option<Subject>) -> Read {
        let subject = self.somebody(subject, item.place)?;
        let id = self.validation_id(text, matches!(subject, Subject::Cluster(_)));
        let what = "the value of the validation is missing";
        let status = self.value_of(item.file, &text.span, what, "add `is: success` or `is: failure`")?;
        Some((subject, Seen::Validation { id: id?, status: status? }))
    }

    fn seen_event(&mut self, text: &Text<EventName>, item: Item<'_>, subject: Option<Subject>) -> Read {
        self.read(text)?;
        let severity = self.read_option(&item.file.severity);
        Some((subject.unwrap_or(Subject::Run), Seen::Event { name: text.text.clone(), severity }))
    }

    fn seen_operator(&mut self, text: &Text<OperatorName>, item: Item<'_>, subject: Option<Subject>) -> Read {
        self.read(text)?;
        let what = "the status of the operator is missing";
        let status = self.value_of(item.file, &text.span, what, "add `is: available`")?;
        let cluster = self.needs_cluster(subject, &text.span, item.known, "an operator")?;
        Some((cluster, Seen::Operator { name: text.text.clone(), status: status? }))
    }

    fn seen_action(&mut self, text: &Text<ActionKind>, _: Item<'_>, subject: Option<Subject>) -> Read {
        let action = self.read(text)?;
        Some((subject.unwrap_or(Subject::Run), Seen::Action(action)))
    }

    fn seen_step(&mut self, text: &Text<StepType>, item: Item<'_>, subject: Option<Subject>) -> Read {
        self.read(text)?;
        let subject = self.somebody(subject, item.place)?;
        self.needs_hosts(&subject, &text.span, "a step").then(|| (subject, Seen::Step(text.text.clone())))
    }

    fn seen_fault(&mut self, text: &Text<Plain>, item: Item<'_>, subject: Option<Subject>) -> Read {
        let names = &item.known.faults;
        if !names.contains(&text.text.as_str()) {
            self.unknown(&text.span, "fault", &text.text, names.iter().copied());
            return None;
        }
        let phase = self.read_option(&item.file.phase).unwrap_or(FaultPhase::Begin);
        Some((subject.unwrap_or(Subject::Run), Seen::Fault { name: text.text.clone(), phase }))
    }

    fn seen_did(&mut self, text: &Text<Happening>, item: Item<'_>, subject: Option<Subject>) -> Read {
        let happening = self.read(text)?;
        let word = format!("`{}`", text.text);
        let of_hosts = matches!(subject, Some(Subject::Hosts(_) | Subject::Role { .. }));
        let subject = if happening.of_cluster && !(happening.of_host && of_hosts) {
            self.needs_cluster(subject, &text.span, item.known, &word)?
        } else {
            let subject = subject.unwrap_or(Subject::Run);
            if !self.needs_hosts(&subject, &text.span, &word) {
                return None;
            }
            subject
        };
        if let Some(serial) = Happening::disk(&text.text) {
            let disks = item.known.hosts.iter().flat_map(|host| &host.vm.disks);
            let known: Vec<&str> = disks.filter_map(|disk| disk.serial.as_deref()).collect();
            if !known.contains(&serial) {
                self.unknown(&text.span, "disk with the serial number", serial, known);
                return None;
            }
        }
        Some((subject, Seen::Did(text.text.clone())))
    }

    fn seen_console(&mut self, text: &Text<Plain>, item: Item<'_>, subject: Option<Subject>) -> Read {
        if text.text.trim().is_empty() {
            self.refuse(&text.span, "`console` is empty", "nothing to look for", "write a part of the line");
            return None;
        }
        let subject = subject.unwrap_or(Subject::Run);
        let mut hosts = item.known.hosts.iter();
        let some = match &subject {
            Subject::Hosts(names) => hosts.any(|h| h.is_machine() && names.contains(&h.name)),
            _ => hosts.any(Host::is_machine),
        };
        if !some {
            self.refuse(
                &text.span,
                "only virtual machines have a serial console",
                "no virtual machine here",
                "write `kind: vm` in the group of hosts, or look for something else",
            );
            return None;
        }
        Some((subject, Seen::Console(text.text.clone())))
    }

    fn seen_condition(&mut self, text: &Text<ConditionType>, item: Item<'_>, subject: Option<Subject>) -> Read {
        let of = item.file.resource.as_ref();
        let (subject, resource) = self.its_condition(text, subject, item.place, of, item.known)?;
        let status = match &item.file.is {
            None => ConditionStatus::True,
            Some(is) => self.read_as(&is.text, &is.span)?,
        };
        let reason = item.file.reason.as_ref().map(|reason| reason.text.clone());
        Some((subject, Seen::Condition { resource, condition: text.text.clone(), status, reason }))
    }

    /// Whose condition is meant, which that resource must have.
    pub(super) fn its_condition(
        &mut self,
        text: &Text<ConditionType>,
        subject: Option<Subject>,
        place: &Place,
        of: Option<&Text<ResourceKind>>,
        known: &Known<'_>,
    ) -> Option<(Subject, ResourceKind)> {
        self.read(text)?;
        let (subject, resource) = self.its_resource(subject, &text.span, place, of, known)?;
        let (_, types) = resource.conditions()?;
        if !types.contains(&text.text.as_str()) {
            let what = format!("condition of the resource {resource}");
            self.unknown(&text.span, &what, &text.text, types.iter().copied());
            return None;
        }
        Some((subject, resource))
    }

    fn seen_resource(&mut self, text: &Text<ResourceState>, item: Item<'_>, subject: Option<Subject>) -> Read {
        let state = self.read(text)?;
        let of = item.file.resource.as_ref();
        let (subject, resource) = self.its_resource(subject, &text.span, item.place, of, item.known)?;
        Some((subject, Seen::Resource { resource, state }))
    }

    fn seen_held(&mut self, text: &Text<Plain>, item: Item<'_>, subject: Option<Subject>) -> Read {
        let finalizer = text.text.clone();
        // The API server takes no other, but for a few of its own.
        if !finalizer.contains('/') && !["orphan", "foregroundDeletion", "kubernetes"].contains(&finalizer.as_str()) {
            self.refuse(
                &text.span,
                format!("`{finalizer}` is not the name of a finalizer"),
                "never on a resource",
                "write it in full, for example `agent.agent-install.openshift.io/ai-deprovision`",
            );
            return None;
        }
        let of = item.file.resource.as_ref();
        let (subject, resource) = self.its_resource(subject, &text.span, item.place, of, item.known)?;
        Some((subject, Seen::Held { resource, finalizer }))
    }

    /// Which resource of a host or a cluster is meant.
    fn its_resource(
        &mut self,
        subject: Option<Subject>,
        word: &Place,
        place: &Place,
        of: Option<&Text<ResourceKind>>,
        known: &Known<'_>,
    ) -> Option<(Subject, ResourceKind)> {
        if !known.kube {
            self.refuse(
                word,
                "there are resources only where the service is asked over Kubernetes",
                "no resource here",
                "add `api: kube` to the scenario",
            );
            return None;
        }
        let subject = self.somebody(subject, place)?;
        let whose = match subject {
            Subject::Cluster(_) => ResourceOf::Cluster,
            _ => ResourceOf::Host,
        };
        let resource = self.resource_of(whose, of)?;
        Some((subject, resource))
    }

    /// The resource of that kind, which a host or a cluster must have; without a kind the usual one.
    pub(super) fn resource_of(&mut self, of: ResourceOf, text: Option<&Text<ResourceKind>>) -> Option<ResourceKind> {
        let Some(text) = text else {
            return Some(if of == ResourceOf::Cluster {
                ResourceKind::AgentClusterInstall
            } else {
                ResourceKind::Agent
            });
        };
        let resource = self.read(text)?;
        if resource.conditions().is_none_or(|(whose, _)| whose != of) {
            let words: Vec<&str> = ResourceKind::all_of(of).map(ResourceKind::as_str).collect();
            let whose = if of == ResourceOf::Cluster { "a cluster" } else { "a host" };
            self.refuse(
                &text.span,
                format!("{whose} has no {resource} of its own"),
                "not its resource",
                format!("write {}", quoted(&words, "or")),
            );
            return None;
        }
        Some(resource)
    }

    /// What `is` says, which must be there. The inner `None`: it cannot be read.
    fn value_of<T: Scalar>(
        &mut self,
        file: &ObservationFile,
        place: &Place,
        missing: &str,
        help: &str,
    ) -> Option<Option<T>> {
        let Some(is) = &file.is else {
            self.refuse(place, missing, "which value?", help);
            return None;
        };
        Some(self.read_as(&is.text, &is.span))
    }
}
