//! A service that runs already and is not touched.

use std::collections::BTreeMap;
use std::sync::Arc;

use vlab_client::Endpoint;
use vlab_drive::fault::effect::Program;
use vlab_lab::hub::label_value;
use vlab_scenario::WhichReplica;

use super::hub::existing::{Existing, Plan};
use super::ready::who_is;
use super::{About, BoxFuture, Down, ProgramEnd, Restart, RunningService, ServiceOrder, StartError};
use crate::error::{LabError, lab};

struct Remote {
    about: About,
    /// The hub that its controllers work on, where the run asks there.
    hub: Option<Existing>,
}

/// Finds it.
pub(super) async fn start(order: &ServiceOrder<'_>, url: &str) -> Result<Arc<dyn RunningService>, LabError> {
    let mut about = order.or_end(async { find(url).await.map_err(lab("service")) }).await?;
    let hub = match order.prepared.hub.existing() {
        Some(kubeconfig) if order.prepared.kube => {
            let (namespaces, label) = (order.prepared.namespaces(), label_value(order.run_id));
            let plan = Plan { kubeconfig, namespaces: &namespaces, label: &label, folder: order.folder };
            Some(Existing::find(plan, order.ledger.clone()).await.map_err(lab("API server"))?)
        }
        _ => None,
    };
    about.hub = hub.as_ref().map(|hub| (hub.endpoint().clone(), hub.kubeconfig.clone()));
    Ok(Arc::new(Remote { about, hub }))
}

/// Asks what answers there what it is.
///
/// # Errors
/// [`StartError::Stranger`] when nothing does, or no assisted-service.
pub async fn find(url: &str) -> Result<About, StartError> {
    let endpoint = Endpoint::resolve(url).await.map_err(|e| StartError::Stranger(e.to_string()))?;
    let version = who_is(&endpoint).await.map_err(|e| StartError::Stranger(format!("{url}: {e}")))?;
    let version = format!("{url} ({version})");
    Ok(About { endpoint, version, stands_on: BTreeMap::new(), conninfo: None, startup: None, hub: None })
}

/// What is said of its programs. Runs with faults of them are refused before the start: [`vlab_drive::target::Target::can`].
const NOT_OURS: &str = "the service runs elsewhere, and its programs are not the run's";

impl RunningService for Remote {
    fn about(&self) -> &About {
        &self.about
    }

    fn ended(&self) -> BoxFuture<'_, ProgramEnd> {
        Box::pin(async {
            match &self.hub {
                Some(hub) => ProgramEnd::OfHub(hub.ended().await),
                None => std::future::pending().await,
            }
        })
    }

    fn lost(&self) -> Option<ProgramEnd> {
        None
    }

    fn pause(&self, _: Program, _: WhichReplica, _: bool) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { Err(NOT_OURS.to_owned()) })
    }

    fn restart(self: Arc<Self>, _: Restart) -> BoxFuture<'static, Result<(), LabError>> {
        Box::pin(async { Err(LabError::new("faults", NOT_OURS)) })
    }

    fn last_lines(&self, _: Program, _: usize) -> Vec<String> {
        Vec::new()
    }

    fn memory(&self, _: Program) -> Option<u64> {
        None
    }

    fn stop(self: Arc<Self>) -> BoxFuture<'static, Down> {
        Box::pin(async move {
            let left = match &self.hub {
                Some(hub) => hub.leave().await.err(),
                None => None,
            };
            let problems = left.map(|left| LabError::new("hub", left)).into_iter().collect();
            Down { problems, killed: None }
        })
    }
}
