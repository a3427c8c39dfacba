//! The walk itself: everything is checked, then the kernel is asked, then the frame is written.

use crate::{
    abi::{
        ADJACENCY_FRAGS, Adjacency, INTERFACE_ENSLAVED, INTERFACE_NO_FORWARDING4,
        INTERFACE_NO_FORWARDING6, INTERFACE_NO_IPV6, Interface,
    },
    lookup::{Steering, Tables, resolve},
    network::Network,
    packet::Packet,
    verdict::{Reason, Verdict},
    wire::{
        ETHER_TYPE_IPV4, ETHER_TYPE_IPV6, ETHER_TYPE_SERVICE_VLAN, ETHER_TYPE_VLAN, Ethernet, Ipv4,
        Ipv6, NETWORK_AT, Ports, has_ports,
    },
};

/// Where a frame came in.
pub struct Ingress<'a> {
    /// Interface index.
    pub ifindex: u32,
    pub interface: &'a Interface,
}

/// Takes a frame from its bytes to its verdict. A frame that is passed or steered is unchanged.
#[inline(always)]
pub fn forward(
    packet: &mut Packet<'_>,
    ingress: &Ingress<'_>,
    tables: &impl Tables,
    steering: &impl Steering,
) -> Verdict {
    try_forward(packet, ingress, tables, steering).unwrap_or_else(Verdict::Pass)
}

#[inline(always)]
fn try_forward(
    packet: &mut Packet<'_>,
    ingress: &Ingress<'_>,
    tables: &impl Tables,
    steering: &impl Steering,
) -> Result<Verdict, Reason> {
    let ethernet = packet.header::<Ethernet>(0).ok_or(Reason::Truncated)?;
    let ether_type = ethernet.ether_type.get();
    match ether_type {
        ETHER_TYPE_IPV4 | ETHER_TYPE_IPV6 => {}
        ETHER_TYPE_VLAN | ETHER_TYPE_SERVICE_VLAN => return Err(Reason::Vlan),
        _ => return Err(Reason::NotIp),
    }
    if ethernet.destination != ingress.interface.mac {
        let group = ethernet.destination[0] & 1 != 0;
        return Err(if group { Reason::GroupMac } else { Reason::ForeignMac });
    }
    let flags = ingress.interface.flags;
    if flags & INTERFACE_ENSLAVED != 0 {
        return Err(Reason::Enslaved);
    }
    if ether_type == ETHER_TYPE_IPV4 {
        if flags & INTERFACE_NO_FORWARDING4 != 0 {
            return Err(Reason::ForwardingOff);
        }
        walk::<Ipv4>(packet, ingress, tables, steering)
    } else {
        if flags & (INTERFACE_NO_IPV6 | INTERFACE_NO_FORWARDING6) != 0 {
            let no_ipv6 = flags & INTERFACE_NO_IPV6 != 0;
            return Err(if no_ipv6 { Reason::NoIpv6 } else { Reason::ForwardingOff });
        }
        walk::<Ipv6>(packet, ingress, tables, steering)
    }
}

#[inline(always)]
fn walk<N: Network>(
    packet: &mut Packet<'_>,
    ingress: &Ingress<'_>,
    tables: &impl Tables,
    steering: &impl Steering,
) -> Result<Verdict, Reason> {
    let network = packet.header::<N>(NETWORK_AT).ok_or(Reason::Truncated)?;
    let len = network.check(packet.len() - NETWORK_AT)?;
    network.check_addresses()?;
    let route = network.lookup(tables);
    let hash = || flow_hash(packet, network, len, tables.hash_seed());
    let of_group = || match ingress.interface.flags & N::HASH_ADDRESSES {
        0 => hash(),
        _ => network.ends().hash(None, tables.hash_seed()),
    };
    let adjacency = resolve(tables, route, of_group)?;
    if network.has_own_source(tables) {
        return Err(Reason::OwnSource);
    }
    network.check_reverse_path(tables, ingress, of_group)?;
    check_egress(packet, len, ingress, adjacency)?;
    if !tables.lease_holds() {
        return Err(Reason::LeaseExpired);
    }

    if let Some(cpu) = steering.worker(hash) {
        return if steering.steer(cpu) {
            Ok(Verdict::Steer { cpu })
        } else {
            Err(Reason::NoWorker)
        };
    }
    if !tables.redirect(adjacency.port) {
        return Err(Reason::NoPort);
    }
    rewrite::<N>(packet, adjacency);
    Ok(Verdict::Redirect { port: adjacency.port, route })
}

/// Whether the egress can take the frame, and Linux would have sent it there without a word.
#[inline(always)]
fn check_egress(
    packet: &Packet<'_>,
    len: usize,
    ingress: &Ingress<'_>,
    adjacency: &Adjacency,
) -> Result<(), Reason> {
    if adjacency.port == ingress.ifindex {
        return Err(Reason::SameInterface);
    }
    let mtu = adjacency.mtu as usize;
    if len > mtu {
        return Err(Reason::TooBig);
    }
    if packet.len() > mtu + NETWORK_AT {
        return Err(Reason::Padded);
    }
    if packet.has_frags() && adjacency.flags & ADJACENCY_FRAGS == 0 {
        return Err(Reason::Frags);
    }
    Ok(())
}

/// By addresses and ports; by addresses alone where there are no ports, or not in each fragment.
#[inline(always)]
fn flow_hash<N: Network>(packet: &Packet<'_>, network: &N, len: usize, seed: u64) -> u32 {
    let ends = network.ends();
    match network.unfragmented_protocol() {
        Some(protocol) if has_ports(protocol) && len >= size_of::<N>() + size_of::<Ports>() => {
            let ports = packet.header::<Ports>(NETWORK_AT + size_of::<N>());
            ends.hash(ports.map(|ports| (protocol, ports)), seed)
        }
        _ => ends.hash(None, seed),
    }
}

/// The only writes. Both headers have been seen, so both are there.
#[inline(always)]
fn rewrite<N: Network>(packet: &mut Packet<'_>, adjacency: &Adjacency) {
    if let Some(network) = packet.header_mut::<N>(NETWORK_AT) {
        network.lower_hop_limit();
    }
    if let Some(ethernet) = packet.header_mut::<Ethernet>(0) {
        ethernet.destination = adjacency.destination_mac;
        ethernet.source = adjacency.source_mac;
    }
}

#[cfg(test)]
mod tests;
