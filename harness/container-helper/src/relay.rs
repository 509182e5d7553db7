//! The socket through which `testcontainers` reaches the engine, whichever it is.
//!
//! `testcontainers` speaks the newest version of the engine's language and only that; engines refuse what is newer than they
//! are (Docker 20.10 of Debian 12 does). And it looks for the engine in fewer places than [`vlab_container_engine::find`]. So it
//! is given this socket as `DOCKER_HOST`; here each request gets the version that the engine has and goes on to it.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixListener, UnixStream};
use vlab_container_engine::Address;

/// An engine, and the version of the language that it speaks.
struct Engine {
    address: Address,
    api: String,
}

/// Listens at the socket and forwards from now on.
pub(crate) fn open(socket: &Path, address: Address, api: &str) -> io::Result<()> {
    // Of a process with this number that died before it could remove it.
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket)?;
    tokio::spawn(serve(listener, Engine { address, api: api.to_owned() }));
    Ok(())
}

async fn serve(listener: UnixListener, engine: Engine) {
    let engine = Arc::new(engine);
    while let Ok((stream, _)) = listener.accept().await {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let engine = Arc::clone(&engine);
                async move { Ok::<_, Infallible>(forward(request, &engine).await) }
            });
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

type Body = Either<Incoming, Full<Bytes>>;

async fn forward(request: Request<Incoming>, engine: &Engine) -> Response<Body> {
    match forward_once(request, engine).await {
        Ok(response) => response.map(Either::Left),
        Err(problem) => {
            let text = format!("{{\"message\":{}}}", serde_json::Value::from(format!("{}: {problem}", engine.address)));
            let mut response = Response::new(Either::Right(Full::new(Bytes::from(text))));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}

async fn forward_once(mut request: Request<Incoming>, engine: &Engine) -> Result<Response<Incoming>, String> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = with_version(path, &engine.api).parse::<Uri>().map_err(|error| error.to_string())?;
    match &engine.address {
        Address::Unix(path) => send(request, UnixStream::connect(path).await.map_err(|e| e.to_string())?).await,
        Address::Tcp(place) => send(request, TcpStream::connect(place).await.map_err(|e| e.to_string())?).await,
    }
}

async fn send<S>(request: Request<Incoming>, stream: S) -> Result<Response<Incoming>, String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    tokio::spawn(connection);
    sender.send_request(request.map(|body| body.boxed())).await.map_err(|e| e.to_string())
}

/// A path with the version of the language that the engine speaks.
fn with_version(path: &str, api: &str) -> String {
    let after = path.strip_prefix("/v").and_then(|rest| {
        let (version, after) = rest.split_at(rest.find('/')?);
        version.chars().all(|c| c.is_ascii_digit() || c == '.').then_some(after)
    });
    match after {
        Some(after) => format!("/v{api}{after}"),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/v1.53/containers/json?all=1", "/v1.41/containers/json?all=1")]
    #[case("/version", "/version")]
    #[case("/volumes/v1.0/x", "/volumes/v1.0/x")]
    #[case("/volumes", "/volumes")]
    fn only_the_version_of_the_language_is_changed(#[case] path: &str, #[case] expected: &str) {
        assert_eq!(with_version(path, "1.41"), expected);
    }
}
