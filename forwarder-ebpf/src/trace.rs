//! A sampled line a verdict, under feature `trace` alone: the release object logs nothing.

#[cfg(not(feature = "trace"))]
#[inline(always)]
pub(crate) fn verdict(_: &aya_ebpf::programs::XdpContext, _: &forwarder_common::verdict::Verdict) {}

#[cfg(feature = "trace")]
pub(crate) use on::verdict;

#[cfg(feature = "trace")]
mod on {
    use aya_ebpf::{helpers::generated::bpf_get_prandom_u32, programs::XdpContext};
    use aya_log_ebpf::info;
    use forwarder_common::verdict::Verdict;

    /// One frame in so many is logged; a power of two.
    const SAMPLE: u32 = 16;

    #[inline(always)]
    pub(crate) fn verdict(ctx: &XdpContext, verdict: &Verdict) {
        // SAFETY: the helper takes nothing.
        if unsafe { bpf_get_prandom_u32() } % SAMPLE != 0 {
            return;
        }
        // SAFETY: the context is the kernel's, valid until the program returns.
        let ifindex = unsafe { (*ctx.ctx).ingress_ifindex };
        match *verdict {
            Verdict::Redirect { port, route } => {
                info!(ctx, "interface {}: redirect to {} along route {}", ifindex, port, route);
            }
            Verdict::Steer { cpu } => info!(ctx, "interface {}: steer to CPU {}", ifindex, cpu),
            Verdict::Pass(reason) => {
                info!(ctx, "interface {}: pass, reason {}", ifindex, reason as u32);
            }
        }
    }
}
