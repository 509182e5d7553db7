//! The container engine of this machine: where it is ([`find`]), and the few questions to it that must work without an async
//! runtime and without the lab: the supervisor and `gc` remove leftovers with them, `doctor` tells what there is, the builder
//! of images loads them. Containers of a run are started by a program of their own with `testcontainers`; [`helper`] has what is
//! said to it.
//!
//! Docker and Podman speak the same language on a socket: HTTP with JSON. A request here is one connection, asked in
//! HTTP/1.0, so that an answer ends with its connection.

pub mod helper;

use std::fmt;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

/// How long the engine may take to say who it is.
const HELLO: Duration = Duration::from_secs(5);
/// How long it may take for anything else. Removing a container can take some seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take to load an image.
const LOADING: Duration = Duration::from_secs(300);

/// The label that everything of a run has: its value is the run's id.
pub const LABEL_RUN: &str = "vlab.run";
/// The label that says which harness made it: the name of its ledger is in it, see `vlab gc`.
pub const LABEL_OWNER: &str = "vlab.owner";
/// The label of images that we built: the checksum of what they were made of.
pub const LABEL_CONTENT: &str = "vlab.content";

/// Where an engine listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// A socket in the file system.
    Unix(PathBuf),
    /// `host:port`, without encryption.
    Tcp(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(authority) => write!(f, "tcp://{authority}"),
        }
    }
}

impl std::str::FromStr for Address {
    type Err = String;

    /// The form of `DOCKER_HOST`.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix://") {
            return match path.starts_with('/') {
                true => Ok(Self::Unix(path.into())),
                false => Err(format!("{text}: expected unix:///path/of/the.sock")),
            };
        }
        match text.strip_prefix("tcp://").or_else(|| text.strip_prefix("http://")) {
            Some(rest) => match rest.trim_end_matches('/').rsplit_once(':') {
                Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                    Ok(Self::Tcp(format!("{host}:{port}")))
                }
                _ => Err(format!("{text}: expected tcp://HOST:PORT")),
            },
            None => Err(format!(
                "{text}: only unix:// and plain tcp:// are understood; for ssh:// or TLS forward the engine's socket \
                 (ssh -L /tmp/docker.sock:/var/run/docker.sock HOST)"
            )),
        }
    }
}

/// Which engine it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// Docker Engine.
    Docker,
    /// Podman's service for Docker's clients.
    Podman,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Docker => "Docker",
            Self::Podman => "Podman",
        })
    }
}

/// An engine that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// Where it is.
    pub address: Address,
    /// Which one.
    pub kind: EngineKind,
    /// Its version.
    pub version: String,
    /// The newest version of the language that it speaks, `1.41`.
    pub api: String,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at {}", self.kind, self.version, self.address)
    }
}

/// Why one of the places has no engine for us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is no socket.
    NoSocket,
    /// There is one, and nobody listens.
    NotRunning,
    /// We may not use it.
    NoPermission,
    /// Something else.
    Other(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSocket => f.write_str("there is no such socket"),
            Self::NotRunning => f.write_str("nothing is listening: the engine is not running"),
            Self::NoPermission => f.write_str("this user may not use the socket"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// No engine can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct NoEngine {
    /// Where was looked, and what was there.
    pub looked: Vec<(String, Refusal)>,
    /// Is a program of an engine installed?
    pub installed: bool,
}

impl NoEngine {
    /// Is there none at all, as opposed to one that cannot be used?
    #[must_use]
    pub fn is_missing(&self) -> bool {
        !self.installed && self.looked.iter().all(|(_, refusal)| *refusal == Refusal::NoSocket)
    }

    /// What is wrong, in a word.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        let any = |wanted: &Refusal| self.looked.iter().any(|(_, refusal)| refusal == wanted);
        if any(&Refusal::NoPermission) {
            "no permission to use the container engine"
        } else if self.looked.iter().any(|(_, refusal)| matches!(refusal, Refusal::Other(_))) {
            "the container engine cannot be used"
        } else if self.installed || any(&Refusal::NotRunning) {
            "no container engine is running"
        } else {
            "no container engine is installed"
        }
    }

    /// What to do.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        match self.cause() {
            "no permission to use the container engine" => {
                "join the group of the socket (usermod -aG docker USER, then log in again), run as root, or use rootless \
                 Podman (podman system service)"
            }
            "the container engine cannot be used" => "see the reason above; DOCKER_HOST names another engine",
            "no container engine is running" => {
                "start it: `cargo xtask setup --containers`, or systemctl start docker, or podman system service \
                 --time=0 & ; DOCKER_HOST names one that listens elsewhere"
            }
            _ => "install and start one: `cargo xtask setup --containers` (Debian: apt-get install docker.io)",
        }
    }
}

impl fmt::Display for NoEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause())?;
        for (place, refusal) in &self.looked {
            write!(f, "\n  {place}: {refusal}")?;
        }
        write!(f, "\n  fix: {}", self.fix())
    }
}

/// Where engines may be: with a word for people.
fn places(variable: &dyn Fn(&str) -> Option<String>) -> Vec<(String, Result<Address, String>)> {
    // One that is named is the only one that counts: another one would be a surprise.
    if let Some(host) = variable("DOCKER_HOST").filter(|host| !host.is_empty()) {
        return vec![(format!("DOCKER_HOST={host}"), host.parse())];
    }
    let mut paths = vec![PathBuf::from("/var/run/docker.sock")];
    let runtime = variable("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    paths.extend(runtime.iter().map(|dir| dir.join("docker.sock")));
    paths.push(PathBuf::from("/run/podman/podman.sock"));
    paths.extend(runtime.iter().map(|dir| dir.join("podman").join("podman.sock")));
    paths.into_iter().map(|path| (path.display().to_string(), Ok(Address::Unix(path)))).collect()
}

/// The engine of this machine: that of `DOCKER_HOST` when it is set, else the first one that answers at
/// `/var/run/docker.sock`, `$XDG_RUNTIME_DIR/docker.sock` (rootless), `/run/podman/podman.sock`,
/// `$XDG_RUNTIME_DIR/podman/podman.sock`.
///
/// # Errors
/// [`NoEngine`] with all places and what is wrong at each.
pub fn find() -> Result<Engine, NoEngine> {
    find_with(&|name| std::env::var(name).ok())
}

fn find_with(variable: &dyn Fn(&str) -> Option<String>) -> Result<Engine, NoEngine> {
    let mut looked = Vec::new();
    for (place, address) in places(variable) {
        let refusal = match address {
            Ok(address) => match hello(&address) {
                Ok(engine) => return Ok(engine),
                Err(refusal) => refusal,
            },
            Err(problem) => Refusal::Other(problem),
        };
        looked.push((place, refusal));
    }
    let installed = ["dockerd", "podman"].iter().any(|name| {
        ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"]
            .iter()
            .any(|dir| Path::new(dir).join(name).exists())
    });
    Err(NoEngine { looked, installed })
}

/// Asks what is there who it is.
///
/// # Errors
/// Nobody, or somebody else.
pub fn hello(address: &Address) -> Result<Engine, Refusal> {
    let answer = request(address, "GET", "/version", Body::Empty, HELLO).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Refusal::NoSocket,
        io::ErrorKind::ConnectionRefused => Refusal::NotRunning,
        io::ErrorKind::PermissionDenied => Refusal::NoPermission,
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Refusal::Other(format!("no answer within {HELLO:?}")),
        _ => Refusal::Other(error.to_string()),
    })?;
    let value: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let (Some(version), Some(api), 200) = (text("Version"), text("ApiVersion"), answer.status) else {
        return Err(Refusal::Other(format!("it answers HTTP {}, and not as a container engine", answer.status)));
    };
    let podman = value["Components"]
        .as_array()
        .is_some_and(|all| all.iter().any(|c| c["Name"].as_str().is_some_and(|name| name.contains("Podman"))));
    let kind = if podman { EngineKind::Podman } else { EngineKind::Docker };
    Ok(Engine { address: address.clone(), kind, version, api })
}

/// What goes with a request.
enum Body<'a> {
    Empty,
    Json(&'a Value),
    Tar(&'a Path),
}

/// What comes back.
struct EngineResponse {
    status: u16,
    body: Vec<u8>,
}

impl EngineResponse {
    /// The engine's own words about what went wrong.
    fn message(&self) -> String {
        let value: Option<Value> = serde_json::from_slice(&self.body).ok();
        let message = value.as_ref().and_then(|v| v.get("message").or_else(|| v.get("cause"))).and_then(Value::as_str);
        message.map_or_else(|| String::from_utf8_lossy(&self.body).trim().to_owned(), str::to_owned)
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

fn connect(address: &Address, patience: Duration) -> io::Result<Box<dyn Stream>> {
    match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(patience))?;
            stream.set_write_timeout(Some(patience))?;
            Ok(Box::new(stream))
        }
        Address::Tcp(authority) => {
            let place = authority.to_socket_addrs()?.next().ok_or_else(|| io::Error::other("no such host"))?;
            let stream = TcpStream::connect_timeout(&place, HELLO)?;
            stream.set_read_timeout(Some(patience))?;
            stream.set_write_timeout(Some(patience))?;
            Ok(Box::new(stream))
        }
    }
}

fn request(
    address: &Address,
    method: &str,
    path: &str,
    body: Body<'_>,
    patience: Duration,
) -> io::Result<EngineResponse> {
    let mut stream = connect(address, patience)?;
    let mut head = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\n");
    match body {
        Body::Empty => {
            // Podman wants a length for a POST.
            head += "Content-Length: 0\r\n\r\n";
            stream.write_all(head.as_bytes())?;
        }
        Body::Json(value) => {
            let text = value.to_string();
            head += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", text.len());
            stream.write_all(head.as_bytes())?;
            stream.write_all(text.as_bytes())?;
        }
        Body::Tar(file) => {
            let mut file = std::fs::File::open(file)?;
            head += &format!("Content-Type: application/x-tar\r\nContent-Length: {}\r\n\r\n", file.metadata()?.len());
            stream.write_all(head.as_bytes())?;
            io::copy(&mut file, &mut stream)?;
        }
    }
    stream.flush()?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    read_answer(&bytes).ok_or_else(|| io::Error::other("it does not speak HTTP"))
}

fn read_answer(bytes: &[u8]) -> Option<EngineResponse> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.split_whitespace().nth(1)?.parse().ok()?;
    Some(EngineResponse { status, body: bytes[end + 4..].to_vec() })
}

/// What the engine refused to do.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {what}: {problem}")]
pub struct EngineError {
    /// Which engine.
    pub address: Address,
    /// What was asked.
    pub what: String,
    /// What it says.
    pub problem: String,
    /// Its HTTP status; 0 when it did not answer.
    pub status: u16,
}

/// A thing that can be left over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    /// A container.
    Container,
    /// A network.
    Network,
    /// A volume.
    Volume,
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Container => "container",
            Self::Network => "network",
            Self::Volume => "volume",
        })
    }
}

/// A thing with the labels of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labelled {
    /// Container, network or volume.
    pub thing: Thing,
    /// Its name.
    pub name: String,
    /// The run's id.
    pub run: String,
    /// Which harness made it.
    pub owner: String,
}

/// The state of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// Does it run?
    pub running: bool,
    /// Its exit code.
    pub exit_code: i64,
    /// What the engine says about its end or its failure to start.
    pub error: String,
    /// Its address in each network.
    pub addresses: Vec<(String, String)>,
    /// Ports of 127.0.0.1 by its own ports (`5432/tcp`).
    pub ports: Vec<(String, u16)>,
}

/// An image of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageInfo {
    /// Its id.
    pub id: String,
    /// Size in bytes.
    pub size: u64,
    /// Its environment.
    pub env: Vec<String>,
    /// Checksum of what it was made of, when we made it.
    pub content: Option<String>,
}

impl Engine {
    /// The engine at an address that was found earlier, without asking it.
    #[must_use]
    pub fn at(address: Address) -> Self {
        Self { address, kind: EngineKind::Docker, version: String::new(), api: String::new() }
    }

    fn ask(
        &self,
        what: &str,
        method: &str,
        path: &str,
        body: Body<'_>,
        patience: Duration,
    ) -> Result<EngineResponse, EngineError> {
        let failed = |problem: String, status: u16| EngineError {
            address: self.address.clone(),
            what: what.to_owned(),
            problem,
            status,
        };
        match request(&self.address, method, path, body, patience) {
            Ok(answer) if answer.status < 400 => Ok(answer),
            Ok(answer) => Err(failed(answer.message(), answer.status)),
            Err(error) => Err(failed(error.to_string(), 0)),
        }
    }

    fn json(&self, what: &str, path: &str) -> Result<Value, EngineError> {
        let answer = self.ask(what, "GET", path, Body::Empty, PATIENCE)?;
        serde_json::from_slice(&answer.body).map_err(|error| EngineError {
            address: self.address.clone(),
            what: what.to_owned(),
            problem: format!("no JSON: {error}"),
            status: answer.status,
        })
    }

    /// What is there of an image; `None`: it is not there.
    ///
    /// # Errors
    /// The engine does not answer.
    pub fn image(&self, name: &str) -> Result<Option<ImageInfo>, EngineError> {
        let value = match self.json("looking for an image", &format!("/images/{}/json", quoted(name))) {
            Ok(value) => value,
            Err(error) if error.status == 404 => return Ok(None),
            Err(error) => return Err(error),
        };
        let env = value["Config"]["Env"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        Ok(Some(ImageInfo {
            id: value["Id"].as_str().unwrap_or_default().to_owned(),
            size: value["Size"].as_u64().unwrap_or_default(),
            env: env.collect(),
            content: value["Config"]["Labels"][LABEL_CONTENT].as_str().map(str::to_owned),
        }))
    }

    /// The names of all images.
    ///
    /// # Errors
    /// The engine does not answer.
    pub fn images(&self) -> Result<Vec<String>, EngineError> {
        let value = self.json("listing images", "/images/json")?;
        let mut names: Vec<String> = value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|image| image["RepoTags"].as_array())
            .flatten()
            .filter_map(Value::as_str)
            .filter(|name| !name.starts_with("<none>"))
            .map(str::to_owned)
            .collect();
        names.sort();
        Ok(names)
    }

    /// Loads images from an archive.
    ///
    /// # Errors
    /// The engine does not take it.
    pub fn load(&self, archive: &Path) -> Result<(), EngineError> {
        let what = format!("loading {}", archive.display());
        let answer = self.ask(&what, "POST", "/images/load?quiet=1", Body::Tar(archive), LOADING)?;
        // It says 200 before it has read everything; what goes wrong then is in the text.
        let text = String::from_utf8_lossy(&answer.body);
        let problem = text.lines().find_map(|line| {
            let value: Value = serde_json::from_str(line).ok()?;
            value.get("error").and_then(Value::as_str).map(str::to_owned)
        });
        match problem {
            Some(problem) => Err(EngineError { address: self.address.clone(), what, problem, status: answer.status }),
            None => Ok(()),
        }
    }

    /// Makes a network with these labels.
    ///
    /// # Errors
    /// The engine cannot.
    pub fn create_network(&self, name: &str, labels: &[(&str, &str)]) -> Result<(), EngineError> {
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
        let body = serde_json::json!({"Name": name, "Driver": "bridge", "CheckDuplicate": true, "Labels": labels});
        self.ask(&format!("making the network {name}"), "POST", "/networks/create", Body::Json(&body), PATIENCE)
            .map(|_| ())
    }

    /// Makes a volume with these labels.
    ///
    /// # Errors
    /// The engine cannot.
    pub fn create_volume(&self, name: &str, labels: &[(&str, &str)]) -> Result<(), EngineError> {
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
        let body = serde_json::json!({"Name": name, "Labels": labels});
        self.ask(&format!("making the volume {name}"), "POST", "/volumes/create", Body::Json(&body), PATIENCE)
            .map(|_| ())
    }

    /// Removes a thing at once, whatever it does; a container with its nameless volumes. `false`: there is none.
    ///
    /// # Errors
    /// The engine cannot.
    pub fn remove(&self, thing: Thing, name: &str) -> Result<bool, EngineError> {
        let path = match thing {
            Thing::Container => format!("/containers/{}?force=1&v=1", quoted(name)),
            Thing::Network => format!("/networks/{}", quoted(name)),
            Thing::Volume => format!("/volumes/{}?force=1", quoted(name)),
        };
        match self.ask(&format!("removing the {thing} {name}"), "DELETE", &path, Body::Empty, PATIENCE) {
            Ok(_) => Ok(true),
            Err(error) if error.status == 404 => Ok(false),
            // Somebody else removes it at this moment: wait until that is done.
            Err(error) if error.status == 409 && error.problem.contains("already in progress") => {
                for _ in 0..100 {
                    if !self.exists(thing, name)? {
                        return Ok(true);
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Lets all processes of a container stand still (`still`), or go on.
    ///
    /// # Errors
    /// The engine cannot.
    pub fn pause(&self, name: &str, still: bool) -> Result<(), EngineError> {
        let verb = if still { "pause" } else { "unpause" };
        let path = format!("/containers/{}/{verb}", quoted(name));
        self.ask(&format!("{verb} of the container {name}"), "POST", &path, Body::Empty, PATIENCE).map(|_| ())
    }

    /// Is there such a thing?
    ///
    /// # Errors
    /// The engine does not answer.
    pub fn exists(&self, thing: Thing, name: &str) -> Result<bool, EngineError> {
        let path = match thing {
            Thing::Container => format!("/containers/{}/json", quoted(name)),
            Thing::Network => format!("/networks/{}", quoted(name)),
            Thing::Volume => format!("/volumes/{}", quoted(name)),
        };
        match self.json(&format!("looking for the {thing} {name}"), &path) {
            Ok(_) => Ok(true),
            Err(error) if error.status == 404 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The address that this computer has in a network; `None`: it has none there, or the engine does not say.
    ///
    /// # Errors
    /// The engine does not answer, or has no such network.
    pub fn gateway(&self, network: &str) -> Result<Option<IpAddr>, EngineError> {
        let value =
            self.json(&format!("looking at the network {network}"), &format!("/networks/{}", quoted(network)))?;
        let configs = value["IPAM"]["Config"].as_array();
        let gateways = configs.into_iter().flatten().filter_map(|config| config["Gateway"].as_str());
        Ok(gateways.filter_map(|gateway| gateway.parse::<IpAddr>().ok()).find(IpAddr::is_ipv4))
    }

    /// The state of a container; `None`: there is none.
    ///
    /// # Errors
    /// The engine does not answer.
    pub fn inspect(&self, name: &str) -> Result<Option<Inspected>, EngineError> {
        let value = match self
            .json(&format!("looking at the container {name}"), &format!("/containers/{}/json", quoted(name)))
        {
            Ok(value) => value,
            Err(error) if error.status == 404 => return Ok(None),
            Err(error) => return Err(error),
        };
        let networks = value["NetworkSettings"]["Networks"].as_object();
        let addresses = networks.into_iter().flatten().filter_map(|(name, network)| {
            let address = network["IPAddress"].as_str().filter(|address| !address.is_empty())?;
            Some((name.clone(), address.to_owned()))
        });
        let ports = value["NetworkSettings"]["Ports"].as_object();
        let ports = ports.into_iter().flatten().filter_map(|(own, bound)| {
            let port = bound.as_array()?.first()?["HostPort"].as_str()?.parse().ok()?;
            Some((own.clone(), port))
        });
        Ok(Some(Inspected {
            running: value["State"]["Running"].as_bool().unwrap_or_default(),
            exit_code: value["State"]["ExitCode"].as_i64().unwrap_or_default(),
            error: value["State"]["Error"].as_str().unwrap_or_default().to_owned(),
            addresses: addresses.collect(),
            ports: ports.collect(),
        }))
    }

    /// All things that have [`LABEL_RUN`], in the order in which they can be removed.
    ///
    /// # Errors
    /// The engine does not answer.
    pub fn labelled(&self) -> Result<Vec<Labelled>, EngineError> {
        let filters = quoted(&format!("{{\"label\":[\"{LABEL_RUN}\"]}}"));
        let mut all = Vec::new();
        for (thing, path) in [
            (Thing::Container, format!("/containers/json?all=1&filters={filters}")),
            (Thing::Network, format!("/networks?filters={filters}")),
            (Thing::Volume, format!("/volumes?filters={filters}")),
        ] {
            let value = self.json(&format!("listing {thing}s"), &path)?;
            let list = if thing == Thing::Volume { &value["Volumes"] } else { &value };
            for entry in list.as_array().into_iter().flatten() {
                let name = match thing {
                    Thing::Container => entry["Names"][0].as_str().map(|name| name.trim_start_matches('/')),
                    Thing::Network | Thing::Volume => entry["Name"].as_str(),
                };
                let label = |label: &str| entry["Labels"][label].as_str().map(str::to_owned);
                if let (Some(name), Some(run)) = (name, label(LABEL_RUN)) {
                    let owner = label(LABEL_OWNER).unwrap_or_default();
                    all.push(Labelled { thing, name: name.to_owned(), run, owner });
                }
            }
        }
        all.sort();
        Ok(all)
    }
}

/// As a part of a path: everything that is not plainly a name is escaped, but for the slashes of an image's name.
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' | b':' | b'@' => {
                quoted.push(byte.into())
            }
            byte => quoted += &format!("%{byte:02X}"),
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("unix:///var/run/docker.sock", Ok("unix:///var/run/docker.sock"))]
    #[case("tcp://127.0.0.1:2375", Ok("tcp://127.0.0.1:2375"))]
    #[case("http://127.0.0.1:2375/", Ok("tcp://127.0.0.1:2375"))]
    #[case("unix://docker.sock", Err("expected unix:///path"))]
    #[case("tcp://engine", Err("expected tcp://HOST:PORT"))]
    #[case("ssh://me@there", Err("forward the engine's socket"))]
    fn addresses_are_those_of_docker_host(#[case] text: &str, #[case] expected: Result<&str, &str>) {
        match (text.parse::<Address>(), expected) {
            (Ok(address), Ok(shown)) => assert_eq!(address.to_string(), shown),
            (Err(problem), Err(part)) => assert!(problem.contains(part), "{problem}"),
            (got, _) => panic!("{text}: {got:?}"),
        }
    }

    /// Somebody who answers everything with this.
    fn answering(path: &Path, answer: &'static str) {
        let listener = UnixListener::bind(path).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut asked = [0; 1024];
                let _ = stream.read(&mut asked);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
    }

    fn with(dir: &Path) -> impl Fn(&str) -> Option<String> {
        let host = format!("unix://{}", dir.join("engine.sock").display());
        move |name| (name == "DOCKER_HOST").then(|| host.clone())
    }

    #[test]
    fn podman_is_told_from_docker() {
        let dir = tempfile::tempdir().unwrap();
        answering(
            &dir.path().join("engine.sock"),
            "HTTP/1.0 200 OK\r\n\r\n{\"Version\":\"4.3.1\",\"ApiVersion\":\"1.41\",\"Components\":[{\"Name\":\"Podman Engine\"}]}",
        );
        let engine = find_with(&with(dir.path())).unwrap();
        assert_eq!((engine.kind, engine.version.as_str(), engine.api.as_str()), (EngineKind::Podman, "4.3.1", "1.41"));
    }

    #[test]
    fn whatever_is_wrong_is_told_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let problem = |dir: &Path| find_with(&with(dir)).unwrap_err().to_string();
        assert!(problem(dir.path()).contains("there is no such socket"), "{}", problem(dir.path()));
        let socket = dir.path().join("engine.sock");
        drop(UnixListener::bind(&socket).unwrap());
        let text = problem(dir.path());
        assert!(text.contains("no container engine is running") && text.contains("fix: start it"), "{text}");
        std::fs::remove_file(&socket).unwrap();
        answering(&socket, "HTTP/1.0 404 Not Found\r\n\r\nno such page");
        let text = problem(dir.path());
        assert!(text.contains("not as a container engine"), "{text}");
        let refused = NoEngine { looked: vec![("x".into(), Refusal::NoPermission)], installed: true };
        assert!(refused.to_string().contains("usermod -aG docker"), "{refused}");
        let nothing = NoEngine { looked: vec![("x".into(), Refusal::NoSocket)], installed: false };
        assert!(nothing.to_string().contains("apt-get install docker.io"), "{nothing}");
    }

    #[test]
    fn all_the_usual_places_are_looked_at() {
        let variable = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| "/run/user/7".to_owned());
        let places: Vec<String> = places(&variable).into_iter().map(|(place, _)| place).collect();
        assert_eq!(
            places,
            [
                "/var/run/docker.sock",
                "/run/user/7/docker.sock",
                "/run/podman/podman.sock",
                "/run/user/7/podman/podman.sock"
            ]
        );
    }
}
