//! The operations of the API: what a harness, a user, a host or its installer can ask, typed in and typed out.
//!
//! A function makes a [`ApiCall`]: a request as plain data, the status codes that mean success, and how to read the answer.
//! It does no I/O, so an [`crate::actor::Actor`] and the asynchronous client of `vlab-client` use the same functions.
//! Names follow the operation ids of the API.

use std::any::Any;
use std::fmt;

use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::BASE_PATH;
use crate::http::{Method, Request, Response, TransportError};
use crate::types::*;

/// A request together with how to read its answer.
pub struct ApiCall<T> {
    /// Operation id, for messages.
    pub operation: &'static str,
    /// What to send.
    pub request: Request,
    /// Status codes that mean success.
    pub success: &'static [u16],
    read: fn(Response) -> Result<T, String>,
}

impl<T> fmt::Debug for ApiCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.operation, self.request.method, self.request.path)
    }
}

impl<T> ApiCall<T> {
    fn new(
        operation: &'static str,
        method: Method,
        path: String,
        success: &'static [u16],
        read: fn(Response) -> Result<T, String>,
    ) -> Self {
        Self { operation, request: Request::new(method, format!("{BASE_PATH}{path}")), success, read }
    }

    fn body<B: ToOwned<Owned: serde::Serialize + Any + Send + Sync> + ?Sized>(mut self, body: &B) -> Self {
        self.request = self.request.object(body.to_owned());
        self
    }

    /// The same call with one more header.
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    /// Reads an answer to this call.
    ///
    /// # Errors
    /// [`Failure::Refused`] for a status that is no success, [`Failure::Unreadable`] for a body of another shape.
    pub fn read(&self, response: Response) -> Result<T, Failure> {
        if !self.success.contains(&response.status) {
            return Err(Failure::Refused {
                operation: self.operation,
                status: response.status,
                reason: reason(&response),
            });
        }
        let status = response.status;
        (self.read)(response).map_err(|error| Failure::Unreadable { operation: self.operation, status, error })
    }
}

/// Why a call did not give what it was made for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The service answered that it will not do it.
    #[error("{operation}: the service answered {status}: {reason}")]
    Refused {
        /// Operation id.
        operation: &'static str,
        /// HTTP status.
        status: u16,
        /// `reason` or `message` of the error body, or the start of the body.
        reason: String,
    },
    /// The service answered with success and a body that is not what the API promises.
    #[error("{operation}: the service answered {status} with a body that cannot be read: {error}")]
    Unreadable {
        /// Operation id.
        operation: &'static str,
        /// HTTP status.
        status: u16,
        /// What is wrong with the body.
        error: String,
    },
    /// There was no answer.
    #[error("{operation}: {error}")]
    NoAnswer {
        /// Operation id.
        operation: &'static str,
        /// What happened to the connection.
        error: TransportError,
    },
}

impl Failure {
    /// The HTTP status of the answer, when there was one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Failure::Refused { status, .. } | Failure::Unreadable { status, .. } => Some(*status),
            Failure::NoAnswer { .. } => None,
        }
    }
}

/// The reason in an error answer: handlers of the service write `reason`, its router and validators write `message`. In a `Status` of
/// Kubernetes `reason` is one word for programs, and `message` says what is wrong.
pub fn reason(response: &Response) -> String {
    #[derive(serde::Deserialize)]
    struct AnyError {
        reason: Option<String>,
        message: Option<String>,
        kind: Option<String>,
    }
    if let Ok(error) = serde_json::from_slice::<AnyError>(&response.body)
        && let Some(text) = match error.kind.as_deref() {
            Some("Status") => error.message.map(without_patched).or(error.reason),
            _ => error.reason.or(error.message),
        }
    {
        return text;
    }
    let text = String::from_utf8_lossy(&response.body);
    let text = text.trim();
    if text.is_empty() {
        return "(no body)".to_owned();
    }
    let mut short: String = text.chars().take(200).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// A patch that is refused is shown with the whole object that it would have made: what is wrong with it stands behind that.
fn without_patched(message: String) -> String {
    const FROM: &str = "patch: Invalid value: ";
    const TO: &str = ": strict decoding error: ";
    match (message.find(FROM), message.rfind(TO)) {
        (Some(from), Some(to)) if from < to => format!("{}\"…\"{}", &message[..from + FROM.len()], &message[to..]),
        _ => message,
    }
}

fn json<T: DeserializeOwned + Clone + Any + Send + Sync>(response: Response) -> Result<T, String> {
    response.body.read().map_err(|e| e.to_string())
}

fn nothing(_: Response) -> Result<(), String> {
    Ok(())
}

fn raw(response: Response) -> Result<Vec<u8>, String> {
    Ok(response.body.into_vec())
}

/// Percent-encodes a query value: everything but the unreserved characters of RFC 3986.
pub fn encode_query(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

macro_rules! calls {
    ($(
        $(#[$meta:meta])*
        $name:ident($($arg:ident: $ty:ty),*) = $method:ident $path:literal, $operation:literal
            $(, body $body:ident: $bty:ty)?
            => $status:literal $read:ident $out:ty;
    )*) => {$(
        $(#[$meta])*
        pub fn $name($($arg: $ty,)* $($body: &$bty,)?) -> ApiCall<$out> {
            ApiCall::new($operation, Method::$method, format!($path), &[$status], $read)$(.body($body))?
        }
    )*
        /// The operations that the functions here ask for; some more than once.
        const ASKED: &[Operation] = &[$(Operation { method: Method::$method, path: $path, id: $operation }),*];
    };
}

/// An operation as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// HTTP method.
    pub method: Method,
    /// Path below [`BASE_PATH`]; a part in braces stands for any one part. May have a query behind it.
    path: &'static str,
    /// Its id in the API's schema.
    pub id: &'static str,
}

impl Operation {
    fn is(&self, method: Method, path: &str) -> bool {
        let pattern = self.path.split('?').next().unwrap_or_default();
        let mut parts = path.split('/');
        let all = pattern.split('/').all(|p| parts.next().is_some_and(|part| p == part || p.starts_with('{')));
        self.method == method && all && parts.next().is_none()
    }
}

/// Every operation that a host, its installer, its controller or a user of this harness asks for.
pub fn operations() -> impl Iterator<Item = &'static Operation> {
    // Made by hand, each for its reason: a query of many parts, and a body of several files.
    const MORE: &[Operation] = &[
        Operation { method: Method::Get, path: "/events", id: "v2ListEvents" },
        Operation { method: Method::Post, path: "/clusters/{cluster}/logs", id: "V2UploadLogs" },
    ];
    ASKED.iter().chain(MORE)
}

/// Id of the operation that a request asks for; `None` when it is none of [`operations`].
pub fn operation_of(method: Method, path: &str) -> Option<&'static str> {
    let path = path.split('?').next()?.strip_prefix(BASE_PATH)?;
    // A part in braces also fits a fixed word (`/clusters/import`), so that the exact one counts first.
    let mut found = operations().filter(|o| o.is(method, path));
    let exact = operations().find(|o| o.method == method && o.path == path);
    exact.or_else(|| found.next()).map(|o| o.id)
}

calls! {
    /// Creates a cluster.
    create_cluster() = Post "/clusters", "v2RegisterCluster", body params: ClusterCreateParams => 201 json Cluster;
    /// All clusters, without their hosts.
    list_clusters() = Get "/clusters", "v2ListClusters" => 200 json Vec<Cluster>;
    /// A cluster with its hosts.
    get_cluster(cluster: Uuid) = Get "/clusters/{cluster}", "v2GetCluster" => 200 json Cluster;
    /// A cluster without its hosts.
    get_cluster_without_hosts(cluster: Uuid) = Get "/clusters/{cluster}?exclude-hosts=true", "v2GetCluster" => 200 json Cluster;
    /// Removes a cluster.
    delete_cluster(cluster: Uuid) = Delete "/clusters/{cluster}", "v2DeregisterCluster" => 204 nothing ();
    /// Changes a cluster.
    update_cluster(cluster: Uuid) = Patch "/clusters/{cluster}", "V2UpdateCluster", body params: V2ClusterUpdateParams => 201 json Cluster;
    /// Day-2 cluster made from outside knowledge of an installed one.
    import_cluster() = Post "/clusters/import", "v2ImportCluster", body params: ImportClusterParams => 201 json Cluster;
    /// Starts the installation.
    install_cluster(cluster: Uuid) = Post "/clusters/{cluster}/actions/install", "v2InstallCluster" => 202 json Cluster;
    /// Cancels it.
    cancel_installation(cluster: Uuid) = Post "/clusters/{cluster}/actions/cancel", "V2CancelInstallation" => 202 json Cluster;
    /// Back to before the installation.
    reset_cluster(cluster: Uuid) = Post "/clusters/{cluster}/actions/reset", "v2ResetCluster" => 202 json Cluster;
    /// Makes a day-2 cluster of an installed one.
    allow_add_hosts(cluster: Uuid) = Post "/clusters/{cluster}/actions/allow-add-hosts", "TransformClusterToAddingHosts" => 202 json Cluster;
    /// Told by the controller when it is through.
    complete_installation(cluster: Uuid) = Post "/clusters/{cluster}/actions/complete-installation", "v2CompleteInstallation", body params: CompletionParams => 202 json Cluster;
    /// Finalizing stage, told by the controller.
    update_finalizing_stage(cluster: Uuid) = Put "/clusters/{cluster}/progress", "v2UpdateClusterFinalizingProgress", body params: ClusterFinalizingProgress => 200 nothing ();
    /// The cluster's hosts, without inventories.
    list_cluster_hosts(cluster: Uuid) = Get "/clusters/{cluster}/hosts", "ListClusterHosts" => 200 json Vec<Host>;
    /// Operators that must be up before the cluster is installed.
    list_monitored_operators(cluster: Uuid) = Get "/clusters/{cluster}/monitored-operators", "V2ListOfClusterOperators" => 200 json Vec<MonitoredOperator>;
    /// State of one of them, told by the controller.
    report_monitored_operator(cluster: Uuid) = Put "/clusters/{cluster}/monitored-operators", "v2ReportMonitoredOperatorStatus", body params: OperatorMonitorReport => 200 nothing ();
    /// Ingress certificate in PEM form, told by the controller.
    upload_ingress_cert(cluster: Uuid) = Post "/clusters/{cluster}/uploads/ingress-cert", "v2UploadClusterIngressCert", body pem: str => 201 nothing ();
    /// State of the controller's log collection.
    update_cluster_logs_progress(cluster: Uuid) = Put "/clusters/{cluster}/logs-progress", "v2UpdateClusterLogsProgress", body params: LogsProgressParams => 204 nothing ();
    /// A generated file, for example `bootstrap.ign`.
    download_cluster_file(cluster: Uuid, file_name: &str) = Get "/clusters/{cluster}/downloads/files?file_name={file_name}", "V2DownloadClusterFiles" => 200 raw Vec<u8>;
    /// `kubeconfig`, `kubeconfig-noingress` or `kubeadmin-password`.
    download_credentials(cluster: Uuid, file_name: &str) = Get "/clusters/{cluster}/downloads/credentials?file_name={file_name}", "V2DownloadClusterCredentials" => 200 raw Vec<u8>;
    /// User name, password and console URL.
    get_credentials(cluster: Uuid) = Get "/clusters/{cluster}/credentials", "V2GetCredentials" => 200 json Credentials;
    /// Logs that hosts and the controller sent, as an archive.
    download_cluster_logs(cluster: Uuid) = Get "/clusters/{cluster}/logs", "V2DownloadClusterLogs" => 200 raw Vec<u8>;
    /// The installer's configuration that the service made.
    get_install_config(cluster: Uuid) = Get "/clusters/{cluster}/install-config", "v2GetClusterInstallConfig" => 200 json String;
    /// Overrides for it: a JSON object as text.
    update_install_config(cluster: Uuid) = Patch "/clusters/{cluster}/install-config", "v2UpdateClusterInstallConfig", body overrides: str => 201 nothing ();
    /// Manifests of the user.
    list_manifests(cluster: Uuid) = Get "/clusters/{cluster}/manifests", "V2ListClusterManifests" => 200 json Vec<Manifest>;
    /// Adds a manifest.
    create_manifest(cluster: Uuid) = Post "/clusters/{cluster}/manifests", "V2CreateClusterManifest", body params: CreateManifestParams => 201 json Manifest;
    /// Validations that the user decided not to heed.
    get_ignored_validations(cluster: Uuid) = Get "/clusters/{cluster}/ignored-validations", "v2GetIgnoredValidations" => 200 json IgnoredValidations;
    /// Sets them.
    set_ignored_validations(cluster: Uuid) = Put "/clusters/{cluster}/ignored-validations", "v2SetIgnoredValidations", body params: IgnoredValidations => 201 json IgnoredValidations;

    /// Creates an infra-env.
    create_infra_env() = Post "/infra-envs", "RegisterInfraEnv", body params: InfraEnvCreateParams => 201 json InfraEnv;
    /// All infra-envs.
    list_infra_envs() = Get "/infra-envs", "ListInfraEnvs" => 200 json Vec<InfraEnv>;
    /// An infra-env.
    get_infra_env(infra_env: Uuid) = Get "/infra-envs/{infra_env}", "GetInfraEnv" => 200 json InfraEnv;
    /// Changes an infra-env.
    update_infra_env(infra_env: Uuid) = Patch "/infra-envs/{infra_env}", "UpdateInfraEnv", body params: InfraEnvUpdateParams => 201 json InfraEnv;
    /// Removes an infra-env.
    delete_infra_env(infra_env: Uuid) = Delete "/infra-envs/{infra_env}", "DeregisterInfraEnv" => 204 nothing ();
    /// Where the discovery ISO is to be had.
    get_image_url(infra_env: Uuid) = Get "/infra-envs/{infra_env}/downloads/image-url", "GetInfraEnvDownloadURL" => 200 json PresignedUrl;
    /// `discovery.ign`, `ipxe-script` or `static-network-config`.
    download_infra_env_file(infra_env: Uuid, file_name: &str) = Get "/infra-envs/{infra_env}/downloads/files?file_name={file_name}", "v2DownloadInfraEnvFiles" => 200 raw Vec<u8>;
    /// What a minimal image has in its RAM disk: networks and proxy. Nothing (204) when there is neither.
    download_minimal_initrd(infra_env: Uuid) = Get "/infra-envs/{infra_env}/downloads/minimal-initrd", "DownloadMinimalInitrd" => 200 raw Vec<u8>;

    /// A host makes itself known.
    register_host(infra_env: Uuid) = Post "/infra-envs/{infra_env}/hosts", "v2RegisterHost", body params: HostCreateParams => 201 json HostRegistrationResponse;
    /// The infra-env's hosts.
    list_hosts(infra_env: Uuid) = Get "/infra-envs/{infra_env}/hosts", "v2ListHosts" => 200 json Vec<Host>;
    /// A host.
    get_host(infra_env: Uuid, host: Uuid) = Get "/infra-envs/{infra_env}/hosts/{host}", "v2GetHost" => 200 json Host;
    /// Changes a host.
    update_host(infra_env: Uuid, host: Uuid) = Patch "/infra-envs/{infra_env}/hosts/{host}", "v2UpdateHost", body params: HostUpdateParams => 201 json Host;
    /// Removes a host.
    delete_host(infra_env: Uuid, host: Uuid) = Delete "/infra-envs/{infra_env}/hosts/{host}", "v2DeregisterHost" => 204 nothing ();
    /// What the service wants of the host now; `timestamp` is the host's clock in seconds since the epoch.
    get_next_steps(infra_env: Uuid, host: Uuid, timestamp: i64) = Get "/infra-envs/{infra_env}/hosts/{host}/instructions?timestamp={timestamp}", "v2GetNextSteps" => 200 json Steps;
    /// What came of a step.
    post_step_reply(infra_env: Uuid, host: Uuid) = Post "/infra-envs/{infra_env}/hosts/{host}/instructions", "v2PostStepReply", body reply: StepReply => 204 nothing ();
    /// Installation stage, told by the installer.
    update_host_progress(infra_env: Uuid, host: Uuid) = Put "/infra-envs/{infra_env}/hosts/{host}/progress", "v2UpdateHostInstallProgress", body progress: HostProgress => 200 nothing ();
    /// State of the host's log collection.
    update_host_logs_progress(infra_env: Uuid, host: Uuid) = Put "/infra-envs/{infra_env}/hosts/{host}/logs-progress", "v2UpdateHostLogsProgress", body params: LogsProgressParams => 204 nothing ();
    /// Gives an unbound host to a cluster.
    bind_host(infra_env: Uuid, host: Uuid) = Post "/infra-envs/{infra_env}/hosts/{host}/actions/bind", "BindHost", body params: BindHostParams => 200 json Host;
    /// Takes it back.
    unbind_host(infra_env: Uuid, host: Uuid) = Post "/infra-envs/{infra_env}/hosts/{host}/actions/unbind", "UnbindHost" => 200 json Host;
    /// Installs a day-2 host.
    install_host(infra_env: Uuid, host: Uuid) = Post "/infra-envs/{infra_env}/hosts/{host}/actions/install", "v2InstallHost" => 202 json Host;
    /// Resets a day-2 host.
    reset_host(infra_env: Uuid, host: Uuid) = Post "/infra-envs/{infra_env}/hosts/{host}/actions/reset", "v2ResetHost" => 200 json Host;
    /// The host's own Ignition configuration. (The singular `infra-env` is the API's.)
    download_host_ignition(infra_env: Uuid, host: Uuid) = Get "/infra-env/{infra_env}/hosts/{host}/downloads/ignition", "v2DownloadHostIgnition" => 200 raw Vec<u8>;

    /// An event, told by the controller.
    trigger_event() = Post "/events", "v2TriggerEvent", body event: Event => 201 nothing ();
    /// Versions of the service's parts.
    list_component_versions() = Get "/component-versions", "v2ListComponentVersions" => 200 json ListVersions;
    /// OpenShift versions that can be installed.
    list_openshift_versions() = Get "/openshift-versions", "v2ListSupportedOpenshiftVersions" => 200 json serde_json::Value;
    /// Operators that can be installed with a cluster.
    list_supported_operators() = Get "/supported-operators", "V2ListSupportedOperators" => 200 json Vec<String>;
}

/// Which events to list. The service's defaults where a member is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsQuery {
    /// Events of this cluster.
    pub cluster: Option<Uuid>,
    /// Events of this infra-env.
    pub infra_env: Option<Uuid>,
    /// Events of these hosts.
    pub hosts: Vec<Uuid>,
    /// At most so many; −1 is all.
    pub limit: Option<i64>,
    /// Skip so many.
    pub offset: Option<i64>,
    /// Newest first?
    pub descending: bool,
    /// Only these severities.
    pub severities: Vec<Severity>,
    /// Only these categories (`user`, `metrics`).
    pub categories: Vec<String>,
}

/// Events, oldest first unless asked otherwise.
pub fn list_events(query: &EventsQuery) -> ApiCall<Vec<Event>> {
    let mut parts = Vec::new();
    let mut add = |name: &str, value: String| parts.push(format!("{name}={}", encode_query(&value)));
    if let Some(id) = query.cluster {
        add("cluster_id", id.to_string());
    }
    if let Some(id) = query.infra_env {
        add("infra_env_id", id.to_string());
    }
    if !query.hosts.is_empty() {
        add("host_ids", join(query.hosts.iter()));
    }
    if let Some(n) = query.limit {
        add("limit", n.to_string());
    }
    if let Some(n) = query.offset {
        add("offset", n.to_string());
    }
    if query.descending {
        add("order", "descending".into());
    }
    if !query.severities.is_empty() {
        add("severities", join(query.severities.iter()));
    }
    if !query.categories.is_empty() {
        add("categories", query.categories.join(","));
    }
    let query = if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) };
    ApiCall::new("v2ListEvents", Method::Get, format!("/events{query}"), &[200], json)
}

fn join<T: fmt::Display>(items: impl Iterator<Item = T>) -> String {
    items.map(|i| i.to_string()).collect::<Vec<_>>().join(",")
}

/// Logs of a host, or of the controller when `host` is `None`, as a gzipped tar archive.
pub fn upload_logs(cluster: Uuid, host: Option<(Uuid, Uuid)>, archive: &[u8]) -> ApiCall<()> {
    // A boundary that cannot stand in a gzip stream's first bytes would still have to be checked against the rest; a long
    // fixed one is what the field's own clients rely on too.
    const BOUNDARY: &str = "vlab-7f1c9d3e5b2a48f6a0c4e8d2b6f09a13";
    let path = match host {
        Some((infra_env, host)) => {
            format!("/clusters/{cluster}/logs?logs_type=host&host_id={host}&infra_env_id={infra_env}")
        }
        None => format!("/clusters/{cluster}/logs?logs_type=controller"),
    };
    let mut call = ApiCall::new("V2UploadLogs", Method::Post, path, &[204], nothing);
    let mut body = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"upfile\"; filename=\"logs.tar.gz\"\r\nContent-Type: application/octet-stream\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(archive);
    body.extend_from_slice(format!("\r\n--{BOUNDARY}--\r\n").as_bytes());
    call.request.body = body.into();
    call.request = call.request.header("content-type", format!("multipart/form-data; boundary={BOUNDARY}"));
    call
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_query_is_encoded() {
        let call = list_events(&EventsQuery {
            hosts: vec![Uuid::nil(), Uuid::max()],
            severities: vec![Severity::Error],
            limit: Some(-1),
            ..EventsQuery::default()
        });
        assert_eq!(
            call.request.path,
            "/api/assisted-install/v2/events?host_ids=00000000-0000-0000-0000-000000000000%2Cffffffff-ffff-ffff-ffff-ffffffffffff&limit=-1&severities=error"
        );
        assert_eq!(list_events(&EventsQuery::default()).request.path, "/api/assisted-install/v2/events");
    }

    #[rstest]
    #[case::handler(409, r#"{"kind":"Error","id":409,"href":"","code":"409","reason":"not ready"}"#, "not ready")]
    #[case::router(404, r#"{"code":404,"message":"path was not found"}"#, "path was not found")]
    #[case::proxy(502, "<html>bad gateway</html>", "<html>bad gateway</html>")]
    #[case::nothing(500, "", "(no body)")]
    #[case::kubernetes(
        422,
        r#"{"kind":"Status","reason":"Invalid","message":"x is invalid: spec.a: gone","code":422}"#,
        "x is invalid: spec.a: gone"
    )]
    #[case::patch(422, r#"{"kind":"Status","reason":"Invalid","message":" \"\" is invalid: patch: Invalid value: \"{}\": strict decoding error: unknown field \"a\""}"#, r#" "" is invalid: patch: Invalid value: "…": strict decoding error: unknown field "a""#)]
    #[case::without_words(409, r#"{"kind":"Status","reason":"Conflict","code":409}"#, "Conflict")]
    fn a_refusal_gives_the_reason(#[case] status: u16, #[case] body: &str, #[case] expected: &str) {
        let call = get_cluster(Uuid::nil());
        let response = Response { status, headers: vec![], body: body.into() };
        let failure = call.read(response).unwrap_err();
        assert_eq!(failure, Failure::Refused { operation: "v2GetCluster", status, reason: expected.to_owned() });
        assert!(failure.to_string().contains(expected));
    }

    #[test]
    fn a_body_of_another_shape_is_named() {
        let failure = get_cluster(Uuid::nil()).read(Response::json(200, &"x")).unwrap_err();
        assert_eq!(failure.status(), Some(200));
        assert!(failure.to_string().contains("cannot be read"), "{failure}");
    }

    #[test]
    fn logs_are_one_multipart_field() {
        let call = upload_logs(Uuid::nil(), None, b"\x1f\x8bdata");
        assert!(call.request.path.ends_with("/logs?logs_type=controller"));
        let text = String::from_utf8_lossy(&call.request.body);
        assert!(text.contains("name=\"upfile\"") && text.ends_with("--\r\n"), "{text}");
    }
}
