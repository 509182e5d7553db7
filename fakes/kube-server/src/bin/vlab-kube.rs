//! `vlab-kube`: the small Kubernetes API server by itself. `vlab kube` starts it.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use vlab_kube::{Authorization, Caller, Options};
use vlab_kube_server::{Keys, ServeOptions, kubeconfig, serve};

/// A small Kubernetes API server for controllers and their tests: no cluster, no etcd, nothing to install.
#[derive(Debug, Parser)]
#[command(name = "vlab-kube", version)]
struct Args {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// Folder for keys and the kubeconfig. Keys that are there are used again.
    #[arg(long, default_value = "vlab-kube")]
    dir: PathBuf,
    /// Plain HTTP; everybody is the administrator.
    #[arg(long)]
    http: bool,
    /// Beside plain HTTP it listens with TLS, too, on a free port of the same address. What programs in pods are given is in the folder
    /// `account` of `--dir` then: `token`, `ca.crt`, and `server`, which has its address.
    #[arg(long, requires = "http")]
    pods: bool,
    /// More names and addresses for the server's certificate.
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// Only what roles allow; without this everybody who is known may do everything.
    #[arg(long)]
    roles: bool,
    /// Objects can be made in namespaces that do not exist.
    #[arg(long)]
    any_namespace: bool,
    /// Seed of uids and generated names.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where a service of the cluster is reached that webhooks name, `NAME.NAMESPACE=HOST:PORT`.
    #[arg(long = "service", value_name = "SERVICE", value_parser = service)]
    services: Vec<(String, String)>,
}

fn service(text: &str) -> Result<(String, String), String> {
    let (name, address) = text.split_once('=').ok_or("expected NAME.NAMESPACE=HOST:PORT")?;
    if name.contains('.') && address.contains(':') {
        Ok((name.to_owned(), address.to_owned()))
    } else {
        Err("expected NAME.NAMESPACE=HOST:PORT".into())
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    // One thread: requests take turns at the store anyway, and what they leave behind is in one heap.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    match runtime.block_on(run(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &std::io::Error) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "vlab kube: {error}");
    ExitCode::from(3)
}

/// One that nobody can guess.
fn token() -> std::io::Result<String> {
    let mut bytes = [0; 24];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

async fn run(args: Args) -> std::io::Result<()> {
    let mut names = vec!["localhost".to_owned(), "kubernetes.default.svc".to_owned(), args.listen.ip().to_string()];
    names.extend(args.names);
    std::fs::create_dir_all(&args.dir)?;
    let keys = if args.http { None } else { Some(Keys::of_folder(&args.dir, &names)?) };
    let authorization = if args.roles { Authorization::Roles } else { Authorization::AlwaysAllow };
    let mut core = Options { seed: args.seed, any_namespace: args.any_namespace, authorization, ..Options::default() };
    let account = args.dir.join("account");
    let mut also = None;
    if args.pods {
        also = Some(((args.listen.ip(), 0).into(), Keys::of_folder(&account, &names)?));
        let token = token()?;
        vlab_kube_server::write_secret(&account.join("token"), &token)?;
        core.tokens.insert(token, Caller::admin());
    }
    let services: BTreeMap<String, String> = args.services.into_iter().collect();
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let server = serve(ServeOptions { listen: args.listen, keys: keys.clone(), also, core, services }).await?;
    if let Some(address) = server.also() {
        std::fs::write(account.join("server"), format!("{address}\n"))?;
    }
    let path = args.dir.join("kubeconfig");
    vlab_kube_server::write_secret(&path, &kubeconfig(&server.url(), keys.as_ref()))?;
    let said = format!("{}\nexport KUBECONFIG={}\n", server.url(), std::path::absolute(&path)?.display());
    // Whoever started it may have closed the pipe: that is no reason to end.
    let _ = std::io::stdout().write_all(said.as_bytes());
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    Ok(())
}
