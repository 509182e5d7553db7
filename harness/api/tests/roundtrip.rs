//! Every wire type reads what its own schema allows, and writes it again unchanged.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use vlab_api::registry::{ENUMS, OBJECTS};
use vlab_api::spec::{FieldKind, FieldLimit, FieldSpec, StructSpec};

/// Any value of a kind. Objects inside objects are three deep at most.
fn value(kind: &'static FieldKind, depth: u32) -> BoxedStrategy<Value> {
    match kind {
        FieldKind::String => "\\PC{0,12}".prop_map(Value::from).boxed(),
        FieldKind::Uuid => any::<u128>().prop_map(|n| json!(uuid::Uuid::from_u128(n))).boxed(),
        // Milliseconds in years that the wire can write.
        FieldKind::DateTime => {
            (0_i64..4_000_000_000_000).prop_map(|ms| json!(vlab_api::Timestamp::from_micros(ms * 1000))).boxed()
        }
        FieldKind::Integer => any::<i64>().prop_map(Value::from).boxed(),
        FieldKind::Number => (-1.0e9..1.0e9_f64).prop_map(Value::from).boxed(),
        FieldKind::Bool => any::<bool>().prop_map(Value::from).boxed(),
        FieldKind::Enum(words) => prop::sample::select(*words).prop_map(Value::from).boxed(),
        FieldKind::Any => prop_oneof![any::<bool>().prop_map(Value::from), "[a-z]{0,5}".prop_map(Value::from)].boxed(),
        FieldKind::Object(spec) => object(spec, depth + 1),
        FieldKind::Array(items) => prop::collection::vec(value(items, depth), 0..3).prop_map(Value::from).boxed(),
        FieldKind::Map(items) => prop::collection::btree_map("[a-z.]{1,6}", value(items, depth), 0..3)
            .prop_map(|m| Value::Object(m.into_iter().collect()))
            .boxed(),
    }
}

fn field(field: &'static FieldSpec, depth: u32) -> BoxedStrategy<Value> {
    let words = field.checks.iter().find_map(|c| match c {
        FieldLimit::OneOf(words) => Some(*words),
        _ => None,
    });
    match words {
        Some(words) => prop::sample::select(words).prop_map(Value::from).boxed(),
        None => value(&field.kind, depth),
    }
}

/// Any object of a schema: what must be there, and some of the rest.
fn object(spec: &'static StructSpec, depth: u32) -> BoxedStrategy<Value> {
    let mut members: BoxedStrategy<Map<String, Value>> = Just(Map::new()).boxed();
    for f in spec.fields {
        if depth > 3 && !f.required {
            continue;
        }
        let one = field(f, depth);
        let often = if f.required {
            1.0
        } else if depth == 0 {
            0.5
        } else {
            0.2
        };
        let one = if f.required { one.prop_map(Some).boxed() } else { prop::option::weighted(often, one).boxed() };
        members = (members, one)
            .prop_map(|(mut map, value)| {
                if let Some(value) = value {
                    map.insert(f.name.to_owned(), value);
                }
                map
            })
            .boxed();
    }
    members.prop_map(Value::Object).boxed()
}

#[test]
fn every_object_survives() {
    let config = ProptestConfig { cases: 24, ..ProptestConfig::default() };
    for entry in OBJECTS {
        let mut runner = proptest::test_runner::TestRunner::new(config.clone());
        let name = entry.spec.name;
        runner
            .run(&object(entry.spec, 0), |value| {
                let back =
                    (entry.reserialise)(value.clone()).map_err(|e| TestCaseError::fail(format!("{name}: {e}")))?;
                prop_assert_eq!(&back, &value, "{}", name);
                // `null` says the same as nothing.
                let mut with_nulls = value.clone();
                for field in entry.spec.fields.iter().filter(|f| !f.required) {
                    with_nulls.as_object_mut().unwrap().entry(field.name).or_insert(Value::Null);
                }
                let back = (entry.reserialise)(with_nulls)
                    .map_err(|e| TestCaseError::fail(format!("{name} with nulls: {e}")))?;
                prop_assert_eq!(back, value, "{} with nulls", name);
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn what_must_be_there_is_missed() {
    for entry in OBJECTS {
        let required: Vec<&FieldSpec> = entry.spec.fields.iter().filter(|f| f.required).collect();
        let result = (entry.reserialise)(json!({}));
        match required.first() {
            None => assert_eq!(result.unwrap(), json!({}), "{}", entry.spec.name),
            Some(_) => {
                let error = result.unwrap_err().to_string();
                assert!(required.iter().any(|f| error.contains(f.name)), "{}: {error}", entry.spec.name);
            }
        }
    }
}

#[test]
fn words_are_unique() {
    for entry in ENUMS {
        let mut words = entry.words.to_vec();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), entry.words.len(), "{}", entry.name);
    }
}
