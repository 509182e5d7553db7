//! The verdict for the terminal.

use crate::result::RunResult;

/// How the terminal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns to use.
    pub width: usize,
    /// Use colours? (`NO_COLOR` is not set and the output is a terminal.)
    pub color: bool,
}

/// The verdict in a few lines, ending in a newline.
pub fn render(result: &RunResult, style: Style) -> String {
    let _ = (result, style);
    unimplemented!("the console report is not built yet")
}
