//! The virtual machines of a run: whether this place can run some, their network, their medium, what becomes of them and what
//! they say.
//!
//! The conductor knows machines as hosts that are there; it tells what is to be done to them ([`MachineOrder`]), and learns what
//! happened ([`News`]). What is planned is in [`plan`], without I/O.

pub mod plan;
pub mod programs;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_client::{Endpoint, download};
use vlab_drive::conductor::MachineOrder;
use vlab_drive::fault::machine::MachineFault;
use vlab_drive::prepare::Prepared;
use vlab_image_service::catalog::OsImage;
use vlab_image_service::iso::Iso;
use vlab_image_service::layout::BaseFile;
use vlab_image_service::service::ImageService;
use vlab_lab::ledger::{Ledger, Resource, Token};
use vlab_lab::machines::probe::{self, Acceleration};
use vlab_lab::machines::{
    Accel, DiskFault, DomainEvent, Machine, MachineEvent, MachineSpec, Machines, MachinesOptions, memory,
};
use vlab_lab::network::{ForeignQuery, Forward, Network, NetworkOptions, Peer};
use vlab_lab::ssh::Keys;
use vlab_model::console::{Classifier, plain};
use vlab_model::disturbance::Frames;
use vlab_model::history::{ClusterMoment, HostMoment, MachineMoment, Source, What};
use vlab_model::pivot::{self, Told};
use vlab_node_config::say;
use vlab_scenario::{FaultPhase, Need};
use vlab_service_server::serve_images;

use crate::target::Inside;
use crate::vm::plan::{DISK, IMAGES_PORT, PORT, PROGRAMS_PORT, Plan, PlannedMachine, agent_page};

/// Lines of one console that the history keeps; of a machine that says more only what means something. The file has all.
const LINES: usize = 20_000;
/// How long a piece of the discovery image may take to come.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long readers of consoles may take to come to the end of what is there.
const DRAIN: Duration = Duration::from_secs(2);

/// Something is wrong with the machines or what they need: the lab's fault, not the product's.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct VmError {
    /// Which part.
    pub what: &'static str,
    /// What.
    pub error: String,
}

fn wrong(what: &'static str) -> impl Fn(&dyn std::fmt::Display) -> VmError {
    move |error| VmError { what, error: error.to_string() }
}

/// This place can run virtual machines.
#[derive(Clone, Debug)]
pub struct Ability {
    /// What runs their processors.
    pub acceleration: Acceleration,
}

/// Can this place run virtual machines? Examines it (a second or two): QEMU, libvirt with our helper, the lab network.
///
/// # Errors
/// Why not, and what to do.
pub async fn ability(runs: &Path) -> Result<Ability, String> {
    vlab_lab::machines::find_helper().map_err(|error| error.to_string())?;
    for need in [Need::Libvirt, Need::Netns] {
        if let Some(reason) = crate::needs::lacking(&need, runs).await {
            return Err(format!("{need}: {reason}"));
        }
    }
    let probed = tokio::task::spawn_blocking(probe::probe).await.map_err(|panic| panic.to_string())?;
    Ok(Ability { acceleration: probed.map_err(|error| error.to_string())? })
}

/// The lab's own live ISO, built when it is not there yet. `tell` is told what is being built.
///
/// # Errors
/// It cannot be built here.
pub async fn lab_iso(tell: fn(&str)) -> Result<PathBuf, String> {
    // Minutes, the first time. A thread of its own, which nobody waits for when the program ends.
    let (done, built) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = done.send(build_lab_iso(tell));
    });
    built.await.unwrap_or_else(|_| Err("building it has failed without a word".to_owned()))
}

fn build_lab_iso(tell: fn(&str)) -> Result<PathBuf, String> {
    let made = vlab_images::os::current("lab-iso", &|what| tell(&format!("images: {what}")));
    made.map(|made| made.path).map_err(|error| error.to_string())
}

/// Would all machines of a plan fit into this machine's memory? Asked before anything is made.
///
/// # Errors
/// The refusal, with all numbers.
pub fn fits(ledger: &Arc<Ledger>, plan: &Plan, accel: Accel) -> Result<(), VmError> {
    let wanted = plan.machines.iter().map(|machine| memory::need(&machine.spec, accel)).sum();
    memory::reserve(ledger, wanted).map(drop).map_err(|error| wrong("memory")(&error))
}

/// What machines have to tell.
#[derive(Debug)]
pub enum News {
    /// For the history.
    Seen(Source, What),
    /// A machine is gone although nobody asked for it.
    Lost {
        /// Name of the host.
        machine: String,
        /// How, for people.
        how: String,
        /// What to do about it; empty: nothing is known.
        advice: String,
    },
    /// Something that the run cannot go on without does not work.
    Broken(VmError),
}

/// What machines need around them.
#[derive(Debug)]
pub struct Ground<'a> {
    /// The run.
    pub prepared: &'a Prepared,
    /// Folder of the run.
    pub dir: &'a Path,
    /// The `vlab` program.
    pub vlab: &'a Path,
    /// Where everything is written down.
    pub ledger: &'a Arc<Ledger>,
    /// What the place can do.
    pub ability: &'a Ability,
}

/// The machines that are on, by the name of their host.
type Made = Arc<Mutex<BTreeMap<String, Arc<Machine>>>>;

/// The machines of a run and their network.
pub struct VirtualLab {
    plan: Plan,
    ids: BTreeMap<String, Uuid>,
    classifiers: BTreeMap<String, Arc<Classifier>>,
    ledger: Arc<Ledger>,
    network: Arc<Network>,
    reachable: Vec<Forward>,
    /// The image service, from here.
    images: Option<Endpoint>,
    keys: Keys,
    machines: Machines,
    made: Made,
    /// Told whenever a machine is on for the first time.
    grown: watch::Sender<()>,
    /// Faults that are over.
    over_with: Arc<Mutex<BTreeSet<String>>>,
    media: (PathBuf, Token),
    news: mpsc::UnboundedSender<News>,
    /// Works that are given up at the end.
    doing: JoinSet<()>,
    /// Readers that come to the end of what is there.
    reading: Arc<Mutex<JoinSet<()>>>,
    over: CancellationToken,
}

impl VirtualLab {
    /// Makes the network and the connection to libvirt, reserves the memory. Machines are switched on by
    /// [`VirtualLab::carry_out`].
    ///
    /// # Errors
    /// What cannot be had.
    pub async fn start(ground: &Ground<'_>, plan: Plan) -> Result<(Self, mpsc::UnboundedReceiver<News>), VmError> {
        let folder = ground.dir.join("network");
        std::fs::create_dir_all(&folder).map_err(|e| wrong("lab network")(&format!("{}: {e}", folder.display())))?;
        let mut options = NetworkOptions::new(ground.ledger.run(), &folder);
        options.helper = ground.vlab.to_path_buf();
        options.ledger = Some(Arc::clone(ground.ledger));
        let network = Network::start(plan.network.clone(), options).await.map_err(|e| wrong("lab network")(&e))?;
        let clock = network.tell_time().map_err(|e| wrong("lab network")(&e))?;
        let hosts = plan.network.hosts.iter().map(|host| (host.name.as_str(), host.addresses.as_slice()));
        let keys = Keys::create(ground.ledger, hosts).map_err(|e| wrong("ssh")(&e))?;
        let mut options = MachinesOptions::new(ground.ledger, ground.ability.acceleration.accel, ground.dir);
        options.namespace = Some(Arc::clone(network.namespace()));
        let machines = Machines::start(options).await.map_err(|e| wrong("libvirt")(&e))?;
        let specs: Vec<MachineSpec> = plan.machines.iter().map(|machine| machine.spec.clone()).collect();
        machines.reserve(&specs).map_err(|e| wrong("memory")(&e))?;
        // Gone at the end, unlike the rest of the run's folder: it is as large as a CD.
        let media = std::path::absolute(ground.dir.join("media")).map_err(|e| wrong("media")(&e))?;
        let entry =
            ground.ledger.record(Resource::Directory { path: media.clone() }).map_err(|e| wrong("ledger")(&e))?;
        std::fs::create_dir(&media).map_err(|e| wrong("media")(&format!("{}: {e}", media.display())))?;
        let mut classifiers = BTreeMap::new();
        let mut ids = BTreeMap::new();
        for machine in &plan.machines {
            let host = &ground.prepared.scenario.hosts[machine.index];
            let classifier = Classifier::without(&host.vm.ignore_console).map_err(|e| wrong("console checks")(&e))?;
            classifiers.insert(host.name.clone(), Arc::new(classifier));
            ids.insert(host.name.clone(), machine.spec.uuid);
        }
        let (news, receiver) = mpsc::unbounded_channel();
        let mut doing = JoinSet::new();
        doing.spawn(tell_events(machines.events(), machines.folder().to_path_buf(), news.clone()));
        let lab = Self {
            plan,
            ids,
            classifiers,
            ledger: Arc::clone(ground.ledger),
            network: Arc::new(network),
            reachable: vec![clock],
            images: None,
            keys,
            machines,
            made: Made::default(),
            grown: watch::Sender::new(()),
            over_with: Arc::default(),
            media: (media, entry),
            news,
            doing,
            reading: Arc::default(),
            over: CancellationToken::new(),
        };
        Ok((lab, receiver))
    }

    /// Machines reach `front`, the service or what stands before it, from now on, and an image service: that of the service, or
    /// one that is started here and asks it.
    ///
    /// # Errors
    /// A port that is taken, a live image that cannot be used.
    pub fn connect(&mut self, front: SocketAddr, service: &Endpoint, inside: &Inside) -> Result<(), VmError> {
        self.reachable.push(self.network.forward(PORT, front).map_err(|e| wrong("lab network")(&e))?);
        self.hand_out_programs()?;
        if inside.images_url == inside.base_url {
            self.images = Some(service.clone());
            return Ok(());
        }
        let image = OsImage::of_every_version(&inside.iso);
        let images = ImageService::open(&[image], &inside.images_url).map_err(|e| wrong("image service")(&e))?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| wrong("image service")(&e))?;
        let address = listener.local_addr().map_err(|e| wrong("image service")(&e))?;
        self.reachable.push(self.network.forward(IMAGES_PORT, address).map_err(|e| wrong("lab network")(&e))?);
        self.images = Some(Endpoint::new(address));
        let (service, over, news) = (service.clone(), self.over.clone(), self.news.clone());
        self.doing.spawn(async move {
            if let Err(error) = serve_images(listener, images, service, over).await {
                let _ = news.send(News::Broken(wrong("image service")(&error)));
            }
        });
        Ok(())
    }

    /// Programs that the run gives machines can be fetched.
    fn hand_out_programs(&mut self) -> Result<(), VmError> {
        let agent = |machine: &PlannedMachine| Some((agent_page(&machine.spec.name), machine.agent.clone()?));
        let pages: BTreeMap<String, PathBuf> = self.plan.machines.iter().filter_map(agent).collect();
        if pages.is_empty() {
            return Ok(());
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| wrong("programs")(&e))?;
        let address = listener.local_addr().map_err(|e| wrong("programs")(&e))?;
        self.reachable.push(self.network.forward(PROGRAMS_PORT, address).map_err(|e| wrong("lab network")(&e))?);
        let news = self.news.clone();
        self.doing.spawn(async move {
            if let Err(error) = programs::serve(listener, pages).await {
                let _ = news.send(News::Broken(wrong("programs")(&error)));
            }
        });
        Ok(())
    }

    /// The public key that lets `vlab ssh` in.
    pub fn ssh_key(&self) -> &str {
        self.keys.public()
    }

    /// What runs here, for the report.
    pub fn versions(&self) -> [(&'static str, String); 2] {
        let versions = self.machines.versions();
        [("libvirt", versions.libvirt.clone()), ("qemu", versions.qemu.clone())]
    }

    /// Begins to do what the conductor wants. What comes of it is in the news.
    pub fn carry_out(&mut self, order: MachineOrder, now: Timestamp) {
        match order {
            MachineOrder::Boot { infra_env, cluster, download_url, machines } => {
                let planned: Vec<(PlannedMachine, Duration)> = machines
                    .into_iter()
                    .filter_map(|(index, at)| {
                        let planned = self.plan.machines.iter().find(|machine| machine.index == index)?;
                        Some((planned.clone(), at.since(now)))
                    })
                    .collect();
                let medium = self.media.0.join(format!("{infra_env}.iso"));
                let (images, switch) = (self.images.clone(), self.switch(cluster));
                self.doing.spawn(async move {
                    let Some(images) = images else {
                        return switch.broken(wrong("image service")(&"there is none yet"));
                    };
                    match fetch(&images, &download_url, &medium).await {
                        Ok(text) => switch.tell(What::Note { text }),
                        Err(error) => return switch.broken(error),
                    }
                    // What the service has sent to its end may still be half of an image.
                    if let Err(why) = whole(&medium) {
                        let error = format!("the discovery image that the service sent from {download_url} {why}");
                        return switch.broken(VmError { what: "discovery image", error });
                    }
                    let mut all = JoinSet::new();
                    for (machine, wait) in planned {
                        let (switch, medium) = (switch.clone(), medium.clone());
                        all.spawn(async move {
                            tokio::time::sleep(wait).await;
                            switch.on(machine.spec, medium).await;
                        });
                    }
                    // None is left when this one is given up.
                    all.join_all().await;
                });
            }
            MachineOrder::Fault { name, what: fault, on, to, undo } => {
                let made = Arc::clone(&self.made);
                let (network, news) = (Arc::clone(&self.network), self.news.clone());
                // Of a link nobody is hit in particular.
                let hit = |name: &String| to.is_empty().then(|| self.ids.get(name).copied()).flatten();
                let on: Vec<(String, Option<Uuid>)> = on.iter().map(|name| (name.clone(), hit(name))).collect();
                let medium = self.medium();
                let (mut grown, over_with) = (self.grown.subscribe(), Arc::clone(&self.over_with));
                if undo {
                    over_with.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
                }
                self.doing.spawn(async move {
                    for (machine, host) in on {
                        let there = || made.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&machine);
                        if !undo && fault.is_of_the_machine() && grown.wait_for(|()| there()).await.is_err() {
                            return;
                        }
                        if !undo && over_with.lock().unwrap_or_else(PoisonError::into_inner).contains(&name) {
                            return;
                        }
                        let done = apply(&made, &network, fault, &machine, &to, undo, medium.as_deref()).await;
                        let what = match (done, undo) {
                            (Ok(()), true) => What::Note { text: format!("the fault {name} was taken off {machine}") },
                            (Ok(()), false) => What::Fault {
                                name: name.clone(),
                                phase: FaultPhase::Effect,
                                inject: String::new(),
                                host,
                                cluster: None,
                                detail: fault.done().to_owned(),
                            },
                            (Err(why), _) => {
                                What::Note { text: format!("the fault {name} could not be done to {machine}: {why}") }
                            }
                        };
                        let _ = news.send(News::Seen(Source::Harness, what));
                    }
                });
            }
        }
    }

    /// The discovery image, once it was fetched.
    fn medium(&self) -> Option<PathBuf> {
        let entries = std::fs::read_dir(&self.media.0).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == "iso"))
    }

    fn switch(&self, cluster: Option<Uuid>) -> Switch {
        Switch {
            machines: self.machines.clone(),
            made: Arc::clone(&self.made),
            grown: self.grown.clone(),
            news: self.news.clone(),
            reading: Arc::clone(&self.reading),
            over: self.over.clone(),
            cluster,
            classifiers: self.classifiers.clone(),
        }
    }

    /// Ends when something that machines need has ended by itself: what, and how.
    pub async fn ended(&self) -> VmError {
        tokio::select! {
            status = self.network.failed() => VmError {
                what: "dnsmasq",
                error: format!("dnsmasq, which gives the machines addresses and names, ended by itself: {status}"),
            },
            status = self.machines.failed() => VmError {
                what: "libvirt",
                error: format!(
                    "the program that runs the machines ended by itself: {status}\n{}",
                    self.machines.helper().last_lines(20).join("\n")
                ),
            },
        }
    }

    /// Makes a picture of the screen of every machine that is on, into the run's folder; names of the files.
    pub async fn screenshots(&self, dir: &Path) -> Vec<String> {
        let all: Vec<Arc<Machine>> =
            self.made.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let mut names = Vec::new();
        for machine in all {
            let name = screenshot_file(machine.name());
            match machine.screenshot(&dir.join(&name)).await {
                Ok(()) => names.push(name),
                // It is off: there is nothing to see.
                Err(error) => tracing::debug!(%error, machine = machine.name(), "no screenshot"),
            }
        }
        names
    }

    /// Switches everything off and removes it. The news that are still to come are in the channel when this returns.
    pub async fn stop(mut self) -> Vec<VmError> {
        let mut problems = Vec::new();
        self.doing.shutdown().await;
        if let Err(error) = self.machines.stop().await {
            problems.push(wrong("libvirt")(&error));
        }
        self.over.cancel();
        let mut reading = std::mem::take(&mut *self.reading.lock().unwrap_or_else(PoisonError::into_inner));
        let _ = tokio::time::timeout(DRAIN, async { while reading.join_next().await.is_some() {} }).await;
        self.reachable.clear();
        for ForeignQuery { from, name, times } in self.network.foreign_queries() {
            let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
            let text =
                format!("{from} asked DNS for {name}, a name outside of the lab, {times}: there is no way to it");
            let _ = self.news.send(News::Seen(Source::Harness, What::Note { text }));
        }
        // Nobody else has it any more; if somebody had, it would be removed with the last one.
        if let Some(network) = Arc::into_inner(self.network)
            && let Err(error) = network.stop().await
        {
            problems.push(wrong("lab network")(&error));
        }
        let (media, entry) = self.media;
        match std::fs::remove_dir_all(&media) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                problems.push(wrong("media")(&format!("{}: {error}", media.display())));
            }
            _ => {
                if let Err(error) = self.ledger.release(entry) {
                    problems.push(wrong("ledger")(&error));
                }
            }
        }
        problems
    }
}

/// Name of a host's console in the run's folder.
pub fn console_file(host: &str) -> String {
    format!("{host}.console.log")
}

/// Name of the picture of a host's screen in the run's folder.
pub fn screenshot_file(host: &str) -> String {
    format!("{host}.screen.png")
}

/// Fetches the discovery image; what was done, in words. The address is that of machines, and from here the image service is
/// elsewhere: only its path counts.
async fn fetch(images: &Endpoint, url: &str, medium: &Path) -> Result<String, VmError> {
    let path = url.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]));
    let path = path.ok_or_else(|| wrong("discovery image")(&format!("the service names no image: {url:?}")))?;
    let begun = Instant::now();
    let written = async {
        let mut file = tokio::fs::File::create(medium).await?;
        let length = download(images, path, &mut file, PATIENCE).await?;
        file.sync_data().await?;
        Ok::<u64, vlab_client::DownloadError>(length)
    };
    let length = written.await.map_err(|e| wrong("discovery image")(&e))?;
    let name = path.split('?').next().unwrap_or_default();
    Ok(format!("fetched {name}: {:.1} MB in {:.1} s", length as f64 / 1e6, begun.elapsed().as_secs_f64()))
}

/// Is that file a live ISO, and all of it?
///
/// # Errors
/// What is wrong with it, as the end of a sentence that begins with its name.
pub fn whole(iso: &Path) -> Result<(), String> {
    let file = BaseFile::open(iso).map_err(|error| format!("cannot be read: {error}"))?;
    Iso::read(&file).map(drop).map_err(|error| error.to_string())
}

/// What switches machines on.
#[derive(Clone)]
struct Switch {
    machines: Machines,
    made: Made,
    grown: watch::Sender<()>,
    news: mpsc::UnboundedSender<News>,
    reading: Arc<Mutex<JoinSet<()>>>,
    over: CancellationToken,
    cluster: Option<Uuid>,
    classifiers: BTreeMap<String, Arc<Classifier>>,
}

impl Switch {
    fn tell(&self, what: What) {
        let _ = self.news.send(News::Seen(Source::Harness, what));
    }

    fn broken(&self, error: VmError) {
        let _ = self.news.send(News::Broken(error));
    }

    async fn on(&self, spec: MachineSpec, medium: PathBuf) {
        let (name, id) = (spec.name.clone(), spec.uuid);
        let begun = Instant::now();
        let machine = match self.machines.create(MachineSpec { cdrom: Some(medium), ..spec }).await {
            Ok(machine) => Arc::new(machine),
            Err(error) => return self.broken(wrong("machines")(&error)),
        };
        let detail = format!("defined and started in {} ms", begun.elapsed().as_millis());
        self.tell(What::Machine { machine: name.clone(), did: MachineMoment::Defined, detail });
        let mut console = match machine.console() {
            Ok(console) => console,
            Err(error) => return self.broken(wrong("consoles")(&format!("{}: {error}", name))),
        };
        self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), machine);
        self.grown.send_replace(());
        let mut listener = Listener {
            classifier: self.classifiers.get(&name).cloned().unwrap_or_default(),
            machine: name,
            host: id,
            cluster: self.cluster,
            lines: 0,
        };
        let (news, over) = (self.news.clone(), self.over.clone());
        let read = async move {
            loop {
                let lines = tokio::select! {
                    line = console.next_line() => line.map(|line| vec![line]),
                    () = over.cancelled() => break,
                };
                match lines {
                    Ok(lines) => listener.hear(&lines, &news),
                    Err(error) => {
                        let error = format!("the console of {} cannot be read any more: {error}", listener.machine);
                        let _ = news.send(News::Broken(VmError { what: "consoles", error }));
                        return;
                    }
                }
            }
            if let Ok(lines) = console.drain() {
                listener.hear(&lines, &news);
            }
        };
        self.reading.lock().unwrap_or_else(PoisonError::into_inner).spawn(read);
    }
}

/// Makes observations of what a console says.
struct Listener {
    machine: String,
    host: Uuid,
    cluster: Option<Uuid>,
    classifier: Arc<Classifier>,
    lines: usize,
}

impl Listener {
    fn hear(&mut self, lines: &[String], news: &mpsc::UnboundedSender<News>) {
        for line in lines {
            for what in self.means(line) {
                let _ = news.send(News::Seen(Source::Console, what));
            }
        }
    }

    fn means(&mut self, line: &str) -> Vec<What> {
        let line = plain(line).into_owned();
        if line.trim().is_empty() {
            return Vec::new();
        }
        let finding = self.classifier.classify(&line).map(|check| check.id.to_owned());
        let moment = self.moment(&line);
        self.lines += 1;
        let kept = self.lines <= LINES || finding.is_some();
        let mut all = Vec::new();
        if kept {
            all.push(What::Console { machine: self.machine.clone(), line, finding });
        }
        all.extend(moment);
        all
    }

    /// What a program of the node says that it did: what happens on the host, and what happens inside its cluster.
    fn moment(&self, line: &str) -> Option<What> {
        // The pivot's moments have one form, whoever tells them.
        match (pivot::told(line), self.cluster) {
            (Some(Told::HostDid(what)), _) => return Some(What::HostDid { host: self.host, what }),
            (Some(Told::InCluster(what)), Some(cluster)) => {
                let host = what.is_of_host().then_some(self.host);
                return Some(What::InCluster { cluster, host, what });
            }
            _ => {}
        }
        let (part, what, _) = say::read(line)?;
        match (part, self.cluster) {
            (_, _) if what == "note" => None,
            ("agent" | "installer", _) | (_, None) => {
                Some(What::HostDid { host: self.host, what: HostMoment::of(what) })
            }
            (_, Some(cluster)) => {
                Some(What::InCluster { cluster, host: Some(self.host), what: ClusterMoment::of(what) })
            }
        }
    }
}

/// Passes on what happens to machines, whose disks are in that folder.
async fn tell_events(
    mut events: tokio::sync::broadcast::Receiver<MachineEvent>,
    folder: PathBuf,
    news: mpsc::UnboundedSender<News>,
) {
    use tokio::sync::broadcast::error::RecvError;
    // A disk that fails does so with each of thousands of requests: once is enough, until something else happens.
    let mut failing: BTreeSet<(String, String)> = BTreeSet::new();
    loop {
        let event = match events.recv().await {
            Ok(event) => event,
            Err(RecvError::Lagged(lost)) => {
                let text = format!("{lost} events of machines were lost");
                let _ = news.send(News::Seen(Source::Harness, What::Note { text }));
                continue;
            }
            Err(RecvError::Closed) => return,
        };
        let (did, detail) = event.words();
        match &event.event {
            DomainEvent::IoError { .. } if !failing.insert((event.machine.clone(), detail.clone())) => continue,
            DomainEvent::IoError { .. } => {}
            _ => failing.retain(|(machine, _)| *machine != event.machine),
        }
        let what =
            What::Machine { machine: event.machine.clone(), did: MachineMoment::of(did), detail: detail.clone() };
        let _ = news.send(News::Seen(Source::Harness, what));
        if event.is_loss() {
            let how = format!("its QEMU was killed or crashed ({did}, {detail})");
            let _ = news.send(News::Lost { machine: event.machine, how, advice: String::new() });
        } else if event.is_out_of_space() {
            let how = format!("the disk of this computer is full, so it cannot write its own ({did}, {detail})");
            let advice = format!(
                "its disk is in {}: make room there, or set TMPDIR to a folder with more room, and run it again",
                folder.join(&event.machine).display()
            );
            let _ = news.send(News::Lost { machine: event.machine, how, advice });
        }
    }
}

/// Applies a fault to a machine, or undoes it.
async fn apply(
    made: &Made,
    network: &Network,
    fault: MachineFault,
    name: &str,
    to: &[String],
    undo: bool,
    medium: Option<&Path>,
) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let loss = |percent: u8| if undo { 0 } else { percent };
    let machine = || {
        let made = made.lock().unwrap_or_else(PoisonError::into_inner);
        made.get(name).cloned().ok_or_else(|| format!("{name} was not switched on yet"))
    };
    match fault {
        MachineFault::PowerCut if undo => machine()?.power_on().await.map_err(|e| text(&e)),
        MachineFault::PowerCut => machine()?.power_off().await.map_err(|e| text(&e)),
        MachineFault::Reset => machine()?.reset().await.map_err(|e| text(&e)),
        MachineFault::CableOut => {
            let machine = machine()?;
            for nic in &machine.spec().nics {
                machine.set_link(&nic.mac, undo).await.map_err(|e| text(&e))?;
            }
            Ok(())
        }
        MachineFault::Eject if undo => machine()?.set_medium(medium).await.map_err(|e| text(&e)),
        MachineFault::Eject => machine()?.eject().await.map_err(|e| text(&e)),
        MachineFault::DiskFails { .. } if undo => machine()?.heal_disk(DISK).await.map_err(|e| text(&e)),
        MachineFault::DiskFails { .. } => machine()?.fail_disk(DISK, DiskFault::All).await.map_err(|e| text(&e)),
        MachineFault::SlowDisk { writes } => {
            machine()?.limit_writes(DISK, (!undo).then_some(writes)).await.map_err(|e| text(&e))
        }
        MachineFault::GatewayCut => {
            let (host, gateway) = (peer(network, name)?, peer(network, "gateway")?);
            network.set_loss(host, gateway, loss(100)).await.map_err(|e| text(&e))?;
            network.set_loss(gateway, host, loss(100)).await.map_err(|e| text(&e))
        }
        MachineFault::Unheard(frames) => {
            let (host, gateway) = (peer(network, name)?, peer(network, "gateway")?);
            network.set_loss_of(host, gateway, frames, loss(100)).await.map_err(|e| text(&e))
        }
        MachineFault::Loss { frames, percent, one_way } => {
            for other in to.iter().filter(|other| *other != name) {
                let (a, b) = (peer(network, name)?, peer(network, other)?);
                network.set_loss_of(a, b, frames, loss(percent)).await.map_err(|e| text(&e))?;
                if !one_way {
                    network.set_loss_of(b, a, frames, loss(percent)).await.map_err(|e| text(&e))?;
                }
            }
            Ok(())
        }
        MachineFault::Delay { rtt_ms, one_way } => {
            let rtt = Duration::from_millis(if undo { 0 } else { rtt_ms.into() });
            for other in to.iter().filter(|other| *other != name) {
                let (a, b) = (peer(network, name)?, peer(network, other)?);
                network.set_delay(a, b, if one_way { rtt } else { rtt / 2 }).await.map_err(|e| text(&e))?;
                if !one_way {
                    network.set_delay(b, a, rtt / 2).await.map_err(|e| text(&e))?;
                }
            }
            Ok(())
        }
        MachineFault::WrongName(wrong) => network.answer_wrongly(wrong, !undo).await.map_err(|e| text(&e)),
        MachineFault::TakeAddress(address) => network.take_address(address, !undo).await.map_err(|e| text(&e)),
        MachineFault::Closed(ports) => {
            let (all, frames) = (Peer::Everybody, Frames::Tcp(ports));
            network.set_loss_of(all, all, frames, loss(100)).await.map_err(|e| text(&e))
        }
    }
}

fn peer(network: &Network, name: &str) -> Result<Peer, String> {
    network.peer_of(name).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(cluster: Option<Uuid>) -> Listener {
        let classifier = Arc::new(Classifier::default());
        Listener { machine: "m-0".into(), host: Uuid::from_u128(1), cluster, classifier, lines: 0 }
    }

    #[test]
    fn lines_of_a_console_become_what_they_mean() {
        let cluster = Uuid::from_u128(2);
        let mut listener = listener(Some(cluster));
        let line = |line: &str, finding: Option<&str>| What::Console {
            machine: "m-0".into(),
            line: line.into(),
            finding: finding.map(Into::into),
        };
        assert_eq!(listener.means("  \r"), []);
        assert_eq!(listener.means("\u{1b}[1mhello\u{1b}[0m"), [line("hello", None)]);
        let panic = "[ 1.0] Kernel panic - not syncing: x";
        assert_eq!(listener.means(panic), [line(panic, Some("kernel-panic"))]);
        let said = "[   12.3] vlab-node: pivot bootkube-done {}";
        let done = What::InCluster { cluster, host: Some(Uuid::from_u128(1)), what: ClusterMoment::BootkubeDone };
        assert_eq!(listener.means(said), [line(said, None), done]);
        for (said, host, means) in [
            ("vlab-node: pivot etcd-bootstrap-removed {}", None, ClusterMoment::EtcdBootstrapDone),
            ("vlab-node: node ready {}", Some(Uuid::from_u128(1)), ClusterMoment::NodeReady),
        ] {
            let told = What::InCluster { cluster, host, what: means };
            assert_eq!(listener.means(said)[1..], [told], "the word of simulated clusters");
        }
        let said = "vlab-node: agent registered {\"a\": 1}";
        let done = What::HostDid { host: Uuid::from_u128(1), what: HostMoment::Registered };
        assert_eq!(listener.means(said)[1..], [done]);
        assert_eq!(listener.means("vlab-node: agent note \"x\"").len(), 1);
    }

    fn event(event: DomainEvent) -> MachineEvent {
        MachineEvent { machine: "m-0".into(), at: std::time::SystemTime::UNIX_EPOCH, event }
    }

    fn io_error(action: &str, reason: &str) -> MachineEvent {
        event(DomainEvent::IoError { device: "ua-vda".into(), action: action.into(), reason: reason.into() })
    }

    /// What is told of these events: what they did, and what is said of a machine that is lost.
    async fn told_of(all: Vec<MachineEvent>) -> (Vec<String>, Vec<String>) {
        let (sender, events) = tokio::sync::broadcast::channel(64);
        for event in all {
            sender.send(event).unwrap();
        }
        drop(sender);
        let (news, mut told) = mpsc::unbounded_channel();
        tell_events(events, PathBuf::from("/scratch/vlab-m-1"), news).await;
        let (mut did, mut lost) = (Vec::new(), Vec::new());
        while let Some(item) = told.recv().await {
            match item {
                News::Seen(_, What::Machine { did: what, detail, .. }) => did.push(format!("{what} {detail}")),
                News::Lost { machine, how, advice } => lost.push(format!("{machine}: {how}; {advice}")),
                other => panic!("{other:?}"),
            }
        }
        (did, lost)
    }

    #[tokio::test]
    async fn a_full_disk_of_this_computer_ends_the_run() {
        let (did, lost) = told_of(vec![io_error("pause", "enospc")]).await;
        assert_eq!(did, ["io-error ua-vda pause enospc"]);
        assert_eq!(
            lost,
            [
                "m-0: the disk of this computer is full, so it cannot write its own (io-error, ua-vda pause enospc); its disk is in \
              /scratch/vlab-m-1/m-0: make room there, or set TMPDIR to a folder with more room, and run it again"
            ]
        );
    }

    #[tokio::test]
    async fn a_disk_that_fails_on_and_on_is_told_once() {
        let failing = io_error("report", "");
        let mut all = vec![failing.clone(); 5];
        all.extend([event(DomainEvent::Rebooted), failing.clone(), failing]);
        let (did, lost) = told_of(all).await;
        assert_eq!(did, ["io-error ua-vda report", "rebooted ", "io-error ua-vda report"]);
        assert_eq!(lost, [""; 0], "the guest's own affair");
    }

    #[test]
    fn an_image_that_is_cut_off_or_none_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let said = |name: &str, content: &[u8]| {
            let file = folder.path().join(name);
            std::fs::write(&file, content).unwrap();
            whole(&file).unwrap_err()
        };
        assert!(said("empty.iso", b"").starts_with("is not an ISO 9660 image"));
        assert!(said("page.iso", b"<html>502 Bad Gateway</html>").starts_with("is not an ISO 9660 image"));
        let mut image = vec![0; 40_000];
        image[32768..32774].copy_from_slice(b"\x01CD001");
        image[32768 + 80..32768 + 84].copy_from_slice(&50_000_u32.to_le_bytes());
        image[32768 + 128..32768 + 130].copy_from_slice(&2048_u16.to_le_bytes());
        assert_eq!(said("half.iso", &image), "is cut off: it has 40000 of 102400000 bytes");
        assert!(whole(&folder.path().join("none.iso")).unwrap_err().starts_with("cannot be read: No such file"));
    }

    #[test]
    fn a_console_that_never_ends_does_not_fill_the_history() {
        let mut listener = listener(None);
        listener.lines = LINES;
        assert_eq!(listener.means("more"), []);
        assert_eq!(listener.means("Kernel panic - not syncing: x").len(), 1);
        assert_eq!(listener.means("vlab-node: node ready {}").len(), 1, "a moment is no line");
    }
}
