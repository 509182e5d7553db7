//! Structural schemas: what the fields of a kind are. Those of custom resources are read from their definition, those of built-in kinds
//! from the table of their messages; pruning, defaults, checks and merging are the same for both.

mod at;
mod check;
mod format;
mod prune;

pub(crate) use at::At;
pub(crate) use check::{Checks, Rule, check};
pub(crate) use prune::{fill_defaults, prune};

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};

use crate::builtin::messages::Schemas;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// An object or a map.
    Object,
    /// A list.
    Array,
    /// A text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
}

impl Type {
    /// As schemas write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Type::Object, Type::Array, Type::String, Type::Integer, Type::Number, Type::Boolean]
            .into_iter()
            .find(|t| t.as_str() == text)
    }
}

/// How server-side apply merges a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Replaced whole.
    #[default]
    Atomic,
    /// By value.
    Set,
    /// By the values of these members.
    Map(Vec<String>),
}

/// How a strategic merge patch merges a list: by which member (empty: by value).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merge {
    /// The member that names an item.
    pub key: String,
    /// `merge` or `merge,retainKeys`, as OpenAPI has it.
    pub strategy: String,
}

/// What a value must be.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Its type; `None` takes any.
    pub kind: Option<Type>,
    /// May it be null?
    pub nullable: bool,
    /// Members of an object.
    pub properties: BTreeMap<String, Arc<Schema>>,
    /// Values of a map.
    pub additional: Option<Arc<Schema>>,
    /// Items of a list.
    pub items: Option<Arc<Schema>>,
    /// Unknown members are kept.
    pub preserve: bool,
    /// A whole number or a text.
    pub int_or_string: bool,
    /// A whole object with `apiVersion`, `kind` and `metadata` of its own.
    pub embedded: bool,
    /// What it is when it is not there.
    pub default: Option<Value>,
    /// Members that must be there.
    pub required: Vec<String>,
    /// How apply merges it, if it is a list.
    pub list: ListType,
    /// Does apply replace it whole, if it is an object?
    pub atomic: bool,
    /// How a strategic merge patch merges it, if it is a list.
    pub merge: Option<Merge>,
    /// Everything else that it must fulfil.
    pub checks: Option<Box<Checks>>,
    /// Are there rules in CEL, here or below?
    pub ruled: bool,
}

fn strings(value: Option<&Value>) -> Vec<String> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Schema {
    /// What takes everything and keeps it.
    pub fn any() -> Self {
        Self { preserve: true, ..Self::default() }
    }

    /// Reads `openAPIV3Schema`.
    ///
    /// # Errors
    /// With the path and what is wrong with it.
    pub fn read(value: &Value) -> Result<Self, String> {
        read(value, "", 0)
    }

    /// The schema of that member, if it is known.
    pub fn member(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(self.additional.as_ref()).map(AsRef::as_ref)
    }

    /// The schema of a member as far as lists and owners of fields are meant: `metadata` is not looked through by schemas, and yet its
    /// lists are merged.
    pub(crate) fn part(&self, name: &str) -> Option<&Schema> {
        static METADATA: LazyLock<Arc<Schema>> = LazyLock::new(|| Schemas::default().of("meta.ObjectMeta"));
        if self.embedded && name == "metadata" { Some(&METADATA) } else { self.member(name) }
    }

    /// The schema at that path of members.
    pub fn at(&self, path: &[&str]) -> Option<&Schema> {
        path.iter().try_fold(self, |schema, name| schema.member(name))
    }
}

fn read(value: &Value, path: &str, depth: usize) -> Result<Schema, String> {
    let Some(object) = value.as_object() else { return Err(format!("{path}: must be an object")) };
    if depth > 60 {
        return Err(format!("{path}: too deep"));
    }
    let flag = |name: &str| object.get(name).and_then(Value::as_bool).unwrap_or(false);
    let kind = match object.get("type").and_then(Value::as_str) {
        None | Some("") => None,
        Some(text) => Some(Type::parse(text).ok_or_else(|| format!("{path}.type: Unsupported value: {text:?}"))?),
    };
    let mut properties = BTreeMap::new();
    if let Some(map) = object.get("properties").and_then(Value::as_object) {
        for (name, inner) in map {
            properties.insert(name.clone(), Arc::new(read(inner, &format!("{path}.properties[{name}]"), depth + 1)?));
        }
    }
    let inner = |name: &str| -> Result<Option<Arc<Schema>>, String> {
        match object.get(name) {
            Some(Value::Object(_)) => Ok(Some(Arc::new(read(&object[name], &format!("{path}.{name}"), depth + 1)?))),
            Some(Value::Bool(true)) => Ok(Some(Arc::new(Schema::any()))),
            _ => Ok(None),
        }
    };
    let list = match object.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("map") => ListType::Map(strings(object.get("x-kubernetes-list-map-keys"))),
        Some("set") => ListType::Set,
        _ => ListType::Atomic,
    };
    let (additional, items) = (inner("additionalProperties")?, inner("items")?);
    let checks = Checks::read(object, path, depth)?.map(Box::new);
    let below = properties.values().chain(&additional).chain(&items);
    let ruled = checks.as_ref().is_some_and(|checks| !checks.rules.is_empty()) || below.into_iter().any(|s| s.ruled);
    Ok(Schema {
        kind,
        nullable: flag("nullable"),
        properties,
        additional,
        items,
        preserve: flag("x-kubernetes-preserve-unknown-fields"),
        int_or_string: flag("x-kubernetes-int-or-string"),
        embedded: flag("x-kubernetes-embedded-resource"),
        default: object.get("default").cloned(),
        required: strings(object.get("required")),
        list,
        atomic: object.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
        merge: None,
        checks,
        ruled,
    })
}

/// The path of a member.
pub(crate) fn join(path: &str, member: &str) -> String {
    if path.is_empty() { member.to_owned() } else { format!("{path}.{member}") }
}

/// An empty object to borrow.
pub(crate) fn object(value: &mut Value) -> Option<&mut Map<String, Value>> {
    value.as_object_mut()
}
