//! A request and a response as plain data, so that the same exchange can go over a socket or stay in memory.

use std::any::Any;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use crate::body::Body;

/// The methods that the API uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// PATCH
    Patch,
    /// DELETE
    Delete,
    /// Anything else: never allowed, answered 405.
    Other,
}

impl Method {
    /// The method's name as on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Other => "OTHER",
        }
    }

    /// The method with that name; [`Method::Other`] for a name that is none of them.
    pub fn from_name(name: &str) -> Self {
        match name {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "PATCH" => Method::Patch,
            "DELETE" => Method::Delete,
            _ => Method::Other,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request. `path` has the query string in it, percent-encoded as on the wire; header names are lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// HTTP method.
    pub method: Method,
    /// Path and query, for example `/api/assisted-install/v2/events?limit=5`.
    pub path: String,
    /// Headers other than those that the transport sets itself (host, content-length, connection).
    pub headers: Vec<(String, String)>,
    /// Body; empty when there is none.
    pub body: Body,
}

impl Request {
    /// A request without headers and body.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: Body::default() }
    }

    /// The same request with a JSON body and its content type.
    pub fn json(mut self, body: &(impl Serialize + ?Sized)) -> Self {
        // Wire types are plain data with string keys: serialising them cannot fail.
        self.body = serde_json::to_vec(body).unwrap_or_default().into();
        self.header("content-type", "application/json")
    }

    /// The same request with an object that is its body, see [`Body`].
    pub fn object<T: Serialize + Any + Send + Sync>(mut self, body: T) -> Self {
        self.body = Body::object(body);
        self.header("content-type", "application/json")
    }

    /// The same request with one more header.
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_ascii_lowercase(), value.into()));
        self
    }

    /// First value of the header with that (lower-case) name.
    pub fn get_header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// The path without the query, and the query without the question mark.
    pub fn split_path(&self) -> (&str, &str) {
        self.path.split_once('?').unwrap_or((&self.path, ""))
    }
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status code, 100 to 599.
    pub status: u16,
    /// Headers; names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body; empty when there is none.
    pub body: Body,
}

impl Response {
    /// An answer without a body.
    pub fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Body::default() }
    }

    /// An answer with a JSON body.
    pub fn json(status: u16, body: &(impl Serialize + ?Sized)) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), "application/json".into())],
            body: serde_json::to_vec(body).unwrap_or_default().into(),
        }
    }

    /// An answer whose body is that object, see [`Body`].
    pub fn object<T: Serialize + Any + Send + Sync>(status: u16, body: T) -> Self {
        Self { status, headers: vec![("content-type".into(), "application/json".into())], body: Body::object(body) }
    }

    /// The same answer with one more header.
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_ascii_lowercase(), value.into()));
        self
    }

    /// First value of the header with that (lower-case) name.
    pub fn get_header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// Is the status 2xx?
    pub const fn is_success(&self) -> bool {
        self.status >= 200 && self.status < 300
    }

    /// The body as a typed object.
    ///
    /// # Errors
    /// When the body is not JSON of that shape.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }
}

fn header<'h>(headers: &'h [(String, String)], name: &str) -> Option<&'h str> {
    headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
}

/// Why a request got no answer at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// Nobody listens there, or the name does not resolve.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The connection ended before the answer was complete.
    #[error("connection lost: {0}")]
    Lost(String),
    /// No answer within the request's budget.
    #[error("no answer within {0:?}")]
    Timeout(std::time::Duration),
}

/// Is that the path of a request to a Kubernetes API server (the hub's, or below `/clusters` one of a cluster's), and not to the service?
pub fn is_for_hub(path: &str) -> bool {
    ["/api/v1/", "/apis/", "/clusters/"].iter().any(|start| path.starts_with(start))
}
