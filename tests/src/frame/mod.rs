//! Frames, built by hand and read back: slow, plain, and written without a look at the forwarder's
//! own packet code, whose oracle it is.

mod build;
mod parse;

pub use build::{ECHO_REPLY4, ECHO_REPLY6, Frame, Ip, Ipv4, Ipv6, Transport};
pub use parse::{Icmp, Packet};

pub type Mac = [u8; 6];

pub mod ether_type {
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const VLAN: u16 = 0x8100;
    pub const IPV6: u16 = 0x86dd;
    pub const SERVICE_VLAN: u16 = 0x88a8;
}

pub mod protocol {
    pub const HOP_BY_HOP: u8 = 0;
    pub const ICMP: u8 = 1;
    pub const IGMP: u8 = 2;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const ICMPV6: u8 = 58;
    pub const NOTHING: u8 = 59;
    pub const DESTINATION_OPTIONS: u8 = 60;
    pub const OSPF: u8 = 89;
}

pub fn mac_text(mac: Mac) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

/// The Internet checksum (RFC 1071) of bytes whose checksum field is zero, or 0 of bytes that
/// carry a right one.
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("the loop ended")
}

/// The checksum of a transport header and its payload, under the pseudo-header of the addresses.
fn transport_checksum(source: &[u8], destination: &[u8], protocol: u8, body: &[u8]) -> u16 {
    let length = u32::try_from(body.len()).expect("shorter than 4 GiB");
    let mut bytes = [source, destination, &length.to_be_bytes(), &[0, 0, 0, protocol]].concat();
    bytes.extend_from_slice(body);
    checksum(&bytes)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const A4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const B4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
    const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

    #[test]
    fn the_checksum_is_that_of_the_rfc() {
        // The example of RFC 1071, section 3.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&bytes), !0xddf2);
        assert_eq!(checksum(&[bytes.as_slice(), &[0x22, 0x0d]].concat()), 0);
        assert_eq!(checksum(&[0xab]), !0xab00);
    }

    #[test]
    fn what_is_built_is_read_back_without_problems() {
        let frames = [
            Frame::ipv4(A4, B4).udp(5, 6),
            Frame::ipv4(A4, B4).tcp(5, 6, 2).ip_options(&[7, 3, 4]),
            Frame::ipv4(A4, B4).echo(1, 2).vlan(5).vlan(6).padding(7),
            Frame::ipv6(A6, B6).udp(5, 6).padding(3),
            Frame::ipv6(A6, B6)
                .tcp(5, 6, 16)
                .extension(protocol::HOP_BY_HOP, &[0, 1, 4, 0, 0, 0, 0]),
            Frame::ipv6(A6, B6).echo(1, 2),
        ];
        for frame in frames {
            let frame = frame.payload(b"odd");
            let bytes = frame.bytes();
            let packet = Packet::of_frame(&bytes).unwrap();
            assert_eq!(packet.problems(), [""; 0], "{frame:?}");
            assert!(packet.ends_with(b"odd"), "{frame:?}");
            assert_eq!(packet.tags.len(), frame.tags.len());
            assert_eq!(packet.padding, frame.padding);
        }
    }

    #[test]
    fn every_changed_bit_of_a_checksummed_packet_is_a_problem() {
        for frame in [Frame::ipv4(A4, B4).udp(5, 6), Frame::ipv4(A4, B4).tcp(5, 6, 2)] {
            let good = frame.payload(&[1, 2, 3]).bytes();
            for bit in 14 * 8..good.len() * 8 {
                let mut bytes = good.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let sound = Packet::of_frame(&bytes).is_ok_and(|packet| packet.is_sound());
                assert!(!sound, "bit {bit} of {good:02x?}");
            }
        }
    }

    #[test]
    fn a_forwarded_frame_has_one_hop_less_and_no_padding() {
        let frame = Frame::ipv4(A4, B4).udp(5, 6).ttl(9).payload(b"x").padding(20);
        let bytes = frame.forwarded([1; 6], [2; 6]);
        let packet = Packet::of_frame(&bytes).unwrap();
        assert_eq!((packet.source_mac, packet.destination_mac), ([1; 6], [2; 6]));
        assert_eq!((packet.ttl, packet.padding), (8, 0));
        assert!(packet.is_sound());
    }
}
