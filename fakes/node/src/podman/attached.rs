//! A container in the foreground, as podman runs it without `--detach`: it lives on when this process does not, its output is
//! passed on, and its exit code is podman's. What the product's installer writes is read on the way: the console is told what the
//! lab's own would tell there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::containers;
use crate::say;

/// Between two looks at what was written.
const POLL: Duration = Duration::from_millis(100);
/// Longest line that is read for what it says.
const LONGEST: usize = 64 << 10;
/// What the installer logs before each report of a stage.
const STAGE: &str = "Updating node installation stage: ";

/// Runs a container to its end: its exit code.
pub(super) fn run(command: Command, name: &str, image: &str, kept: bool) -> Result<i32, String> {
    let words: Vec<String> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let started = |pid| {
        say::moment("installer", "started", &about(&words));
        containers::pass_name(name, image, pid, kept)
    };
    let mut told = |line: &str| {
        if let Some(details) = stage(line) {
            say::moment("installer", "stage", &details);
        }
    };
    let mut outputs = Outputs { log: &super::log_folder(), out: &mut io::stdout(), err: &mut io::stderr() };
    let status = to_its_end(command, name, &mut outputs, started, &mut told)?;
    if !kept {
        containers::remove(name).map_err(|e| format!("Error: {name}: {e}"))?;
    }
    if !status.success() {
        say::moment("installer", "failed", &json!({ "problem": status.to_string() }));
    }
    Ok(code(status))
}

/// What the console is told of an installer that starts.
fn about(words: &[String]) -> Value {
    let after = |option: &str| {
        let next = words.iter().position(|word| word == option).and_then(|at| words.get(at + 1));
        next.or_else(|| words.iter().find(|word| word.strip_prefix(option).is_some_and(|rest| rest.starts_with('='))))
            .map(|word| word.strip_prefix(option).and_then(|rest| rest.strip_prefix('=')).unwrap_or(word))
    };
    json!({
        "role": after("--role"), "host_id": after("--host-id"), "disk": after("--boot-device"), "program": "given by the run",
    })
}

/// Stage and details, where a line of the installer's log tells them.
fn stage(line: &str) -> Option<Value> {
    let (_, rest) = line.split_once(STAGE)?;
    // The text form of the log has the message in quotes.
    let rest = rest.find("\" ").map_or(rest.trim_end_matches('"'), |end| &rest[..end]);
    let (stage, info) = rest.split_once(" - ").unwrap_or((rest, ""));
    Some(json!({ "stage": stage.trim(), "info": info.trim() }))
}

/// The code with which podman ends: a signal is one above 128.
fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(super::PODMAN_FAILED)
}

/// Where the output goes.
struct Outputs<'a> {
    /// Folder in which it is kept.
    log: &'a Path,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

/// Starts a program in a process group of its own and waits for its end. Its output goes into files, as conmon keeps it, so that a
/// program whose podman is gone can still write; from there it is passed on.
fn to_its_end(
    mut command: Command,
    name: &str,
    outputs: &mut Outputs<'_>,
    started: impl FnOnce(u32) -> io::Result<()>,
    told: &mut dyn FnMut(&str),
) -> Result<ExitStatus, String> {
    let error = |e: io::Error| format!("Error: {e}");
    fs::create_dir_all(outputs.log).map_err(error)?;
    let (mut out, writes_out) = Tail::of(outputs.log.join(format!("{name}.log"))).map_err(error)?;
    let (mut err, writes_err) = Tail::of(outputs.log.join(format!("{name}.err.log"))).map_err(error)?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writes_out)
        .stderr(writes_err)
        .process_group(0)
        .spawn()
        .map_err(|e| format!("Error: {}: {e}", command.get_program().to_string_lossy()))?;
    started(child.id()).map_err(error)?;
    loop {
        // Asked first: what it wrote before its end is read after it.
        let ended = child.try_wait().map_err(error)?;
        out.pass_on(outputs.out, told).map_err(error)?;
        err.pass_on(outputs.err, told).map_err(error)?;
        match ended {
            Some(status) => return Ok(status),
            None => std::thread::sleep(POLL),
        }
    }
}

/// A file that grows, from where it ended at the beginning.
struct Tail {
    file: File,
    line: Vec<u8>,
}

impl Tail {
    /// The file, and what writes into it.
    fn of(path: PathBuf) -> io::Result<(Self, File)> {
        let writes = OpenOptions::new().create(true).append(true).open(&path)?;
        let mut file = File::open(&path)?;
        io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        Ok((Self { file, line: Vec::new() }, writes))
    }

    /// Passes on what is new, and tells its whole lines.
    fn pass_on(&mut self, to: &mut dyn Write, told: &mut dyn FnMut(&str)) -> io::Result<()> {
        let mut buffer = [0; 8192];
        loop {
            let length = self.file.read(&mut buffer)?;
            if length == 0 {
                // Nobody may listen any more; the container goes on all the same.
                let _ = to.flush();
                return Ok(());
            }
            let _ = to.write_all(&buffer[..length]);
            for byte in &buffer[..length] {
                match byte {
                    b'\n' | b'\r' => {
                        told(&String::from_utf8_lossy(&self.line));
                        self.line.clear();
                    }
                    byte if self.line.len() < LONGEST => self.line.push(*byte),
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        r#"time="2026-01-01T00:00:00Z" level=info msg="Updating node installation stage: Writing image to disk - 42%" request_id=7"#,
        Some(("Writing image to disk", "42%"))
    )]
    #[case(r#"msg="Updating node installation stage: Rebooting - ""#, Some(("Rebooting", "")))]
    #[case("Updating node installation stage: Installing - bootstrap", Some(("Installing", "bootstrap")))]
    #[case(r#"msg="Rebooting node""#, None)]
    fn a_stage_is_read_from_the_installer_s_log(#[case] line: &str, #[case] expected: Option<(&str, &str)>) {
        let expected = expected.map(|(stage, info)| json!({ "stage": stage, "info": info }));
        assert_eq!(stage(line), expected);
    }

    #[test]
    fn the_console_is_told_who_starts() {
        let words = ["--role", "master", "--host-id=1", "--boot-device", "/dev/vda"].map(str::to_owned);
        let said = about(&words);
        assert_eq!((said["role"].as_str(), said["host_id"].as_str()), (Some("master"), Some("1")));
        assert_eq!((said["disk"].as_str(), &about(&[])["role"]), (Some("/dev/vda"), &Value::Null));
    }

    #[rstest]
    #[case("exit 0", 0)]
    #[case("exit 3", 3)]
    #[case("kill -9 $$", 137)]
    fn output_and_exit_code_are_the_program_s(#[case] end: &str, #[case] expected: i32) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x.log"), "of an earlier run\n").unwrap();
        let (mut out, mut err, mut lines, mut pid) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let mut command = Command::new("sh");
        let script = format!("echo to out; sleep 0.3; echo to err >&2; printf 'a\\rno end'; {end}");
        command.args(["-c", &script]);
        let mut outputs = Outputs { log: folder.path(), out: &mut out, err: &mut err };
        let started = |of| {
            pid = of;
            Ok(())
        };
        let status = to_its_end(command, "x", &mut outputs, started, &mut |line| lines.push(line.to_owned())).unwrap();
        assert_eq!(code(status), expected);
        assert_eq!((out.as_slice(), err.as_slice()), (&b"to out\na\rno end"[..], &b"to err\n"[..]));
        lines.sort();
        assert_eq!(lines, ["a", "to err", "to out"]);
        assert!(pid > 0);
        assert_eq!(fs::read_to_string(folder.path().join("x.err.log")).unwrap(), "to err\n");
    }

    #[test]
    fn a_program_that_cannot_be_started_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut outputs = Outputs { log: folder.path(), out: &mut io::sink(), err: &mut io::sink() };
        let error = to_its_end(Command::new("/nowhere/x"), "x", &mut outputs, |_| Ok(()), &mut |_| {}).unwrap_err();
        assert!(error.starts_with("Error: /nowhere/x: "), "{error}");
    }
}
