//! What a fault does to a virtual machine or to its network, and what in a scenario machines cannot have yet. The families say
//! which kind does what, each in its own file.

use std::net::IpAddr;

use vlab_api::types::{HostStage, ImageType};
use vlab_model::disturbance::{Frames, WrongName};
use vlab_model::network::host_makes_connections;
use vlab_model::settings::Settings;
use vlab_scenario::{
    Cluster, Fault, FaultHosts, FaultTarget, Host, Injection, Moment, Scenario, Seen, Subject, TargetForm, fault_rows,
    moment_words,
};

use super::{control_plane, host, network};

/// What a fault does to each machine that it hits, or to the network of the machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineFault {
    /// The plug is pulled; put in again at the end.
    PowerCut,
    /// The reset button.
    Reset,
    /// The cable is out, as the guest sees it; in again at the end.
    CableOut,
    /// Nothing passes between the machine and the gateway (DHCP, DNS, the service); passes again at the end.
    GatewayCut,
    /// What the machine asks the gateway of that kind is lost; not any more at the end.
    Unheard(Frames),
    /// The medium is taken out of the CD drive.
    Eject,
    /// Every request of the disk ends with an I/O error, from when so much of the image is written; it works again at the end.
    DiskFails {
        /// Of a hundred; 0: at once.
        percent: u32,
    },
    /// The disk takes so many writes a second; as many as it can at the end.
    SlowDisk {
        /// Writes a second.
        writes: u32,
    },
    /// So many of a hundred frames between two machines are lost, in one direction only or in both; none any more at the end.
    Loss {
        /// Which frames.
        frames: Frames,
        /// Of a hundred.
        percent: u8,
        /// From the first to the second only.
        one_way: bool,
    },
    /// Frames between two machines take so long, in one direction only or in both.
    Delay {
        /// Milliseconds there and back.
        rtt_ms: u32,
        /// From the first to the second only, which takes all of it.
        one_way: bool,
    },
    /// The lab's DNS answers a name of the cluster wrongly; as before at the end.
    WrongName(WrongName),
    /// Somebody who is no host of the cluster has an address, and answers for it; nobody has it at the end.
    TakeAddress(IpAddr),
    /// Whatever is sent to these TCP ports over the network is lost; not any more at the end.
    Closed(&'static [u16]),
    /// Whatever the machine sends to these TCP ports is lost; not any more at the end.
    Mute(&'static [u16]),
    /// Somebody who has logged in does something to what runs in the machine.
    Inside(InsideFault),
}

/// What somebody who has logged in does to a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InsideFault {
    /// The agent's unit is started again.
    AgentRestarts,
    /// The agent stands still (SIGSTOP); it goes on at the end.
    AgentStands,
    /// The clock is so many seconds ahead, and nothing sets it right; right again at the end.
    Clock {
        /// Negative: it is behind.
        seconds: i64,
    },
    /// The machine is called that; as before at the end.
    Hostname(String),
    /// It has the address of that host beside its own; not any more at the end.
    AddressOf(String),
    /// The installer stands still once it has come to this stage; it goes on at the end.
    InstallerStands(HostStage),
    /// The installer is ended once it has come to this stage.
    InstallerEnds(HostStage),
    /// On the machines of the control plane bootkube is ended as often as it is started; it works at the end.
    BootkubeFails,
    /// On the machines of the control plane bootkube does not come to its end before that of the fault.
    BootkubeHangs,
    /// The cluster's API takes nobody's approval of the certificate of the host.
    NoCertificate,
    /// This operator of the cluster is degraded; it comes around at the end.
    OperatorDegraded(String),
}

impl InsideFault {
    /// Is it done to a cluster, through the machines of its control plane?
    pub const fn is_of_a_cluster(&self) -> bool {
        matches!(self, Self::BootkubeFails | Self::BootkubeHangs | Self::OperatorDegraded(_))
    }

    /// Is one machine of the control plane enough, because the cluster knows then?
    pub const fn is_told_to_the_cluster(&self) -> bool {
        matches!(self, Self::NoCertificate | Self::OperatorDegraded(_))
    }

    /// What was done, in words.
    const fn done(&self) -> &'static str {
        match self {
            Self::AgentRestarts => "its agent was started again",
            Self::AgentStands => "its agent stands still",
            Self::Clock { .. } => "its clock is wrong",
            Self::Hostname(_) => "it has another name",
            Self::AddressOf(_) => "it has the address of another host, too",
            Self::InstallerStands(_) => "its installer stands still",
            Self::InstallerEnds(_) => "its installer was ended",
            Self::BootkubeFails => "bootkube is ended whenever it starts",
            Self::BootkubeHangs => "bootkube does not come to its end",
            Self::NoCertificate => "its certificate is not approved",
            Self::OperatorDegraded(_) => "the operator is degraded",
        }
    }
}

impl MachineFault {
    /// Is it done to the machine itself (which has to be on for that), and not to what is around it?
    pub const fn is_of_the_machine(&self) -> bool {
        !matches!(
            self,
            MachineFault::GatewayCut
                | MachineFault::Unheard(_)
                | MachineFault::Loss { .. }
                | MachineFault::Delay { .. }
                | MachineFault::WrongName(_)
                | MachineFault::TakeAddress(_)
                | MachineFault::Closed(_)
                | MachineFault::Mute(_)
                | MachineFault::Inside(InsideFault::NoCertificate | InsideFault::OperatorDegraded(_))
        )
    }

    /// What was done, in words.
    pub const fn done(&self) -> &'static str {
        match self {
            MachineFault::PowerCut => "the power was cut",
            MachineFault::Reset => "the machine was reset",
            MachineFault::CableOut => "the cable was unplugged",
            MachineFault::GatewayCut => "the link to the gateway was cut",
            MachineFault::Unheard(Frames::Dhcp) => "its DHCP requests are lost",
            MachineFault::Unheard(_) => "its NTP requests are lost",
            MachineFault::Eject => "the medium was removed",
            MachineFault::DiskFails { .. } => "its disk fails",
            MachineFault::SlowDisk { .. } => "its disk writes slowly",
            MachineFault::Loss { frames: Frames::LongerThan(_), .. } => "long frames are lost",
            MachineFault::Loss { percent: 100, .. } => "the link was cut",
            MachineFault::Loss { .. } => "frames are lost",
            MachineFault::Delay { .. } => "frames are delayed",
            MachineFault::WrongName(WrongName { answer: None, .. }) => "DNS does not know the name",
            MachineFault::WrongName(_) => "DNS answers wrongly",
            MachineFault::TakeAddress(_) => "another machine has the address",
            MachineFault::Closed(_) => "those ports are blocked",
            MachineFault::Mute(_) => "what it asks the cluster is lost",
            MachineFault::Inside(inside) => inside.done(),
        }
    }
}

/// What that fault does.
///
/// # Errors
/// Why it cannot be done to machines.
pub fn machine_fault(fault: &Fault, scenario: &Scenario) -> Result<MachineFault, String> {
    let done = match &fault.injection {
        Injection::Host(injection) => host::on_machines(injection, scenario)?,
        Injection::Network(injection) => network::on_machines(injection, cluster_of(fault, scenario))?,
        Injection::ControlPlane(injection) => {
            control_plane::on_machines(injection, scenario, cluster_of(fault, scenario))?
        }
        Injection::Service(_) | Injection::Kube(_) => None,
    };
    done.ok_or_else(|| format!("only these can: {}", kinds().join(", ")))
}

/// Are some of the cluster's hosts machines, now or when they are bound to it?
pub fn has_machines(scenario: &Scenario, cluster: &str) -> bool {
    scenario.hosts_ever_of(cluster).any(Host::is_machine)
}

/// The cluster that is hit. Its machines must be in it from the beginning: before they are bound a fault of the cluster is none of
/// theirs.
fn cluster_of<'a>(fault: &Fault, scenario: &'a Scenario) -> Result<&'a Cluster, String> {
    let FaultTarget::Cluster(name) = &fault.target else { return Err("its target is not a cluster".to_owned()) };
    let of_cluster = scenario.hosts_of(Some(name)).any(|host| host.is_machine());
    match scenario.cluster(name) {
        Some(cluster) if of_cluster => Ok(cluster),
        _ => Err("its hosts come from the pool, and belong to no cluster when it begins".to_owned()),
    }
}

/// Words of the kinds that can be done to machines and what is between them.
fn kinds() -> Vec<&'static str> {
    let of_hosts = |target: &TargetForm| matches!(target, TargetForm::Hosts | TargetForm::Link | TargetForm::Cluster);
    let can = fault_rows().filter(|row| row.hosts == FaultHosts::Any && row.targets.iter().all(of_hosts));
    can.map(|row| row.word).collect()
}

/// What of a scenario with virtual machines cannot be done to them; `None` when everything can.
pub fn unfit(scenario: &Scenario) -> Option<String> {
    // The service and the way to it are the same whoever the hosts are.
    let outside = |fault: &Fault| match &fault.target {
        FaultTarget::Service | FaultTarget::Postgres | FaultTarget::Gateway | FaultTarget::Kube => true,
        FaultTarget::Cluster(name) => !has_machines(scenario, name),
        _ => false,
    };
    let mut faults = scenario.faults.iter().filter(|fault| !outside(fault));
    let undone = faults.find_map(|fault| Some((fault, machine_fault(fault, scenario).err()?)));
    if let Some((fault, why)) = undone {
        return Some(format!(
            "line {}: the fault {} ({}) cannot be injected into virtual machines yet: {why}; `--hosts sim` runs it",
            fault.line,
            fault.name,
            fault.word()
        ));
    }
    if let Some(why) = no_nmstate(scenario).or_else(|| no_vlan(scenario)).or_else(|| no_steps(scenario)) {
        return Some(why);
    }
    let arch = scenario.infra_env.cpu_architecture.as_str();
    (scenario.hosts.iter().any(|host| host.is_machine()) && arch != "x86_64")
        .then(|| format!("virtual machines are x86_64, and its infra-env is {arch}"))
}

/// What a machine's agent is told to do is between it and the service: an expectation of it would hold, or fail, whatever happens.
fn no_steps(scenario: &Scenario) -> Option<String> {
    let is_machine = |host: &Host| host.is_machine();
    let of_machines = |moment: &&Moment| match &moment.subject {
        Subject::Hosts(names) => {
            names.iter().any(|name| scenario.hosts.iter().any(|host| host.name == *name && is_machine(host)))
        }
        Subject::Role { cluster, .. } | Subject::Cluster(cluster) => has_machines(scenario, cluster),
        Subject::Run => scenario.hosts.iter().any(is_machine),
    };
    let of_steps = scenario.moments().filter(|moment| matches!(moment.seen, Seen::Step(_)));
    let moment = of_steps.into_iter().find(of_machines)?;
    Some(format!(
        "it looks for \"{}\", and nobody sees which steps the service gives to virtual machines; `--hosts sim` runs it",
        moment_words(moment)
    ))
}

/// The static networks that machines could not make of their image: without RHCOS there is no `nmstatectl` in the initrd.
fn no_nmstate(scenario: &Scenario) -> Option<String> {
    const FIRST: &str = "MIN_VERSION_FOR_NMSTATE_SERVICE";
    let line = scenario.infra_env.static_networks.first()?.line;
    let machine = scenario.hosts.iter().find(|host| host.is_machine())?;
    let version = machine.clusters().find_map(|name| scenario.cluster(name))?.openshift_version.as_str();
    let usual = Settings::default().min_version_for_nmstate_service;
    let first = scenario.service.settings.get(FIRST).unwrap_or(&usual);
    let in_initrd = scenario.infra_env.iso.is_none() && scenario.infra_env.image_type != ImageType::FullIso;
    let lacking = in_initrd && host_makes_connections(Some(version), first);
    lacking.then(|| {
        format!(
            "line {line}: hosts of OpenShift {version} make the connections of a static network themselves, with `nmstatectl`, \
             which the initrd of the lab's minimal ISO lacks; write `image_type: full-iso` or `openshift_version: \"4.16\"`, give \
             an RHCOS with `infra_env.iso`, or use `--hosts sim`"
        )
    })
}

/// Static networks with VLANs: the lab's network has none, so nobody would hear such a machine.
fn no_vlan(scenario: &Scenario) -> Option<String> {
    let is_vm = |name: &String| scenario.hosts.iter().any(|host| host.is_machine() && host.name == *name);
    let with_vlan = scenario.infra_env.static_networks.iter().find(|network| {
        network.hosts.iter().any(is_vm) && network.interfaces().iter().any(|interface| interface["type"] == "vlan")
    })?;
    Some(format!(
        "line {}: the network of the lab has no VLANs, so nothing would answer these machines; `--hosts sim` runs it",
        with_vlan.line
    ))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_model::disturbance::ClusterName;
    use vlab_scenario::{Catalogue, FaultRow, ParamDefault, ParamForm, SourceFile};

    use super::*;

    const HOSTS: &str = "cluster: {topology: compact, api_vips: [192.168.126.5], ingress_vips: [192.168.126.6]}\n\
                         infra_env: {image_type: full-iso}\n\
                         hosts: [{name: m, count: 3, kind: vm}]\n";

    fn scenario(fault: &str) -> Scenario {
        let api = if fault.contains("target: kube") { "kube" } else { "rest" };
        let text = format!("version: 1\nname: t\nneeds: [real-time]\n{HOSTS}faults:\n  - {fault}\napi: {api}\n");
        vlab_scenario::load(&SourceFile::new("t.yaml", text), &Catalogue::embedded()).unwrap_or_else(|e| panic!("{e}"))
    }

    /// A fault of that kind as a scenario declares it, with what it must say and nothing else.
    fn of_kind(row: &FaultRow) -> Scenario {
        let target = match row.targets[0] {
            TargetForm::Hosts => "m-0",
            TargetForm::Link => "{between: [m-0, m-1]}",
            TargetForm::Cluster => "{cluster: t}",
            TargetForm::Service => "service",
            TargetForm::Postgres => "postgres",
            TargetForm::Gateway => "gateway",
            TargetForm::Kube => "kube",
        };
        let value = |form: ParamForm| match form {
            ParamForm::Span => "5s".to_owned(),
            ParamForm::Number(least, _) => least.to_string(),
            ParamForm::Text => "x".to_owned(),
            ParamForm::Words(words) => words[0].to_owned(),
            ParamForm::Address => "192.0.2.1".to_owned(),
            ParamForm::Host => "m-1".to_owned(),
            ParamForm::Stage => "Installing".to_owned(),
            ParamForm::FinalizingStage => "Adding router ca".to_owned(),
            ParamForm::Operation => "v2GetCluster".to_owned(),
        };
        let needed = row.all_params().filter(|p| p.default == ParamDefault::Needed);
        let with: Vec<String> = needed.map(|p| format!("{}: {}", p.name, value(p.form))).collect();
        scenario(&format!(
            "{{name: it, at: 1m, target: {target}, inject: {}, with: {{{}}}}}",
            row.word,
            with.join(", ")
        ))
    }

    /// The table says of each kind whether machines can have it, and it is so.
    #[test]
    fn what_the_table_says_can_be_done_can_be_done() {
        let mut refused = 0;
        for row in fault_rows() {
            let why = unfit(&of_kind(row));
            assert_eq!(why.is_none(), row.hosts == FaultHosts::Any, "{}: {why:?}", row.word);
            let scenario = of_kind(row);
            let fault = &scenario.faults[0];
            let inside = matches!(machine_fault(fault, &scenario), Ok(MachineFault::Inside(_)));
            assert_eq!(inside, fault.injection.is_done_inside(), "{}", row.word);
            refused += usize::from(why.is_some());
        }
        assert!(refused > 5 && kinds().len() >= 22, "{refused} refused, {:?} can", kinds());
    }

    #[rstest]
    #[case("{at: 1m, target: m-0, inject: disk-fails}", MachineFault::DiskFails { percent: 50 })]
    #[case("{at: 1m, target: m-0, inject: disk-fails, with: {percent: 0}}", MachineFault::DiskFails { percent: 0 })]
    #[case("{at: 1m, target: m-0, inject: slow-disk}", MachineFault::SlowDisk { writes: 25 })]
    #[case("{at: 1m, target: m-0, inject: slow-disk, with: {fsync_ms: 300}}", MachineFault::SlowDisk { writes: 3 })]
    #[case("{at: 1m, target: m-0, inject: ntp-unreachable}", MachineFault::Unheard(Frames::Ntp))]
    #[case("{at: 1m, target: control-plane, inject: dns-missing, with: {name: apps}}",
        MachineFault::WrongName(WrongName { name: ClusterName::Apps, answer: None }))]
    #[case("{at: 1m, target: control-plane, inject: dns-wildcard}",
        MachineFault::WrongName(WrongName { name: ClusterName::Unknown, answer: Some([198, 51, 100, 66].into()) }))]
    #[case("{at: 1m, target: control-plane, inject: vip-taken, with: {vip: ingress}}",
        MachineFault::TakeAddress([192, 168, 126, 6].into()))]
    #[case("{at: 1m, target: control-plane, inject: ignition-unreachable}", MachineFault::Closed(&[22623, 22624]))]
    #[case("{at: 1m, target: control-plane, inject: quorum-lost}", MachineFault::Closed(&[2379, 2380]))]
    #[case("{at: 1m, target: m-1, inject: never-joins}", MachineFault::Mute(&[2379, 2380, 6443]))]
    #[case("{at: 1m, target: m-1, inject: clock-skew, with: {seconds: 30, direction: behind}}",
        MachineFault::Inside(InsideFault::Clock { seconds: -30 }))]
    #[case("{at: 1m, target: m-1, inject: duplicate-address, with: {of: m-0}}",
        MachineFault::Inside(InsideFault::AddressOf("m-0".into())))]
    #[case(
        "{at: 1m, target: m-1, inject: stuck-stage, with: {stage: Writing image to disk}}",
        MachineFault::Inside(InsideFault::InstallerStands(HostStage::WritingImageToDisk))
    )]
    #[case("{at: 1m, target: control-plane, inject: operator-degraded}",
        MachineFault::Inside(InsideFault::OperatorDegraded("console".into())))]
    #[case("{at: 1m, target: {between: [m-0, m-1]}, inject: packet-loss, with: {direction: one-way}}",
        MachineFault::Loss { frames: Frames::All, percent: 20, one_way: true })]
    #[case("{at: 1m, target: {between: [m-0, m-1]}, inject: mtu-black-hole}",
        MachineFault::Loss { frames: Frames::LongerThan(1400), percent: 100, one_way: false })]
    fn what_is_said_is_done(#[case] fault: &str, #[case] expected: MachineFault) {
        let fault = fault.replacen('{', "{name: it, ", 1);
        let scenario = scenario(&fault);
        assert_eq!(machine_fault(&scenario.faults[0], &scenario), Ok(expected));
    }

    #[test]
    fn a_single_node_reaches_itself() {
        let text = "version: 1\nname: t\ncluster: {topology: sno}\nhosts: [{name: m, kind: vm}]\nfaults:\n  \
                    - {name: it, at: 1m, target: TARGET, inject: KIND}\n";
        let why = |kind: &str| {
            let target = if kind == "never-joins" { "m" } else { "control-plane" };
            let source = SourceFile::new("t.yaml", text.replace("KIND", kind).replace("TARGET", target));
            let scenario = vlab_scenario::load(&source, &Catalogue::embedded()).unwrap_or_else(|e| panic!("{e}"));
            unfit(&scenario).unwrap_or_default()
        };
        for kind in ["api-unreachable", "ignition-unreachable", "etcd-stuck", "quorum-lost", "never-joins"] {
            assert!(why(kind).contains("a single node reaches itself"), "{}", why(kind));
        }
        assert_eq!(why("dns-missing"), "");
    }

    #[rstest]
    #[case("openshift_version: \"4.16\"", "", "minimal-iso", None)]
    #[case("openshift_version: \"4.18\"", "", "minimal-iso", Some("line 9: hosts of OpenShift 4.18 make"))]
    #[case("base_domain: lab.example", "", "minimal-iso", Some("with `nmstatectl`, which the initrd"))]
    #[case("base_domain: lab.example", "", "full-iso", None)]
    #[case("openshift_version: \"4.18\"", "settings: {MIN_VERSION_FOR_NMSTATE_SERVICE: \"4.19\"}", "minimal-iso", None)]
    fn static_networks_need_what_makes_them(
        #[case] version: &str,
        #[case] settings: &str,
        #[case] image: &str,
        #[case] why: Option<&str>,
    ) {
        let service = if settings.is_empty() { "kind: simulated" } else { settings };
        let text = format!(
            "version: 1\nname: t\ncluster: {{topology: sno, {version}}}\nservice: {{{service}}}\n\
             hosts: [{{name: m, kind: vm, addresses: {{first: 192.168.126.30}}}}]\n\
             infra_env:\n  image_type: {image}\n  static_network_config:\n    - network_yaml: |\n        \
             interfaces:\n        - {{name: eth0, type: ethernet, state: up}}\n      mac_interface_map:\n        \
             - {{nic: m-0/enp1s0, logical_nic_name: eth0}}\n"
        );
        let scenario = vlab_scenario::load(&SourceFile::new("t.yaml", text), &Catalogue::embedded());
        let refused = unfit(&scenario.unwrap_or_else(|e| panic!("{e}")));
        match why {
            Some(why) => assert!(refused.as_deref().is_some_and(|refused| refused.contains(why)), "{refused:?}"),
            None => assert_eq!(refused, None),
        }
    }

    #[rstest]
    #[case("dummy", None)]
    #[case("vlan", Some("line 9: the network of the lab has no VLANs"))]
    fn static_networks_with_vlans_are_for_simulated_hosts(#[case] kind: &str, #[case] why: Option<&str>) {
        let text = format!(
            "version: 1\nname: t\ncluster: {{topology: sno, openshift_version: \"4.16\"}}\nservice: {{kind: simulated}}\n\
             hosts: [{{name: m, kind: vm, addresses: {{first: 192.168.126.30}}}}]\n\
             infra_env:\n  image_type: full-iso\n  static_network_config:\n    - network_yaml: |\n        \
             interfaces:\n        - {{name: eth0, type: ethernet, state: up}}\n        - {{name: eth0.4, type: {kind}, state: up}}\n      \
             mac_interface_map:\n        - {{nic: m-0/enp1s0, logical_nic_name: eth0}}\n"
        );
        let scenario = vlab_scenario::load(&SourceFile::new("t.yaml", text), &Catalogue::embedded());
        let refused = unfit(&scenario.unwrap_or_else(|e| panic!("{e}")));
        match why {
            Some(why) => assert!(refused.as_deref().is_some_and(|refused| refused.starts_with(why)), "{refused:?}"),
            None => assert_eq!(refused, None),
        }
    }

    #[test]
    fn only_a_full_iso_is_missed_when_it_is_taken_out() {
        let text = "version: 1\nname: t\nneeds: [real-time]\ncluster: {topology: sno}\nhosts: [{name: m, kind: vm}]\n\
                    faults:\n  - {name: it, at: 1m, target: m-0, inject: media-lost}\n";
        let with = |more: &str| {
            let source = SourceFile::new("t.yaml", format!("{text}{more}"));
            unfit(&vlab_scenario::load(&source, &Catalogue::embedded()).unwrap_or_else(|e| panic!("{e}")))
        };
        let refused = with("").unwrap();
        assert!(refused.starts_with("line 7: ") && refused.contains("image_type: full-iso"), "{refused}");
        assert_eq!(with("infra_env: {image_type: full-iso}\n"), None);
    }

    /// The inside of a simulated cluster beside machines is the simulated one's affair.
    #[test]
    fn a_cluster_is_of_machines_when_one_of_its_hosts_is_or_will_be() {
        let text = "version: 1\nname: t\nclusters: [{name: a, topology: sno}, {name: b, topology: sno}]\n\
                    hosts: [{name: m, cluster: a, kind: vm}, {name: s, cluster: b}]\n";
        let source = SourceFile::new("t.yaml", text.to_owned());
        let scenario = vlab_scenario::load(&source, &Catalogue::embedded()).unwrap_or_else(|e| panic!("{e}"));
        assert!(has_machines(&scenario, "a") && !has_machines(&scenario, "b"));
    }

    #[rstest]
    #[case(
        "slow-disk, with: {fsync_ms: 1500}",
        "can be slowed down to 1000 ms per write, not to 1500 ms; `--hosts sim` runs it"
    )]
    #[case("wrong-boot-order", "write `vm: {boot_order: cd-first}`")]
    #[case("logs-lost", "crash, reboot, agent-restart, silent-agent, disconnect, clock-skew, ")]
    #[case("wrong-hostname, with: {name: a b}", "a machine can be called by letters, digits, `-`, `.` and `_`")]
    fn what_cannot_be_done_is_refused_with_its_line(#[case] kind: &str, #[case] why: &str) {
        let refused = unfit(&scenario(&format!("{{name: it, at: 1m, target: m-0, inject: {kind}}}"))).unwrap();
        assert!(refused.starts_with("line 8: the fault it (") && refused.contains(why), "{refused}");
    }

    /// Which steps a machine gets is not seen, so nothing may be said of them.
    #[test]
    fn steps_of_machines_are_refused() {
        let with = |rest: &str| {
            let text = format!("version: 1\nname: t\n{HOSTS}expect: [{{{rest}}}]\n");
            unfit(&vlab_scenario::load(&SourceFile::new("t.yaml", text), &Catalogue::embedded()).unwrap())
        };
        let refused = with("never: {host: m-0, step: logs-gather}").unwrap_or_default();
        assert!(refused.contains("m-0: step logs-gather") && refused.contains("`--hosts sim`"), "{refused}");
        assert!(with("eventually: {role: bootstrap, step: install}").is_some());
        assert_eq!(with("never: {host: m-0, status: error}"), None);
    }
}
