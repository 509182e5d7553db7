//! The paths of the API: what a request is about.

use std::collections::BTreeMap;

use vlab_api::http::Request;

/// Where the API servers of other clusters are: below `/clusters/NAME`, each as if it were alone.
const MEMBERS: &str = "/clusters/";

/// The cluster that a path is about, and its path there; nothing: the server itself is meant.
pub fn member(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix(MEMBERS)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    (!name.is_empty()).then_some((name, if rest.is_empty() { "/" } else { rest }))
}

/// What a request is about, read from its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// One of the paths that are not resources, `/version`.
    Plain(String),
    /// `/api`.
    LegacyVersions,
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1`, `/apis/GROUP/VERSION`.
    Version {
        /// Empty for the core.
        group: String,
        /// `v1`.
        version: String,
    },
    /// Objects.
    Resource(ResourcePath),
}

/// A path to objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    /// Empty for the core.
    pub group: String,
    /// `v1`.
    pub version: String,
    /// The namespace in the path.
    pub namespace: Option<String>,
    /// The plural.
    pub resource: String,
    /// The name, when it is about one object.
    pub name: Option<String>,
    /// `status`, `scale`, `approval`, `log`, …
    pub subresource: Option<String>,
    /// `/api/v1/watch/…`, the older way to watch.
    pub watch: bool,
}

/// The parameters behind the question mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(BTreeMap<String, Vec<String>>);

impl Query {
    /// Reads them.
    pub(crate) fn parse(text: &str) -> Self {
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in text.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            all.entry(decoded(name)).or_default().push(decoded(value));
        }
        Self(all)
    }

    /// The first value of that name; an empty one counts as none.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(|v| v.first()).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// Is it there as `true` or `1`?
    pub(crate) fn is_set(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1" | "True" | "t"))
    }
}

/// Percent-encoded text as it was meant; `+` is a space.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |b: Option<&u8>| b.and_then(|b| char::from(*b).to_digit(16));
        match (bytes[at], hex(bytes.get(at + 1)), hex(bytes.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                at += 3;
            }
            (b'+', ..) => {
                out.push(b' ');
                at += 1;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Splits a request's path into what it is about and its parameters.
pub(crate) fn parse(request: &Request) -> (Target, Query) {
    let (path, query) = request.split_path();
    let parts: Vec<String> =
        path.split('/').filter(|p| !p.is_empty()).map(|p| decoded(&p.replace('+', "%2B"))).collect();
    let words: Vec<&str> = parts.iter().map(String::as_str).collect();
    let target = match words.as_slice() {
        ["api"] => Target::LegacyVersions,
        ["apis"] => Target::Groups,
        ["apis", group] => Target::Group((*group).to_owned()),
        ["api", version] => Target::Version { group: String::new(), version: (*version).to_owned() },
        ["apis", group, version] => Target::Version { group: (*group).to_owned(), version: (*version).to_owned() },
        ["api", version, rest @ ..] => Target::Resource(resource("", version, rest)),
        ["apis", group, version, rest @ ..] => Target::Resource(resource(group, version, rest)),
        _ => Target::Plain(format!("/{}", words.join("/"))),
    };
    (target, Query::parse(query))
}

fn resource(group: &str, version: &str, rest: &[&str]) -> ResourcePath {
    let own = |s: &&str| Some((**s).to_owned());
    let mut path = ResourcePath { group: group.to_owned(), version: version.to_owned(), ..ResourcePath::default() };
    let rest = match rest {
        ["watch", more @ ..] if !more.is_empty() => {
            path.watch = true;
            more
        }
        all => all,
    };
    // `namespaces` is a resource and the way into one: `namespaces/x/status` and `/finalize` are the former.
    let (tail, namespace) = match rest {
        ["namespaces", _, "status" | "finalize"] => (rest, None),
        ["namespaces", namespace, tail @ ..] if !tail.is_empty() => (tail, own(namespace)),
        all => (all, None),
    };
    path.namespace = namespace;
    path.resource = tail.first().map(|s| (*s).to_owned()).unwrap_or_default();
    path.name = tail.get(1).and_then(own);
    if tail.len() > 2 {
        path.subresource = Some(tail[2..].join("/"));
    }
    path
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_api::http::Method;

    use super::*;

    #[rstest]
    #[case("/clusters/edge/api/v1/nodes?limit=1", Some(("edge", "/api/v1/nodes?limit=1")))]
    #[case("/clusters/ns.edge", Some(("ns.edge", "/")))]
    #[case("/clusters/edge?x", Some(("edge", "?x")))]
    #[case("/clusters/", None)]
    #[case("/clusters", None)]
    #[case("/api/v1/clusters/edge", None)]
    fn members(#[case] path: &str, #[case] expected: Option<(&str, &str)>) {
        assert_eq!(member(path), expected);
    }

    #[rstest]
    #[case("/api/v1/namespaces", "", None, "namespaces", None, None)]
    #[case("/api/v1/namespaces/x", "", None, "namespaces", Some("x"), None)]
    #[case("/api/v1/namespaces/x/status", "", None, "namespaces", Some("x"), Some("status"))]
    #[case("/api/v1/namespaces/x/secrets", "", Some("x"), "secrets", None, None)]
    #[case("/apis/a.b/v2/namespaces/x/things/y/status", "a.b", Some("x"), "things", Some("y"), Some("status"))]
    #[case("/apis/a.b/v2/things/y", "a.b", None, "things", Some("y"), None)]
    fn paths(
        #[case] path: &str,
        #[case] group: &str,
        #[case] namespace: Option<&str>,
        #[case] resource: &str,
        #[case] name: Option<&str>,
        #[case] subresource: Option<&str>,
    ) {
        let (target, _) = parse(&Request::new(Method::Get, path));
        let Target::Resource(found) = target else { panic!("{target:?}") };
        assert_eq!(found.group, group);
        assert_eq!(found.namespace.as_deref(), namespace);
        assert_eq!(found.resource, resource);
        assert_eq!(found.name.as_deref(), name);
        assert_eq!(found.subresource.as_deref(), subresource);
    }

    #[test]
    fn parameters() {
        let (target, query) = parse(&Request::new(Method::Get, "/version?a=b%3Dc&watch=true&e="));
        assert_eq!(target, Target::Plain("/version".into()));
        assert_eq!(query.get("a"), Some("b=c"));
        assert!(query.is_set("watch"));
        assert_eq!(query.get("e"), None);
    }
}
