//! How a check reaches the service under test: a thing that answers requests and lets time pass. Over HTTP that is a connection
//! and the clock on the wall; in tests it is a core of the simulated service and a clock that jumps.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use vlab_api::Timestamp;
use vlab_api::http::{Request, Response, TransportError, is_for_hub};
use vlab_client::{Endpoint, HttpConnection};

/// What comes later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A way to the service under test.
pub trait Wire: Send {
    /// Sends a request and waits for the answer.
    fn send<'a>(&'a mut self, request: &'a Request) -> Later<'a, Result<Response, TransportError>>;
    /// Lets time pass.
    fn sleep(&mut self, time: Duration) -> Later<'_, ()>;
    /// What time it is there, as a host would tell it.
    fn now(&self) -> Timestamp;
    /// The base URL of the hub's API server, as the service's controllers reach it; empty: there is none.
    fn hub(&self) -> String;
}

/// How long one request may take.
const ANSWER: Duration = Duration::from_secs(30);

/// One connection to a service, and perhaps one to the API server of its controllers.
pub struct HttpWire {
    connection: HttpConnection,
    hub: Option<(String, HttpConnection)>,
    headers: Vec<(String, String)>,
}

impl HttpWire {
    /// A connection that sends these headers with every request.
    pub fn new(endpoint: Endpoint, headers: Vec<(String, String)>) -> Self {
        Self { connection: HttpConnection::new(endpoint), hub: None, headers }
    }

    /// The same, with the API server on which the service's controllers work.
    #[must_use]
    pub fn with_hub(mut self, hub: Option<Endpoint>) -> Self {
        self.hub = hub.map(|hub| (format!("http://{}", hub.address()), HttpConnection::new(hub)));
        self
    }
}

impl fmt::Debug for HttpWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpWire").field("connection", &self.connection).finish_non_exhaustive()
    }
}

impl Wire for HttpWire {
    fn send<'a>(&'a mut self, request: &'a Request) -> Later<'a, Result<Response, TransportError>> {
        Box::pin(async move {
            if let Some((_, hub)) = self.hub.as_mut().filter(|_| is_for_hub(&request.path)) {
                return hub.send(request, ANSWER).await;
            }
            if self.headers.is_empty() {
                return self.connection.send(request, ANSWER).await;
            }
            let mut request = request.clone();
            request.headers.extend(self.headers.iter().cloned());
            self.connection.send(&request, ANSWER).await
        })
    }

    fn sleep(&mut self, time: Duration) -> Later<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn hub(&self) -> String {
        self.hub.as_ref().map(|(url, _)| url.clone()).unwrap_or_default()
    }
}
