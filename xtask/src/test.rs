//! `cargo xtask test`: formatting, lints, images, tests and documentation tests, one after the other, with how long each took.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use vlab_setup::{Purpose, ensure};

use crate::engine::{self, Private};
use crate::skips::Skips;
use crate::{INCONCLUSIVE, INTERNAL, cargo, exit_code, root, say, target};

/// What makes cargo build this workspace with clippy, warnings being errors: the same that `cargo clippy --workspace --all-targets
/// -- -D warnings` sets. It checks and builds in one pass, where `cargo clippy` would read all 350 crates for itself once
/// more, a tenth of the whole on two cores. For tests only: `clippy-driver` does not promise to optimise as `rustc` does.
const LINTED: [(&str, &str); 2] =
    [("RUSTC_WORKSPACE_WRAPPER", "clippy-driver"), ("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__")];

/// Where the tests' own programs for images are, below cargo's folder.
const FOR_IMAGES: &str = "debug/for-images";

/// Names the program of machines that goes into images.
const NODE: &str = "VLAB_NODE_PROGRAM";

/// Formatting, lints, images, tests, documentation tests: all of them, whatever the others say.
pub(crate) fn test(args: &[OsString], may_install: bool) -> ExitCode {
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    let target = target();
    let skips = match Skips::collect(&target) {
        Ok(skips) => skips,
        Err(why) => {
            say(&why);
            return ExitCode::from(INCONCLUSIVE);
        }
    };
    let mut steps = Steps {
        engine: test_engine(&target, ci, may_install),
        skips,
        node: None,
        results: vec![],
        first_failure: None,
    };
    steps.cargo(["fmt", "--all", "--check"].map(OsString::from));
    // All programs, with the features that the tests build them with: cargo would build half of it again for one of them alone.
    // Linted while they are built (see `LINTED`).
    steps.cargo(["nextest", "run", "--workspace", "--locked", "--no-run"].map(OsString::from));
    let images = target.join("debug/vlab-images");
    let [node, service] = ["vlab-node", "vlab-service"].map(|name| for_images(&target, &images, name));
    if steps.engine.is_some() {
        // What the tests with containers run.
        let named = service.iter().flat_map(|file| ["--service-program".into(), file.into()]);
        steps.step(Some(&images), [OsString::from("--load")].into_iter().chain(named));
    }
    steps.node = node;
    // Tests look at them, and machines boot from them.
    steps.step(Some(&images), ["lab".into()]);
    steps.cargo(nextest(args, ci));
    steps.cargo(["test", "--doc", "--workspace", "--locked"].map(OsString::from));
    steps.end(ci)
}

/// The tests themselves.
fn nextest(args: &[OsString], ci: bool) -> Vec<OsString> {
    let mut nextest: Vec<OsString> = ["nextest", "run", "--workspace", "--locked"].map(OsString::from).to_vec();
    if ci {
        nextest.extend(["--profile", "ci"].map(OsString::from));
    }
    if !args.iter().any(chooses_threads) {
        // Two more than there are processors: runs of simulated hosts, of which two go on at a time, mostly wait.
        let threads = std::thread::available_parallelism().map_or(2, |n| n.get() + 2);
        nextest.extend(["--test-threads".into(), threads.to_string().into()]);
    }
    nextest.extend_from_slice(args);
    nextest
}

/// A program that was built for the tests, for the images that they use: to build it once more, static and optimised, takes minutes, and
/// a machine takes as long with this one. `None` where it would not run there: it wants a newer C library than the lab OS has, say.
fn for_images(target: &Path, images: &Path, name: &str) -> Option<PathBuf> {
    if name == "vlab-node" && std::env::var_os(NODE).is_some() {
        return None;
    }
    let (built, own) = (target.join("debug").join(name), target.join(FOR_IMAGES).join(name));
    let runs = Command::new(images).arg("--runs-in-lab").arg(&built).status();
    if !runs.is_ok_and(|status| status.success()) {
        say(&format!("{name} for the images is built once more, as a static program"));
        return None;
    }
    std::fs::create_dir_all(own.parent()?).ok()?;
    // Without its symbols: a third of it. Whoever links has the tool.
    let stripped = Command::new("strip").arg("-o").args([&own, &built]).status();
    Some(if stripped.is_ok_and(|status| status.success()) { own } else { built })
}

/// What was done, and what the rest is done with.
struct Steps {
    /// Up to the end of the tests; `None`: there is none, ours or another.
    engine: Option<Option<Private>>,
    skips: Skips,
    /// The program of machines, where it is not built for them.
    node: Option<PathBuf>,
    results: Vec<String>,
    first_failure: Option<ExitCode>,
}

impl Steps {
    fn cargo(&mut self, args: impl IntoIterator<Item = OsString>) {
        self.step(None, args);
    }

    /// Runs a program (cargo, without one) to its end.
    fn step(&mut self, program: Option<&Path>, args: impl IntoIterator<Item = OsString>) {
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
        if let Some(Some(engine)) = &self.engine {
            command.env("DOCKER_HOST", engine.host());
        }
        if let Some(node) = &self.node {
            command.env(NODE, node);
        }
        let code = match command.args(&args).status() {
            Ok(status) => status.code(),
            Err(error) => {
                say(&format!("cannot start it: {error}"));
                Some(i32::from(INTERNAL))
            }
        };
        let ok = code == Some(0);
        let took = begin.elapsed().as_secs();
        self.results.push(format!(
            "{} {:3} min {:02} s  {shown}",
            if ok { "ok    " } else { "FAILED" },
            took / 60,
            took % 60
        ));
        if !ok {
            self.first_failure = self.first_failure.or(Some(exit_code(code)));
        }
    }

    /// Says what was done, and judges what was skipped.
    fn end(self, ci: bool) -> ExitCode {
        let Self { engine, skips, results, mut first_failure, .. } = self;
        drop(engine);
        say(&format!("\n{}\n", results.join("\n")));
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

/// An engine of our own for the tests with containers, where this machine has none that runs; `None`: there is none at all, and
/// these tests are skipped, which in CI is a failure.
fn test_engine(target: &Path, ci: bool, may_install: bool) -> Option<Option<Private>> {
    match ensure(Purpose::Containers, may_install && ci, say).and_then(|_| engine::for_tests(target)) {
        Ok(engine) => Some(engine),
        Err(why) => {
            say(&format!("no container engine: {why}\nThe tests with containers are skipped."));
            None
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
