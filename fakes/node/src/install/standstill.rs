//! A writer that neither writes nor fails: what the machine looked like then. A limit of the service ends such an installation later, and
//! by then nobody can say any more whether the program, the memory or the disk stood still.

use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::json;

use crate::machine::Root;
use crate::say;

/// So long without a word of the writer is worth a look.
pub(super) const LOOK: Duration = Duration::from_secs(60);

/// After so many looks it stands still. At a quarter of a processor it says something every few seconds.
const LOOKS: u32 = 4;

/// Reads all that the writer says, and looks at the machine whenever it has said nothing for a minute.
pub(super) fn read(
    mut said: impl Read + Send,
    look: Duration,
    mut text: impl FnMut(&str),
    mut silent: impl FnMut(u32),
) -> io::Result<()> {
    std::thread::scope(|scope| {
        let (tell, heard) = channel::<Vec<u8>>();
        let reader = scope.spawn(move || {
            let mut buffer = [0u8; 4096];
            loop {
                match said.read(&mut buffer) {
                    Ok(0) => return Ok(()),
                    Ok(length) => {
                        let _ = tell.send(buffer[..length].to_vec());
                    }
                    // The writer would stand still for good if nobody read on.
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        });
        hear(&heard, look, &mut text, &mut silent);
        reader.join().unwrap_or_else(|_| Err(io::Error::other("the writer's words could not be read")))
    })
}

fn hear(heard: &Receiver<Vec<u8>>, look: Duration, text: &mut impl FnMut(&str), silent: &mut impl FnMut(u32)) {
    let mut looks = 0;
    loop {
        match heard.recv_timeout(look) {
            Ok(bytes) => {
                looks = 0;
                text(&String::from_utf8_lossy(&bytes));
            }
            Err(RecvTimeoutError::Timeout) => {
                looks += 1;
                silent(looks);
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Tells what is to be seen of a writer that has said nothing for so many looks.
pub(super) fn tell(root: &Root, writer: u32, disk: &str, percent: u32, looks: u32) {
    let seen = seen(root, writer, disk);
    let for_s = u64::from(looks) * LOOK.as_secs();
    let details = json!({ "percent": percent, "for_s": for_s, "seen": seen });
    // Once: more of the same would bury the rest of the console.
    if looks == LOOKS {
        say::moment("installer", "writing-stands-still", &details);
    } else if looks < LOOKS {
        say::moment("installer", "writing-is-silent", &details);
    }
}

/// The writer, its disk and the machine's memory at this moment, in the words of the kernel.
fn seen(root: &Root, writer: u32, disk: &str) -> String {
    let of_writer = |file: &str| root.text(&format!("/proc/{writer}/{file}")).unwrap_or_default();
    let state = of_writer("status").lines().find_map(|line| line.strip_prefix("State:").map(|s| s.trim().to_owned()));
    let io = of_writer("io").lines().map(|line| line.replace(": ", "=")).collect::<Vec<_>>().join(" ");
    let name = Path::new(disk).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stats = root.text("/proc/diskstats").unwrap_or_default();
    let under_way = stats.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(2) == Some(&name.as_str())).then(|| words.get(11).map(|n| (*n).to_owned())).flatten()
    });
    let memory = root.text("/proc/meminfo").unwrap_or_default();
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:").map(|s| s.trim().to_owned()));
    let pressure = |of: &str| {
        let text = root.text(&format!("/proc/pressure/{of}")).unwrap_or_default();
        text.lines().next().and_then(|l| l.split_whitespace().find(|w| w.starts_with("avg60=")).map(str::to_owned))
    };
    let mut words = vec![
        format!("writer: {}", state.unwrap_or_else(|| "gone".to_owned())),
        format!("waits in: {}", Some(of_writer("wchan")).filter(|w| !w.is_empty()).unwrap_or_else(|| "?".to_owned())),
        format!("calls: {}", of_writer("syscall").split_whitespace().next().unwrap_or("?")),
        io,
        format!("requests of {name} under way: {}", under_way.unwrap_or_else(|| "?".to_owned())),
        format!("memory available: {}", available.unwrap_or_else(|| "?".to_owned())),
    ];
    words.extend(["cpu", "io", "memory"].iter().filter_map(|of| pressure(of).map(|p| format!("{of} pressure {p}"))));
    words.retain(|w| !w.is_empty());
    words.join("; ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Says two things, is silent between them until somebody has looked twice, and is interrupted once.
    struct Halting {
        reads: u32,
        looks: Receiver<u32>,
    }

    impl Read for Halting {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.reads += 1;
            let word: &[u8] = match self.reads {
                1 => b"(10%)\r",
                2 => return Err(io::ErrorKind::Interrupted.into()),
                3 => {
                    while self.looks.recv_timeout(Duration::from_secs(60)).map_err(io::Error::other)? < 2 {}
                    b"(20%)\r"
                }
                _ => return Ok(0),
            };
            buffer[..word.len()].copy_from_slice(word);
            Ok(word.len())
        }
    }

    #[test]
    fn silence_is_looked_at_and_all_is_read() {
        let (tell, looks) = channel();
        let (mut said, mut looked) = (String::new(), Vec::new());
        let silent = |n| {
            looked.push(n);
            let _ = tell.send(n);
        };
        read(Halting { reads: 0, looks }, Duration::from_millis(20), |text| said.push_str(text), silent).unwrap();
        assert_eq!(said, "(10%)\r(20%)\r");
        assert!(looked.contains(&2), "{looked:?}");
        assert!(
            looked.windows(2).all(|w| w[1] == w[0] + 1 || w[1] == 1),
            "each word begins the count anew: {looked:?}"
        );
    }

    #[test]
    fn what_is_to_be_seen() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("proc/7/status", "Name:\tcoreos-installer\nState:\tD (disk sleep)\n");
        put("proc/7/wchan", "folio_wait_bit_common");
        put("proc/7/syscall", "1 0x3 0x7f");
        put("proc/7/io", "rchar: 10\nwchar: 20\n");
        put("proc/diskstats", " 254 0 vda 100 0 800 5 200 0 1600 9 3 12 14 0 0\n");
        put("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable:    12 kB\n");
        put("proc/pressure/memory", "some avg10=9.00 avg60=7.50 avg300=1.00 total=1\nfull avg10=0 avg60=0\n");
        assert_eq!(
            seen(&Root::at(folder.path()), 7, "/dev/vda"),
            "writer: D (disk sleep); waits in: folio_wait_bit_common; calls: 1; rchar=10 wchar=20; requests of vda under way: 3; \
             memory available: 12 kB; memory pressure avg60=7.50"
        );
        assert!(
            seen(&Root::at(folder.path()), 8, "/dev/vdb")
                .starts_with("writer: gone; waits in: ?; calls: ?; requests of vdb")
        );
    }
}
