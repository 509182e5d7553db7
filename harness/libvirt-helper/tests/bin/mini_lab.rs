//! A lab in miniature for the tests of its clean-up, and for what must happen inside of its network:
//!
//! * `mini-lab run <registry> <folder> <machines>`: network and machines, under a supervisor; says `ready` and waits;
//! * `mini-lab lease <interface> <mac>`: asks for an address by DHCP on an interface of the network that it is started in;
//! * `mini-lab ask <server> <name>`: asks a DNS server for the IPv4 addresses of a name;
//! * `mini-lab frame <interface> <interface> <mac>`: sends a frame to that address from the one and says after how many
//!   milliseconds it came out of the other.

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike as _};
use uuid::Uuid;
use vlab_lab::ledger::{Ledger, Resource};
use vlab_lab::machines::tiny::{Then, boot_sector};
use vlab_lab::machines::{Accel, Bus, DiskSpec, HELPER, MachineSpec, Machines, MachinesOptions, NicSpec, Plug};
use vlab_lab::network::{Network, NetworkHost, NetworkOptions, NetworkSpec, namespace};
use vlab_lab::supervisor::{self, Supervisor};

type Fault = Box<dyn Error>;

fn main() -> Result<ExitCode, Fault> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    match words[..] {
        [verb, ..] if verb == supervisor::VERB => return Ok(supervisor::supervise_main(&args[1..], |_, _| {})),
        [verb, ..] if verb == namespace::VERB => return Ok(namespace::in_namespace_main(&args[1..])),
        ["run", registry, folder, machines] => {
            let run = run(registry.into(), folder.into(), machines.parse()?);
            tokio::runtime::Runtime::new()?.block_on(run)?;
        }
        ["lease", interface, mac] => println!("{}", lease(interface, mac)?),
        ["ask", server, name] => println!("{:?}", ask(server.parse()?, name)?),
        ["frame", from, to, mac] => println!("{}", frame(from, to, mac)?),
        _ => return Err("run <registry> <folder> <machines> | lease <interface> <mac> | ask <server> <name> | frame <interface> <interface> <mac>".into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// A packet socket on that interface, which gives up after five seconds.
fn packets(interface: &str) -> Result<OwnedFd, Fault> {
    let of_interface = |found: nix::ifaddrs::InterfaceAddress| {
        let address = *found.address.as_ref()?.as_link_addr()?;
        (found.interface_name == interface).then_some(address)
    };
    let address: LinkAddr = nix::ifaddrs::getifaddrs()?.find_map(of_interface).ok_or("no such interface")?;
    let fd = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
    bind(fd.as_raw_fd(), &address)?;
    setsockopt(&fd, ReceiveTimeout, &TimeVal::seconds(5))?;
    Ok(fd)
}

fn frame(from: &str, to: &str, mac: &str) -> Result<u128, Fault> {
    let (from, to) = (packets(from)?, packets(to)?);
    let mut sent: Vec<u8> = mac.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>()?;
    sent.extend([0x52, 0x54, 0, 0, 0, 0x77]);
    // The first Ethernet type for experiments (IEEE 802), and what tells the frame from others.
    sent.extend([0x88, 0xb5]);
    sent.extend(u128::from(std::process::id()).to_be_bytes());
    sent.resize(60, 0);
    let begun = Instant::now();
    send(from.as_raw_fd(), &sent, MsgFlags::empty())?;
    let mut received = [0; 2048];
    while recv(to.as_raw_fd(), &mut received, MsgFlags::empty())? < sent.len() || received[..sent.len()] != sent {}
    Ok(begun.elapsed().as_millis())
}

async fn run(registry: PathBuf, folder: PathBuf, count: usize) -> Result<(), Fault> {
    let run = format!("mini-{}", std::process::id());
    let ledger = Arc::new(Ledger::create(&registry, &run)?);
    let supervisor = Supervisor::spawn(&ledger, &folder.join("supervisor.log"))?;
    let scratch = folder.join("net");
    ledger.record(Resource::Directory { path: scratch.clone() })?;
    fs::create_dir(&scratch)?;

    let names: Vec<String> = (0..count).map(|number| format!("m{number}")).collect();
    let mac = |number: usize| format!("52:54:00:00:00:{number:02x}");
    let host = |(number, name): (usize, &String)| NetworkHost {
        name: name.clone(),
        domain: None,
        segment: 0,
        mac: mac(number),
        more_macs: vec![],
        addresses: vec![],
        dhcp: true,
    };
    let hosts = names.iter().enumerate().map(host).collect();
    let spec = NetworkSpec::for_cluster("mini", "lab.example", &["192.168.126.0/24".parse()?], &[], &[], hosts);
    let mut options = NetworkOptions::new(&run, &scratch);
    options.ledger = Some(Arc::clone(&ledger));
    let network = Network::start(spec, options).await?;

    // A service of this network; opening it is done differently in the two forms of a namespace.
    let _service = network.listen("192.168.126.1:8090".parse()?)?;

    let mut options = MachinesOptions::new(&ledger, Accel::Tcg, &folder.join("consoles"));
    options.namespace = Some(Arc::clone(network.namespace()));
    options.scratch.clone_from(&folder);
    options.helper = Some(std::env::current_exe()?.with_file_name(HELPER));
    let machines = Machines::start(options).await?;
    let image = folder.join("net/tiny.img");
    fs::write(&image, boot_sector("mini-lab: up\r\n", Then::Stay))?;
    for (number, name) in names.iter().enumerate() {
        let uuid = Uuid::from_u128(u128::from(std::process::id()) << 64 | number as u128);
        let machine = machines.create(machine(name, uuid, &image, &mac(number), network.tap(name))).await?;
        println!("machine {}", machine.process().map_or(0, |process| process.pid));
    }
    println!("supervisor {}", supervisor.pid());
    println!("namespace {}", network.namespace().name());
    println!("dnsmasq {}", network.dnsmasq().pid());
    println!("helper {}", machines.helper().pid());
    println!("ready");
    // The tests end us; closing our stdin is the orderly way.
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    machines.stop().await?;
    network.stop().await?;
    fs::remove_dir_all(&scratch)?;
    for (token, resource) in ledger.open_entries() {
        if matches!(resource, Resource::Directory { .. }) {
            ledger.release(token)?;
        }
    }
    println!("leaked {}", ledger.close()?.len());
    supervisor.dismiss()?;
    Ok(())
}

fn machine(name: &str, uuid: Uuid, image: &Path, mac: &str, tap: Option<String>) -> MachineSpec {
    let new = DiskSpec::new("vda", Bus::Virtio, 1 << 30, &format!("LABD{name}"));
    let disk = DiskSpec { base: Some(image.to_path_buf()), ..new };
    let plug = tap.map_or(Plug::User, Plug::Tap);
    MachineSpec {
        disks: vec![disk],
        nics: vec![NicSpec { mac: mac.to_owned(), plug }],
        ..MachineSpec::new(name, uuid, 32)
    }
}

/// DISCOVER, OFFER, REQUEST, ACK (RFC 2131), as a machine does it: without an address of its own.
fn lease(interface: &str, mac: &str) -> Result<String, Fault> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 68))?;
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::BindToDevice, &OsString::from(interface))?;
    socket.set_broadcast(true)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mac: Vec<u8> = mac.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>()?;
    let offer = exchange(&socket, &mac, 1, &[])?;
    let server = option(&offer, 54).ok_or("an offer without a server")?;
    let mut wanted = vec![50, 4];
    wanted.extend(&offer[16..20]);
    wanted.extend([54, 4]);
    wanted.extend(server);
    let ack = exchange(&socket, &mac, 3, &wanted)?;
    let address = |bytes: &[u8]| <[u8; 4]>::try_from(bytes).map(Ipv4Addr::from).map(|address| address.to_string());
    let optional = |code: u8| option(&ack, code).map_or(Ok("none".to_owned()), address);
    let name = option(&ack, 12).map(String::from_utf8_lossy).unwrap_or_default();
    Ok(format!(
        "address {} router {} dns {} ntp {} name {name}",
        address(&ack[16..20])?,
        optional(3)?,
        optional(6)?,
        optional(42)?
    ))
}

fn exchange(socket: &UdpSocket, mac: &[u8], kind: u8, options: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut packet = vec![0; 240];
    // Request, Ethernet, addresses of 6 bytes; transaction number; the broadcast flag, as nobody could reach us otherwise.
    packet[..4].copy_from_slice(&[1, 1, 6, 0]);
    packet[4..8].copy_from_slice(&[0x76, 0x6c, 0x61, 0x62]);
    packet[10] = 0x80;
    packet[28..28 + mac.len()].copy_from_slice(mac);
    packet[236..240].copy_from_slice(&[99, 130, 83, 99]);
    packet.extend([53, 1, kind]);
    packet.extend(options);
    // Wanted: mask, router, DNS, name, NTP.
    packet.extend([55, 5, 1, 3, 6, 12, 42, 255]);
    socket.send_to(&packet, (Ipv4Addr::BROADCAST, 67))?;
    let mut answer = vec![0; 2048];
    loop {
        let count = socket.recv(&mut answer)?;
        if count > 240 && answer[0] == 2 && answer[4..8] == packet[4..8] {
            answer.truncate(count);
            return match option(&answer, 53) {
                Some([2 | 5]) => Ok(answer),
                other => Err(format!("DHCP says {other:?}").into()),
            };
        }
    }
}

fn option(packet: &[u8], code: u8) -> Option<&[u8]> {
    let mut rest = packet.get(240..)?;
    while let [found, length, ..] = *rest {
        match found {
            255 => return None,
            0 => rest = &rest[1..],
            _ => {
                let value = rest.get(2..2 + usize::from(length))?;
                if found == code {
                    return Some(value);
                }
                rest = &rest[2 + usize::from(length)..];
            }
        }
    }
    None
}

/// One question for A records (RFC 1035).
fn ask(server: SocketAddr, name: &str) -> Result<Vec<Ipv4Addr>, Fault> {
    let mut question = vec![0x76, 0x6c, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        question.push(u8::try_from(label.len())?);
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.send_to(&question, server)?;
    let mut answer = [0; 1500];
    let count = socket.recv(&mut answer)?;
    let answer = &answer[..count];
    let records = usize::from(*answer.get(7).ok_or("a short answer")?);
    let mut rest = answer.get(question.len()..).ok_or("a short answer")?;
    let mut addresses = Vec::new();
    for _ in 0..records {
        // The name is a pointer back to the question: 2 bytes; type, class, time to live: 8; length: 2.
        let (head, tail) = rest.split_at_checked(12).ok_or("a short record")?;
        let length = usize::from(u16::from_be_bytes([head[10], head[11]]));
        let (data, after) = tail.split_at_checked(length).ok_or("a short record")?;
        if head[2..4] == [0, 1] {
            addresses.push(<[u8; 4]>::try_from(data).map(Ipv4Addr::from)?);
        }
        rest = after;
    }
    Ok(addresses)
}
