//! Answers: the two shapes of errors, and small helpers for the rest.

use serde_json::json;
use vlab_api::http::Response;

use crate::refusal::{Reason, Refusal};

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fail {
    /// Refused by a command: `{"kind":"Error","id":…,"href":"","code":"…","reason":"…"}`.
    Error(u16, String),
    /// Refused before a command saw it: `{"code":…,"message":"…"}`.
    Infra(u16, String),
}

/// What an operation returns.
pub(super) type RestResult = Result<Response, Fail>;

impl From<Refusal> for Fail {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal.reason {
            Reason::Invalid => 400,
            Reason::NotFound => 404,
            Reason::Conflict => 409,
            Reason::Unprocessable => 422,
            Reason::Internal => 500,
            Reason::NotBuilt => 501,
        };
        Fail::Error(code, refusal.text)
    }
}

impl Fail {
    pub(super) fn into_response(self) -> Response {
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
pub(super) fn attachment(name: &str, bytes: &[u8]) -> Response {
    let mut response = Response::empty(200)
        .header("content-type", "application/octet-stream")
        .header("content-disposition", format!("attachment; filename=\"{name}\""));
    response.body = bytes.to_vec().into();
    response
}
