//! The API over sockets: one HTTP connection, and a small asynchronous client on top of it. What is said over it (requests,
//! operations, types) is `vlab-api`, which does no I/O.

mod client;
mod connection;

pub use client::Client;
pub use connection::{Answered, DownloadError, Endpoint, EndpointError, HttpConnection, Lines, download, lines};
