//! The helper program, which links libvirt: where it is, how it is started and connected, and the thread that reads what it says.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, PipeReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::sync::broadcast;

use super::protocol::{HelperAnswer, HelperLine, PROTOCOL};
use super::{MachineError, MachineEvent, MachinesOptions, Uri, io_at, lock};
use crate::helper::{self, Requests, Started, Waiting};
use crate::process::{Child, Program};

/// Name of the helper's program. It lies beside `vlab`; `VLAB_LIBVIRT_HELPER` names another place.
pub const HELPER: &str = "vlab-libvirt-helper";

/// How long the helper may take to open its connection: the first time, libvirt asks QEMU what it can do.
const OPEN: Duration = Duration::from_secs(60);

/// Where the helper is: `VLAB_LIBVIRT_HELPER`, or beside this program.
///
/// # Errors
/// It is not there.
pub fn find_helper() -> Result<PathBuf, MachineError> {
    helper::find(HELPER, "VLAB_LIBVIRT_HELPER").map_err(MachineError::NoHelper)
}

/// What the helper said about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    /// As libvirt reports it.
    pub uri: String,
    /// Version of libvirt.
    pub libvirt: String,
    /// Version of QEMU.
    pub qemu: String,
}

/// What the thread that reads the helper's lines shares with the others.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) waiting: Arc<Waiting<HelperAnswer>>,
    /// Name of the domain to name of the host.
    pub(super) names: Mutex<BTreeMap<String, String>>,
    pub(super) events: broadcast::Sender<MachineEvent>,
}

/// libvirt's configuration for the embedded driver: no other user, no security driver, no cgroups, no namespaces, no
/// helper daemons. With the defaults libvirt asks QEMU for its abilities again and again where `/dev/kvm` is root's (10 s a
/// machine), and wants a daemon for logs.
fn qemu_conf(root: bool) -> String {
    // An ordinary user cannot change owners, and must not be told to.
    let user = if root { "user = \"root\"\ngroup = \"root\"\n" } else { "" };
    format!(
        "{user}dynamic_ownership = 0\nremember_owner = 0\nsecurity_driver = \"none\"\nstdio_handler = \"file\"\n\
         cgroup_controllers = []\nnamespaces = []\n"
    )
}

/// The helper, what it said about itself, its requests and its lines.
pub(super) type Connected = (Child, Versions, Requests<HelperAnswer>, BufReader<PipeReader>);

/// Starts the helper and waits for its first line.
pub(super) fn connect(options: &MachinesOptions, executable: &Path, folder: &Path) -> Result<Connected, MachineError> {
    let uri = match &options.uri {
        Uri::Embedded => {
            let root = folder.join("libvirt");
            let etc = root.join("etc");
            fs::create_dir_all(&etc).map_err(io_at(&etc))?;
            let conf = etc.join("qemu.conf");
            fs::write(&conf, qemu_conf(nix::unistd::geteuid().is_root())).map_err(io_at(&conf))?;
            abilities(&root, Direction::In);
            format!("qemu:///embed?root={}", root.display())
        }
        Uri::Of(uri) => uri.clone(),
    };
    let log = options.consoles.join("machines.log");
    let mut program =
        Program::new("machines", executable, &log).args(["serve", &uri]).ledger(Some(options.ledger.clone()));
    program.namespace.clone_from(&options.namespace);
    // And with it the machines, which it starts.
    program.expendable = true;
    // libvirt makes its files in places that follow from these when they are set; QEMU gets a clean environment anyway.
    program.env_remove = ["LIBVIRT_DEFAULT_URI", "LIBVIRT_DEBUG"].map(Into::into).to_vec();
    let Started { child, hello, lines, requests } = helper::start(program, OPEN)?;
    let versions = match hello.as_deref().map(serde_json::from_str) {
        Some(Ok(HelperLine::Hello { protocol: PROTOCOL, uri, libvirt, qemu })) => Versions { uri, libvirt, qemu },
        Some(Ok(HelperLine::Hello { protocol, .. })) => return Err(MachineError::Protocol { theirs: protocol }),
        Some(Ok(HelperLine::Refused { why })) => return Err(MachineError::Refused { uri, why }),
        _ => {
            let why = child.last_lines(2).join(" ");
            let why = if why.is_empty() { format!("`{}` says nothing", executable.display()) } else { why };
            return Err(MachineError::NoLibvirt { why });
        }
    };
    if options.uri == Uri::Embedded {
        abilities(&folder.join("libvirt"), Direction::Out);
    }
    Ok((child, versions, Requests::new(requests), lines))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

/// What libvirt has found out about QEMU takes it a second to find out again. It checks itself whether it still holds (time
/// stamps and versions of QEMU, libvirt and kernel), so its files are kept between runs. Without them everything works.
fn abilities(root: &Path, direction: Direction) {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let Some(cache) = cache.filter(|cache| cache.is_absolute()) else { return };
    let (kept, used) = (cache.join("vlab/libvirt-capabilities"), root.join("cache/qemu/capabilities"));
    let (from, to) = if direction == Direction::In { (kept, used) } else { (used, kept) };
    let entries = fs::read_dir(&from).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|ending| ending == "xml"))
    {
        let Some(name) = path.file_name() else { continue };
        let target = to.join(name);
        if fs::read(&path).ok() == fs::read(&target).ok() || fs::create_dir_all(&to).is_err() {
            continue;
        }
        // Two runs may do this at the same time: whole files only.
        let half = to.join(format!(".{}-{}", std::process::id(), name.to_string_lossy()));
        let _ = fs::copy(&path, &half).and_then(|_| fs::rename(&half, &target));
        let _ = fs::remove_file(&half);
    }
}

impl Shared {
    pub(super) fn read(&self, lines: BufReader<PipeReader>) {
        for line in lines.lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(HelperLine::Answer { id, result }) => self.waiting.answer(id, result),
                Ok(HelperLine::Event { at_ms, domain, event }) => {
                    let machine = lock(&self.names).get(&domain).cloned().unwrap_or(domain);
                    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(at_ms);
                    // Nobody listens: nobody needs to know.
                    let _ = self.events.send(MachineEvent { machine, at, event });
                }
                Ok(HelperLine::Hello { .. } | HelperLine::Refused { .. }) => {}
                Err(error) => tracing::warn!(%error, line, "cannot understand a line of the helper"),
            }
        }
        self.waiting.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_names_a_user_for_qemu() {
        assert!(qemu_conf(true).starts_with("user = \"root\"\n"));
        assert!(!qemu_conf(false).contains("user"));
        assert!(qemu_conf(false).contains("stdio_handler = \"file\"\n"));
    }
}
