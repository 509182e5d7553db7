//! Logs of the programs of a run, as lines with their times: what the page shows around a moment beside what was observed.
//!
//! Programs write in their own ways. Read are `logrus` (the real service) as text and as JSON, `zap` (etcd, controllers), `klog`,
//! PostgreSQL, and any line that begins with a time. A line without a time belongs to the one before it: the trace of a panic.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use serde_json::Value;
use vlab_api::Timestamp;

/// Logs that are read, below the folder of a run, and whose they are. Consoles of machines stand in the history.
pub const LOGS: &[(&str, &str)] = &[
    ("service.log", "service"),
    ("service-1.log", "service-1"),
    ("service-2.log", "service-2"),
    ("service-3.log", "service-3"),
    ("service-4.log", "service-4"),
    ("postgresql.log", "PostgreSQL"),
    ("etcd.log", "etcd"),
    ("kube.log", "API server"),
    ("kubectl-proxy.log", "way to the API server"),
    ("supervisor.log", "supervisor"),
    ("network/dnsmasq.log", "dnsmasq"),
];

/// Lines of a log that are read; a page has no room for more.
const MOST: usize = 200_000;
/// Characters of a line that are kept.
const LONGEST: usize = 1200;

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When it was written; to the second, where the program tells no more.
    pub at: Timestamp,
    /// Which program.
    pub program: &'static str,
    /// How serious it is, where that is more than usual: `warning`, `error`.
    pub level: &'static str,
    /// What it says.
    pub text: String,
}

/// The lines of all logs in the folder of a run. `begin`: when the run started, for lines before the first time of their log.
/// Logs that are not there have none.
///
/// # Errors
/// Those of the file system, with the path in their text.
pub fn read(dir: &Path, begin: Timestamp) -> io::Result<Vec<LogLine>> {
    let mut all = Vec::new();
    for (name, program) in LOGS {
        let path = dir.join(name);
        let told = |e: io::Error| io::Error::new(e.kind(), format!("cannot read {}: {e}", path.display()));
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(told(e)),
        };
        let mut lines = Lines::new(program, begin);
        for line in BufReader::new(file).split(b'\n').take(MOST) {
            lines.take(&String::from_utf8_lossy(&line.map_err(told)?));
        }
        all.extend(lines.read);
    }
    all.sort_by_key(|line| line.at);
    Ok(all)
}

/// A log that is being read.
struct Lines {
    program: &'static str,
    /// The time of the line before.
    at: Timestamp,
    level: &'static str,
    /// Lines of `klog` have no year.
    year: String,
    read: Vec<LogLine>,
}

impl Lines {
    fn new(program: &'static str, begin: Timestamp) -> Self {
        let year = begin.to_string().chars().take(4).collect();
        Self { program, at: begin, level: "", year, read: Vec::new() }
    }

    fn take(&mut self, line: &str) {
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        let found = of_json(line).or_else(|| of_logrus(line)).or_else(|| self.of_klog(line)).or_else(|| of_time(line));
        let text = match found {
            Some((at, level, text)) => {
                (self.at, self.level) = (at, level);
                text
            }
            None => line.to_owned(),
        };
        let text: String = text.chars().take(LONGEST).collect();
        self.read.push(LogLine { at: self.at, program: self.program, level: self.level, text });
    }

    /// `E1128 03:10:27.123456   12 file.go:204] words`
    fn of_klog(&self, line: &str) -> Option<(Timestamp, &'static str, String)> {
        let (head, text) = line.split_once("] ")?;
        let letter = head.get(..1).filter(|letter| "IWEF".contains(*letter))?;
        let (month, day, time) = (head.get(1..3)?, head.get(3..5)?, head.get(6..)?.split_whitespace().next()?);
        let at = format!("{}-{month}-{day}T{time}Z", self.year).parse().ok()?;
        Some((at, severity(letter), text.to_owned()))
    }
}

type Found = (Timestamp, &'static str, String);

/// `{"time": …, "level": …, "msg": …}`, with whatever else in it.
fn of_json(line: &str) -> Option<Found> {
    let Value::Object(mut members) = serde_json::from_str(line.strip_prefix('{').map(|_| line)?).ok()? else {
        return None;
    };
    let at = ["ts", "time"].iter().find_map(|name| members.remove(*name))?;
    let at = match &at {
        Value::String(text) => time(text)?,
        // zap writes seconds.
        Value::Number(seconds) => Timestamp::from_micros((seconds.as_f64()? * 1e6) as i64),
        _ => return None,
    };
    let level = members.remove("level").and_then(|level| Some(severity(level.as_str()?))).unwrap_or_default();
    let mut text = ["msg", "message"].iter().find_map(|name| members.remove(*name)?.as_str().map(str::to_owned))?;
    for name in ["caller", "func", "file", "stacktrace"] {
        members.remove(name);
    }
    for (name, value) in members {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.push_str(&format!(" {name}={value}"));
    }
    Some((at, level, text))
}

/// `time="2026-11-28T03:10:27Z" level=info msg="words" pkg=host-state`
fn of_logrus(line: &str) -> Option<Found> {
    let mut rest = line.strip_prefix("time=").map(|_| line)?;
    let (mut at, mut level, mut words, mut more) = (None, "", String::new(), String::new());
    while !rest.is_empty() {
        let (name, value, after) = member(rest)?;
        match name {
            "time" => at = time(&value),
            "level" => level = severity(&value),
            "msg" => words = value,
            // Where in the program it stands helps nobody who looks at a run.
            "func" | "file" => {}
            _ => more.push_str(&format!(" {name}={value}")),
        }
        rest = after.trim_start();
    }
    Some((at?, level, words + &more))
}

/// The first `name=value` of a text, the value maybe in quotation marks, and what comes after it.
fn member(text: &str) -> Option<(&str, String, &str)> {
    let (name, rest) = text.split_once('=')?;
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find(' ').unwrap_or(rest.len());
        return Some((name, rest[..end].to_owned(), &rest[end..]));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((place, c)) = chars.next() {
        match c {
            '"' => return Some((name, value, &quoted[place + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                other => value.push(other),
            },
            c => value.push(c),
        }
    }
    None
}

/// Any line that begins with a time: `2026-11-28 03:10:27.162 UTC [3107] LOG:  words`
fn of_time(line: &str) -> Option<Found> {
    let end = if line.get(10..11)? == "T" { line.find(' ')? } else { 11 + line.get(11..)?.find(' ')? };
    let at = time(&line[..end])?;
    let text = line[end..].trim_start();
    let text = text.strip_prefix("UTC ").unwrap_or(text);
    let level =
        text.split_whitespace().take(3).map(|word| severity(word.trim_end_matches(':'))).find(|l| !l.is_empty());
    Some((at, level.unwrap_or_default(), text.to_owned()))
}

/// A time as programs write it; where it names no zone, it is UTC's.
fn time(text: &str) -> Option<Timestamp> {
    let text = text.replacen(' ', "T", 1);
    let zone = text.get(10..)?.contains(['Z', '+', '-']);
    // Zones like `+0000` lack a colon.
    let zone_at = text.len().checked_sub(5).filter(|at| text.get(*at..*at + 1).is_some_and(|sign| "+-".contains(sign)));
    match zone_at {
        Some(at) => format!("{}:{}", text.get(..at + 3)?, text.get(at + 3..)?).parse().ok(),
        None if zone => text.parse().ok(),
        None => format!("{text}Z").parse().ok(),
    }
}

/// How serious a word of a log is, where that is more than usual.
fn severity(word: &str) -> &'static str {
    match word.to_ascii_lowercase().as_str() {
        "warn" | "warning" | "w" => "warning",
        "error" | "err" | "e" => "error",
        "fatal" | "panic" | "dpanic" | "f" => "fatal",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn begin() -> Timestamp {
        "2026-11-28T03:00:00Z".parse().unwrap()
    }

    #[rstest]
    #[case::logrus(
        r#"time="2026-11-28T03:10:27Z" level=warning msg="host \"a\" = b" func=main.go file="/x y:1" pkg=host id=7"#,
        ("2026-11-28T03:10:27Z", "warning", r#"host "a" = b pkg=host id=7"#)
    )]
    #[case::logrus_json(
        r#"{"level":"error","msg":"no","time":"2026-11-28T03:10:27+01:00","file":"x.go:1","cluster_id":"7"}"#,
        ("2026-11-28T02:10:27Z", "error", "no cluster_id=7")
    )]
    #[case::zap(
        r#"{"level":"info","ts":"2026-11-28T03:10:27.123456+0000","caller":"a.go:1","msg":"yes","n":3}"#,
        ("2026-11-28T03:10:27.123456Z", "", "yes n=3")
    )]
    #[case::zap_seconds(r#"{"level":"fatal","ts":1795835427.5,"msg":"end"}"#, ("2026-11-28T03:10:27.5Z", "fatal", "end"))]
    #[case::klog(
        "E1128 03:10:27.123456   12 reflector.go:204] watch ended",
        ("2026-11-28T03:10:27.123456Z", "error", "watch ended")
    )]
    #[case::postgresql(
        "2026-11-28 03:10:27.162 UTC [3107] ERROR:  relation \"x\" does not exist",
        ("2026-11-28T03:10:27.162Z", "error", "[3107] ERROR:  relation \"x\" does not exist")
    )]
    #[case::a_time("2026-11-28T03:10:27.162Z WARN here", ("2026-11-28T03:10:27.162Z", "warning", "WARN here"))]
    #[case::no_time("goroutine 1 [running]:", ("2026-11-28T03:00:00Z", "", "goroutine 1 [running]:"))]
    #[case::half_a_member("time=\"2026", ("2026-11-28T03:00:00Z", "", "time=\"2026"))]
    #[case::other_json("{\"a\": 1}", ("2026-11-28T03:00:00Z", "", "{\"a\": 1}"))]
    #[case::not_ascii("2026-11-2ä 3", ("2026-11-28T03:00:00Z", "", "2026-11-2ä 3"))]
    fn lines_are_read(#[case] line: &str, #[case] (at, level, text): (&str, &'static str, &str)) {
        let mut lines = Lines::new("service", begin());
        lines.take(line);
        let is = LogLine { at: at.parse().unwrap(), program: "service", level, text: text.to_owned() };
        assert_eq!(lines.read, [is]);
    }

    #[test]
    fn the_lines_of_a_panic_belong_to_their_first() {
        let mut lines = Lines::new("service", begin());
        let text = "time=\"2026-11-28T03:10:27Z\" level=panic msg=no\n\ngoroutine 1 [running]:\n\tmain.main()\n";
        text.lines().for_each(|line| lines.take(line));
        let read: Vec<(String, &str)> = lines.read.iter().map(|l| (l.at.to_string(), l.level)).collect();
        assert_eq!(read.len(), 3);
        assert!(read.iter().all(|line| line == &read[0]), "{read:?}");
    }

    #[test]
    fn logs_of_a_run_are_one_list_in_order_and_missing_ones_are_empty() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("service.log"), "time=\"2026-11-28T03:10:27Z\" msg=b\n\u{fffd}\n").unwrap();
        std::fs::write(folder.path().join("postgresql.log"), b"2026-11-28 03:10:26 UTC [1] LOG:  \xff\n").unwrap();
        let read: Vec<&str> = read(folder.path(), begin()).unwrap().iter().map(|line| line.program).collect();
        assert_eq!(read, ["PostgreSQL", "service", "service"]);
    }

    proptest::proptest! {
        #[test]
        fn no_line_is_lost_and_none_ends_the_program(line in "\\PC{0,80}", prefix in "(time=|\\{\"ts\":|E1128 |2026-11-28[T ])?") {
            let mut lines = Lines::new("service", begin());
            let line = format!("{prefix}{line}");
            lines.take(&line);
            proptest::prop_assert_eq!(lines.read.len(), usize::from(!line.trim_end().is_empty()));
        }
    }
}
