//! Programs: started with a log, waited for, ended with all that they started.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vlab_lab::leaks;
use vlab_lab::ledger::{Ledger, Resource};
use vlab_lab::proc::{self, ProcessId};
use vlab_lab::process::{Child, ProcessError, Program, last_lines};
use vlab_lab::wait::ReadyError;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(2);

fn sh(dir: &Path, script: &str) -> Program {
    let mut program = Program::new("shell", "/bin/sh", dir.join("log")).args(["-c", script]);
    program.directory = Some(dir.to_path_buf());
    program
}

async fn child_of(child: &Child, file: &Path) -> ProcessId {
    let pid = child
        .wait_ready("it has a child", LONG, SHORT, || async {
            let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
            text.strip_suffix('\n').map(|pid| pid.parse::<u32>()).transpose().map_err(|error| error.to_string())
        })
        .await
        .unwrap();
    ProcessId::of(pid).unwrap()
}

/// Another session, another parent, and none of the environment: nothing but its parents tells whose it is.
#[tokio::test]
async fn what_has_thrown_its_environment_away_is_found_when_its_program_ends() {
    let dir = tempfile::tempdir().unwrap();
    let orphan = "env -i setsid sh -c 'sleep 602 & echo $! > child' </dev/null >/dev/null 2>&1";
    for how in ["drop", "kill9", "stop"] {
        let run = format!("strays-{}-{how}", std::process::id());
        let ledger = Arc::new(Ledger::create(&dir.path().join("ledgers"), &run).unwrap());
        let program = sh(dir.path(), &format!("{orphan}; exec sleep 601")).ledger(Some(ledger.clone()));
        let child = Child::spawn(program).unwrap();
        let stray = child_of(&child, &dir.path().join("child")).await;
        match how {
            "kill9" => assert!(!child.kill9().await.success()),
            "stop" => assert!(!child.stop(Duration::from_secs(5)).await.killed),
            _ => {}
        }
        drop(child);
        assert_eq!(leaks::processes(&run), [], "{how}");
        assert!(stray.is_alive(), "{how}");
        assert_eq!(
            leaks::end_processes(&run, &ledger.strays(), Duration::ZERO),
            [format!("process {} (sleep)", stray.pid)]
        );
        assert!(!stray.is_alive(), "{how}");
        fs::remove_file(dir.path().join("child")).unwrap();
    }
}

#[tokio::test]
async fn its_end_is_the_end_of_all_that_it_started() {
    let dir = tempfile::tempdir().unwrap();
    for how in ["drop", "kill9", "stop", "by itself"] {
        let end = if how == "by itself" { "exit 3" } else { "wait" };
        let child = Child::spawn(sh(dir.path(), &format!("sleep 600 & echo $! > child; {end}"))).unwrap();
        let grandchild = match how {
            "by itself" => None,
            _ => Some(child_of(&child, &dir.path().join("child")).await),
        };
        let id = child.id();
        match how {
            "kill9" => assert!(!child.kill9().await.success()),
            "stop" => assert!(!child.stop(Duration::from_secs(5)).await.status.success()),
            "by itself" => assert_eq!(child.wait().await.code(), Some(3)),
            _ => {}
        }
        drop(child);
        assert!(!id.is_alive(), "{how}");
        assert!(grandchild.is_none_or(|grandchild| !grandchild.is_alive()), "{how}");
        assert_eq!(proc::working_in(dir.path()), [], "{how}");
        fs::remove_file(dir.path().join("child")).unwrap();
    }
}

#[tokio::test]
async fn stop_is_polite_first_and_not_forever() {
    let dir = tempfile::tempdir().unwrap();
    let polite =
        Child::spawn(sh(dir.path(), "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done")).unwrap();
    let up = |lines: Vec<String>| lines.contains(&"up".to_owned()).then_some(()).ok_or_else(|| lines.join("|"));
    polite.wait_ready("up", LONG, SHORT, || async { up(polite.last_lines(5)).map(Some) }).await.unwrap();
    let stopped = polite.stop(LONG).await;
    assert_eq!((stopped.status.code(), stopped.killed), (Some(0), false));
    assert_eq!(polite.last_lines(1), ["bye"]);
    assert!(!polite.signal(nix::sys::signal::Signal::SIGTERM), "there is nobody to signal");

    fs::remove_file(dir.path().join("log")).unwrap();
    let deaf = Child::spawn(sh(dir.path(), "trap '' TERM; echo up; while :; do sleep 0.01; done")).unwrap();
    deaf.wait_ready("up", LONG, SHORT, || async { up(deaf.last_lines(5)).map(Some) }).await.unwrap();
    let started = Instant::now();
    let stopped = deaf.stop(Duration::from_millis(100)).await;
    assert_eq!((std::os::unix::process::ExitStatusExt::signal(&stopped.status), stopped.killed), (Some(9), true));
    assert!(started.elapsed() >= Duration::from_millis(100));
}

#[tokio::test]
async fn one_that_ends_is_not_waited_for_and_its_last_words_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let child = Child::spawn(sh(dir.path(), "echo out; echo 'no such table' >&2; exit 7")).unwrap();
    let started = Instant::now();
    let error = child.wait_ready::<(), _, _>("ready", LONG, SHORT, || async { Ok(None) }).await.unwrap_err();
    assert!(started.elapsed() < LONG);
    assert!(
        matches!(&error, ProcessError::NotReady(ReadyError::Ended { end, .. }) if end == "shell ended (exit status: 7)"),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.starts_with("shell ended (exit status: 7) before ready") && text.ends_with("out\nno such table"),
        "{text}"
    );
}

#[tokio::test]
async fn one_that_never_gets_ready_is_reported_with_what_was_seen_last() {
    let dir = tempfile::tempdir().unwrap();
    let child = Child::spawn(sh(dir.path(), "echo starting; sleep 600")).unwrap();
    let budget = Duration::from_millis(300);
    let look = || async { Err::<Option<()>, _>("503 Service Unavailable".to_owned()) };
    let text = child.wait_ready("GET /ready", budget, SHORT, look).await.unwrap_err().to_string();
    assert!(text.starts_with("GET /ready: not within 300ms"), "{text}");
    assert!(text.contains("last seen: 503 Service Unavailable") && text.ends_with("starting"), "{text}");
    assert_eq!(child.ended(), None);
}

#[tokio::test]
async fn it_is_in_the_ledger_exactly_while_it_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Arc::new(Ledger::create(dir.path(), "r1").unwrap());
    let child = Child::spawn(sh(dir.path(), "sleep 600").ledger(Some(Arc::clone(&ledger)))).unwrap();
    let open = ledger.open_entries();
    let [(token, Resource::Process { process, pgid, .. })] = &open[..] else { panic!("{open:?}") };
    assert_eq!((*process, *pgid), (Some(child.id()), Some(child.pid())));
    // The kernel shows the new program's environment a moment after it was born.
    child
        .wait_ready("it bears its mark", LONG, SHORT, || async {
            let marked = proc::with_environment(vlab_lab::ledger::MARK, &ledger.mark(*token));
            if marked.contains(&child.id()) { Ok(Some(())) } else { Err(format!("{marked:?}")) }
        })
        .await
        .unwrap();
    drop(child);
    assert_eq!(ledger.open_entries(), []);

    let mut none = sh(dir.path(), "").ledger(Some(Arc::clone(&ledger)));
    none.executable = "/no/such/program".into();
    let text = Child::spawn(none).unwrap_err().to_string();
    assert!(text.starts_with("shell: cannot start /no/such/program: No such file"), "{text}");
    assert_eq!(ledger.open_entries(), []);
}

#[test]
fn the_last_lines_of_a_long_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    assert_eq!(last_lines(&path, 5), [] as [String; 0]);
    let text: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
    fs::write(&path, text).unwrap();
    assert_eq!(last_lines(&path, 2), ["line 19998", "line 19999"]);
    fs::write(&path, b"one\n\xff two").unwrap();
    assert_eq!(last_lines(&path, 50), ["one", "\u{fffd} two"]);
}

#[tokio::test]
async fn what_is_expendable_goes_first_where_memory_ends() {
    let dir = tempfile::tempdir().unwrap();
    let ours: i32 = fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
    for (expendable, wanted) in [(false, ours), (true, ours.max(500))] {
        // What it starts inherits it: the helper starts the machines.
        let mut program = sh(dir.path(), "cat /proc/self/oom_score_adj > score");
        program.expendable = expendable;
        assert_eq!(Child::spawn(program).unwrap().wait().await.code(), Some(0));
        let score: i32 = fs::read_to_string(dir.path().join("score")).unwrap().trim().parse().unwrap();
        assert_eq!(score, wanted, "expendable: {expendable}");
    }
}
