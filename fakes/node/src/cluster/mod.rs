//! The cluster that lab machines form: real etcd, and around it a control plane small enough for a virtual machine.
//!
//! Real: etcd with its members, joins, quorum and removal; TLS of API and machine-config server with the cluster's own CA;
//! certificate requests and their signing; what Ignition fetches. Small, and ours: the API server ([`api`]), which keeps objects
//! and knows no controllers but the signing of certificates; whoever is authenticated may do everything. etcd itself speaks without
//! TLS inside the lab's network. Simulated: operators are objects that say they are available ([`controller`]).

pub mod api;
pub mod bootkube;
pub mod controller;
pub mod etcd;
pub mod facts;
pub mod mcs;
pub mod node;
pub mod pki;
pub mod serve;
pub mod store;
pub mod vip;
pub mod watch;
