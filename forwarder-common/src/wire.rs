//! Headers as they lie on the wire, and the numbers in them.
//!
//! Layouts are our own, of alignment 1 (a frame may start anywhere); `network-types` gives the
//! numbers, and its sizes and offsets are asserted against ours.

use core::mem::offset_of;

use network_types::{
    eth::{EthHdr, EtherType},
    ip::{IpProto, Ipv4Hdr, Ipv6Hdr},
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, network_endian::U16};

pub const ETHER_TYPE_IPV4: u16 = u16::from_be(EtherType::Ipv4 as u16);
pub const ETHER_TYPE_IPV6: u16 = u16::from_be(EtherType::Ipv6 as u16);
pub const ETHER_TYPE_VLAN: u16 = u16::from_be(EtherType::Ieee8021q as u16);
pub const ETHER_TYPE_SERVICE_VLAN: u16 = u16::from_be(EtherType::Ieee8021ad as u16);

pub const PROTOCOL_HOP_BY_HOP: u8 = IpProto::HopOpt as u8;
pub const PROTOCOL_TCP: u8 = IpProto::Tcp as u8;
pub const PROTOCOL_UDP: u8 = IpProto::Udp as u8;
pub const PROTOCOL_DCCP: u8 = IpProto::Dccp as u8;
pub const PROTOCOL_SCTP: u8 = IpProto::Sctp as u8;
pub const PROTOCOL_UDP_LITE: u8 = IpProto::UdpLite as u8;

/// Where the IP header of an untagged frame starts.
pub const NETWORK_AT: usize = size_of::<Ethernet>();

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ethernet {
    pub destination: [u8; 6],
    pub source: [u8; 6],
    pub ether_type: U16,
}

/// RFC 791, without options.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ipv4 {
    /// Version, and the header's length in 4-byte words.
    pub version_ihl: u8,
    pub tos: u8,
    /// Bytes of header and payload.
    pub total_len: U16,
    pub id: U16,
    /// Reserved, DF, MF; offset in 8-byte units.
    pub fragment: U16,
    pub ttl: u8,
    pub protocol: u8,
    pub checksum: U16,
    pub source: [u8; 4],
    pub destination: [u8; 4],
}

/// RFC 8200.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ipv6 {
    /// Version, traffic class and flow label.
    pub version_class_label: [u8; 4],
    /// Bytes after this header.
    pub payload_len: U16,
    pub next_header: u8,
    pub hop_limit: u8,
    pub source: [u8; 16],
    pub destination: [u8; 16],
}

/// The first four bytes of TCP, UDP, SCTP, DCCP and UDP-Lite.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ports {
    pub source: U16,
    pub destination: U16,
}

/// Whether the payload of this protocol starts with [`Ports`].
#[inline(always)]
pub const fn has_ports(protocol: u8) -> bool {
    matches!(
        protocol,
        PROTOCOL_TCP | PROTOCOL_UDP | PROTOCOL_DCCP | PROTOCOL_SCTP | PROTOCOL_UDP_LITE
    )
}

const _: () = {
    assert!(size_of::<Ethernet>() == EthHdr::LEN);
    assert!(size_of::<Ipv4>() == Ipv4Hdr::LEN);
    assert!(offset_of!(Ipv4, ttl) == offset_of!(Ipv4Hdr, ttl));
    assert!(offset_of!(Ipv4, checksum) == offset_of!(Ipv4Hdr, check));
    assert!(offset_of!(Ipv4, destination) == offset_of!(Ipv4Hdr, dst_addr));
    assert!(size_of::<Ipv6>() == Ipv6Hdr::LEN);
    assert!(offset_of!(Ipv6, hop_limit) == offset_of!(Ipv6Hdr, hop_limit));
    assert!(offset_of!(Ipv6, destination) == offset_of!(Ipv6Hdr, dst_addr));
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_iana() {
        assert_eq!(
            [ETHER_TYPE_IPV4, ETHER_TYPE_IPV6, ETHER_TYPE_VLAN, ETHER_TYPE_SERVICE_VLAN],
            [0x0800, 0x86dd, 0x8100, 0x88a8]
        );
        let ports = [PROTOCOL_TCP, PROTOCOL_UDP, PROTOCOL_DCCP, PROTOCOL_SCTP, PROTOCOL_UDP_LITE];
        assert_eq!(ports, [6, 17, 33, 132, 136]);
        for protocol in 0..=u8::MAX {
            assert_eq!(has_ports(protocol), ports.contains(&protocol));
        }
    }
}
