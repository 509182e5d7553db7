//! What runs inside lab machines: the discovery agent, the installer, and a control plane small enough for a virtual machine of
//! half a gigabyte. One program of many names, `vlab-node`.
//!
//! The agent's protocol, the installer's script and the controller's loops are those of `vlab-agents`, the simulated hosts: this
//! crate gives them real hands ([`vlab_agents::Hands::Real`]) and a real clock.
//!
//! # What is real, what is not
//!
//! | part | real | simulated, and said so |
//! | --- | --- | --- |
//! | inventory | processors, memory, disks, interfaces, addresses, routes, firmware, TPM of this machine | hardware that the scenario declares on top (`overlay`); GPUs and management controllers are not looked for |
//! | connectivity | ARP and neighbour solicitation, echo requests with times, losses and full-size unfragmented packets | – |
//! | names, clocks | questions to the machine's name servers; chrony's own state, or SNTP | – |
//! | free addresses, virtual IPs | ARP over the whole network | leases of virtual IPs by DHCP: refused with the reason |
//! | disk speed | synced writes to the disk itself, what was there is written back | – |
//! | static networks | NetworkManager, the connections that the nmstate library makes of the service's policies | `nmstatectl` knows `service` only, and the rules that services write |
//! | discovery medium | read before each step, as the real agent does it | – |
//! | container images | – | nothing is pulled; images stand for programs of the lab |
//! | agent upgrade | – | the version's name changes, the program does not |
//! | reclaiming a host | – | refused with the reason |
//! | installation | Ignition configs of the service, the disk cleaned of LVM and RAID with their own programs, coreos-installer with its progress, the boot order of UEFI, logs, reboot | what could not be cleaned is on the console, not in a report |
//! | etcd | the real one: temporary member, joins, quorum, removal of the bootstrap's member; snapshot and restore on a single node | no TLS between members inside the lab's network |
//! | API, machine-config server | TLS, certificate requests, nodes, roles, service accounts, watches, what Ignition fetches | the lab's small API server over the real etcd; no controllers but the signing of certificates |
//! | pods | the controller of the product, where a run gives it, with the environment and files that its Job says | a process of the machine, not a container |
//! | virtual addresses | keepalived and haproxy where they are on the machine | – |
//! | operators | – | their objects are made by the controller and say so |
//!
//! * [`machine`] is the machine and what the lab put on it, [`inventory`] what it is made of, [`net`] what it sees.
//! * [`steps`] does what the service asks, as long as [`medium`] is there. [`shell`] drives the core. [`agent`] puts them together.
//! * [`install`] is the installer, which waits for what the live system offers (`offer`), [`ignition`] what it reads and writes. [`cluster`] is what the machines form together.
//! * [`bootstrap`] lays out what the bootstrap needs, for our installer and, as the machine-config daemon, for the product's.
//! * [`given`] is what a run gives in the place of the lab's own programs. [`podman`] stands in for the program of that name, [`nmstate`] for one of RHCOS.
//!   [`tools`] are others that the product's own programs call: some of the agent's image, `oc`, `shutdown`, `logs_sender`, and what stands before coreos-installer (`image_writer`).
//! * [`say`] is how all of them speak to the harness.

pub mod agent;
pub mod bootstrap;
pub mod cluster;
pub mod given;
pub mod ignition;
mod image_writer;
pub mod install;
pub mod inventory;
mod logs_sender;
pub mod medium;
pub mod net;
pub mod nmstate;
mod oc;
mod offer;
pub mod podman;
pub mod shell;
mod shutdown;
pub mod steps;
pub mod tools;

pub use vlab_node_config::{machine, say};
