//! The per-CPU counters: read, never written.

use std::io;

use aya::{
    Ebpf, Pod,
    maps::{MapData, PerCpuArray},
};
use forwarder_common::abi::{
    Counter, Dequeued, Enqueued, InterfaceCounters, Losses, RedirectLosses, RouteId, Transmits,
    name,
};

use super::{
    LoadError, Options,
    tables::{into_io, take},
};
use crate::snapshot::{self, After, Count, CpuCounters, LossCounts};

pub(super) struct Counters {
    ingress: PerCpuArray<MapData, InterfaceCounters>,
    worker: PerCpuArray<MapData, InterfaceCounters>,
    routes: PerCpuArray<MapData, Counter>,
    redirect_losses: PerCpuArray<MapData, RedirectLosses>,
    transmits: PerCpuArray<MapData, Transmits>,
    enqueued: PerCpuArray<MapData, Enqueued>,
    dequeued: PerCpuArray<MapData, Dequeued>,
    /// In the order in which the kernel has their copies.
    cpus_possible: Vec<u32>,
    /// CPUs that have a queue.
    workers: Vec<u32>,
}

/// All counters but those of routes.
#[derive(Debug, Default)]
pub struct Readings {
    /// In the order of the slots that were asked for.
    pub interfaces: Vec<Reading>,
    pub enqueued: Vec<snapshot::Enqueued>,
    pub dequeued: Vec<snapshot::Dequeued>,
}

/// Of one slot, by CPU number.
#[derive(Debug)]
pub struct Reading {
    pub ingress: Vec<CpuCounters>,
    pub worker: Vec<CpuCounters>,
    pub after: Vec<After>,
}

impl Counters {
    pub(super) fn take(
        ebpf: &mut Ebpf,
        options: &Options,
        workers: &[u32],
    ) -> Result<Self, LoadError> {
        Ok(Self {
            cpus_possible: options.cpus_possible.clone(),
            workers: workers.to_vec(),
            ingress: take(ebpf, name::COUNTERS)?,
            worker: take(ebpf, name::WORKER_COUNTERS)?,
            routes: take(ebpf, name::ROUTE_COUNTERS)?,
            redirect_losses: take(ebpf, name::REDIRECT_LOSSES)?,
            transmits: take(ebpf, name::TRANSMITS)?,
            enqueued: take(ebpf, name::ENQUEUED)?,
            dequeued: take(ebpf, name::DEQUEUED)?,
        })
    }

    /// The last things that happen to a frame are read first: what is counted at a later step has
    /// been counted at the earlier ones by the time those are read.
    pub(super) fn read(&self, slots: &[u32]) -> io::Result<Readings> {
        let dequeued = self.dequeued()?;
        let transmits = self.each(slots, &self.transmits)?;
        let losses = self.each(slots, &self.redirect_losses)?;
        let worker = self.each(slots, &self.worker)?;
        let enqueued = self.enqueued()?;
        let ingress = self.each(slots, &self.ingress)?;
        let after = losses.into_iter().zip(transmits).map(|(losses, transmits)| {
            losses.into_iter().zip(transmits).map(|(losses, transmits)| after(losses, transmits))
        });
        let interfaces = ingress.into_iter().zip(worker).zip(after);
        let interfaces = interfaces.map(|((ingress, worker), after)| Reading {
            ingress: ingress.iter().map(|it| outcomes(it.as_ref())).collect(),
            worker: worker.iter().map(|it| outcomes(it.as_ref())).collect(),
            after: after.collect(),
        });
        Ok(Readings { interfaces: interfaces.collect(), enqueued, dequeued })
    }

    /// By CPU number.
    pub(super) fn route(&self, route: RouteId) -> io::Result<Vec<Count>> {
        let copies = self.routes.get(&route, 0).map_err(into_io)?;
        Ok(by_number(&self.cpus_possible, &copies, count))
    }

    /// Elements of a map, each by CPU number.
    fn each<T: Pod>(
        &self,
        slots: &[u32],
        map: &PerCpuArray<MapData, T>,
    ) -> io::Result<Vec<Vec<Option<T>>>> {
        let one = |slot| {
            let copies = map.get(slot, 0).map_err(into_io)?;
            Ok(by_number(&self.cpus_possible, &copies, Some))
        };
        slots.iter().map(one).collect()
    }

    fn enqueued(&self) -> io::Result<Vec<snapshot::Enqueued>> {
        let mut all = Vec::new();
        for &worker in &self.workers {
            let copies = self.enqueued.get(&worker, 0).map_err(into_io)?;
            let copies = self.cpus_possible.iter().zip(copies.iter());
            let some = copies.filter(|(_, copy)| copy.frames != 0);
            all.extend(some.map(|(cpu, &Enqueued { frames, dropped })| snapshot::Enqueued {
                cpu: *cpu,
                worker,
                frames,
                dropped,
            }));
        }
        Ok(all)
    }

    fn dequeued(&self) -> io::Result<Vec<snapshot::Dequeued>> {
        let copies = self.dequeued.get(&0, 0).map_err(into_io)?;
        let copies = self.cpus_possible.iter().zip(copies.iter());
        let some = copies.filter(|(_, copy)| copy.frames != 0);
        let one = |(cpu, &Dequeued { frames, lost }): (&u32, &Dequeued)| snapshot::Dequeued {
            cpu: *cpu,
            frames,
            lost,
        };
        Ok(some.map(one).collect())
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

fn outcomes(counters: Option<&InterfaceCounters>) -> CpuCounters {
    counters.map_or_else(CpuCounters::default, |InterfaceCounters(all)| {
        CpuCounters(all.iter().copied().map(count).collect())
    })
}

fn after(losses: Option<RedirectLosses>, transmits: Option<Transmits>) -> After {
    let (Some(RedirectLosses([port, cpu])), Some(transmits)) = (losses, transmits) else {
        return After::default();
    };
    let counts = |losses: Losses| LossCounts(losses.to_vec());
    After {
        lost_to_port: counts(port),
        lost_to_cpu: counts(cpu),
        sent: transmits.sent,
        unsent: counts(transmits.lost),
    }
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
