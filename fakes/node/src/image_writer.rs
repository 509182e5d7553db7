//! Stands before coreos-installer, for who calls it without knowing the lab: it waits until the live system offers its disk image,
//! and lets the real program ask nobody else for one. Everything else goes through as it is.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use crate::machine::{NodeConfig, Root};
use crate::offer::{self, DiskImage, WallClock};
use crate::say;

/// The real one. This one's name comes before it in every search path.
const REAL: &str = "/usr/bin/coreos-installer";

/// Options that name an image.
const NAMING: &[&str] = &["--image-url", "--image-file", "-u", "-f"];
/// Options that say where one is to be found.
const FINDING: &[&str] = &["--offline", "--stream", "--stream-base-url", "-s"];

/// Does a command line name the image that is to be written?
pub(crate) fn names_image(args: &[String]) -> bool {
    has(args, NAMING)
}

fn has(args: &[String], options: &[&str]) -> bool {
    args.iter().any(|arg| options.iter().any(|option| arg.split('=').next() == Some(option)))
}

/// What names the image for a command line that does not.
pub(crate) fn image_args(config: &NodeConfig) -> Vec<String> {
    match &config.os_image {
        Some(image) => {
            let option = if image.contains("://") { "--image-url" } else { "--image-file" };
            vec![option.to_owned(), image.clone()]
        }
        // Without it coreos-installer asks the internet for an image when the live system offers none.
        None => vec!["--offline".to_owned()],
    }
}

/// Waits for the disk image of the live system, which is written when no other is named.
pub(crate) fn wait_for_offer(root: &Root, config: &NodeConfig) -> Result<(), String> {
    let image = DiskImage { root, systemctl: &config.program("systemctl") };
    offer::wait(&image, config.timing.disk_image_wait, &WallClock::new()).map_err(|e| {
        say::moment("installer", "lab-not-ready", &json!({ "problem": e.to_string() }));
        format!("the lab was not ready: {e}")
    })
}

/// The words for the real program, and whether the live system's image is to be waited for.
fn words_of(words: &[String], config: &NodeConfig) -> (Vec<String>, bool) {
    match words.split_first() {
        Some((verb, args)) if verb == "install" && !names_image(args) && !has(args, FINDING) => {
            let mut all = vec![verb.clone()];
            all.extend(image_args(config));
            all.extend(config.coreos_installer_args.iter().cloned());
            all.extend(args.iter().cloned());
            let own = config.os_image.is_none();
            (all, own)
        }
        _ => (words.to_vec(), false),
    }
}

/// Runs it: this process becomes the real program.
///
/// # Errors
/// The image was never offered, or there is no real program.
pub(crate) fn coreos_installer(words: &[String]) -> Result<String, String> {
    let config = NodeConfig::load().map_err(|e| e.to_string())?;
    let root = Root::of_this_machine();
    let (words, waits) = words_of(words, &config);
    if waits {
        wait_for_offer(&root, &config)?;
        // It waits for udev, two minutes at most, and udev could wait so far.
        offer::raise(&root, "systemd-udevd.service");
    }
    let real = config.programs.get("coreos-installer").cloned().unwrap_or_else(|| PathBuf::from(REAL));
    Err(format!("{}: {}", real.display(), Command::new(&real).args(&words).exec()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("install --insecure -i /x.ign /dev/vda", None, "install --offline --insecure -i /x.ign /dev/vda", true)]
    #[case("install /dev/vda", Some("http://x/i"), "install --image-url http://x/i /dev/vda", false)]
    #[case("install /dev/vda", Some("/i"), "install --image-file /i /dev/vda", false)]
    #[case("install --image-url=http://y /dev/vda", None, "install --image-url=http://y /dev/vda", false)]
    #[case("install -f /y /dev/vda", Some("/i"), "install -f /y /dev/vda", false)]
    #[case("install --offline /dev/vda", None, "install --offline /dev/vda", false)]
    #[case("iso ignition show", None, "iso ignition show", false)]
    #[case("--version", None, "--version", false)]
    fn what_the_real_program_is_called_with(
        #[case] line: &str,
        #[case] image: Option<&str>,
        #[case] expected: &str,
        #[case] waits: bool,
    ) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let config = NodeConfig { os_image: image.map(str::to_owned), ..NodeConfig::default() };
        let (called, waited) = words_of(&words, &config);
        assert_eq!((called.join(" ").as_str(), waited), (expected, waits));
    }
}
