//! What the live system offers the installer: the disk image, in the form in which coreos-installer looks for it. The live system
//! prepares it after everything that is needed earlier, so on a slow computer it may not be there yet when the installation begins.
//! The installer waits for it; coreos-installer itself would fetch an image from the internet, which a lab does not have.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, setpriority_process};

use crate::machine::Root;
use crate::say;

/// Where coreos-installer looks for the image.
const OFFERED: &str = "/run/coreos-installer/osmet";
/// Where it grows until it is whole.
const GROWING: &str = "/run/coreos-installer/part";
/// What it is copied from.
const SOURCE: &str = "/run/vlab/rootfs.img";
/// The unit that copies it, at the lowest priority.
const UNIT: &str = "coreos-osmet.service";
/// Where the processes of units are.
const UNITS: &str = "/sys/fs/cgroup/system.slice";
/// Between two looks.
const POLL: Duration = Duration::from_millis(500);

/// What a look has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It is there.
    There,
    /// It is not there yet: what is there instead.
    NotYet(String),
    /// It will never be there: why.
    Never(String),
}

/// Something that comes by itself, and may take its time.
pub(crate) trait Awaited {
    /// Is it there?
    fn look(&self) -> Look;
    /// Somebody waits for it.
    fn hurry(&self);
    /// More about what is there instead, when the budget is spent.
    fn details(&self) -> String;
}

/// Time, real or a test's.
pub(crate) trait Clock {
    /// Since the wait began.
    fn elapsed(&self) -> Duration;
    /// Lets time pass.
    fn pause(&self, time: Duration);
}

/// Real time.
pub(crate) struct WallClock(Instant);

impl WallClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for WallClock {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// It did not come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NeverOffered {
    /// How long it was waited for; `None` when there is nothing to wait for.
    budget: Option<Duration>,
    /// What was there instead at the last look.
    last: String,
}

impl fmt::Display for NeverOffered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.budget {
            Some(budget) => {
                write!(f, "the live system did not offer its disk image within {budget:?}; last seen: {}", self.last)
            }
            None => write!(f, "the live system offers no disk image: {}", self.last),
        }
    }
}

/// Waits until it is there, at most for the budget.
pub(crate) fn wait(awaited: &dyn Awaited, budget: Duration, clock: &dyn Clock) -> Result<(), NeverOffered> {
    let mut noted = false;
    loop {
        let elapsed = clock.elapsed();
        match awaited.look() {
            Look::There => {
                if noted {
                    say::note("installer", &format!("the disk image was there after {:.1} s", elapsed.as_secs_f64()));
                }
                return Ok(());
            }
            Look::Never(last) => return Err(NeverOffered { budget: None, last }),
            Look::NotYet(last) if elapsed >= budget => {
                let last = format!("{last}; {}", awaited.details());
                return Err(NeverOffered { budget: Some(budget), last });
            }
            // Each time: what copies it may have been started meanwhile.
            Look::NotYet(last) => {
                if !noted {
                    say::note("installer", &format!("waiting for the disk image of the live system: {last}"));
                    noted = true;
                }
                awaited.hurry();
            }
        }
        clock.pause(POLL.min(budget.saturating_sub(elapsed)));
    }
}

/// Gives the processes of a unit that could wait so far the priority of all others: at the lowest one they get next to nothing of a
/// busy processor.
pub(crate) fn raise(root: &Root, unit: &str) {
    let folder = format!("{UNITS}/{unit}");
    // Some units have their processes one folder below.
    let below = root.names(&folder).into_iter().map(|name| format!("{folder}/{name}"));
    for folder in std::iter::once(folder.clone()).chain(below) {
        let processes = root.text(&format!("{folder}/cgroup.procs")).unwrap_or_default();
        for pid in processes.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)) {
            // One that has ended meanwhile needs no priority.
            let _ = setpriority_process(Some(pid), 0);
        }
    }
}

/// The disk image of this machine's live system.
pub(crate) struct DiskImage<'a> {
    pub(crate) root: &'a Root,
    pub(crate) systemctl: &'a Path,
}

impl Awaited for DiskImage<'_> {
    fn look(&self) -> Look {
        if self.root.names(OFFERED).iter().any(|name| name.ends_with(".osmet")) {
            return Look::There;
        }
        if std::fs::symlink_metadata(self.root.path(SOURCE)).is_err() {
            return Look::Never(format!("there is no {SOURCE}, which would have it"));
        }
        Look::NotYet(match std::fs::metadata(self.root.path(GROWING)) {
            Ok(part) => format!("{:.1} MB of it were copied", part.len() as f64 / 1e6),
            Err(_) => "nothing of it was copied".to_owned(),
        })
    }

    fn hurry(&self) {
        raise(self.root, UNIT);
    }

    fn details(&self) -> String {
        let shown = Command::new(self.systemctl)
            .args(["show", "--property=ActiveState", "--property=SubState", "--property=Result", UNIT])
            .output();
        match shown {
            Ok(shown) => format!("{UNIT}: {}", String::from_utf8_lossy(&shown.stdout).trim().replace('\n', ", ")),
            Err(e) => format!("{}: {e}", self.systemctl.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Comes at the look with that number; `None`: never.
    struct Slow {
        comes_at: Option<u32>,
        looks: Cell<u32>,
        hurried: Cell<u32>,
    }

    impl Slow {
        fn new(comes_at: Option<u32>) -> Self {
            Self { comes_at, looks: Cell::new(0), hurried: Cell::new(0) }
        }
    }

    impl Awaited for Slow {
        fn look(&self) -> Look {
            self.looks.set(self.looks.get() + 1);
            match self.comes_at {
                Some(number) if self.looks.get() >= number => Look::There,
                _ => Look::NotYet(format!("{} looks", self.looks.get())),
            }
        }
        fn hurry(&self) {
            self.hurried.set(self.hurried.get() + 1);
        }
        fn details(&self) -> String {
            "the unit is activating".to_owned()
        }
    }

    #[derive(Default)]
    struct TestClock(RefCell<Duration>);

    impl Clock for TestClock {
        fn elapsed(&self) -> Duration {
            *self.0.borrow()
        }
        fn pause(&self, time: Duration) {
            *self.0.borrow_mut() += time;
        }
    }

    #[test]
    fn what_is_there_is_not_waited_for() {
        let there = Slow::new(Some(1));
        assert_eq!(wait(&there, Duration::ZERO, &TestClock::default()), Ok(()));
        assert_eq!((there.looks.get(), there.hurried.get()), (1, 0));
    }

    #[test]
    fn what_comes_late_is_waited_for_and_hurried() {
        let (late, clock) = (Slow::new(Some(5)), TestClock::default());
        assert_eq!(wait(&late, Duration::from_secs(240), &clock), Ok(()));
        assert_eq!((late.hurried.get(), clock.elapsed()), (4, POLL * 4));
    }

    #[test]
    fn a_spent_budget_tells_the_last_value() {
        let never = Slow::new(None);
        let missed = wait(&never, Duration::from_millis(1200), &TestClock::default()).unwrap_err();
        assert_eq!(
            missed.to_string(),
            "the live system did not offer its disk image within 1.2s; last seen: 4 looks; the unit is activating"
        );
    }

    #[test]
    fn the_processes_of_a_unit_get_the_priority_of_all_others() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let mut slow = Command::new("nice").args(["-n", "19", "sleep", "60"]).spawn().unwrap();
        let nice = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().to_owned()
        };
        while nice(slow.id()) != "19" {
            std::thread::sleep(Duration::from_millis(5));
        }
        let below = root.path("/sys/fs/cgroup/system.slice/systemd-udevd.service/udev");
        std::fs::create_dir_all(&below).unwrap();
        std::fs::write(below.join("cgroup.procs"), format!("4000000\n{}\n", slow.id())).unwrap();
        raise(&root, "coreos-osmet.service");
        assert_eq!(nice(slow.id()), "19", "another unit");
        raise(&root, "systemd-udevd.service");
        // Only who may raise priorities can: the nodes' programs are root.
        let raised = if rustix::process::getuid().is_root() { "0" } else { "19" };
        assert_eq!(nice(slow.id()), raised);
        slow.kill().unwrap();
        slow.wait().unwrap();
    }

    #[test]
    fn the_image_of_a_live_system() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let image = DiskImage { root: &root, systemctl: Path::new("/nowhere/systemctl") };
        assert_eq!(image.look(), Look::Never("there is no /run/vlab/rootfs.img, which would have it".to_owned()));
        std::fs::create_dir_all(root.path("/run/vlab")).unwrap();
        // On the medium, and that may be gone for a while.
        std::os::unix::fs::symlink("/run/media/iso/rootfs.img", root.path(SOURCE)).unwrap();
        assert_eq!(image.look(), Look::NotYet("nothing of it was copied".to_owned()));
        std::fs::create_dir_all(root.path(OFFERED)).unwrap();
        std::fs::write(root.path(GROWING), [0; 1_250_000]).unwrap();
        assert_eq!(image.look(), Look::NotYet("1.2 MB of it were copied".to_owned()));
        image.hurry();
        assert!(image.details().starts_with("/nowhere/systemctl: "), "{}", image.details());
        std::fs::rename(root.path(GROWING), root.path(&format!("{OFFERED}/vlab-metal.x86_64.osmet"))).unwrap();
        assert_eq!(image.look(), Look::There);
    }
}
