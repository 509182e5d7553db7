//! The generator's own figures while it goes on, in the text form that Prometheus reads.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::record::Record;

/// Who is there: a name of a state, and how many are in it.
pub(crate) type Fleet<'a> = &'a [(&'static str, u64)];

/// The page.
pub(crate) fn page(record: &Record, now: Duration, plan: &str, fleet: Fleet<'_>) -> String {
    let mut text = String::new();
    let plan = plan.replace(['"', '\\', '\n'], "_");
    head(&mut text, "vlab_load_seconds", "Time since the start of the plan.", "gauge");
    let _ = writeln!(text, "vlab_load_seconds{{plan=\"{plan}\"}} {}", now.as_secs_f64());
    head(&mut text, "vlab_load_fleet", "Hosts or installations, by where they are.", "gauge");
    for (state, count) in fleet {
        let _ = writeln!(text, "vlab_load_fleet{{state=\"{state}\"}} {count}");
    }
    let operations = record.operations();
    head(&mut text, "vlab_load_requests_offered_total", "Requests that were to be made.", "counter");
    for (operation, counted) in &operations {
        let _ = writeln!(text, "vlab_load_requests_offered_total{{operation=\"{operation}\"}} {}", counted.offered);
    }
    head(&mut text, "vlab_load_requests_answered_total", "Answers with a status below 400.", "counter");
    for (operation, counted) in &operations {
        let _ = writeln!(text, "vlab_load_requests_answered_total{{operation=\"{operation}\"}} {}", counted.answered);
    }
    head(&mut text, "vlab_load_requests_failed_total", "Requests that failed, by what was wrong.", "counter");
    for (operation, counted) in &operations {
        for (error, count) in &counted.errors {
            let _ = writeln!(
                text,
                "vlab_load_requests_failed_total{{operation=\"{operation}\",error=\"{error}\"}} {count}"
            );
        }
    }
    let name = "vlab_load_request_duration_seconds";
    head(&mut text, name, "From the moment at which a request was to be made to its answer.", "summary");
    for (operation, counted) in &operations {
        for quantile in [0.5, 0.9, 0.99, 0.999] {
            let value = counted.latency.value_at_quantile(quantile) as f64 / 1e6;
            let _ = writeln!(text, "{name}{{operation=\"{operation}\",quantile=\"{quantile}\"}} {value}");
        }
        let sum = counted.latency.mean() * counted.latency.len() as f64 / 1e6;
        let _ = writeln!(text, "{name}_sum{{operation=\"{operation}\"}} {sum}");
        let _ = writeln!(text, "{name}_count{{operation=\"{operation}\"}} {}", counted.latency.len());
    }
    let name = "vlab_load_late_seconds";
    head(&mut text, name, "How much after its moment a request was made: the generator's doing.", "summary");
    let late = record.late();
    for quantile in [0.5, 0.99] {
        let value = late.value_at_quantile(quantile) as f64 / 1e6;
        let _ = writeln!(text, "{name}{{quantile=\"{quantile}\"}} {value}");
    }
    let _ = writeln!(text, "{name}_sum {}", late.mean() * late.len() as f64 / 1e6);
    let _ = writeln!(text, "{name}_count {}", late.len());
    text
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Answers `/metrics` on that socket with the newest page, until the task is dropped.
pub async fn serve(listener: TcpListener, pages: watch::Receiver<String>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let pages = pages.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request: Request<Incoming>| {
                let found = request.uri().path() == "/metrics";
                let body = if found { pages.borrow().clone() } else { "the figures are at /metrics\n".to_owned() };
                let mut response = Response::new(Full::new(Bytes::from(body)));
                if !found {
                    *response.status_mut() = StatusCode::NOT_FOUND;
                }
                let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4");
                response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
                async move { Ok::<_, Infallible>(response) }
            });
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use vlab_api::http::Response;

    use super::*;
    use crate::record::Came;

    #[test]
    fn the_page_has_every_operation_and_is_well_formed() {
        let mut record = Record::default();
        let ms = Duration::from_millis;
        for phase in 0..2 {
            record.offer(phase, "v2GetNextSteps", ms(10), ms(1));
            record.came(phase, "v2GetNextSteps", ms(30), ms(20), Came::Answer(&Response::empty(200)));
        }
        record.offer(0, "v2RegisterHost", ms(10), ms(1));
        record.came(0, "v2RegisterHost", ms(40), ms(30), Came::Answer(&Response::empty(503)));
        let text = page(&record, ms(1500), "a\"b", &[("polling", 7)]);
        for line in [
            "vlab_load_seconds{plan=\"a_b\"} 1.5",
            "vlab_load_fleet{state=\"polling\"} 7",
            "vlab_load_requests_offered_total{operation=\"v2GetNextSteps\"} 2",
            "vlab_load_requests_answered_total{operation=\"v2RegisterHost\"} 0",
            "vlab_load_requests_failed_total{operation=\"v2RegisterHost\",error=\"HTTP 503\"} 1",
            "vlab_load_request_duration_seconds_count{operation=\"v2GetNextSteps\"} 2",
            "vlab_load_late_seconds_count 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        // A sample is of the last family that was announced, and each family is announced once.
        let mut families = Vec::new();
        for line in text.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(rest) => families.push(rest.split(' ').next().unwrap_or_default()),
                None if line.starts_with('#') => {}
                None => assert!(line.starts_with(families.last().copied().unwrap_or("?")), "{line}"),
            }
        }
        let count = families.len();
        families.sort_unstable();
        families.dedup();
        assert_eq!(families.len(), count);
    }
}
