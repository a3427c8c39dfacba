//! The packet walk, and the types that the kernel and the daemon share.
//!
//! Nothing here knows about BPF: the same code runs in the kernel and under `cargo test`.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod abi;
pub mod verdict;
