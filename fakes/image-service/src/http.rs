//! A part of a file as HTTP asks for it: byte ranges, conditions, HEAD. The answers are those of the web server library that
//! the real image service uses, Go's `net/http`: dates but no entity tags, and several ranges as `multipart/byteranges`.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use vlab_api::http::{Method, Request};

use crate::layout::Layout;

/// Most ranges in one request: nobody needs more, and each costs memory.
const MAX_RANGES: usize = 64;

/// A file to serve.
#[derive(Clone, Debug)]
pub struct Content {
    /// Its bytes.
    pub layout: Layout,
    /// Name under which clients shall save it.
    pub file_name: String,
    /// When it was changed last, in seconds since 1970.
    pub modified: Option<u64>,
}

/// An answer whose body is read while it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Headers, names in lower case, without `content-length`.
    pub headers: Vec<(String, String)>,
    /// The body. To a HEAD request nothing of it is sent.
    pub body: Layout,
}

impl Reply {
    /// No body.
    pub fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Layout::default() }
    }

    /// A short text.
    pub fn text(status: u16, text: &str) -> Self {
        let mut body = Layout::default();
        body.push_bytes(format!("{text}\n"));
        let headers = vec![
            ("content-type".to_owned(), "text/plain; charset=utf-8".to_owned()),
            ("x-content-type-options".to_owned(), "nosniff".to_owned()),
        ];
        Self { status, headers, body }
    }
}

fn date(text: &str) -> Option<u64> {
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs())
}

/// Seconds since 1970 of a date in a header.
pub fn parse_date(text: &str) -> Option<u64> {
    date(text)
}

/// What the conditions of a request come to.
enum Condition {
    Send,
    NotModified,
    Failed,
}

fn condition(request: &Request, modified: Option<u64>) -> Condition {
    let reads = matches!(request.method, Method::Get | Method::Head);
    let stamp = |name: &str| Some((date(request.get_header(name)?)?, modified?));
    // There are no entity tags: only `*` matches.
    match request.get_header("if-match") {
        Some(tags) if tags.split(',').any(|t| t.trim() == "*") => {}
        Some(_) => return Condition::Failed,
        None => {
            if stamp("if-unmodified-since").is_some_and(|(since, modified)| modified > since) {
                return Condition::Failed;
            }
        }
    }
    match request.get_header("if-none-match") {
        Some(tags) if tags.split(',').any(|t| t.trim() == "*") => {
            if reads {
                Condition::NotModified
            } else {
                Condition::Failed
            }
        }
        Some(_) => Condition::Send,
        None if reads && stamp("if-modified-since").is_some_and(|(since, modified)| modified <= since) => {
            Condition::NotModified
        }
        None => Condition::Send,
    }
}

/// Why ranges cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BadRange {
    Syntax,
    NoOverlap,
}

/// The ranges of a `Range` header, cut to the file. Those behind the end are left out.
fn ranges(text: &str, size: u64) -> Result<Vec<Range<u64>>, BadRange> {
    let list = text.strip_prefix("bytes=").ok_or(BadRange::Syntax)?;
    let number = |text: &str| -> Result<u64, BadRange> {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        // A number too large for the type is behind every end.
        if digits { Ok(text.parse().unwrap_or(u64::MAX)) } else { Err(BadRange::Syntax) }
    };
    let mut out = Vec::new();
    let mut outside = false;
    for part in list.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (from, to) = part.split_once('-').ok_or(BadRange::Syntax)?;
        let (from, to) = (from.trim(), to.trim());
        let range = if from.is_empty() {
            size.saturating_sub(number(to)?)..size
        } else {
            let from = number(from)?;
            let to = if to.is_empty() { u64::MAX } else { number(to)? };
            if to < from {
                return Err(BadRange::Syntax);
            }
            from..to.saturating_add(1).min(size)
        };
        if range.is_empty() {
            outside = true;
        } else {
            out.push(range);
        }
    }
    if outside && out.is_empty() { Err(BadRange::NoOverlap) } else { Ok(out) }
}

/// Answers a request for a file. `boundary` separates several ranges; it must be one that the file does not contain.
pub fn serve(request: &Request, content: &Content, boundary: &str) -> Reply {
    const TYPE: &str = "application/octet-stream";
    let size = content.layout.len();
    let mut headers = vec![("content-disposition".to_owned(), format!("attachment; filename={}", content.file_name))];
    let modified =
        content.modified.map(|secs| httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(secs)));
    headers.extend(modified.map(|date| ("last-modified".to_owned(), date)));
    match condition(request, content.modified) {
        Condition::NotModified => return Reply { status: 304, headers, body: Layout::default() },
        Condition::Failed => return Reply { status: 412, headers, body: Layout::default() },
        Condition::Send => {}
    }
    headers.push(("accept-ranges".to_owned(), "bytes".to_owned()));
    let mut asked = request.get_header("range");
    if let Some(since) = request.get_header("if-range")
        && (content.modified.is_none() || date(since) != content.modified)
    {
        // The client has parts of another version: it needs all of this one.
        asked = None;
    }
    let wanted = match asked.map(|text| ranges(text, size)) {
        None => Vec::new(),
        // More than the whole, or very many: as if nobody had asked.
        Some(Ok(wanted)) if wanted.len() > MAX_RANGES || wanted.iter().map(|r| r.end - r.start).sum::<u64>() > size => {
            Vec::new()
        }
        Some(Ok(wanted)) => wanted,
        Some(Err(bad)) => {
            let mut reply = match bad {
                BadRange::Syntax => Reply::text(416, "invalid range"),
                BadRange::NoOverlap => Reply::text(416, "invalid range: failed to overlap"),
            };
            if bad == BadRange::NoOverlap {
                reply.headers.push(("content-range".to_owned(), format!("bytes */{size}")));
            }
            headers.retain(|(name, _)| name == "content-disposition");
            reply.headers.extend(headers);
            return reply;
        }
    };
    let content_range = |range: &Range<u64>| format!("bytes {}-{}/{size}", range.start, range.end - 1);
    match wanted.as_slice() {
        [] => {
            headers.push(("content-type".to_owned(), TYPE.to_owned()));
            Reply { status: 200, headers, body: content.layout.clone() }
        }
        [one] => {
            headers.push(("content-type".to_owned(), TYPE.to_owned()));
            headers.push(("content-range".to_owned(), content_range(one)));
            Reply { status: 206, headers, body: content.layout.slice(one.clone()) }
        }
        several => {
            headers.push(("content-type".to_owned(), format!("multipart/byteranges; boundary={boundary}")));
            let mut body = Layout::default();
            for (i, range) in several.iter().enumerate() {
                let before = if i == 0 { "" } else { "\r\n" };
                body.push_bytes(format!(
                    "{before}--{boundary}\r\nContent-Range: {}\r\nContent-Type: {TYPE}\r\n\r\n",
                    content_range(range)
                ));
                body.push(&content.layout.slice(range.clone()));
            }
            body.push_bytes(format!("\r\n--{boundary}--\r\n"));
            Reply { status: 206, headers, body }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const DATE: &str = "Fri, 20 Nov 2026 12:50:08 GMT";
    const LATER: &str = "Fri, 20 Nov 2026 12:50:09 GMT";
    const EARLIER: &str = "Friday, 20-Nov-26 12:50:07 GMT";

    fn content(size: u64) -> Content {
        Content { layout: Layout::of_base(size), file_name: "x.iso".into(), modified: parse_date(DATE) }
    }

    fn base() -> Vec<u8> {
        (0..=255u8).cycle().take(1000).collect()
    }

    fn body(reply: &Reply) -> Vec<u8> {
        let mut out = vec![0; reply.body.len() as usize];
        reply.body.read_exact_at(base().as_slice(), 0, &mut out).unwrap();
        out
    }

    fn get<'a>(reply: &'a Reply, name: &str) -> Option<&'a str> {
        reply.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    fn ask(headers: &[(&str, &str)]) -> Reply {
        ask_as(Method::Get, headers)
    }

    fn ask_as(method: Method, headers: &[(&str, &str)]) -> Reply {
        let request = headers.iter().fold(Request::new(method, "/"), |r, (n, v)| r.header(n, *v));
        serve(&request, &content(1000), "B")
    }

    #[rstest]
    #[case::all("bytes=0-", 206, Some("bytes 0-999/1000"), 1000)]
    #[case::first("bytes=0-0", 206, Some("bytes 0-0/1000"), 1)]
    #[case::last("bytes=-1", 206, Some("bytes 999-999/1000"), 1)]
    #[case::more_than_all("bytes=-5000", 206, Some("bytes 0-999/1000"), 1000)]
    #[case::cut("bytes=990-5000", 206, Some("bytes 990-999/1000"), 10)]
    #[case::blanks("bytes= 1 - 2 ", 206, Some("bytes 1-2/1000"), 2)]
    #[case::one_of_two_is_outside("bytes=5000-,1-2", 206, Some("bytes 1-2/1000"), 2)]
    #[case::outside("bytes=1000-", 416, Some("bytes */1000"), 33)]
    #[case::nothing("bytes=-0", 416, Some("bytes */1000"), 33)]
    #[case::huge("bytes=99999999999999999999-", 416, Some("bytes */1000"), 33)]
    #[case::backwards("bytes=2-1", 416, None, 14)]
    #[case::no_number("bytes=a-b", 416, None, 14)]
    #[case::no_dash("bytes=5", 416, None, 14)]
    #[case::other_unit("lines=1-2", 416, None, 14)]
    #[case::more_than_the_whole("bytes=0-,0-", 200, None, 1000)]
    #[case::empty_list("bytes=", 200, None, 1000)]
    fn one_range(#[case] range: &str, #[case] status: u16, #[case] content_range: Option<&str>, #[case] len: u64) {
        let reply = ask(&[("range", range)]);
        assert_eq!((reply.status, get(&reply, "content-range"), reply.body.len()), (status, content_range, len));
        assert_eq!(get(&reply, "content-disposition"), Some("attachment; filename=x.iso"));
        // A refusal is no version of the file.
        assert_eq!(get(&reply, "last-modified"), (status != 416).then_some(DATE));
    }

    #[test]
    fn several_ranges_are_parts() {
        let reply = ask(&[("range", "bytes=1-2,997-,-1")]);
        assert_eq!(reply.status, 206);
        assert_eq!(get(&reply, "content-type"), Some("multipart/byteranges; boundary=B"));
        let mut expected = Vec::new();
        for (before, range, from, to) in
            [("", "1-2", 1, 3), ("\r\n", "997-999", 997, 1000), ("\r\n", "999-999", 999, 1000)]
        {
            let head = format!(
                "{before}--B\r\nContent-Range: bytes {range}/1000\r\nContent-Type: application/octet-stream\r\n\r\n"
            );
            expected.extend_from_slice(head.as_bytes());
            expected.extend_from_slice(&base()[from..to]);
        }
        expected.extend_from_slice(b"\r\n--B--\r\n");
        assert_eq!(body(&reply), expected);
    }

    #[rstest]
    #[case::not_changed(Method::Get, &[("if-modified-since", DATE)], 304)]
    #[case::not_changed_head(Method::Head, &[("if-modified-since", LATER)], 304)]
    #[case::changed(Method::Get, &[("if-modified-since", EARLIER)], 200)]
    #[case::not_a_date(Method::Get, &[("if-modified-since", "yesterday")], 200)]
    #[case::only_for_reading(Method::Post, &[("if-modified-since", DATE)], 200)]
    #[case::unmodified(Method::Get, &[("if-unmodified-since", DATE)], 200)]
    #[case::modified(Method::Get, &[("if-unmodified-since", EARLIER)], 412)]
    #[case::any_tag(Method::Get, &[("if-none-match", "*")], 304)]
    #[case::some_tag(Method::Get, &[("if-none-match", "\"a\""), ("if-modified-since", DATE)], 200)]
    #[case::must_match(Method::Get, &[("if-match", "\"a\"")], 412)]
    #[case::must_exist(Method::Get, &[("if-match", "*")], 200)]
    #[case::same_version(Method::Get, &[("range", "bytes=0-4"), ("if-range", DATE)], 206)]
    #[case::other_version(Method::Get, &[("range", "bytes=0-4"), ("if-range", LATER)], 200)]
    #[case::tag_version(Method::Get, &[("range", "bytes=0-4"), ("if-range", "\"a\"")], 200)]
    fn conditions(#[case] method: Method, #[case] headers: &[(&str, &str)], #[case] status: u16) {
        let reply = ask_as(method, headers);
        assert_eq!(reply.status, status);
        assert_eq!(reply.body.is_empty(), matches!(status, 304 | 412));
        assert_eq!(get(&reply, "last-modified"), Some(DATE));
    }

    proptest! {
        #[test]
        fn whatever_is_asked_parts_are_parts_of_the_whole(text in "bytes=([0-9]{0,4}-[0-9]{0,4},?){1,4}") {
            let reply = ask(&[("range", &text)]);
            match reply.status {
                200 => prop_assert_eq!(body(&reply), base()),
                206 if get(&reply, "content-range").is_some() => {
                    let range = get(&reply, "content-range").unwrap();
                    let (from, to) = range["bytes ".len()..].split_once('/').unwrap().0.split_once('-').unwrap();
                    let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
                    prop_assert_eq!(body(&reply), base()[from..=to].to_vec());
                }
                206 => prop_assert!(body(&reply).ends_with(b"\r\n--B--\r\n")),
                status => prop_assert_eq!(status, 416),
            }
        }

        #[test]
        fn no_header_is_too_strange(text in ".*") {
            let status = ask(&[("range", &text), ("if-range", &text), ("if-modified-since", &text)]).status;
            prop_assert!(matches!(status, 200 | 206 | 304 | 416));
        }
    }
}
