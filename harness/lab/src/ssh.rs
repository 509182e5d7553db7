//! The way into a run's machines by ssh: a key pair of the run's own ([`Keys`]), and for people a configuration of the system's
//! `ssh` that knows every machine by its name ([`Access`]).
//!
//! The public key goes to the service as a user's would; machines get it with their Ignition config, live and installed. So it works
//! with every medium whose user `core` Ignition knows and that has an sshd. Both files lie in a private folder beside the
//! run's, whose folder people publish, and are gone with the run.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Seek as _, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use crate::ledger::{Ledger, LedgerError, Resource, Snapshot, Token};
use crate::network::{Namespace, NetworkError, Place, namespace};
use crate::process::{Child, Program};
use crate::try_out::{TryError, try_out};

/// Who people are on a machine.
pub const USER: &str = "core";

/// The configuration of `ssh`, by which the folder is known.
const CONFIG: &str = "ssh_config";

/// The private key; the public one has `.pub` behind it.
const KEY: &str = "id_ed25519";

/// How long `ssh-keygen` may take. An ed25519 key takes milliseconds.
const KEYGEN: Duration = Duration::from_secs(10);

/// What a command on a machine came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Its exit code, or that of `ssh` (255) where the machine cannot be reached; `None`: it was killed.
    pub code: Option<i32>,
    /// The last line that it wrote, of stderr if there is one there.
    pub last_line: String,
}

/// Why there is no way in.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// A program is not installed.
    #[error("`{program}` is not installed (Debian: apt-get install {package})", package = namespace::package_of(.program))]
    Missing {
        /// The program.
        program: &'static str,
    },
    /// `ssh-keygen` makes no key.
    #[error("ssh-keygen: {0}")]
    Keygen(String),
    /// A file.
    #[error("{path}: {error}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The network of the run cannot be entered.
    #[error("cannot enter the network of the run: {0}")]
    Network(io::Error),
    /// `ssh` does not come to an end.
    #[error("ssh: {0}")]
    Command(String),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> SshError + '_ {
    move |error| SshError::Io { path: path.to_path_buf(), error }
}

/// The key pair of a run and the configuration for its machines. Dropping it removes both.
#[derive(Debug)]
pub struct Keys {
    folder: PathBuf,
    public: String,
    entry: (Arc<Ledger>, Token),
}

impl Keys {
    /// Makes a fresh pair, for machines at these addresses; or takes the one that was kept in a folder ([`Keys::keep`]), which the machines know
    /// already.
    ///
    /// # Errors
    /// `ssh-keygen` is missing or fails, or a file cannot be read or written.
    pub fn create<'a>(
        ledger: &Arc<Ledger>,
        hosts: impl Iterator<Item = (&'a str, &'a [IpAddr])>,
        kept: Option<&Path>,
    ) -> Result<Self, SshError> {
        let folder = std::env::temp_dir().join(format!("vlab-ssh-{}", ledger.run()));
        let token = ledger.record(Resource::Directory { path: folder.clone() })?;
        if let Err(error) = fs::DirBuilder::new().mode(0o700).create(&folder) {
            // Not made, so not ours: what is there under that name is left alone.
            ledger.release(token)?;
            return Err(SshError::Io { path: folder, error });
        }
        let mut keys = Self { folder, public: String::new(), entry: (Arc::clone(ledger), token) };
        let key = keys.folder.join(KEY);
        let public = key.with_extension("pub");
        match kept {
            None => generate(&key, &format!("vlab run {}", ledger.run()))?,
            Some(kept) => copy_pair(&kept.join(KEY), &key)?,
        }
        keys.public = fs::read_to_string(&public).map_err(at(&public))?.trim().to_owned();
        let config = keys.folder.join(CONFIG);
        // In a folder that nobody else can enter.
        fs::write(&config, ssh_config(&key, hosts)).map_err(at(&config))?;
        Ok(keys)
    }

    /// The way in for the harness itself: [`Door::run`].
    #[must_use]
    pub fn door(&self, namespace: &Arc<Namespace>) -> Door {
        let (ledger, _) = &self.entry;
        Door { config: self.folder.join(CONFIG), namespace: Arc::clone(namespace), ledger: Arc::clone(ledger) }
    }

    /// Copies the pair into a folder that is there, and that nobody else can enter.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&self, into: &Path) -> Result<(), SshError> {
        copy_pair(&self.folder.join(KEY), &into.join(KEY))
    }

    /// The public key, as one line of `authorized_keys`.
    #[must_use]
    pub fn public(&self) -> &str {
        &self.public
    }
}

/// The harness's own way into the machines of its run.
#[derive(Debug, Clone)]
pub struct Door {
    config: PathBuf,
    namespace: Arc<Namespace>,
    ledger: Arc<Ledger>,
}

/// How long a machine may take to answer at all.
const CONNECT_SECONDS: u32 = 20;

impl Door {
    /// Has a machine's shell run a script, and waits for its end. What it says is appended to `log`. Who gives up waiting ends it.
    ///
    /// # Errors
    /// There is no `ssh`, or it does not end within `budget`. That the machine does not let it in is told by [`Said::code`].
    pub async fn run(&self, host: &str, script: &str, log: &Path, budget: Duration) -> Result<Said, SshError> {
        let mut input = tempfile::tempfile().map_err(at(log))?;
        input.write_all(script.as_bytes()).and_then(|()| input.rewind()).map_err(at(log))?;
        let ssh = namespace::find("ssh").map_err(|_| SshError::Missing { program: "ssh" })?;
        let mut program = Program::new("ssh", ssh, log)
            .args(["-o".to_owned(), format!("ConnectTimeout={CONNECT_SECONDS}")])
            .args(["-F".into(), self.config.clone().into_os_string(), "--".into(), host.into(), "sh".into()])
            .namespace(Some(Arc::clone(&self.namespace)))
            .ledger(Some(Arc::clone(&self.ledger)));
        program.stdin = Some(input.into());
        let child = Child::spawn(program).map_err(|error| SshError::Command(error.to_string()))?;
        match tokio::time::timeout(budget, child.wait()).await {
            Ok(status) => Ok(Said { code: status.code(), last_line: child.last_lines(1).join(" ") }),
            Err(_) => Err(SshError::Command(format!("{host} has not done it within {budget:?}"))),
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let (ledger, token) = &self.entry;
        let removed = fs::remove_dir_all(&self.folder).map_err(|error| error.to_string());
        // What cannot be removed stays in the ledger, which is told as a leak.
        if let Err(error) = removed.and_then(|()| ledger.release(*token).map_err(|error| error.to_string())) {
            tracing::warn!(%error, folder = %self.folder.display(), "the keys of the run stay behind");
        }
    }
}

/// With their modes: `ssh` wants the private one to be its owner's alone.
fn copy_pair(from: &Path, to: &Path) -> Result<(), SshError> {
    for (from, to) in [(from.to_owned(), to.to_owned()), (from.with_extension("pub"), to.with_extension("pub"))] {
        fs::copy(&from, &to).map_err(at(&from))?;
    }
    Ok(())
}

/// Makes a key pair without a passphrase: `key`, for its owner only, and `key` with `.pub` behind it.
pub(crate) fn generate(key: &Path, comment: &str) -> Result<(), SshError> {
    let mut args: Vec<OsString> = ["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f"].map(Into::into).to_vec();
    args.push(key.into());
    match try_out("ssh-keygen", args, KEYGEN) {
        Ok(tried) if tried.status.success() => Ok(()),
        Ok(tried) => Err(SshError::Keygen(tried.last_words())),
        Err(TryError::Missing(_)) => Err(SshError::Missing { program: "ssh-keygen" }),
        Err(TryError::Failed(why)) => Err(SshError::Keygen(why)),
    }
}

/// What `ssh` reads. Machines have a new key of their own with each installation, so nobody's `known_hosts` is asked or written;
/// sessions end when their machine reboots.
fn ssh_config<'a>(key: &Path, hosts: impl Iterator<Item = (&'a str, &'a [IpAddr])>) -> String {
    // A percent sign begins a word that ssh fills in.
    let key = key.display().to_string().replace('%', "%%");
    let mut text = format!(
        "Host *\n  User {USER}\n  IdentityFile \"{key}\"\n  IdentitiesOnly yes\n  IdentityAgent none\n  BatchMode yes\n  \
         UserKnownHostsFile /dev/null\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking no\n  LogLevel ERROR\n  \
         ConnectTimeout 60\n  ServerAliveInterval 15\n  ServerAliveCountMax 8\n"
    );
    for (name, addresses) in hosts {
        if let Some(address) = addresses.first() {
            let _ = write!(text, "Host {name}\n  HostName {address}\n");
        }
    }
    text
}

/// How another process of the same user gets into the machines of a run that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    config: PathBuf,
    place: Place,
}

impl Access {
    /// That of the run with this ledger; `None`: it has no keys, or no network of its own.
    #[must_use]
    pub fn of_run(run: &Snapshot) -> Option<Self> {
        let config = run.open.iter().find_map(|(_, resource)| match resource {
            Resource::Directory { path } => Some(path.join(CONFIG)).filter(|config| config.is_file()),
            _ => None,
        })?;
        Some(Self { config, place: Place::of_run(run)? })
    }

    /// Runs `ssh` to a machine: a shell, or a command. This process enters the network of the run and stays there; it must have no
    /// other thread yet.
    ///
    /// # Errors
    /// There is no `ssh`, or the network is gone.
    pub fn ssh(&self, host: &str, tty: bool, command: &[OsString]) -> Result<ExitStatus, SshError> {
        // Looked for before: the error of a missing one should not depend on the network.
        let ssh = namespace::find("ssh").map_err(|error| match error {
            NetworkError::Missing { .. } => SshError::Missing { program: "ssh" },
            other => SshError::Network(io::Error::other(other)),
        })?;
        self.place.enter().map_err(SshError::Network)?;
        Command::new(&ssh).args(self.words(host, tty, command)).status().map_err(at(&ssh))
    }

    /// Arguments of `ssh`.
    fn words(&self, host: &str, tty: bool, command: &[OsString]) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["-F".into(), self.config.clone().into()];
        words.extend(tty.then(|| "-t".into()));
        // Behind this nothing is an option of ssh, not even in the command.
        words.extend(["--".into(), host.into()]);
        words.extend_from_slice(command);
        words
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_configuration_names_every_machine_with_an_address() {
        let (one, two): ([IpAddr; 1], [IpAddr; 1]) = (["192.0.2.10".parse().unwrap()], ["fd00::5".parse().unwrap()]);
        let hosts: [(&str, &[IpAddr]); 3] = [("node-0", &one), ("node-1", &two), ("node-2", &[])];
        insta::assert_snapshot!(ssh_config(Path::new("/tmp/100%/id"), hosts.into_iter()));
    }

    #[test]
    fn a_command_is_never_read_as_options_of_ssh() {
        let access = Access { config: "/tmp/c".into(), place: Place::Named("vlab-r".into()) };
        let words = |tty, command: &[&str]| {
            let command: Vec<OsString> = command.iter().map(Into::into).collect();
            access.words("node-0", tty, &command).join(" ".as_ref()).into_string().unwrap()
        };
        assert_eq!(words(false, &[]), "-F /tmp/c -- node-0");
        assert_eq!(words(true, &["-v", "--", "ls"]), "-F /tmp/c -t -- node-0 -v -- ls");
    }

    #[test]
    fn the_keys_are_private_and_go_with_their_run() {
        let folder = tempfile::tempdir().unwrap();
        let run = format!("keys-{}", std::process::id());
        let ledger = Arc::new(Ledger::create(folder.path(), &run).unwrap());
        let keys =
            Keys::create(&ledger, [("node-0", ["192.0.2.10".parse().unwrap()].as_slice())].into_iter(), None).unwrap();
        assert!(keys.public().starts_with("ssh-ed25519 AAAA") && keys.public().lines().count() == 1);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (own, key) = (keys.folder.clone(), keys.folder.join(KEY));
        assert_eq!((mode(&own), mode(&key)), (0o700, 0o600));
        // A second run of that name would be somebody else's.
        assert!(Keys::create(&ledger, std::iter::empty(), None).unwrap_err().to_string().contains("File exists"));
        let snapshot = Snapshot::read(ledger.path()).unwrap();
        assert_eq!(snapshot.open.len(), 1, "only what is there is in the ledger");
        assert_eq!(Access::of_run(&snapshot), None, "it has no network");
        drop(keys);
        assert!(!own.exists() && ledger.close().unwrap().is_empty());
    }
}
