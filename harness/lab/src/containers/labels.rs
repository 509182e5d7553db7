//! The labels by which leftovers are found even when their ledger is gone: the run, and which harness made it.

use std::fmt;

use crate::proc::{self, ProcessId};

/// A harness, as the label says it: enough to know whether it lives, and whether we are able to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    boot: String,
    /// The space of process numbers: another container sees other processes under the same numbers.
    space: String,
    process: ProcessId,
}

/// What became of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It lives.
    Alive,
    /// It is dead.
    Dead,
    /// It ran on another machine or in another container: nobody here can know.
    Unknown,
}

impl Owner {
    /// This process.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn me() -> std::io::Result<Self> {
        Ok(Self { boot: proc::boot_id(), space: space(), process: ProcessId::me()? })
    }

    /// From the label's text.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (boot, space) = (words.next()?.to_owned(), words.next()?.to_owned());
        let process = ProcessId { pid: words.next()?.parse().ok()?, start_time: words.next()?.parse().ok()? };
        words.next().is_none().then_some(Self { boot, space, process })
    }

    /// Does it live? `local`: the engine is on this machine, so an owner of another boot is from before the last one.
    #[must_use]
    pub fn fate(&self, local: bool) -> Fate {
        match (self.boot == proc::boot_id(), self.space == space()) {
            (true, true) if self.process.is_alive() => Fate::Alive,
            (true, true) => Fate::Dead,
            (true, false) => Fate::Unknown,
            (false, _) if local => Fate::Dead,
            (false, _) => Fate::Unknown,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.boot, self.space, self.process.pid, self.process.start_time)
    }
}

fn space() -> String {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.display().to_string().replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_tells_whether_its_harness_lives() {
        let me = Owner::me().unwrap();
        assert_eq!(Owner::read(&me.to_string()), Some(me.clone()));
        assert_eq!(me.fate(true), Fate::Alive);
        let dead = Owner { process: ProcessId { start_time: 1, ..me.process }, ..me.clone() };
        assert_eq!(dead.fate(true), Fate::Dead, "the number is used again");
        let elsewhere = Owner { space: "pid:[1]".into(), ..me.clone() };
        assert_eq!(elsewhere.fate(true), Fate::Unknown);
        let before = Owner { boot: "before".into(), ..me };
        assert_eq!((before.fate(true), before.fate(false)), (Fate::Dead, Fate::Unknown));
        assert_eq!(Owner::read("x"), None);
    }
}
