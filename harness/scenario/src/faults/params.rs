//! Parameters of faults: what can be written under `with`, and the typed values that come of it.

use std::marker::PhantomData;
use std::net::IpAddr;
use std::ops::Deref;

use serde::{Serialize, Serializer};
use vlab_api::http::Method;
use vlab_api::types::{FinalizingStage, HostStage};

use crate::diagnostic::{quoted, suggestion};
use crate::spanned::{Complaint, Scalar};
use crate::time::Span;
use crate::words::{
    DnsName, HookFailure, HookedKind, InventoryDefect, KubePart, KubeVerb, LeaseLoss, LinkDirection, LockedTable,
    LostAt, RequestSide, ResourceKind, Skew, VipName, WhichReplica,
};

/// What can be written for a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamForm {
    /// A duration.
    Span,
    /// A whole number within these limits.
    Number(u64, u64),
    /// Any text.
    Text,
    /// One of these words.
    Words(&'static [&'static str]),
    /// An IP address.
    Address,
    /// Name of a host of the scenario.
    Host,
    /// An installation stage that the host itself reports.
    Stage,
    /// A stage of finalizing.
    FinalizingStage,
    /// Id of an operation of the API.
    Operation,
}

/// What a parameter is when the scenario leaves it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamDefault {
    /// It cannot be left out.
    Needed,
    /// This, as it would be written.
    Is(&'static str),
    /// There is none then.
    Nothing,
}

/// A parameter of a kind of fault.
#[derive(Debug)]
pub struct ParamRow {
    /// Its name under `with`.
    pub name: &'static str,
    /// What can be written.
    pub form: ParamForm,
    /// What it is when it is left out.
    pub default: ParamDefault,
    /// One line for people.
    pub purpose: &'static str,
}

/// Stages that a host reports itself; the others are reported by somebody else once it is a node.
pub const OWN_STAGES: &[HostStage] = &[
    HostStage::StartingInstallation,
    HostStage::Installing,
    HostStage::WritingImageToDisk,
    HostStage::CopyingRegistryDataToDisk,
    HostStage::WaitingForControlPlane,
    HostStage::WaitingForBootkube,
    HostStage::WaitingForController,
    HostStage::Rebooting,
];

/// Ids of the operations that a fault of the gateway can be about, in order.
pub fn operation_ids() -> Vec<&'static str> {
    let mut ids: Vec<&str> = vlab_api::ops::operations().map(|o| o.id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// A type that a parameter can have.
pub(crate) trait Value: Sized {
    /// What can be written.
    const FORM: ParamForm;
    /// The largest number that fits in.
    const LARGEST: u64 = 0;
    /// The value of what was left out, for types that have one.
    const NOTHING: Option<Self> = None;
    /// Reads it. `row` says what is allowed, `hosts` which hosts there are.
    fn read(text: &str, row: &ParamRow, hosts: &dyn Fn() -> Vec<String>) -> Result<Self, Complaint>;
}

/// A parameter whose values have this type.
pub(crate) struct Param<T> {
    form: ParamForm,
    default: ParamDefault,
    of: PhantomData<T>,
}

impl<T: Value> Param<T> {
    /// One that must be given.
    pub(crate) const fn needed() -> Self {
        Self { form: T::FORM, default: ParamDefault::Needed, of: PhantomData }
    }

    /// A number within limits, which its type must be able to hold.
    pub(crate) const fn number(least: u64, most: u64) -> Self {
        assert!(matches!(T::FORM, ParamForm::Number(..)) && least <= most && most <= T::LARGEST);
        Self { form: ParamForm::Number(least, most), default: ParamDefault::Needed, of: PhantomData }
    }

    /// This is its value when it is left out.
    pub(crate) const fn or(mut self, default: &'static str) -> Self {
        self.default = ParamDefault::Is(default);
        self
    }

    /// Its row of the table.
    pub(crate) const fn row(&self, name: &'static str, purpose: &'static str) -> ParamRow {
        ParamRow { name, form: self.form, default: self.default, purpose: purpose.trim_ascii() }
    }
}

impl<T: Value> Param<Option<T>> {
    /// It may be left out.
    pub(crate) const fn optional(mut self) -> Self {
        self.default = ParamDefault::Nothing;
        self
    }
}

fn complaint(message: impl Into<String>, label: impl Into<String>, help: impl Into<String>) -> Complaint {
    Complaint { message: message.into(), label: label.into(), help: help.into() }
}

/// There is no such thing of that name.
fn unknown(what: &str, text: &str, known: &[&str]) -> Complaint {
    let help = suggestion(text, known.iter().copied());
    complaint(format!("there is no {what} `{text}`"), format!("no such {what}"), help)
}

impl<T: Value> Value for Option<T> {
    const FORM: ParamForm = T::FORM;
    const LARGEST: u64 = T::LARGEST;
    const NOTHING: Option<Self> = Some(None);
    fn read(text: &str, row: &ParamRow, hosts: &dyn Fn() -> Vec<String>) -> Result<Self, Complaint> {
        T::read(text, row, hosts).map(Some)
    }
}

macro_rules! numbers {
    ($($ty:ty),*) => { $(
        impl Value for $ty {
            const FORM: ParamForm = ParamForm::Number(0, <$ty>::MAX as u64);
            const LARGEST: u64 = <$ty>::MAX as u64;
            fn read(text: &str, row: &ParamRow, _: &dyn Fn() -> Vec<String>) -> Result<Self, Complaint> {
                let ParamForm::Number(least, most) = row.form else { unreachable!("a number has the form of numbers") };
                let number = text.parse::<u64>().ok().filter(|n| (least..=most).contains(n));
                number.and_then(|n| <$ty>::try_from(n).ok()).ok_or_else(|| {
                    complaint(
                        format!("`{}` is {text}; it must be between {least} and {most}", row.name),
                        "not a possible number",
                        format!("write a whole number from {least} to {most}: {}", row.purpose),
                    )
                })
            }
        }
    )* };
}
numbers!(u16, u32, u64);

impl Value for Span {
    const FORM: ParamForm = ParamForm::Span;
    fn read(text: &str, _: &ParamRow, _: &dyn Fn() -> Vec<String>) -> Result<Self, Complaint> {
        <Span as Scalar>::read(text)
    }
}

impl Value for String {
    const FORM: ParamForm = ParamForm::Text;
    fn read(text: &str, row: &ParamRow, _: &dyn Fn() -> Vec<String>) -> Result<Self, Complaint> {
        if text.trim().is_empty() {
            return Err(complaint(format!("`{}` is empty", row.name), "nothing here", row.purpose));
        }
        Ok(text.to_owned())
    }
}

impl Value for IpAddr {
    const FORM: ParamForm = ParamForm::Address;
    fn read(text: &str, _: &ParamRow, _: &dyn Fn() -> Vec<String>) -> Result<Self, Complaint> {
        <IpAddr as Scalar>::read(text)
    }
}

impl Value for HostStage {
    const FORM: ParamForm = ParamForm::Stage;
    fn read(text: &str, _: &ParamRow, _: &dyn Fn() -> Vec<String>) -> Result<Self, Complaint> {
        let stage = <HostStage as Scalar>::read(text)?;
        if OWN_STAGES.contains(&stage) {
            return Ok(stage);
        }
        let own: Vec<&str> = OWN_STAGES.iter().map(|s| s.as_str()).collect();
        Err(complaint(
            format!("the host itself does not report `{stage}`"),
            "not this stage",
            format!("use {}", quoted(&own, "or")),
        ))
    }
}

impl Value for FinalizingStage {
    const FORM: ParamForm = ParamForm::FinalizingStage;
    fn read(text: &str, _: &ParamRow, _: &dyn Fn() -> Vec<String>) -> Result<Self, Complaint> {
        <FinalizingStage as Scalar>::read(text)
    }
}

/// Name of a host of the scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostName(pub String);

impl Deref for HostName {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Value for HostName {
    const FORM: ParamForm = ParamForm::Host;
    fn read(text: &str, _: &ParamRow, hosts: &dyn Fn() -> Vec<String>) -> Result<Self, Complaint> {
        let hosts = hosts();
        if hosts.iter().any(|name| name == text) {
            return Ok(HostName(text.to_owned()));
        }
        Err(unknown("host", text, &hosts.iter().map(String::as_str).collect::<Vec<_>>()))
    }
}

/// Id of an operation of the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperationId(pub String);

impl Value for OperationId {
    const FORM: ParamForm = ParamForm::Operation;
    fn read(text: &str, _: &ParamRow, _: &dyn Fn() -> Vec<String>) -> Result<Self, Complaint> {
        let known = operation_ids();
        if known.contains(&text) { Ok(OperationId(text.to_owned())) } else { Err(unknown("operation", text, &known)) }
    }
}

/// Method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestMethod(pub Method);

impl Serialize for RequestMethod {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

impl Value for RequestMethod {
    const FORM: ParamForm = ParamForm::Words(&["GET", "POST", "PUT", "PATCH", "DELETE"]);
    fn read(text: &str, row: &ParamRow, _: &dyn Fn() -> Vec<String>) -> Result<Self, Complaint> {
        let ParamForm::Words(words) = Self::FORM else { unreachable!("methods are words") };
        if words.contains(&text) {
            return Ok(RequestMethod(Method::from_name(text)));
        }
        Err(unknown(&format!("value of `{}`", row.name), text, words))
    }
}

macro_rules! words {
    ($($ty:ty),* $(,)?) => { $(
        impl Value for $ty {
            const FORM: ParamForm = ParamForm::Words(<$ty>::NAMES);
            fn read(text: &str, row: &ParamRow, _: &dyn Fn() -> Vec<String>) -> Result<Self, Complaint> {
                <$ty>::from_word(text).ok_or_else(|| unknown(&format!("value of `{}`", row.name), text, <$ty>::NAMES))
            }
        }
    )* };
}
words!(
    DnsName,
    HookFailure,
    HookedKind,
    InventoryDefect,
    KubePart,
    KubeVerb,
    LeaseLoss,
    LinkDirection,
    LockedTable,
    LostAt,
    RequestSide,
    ResourceKind,
    Skew,
    VipName,
    WhichReplica,
);
