//! What becomes of frames after the XDP programs have returned: programs at the kernel's
//! tracepoints, and counters of their own. Others on the machine use XDP too, so each looks
//! whether it is about ours first.
//!
//! The signatures are those of `include/trace/events/xdp.h`; the daemon attaches a program only
//! where the kernel's own description (BTF) has the same.

use aya_ebpf::{
    macros::{btf_tracepoint, map},
    maps::{Array, HashMap, PerCpuArray},
    programs::BtfTracePointContext,
};
use forwarder_common::{
    abi::{
        COUNTER_SLOTS_MAX, CPUS_MAX, Dequeued, Enqueued, INTERFACES_MAX, Losses, OUR_CPUS,
        OUR_INGRESS, OUR_WORKER, OURS as OURS_MAX, RedirectLosses, Transmits,
    },
    loss::{self, Loss, Target},
};

use crate::kernel::{self, NetDevice, Program};

/// Interface index to the slot of its counters. What is in it once stays: an interface that is
/// gone may still have frames on their way.
#[map]
static COUNTED: HashMap<u32, u32> = HashMap::with_max_entries(INTERFACES_MAX, 0);
/// Ids of our programs and of the CPU map.
#[map]
static OURS: Array<u32> = Array::with_max_entries(OURS_MAX, 0);
#[map]
static REDIRECT_LOSSES: PerCpuArray<RedirectLosses> =
    PerCpuArray::with_max_entries(COUNTER_SLOTS_MAX, 0);
#[map]
static TRANSMITS: PerCpuArray<Transmits> = PerCpuArray::with_max_entries(COUNTER_SLOTS_MAX, 0);
#[map]
static ENQUEUED: PerCpuArray<Enqueued> = PerCpuArray::with_max_entries(CPUS_MAX, 0);
#[map]
static DEQUEUED: PerCpuArray<Dequeued> = PerCpuArray::with_max_entries(1, 0);

/// A redirect failed: `xdp_do_redirect()`, `xdp_do_generic_redirect()`.
#[btf_tracepoint(function = "xdp_redirect_err")]
fn xdp_redirect_err(ctx: BtfTracePointContext) -> Option<()> {
    let ingress = slot(ctx.arg(0))?;
    let target = Target::of_map_type(ctx.arg(4))?;
    let losses = REDIRECT_LOSSES.get_ptr_mut(ingress)?;
    // SAFETY: the element is this CPU's own, and the event comes from where XDP runs: softirqs off
    // or on, one at a time.
    let RedirectLosses(losses) = unsafe { &mut *losses };
    add_loss(losses.get_mut(target as usize)?, Loss::of_errno(ctx.arg(3)), 1)
}

/// A driver raises it for actions that it could not do; generic mode where the egress took no
/// frame (`generic_xdp_tx()`), and then the interface is the egress.
#[btf_tracepoint(function = "xdp_exception")]
fn xdp_exception(ctx: BtfTracePointContext) -> Option<()> {
    let id = Program::new(ctx.arg(1)).id();
    if !is_ours(OUR_INGRESS, id) && !is_ours(OUR_WORKER, id) {
        return None;
    }
    let loss = loss::exception(ctx.arg(2))?;
    transmitted(slot(ctx.arg(0))?, 0, loss, 1)
}

/// A device's driver was given a bulk of frames: `bq_xmit_all()`. The first argument is where the
/// first frame of the bulk came in, and all of a bulk come from one poll.
#[btf_tracepoint(function = "xdp_devmap_xmit")]
fn xdp_devmap_xmit(ctx: BtfTracePointContext) -> Option<()> {
    slot(ctx.arg(0))?;
    // What cannot be charged to a port any more still left.
    let egress = slot(ctx.arg(1)).unwrap_or(0);
    transmitted(egress, count(ctx.arg(2)), Loss::of_errno(ctx.arg(4)), count(ctx.arg(3)))
}

/// A bulk of frames was given to the queue of a CPU: `bq_flush_to_queue()`,
/// `cpu_map_generic_redirect()`.
#[btf_tracepoint(function = "xdp_cpumap_enqueue")]
fn xdp_cpumap_enqueue(ctx: BtfTracePointContext) -> Option<()> {
    if !is_ours(OUR_CPUS, ctx.arg(0)) {
        return None;
    }
    let (frames, dropped) = loss::enqueued(ctx.arg(1), ctx.arg(2));
    let queue = ENQUEUED.get_ptr_mut(ctx.arg(3))?;
    // SAFETY: as in `xdp_redirect_err`.
    let queue = unsafe { &mut *queue };
    queue.frames = queue.frames.wrapping_add(frames);
    queue.dropped = queue.dropped.wrapping_add(dropped);
    Some(())
}

/// A worker took a batch out of its queue, and ran its program: `cpu_map_kthread_run()`.
#[btf_tracepoint(function = "xdp_cpumap_kthread")]
fn xdp_cpumap_kthread(ctx: BtfTracePointContext) -> Option<()> {
    if !is_ours(OUR_CPUS, ctx.arg(0)) {
        return None;
    }
    let queue = DEQUEUED.get_ptr_mut(0)?;
    // SAFETY: as in `xdp_redirect_err`.
    let queue = unsafe { &mut *queue };
    queue.frames = queue.frames.wrapping_add(ctx.arg::<u32>(1).into());
    queue.lost = queue.lost.wrapping_add(ctx.arg::<u32>(2).into());
    Some(())
}

/// The counters of an interface that is ours.
#[inline(always)]
fn slot(device: *const NetDevice) -> Option<u32> {
    let device = kernel::Device::new(device);
    if !device.is_in_our_namespace() {
        return None;
    }
    let slot = COUNTED.get_ptr(device.ifindex())?;
    // SAFETY: an element lives until the program returns (RCU), and is never changed.
    Some(unsafe { *slot })
}

#[inline(always)]
fn is_ours(index: u32, id: u32) -> bool {
    OURS.get(index).is_some_and(|ours| *ours == id)
}

#[inline(always)]
fn transmitted(egress: u32, sent: u64, loss: Loss, unsent: u64) -> Option<()> {
    let transmits = TRANSMITS.get_ptr_mut(egress)?;
    // SAFETY: as in `xdp_redirect_err`.
    let transmits = unsafe { &mut *transmits };
    transmits.sent = transmits.sent.wrapping_add(sent);
    add_loss(&mut transmits.lost, loss, unsent)
}

#[inline(always)]
fn add_loss(losses: &mut Losses, loss: Loss, frames: u64) -> Option<()> {
    let slot = losses.get_mut(loss.slot())?;
    *slot = slot.wrapping_add(frames);
    Some(())
}

/// A driver that claims to have sent more than it got would make one of them negative.
#[inline(always)]
fn count(frames: i32) -> u64 {
    u64::try_from(frames).unwrap_or(0)
}
