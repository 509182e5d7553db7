//! Over real sockets: a small service behind the gateway, and before it the connection that simulated hosts have.

use std::net::Ipv4Addr;

use rstest::rstest;
use vlab_api::http::{Request, Response, TransportError};
use vlab_client::{Endpoint, HttpConnection};
use vlab_drive::requests::Select;

use super::*;

const BUDGET: Duration = Duration::from_secs(10);
const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// Answers each request with its body, those for `/broken…` with 503, and counts them.
async fn service() -> (SocketAddr, Arc<std::sync::atomic::AtomicU64>) {
    let listener = tokio::net::TcpListener::bind(ANY).await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counter = seen.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let counter = counter.clone();
            let echo = service_fn(move |request: hyper::Request<Incoming>| {
                counter.fetch_add(1, Ordering::SeqCst);
                async move {
                    let broken = request.uri().path().starts_with("/broken");
                    let mut response = hyper::Response::new(request.into_body());
                    if broken {
                        *response.status_mut() = hyper::StatusCode::SERVICE_UNAVAILABLE;
                    }
                    Ok::<_, hyper::Error>(response)
                }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), echo));
        }
    });
    (address, seen)
}

struct GatewayFixture {
    gateway: Gateway,
    news: mpsc::UnboundedReceiver<News>,
    client: HttpConnection,
    seen: Arc<std::sync::atomic::AtomicU64>,
}

impl GatewayFixture {
    async fn new() -> Self {
        let (upstream, seen) = service().await;
        let (mut gateway, news) = Gateway::new(upstream, 1);
        let address = gateway.listen(std::net::TcpListener::bind(ANY).unwrap(), Side::Hosts).unwrap();
        Self { gateway, news, client: HttpConnection::new(Endpoint::new(address)), seen }
    }

    fn wrong(&self, wrong: RequestFault, at_most: Option<u64>) {
        self.gateway.inject(Rule { fault: "f".into(), select: Select::default(), percent: 100, at_most, wrong });
    }

    async fn post(&mut self) -> Result<Response, TransportError> {
        self.client.send(&Request::new(Method::Post, "/api/assisted-install/v2/events").json(&"hello"), BUDGET).await
    }

    fn seen(&self) -> u64 {
        self.seen.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn without_rules_everything_gets_through_and_is_counted() {
    let mut bench = GatewayFixture::new().await;
    for _ in 0..3 {
        assert_eq!(bench.post().await.unwrap().body, b"\"hello\"");
    }
    let big = vec![b'x'; 3 << 20];
    let mut request = Request::new(Method::Put, "/big");
    request.body = big.clone().into();
    assert!(bench.client.send(&request, BUDGET).await.unwrap().body == big);
    assert_eq!(bench.client.times_opened(), 1);
    let counts = bench.gateway.counts();
    assert_eq!(counts[&("v2TriggerEvent", 200)].requests, 3);
    assert_eq!(counts[&("PUT", 200)].requests, 1);
    let told = std::iter::from_fn(|| bench.news.try_recv().ok());
    let good: Vec<bool> = told.map(|n| matches!(n, News::Answered(a) if a.status == 200 && !a.bad)).collect();
    assert_eq!(good, [true; 4], "no fault, and nothing bad");
}

#[tokio::test]
async fn an_answer_in_the_services_place() {
    let mut bench = GatewayFixture::new().await;
    bench.wrong(RequestFault::Status { status: 429, retry_after: Some(7) }, Some(1));
    let answer = bench.post().await.unwrap();
    assert_eq!((answer.status, answer.get_header("retry-after")), (429, Some("7")));
    assert_eq!(bench.post().await.unwrap().status, 200);
    assert_eq!(bench.seen(), 1, "the service saw only the second");
    let News::Effect(effects) = bench.news.try_recv().unwrap() else { panic!("it is a fault") };
    assert_eq!((&*effects.fault, effects.what.as_str()), ("f", "v2TriggerEvent was answered 429"));
    assert_eq!(bench.gateway.clear("f"), Some(1));
    assert_eq!(bench.gateway.counts()[&("v2TriggerEvent", 429)].requests, 1);
}

#[tokio::test]
async fn a_late_answer() {
    let mut bench = GatewayFixture::new().await;
    bench.wrong(RequestFault::Late(Duration::from_millis(60)), None);
    let begun = Instant::now();
    assert_eq!(bench.post().await.unwrap().status, 200);
    assert!(begun.elapsed() >= Duration::from_millis(60), "{:?}", begun.elapsed());
}

/// Raw bytes, because a client library hides how a connection ended.
async fn how_it_ends(address: SocketAddr) -> Result<usize, io::ErrorKind> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi";
    stream.write_all(request).await.unwrap();
    let mut buffer = [0; 512];
    tokio::time::timeout(BUDGET, stream.read(&mut buffer)).await.unwrap().map_err(|e| e.kind())
}

#[rstest]
#[case::dropped(RequestFault::Dropped(LostAt::Request), Ok(0), 0)]
#[case::reset(RequestFault::Reset(LostAt::Request), Err(io::ErrorKind::ConnectionReset), 0)]
#[case::answer_dropped(RequestFault::Dropped(LostAt::Answer), Ok(0), 1)]
#[case::answer_reset(RequestFault::Reset(LostAt::Answer), Err(io::ErrorKind::ConnectionReset), 1)]
#[tokio::test]
async fn connections_end_as_they_should(
    #[case] wrong: RequestFault,
    #[case] expected: Result<usize, io::ErrorKind>,
    #[case] seen: u64,
) {
    let (upstream, counter) = service().await;
    let (mut gateway, _struck) = Gateway::new(upstream, 1);
    let address = gateway.listen(std::net::TcpListener::bind(ANY).unwrap(), Side::Hosts).unwrap();
    gateway.inject(Rule { fault: "f".into(), select: Select::default(), percent: 100, at_most: None, wrong });
    assert_eq!(how_it_ends(address).await, expected);
    assert_eq!(counter.load(Ordering::SeqCst), seen);
}

#[tokio::test]
async fn a_stale_connection_is_closed_when_its_next_request_comes() {
    let mut bench = GatewayFixture::new().await;
    bench.wrong(RequestFault::StaleKeepAlive, Some(1));
    assert_eq!(bench.post().await.unwrap().status, 200, "a new connection works");
    assert!(matches!(bench.post().await, Err(TransportError::Lost(_))));
    assert_eq!(bench.post().await.unwrap().status, 200);
    assert_eq!((bench.seen(), bench.client.times_opened()), (2, 2));
}

#[tokio::test]
async fn a_service_that_is_not_there_is_a_lost_connection() {
    let gone = std::net::TcpListener::bind(ANY).unwrap();
    let upstream = gone.local_addr().unwrap();
    drop(gone);
    let (mut gateway, _struck) = Gateway::new(upstream, 1);
    let address = gateway.listen(std::net::TcpListener::bind(ANY).unwrap(), Side::User).unwrap();
    assert_eq!(how_it_ends(address).await, Ok(0));
    assert_eq!(gateway.counts()[&("POST", 0)].requests, 1);
}

/// What hosts are answered is told each time: what the service itself gets wrong as bad, and what a fault answers as it is.
#[tokio::test]
async fn answers_to_hosts_are_told() {
    let mut bench = GatewayFixture::new().await;
    let host = Uuid::from_u128(7);
    let path = format!("/broken/infra-envs/{}/hosts/{host}/instructions?x=1", Uuid::nil());
    bench.post().await.unwrap();
    let News::Answered(good) = bench.news.try_recv().unwrap() else { panic!("no fault was there") };
    assert_eq!((good.status, good.bad), (200, false));
    assert_eq!(bench.client.send(&Request::new(Method::Get, &path), BUDGET).await.unwrap().status, 503);
    let News::Answered(bad) = bench.news.try_recv().unwrap() else { panic!("no fault was there") };
    let request = format!("GET {}", path.trim_end_matches("?x=1"));
    assert_eq!((bad.host, bad.request, bad.status, bad.bad), (Some(host), request, 503, true));
    bench.wrong(RequestFault::Status { status: 500, retry_after: None }, Some(1));
    assert_eq!(bench.post().await.unwrap().status, 500);
    assert!(matches!(bench.news.try_recv(), Ok(News::Effect(_))));
    let News::Answered(fault) = bench.news.try_recv().unwrap() else { panic!("its effect was told") };
    assert_eq!((fault.status, fault.bad), (500, false));
    assert!(bench.news.try_recv().is_err());
}

#[rstest]
#[case(Side::Hosts, Some((0, true)))]
#[case(Side::User, None)]
#[tokio::test]
async fn a_service_that_takes_no_connection_is_told_where_hosts_ask(
    #[case] side: Side,
    #[case] told: Option<(u16, bool)>,
) {
    let gone = std::net::TcpListener::bind(ANY).unwrap();
    let upstream = gone.local_addr().unwrap();
    drop(gone);
    let (mut gateway, mut news) = Gateway::new(upstream, 1);
    let address = gateway.listen(std::net::TcpListener::bind(ANY).unwrap(), side).unwrap();
    assert_eq!(how_it_ends(address).await, Ok(0));
    let status = news.try_recv().ok().map(|news| match news {
        News::Answered(answered) => (answered.status, answered.bad),
        News::Effect(effect) => panic!("{effect:?}"),
    });
    assert_eq!(status, told);
}
