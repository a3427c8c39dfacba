//! What lies in BPF maps. A change here is a change of the contract between two programs.
//!
//! Addresses are octets in network order; every other number has the byte order of the host.

use core::hint::black_box;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    loss::{LOSSES, Target},
    verdict::{Reason, SLOTS},
};

/// Goes up with every change of this module or of the codes of [`Reason`] and
/// [`crate::loss::Loss`].
pub const ABI_VERSION: u32 = 5;

/// Interfaces at once, on which the programs run or by which routes leave.
pub const INTERFACES_MAX: u32 = 256;
/// Slots for the counters of interfaces; slot 0 takes what no interface can be charged with.
pub const COUNTER_SLOTS_MAX: u32 = INTERFACES_MAX + 1;
/// Default capacities of the FIB; options of the daemon override them at load.
pub const ROUTES4_MAX: u32 = 1 << 20;
pub const ROUTES6_MAX: u32 = 1 << 18;
/// Units of memory for nodes of the FIB (see [`crate::fib`]); a power of two, overridden likewise.
pub const FIB_UNITS: u32 = 1 << 22;
/// Local addresses a family, broadcast addresses included.
pub const LOCALS_MAX: u32 = 1 << 14;
/// Route ids: sets of next hops, not prefixes.
pub const ROUTE_IDS_MAX: u32 = 1 << 15;
pub const ADJACENCIES_MAX: u32 = 1 << 16;
/// Buckets of all groups together.
pub const BUCKETS_MAX: u32 = 1 << 18;
/// Buckets of one group; a power of two.
pub const GROUP_BUCKETS_MAX: u32 = 1 << 10;
/// Steering buckets; a power of two.
pub const STEERING_BUCKETS: u32 = 1024;
/// The bound of `CPUS` in the object; the daemon lowers it to the possible CPUs.
pub const CPUS_MAX: u32 = 4096;

/// Names of programs and maps in the object.
pub mod name {
    pub const INGRESS: &str = "ingress";
    pub const WORKER: &str = "worker";

    pub const FIB: &str = "FIB";
    pub const LOCALS4: &str = "LOCALS4";
    pub const ROUTES: &str = "ROUTES";
    pub const BUCKETS: &str = "BUCKETS";
    pub const ADJACENCIES: &str = "ADJACENCIES";
    pub const INTERFACES: &str = "INTERFACES";
    pub const STEERING: &str = "STEERING";
    pub const LEASE: &str = "LEASE";
    pub const GRACE: &str = "GRACE";
    pub const CPUS: &str = "CPUS";
    pub const PORTS: &str = "PORTS";
    pub const COUNTERS: &str = "COUNTERS";
    pub const WORKER_COUNTERS: &str = "WORKER_COUNTERS";
    pub const ROUTE_COUNTERS: &str = "ROUTE_COUNTERS";
    pub const REDIRECT_LOSSES: &str = "REDIRECT_LOSSES";
    pub const TRANSMITS: &str = "TRANSMITS";
    pub const ENQUEUED: &str = "ENQUEUED";
    pub const DEQUEUED: &str = "DEQUEUED";
    pub const COUNTED: &str = "COUNTED";
    pub const OURS: &str = "OURS";

    /// Load-time constants.
    pub const STEER: &str = "STEER";
    pub const COUNT_ROUTES: &str = "COUNT_ROUTES";
    pub const FIB_UNITS_MASK: &str = "FIB_UNITS_MASK";
    pub const HASH_SEED: &str = "HASH_SEED";
    pub const NAMESPACE: &str = "NAMESPACE";
    /// Where the kernel keeps what the tracepoint programs read, in bytes from the start of its
    /// structure: it differs between kernels.
    pub const NET_DEVICE_IFINDEX: &str = "NET_DEVICE_IFINDEX";
    pub const NET_DEVICE_NET: &str = "NET_DEVICE_NET";
    pub const NET_INUM: &str = "NET_INUM";
    pub const BPF_PROG_AUX: &str = "BPF_PROG_AUX";
    pub const BPF_PROG_AUX_ID: &str = "BPF_PROG_AUX_ID";
}

/// Names a set of next hops: what a prefix maps to, and the index into `ROUTES`.
pub type RouteId = u32;
/// A prefix that we cannot forward for, though the kernel can.
pub const ROUTE_PUNT: RouteId = 0;
/// A prefix of the local table.
pub const ROUTE_LOCAL: RouteId = 1;
/// No prefix at all.
pub const ROUTE_NONE: RouteId = 2;
/// A prefix whose packets Linux drops, or answers.
pub const ROUTE_DISCARD: RouteId = 3;
/// Any prefix of a family that rules of Linux have stopped (see [`crate::fib::FILTERED4`]).
pub const ROUTE_FILTERED: RouteId = 4;
/// The first id for sets of next hops.
pub const ROUTE_IDS_FIRST: RouteId = 5;

/// The index of no adjacency.
pub const ADJACENCY_NONE: u32 = 0;

/// Where a route goes on one CPU: written and read as one aligned 8-byte word.
///
/// It is one of three things, told apart by the high half:
///
/// | high half | low half | |
/// |---|---|---|
/// | its top bit, and the size of a group less one | the group's first bucket | by the flow's hash |
/// | zero | index into `ADJACENCIES` | one way for all |
/// | code of a [`Reason`] | [`ADJACENCY_NONE`] | nothing can be forwarded |
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(transparent)]
pub struct RouteWord(u64);

impl RouteWord {
    #[inline(always)]
    pub const fn via(adjacency: u32) -> Self {
        Self(adjacency as u64)
    }

    #[inline(always)]
    pub const fn group(buckets: BucketRange) -> Self {
        Self(((GROUP | buckets.mask) as u64) << 32 | buckets.start as u64)
    }

    #[inline(always)]
    pub const fn unusable(reason: Reason) -> Self {
        Self((reason as u64) << 32)
    }

    /// What it leads to, or the reason why it leads nowhere.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the word")]
    pub fn resolve(self) -> Result<Leads, Reason> {
        let (high, low) = ((self.0 >> 32) as u32, self.0 as u32);
        if high & GROUP != 0 {
            return Ok(Leads::Group(BucketRange { start: low, mask: high & MASK_MAX }));
        }
        if low != ADJACENCY_NONE {
            return Ok(Leads::Adjacency(low));
        }
        // Opaque, or LLVM tells its bounds by comparing the whole word: the verifier would not see
        // that the code, an index into counters later, has any.
        Err(Reason::from_code(black_box(high)).unwrap_or(Reason::Punt))
    }
}

const GROUP: u32 = 1 << 31;
const MASK_MAX: u32 = GROUP_BUCKETS_MAX - 1;

/// What a [`RouteWord`] leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leads {
    /// An index into `ADJACENCIES`.
    Adjacency(u32),
    Group(BucketRange),
}

/// The buckets of one group, side by side in `BUCKETS`: each has the index of an adjacency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketRange {
    start: u32,
    mask: u32,
}

impl BucketRange {
    /// `size` must be a power of two, [`GROUP_BUCKETS_MAX`] at most.
    #[inline(always)]
    pub const fn new(start: u32, size: u32) -> Self {
        Self { start, mask: size.wrapping_sub(1) & MASK_MAX }
    }

    /// The bucket of a flow. Steering takes the low bits of the hash: these are others, so that
    /// what one CPU gets is spread over all buckets.
    #[inline(always)]
    pub const fn pick(self, hash: u32) -> u32 {
        self.start.wrapping_add((hash >> GROUP_HASH_SHIFT) & self.mask)
    }
}

/// Bits of the hash that groups leave to steering.
const GROUP_HASH_SHIFT: u32 = 16;

/// How a frame leaves: by which port, and with which Ethernet header. Immutable while referenced.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Adjacency {
    /// Interface index of the egress, and its key in `PORTS`.
    pub port: u32,
    /// Longest IP packet, in bytes.
    pub mtu: u32,
    pub destination_mac: [u8; 6],
    pub source_mac: [u8; 6],
    /// [`ADJACENCY_FRAGS`] or zero.
    pub flags: u32,
}

/// The egress can send frames that span several buffers (`NDO_XMIT_SG`).
pub const ADJACENCY_FRAGS: u32 = 1;

/// An interface on which the programs run. Key: interface index.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Interface {
    /// Index into `COUNTERS` and `WORKER_COUNTERS`, below [`COUNTER_SLOTS_MAX`].
    pub slot: u32,
    pub mac: [u8; 6],
    /// Of the bits below.
    pub flags: u16,
}

/// Linux has no IPv6 on it.
pub const INTERFACE_NO_IPV6: u16 = 1;
/// Linux does not forward what comes in there.
pub const INTERFACE_NO_FORWARDING4: u16 = 2;
pub const INTERFACE_NO_FORWARDING6: u16 = 4;
/// An IPv4 source must be reached by this interface (RFC 3704, 2.2), or by some (2.4).
pub const INTERFACE_STRICT: u16 = 8;
pub const INTERFACE_LOOSE: u16 = 16;
/// Groups are chosen from by addresses alone.
pub const INTERFACE_HASH_ADDRESSES4: u16 = 32;
pub const INTERFACE_HASH_ADDRESSES6: u16 = 64;
/// A bridge, bond, team or VRF takes its frames.
pub const INTERFACE_ENSLAVED: u16 = 128;

/// Frames and their bytes, from the Ethernet header to the end of the frame.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Counter {
    pub packets: u64,
    pub bytes: u64,
}

/// What one CPU counted for one interface, indexed by slot (see [`crate::verdict`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(transparent)]
pub struct InterfaceCounters(pub [Counter; SLOTS as usize]);

/// Frames by [`crate::loss::Loss`].
pub type Losses = [u64; LOSSES as usize];

/// Frames that the kernel did not take from a program that redirected them: on one CPU, by the
/// interface where they came in, and by [`Target`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(transparent)]
pub struct RedirectLosses(pub [Losses; Target::ALL.len()]);

/// Frames that a driver was given to send: on one CPU, by egress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Transmits {
    pub sent: u64,
    pub lost: Losses,
}

/// What one CPU gave to the queue of another, which is the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Enqueued {
    /// Frames, with those that there was no room for.
    pub frames: u64,
    pub dropped: u64,
}

/// What a worker took out of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Dequeued {
    pub frames: u64,
    /// Of those that it passed: for these Linux had no memory.
    pub lost: u64,
}

/// Indexes of `OURS`: the ids of what is ours in the kernel, known once it is loaded.
pub const OUR_INGRESS: u32 = 0;
pub const OUR_WORKER: u32 = 1;
pub const OUR_CPUS: u32 = 2;
pub const OURS: u32 = 3;

const _: () = {
    assert!(size_of::<RouteWord>() == 8);
    assert!(size_of::<Adjacency>() == 24 && align_of::<Adjacency>() == 4);
    assert!(size_of::<Interface>() == 12);
    assert!(size_of::<InterfaceCounters>() == 16 * SLOTS as usize);
    // The kernel's limit for an element of a per-CPU array.
    assert!(size_of::<InterfaceCounters>() <= 32 << 10);
    assert!(STEERING_BUCKETS.is_power_of_two());
    assert!(FIB_UNITS.is_power_of_two());
    assert!(ROUTE_IDS_MAX <= 1 << 15, "the FIB keeps route ids in 15 bits");
    assert!(GROUP_BUCKETS_MAX.is_power_of_two());
    assert!(STEERING_BUCKETS <= 1 << GROUP_HASH_SHIFT);
    assert!(GROUP_BUCKETS_MAX <= 1 << (u32::BITS - GROUP_HASH_SHIFT));
};

#[cfg(feature = "user")]
mod pod {
    use super::{
        Adjacency, Counter, Dequeued, Enqueued, Interface, InterfaceCounters, RedirectLosses,
        RouteWord, Transmits,
    };

    // SAFETY: `IntoBytes` proves that there is no padding, `FromBytes` that any bytes are a value.
    unsafe impl aya::Pod for RouteWord {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Adjacency {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Interface {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Counter {}
    // SAFETY: as above.
    unsafe impl aya::Pod for InterfaceCounters {}
    // SAFETY: as above.
    unsafe impl aya::Pod for RedirectLosses {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Transmits {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Enqueued {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Dequeued {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_word_gives_back_what_went_in() {
        for index in [1, 7, u32::MAX] {
            assert_eq!(RouteWord::via(index).resolve(), Ok(Leads::Adjacency(index)));
        }
        for start in [0, 64, BUCKETS_MAX - 1] {
            for size in [1, 2, 64, GROUP_BUCKETS_MAX] {
                let range = BucketRange::new(start, size);
                assert_eq!(RouteWord::group(range).resolve(), Ok(Leads::Group(range)));
            }
        }
        for reason in Reason::ALL {
            assert_eq!(RouteWord::unusable(reason).resolve(), Err(reason));
        }
    }

    #[test]
    fn a_word_with_a_reason_of_a_newer_daemon_is_a_punt() {
        assert_eq!(RouteWord(u64::from(u32::MAX >> 1) << 32).resolve(), Err(Reason::Punt));
    }

    #[test]
    fn a_flow_picks_a_bucket_of_its_group_by_bits_that_steering_does_not_look_at() {
        for size in [1, 2, 64, GROUP_BUCKETS_MAX] {
            let range = BucketRange::new(4096, size);
            for hash in [0, 0xffff, 0x1_0000, 0x1234_5678, u32::MAX] {
                let bucket = range.pick(hash);
                assert!((4096..4096 + size).contains(&bucket), "{size}, {hash:#x}: {bucket}");
                assert_eq!(range.pick(hash ^ (STEERING_BUCKETS - 1)), bucket);
            }
            assert_eq!(range.pick(u32::MAX), 4096 + size - 1);
        }
    }
}
