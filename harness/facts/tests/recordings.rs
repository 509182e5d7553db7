//! The reduced recordings are what their sources say.

use vlab_facts::recording::{Recording, reduce};
use vlab_facts::{agrees, source, table};

const FILES: [(&str, &str); 3] = [
    ("recorded-sno.yaml", "transcripts/fake-sno.jsonl"),
    ("recorded-ha-3-2.yaml", "transcripts/fake-ha-3-2.jsonl"),
    ("recorded-agent.yaml", "transcripts/real-agent.jsonl"),
];

const HEADING: &str = "Requests and what the real service's answers showed, reduced from a recording: an exchange a line. `t` is in seconds.\n\
                       Texts of more than 60 characters stand once, below `texts`.";

#[test]
fn recordings_are_those_of_the_real_service() {
    for (name, file) in FILES {
        let Some(text) = source(file) else { return };
        agrees(name, HEADING, &reduce(&text));
    }
}

#[test]
fn recordings_can_be_read() {
    for (name, _) in FILES {
        let exchanges = Recording::of(&table(name)).exchanges;
        assert!(!exchanges.is_empty(), "{name}");
        assert!(exchanges.iter().all(|e| !e.method.is_empty() && e.path.starts_with('/') && e.status >= 200), "{name}");
    }
}
