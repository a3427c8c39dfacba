//! What can be asked for the route of a destination.

use aya_ebpf::{
    bindings::{BPF_FIB_LKUP_RET_SUCCESS, BPF_FIB_LOOKUP_DIRECT, bpf_fib_lookup as Params},
    helpers::generated::bpf_fib_lookup,
    maps::lpm_trie::Key,
    programs::XdpContext,
};
use forwarder_common::{
    abi::{ROUTE_IDS_FIRST, ROUTE_NONE, ROUTE_PUNT, RouteId},
    fib,
};

use crate::maps;

pub(crate) trait Lookup {
    fn route4(&self, destination: [u8; 4]) -> RouteId;
    fn route6(&self, destination: [u8; 16]) -> RouteId;
}

/// Finds nothing: what is left is all but the lookup.
pub(crate) struct Fixed;

impl Lookup for Fixed {
    #[inline(always)]
    fn route4(&self, destination: [u8; 4]) -> RouteId {
        ROUTE_IDS_FIRST + (u32::from_be_bytes(destination) & 127)
    }

    #[inline(always)]
    fn route6(&self, destination: [u8; 16]) -> RouteId {
        #[expect(clippy::cast_possible_truncation, reason = "seven bits of it")]
        let low = (u128::from_be_bytes(destination) >> 64) as u32;
        ROUTE_IDS_FIRST + (low & 127)
    }
}

/// The compact FIB, as the forwarder asks it.
pub(crate) struct Compact;

impl Lookup for Compact {
    #[inline(always)]
    fn route4(&self, destination: [u8; 4]) -> RouteId {
        maps::fib_memory().map_or(ROUTE_PUNT, |memory| fib::lookup4(&memory, destination))
    }

    #[inline(always)]
    fn route6(&self, destination: [u8; 16]) -> RouteId {
        maps::fib_memory().map_or(ROUTE_PUNT, |memory| fib::lookup6(&memory, destination))
    }
}

pub(crate) struct Lpm;

impl Lookup for Lpm {
    #[inline(always)]
    fn route4(&self, destination: [u8; 4]) -> RouteId {
        maps::LPM4.get(Key::new(32, destination)).copied().unwrap_or(ROUTE_NONE)
    }

    #[inline(always)]
    fn route6(&self, destination: [u8; 16]) -> RouteId {
        maps::LPM6.get(Key::new(128, destination)).copied().unwrap_or(ROUTE_NONE)
    }
}

/// The kernel's own table. A next hop's MAC address ends with its route.
pub(crate) struct Kernel<'a>(pub(crate) &'a XdpContext);

impl Lookup for Kernel<'_> {
    #[inline(always)]
    fn route4(&self, destination: [u8; 4]) -> RouteId {
        route_of(kernel4(self.0, destination))
    }

    #[inline(always)]
    fn route6(&self, destination: [u8; 16]) -> RouteId {
        route_of(kernel6(self.0, destination))
    }
}

fn route_of(found: Option<Params>) -> RouteId {
    found.map_or(ROUTE_NONE, |found| u32::from(found.dmac[4]) << 8 | u32::from(found.dmac[5]))
}

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// MAC addresses for a destination. The MTU is not asked for, which is in the kernel's favour.
#[inline(always)]
pub(crate) fn kernel4(ctx: &XdpContext, destination: [u8; 4]) -> Option<Params> {
    let mut params = params(AF_INET);
    params.__bindgen_anon_4.ipv4_dst = u32::from_ne_bytes(destination);
    ask(ctx, params)
}

#[inline(always)]
pub(crate) fn kernel6(ctx: &XdpContext, destination: [u8; 16]) -> Option<Params> {
    let mut params = params(AF_INET6);
    let mut words = [0; 4];
    for (word, octets) in words.iter_mut().zip(destination.as_chunks().0) {
        *word = u32::from_ne_bytes(*octets);
    }
    params.__bindgen_anon_4.ipv6_dst = words;
    ask(ctx, params)
}

#[inline(always)]
fn params(family: u8) -> Params {
    // SAFETY: numbers and unions of numbers.
    let mut params: Params = unsafe { core::mem::zeroed() };
    params.family = family;
    params.ifindex = maps::ingress_ifindex();
    params
}

#[inline(always)]
fn ask(ctx: &XdpContext, mut params: Params) -> Option<Params> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "64 bytes")]
    let len = size_of::<Params>() as i32;
    // SAFETY: the context is the kernel's, and the parameters are as long as said.
    let result =
        unsafe { bpf_fib_lookup(ctx.ctx.cast(), &raw mut params, len, BPF_FIB_LOOKUP_DIRECT) };
    (result == i64::from(BPF_FIB_LKUP_RET_SUCCESS)).then_some(params)
}
