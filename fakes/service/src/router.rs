//! Every operation of the API as one table: method, path, operation id, who may call it, query parameters, what answers it;
//! and the way from a request to its operation, with the framework's answers for requests that reach none (404, 405, 415,
//! bad ids, bad query values).

use serde_json::{Map, Value, json};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request, Response};

use crate::answer::{Answer, Fail};
use crate::{
    Core, catalog, check, clusters, downloads, events, hosts, infra_envs, install, logs, manifests, operators,
    progress, register, replies, steps,
};

/// Path under which everything lives; `/v2` follows.
const ROOT: &str = "/api/assisted-install";

/// A request on its way to its operation.
pub(crate) struct Call<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) now: Timestamp,
    pub(crate) request: &'a Request,
    /// Ids in the path, in order.
    pub(crate) ids: [Uuid; 2],
    /// Other variable parts of the path.
    pub(crate) word: String,
    /// Query parameters; of repeated ones the last.
    query: Vec<(String, String)>,
}

impl Call<'_> {
    /// Value of a query parameter.
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Is the query parameter there and true? A word that is neither true nor false counts as false.
    pub(crate) fn query_flag(&self, name: &str) -> bool {
        self.query(name).is_some_and(|v| truth(v) == Some(true))
    }

    /// Value of a query parameter that was checked to be an id.
    pub(crate) fn query_id(&self, name: &str) -> Option<Uuid> {
        self.query(name).and_then(check::parse_uuid)
    }

    /// Values of a comma-separated query parameter.
    pub(crate) fn query_list(&self, name: &str) -> Option<Vec<String>> {
        let text = self.query(name)?;
        Some(text.split(',').map(|w| w.trim().to_owned()).filter(|w| !w.is_empty()).collect())
    }

    /// The body as an object of the API.
    pub(crate) fn body<T: vlab_api::spec::WireObject + serde::de::DeserializeOwned>(
        &self,
        param: &str,
    ) -> Result<T, Fail> {
        check::body(&self.request.body, param, self.core.config.settings.enable_reject_unknown_fields)
    }

    /// The body as one JSON string.
    pub(crate) fn text_body(&self, param: &str) -> Result<String, Fail> {
        check::string_body(&self.request.body, param)
    }
}

/// A query parameter that is checked before the operation sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Query {
    /// One of these words.
    OneOf(&'static str, &'static [&'static str]),
    /// One of these words, and must be there.
    MustBe(&'static str, &'static [&'static str]),
    /// Must be there.
    Must(&'static str),
    /// A whole number.
    Int(&'static str),
    /// An id.
    Id(&'static str),
    /// Comma-separated ids.
    Ids(&'static str),
    /// Comma-separated words of these.
    Words(&'static str, &'static [&'static str]),
}
use Query::*;

type Handler = fn(&mut Call<'_>) -> Answer;

/// An operation.
pub(crate) struct Route {
    method: Method,
    path: &'static str,
    /// Name of the operation in the API's schema.
    pub(crate) operation: &'static str,
    /// Who may call it: the letters of `rest-api.md` §3 (user, agent, URL, image, image URL, watcher). Authentication is off
    /// (`AUTH_TYPE=none`), so nothing is refused by it; the letters are here for the schema.
    auth: &'static str,
    query: &'static [Query],
    handler: Handler,
}

#[cfg(test)]
impl Route {
    pub(crate) fn method(&self) -> Method {
        self.method
    }
    pub(crate) fn path(&self) -> &'static str {
        self.path
    }
}

const ARCHITECTURES: &[&str] = &["x86_64", "aarch64", "arm64", "ppc64le", "s390x", "multi"];
const PLATFORMS: &[&str] = &["baremetal", "none", "nutanix", "vsphere", "external"];
const CREDENTIAL_FILES: &[&str] = &["kubeadmin-password", "kubeconfig", "kubeconfig-noingress"];
const IPXE_TYPES: &[&str] = &["discovery-image-always", "boot-order-control"];
const ISO_TYPES: &[&str] = &["full-iso", "minimal-iso", "disconnected-iso"];
const FOLDERS: &[&str] = &["manifests", "openshift"];

macro_rules! routes {
    ($($method:ident $path:literal $operation:literal $auth:literal [$($query:expr),*] $handler:expr;)*) => {
        &[$(Route {
            method: Method::$method, path: $path, operation: $operation, auth: $auth, query: &[$($query),*], handler: $handler,
        }),*]
    };
}

/// All operations.
pub(crate) static ROUTES: &[Route] = routes! {
    Post "/v2/clusters" "v2RegisterCluster" "U" [] clusters::create;
    Get "/v2/clusters" "v2ListClusters" "UW" [Id("openshift_cluster_id")] clusters::list;
    Get "/v2/clusters/{c}" "v2GetCluster" "UAW" [] clusters::get;
    Delete "/v2/clusters/{c}" "v2DeregisterCluster" "U" [] clusters::delete;
    Patch "/v2/clusters/{c}" "V2UpdateCluster" "U" [] clusters::update;
    Put "/v2/clusters/{c}/progress" "v2UpdateClusterFinalizingProgress" "A" [] progress::finalizing;
    Get "/v2/clusters/{c}/hosts" "ListClusterHosts" "UA" [OneOf("role", &["master", "arbiter", "worker", "auto-assign"])] hosts::of_cluster;
    Get "/v2/clusters/{c}/supported-platforms" "GetClusterSupportedPlatforms" "U" [] catalog::supported_platforms;
    Post "/v2/infra-envs" "RegisterInfraEnv" "U" [] infra_envs::create;
    Get "/v2/infra-envs" "ListInfraEnvs" "UW" [Id("cluster_id")] infra_envs::list;
    Get "/v2/infra-envs/{i}" "GetInfraEnv" "UAQIJ" [] infra_envs::get;
    Patch "/v2/infra-envs/{i}" "UpdateInfraEnv" "U" [] infra_envs::update;
    Delete "/v2/infra-envs/{i}" "DeregisterInfraEnv" "U" [] infra_envs::delete;
    Get "/v2/infra-envs/{i}/downloads/image-url" "GetInfraEnvDownloadURL" "U" [] infra_envs::image_url;
    Post "/v2/infra-envs/{i}/hosts" "v2RegisterHost" "A" [] register::register;
    Get "/v2/infra-envs/{i}/hosts" "v2ListHosts" "UA" [] hosts::list;
    Get "/v2/infra-envs/{i}/hosts/{h}" "v2GetHost" "U" [] hosts::get;
    Patch "/v2/infra-envs/{i}/hosts/{h}" "v2UpdateHost" "U" [] hosts::update;
    Delete "/v2/infra-envs/{i}/hosts/{h}" "v2DeregisterHost" "U" [] hosts::delete;
    Get "/v2/infra-envs/{i}/hosts/{h}/instructions" "v2GetNextSteps" "A" [Int("timestamp")] steps::get;
    Post "/v2/infra-envs/{i}/hosts/{h}/instructions" "v2PostStepReply" "A" [] replies::post;
    Put "/v2/infra-envs/{i}/hosts/{h}/progress" "v2UpdateHostInstallProgress" "A" [] progress::host;
    Post "/v2/infra-envs/{i}/hosts/{h}/actions/bind" "BindHost" "U" [] register::bind;
    Post "/v2/infra-envs/{i}/hosts/{h}/actions/unbind" "UnbindHost" "U" [] register::unbind;
    Patch "/v2/infra-envs/{i}/hosts/{h}/actions/reset-validation/{word}" "v2ResetHostValidation" "U" [] hosts::reset_validation;
    Post "/v2/infra-envs/{i}/hosts/{h}/actions/reset" "v2ResetHost" "U" [] install::reset_host;
    Post "/v2/infra-envs/{i}/hosts/{h}/actions/install" "v2InstallHost" "U" [] install::install_host;
    Patch "/v2/infra-envs/{i}/hosts/{h}/installer-args" "v2UpdateHostInstallerArgs" "U" [] hosts::installer_args;
    Get "/v2/infra-envs/{i}/hosts/{h}/ignition" "v2GetHostIgnition" "U" [] downloads::host_ignition_params;
    Patch "/v2/infra-envs/{i}/hosts/{h}/ignition" "v2UpdateHostIgnition" "U" [] hosts::ignition_override;
    Get "/v2/infra-envs/{i}/downloads/files" "v2DownloadInfraEnvFiles" "UAQIJ" [MustBe("file_name", &["discovery.ign", "ipxe-script", "static-network-config"]), OneOf("ipxe_script_type", IPXE_TYPES), OneOf("discovery_iso_type", ISO_TYPES)] infra_envs::files;
    Get "/v2/infra-envs/{i}/downloads/files-presigned" "GetInfraEnvPresignedFileURL" "U" [MustBe("file_name", &["discovery.ign", "ipxe-script"]), OneOf("ipxe_script_type", IPXE_TYPES)] infra_envs::files_presigned;
    Put "/v2/infra-envs/{i}/hosts/{h}/logs-progress" "v2UpdateHostLogsProgress" "A" [] logs::host_progress;
    Post "/v2/infra-envs/{i}/regenerate-signing-key" "RegenerateInfraEnvSigningKey" "U" [] infra_envs::regenerate_key;
    Get "/v2/clusters/default-config" "V2GetClusterDefaultConfig" "U" [] catalog::default_config;
    Get "/v2/clusters/{c}/downloads/credentials-presigned" "V2GetPresignedForClusterCredentials" "U" [MustBe("file_name", CREDENTIAL_FILES)] downloads::presigned;
    Get "/v2/clusters/{c}/credentials" "V2GetCredentials" "U" [] downloads::credentials;
    Get "/v2/clusters/{c}/downloads/files" "V2DownloadClusterFiles" "UAQ" [MustBe("file_name", downloads::CLUSTER_FILES)] downloads::files;
    Get "/v2/clusters/{c}/downloads/credentials" "V2DownloadClusterCredentials" "UA" [MustBe("file_name", CREDENTIAL_FILES)] downloads::credential_files;
    Get "/v2/clusters/{c}/downloads/files-presigned" "V2GetPresignedForClusterFiles" "U" [MustBe("file_name", &["bootstrap.ign", "master.ign", "metadata.json", "worker.ign", "install-config.yaml", "logs", "manifests"]), OneOf("logs_type", logs::KINDS), Id("host_id")] downloads::presigned;
    Get "/v2/infra-envs/{i}/downloads/minimal-initrd" "DownloadMinimalInitrd" "UQI" [] infra_envs::minimal_initrd;
    Get "/v2/clusters/{c}/install-config" "v2GetClusterInstallConfig" "U" [] downloads::install_config;
    Patch "/v2/clusters/{c}/install-config" "v2UpdateClusterInstallConfig" "U" [] downloads::update_install_config;
    Get "/v2/domains" "V2ListManagedDomains" "U" [] catalog::domains;
    Post "/v2/clusters/{c}/actions/install" "v2InstallCluster" "U" [] install::install;
    Post "/v2/clusters/{c}/actions/cancel" "V2CancelInstallation" "U" [] install::cancel;
    Post "/v2/clusters/{c}/actions/reset" "v2ResetCluster" "U" [] install::reset;
    Post "/v2/clusters/{c}/actions/allow-add-workers" "TransformClusterToDay2" "U" [] install::allow_add_hosts;
    Post "/v2/clusters/{c}/actions/allow-add-hosts" "TransformClusterToAddingHosts" "U" [] install::allow_add_hosts;
    Get "/v2/clusters/{c}/preflight-requirements" "v2GetPreflightRequirements" "U" [] catalog::preflight;
    Get "/v2/supported-operators/{word}" "V2ListOperatorProperties" "U" [] catalog::operator_properties;
    Get "/v2/supported-operators" "V2ListSupportedOperators" "U" [] catalog::supported_operators;
    Get "/v2/operators/bundles" "V2ListBundles" "U" [OneOf("cpu_architecture", ARCHITECTURES), OneOf("platform_type", PLATFORMS)] catalog::bundles;
    Get "/v2/operators/bundles/{word}" "V2GetBundle" "U" [] catalog::bundle;
    Post "/v2/clusters/{c}/uploads/ingress-cert" "v2UploadClusterIngressCert" "A" [] operators::ingress_cert;
    Post "/v2/clusters/{c}/actions/complete-installation" "v2CompleteInstallation" "A" [] operators::complete;
    Put "/v2/clusters/{c}/logs-progress" "v2UpdateClusterLogsProgress" "A" [] logs::cluster_progress;
    Get "/v2/clusters/{c}/manifests" "V2ListClusterManifests" "U" [] manifests::list;
    Post "/v2/clusters/{c}/manifests" "V2CreateClusterManifest" "U" [] manifests::create;
    Patch "/v2/clusters/{c}/manifests" "V2UpdateClusterManifest" "U" [] manifests::update;
    Delete "/v2/clusters/{c}/manifests" "V2DeleteClusterManifest" "U" [OneOf("folder", FOLDERS), Must("file_name")] manifests::delete;
    Get "/v2/component-versions" "v2ListComponentVersions" "U" [] catalog::component_versions;
    Get "/v2/openshift-versions" "v2ListSupportedOpenshiftVersions" "U" [] catalog::openshift_versions;
    Get "/v2/release-sources" "v2ListReleaseSources" "U" [] catalog::release_sources;
    Get "/v2/clusters/{c}/manifests/files" "v2DownloadClusterManifest" "U" [OneOf("folder", FOLDERS), Must("file_name")] manifests::download;
    Get "/v2/clusters/{c}/logs" "V2DownloadClusterLogs" "UQ" [OneOf("logs_type", logs::KINDS), Id("host_id")] logs::download;
    Post "/v2/clusters/{c}/logs" "V2UploadLogs" "A" [MustBe("logs_type", &["host", "controller"]), Id("infra_env_id"), Id("host_id")] logs::upload;
    Get "/v2/clusters/{c}/monitored-operators" "V2ListOfClusterOperators" "A" [] operators::list;
    Put "/v2/clusters/{c}/monitored-operators" "v2ReportMonitoredOperatorStatus" "A" [] operators::report;
    Get "/v2/infra-env/{i}/hosts/{h}/downloads/ignition" "v2DownloadHostIgnition" "UA" [] downloads::host_ignition;
    Get "/v2/events" "v2ListEvents" "UQW" [Id("cluster_id"), Id("host_id"), Ids("host_ids"), Id("infra_env_id"), Int("limit"), Int("offset"), OneOf("order", &["ascending", "descending"]), Words("severities", vlab_api::types::Severity::NAMES)] events::list;
    Post "/v2/events" "v2TriggerEvent" "A" [] events::trigger;
    Get "/v2/support-levels/features" "GetSupportedFeatures" "U" [Must("openshift_version"), OneOf("cpu_architecture", ARCHITECTURES), OneOf("platform_type", PLATFORMS)] catalog::features;
    Get "/v2/support-levels/features/detailed" "GetDetailedSupportedFeatures" "U" [Must("openshift_version"), OneOf("cpu_architecture", ARCHITECTURES), OneOf("platform_type", PLATFORMS)] catalog::not_built;
    Get "/v2/support-levels/architectures" "GetSupportedArchitectures" "U" [Must("openshift_version")] catalog::architectures;
    Post "/v2/clusters/import" "v2ImportCluster" "U" [] clusters::import;
    Post "/v2/clusters/disconnected" "v2RegisterDisconnectedCluster" "U" [] clusters::disconnected;
    Get "/v2/clusters/{c}/ignored-validations" "v2GetIgnoredValidations" "U" [] clusters::ignored_validations;
    Put "/v2/clusters/{c}/ignored-validations" "v2SetIgnoredValidations" "U" [] clusters::set_ignored_validations;
    Get "/v2/clusters/{c}/ui-settings" "V2GetClusterUISettings" "U" [] clusters::ui_settings;
    Put "/v2/clusters/{c}/ui-settings" "V2UpdateClusterUISettings" "U" [] clusters::set_ui_settings;
};

/// Answers a request.
pub(crate) fn dispatch(core: &mut Core, now: Timestamp, request: &Request) -> Response {
    answer(core, now, request).unwrap_or_else(Fail::into_response)
}

fn answer(core: &mut Core, now: Timestamp, request: &Request) -> Answer {
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
    // Among several matches the one with the most fixed parts wins (`/clusters/import` before `/clusters/{id}`).
    let matching = || ROUTES.iter().filter(|r| matches(r.path, &segments));
    let Some(route) = matching().filter(|r| r.method == request.method).max_by_key(|r| fixed_parts(r.path)) else {
        let allowed: Vec<&str> = matching().map(|r| r.method.as_str()).collect();
        return Err(if allowed.is_empty() {
            unknown()
        } else {
            Fail::Infra(405, format!("method {} is not allowed, but [{}] are", request.method, allowed.join(",")))
        });
    };
    if let Some(kind) = request.get_header("content-type")
        && !request.body.is_empty()
        && !kind.starts_with("application/json")
        && route.operation != "V2UploadLogs"
    {
        // 400 and not 415: so the real service says it.
        return Err(Fail::Infra(
            400,
            format!("unsupported media type {}, only [application/json] are allowed", check::go_quote(kind)),
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
    let mut ids = [Uuid::nil(); 2];
    let mut next = ids.iter_mut();
    let mut word = String::new();
    for (template, segment) in route.path.split('/').skip(1).zip(&segments) {
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
        let Some(id) = check::parse_uuid(segment) else {
            let text = check::go_quote(&decode(segment));
            return Err(Fail::Infra(400, format!("{name} in path must be of type uuid: {text}")));
        };
        if let Some(place) = next.next() {
            *place = id;
        }
    }
    let query: Vec<(String, String)> = parse_query(query);
    let mut call = Call { core, now, request, ids, word, query };
    for parameter in route.query {
        check_query(&call, parameter)?;
    }
    call.core.state.request_id = request.get_header("x-request-id").and_then(check::parse_uuid);
    (route.handler)(&mut call)
}

fn matches(template: &str, segments: &[&str]) -> bool {
    let mut parts = template.split('/').skip(1);
    let mut segments = segments.iter();
    loop {
        match (parts.next(), segments.next()) {
            (None, None) => return true,
            (Some(part), Some(segment)) if part == *segment || (part.starts_with('{') && !segment.is_empty()) => {}
            _ => return false,
        }
    }
}

/// Can that kind of answer be had? Downloads are bytes, the rest (and their errors) is JSON.
fn acceptable(kind: &str) -> bool {
    matches!(kind, "" | "*/*" | "application/*" | "application/json" | "application/octet-stream")
}

fn fixed_parts(template: &str) -> usize {
    template.split('/').filter(|p| !p.starts_with('{')).count()
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

fn check_query(call: &Call<'_>, parameter: &Query) -> Result<(), Fail> {
    let bad = |message: String| Err(Fail::Infra(400, message));
    let of_type = |name: &str, kind: &str, value: &str| {
        bad(format!("{name} in query must be of type {kind}: {}", check::go_quote(value)))
    };
    let value = |name: &str| call.query(name).filter(|v| !v.is_empty());
    match *parameter {
        Must(name) | MustBe(name, _) if value(name).is_none() => bad(format!("{name} in query is required")),
        OneOf(name, words) | MustBe(name, words) => match value(name) {
            Some(v) if !words.contains(&v) => bad(check::one_of(name, "query", words)),
            _ => Ok(()),
        },
        Must(_) => Ok(()),
        Int(name) => match value(name) {
            Some(v) if v.parse::<i64>().is_err() => of_type(name, "int64", v),
            _ => Ok(()),
        },
        Id(name) => match value(name) {
            Some(v) if check::parse_uuid(v).is_none() => of_type(name, "uuid", v),
            _ => Ok(()),
        },
        Ids(name) => {
            match call.query_list(name).unwrap_or_default().iter().position(|v| check::parse_uuid(v).is_none()) {
                Some(i) => of_type(&format!("{name}.{i}"), "uuid", &call.query_list(name).unwrap_or_default()[i]),
                None => Ok(()),
            }
        }
        Words(name, words) => {
            match call.query_list(name).unwrap_or_default().iter().position(|v| !words.contains(&v.as_str())) {
                Some(i) => bad(check::one_of(&format!("{name}.{i}"), "query", words)),
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
