//! How long things take. Stands in for the model's own type until that is there.

/// Durations of everything that hosts do.
#[derive(Clone, Debug, Default)]
pub struct HostTiming {}
