//! The verbs that run scenarios in real time: `scenario` and `test`.

use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;
use vlab_drive::prepare::{Choices, HubChoice, PrepareError, Prepared, RealNode};
use vlab_drive::target::Target;
use vlab_run::hosts::HostProvider as _;
use vlab_run::hosts::vm::programs::in_folder;
use vlab_run::hosts::vm::{Ability, Libvirt};
use vlab_run::prepare::prepare;
use vlab_run::service::hub;
use vlab_run::session::{Partition, RunOrder};
use vlab_scenario::{Catalogue, FrontDoor, HostKind, Scenario};

use crate::args::{Hosts, LabArgs, Options, SeriesArgs, interrupted};
use crate::error::{CliError, ExitResult};
use crate::frozen::{self, Freezing, FrozenArgs};
use crate::say;
use crate::session::{How, Running, run_orders};
use crate::tools::{Setup, catalogue, ensure_set_up, load, tagged, tell};

const TARGETS: &str = "\
Against the real service:
  vlab scenario sno --service process:/usr/local/bin/assisted-service
      starts PostgreSQL and the program, on a free port of 127.0.0.1, and stops both. The time profile becomes
      its settings (HOST_MONITOR_INTERVAL ...); it also gets all other variables of your environment.
  vlab scenario sno --service remote:http://127.0.0.1:8090 --time-profile real
      uses a service that is already running (AUTH_TYPE=none, http). It is not started, stopped or configured, and
      the clusters of the run stay there. Its states are read once a second: shorter ones are missed, and what cannot
      be judged for that reason is inconclusive. Give the time profile whose intervals it was started with.
  vlab scenario sno --service container:quay.io/edge-infrastructure/assisted-service:latest
      starts PostgreSQL and the service as containers on a network of their own, with the environment that `process`
      has, and removes both. `container:vlab-service` is the simulated one (`cargo xtask images` builds it). Docker
      and Podman: `vlab doctor` says which is used.
In a scenario: `service: {kind: process, program: ...}`, `service: {kind: container, image: ...}` or
`service: {kind: remote, url: ...}`.
Not supported yet: https, services with authentication.";

#[derive(clap::Args)]
#[command(after_help = TARGETS)]
pub(crate) struct ScenarioArgs {
    /// Names of scenarios, or paths of their files.
    scenarios: Vec<String>,
    /// Run all scenarios with this tag, or with `!tag` those without it. If given several times, all must hold.
    #[arg(long)]
    tag: Vec<String>,
    #[command(flatten)]
    frozen: FrozenArgs,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args)]
pub(crate) struct TestArgs {
    /// Only scenarios with this tag, or with `!tag` only those without it.
    #[arg(long)]
    tag: Vec<String>,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    options: Options,
}

/// What is run how often.
#[derive(clap::Args, Clone)]
struct SessionArgs {
    /// Seed of all random choices, instead of the scenario's.
    #[arg(long)]
    seed: Option<u64>,
    /// Time profile, instead of the scenario's.
    #[arg(long)]
    time_profile: Option<String>,
    /// Run each scenario this many times, and show the median and spread of its durations and of each stage of the pivot.
    /// Without `--seed` each run has a seed of its own, unless the scenario fixes one.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeat: u16,
    #[command(flatten)]
    series: SeriesArgs,
    /// Run only part I of N of the scenarios, split by name alone, so that several machines can share the work.
    #[arg(long, value_name = "I/N")]
    partition: Option<Partition>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    target: TargetArgs,
}

/// What is under test.
#[derive(clap::Args, Clone)]
struct TargetArgs {
    /// Service under test, instead of the scenario's: `simulated`, `process:<program>` (a real assisted-service that is
    /// started for the run, with a PostgreSQL of its own), `container:<image>` (the same in containers) or `remote:<url>`
    /// (one that is already running; it is neither stopped nor configured)
    #[arg(long, value_name = "TARGET")]
    service: Option<Target>,
    /// What hosts are, instead of what the scenario says: `vm` (virtual machines that boot the discovery image) or `sim`
    /// (simulated, in seconds). Hosts of `kind: auto` are virtual machines where this machine can run some.
    #[arg(long, env = "VLAB_HOSTS", value_name = "KIND")]
    hosts: Option<Hosts>,
    /// How the user asks the service, instead of what the scenario says: `rest`, or `kube`, by resources on a Kubernetes API
    /// server on which the service's controllers act.
    #[arg(long, value_name = "API", value_parser = ["rest", "kube"])]
    api: Option<String>,
    /// With virtual machines: they run the product's own programs in the place of the lab's. The folder has `agent`, `installer`
    /// with its folder `deploy`, and `assisted-installer-controller` (or `controller`).
    #[arg(long, value_name = "FOLDER")]
    real_node: Option<PathBuf>,
}

pub(crate) async fn scenario(args: ScenarioArgs) -> ExitResult {
    let catalogue = catalogue()?;
    let mut given = args.scenarios;
    let frozen = args.frozen.read(&args.options.lab)?;
    if let Some(from) = frozen.from.as_ref().filter(|_| given.is_empty() && args.tag.is_empty()) {
        given.push(from.manifest.called.clone());
    }
    let mut names = given.clone();
    if !args.tag.is_empty() {
        names.extend(catalogue.list().into_iter().filter(|e| tagged(&e.tags, &args.tag)).map(|e| e.name));
    }
    if names.is_empty() {
        return Err(CliError::nothing_selected("no scenario selected; `vlab list` shows all"));
    }
    args.session.run(&catalogue, names, &given, &args.options, frozen).await
}

pub(crate) async fn test(args: TestArgs) -> ExitResult {
    let catalogue = catalogue()?;
    let names: Vec<String> =
        catalogue.list().into_iter().filter(|e| tagged(&e.tags, &args.tag)).map(|e| e.name).collect();
    args.session.run(&catalogue, names, &[], &args.options, Freezing::default()).await
}

impl SessionArgs {
    /// Runs these. What only virtual time can run is skipped where it was `given` by name, and left out where it was found by
    /// a tag.
    async fn run(
        self,
        catalogue: &Catalogue,
        mut names: Vec<String>,
        given: &[String],
        options: &Options,
        frozen: Freezing,
    ) -> ExitResult {
        if let Some(part) = self.partition {
            names.retain(|name| part.has(name));
        }
        if names.is_empty() {
            return Err(CliError::nothing_selected("no scenario matches"));
        }
        let mut choices = Choices {
            seed: self.seed,
            time_profile: self.time_profile,
            service: self.target.service,
            postgres_image: options.lab.postgres_image(),
            hosts: self.target.hosts.map(HostKind::from),
            real_tools: options.lab.real_tools,
            auto: None,
            api: self.target.api.as_deref().and_then(FrontDoor::from_word),
            real_node: real_node(self.target.real_node.as_deref())?,
            hub: options.lab.hub()?,
        };
        if let Some(from) = &frozen.from {
            frozen::as_it_was(&mut choices, from)?;
        }
        // All are read before the first one starts: a mistake in the last must not cost the time of the others.
        let mut loaded = names.iter().map(|name| load(catalogue, name)).collect::<Result<Vec<_>, _>>()?;
        let before = loaded.len();
        let by_name = |scenario: &Scenario| given.contains(&scenario.name) || given.contains(&scenario.path);
        loaded.retain(|(scenario, _)| !scenario.is_virtual() || by_name(scenario));
        if loaded.len() < before {
            let left_out = before - loaded.len();
            tell(&format!("left out, because only virtual time has them (`vlab simulate`): {left_out} of {before}\n"));
        }
        // One that names its API server says itself what that lacks.
        let names_one = |scenario: &Scenario| choices.hub == HubChoice::Ours && scenario.hub_assets.is_some();
        if let Some(why) = no_hub(&choices, &options.lab) {
            let before = loaded.len();
            let over_kube = |scenario: &Scenario| choices.api.unwrap_or(scenario.api) == FrontDoor::Kube;
            loaded.retain(|(scenario, _)| !over_kube(scenario) || by_name(scenario) || names_one(scenario));
            if loaded.len() < before {
                let left_out = before - loaded.len();
                tell(&format!("left out, because they ask over Kubernetes: {left_out} of {before}; {why}\n"));
            }
        }
        if loaded.is_empty() {
            return Err(CliError::nothing_selected("nothing is left to run here: use `vlab simulate`"));
        }
        let compared = self.series.of_one_scenario(loaded.len())?;
        let interrupted = interrupted();
        let (ability, auto) = machines(&loaded, &choices, &options.lab, &interrupted).await?;
        choices.auto = auto;
        let mut orders = Vec::new();
        for repetition in 1..=u32::from(self.repeat) {
            for (scenario, text) in &loaded {
                let prepared = prepare_hosts(scenario.clone(), catalogue, &choices).map_err(CliError::rendered)?;
                orders.push(RunOrder { prepared, text: text.clone(), repetition, from: frozen.from.clone() });
            }
        }
        if let Some(wanted) = frozen.wanted {
            return wanted.freeze(orders, options, ability, interrupted).await;
        }
        frozen::can_go_on(&orders)?;
        let running = Running { options, how: &self.how, ability, interrupted };
        let ended = run_orders(catalogue, orders, running).await?;
        self.series.show_each(&ended.results, compared.as_ref())?;
        Ok(ended.code)
    }
}

/// The product's programs in a folder that was named.
pub(crate) fn real_node(folder: Option<&Path>) -> Result<Option<RealNode>, CliError> {
    let found = folder.map(in_folder).transpose();
    found.map_err(|why| CliError::usage(format!("--real-node: {why}")))
}

/// Why scenarios that ask over Kubernetes are left out where nobody has named them.
fn no_hub(choices: &Choices, lab: &LabArgs) -> Option<String> {
    let program = match (&choices.hub, &choices.service) {
        (HubChoice::Existing(_), Some(Target::Remote { .. })) => return None,
        (HubChoice::Existing(_), _) => {
            return Some(
                "a hub that is there wants the address of its service: `--service remote:http://HOST:PORT`".to_owned(),
            );
        }
        (HubChoice::Assets(folder), _) => hub::assets::check(folder).err(),
        (HubChoice::Ours, _) => hub::program().err(),
    };
    match &choices.service {
        None | Some(Target::Simulated) => program,
        Some(Target::Process { .. }) if lab.definitions.is_none() => Some(
            "the controllers of a real service want the definitions of their kinds: `--definitions FOLDER`".to_owned(),
        ),
        Some(Target::Process { .. }) => program,
        Some(target) => Some(format!("the controllers of {target} work on no API server of the run")),
    }
}

/// What hosts of `kind: auto` become here, and why.
pub(crate) type Auto = Option<(HostKind, String)>;

/// Finds out about virtual machines, where scenarios ask for some: what this place can do, and what hosts of `kind: auto` become.
/// Where nothing but virtual machines will do, the run itself says why there are none.
pub(crate) async fn machines(
    loaded: &[(Scenario, Vec<u8>)],
    choices: &Choices,
    lab: &LabArgs,
    interrupted: &CancellationToken,
) -> Result<(Option<Ability>, Auto), CliError> {
    let any =
        |is: fn(HostKind) -> bool| loaded.iter().any(|(scenario, _)| scenario.hosts.iter().any(|host| is(host.kind)));
    let (must, may) = match choices.hosts {
        Some(HostKind::Auto) | None => (any(HostKind::is_machine), any(|kind| kind == HostKind::Auto)),
        Some(kind) => (kind.is_machine(), false),
    };
    if !must && !may {
        return Ok((None, None));
    }
    let simulated = |why: String| Ok((None, Some((HostKind::Simulated, why))));
    if !must && choices.service.as_ref().is_some_and(|service| *service != Target::Simulated) {
        return simulated(
            "the service is not the built-in one; with --hosts vm they are machines there as well".to_owned(),
        );
    }
    match ensure_set_up(Setup::Machines, !lab.no_setup) {
        Err(error) if must => return Err(error),
        Err(error) => {
            error.print();
            return simulated("what virtual machines need is not installed (see above)".to_owned());
        }
        Ok(_) => {}
    }
    let runs = lab.runs();
    let found = tokio::select! {
        found = vlab_run::hosts::vm::ability(&runs) => found,
        () = interrupted.cancelled() => return Err(CliError::interrupted()),
    };
    match found {
        Ok(ability) => {
            // Where it is left open, media that cannot be built are a reason, too; else the run says so itself.
            if !must && let Err(why) = lab_images(loaded, interrupted).await? {
                return simulated(format!("the lab's images cannot be built: {why}"));
            }
            let why = format!("this machine can run them with {}", ability.acceleration.why);
            Ok((Some(ability), Some((Libvirt.kind(), why))))
        }
        Err(why) => simulated(format!("this machine cannot run virtual machines: {why}")),
    }
}

/// Builds the medium that virtual machines boot, unless the scenarios bring their own.
async fn lab_images(
    loaded: &[(Scenario, Vec<u8>)],
    interrupted: &CancellationToken,
) -> Result<Result<(), String>, CliError> {
    if loaded.iter().all(|(scenario, _)| scenario.infra_env.iso.is_some()) {
        return Ok(Ok(()));
    }
    tokio::select! {
        built = vlab_run::hosts::vm::lab_iso(say) => Ok(built.map(drop)),
        () = interrupted.cancelled() => Err(CliError::interrupted()),
    }
}

/// Prepares a scenario whose hosts may be virtual machines. One that leaves it open and has what cannot be done to machines is
/// simulated.
pub(crate) fn prepare_hosts(
    scenario: Scenario,
    catalogue: &Catalogue,
    choices: &Choices,
) -> Result<Prepared, PrepareError> {
    let open = choices.hosts.is_none() && scenario.hosts.iter().any(|host| host.kind == HostKind::Auto);
    match prepare(scenario.clone(), catalogue, choices) {
        Err(PrepareError::Unfit { why, .. }) if open => {
            let choices = Choices { auto: Some((HostKind::Simulated, why)), ..choices.clone() };
            prepare(scenario, catalogue, &choices)
        }
        other => other,
    }
}

/// Reads a scenario and makes it ready to run.
pub(crate) fn read(catalogue: &Catalogue, name: &str, choices: &Choices) -> Result<(Prepared, Vec<u8>), CliError> {
    let (scenario, text) = load(catalogue, name)?;
    let prepared = prepare(scenario, catalogue, choices).map_err(CliError::rendered)?;
    Ok((prepared, text))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[derive(clap::Parser)]
    struct Parsed {
        #[command(flatten)]
        args: ScenarioArgs,
    }

    #[rstest]
    #[case(&["sno"], None)]
    #[case(&["sno", "--service", "simulated"], Some(Target::Simulated))]
    #[case(&["sno", "--service", "process:/p"], Some(Target::Process { program: "/p".into() }))]
    #[case(&["sno", "--service", "container:a/b:c"], Some(Target::Container { image: "a/b:c".into(), postgres: None }))]
    fn the_service_can_be_chosen(#[case] args: &[&str], #[case] expected: Option<Target>) {
        use clap::Parser as _;
        let parsed = Parsed::try_parse_from(["vlab"].iter().chain(args)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(parsed.args.session.target.service, expected);
        assert!(!parsed.args.options.lab.real_tools);
    }

    #[rstest]
    #[case("container", "container needs an image")]
    #[case("process", "process needs a program")]
    #[case("docker:x", "write simulated, process:<program>, container:<image> or remote:<url>")]
    fn a_service_that_cannot_be_had_is_a_mistake_of_usage(#[case] service: &str, #[case] expected: &str) {
        use clap::Parser as _;
        let error = Parsed::try_parse_from(["vlab", "sno", "--service", service]).err().unwrap();
        assert!(error.use_stderr() && error.to_string().contains(expected), "{error}");
    }
}
