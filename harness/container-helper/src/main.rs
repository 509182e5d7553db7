//! `vlab-container-helper`: the one program of the project with `testcontainers` in it. `vlab` starts it for runs with containers
//! and speaks JSON lines with it (see [`vlab_container_engine::helper`]), so that the build of `vlab` does not wait for what only
//! they need.
//!
//! `vlab-container-helper serve <socket> <engine> <version>`: `testcontainers` reaches the engine at `unix://<socket>`, which must
//! also be in `DOCKER_HOST`; a relay there leads to the engine and speaks its version of the language.
//!
//! When stdin ends, the program ends. Containers stay: what removes those of a dead run is its ledger.

mod containers;
mod relay;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use vlab_container_engine::Address;
use vlab_container_engine::helper::{Line, PROTOCOL, Request};

use containers::Containers;

const USAGE: &str = "usage: vlab-container-helper serve <socket> <engine> <version>

vlab starts this program for runs with containers; people have no use for it.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [verb, socket, engine, version] = &args[..] else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let ("serve", Ok(engine)) = (verb.as_str(), engine.parse()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("vlab-container-helper: cannot start: {error}");
            return ExitCode::from(70);
        }
    };
    runtime.block_on(serve(PathBuf::from(socket), engine, version));
    // Not the orderly end: it would remove the containers.
    std::process::exit(0)
}

async fn serve(socket: PathBuf, engine: Address, version: &str) {
    let (lines, written) = mpsc::unbounded_channel();
    let writer = tokio::spawn(write(written));
    match relay::open(&socket, engine, version) {
        Ok(()) => say(&lines, &Line::Hello { protocol: PROTOCOL }),
        Err(error) => {
            say(&lines, &Line::Refused { why: format!("the socket {}: {error}", socket.display()) });
            drop(lines);
            let _ = writer.await;
            return;
        }
    }
    let containers = Arc::new(Containers::default());
    let mut requests = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = requests.next_line().await {
        let request: Request = match serde_json::from_str(&line) {
            Ok(request) => request,
            Err(error) => {
                eprintln!("vlab-container-helper: not a request: {error}");
                continue;
            }
        };
        let (containers, lines) = (Arc::clone(&containers), lines.clone());
        // One that takes long keeps no other one waiting.
        tokio::spawn(async move {
            let result = Box::pin(containers.carry_out(request.call)).await;
            say(&lines, &Line::Answer { id: request.id, result });
        });
    }
    let _ = std::fs::remove_file(&socket);
}

fn say(lines: &mpsc::UnboundedSender<String>, line: &Line) {
    if let Ok(text) = serde_json::to_string(line) {
        let _ = lines.send(text + "\n");
    }
}

async fn write(mut lines: mpsc::UnboundedReceiver<String>) {
    let mut stdout = tokio::io::stdout();
    while let Some(line) = lines.recv().await {
        if stdout.write_all(line.as_bytes()).await.is_err() || stdout.flush().await.is_err() {
            return;
        }
    }
}
