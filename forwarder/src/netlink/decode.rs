//! Messages into [`Event`]s: pure, and without a panic on any bytes.

mod nexthop;
mod route;
mod rule;

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_APPEND, NLM_F_REPLACE};

pub(super) use self::{
    nexthop::{NEXTHOP_HEADER_LEN, RTM_GETNEXTHOP, nexthop},
    route::{default_route_interfaces, kernel_route, linux_answer, local_route, route_interfaces},
    rule::{LOCAL_PRIORITY, MAIN_PRIORITY, RULE_HEADER_LEN, RuleKind, rule},
};
use super::{
    event::{Address, Event, Link, Neighbour, NeighbourState, Position},
    local_routes::LocalRoute,
    wire::{Attributes, Message, text, u16_at, u32_at},
};

/// Sizes of the headers behind the message header: `ifinfomsg`, `ifaddrmsg`, `rtmsg`, `ndmsg`.
pub(super) const LINK_HEADER_LEN: usize = 16;
pub(super) const ADDRESS_HEADER_LEN: usize = 8;
pub(super) const ROUTE_HEADER_LEN: usize = 12;
pub(super) const NEIGHBOUR_HEADER_LEN: usize = 12;

#[expect(clippy::cast_possible_truncation, reason = "it is 2")]
pub(super) const AF_INET: u8 = libc::AF_INET as u8;
#[expect(clippy::cast_possible_truncation, reason = "it is 10")]
pub(super) const AF_INET6: u8 = libc::AF_INET6 as u8;

// Not in `libc`.
const IFLA_PARENT_DEV_NAME: u16 = 56;
const IFLA_PARENT_DEV_BUS_NAME: u16 = 57;
const IFLA_TUN_VNET_HDR: u16 = 5;
const NDA_FLAGS_EXT: u16 = 15;
pub(super) const NTF_EXT_MANAGED: u32 = 1;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;

/// What one notification means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Event(Event),
    /// Several local routes can share a prefix: whether it came or went is for
    /// [`super::local_routes::LocalRoutes`] to say.
    LocalRoute(LocalRoute),
    LocalRouteGone(LocalRoute),
    /// A route of the local table, of whatever type, replaced another that is not named.
    LocalRouteReplaced,
    /// Some rule came or went: they are read again.
    Rules,
}

/// What a notification means; `None` where it is not about anything that we follow.
pub(super) fn change(message: &Message<'_>) -> Option<Change> {
    let body = message.body;
    let event = match message.kind {
        libc::RTM_NEWLINK => Event::Link(link(body)?),
        libc::RTM_DELLINK => Event::LinkGone { ifindex: link_index(body)? },
        libc::RTM_NEWADDR => Event::Address(address(body)?),
        libc::RTM_DELADDR => Event::AddressGone(address(body)?),
        libc::RTM_NEWNEIGH => Event::Neighbour(neighbour(body)?),
        libc::RTM_DELNEIGH => {
            let Neighbour { ifindex, address, .. } = neighbour(body)?;
            Event::NeighbourGone { ifindex, address }
        }
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => return route_change(message),
        nexthop::RTM_NEWNEXTHOP => Event::Nexthop(nexthop(body)?),
        nexthop::RTM_DELNEXTHOP => Event::NexthopGone { id: nexthop(body)?.id },
        libc::RTM_NEWRULE | libc::RTM_DELRULE => return Some(Change::Rules),
        _ => return None,
    };
    Some(Change::Event(event))
}

fn route_change(message: &Message<'_>) -> Option<Change> {
    let body = message.body;
    let (is_new, flags) = (message.kind == libc::RTM_NEWROUTE, message.flags);
    if let Some((prefix, route)) = kernel_route(body) {
        if !is_new {
            return Some(Change::Event(Event::RouteGone { prefix, route }));
        }
        let position = match flags {
            flags if flags & NLM_F_REPLACE != 0 => Position::Replace,
            flags if flags & NLM_F_APPEND != 0 => Position::Last,
            _ => Position::First,
        };
        return Some(Change::Event(Event::Route { prefix, route, position }));
    }
    if is_new && flags & NLM_F_REPLACE != 0 {
        return route::in_local_table(body).then_some(Change::LocalRouteReplaced);
    }
    let route = local_route(body)?;
    Some(if is_new { Change::LocalRoute(route) } else { Change::LocalRouteGone(route) })
}

/// Which of a link's three places an XDP program sits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    Native,
    Generic,
    Offloaded,
    /// The kernel only named a program, not its place.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpAttachment {
    pub mode: XdpMode,
    pub program: u32,
}

/// What only the checks before the start want to know of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkDetails {
    pub link: Link,
    pub loopback: bool,
    /// The link below a VLAN and the like; of a veth, its peer.
    pub lower: Option<u32>,
    /// Where `lower` is in another network namespace: that namespace's id in this one, or -1
    /// where it has none.
    pub lower_namespace: Option<i32>,
    /// Other names that the kernel knows it by.
    pub alternative_names: Vec<String>,
    /// The device behind it, as bus and name: "pci" and "0000:01:00.0".
    pub device: Option<(String, String)>,
    /// Of a tap: whether frames come with notes on checksums that are left to be done.
    pub tap_offload: bool,
    /// It takes frames that have the MAC address of the link below it: an ipvlan, or a macvlan for
    /// all frames or for those of some sources.
    pub takes_below: bool,
    pub xdp: Vec<XdpAttachment>,
}

pub(super) fn link_details(body: &[u8]) -> Option<LinkDetails> {
    let link = link(body)?;
    let attributes = Attributes::after(LINK_HEADER_LEN, body);
    Some(LinkDetails {
        loopback: u32_at(body, 8)? & libc::IFF_LOOPBACK.cast_unsigned() != 0,
        lower: attributes.u32(libc::IFLA_LINK).filter(|&ifindex| ifindex != 0),
        lower_namespace: attributes.u32(libc::IFLA_LINK_NETNSID).map(u32::cast_signed),
        alternative_names: attributes
            .nested(libc::IFLA_PROP_LIST)
            .into_iter()
            .flat_map(Attributes::iter)
            .filter(|&(kind, _)| kind == libc::IFLA_ALT_IFNAME)
            .filter_map(|(_, name)| text(name).map(str::to_owned))
            .collect(),
        device: attributes
            .text(IFLA_PARENT_DEV_BUS_NAME)
            .zip(attributes.text(IFLA_PARENT_DEV_NAME))
            .map(|(bus, name)| (bus.to_owned(), name.to_owned())),
        tap_offload: attributes
            .nested(libc::IFLA_LINKINFO)
            .and_then(|info| info.nested(libc::IFLA_INFO_DATA))
            .and_then(|tap| tap.get(IFLA_TUN_VNET_HDR))
            .is_some_and(|flag| flag != [0] && link.kind.as_deref() == Some("tun")),
        takes_below: takes_below(link.kind.as_deref(), attributes),
        xdp: xdp_attachments(attributes),
        link,
    })
}

fn takes_below(kind: Option<&str>, attributes: Attributes<'_>) -> bool {
    // `linux/if_link.h`: the modes passthru and source.
    const IFLA_MACVLAN_MODE: u16 = 1;
    const MACVLAN_MODES: [u32; 2] = [8, 16];
    match kind {
        Some("ipvlan" | "ipvtap") => true,
        Some("macvlan" | "macvtap") => attributes
            .nested(libc::IFLA_LINKINFO)
            .and_then(|info| info.nested(libc::IFLA_INFO_DATA))
            .and_then(|data| data.u32(IFLA_MACVLAN_MODE))
            .is_none_or(|mode| MACVLAN_MODES.contains(&mode)),
        _ => false,
    }
}

/// `None` too for the copies with a family (bridge ports), which do not tell of the link itself.
fn link_index(body: &[u8]) -> Option<u32> {
    if *body.first()? != 0 || body.len() < LINK_HEADER_LEN {
        return None;
    }
    u32_at(body, 4).filter(|&ifindex| ifindex != 0)
}

fn link(body: &[u8]) -> Option<Link> {
    let ifindex = link_index(body)?;
    let (hardware, flags) = (u16_at(body, 2)?, u32_at(body, 8)?);
    let attributes = Attributes::after(LINK_HEADER_LEN, body);
    let mut xdp_programs: Vec<_> =
        xdp_attachments(attributes).into_iter().map(|attached| attached.program).collect();
    xdp_programs.dedup();
    Some(Link {
        ifindex,
        name: attributes.text(libc::IFLA_IFNAME)?.to_owned(),
        mac: attributes
            .get(libc::IFLA_ADDRESS)
            .filter(|_| hardware == libc::ARPHRD_ETHER)
            .and_then(|address| address.try_into().ok()),
        mtu: attributes.u32(libc::IFLA_MTU)?,
        up: flags & libc::IFF_UP.cast_unsigned() != 0,
        carrier: flags & libc::IFF_LOWER_UP.cast_unsigned() != 0,
        controller: attributes.u32(libc::IFLA_MASTER).filter(|&ifindex| ifindex != 0),
        kind: attributes
            .nested(libc::IFLA_LINKINFO)
            .and_then(|info| info.text(libc::IFLA_INFO_KIND))
            .map(str::to_owned),
        xdp_programs,
    })
}

fn xdp_attachments(attributes: Attributes<'_>) -> Vec<XdpAttachment> {
    let Some(xdp) = attributes.nested(libc::IFLA_XDP) else { return Vec::new() };
    let by_mode: Vec<_> = [
        (XdpMode::Native, IFLA_XDP_DRV_PROG_ID),
        (XdpMode::Generic, IFLA_XDP_SKB_PROG_ID),
        (XdpMode::Offloaded, IFLA_XDP_HW_PROG_ID),
    ]
    .into_iter()
    .filter_map(|(mode, kind)| xdp.u32(kind).map(|program| XdpAttachment { mode, program }))
    .filter(|attached| attached.program != 0)
    .collect();
    if !by_mode.is_empty() {
        return by_mode;
    }
    // Where several are attached, this one is zero.
    let only = xdp.u32(IFLA_XDP_PROG_ID).filter(|&program| program != 0);
    only.map(|program| XdpAttachment { mode: XdpMode::Unknown, program }).into_iter().collect()
}

pub(super) fn address(body: &[u8]) -> Option<Address> {
    let &[family, length, ..] = body else { return None };
    let attributes = Attributes::after(ADDRESS_HEADER_LEN, body);
    // On a point-to-point link IFA_ADDRESS is the peer's.
    let own = attributes.get(libc::IFA_LOCAL).or_else(|| attributes.get(libc::IFA_ADDRESS))?;
    let address = IpNet::new(ip(family, own)?, length).ok()?;
    Some(Address { ifindex: u32_at(body, 4)?, address })
}

/// None for a group: the kernel keeps entries for those that it sends to, does not tell when they
/// come, and nobody routes by them.
pub(super) fn neighbour(body: &[u8]) -> Option<Neighbour> {
    if neighbour_flags(body)? & libc::NTF_PROXY != 0 {
        return None;
    }
    let attributes = Attributes::after(NEIGHBOUR_HEADER_LEN, body);
    let address = ip(*body.first()?, attributes.get(libc::NDA_DST)?)?;
    if address.is_multicast() {
        return None;
    }
    Some(Neighbour {
        ifindex: u32_at(body, 4)?,
        address,
        mac: attributes.get(libc::NDA_LLADDR).and_then(|address| address.try_into().ok()),
        state: neighbour_state(u16_at(body, 8)?),
    })
}

/// `NTF_*`.
pub(super) fn neighbour_flags(body: &[u8]) -> Option<u8> {
    body.get(10).copied().filter(|_| body.len() >= NEIGHBOUR_HEADER_LEN)
}

/// `NTF_EXT_*`.
pub(super) fn neighbour_extended_flags(body: &[u8]) -> u32 {
    Attributes::after(NEIGHBOUR_HEADER_LEN, body).u32(NDA_FLAGS_EXT).unwrap_or(0)
}

fn neighbour_state(bits: u16) -> NeighbourState {
    match bits {
        libc::NUD_INCOMPLETE => NeighbourState::Incomplete,
        libc::NUD_REACHABLE => NeighbourState::Reachable,
        libc::NUD_STALE => NeighbourState::Stale,
        libc::NUD_DELAY => NeighbourState::Delay,
        libc::NUD_PROBE => NeighbourState::Probe,
        libc::NUD_FAILED => NeighbourState::Failed,
        libc::NUD_NOARP => NeighbourState::NoArp,
        libc::NUD_PERMANENT => NeighbourState::Permanent,
        _ => NeighbourState::None,
    }
}

fn ip(family: u8, octets: &[u8]) -> Option<IpAddr> {
    match family {
        AF_INET => <[u8; 4]>::try_from(octets).ok().map(IpAddr::from),
        AF_INET6 => <[u8; 16]>::try_from(octets).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
