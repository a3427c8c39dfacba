//! The forwarder's user space: the daemon that loads the programs and fills their maps, and the
//! command line that talks to it.
//!
//! A route walks: [`cli`] → [`control`] (socket) → [`engine`] (the one owner of all maps), or
//! kernel → [`netlink`] → [`engine`]; there [`rib`] holds what is wanted, [`reconcile`] compares
//! it with what is installed, and [`dataplane`], the only code that names aya, writes the maps.

#![deny(unsafe_code)]

pub mod account;
pub mod btf;
pub mod bypass;
pub mod cli;
pub mod config;
pub mod control;
pub mod daemon;
pub mod dataplane;
pub mod engine;
pub mod fib;
pub mod ids;
pub mod metrics;
pub mod mirror;
pub mod netlink;
pub mod next_hop;
pub mod object_bytes;
pub mod paths;
pub mod prefix;
pub mod preflight;
pub mod reconcile;
pub mod rib;
pub mod route;
pub mod routing;
pub mod snapshot;
pub mod tracepoints;
pub mod xtables;
