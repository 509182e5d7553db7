//! A small asynchronous client for the few calls that a person or a harness makes. One connection, one call at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use vlab_api::ops::{ApiCall, Failure};

use crate::{Endpoint, HttpConnection};

/// A client of a service. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Client {
    connection: Arc<Mutex<HttpConnection>>,
    budget: Duration,
}

impl Client {
    /// A client that gives each call `budget` to complete.
    pub fn new(endpoint: Endpoint, budget: Duration) -> Self {
        Self { connection: Arc::new(Mutex::new(HttpConnection::new(endpoint))), budget }
    }

    /// Makes a call. Nothing is repeated: whether that is safe, only the caller knows.
    ///
    /// # Errors
    /// [`Failure`] when the service refuses, does not answer in time, or answers with something else.
    pub async fn call<T>(&self, call: ApiCall<T>) -> Result<T, Failure> {
        let mut connection = self.connection.lock().await;
        let response = connection
            .send(&call.request, self.budget)
            .await
            .map_err(|error| Failure::NoAnswer { operation: call.operation, error })?;
        call.read(response)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use rstest::rstest;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use uuid::Uuid;
    use wiremock::matchers::{body_json, header, method, path};
    use wiremock::{Mock, MockServer, ResponseTemplate};

    use super::*;
    use vlab_api::http::TransportError;
    use vlab_api::ops;
    use vlab_api::types::{ClusterCreateParams, HostProgress, HostStage};

    const BUDGET: Duration = Duration::from_secs(10);

    async fn client(server: &MockServer) -> Client {
        Client::new(Endpoint::resolve(&server.uri()).await.unwrap(), BUDGET)
    }

    #[tokio::test]
    async fn a_call_sends_what_the_api_wants() {
        let server = MockServer::builder().start().await;
        let id = Uuid::from_u128(7);
        Mock::given(method("PUT"))
            .and(path(format!("/api/assisted-install/v2/infra-envs/{id}/hosts/{id}/progress")))
            .and(header("content-type", "application/json"))
            .and(header("x-secret-key", "s3cret"))
            .and(body_json(serde_json::json!({"current_stage": "Writing image to disk", "progress_info": "5%"})))
            .respond_with(ResponseTemplate::new(200))
            .expect(1)
            .mount(&server)
            .await;
        let progress =
            HostProgress { current_stage: Some(HostStage::WritingImageToDisk), progress_info: Some("5%".into()) };
        client(&server)
            .await
            .call(ops::update_host_progress(id, id, &progress).header("X-Secret-Key", "s3cret"))
            .await
            .unwrap();
    }

    #[rstest]
    #[case::bad_request(400, r#"{"code":400,"message":"name in body is required"}"#, "name in body is required")]
    #[case::conflict(409, r#"{"kind":"Error","id":409,"code":"409","reason":"not now"}"#, "not now")]
    #[case::proxy_page(503, "<h1>busy</h1>", "<h1>busy</h1>")]
    #[tokio::test]
    async fn a_refusal_is_told_with_its_reason(#[case] status: u16, #[case] body: &str, #[case] reason: &str) {
        let server = MockServer::builder().start().await;
        Mock::given(method("POST"))
            .respond_with(ResponseTemplate::new(status).set_body_string(body))
            .mount(&server)
            .await;
        let failure =
            client(&server).await.call(ops::create_cluster(&ClusterCreateParams::default())).await.unwrap_err();
        assert_eq!(failure, Failure::Refused { operation: "v2RegisterCluster", status, reason: reason.to_owned() });
    }

    #[tokio::test]
    async fn success_with_another_body_is_no_success() {
        let server = MockServer::builder().start().await;
        Mock::given(method("GET")).respond_with(ResponseTemplate::new(200).set_body_string("[]")).mount(&server).await;
        let failure = client(&server).await.call(ops::get_cluster(Uuid::nil())).await.unwrap_err();
        assert!(matches!(failure, Failure::Unreadable { status: 200, .. }), "{failure:?}");
    }

    #[tokio::test]
    async fn a_slow_answer_is_a_timeout() {
        let server = MockServer::builder().start().await;
        Mock::given(method("GET"))
            .respond_with(ResponseTemplate::new(200).set_delay(Duration::from_secs(60)))
            .mount(&server)
            .await;
        let budget = Duration::from_millis(50);
        let client = Client::new(Endpoint::resolve(&server.uri()).await.unwrap(), budget);
        let failure = client.call(ops::list_clusters()).await.unwrap_err();
        assert_eq!(failure, Failure::NoAnswer { operation: "v2ListClusters", error: TransportError::Timeout(budget) });
    }

    #[tokio::test]
    async fn nobody_there_is_told_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let failure = Client::new(Endpoint::new(address), BUDGET).call(ops::list_clusters()).await.unwrap_err();
        assert!(
            matches!(&failure, Failure::NoAnswer { error: TransportError::Connect(text), .. } if text.contains(&address.to_string())),
            "{failure:?}"
        );
    }

    /// Answers one request per connection and then closes it although the client would keep it.
    async fn one_answer_each(answers: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            for _ in 0..answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut seen = [0; 4096];
                let _ = stream.read(&mut seen).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]").await;
            }
        });
        address
    }

    #[tokio::test]
    async fn a_stale_connection_is_opened_again() {
        let address = one_answer_each(3).await;
        let mut connection = HttpConnection::new(Endpoint::new(address));
        for n in 1..=3 {
            let response = connection.send(&ops::list_clusters().request, BUDGET).await.unwrap();
            assert_eq!(response.body, b"[]");
            assert_eq!(connection.times_opened(), n);
        }
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_is_a_lost_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = [0; 4096];
            let _ = stream.read(&mut seen).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n[").await;
        });
        let failure = Client::new(Endpoint::new(address), BUDGET).call(ops::list_clusters()).await.unwrap_err();
        assert!(matches!(&failure, Failure::NoAnswer { error: TransportError::Lost(_), .. }), "{failure:?}");
    }
}
