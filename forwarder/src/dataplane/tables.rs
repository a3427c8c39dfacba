//! The maps that say where frames go.

use std::{io, net::IpAddr, time::Duration};

use aya::{
    Ebpf,
    maps::{
        Array, CpuMap, DevMapHash, HashMap, LpmTrie, Map, MapData, MapError, PerCpuArray,
        PerCpuValues, lpm_trie::Key, xdp::XdpMapError,
    },
    programs::ProgramFd,
};
use forwarder_common::{
    abi::{
        Adjacency, Interface, OUR_CPUS, OUR_INGRESS, OUR_WORKER, RouteId, RouteWord,
        STEERING_BUCKETS, name,
    },
    fib,
};
use nix::time::{ClockId, clock_gettime};

use super::{Grace, LoadError, Options, memory::Memory, object::FIB_BYTES_MAX};
use crate::{
    fib::{Fib, FibFull, Usage},
    prefix::{Family, Prefix},
    reconcile::{Table, Words},
};

pub struct Tables {
    fib: Fib<Memory>,
    locals4: LpmTrie<MapData, [u8; 4], u32>,
    routes: PerCpuArray<MapData, RouteWord>,
    buckets: Array<MapData, u32>,
    adjacencies: Array<MapData, Adjacency>,
    steering: Array<MapData, u32>,
    lease: Array<MapData, u64>,
    /// In the order in which the kernel has their copies.
    cpus_possible: Vec<u32>,
    grace: Grace,
    /// For how long the lease is renewed.
    lease_for: Duration,
}

/// Interfaces and CPUs: what frames come from and go to.
pub(super) struct Devices {
    interfaces: HashMap<MapData, u32, Interface>,
    ports: DevMapHash<MapData>,
    counted: HashMap<MapData, u32, u32>,
    cpus: CpuMap<MapData>,
    cpus_id: u32,
    workers: Vec<u32>,
}

/// Takes a map out of the object, in its own type.
pub(super) fn take<M>(ebpf: &mut Ebpf, name: &'static str) -> Result<M, LoadError>
where
    M: TryFrom<Map, Error = MapError>,
{
    let map = ebpf.take_map(name).ok_or(LoadError::Missing(name))?;
    Ok(map.try_into()?)
}

impl Tables {
    pub(super) fn take(ebpf: &mut Ebpf, options: &Options) -> Result<Self, LoadError> {
        Ok(Self {
            fib: Fib::new(fib_memory(ebpf, options.fib_units())?),
            grace: Grace::take(ebpf)?,
            lease_for: options.grace,
            cpus_possible: options.cpus_possible.clone(),
            locals4: take(ebpf, name::LOCALS4)?,
            routes: take(ebpf, name::ROUTES)?,
            buckets: take(ebpf, name::BUCKETS)?,
            adjacencies: take(ebpf, name::ADJACENCIES)?,
            steering: take(ebpf, name::STEERING)?,
            lease: take(ebpf, name::LEASE)?,
        })
    }

    /// Spreads the buckets over these CPUs, evenly.
    pub(super) fn set_steering(&mut self, cpus: &[u32]) -> io::Result<()> {
        for (bucket, cpu) in (0..STEERING_BUCKETS).zip(cpus.iter().cycle()) {
            self.steering.set(bucket, cpu, 0).map_err(into_io)?;
        }
        Ok(())
    }

    /// Passes everything of a family up, since XDP would bypass what Linux does to its packets; or
    /// looks at its routes again.
    pub fn set_filtered(&mut self, family: Family, is_on: bool) {
        self.fib.set_filtered(family, is_on);
    }

    /// Puts off the moment from which, without a daemon, everything is passed up: in nanoseconds of
    /// `CLOCK_MONOTONIC`, which the programs read.
    pub fn renew_lease(&mut self) -> io::Result<()> {
        let until = monotonic().saturating_add(self.lease_for);
        let until_ns = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        self.lease.set(0, until_ns, 0).map_err(into_io)
    }
}

impl Table for Tables {
    fn route(&self, prefix: Prefix) -> Option<RouteId> {
        self.fib.route(prefix)
    }

    fn lookup(&self, destination: IpAddr) -> RouteId {
        self.fib.lookup(destination)
    }

    fn prefixes(&self) -> Vec<Prefix> {
        self.fib.prefixes()
    }

    fn apply(&mut self, changes: &[(Prefix, Option<RouteId>)]) -> io::Result<()> {
        let Self { fib, grace, .. } = self;
        let applied = fib.apply(changes, &mut || grace.wait());
        applied.map_err(|full| io::Error::other(full_message(full, fib.usage())))
    }

    fn apply_at_once(&mut self, changes: &[(Prefix, Option<RouteId>)]) -> io::Result<()> {
        let Self { fib, grace, .. } = self;
        if fib.apply_at_once(changes, &mut || grace.wait()).is_ok() {
            return Ok(());
        }
        tracing::info!("no room for a second table: its changes are seen one by one");
        self.apply(changes)
    }

    fn set_local(&mut self, prefix: Prefix, is_local: bool) -> io::Result<()> {
        let IpAddr::V4(address) = prefix.address() else { return Ok(()) };
        let key = Key::new(prefix.len().into(), address.octets());
        if is_local { self.locals4.insert(&key, 1, 0) } else { self.locals4.remove(&key) }
            .map_err(into_io)
    }

    fn set_words(&mut self, route: RouteId, words: &Words) -> io::Result<()> {
        let word = |cpu| *words.on.get(cpu).unwrap_or(&words.all);
        let copies: Vec<RouteWord> = self.cpus_possible.iter().map(word).collect();
        self.routes.set(route, PerCpuValues::try_from(copies)?, 0).map_err(into_io)
    }

    fn set_bucket(&mut self, index: u32, adjacency: u32) -> io::Result<()> {
        self.buckets.set(index, adjacency, 0).map_err(into_io)
    }

    fn set_adjacency(&mut self, index: u32, adjacency: Adjacency) -> io::Result<()> {
        self.adjacencies.set(index, adjacency, 0).map_err(into_io)
    }

    fn set_punt_all(&mut self, family: Family, is_on: bool) {
        self.fib.set_punt_all(family, is_on);
    }

    fn grace(&mut self) -> bool {
        self.grace.wait()
    }

    /// A failure shows at the next tick.
    fn show_life(&mut self) {
        let _ = self.renew_lease();
    }
}

impl Devices {
    /// Tells the programs at tracepoints what is ours: these programs, `ingress` and `worker` by
    /// their ids, and the CPU map.
    pub(super) fn take(ebpf: &mut Ebpf, programs: [u32; 2]) -> Result<Self, LoadError> {
        let Some(Map::CpuMap(cpus)) = ebpf.map(name::CPUS) else {
            return Err(LoadError::Missing(name::CPUS));
        };
        let cpus_id = cpus.info()?.id();
        let mut ours: Array<MapData, u32> = take(ebpf, name::OURS)?;
        for (index, id) in
            [(OUR_INGRESS, programs[0]), (OUR_WORKER, programs[1]), (OUR_CPUS, cpus_id)]
        {
            ours.set(index, id, 0)?;
        }
        Ok(Self {
            interfaces: take(ebpf, name::INTERFACES)?,
            counted: take(ebpf, name::COUNTED)?,
            ports: take(ebpf, name::PORTS)?,
            cpus: take(ebpf, name::CPUS)?,
            cpus_id,
            workers: Vec::new(),
        })
    }

    pub(super) fn set_workers(
        &mut self,
        cpus: &[u32],
        queue_size: u32,
        worker: &ProgramFd,
    ) -> Result<(), LoadError> {
        for cpu in cpus {
            let queue = self.cpus.set(*cpu, queue_size, Some(worker), 0);
            queue.map_err(|error| LoadError::Worker { cpu: *cpu, error: xdp_into_io(error) })?;
            self.workers.push(*cpu);
        }
        Ok(())
    }

    pub(super) fn set(&mut self, ifindex: u32, interface: Interface) -> io::Result<()> {
        self.counted.insert(ifindex, interface.slot, 0).map_err(into_io)?;
        self.ports.insert(ifindex, ifindex, None, 0).map_err(xdp_into_io)?;
        self.interfaces.insert(ifindex, interface, 0).map_err(into_io)
    }

    /// What is not there any more need not be removed: the kernel takes a device that is gone out
    /// of the device map by itself. It stays one whose frames are counted: some may be on their way.
    pub(super) fn remove(&mut self, ifindex: u32) {
        let _ = self.interfaces.remove(&ifindex);
        let _ = self.ports.remove(ifindex);
    }

    pub(super) fn clear(&mut self) {
        for cpu in std::mem::take(&mut self.workers) {
            // A queue of no frames: the entry goes, and its kernel thread with it.
            let _ = self.cpus.set(cpu, 0, None, 0);
        }
        let ports: Vec<u32> = self.ports.keys().filter_map(Result::ok).collect();
        for ifindex in ports {
            self.remove(ifindex);
        }
    }

    /// CPUs that have a queue.
    pub(super) fn workers(&self) -> &[u32] {
        &self.workers
    }

    pub(super) fn cpu_map_id(&self) -> u32 {
        self.cpus_id
    }
}

/// The memory of the FIB, with so many units for nodes, out of a loaded object.
pub fn fib_memory(ebpf: &mut Ebpf, units: u32) -> Result<Memory, LoadError> {
    let Some(Map::Array(map)) = ebpf.take_map(name::FIB) else {
        return Err(LoadError::Missing(name::FIB));
    };
    Ok(Memory::of(&map, fib::words(units) as usize)?)
}

fn full_message(full: FibFull, Usage { used, size }: Usage) -> String {
    // It is a power of two, but for a node or two.
    let remedy = if size > FIB_BYTES_MAX / 2 {
        "it cannot have more, and shorter prefixes take less"
    } else {
        "start the daemon with a larger '--routes4-max' or '--routes6-max', which give it more"
    };
    let [used, size] = [used, size].map(|bytes| bytes.div_ceil(1024));
    format!("{full} ({used} of {size} KB are in use, and this takes more): {remedy}")
}

fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::MAX, Into::into)
}

/// The system's own error, where there is one.
pub(super) fn into_io(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        error => io::Error::other(error),
    }
}

fn xdp_into_io(error: XdpMapError) -> io::Error {
    match error {
        XdpMapError::MapError(error) => into_io(error),
        error @ XdpMapError::ChainedProgramNotSupported => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_fib_is_told_with_what_helps() {
        let message = |used, size| full_message(FibFull, Usage { used, size });
        assert_eq!(
            message(1000, (4 << 20) - 48),
            "the memory of the FIB is full (1 of 4096 KB are in use, and this takes more): start \
             the daemon with a larger '--routes4-max' or '--routes6-max', which give it more"
        );
        assert_eq!(
            message(200 << 20, (256 << 20) - 48),
            "the memory of the FIB is full (204800 of 262144 KB are in use, and this takes more): \
             it cannot have more, and shorter prefixes take less"
        );
    }
}
