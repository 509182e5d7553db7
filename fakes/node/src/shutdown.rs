//! Stands in for `shutdown -r`, with which the product's installer orders the reboot. The real one asks logind, which lab machines
//! are without, and does not fall back when the reboot is to come later. The minute that the installer waits is the product's and
//! stays what it is. Everything else is the real one's.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::agent::START_REBOOT;
use crate::machine::NodeConfig;
use crate::say;

/// The real one, of systemd.
const REAL: &str = "/usr/sbin/shutdown";
/// The timer of a reboot that is to come.
const TIMER: &str = "vlab-reboot";
/// What the installer tells those who are logged in.
const OF_THE_INSTALLER: &str = "Installation completed";

/// What a command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    /// A reboot, in so many minutes.
    Reboot(u64),
    /// Something that the real one does.
    Other,
}

fn asked(words: &[String]) -> Asked {
    let mut reboot = false;
    let mut time = None;
    for word in words {
        match word.as_str() {
            "-r" | "--reboot" => reboot = true,
            word if word.starts_with('-') => return Asked::Other,
            word => time = time.or(Some(word)),
        }
    }
    // Without a time it is a minute.
    let minutes = match time.unwrap_or("+1") {
        "now" => Some(0),
        time => time.strip_prefix('+').unwrap_or(time).parse().ok(),
    };
    minutes.filter(|_| reboot).map_or(Asked::Other, Asked::Reboot)
}

/// Runs it.
///
/// # Errors
/// The reboot cannot be ordered.
pub(crate) fn shutdown(words: &[String]) -> Result<String, String> {
    let Asked::Reboot(minutes) = asked(words) else {
        return Err(format!("{REAL}: {}", Command::new(REAL).args(words).exec()));
    };
    let config = NodeConfig::load().map_err(|e| e.to_string())?;
    let seconds = minutes * 60;
    if seconds == 0 {
        // It may be over before anything more is said.
        tell(words, seconds);
        order(&config, "systemctl", START_REBOOT)?;
    } else {
        later(&config, seconds)?;
        tell(words, seconds);
    }
    Ok(format!("Reboot scheduled in {seconds} s, by the lab's stand-in for shutdown.\n"))
}

/// Says it: the installer's order is a moment of the installation.
fn tell(words: &[String], seconds: u64) {
    if words.iter().any(|word| word.contains(OF_THE_INSTALLER)) {
        say::moment("installer", "reboot-now", &json!({ "by": "shutdown", "in_seconds": seconds }));
    } else {
        say::note("shutdown", &format!("somebody ordered a reboot in {seconds} s"));
    }
}

fn later(config: &NodeConfig, seconds: u64) -> Result<(), String> {
    // As with the real one, a later order takes the place of an earlier one; mostly there is none.
    let _ = order(config, "systemctl", &["stop", &format!("{TIMER}.timer")]);
    let (unit, after) = (format!("--unit={TIMER}"), format!("--on-active={seconds}"));
    // Without the property systemd may let it wait for another minute.
    let mut run = vec![&unit[..], &after, "--timer-property=AccuracySec=100ms", "--collect", "systemctl"];
    run.extend(START_REBOOT);
    order(config, "systemd-run", &run)
}

fn order(config: &NodeConfig, program: &str, words: &[&str]) -> Result<(), String> {
    let file = config.program(program);
    let done = Command::new(&file).args(words).stdin(Stdio::null()).output();
    let done = done.map_err(|e| format!("{}: {e}", file.display()))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("shutdown: {program}: {}: {}", done.status, String::from_utf8_lossy(&done.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("-r +1 'Installation_completed'", Asked::Reboot(1))]
    #[case("-r now message", Asked::Reboot(0))]
    #[case("--reboot 5", Asked::Reboot(5))]
    #[case("-r", Asked::Reboot(1))]
    #[case("-r 23:00", Asked::Other)]
    #[case("-h now", Asked::Other)]
    #[case("-c", Asked::Other)]
    #[case("now", Asked::Other)]
    fn what_is_asked_for(#[case] line: &str, #[case] expected: Asked) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        assert_eq!(asked(&words), expected);
    }

    #[test]
    fn a_reboot_that_is_to_come_is_a_timer() {
        let folder = tempfile::tempdir().unwrap();
        let calls = folder.path().join("calls");
        let mut config = NodeConfig::default();
        for (name, code) in [("systemctl", 5), ("systemd-run", 0)] {
            let program = folder.path().join(name);
            fs::write(&program, format!("#!/bin/sh\necho {name} $@ >> {}\nexit {code}\n", calls.display())).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            config.programs.insert(name.into(), program);
        }
        later(&config, 60).unwrap();
        let called = fs::read_to_string(&calls).unwrap();
        assert_eq!(
            called,
            "systemctl stop vlab-reboot.timer\n\
             systemd-run --unit=vlab-reboot --on-active=60 --timer-property=AccuracySec=100ms --collect systemctl \
             --no-block --job-mode=replace-irreversibly start reboot.target\n"
        );
        let error = order(&config, "systemctl", START_REBOOT).unwrap_err();
        assert_eq!(error, "shutdown: systemctl: exit status: 5: ");
    }
}
