//! Writing a machine down as it is (processors, memory, devices, disks, firmware variables), and going on from there, any number of times.
//!
//! QEMU writes and reads its state over a socket, at the other end of which is `vlab`: a QEMU that libvirt starts may start no
//! programs and open no files of its own. Disks are not copied a second time when a machine goes on: its own are layers over those that were
//! kept.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::domain::MachineSpec;
use super::{Machine, MachineError, blocking, io_at};
use crate::tree::link_or_copy;
use crate::wait;

/// How long QEMU may take to write or read a machine. One of 4 GiB takes seconds; a disk that others use makes it minutes.
const BUDGET: Duration = Duration::from_secs(300);
/// Between two looks at how far it is.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes a second: no limit that a computer reaches.
const FAST: u64 = 1 << 40;

/// Processors, memory and devices.
const STATE: &str = "state";
/// The console so far.
const CONSOLE: &str = "console.log";

/// The kept file of a disk.
fn disk(kept: &Path, name: &str) -> PathBuf {
    kept.join(format!("{name}.qcow2"))
}

/// The kept variables of the firmware.
pub(super) fn variables(kept: &Path) -> PathBuf {
    kept.join("nvram.fd")
}

/// The disks of a machine become layers over those that were kept.
pub(super) fn over(spec: &mut MachineSpec, kept: &Path) {
    for one in &mut spec.disks {
        one.base = Some(disk(kept, &one.name));
        (one.size_bytes, one.leftover) = (None, None);
    }
}

impl Machine {
    /// Writes it down into a new folder: everything that [`super::Machines::thaw`] needs. It stands still from then on and cannot go on
    /// here, because its disks belong to what was written. Its console has said that many bytes, as whole lines.
    ///
    /// # Errors
    /// It is off, QEMU cannot write it down, or the folder cannot be written.
    pub async fn freeze(&self, into: &Path) -> Result<u64, MachineError> {
        fs::DirBuilder::new().mode(0o700).create(into).map_err(io_at(into))?;
        self.monitor("migrate-set-parameters", json!({ "max-bandwidth": FAST })).await?;
        let socket = self.socket();
        let listener = UnixListener::bind(&socket).map_err(io_at(&socket))?;
        let state = into.join(STATE);
        let writes = tokio::task::spawn_blocking({
            let state = state.clone();
            move || write(&listener, &state)
        });
        let moved = async {
            self.monitor("migrate", json!({ "uri": format!("unix:{}", socket.display()) })).await?;
            self.moved("write the machine down").await
        };
        let moved = moved.await;
        if moved.is_err() {
            // Whoever waits for QEMU waits for nobody.
            drop(UnixStream::connect(&socket));
        }
        let written = writes.await;
        let _ = fs::remove_file(&socket);
        moved?;
        written.map_err(|error| io_at(&state)(io::Error::other(error)))?.map_err(io_at(&state))?;
        let (spec, placement, into) = (self.spec.clone(), self.placement.clone(), into.to_owned());
        blocking(move || {
            for one in &spec.disks {
                let image = placement.disk(one);
                link_or_copy(&image, &disk(&into, &one.name)).map_err(io_at(&image))?;
            }
            if placement.nvram().exists() {
                link_or_copy(&placement.nvram(), &variables(&into)).map_err(io_at(&into))?;
            }
            let text = fs::read(&placement.console_log).map_err(io_at(&placement.console_log))?;
            // Half a line is said to its end when it goes on.
            let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let console = into.join(CONSOLE);
            fs::write(&console, text).map_err(io_at(&console))?;
            Ok(whole as u64)
        })
        .await
    }

    /// Starts its QEMU and has it read what was kept.
    pub(super) async fn load(&self, kept: &Path) -> Result<(), MachineError> {
        let (said, log) = (kept.join(CONSOLE), &self.placement.console_log);
        fs::copy(&said, log).map_err(io_at(&said))?;
        self.start(self.xml.clone(), true).await?;
        let socket = self.socket();
        self.monitor("migrate-set-parameters", json!({ "max-bandwidth": FAST })).await?;
        self.monitor("migrate-incoming", json!({ "uri": format!("unix:{}", socket.display()) })).await?;
        let state = kept.join(STATE);
        let read = tokio::task::spawn_blocking({
            let state = state.clone();
            move || read(&state, &socket)
        });
        let read = read.await.map_err(|error| io_at(&state)(io::Error::other(error)))?;
        // QEMU says better than its socket what was wrong.
        self.moved("go on from what was written down").await?;
        read.map_err(io_at(&state))
    }

    /// Waits until QEMU has moved the machine.
    async fn moved(&self, what: &str) -> Result<(), MachineError> {
        let looked = wait::until(what, BUDGET, LOOK, || async {
            let answer = self.monitor("query-migrate", Value::Null).await.map_err(|error| error.to_string())?;
            let status = answer["status"].as_str().unwrap_or("none");
            match status {
                "completed" => Ok(Some(Ok(()))),
                "failed" | "cancelled" => {
                    let why = answer["error-desc"].as_str().unwrap_or("QEMU gives no reason");
                    Ok(Some(Err(why.to_owned())))
                }
                _ => Err(format!("QEMU says {status}")),
            }
        });
        match looked.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(self.wrong(what, why)),
            Err(error) => Err(self.wrong(what, error.to_string())),
        }
    }

    fn socket(&self) -> PathBuf {
        self.placement.directory.join("move")
    }
}

/// What comes over the socket goes into the file.
fn write(listener: &UnixListener, state: &Path) -> io::Result<()> {
    let (mut from, _) = listener.accept()?;
    let mut file = File::create(state)?;
    io::copy(&mut from, &mut file).map(drop)
}

/// What is in the file goes over the socket.
fn read(state: &Path, socket: &Path) -> io::Result<()> {
    let mut file = File::open(state)?;
    let mut to = UnixStream::connect(socket)?;
    io::copy(&mut file, &mut to).map(drop)
}
