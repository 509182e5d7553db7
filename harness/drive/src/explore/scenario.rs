//! Draws a scenario from a tape: what the user does and what goes wrong in addition to a base, and in which order things come.
//!
//! Kinds of faults, their targets and their parameters are those of the language's own table, so a new kind takes part without a
//! word here. What is drawn is the text of a scenario, which the checker reads like any other.

use vlab_api::requests::UserRequest;
use vlab_api::types::{ClusterStatus, FinalizingStage, HostStage, HostStatus};
use vlab_scenario::{
    ActionKind, Catalogue, FaultRow, Lasting, OWN_STAGES, ParamDefault, ParamForm, Scenario, SourceFile, TargetForm,
    WhichReplica, fault_rows, operation_ids,
};

use super::base::{Added, Base};
use super::tape::{Draw, Trace};
use super::{asking, asking_hub, grammar};

/// What can be drawn.
#[derive(Clone, Debug)]
pub struct Space {
    /// The scenarios to build on.
    pub bases: Vec<Base>,
    /// Draw scenarios of the grammar, too. Without bases they are all there is.
    pub grammar: bool,
    /// Draw interleavings, too.
    pub interleavings: bool,
    /// The kinds of faults.
    faults: Vec<&'static FaultRow>,
}

/// Version of what is drawn from which numbers. Raised when a tape means something else than before, beside what the tables say.
const GRAMMAR_VERSION: u32 = 4;

impl Space {
    /// Everything that can be added to these.
    pub fn new(bases: Vec<Base>, grammar: bool, interleavings: bool) -> Self {
        let grammar = grammar || bases.is_empty();
        let faults = fault_rows().filter(|row| !row.needs_real_time()).collect();
        Self { bases, grammar, interleavings, faults }
    }

    /// Tells spaces apart in which the same tape means different things.
    pub fn digest(&self) -> String {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut mix = |text: &str| {
            for byte in text.bytes().chain([0]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        mix(&format!("{GRAMMAR_VERSION} {} {}", self.grammar, self.interleavings));
        for base in &self.bases {
            mix(&base.name);
            base.hosts.iter().for_each(|host| mix(host));
        }
        for row in &self.faults {
            mix(row.word);
            row.all_params().for_each(|param| mix(&format!("{} {:?}", param.name, param.form)));
        }
        ActionKind::NAMES.iter().chain(HOLDS_UP).for_each(|name| mix(name));
        asking::tables().chain(asking_hub::tables()).chain(grammar::tables()).for_each(mix);
        format!("{hash:016x}")
    }
}

/// A scenario that was drawn.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// All choices that made it.
    pub trace: Trace,
    /// What it is built on.
    pub base: Base,
    /// What was added.
    pub added: Added,
    /// Its file.
    pub source: SourceFile,
    /// The scenario.
    pub scenario: Scenario,
    /// So many things that were drawn were left out because the language refuses them there.
    pub refused: usize,
}

/// Name of a scenario as long as nobody has given it another one.
pub const DRAWN: &str = "drawn";

/// Draws one.
///
/// # Errors
/// The base cannot be read, or what was added cannot be left out: a mistake in what draws.
pub fn draw(space: &Space, catalogue: &Catalogue, mut from: Draw<'_>) -> Result<Drawn, String> {
    let count = space.bases.len() as u64 + u64::from(space.grammar);
    let chosen = usize::try_from(from.choose("base", count)).unwrap_or(0);
    let base = match space.bases.get(chosen) {
        Some(base) => base.clone(),
        None => {
            let text = from.stretch("scenario of the grammar", grammar::draw);
            let path = format!("{DRAWN}.yaml");
            Base::new(&SourceFile::new(path, text.clone()), catalogue).map_err(|why| format!("{why}\n{text}"))?
        }
    };
    let mut added = Added { seed: 1 + from.choose("seed", 1000), ..Added::default() };
    while from.stretch("fault", |from| {
        let more = from.chance("one more fault", 55) && added.faults.len() < 8;
        if more && let Some(fault) = fault(from, space, &base, added.faults.len()) {
            added.faults.push(fault);
        }
        more
    }) {}
    while from.stretch("action", |from| {
        let more = from.chance("one more action", 45) && added.actions.len() < 8;
        if more {
            added.actions.extend(actions(from, &base));
        }
        more
    }) {}
    if space.interleavings {
        from.stretch("interleaving", |from| interleaving(from, &mut added));
    }
    let trace = from.finish();
    let (source, scenario, refused) = without_what_is_refused(&base, &mut added, catalogue)?;
    Ok(Drawn { trace, base, added, source, scenario, refused })
}

/// Most of what is drawn is valid by construction; what the language refuses where it stands is left out.
fn without_what_is_refused(
    base: &Base,
    added: &mut Added,
    catalogue: &Catalogue,
) -> Result<(SourceFile, Scenario, usize), String> {
    let load = |added: &Added| {
        let source = base.with(DRAWN, "", added);
        vlab_scenario::load(&source, catalogue).map(|scenario| (source, scenario)).map_err(|error| error.to_string())
    };
    if let Ok((source, scenario)) = load(added) {
        return Ok((source, scenario, 0));
    }
    let mut kept = Added { actions: Vec::new(), faults: Vec::new(), ..added.clone() };
    let mut refused = 0;
    for fault in &added.faults {
        kept.faults.push(fault.clone());
        if load(&kept).is_err() {
            kept.faults.pop();
            refused += 1;
        }
    }
    for action in &added.actions {
        kept.actions.push(action.clone());
        if load(&kept).is_err() {
            kept.actions.pop();
            refused += 1;
        }
    }
    *added = kept;
    load(added).map(|(source, scenario)| (source, scenario, refused))
}

/// Times in seconds between something that is seen and what follows, the plainest first.
const THENS: &[u64] = &[60, 1, 2, 5, 10, 20, 30, 120, 300, 600, 1800];

/// How much longer messages take, the plainest first. The judge takes what is said within two seconds for the same moment, and
/// between a step and what the service makes of its answer are two messages.
const LATENCIES: &[&str] = &["", "100ms", "20ms", "500ms", "900ms"];

/// How long faults last, the plainest first. Empty: to the end of the run.
const LASTS: &[&str] = &["5m", "10m", "30m", "2m", "1m", "20s", "1h", "3h", "10h", "5s", ""];

/// Lengths for parameters.
const SPANS: &[&str] = &["30s", "5s", "1s", "2m", "5m", "10m", "90s", "200ms", "1h"];

/// Statuses of hosts at which something is done.
const AT_HOST: &[HostStatus] = &[
    HostStatus::Installing,
    HostStatus::InstallingInProgress,
    HostStatus::Known,
    HostStatus::PreparingForInstallation,
    HostStatus::PreparingSuccessful,
    HostStatus::Installed,
    HostStatus::Discovering,
    HostStatus::Insufficient,
    HostStatus::Disconnected,
    HostStatus::Cancelled,
    HostStatus::Error,
    HostStatus::ResettingPendingUserAction,
    HostStatus::InstallingPendingUserAction,
    HostStatus::KnownUnbound,
    HostStatus::Binding,
];

/// Statuses of clusters at which something is done.
const AT_CLUSTER: &[ClusterStatus] = &[
    ClusterStatus::Installing,
    ClusterStatus::PreparingForInstallation,
    ClusterStatus::Finalizing,
    ClusterStatus::Ready,
    ClusterStatus::Installed,
    ClusterStatus::Cancelled,
    ClusterStatus::Error,
    ClusterStatus::Insufficient,
    ClusterStatus::PendingForInput,
    ClusterStatus::AddingHosts,
];

/// What users do more often than the rest, and what leads further.
const FREQUENT: [ActionKind; 7] = [
    ActionKind::Request,
    ActionKind::Cancel,
    ActionKind::Cancel,
    ActionKind::Reset,
    ActionKind::Reset,
    ActionKind::BootDiscovery,
    ActionKind::Unbind,
];

fn quoted(text: &str) -> String {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || " -_.".contains(c));
    let is_word =
        text.starts_with(|c: char| c.is_ascii_alphabetic()) && !["true", "false", "null", "yes", "no"].contains(&text);
    if plain && is_word { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

/// A moment: a time, or something that is seen and a while after it.
enum Moment {
    /// So many seconds after the start.
    At(u64),
    /// So many seconds after that.
    Seen(String, u64),
}

impl Moment {
    /// A while later.
    fn later(&self, seconds: u64) -> Self {
        match self {
            Self::At(at) => Self::At(at + seconds),
            Self::Seen(what, then) => Self::Seen(what.clone(), then + seconds),
        }
    }

    /// As it is written; `seen` is the key for what is seen.
    fn text(&self, seen: &str) -> String {
        match self {
            Self::At(at) => match (at / 60, at % 60) {
                (0, 0) => "at: 1s".to_owned(),
                (minutes, 0) => format!("at: {minutes}m"),
                (0, seconds) => format!("at: {seconds}s"),
                (minutes, seconds) => format!("at: {minutes}m{seconds}s"),
            },
            Self::Seen(what, 0) => format!("{seen}: {what}"),
            Self::Seen(what, then) => format!("{seen}: {what}, then: {then}s"),
        }
    }
}

/// Draws a moment.
fn moment(draw: &mut Draw<'_>, base: &Base) -> Moment {
    let host = |draw: &mut Draw<'_>| base.hosts[index(draw, "host that is watched", base.hosts.len())].clone();
    let what = match draw.choose("kind of moment", 4) {
        0 => return Moment::At(draw.choose("minute", 120) * 60 + draw.choose("second", 60)),
        1 => {
            let host = host(draw);
            let status = draw.early("status of the host", AT_HOST).unwrap_or(HostStatus::Installing);
            format!("{{host: {host}, status: {status}}}")
        }
        2 => {
            let host = host(draw);
            let stage = draw.pick("stage of the host", HostStage::ALL).unwrap_or(HostStage::Installing);
            format!("{{host: {host}, stage: {}}}", quoted(stage.as_str()))
        }
        _ if base.clusters.is_empty() => return Moment::At(30 * 60),
        _ => {
            let (cluster, ..) = &base.clusters[index(draw, "cluster that is watched", base.clusters.len())];
            let status = draw.early("status of the cluster", AT_CLUSTER).unwrap_or(ClusterStatus::Installing);
            format!("{{cluster: {cluster}, status: {status}}}")
        }
    };
    let then = draw.chance("a while after it", 50).then(|| draw.pick("seconds after it", THENS)).flatten();
    Moment::Seen(what, then.unwrap_or(0))
}

/// A place in a list of that length.
pub(super) fn index(draw: &mut Draw<'_>, label: &'static str, of: usize) -> usize {
    usize::try_from(draw.choose(label, of as u64)).unwrap_or(0)
}

/// What keeps an installation from going on as long as it lasts: only then the service's limits of time end it.
pub(super) const HOLDS_UP: &[&str] = &[
    "stuck-stage",
    "stuck-stage",
    "finalizing-stuck",
    "finalizing-stuck",
    "operator-degraded",
    "bootkube-hangs",
    "never-joins",
    "csr-not-approved",
    "ignition-unreachable",
    "image-unavailable",
    "wrong-boot-order",
    "logs-lost",
    "crash",
    "uplink-cut",
];

/// Draws a fault; `None` where the base has nothing that it can hit.
fn fault(draw: &mut Draw<'_>, space: &Space, base: &Base, nth: usize) -> Option<String> {
    let holds_up = draw.chance("it holds up for good", 15);
    let fits = |row: &&FaultRow| base.hub_faults || !row.needs_hub();
    let rows: Vec<&FaultRow> = match holds_up {
        true => HOLDS_UP.iter().filter_map(|word| space.faults.iter().find(|row| row.word == *word)).copied().collect(),
        false => space.faults.iter().copied().filter(fits).collect(),
    };
    let row = draw.pick_kind("kind of fault", &rows)?;
    let form = row.targets[index(draw, "form of the target", row.targets.len())];
    let (target, hit) = target(draw, base, form)?;
    let mut with = Vec::new();
    for param in row.all_params() {
        // Where there is one there is nothing to choose.
        if base.replicas == 1 && param.form == ParamForm::Words(WhichReplica::NAMES) {
            continue;
        }
        let wanted = match param.default {
            ParamDefault::Needed => true,
            ParamDefault::Is(_) => draw.chance("says it", 40),
            ParamDefault::Nothing => draw.chance("says it", 20),
        };
        if !wanted {
            continue;
        }
        let value = match param.form {
            ParamForm::Span => draw.pick("length", SPANS)?.to_owned(),
            // What happens at each write for ever keeps the run from its end, and shows no more than a few times do.
            ParamForm::Number(least, most) if param.name == "times" => number(draw, least, most.min(50)).to_string(),
            // It is made and read with each answer, which takes minutes, and says no more than a small one.
            ParamForm::Number(least, _) if param.name == "mib" => least.to_string(),
            ParamForm::Number(least, most) => number(draw, least, most).to_string(),
            ParamForm::Text => {
                let default = if let ParamDefault::Is(text) = param.default { text } else { "localhost" };
                let other = base.hosts[index(draw, "a host's name", base.hosts.len())].clone();
                let texts = [default, &other, "not_a_name!", "/instructions"];
                quoted(texts[index(draw, "text", texts.len())])
            }
            ParamForm::Words(words) => draw.pick("word", words)?.to_owned(),
            ParamForm::Address => {
                quoted(draw.pick("address", &["198.51.100.66", "192.168.126.10", "192.168.126.100"])?)
            }
            ParamForm::Host => {
                let others: Vec<&String> = base.hosts.iter().filter(|host| !hit.contains(host)).collect();
                if others.is_empty() {
                    return None;
                }
                others[index(draw, "other host", others.len())].clone()
            }
            ParamForm::Stage => quoted(draw.pick("stage", OWN_STAGES)?.as_str()),
            ParamForm::FinalizingStage => quoted(draw.pick("finalizing stage", FinalizingStage::NAMES)?),
            ParamForm::Operation => draw.pick("operation", &operation_ids())?.to_owned(),
        };
        with.push(format!("{}: {value}", param.name));
    }
    let moment = moment(draw, base).text("at");
    let lasts = match row.lasts {
        Lasting::Moment => String::new(),
        Lasting::Time if holds_up => String::new(),
        Lasting::Time => match draw.pick("how long", LASTS)? {
            "" => String::new(),
            lasts => format!(", for: {lasts}"),
        },
    };
    let with = if with.is_empty() { String::new() } else { format!(", with: {{{}}}", with.join(", ")) };
    Some(format!("{{name: f{}, {moment}, target: {target}, inject: {}{lasts}{with}}}", nth + 1, row.word))
}

/// A whole number: a small one, a round one, the smallest or the largest that there can be.
fn number(draw: &mut Draw<'_>, least: u64, most: u64) -> u64 {
    let number = match draw.choose("size of the number", 4) {
        0 => least + draw.choose("small number", 10),
        1 => [1, 3, 5, 10, 20, 50, 100, 500, 503, 1000, 5000][index(draw, "round number", 11)],
        2 => least,
        _ => most.min(least.saturating_add(100_000)),
    };
    number.clamp(least, most)
}

/// Draws what a fault hits, and the hosts that this surely is.
fn target(draw: &mut Draw<'_>, base: &Base, form: TargetForm) -> Option<(String, Vec<String>)> {
    let host = |draw: &mut Draw<'_>| base.hosts[index(draw, "host", base.hosts.len())].clone();
    Some(match form {
        TargetForm::Hosts => match draw.choose("which hosts", 5) {
            0 | 1 => {
                let host = host(draw);
                (host.clone(), vec![host])
            }
            2 => {
                let group = base.groups[index(draw, "group", base.groups.len())].clone();
                let of = |host: &&String| host.rsplit_once('-').is_some_and(|(of, _)| of == group);
                let members = base.hosts.iter().filter(of).cloned().collect();
                (group, members)
            }
            3 => ("all".to_owned(), base.hosts.clone()),
            _ if base.clusters.len() == 1 => ("bootstrap".to_owned(), Vec::new()),
            _ => {
                let host = host(draw);
                (host.clone(), vec![host])
            }
        },
        TargetForm::Link => {
            if base.hosts.len() < 2 {
                return None;
            }
            let one = index(draw, "one end", base.hosts.len());
            let other = (one + 1 + index(draw, "other end", base.hosts.len() - 1)) % base.hosts.len();
            (format!("{{between: [{}, {}]}}", base.hosts[one], base.hosts[other]), Vec::new())
        }
        TargetForm::Cluster => {
            if base.clusters.is_empty() {
                return None;
            }
            (base.clusters[index(draw, "cluster", base.clusters.len())].0.clone(), Vec::new())
        }
        TargetForm::Service => ("service".to_owned(), Vec::new()),
        TargetForm::Postgres => ("postgres".to_owned(), Vec::new()),
        TargetForm::Gateway => ("gateway".to_owned(), Vec::new()),
        TargetForm::Kube => ("kube".to_owned(), Vec::new()),
    })
}

/// So many seconds after a request comes the one that belongs to it.
const NEXT: u64 = 60;

/// Draws something that the user does, and what belongs to it; nothing where the base has nothing to do it to.
fn actions(draw: &mut Draw<'_>, base: &Base) -> Vec<String> {
    let Some((to, asked)) = action(draw, base) else { return Vec::new() };
    let moment = moment(draw, base);
    let mut all = vec![format!("{{do: {to}, {}}}", moment.text("after"))];
    // What was made is read, changed, removed.
    if let Some(about) = asked {
        let mut later = moment;
        while all.len() < 4 && draw.chance("and what belongs to it", 35) {
            later = later.later(NEXT);
            let Some((next, _)) = asking::request(draw, base, Some(about)) else { break };
            all.push(format!("{{do: {}, {next}, {}}}", ActionKind::Request, later.text("after")));
        }
    }
    all
}

/// An action, with what it is done to; and the request, if it is one.
fn action(draw: &mut Draw<'_>, base: &Base) -> Option<(String, Option<&'static UserRequest>)> {
    let has_form = |kind: &ActionKind| {
        if base.kube { kind.without_resources().is_none() } else { !kind.needs_hub() }
    };
    let kinds: Vec<ActionKind> = ActionKind::ALL.iter().copied().chain(FREQUENT).filter(has_form).collect();
    let kind = draw.pick_kind("kind of action", &kinds)?;
    let cluster = |draw: &mut Draw<'_>| -> Option<(String, Vec<String>, Vec<String>)> {
        (!base.clusters.is_empty()).then(|| base.clusters[index(draw, "cluster", base.clusters.len())].clone())
    };
    let hosts = |draw: &mut Draw<'_>| match draw.chance("all hosts", 20) {
        true => "hosts: all".to_owned(),
        false => format!("host: {}", base.hosts[index(draw, "host", base.hosts.len())]),
    };
    let to = match kind {
        ActionKind::Install | ActionKind::Cancel | ActionKind::Reset | ActionKind::AllowAddHosts => {
            format!("cluster: {}", cluster(draw)?.0)
        }
        ActionKind::SetVips => {
            let (name, api, ingress) = cluster(draw)?;
            if api.is_empty() {
                return None;
            }
            // The same again, or the one for the other.
            let (api, ingress) = if draw.chance("the other way round", 40) { (ingress, api) } else { (api, ingress) };
            let list = |all: &[String]| all.iter().map(|one| quoted(one)).collect::<Vec<_>>().join(", ");
            format!("cluster: {name}, api_vips: [{}], ingress_vips: [{}]", list(&api), list(&ingress))
        }
        // What is to be applied nobody can draw yet; and the events of hosts whose cluster was deleted are not looked at.
        ActionKind::ApplyResource | ActionKind::DeleteResource => return None,
        ActionKind::PatchResource => asking_hub::patch(draw, base)?,
        ActionKind::Annotate => asking_hub::annotate(draw, base)?,
        ActionKind::Approve => hosts(draw),
        ActionKind::Request => {
            let (text, request) = asking::request(draw, base, None)?;
            return Some((format!("{kind}, {text}"), Some(request)));
        }
        ActionKind::PatchHost => {
            let host = &base.hosts[index(draw, "host", base.hosts.len())];
            let role = draw.pick("what is changed", &["worker", "master", "auto", ""])?;
            match role {
                "" => format!("host: {host}, hostname: {}", base.hosts[index(draw, "name", base.hosts.len())]),
                role => format!("host: {host}, role: {role}"),
            }
        }
        ActionKind::Bind => format!("{}, cluster: {}", hosts(draw), cluster(draw)?.0),
        ActionKind::DeleteHost | ActionKind::Unbind | ActionKind::InstallHost | ActionKind::BootDiscovery => {
            hosts(draw)
        }
    };
    Some((format!("{kind}, {to}"), None))
}

/// Draws in which order and how late things come.
fn interleaving(draw: &mut Draw<'_>, added: &mut Added) {
    if !draw.chance("not the plain interleaving", 40) {
        return;
    }
    let mut how = vec![format!("seed: {}", draw.choose("seed of the interleaving", 1000))];
    let pick = |draw: &mut Draw<'_>, label: &'static str, list: &[&'static str]| draw.pick(label, list);
    if let Some(latency) = pick(draw, "latency", LATENCIES).filter(|l| !l.is_empty()) {
        how.push(format!("latency: {latency}"));
    }
    if draw.chance("any order", 50) {
        how.push("any_order: true".to_owned());
    }
    for key in ["host_monitor", "cluster_monitor"] {
        let ms = draw.choose("phase of a monitor", 2) * (1 + draw.choose("milliseconds", 9_999));
        if ms > 0 {
            how.push(format!("{key}: {ms}ms"));
        }
    }
    for key in ["lost", "twice"] {
        let n = draw.pick("of a thousand", &[0, 0, 5, 20, 100]).unwrap_or(0);
        if n > 0 {
            how.push(format!("{key}: {n}"));
        }
    }
    for key in ["killed_before_writes", "killed_after_writes"] {
        if draw.chance("killed", 40) {
            how.push(format!("{key}: [{}]", 1 + draw.choose("number of the write", 600)));
            added.tolerate = vec!["refused-connections"];
        }
    }
    if how.len() > 1 {
        added.interleaving = how.join(", ");
    }
}
