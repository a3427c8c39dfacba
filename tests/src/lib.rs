//! The lab: hosts and links that exist only in network namespaces, frames and an oracle for them,
//! and the real forwarder in the middle. Tests and the demo are written with it.
//!
//! Reading order: a [`netns::Namespace`] becomes a [`host::Host`], [`link`] connects hosts, [`lab`]
//! lays out the usual ones around a router. [`wire`] sends and receives [`frame`]s there, and
//! [`daemon`] runs the forwarder; a [`testbed`] is all of this at once. [`crossing`] sees that it
//! forwards, [`footprint`] that it leaves nothing behind. Nothing here has a name on the machine:
//! whatever happens to the process, the lab is gone with it.

#![allow(clippy::missing_panics_doc, reason = "in a test that is how things end")]
#![allow(clippy::return_self_not_must_use, reason = "every step of every builder would carry it")]

pub mod after;
pub mod agreement;
pub mod churn;
pub mod comparison;
pub mod confined;
pub mod cpu;
pub mod crossing;
pub mod daemon;
pub mod footprint;
pub mod foreign;
pub mod frame;
pub mod hook;
pub mod host;
pub mod kernel;
pub mod lab;
pub mod link;
pub mod netns;
pub mod offload;
pub mod process;
pub mod programs;
pub mod routing;
pub mod scrape;
pub mod skip;
pub mod stats;
pub mod tables;
pub mod tap;
pub mod testbed;
pub mod twin;
pub mod wait;
pub mod wire;

/// The built eBPF object.
pub fn object() -> Vec<u8> {
    let path = std::env::var_os("FORWARDER_EBPF_OBJECT").map_or_else(
        || concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bpf/forwarder-ebpf.o").into(),
        std::path::PathBuf::from,
    );
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
