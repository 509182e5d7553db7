//! What the programs of a node say. Each moment is one line, `vlab-node: <part> <moment> <details as JSON>`, on standard error
//! and, where a console can be written, on the machine's console: the harness reads it there and puts it into the history.

use std::io::Write;

use serde_json::{Value, json};

/// Name that begins every line.
pub const PREFIX: &str = "vlab-node:";

/// The moment at which an answer of the service could not be understood; details: `of` and `error`.
pub const UNREADABLE: &str = "answer-unreadable";

/// The longest record that `/dev/kmsg` takes, less what the kernel adds.
const LONGEST: usize = 960;

/// Says that something happened: part (`agent`, `installer`, `pivot`, `controller`, ...), moment in words joined by `-`, details.
pub fn moment(part: &str, what: &str, details: &Value) {
    let line = line(part, what, details);
    eprintln!("{line}");
    // Standard error of a unit goes to the journal; the console is another file. Nobody has to have one.
    // The kernel takes no longer line.
    let line =
        if line.len() > LONGEST { self::line(part, what, &json!({ "bytes left out": line.len() })) } else { line };
    if std::env::var_os("VLAB_NODE_CONSOLE").is_none_or(|v| v != "no")
        && let Ok(mut console) = std::fs::OpenOptions::new().write(true).open("/dev/kmsg")
    {
        let _ = console.write_all(format!("<5>{line}\n").as_bytes());
    }
}

/// Says something for people only.
pub fn note(part: &str, text: &str) {
    eprintln!("{PREFIX} {part} note {}", Value::from(text));
}

/// The line of a moment.
pub fn line(part: &str, what: &str, details: &Value) -> String {
    format!("{PREFIX} {part} {what} {details}")
}

/// Reads a line of a console: part, moment, details. `None` when it is not one of these lines.
pub fn read(line: &str) -> Option<(&str, &str, Value)> {
    let at = line.find(PREFIX)?;
    let mut words = line[at + PREFIX.len()..].trim_start().splitn(3, ' ');
    let (part, what, details) = (words.next()?, words.next()?, words.next()?);
    Some((part, what, serde_json::from_str(details.trim_end()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_back_from_a_console() {
        let said = line("pivot", "etcd-quorum", &json!({ "members": 3 }));
        let console = format!("[   12.345678] {said}\r\n");
        assert_eq!(read(&console), Some(("pivot", "etcd-quorum", json!({ "members": 3 }))));
        assert_eq!(read("kernel: nothing of ours"), None);
        assert_eq!(read("vlab-node: pivot cut {\"a"), None);
    }
}
