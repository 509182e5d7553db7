//! The developer's entry: `cargo xtask <verb>`. Builds in seconds because it depends on nothing; sets up what is missing,
//! builds `vlab` when its sources changed, and hands over to it.

mod args;
mod setup;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use args::{Action, Doer, Verb};
use setup::{Done, Purpose};

/// Exit codes of the project: wrong usage, and a lab that lacks something.
const USAGE: u8 = 2;
const INCONCLUSIVE: u8 = 3;
const INTERNAL: u8 = 70;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match args::parse(&args) {
        Action::Help(verb) => {
            print!("{}", args::help(verb));
            ExitCode::SUCCESS
        }
        Action::Wrong(why) => {
            say(&format!("{why}\n\n{}", args::help(None)));
            ExitCode::from(USAGE)
        }
        Action::Do { verb, may_install, args } => act(verb, may_install, &args),
    }
}

fn act(verb: &Verb, may_install: bool, args: &[OsString]) -> ExitCode {
    let purpose = match verb.doer {
        Doer::Vlab { setup: false, .. } => None,
        Doer::Vlab { setup: true, .. } => Some(Purpose::Run),
        Doer::Test | Doer::Setup => Some(Purpose::Test),
    };
    let done = match purpose.map(|purpose| setup::ensure(purpose, may_install)) {
        None => Done::WasThere,
        Some(Ok(done)) => done,
        Some(Err(why)) => {
            say(&why);
            return ExitCode::from(INCONCLUSIVE);
        }
    };
    match verb.doer {
        Doer::Vlab { verb, .. } => vlab(verb, args),
        Doer::Test => test(args),
        Doer::Setup => {
            say(match done {
                Done::WasThere => "everything is there",
                Done::Installed => "set up",
            });
            ExitCode::SUCCESS
        }
    }
}

/// Builds `vlab` (cargo decides whether there is anything to do) and becomes it.
fn vlab(verb: &str, args: &[OsString]) -> ExitCode {
    let binary = match build_vlab() {
        Ok(binary) => binary,
        Err(code) => return code,
    };
    let mut command = Command::new(&binary);
    command.args(Some(verb).filter(|verb| !verb.is_empty())).args(args);
    // The workspace's own places, wherever in it we were called; what the user has set is stronger.
    for (name, place) in [("VLAB_SCENARIOS", "scenarios"), ("VLAB_RUNS", "target/vlab/runs")] {
        if std::env::var_os(name).is_none() {
            command.env(name, root().join(place));
        }
    }
    // It takes our place: signals, terminal and exit code are its own.
    let error = command.exec();
    say(&format!("cannot start {}: {error}", binary.display()));
    ExitCode::from(INTERNAL)
}

fn build_vlab() -> Result<PathBuf, ExitCode> {
    let output = cargo()
        .args(["build", "--profile", "lab", "--package", "vlab-cli", "--bin", "vlab", "--locked"])
        // Progress and errors for people on stderr, the path of the binary for us on stdout.
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            executable(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| {
                say("cargo does not say where it put vlab");
                ExitCode::from(INTERNAL)
            })
        }
        Ok(output) => Err(exit_code(output.status.code())),
        Err(error) => {
            say(&format!("cannot start cargo: {error}"));
            Err(ExitCode::from(INTERNAL))
        }
    }
}

/// The path of `vlab` in cargo's messages, one JSON object a line.
fn executable(messages: &str) -> Option<PathBuf> {
    const KEY: &str = "\"executable\":\"";
    let line = messages.lines().rfind(|line| {
        line.contains("\"reason\":\"compiler-artifact\"") && line.contains("\"name\":\"vlab\"") && line.contains(KEY)
    })?;
    let value = &line[line.find(KEY)? + KEY.len()..];
    // Up to the closing quote; in a path only quotes and backslashes are escaped.
    let (mut path, mut chars) = (String::new(), value.chars());
    loop {
        match chars.next()? {
            '"' => return Some(PathBuf::from(path)),
            '\\' => path.push(chars.next()?),
            other => path.push(other),
        }
    }
}

/// Formatting, lints, tests, documentation tests: all of them, whatever the others say.
fn test(args: &[OsString]) -> ExitCode {
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    let mut nextest: Vec<&OsStr> = ["nextest", "run", "--workspace", "--locked"].map(OsStr::new).to_vec();
    if ci {
        nextest.extend(["--profile", "ci"].map(OsStr::new));
    }
    nextest.extend(args.iter().map(OsString::as_os_str));
    let steps: [Vec<&OsStr>; 4] = [
        ["fmt", "--all", "--check"].map(OsStr::new).to_vec(),
        ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"].map(OsStr::new).to_vec(),
        nextest,
        ["test", "--doc", "--workspace", "--locked"].map(OsStr::new).to_vec(),
    ];
    let mut first_failure = None;
    let mut results = Vec::new();
    for step in steps {
        let shown = step.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        say(&format!("$ cargo {shown}"));
        let code = match cargo().args(&step).status() {
            Ok(status) => status.code(),
            Err(error) => {
                say(&format!("cannot start cargo: {error}"));
                Some(i32::from(INTERNAL))
            }
        };
        let ok = code == Some(0);
        results.push(format!("{} cargo {shown}", if ok { "ok    " } else { "FAILED" }));
        if !ok {
            first_failure = first_failure.or(Some(exit_code(code)));
        }
    }
    say(&format!("\n{}", results.join("\n")));
    first_failure.unwrap_or(ExitCode::SUCCESS)
}

/// Ended by a signal (no code): as a shell would have it for SIGINT, the likely one.
fn exit_code(code: Option<i32>) -> ExitCode {
    ExitCode::from(code.map_or(130, |code| u8::try_from(code).unwrap_or(INTERNAL)))
}

/// The cargo that runs us, in the workspace. What cargo tells a program that it runs must not reach the next cargo: it
/// would rebuild what reads it.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// The workspace.
fn root() -> PathBuf {
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().map_or_else(|| here.clone(), Path::to_path_buf)
}

/// To stderr: stdout belongs to what is run.
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_where_cargo_says() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"vlab_lab"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"vlab"},"filenames":["/x"],"executable":"/a \"b\"\\c/lab/vlab","fresh":true}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages), Some(PathBuf::from(r#"/a "b"\c/lab/vlab"#)));
        assert_eq!(executable(r#"{"reason":"build-finished","success":true}"#), None);
    }

    #[test]
    fn the_workspace_is_found() {
        assert!(root().join("Cargo.toml").is_file());
        assert!(root().join("xtask/Cargo.toml").is_file());
    }
}
