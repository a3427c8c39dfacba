//! Reading frames, and finding what is wrong with them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result, bail, ensure};

use super::{Mac, checksum, ether_type, protocol, transport_checksum};

/// An IP packet and the frame that it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub destination_mac: Mac,
    pub source_mac: Mac,
    /// Tags without their EtherTypes, the outermost first.
    pub tags: Vec<u16>,
    pub source: IpAddr,
    pub destination: IpAddr,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Of the body, behind all extension headers.
    pub protocol: u8,
    /// In units of 8 bytes, and whether more fragments follow.
    pub fragment: (u16, bool),
    /// Transport header and payload.
    pub body: Vec<u8>,
    /// Bytes behind the IP packet.
    pub padding: usize,
    /// The IPv4 header; empty in IPv6.
    header: Vec<u8>,
}

/// An ICMP or ICMPv6 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp<'a> {
    pub kind: u8,
    pub code: u8,
    /// The second word: identifier and sequence, or an MTU.
    pub word: u32,
    /// What was echoed, or the head of the packet at fault.
    pub content: &'a [u8],
}

impl Packet {
    /// Of a frame with IPv4 or IPv6 in it, whose lengths are not lies.
    pub fn of_frame(frame: &[u8]) -> Result<Self> {
        let mac = |at: usize| Some(frame.get(at..at + 6)?.try_into().expect("six bytes"));
        let (destination_mac, source_mac) = mac(0).zip(mac(6)).context("no MAC addresses")?;
        let mut tags = Vec::new();
        let mut rest = &frame[12..];
        loop {
            let kind = half(rest, 0)?;
            match kind {
                ether_type::VLAN | ether_type::SERVICE_VLAN => {
                    tags.push(half(rest, 2)?);
                    rest = &rest[4..];
                }
                ether_type::IPV4 | ether_type::IPV6 => break,
                other => bail!("EtherType {other:#06x} is not IP"),
            }
        }
        let version = if half(rest, 0)? == ether_type::IPV4 { 4 } else { 6 };
        let ip = &rest[2..];
        ensure!(ip.first().map(|byte| byte >> 4) == Some(version), "IP version is not {version}");
        Ok(Self { destination_mac, source_mac, tags, ..Self::of_ip(ip)? })
    }

    /// Of an IP packet alone, as an ICMP error quotes it.
    pub fn of_ip(ip: &[u8]) -> Result<Self> {
        match ip.first().context("an empty packet")? >> 4 {
            4 => Self::of_ipv4(ip),
            6 => Self::of_ipv6(ip),
            version => bail!("IP version {version}"),
        }
    }

    /// Which checksums and lengths are wrong.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !self.header.is_empty() && checksum(&self.header) != 0 {
            problems.push(format!("wrong IPv4 header checksum in {:02x?}", self.header));
        }
        if self.fragment == (0, false) {
            problems.extend(self.transport_problem());
        }
        problems
    }

    pub fn is_sound(&self) -> bool {
        self.problems().is_empty()
    }

    pub fn ends_with(&self, payload: &[u8]) -> bool {
        self.body.ends_with(payload)
    }

    /// Source and destination port of UDP or TCP.
    pub fn ports(&self) -> Option<(u16, u16)> {
        let carries = matches!(self.protocol, protocol::UDP | protocol::TCP);
        let first = self.fragment.0 == 0;
        (carries && first).then(|| half(&self.body, 0).ok().zip(half(&self.body, 2).ok()))?
    }

    pub fn icmp(&self) -> Option<Icmp<'_>> {
        if !matches!(self.protocol, protocol::ICMP | protocol::ICMPV6) {
            return None;
        }
        let (head, content) = self.body.split_at_checked(8)?;
        let word = u32::from_be_bytes(head[4..].try_into().expect("four bytes"));
        Some(Icmp { kind: head[0], code: head[1], word, content })
    }

    fn of_ipv4(ip: &[u8]) -> Result<Self> {
        let header = ip.get(..usize::from(ip[0] & 15) * 4).context("IPv4 header cut off")?;
        ensure!(header.len() >= 20, "IPv4 header of {} bytes", header.len());
        let total = usize::from(half(header, 2)?);
        ensure!(total >= header.len(), "IPv4 total length {total}");
        let flags = half(header, 6)?;
        ensure!(flags & 0x8000 == 0, "the reserved flag is set");
        Ok(Self {
            source: IpAddr::V4(octets::<4>(header, 12)?.into()),
            destination: IpAddr::V4(octets::<4>(header, 16)?.into()),
            ttl: header[8],
            protocol: header[9],
            fragment: (flags & 0x1fff, flags & 0x2000 != 0),
            // What an ICMP error quotes may end before the packet does.
            body: ip[header.len()..total.min(ip.len())].to_vec(),
            padding: ip.len().saturating_sub(total),
            header: header.to_vec(),
            ..Self::bare()
        })
    }

    fn of_ipv6(ip: &[u8]) -> Result<Self> {
        let header: &[u8; 40] = ip.first_chunk().context("IPv6 header cut off")?;
        let total = 40 + usize::from(half(header, 4)?);
        let mut body = &ip[40..total.min(ip.len())];
        let mut next = header[6];
        let mut fragment = (0, false);
        loop {
            let length = match next {
                protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {
                    8 + 8 * usize::from(octets::<2>(body, 0)?[1])
                }
                protocol::FRAGMENT => {
                    let word = half(body, 2)?;
                    fragment = (word >> 3, word & 1 != 0);
                    8
                }
                _ => break,
            };
            next = body[0];
            body = body.get(length..).context("IPv6 extension header cut off")?;
            if fragment.0 > 0 {
                break;
            }
        }
        Ok(Self {
            source: IpAddr::V6(octets::<16>(header, 8)?.into()),
            destination: IpAddr::V6(octets::<16>(header, 24)?.into()),
            ttl: header[7],
            protocol: next,
            fragment,
            body: body.to_vec(),
            padding: ip.len().saturating_sub(total),
            ..Self::bare()
        })
    }

    fn bare() -> Self {
        Self {
            destination_mac: [0; 6],
            source_mac: [0; 6],
            tags: Vec::new(),
            source: Ipv4Addr::UNSPECIFIED.into(),
            destination: Ipv6Addr::UNSPECIFIED.into(),
            ttl: 0,
            protocol: 0,
            fragment: (0, false),
            body: Vec::new(),
            padding: 0,
            header: Vec::new(),
        }
    }

    fn transport_problem(&self) -> Option<String> {
        let body = &self.body;
        let sum = match (self.protocol, self.source, self.destination) {
            (protocol::ICMP, ..) => checksum(body),
            (protocol::UDP, ..) if body.len() < 8 => return Some("UDP header cut off".into()),
            (protocol::UDP, ..) if half(body, 4).ok()? as usize != body.len() => {
                return Some(format!("UDP length is not {}", body.len()));
            }
            (protocol::UDP, IpAddr::V4(_), _) if half(body, 6).ok()? == 0 => return None,
            (
                protocol::UDP | protocol::TCP | protocol::ICMPV6,
                IpAddr::V4(source),
                IpAddr::V4(destination),
            ) => transport_checksum(&source.octets(), &destination.octets(), self.protocol, body),
            (
                protocol::UDP | protocol::TCP | protocol::ICMPV6,
                IpAddr::V6(source),
                IpAddr::V6(destination),
            ) => transport_checksum(&source.octets(), &destination.octets(), self.protocol, body),
            _ => return None,
        };
        (sum != 0).then(|| format!("wrong checksum of protocol {} in {body:02x?}", self.protocol))
    }
}

fn half(bytes: &[u8], at: usize) -> Result<u16> {
    Ok(u16::from_be_bytes(octets(bytes, at)?))
}

fn octets<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let found = bytes.get(at..at + N).and_then(|bytes| bytes.try_into().ok());
    found.with_context(|| format!("cut off at byte {at}"))
}
