//! What is left after the harness died, with and without its supervisor: nothing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use vlab_lab::gc;
use vlab_lab::ledger::{Ledger, Resource};
use vlab_lab::proc::ProcessId;

/// Nothing here takes a second on a quiet machine.
const SOON: Duration = Duration::from_secs(60);

/// Polls, as there is nobody to be woken by: these are not our children.
fn within(budget: Duration, what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + budget;
    while !check() {
        assert!(Instant::now() < end, "not within {budget:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Mini {
    _world: tempfile::TempDir,
    folder: PathBuf,
    registry: PathBuf,
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// 0 when alone.
    supervisor: u32,
    /// postmaster, stubborn, the child of stubborn, mortal.
    processes: Vec<ProcessId>,
    segments: Vec<String>,
}

fn segments() -> Vec<String> {
    let text = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    text.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().nth(1).map(str::to_owned)).collect()
}

impl Mini {
    fn start(how: &str) -> Self {
        Self::start_as(None, how)
    }

    /// As another user and group when given; only root can.
    fn start_as(user: Option<(u32, u32)>, how: &str) -> Self {
        use std::os::unix::fs::{PermissionsExt as _, chown};
        use std::os::unix::process::CommandExt as _;
        let world = tempfile::Builder::new().prefix("vlab-t-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(world.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (folder, registry) = (world.path().join("f"), world.path().join("r"));
        fs::create_dir(&folder).unwrap();
        let mut executable = PathBuf::from(env!("CARGO_BIN_EXE_mini-harness"));
        if user.is_some() {
            // The build directory may be closed to others.
            executable = world.path().join("mini-harness");
            fs::copy(env!("CARGO_BIN_EXE_mini-harness"), &executable).unwrap();
        }
        let mut command = Command::new(executable);
        command
            .args([registry.as_os_str(), folder.as_os_str(), how.as_ref()])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some((uid, gid)) = user {
            fs::create_dir(&registry).unwrap();
            for dir in [&folder, &registry] {
                chown(dir, Some(uid), Some(gid)).unwrap();
                fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
            }
            command.uid(uid).gid(gid).env_remove("HOME").env_remove("XDG_CACHE_HOME");
        }
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let mut pids: Vec<u32> = line.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(pids.len(), 4, "the small harness does not start");
        within(SOON, "stubborn has a child", || {
            fs::read_to_string(folder.join("child")).is_ok_and(|text| text.ends_with('\n'))
        });
        pids.push(fs::read_to_string(folder.join("child")).unwrap().trim().parse().unwrap());
        let supervisor = pids.remove(0);
        let processes: Vec<ProcessId> = pids.into_iter().map(|pid| ProcessId::of(pid).unwrap()).collect();
        let pid_file =
            entries(&folder).into_iter().map(|path| path.join("data/postmaster.pid")).find(|path| path.exists());
        let text = fs::read_to_string(pid_file.unwrap()).unwrap();
        let segment = text.lines().nth(6).unwrap().split_ascii_whitespace().nth(1).unwrap().to_owned();
        assert!(segments().contains(&segment));
        Self { _world: world, folder, registry, child, stdout, supervisor, processes, segments: vec![segment] }
    }

    fn kill9(&mut self) {
        // Child::kill is SIGKILL.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn assert_nothing_is_left(&self) {
        let left: Vec<_> = self.processes.iter().filter(|process| process.is_alive()).collect();
        assert!(left.is_empty(), "alive: {left:?}");
        let logs = ["child", "mortal.log", "stubborn.log", "supervisor.log"];
        let left: Vec<PathBuf> =
            entries(&self.folder).into_iter().filter(|path| !logs.iter().any(|log| path.ends_with(log))).collect();
        assert_eq!(left, [] as [PathBuf; 0]);
        assert_eq!(entries(&self.registry), [] as [PathBuf; 0]);
        let shared = segments();
        assert!(self.segments.iter().all(|segment| !shared.contains(segment)), "shared memory stays behind");
    }

    fn plan(&self) -> gc::Plan {
        gc::find_leftovers(&self.registry, std::slice::from_ref(&self.folder)).unwrap()
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn kill_9_of_the_harness_leaves_nothing() {
    let mut mini = Mini::start("supervised");
    let supervisor = ProcessId::of(mini.supervisor).unwrap();
    let started = Instant::now();
    mini.kill9();
    within(SOON, "the supervisor has finished", || !supervisor.is_alive());
    let took = started.elapsed();
    mini.assert_nothing_is_left();
    assert_eq!(mini.plan().to_string(), "nothing to remove\n");
    let log = fs::read_to_string(mini.folder.join("supervisor.log")).unwrap();
    for words in
        ["is gone, removing what it left", "(stubborn): killed", "directory ", "socket ", "file ", "nothing is left"]
    {
        assert!(log.contains(words), "`{words}` is not in:\n{log}");
    }
    // It had no time to take the secrets out of the logs of its programs.
    let log_of_program = fs::read_to_string(mini.folder.join("stubborn.log")).unwrap();
    assert_eq!(log_of_program, "(redacted) and (redacted)\n");
    let run = format!("mini-{}", mini.child.id());
    assert_eq!(vlab_lab::leaks::processes(&run), [], "what had a session of its own is still there");
    // In reverse order of making: the last one made goes first.
    let position = |words: &str| log.find(words).unwrap();
    assert!(
        position("(stubborn)") < position("PostgreSQL server") && position("PostgreSQL server") < position("file ")
    );
    println!("cleaned in {took:?}");
}

/// The same without being root: PostgreSQL runs as the user itself, and there is nothing to give away.
#[test]
fn kill_9_as_an_ordinary_user_leaves_nothing() {
    if !nix::unistd::geteuid().is_root() {
        vlab_skip::skip!("not root, so the other tests run as an ordinary user already");
        return;
    }
    let mut mini = Mini::start_as(Some((65_534, 65_534)), "supervised");
    for process in &mini.processes {
        use std::os::unix::fs::MetadataExt as _;
        assert_eq!(fs::metadata(format!("/proc/{}", process.pid)).unwrap().uid(), 65_534);
    }
    let supervisor = ProcessId::of(mini.supervisor).unwrap();
    mini.kill9();
    within(SOON, "the supervisor has finished", || !supervisor.is_alive());
    mini.assert_nothing_is_left();
}

#[test]
fn an_orderly_end_dismisses_the_supervisor() {
    let mut mini = Mini::start("supervised");
    let supervisor = ProcessId::of(mini.supervisor).unwrap();
    drop(mini.child.stdin.take());
    let mut rest = String::new();
    mini.stdout.read_to_string(&mut rest).unwrap();
    assert!(mini.child.wait().unwrap().success());
    assert_eq!(rest, "leaked 0\n");
    assert!(!supervisor.is_alive());
    mini.assert_nothing_is_left();
    assert_eq!(fs::read_to_string(mini.folder.join("supervisor.log")).unwrap(), "");
}

/// Ctrl-C reaches a process group; the supervisor is in none but its own, and deaf to SIGINT besides. SIGTERM of a living
/// harness's supervisor takes nothing from the harness.
#[test]
fn the_supervisor_survives_sigint_and_takes_nothing_from_the_living() {
    let mut mini = Mini::start("supervised");
    let supervisor = ProcessId::of(mini.supervisor).unwrap();
    let stat = vlab_lab::proc::Stat::read(mini.supervisor).unwrap();
    assert_eq!(stat.pgid, mini.supervisor, "a group of its own");
    let send = |signal| nix::sys::signal::kill(nix::unistd::Pid::from_raw(mini.supervisor as i32), signal).unwrap();
    send(nix::sys::signal::Signal::SIGINT);
    send(nix::sys::signal::Signal::SIGTERM);
    within(SOON, "SIGTERM ends it", || !supervisor.is_alive());
    assert!(mini.processes.iter().all(|process| process.is_alive()), "the harness lives and needs them");
    let log = fs::read_to_string(mini.folder.join("supervisor.log")).unwrap();
    assert!(log.contains("SIGTERM while the harness lives: nothing is removed"), "{log}");
    mini.kill9();
    let plan = mini.plan();
    assert!(!plan.is_empty());
    assert_eq!(gc::remove(&plan).kept(), 0);
    mini.assert_nothing_is_left();
}

#[test]
fn gc_spares_the_living_and_removes_the_dead() {
    let mut mini = Mini::start("alone");
    let plan = mini.plan();
    assert!(plan.is_empty(), "{plan}");
    assert_eq!((plan.alive.len(), plan.alive[0].harness.pid), (1, mini.child.id()));
    assert!(plan.to_string().ends_with("entries)\nnothing to remove\n"), "{plan}");
    assert_eq!(gc::remove(&plan).to_string(), "nothing to remove\n");
    assert!(mini.processes.iter().all(|process| process.is_alive()));

    mini.kill9();
    // Without a supervisor: those with a death signal end by themselves, the stubborn one and all files stay.
    let [postmaster, stubborn, mortal, child] = mini.processes[..] else { panic!() };
    within(SOON, "postgres and mortal die with the harness", || !postmaster.is_alive() && !mortal.is_alive());
    assert!(stubborn.is_alive() && child.is_alive());
    let plan = mini.plan();
    let text = plan.to_string();
    assert!(text.contains("is dead and left:") && text.contains("(stubborn)"), "{text}");
    let removal = gc::remove(&plan);
    assert_eq!(removal.kept(), 0, "{removal}");
    assert!(removal.to_string().ends_with("nothing is left\n"), "{removal}");
    mini.assert_nothing_is_left();
    assert_eq!(mini.plan().to_string(), "nothing to remove\n");
}

/// Loading a program takes tens of milliseconds, and the harness may be gone by then.
#[test]
fn a_harness_that_died_before_its_supervisor_came_up() {
    let mut mini = Mini::start("alone");
    mini.kill9();
    let ledger =
        entries(&mini.registry).into_iter().find(|path| path.extension().is_some_and(|e| e == "ledger")).unwrap();
    // It does not hear that somebody watches.
    let (heard, unheard) = std::io::pipe().unwrap();
    drop(heard);
    let status = Command::new(env!("CARGO_BIN_EXE_mini-harness"))
        .arg(vlab_lab::supervisor::VERB)
        .args([ledger.as_os_str(), mini.child.id().to_string().as_ref(), mini.folder.join("supervisor.log").as_ref()])
        .stdin(Stdio::null())
        .stdout(unheard)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    mini.assert_nothing_is_left();
}

/// A private directory without any ledger (a test that was killed): found by its owner's note.
#[test]
fn gc_finds_private_directories_that_no_ledger_knows() {
    let world = tempfile::tempdir().unwrap();
    let (registry, temporary) = (world.path().join("r"), vec![world.path().to_path_buf()]);
    let find = || gc::find_leftovers(&registry, &temporary).unwrap();
    let boot = vlab_lab::proc::boot_id();
    let me = ProcessId::me().unwrap();
    let make = |name: &str, start_time: u64, boot: &str| {
        let dir = world.path().join(name);
        fs::create_dir_all(dir.join("data")).unwrap();
        let owner = serde_json::json!({"owner": {"pid": me.pid, "start_time": start_time}, "boot": boot});
        fs::write(dir.join("owner.json"), owner.to_string()).unwrap();
        dir
    };
    let alive = make("vlab-pg-1-a", me.start_time, &boot);
    let dead = make("vlab-pg-1-b", me.start_time + 1, &boot);
    let other_boot = make("vlab-pg-1-c", me.start_time, "another boot");
    let _foreign = make("something-else", me.start_time + 1, &boot);
    fs::create_dir(world.path().join("vlab-pg-1-fresh")).unwrap();

    let plan = find();
    assert_eq!(plan.strays, [dead.clone(), other_boot.clone()]);
    // What a ledger knows is not a stray.
    let ledger = Ledger::create(&registry, "r1").unwrap();
    let token = ledger.record(Resource::Directory { path: dead.clone() }).unwrap();
    assert_eq!(find().strays, std::slice::from_ref(&other_boot));
    ledger.release(token).unwrap();
    assert_eq!(ledger.close().unwrap(), []);

    assert_eq!(gc::remove(&plan).kept(), 0);
    assert!(!dead.exists() && !other_boot.exists() && alive.exists());
    assert_eq!(entries(world.path()).len(), 4, "alive, fresh, foreign, registry");
    assert!(find().is_empty());
}

#[test]
fn a_registry_that_others_can_write_to_is_not_believed() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = tempfile::tempdir().unwrap();
    let registry = world.path().join("r");
    fs::create_dir(&registry).unwrap();
    fs::set_permissions(&registry, fs::Permissions::from_mode(0o777)).unwrap();
    let error = gc::find_leftovers(&registry, &[]).unwrap_err().to_string();
    assert!(error.contains("writable by nobody else"), "{error}");
    assert!(Ledger::create(&registry, "r1").unwrap_err().to_string().contains("writable by nobody else"));
    // One that is not there is empty.
    assert!(gc::find_leftovers(&world.path().join("none"), &[]).unwrap().is_empty());
}
