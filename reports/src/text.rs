//! Durations, numbers and long texts as people read them: the same words in the page and on the terminal.

/// A duration; `micros` may be negative.
pub(crate) fn human(micros: i64) -> String {
    let sign = if micros < 0 { "−" } else { "" };
    let us = micros.unsigned_abs();
    let seconds = us / 1_000_000;
    match us {
        0..1_000 => format!("{sign}{us} µs"),
        1_000..10_000 => format!("{sign}{:.1} ms", us as f64 / 1e3),
        10_000..1_000_000 => format!("{sign}{} ms", us / 1_000),
        1_000_000..60_000_000 => format!("{sign}{:.2} s", us as f64 / 1e6),
        60_000_000..3_600_000_000 => format!("{sign}{} m {:02} s", seconds / 60, seconds % 60),
        _ => format!("{sign}{} h {:02} m {:02} s", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}

/// A duration in milliseconds.
pub(crate) fn human_ms(ms: f64) -> String {
    human((ms * 1000.0) as i64)
}

/// A number with commas between thousands.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// The first `most` characters of a text, and that there is more.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((i, _)) => format!("{}…", &text[..i]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_for_people() {
        let all = [0, 999, 1_500, 345_678, 12_345_678, 185_000_000, 3_725_000_000, -2_000_000].map(human);
        assert_eq!(all, ["0 µs", "999 µs", "1.5 ms", "345 ms", "12.35 s", "3 m 05 s", "1 h 02 m 05 s", "−2.00 s"]);
        assert_eq!(thousands(1_234_567), "1,234,567");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("äöü", 2), "äö…");
    }
}
