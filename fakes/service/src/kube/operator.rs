//! The hub's operator for bare metal. Its version decides whether service and metal3 share hosts (the *converged flow*); the service asks
//! for it once, when its controllers begin.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use semver::Version;
use serde_json::{Value, json};
use vlab_api::http::{Method, Request, Response};

use super::client::Kind;
use super::object::text;

/// Where operators say what they are.
const OPERATORS: &str = "/apis/config.openshift.io/v1/clusteroperators";
/// The one for bare metal.
const NAME: &str = "baremetal";
/// From this version on it shares hosts with the service.
const FIRST: &str = "4.12.0-0.alpha";
/// Where the operator has what is its own.
const NAMESPACE: &str = "openshift-machine-api";
/// The Secret in which it says what images of hosts are to know of metal3.
pub(super) const ABOUT_IRONIC: &str = "openshift-machine-api/metal3-image-customization-config";
/// Members of that Secret: where metal3 is asked, where hosts say what they have, and the image of the agent on hosts.
pub(super) const IRONIC_URL: &str = "IRONIC_BASE_URL";
pub(super) const INSPECTOR_URL: &str = "IRONIC_INSPECTOR_BASE_URL";
pub(super) const IRONIC_IMAGE: &str = "IRONIC_AGENT_IMAGE";

/// The question for the operator.
pub(super) fn question() -> Request {
    Request::new(Method::Get, format!("{OPERATORS}/{NAME}"))
}

/// What its answer means; that there was none is an answer, too.
pub(super) fn says_converged(answer: Result<&Response, &String>) -> bool {
    let operator = answer.ok().filter(|response| response.is_success()).and_then(|response| response.decode().ok());
    let operator: Value = operator.unwrap_or_default();
    is_converged(text(&operator["status"]["versions"][0]["version"]))
}

/// Does a service on a hub whose operator for bare metal has that version share hosts with metal3?
pub fn is_converged(version: &str) -> bool {
    let at_least = |first: Version| read(version).is_some_and(|version| version.cmp_precedence(&first).is_ge());
    read(FIRST).is_some_and(at_least)
}

/// A semantic version; its last numbers may be missing.
fn read(text: &str) -> Option<Version> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (numbers, rest) = text.split_at(end);
    let missing = 2_usize.saturating_sub(numbers.matches('.').count());
    Version::parse(&format!("{numbers}{}{rest}", ".0".repeat(missing))).ok()
}

/// What a hub has whose operator for bare metal has that version, as requests in their order; what is there already is refused. Addresses
/// and image are of ranges and domains for documentation: nobody is asked there.
pub fn operator(version: &str) -> Vec<Request> {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    let data: serde_json::Map<String, Value> = [
        (IRONIC_URL, "https://192.0.2.10:6385"),
        (INSPECTOR_URL, "https://192.0.2.10:5050"),
        (IRONIC_IMAGE, "registry.example.com/ironic-agent:1"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), json!(STANDARD.encode(value))))
    .collect();
    let (_, name) = ABOUT_IRONIC.split_once('/').unwrap_or_default();
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "data": data,
                         "metadata": { "name": name, "namespace": NAMESPACE } });
    let status = json!({ "versions": [{ "name": "operator", "version": version }] });
    // Where the definition has no status of its own, it is made with it.
    let operator = json!({ "apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator", "spec": {},
                           "metadata": { "name": NAME }, "status": status });
    let status = json!({ "status": status });
    let mut says = Request::new(Method::Patch, format!("{OPERATORS}/{NAME}/status"));
    says.body = status.to_string().into_bytes().into();
    vec![
        Request::new(Method::Post, "/api/v1/namespaces").json(&namespace),
        Request::new(Method::Post, Kind::Secret.path_in(NAMESPACE)).json(&secret),
        Request::new(Method::Post, OPERATORS).json(&operator),
        says.header("content-type", "application/merge-patch+json"),
    ]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("4.12.0-0.alpha", true)]
    #[case("4.12.0-0.nightly-2022-09-01-010203", true)]
    #[case("4.12.0-ec.1", true)]
    #[case("4.12.0", true)]
    #[case("4.12", true)]
    #[case("v4.20.3", true)]
    #[case("5.0.0-1", true)]
    #[case("4.12.0-0", false)]
    #[case("4.12.0-0.0", false)]
    #[case("4.11.0-0.nightly-2022-06-15-222801", false)]
    #[case("4.9.59", false)]
    #[case("", false)]
    #[case("newest", false)]
    #[case("4.12.0.1", false)]
    fn the_operators_version_decides(#[case] version: &str, #[case] converged: bool) {
        assert_eq!(is_converged(version), converged);
    }

    #[test]
    fn whoever_gives_no_version_does_not_share() {
        let answer = |status: u16, body: &Value| Response { status, ..Response::json(200, body) };
        let good = json!({ "status": { "versions": [{ "name": "operator", "version": "4.20.0" }] } });
        assert!(says_converged(Ok(&answer(200, &good))));
        assert!(!says_converged(Ok(&answer(404, &good))));
        assert!(!says_converged(Ok(&answer(200, &json!({ "status": { "versions": [] } })))));
        assert!(!says_converged(Err(&"no answer".to_owned())));
    }
}
