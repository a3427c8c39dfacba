//! What becomes of a packet around the lookup.

use core::mem::offset_of;

use aya_ebpf::{
    bindings::{
        bpf_fib_lookup,
        xdp_action::{XDP_PASS, XDP_TX},
    },
    programs::XdpContext,
};
use forwarder_common::{
    abi::{Adjacency, RouteId, RouteWord},
    network::Network,
    packet::Packet,
    wire::{ETHER_TYPE_IPV4, ETHER_TYPE_IPV6, Ethernet, Ipv4, Ipv6, NETWORK_AT},
};

use crate::{
    candidates::{self, Lookup},
    maps,
};

const _: () = assert!(
    offset_of!(Adjacency, destination_mac) == 8 && offset_of!(Adjacency, source_mac) == 14,
    "read as halves of words, behind each other"
);

/// Of each packet anew.
const TTL: u8 = 64;

/// Destination and source, as halves of words.
type Macs = [u16; 6];

pub(crate) trait Family: Network {
    const ETHER_TYPE: u16;
    type Address: Copy;

    /// Puts a destination of the trace into the packet.
    fn put(&mut self, at: u32) -> Option<()>;
    fn hop_limit(&self) -> u8;
    fn destination(&self) -> Self::Address;
    fn route(lookup: &impl Lookup, destination: Self::Address) -> RouteId;
    fn kernel(ctx: &XdpContext, destination: Self::Address) -> Option<Macs>;
}

/// Forwards by a lookup, the route word of this CPU, and an adjacency.
#[inline(always)]
pub(crate) fn forward<F: Family>(ctx: &XdpContext, lookup: &impl Lookup) -> u32 {
    action(try_forward::<F>(ctx, lookup, &maps::own_word))
}

#[inline(always)]
pub(crate) fn forward_by_shared<F: Family>(ctx: &XdpContext, lookup: &impl Lookup) -> u32 {
    action(try_forward::<F>(ctx, lookup, &maps::shared_word))
}

#[inline(always)]
pub(crate) fn forward_by_kernel<F: Family>(ctx: &XdpContext) -> u32 {
    action(try_forward_by_kernel::<F>(ctx))
}

/// Notes which route the lookup gives.
#[inline(always)]
pub(crate) fn answer<F: Family>(ctx: &XdpContext, lookup: &impl Lookup) -> u32 {
    action(try_answer::<F>(ctx, lookup, maps::note))
}

/// Compares the route that the lookup gives with what it may be.
#[inline(always)]
pub(crate) fn expect<F: Family>(ctx: &XdpContext, lookup: &impl Lookup) -> u32 {
    action(try_answer::<F>(ctx, lookup, maps::compare))
}

fn action(done: Option<()>) -> u32 {
    if done.is_some() { XDP_TX } else { XDP_PASS }
}

#[inline(always)]
fn try_forward<F: Family>(
    ctx: &XdpContext,
    lookup: &impl Lookup,
    word: &impl Fn(u32) -> Option<*mut RouteWord>,
) -> Option<()> {
    let (mut packet, _) = packet::<F>(ctx)?;
    let route = F::route(lookup, parse::<F>(&packet)?);
    let adjacency = maps::adjacency(route, word)?;
    // They lie behind each other, as in the frame.
    #[expect(clippy::cast_ptr_alignment, reason = "at the eighth byte of what is aligned to four")]
    let macs = (&raw const adjacency.destination_mac).cast::<Macs>();
    // SAFETY: twelve bytes of the adjacency, aligned as said.
    let macs = unsafe { macs.read() };
    rewrite::<F>(&mut packet, macs)
}

#[inline(always)]
fn try_forward_by_kernel<F: Family>(ctx: &XdpContext) -> Option<()> {
    let (mut packet, _) = packet::<F>(ctx)?;
    let macs = F::kernel(ctx, parse::<F>(&packet)?)?;
    rewrite::<F>(&mut packet, macs)
}

#[inline(always)]
fn try_answer<F: Family>(
    ctx: &XdpContext,
    lookup: &impl Lookup,
    done: impl Fn(u32, RouteId) -> Option<()>,
) -> Option<()> {
    let (packet, at) = packet::<F>(ctx)?;
    done(at, F::route(lookup, parse::<F>(&packet)?))
}

/// A packet with the next destination of the trace in it, and that one's index.
#[inline(always)]
fn packet<F: Family>(ctx: &XdpContext) -> Option<(Packet<'_>, u32)> {
    let (start, end) = (ctx.data() as *mut u8, ctx.data_end() as *mut u8);
    // SAFETY: the kernel lends `data..data_end` to this program alone until it returns.
    let mut packet = unsafe { Packet::from_range(start, end, 64) };
    let at = maps::next()?;
    packet.header_mut::<F>(NETWORK_AT)?.put(at)?;
    Some((packet, at))
}

#[inline(always)]
fn parse<F: Family>(packet: &Packet<'_>) -> Option<F::Address> {
    if packet.header::<Ethernet>(0)?.ether_type.get() != F::ETHER_TYPE {
        return None;
    }
    let network = packet.header::<F>(NETWORK_AT)?;
    (network.hop_limit() > 1).then(|| network.destination())
}

#[inline(always)]
fn rewrite<F: Family>(packet: &mut Packet<'_>, macs: Macs) -> Option<()> {
    packet.header_mut::<F>(NETWORK_AT)?.lower_hop_limit();
    store((&raw mut *packet.header_mut::<Ethernet>(0)?).cast(), macs);
    Some(())
}

/// By two bytes: the packet starts at an even address, and so do its addresses. Volatile, so that
/// the compiler does not know what it will read.
#[inline(always)]
fn store<const N: usize>(at: *mut u16, destination: [u16; N]) {
    for (i, half) in destination.into_iter().enumerate() {
        // SAFETY: the caller's field has so many bytes.
        unsafe { at.wrapping_add(i).write_volatile(half) };
    }
}

#[inline(always)]
fn macs(found: &bpf_fib_lookup) -> Macs {
    let half = |mac: &[u8; 6], i: usize| u16::from_ne_bytes([mac[2 * i], mac[2 * i + 1]]);
    let (to, from) = (&found.dmac, &found.smac);
    [half(to, 0), half(to, 1), half(to, 2), half(from, 0), half(from, 1), half(from, 2)]
}

#[inline(always)]
fn load<const N: usize>(at: *const u16) -> [u16; N] {
    // SAFETY: as in `store`.
    unsafe { at.cast::<[u16; N]>().read() }
}

impl Family for Ipv4 {
    const ETHER_TYPE: u16 = ETHER_TYPE_IPV4;
    type Address = [u8; 4];

    #[inline(always)]
    fn put(&mut self, at: u32) -> Option<()> {
        // SAFETY: a byte of ours.
        unsafe { (&raw mut self.ttl).write_volatile(TTL) };
        store((&raw mut self.destination).cast(), maps::destination4(at)?);
        Some(())
    }

    #[inline(always)]
    fn hop_limit(&self) -> u8 {
        self.ttl
    }

    #[inline(always)]
    fn destination(&self) -> Self::Address {
        let [a, b] = load((&raw const self.destination).cast()).map(u16::to_ne_bytes);
        [a[0], a[1], b[0], b[1]]
    }

    #[inline(always)]
    fn route(lookup: &impl Lookup, destination: Self::Address) -> RouteId {
        lookup.route4(destination)
    }

    #[inline(always)]
    fn kernel(ctx: &XdpContext, destination: Self::Address) -> Option<Macs> {
        let found = candidates::kernel4(ctx, destination)?;
        Some(macs(&found))
    }
}

impl Family for Ipv6 {
    const ETHER_TYPE: u16 = ETHER_TYPE_IPV6;
    type Address = [u8; 16];

    #[inline(always)]
    fn put(&mut self, at: u32) -> Option<()> {
        // SAFETY: a byte of ours.
        unsafe { (&raw mut self.hop_limit).write_volatile(TTL) };
        store((&raw mut self.destination).cast(), maps::destination6(at)?);
        Some(())
    }

    #[inline(always)]
    fn hop_limit(&self) -> u8 {
        self.hop_limit
    }

    #[inline(always)]
    fn destination(&self) -> Self::Address {
        let halves: [u16; 8] = load((&raw const self.destination).cast());
        let halves = halves.map(u16::to_ne_bytes);
        let at = |i: usize| halves[i / 2][i % 2];
        core::array::from_fn(at)
    }

    #[inline(always)]
    fn route(lookup: &impl Lookup, destination: Self::Address) -> RouteId {
        lookup.route6(destination)
    }

    #[inline(always)]
    fn kernel(ctx: &XdpContext, destination: Self::Address) -> Option<Macs> {
        let found = candidates::kernel6(ctx, destination)?;
        Some(macs(&found))
    }
}
