//! The developer's entry: `cargo xtask <verb>`. Builds in seconds because it depends on nothing; sets up what is missing,
//! builds `vlab` when its sources changed, and hands over to it.

mod ahead;
mod args;
mod budget;
mod dist;
mod engine;
mod first;
mod fresh;
mod sbom;
mod skips;
mod test;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use args::{Action, Doer, Verb, Wish};
use vlab_setup::{Done, Purpose, ensure, ensure_before, start_engine};

/// Exit codes of the project: wrong usage, and a lab that lacks something.
const USAGE: u8 = 2;
const INCONCLUSIVE: u8 = 3;
const INTERNAL: u8 = 70;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match args::parse(&args) {
        Action::Help(verb) => {
            print!("{}", args::help(verb));
            ExitCode::SUCCESS
        }
        Action::Wrong(why) => {
            say(&format!("{why}\n\n{}", args::help(None)));
            ExitCode::from(USAGE)
        }
        Action::Do { verb, may_install, args } => act(verb, may_install, &args),
    }
}

fn act(verb: &Verb, may_install: bool, args: &[OsString]) -> ExitCode {
    let purpose = match verb.doer {
        // That decides by itself what is needed.
        Doer::Scenario | Doer::Vlab { .. } | Doer::Dist | Doer::Sbom | Doer::Prepare | Doer::FreshMachine => None,
        Doer::Images if takes_media(args) => None,
        Doer::Images => makes_media(args).then_some(Purpose::Images),
        Doer::Machines { .. } => Some(Purpose::Machines),
        Doer::Test | Doer::Setup => Some(Purpose::Test),
    };
    let done = match purpose.map(|purpose| ensure(purpose, may_install, say)) {
        None => Done::WasThere,
        Some(Ok(done)) => done,
        Some(Err(why)) => {
            say(&why);
            return ExitCode::from(INCONCLUSIVE);
        }
    };
    let none = Build::default();
    match verb.doer {
        // The doctor examines the helper, too, where it can be built.
        Doer::Vlab { verb: "doctor", .. } => vlab("doctor", args, Build { libvirt: can_build_machines(), ..none }),
        // Hours of virtual time.
        Doer::Vlab { verb: "mutation" } => vlab("mutation", args, Build { optimised: true, ..none }),
        Doer::Vlab { verb } => {
            let first = args.first().and_then(|first| first.to_str());
            let kube = verb == "kube" || matches!(first, Some("kube" | "test")) || names_definitions(args);
            vlab(verb, args, Build { containers: wants_containers(verb, args), kube, ..none })
        }
        Doer::Scenario => scenario(may_install, args),
        Doer::Machines { verb } => vlab(verb, args, Build { libvirt: true, ..none }),
        Doer::Test => test::test(args, may_install),
        Doer::Images if takes_media(args) => vlab("images", args, none),
        Doer::Images => images(args),
        Doer::Dist => dist::dist(args),
        Doer::Sbom => sbom::sbom(args),
        Doer::Prepare => first::prepare(),
        Doer::FreshMachine => fresh::fresh(args, may_install),
        Doer::Setup if !args.is_empty() => containers(may_install),
        Doer::Setup => {
            say(match done {
                Done::WasThere => "everything is there",
                Done::Installed => "set up",
            });
            ExitCode::SUCCESS
        }
    }
}

/// Sets up what runs need, then runs. Where virtual machines are only one of two ways, what they need may be missing: `vlab` then
/// says that hosts are simulated, and why.
fn scenario(may_install: bool, args: &[OsString]) -> ExitCode {
    let chosen = std::env::var("VLAB_HOSTS").ok();
    let wish = args::wants_machines(args, chosen.as_deref(), scenario_text);
    let complain = |why: String| {
        say(&why);
        ExitCode::from(INCONCLUSIVE)
    };
    let later: &[Purpose] = if wish == Wish::No { &[] } else { &[Purpose::Machines, Purpose::Images] };
    if let Err(why) = ensure_before(Purpose::Run, later, may_install, say) {
        return complain(why);
    }
    if wish != Wish::No && may_install {
        first::look(args, scenario_text);
    }
    if wish != Wish::No {
        // Both at once: their media are built where they are run.
        let done = ensure(Purpose::Machines, may_install, say).and_then(|_| ensure(Purpose::Images, may_install, say));
        match done {
            Err(why) if wish == Wish::Must => return complain(why),
            Err(why) => say(&why),
            Ok(_) => {}
        }
    }
    let libvirt = wish != Wish::No && can_build_machines();
    let containers = args::names_container(args) || args::has_kind(args, "container", scenario_text);
    let optimised = args::measures_load(args, scenario_text);
    let kube = args::asks_over_kube(args, scenario_text) || names_definitions(args);
    let mut args = args.to_vec();
    if !may_install {
        args.push("--no-setup".into());
    }
    let build = Build { libvirt, containers, kube, optimised };
    vlab("scenario", &args, build)
}

/// How `vlab` is built, and with what beside it. What only some runs need is built where it is needed: it takes longer than `vlab`
/// itself (`testcontainers` alone is a sixth of all packages), or needs libraries that not every machine has.
#[derive(Debug, Clone, Copy, Default)]
struct Build {
    /// With `vlab-libvirt-helper` and `vlab-node`, for virtual machines.
    libvirt: bool,
    /// With `vlab-container-helper`, for a service in a container.
    containers: bool,
    /// With `vlab-kube`, the Kubernetes API server of runs that ask over Kubernetes.
    kube: bool,
    /// Optimised, to measure load.
    optimised: bool,
}

/// Is a service in a container wanted, by the command line or by the session that `rerun` takes up?
fn wants_containers(verb: &str, args: &[OsString]) -> bool {
    let again = match (verb, args) {
        ("rerun", args) => Some(args),
        ("", [verb, args @ ..]) if verb == "rerun" => Some(args),
        _ => None,
    };
    let Some(args) = again else { return args::names_container(args) };
    let runs = std::env::var_os("VLAB_RUNS").map_or_else(runs, PathBuf::from);
    let session = args.iter().find(|arg| !arg.to_string_lossy().starts_with('-'));
    let session = session.cloned().unwrap_or_else(|| "latest".into());
    let files =
        [runs.join("sessions").join(&session), PathBuf::from(&session)].map(|folder| folder.join("session.json"));
    files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).any(|text| text.contains("\"container:"))
}

/// Do these arguments want the controllers of a real service to work?
fn names_definitions(args: &[OsString]) -> bool {
    args.iter().any(|arg| arg.to_str().is_some_and(|word| word.starts_with("--definitions")))
}

/// The folder of the runs where nobody names one: in the folder that CI keeps, where Prow names that.
fn runs() -> PathBuf {
    let kept = std::env::var_os("ARTIFACT_DIR").filter(|kept| !kept.is_empty());
    kept.map_or_else(|| root().join("target/vlab/runs"), |kept| PathBuf::from(kept).join("runs"))
}

/// The text of a scenario by its path or its name in the catalogue; of all of the catalogue without one. Empty when there is
/// none: `vlab` says so.
fn scenario_text(name: Option<&str>) -> String {
    fn below(folder: &Path, name: Option<&str>, text: &mut String) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let wanted = || name.is_none_or(|name| path.file_stem() == Some(OsStr::new(name)));
            if path.is_dir() {
                below(&path, name, text);
            } else if path.extension() == Some(OsStr::new("yaml")) && wanted() {
                text.push_str(&std::fs::read_to_string(&path).unwrap_or_default());
            }
        }
    }
    if let Some(text) = name.and_then(|name| std::fs::read_to_string(name).ok()) {
        return text;
    }
    let mut text = String::new();
    let catalogue = std::env::var_os("VLAB_SCENARIOS").map_or_else(|| root().join("scenarios"), PathBuf::from);
    below(&catalogue, name, &mut text);
    text
}

/// `setup --containers`: an engine that runs.
fn containers(may_install: bool) -> ExitCode {
    let done = ensure(Purpose::Containers, may_install, say).and_then(|_| start_engine(say));
    match done {
        Ok(what) => {
            say(what);
            ExitCode::SUCCESS
        }
        Err(why) => {
            say(&why);
            ExitCode::from(INCONCLUSIVE)
        }
    }
}

/// Do these arguments of `images` ask for media of virtual machines? Without names everything is built.
fn makes_media(args: &[OsString]) -> bool {
    let words = || args.iter().filter_map(|arg| arg.to_str());
    let named = words().any(|word| word == "vlab" || word.starts_with("vlab-"));
    let other = words().any(|word| ["--list", "--load", "--update", "--help", "-h"].contains(&word));
    words().any(|word| word == "lab" || word.starts_with("lab-")) || !(named || other)
}

/// Do these arguments of `images` ask for what `vlab images` does? Media that exist are its business; this program's is to build.
fn takes_media(args: &[OsString]) -> bool {
    let first = args.first().and_then(|word| word.to_str());
    first.is_some_and(|word| ["export", "import", "key", "list"].contains(&word))
}

/// Builds the builder of images and becomes it.
fn images(args: &[OsString]) -> ExitCode {
    let build = ["build", "--package", "vlab-images", "--bin", "vlab-images", "--locked"];
    let binary = match build_binary("vlab-images", &build) {
        Ok(binary) => binary,
        Err(code) => return code,
    };
    let error = Command::new(&binary).args(args).exec();
    say(&format!("cannot start {}: {error}", binary.display()));
    ExitCode::from(INTERNAL)
}

/// Builds `vlab` (cargo decides whether there is anything to do) and becomes it.
fn vlab(verb: &str, args: &[OsString], build: Build) -> ExitCode {
    let programs = match build_vlab(build) {
        Ok(programs) => programs,
        Err(code) => return code,
    };
    // It takes our place: signals, terminal and exit code are its own.
    let error = vlab_command(&programs, verb, args).exec();
    say(&format!("cannot start {}: {error}", programs.vlab.display()));
    ExitCode::from(INTERNAL)
}

/// What was built for a run.
struct Programs {
    vlab: PathBuf,
    /// The folder with the programs that go into images.
    built: Option<PathBuf>,
}

/// `vlab` with this verb and these arguments.
fn vlab_command(programs: &Programs, verb: &str, args: &[OsString]) -> Command {
    let mut command = Command::new(&programs.vlab);
    if let Some(built) = &programs.built {
        command.env(BUILT, built);
    }
    command.args(Some(verb).filter(|verb| !verb.is_empty())).args(args);
    // The workspace's own places, wherever in it we were called; what the user has set is stronger.
    for (name, place) in [("VLAB_SCENARIOS", root().join("scenarios")), ("VLAB_RUNS", runs())] {
        if std::env::var_os(name).is_none() {
            command.env(name, place);
        }
    }
    command
}

fn build_vlab(build: Build) -> Result<Programs, ExitCode> {
    let profile = if build.optimised { "load" } else { "lab" };
    let program = |package, name| ["build", "--profile", profile, "--locked", "--package", package, "--bin", name];
    let mut args = program("vlab-cli", "vlab").to_vec();
    if build.libvirt {
        // With `vlab`: they ask for nothing of their common crates that `vlab` does not ask for, so none is built twice (a test holds that).
        for program in WITH_MACHINES {
            args.extend(["--package", program, "--bin", program]);
        }
    }
    if !target().join(profile).join("vlab").exists() {
        say(&format!("building `vlab` for the first time: {USUAL_BUILD} on two idle cores"));
    }
    let vlab = build_binary("vlab", &args)?;
    if build.containers {
        // By itself: together cargo would give both the same features of what they share, and build `vlab` once more.
        let name = "vlab-container-helper";
        build_binary(name, &program(name, name))?;
    }
    if build.kube {
        build_binary("vlab-kube", &program("vlab-kube-server", "vlab-kube"))?;
    }
    // It was built beside `vlab`.
    let built = vlab.parent().filter(|_| build.libvirt).and_then(|folder| for_images(folder, &["vlab-node"]));
    Ok(Programs { vlab, built })
}

/// Packages whose programs of the same names are built beside `vlab` for virtual machines.
const WITH_MACHINES: [&str; 2] = ["vlab-libvirt-helper", "vlab-node"];

/// Names a folder with programs of ours that go into images, instead of static ones that take minutes to build.
const BUILT: &str = "VLAB_BUILT";

/// Programs from this folder as they go into images: without symbols, which are a third of them. Nothing where somebody else has named
/// such a folder. That a program runs in an image is found out where images are built.
fn for_images(folder: &Path, names: &[&str]) -> Option<PathBuf> {
    let into = folder.join("for-images");
    if std::env::var_os(BUILT).is_some() || std::fs::create_dir_all(&into).is_err() {
        return None;
    }
    let changed = |path: &Path| std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
    for name in names {
        let (from, to) = (folder.join(name), into.join(name));
        // What is not there is built as a static program.
        if !from.exists() {
            let _ = std::fs::remove_file(&to);
            continue;
        }
        if changed(&to).is_some_and(|there| changed(&from).is_some_and(|new| new < there)) {
            continue;
        }
        // Whoever links has the tool.
        let stripped = Command::new("strip").arg("-o").args([&to, &from]).status();
        if !stripped.is_ok_and(|status| status.success()) {
            let _ = std::fs::remove_file(&to);
            std::fs::copy(&from, &to).ok()?;
        }
    }
    Some(into)
}

/// How long the first build usually takes (docs/measurements.md).
const USUAL_BUILD: &str = "usually four minutes";

/// Where cargo puts what it builds.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

fn build_binary(name: &str, args: &[&str]) -> Result<PathBuf, ExitCode> {
    let output = cargo()
        .args(args)
        // Progress and errors for people on stderr, the path of the binary for us on stdout.
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            executable(name, &String::from_utf8_lossy(&output.stdout)).ok_or_else(|| {
                say(&format!("cargo does not say where it put {name}"));
                ExitCode::from(INTERNAL)
            })
        }
        Ok(output) => Err(exit_code(output.status.code())),
        Err(error) => {
            say(&format!("cannot start cargo: {error}"));
            Err(ExitCode::from(INTERNAL))
        }
    }
}

/// Are libvirt's header and library there, so that the helper for virtual machines can be built?
fn can_build_machines() -> bool {
    let architecture = format!("/usr/lib/{}-linux-gnu/pkgconfig", std::env::consts::ARCH);
    [architecture.as_str(), "/usr/lib64/pkgconfig", "/usr/lib/pkgconfig"]
        .iter()
        .any(|dir| Path::new(dir).join("libvirt.pc").is_file())
}

/// The path of a program in cargo's messages, one JSON object a line.
fn executable(name: &str, messages: &str) -> Option<PathBuf> {
    const KEY: &str = "\"executable\":\"";
    let name = format!("\"name\":\"{name}\"");
    let line = messages.lines().rfind(|line| {
        line.contains("\"reason\":\"compiler-artifact\"") && line.contains(&name) && line.contains(KEY)
    })?;
    let value = &line[line.find(KEY)? + KEY.len()..];
    // Up to the closing quote; in a path only quotes and backslashes are escaped.
    let (mut path, mut chars) = (String::new(), value.chars());
    loop {
        match chars.next()? {
            '"' => return Some(PathBuf::from(path)),
            '\\' => path.push(chars.next()?),
            other => path.push(other),
        }
    }
}

/// Ended by a signal (no code): as a shell would have it for SIGINT, the likely one.
fn exit_code(code: Option<i32>) -> ExitCode {
    ExitCode::from(code.map_or(130, |code| u8::try_from(code).unwrap_or(INTERNAL)))
}

/// Runs a program to its end. It gets nothing to read.
fn run(mut command: Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name} ended with {status}")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// The cargo that runs us, in the workspace. What cargo tells a program that it runs must not reach the next cargo: it
/// would rebuild what reads it.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// The workspace.
fn root() -> PathBuf {
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().map_or_else(|| here.clone(), Path::to_path_buf)
}

/// To stderr: stdout belongs to what is run.
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_binary_is_where_cargo_says() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"vlab_lab"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"vlab"},"filenames":["/x"],"executable":"/a \"b\"\\c/lab/vlab","fresh":true}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable("vlab", messages), Some(PathBuf::from(r#"/a "b"\c/lab/vlab"#)));
        assert_eq!(executable("vlab", r#"{"reason":"build-finished","success":true}"#), None);
    }

    #[test]
    fn tools_for_media_are_wanted_when_media_are() {
        for (line, wanted) in [
            ("", true),
            ("lab", true),
            ("lab-iso --overlay x", true),
            ("vlab-service lab-iso", true),
            ("--load lab-iso", true),
            ("vlab-service", false),
            ("vlab", false),
            ("--load", false),
            ("--list", false),
        ] {
            let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert_eq!(makes_media(&args), wanted, "{line}");
        }
    }

    #[test]
    fn what_machines_need_does_not_build_anything_of_vlab_again() {
        // Crates with the features that they are asked for, when these programs are built at once.
        let crates = |programs: &[&str]| -> BTreeSet<String> {
            let mut tree = cargo();
            tree.args(["tree", "--locked", "--edges", "normal,build", "--prefix", "none", "--format", "{p} [{f}]"]);
            for program in programs {
                tree.args(["--package", program]);
            }
            let out = tree.current_dir(root()).output().unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            let text = String::from_utf8(out.stdout).unwrap();
            text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).filter(|line| !line.is_empty()).collect()
        };
        let alone = crates(&["vlab-cli"]);
        let together = crates(&[&["vlab-cli"], &WITH_MACHINES[..]].concat());
        let again: Vec<&String> = alone.difference(&together).collect();
        assert!(again.is_empty(), "built once more, with more features: {again:?}; let vlab-cli ask for them, too");
        assert!(together.len() > alone.len(), "{} crates", alone.len());
    }

    #[test]
    fn the_workspace_is_found() {
        assert!(root().join("Cargo.toml").is_file());
        assert!(root().join("xtask/Cargo.toml").is_file());
    }
}
