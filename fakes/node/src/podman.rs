//! Stands in for podman: there are no containers on a lab machine. `podman run IMAGE PROGRAM ARGS` runs the program of the lab that
//! stands for `PROGRAM` of that image, as a process of the machine. A program that lies in the image's folder
//! (`/usr/lib/vlab/images/<name>/usr/bin/<program>`) comes before the lab's own, and so does an agent that the run gives this
//! machine: it is fetched when it is called for the first time.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::given::{self, Given};
use crate::machine::NodeConfig;
use crate::say;
use crate::{steps, tools};

/// Folders of images, one for each name.
const IMAGES: &str = "/usr/lib/vlab/images";
/// Where running containers are noted. `VLAB_NODE_RUN` names another place.
const RUN: &str = "/run/vlab/containers";
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
                own.map(|(_, program)| (*program, &self.words[..]))
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
];

/// Programs that images run by themselves: name of the image, and the program.
const ENTRYPOINTS: &[(&str, &str)] = &[("assisted-installer", "installer")];

/// Names under which the agent's one program lies in its image.
const AGENT_PROGRAMS: &[&str] =
    &["agent", "disk_speed_check", "free_addresses", "inventory", "logs_sender", "next_step_runner"];

/// The last part of a path.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What runs for a program of an image: the agent that the run gives, a file of the image's folder, else a verb of ours. `None`:
/// nobody knows it.
fn stand_in(folder: &Path, program: &str, agent: Option<&Path>) -> Option<(PathBuf, Vec<String>)> {
    let name = base(program);
    if let Some(agent) = agent.filter(|_| AGENT_PROGRAMS.contains(&name)) {
        return Some((agent.to_owned(), Vec::new()));
    }
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

/// A container that runs.
#[derive(Debug, Serialize, Deserialize)]
struct Container {
    pid: u32,
    /// When the process started, in the kernel's ticks: a number that was given again is not the same process.
    started: u64,
    image: String,
}

fn run_folder() -> PathBuf {
    std::env::var_os("VLAB_NODE_RUN").map_or_else(|| RUN.into(), PathBuf::from)
}

/// When the process with that number started; `None` when there is none.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    // A zombie does nothing any more. Start time is the 22nd field, of which two are before the parenthesis.
    if state == "Z" { None } else { fields.nth(18)?.parse().ok() }
}

/// Containers that run, by name. Notes of those that ended are removed.
fn running() -> BTreeMap<String, Container> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(run_folder()).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.starts_with('.') {
            continue;
        }
        let container = fs::read(entry.path()).ok().and_then(|b| serde_json::from_slice::<Container>(&b).ok());
        match container {
            Some(c) if started(c.pid) == Some(c.started) => {
                all.insert(name, c);
            }
            _ => {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
    all
}

/// Takes a name for this process. Two that ask for it at the same moment do not both get it: the service asks for the installer
/// again and again until it has started. `false`: somebody has it.
fn take_name(name: &str, image: &str) -> io::Result<bool> {
    fs::create_dir_all(run_folder())?;
    let lock = fs::File::create(run_folder().join(".lock"))?;
    lock.lock()?;
    if running().contains_key(name) {
        return Ok(false);
    }
    pass_name(name, image, std::process::id())?;
    Ok(true)
}

/// The name is that process's from now on.
fn pass_name(name: &str, image: &str, pid: u32) -> io::Result<()> {
    let container = Container { pid, started: started(pid).unwrap_or(0), image: image.to_owned() };
    // Whole or not at all: who looks in between finds the name taken all the same.
    let beside = run_folder().join(format!(".{name}"));
    fs::write(&beside, serde_json::to_vec(&container).map_err(io::Error::other)?)?;
    fs::rename(beside, run_folder().join(name))
}

/// Stops a container: asks its process to end. Fine when there is none.
///
/// # Errors
/// When the process is there and cannot be signalled.
pub fn stop(name: &str) -> io::Result<()> {
    use nix::sys::signal::{Signal, killpg};
    use nix::unistd::Pid;
    let Some(container) = running().remove(name) else { return Ok(()) };
    let Ok(pid) = i32::try_from(container.pid) else { return Ok(()) };
    // It leads a process group of its own, with all that it started.
    match killpg(Pid::from_raw(pid), Signal::SIGTERM) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(e) => Err(e.into()),
    }
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
            for name in running().keys().filter(|name| wanted.is_none_or(|wanted| name.contains(wanted))) {
                println!("{name}");
            }
            0
        }
        Some("kill" | "stop" | "rm") => match stop(last) {
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
    let agent = given::program(&config, Given::Agent)?;
    // There is one file system here: what a container would find below is the machine's own.
    if run.volumes.iter().any(|(_, there)| Path::new(there).starts_with(HOST)) && !Path::new(HOST).exists() {
        std::os::unix::fs::symlink("/", HOST).map_err(|e| format!("Error: {HOST}: {e}"))?;
    }
    let (file, verb) = match stand_in(&folder, program, agent.as_deref()) {
        Some(found) => found,
        // `cp /usr/bin/agent /hostbin` copies a program out of the image.
        None if program == "cp" && args.len() == 2 => {
            let (from, to) = (args[0].clone(), args[1].clone());
            let (from, _) = stand_in(&folder, &from, agent.as_deref())
                .ok_or_else(|| format!("Error: image {} has no {from}", run.image))?;
            let to = copy_target(&to, &run.words[1]);
            if from == own {
                // Ten megabytes that are there already: the other name is enough.
                return name_it(&own, Path::new(&to)).map(|()| 0).map_err(|e| format!("Error: {to}: {e}"));
            }
            args = vec![from.display().to_string(), to];
            (PathBuf::from("/bin/cp"), Vec::new())
        }
        None if Path::new(program).is_absolute() && Path::new(program).is_file() => (program.into(), Vec::new()),
        None => return Err(format!("Error: the lab has nothing that stands for {program} of image {}", run.image)),
    };
    if file == own {
        say::note("podman", &format!("{program} of {} is the lab's own program", run.image));
    }
    let mut command = Command::new(&file);
    // What it is called decides what it does: ours is told by its verb, the others by the name that they have in the image.
    if file == own {
        command.arg0("vlab-node");
    } else {
        command.env("PATH", path_with_tools());
        if agent.as_ref() == Some(&file) {
            command.arg0(base(program));
        }
    }
    command.args(verb).args(args).envs(run.environment.iter().map(|(n, v)| (n, v)));
    // Without a name in the background it is called as its image.
    let detached = run.detach || run.name.as_deref() == Some(steps::INSTALLER_CONTAINER);
    let name = run.name.clone().or_else(|| detached.then(|| image_name(&run.image).to_owned()));
    if let Some(name) = &name
        && !take_name(name, &run.image).map_err(|e| format!("Error: {e}"))?
    {
        // In podman's own words: the service knows them.
        return Err(format!("Error: the container name \"{name}\" is already in use"));
    }
    if let Some(name) = name.filter(|_| detached) {
        return start(command, &name, &run.image);
    }
    // This process becomes the program: its number, and so its name, stays.
    Err(format!("Error: {}: {}", file.display(), command.exec()))
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
fn start(mut command: Command, name: &str, image: &str) -> Result<i32, String> {
    let error = |e: io::Error| format!("Error: {e}");
    let folder = std::env::var_os("VLAB_NODE_LOG").map_or_else(|| steps::LOG_FOLDER.into(), PathBuf::from);
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
    pass_name(name, image, child.id()).map_err(error)?;
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
    fn programs_of_the_lab(#[case] program: &str, #[case] expected: &[&str]) {
        let (file, verb) = stand_in(Path::new("/nowhere"), program, None).unwrap();
        assert_eq!(file, std::env::current_exe().unwrap());
        assert_eq!(verb, expected);
    }

    #[test]
    fn a_program_in_the_image_s_folder_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("usr/bin")).unwrap();
        fs::write(folder.path().join("usr/bin/agent"), "").unwrap();
        let (file, verb) = stand_in(folder.path(), "/usr/bin/agent", None).unwrap();
        assert_eq!((file, verb), (folder.path().join("usr/bin/agent"), Vec::new()));
        assert_eq!(stand_in(folder.path(), "frobnicate", None), None);
    }

    #[rstest]
    #[case("/usr/bin/agent", true)]
    #[case("next_step_runner", true)]
    #[case("inventory", true)]
    #[case("installer", false)]
    #[case("connectivity_check", false)]
    fn an_agent_that_is_given_stands_for_all_programs_of_its_image(#[case] program: &str, #[case] given: bool) {
        let agent = Path::new("/var/lib/vlab/agent");
        let found = stand_in(Path::new("/nowhere"), program, Some(agent)).map(|(file, _)| file);
        assert_eq!(found.as_deref() == Some(agent), given, "{found:?}");
    }

    #[rstest]
    #[case("quay.test/x/assisted-installer:latest --role master --insecure", Some("installer"), 3)]
    #[case("quay.test/x/assisted-installer:latest", Some("installer"), 0)]
    #[case("quay.test/x/assisted-installer:latest installer --role master", Some("installer"), 2)]
    #[case("--entrypoint /usr/bin/true quay.test/x/any --role", Some("/usr/bin/true"), 1)]
    #[case("quay.test/x/any --role", None, 0)]
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

    #[test]
    fn a_process_that_ended_is_no_container() {
        assert!(started(std::process::id()).is_some());
        assert_eq!(started(u32::MAX), None);
    }
}
