//! `vlab images`: the media of virtual machines in the cache of this user: what is there, and the way from one machine to another.

use std::path::PathBuf;

use vlab_images::bundle;
use vlab_images::cache::Cache;
use vlab_images::manifest::Manifest;
use vlab_images::os::{ARTEFACTS, Artefact, Builder, named_installer};
use vlab_judge::result::exit;

use crate::error::{CliError, ExitResult, OrExit as _};
use crate::say;
use crate::tools::print;

#[derive(clap::Args)]
pub(crate) struct ImagesArgs {
    #[command(subcommand)]
    verb: ImagesVerb,
}

#[derive(clap::Subcommand)]
enum ImagesVerb {
    /// List the media, and which of them are built.
    List,
    /// Build media that are not built yet. A run does that by itself.
    Build {
        /// Which; without a name: the one that virtual machines boot, `lab-iso`.
        names: Vec<String>,
    },
    /// Write what was built into one file, for a machine that is not to build it again.
    Export {
        /// The file.
        file: PathBuf,
        /// Which media; without a name: all that are built.
        names: Vec<String>,
    },
    /// Take what another machine has exported. What does not fit to the sources here is built all the same.
    Import {
        /// The file.
        file: PathBuf,
    },
    /// Print the checksum of what decides about the media: the name under which CI keeps the folder VLAB_IMAGES.
    Key,
}

pub(crate) fn images(args: &ImagesArgs) -> ExitResult {
    let (cache, manifest) = (Cache::of_this_user(), Manifest::built_in().or_inconclusive()?);
    let builder = Builder {
        cache: &cache,
        manifest: &manifest,
        node: None,
        overlays: Vec::new(),
        coreos_installer: named_installer(),
        say: &|what| say(&format!("images: {what}")),
    };
    match &args.verb {
        ImagesVerb::List => list(&builder),
        ImagesVerb::Build { names } => {
            let names = if names.is_empty() { &["lab-iso".to_owned()] } else { &names[..] };
            for artefact in named(names)? {
                let made = builder.make(artefact.name).or_inconclusive()?;
                print(&format!("{}: {:.1} MB, {}\n", made.name, made.size as f64 / 1e6, made.path.display()));
            }
            Ok(exit::PASSED)
        }
        ImagesVerb::Export { file, names } => {
            let mut chosen = named(names)?;
            if names.is_empty() {
                for artefact in ARTEFACTS {
                    if builder.present(artefact).or_inconclusive()?.is_some() {
                        chosen.push(artefact);
                    }
                }
            }
            if chosen.is_empty() {
                let why = "no medium is built as the sources have it now; `vlab images build` builds one";
                return Err(CliError::nothing_selected(why));
            }
            let index = bundle::export(&builder, &chosen, file).or_inconclusive()?;
            let bytes: u64 = index.files.iter().map(|member| member.size).sum();
            let names: Vec<&str> = chosen.iter().map(|artefact| artefact.name).collect();
            print(&format!(
                "{}: {} and their programs, {:.1} MB\n",
                file.display(),
                names.join(", "),
                bytes as f64 / 1e6
            ));
            Ok(exit::PASSED)
        }
        ImagesVerb::Import { file } => {
            let done = bundle::import(&cache, file).or_inconclusive()?;
            print(&format!(
                "{}: {} new files, {:.1} MB; {} were there\n",
                cache.root().display(),
                done.new,
                done.bytes as f64 / 1e6,
                done.known
            ));
            list(&builder)
        }
        ImagesVerb::Key => {
            print(&format!("{}\n", builder.key().or_inconclusive()?));
            Ok(exit::PASSED)
        }
    }
}

fn list(builder: &Builder<'_>) -> ExitResult {
    for artefact in ARTEFACTS {
        let state = match builder.present(artefact).or_inconclusive()? {
            Some(made) => format!("built, {:.1} MB", made.size as f64 / 1e6),
            None => "not built".to_owned(),
        };
        print(&format!("{:16} {state:18} {}\n", artefact.name, artefact.what));
    }
    Ok(exit::PASSED)
}

fn named(names: &[String]) -> Result<Vec<&'static Artefact>, CliError> {
    let known = || ARTEFACTS.iter().map(|artefact| artefact.name).collect::<Vec<_>>().join(", ");
    let find = |name: &String| {
        let found = ARTEFACTS.iter().find(|artefact| artefact.name == name);
        found.ok_or_else(|| CliError::usage(format!("there is no medium `{name}`; there are {}", known())))
    };
    names.iter().map(find).collect()
}
