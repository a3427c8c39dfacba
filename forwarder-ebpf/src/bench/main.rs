//! Programs for `cargo xtask bench fib`, and for the tests that ask the FIB in the kernel. They are
//! no part of what is released, but the memory of the FIB they read with the same code.
//!
//! Every program but `empty` does the same to a packet: it takes the next destination of a trace,
//! puts it in, and from there on forwards as if the frame had just come. They differ in the lookup.

#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![cfg_attr(not(target_arch = "bpf"), allow(dead_code, reason = "nobody calls programs here"))]

mod candidates;
#[path = "../fib_memory.rs"]
mod fib_memory;
mod maps;
mod walk;

use aya_ebpf::{bindings::xdp_action::XDP_TX, macros::xdp, programs::XdpContext};
use forwarder_common::wire::{Ipv4, Ipv6};

use crate::{
    candidates::{Compact, Fixed, Kernel, Lpm},
    walk::{answer, expect, forward, forward_by_kernel, forward_by_shared},
};

/// What a run costs by itself.
#[xdp]
fn empty(_: XdpContext) -> u32 {
    XDP_TX
}

/// A program that forwards, one that notes the answers, and one that compares them.
macro_rules! programs {
    ($($network:ty, $lookup:expr, $run:ident, $answer:ident, $expect:ident;)*) => {$(
        #[xdp]
        fn $run(ctx: XdpContext) -> u32 {
            forward::<$network>(&ctx, &$lookup)
        }

        #[xdp]
        fn $answer(ctx: XdpContext) -> u32 {
            answer::<$network>(&ctx, &$lookup)
        }

        #[xdp]
        fn $expect(ctx: XdpContext) -> u32 {
            expect::<$network>(&ctx, &$lookup)
        }
    )*};
}

programs! {
    Ipv4, Fixed, walk4, walk4_answer, walk4_expect;
    Ipv6, Fixed, walk6, walk6_answer, walk6_expect;
    Ipv4, Compact, fib4, fib4_answer, fib4_expect;
    Ipv6, Compact, fib6, fib6_answer, fib6_expect;
    Ipv4, Lpm, lpm4, lpm4_answer, lpm4_expect;
    Ipv6, Lpm, lpm6, lpm6_answer, lpm6_expect;
}

/// The kernel's helper gives MAC addresses, so that no levels follow.
#[xdp]
fn kernel4(ctx: XdpContext) -> u32 {
    forward_by_kernel::<Ipv4>(&ctx)
}

#[xdp]
fn kernel6(ctx: XdpContext) -> u32 {
    forward_by_kernel::<Ipv6>(&ctx)
}

#[xdp]
fn kernel4_answer(ctx: XdpContext) -> u32 {
    answer::<Ipv4>(&ctx, &Kernel(&ctx))
}

#[xdp]
fn kernel6_answer(ctx: XdpContext) -> u32 {
    answer::<Ipv6>(&ctx, &Kernel(&ctx))
}

/// The compact FIB with route words that all CPUs share.
#[xdp]
fn shared4(ctx: XdpContext) -> u32 {
    forward_by_shared::<Ipv4>(&ctx, &Compact)
}

/// Rewrites this CPU's copies of route words.
#[xdp]
fn write_own(_: XdpContext) -> u32 {
    maps::rewrite(&maps::own_word);
    XDP_TX
}

/// Rewrites route words that all CPUs share.
#[xdp]
fn write_shared(_: XdpContext) -> u32 {
    maps::rewrite(&maps::shared_word);
    XDP_TX
}

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(target_arch = "bpf"))]
fn main() {}
