//! Which service is tested, as data: how it is named, and what follows from that for a run.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use vlab_model::history::Source;
use vlab_scenario::{Fault, FaultTarget, Service, ServiceKind};

/// Settings that a run of a program must choose itself: a scenario that sets them would take the service away from the run.
pub const OWNED: &[&str] = &[
    "AUTH_TYPE",
    "DB_HOST",
    "DB_NAME",
    "DB_PASS",
    "DB_PORT",
    "DB_USER",
    "DEPLOY_TARGET",
    "ENABLE_IMAGE_SERVICE",
    "ENABLE_KUBE_API",
    "HTTP_LISTEN_PORT",
    "IMAGE_SERVICE_BASE_URL",
    "OS_IMAGES",
    "SERVICE_BASE_URL",
    "STORAGE",
    "WORK_DIR",
];

/// Which service is tested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// The built-in one.
    #[default]
    Simulated,
    /// A program on this machine that is started for the run.
    Process {
        /// Its file, or a name in `PATH`.
        program: PathBuf,
    },
    /// A container of this image, with another one for PostgreSQL.
    Container {
        /// The service's image.
        image: String,
        /// The image of PostgreSQL; `None`: the usual one.
        postgres: Option<String>,
    },
    /// One that runs already and is not touched.
    Remote {
        /// Its address, `http://host[:port]`.
        url: String,
    },
}

/// A target that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// No such word.
    #[error("{0:?} is not a target: write simulated, process:<program>, container:<image> or remote:<url>")]
    Form(String),
    /// The part behind the colon is missing.
    #[error("{0} needs {1}")]
    Missing(&'static str, &'static str),
    /// Known and not built.
    #[error("not built yet: {0}")]
    NotBuilt(String),
    /// No address of a service.
    #[error("{0:?} is not a service URL: expected http://HOST[:PORT], for example http://127.0.0.1:8090")]
    Url(String),
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        let kind: ServiceKind = match kind {
            "simulated" => ServiceKind::Simulated,
            "process" => ServiceKind::Process,
            "container" => ServiceKind::Container,
            "remote" => ServiceKind::Remote,
            _ => return Err(TargetError::Form(text.to_owned())),
        };
        if kind == ServiceKind::Simulated && rest.is_some() {
            return Err(TargetError::Form(text.to_owned()));
        }
        let rest = rest.filter(|r| !r.is_empty());
        match (kind, rest) {
            (ServiceKind::Container, Some(image)) if image.contains(char::is_whitespace) => {
                Err(TargetError::Form(text.to_owned()))
            }
            _ => Self::of(kind, [rest; 3], None),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simulated => f.write_str("simulated"),
            Self::Process { program } => write!(f, "process:{}", program.display()),
            Self::Container { image, .. } => write!(f, "container:{image}"),
            Self::Remote { url } => write!(f, "remote:{url}"),
        }
    }
}

impl Target {
    fn of(
        kind: ServiceKind,
        [program, image, url]: [Option<&str>; 3],
        postgres: Option<&str>,
    ) -> Result<Self, TargetError> {
        match kind {
            ServiceKind::Simulated => Ok(Self::Simulated),
            ServiceKind::Process => match program {
                Some(program) => Ok(Self::Process { program: program.into() }),
                None => Err(TargetError::Missing("process", "a program: process:/path/to/assisted-service")),
            },
            ServiceKind::Container => match image {
                Some(image) => Ok(Self::Container { image: image.into(), postgres: postgres.map(str::to_owned) }),
                None => Err(TargetError::Missing("container", "an image: container:vlab-service")),
            },
            ServiceKind::Remote => {
                let url = url.ok_or(TargetError::Missing("remote", "an address: remote:http://HOST:PORT"))?;
                if url.starts_with("https://") {
                    return Err(TargetError::NotBuilt(format!("{url}: https; use the service's http listener")));
                }
                let authority = url.strip_prefix("http://").map(|a| a.trim_end_matches('/')).unwrap_or_default();
                if authority.is_empty() || authority.contains(['/', '?', '#', '@', ' ']) {
                    return Err(TargetError::Url(url.to_owned()));
                }
                Ok(Self::Remote { url: url.to_owned() })
            }
        }
    }

    /// The target that a scenario names.
    ///
    /// # Errors
    /// [`TargetError`] for one that is not built or has no program or address.
    pub fn of_scenario(service: &Service) -> Result<Self, TargetError> {
        let [program, image, url] = [&service.program, &service.image, &service.url].map(Option::as_deref);
        Self::of(service.kind, [program, image, url], service.postgres_image.as_deref())
    }

    /// Can that fault be done to it? What only a service that is up can know is asked of it then.
    ///
    /// # Errors
    /// Why not.
    pub fn can(&self, fault: &Fault) -> Result<(), &'static str> {
        match (self, &fault.target) {
            (Target::Remote { .. }, FaultTarget::Service) => Err("a remote service is not ours to stop"),
            (Target::Remote { .. }, FaultTarget::Postgres) => {
                Err("the database of a remote service is not ours to touch")
            }
            (Target::Container { .. }, FaultTarget::Service | FaultTarget::Postgres) if fault.is_momentary() => {
                Err("a container cannot be stopped and started again in a run yet, only paused; use process:<program>")
            }
            (Target::Container { .. }, FaultTarget::Kube) if fault.takes_the_lease() => Err(
                "a service that loses its lease ends, and a container is not started again in a run yet; use process:<program>",
            ),
            _ => Ok(()),
        }
    }

    /// Does the run own the service, its settings and its database?
    pub fn is_owned(&self) -> bool {
        !matches!(self, Self::Remote { .. })
    }

    /// Is PostgreSQL started as a program of this machine?
    pub fn needs_postgres_here(&self) -> bool {
        matches!(self, Self::Simulated | Self::Process { .. })
    }

    /// Is it the real service, or may it be? Only the built-in one is known to write an event together with its change.
    pub fn may_be_real(&self) -> bool {
        !matches!(self, Self::Simulated)
    }

    /// Where states come from: the service's tables where the run owns them, else what the user sees when looking.
    pub fn state_source(&self) -> Source {
        if self.is_owned() { Source::Database } else { Source::Poll }
    }
}

/// Host and port of an `http` URL.
pub fn host_and_port(url: &str) -> Option<(String, u16)> {
    let authority = url.strip_prefix("http://")?.split('/').next()?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (authority, 80),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("http://192.0.2.7:8090", Some(("192.0.2.7", 8090)))]
    #[case("http://[2001:db8::7]:8090/", Some(("2001:db8::7", 8090)))]
    #[case("http://[2001:db8::7]", Some(("2001:db8::7", 80)))]
    #[case("http://assisted.example/api", Some(("assisted.example", 80)))]
    #[case("http://assisted.example:x", None)]
    #[case("https://assisted.example", None)]
    fn hosts_and_ports(#[case] url: &str, #[case] expected: Option<(&str, u16)>) {
        assert_eq!(host_and_port(url), expected.map(|(host, port)| (host.to_owned(), port)));
    }
}
