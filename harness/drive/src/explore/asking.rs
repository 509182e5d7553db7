//! Draws what a user says in the API's own words: members of a cluster that is made, and requests for which there is no action.
//!
//! What there can be is read from the API's schema, so that a new member or operation takes part by itself. Values that mean something to the
//! service are in a table; what has none there gets a plain one of its kind.

use serde_json::{Map, Value, json};
use vlab_api::requests::{About, USER_REQUESTS, UserRequest, Wants};
use vlab_api::spec::{FieldKind, FieldLimit, FieldSpec, StructSpec};
use vlab_api::types::{ClusterValidationId, HostValidationId};
use vlab_scenario::params_of_a_cluster;

use super::base::Base;
use super::scenario::index;
use super::tape::Draw;

/// Values by the member's name, the plainest first, as JSON. Those that the service must refuse come last.
const VALUES: &[(&str, &[&str])] = &[
    ("additional_ntp_source", &[r#""ntp.lab.example""#, r#""not a name""#]),
    ("additional_ntp_sources", &[r#""ntp.lab.example""#, r#""not a name""#]),
    (
        "api_vips",
        &[r#"[{"ip": "192.168.126.100"}]"#, r#"[{"ip": "192.168.126.200"}]"#, r#"[{"ip": "10.0.0.1"}]"#, "[]"],
    ),
    ("args", &[r#"["--append-karg", "lab=1"]"#, "[]", r#"["--no-such-thing"]"#]),
    ("base_dns_domain", &[r#""other.example""#, r#""not a domain""#]),
    ("cidr", &[r#""10.128.0.0/14""#, r#""192.168.126.0/24""#, r#""fd01::/48""#, r#""10.1.2.3""#]),
    (
        "cluster-validation-ids",
        &[r#""[]""#, r#""[\"all\"]""#, r#""[\"ntp-server-configured\"]""#, r#""[\"none such\"]""#],
    ),
    ("cluster_network_cidr", &[r#""10.128.0.0/14""#, r#""192.168.126.0/24""#, r#""no network""#]),
    ("config", &[r#""{\"ignition\": {\"version\": \"3.1.0\"}}""#, r#""""#, r#""not json""#]),
    ("content", &[r#""YTogYgo=""#, r#""not base64""#]),
    ("control_plane_count", &["3", "1", "5", "2", "4"]),
    ("cpu_architecture", &[r#""x86_64""#, r#""arm64""#]),
    ("disk_id", &[r#""/dev/disk/by-id/none""#, r#""""#]),
    ("file_name", &[r#""a.yaml""#, r#""b.yml""#, r#""a.txt""#, r#""../a.yaml""#]),
    ("host-validation-ids", &[r#""[]""#, r#""[\"all\"]""#, r#""[\"ntp-synced\"]""#, r#""[\"none such\"]""#]),
    ("host_name", &[r#""renamed""#, r#""localhost""#, r#""Not A Name""#]),
    ("host_prefix", &["23", "24", "64"]),
    ("http_proxy", &[r#""http://proxy.lab.example:3128""#, r#""""#, r#""proxy""#]),
    ("https_proxy", &[r#""http://proxy.lab.example:3128""#, r#""""#, r#""proxy""#]),
    ("ignition_config_override", &[r#""{\"ignition\": {\"version\": \"3.1.0\"}}""#, r#""not json""#]),
    ("ingress_vips", &[r#"[{"ip": "192.168.126.101"}]"#, r#"[{"ip": "192.168.126.201"}]"#, "[]"]),
    ("key", &[r#""lab.example/rack""#, r#""not a key!""#]),
    ("machine_config_pool_name", &[r#""infra""#, r#""""#]),
    ("machine_network_cidr", &[r#""192.168.126.0/24""#, r#""10.0.0.0/24""#, r#""no network""#]),
    ("mode", &[r#""tpmv2""#, r#""tang""#]),
    ("name", &[r#""other""#, r#""Not a name""#]),
    ("no_proxy", &[r#""lab.example""#, r#""*""#, r#""a b""#]),
    ("ntp_sources", &[r#""ntp.lab.example""#, r#""not a name""#]),
    (
        "olm_operators",
        &[
            r#"[{"name": "lso"}]"#,
            r#"[{"name": "lvm"}]"#,
            "[]",
            r#"[{"name": "cnv"}]"#,
            r#"[{"name": "mce"}]"#,
            r#"[{"name": "none"}]"#,
        ],
    ),
    ("openshift_version", &[r#""4.18""#, r#""4.19""#, r#""3.11""#]),
    ("operator_bundles", &["[]"]),
    ("pull_secret", &[r#""{\"auths\": {\"a.example\": {\"auth\": \"YTpi\"}}}""#, r#""not json""#]),
    ("service_network_cidr", &[r#""172.30.0.0/16""#, r#""192.168.126.0/24""#, r#""no network""#]),
    ("ssh_authorized_key", &[r#""""#, r#""no key""#]),
    ("ssh_public_key", &[r#""""#, r#""no key""#]),
    ("tags", &[r#""a,b""#, r#""a,,b""#]),
    ("tang_servers", &[r#""[{\"url\": \"http://tang.lab.example\", \"thumbprint\": \"x\"}]""#, r#""""#]),
    ("updated_content", &[r#""YTogYwo=""#, r#""not base64""#]),
    ("updated_file_name", &[r#""b.yml""#, r#""c.txt""#]),
    ("value", &[r#""1""#, r#""not a value!""#]),
];

/// Values of what is no object: by the operation's id.
const TEXTS: &[(&str, &[&str])] = &[
    (
        "v2UpdateClusterInstallConfig",
        &[r#"{"fips": true}"#, r#"{"networking": {"networkType": "OVNKubernetes"}}"#, "not json", r#"{"none": 1}"#],
    ),
    ("V2UpdateClusterUISettings", &["a", ""]),
];

/// What is drawn from tables here that may grow: the same tape means something else then.
pub(super) fn tables() -> impl Iterator<Item = &'static str> {
    let members = params_of_a_cluster().into_iter().map(|field| field.name);
    let values = VALUES.iter().chain(TEXTS).flat_map(|(_, values)| values.iter().copied());
    USER_REQUESTS.iter().map(|request| request.id).chain(members).chain(values)
}

/// One of these members; a swarm leaves some of them out.
fn member(draw: &mut Draw<'_>, fields: &[&'static FieldSpec]) -> Option<&'static FieldSpec> {
    draw.pick_kind("member", fields)
}

fn one<'a, T: ?Sized>(draw: &mut Draw<'_>, label: &'static str, list: &[&'a T]) -> Option<&'a T> {
    // Those that come first are drawn more often: what is refused tells less than what is taken.
    draw.early(label, list)
}

fn value_of(draw: &mut Draw<'_>, name: &str, kind: &FieldKind, limits: &[FieldLimit], depth: usize) -> Value {
    if let Some((_, texts)) = VALUES.iter().find(|(known, _)| *known == name) {
        let text = one(draw, "value", texts).unwrap_or("null");
        // The table is JSON: a test reads it.
        return serde_json::from_str(text).unwrap_or_default();
    }
    if let Some(FieldLimit::OneOf(words)) = limits.iter().find(|limit| matches!(limit, FieldLimit::OneOf(_))) {
        return one(draw, "word", words).map_or(Value::Null, Value::from);
    }
    match kind {
        FieldKind::String | FieldKind::Any => json!("x"),
        FieldKind::Uuid => json!("00000000-0000-4000-8000-000000000001"),
        FieldKind::DateTime => json!("2030-01-01T00:00:00.000Z"),
        FieldKind::Integer | FieldKind::Number => json!(1 + draw.choose("number", 4)),
        FieldKind::Bool => json!(!draw.chance("no", 50)),
        FieldKind::Enum(words) => one(draw, "word", words).map_or(Value::Null, Value::from),
        FieldKind::Object(spec) => object(draw, spec, depth + 1),
        FieldKind::Array(inner) if draw.chance("something in it", 70) => {
            Value::Array(vec![value_of(draw, "", inner, &[], depth + 1)])
        }
        FieldKind::Array(_) => json!([]),
        FieldKind::Map(_) => json!({}),
    }
}

/// An object with what must be there, and one to three members more.
fn object(draw: &mut Draw<'_>, spec: &'static StructSpec, depth: usize) -> Value {
    let mut members = Map::new();
    for field in spec.fields.iter().filter(|field| field.required) {
        members.insert(field.name.to_owned(), value_of(draw, field.name, &field.kind, field.checks, depth));
    }
    let fields: Vec<&'static FieldSpec> = spec.fields.iter().filter(|field| !field.required).collect();
    let more = if depth > 2 { 0 } else { 1 + draw.choose("more members", 3) };
    for _ in 0..more {
        if let Some(field) = member(draw, &fields) {
            members.insert(field.name.to_owned(), value_of(draw, field.name, &field.kind, field.checks, depth));
        }
    }
    Value::Object(members)
}

/// Members of a cluster that is made: `, params: {..}`, or nothing.
pub(super) fn params(draw: &mut Draw<'_>) -> String {
    if !draw.chance("further members", 25) {
        return String::new();
    }
    let fields = params_of_a_cluster();
    let mut members = Map::new();
    for _ in 0..=draw.choose("how many members", 2) {
        if let Some(field) = member(draw, &fields) {
            members.insert(field.name.to_owned(), value_of(draw, field.name, &field.kind, field.checks, 0));
        }
    }
    if members.is_empty() { String::new() } else { format!(", params: {}", Value::Object(members)) }
}

/// Members of the infra-env: the same as a part of a scenario, or nothing.
pub(super) fn infra_env(draw: &mut Draw<'_>) -> String {
    if !draw.chance("an infra-env of its own", 15) {
        return String::new();
    }
    let kinds = ["image_type: full-iso", "kernel_arguments: [lab=1]", "additional_ntp_sources: [ntp.lab.example]"];
    one(draw, "what of the infra-env", &kinds).map_or(String::new(), |text| format!("infra_env: {{{text}}}\n"))
}

/// A request: what it is about, and what it says. `after`: one of those about the same thing as that one.
pub(super) fn request(
    draw: &mut Draw<'_>,
    base: &Base,
    after: Option<&UserRequest>,
) -> Option<(String, &'static UserRequest)> {
    let can = |request: &&UserRequest| match request.about {
        About::Cluster | About::InfraEnv => !base.clusters.is_empty(),
        About::Host => !base.hosts.is_empty(),
        About::Service => true,
    };
    let of_it = |request: &&UserRequest| after.is_none_or(|after| thing(after) == thing(request));
    let all: Vec<&'static UserRequest> = USER_REQUESTS.iter().filter(can).filter(of_it).collect();
    let request = draw.pick_kind("operation", &all)?;
    let mut text = format!("operation: {}", request.id);
    match request.about {
        About::Service => {}
        About::Cluster | About::InfraEnv => {
            let at = index(draw, "cluster", base.clusters.len());
            text.push_str(&format!(", cluster: {}", base.clusters[at].0));
        }
        About::Host => {
            let at = index(draw, "host", base.hosts.len());
            text.push_str(&format!(", host: {}", base.hosts[at]));
        }
    }
    let mut with = Map::new();
    for parameter in request.with {
        if parameter.needed || draw.chance("says it", 30) {
            let validations: Vec<&str> =
                HostValidationId::NAMES.iter().chain(ClusterValidationId::NAMES).copied().collect();
            let words: &[&str] = match (parameter.words, parameter.name) {
                ([], "validation_id") => &validations,
                ([], "operator_name") => &["lvm", "lso", "none"],
                ([], _) => &["a.yaml", "b.yml", "none.yaml"],
                (words, _) => words,
            };
            with.insert(parameter.name.to_owned(), one(draw, "parameter", words)?.into());
        }
    }
    if !with.is_empty() {
        text.push_str(&format!(", with: {}", Value::Object(with)));
    }
    let body = match request.body {
        Wants::Nothing => None,
        Wants::Object(spec) => Some(object(draw, spec, 0)),
        Wants::Text => {
            let (_, texts) = TEXTS.iter().find(|(id, _)| *id == request.id).unwrap_or(&("", &["x"]));
            Some(one(draw, "text", texts)?.into())
        }
    };
    if let Some(body) = body {
        text.push_str(&format!(", body: {body}"));
    }
    Some((text, request))
}

/// What a request is about, by its path: `/clusters/{cluster}/manifests` of all requests for manifests.
fn thing(request: &UserRequest) -> &'static str {
    let most = if request.about == About::Host { 5 } else { 3 };
    let end = request.path.match_indices('/').nth(most).map_or(request.path.len(), |(at, _)| at);
    &request.path[..end]
}

#[cfg(test)]
mod tests {
    use vlab_scenario::Catalogue;

    use super::*;

    #[test]
    fn the_values_are_json_and_of_members_that_there_are() {
        let mut names = std::collections::BTreeSet::new();
        for entry in vlab_api::registry::OBJECTS {
            names.extend(entry.spec.fields.iter().map(|field| field.name));
        }
        for (name, values) in VALUES {
            assert!(names.contains(name), "no object has a member {name}");
            for value in *values {
                serde_json::from_str::<Value>(value).unwrap_or_else(|error| panic!("{name}: {value}: {error}"));
            }
        }
        assert!(VALUES.is_sorted_by(|a, b| a.0 <= b.0) && TEXTS.iter().all(|(id, _)| wants_text(id)));
    }

    fn wants_text(id: &str) -> bool {
        matches!(vlab_api::requests::user_request(id).unwrap().body, Wants::Text)
    }

    /// Whatever is drawn, the language takes it: the schema is the same.
    #[test]
    fn what_is_drawn_is_taken_by_the_language() {
        let catalogue = Catalogue::embedded();
        let base = Base::new(&catalogue.find("ha-3-2").unwrap(), &catalogue).unwrap();
        let mut operations = std::collections::BTreeSet::new();
        for seed in 0..400 {
            let mut draw = Draw::go_on(&[], seed, None);
            let (params, infra_env) = (params(&mut draw), infra_env(&mut draw));
            let (request, _) = request(&mut draw, &base, None).unwrap();
            let cluster = "topology: ha, api_vips: [192.168.126.100], ingress_vips: [192.168.126.101]";
            let text = format!(
                "version: 1\nname: t\n{infra_env}cluster: {{name: ha, {cluster}{params}}}\nhosts:\n- {{name: master, count: 3, role: master}}\n\
                 - {{name: worker, count: 2, role: worker}}\nactions:\n- {{do: request, {request}, at: 5m}}\n"
            );
            let source = vlab_scenario::SourceFile::new("t.yaml", text.clone());
            let scenario = vlab_scenario::load(&source, &catalogue).unwrap_or_else(|error| panic!("{error}\n{text}"));
            operations.insert(scenario.actions[0].request.as_ref().unwrap().operation);
        }
        assert_eq!(operations.len(), USER_REQUESTS.len());
    }
}
