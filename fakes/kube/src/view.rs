//! How objects are shown: whole, as rows of a table, or only their metadata; in the version that was asked for.

use bytes::Bytes;
use serde_json::{Value, json};
use vlab_api::http::{Body, Request, Response};

use crate::core::Ask;
use crate::failure::Failure;
use crate::resource::{Resource, Version};
use crate::store::{Stored, shared};
use crate::table;

/// The form that a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    Table,
    Metadata,
}

/// The first form of `Accept` that is served here.
///
/// # Errors
/// 406: none of them is.
pub(crate) fn form(request: &Request) -> Result<Form, Failure> {
    let accept = request.get_header("accept").unwrap_or("*/*");
    for item in accept.split(',') {
        let mut parts = item.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if !matches!(media, "application/json" | "application/*" | "*/*" | "") {
            continue;
        }
        let parameters: Vec<&str> = parts.collect();
        let found = |name: &str| parameters.iter().find_map(|p| p.strip_prefix(name));
        match found("as=") {
            None => return Ok(Form::Whole),
            Some("Table") if matches!(found("v="), Some("v1" | "v1beta1")) => return Ok(Form::Table),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => return Ok(Form::Metadata),
            Some(_) => {}
        }
    }
    let available = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let message = format!("406: Not Acceptable\n\nAvailable representations: {available}");
    Err(Failure { details: json!({}), ..Failure::new(406, "NotAcceptable", message) })
}

/// The bytes of an object in that version.
pub(crate) fn bytes(resource: &Resource, version: &Version, stored: &Stored) -> Bytes {
    if version.name == resource.storage {
        return stored.bytes();
    }
    serde_json::to_vec(&value(resource, version, stored)).unwrap_or_default().into()
}

/// The answer with an object that is stored.
pub(crate) fn stored(ask: &Ask, status: u16, stored: &Stored) -> Response {
    if ask.version.name == ask.resource.storage {
        return object(ask, status, stored.body());
    }
    object(ask, status, shared(value(&ask.resource, &ask.version, stored).into()))
}

/// The object in that version.
pub(crate) fn value(resource: &Resource, version: &Version, stored: &Stored) -> Value {
    let mut object = stored.value();
    if version.name != resource.storage {
        object["apiVersion"] = json!(resource.api_version(&version.name));
        crate::schema::prune(&version.schema, &mut object, crate::schema::At::Root(""), &mut Vec::new());
        crate::schema::fill_defaults(&version.schema, &mut object);
    }
    object
}

/// Only what every object has.
pub(crate) fn metadata(object: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
}

/// The answer with one object.
pub(crate) fn object(ask: &Ask, status: u16, body: Body) -> Response {
    let body = match form(&ask.request) {
        Err(failure) => return failure.response(),
        Ok(Form::Whole) => body,
        Ok(form) => {
            let object: Value = serde_json::from_slice(&body).unwrap_or_default();
            let shown = match form {
                Form::Table => {
                    let rows = [table::row(&ask.version, &object, ask.clock, include(ask))];
                    let rv = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                    table::table(&ask.version, rows.to_vec(), &json!({ "resourceVersion": rv }), true)
                }
                _ => metadata(&object),
            };
            Body::object(shown)
        }
    };
    Response { status, headers: vec![("content-type".into(), "application/json".into())], body }
}

/// What a row of a table carries of its object.
pub(crate) fn include(ask: &Ask) -> table::Include {
    match ask.query.get("includeObject") {
        Some("None") => table::Include::Nothing,
        Some("Object") => table::Include::Object,
        _ => table::Include::Metadata,
    }
}
