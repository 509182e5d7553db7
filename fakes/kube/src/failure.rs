//! What went wrong, as the `Status` object that clients of Kubernetes read.

use serde_json::{Value, json};
use vlab_api::http::Response;

/// One thing that is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// `FieldValueInvalid` and the like.
    pub reason: &'static str,
    /// The path of the field, `spec.images[0]`.
    pub field: String,
    /// What is wrong, without the path.
    pub message: String,
}

impl Cause {
    /// A field that must be there.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Self { reason: "FieldValueRequired", field: field.into(), message }
    }

    /// A value that is not allowed there.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            field: field.into(),
            message: format!("Invalid value: {}: {detail}", shown(value)),
        }
    }

    /// A value of the wrong type.
    pub fn mistyped(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self { reason: "FieldValueTypeInvalid", ..Self::invalid(field, value, detail) }
    }

    /// Something that may not be done.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self { reason: "FieldValueForbidden", field: field.into(), message: format!("Forbidden: {detail}") }
    }

    /// The same value twice.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            reason: "FieldValueDuplicate",
            field: field.into(),
            message: format!("Duplicate value: {}", shown(value)),
        }
    }

    /// A value that is none of the allowed ones.
    pub fn unsupported(field: impl Into<String>, value: &Value, allowed: &[String]) -> Self {
        let allowed: Vec<String> = allowed.iter().map(|a| format!("{a:?}")).collect();
        Self {
            reason: "FieldValueNotSupported",
            field: field.into(),
            message: format!("Unsupported value: {}: supported values: {}", shown(value), allowed.join(", ")),
        }
    }

    /// A text that is too long.
    pub fn too_long(field: impl Into<String>, most: u64) -> Self {
        Self {
            reason: "FieldValueTooLong",
            field: field.into(),
            message: format!("Too long: may not be more than {most} bytes"),
        }
    }

    /// A list or map with too many entries.
    pub fn too_many(field: impl Into<String>, actual: usize, most: u64) -> Self {
        let items = if most == 1 { "item" } else { "items" };
        Self {
            reason: "FieldValueTooMany",
            field: field.into(),
            message: format!("Too many: {actual}: must have at most {most} {items}"),
        }
    }
}

/// How a value is shown in a message: texts in quotes, the rest as JSON.
fn shown(value: &Value) -> String {
    value.to_string()
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The HTTP status.
    pub code: u16,
    /// The machine-readable reason, `NotFound`.
    pub reason: &'static str,
    /// The text for people.
    pub message: String,
    /// `details` of the status object; null when there are none.
    pub details: Value,
    /// The answer is the message as plain text, and no status object.
    pub as_text: bool,
}

/// What a message names: `infraenvs.agent-install.openshift.io`.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The API group, empty for the core.
    pub group: &'a str,
    /// The plural (or, in `Invalid`, the kind).
    pub resource: &'a str,
    /// The object's name.
    pub name: &'a str,
}

impl Subject<'_> {
    fn qualified(&self) -> String {
        if self.group.is_empty() { self.resource.to_owned() } else { format!("{}.{}", self.resource, self.group) }
    }

    fn details(&self) -> Value {
        let mut details = json!({ "name": self.name });
        if self.name.is_empty() {
            details = json!({});
        }
        if !self.group.is_empty() {
            details["group"] = json!(self.group);
        }
        if !self.resource.is_empty() {
            details["kind"] = json!(self.resource);
        }
        details
    }
}

impl Failure {
    /// A failure without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null, as_text: false }
    }

    /// An error without a reason that clients could read, as the real server has where it did not expect one.
    pub fn unexpected(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// 404: no group, version or page of that name.
    pub fn no_such_page() -> Self {
        Self { as_text: true, ..Self::new(404, "NotFound", "404 page not found\n") }
    }

    /// 422: parameters of the request (`CreateOptions` and so on) are wrong.
    pub fn invalid_options(kind: &str, causes: Vec<Cause>) -> Self {
        Self::invalid(Subject { group: "meta.k8s.io", resource: kind, name: "" }, causes)
    }

    /// 400: the request cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 404: no such object.
    pub fn not_found(subject: Subject<'_>) -> Self {
        let message = format!("{} {:?} not found", subject.qualified(), subject.name);
        Self { details: subject.details(), ..Self::new(404, "NotFound", message) }
    }

    /// 404: nothing is served at that path.
    pub fn no_such_path() -> Self {
        Self { details: json!({}), ..Self::new(404, "NotFound", "the server could not find the requested resource") }
    }

    /// 401: nobody knows who asks.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 409: the name is taken.
    pub fn already_exists(subject: Subject<'_>) -> Self {
        let message = format!("{} {:?} already exists", subject.qualified(), subject.name);
        Self { details: subject.details(), ..Self::new(409, "AlreadyExists", message) }
    }

    /// 409: somebody else was quicker.
    pub fn conflict(subject: Subject<'_>, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {:?}: {why}", subject.qualified(), subject.name);
        Self { details: subject.details(), ..Self::new(409, "Conflict", message) }
    }

    /// 409: the object is not the one that was read.
    pub fn modified(subject: Subject<'_>) -> Self {
        Self::conflict(
            subject,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 403: not allowed.
    pub fn forbidden(subject: Subject<'_>, why: &str) -> Self {
        let name = if subject.name.is_empty() { String::new() } else { format!(" {:?}", subject.name) };
        let message = format!("{}{name} is forbidden: {why}", subject.qualified());
        Self { details: subject.details(), ..Self::new(403, "Forbidden", message) }
    }

    /// 422: fields are wrong. `subject.resource` is the kind here.
    pub fn invalid(subject: Subject<'_>, causes: Vec<Cause>) -> Self {
        let text =
            |c: &Cause| if c.field.is_empty() { c.message.clone() } else { format!("{}: {}", c.field, c.message) };
        let mut texts: Vec<String> = Vec::new();
        for text in causes.iter().map(text) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let joined = if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
        let message = format!("{} {:?} is invalid: {joined}", subject.qualified(), subject.name);
        let mut details = subject.details();
        details["causes"] = causes
            .iter()
            .map(|c| {
                let mut cause = json!({ "reason": c.reason, "message": c.message });
                if !c.field.is_empty() {
                    cause["field"] = json!(c.field);
                }
                cause
            })
            .collect();
        Self { details, ..Self::new(422, "Invalid", message) }
    }

    /// 405: the resource has no such verb.
    pub fn method_not_allowed() -> Self {
        Self {
            details: json!({}),
            ..Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        }
    }

    /// 415: a body in a form that is not read here.
    pub fn unsupported_media(accepted: &str) -> Self {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 415: a patch in a form that there is not.
    pub fn unsupported_patch() -> Self {
        Self { details: json!({}), ..Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type") }
    }

    /// 410: that resource version is gone.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 500.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let message = format!("Internal error occurred: {message}");
        let details = json!({ "causes": [{ "message": message.trim_start_matches("Internal error occurred: ") }] });
        Self { details, ..Self::new(500, "InternalError", message) }
    }

    /// 500: an admission webhook that must be asked was not, and why.
    pub fn webhook(name: &str, why: &str) -> Self {
        Self::internal(format!("failed calling webhook {name:?}: failed to call webhook: {why}"))
    }

    /// The status object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status["code"] = json!(self.code);
        status
    }

    /// The answer.
    pub fn response(&self) -> Response {
        if self.as_text {
            let plain = Response::empty(self.code).header("content-type", "text/plain; charset=utf-8");
            return Response { body: self.message.clone().into_bytes().into(), ..plain };
        }
        let response = Response::json(self.code, &self.status());
        match self.details.get("retryAfterSeconds") {
            Some(seconds) => response.header("retry-after", seconds.to_string()),
            None => response,
        }
    }
}
