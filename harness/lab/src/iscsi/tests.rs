//! An initiator of a few lines, over memory. What Linux's makes of the target is shown by the scenario `disks-on-the-network`.

use tokio::io::DuplexStream;

use super::pdu::{NONE, Pdu, from_initiator, from_target};
use super::*;

const WWN: u64 = 0x3000_0000_0000_0001;
const BLOCKS: u32 = 4096;

struct Initiator {
    stream: DuplexStream,
    next: u32,
    _folder: tempfile::TempDir,
}

/// What became of a command.
#[derive(Debug, PartialEq, Eq)]
struct Done {
    status: u8,
    /// Sense key and code.
    sense: Option<(u8, u8)>,
    /// How many of the bytes that were to be moved were not.
    missing: u32,
    read: Vec<u8>,
}

impl Initiator {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lun = LunSpec {
            target: "iqn.a".into(),
            file: folder.path().join("disk"),
            size_bytes: u64::from(BLOCKS) * 512,
            serial: "SHARED".into(),
            wwn: WWN,
        };
        let targets = Targets::create(std::slice::from_ref(&lun)).unwrap();
        assert!(Targets::create(&[lun]).is_err(), "what is there already is somebody else's");
        let (stream, theirs) = tokio::io::duplex(1 << 20);
        tokio::spawn(async move { session::serve(theirs, &targets).await });
        Self { stream, next: 1, _folder: folder }
    }

    async fn login(&mut self, stage: u8, keys: &str) -> Pdu {
        // To the next stage: from security to operational, from there to the end.
        let next = if stage == 0 { 1 } else { 3 };
        let mut asked = Pdu::new(from_initiator::LOGIN | 0x40, 0x80 | stage << 2 | next);
        asked.set(24, self.next);
        asked.data = keys.replace(' ', "\0").into_bytes();
        asked.data.push(0);
        asked.send(&mut self.stream).await.unwrap();
        let said = Pdu::read(&mut self.stream).await.unwrap().unwrap();
        assert_eq!(said.kind(), from_target::LOGIN);
        said
    }

    async fn logged_in() -> Self {
        let mut initiator = Self::new();
        let said =
            initiator.login(0, "InitiatorName=iqn.me TargetName=iqn.a SessionType=Normal AuthMethod=None,CHAP").await;
        assert_eq!((said.flags(), said.head[36]), (0x81, 0));
        assert!(said.keys().contains(&("AuthMethod".into(), "None".into())), "{:?}", said.keys());
        let said = initiator
            .login(1, "HeaderDigest=CRC32C,None MaxRecvDataSegmentLength=65536 MaxBurstLength=16776192 Strange=1")
            .await;
        assert_eq!((said.flags(), said.head[36]), (0x87, 0));
        let keys = said.keys();
        for (key, value) in [("HeaderDigest", "None"), ("MaxBurstLength", "262144"), ("Strange", "NotUnderstood")] {
            assert!(keys.contains(&(key.into(), value.into())), "{keys:?}");
        }
        initiator
    }

    /// Does a command that reads at most so many bytes, or writes these; of those the first ones come with the command.
    async fn command(&mut self, cdb: &[u8], read: u32, write: &[u8], at_once: usize) -> Done {
        let mut asked = Pdu::new(from_initiator::COMMAND, 0x80 | if write.is_empty() { 0x40 } else { 0x20 });
        asked.set(16, 7);
        asked.set(20, if write.is_empty() { read } else { write.len().try_into().unwrap() });
        asked.set(24, self.next);
        asked.head[32..32 + cdb.len()].copy_from_slice(cdb);
        asked.data = write[..at_once].to_vec();
        self.next += 1;
        asked.send(&mut self.stream).await.unwrap();
        let mut all = Vec::new();
        loop {
            let said = Pdu::read(&mut self.stream).await.unwrap().unwrap();
            assert_eq!((said.tag(), said.number(28)), (7, self.next), "{said:?}");
            match said.kind() {
                from_target::DATA => {
                    assert_eq!(said.number(40) as usize, all.len());
                    assert!(said.data.len() <= 65536);
                    all.extend(said.data);
                }
                from_target::READY => {
                    assert_eq!(said.number(32), self.next - 1, "no other command is taken meanwhile");
                    let (begin, length) = (said.number(40) as usize, said.number(44) as usize);
                    let mut at = begin;
                    while at < begin + length {
                        let end = (at + 60_000).min(begin + length);
                        let mut data = Pdu::new(from_initiator::DATA, if end == begin + length { 0x80 } else { 0 });
                        data.set(16, 7);
                        data.set(20, said.number(20));
                        data.set(40, at.try_into().unwrap());
                        data.data = write[at..end].to_vec();
                        data.send(&mut self.stream).await.unwrap();
                        at = end;
                    }
                }
                from_target::RESPONSE => {
                    assert_eq!(said.number(32), self.next);
                    let sense = (!said.data.is_empty()).then(|| (said.data[4], said.data[14]));
                    return Done { status: said.head[3], sense, missing: said.number(44), read: all };
                }
                other => panic!("{other:#x}"),
            }
        }
    }
}

#[tokio::test]
async fn who_wants_another_target_is_refused() {
    let said = Initiator::new().login(0, "InitiatorName=iqn.me TargetName=iqn.b").await;
    assert_eq!((said.flags(), said.head[36], said.head[37]), (0, 2, 3));
}

#[tokio::test]
async fn the_disk_says_what_it_is() {
    let mut disk = Initiator::logged_in().await;
    let size = disk.command(&[0x25], 8, &[], 0).await.read;
    assert_eq!(size, [(BLOCKS - 1).to_be_bytes(), 512u32.to_be_bytes()].concat());
    let plain = disk.command(&[0x12, 0, 0, 0, 255], 255, &[], 0).await;
    assert_eq!((&plain.read[8..16], plain.missing), (&b"VLAB    "[..], 255 - 36));
    let serial = disk.command(&[0x12, 1, 0x80, 0, 255], 255, &[], 0).await.read;
    assert_eq!(&serial[4..], b"SHARED");
    let name = disk.command(&[0x12, 1, 0x83, 0, 255], 255, &[], 0).await.read;
    assert_eq!(name[4..], [&[1, 3, 0, 8][..], &WWN.to_be_bytes()].concat());
}

#[tokio::test]
async fn what_is_written_is_read_again() {
    let mut disk = Initiator::logged_in().await;
    let bytes: Vec<u8> = (0..1200 * 512u32).map(|n| (n / 7) as u8).collect();
    let mut cdb = [0x2a, 0, 0, 0, 0, 8, 0, 0x04, 0xb0, 0];
    for at_once in [0, 8192] {
        let written = disk.command(&cdb, 0, &bytes, at_once).await;
        assert_eq!(written, Done { status: 0, sense: None, missing: 0, read: vec![] });
    }
    cdb[0] = 0x28;
    let read = disk.command(&cdb, 1200 * 512, &[], 0).await;
    assert!(read.status == 0 && read.missing == 0 && read.read == bytes);
    assert_eq!(disk.command(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], 512, &[], 0).await.read, [0; 512], "beside it");
}

#[tokio::test]
async fn what_cannot_be_is_refused_and_the_session_goes_on() {
    let mut disk = Initiator::logged_in().await;
    let beyond = disk.command(&[0x28, 0, 0, 0, 0x10, 0, 0, 0, 1, 0], 512, &[], 0).await;
    assert_eq!((beyond.status, beyond.sense, beyond.missing), (2, Some((5, 0x21)), 512));
    // 64 MiB at once, which would have to be in memory: the disk has said that it moves less.
    let large = disk.command(&[0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0], 0, &[], 0).await;
    assert_eq!(large.sense, Some((5, 0x24)));
    let limits = disk.command(&[0x12, 1, 0xb0, 0, 255], 255, &[], 0).await.read;
    assert_eq!(limits[8..12], 65_536u32.to_be_bytes());
    assert_eq!(disk.command(&[0xa3, 0x0a], 0, &[], 0).await.sense, Some((5, 0x20)));
    let mut ping = Pdu::new(from_initiator::NOP | 0x40, 0x80);
    ping.set(16, 9);
    ping.data = b"who is there".to_vec();
    ping.clone().send(&mut disk.stream).await.unwrap();
    let said = Pdu::read(&mut disk.stream).await.unwrap().unwrap();
    assert_eq!((said.kind(), said.tag(), said.number(20)), (from_target::NOP, 9, NONE));
    assert_eq!(said.data, ping.data);
    assert_eq!(disk.command(&[0x00], 0, &[], 0).await.status, 0);
}
