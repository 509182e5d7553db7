//! The helper against an engine that is only a socket: it starts, speaks its protocol, reaches the engine,
//! tells what the engine says, and ends with its stdin.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use vlab_container_engine::helper::{ContainerCall, Line, PROTOCOL, Request};

/// An engine that refuses everything; the paths that it was asked for.
fn engine(socket: &Path) -> mpsc::Receiver<String> {
    let listener = UnixListener::bind(socket).unwrap();
    let (asked, paths) = mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                head.push(byte[0]);
            }
            let path = String::from_utf8_lossy(&head).split_whitespace().nth(1).unwrap_or_default().to_owned();
            let _ = asked.send(path);
            let body = r#"{"message":"this engine is only a test"}"#;
            let _ = write!(
                stream,
                "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    paths
}

struct Helper {
    child: Child,
    lines: Box<dyn Iterator<Item = Line>>,
}

fn start(socket: &Path, engine: &Path) -> Helper {
    let mut child = Command::new(env!("CARGO_BIN_EXE_vlab-container-helper"))
        .arg("serve")
        .arg(socket)
        .args([format!("unix://{}", engine.display()).as_str(), "1.41"])
        .env("DOCKER_HOST", format!("unix://{}", socket.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let lines = Box::new(stdout.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()));
    Helper { child, lines }
}

impl Helper {
    fn ask(&mut self, id: u64, call: ContainerCall) -> Result<(), String> {
        let request = serde_json::to_string(&Request { id, call }).unwrap();
        writeln!(self.child.stdin.as_mut().unwrap(), "{request}").unwrap();
        match self.lines.next() {
            Some(Line::Answer { id: answered, result }) if answered == id => result,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_the_engine_says_is_told_and_the_end_of_stdin_is_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, there) = (folder.path().join("relay.sock"), folder.path().join("engine.sock"));
    let paths = engine(&there);
    let mut helper = start(&socket, &there);
    assert_eq!(helper.lines.next(), Some(Line::Hello { protocol: PROTOCOL }));

    let refused = helper.ask(1, ContainerCall::Pull { image: "vlab-nothing:1".to_owned() }).unwrap_err();
    assert!(refused.contains("this engine is only a test"), "{refused}");
    let asked: Vec<String> = paths.try_iter().collect();
    assert!(asked.iter().any(|path| path.contains("/images/create?fromImage=vlab-nothing")), "{asked:?}");

    let unknown = helper.ask(2, ContainerCall::Remove { name: "vlab-x".to_owned() }).unwrap_err();
    assert!(unknown.contains("vlab-x was not started here"), "{unknown}");

    drop(helper.child.stdin.take());
    assert!(helper.child.wait().unwrap().success());
    assert!(!socket.exists());
}

#[test]
fn a_socket_that_cannot_be_made_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut helper = start(&folder.path().join("no/such/folder.sock"), Path::new("/nowhere"));
    assert!(matches!(helper.lines.next(), Some(Line::Refused { why }) if why.contains("folder.sock")));
    drop(helper.child.stdin.take());
    helper.child.wait().unwrap();
}
