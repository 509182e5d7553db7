//! What was done or told, and that rules are asked about: who did it, and when.

use super::*;

/// Something that was done or told and that rules are asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Clue {
    /// The user cancelled the installation.
    Cancel,
    /// The user reset it.
    Reset,
    /// The user gave the host back to the pool.
    Unbind,
    /// The user bound the host.
    Bind,
    /// The user installed a host of day 2.
    InstallHost,
    /// The host asked to be registered.
    Register,
    /// The service says that the host lost its medium.
    Media,
    /// The command of the installation failed on the host.
    InstallFailed,
    /// The host has fetched what it is given back with.
    Fetched,
    /// It tried to in vain.
    FetchFailed,
}

impl Clue {
    /// What the user's deed tells; `None` for those that no rule is about.
    pub(super) fn of(verb: &UserVerb) -> Option<Self> {
        let UserVerb::Action(kind) = verb else { return None };
        Some(match kind {
            ActionKind::Cancel => Self::Cancel,
            ActionKind::Reset => Self::Reset,
            ActionKind::Unbind => Self::Unbind,
            ActionKind::Bind => Self::Bind,
            ActionKind::InstallHost => Self::InstallHost,
            _ => return None,
        })
    }
}

impl Clue {
    /// The event of a host's machine that it certainly is. A host registers again and again, and binding makes more of it than its
    /// machine does.
    pub(super) fn event(self) -> Option<HostEvent> {
        Some(match self {
            Self::Cancel => HostEvent::CancelInstallation,
            Self::Reset => HostEvent::ResettingPendingUserAction,
            Self::InstallHost => HostEvent::InstallHost,
            Self::InstallFailed => HostEvent::HostInstallationFailed,
            // What a host has found may not have reached the service.
            Self::Fetched | Self::FetchFailed => return None,
            Self::Unbind | Self::Bind | Self::Register | Self::Media => return None,
        })
    }
}

/// The clues, by whom they are about, with their times.
#[derive(Default)]
pub(super) struct Evidence(pub(super) BTreeMap<(Uuid, Clue), Vec<Timestamp>>);

impl Evidence {
    /// What a history has of them.
    pub(super) fn of(history: &[Observation]) -> Self {
        let mut evidence = Evidence::default();
        for o in history {
            match &o.what {
                What::UserAction { action, subject: Some(subject), status, .. } if (200..300).contains(status) => {
                    if let Some(clue) = Clue::of(action) {
                        evidence.add(*subject, clue, o.at());
                    }
                }
                What::HostDid {
                    host,
                    what:
                        HostMoment::Registered | HostMoment::RegisteredWithoutCommand | HostMoment::RegistrationRefused(_),
                } => evidence.add(*host, Clue::Register, o.at()),
                What::Event { name, host: Some(host), .. } if name == "host_media_disconnected" => {
                    evidence.add(*host, Clue::Media, o.at());
                }
                What::Step { host, step_type, answered: Some(code), .. } if step_type == "install" && *code != 0 => {
                    evidence.add(*host, Clue::InstallFailed, o.at());
                }
                What::Step { host, step_type, answered: Some(code), .. } if step_type == "download-boot-artifacts" => {
                    let clue = if *code == 0 { Clue::Fetched } else { Clue::FetchFailed };
                    evidence.add(*host, clue, o.at());
                }
                _ => {}
            }
        }
        evidence
    }

    pub(super) fn add(&mut self, subject: Uuid, clue: Clue, at: Timestamp) {
        self.0.entry((subject, clue)).or_default().push(at);
    }

    pub(super) fn near(&self, subject: Uuid, clue: Clue, at: Timestamp, before: Duration, after: Duration) -> bool {
        self.0.get(&(subject, clue)).is_some_and(|times| {
            times.iter().any(|t| if *t < at { at.since(*t) <= before } else { t.since(at) <= after })
        })
    }
}
