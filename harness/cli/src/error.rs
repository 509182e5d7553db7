//! What ends a verb before it has an answer: one error with an exit code and a message.

use std::fmt::Display;

use vlab_judge::result::exit;

/// What a verb comes to: its exit code, or why it could not be carried out.
pub(crate) type ExitResult = Result<u8, CliError>;

/// Why a verb could not be carried out.
#[derive(Debug)]
pub(crate) struct CliError {
    /// The exit code.
    pub(crate) code: u8,
    message: Message,
}

#[derive(Debug)]
enum Message {
    /// A line of the tool itself.
    Line(String),
    /// A text that names its source itself, for example a diagnostic with lines of a scenario.
    Rendered(String),
    /// Everything has been said.
    Said,
}

impl CliError {
    fn line(code: u8, why: impl Display) -> Self {
        Self { code, message: Message::Line(why.to_string()) }
    }

    /// The command line or a scenario is not valid.
    pub(crate) fn usage(why: impl Display) -> Self {
        Self::line(exit::USAGE, why)
    }

    /// This machine or its lab is not up to it.
    pub(crate) fn inconclusive(why: impl Display) -> Self {
        Self::line(exit::INCONCLUSIVE, why)
    }

    /// The selection matched nothing.
    pub(crate) fn nothing_selected(why: impl Display) -> Self {
        Self::line(exit::NOTHING_SELECTED, why)
    }

    /// A fault of this program.
    pub(crate) fn internal(why: impl Display) -> Self {
        Self::line(exit::INTERNAL, why)
    }

    /// A scenario is not valid; the text shows where.
    pub(crate) fn rendered(text: impl Display) -> Self {
        Self { code: exit::USAGE, message: Message::Rendered(text.to_string()) }
    }

    /// The user has stopped it, and that has been said.
    pub(crate) fn interrupted() -> Self {
        Self { code: exit::INCONCLUSIVE, message: Message::Said }
    }

    /// What it says, in one line: that which names the mistake.
    pub(crate) fn first_line(&self) -> String {
        let text = match &self.message {
            Message::Line(text) | Message::Rendered(text) => text.as_str(),
            Message::Said => "",
        };
        // A diagnostic begins with a sign for people.
        text.lines().next().unwrap_or_default().trim_start_matches([' ', '×', '⚠']).to_owned()
    }

    /// Says it.
    pub(crate) fn print(&self) {
        match &self.message {
            Message::Line(text) => crate::say(text),
            Message::Rendered(text) => crate::tools::tell(&format!("{text}\n")),
            Message::Said => {}
        }
    }
}

/// Turns an error of another room into one of the command line.
pub(crate) trait OrExit<T> {
    /// Exit code 2.
    fn or_usage(self) -> Result<T, CliError>;
    /// Exit code 3.
    fn or_inconclusive(self) -> Result<T, CliError>;
}

impl<T, E: Display> OrExit<T> for Result<T, E> {
    fn or_usage(self) -> Result<T, CliError> {
        self.map_err(CliError::usage)
    }

    fn or_inconclusive(self) -> Result<T, CliError> {
        self.map_err(CliError::inconclusive)
    }
}
