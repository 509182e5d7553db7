//! Figures of the API server, for `docs/measurements.md`: start to the first answer, memory with definitions and objects, latency of
//! writes while watches listen.
//!
//! `cargo run --profile load -p vlab-kube-server --example figures -- target/load/vlab-kube [DEFINITION.yaml…]`

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const AGENTS: usize = 1000;
const WATCHES: usize = 50;
const WRITES: usize = 2000;
const RATE: u64 = 200;

struct Client(BufReader<TcpStream>);

impl Client {
    fn new(address: &str) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Self(BufReader::new(stream)))
    }

    fn send(&mut self, method: &str, path: &str, kind: &str, body: &str) {
        let text = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.get_mut().write_all(text.as_bytes()).expect("the server takes requests");
    }

    /// The status of the answer, and its body.
    fn answer(&mut self) -> (u16, Vec<u8>) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            assert!(self.0.read_until(b'\n', &mut head).expect("an answer") > 0, "the server has gone");
        }
        let head = String::from_utf8_lossy(&head).to_lowercase();
        let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse::<usize>().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        self.0.read_exact(&mut body).expect("a body");
        (head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0), body)
    }

    fn ask(&mut self, method: &str, path: &str, kind: &str, body: &str) -> u16 {
        self.send(method, path, kind, body);
        self.answer().0
    }
}

fn start(program: &PathBuf, folder: &std::path::Path) -> (Child, String, Duration) {
    let begun = Instant::now();
    let mut child = Command::new(program)
        .args(["--http", "--listen", "127.0.0.1:0", "--any-namespace", "--dir"])
        .arg(folder)
        .stdout(Stdio::piped())
        .spawn()
        .expect("vlab-kube starts");
    let mut first = String::new();
    let out = child.stdout.take().expect("its output");
    BufReader::new(out).read_line(&mut first).expect("its URL");
    let address = first.trim().trim_start_matches("http://").to_owned();
    let mut client = Client::new(&address).expect("it listens");
    assert_eq!(client.ask("GET", "/api/v1/namespaces/default", "", ""), 200);
    (child, address, begun.elapsed())
}

/// Resident memory in MB.
fn memory(child: &Child) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("a process");
    let kb = status.lines().find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kb.unwrap_or(0.0) / 1024.0
}

/// About as much as an Agent has once its host has sent an inventory.
fn agent(n: usize) -> Value {
    let interfaces: Vec<Value> = (0..4)
        .map(|i| json!({ "name": format!("eno{i}"), "macAddress": format!("02:00:00:00:{:02x}:{i:02x}", n % 256), "ipV4Addresses": [format!("192.0.2.{}/24", n % 250)], "ipV6Addresses": [], "flags": ["up", "broadcast", "multicast"], "hasCarrier": true, "mtu": 1500, "speedMbps": 10_000 }))
        .collect();
    let disks: Vec<Value> = (0..4)
        .map(|i| json!({ "id": format!("/dev/disk/by-id/wwn-{n}-{i}"), "name": format!("sd{i}"), "path": format!("/dev/sd{i}"), "sizeBytes": 120_000_000_000_u64, "driveType": "SSD", "installationEligibility": { "eligible": true, "notEligibleReasons": [] }, "vendor": "ATA", "model": "lab", "serial": format!("s{n}{i}") }))
        .collect();
    let conditions: Vec<Value> = ["SpecSynced", "Connected", "RequirementsMet", "Validated", "Installed", "Bound"]
        .iter()
        .map(|t| json!({ "type": t, "status": "True", "reason": "Reason", "message": "The text of a condition of about this length, as the real ones have it", "lastTransitionTime": "2026-01-01T00:00:00Z" }))
        .collect();
    let flags: Vec<String> = (0..120).map(|i| format!("flag{i}")).collect();
    json!({ "status": { "bootstrap": false, "role": "worker", "conditions": conditions, "debugInfo": { "state": "known", "stateInfo": "Host is ready to be installed" }, "progress": {},
        "inventory": { "hostname": format!("host-{n}"), "cpu": { "architecture": "x86_64", "count": 16, "modelName": "lab", "flags": flags }, "memory": { "physicalBytes": 34_359_738_368_u64, "usableBytes": 34_000_000_000_u64 }, "interfaces": interfaces, "disks": disks, "boot": { "currentBootMode": "uefi" }, "systemVendor": { "manufacturer": "lab", "productName": "lab", "serialNumber": format!("{n}") } } } })
}

fn percentile(sorted: &[Duration], share: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index of a list"
    )]
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len() - 1);
    sorted[at].as_secs_f64() * 1000.0
}

fn main() {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let program = args.next().expect("the path of vlab-kube");
    let definitions: Vec<PathBuf> = args.collect();
    let folder = tempfile::tempdir().expect("a folder");
    let mut starts = Vec::new();
    for _ in 0..10 {
        let (mut child, _, took) = start(&program, folder.path());
        starts.push(took);
        child.kill().expect("it ends");
        child.wait().expect("it has ended");
    }
    starts.sort();
    println!(
        "start to the first answer: median {:.1} ms, longest {:.1} ms",
        percentile(&starts, 0.5),
        percentile(&starts, 1.0)
    );
    let (mut child, address, _) = start(&program, folder.path());
    println!("memory at the start: {:.1} MB", memory(&child));
    let mut client = Client::new(&address).expect("it listens");
    for path in &definitions {
        let text = std::fs::read_to_string(path).expect("a definition");
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let status = client.ask("POST", crds, "application/yaml", &text);
        assert_eq!(status, 201, "{}", path.display());
    }
    let kind = "application/json";
    let (agents, make) = if definitions.is_empty() {
        ("/api/v1/namespaces/lab/configmaps", json!({}))
    } else {
        ("/apis/agent-install.openshift.io/v1beta1/namespaces/lab/agents", json!({ "role": "", "approved": false }))
    };
    let mut size = 0;
    for n in 0..AGENTS {
        let mut object = json!({ "metadata": { "name": format!("agent-{n:04}"), "labels": { "lab": "yes" } } });
        if definitions.is_empty() {
            object["data"] = json!({ "status": agent(n).to_string() });
        } else {
            object["apiVersion"] = json!("agent-install.openshift.io/v1beta1");
            object["kind"] = json!("Agent");
            object["spec"] = make.clone();
        }
        assert_eq!(client.ask("POST", agents, kind, &object.to_string()), 201);
        if !definitions.is_empty() {
            let status = agent(n).to_string();
            size = status.len();
            let path = format!("{agents}/agent-{n:04}/status");
            assert_eq!(client.ask("PATCH", &path, "application/merge-patch+json", &status), 200);
        }
    }
    println!(
        "memory with {} definitions and {AGENTS} objects (status of {size} bytes): {:.1} MB",
        definitions.len(),
        memory(&child)
    );
    latency(&address, agents, !definitions.is_empty());
    println!("memory after it: {:.1} MB", memory(&child));
    child.kill().expect("it ends");
    child.wait().expect("it has ended");
}

fn latency(address: &str, agents: &str, custom: bool) {
    let seen = Arc::new(AtomicUsize::new(0));
    let mut watches = Vec::new();
    let mut reader = Client::new(address).expect("it listens");
    reader.send("GET", &format!("{agents}?limit=1"), "", "");
    let list: Value = serde_json::from_slice(&reader.answer().1).expect("a list");
    let rv = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    for _ in 0..WATCHES {
        let mut client = Client::new(address).expect("it listens");
        client.send("GET", &format!("{agents}?watch=true&resourceVersion={rv}"), "", "");
        let seen = Arc::clone(&seen);
        watches.push(std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok(length @ 1..) = client.0.read(&mut buffer) {
                let word = b"\"type\":\"MODIFIED\"";
                let found = buffer[..length].windows(word.len()).filter(|w| w == word).count();
                seen.fetch_add(found, Ordering::Relaxed);
            }
        }));
    }
    std::thread::sleep(Duration::from_millis(200));
    let mut client = Client::new(address).expect("it listens");
    let begun = Instant::now();
    let mut took = Vec::new();
    for n in 0..WRITES {
        let due = begun + Duration::from_micros(1_000_000 / RATE * n as u64);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let patch = if custom {
            json!({ "status": { "debugInfo": { "stateInfo": format!("write {n}") } } })
        } else {
            json!({ "data": { "n": n.to_string() } })
        };
        let path = format!("{agents}/agent-{:04}{}", n % AGENTS, if custom { "/status" } else { "" });
        let at = Instant::now();
        assert_eq!(client.ask("PATCH", &path, "application/merge-patch+json", &patch.to_string()), 200);
        took.push(at.elapsed());
    }
    took.sort();
    let deadline = Instant::now() + Duration::from_secs(10);
    while seen.load(Ordering::Relaxed) < WRITES * WATCHES && Instant::now() < deadline {
        std::thread::yield_now();
    }
    println!("events seen: {} of {}", seen.load(Ordering::Relaxed), WRITES * WATCHES);
    println!(
        "{WRITES} writes at {RATE} a second, {WATCHES} watches: median {:.2} ms, p99 {:.2} ms, longest {:.2} ms; {:.1} s in all",
        percentile(&took, 0.5),
        percentile(&took, 0.99),
        percentile(&took, 1.0),
        begun.elapsed().as_secs_f64()
    );
}
