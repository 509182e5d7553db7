//! A container engine for the tests: the one that runs on this machine, else a Docker Engine of our own that is started
//! before the tests and stopped after them. It has its own socket, its own place for images (`target/vlab/engine`), leaves
//! firewall and routing of the machine as they are where it can, and dies with us.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::say;

/// How long an engine may take to start. The first start prepares its folders.
const START: Duration = Duration::from_secs(60);
/// How long it may take to stop.
const STOP: Duration = Duration::from_secs(30);

/// A Docker Engine that we started.
pub(crate) struct Private {
    child: Child,
    folder: PathBuf,
}

/// Does an engine answer at one of the usual places?
fn answers() -> bool {
    if std::env::var_os("DOCKER_HOST").is_some_and(|host| !host.is_empty()) {
        // Whoever names one means that one.
        return true;
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = runtime.iter().flat_map(|dir| [dir.join("docker.sock"), dir.join("podman/podman.sock")]);
    let all = ["/var/run/docker.sock", "/run/podman/podman.sock"].map(PathBuf::from);
    all.into_iter().chain(own).any(|socket| pings(&socket))
}

/// Asks an engine whether it is there.
pub(crate) fn pings(socket: &Path) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /_ping HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.split_whitespace().nth(1) == Some("200"))
    };
    ask().unwrap_or(false)
}

/// An engine for the tests. `Ok(None)`: there is one already.
///
/// # Errors
/// Why there is none.
pub(crate) fn for_tests(target: &Path) -> Result<Option<Private>, String> {
    if answers() {
        return Ok(None);
    }
    if !fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0) {
        return Err("only root can start one; `cargo xtask setup --containers` sets one up for the machine".to_owned());
    }
    Private::start(target).map(Some)
}

/// Does the machine's firewall drop what goes from one container to another? (Where bridges are told to ask it.)
fn drops_forwarded() -> bool {
    let rules = Command::new("iptables").args(["-S", "FORWARD"]).output();
    rules.is_ok_and(|rules| rules.stdout.starts_with(b"-P FORWARD DROP"))
}

/// Removes the folders of engines whose starter was killed, so that nobody removed them.
fn remove_dead() {
    for entry in fs::read_dir("/tmp").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid =
            name.to_str().and_then(|name| name.strip_prefix("vlab-engine-")).and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
            && let Err(error) = fs::remove_dir_all(entry.path())
        {
            say(&format!("{} is left of a test that was killed: {error}", entry.path().display()));
        }
    }
}

impl Private {
    fn start(target: &Path) -> Result<Self, String> {
        remove_dead();
        let images = target.join("vlab").join("engine");
        fs::create_dir_all(&images).map_err(|error| format!("{}: {error}", images.display()))?;
        // Short: names of sockets are.
        let folder = PathBuf::from(format!("/tmp/vlab-engine-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let log = folder.join("log");
        let open = || File::options().append(true).create(true).open(&log).map_err(|error| error.to_string());
        let at = |name: &str| folder.join(name).display().to_string();
        // Dies with us, even when we are killed.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "dockerd", "--host", &format!("unix://{}", at("docker.sock"))])
            .args(["--data-root", &images.display().to_string(), "--exec-root", &at("exec"), "--pidfile", &at("pid")])
            // Containers reach each other over a bridge, we reach them through its proxy: no forwarding and no bridge for
            // everybody is needed, and no rule of the firewall either, unless that drops whatever it has no rule for.
            .args([if drops_forwarded() { "--iptables=true" } else { "--iptables=false" }])
            .args(["--ip-forward=false", "--bridge=none"])
            .stdin(Stdio::null())
            .stdout(open()?)
            .stderr(open()?)
            .spawn()
            .map_err(|error| format!("setpriv: {error}"))?;
        let mut this = Self { child, folder };
        let begun = Instant::now();
        while !pings(&this.socket()) {
            let ended = this.child.try_wait().ok().flatten();
            if ended.is_some() || begun.elapsed() > START {
                let text = fs::read_to_string(&log).unwrap_or_default();
                let last: Vec<&str> = text.lines().rev().take(5).collect();
                let last = last.into_iter().rev().collect::<Vec<_>>().join("\n  ");
                let how = ended.map_or_else(|| format!("does not answer after {START:?}"), |s| format!("ended: {s}"));
                return Err(format!("dockerd {how}; the end of its log:\n  {last}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        say(&format!("a Docker Engine for the tests is up after {:.1} s", begun.elapsed().as_secs_f64()));
        Ok(this)
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("docker.sock")
    }

    /// What `DOCKER_HOST` is for it.
    pub(crate) fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let begun = Instant::now();
        while begun.elapsed() < STOP && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            say(&format!("{} is left: {error}", self.folder.display()));
        }
    }
}
