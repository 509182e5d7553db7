//! `vlab openshift-install`: what a real assisted-service of a run starts in the place of `openshift-install`. Not for people, so
//! the help does not list it.

use std::path::PathBuf;

use clap::ValueEnum;
use vlab_api::Timestamp;
use vlab_installer::openshift_install::{Asset, create};
use vlab_judge::result::exit;

use crate::error::ExitResult;

/// What `create` makes; the words are the real program's.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Wanted {
    Manifests,
    IgnitionConfigs,
    SingleNodeIgnitionConfig,
}

#[derive(clap::Args)]
pub(crate) struct InstallerArgs {
    #[command(subcommand)]
    verb: InstallerVerb,
}

#[derive(clap::Subcommand)]
enum InstallerVerb {
    /// Make an asset in a folder, out of what is there.
    Create {
        asset: Wanted,
        /// The folder.
        #[arg(long)]
        dir: PathBuf,
        /// Release image; its tag is the version.
        #[arg(long, env = "OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE", default_value = "")]
        release_image: String,
        /// Seed of keys, ids and the password.
        #[arg(long, env = "VLAB_SEED")]
        seed: u64,
    },
}

pub(crate) fn openshift_install(args: &InstallerArgs) -> ExitResult {
    let InstallerVerb::Create { asset, dir, release_image, seed } = &args.verb;
    let asset = match asset {
        Wanted::Manifests => Asset::Manifests,
        Wanted::IgnitionConfigs => Asset::IgnitionConfigs,
        Wanted::SingleNodeIgnitionConfig => Asset::SingleNodeIgnitionConfig,
    };
    match create(asset, dir, release_image, *seed, Timestamp::now()) {
        Ok(()) => Ok(exit::PASSED),
        Err(error) => {
            // In the service's own log, and in the event that tells why a cluster could not be prepared.
            eprintln!("stand-in for openshift-install: {error}");
            Ok(exit::FAILED)
        }
    }
}
