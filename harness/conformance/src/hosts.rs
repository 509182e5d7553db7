//! The hosts of a check: what they have and what they answer, as data that a check can change. They know nothing but what the
//! service tells them, and behave well unless they are told otherwise.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::table::merged;

/// Steps whose answers a service that prepares an installation waits for.
pub(crate) const PREPARATION: &[&str] = &["installation-disk-speed-check", "container-image-availability"];

/// One host.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) id: String,
    /// Number within its network, from 0.
    pub(crate) n: usize,
    /// Changes to what it has.
    pub(crate) patch: Value,
    /// What it answers instead of what is good; `null`: nothing.
    pub(crate) answers: BTreeMap<String, Value>,
    /// It asks for nothing.
    pub(crate) silent: bool,
    /// Seconds by which its clock is ahead.
    pub(crate) clock_ahead: i64,
    /// It has registered once at least.
    pub(crate) registered: bool,
    /// The last answer to each type of step: like the real agent, it does not repeat itself.
    pub(crate) sent: BTreeMap<String, String>,
    /// It was given the `install` step.
    pub(crate) told_to_install: bool,
}

impl Host {
    pub(crate) fn new(n: usize, id: String) -> Self {
        Self {
            name: name(n),
            id,
            n,
            patch: Value::Null,
            answers: BTreeMap::new(),
            silent: false,
            clock_ahead: 0,
            registered: false,
            sent: BTreeMap::new(),
            told_to_install: false,
        }
    }

    fn address(&self) -> String {
        format!("192.168.126.{}", 10 + self.n)
    }

    /// What it has, in the form of an agent's inventory.
    pub(crate) fn inventory(&self) -> Value {
        let n = self.n;
        let disk = format!("/dev/disk/by-id/wwn-0x5000c5000000{n:04x}");
        let base = json!({
            "hostname": format!("host-{}", self.name),
            "cpu": {"count": 16, "architecture": "x86_64", "flags": [], "frequency": 2500.0, "model_name": "conformance"},
            "memory": {"physical_bytes": 68_719_476_736_i64, "usable_bytes": 68_719_476_736_i64,
                "physical_bytes_method": "dmidecode"},
            "disks": [{"id": disk, "by_id": disk, "name": "sda", "path": "/dev/sda", "drive_type": "SSD",
                "size_bytes": 214_748_364_800_i64, "bootable": true}],
            "interfaces": [{"name": "eth0", "type": "physical", "mac_address": format!("52:54:00:00:00:{n:02x}"),
                "ipv4_addresses": [format!("{}/24", self.address())], "ipv6_addresses": [], "mtu": 1500,
                "has_carrier": true}],
            "routes": [{"destination": "0.0.0.0", "gateway": "192.168.126.1", "interface": "eth0", "family": 2,
                "metric": 100}],
            "system_vendor": {"manufacturer": "Conformance", "product_name": "Box", "serial_number": format!("{n}")},
            "boot": {"current_boot_mode": "bios"},
            "tpm_version": "none",
        });
        merged(&base, &self.patch)
    }

    /// Exit code and output for a step; `None`: no answer at all.
    pub(crate) fn answer(&self, step: &str, args: &[String]) -> Option<String> {
        let special = self.answers.get(step);
        if special == Some(&Value::Null) {
            return None;
        }
        let good = self.good(step, args);
        Some(match special {
            Some(Value::String(text)) => text.clone(),
            // Changes to the good answer where that is an object, else all of it.
            Some(other) => merged(&good, other).to_string(),
            None if good.is_null() => String::new(),
            None => good.to_string(),
        })
    }

    fn good(&self, step: &str, args: &[String]) -> Value {
        let argument: Value = args.first().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        match step {
            "inventory" => self.inventory(),
            "connectivity-check" => self.reach_all(&argument),
            "free-network-addresses" => {
                let networks = argument.as_array().cloned().unwrap_or_default();
                let of = |network: &Value| json!({"network": network, "free_addresses": ["192.168.126.100"]});
                Value::Array(networks.iter().map(of).collect())
            }
            "ntp-synchronizer" => {
                json!({"ntp_sources": [{"source_name": "clock.example.com", "source_state": "synced"}]})
            }
            "domain-resolution" => {
                let domains = argument["domains"].as_array().cloned().unwrap_or_default();
                let resolved = |domain: &Value| {
                    let name = domain["domain_name"].as_str().unwrap_or_default();
                    // A wildcard record would answer these.
                    let found = if name.starts_with("validateNo") { json!([]) } else { json!([self.address()]) };
                    json!({"domain_name": name, "ipv4_addresses": found, "ipv6_addresses": []})
                };
                json!({"resolutions": domains.iter().map(resolved).collect::<Vec<Value>>()})
            }
            "verify-vips" => {
                let mut vips = argument;
                for vip in vips.as_array_mut().into_iter().flatten() {
                    vip["verification"] = json!("succeeded");
                }
                vips
            }
            "installation-disk-speed-check" => json!({"io_sync_duration": 2, "path": argument["path"]}),
            "container-image-availability" => {
                let images = argument["images"].as_array().cloned().unwrap_or_default();
                let pulled = |image: &Value| json!({"name": image, "result": "success", "size_bytes": 1_000_000, "time": 1, "download_rate": 100});
                json!({"images": images.iter().map(pulled).collect::<Vec<Value>>()})
            }
            "api-vip-connectivity-check" => {
                json!({"is_success": true, "url": argument["url"], "ignition": "{\"ignition\":{\"version\":\"3.2.0\"}}"})
            }
            "tang-connectivity-check" => json!({"is_success": true, "tang_server_response": []}),
            _ => Value::Null,
        }
    }

    fn reach_all(&self, hosts: &Value) -> Value {
        let mut remote = Vec::new();
        for host in hosts.as_array().into_iter().flatten() {
            let (mut l2, mut l3) = (Vec::new(), Vec::new());
            for nic in host["nics"].as_array().into_iter().flatten() {
                for ip in nic["ip_addresses"].as_array().into_iter().flatten() {
                    l2.push(json!({"outgoing_nic": "eth0", "outgoing_ip_address": self.address(),
                        "remote_ip_address": ip, "remote_mac": nic["mac"], "successful": true}));
                    l3.push(json!({"outgoing_nic": "eth0", "remote_ip_address": ip, "successful": true,
                        "average_rtt_ms": 1.0, "packet_loss_percentage": 0.0}));
                }
            }
            remote.push(json!({"host_id": host["host_id"], "l2_connectivity": l2, "l3_connectivity": l3}));
        }
        json!({ "remote_hosts": remote })
    }
}

/// `a`, `b`, `c` and so on.
pub(crate) fn name(n: usize) -> String {
    char::from(b'a' + u8::try_from(n % 26).unwrap_or_default()).to_string()
}
