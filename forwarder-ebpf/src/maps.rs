//! Every map and load-time constant, and nothing else that is global.

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    btf_maps::{self, ArrayOfMaps},
    helpers::{bpf_get_smp_processor_id, generated::bpf_ktime_get_coarse_ns},
    macros::{btf_map, map},
    maps::{Array, CpuMap, DevMapHash, HashMap, LpmTrie, PerCpuArray, lpm_trie::Key},
};
use forwarder_common::{
    abi::{
        ADJACENCIES_MAX, Adjacency, BUCKETS_MAX, COUNTER_SLOTS_MAX, CPUS_MAX, Counter, FIB_UNITS,
        INTERFACES_MAX, Interface, InterfaceCounters, LOCALS_MAX, ROUTE_IDS_MAX, ROUTE_PUNT,
        RouteId, RouteWord, STEERING_BUCKETS,
    },
    fib,
    lookup::{Steering, Tables},
};

use crate::fib_memory::FibMemory;

/// The compact FIB: one element, as large as the loader says. The daemon writes it where it is.
#[map]
static FIB: Array<[u64; (fib::words(FIB_UNITS) / fib::UNIT) as usize]> =
    Array::with_max_entries(1, BPF_F_MMAPABLE);
/// The IPv4 local table, for sources. What a prefix maps to says nothing.
#[map]
static LOCALS4: LpmTrie<[u8; 4], u32> = LpmTrie::with_max_entries(LOCALS_MAX, 0);
/// The per-CPU route map: a CPU reads only its own copy.
#[map]
static ROUTES: PerCpuArray<RouteWord> = PerCpuArray::with_max_entries(ROUTE_IDS_MAX, 0);
/// Bucket to index of an adjacency.
#[map]
static BUCKETS: Array<u32> = Array::with_max_entries(BUCKETS_MAX, 0);
#[map]
static ADJACENCIES: Array<Adjacency> = Array::with_max_entries(ADJACENCIES_MAX, 0);
#[map]
static INTERFACES: HashMap<u32, Interface> = HashMap::with_max_entries(INTERFACES_MAX, 0);
/// Bucket to CPU number; a number of no CPU stands for "stay here".
#[map]
static STEERING: Array<u32> = Array::with_max_entries(STEERING_BUCKETS, 0);
/// One word: until when forwarding goes on without a daemon, in ns of `CLOCK_MONOTONIC`.
#[map]
static LEASE: Array<u64> = Array::with_max_entries(1, 0);
#[map]
static CPUS: CpuMap = CpuMap::with_max_entries(CPUS_MAX, 0);
#[map]
static PORTS: DevMapHash = DevMapHash::with_max_entries(INTERFACES_MAX, 0);
/// Read by no program: whoever writes it waits for all that run (`maybe_wait_bpf_programs()`).
#[btf_map]
static GRACE: ArrayOfMaps<btf_maps::Array<u32, 1>, 1> = ArrayOfMaps::new();
#[map]
pub(crate) static COUNTERS: PerCpuArray<InterfaceCounters> =
    PerCpuArray::with_max_entries(COUNTER_SLOTS_MAX, 0);
#[map]
pub(crate) static WORKER_COUNTERS: PerCpuArray<InterfaceCounters> =
    PerCpuArray::with_max_entries(COUNTER_SLOTS_MAX, 0);
#[map]
pub(crate) static ROUTE_COUNTERS: PerCpuArray<Counter> =
    PerCpuArray::with_max_entries(ROUTE_IDS_MAX, 0);

/// Whether flows are spread over CPUs. What a constant switches off, the verifier removes.
#[unsafe(no_mangle)]
static STEER: u32 = 0;
/// Whether frames are counted by route id.
#[unsafe(no_mangle)]
static COUNT_ROUTES: u32 = 0;
/// What makes flow hashes differ from those of other machines.
#[unsafe(no_mangle)]
static HASH_SEED: u64 = 0;

/// Units of the FIB, less one; they are a power of two.
#[unsafe(no_mangle)]
static FIB_UNITS_MASK: u32 = FIB_UNITS - 1;

#[inline(always)]
pub(crate) fn steers() -> bool {
    // SAFETY: a static; volatile, since the value is set between compilation and load.
    unsafe { core::ptr::read_volatile(&raw const STEER) != 0 }
}

#[inline(always)]
pub(crate) fn counts_routes() -> bool {
    // SAFETY: as in `steers`.
    unsafe { core::ptr::read_volatile(&raw const COUNT_ROUTES) != 0 }
}

#[inline(always)]
pub(crate) fn interface<'a>(ifindex: u32) -> Option<&'a Interface> {
    let interface = INTERFACES.get_ptr(ifindex)?;
    // SAFETY: an element lives until the program returns (RCU), and is replaced, not changed.
    Some(unsafe { &*interface })
}

/// The maps that say where a frame goes.
pub(crate) struct Maps;

impl Tables for Maps {
    #[inline(always)]
    fn route4(&self, destination: [u8; 4]) -> RouteId {
        fib_memory().map_or(ROUTE_PUNT, |memory| fib::lookup4(&memory, destination))
    }

    #[inline(always)]
    fn route6(&self, destination: [u8; 16]) -> RouteId {
        fib_memory().map_or(ROUTE_PUNT, |memory| fib::lookup6(&memory, destination))
    }

    #[inline(always)]
    fn is_local4(&self, address: [u8; 4]) -> bool {
        LOCALS4.get(Key::new(32, address)).is_some()
    }

    #[inline(always)]
    fn word(&self, route: RouteId) -> Option<RouteWord> {
        ROUTES.get(route).copied()
    }

    #[inline(always)]
    fn bucket(&self, index: u32) -> Option<u32> {
        BUCKETS.get(index).copied()
    }

    #[inline(always)]
    fn hash_seed(&self) -> u64 {
        // SAFETY: as in `steers`.
        unsafe { core::ptr::read_volatile(&raw const HASH_SEED) }
    }

    #[inline(always)]
    fn adjacency(&self, index: u32) -> Option<&Adjacency> {
        ADJACENCIES.get(index)
    }

    #[inline(always)]
    fn lease_holds(&self) -> bool {
        // SAFETY: the helper takes nothing and reads a clock.
        let now = unsafe { bpf_ktime_get_coarse_ns() };
        LEASE.get(0).is_some_and(|until| now < *until)
    }

    #[inline(always)]
    fn redirect(&self, port: u32) -> bool {
        PORTS.redirect(port, 0).is_ok()
    }
}

/// The steering table and the queues of the CPUs.
pub(crate) struct Workers;

impl Steering for Workers {
    #[inline(always)]
    fn worker(&self, hash: impl FnOnce() -> u32) -> Option<u32> {
        let cpu = *STEERING.get(hash() % STEERING_BUCKETS)?;
        // SAFETY: the helper takes nothing and reads the number of this CPU.
        let here = unsafe { bpf_get_smp_processor_id() };
        (cpu < CPUS_MAX && cpu != here).then_some(cpu)
    }

    #[inline(always)]
    fn steer(&self, cpu: u32) -> bool {
        CPUS.redirect(cpu, 0).is_ok()
    }
}

#[inline(always)]
fn fib_memory() -> Option<FibMemory> {
    // SAFETY: as in `steers`.
    let mask = unsafe { core::ptr::read_volatile(&raw const FIB_UNITS_MASK) };
    FIB.get_ptr(0).map(|start| FibMemory::new(start.cast(), mask))
}
