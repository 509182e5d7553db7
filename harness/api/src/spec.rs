//! How a wire type knows its own schema.
//!
//! `wire!` defines a struct together with a [`StructSpec`]: the names, kinds and limits of its members. The service checks
//! request bodies with it (unknown member, wrong type, missing member, value out of range), and a test compares it with
//! `swagger.yaml`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use crate::time::Timestamp;

/// A long text that is shared: an object is copied with each change of it.
pub type Text = Arc<str>;

/// Schema of an object.
#[derive(Debug)]
pub struct StructSpec {
    /// Name of the definition in the API's schema, for example `host-update-params`.
    pub name: &'static str,
    /// Name of the Rust type, which is also the field's usual CamelCase name.
    pub type_name: &'static str,
    /// Members in the order of the schema.
    pub fields: &'static [FieldSpec],
}

impl StructSpec {
    /// The member with that wire name.
    pub fn field(&self, name: &str) -> Option<&'static FieldSpec> {
        self.fields.iter().find(|f| f.name == name)
    }
}

/// Schema of a member.
#[derive(Debug)]
pub struct FieldSpec {
    /// Name on the wire.
    pub name: &'static str,
    /// What it holds.
    pub kind: FieldKind,
    /// Must be present.
    pub required: bool,
    /// Further limits.
    pub checks: &'static [FieldLimit],
}

/// What a member holds.
#[derive(Clone, Copy, Debug)]
pub enum FieldKind {
    /// Text without a form of its own.
    String,
    /// Text in UUID form.
    Uuid,
    /// Text in RFC 3339 form.
    DateTime,
    /// Whole number.
    Integer,
    /// Number.
    Number,
    /// true or false.
    Bool,
    /// One of a list of words.
    Enum(&'static [&'static str]),
    /// An object.
    Object(&'static StructSpec),
    /// A list.
    Array(&'static FieldKind),
    /// An object with free keys.
    Map(&'static FieldKind),
    /// Any JSON value.
    Any,
}

/// A limit on a member's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldLimit {
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// At most so many characters.
    MaxLength(usize),
    /// At least so many characters.
    MinLength(usize),
    /// At least this number.
    Minimum(i64),
    /// At most this number.
    Maximum(i64),
}

/// A Rust type that can be a member of a wire object.
pub trait Wire {
    /// What it holds.
    const KIND: FieldKind;
    /// Must a member of this type be present?
    const REQUIRED: bool = true;
    /// Leave it out when serialising?
    fn is_absent(&self) -> bool {
        false
    }
}

/// A wire object.
pub trait WireObject: Wire {
    /// Its schema.
    const SPEC: StructSpec;
}

macro_rules! wire_scalar {
    ($($ty:ty => $kind:ident),* $(,)?) => { $(impl Wire for $ty { const KIND: FieldKind = FieldKind::$kind; })* };
}
wire_scalar!(String => String, Text => String, Uuid => Uuid, Timestamp => DateTime, i64 => Integer, f64 => Number, bool => Bool, Value => Any);

impl<T: Wire> Wire for Option<T> {
    const KIND: FieldKind = T::KIND;
    const REQUIRED: bool = false;
    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<T: Wire> Wire for Vec<T> {
    const KIND: FieldKind = FieldKind::Array(&T::KIND);
}

impl<T: Wire> Wire for BTreeMap<String, T> {
    const KIND: FieldKind = FieldKind::Map(&T::KIND);
}

macro_rules! wire_check {
    (one_of($($word:literal),*)) => { $crate::spec::FieldLimit::OneOf(&[$($word),*]) };
    (step_types) => { $crate::spec::FieldLimit::OneOf($crate::types::StepType::NAMES) };
    (max_length($n:literal)) => { $crate::spec::FieldLimit::MaxLength($n) };
    (min_length($n:literal)) => { $crate::spec::FieldLimit::MinLength($n) };
    (minimum($n:literal)) => { $crate::spec::FieldLimit::Minimum($n) };
    (maximum($n:literal)) => { $crate::spec::FieldLimit::Maximum($n) };
}

macro_rules! wire {
    (
        $(#[$meta:meta])*
        $name:ident = $definition:literal {
            $($field:ident $(as $rename:literal)? : $ty:ty $(=> $($check:ident $(($($arg:literal),*))? )+)?),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[expect(missing_docs, reason = "members are the API's own; its schema describes them")]
        pub struct $name {
            $(
                #[serde($(rename = $rename,)? skip_serializing_if = "crate::spec::Wire::is_absent")]
                pub $field: $ty,
            )*
        }

        impl $name {
            /// Do the two differ in a member that is not one of these (by their names on the wire)?
            pub fn differs_beside(&self, other: &Self, these: &[&str]) -> bool {
                false $(|| (self.$field != other.$field && !these.contains(&$crate::spec::wire_name!($field $(as $rename)?))))*
            }
        }

        impl $crate::spec::Wire for $name {
            const KIND: $crate::spec::FieldKind = $crate::spec::FieldKind::Object(&<$name as $crate::spec::WireObject>::SPEC);
        }

        impl $crate::spec::WireObject for $name {
            const SPEC: $crate::spec::StructSpec = $crate::spec::StructSpec {
                name: $definition,
                type_name: stringify!($name),
                fields: &[$(
                    $crate::spec::FieldSpec {
                        name: $crate::spec::wire_name!($field $(as $rename)?),
                        kind: <$ty as $crate::spec::Wire>::KIND,
                        required: <$ty as $crate::spec::Wire>::REQUIRED,
                        checks: &[$($($crate::spec::wire_check!($check $(($($arg),*))?)),+)?],
                    },
                )*],
            };
        }
    };
}

macro_rules! wire_name {
    ($field:ident as $rename:literal) => {
        $rename
    };
    ($field:ident) => {
        stringify!($field)
    };
}

macro_rules! wire_enum {
    (
        $(#[$meta:meta])*
        $name:ident = $definition:literal $(or $other:ident)? { $($variant:ident = $word:literal),* $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        #[expect(missing_docs, reason = "each variant is the word beside it, which is the API's own")]
        pub enum $name {
            $(#[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// All of them, in the order of the schema.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
            /// Their words on the wire, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($word),*];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),* }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Words;
                impl serde::de::Visitor<'_> for Words {
                    type Value = $name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        write!(f, "one of {}", $name::NAMES.join(", "))
                    }
                    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<$name, E> {
                        match word {
                            $($word => Ok($name::$variant),)*
                            _ => $crate::spec::wire_other!(word, $name $($other)?),
                        }
                    }
                }
                from.deserialize_str(Words)
            }
        }

        /// The first of the schema's list.
        impl Default for $name {
            fn default() -> Self {
                Self::ALL[0]
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::spec::UnknownWord;
            fn from_str(word: &str) -> Result<Self, Self::Err> {
                match word {
                    $($word => Ok($name::$variant),)*
                    _ => Err($crate::spec::UnknownWord { word: word.to_owned(), what: $definition, known: Self::NAMES }),
                }
            }
        }

        impl $crate::spec::Wire for $name {
            const KIND: $crate::spec::FieldKind = $crate::spec::FieldKind::Enum(Self::NAMES);
        }
    };
}

/// What becomes of a word that is not in the list.
macro_rules! wire_other {
    ($word:ident, $name:ident) => {
        Err(serde::de::Error::unknown_variant($word, $name::NAMES))
    };
    ($word:ident, $name:ident $other:ident) => {
        Ok($name::$other)
    };
}

pub(crate) use {wire, wire_check, wire_enum, wire_name, wire_other};

/// A word that is not in the list that the API allows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is no {what}; known are {}", known.join(", "))]
pub struct UnknownWord {
    /// What was found.
    pub word: String,
    /// Name of the list in the API's schema.
    pub what: &'static str,
    /// What the list holds.
    pub known: &'static [&'static str],
}
