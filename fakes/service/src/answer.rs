//! Answers: the two shapes of errors, and small helpers for the rest.

use serde_json::json;
use vlab_api::http::Response;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fail {
    /// Refused by an operation: `{"kind":"Error","id":…,"href":"","code":"…","reason":"…"}`.
    Error(u16, String),
    /// Refused before an operation saw it: `{"code":…,"message":"…"}`.
    Infra(u16, String),
}

/// What an operation returns.
pub(crate) type Answer = Result<Response, Fail>;

impl Fail {
    pub(crate) fn bad_request(reason: impl Into<String>) -> Self {
        Fail::Error(400, reason.into())
    }
    pub(crate) fn not_found(reason: impl Into<String>) -> Self {
        Fail::Error(404, reason.into())
    }
    pub(crate) fn conflict(reason: impl Into<String>) -> Self {
        Fail::Error(409, reason.into())
    }
    pub(crate) fn internal(reason: impl Into<String>) -> Self {
        Fail::Error(500, reason.into())
    }
    /// The real service does this and the simulated one does not, and says so.
    pub(crate) fn not_built(what: &str) -> Self {
        Fail::Error(501, format!("{what}: not built in the simulated service"))
    }

    /// The text, for events about the refusal.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Fail::Error(_, text) | Fail::Infra(_, text) => text,
        }
    }

    pub(crate) fn into_response(self) -> Response {
        match self {
            Fail::Error(code, reason) => Response::json(
                code,
                &json!({"code": code.to_string(), "href": "", "id": code, "kind": "Error", "reason": reason}),
            ),
            Fail::Infra(code, message) => Response::json(code, &json!({"code": code, "message": message})),
        }
    }
}

/// A file to download.
pub(crate) fn attachment(name: &str, bytes: &[u8]) -> Response {
    let mut response = Response::empty(200)
        .header("content-type", "application/octet-stream")
        .header("content-disposition", format!("attachment; filename=\"{name}\""));
    response.body = bytes.to_vec();
    response
}
