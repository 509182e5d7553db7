//! Checks of what comes in, with the words that the real service's framework uses: JSON syntax as Go's decoder reports it,
//! unknown members, wrong types, missing members, limits, formats.

use serde::de::DeserializeOwned;
use serde_json::Value;
use vlab_api::spec::{FieldKind, FieldLimit, FieldSpec, StructSpec, WireObject};

use super::answer::Fail;
use crate::go;

/// Reads a request body of that shape. `param` is the body parameter's name in the API's schema.
pub(super) fn body<T: WireObject + DeserializeOwned>(bytes: &[u8], param: &str, strict: bool) -> Result<T, Fail> {
    let mut value = json_body(bytes, param)?;
    decode(&value, &T::SPEC, T::SPEC.type_name, "", strict).map_err(|reason| parse_failure(param, &reason))?;
    if value.is_null() {
        // For Go's decoder `null` is an object without members.
        value = Value::Object(serde_json::Map::new());
    }
    validate(&value, &T::SPEC, "").map_err(|message| Fail::Infra(400, message))?;
    serde_json::from_value(without_nulls(value)).map_err(|e| parse_failure(param, &e.to_string()))
}

/// Reads a request body that is one JSON string.
pub(super) fn string_body(bytes: &[u8], param: &str) -> Result<String, Fail> {
    match json_body(bytes, param)? {
        Value::String(text) => Ok(text),
        other => Err(parse_failure(
            param,
            &format!("json: cannot unmarshal {} into Go value of type string", kind_of(&other)),
        )),
    }
}

fn json_body(bytes: &[u8], param: &str) -> Result<Value, Fail> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Fail::Infra(400, format!("{} in body is required", camel(param))));
    }
    go::parse_json(bytes).map_err(|reason| parse_failure(param, &reason))
}

fn parse_failure(param: &str, reason: &str) -> Fail {
    Fail::Infra(400, format!("parsing {} body from \"\" failed, because {reason}", camel(param)))
}

/// `new-cluster-params` as a variable's name: `newClusterParams`.
fn camel(param: &str) -> String {
    let mut out = String::with_capacity(param.len());
    let mut raise = false;
    for (i, c) in param.chars().enumerate() {
        if c == '-' || c == '_' {
            raise = true;
        } else if raise {
            out.extend(c.to_uppercase());
            raise = false;
        } else if i == 0 {
            out.extend(c.to_lowercase());
        } else {
            out.push(c);
        }
    }
    out
}

/// Members that are `null` count as absent.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Go's name of a type: some abbreviations are in capitals there.
fn go_name(name: &str) -> &str {
    match name {
        "ApiVip" => "APIVip",
        other => other,
    }
}

fn go_type(kind: &FieldKind) -> String {
    match kind {
        FieldKind::String | FieldKind::Uuid | FieldKind::DateTime | FieldKind::Enum(_) => "string".into(),
        FieldKind::Integer => "int64".into(),
        FieldKind::Number => "float64".into(),
        FieldKind::Bool => "bool".into(),
        FieldKind::Object(spec) => format!("models.{}", go_name(spec.type_name)),
        FieldKind::Array(FieldKind::Object(spec)) => format!("[]*models.{}", go_name(spec.type_name)),
        FieldKind::Array(inner) => format!("[]{}", go_type(inner)),
        FieldKind::Map(inner) => format!("map[string]{}", go_type(inner)),
        FieldKind::Any => "interface {}".into(),
    }
}

/// First step, as Go's decoder does it: members in the order of the document, unknown ones and wrong types are refused.
fn decode(value: &Value, spec: &StructSpec, owner: &str, path: &str, strict: bool) -> Result<(), String> {
    let map = match value {
        Value::Object(map) => map,
        Value::Null => return Ok(()),
        other if path.is_empty() => {
            return Err(format!("json: cannot unmarshal {} into Go value of type models.{owner}", kind_of(other)));
        }
        other => return Err(wrong_type(other, owner, path, &format!("models.{}", spec.type_name))),
    };
    for (name, member) in map {
        match spec.field(name) {
            None if strict => return Err(format!("json: unknown field {}", go::quote(name))),
            None => {}
            Some(field) => decode_kind(member, &field.kind, spec.type_name, &join(path, name), strict)?,
        }
    }
    Ok(())
}

fn wrong_type(value: &Value, owner: &str, path: &str, wanted: &str) -> String {
    let found = match value {
        Value::Number(n) if wanted == "int64" => format!("number {n}"),
        other => kind_of(other).to_owned(),
    };
    format!("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}")
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn decode_kind(value: &Value, kind: &FieldKind, owner: &str, path: &str, strict: bool) -> Result<(), String> {
    let fits = match (kind, value) {
        (_, Value::Null) | (FieldKind::Any, _) => true,
        (FieldKind::String | FieldKind::Uuid | FieldKind::DateTime | FieldKind::Enum(_), Value::String(_)) => true,
        (FieldKind::Integer, Value::Number(n)) => n.is_i64(),
        (FieldKind::Number, Value::Number(_)) | (FieldKind::Bool, Value::Bool(_)) => true,
        (FieldKind::Object(spec), Value::Object(_)) => return decode(value, spec, spec.type_name, path, strict),
        (FieldKind::Array(inner), Value::Array(items)) => {
            return items.iter().try_for_each(|item| decode_kind(item, inner, owner, path, strict));
        }
        (FieldKind::Map(inner), Value::Object(map)) => {
            return map.values().try_for_each(|item| decode_kind(item, inner, owner, path, strict));
        }
        _ => false,
    };
    if !fits {
        return Err(wrong_type(value, owner, path, &go_type(kind)));
    }
    if let (FieldKind::DateTime, Value::String(text)) = (kind, value)
        && text.parse::<vlab_api::Timestamp>().is_err()
    {
        return Err(format!("parsing time {} as \"2006-01-02T15:04:05Z07:00\": cannot parse", go::quote(text)));
    }
    Ok(())
}

const ADDRESS: &str = r"^(?:(?:(?:[0-9]{1,3}\.){3}[0-9]{1,3})|(?:(?:[0-9a-fA-F]*:[0-9a-fA-F]*){2,}))?$";
const CIDR: &str = r"^(?:(?:(?:[0-9]{1,3}\.){3}[0-9]{1,3}\/(?:(?:[0-9])|(?:[1-2][0-9])|(?:3[0-2])))|(?:(?:[0-9a-fA-F]*:[0-9a-fA-F]*){2,})/(?:(?:[0-9])|(?:[1-9][0-9])|(?:1[0-1][0-9])|(?:12[0-8])))$";
const MANIFEST: &str = r"^[^\/]*\.(json|ya?ml(\.patch_?[a-zA-Z0-9_]*)?)$";

/// What texts must look like: type, member, pattern. An empty text is never looked at.
const PATTERNS: &[(&str, &str, &str)] = &[
    ("ApiVip", "ip", ADDRESS),
    ("IngressVip", "ip", ADDRESS),
    ("ClusterNetwork", "cidr", CIDR),
    ("ServiceNetwork", "cidr", CIDR),
    ("MachineNetwork", "cidr", CIDR),
    ("ClusterCreateParams", "cluster_network_cidr", CIDR),
    ("ClusterCreateParams", "service_network_cidr", CIDR),
    ("V2ClusterUpdateParams", "cluster_network_cidr", CIDR),
    ("V2ClusterUpdateParams", "service_network_cidr", CIDR),
    ("V2ClusterUpdateParams", "machine_network_cidr", CIDR),
    ("CreateManifestParams", "file_name", MANIFEST),
    ("UpdateManifestParams", "file_name", MANIFEST),
    ("UpdateManifestParams", "updated_file_name", MANIFEST),
    ("KernelArgument", "value", "^(?:(?:[^ \\t\\n\\r\"]+)|(?:\"[^\"]*\"))+$"),
];

fn check_pattern(value: &Value, owner: &str, field: &str, place: &str) -> Result<(), String> {
    let Some(text) = value.as_str().filter(|t| !t.is_empty()) else { return Ok(()) };
    let Some((_, _, pattern)) = PATTERNS.iter().find(|(o, f, _)| *o == owner && *f == field) else { return Ok(()) };
    if regex::Regex::new(pattern).is_ok_and(|r| r.is_match(text)) {
        return Ok(());
    }
    Err(format!("{place} in body should match '{pattern}'"))
}

/// Second step, as the generated models do it: members by name, the first violation is reported.
fn validate(value: &Value, spec: &StructSpec, path: &str) -> Result<(), String> {
    let Value::Object(map) = value else { return Ok(()) };
    let mut fields: Vec<&FieldSpec> = spec.fields.iter().collect();
    fields.sort_by_key(|f| f.name);
    for field in fields {
        let place = join(path, field.name);
        match map.get(field.name) {
            None | Some(Value::Null) if field.required => return Err(format!("{place} in body is required")),
            None | Some(Value::Null) => {}
            Some(member) => {
                validate_kind(member, &field.kind, field.checks, &place)?;
                check_pattern(member, spec.type_name, field.name, &place)?;
            }
        }
    }
    Ok(())
}

fn validate_kind(value: &Value, kind: &FieldKind, checks: &[FieldLimit], place: &str) -> Result<(), String> {
    match (kind, value) {
        (FieldKind::Object(spec), _) => validate(value, spec, place)?,
        (FieldKind::Array(inner), Value::Array(items)) => {
            for (i, item) in items.iter().enumerate() {
                validate_kind(item, inner, &[], &format!("{place}.{i}"))?;
            }
        }
        (FieldKind::Enum(words), Value::String(text)) if !words.contains(&text.as_str()) => {
            return Err(one_of(place, "body", words));
        }
        (FieldKind::Uuid, Value::String(text)) if go::parse_uuid(text).is_none() => {
            return Err(format!("{place} in body must be of type uuid: {}", go::quote(text)));
        }
        _ => {}
    }
    for check in checks {
        match (check, value) {
            (FieldLimit::OneOf(words), Value::String(text)) if !words.contains(&text.as_str()) => {
                return Err(one_of(place, "body", words));
            }
            (FieldLimit::MaxLength(n), Value::String(text)) if text.chars().count() > *n => {
                return Err(format!("{place} in body should be at most {n} chars long"));
            }
            (FieldLimit::MinLength(n), Value::String(text)) if text.chars().count() < *n => {
                return Err(format!("{place} in body should be at least {n} chars long"));
            }
            (FieldLimit::Minimum(n), Value::Number(v)) if v.as_i64().is_some_and(|v| v < *n) => {
                return Err(format!("{place} in body should be greater than or equal to {n}"));
            }
            (FieldLimit::Maximum(n), Value::Number(v)) if v.as_i64().is_some_and(|v| v > *n) => {
                return Err(format!("{place} in body should be less than or equal to {n}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The words for a value that is not in its list.
pub(super) fn one_of(name: &str, place: &str, words: &[&str]) -> String {
    format!("{name} in {place} should be one of [{}]", words.join(" "))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_api::types::{ClusterCreateParams, HostCreateParams, HostUpdateParams};

    use super::*;

    fn reason(fail: &Fail) -> &str {
        match fail {
            Fail::Error(_, text) | Fail::Infra(_, text) => text,
        }
    }

    #[rstest]
    #[case(r#"{"api_vips":[{"ip":"zz"}]}"#, Some("api_vips.0.ip"))]
    #[case(r#"{"api_vips":[{"ip":""}]}"#, None)]
    #[case(r#"{"api_vips":[{"ip":"192.168.126.5"}]}"#, None)]
    #[case(r#"{"api_vips":[{"ip":"fd00::5"}]}"#, None)]
    #[case(r#"{"cluster_networks":[{"cidr":"x"}]}"#, Some("cluster_networks.0.cidr"))]
    #[case(r#"{"cluster_networks":[{"cidr":"10.0.0.1/8"}]}"#, None)]
    #[case(r#"{"machine_networks":[{"cidr":"1.2.3"}]}"#, Some("machine_networks.0.cidr"))]
    #[case(r#"{"service_networks":[{"cidr":"fd02::/112"}]}"#, None)]
    fn texts_with_a_pattern(#[case] text: &str, #[case] refused: Option<&str>) {
        let result = body::<vlab_api::types::V2ClusterUpdateParams>(text.as_bytes(), "cluster-update-params", true);
        match refused {
            None => assert!(result.is_ok(), "{text}: {result:?}"),
            Some(place) => {
                let fail = result.unwrap_err();
                assert!(reason(&fail).starts_with(&format!("{place} in body should match '^")), "{fail:?}");
                assert!(matches!(fail, Fail::Infra(400, _)));
            }
        }
    }

    #[rstest]
    #[case(r#"{"host_id":"zz"}"#, "host_id in body must be of type uuid: \"zz\"")]
    #[case(r#"{}"#, "host_id in body is required")]
    #[case(r#"{"host_id":null}"#, "host_id in body is required")]
    #[case("null", "host_id in body is required")]
    #[case("", "newHostParams in body is required")]
    #[case(
        r#"{"host_id":1}"#,
        "parsing newHostParams body from \"\" failed, because json: cannot unmarshal number into Go struct field HostCreateParams.host_id of type string"
    )]
    #[case(
        "[]",
        "parsing newHostParams body from \"\" failed, because json: cannot unmarshal array into Go value of type models.HostCreateParams"
    )]
    fn bodies(#[case] text: &str, #[case] message: &str) {
        let fail = body::<HostCreateParams>(text.as_bytes(), "new-host-params", true).unwrap_err();
        assert_eq!(fail, Fail::Infra(400, message.to_owned()));
    }

    #[test]
    fn limits_of_nested_members() {
        let text = r#"{"disks_selected_config":[{"role":"install"}]}"#;
        let fail = body::<HostUpdateParams>(text.as_bytes(), "host-update-params", true).unwrap_err();
        assert_eq!(reason(&fail), "disks_selected_config.0.id in body is required");
        let text = r#"{"name":"x","openshift_version":"4.16","pull_secret":"{}","cluster_network_host_prefix":0}"#;
        let fail = body::<ClusterCreateParams>(text.as_bytes(), "new-cluster-params", true).unwrap_err();
        assert_eq!(reason(&fail), "cluster_network_host_prefix in body should be greater than or equal to 1");
    }

    #[test]
    fn sloppy_clients_are_allowed_when_the_setting_says_so() {
        let text = r#"{"host_id":"90c0cdaa-094d-4a6d-8896-bee4bc047c5a","x":1}"#;
        assert!(body::<HostCreateParams>(text.as_bytes(), "new-host-params", false).is_ok());
        assert!(body::<HostCreateParams>(text.as_bytes(), "new-host-params", true).is_err());
    }
}
