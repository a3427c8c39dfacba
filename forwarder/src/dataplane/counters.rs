//! The per-CPU counters: read, never written.

use std::io;

use aya::{
    Ebpf,
    maps::{MapData, PerCpuArray},
};
use forwarder_common::abi::{Counter, InterfaceCounters, RouteId, name};

use super::{
    LoadError, Options,
    tables::{into_io, take},
};
use crate::snapshot::{Count, CpuCounters};

pub(super) struct Counters {
    ingress: PerCpuArray<MapData, InterfaceCounters>,
    worker: PerCpuArray<MapData, InterfaceCounters>,
    routes: PerCpuArray<MapData, Counter>,
    /// In the order in which the kernel has their copies.
    cpus_possible: Vec<u32>,
}

impl Counters {
    pub(super) fn take(ebpf: &mut Ebpf, options: &Options) -> Result<Self, LoadError> {
        Ok(Self {
            cpus_possible: options.cpus_possible.clone(),
            ingress: take(ebpf, name::COUNTERS)?,
            worker: take(ebpf, name::WORKER_COUNTERS)?,
            routes: take(ebpf, name::ROUTE_COUNTERS)?,
        })
    }

    /// By CPU number, of `ingress` and of `worker`.
    pub(super) fn interface(&self, slot: u32) -> io::Result<(Vec<CpuCounters>, Vec<CpuCounters>)> {
        let counters = |InterfaceCounters(all): InterfaceCounters| -> CpuCounters {
            CpuCounters(all.map(count).to_vec())
        };
        let ingress = self.ingress.get(&slot, 0).map_err(into_io)?;
        let worker = self.worker.get(&slot, 0).map_err(into_io)?;
        let possible = &self.cpus_possible;
        Ok((by_number(possible, &ingress, counters), by_number(possible, &worker, counters)))
    }

    /// By CPU number.
    pub(super) fn route(&self, route: RouteId) -> io::Result<Vec<Count>> {
        let copies = self.routes.get(&route, 0).map_err(into_io)?;
        Ok(by_number(&self.cpus_possible, &copies, count))
    }
}

/// Copies that lie in the order of possible CPUs, by CPU number; zeros for numbers without a CPU.
fn by_number<A: Copy, B: Clone + Default>(
    possible: &[u32],
    copies: &[A],
    read: impl Fn(A) -> B,
) -> Vec<B> {
    let numbers = possible.iter().max().map_or(0, |last| *last as usize + 1);
    let mut by_number = vec![B::default(); numbers];
    for (cpu, copy) in possible.iter().zip(copies) {
        by_number[*cpu as usize] = read(*copy);
    }
    by_number
}

fn count(counter: Counter) -> Count {
    Count { packets: counter.packets, bytes: counter.bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_belongs_to_the_cpu_whose_place_it_has() {
        let counts = |possible: &[u32]| {
            by_number(possible, &[5_u64, 7, 9], |packets| Count { packets, bytes: 1 })
        };
        let packets = |possible| counts(possible).iter().map(|it| it.packets).collect::<Vec<_>>();
        assert_eq!(packets(&[0, 1, 2]), [5, 7, 9]);
        assert_eq!(packets(&[0, 1, 4]), [5, 7, 0, 0, 9]);
        assert_eq!(packets(&[2, 3, 6]), [0, 0, 5, 7, 0, 0, 9]);
        assert_eq!(counts(&[0, 1, 4])[3], Count::default());
    }
}
