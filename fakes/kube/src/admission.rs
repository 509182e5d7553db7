//! Admission webhooks: which are to be called for a write, what they are asked, and what their answer means.
//!
//! The core calls nobody. A write that needs a webhook stops with a [`Call`]; when its answer is there, the request runs again from its
//! beginning with the answers so far. Until the last answer nothing has been stored.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use vlab_api::labels::Selector;

use crate::core::{Ask, Core, Stop};
use crate::failure::Failure;
use crate::meta;
use crate::patch;
use crate::write::dry_run;

/// A call of a webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A call that a shell is to make: `POST` of JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Which one.
    pub id: CallId,
    /// The name of the webhook.
    pub webhook: String,
    /// Where: a URL, or `https://SERVICE.NAMESPACE.svc:PORT/PATH` for one that is named by its service.
    pub url: String,
    /// Certificates in PEM that its server must be signed by; empty: the usual ones.
    pub ca: Vec<u8>,
    /// The `AdmissionReview`.
    pub review: Value,
    /// How long it may take.
    pub timeout: Duration,
    /// Nobody is to be asked: the call counts as timed out, because a fault says so.
    pub lost: bool,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The `AdmissionReview` that came back.
    Review(Value),
    /// Nothing usable came back; why.
    Failed(String),
}

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    const fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }
}

fn strings<'v>(value: &'v Value, name: &str) -> Vec<&'v str> {
    value[name].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Does a rule of a webhook mean this request?
fn means(rule: &Value, ask: &Ask, operation: Operation) -> bool {
    let any = |name: &str, wanted: &str| strings(rule, name).iter().any(|v| *v == "*" || *v == wanted);
    let resource = if ask.subresource().is_empty() {
        ask.resource.plural.clone()
    } else {
        format!("{}/{}", ask.resource.plural, ask.subresource())
    };
    let every = strings(rule, "resources").iter().any(|r| {
        *r == "*/*"
            || r.strip_suffix("/*").is_some_and(|p| p == ask.resource.plural)
            || *r == "*" && ask.subresource().is_empty()
    });
    let scope = match rule["scope"].as_str() {
        Some("Cluster") => !ask.resource.namespaced,
        Some("Namespaced") => ask.resource.namespaced,
        _ => true,
    };
    any("operations", operation.as_str())
        && any("apiGroups", &ask.resource.group)
        && any("apiVersions", &ask.version.name)
        && (every || strings(rule, "resources").contains(&resource.as_str()))
        && scope
}

/// Does a selector of a webhook take an object? One that cannot be understood takes none.
fn selected(selector: &Value, object: &Value) -> bool {
    Selector::read(selector).is_ok_and(|selector| selector.fits(object))
}

fn url(hook: &Value) -> String {
    let client = &hook["clientConfig"];
    if let Some(url) = client["url"].as_str() {
        return url.to_owned();
    }
    let service = &client["service"];
    let text = |name: &str| service[name].as_str().unwrap_or_default();
    let path = text("path");
    let slash = if path.starts_with('/') || path.is_empty() { "" } else { "/" };
    format!(
        "https://{}.{}.svc:{}{slash}{path}",
        text("name"),
        text("namespace"),
        service["port"].as_u64().unwrap_or(443)
    )
}

impl Core {
    /// Lets mutating webhooks change the object.
    pub(crate) fn mutate(
        &mut self,
        ask: &mut Ask,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Stop> {
        for hook in self.hooks(ask, operation, "mutatingwebhookconfigurations", Some(object), old) {
            let Some(response) = self.ask_hook(ask, operation, &hook, Some(object), old)? else { continue };
            let Some(patch) = response["patch"].as_str() else { continue };
            let broken = |what: String| {
                Failure::internal(format!(
                    "failed calling webhook {:?}: {what}",
                    hook["name"].as_str().unwrap_or_default()
                ))
            };
            let bytes = STANDARD.decode(patch).map_err(|e| broken(e.to_string()))?;
            let patch: Value = serde_json::from_slice(&bytes).map_err(|e| broken(e.to_string()))?;
            patch::lenient(object, &patch).map_err(broken)?;
        }
        Ok(())
    }

    /// Lets validating webhooks refuse the write.
    pub(crate) fn admit(
        &mut self,
        ask: &mut Ask,
        operation: Operation,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Stop> {
        for hook in self.hooks(ask, operation, "validatingwebhookconfigurations", object, old) {
            self.ask_hook(ask, operation, &hook, object, old)?;
        }
        // Last, when those that are there have answered: the request comes here once.
        let name = object.or(old).map_or("", |o| meta::text(o, "name"));
        let verb = operation.as_str().to_lowercase();
        match self.faults.admission(&ask.resource, &verb, ask.subresource(), name) {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }

    fn hooks(
        &self,
        ask: &Ask,
        operation: Operation,
        plural: &str,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Vec<Value> {
        // A webhook that stands in its own way could never be removed.
        if ask.resource.group == "admissionregistration.k8s.io" {
            return Vec::new();
        }
        let configurations = self.objects("admissionregistration.k8s.io", plural);
        if configurations.is_empty() {
            return Vec::new();
        }
        let namespace = if ask.resource.plural == "namespaces" { ask.name() } else { ask.namespace() };
        let of_namespace = self.object("", "namespaces", "", namespace).unwrap_or_default();
        let mut found = Vec::new();
        for configuration in configurations {
            for hook in configuration["webhooks"].as_array().into_iter().flatten() {
                let meant = hook["rules"].as_array().into_iter().flatten().any(|rule| means(rule, ask, operation));
                let objects = [object, old].into_iter().flatten();
                let object_fits = objects.clone().any(|o| selected(&hook["objectSelector"], o));
                let namespace_fits = namespace.is_empty() || selected(&hook["namespaceSelector"], &of_namespace);
                if meant && object_fits && namespace_fits {
                    found.push(hook.clone());
                }
            }
        }
        found
    }

    /// The webhook's answer if it allowed the write; `None` if it failed and that does not matter.
    fn ask_hook(
        &mut self,
        ask: &mut Ask,
        operation: Operation,
        hook: &Value,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Option<Value>, Stop> {
        let name = hook["name"].as_str().unwrap_or_default().to_owned();
        let used = ask.used;
        ask.used += 1;
        let Some(answer) = ask.answers.get(used).cloned() else {
            let lost = self.faults.webhook(&ask.resource);
            return Err(Stop::Call(Box::new(call(ask, operation, hook, (object, old), lost))));
        };
        let failed = match answer {
            Answer::Review(review) if review["response"].is_object() => {
                let response = review["response"].clone();
                ask.warnings.extend(strings(&response, "warnings").into_iter().map(str::to_owned));
                if response["allowed"] == true {
                    return Ok(Some(response));
                }
                return Err(denied(&name, &response).into());
            }
            Answer::Review(_) => "webhook response is missing".to_owned(),
            Answer::Failed(why) => why,
        };
        if hook["failurePolicy"] == "Ignore" {
            return Ok(None);
        }
        Err(Failure::webhook(&name, &failed).into())
    }
}

fn denied(name: &str, response: &Value) -> Failure {
    let status = &response["status"];
    let said = status["message"].as_str().or(status["reason"].as_str());
    let message = match said {
        Some(said) => format!("admission webhook {name:?} denied the request: {said}"),
        None => format!("admission webhook {name:?} denied the request without explanation"),
    };
    let code = status["code"].as_u64().and_then(|c| u16::try_from(c).ok()).filter(|c| *c >= 400).unwrap_or(403);
    let reason = match code {
        400 => "BadRequest",
        409 => "Conflict",
        422 => "Invalid",
        _ => "Forbidden",
    };
    Failure { details: status["details"].clone(), ..Failure::new(code, reason, message) }
}

fn call(
    ask: &mut Ask,
    operation: Operation,
    hook: &Value,
    (object, old): (Option<&Value>, Option<&Value>),
    lost: bool,
) -> Call {
    let resource = &ask.resource;
    let named = object.or(old);
    let name = named.map_or(ask.name(), |o| meta::text(o, "name")).to_owned();
    let mut dice = ask.dice.clone();
    let kind = json!({ "group": resource.group, "version": ask.version.name, "kind": resource.kind });
    let plural = json!({ "group": resource.group, "version": ask.version.name, "resource": resource.plural });
    let mut request = json!({
        "uid": meta::uid(&mut dice), "kind": kind, "resource": plural, "requestKind": kind, "requestResource": plural,
        "name": name, "operation": operation.as_str(), "userInfo": { "username": ask.caller.user, "groups": ask.caller.groups },
        "object": object, "oldObject": old, "dryRun": dry_run(ask), "options": null,
    });
    if resource.namespaced {
        request["namespace"] = json!(ask.namespace());
    }
    if !ask.subresource().is_empty() {
        request["subResource"] = json!(ask.subresource());
        request["requestSubResource"] = json!(ask.subresource());
    }
    let ca = hook["clientConfig"]["caBundle"].as_str().and_then(|c| STANDARD.decode(c).ok()).unwrap_or_default();
    Call {
        id: CallId::default(),
        webhook: hook["name"].as_str().unwrap_or_default().to_owned(),
        url: url(hook),
        ca,
        review: json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request }),
        timeout: Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(10)),
        lost,
    }
}
