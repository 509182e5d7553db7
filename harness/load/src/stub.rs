//! A target that only answers: what the generator can do where the service costs nothing.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// Name of the metric by which it is known.
pub const METRIC: &str = "vlab_load_stub";

/// What it answers to that request: status and body.
fn answer(method: &str, path: &str) -> (u16, &'static str) {
    let path = path.split('?').next().unwrap_or(path);
    match (method, path.rsplit('/').next().unwrap_or_default()) {
        ("GET", "instructions") => (
            200,
            r#"{"next_instruction_seconds":60,"post_step_action":"continue","instructions":[{"step_type":"inventory","step_id":"inventory-1","args":["0"]}]}"#,
        ),
        ("POST", "instructions") => (204, ""),
        ("POST", "hosts") => (201, r#"{"next_step_runner_command":{"args":["{}"]}}"#),
        ("POST", "infra-envs") => (
            201,
            r#"{"id":"00000000-0000-4000-8000-000000000001","name":"stub","kind":"InfraEnv","href":"","type":"full-iso","created_at":"2026-01-01T00:00:00.000Z","updated_at":"2026-01-01T00:00:00.000Z"}"#,
        ),
        ("GET", "metrics") => (200, "# HELP vlab_load_stub 1 of what only answers.\nvlab_load_stub 1\n"),
        _ => (404, "{}"),
    }
}

async fn handle(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, body) = answer(request.method().as_str(), request.uri().path());
    // The body must be read, or the connection cannot be used again.
    let _ = request.into_body().collect().await;
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
    Ok(response)
}

/// Answers on that socket until the task is dropped.
///
/// # Errors
/// When connections cannot be accepted any more.
pub async fn serve(listener: TcpListener) -> std::io::Result<()> {
    loop {
        let (stream, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            // One connection that is gone already, or no descriptor free at this moment, is no reason to end.
            Err(error) if error.raw_os_error().is_some() => {
                tokio::task::yield_now().await;
                continue;
            }
            Err(error) => return Err(error),
        };
        let _ = stream.set_nodelay(true);
        tokio::spawn(async move {
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(handle))
                .await;
        });
    }
}
