//! Every operation of the API as one table: method, path, operation id, who may call it, query parameters, what answers it.

use vlab_api::http::Method;
use vlab_api::types::Severity;

use super::answer::RestResult;
use super::{
    RestCall, agents, catalog, clusters, events, files, hosts, infra_envs, install, logs, manifests, operators,
};

/// A query parameter that is checked before the operation sees it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Query {
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

type Handler = fn(&mut RestCall<'_>) -> RestResult;

/// An operation.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// Name of the operation in the API's schema.
    pub(crate) operation: &'static str,
    /// Who may call it: the letters of `rest-api.md` §3 (user, agent, URL, image, image URL, watcher). Authentication is off
    /// (`AUTH_TYPE=none`), so nothing is refused by it; the letters are here for the schema.
    pub(super) auth: &'static str,
    pub(super) query: &'static [Query],
    pub(super) handler: Handler,
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
    Put "/v2/clusters/{c}/progress" "v2UpdateClusterFinalizingProgress" "A" [] agents::finalizing_progress;
    Get "/v2/clusters/{c}/hosts" "ListClusterHosts" "UA" [OneOf("role", &["master", "arbiter", "worker", "auto-assign"])] hosts::of_cluster;
    Get "/v2/clusters/{c}/supported-platforms" "GetClusterSupportedPlatforms" "U" [] catalog::supported_platforms;
    Post "/v2/infra-envs" "RegisterInfraEnv" "U" [] infra_envs::create;
    Get "/v2/infra-envs" "ListInfraEnvs" "UW" [Id("cluster_id")] infra_envs::list;
    Get "/v2/infra-envs/{i}" "GetInfraEnv" "UAQIJ" [] infra_envs::get;
    Patch "/v2/infra-envs/{i}" "UpdateInfraEnv" "U" [] infra_envs::update;
    Delete "/v2/infra-envs/{i}" "DeregisterInfraEnv" "U" [] infra_envs::delete;
    Get "/v2/infra-envs/{i}/downloads/image-url" "GetInfraEnvDownloadURL" "U" [] infra_envs::image_url;
    Post "/v2/infra-envs/{i}/hosts" "v2RegisterHost" "A" [] agents::register;
    Get "/v2/infra-envs/{i}/hosts" "v2ListHosts" "UA" [] hosts::list;
    Get "/v2/infra-envs/{i}/hosts/{h}" "v2GetHost" "U" [] hosts::get;
    Patch "/v2/infra-envs/{i}/hosts/{h}" "v2UpdateHost" "U" [] hosts::update;
    Delete "/v2/infra-envs/{i}/hosts/{h}" "v2DeregisterHost" "U" [] hosts::delete;
    Get "/v2/infra-envs/{i}/hosts/{h}/instructions" "v2GetNextSteps" "A" [Int("timestamp")] agents::instructions;
    Post "/v2/infra-envs/{i}/hosts/{h}/instructions" "v2PostStepReply" "A" [] agents::reply;
    Put "/v2/infra-envs/{i}/hosts/{h}/progress" "v2UpdateHostInstallProgress" "A" [] agents::host_progress;
    Post "/v2/infra-envs/{i}/hosts/{h}/actions/bind" "BindHost" "U" [] hosts::bind;
    Post "/v2/infra-envs/{i}/hosts/{h}/actions/unbind" "UnbindHost" "U" [] hosts::unbind;
    Patch "/v2/infra-envs/{i}/hosts/{h}/actions/reset-validation/{word}" "v2ResetHostValidation" "U" [] hosts::reset_validation;
    Post "/v2/infra-envs/{i}/hosts/{h}/actions/reset" "v2ResetHost" "U" [] hosts::reset;
    Post "/v2/infra-envs/{i}/hosts/{h}/actions/install" "v2InstallHost" "U" [] hosts::install;
    Patch "/v2/infra-envs/{i}/hosts/{h}/installer-args" "v2UpdateHostInstallerArgs" "U" [] hosts::installer_args;
    Get "/v2/infra-envs/{i}/hosts/{h}/ignition" "v2GetHostIgnition" "U" [] hosts::ignition;
    Patch "/v2/infra-envs/{i}/hosts/{h}/ignition" "v2UpdateHostIgnition" "U" [] hosts::ignition_override;
    Get "/v2/infra-envs/{i}/downloads/files" "v2DownloadInfraEnvFiles" "UAQIJ" [MustBe("file_name", &["discovery.ign", "ipxe-script", "static-network-config"]), OneOf("ipxe_script_type", IPXE_TYPES), OneOf("discovery_iso_type", ISO_TYPES)] infra_envs::files;
    Get "/v2/infra-envs/{i}/downloads/files-presigned" "GetInfraEnvPresignedFileURL" "U" [MustBe("file_name", &["discovery.ign", "ipxe-script"]), OneOf("ipxe_script_type", IPXE_TYPES)] infra_envs::files_presigned;
    Put "/v2/infra-envs/{i}/hosts/{h}/logs-progress" "v2UpdateHostLogsProgress" "A" [] logs::host_progress;
    Post "/v2/infra-envs/{i}/regenerate-signing-key" "RegenerateInfraEnvSigningKey" "U" [] infra_envs::regenerate_key;
    Get "/v2/clusters/default-config" "V2GetClusterDefaultConfig" "U" [] catalog::default_config;
    Get "/v2/clusters/{c}/downloads/credentials-presigned" "V2GetPresignedForClusterCredentials" "U" [MustBe("file_name", CREDENTIAL_FILES)] files::presigned;
    Get "/v2/clusters/{c}/credentials" "V2GetCredentials" "U" [] files::credentials;
    Get "/v2/clusters/{c}/downloads/files" "V2DownloadClusterFiles" "UAQ" [MustBe("file_name", files::CLUSTER_FILES)] files::download;
    Get "/v2/clusters/{c}/downloads/credentials" "V2DownloadClusterCredentials" "UA" [MustBe("file_name", CREDENTIAL_FILES)] files::credential_files;
    Get "/v2/clusters/{c}/downloads/files-presigned" "V2GetPresignedForClusterFiles" "U" [MustBe("file_name", &["bootstrap.ign", "master.ign", "metadata.json", "worker.ign", "install-config.yaml", "logs", "manifests"]), OneOf("logs_type", logs::KINDS), Id("host_id")] files::presigned;
    Get "/v2/infra-envs/{i}/downloads/minimal-initrd" "DownloadMinimalInitrd" "UQI" [] infra_envs::minimal_initrd;
    Get "/v2/clusters/{c}/install-config" "v2GetClusterInstallConfig" "U" [] files::install_config;
    Patch "/v2/clusters/{c}/install-config" "v2UpdateClusterInstallConfig" "U" [] files::update_install_config;
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
    Get "/v2/infra-env/{i}/hosts/{h}/downloads/ignition" "v2DownloadHostIgnition" "UA" [] hosts::download_ignition;
    Get "/v2/events" "v2ListEvents" "UQW" [Id("cluster_id"), Id("host_id"), Ids("host_ids"), Id("infra_env_id"), Int("limit"), Int("offset"), OneOf("order", &["ascending", "descending"]), Words("severities", Severity::NAMES)] events::list;
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

#[cfg(test)]
mod tests {
    use vlab_api::requests::USER_REQUESTS;

    use super::*;

    /// What a scenario can have its user ask for is what there is: the two tables say the same of it.
    #[test]
    fn what_a_user_can_ask_for_is_there() {
        for request in USER_REQUESTS {
            let route = ROUTES.iter().find(|route| route.operation == request.id).expect(request.id);
            let path = request.path.replace("{cluster}", "{c}").replace("{infra_env}", "{i}").replace("{host}", "{h}");
            let named: Vec<&str> = request.with.iter().map(|parameter| parameter.name).collect();
            let path = named.iter().fold(path, |path, name| path.replace(&format!("{{{name}}}"), "{word}"));
            assert_eq!((route.method, route.path), (request.method, format!("/v2{path}").as_str()), "{}", request.id);
            for query in route.query {
                let (name, needed, words): (_, _, &[&str]) = match query {
                    OneOf(name, words) => (*name, false, words),
                    MustBe(name, words) => (*name, true, words),
                    Must(name) => (*name, true, &[]),
                    Int(name) | Id(name) | Ids(name) | Words(name, _) => (*name, false, &[]),
                };
                match request.parameter(name) {
                    Some(parameter) => {
                        assert_eq!((parameter.needed, parameter.words), (needed, words), "{}: {name}", request.id);
                    }
                    None => assert!(!needed, "{} needs {name}", request.id),
                }
            }
            let in_path = |name: &str| request.path.contains(&format!("{{{name}}}"));
            let is_there = |name: &&str| {
                route.query.iter().any(|query| {
                    let (OneOf(n, _) | MustBe(n, _) | Must(n) | Int(n) | Id(n) | Ids(n) | Words(n, _)) = query;
                    n == name
                })
            };
            let unknown: Vec<&&str> = named.iter().filter(|name| !in_path(name) && !is_there(name)).collect();
            assert!(unknown.is_empty(), "{} has no {unknown:?}", request.id);
        }
    }
}
