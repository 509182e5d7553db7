//! `cargo xtask test`: formatting, lints, images, tests and documentation tests, one after the other, with how long each took.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use vlab_setup::{Purpose, ensure};

use crate::ahead::Ahead;
use crate::budget::{self, LeftOut};
use crate::engine::{self, Private};
use crate::skips::Skips;
use crate::{BUILT, INCONCLUSIVE, INTERNAL, USAGE, cargo, exit_code, for_images, root, say, target};

/// What makes cargo build this workspace with clippy, warnings being errors: the same that `cargo clippy --workspace --all-targets
/// -- -D warnings` sets. It checks and builds in one pass, where `cargo clippy` would read all 350 crates for itself once
/// more, a tenth of the whole on two cores. For tests only: `clippy-driver` does not promise to optimise as `rustc` does.
const LINTED: [(&str, &str); 2] =
    [("RUSTC_WORKSPACE_WRAPPER", "clippy-driver"), ("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__")];

/// Formatting, lints, images, tests, documentation tests: all of them, whatever the others say.
pub(crate) fn test(args: &[OsString], may_install: bool) -> ExitCode {
    let began = Instant::now();
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    let within = match budget::within() {
        Ok(within) => within,
        Err(why) => {
            say(&why);
            return ExitCode::from(USAGE);
        }
    };
    let target = target();
    let skips = match Skips::collect(&target) {
        Ok(skips) => skips,
        Err(why) => {
            say(&why);
            return ExitCode::from(INCONCLUSIVE);
        }
    };
    let (engine, has_engine) = test_engine(&target, ci, may_install);
    let mut steps = Steps { engine, skips, built: None, results: vec![], first_failure: None };
    steps.cargo(["fmt", "--all", "--check"].map(OsString::from));
    let ahead = Ahead::begin();
    // All programs, with the features that the tests build them with: cargo would build half of it again for one of them alone.
    // Linted while they are built (see `LINTED`).
    let build = steps.cargo(["nextest", "run", "--workspace", "--locked", "--no-run"].map(OsString::from));
    let images = target.join("debug/vlab-images");
    // They were just built.
    steps.built = for_images(&target.join("debug"), &["vlab-node", "vlab-service"]);
    if has_engine {
        // What the tests with containers run.
        steps.step(Some(&images), ["--load".into()]);
    }
    // Tests look at them, and machines boot from them.
    steps.step(Some(&images), ["lab".into()]);
    drop(ahead);
    // Who names tests wants these.
    let left_out = match within {
        Some(within) if args.is_empty() => budget::choose(within, began.elapsed(), build),
        _ => LeftOut::default(),
    };
    left_out.words().iter().for_each(|words| say(words));
    steps.cargo(nextest(args, ci).into_iter().chain(left_out.args().into_iter().map(OsString::from)));
    steps.cargo(["test", "--doc", "--workspace", "--locked"].map(OsString::from));
    steps.end(ci, &left_out)
}

/// The tests themselves.
fn nextest(args: &[OsString], ci: bool) -> Vec<OsString> {
    let mut nextest: Vec<OsString> = ["nextest", "run", "--workspace", "--locked"].map(OsString::from).to_vec();
    if ci {
        nextest.extend(["--profile", "ci"].map(OsString::from));
    }
    if !args.iter().any(chooses_threads) {
        // One more than there are processors: a run of simulated hosts mostly waits. With two more, machines are too slow for their tests.
        let threads = std::thread::available_parallelism().map_or(2, |n| n.get() + 1);
        nextest.extend(["--test-threads".into(), threads.to_string().into()]);
    }
    nextest.extend_from_slice(args);
    nextest
}

/// What was done, and what the rest is done with.
struct Steps {
    /// One of ours, up to the end of the tests.
    engine: Option<Private>,
    skips: Skips,
    /// The folder with programs of this build for images.
    built: Option<PathBuf>,
    results: Vec<String>,
    first_failure: Option<ExitCode>,
}

impl Steps {
    fn cargo(&mut self, args: impl IntoIterator<Item = OsString>) -> Duration {
        self.step(None, args)
    }

    /// Runs a program (cargo, without one) to its end, and says how long it took.
    fn step(&mut self, program: Option<&Path>, args: impl IntoIterator<Item = OsString>) -> Duration {
        let args: Vec<OsString> = args.into_iter().collect();
        let shown = args.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let shown = format!("{} {shown}", if program.is_some() { "vlab-images" } else { "cargo" });
        say(&format!("$ {shown}"));
        let begin = Instant::now();
        let mut command = match program {
            Some(program) => Command::new(program),
            None => {
                let mut cargo = cargo();
                cargo.envs(LINTED);
                cargo
            }
        };
        command.current_dir(root());
        self.skips.of(&mut command);
        if let Some(engine) = &self.engine {
            command.env("DOCKER_HOST", engine.host());
        }
        if let Some(built) = &self.built {
            command.env(BUILT, built);
        }
        let code = match command.args(&args).status() {
            Ok(status) => status.code(),
            Err(error) => {
                say(&format!("cannot start it: {error}"));
                Some(i32::from(INTERNAL))
            }
        };
        let ok = code == Some(0);
        let took = begin.elapsed();
        self.results.push(format!(
            "{} {:3} min {:02} s  {shown}",
            if ok { "ok    " } else { "FAILED" },
            took.as_secs() / 60,
            took.as_secs() % 60
        ));
        if !ok {
            self.first_failure = self.first_failure.or(Some(exit_code(code)));
        }
        took
    }

    /// Says what was done and what was not, and judges what was skipped.
    fn end(self, ci: bool, left_out: &LeftOut) -> ExitCode {
        let Self { engine, skips, results, mut first_failure, .. } = self;
        drop(engine);
        say(&format!("\n{}\n", results.join("\n")));
        left_out.words().iter().for_each(|words| say(words));
        let skipped = skips.judge(&root(), ci);
        if skipped.is_err() {
            first_failure = first_failure.or(Some(ExitCode::FAILURE));
        }
        say(&skipped.unwrap_or_else(|why| why));
        first_failure.unwrap_or(ExitCode::SUCCESS)
    }
}

/// Does that word say how many tests run at once?
fn chooses_threads(word: &OsString) -> bool {
    let word = word.to_string_lossy();
    ["-j", "--jobs", "--test-threads"].iter().any(|option| word.starts_with(option))
}

/// An engine of our own for the tests with containers, where this machine has none that runs; and whether there is one at all.
/// Without one these tests are skipped, which in CI is a failure.
fn test_engine(target: &Path, ci: bool, may_install: bool) -> (Option<Private>, bool) {
    match ensure(Purpose::Containers, may_install && ci, say).and_then(|_| engine::for_tests(target)) {
        Ok(engine) => (engine, true),
        Err(why) => {
            say(&format!("no container engine: {why}\nThe tests with containers are skipped."));
            (None, false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_how_many_tests_run_at_once_is_heard() {
        for (word, chosen) in [("-j4", true), ("--test-threads=1", true), ("--jobs", true), ("-p", false), ("x", false)]
        {
            assert_eq!(chooses_threads(&word.into()), chosen, "{word}");
        }
    }
}
