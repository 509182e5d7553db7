//! Runs a program for a short while to see what it says: for the doctor, for probes, and for tools that change something
//! and end at once (`ip`, `nft`, `qemu-img`).

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};

use crate::process::nix_pid;
use crate::spawn::{self, Birth, NamespaceEntry};
use crate::wait;

/// What a tried program said.
#[derive(Debug)]
pub(crate) struct Tried {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Tried {
    /// Its last line, of stderr if there is one there.
    pub(crate) fn last_words(&self) -> String {
        let last = |text: &str| text.lines().rfind(|line| !line.trim().is_empty()).map(str::to_owned);
        last(&self.stderr).or_else(|| last(&self.stdout)).unwrap_or_else(|| "without a message".to_owned())
    }
}

/// It said nothing that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TryError {
    /// It is not there.
    Missing(String),
    /// It cannot be started, or does not end.
    Failed(String),
}

impl From<TryError> for String {
    fn from(error: TryError) -> Self {
        match error {
            TryError::Missing(why) | TryError::Failed(why) => why,
        }
    }
}

/// Runs a program for at most `budget`, then kills it with its group.
pub(crate) fn try_out<A: AsRef<OsStr>>(
    program: &str,
    args: impl IntoIterator<Item = A>,
    budget: Duration,
) -> Result<Tried, TryError> {
    try_out_in(program, args, "", None, budget)
}

/// The same in other namespaces, and with something to read on stdin.
pub(crate) fn try_out_in<A: AsRef<OsStr>>(
    program: &str,
    args: impl IntoIterator<Item = A>,
    input: &str,
    entry: Option<NamespaceEntry>,
    budget: Duration,
) -> Result<Tried, TryError> {
    let Some(executable) = in_path(program) else {
        return Err(TryError::Missing(format!("there is no `{program}` in PATH")));
    };
    let tried = || -> std::io::Result<Option<Tried>> {
        // Files and not pipes: a grandchild that keeps a pipe open would keep us.
        let (mut out, mut err) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let stdin = match input.is_empty() {
            true => Stdio::null(),
            false => {
                let mut file = tempfile::tempfile()?;
                file.write_all(input.as_bytes())?;
                file.rewind()?;
                Stdio::from(file)
            }
        };
        let started = Instant::now();
        let mut command = Command::new(executable);
        command.args(args).stdin(stdin).stdout(out.try_clone()?).stderr(err.try_clone()?);
        let birth = Birth { new_session: false, death_signal: Some(Signal::SIGKILL), entry, expendable: false };
        let mut child = spawn::spawn(command, birth)?;
        let mut status = None;
        wait::until_blocking(started + budget, || {
            status = child.try_wait().ok().flatten();
            status.is_some()
        });
        let took = started.elapsed();
        if status.is_none() {
            let _ = signal::killpg(nix_pid(child.id()), Signal::SIGKILL);
            child.wait()?;
        }
        let text = |file: &mut fs::File| -> std::io::Result<String> {
            let mut bytes = Vec::new();
            file.rewind()?;
            file.take(64 * 1024).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let (stdout, stderr) = (text(&mut out)?, text(&mut err)?);
        Ok(status.map(|status| Tried { status, stdout, stderr, took }))
    };
    match tried() {
        Ok(Some(tried)) => Ok(tried),
        Ok(None) => Err(TryError::Failed(format!("`{program}` does not end within {} s", budget.as_secs_f32()))),
        Err(error) => Err(TryError::Failed(format!("`{program}`: {error}"))),
    }
}

/// Where a program is. Administrators' programs are looked for even when PATH is an ordinary user's.
pub(crate) fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|dir| dir.join(program)).find(|path| path.is_file())
}
