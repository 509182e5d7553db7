//! The cluster that lab machines form: real etcd, and around it a control plane small enough for a virtual machine.
//!
//! Real: etcd with its members, joins, quorum and removal; TLS of API and machine-config server with the cluster's own CA;
//! certificate requests and their signing; what Ignition fetches. Small, and ours: the API server ([`api`]), that of `vlab_kube` over
//! etcd, with roles, watches and service accounts, and with no controllers but the signing of certificates. etcd itself speaks
//! without TLS inside the lab's network. Simulated: operators are objects that say they are available ([`operators`]), and a pod is a
//! process of the machine ([`job`]).

pub mod api;
pub mod ask;
pub mod bootkube;
pub mod controller;
pub mod etcd;
pub mod facts;
pub mod faults;
pub mod job;
pub mod kinds;
pub mod mcs;
pub mod node;
pub mod operators;
pub mod pki;
pub mod serve;
pub mod store;
pub mod vip;
pub mod watch;
