//! What the real service's Go libraries do with texts, and say about them: JSON and its errors, quoted text, UUIDs.

use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

/// A UUID with or without hyphens.
pub(crate) fn parse_uuid(text: &str) -> Option<Uuid> {
    matches!(text.len(), 32 | 36).then(|| Uuid::try_parse(text).ok()).flatten()
}

/// Text in double quotes, as `%q` writes it.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Parses the first JSON value of a body; the error is in the words of the streaming decoder, which does not look at what
/// follows the value and has its own words for an end that comes too early.
pub(crate) fn parse_json(bytes: &[u8]) -> Result<Value, String> {
    match serde_json::Deserializer::from_slice(bytes).into_iter::<Value>().next() {
        Some(Ok(value)) => Ok(value),
        None => Err("unexpected EOF".to_owned()),
        Some(Err(e)) => Err(match syntax_error(bytes) {
            Some(message) if message == "unexpected end of JSON input" => "unexpected EOF".to_owned(),
            Some(message) => message,
            None if e.to_string().contains("recursion") => "exceeded max depth".to_owned(),
            None => e.to_string(),
        }),
    }
}

/// The same for a text inside of a member.
pub(crate) fn parse_text<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| {
        syntax_error(text.as_bytes()).unwrap_or_else(|| match e.classify() {
            serde_json::error::Category::Eof => "unexpected end of JSON input".to_owned(),
            _ => format!("json: cannot unmarshal: {e}"),
        })
    })
}

/// What the scanner says about the first character that does not fit; `None` when the syntax is fine.
fn syntax_error(bytes: &[u8]) -> Option<String> {
    Scanner { bytes, at: 0, open: Vec::new(), want: Want::Value }.run().err()
}

/// What a bracket that is open began.
#[derive(Clone, Copy, PartialEq)]
enum Inside {
    Object,
    Array,
}

/// What may come next.
#[derive(Clone, Copy, PartialEq)]
enum Want {
    Value,
    ValueOrEnd,
    KeyOrEnd,
    Key,
    Colon,
    CommaOrEnd,
    Nothing,
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    open: Vec<Inside>,
    want: Want,
}

impl Scanner<'_> {
    fn run(&mut self) -> Result<(), String> {
        loop {
            while self.bytes.get(self.at).is_some_and(|c| matches!(c, b' ' | b'\t' | b'\r' | b'\n')) {
                self.at += 1;
            }
            let Some(&c) = self.bytes.get(self.at) else {
                return if self.want == Want::Nothing { Ok(()) } else { self.ends_early() };
            };
            match self.want {
                Want::Nothing => return self.bad(self.at, "after top-level value"),
                Want::Colon if c == b':' => {
                    self.at += 1;
                    self.want = Want::Value;
                }
                Want::Colon => return self.bad(self.at, "after object key"),
                Want::CommaOrEnd => self.comma_or_end(c)?,
                Want::Key | Want::KeyOrEnd => self.key(c)?,
                Want::Value | Want::ValueOrEnd => self.value(c)?,
            }
        }
    }

    fn ends_early<T>(&self) -> Result<T, String> {
        Err("unexpected end of JSON input".to_owned())
    }

    /// The character at `at` does not fit.
    fn bad<T>(&self, at: usize, context: &str) -> Result<T, String> {
        let bytes = self.bytes;
        let c = String::from_utf8_lossy(&bytes[at..(at + 4).min(bytes.len())]).chars().next().unwrap_or('?');
        let quoted = match c {
            '\'' => "'\\''".to_owned(),
            '"' => "'\"'".to_owned(),
            '\n' => "'\\n'".to_owned(),
            '\r' => "'\\r'".to_owned(),
            '\t' => "'\\t'".to_owned(),
            c if (c as u32) < 0x20 => format!("'\\x{:02x}'", c as u32),
            c => format!("'{c}'"),
        };
        Err(format!("invalid character {quoted} {context}"))
    }

    /// A value ends before `at`.
    fn ended(&mut self, at: usize) {
        self.at = at;
        self.want = if self.open.is_empty() { Want::Nothing } else { Want::CommaOrEnd };
    }

    fn close(&mut self) {
        self.open.pop();
        self.ended(self.at + 1);
    }

    fn comma_or_end(&mut self, c: u8) -> Result<(), String> {
        match (c, self.open.last().copied()) {
            (b',', inside) => {
                self.at += 1;
                self.want = if inside == Some(Inside::Object) { Want::Key } else { Want::Value };
            }
            (b'}', Some(Inside::Object)) | (b']', Some(Inside::Array)) => self.close(),
            (_, Some(Inside::Object)) => return self.bad(self.at, "after object key:value pair"),
            _ => return self.bad(self.at, "after array element"),
        }
        Ok(())
    }

    fn key(&mut self, c: u8) -> Result<(), String> {
        match c {
            b'"' => {
                self.at = self.string_end()?;
                self.want = Want::Colon;
            }
            b'}' if self.want == Want::KeyOrEnd => self.close(),
            _ => return self.bad(self.at, "looking for beginning of object key string"),
        }
        Ok(())
    }

    fn value(&mut self, c: u8) -> Result<(), String> {
        match c {
            b']' if self.want == Want::ValueOrEnd => self.close(),
            b'{' => self.begin(Inside::Object, Want::KeyOrEnd),
            b'[' => self.begin(Inside::Array, Want::ValueOrEnd),
            b'"' => {
                let end = self.string_end()?;
                self.ended(end);
            }
            b't' => self.literal("true")?,
            b'f' => self.literal("false")?,
            b'n' => self.literal("null")?,
            b'-' | b'0'..=b'9' => self.number(c)?,
            _ => return self.bad(self.at, "looking for beginning of value"),
        }
        Ok(())
    }

    fn begin(&mut self, inside: Inside, want: Want) {
        self.open.push(inside);
        self.at += 1;
        self.want = want;
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        for (k, expected) in word.bytes().enumerate() {
            match self.bytes.get(self.at + k) {
                None => return self.ends_early(),
                Some(found) if *found != expected => {
                    let context = format!("in literal {word} (expecting '{}')", expected as char);
                    return self.bad(self.at + k, &context);
                }
                Some(_) => {}
            }
        }
        self.ended(self.at + word.len());
        Ok(())
    }

    fn number(&mut self, c: u8) -> Result<(), String> {
        let next = self.at + 1;
        if c == b'-' && !self.bytes.get(next).is_some_and(u8::is_ascii_digit) {
            return if next < self.bytes.len() { self.bad(next, "in numeric literal") } else { self.ends_early() };
        }
        let digits = |c: &&u8| matches!(c, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        let more = self.bytes[next..].iter().take_while(digits).count();
        self.ended(next + more);
        Ok(())
    }

    /// Position after the string that begins here.
    fn string_end(&self) -> Result<usize, String> {
        let mut i = self.at + 1;
        while let Some(&c) = self.bytes.get(i) {
            match c {
                b'"' => return Ok(i + 1),
                b'\\' => match self.bytes.get(i + 1) {
                    None => return self.ends_early(),
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' | b'u') => i += 2,
                    Some(_) => return self.bad(i + 1, "in string escape code"),
                },
                c if c < 0x20 => return self.bad(i, "in string literal"),
                _ => i += 1,
            }
        }
        self.ends_early()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("{{{", "invalid character '{' looking for beginning of object key string")]
    #[case("nope", "invalid character 'o' in literal null (expecting 'u')")]
    #[case("", "unexpected EOF")]
    #[case("{", "unexpected EOF")]
    #[case("{\"a\":[1", "unexpected EOF")]
    #[case("[1,]", "invalid character ']' looking for beginning of value")]
    #[case("{\"a\" 1}", "invalid character '1' after object key")]
    #[case("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair")]
    #[case("\"a\nb\"", "invalid character '\\n' in string literal")]
    #[case("zzz", "invalid character 'z' looking for beginning of value")]
    fn syntax_errors_are_worded_as_go_does(#[case] text: &str, #[case] message: &str) {
        assert_eq!(parse_json(text.as_bytes()).unwrap_err(), message);
    }

    #[test]
    fn what_follows_the_first_value_of_a_body_is_not_looked_at() {
        assert_eq!(parse_json(b"{\"a\":1} zz").unwrap(), serde_json::json!({"a": 1}));
        // In a member it is an error all the same.
        assert!(parse_text::<Value>("1 2").is_err());
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_a_crash() {
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        assert_eq!(parse_json(deep.as_bytes()).unwrap_err(), "exceeded max depth");
    }
}
