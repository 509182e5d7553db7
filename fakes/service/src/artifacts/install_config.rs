//! `install-config.yaml`.
