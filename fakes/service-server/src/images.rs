//! The image service by itself, on an address of its own, as it runs in production: the service that knows the infra-envs is
//! somewhere else and is asked over HTTP. So the real service has one, too.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use vlab_api::http::{Request, Response};
use vlab_client::{Endpoint, HttpConnection};

use crate::connection::{OutBody, image_to_hyper, plain, to_hyper};
use crate::engine::error;
use vlab_image_service::http::Reply;
use vlab_image_service::routes::{ImageRequest, Refused, route};
use vlab_image_service::service::{AssistedService, ImageResponse, ImageService};

/// How long the service may take to say what it knows about an infra-env.
const PATIENCE: Duration = Duration::from_secs(30);
/// So many images are sent at once; more wait. `MAX_CONCURRENT_REQUESTS` of the real service.
const MAX_REQUESTS: usize = 400;

/// The image service, and how many of its answers may be under way at once.
pub(crate) struct Images {
    service: ImageService,
    permits: Arc<Semaphore>,
}

/// An answer that is ready to be sent.
pub(crate) struct PermittedResponse {
    pub(crate) answer: ImageResponse,
    /// Held until the body is sent.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

impl From<Reply> for PermittedResponse {
    fn from(reply: Reply) -> Self {
        Self { answer: reply.into(), permit: None }
    }
}

impl Images {
    pub(crate) fn new(service: ImageService) -> Self {
        Self { service, permits: Arc::new(Semaphore::new(MAX_REQUESTS)) }
    }

    /// Lets the image service answer, which asks `service` about the infra-env.
    pub(crate) async fn answer(
        &self,
        request: &Request,
        wanted: Result<ImageRequest, Refused>,
        service: &impl AssistedService,
    ) -> PermittedResponse {
        match wanted {
            Ok(ImageRequest::Live) => Reply::empty(200).into(),
            Ok(wanted) => {
                // The semaphore is never closed.
                let permit = self.permits.clone().acquire_owned().await.ok();
                let answer = self.service.answer(request, wanted, service).await;
                // A refusal is short.
                let permit = permit.filter(|_| answer.base.is_some());
                PermittedResponse { answer, permit }
            }
            Err(refused) if refused.why.is_empty() => Reply::empty(refused.status).into(),
            Err(refused) => Reply::text(refused.status, &refused.why).into(),
        }
    }
}

/// An image service and where the service is that it asks.
struct Beside {
    images: Images,
    service: Endpoint,
}

impl AssistedService for Beside {
    async fn ask(&self, request: Request) -> Response {
        // Three short questions for an image: connections that are kept would only have to be watched.
        let mut connection = HttpConnection::new(self.service.clone());
        let answered = connection.send(&request, PATIENCE).await;
        answered.unwrap_or_else(|why| error(502, format!("cannot reach the service: {why}")))
    }
}

/// Serves images for the infra-envs of the service at `service` until `shutdown` is cancelled. Connections that are open then are
/// closed.
///
/// # Errors
/// When no connection can be accepted any more.
pub async fn serve_images(
    listener: StdListener,
    images: ImageService,
    service: Endpoint,
    shutdown: CancellationToken,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let beside = Arc::new(Beside { images: Images::new(images), service });
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(carry(stream, beside.clone()));
                }
                // A client that was gone before we looked.
                Err(gone) if matches!(gone.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) => {}
                Err(error) => return Err(error),
            },
        }
    }
}

async fn carry(stream: TcpStream, beside: Arc<Beside>) {
    let service = service_fn(|request| {
        let beside = beside.clone();
        async move { Ok::<_, Infallible>(answer(&beside, request).await) }
    });
    if let Err(error) = http1::Builder::new().half_close(true).serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection to the image service ended early");
    }
}

async fn answer(beside: &Beside, request: hyper::Request<Incoming>) -> hyper::Response<OutBody> {
    // None of its requests has a body.
    let (head, _) = request.into_parts();
    let request = plain(&head, Vec::new());
    match route(&request) {
        Some((_, wanted)) => image_to_hyper(request.method, beside.images.answer(&request, wanted, beside).await),
        None => to_hyper(error(404, format!("the image service has no path {}", request.split_path().0))),
    }
}
