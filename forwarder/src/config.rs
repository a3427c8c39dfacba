//! What `forwarder run` was told, validated: nothing raw afterwards.

use std::{net::SocketAddr, path::PathBuf};

/// How programs are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Native, and generic with a warning where the driver refuses.
    Auto,
    Native,
    Generic,
}

/// Whether flows are spread over CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steering {
    Off,
    /// CPU numbers, ascending, none twice, at least one.
    Cpus(Vec<u32>),
}

#[derive(Clone, Debug)]
pub struct Config {
    /// At least two, none twice.
    pub interfaces: Vec<String>,
    pub mode: Mode,
    pub steering: Steering,
    /// Frames that a CPU's steering queue holds.
    pub queue_size: u32,
    /// `None`: the network namespace's cookie.
    pub name: Option<String>,
    /// Where metrics are served; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// Sets of next hops in the metrics.
    pub metrics_routes: u32,
    pub routes4_max: u32,
    pub routes6_max: u32,
    /// Attach even to an interface over which this login comes.
    pub yes: bool,
    pub accept_unfinished_checksums: bool,
    /// Seconds that forwarding goes on after the daemon has died.
    pub grace_s: u32,
    /// Below it: the control socket and the lock of each forwarder. Default `/run/forwarder`.
    pub run_dir: PathBuf,
    /// Group that may use read-only commands, where it exists. Default `forwarder`.
    pub group: String,
}
