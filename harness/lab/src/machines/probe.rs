//! Which accelerator machines get. `/dev/kvm` that opens is no proof: there are hosts where it opens and guests run in it ten
//! times slower than without, or die when they leave the 16-bit mode in which firmware begins. So a small kernel is booted
//! under it: long mode, paging, an interrupt, floating point. What does not come back in time gets TCG, with the reason.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::machines::domain::Accel;
use crate::machines::tiny::{DEBUG_EXIT, DEBUG_EXIT_STATUS};
use crate::postgres::cache_dir;
use crate::proc;
use crate::try_out::{TryError, in_path, try_out};

/// How long the small kernel may take under KVM. On hardware it takes a quarter of a second.
pub const KVM_BUDGET: Duration = Duration::from_secs(4);

/// How long it may take under TCG: half a second of processor time, on a machine that may be busy.
pub const TCG_BUDGET: Duration = Duration::from_secs(20);

/// Name of QEMU's program.
pub const QEMU: &str = "qemu-system-x86_64";

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acceleration {
    /// What machines get.
    pub accel: Accel,
    /// Why, for the report and for people.
    pub why: String,
}

/// QEMU does not run at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no machine can run here: {0}")]
pub struct NoMachines(pub String);

/// A boot sector that becomes a kernel for a moment: it makes page tables, enters long mode, loads an interrupt table, calls
/// interrupt 0x20, adds floating-point numbers five million times, and writes [`DEBUG_EXIT`] to port 0xf4 if the
/// interrupt's handler was there.
#[rustfmt::skip]
const KERNEL: [u8; 211] = [
    // 00: cli; ax = ds = es = ss = 0; sp = 0x7c00
    0xfa, 0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, 0xbc, 0x00, 0x7c,
    // 0c: clear 0x1000..0x4400: page tables and interrupt table
    0xbf, 0x00, 0x10, 0xb9, 0x00, 0x1a, 0xf3, 0xab,
    // 14: PML4[0] = 0x2000, PDPT[0] = 0x3000, PD[0] = the first 2 MiB
    0xc7, 0x06, 0x00, 0x10, 0x03, 0x20, 0xc7, 0x06, 0x00, 0x20, 0x03, 0x30, 0xc7, 0x06, 0x00, 0x30, 0x83, 0x00,
    // 26: lgdt; cr4 = PAE | OSFXSR | OSXMMEXCPT; cr3 = 0x1000
    0x0f, 0x01, 0x16, 0xc3, 0x7c, 0x66, 0xb8, 0x20, 0x06, 0x00, 0x00, 0x0f, 0x22, 0xe0,
    0x66, 0xb8, 0x00, 0x10, 0x00, 0x00, 0x0f, 0x22, 0xd8,
    // 3d: EFER.LME = 1; cr0 = PG | PE; jump into the 64-bit segment
    0x66, 0xb9, 0x80, 0x00, 0x00, 0xc0, 0x0f, 0x32, 0x66, 0x0d, 0x00, 0x01, 0x00, 0x00, 0x0f, 0x30,
    0x66, 0xb8, 0x01, 0x00, 0x00, 0x80, 0x0f, 0x22, 0xc0, 0xea, 0x5b, 0x7c, 0x08, 0x00,
    // 5b: ss = ds = 16; esp = 0x7c00
    0xb8, 0x10, 0x00, 0x00, 0x00, 0x8e, 0xd0, 0x8e, 0xd8, 0xbc, 0x00, 0x7c, 0x00, 0x00,
    // 69: gate 0x20 of the interrupt table at 0x4000 = the handler; lidt; int 0x20
    0xb8, 0xa4, 0x7c, 0x00, 0x00, 0xbf, 0x00, 0x42, 0x00, 0x00, 0x66, 0x89, 0x07, 0xc7, 0x47, 0x02, 0x08, 0x00, 0x00, 0x8e,
    0x0f, 0x01, 0x1c, 0x25, 0xc9, 0x7c, 0x00, 0x00, 0xcd, 0x20,
    // 87: xmm0 = edx; five million times xmm0 += xmm0
    0xf2, 0x0f, 0x2a, 0xc2, 0xb9, 0x40, 0x4b, 0x4c, 0x00, 0xf2, 0x0f, 0x58, 0xc0, 0xff, 0xc9, 0x75, 0xf8,
    // 98: only if edx = 0x77: out 0xf4, DEBUG_EXIT; hlt; again
    0x83, 0xfa, 0x77, 0x75, 0x04, 0xb0, DEBUG_EXIT, 0xe6, 0xf4, 0xf4, 0xeb, 0xfd,
    // a4: the handler: edx = 0x77; iretq
    0xba, 0x77, 0x00, 0x00, 0x00, 0x48, 0xcf,
    // ab: descriptors: none, 64-bit code, data
    0, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x9a, 0x20, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x92, 0x00, 0x00,
    // c3: where the descriptors are; c9: where the interrupt table is
    0x17, 0x00, 0xab, 0x7c, 0x00, 0x00, 0x0f, 0x02, 0x00, 0x40, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
];

/// Boots the small kernel under KVM and, when that fails, under TCG. Blocks for up to [`KVM_BUDGET`] and then
/// [`TCG_BUDGET`].
///
/// # Errors
/// It runs under neither.
pub fn probe() -> Result<Acceleration, NoMachines> {
    let memory = cache_dir();
    let kvm = match Path::new("/dev/kvm").exists() {
        false => Err("there is no /dev/kvm".to_owned()),
        true => match memory.as_deref().and_then(recall) {
            Some(why) => Err(why),
            None => boots_under(Accel::Kvm).inspect_err(|why| {
                if let Some(folder) = &memory {
                    remember(folder, why);
                }
            }),
        },
    };
    let why_not = match kvm {
        Ok(took) => {
            let why = format!("KVM: a small kernel ran under it in {} ms", took.as_millis());
            return Ok(Acceleration { accel: Accel::Kvm, why });
        }
        Err(why) => why,
    };
    let took = boots_under(Accel::Tcg).map_err(NoMachines)?;
    let why = format!("TCG (a small kernel ran under it in {} ms), because {why_not}", took.as_millis());
    Ok(Acceleration { accel: Accel::Tcg, why })
}

/// Begin of the name of the file that says why KVM does not work; the rest is the id of the boot since which that is so.
const MEMORY: &str = "no-kvm-";

/// The file of this boot and this QEMU.
fn memory_of(folder: &Path) -> Option<PathBuf> {
    let qemu = fs::metadata(qemu()?).ok()?;
    Some(folder.join(format!("{MEMORY}{}-{}", proc::boot_id(), qemu.len())))
}

/// Why KVM did not work when somebody tried since this machine was started. A kernel that does not come back takes the whole of
/// [`KVM_BUDGET`], at every start of everything that needs machines.
fn recall(folder: &Path) -> Option<String> {
    let file = memory_of(folder)?;
    let why = fs::read_to_string(&file).ok().filter(|why| !why.is_empty())?;
    Some(format!("{why}, as was found earlier; to look again, remove {}", file.display()))
}

/// Keeps it, and forgets what was kept at earlier boots. Whoever cannot keep it looks again the next time.
fn remember(folder: &Path, why: &str) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(MEMORY) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::create_dir_all(folder);
    if let Some(file) = memory_of(folder) {
        let _ = fs::write(file, why);
    }
}

/// Boots the small kernel; how long it took, or what went wrong.
pub(crate) fn boots_under(accel: Accel) -> Result<Duration, String> {
    let (name, budget) = match accel {
        Accel::Kvm => ("kvm", KVM_BUDGET),
        Accel::Tcg => ("tcg", TCG_BUDGET),
    };
    let mut sector = [0_u8; 512];
    sector[..KERNEL.len()].copy_from_slice(&KERNEL);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    let disk = tempfile::NamedTempFile::new().and_then(|file| fs::write(file.path(), sector).map(|()| file));
    let disk = disk.map_err(|error| format!("no room for a disk of 512 bytes: {error}"))?;
    let drive = format!("format=raw,file={}", disk.path().display());
    let args = ["-accel", name, "-m", "32", "-nodefaults", "-display", "none", "-no-reboot"];
    let args = args.into_iter().chain(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x01", "-drive", &drive]);
    let tried = try_out(QEMU, args, budget).map_err(|error| match error {
        TryError::Missing(why) => why,
        TryError::Failed(why) => format!("a small kernel does not come back under {} ({why})", name.to_uppercase()),
    })?;
    match tried.status.code() {
        Some(DEBUG_EXIT_STATUS) => Ok(tried.took),
        _ => Err(format!(
            "a small kernel does not run under {} ({}): {}",
            name.to_uppercase(),
            tried.status,
            tried.last_words()
        )),
    }
}

/// Where QEMU is.
#[must_use]
pub fn qemu() -> Option<PathBuf> {
    in_path(QEMU)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel really computes what it says: with another number from its handler it would never exit.
    #[test]
    fn heavy_the_small_kernel_runs_under_tcg() {
        if qemu().is_none() {
            vlab_skip::skip!("there is no {QEMU}");
            return;
        }
        let took = boots_under(Accel::Tcg).unwrap();
        assert!(took < TCG_BUDGET);
    }

    #[test]
    fn why_kvm_does_not_work_is_found_once_for_each_boot() {
        let Some(_) = qemu() else { return vlab_skip::skip!("there is no {QEMU}") };
        let folder = tempfile::tempdir().unwrap();
        let earlier = folder.path().join("no-kvm-of-another-boot-1");
        fs::write(&earlier, "it was raining").unwrap();
        assert_eq!(recall(folder.path()), None);
        remember(folder.path(), "it does not come back");
        assert!(recall(folder.path()).unwrap().starts_with("it does not come back, as was found earlier"));
        assert!(!earlier.exists());
    }

    #[test]
    fn heavy_what_is_found_says_why() {
        match probe() {
            Ok(Acceleration { accel: Accel::Kvm, why }) => assert!(why.starts_with("KVM: "), "{why}"),
            Ok(Acceleration { accel: Accel::Tcg, why }) => {
                assert!(
                    why.contains("because there is no /dev/kvm") || why.contains(" KVM") || why.contains(QEMU),
                    "{why}"
                );
            }
            Err(error) => assert!(qemu().is_none(), "{error}"),
        }
    }
}
