//! Memory is reserved before a machine starts: what cannot fit is refused with numbers, and not swapped.
//!
//! A reservation is an entry of the run's ledger, so that it is known to other runs, and gone with the run. What other runs
//! have promised to their machines and those machines have not taken yet still looks free to the kernel; it is counted.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ledger::{Ledger, LedgerError, Resource, Snapshot, Token};
use crate::machines::domain::{Accel, MachineSpec, TB_CACHE_MIB};
use crate::proc::Stat;
use crate::wait;

/// What stays free for everything else on this machine.
pub const MARGIN: u64 = 512 << 20;

/// QEMU itself, with a screen and its devices.
const QEMU_MIB: u64 = 96;

/// OVMF and its variables, on top.
const UEFI_MIB: u64 = 40;

/// swtpm, on top.
const TPM_MIB: u64 = 16;

/// What a machine may take of this machine, in bytes: its memory, and QEMU around it. Measured: a guest of 640 MiB that has
/// used all of its memory takes 604 to 730 MB under TCG with a cache of 64 MiB; the cache is filled from its beginning.
#[must_use]
pub fn need(spec: &MachineSpec, accel: Accel) -> u64 {
    let cache = if accel == Accel::Tcg { TB_CACHE_MIB } else { 0 };
    let firmware = if spec.firmware.is_uefi() { UEFI_MIB } else { 0 };
    let tpm = if spec.tpm { TPM_MIB } else { 0 };
    (spec.memory_mib + QEMU_MIB + cache + firmware + tpm) << 20
}

/// What is promised to another run's machines and not taken yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    /// Id of the run.
    pub run: String,
    /// How much, in bytes.
    pub bytes: u64,
}

/// Why machines do not start.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// They do not fit.
    #[error("{}", refusal(*.wanted, *.available, *.margin, .promised))]
    DoesNotFit {
        /// What the machines need.
        wanted: u64,
        /// What the kernel (or the container's limit) says is available.
        available: u64,
        /// What is kept free.
        margin: u64,
        /// What others have been promised.
        promised: Vec<Promise>,
    },
    /// Nobody knows how much there is.
    #[error("how much memory is available is not known: /proc/meminfo has no MemAvailable")]
    Unknown,
    /// Another run is reserving and does not finish.
    #[error("cannot reserve memory: {0}")]
    Busy(String),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

fn refusal(wanted: u64, available: u64, margin: u64, promised: &[Promise]) -> String {
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let taken: u64 = promised.iter().map(|promise| promise.bytes).sum();
    let free = available.saturating_sub(margin).saturating_sub(taken);
    let mut text = format!(
        "the machines need {} of memory, and {} can be given to them: {} available, less {} for everything else",
        mib(wanted),
        mib(free),
        mib(available),
        mib(margin)
    );
    for promise in promised {
        text.push_str(&format!(", less {} promised to run {}", mib(promise.bytes), promise.run));
    }
    text
}

/// Does it fit?
///
/// # Errors
/// [`MemoryError::DoesNotFit`] with all numbers.
pub fn fits(wanted: u64, available: u64, margin: u64, promised: Vec<Promise>) -> Result<(), MemoryError> {
    let taken: u64 = promised.iter().map(|promise| promise.bytes).sum();
    if wanted.saturating_add(taken).saturating_add(margin) <= available {
        return Ok(());
    }
    Err(MemoryError::DoesNotFit { wanted, available, margin, promised })
}

/// Memory that is promised; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    ledger: Arc<Ledger>,
    token: Token,
    bytes: u64,
}

impl Reservation {
    /// How much.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Err(error) = self.ledger.release(self.token) {
            tracing::warn!(%error, "a reservation of memory stays in the ledger");
        }
    }
}

/// Reserves `bytes` for machines of this ledger's run, if they fit beside what all living runs with a ledger in the same
/// folder have been promised.
///
/// # Errors
/// They do not fit.
pub fn reserve(ledger: &Arc<Ledger>, bytes: u64) -> Result<Reservation, MemoryError> {
    let available = available().ok_or(MemoryError::Unknown)?;
    reserve_of(ledger, bytes, available, MARGIN)
}

/// The same with the numbers of the machine given, for tests.
pub(crate) fn reserve_of(
    ledger: &Arc<Ledger>,
    bytes: u64,
    available: u64,
    margin: u64,
) -> Result<Reservation, MemoryError> {
    let registry = ledger.path().parent().unwrap_or(Path::new("/"));
    // Two runs that look at the same time must not both find the same memory free.
    let lock = File::options().create(true).append(true).open(registry.join("memory.lock"));
    let lock = lock.map_err(|error| MemoryError::Busy(error.to_string()))?;
    if !wait::until_blocking(Instant::now() + Duration::from_secs(5), || lock.try_lock().is_ok()) {
        return Err(MemoryError::Busy("another run has been reserving for 5 s".to_owned()));
    }
    fits(bytes, available, margin, promised(registry))?;
    let token = ledger.record(Resource::Memory { bytes })?;
    Ok(Reservation { ledger: Arc::clone(ledger), token, bytes })
}

/// What living runs have been promised, less what their machines have taken already.
fn promised(registry: &Path) -> Vec<Promise> {
    let page = page_size();
    let mut ledgers: Vec<_> =
        fs::read_dir(registry).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    ledgers.sort();
    ledgers.retain(|path| path.extension().is_some_and(|extension| extension == "ledger"));
    let runs = ledgers.iter().filter_map(|path| Snapshot::read(path).ok()).filter(|run| run.header.is_alive());
    let promises = runs.map(|run| {
        let sum = |bytes: &dyn Fn(&Resource) -> u64| run.open.iter().map(|(_, resource)| bytes(resource)).sum::<u64>();
        let promised = sum(&|resource| match resource {
            Resource::Memory { bytes } => *bytes,
            _ => 0,
        });
        let taken = sum(&|resource| match resource {
            Resource::Machine { process: Some(process), .. } if process.is_alive() => {
                Stat::read(process.pid).map_or(0, |stat| stat.rss_pages * page)
            }
            _ => 0,
        });
        Promise { run: run.header.run.clone(), bytes: promised.saturating_sub(taken) }
    });
    promises.filter(|promise| promise.bytes > 0).collect()
}

fn page_size() -> u64 {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    size.and_then(|size| u64::try_from(size).ok()).unwrap_or(4096)
}

/// What the kernel says is available, or what the container may still take when that is less.
#[must_use]
pub fn available() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let available = kib_line(&meminfo, "MemAvailable:")?;
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let group = number("/sys/fs/cgroup/memory.max")
        .map(|most| most.saturating_sub(number("/sys/fs/cgroup/memory.current").unwrap_or(0)));
    Some(group.map_or(available, |group| group.min(available)))
}

fn kib_line(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use uuid::Uuid;

    use super::*;
    use crate::machines::domain::Firmware;

    #[rstest]
    #[case(Firmware::Bios, false, Accel::Kvm, 1024 + 96)]
    #[case(Firmware::Bios, false, Accel::Tcg, 1024 + 96 + 128)]
    #[case(Firmware::Uefi, true, Accel::Tcg, 1024 + 96 + 128 + 40 + 16)]
    #[case(Firmware::UefiSecure, false, Accel::Tcg, 1024 + 96 + 128 + 40)]
    fn a_machine_needs_more_than_its_memory(
        #[case] firmware: Firmware,
        #[case] tpm: bool,
        #[case] accel: Accel,
        #[case] mib: u64,
    ) {
        let spec = MachineSpec { firmware, tpm, ..MachineSpec::new("m", Uuid::nil(), 1024) };
        assert_eq!(need(&spec, accel), mib << 20);
    }

    #[test]
    fn a_refusal_has_all_numbers() {
        let promised = vec![Promise { run: "other".into(), bytes: 2 << 30 }];
        let error = fits(3 << 30, 5 << 30, 512 << 20, promised).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the machines need 3072 MiB of memory, and 2560 MiB can be given to them: 5120 MiB available, less 512 MiB \
             for everything else, less 2048 MiB promised to run other"
        );
    }

    #[test]
    fn what_one_run_has_reserved_the_other_does_not_get() {
        let registry = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(registry.path(), None, None).unwrap();
        let ledger = |run: &str| Arc::new(Ledger::create(&registry.path().join("r"), run).unwrap());
        let (one, two) = (ledger("one"), ledger("two"));
        let mib = |count: u64| count << 20;
        let first = reserve_of(&one, mib(600), mib(1000), mib(100)).unwrap();
        let error = reserve_of(&two, mib(400), mib(1000), mib(100)).unwrap_err();
        assert!(error.to_string().contains("less 600 MiB promised to run one"), "{error}");
        let _second = reserve_of(&two, mib(300), mib(1000), mib(100)).unwrap();
        drop(first);
        let third = reserve_of(&one, mib(600), mib(1000), mib(100)).unwrap();
        assert_eq!(third.bytes(), mib(600));
    }

    proptest! {
        #[test]
        fn what_fits_leaves_the_margin(wanted: u64, available: u64, margin: u64, others in prop::collection::vec(0..u64::MAX / 8, 0..4)) {
            let taken: u64 = others.iter().sum();
            let promised = others.iter().map(|bytes| Promise { run: "r".into(), bytes: *bytes }).collect();
            let fit = fits(wanted, available, margin, promised).is_ok();
            let sum = u128::from(wanted) + u128::from(taken) + u128::from(margin);
            prop_assert_eq!(fit, sum <= u128::from(available) || sum > u128::from(u64::MAX) && available == u64::MAX);
        }
    }
}
