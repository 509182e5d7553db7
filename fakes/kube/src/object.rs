//! What is particular to single built-in kinds: what they get when they are made, and what may not be changed.

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine as _};
use serde_json::{Map, Value, json};

use crate::core::Ask;
use crate::crd;
use crate::failure::Cause;
use crate::meta;
use crate::resource::Resource;

fn core(resource: &Resource, plural: &str) -> bool {
    resource.group.is_empty() && resource.plural == plural
}

/// What the server itself makes part of a new object; nobody owns it.
pub(crate) fn begin(ask: &Ask, object: &mut Value) {
    let resource = &ask.resource;
    if core(resource, "namespaces") {
        object["spec"]["finalizers"] = json!(["kubernetes"]);
        object["status"] = json!({ "phase": "Active" });
    } else if core(resource, "pods") {
        object["status"] = json!({ "phase": "Pending" });
    }
}

/// Fills in what a new object of its kind has.
pub(crate) fn prepare_new(ask: &Ask, object: &mut Value) {
    let resource = &ask.resource;
    if core(resource, "namespaces") {
        if let Some(map) = object.as_object_mut() {
            map.shift_remove("spec");
            map.shift_remove("status");
        }
        let name = meta::text(object, "name").to_owned();
        namespace_label(object, &name);
    } else if core(resource, "pods") {
        if let Some(spec) = object["spec"].as_object_mut() {
            for (name, value) in
                [("restartPolicy", "Always"), ("dnsPolicy", "ClusterFirst"), ("schedulerName", "default-scheduler")]
            {
                spec.entry(name).or_insert_with(|| json!(value));
            }
            spec.entry("terminationGracePeriodSeconds").or_insert_with(|| json!(30));
        }
    } else if resource.plural == "certificatesigningrequests" {
        object["status"] = json!({});
        object["spec"]["username"] = json!(ask.caller.user);
        if !ask.caller.groups.is_empty() {
            object["spec"]["groups"] = json!(ask.caller.groups);
        }
    } else if resource.plural == "customresourcedefinitions" {
        meta::of(object).insert("finalizers".into(), json!([crd::FINALIZER]));
    }
    prepare(resource, object);
}

fn namespace_label(object: &mut Value, name: &str) {
    if !name.is_empty() {
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(name);
    }
}

/// Fills in what every object of its kind has.
pub(crate) fn prepare(resource: &Resource, object: &mut Value) {
    if core(resource, "secrets") {
        if let Some(Value::Object(texts)) = object.as_object_mut().and_then(|o| o.shift_remove("stringData")) {
            if !object["data"].is_object() {
                object["data"] = Value::Object(Map::new());
            }
            for (name, text) in texts {
                object["data"][name] = json!(STANDARD.encode(text.as_str().unwrap_or_default()));
            }
        }
        if object["type"].as_str().is_none_or(str::is_empty) {
            object["type"] = json!("Opaque");
        }
    } else if core(resource, "services") {
        if let Some(spec) = object["spec"].as_object_mut() {
            spec.entry("type").or_insert_with(|| json!("ClusterIP"));
        }
    } else if core(resource, "namespaces") {
        let name = meta::text(object, "name").to_owned();
        namespace_label(object, &name);
    } else if resource.plural == "customresourcedefinitions" {
        crd::fill_defaults(object);
    } else if resource.plural.ends_with("webhookconfigurations") {
        webhooks(object);
    }
}

fn webhooks(object: &mut Value) {
    for hook in object["webhooks"].as_array_mut().into_iter().flatten() {
        let Some(hook) = hook.as_object_mut() else { continue };
        for (name, value) in [
            ("failurePolicy", json!("Fail")),
            ("matchPolicy", json!("Equivalent")),
            ("timeoutSeconds", json!(10)),
            ("namespaceSelector", json!({})),
            ("objectSelector", json!({})),
        ] {
            hook.entry(name).or_insert(value);
        }
        for rule in hook.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(rule) = rule.as_object_mut() {
                rule.entry("scope").or_insert_with(|| json!("*"));
            }
        }
    }
}

/// What a write of the object itself may not change, put back; and what it only changes through a subresource.
pub(crate) fn keep_back(resource: &Resource, subresource: &str, old: &Value, new: &mut Value) {
    let keep = |new: &mut Value, name: &str| match &old[name] {
        Value::Null => {
            if let Some(map) = new.as_object_mut() {
                map.shift_remove(name);
            }
        }
        value => new[name] = value.clone(),
    };
    if core(resource, "namespaces") && subresource != "finalize" {
        new["spec"]["finalizers"] = old["spec"]["finalizers"].clone();
    }
    if resource.plural == "certificatesigningrequests" {
        keep(new, "spec");
        let certificate = &old["status"]["certificate"];
        if subresource == "approval" && !certificate.is_null() {
            new["status"]["certificate"] = certificate.clone();
        }
    }
}

/// What is wrong with an object of a built-in kind, beside its types.
pub(crate) fn check(resource: &Resource, old: Option<&Value>, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if resource.plural == "customresourcedefinitions" {
        return crd::check(new);
    }
    if core(resource, "secrets") || core(resource, "configmaps") {
        data(new, &mut causes);
        if core(resource, "secrets") {
            typed_secret(new, &mut causes);
        }
        if let Some(old) = old {
            frozen(resource, old, new, &mut causes);
        }
    }
    if resource.plural == "leases" {
        lease(new, &mut causes);
    }
    causes
}

fn frozen(resource: &Resource, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if resource.plural == "secrets" && old["type"] != new["type"] {
        causes.push(Cause::invalid("type", &new["type"], "field is immutable"));
    }
    if old["immutable"] == true {
        if new["immutable"] != true {
            causes.push(Cause::forbidden("immutable", "field is immutable when `immutable` is set"));
        }
        for name in ["data", "binaryData"] {
            if old[name] != new[name] {
                causes.push(Cause::forbidden(name, "field is immutable when `immutable` is set"));
            }
        }
    }
}

/// What a secret of that type must have. Source: ValidateSecret.
fn typed_secret(object: &Value, causes: &mut Vec<Cause>) {
    let has = |name: &str| object["data"].get(name).is_some();
    let mut must = |name: &str| {
        if !has(name) {
            causes.push(Cause::required(format!("data[{name}]"), ""));
        }
    };
    match object["type"].as_str().unwrap_or_default() {
        "kubernetes.io/dockerconfigjson" | "kubernetes.io/dockercfg" => {
            let name = if object["type"] == "kubernetes.io/dockercfg" { ".dockercfg" } else { ".dockerconfigjson" };
            must(name);
            let bytes = object["data"][name].as_str().and_then(|text| STANDARD.decode(text).ok());
            let broken = bytes.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).err());
            if let Some(broken) = broken {
                let value = json!("<secret contents redacted>");
                causes.push(Cause::invalid(format!("data[{name}]"), &value, &broken.to_string()));
            }
        }
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            causes.push(Cause::required("data[username]", ""));
            causes.push(Cause::required("data[password]", ""));
        }
        "kubernetes.io/ssh-auth" => must("ssh-privatekey"),
        "kubernetes.io/tls" => {
            must("tls.crt");
            must("tls.key");
        }
        _ => {}
    }
}

fn data(object: &Value, causes: &mut Vec<Cause>) {
    let fits = |name: &str| {
        !name.is_empty()
            && name.len() <= 253
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    for part in ["data", "binaryData"] {
        for (name, _) in object[part].as_object().into_iter().flatten() {
            if !fits(name) {
                causes.push(Cause::invalid(
                    format!("{part}[{name}]"),
                    &json!(name),
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
                ));
            }
        }
    }
}

fn lease(object: &Value, causes: &mut Vec<Cause>) {
    for (name, what) in
        [("leaseDurationSeconds", "must be greater than 0"), ("leaseTransitions", "must be greater than or equal to 0")]
    {
        let value = &object["spec"][name];
        let least = i64::from(name == "leaseDurationSeconds");
        if value.as_i64().is_some_and(|n| n < least) {
            causes.push(Cause::invalid(format!("spec.{name}"), value, what));
        }
    }
}

/// Bytes in `data` of a secret that are not base64: Go's decoder refuses the whole object.
pub(crate) fn undecodable(resource: &Resource, object: &Value) -> Option<String> {
    let part = match resource.plural.as_str() {
        "secrets" => "data",
        "configmaps" => "binaryData",
        _ => return None,
    };
    let bytes = object[part].as_object()?;
    let broken = bytes.values().filter_map(Value::as_str).find_map(|text| STANDARD.decode(text).err())?;
    Some(format!(
        "{} in version \"v1\" cannot be handled as a {}: illegal base64 data at input byte {}",
        resource.kind,
        resource.kind,
        match broken {
            DecodeError::InvalidByte(at, _)
            | DecodeError::InvalidLastSymbol(at, _)
            | DecodeError::InvalidLength(at) => at,
            DecodeError::InvalidPadding => part.len(),
        }
    ))
}
