//! Plans against targets that answer, refuse, and say nothing: the offered rate is the plan's, and the result tells what became of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use tokio_util::sync::CancellationToken;
use vlab_load::generate::{LoadError, Options, Tell, generate};
use vlab_load::result::{LoadResult, Target, merge};
use vlab_load::schedule::Part;
use vlab_load::stub;
use vlab_scenario::{Catalogue, LoadPlan, SourceFile, load_plan};

fn plan(rest: &str) -> LoadPlan {
    let text = format!("version: 1\nname: p\npopulation: {{unbound: 20}}\ncadence: 100ms\n{rest}\n");
    load_plan(&SourceFile::new("p.yaml", text), &Catalogue::embedded()).unwrap_or_else(|error| panic!("{error}"))
}

const IDLE: &str = "mode: idle\nphases: [ramp: 200ms, hold: 300ms]";

async fn run(
    plan: &LoadPlan,
    address: SocketAddr,
    part: Part,
    stop: CancellationToken,
) -> Result<LoadResult, LoadError> {
    let url = format!("http://{address}");
    generate(
        plan,
        &Catalogue::embedded(),
        Options {
            url,
            part,
            start_at: None,
            watch: None,
            database: None,
            stop,
            live: None,
            so_far: None,
            metrics: None,
        },
    )
    .await
}

async fn stub_address() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(stub::serve(listener));
    address
}

/// Answers an infra-env, and to everything else that; without an answer the connection stays open and silent.
fn target(answer: Option<&'static str>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let of_infra_env = r#"{"id":"00000000-0000-4000-8000-000000000001","name":"x","kind":"InfraEnv","href":"","type":"full-iso","created_at":"2026-01-01T00:00:00.000Z","updated_at":"2026-01-01T00:00:00.000Z"}"#;
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut request = Vec::new();
                let mut piece = [0; 4096];
                while let Ok(n) = stream.read(&mut piece)
                    && n > 0
                {
                    request.extend_from_slice(&piece[..n]);
                    let text = String::from_utf8_lossy(&request).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                    let length =
                        head.lines().find_map(|l| l.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
                    if body.len() < length.and_then(|n| n.parse().ok()).unwrap_or(0) {
                        continue;
                    }
                    let said = if head.starts_with("POST /api/assisted-install/v2/infra-envs HTTP") {
                        format!("HTTP/1.1 201 Created\r\ncontent-length: {}\r\n\r\n{of_infra_env}", of_infra_env.len())
                    } else if head.starts_with("GET /metrics") {
                        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned()
                    } else {
                        match answer {
                            Some(answer) => answer.to_owned(),
                            None => String::new(),
                        }
                    };
                    request.clear();
                    if stream.write_all(said.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn all_that_is_offered_to_a_stub_is_answered() {
    let result = run(&plan(IDLE), stub_address().await, Part::WHOLE, CancellationToken::new()).await.unwrap();
    assert_eq!(result.target, Target::Stub);
    let total = result.total();
    assert_eq!((total.offered, total.failed()), (total.answered, 0), "{result:?}");
    let of = |operation: &str| result.operations().get(operation).map_or(0, |counted| counted.offered);
    // Each host registers and asks every 100 ms from 100 ms on: the plan says how often, however slow this computer is.
    assert_eq!(of("v2RegisterHost") + of("v2GetNextSteps"), 20 + 70);
    assert!((1..=20).contains(&of("v2PostStepReply")), "an inventory is sent once: {}", of("v2PostStepReply"));
    assert_eq!(result.connections_opened, 20);
    assert_eq!((result.cut_short.as_str(), result.parts), ("", (1, 1)));
}

#[tokio::test]
async fn two_parts_offer_what_one_generator_does() {
    let (plan, address) = (plan(IDLE), stub_address().await);
    let mut parts = Vec::new();
    for index in 0..2 {
        parts.push(run(&plan, address, Part { index, of: 2 }, CancellationToken::new()).await.unwrap());
    }
    let all = merge(parts, Some(&plan.thresholds)).unwrap();
    let of = |operation: &str| all.operations().get(operation).map_or(0, |counted| counted.offered);
    assert_eq!(of("v2RegisterHost") + of("v2GetNextSteps"), 20 + 70);
}

#[tokio::test]
async fn a_storm_reboots_every_host() {
    let plan = plan(
        "mode: reboot-storm\nconnections: pooled\npool: 4\nphases: [ramp: 100ms, hold: 200ms, storm: 100ms, hold: 200ms, drain: 50ms]",
    );
    let result = run(&plan, stub_address().await, Part::WHOLE, CancellationToken::new()).await.unwrap();
    let registered = result.lines.iter().filter(|line| line.operation == "v2RegisterHost");
    let phases: Vec<usize> = registered.filter(|line| line.counted.offered >= 20).map(|line| line.phase).collect();
    assert_eq!(phases, [0, 2], "in the ramp and in the storm");
    assert_eq!(result.connections_opened, 4);
}

#[tokio::test]
async fn a_service_that_refuses_gets_all_the_same_and_it_is_told() {
    let refusing = target(Some("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"));
    let mut plan = plan(IDLE);
    plan.thresholds.errors_percent = Some(0.0);
    let result = run(&plan, refusing, Part::WHOLE, CancellationToken::new()).await.unwrap();
    let total = result.total();
    assert_eq!((total.offered, total.answered), (90, 0), "{:?}", total.errors);
    assert_eq!(total.errors.get("HTTP 503"), Some(&90));
    assert_eq!(result.target, Target::Real, "who has no metrics of ours is none of ours");
    assert!(!result.checks[0].holds);
}

#[tokio::test]
async fn a_silent_service_gets_what_fits_and_an_interrupted_plan_has_its_result() {
    let (plan, stop) = (plan("mode: idle\nphases: [ramp: 200ms, hold: 1h]"), CancellationToken::new());
    let url = format!("http://{}", target(None));
    let ends = stop.clone();
    // Nobody answers, so the first that fail are those that found no room.
    let live: Tell = Box::new(move |line| {
        if !line.contains("failed 0/s") {
            ends.cancel();
        }
    });
    let options = Options {
        url,
        part: Part::WHOLE,
        start_at: None,
        watch: None,
        database: None,
        stop,
        live: Some(live),
        so_far: None,
        metrics: None,
    };
    let result = generate(&plan, &Catalogue::embedded(), options).await.unwrap();
    let total = result.total();
    assert_eq!(total.answered, 0);
    assert!(total.errors.keys().any(|kind| kind.starts_with("not sent")), "{:?}", total.errors);
    assert!(result.cut_short.contains("interrupted") && result.warnings.iter().any(|w| w.contains("interrupted")));
}

#[tokio::test]
async fn who_does_not_listen_is_named() {
    let gone = { TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap() };
    let error = run(&plan(IDLE), gone, Part::WHOLE, CancellationToken::new()).await.unwrap_err().to_string();
    assert!(error.contains(&gone.to_string()) && error.contains("cannot connect"), "{error}");
}

#[tokio::test]
async fn who_waits_for_a_silent_service_before_it_begins_can_be_stopped() {
    // Connections are taken by the kernel, and nobody reads from them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for wait in [100, 6000] {
        let stop = CancellationToken::new();
        let ends = stop.clone();
        let began = std::time::Instant::now();
        tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
            ends.cancel();
        });
        let result = run(&plan(IDLE), silent.local_addr().unwrap(), Part::WHOLE, stop).await.unwrap();
        assert!(result.cut_short.contains("interrupted before it began"), "{result:?}");
        assert!(began.elapsed() < std::time::Duration::from_millis(wait + 4000), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_unanswered() {
    let (plan, stop) = (plan("mode: idle\nphases: [ramp: 200ms, hold: 1h]"), CancellationToken::new());
    let ends = stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        ends.cancel();
    });
    let result = run(&plan, target(None), Part::WHOLE, stop).await.unwrap();
    let total = result.total();
    // Each host has its first request under way, and its connection has room for four more.
    assert!(result.unanswered > 0 && result.unanswered == total.offered - total.failed(), "{result:?}");
    assert!(result.warnings.iter().any(|warning| warning.contains("were under way")), "{:?}", result.warnings);
}
