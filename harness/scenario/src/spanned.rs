//! Values that know where they stand in the file.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::ops::{Deref, Range};

use ipnet::IpNet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use crate::diagnostic::suggestion;
use crate::faults::{FaultRow, fault_rows, fault_words};
use crate::follow::{SequenceStep, Times};
use crate::resources::condition_types;
use crate::stretch::{STRETCHES, Stretch};
use crate::time::{SPAN_HELP, Span};

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) span: Range<usize>,
}

impl<T> Deref for At<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

pub(crate) fn byte_range(location: &serde_saphyr::Location) -> Range<usize> {
    let span = location.span();
    let start = usize::try_from(span.byte_offset().unwrap_or(0)).unwrap_or(0);
    let len = usize::try_from(span.byte_len().unwrap_or(0)).unwrap_or(0);
    start..start.saturating_add(len)
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        Ok(At { span: byte_range(&spanned.referenced), value: spanned.value })
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Why a scalar is not what it should be.
pub(crate) struct Complaint {
    pub(crate) message: String,
    pub(crate) label: String,
    pub(crate) help: String,
}

/// Something that is written as one scalar.
pub(crate) trait Scalar: Sized {
    /// Reads it.
    fn read(text: &str) -> Result<Self, Complaint>;
    /// Its schema.
    fn schema() -> Schema;
    /// Stretches of a sequence of these that have a name.
    const STRETCHES: &'static [Stretch] = &[];
}

/// A scalar that is read after the whole file was parsed, so that one wrong word does not hide the next.
#[derive(Clone, Debug)]
pub(crate) struct Text<T> {
    pub(crate) text: String,
    pub(crate) span: Range<usize>,
    of: PhantomData<T>,
}

impl<'de, T> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let at = At::<String>::deserialize(deserializer)?;
        Ok(Text { text: at.value, span: at.span, of: PhantomData })
    }
}

impl<T: Scalar> JsonSchema for Text<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        T::schema()
    }
}

/// Schema of a closed list of words.
pub(crate) fn words_schema(names: &[&[&str]]) -> Schema {
    let all: Vec<&str> = names.iter().flat_map(|n| n.iter().copied()).collect();
    json_schema!({ "type": "string", "enum": all })
}

pub(crate) fn unknown_word(what: &str, text: &str, names: &[&str]) -> Complaint {
    let article = if what.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" };
    Complaint {
        message: format!("`{text}` is not {article} {what}"),
        label: format!("not {article} {what}"),
        help: suggestion(text, names.iter().copied()),
    }
}

macro_rules! vocabulary {
    ($($ty:ty => $what:literal),* $(,)?) => { $(
        impl Scalar for $ty {
            fn read(text: &str) -> Result<Self, Complaint> {
                <$ty>::from_word(text).ok_or_else(|| unknown_word($what, text, <$ty>::NAMES))
            }
            fn schema() -> Schema {
                words_schema(&[<$ty>::NAMES])
            }
        }
    )* };
}

macro_rules! api_vocabulary {
    ($($ty:ty => $what:literal),* $(,)?) => { $(
        impl Scalar for $ty {
            fn read(text: &str) -> Result<Self, Complaint> {
                text.parse().map_err(|_| unknown_word($what, text, <$ty>::NAMES))
            }
            fn schema() -> Schema {
                words_schema(&[<$ty>::NAMES])
            }
        }
    )* };
}

use crate::words::{
    ActionKind, Arrivals, BootOrder, ConditionStatus, DiskBus, FaultPhase, Firmware, FrontDoor, HostKind, InstallMode,
    Leftover, LoadConnections, LoadMode, Need, NetworkMistake, PivotOrder, ReplyCache, ResourceKind, ResourceState,
    RoleName, SequenceMode, ServiceKind, Tolerated, Topology, When,
};
use vlab_api::types::{FinalizingStage, HostStage, ImageType, OperatorStatus, PlatformType, Severity};

vocabulary! {
    Topology => "topology", Tolerated => "word of `tolerate`", ServiceKind => "kind of service", HostKind => "kind of host", Firmware => "firmware", BootOrder => "boot order", DiskBus => "bus of a disk", Leftover => "leftover", InstallMode => "way of installing",
    SequenceMode => "sequence mode", PivotOrder => "pivot order", When => "time for a validation", RoleName => "role", ActionKind => "action",
    LoadMode => "mode", Arrivals => "arrival process", LoadConnections => "way of connecting", ReplyCache => "kind of reply cache",
    FrontDoor => "way of asking the service", ResourceKind => "kind of resource", ResourceState => "state of a resource",
    FaultPhase => "fault phase", NetworkMistake => "static network mistake",
}
api_vocabulary! {
    FinalizingStage => "finalizing stage", HostStage => "installation stage", ImageType => "image type",
    OperatorStatus => "operator status", PlatformType => "platform", Severity => "severity",
}

impl Scalar for &'static FaultRow {
    fn read(text: &str) -> Result<Self, Complaint> {
        fault_rows().find(|row| row.word == text).ok_or_else(|| unknown_word("kind of fault", text, &fault_words()))
    }
    fn schema() -> Schema {
        words_schema(&[&fault_words()])
    }
}

/// Type of a condition of some resource.
#[derive(Clone, Debug)]
pub(crate) struct ConditionType;

impl Scalar for ConditionType {
    fn read(text: &str) -> Result<Self, Complaint> {
        let known = condition_types();
        if known.contains(&text) { Ok(ConditionType) } else { Err(unknown_word("condition", text, &known)) }
    }
    fn schema() -> Schema {
        words_schema(&[&condition_types()])
    }
}

impl Scalar for ConditionStatus {
    fn read(text: &str) -> Result<Self, Complaint> {
        // As YAML reads it where it is not quoted.
        let same = |known: &&&str| known.eq_ignore_ascii_case(text);
        let word = Self::NAMES.iter().find(same).copied().unwrap_or(text);
        Self::from_word(word).ok_or_else(|| unknown_word("status of a condition", text, Self::NAMES))
    }
    fn schema() -> Schema {
        words_schema(&[Self::NAMES])
    }
}

impl Scalar for Need {
    fn read(text: &str) -> Result<Self, Complaint> {
        Need::from_word(text).ok_or_else(|| unknown_word("capability", text, Need::NAMES))
    }
    fn schema() -> Schema {
        // The last one is that of images, with any name.
        let words = Self::NAMES.split_last().map(|(_, words)| words.join("|")).unwrap_or_default();
        json_schema!({ "type": "string", "pattern": format!("^({words}|image:.*\\S.*)$") })
    }
}

impl Scalar for Span {
    fn read(text: &str) -> Result<Self, Complaint> {
        text.parse().map_err(|e: crate::time::BadSpan| Complaint {
            message: e.to_string(),
            label: "not a duration".to_owned(),
            help: SPAN_HELP.to_owned(),
        })
    }
    fn schema() -> Schema {
        Span::json_schema(&mut SchemaGenerator::default())
    }
}

impl Scalar for IpNet {
    fn read(text: &str) -> Result<Self, Complaint> {
        let wrong = |help: String| Complaint {
            message: format!("`{text}` is not a network"),
            label: "not a network".to_owned(),
            help,
        };
        let network: IpNet = text
            .parse()
            .map_err(|_| wrong("write an address and a prefix length, for example `192.168.126.0/24`".to_owned()))?;
        if network.addr() != network.network() {
            return Err(wrong(format!("the host part must be zero: `{}`", network.trunc())));
        }
        Ok(network)
    }
    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9a-fA-F.:]+/[0-9]{1,3}$" })
    }
}

impl Scalar for IpAddr {
    fn read(text: &str) -> Result<Self, Complaint> {
        text.parse().map_err(|_| Complaint {
            message: format!("`{text}` is not an IP address"),
            label: "not an address".to_owned(),
            help: "write an address without a prefix length, for example `192.168.126.100`".to_owned(),
        })
    }
    fn schema() -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9a-fA-F.:]+$" })
    }
}

/// A text that is taken as it is.
#[derive(Clone, Debug)]
pub(crate) struct Plain;

impl Scalar for Plain {
    fn read(_: &str) -> Result<Self, Complaint> {
        Ok(Plain)
    }
    fn schema() -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// A version such as `4.18` or `4.18.3`. Editors read `4.18` as a number.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) minor: (u64, u64),
}

impl Scalar for Version {
    fn read(text: &str) -> Result<Self, Complaint> {
        let core = text.split(['-', '+']).next().unwrap_or_default();
        let parts: Option<Vec<u64>> = core.split('.').map(|p| p.parse().ok()).collect();
        match parts.as_deref() {
            Some([major, minor] | [major, minor, _]) => Ok(Version { minor: (*major, *minor) }),
            _ => Err(Complaint {
                message: format!("`{text}` is not an OpenShift version"),
                label: "not a version".to_owned(),
                help: "write the major and minor number, for example `4.18`, and the patch if you like: `4.18.3`"
                    .to_owned(),
            }),
        }
    }
    fn schema() -> Schema {
        json_schema!({ "type": ["string", "number"], "pattern": "^[0-9]+\\.[0-9]+(\\.[0-9]+)?([-+].*)?$" })
    }
}

/// A status of a host, a cluster or a validation; which, the subject decides.
#[derive(Clone, Debug)]
pub(crate) struct AnyStatus;

impl Scalar for AnyStatus {
    const STRETCHES: &'static [Stretch] = STRETCHES;
    fn read(_: &str) -> Result<Self, Complaint> {
        Ok(AnyStatus)
    }
    fn schema() -> Schema {
        use vlab_api::types::{ClusterStatus, HostStatus};
        let mut names: Vec<&str> = HostStatus::NAMES.iter().chain(ClusterStatus::NAMES).copied().collect();
        names.sort_unstable();
        names.dedup();
        words_schema(&[&names])
    }
}

/// Id of a validation of hosts or of clusters.
#[derive(Clone, Debug)]
pub(crate) struct AnyValidation;

impl Scalar for AnyValidation {
    fn read(_: &str) -> Result<Self, Complaint> {
        Ok(AnyValidation)
    }
    fn schema() -> Schema {
        use vlab_api::types::{ClusterValidationId, HostValidationId};
        let mut names: Vec<&str> = HostValidationId::NAMES.iter().chain(ClusterValidationId::NAMES).copied().collect();
        names.sort_unstable();
        names.dedup();
        words_schema(&[&names])
    }
}

pub(crate) const VALIDATION_STATUSES: &[&str] = &["success", "failure", "pending", "error", "disabled"];

impl Scalar for vlab_model::validation::ValidationStatus {
    fn read(text: &str) -> Result<Self, Complaint> {
        use vlab_model::validation::ValidationStatus as V;
        Ok(match text {
            "success" => V::Success,
            "failure" => V::Failure,
            "pending" => V::Pending,
            "error" => V::Error,
            "disabled" => V::Disabled,
            _ => return Err(unknown_word("validation status", text, VALIDATION_STATUSES)),
        })
    }
    fn schema() -> Schema {
        words_schema(&[VALIDATION_STATUSES])
    }
}

/// Name of an event.
#[derive(Clone, Debug)]
pub(crate) struct EventName;

impl Scalar for EventName {
    fn read(text: &str) -> Result<Self, Complaint> {
        if crate::events::EVENT_NAMES.contains(&text) {
            Ok(EventName)
        } else {
            Err(unknown_word("event", text, crate::events::EVENT_NAMES))
        }
    }
    fn schema() -> Schema {
        words_schema(&[crate::events::EVENT_NAMES])
    }
}

/// Something that happens on a host, or inside a cluster, and that the service does not see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Happening {
    /// It happens to a cluster.
    pub(crate) of_cluster: bool,
    /// It is one host's.
    pub(crate) of_host: bool,
}

impl Happening {
    /// The serial number of the disk that it names.
    pub(crate) fn disk(text: &str) -> Option<&str> {
        text.strip_prefix(INSTALLING_TO)
    }
}

const HAPPENINGS_OF_HOSTS: &[&str] = &[
    "powered-on",
    "powered-off",
    "booted-discovery",
    "registered",
    "registered-without-command",
    "frozen",
    "gave-up-polling",
    "agent-exited",
    "agent-upgraded",
    "reclaim-begun",
    "network-lost",
    "network-back",
    "static-network",
    "static-network-failed",
    "no-static-network",
    "cut-off",
    "installer-started",
    "bootstrap-ignition-fetched",
    "ignition-fetched",
    "installer-stopped",
    "installer-failed",
    "rebooting",
    "booted-installed-os",
    "booted-another-disk",
    "disk-not-cleaned",
    "node-ready",
];
/// Followed by the serial number of a disk.
const INSTALLING_TO: &str = "installing-to:";

const HAPPENINGS_OF_CLUSTERS: &[&str] = &[
    "bootkube-started",
    "temporary-control-plane-up",
    "bootkube-done",
    "etcd-bootstrap-done",
    "etcd-member-added",
    "etcd-quorum-lost",
    "etcd-quorum-back",
    "controller-ready",
    "installation-completed",
];

/// What happens to a cluster and names the host on which it does.
const HAPPENINGS_IN_A_CLUSTER: &[&str] = &["bootkube-started", "etcd-member-added", "etcd-quorum-lost"];

/// All of them that have a fixed name.
pub(crate) fn happenings() -> impl Iterator<Item = &'static str> {
    [HAPPENINGS_OF_HOSTS, HAPPENINGS_OF_CLUSTERS].into_iter().flatten().copied()
}

impl Scalar for Happening {
    fn read(text: &str) -> Result<Self, Complaint> {
        let of_cluster = HAPPENINGS_OF_CLUSTERS.contains(&text);
        let of_host = HAPPENINGS_OF_HOSTS.contains(&text)
            || HAPPENINGS_IN_A_CLUSTER.contains(&text)
            || Happening::disk(text).is_some();
        if of_cluster || of_host {
            return Ok(Happening { of_cluster, of_host });
        }
        Err(unknown_word(
            "thing that happens to hosts or clusters",
            text,
            &[HAPPENINGS_OF_HOSTS, &[INSTALLING_TO], HAPPENINGS_OF_CLUSTERS].concat(),
        ))
    }
    fn schema() -> Schema {
        let words = words_schema(&[HAPPENINGS_OF_HOSTS, HAPPENINGS_OF_CLUSTERS]);
        json_schema!({ "anyOf": [words, { "type": "string", "pattern": format!("^{INSTALLING_TO}[A-Za-z0-9-]{{1,20}}$") }] })
    }
}

/// Type of a step that the service gives to hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepType;

impl Scalar for StepType {
    fn read(text: &str) -> Result<Self, Complaint> {
        use vlab_api::types::StepType as T;
        if T::NAMES.contains(&text) { Ok(StepType) } else { Err(unknown_word("step type", text, T::NAMES)) }
    }
    fn schema() -> Schema {
        words_schema(&[vlab_api::types::StepType::NAMES])
    }
}

/// Name of a monitored operator.
#[derive(Clone, Debug)]
pub(crate) struct OperatorName;

/// The built-in ones first, then those that OLM brings.
fn operators() -> Vec<&'static str> {
    ["console", "cvo"].into_iter().chain(vlab_model::validation::olm_operators()).collect()
}

impl Scalar for OperatorName {
    fn read(text: &str) -> Result<Self, Complaint> {
        let names = operators();
        if names.contains(&text) { Ok(OperatorName) } else { Err(unknown_word("monitored operator", text, &names)) }
    }
    fn schema() -> Schema {
        words_schema(&[&operators()])
    }
}

/// A role that the user can give.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserRole(pub(crate) vlab_api::types::HostRole);

const USER_ROLES: &[&str] = &["auto", "master", "worker", "arbiter"];

impl Scalar for UserRole {
    fn read(text: &str) -> Result<Self, Complaint> {
        use vlab_api::types::HostRole;
        Ok(UserRole(match text {
            "auto" => HostRole::AutoAssign,
            "master" => HostRole::Master,
            "worker" => HostRole::Worker,
            "arbiter" => HostRole::Arbiter,
            _ => return Err(unknown_word("role that a user can assign", text, USER_ROLES)),
        }))
    }
    fn schema() -> Schema {
        words_schema(&[USER_ROLES])
    }
}

/// A step of a sequence: a word, several with `|` between them, or the name of a stretch; `?` behind it when it may be missing, `*`
/// when it may come again and again, too.
#[derive(Clone, Debug)]
pub(crate) struct WrittenStep<T>(PhantomData<T>);

/// What stands behind a step.
const MARKS: [(char, Times); 2] = [('?', Times::AtMostOnce), ('*', Times::Any)];

fn without_mark(text: &str) -> (&str, Times) {
    let marked = MARKS.iter().find_map(|(mark, times)| Some((text.strip_suffix(*mark)?, *times)));
    marked.unwrap_or((text, Times::Once))
}

/// The stretch that is meant.
pub(crate) fn stretch_of<T: Scalar>(text: &str) -> Option<&'static Stretch> {
    T::STRETCHES.iter().find(|stretch| stretch.word == text)
}

/// The steps that are meant, each word with its place.
pub(crate) fn split_step<T: Scalar>(text: &Text<WrittenStep<T>>) -> Vec<SequenceStep<Text<T>>> {
    let word = |word: &str, span: &Range<usize>| Text { text: word.to_owned(), span: span.clone(), of: PhantomData };
    if let Some(stretch) = stretch_of::<T>(&text.text) {
        let parts = stretch.steps().into_iter();
        let step = |SequenceStep { any_of, times }: SequenceStep<&str>| SequenceStep {
            any_of: any_of.into_iter().map(|w| word(w, &text.span)).collect(),
            times,
        };
        return parts.map(step).collect();
    }
    let (words, times) = without_mark(&text.text);
    let mut start = text.span.start;
    let place = |w: &str| {
        let span = start..(start + w.len()).min(text.span.end);
        start += w.len() + 1;
        word(w, &span)
    };
    vec![SequenceStep { any_of: words.split('|').map(place).collect(), times }]
}

impl<T: Scalar> Scalar for WrittenStep<T> {
    fn read(text: &str) -> Result<Self, Complaint> {
        if stretch_of::<T>(text).is_none() {
            for word in without_mark(text).0.split('|') {
                T::read(word)?;
            }
        }
        Ok(WrittenStep(PhantomData))
    }
    /// Editors offer each word, with and without `?`; what has `|` and `*` is a pattern.
    fn schema() -> Schema {
        let mut schema = T::schema();
        if let Some(serde_json::Value::Array(words)) = schema.get_mut("enum") {
            let plain: Vec<String> = words.iter().filter_map(|w| w.as_str().map(str::to_owned)).collect();
            words.extend(plain.iter().map(|w| format!("{w}?").into()));
            words.extend(T::STRETCHES.iter().map(|s| s.word.into()));
            let any = format!("({})", plain.join("|"));
            let pattern = format!(r"^{any}(\|{any})*[?*]?$");
            return json_schema!({ "anyOf": [schema, { "type": "string", "pattern": pattern }] });
        }
        schema
    }
}
