//! The lab network: what it gives to hosts, what faults do to it, and where it is not permitted.

use super::*;

/// Runs a verb of mini-lab inside of a network and gives back what it says.
fn inside(network: &Network, folder: &Path, args: &[&str]) -> String {
    let out = folder.join("inside.out");
    let stdout = fs::File::create(&out).unwrap();
    let mut program = Program::new("inside", mini(), folder.join("inside.log"))
        .args(args.iter().copied())
        .namespace(Some(Arc::clone(network.namespace())));
    program.stdout = Some(stdout.into());
    let child = Child::spawn(program).unwrap();
    within(SOON, "it ends", || child.ended().is_some());
    let said = fs::read_to_string(out).unwrap();
    if said.is_empty() { child.last_lines(3).join(" ") } else { said.trim().to_owned() }
}

/// Something of iproute2 inside of a network, as a test's own hand.
fn ip(network: &Network, folder: &Path, args: &[&str]) {
    sh(network, folder, &format!("PATH=$PATH:/usr/sbin:/sbin ip {}", args.join(" ")));
}

fn sh(network: &Network, folder: &Path, script: &str) {
    let program = Program::new("sh", "/bin/sh", folder.join("sh.log"))
        .args(["-c", script])
        .namespace(Some(Arc::clone(network.namespace())));
    let child = Child::spawn(program).unwrap();
    within(SOON, "the script ends", || child.ended().is_some());
    assert!(child.ended().unwrap().success(), "{script}: {:?}", child.last_lines(3));
}

/// DHCP and DNS for a host that is a cable pair: its own address by its MAC, the names of the cluster, NTP and router; the
/// gateway's listener; faults between ports. Two networks with the same addresses at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn lab_network_answers_and_faults_cut_it() {
    if no_network() {
        return;
    }
    let (world, second) = (World::new(), World::new());
    let links = fs::read_to_string("/proc/net/dev").unwrap();
    let network = world.network(&[("master-0", "192.168.126.11"), ("worker-0", "")]).await;
    let mut options = NetworkOptions::new(&format!("{}-2", second.ledger.run()), second.path());
    options.helper = mini();
    options.ledger = Some(Arc::clone(&second.ledger));
    let twin = Network::start(network.spec().clone(), options).await.unwrap();
    assert_eq!(interfaces(&links), interfaces(&fs::read_to_string("/proc/net/dev").unwrap()), "the host's own network");

    let cable = Cable { network: &network, folder: world.path() };
    cable.plug_in();
    cable.gets_address_and_names();
    let twins = inside(&twin, second.path(), &["ask", "192.168.126.1:53", "api.demo.lab.example"]);
    assert_eq!(twins, "[192.168.126.5]");
    cable.reaches_the_gateway();
    cable.loses_frames().await;
    cable.delays_frames().await;
    cable.hears_wrong_names().await;
    // Somebody who is no host can have an address, of either family, once.
    for address in ["192.168.126.5", "fd2e:6f44:5dd8::5"] {
        let address = address.parse().unwrap();
        for on in [true, false] {
            network.take_address(address, on).await.unwrap();
            assert!(network.take_address(address, on).await.is_err(), "{address} {on}");
        }
    }
    // A dnsmasq that dies is noticed.
    let pid = network.dnsmasq().pid();
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    let status = tokio::time::timeout(SOON, network.failed()).await.unwrap();
    assert!(!status.success(), "{status}");

    network.stop().await.unwrap();
    twin.stop().await.unwrap();
    world.assert_nothing_is_left();
    second.assert_nothing_is_left();
}

/// Two clusters in networks of their own: each has its addresses, its gateway and its domain, and all have the names.
#[tokio::test(flavor = "multi_thread")]
async fn lab_a_network_of_two_segments() {
    if no_network() {
        return;
    }
    let world = World::new();
    let folder = world.path().join("net");
    fs::create_dir(&folder).unwrap();
    let mut spec =
        NetworkSpec { domains: vec![], segments: vec![], hosts: vec![], names: vec![], elsewhere: vec![], dhcp: true };
    for (number, (cluster, network, address)) in
        [("left", "192.168.126.0/24", "192.168.126.11"), ("right", "10.1.0.0/24", "10.1.0.11")].into_iter().enumerate()
    {
        let address = address.parse().unwrap();
        spec.add_cluster(&format!("{cluster}.lab.example"), &[address], &[address]);
        spec.hosts.push(NetworkHost {
            name: format!("{cluster}-0"),
            domain: Some(format!("{cluster}.lab.example")),
            segment: spec.segments.len(),
            mac: format!("52:54:00:00:00:0{number}"),
            more_macs: vec![],
            addresses: vec![address],
            dhcp: true,
        });
        spec.add_segment(&[network.parse().unwrap()]);
    }
    let mut options = NetworkOptions::new(world.ledger.run(), &folder);
    options.helper = mini();
    options.ledger = Some(Arc::clone(&world.ledger));
    let network = Network::start(spec, options).await.unwrap();
    let cable = Cable { network: &network, folder: world.path() };
    cable.plug_in();
    cable.replace_tap(1);
    let lease = |number: usize| {
        let (end, mac) = (format!("eth{number}"), format!("52:54:00:00:00:0{number}"));
        inside(&network, world.path(), &["lease", &end, &mac])
    };
    assert_eq!(lease(0), "address 192.168.126.11 router 192.168.126.1 dns 192.168.126.1 ntp 192.168.126.1 name left-0");
    assert_eq!(lease(1), "address 10.1.0.11 router 10.1.0.1 dns 10.1.0.1 ntp 10.1.0.1 name right-0");
    for name in ["right-0.right.lab.example", "api.right.lab.example", "x.apps.right.lab.example"] {
        assert_eq!(cable.ask(name), "[10.1.0.11]", "{name}");
    }
    let wrong = WrongName { name: ClusterName::Api, answer: None };
    network.answer_wrongly("right.lab.example", wrong, true).await.unwrap();
    assert_eq!(
        (cable.ask("api.right.lab.example"), cable.ask("api.left.lab.example")),
        ("[]".into(), "[192.168.126.11]".into())
    );
    network.stop().await.unwrap();
    world.assert_nothing_is_left();
}

/// Hosts that are cable pairs: the one end has the name of the host's tap, so that rules about the host are about it.
struct Cable<'a> {
    network: &'a Network,
    folder: &'a Path,
}

impl Cable<'_> {
    /// The cable of the host with that number, in its segment.
    fn replace_tap(&self, number: usize) {
        let bridge = format!("lab{}", self.network.spec().hosts[number].segment);
        let (tap, end) = (format!("tap{number}"), format!("eth{number}"));
        let mac = format!("52:54:00:00:00:0{number}");
        ip(self.network, self.folder, &["link", "delete", &tap]);
        let add = ["link", "add", &tap, "type", "veth", "peer", "name", &end, "address", &mac];
        ip(self.network, self.folder, &add);
        ip(self.network, self.folder, &["link", "set", &tap, "master", &bridge, "up"]);
        ip(self.network, self.folder, &["link", "set", &end, "up"]);
    }

    fn plug_in(&self) {
        self.replace_tap(0);
        // Both ends of the cable are in one network here, where an answer from an address of one's own is taken for a forgery.
        let trust = "for f in all eth0; do echo 1 > /proc/sys/net/ipv4/conf/$f/accept_local; \
                     echo 0 > /proc/sys/net/ipv4/conf/$f/rp_filter; done";
        sh(self.network, self.folder, trust);
    }

    fn lease(&self) -> String {
        inside(self.network, self.folder, &["lease", "eth0", "52:54:00:00:00:00"])
    }

    fn ask(&self, name: &str) -> String {
        inside(self.network, self.folder, &["ask", "192.168.126.1:53", name])
    }

    fn gets_address_and_names(&self) {
        let expected = "address 192.168.126.11 router 192.168.126.1 dns 192.168.126.1 ntp 192.168.126.1 name master-0";
        assert_eq!(self.lease(), expected);
        let leases = self.network.leases();
        assert!(
            leases.iter().any(|(mac, address, name)| {
                mac == "52:54:00:00:00:00" && address.to_string() == "192.168.126.11" && name == "master-0"
            }),
            "{leases:?}"
        );
        assert_eq!(self.ask("api.demo.lab.example"), "[192.168.126.5]");
        assert_eq!(self.ask("api-int.demo.lab.example"), "[192.168.126.5]");
        assert_eq!(self.ask("console.apps.demo.lab.example"), "[192.168.126.6]");
        assert_eq!(self.ask("master-0.demo.lab.example"), "[192.168.126.11]");
        assert_eq!(self.ask("nobody.demo.lab.example"), "[]");
        // A name of the world outside is refused, and who asked for it is told.
        assert_eq!(self.network.foreign_queries(), []);
        self.ask("builds.example.org");
        let foreign = self.network.foreign_queries();
        let told: Vec<&str> = foreign.iter().map(|query| query.name.as_str()).collect();
        assert_eq!(told, ["builds.example.org"], "{foreign:?}");
    }

    /// A service on the host's loopback, reached from inside.
    fn reaches_the_gateway(&self) {
        let service = TcpListener::bind("127.0.0.1:0").unwrap();
        let _forward = self.network.forward(8090, service.local_addr().unwrap()).unwrap();
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = service.accept().unwrap();
            stream.write_all(b"from the host").unwrap();
        });
        let connect = "exec 3<>/dev/tcp/192.168.126.1/8090 && cat <&3";
        let program = Program::new("client", "/bin/bash", self.folder.join("client.log"))
            .args(["-c", connect])
            .namespace(Some(Arc::clone(self.network.namespace())));
        let client = Child::spawn(program).unwrap();
        within(SOON, "the client ends", || client.ended().is_some());
        assert_eq!(client.last_lines(1), ["from the host"]);
        answers.join().unwrap();
        let taken = SocketAddr::from(([192, 168, 126, 1], 8090));
        assert!(matches!(self.network.listen(taken), Err(NetworkError::Listen { .. })));
    }

    async fn loses_frames(&self) {
        // Cut off from the gateway there is no DHCP; healed there is.
        let network = self.network;
        let host = network.peer_of("master-0").unwrap();
        network.cut(host, Peer::Gateway).await.unwrap();
        let cut = self.lease();
        assert!(cut.contains("Error"), "{cut}");
        network.heal().await.unwrap();
        // The same when only its questions for an address are lost, or all packets of their size; not when longer ones are.
        for (frames, lost) in [(Frames::Dhcp, true), (Frames::LongerThan(200), true), (Frames::LongerThan(1000), false)]
        {
            network.set_loss_of(host, Peer::Gateway, frames, 100).await.unwrap();
            let got = self.lease();
            assert_eq!(got.contains("Error"), lost, "{frames:?}: {got}");
            network.set_loss_of(host, Peer::Gateway, frames, 0).await.unwrap();
        }
        assert!(self.lease().starts_with("address 192.168.126.11 "));
        network.set_link("master-0", false).await.unwrap();
        network.set_link("master-0", true).await.unwrap();
        network.set_rate("master-0", Some(1000)).await.unwrap();
        network.set_rate("master-0", None).await.unwrap();
        let error = network.set_link("nobody", true).await.unwrap_err().to_string();
        assert!(error.contains("no host `nobody` in the lab network: master-0, worker-0"), "{error}");
    }

    /// What takes long from the one to the other takes no longer the other way round, and none of it is lost.
    async fn delays_frames(&self) {
        let network = self.network;
        self.replace_tap(1);
        let (one, other) = (network.peer_of("master-0").unwrap(), network.peer_of("worker-0").unwrap());
        let took = |from: &str, to: &str, mac: &str| -> u128 {
            let said = inside(network, self.folder, &["frame", from, to, mac]);
            said.parse().unwrap_or_else(|_| panic!("from {from} to {to}: {said}"))
        };
        let (master, worker, all) = ("52:54:00:00:00:00", "52:54:00:00:00:01", "ff:ff:ff:ff:ff:ff");
        let delay = Duration::from_millis(700);
        for slow in [true, false] {
            network.set_delay(one, other, if slow { delay } else { Duration::ZERO }).await.unwrap();
            for mac in [worker, all] {
                let ms = took("eth0", "eth1", mac);
                assert_eq!(ms >= delay.as_millis(), slow, "to {mac}: {ms} ms");
            }
            let ms = took("eth1", "eth0", master);
            assert!(ms < delay.as_millis(), "back: {ms} ms");
        }
        // Both at once: what is delayed can be lost, too.
        network.set_delay(one, other, Duration::from_millis(1)).await.unwrap();
        network.set_loss(one, other, 100).await.unwrap();
        let lost = inside(network, self.folder, &["frame", "eth0", "eth1", worker]);
        assert!(lost.contains("Error"), "{lost}");
        network.heal().await.unwrap();
        took("eth0", "eth1", worker);
        network.set_delay(one, other, Duration::ZERO).await.unwrap();
        let error = network.set_delay(one, Peer::Gateway, delay).await.unwrap_err().to_string();
        assert_eq!(error, "frames are delayed between two hosts only");
    }

    /// Names can be wrong for a while. That dnsmasq is started again for it is nobody's death, and leases stay.
    async fn hears_wrong_names(&self) {
        let network = self.network;
        let (before, leases) = (network.dnsmasq().pid(), network.leases());
        let mut failed = Box::pin(network.failed());
        let wrong = |name, answer: Option<&str>| WrongName { name, answer: answer.map(|text| text.parse().unwrap()) };
        for (wrong, api, other) in [
            (wrong(ClusterName::Api, None), "[]", "[]"),
            (wrong(ClusterName::Unknown, Some("198.51.100.66")), "[192.168.126.5]", "[198.51.100.66]"),
        ] {
            for (on, api, other) in [(true, api, other), (false, "[192.168.126.5]", "[]")] {
                tokio::select! {
                    status = &mut failed => panic!("dnsmasq is told to have died: {status}"),
                    done = network.answer_wrongly("demo.lab.example", wrong, on) => done.unwrap(),
                }
                let answers = (self.ask("api.demo.lab.example"), self.ask("nobody.demo.lab.example"));
                assert_eq!(answers, (api.to_owned(), other.to_owned()), "{wrong:?} {on}");
            }
        }
        drop(failed);
        assert_ne!(network.dnsmasq().pid(), before);
        assert_eq!(network.leases(), leases);
    }
}

fn interfaces(table: &str) -> Vec<String> {
    table.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

/// Where a namespace is not permitted, the error says so and what helps; nothing stays behind.
#[test]
fn lab_a_namespace_that_is_not_permitted_is_a_clear_error() {
    if !nix::unistd::geteuid().is_root() {
        vlab_skip::skip!("only root can take rights away from itself");
        return;
    }
    // As an ordinary user without rights, the named form cannot be.
    let world = tempfile::Builder::new().prefix("vlab-t-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(world.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let copy = world.path().join("mini-lab");
    fs::copy(MINI, &copy).unwrap();
    use std::os::unix::process::CommandExt as _;
    let output = Command::new("ip").args(["netns", "add", "vlab-test-refused"]).uid(12345).gid(12345).output().unwrap();
    assert!(!output.status.success());
    // `hold` in a user namespace that may have no more of them.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" __in-namespace hold";
    let output =
        Command::new("unshare").args(["-Ur", "sh", "-c", script]).arg(&copy).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("user namespaces may be switched off"), "{said}");
    assert!(!Path::new("/run/netns/vlab-test-refused").exists());
}
