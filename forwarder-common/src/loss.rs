//! What the kernel does with a frame after a program has returned, as its tracepoints tell. One
//! [`Loss`] is one counter slot, one metric label, one sentence.

/// `enum xdp_action`
const XDP_TX: u32 = 3;

/// `enum bpf_map_type`
const DEVMAP: u32 = 14;
const CPUMAP: u32 = 16;
const DEVMAP_HASH: u32 = 25;

/// Slots of one place: one for each [`Loss`].
#[expect(clippy::cast_possible_truncation, reason = "a dozen")]
pub const LOSSES: u32 = Loss::ALL.len() as u32;

macro_rules! losses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $errno:pat, $label:literal, $sentence:literal;)*) => {
        /// Why a frame that was redirected or steered did not get there.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Loss {
            $($(#[$doc])* $name = $code,)*
        }

        impl Loss {
            pub const ALL: [Self; [$($code),*].len()] = [$(Self::$name),*];

            /// What an error of the kernel means: its number, below zero; zero where a driver has
            /// taken some frames and not others.
            #[inline(always)]
            pub const fn of_errno(error: i32) -> Self {
                #[allow(unreachable_patterns, reason = "the last takes what is left")]
                match error { $($errno => Self::$name,)* _ => Self::Other }
            }

            /// The value of the label `reason` in metrics, and the key in JSON.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// What it means, and what to do where something can be done.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }
        }
    };
}

// The codes index counters: append, never renumber. Errors by their numbers; where an architecture
// has others (MIPS, SPARC), those are `Other`.
losses! {
    RingFull = 0, 0, "ring_full",
        "the egress's transmit ring was full: more comes than the link takes; make the ring longer (`ethtool -G`), or let more CPUs and their queues share the work";
    NoXmit = 1, -95, "no_xmit",
        "the egress takes no such frames (EOPNOTSUPP): a driver without XDP transmit or, of several buffers, without NDO_XMIT_SG; a veth whose peer does not poll (`ethtool -K PEER gro on`)";
    EgressDown = 2, -100, "egress_down",
        "the egress was set down, or its driver was restarting (ENETDOWN), before its routes followed";
    TooBig = 3, -90, "too_big",
        "longer than the egress takes (EMSGSIZE): its MTU was lowered a moment before";
    NoHeadroom = 4, -75, "no_headroom",
        "no room before the frame for what the kernel keeps with it (EOVERFLOW): a driver that gives XDP too little; use --mode generic";
    QueueFull = 5, -28, "queue_full",
        "the queue of its CPU was full (ENOSPC): that CPU cannot keep up; spread over more CPUs (--steer), or wait for bursts with a larger --queue-size";
    NoQueue = 6, -6, "no_queue",
        "the egress's driver has no queue to send by (ENXIO): none for this CPU (`ethtool -L`), no XDP program on it where the driver wants one, or a veth whose peer is down or does not poll";
    Invalid = 7, -22, "invalid", "the kernel refused the frame or its target (EINVAL)";
    /// Generic mode alone; the kernel gives no error.
    Stopped = 8, 1, "stopped",
        "generic mode: the egress's transmit queue was full or stopped";
    /// Behind a worker that passed it; the kernel gives no error.
    NoMemory = 9, -12, "no_memory", "no memory to hand the frame to Linux (ENOMEM)";
    Other = 10, i32::MIN, "other", "another error of the kernel";
}

impl Loss {
    /// Its index in counters.
    #[inline(always)]
    pub const fn slot(self) -> usize {
        self as usize
    }
}

/// Where a frame was sent by XDP_REDIRECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// The device map: another interface.
    Port,
    /// The CPU map: another CPU.
    Cpu,
}

impl Target {
    pub const ALL: [Self; 2] = [Self::Port, Self::Cpu];

    /// By the type of the map that a program redirected by (`enum bpf_map_type`).
    #[inline(always)]
    pub const fn of_map_type(map_type: u32) -> Option<Self> {
        match map_type {
            DEVMAP | DEVMAP_HASH => Some(Self::Port),
            CPUMAP => Some(Self::Cpu),
            _ => None,
        }
    }

    /// The value of the label `target` in metrics, and the key in JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Port => "port",
            Self::Cpu => "cpu",
        }
    }
}

/// What `xdp_exception` tells of a frame; `None` where nothing is to be counted.
///
/// Our programs return PASS and REDIRECT alone. Some drivers tell of a redirect that failed here
/// too, which `xdp_redirect_err` has told already; what is left is `generic_xdp_tx()`, behind a
/// redirect in generic mode, where the egress took no frame.
#[inline(always)]
pub const fn exception(action: u32) -> Option<Loss> {
    if action == XDP_TX { Some(Loss::Stopped) } else { None }
}

/// What `xdp_cpumap_enqueue` says, as frames that were given to the queue, and those of them that
/// it had no room for.
///
/// Natively `processed` counts both; in generic mode a frame without room is not `processed`, and
/// `xdp_redirect_err` tells of it (`cpu_map_generic_redirect()`).
#[inline(always)]
pub const fn enqueued(processed: u32, drops: u32) -> (u64, u64) {
    let drops = if drops < processed { drops } else { processed };
    (processed as u64, drops as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_are_dense_and_labels_are_distinct() {
        for (code, loss) in Loss::ALL.into_iter().enumerate() {
            assert_eq!(loss.slot(), code);
            assert!(loss.sentence().len() > 20, "{loss:?}");
        }
        let labels: HashSet<_> = Loss::ALL.iter().map(|loss| loss.label()).collect();
        assert_eq!(labels.len(), Loss::ALL.len());
    }

    #[test]
    fn errors_are_told_by_their_numbers() {
        for (error, loss) in [
            (0, Loss::RingFull),
            (-95, Loss::NoXmit),
            (-100, Loss::EgressDown),
            (-90, Loss::TooBig),
            (-75, Loss::NoHeadroom),
            (-28, Loss::QueueFull),
            (-6, Loss::NoQueue),
            (-22, Loss::Invalid),
            (-12, Loss::NoMemory),
            (-16, Loss::Other),
            (95, Loss::Other),
            (i32::MIN, Loss::Other),
            (i32::MAX, Loss::Other),
        ] {
            assert_eq!(Loss::of_errno(error), loss, "{error}");
        }
    }

    #[test]
    fn a_redirect_that_failed_is_not_counted_twice() {
        assert_eq!(exception(4), None);
        assert_eq!(exception(3), Some(Loss::Stopped));
        for action in [0, 1, 2, 5, u32::MAX] {
            assert_eq!(exception(action), None, "{action}: no program of ours returns it");
        }
    }

    #[test]
    fn a_queue_takes_what_it_was_given_less_its_drops() {
        for (told, counted) in [
            ((8, 0), (8, 0)),
            ((8, 3), (8, 3)),
            ((8, 8), (8, 8)),
            // Generic mode, a frame at a time.
            ((1, 0), (1, 0)),
            ((0, 1), (0, 0)),
        ] {
            assert_eq!(enqueued(told.0, told.1), counted);
        }
    }

    #[test]
    fn targets_are_told_by_the_type_of_the_map() {
        let targets: [_; 40] =
            core::array::from_fn(|kind| Target::of_map_type(u32::try_from(kind).unwrap()));
        for (kind, target) in targets.into_iter().enumerate() {
            let expected = match kind {
                14 | 25 => Some(Target::Port),
                16 => Some(Target::Cpu),
                _ => None,
            };
            assert_eq!(target, expected, "{kind}");
        }
    }
}
