//! What the walk asks of an IP header, the same for both families.

use crate::{
    abi::{
        INTERFACE_HASH_ADDRESSES4, INTERFACE_HASH_ADDRESSES6, INTERFACE_LOOSE, INTERFACE_STRICT,
        RouteId,
    },
    forward::Ingress,
    lookup::{Tables, resolve},
    packet::Header,
    steer::Ends,
    verdict::Reason,
    wire::{Ipv4, Ipv6, PROTOCOL_HOP_BY_HOP},
};

pub trait Network: Header {
    /// Checks everything that the header says of itself; `available` bytes follow from its start.
    ///
    /// Returns the packet's length in bytes, header included. More may follow: padding.
    fn check(&self, available: usize) -> Result<usize, Reason>;

    /// Refuses addresses that Linux does not forward from or to, or treats in a way of its own.
    fn check_addresses(&self) -> Result<(), Reason>;

    fn lookup(&self, tables: &impl Tables) -> RouteId;

    /// Whether the source is an address of this host, which Linux drops (IPv4 alone).
    fn has_own_source(&self, tables: &impl Tables) -> bool;

    /// Refuses sources that are not reached as the interface's `rp_filter` asks for (IPv4 alone).
    /// `hash` is the flow's.
    fn check_reverse_path(
        &self,
        tables: &impl Tables,
        ingress: &Ingress<'_>,
        hash: impl FnOnce() -> u32,
    ) -> Result<(), Reason>;

    /// The flag of an interface where groups are chosen from by addresses alone.
    const HASH_ADDRESSES: u16;

    /// What both directions of a flow have in common, but for the ports.
    fn ends(&self) -> Ends;

    /// The protocol of the payload where it is whole, and not one fragment of several.
    fn unfragmented_protocol(&self) -> Option<u8>;

    /// Must not be called with a hop limit of zero.
    fn lower_hop_limit(&mut self);
}

impl Network for Ipv4 {
    #[inline(always)]
    fn check(&self, available: usize) -> Result<usize, Reason> {
        let header_words = self.version_ihl & 0x0f;
        if self.version_ihl >> 4 != 4 || header_words < 5 {
            return Err(Reason::BadHeader);
        }
        if header_words > 5 {
            return Err(Reason::IpOptions);
        }
        let len = usize::from(self.total_len.get());
        if len < size_of::<Self>() {
            return Err(Reason::BadHeader);
        }
        if len > available {
            return Err(Reason::Truncated);
        }
        if !self.checksum_is_right() {
            return Err(Reason::BadChecksum);
        }
        if self.ttl <= 1 {
            return Err(Reason::TtlExpired);
        }
        Ok(len)
    }

    // ip_route_input_slow() in net/ipv4/route.c, and design.md for link-local.
    #[inline(always)]
    fn check_addresses(&self) -> Result<(), Reason> {
        if is_special4(self.source) || is_group4(self.source) {
            return Err(Reason::MartianSource);
        }
        if is_special4(self.destination) {
            return Err(Reason::MartianDestination);
        }
        if is_group4(self.destination) {
            return Err(Reason::Multicast);
        }
        Ok(())
    }

    #[inline(always)]
    fn lookup(&self, tables: &impl Tables) -> RouteId {
        tables.route4(self.destination)
    }

    #[inline(always)]
    fn has_own_source(&self, tables: &impl Tables) -> bool {
        tables.is_local4(self.source)
    }

    // __fib_validate_source() in net/ipv4/fib_frontend.c. Where several next hops lead back, Linux
    // asks whether one of them is the interface's; here it is the one of the flow.
    #[inline(always)]
    fn check_reverse_path(
        &self,
        tables: &impl Tables,
        ingress: &Ingress<'_>,
        hash: impl FnOnce() -> u32,
    ) -> Result<(), Reason> {
        let flags = ingress.interface.flags;
        if flags & (INTERFACE_STRICT | INTERFACE_LOOSE) == 0 {
            return Ok(());
        }
        let leads = resolve(tables, tables.route4(self.source), hash);
        let is_reached = match leads {
            Ok(adjacency) => flags & INTERFACE_STRICT == 0 || adjacency.port == ingress.ifindex,
            Err(reason) => flags & INTERFACE_STRICT == 0 && is_unusable_for_now(reason),
        };
        if is_reached { Ok(()) } else { Err(Reason::RpFilter) }
    }

    const HASH_ADDRESSES: u16 = INTERFACE_HASH_ADDRESSES4;

    #[inline(always)]
    fn ends(&self) -> Ends {
        Ends::of4(self.source, self.destination)
    }

    #[inline(always)]
    fn unfragmented_protocol(&self) -> Option<u8> {
        const MORE_OR_OFFSET: u16 = 0x3fff;
        (self.fragment.get() & MORE_OR_OFFSET == 0).then_some(self.protocol)
    }

    #[inline(always)]
    fn lower_hop_limit(&mut self) {
        self.ttl -= 1;
        self.checksum = checksum_after_ttl_decrement(self.checksum.get()).into();
    }
}

/// Whether there is a route to a host, though nothing can be sent by it now.
#[inline(always)]
const fn is_unusable_for_now(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NeighbourPending
            | Reason::NeighbourFailed
            | Reason::EgressDown
            | Reason::NoPort
            | Reason::NoXmit
            | Reason::NoIpv6
    )
}

impl Ipv4 {
    /// RFC 1071, over the twenty bytes without options.
    #[inline(always)]
    fn checksum_is_right(&self) -> bool {
        let [s0, s1, s2, s3] = self.source;
        let [d0, d1, d2, d3] = self.destination;
        let sum = word(self.version_ihl, self.tos)
            + u32::from(self.total_len.get())
            + u32::from(self.id.get())
            + u32::from(self.fragment.get())
            + word(self.ttl, self.protocol)
            + u32::from(self.checksum.get())
            + word(s0, s1)
            + word(s2, s3)
            + word(d0, d1)
            + word(d2, d3);
        // Ten words sum to less than 2^20: two folds leave no carry.
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        sum == 0xffff
    }
}

#[inline(always)]
const fn word(high: u8, low: u8) -> u32 {
    ((high as u32) << 8) | low as u32
}

/// What Linux makes of the checksum when the TTL goes down by one (`ip_decrease_ttl()` in
/// include/net/ip.h): RFC 1624, with zero in preference to 0xffff.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the carry was added")]
const fn checksum_after_ttl_decrement(checksum: u16) -> u16 {
    let sum = checksum as u32 + 0x0100;
    (sum + (sum >= 0xffff) as u32) as u16
}

/// "This network", loopback, link-local.
#[inline(always)]
const fn is_special4(address: [u8; 4]) -> bool {
    matches!(address, [0 | 127, ..] | [169, 254, ..])
}

/// Multicast and limited broadcast. The rest of class E is forwarded, as Linux does.
#[inline(always)]
const fn is_group4(address: [u8; 4]) -> bool {
    matches!(address, [224..=239, ..] | [255, 255, 255, 255])
}

impl Network for Ipv6 {
    #[inline(always)]
    fn check(&self, available: usize) -> Result<usize, Reason> {
        if self.version_class_label[0] >> 4 != 6 {
            return Err(Reason::BadHeader);
        }
        let len = size_of::<Self>() + usize::from(self.payload_len.get());
        if len > available {
            return Err(Reason::Truncated);
        }
        if self.next_header == PROTOCOL_HOP_BY_HOP {
            return Err(Reason::HopByHop);
        }
        if self.hop_limit <= 1 {
            return Err(Reason::TtlExpired);
        }
        Ok(len)
    }

    // ip6_rcv_core() in net/ipv6/ip6_input.c and ip6_forward() in net/ipv6/ip6_output.c.
    #[inline(always)]
    fn check_addresses(&self) -> Result<(), Reason> {
        if is_special6(self.source) || is_multicast6(self.source) {
            return Err(Reason::MartianSource);
        }
        if is_special6(self.destination) {
            return Err(Reason::MartianDestination);
        }
        if is_multicast6(self.destination) {
            return Err(Reason::Multicast);
        }
        Ok(())
    }

    #[inline(always)]
    fn lookup(&self, tables: &impl Tables) -> RouteId {
        tables.route6(self.destination)
    }

    #[inline(always)]
    fn has_own_source(&self, _: &impl Tables) -> bool {
        false
    }

    #[inline(always)]
    fn check_reverse_path(
        &self,
        _: &impl Tables,
        _: &Ingress<'_>,
        _: impl FnOnce() -> u32,
    ) -> Result<(), Reason> {
        Ok(())
    }

    const HASH_ADDRESSES: u16 = INTERFACE_HASH_ADDRESSES6;

    #[inline(always)]
    fn ends(&self) -> Ends {
        Ends::of6(self.source, self.destination)
    }

    /// Extension headers are not walked: a packet with one is hashed by its addresses.
    #[inline(always)]
    fn unfragmented_protocol(&self) -> Option<u8> {
        Some(self.next_header)
    }

    #[inline(always)]
    fn lower_hop_limit(&mut self) {
        self.hop_limit -= 1;
    }
}

/// Unspecified, loopback, IPv4-mapped (RFC 4291, 2.5), link-local.
#[inline(always)]
const fn is_special6(address: [u8; 16]) -> bool {
    matches!(
        address,
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 | 1]
            | [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..]
            | [0xfe, 0x80..=0xbf, ..]
    )
}

#[inline(always)]
const fn is_multicast6(address: [u8; 16]) -> bool {
    address[0] == 0xff
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    /// From scratch: the header's words but the checksum, which is given.
    fn sum_is_right(ttl: u8, rest: u32, checksum: u16) -> bool {
        let mut sum = (u32::from(ttl) << 8) + rest + u32::from(checksum);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum == 0xffff
    }

    #[test]
    fn every_checksum_stays_right_when_the_ttl_goes_down() {
        for ttl in [2, 3, 64, 127, 128, 254, 255] {
            for checksum in 0..=u16::MAX {
                // The other words are what makes this checksum right.
                let rest = u32::from(!checksum) + 0xffff - (u32::from(ttl) << 8);
                assert!(sum_is_right(ttl, rest, checksum));
                let lowered = checksum_after_ttl_decrement(checksum);
                assert!(sum_is_right(ttl - 1, rest, lowered), "{checksum:#06x} -> {lowered:#06x}");
                // Linux never leaves the other zero behind: the bytes must be the same.
                assert_ne!(lowered, 0xffff);
            }
        }
    }

    #[test]
    fn special_addresses_are_those_of_the_standard_library() {
        for first in 0..=u8::MAX {
            for second in [0, 1, 18, 127, 168, 253, 254, 255] {
                let octets = [first, second, 0, 1];
                let address = Ipv4Addr::from(octets);
                assert_eq!(
                    is_special4(octets),
                    address.is_loopback() || address.is_link_local() || first == 0,
                    "{address}"
                );
                assert_eq!(is_group4(octets), address.is_multicast(), "{address}");
            }
        }
        assert!(is_group4([255; 4]));
        assert!(!is_group4([255, 255, 255, 254]));

        for text in ["::", "::1", "::ffff:198.18.0.1", "fe80::1", "febf:ffff::1"] {
            assert!(is_special6(text.parse::<Ipv6Addr>().unwrap().octets()), "{text}");
        }
        for text in ["::2", "::fffe:0:1", "1::", "fec0::1", "fe7f::1", "fd00::1", "2001:db8::1"] {
            assert!(!is_special6(text.parse::<Ipv6Addr>().unwrap().octets()), "{text}");
        }
        assert!(is_multicast6(Ipv6Addr::from((0xff02 << 112) | 1).octets()));
    }
}
