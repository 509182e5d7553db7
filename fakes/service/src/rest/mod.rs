//! The service over REST: from a request to its command and back. What is decided is decided in `commands`; here requests are parsed
//! and what came of them is shown, with the framework's answers for requests that reach no command (404, 405, 415, bad ids, bad
//! query values).
//!
//! * `routes` is the table of operations. `body` and `answer` are the words for requests that are wrong.
//! * The other modules have an operation each as a function of a `RestCall`.

mod agents;
mod answer;
mod body;
mod catalog;
mod clusters;
mod events;
mod files;
mod hosts;
mod infra_envs;
mod install;
mod logs;
mod manifests;
mod operators;
pub(crate) mod routes;
pub(crate) mod wrong;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request, Response};
use vlab_api::spec::WireObject;

use self::answer::{Fail, RestResult};
use self::routes::{Query, ROUTES, Route};
use crate::alteration::Alteration;
use crate::state::HostKey;
use crate::{Core, go};

/// Path under which everything lives; `/v2` follows.
const ROOT: &str = "/api/assisted-install";

/// A request on its way to its operation.
struct RestCall<'a> {
    core: &'a mut Core,
    now: Timestamp,
    request: &'a Request,
    /// Ids in the path, in order.
    ids: [Uuid; 2],
    /// The same as the key of a host, for paths that have one.
    host: HostKey,
    /// Other variable parts of the path.
    word: String,
    /// Query parameters; of repeated ones the last.
    query: Vec<(String, String)>,
}

impl RestCall<'_> {
    /// Value of a query parameter.
    fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Is the query parameter there and true? A word that is neither true nor false counts as false.
    fn query_flag(&self, name: &str) -> bool {
        self.query(name).is_some_and(|v| truth(v) == Some(true))
    }

    /// Value of a query parameter that was checked to be an id.
    fn query_id(&self, name: &str) -> Option<Uuid> {
        self.query(name).and_then(go::parse_uuid)
    }

    /// Values of a comma-separated query parameter.
    fn query_list(&self, name: &str) -> Option<Vec<String>> {
        let text = self.query(name)?;
        Some(text.split(',').map(|w| w.trim().to_owned()).filter(|w| !w.is_empty()).collect())
    }

    /// The body as an object of the API.
    fn body<T: WireObject + serde::de::DeserializeOwned>(&self, param: &str) -> Result<T, Fail> {
        body::body(&self.request.body, param, self.core.config.settings.enable_reject_unknown_fields)
    }

    /// The same of what a host or its installer reports. In memory it is the object already, and of the right form: these are
    /// read thousands of times in a run, and no user writes them.
    fn report<T: WireObject + serde::de::DeserializeOwned + Clone + 'static>(&self, param: &str) -> Result<T, Fail> {
        match self.request.body.as_object::<T>() {
            Some(report) => Ok(report.clone()),
            None => self.body(param),
        }
    }

    /// The body as one JSON string.
    fn text_body(&self, param: &str) -> Result<String, Fail> {
        body::string_body(&self.request.body, param)
    }
}

impl Core {
    /// Answers a request. Everything under the API's base path is known here; any other path is answered 404.
    pub fn handle(&mut self, now: Timestamp, request: &Request) -> Response {
        let now = self.begin(now);
        let mut operation = "";
        let response = answer(self, now, request, &mut operation).unwrap_or_else(Fail::into_response);
        self.state.end_unit();
        let response = match self.config.alteration {
            Some(Alteration::Answer(of, how)) if of == operation => self.answers.alter(how, request, response),
            _ => response,
        };
        self.answered.insert((operation, response.status));
        response
    }
}

fn answer(core: &mut Core, now: Timestamp, request: &Request, operation: &mut &'static str) -> RestResult {
    let (path, query) = request.split_path();
    let unknown = || Fail::Infra(404, format!("path {path} was not found"));
    let below = path.strip_prefix(ROOT).ok_or_else(unknown)?;
    if below == "/openapi" || below == "/v2/openapi" {
        return if request.method == Method::Get {
            Ok(Response::json(200, &schema()))
        } else {
            Err(Fail::Infra(405, format!("method {} is not allowed, but [GET] are", request.method)))
        };
    }
    let segments: Vec<&str> = below.split('/').skip(1).collect();
    let Some(route) = matching(&segments).find(|r| r.method == request.method) else {
        let of_path = |route: &&Route| matching(&segments).any(|other| std::ptr::eq(*route, other));
        let allowed: Vec<&str> = ROUTES.iter().filter(of_path).map(|r| r.method.as_str()).collect();
        return Err(if allowed.is_empty() {
            unknown()
        } else {
            Fail::Infra(405, format!("method {} is not allowed, but [{}] are", request.method, allowed.join(",")))
        });
    };
    *operation = route.operation;
    check_media(route, request)?;
    let (ids, word) = path_parts(route, &segments)?;
    let query: Vec<(String, String)> = parse_query(query);
    let mut call = RestCall { core, now, request, ids, host: (ids[0], ids[1]), word, query };
    for parameter in route.query {
        check_query(&call, parameter)?;
    }
    call.core.state.request_id = request.get_header("x-request-id").and_then(go::parse_uuid);
    (route.handler)(&mut call)
}

/// Kinds of content that the operation neither takes nor gives.
fn check_media(route: &Route, request: &Request) -> Result<(), Fail> {
    if let Some(kind) = request.get_header("content-type")
        && !request.body.is_empty()
        && !kind.starts_with("application/json")
        && route.operation != "V2UploadLogs"
    {
        // 400 and not 415: so the real service says it.
        return Err(Fail::Infra(
            400,
            format!("unsupported media type {}, only [application/json] are allowed", go::quote(kind)),
        ));
    }
    if let Some(kinds) = request.get_header("accept")
        && !kinds.split(',').any(|k| acceptable(k.split(';').next().unwrap_or(k).trim()))
    {
        return Err(Fail::Infra(
            400,
            "unsupported media type requested, only [application/json] are available".to_owned(),
        ));
    }
    Ok(())
}

/// The variable parts of a path: its ids in order, and the word.
fn path_parts(route: &Route, segments: &[&str]) -> Result<([Uuid; 2], String), Fail> {
    let mut ids = [Uuid::nil(); 2];
    let mut next = ids.iter_mut();
    let mut word = String::new();
    for (template, segment) in route.path.split('/').skip(1).zip(segments) {
        let name = match template {
            "{c}" => "cluster_id",
            "{i}" => "infra_env_id",
            "{h}" => "host_id",
            "{word}" => {
                word = decode(segment);
                continue;
            }
            _ => continue,
        };
        let Some(id) = go::parse_uuid(segment) else {
            let text = go::quote(&decode(segment));
            return Err(Fail::Infra(400, format!("{name} in path must be of type uuid: {text}")));
        };
        if let Some(place) = next.next() {
            *place = id;
        }
    }
    Ok((ids, word))
}

/// Does that request bring files, or what a program on a host has written? Its body may be larger than that of others: the
/// inventory of a host with many devices has megabytes.
pub fn takes_files(method: Method, path: &str) -> bool {
    const OPERATIONS: &[&str] =
        &["V2UploadLogs", "V2CreateClusterManifest", "V2UpdateClusterManifest", "v2PostStepReply"];
    let Some(below) = path.split('?').next().unwrap_or(path).strip_prefix(ROOT) else { return false };
    let segments: Vec<&str> = below.split('/').skip(1).collect();
    matching(&segments).any(|route| route.method == method && OPERATIONS.contains(&route.operation))
}

/// The operations with that path, the one with the most fixed parts first: `/clusters/import` before `/clusters/{id}`.
fn matching<'a>(segments: &'a [&'a str]) -> impl Iterator<Item = &'static Route> + 'a {
    type Parts = Vec<&'static str>;
    /// Paths by the number of their parts: every request looks for its own.
    static BY_LENGTH: LazyLock<BTreeMap<usize, Vec<(Parts, &Route)>>> = LazyLock::new(|| {
        let mut routes: BTreeMap<usize, Vec<(Parts, &Route)>> = BTreeMap::new();
        for route in ROUTES {
            let parts: Parts = route.path.split('/').skip(1).collect();
            routes.entry(parts.len()).or_default().push((parts, route));
        }
        let variable = |(parts, _): &(Parts, &Route)| parts.iter().filter(|part| part.starts_with('{')).count();
        routes.values_mut().for_each(|of_length| of_length.sort_by_key(variable));
        routes
    });
    let fits = |part: &str, segment: &str| part == segment || (part.starts_with('{') && !segment.is_empty());
    let of_length = BY_LENGTH.get(&segments.len()).into_iter().flatten();
    of_length.filter(move |(parts, _)| parts.iter().zip(segments).all(|(p, s)| fits(p, s))).map(|(_, route)| *route)
}

/// Can that kind of answer be had? Downloads are bytes, the rest (and their errors) is JSON.
fn acceptable(kind: &str) -> bool {
    matches!(kind, "" | "*/*" | "application/*" | "application/json" | "application/octet-stream")
}

fn parse_query(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|p| !p.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect()
}

/// Undoes percent-encoding; what is no code stays.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let code = || std::str::from_utf8(bytes.get(i + 1..i + 3)?).ok().and_then(|h| u8::from_str_radix(h, 16).ok());
        match bytes[i] {
            b'+' => out.push(b' '),
            b'%' => {
                if let Some(byte) = code() {
                    out.push(byte);
                    i += 3;
                    continue;
                }
                out.push(b'%');
            }
            other => out.push(other),
        }
        i += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" | "1" | "t" | "T" | "yes" | "on" | "ok" => Some(true),
        "false" | "False" | "FALSE" | "0" | "f" | "F" | "no" | "off" => Some(false),
        _ => None,
    }
}

fn check_query(call: &RestCall<'_>, parameter: &Query) -> Result<(), Fail> {
    let bad = |message: String| Err(Fail::Infra(400, message));
    let of_type = |name: &str, kind: &str, value: &str| {
        bad(format!("{name} in query must be of type {kind}: {}", go::quote(value)))
    };
    let value = |name: &str| call.query(name).filter(|v| !v.is_empty());
    use Query::*;
    match *parameter {
        Must(name) | MustBe(name, _) if value(name).is_none() => bad(format!("{name} in query is required")),
        OneOf(name, words) | MustBe(name, words) => match value(name) {
            Some(v) if !words.contains(&v) => bad(body::one_of(name, "query", words)),
            _ => Ok(()),
        },
        Must(_) => Ok(()),
        Int(name) => match value(name) {
            Some(v) if v.parse::<i64>().is_err() => of_type(name, "int64", v),
            _ => Ok(()),
        },
        Id(name) => match value(name) {
            Some(v) if go::parse_uuid(v).is_none() => of_type(name, "uuid", v),
            _ => Ok(()),
        },
        Ids(name) => match call.query_list(name).unwrap_or_default().iter().position(|v| go::parse_uuid(v).is_none()) {
            Some(i) => of_type(&format!("{name}.{i}"), "uuid", &call.query_list(name).unwrap_or_default()[i]),
            None => Ok(()),
        },
        Words(name, words) => {
            match call.query_list(name).unwrap_or_default().iter().position(|v| !words.contains(&v.as_str())) {
                Some(i) => bad(body::one_of(&format!("{name}.{i}"), "query", words)),
                None => Ok(()),
            }
        }
    }
}

/// The operations as a schema: enough for a client to see what exists. The full text of the real schema is not repeated.
fn schema() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let path =
            route.path.replace("{c}", "{cluster_id}").replace("{i}", "{infra_env_id}").replace("{h}", "{host_id}");
        let item = paths.entry(path).or_insert_with(|| json!({}));
        let security: Vec<Value> = route
            .auth
            .chars()
            .map(|letter| {
                let scheme = match letter {
                    'A' => "agentAuth",
                    'Q' => "urlAuth",
                    'I' => "imageAuth",
                    'J' => "imageURLAuth",
                    'W' => "watcherAuth",
                    _ => "userAuth",
                };
                json!({ scheme: [] })
            })
            .collect();
        item[route.method.as_str().to_ascii_lowercase()] =
            json!({"operationId": route.operation, "security": security});
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "AssistedInstall (simulated)", "version": "1.0.0"},
        "basePath": ROOT,
        "consumes": ["application/json"],
        "produces": ["application/json"],
        "paths": paths,
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_api::http::Method;

    use super::takes_files;

    #[rstest]
    #[case::the_reply_to_a_step(Method::Post, "/v2/infra-envs/1/hosts/2/instructions", true)]
    #[case::asking_for_steps(Method::Get, "/v2/infra-envs/1/hosts/2/instructions", false)]
    #[case::logs(Method::Post, "/v2/clusters/1/logs", true)]
    #[case::a_manifest(Method::Post, "/v2/clusters/1/manifests", true)]
    #[case::a_cluster(Method::Post, "/v2/clusters", false)]
    fn what_may_be_large(#[case] method: Method, #[case] path: &str, #[case] large: bool) {
        assert_eq!(takes_files(method, &format!("/api/assisted-install{path}")), large);
    }
}
