//! What `openshift-install` does: from an install config to the cluster's manifests, and from these, with what was added to
//! them, to the ignition configs of the bootstrap and of each role, the kubeconfig and the password.
//!
//! The simulated service calls it as a function. The real one starts the program of a release image; a run without a registry
//! gives it a program with these outcomes instead (`vlab openshift-install`), so that what the real service does to the files
//! afterwards is done to files of the right form.

use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;
use vlab_api::Timestamp;

use crate::ignition::Builder;
use crate::{Artifact, ArtifactError, HOME, keys, kubeconfig};

/// Version of the ignition configs of an installation.
pub(crate) const IGNITION: &str = "3.2.0";
/// Where the bootstrap's files lie.
const ASSETS: &str = "/opt/openshift";
/// The bootstrap's config where it is a host of its own.
pub const BOOTSTRAP: &str = "bootstrap.ign";
/// The bootstrap's config of a single node, which is its own bootstrap.
pub const BOOTSTRAP_IN_PLACE: &str = "bootstrap-in-place-for-live-iso.ign";

/// What of an install config is used here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InstallConfig {
    base_domain: String,
    metadata: Named,
    #[serde(default)]
    networking: Networking,
    #[serde(default)]
    arbiter: Option<Pool>,
    #[serde(default)]
    compute: Vec<Pool>,
    #[serde(default)]
    bootstrap_in_place: Option<Value>,
    #[serde(default)]
    platform: Value,
    pull_secret: String,
    #[serde(default)]
    ssh_key: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Networking {
    network_type: Option<String>,
    cluster_network: Vec<Value>,
    service_network: Vec<Value>,
}

#[derive(Debug, Deserialize)]
struct Pool {
    #[serde(default)]
    replicas: u64,
}

/// An installation that is being prepared.
pub struct Installer {
    config: InstallConfig,
    /// The install config as it was given.
    text: String,
    version: String,
    seed: [u8; 32],
    /// `<name>.<base domain>`
    domain: String,
    infra_id: String,
    tls: Tls,
}

/// A seed for one cluster, from that of a run and what the cluster is to be.
pub fn seed_of(seed: u64, install_config: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    keys::derive(&bytes, install_config)
}

/// Id that the new cluster calls itself (`openshift_cluster_id`): it comes out of the seed, and `metadata.json` and the
/// bootstrap ignition carry it.
pub fn openshift_cluster_id(seed: &[u8; 32]) -> Uuid {
    let bytes = keys::derive(seed, "openshift cluster id");
    let mut id = [0; 16];
    id.copy_from_slice(&bytes[..16]);
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    Uuid::from_bytes(id)
}

/// The cluster's authority and what it signed.
struct Tls {
    root: keys::Authority,
    machine_config_server: keys::PemPair,
    api_server: keys::PemPair,
    admin: keys::PemPair,
}

impl Tls {
    fn new(seed: &[u8; 32], now: Timestamp, domain: &str, api_vips: &[String]) -> Result<Self, ArtifactError> {
        let root = keys::Authority::new(seed, now, "root-ca")?;
        let mut internal = vec![format!("api-int.{domain}")];
        internal.extend(api_vips.iter().cloned());
        let mut api = vec![format!("api.{domain}")];
        api.extend(internal.iter().cloned());
        api.extend(["kubernetes.default.svc".to_owned(), "localhost".to_owned(), "127.0.0.1".to_owned()]);
        Ok(Self {
            machine_config_server: root.issue("machine-config-server", &keys::Usage::Server(&internal))?,
            api_server: root.issue("kube-apiserver", &keys::Usage::Server(&api))?,
            admin: root.issue("system:admin", &keys::Usage::Client("system:masters"))?,
            root,
        })
    }
}

impl Installer {
    /// Reads an install config. `version` is the release's. Keys, ids and the password come out of the seed; certificates are
    /// valid from one day before `now`, for ten years.
    ///
    /// # Errors
    /// [`ArtifactError::InstallConfig`], and when a certificate cannot be made.
    pub fn read(text: &str, version: &str, seed: [u8; 32], now: Timestamp) -> Result<Self, ArtifactError> {
        let bad = |reason: String| ArtifactError::InstallConfig(reason);
        let config: InstallConfig = serde_yaml::from_str(text).map_err(|e| bad(e.to_string()))?;
        for (value, what) in [(&config.base_domain, "baseDomain"), (&config.metadata.name, "metadata.name")] {
            if value.is_empty() {
                return Err(bad(format!("{what} is empty")));
            }
        }
        let domain = format!("{}.{}", config.metadata.name, config.base_domain);
        // The installer cuts the name to 21 characters and adds five of its own; ambiguous characters are left out.
        let stem: String = config.metadata.name.chars().take(21).collect();
        let letters = keys::derive_text(&seed, "infra id", b"bcdfghjklmnpqrstvwxz2456789", 5);
        let infra_id = format!("{}-{letters}", stem.trim_end_matches(['-', '.']));
        let tls = Tls::new(&seed, now, &domain, &vips(&config.platform, "apiVIPs"))?;
        Ok(Self { config, text: text.to_owned(), version: version.to_owned(), seed, domain, infra_id, tls })
    }

    /// Is the one node its own bootstrap?
    pub fn single_node(&self) -> bool {
        self.config.bootstrap_in_place.is_some()
    }

    /// Roles that have an ignition config.
    fn roles(&self) -> Vec<&'static str> {
        let arbiters = self.config.arbiter.as_ref().is_some_and(|pool| pool.replicas > 0);
        ["master", "worker"].into_iter().chain(arbiters.then_some("arbiter")).collect()
    }

    /// `create manifests`: the files, named by their paths below the assets' folder.
    pub fn manifests(&self) -> Vec<Artifact> {
        let networking = &self.config.networking;
        let workers: u64 = self.config.compute.iter().map(|pool| pool.replicas).sum();
        let topology = |several: bool| if several { "HighlyAvailable" } else { "SingleReplica" };
        let config = |kind: &str, body: Value| manifest(kind, "config.openshift.io/v1", "cluster", None, body);
        let mut all = vec![
            (
                "manifests/cvo-overrides.yaml".to_owned(),
                manifest(
                    "ClusterVersion",
                    "config.openshift.io/v1",
                    "version",
                    Some("openshift-cluster-version"),
                    json!({ "spec": self.version_spec() }),
                ),
            ),
            (
                "manifests/cluster-config.yaml".to_owned(),
                manifest(
                    "ConfigMap",
                    "v1",
                    "cluster-config-v1",
                    Some("kube-system"),
                    json!({ "data": { "install-config": without_secret(&self.text) } }),
                ),
            ),
            (
                "manifests/cluster-infrastructure-02-config.yml".to_owned(),
                config(
                    "Infrastructure",
                    json!({ "status": {
                        "apiServerInternalURI": format!("https://api-int.{}:6443", self.domain),
                        "apiServerURL": format!("https://api.{}:6443", self.domain),
                        "controlPlaneTopology": topology(!self.single_node()),
                        // One worker carries what several would share; without any the control plane does.
                        "infrastructureTopology": topology(!self.single_node() && workers != 1),
                        "infrastructureName": self.infra_id,
                    }}),
                ),
            ),
            (
                "manifests/cluster-network-02-config.yml".to_owned(),
                config(
                    "Network",
                    json!({ "spec": {
                        "clusterNetwork": networking.cluster_network,
                        "serviceNetwork": networking.service_network,
                        "networkType": networking.network_type.as_deref().unwrap_or("OVNKubernetes"),
                    }}),
                ),
            ),
            (
                "manifests/cluster-dns-02-config.yml".to_owned(),
                config("DNS", json!({ "spec": { "baseDomain": self.domain } })),
            ),
            (
                "manifests/cluster-ingress-02-config.yml".to_owned(),
                config("Ingress", json!({ "spec": { "domain": format!("apps.{}", self.domain) } })),
            ),
            (
                "manifests/cluster-scheduler-02-config.yml".to_owned(),
                config("Scheduler", json!({ "spec": { "mastersSchedulable": workers == 0 } })),
            ),
        ];
        // Who installed it: programs in the cluster read it. On every platform it is what the folder has in any case.
        let by = json!({ "data": { "invoker": "assisted-service", "version": self.version } });
        let text = manifest("ConfigMap", "v1", "openshift-install-manifests", Some("openshift-config"), by);
        all.push(("openshift/openshift-install-manifests.yaml".to_owned(), text));
        let hosts = self.config.platform.pointer("/baremetal/hosts").and_then(Value::as_array);
        for (index, host) in hosts.into_iter().flatten().enumerate() {
            // Hosts without a management controller: the operator adopts them, it does not provision.
            let body = json!({ "spec": {
                "bmc": { "address": "", "credentialsName": "" },
                "bootMACAddress": host["bootMACAddress"],
                "online": true,
            }});
            let name = host["name"].as_str().unwrap_or_default();
            let text = manifest("BareMetalHost", "metal3.io/v1alpha1", name, Some("openshift-machine-api"), body);
            all.push((format!("openshift/99_openshift-cluster-api_hosts-{index}.yaml"), text));
        }
        all.into_iter().map(|(name, text)| Artifact { name, bytes: text.into_bytes() }).collect()
    }

    /// `create ignition-configs`, and `create single-node-ignition-config` of a single node: [`BOOTSTRAP`] or
    /// [`BOOTSTRAP_IN_PLACE`], `<role>.ign`, `metadata.json`, `auth/kubeconfig`, `auth/kubeadmin-password`. The manifests are laid
    /// out for the bootstrap.
    ///
    /// # Errors
    /// When the kubeconfig cannot be written.
    pub fn ignition_configs(&self, manifests: &[Artifact]) -> Result<Vec<Artifact>, ArtifactError> {
        // Four groups of five, without characters that look alike.
        let alphabet = b"23456789ABCDEFGHIJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
        let letters = keys::derive_text(&self.seed, "kubeadmin password", alphabet, 20);
        let password = [&letters[..5], &letters[5..10], &letters[10..15], &letters[15..]].join("-");
        let server = format!("https://api.{}:6443", self.domain);
        let name = &self.config.metadata.name;
        let kubeconfig = kubeconfig::admin(name, &server, &self.tls.root.pair.cert, &self.tls.admin)?;

        let mut artifacts = Vec::new();
        let mut add = |name: &str, bytes: Vec<u8>| artifacts.push(Artifact { name: name.to_owned(), bytes });
        let bootstrap = if self.single_node() { BOOTSTRAP_IN_PLACE } else { BOOTSTRAP };
        add(bootstrap, self.bootstrap(manifests, &kubeconfig, &password));
        for role in self.roles() {
            add(&format!("{role}.ign"), self.pointer(role).build());
        }
        let metadata = json!({
            "clusterName": name,
            "clusterID": openshift_cluster_id(&self.seed),
            "infraID": self.infra_id,
        });
        add("metadata.json", metadata.to_string().into_bytes());
        add("auth/kubeconfig", kubeconfig);
        add("auth/kubeadmin-password", password.into_bytes());
        Ok(artifacts)
    }

    /// What a node of that role (or machine config pool) boots with: where the rest of its config is. A single node has nobody
    /// to ask, so its config is empty here and is completed from the bootstrap's files.
    pub(crate) fn pointer(&self, pool: &str) -> Builder {
        let builder = Builder::new(IGNITION);
        if self.single_node() {
            return builder;
        }
        builder
            .merge_from(&format!("https://api-int.{}:22623/config/{pool}", self.domain), &[])
            .trust(self.tls.root.pair.cert.as_bytes())
    }

    /// With the channel `stable-<major>.<minor>` of the release, where its version is known.
    fn version_spec(&self) -> Value {
        let mut parts = self.version.split(['.', '-']);
        let mut spec = json!({});
        if let (Some(major), Some(minor)) = (parts.next(), parts.next()) {
            spec["channel"] = json!(format!("stable-{major}.{minor}"));
        }
        spec["clusterID"] = json!(openshift_cluster_id(&self.seed));
        spec
    }

    fn bootstrap(&self, manifests: &[Artifact], kubeconfig: &[u8], password: &str) -> Vec<u8> {
        let (config, tls) = (&self.config, &self.tls);
        let mut ignition = Builder::new(IGNITION)
            .core_user(config.ssh_key.as_deref())
            .file(&format!("{HOME}/.docker/config.json"), 0o600, &config.pull_secret)
            .file(
                "/etc/motd",
                0o644,
                "This is the bootstrap of a cluster that is being installed.\nIts log:  journalctl -u bootkube.service\n",
            )
            .file("/usr/local/bin/bootkube.sh", 0o755, BOOTKUBE_SCRIPT);
        for manifest in manifests {
            ignition = ignition.file(&format!("{ASSETS}/{}", manifest.name), 0o644, &manifest.bytes);
        }
        let secrets = [
            ("tls/root-ca.crt", &tls.root.pair.cert),
            ("tls/root-ca.key", &tls.root.pair.key),
            ("tls/machine-config-server.crt", &tls.machine_config_server.cert),
            ("tls/machine-config-server.key", &tls.machine_config_server.key),
            ("tls/kube-apiserver.crt", &tls.api_server.cert),
            ("tls/kube-apiserver.key", &tls.api_server.key),
            ("tls/admin.crt", &tls.admin.cert),
            ("tls/admin.key", &tls.admin.key),
        ];
        for (path, content) in secrets {
            ignition = ignition.file(&format!("{ASSETS}/{path}"), 0o600, content);
        }
        ignition = ignition.file(&format!("{ASSETS}/auth/kubeconfig"), 0o600, kubeconfig).file(
            &format!("{ASSETS}/auth/kubeadmin-password"),
            0o600,
            password,
        );
        if self.single_node() {
            // In place: the one node is its own bootstrap, and what it will boot with afterwards lies beside the assets.
            let node = Builder::new(IGNITION)
                .core_user(config.ssh_key.as_deref())
                .file("/etc/kubernetes/ca.crt", 0o644, &tls.root.pair.cert)
                .file("/etc/kubernetes/kubeconfig", 0o600, kubeconfig)
                .build();
            ignition = ignition.file(&format!("{ASSETS}/master.ign"), 0o644, node);
        }
        ignition.unit("bootkube.service", true, BOOTKUBE_UNIT).build()
    }
}

/// The addresses that a platform, whichever it is, has under that name.
fn vips(platform: &Value, name: &str) -> Vec<String> {
    let lists = platform.as_object().into_iter().flatten().filter_map(|(_, platform)| platform.get(name)?.as_array());
    lists.flatten().filter_map(|vip| vip.as_str().map(str::to_owned)).collect()
}

/// An object of Kubernetes in YAML.
fn manifest(kind: &str, api: &str, name: &str, namespace: Option<&str>, body: Value) -> String {
    let mut metadata = json!({ "name": name });
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    let mut object = json!({ "apiVersion": api, "kind": kind, "metadata": metadata });
    if let (Some(object), Value::Object(body)) = (object.as_object_mut(), body) {
        object.extend(body);
    }
    // A value of plain JSON always has a YAML form.
    serde_yaml::to_string(&object).unwrap_or_default()
}

/// The install config as the cluster keeps it for reading: everybody in the cluster may, so no pull secret.
fn without_secret(install_config: &str) -> String {
    let mut value: Value = serde_yaml::from_str(install_config).unwrap_or_default();
    if let Some(secret) = value.get_mut("pullSecret") {
        *secret = json!("");
    }
    serde_yaml::to_string(&value).unwrap_or_default()
}

/// Starts the temporary control plane. The program is part of the lab's node image; on a machine without it the unit fails and
/// says so, because nothing else here could bring up a cluster.
const BOOTKUBE_SCRIPT: &str = "\
#!/bin/bash
set -euo pipefail
assets=/opt/openshift
done_file=$assets/.bootkube.done
if [ -e \"$done_file\" ]; then
    echo 'bootkube: the control plane was brought up before, nothing to do'
    exit 0
fi
bootstrap=/usr/local/bin/vlab-bootstrap
if [ ! -x \"$bootstrap\" ]; then
    echo \"bootkube: $bootstrap is missing: this is not a lab node image\" >&2
    exit 1
fi
\"$bootstrap\" --assets \"$assets\"
touch \"$done_file\"
echo 'bootkube.service complete'
";

// As in the release, it does not block who starts it: the installer does other things until bootkube is done. The release's units
// that approve and that wait for the end are the machine's own here (`vlab-node`), as they are for a config that has none of them.
const BOOTKUBE_UNIT: &str = "\
[Unit]
Description=Bring up the temporary control plane
Wants=network-online.target
After=network-online.target

[Service]
Type=simple
WorkingDirectory=/opt/openshift
ExecStart=/usr/local/bin/bootkube.sh
Restart=on-failure
RestartSec=5s

[Install]
WantedBy=multi-user.target
";
