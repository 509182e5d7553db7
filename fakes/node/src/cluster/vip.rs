//! Virtual addresses: configurations of the real keepalived and haproxy. Where the programs are not there, that is said, and the
//! cluster goes on without virtual addresses.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::machine::NodeConfig;
use crate::say;

/// A virtual address: name, the address, the command that tells whether this machine may hold it, and our weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vip {
    /// `api` or `ingress`.
    pub name: &'static str,
    /// The virtual address.
    pub address: IpAddr,
    /// Whoever has more holds it.
    pub priority: u8,
}

/// Where this machine asks whether its own API lives.
/// Each answer takes a TLS handshake, and those of all masters together must leave emulated processors time for etcd.
const CHECK: &str = "/usr/local/bin/vlab-node alive";

/// keepalived's configuration for one machine. Its advertisements are multicast: nobody knows all the others from the start.
pub fn keepalived(interface: &str, own: IpAddr, vips: &[Vip]) -> String {
    let mut text = String::from("global_defs {\n    enable_script_security\n    script_user root\n}\n");
    let _ = writeln!(
        text,
        "vrrp_script alive {{\n    script \"{CHECK}\"\n    interval 10\n    timeout 30\n    fall 2\n    rise 1\n}}"
    );
    for (at, vip) in (51u8..).zip(vips.iter().filter(|v| v.address.is_ipv4() == own.is_ipv4())) {
        let length = if vip.address.is_ipv4() { 32 } else { 128 };
        let _ = writeln!(text, "vrrp_instance {}_{at} {{", vip.name);
        let _ = writeln!(
            text,
            "    state BACKUP\n    interface {interface}\n    virtual_router_id {at}\n    priority {}",
            vip.priority
        );
        let _ = writeln!(text, "    advert_int 1\n    virtual_ipaddress {{\n        {}/{length}\n    }}", vip.address);
        text.push_str("    track_script {\n        alive\n    }\n}\n");
    }
    text
}

/// keepalived for the virtual addresses of a cluster on this machine, started. `None` where there are none, or no keepalived.
///
/// # Errors
/// When no interface has this machine's address, or the program does not start.
pub fn hold(config: &NodeConfig, own: IpAddr, vips: &[Vip]) -> io::Result<Option<Child>> {
    if vips.is_empty() {
        return Ok(None);
    }
    let links = crate::net::link::links()?;
    let link = links.iter().find(|l| l.nets.iter().any(|n| n.addr() == own));
    let link = link.ok_or_else(|| io::Error::other(format!("no interface has the address {own}")))?;
    let file = Path::new("/etc/keepalived/keepalived.conf");
    start(config, "keepalived", file, &keepalived(&link.name, own, vips), &["-n", "-l", "-f"])
}

/// The virtual addresses of a cluster, with this machine's weight.
pub fn of(api: &[IpAddr], ingress: &[IpAddr], priority: u8) -> Vec<Vip> {
    let all = |name: &'static str, addresses: &[IpAddr]| -> Vec<Vip> {
        addresses.iter().map(|a| Vip { name, address: *a, priority }).collect()
    };
    [all("api", api), all("ingress", ingress)].concat()
}

/// Asks a program to end and waits for it: keepalived takes its addresses off the interface then. One that does not is killed.
pub fn end(child: &mut Child) {
    use nix::sys::signal::{Signal, kill};
    if let Ok(pid) = i32::try_from(child.id()) {
        let _ = kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM);
    }
    for _ in 0..50 {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// haproxy's configuration: the API on a port of its own, behind it all masters that live.
pub fn haproxy(masters: &[IpAddr]) -> String {
    let mut text = String::from(
        "global\n    maxconn 2000\ndefaults\n    mode tcp\n    timeout connect 5s\n    timeout client 5m\n    timeout server 5m\n\
         frontend api\n    bind :::9445 v4v6\n    default_backend masters\n\
         backend masters\n    option httpchk GET /readyz HTTP/1.0\n    balance roundrobin\n",
    );
    for (at, master) in masters.iter().enumerate() {
        let host = if master.is_ipv6() { format!("[{master}]") } else { master.to_string() };
        let _ = writeln!(
            text,
            "    server master-{at} {host}:6443 weight 1 verify none check check-ssl inter 15s fall 2 rise 1"
        );
    }
    text
}

/// Starts a program with a configuration file in the foreground. `None`, and a word about it, where there is no such program.
///
/// # Errors
/// When the file cannot be written, or the program is there and does not start.
pub fn start(config: &NodeConfig, name: &str, file: &Path, text: &str, args: &[&str]) -> io::Result<Option<Child>> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(file, text)?;
    let started = Command::new(config.program(name)).args(args).arg(file).stdin(Stdio::null()).spawn();
    match started {
        Ok(child) => Ok(Some(child)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            say::note("node", &format!("{name} is not on this machine: it has no part in virtual addresses"));
            Ok(None)
        }
        Err(e) => Err(io::Error::new(e.kind(), format!("{name}: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations() {
        let ip = |t: &str| t.parse().unwrap();
        let vips = [
            Vip { name: "api", address: ip("192.0.2.100"), priority: 60 },
            Vip { name: "api", address: ip("fd00::100"), priority: 60 },
            Vip { name: "ingress", address: ip("192.0.2.101"), priority: 40 },
        ];
        let masters = [ip("192.0.2.1"), ip("192.0.2.2"), ip("fd00::3")];
        insta::assert_snapshot!("keepalived", keepalived("eth0", masters[0], &vips));
        insta::assert_snapshot!("haproxy", haproxy(&masters));
    }
}
