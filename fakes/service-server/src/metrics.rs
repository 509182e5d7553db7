//! Counts and durations, and the page that Prometheus reads.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vlab_api::Timestamp;
use vlab_api::http::Method;

use crate::store::PoolState;
use vlab_service::Stats;

/// Upper bounds of the buckets for durations, in seconds.
const SECONDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Upper bounds of the buckets for numbers of things.
const NUMBERS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0];
/// A client that invents paths must not fill the memory: routes beyond this many are counted together.
const MAX_ROUTES: usize = 256;

#[derive(Debug)]
struct Histogram {
    bounds: &'static [f64],
    /// One per bound, and one for what is above them all.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    fn add(&mut self, value: f64) {
        let bucket = self.bounds.iter().position(|b| value <= *b).unwrap_or(self.bounds.len());
        self.counts[bucket] += 1;
        self.sum += value;
    }

    /// `labels` without braces, may be empty.
    fn write(&self, out: &mut String, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut total = 0;
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            total += count;
            line(out, format_args!("{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {total}"));
        }
        total += self.counts.last().copied().unwrap_or(0);
        line(out, format_args!("{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {total}"));
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        line(out, format_args!("{name}_sum{braces} {}", self.sum));
        line(out, format_args!("{name}_count{braces} {total}"));
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(text);
    out.push('\n');
}

#[derive(Debug)]
struct Inner {
    requests: BTreeMap<(&'static str, String, u16), u64>,
    latencies: BTreeMap<(&'static str, String), Histogram>,
    batch_requests: Histogram,
    batch_writes: Histogram,
    commit_seconds: Histogram,
    monitor_seconds: Histogram,
    accept_errors: u64,
    turned_away: u64,
    panics: u64,
    store_losses: u64,
    connections: u64,
    connections_made: u64,
}

/// All counters of a service. Shared; every method is short.
#[derive(Debug)]
pub(crate) struct Metrics {
    inner: Mutex<Inner>,
    started: Instant,
    store_up: AtomicBool,
    /// When the monitors are due next, in microseconds since the epoch; `i64::MAX`: not at all.
    due: AtomicI64,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            inner: Mutex::new(Inner {
                requests: BTreeMap::new(),
                latencies: BTreeMap::new(),
                batch_requests: Histogram::new(NUMBERS),
                batch_writes: Histogram::new(NUMBERS),
                commit_seconds: Histogram::new(SECONDS),
                monitor_seconds: Histogram::new(SECONDS),
                accept_errors: 0,
                turned_away: 0,
                panics: 0,
                store_losses: 0,
                connections: 0,
                connections_made: 0,
            }),
            started: Instant::now(),
            store_up: AtomicBool::new(true),
            due: AtomicI64::new(i64::MAX),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn request(&self, method: Method, path: &str, status: u16, took: Duration) {
        let mut inner = self.inner();
        let mut key = (method.as_str(), route(path));
        if !inner.latencies.contains_key(&key) && inner.latencies.len() >= MAX_ROUTES {
            key = ("OTHER", "other".to_owned());
        }
        inner.latencies.entry(key.clone()).or_insert_with(|| Histogram::new(SECONDS)).add(took.as_secs_f64());
        *inner.requests.entry((key.0, key.1, status)).or_default() += 1;
    }

    pub(crate) fn commit(&self, requests: usize, writes: usize, took: Duration) {
        let mut inner = self.inner();
        // What the monitors decide is a batch without requests.
        if requests > 0 {
            inner.batch_requests.add(requests as f64);
        }
        inner.batch_writes.add(writes as f64);
        inner.commit_seconds.add(took.as_secs_f64());
    }

    pub(crate) fn monitor_run(&self, took: Duration) {
        self.inner().monitor_seconds.add(took.as_secs_f64());
    }

    pub(crate) fn monitors_due(&self, at: Option<Timestamp>) {
        self.due.store(at.map_or(i64::MAX, Timestamp::as_micros), Ordering::Relaxed);
    }

    /// For how long the monitors have been due without running.
    pub(crate) fn monitors_overdue(&self, now: Timestamp) -> Duration {
        match self.due.load(Ordering::Relaxed) {
            i64::MAX => Duration::ZERO,
            due => now.since(Timestamp::from_micros(due)),
        }
    }

    pub(crate) fn accept_error(&self) {
        self.inner().accept_errors += 1;
    }

    pub(crate) fn turned_away(&self) {
        self.inner().turned_away += 1;
    }

    pub(crate) fn panic(&self) {
        self.inner().panics += 1;
    }

    pub(crate) fn connected(&self) {
        let mut inner = self.inner();
        inner.connections += 1;
        inner.connections_made += 1;
    }

    pub(crate) fn disconnected(&self) {
        self.inner().connections -= 1;
    }

    pub(crate) fn store_lost(&self) {
        self.store_up.store(false, Ordering::Relaxed);
        self.inner().store_losses += 1;
    }

    pub(crate) fn store_back(&self) {
        self.store_up.store(true, Ordering::Relaxed);
    }

    /// The page, in the text format 0.0.4.
    pub(crate) fn page(&self, core: Option<&(Stats, PoolState)>) -> String {
        let mut page = Page(String::new());
        page.requests(&self.inner());
        page.connections(&self.inner(), self.store_up.load(Ordering::Relaxed));
        if let Some((stats, pool)) = core {
            page.state(stats, pool);
        }
        if let Some(bytes) = resident_bytes() {
            page.one("process_resident_memory_bytes", "gauge", "Resident memory.", bytes as f64);
        }
        let uptime = self.started.elapsed().as_secs_f64();
        page.one("vlab_service_uptime_seconds", "gauge", "Time since the start.", uptime);
        page.0
    }
}

/// The page while it is written.
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        line(&mut self.0, format_args!("# HELP {name} {help}"));
        line(&mut self.0, format_args!("# TYPE {name} {kind}"));
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.head(name, kind, help);
        line(&mut self.0, format_args!("{name} {value}"));
    }

    fn requests(&mut self, inner: &Inner) {
        let name = "vlab_service_requests_total";
        self.head(name, "counter", "Requests answered.");
        for ((method, route, code), count) in &inner.requests {
            let route = escape(route);
            let labels = format_args!("method=\"{method}\",route=\"{route}\",code=\"{code}\"");
            line(&mut self.0, format_args!("{name}{{{labels}}} {count}"));
        }
        let name = "vlab_service_request_duration_seconds";
        self.head(name, "histogram", "From the end of a request's headers to its answer.");
        for ((method, route), histogram) in &inner.latencies {
            histogram.write(&mut self.0, name, &format!("method=\"{method}\",route=\"{}\"", escape(route)));
        }
        let batch = "Requests whose changes were stored in one transaction.";
        for (name, help, histogram) in [
            ("vlab_service_batch_requests", batch, &inner.batch_requests),
            ("vlab_service_batch_writes", "Changed rows in one transaction.", &inner.batch_writes),
            ("vlab_service_commit_duration_seconds", "Duration of a transaction.", &inner.commit_seconds),
            ("vlab_service_monitor_duration_seconds", "Duration of a run of the monitors.", &inner.monitor_seconds),
        ] {
            self.head(name, "histogram", help);
            histogram.write(&mut self.0, name, "");
        }
    }

    fn connections(&mut self, inner: &Inner, store_up: bool) {
        let up = f64::from(u8::from(store_up));
        let accepted = inner.connections_made as f64;
        let refused = inner.accept_errors as f64;
        let lost = inner.store_losses as f64;
        self.one("vlab_service_connections", "gauge", "HTTP connections that are open.", inner.connections as f64);
        self.one("vlab_service_connections_total", "counter", "HTTP connections that were accepted.", accepted);
        self.one("vlab_service_accept_errors_total", "counter", "Connections that could not be accepted.", refused);
        let away = inner.turned_away as f64;
        self.one("vlab_service_turned_away_total", "counter", "Requests that had waited too long (429).", away);
        self.one("vlab_service_panics_total", "counter", "Defects that a request ran into.", inner.panics as f64);
        self.one("vlab_service_store_up", "gauge", "1 when the database can be used.", up);
        self.one("vlab_service_store_losses_total", "counter", "How often the database was lost.", lost);
    }

    fn state(&mut self, stats: &Stats, pool: &PoolState) {
        self.one("vlab_service_store_connections", "gauge", "Open database connections.", pool.open as f64);
        let made = pool.made as f64;
        self.one("vlab_service_store_connections_total", "counter", "Database connections made.", made);
        for (name, help, counts) in [
            ("vlab_service_hosts", "Hosts by status.", &stats.hosts),
            ("vlab_service_clusters", "Clusters by status.", &stats.clusters),
        ] {
            self.head(name, "gauge", help);
            for (status, count) in counts {
                line(&mut self.0, format_args!("{name}{{status=\"{status}\"}} {count}"));
            }
        }
        for (name, help, value) in [
            ("vlab_service_infra_envs", "Infra-envs.", stats.infra_envs),
            ("vlab_service_events", "Events stored.", stats.events),
            ("vlab_service_files", "Files stored.", stats.files.0),
            ("vlab_service_files_bytes", "Bytes in files.", stats.files.1),
        ] {
            self.one(name, "gauge", help, value as f64);
        }
        let looked_at = "Hosts that the monitor had to look at.";
        for (name, help, value) in [
            ("vlab_service_host_monitor_runs_total", "Runs of the host monitor.", stats.host_monitor_runs),
            ("vlab_service_cluster_monitor_runs_total", "Runs of the cluster monitor.", stats.cluster_monitor_runs),
            ("vlab_service_hosts_refreshed_total", looked_at, stats.hosts_refreshed),
        ] {
            self.one(name, "counter", help, value as f64);
        }
    }
}

/// Resident memory of this process. `None` where the system does not tell.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The path without what makes each request different: ids become `{id}`, the query goes.
fn route(path: &str) -> String {
    let path = path.split_once('?').map_or(path, |(p, _)| p);
    let segments: Vec<&str> =
        path.split('/').map(|s| if s.len() == 36 && s.parse::<uuid::Uuid>().is_ok() { "{id}" } else { s }).collect();
    segments.join("/")
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_queries_are_not_routes() {
        assert_eq!(
            route("/api/assisted-install/v2/infra-envs/0c1c2a9e-5f4b-4d4f-8b7e-3d2f0f2f7a11/hosts?x=1"),
            "/api/assisted-install/v2/infra-envs/{id}/hosts"
        );
        assert_eq!(route("/not-a-uuid-but-thirty-six-characters"), "/not-a-uuid-but-thirty-six-characters");
    }

    #[test]
    fn the_page_is_prometheus_text() {
        let metrics = Metrics::new();
        metrics.request(Method::Get, "/a\"b", 200, Duration::from_millis(3));
        metrics.request(Method::Get, "/a\"b", 404, Duration::from_secs(60));
        metrics.commit(40, 41, Duration::from_millis(2));
        let mut stats = Stats::default();
        stats.hosts.insert("known", 7);
        let page = metrics.page(Some(&(stats, PoolState { open: 1, made: 2 })));
        for expected in [
            "vlab_service_requests_total{method=\"GET\",route=\"/a\\\"b\",code=\"404\"} 1",
            "vlab_service_request_duration_seconds_bucket{method=\"GET\",route=\"/a\\\"b\",le=\"0.005\"} 1",
            "vlab_service_request_duration_seconds_bucket{method=\"GET\",route=\"/a\\\"b\",le=\"+Inf\"} 2",
            "vlab_service_batch_requests_bucket{le=\"20\"} 0",
            "vlab_service_batch_requests_bucket{le=\"50\"} 1",
            "vlab_service_batch_writes_sum 41",
            "vlab_service_hosts{status=\"known\"} 7",
            "vlab_service_store_connections_total 2",
            "vlab_service_store_up 1",
        ] {
            assert!(page.lines().any(|l| l == expected), "{expected}\n{page}");
        }
        // Every sample line is `name{labels} number`, every metric has its type once.
        let sample =
            regex::Regex::new(r#"^[a-z_]+(\{[a-z]+="([^"\\]|\\.)*"(,[a-z]+="([^"\\]|\\.)*")*\})? [0-9.e+-]+$"#)
                .unwrap();
        let mut types = std::collections::BTreeSet::new();
        for line in page.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(kind) => assert!(types.insert(kind.to_owned()), "{line}"),
                None => assert!(line.starts_with("# HELP ") || sample.is_match(line), "{line}"),
            }
        }
    }

    #[test]
    fn invented_paths_are_counted_together() {
        let metrics = Metrics::new();
        for i in 0..10_000 {
            metrics.request(Method::Get, &format!("/{i}"), 404, Duration::ZERO);
        }
        assert!(metrics.inner().latencies.len() <= MAX_ROUTES + 1);
        let total: u64 = metrics.inner().requests.values().sum();
        assert_eq!(total, 10_000);
    }
}
