//! A machine's console, line by line as it grows: the kernel wakes the reader when QEMU has written (inotify), nothing is
//! polled.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;

/// A longer line is cut into several.
const LINE_MAX: usize = 16 * 1024;

/// Follows a file that only grows.
#[derive(Debug)]
pub struct Follow {
    file: File,
    watch: AsyncFd<Watch>,
    /// What was read and not given out yet.
    rest: Vec<u8>,
    at_end: bool,
}

#[derive(Debug)]
struct Watch(Inotify);

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Follow {
    /// Begins at that byte of the file, which must be there.
    ///
    /// # Errors
    /// The file cannot be read or watched.
    pub fn open(path: &Path, byte: u64) -> io::Result<Self> {
        let watch = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        // Watched before it is read for the first time: nothing is missed between the two.
        watch.add_watch(path, AddWatchFlags::IN_MODIFY)?;
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(byte))?;
        #[expect(unsafe_code, reason = "tokio cannot see that the number stays the same and open")]
        // SAFETY: `Watch` owns the inotify instance and gives out its one number until it is dropped, and `AsyncFd` owns
        // `Watch`.
        let watch = unsafe { AsyncFd::register(Watch(watch))? };
        Ok(Self { file, watch, rest: Vec::new(), at_end: false })
    }

    /// The next whole line, without its end; waits for it. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The file cannot be read any more.
    pub async fn next_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(line);
            }
            if self.at_end {
                let mut ready = self.watch.readable().await?;
                match self.watch.get_ref().0.read_events() {
                    Ok(_) => {}
                    Err(nix::errno::Errno::EAGAIN) => ready.clear_ready(),
                    Err(error) => return Err(error.into()),
                }
            }
            self.read()?;
        }
    }

    /// What is there without waiting: the remaining whole lines and, last, what has no end yet. For when the machine is
    /// gone.
    ///
    /// # Errors
    /// The file cannot be read any more.
    pub fn drain(&mut self) -> io::Result<Vec<String>> {
        let mut lines = self.whole_lines()?;
        if !self.rest.is_empty() {
            lines.push(String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned());
        }
        Ok(lines)
    }

    /// The same without what has no end yet.
    ///
    /// # Errors
    /// The file cannot be read any more.
    pub fn whole_lines(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            while let Some(line) = self.take_line() {
                lines.push(line);
            }
            self.read()?;
            if self.at_end {
                break;
            }
        }
        Ok(lines)
    }

    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; 8192];
        let count = self.file.read(&mut buffer)?;
        self.at_end = count == 0;
        self.rest.extend_from_slice(&buffer[..count]);
        Ok(())
    }

    fn take_line(&mut self) -> Option<String> {
        let (end, skip) = match self.rest.iter().position(|byte| *byte == b'\n') {
            Some(end) if end <= LINE_MAX => (end, 1),
            _ if self.rest.len() > LINE_MAX => (LINE_MAX, 0),
            _ => return None,
        };
        let line: Vec<u8> = self.rest.drain(..end + skip).collect();
        let text = String::from_utf8_lossy(&line[..end]);
        Some(text.trim_end_matches('\r').to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use super::*;

    async fn within<T>(future: impl Future<Output = io::Result<T>>) -> T {
        tokio::time::timeout(Duration::from_secs(10), future).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn lines_come_as_they_are_written_and_halves_are_kept() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"one\r\ntw").unwrap();
        // One that goes on where another one stopped, at the half line.
        assert_eq!(Follow::open(file.path(), 0).unwrap().whole_lines().unwrap(), ["one"]);
        assert_eq!(Follow::open(file.path(), 5).unwrap().drain().unwrap(), ["tw"]);
        let mut follow = Follow::open(file.path(), 0).unwrap();
        assert_eq!(within(follow.next_line()).await, "one");
        // Nothing whole is there: it waits, and a waiting that is given up loses nothing.
        assert!(tokio::time::timeout(Duration::from_millis(20), follow.next_line()).await.is_err());
        let (line, ()) = tokio::join!(within(follow.next_line()), async {
            tokio::task::yield_now().await;
            file.write_all(b"o\nthree\n\xff").unwrap();
        });
        assert_eq!(line, "two");
        assert_eq!(within(follow.next_line()).await, "three");
        assert_eq!(follow.drain().unwrap(), ["\u{fffd}"]);
        assert_eq!(follow.drain().unwrap(), [] as [&str; 0]);
    }

    #[tokio::test]
    async fn a_line_without_end_does_not_fill_the_memory() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![b'x'; LINE_MAX * 2 + 5]).unwrap();
        let mut follow = Follow::open(file.path(), 0).unwrap();
        assert_eq!(within(follow.next_line()).await.len(), LINE_MAX);
        assert_eq!(follow.drain().unwrap().iter().map(String::len).collect::<Vec<_>>(), [LINE_MAX, 5]);
    }
}
