//! Messages of iSCSI: a head of 48 bytes and, padded to four, data.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Length of the head.
const HEAD: usize = 48;

/// What is sent to us in one message at most, as we say at login.
pub(super) const MAX_DATA: usize = 256 << 10;

/// Kinds of messages of initiators.
pub(super) mod from_initiator {
    pub(crate) const NOP: u8 = 0x00;
    pub(crate) const COMMAND: u8 = 0x01;
    pub(crate) const TASK: u8 = 0x02;
    pub(crate) const LOGIN: u8 = 0x03;
    pub(crate) const TEXT: u8 = 0x04;
    pub(crate) const DATA: u8 = 0x05;
    pub(crate) const LOGOUT: u8 = 0x06;
}

/// Kinds of messages of targets.
pub(super) mod from_target {
    pub(crate) const NOP: u8 = 0x20;
    pub(crate) const RESPONSE: u8 = 0x21;
    pub(crate) const TASK: u8 = 0x22;
    pub(crate) const LOGIN: u8 = 0x23;
    pub(crate) const TEXT: u8 = 0x24;
    pub(crate) const DATA: u8 = 0x25;
    pub(crate) const LOGOUT: u8 = 0x26;
    pub(crate) const READY: u8 = 0x31;
    pub(crate) const REJECT: u8 = 0x3f;
}

/// A number that stands for nothing.
pub(super) const NONE: u32 = u32::MAX;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pdu {
    /// Its head; the length of the data in it is right when it was read or is sent.
    pub(super) head: [u8; HEAD],
    pub(super) data: Vec<u8>,
}

impl Pdu {
    /// One of this kind with these flags.
    pub(super) fn new(kind: u8, flags: u8) -> Self {
        let mut head = [0; HEAD];
        (head[0], head[1]) = (kind, flags);
        Self { head, data: Vec::new() }
    }

    pub(super) fn kind(&self) -> u8 {
        self.head[0] & 0x3f
    }

    /// It does not count among the commands, and is answered at once.
    pub(super) fn is_immediate(&self) -> bool {
        self.head[0] & 0x40 != 0
    }

    pub(super) fn flags(&self) -> u8 {
        self.head[1]
    }

    /// Four bytes of the head.
    pub(super) fn number(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.head[at..at + 4]);
        u32::from_be_bytes(bytes)
    }

    pub(super) fn set(&mut self, at: usize, number: u32) {
        self.head[at..at + 4].copy_from_slice(&number.to_be_bytes());
    }

    /// The number that its sender knows it by.
    pub(super) fn tag(&self) -> u32 {
        self.number(16)
    }

    /// Its data as keys with values.
    pub(super) fn keys(&self) -> Vec<(String, String)> {
        let text = String::from_utf8_lossy(&self.data);
        let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// Reads one; `None`: the other side has closed the connection between two of them.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Self>> {
        let mut head = [0; HEAD];
        if from.read(&mut head[..1]).await? == 0 {
            return Ok(None);
        }
        from.read_exact(&mut head[1..]).await?;
        // Heads behind the head, in words: none that is needed here.
        let mut more = vec![0; usize::from(head[4]) * 4];
        from.read_exact(&mut more).await?;
        let length = usize::from(head[5]) << 16 | usize::from(head[6]) << 8 | usize::from(head[7]);
        if length > MAX_DATA {
            return Err(io::Error::other(format!("{length} bytes in one message")));
        }
        let mut data = vec![0; length.next_multiple_of(4)];
        from.read_exact(&mut data).await?;
        data.truncate(length);
        Ok(Some(Self { head, data }))
    }

    /// Sends it.
    pub(super) async fn send(mut self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let length = u32::try_from(self.data.len()).map_err(io::Error::other)?.to_be_bytes();
        self.head[5..8].copy_from_slice(&length[1..]);
        self.data.resize(self.data.len().next_multiple_of(4), 0);
        to.write_all(&self.head).await?;
        to.write_all(&self.data).await
    }
}
