//! The packet walk, and the types that the kernel and the daemon share.
//!
//! Read the modules in the order a packet meets them: [`packet`] and [`wire`] (bytes become
//! headers), [`network`] (what the walk asks of IPv4 and IPv6), [`lookup`] (what it asks of the
//! tables), [`steer`] (which CPU takes a flow); [`forward`] is the walk itself, [`verdict`] names
//! every way it can end, [`loss`] what the kernel may do with a frame afterwards, and [`abi`] is what
//! lies in BPF maps.
//!
//! Nothing here knows about BPF, allocates, loops or panics: the same code runs in the kernel and
//! under `cargo test`.

#![no_std]
#![cfg_attr(
    not(any(test, feature = "testing")),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

#[cfg(any(test, feature = "testing"))]
extern crate std;

pub mod abi;
pub mod fib;
pub mod forward;
pub mod lookup;
pub mod loss;
pub mod network;
pub mod packet;
pub mod steer;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod verdict;
pub mod wire;
