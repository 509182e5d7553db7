//! What a scenario's faults do inside the cluster. A `ConfigMap` of the cluster says which of them last, so that every master knows
//! and none forgets when it reboots; whoever plays the part that is hit looks there. A person sees it with `kubectl get configmap`.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use vlab_kube::{Core, Failure};
use vlab_model::disturbance;

use super::bootkube::client_of;
use super::facts::{FOLDER, wait_for_address};
use super::pki::{Pki, node_of_request};
use super::watch::{API_PORT, Client, server};
use crate::install::ASSETS;
use crate::net::http::Kept;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "vlab-faults";

/// What can go wrong inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Inside {
    /// Nobody's approval of the node's certificate is taken
    #[value(name = disturbance::CSR_NOT_APPROVED)]
    CsrNotApproved,
    /// The operator is degraded
    #[value(name = disturbance::OPERATOR_DEGRADED)]
    OperatorDegraded,
}

impl Inside {
    /// Key of the `ConfigMap`.
    fn key(self, of: &str) -> String {
        format!("{}.{of}", self.word())
    }

    fn word(self) -> &'static str {
        match self {
            Self::CsrNotApproved => disturbance::CSR_NOT_APPROVED,
            Self::OperatorDegraded => disturbance::OPERATOR_DEGRADED,
        }
    }

    /// Whom it hits, by what the cluster says.
    fn of(self, faults: &Value) -> Vec<String> {
        let keys = faults["data"].as_object().into_iter().flatten().map(|(key, _)| key);
        keys.filter_map(|key| key.strip_prefix(self.word())?.strip_prefix('.').map(str::to_owned)).collect()
    }
}

/// Command line of a fault.
#[derive(Clone, Debug, clap::Args)]
pub struct FaultArgs {
    /// What goes wrong
    #[arg(value_enum)]
    pub what: Inside,
    /// Name of the node or of the operator
    pub of: String,
    /// It is over
    #[arg(long)]
    pub end: bool,
    /// Folder with a master's facts and keys
    #[arg(long, default_value = FOLDER)]
    pub cluster: PathBuf,
    /// Folder with the bootstrap's files
    #[arg(long, default_value = ASSETS)]
    pub assets: PathBuf,
    /// This machine's address; default: the first that it has
    #[arg(long)]
    pub ip: Option<IpAddr>,
}

/// Tells the cluster that a fault begins or ends.
///
/// # Errors
/// Words for people: this machine is not of the control plane, or no API answers.
pub async fn fault(args: FaultArgs) -> Result<(), String> {
    let own = wait_for_address(args.ip).await.map_err(|e| e.to_string())?;
    let client = client(&args.cluster, &args.assets, own)
        .map_err(|e| format!("this machine is not of a control plane that answers (yet): {e}"))?;
    let value = if args.end { Value::Null } else { json!("yes") };
    tell(&client, &args.what.key(&args.of), value).await.map_err(|e| e.to_string())
}

/// The administrator's client on an installed master, or on a bootstrap.
fn client(cluster: &Path, assets: &Path, own: IpAddr) -> io::Result<Client> {
    match Pki::read(&cluster.join("tls")) {
        Ok(pki) => Ok(Client {
            servers: vec![server(own), format!("https://localhost:{API_PORT}")],
            credentials: pki.admin_credentials(),
            token: None,
            kept: Kept::default(),
        }),
        Err(_) => client_of(assets, own),
    }
}

async fn tell(client: &Client, key: &str, value: Value) -> io::Result<()> {
    let all = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    client.create(&all, &json!({ "metadata": { "name": NAME } })).await?;
    client.patch(&format!("{all}/{NAME}"), &json!({ "data": { key: value } })).await
}

/// Operators that are degraded.
///
/// # Errors
/// No API answers.
pub async fn degraded(client: &Client) -> io::Result<Vec<String>> {
    // A list, because there is no such object where a scenario has no such fault.
    let all = client.get(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps")).await?;
    let ours = super::watch::items(&all).iter().find(|object| object["metadata"]["name"] == NAME);
    Ok(ours.map(|faults| Inside::OperatorDegraded.of(faults)).unwrap_or_default())
}

/// The refusal of the approval of that certificate request, where a fault wants it.
pub fn refuses(core: &Core, request: &str) -> Option<Failure> {
    let faults = core.object("", "configmaps", NAMESPACE, NAME)?;
    let nodes = Inside::CsrNotApproved.of(&faults);
    let asked = core.object("certificates.k8s.io", "certificatesigningrequests", "", request)?;
    let pem = BASE64.decode(asked["spec"]["request"].as_str()?).ok()?;
    let node = node_of_request(&String::from_utf8(pem).ok()?)?;
    let refused = || format!("the certificate of {node} must not be approved: a fault of the scenario");
    nodes.contains(&node).then(|| Failure::new(403, "Forbidden", refused()))
}

/// Is bootkube not to come to its end on this machine?
pub fn hangs() -> bool {
    Path::new(disturbance::BOOTKUBE_HANGS).exists()
}
