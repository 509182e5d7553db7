//! `fresh-machine`: the commands of the README on a machine that has nothing yet. The machine is a minimal Debian root made from packages,
//! with git, a C compiler and this machine's Rust toolchain, in which a fresh clone lies; it has this computer's kernel and devices, and
//! its own processes and files. Nothing is left of it unless `--keep` is given.
//!
//! Twice: as root, and as an ordinary user without `sudo`, who is told what an administrator has to install, which is then done as it
//! was printed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use vlab_setup::{Purpose, ensure};

use crate::{INCONCLUSIVE, USAGE, root, run, say, target};

/// What a reader of the README has: it asks for git, a C compiler and linker, and Rust.
const PACKAGES: &str = "git,ca-certificates,build-essential,passwd";
/// The authorities that Debian's programs trust.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// What `vlab` says when it does without machines (`harness/cli/src/session.rs`).
const SIMULATED: &str = "its hosts are SIMULATED";
/// The clone, in the root.
const CLONE: &str = "work/vlab";
/// The user, in the root.
const USER: &str = "stranger";
/// Folders of this machine that are seen inside. They are removed from there before the root is.
const MOUNTS: &[&str] = &["dev", "sys"];

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wish {
    only: Option<String>,
    keep: bool,
    /// `root` and `user`, or one of them.
    who: Option<String>,
    /// Kept downloads of crates, to be used inside.
    registry: bool,
}

fn wish(args: &[OsString]) -> Result<Wish, String> {
    let mut wish = Wish::default();
    let mut words = args.iter().map(|arg| arg.to_string_lossy().into_owned());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--keep" => wish.keep = true,
            "--kept-crates" => wish.registry = true,
            "--only" => wish.only = Some(words.next().ok_or("--only needs a verb: scenario or test")?),
            "--as" => {
                let who = words.next().filter(|who| ["root", "user"].contains(&who.as_str()));
                wish.who = Some(who.ok_or("--as needs `root` or `user`")?);
            }
            other => {
                return Err(format!(
                    "`fresh-machine` takes no `{other}`; it takes --as, --only, --kept-crates, --keep"
                ));
            }
        }
    }
    Ok(wish)
}

/// The commands that the README prints first: those of its first block.
fn commands(readme: &str) -> Vec<String> {
    let block = readme.split("```console\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default();
    let line =
        |line: &str| line.strip_prefix("$ ").map(|line| line.split('#').next().unwrap_or(line).trim().to_owned());
    block.lines().filter_map(line).collect()
}

pub(crate) fn fresh(args: &[OsString], may_install: bool) -> ExitCode {
    let wish = match wish(args) {
        Ok(wish) => wish,
        Err(why) => {
            say(&why);
            return ExitCode::from(USAGE);
        }
    };
    match ensure(Purpose::FreshMachine, may_install, say).and_then(|_| prove(&wish)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            say(&format!("fresh-machine: {why}"));
            ExitCode::from(INCONCLUSIVE)
        }
    }
}

/// Did every command end as it should?
fn prove(wish: &Wish) -> Result<bool, String> {
    if !fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0) {
        return Err("only root can make a root file system and enter it".to_owned());
    }
    let readme = fs::read_to_string(root().join("README.md")).map_err(|error| format!("README.md: {error}"))?;
    let mut commands = commands(&readme);
    commands.retain(|command| wish.only.as_ref().is_none_or(|verb| command.contains(&format!("xtask {verb}"))));
    if commands.is_empty() {
        return Err("the README prints no such command in its first block".to_owned());
    }
    let mut results = Vec::new();
    for who in ["root", "user"].into_iter().filter(|who| wish.who.as_deref().is_none_or(|wanted| wanted == *who)) {
        let machine = Machine::new(who, wish)?;
        for command in &commands {
            results.push(machine.try_out(command)?);
        }
    }
    say("\non a fresh machine:");
    results.iter().for_each(|(_, line)| say(line));
    Ok(results.iter().all(|(ok, _)| *ok))
}

/// A root file system. Dropped, it is removed.
struct Machine {
    path: PathBuf,
    user: bool,
    keep: bool,
}

impl Machine {
    fn new(who: &str, wish: &Wish) -> Result<Self, String> {
        let folder = target().join("vlab/fresh");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let machine =
            Self { path: folder.join(format!("{who}-{}", std::process::id())), user: who == "user", keep: wish.keep };
        say(&format!("a minimal Debian in {} ({who}); usually two minutes", machine.path.display()));
        let mut make = Command::new("mmdebstrap");
        make.args(["--variant=minbase", "--quiet", &format!("--include={PACKAGES}"), "bookworm"]).arg(&machine.path);
        // The mirror of this machine.
        for sources in ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"] {
            if fs::metadata(sources).is_ok_and(|meta| meta.len() > 0) {
                make.arg(sources);
                break;
            }
        }
        run(make)?;
        machine.furnish(wish)?;
        Ok(machine)
    }

    /// The clone, the toolchain, the user.
    fn furnish(&self, wish: &Wish) -> Result<(), String> {
        let at = |path: &str| self.path.join(path);
        let mut clone = Command::new("git");
        clone.args(["clone", "--quiet", "--no-hardlinks"]).arg(root()).arg(at(CLONE));
        run(clone)?;
        let home = std::env::var("HOME").unwrap_or_default();
        let rustup = std::env::var("RUSTUP_HOME").unwrap_or_else(|_| format!("{home}/.rustup"));
        let cargo = std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{home}/.cargo"));
        // Copies: what happens inside must not touch them.
        for (from, to) in [(rustup.clone(), "opt/rustup"), (format!("{cargo}/bin"), "opt/cargo/bin")] {
            let mut copy = Command::new("cp");
            copy.args(["-a", "--reflink=auto", &from]).arg(at(to));
            fs::create_dir_all(at(to).parent().unwrap_or(&self.path)).map_err(|error| format!("{to}: {error}"))?;
            run(copy)?;
        }
        // How crates are fetched here; and those that were fetched, if they are to be used.
        let registry = wish.registry.then(|| format!("{cargo}/registry"));
        for from in
            [Some(format!("{cargo}/config.toml")), registry].into_iter().flatten().filter(|f| Path::new(f).exists())
        {
            let mut copy = Command::new("cp");
            copy.args(["-a", "--reflink=auto", &from]).arg(at("opt/cargo"));
            run(copy)?;
        }
        let _ = fs::copy("/etc/resolv.conf", at("etc/resolv.conf"));
        let _ = fs::copy("/etc/hosts", at("etc/hosts"));
        // Whom this place trusts: a proxy or a mirror may have an authority of its own.
        let _ = fs::copy(AUTHORITIES, at(&AUTHORITIES[1..]));
        if self.user {
            self.inside("root", &format!("useradd --create-home {USER} && chown -R {USER} /work /opt/cargo"))?;
        }
        Ok(())
    }

    /// A command of shell inside, with processes and mounts of its own; its exit code.
    fn inside(&self, who: &str, command: &str) -> Result<Option<i32>, String> {
        let path = self.path.display();
        let mounts: String = MOUNTS.iter().map(|mount| format!("mount --rbind /{mount} {path}/{mount}\n")).collect();
        let switch =
            if who == "root" { "bash -c" } else { "setpriv --reuid=stranger --regid=stranger --init-groups bash -c" };
        // As udev makes it: open to everybody. This machine may keep it to root, and may not be touched.
        let tun = format!("mount -t tmpfs tmpfs {path}/dev/net\nmknod -m 666 {path}/dev/net/tun c 10 200\n");
        // Not `chroot`: in one nobody may make a user namespace, in which an ordinary user's lab network is.
        // The root is a mount, as it is on a machine: what runs in it may change how its mounts are seen.
        let script = format!(
            "set -e\nmount --make-rprivate /\nmount --bind {path} {path}\n{mounts}mount -t proc proc {path}/proc\nmount -t tmpfs tmpfs {path}/run\n\
             {tun}\
             cd {path}\nmkdir -p old\npivot_root . old\numount --lazy /old\ncd /\nexec {switch} \"$0\""
        );
        let home = if who == "root" { "/root".to_owned() } else { format!("/home/{USER}") };
        let mut enter = Command::new("unshare");
        enter.args(["--mount", "--pid", "--fork", "--kill-child", "bash", "-c", &script, command]);
        enter.env_clear().env("HOME", home).env("CARGO_HOME", "/opt/cargo").env("RUSTUP_HOME", "/opt/rustup");
        enter
            .env("PATH", "/opt/cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LANG", "C.UTF-8");
        // How this place reaches the network.
        for (name, value) in std::env::vars_os() {
            let word = name.to_string_lossy().to_lowercase();
            if word.ends_with("_proxy") || word.starts_with("ssl_cert") || word == "cargo_http_cainfo" {
                enter.env(name, value);
            }
        }
        enter.stdin(Stdio::null()).status().map(|status| status.code()).map_err(|error| format!("unshare: {error}"))
    }

    /// Tries a command of the README. For the user who may install nothing, an administrator does first what the command says.
    fn try_out(&self, command: &str) -> Result<(bool, String), String> {
        let who = if self.user { USER } else { "root" };
        let full = format!("cd /{CLONE} && set -o pipefail && time {command} 2>&1 | tee /tmp/said");
        let begun = Instant::now();
        say(&format!("\n[{who}] $ {command}"));
        let mut code = self.inside(who, &full)?;
        let mut told = String::new();
        if self.user && code == Some(3) {
            // What to do is printed with four spaces before it, for people who have `sudo`; here it is done by root, who needs none.
            say("[root] does what was printed");
            let done = self.inside(
                "root",
                "sed -n 's/^    \\(sudo \\(-n \\)\\?\\)\\?//p' /tmp/said > /tmp/by-hand && bash -x /tmp/by-hand",
            )?;
            if done != Some(0) {
                return Ok((false, format!("FAILED what `{command}` told to do by hand ends with {done:?}")));
            }
            told = " after an administrator did what it said".to_owned();
            code = self.inside(who, &full)?;
        }
        let took = begun.elapsed().as_secs();
        // `scenario` is content with simulated hosts where there can be no machines; here there can.
        if fs::read_to_string(self.path.join("tmp/said")).is_ok_and(|said| said.contains(SIMULATED)) {
            return Ok((false, format!("FAILED {took} s  [{who}] {command}: only with simulated hosts{told}")));
        }
        let ok = code == Some(0);
        let how = if ok { "ok    " } else { "FAILED" };
        Ok((ok, format!("{how} {:3} min {:02} s  [{who}] {command}{told}", took / 60, took % 60)))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.keep {
            say(&format!("{} is kept", self.path.display()));
            return;
        }
        // Its mounts were those of processes that are gone. One file system only: nothing of this machine can be reached from it.
        let mut remove = Command::new("rm");
        remove.args(["-rf", "--one-file-system"]).arg(&self.path);
        if let Err(why) = run(remove) {
            say(&format!("{}: {why}", self.path.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_those_of_the_readme() {
        let readme = fs::read_to_string(root().join("README.md")).unwrap();
        assert_eq!(commands(&readme), ["cargo xtask scenario sno", "cargo xtask test"]);
        assert_eq!(commands("no block"), [] as [&str; 0]);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let words = |text: &str| text.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        let all = Wish { only: Some("scenario".into()), keep: true, who: Some("user".into()), registry: true };
        assert_eq!(wish(&words("--only scenario --keep --as user --kept-crates")), Ok(all));
        assert_eq!(wish(&[]), Ok(Wish::default()));
        for wrong in ["--as nobody", "--only", "--fast"] {
            assert!(wish(&words(wrong)).is_err(), "{wrong}");
        }
    }
}
