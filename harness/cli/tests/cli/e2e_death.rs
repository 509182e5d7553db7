//! Ctrl-C, `kill -9`, and the death of the parts of the lab: a clear verdict, and nothing stays behind.

use std::process::Stdio;
use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use vlab_judge::result::{CheckKind, CheckVerdict, Verdict};

use crate::bench::{CliFixture, RUN, signal, until};

#[test]
fn ctrl_c_cleans_up_and_is_inconclusive() {
    let bench = CliFixture::new();
    let run = bench.start(&["scenario", "sno"]);
    bench.wait_for_history("Writing image to disk");
    run.signal("INT");
    run.end(RUN).ends_with(3).says(&["interrupted by the user", "inconclusive"]);
    let result = bench.result();
    assert_eq!((result.verdict, result.exit_code), (Verdict::Inconclusive, 3));
    assert!(bench.latest().join("report.html").exists());
    assert!(!bench.history().is_empty());
    bench.nothing_is_left();
    // What was seen until then is still there to be looked at, and stays inconclusive.
    bench.vlab(&["check", "latest"]).ends_with(3).says(&["interrupted by the user"]);
}

/// Nobody reads what it prints any more, and the shell has said that it goes: the report is written, and nothing is left.
#[test]
fn a_closed_terminal_ends_a_run_in_an_orderly_way() {
    let bench = CliFixture::new();
    let mut command = bench.command(&["scenario", "sno"]);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    bench.wait_for_history("Writing image to disk");
    drop((run.stdout.take(), run.stderr.take()));
    signal(i32::try_from(run.id()).unwrap(), "HUP");
    let mut ended = None;
    until("the end of the run", RUN, || {
        ended = run.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.and_then(|status| status.code()), Some(3));
    assert_eq!(bench.result().verdict, Verdict::Inconclusive);
    assert!(bench.latest().join("report.html").exists() && bench.latest().join("junit_sno.xml").exists());
    bench.nothing_is_left();
}

/// What CI does when a job is cancelled: a signal, and some seconds later the end.
#[test]
fn a_job_that_is_cancelled_leaves_its_report() {
    let bench = CliFixture::new();
    let run = bench.start(&["scenario", "sno"]);
    bench.wait_for_history("Writing image to disk");
    run.signal("TERM");
    run.end(RUN).ends_with(3).says(&["inconclusive"]);
    assert!(bench.latest().join("report.html").exists() && bench.latest().join("junit_sno.xml").exists());
    bench.nothing_is_left();
}

/// While PostgreSQL and the service are being started, nobody waits for them any more, and the run itself leaves nothing to
/// its supervisor.
#[test]
fn ctrl_c_in_the_set_up_cleans_up() {
    for pause in [0, 60, 120, 180, 340] {
        let bench = CliFixture::new();
        let run = bench.start(&["scenario", "sno"]);
        // From here on the signal is taken: the start marker is written later.
        until("the start marker", RUN, || bench.latest().join("started.json").exists());
        std::thread::sleep(Duration::from_millis(pause));
        run.signal("INT");
        let said = run.end(RUN).ends_with(3).says(&["interrupted"]);
        let result = bench.result();
        assert_eq!(result.verdict, Verdict::Inconclusive, "{said:?}");
        let leak = result.checks.iter().find(|c| c.kind == CheckKind::Leak).expect("no check for leaks");
        assert_eq!(leak.verdict, CheckVerdict::Passed, "after {pause} ms: {leak:#?}");
        bench.nothing_is_left();
    }
}

/// With the service stopped, stopping it takes its whole grace: the second signal surely comes in the middle.
#[test]
fn ctrl_c_twice_is_130_while_the_lab_does_not_end() {
    let bench = CliFixture::new();
    let mut run = bench.start(&["scenario", "sno"]);
    bench.wait_for_history("Writing image to disk");
    signal(bench.service_pid(), "STOP");
    // Two that come before the first was heard are one: again, until it has heard twice.
    until("the end", RUN, || {
        run.signal("INT");
        std::thread::sleep(Duration::from_millis(100));
        run.has_ended()
    });
    run.end(RUN).ends_with(130);
    bench.nothing_is_left();
}

/// At moments from the first millisecond to the end of the installation.
#[test]
fn kill_9_of_the_harness_leaves_nothing() {
    let mut dice = ChaCha8Rng::seed_from_u64(20_260_101);
    let mut in_the_middle = 0;
    for round in 0..6 {
        let bench = CliFixture::new();
        let mut run = bench.start(&["scenario", "sno"]);
        // The first ones in the set-up, where things are born and not yet written down.
        let span = if round < 3 { 600 } else { 5000 };
        let pause = Duration::from_millis(u64::from(dice.next_u32()) % span);
        std::thread::sleep(pause);
        if !run.has_ended() {
            in_the_middle += 1;
        }
        run.signal("KILL");
        drop(run);
        eprintln!("round {round}: killed after {pause:?}");
        bench.nothing_is_left();
    }
    assert!(in_the_middle >= 4, "only {in_the_middle} were killed before their end");
}

/// A run that was killed can be judged as far as it went, and says that it was.
#[test]
fn a_killed_run_is_told_from_one_that_ended() {
    let bench = CliFixture::new();
    let run = bench.start(&["scenario", "sno"]);
    bench.wait_for_history("Writing image to disk");
    run.signal("KILL");
    drop(run);
    bench.nothing_is_left();
    assert!(!bench.latest().join("result.json").exists());
    bench.vlab(&["check", "latest"]).ends_with(3).says(&["killed before its end"]);
    bench.vlab(&["report", "latest"]).ends_with(0);
    assert_eq!(bench.result().verdict, Verdict::Inconclusive);
}

#[test]
fn a_service_that_dies_has_failed() {
    let bench = CliFixture::new();
    let run = bench.start(&["scenario", "sno"]);
    bench.wait_for_history("Writing image to disk");
    signal(bench.service_pid(), "KILL");
    run.end(RUN).ends_with(1).says(&["the service under test exited unexpectedly", "signal: 9"]);
    let result = bench.result();
    assert_eq!(result.verdict, Verdict::Failed);
    let check = result.checks.iter().find(|c| c.name == "the service stays up").unwrap();
    assert_eq!(check.verdict, CheckVerdict::Failed);
    assert!(!check.last_things.is_empty(), "the last lines of its log are missing: {check:#?}");
    bench.nothing_is_left();
    // Judged again, the service has still died.
    bench.vlab(&["check", "latest"]).ends_with(1).says(&["the service ended by itself"]);
}

/// The lab's fault, not the product's: it proves nothing, and soon.
#[test]
fn a_database_that_dies_is_inconclusive() {
    let bench = CliFixture::new();
    let run = bench.start(&["scenario", "sno"]);
    bench.wait_for_history("Writing image to disk");
    signal(bench.postmaster_pid(), "KILL");
    run.end(RUN).ends_with(3).says(&["inconclusive", "PostgreSQL"]);
    let result = bench.result();
    assert_eq!(result.verdict, Verdict::Inconclusive);
    assert!(result.checks.iter().any(|c| c.kind == CheckKind::Lab && c.name == "postgresql"), "{:#?}", result.checks);
    bench.nothing_is_left();
    bench.vlab(&["check", "latest"]).ends_with(3).says(&["PostgreSQL"]);
}

/// The supervisor is only for the worst case: a run whose supervisor was killed still cleans up after itself.
#[test]
fn a_run_without_its_supervisor_cleans_up_by_itself() {
    let bench = CliFixture::new();
    let run = bench.start(&["scenario", "insufficient-hardware"]);
    let supervisor = || bench.processes().into_iter().find(|(_, line)| line.contains("__supervise"));
    // The service is started after the supervisor has said that it watches.
    until("the service", RUN, || bench.processes().iter().any(|(_, line)| line.contains(" service ")));
    signal(supervisor().unwrap().0, "KILL");
    run.end(RUN).ends_with(0);
    bench.nothing_is_left();
}

/// What the harness cannot read any more may have happened all the same: that is no "no host ever registered".
#[test]
fn a_database_that_cannot_be_read_any_more_is_inconclusive() {
    let bench = CliFixture::new();
    let run = bench.start(&["scenario", "sno"]);
    bench.wait_for_history("Writing image to disk");
    let environ = std::fs::read(format!("/proc/{}/environ", bench.service_pid())).unwrap();
    let conninfo = String::from_utf8(environ).unwrap();
    let conninfo = conninfo.split('\0').find_map(|entry| entry.strip_prefix("VLAB_POSTGRES=")).unwrap().to_owned();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let client = vlab_lab::postgres::connect(&conninfo).await.unwrap();
        // The service writes meanwhile: of two that wait for each other one is told to try again.
        loop {
            match client.batch_execute("DROP SCHEMA vlab_history CASCADE").await {
                Err(error) if error.code().is_some_and(|code| code.code() == "40P01") => {}
                done => break done.unwrap(),
            }
        }
    });
    let words = ["inconclusive", "the changes in the service's tables can no longer be read"];
    run.end(RUN).ends_with(3).says(&words);
    let result = bench.result();
    assert!(result.checks.iter().any(|c| c.kind == CheckKind::Lab && c.name == "history"), "{:#?}", result.checks);
    bench.nothing_is_left();
}

/// A service that starts something in a session of its own, where nobody who ends its process group finds it.
#[test]
fn what_a_service_leaves_in_a_session_of_its_own_is_found_and_removed() {
    let bench = CliFixture::new();
    // The service ends only when its child has left its session: before, the child would be ended with its group.
    let there = bench.path("there");
    let script = format!(
        "#!/bin/sh\nsetsid sh -c 'sleep 987 & : >{0}; exec sleep 986' </dev/null >/dev/null 2>&1 &\n\
         until [ -e {0} ]; do sleep 0.05; done\nexit 7\n",
        there.display()
    );
    let program = bench.file("service", &script);
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let service = format!("process:{program}");
    bench.vlab(&["scenario", "sno", "--hosts", "sim", "--service", &service]).ends_with(3).says(&["exit status: 7"]);
    let result = bench.result();
    let leak = result.checks.iter().find(|c| c.kind == CheckKind::Leak).expect("no check for leaks");
    assert_eq!(leak.verdict, CheckVerdict::Failed, "{leak:#?}");
    assert!(leak.message.starts_with("2 things were left: process "), "{leak:#?}");
    assert!(leak.message.contains("(sleep)"), "{leak:#?}");
    bench.nothing_is_left();
}
