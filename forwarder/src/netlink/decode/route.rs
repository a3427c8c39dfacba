//! Routes of the main and the local table.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{AF_INET, AF_INET6, ROUTE_HEADER_LEN, ip};
use crate::{
    netlink::{
        LinuxAnswer,
        event::{KernelRoute, Next, Skip},
        local_routes::LocalRoute,
        wire::{Attributes, u16_at, u32_at},
    },
    paths::{Hop, Member},
    prefix::Prefix,
};

// Not in `libc` (`linux/rtnetlink.h`).
const RTA_VIA: u16 = 18;
const RTA_NEWDST: u16 = 19;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTA_NH_ID: u16 = 30;
const RTAX_LOCK: u16 = 1;
const RTAX_MTU: u16 = 2;

/// A route of the local table that makes its prefix ours.
pub(in crate::netlink) fn local_route(body: &[u8]) -> Option<LocalRoute> {
    let route = Route::read(body)?;
    let types = [libc::RTN_LOCAL, libc::RTN_BROADCAST, libc::RTN_ANYCAST, libc::RTN_MULTICAST];
    if !in_local_table(body) || !types.contains(&route.kind) {
        return None;
    }
    let source = route.attributes.get(libc::RTA_PREFSRC);
    Some(LocalRoute {
        prefix: route.prefix()?,
        kind: route.kind,
        tos: route.tos,
        ifindex: route.attributes.u32(libc::RTA_OIF),
        priority: route.attributes.u32(libc::RTA_PRIORITY),
        source: source.and_then(|source| ip(route.family, source)),
    })
}

/// A route of the main table, with what it cannot be forwarded by in XDP for.
pub(in crate::netlink) fn kernel_route(body: &[u8]) -> Option<(Prefix, KernelRoute)> {
    let route = Route::read(body)?;
    // A cloned one is what a lookup made of another.
    let is_cloned = route.flags & libc::RTM_F_CLONED != 0;
    if route.table != u32::from(libc::RT_TABLE_MAIN) || is_cloned {
        return None;
    }
    let (next, skip) = match route.attributes.u32(RTA_NH_ID) {
        // What else is said of the object is only true at this moment.
        Some(id) => (Next::Object(id), None),
        None => route.members(),
    };
    let route_skip = route.skip().or(skip);
    let none = next == Next::Members(Vec::new());
    let skip = route_skip.or(none.then_some(Skip::Type));
    let metric = route.attributes.u32(libc::RTA_PRIORITY).unwrap_or(0);
    let prefix = route.prefix()?;
    if is_never_forwarded(prefix) {
        return None;
    }
    Some((prefix, KernelRoute { metric, tos: route.tos, protocol: route.protocol, next, skip }))
}

/// The route that the kernel chose for a destination.
pub(in crate::netlink) fn linux_answer(body: &[u8]) -> Option<LinuxAnswer> {
    let route = Route::read(body)?;
    Some(match route.kind {
        libc::RTN_UNICAST => match (route.attributes.u32(RTA_NH_ID), route.members().0) {
            // Where it is not written out beside.
            (Some(id), Next::Members(none)) if none.is_empty() => {
                LinuxAnswer::Via(Next::Object(id))
            }
            (_, members) => LinuxAnswer::Via(members),
        },
        libc::RTN_LOCAL | libc::RTN_BROADCAST | libc::RTN_ANYCAST | libc::RTN_MULTICAST => {
            LinuxAnswer::Local
        }
        _ => LinuxAnswer::Nothing,
    })
}

pub(super) fn in_local_table(body: &[u8]) -> bool {
    Route::read(body).is_some_and(|route| route.table == u32::from(libc::RT_TABLE_LOCAL))
}

/// By which interfaces a default route of the main table leaves; none for another route.
pub(in crate::netlink) fn default_route_interfaces(body: &[u8]) -> Option<Vec<u32>> {
    let route = Route::read(body)?;
    let is_default = route.table == u32::from(libc::RT_TABLE_MAIN)
        && route.kind == libc::RTN_UNICAST
        && route.length == 0;
    is_default.then(|| route.interfaces())
}

/// By which interfaces the route leaves that the kernel chose for a destination.
pub(in crate::netlink) fn route_interfaces(body: &[u8]) -> Option<Vec<u32>> {
    Some(Route::read(body)?.interfaces())
}

struct Route<'a> {
    family: u8,
    length: u8,
    source_length: u8,
    tos: u8,
    protocol: u8,
    kind: u8,
    flags: u32,
    table: u32,
    attributes: Attributes<'a>,
}

impl<'a> Route<'a> {
    fn read(body: &'a [u8]) -> Option<Self> {
        let &[family, length, source_length, tos, table, protocol, _scope, kind, ..] = body else {
            return None;
        };
        let attributes = Attributes::after(ROUTE_HEADER_LEN, body);
        Some(Self {
            family,
            length,
            source_length,
            tos,
            protocol,
            kind,
            flags: u32_at(body, 8)?,
            table: attributes.u32(libc::RTA_TABLE).unwrap_or(u32::from(table)),
            attributes,
        })
    }

    fn prefix(&self) -> Option<Prefix> {
        Prefix::new(IpNet::new(self.destination()?, self.length).ok()?).ok()
    }

    fn destination(&self) -> Option<IpAddr> {
        match self.attributes.get(libc::RTA_DST) {
            Some(destination) => ip(self.family, destination),
            None if self.length != 0 => None,
            None if self.family == AF_INET => Some(IpAddr::from([0; 4])),
            None if self.family == AF_INET6 => Some(IpAddr::from([0; 16])),
            None => None,
        }
    }

    /// What stands against forwarding it, next hops aside.
    fn skip(&self) -> Option<Skip> {
        let by_type = match self.kind {
            libc::RTN_UNICAST => None,
            libc::RTN_BLACKHOLE => Some(Skip::Blackhole),
            libc::RTN_UNREACHABLE => Some(Skip::Unreachable),
            libc::RTN_PROHIBIT => Some(Skip::Prohibit),
            libc::RTN_THROW => Some(Skip::Throw),
            _ => Some(Skip::Type),
        };
        // First what holds for all routes of the prefix.
        if self.tos != 0 {
            return Some(Skip::Tos);
        }
        if self.source_length != 0 {
            return Some(Skip::Source);
        }
        by_type.or_else(|| self.skip_by_attributes())
    }

    fn skip_by_attributes(&self) -> Option<Skip> {
        // `rta_cacheinfo.rta_expires`, in ticks; zero: never.
        const EXPIRES_AT: usize = 8;
        let attributes = self.attributes;
        if is_encapsulated(attributes) {
            return Some(Skip::Encapsulation);
        }
        let metrics = attributes.nested(libc::RTA_METRICS);
        if metrics.is_some_and(|it| it.get(RTAX_MTU).is_some() || locks_mtu(it)) {
            return Some(Skip::Mtu);
        }
        let expires = attributes.get(libc::RTA_CACHEINFO).and_then(|it| u32_at(it, EXPIRES_AT));
        expires.is_some_and(|expires| expires != 0).then_some(Skip::Expires)
    }

    /// Ascending, and what stands against forwarding by them.
    fn members(&self) -> (Next, Option<Skip>) {
        let mut skip = None;
        let mut members = Vec::new();
        if let Some(list) = self.attributes.get(libc::RTA_MULTIPATH) {
            for one in next_hops(list) {
                let weight = u16::from(one.hops) + 1;
                members.push(Member { hop: hop(self.family, one.ifindex, one.attributes), weight });
                skip = skip.or(is_encapsulated(one.attributes).then_some(Skip::Encapsulation));
            }
        } else if let Some(ifindex) = self.attributes.u32(libc::RTA_OIF) {
            members.push(Member { hop: hop(self.family, ifindex, self.attributes), weight: 1 });
        }
        members.sort_unstable();
        (Next::Members(members), skip)
    }

    fn interfaces(&self) -> Vec<u32> {
        let several = self.attributes.get(libc::RTA_MULTIPATH).map(next_hops);
        let several = several.into_iter().flatten().map(|one| one.ifindex);
        self.attributes.u32(libc::RTA_OIF).into_iter().chain(several).collect()
    }
}

/// Link-local and multicast destinations of IPv6 (RFC 4291, 2.5.6 and 2.7): every interface has a
/// route for them, and no packet that is forwarded asks for it.
fn is_never_forwarded(prefix: Prefix) -> bool {
    match prefix.address() {
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_multicast(),
        IpAddr::V4(_) => false,
    }
}

fn is_encapsulated(attributes: Attributes<'_>) -> bool {
    attributes.iter().any(|(kind, _)| matches!(kind, RTA_NEWDST | RTA_ENCAP | RTA_ENCAP_TYPE))
}

fn locks_mtu(metrics: Attributes<'_>) -> bool {
    metrics.u32(RTAX_LOCK).is_some_and(|locks| locks & 1 << RTAX_MTU != 0)
}

/// The gateway is of the route's family, or of the one that `RTA_VIA` names.
fn hop(family: u8, ifindex: u32, attributes: Attributes<'_>) -> Hop {
    let foreign = || {
        let via = attributes.get(RTA_VIA)?;
        let family = u8::try_from(u16_at(via, 0)?).ok()?;
        ip(family, via.get(2..)?)
    };
    let gateway = attributes.get(libc::RTA_GATEWAY);
    let via = gateway.and_then(|gateway| ip(family, gateway)).or_else(foreign);
    Hop { ifindex, via: via.filter(|via| !via.is_unspecified()) }
}

/// One `rtnexthop`.
struct NextHop<'a> {
    /// Its weight less one.
    hops: u8,
    ifindex: u32,
    attributes: Attributes<'a>,
}

/// Up to the first that is malformed.
fn next_hops(list: &[u8]) -> impl Iterator<Item = NextHop<'_>> {
    const HEADER_LEN: usize = 8;
    let mut rest = list;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let one = rest.get(..length).filter(|_| length >= HEADER_LEN)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        let attributes = Attributes::after(HEADER_LEN, one);
        Some(NextHop { hops: *one.get(3)?, ifindex: u32_at(one, 4)?, attributes })
    })
}
