//! Nexthop objects (`linux/nexthop.h`), which `libc` does not know.

use super::ip;
use crate::{
    netlink::{
        event::{Nexthop, NexthopWay, Skip},
        wire::{Attributes, u32_at},
    },
    paths::Hop,
};

pub(in crate::netlink) const RTM_NEWNEXTHOP: u16 = 104;
pub(in crate::netlink) const RTM_DELNEXTHOP: u16 = 105;
pub(in crate::netlink) const RTM_GETNEXTHOP: u16 = 106;
/// `nhmsg`.
pub(in crate::netlink) const NEXTHOP_HEADER_LEN: usize = 8;

const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_ENCAP: u16 = 8;
const NHA_FDB: u16 = 11;

/// A nexthop object; what a message says of its going is as much as its id.
pub(in crate::netlink) fn nexthop(body: &[u8]) -> Option<Nexthop> {
    let family = *body.first()?;
    let attributes = Attributes::after(NEXTHOP_HEADER_LEN, body);
    let id = attributes.u32(NHA_ID)?;
    let has = |kind| attributes.get(kind).is_some();
    let way = if has(NHA_BLACKHOLE) {
        NexthopWay::Skip(Skip::Blackhole)
    } else if has(NHA_ENCAP) || has(NHA_ENCAP_TYPE) {
        NexthopWay::Skip(Skip::Encapsulation)
    } else if has(NHA_FDB) {
        NexthopWay::Skip(Skip::Type)
    } else if let Some(group) = attributes.get(NHA_GROUP) {
        NexthopWay::Group(members(group))
    } else if let Some(ifindex) = attributes.u32(NHA_OIF) {
        let gateway = attributes.get(NHA_GATEWAY).and_then(|gateway| ip(family, gateway));
        NexthopWay::Hop(Hop { ifindex, via: gateway.filter(|it| !it.is_unspecified()) })
    } else {
        NexthopWay::Skip(Skip::Type)
    };
    Some(Nexthop { id, way })
}

/// A list of `nexthop_grp`: id, and the weight less one, whose high byte is younger than its low
/// one (Linux 6.12) and lies behind it.
fn members(group: &[u8]) -> Vec<(u32, u16)> {
    const LEN: usize = 8;
    let member = |one: &[u8]| {
        let weight = u16::from_le_bytes([*one.get(4)?, *one.get(5)?]);
        Some((u32_at(one, 0)?, weight.saturating_add(1)))
    };
    group.chunks_exact(LEN).filter_map(member).collect()
}
