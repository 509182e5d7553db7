//! Bodies of requests: JSON, YAML, protobuf.

use std::collections::BTreeSet;

use serde::Deserializer;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use vlab_api::http::Request;

use crate::core::Ask;
use crate::failure::{Cause, Failure, Subject};
use crate::protobuf;

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The media type without its parameters.
pub(crate) fn media_type(request: &Request) -> &str {
    let header = request.get_header("content-type").unwrap_or("application/json");
    header.split(';').next().unwrap_or_default().trim()
}

/// The body of a request as a value; null when there is none.
///
/// # Errors
/// 400 or 415.
pub(crate) fn read(request: &Request) -> Result<Value, Failure> {
    if let Some(object) = request.body.as_object::<Value>() {
        return Ok(object.clone());
    }
    let body = request.body.as_slice();
    if body.is_empty() {
        return Ok(Value::Null);
    }
    if body.starts_with(protobuf::MAGIC) {
        return protobuf::decode(body).map_err(|(text, unknown)| {
            if unknown { Failure::new(415, "UnsupportedMediaType", text) } else { Failure::bad_request(text) }
        });
    }
    match media_type(request) {
        "application/json" | "" | "application/x-www-form-urlencoded" | "*/*" => {
            serde_json::from_slice(body).map_err(|e| {
                Failure::bad_request(format!("the object provided is unrecognized (must be of type JSON): {e}"))
            })
        }
        "application/yaml" | "application/x-yaml" | "text/yaml" => yaml(body),
        "application/vnd.kubernetes.protobuf" => Err(Failure::bad_request("the body is not in protobuf")),
        _ => Err(Failure::unsupported_media(ACCEPTED)),
    }
}

/// A patch of any kind but those that are applied.
///
/// # Errors
/// 400.
pub(crate) fn read_patch(request: &Request) -> Result<Value, Failure> {
    serde_json::from_slice(&request.body)
        .or_else(|_| yaml(&request.body))
        .map_err(|_| Failure::bad_request("the body of the patch is no JSON"))
}

/// What a strict reader says of a body before he knows the object: members that are there twice, and those that a JSON patch has not.
pub(crate) fn strict(request: &Request) -> Vec<String> {
    let of_patch = media_type(request) == "application/json-patch+json";
    let before = if of_patch { "json patch " } else { "" };
    let twice = twice(request).into_iter().map(|field| format!("{before}duplicate field {field:?}"));
    let steps = if of_patch { read_patch(request).unwrap_or_default() } else { Value::Null };
    let steps = steps.as_array().map(Vec::as_slice).unwrap_or_default();
    let more = steps.iter().enumerate().flat_map(|(n, step)| {
        let members = step.as_object().into_iter().flat_map(|step| step.keys());
        let unknown = members.filter(|name| !matches!(name.as_str(), "op" | "path" | "from" | "value"));
        unknown.map(move |name| format!("json patch unknown field \"[{n}].{name}\"")).collect::<Vec<_>>()
    });
    twice.chain(more).collect()
}

/// The members that a body in JSON has twice, `spec.size`.
fn twice(request: &Request) -> Vec<String> {
    if request.body.as_object::<Value>().is_some() {
        return Vec::new();
    }
    let body = request.body.as_slice();
    if body.starts_with(protobuf::MAGIC) || !is_json(media_type(request)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut json = serde_json::Deserializer::from_slice(body);
    // What cannot be read at all is told elsewhere.
    let _ = Members { path: String::new(), found: &mut found }.deserialize(&mut json);
    found
}

fn is_json(media: &str) -> bool {
    matches!(
        media,
        "application/json"
            | ""
            | "application/json-patch+json"
            | "application/merge-patch+json"
            | "application/strategic-merge-patch+json"
    )
}

/// Looks for members that are there twice.
struct Members<'f> {
    path: String,
    found: &'f mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(name) = map.next_key::<String>()? {
            let path = crate::schema::join(&self.path, &name);
            if !seen.insert(name) {
                self.found.push(path.clone());
            }
            map.next_value_seed(Members { path, found: &mut *self.found })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut at = 0;
        let path = self.path;
        while list.next_element_seed(Members { path: format!("{path}[{at}]"), found: &mut *self.found })?.is_some() {
            at += 1;
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// YAML, which JSON is, too.
///
/// # Errors
/// 400 with what is wrong.
pub(crate) fn yaml(body: &[u8]) -> Result<Value, Failure> {
    serde_yaml::from_slice(body).map_err(|e| Failure::bad_request(format!("error decoding YAML: {e}")))
}

/// The object that is sent to be written: of the right kind, in the right version.
///
/// # Errors
/// 400.
pub(crate) fn object(ask: &Ask) -> Result<Value, Failure> {
    let mut object = read(&ask.request)?;
    identify(ask, &mut object)?;
    Ok(object)
}

/// How much of a body is shown that cannot be understood, in bytes.
const SHOWN: usize = 30;

fn unrecognized(ask: &Ask, why: &str) -> Failure {
    let body = String::from_utf8_lossy(&ask.request.body);
    let body = match body.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} ...", &body[..end]),
        None => body.into_owned(),
    };
    let kind = &ask.resource.kind;
    Failure::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({body})"))
}

/// Is it an object of the kind of the path?
///
/// # Errors
/// 400.
pub(crate) fn identify(ask: &Ask, object: &mut Value) -> Result<(), Failure> {
    if !object.is_object() {
        return Err(Failure::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: json: cannot unmarshal into a Go value",
            ask.resource.kind, ask.version.name, ask.resource.kind
        )));
    }
    let (version, kind) = (ask.api_version(), &ask.resource.kind);
    let found = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    let (given_version, given_kind) = (found("apiVersion"), found("kind"));
    if ask.resource.custom && (given_kind.is_empty() || given_version.is_empty()) {
        let what = if given_kind.is_empty() { "Kind" } else { "apiVersion" };
        return Err(unrecognized(ask, &format!("Object '{what}' is missing in '{object}'")));
    }
    if !given_version.is_empty() && given_version != version {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version ({version})"
        )));
    }
    if !given_kind.is_empty() && given_kind != *kind && !ask.resource.custom {
        let (given, own) =
            (&ask.version.name, if ask.resource.group.is_empty() { "core" } else { &ask.resource.group });
        return Err(Failure::bad_request(format!(
            "{given_kind} in version {given:?} cannot be handled as a {kind}: converting ({given}.{given_kind}) to ({}.{kind}): unknown conversion",
            own.split('.').next().unwrap_or_default()
        )));
    }
    if !given_kind.is_empty() && given_kind != *kind {
        let subject =
            Subject { group: &ask.resource.group, resource: &given_kind, name: crate::meta::text(object, "name") };
        let cause = Cause::invalid("kind", &given_kind.as_str().into(), &format!("must be {kind}"));
        return Err(Failure::invalid(subject, vec![cause]));
    }
    object["apiVersion"] = version.into();
    object["kind"] = kind.clone().into();
    match &object["metadata"] {
        Value::Null => object["metadata"] = serde_json::json!({}),
        Value::Object(_) => {}
        _ => return Err(Failure::bad_request("metadata must be an object")),
    }
    Ok(())
}
