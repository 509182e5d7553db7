//! A place of its own for one test: run folders, ledgers and temporary files lie in it, so that what is left can be told.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use vlab_judge::result::RunResult;
use vlab_model::history::Observation;

/// The program under test.
pub(crate) const VLAB: &str = env!("CARGO_BIN_EXE_vlab");

/// How long one run of a small scenario may take on a busy machine.
pub(crate) const RUN: Duration = Duration::from_secs(100);

pub(crate) struct CliFixture {
    root: tempfile::TempDir,
}

/// What a program said and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Said {
    fn is_of_a_busy_computer(&self) -> bool {
        let unfolded = self.out.split_whitespace().collect::<Vec<_>>().join(" ");
        self.code == Some(3) && unfolded.contains("this computer is too busy for the time profile")
    }

    #[track_caller]
    pub(crate) fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }
    /// Both outputs contain each of the words, in whichever of them.
    #[track_caller]
    pub(crate) fn says(self, words: &[&str]) -> Self {
        // The terminal's lines are folded.
        let unfolded = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let all = format!("{} {}", unfolded(&self.out), unfolded(&self.err));
        for word in words {
            assert!(all.contains(word), "{word:?} is missing\nstdout:\n{}\nstderr:\n{}", self.out, self.err);
        }
        self
    }
}

impl CliFixture {
    pub(crate) fn new() -> Self {
        // Not the folder of TMPDIR: the path of a unix socket has little room.
        let root = tempfile::Builder::new().prefix("vlab-test-").tempdir_in("/tmp").unwrap();
        // PostgreSQL runs as another user when the test is run by root.
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for folder in ["tmp", "ledgers", "runs"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        fs::set_permissions(root.path().join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
        Self { root }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Writes a file into the bench and gives its path.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_of(VLAB.as_ref(), args)
    }

    /// The same with another file of the program.
    pub(crate) fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("XDG_RUNTIME_DIR", self.path("ledgers"))
            .env("TMPDIR", self.path("tmp"))
            .env("VLAB_RUNS", self.path("runs"))
            .env("NO_COLOR", "1")
            // The quick form; tests of virtual machines ask for them.
            .env("VLAB_HOSTS", "sim")
            .env_remove("DATABASE_URL")
            .env_remove("VLAB_SCENARIOS")
            .env_remove("VLAB_LOG")
            .env_remove("GITHUB_ACTIONS")
            .env_remove("GITHUB_STEP_SUMMARY")
            .env_remove("ARTIFACT_DIR")
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end, and again where it says that this computer was too busy to judge: what a user would do.
    pub(crate) fn vlab(&self, args: &[&str]) -> Said {
        let mut left = 2;
        loop {
            let said = Said::from(self.command(args).output().unwrap());
            if left == 0 || !said.is_of_a_busy_computer() {
                return said;
            }
            eprintln!("once more, inconclusive on a busy computer: {}", said.out);
            left -= 1;
        }
    }

    /// Starts it and does not wait.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        self.start_as(VLAB.as_ref(), args)
    }

    /// The same with another file of the program.
    pub(crate) fn start_as(&self, program: &Path, args: &[&str]) -> Running {
        let child = self.command_of(program, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Running { child: Some(child) }
    }

    /// Starts a service in memory with those options; its address.
    pub(crate) fn service(&self, options: &[&str]) -> (Running, String) {
        let file = self.path("address");
        let mut args = vec!["service", "--listen", "127.0.0.1:0", "--address-file", file.to_str().unwrap()];
        args.extend(options);
        let mut running = self.start(&args);
        let mut address = String::new();
        until("the service is ready", RUN, || {
            assert!(!running.has_ended(), "{args:?} ended");
            address = fs::read_to_string(&file).unwrap_or_default();
            !address.is_empty()
        });
        (running, format!("http://{}", address.trim()))
    }

    /// Runs it to its end. One that is not through within `budget` is asked to end: the test fails with what the run then says, and with
    /// the last lines of its machines.
    #[track_caller]
    pub(crate) fn vlab_within(&self, budget: Duration, args: &[&str]) -> Said {
        let mut run = self.start(args);
        let end = Instant::now() + budget;
        while !run.has_ended() {
            if Instant::now() > end {
                run.signal("INT");
                let said = run.end(RUN);
                panic!("not through within {budget:?}: {}\n{}\n{}", said.out, said.err, self.last_words(12));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        run.end(RUN)
    }

    /// The last lines of each machine's console.
    fn last_words(&self, lines: usize) -> String {
        let mut all = String::new();
        for file in walk(&self.latest()).iter().filter(|f| f.to_string_lossy().ends_with(".console.log")) {
            let bytes = fs::read(file).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            let said: Vec<&str> = text.lines().collect();
            let last = &said[said.len().saturating_sub(lines)..];
            all.push_str(&format!("{}:\n{}\n", file.display(), last.join("\n")));
        }
        all
    }

    /// Starts it with its output in that file, for programs that go on after they have said something.
    pub(crate) fn start_into(&self, file: &str, args: &[&str]) -> Running {
        let out = fs::File::create(self.path(file)).unwrap();
        let child = self.command(args).stdout(out).stderr(Stdio::piped()).spawn().unwrap();
        Running { child: Some(child) }
    }

    /// The folder of the newest run.
    pub(crate) fn latest(&self) -> PathBuf {
        self.path("runs/latest")
    }

    pub(crate) fn result(&self) -> RunResult {
        let path = self.latest().join("result.json");
        serde_json::from_slice(&fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
    }

    pub(crate) fn history(&self) -> Vec<Observation> {
        vlab_history::read(&self.latest().join("history.jsonl")).unwrap()
    }

    /// Waits until the run's history has this text.
    #[track_caller]
    pub(crate) fn wait_for_history(&self, text: &str) {
        let path = self.latest().join("history.jsonl");
        until(&format!("{text:?} in the history"), RUN, || {
            fs::read_to_string(&path).is_ok_and(|history| history.contains(text))
        });
    }

    /// The run's service answers this, now.
    pub(crate) fn ask_service(&self, path: &str) -> Option<(u16, String)> {
        let address = fs::read_to_string(self.latest().join("service.address")).ok()?;
        let mut stream = TcpStream::connect(address.trim()).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: vlab\r\nConnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let status = text.split(' ').nth(1)?.parse().ok()?;
        Some((status, text.split_once("\r\n\r\n")?.1.to_owned()))
    }

    pub(crate) fn ask_service_json(&self, path: &str) -> Option<Value> {
        let (status, body) = self.ask_service(path)?;
        (status == 200).then(|| serde_json::from_str(&body).ok()).flatten()
    }

    /// Processes that belong to this bench, with their command lines: those that got its folders in their environment, and
    /// those that have them in their command line (PostgreSQL's environment is cleaned).
    pub(crate) fn processes(&self) -> Vec<(i32, String)> {
        let root = self.root.path().as_os_str().as_bytes().to_vec();
        let has = |bytes: &[u8]| bytes.windows(root.len()).any(|w| w == root);
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
            let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
            let line = read("cmdline");
            if has(&line) || has(&read("environ")) {
                found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
            }
        }
        found
    }

    /// The process of the service under test.
    #[track_caller]
    pub(crate) fn service_pid(&self) -> i32 {
        let all = self.processes();
        all.iter()
            .find(|(_, line)| line.contains(" service --listen"))
            .unwrap_or_else(|| panic!("no service in {all:?}"))
            .0
    }

    /// The first process of PostgreSQL.
    #[track_caller]
    pub(crate) fn postmaster_pid(&self) -> i32 {
        let found =
            walk(&self.path("tmp")).into_iter().find(|p| p.ends_with("postmaster.pid")).expect("postmaster.pid");
        fs::read_to_string(found).unwrap().lines().next().unwrap().trim().parse().unwrap()
    }

    /// Everything that a run may leave on a machine: processes, private folders, sockets, ledgers.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut left: Vec<String> =
            self.processes().into_iter().map(|(pid, line)| format!("process {pid}: {line}")).collect();
        for folder in ["tmp", "ledgers"] {
            // The lock that runs reserve memory under belongs to none of them.
            let is_lock = |p: &PathBuf| p.file_name().is_some_and(|name| name == "memory.lock");
            let files = walk(&self.path(folder)).into_iter().filter(|p| !p.is_dir() && !is_lock(p));
            left.extend(files.map(|p| p.display().to_string()));
        }
        left
    }

    /// Nothing is left soon, and `vlab gc` has nothing to do. A quiet machine needs less than a second; how long a busy one
    /// needs says nothing.
    #[track_caller]
    pub(crate) fn nothing_is_left(&self) {
        let end = Instant::now() + Duration::from_secs(30);
        let mut left = self.leftovers();
        while !left.is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
            left = self.leftovers();
        }
        assert!(left.is_empty(), "left behind: {left:#?}");
        let gc: Value = serde_json::from_str(&self.vlab(&["gc", "--dry-run", "--json"]).ends_with(0).out).unwrap();
        for part in ["leftovers", "alive", "unreadable"] {
            assert_eq!(gc[part], Value::Array(Vec::new()), "{part} in {gc}");
        }
        // What others left on this machine before, a run that was killed without a folder of its own, is not ours.
        let strays = gc["strays"].as_array().unwrap().iter().filter_map(Value::as_str);
        let ours: Vec<&str> = strays.filter(|path| Path::new(path).starts_with(self.root.path())).collect();
        assert!(ours.is_empty(), "strays: {ours:#?}");
    }
}

impl Drop for CliFixture {
    /// A test that failed must not leave its lab to the next one.
    fn drop(&mut self) {
        if std::thread::panicking() {
            if let Ok(log) = fs::read_to_string(self.latest().join("service.log")) {
                eprintln!("service.log:\n{log}");
            }
            for (pid, line) in self.processes() {
                eprintln!("ending {pid}: {line}");
                signal(pid, "KILL");
            }
        }
    }
}

/// Everything below a folder. What goes away meanwhile is not there.
pub(crate) fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            all.extend(walk(&path));
        }
        all.push(path);
    }
    all
}

/// Waits for a condition.
#[track_caller]
pub(crate) fn until(what: &str, budget: Duration, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + budget;
    while !condition() {
        assert!(Instant::now() < end, "{what}: not within {budget:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn signal(pid: i32, name: &str) {
    use nix::sys::signal::{Signal, kill};
    let signal: Signal = format!("SIG{name}").parse().unwrap();
    // It may just have exited unexpectedly.
    let _ = kill(nix::unistd::Pid::from_raw(pid), signal);
}

/// A `vlab` that runs. Killed when the test ends without waiting for it.
pub(crate) struct Running {
    child: Option<Child>,
}

impl Running {
    /// The next line on its stderr. Nothing beyond it is read.
    pub(crate) fn says_next(&mut self) -> String {
        let mut line = Vec::new();
        let stderr = self.child.as_mut().and_then(|child| child.stderr.as_mut()).unwrap();
        while !line.ends_with(b"\n") {
            let mut byte = [0];
            assert_eq!(stderr.read(&mut byte).unwrap(), 1, "it ended: {}", String::from_utf8_lossy(&line));
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(i32::try_from(self.child.as_ref().unwrap().id()).unwrap(), name);
    }

    /// Its end, or a failure when it does not come.
    #[track_caller]
    pub(crate) fn end(mut self, budget: Duration) -> Said {
        let end = Instant::now() + budget;
        let mut child = self.child.take().unwrap();
        // Its outputs are short: they fit into the pipes.
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > end {
                let _ = child.kill();
                let said = Said::from(child.wait_with_output().unwrap());
                panic!("it does not end within {budget:?}: {said:#?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait_with_output().unwrap().into()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
