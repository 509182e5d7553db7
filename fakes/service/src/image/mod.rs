//! The image service: discovery images, boot artifacts, RAM disks for booting from the network. An image of an infra-env is
//! never written anywhere: it is the base image with some ranges replaced, put together while it is sent.
//!
//! * [`layout`] is a file made of ranges; [`iso`] reads ISO 9660, [`mod@write`] writes it, both without caring where bytes are.
//! * [`base`] is a live image with its areas, and fills them; [`minimal`] makes the minimal image; [`cpio`] archives.
//! * [`routes`], [`http`] and [`catalog`] understand requests and settings.
//! * [`service`] answers requests, [`body`] sends them: the only parts that do I/O.

pub mod base;
pub mod body;
pub mod catalog;
pub mod cpio;
pub mod http;
pub mod iso;
pub mod layout;
pub mod minimal;
pub mod routes;
pub mod service;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod write;
