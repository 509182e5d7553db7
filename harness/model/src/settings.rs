//! The service's tunables under their own names.
