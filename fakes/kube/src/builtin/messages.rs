//! The messages of the built-in kinds: one table gives their schemas and how they are read from protobuf.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::schema::{ListType, Merge, Schema, Type};

/// What a field holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// A text.
    Text,
    /// Bytes; base64 in JSON.
    Bytes,
    /// A whole number.
    Int,
    /// True or false.
    Bool,
    /// A number.
    Double,
    /// An instant to the second.
    Time,
    /// An instant to the microsecond.
    MicroTime,
    /// A duration, as Go writes it.
    Duration,
    /// An amount, `4Gi`.
    Quantity,
    /// A whole number or a text.
    IntOrString,
    /// Any object.
    Raw,
    /// The fields that a manager owns.
    FieldSet,
    /// Another message.
    Message(String),
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its number in protobuf.
    pub number: u64,
    /// Its name in JSON.
    pub name: String,
    /// What it holds.
    pub of: Of,
    /// Is it a list?
    pub list: bool,
    /// Is it a map with texts as keys?
    pub map: bool,
    /// Does it have to be there?
    pub required: bool,
    /// How apply merges it.
    pub merging: ListType,
    /// How a strategic merge patch merges it.
    pub strategic: Option<Merge>,
    /// Does apply replace it whole?
    pub atomic: bool,
    /// Are its members those of its message, in JSON?
    pub inline: bool,
}

/// Every message by its name.
pub(crate) static MESSAGES: LazyLock<BTreeMap<&'static str, Vec<Field>>> = LazyLock::new(|| {
    let mut all = BTreeMap::new();
    let text = include_str!("messages.txt");
    for block in text.split("\n\n") {
        let mut lines = block.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
        if let Some(name) = lines.next() {
            all.insert(name, lines.filter_map(field).collect());
        }
    }
    all
});

fn field(line: &str) -> Option<Field> {
    let mut words = line.split(' ');
    let (number, name, kind) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
    let (list, map) = (kind.starts_with("[]"), kind.starts_with("map:"));
    let of = match kind.trim_start_matches("[]").trim_start_matches("map:") {
        "string" => Of::Text,
        "bytes" => Of::Bytes,
        "int" => Of::Int,
        "bool" => Of::Bool,
        "double" => Of::Double,
        "time" => Of::Time,
        "microtime" => Of::MicroTime,
        "duration" => Of::Duration,
        "quantity" => Of::Quantity,
        "intstr" => Of::IntOrString,
        "raw" => Of::Raw,
        "fields" => Of::FieldSet,
        message => Of::Message(message.to_owned()),
    };
    let mut field = Field {
        number,
        name: name.to_owned(),
        of,
        list,
        map,
        required: false,
        merging: ListType::Atomic,
        strategic: None,
        atomic: false,
        inline: false,
    };
    for word in words {
        match word.split_once('=') {
            Some(("key", keys)) => field.merging = ListType::Map(keys.split(',').map(str::to_owned).collect()),
            Some(("merge", how)) => {
                let (key, strategy) = how.split_once(':').unwrap_or((how, "merge"));
                field.strategic = Some(Merge { key: key.to_owned(), strategy: strategy.to_owned() });
            }
            _ => match word {
                "!" => field.required = true,
                "set" => field.merging = ListType::Set,
                "atomic" => field.atomic = true,
                "inline" => field.inline = true,
                _ => {}
            },
        }
    }
    Some(field)
}

/// Messages that apply replaces whole. Source: `+structType=atomic` in the API's types.
const ATOMIC: [&str; 13] = [
    "core.ConfigMapKeySelector",
    "core.FileKeySelector",
    "core.LocalObjectReference",
    "core.NodeSelector",
    "core.NodeSelectorTerm",
    "core.ObjectFieldSelector",
    "core.ObjectReference",
    "core.ResourceFieldSelector",
    "core.SecretKeySelector",
    "core.SecretReference",
    "core.TypedLocalObjectReference",
    "meta.LabelSelector",
    "meta.OwnerReference",
];

/// Schemas of messages; each is made once and shared.
#[derive(Debug, Default)]
pub(crate) struct Schemas(BTreeMap<String, Arc<Schema>>);

impl Schemas {
    /// The schema of a message; one that is not in the table takes everything.
    pub(crate) fn of(&mut self, message: &str) -> Arc<Schema> {
        if let Some(known) = self.0.get(message) {
            return Arc::clone(known);
        }
        let schema = match MESSAGES.get(message) {
            None => Schema::any(),
            // A message that is only a list in JSON.
            Some(fields) if fields.len() == 1 && fields[0].inline && fields[0].list => {
                (*self.field(&fields[0])).clone()
            }
            Some(fields) => self.object(fields),
        };
        let schema = Arc::new(Schema { atomic: schema.atomic || ATOMIC.contains(&message), ..schema });
        self.0.insert(message.to_owned(), Arc::clone(&schema));
        schema
    }

    fn object(&mut self, fields: &[Field]) -> Schema {
        let mut schema = Schema { kind: Some(Type::Object), ..Schema::default() };
        for field in fields {
            if let (true, Of::Message(message)) = (field.inline, &field.of) {
                let inner = self.of(message);
                schema.properties.extend(inner.properties.iter().map(|(k, v)| (k.clone(), Arc::clone(v))));
                schema.required.extend(inner.required.iter().cloned());
                continue;
            }
            if field.required {
                schema.required.push(field.name.clone());
            }
            let inner = self.field(field);
            schema.properties.insert(field.name.clone(), inner);
        }
        schema
    }

    fn field(&mut self, field: &Field) -> Arc<Schema> {
        let typed = |kind| Schema { kind: Some(kind), ..Schema::default() };
        let one = match &field.of {
            Of::Message(message) => {
                let known = self.of(message);
                if !field.atomic && !field.list && !field.map {
                    return known;
                }
                (*known).clone()
            }
            Of::Text | Of::Bytes | Of::Time | Of::MicroTime | Of::Duration => typed(Type::String),
            Of::Int => typed(Type::Integer),
            Of::Double => typed(Type::Number),
            Of::Bool => typed(Type::Boolean),
            Of::Quantity => Schema::default(),
            Of::IntOrString => Schema { int_or_string: true, ..Schema::default() },
            Of::Raw | Of::FieldSet => Schema::any(),
        };
        let whole = if field.list {
            Schema {
                items: Some(Arc::new(one)),
                list: field.merging.clone(),
                merge: field.strategic.clone(),
                nullable: true,
                ..typed(Type::Array)
            }
        } else if field.map {
            Schema { additional: Some(Arc::new(one)), nullable: true, ..typed(Type::Object) }
        } else {
            one
        };
        Arc::new(Schema { atomic: field.atomic, ..whole })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_of_the_table_is_there() {
        assert!(MESSAGES.len() > 250, "{}", MESSAGES.len());
        for (name, fields) in MESSAGES.iter() {
            assert!(!fields.is_empty() || name.ends_with("Source") || !name.contains(' '), "{name}");
            for field in fields {
                if let Of::Message(inner) = &field.of {
                    assert!(MESSAGES.contains_key(inner.as_str()), "{name}.{}: {inner}", field.name);
                }
            }
        }
    }

    #[test]
    fn schemas_know_lists_and_inlined_members() {
        let mut schemas = Schemas::default();
        let pod = schemas.of("core.Pod");
        let containers = pod.at(&["spec", "containers"]).unwrap();
        assert_eq!(containers.list, ListType::Map(vec!["name".into()]));
        assert_eq!(containers.merge.as_ref().unwrap().key, "name");
        let volume = pod.at(&["spec", "volumes"]).unwrap().items.clone().unwrap();
        assert!(volume.properties.contains_key("configMap"), "volumeSource is inlined");
        let extra = schemas.of("authentication.UserInfo");
        assert_eq!(extra.at(&["extra", "x"]).unwrap().kind, Some(Type::Array));
    }
}
