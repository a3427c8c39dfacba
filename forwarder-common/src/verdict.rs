//! Every way the walk can end. One [`Reason`] is one counter slot, one metric label, one sentence.

use crate::abi::RouteId;

/// What is to become of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was rewritten and leaves by the port with this interface index, along this route.
    Redirect { port: u32, route: RouteId },
    /// It goes, unchanged, to this CPU, which walks it again.
    Steer { cpu: u32 },
    /// It goes up to the kernel's stack, unchanged.
    Pass(Reason),
}

/// Counts every frame at the first instruction of a program.
pub const SLOT_RX: u32 = 0;
pub const SLOT_REDIRECTED: u32 = 1;
pub const SLOT_STEERED: u32 = 2;
/// The first slot of a [`Reason`].
pub const SLOT_REASONS: u32 = 3;
/// Slots of one interface: the three above, then one for each [`Reason`].
#[expect(clippy::cast_possible_truncation, reason = "a few dozen")]
pub const SLOTS: u32 = SLOT_REASONS + Reason::ALL.len() as u32;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $label:literal, $sentence:literal;)*) => {
        /// Why a frame was left to the kernel.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Reason {
            $($(#[$doc])* $name = $code,)*
        }

        impl Reason {
            pub const ALL: [Self; [$($code),*].len()] = [$(Self::$name),*];

            /// The value of the label `reason` in metrics, and the key in JSON.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// The reason with this code, as found in a map.
            #[inline(always)]
            pub const fn from_code(code: u32) -> Option<Self> {
                // No table: the verifier would not follow an index into it.
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// What it means, and what to do where something can be done.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }
        }
    };
}

// The codes lie in maps (`RouteWord`) and index counters: append, never renumber.
reasons! {
    UnknownInterface = 0, "unknown_interface",
        "came in by an interface that the daemon has not described yet";
    Truncated = 1, "truncated", "ends before its headers do, or before the length it claims";
    NotIp = 2, "not_ip", "neither IPv4 nor IPv6 (ARP, LLDP, …): Linux handles it";
    Vlan = 3, "vlan", "carries a VLAN tag, which is left to Linux";
    GroupMac = 4, "group_mac", "sent to a broadcast or multicast MAC address";
    ForeignMac = 5, "foreign_mac",
        "sent to a MAC address that is not the interface's own (flooding, or a stale neighbour entry at the sender)";
    BadHeader = 6, "bad_header", "wrong IP version, header length or total length";
    BadChecksum = 7, "bad_checksum", "wrong IPv4 header checksum";
    IpOptions = 8, "ip_options", "has IPv4 options, which Linux must look at";
    HopByHop = 9, "hop_by_hop", "has an IPv6 hop-by-hop header, which Linux must look at";
    TtlExpired = 10, "ttl_expired", "TTL or hop limit has run out: Linux answers (traceroute)";
    MartianSource = 11, "martian_source",
        "source address is unspecified, loopback, link-local, multicast or broadcast";
    OwnSource = 12, "own_source", "source address is one of this host's own";
    MartianDestination = 13, "martian_destination",
        "destination is unspecified, loopback, link-local or IPv4-mapped";
    Multicast = 14, "multicast", "destination is multicast or limited broadcast";
    Local = 15, "local", "destination is this host or a subnet's broadcast address";
    NoRoute = 16, "no_route", "no route here: add one with `forwarder route add`";
    Punt = 17, "punt", "its route cannot be expressed in XDP, so Linux forwards it";
    NeighbourPending = 18, "neighbour_pending",
        "its next hop's MAC address is not known yet: see `forwarder neigh show`";
    NeighbourFailed = 19, "neighbour_failed",
        "its next hop does not answer ARP or neighbour discovery";
    EgressDown = 20, "egress_down", "its egress interface is down or has no carrier";
    NoPort = 21, "no_port", "its egress interface is not one that the forwarder was given";
    SameInterface = 22, "same_interface",
        "would leave by the interface it came in by: Linux may send a redirect";
    TooBig = 23, "too_big",
        "longer than the MTU of its egress: Linux fragments it or answers with an ICMP error";
    Padded = 24, "padded", "padded beyond what its egress accepts";
    Frags = 25, "frags",
        "spans several buffers, which its egress cannot send: lower the ingress MTU";
    NoWorker = 26, "no_worker", "the CPU that steering chose has no queue";
    LeaseExpired = 27, "lease_expired",
        "the daemon has been gone for too long: nobody follows routes and neighbours any more";
    NoXmit = 28, "no_xmit",
        "its egress takes no redirected frames: a driver without XDP, or a veth whose peer does not poll (`ethtool -K PEER gro on`)";
    NoIpv6 = 29, "no_ipv6",
        "an interface on its way has an MTU below 1280, so Linux has no IPv6 there";
    Discard = 30, "discard",
        "its route is blackhole, unreachable, prohibit or throw: Linux drops it or answers";
    ForwardingOff = 31, "forwarding_off",
        "a sysctl keeps Linux from forwarding what comes in by this interface, or XDP from following it: see `forwarder status`";
    RpFilter = 32, "rp_filter",
        "its source is not reached by the interface it came in by (`sysctl net.ipv4.conf.IF.rp_filter`)";
    Filtered = 33, "filtered",
        "rules of Linux that XDP would bypass have come up: `forwarder status` names them";
    Enslaved = 34, "enslaved",
        "an interface on its way belongs to a bridge, bond, team or VRF now, which takes its frames";
}

impl Reason {
    /// Its index in an interface's counters.
    #[inline(always)]
    pub const fn slot(self) -> u32 {
        SLOT_REASONS + self as u32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_are_dense_and_labels_are_distinct() {
        for (code, reason) in (0u32..).zip(Reason::ALL) {
            assert_eq!(reason as u32, code);
            assert_eq!(Reason::from_code(code), Some(reason));
            assert_eq!(reason.slot(), SLOT_REASONS + code);
        }
        assert_eq!(Reason::from_code(SLOTS - SLOT_REASONS), None);
        let labels: HashSet<_> = Reason::ALL.iter().map(|reason| reason.label()).collect();
        assert_eq!(labels.len(), Reason::ALL.len());
    }
}
