//! The image service: discovery images, boot artifacts, RAM disks for booting from the network. An image of an infra-env is
//! never written anywhere: it is the base image with some ranges replaced, put together while it is sent.
//!
//! * [`layout`] is a file made of ranges; [`iso`] reads ISO 9660, `write` writes it, both without caring where bytes are.
//! * [`base`] is a live image with its areas, and fills them; `minimal` makes the minimal image; [`cpio`] archives.
//! * [`routes`], [`http`] and [`catalog`] understand requests and settings.
//! * [`service`] answers requests: the only part that opens files. Whoever serves it reads the bodies and carries its questions to the
//!   service that knows the infra-envs.

pub mod base;
pub mod catalog;
pub mod cpio;
pub mod http;
pub mod iso;
pub mod layout;
mod minimal;
pub mod routes;
pub mod service;
#[expect(clippy::unwrap_used, reason = "it makes images for tests, here and where images are served")]
pub mod testing;
#[cfg(test)]
mod tests;
mod write;
