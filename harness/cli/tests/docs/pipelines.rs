//! The pipelines in `ci` are what they say: each can be read, calls jobs that exist, keeps what it should, fits its system's public schema
//! (where a program that knows the schema is installed), and the steps of the plain form and of GitHub's do what they should in a
//! fresh clone.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::place::{Place, root, text_of};

const PLAIN: &str = "ci/pipeline.sh";
const GITHUB: &str = "ci/github-actions.yml";
const GITLAB: &str = "ci/gitlab-ci.yml";
const PROW: &str = "ci/prow.yaml";

fn read(path: &str) -> Value {
    serde_yaml::from_str(&text_of(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The jobs of the plain form, from its `case`.
fn jobs() -> BTreeSet<String> {
    let text = text_of(PLAIN);
    let words = text.lines().filter_map(|line| line.strip_suffix(')'));
    words
        .filter(|word| !word.is_empty() && word.chars().all(|c| c == '-' || c.is_ascii_lowercase()))
        .map(str::to_owned)
        .collect()
}

/// The job that a command calls, if it calls one.
fn called(command: &str) -> Option<&str> {
    command.trim().strip_prefix("ci/pipeline.sh ").map(str::trim)
}

fn word<'a>(value: &'a Value, what: &str) -> &'a str {
    value.as_str().unwrap_or_else(|| panic!("{what} is no text: {value}"))
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[test]
fn the_plain_form_has_the_jobs_that_it_lists_and_shell_can_read_it() {
    let checked = Command::new("bash").arg("-n").arg(root().join(PLAIN)).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let listed = Command::new(root().join(PLAIN)).output().unwrap();
    assert_eq!(listed.status.code(), Some(2));
    let help = String::from_utf8(listed.stderr).unwrap();
    for job in jobs() {
        assert!(help.contains(&format!("\n  {job} ")), "{job} is not listed:\n{help}");
    }
    assert!(jobs().len() >= 8, "{:?}", jobs());
}

#[test]
fn github_actions() {
    let pipeline = read(GITHUB);
    let mut covered = BTreeSet::new();
    for (name, job) in members(&pipeline["jobs"]) {
        assert!(job["runs-on"].is_string() && job["timeout-minutes"].is_u64(), "{name}");
        let (mut saved, mut call) = (false, None);
        for step in items(&job["steps"]) {
            assert!(step["uses"].is_string() != step["run"].is_string(), "{name}: one of `uses` and `run`: {step}");
            if let Some(action) = step["uses"].as_str() {
                assert!(action.contains('@'), "{name}: {action} has no version");
                saved |= action.starts_with("actions/upload-artifact@") && step["if"] == "always()";
                if action.starts_with("actions/cache@") {
                    assert!(step["with"]["key"].is_string() && step["with"]["path"].is_string(), "{name}: {step}");
                }
            }
            call = call.or(step["run"].as_str().and_then(called));
        }
        let call = call.unwrap_or_else(|| panic!("{name} calls no job of {PLAIN}"));
        assert!(jobs().contains(call), "{name} calls {call}, which there is not");
        // What ran is kept, whatever came of it. The check runs nothing, and of a bare machine nothing is left.
        assert!(saved || ["check", "fresh-machine"].contains(&call), "{name} keeps nothing when it fails");
        covered.insert(call.to_owned());
    }
    // Whoever only uses vlab needs none of the tests of this project.
    for job in jobs() {
        assert!(covered.contains(&job), "no job of {GITHUB} calls {job}");
    }
    let shards = items(&pipeline["jobs"]["nightly"]["strategy"]["matrix"]["shard"]).count();
    assert!(text_of(GITHUB).contains(&format!("matrix.shard }}}}/{shards}")), "the shards are {shards}");
}

#[test]
fn gitlab_ci() {
    let pipeline = read(GITLAB);
    let stages: Vec<&str> = items(&pipeline["stages"]).map(|stage| word(stage, "a stage")).collect();
    let junit = word(&pipeline[".lab"]["artifacts"]["reports"]["junit"], "junit");
    assert!(junit.ends_with("/**/junit*.xml"), "{junit}");
    assert_eq!(pipeline[".lab"]["artifacts"]["when"], "always");
    let mut covered = BTreeSet::new();
    for (name, job) in members(&pipeline).filter(|(_, job)| job.get("script").is_some()) {
        assert!(stages.contains(&word(&job["stage"], name)), "{name}: {}", job["stage"]);
        assert_eq!(job["extends"], ".lab", "{name} keeps its runs as the others do");
        let call = called(word(&job["script"], name)).unwrap_or_else(|| panic!("{name}: {}", job["script"]));
        assert!(jobs().contains(call), "{name} calls {call}, which there is not");
        covered.insert(call.to_owned());
    }
    for job in jobs().into_iter().filter(|job| job != "tests") {
        assert!(covered.contains(&job), "no job of {GITLAB} calls {job}");
    }
}

#[test]
fn prow() {
    let pipeline = read(PROW);
    let presubmits = members(&pipeline["presubmits"]).flat_map(|(_, jobs)| items(jobs));
    let mut names = BTreeSet::new();
    let mut shards = BTreeSet::new();
    let mut covered = BTreeSet::new();
    for job in presubmits.chain(items(&pipeline["periodics"])) {
        let name = word(&job["name"], "the name of a job");
        assert!(names.insert(name.to_owned()), "{name} is there twice");
        assert_eq!(job["decorate"], true, "{name}: without the decoration there is no ARTIFACT_DIR");
        let container = &job["spec"]["containers"][0];
        assert_eq!(container["command"][0], PLAIN, "{name}");
        let call = word(&container["args"][0], name);
        assert!(jobs().contains(call), "{name} calls {call}, which there is not");
        covered.insert(call.to_owned());
        let shard = items(&container["env"]).filter(|variable| variable["name"] == "SHARD");
        shards.extend(shard.filter_map(|variable| variable["value"].as_str().map(str::to_owned)));
    }
    assert_eq!(shards.into_iter().collect::<Vec<_>>(), ["1/2", "2/2"]);
    // Its pods are not privileged.
    for job in jobs().into_iter().filter(|job| !["tests", "fresh-machine"].contains(&job.as_str())) {
        assert!(covered.contains(&job), "no job of {PROW} calls {job}");
    }
    assert!(items(&pipeline["periodics"]).all(|job| job["cron"].is_string() && job["extra_refs"].is_array()));
}

/// `check-jsonschema` has the public schemas of both systems in it (a Python package: `pip install check-jsonschema`).
#[test]
fn pipelines_fit_the_public_schemas() {
    let program = std::env::var_os("VLAB_CHECK_JSONSCHEMA").unwrap_or_else(|| "check-jsonschema".into());
    for (schema, path) in [("vendor.github-workflows", GITHUB), ("vendor.gitlab-ci", GITLAB)] {
        let checked = Command::new(&program).args(["--builtin-schema", schema]).arg(root().join(path)).output();
        let Ok(checked) = checked else {
            vlab_skip::skip!("check-jsonschema is not installed; it is a Python package");
            return;
        };
        assert!(
            checked.status.success(),
            "{path} does not fit {schema}:\n{}{}",
            String::from_utf8_lossy(&checked.stdout),
            String::from_utf8_lossy(&checked.stderr)
        );
    }
}

/// A clone of what is committed, with what has not been committed of `ci` put over it: the forms that are tested are those on the disk.
fn clone(into: &Path) {
    let git = Command::new("git").args(["clone", "--quiet", "--no-hardlinks"]).arg(root()).arg(into).output();
    let cloned = git.is_ok_and(|out| out.status.success());
    if !cloned {
        // The sources of an archive, which are in no repository.
        let copied =
            Command::new("cp").arg("-r").args([root().join("scenarios"), root().join("Cargo.toml")]).arg(into).status();
        assert!(copied.unwrap().success());
    }
    let copied = Command::new("cp").args(["-r", "--remove-destination"]).arg(root().join("ci")).arg(into).status();
    assert!(copied.unwrap().success());
}

/// The steps of a job of GitHub's form, as its runner would run them: the shell of each, in order.
fn steps(job: &str) -> String {
    let pipeline = read(GITHUB);
    let steps: Vec<String> = items(&pipeline["jobs"][job]["steps"])
        .filter_map(|step| step["run"].as_str())
        .map(|run| format!("( set -eo pipefail\n{run}\n)"))
        .collect();
    assert!(steps.len() >= 2, "{job}: {steps:?}");
    steps.join(" && ")
}

/// The simulated service as a program that is started like the real one.
const SERVICE: &str = "\
#!/bin/sh
# It opens the images that it is told.
unset OS_IMAGES
export VLAB_POSTGRES=\"host=$DB_HOST port=$DB_PORT user=$DB_USER password=$DB_PASS dbname=$DB_NAME\"
exec vlab service --listen \"127.0.0.1:$HTTP_LISTEN_PORT\"
";

#[test]
fn e2e_the_steps_of_a_pipeline_pass_in_a_fresh_clone() {
    let place = Place::new();
    let work = place.work();
    clone(&work.join("clone"));
    // What a runner has and this machine may lack, or what would change it.
    place.program("rustup", "#!/bin/sh\necho \"rustup $*\"\n");
    for (name, commands) in
        [("check", steps("check")), ("scenarios", steps("scenarios")), ("plain", format!("{PLAIN} scenarios"))]
    {
        let summary = work.join(format!("{name}.md"));
        let script = format!(
            "cd clone && export CI=true GITHUB_ACTIONS=true GITHUB_WORKSPACE=$PWD GITHUB_STEP_SUMMARY={} && {commands}",
            summary.display()
        );
        let (code, said) = place.run(&script);
        assert_eq!(code, Some(0), "{name}:\n{said}");
        if name == "check" {
            assert!(said.contains("sno: valid"), "{said}");
        } else {
            let summary = std::fs::read_to_string(&summary).unwrap();
            assert!(summary.contains("| ✅ passed | sno |"), "{summary}");
            assert!(!said.contains("::error"), "nothing failed:\n{said}");
        }
    }
    // One of many parts of the night, and some of the questions that are asked of a service which is a program: ours, which speaks the
    // same. All of them are asked of it in a test of their own.
    place.program("assisted-service", SERVICE);
    for (name, variables, job) in [
        ("nightly", "SHARD=1/30".to_owned(), "nightly"),
        ("conformance", "SERVICE=process:assisted-service CHECKS=register*".to_owned(), "conformance"),
    ] {
        let script = format!("cd clone && export CI=true {variables} VLAB_RUNS=$PWD/runs-{name} && {}", steps(job));
        let (code, said) = place.run(&script);
        assert_eq!(code, Some(0), "{name}:\n{said}");
        let runs = work.join("clone").join(format!("runs-{name}"));
        assert!(std::fs::read_dir(&runs).is_ok_and(|mut runs| runs.next().is_some()), "{name} keeps its runs:\n{said}");
    }
    // One at a time: the same search everywhere. It may find something, which it then keeps among the artifacts.
    let script = format!(
        "cd clone && export CI=true EXPLORE_RUNS=3 EXPLORE_JOBS=1 EXPLORE_CORPUS=$PWD/corpus VLAB_RUNS=$PWD/runs && {}",
        steps("explore")
    );
    let (code, said) = place.run(&script);
    let kept = |folder: &str| std::fs::read_dir(work.join("clone").join(folder)).map_or(0, Iterator::count);
    let found = kept("runs/findings") > 0;
    assert_eq!(code, Some(i32::from(found)), "explore:\n{said}");
    assert!(kept("corpus") > 0, "the next night begins with what this one reached:\n{said}");
}
