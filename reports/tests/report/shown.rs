//! A page in a real browser.

use std::path::PathBuf;

use serde_json::Value;
use vlab_browser::{Browser, Key};

/// A page in a browser, and its folder.
pub(crate) struct Shown {
    pub(crate) browser: Browser,
    page: PathBuf,
    _folder: tempfile::TempDir,
}

impl Shown {
    /// `None`: there is no browser, and the test is skipped.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let browser = Browser::start()?;
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.html");
        std::fs::write(&page, text).unwrap();
        let mut shown = Self { browser, page, _folder: folder };
        shown.browser.window(1400, 1200);
        shown.open("");
        Some(shown)
    }

    pub(crate) fn open(&mut self, fragment: &str) {
        self.browser.open(&format!("file://{}{fragment}", self.page.display()));
    }

    /// The body at that fragment, after what `script` does to the page.
    pub(crate) fn body(&mut self, fragment: &str, script: &str) -> String {
        self.open(fragment);
        self.browser.value(&format!("{{ {script} }}"));
        self.text("document.body.outerHTML")
    }

    pub(crate) fn text(&mut self, expression: &str) -> String {
        let value = self.browser.value(expression);
        value.as_str().map_or_else(|| value.to_string(), str::to_owned)
    }

    /// Presses Tab until an expression about `e`, who has the focus, is true.
    pub(crate) fn tab_to(&mut self, expression: &str) {
        let expression = format!("((e) => {expression})(document.activeElement)");
        for _ in 0..400 {
            self.browser.press(Key::TAB);
            if self.browser.value(&expression) == Value::Bool(true) {
                return;
            }
        }
        panic!("Tab never comes to {expression}");
    }
}

/// The value of an attribute, the first in a text.
pub(crate) fn attribute<'a>(dom: &'a str, name: &str) -> Option<&'a str> {
    let start = dom.find(&format!(" {name}=\""))? + name.len() + 3;
    dom[start..].split('"').next()
}
