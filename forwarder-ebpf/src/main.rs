//! The XDP programs: thin shells around `forwarder_common`, which does the thinking.

#![cfg_attr(target_arch = "bpf", no_std, no_main)]

mod account;
mod after;
mod fib_memory;
mod kernel;
mod maps;
mod trace;

use aya_ebpf::{
    bindings::xdp_action::{XDP_PASS, XDP_REDIRECT},
    helpers::generated::bpf_xdp_get_buff_len,
    macros::xdp,
    programs::XdpContext,
};
use forwarder_common::{
    abi::Interface,
    forward::{Ingress, forward},
    lookup::{Steering, Unsteered},
    packet::Packet,
    verdict::Verdict,
};

use crate::{
    account::Account,
    maps::{COUNTERS, Maps, WORKER_COUNTERS, Workers},
};

/// Runs where a frame comes in: forwards it, or hands it to the CPU that its flow belongs to.
#[xdp(frags)]
fn ingress(ctx: XdpContext) -> u32 {
    let (interface, packet) = (interface(&ctx), packet(&ctx));
    let account = Account::open(&COUNTERS, interface, packet.len());
    if maps::steers() {
        decide(&ctx, interface, packet, account, &Workers)
    } else {
        decide(&ctx, interface, packet, account, &Unsteered)
    }
}

/// Runs on the CPU that a frame was steered to. It must not reach `CPUS`: the map holds the
/// program, and a cycle of the two is never freed.
#[xdp(frags, map = "cpumap")]
fn worker(ctx: XdpContext) -> u32 {
    let (interface, packet) = (interface(&ctx), packet(&ctx));
    let account = Account::open(&WORKER_COUNTERS, interface, packet.len());
    decide(&ctx, interface, packet, account, &Unsteered)
}

/// From verdict to action: the whole policy.
#[inline(always)]
fn decide(
    ctx: &XdpContext,
    interface: Option<&Interface>,
    mut packet: Packet<'_>,
    account: Account,
    steering: &impl Steering,
) -> u32 {
    let Some(interface) = interface else {
        account.passed(forwarder_common::verdict::Reason::UnknownInterface);
        return XDP_PASS;
    };
    let ingress = Ingress { ifindex: ingress_ifindex(ctx), interface };
    let verdict = forward(&mut packet, &ingress, &Maps, steering);
    trace::verdict(ctx, &verdict);
    match verdict {
        Verdict::Redirect { route, .. } => {
            account.redirected(route);
            XDP_REDIRECT
        }
        Verdict::Steer { .. } => {
            account.steered();
            XDP_REDIRECT
        }
        Verdict::Pass(reason) => {
            account.passed(reason);
            XDP_PASS
        }
    }
}

#[inline(always)]
fn interface<'a>(ctx: &XdpContext) -> Option<&'a Interface> {
    maps::interface(ingress_ifindex(ctx))
}

#[inline(always)]
fn ingress_ifindex(ctx: &XdpContext) -> u32 {
    // SAFETY: the context is the kernel's, valid until the program returns.
    unsafe { (*ctx.ctx).ingress_ifindex }
}

#[inline(always)]
fn packet(ctx: &XdpContext) -> Packet<'_> {
    // SAFETY: the helper takes this program's own context.
    let len = usize::try_from(unsafe { bpf_xdp_get_buff_len(ctx.ctx) }).unwrap_or(usize::MAX);
    // SAFETY: the kernel lends `data..data_end` to this program alone until it returns.
    unsafe { Packet::from_range(ctx.data() as *mut u8, ctx.data_end() as *mut u8, len) }
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
