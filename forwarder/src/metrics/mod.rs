//! The Prometheus endpoint.

pub mod exposition;
pub mod server;
#[cfg(test)]
mod testing;
