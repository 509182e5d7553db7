//! Objects in protobuf, as Go clients send them for built-in kinds. Read by the table of messages; answers are always JSON, which every
//! such client takes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use vlab_api::Timestamp;

use crate::builtin::messages::{Field, MESSAGES, Of};
use crate::meta;

/// What objects in protobuf begin with.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// What cannot be read.
fn broken(what: &str) -> String {
    format!("the protobuf object is broken: {what}")
}

/// One field as it stands in the bytes.
enum Raw<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

impl<'b> Raw<'b> {
    fn bytes(&self) -> &'b [u8] {
        match self {
            Raw::Bytes(bytes) => bytes,
            Raw::Number(_) => &[],
        }
    }

    fn number(&self) -> u64 {
        match self {
            Raw::Number(n) => *n,
            Raw::Bytes(_) => 0,
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }
}

fn varint(bytes: &[u8], at: &mut usize) -> Result<u64, String> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at).ok_or_else(|| broken("it ends within a number"))?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(broken("a number is too long"))
}

/// The fields of a message in their order.
fn fields(bytes: &[u8]) -> Result<Vec<(u64, Raw<'_>)>, String> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let tag = varint(bytes, &mut at)?;
        let mut take = |length: usize| {
            let piece = bytes.get(at..at.saturating_add(length)).ok_or_else(|| broken("it ends within a field"));
            at += length;
            piece
        };
        let raw = match tag & 7 {
            0 => Raw::Number(varint(bytes, &mut at)?),
            1 => Raw::Number(u64::from_le_bytes(take(8)?.try_into().unwrap_or_default())),
            5 => Raw::Number(u64::from(u32::from_le_bytes(take(4)?.try_into().unwrap_or_default()))),
            2 => {
                let length = usize::try_from(varint(bytes, &mut at)?).map_err(|_| broken("a field is too long"))?;
                let piece = bytes.get(at..at.saturating_add(length)).ok_or_else(|| broken("it ends within a field"))?;
                at += length;
                Raw::Bytes(piece)
            }
            other => return Err(broken(&format!("a field has the type {other}"))),
        };
        all.push((tag >> 3, raw));
    }
    Ok(all)
}

/// The message of a kind that is no resource, or belongs to a subresource.
fn message(api_version: &str, kind: &str) -> Option<&'static str> {
    match kind {
        "DeleteOptions" => return Some("meta.DeleteOptions"),
        "Eviction" => return Some("policy.Eviction"),
        "TokenRequest" => return Some("authentication.TokenRequest"),
        _ => {}
    }
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let resource = crate::builtin::kinds::message(group, kind)?;
    (!resource.is_empty()).then_some(resource)
}

/// Reads an object with its envelope.
///
/// # Errors
/// What is broken, or a kind that is not in the table (the second value is then true).
pub(crate) fn decode(bytes: &[u8]) -> Result<Value, (String, bool)> {
    let plain = |e: String| (e, false);
    let body = bytes.strip_prefix(MAGIC).ok_or_else(|| plain(broken("it does not begin with k8s\\0")))?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for (number, field) in fields(body).map_err(plain)? {
        match number {
            1 => {
                for (number, field) in fields(field.bytes()).map_err(plain)? {
                    match number {
                        1 => api_version = field.text(),
                        2 => kind = field.text(),
                        _ => {}
                    }
                }
            }
            2 => raw = field.bytes(),
            _ => {}
        }
    }
    let Some(name) = message(&api_version, &kind) else {
        return Err((format!("{api_version}, Kind={kind} cannot be read from protobuf here"), true));
    };
    let mut object = Map::new();
    object.insert("apiVersion".into(), json!(api_version));
    object.insert("kind".into(), json!(kind));
    into(&mut object, name, raw).map_err(plain)?;
    Ok(Value::Object(object))
}

fn into(map: &mut Map<String, Value>, name: &str, bytes: &[u8]) -> Result<(), String> {
    let Some(known) = MESSAGES.get(name) else { return Err(broken(&format!("{name} is not known"))) };
    for (number, raw) in fields(bytes)? {
        let Some(field) = known.iter().find(|f| f.number == number) else { continue };
        if let (true, Of::Message(inner)) = (field.inline, &field.of) {
            into(map, inner, raw.bytes())?;
            continue;
        }
        if field.map {
            entry(map, field, raw.bytes())?;
            continue;
        }
        let value = value(&field.of, &raw)?;
        if field.list {
            match map.entry(field.name.clone()).or_insert_with(|| json!([])) {
                Value::Array(items) => items.push(value),
                other => *other = json!([value]),
            }
        } else if !unset(field, &value) {
            map.insert(field.name.clone(), value);
        }
    }
    Ok(())
}

/// Go writes texts, instants and the generation although nobody set them.
fn unset(field: &Field, value: &Value) -> bool {
    value.is_null() || value == "" || field.name == "generation" && value == 0
}

fn entry(map: &mut Map<String, Value>, field: &Field, bytes: &[u8]) -> Result<(), String> {
    let (mut key, mut found) = (String::new(), None);
    for (number, raw) in fields(bytes)? {
        match number {
            1 => key = raw.text(),
            2 => found = Some(value(&field.of, &raw)?),
            _ => {}
        }
    }
    let empty = || if matches!(field.of, Of::Text | Of::Bytes) { json!("") } else { json!({}) };
    if let Value::Object(inner) = map.entry(field.name.clone()).or_insert_with(|| json!({})) {
        inner.insert(key, found.unwrap_or_else(empty));
    }
    Ok(())
}

#[expect(clippy::cast_possible_wrap, reason = "protobuf writes negative numbers as large ones")]
fn value(of: &Of, raw: &Raw<'_>) -> Result<Value, String> {
    let inner = |wanted: u64| -> Result<Option<Raw<'_>>, String> {
        Ok(fields(raw.bytes())?.into_iter().filter(|(n, _)| *n == wanted).map(|(_, r)| r).next_back())
    };
    let whole = |wanted: u64| -> Result<i64, String> { Ok(inner(wanted)?.map_or(0, |r| r.number() as i64)) };
    Ok(match of {
        Of::Text => json!(raw.text()),
        Of::Bytes => json!(STANDARD.encode(raw.bytes())),
        Of::Int => json!(raw.number() as i64),
        Of::Bool => json!(raw.number() != 0),
        Of::Double => json!(f64::from_bits(raw.number())),
        Of::Time | Of::MicroTime => {
            if raw.bytes().is_empty() {
                return Ok(Value::Null);
            }
            let micros = whole(1)?.saturating_mul(1_000_000).saturating_add(whole(2)? / 1000);
            let then = Timestamp::from_micros(micros);
            json!(if *of == Of::Time { meta::stamp(then) } else { then.to_micro_string() })
        }
        Of::Duration => json!(format!("{}ns", whole(1)?)),
        Of::Quantity => json!(inner(1)?.map(|r| r.text()).unwrap_or_default()),
        Of::IntOrString => match whole(1)? {
            0 => json!(whole(2)?),
            _ => json!(inner(3)?.map(|r| r.text()).unwrap_or_default()),
        },
        Of::Raw | Of::FieldSet => {
            let raw = inner(1)?.map(|r| r.bytes().to_vec()).unwrap_or_default();
            if raw.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(&raw).map_err(|e| broken(&e.to_string()))?
            }
        }
        Of::Message(name) => {
            let known = MESSAGES.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
            let mut map = Map::new();
            into(&mut map, name, raw.bytes())?;
            match known {
                // A message that is only a list in JSON.
                [only] if only.inline && only.list => map.shift_remove(&only.name).unwrap_or_else(|| json!([])),
                _ => Value::Object(map),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(mut n: u64, out: &mut Vec<u8>) {
        while n >= 0x80 {
            out.push(u8::try_from(n & 0x7f).unwrap() | 0x80);
            n >>= 7;
        }
        out.push(u8::try_from(n).unwrap());
    }

    fn bytes(field: u64, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        number(field << 3 | 2, &mut out);
        number(content.len() as u64, &mut out);
        out.extend_from_slice(content);
        out
    }

    fn envelope(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
        let type_meta = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), bytes(1, &type_meta), bytes(2, message), bytes(3, b""), bytes(4, b"")].concat()
    }

    #[test]
    fn a_secret() {
        // name, namespace "", creationTimestamp {}, generation 0, a label.
        let label = bytes(11, &[bytes(1, b"a"), bytes(2, b"b")].concat());
        let meta = [bytes(1, b"x"), bytes(3, b""), bytes(8, b""), vec![7 << 3, 0], label].concat();
        let data = bytes(2, &[bytes(1, b"k"), bytes(2, b"v")].concat());
        let secret = [bytes(1, &meta), data, bytes(3, b"Opaque")].concat();
        let object = decode(&envelope("v1", "Secret", &secret)).unwrap();
        assert_eq!(
            object,
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "x", "labels": { "a": "b" } }, "data": { "k": "dg==" }, "type": "Opaque" })
        );
    }

    #[test]
    fn what_cannot_be_read() {
        assert!(decode(b"{}").is_err());
        assert!(decode(&envelope("v1", "Secret", &[10, 200])).unwrap_err().0.contains("ends within"));
        assert!(decode(&envelope("example.com/v1", "Thing", b"")).unwrap_err().1);
    }
}
