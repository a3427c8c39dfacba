//! The per-CPU counters: read, never written.

use std::io;

use aya::{
    Ebpf,
    maps::{MapData, PerCpuArray, PerCpuValues},
};
use forwarder_common::abi::{Counter, InterfaceCounters, RouteId, name};

use super::{
    LoadError,
    tables::{into_io, take},
};
use crate::snapshot::{Count, CpuCounters};

pub(super) struct Counters {
    ingress: PerCpuArray<MapData, InterfaceCounters>,
    worker: PerCpuArray<MapData, InterfaceCounters>,
    routes: PerCpuArray<MapData, Counter>,
}

impl Counters {
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self, LoadError> {
        Ok(Self {
            ingress: take(ebpf, name::COUNTERS)?,
            worker: take(ebpf, name::WORKER_COUNTERS)?,
            routes: take(ebpf, name::ROUTE_COUNTERS)?,
        })
    }

    pub(super) fn interface(&self, slot: u32) -> io::Result<(Vec<CpuCounters>, Vec<CpuCounters>)> {
        let by_cpu = |copies: PerCpuValues<InterfaceCounters>| {
            copies
                .iter()
                .map(|InterfaceCounters(all)| CpuCounters(all.map(count).to_vec()))
                .collect()
        };
        let ingress = self.ingress.get(&slot, 0).map_err(into_io)?;
        let worker = self.worker.get(&slot, 0).map_err(into_io)?;
        Ok((by_cpu(ingress), by_cpu(worker)))
    }

    pub(super) fn route(&self, route: RouteId) -> io::Result<Vec<Count>> {
        let copies = self.routes.get(&route, 0).map_err(into_io)?;
        Ok(copies.iter().copied().map(count).collect())
    }
}

fn count(counter: Counter) -> Count {
    Count { packets: counter.packets, bytes: counter.bytes }
}
