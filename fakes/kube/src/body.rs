//! Bodies of requests: JSON, YAML, protobuf.

use serde_json::Value;
use vlab_api::http::Request;

use crate::core::Ask;
use crate::failure::Failure;
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
        return Err(Failure::bad_request(format!("Object '{what}' is missing in '{object}'")));
    }
    if !given_version.is_empty() && given_version != version {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version ({version})"
        )));
    }
    if !given_kind.is_empty() && given_kind != *kind {
        return Err(Failure::bad_request(format!(
            "{given_kind} in version {:?} cannot be handled as a {kind}: converting ({given_kind}) to ({kind}): unknown conversion",
            ask.version.name
        )));
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
