//! Why the service does not do what it is asked for: a reason that each way to ask it (REST, later Kubernetes) maps to its own
//! codes, and the text that the real service has for it.

/// What kind of refusal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// What is asked for makes no sense, or is not allowed here.
    Invalid,
    /// What it is about does not exist.
    NotFound,
    /// It would be fine, but not in the state in which things are.
    Conflict,
    /// It is well-formed and cannot be taken all the same.
    Unprocessable,
    /// The service cannot do it although it should.
    Internal,
    /// The real service does this and the simulated one does not.
    NotBuilt,
}

/// A command was refused: nothing of what was asked for is done. Events that tell of the refusal stay, and so does what a fresh look at
/// the hosts found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    /// In the words of the real service, where it has any.
    pub(crate) text: String,
}

impl Refusal {
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self { reason: Reason::Invalid, text: text.into() }
    }

    pub(crate) fn not_found(text: impl Into<String>) -> Self {
        Self { reason: Reason::NotFound, text: text.into() }
    }

    pub(crate) fn conflict(text: impl Into<String>) -> Self {
        Self { reason: Reason::Conflict, text: text.into() }
    }

    pub(crate) fn unprocessable(text: impl Into<String>) -> Self {
        Self { reason: Reason::Unprocessable, text: text.into() }
    }

    pub(crate) fn internal(text: impl Into<String>) -> Self {
        Self { reason: Reason::Internal, text: text.into() }
    }

    pub(crate) fn not_built(what: &str) -> Self {
        Self { reason: Reason::NotBuilt, text: format!("{what}: the simulated service does not have this") }
    }

    /// Nothing of that id, where the real service has no more to say.
    pub(crate) fn no_record() -> Self {
        Self::not_found("record not found")
    }
}
