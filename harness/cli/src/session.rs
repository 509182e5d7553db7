//! What several runs of one command look like on a terminal. And `rerun`, which takes up what a session has left.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use vlab_api::Timestamp;
use vlab_drive::prepare::Choices;
use vlab_drive::target::Target;
use vlab_judge::result::{RunResult, Verdict};
use vlab_reports::console::{self, Style};
use vlab_reports::session::{ItemOutcome, Session, SessionItem};
use vlab_run::hosts::vm::Ability;
use vlab_run::live::{Screen, Show};
use vlab_run::real::RealOptions;
use vlab_run::session::{self, Front, LATEST, RunOrder, SessionPlan, Tried, find_session};
use vlab_run::snapshot::Snapshot;
use vlab_scenario::{Catalogue, FrontDoor};

use crate::args::{Options, SeriesArgs, interrupted};
use crate::error::{CliError, ExitResult as Exit};
use crate::frozen;
use crate::pipeline;
use crate::say;
use crate::scenario::{machines, prepare_hosts, real_node};
use crate::tools::{Setup, catalogue, ensure_set_up, load, print, tell};

/// How the runs of a command are carried out.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct How {
    /// How many runs go on at once. Scenarios that measure load run alone.
    #[arg(long, short, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Retry a scenario that does not pass up to this many times, with the same seed. One that passes on a retry is
    /// `flaky`.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=20))]
    retries: u16,
    /// The result of a scenario that passes only on a retry: `fail` (exit code 7) or `pass`.
    #[arg(long, value_enum, default_value_t = FlakyResult::Fail, value_name = "RESULT")]
    flaky_result: FlakyResult,
    /// Leave the lab of each run in place when it ends; `vlab gc` removes it.
    #[arg(long)]
    keep: bool,
    /// When a run does not pass, wait for the Enter key before its lab is taken down. Needs a terminal, and one run at a time.
    #[arg(long)]
    pause_on_failure: bool,
}

/// What flaky is.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FlakyResult {
    /// Exit code 7.
    #[default]
    Fail,
    /// Exit code 0.
    Pass,
}

/// How the runs of a command are carried out.
pub(crate) struct Running<'a> {
    /// The lab of each.
    pub(crate) options: &'a Options,
    /// How many at once, and how often.
    pub(crate) how: &'a How,
    /// What is known of this computer's virtual machines.
    pub(crate) ability: Option<Ability>,
    /// Cancelled by Ctrl-C.
    pub(crate) interrupted: CancellationToken,
}

/// What the runs of a command have come to.
pub(crate) struct SessionExit {
    /// Exit code.
    pub(crate) code: u8,
    /// What each run took: the last attempt of each, without its checks.
    pub(crate) results: Vec<RunResult>,
    /// The session.
    pub(crate) session: Session,
    /// Its folder.
    pub(crate) folder: PathBuf,
}

/// Runs all of them.
pub(crate) async fn run_orders(
    catalogue: &Catalogue,
    orders: Vec<RunOrder>,
    running: Running<'_>,
) -> Result<SessionExit, CliError> {
    let Running { options, how, ability, interrupted } = running;
    let quarantine = catalogue.quarantine(Timestamp::now()).map_err(CliError::rendered)?;
    if how.pause_on_failure {
        let (stdin, stderr) = (std::io::stdin().is_terminal(), std::io::stderr().is_terminal());
        if !stdin || !stderr {
            return Err(CliError::usage(
                "--pause-on-failure waits for the Enter key, and there is no terminal; `--keep` leaves the lab as it is",
            ));
        }
        if how.jobs > 1 {
            return Err(CliError::usage("--pause-on-failure needs --jobs 1: two runs cannot wait for one keyboard"));
        }
    }
    if orders.iter().any(|order| order.prepared.target.needs_postgres_here()) {
        ensure_set_up(Setup::Run, !options.lab.no_setup)?;
    }
    let _ = vlab_lab::doctor::raise_open_files();
    let all = orders.len();
    let terminal = Terminal {
        all,
        looked_at: !options.quiet && std::io::stderr().is_terminal(),
        screen: Screen::default(),
        options: options.clone(),
        how: how.clone(),
        ability,
        interrupted: interrupted.clone(),
    };
    let plan = SessionPlan {
        orders,
        quarantine,
        runs: options.lab.runs(),
        jobs: how.jobs,
        retries: how.retries,
        flaky_passes: how.flaky_result == FlakyResult::Pass,
        interrupted,
    };
    let ended = session::run(plan, Arc::new(terminal)).await;
    let ended = ended.map_err(|e| CliError::inconclusive(format!("inconclusive: the session's folder: {e}")))?;
    if all > 1 {
        let color = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        print(&format!("\n{}session: {}\n", ended.session.table(color), ended.folder.display()));
    }
    pipeline::summary(&ended.session);
    let session::SessionEnd { session, folder, results } = ended;
    Ok(SessionExit { code: session.exit_code(), results, session, folder })
}

/// The terminal on which a session is shown.
struct Terminal {
    /// How many runs there are.
    all: usize,
    /// Somebody looks at it: what goes on is drawn.
    looked_at: bool,
    screen: Screen,
    options: Options,
    how: How,
    ability: Option<Ability>,
    interrupted: CancellationToken,
}

impl Front for Terminal {
    fn options(&self, order: &RunOrder) -> RealOptions {
        let live = match (self.looked_at, self.how.jobs) {
            (false, _) => Show::Nothing,
            (true, 1) => Show::Hosts(self.screen.clone()),
            (true, _) => Show::Line(self.screen.clone()),
        };
        let mut options = self.options.lab.options(order.text.clone(), self.interrupted.clone(), live);
        options.ability.clone_from(&self.ability);
        options.keep = self.how.keep;
        options.pause_on_failure = self.how.pause_on_failure;
        options.from.clone_from(&order.from);
        options
    }

    fn begins(&self, order: &RunOrder) {
        let name = &order.prepared.scenario.name;
        if self.all > 1 && !self.looked_at && !self.options.quiet {
            tell(&format!("{name} begins\n"));
        }
        if let Some(why) = &order.prepared.hosts_why {
            let hosts = if order.prepared.has_machines() { "virtual machines" } else { "SIMULATED" };
            self.screen.suspend(|| say(&format!("{name}: its hosts are {hosts}: {why}")));
        }
    }

    fn tried(&self, order: &RunOrder, tried: &Tried<'_>) {
        let name = &order.prepared.scenario.name;
        let (result, last) = (&tried.outcome.result, tried.last);
        let mut text = match (self.all, result.verdict) {
            (1, _) | (_, Verdict::Failed | Verdict::Inconclusive) => console::render(result, style()),
            (_, Verdict::Passed) => console::closing_line(result, style()),
        };
        if !last {
            text.push_str("trying again\n");
        } else if matches!(tried.came_to, ItemOutcome::Flaky | ItemOutcome::Quarantined) {
            text.push_str(&format!("{name} is {}\n", tried.came_to.as_str()));
        }
        let dir = tried.outcome.dir.as_deref();
        if let Some(dir) = dir.filter(|_| self.all == 1 || result.verdict != Verdict::Passed) {
            text.push_str(&format!("report: {}\n", dir.join("report.html").display()));
        }
        if !tried.outcome.kept.is_empty() {
            text.push_str("the lab is kept; `vlab gc` removes it:\n");
            tried.outcome.kept.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
        if last && self.all > 1 {
            text = format!("[{}/{}] {text}", tried.through, self.all);
        }
        if last {
            text += &pipeline::annotations(&order.prepared.scenario, result);
        }
        self.screen.suspend(|| print(&text));
    }

    fn warn(&self, problem: &str) {
        self.screen.suspend(|| say(problem));
    }
}

/// How this terminal is.
pub(crate) fn style() -> Style {
    let variable = |name: &str| std::env::var(name).ok();
    Style::of(variable("NO_COLOR").as_deref(), variable("COLUMNS").as_deref(), std::io::stdout().is_terminal(), None)
}

#[derive(clap::Args)]
pub(crate) struct RerunArgs {
    /// A session: its folder, its id, or `latest`.
    #[arg(default_value = LATEST)]
    session: String,
    /// Run what failed, was inconclusive or was not run. This is the default.
    #[arg(long, conflicts_with = "all")]
    failed: bool,
    /// Run all of them.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    options: Options,
}

pub(crate) async fn rerun(args: RerunArgs) -> Exit {
    let catalogue = catalogue()?;
    let runs = args.options.lab.runs();
    let session = Session::read(&find_session(&runs, &args.session)).map_err(|error| {
        CliError::usage(format!("{error}; `vlab scenario` with several scenarios or `--repeat` leaves a session"))
    })?;
    let items: Vec<&SessionItem> =
        if args.all { session.items.iter().collect() } else { session.not_passed().collect() };
    if items.is_empty() {
        let why = format!("all {} runs of {} passed; `--all` repeats them", session.items.len(), session.id);
        return Err(CliError::nothing_selected(why));
    }
    let interrupted = interrupted();
    let mut loaded = Vec::new();
    for item in items {
        let scenario = load(&catalogue, &item.called)?;
        let service: Target =
            item.service.parse().map_err(|error| CliError::usage(format!("{}: {error}", session.id)))?;
        loaded.push((item, scenario, service));
    }
    let scenarios: Vec<_> = loaded.iter().map(|(_, scenario, _)| scenario.clone()).collect();
    // A session has one service for all.
    let service = loaded.first().map(|(_, _, service)| service.clone());
    let node = loaded.first().map(|(item, ..)| real_node(item.real_node.as_deref())).transpose()?.flatten();
    // And one choice of what hosts are.
    let hosts = loaded.first().and_then(|(item, ..)| frozen::hosts_of(item.hosts.as_deref()?));
    let asked = Choices { service, real_node: node.clone(), hosts, ..Choices::default() };
    let (ability, auto) = machines(&scenarios, &asked, &args.options.lab, &interrupted).await?;
    let mut orders = Vec::new();
    for (item, (scenario, text), service) in loaded {
        let from = item.from.as_deref().map(|folder| Snapshot::open(folder).map(Arc::new));
        let from = from.transpose().map_err(|why| CliError::usage(format!("{}: {why}", session.id)))?;
        let mut choices = Choices {
            seed: Some(item.seed),
            time_profile: Some(item.time_profile.clone()),
            service: Some(service),
            auto: auto.clone(),
            real_tools: args.options.lab.real_tools,
            real_node: node.clone(),
            hub: args.options.lab.hub()?,
            hosts,
            api: item.api.as_deref().and_then(FrontDoor::from_word),
            ..Choices::default()
        };
        if let Some(from) = &from {
            frozen::as_it_was(&mut choices, from)?;
        }
        let prepared = prepare_hosts(scenario, &catalogue, &choices).map_err(CliError::rendered)?;
        orders.push(RunOrder { prepared, text, repetition: item.repetition, from });
    }
    frozen::can_go_on(&orders)?;
    let ended =
        run_orders(&catalogue, orders, Running { options: &args.options, how: &args.how, ability, interrupted })
            .await?;
    SeriesArgs::default().show_each(&ended.results, None)?;
    Ok(ended.code)
}
