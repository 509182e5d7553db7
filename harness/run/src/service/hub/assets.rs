//! A real API server on a real etcd, of a folder that somebody has (`etcd`, `kube-apiserver`, `kubectl`: the folder that envtest uses).
//! It lives as long as the run, and is the run's alone.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::KeyPair;
use serde_json::json;
use vlab_client::Endpoint;
use vlab_lab::hub::kubectl;
use vlab_lab::ledger::{Ledger, Resource};
use vlab_lab::process::{Child, Program};

use super::proxy::Proxy;
use crate::service::process::lost_port;
use crate::service::ready::free_address;
use crate::service::{STOP, StartError};

/// The programs that the folder must have, besides kubectl, which may be elsewhere.
const PROGRAMS: [&str; 2] = ["etcd", "kube-apiserver"];
/// How long etcd and the API server may take until they are ready.
const BUDGET: Duration = Duration::from_secs(120);

/// What runs.
#[derive(Debug)]
pub(super) struct Assets {
    /// In the order in which they are stopped.
    pub(super) programs: Vec<Child>,
    /// Where the API server answers by plain HTTP.
    pub(super) endpoint: Endpoint,
    /// etcd's data, keys; removed at the end.
    folder: PathBuf,
    entry: Option<(Arc<Ledger>, vlab_lab::ledger::Token)>,
}

/// Are the programs there?
///
/// # Errors
/// Which one is not, and what the folder should be.
pub fn check(folder: &Path) -> Result<(), String> {
    match PROGRAMS.iter().find(|name| !folder.join(name).is_file()) {
        Some(name) => Err(format!(
            "there is no {name} in {}: name the folder that envtest uses, with etcd, kube-apiserver and kubectl",
            folder.display()
        )),
        None => kubectl(Some(folder)).map(drop),
    }
}

fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}

/// A key for the tokens of service accounts, and its public half.
fn token_key() -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

/// So long the others have to end when one of them is gone.
const BROKEN_STOP: Duration = Duration::from_secs(2);

impl Assets {
    /// Starts etcd, the API server and a proxy to it. `run` gets the logs and the kubeconfig.
    ///
    /// # Errors
    /// One of them does not start; nothing is left then.
    pub(super) async fn start(programs: &Path, run: &Path, ledger: Option<Arc<Ledger>>) -> Result<Self, StartError> {
        check(programs).map_err(StartError::NoApiServer)?;
        match Self::start_once(programs, run, ledger.clone()).await {
            Err(error) if lost_port(&error) => {
                tracing::warn!("another program took a port of the API server; trying again with other ports");
                Self::start_once(programs, run, ledger).await
            }
            other => other,
        }
    }

    async fn start_once(programs: &Path, run: &Path, ledger: Option<Arc<Ledger>>) -> Result<Self, StartError> {
        let folder = run.join("api-server");
        let wrong = |error: io::Error| StartError::Scratch { path: folder.clone(), error };
        let entry = match &ledger {
            Some(ledger) => {
                let token = ledger.record(Resource::Directory { path: folder.clone() })?;
                Some((ledger.clone(), token))
            }
            None => None,
        };
        fs::create_dir_all(&folder).map_err(wrong)?;
        let mut started = Started { programs: Vec::new() };
        let made = started.all(programs, run, &folder, ledger).await;
        let mut assets =
            Self { programs: started.programs, endpoint: Endpoint::new(([127, 0, 0, 1], 0).into()), folder, entry };
        match made {
            Ok(endpoint) => {
                assets.endpoint = endpoint;
                Ok(assets)
            }
            Err(error) => {
                assets.stop().await;
                Err(error)
            }
        }
    }

    /// Stops them, and removes what they had on disk.
    pub(super) async fn stop(&self) {
        // An API server that has lost its etcd waits for it, and so long would the report of that be late.
        let is_whole = self.programs.iter().all(|program| program.ended().is_none());
        for program in &self.programs {
            program.stop(if is_whole { STOP } else { BROKEN_STOP }).await;
        }
        // What cannot be removed stays in the ledger and is told as a leak.
        if fs::remove_dir_all(&self.folder).is_ok()
            && let Some((ledger, token)) = &self.entry
        {
            let _ = ledger.release(*token);
        }
    }
}

struct Started {
    /// Those started last come first.
    programs: Vec<Child>,
}

impl Started {
    async fn all(
        &mut self,
        programs: &Path,
        run: &Path,
        folder: &Path,
        ledger: Option<Arc<Ledger>>,
    ) -> Result<Endpoint, StartError> {
        let address = || free_address().map_err(StartError::Port);
        let (clients, peers, secure) = (address()?, address()?, address()?);
        let in_folder = |name: &str| folder.join(name);
        let wrong = |error: io::Error| StartError::Scratch { path: folder.to_owned(), error };
        let (key, public) = token_key().map_err(|error| wrong(io::Error::other(error)))?;
        write_secret(&in_folder("sa.key"), &key).map_err(wrong)?;
        write_secret(&in_folder("sa.pub"), &public).map_err(wrong)?;
        let token = uuid::Uuid::new_v4().to_string();
        write_secret(&in_folder("tokens.csv"), &format!("{token},admin,admin,system:masters\n")).map_err(wrong)?;

        let etcd = Program::new("etcd", programs.join("etcd"), run.join("etcd.log"))
            .args(["--name=vlab".to_owned(), format!("--listen-client-urls=http://{clients}")])
            .args([format!("--advertise-client-urls=http://{clients}"), format!("--listen-peer-urls=http://{peers}")])
            .args([format!("--initial-advertise-peer-urls=http://{peers}")])
            .args([format!("--initial-cluster=vlab=http://{peers}"), "--unsafe-no-fsync".to_owned()])
            .args(["--data-dir".into(), in_folder("etcd").into_os_string()])
            .ledger(ledger.clone());
        let etcd = Child::spawn(etcd)?;
        let begun = etcd.wait_ready("etcd to answer", BUDGET, Duration::from_millis(20), || async move {
            Ok(tokio::net::TcpStream::connect(clients).await.is_ok().then_some(()))
        });
        let begun = begun.await;
        self.programs.insert(0, etcd);
        begun?;

        let server = Program::new("API server", programs.join("kube-apiserver"), run.join("kube.log"))
            .args([format!("--etcd-servers=http://{clients}"), "--bind-address=127.0.0.1".to_owned()])
            .args([format!("--secure-port={}", secure.port()), "--service-cluster-ip-range=10.0.0.0/24".to_owned()])
            .args(["--cert-dir".into(), in_folder("certs").into_os_string()])
            .args(["--token-auth-file".into(), in_folder("tokens.csv").into_os_string()])
            .args(["--service-account-issuer=https://kubernetes.default.svc".to_owned()])
            .args(["--service-account-signing-key-file".into(), in_folder("sa.key").into_os_string()])
            .args(["--service-account-key-file".into(), in_folder("sa.pub").into_os_string()])
            // Nobody here makes the accounts of namespaces.
            .args([
                "--authorization-mode=RBAC",
                "--disable-admission-plugins=ServiceAccount",
                "--allow-privileged=true",
            ])
            .ledger(ledger.clone());
        let server = Child::spawn(server)?;
        let authority = in_folder("certs").join("apiserver.crt");
        let made = server.wait_ready("the API server's certificate", BUDGET, Duration::from_millis(20), || {
            let authority = authority.clone();
            async move {
                let listens = tokio::net::TcpStream::connect(secure).await.is_ok();
                Ok(fs::read(authority).ok().filter(|pem| listens && pem.ends_with(b"-\n")))
            }
        });
        let made = made.await;
        self.programs.insert(0, server);
        let authority = made?;

        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "vlab", "preferences": {},
            "clusters": [{ "name": "vlab", "cluster": {
                "server": format!("https://{secure}"), "certificate-authority-data": STANDARD.encode(&authority),
            } }],
            "contexts": [{ "name": "vlab", "context": { "cluster": "vlab", "user": "admin", "namespace": "default" } }],
            "users": [{ "name": "admin", "user": { "token": token } }],
        });
        let kubeconfig = run.join(super::KUBECONFIG);
        write_secret(&kubeconfig, &serde_yaml::to_string(&config).unwrap_or_default()).map_err(wrong)?;
        let kubectl = kubectl(Some(programs)).map_err(StartError::NoApiServer)?;
        let Proxy { child, endpoint } = Proxy::start(&kubectl, &kubeconfig, run, ledger).await?;
        self.programs.insert(0, child);
        let server = &self.programs[1];
        let ready = server.wait_ready(super::READY, BUDGET, Duration::from_millis(50), || async {
            let request = vlab_api::http::Request::new(vlab_api::http::Method::Get, "/readyz");
            match super::ask(&endpoint, &request, Duration::from_secs(5)).await {
                Ok(response) if response.status == 200 => Ok(Some(())),
                Ok(response) => Err(format!("GET /readyz answered {}", response.status)),
                Err(error) => Err(error),
            }
        });
        ready.await?;
        Ok(endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_the_programs_is_refused_with_what_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("etcd"), "").unwrap();
        let why = check(folder.path()).unwrap_err();
        assert!(why.contains("there is no kube-apiserver in"), "{why}");
    }
}
