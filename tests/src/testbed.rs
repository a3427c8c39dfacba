//! A lab with the forwarder in it, and frames between networks beyond the hosts.
//!
//! The hosts are gateways to networks that are not there: what comes to them for such a network is
//! seen on the wire, and dropped in silence. So nothing is forwarded but what a test sends.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use crate::{
    daemon::Daemon,
    frame::{Frame, Packet, ether_type, protocol},
    kernel::Forwarded,
    lab::{Lab, Layout, host_mac, host4, host6, router_mac},
    stats::Stats,
    wait::wait_until,
    wire::{WINDOW, Wire},
};

/// For what is there in a moment, even on a machine that is busy.
pub const SOON: Duration = Duration::from_secs(10);

/// Types of ICMPv6: multicast listeners and neighbour discovery.
const DISCOVERY: RangeInclusive<u8> = 130..=137;
/// Port of TCP.
const BGP: u16 = 179;

#[derive(Debug)]
pub struct Testbed {
    // Dropped in this order.
    pub daemon: Daemon,
    /// Of the hosts, by link.
    pub wires: Vec<Wire>,
    pub lab: Lab,
}

/// What happened while a test did something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    pub xdp: Stats,
    pub linux: Forwarded,
}

impl Testbed {
    /// Builds the lab and starts the forwarder on all of its links, with these other arguments.
    pub fn start(layout: &Layout, arguments: &str) -> Result<Self> {
        let lab = layout.build()?;
        let ports: Vec<_> = (0..lab.hosts.len()).map(|link| format!("eth{link}")).collect();
        Self::on(lab, &format!("--iface {} {arguments}", ports.join(",")))
    }

    /// In a lab that is there already, with exactly these arguments.
    pub fn on(lab: Lab, arguments: &str) -> Result<Self> {
        let daemon = Daemon::start(&lab.router, arguments)?;
        let wires = lab.hosts.iter().map(|host| host.wire("eth0")).collect::<Result<_>>()?;
        Ok(Self { daemon, wires, lab })
    }

    /// Likewise, with routes to what is beyond every host.
    pub fn with_routes(layout: &Layout, arguments: &str) -> Result<Self> {
        let testbed = Self::start(layout, arguments)?;
        for link in (0..).take(testbed.lab.hosts.len()) {
            for route in routes_beyond(link) {
                testbed.route(&route)?;
            }
        }
        Ok(testbed)
    }

    /// Adds a route that is to forward at once, or nearly so.
    pub fn route(&self, route: &str) -> Result<()> {
        self.daemon.ok(&format!("route add {route} --wait 3")).map(drop)
    }

    /// A frame from beyond the host at link `from` to beyond the one at link `to`.
    pub fn frame4(from: u8, to: u8) -> Frame {
        Frame::ipv4(beyond4(from, 1), beyond4(to, 1)).macs(host_mac(from), router_mac(from))
    }

    /// Likewise with IPv6.
    pub fn frame6(from: u8, to: u8) -> Frame {
        Frame::ipv6(beyond6(from, 1), beyond6(to, 1)).macs(host_mac(from), router_mac(from))
    }

    /// What comes out by link `to` when XDP has forwarded this frame: padding is left as it was.
    pub fn forwarded(frame: &Frame, to: u8) -> Vec<u8> {
        let mut bytes = Lab::forwarded(frame, to);
        bytes.resize(bytes.len() + frame.padding, 0);
        bytes
    }

    /// Sends frames from the host at link `from`, and waits until as many have come to the one at
    /// link `to`; what hosts send to find each other does not count.
    pub fn send(&self, from: u8, to: u8, frames: &[Frame]) -> Result<Vec<Vec<u8>>> {
        let bytes: Vec<_> = frames.iter().map(Frame::bytes).collect();
        self.wire(from).stream(&bytes, self.wire(to), SOON, is_traffic)
    }

    /// Sends frames from the host at link `from`, and says by which of these links each came out,
    /// once and as the oracle expects. No two frames may be equal.
    pub fn scatter(&self, from: u8, to: &[u8], frames: &[Frame]) -> Result<Vec<u8>> {
        let mut links = vec![None; frames.len()];
        for (burst, links) in frames.chunks(WINDOW).zip(links.chunks_mut(WINDOW)) {
            for frame in burst {
                self.wire(from).send(&frame.bytes())?;
            }
            let expected: HashMap<Vec<u8>, (usize, u8)> = (0..)
                .zip(burst)
                .flat_map(|(at, frame)| to.iter().map(move |link| (at, *link, frame)))
                .map(|(at, link, frame)| (Self::forwarded(frame, link), (at, link)))
                .collect();
            wait_until("every frame to come out", SOON, || {
                for link in to {
                    for bytes in self.wire(*link).arrived(is_traffic)? {
                        let known = expected.get(&bytes).filter(|(_, of)| of == link);
                        let (at, _) =
                            known.with_context(|| format!("by eth{link}: {bytes:02x?}"))?;
                        ensure!(links[*at].replace(*link).is_none(), "twice: {bytes:02x?}");
                    }
                }
                Ok(links.iter().all(Option::is_some).then_some(()))
            })?;
        }
        Ok(links.into_iter().flatten().collect())
    }

    /// Of the host at this link.
    pub fn wire(&self, link: u8) -> &Wire {
        &self.wires[usize::from(link)]
    }

    /// Does something, and says what the counters made of it, once nothing is on its way between
    /// two CPUs any more.
    pub fn counted<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Counted)> {
        let (xdp, linux) = (self.daemon.stats()?, Forwarded::of(&self.lab.router)?);
        let done = work()?;
        let settled = wait_until("every frame to be accounted for", SOON, || {
            let xdp = self.daemon.stats()?.since(&xdp);
            Ok(xdp.closes().then_some(xdp))
        })?;
        let linux = Forwarded::of(&self.lab.router)?.since(linux);
        Ok((done, Counted { xdp: settled, linux }))
    }
}

/// An address beyond the host at this link, in 198.19.LINK.0/24.
pub fn beyond4(link: u8, number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 19, link + 1, number)
}

/// Likewise, in 2001:db8:10LINK::/48.
pub fn beyond6(link: u8, number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x101 + u16::from(link), 0, 0, 0, 0, number)
}

/// The routes, IPv4 and IPv6, to what is beyond the host at this link.
pub fn routes_beyond(link: u8) -> [String; 2] {
    [
        format!("{}/24 via {} dev eth{link}", beyond4(link, 0), host4(link)),
        format!("{}/48 via {} dev eth{link}", beyond6(link, 0), host6(link)),
    ]
}

/// Whether a frame is what hosts say to each other, and not how they find each other (ARP, MLD,
/// neighbour discovery) or what their routing daemons do (IGMP, OSPF, BGP).
pub fn is_traffic(frame: &[u8]) -> bool {
    let ip = [ether_type::IPV4, ether_type::IPV6].map(u16::to_be_bytes);
    let is_ip = frame.get(12..14).is_some_and(|kind| ip.iter().any(|it| it == kind));
    let is_control = Packet::of_frame(frame).is_ok_and(|packet| match packet.protocol {
        protocol::ICMPV6 => packet.icmp().is_some_and(|icmp| DISCOVERY.contains(&icmp.kind)),
        protocol::TCP => packet.ports().is_some_and(|(from, to)| from == BGP || to == BGP),
        protocol => [protocol::IGMP, protocol::OSPF].contains(&protocol),
    });
    is_ip && !is_control
}
