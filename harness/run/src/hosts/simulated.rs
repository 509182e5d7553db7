//! Simulated hosts. The conductor plays them, and [`crate::traffic`] carries what they say: nothing is made for them here.

use std::net::SocketAddr;
use std::path::Path;

use vlab_api::Timestamp;
use vlab_client::Endpoint;
use vlab_drive::conductor::MachineOrder;
use vlab_drive::prepare::Prepared;
use vlab_judge::result::RunResult;
use vlab_scenario::HostKind;

use super::{Frozen, HostFile, HostProvider, HostsOrder, News, RunningHosts, Stopped};
use crate::error::LabError;
use crate::service::{BoxFuture, Inside};

/// Their provider.
#[derive(Clone, Copy, Debug)]
pub struct Simulated;

impl HostProvider for Simulated {
    fn kind(&self) -> HostKind {
        HostKind::Simulated
    }

    fn start<'a>(
        &'a self,
        _: &'a HostsOrder<'a>,
        _: &'a mut RunResult,
    ) -> BoxFuture<'a, Result<Box<dyn RunningHosts>, LabError>> {
        Box::pin(async { Ok(Box::new(Played) as Box<dyn RunningHosts>) })
    }

    fn files(&self, _: &Prepared) -> Vec<HostFile> {
        Vec::new()
    }
}

/// Hosts that the conductor plays.
struct Played;

impl RunningHosts for Played {
    fn inside(&self) -> Option<&Inside> {
        None
    }

    fn ssh_key(&self) -> Option<&str> {
        None
    }

    fn connect(&mut self, _: SocketAddr, _: &Endpoint) -> Result<(), LabError> {
        Ok(())
    }

    fn carry_out(&mut self, order: MachineOrder, _: Timestamp) {
        // Orders are for hosts that the conductor does not play.
        tracing::warn!(?order, "an order for machines in a run that has none");
    }

    fn news(&mut self) -> BoxFuture<'_, News> {
        Box::pin(std::future::pending())
    }

    fn evidence<'a>(&'a self, _: &'a Path) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn entrance(&self) -> Vec<String> {
        Vec::new()
    }

    fn stand_still(&mut self) -> BoxFuture<'_, Result<(), LabError>> {
        Box::pin(async { Ok(()) })
    }

    fn freeze<'a>(&'a mut self, _: &'a Path) -> BoxFuture<'a, Result<Frozen, LabError>> {
        Box::pin(async { Ok(Frozen::default()) })
    }

    fn thaw<'a>(&'a mut self, _: &'a Path, _: &'a Frozen, _: Vec<MachineOrder>) -> BoxFuture<'a, Result<(), LabError>> {
        Box::pin(async { Ok(()) })
    }

    fn go_on(&mut self) -> BoxFuture<'_, Result<(), LabError>> {
        Box::pin(async { Ok(()) })
    }

    fn stop(self: Box<Self>) -> BoxFuture<'static, Stopped> {
        Box::pin(async { (Vec::new(), Vec::new()) })
    }
}
