//! The reference of the command line as Markdown, made from the definitions that read it. Only the test below runs it: it holds
//! `docs/reference/command-line.md` to the definitions.

use std::fmt::Write as _;

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command};
use vlab_judge::result::exit;

const TOP: &str = "\
# The command line of vlab

This page is generated from the definitions that `vlab` reads its command line with; `VLAB_UPDATE_DOCS=1 cargo nextest run -p \
vlab-cli reference` writes it again. `cargo xtask vlab <verb>` builds `vlab` and runs it; most verbs also work as \
`cargo xtask <verb>` (`cargo xtask help` lists those).

";

/// The page: exit codes, then each verb with its arguments and options.
pub(crate) fn page(mut vlab: Command) -> String {
    vlab.build();
    let mut text = TOP.to_owned();
    text.push_str("## Exit codes\n\n| code | name | meaning |\n| --- | --- | --- |\n");
    for code in exit::CODES {
        let _ = writeln!(text, "| {} | {} | {} |", code.code, code.name, cell(code.meaning));
    }
    let _ = write!(text, "\n## Verbs\n\n| verb | what it does |\n| --- | --- |\n");
    let verbs = || vlab.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    for verb in verbs() {
        let (name, about) = (verb.get_name(), about(verb));
        let _ = writeln!(text, "| [`vlab {name}`](#vlab-{name}) | {} |", cell(&about));
    }
    for verb in verbs() {
        let _ = write!(text, "\n## vlab {}\n\n", verb.get_name());
        section(verb, &mut text);
        for below in verb.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
            let _ = write!(text, "\n### vlab {} {}\n\n", verb.get_name(), below.get_name());
            section(below, &mut text);
        }
    }
    text
}

fn section(verb: &Command, text: &mut String) {
    let usage = verb.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = write!(text, "{}\n\n```text\n{usage}\n```\n", about(verb));
    let shown = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let (positionals, options): (Vec<&Arg>, Vec<&Arg>) =
        verb.get_arguments().filter(shown).partition(|arg| arg.is_positional());
    for (title, args) in [("argument", positionals), ("option", options)] {
        if args.is_empty() {
            continue;
        }
        let _ = write!(text, "\n| {title} | meaning |\n| --- | --- |\n");
        for arg in args {
            let _ = writeln!(text, "| {} | {} |", names(arg), cell(&meaning(arg)));
        }
    }
    let after = verb.get_after_help().map(StyledStr::to_string).unwrap_or_default();
    if after.trim().contains('\n') {
        let _ = write!(text, "\n```text\n{}\n```\n", after.trim_end());
    } else if !after.is_empty() {
        let _ = write!(text, "\n{}\n", after.trim());
    }
}

/// The whole description of a verb.
fn about(verb: &Command) -> String {
    let about = verb.get_long_about().or_else(|| verb.get_about()).map(StyledStr::to_string).unwrap_or_default();
    let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
    if about.is_empty() || about.ends_with(['.', '?', '!']) { about } else { about + "." }
}

/// `-q`, `--quiet`, or `--seed <SEED>`; an argument without a dash in its brackets.
fn names(arg: &Arg) -> String {
    let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let value = value.unwrap_or_else(|| arg.get_id().as_str().to_uppercase());
    if arg.is_positional() {
        let several = matches!(arg.get_action(), ArgAction::Append);
        return format!("`{}{}`", value.to_lowercase(), if several { "..." } else { "" });
    }
    let takes_value = arg.get_action().takes_values();
    let mut names: Vec<String> = arg.get_short().map(|short| format!("-{short}")).into_iter().collect();
    names.extend(arg.get_long().map(|long| format!("--{long}")));
    let all = names.join("`, `");
    if takes_value { format!("`{all} <{value}>`") } else { format!("`{all}`") }
}

/// The help, with what is taken, the default and the variable of the environment.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(StyledStr::to_string).unwrap_or_default();
    let mut text = help.split_whitespace().collect::<Vec<_>>().join(" ");
    if !text.ends_with(['.', '?', '!']) {
        text.push('.');
    }
    if arg.get_action().takes_values() {
        let values: Vec<String> = arg
            .get_possible_values()
            .iter()
            .filter(|value| !value.is_hide_set())
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        if !values.is_empty() && !values.iter().all(|value| text.contains(value.as_str())) {
            let _ = write!(text, " One of {}.", values.join(", "));
        }
        let defaults: Vec<String> =
            arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
        if !defaults.is_empty() {
            let _ = write!(text, " Default: {}.", defaults.join(", "));
        }
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(text, " Environment: `{}`.", variable.to_string_lossy());
    }
    text
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    // Angle brackets outside of code would be taken for HTML.
    let mut out = String::new();
    for (index, part) in text.split('`').enumerate() {
        if index > 0 {
            out.push('`');
        }
        match index % 2 {
            0 => out.push_str(&part.replace('<', "&lt;").replace('|', "\\|")),
            _ => out.push_str(&part.replace('|', "\\|")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_committed_reference_is_that_of_the_definitions() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/command-line.md");
        let page = page(crate::Cli::command());
        if std::env::var_os("VLAB_UPDATE_DOCS").is_some_and(|value| !value.is_empty()) {
            std::fs::write(path, &page).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(committed == page, "{path} is out of date: VLAB_UPDATE_DOCS=1 writes it again");
    }

    #[derive(clap::Parser)]
    #[command(name = "vlab")]
    struct Cli {
        #[command(subcommand)]
        _verb: Verb,
    }

    #[derive(clap::Subcommand)]
    enum Verb {
        /// Do a thing
        Do {
            /// Names | words, as `a|b`, of <things>.
            names: Vec<String>,
            /// How often
            #[arg(long, short, default_value_t = 1, env = "TIMES", value_name = "N")]
            times: u8,
            #[arg(long, hide = true)]
            hidden: bool,
        },
        #[command(hide = true)]
        Secret,
        /// Have parts
        #[command(subcommand)]
        Parts(Part),
    }

    #[derive(clap::Subcommand)]
    enum Part {
        /// The first one
        One { file: String },
    }

    #[test]
    fn verbs_options_and_codes_are_in_the_reference() {
        let text = page(Cli::command());
        for line in [
            "## Exit codes",
            "| 7 | flaky | everything holds, but something passed only on a retry |",
            "| [`vlab do`](#vlab-do) | Do a thing. |",
            "## vlab do",
            "vlab do [OPTIONS] [NAMES]...",
            "| `names...` | Names \\| words, as `a\\|b`, of &lt;things>. |",
            "### vlab parts one",
            "vlab parts one <FILE>",
            "| `-t`, `--times <N>` | How often. Default: `1`. Environment: `TIMES`. |",
        ] {
            assert!(text.lines().any(|found| found == line), "{line:?} is missing:\n{text}");
        }
        assert!(!text.contains("hidden") && !text.contains("secret") && !text.contains("--help"), "{text}");
    }
}
