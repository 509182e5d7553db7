//! What packages are called elsewhere: names of Debian, Ubuntu and Fedora, and the command that installs them there.

use std::fs;
use std::path::Path;

/// A family of distributions that packages have names in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// Debian, and what calls itself like it.
    Debian,
    /// Ubuntu: Debian's names, with exceptions.
    Ubuntu,
    /// Fedora, and those made of it.
    Fedora,
    /// Another one.
    Other,
}

/// What differs: Debian's name, Ubuntu's, Fedora's. A package that is not here has the same name everywhere.
const NAMES: &[(&str, &str, &str)] = &[
    ("build-essential", "build-essential", "gcc"),
    ("chromium", "chromium-browser", "chromium"),
    ("dnsmasq-base", "dnsmasq-base", "dnsmasq"),
    ("docker.io", "docker.io", "moby-engine"),
    ("etcd-client", "etcd-client", "etcd"),
    ("etcd-server", "etcd-server", "etcd"),
    ("grub-common", "grub-common", "grub2-tools"),
    ("iproute2", "iproute2", "iproute iproute-tc"),
    ("liblzma-dev", "liblzma-dev", "xz-devel"),
    ("libssl-dev", "libssl-dev", "openssl-devel"),
    ("libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt-daemon-driver-qemu"),
    ("libvirt-dev", "libvirt-dev", "libvirt-devel"),
    ("libzstd-dev", "libzstd-dev", "libzstd-devel"),
    ("openssh-client", "openssh-client", "openssh-clients"),
    ("ovmf", "ovmf", "edk2-ovmf"),
    ("pkg-config", "pkg-config", "pkgconf-pkg-config"),
    ("postgresql", "postgresql", "postgresql-server"),
    ("qemu-system-x86", "qemu-system-x86", "qemu-system-x86"),
    ("qemu-utils", "qemu-utils", "qemu-img"),
    ("xz-utils", "xz-utils", "xz"),
];

impl Distribution {
    /// This machine's.
    #[must_use]
    pub fn this() -> Self {
        Self::of(Path::new("/"))
    }

    /// That of a root file system.
    pub(crate) fn of(root: &Path) -> Self {
        let read = |name: &str| fs::read_to_string(root.join(name)).ok();
        Self::named(&read("etc/os-release").or_else(|| read("usr/lib/os-release")).unwrap_or_default())
    }

    /// By the text of its `os-release`.
    fn named(text: &str) -> Self {
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            line.unwrap_or_default().trim_matches('"').to_owned()
        };
        let (id, like) = (value("ID"), value("ID_LIKE"));
        let words: Vec<&str> = std::iter::once(id.as_str()).chain(like.split_whitespace()).collect();
        // Ubuntu is like Debian, so it goes first.
        match () {
            () if words.contains(&"ubuntu") => Self::Ubuntu,
            () if words.contains(&"debian") => Self::Debian,
            () if words.iter().any(|word| ["fedora", "rhel", "centos"].contains(word)) => Self::Fedora,
            () => Self::Other,
        }
    }

    /// What a package is called here, by Debian's name; several names where it is split.
    #[must_use]
    pub fn package(self, debian: &'static str) -> &'static str {
        match (self, NAMES.iter().find(|(name, ..)| *name == debian)) {
            (Self::Ubuntu, Some((_, ubuntu, _))) => ubuntu,
            (Self::Fedora, Some((.., fedora))) => fedora,
            _ => debian,
        }
    }

    /// How people here install these packages (Debian's names), in brackets of a sentence: `Debian: apt-get install postgresql`.
    #[must_use]
    pub fn advice(self, debian: &[&'static str]) -> String {
        let names = |of: Self| {
            let mut names: Vec<&str> = debian.iter().map(|name| of.package(name)).collect();
            names.dedup();
            names.join(" ")
        };
        match self {
            Self::Debian => format!("Debian: apt-get install {}", names(self)),
            Self::Ubuntu => format!("Ubuntu: apt-get install {}", names(self)),
            Self::Fedora => format!("Fedora: dnf install {}", names(self)),
            Self::Other => {
                let (debian, fedora) = (names(Self::Debian), names(Self::Fedora));
                format!("Debian: apt-get install {debian}; Fedora: dnf install {fedora}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_known_by_what_it_says_of_itself() {
        for (text, expected) in [
            ("PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n", Distribution::Debian),
            ("ID=ubuntu\nID_LIKE=debian\n", Distribution::Ubuntu),
            ("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", Distribution::Ubuntu),
            ("ID=fedora\nVERSION_ID=43\n", Distribution::Fedora),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", Distribution::Fedora),
            ("ID=alpine\n", Distribution::Other),
            ("", Distribution::Other),
        ] {
            assert_eq!(Distribution::named(text), expected, "{text}");
        }
    }

    #[test]
    fn advice_has_the_names_of_the_place() {
        let packages = ["qemu-utils", "etcd-server", "etcd-client"];
        for (of, expected) in [
            (Distribution::Debian, "Debian: apt-get install qemu-utils etcd-server etcd-client"),
            (Distribution::Ubuntu, "Ubuntu: apt-get install qemu-utils etcd-server etcd-client"),
            (Distribution::Fedora, "Fedora: dnf install qemu-img etcd"),
            (
                Distribution::Other,
                "Debian: apt-get install qemu-utils etcd-server etcd-client; Fedora: dnf install qemu-img etcd",
            ),
        ] {
            assert_eq!(of.advice(&packages), expected);
        }
        assert_eq!(
            Distribution::Ubuntu.advice(&["libvirt-daemon"]),
            "Ubuntu: apt-get install libvirt-daemon-driver-qemu"
        );
    }
}
