//! Shell completions and man pages, made from the definitions that read the command line. Only packages need them (`cargo xtask dist`),
//! so `vlab` is built without them unless the feature `manual` is on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::{Generator as _, Shell};

/// Shells whose completions are written.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Writes `completions/*` and `man/man1/*.1` below a folder; the files that were written.
pub(crate) fn write(mut vlab: Command, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (completions, man) = (folder.join("completions"), folder.join("man/man1"));
    let mut files = Vec::new();
    for place in [&completions, &man] {
        fs::create_dir_all(place)?;
    }
    for shell in SHELLS {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut vlab, "vlab", &mut text);
        let file = completions.join(shell.file_name("vlab"));
        fs::write(&file, text)?;
        files.push(file);
    }
    clap_mangen::generate_to(vlab, &man)?;
    let mut pages = fs::read_dir(&man)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    pages.sort();
    files.extend(pages);
    Ok(files)
}

/// The verb.
#[cfg(feature = "manual")]
pub(crate) fn manual(vlab: Command, folder: &Path) -> crate::error::ExitResult {
    use crate::error::OrExit as _;
    let files = write(vlab, folder).or_inconclusive()?;
    crate::tools::print(&format!("{}: {} files\n", folder.display(), files.len()));
    Ok(vlab_judge::result::exit::PASSED)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_verb_has_a_page_and_every_shell_knows_every_verb() {
        let folder = tempfile::tempdir().unwrap();
        let files = write(crate::Cli::command(), folder.path()).unwrap();
        assert!(files.iter().all(|file| fs::metadata(file).unwrap().len() > 100), "{files:?}");
        let command = crate::Cli::command();
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let name = verb.get_name();
            let page = fs::read_to_string(folder.path().join(format!("man/man1/vlab-{name}.1"))).unwrap();
            assert!(page.contains(".SH SYNOPSIS"), "{name}");
            for file in &files[..SHELLS.len()] {
                assert!(fs::read_to_string(file).unwrap().contains(name), "{name} is not in {}", file.display());
            }
        }
        let scenario = fs::read_to_string(folder.path().join("man/man1/vlab-scenario.1")).unwrap();
        assert!(scenario.contains("time\\-profile"), "{scenario}");
        assert!(!folder.path().join("man/man1/vlab-openshift-install.1").exists(), "it is hidden");
    }
}
