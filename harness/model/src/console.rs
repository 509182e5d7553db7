//! What a machine's serial console says that no installation should say: a table of checks, and the pure function that
//! applies it to a line. Every machine is checked for free; a scenario that expects a line opts out by the check's id.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

/// One check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsoleCheck {
    /// By which a scenario opts out.
    pub id: &'static str,
    /// What it means when a line matches.
    pub description: &'static str,
    /// A regular expression over the line without control sequences.
    pub pattern: &'static str,
    /// The machine does nothing any more after it: there is nothing left to wait for.
    pub ends: bool,
    /// Who is to blame.
    pub blames: Blame,
}

/// Whose fault a line of a console is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// What is under test: the run has failed.
    Product,
    /// The lab, which was not ready or has a defect of its own: the run is inconclusive.
    Lab,
}

/// The table. The first row that matches a line names it, so the special stands before the general.
pub const CHECKS: &[ConsoleCheck] = &[
    ConsoleCheck {
        id: "lab-not-ready",
        description: "the lab had not prepared in time what a program of the machine needs",
        pattern: r"vlab-node: \S+ lab-not-ready\b",
        ends: true,
        blames: Blame::Lab,
    },
    ConsoleCheck {
        id: "lab-unit-failed",
        description: "a systemd unit of the lab's own operating system failed",
        pattern: r"(\[\s*FAILED\s*\]|systemd\[1\]:) Failed to start (coreos-osmet|vlab-[\w-]+)\.service|(coreos-osmet|vlab-[\w-]+)\.service: Failed with result ",
        ends: false,
        blames: Blame::Lab,
    },
    ConsoleCheck {
        id: "writing-stands-still",
        description: "the program that writes the disk neither wrote nor failed for four minutes; its line has what the machine looked like",
        pattern: r"vlab-node: \S+ writing-stands-still\b",
        ends: false,
        blames: Blame::Lab,
    },
    // Both before the kernel's own rows: a kernel says so of an emulated machine whose computer has other work, and is not to blame.
    ConsoleCheck {
        id: "emulation-failed",
        description: "the kernel gave up because the emulated hardware did not keep time: the lab's computer was too slow or too busy",
        pattern: r"Kernel panic - not syncing: (IO-APIC \+ timer doesn't work|Timeout: Not all CPUs entered|softlockup: hung tasks|hung_task: blocked tasks|[Hh]ard LOCKUP|RCU Stall)",
        ends: true,
        blames: Blame::Lab,
    },
    ConsoleCheck {
        id: "starved",
        description: "the machine got no processor or no disk for so long that its kernel complained: the lab's computer was too busy",
        pattern: r"BUG: soft lockup|hard LOCKUP|blocked for more than \d+ seconds",
        ends: false,
        blames: Blame::Lab,
    },
    ConsoleCheck {
        id: "kernel-panic",
        description: "the kernel has stopped for good",
        pattern: r"Kernel panic - not syncing",
        ends: true,
        blames: Blame::Product,
    },
    ConsoleCheck {
        id: "kernel-bug",
        description: "the kernel ran into an error of its own (oops, bug)",
        pattern: r"BUG: |Oops: |general protection fault|kernel BUG at ",
        ends: false,
        blames: Blame::Product,
    },
    ConsoleCheck {
        id: "out-of-memory",
        description: "the kernel killed a process because memory ran out",
        pattern: r"Out of memory: Kill|invoked oom-killer|oom-kill:",
        ends: false,
        blames: Blame::Product,
    },
    ConsoleCheck {
        id: "emergency-shell",
        description: "the boot stopped and waits for someone at the keyboard",
        pattern: r"(?i)(you are in|entering|started|welcome to) emergency (mode|shell)|^\(initramfs\) |^dracut:/# |^:/# ",
        ends: true,
        blames: Blame::Product,
    },
    ConsoleCheck {
        id: "ignition-failure",
        description: "Ignition could not apply the host's configuration",
        pattern: r"(?i)ignition failed|failed to start ignition|ignition\[\d+\]: crit|^crit\w* *: .*(config|stage|ignition)|ignition-\w[\w-]*\.service: failed",
        ends: true,
        blames: Blame::Product,
    },
    ConsoleCheck {
        id: "initrd-failure",
        description: "the initrd of the lab's own operating system gave up the boot and switched the machine off",
        pattern: r"vlab-initrd(\[[\d.]+\])?: FAILED: ",
        ends: true,
        blames: Blame::Product,
    },
    ConsoleCheck {
        id: "disk-error",
        description: "a disk reported an error",
        pattern: r"I/O error, dev |Buffer I/O error on dev|(EXT4-fs|XFS) .*(error|[Cc]orruption|shut ?down)",
        ends: false,
        blames: Blame::Product,
    },
    ConsoleCheck {
        id: "disk-full",
        description: "a program found no space left on a file system",
        pattern: r"No space left on device",
        ends: false,
        blames: Blame::Product,
    },
    ConsoleCheck {
        id: "no-boot-device",
        description: "the firmware or the boot loader found nothing to boot",
        pattern: r"No bootable (device|option)|Boot failed: not a bootable disk|error: no such (device|partition)|grub rescue>",
        ends: false,
        blames: Blame::Product,
    },
    ConsoleCheck {
        id: "unit-failed",
        description: "a systemd unit failed",
        pattern: r"\[\s*FAILED\s*\]|\.(service|mount|socket|target|swap|timer): Failed with result |systemd\[1\]: Failed to start ",
        ends: false,
        blames: Blame::Product,
    },
];

/// A check of that id does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCheck {
    /// As given.
    pub id: String,
}

impl std::fmt::Display for UnknownCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known: Vec<&str> = CHECKS.iter().map(|check| check.id).collect();
        write!(f, "there is no console check `{}`: {}", self.id, known.join(", "))
    }
}

impl std::error::Error for UnknownCheck {}

/// The checks of a machine: all of the table but those that are opted out of.
#[derive(Clone, Debug, Default)]
pub struct Classifier {
    without: BTreeSet<&'static str>,
}

impl Classifier {
    /// All checks but these.
    ///
    /// # Errors
    /// There is no such check.
    pub fn without<S: AsRef<str>>(ids: &[S]) -> Result<Self, UnknownCheck> {
        let known = |id: &S| {
            let found = CHECKS.iter().find(|check| check.id == id.as_ref());
            found.map(|check| check.id).ok_or_else(|| UnknownCheck { id: id.as_ref().to_owned() })
        };
        Ok(Self { without: ids.iter().map(known).collect::<Result<_, _>>()? })
    }

    /// What a line means; `None` for the many that mean nothing. Control sequences may still be in it.
    #[must_use]
    pub fn classify(&self, line: &str) -> Option<&'static ConsoleCheck> {
        static PATTERNS: LazyLock<Vec<Option<Regex>>> =
            LazyLock::new(|| CHECKS.iter().map(|check| Regex::new(check.pattern).ok()).collect());
        let line = plain(line);
        let first = CHECKS
            .iter()
            .zip(PATTERNS.iter())
            .find(|(_, pattern)| pattern.as_ref().is_some_and(|pattern| pattern.is_match(&line)));
        first.map(|(check, _)| check).filter(|check| !self.without.contains(check.id))
    }
}

/// A line as a person sees it: without colours, cursor movements, carriage returns and other control characters.
#[must_use]
pub fn plain(line: &str) -> Cow<'_, str> {
    if !line.contains(|c: char| c.is_control()) {
        return Cow::Borrowed(line);
    }
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.peek() {
                // A control sequence ends with a byte from `@` on, an operating system command with BEL or ESC `\`.
                Some('[') => {
                    chars.next();
                    while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {}
                }
                Some(']') => while chars.next().is_some_and(|c| c != '\u{7}' && c != '\u{1b}') {},
                _ => {
                    chars.next();
                }
            },
            '\t' => out.push(' '),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        "[    2.1] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)",
        Some("kernel-panic")
    )]
    #[case(
        "[    2.1] Kernel panic - not syncing: Out of memory: compulsory panic_on_oom is enabled",
        Some("kernel-panic")
    )]
    #[case(
        "[    0.4] Kernel panic - not syncing: IO-APIC + timer doesn't work!  Boot with apic=debug",
        Some("emulation-failed")
    )]
    #[case("[   81.2] Kernel panic - not syncing: softlockup: hung tasks", Some("emulation-failed"))]
    #[case("watchdog: BUG: soft lockup - CPU#0 stuck for 22s!", Some("starved"))]
    #[case("INFO: task etcd:412 blocked for more than 120 seconds.", Some("starved"))]
    #[case("BUG: kernel NULL pointer dereference, address: 0000000000000008", Some("kernel-bug"))]
    #[case("[   40.1] Out of memory: Killed process 233 (etcd) total-vm:10kB", Some("out-of-memory"))]
    #[case("You are in emergency mode. After logging in, type \"journalctl -xb\"", Some("emergency-shell"))]
    #[case("(initramfs) ", Some("emergency-shell"))]
    #[case("ignition[231]: CRITICAL : failed to fetch config: i/o timeout", Some("ignition-failure"))]
    #[case("[\u{1b}[0;1;31mFAILED\u{1b}[0m] Failed to start Ignition (fetch).\r", Some("ignition-failure"))]
    #[case("ignition-files.service: Failed with result 'exit-code'.", Some("ignition-failure"))]
    #[case("[\u{1b}[0;1;31mFAILED\u{1b}[0m] Failed to start agent.service.\r", Some("unit-failed"))]
    #[case("systemd[1]: Failed to start agent.service - Agent.", Some("unit-failed"))]
    #[case(
        "[   99.1] vlab-node: installer lab-not-ready {\"what\":\"the disk image\",\"last\":\"nothing\"}",
        Some("lab-not-ready")
    )]
    #[case("vlab-node: installer note \"the lab-not-ready case\"", None)]
    #[case("[  400.1] vlab-node: installer writing-stands-still {\"percent\":17}", Some("writing-stands-still"))]
    #[case("[  160.1] vlab-node: installer writing-is-silent {\"percent\":17}", None)]
    #[case(
        "[\u{1b}[0;1;31mFAILED\u{1b}[0m] Failed to start coreos-osmet.service - Offer the disk image.\r",
        Some("lab-unit-failed")
    )]
    #[case("systemd[1]: vlab-modules.service: Failed with result 'exit-code'.", Some("lab-unit-failed"))]
    #[case("[    9.6] vlab-initrd[9.59]: FAILED: no root file system", Some("initrd-failure"))]
    #[case("[    9.0] I/O error, dev vda, sector 2048 op 0x1:(WRITE) flags 0x800", Some("disk-error"))]
    #[case("etcd: create wal error: write: No space left on device", Some("disk-full"))]
    #[case("BdsDxe: No bootable option or device was found.", Some("no-boot-device"))]
    #[case("[\u{1b}[0;32m  OK  \u{1b}[0m] Started agent.service.", None)]
    #[case("kernel: Command line: panic=10 oops=panic", None)]
    #[case("ignition[231]: INFO : files: op(1): [started] writing", None)]
    #[case("Ignition finished successfully", None)]
    #[case("", None)]
    fn lines_are_what_they_are(#[case] line: &str, #[case] expected: Option<&str>) {
        assert_eq!(Classifier::default().classify(line).map(|check| check.id), expected);
    }

    #[test]
    fn every_pattern_is_one_and_every_check_is_described_once() {
        let ids: BTreeSet<&str> = CHECKS.iter().map(|check| check.id).collect();
        assert_eq!(ids.len(), CHECKS.len());
        for check in CHECKS {
            let pattern = Regex::new(check.pattern).unwrap();
            assert!(!pattern.is_match(""), "{} matches everything", check.id);
            assert!(!check.description.is_empty());
        }
    }

    #[test]
    fn who_opts_out_of_a_check_does_not_get_it_under_another_name() {
        let line = "Kernel panic - not syncing: Out of memory: Killed";
        let without = Classifier::without(&["kernel-panic"]).unwrap();
        assert_eq!(without.classify(line), None);
        assert_eq!(without.classify("invoked oom-killer").map(|check| check.id), Some("out-of-memory"));
        let error = Classifier::without(&["kernel-panik"]).unwrap_err().to_string();
        assert!(
            error.starts_with("there is no console check `kernel-panik`: ") && error.contains(", kernel-panic, "),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn a_plain_line_has_no_control_characters_and_stays_as_it_is(line in "\\PC*|[\u{0}-\u{7f}]*") {
            let once = plain(&line).into_owned();
            prop_assert!(!once.contains(|c: char| c.is_control()));
            prop_assert_eq!(plain(&once), once.as_str());
        }
    }
}
