//! The small Kubernetes API server of `vlab-kube` over sockets: HTTP or HTTPS, the clock, connections to webhooks, its keys and the
//! kubeconfig. `vlab kube` starts the program `vlab-kube`, which is this.

mod control;
mod keys;
mod serve;
mod webhooks;

pub use keys::{Keys, Pair, kubeconfig, write_secret};
pub use serve::{ServeOptions, Server, serve};
