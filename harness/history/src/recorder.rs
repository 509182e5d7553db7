//! Gives each observation its place in the history and writes it down at once, so that a run that is killed leaves all that
//! was seen until then.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use vlab_api::Timestamp;
use vlab_model::history::{HISTORY_VERSION, Observation, Source, What};

/// Collects observations, in memory and in `history.jsonl`.
pub struct Recorder {
    observations: Vec<Observation>,
    sink: Option<Box<dyn Write + Send>>,
    broken: Option<io::Error>,
    line: Vec<u8>,
}

impl Recorder {
    /// A recorder that writes to `sink` too. The sink should be buffered; see [`Recorder::flush`].
    pub fn new(sink: Option<Box<dyn Write + Send>>) -> Self {
        Self { observations: Vec::new(), sink, broken: None, line: Vec::new() }
    }

    /// Adds an observation and returns it.
    pub fn record(
        &mut self,
        source: Source,
        service_time: Option<Timestamp>,
        harness_time: Timestamp,
        what: What,
    ) -> &Observation {
        let seq = self.observations.len() as u64;
        let observation = Observation { v: HISTORY_VERSION, seq, source, service_time, harness_time, what };
        if let (Some(sink), None) = (&mut self.sink, &self.broken) {
            self.line.clear();
            let written = serde_json::to_writer(&mut self.line, &observation).map_err(io::Error::from).and_then(|()| {
                self.line.push(b'\n');
                sink.write_all(&self.line)
            });
            if let Err(error) = written {
                self.broken = Some(error);
            }
        }
        self.observations.push(observation);
        &self.observations[self.observations.len() - 1]
    }

    /// Everything so far, in order.
    pub fn observations(&self) -> &[Observation] {
        &self.observations
    }

    /// Hands what is buffered to the operating system.
    pub fn flush(&mut self) {
        if let (Some(sink), None) = (&mut self.sink, &self.broken)
            && let Err(error) = sink.flush()
        {
            self.broken = Some(error);
        }
    }

    /// The first error of writing (a full disk, for example). What was observed afterwards is only in memory.
    pub fn broken(&self) -> Option<&io::Error> {
        self.broken.as_ref()
    }

    /// The observations; the sink is flushed and closed.
    pub fn into_observations(mut self) -> Vec<Observation> {
        self.flush();
        self.observations
    }
}

/// Why a history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Io {
        /// The history's file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A line is no observation.
    #[error("{path}:{line}: this line is not an observation: {error}")]
    Line {
        /// The history's file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong with it, for people.
        error: String,
    },
    /// Written by a newer vlab.
    #[error(
        "{path}:{line}: this history has version {found}, this vlab reads up to {HISTORY_VERSION}; use a newer vlab"
    )]
    Version {
        /// The history's file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Version found.
        found: u32,
    },
}

/// Reads a `history.jsonl`. A last line that was cut off (the run was killed while writing it) is left out.
///
/// # Errors
/// [`HistoryError`] with file and line.
pub fn read(path: &Path) -> Result<Vec<Observation>, HistoryError> {
    let io = |error| HistoryError::Io { path: path.to_owned(), error };
    let mut reader = BufReader::new(File::open(path).map_err(io)?);
    let mut observations = Vec::new();
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        if reader.read_until(b'\n', &mut text).map_err(io)? == 0 {
            break;
        }
        let complete = text.last() == Some(&b'\n');
        match serde_json::from_slice::<Observation>(&text) {
            Ok(o) if o.v > HISTORY_VERSION => {
                return Err(HistoryError::Version { path: path.to_owned(), line, found: o.v });
            }
            Ok(o) => observations.push(o),
            Err(_) if !complete => break,
            Err(error) => {
                return Err(HistoryError::Line { path: path.to_owned(), line, error: error.to_string() });
            }
        }
    }
    Ok(observations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(text: &str) -> What {
        What::Note { text: text.into() }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.jsonl");
        let mut recorder = Recorder::new(Some(Box::new(File::create(&path).unwrap())));
        let now = Timestamp::from_secs(1_700_000_000);
        recorder.record(Source::Harness, None, now, note("a"));
        recorder.record(Source::Database, Some(now), now, note("b"));
        let kept = recorder.into_observations();
        assert_eq!(read(&path).unwrap(), kept);
        assert_eq!(kept.iter().map(|o| o.seq).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn a_line_cut_off_at_the_end_is_left_out_and_one_in_the_middle_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.jsonl");
        let mut recorder = Recorder::new(Some(Box::new(File::create(&path).unwrap())));
        recorder.record(Source::Harness, None, Timestamp::from_secs(0), note("a"));
        recorder.flush();
        let good = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{good}{}", &good[..10])).unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
        std::fs::write(&path, format!("{}\n{good}", &good[..10])).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("history.jsonl:1: this line is not an observation"));
        std::fs::write(&path, good.replace("\"v\":1", "\"v\":99")).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("use a newer vlab"));
    }

    /// A disk that is full.
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_remembered_and_the_history_goes_on_in_memory() {
        let mut recorder = Recorder::new(Some(Box::new(Full)));
        recorder.record(Source::Harness, None, Timestamp::from_secs(0), note("a"));
        recorder.record(Source::Harness, None, Timestamp::from_secs(0), note("b"));
        assert_eq!(recorder.broken().unwrap().kind(), io::ErrorKind::StorageFull);
        assert_eq!(recorder.observations().len(), 2);
    }
}
