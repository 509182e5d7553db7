//! A real browser with a hand at its keyboard, for tests: windows of any width, dark and light, keys that are pressed, pictures.
//!
//! Chromium is driven over the pipe of its DevTools protocol, so that it listens nowhere. Every question has a budget, and the
//! browser ends with its [`Browser`].

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

/// The time that the browser has for an answer, and a condition to come true; a busy computer takes seconds.
const BUDGET: Duration = Duration::from_secs(60);

/// A browser that shows a page.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    ask: ChildStdin,
    told: Receiver<Value>,
    /// Answers and events that came while something else was waited for.
    kept: Vec<Value>,
    session: Option<String>,
    asked: u64,
    /// Its profile.
    folder: tempfile::TempDir,
}

/// A key that is pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name in the events of a page, for example `ArrowLeft`.
    pub name: &'static str,
    /// Its number in the protocol.
    code: u32,
    /// What it writes.
    text: &'static str,
}

#[expect(missing_docs, reason = "the names say it")]
impl Key {
    pub const TAB: Self = Self { name: "Tab", code: 9, text: "" };
    pub const ENTER: Self = Self { name: "Enter", code: 13, text: "\r" };
    pub const SPACE: Self = Self { name: " ", code: 32, text: " " };
    pub const LEFT: Self = Self { name: "ArrowLeft", code: 37, text: "" };
    pub const RIGHT: Self = Self { name: "ArrowRight", code: 39, text: "" };
    pub const PAGE_DOWN: Self = Self { name: "PageDown", code: 34, text: "" };
    pub const HOME: Self = Self { name: "Home", code: 36, text: "" };
    pub const END: Self = Self { name: "End", code: 35, text: "" };
}

impl Browser {
    /// Starts one. `None`: there is none on this computer, and the test is recorded as skipped.
    ///
    /// # Panics
    /// When it does not start, as all that follows does when the browser does not answer.
    pub fn start() -> Option<Self> {
        let Some(program) = vlab_setup::browser() else {
            vlab_skip::skip!("no Chromium found (apt-get install chromium, or name one in VLAB_CHROMIUM)");
            return None;
        };
        let folder = tempfile::tempdir().expect("a folder for the browser's profile");
        // The pipe is its descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "browser"])
            .arg(program)
            .args(vlab_setup::BROWSER_ARGS)
            .arg(format!("--user-data-dir={}", folder.path().display()))
            .arg("--remote-debugging-pipe")
            // It makes folders of its own beside its profile.
            .env("TMPDIR", folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the browser starts");
        let (ask, out) = child.stdin.take().zip(child.stdout.take()).expect("both are pipes");
        let (tell, told) = channel();
        // Ends with the browser.
        std::thread::spawn(move || {
            for message in BufReader::new(out).split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("the browser speaks JSON");
                if tell.send(message).is_err() {
                    break;
                }
            }
        });
        let mut browser = Self { child, ask, told, kept: Vec::new(), session: None, asked: 0, folder };
        let target = browser.ask("Target.createTarget", &json!({ "url": "about:blank" }))["targetId"].clone();
        let attach = json!({ "targetId": target, "flatten": true });
        browser.session = browser.ask("Target.attachToTarget", &attach)["sessionId"].as_str().map(str::to_owned);
        browser.ask("Page.enable", &json!({}));
        Some(browser)
    }

    /// Opens an address and waits until the page is loaded.
    pub fn open(&mut self, address: &str) {
        self.kept.retain(|message| message["method"] != "Page.loadEventFired");
        // Another fragment alone would load nothing.
        self.ask("Page.navigate", &json!({ "url": "about:blank" }));
        self.wait("about:blank is loaded", |message| message["method"] == "Page.loadEventFired");
        let answer = self.ask("Page.navigate", &json!({ "url": address }));
        assert!(answer.get("errorText").is_none(), "{address}: {answer}");
        self.wait("the page is loaded", |message| message["method"] == "Page.loadEventFired");
    }

    /// Makes the window so large, in pixels. It may be narrower than one on a desktop can be.
    pub fn window(&mut self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.ask("Emulation.setDeviceMetricsOverride", &size);
    }

    /// What the reader prefers: `dark` or `light`.
    pub fn scheme(&mut self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.ask("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    /// Presses a key and lets it go.
    pub fn press(&mut self, key: Key) {
        self.press_with(key, false);
    }

    /// The same, with Shift held or not.
    pub fn press_with(&mut self, key: Key, shift: bool) {
        let mut event = json!({
            "key": key.name, "code": key.name, "windowsVirtualKeyCode": key.code, "modifiers": if shift { 8 } else { 0 },
        });
        event["type"] = if key.text.is_empty() { "rawKeyDown" } else { "keyDown" }.into();
        if !key.text.is_empty() {
            event["text"] = key.text.into();
        }
        self.ask("Input.dispatchKeyEvent", &event);
        event["type"] = "keyUp".into();
        self.ask("Input.dispatchKeyEvent", &event);
    }

    /// Writes a text where the focus is.
    pub fn write(&mut self, text: &str) {
        self.ask("Input.insertText", &json!({ "text": text }));
    }

    /// The value of an expression in the page.
    ///
    /// # Panics
    /// With the page's own words when it throws.
    pub fn value(&mut self, expression: &str) -> Value {
        self.evaluate(expression).unwrap_or_else(|answer| panic!("{expression}: {answer}"))
    }

    /// The value of an expression in the page, or what the browser says of the exception.
    fn evaluate(&mut self, expression: &str) -> Result<Value, Value> {
        let question = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.try_ask("Runtime.evaluate", &question)?;
        if answer.get("exceptionDetails").is_some() { Err(answer) } else { Ok(answer["result"]["value"].clone()) }
    }

    /// Waits until an expression is true in the page.
    ///
    /// An expression that throws is not true yet: a page that loads itself anew has no body for a moment.
    ///
    /// # Panics
    /// When the budget is spent, with the value or the exception that it had last.
    pub fn until(&mut self, expression: &str) {
        let end = Instant::now() + BUDGET;
        loop {
            let value = self.evaluate(expression).unwrap_or_else(|thrown| thrown);
            if value == Value::Bool(true) {
                return;
            }
            assert!(Instant::now() < end, "{expression} is {value} after {BUDGET:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What the window shows, as PNG.
    pub fn picture(&mut self) -> Vec<u8> {
        let answer = self.ask("Page.captureScreenshot", &json!({ "format": "png" }));
        let text = answer["data"].as_str().expect("a picture");
        base64::engine::general_purpose::STANDARD.decode(text).expect("it is base64")
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.try_ask(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// What the browser answers, or the error that it answers with.
    fn try_ask(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
        self.asked += 1;
        let id = self.asked;
        let mut question = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            question["sessionId"] = session.as_str().into();
        }
        let mut text = question.to_string();
        text.push('\0');
        self.ask.write_all(text.as_bytes()).unwrap_or_else(|e| panic!("{method}: the browser is gone: {e}"));
        let mut answer = self.wait(method, |message| message["id"] == id);
        if answer.get("error").is_some() { Err(answer) } else { Ok(answer["result"].take()) }
    }

    /// The first message that is wanted.
    fn wait(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(place) = self.kept.iter().position(&wanted) {
            return self.kept.remove(place);
        }
        let end = Instant::now() + BUDGET;
        loop {
            match self.told.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(message) if wanted(&message) => return message,
                Ok(message) => self.kept.push(message),
                Err(error) => panic!("{what}: the browser says nothing ({error}); before that: {:?}", self.kept.last()),
            }
        }
    }
}

impl Drop for Browser {
    /// Who is asked to end ends its helpers first; these would write into the folder that is removed next.
    fn drop(&mut self) {
        let question = json!({ "id": self.asked + 1, "method": "Browser.close" });
        let _ = self.ask.write_all(format!("{question}\0").as_bytes());
        let end = Instant::now() + BUDGET;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A helper that is slower than it may still write.
        while fs::remove_dir_all(self.folder.path()).is_err() && self.folder.path().exists() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e2e_nothing_of_it_stays() {
        let Some(browser) = Browser::start() else { return };
        let folder = browser.folder.path().to_owned();
        assert!(folder.is_dir());
        drop(browser);
        assert!(!folder.exists(), "{} is still there", folder.display());
    }

    #[test]
    fn e2e_an_expression_that_throws_is_waited_for() {
        let Some(mut browser) = Browser::start() else { return };
        browser.open("data:text/html,<script>setTimeout(() => { window.later = { there: true } }, 500)</script>");
        browser.until("window.later.there");
        assert_eq!(browser.value("window.later.there"), true);
    }
}
