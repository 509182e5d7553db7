//! What faults do inside of a machine: a script for the shell of who has logged in, for the beginning and for the end of each. They
//! use what every such system has (systemd, `ip`, `date`), so that it makes no difference whether the programs in the machine are
//! the lab's or the product's, and say what does not work on stderr. An end without a beginning does nothing: the fault may have been
//! over before anybody got in, or the machine may have rebooted since.

use std::time::Duration;

use ipnet::IpNet;
use vlab_drive::fault::machine::InsideFault;
use vlab_model::disturbance::{BOOTKUBE_HANGS as HANGS, CSR_NOT_APPROVED, OPERATOR_DEGRADED};

/// How long a script may take, with the way in. Emulated machines take seconds for the keys alone.
pub(super) const BUDGET: Duration = Duration::from_secs(60);

/// The file with what the scripts of a machine said, in the run's folder.
pub(super) fn log_file(machine: &str) -> String {
    format!("{machine}.faults.log")
}

/// Where bootkube's unit is changed, for as long as the machine runs.
const DROP_IN: &str = "/run/systemd/system/bootkube.service.d/90-vlab-fault.conf";
/// Where the name and the time services of before are kept.
const BEFORE: &str = "/run/vlab-fault";
/// Which machine is the bootstrap is the service's choice: what is done for it is done on each that may become it, and has an effect on
/// the one that has bootkube.
const IS_BOOTSTRAP: &str = "test -n \"$(systemctl show --property=FragmentPath --value bootkube)\" || \
     { echo 'bootkube is not on this machine (yet)' >&2; exit 1; }";
/// Units that set a clock right.
const CLOCKS: &str = "chronyd chrony systemd-timesyncd";

/// The script. `name` is the machine's, `address` that of the other host where one is meant.
pub(super) fn script(fault: &InsideFault, name: &str, address: Option<IpNet>, undo: bool) -> String {
    let address = address.map(|address| address.to_string()).unwrap_or_default();
    let body = match (fault, undo) {
        (InsideFault::AgentRestarts, false) => "sudo systemctl restart agent".to_owned(),
        (InsideFault::AgentStands, false) => "sudo systemctl kill --kill-who=main --signal=STOP agent".to_owned(),
        (InsideFault::AgentStands, true) => "sudo systemctl kill --kill-who=main --signal=CONT agent".to_owned(),
        (InsideFault::Clock { seconds }, false) => format!(
            "sudo mkdir -p {BEFORE}\n\
             sudo systemctl stop {CLOCKS} 2>/dev/null || true\n\
             sudo date --set=\"@$(($(date +%s) + {seconds}))\" >/dev/null\n\
             sudo touch {BEFORE}/clock\n\
             sudo hwclock --systohc 2>/dev/null || true"
        ),
        (InsideFault::Clock { seconds }, true) => format!(
            "test -e {BEFORE}/clock || exit 0\n\
             sudo rm {BEFORE}/clock\n\
             sudo date --set=\"@$(($(date +%s) - {seconds}))\" >/dev/null\n\
             sudo hwclock --systohc 2>/dev/null || true\n\
             sudo systemctl start chronyd 2>/dev/null || sudo systemctl start chrony 2>/dev/null || true"
        ),
        (InsideFault::Hostname(called), false) => format!(
            "sudo mkdir -p {BEFORE}\n\
             test -e {BEFORE}/hostname || hostname | sudo tee {BEFORE}/hostname >/dev/null\n\
             echo {called} | sudo tee /proc/sys/kernel/hostname >/dev/null"
        ),
        (InsideFault::Hostname(_), true) => {
            format!(
                "test -e {BEFORE}/hostname || exit 0\n\
                 cat {BEFORE}/hostname | sudo tee /proc/sys/kernel/hostname >/dev/null"
            )
        }
        (InsideFault::AddressOf(_), undo) => {
            let verb = if undo { "del" } else { "add" };
            let there = if undo {
                format!("ip -oneline address show | grep -q ' {address} ' || exit 0\n")
            } else {
                String::new()
            };
            format!(
                "{there}device=$(ip -oneline route show default | sed -n 's/.* dev \\([^ ]*\\).*/\\1/p' | head -n 1)\n\
                 sudo ip address {verb} {address} dev \"$device\""
            )
        }
        (InsideFault::InstallerStands(_), false) => installer("STOP"),
        (InsideFault::InstallerStands(_), true) => installer("CONT"),
        (InsideFault::InstallerEnds(_), false) => installer("HUP"),
        (InsideFault::BootkubeFails, false) => format!(
            "sudo mkdir -p $(dirname {DROP_IN})\n\
             printf '[Service]\\nExecStart=\\nExecStart=/bin/sh -c \"sleep 1; exit 1\"\\n' | sudo tee {DROP_IN} >/dev/null\n\
             sudo systemctl daemon-reload\n\
             {IS_BOOTSTRAP}\n\
             sudo systemctl kill --signal=KILL bootkube 2>/dev/null || true"
        ),
        (InsideFault::BootkubeFails, true) => format!(
            "test -e {DROP_IN} || exit 0\n\
             sudo rm {DROP_IN}\n\
             sudo systemctl daemon-reload\n\
             if systemctl is-enabled --quiet bootkube 2>/dev/null; then sudo systemctl --no-block restart bootkube; fi"
        ),
        (InsideFault::BootkubeHangs, false) => {
            format!("sudo mkdir -p $(dirname {HANGS})\nsudo touch {HANGS}\n{IS_BOOTSTRAP}")
        }
        (InsideFault::BootkubeHangs, true) => format!("sudo rm -f {HANGS}"),
        (InsideFault::NoCertificate, undo) => in_cluster(CSR_NOT_APPROVED, name, undo),
        (InsideFault::OperatorDegraded(operator), undo) => in_cluster(OPERATOR_DEGRADED, operator, undo),
        // What was ended and started again needs no help.
        (InsideFault::AgentRestarts | InsideFault::InstallerEnds(_), true) => "true".to_owned(),
    };
    format!("set -eu\n{body}\n")
}

/// A signal for the installer: its container, as the service names it.
fn installer(signal: &str) -> String {
    format!("sudo podman kill --signal={signal} assisted-installer >/dev/null")
}

fn in_cluster(what: &str, of: &str, undo: bool) -> String {
    let end = if undo { " --end" } else { "" };
    format!("sudo /usr/local/bin/vlab-node fault {what} {of}{end}")
}

#[cfg(test)]
mod tests {
    use vlab_api::types::HostStage;

    use super::*;

    fn all() -> Vec<InsideFault> {
        let stage = HostStage::WritingImageToDisk;
        vec![
            InsideFault::AgentRestarts,
            InsideFault::AgentStands,
            InsideFault::Clock { seconds: -90 },
            InsideFault::Hostname("localhost".into()),
            InsideFault::AddressOf("m-1".into()),
            InsideFault::InstallerStands(stage),
            InsideFault::InstallerEnds(stage),
            InsideFault::BootkubeFails,
            InsideFault::BootkubeHangs,
            InsideFault::NoCertificate,
            InsideFault::OperatorDegraded("console".into()),
        ]
    }

    #[test]
    fn every_fault_has_its_scripts() {
        let address = Some("192.168.126.11/24".parse().unwrap());
        let all = all();
        let scripts = all.iter().flat_map(|fault| {
            [false, true].map(|undo| {
                let what = if undo { "end" } else { "begin" };
                format!("# {fault:?}: {what}\n{}", script(fault, "m-0", address, undo))
            })
        });
        insta::assert_snapshot!(scripts.collect::<Vec<_>>().join("\n"));
    }

    /// What a shell cannot read would fail in a machine only, minutes later.
    #[test]
    fn a_shell_can_read_them() {
        for fault in all() {
            for undo in [false, true] {
                let text = script(&fault, "m-0", None, undo);
                let read = std::process::Command::new("sh").args(["-n", "-c", &text]).output().unwrap();
                assert!(read.status.success(), "{fault:?}: {}", String::from_utf8_lossy(&read.stderr));
            }
        }
    }
}
