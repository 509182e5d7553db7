//! A computer that is slow must not turn a run red: what the lab did not manage is *inconclusive*. Machines are started with the
//! processors, the memory or the disk of the whole run held back by a control group, and the run then passes or is inconclusive.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rstest::rstest;

use crate::bench::{CliFixture, Said, VLAB};
use crate::vm_installs::{has_installed, wanted};

/// What is held back.
#[derive(Debug, Clone, Copy)]
enum Limit {
    /// The share of all processors that is left.
    Processors(f64),
    /// Memory for the harness, the service, PostgreSQL and all machines together.
    MemoryMib(u64),
    /// Bytes a second that may be read from the disk with the run's files, and as many that may be written to it.
    DiskBytes(u64),
}

/// A control group of its own below the root of its hierarchy, in either version.
struct Group {
    folder: PathBuf,
}

const ROOT: &str = "/sys/fs/cgroup";

impl Group {
    /// Nothing where this computer gives no control groups to us.
    fn with(limit: Limit) -> Result<Self, String> {
        let (controller, v1, settings) = match limit {
            Limit::Processors(share) => {
                let processors = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
                let quota = (processors * share * 100_000.0) as u64;
                (
                    "cpu",
                    vec![("cpu.cfs_period_us", "100000".to_owned()), ("cpu.cfs_quota_us", quota.to_string())],
                    vec![("cpu.max", format!("{quota} 100000"))],
                )
            }
            Limit::MemoryMib(mib) => {
                let bytes = (mib << 20).to_string();
                ("memory", vec![("memory.limit_in_bytes", bytes.clone())], vec![("memory.max", bytes)])
            }
            Limit::DiskBytes(bytes) => {
                let disk = disk_of(Path::new("/tmp"))?;
                let limit = format!("{disk} {bytes}");
                (
                    "blkio",
                    vec![("blkio.throttle.read_bps_device", limit.clone()), ("blkio.throttle.write_bps_device", limit)],
                    vec![("io.max", format!("{disk} rbps={bytes} wbps={bytes}"))],
                )
            }
        };
        let name = format!("vlab-test-{}", std::process::id());
        let old = Path::new(ROOT).join(controller);
        let (folder, settings) =
            if old.is_dir() { (old.join(name), v1) } else { (Path::new(ROOT).join(name), settings) };
        if !old.is_dir() {
            let wanted = if controller == "blkio" { "io" } else { controller };
            let file = Path::new(ROOT).join("cgroup.subtree_control");
            fs::write(&file, format!("+{wanted}")).map_err(|e| format!("{}: {e}", file.display()))?;
        }
        fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let group = Self { folder };
        for (file, value) in settings {
            let file = group.folder.join(file);
            fs::write(&file, &value).map_err(|e| format!("{} = {value}: {e}", file.display()))?;
        }
        Ok(group)
    }

    /// Runs `vlab` in it.
    fn vlab(&self, cli: &CliFixture, args: &[&str]) -> Said {
        let mut command = cli.command_of(Path::new("/bin/sh"), &[]);
        command
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(self.folder.join("cgroup.procs"))
            .arg(VLAB)
            .args(args)
            .stdin(Stdio::null());
        command.output().unwrap().into()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.folder) {
            eprintln!("{} stays: {error}", self.folder.display());
        }
    }
}

/// The whole disk (major:minor) that a folder is on: limits are set on disks, not on partitions.
fn disk_of(folder: &Path) -> Result<String, String> {
    use std::os::unix::fs::MetadataExt as _;
    let number = fs::metadata(folder).map_err(|e| e.to_string())?.dev();
    let (major, minor) = (nix::sys::stat::major(number), nix::sys::stat::minor(number));
    let device = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))
        .map_err(|e| format!("{} is on no disk ({major}:{minor}): {e}", folder.display()))?;
    let disk = if device.join("partition").exists() { device.parent().unwrap_or(&device) } else { &device };
    fs::read_to_string(disk.join("dev")).map(|text| text.trim().to_owned()).map_err(|e| e.to_string())
}

fn never_red(scenario: &str, limit: Limit) {
    if !wanted() {
        return;
    }
    let group = match Group::with(limit) {
        Ok(group) => group,
        Err(why) => {
            vlab_skip::skip!("no control group for a test: {why}");
            return;
        }
    };
    let cli = CliFixture::new();
    let said = group.vlab(&cli, &["scenario", scenario, "--hosts", "vm", "--no-setup", "--quiet"]);
    assert!(matches!(said.code, Some(0 | 3)), "{limit:?} made it red: {said:#?}");
    // Inconclusive for a reason that has nothing to do with the limit would prove nothing: the machines must have run.
    let history = cli.history();
    let consoles = history.iter().filter(|o| matches!(o.what, vlab_model::history::What::Console { .. })).count();
    assert!(consoles > 10, "only {consoles} lines of consoles: {said:#?}");
    match (said.code, limit) {
        (Some(0), _) => has_installed(&cli, 1),
        (_, Limit::Processors(_)) => {
            vlab_skip::skip!("{scenario} was inconclusive on a part of this computer: {}", said.out)
        }
        _ => {}
    }
    cli.nothing_is_left();
}

/// On half of the processors the single node from UEFI installs itself; where that takes too long, it is told as a skip.
#[rstest]
#[case::half_of_the_processors("sno-uefi-minimal", Limit::Processors(0.5))]
#[case::tight_memory("sno", Limit::MemoryMib(900))]
fn vm_slow_computers_are_never_red(#[case] scenario: &str, #[case] limit: Limit) {
    never_red(scenario, limit);
}

#[rstest]
#[case::half_of_the_processors("sno", Limit::Processors(0.5))]
#[case::too_little_memory("sno", Limit::MemoryMib(700))]
#[case::a_quarter_of_the_processors("sno", Limit::Processors(0.25))]
#[case::a_tenth_of_the_processors("sno", Limit::Processors(0.1))]
#[case::a_slow_disk("sno", Limit::DiskBytes(8 << 20))]
#[case::a_cluster_on_half_of_the_processors("ha-3-1", Limit::Processors(0.5))]
#[case::a_cluster_on_a_quarter_of_the_processors("ha-3-1", Limit::Processors(0.25))]
#[case::a_cluster_on_a_slow_disk("ha-3-1", Limit::DiskBytes(8 << 20))]
#[case::a_cluster_in_tight_memory("ha-3-1", Limit::MemoryMib(2_500))]
#[ignore = "up to half an hour each: `cargo nextest run -p vlab-cli --run-ignored only vm_slow`"]
fn vm_slow_computers_are_never_red_either(#[case] scenario: &str, #[case] limit: Limit) {
    never_red(scenario, limit);
}
