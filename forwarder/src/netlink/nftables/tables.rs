//! Chains and rules out of messages: pure, and without a panic on any bytes.

use super::expression::number;
use crate::{
    bypass::{
        Families,
        rules::{ChainId, Direction, EFFECTS, Entry, Named, Which},
    },
    netlink::wire::{Attributes, text, u32_at},
};

/// `nfgenmsg`.
pub(super) const HEADER_LEN: usize = 4;

// `linux/netfilter/nf_tables.h`
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_DEV: u16 = 3;
const NFTA_HOOK_DEVS: u16 = 4;
const NFTA_DEVICE_NAME: u16 = 1;
const NFTA_DEVICE_PREFIX: u16 = 2;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_HANDLE: u16 = 3;
const NFTA_RULE_EXPRESSIONS: u16 = 4;

const NFPROTO_INET: u8 = 1;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_NETDEV: u8 = 5;
const NFPROTO_IPV6: u8 = 10;

/// A chain, and where packets that are forwarded enter it.
pub(super) fn chain(body: &[u8]) -> Option<(ChainId, Option<Entry>)> {
    let family = *body.first()?;
    let attributes = Attributes::after(HEADER_LEN, body);
    let (table, name) = (attributes.text(NFTA_CHAIN_TABLE)?, attributes.text(NFTA_CHAIN_NAME)?);
    let id = chain_id(family, table, name);
    let Some(hook) = attributes.nested(NFTA_CHAIN_HOOK) else { return Some((id, None)) };
    let families = match family {
        NFPROTO_IPV4 => Families::V4,
        NFPROTO_IPV6 => Families::V6,
        NFPROTO_INET | NFPROTO_NETDEV => Families::BOTH,
        // Bridges and ARP: a packet that we forward comes by neither.
        _ => return Some((id, None)),
    };
    let Some(place) = place(family, number(hook, NFTA_HOOK_HOOKNUM)) else {
        return Some((id, None));
    };
    let bound = match place {
        Place::Device(direction) => devices(hook).map(|devices| (direction, devices)),
        Place::Everywhere => None,
    };
    let accepts = number(attributes, NFTA_CHAIN_POLICY).is_none_or(|policy| policy == 1);
    let policy = (!accepts).then(|| Named {
        what: format!("policy drop of nftables chain {id}"),
        remedy: format!("set it by `nft 'chain {id} {{ policy accept; }}'`"),
    });
    Some((id, Some(Entry { families, bound, policy })))
}

enum Place {
    Everywhere,
    Device(Direction),
}

/// Where a hook is on the way of a forwarded packet; `None`: it is not.
fn place(family: u8, hook: Option<u32>) -> Option<Place> {
    const INET_INGRESS: u32 = 5;
    const LOCAL_IN: u32 = 1;
    const LOCAL_OUT: u32 = 3;
    const NETDEV_INGRESS: u32 = 0;
    const NETDEV_EGRESS: u32 = 1;
    match (family, hook) {
        (NFPROTO_NETDEV, Some(NETDEV_INGRESS)) | (NFPROTO_INET, Some(INET_INGRESS)) => {
            Some(Place::Device(Direction::In))
        }
        (NFPROTO_NETDEV, Some(NETDEV_EGRESS)) => Some(Place::Device(Direction::Out)),
        (NFPROTO_IPV4 | NFPROTO_IPV6 | NFPROTO_INET, Some(LOCAL_IN | LOCAL_OUT)) => None,
        // Before and after routing, or in between; or one that a newer kernel has.
        _ => Some(Place::Everywhere),
    }
}

/// The devices that a chain is bound to. `None`: they are not told, so it may be any.
fn devices(hook: Attributes<'_>) -> Option<Vec<Which>> {
    let one = hook.text(NFTA_HOOK_DEV).map(Which::exactly);
    let several = hook.nested(NFTA_HOOK_DEVS).into_iter().flat_map(Attributes::iter);
    let several = several.filter_map(|(kind, name)| {
        let name = text(name)?;
        match kind {
            NFTA_DEVICE_NAME => Some(Which::exactly(name)),
            NFTA_DEVICE_PREFIX => Some(Which::Name(name.as_bytes().to_vec())),
            // Whatever it is, all names begin so.
            _ => Some(Which::Name(Vec::new())),
        }
    });
    let all: Vec<_> = one.into_iter().chain(several).collect();
    (!all.is_empty()).then_some(all)
}

pub(super) struct Rule<'a> {
    pub(super) family: u8,
    pub(super) table: &'a str,
    pub(super) chain: ChainId,
    pub(super) named: Named,
    pub(super) expressions: Attributes<'a>,
}

pub(super) fn rule(body: &[u8]) -> Option<Rule<'_>> {
    let family = *body.first()?;
    let attributes = Attributes::after(HEADER_LEN, body);
    let table = attributes.text(NFTA_RULE_TABLE)?;
    let chain = chain_id(family, table, attributes.text(NFTA_RULE_CHAIN)?);
    let handle =
        attributes.get(NFTA_RULE_HANDLE)?.first_chunk().copied().map(u64::from_be_bytes)?;
    let named = Named {
        what: format!("rule {handle} ({EFFECTS}) of nftables chain {chain}"),
        remedy: format!("remove it with `nft delete rule {chain} handle {handle}`"),
    };
    let none = Attributes::after(0, &[]);
    let expressions = attributes.nested(NFTA_RULE_EXPRESSIONS).unwrap_or(none);
    Some(Rule { family, table, chain, named, expressions })
}

/// The number of the state that the kernel's rules are in.
pub(super) fn generation(body: &[u8]) -> Option<u32> {
    const NFTA_GEN_ID: u16 = 1;
    let id = Attributes::after(HEADER_LEN, body).get(NFTA_GEN_ID)?;
    u32_at(id, 0).map(u32::from_be)
}

pub(super) fn chain_id(family: u8, table: &str, name: &str) -> ChainId {
    let family = match family {
        NFPROTO_INET => "inet",
        NFPROTO_IPV4 => "ip",
        3 => "arp",
        NFPROTO_NETDEV => "netdev",
        7 => "bridge",
        NFPROTO_IPV6 => "ip6",
        _ => "?",
    };
    ChainId { family: family.into(), table: table.into(), name: name.into() }
}
