//! The verb `load`: load plans, and what is done with their results.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_util::sync::CancellationToken;
use vlab_judge::result::{Verdict, exit};
use vlab_load::compare::{compare, table};
use vlab_load::generate::{Options, Tell, generate};
use vlab_load::preflight::{Machine, refusals};
use vlab_load::rehearsal::{self, rehearse};
use vlab_load::result::{LoadResult, Second, merge};
use vlab_load::schedule::Part;
use vlab_load::{growth, html, installs, manifest, metrics, otlp, stub};
use vlab_run::loads::LoadFolder;
use vlab_scenario::{LoadMode, LoadPlan, PlannedClusters, SourceFile, Span, load_plan, plan_schema_text};
use vlab_service::Pace;

use crate::args::runs_folder;
use crate::error::{CliError, ExitResult, OrExit as _};
use crate::stop::stopped;
use crate::tools::{catalogue, print, tell};

/// Parts that this program starts begin so long after it, when all of them are ready.
const UNTIL_ALL_ARE_THERE: Duration = Duration::from_secs(3);
/// On the safe side: how long it takes to make clusters that nobody installs, for each.
const CLUSTER_IS_MADE: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LoadArgs {
    #[command(subcommand)]
    verb: Option<LoadVerb>,
    #[command(flatten)]
    run: Option<RunArgs>,
}

#[derive(clap::Args)]
struct RunArgs {
    /// Name of a load plan, or path of its file.
    plan: String,
    /// URL of the service, for example `http://127.0.0.1:8090`.
    #[arg(long, conflicts_with = "stub")]
    url: Option<String>,
    /// Against a target of this program that only answers: what the generator itself can do.
    #[arg(long)]
    stub: bool,
    /// In virtual time: no service and no hosts that wait, but what the real service's intervals and batches would do to this plan.
    #[arg(long = "virtual", conflicts_with_all = ["url", "stub", "workers", "partition", "start_at", "watch", "database", "html", "otlp", "metrics"])]
    in_virtual_time: bool,
    /// In virtual time: how long the monitor of hosts takes for a look at one host.
    #[arg(long, value_name = "TIME", default_value = "4ms", requires = "in_virtual_time")]
    host_look: Span,
    /// In virtual time: how long the monitor of clusters takes for a look at one cluster.
    #[arg(long, value_name = "TIME", default_value = "11ms", requires = "in_virtual_time")]
    cluster_look: Span,
    /// In virtual time: this time profile instead of the plan's.
    #[arg(long, value_name = "NAME", requires = "in_virtual_time")]
    time_profile: Option<String>,
    /// Spread the plan over so many processes on this computer.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256), conflicts_with = "partition")]
    workers: u32,
    /// Carry out only this part, for example `1/4`; the others are elsewhere.
    #[arg(long, value_name = "I/N")]
    partition: Option<Part>,
    /// Begin at that time, in seconds since 1970, so that parts begin together.
    #[arg(long, value_name = "SECONDS")]
    start_at: Option<u64>,
    /// Note processor time and memory of the process with this id: the service's, if it is on this computer.
    #[arg(long, value_name = "PID")]
    watch: Option<u32>,
    /// Note what PostgreSQL says about the database of the service: its connection string or URL.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Write the result into this file; `-`: to stdout. By default `load-<plan>.json`.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with charts into this file, too.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the figures into this file, too, as metrics of OTLP in JSON.
    #[arg(long, value_name = "FILE")]
    otlp: Option<PathBuf>,
    /// While it goes on, answer `/metrics` there with the generator's own figures, in the form of Prometheus.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "workers")]
    metrics: Option<std::net::SocketAddr>,
    /// Say nothing while it goes on.
    #[arg(long)]
    quiet: bool,
}

#[derive(clap::Subcommand)]
enum LoadVerb {
    /// Put the results of the parts of a plan together.
    Merge {
        /// Result files of the parts.
        #[arg(required = true)]
        results: Vec<PathBuf>,
        /// The plan, for its thresholds.
        #[arg(long)]
        plan: Option<String>,
        /// Write the result into this file; `-`: to stdout.
        #[arg(long, value_name = "FILE", default_value = "-")]
        json: PathBuf,
        /// Write a page with charts into this file, too.
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        /// Write the figures into this file, too, as metrics of OTLP in JSON.
        #[arg(long, value_name = "FILE")]
        otlp: Option<PathBuf>,
    },
    /// Compare two versions of a service: medians of several results each. Exit code 5 when the second is worse.
    Compare {
        /// A result file, or a folder of them.
        a: PathBuf,
        /// The same of the other version.
        b: PathBuf,
    },
    /// Only answer, at wire speed.
    Stub {
        /// Where.
        #[arg(long, default_value = "127.0.0.1:8099")]
        listen: std::net::SocketAddr,
    },
    /// Write a plan as an Indexed Job of Kubernetes, one part in each pod.
    Manifest {
        /// Name of a load plan, or path of its file.
        plan: String,
        /// Write objects of Kubernetes.
        #[arg(long, required = true)]
        kubernetes: bool,
        /// URL of the service, as the pods reach it.
        #[arg(long)]
        url: String,
        /// Number of pods.
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
        workers: u32,
        /// Image with this program.
        #[arg(long, default_value = "vlab:latest")]
        image: String,
        /// When the parts begin, in seconds since 1970.
        #[arg(long, value_name = "SECONDS")]
        start_at: u64,
    },
    /// Check load plans without running them.
    Validate {
        /// Names of load plans, or paths of their files.
        #[arg(required = true)]
        plans: Vec<String>,
    },
    /// Print the JSON Schema of load plans.
    Schema,
}

pub(crate) async fn load(args: LoadArgs) -> ExitResult {
    match (args.verb, args.run) {
        (None, None) => Err(CliError::usage("name a load plan; `vlab load --help` shows what there is")),
        (None, Some(run)) => carry_out(run).await,
        (Some(verb), _) => match verb {
            LoadVerb::Merge { results, plan, json, html, otlp } => {
                merged(&results, plan.as_deref(), &Files { json, html, otlp })
            }
            LoadVerb::Compare { a, b } => compared(&a, &b),
            LoadVerb::Stub { listen } => serve_stub(listen).await,
            LoadVerb::Manifest { plan, url, workers, image, start_at, .. } => {
                let (plan, source) = read(&plan)?;
                if url.contains(['\'', ' ', '"']) {
                    return Err(CliError::usage(format!("{url:?} is no URL of a service")));
                }
                if let Some(why) = manifest::unfit(&plan) {
                    return Err(CliError::usage(why));
                }
                print(&manifest::kubernetes(&plan, &source, (workers, &image), &url, start_at));
                Ok(exit::PASSED)
            }
            LoadVerb::Validate { plans } => {
                for name in &plans {
                    let (plan, _) = read(name)?;
                    let installs = plan.mode == LoadMode::Installs;
                    let of = |kind: &PlannedClusters| if installs { 1 } else { kind.scenario.clusters.len() as u32 };
                    let clusters: u32 = plan.clusters.iter().map(|kind| kind.count * of(kind)).sum();
                    let what = if installs { "installations" } else { "clusters" };
                    let clusters = if clusters > 0 { format!("{clusters} {what}, ") } else { String::new() };
                    let (hosts, takes) = (plan.hosts, plan.takes().as_secs_f64());
                    print(&format!("{}: valid; {clusters}{hosts} hosts, {takes} s\n", plan.name));
                }
                Ok(exit::PASSED)
            }
            LoadVerb::Schema => {
                print(&plan_schema_text());
                Ok(exit::PASSED)
            }
        },
    }
}

fn read(name: &str) -> Result<(LoadPlan, SourceFile), CliError> {
    let catalogue = catalogue()?;
    let source = catalogue.find_plan(name).map_err(CliError::rendered)?;
    let plan = load_plan(&source, &catalogue).map_err(CliError::rendered)?;
    if !plan.clusters.is_empty() {
        // Where the service is makes no difference to what a scenario needs of it.
        installs::check(&plan, &catalogue, "http://127.0.0.1:8090").or_usage()?;
    }
    Ok((plan, source))
}

async fn serve_stub(listen: std::net::SocketAddr) -> ExitResult {
    let listener = tokio::net::TcpListener::bind(listen).await;
    let listener = listener.map_err(|error| CliError::inconclusive(format!("cannot listen on {listen}: {error}")))?;
    let address = listener.local_addr().unwrap_or(listen);
    let _ = Machine::this(true);
    print(&format!("http://{address}\n"));
    let stop = stopped();
    tokio::select! {
        ended = stub::serve(listener) => ended.map(|()| exit::PASSED).or_inconclusive(),
        () = stop.cancelled() => Ok(exit::PASSED),
    }
}

/// Shows the figures of a generator at that address.
async fn serve_metrics(address: std::net::SocketAddr) -> Result<tokio::sync::watch::Sender<String>, CliError> {
    let listener = tokio::net::TcpListener::bind(address).await;
    let listener = listener.map_err(|error| CliError::inconclusive(format!("cannot listen on {address}: {error}")))?;
    let address = listener.local_addr().unwrap_or(address);
    tell(&format!("figures: http://{address}/metrics\n"));
    let (sender, pages) = tokio::sync::watch::channel(String::new());
    tokio::spawn(metrics::serve(listener, pages));
    Ok(sender)
}

/// Plays the plan in virtual time.
fn play(args: &RunArgs, mut plan: LoadPlan) -> ExitResult {
    if let Some(profile) = &args.time_profile {
        plan.time_profile = Some(profile.clone());
    }
    let pace = Pace { host: args.host_look.as_written(), cluster: args.cluster_look.as_written() };
    let live: Option<Tell> = if args.quiet { None } else { Some(Box::new(|line| tell(&format!("{line}\n")))) };
    let rehearsed = rehearse(&plan, &catalogue()?, rehearsal::Options { pace, stop: stopped(), live }).or_usage()?;
    let mut text = serde_json::to_string(&rehearsed).map_err(CliError::internal)?;
    text.push('\n');
    let json = args.json.clone().unwrap_or_else(|| PathBuf::from(format!("load-{}.json", plan.name)));
    tell(&rehearsed.text());
    if json == Path::new("-") {
        print(&text);
    } else {
        vlab_reports::write_whole(&json, &text).or_inconclusive()?;
        tell(&format!("result: {}\n", json.display()));
    }
    Ok(match (&rehearsed.cut_short, rehearsed.checks.iter().all(|check| check.holds)) {
        (why, _) if !why.is_empty() => exit::INCONCLUSIVE,
        (_, true) => exit::PASSED,
        (_, false) => exit::BUDGET_MISSED,
    })
}

async fn carry_out(args: RunArgs) -> ExitResult {
    let (plan, _) = read(&args.plan)?;
    if args.in_virtual_time {
        return tokio::task::spawn_blocking(move || play(&args, plan)).await.or_inconclusive()?;
    }
    if args.stub && !plan.clusters.is_empty() {
        return Err(CliError::usage("a stub only answers, and has no clusters: give the `--url` of a service"));
    }
    if plan.thresholds.memory_growth_percent.is_some() && args.watch.is_none() && args.partition.is_none() && !args.stub
    {
        return Err(CliError::usage(format!(
            "{} says how much the memory of the service may grow: give its process with `--watch PID`",
            plan.name
        )));
    }
    let part = args.partition.unwrap_or(Part::WHOLE);
    let url = match (&args.url, args.stub) {
        (Some(url), _) => url.clone(),
        (None, true) => {
            let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.or_inconclusive()?;
            let address = listener.local_addr().or_inconclusive()?;
            tokio::spawn(stub::serve(listener));
            format!("http://{address}")
        }
        (None, false) => {
            return Err(CliError::usage("say what to put under load: `--url http://HOST:PORT`, or `--stub`"));
        }
    };
    let is_here = ["127.0.0.1", "localhost"].iter().any(|here| url.contains(here));
    let share = Part { index: 0, of: part.of * args.workers };
    let stub = args.stub.then_some(Part { index: 0, of: part.of });
    let refused = refusals(&plan, share, Machine::this(is_here), stub);
    if !refused.is_empty() {
        return Err(CliError::inconclusive(format!(
            "{} does not fit this computer: {}",
            plan.name,
            refused.join("; ")
        )));
    }
    let stop = stopped();
    // Each part of several leaves its result to whoever puts them together.
    let folder = match args.partition {
        Some(_) => None,
        None => LoadFolder::begin(&runs_folder(), &plan.name, plan.seed, &url)
            .map_err(|error| tell(&format!("this load is not shown by `vlab ui`: {error}\n")))
            .ok()
            .map(Arc::new),
    };
    let result = if args.workers > 1 {
        if let Some(folder) = &folder {
            let text = format!(
                "<p class=\"note\">{} processes carry this plan out. Charts come when all have ended.</p>",
                args.workers
            );
            let _ = folder.now(&text);
        }
        spread(&args, &plan, &url, &stop).await
    } else {
        let start_at = args.start_at.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
        let live: Option<Tell> = if args.quiet { None } else { Some(Box::new(|line| tell(&format!("{line}\n")))) };
        let metrics = match args.metrics {
            Some(address) => Some(serve_metrics(address).await?),
            None => None,
        };
        let shown = folder.clone();
        // What cannot be shown is not worth ending a load for.
        let so_far: Option<Tell> = shown.map(|folder| -> Tell { Box::new(move |text| drop(folder.now(text))) });
        let options =
            Options { url, part, start_at, watch: args.watch, database: args.database, stop, live, so_far, metrics };
        generate(&plan, &catalogue()?, options).await.or_inconclusive()
    };
    let result = result.inspect_err(|_| {
        if let Some(folder) = &folder {
            folder.forget();
        }
    })?;
    let json = args.json.unwrap_or_else(|| PathBuf::from(format!("load-{}.json", plan.name)));
    // Without a part nothing is known of the whole, whatever the thresholds came to.
    let lost = args.workers > 1 && result.parts.0 != result.parts.1;
    if let Some(folder) = folder {
        let (verdict, why) = match comes_to(&result) {
            _ if lost => (Verdict::Inconclusive, result.cut_short.clone()),
            (verdict, why, _) => (verdict, why),
        };
        if let Err(error) = folder.end(verdict, &why, &html::page(&result)) {
            tell(&format!("{error}\n"));
        }
    }
    let code = written(&result, &Files { json, html: args.html, otlp: args.otlp })?;
    Ok(if lost { exit::INCONCLUSIVE } else { code })
}

/// What a load comes to, why, and its exit code.
fn comes_to(result: &LoadResult) -> (Verdict, String, u8) {
    if result.lacked_descriptors() > 0 {
        // What was offered is not what the plan says, so that nothing follows from what holds and what does not.
        return (Verdict::Inconclusive, "the generator had no descriptor free".to_owned(), exit::INCONCLUSIVE);
    }
    if let Some(check) = result.checks.iter().find(|check| !check.holds) {
        return (Verdict::Failed, format!("{}: {}", check.name, check.seen), exit::BUDGET_MISSED);
    }
    match result.cut_short.as_str() {
        "" => (Verdict::Passed, String::new(), exit::PASSED),
        why => (Verdict::Inconclusive, why.to_owned(), exit::INCONCLUSIVE),
    }
}

/// Where a result goes.
struct Files {
    json: PathBuf,
    html: Option<PathBuf>,
    otlp: Option<PathBuf>,
}

/// Starts the parts as processes of their own, and puts their results together.
async fn spread(args: &RunArgs, plan: &LoadPlan, url: &str, stop: &CancellationToken) -> Result<LoadResult, CliError> {
    let program = std::env::current_exe().or_inconclusive()?;
    // Those that nobody installs are made before.
    let clusters: u32 = plan.clusters.iter().map(|clusters| clusters.count).sum();
    let made = if plan.mode == LoadMode::Installs { Duration::ZERO } else { CLUSTER_IS_MADE * clusters / args.workers };
    let begin = SystemTime::now() + UNTIL_ALL_ARE_THERE + made;
    let begin = begin.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut children = Vec::new();
    for index in 1..=args.workers {
        let mut command = tokio::process::Command::new(&program);
        command.args(["load", &args.plan, "--url", url, "--json", "-", "--quiet"]);
        command.arg("--partition").arg(format!("{index}/{}", args.workers));
        command.arg("--start-at").arg(args.start_at.unwrap_or(begin).to_string());
        if let (Some(pid), 1) = (args.watch, index) {
            command.arg("--watch").arg(pid.to_string());
        }
        if let (Some(url), 1) = (&args.database, index) {
            command.arg("--database").arg(url);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        children.push(command.spawn().or_inconclusive()?);
    }
    let pids: Vec<u32> = children.iter().filter_map(tokio::process::Child::id).collect();
    // Each part writes what it has when it is asked to end.
    let pass_on = stop.clone();
    let passing = tokio::spawn(async move {
        pass_on.cancelled().await;
        for pid in pids.into_iter().filter_map(|pid| i32::try_from(pid).ok()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM);
        }
    });
    let (mut results, mut missing) = (Vec::new(), Vec::new());
    for (child, index) in children.into_iter().zip(1..) {
        // What the others saw is worth keeping, whatever became of this one.
        match of_part(child).await {
            Ok(result) => results.push(result),
            Err(why) => missing.push(format!("part {index}/{} gave no result ({why})", args.workers)),
        }
    }
    passing.abort();
    if results.is_empty() {
        return Err(CliError::inconclusive(missing.join("; ")));
    }
    for one in &missing {
        tell(&format!("{one}\n"));
    }
    let mut all = merge(results, Some(&plan.thresholds)).or_inconclusive()?;
    if !missing.is_empty() && all.cut_short.is_empty() {
        all.cut_short = missing.join("; ");
    }
    all.warnings.extend(missing);
    Ok(all)
}

/// What a part saw, or how it ended without a result.
async fn of_part(child: tokio::process::Child) -> Result<LoadResult, String> {
    let output = child.wait_with_output().await.map_err(|error| error.to_string())?;
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{}; {error}", output.status))
}

/// Writes a result, and says what it comes to.
fn written(result: &LoadResult, files: &Files) -> ExitResult {
    let json = files.json.as_path();
    let mut text = serde_json::to_string(result).map_err(CliError::internal)?;
    text.push('\n');
    let mut problem = None;
    if json == Path::new("-") {
        print(&text);
    } else {
        let failed = vlab_reports::write_whole(json, &text).err();
        problem = failed.map(|error| error.to_string());
        tell(&summary(result));
        if problem.is_none() {
            tell(&format!("result: {}\n", json.display()));
        }
    }
    for (path, text) in [(&files.html, html::page as fn(&LoadResult) -> String), (&files.otlp, otlp::render)] {
        if let Some(path) = path
            && let Err(error) = vlab_reports::write_whole(path, &text(result))
        {
            problem.get_or_insert(error.to_string());
        }
    }
    if let Some(problem) = problem {
        return Err(CliError::inconclusive(problem));
    }
    Ok(comes_to(result).2)
}

/// A figure of a second, if it was noted.
type OfSecond = fn(&Second) -> Option<u64>;

/// What the generator needed, and the service where its process was watched.
fn costs(result: &LoadResult) -> String {
    let answered = result.total().answered.max(1) as f64;
    let cpu = |of: OfSecond| result.seconds.iter().filter_map(of).sum::<u64>() as f64;
    let most = |of: OfSecond| result.seconds.iter().filter_map(of).max();
    let who: [(&str, OfSecond, OfSecond); 2] = [
        ("generator", |s| Some(s.generator_cpu_ms), |s| Some(s.generator_kib)),
        ("service", |s| s.service_cpu_ms, |s| s.service_kib),
    ];
    let mut text = String::new();
    for (name, of_cpu, of_memory) in who {
        if let Some(kib) = most(of_memory).filter(|kib| *kib > 0) {
            let each = cpu(of_cpu) * 1000.0 / answered;
            text.push_str(&format!(
                "  {name}: {each:.1} ms of processor time for 1,000 answers, {} MiB at most\n",
                kib / 1024
            ));
        }
    }
    text
}

fn summary(result: &LoadResult) -> String {
    let total = result.total();
    let mut text = format!(
        "{} against the {}: {:.1} s, offered {:.1}/s, answered {:.1}/s, {} failed, {} unanswered\n",
        result.plan,
        result.target.as_str(),
        result.took_s,
        total.offered as f64 / result.took_s.max(0.001),
        total.answered as f64 / result.took_s.max(0.001),
        total.failed(),
        total.unanswered()
    );
    if let Some(installs) = &result.installs {
        let of = |quantile| installs.took.quantile_ms(quantile) / 1000.0;
        text.push_str(&format!(
            "  installations: {} begun, {} installed  p50 {:.1} s  p99 {:.1} s  longest {:.1} s\n",
            installs.begun,
            installs.installed,
            of(0.5),
            of(0.99),
            of(1.0)
        ));
        for (how, count) in &installs.ended_otherwise {
            text.push_str(&format!("  ended otherwise: {count}: {how}\n"));
        }
    }
    for (operation, counted) in result.operations() {
        let of = |quantile| counted.latency.quantile_ms(quantile);
        let (p50, p99, longest) = (of(0.5), of(0.99), of(1.0));
        text.push_str(&format!(
            "  {operation:<20} {:>9} answered  p50 {p50:.2} ms  p99 {p99:.2} ms  longest {longest:.2} ms\n",
            counted.answered
        ));
    }
    for (kind, count) in &total.errors {
        text.push_str(&format!("  error: {kind}: {count}\n"));
    }
    for (operation, counted) in result.operations() {
        for (words, count) in &counted.said {
            text.push_str(&format!("  refused: {operation}: {words}: {count}\n"));
        }
    }
    text.push_str(&costs(result));
    if let Some(most) = result.most_of_database() {
        text.push_str(&format!(
            "  the database at most: {} connections, {} active, {} waiting for a lock; {} transactions a second\n",
            most.connections, most.active, most.waiting, most.transactions
        ));
    }
    if let Some(first) = result.statements.first() {
        let each = first.took_ms / first.calls.max(1) as f64;
        let text_of = &first.text;
        text.push_str(&format!(
            "  it spent most time on: {text_of} ({:.0} ms in {} calls, {each:.2} ms each)\n",
            first.took_ms, first.calls
        ));
    }
    let memory = growth::of(result);
    for (who, growth) in [("generator", memory.generator), ("service", memory.service)] {
        if let Some(growth) = growth {
            text.push_str(&format!("  memory of the {who} within the longest hold: {growth}\n"));
        }
    }
    for check in &result.checks {
        let word = if check.holds { "holds" } else { "does not hold" };
        text.push_str(&format!("  {word}: {} ({})\n", check.name, check.seen));
    }
    for warning in &result.warnings {
        text.push_str(&format!("  warning: {warning}\n"));
    }
    text
}

fn result_of(path: &Path) -> Result<LoadResult, CliError> {
    let wrong = |why: String| CliError::usage(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let result: LoadResult =
        serde_json::from_str(&text).map_err(|error| wrong(format!("this is no result of a load plan: {error}")))?;
    if result.version > vlab_load::result::VERSION {
        return Err(wrong(format!("it has version {}; use a newer vlab", result.version)));
    }
    Ok(result)
}

fn merged(paths: &[PathBuf], plan: Option<&str>, files: &Files) -> ExitResult {
    let results = paths.iter().map(|path| result_of(path)).collect::<Result<Vec<_>, _>>()?;
    let plan = plan.map(read).transpose()?;
    let result = merge(results, plan.as_ref().map(|(plan, _)| &plan.thresholds)).or_usage()?;
    written(&result, files)
}

fn compared(a: &Path, b: &Path) -> ExitResult {
    let side = |path: &Path| -> Result<Vec<LoadResult>, CliError> {
        if !path.is_dir() {
            return Ok(vec![result_of(path)?]);
        }
        let entries = std::fs::read_dir(path).or_usage()?;
        let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
        files.sort();
        files.iter().map(|file| result_of(file)).collect()
    };
    let (of_a, of_b) = (side(a)?, side(b)?);
    let all = compare(&of_a, &of_b).or_usage()?;
    print(&table(&all, (of_a.len(), of_b.len())));
    Ok(if all.iter().any(|c| c.worse) { exit::BUDGET_MISSED } else { exit::PASSED })
}
