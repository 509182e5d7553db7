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
use vlab_api::Timestamp;

use super::api::{Api, ApiRequest, KINDS, User, condition, kind_of};
use super::etcd::{self, Begin, Etcd, Member, client_url, peer_url};
use super::facts::{ClusterFacts, FOLDER, listening, wait_for_address};
use super::mcs;
use super::pki::Pki;
use super::serve::serve_api;
use super::store::Store;
use super::watch::{API_PORT, items, server};
use crate::ignition;
use crate::install::ASSETS;
use crate::machine::NodeConfig;
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
    let mut facts = ClusterFacts::read(&file("vlab-service.json"))?;
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
    // A restart must not change what nodes were told already.
    facts.bootstrap_token = token(&file("auth/bootstrap-token"), &pki)?;
    facts.api_servers = vec![format!("https://api-int.{}:{API_PORT}", facts.domain), server(own)];

    let log = file("etcd.log");
    let begin = if args.data.join("member").exists() { Begin::Again } else { Begin::New };
    let of_etcd = etcd::arguments("etcd-bootstrap", own, &args.data, &begin, facts.is_single_node());
    let child = etcd::start(&config, &of_etcd, &log)?;
    let mut etcd_process = Kept(child);
    let etcd = Etcd::new(vec![client_url(own)]);
    etcd.wait(ETCD_BUDGET).await?;
    say::moment("pivot", "etcd-bootstrap-started", &json!({ "address": own }));

    let api = Arc::new(Api { store: Store::Etcd(etcd), pki: pki.clone() });
    let pair = pki.server("kube-apiserver", &names)?;
    let token = facts.bootstrap_token.clone();
    let (_, api_task) =
        serve_api(SocketAddr::new(listening(args.ip), API_PORT), &pair, Arc::clone(&api), token).await?;
    say::moment("pivot", "temporary-api-up", &json!({ "url": server(own) }));
    // Nodes reach the bootstrap under the cluster's virtual address; a single node has none.
    let vips = super::vip::of(&facts.api_vips, &[], 90);
    let _keepalived = Holder(super::vip::hold(&config, own, if facts.is_single_node() { &[] } else { &vips })?);
    let applied = apply_manifests(&api, &args.assets).await;
    say::moment("pivot", "manifests-applied", &json!({ "objects": applied }));

    let done = file(".bootkube.done");
    if facts.is_single_node() {
        pack(&config, &args, &facts, &pki, own)?;
        fs::write(&done, "")?;
        say::moment("pivot", "bootstrap-in-place-ready", &json!({}));
        api_task.abort();
        return Ok(());
    }
    let pair = pki.server("machine-config-server", &names)?;
    let address = SocketAddr::new(listening(args.ip), mcs::PORT);
    let (_, mcs_task) = mcs::serve_configs(address, &pair, Arc::clone(&api), facts.clone()).await?;
    say::moment("pivot", "machine-config-server-up", &json!({ "port": mcs::PORT }));

    pivot(&api, &facts, own, &done, &mut etcd_process).await?;
    fs::write(file(".etcd-pivot.done"), "")?;
    say::moment("pivot", "bootkube-done", &json!({}));
    mcs_task.abort();
    api_task.abort();
    Ok(())
}

/// What new nodes show. Made from the authority's key, so that it is the same after a restart.
fn token(path: &Path, pki: &Pki) -> io::Result<String> {
    use sha2::Digest;
    let hash = sha2::Sha256::digest(format!("vlab bootstrap token\n{}", pki.ca.key));
    let token: String = hash.iter().take(16).map(|b| format!("{b:02x}")).collect();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, &token)?;
    Ok(token)
}

/// Asks the API as the administrator, without a socket between.
async fn ask(api: &Api, method: &str, path: &str, body: &Value) -> io::Result<Value> {
    let request = ApiRequest {
        method: method.to_owned(),
        path: path.to_owned(),
        body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
        user: User::Somebody("system:admin".into()),
        ..ApiRequest::default()
    };
    let (code, answer) = api.handle(&request, Timestamp::now()).await;
    if (200..300).contains(&code) {
        Ok(answer)
    } else {
        Err(io::Error::other(format!("{method} {path}: {code} {answer}")))
    }
}

/// Puts the manifests whose kinds the API knows into it; how many. Others are noted and left out.
async fn apply_manifests(api: &Api, assets: &Path) -> usize {
    let mut applied = 0;
    for folder in ["manifests", "openshift"] {
        let mut files: Vec<PathBuf> =
            fs::read_dir(assets.join(folder)).into_iter().flatten().flatten().map(|e| e.path()).collect();
        files.sort();
        for path in files {
            let object = fs::read_to_string(&path).ok().and_then(|t| serde_yaml::from_str::<Value>(&t).ok());
            let text = |o: &Value, name: &str| o[name].as_str().unwrap_or_default().to_owned();
            let known = object.as_ref().and_then(|o| kind_of(&text(o, "apiVersion"), &text(o, "kind")));
            let (Some(object), Some(kind)) = (object, known) else {
                say::note("pivot", &format!("{}: not an object that the lab's API knows", path.display()));
                continue;
            };
            match ask(
                api,
                "POST",
                &collection(kind.group, kind.plural, object["metadata"]["namespace"].as_str()),
                &object,
            )
            .await
            {
                Ok(_) => applied += 1,
                Err(e) => say::note("pivot", &format!("{}: {e}", path.display())),
            }
        }
    }
    applied
}

/// Path of the objects of a kind. A namespace that the kind has none of is left out.
fn collection(group: &str, plural: &str, namespace: Option<&str>) -> String {
    let root = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/v1") };
    let namespaced = KINDS.iter().any(|k| k.group == group && k.plural == plural && k.namespaced);
    match namespace.filter(|_| namespaced) {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{plural}"),
    }
}

/// Approves what new nodes ask for; their names.
///
/// # Errors
/// When etcd does not answer.
pub async fn approve(api: &Api) -> io::Result<Vec<String>> {
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let mut approved = Vec::new();
    for csr in items(&ask(api, "GET", path, &Value::Null).await?) {
        let name = csr["metadata"]["name"].as_str().unwrap_or_default();
        if condition(csr, "Approved") == "True" || condition(csr, "Denied") == "True" {
            continue;
        }
        let approval =
            json!({ "status": { "conditions": [{ "type": "Approved", "status": "True", "reason": "VlabApproves" }] } });
        ask(api, "PUT", &format!("{path}/{name}/approval"), &approval).await?;
        say::moment("pivot", "csr-approved", &json!({ "name": name }));
        approved.push(name.to_owned());
    }
    Ok(approved)
}

/// Are the masters enough without the bootstrap: so many of them ready as nodes, and so many started members of etcd?
pub fn may_leave(ready_masters: usize, members: &[Member], bootstrap: &str, needed: usize) -> bool {
    let others = members.iter().filter(|m| !m.peers.iter().any(|p| p == bootstrap));
    let (started, unstarted): (Vec<_>, Vec<_>) = others.partition(|m| m.started());
    // One that was announced and has not started would count against the quorum.
    ready_masters >= needed && started.len() >= needed && unstarted.is_empty()
}

/// Waits for the masters, and leaves etcd.
async fn pivot(api: &Api, facts: &ClusterFacts, own: IpAddr, done: &Path, etcd_process: &mut Kept) -> io::Result<()> {
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
            approve(api).await?;
            let nodes = ask(api, "GET", "/api/v1/nodes", &Value::Null).await?;
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
    let node = mcs::config("master", facts, pki, vec![entry]).to_string();
    // The service's own master.ign of a single node has its users and files: ours go on top.
    let path = args.assets.join("master.ign");
    let merged = match fs::read(&path) {
        Ok(theirs) => ignition::put_all(&theirs, node.as_bytes()).map_err(io::Error::other)?,
        Err(_) => node.into_bytes(),
    };
    fs::write(path, merged)
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

    #[rstest]
    #[case("", "configmaps", Some("kube-system"), "/api/v1/namespaces/kube-system/configmaps")]
    #[case("config.openshift.io", "clusterversions", Some("x"), "/apis/config.openshift.io/v1/clusterversions")]
    fn paths(#[case] group: &str, #[case] plural: &str, #[case] namespace: Option<&str>, #[case] expected: &str) {
        assert_eq!(collection(group, plural, namespace), expected);
    }

    #[tokio::test]
    async fn manifests_of_known_kinds_are_applied() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("manifests")).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join("manifests").join(name), text).unwrap();
        write(
            "a.yaml",
            "kind: ClusterVersion\napiVersion: config.openshift.io/v1\nmetadata:\n  name: version\n  namespace: x\n",
        );
        write("b.yaml", "kind: Unheard\napiVersion: x/v1\nmetadata:\n  name: y\n");
        let api = Api { store: Store::in_memory(), pki: Pki::make(&["localhost".into()]).unwrap() };
        assert_eq!(apply_manifests(&api, folder.path()).await, 1);
        assert_eq!(apply_manifests(&api, folder.path()).await, 0, "they are there already");
    }
}
