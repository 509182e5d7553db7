//! The machines of a run and their network, as they run.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_client::Endpoint;
use vlab_drive::conductor::MachineOrder;
use vlab_drive::fault::machine::{InsideFault, MachineFault};
use vlab_image_service::catalog::OsImage;
use vlab_image_service::service::ImageService;
use vlab_lab::iscsi::{self, LunSpec, Targets};
use vlab_lab::ledger::{Ledger, Resource, Token};
use vlab_lab::machines::{Accel, MachineSpec, Machines, MachinesOptions};
use vlab_lab::network::{ForeignQuery, Forward, Network, NetworkOptions};
use vlab_lab::ssh::Keys;
use vlab_model::console::Classifier;
use vlab_model::history::{Source, What};
use vlab_service_server::serve_images;

use super::console::Belonging;
use super::events::tell_events;
use super::faults::{Injected, Injection, Reach};
use super::medium::{fetch, foreign_images, whole};
use super::plan::{IMAGES_PORT, ISCSI_PORTS, PROGRAMS_PORT, Plan, PlannedMachine};
use super::power::Switch;
use super::{Made, freeze, programs, screenshot_file};
use crate::error::{LabError, lab};
use crate::hosts::{Frozen, HostsOrder, News, RunningHosts, Stopped};
use crate::service::{BoxFuture, Inside};

/// How long the end of a run waits for what is just being done to machines: the way into an emulated one takes seconds.
const SETTLE: Duration = Duration::from_secs(5);
/// How long readers of consoles may take to come to the end of what is there.
const DRAIN: Duration = Duration::from_secs(2);

/// The machines of a run and their network.
pub(super) struct VirtualLab {
    /// That of the run.
    pub(super) folder: PathBuf,
    pub(super) plan: Plan,
    ids: BTreeMap<String, Uuid>,
    /// Their names by their positions in the scenario, and whether they are of the pool.
    pub(super) hosts: BTreeMap<usize, (String, bool)>,
    classifiers: BTreeMap<String, Arc<Classifier>>,
    ledger: Arc<Ledger>,
    pub(super) network: Arc<Network>,
    reachable: Vec<Forward>,
    /// The image service, from here.
    images: Option<Endpoint>,
    pub(super) keys: Keys,
    pub(super) machines: Machines,
    pub(super) made: Made,
    /// Told whenever a machine is on for the first time.
    grown: watch::Sender<()>,
    /// How many faults are just being done to machines.
    at_work: Arc<watch::Sender<usize>>,
    /// What became of faults so far.
    injected: Arc<Mutex<Injected>>,
    /// Faults of clusters.
    of_clusters: BTreeSet<String>,
    /// The folder with discovery images.
    pub(super) media: (PathBuf, Token),
    /// The discovery image of each machine that is on, or on its way.
    pub(super) media_of: BTreeMap<String, PathBuf>,
    /// Which cluster each of them belongs to.
    clusters: Belonging,
    pub(super) news: mpsc::UnboundedSender<News>,
    pub(super) told: mpsc::UnboundedReceiver<News>,
    /// How they see the service.
    inside: Inside,
    /// Works that are given up at the end.
    pub(super) doing: JoinSet<()>,
    /// Readers that come to the end of what is there.
    pub(super) reading: Arc<Mutex<JoinSet<()>>>,
    pub(super) over: CancellationToken,
    /// They are being frozen: half a line of a console is left for who goes on.
    pub(super) frozen: Arc<AtomicBool>,
}

impl VirtualLab {
    /// Makes the network and the connection to libvirt, reserves the memory. Machines are switched on by
    /// [`VirtualLab::carry_out`].
    ///
    /// # Errors
    /// What cannot be had.
    pub(super) async fn start(
        order: &HostsOrder<'_>,
        accel: Accel,
        plan: Plan,
        inside: Inside,
    ) -> Result<Self, LabError> {
        let folder = order.folder.join("network");
        std::fs::create_dir_all(&folder)
            .map_err(|e| LabError::new("lab network", format!("{}: {e}", folder.display())))?;
        let mut options = NetworkOptions::new(order.ledger.run(), &folder);
        options.helper = order.vlab.to_path_buf();
        options.ledger = Some(Arc::clone(order.ledger));
        let network = Network::start(plan.network.clone(), options).await.map_err(lab("lab network"))?;
        let clock = network.tell_time().map_err(lab("lab network"))?;
        let named = plan.network.hosts.iter().map(|host| (host.name.as_str(), host.addresses.as_slice()));
        let kept = order.from.map(|from| from.join(freeze::KEYS));
        let keys = Keys::create(order.ledger, named, kept.as_deref()).map_err(lab("ssh"))?;
        let mut options = MachinesOptions::new(order.ledger, accel, order.folder);
        options.namespace = Some(Arc::clone(network.namespace()));
        options.movable = order.movable || order.from.is_some();
        let machines = Machines::start(options).await.map_err(lab("libvirt"))?;
        let specs: Vec<MachineSpec> = plan.machines.iter().map(|machine| machine.spec.clone()).collect();
        machines.reserve(&specs).map_err(lab("memory"))?;
        // Gone at the end, unlike the rest of the run's folder: it is as large as a CD.
        let media = std::path::absolute(order.folder.join("media")).map_err(lab("media"))?;
        let entry = order.ledger.record(Resource::Directory { path: media.clone() }).map_err(lab("ledger"))?;
        std::fs::create_dir(&media).map_err(|e| LabError::new("media", format!("{}: {e}", media.display())))?;
        let mut classifiers = BTreeMap::new();
        let mut ids = BTreeMap::new();
        let mut hosts = BTreeMap::new();
        for machine in &plan.machines {
            let host = &order.prepared.scenario.hosts[machine.index];
            let classifier = Classifier::without(&host.vm.ignore_console).map_err(lab("console checks"))?;
            classifiers.insert(host.name.clone(), Arc::new(classifier));
            ids.insert(host.name.clone(), machine.spec.uuid);
            hosts.insert(machine.index, (host.name.clone(), host.cluster.is_none()));
        }
        let (news, told) = mpsc::unbounded_channel();
        let mut doing = JoinSet::new();
        // That machines which were frozen are loaded and go on is nothing that happens to them.
        if order.from.is_none() {
            doing.spawn(tell_events(machines.events(), machines.folder().to_path_buf(), news.clone()));
        }
        Ok(Self {
            folder: order.folder.to_path_buf(),
            plan,
            ids,
            hosts,
            classifiers,
            ledger: Arc::clone(order.ledger),
            network: Arc::new(network),
            reachable: vec![clock],
            images: None,
            keys,
            machines,
            made: Made::default(),
            grown: watch::Sender::new(()),
            at_work: Arc::new(watch::Sender::new(0)),
            injected: Arc::default(),
            of_clusters: BTreeSet::new(),
            media: (media, entry),
            media_of: BTreeMap::new(),
            clusters: Belonging::default(),
            news,
            told,
            inside,
            doing,
            reading: Arc::default(),
            over: CancellationToken::new(),
            frozen: Arc::default(),
        })
    }

    /// Programs that the run gives machines can be fetched.
    fn hand_out_programs(&mut self) -> Result<(), LabError> {
        let given = self.plan.machines.iter().flat_map(|machine| machine.given.iter().cloned());
        let pages: BTreeMap<String, programs::Page> = given.collect();
        if pages.is_empty() {
            return Ok(());
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(lab("programs"))?;
        let address = listener.local_addr().map_err(lab("programs"))?;
        self.reachable.push(self.network.forward(PROGRAMS_PORT, address).map_err(lab("lab network"))?);
        let news = self.news.clone();
        self.doing.spawn(async move {
            if let Err(error) = programs::serve(listener, pages).await {
                let _ = news.send(News::Broken(lab("programs")(error)));
            }
        });
        Ok(())
    }

    /// Disks on the network are there, on all ways to them. Their files lie where discovery images do, and go with them.
    fn serve_disks(&mut self) -> Result<(), LabError> {
        let of_machine = |machine: &PlannedMachine| machine.luns.clone();
        let mut luns: Vec<LunSpec> = self.plan.machines.iter().flat_map(of_machine).collect();
        if luns.is_empty() {
            return Ok(());
        }
        for lun in &mut luns {
            lun.file = self.media.0.join(&lun.file);
        }
        let targets = Targets::create(&luns).map_err(lab("disks on the network"))?;
        let gateways: Vec<IpAddr> = self.network.gateways().collect();
        for address in gateways.iter().flat_map(|ip| ISCSI_PORTS.map(|port| SocketAddr::new(*ip, port))) {
            let listener = self.network.listen(address).map_err(lab("disks on the network"))?;
            listener.set_nonblocking(true).map_err(lab("disks on the network"))?;
            let listener = tokio::net::TcpListener::from_std(listener).map_err(lab("disks on the network"))?;
            let (targets, news) = (targets.clone(), self.news.clone());
            self.doing.spawn(async move {
                if let Err(error) = iscsi::serve(listener, targets).await {
                    let _ = news.send(News::Broken(lab("disks on the network")(error)));
                }
            });
        }
        Ok(())
    }

    /// What runs here, for the report.
    pub(super) fn versions(&self) -> [(&'static str, String); 2] {
        let versions = self.machines.versions();
        [("libvirt", versions.libvirt.clone()), ("qemu", versions.qemu.clone())]
    }

    /// Fetches the discovery image, and switches machines on with it, each after its time.
    fn boot(&mut self, image: Image, machines: Vec<(PlannedMachine, Duration)>) {
        let Image { infra_env, cluster, download_url } = image;
        let medium = self.media.0.join(format!("{infra_env}.iso"));
        let (images, switch) = (self.images.clone(), self.switch());
        let foreign = self.plan.service.is_foreign.then(|| self.plan.service.base_url.clone());
        for (machine, _) in &machines {
            self.media_of.insert(machine.spec.name.clone(), medium.clone());
            if let Some(cluster) = cluster {
                self.belongs().insert(machine.spec.name.clone(), cluster);
            }
        }
        self.doing.spawn(async move {
            let Some(images) = images else {
                return switch.broken(LabError::new("image service", "there is none yet"));
            };
            let images = match &foreign {
                None => images,
                Some(base_url) => match foreign_images(&images, base_url, infra_env, &download_url).await {
                    Ok(images) => images,
                    Err(error) => return switch.broken(error),
                },
            };
            // Machines that were switched on earlier may have the one of before in their drives.
            let coming = medium.with_extension("part");
            match fetch(&images, &download_url, &coming).await {
                Ok(text) => switch.tell(What::Note { text }),
                Err(error) => return switch.broken(error),
            }
            // What the service has sent to its end may still be half of an image.
            if let Err(why) = whole(&coming) {
                let error = format!("the discovery image that the service sent from {download_url} {why}");
                return switch.broken(LabError::new("discovery image", error));
            }
            if let Err(error) = tokio::fs::rename(&coming, &medium).await {
                return switch.broken(lab("discovery image")(error));
            }
            let mut all = JoinSet::new();
            for (machine, wait) in machines {
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

    /// A fault begins or ends on these machines.
    fn fault(&mut self, order: FaultOrder) {
        let FaultOrder { name, what: fault, on, to, undo } = order;
        let inside = match &fault {
            MachineFault::Inside(inside) => Some(inside.clone()),
            _ => None,
        };
        // What is done inside of a cluster is done to those machines that it is told, and hits none in particular where one is
        // enough.
        let on = match &inside {
            Some(inside) if inside.is_of_a_cluster() && !inside.is_told_to_the_cluster() => to.clone(),
            _ => on,
        };
        // Of a link nobody is hit in particular.
        let hit = |name: &String| (to.is_empty() || inside.is_some()).then(|| self.ids.get(name).copied()).flatten();
        let on: Vec<(String, Option<Uuid>)> = on.iter().map(|name| (name.clone(), hit(name))).collect();
        let reach = Arc::new(Reach {
            made: Arc::clone(&self.made),
            network: Arc::clone(&self.network),
            media: self.media_of.clone(),
            clusters: self.plan.clusters.clone(),
            door: self.keys.door(self.network.namespace()),
            folder: self.folder.clone(),
        });
        let at_work = Arc::clone(&self.at_work);
        if inside.as_ref().is_some_and(InsideFault::is_of_a_cluster) {
            self.of_clusters.insert(name.clone());
        }
        let (news, grown, injected) = (self.news.clone(), self.grown.subscribe(), Arc::clone(&self.injected));
        if undo {
            injected.lock().unwrap_or_else(PoisonError::into_inner).over.insert(name.clone());
        }
        self.doing.spawn(async move {
            let mut each = JoinSet::new();
            for (machine, host) in on {
                each.spawn(
                    Injection {
                        reach: Arc::clone(&reach),
                        name: name.clone(),
                        fault: fault.clone(),
                        machine,
                        host,
                        to: to.clone(),
                        undo,
                        news: news.clone(),
                        grown: grown.clone(),
                        injected: Arc::clone(&injected),
                        at_work: Arc::clone(&at_work),
                    }
                    .carry_out(),
                );
            }
            // None is left when this one is given up.
            each.join_all().await;
        });
    }

    pub(super) fn belongs(&self) -> MutexGuard<'_, BTreeMap<String, Uuid>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Boots a machine from its discovery image again.
    fn boot_again(&mut self, name: &str, of_pool: bool) {
        if of_pool {
            self.belongs().remove(name);
        }
        let switch = self.switch();
        let Some(medium) = self.media_of.get(name).cloned() else {
            let error = format!("there is no discovery image that {name} could boot again");
            return switch.broken(LabError::new("machines", error));
        };
        let name = name.to_owned();
        self.doing.spawn(async move { switch.again(&name, &medium).await });
    }

    pub(super) fn switch(&self) -> Switch {
        Switch {
            machines: self.machines.clone(),
            made: Arc::clone(&self.made),
            grown: self.grown.clone(),
            news: self.news.clone(),
            reading: Arc::clone(&self.reading),
            over: self.over.clone(),
            clusters: Arc::clone(&self.clusters),
            classifiers: self.classifiers.clone(),
            frozen: Arc::clone(&self.frozen),
        }
    }
}

/// A discovery image, and whose it is.
struct Image {
    infra_env: Uuid,
    cluster: Option<Uuid>,
    download_url: String,
}

/// A fault that begins or ends.
struct FaultOrder {
    name: String,
    what: MachineFault,
    on: Vec<String>,
    to: Vec<String>,
    undo: bool,
}

/// Ends when something that machines need has exited unexpectedly: what, and how.
async fn ended(network: &Network, machines: &Machines) -> LabError {
    tokio::select! {
        status = network.failed() => LabError::new(
            "dnsmasq",
            format!("dnsmasq, which gives the machines addresses and names, exited unexpectedly: {status}"),
        ),
        status = machines.failed() => LabError::new(
            "libvirt",
            format!("the program that runs the machines exited unexpectedly: {status}"),
        )
        .with_log(machines.helper().last_lines(20)),
    }
}

impl RunningHosts for VirtualLab {
    fn inside(&self) -> Option<&Inside> {
        Some(&self.inside)
    }

    fn ssh_key(&self) -> Option<&str> {
        Some(self.keys.public())
    }

    /// An image service can be reached, too: that of the service, or one that is started here and asks it.
    fn connect(&mut self, front: SocketAddr, service: &Endpoint) -> Result<(), LabError> {
        self.reachable.push(self.network.forward_at(&self.plan.service.listen, front).map_err(lab("lab network"))?);
        self.hand_out_programs()?;
        self.serve_disks()?;
        if self.inside.images_url == self.inside.base_url {
            self.images = Some(service.clone());
            return Ok(());
        }
        let image = OsImage::of_every_version(&self.inside.iso);
        let images = ImageService::open(&[image], &self.inside.images_url).map_err(lab("image service"))?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(lab("image service"))?;
        let address = listener.local_addr().map_err(lab("image service"))?;
        self.reachable.push(self.network.forward(IMAGES_PORT, address).map_err(lab("lab network"))?);
        self.images = Some(Endpoint::new(address));
        let (service, over, news) = (service.clone(), self.over.clone(), self.news.clone());
        self.doing.spawn(async move {
            if let Err(error) = serve_images(listener, images, service, over).await {
                let _ = news.send(News::Broken(lab("image service")(error)));
            }
        });
        Ok(())
    }

    fn carry_out(&mut self, order: MachineOrder, now: Timestamp) {
        match order {
            MachineOrder::Boot { infra_env, cluster, download_url, machines } => {
                let planned = machines.into_iter().filter_map(|(index, at)| {
                    let planned = self.plan.machines.iter().find(|machine| machine.index == index)?;
                    Some((planned.clone(), at.since(now)))
                });
                let planned = planned.collect();
                self.boot(Image { infra_env, cluster, download_url }, planned);
            }
            MachineOrder::BootDiscovery { machine } => {
                if let Some((name, of_pool)) = self.hosts.get(&machine).cloned() {
                    self.boot_again(&name, of_pool);
                }
            }
            MachineOrder::Bound { machine, cluster } => {
                if let Some((name, _)) = self.hosts.get(&machine).cloned() {
                    self.belongs().insert(name, cluster);
                }
            }
            MachineOrder::Fault { name, what, on, to, undo } => self.fault(FaultOrder { name, what, on, to, undo }),
        }
    }

    fn news(&mut self) -> BoxFuture<'_, News> {
        let Self { told, network, machines, .. } = self;
        Box::pin(async move {
            tokio::select! {
                biased;
                Some(item) = told.recv() => item,
                error = ended(network, machines) => News::Broken(error),
            }
        })
    }

    fn evidence<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect::<Vec<_>>();
            for machine in made {
                // One that is off has no screen.
                if let Err(error) = machine.screenshot(&folder.join(screenshot_file(machine.name()))).await {
                    tracing::debug!(%error, machine = machine.name(), "no screenshot");
                }
            }
        })
    }

    fn entrance(&self) -> Vec<String> {
        let first = self.plan.machines.first().map(|machine| machine.spec.name.as_str());
        first.map(|name| format!("machines: vlab ssh {name}, vlab console {name} (they run)")).into_iter().collect()
    }

    fn stand_still(&mut self) -> BoxFuture<'_, Result<(), LabError>> {
        Box::pin(self.all_stand_still())
    }

    fn freeze<'a>(&'a mut self, into: &'a Path) -> BoxFuture<'a, Result<Frozen, LabError>> {
        Box::pin(self.write_down(into))
    }

    fn thaw<'a>(
        &'a mut self,
        from: &'a Path,
        frozen: &'a Frozen,
        done: Vec<MachineOrder>,
    ) -> BoxFuture<'a, Result<(), LabError>> {
        Box::pin(self.load(from, frozen, done))
    }

    fn go_on(&mut self) -> BoxFuture<'_, Result<(), LabError>> {
        Box::pin(self.all_go_on())
    }

    fn stop(self: Box<Self>) -> BoxFuture<'static, Stopped> {
        Box::pin(async move {
            let Self {
                mut doing,
                news,
                mut told,
                network,
                machines,
                media,
                ledger,
                reading,
                over,
                mut reachable,
                at_work,
                injected,
                of_clusters,
                ..
            } = *self;
            let mut problems = Vec::new();
            // What a fault did may be known before it is known that it did it.
            let _ = tokio::time::timeout(SETTLE, at_work.subscribe().wait_for(|count| *count == 0)).await;
            doing.shutdown().await;
            let injected = std::mem::take(&mut *injected.lock().unwrap_or_else(PoisonError::into_inner));
            problems.extend(injected.unmanaged(|fault| of_clusters.contains(fault)));
            if let Err(error) = machines.stop().await {
                problems.push(lab("libvirt")(error));
            }
            over.cancel();
            let mut reading = std::mem::take(&mut *reading.lock().unwrap_or_else(PoisonError::into_inner));
            if tokio::time::timeout(DRAIN, async { while reading.join_next().await.is_some() {} }).await.is_err() {
                problems.push(LabError::new("consoles", "they could not be read to their end"));
            }
            reachable.clear();
            for ForeignQuery { from, name, times } in network.foreign_queries() {
                let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
                let text =
                    format!("{from} asked DNS for {name}, a name outside of the lab, {times}: there is no way to it");
                let _ = news.send(News::Seen(Source::Harness, What::Note { text }));
            }
            // Nobody else has it any more; if somebody had, it would be removed with the last one.
            if let Some(network) = Arc::into_inner(network)
                && let Err(error) = network.stop().await
            {
                problems.push(lab("lab network")(error));
            }
            let (media, entry) = media;
            match std::fs::remove_dir_all(&media) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    problems.push(LabError::new("media", format!("{}: {error}", media.display())));
                }
                _ => {
                    if let Err(error) = ledger.release(entry) {
                        problems.push(lab("ledger")(error));
                    }
                }
            }
            // What they said until their power was off.
            let mut said = Vec::new();
            while let Ok(item) = told.try_recv() {
                if let News::Seen(source, what) = item {
                    said.push((source, what));
                }
            }
            (problems, said)
        })
    }
}
