//! What this project is made of: the licences and banned crates of `deny.toml` against what cargo has locked, without cargo-deny.

use std::process::Command;

use serde_json::Value;

use crate::place::{root, text_of};

/// The strings of a list in `deny.toml`: `allow` of `[licenses]`, `deny` of `[bans]`.
fn list(text: &str, section: &str, key: &str) -> Vec<String> {
    let (_, rest) = text.split_once(&format!("\n[{section}]")).unwrap_or_else(|| panic!("no [{section}]"));
    let (_, rest) = rest.split_once(&format!("\n{key} = [")).unwrap_or_else(|| panic!("no {key} in [{section}]"));
    let (list, _) = rest.split_once("\n]").expect("the end of the list");
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Crates for which another licence is allowed, and which.
fn exceptions(text: &str) -> Vec<(String, String)> {
    let quoted = |part: &str, key: &str| {
        let (_, rest) = part.split_once(&format!("{key} = ")).unwrap_or_else(|| panic!("no {key} in {part:?}"));
        rest.split('"').nth(1).unwrap().to_owned()
    };
    text.split("[[licenses.exceptions]]").skip(1).map(|part| (quoted(part, "crate"), quoted(part, "allow"))).collect()
}

/// Does a licence expression allow what is allowed? Without brackets `AND` binds closer than `OR`; with brackets, in the expressions that
/// crates have, what is in them is one part of an `AND`.
fn allowed(expression: &str, may: impl Fn(&str) -> bool) -> bool {
    let text = expression.replace('/', " OR ").replace("  ", " ");
    let any = |part: &str| {
        part.trim_matches(['(', ')', ' ']).split(" OR ").any(|licence| may(licence.trim_matches(['(', ')', ' '])))
    };
    match text.contains('(') {
        true => text.split(" AND ").all(any),
        false => text.split(" OR ").any(|part| part.split(" AND ").all(|licence| may(licence.trim()))),
    }
}

#[test]
fn every_crate_has_a_licence_that_is_allowed_and_none_is_banned() {
    let rules = text_of("deny.toml");
    let (licences, banned) = (list(&rules, "licenses", "allow"), list(&rules, "bans", "deny"));
    let exceptions = exceptions(&rules);
    assert!(licences.len() > 5 && banned.len() > 5 && exceptions.len() == 2, "{licences:?} {banned:?} {exceptions:?}");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "metadata",
        "--format-version",
        "1",
        "--offline",
        "--locked",
        "--filter-platform",
        "x86_64-unknown-linux-gnu",
    ]);
    let out = cargo.current_dir(root()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout).unwrap();
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().unwrap().iter().filter(|package| !package["source"].is_null()) {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or("none");
        let excepted = exceptions.iter().any(|(of, may)| of == name && may == licence);
        if !excepted && !allowed(licence, |word| licences.iter().any(|may| may == word)) {
            wrong.push(format!("{name}: the licence {licence}"));
        }
        if banned.iter().any(|of| of == name) {
            wrong.push(format!("{name} is banned"));
        }
        if package["source"] != "registry+https://github.com/rust-lang/crates.io-index" {
            wrong.push(format!("{name} comes from {}", package["source"]));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Also what is only locked for other platforms.
    let lock = text_of("Cargo.lock");
    for name in banned {
        assert!(!lock.contains(&format!("name = \"{name}\"\n")), "{name} is banned and in Cargo.lock");
    }
}

#[test]
fn licence_expressions_are_understood() {
    let may = |word: &str| ["MIT", "Unicode-3.0", "Apache-2.0"].contains(&word);
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("MIT/Apache-2.0", true),
        ("MIT AND BSD-3-Clause", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("(MIT OR Apache-2.0) AND NCSA", false),
        ("GPL-2.0 AND MIT OR Apache-2.0", true),
    ] {
        assert_eq!(allowed(expression, may), expected, "{expression}");
    }
}
