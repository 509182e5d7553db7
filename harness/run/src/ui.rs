//! `vlab ui`: the folder of runs in a browser. Reads only, on the loopback interface only, and only for pages of its own: a
//! request that names another host is refused, so that a page from elsewhere cannot look in through the visitor's browser.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HOST, HeaderValue, IF_NONE_MATCH};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use vlab_api::Timestamp;
use vlab_judge::result::{RunResult, Verdict};
use vlab_lab::proc::Stat;
use vlab_model::history::Observation;
use vlab_reports::html::live::{self, Entry, Standing};
use vlab_reports::{Redactor, record};

use crate::loads::{self, LoadEnded};
use crate::rundir::{HISTORY, RESOURCES, RESULT, RunDir, SCENARIO, STARTED, Started};

/// Runs that the list shows.
const SHOWN: usize = 300;
/// Connections at once.
const CONNECTIONS: usize = 64;
/// A client gets this long to send the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// A fragment is drawn again only after this many times what drawing it took: a long history must not keep a processor busy
/// that the run needs.
const REST: u32 = 10;
/// Files of a run that goes on which have been redacted while they were written. Logs of other programs are redacted at its end.
const ALWAYS_CLEAN: [&str; 4] = [HISTORY, SCENARIO, STARTED, RESOURCES];
/// Name of the header that tells the script of a page how the run stands.
const STANDING: &str = "vlab-standing";

/// Why the folder cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum UiError {
    /// Not an address of this computer alone.
    #[error("{0} can be reached from elsewhere, and runs are nobody else's: use an address of the loopback interface, such as 127.0.0.1:{port}", port = .0.port())]
    NotLoopback(SocketAddr),
    /// The address cannot be used.
    #[error("cannot listen on {address}: {error}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The folder cannot be read.
    #[error("cannot read {folder}: {error}", folder = .folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

/// A listener for [`serve`].
///
/// # Errors
/// [`UiError`]: the address is not of the loopback interface, or is taken.
pub fn listen(address: SocketAddr) -> Result<(StdListener, SocketAddr), UiError> {
    if !address.ip().is_loopback() {
        return Err(UiError::NotLoopback(address));
    }
    let bind = |error| UiError::Bind { address, error };
    let listener = StdListener::bind(address).map_err(bind)?;
    let address = listener.local_addr().map_err(bind)?;
    listener.set_nonblocking(true).map_err(bind)?;
    Ok((listener, address))
}

/// Shows the runs in `folder` until `stop` is cancelled.
///
/// # Errors
/// [`UiError`]: the folder cannot be read, or the listener breaks.
pub async fn serve(listener: StdListener, folder: PathBuf, stop: CancellationToken) -> Result<(), UiError> {
    let address = listener.local_addr().unwrap_or_else(|_| ([127, 0, 0, 1], 0).into());
    let bind = |error| UiError::Bind { address, error };
    // A folder in which nothing has been run yet need not be there.
    if let Err(error) = fs::read_dir(&folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(UiError::Folder { folder, error });
    }
    let listener = TcpListener::from_std(listener).map_err(bind)?;
    let shown = Arc::new(Shown { folder, ended: Mutex::default(), followed: Mutex::default() });
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => {
                let Ok((stream, _)) = accepted else { continue };
                let shown = shown.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| {
                        let shown = shown.clone();
                        async move { Ok::<_, Infallible>(answer(shown, request).await) }
                    });
                    let mut http = http1::Builder::new();
                    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
                    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
                        tracing::debug!(%error, "a browser went away");
                    }
                });
            }
        }
    }
}

/// An answer before it is one of HTTP.
#[derive(Clone, Debug)]
struct Page {
    status: StatusCode,
    kind: &'static str,
    body: Bytes,
    /// Changes when the body does.
    tag: Option<String>,
    /// For the script: how the run stands.
    standing: Option<&'static str>,
}

impl Page {
    fn html(text: String) -> Self {
        Self { status: StatusCode::OK, kind: "text/html; charset=utf-8", body: text.into(), tag: None, standing: None }
    }

    fn refusal(status: StatusCode, why: &str) -> Self {
        let body = format!("{why}\n").into();
        Self { status, kind: "text/plain; charset=utf-8", body, tag: None, standing: None }
    }

    fn not_found(what: &str) -> Self {
        Self::refusal(StatusCode::NOT_FOUND, what)
    }
}

async fn answer<B>(shown: Arc<Shown>, request: Request<B>) -> Response<Full<Bytes>> {
    let known = request.headers().get(IF_NONE_MATCH).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let head = request.method() == Method::HEAD;
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let page = if !names_loopback(host) {
        Page::refusal(
            StatusCode::FORBIDDEN,
            "this server answers only to the names and addresses of the loopback interface",
        )
    } else if !head && request.method() != Method::GET {
        Page::refusal(StatusCode::METHOD_NOT_ALLOWED, "nothing can be changed here: GET and HEAD only")
    } else {
        let path = request.uri().path().to_owned();
        // Reading and drawing take processor time, which connections must not wait for.
        let page = tokio::task::spawn_blocking(move || shown.page(&path)).await;
        page.unwrap_or_else(|_| {
            Page::refusal(StatusCode::INTERNAL_SERVER_ERROR, "this page cannot be drawn: a defect of vlab")
        })
    };
    let fresh = page.tag.is_some() && page.tag == known;
    let status = if fresh { StatusCode::NOT_MODIFIED } else { page.status };
    let body = if fresh || head { Bytes::new() } else { page.body };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(page.kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    headers.insert("referrer-policy", HeaderValue::from_static("no-referrer"));
    if let Some(standing) = page.standing {
        headers.insert(STANDING, HeaderValue::from_static(standing));
        headers.insert("content-security-policy", HeaderValue::from_static(live::POLICY));
    }
    if let Some(tag) = page.tag.and_then(|tag| HeaderValue::from_str(&tag).ok()) {
        headers.insert(ETAG, tag);
    }
    response
}

/// Is that the name of the loopback interface, with or without a port?
fn names_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// What is shown.
struct Shown {
    folder: PathBuf,
    /// Runs that have a result: it does not change any more.
    ended: Mutex<BTreeMap<String, Entry>>,
    /// Runs that go on and somebody looks at.
    followed: Mutex<BTreeMap<String, Arc<Mutex<Followed>>>>,
}

impl Shown {
    fn page(&self, path: &str) -> Page {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        match parts.as_slice() {
            [""] => self.list(true),
            ["now"] => self.list(false),
            ["live.js"] => Page { kind: "text/javascript; charset=utf-8", ..Page::html(live::SCRIPT.to_owned()) },
            ["runs", id] | ["runs", id, ""] => self.run(id, path.ends_with('/')),
            ["runs", id, "now"] => self.run_now(id),
            ["runs", id, file @ ..] => self.file(id, file),
            _ => Page::not_found("no such page; all runs are at /"),
        }
    }

    /// The folder of a run with that id, and its start marker.
    fn open(&self, id: &str) -> Option<(RunDir, Started)> {
        let is_name = !id.is_empty() && !id.starts_with('.') && !id.contains(['/', '\\', '\0']);
        is_name.then(|| RunDir::open(&self.folder.join(id)).ok()).flatten()
    }

    /// Ids of all runs, the newest first: they begin with the time.
    fn ids(&self) -> Vec<String> {
        let names = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        // Links such as `latest` lead to a run that is in the list already.
        let folders = names.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut ids: Vec<String> = folders
            .filter(|entry| entry.path().join(STARTED).exists())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        ids
    }

    fn list(&self, whole: bool) -> Page {
        let ids = self.ids();
        let left_out = ids.len().saturating_sub(SHOWN);
        let entries: Vec<Entry> = ids.iter().take(SHOWN).filter_map(|id| self.entry(id)).collect();
        let (records, _) = record::read(&self.folder).unwrap_or_default();
        let statistics = record::statistics(&records, None);
        let fragment = live::runs(&entries, left_out, &statistics);
        let text = match whole {
            true => live::list(&self.folder.display().to_string(), &fragment),
            false => fragment,
        };
        let tag = (!whole).then(|| tag_of(&text));
        Page { tag, standing: Some("list"), ..Page::html(text) }
    }

    fn entry(&self, id: &str) -> Option<Entry> {
        if let Some(entry) = lock(&self.ended).get(id) {
            return Some(entry.clone());
        }
        let (dir, started) = self.open(id)?;
        let mut entry = Entry {
            run_id: id.to_owned(),
            scenario: started.scenario.clone(),
            standing: Standing::Killed,
            started_at: started.at,
            took_ms: None,
            service: started.service.clone(),
            hosts: started.hosts.clone(),
            seed: started.seed,
            history: dir.file(HISTORY).exists(),
            why: String::new(),
        };
        let result = fs::read(dir.file(RESULT)).ok().and_then(|text| serde_json::from_slice::<RunResult>(&text).ok());
        if let Some(result) = result {
            entry.standing = Standing::Ended(result.verdict);
            entry.took_ms = Some(result.finished_at.since(result.started_at).as_secs_f64() * 1e3);
            if result.verdict != Verdict::Passed {
                let decisive = result.decisive().map(|check| format!("{}: {}", check.kind.as_str(), check.name));
                entry.why = result.cause.map(|cause| cause.title).or(result.reason).or(decisive).unwrap_or_default();
            }
            lock(&self.ended).insert(id.to_owned(), entry.clone());
        } else if let Some(LoadEnded { verdict, why, took_ms }) = loads::ended(dir.path()) {
            (entry.standing, entry.why, entry.took_ms) = (Standing::Ended(verdict), why, Some(took_ms));
            lock(&self.ended).insert(id.to_owned(), entry.clone());
        } else if is_running(&started) {
            entry.standing = Standing::Running;
            // To the second: the list is sent again when it has changed.
            entry.took_ms = Some(Timestamp::now().since(started.at).as_secs() as f64 * 1e3);
        }
        Some(entry)
    }

    /// The page of a run: its report when it has ended, else what is known until now.
    fn run(&self, id: &str, is_folder: bool) -> Page {
        let Some(entry) = self.entry(id) else { return no_run(id) };
        if !is_folder {
            // Links in the page are relative to it.
            let text =
                format!("<!doctype html><meta http-equiv=\"refresh\" content=\"0;url=/runs/{}/\">", entry.run_id);
            return Page::html(text);
        }
        if let Standing::Ended(_) = entry.standing {
            return self.file(id, &["report.html"]);
        }
        match self.followed(id) {
            Ok((fragment, _)) => Page { standing: Some("running"), ..Page::html(live::run(&entry, &fragment)) },
            Err(why) => Page::refusal(StatusCode::INTERNAL_SERVER_ERROR, &why),
        }
    }

    fn run_now(&self, id: &str) -> Page {
        let Some(entry) = self.entry(id) else { return no_run(id) };
        if let Standing::Ended(_) = entry.standing {
            lock(&self.followed).remove(id);
            return Page { standing: Some("ended"), ..Page::html(String::new()) };
        }
        match self.followed(id) {
            Ok((text, tag)) => Page { tag: Some(tag), standing: Some("running"), ..Page::html(text) },
            Err(why) => Page::refusal(StatusCode::INTERNAL_SERVER_ERROR, &why),
        }
    }

    /// The fragment of a run that goes on, and its tag.
    fn followed(&self, id: &str) -> Result<(String, String), String> {
        if let Some(text) = loads::now(&self.folder.join(id)) {
            let tag = tag_of(&text);
            return Ok((text, tag));
        }
        let followed = lock(&self.followed).entry(id.to_owned()).or_default().clone();
        // Two browsers that look at one run wait for one drawing.
        let mut followed = lock(&followed);
        followed.read(&self.folder.join(id).join(HISTORY))?;
        Ok((followed.text.clone(), followed.tag.clone()))
    }

    /// A file of a run.
    fn file(&self, id: &str, path: &[&str]) -> Page {
        let Some((dir, _)) = self.open(id) else { return no_run(id) };
        let name = path.join("/");
        // A load has no logs of others.
        let has_ended = dir.file(RESULT).exists() || loads::ended(dir.path()).is_some();
        if !ALWAYS_CLEAN.contains(&name.as_str()) && !has_ended {
            let why = "this run has no result yet: its logs may hold secrets until it has ended";
            return Page::refusal(StatusCode::FORBIDDEN, why);
        }
        // Wherever links lead: what is not in the folder of the run is not shown.
        let inside = |root: &Path| -> Option<PathBuf> {
            let (root, file) = (root.canonicalize().ok()?, root.join(&name).canonicalize().ok()?);
            (file.starts_with(&root) && file.is_file()).then_some(file)
        };
        let Some(file) = inside(dir.path()) else { return Page::not_found("no such file in the folder of this run") };
        match fs::read(&file) {
            Ok(content) => Page { kind: kind_of(&file), body: content.into(), ..Page::html(String::new()) },
            Err(error) => Page::refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("{name}: {error}")),
        }
    }
}

fn no_run(id: &str) -> Page {
    Page::not_found(&format!("there is no run {id:?} in this folder; all runs are at /"))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tag of a text: the same for the same text, while this program runs.
fn tag_of(text: &str) -> String {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

fn kind_of(file: &Path) -> &'static str {
    match file.extension().and_then(|e| e.to_str()).unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "json" => "application/json",
        "xml" => "text/xml; charset=utf-8",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        "jsonl" | "log" | "yaml" | "txt" | "console" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// Does the process that wrote this marker still run? A later one with its number does not count: it began after the run.
fn is_running(started: &Started) -> bool {
    let Some(stat) = Stat::read(started.pid).filter(|stat| !stat.is_dead()) else { return false };
    let boot = fs::read_to_string("/proc/stat").ok();
    let number = |line: &str| line.strip_prefix("btime ")?.parse::<i64>().ok();
    let boot = boot.as_deref().and_then(|text| text.lines().find_map(number));
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    match (boot, ticks.and_then(|ticks| u64::try_from(ticks).ok()).filter(|ticks| *ticks > 0)) {
        // Two seconds for what the clock was set by since boot.
        (Some(boot), Some(ticks)) => {
            let began = boot + i64::try_from(stat.start_time / ticks).unwrap_or(i64::MAX / 2);
            began <= started.at.as_micros() / 1_000_000 + 2
        }
        // Not to be known: the number alone counts.
        _ => true,
    }
}

/// A history that grows.
#[derive(Default)]
struct Followed {
    history: Vec<Observation>,
    /// Bytes of the file that have been read, up to the end of a line.
    read: u64,
    text: String,
    tag: String,
    /// How many observations the text shows; `None`: nothing has been drawn.
    drawn: Option<usize>,
    /// When it may be drawn again.
    next: Option<Instant>,
}

impl Followed {
    /// Reads what was written since the last time, and draws it.
    fn read(&mut self, file: &Path) -> Result<(), String> {
        match fs::File::open(file) {
            Ok(file) => self.take(file)?,
            // The run has not begun to write.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{}: {error}", file.display())),
        }
        let now = Instant::now();
        if self.drawn == Some(self.history.len()) || self.next.is_some_and(|next| now < next) {
            return Ok(());
        }
        // What is in the file went through the run's own redactor when it was written.
        self.text = live::now(&self.history, &Redactor::default());
        self.tag = tag_of(&self.text);
        self.drawn = Some(self.history.len());
        self.next = Some(Instant::now() + now.elapsed() * REST);
        Ok(())
    }

    fn take(&mut self, mut file: fs::File) -> Result<(), String> {
        let mut new = Vec::new();
        let read = file.seek(SeekFrom::Start(self.read)).and_then(|_| file.read_to_end(&mut new));
        read.map_err(|error| format!("{HISTORY}: {error}"))?;
        // The last line may be half written.
        let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in new[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let n = self.history.len() + 1;
            let observation = serde_json::from_slice(line);
            self.history.push(observation.map_err(|error| format!("{HISTORY}, line {n}: {error}"))?);
        }
        self.read += whole as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_judge::result::{CheckKind, CheckResult, CheckVerdict};
    use vlab_model::history::{HISTORY_VERSION, Source, What};

    use super::*;

    fn started(id: &str, pid: u32, at: Timestamp) -> Started {
        Started {
            run_id: id.to_owned(),
            scenario: "sno".to_owned(),
            seed: 7,
            time_profile: "fast".to_owned(),
            service: String::new(),
            hosts: "simulated".to_owned(),
            api: String::new(),
            real_node: None,
            pid,
            at,
            vlab_version: "0".to_owned(),
        }
    }

    fn begin(folder: &Path, id: &str, pid: u32) -> RunDir {
        let nothing = Redactor::default();
        let started = started(id, pid, Timestamp::now());
        RunDir::create(folder, &started, b"version: 1\n", &BTreeMap::new(), &nothing).unwrap()
    }

    fn end(dir: &RunDir, checks: Vec<CheckResult>) {
        let mut result = RunResult { checks, ..RunResult::default() };
        result.conclude();
        fs::write(dir.file("report.html"), "<p>the report</p>").unwrap();
        fs::write(dir.file("service.log"), "started\n").unwrap();
        fs::write(dir.file(RESULT), serde_json::to_vec(&result).unwrap()).unwrap();
    }

    fn shown(folder: &Path) -> Shown {
        Shown { folder: folder.to_owned(), ended: Mutex::default(), followed: Mutex::default() }
    }

    fn text(page: &Page) -> &str {
        std::str::from_utf8(&page.body).unwrap()
    }

    /// No process has this number: the kernel's limit is 2^22.
    const NOBODY: u32 = 1 << 30;

    #[test]
    fn the_list_tells_running_ended_and_killed_runs_apart() {
        let folder = tempfile::tempdir().unwrap();
        begin(folder.path(), "1-running", std::process::id());
        begin(folder.path(), "2-killed", NOBODY);
        let failed = CheckResult::new(CheckKind::Expectation, "all hosts are known", CheckVerdict::Failed);
        end(&begin(folder.path(), "3-failed", NOBODY), vec![failed]);
        fs::create_dir(folder.path().join("sessions")).unwrap();
        let shown = shown(folder.path());
        let standings: Vec<Standing> = shown.ids().iter().map(|id| shown.entry(id).unwrap().standing).collect();
        assert_eq!(standings, [Standing::Ended(Verdict::Failed), Standing::Killed, Standing::Running]);
        let page = shown.page("/");
        assert!(text(&page).contains("<td>all hosts are known</td>"), "{}", text(&page));
        assert!(text(&page).contains("1 running"));
    }

    #[test]
    fn a_number_that_was_dealt_again_is_no_running_run() {
        let mut marker = started("a", std::process::id(), Timestamp::now());
        assert!(is_running(&marker));
        marker.at = Timestamp::from_secs(0);
        assert!(!is_running(&marker), "this process began long after that");
    }

    #[test]
    fn a_run_is_followed_line_by_line_and_then_its_report_takes_over() {
        let folder = tempfile::tempdir().unwrap();
        let dir = begin(folder.path(), "1-sno", std::process::id());
        let shown = shown(folder.path());
        assert!(text(&shown.page("/runs/1-sno/")).contains("Its report takes the place of this page"));
        let observation = |seq, note: &str| {
            let what = What::Note { text: note.to_owned() };
            let (v, source, harness_time) = (HISTORY_VERSION, Source::Harness, Timestamp::now());
            let o = Observation { v, seq, source, service_time: None, harness_time, what };
            serde_json::to_string(&o).unwrap()
        };
        let (first, second) = (observation(0, "the first note"), observation(1, "the second note"));
        fs::write(dir.file(HISTORY), format!("{first}\n{}", &second[..20])).unwrap();
        let mut followed = Followed::default();
        followed.read(&dir.file(HISTORY)).unwrap();
        assert!(followed.text.contains("the first note") && !followed.text.contains("the second"), "{}", followed.text);
        fs::write(dir.file(HISTORY), format!("{first}\n{second}\n")).unwrap();
        followed.next = None;
        let before = followed.tag.clone();
        followed.read(&dir.file(HISTORY)).unwrap();
        assert!(followed.text.contains("the second note"));
        assert_ne!(before, followed.tag);
        end(&dir, Vec::new());
        assert_eq!(shown.page("/runs/1-sno/now").standing, Some("ended"));
        assert_eq!(text(&shown.page("/runs/1-sno/")), "<p>the report</p>");
        assert_eq!(text(&shown.page("/runs/1-sno/service.log")), "started\n");
    }

    #[rstest]
    #[case("/runs/../secret/", StatusCode::NOT_FOUND)]
    #[case("/runs/1-sno/../../secret", StatusCode::NOT_FOUND)]
    #[case("/runs/1-sno/away", StatusCode::NOT_FOUND)]
    #[case("/runs/1-sno/.", StatusCode::NOT_FOUND)]
    #[case("/runs/2-live/service.log", StatusCode::FORBIDDEN)]
    #[case("/runs/2-live/scenario.yaml", StatusCode::OK)]
    #[case("/runs/none/", StatusCode::NOT_FOUND)]
    #[case("/else", StatusCode::NOT_FOUND)]
    fn only_files_of_runs_are_shown_and_logs_only_when_they_are_clean(
        #[case] path: &str,
        #[case] expected: StatusCode,
    ) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("runs");
        fs::write(root.path().join("secret"), "s").unwrap();
        let dir = begin(&folder, "1-sno", NOBODY);
        end(&dir, Vec::new());
        std::os::unix::fs::symlink(root.path().join("secret"), dir.file("away")).unwrap();
        let live = begin(&folder, "2-live", std::process::id());
        fs::write(live.file("service.log"), "password\n").unwrap();
        assert_eq!(shown(&folder).page(path).status, expected);
    }

    #[rstest]
    #[case("localhost:8091", true)]
    #[case("127.0.0.1", true)]
    #[case("127.0.0.53:80", true)]
    #[case("[::1]:8091", true)]
    #[case("evil.example:8091", false)]
    #[case("10.0.0.1", false)]
    #[case("", false)]
    fn names_of_the_loopback_interface(#[case] host: &str, #[case] expected: bool) {
        assert_eq!(names_loopback(host), expected);
    }

    #[tokio::test]
    async fn strangers_and_writers_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let ask = |method: Method, host: &'static str| {
            let shown = Arc::new(shown(folder.path()));
            let request = Request::builder().method(method).uri("/").header(HOST, host).body(()).unwrap();
            async move { answer(shown, request).await.status() }
        };
        assert_eq!(ask(Method::GET, "localhost:1").await, StatusCode::OK);
        assert_eq!(ask(Method::GET, "evil.example").await, StatusCode::FORBIDDEN);
        assert_eq!(ask(Method::POST, "localhost:1").await, StatusCode::METHOD_NOT_ALLOWED);
        let elsewhere = listen(([0, 0, 0, 0], 0).into()).unwrap_err().to_string();
        assert!(elsewhere.contains("use an address of the loopback interface"), "{elsewhere}");
    }
}
