//! The real forwarder between hosts: what it forwards, byte by byte, and what it leaves to Linux.

mod connections;
mod labs;
mod limits;
mod matrix;
mod passed;
