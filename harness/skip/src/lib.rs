//! A test that cannot prove anything on this machine says so with [`skip!`] and returns. The test then passes; whether it may
//! is decided afterwards, when all skips are known.
//!
//! `cargo xtask test` names a folder in [`FOLDER`], collects the records that tests leave there, prints them, and in CI
//! fails for each that `ci/skips.txt` does not allow. Without the folder a skip is only a line of the test's output.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// The environment variable that names the folder for records.
pub const FOLDER: &str = "VLAB_SKIPS";

/// Records that this test is skipped, and why: `skip!("there is no {program}")`. The caller still has to return.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)*) => {
        $crate::record(&::std::format!($($reason)*))
    };
}

/// What [`skip!`] does.
///
/// # Panics
/// When the record cannot be written: a skip that nobody hears of would be a pass.
pub fn record(reason: &str) {
    println!("skipped: {reason}");
    if let Some(folder) = std::env::var_os(FOLDER) {
        write(Path::new(&folder), &name(), reason);
    }
}

/// The test that is running, as nextest prints it (`crate::binary test`), or by the name of its thread.
fn name() -> String {
    let variable = |name: &str| std::env::var(name).ok();
    let test = variable("NEXTEST_TEST_NAME").or_else(|| std::thread::current().name().map(str::to_owned));
    let binary = variable("NEXTEST_BINARY_ID").or_else(|| {
        let program = std::env::current_exe().ok()?;
        program.file_stem().map(|stem| stem.to_string_lossy().into_owned())
    });
    format!("{} {}", binary.unwrap_or_default(), test.unwrap_or_default())
}

/// A file for each skip, so that tests need not wait for each other: the name of the test in the first line, then the reason.
fn write(folder: &Path, test: &str, reason: &str) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let file = folder.join(format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    if let Err(error) = std::fs::write(&file, format!("{test}\n{reason}\n")) {
        panic!("the skip of {test} cannot be recorded in {}: {error}", file.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_test_and_the_reason() {
        let folder = std::env::temp_dir().join(format!("vlab-skip-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        write(&folder, &name(), "there is no cpio");
        write(&folder, "crate::binary other", "once more");
        let mut records: Vec<String> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect();
        std::fs::remove_dir_all(&folder).unwrap();
        records.sort();
        assert_eq!(records[0], "crate::binary other\nonce more\n");
        let (test, reason) = records[1].split_once('\n').unwrap();
        assert!(test.starts_with("vlab"), "{test}");
        assert!(test.ends_with(" tests::a_record_has_the_test_and_the_reason"), "{test}");
        assert_eq!(reason, "there is no cpio\n");
    }

    #[test]
    #[should_panic(expected = "cannot be recorded in /nowhere/at-all")]
    fn a_skip_that_cannot_be_recorded_is_a_failure() {
        write(Path::new("/nowhere/at-all"), "x y", "z");
    }
}
