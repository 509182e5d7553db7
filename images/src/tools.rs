//! Programs of this machine that the builder calls. A missing one is an error that names its Debian package.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::ImageError;

/// What the media need: a program and the Debian package that has it. `xtask` installs the same ones.
pub const TOOLS: &[(&str, &str)] = &[
    ("mksquashfs", "squashfs-tools"),
    ("xorriso", "xorriso"),
    ("mkfs.vfat", "dosfstools"),
    ("mcopy", "mtools"),
    ("mke2fs", "e2fsprogs"),
    ("debugfs", "e2fsprogs"),
    ("sgdisk", "gdisk"),
    ("grub-mkimage", "grub-common"),
    ("depmod", "kmod"),
    ("xz", "xz-utils"),
];

/// Where a program is: in PATH, or where programs for administrators are, which ordinary users have not in theirs.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// The tools that this machine lacks.
#[must_use]
pub fn missing() -> Vec<(&'static str, &'static str)> {
    TOOLS.iter().copied().filter(|(program, _)| find(program).is_none()).collect()
}

/// A command with nothing of this machine in it that could show in its output: no language, no time zone, a fixed time.
///
/// # Errors
/// There is no such program.
pub fn command(program: &str) -> Result<Command, ImageError> {
    let Some(path) = find(program) else {
        let package = TOOLS.iter().find(|(name, _)| *name == program).map_or(program, |(_, package)| package);
        return Err(ImageError::Program {
            program: program.to_owned(),
            problem: format!("is not here; `cargo xtask setup`, or `apt-get install {package}`, installs it"),
        });
    };
    let time = crate::archive::TIME.to_string();
    let mut command = Command::new(path);
    command
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .env("SOURCE_DATE_EPOCH", &time)
        .env("E2FSPROGS_FAKE_TIME", &time)
        .env("E2FSPROGS_LIBMAGIC_SUPPRESS", "1")
        .env("MTOOLS_SKIP_CHECK", "1")
        .stdin(Stdio::null());
    Ok(command)
}

/// Runs it to its end and returns what it printed.
///
/// # Errors
/// It cannot be started, or it fails: then with the last lines that it said.
pub fn run(mut command: Command) -> Result<Vec<u8>, ImageError> {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let failed = |problem: String| ImageError::Program { program: program.clone(), problem };
    let out = command.output().map_err(|error| failed(error.to_string()))?;
    if !out.status.success() {
        return Err(failed(format!("{}: {}", out.status, last_lines(&out.stdout, &out.stderr))));
    }
    Ok(out.stdout)
}

fn last_lines(stdout: &[u8], stderr: &[u8]) -> String {
    let said = format!("{}\n{}", String::from_utf8_lossy(stdout), String::from_utf8_lossy(stderr));
    let mut last: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).rev().take(4).collect();
    last.reverse();
    last.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = command("no-such-program").unwrap_err().to_string();
        assert!(error.contains("no-such-program") && error.contains("apt-get install"), "{error}");
    }

    #[test]
    fn what_a_failing_program_says_is_told() {
        let mut sh = Command::new("sh");
        sh.args(["-c", "echo begun; echo why it failed >&2; exit 3"]);
        let error = run(sh).unwrap_err().to_string();
        assert!(error.contains("why it failed") && error.contains('3'), "{error}");
    }
}
