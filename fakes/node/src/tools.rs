//! Programs that the product's own ones call, and that a lab machine is without. Those that lie in the image of the real agent
//! beside it, and that Debian has only with much around them, are here: `fio`, `nmap`, `file`. What the real installer and the
//! real controller call has modules of its own. They do what they are asked for and no more: everything else is refused with the
//! reason.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv4Net};
use serde_json::{Value, json};

use crate::net::link::{self, Link, Mac};
use crate::{bootstrap, image_writer, logs_sender, oc, shutdown};

/// Where these programs lie: last in the search path of the agent that a run gives a machine.
pub const FOLDER: &str = "/usr/lib/vlab/tools";

/// How long is listened for answers to a question about addresses.
const PATIENCE: Duration = Duration::from_millis(900);
/// What `fio` writes takes no longer than this; on an emulated processor the whole would.
const WRITING: Duration = Duration::from_secs(10);

/// What such a program does: what it prints, or why it cannot.
type Tool = fn(&[String]) -> Result<String, String>;

/// The programs by name.
const TOOLS: &[(&str, Tool)] = &[
    ("fio", fio),
    ("nmap", nmap),
    ("file", file),
    ("coreos-installer", image_writer::coreos_installer),
    ("logs_sender", logs_sender::logs_sender),
    ("machine-config-daemon", bootstrap::machine_config_daemon),
    ("oc", oc::oc),
    ("shutdown", shutdown::shutdown),
];

/// Is that the name of such a program?
pub fn is_one(name: &str) -> bool {
    TOOLS.iter().any(|(tool, _)| *tool == name)
}

/// Runs one of the programs: what it prints.
///
/// # Errors
/// What was asked for is not known, or cannot be done.
pub fn run(name: &str, words: &[String]) -> Result<String, String> {
    match TOOLS.iter().find(|(tool, _)| *tool == name) {
        Some((_, tool)) => tool(words),
        None => Err(format!("{name} is not one of the lab's tools")),
    }
}

/// Options of a command line, without their dashes, and the words that are none. `valued` names options whose value may be the next
/// word.
pub(crate) fn options<'a>(words: &'a [String], valued: &[&str]) -> (BTreeMap<&'a str, &'a str>, Vec<&'a str>) {
    let (mut named, mut plain) = (BTreeMap::new(), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        // A dash alone is a file's name: standard output.
        if word == "-" || !word.starts_with('-') {
            plain.push(word.as_str());
            continue;
        }
        let option = word.trim_start_matches('-');
        match option.split_once('=') {
            Some((name, value)) => named.insert(name, value),
            None if valued.contains(&option) => named.insert(option, words.next().map_or("", String::as_str)),
            None => named.insert(option, ""),
        };
    }
    (named, plain)
}

// --- fio -------------------------------------------------------------------------------------------------------------------

/// Bytes in a size as fio writes it: `22m`, `4k`, `2300`.
fn size(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Writes one block after the other, each followed by fdatasync, over what is there: as fio does.
fn fio(words: &[String]) -> Result<String, String> {
    let known = ["filename", "name", "rw", "ioengine", "size", "bs", "fdatasync", "output-format"];
    let (options, more) = options(words, &known);
    if let Some(other) = more.first().or_else(|| options.keys().find(|name| !known.contains(*name))) {
        return Err(format!("fio: the lab's stand-in does not know {other}"));
    }
    for (name, value) in [("rw", "write"), ("ioengine", "sync"), ("fdatasync", "1"), ("output-format", "json")] {
        if options.get(name) != Some(&value) {
            return Err(format!("fio: the lab's stand-in can --{name}={value} only"));
        }
    }
    let number = |name: &str| {
        let text = options.get(name).copied().unwrap_or_default();
        size(text).filter(|n| *n > 0).ok_or_else(|| format!("fio: --{name}={text}: expected a size such as 22m"))
    };
    let (whole, block) = (number("size")?, number("bs")?);
    // fio takes a bare colon for the end of a name.
    let path = options.get("filename").copied().unwrap_or_default().replace("\\:", ":");
    let times = synced_writes(Path::new(&path), whole / block, block).map_err(|e| format!("fio: {path}: {e}"))?;
    Ok(format!("{:#}\n", report(&times)))
}

fn synced_writes(path: &Path, count: u64, block: u64) -> std::io::Result<Vec<u64>> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    let bytes = vec![0x5a; usize::try_from(block).unwrap_or(1 << 20).min(1 << 20)];
    let (began, mut times) = (Instant::now(), Vec::new());
    for _ in 0..count {
        file.write_all(&bytes)?;
        let start = Instant::now();
        file.sync_data()?;
        times.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        if began.elapsed() > WRITING {
            break;
        }
    }
    times.sort_unstable();
    if times.is_empty() { Err(std::io::Error::other("nothing to write")) } else { Ok(times) }
}

/// The part of fio's report that is read by the agent: how long the calls of fdatasync took, in nanoseconds.
fn report(sorted: &[u64]) -> Value {
    let last = sorted.len().saturating_sub(1);
    let at = |percent: usize| sorted.get(last.min(sorted.len() * percent / 100)).copied().unwrap_or(0);
    let percentiles: BTreeMap<String, u64> =
        [1, 50, 90, 95, 99].into_iter().map(|p| (format!("{p}.000000"), at(p))).collect();
    let lat_ns = json!({"N": sorted.len(), "min": at(0), "max": at(100), "percentile": percentiles});
    json!({
        "fio version": "stand-in of the lab",
        "jobs": [{"jobname": "test", "error": 0, "sync": {"total_ios": sorted.len(), "lat_ns": lat_ns}}],
    })
}

// --- nmap ------------------------------------------------------------------------------------------------------------------

/// What nmap is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Scan {
    targets: Vec<IpAddr>,
    interface: Option<String>,
}

impl Scan {
    fn parse(words: &[String]) -> Result<Self, String> {
        let refuse = |what: String| Err(format!("nmap: the lab's stand-in {what}"));
        let (options, plain) = options(words, &["oX", "e"]);
        if options.get("oX") != Some(&"-") || !options.contains_key("sn") {
            return refuse("only finds hosts (-sn) and reports them as XML (-oX -)".into());
        }
        if let Some(other) = options.keys().find(|name| !["sn", "PR", "n", "oX", "6", "e"].contains(name)) {
            return refuse(format!("does not know -{other}"));
        }
        let mut targets = Vec::new();
        for word in plain {
            match (word.parse::<IpAddr>(), word.parse::<Ipv4Net>()) {
                (Ok(address), _) => targets.push(address),
                // As many as nmap would ask for, network and broadcast included.
                (_, Ok(net)) if net.prefix_len() >= 16 => {
                    let (from, to) = (u32::from(net.network()), u32::from(net.broadcast()));
                    targets.extend((from..=to).map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))));
                }
                (_, Ok(net)) => return refuse(format!("does not scan networks as large as {net}")),
                _ => return refuse(format!("takes addresses and IPv4 networks, not {word}")),
            }
        }
        if targets.is_empty() {
            return refuse("was given nothing to look for".into());
        }
        Ok(Self { targets, interface: options.get("e").map(|name| (*name).to_owned()) })
    }
}

/// Somebody who is there.
#[derive(Debug, PartialEq, Eq)]
struct Up {
    address: IpAddr,
    /// `None`: this machine itself.
    mac: Option<Mac>,
}

fn nmap(words: &[String]) -> Result<String, String> {
    let scan = Scan::parse(words)?;
    let mut links = link::links().map_err(|e| format!("nmap: {e}"))?;
    if let Some(name) = &scan.interface {
        links.retain(|link| link.name == *name);
    }
    // Nobody is asked beyond these networks, and "nobody is there" must not be said of those who were not asked.
    if let Some(far) = scan.targets.iter().find(|target| links.iter().all(|link| link.on_link(**target).is_none())) {
        let of = scan.interface.map_or_else(|| "this machine".to_owned(), |name| format!("the interface {name}"));
        return Err(format!("nmap: the lab's stand-in asks neighbours only, and {far} is in no network of {of}"));
    }
    let up = who_is_there(&links, &scan.targets).map_err(|e| format!("nmap: {e}"))?;
    Ok(xml(&up, scan.targets.len()))
}

fn who_is_there(links: &[Link], targets: &[IpAddr]) -> std::io::Result<Vec<Up>> {
    let mut up = Vec::new();
    for link in links {
        let (mut asked, mut others) = (Vec::new(), Vec::new());
        for target in targets.iter().filter(|target| link.on_link(**target).is_some()) {
            match target {
                _ if link.nets.iter().any(|net: &IpNet| net.addr() == *target) => {
                    up.push(Up { address: *target, mac: None });
                }
                IpAddr::V4(v4) => asked.push(*v4),
                IpAddr::V6(v6) => others.push(*v6),
            }
        }
        let first = |macs: std::collections::BTreeSet<Mac>| macs.into_iter().next();
        if !asked.is_empty() {
            let answers = link::arp(link, &asked, PATIENCE)?;
            up.extend(answers.into_iter().map(|(a, macs)| Up { address: IpAddr::V4(a), mac: first(macs) }));
        }
        if !others.is_empty() {
            let answers = link::neighbours(link, &others, PATIENCE)?;
            up.extend(answers.into_iter().map(|(a, macs)| Up { address: IpAddr::V6(a), mac: first(macs) }));
        }
    }
    Ok(up)
}

/// nmap's report, as far as it is about who is there.
fn xml(up: &[Up], asked: usize) -> String {
    let mut text =
        String::from("<?xml version=\"1.0\"?>\n<nmaprun scanner=\"nmap\" version=\"stand-in of the lab\">\n");
    for Up { address, mac } in up {
        let (kind, reason) = match (address, mac) {
            (IpAddr::V4(_), Some(_)) => ("ipv4", "arp-response"),
            (IpAddr::V6(_), Some(_)) => ("ipv6", "nd-response"),
            (IpAddr::V4(_), None) => ("ipv4", "localhost-response"),
            (IpAddr::V6(_), None) => ("ipv6", "localhost-response"),
        };
        text += &format!(
            "<host><status state=\"up\" reason=\"{reason}\"/><address addr=\"{address}\" addrtype=\"{kind}\"/>"
        );
        if let Some(mac) = mac {
            text += &format!("<address addr=\"{}\" addrtype=\"mac\"/>", mac.to_string().to_uppercase());
        }
        text += "</host>\n";
    }
    let down = asked.saturating_sub(up.len());
    text + &format!("<runstats><hosts up=\"{}\" down=\"{down}\" total=\"{asked}\"/></runstats>\n</nmaprun>\n", up.len())
}

// --- file ------------------------------------------------------------------------------------------------------------------

/// `file -s DEVICE`: does it begin with a boot sector?
fn file(words: &[String]) -> Result<String, String> {
    let [flag, path] = words else { return Err("file: the lab's stand-in takes -s and one path".into()) };
    if flag != "-s" {
        return Err(format!("file: the lab's stand-in does not know {flag}"));
    }
    let mut sector = [0u8; 512];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut sector));
    match read {
        Ok(()) if sector[510..] == [0x55, 0xaa] => Ok(format!("{path}: DOS/MBR boot sector\n")),
        Ok(()) => Ok(format!("{path}: data\n")),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(format!("{path}: data\n")),
        Err(e) => Err(format!("{path}: cannot open `{path}' ({e})")),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn fio_writes_all_of_it_and_tells_percentiles() {
        let place = tempfile::tempdir().unwrap();
        let disk = place.path().join("pci-0:1");
        std::fs::write(&disk, vec![0; 100_000]).unwrap();
        let name = disk.display().to_string().replace(':', "\\:");
        let line = format!(
            "--filename {name} --name=test --rw=write --ioengine=sync --size=64k -bs=2300 --fdatasync=1 --output-format=json"
        );
        let said: Value = serde_json::from_str(&run("fio", &words(&line)).unwrap()).unwrap();
        let sync = &said["jobs"][0]["sync"];
        assert_eq!(sync["total_ios"], 65536 / 2300);
        let percentile = sync["lat_ns"]["percentile"]["99.000000"].as_u64().unwrap();
        assert!(percentile >= sync["lat_ns"]["min"].as_u64().unwrap() && percentile > 0, "{sync}");
        let bytes = std::fs::read(&disk).unwrap();
        assert_eq!(bytes.iter().filter(|b| **b == 0x5a).count(), 65536 / 2300 * 2300);
        assert_eq!(bytes.len(), 100_000, "nothing is cut off");
    }

    #[test]
    fn the_percentile_is_that_of_the_sorted_times() {
        let times: Vec<u64> = (1..=1000).collect();
        let said = report(&times);
        assert_eq!(said["jobs"][0]["sync"]["lat_ns"]["percentile"]["99.000000"], 991);
        assert_eq!(said["jobs"][0]["sync"]["lat_ns"]["max"], 1000);
    }

    #[rstest]
    #[case::read("fio", "--filename /dev/null --rw=read --size=1m --bs=4k", "--rw=write only")]
    #[case::unknown("fio", "--filename /dev/null --rw=write --iodepth=4", "does not know iodepth")]
    #[case::size(
        "fio",
        "--filename /dev/null --rw=write --ioengine=sync --size=much --bs=4k --fdatasync=1 --output-format=json",
        "--size=much"
    )]
    #[case::ports("nmap", "-p 22 -oX - 192.0.2.1", "-sn")]
    #[case::scan("nmap", "-sn -A -oX - 192.0.2.1", "-A")]
    #[case::name("nmap", "-sn -n -oX - example.org", "example.org")]
    #[case::large("nmap", "-sn -n -oX - 10.0.0.0/8", "10.0.0.0/8")]
    #[case::nothing("nmap", "-sn -n -oX -", "nothing to look for")]
    // Of an interface that is not there: a test asks nobody on the machine's own network.
    #[case::far("nmap", "-sn -n -oX - -e eth77 192.0.2.1", "192.0.2.1 is in no network of the interface eth77")]
    #[case::no_interface("nmap", "-6 -sn -n -oX - -e eth77 2001:db8::1", "no network of the interface eth77")]
    #[case::file("file", "-b /dev/null", "-b")]
    #[case::no_device("file", "-s /nowhere", "/nowhere")]
    fn what_it_cannot_do_is_refused(#[case] name: &str, #[case] line: &str, #[case] why: &str) {
        let error = run(name, &words(line)).unwrap_err();
        assert!(error.contains(why), "{error}");
    }

    #[rstest]
    #[case::network("-sn -PR -n -oX - 192.0.2.0/29", 8, None)]
    #[case::address("-sn -n -oX - 192.0.2.7", 1, None)]
    #[case::v6("-6 -sn -n -oX - -e eth1 2001:db8::7", 1, Some("eth1"))]
    fn the_agents_questions_are_understood(#[case] line: &str, #[case] count: usize, #[case] interface: Option<&str>) {
        let scan = Scan::parse(&words(line)).unwrap();
        assert_eq!((scan.targets.len(), scan.interface.as_deref()), (count, interface));
    }

    #[test]
    fn who_is_there_is_told_as_xml() {
        let up = [
            Up { address: "192.0.2.1".parse().unwrap(), mac: Some(Mac([0x52, 0x54, 0, 0xab, 2, 3])) },
            Up { address: "2001:db8::7".parse().unwrap(), mac: None },
        ];
        insta::assert_snapshot!(xml(&up, 8), @r#"
        <?xml version="1.0"?>
        <nmaprun scanner="nmap" version="stand-in of the lab">
        <host><status state="up" reason="arp-response"/><address addr="192.0.2.1" addrtype="ipv4"/><address addr="52:54:00:AB:02:03" addrtype="mac"/></host>
        <host><status state="up" reason="localhost-response"/><address addr="2001:db8::7" addrtype="ipv6"/></host>
        <runstats><hosts up="2" down="6" total="8"/></runstats>
        </nmaprun>
        "#);
    }

    #[test]
    fn a_boot_sector_is_recognised() {
        let place = tempfile::tempdir().unwrap();
        let disk = place.path().join("disk");
        let said = |bytes: &[u8]| {
            std::fs::write(&disk, bytes).unwrap();
            file(&["-s".into(), disk.display().to_string()]).unwrap()
        };
        let mut sector = [0u8; 1024];
        assert!(said(&sector).ends_with(": data\n"));
        sector[510] = 0x55;
        sector[511] = 0xaa;
        assert!(said(&sector).ends_with(": DOS/MBR boot sector\n"));
        assert!(said(b"short").ends_with(": data\n"));
    }
}
