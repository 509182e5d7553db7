//! What a run that asks over Kubernetes has to do with its API server: it follows the resources, and gives it the orders of faults.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use vlab_api::http::{Method, Request, Response};
use vlab_client::{Answered, Endpoint, HttpConnection, lines};
use vlab_drive::hub::{Kind, Order, Scribe};
use vlab_model::history::What;

use super::API_SERVER;
use super::outside::Report;
use crate::error::LabError;

/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(10);
/// A watch that is over, or refused, is begun again after this.
const AGAIN: Duration = Duration::from_millis(100);
/// How often it is asked what faults have done.
const LOOK: Duration = Duration::from_millis(50);
/// With this header a watch hears everything, whatever faults keep from others.
const FAITHFUL: &str = "vlab-faithful";
/// Where orders of faults go.
const FAULTS: &str = "/vlab/faults";

/// An event of a watch.
#[derive(Debug)]
pub(super) struct Told {
    kind: Kind,
    event: String,
    object: Value,
}

/// Follows the resources of a run. Ends with its owner.
pub(super) struct Following {
    news: mpsc::UnboundedReceiver<Told>,
    scribe: Scribe,
    /// On a hub that is somebody's: the namespaces of the run.
    only: Option<Vec<String>>,
    /// Ended when this is dropped.
    _watches: JoinSet<()>,
}

impl Following {
    /// Watches every kind that a history has; `only` in these namespaces, where others are not the run's.
    pub(super) fn start(endpoint: &Endpoint, only: Option<Vec<String>>) -> Self {
        let (tell, news) = mpsc::unbounded_channel();
        let mut watches = JoinSet::new();
        // Secrets are looked for in what others show. On a hub that is somebody's, those of others are nobody's business.
        let secrets = only.is_none().then_some(Kind::Secret);
        for kind in Scribe::kinds().chain(secrets) {
            watches.spawn(follow(endpoint.clone(), kind, tell.clone()));
        }
        Self { news, scribe: Scribe::default(), only, _watches: watches }
    }

    /// The next event. May be given up and asked again.
    pub(super) async fn next(&mut self) -> Told {
        match self.news.recv().await {
            Some(told) => told,
            // Watches go on as long as this lives.
            None => std::future::pending().await,
        }
    }

    /// What is there already.
    pub(super) fn waiting(&mut self) -> Option<Told> {
        self.news.try_recv().ok()
    }

    /// What the history says of it.
    pub(super) fn line(&mut self, told: &Told) -> Option<What> {
        let namespace = told.object["metadata"]["namespace"].as_str().unwrap_or_default();
        if self.only.as_ref().is_some_and(|only| !only.iter().any(|ours| ours == namespace)) {
            return None;
        }
        if told.kind == Kind::Secret {
            self.scribe.learn(&told.object);
            return None;
        }
        self.scribe.line(told.kind, &told.event, &told.object)
    }
}

async fn follow(endpoint: Endpoint, kind: Kind, tell: mpsc::UnboundedSender<Told>) {
    let request = Request::new(Method::Get, format!("{}?watch=true", kind.path())).header(FAITHFUL, "true");
    loop {
        if let Ok(Answered::Lines(mut watch)) = lines(&endpoint, &request, ANSWER).await {
            while let Ok(Some(more)) = watch.next().await {
                for line in more {
                    let Ok(mut value) = serde_json::from_slice::<Value>(&line) else { continue };
                    let event = value["type"].as_str().unwrap_or_default().to_owned();
                    if tell.send(Told { kind, event, object: value["object"].take() }).is_err() {
                        return;
                    }
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The faults that are orders at the API server, by the order's number.
type Orders = Mutex<Vec<(u64, Arc<str>)>>;

/// Orders of faults at the API server.
pub(super) struct HubFaults {
    endpoint: Endpoint,
    orders: Arc<Orders>,
    tell: mpsc::UnboundedSender<Report>,
    looking: Option<AbortOnDropHandle<()>>,
}

impl HubFaults {
    pub(super) fn new(endpoint: Endpoint, tell: mpsc::UnboundedSender<Report>) -> Self {
        Self { endpoint, orders: Arc::default(), tell, looking: None }
    }

    /// A fault begins.
    pub(super) async fn order(&mut self, fault: Arc<str>, order: &Order) -> Result<(), String> {
        let answer = ask(&self.endpoint, &Request::new(Method::Post, FAULTS).json(order)).await?;
        let body: Value = answer.decode().map_err(|error| error.to_string())?;
        let number = body["order"].as_u64().ok_or_else(|| format!("POST {FAULTS} answered {body}"))?;
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).push((number, fault));
        if self.looking.is_none() {
            let (endpoint, orders, tell) = (self.endpoint.clone(), self.orders.clone(), self.tell.clone());
            self.looking = Some(AbortOnDropHandle::new(tokio::spawn(async move {
                loop {
                    look(&endpoint, &orders, &tell).await;
                    tokio::time::sleep(LOOK).await;
                }
            })));
        }
        Ok(())
    }

    /// A fault ends.
    pub(super) async fn cancel(&self, fault: &str) -> Result<(), String> {
        let numbers: Vec<u64> = {
            let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
            orders.iter().filter(|(_, name)| **name == *fault).map(|(number, _)| *number).collect()
        };
        for number in numbers {
            ask(&self.endpoint, &Request::new(Method::Delete, format!("{FAULTS}/{number}"))).await?;
        }
        Ok(())
    }

    /// The run ends: what was done until now is told.
    pub(super) async fn finish(&mut self) {
        if self.looking.take().is_some() {
            look(&self.endpoint, &self.orders, &self.tell).await;
        }
    }
}

/// Tells what faults have done since the last look.
async fn look(endpoint: &Endpoint, orders: &Orders, tell: &mpsc::UnboundedSender<Report>) {
    let happened = async {
        let answer = ask(endpoint, &Request::new(Method::Get, FAULTS)).await?;
        answer.decode::<Vec<(u64, String)>>().map_err(|error| error.to_string())
    };
    let reports: Vec<Report> = match happened.await {
        Ok(happened) => {
            let orders = orders.lock().unwrap_or_else(PoisonError::into_inner);
            let of = |number| orders.iter().find(|(order, _)| *order == number).map(|(_, fault)| fault.clone());
            happened
                .into_iter()
                .filter_map(|(number, what)| Some(Report::Effect { fault: of(number)?, host: None, what }))
                .collect()
        }
        Err(error) => vec![Report::Broken(LabError::new(API_SERVER, error))],
    };
    for report in reports {
        let _ = tell.send(report);
    }
}

async fn ask(endpoint: &Endpoint, request: &Request) -> Result<Response, String> {
    let subject = format!("{} {}", request.method, request.path);
    match HttpConnection::new(endpoint.clone()).send(request, ANSWER).await {
        Ok(response) if response.is_success() => Ok(response),
        Ok(response) => Err(format!("{subject} answered {}", response.status)),
        Err(error) => Err(format!("{subject}: {error}")),
    }
}
