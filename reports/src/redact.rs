//! Takes secrets out of everything that is written.
//!
//! Two nets: secrets that the run knows (given to [`Redactor::new`]) are found in every form in which they travel, and
//! what looks like a secret is found by its shape. The first is a promise, the second a safety net.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use regex::{Captures, Regex};
use serde_json::Value;

/// What stands where a secret was.
pub const MARKER: &str = "(redacted)";
/// Where a secret was a whole JSON object, so that the line stays JSON.
const JSON_MARKER: &str = r#"{"redacted":true}"#;
/// Shorter secrets than this (in characters) are not looked for: they would match words.
pub const SHORTEST_SECRET: usize = 6;

/// Shapes of secrets. The group `keep` (or several: `keep`, `after`) stays, the rest of the match is replaced.
static SHAPES: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    [
        // Private keys, whole; with line ends as they are or as `\n` in JSON. The second is one that was cut off.
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:[A-Za-z0-9+/=\\:,. \t\r\n-]*?)-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:[A-Za-z0-9+/=]{16,}|(?:\\r)?(?:\\n)+|[\r\n])*",
        // JSON members whose value is a secret; the second inside JSON that is text in JSON (`\"auth\":\"...\"`).
        r#"(?P<keep>"(?i-u:auth|identitytoken|registrytoken|password|passwd|kubeadmin_password|pull_secret|pull-secret|pullsecret|token|access_token|refresh_token|id_token|api_key|secret|secret_key|client_secret|ignition_endpoint_token|private_key|x-secret-key|authorization)"\s{0,4}:\s{0,4}\[?")(?P<value>(?:[^"\\]|\\.)+)"#,
        r#"(?P<keep>\\+"(?i-u:auth|identitytoken|registrytoken|password|passwd|kubeadmin_password|pull_secret|pull-secret|pullsecret|token|access_token|refresh_token|id_token|api_key|secret|secret_key|client_secret|ignition_endpoint_token|private_key|x-secret-key|authorization)\\+"\s{0,4}:\s{0,4}\[?\\+")(?P<value>(?:[^"\\]|\\[^"\\])+)"#,
        // JSON web tokens.
        r"eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)?",
        // HTTP headers, as a header, in `curl -H`, or as Go prints a map of them.
        r#"(?P<keep>(?i-u:x-secret-key|authorization|proxy-authorization)\\*["']?\s{0,4}[:=]\s{0,4}\[?\\*["']?(?i-u:(?:bearer|basic|token)\s+)?)(?P<value>[^\s"'\\,;\]<>]+)"#,
        r"(?P<keep>(?i-u:\bbearer)\s+)(?P<value>[A-Za-z0-9._~+/=-]{8,})",
        // The form of a kubeadmin password.
        r"(?-u:\b)[A-Za-z0-9]{5}-[A-Za-z0-9]{5}-[A-Za-z0-9]{5}-[A-Za-z0-9]{5}(?-u:\b)",
        // Passwords in URLs, in connection strings and in the environment.
        r#"(?P<keep>(?-u:\b)[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/?#@"'<>]*:)(?P<value>[^\s/"'<>]+)(?P<after>@)"#,
        r#"(?P<keep>(?i-u:\b(?:pg)?password)\s{0,4}=\s{0,4})(?P<value>'(?:[^'\\]|\\.)*'|[^\s"'&<>\\]+)"#,
        r#"(?P<keep>[?&](?i-u:api_key|token|access_token|image_token)=)(?P<value>[^&\s"'\\<>]+)"#,
    ]
    .iter()
    .map(|shape| Regex::new(shape).unwrap_or_else(|e| unreachable!("{shape}: {e}")))
    .collect()
});

/// The beginning of a private key; its end may be lines away.
static KEY_BEGINS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----").unwrap_or_else(|e| unreachable!("{e}")));
static KEY_ENDS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----").unwrap_or_else(|e| unreachable!("{e}")));

/// Knows which secrets to take out. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    known: Option<Arc<Known>>,
}

/// The secrets that a run registered.
struct Known {
    any: Regex,
    /// Length in bytes of the longest form with a line end in it; 0 when there is none. A line-wise reader must look back
    /// so far.
    longest_with_line_end: usize,
    /// Length in bytes of the longest form.
    longest: usize,
}

/// Never prints what it knows.
impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known").finish_non_exhaustive()
    }
}

impl Redactor {
    /// `secrets` are taken out wherever they stand and however they are written: as they are, as JSON (also twice), base64,
    /// URL-encoded, or as HTML. Those of less than [`SHORTEST_SECRET`] characters are left alone. A secret that is a pull secret
    /// registers what is in it, too: each `auth`, and user and password inside it.
    ///
    /// What looks like a secret is taken out besides; `Redactor::default()` does only that.
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let mut all = BTreeSet::new();
        for secret in secrets {
            all.extend(inside(&secret));
            all.insert(secret);
        }
        let mut forms = BTreeSet::new();
        for secret in &all {
            for text in [secret.as_str(), secret.trim()] {
                if text.chars().count() >= SHORTEST_SECRET {
                    forms.extend(forms_of(text));
                }
            }
        }
        if forms.is_empty() {
            return Self { known: None };
        }
        // Longest first: of two that begin at the same place the longer one is taken out whole.
        let mut forms: Vec<String> = forms.into_iter().collect();
        forms.sort_by_key(|f| (std::cmp::Reverse(f.len()), f.clone()));
        let with_line_end = forms.iter().filter(|f| f.contains('\n')).map(String::len).max();
        let longest = forms.first().map_or(0, String::len);
        let pattern = forms.iter().map(|f| regex::escape(f)).collect::<Vec<_>>().join("|");
        let any = regex::RegexBuilder::new(&pattern)
            .size_limit(1 << 30)
            .build()
            .unwrap_or_else(|e| unreachable!("escaped literals are a regex: {e}"));
        Self { known: Some(Arc::new(Known { any, longest_with_line_end: with_line_end.unwrap_or(0), longest })) }
    }

    /// `text` without secrets.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = self.without_known(Cow::Borrowed(text));
        for shape in SHAPES.iter() {
            let replaced = match shape.replace_all(&text, replacement) {
                Cow::Owned(new) if new != *text => Some(new),
                _ => None,
            };
            if let Some(new) = replaced {
                text = Cow::Owned(new);
            }
        }
        // Taking something out can join what stood around it.
        self.without_known(text)
    }

    fn without_known<'a>(&self, mut text: Cow<'a, str>) -> Cow<'a, str> {
        let Some(known) = &self.known else { return text };
        for _ in 0..8 {
            if !known.any.is_match(&text) {
                return text;
            }
            let marker = |c: &Captures<'_>| -> &'static str {
                let found = &c[0];
                if found.starts_with('{') && found.ends_with('}') && !found.contains("\\\"") {
                    JSON_MARKER
                } else if known.any.is_match(MARKER) {
                    "*****"
                } else {
                    MARKER
                }
            };
            text = Cow::Owned(known.any.replace_all(&text, marker).into_owned());
        }
        // A secret that the marker itself spells again and again: nothing of the text can be kept but the end of its line, without
        // which the next line could make it whole again.
        match known.any.is_match(&text) {
            true if text.ends_with('\n') => Cow::Borrowed("*****\n"),
            true => Cow::Borrowed("*****"),
            false => text,
        }
    }

    /// Where `text` can be cut so that no secret lies across the cut, and nothing that may still become one; `None` when
    /// more must be read first.
    fn cut(&self, text: &str) -> Option<usize> {
        let hold = self.known.as_ref().map_or(0, |k| k.longest_with_line_end);
        let mut limit = text.len().saturating_sub(hold);
        // A key that has begun and not ended.
        if let Some(begin) = KEY_BEGINS.find_iter(text).last()
            && !KEY_ENDS.is_match(&text[begin.end()..])
            && text.len() - begin.start() < LONGEST_KEY
        {
            limit = limit.min(begin.start());
        }
        let mut cut = text.as_bytes()[..limit].iter().rposition(|b| *b == b'\n')? + 1;
        for span in self.spans(text) {
            if span.0 < cut && cut < span.1 {
                cut = text[..span.0].rfind('\n').map(|i| i + 1)?;
            }
        }
        Some(cut)
    }

    /// Secrets of `text` with a line end in them, last first.
    fn spans(&self, text: &str) -> Vec<(usize, usize)> {
        let known = self.known.iter().filter(|k| k.longest_with_line_end > 0).flat_map(|k| k.any.find_iter(text));
        let mut spans: Vec<(usize, usize)> =
            SHAPES[..2].iter().flat_map(|s| s.find_iter(text)).chain(known).map(|m| (m.start(), m.end())).collect();
        spans.sort_unstable();
        spans.reverse();
        spans
    }
}

/// A private key is not longer than this, in bytes.
const LONGEST_KEY: usize = 64 * 1024;
/// A line is not longer than this, in bytes; what is longer is cut.
const LONGEST_LINE: usize = 8 * 1024 * 1024;

fn replacement(found: &Captures<'_>) -> String {
    let part = |name: &str| found.name(name).map_or("", |m| m.as_str());
    match found.name("value") {
        // Already taken out, or nothing to take out.
        Some(value) if value.as_str().starts_with(MARKER) || value.as_str().starts_with("*****") => found[0].to_owned(),
        Some(_) => format!("{}{MARKER}{}", part("keep"), part("after")),
        None => MARKER.to_owned(),
    }
}

/// Secrets inside a secret: of a pull secret each `auth`, and what it decodes to.
fn inside(secret: &str) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(Value::Object(object)) = serde_json::from_str::<Value>(secret) else { return found };
    for entry in object.get("auths").and_then(Value::as_object).into_iter().flat_map(|auths| auths.values()) {
        for key in ["auth", "password", "identitytoken", "registrytoken"] {
            let Some(text) = entry.get(key).and_then(Value::as_str) else { continue };
            found.push(text.to_owned());
            let decoded = STANDARD
                .decode(text)
                .or_else(|_| STANDARD_NO_PAD.decode(text))
                .ok()
                .and_then(|bytes| String::from_utf8(bytes).ok());
            if let Some(decoded) = decoded.filter(|_| key == "auth") {
                if let Some((_, password)) = decoded.split_once(':') {
                    found.push(password.to_owned());
                }
                found.push(decoded);
            }
        }
    }
    // The same object, as other writers would write it.
    let value = Value::Object(object);
    found.push(value.to_string());
    found.extend(serde_json::to_string_pretty(&value));
    found
}

/// Every form in which `secret` may stand in a text.
fn forms_of(secret: &str) -> Vec<String> {
    let json = json_escape(secret);
    // Some writers escape apostrophes, too.
    let html = crate::html::escape(secret);
    // Go's encoder writes these three characters by number.
    let go = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let mut forms = vec![
        secret.to_owned(),
        json_escape(&json),
        json_escape(&go),
        json.replace('<', "\\u003c"),
        json.replace('/', "\\/"),
        json,
        go,
        html.replace('\'', "&#39;"),
        html.replace('\'', "&apos;"),
        html,
        url_encode(secret, "%20", true),
        url_encode(secret, "+", true),
        url_encode(secret, "%20", false),
        url_encode(secret, "+", false),
        STANDARD.encode(secret),
        STANDARD_NO_PAD.encode(secret),
        URL_SAFE.encode(secret),
        URL_SAFE_NO_PAD.encode(secret),
        url_encode(&STANDARD.encode(secret), "+", true),
        json_escape(&STANDARD.encode(secret)).replace('/', "\\/"),
    ];
    // Inside a longer text that is base64 (`user:secret`): the letters that do not depend on the neighbours.
    for shift in 1..3_usize {
        let mut bytes = vec![0_u8; shift];
        bytes.extend_from_slice(secret.as_bytes());
        for code in [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)] {
            let (from, to) = ((shift * 8).div_ceil(6), bytes.len() * 8 / 6);
            if to >= from + 8 {
                forms.push(code[from..to].to_owned());
            }
        }
    }
    let whole = secret.len() * 8 / 6;
    if whole >= 8 {
        forms.push(STANDARD_NO_PAD.encode(secret)[..whole].to_owned());
        forms.push(URL_SAFE_NO_PAD.encode(secret)[..whole].to_owned());
    }
    // The lines of a secret of several lines, which logs take apart.
    if secret.contains('\n') {
        for line in secret.lines().map(str::trim).filter(|l| l.len() >= 16 && !l.starts_with("-----")) {
            forms.push(line.to_owned());
        }
    }
    forms.retain(|f| !f.is_empty());
    forms
}

fn json_escape(text: &str) -> String {
    let quoted = Value::String(text.to_owned()).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn url_encode(text: &str, space: &str, upper: bool) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte as char),
            b' ' => out.push_str(space),
            _ if upper => out.push_str(&format!("%{byte:02X}")),
            _ => out.push_str(&format!("%{byte:02x}")),
        }
    }
    out
}

/// Redacts what goes through it, line by line; secrets that are split over several writes are found, and so are those
/// that have line ends in them.
///
/// A line is written when it is complete; `flush` writes complete lines only, because the rest of a line may belong to a
/// secret. [`RedactingWriter::finish`] (or dropping it, where errors are lost) writes the rest. Bytes that are no UTF-8 become
/// U+FFFD.
#[derive(Debug)]
pub struct RedactingWriter<W: Write> {
    /// `None` only after `finish`.
    inner: Option<W>,
    redactor: Redactor,
    held: Vec<u8>,
}

impl<W: Write> RedactingWriter<W> {
    /// Writes to `inner`.
    pub fn new(inner: W, redactor: Redactor) -> Self {
        Self { inner: Some(inner), redactor, held: Vec::new() }
    }

    /// Writes what is held back and gives the inner writer back.
    pub fn finish(mut self) -> io::Result<W> {
        self.write_rest()?;
        let mut inner = self.inner.take().ok_or_else(|| io::Error::other("already finished"))?;
        inner.flush()?;
        Ok(inner)
    }

    fn write_rest(&mut self) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        match &mut self.inner {
            Some(inner) if !held.is_empty() => {
                inner.write_all(self.redactor.redact(&String::from_utf8_lossy(&held)).as_bytes())
            }
            _ => Ok(()),
        }
    }

    fn write_ready(&mut self) -> io::Result<()> {
        let Some(inner) = &mut self.inner else { return Err(io::Error::other("already finished")) };
        // Up to the last line end, so that no character is cut in two.
        let end = self.held.iter().rposition(|b| *b == b'\n');
        if self.held.len() - end.map_or(0, |end| end + 1) > LONGEST_LINE {
            // No log line is so long. What cannot be looked at as a whole is not written; the lines before it are looked at with it,
            // because a secret may go on there.
            let text = String::from_utf8_lossy(&self.held);
            let clean = self.redactor.redact(&text);
            let before = clean.rfind('\n').map_or("", |end| &clean[..=end]);
            inner.write_all(before.as_bytes())?;
            let longest = self.redactor.known.as_ref().map_or(0, |k| k.longest).min(LONGEST_LINE / 2);
            self.held.drain(..self.held.len() - longest);
            return inner.write_all(b"(redacted: line too long)");
        }
        let Some(end) = end else { return Ok(()) };
        let text = String::from_utf8_lossy(&self.held[..=end]);
        let Some(cut) = self.redactor.cut(&text) else { return Ok(()) };
        inner.write_all(self.redactor.redact(&text[..cut]).as_bytes())?;
        let mut rest = text[cut..].as_bytes().to_vec();
        rest.extend_from_slice(&self.held[end + 1..]);
        self.held = rest;
        Ok(())
    }
}

impl<W: Write> Write for RedactingWriter<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(data);
        if data.contains(&b'\n') || self.held.len() > LONGEST_LINE {
            self.write_ready()?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl<W: Write> Drop for RedactingWriter<W> {
    fn drop(&mut self) {
        // Nobody is left to tell.
        let _ = self.write_rest();
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const KEY: &str =
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAx1y2z3\nq9q9q9q9q9q9q9q9q9==\n-----END RSA PRIVATE KEY-----";

    #[rstest]
    #[case::auth(
        r#"{"auths":{"quay.io":{"auth":"dXNlcjpwYXNz","email":"a@b.c"}}}"#,
        r#"{"auths":{"quay.io":{"auth":"(redacted)","email":"a@b.c"}}}"#
    )]
    #[case::auth_in_text_in_json(r#"{"x":"{\"auth\":\"dXNlcjpwYXNz\"}"}"#, r#"{"x":"{\"auth\":\"(redacted)\"}"}"#)]
    #[case::auth_twice_in_text(r#"{\\\"auth\\\":\\\"dXNl\\\"}"#, r#"{\\\"auth\\\":\\\"(redacted)\\\"}"#)]
    #[case::credentials(
        r#"{"username":"kubeadmin","password":"a b,c"}"#,
        r#"{"username":"kubeadmin","password":"(redacted)"}"#
    )]
    #[case::escapes_in_value(r#"{"password":"a\nb\u0041c","x":1}"#, r#"{"password":"(redacted)","x":1}"#)]
    #[case::flag_stays(r#"{"pull_secret_set":true,"password":null}"#, r#"{"pull_secret_set":true,"password":null}"#)]
    #[case::bearer("Authorization: Bearer abc.def-ghi", "Authorization: Bearer (redacted)")]
    #[case::basic("authorization: Basic dXNlcjpwYXNz next", "authorization: Basic (redacted) next")]
    #[case::bearer_alone("using bearer abcdefgh12345", "using bearer (redacted)")]
    #[case::secret_key("X-Secret-Key: eyAbc.def", "X-Secret-Key: (redacted)")]
    #[case::secret_key_go("map[X-Secret-Key:[abc def]]", "map[X-Secret-Key:[(redacted) def]]")]
    #[case::secret_key_json(r#"{"X-Secret-Key":["abc"]}"#, r#"{"X-Secret-Key":["(redacted)"]}"#)]
    #[case::jwt("token=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl.", "token=(redacted).")]
    #[case::kubeadmin("password is 4vfeD-Aw3Ad-gDpBz-XbLtu now", "password is (redacted) now")]
    #[case::uuid_stays("id 57010400-adb3-4f7b-b816-98cbb62e637c", "id 57010400-adb3-4f7b-b816-98cbb62e637c")]
    #[case::url("postgres://me:s3cr3t@localhost/db", "postgres://me:(redacted)@localhost/db")]
    #[case::url_with_at_in_password("http://me:a@b@proxy:80/", "http://me:(redacted)@proxy:80/")]
    #[case::url_without("http://127.0.0.1:8090/a@b", "http://127.0.0.1:8090/a@b")]
    #[case::conninfo("host=/tmp user=me password=abc dbname=x", "host=/tmp user=me password=(redacted) dbname=x")]
    #[case::conninfo_quoted(r"password='a b\'c' dbname=x", "password=(redacted) dbname=x")]
    #[case::environment("PGPASSWORD=abc psql", "PGPASSWORD=(redacted) psql")]
    #[case::query("GET /x?a=1&image_token=abc&b=2", "GET /x?a=1&image_token=(redacted)&b=2")]
    #[case::key_in_json(
        r#"{"k":"-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n","x":1}"#,
        r#"{"k":"(redacted)\n","x":1}"#
    )]
    #[case::key_cut_off(
        "a -----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEAx1y2z3\n[12.3] next line",
        "a (redacted)[12.3] next line"
    )]
    #[case::certificate_stays(
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----"
    )]
    fn by_shape(#[case] text: &str, #[case] redacted: &str) {
        let redactor = Redactor::default();
        assert_eq!(redactor.redact(text), redacted);
        assert_eq!(redactor.redact(redacted), redacted, "redacting again must change nothing");
    }

    #[test]
    fn a_text_without_secrets_is_not_copied() {
        let redactor = Redactor::new(["hunter2hunter2".to_owned()]);
        assert!(matches!(redactor.redact("master-0 is known"), Cow::Borrowed("master-0 is known")));
    }

    #[test]
    fn a_pull_secret_gives_away_what_is_in_it() {
        let pull_secret = r#"{"auths": {"quay.io": {"auth": "bWU6aHVudGVyMmh1bnRlcjI="}}}"#;
        let redactor = Redactor::new([pull_secret.to_owned()]);
        for text in ["the password is hunter2hunter2", "bWU6aHVudGVyMmh1bnRlcjI=", "me:hunter2hunter2", pull_secret] {
            let out = redactor.redact(text);
            assert!(!out.contains("hunter2") && !out.contains("bWU6"), "{out}");
        }
        let line = format!(r#"{{"body":{{"a":{}}}}}"#, r#"{"auths":{"quay.io":{"auth":"bWU6aHVudGVyMmh1bnRlcjI="}}}"#);
        assert!(serde_json::from_str::<Value>(&redactor.redact(&line)).is_ok(), "{}", redactor.redact(&line));
    }

    #[test]
    fn short_secrets_are_left_alone() {
        assert_eq!(Redactor::new(["known".to_owned(), String::new()]).redact("host is known"), "host is known");
    }

    #[test]
    fn keys_over_many_writes_and_lines() {
        for step in [1, 2, 7, 30, 1000] {
            let text = format!("before\n{KEY}\nafter\nlast");
            let mut writer = RedactingWriter::new(Vec::new(), Redactor::default());
            for part in text.as_bytes().chunks(step) {
                writer.write_all(part).unwrap();
            }
            let out = String::from_utf8(writer.finish().unwrap()).unwrap();
            assert_eq!(out, "before\n(redacted)\nafter\nlast", "in steps of {step}");
        }
    }

    #[test]
    fn a_secret_that_a_marker_spells_is_not_made_whole_by_the_next_line() {
        let redactor = Redactor::new(["******".to_owned(), MARKER.to_owned()]);
        let mut writer = RedactingWriter::new(Vec::new(), redactor);
        for line in ["*************KioqKioqa \n", "* ******"] {
            writer.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(String::from_utf8(writer.finish().unwrap()).unwrap(), "*****\n* *****");
    }

    #[test]
    fn a_complete_line_is_written_at_once() {
        let mut writer = RedactingWriter::new(Vec::new(), Redactor::new(["hunter2hunter2".to_owned()]));
        writer.write_all(b"one\ntw").unwrap();
        writer.flush().unwrap();
        assert_eq!(writer.inner.as_ref().unwrap(), b"one\n");
    }

    #[test]
    fn an_endless_line_is_not_kept_in_memory() {
        let mut writer = RedactingWriter::new(Vec::new(), Redactor::new(["hunter2hunter2".to_owned()]));
        for _ in 0..40 {
            writer.write_all(&vec![b'x'; 1 << 20]).unwrap();
        }
        assert!(writer.held.len() <= LONGEST_LINE + (1 << 20));
        writer.write_all(b"hunter2hunter2\nnext\n").unwrap();
        let out = String::from_utf8(writer.finish().unwrap()).unwrap();
        assert!(
            out.ends_with("\nnext\n") && out.contains("line too long") && !out.contains("hunter2"),
            "{}",
            out.len()
        );
    }

    /// Lines are held back where a secret may go on in the next one: that is no reason to keep an endless one.
    #[test]
    fn an_endless_line_behind_held_ones_is_not_kept_in_memory() {
        let secret = "hunter2-first\nhunter2-second".to_owned();
        let mut writer = RedactingWriter::new(Vec::new(), Redactor::new([secret]));
        writer.write_all(b"before\nhunter2-first\nhunter2-second").unwrap();
        for _ in 0..40 {
            writer.write_all(&vec![b'x'; 1 << 20]).unwrap();
            assert!(writer.held.len() <= LONGEST_LINE + (1 << 20));
        }
        writer.write_all(b"\nnext\n").unwrap();
        let out = String::from_utf8(writer.finish().unwrap()).unwrap();
        assert!(
            out.starts_with("before\n") && out.ends_with("\nnext\n") && out.contains("line too long"),
            "{}",
            out.len()
        );
        assert!(!out.contains("hunter2"));
    }

    fn secret() -> impl Strategy<Value = String> {
        prop_oneof![
            "[ -~]{6,40}",
            "[a-zäöü€😀\"\\\\/<>&\n\t ]{6,20}",
            Just(MARKER.to_owned()),
            Just("redacted".to_owned()),
            Just("******".to_owned()),
            "\\PC{6,12}",
        ]
    }

    fn four_forms(secret: &str) -> Vec<String> {
        let json = serde_json::to_string(secret).unwrap();
        let url = secret
            .bytes()
            .map(|b| if b.is_ascii_alphanumeric() { (b as char).to_string() } else { format!("%{b:02X}") });
        vec![
            secret.to_owned(),
            json[1..json.len() - 1].to_owned(),
            STANDARD.encode(secret),
            url_encode(secret, "%20", true),
            // What a stricter encoder writes is covered when it is the same text; this one encodes more than it must.
            url.collect::<String>(),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        #[test]
        fn no_registered_secret_survives(
            secrets in prop::collection::vec(secret(), 1..4),
            around in prop::collection::vec("[ -~\n]{0,30}", 5..6),
            step in 1_usize..50,
        ) {
            let redactor = Redactor::new(secrets.clone());
            for secret in &secrets {
                let forms = four_forms(secret);
                let text = forms.iter().take(4).zip(&around).map(|(f, a)| format!("{a}{f}")).collect::<String>() + &around[4];
                let out = redactor.redact(&text);
                for form in forms.iter().take(4) {
                    prop_assert!(!out.contains(form.as_str()), "{form:?} is still in {out:?}");
                }
                let mut writer = RedactingWriter::new(Vec::new(), redactor.clone());
                for part in text.as_bytes().chunks(step) {
                    writer.write_all(part).unwrap();
                }
                let out = String::from_utf8(writer.finish().unwrap()).unwrap();
                for form in forms.iter().take(4) {
                    prop_assert!(!out.contains(form.as_str()), "{form:?} is still in {out:?} (written in steps of {step})");
                }
            }
        }

        #[test]
        fn text_without_secrets_goes_through_unchanged(lines in prop::collection::vec("[a-z ]{0,40}", 0..20), step in 1_usize..50) {
            let text = lines.join("\n");
            let mut writer = RedactingWriter::new(Vec::new(), Redactor::new(["HUNTER2!".to_owned()]));
            for part in text.as_bytes().chunks(step) {
                writer.write_all(part).unwrap();
            }
            prop_assert_eq!(String::from_utf8(writer.finish().unwrap()).unwrap(), text);
        }
    }
}
