//! The discovery medium. A live system from a full ISO goes on reading from it; virtual media of real machines come and go with
//! the network behind them, and an agent whose medium is gone has one answer to everything.

use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use vlab_agents::Ran;
use vlab_agents::steps::{MEDIA_DISCONNECTED, media_disconnected};

use crate::machine::Root;
use crate::say;

/// Where a full ISO is mounted. A minimal one is not: the root of its system is in memory.
const MOUNTED_AT: &str = "/run/media/iso";

/// Runs a step as an agent does: not when the medium is gone, and a step that failed while the medium went has the exit code of
/// a lost medium.
pub fn with_medium(root: &Root, run: impl FnOnce() -> Ran) -> Ran {
    if let Some(reason) = look(root) {
        let mut answer = media_disconnected();
        answer.error = format!("{}: {reason}", answer.error);
        return Ran { answer, archive: Vec::new() };
    }
    let mut ran = run();
    if ran.answer.exit_code != 0 && look(root).is_some() {
        ran.answer.exit_code = MEDIA_DISCONNECTED;
    }
    ran
}

/// [`lost`], and tells the harness when it is not as it was.
fn look(root: &Root) -> Option<String> {
    static GONE: AtomicBool = AtomicBool::new(false);
    let reason = lost(root);
    match (GONE.swap(reason.is_some(), Ordering::Relaxed), &reason) {
        (false, Some(reason)) => say::moment("agent", "medium-lost", &json!({ "reason": reason })),
        (true, None) => say::moment("agent", "medium-back", &json!({})),
        _ => {}
    }
    reason
}

/// Why the medium cannot be read; `None` when it can, and on systems that do without it.
fn lost(root: &Root) -> Option<String> {
    let (device, _) = root.mounts().into_iter().rfind(|(_, place)| place == MOUNTED_AT)?;
    let path = root.path(&format!("/dev/{device}"));
    // Two bytes, as the real agent reads.
    let read = File::open(&path).and_then(|mut device| device.read_exact(&mut [0; 2]));
    read.err().map(|e| format!("{}: {e}", path.display()))
}

/// Reads this program once, so that all of it is in memory. The real agent is there because its image was pulled; this one is on
/// the medium, and a program whose next page cannot be read is killed by the kernel.
pub fn keep_program_in_memory(root: &Root) {
    if !root.has(MOUNTED_AT) {
        return;
    }
    let read = File::open("/proc/self/exe").and_then(|mut program| io::copy(&mut program, &mut io::sink()));
    if let Err(e) = read {
        say::note("agent", &format!("this program cannot be kept in memory: {e}"));
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use vlab_agents::steps::StepAnswer;

    use super::*;

    const ISO: &str = "/dev/loop0 /sysroot squashfs ro 0 0\n/dev/sr0 /run/media/iso iso9660 ro 0 0\n";

    fn machine(mounts: &str, medium: Option<&[u8]>) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        for dir in ["proc/1", "dev"] {
            std::fs::create_dir_all(folder.path().join(dir)).unwrap();
        }
        std::fs::write(folder.path().join("proc/1/mounts"), mounts).unwrap();
        if let Some(bytes) = medium {
            std::fs::write(folder.path().join("dev/sr0"), bytes).unwrap();
        }
        let root = Root::at(folder.path());
        (folder, root)
    }

    fn ran(exit_code: i64) -> Ran {
        Ran { answer: StepAnswer { exit_code, output: "o".into(), error: "e".into() }, archive: b"logs".to_vec() }
    }

    #[rstest]
    #[case::there(ISO, Some(&b"ISO"[..]), false)]
    #[case::no_device(ISO, None, true)]
    #[case::nothing_can_be_read(ISO, Some(&b""[..]), true)]
    #[case::a_minimal_iso("/dev/loop0 /sysroot squashfs ro 0 0\n", None, false)]
    #[case::another_disc("/dev/sr0 /mnt iso9660 ro 0 0\n", None, false)]
    fn a_step_is_run_only_with_the_medium(#[case] mounts: &str, #[case] medium: Option<&[u8]>, #[case] is_lost: bool) {
        let (_folder, root) = machine(mounts, medium);
        let mut was_run = false;
        let answer = with_medium(&root, || {
            was_run = true;
            ran(0)
        });
        assert_eq!(was_run, !is_lost);
        if is_lost {
            assert_eq!(answer.answer.exit_code, 256);
            assert!(answer.answer.error.starts_with("cannot read from the discovery medium: "), "{answer:?}");
            assert!(answer.archive.is_empty());
        } else {
            assert_eq!(answer, ran(0));
        }
    }

    #[rstest]
    #[case::it_failed(1, 256)]
    #[case::all_it_needed_was_there(0, 0)]
    fn the_medium_goes_while_a_step_runs(#[case] exit_code: i64, #[case] told: i64) {
        let (folder, root) = machine(ISO, Some(b"ISO"));
        let answer = with_medium(&root, || {
            std::fs::remove_file(folder.path().join("dev/sr0")).unwrap();
            ran(exit_code)
        });
        // What the step itself said is kept.
        assert_eq!(answer, ran(told));
    }

    #[test]
    fn a_step_that_fails_with_the_medium_keeps_its_exit_code() {
        let (_folder, root) = machine(ISO, Some(b"ISO"));
        assert_eq!(with_medium(&root, || ran(7)), ran(7));
    }
}
