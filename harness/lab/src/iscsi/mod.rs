//! Disks that are on the network: an iSCSI target inside of this process, as small as what Linux asks of it.
//!
//! A [`LunSpec`] is a disk; [`serve`] answers for all of them on one listener, which the caller makes where machines reach it. One more
//! listener is one more path to the same disks: a system that asks for their world-wide names sees that they are the same. [`ibft::table`]
//! is what a machine's firmware says of the disks that it knows, and by which the system that boots finds them.
//!
//! No passwords, no digests, one connection for a session, no recovery within a session: whoever loses its connection logs in again. A
//! command is done before the next one is taken, which the initiator is told by its window (RFC 7143, 4.2.2.1).

pub mod ibft;
mod pdu;
mod scsi;
mod session;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The port of targets.
pub const PORT: u16 = 3260;

/// A disk on the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LunSpec {
    /// Name of the target whose only disk it is: `iqn.2026-01.example.lab:node-0.data`.
    pub target: String,
    /// Its file; made with holes when it is served, and left to the caller then.
    pub file: PathBuf,
    /// Size in bytes, a multiple of 512.
    pub size_bytes: u64,
    /// Serial number.
    pub serial: String,
    /// World-wide name (NAA).
    pub wwn: u64,
}

/// A disk that is served.
#[derive(Debug)]
pub(crate) struct Lun {
    file: File,
    size_bytes: u64,
    serial: String,
    wwn: u64,
}

/// What there is to log in to.
#[derive(Debug, Clone, Default)]
pub struct Targets(Arc<BTreeMap<String, Arc<Lun>>>);

impl Targets {
    /// Makes the files of these disks.
    ///
    /// # Errors
    /// One of them cannot be made, or is there already.
    pub fn create(luns: &[LunSpec]) -> io::Result<Self> {
        let mut all = BTreeMap::new();
        for lun in luns {
            let file = File::options().read(true).write(true).create_new(true).open(&lun.file)?;
            file.set_len(lun.size_bytes)?;
            let served = Lun { file, size_bytes: lun.size_bytes, serial: lun.serial.clone(), wwn: lun.wwn };
            all.insert(lun.target.clone(), Arc::new(served));
        }
        Ok(Self(Arc::new(all)))
    }

    fn find(&self, name: &str) -> Option<&Arc<Lun>> {
        self.0.get(name)
    }
}

/// Answers on a listener until it is dropped. That an initiator does not keep to the protocol is its own end only.
///
/// # Errors
/// The listener does not take connections any more.
pub async fn serve(listener: TcpListener, targets: Targets) -> io::Result<()> {
    let mut sessions = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, from) = accepted?;
                stream.set_nodelay(true)?;
                let targets = targets.clone();
                sessions.spawn(async move {
                    if let Err(error) = session::serve(stream, &targets).await {
                        tracing::debug!(%from, %error, "an iSCSI session has ended");
                    }
                });
            }
            Some(_) = sessions.join_next(), if !sessions.is_empty() => {}
        }
    }
}

#[cfg(test)]
mod tests;
