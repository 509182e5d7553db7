//! What the command line means. Pure: no files, no programs.

use std::ffi::OsString;

/// Who does the work of a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doer {
    /// The `vlab` binary under this verb.
    Vlab {
        /// The verb of `vlab`; empty: the arguments are passed as they are.
        verb: &'static str,
    },
    /// Runs: `vlab scenario` after the set-up of what it needs, and with the helper for virtual machines where those are
    /// wanted.
    Scenario,
    /// The same with its helper for virtual machines, after the set-up of what those need.
    Machines {
        /// The verb of `vlab`.
        verb: &'static str,
    },
    /// Format, lints, tests.
    Test,
    /// Only the set-up.
    Setup,
    /// Builds images.
    Images,
    /// Makes what is given to others: static programs, completions, man pages, the list of what is in them.
    Dist,
    /// Writes the list of all crates.
    Sbom,
    /// Tries the commands of the README on a machine that has nothing yet.
    FreshMachine,
    /// Prepares virtual machines for the first time, beside something else. Only this program calls it.
    Prepare,
}

/// A verb of `cargo xtask`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verb {
    pub(crate) name: &'static str,
    pub(crate) usage: &'static str,
    pub(crate) what: &'static str,
    pub(crate) doer: Doer,
}

const fn vlab(verb: &'static str) -> Doer {
    Doer::Vlab { verb }
}

/// All verbs, in the order of the help.
pub(crate) const VERBS: &[Verb] = &[
    Verb {
        name: "scenario",
        usage: "scenario <name|path>... [options of `vlab scenario`]",
        what: "run scenarios against a real PostgreSQL and judge them",
        doer: Doer::Scenario,
    },
    Verb {
        name: "rerun",
        usage: "rerun [session] [options of `vlab rerun`]",
        what: "run again what did not pass in a session",
        doer: vlab("rerun"),
    },
    Verb {
        name: "test",
        usage: "test [arguments of `cargo nextest run`]",
        what: "formatting, clippy without warnings, all tests, documentation tests",
        doer: Doer::Test,
    },
    Verb {
        name: "setup",
        usage: "setup [--containers]",
        what: "install what runs and tests need and this machine lacks; with --containers, install and start Docker Engine",
        doer: Doer::Setup,
    },
    Verb {
        name: "images",
        usage: "images [options] [image]...",
        what: "build the lab's images and load them into the container engine",
        doer: Doer::Images,
    },
    Verb {
        name: "dist",
        usage: "dist [folder]",
        what: "make static programs with completions and man pages, for machines without the source",
        doer: Doer::Dist,
    },
    Verb {
        name: "fresh-machine",
        usage: "fresh-machine [--as root|user] [--only scenario|test] [--kept-crates] [--keep]",
        what: "try the commands of the README in a minimal Debian root, as root and as an ordinary user",
        doer: Doer::FreshMachine,
    },
    Verb { name: "sbom", usage: "sbom [file]", what: "write the list of all crates (CycloneDX)", doer: Doer::Sbom },
    Verb {
        name: "doctor",
        usage: "doctor [options of `vlab doctor`]",
        what: "show what this machine has, what works, and how to get the rest",
        doer: vlab("doctor"),
    },
    Verb {
        name: "spawn",
        usage: "spawn --iso <file> [options of `vlab spawn`]",
        what: "boot a medium in a virtual machine and show its console",
        doer: Doer::Machines { verb: "spawn" },
    },
    Verb {
        name: "console",
        usage: "console <host>",
        what: "attach to the console of a running virtual machine",
        doer: vlab("console"),
    },
    Verb {
        name: "ssh",
        usage: "ssh <host> [command]...",
        what: "open a shell in a running virtual machine, or run a command there",
        doer: vlab("ssh"),
    },
    Verb { name: "list", usage: "list [options of `vlab list`]", what: "list the scenarios", doer: vlab("list") },
    Verb {
        name: "validate",
        usage: "validate <name|path>...",
        what: "check scenarios without running them",
        doer: vlab("validate"),
    },
    Verb {
        name: "simulate",
        usage: "simulate <name|path> [options of `vlab simulate`]",
        what: "run a scenario in virtual time",
        doer: vlab("simulate"),
    },
    Verb {
        name: "explore",
        usage: "explore [name|path]... [options of `vlab explore`]",
        what: "look for defects in virtual time, and write the shortest scenario that shows each",
        doer: vlab("explore"),
    },
    Verb {
        name: "findings",
        usage: "findings [folder] [options of `vlab findings`]",
        what: "show what exploring has found, and what people say of it",
        doer: vlab("findings"),
    },
    Verb {
        name: "shrink",
        usage: "shrink [run] [options of `vlab shrink`]",
        what: "write the smallest scenario that fails as a run did",
        doer: vlab("shrink"),
    },
    Verb {
        name: "conformance",
        usage: "conformance [options of `vlab conformance`]",
        what: "check the API of a service, question by question",
        doer: vlab("conformance"),
    },
    Verb {
        name: "report",
        usage: "report [run] [options of `vlab report`]",
        what: "rewrite the reports of a run from its history",
        doer: vlab("report"),
    },
    Verb {
        name: "load",
        usage: "load <plan> [options of `vlab load`]",
        what: "put a service under the load of a plan",
        doer: vlab("load"),
    },
    Verb {
        name: "snapshots",
        usage: "snapshots [options of `vlab snapshots`]",
        what: "list the labs that were frozen, or remove some",
        doer: vlab("snapshots"),
    },
    Verb {
        name: "ui",
        usage: "ui [options of `vlab ui`]",
        what: "show the runs in the browser, and follow those that go on",
        doer: vlab("ui"),
    },
    Verb {
        name: "coverage",
        usage: "coverage [run|folder|session]... [options of `vlab coverage`]",
        what: "show which rules of the service's state machines runs have exercised",
        doer: vlab("coverage"),
    },
    Verb { name: "check", usage: "check [run]", what: "judge a run again from its history", doer: vlab("check") },
    Verb { name: "check-run", usage: "check-run [run]", what: "the same as `check`", doer: vlab("check") },
    Verb {
        name: "mutation",
        usage: "mutation [options of `vlab mutation`]",
        what: "make the simulated service wrong in one thing at a time, and see which check notices",
        doer: vlab("mutation"),
    },
    Verb {
        name: "kube",
        usage: "kube [options of `vlab kube`]",
        what: "start the small Kubernetes API server",
        doer: vlab("kube"),
    },
    Verb { name: "schema", usage: "schema", what: "print the JSON Schema of scenarios", doer: vlab("schema") },
    Verb {
        name: "gc",
        usage: "gc [options of `vlab gc`]",
        what: "remove what dead runs have left behind",
        doer: vlab("gc"),
    },
    Verb { name: "vlab", usage: "vlab <arguments>", what: "build `vlab` and run it as it is", doer: vlab("") },
];

/// The verb of [`Doer::Prepare`]: in no list.
pub(crate) static PREPARE: Verb = Verb { name: "prepare-machines", usage: "", what: "", doer: Doer::Prepare };

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Print the help (of one verb).
    Help(Option<&'static Verb>),
    /// Do the verb.
    Do {
        verb: &'static Verb,
        /// `--no-setup` was not given.
        may_install: bool,
        /// What is not ours.
        args: Vec<OsString>,
    },
    /// Say this, and exit code 2.
    Wrong(String),
}

/// Reads the command line without the name of the program.
pub(crate) fn parse(args: &[OsString]) -> Action {
    let Some((first, rest)) = args.split_first() else {
        return Action::Wrong("which verb?".to_owned());
    };
    if first == "--help" || first == "-h" || first == "help" {
        return match rest.first().and_then(|name| VERBS.iter().find(|verb| *name == *verb.name)) {
            Some(verb) => Action::Help(Some(verb)),
            None => Action::Help(None),
        };
    }
    if *first == *PREPARE.name {
        return Action::Do { verb: &PREPARE, may_install: true, args: rest.to_vec() };
    }
    let Some(verb) = VERBS.iter().find(|verb| *first == *verb.name) else {
        let name = first.to_string_lossy();
        let nearest = nearest(&name, VERBS.iter().map(|verb| verb.name));
        let hint = nearest.map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"));
        return Action::Wrong(format!("there is no verb `{name}`{hint}"));
    };
    // `vlab` gets everything as it is; of the other verbs ours are the options up to a `--`.
    let verbatim = verb.doer == vlab("");
    let (mut may_install, mut ours, mut passed) = (true, !verbatim, Vec::new());
    for arg in rest {
        match arg.to_str() {
            // Its options are told by itself.
            Some("--help" | "-h") if ours && verb.doer == Doer::Images => passed.push(arg.clone()),
            Some("--help" | "-h") if ours => return Action::Help(Some(verb)),
            Some("--no-setup") if ours => may_install = false,
            Some("--") if ours => {
                ours = false;
                // nextest and vlab have a use for it themselves.
                passed.push(arg.clone());
            }
            _ => passed.push(arg.clone()),
        }
    }
    if verb.doer == Doer::Setup
        && let Some(extra) = passed.iter().find(|arg| *arg != "--containers")
    {
        return Action::Wrong(format!("`setup` takes no `{}`", extra.to_string_lossy()));
    }
    Action::Do { verb, may_install, args: passed }
}

/// Do these arguments of `scenario` want virtual machines? `chosen` is the environment's answer (`VLAB_HOSTS`), `text` gives the
/// text of a scenario by its name or path, and of all of them without one.
pub(crate) fn wants_machines(args: &[OsString], chosen: Option<&str>, text: impl Fn(Option<&str>) -> String) -> Wish {
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let option = words.iter().enumerate().find_map(|(place, word)| match *word {
        "--hosts" => words.get(place + 1).copied(),
        word => word.strip_prefix("--hosts="),
    });
    match option.or(chosen) {
        Some("vm") => return Wish::Must,
        Some(_) => return Wish::No,
        None => {}
    }
    match (has_kind(args, "vm", &text), has_kind(args, "auto", &text)) {
        (true, _) => Wish::Must,
        (false, true) => Wish::May,
        _ => Wish::No,
    }
}

/// Does one of the scenarios that these arguments name have something of that kind?
pub(crate) fn has_kind(args: &[OsString], kind: &str, text: impl Fn(Option<&str>) -> String) -> bool {
    any_line(args, text, |line| line.contains(&format!("kind: {kind}")))
}

/// Is the service asked over Kubernetes, so that an API server is needed?
pub(crate) fn asks_over_kube(args: &[OsString], text: impl Fn(Option<&str>) -> String) -> bool {
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let asked = words.windows(2).any(|pair| pair == ["--api", "kube"]) || words.contains(&"--api=kube");
    asked || any_line(args, text, |line| line.trim_end() == "api: kube")
}

/// Without options.
fn names(args: &[OsString]) -> Vec<OsString> {
    args.iter().filter(|arg| arg.to_str().is_some_and(|word| !word.starts_with('-'))).cloned().collect()
}

/// Does one of the scenarios that these arguments name measure load?
pub(crate) fn measures_load(args: &[OsString], text: impl Fn(Option<&str>) -> String) -> bool {
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    // Of scenarios that are selected by tags, those that measure have the tag for it; the others must not wait for an optimised build.
    let mut tags = words.iter().enumerate().filter_map(|(place, word)| match *word {
        "--tag" => words.get(place + 1).copied(),
        word => word.strip_prefix("--tag="),
    });
    let tagged = tags.any(|tag| tag == "load");
    tagged || any_line(&names(args), text, |line| line.starts_with("load:"))
}

/// Has one of the scenarios that these arguments name such a line, comments aside?
fn any_line(args: &[OsString], text: impl Fn(Option<&str>) -> String, wanted: impl Fn(&str) -> bool) -> bool {
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    // Values of other options are not names of scenarios, and nobody has a text for them.
    let named = words.iter().filter(|word| !word.starts_with('-')).map(|word| text(Some(word)));
    let all = words.iter().any(|word| word.starts_with("--tag")).then(|| text(None));
    named.chain(all).any(|text| text.lines().any(|line| line.split('#').next().is_some_and(&wanted)))
}

/// Do these arguments name a service in a container?
pub(crate) fn names_container(args: &[OsString]) -> bool {
    args.iter().filter_map(|arg| arg.to_str()).any(|word| {
        let value = if word.starts_with("--") { word.split_once('=').map_or("", |(_, value)| value) } else { word };
        value.starts_with("container:")
    })
}

/// The same run with simulated hosts, for a first verdict while virtual machines are being prepared: only where one scenario is named
/// and it leaves open what its hosts are. `None`: with these arguments nobody waits for a first impression.
pub(crate) fn first_look(args: &[OsString], text: impl Fn(Option<&str>) -> String) -> Option<Vec<OsString>> {
    let words: Vec<&str> = args.iter().map(|arg| arg.to_str()).collect::<Option<_>>()?;
    let (mut look, mut scenarios) = (Vec::new(), 0);
    let mut rest = words.iter().copied();
    while let Some(word) = rest.next() {
        match word {
            "--hosts" => drop(rest.next()?),
            "--seed" | "--time-profile" => look.extend([word, rest.next()?]),
            "-q" | "--quiet" => look.push(word),
            _ if word.starts_with("--hosts=") => {}
            _ if word.starts_with("--seed=") || word.starts_with("--time-profile=") => look.push(word),
            // Whoever repeats, keeps, compares or shares the work wants that, and no first impression.
            _ if word.starts_with('-') => return None,
            _ => {
                scenarios += 1;
                look.push(word);
            }
        }
    }
    look.extend(["--hosts", "sim"]);
    (scenarios == 1 && has_kind(args, "auto", text)).then(|| look.into_iter().map(OsString::from).collect())
}

/// Are virtual machines wanted?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// No.
    No,
    /// Where they can be had.
    May,
    /// Nothing else will do.
    Must,
}

/// The help text.
pub(crate) fn help(verb: Option<&Verb>) -> String {
    let no_setup = "  --no-setup   install nothing; when something is missing, say what and stop with code 3\n";
    match verb {
        Some(verb) => {
            let mut text = format!("usage: cargo xtask {}\n\n{}\n\n", verb.usage, verb.what);
            match verb.doer {
                Doer::Vlab { verb: "", .. } => {}
                Doer::Images => text += "  -h, --help   all options\n",
                Doer::Dist | Doer::Sbom | Doer::Prepare | Doer::FreshMachine => text += "  -h, --help   this\n",
                Doer::Vlab { verb: name } => {
                    text += &format!("  -h, --help   this; all options: cargo xtask vlab {name} --help\n");
                }
                Doer::Scenario => {
                    text += no_setup;
                    text += "  -h, --help   this; all options: cargo xtask vlab scenario --help\n";
                }
                Doer::Machines { verb: name } => {
                    text += no_setup;
                    text += &format!("  -h, --help   this; all options: cargo xtask vlab {name} --help\n");
                }
                Doer::Test | Doer::Setup => {
                    text += no_setup;
                    text += "  -h, --help   this\n";
                }
            }
            text
        }
        None => {
            let mut text = "usage: cargo xtask <verb> [arguments]\n\n".to_owned();
            for verb in VERBS {
                text += &format!("  {:<13} {}\n", verb.name, verb.what);
            }
            text + "\nfirst steps: cargo xtask scenario sno\n             cargo xtask test\n\n\
                    `cargo xtask <verb> --help` tells more. Exit codes are those of what was run.\n"
        }
    }
}

/// The name nearest to what was typed, when it is near enough to be meant.
pub(crate) fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    names
        .map(|name| (distance(&typed, name), name))
        .filter(|(distance, name)| *distance <= name.len().max(3) / 2)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Letters to add, drop, replace, or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut table = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for (i, row) in table.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in table[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(table[i - 2][j - 2] + 1);
            }
            table[i][j] = best;
        }
    }
    table[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_ascii_whitespace().map(OsString::from).collect()
    }

    /// (command line, verb, may install, passed on)
    const DONE: &[(&str, &str, bool, &str)] = &[
        ("scenario sno", "scenario", true, "sno"),
        ("scenario --no-setup sno ha-3-2 --seed 7", "scenario", false, "sno ha-3-2 --seed 7"),
        ("scenario sno --no-setup", "scenario", false, "sno"),
        ("scenario sno -- --no-setup -h", "scenario", true, "sno -- --no-setup -h"),
        ("test", "test", true, ""),
        ("test --no-setup -p vlab-lab -- --exact x", "test", false, "-p vlab-lab -- --exact x"),
        ("setup", "setup", true, ""),
        ("setup --no-setup", "setup", false, ""),
        ("setup --containers", "setup", true, "--containers"),
        ("images --list vlab-service", "images", true, "--list vlab-service"),
        ("gc --dry-run", "gc", true, "--dry-run"),
        ("vlab scenario --help --no-setup", "vlab", true, "scenario --help --no-setup"),
    ];

    #[test]
    fn our_options_are_ours_and_the_rest_is_passed_on() {
        for (line, name, install, rest) in DONE {
            let Action::Do { verb, may_install, args } = parse(&words(line)) else { panic!("{line}") };
            assert_eq!((verb.name, may_install, args), (*name, *install, words(rest)), "{line}");
        }
    }

    #[test]
    fn help_is_help_and_knows_its_verb() {
        assert_eq!(parse(&words("--help")), Action::Help(None));
        assert_eq!(parse(&words("help nonsense")), Action::Help(None));
        for verb in VERBS {
            assert_eq!(parse(&words(&format!("help {}", verb.name))), Action::Help(Some(verb)));
            let line = format!("{} x --help", verb.name);
            match parse(&words(&line)) {
                Action::Help(Some(found)) => assert_eq!(found, verb),
                Action::Do { verb: found, .. } => {
                    assert_eq!(found, verb);
                    assert!(["vlab", "images"].contains(&verb.name), "{line}");
                }
                other => panic!("{line}: {other:?}"),
            }
            assert!(help(None).contains(&format!("\n  {:<13} {}\n", verb.name, verb.what)));
            assert!(help(Some(verb)).starts_with(&format!("usage: cargo xtask {}", verb.name)));
        }
    }

    #[test]
    fn a_wrong_verb_gets_the_nearest_one() {
        let cases = [
            ("scenraio", "; did you mean `scenario`?"),
            ("tets", "; did you mean `test`?"),
            ("Doctor", "; did you mean `doctor`?"),
            ("lst", "; did you mean `list`?"),
            ("xyzzyq", ""),
            ("", ""),
        ];
        for (typed, hint) in cases {
            let expected = Action::Wrong(format!("there is no verb `{typed}`{hint}"));
            assert_eq!(parse(&[OsString::from(typed)]), expected);
        }
        assert_eq!(parse(&[]), Action::Wrong("which verb?".to_owned()));
        assert_eq!(parse(&words("setup now")), Action::Wrong("`setup` takes no `now`".to_owned()));
    }

    #[test]
    fn machines_are_wanted_where_hosts_may_be_some() {
        let text = |name: Option<&str>| match name {
            Some("sno") => "hosts:\n  - kind: auto\n".to_owned(),
            Some("vm") => "hosts: [{kind: vm}]\n".to_owned(),
            Some("plain") => "hosts:\n  # kind: auto\n  - name: x\n".to_owned(),
            Some(_) => String::new(),
            None => "kind: auto".to_owned(),
        };
        for (line, chosen, wish) in [
            ("sno", None, Wish::May),
            ("sno", Some("sim"), Wish::No),
            ("sno", Some("vm"), Wish::Must),
            ("sno --hosts sim", Some("vm"), Wish::No),
            ("plain --hosts=vm", None, Wish::Must),
            ("plain --seed 7", None, Wish::No),
            ("plain sno", None, Wish::May),
            ("sno vm", None, Wish::Must),
            ("--tag smoke", None, Wish::May),
        ] {
            assert_eq!(wants_machines(&words(line), chosen, text), wish, "{line} {chosen:?}");
        }
    }

    #[test]
    fn a_first_look_is_the_same_run_with_simulated_hosts() {
        let text = |name: Option<&str>| match name {
            Some("sno" | "other") => "hosts: [{kind: auto}]\n".to_owned(),
            _ => "hosts: [{kind: vm}]\n".to_owned(),
        };
        for (line, expected) in [
            ("sno", Some("sno --hosts sim")),
            ("sno --hosts vm", Some("sno --hosts sim")),
            ("--hosts=vm --seed 7 sno -q", Some("--seed 7 sno -q --hosts sim")),
            ("vm", None),
            ("sno other", None),
            ("sno --repeat 5", None),
            ("--tag smoke", None),
            ("sno --service=container:x", None),
            ("sno --seed", None),
        ] {
            assert_eq!(first_look(&words(line), text), expected.map(words), "{line}");
        }
    }

    #[test]
    fn containers_are_wanted_where_the_service_is_in_one() {
        for (line, wanted) in [
            ("sno --service container:vlab-service", true),
            ("sno --service=container:x/y:z", true),
            ("differential sno --against container:x", true),
            ("sno --service simulated", false),
            ("sno --containers", false),
        ] {
            assert_eq!(names_container(&words(line)), wanted, "{line}");
        }
        let load = |_: Option<&str>| "name: x\nload: {}\n".to_owned();
        assert!(measures_load(&words("x"), load) && !measures_load(&words("x"), |_| "# load:\n  load: x\n".to_owned()));
        let of_all = |name: Option<&str>| if name.is_none() { "load: {}\n".to_owned() } else { String::new() };
        assert!(measures_load(&words("--tag load"), of_all) && measures_load(&words("--tag=load"), of_all));
        assert!(!measures_load(&words("--tag smoke --tag !load"), of_all));
        let hub = |name: Option<&str>| if name == Some("x") { "api: kube\n".to_owned() } else { String::new() };
        assert!(asks_over_kube(&words("x"), hub) && asks_over_kube(&words("--api kube x"), load));
        let of_all = |name: Option<&str>| if name.is_none() { "api: kube\n".to_owned() } else { String::new() };
        assert!(asks_over_kube(&words("--tag smoke"), of_all) && !asks_over_kube(&words("x --api rest"), load));
        let text = |_: Option<&str>| "service: {kind: container, image: x}\n".to_owned();
        assert!(has_kind(&words("sno"), "container", text) && !has_kind(&words("--seed"), "container", text));
    }

    #[test]
    fn distances() {
        for (a, b, expected) in [("", "abc", 3), ("gc", "cg", 1), ("kitten", "sitting", 3), ("list", "list", 0)] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }
}
