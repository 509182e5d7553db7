//! A run in miniature for the tests of the supervisor: makes one thing of each kind, says who they are, and waits for its
//! end. `mini-harness <registry> <folder> <supervised|alone>`.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use vlab_lab::ledger::{Ledger, Resource};
use vlab_lab::postgres::{PgCluster, PgOptions};
use vlab_lab::process::{Child, Program};
use vlab_lab::supervisor::{self, Supervisor};

type Fault = Box<dyn std::error::Error>;

fn main() -> Result<ExitCode, Fault> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    if args.first().is_some_and(|verb| verb == supervisor::VERB) {
        return Ok(supervisor::supervise_main(&args[1..], redact));
    }
    if args.first().is_some_and(|verb| verb == vlab_lab::pod::VERB) {
        return Ok(vlab_lab::pod::in_pod_main(&args[1..]));
    }
    let [registry, folder, how] = &args[..] else { return Err("registry, folder, supervised|alone".into()) };
    tokio::runtime::Runtime::new()?.block_on(run(registry.into(), folder.into(), how == "supervised"))?;
    Ok(ExitCode::SUCCESS)
}

/// What the real program does with more care.
fn redact(secrets: &[String], logs: &[PathBuf]) {
    for log in logs {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let clean = secrets.iter().fold(text, |text, secret| text.replace(secret, "(redacted)"));
        let _ = std::fs::write(log, clean);
    }
}

async fn run(registry: PathBuf, folder: PathBuf, supervised: bool) -> Result<(), Fault> {
    let ledger = Arc::new(Ledger::create(&registry, &format!("mini-{}", std::process::id()))?);
    let mut supervisor = match supervised {
        true => Some(Supervisor::spawn(&ledger, &folder.join("supervisor.log"))?),
        false => None,
    };
    if let Some(supervisor) = &mut supervisor {
        supervisor.will_redact(vec!["swordfish".to_owned()], vec![folder.join("stubborn.log")])?;
        supervisor.will_redact(vec!["herring".to_owned()], Vec::new())?;
    }

    let made = folder.join("made");
    ledger.record(Resource::Directory { path: made.clone() })?;
    std::fs::create_dir(&made)?;
    std::fs::write(made.join("inside"), "x")?;
    let file = folder.join("file");
    ledger.record(Resource::File { path: file.clone() })?;
    std::fs::write(&file, "x")?;
    let socket = folder.join("socket");
    ledger.record(Resource::Socket { path: socket.clone() })?;
    let _socket = UnixListener::bind(&socket)?;

    let options = PgOptions { parent: Some(folder.clone()), ledger: Some(Arc::clone(&ledger)), ..PgOptions::default() };
    let cluster = PgCluster::start(options).await?;
    // Without a death signal and deaf to the polite ones: only the supervisor can end it.
    let script = "trap '' TERM INT HUP; echo swordfish and herring; \
                  setsid sleep 600 >/dev/null 2>&1 & sleep 600 & echo $! > child; wait";
    let mut program = Program::new("stubborn", "/bin/sh", folder.join("stubborn.log")).args(["-c", script]);
    program.death_signal = None;
    program.directory = Some(folder.clone());
    let stubborn = Child::spawn(program.ledger(Some(Arc::clone(&ledger))))?;
    // Dies with this process.
    let mortal = Child::spawn(Program::new("mortal", "/bin/sleep", folder.join("mortal.log")).args(["600"]))?;

    let postmaster = cluster.postmaster().map_or(0, |postmaster| postmaster.pid);
    println!("{} {postmaster} {} {}", supervisor.as_ref().map_or(0, Supervisor::pid), stubborn.pid(), mortal.pid());
    // The tests end us; closing our stdin is the orderly way.
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    drop((stubborn, mortal));
    cluster.stop().await?;
    std::fs::remove_dir_all(&made)?;
    std::fs::remove_file(&file)?;
    std::fs::remove_file(&socket)?;
    for (token, _) in ledger.open_entries() {
        ledger.release(token)?;
    }
    let leaked = ledger.close()?;
    // What has left the group of the program that started it.
    vlab_lab::leaks::end_processes(ledger.run(), &ledger.strays(), vlab_lab::leaks::PATIENCE);
    let left = vlab_lab::leaks::processes(ledger.run());
    if !left.is_empty() {
        return Err(format!("what has a session of its own is still there: {left:?}").into());
    }
    if let Some(supervisor) = supervisor {
        supervisor.dismiss()?;
    }
    println!("leaked {}", leaked.len());
    Ok(())
}
