//! What a process uses, as the kernel counts it.

use std::time::Duration;

/// Clock ticks a second in `/proc`: 100 on Linux, whatever the kernel's own.
const TICKS: u64 = 100;

/// Processor time and resident memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) resident_kib: u64,
}

/// Of that process; `None`: it is not there.
pub(crate) fn of(pid: u32) -> Option<Usage> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let memory = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    read(&stat, &memory)
}

fn read(stat: &str, statm: &str) -> Option<Usage> {
    // The name in brackets may have spaces in it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(Usage { cpu: Duration::from_millis(ticks * 1000 / TICKS), resident_kib: pages * 4 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_read() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 10 20 0 0 150 50 0 0 20 0 9 0 100 1000 200";
        assert_eq!(read(stat, "500 250 9 1 0 1 0"), Some(Usage { cpu: Duration::from_secs(2), resident_kib: 1000 }));
        assert!(of(std::process::id()).is_some_and(|usage| usage.resident_kib > 0));
        assert_eq!(of(u32::MAX), None);
    }
}
