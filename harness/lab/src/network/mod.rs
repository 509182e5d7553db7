//! The lab network of a run: one network namespace with a bridge, a tap for each host, and a dnsmasq for DHCP and DNS.
//! Nothing on the host's own network changes, so runs go side by side with the same addresses.
//!
//! What others do with it:
//!
//! * machines are plugged into [`Network::tap`] and started in [`Network::namespace`] (see [`crate::machines`]);
//! * the gateway listens with [`Network::listen`] on an address of [`Network::gateways`] and forwards to wherever the service
//!   is; [`Network::forward`] does just that for a service on this machine's loopback;
//! * the fault engine calls [`Network::set_loss`], [`Network::set_delay`], [`Network::cut`], [`Network::set_link`],
//!   [`Network::set_rate`], [`Network::answer_wrongly`], [`Network::take_address`] and [`Network::heal`];
//! * whoever watches the run waits for [`Network::failed`]: a lab whose dnsmasq has died is inconclusive, and the product
//!   is not to blame.
//!
//! Everything is in the ledger first: the namespace (or the process that holds it), dnsmasq, the folder.

pub mod clock;
pub mod config;
mod delay;
pub mod namespace;
mod queries;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use vlab_model::disturbance::{Frames, WrongName};

use crate::ledger::Ledger;
use crate::process::{Child, Program};

use delay::{Plug, Relay, Way};

pub use config::{DnsName, Loss, NetworkHost, NetworkSpec, Peer, Segment};
pub use namespace::{Form, Namespace, NetworkError, Place};
pub use queries::ForeignQuery;

/// dnsmasq's log in the network's folder.
const LOG: &str = "dnsmasq.log";
/// How long dnsmasq may take until it answers.
const READY: Duration = Duration::from_secs(10);

/// Where and how a network is made.
#[derive(Debug, Clone)]
pub struct NetworkOptions {
    /// Name of the namespace; the run's id makes it one of its own.
    pub name: String,
    /// The form; see [`Form::of_this_user`].
    pub form: Form,
    /// A folder of the run for configuration, leases and logs.
    pub folder: PathBuf,
    /// A binary that calls [`namespace::in_namespace_main`] for [`namespace::VERB`]; `vlab` does.
    pub helper: PathBuf,
    /// Where everything is written down.
    pub ledger: Option<Arc<Ledger>>,
}

impl NetworkOptions {
    /// As this user can, with this program as the helper.
    #[must_use]
    pub fn new(run: &str, folder: &Path) -> Self {
        Self {
            name: format!("vlab-{run}"),
            form: Form::of_this_user(),
            folder: folder.to_path_buf(),
            // Not the path of the binary: that may have been rebuilt or removed since.
            helper: PathBuf::from("/proc/self/exe"),
            ledger: None,
        }
    }
}

/// A lab network. Dropping it ends dnsmasq and removes the namespace; what still runs inside keeps a network without
/// services until it ends.
#[derive(Debug)]
pub struct Network {
    spec: NetworkSpec,
    folder: PathBuf,
    losses: Mutex<BTreeMap<(Peer, Peer, Frames), u8>>,
    /// The same as a list, for frames that the bridge does not carry.
    loss_list: Arc<Mutex<Vec<Loss>>>,
    /// Whoever holds it is the only one who makes the bridge's rules.
    delays: tokio::sync::Mutex<Delays>,
    /// Names that are answered wrongly, with the domains of their clusters. Whoever holds it is the only one who starts dnsmasq again.
    wrong_names: tokio::sync::Mutex<Vec<(String, WrongName)>>,
    // Fields are dropped in this order.
    dnsmasq: Mutex<Arc<Child>>,
    server: Server,
    namespace: Arc<Namespace>,
}

/// Frames that take their time.
#[derive(Debug, Default)]
struct Delays {
    /// How long, by places of sender and receiver.
    ways: BTreeMap<(usize, usize), Duration>,
    /// What carries them, while there are some.
    relay: Option<Relay>,
}

/// How dnsmasq is started.
#[derive(Debug)]
struct Server {
    executable: PathBuf,
    ledger: Option<Arc<Ledger>>,
}

impl Server {
    /// Starts it for that network; when this returns, it answers.
    async fn start(
        &self,
        spec: &NetworkSpec,
        folder: &Path,
        namespace: &Arc<Namespace>,
    ) -> Result<Arc<Child>, NetworkError> {
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
        // Only root changes its user at the start, and must not: the files are root's.
        let user = user.map_or_else(|| "root".to_owned(), |user| user.name);
        let conf = folder.join("dnsmasq.conf");
        std::fs::write(&conf, config::dnsmasq_conf(spec, folder, &user))
            .map_err(|error| NetworkError::Io { path: conf.clone(), error })?;
        let log = folder.join(LOG);
        // One before it has written into the same file.
        let before = std::fs::metadata(&log).map_or(0, |log| log.len());
        let program = Program::new("dnsmasq", &self.executable, &log)
            .args([format!("--conf-file={}", conf.display())])
            .namespace(Some(Arc::clone(namespace)))
            .ledger(self.ledger.clone());
        let dnsmasq = Child::spawn(program)?;
        // It says so after its sockets are open; asking it would need a socket in its network for each question.
        let started = || {
            let text = std::fs::read(&log).unwrap_or_default();
            let new = text.get(usize::try_from(before).unwrap_or(0)..).unwrap_or_default();
            std::future::ready(Ok(String::from_utf8_lossy(new).contains(" started, version ").then_some(())))
        };
        dnsmasq.wait_ready("it answers DHCP and DNS", READY, Duration::from_millis(2), started).await?;
        Ok(Arc::new(dnsmasq))
    }
}

impl Network {
    /// Makes it; when this returns, DHCP and DNS answer.
    ///
    /// # Errors
    /// The spec is impossible, a program is missing, or the system does not permit it.
    pub async fn start(spec: NetworkSpec, options: NetworkOptions) -> Result<Self, NetworkError> {
        spec.check()?;
        let executable = namespace::find("dnsmasq")?;
        let NetworkOptions { name, form, folder, helper, ledger } = options;
        // dnsmasq leaves the working directory.
        let folder = std::path::absolute(&folder).map_err(|error| NetworkError::Io { path: folder, error })?;
        let made = {
            let (spec, folder, ledger) = (spec.clone(), folder.clone(), ledger.clone());
            tokio::task::spawn_blocking(move || {
                let namespace = Namespace::create(&name, form, &folder, &helper, ledger.as_ref())?;
                let owner = nix::unistd::geteuid().as_raw();
                namespace.ip("make the bridge and the taps", &config::ip_batch(&spec, owner))?;
                Ok::<_, NetworkError>(namespace)
            })
        };
        let namespace = made.await.map_err(|error| NetworkError::Spec(error.to_string()))??;
        let server = Server { executable, ledger };
        let dnsmasq = Mutex::new(server.start(&spec, &folder, &namespace).await?);
        let (losses, loss_list, wrong_names) = (Mutex::default(), Arc::default(), tokio::sync::Mutex::default());
        let delays = tokio::sync::Mutex::default();
        Ok(Self { spec, folder, losses, loss_list, delays, wrong_names, dnsmasq, server, namespace })
    }

    /// What it was made from.
    #[must_use]
    pub fn spec(&self) -> &NetworkSpec {
        &self.spec
    }

    /// The namespace, for programs that shall run in it.
    #[must_use]
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    /// Addresses of the gateway.
    pub fn gateways(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.spec.gateways().map(ipnet::IpNet::addr)
    }

    /// The tap of a host's first interface; `None` when the network has no such host.
    #[must_use]
    pub fn tap(&self, host: &str) -> Option<String> {
        self.place(host).map(|place| config::tap(place, 0))
    }

    fn taps(&self, host: &str) -> Result<Vec<String>, NetworkError> {
        self.peer(host).map(|place| config::taps(&self.spec, place))
    }

    fn place(&self, host: &str) -> Option<usize> {
        self.spec.hosts.iter().position(|known| known.name == host)
    }

    fn peer(&self, host: &str) -> Result<usize, NetworkError> {
        let known = || self.spec.hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(", ");
        self.place(host).ok_or_else(|| NetworkError::Spec(format!("no host `{host}` in the lab network: {}", known())))
    }

    /// A peer by the name of its host; `gateway` is the gateway.
    ///
    /// # Errors
    /// There is no such host.
    pub fn peer_of(&self, name: &str) -> Result<Peer, NetworkError> {
        if name == "gateway" { Ok(Peer::Gateway) } else { self.peer(name).map(Peer::Host) }
    }

    /// The first address of a host, in its network; `None`: there is no such host, or DHCP chooses.
    pub fn address_of(&self, name: &str) -> Option<IpNet> {
        let host = self.spec.hosts.iter().find(|host| host.name == name)?;
        let address = *host.addresses.first()?;
        let gateway = self.spec.gateways().find(|gateway| gateway.contains(&address))?;
        IpNet::new(address, gateway.prefix_len()).ok()
    }

    /// A TCP listener that hosts reach, on an address of the gateway.
    ///
    /// # Errors
    /// The port is taken, or the address is not one of the gateway's.
    pub fn listen(&self, address: SocketAddr) -> Result<std::net::TcpListener, NetworkError> {
        self.namespace.listen(address)
    }

    /// Listens on `port` of every address of the gateway and carries each connection to `to`, in the host's own network.
    /// Ends when it is dropped.
    ///
    /// # Errors
    /// The port is taken.
    pub fn forward(&self, port: u16, to: SocketAddr) -> Result<Forward, NetworkError> {
        let all: Vec<SocketAddr> = self.gateways().map(|address| SocketAddr::new(address, port)).collect();
        self.forward_at(&all, to)
    }

    /// The same on these addresses, which the gateway must have.
    ///
    /// # Errors
    /// One of them is taken, or not the gateway's.
    pub fn forward_at(&self, all: &[SocketAddr], to: SocketAddr) -> Result<Forward, NetworkError> {
        let mut tasks = tokio::task::JoinSet::new();
        for &address in all {
            let listener = self.listen(address)?;
            let error = |error| NetworkError::Listen { address, error };
            listener.set_nonblocking(true).map_err(error)?;
            let listener = tokio::net::TcpListener::from_std(listener).map_err(error)?;
            tasks.spawn(async move {
                let mut carried = tokio::task::JoinSet::new();
                loop {
                    tokio::select! {
                        accepted = listener.accept() => if let Ok((near, _)) = accepted {
                            carried.spawn(carry(near, to));
                        },
                        Some(_) = carried.join_next(), if !carried.is_empty() => {}
                    }
                }
            });
        }
        Ok(Forward { _tasks: tasks })
    }

    /// Answers NTP on every address of the gateway with this machine's time. Ends when it is dropped.
    ///
    /// # Errors
    /// The port is taken.
    pub fn tell_time(&self) -> Result<Forward, NetworkError> {
        let mut tasks = tokio::task::JoinSet::new();
        for address in self.gateways().map(|address| SocketAddr::new(address, clock::PORT)) {
            let error = |error| NetworkError::Listen { address, error };
            let socket = self.namespace.udp(address)?;
            socket.set_nonblocking(true).map_err(error)?;
            let socket = tokio::net::UdpSocket::from_std(socket).map_err(error)?;
            tasks.spawn(async move {
                if let Err(error) = clock::serve(socket).await {
                    tracing::warn!(%error, "the lab's clock has ended");
                }
            });
        }
        Ok(Forward { _tasks: tasks })
    }

    /// How many of a hundred frames from one peer to another are lost; 0 heals that direction, 100 cuts it.
    ///
    /// # Errors
    /// nftables refuses.
    pub async fn set_loss(&self, from: Peer, to: Peer, percent: u8) -> Result<(), NetworkError> {
        self.set_loss_of(from, to, Frames::All, percent).await
    }

    /// The same of some frames only. Each kind of frames has its own share, beside that of all.
    ///
    /// # Errors
    /// nftables refuses.
    pub async fn set_loss_of(&self, from: Peer, to: Peer, frames: Frames, percent: u8) -> Result<(), NetworkError> {
        let delays = self.delays.lock().await;
        {
            let mut losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
            match percent {
                0 => losses.remove(&(from, to, frames)),
                _ => losses.insert((from, to, frames), percent.min(100)),
            };
        }
        self.rule(&delays.ways, "lose frames").await
    }

    /// Makes the bridge's rules anew.
    async fn rule(&self, delays: &BTreeMap<(usize, usize), Duration>, what: &'static str) -> Result<(), NetworkError> {
        let rules = {
            let losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
            let loss =
                |(&(from, to, frames), &percent): (&(Peer, Peer, Frames), &u8)| Loss { from, to, frames, percent };
            let list: Vec<Loss> = losses.iter().map(loss).collect();
            let slow: Vec<(usize, usize)> = delays.keys().copied().collect();
            let rules = config::nft_rules(&self.spec, &list, &slow);
            *self.loss_list.lock().unwrap_or_else(PoisonError::into_inner) = list;
            rules
        };
        self.tool("nft", vec!["-f".into(), "-".into()], rules, what).await
    }

    /// Nothing passes between two peers in either direction.
    ///
    /// # Errors
    /// nftables refuses.
    pub async fn cut(&self, one: Peer, other: Peer) -> Result<(), NetworkError> {
        self.set_loss(one, other, 100).await?;
        self.set_loss(other, one, 100).await
    }

    /// No frame is lost any more (delays, links that are down and limited rates stay as they are).
    ///
    /// # Errors
    /// nftables refuses.
    pub async fn heal(&self) -> Result<(), NetworkError> {
        let delays = self.delays.lock().await;
        self.losses.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.rule(&delays.ways, "stop losing frames").await
    }

    /// A name of the cluster with this domain is answered wrongly from now on, or not any more. Of several that are wrong in one way at a time
    /// each is taken off for itself. dnsmasq reads such names only at its start: it is started again, with the leases that it
    /// has given out, and for some milliseconds nobody answers.
    ///
    /// # Errors
    /// It cannot be started again; then [`Network::failed`] says so, too.
    pub async fn answer_wrongly(&self, domain: &str, wrong: WrongName, on: bool) -> Result<(), NetworkError> {
        let mut all = self.wrong_names.lock().await;
        let wrong = (domain.to_owned(), wrong);
        if on {
            all.push(wrong);
        } else if let Some(place) = all.iter().position(|known| *known == wrong) {
            all.remove(place);
        } else {
            return Ok(());
        }
        // Its port must be free for the next one.
        self.dnsmasq().stop(Duration::from_secs(1)).await;
        let next = self.server.start(&self.spec.with_wrong_names(&all), &self.folder, &self.namespace).await?;
        *self.dnsmasq.lock().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    /// Somebody in the network who is no host has this address, and answers for it (ARP, neighbour discovery); or has it no
    /// longer. It is the gateway's machine.
    ///
    /// # Errors
    /// The address is the gateway's own, or somebody who is no host has it already.
    pub async fn take_address(&self, address: IpAddr, on: bool) -> Result<(), NetworkError> {
        let args = config::foreign_address(&self.spec, address, on).split(' ').map(str::to_owned).collect();
        self.tool("ip", args, String::new(), "take an address").await
    }

    /// The lab's end of a host's cable. The guest does not notice that its link is down; for that there is
    /// [`crate::machines::Machine::set_link`].
    ///
    /// # Errors
    /// There is no such host.
    pub async fn set_link(&self, host: &str, up: bool) -> Result<(), NetworkError> {
        for tap in self.taps(host)? {
            let args = ["link", "set", "dev", &tap, if up { "up" } else { "down" }].map(str::to_owned).to_vec();
            self.tool("ip", args, String::new(), "change a link").await?;
        }
        Ok(())
    }

    /// Limits what a host receives to so many kilobits a second; `None` takes the limit away.
    ///
    /// # Errors
    /// There is no such host, or the kernel has no token bucket filter.
    pub async fn set_rate(&self, host: &str, kilobits: Option<u32>) -> Result<(), NetworkError> {
        for tap in self.taps(host)? {
            let words = match kilobits {
                Some(rate) => format!("qdisc replace dev {tap} root tbf rate {rate}kbit burst 32kb latency 400ms"),
                None => format!("qdisc replace dev {tap} root pfifo_fast"),
            };
            let words = words.split(' ').map(str::to_owned).collect();
            self.tool("tc", words, String::new(), "limit a link").await?;
        }
        Ok(())
    }

    /// How long frames from one host to another take; zero: as long as they take. The harness carries them itself (see the module
    /// `delay`), so any kernel can.
    ///
    /// # Errors
    /// One of them is no host, or the system does not permit it.
    pub async fn set_delay(&self, from: Peer, to: Peer, delay: Duration) -> Result<(), NetworkError> {
        let (Peer::Host(one), Peer::Host(other)) = (from, to) else {
            return Err(NetworkError::Spec("frames are delayed between two hosts only".to_owned()));
        };
        let mut delays = self.delays.lock().await;
        match delay.is_zero() {
            true => delays.ways.remove(&(one, other)),
            false => delays.ways.insert((one, other), delay),
        };
        let ways: Vec<Way> = delays.ways.iter().map(|(&(from, to), &delay)| Way { from, to, delay }).collect();
        let next = match ways.is_empty() {
            true => None,
            false => Some(self.relay(ways).await?),
        };
        // Carried twice for a moment rather than not at all.
        let ruled = self.rule(&delays.ways, "delay frames").await;
        let before = std::mem::replace(&mut delays.relay, next);
        // It sends what is still under way.
        tokio::task::spawn_blocking(move || drop(before))
            .await
            .map_err(|error| NetworkError::Spec(error.to_string()))?;
        ruled
    }

    async fn relay(&self, ways: Vec<Way>) -> Result<Relay, NetworkError> {
        let plug = |(place, host): (usize, &NetworkHost)| {
            let plugs = host.macs().zip(config::taps(&self.spec, place));
            plugs
                .filter_map(move |(mac, tap)| Some(Plug { tap, place, mac: config::mac_bytes(mac)? }))
                .collect::<Vec<_>>()
        };
        let plugs: Vec<Plug> = self.spec.hosts.iter().enumerate().flat_map(plug).collect();
        let (namespace, losses) = (Arc::clone(&self.namespace), Arc::clone(&self.loss_list));
        let started =
            tokio::task::spawn_blocking(move || Relay::start(plugs, ways, losses, |tap| namespace.packets(tap)));
        let tell = |why: String| NetworkError::Tool { what: "delay frames".to_owned(), why };
        started.await.map_err(|error| tell(error.to_string()))?.map_err(|error| tell(error.to_string()))
    }

    async fn tool(
        &self,
        program: &'static str,
        args: Vec<String>,
        input: String,
        what: &'static str,
    ) -> Result<(), NetworkError> {
        let namespace = Arc::clone(&self.namespace);
        let done = tokio::task::spawn_blocking(move || {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            namespace.tool(program, &args, &input, what)
        });
        done.await.map_err(|error| NetworkError::Spec(error.to_string()))?
    }

    /// Waits until dnsmasq has exited unexpectedly, which it only does when something is wrong; says how.
    pub async fn failed(&self) -> ExitStatus {
        loop {
            let dnsmasq = self.dnsmasq();
            let status = dnsmasq.wait().await;
            // One that was stopped to answer otherwise has a successor, unless that could not be started.
            let _settled = self.wrong_names.lock().await;
            if Arc::ptr_eq(&dnsmasq, &self.dnsmasq()) {
                return status;
            }
        }
    }

    /// dnsmasq as it runs now, for the fault engine and for tests.
    #[must_use]
    pub fn dnsmasq(&self) -> Arc<Child> {
        Arc::clone(&self.dnsmasq.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What dnsmasq has given out: MAC, address, name, in the order of its file.
    #[must_use]
    pub fn leases(&self) -> Vec<(String, IpAddr, String)> {
        let text = std::fs::read_to_string(self.folder.join("leases")).unwrap_or_default();
        let lease = |line: &str| {
            let fields: Vec<&str> = line.split(' ').collect();
            Some(((*fields.get(1)?).to_owned(), fields.get(2)?.parse().ok()?, (*fields.get(3)?).to_owned()))
        };
        text.lines().filter_map(lease).collect()
    }

    /// Names outside of the lab that somebody asked for so far: a lab has no way to them.
    #[must_use]
    pub fn foreign_queries(&self) -> Vec<ForeignQuery> {
        let log = std::fs::read(self.folder.join(LOG)).unwrap_or_default();
        queries::foreign_queries(&String::from_utf8_lossy(&log), &self.spec, &self.leases())
    }

    /// Ends dnsmasq and removes the namespace.
    ///
    /// # Errors
    /// The namespace cannot be removed.
    pub async fn stop(self) -> Result<(), NetworkError> {
        self.dnsmasq().stop(Duration::from_secs(1)).await;
        self.namespace.remove()
    }
}

/// Something of the host that the lab network reaches.
#[derive(Debug)]
pub struct Forward {
    _tasks: tokio::task::JoinSet<()>,
}

async fn carry(mut near: tokio::net::TcpStream, to: SocketAddr) {
    // A service that is not there: the host's connection is closed, as it would be without us.
    if let Ok(mut far) = tokio::net::TcpStream::connect(to).await {
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    }
}

/// Does this machine permit this form of the lab network? Makes one to know: a namespace, a bridge, a tap, an address, rules.
///
/// # Errors
/// It does not, or a program is missing.
pub fn permits(form: Form, helper: &Path) -> Result<(), NetworkError> {
    let io = |error| NetworkError::Io { path: std::env::temp_dir(), error };
    let folder = tempfile::tempdir().map_err(io)?;
    let host = NetworkHost {
        name: "probe".into(),
        domain: None,
        segment: 0,
        mac: "52:54:00:00:00:01".into(),
        more_macs: vec![],
        addresses: vec![],
        dhcp: true,
    };
    let address =
        ipnet::IpNet::new(IpAddr::from([192, 0, 2, 1]), 24).map_err(|error| NetworkError::Spec(error.to_string()))?;
    let segments = vec![Segment { gateways: vec![address] }];
    let spec = NetworkSpec {
        domains: vec!["probe".into()],
        segments,
        hosts: vec![host],
        names: vec![],
        elsewhere: vec![],
        dhcp: false,
    };
    let namespace =
        Namespace::create(&format!("vlab-probe-{}", std::process::id()), form, folder.path(), helper, None)?;
    let made = namespace.ip("make a bridge and a tap", &config::ip_batch(&spec, nix::unistd::geteuid().as_raw()));
    made.map_err(|error| match error {
        NetworkError::Tool { why, .. } => {
            let tun = "; taps need a /dev/net/tun that this user can open, and bridges the module `bridge`";
            NetworkError::NotPermitted { form, why: format!("{why}{tun}") }
        }
        other => other,
    })?;
    namespace.tool("nft", &["-f", "-"], &config::nft_rules(&spec, &[], &[]), "make rules for the bridge")
}
