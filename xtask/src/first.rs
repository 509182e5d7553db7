//! The first start: a verdict with simulated hosts, while another process of this program prepares virtual machines (packages, the
//! helper for libvirt, the medium). After it the run goes on as it was asked for.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use vlab_setup::{Purpose, ensure, images_folder, needs_somebody};

use crate::ahead::Ahead;
use crate::args::{PREPARE, first_look};
use crate::{Build, INCONCLUSIVE, build_vlab, can_build_machines, say, target, vlab_command};

/// What is being prepared, and how long it usually takes (docs/measurements.md).
const WHAT: &str =
    "packages, a helper for libvirt, the medium that machines boot; usually five minutes on two idle cores";

/// What the other process is told when `vlab` is built. The end of its input without this word: who waited for it is gone.
const BUILT: &[u8] = b"built";

/// Shows a first verdict, if virtual machines have yet to be prepared and this run may have simulated hosts. Whatever goes wrong here
/// is told again by what comes after it, which does the same with the terminal in its hands.
pub(crate) fn look(args: &[OsString], text: impl Fn(Option<&str>) -> String) {
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    let Some(look) = first_look(args, text).filter(|_| !ci && !has_medium(&images_folder())) else { return };
    let log = target().join("vlab/first-start.log");
    say(&format!("virtual machines are not prepared here yet ({WHAT}). First the same with simulated hosts."));
    // Without a terminal of its own it cannot ask for a password: then it is done afterwards.
    let alone = !needs_somebody(Purpose::Machines) && !needs_somebody(Purpose::Images);
    let preparing = if alone { start(&log) } else { None };
    say(&match &preparing {
        Some(_) => format!("The preparation goes on meanwhile; what it says is in {}.", log.display()),
        None => "The preparation comes after it.".to_owned(),
    });
    let Ok(vlab) = build_vlab(Build::default()) else { return };
    let child = preparing.map(|mut child| {
        // It waits for this before it builds: `vlab` goes first.
        let told = child.stdin.take().map(|mut stdin| stdin.write_all(BUILT));
        if let Some(Err(error)) = told {
            say(&format!("preparing virtual machines: {error}; see {}", log.display()));
        }
        child
    });
    match vlab_command(&vlab, "scenario", &look).status() {
        Ok(_) => say("That was the first verdict, with simulated hosts. Now with virtual machines."),
        Err(error) => say(&format!("cannot start {}: {error}", vlab.vlab.display())),
    }
    if let Some(mut child) = child {
        follow(&mut child, &log);
    }
}

/// Has a medium been built here before? One that is out of date takes a minute to renew, not five.
fn has_medium(images: &Path) -> bool {
    let files = fs::read_dir(images.join("os")).into_iter().flatten().flatten();
    files.map(|entry| entry.file_name()).any(|name| {
        let name = name.to_string_lossy();
        name.starts_with("lab-iso-") && name.ends_with(".iso")
    })
}

/// Starts the other process.
fn start(log: &Path) -> Option<Child> {
    let begin = || -> std::io::Result<Child> {
        fs::create_dir_all(log.parent().unwrap_or(Path::new(".")))?;
        let out = File::create(log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(PREPARE.name).stdin(Stdio::piped()).stdout(out.try_clone()?).stderr(out);
        command.env("CARGO_TERM_PROGRESS_WHEN", "never").spawn()
    };
    begin().inspect_err(|error| say(&format!("preparing virtual machines: {error}; it is done afterwards"))).ok()
}

/// The other process: `prepare-machines`.
pub(crate) fn prepare() -> ExitCode {
    let complain = |why: String| {
        say(&why);
        ExitCode::from(INCONCLUSIVE)
    };
    if let Err(why) = ensure(Purpose::Machines, true, say).and_then(|_| ensure(Purpose::Images, true, say)) {
        return complain(why);
    }
    // It takes longest, and nothing else has to be there for it.
    let ahead = Ahead::begin();
    // Packages wait for the network; what follows wants the processors, and `vlab` goes first.
    let mut word = Vec::new();
    if std::io::stdin().read_to_end(&mut word).is_err() || word != BUILT {
        return complain("nobody waits for the rest of the preparation".to_owned());
    }
    let vlab = match build_vlab(Build { libvirt: can_build_machines(), ..Build::default() }) {
        Ok(vlab) => vlab,
        Err(code) => return code,
    };
    let medium = vlab_command(&vlab, "images", &["build".into(), "lab-iso".into()]).status();
    drop(ahead);
    match medium {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => complain(format!("the medium of virtual machines was not built: {status}")),
        Err(error) => complain(format!("cannot start {}: {error}", vlab.vlab.display())),
    }
}

/// Shows what the other process has said and says, until it has ended.
fn follow(child: &mut Child, log: &Path) {
    let mut shown = 0;
    loop {
        // Asked first, so that nothing that was written before its end is missed.
        let ended = child.try_wait();
        shown += show(log, shown).unwrap_or_default();
        match ended {
            Ok(None) => std::thread::sleep(Duration::from_millis(100)),
            Ok(Some(_)) | Err(_) => return,
        }
    }
}

/// Prints what is in a file from there on; how much that was.
fn show(log: &Path, from: u64) -> std::io::Result<u64> {
    let mut file = File::open(log)?;
    file.seek(SeekFrom::Start(from))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    std::io::stderr().write_all(&text)?;
    Ok(text.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_medium_that_was_built_before_is_seen() {
        let folder = std::env::temp_dir().join(format!("xtask-first-{}", std::process::id()));
        assert!(!has_medium(&folder));
        fs::create_dir_all(folder.join("os")).unwrap();
        fs::write(folder.join("os/lab-iso-0123.json"), "").unwrap();
        fs::write(folder.join("os/.part-lab-iso"), "").unwrap();
        assert!(!has_medium(&folder), "only what is whole counts");
        fs::write(folder.join("os/lab-iso-0123.iso"), "").unwrap();
        assert!(has_medium(&folder));
        fs::remove_dir_all(&folder).unwrap();
    }
}
