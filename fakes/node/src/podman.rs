//! Stands in for podman: there are no containers on a lab machine. `podman run IMAGE PROGRAM ARGS` runs the program of the lab that
//! stands for `PROGRAM` of that image, as a process of the machine. A program that lies in the image's folder
//! (`/usr/lib/vlab/images/<name>/usr/bin/<program>`) comes before the lab's own, and so do an agent and an installer that the run
//! gives this machine: they are fetched when they are called for the first time.
//!
//! The lab's own installer runs in the background; a given one is a container like any other, which podman waits for.

mod attached;
mod containers;

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub(crate) use self::containers::{PATIENCE, stop};
use crate::given::{self, Given};
use crate::machine::NodeConfig;
use crate::say;
use crate::{steps, tools};

/// Folders of images, one for each name.
const IMAGES: &str = "/usr/lib/vlab/images";
/// Where the installer finds the manifests that lie in its image.
const DEPLOY: &str = "/assisted-installer-controller/deploy";
/// Where containers see the machine that they run on, when they are told to.
const HOST: &str = "/host";
/// What real podman answers when it itself failed.
const PODMAN_FAILED: i32 = 125;

/// Options of `podman run` that take a value in the next word.
const WITH_VALUE: &[&str] = &[
    "-v",
    "--volume",
    "-e",
    "--env",
    "--name",
    "--net",
    "--network",
    "--pid",
    "--ipc",
    "--uts",
    "--userns",
    "--cidfile",
    "--log-driver",
    "--log-opt",
    "--authfile",
    "--cap-add",
    "--device",
    "--label",
    "--mount",
    "--pull",
    "--restart",
    "--security-opt",
    "--stop-timeout",
    "--tmpfs",
    "--ulimit",
    "--user",
    "-u",
    "--workdir",
    "-w",
    "--memory",
    "--cpus",
    "--hostname",
    "-h",
    "--entrypoint",
    "--env-file",
];

/// What a `podman run` command line says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Name of the container.
    pub name: Option<String>,
    /// Return at once?
    pub detach: bool,
    /// Is its name free again when it has ended?
    pub remove: bool,
    /// Environment that is set.
    pub environment: Vec<(String, String)>,
    /// Folders of the machine and where the container sees them.
    pub volumes: Vec<(String, String)>,
    /// Program instead of the image's own.
    pub entrypoint: Option<String>,
    /// Image as the command line names it.
    pub image: String,
    /// Program and arguments.
    pub words: Vec<String>,
}

impl Run {
    /// Reads the words after `podman run`.
    ///
    /// # Errors
    /// In podman's words when there is no image.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let mut run = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if !word.starts_with('-') {
                run.image.clone_from(word);
                run.words = words.cloned().collect();
                return Ok(run);
            }
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None if WITH_VALUE.contains(&word.as_str()) => (word.as_str(), words.next().cloned()),
                None => (word.as_str(), None),
            };
            match (name, value) {
                ("-d" | "--detach", value) => run.detach = value.as_deref() != Some("false"),
                ("--rm", value) => run.remove = value.as_deref() != Some("false"),
                ("--name", value) => run.name = value,
                ("--entrypoint", value) => run.entrypoint = value,
                // Without a value the variable is passed on, and it is there already.
                ("-e" | "--env", Some(value)) => {
                    run.environment.extend(value.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned())));
                }
                ("-v" | "--volume", Some(value)) => {
                    let mut parts = value.split(':');
                    if let (Some(here), Some(there)) = (parts.next(), parts.next()) {
                        run.volumes.push((here.to_owned(), there.to_owned()));
                    }
                }
                _ => {}
            }
        }
        Err("Error: requires at least 1 arg(s), only received 0".into())
    }

    /// The program, and its arguments: without one on the command line it is the image's own.
    fn program(&self) -> Option<(&str, &[String])> {
        if let Some(program) = &self.entrypoint {
            return Some((program, &self.words));
        }
        match self.words.split_first() {
            Some((program, args)) if !program.starts_with('-') => Some((program, args)),
            _ => {
                let own = ENTRYPOINTS.iter().find(|(image, _)| *image == image_name(&self.image));
                // Whatever the service calls the installer's image, agents call the container so.
                let installs = self.name.as_deref() == Some(steps::INSTALLER_CONTAINER);
                let program = own.map(|(_, program)| *program).or(installs.then_some("installer"));
                program.map(|program| (program, &self.words[..]))
            }
        }
    }

    /// A path of the container as the machine sees it.
    fn outside(&self, word: &str) -> Option<String> {
        let below = |there: &str| word == there || word.strip_prefix(there).is_some_and(|r| r.starts_with('/'));
        let (here, there) = self.volumes.iter().find(|(_, there)| below(there))?;
        Some(format!("{here}{}", &word[there.len()..]))
    }
}

/// Name of an image without registry, tag and digest.
pub fn image_name(image: &str) -> &str {
    let name = image.rsplit('/').next().unwrap_or(image);
    let name = name.split('@').next().unwrap_or(name);
    name.split(':').next().unwrap_or(name)
}

/// Programs that the lab's own program stands for: name in an image, and our verb.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("agent", &["agent"]),
    ("next_step_runner", &["agent"]),
    ("installer", &["install"]),
    ("assisted-installer", &["install"]),
    ("logs_sender", &["tool", "logs_sender"]),
    ("machine-config-daemon", &["tool", "machine-config-daemon"]),
];

/// Names under which the installer is called.
const INSTALLER_PROGRAMS: &[&str] = &["installer", "assisted-installer"];

/// Programs that images run by themselves: name of the image, and the program.
const ENTRYPOINTS: &[(&str, &str)] = &[("assisted-installer", "installer")];

/// Names under which the agent's one program lies in its image.
const AGENT_PROGRAMS: &[&str] =
    &["agent", "disk_speed_check", "free_addresses", "inventory", "logs_sender", "next_step_runner"];

/// The last part of a path.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Which of the programs that a run can give stands for that program of an image?
fn given_for(program: &str) -> Option<Given> {
    let name = base(program);
    if AGENT_PROGRAMS.contains(&name) {
        return Some(Given::Agent);
    }
    INSTALLER_PROGRAMS.contains(&name).then_some(Given::Installer)
}

/// What runs for a program of an image: what the run gives for it, a file of the image's folder, else a verb of ours. `None`: nobody
/// knows it.
fn stand_in(folder: &Path, program: &str, config: &NodeConfig) -> Result<Option<Found>, String> {
    if let Some(which) = given_for(program)
        && let Some(file) = given::program(config, which)?
    {
        return Ok(Some(Found { file, verb: Vec::new(), given: Some(which) }));
    }
    Ok(of_image(folder, program).map(|(file, verb)| Found { file, verb, given: None }))
}

/// What runs for a program.
struct Found {
    file: PathBuf,
    verb: Vec<String>,
    /// What of the run it is, if it is.
    given: Option<Given>,
}

fn of_image(folder: &Path, program: &str) -> Option<(PathBuf, Vec<String>)> {
    let name = base(program);
    let places =
        [format!("usr/bin/{name}"), format!("usr/local/bin/{name}"), program.trim_start_matches('/').to_owned()];
    if let Some(file) = places.iter().map(|p| folder.join(p)).find(|f| f.is_file()) {
        return Some((file, Vec::new()));
    }
    let own = std::env::current_exe().ok()?;
    if let Some((_, verb)) = PROGRAMS.iter().find(|(n, _)| *n == name) {
        return Some((own, verb.iter().map(|v| (*v).to_owned()).collect()));
    }
    let step = steps::of_program(name)?;
    Some((own, vec!["step".into(), step.into()]))
}

/// Where the output of containers is kept. `VLAB_NODE_LOG` names another place.
fn log_folder() -> PathBuf {
    std::env::var_os("VLAB_NODE_LOG").map_or_else(|| steps::LOG_FOLDER.into(), PathBuf::from)
}

/// Runs a podman command line (without the word `podman`); the exit code.
pub fn podman(words: &[String]) -> i32 {
    let rest = words.get(1..).unwrap_or_default();
    let last = words.last().map_or("", String::as_str);
    match words.first().map(String::as_str) {
        Some("run") => run(rest).unwrap_or_else(|e| {
            eprintln!("{e}");
            PODMAN_FAILED
        }),
        // Every image is there: it stands for programs of the lab.
        Some("image") if rest.first().is_some_and(|w| w == "inspect") => {
            println!("0");
            0
        }
        Some("image") => 0,
        Some("images" | "pull") => {
            println!("{}", image_name(last));
            0
        }
        Some("ps") => {
            let wanted = name_filter(rest);
            let ended_too = rest.iter().any(|word| word == "-a" || word == "--all");
            for name in containers::names(ended_too).iter().filter(|n| wanted.is_none_or(|wanted| n.contains(wanted))) {
                println!("{name}");
            }
            0
        }
        Some(verb @ ("kill" | "stop" | "rm")) => match end(verb, last, rest) {
            Ok(()) => 0,
            Err(e) => {
                eprintln!("Error: {last}: {e}");
                PODMAN_FAILED
            }
        },
        Some("rmi" | "logs" | "inspect" | "system" | "volume") => 0,
        Some("--version" | "version") => {
            println!("podman version 0 (stand-in of the lab)");
            0
        }
        _ => {
            eprintln!("Error: the lab's stand-in for podman does not know: {}", words.join(" "));
            PODMAN_FAILED
        }
    }
}

fn end(verb: &str, name: &str, words: &[String]) -> io::Result<()> {
    match (verb, signal_of(words)) {
        ("kill", None | Some("KILL")) => stop(name, Duration::ZERO),
        ("kill", Some(signal)) => {
            let signal = format!("SIG{signal}").parse().map_err(|_| io::Error::other(format!("no signal {signal}")))?;
            containers::signal(name, signal)
        }
        ("rm", _) => containers::remove(name),
        _ => stop(name, patience(words)),
    }
}

/// The signal that is asked for, without `SIG`.
fn signal_of(words: &[String]) -> Option<&str> {
    let at = words.iter().position(|word| word == "-s" || word == "--signal");
    let value = match at {
        Some(at) => words.get(at + 1).map(String::as_str),
        None => words.iter().find_map(|word| word.strip_prefix("--signal=")),
    };
    value.map(|signal| signal.strip_prefix("SIG").unwrap_or(signal))
}

/// How long a container that is stopped has.
fn patience(words: &[String]) -> Duration {
    let at = words.iter().position(|word| word == "-t" || word == "--time");
    let value = match at {
        Some(at) => words.get(at + 1).map(String::as_str),
        None => words.iter().find_map(|word| word.strip_prefix("--time=").or_else(|| word.strip_prefix("-t="))),
    };
    value.and_then(|seconds| seconds.parse().ok()).map_or(PATIENCE, Duration::from_secs)
}

/// The part of a name that `podman ps --filter name=...` asks for.
fn name_filter(words: &[String]) -> Option<&str> {
    let at = words.iter().position(|word| word == "--filter" || word == "-f");
    let value = match at {
        Some(at) => words.get(at + 1).map(String::as_str),
        None => words.iter().find_map(|word| word.strip_prefix("--filter=")),
    };
    value?.strip_prefix("name=")
}

fn run(words: &[String]) -> Result<i32, String> {
    let run = Run::parse(words)?;
    let folder = Path::new(IMAGES).join(image_name(&run.image));
    let (program, args) =
        run.program().ok_or_else(|| format!("Error: the lab does not know what image {} runs by itself", run.image))?;
    let mut args: Vec<String> = args.iter().map(|w| run.outside(w).unwrap_or_else(|| w.clone())).collect();
    let own = std::env::current_exe().map_err(|e| format!("Error: {e}"))?;
    let config = NodeConfig::load().map_err(|e| format!("Error: {e}"))?;
    // There is one file system here: what a container would find below is the machine's own.
    if run.volumes.iter().any(|(_, there)| Path::new(there).starts_with(HOST)) && !Path::new(HOST).exists() {
        std::os::unix::fs::symlink("/", HOST).map_err(|e| format!("Error: {HOST}: {e}"))?;
    }
    let plain = |file: &str| Found { file: file.into(), verb: Vec::new(), given: None };
    let found = match stand_in(&folder, program, &config)? {
        Some(found) => found,
        // `cp /usr/bin/agent /hostbin` copies a program out of the image.
        None if program == "cp" && args.len() == 2 => {
            let (from, to) = (args[0].clone(), args[1].clone());
            let from = stand_in(&folder, &from, &config)?
                .ok_or_else(|| format!("Error: image {} has no {from}", run.image))?
                .file;
            let to = copy_target(&to, &run.words[1]);
            if from == own {
                // Ten megabytes that are there already: the other name is enough.
                return name_it(&own, Path::new(&to)).map(|()| 0).map_err(|e| format!("Error: {to}: {e}"));
            }
            args = vec![from.display().to_string(), to];
            plain("/bin/cp")
        }
        None if Path::new(program).is_absolute() && Path::new(program).is_file() => plain(program),
        None => return Err(format!("Error: the lab has nothing that stands for {program} of image {}", run.image)),
    };
    if found.file == own {
        say::note("podman", &format!("{program} of {} is the lab's own program", run.image));
    }
    if found.given == Some(Given::Installer) {
        given::deploy(&config, Path::new(DEPLOY))?;
    }
    let command = command(&run, &found, base(program), args, found.file == own);
    under_its_name(&run, command, found.given)
}

/// What is executed.
fn command(run: &Run, found: &Found, name: &str, args: Vec<String>, own: bool) -> Command {
    let mut command = Command::new(&found.file);
    // What it is called decides what it does: ours is told by its verb, the others by the name that they have in the image.
    if own {
        command.arg0("vlab-node");
    } else {
        command.env("PATH", path_with_tools());
        if found.given.is_some() {
            command.arg0(name);
        }
    }
    command.args(&found.verb).args(args).envs(run.environment.iter().map(|(n, v)| (n, v)));
    command
}

/// Runs it under the container's name, in the way in which it is to run.
fn under_its_name(run: &Run, mut command: Command, given: Option<Given>) -> Result<i32, String> {
    let waited_for = given == Some(Given::Installer) && !run.detach;
    let detached = run.detach || run.name.as_deref() == Some(steps::INSTALLER_CONTAINER) && !waited_for;
    // Without a name in the background it is called as its image.
    let named = detached || waited_for;
    let name = run.name.clone().or_else(|| named.then(|| image_name(&run.image).to_owned()));
    if let Some(name) = &name
        && !containers::take_name(name, &run.image).map_err(|e| format!("Error: {e}"))?
    {
        // In podman's own words: the service knows them.
        return Err(format!("Error: the container name \"{name}\" is already in use"));
    }
    match name {
        Some(name) if detached => start(command, &name, &run.image, given == Some(Given::Installer) && !run.remove),
        Some(name) if waited_for => attached::run(command, &name, &run.image, !run.remove),
        // This process becomes the program: its number, and so its name, stays.
        _ => Err(format!("Error: {}: {}", command.get_program().to_string_lossy().into_owned(), command.exec())),
    }
}

/// The search path of programs that are not the lab's own: what lies beside them in their image comes after what this machine has.
fn path_with_tools() -> String {
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/usr/sbin".into());
    format!("{path}:{}", tools::FOLDER)
}

/// Makes `to` another name of a program; what was there is replaced.
fn name_it(program: &Path, to: &Path) -> io::Result<()> {
    match fs::remove_file(to) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => std::os::unix::fs::symlink(program, to),
    }
}

/// A folder as the target gets the program's name, as `cp` does it by itself; the name is that of the image, not of ours.
fn copy_target(to: &str, from: &str) -> String {
    match (Path::new(to).is_dir(), Path::new(from).file_name().and_then(|n| n.to_str())) {
        (true, Some(name)) => format!("{to}/{name}"),
        _ => to.to_owned(),
    }
}

/// Starts a program in the background, in a process group of its own, with its output in a file.
fn start(mut command: Command, name: &str, image: &str, kept: bool) -> Result<i32, String> {
    let error = |e: io::Error| format!("Error: {e}");
    let folder = log_folder();
    fs::create_dir_all(&folder).map_err(error)?;
    let log =
        fs::OpenOptions::new().create(true).append(true).open(folder.join(format!("{name}.log"))).map_err(error)?;
    let err = log.try_clone().map_err(error)?;
    let child = command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(err)
        .process_group(0)
        .spawn()
        .map_err(|e| format!("Error: {}: {e}", command.get_program().to_string_lossy()))?;
    containers::pass_name(name, image, child.id(), kept).map_err(error)?;
    println!("{:064x}", child.id());
    Ok(0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_discovery_image_copies_the_agent_out_of_its_image() {
        let run = Run::parse(&words(
            "--privileged --rm -v /usr/local/bin:/hostbin q.test/x/agent:latest cp /usr/bin/agent /hostbin",
        ))
        .unwrap();
        assert_eq!(run.image, "q.test/x/agent:latest");
        assert_eq!(run.words, words("cp /usr/bin/agent /hostbin"));
        assert_eq!(run.outside("/hostbin"), Some("/usr/local/bin".into()));
        assert_eq!(run.outside("/hostbin/agent"), Some("/usr/local/bin/agent".into()));
        assert_eq!(run.outside("/hostbinary"), None);
    }

    #[rstest]
    #[case("assisted-installer", None)]
    #[case("--signal=STOP assisted-installer", Some("STOP"))]
    #[case("-s SIGHUP assisted-installer", Some("HUP"))]
    fn the_signal_that_is_asked_for(#[case] line: &str, #[case] signal: Option<&str>) {
        assert_eq!(signal_of(&words(line)), signal);
    }

    #[test]
    fn a_signal_needs_a_container_and_a_name_that_there_is() {
        let kill = |line: &str| end("kill", "nobody-of-that-name", &words(line)).unwrap_err().to_string();
        assert_eq!(kill("--signal=STOP nobody-of-that-name"), "no such container");
        assert_eq!(kill("--signal=NEVER nobody-of-that-name"), "no signal NEVER");
    }

    #[test]
    fn the_agent_starts_the_installer() {
        let run = Run::parse(&words(
            "--privileged --pid=host --net=host --name=assisted-installer -v /dev:/dev:rw --env=PULL_SECRET_TOKEN \
             -e A=b=c q.test/installer@sha256:12 installer --role master",
        ))
        .unwrap();
        assert_eq!(run.name.as_deref(), Some("assisted-installer"));
        assert_eq!(run.environment, [("A".to_owned(), "b=c".to_owned())]);
        assert_eq!(image_name(&run.image), "installer");
        assert_eq!(run.words, words("installer --role master"));
        assert!(!run.detach);
    }

    #[test]
    fn the_lab_s_own_program_is_not_copied_but_named() {
        let folder = tempfile::tempdir().unwrap();
        let (own, to) = (folder.path().join("vlab-node"), folder.path().join("agent"));
        fs::write(&own, "program").unwrap();
        for _ in 0..2 {
            name_it(&own, &to).unwrap();
            assert_eq!(fs::read_to_string(&to).unwrap(), "program");
        }
        assert!(name_it(&own, &folder.path().join("nowhere/agent")).is_err());
    }

    #[rstest]
    #[case("quay.io/edge-infrastructure/assisted-installer-agent:latest", "assisted-installer-agent")]
    #[case("host:5000/a/b@sha256:77", "b")]
    #[case("plain", "plain")]
    fn names(#[case] image: &str, #[case] expected: &str) {
        assert_eq!(image_name(image), expected);
    }

    #[rstest]
    #[case("inventory", &["step", "inventory"])]
    #[case("free_addresses", &["step", "free-network-addresses"])]
    #[case("/usr/bin/agent", &["agent"])]
    #[case("logs_sender", &["tool", "logs_sender"])]
    #[case("/usr/bin/machine-config-daemon", &["tool", "machine-config-daemon"])]
    fn programs_of_the_lab(#[case] program: &str, #[case] expected: &[&str]) {
        let (file, verb) = of_image(Path::new("/nowhere"), program).unwrap();
        assert_eq!(file, std::env::current_exe().unwrap());
        assert_eq!(verb, expected);
    }

    #[test]
    fn a_program_in_the_image_s_folder_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("usr/bin")).unwrap();
        fs::write(folder.path().join("usr/bin/agent"), "").unwrap();
        let (file, verb) = of_image(folder.path(), "/usr/bin/agent").unwrap();
        assert_eq!((file, verb), (folder.path().join("usr/bin/agent"), Vec::new()));
        assert_eq!(of_image(folder.path(), "frobnicate"), None);
    }

    #[rstest]
    #[case("/usr/bin/agent", Some(Given::Agent))]
    #[case("next_step_runner", Some(Given::Agent))]
    #[case("inventory", Some(Given::Agent))]
    #[case("logs_sender", Some(Given::Agent))]
    #[case("/usr/bin/installer", Some(Given::Installer))]
    #[case("assisted-installer", Some(Given::Installer))]
    #[case("connectivity_check", None)]
    #[case("/usr/bin/machine-config-daemon", None)]
    fn programs_that_are_given_stand_for_those_of_their_images(#[case] program: &str, #[case] given: Option<Given>) {
        assert_eq!(given_for(program), given);
    }

    #[test]
    fn a_given_program_that_cannot_be_had_is_not_replaced_by_ours() {
        let mut config = NodeConfig { installer: Some("http://x.test/".into()), ..NodeConfig::default() };
        config.programs.insert("curl".into(), "/nowhere/curl".into());
        let error = stand_in(Path::new("/nowhere"), "installer", &config).err().unwrap();
        assert!(error.starts_with("Error: the installer of the run, http://x.test/: "), "{error}");
        let own = stand_in(Path::new("/nowhere"), "inventory", &config).unwrap().unwrap();
        assert_eq!((own.file, own.given), (std::env::current_exe().unwrap(), None));
    }

    #[rstest]
    #[case("quay.test/x/assisted-installer:latest --role master --insecure", Some("installer"), 3)]
    #[case("quay.test/x/assisted-installer:latest", Some("installer"), 0)]
    #[case("quay.test/x/assisted-installer:latest installer --role master", Some("installer"), 2)]
    #[case("--entrypoint /usr/bin/true quay.test/x/any --role", Some("/usr/bin/true"), 1)]
    #[case("quay.test/x/any --role", None, 0)]
    #[case("--name=assisted-installer registry.test/rhai/downstream@sha256:7 --role master", Some("installer"), 2)]
    fn the_program_of_an_image(#[case] text: &str, #[case] program: Option<&str>, #[case] count: usize) {
        let run = Run::parse(&words(text)).unwrap();
        let found = run.program();
        assert_eq!(found.map(|(program, _)| program), program);
        assert_eq!(found.map_or(0, |(_, args)| args.len()), count);
    }

    #[rstest]
    #[case("--quiet --filter name=disk_performance", Some("disk_performance"))]
    #[case("--filter=name=x -q", Some("x"))]
    #[case("--filter status=running", None)]
    #[case("--quiet", None)]
    fn who_is_asked_for(#[case] text: &str, #[case] name: Option<&str>) {
        assert_eq!(name_filter(&words(text)), name);
    }

    #[test]
    fn no_image_is_an_error_in_podman_s_words() {
        assert_eq!(
            Run::parse(&words("--rm --name x")).unwrap_err(),
            "Error: requires at least 1 arg(s), only received 0"
        );
    }

    #[rstest]
    #[case("-i -t 5 assisted-installer", 5)]
    #[case("--time=0 x", 0)]
    #[case("x", 10)]
    fn how_long_a_container_has(#[case] text: &str, #[case] seconds: u64) {
        assert_eq!(patience(&words(text)), Duration::from_secs(seconds));
    }
}
