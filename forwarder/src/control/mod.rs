//! The control socket: framing, protocol, server and client.
//!
//! A connection is a series of frames. The first of each side is a hello with the protocol's
//! version; then the client sends requests, one after the other, and reads what answers each.

pub mod chunk;
pub mod client;
mod connection;
pub mod frame;
pub mod protocol;
pub mod server;

#[cfg(test)]
pub(crate) mod tests;
