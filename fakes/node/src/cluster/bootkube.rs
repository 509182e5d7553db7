//! The bootstrap host's control plane: a temporary etcd (real), the API over it, the machine-config server; until the masters have
//! an etcd of their own and the bootstrap's member is removed. On a single node: until its state is packed for the installed system.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use vlab_api::http::{Method, Request};

use super::api::{Api, bootstrap_token, condition};
use super::ask::{apply_manifests, ask, create, create_with_status, get};
use super::etcd::{self, Begin, Etcd, Member, client_url, peer_url};
use super::facts::{ClusterFacts, FOLDER, listening, wait_for_address};
use super::pki::Pki;
use super::serve::serve_api;
use super::store::Store;
use super::watch::{API_PORT, Client, items, server};
use super::{faults, kinds, mcs};
use crate::ignition;
use crate::install::ASSETS;
use crate::machine::NodeConfig;
use crate::net::http::Kept as Connections;
use crate::say;

/// Command line of bootkube.
#[derive(Clone, Debug, clap::Args)]
pub struct BootkubeArgs {
    /// Folder with the bootstrap's files
    #[arg(long, default_value = ASSETS)]
    pub assets: PathBuf,
    /// This machine's address; default: the first that it has
    #[arg(long)]
    pub ip: Option<IpAddr>,
    /// Where the temporary etcd keeps its data
    #[arg(long, default_value = "/var/lib/etcd-bootstrap")]
    pub data: PathBuf,
}

/// How often the cluster is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// Emulated machines are slow to start.
const ETCD_BUDGET: Duration = Duration::from_secs(120);

/// A child that does not outlive us.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// keepalived, which gives its addresses back when it ends.
struct Holder(Option<Child>);

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(super::vip::end);
    }
}

/// Runs bootkube until the control plane stands on its own.
///
/// # Errors
/// Words for people.
pub async fn bootkube(args: BootkubeArgs) -> Result<(), String> {
    run(args).await.map_err(|e| e.to_string())
}

async fn run(args: BootkubeArgs) -> io::Result<()> {
    let config = NodeConfig::load().map_err(io::Error::other)?;
    let own = wait_for_address(args.ip).await?;
    say::moment("pivot", "bootkube-started", &json!({ "address": own }));
    let file = |name: &str| args.assets.join(name);
    // The lab's installer leaves a file of its own; the product's one only what it gives every cluster.
    let of_lab = file("vlab-service.json").exists();
    let mut facts = match of_lab {
        true => ClusterFacts::read(&file("vlab-service.json"))?,
        false => ClusterFacts::of_manifests(&file("manifests"))?,
    };
    let mut names = vec![format!("api.{}", facts.domain), format!("api-int.{}", facts.domain), "localhost".to_owned()];
    names.extend([own.to_string(), "127.0.0.1".to_owned()]);
    names.extend(facts.api_vips.iter().map(ToString::to_string));
    let pki = match Pki::read(&file("tls")) {
        Ok(pki) => pki,
        Err(e) => {
            say::note("pivot", &format!("{e}: the cluster gets keys of its own"));
            let pki = Pki::make(&names)?;
            pki.write(&file("tls"))?;
            pki
        }
    };
    facts.bootstrap = Some(own);
    facts.bootstrap_token = bootstrap_token(&pki);
    facts.api_servers = vec![format!("https://api-int.{}:{API_PORT}", facts.domain), server(own)];

    let log = file("etcd.log");
    let begin = if args.data.join("member").exists() { Begin::Again } else { Begin::New };
    let of_etcd = etcd::arguments("etcd-bootstrap", own, &args.data, &begin, facts.is_single_node());
    let child = etcd::start(&config, &of_etcd, &log)?;
    let mut etcd_process = Kept(child);
    let etcd = Etcd::new(vec![client_url(own)]);
    etcd.wait(ETCD_BUDGET).await?;
    say::moment("pivot", "etcd-bootstrap-started", &json!({ "address": own }));

    let api = Arc::new(Api::new(Store::Etcd(etcd), pki.clone()));
    let pair = pki.server("kube-apiserver", &names)?;
    let (_, api_task) = serve_api(SocketAddr::new(listening(args.ip), API_PORT), &pair, Arc::clone(&api)).await?;
    say::moment("pivot", "temporary-api-up", &json!({ "url": server(own) }));
    // Nodes reach the bootstrap under the cluster's virtual address; a single node has none.
    let vips = super::vip::of(&facts.api_vips, &[], 90);
    let _keepalived = Holder(super::vip::hold(&config, own, if facts.is_single_node() { &[] } else { &vips })?);
    furnish(&api, &facts).await?;
    let applied = apply_manifests(&api, &args.assets).await;
    name_service(&api).await?;
    say::moment("pivot", "manifests-applied", &json!({ "objects": applied }));

    let done = file(".bootkube.done");
    if facts.is_single_node() {
        while faults::hangs() {
            tokio::time::sleep(LOOK).await;
        }
        pack(&config, &args, &facts, &pki, own)?;
        fs::write(&done, "")?;
        say::moment("pivot", "bootstrap-in-place-ready", &json!({}));
        api_task.abort();
        return Ok(());
    }
    let pair = pki.server("machine-config-server", &names)?;
    let log = args.ip.is_none().then(|| MCS_LOG.into());
    let configs = mcs::Configs { api: Arc::clone(&api), facts: facts.clone(), log };
    let mcs_tasks = configs.serve(listening(args.ip), &pair).await?;
    say::moment("pivot", "machine-config-server-up", &json!({ "port": mcs::PORT }));

    let looking = Looking { api: &api, facts: &facts, own, done: &done, approves: of_lab };
    pivot(&looking, &mut etcd_process).await?;
    fs::write(file(".etcd-pivot.done"), "")?;
    say::moment("pivot", "bootkube-done", &json!({}));
    // Before the address goes to a master: a connection whose address has moved away ends for nobody, and who asked over it would
    // wait for minutes.
    for task in mcs_tasks.into_iter().chain([api_task]) {
        task.abort();
        let _ = task.await;
    }
    Ok(())
}

/// Where a bootstrap has the log of its machine-config server, as kubelets name such files.
const MCS_LOG: &str =
    "/var/log/containers/machine-config-server-bootstrap_openshift-machine-config-operator_machine-config-server-0.log";

/// What a cluster has before its operators run: namespaces, the service of names, the proxy, the machine configs that nodes point at.
async fn furnish(api: &Arc<Api>, facts: &ClusterFacts) -> io::Result<()> {
    for name in kinds::NAMESPACES {
        create(api, &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })).await?;
    }
    create(api, &json!({ "apiVersion": "config.openshift.io/v1", "kind": "Proxy", "metadata": { "name": "cluster" }, "spec": {} }))
        .await?;
    for pool in ["master", "worker"] {
        let version = "machineconfiguration.openshift.io/v1";
        let rendered = rendered_config(pool);
        let config = json!({ "apiVersion": version, "kind": "MachineConfig", "metadata": { "name": rendered },
            "spec": { "config": { "ignition": { "version": "3.2.0" } }, "osImageURL": "" } });
        create(api, &config).await?;
        let pool = json!({ "apiVersion": version, "kind": "MachineConfigPool", "metadata": { "name": pool },
            "spec": { "configuration": { "name": rendered } }, "status": { "configuration": { "name": rendered } } });
        create_with_status(api, &pool).await?;
    }
    say::note("pivot", &format!("the cluster {} has its first objects", facts.domain));
    Ok(())
}

/// The service of names, with the address that it has in every cluster: the tenth of the network of services.
async fn name_service(api: &Arc<Api>) -> io::Result<()> {
    let config = get(api, "/api/v1/namespaces/kube-system/configmaps/cluster-config-v1").await.unwrap_or_default();
    let config = config["data"]["install-config"].as_str().unwrap_or_default();
    let config: Value = serde_yaml::from_str(config).unwrap_or_default();
    let network = config["networking"]["serviceNetwork"][0].as_str().unwrap_or("172.30.0.0/16");
    let network: ipnet::IpNet = network
        .parse()
        .map_err(|e| io::Error::other(format!("serviceNetwork {network} of the install-config: {e}")))?;
    let address: IpAddr = match network.network() {
        IpAddr::V4(v4) => IpAddr::from(std::net::Ipv4Addr::from_bits(v4.to_bits() + 10)),
        IpAddr::V6(v6) => IpAddr::from(std::net::Ipv6Addr::from_bits(v6.to_bits() + 10)),
    };
    let service = json!({ "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "dns-default", "namespace": "openshift-dns" },
        "spec": { "clusterIP": address, "clusterIPs": [address], "type": "ClusterIP",
            "ports": [{ "name": "dns", "port": 53, "protocol": "UDP" }] } });
    create(api, &service).await.map(drop)
}

/// The config that nodes of a pool point at.
pub fn rendered_config(pool: &str) -> String {
    format!("rendered-{pool}-vlab")
}

/// The certificate requests that nobody has decided on.
pub const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// The approval of a request, with everything that it had.
pub fn approved(csr: &Value) -> Value {
    let mut csr = csr.clone();
    let condition =
        json!({ "type": "Approved", "status": "True", "reason": "VlabApproves", "message": "the lab approves" });
    match csr["status"]["conditions"].as_array_mut() {
        Some(all) => all.push(condition),
        None => csr["status"]["conditions"] = json!([condition]),
    }
    csr
}

/// Has nobody decided on that request yet?
pub fn is_pending(csr: &Value) -> bool {
    condition(csr, "Approved") != "True" && condition(csr, "Denied") != "True"
}

/// Requests for certificates.
///
/// # Errors
/// When etcd does not answer.
pub async fn requests(api: &Arc<Api>) -> io::Result<Vec<Value>> {
    Ok(items(&get(api, REQUESTS).await?).to_vec())
}

/// Approves what new nodes ask for; their names.
///
/// # Errors
/// When etcd does not answer.
pub async fn approve(api: &Arc<Api>) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for csr in requests(api).await?.iter().filter(|csr| is_pending(csr)) {
        let name = csr["metadata"]["name"].as_str().unwrap_or_default();
        let request = Request::new(Method::Put, format!("{REQUESTS}/{name}/approval")).json(&approved(csr));
        match ask(api, &request).await? {
            (200, _) => {}
            // Somebody else decided at the same moment, or a fault of the scenario does not let it be.
            (403 | 409, _) => continue,
            (status, body) => return Err(io::Error::other(format!("approval of {name}: {status} {body}"))),
        }
        say::moment("pivot", "csr-approved", &json!({ "name": name }));
        names.push(name.to_owned());
    }
    Ok(names)
}

/// Are the masters enough without the bootstrap: so many of them ready as nodes, and so many started members of etcd?
pub fn may_leave(ready_masters: usize, members: &[Member], bootstrap: &str, needed: usize) -> bool {
    let others = members.iter().filter(|m| !m.peers.iter().any(|p| p == bootstrap));
    let (started, unstarted): (Vec<_>, Vec<_>) = others.partition(|m| m.started());
    // One that was announced and has not started would count against the quorum.
    ready_masters >= needed && started.len() >= needed && unstarted.is_empty()
}

/// What the bootstrap looks at until it may leave.
struct Looking<'l> {
    api: &'l Arc<Api>,
    facts: &'l ClusterFacts,
    own: IpAddr,
    done: &'l Path,
    /// Are requests approved here? A unit of its own does it where the product's installer starts one.
    approves: bool,
}

/// Waits for the masters, and leaves etcd.
async fn pivot(looking: &Looking<'_>, etcd_process: &mut Kept) -> io::Result<()> {
    let Looking { api, facts, own, done, approves } = *looking;
    let Store::Etcd(etcd) = &api.store else { return Err(io::Error::other("bootkube needs an etcd")) };
    let needed = facts.masters_needed();
    let mut known: Vec<String> = Vec::new();
    let mut ready_before = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        if let Some(status) = etcd_process.0.try_wait()? {
            return Err(io::Error::other(format!("the temporary etcd ended: {status}")));
        }
        // etcd is without a leader for a moment at each change of its members.
        let looked = async {
            if approves {
                approve(api).await?;
            }
            let nodes = get(api, "/api/v1/nodes").await?;
            let masters = items(&nodes).iter().filter(|n| super::watch::is_master(n));
            let ready = masters.filter(|n| condition(n, "Ready") == "True").count();
            Ok::<_, io::Error>((ready, etcd.members().await?))
        };
        let (ready, members) = match looked.await {
            Ok(seen) => seen,
            Err(e) => {
                say::note("pivot", &format!("looking again: {e}"));
                continue;
            }
        };
        for member in members.iter().filter(|m| m.started()) {
            if !known.contains(&member.name) {
                known.push(member.name.clone());
                say::moment("pivot", "etcd-member", &json!({ "name": member.name, "members": members.len() }));
            }
        }
        if ready != ready_before {
            ready_before = ready;
            say::moment("pivot", "masters-ready", &json!({ "ready": ready, "needed": needed }));
        }
        if !may_leave(ready, &members, &peer_url(own), needed) {
            continue;
        }
        if faults::hangs() {
            continue;
        }
        let others: Vec<&Member> = members.iter().filter(|m| !m.peers.contains(&peer_url(own))).collect();
        say::moment("pivot", "etcd-quorum", &json!({ "members": others.iter().map(|m| &m.name).collect::<Vec<_>>() }));
        fs::write(done, "")?;
        // From here on the masters' etcd is asked.
        etcd.set_endpoints(others.iter().flat_map(|m| m.clients.clone()).collect());
        for member in members.iter().filter(|m| m.peers.contains(&peer_url(own))) {
            remove(etcd, &member.id).await?;
        }
        say::moment("pivot", "etcd-bootstrap-removed", &json!({ "members": others.len() }));
        return Ok(());
    }
}

/// Removes a member; tries again while the cluster is not healthy enough to allow it.
async fn remove(etcd: &Etcd, id: &str) -> io::Result<()> {
    let until = std::time::Instant::now() + ETCD_BUDGET;
    loop {
        let gone = |members: Vec<Member>| !members.iter().any(|m| m.id == id);
        match etcd.remove_member(id).await {
            Ok(()) => return Ok(()),
            Err(_) if etcd.members().await.is_ok_and(gone) => return Ok(()),
            Err(e) if std::time::Instant::now() >= until => return Err(e),
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Between two rounds of approving, and two looks whether the pivot is over.
const ROUND: Duration = Duration::from_secs(5);

/// The API as the bootstrap's installer and units ask it: under this machine's address, and under the cluster's names when it has moved
/// on.
///
/// # Errors
/// When bootkube has not begun: there are no keys, or nothing says what the cluster is called.
pub fn client_of(assets: &Path, own: IpAddr) -> io::Result<Client> {
    let facts = match assets.join("vlab-service.json").exists() {
        true => ClusterFacts::read(&assets.join("vlab-service.json"))?,
        false => ClusterFacts::of_manifests(&assets.join("manifests"))?,
    };
    let pki = Pki::read(&assets.join("tls"))?;
    let named = |name: &str| format!("https://{name}.{}:{API_PORT}", facts.domain);
    Ok(Client {
        servers: vec![server(own), named("api-int"), named("api")],
        credentials: pki.admin_credentials(),
        token: None,
        kept: Connections::default(),
    })
}

/// What `approve-csr.service` does: approves whatever asks, until bootkube is through. The release's unit does it every 20 s.
///
/// # Errors
/// Words for people.
pub async fn approve_csr(args: BootkubeArgs) -> Result<(), String> {
    let own = wait_for_address(args.ip).await.map_err(|e| e.to_string())?;
    let mut said = String::new();
    while !args.assets.join(".bootkube.done").exists() {
        if let Err(e) = approve_round(&args.assets, own).await
            && said != e.to_string()
        {
            said = e.to_string();
            say::note("approve-csr", &said);
        }
        tokio::time::sleep(ROUND).await;
    }
    Ok(())
}

async fn approve_round(assets: &Path, own: IpAddr) -> io::Result<()> {
    let client = client_of(assets, own)?;
    for csr in items(&client.get(REQUESTS).await?).iter().filter(|csr| is_pending(csr)) {
        let name = csr["metadata"]["name"].as_str().unwrap_or_default();
        let answer = client.send("PUT", &format!("{REQUESTS}/{name}/approval"), Some(&approved(csr))).await?;
        if answer.is_success() {
            say::moment("pivot", "csr-approved", &json!({ "name": name }));
        }
    }
    Ok(())
}

/// What `progress.service` does: waits until etcd has its quorum without the bootstrap, and says in the cluster that the bootstrap is
/// complete. The installer waits for its end.
///
/// # Errors
/// Words for people.
pub async fn progress(args: BootkubeArgs) -> Result<(), String> {
    let own = wait_for_address(args.ip).await.map_err(|e| e.to_string())?;
    while !args.assets.join(".etcd-pivot.done").exists() {
        tokio::time::sleep(ROUND).await;
    }
    let complete = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "bootstrap" },
        "data": { "status": "complete" } });
    loop {
        let client = client_of(&args.assets, own).map_err(|e| e.to_string())?;
        match client.create("/api/v1/namespaces/kube-system/configmaps", &complete).await {
            Ok(_) => break,
            // The cluster's address is just moving to a master.
            Err(e) => say::note("progress", &e.to_string()),
        }
        tokio::time::sleep(ROUND).await;
    }
    say::moment("pivot", "bootstrap-complete", &json!({}));
    Ok(())
}

/// Packs what the only node needs after its reboot into its ignition: facts, keys, and etcd's data as a snapshot.
fn pack(config: &NodeConfig, args: &BootkubeArgs, facts: &ClusterFacts, pki: &Pki, own: IpAddr) -> io::Result<()> {
    let snapshot = args.assets.join("etcd-snapshot.db");
    let status = Command::new(config.program("etcdctl"))
        .env("ETCDCTL_API", "3")
        .arg(format!("--endpoints={}", client_url(own)))
        .args(["snapshot", "save"])
        .arg(&snapshot)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", config.program("etcdctl").display())))?;
    if !status.success() {
        return Err(io::Error::other(format!("etcdctl snapshot save: {status}")));
    }
    let bytes = fs::read(&snapshot)?;
    say::moment("pivot", "etcd-snapshot", &json!({ "bytes": bytes.len() }));
    let mut entry = ignition::file(&format!("{FOLDER}/etcd-snapshot.db"), 0o600, &gzip(&bytes)?);
    entry["contents"]["compression"] = json!("gzip");
    let mut files =
        vec![entry, ignition::file(KUBECONFIG, 0o600, kubeconfig(pki, "https://localhost:6443").as_bytes())];
    files.extend(mcs::own_config());
    let node = mcs::config("master", facts, pki, files).to_string();
    // The service's own master.ign of a single node has its users and files: ours go on top.
    let path = args.assets.join("master.ign");
    let merged = match fs::read(&path) {
        Ok(theirs) => ignition::put_all(&theirs, node.as_bytes()).map_err(io::Error::other)?,
        Err(_) => node.into_bytes(),
    };
    fs::write(path, merged)
}

/// Where a single node's controller finds the way to the API before the cluster's own is there.
const KUBECONFIG: &str = "/etc/kubernetes/bootstrap-secrets/kubeconfig";

/// A kubeconfig of the administrator.
pub fn kubeconfig(pki: &Pki, server: &str) -> String {
    use base64::Engine as _;
    let packed = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "admin",
        "clusters": [{ "name": "lab", "cluster": { "server": server, "certificate-authority-data": packed(&pki.ca.cert) } }],
        "users": [{ "name": "admin", "user": { "client-certificate-data": packed(&pki.admin.cert),
            "client-key-data": packed(&pki.admin.key) } }],
        "contexts": [{ "name": "admin", "context": { "cluster": "lab", "user": "admin" } }] });
    serde_yaml::to_string(&config).unwrap_or_default()
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    use std::io::Write;
    let mut packed = flate2::GzBuilder::new().mtime(0).write(Vec::new(), flate2::Compression::default());
    packed.write_all(bytes)?;
    packed.finish()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn member(address: &str, started: bool) -> Member {
        let name = if started { address.to_owned() } else { String::new() };
        let clients = if started { vec![format!("http://{address}:2379")] } else { vec![] };
        Member { id: address.into(), name, peers: vec![format!("http://{address}:2380")], clients }
    }

    #[rstest]
    #[case::nobody(0, &["b+"], false)]
    #[case::one(1, &["b+", "m+"], false)]
    #[case::two(2, &["b+", "m+", "n+"], true)]
    #[case::not_ready(1, &["b+", "m+", "n+"], false)]
    #[case::no_members(2, &["b+"], false)]
    #[case::announced_and_not_started(2, &["b+", "m+", "n+", "o-"], false)]
    fn the_bootstrap_waits_for_enough_masters(#[case] ready: usize, #[case] members: &[&str], #[case] expected: bool) {
        let members: Vec<Member> = members.iter().map(|m| member(&m[..1], m.ends_with('+'))).collect();
        assert_eq!(may_leave(ready, &members, "http://b:2380", 2), expected);
    }
    /// A slow installer may have seen no master before bootkube was through, and must find the cluster all the same.
    #[test]
    fn the_cluster_is_found_when_the_bootstrap_has_left_it() {
        let assets = tempfile::tempdir().unwrap();
        let facts = json!({ "url": "http://s", "cluster_id": uuid::Uuid::nil(), "infra_env_id": uuid::Uuid::nil(),
            "control_plane_count": 3, "domain": "demo.lab.example" });
        fs::write(assets.path().join("vlab-service.json"), facts.to_string()).unwrap();
        let own = "192.0.2.9".parse().unwrap();
        assert!(client_of(assets.path(), own).is_err(), "there are no keys yet");
        Pki::make(&["localhost".into()]).unwrap().write(&assets.path().join("tls")).unwrap();
        let client = client_of(assets.path(), own).unwrap().also_at(&["https://192.0.2.1:6443".to_owned()]);
        assert_eq!(
            client.servers,
            [
                "https://192.0.2.9:6443",
                "https://192.0.2.1:6443",
                "https://api-int.demo.lab.example:6443",
                "https://api.demo.lab.example:6443"
            ]
        );
    }
}
