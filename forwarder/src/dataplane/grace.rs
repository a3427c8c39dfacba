//! Grace periods: the time until every packet that was on its way has left the programs.
//!
//! RCU covers NAPI polls and the kernel threads of the CPU map, so each way here waits for it.

use std::io;

use aya::{
    Ebpf,
    maps::{Array, ArrayOfMaps, MapData},
    util::online_cpus,
};
use forwarder_common::abi::name;
use rustix::thread::{MembarrierCommand, membarrier};

use super::{
    LoadError,
    tables::{into_io, take},
};

pub struct Grace {
    waits: ArrayOfMaps<MapData, Array<MapData, u32>>,
    element: Array<MapData, u32>,
}

impl Grace {
    /// Takes its map out of a loaded object.
    pub fn take(ebpf: &mut Ebpf) -> Result<Self, LoadError> {
        Ok(Self { waits: take(ebpf, name::GRACE)?, element: Array::create(1, 0)? })
    }

    /// Returns when a grace period is over; `false` where the kernel cannot tell.
    pub fn wait(&mut self) -> bool {
        // With one CPU it does not wait, and where CPUs run without ticks it is refused
        // (membarrier() in kernel/sched/membarrier.c).
        let by_barrier = online_cpus().is_ok_and(|cpus| cpus.len() > 1)
            && membarrier(MembarrierCommand::Global).is_ok();
        by_barrier || self.wait_by_map().is_ok()
    }

    /// Whoever changes a map of maps returns when no program can see the old one
    /// (`maybe_wait_bpf_programs()` in kernel/bpf/syscall.c).
    pub fn wait_by_map(&mut self) -> io::Result<()> {
        self.waits.set(0, &self.element, 0).map_err(into_io)
    }
}
