//! What a conductor was told and what it wanted, so that another one can be brought to where it was.
//!
//! A conductor is a function of what it is told. A run that may be frozen writes all of it down ([`Entry`]); who continues the run tells the
//! same to a conductor of its own ([`Conductor::replay`]) and compares what that one wants with what the first one wanted. So a scenario that
//! would have done otherwise before the moment of the snapshot is found out, and named, before anything is started.
//!
//! Time has gone on meanwhile. The run that continues behaves as if it had not: each time is moved by the same [`Shift`].

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::actor::Send;
use vlab_api::http::{Response, TransportError};
use vlab_model::history::{Source, What};

use crate::conductor::{MachineOrder, Task};

/// Something that a conductor was told, or wanted. Instants are in microseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "entry")]
pub enum Entry {
    /// It began.
    Start {
        /// When.
        at: i64,
    },
    /// Time came to that instant.
    Wake {
        /// When.
        at: i64,
    },
    /// It was asked whether the run is over.
    Ending {
        /// When.
        at: i64,
    },
    /// A request was answered.
    Answer {
        /// When.
        at: i64,
        /// Over which connection.
        connection: u32,
        /// The request's own mark.
        tag: u64,
        /// What came back.
        answer: Answer,
    },
    /// Somebody else saw something.
    Seen {
        /// When.
        at: i64,
        /// Who.
        source: Source,
        /// By the service's clock.
        service_time: Option<i64>,
        /// What.
        what: Box<What>,
    },
    /// A machine was answered.
    MachineAnswered {
        /// When.
        at: i64,
        /// Which, as far as that was known.
        host: Option<Uuid>,
        /// What it had asked.
        request: String,
        /// The status of the answer.
        status: u16,
        /// How long that took, in microseconds.
        took: u64,
        /// Nobody should be answered so.
        bad: bool,
    },
    /// A task was done.
    Done {
        /// When.
        at: i64,
        /// The fault.
        fault: String,
        /// What was done, for people.
        how: String,
    },
    /// It wanted to send these requests.
    Sent {
        /// In words.
        what: Vec<String>,
    },
    /// It wanted this to be done outside.
    Tasks {
        /// In words.
        what: Vec<String>,
    },
    /// It wanted this to be done to machines.
    Orders {
        /// In words.
        what: Vec<String>,
    },
    /// The end: what it wanted and nobody has done yet.
    Left {
        /// Requests, in words.
        sent: Vec<String>,
        /// Tasks, in words.
        tasks: Vec<String>,
        /// What is to be done to machines, in words.
        orders: Vec<String>,
    },
}

/// An answer, as it can be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// A response with a text.
    Text(u16, Vec<(String, String)>, String),
    /// A response with bytes that are no text, in Base64.
    Bytes(u16, Vec<(String, String)>, String),
    /// Nobody listened.
    NoConnection(String),
    /// The connection was lost.
    Lost(String),
    /// It took longer than this, in microseconds.
    TooLate(u64),
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl From<&Result<Response, TransportError>> for Answer {
    fn from(result: &Result<Response, TransportError>) -> Self {
        match result {
            Ok(Response { status, headers, body }) => match std::str::from_utf8(body.as_slice()) {
                Ok(text) => Self::Text(*status, headers.clone(), text.to_owned()),
                Err(_) => Self::Bytes(*status, headers.clone(), BASE64.encode(body.as_slice())),
            },
            Err(TransportError::Connect(why)) => Self::NoConnection(why.clone()),
            Err(TransportError::Lost(why)) => Self::Lost(why.clone()),
            Err(TransportError::Timeout(after)) => Self::TooLate(micros(*after)),
        }
    }
}

impl Answer {
    pub(crate) fn into_result(self) -> Result<Result<Response, TransportError>, base64::DecodeError> {
        Ok(match self {
            Self::Text(status, headers, text) => Ok(Response { status, headers, body: text.into_bytes().into() }),
            Self::Bytes(status, headers, text) => Ok(Response { status, headers, body: BASE64.decode(text)?.into() }),
            Self::NoConnection(why) => Err(TransportError::Connect(why)),
            Self::Lost(why) => Err(TransportError::Lost(why)),
            Self::TooLate(after) => Err(TransportError::Timeout(Duration::from_micros(after))),
        })
    }
}

/// By how much each time of a run is moved that is continued later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// When the run began.
    began: Timestamp,
    /// When it was frozen.
    frozen: Timestamp,
    by: Duration,
}

/// Times that a run writes down for later: deadlines, and what is good until then.
const AHEAD: Duration = Duration::from_secs(24 * 60 * 60);

impl Shift {
    /// For a run that began and was frozen then, and goes on now.
    #[must_use]
    pub fn new(began: Timestamp, frozen: Timestamp, now: Timestamp) -> Self {
        // Texts have milliseconds, and a row that says a time twice says the same twice.
        let millis = u64::try_from(now.since(frozen).as_millis()).unwrap_or(u64::MAX);
        Self { began, frozen, by: Duration::from_millis(millis) }
    }

    /// By how much.
    #[must_use]
    pub fn by(&self) -> Duration {
        self.by
    }

    pub(crate) fn at(&self, micros: i64) -> Timestamp {
        Timestamp::from_micros(micros) + self.by
    }

    /// From when to when times are of the run; what is outside of that was there before it (a release, a certificate, "never").
    #[must_use]
    pub fn span(&self) -> (Timestamp, Timestamp) {
        // Programs on other computers may have begun a little earlier by their clocks.
        (Timestamp::from_micros(self.began.as_micros() - 60_000_000), self.frozen + AHEAD)
    }

    fn is_of_the_run(&self, time: Timestamp) -> bool {
        let (from, until) = self.span();
        (from..=until).contains(&time)
    }

    /// A text with each time of the run in it moved (as RFC 3339 has it).
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut moved = String::new();
        let mut kept = 0;
        let mut from = 0;
        while let Some(found) = text[from..].find('T') {
            let middle = from + found;
            from = middle + 1;
            let Some((start, end)) = time_around(text, middle) else { continue };
            let Ok(time) = text[start..end].parse::<Timestamp>() else { continue };
            if start < kept || !self.is_of_the_run(time) {
                continue;
            }
            moved.push_str(&text[kept..start]);
            moved.push_str(&(time + self.by).to_string());
            (kept, from) = (end, end);
        }
        if kept == 0 {
            return Cow::Borrowed(text);
        }
        moved.push_str(&text[kept..]);
        Cow::Owned(moved)
    }
}

/// Where the time begins and ends that has its `T` there.
fn time_around(text: &str, middle: usize) -> Option<(usize, usize)> {
    const DATE: &[u8] = b"dddd-dd-dd";
    const TIME: &[u8] = b"dd:dd:dd";
    let bytes = text.as_bytes();
    let start = middle.checked_sub(DATE.len())?;
    let is = |at: usize, form: &[u8]| {
        bytes.get(at..at + form.len()).is_some_and(|found| {
            found.iter().zip(form).all(|(byte, form)| if *form == b'd' { byte.is_ascii_digit() } else { byte == form })
        })
    };
    if !is(start, DATE) || !is(middle + 1, TIME) || start > 0 && bytes[start - 1].is_ascii_digit() {
        return None;
    }
    let mut end = middle + 1 + TIME.len();
    if bytes.get(end) == Some(&b'.') {
        end += 1 + bytes[end + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    }
    match bytes.get(end)? {
        b'Z' => Some((start, end + 1)),
        b'+' | b'-' if is(end + 1, b"dd:dd") => Some((start, end + 6)),
        _ => None,
    }
}

/// A request in words that are the same whenever it is made.
pub(crate) fn sent_words(sends: &[Send]) -> Vec<String> {
    // Queries have times in them, which are moved.
    let words = |send: &Send| format!("{} {} {}", send.connection, send.request.method, send.request.split_path().0);
    sends.iter().map(words).collect()
}

/// What is to be done outside, in such words.
pub(crate) fn task_words(tasks: &[Task]) -> Vec<String> {
    let words = |task: &Task| match task {
        Task::Do(fault, _) => format!("the fault {fault} begins"),
        Task::Undo(fault) => format!("the fault {fault} ends"),
    };
    tasks.iter().map(words).collect()
}

/// What is to be done to machines, in such words.
pub(crate) fn order_words(orders: &[MachineOrder]) -> Vec<String> {
    let words = |order: &MachineOrder| match order {
        MachineOrder::Boot { machines, .. } => {
            let machines: Vec<String> = machines.iter().map(|(machine, _)| machine.to_string()).collect();
            format!("machines {} are switched on", machines.join(", "))
        }
        MachineOrder::BootDiscovery { machine } => format!("machine {machine} boots its discovery image again"),
        MachineOrder::Bound { machine, cluster } => format!("machine {machine} is bound to {cluster}"),
        MachineOrder::Fault { name, on, undo, .. } => {
            format!("the fault {name} {} on {}", if *undo { "ends" } else { "begins" }, on.join(", "))
        }
    };
    orders.iter().map(words).collect()
}

/// What nobody has done yet when a run is frozen, and what was bound until then.
#[derive(Debug, Default)]
pub struct Left {
    /// Requests.
    pub sends: Vec<Send>,
    /// Tasks.
    pub tasks: Vec<Task>,
    /// What is to be done to machines.
    pub orders: Vec<MachineOrder>,
    /// What was done to machines so far.
    pub done: Vec<MachineOrder>,
}

/// Why a run cannot be continued by that scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// It would have done otherwise before the moment of the snapshot.
    #[error(
        "before the snapshot this scenario does otherwise than the one that was frozen: {after} s after the start of the run it wants {now}, \
         and then it was {then}"
    )]
    Otherwise {
        /// Seconds from the start.
        after: u64,
        /// What it wants now.
        now: String,
        /// What was wanted then.
        then: String,
    },
    /// An entry that cannot be understood.
    #[error("line {0} of the journal cannot be understood: {1}")]
    Unreadable(usize, String),
    /// It has no end.
    #[error("the journal has no end: the snapshot was not finished")]
    Unfinished,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// A run of ten minutes that goes on two hours later.
    fn two_hours() -> Shift {
        Shift::new(time("2026-11-29T10:00:00Z"), time("2026-11-29T10:10:00Z"), time("2026-11-29T12:10:00Z"))
    }

    #[rstest]
    #[case::of_the_run(r#"{"at":"2026-11-29T10:05:00.125Z"}"#, r#"{"at":"2026-11-29T12:05:00.125Z"}"#)]
    #[case::without_a_fraction("at 2026-11-29T10:05:00Z.", "at 2026-11-29T12:05:00.000Z.")]
    #[case::with_an_offset("2026-11-29T11:05:00+01:00", "2026-11-29T12:05:00.000Z")]
    #[case::to_the_nanosecond("2026-11-29T10:05:00.123456789Z", "2026-11-29T12:05:00.123Z")]
    #[case::two("2026-11-29T10:01:00Z/2026-11-29T10:02:00Z", "2026-11-29T12:01:00.000Z/2026-11-29T12:02:00.000Z")]
    #[case::a_deadline("2026-11-30T09:00:00Z", "2026-11-30T11:00:00.000Z")]
    #[case::a_little_before("2026-11-29T09:59:30Z", "2026-11-29T11:59:30.000Z")]
    #[case::before_the_run("2026-11-29T09:00:00Z", "2026-11-29T09:00:00Z")]
    #[case::never("0001-01-01T00:00:00.000Z", "0001-01-01T00:00:00.000Z")]
    #[case::a_certificate_of_ten_years("2036-11-29T10:05:00Z", "2036-11-29T10:05:00Z")]
    #[case::no_time("T 2026-11-29 10:05:00 éT", "T 2026-11-29 10:05:00 éT")]
    #[case::no_zone("2026-11-29T10:05:00 ", "2026-11-29T10:05:00 ")]
    #[case::a_longer_number("12026-11-29T10:05:00Z", "12026-11-29T10:05:00Z")]
    fn times_of_the_run_are_moved_and_no_others(#[case] text: &str, #[case] moved: &str) {
        assert_eq!(two_hours().text(text), moved);
    }

    proptest! {
        #[test]
        fn what_has_no_time_stays(text in "[^0-9]*") {
            prop_assert_eq!(two_hours().text(&text), text.as_str());
        }

        #[test]
        fn each_time_is_moved_by_the_same(before in "[a-zTé\\-]{0,5}", after in "[a-zTé: ]{0,5}", second in 0i64..600) {
            let at = |hour: i64| Timestamp::from_secs(time("2026-11-29T00:00:00Z").as_secs() + hour * 3600 + second);
            let text = format!("{before}{}{after}", at(10));
            prop_assert_eq!(two_hours().text(&text), format!("{before}{}{after}", at(12)));
        }
    }

    /// A time that is said in microseconds in one place and in milliseconds in another must stay the same time.
    #[test]
    fn all_is_moved_by_whole_milliseconds() {
        let frozen = Timestamp::from_micros(1_000_000_123);
        let shift = Shift::new(Timestamp::from_micros(1_000_000_000), frozen, Timestamp::from_micros(5_000_999_999));
        assert_eq!(shift.by(), Duration::from_millis(4_001_000 - 1));
    }

    #[rstest]
    #[case(Ok(Response { status: 200, headers: vec![("a".into(), "b".into())], body: b"{}".to_vec().into() }))]
    #[case(Ok(Response { status: 200, headers: vec![], body: vec![0xff, 0, 1].into() }))]
    #[case(Err(TransportError::Connect("refused".into())))]
    #[case(Err(TransportError::Lost("reset".into())))]
    #[case(Err(TransportError::Timeout(Duration::from_secs(30))))]
    fn an_answer_can_be_kept(#[case] answer: Result<Response, TransportError>) {
        let text = serde_json::to_string(&Answer::from(&answer)).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&text).unwrap().into_result().unwrap(), answer);
    }
}
