//! What each kind of fault does to a virtual machine and to its network, and what cannot be done to one yet.

use vlab_scenario::{ActionKind, Fault, FaultKind, FaultTarget, HostKind, ParamValue, Scenario};

/// What a kind does to each machine that it hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// The plug is pulled; put in again at the end.
    PowerCut,
    /// The reset button.
    Reset,
    /// The cable is out, as the guest sees it; in again at the end.
    CableOut,
    /// Nothing passes between the machine and the gateway (DHCP, DNS, the service); passes again at the end.
    GatewayCut,
    /// The medium is taken out of the CD drive.
    Eject,
    /// So many of a hundred frames between two machines are lost, in one direction only or in both; none any more at the end.
    Loss {
        /// Of a hundred.
        percent: u8,
        /// From the first to the second only.
        one_way: bool,
    },
}

impl Deed {
    /// What was done, in words.
    pub const fn done(self) -> &'static str {
        match self {
            Deed::PowerCut => "the power was cut",
            Deed::Reset => "the machine was reset",
            Deed::CableOut => "the cable was pulled",
            Deed::GatewayCut => "the way to the gateway was cut",
            Deed::Eject => "the medium was taken out",
            Deed::Loss { percent: 100, .. } => "the way was cut",
            Deed::Loss { .. } => "frames are lost",
        }
    }
}

/// What that fault does; `None` when it cannot be done to machines.
pub fn deed(fault: &Fault) -> Option<Deed> {
    let number = |name: &str| match fault.with.get(name) {
        Some(ParamValue::Number(n)) => u8::try_from(*n).unwrap_or(100),
        _ => 100,
    };
    let one_way = matches!(fault.with.get("direction"), Some(ParamValue::Text(text)) if text == "one-way");
    Some(match fault.kind {
        FaultKind::Crash => Deed::PowerCut,
        FaultKind::Reboot => Deed::Reset,
        FaultKind::UplinkCut => Deed::CableOut,
        FaultKind::Disconnect => Deed::GatewayCut,
        FaultKind::MediaLost => Deed::Eject,
        FaultKind::Partition => Deed::Loss { percent: 100, one_way },
        FaultKind::PacketLoss => Deed::Loss { percent: number("percent"), one_way },
        _ => return None,
    })
}

/// What of a scenario with virtual machines cannot be done to them; `None` when everything can.
pub fn unfit(scenario: &Scenario) -> Option<String> {
    const KINDS: &str = "crash, reboot, uplink-cut, disconnect, media-lost, partition and packet-loss can";
    let of_machines = |fault: &&Fault| !matches!(fault.target, FaultTarget::Service | FaultTarget::Postgres);
    let undone = scenario.faults.iter().filter(of_machines).find(|fault| deed(fault).is_none());
    if let Some(fault) = undone {
        let hint = match fault.kind {
            FaultKind::WrongBootOrder => "; write `vm: {boot_order: cd-first}` in the group of hosts instead",
            _ => "",
        };
        return Some(format!(
            "line {}: the fault {} ({}) cannot be done to virtual machines yet: {KINDS}{hint}; `--hosts sim` runs it",
            fault.line, fault.name, fault.kind
        ));
    }
    if scenario.actions.iter().any(|action| action.kind == ActionKind::BootDiscovery) {
        let why = "its action `boot-discovery` cannot be done to virtual machines yet; `--hosts sim` runs it";
        return Some(why.to_owned());
    }
    let arch = scenario.infra_env.cpu_architecture.as_str();
    (scenario.hosts.iter().any(|host| host.kind == HostKind::Vm) && arch != "x86_64")
        .then(|| format!("virtual machines are x86_64, and its infra-env is {arch}"))
}
