//! One connection: the login, and then commands.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::pdu::{MAX_DATA, NONE, Pdu, from_initiator, from_target};
use super::scsi::{self, Answer, Sense};
use super::{Lun, Targets};

/// What an initiator takes in one message unless it says otherwise.
const DEFAULT_DATA: usize = 8192;

/// We ask for so much of what is to be written at once.
const BURST: usize = 256 << 10;

const FINAL: u8 = 0x80;

struct Session<S> {
    stream: S,
    lun: Arc<Lun>,
    /// What the initiator takes in one message.
    takes: usize,
    /// Number of our next answer.
    answer: u32,
    /// Number of its next command.
    next: u32,
    /// A command is being done: no other one is taken.
    busy: bool,
}

/// Serves one connection to its end.
pub(super) async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, targets: &Targets) -> io::Result<()> {
    let Some(login) = login(&mut stream, targets).await? else { return Ok(()) };
    let Login { lun, takes, answer, next } = login;
    Session { stream, lun, takes, answer, next, busy: false }.run().await
}

struct Login {
    lun: Arc<Lun>,
    takes: usize,
    answer: u32,
    next: u32,
}

/// `None`: it has not come to its end, and the other side knows.
async fn login(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), targets: &Targets) -> io::Result<Option<Login>> {
    let (mut lun, mut takes, mut answer) = (None, DEFAULT_DATA, 0);
    loop {
        let Some(asked) = Pdu::read(stream).await? else { return Ok(None) };
        if asked.kind() != from_initiator::LOGIN {
            return Err(io::Error::other(format!("message {:#04x} before the login", asked.kind())));
        }
        let keys = asked.keys();
        if let Some((_, name)) = keys.iter().find(|(key, _)| key == "TargetName") {
            lun = targets.find(name).cloned();
        }
        // The stages, and whether the initiator wants to go to the next one.
        let (goes_on, next_stage) = (asked.flags() & FINAL != 0, asked.flags() & 3);
        let mut said = Pdu::new(from_target::LOGIN, asked.flags() & 0x8f);
        // The initiator's number of the session, and ours; the latter at the end only.
        said.head[8..16].copy_from_slice(&asked.head[8..16]);
        if goes_on && next_stage == 3 {
            said.head[14..16].copy_from_slice(&1u16.to_be_bytes());
        }
        let next = asked.number(24);
        for (at, number) in [(16, asked.tag()), (24, answer), (28, next), (32, next)] {
            said.set(at, number);
        }
        let Some(found) = &lun else {
            // An error of the initiator: there is no such target, or it has not named one.
            (said.head[1], said.head[36], said.head[37]) = (0, 2, 3);
            said.send(stream).await?;
            return Ok(None);
        };
        if answer == 0 {
            said.data.extend_from_slice(b"TargetPortalGroupTag=1\0");
        }
        for (key, value) in keys {
            if key == "MaxRecvDataSegmentLength" {
                takes = value.parse().unwrap_or(DEFAULT_DATA).clamp(512, MAX_DATA);
            }
            if let Some(ours) = agreed(&key, &value) {
                said.data.extend_from_slice(format!("{key}={ours}\0").as_bytes());
            }
        }
        said.send(stream).await?;
        answer += 1;
        if goes_on && next_stage == 3 {
            return Ok(Some(Login { lun: Arc::clone(found), takes, answer, next }));
        }
    }
}

/// What we say to a key; `None`: nothing, it only tells.
fn agreed(key: &str, value: &str) -> Option<String> {
    let smaller = |ours: usize| value.parse::<usize>().map_or(ours, |theirs| theirs.min(ours)).to_string();
    Some(match key {
        "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType" => return None,
        "AuthMethod" => "None".to_owned(),
        "HeaderDigest" | "DataDigest" => "None".to_owned(),
        "MaxConnections" | "MaxOutstandingR2T" => "1".to_owned(),
        "InitialR2T" | "DataPDUInOrder" | "DataSequenceInOrder" => "Yes".to_owned(),
        "ImmediateData" => if value == "No" { "No" } else { "Yes" }.to_owned(),
        "MaxRecvDataSegmentLength" => MAX_DATA.to_string(),
        "MaxBurstLength" => smaller(BURST),
        "FirstBurstLength" => smaller(64 << 10),
        "DefaultTime2Wait" => value.to_owned(),
        "DefaultTime2Retain" | "ErrorRecoveryLevel" => "0".to_owned(),
        "IFMarker" | "OFMarker" => "No".to_owned(),
        _ => "NotUnderstood".to_owned(),
    })
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    async fn run(mut self) -> io::Result<()> {
        while let Some(asked) = Pdu::read(&mut self.stream).await? {
            if !asked.is_immediate() && asked.kind() != from_initiator::DATA {
                self.next = asked.number(24).wrapping_add(1);
            }
            match asked.kind() {
                from_initiator::COMMAND => self.command(&asked).await?,
                from_initiator::LOGOUT => {
                    let said = Pdu::new(from_target::LOGOUT, FINAL);
                    return self.answer(&asked, said).await;
                }
                _ => self.other(asked).await?,
            }
        }
        Ok(())
    }

    /// What can come also while a command is being done.
    async fn other(&mut self, asked: Pdu) -> io::Result<()> {
        let said = match asked.kind() {
            // An answer to a question that we have not asked.
            from_initiator::NOP if asked.tag() == NONE => return Ok(()),
            from_initiator::NOP => {
                let mut said = Pdu::new(from_target::NOP, FINAL);
                said.set(20, NONE);
                said.data.clone_from(&asked.data);
                said
            }
            // What is to be given up is done already, or its initiator does not wait for it any more.
            from_initiator::TASK => Pdu::new(from_target::TASK, FINAL),
            from_initiator::TEXT => {
                let mut said = Pdu::new(from_target::TEXT, FINAL);
                said.set(20, NONE);
                said
            }
            _ => {
                // The command is not supported.
                let mut said = Pdu::new(from_target::REJECT, FINAL);
                said.head[2] = 5;
                said.data = asked.head.to_vec();
                let tag = Pdu { head: [0xff; 48], data: Vec::new() };
                return self.answer(&tag, said).await;
            }
        };
        self.answer(&asked, said).await
    }

    /// With what every answer has: the tag of the question, our number, and what is taken next.
    async fn answer(&mut self, asked: &Pdu, mut said: Pdu) -> io::Result<()> {
        said.set(16, asked.tag());
        self.number(&mut said);
        self.answer = self.answer.wrapping_add(1);
        said.send(&mut self.stream).await
    }

    fn number(&self, said: &mut Pdu) {
        // One at a time: while one is being done, the window is closed.
        let last = if self.busy { self.next.wrapping_sub(1) } else { self.next };
        for (at, number) in [(24, self.answer), (28, self.next), (32, last)] {
            said.set(at, number);
        }
    }

    async fn command(&mut self, asked: &Pdu) -> io::Result<()> {
        let mut cdb = [0; 16];
        cdb.copy_from_slice(&asked.head[32..48]);
        self.busy = true;
        let lun = Arc::clone(&self.lun);
        // The number is in the second byte, or in both where there are more than 256.
        let is_there = asked.head[8..16].iter().all(|byte| *byte == 0);
        let answer = match cdb[0] {
            _ if is_there => scsi::command(&lun, &cdb),
            // Who asks is told that nothing is there; which disks there are is asked of any of them.
            0x12 => {
                let mut nothing = vec![0; 36];
                (nothing[0], nothing[4]) = (0x7f, 31);
                nothing.truncate(usize::from(cdb[3]) << 8 | usize::from(cdb[4]));
                Answer::Data(nothing)
            }
            0xa0 => scsi::command(&lun, &cdb),
            _ => Answer::Refused(scsi::NO_SUCH_LUN),
        };
        let result = match answer {
            Answer::Data(bytes) => Ok(self.give(asked, &bytes).await?),
            Answer::Refused(sense) => Err(sense),
            Answer::Take { at, length } => {
                let bytes = self.take(asked, length).await?;
                lun.write(at, &bytes).map(|()| bytes.len()).map_err(|_| scsi::UNWRITABLE)
            }
        };
        self.busy = false;
        self.done(asked, result).await
    }

    /// Its status: how many bytes were moved, or why not.
    async fn done(&mut self, asked: &Pdu, result: Result<usize, Sense>) -> io::Result<()> {
        let mut said = Pdu::new(from_target::RESPONSE, FINAL);
        let expected = asked.number(20);
        let moved = match result {
            Ok(moved) => u32::try_from(moved).unwrap_or(u32::MAX),
            Err(sense) => {
                said.head[3] = 2;
                let bytes = sense.bytes();
                said.data = [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat();
                0
            }
        };
        if moved < expected {
            said.head[1] |= 2;
            said.set(44, expected - moved);
        }
        self.answer(asked, said).await
    }

    /// Sends what was read, in as many messages as the initiator wants.
    async fn give(&mut self, asked: &Pdu, bytes: &[u8]) -> io::Result<usize> {
        let wanted = usize::try_from(asked.number(20)).map_err(io::Error::other)?;
        let bytes = &bytes[..bytes.len().min(wanted)];
        let last = bytes.len().div_ceil(self.takes).saturating_sub(1);
        for (count, part) in bytes.chunks(self.takes).enumerate() {
            let mut said = Pdu::new(from_target::DATA, if count == last { FINAL } else { 0 });
            said.head[8..16].copy_from_slice(&asked.head[8..16]);
            self.number(&mut said);
            // It has no number of its own: the status has.
            for (at, number) in [(16, asked.tag()), (20, NONE), (24, 0)] {
                said.set(at, number);
            }
            said.set(36, u32::try_from(count).map_err(io::Error::other)?);
            said.set(40, u32::try_from(count * self.takes).map_err(io::Error::other)?);
            said.data = part.to_vec();
            said.send(&mut self.stream).await?;
        }
        Ok(bytes.len())
    }

    /// Takes what is to be written: what came with the command, and then what we ask for.
    async fn take(&mut self, asked: &Pdu, length: usize) -> io::Result<Vec<u8>> {
        let strange = |what: &str| io::Error::other(format!("data to be written: {what}"));
        let mut bytes = asked.data.clone();
        let mut asked_for = 0u32;
        while bytes.len() < length {
            let burst = (length - bytes.len()).min(BURST);
            let mut said = Pdu::new(from_target::READY, FINAL);
            said.head[8..16].copy_from_slice(&asked.head[8..16]);
            self.number(&mut said);
            said.set(16, asked.tag());
            said.set(20, asked_for);
            said.set(36, asked_for);
            said.set(40, u32::try_from(bytes.len()).map_err(io::Error::other)?);
            said.set(44, u32::try_from(burst).map_err(io::Error::other)?);
            said.send(&mut self.stream).await?;
            let end = bytes.len() + burst;
            while bytes.len() < end {
                let came = Pdu::read(&mut self.stream).await?.ok_or_else(|| strange("the connection ended"))?;
                if came.kind() != from_initiator::DATA {
                    if !came.is_immediate() {
                        return Err(strange("a command came that was not to come yet"));
                    }
                    self.other(came).await?;
                    continue;
                }
                if came.number(20) != asked_for || usize::try_from(came.number(40)).ok() != Some(bytes.len()) {
                    return Err(strange("they are out of order"));
                }
                bytes.extend_from_slice(&came.data);
                if bytes.len() > end || (came.flags() & FINAL != 0 && bytes.len() < end) {
                    return Err(strange("not as many as were asked for"));
                }
            }
            asked_for += 1;
        }
        match bytes.len() == length {
            true => Ok(bytes),
            false => Err(strange("more than the command says")),
        }
    }
}
