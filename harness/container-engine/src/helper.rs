//! What `vlab` and its helper `vlab-container-helper` say to each other: one JSON object a line, requests on the helper's stdin,
//! answers on its stdout. The helper is the only program with `testcontainers` in it.
//!
//! When its stdin ends, the helper ends and leaves all containers as they are: what removes them then is the ledger.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Version of what is said here. Both sides compare it first: they may come from different builds.
pub const PROTOCOL: u32 = 1;

/// A request. Answers carry the same `id` and may come in another order than the requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Chosen by `vlab`.
    pub id: u64,
    /// What shall be done.
    pub call: ContainerCall,
}

/// What can be done. `name` is the name of the container in the engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum ContainerCall {
    /// Fetches an image.
    Pull {
        /// Its name.
        image: String,
    },
    /// Makes a container, starts it and follows its log.
    Start(Box<Order>),
    /// Waits until all that an ended container has written is in its log file.
    LogEnded {
        /// Name of the container in the engine.
        name: String,
    },
    /// Asks its program to end, and after that time ends it.
    Stop {
        /// Name of the container in the engine.
        name: String,
        /// How many seconds it has.
        grace: u32,
    },
    /// Removes it, running or not.
    Remove {
        /// Name of the container in the engine.
        name: String,
    },
}

/// A container to start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// Its environment on top of the image's.
    pub env: Vec<(String, String)>,
    /// Arguments for the image's program.
    pub args: Vec<String>,
    /// The port that it listens on.
    pub port: u16,
    /// The port of 127.0.0.1 that leads there; `None`: a free one.
    pub host_port: Option<u16>,
    /// The network that it is in.
    pub network: String,
    /// A volume, and where it is mounted.
    pub volume: Option<(String, String)>,
    /// Where a folder in memory is mounted that everybody may write into.
    pub scratch: Option<String>,
    /// Files that are put into it before it starts.
    pub files: Vec<CopiedFile>,
    /// What it writes goes here.
    pub log_file: PathBuf,
    /// Its labels.
    pub labels: Vec<(String, String)>,
    /// Limits that it gets: name, number.
    pub limits: Vec<(String, i64)>,
}

/// A file that is put into a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedFile {
    /// Its path in the container.
    pub path: String,
    /// Its mode there.
    pub mode: u32,
    /// What is in it.
    pub content: Content,
}

/// What is in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// This text.
    Text(String),
    /// What is in this file of this machine.
    Of(PathBuf),
}

/// A line of the helper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first one: it is ready.
    Hello {
        /// [`PROTOCOL`] of the helper.
        protocol: u32,
    },
    /// Instead of [`Line::Hello`]: it cannot work.
    Refused {
        /// The reason, for people.
        why: String,
    },
    /// An answer.
    Answer {
        /// Of the request.
        id: u64,
        /// That it is done, or why not.
        result: Result<(), String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The form is a contract between two programs: it must not change without [`PROTOCOL`].
    #[test]
    fn lines_have_this_form() {
        let request = Request { id: 7, call: ContainerCall::Stop { name: "a".into(), grace: 3 } };
        assert_eq!(serde_json::to_string(&request).unwrap(), r#"{"id":7,"call":{"do":"stop","name":"a","grace":3}}"#);
        let order = Order { name: "a".into(), ..Order::default() };
        let start = serde_json::to_string(&ContainerCall::Start(Box::new(order.clone()))).unwrap();
        assert!(start.starts_with(r#"{"do":"start","name":"a","image":"","#), "{start}");
        assert_eq!(serde_json::from_str::<ContainerCall>(&start).unwrap(), ContainerCall::Start(Box::new(order)));
        let answer = Line::Answer { id: 7, result: Err("no".into()) };
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(text, r#"{"answer":{"id":7,"result":{"Err":"no"}}}"#);
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), answer);
    }
}
