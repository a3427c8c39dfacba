//! From what a route says of its next hop to an egress that can reach it, or a reason why not.

use std::{fmt::Write as _, net::IpAddr};

use crate::{
    engine::Refusal, netlink::event::Link, paths::Hop, prefix::Prefix, rib::Rib, route::NextHop,
};

/// Finds the egress of a route's next hop, as Linux would (`fib_check_nh()`): the gateway must be a
/// neighbour.
pub fn resolve(rib: &Rib, prefix: Prefix, next_hop: &NextHop) -> Result<Hop, Refusal> {
    let NextHop { via, dev, .. } = next_hop;
    match (via, dev) {
        (None, None) => Err(Refusal::new(format!(
            "{prefix}: a route needs a next hop: 'via ADDRESS', 'dev INTERFACE' or both"
        ))),
        (None, Some(dev)) => Ok(Hop { ifindex: port(rib, dev)?.ifindex, via: None }),
        (Some(via), Some(dev)) => {
            let link = port(rib, dev)?;
            check_gateway(rib, *via, Some(link.ifindex))?;
            if is_link_local(*via) || holds(rib, link.ifindex, *via).is_some() {
                return Ok(Hop { ifindex: link.ifindex, via: Some(*via) });
            }
            Err(Refusal::new(format!(
                "next hop {via} is in no subnet of {dev} ({}): give {dev} an address in the next \
                 hop's subnet, or correct the next hop",
                subnets(rib, link.ifindex)
            )))
        }
        (Some(via), None) => {
            check_gateway(rib, *via, None)?;
            if is_link_local(*via) {
                let message =
                    format!("next hop {via} is link-local: say which interface with 'dev'");
                return Err(Refusal::new(message));
            }
            let mut reaching: Vec<(u8, u32)> =
                rib.ports().filter_map(|port| Some((holds(rib, port, *via)?, port))).collect();
            reaching.sort_unstable();
            match reaching[..] {
                [] => Err(Refusal::new(format!(
                    "next hop {via} is on no interface of this forwarder ({})",
                    interfaces(rib)
                ))),
                [.., (one, _), (other, _)] if one == other => Err(Refusal::new(format!(
                    "next hop {via} is on several interfaces: say which with 'dev' ({})",
                    interfaces(rib)
                ))),
                [.., (_, ifindex)] => Ok(Hop { ifindex, via: Some(*via) }),
            }
        }
    }
}

fn check_gateway(rib: &Rib, via: IpAddr, port: Option<u32>) -> Result<(), Refusal> {
    let bad = via.is_unspecified() || via.is_multicast() || via.is_loopback();
    if bad {
        return Err(Refusal::new(format!("{via} cannot be a next hop: it is no host's address")));
    }
    // Each link has link-local addresses of its own: fe80::1 may well be ours on another.
    let is_ours = match port.filter(|_| is_link_local(via)) {
        Some(port) => rib.addresses_of(port).any(|own| own.addr() == via),
        None => rib.is_local(via),
    };
    if is_ours {
        return Err(Refusal::new(format!(
            "{via} cannot be a next hop: it is an address of this host, or a broadcast address"
        )));
    }
    Ok(())
}

/// The length of the longest subnet of an interface that this address is in.
fn holds(rib: &Rib, ifindex: u32, address: IpAddr) -> Option<u8> {
    let subnets = rib.addresses_of(ifindex).filter(|subnet| subnet.contains(&address));
    subnets.map(|subnet| subnet.prefix_len()).max()
}

fn port<'a>(rib: &'a Rib, dev: &str) -> Result<&'a Link, Refusal> {
    match rib.link_named(dev) {
        Some(link) if rib.is_port(link.ifindex) => Ok(link),
        Some(Link { mac: None, .. }) => Err(Refusal::new(format!(
            "{dev} is no Ethernet interface, and cannot be one of this forwarder: its are {}",
            interfaces(rib)
        ))),
        Some(_) => Err(Refusal::new(format!(
            "{dev} is not an interface of this forwarder ({}): start it with '--iface …,{dev}'",
            interfaces(rib)
        ))),
        None => Err(Refusal::new(format!(
            "there is no interface {dev}: this forwarder has {}",
            interfaces(rib)
        ))),
    }
}

/// An IPv4 gateway is no exception for Linux: it must be in a subnet.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

fn interfaces(rib: &Rib) -> String {
    let mut text = String::new();
    for ifindex in rib.ports() {
        let name = rib.links().get(&ifindex).map_or("(gone)", |link| &link.name);
        let comma = if text.is_empty() { "" } else { "; " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{name}: {}", subnets(rib, ifindex));
    }
    text
}

fn subnets(rib: &Rib, ifindex: u32) -> String {
    let subnets: Vec<String> = rib.addresses_of(ifindex).map(|subnet| subnet.to_string()).collect();
    if subnets.is_empty() { "no address".to_owned() } else { subnets.join(", ") }
}
