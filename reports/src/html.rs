//! `report.html`: one self-contained page.

use vlab_model::history::Observation;

use crate::result::RunResult;

/// The page.
pub fn render(result: &RunResult, history: &[Observation]) -> String {
    let _ = (result, history);
    unimplemented!("report.html is not built yet")
}
