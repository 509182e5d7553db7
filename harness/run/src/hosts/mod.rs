//! Where hosts come from, behind one interface: a [`HostProvider`] for each kind that a scenario can name, and the hosts that it
//! runs for a run as [`RunningHosts`].
//!
//! * [`simulated`] hosts are played by the conductor: nothing is made for them.
//! * [`vm`] makes virtual machines, with libvirt.
//!
//! To add a provider: a folder here, and its line in [`PROVIDERS`].

pub mod simulated;
pub mod vm;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use vlab_api::Timestamp;
use vlab_client::Endpoint;
use vlab_drive::conductor::MachineOrder;
use vlab_drive::prepare::Prepared;
use vlab_judge::result::RunResult;
use vlab_lab::ledger::Ledger;
use vlab_model::history::{Source, What};
use vlab_scenario::HostKind;

use crate::error::LabError;
use crate::service::{BoxFuture, Inside};

/// All providers. The first one that the run has hosts of makes them; the conductor plays the others.
pub static PROVIDERS: &[&dyn HostProvider] = &[&vm::Libvirt, &simulated::Simulated];

/// The provider of a run's hosts.
pub fn provider(prepared: &Prepared) -> &'static dyn HostProvider {
    let of_run = PROVIDERS.iter().find(|provider| prepared.has(provider.kind()));
    *of_run.unwrap_or(&(&simulated::Simulated as &dyn HostProvider))
}

/// Makes hosts of one kind.
pub trait HostProvider: Sync {
    /// Of which.
    fn kind(&self) -> HostKind;

    /// Makes what the hosts of a run need; they are switched on by [`RunningHosts::carry_out`]. What is known of them goes into
    /// the result.
    ///
    /// # Errors
    /// What cannot be had; it is found out before anything is made, as far as that is possible.
    fn start<'a>(
        &'a self,
        order: &'a HostsOrder<'a>,
        result: &'a mut RunResult,
    ) -> BoxFuture<'a, Result<Box<dyn RunningHosts>, LabError>>;

    /// Files that its hosts leave in the folder of a run.
    fn files(&self, prepared: &Prepared) -> Vec<HostFile>;
}

/// A file that hosts leave in the folder of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFile {
    /// Its name.
    pub name: String,
    /// What it is, for people.
    pub what: String,
    /// Is it a text that others have written, out of which secrets are to be taken?
    pub log: bool,
}

/// What hosts need around them.
pub struct HostsOrder<'a> {
    /// The run.
    pub prepared: &'a Prepared,
    /// Folder of the run.
    pub folder: &'a Path,
    /// Folder of all runs.
    pub runs: &'a Path,
    /// The `vlab` program.
    pub vlab: &'a Path,
    /// Where everything is written down.
    pub ledger: &'a Arc<Ledger>,
    /// What is known already of this computer's virtual machines.
    pub ability: Option<&'a vm::Ability>,
    /// They are to be frozen.
    pub movable: bool,
    /// They were written down in that folder, and go on.
    pub from: Option<&'a Path>,
    /// Is told what takes long.
    pub tell: fn(&str),
    /// Cancelled when the user wants an end.
    pub interrupted: &'a CancellationToken,
}

/// The hosts of a run.
pub trait RunningHosts: Send + Sync {
    /// How they see the service, when they do not see it as the harness does.
    fn inside(&self) -> Option<&Inside>;

    /// The public key that lets people in.
    fn ssh_key(&self) -> Option<&str>;

    /// From now on they reach `front`: the service, or what stands before it.
    ///
    /// # Errors
    /// They cannot.
    fn connect(&mut self, front: SocketAddr, service: &Endpoint) -> Result<(), LabError>;

    /// Begins to do what the conductor wants. What comes of it is in the news.
    fn carry_out(&mut self, order: MachineOrder, now: Timestamp);

    /// What they have to tell next; never, when they have nothing to tell. May be given up and asked again.
    fn news(&mut self) -> BoxFuture<'_, News>;

    /// Writes into that folder what can be seen of them now.
    fn evidence<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, ()>;

    /// How to get into them, for people.
    fn entrance(&self) -> Vec<String>;

    /// Nothing happens on them any more, so that they can be frozen.
    ///
    /// # Errors
    /// One cannot be frozen as it is now, and why.
    fn stand_still(&mut self) -> BoxFuture<'_, Result<(), LabError>>;

    /// Writes down what they are, after [`RunningHosts::stand_still`]. What they have said until then is in the news.
    ///
    /// # Errors
    /// One cannot be written down.
    fn freeze<'a>(&'a mut self, into: &'a Path) -> BoxFuture<'a, Result<Frozen, LabError>>;

    /// They are there again as they were written down in that folder, and stand still. What was done to them until then is known.
    ///
    /// # Errors
    /// One cannot be had again.
    fn thaw<'a>(
        &'a mut self,
        from: &'a Path,
        frozen: &'a Frozen,
        done: Vec<MachineOrder>,
    ) -> BoxFuture<'a, Result<(), LabError>>;

    /// They go on, after [`RunningHosts::thaw`].
    ///
    /// # Errors
    /// One does not.
    fn go_on(&mut self) -> BoxFuture<'_, Result<(), LabError>>;

    /// Switches everything off and removes it: what could not be, and what they said until then.
    fn stop(self: Box<Self>) -> BoxFuture<'static, Stopped>;
}

/// What is known of hosts that were written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frozen {
    /// Each machine, and how many bytes of its console were taken in.
    pub machines: BTreeMap<String, u64>,
    /// What emulated them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu: Option<String>,
}

/// What stopping hosts came to: what could not be removed, and what they said until then.
pub type Stopped = (Vec<LabError>, Vec<(Source, What)>);

/// What hosts have to tell.
#[expect(clippy::large_enum_variant, reason = "nearly all of it is `Seen`, and it is moved once")]
#[derive(Debug)]
pub enum News {
    /// For the history.
    Seen(Source, What),
    /// A host is gone although nobody asked for it.
    Lost {
        /// Its name.
        machine: String,
        /// How, for people.
        how: String,
        /// What to do about it; empty: nothing is known.
        advice: String,
    },
    /// Something that the run cannot go on without does not work.
    Broken(LabError),
}
