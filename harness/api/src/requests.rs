//! What a user can ask the API for, as data: the operations with their paths, parameters and bodies, and whether a value has the form
//! of a body.
//!
//! [`crate::ops`] has a typed function for what this harness asks itself. A scenario may have its user ask for anything else, and what
//! it wants to send is compared with the API's schema before anything starts.

use serde_json::Value;

use crate::BASE_PATH;
use crate::http::{Method, Request};
use crate::ops::encode_query;
use crate::spec::{FieldKind, FieldLimit, StructSpec, WireObject};
use crate::types::{
    CreateManifestParams, HostIgnitionParams, HostUpdateParams, IgnoredValidations, InfraEnvUpdateParams,
    InstallerArgsParams, UpdateManifestParams, V2ClusterUpdateParams,
};

/// What an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// The service: nothing of a scenario.
    Service,
    /// A cluster.
    Cluster,
    /// The infra-env of a cluster, or of the pool.
    InfraEnv,
    /// A host.
    Host,
}

/// The body of a request.
#[derive(Clone, Copy, Debug)]
pub enum Wants {
    /// None.
    Nothing,
    /// An object.
    Object(&'static StructSpec),
    /// A text, which is sent as a JSON string.
    Text,
}

/// A parameter beside the ids: of the query, or of the path where that has its name in braces.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Must it be there?
    pub needed: bool,
    /// What it can be; empty: any text.
    pub words: &'static [&'static str],
}

/// An operation that a user can ask for.
#[derive(Clone, Copy, Debug)]
pub struct UserRequest {
    /// Its id in the API's schema.
    pub id: &'static str,
    /// HTTP method.
    pub method: Method,
    /// Path below [`BASE_PATH`], with `{cluster}`, `{infra_env}`, `{host}` and parameters in braces.
    pub path: &'static str,
    /// What it is about.
    pub about: About,
    /// Its parameters.
    pub with: &'static [Parameter],
    /// Its body.
    pub body: Wants,
}

const fn needed(name: &'static str, words: &'static [&'static str]) -> Parameter {
    Parameter { name, needed: true, words }
}

const fn may(name: &'static str, words: &'static [&'static str]) -> Parameter {
    Parameter { name, needed: false, words }
}

const fn object<T: WireObject>() -> Wants {
    Wants::Object(const { &T::SPEC })
}

const NOTHING: Wants = Wants::Nothing;
const FOLDERS: &[&str] = &["manifests", "openshift"];
const CREDENTIALS: &[&str] = &["kubeadmin-password", "kubeconfig", "kubeconfig-noingress"];
const LOGS: &[&str] = &["host", "controller", "all", ""];
const IPXE: Parameter = may("ipxe_script_type", &["discovery-image-always", "boot-order-control"]);

macro_rules! requests {
    ($($method:ident $path:literal $id:literal $about:ident [$($with:expr),*] $body:expr;)*) => {
        &[$(UserRequest {
            id: $id, method: Method::$method, path: $path, about: About::$about, with: &[$($with),*], body: $body,
        }),*]
    };
}

/// Operations of a user for which the language of scenarios has no action, in the order of the API's paths.
///
/// Source: `swagger.yaml` of the API. Left out are those that make or remove what a run is about (clusters, infra-envs), and those of
/// agents, which hosts ask for themselves.
pub static USER_REQUESTS: &[UserRequest] = requests! {
    Patch "/clusters/{cluster}" "V2UpdateCluster" Cluster [] object::<V2ClusterUpdateParams>();
    Get "/clusters/{cluster}" "v2GetCluster" Cluster [] NOTHING;
    Get "/clusters/{cluster}/credentials" "V2GetCredentials" Cluster [] NOTHING;
    Get "/clusters/{cluster}/downloads/credentials" "V2DownloadClusterCredentials" Cluster [needed("file_name", CREDENTIALS)] NOTHING;
    Get "/clusters/{cluster}/downloads/files" "V2DownloadClusterFiles" Cluster [needed("file_name", &["bootstrap.ign", "master.ign", "metadata.json", "worker.ign", "install-config.yaml", "custom_manifests.json", "custom_manifests.yaml", "arbiter.ign"])] NOTHING;
    Get "/clusters/{cluster}/hosts" "ListClusterHosts" Cluster [may("role", &["master", "arbiter", "worker", "auto-assign"])] NOTHING;
    Get "/clusters/{cluster}/ignored-validations" "v2GetIgnoredValidations" Cluster [] NOTHING;
    Put "/clusters/{cluster}/ignored-validations" "v2SetIgnoredValidations" Cluster [] object::<IgnoredValidations>();
    Get "/clusters/{cluster}/install-config" "v2GetClusterInstallConfig" Cluster [] NOTHING;
    Patch "/clusters/{cluster}/install-config" "v2UpdateClusterInstallConfig" Cluster [] Wants::Text;
    Get "/clusters/{cluster}/logs" "V2DownloadClusterLogs" Cluster [may("logs_type", LOGS)] NOTHING;
    Get "/clusters/{cluster}/manifests" "V2ListClusterManifests" Cluster [] NOTHING;
    Post "/clusters/{cluster}/manifests" "V2CreateClusterManifest" Cluster [] object::<CreateManifestParams>();
    Patch "/clusters/{cluster}/manifests" "V2UpdateClusterManifest" Cluster [] object::<UpdateManifestParams>();
    Delete "/clusters/{cluster}/manifests" "V2DeleteClusterManifest" Cluster [needed("file_name", &[]), may("folder", FOLDERS)] NOTHING;
    Get "/clusters/{cluster}/manifests/files" "v2DownloadClusterManifest" Cluster [needed("file_name", &[]), may("folder", FOLDERS)] NOTHING;
    Get "/clusters/{cluster}/preflight-requirements" "v2GetPreflightRequirements" Cluster [] NOTHING;
    Get "/clusters/{cluster}/supported-platforms" "GetClusterSupportedPlatforms" Cluster [] NOTHING;
    Get "/clusters/{cluster}/ui-settings" "V2GetClusterUISettings" Cluster [] NOTHING;
    Put "/clusters/{cluster}/ui-settings" "V2UpdateClusterUISettings" Cluster [] Wants::Text;
    Get "/infra-envs/{infra_env}" "GetInfraEnv" InfraEnv [] NOTHING;
    Patch "/infra-envs/{infra_env}" "UpdateInfraEnv" InfraEnv [] object::<InfraEnvUpdateParams>();
    Get "/infra-envs/{infra_env}/downloads/files" "v2DownloadInfraEnvFiles" InfraEnv [needed("file_name", &["discovery.ign", "ipxe-script", "static-network-config"]), IPXE] NOTHING;
    Get "/infra-envs/{infra_env}/downloads/image-url" "GetInfraEnvDownloadURL" InfraEnv [] NOTHING;
    Get "/infra-envs/{infra_env}/downloads/minimal-initrd" "DownloadMinimalInitrd" InfraEnv [] NOTHING;
    Post "/infra-envs/{infra_env}/regenerate-signing-key" "RegenerateInfraEnvSigningKey" InfraEnv [] NOTHING;
    Get "/infra-envs/{infra_env}/hosts" "v2ListHosts" InfraEnv [] NOTHING;
    Get "/infra-envs/{infra_env}/hosts/{host}" "v2GetHost" Host [] NOTHING;
    Patch "/infra-envs/{infra_env}/hosts/{host}" "v2UpdateHost" Host [] object::<HostUpdateParams>();
    Post "/infra-envs/{infra_env}/hosts/{host}/actions/reset" "v2ResetHost" Host [] NOTHING;
    Patch "/infra-envs/{infra_env}/hosts/{host}/actions/reset-validation/{validation_id}" "v2ResetHostValidation" Host [needed("validation_id", &[])] NOTHING;
    Get "/infra-envs/{infra_env}/hosts/{host}/ignition" "v2GetHostIgnition" Host [] NOTHING;
    Patch "/infra-envs/{infra_env}/hosts/{host}/ignition" "v2UpdateHostIgnition" Host [] object::<HostIgnitionParams>();
    Patch "/infra-envs/{infra_env}/hosts/{host}/installer-args" "v2UpdateHostInstallerArgs" Host [] object::<InstallerArgsParams>();
    Get "/component-versions" "v2ListComponentVersions" Service [] NOTHING;
    Get "/openshift-versions" "v2ListSupportedOpenshiftVersions" Service [] NOTHING;
    Get "/supported-operators" "V2ListSupportedOperators" Service [] NOTHING;
    Get "/supported-operators/{operator_name}" "V2ListOperatorProperties" Service [needed("operator_name", &[])] NOTHING;
};

/// The operation of that id.
pub fn user_request(id: &str) -> Option<&'static UserRequest> {
    USER_REQUESTS.iter().find(|request| request.id == id)
}

impl UserRequest {
    /// Its parameter of that name.
    pub fn parameter(&self, name: &str) -> Option<&'static Parameter> {
        self.with.iter().find(|parameter| parameter.name == name)
    }

    /// The request, with ids by their names in the path (`cluster`, `infra_env`, `host`), parameters and body.
    pub fn request<'a>(
        &self,
        ids: &[(&str, String)],
        with: impl IntoIterator<Item = (&'a String, &'a String)>,
        body: Option<&Value>,
    ) -> Request {
        let mut path = self.path.to_owned();
        for (name, id) in ids {
            path = path.replace(&format!("{{{name}}}"), id);
        }
        let mut query = Vec::new();
        for (name, value) in with {
            let place = format!("{{{name}}}");
            match path.contains(&place) {
                true => path = path.replace(&place, &encode_query(value)),
                false => query.push(format!("{name}={}", encode_query(value))),
            }
        }
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        let request = Request::new(self.method, format!("{BASE_PATH}{path}{query}"));
        match body {
            Some(body) => request.object(body.clone()),
            None => request,
        }
    }
}

/// Something in a value that the API's schema does not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Where in the value: `olm_operators[0].name`; empty: the value itself.
    pub place: String,
    /// What is wrong, for people.
    pub why: String,
    /// A name that there is not, and those that there are.
    pub unknown: Option<(String, Vec<&'static str>)>,
}

/// Has a value the form of an object of that kind?
///
/// # Errors
/// The first thing that does not fit.
pub fn fits(value: &Value, spec: &'static StructSpec) -> Result<(), Misfit> {
    object_fits(value, spec, "")
}

/// Has a value the form of a member of that kind?
///
/// # Errors
/// The first thing that does not fit.
pub fn member_fits(value: &Value, spec: &'static StructSpec, name: &str) -> Result<(), Misfit> {
    let Some(field) = spec.field(name) else {
        return Err(unknown(name, spec, name.to_owned()));
    };
    kind_fits(value, &field.kind, name)?;
    limits_fit(value, field.checks, name)
}

fn misfit(place: &str, why: impl Into<String>) -> Misfit {
    Misfit { place: place.to_owned(), why: why.into(), unknown: None }
}

fn unknown(name: &str, spec: &'static StructSpec, place: String) -> Misfit {
    let names = spec.fields.iter().map(|field| field.name).collect();
    Misfit { place, why: format!("`{}` has no member `{name}`", spec.name), unknown: Some((name.to_owned(), names)) }
}

fn object_fits(value: &Value, spec: &'static StructSpec, place: &str) -> Result<(), Misfit> {
    let Value::Object(members) = value else {
        return Err(misfit(place, format!("it is an object (`{}`)", spec.name)));
    };
    let inner = |name: &str| if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
    for (name, member) in members {
        let Some(field) = spec.field(name) else { return Err(unknown(name, spec, inner(name))) };
        // The API takes `null` for a member that is not there.
        if !member.is_null() {
            kind_fits(member, &field.kind, &inner(name))?;
            limits_fit(member, field.checks, &inner(name))?;
        }
    }
    let missing = spec.fields.iter().find(|field| field.required && !members.contains_key(field.name));
    match missing {
        Some(field) => Err(misfit(place, format!("`{}` is missing", field.name))),
        None => Ok(()),
    }
}

fn kind_fits(value: &Value, kind: &FieldKind, place: &str) -> Result<(), Misfit> {
    let (fits, wanted) = match kind {
        FieldKind::Any => (true, ""),
        FieldKind::String | FieldKind::DateTime => (value.is_string(), "a text"),
        FieldKind::Uuid => (value.as_str().is_some_and(|text| uuid::Uuid::parse_str(text).is_ok()), "a UUID"),
        FieldKind::Integer => (value.is_i64() || value.is_u64(), "a whole number"),
        FieldKind::Number => (value.is_number(), "a number"),
        FieldKind::Bool => (value.is_boolean(), "`true` or `false`"),
        FieldKind::Enum(words) => return one_of(value, words, place),
        FieldKind::Object(spec) => return object_fits(value, spec, place),
        FieldKind::Array(inner) => {
            let Value::Array(items) = value else { return Err(misfit(place, "it is a list")) };
            let mut numbered = items.iter().enumerate();
            return numbered.try_for_each(|(at, item)| kind_fits(item, inner, &format!("{place}[{at}]")));
        }
        FieldKind::Map(inner) => {
            let Value::Object(members) = value else { return Err(misfit(place, "it is a mapping")) };
            return members.iter().try_for_each(|(name, member)| kind_fits(member, inner, &format!("{place}.{name}")));
        }
    };
    if fits { Ok(()) } else { Err(misfit(place, format!("it is {wanted}"))) }
}

fn one_of(value: &Value, words: &'static [&'static str], place: &str) -> Result<(), Misfit> {
    match value.as_str() {
        Some(word) if words.contains(&word) => Ok(()),
        Some(word) => Err(Misfit {
            place: place.to_owned(),
            why: format!("`{word}` is none of its words"),
            unknown: Some((word.to_owned(), words.to_vec())),
        }),
        None => Err(misfit(place, format!("it is one of {}", words.join(", ")))),
    }
}

fn limits_fit(value: &Value, limits: &'static [FieldLimit], place: &str) -> Result<(), Misfit> {
    for limit in limits {
        let characters = || value.as_str().map(|text| text.chars().count());
        match limit {
            FieldLimit::OneOf(words) => one_of(value, words, place)?,
            FieldLimit::MaxLength(most) if characters().is_some_and(|n| n > *most) => {
                return Err(misfit(place, format!("it has at most {most} characters")));
            }
            FieldLimit::MinLength(least) if characters().is_some_and(|n| n < *least) => {
                return Err(misfit(place, format!("it has at least {least} characters")));
            }
            FieldLimit::Minimum(least) if value.as_i64().is_some_and(|n| n < *least) => {
                return Err(misfit(place, format!("it is at least {least}")));
            }
            FieldLimit::Maximum(most) if value.as_i64().is_some_and(|n| n > *most) => {
                return Err(misfit(place, format!("it is at most {most}")));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_is_there_once_and_its_path_has_what_it_is_about() {
        let mut ids: Vec<&str> = USER_REQUESTS.iter().map(|request| request.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), USER_REQUESTS.len());
        for request in USER_REQUESTS {
            let has = |name: &str| request.path.contains(name);
            let about = (has("{cluster}"), has("{infra_env}"), has("{host}"));
            let wanted = match request.about {
                About::Service => (false, false, false),
                About::Cluster => (true, false, false),
                About::InfraEnv => (false, true, false),
                About::Host => (false, true, true),
            };
            assert_eq!(about, wanted, "{}", request.id);
        }
    }

    #[test]
    fn a_request_has_ids_parameters_and_body_where_they_belong() {
        let with = std::collections::BTreeMap::from([("validation_id".to_owned(), "a b".to_owned())]);
        let ids = [("infra_env", "I".to_owned()), ("host", "H".to_owned())];
        let request = user_request("v2ResetHostValidation").unwrap().request(&ids, &with, None);
        assert_eq!(request.path, format!("{BASE_PATH}/infra-envs/I/hosts/H/actions/reset-validation/a%20b"));
        let with = std::collections::BTreeMap::from([("file_name".to_owned(), "x.yaml".to_owned())]);
        let request = user_request("V2DeleteClusterManifest").unwrap().request(&[("cluster", "C".into())], &with, None);
        assert_eq!(request.path, format!("{BASE_PATH}/clusters/C/manifests?file_name=x.yaml"));
        let (ids, no_with) = ([("cluster", "C".to_owned())], std::collections::BTreeMap::new());
        let request = user_request("V2UpdateClusterUISettings").unwrap().request(&ids, &no_with, Some(&json!("a")));
        assert_eq!(request.body.as_slice(), b"\"a\"");
    }

    #[rstest]
    #[case(json!({"olm_operators": [{"name": "lvm"}], "tags": null}), "")]
    #[case(json!({"olm_operator": []}), "olm_operator: `v2-cluster-update-params` has no member `olm_operator`")]
    #[case(json!({"olm_operators": [{"nam": "lvm"}]}), "olm_operators[0].nam: `operator-create-params` has no member `nam`")]
    #[case(json!({"schedulable_masters": "yes"}), "schedulable_masters: it is `true` or `false`")]
    #[case(json!({"hyperthreading": "some"}), "hyperthreading: `some` is none of its words")]
    #[case(json!({"cluster_network_host_prefix": 0}), "cluster_network_host_prefix: it is at least 1")]
    #[case(json!({"name": ""}), "name: it has at least 1 characters")]
    #[case(json!([]), ": it is an object (`v2-cluster-update-params`)")]
    fn what_does_not_fit_is_named(#[case] value: Value, #[case] wrong: &str) {
        let said = match fits(&value, &V2ClusterUpdateParams::SPEC) {
            Ok(()) => String::new(),
            Err(misfit) => format!("{}: {}", misfit.place, misfit.why),
        };
        assert_eq!(said, wrong);
    }

    #[test]
    fn what_must_be_there_is_missed() {
        let empty = json!({});
        let misfit = fits(&empty, &CreateManifestParams::SPEC).unwrap_err();
        assert_eq!(misfit.why, "`file_name` is missing");
    }
}
