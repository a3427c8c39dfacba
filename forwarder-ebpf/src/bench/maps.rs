//! The maps. Those that the bench fills and reads whole are one element each, to be mapped.

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    macros::map,
    maps::{Array, LpmTrie, PerCpuArray},
};
use forwarder_common::{
    abi::{
        ADJACENCIES_MAX, Adjacency, FIB_UNITS, Leads, ROUTE_IDS_FIRST, ROUTE_IDS_MAX, RouteWord,
    },
    fib,
};

use crate::fib_memory::FibMemory;

/// Destinations of a trace; a power of two.
const TRACE: u32 = 1 << 20;

#[map]
static FIB: Array<[u64; (fib::words(FIB_UNITS) / fib::UNIT) as usize]> =
    Array::with_max_entries(1, BPF_F_MMAPABLE);
#[map]
pub(crate) static LPM4: LpmTrie<[u8; 4], u32> = LpmTrie::with_max_entries(1 << 21, 0);
#[map]
pub(crate) static LPM6: LpmTrie<[u8; 16], u32> = LpmTrie::with_max_entries(1 << 19, 0);
#[map]
static ROUTES: PerCpuArray<RouteWord> = PerCpuArray::with_max_entries(ROUTE_IDS_MAX, 0);
/// As `ROUTES`, but one copy for all CPUs.
#[map]
static SHARED_ROUTES: Array<RouteWord> = Array::with_max_entries(ROUTE_IDS_MAX, 0);
#[map]
static ADJACENCIES: Array<Adjacency> = Array::with_max_entries(ADJACENCIES_MAX, 0);

/// Destinations, in network order.
#[map]
static TRACE4: Array<[[u16; 2]; TRACE as usize]> = Array::with_max_entries(1, BPF_F_MMAPABLE);
#[map]
static TRACE6: Array<[[u16; 8]; TRACE as usize]> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// The route found for each destination.
#[map]
static ANSWERS: Array<[u32; TRACE as usize]> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// The four routes that each destination may have, as 16 bits each.
#[map]
static EXPECTED: Array<[u64; TRACE as usize]> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// The next destination's index; wrong answers; the last wrong one: its index, and its route.
#[map]
static STATE: Array<[u32; 4]> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Units of the FIB, less one; they are a power of two.
#[unsafe(no_mangle)]
static FIB_UNITS_MASK: u32 = FIB_UNITS - 1;
/// The interface that frames come in by, for the kernel.
#[unsafe(no_mangle)]
static INGRESS_IFINDEX: u32 = 0;

#[inline(always)]
pub(crate) fn fib_memory() -> Option<FibMemory> {
    // SAFETY: a static; volatile, since the value is set between compilation and load.
    let mask = unsafe { core::ptr::read_volatile(&raw const FIB_UNITS_MASK) };
    FIB.get_ptr(0).map(|start| FibMemory::new(start.cast(), mask))
}

#[inline(always)]
pub(crate) fn ingress_ifindex() -> u32 {
    // SAFETY: as in `fib_memory`.
    unsafe { core::ptr::read_volatile(&raw const INGRESS_IFINDEX) }
}

/// The index of the next destination, which is below [`TRACE`].
#[inline(always)]
pub(crate) fn next() -> Option<u32> {
    let state = STATE.get_ptr_mut(0)?.cast::<u32>();
    // SAFETY: the first word of the element; one CPU alone runs through a trace.
    let at = unsafe { state.read() };
    // SAFETY: as above.
    unsafe { state.write(at.wrapping_add(1)) };
    Some(at & (TRACE - 1))
}

#[inline(always)]
pub(crate) fn destination4(at: u32) -> Option<[u16; 2]> {
    let trace = TRACE4.get_ptr(0)?.cast::<[u16; 2]>();
    // SAFETY: the index was masked.
    Some(unsafe { trace.wrapping_add((at & (TRACE - 1)) as usize).read() })
}

#[inline(always)]
pub(crate) fn destination6(at: u32) -> Option<[u16; 8]> {
    let trace = TRACE6.get_ptr(0)?.cast::<[u16; 8]>();
    // SAFETY: as above.
    Some(unsafe { trace.wrapping_add((at & (TRACE - 1)) as usize).read() })
}

#[inline(always)]
pub(crate) fn note(at: u32, route: u32) -> Option<()> {
    let answers = ANSWERS.get_ptr_mut(0)?.cast::<u32>();
    // SAFETY: as above.
    unsafe { answers.wrapping_add((at & (TRACE - 1)) as usize).write(route) };
    Some(())
}

/// Counts what is none of the routes that the destination may have.
#[inline(always)]
pub(crate) fn compare(at: u32, route: u32) -> Option<()> {
    let expected = EXPECTED.get_ptr(0)?.cast::<u64>();
    // SAFETY: as above.
    let expected = unsafe { expected.wrapping_add((at & (TRACE - 1)) as usize).read() };
    let route = u64::from(route);
    let is = |shift: u32| (expected >> shift) & 0xffff == route;
    if is(0) || is(16) || is(32) || is(48) {
        return Some(());
    }
    let state = STATE.get_ptr_mut(0)?;
    // SAFETY: the one element; one CPU alone runs through a trace.
    let state = unsafe { &mut *state };
    state[1] = state[1].wrapping_add(1);
    state[2] = at;
    #[expect(clippy::cast_possible_truncation, reason = "it was 32 bits above")]
    let route = route as u32;
    state[3] = route;
    Some(())
}

#[inline(always)]
pub(crate) fn own_word(route: u32) -> Option<*mut RouteWord> {
    ROUTES.get_ptr_mut(route)
}

#[inline(always)]
pub(crate) fn shared_word(route: u32) -> Option<*mut RouteWord> {
    SHARED_ROUTES.get_ptr_mut(route)
}

#[inline(always)]
pub(crate) fn adjacency<'a>(
    route: u32,
    word: &impl Fn(u32) -> Option<*mut RouteWord>,
) -> Option<&'a Adjacency> {
    // SAFETY: a word of the map, written whole.
    let word = unsafe { word(route)?.read_volatile() };
    let Ok(Leads::Adjacency(index)) = word.resolve() else { return None };
    ADJACENCIES.get(index)
}

/// Writes what is there into the words of the first 256 routes.
#[inline(always)]
pub(crate) fn rewrite(word: &impl Fn(u32) -> Option<*mut RouteWord>) {
    for route in ROUTE_IDS_FIRST..ROUTE_IDS_FIRST + 256 {
        if let Some(word) = word(route) {
            // SAFETY: a word of the map.
            let value = unsafe { word.read_volatile() };
            // SAFETY: as above; nobody writes anything else.
            unsafe { word.write_volatile(value) };
        }
    }
}
