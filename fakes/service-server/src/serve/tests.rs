//! The shell over loopback sockets, with a core that is simple enough to see what the shell did: notes under names.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request, Response};
use vlab_api::types::{ErrorBody, Event};

use super::*;
use crate::engine::error;
use crate::pg::{PgOptions, PgStore};
use crate::store::{MemoryStore, PoolState};
use vlab_service::{EventRow, FileRow, Snapshot, Stats, Write};

mod heartbeats;
mod limits;

// --- a core ---------------------------------------------------------------------------------------------------------

#[derive(Clone, Debug, Default)]
struct NotesConfig {
    /// The monitors run this often.
    every: Option<Duration>,
    /// Each run of the monitors panics.
    broken_monitors: bool,
    /// A request takes this long to think about.
    think: Duration,
}

/// `POST /notes/<name>` keeps the body, `GET /notes/<name>` shows it, `POST /panic` is a defect, `POST /poison` writes what
/// the store refuses from the second time on, `POST /beat` is a poll.
struct Notes {
    config: NotesConfig,
    kept: BTreeMap<String, Arc<[u8]>>,
    confirmed: BTreeMap<String, Arc<[u8]>>,
    writes: Vec<Write>,
    wake_at: Option<Timestamp>,
    runs: u64,
}

impl Logic for Notes {
    type Config = NotesConfig;

    fn new(config: NotesConfig, snapshot: Snapshot) -> Self {
        let kept: BTreeMap<_, _> = snapshot.files.into_iter().map(|f| (f.key, f.bytes)).collect();
        let wake_at = config.every.map(|_| Timestamp::UNSET);
        Self { config, confirmed: kept.clone(), kept, writes: vec![], wake_at, runs: 0 }
    }

    fn handle(&mut self, now: Timestamp, request: &Request) -> Response {
        assert_eq!(now.as_micros() % 1000, 0, "finer than a millisecond");
        std::thread::sleep(self.config.think);
        match (request.method, request.path.as_str()) {
            (Method::Post, "/panic") => {
                self.put("half done", b"x");
                panic!("as asked");
            }
            (Method::Post, "/poison") => {
                let event = Event { message: "poison".into(), event_time: now, ..Event::default() };
                self.writes.push(Write::AppendEvent(EventRow { seq: 0, event }));
                Response::empty(201)
            }
            (Method::Post, "/beat") => {
                self.writes.push(heartbeats::beat(1, now, None));
                Response::empty(204)
            }
            (Method::Post, path) => match path.strip_prefix("/notes/") {
                Some(name) => {
                    self.put(name, &request.body);
                    Response::empty(201)
                }
                None => error(404, "no"),
            },
            (_, path) => match path.strip_prefix("/notes/").and_then(|name| self.kept.get(name)) {
                Some(body) => {
                    let mut response = Response::empty(200).header("x-note", "yes");
                    response.body = body.to_vec().into();
                    response
                }
                None => error(404, "no such note"),
            },
        }
    }

    fn wake(&mut self, now: Timestamp) {
        assert!(!self.config.broken_monitors, "the monitors are broken");
        self.runs += 1;
        self.wake_at = self.config.every.map(|every| now + every);
    }

    fn next_wake(&self) -> Option<Timestamp> {
        self.wake_at
    }

    fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.writes)
    }

    fn confirm(&mut self) {
        self.confirmed.clone_from(&self.kept);
    }

    fn rollback(&mut self) {
        self.kept.clone_from(&self.confirmed);
        self.writes.clear();
    }

    fn stats(&self) -> Stats {
        Stats { files: (self.kept.len() as u64, 0), host_monitor_runs: self.runs, ..Stats::default() }
    }
}

impl Notes {
    fn put(&mut self, name: &str, body: &[u8]) {
        self.kept.insert(name.to_owned(), body.into());
        self.writes.push(Write::PutFile(FileRow { key: name.to_owned(), bytes: body.into() }));
    }
}

// --- a store that fails when told --------------------------------------------------------------------------------------

#[derive(Clone, Debug, Default)]
struct Moody {
    inner: MemoryStore,
    /// The next commit is stored, or not, and its fate is not told.
    lose_after: Arc<AtomicBool>,
    lose_before: Arc<AtomicBool>,
    away: Arc<AtomicBool>,
    slow: Duration,
    /// Commits that were begun, and those that were over.
    begun: Arc<AtomicU64>,
    commits: Arc<AtomicU64>,
}

impl Store for Moody {
    async fn load(&mut self) -> Result<Snapshot, StoreError> {
        if self.away.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("moody".into()));
        }
        Ok(self.inner.snapshot())
    }

    async fn commit(&mut self, writes: Vec<Write>) -> Result<(), StoreError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(self.slow).await;
        self.commits.fetch_add(1, Ordering::SeqCst);
        if self.lose_before.swap(false, Ordering::SeqCst) {
            return Err(StoreError::Unknown("lost before".into()));
        }
        self.inner.apply(writes)?;
        if self.lose_after.swap(false, Ordering::SeqCst) {
            return Err(StoreError::Unknown("lost after".into()));
        }
        Ok(())
    }

    async fn health(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn pool(&self) -> PoolState {
        PoolState { open: 1, made: 1 }
    }
}

/// Waits for a condition.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !condition().await {
        assert!(std::time::Instant::now() < end, "{what}: not within a minute");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

// --- a service and its clients -----------------------------------------------------------------------------------------

struct Running {
    address: SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
}

impl Running {
    async fn start<S: Store>(store: S, config: NotesConfig, limits: Limits) -> Self {
        let (listener, address) = bind(Listen::Address(([127, 0, 0, 1], 0).into())).unwrap();
        let (ready, is_ready) = oneshot::channel();
        let shutdown = CancellationToken::new();
        let images = ImageService::open(&[], "").unwrap();
        let front = Front { listener, address, images, hub: None, limits, ready: Some(ready), from: Timestamp::now() };
        let task = tokio::spawn(serve_logic::<Notes, S>(front, store, config, shutdown.clone()));
        assert_eq!(is_ready.await.unwrap(), address);
        Self { address, shutdown, task }
    }

    async fn client(&self) -> Client {
        Client { stream: TcpStream::connect(self.address).await.unwrap(), lost: None }
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> HttpReply {
        self.client().await.ask(method, path, body).await
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }
}

struct Client {
    stream: TcpStream,
    /// Why it cannot be read any more, unless the server has closed it in order.
    lost: Option<io::Error>,
}

#[derive(Debug)]
struct HttpReply {
    status: u16,
    head: String,
    body: String,
}

impl HttpReply {
    fn reason(&self) -> String {
        let error: ErrorBody = serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"));
        assert_eq!((error.kind.as_str(), error.id), ("Error", i64::from(self.status)));
        error.reason
    }
}

impl Client {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The next answer; `None` when the server closed the connection.
    async fn answer(&mut self) -> Option<HttpReply> {
        let mut bytes = Vec::new();
        let reading = async {
            while !bytes.ends_with(b"\r\n\r\n") {
                let mut one = [0];
                match self.stream.read(&mut one).await {
                    Ok(0) => return None,
                    Ok(_) => {}
                    Err(error) => {
                        self.lost = Some(error);
                        return None;
                    }
                }
                bytes.push(one[0]);
            }
            let head = String::from_utf8(bytes.clone()).unwrap().to_lowercase();
            let length = head
                .lines()
                .find_map(|l| l.strip_prefix("content-length: "))
                .map_or(0, |n| n.trim().parse::<usize>().unwrap());
            let mut body = vec![0; length];
            self.stream.read_exact(&mut body).await.unwrap();
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            Some(HttpReply { status, head, body: String::from_utf8(body).unwrap() })
        };
        tokio::time::timeout(Duration::from_secs(60), reading).await.expect("no answer within a minute")
    }

    async fn ask(&mut self, method: &str, path: &str, body: &str) -> HttpReply {
        let length = body.len();
        self.send(format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")).await;
        let answer = self.answer().await;
        answer.unwrap_or_else(|| panic!("{method} {path}: the connection was closed ({:?})", self.lost))
    }
}

fn short() -> Limits {
    Limits {
        header_timeout: Duration::from_millis(200),
        body_pause: Duration::from_millis(200),
        body_bytes: 1000,
        ..Limits::default()
    }
}

// --- HTTP ----------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn requests_and_answers_pass_through() {
    let service = Running::start(MemoryStore::new(), NotesConfig::default(), Limits::default()).await;
    let mut client = service.client().await;
    assert_eq!(client.ask("POST", "/notes/a", "hello").await.status, 201);
    let answer = client.ask("GET", "/notes/a", "").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
    assert!(answer.head.contains("x-note: yes\r\n"), "{}", answer.head);
    assert_eq!(client.ask("GET", "/notes/b", "").await.reason(), "no such note");
    // A body in chunks is a body.
    client
        .send("POST /notes/c HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.unwrap().status, 201);
    assert_eq!(client.ask("GET", "/notes/c", "").await.body, "abcde");
    service.stop().await;
}

#[tokio::test]
async fn what_is_not_http_is_answered_400_and_the_service_goes_on() {
    let service = Running::start(MemoryStore::new(), NotesConfig::default(), Limits::default()).await;
    for garbage in [
        "this is not http\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET /notes/a HTTP/1.1\r\nno colon here\r\n\r\n",
        "POST /notes/a HTTP/1.1\r\nhost: x\r\ncontent-length: many\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n",
    ] {
        let mut client = service.client().await;
        client.send(garbage).await;
        let answer = client.answer().await;
        assert!(answer.is_some_and(|a| a.status == 400), "{garbage:?}");
        assert!(client.answer().await.is_none(), "the connection is still open after {garbage:?}");
    }
    // Headers without end.
    let mut client = service.client().await;
    let huge = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(1_000_000));
    let _ = client.stream.write_all(huge.as_bytes()).await;
    assert!(client.answer().await.is_none_or(|a| a.status == 431));
    assert_eq!(service.ask("POST", "/notes/a", "x").await.status, 201);
    service.stop().await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_answered_413_and_the_connection_stays_usable() {
    let service = Running::start(MemoryStore::new(), NotesConfig::default(), short()).await;
    let mut client = service.client().await;
    let answer = client.ask("POST", "/notes/a", &"x".repeat(1001)).await;
    assert_eq!(answer.status, 413);
    assert_eq!(answer.reason(), "the body is larger than the 1000 bytes that are allowed");
    assert_eq!(client.ask("POST", "/notes/a", &"x".repeat(1000)).await.status, 201);
    // Without a length.
    let chunk = format!("{:x}\r\n{}\r\n", 600, "y".repeat(600));
    client
        .send(format!("POST /notes/b HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n"))
        .await;
    assert_eq!(client.answer().await.unwrap().status, 413);
    assert_eq!(client.ask("GET", "/notes/b", "").await.status, 404);
    // A polite client asks first.
    client.send("POST /notes/b HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\nexpect: 100-continue\r\n\r\n").await;
    assert_eq!(client.answer().await.unwrap().status, 413);
    assert_eq!(service.ask("GET", "/notes/a", "").await.body.len(), 1000);
    service.stop().await;
}

#[tokio::test]
async fn slow_clients_are_cut_off_and_idle_ones_are_not() {
    let service = Running::start(MemoryStore::new(), NotesConfig::default(), short()).await;
    // Headers that never end, a byte at a time.
    let mut slow = service.client().await;
    let start = std::time::Instant::now();
    let dribble = async {
        for byte in "GET /notes/a HTTP/1.1\r\nx: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy".bytes().cycle() {
            if slow.stream.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), dribble).await.expect("the slow client was never cut off");
    assert!(start.elapsed() >= Duration::from_millis(200), "cut off too early");
    // A body that stops.
    let mut stuck = service.client().await;
    stuck.send("POST /notes/a HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nabc").await;
    assert_eq!(stuck.answer().await.unwrap().status, 408);
    assert!(stuck.answer().await.is_none());
    // Three times the limit between two requests is nobody's fault.
    let mut idle = service.client().await;
    assert_eq!(idle.ask("POST", "/notes/a", "x").await.status, 201);
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(idle.ask("GET", "/notes/a", "").await.status, 200);
    service.stop().await;
}

#[tokio::test]
async fn clients_that_vanish_leave_nothing_behind() {
    let store = Moody { slow: Duration::from_millis(30), ..Moody::default() };
    let service = Running::start(store, NotesConfig::default(), Limits::default()).await;
    for i in 0..50 {
        let mut client = service.client().await;
        let body = if i % 2 == 0 { "x" } else { "" };
        client.send(format!("POST /notes/{i} HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n{body}")).await;
        // Reset instead of a polite end.
        client.stream.set_zero_linger().unwrap();
    }
    let mut client = service.client().await;
    until("all other connections are gone", async || {
        let page = client.ask("GET", "/metrics", "").await.body;
        page.lines().any(|l| l == "vlab_service_connections 1")
    })
    .await;
    service.stop().await;
}

// --- batches ---------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn two_hundred_clients_share_a_few_transactions() {
    // Slow enough that all clients ask again meanwhile, on a busy machine, too.
    let store = Moody { slow: Duration::from_millis(100), ..Moody::default() };
    let commits = store.commits.clone();
    let rows = store.inner.clone();
    let service = Arc::new(Running::start(store, NotesConfig::default(), Limits::default()).await);
    let clients: Vec<_> = (0..200)
        .map(|i| {
            let service = service.clone();
            tokio::spawn(async move {
                let mut client = service.client().await;
                for round in 0..5 {
                    assert_eq!(client.ask("POST", &format!("/notes/{i}-{round}"), "x").await.status, 201);
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(rows.snapshot().files.len(), 1000);
    let commits = commits.load(Ordering::SeqCst);
    assert!(commits <= 200, "{commits} transactions for 1000 requests");
    let page = service.ask("GET", "/metrics", "").await.body;
    let value = |name: &str| -> f64 {
        page.lines()
            .find_map(|l| l.strip_prefix(&format!("{name} ")))
            .unwrap_or_else(|| panic!("{name}"))
            .parse()
            .unwrap()
    };
    assert_eq!(value("vlab_service_batch_requests_sum"), 1000.0);
    assert_eq!(value("vlab_service_batch_requests_count"), commits as f64);
    assert_eq!(value("vlab_service_files"), 1000.0);
    Arc::into_inner(service).unwrap().stop().await;
}

#[tokio::test]
async fn a_defect_hurts_only_the_request_that_met_it() {
    let config = NotesConfig { think: Duration::from_millis(2), ..NotesConfig::default() };
    let store = MemoryStore::new();
    let rows = store.clone();
    let service = Running::start(store, config, Limits::default()).await;
    let mut clients = Vec::new();
    for i in 0..40 {
        let mut client = service.client().await;
        let path = if i % 5 == 0 { "/panic".to_owned() } else { format!("/notes/{i}") };
        client.send(format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx")).await;
        clients.push(client);
    }
    for (i, client) in clients.iter_mut().enumerate() {
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.status, if i % 5 == 0 { 500 } else { 201 }, "{i}");
    }
    let files = rows.snapshot().files;
    assert_eq!(files.len(), 32);
    assert!(files.iter().all(|f| f.key != "half done"));
    let page = service.ask("GET", "/metrics", "").await.body;
    assert!(page.contains("vlab_service_panics_total 8\n"));
    service.stop().await;
}

#[tokio::test]
async fn a_request_that_the_store_refuses_does_not_spoil_its_batch() {
    // The first commit is slow, so that the others wait and become one batch.
    let store = Moody { slow: Duration::from_millis(50), ..Moody::default() };
    let rows = store.inner.clone();
    let service = Running::start(store, NotesConfig::default(), Limits::default()).await;
    assert_eq!(service.ask("POST", "/poison", "").await.status, 201);
    let mut clients = Vec::new();
    for path in ["/notes/0", "/notes/1", "/poison", "/notes/2"] {
        let mut client = service.client().await;
        client.send(format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx")).await;
        clients.push(client);
    }
    let mut statuses = Vec::new();
    for client in &mut clients {
        statuses.push(client.answer().await.unwrap().status);
    }
    assert_eq!(statuses, [201, 201, 500, 201]);
    assert_eq!(rows.snapshot().files.len(), 3);
    service.stop().await;
}

// --- a store that goes away ---------------------------------------------------------------------------------------------

#[tokio::test]
async fn after_a_loss_the_state_is_what_the_store_says() {
    let store = Moody::default();
    let service = Running::start(store.clone(), NotesConfig::default(), Limits::default()).await;
    let mut client = service.client().await;
    assert_eq!(client.ask("POST", "/notes/a", "1").await.status, 201);

    // Stored, but the answer was lost: the client is told 500, and the state has it.
    store.lose_after.store(true, Ordering::SeqCst);
    let answer = client.ask("POST", "/notes/a", "2").await;
    assert_eq!(answer.status, 500);
    assert!(answer.reason().contains("lost after"));
    let until_back = async |client: &mut Client| loop {
        let answer = client.ask("GET", "/notes/a", "").await;
        if answer.status == 200 {
            return answer.body;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(until_back(&mut client).await, "2");

    // Not stored: the state does not have it.
    store.lose_before.store(true, Ordering::SeqCst);
    assert_eq!(client.ask("POST", "/notes/a", "3").await.status, 500);
    assert_eq!(until_back(&mut client).await, "2");

    // Away for a while: every request is answered, none hangs, and health says why.
    store.away.store(true, Ordering::SeqCst);
    store.lose_before.store(true, Ordering::SeqCst);
    assert_eq!(client.ask("POST", "/notes/a", "4").await.status, 500);
    assert_eq!(client.ask("GET", "/notes/a", "").await.status, 500);
    let health = client.ask("GET", "/health", "").await;
    assert_eq!(health.status, 500);
    assert!(client.ask("GET", "/metrics", "").await.body.contains("vlab_service_store_up 0\n"));
    assert_eq!(client.ask("GET", "/ready", "").await.status, 200);
    store.away.store(false, Ordering::SeqCst);
    assert_eq!(until_back(&mut client).await, "2");
    assert_eq!(client.ask("GET", "/health", "").await.status, 200);
    let page = client.ask("GET", "/metrics", "").await.body;
    assert!(page.contains("vlab_service_store_up 1\n") && page.contains("vlab_service_store_losses_total 3\n"));
    service.stop().await;
}

// --- monitors, start and stop -------------------------------------------------------------------------------------------

#[tokio::test]
async fn monitors_run_when_due_and_health_misses_them_when_they_do_not() {
    let every = Some(Duration::from_millis(10));
    let service = Running::start(MemoryStore::new(), NotesConfig { every, ..NotesConfig::default() }, short()).await;
    let runs = async |service: &Running| -> f64 {
        let page = service.ask("GET", "/metrics", "").await.body;
        page.lines().find_map(|l| l.strip_prefix("vlab_service_host_monitor_runs_total ")).unwrap().parse().unwrap()
    };
    until("the monitors run", async || runs(&service).await >= 5.0).await;
    assert_eq!(service.ask("GET", "/health", "").await.status, 200);
    service.stop().await;

    let broken = NotesConfig { every, broken_monitors: true, ..NotesConfig::default() };
    // Longer than the pause before the next try: a try that fails again is no sign of life.
    let limits = Limits { liveness: Duration::from_millis(1500), ..short() };
    let service = Running::start(MemoryStore::new(), broken, limits).await;
    // Requests are served all the same.
    until("health misses the monitors", async || service.ask("GET", "/health", "").await.status == 500).await;
    assert_eq!(service.ask("POST", "/notes/a", "x").await.status, 201);
    service.stop().await;
}

#[tokio::test]
async fn a_taken_port_is_named_with_who_has_it() {
    let taken = StdListener::bind(("127.0.0.1", 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let error = bind(Listen::Address(address)).unwrap_err().to_string();
    let start = format!("port {} of 127.0.0.1 is taken by process {} (", address.port(), std::process::id());
    assert!(error.starts_with(&start), "{error}");
    // Handing over the bound listener is how a caller avoids that.
    let (_, again) = bind(Listen::Bound(taken)).unwrap();
    assert_eq!(again, address);
}

#[tokio::test]
async fn a_stop_finishes_what_is_under_way_and_accepts_nothing_new() {
    let store = Moody { slow: Duration::from_millis(300), ..Moody::default() };
    let begun = store.begun.clone();
    // Longer than the idle connection is open: the stop does not wait for it.
    let grace = Duration::from_secs(60);
    let service = Running::start(store, NotesConfig::default(), Limits { grace, ..Limits::default() }).await;
    let (mut idle, mut busy) = (service.client().await, service.client().await);
    assert_eq!(idle.ask("GET", "/notes/a", "").await.status, 404);
    busy.send("POST /notes/a HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx").await;
    until("the commit is under way", async || begun.load(Ordering::SeqCst) == 1).await;
    service.shutdown.cancel();
    assert_eq!(busy.answer().await.unwrap().status, 201);
    assert!(idle.answer().await.is_none());
    let address = service.address;
    let start = std::time::Instant::now();
    service.task.await.unwrap().unwrap();
    assert!(start.elapsed() < grace, "it waited for its whole grace");
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let limits = Limits { grace: Duration::from_millis(200), ..Limits::default() };
    let service = Running::start(MemoryStore::new(), NotesConfig::default(), limits).await;
    let mut stuck = service.client().await;
    stuck.send("POST /notes/a HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nabc").await;
    until("the request is there", async || {
        let page = service.ask("GET", "/metrics", "").await.body;
        page.lines().any(|l| l == "vlab_service_connections 2")
    })
    .await;
    let stopping = tokio::time::timeout(Duration::from_secs(60), service.stop());
    stopping.await.expect("it waits for the body that never comes");
    assert!(stuck.answer().await.is_none());
}

// --- PostgreSQL and kill -9 ---------------------------------------------------------------------------------------------

/// Writes notes over some connections until it is stopped; a client whose connection breaks makes a new one.
struct Traffic {
    stop: CancellationToken,
    acknowledged: Arc<AtomicU64>,
    writers: JoinHandle<Vec<String>>,
}

impl Traffic {
    fn start(address: SocketAddr, round: u32) -> Self {
        let (stop, acknowledged) = (CancellationToken::new(), Arc::default());
        let writers = tokio::spawn(traffic(address, 16, format!("r{round}"), stop.clone(), Arc::clone(&acknowledged)));
        Self { stop, acknowledged, writers }
    }

    /// Waits until so many more were acknowledged.
    async fn flows(&self, more: u64) {
        let before = self.acknowledged.load(Ordering::SeqCst);
        until("traffic", async || self.acknowledged.load(Ordering::SeqCst) > before + more).await;
    }

    /// The names that were acknowledged.
    async fn stop(self) -> Vec<String> {
        self.stop.cancel();
        self.writers.await.unwrap()
    }
}

async fn traffic(
    address: SocketAddr,
    clients: usize,
    prefix: String,
    stop: CancellationToken,
    count: Arc<AtomicU64>,
) -> Vec<String> {
    let tasks: Vec<_> = (0..clients)
        .map(|c| {
            let (stop, prefix, count) = (stop.clone(), format!("{prefix}-{c}"), Arc::clone(&count));
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                let mut stream = None;
                for n in 0.. {
                    if stop.is_cancelled() {
                        break;
                    }
                    let mut client = match stream.take() {
                        Some(stream) => Client { stream, lost: None },
                        None => match TcpStream::connect(address).await {
                            Ok(stream) => Client { stream, lost: None },
                            Err(_) => {
                                tokio::time::sleep(Duration::from_millis(5)).await;
                                continue;
                            }
                        },
                    };
                    let name = format!("{prefix}-{n}");
                    let text = format!("POST /notes/{name} HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx");
                    if client.stream.write_all(text.as_bytes()).await.is_err() {
                        continue;
                    }
                    if let Some(answer) = client.answer().await {
                        if answer.status == 201 {
                            acknowledged.push(name);
                            count.fetch_add(1, Ordering::SeqCst);
                        }
                        stream = Some(client.stream);
                    }
                }
                acknowledged
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    all
}

async fn stored(conninfo: &str) -> std::collections::BTreeSet<String> {
    let client = vlab_lab::postgres::connect(conninfo).await.unwrap();
    client.query("SELECT key FROM files", &[]).await.unwrap().iter().map(|r| r.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_postgres_loses_nothing_that_was_acknowledged() {
    let server = vlab_lab::postgres::PgCluster::start(vlab_lab::postgres::PgOptions::from_env()).await.unwrap();
    if !server.is_ours() {
        vlab_skip::skip!("the server of DATABASE_URL is not ours to kill");
        return;
    }
    let conninfo = server.create_database("notes").await.unwrap();
    let store = PgStore::connect(PgOptions::new(conninfo.clone())).await.unwrap();
    let service = Running::start(store, NotesConfig::default(), Limits::default()).await;
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let traffic = Traffic::start(service.address, round);
        traffic.flows(16).await;
        server.kill9().await.unwrap();
        until("health says so", async || service.ask("GET", "/health", "").await.status == 500).await;
        server.restart().await.unwrap();
        until("the service comes back", async || service.ask("GET", "/health", "").await.status == 200).await;
        traffic.flows(16).await;
        acknowledged.extend(traffic.stop().await);
    }
    let stored = stored(&conninfo).await;
    let lost: Vec<_> = acknowledged.iter().filter(|name| !stored.contains(*name)).collect();
    assert!(lost.is_empty(), "{} of {} acknowledged writes are lost: {lost:?}", lost.len(), acknowledged.len());
    // The service shows what the database has, no less and no more.
    let mut client = service.client().await;
    for name in &acknowledged {
        assert_eq!(client.ask("GET", &format!("/notes/{name}"), "").await.status, 200, "{name}");
    }
    service.stop().await;
    server.stop().await.unwrap();
}

/// Not a test by itself: the service as a process of its own, for the test below, which starts this program again with this name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by kill_9_of_the_service_loses_nothing_that_was_acknowledged"]
async fn a_service_to_be_killed() {
    let conninfo = std::env::var("VLAB_TEST_CONNINFO").expect("started without a database");
    let address: SocketAddr = std::env::var("VLAB_TEST_ADDRESS").unwrap().parse().unwrap();
    let store = PgStore::connect(PgOptions::new(conninfo)).await.unwrap();
    let (listener, address) = bind(Listen::Address(address)).unwrap();
    let shutdown = CancellationToken::new();
    let images = ImageService::open(&[], "").unwrap();
    let front =
        Front { listener, address, images, hub: None, limits: Limits::default(), ready: None, from: Timestamp::now() };
    serve_logic::<Notes, PgStore>(front, store, NotesConfig::default(), shutdown).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_the_service_loses_nothing_that_was_acknowledged() {
    let server = vlab_lab::postgres::PgCluster::start(vlab_lab::postgres::PgOptions::from_env()).await.unwrap();
    let conninfo = server.create_database("notes").await.unwrap();
    let address = StdListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "serve::tests::a_service_to_be_killed", "--ignored", "--nocapture"])
            .env("VLAB_TEST_CONNINFO", &conninfo)
            .env("VLAB_TEST_ADDRESS", address.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        until("the service listens", async || {
            assert!(child.try_wait().unwrap().is_none(), "the service did not start");
            TcpStream::connect(address).await.is_ok()
        })
        .await;
        let traffic = Traffic::start(address, round);
        traffic.flows(16).await;
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged.extend(traffic.stop().await);
    }
    let stored = stored(&conninfo).await;
    let lost: Vec<_> = acknowledged.iter().filter(|name| !stored.contains(*name)).collect();
    assert!(lost.is_empty(), "{} of {} acknowledged writes are lost: {lost:?}", lost.len(), acknowledged.len());
    server.stop().await.unwrap();
}

// --- the real core -------------------------------------------------------------------------------------------------------

const API: &str = "/api/assisted-install/v2";

/// The service proper over a database; gives the address and how to stop it.
async fn real(conninfo: &str) -> Running {
    let store = PgStore::connect(PgOptions::new(conninfo)).await.unwrap();
    let config = CoreConfig {
        settings: vlab_model::settings::Settings::default(),
        seed: 1,
        base_url: String::new(),
        image_service_url: String::new(),
        alteration: None,
    };
    let (ready, is_ready) = oneshot::channel();
    let shutdown = CancellationToken::new();
    let options = ServeOptions {
        ready: Some(ready),
        ..ServeOptions::new(Listen::Address(([127, 0, 0, 1], 0).into()), store, config)
    };
    let task = tokio::spawn(serve(options, shutdown.clone()));
    Running { address: is_ready.await.unwrap(), shutdown, task }
}

async fn new_infra_env(service: &Running, name: &str) -> String {
    let body = serde_json::json!({
        "name": name,
        "pull_secret": r#"{"auths":{"quay.io":{"auth":"dXNlcjpwYXNz"}}}"#,
        "openshift_version": "4.20",
    });
    let answer = service.client().await.ask("POST", &format!("{API}/infra-envs"), &body.to_string()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let made: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    made["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_core_keeps_its_registrations_through_kill_9_and_restarts() {
    let server = vlab_lab::postgres::PgCluster::start(vlab_lab::postgres::PgOptions::from_env()).await.unwrap();
    if !server.is_ours() {
        vlab_skip::skip!("the server of DATABASE_URL is not ours to kill");
        return;
    }
    let conninfo = server.create_database("real").await.unwrap();
    let service = Arc::new(real(&conninfo).await);
    let env = new_infra_env(&service, "first").await;
    let answer = service.ask("POST", &format!("{API}/infra-envs"), "{ not json").await;
    assert!((400..500).contains(&answer.status), "{answer:?}");

    let stop = CancellationToken::new();
    let count = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..8_u128)
        .map(|w| {
            let (service, env, stop, count) = (service.clone(), env.clone(), stop.clone(), Arc::clone(&count));
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                for n in 0..u128::from(u64::MAX) {
                    if stop.is_cancelled() {
                        break;
                    }
                    let id = uuid::Uuid::from_u128(0xabcd_0000_0000_0000_0000_0000_0000_0000 + (w << 64) + n);
                    let body = format!(r#"{{"host_id":"{id}","discovery_agent_version":"x"}}"#);
                    let answer = {
                        let mut client = service.client().await;
                        let path = format!("{API}/infra-envs/{env}/hosts");
                        client
                            .send(format!(
                                "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                                body.len()
                            ))
                            .await;
                        client.answer().await
                    };
                    match answer.map(|a| a.status) {
                        Some(201) => {
                            acknowledged.push(id.to_string());
                            count.fetch_add(1, Ordering::SeqCst);
                        }
                        Some(500) | None => tokio::time::sleep(Duration::from_millis(5)).await,
                        Some(other) => panic!("unexpected {other}"),
                    }
                }
                acknowledged
            })
        })
        .collect();
    let flows = async || {
        let before = count.load(Ordering::SeqCst);
        until("registrations", async || count.load(Ordering::SeqCst) > before + 8).await;
    };
    flows().await;
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    until("the service comes back", async || service.ask("GET", "/health", "").await.status == 200).await;
    flows().await;
    stop.cancel();
    let mut acknowledged = std::collections::BTreeSet::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    let hosts = async |service: &Running| -> std::collections::BTreeSet<String> {
        let answer = service.ask("GET", &format!("{API}/infra-envs/{env}/hosts"), "").await;
        let hosts: Vec<serde_json::Value> = serde_json::from_str(&answer.body).unwrap();
        hosts.iter().map(|h| h["id"].as_str().unwrap().to_owned()).collect()
    };
    let before = hosts(&service).await;
    assert!(acknowledged.is_subset(&before), "{} acknowledged, {} known", acknowledged.len(), before.len());

    // A new process over the same rows: the same hosts, and new ids that are new.
    Arc::into_inner(service).unwrap().stop().await;
    let service = real(&conninfo).await;
    assert_eq!(hosts(&service).await, before);
    assert_ne!(new_infra_env(&service, "second").await, env);
    assert_eq!(hosts(&service).await, before);
    service.stop().await;
    server.stop().await.unwrap();
}

#[test]
fn the_time_profile_says_how_long_monitors_may_be_silent() {
    let settings = vlab_model::settings::Settings {
        liveness_validation_timeout: Duration::from_secs(7),
        ..vlab_model::settings::Settings::default()
    };
    let core =
        CoreConfig { settings, seed: 0, base_url: String::new(), image_service_url: String::new(), alteration: None };
    let options = ServeOptions::new(Listen::Address(([127, 0, 0, 1], 0).into()), MemoryStore::new(), core);
    assert_eq!(options.limits.liveness, Duration::from_secs(7));
    assert_eq!(options.limits.body_bytes, Limits::default().body_bytes);
}
