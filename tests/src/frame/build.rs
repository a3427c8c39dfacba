//! Building frames. Every field can be set wrong on purpose; what is not set is right.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Mac, checksum, ether_type, protocol, transport_checksum};

pub const ECHO_REPLY4: u8 = 0;
pub const ECHO_REPLY6: u8 = 129;
const ECHO_REQUEST4: u8 = 8;
const ECHO_REQUEST6: u8 = 128;

#[derive(Clone, Debug)]
pub struct Frame {
    pub destination_mac: Mac,
    pub source_mac: Mac,
    /// EtherType and tag, the outermost first.
    pub tags: Vec<(u16, u16)>,
    /// If it is not to be that of the IP version.
    pub ether_type: Option<u16>,
    pub ip: Ip,
    pub transport: Transport,
    pub payload: Vec<u8>,
    /// If it is not to be the right one.
    pub transport_checksum: Option<u16>,
    /// Zero bytes behind the IP packet.
    pub padding: usize,
}

#[derive(Clone, Debug)]
pub enum Ip {
    V4(Ipv4),
    V6(Ipv6),
}

#[derive(Clone, Debug)]
pub struct Ipv4 {
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    pub ttl: u8,
    pub tos: u8,
    pub identification: u16,
    pub dont_fragment: bool,
    pub more_fragments: bool,
    /// In units of 8 bytes.
    pub fragment_offset: u16,
    /// Filled up with zeros, to a multiple of 4 bytes.
    pub options: Vec<u8>,
    /// Version and header length, if they are not to be the right ones.
    pub first_byte: Option<u8>,
    pub total_length: Option<u16>,
    pub checksum: Option<u16>,
}

#[derive(Clone, Debug)]
pub struct Ipv6 {
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub flow_label: u32,
    /// The number of each extension header, and what follows its `next header` byte.
    pub extensions: Vec<(u8, Vec<u8>)>,
    pub version: u8,
    pub payload_length: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
pub enum Transport {
    /// The payload follows the IP header, under this protocol number.
    Raw(u8),
    Udp {
        source: u16,
        destination: u16,
    },
    Tcp {
        source: u16,
        destination: u16,
        sequence: u32,
        acknowledgement: u32,
        flags: u8,
    },
    EchoRequest {
        identifier: u16,
        sequence: u16,
    },
}

impl Frame {
    pub fn ipv4(source: Ipv4Addr, destination: Ipv4Addr) -> Self {
        Self::new(Ip::V4(Ipv4 {
            source,
            destination,
            ttl: 64,
            tos: 0,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            options: Vec::new(),
            first_byte: None,
            total_length: None,
            checksum: None,
        }))
    }

    pub fn ipv6(source: Ipv6Addr, destination: Ipv6Addr) -> Self {
        Self::new(Ip::V6(Ipv6 {
            source,
            destination,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            extensions: Vec::new(),
            version: 6,
            payload_length: None,
        }))
    }

    fn new(ip: Ip) -> Self {
        Self {
            destination_mac: [2, 0, 0, 0, 0, 2],
            source_mac: [2, 0, 0, 0, 0, 1],
            tags: Vec::new(),
            ether_type: None,
            ip,
            transport: Transport::Raw(protocol::NOTHING),
            payload: Vec::new(),
            transport_checksum: None,
            padding: 0,
        }
    }

    pub fn macs(mut self, source: Mac, destination: Mac) -> Self {
        (self.source_mac, self.destination_mac) = (source, destination);
        self
    }

    /// One more 802.1Q tag, inside those that are there.
    pub fn vlan(mut self, id: u16) -> Self {
        self.tags.push((ether_type::VLAN, id));
        self
    }

    /// TTL or hop limit.
    pub fn ttl(mut self, hops: u8) -> Self {
        match &mut self.ip {
            Ip::V4(ip) => ip.ttl = hops,
            Ip::V6(ip) => ip.hop_limit = hops,
        }
        self
    }

    /// Changes the IPv4 header; does nothing to an IPv6 one.
    pub fn v4(mut self, change: impl FnOnce(&mut Ipv4)) -> Self {
        if let Ip::V4(ip) = &mut self.ip {
            change(ip);
        }
        self
    }

    /// Changes the IPv6 header; does nothing to an IPv4 one.
    pub fn v6(mut self, change: impl FnOnce(&mut Ipv6)) -> Self {
        if let Ip::V6(ip) = &mut self.ip {
            change(ip);
        }
        self
    }

    pub fn ip_options(self, options: &[u8]) -> Self {
        self.v4(|ip| ip.options = options.to_vec())
    }

    /// Makes it a fragment, its offset in units of 8 bytes. The payload is this fragment's part;
    /// only the first has a transport header, whose checksum would be that of the whole.
    pub fn fragment(mut self, offset: u16, more: bool) -> Self {
        if let Ip::V6(_) = self.ip {
            let [high, low] = ((offset << 3) | u16::from(more)).to_be_bytes();
            return self.extension(protocol::FRAGMENT, &[0, high, low, 0, 0, 0, 1]);
        }
        if offset > 0 {
            self.transport = Transport::Raw(self.transport.protocol(4));
        }
        self.v4(|ip| {
            (ip.fragment_offset, ip.more_fragments, ip.dont_fragment) = (offset, more, false);
        })
    }

    /// One more IPv6 extension header, behind those that are there. The body is what follows the
    /// `next header` byte, in all 8 n - 1 bytes.
    pub fn extension(self, number: u8, body: &[u8]) -> Self {
        self.v6(|ip| ip.extensions.push((number, body.to_vec())))
    }

    pub fn raw(mut self, protocol: u8) -> Self {
        self.transport = Transport::Raw(protocol);
        self
    }

    pub fn udp(mut self, source: u16, destination: u16) -> Self {
        self.transport = Transport::Udp { source, destination };
        self
    }

    pub fn tcp(mut self, source: u16, destination: u16, flags: u8) -> Self {
        self.transport =
            Transport::Tcp { source, destination, sequence: 1, acknowledgement: 0, flags };
        self
    }

    pub fn echo(mut self, identifier: u16, sequence: u16) -> Self {
        self.transport = Transport::EchoRequest { identifier, sequence };
        self
    }

    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    /// A payload that makes the IP packet this long.
    pub fn ip_length(self, length: usize) -> Self {
        let headers = self.clone().payload(&[]).ip_packet().len();
        let payload = length.checked_sub(headers).expect("a length that holds the headers");
        self.payload(&(0..=u8::MAX).cycle().take(payload).collect::<Vec<_>>())
    }

    pub fn padding(mut self, bytes: usize) -> Self {
        self.padding = bytes;
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = [self.destination_mac, self.source_mac].concat();
        for (ether_type, tag) in &self.tags {
            bytes.extend(ether_type.to_be_bytes());
            bytes.extend(tag.to_be_bytes());
        }
        let by_version = match self.ip {
            Ip::V4(_) => ether_type::IPV4,
            Ip::V6(_) => ether_type::IPV6,
        };
        bytes.extend(self.ether_type.unwrap_or(by_version).to_be_bytes());
        bytes.extend(self.ip_packet());
        bytes.resize(bytes.len() + self.padding, 0);
        bytes
    }

    /// What a router must make of it: one hop less, the checksum to match, the MAC addresses of
    /// the next link, and nothing behind the IP packet.
    pub fn forwarded(&self, source: Mac, destination: Mac) -> Vec<u8> {
        let mut next = self.clone().macs(source, destination).padding(0);
        match &mut next.ip {
            Ip::V4(ip) => ip.ttl -= 1,
            Ip::V6(ip) => ip.hop_limit -= 1,
        }
        next.bytes()
    }

    pub fn ip_packet(&self) -> Vec<u8> {
        match &self.ip {
            Ip::V4(ip) => {
                let body = self.body(&ip.source.octets(), &ip.destination.octets(), 4);
                ip.packet(self.transport.protocol(4), &body)
            }
            Ip::V6(ip) => {
                let body = self.body(&ip.source.octets(), &ip.destination.octets(), 6);
                ip.packet(self.transport.protocol(6), &body)
            }
        }
    }

    /// Transport header and payload.
    fn body(&self, source: &[u8], destination: &[u8], version: u8) -> Vec<u8> {
        let header = self.transport.header(version, self.payload.len());
        let mut body = [header.as_slice(), &self.payload].concat();
        let Some(at) = self.transport.checksum_at() else { return body };
        let protocol = self.transport.protocol(version);
        let right = match (protocol, transport_checksum(source, destination, protocol, &body)) {
            (protocol::ICMP, _) => checksum(&body),
            // A UDP checksum of zero says that there is none.
            (protocol::UDP, 0) => 0xffff,
            (_, sum) => sum,
        };
        let sum = self.transport_checksum.unwrap_or(right);
        body[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        body
    }
}

impl Ipv4 {
    fn packet(&self, protocol: u8, body: &[u8]) -> Vec<u8> {
        let mut options = self.options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        let length = 20 + options.len();
        let flags = (u16::from(self.dont_fragment) << 1) | u16::from(self.more_fragments);
        let fragment = (flags << 13) | self.fragment_offset;
        let mut header = vec![self.first_byte.unwrap_or(0x40 | short::<u8>(length / 4)), self.tos];
        header.extend(self.total_length.unwrap_or(short(length + body.len())).to_be_bytes());
        header.extend(self.identification.to_be_bytes());
        header.extend(fragment.to_be_bytes());
        header.extend([self.ttl, protocol, 0, 0]);
        header.extend(self.source.octets());
        header.extend(self.destination.octets());
        header.extend(options);
        let sum = self.checksum.unwrap_or_else(|| checksum(&header));
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        [header.as_slice(), body].concat()
    }
}

impl Ipv6 {
    fn packet(&self, protocol: u8, body: &[u8]) -> Vec<u8> {
        let numbers = self.extensions.iter().map(|(number, _)| *number);
        let mut next = numbers.chain([protocol]);
        let first = next.next().unwrap_or(protocol);
        let mut content = Vec::new();
        for ((_, extension), next) in self.extensions.iter().zip(next) {
            content.push(next);
            content.extend(extension);
        }
        content.extend(body);
        let word = (u32::from(self.version) << 28)
            | (u32::from(self.traffic_class) << 20)
            | (self.flow_label & 0xf_ffff);
        let mut packet = word.to_be_bytes().to_vec();
        packet.extend(self.payload_length.unwrap_or(short(content.len())).to_be_bytes());
        packet.extend([first, self.hop_limit]);
        packet.extend(self.source.octets());
        packet.extend(self.destination.octets());
        packet.extend(content);
        packet
    }
}

impl Transport {
    fn protocol(self, version: u8) -> u8 {
        match self {
            Self::Raw(number) => number,
            Self::Udp { .. } => protocol::UDP,
            Self::Tcp { .. } => protocol::TCP,
            Self::EchoRequest { .. } if version == 4 => protocol::ICMP,
            Self::EchoRequest { .. } => protocol::ICMPV6,
        }
    }

    fn checksum_at(self) -> Option<usize> {
        match self {
            Self::Raw(_) => None,
            Self::Udp { .. } => Some(6),
            Self::Tcp { .. } => Some(16),
            Self::EchoRequest { .. } => Some(2),
        }
    }

    /// With a checksum of zero.
    fn header(self, version: u8, payload: usize) -> Vec<u8> {
        match self {
            Self::Raw(_) => Vec::new(),
            Self::Udp { source, destination } => {
                [source, destination, short(8 + payload), 0].map(u16::to_be_bytes).concat()
            }
            Self::Tcp { source, destination, sequence, acknowledgement, flags } => {
                let mut header = [source, destination].map(u16::to_be_bytes).concat();
                header.extend(sequence.to_be_bytes());
                header.extend(acknowledgement.to_be_bytes());
                header.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
                header
            }
            Self::EchoRequest { identifier, sequence } => {
                let kind = if version == 4 { ECHO_REQUEST4 } else { ECHO_REQUEST6 };
                let [a, b] = identifier.to_be_bytes();
                let [c, d] = sequence.to_be_bytes();
                vec![kind, 0, 0, 0, a, b, c, d]
            }
        }
    }
}

/// A length as a field of a header.
fn short<T: TryFrom<usize>>(length: usize) -> T {
    T::try_from(length).ok().expect("a length that its field can hold")
}
