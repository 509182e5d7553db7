//! The way between controllers and their API server: requests go out over plain HTTP, what watches tell comes back.
//!
//! The simulated service has its controllers in its engine. [`play_others`] is for a service that has controllers of its own and whose hub
//! has neither Hive nor metal3.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use vlab_api::Timestamp;
use vlab_api::http::{Request, Response};
use vlab_client::{Answered, Endpoint, HttpConnection, lines};
use vlab_model::settings::Settings;
use vlab_service::kube::{Ask, Door, DoorConfig, Elector, server_in};
pub use vlab_service::kube::{definitions, is_converged, kubeconfig, operator};
use vlab_service::{Core, CoreConfig, Snapshot};

/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(30);

/// Controllers of the service that work on an API server.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// Where it is.
    pub endpoint: Endpoint,
    /// How many times faster than the real ones the controllers wait.
    pub pace: f64,
    /// Has it API servers of clusters, too (`/clusters/NAME`, as `vlab kube` has)? Then nodes that join them are played.
    pub has_clusters: bool,
    /// Does the service the part of Hive and metal3, too? Without them a hub lacks it.
    pub others: bool,
}

impl HubOptions {
    /// The API server that a kubeconfig names.
    ///
    /// # Errors
    /// It names none, or one that speaks TLS.
    pub fn of_kubeconfig(kubeconfig: &str, pace: f64) -> Result<Self, String> {
        let address = address_in(kubeconfig)?;
        Ok(Self { endpoint: Endpoint::new(address), pace, has_clusters: false, others: true })
    }

    /// All that is done on a hub.
    pub(crate) fn door(&self) -> DoorConfig {
        let clusters = self.has_clusters.then(|| format!("http://{}", self.endpoint.address()));
        DoorConfig { pace: self.pace, service: true, hive: self.others, metal3: self.others, clusters }
    }
}

/// What the API server said.
#[derive(Debug)]
pub(crate) enum Said {
    /// The answer to a request; none, and why.
    Answer(u64, Result<Response, String>),
    /// What a watch told: kinds of events and their objects.
    News { tag: u64, events: Vec<(String, Arc<Value>)>, over: bool },
}

/// Where the API server of a kubeconfig is that speaks plain HTTP.
///
/// # Errors
/// It names none, or one that speaks TLS.
pub fn address_in(kubeconfig: &str) -> Result<SocketAddr, String> {
    let url = server_in(kubeconfig).ok_or("it names no server")?;
    let Some(authority) = url.strip_prefix("http://") else {
        return Err(format!(
            "its server is {url}; only API servers over plain HTTP (`vlab kube --http`) are supported"
        ));
    };
    authority.parse().map_err(|error| format!("its server is {url}: {error}"))
}

/// Asks the API server what controllers want to ask; `tell` gives them what it says, with their number, and says whether anybody listens.
pub(crate) async fn ask_all<F, T>(endpoint: Endpoint, mut asks: mpsc::UnboundedReceiver<(u64, Ask)>, tell: F)
where
    F: Fn(u64, Said) -> T + Clone + Send + Sync + 'static,
    T: Future<Output = bool> + Send,
{
    // Requests of controllers follow each other; those at their beginning, one for each kind, go side by side.
    let idle: Arc<Mutex<Vec<HttpConnection>>> = Arc::default();
    let (mut under_way, mut number) = (JoinSet::new(), 0);
    while let Some((of, ask)) = asks.recv().await {
        if of != number {
            // What those before them asked interests nobody any more.
            under_way.abort_all();
            number = of;
        }
        while under_way.try_join_next().is_some() {}
        let (endpoint, tell) = (endpoint.clone(), tell.clone());
        if ask.watch {
            under_way.spawn(async move { watch(&endpoint, ask, |said| tell(of, said)).await });
            continue;
        }
        if let Some(server) = ask.server {
            under_way.spawn(async move {
                let answer = ask_cluster(&server, ask.request).await;
                tell(of, Said::Answer(ask.tag, answer)).await;
            });
            continue;
        }
        let idle = idle.clone();
        under_way.spawn(async move {
            let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut connection = kept.unwrap_or_else(|| HttpConnection::new(endpoint));
            let answer = connection.send(&ask.request, ANSWER).await.map_err(|error| error.to_string());
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            tell(of, Said::Answer(ask.tag, answer)).await;
        });
    }
}

/// Asks the API server of a cluster, over a connection of its own: it is asked rarely.
async fn ask_cluster(server: &str, mut request: Request) -> Result<Response, String> {
    let rest = server.strip_prefix("http://").ok_or_else(|| format!("{server}: only plain HTTP is spoken here"))?;
    let (authority, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let address: SocketAddr = authority.parse().map_err(|error| format!("{server}: {error}"))?;
    request.path.insert_str(0, prefix);
    HttpConnection::new(Endpoint::new(address)).send(&request, ANSWER).await.map_err(|error| error.to_string())
}

/// Takes the lease of the controllers and keeps it; tells once it is there. Ends when it is lost.
///
/// Beside the engine and not in it: where that waits for its database, the lease is renewed all the same.
pub(crate) async fn keep_lease<T: Future<Output = ()>>(options: HubOptions, leads: impl FnOnce() -> T) {
    // Nobody's but this process's.
    let mut elector =
        Elector::new(format!("vlab_{}_{}", std::process::id(), Timestamp::now().as_micros()), options.pace);
    let mut connection = HttpConnection::new(options.endpoint.clone());
    let mut leads = Some(leads);
    loop {
        elector.wake(Timestamp::now());
        if elector.has_lost() {
            return;
        }
        if elector.leads()
            && let Some(leads) = leads.take()
        {
            tracing::info!("the controllers have their lease");
            leads().await;
        }
        // It asks one thing after the other.
        match elector.take_asks().pop() {
            Some(Ask { tag, request, .. }) => {
                let due = elector.next_wake().map(|at| at.since(Timestamp::now())).unwrap_or(ANSWER);
                let answer = connection.send(&request, due.min(ANSWER)).await.map_err(|error| error.to_string());
                elector.answered(Timestamp::now(), tag, answer);
            }
            None => {
                let due = elector.next_wake().map(|at| at.since(Timestamp::now()));
                tokio::time::sleep(due.unwrap_or(ANSWER)).await;
            }
        }
    }
}

/// Follows a watch to its end.
async fn watch<T: Future<Output = bool>>(endpoint: &Endpoint, ask: Ask, tell: impl Fn(Said) -> T) {
    let tag = ask.tag;
    let refused = match lines(endpoint, &ask.request, ANSWER).await {
        Ok(Answered::Lines(mut lines)) => {
            while let Ok(Some(more)) = lines.next().await {
                let events = more.iter().filter_map(|line| event(line)).collect();
                if !tell(Said::News { tag, events, over: false }).await {
                    return;
                }
            }
            tell(Said::News { tag, events: Vec::new(), over: true }).await;
            return;
        }
        Ok(Answered::Refused(response)) => Ok(response),
        Err(error) => Err(error.to_string()),
    };
    tell(Said::Answer(tag, refused)).await;
}

fn event(line: &[u8]) -> Option<(String, Arc<Value>)> {
    let mut value: Value = serde_json::from_slice(line).ok()?;
    Some((value["type"].as_str()?.to_owned(), value["object"].take().into()))
}

/// Does what Hive and metal3 do on a hub, for a service whose controllers are its own. Goes on until it is given up.
pub async fn play_others(options: HubOptions) {
    let (ask, asks) = mpsc::unbounded_channel();
    let (tell, mut told) = mpsc::unbounded_channel();
    let asking = ask_all(options.endpoint.clone(), asks, move |_, said| std::future::ready(tell.send(said).is_ok()));
    let playing = async move {
        // It has no clusters: all that it needs stands in resources.
        let config = CoreConfig {
            settings: Settings::default(),
            seed: 0,
            base_url: String::new(),
            image_service_url: String::new(),
            alteration: None,
        };
        let mut core = Core::new(config, Snapshot::default());
        let mut door = Door::new(DoorConfig { service: false, ..options.door() });
        loop {
            let due = door.next_wake().map(|at| at.since(Timestamp::now()));
            tokio::select! {
                said = told.recv() => match said {
                    Some(Said::Answer(tag, answer)) => door.answered(&mut core, Timestamp::now(), tag, answer),
                    Some(Said::News { tag, events, over }) => {
                        door.told(&mut core, Timestamp::now(), tag, events, over);
                    }
                    None => return,
                },
                () = tokio::time::sleep(due.unwrap_or(Duration::from_secs(3600))) => {
                    door.wake(&mut core, Timestamp::now());
                }
            }
            for wanted in door.take_asks() {
                let _ = ask.send((0, wanted));
            }
        }
    };
    tokio::join!(asking, playing);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_names_a_server_without_tls() {
        let text = "clusters:\n- cluster:\n    server: http://127.0.0.1:6443\n  name: vlab\n";
        assert_eq!(address_in(text).unwrap(), "127.0.0.1:6443".parse().unwrap());
        let error = address_in(&text.replace("http:", "https:")).unwrap_err();
        assert!(error.contains("only API servers over plain HTTP"), "{error}");
        assert!(address_in("kind: Config").unwrap_err().contains("names no server"));
    }
}
