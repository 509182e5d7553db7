//! A container engine for the tests: the one that runs on this machine, else a Docker Engine of our own that is started
//! before the tests and stopped after them. It has its own socket, its own place for images (`target/vlab/engine`), leaves
//! firewall and routing of the machine as they are where it can, and dies with us.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
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
    let ask = || -> io::Result<bool> {
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
    if !fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0) {
        return Err("only root can start one; `cargo xtask setup --containers` sets one up for the machine".to_owned());
    }
    Private::start(target).map(Some)
}

/// Does the machine's firewall drop what goes from one container to another? (Where bridges are told to ask it.)
fn drops_forwarded() -> bool {
    let rules = Command::new("iptables").args(["-S", "FORWARD"]).output();
    rules.is_ok_and(|rules| rules.stdout.starts_with(b"-P FORWARD DROP"))
}

/// How the folders of engines begin; the process that started the engine and chance follow.
const PREFIX: &str = "vlab-engine-";

/// Makes a folder for an engine. Only for this user, and surely made by us: in a folder that everybody can write to, somebody else
/// could have made one of a name that can be guessed, and root would put its engine's socket into it.
fn make_folder(parent: &Path) -> io::Result<PathBuf> {
    let mut chance = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut chance)?;
    let chance: String = chance.iter().map(|byte| format!("{byte:02x}")).collect();
    // Short: names of sockets are.
    let folder = parent.join(format!("{PREFIX}{}-{chance}", std::process::id()));
    // Fails when anything of that name is there.
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(folder)
}

/// Is that the folder of an engine of ours whose starter is dead?
fn is_dead(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    let pid =
        name.and_then(|name| name.strip_prefix(PREFIX)).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
    let ours = fs::symlink_metadata(folder).ok().zip(fs::metadata("/proc/self").ok());
    let ours = ours.is_some_and(|(folder, me)| folder.is_dir() && folder.uid() == me.uid());
    ours && pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

/// Removes the folders of engines whose starter was killed, so that nobody removed them.
fn remove_dead(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if is_dead(&entry.path())
            && let Err(error) = fs::remove_dir_all(entry.path())
        {
            say(&format!("{} is left of a test that was killed: {error}", entry.path().display()));
        }
    }
}

impl Private {
    fn start(target: &Path) -> Result<Self, String> {
        let parent = Path::new("/tmp");
        remove_dead(parent);
        let images = target.join("vlab").join("engine");
        fs::create_dir_all(&images).map_err(|error| format!("{}: {error}", images.display()))?;
        let folder = make_folder(parent).map_err(|error| format!("a folder for the engine: {error}"))?;
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// A folder that is gone with it.
    struct Parent(PathBuf);

    impl Parent {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("vlab-xtask-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Parent {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_folder_of_an_engine_is_only_ours_and_cannot_be_guessed() {
        let parent = Parent::new("made");
        let (one, other) = (make_folder(&parent.0).unwrap(), make_folder(&parent.0).unwrap());
        assert_ne!(one, other);
        assert_eq!(fs::metadata(&one).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(one.join("docker.sock").as_os_str().len() < 100);
    }

    #[test]
    fn only_what_a_dead_starter_of_ours_has_left_is_removed() {
        let parent = Parent::new("dead");
        let mut dead = Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let living = make_folder(&parent.0).unwrap();
        let left = parent.0.join(format!("{PREFIX}{}-0123456789abcdef", dead.id()));
        let elsewhere = parent.0.join("elsewhere");
        let link = parent.0.join(format!("{PREFIX}{}-1", dead.id()));
        for folder in [&left, &elsewhere] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("file"), "x").unwrap();
        }
        symlink(&elsewhere, &link).unwrap();
        remove_dead(&parent.0);
        assert!(living.exists() && !left.exists());
        assert!(elsewhere.join("file").exists() && link.symlink_metadata().is_ok(), "a link is not followed");
    }
}
