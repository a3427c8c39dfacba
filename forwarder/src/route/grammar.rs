//! iproute2's grammar of routes: words in, a [`Route`] or a [`Selector`] out.
//!
//! Whatever is not understood is refused by name: a word that is skipped would make another route
//! than the one that was asked for.

mod words;

use std::net::IpAddr;

use self::words::{Accept, Matching, Via, Words};
use super::{NEXT_HOPS_MAX, NextHop, PrefixMatch, Route, Selector, WEIGHT_MAX};
use crate::{
    config::cpus::CpuError,
    prefix::{Family, Prefix, PrefixError},
};

/// Bytes of the longest interface name (the kernel's `IFNAMSIZ` without its final zero).
pub const INTERFACE_NAME_MAX: usize = 15;

/// What is wrong with the words, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    #[error("'{0}' is not an address: write for example 198.18.1.2 or 2001:db8::1")]
    Address(String),
    #[error("'{0}' is not a name of an interface: 1 to 15 bytes, without '/', ':' and spaces")]
    Interface(String),
    #[error(transparent)]
    Cpus(#[from] CpuError),
    #[error("'{0}' is not a weight: write a number from 1 to {WEIGHT_MAX}")]
    Weight(String),
    #[error("the next hop {0} is there twice: give it a larger weight instead")]
    NextHopTwice(String),
    #[error("a route has at most {NEXT_HOPS_MAX} next hops")]
    NextHops,
    #[error("'{0}' stands before `nexthop`, where it would be of no next hop: write it behind")]
    BeforeNextHop(&'static str),
    #[error("a prefix is missing: write {0}")]
    NoPrefix(&'static str),
    #[error("'{prefix}' leads nowhere: add `via ADDRESS`, `dev INTERFACE` or both")]
    NoNextHop { prefix: String },
    #[error("'{word}' needs {what} after it")]
    NoValue { word: String, what: &'static str },
    #[error("'{0}' is given twice")]
    Twice(String),
    #[error("'{word}' is not supported: {why}")]
    Unsupported { word: String, why: &'static str },
    #[error("'{word}' is not understood: write {usage}")]
    Unknown { word: String, usage: &'static str },
    #[error("'{word}' is not {family}, which {asked} asks for")]
    Family { word: String, family: Family, asked: &'static str },
    #[error(
        "'{via}' is an IPv6 gateway for the IPv4 prefix '{prefix}': if that is meant (RFC 8950), write `via inet6 {via}`"
    )]
    ForeignGateway { prefix: String, via: IpAddr },
    #[error("the IPv6 prefix '{prefix}' cannot go over the IPv4 gateway {via}")]
    Ipv4Gateway { prefix: String, via: IpAddr },
    #[error("'{0}' cannot be a gateway: it is not the address of one host")]
    NotAGateway(IpAddr),
    #[error(
        "the gateway {0} is link-local, and means a different host on each link: add `dev INTERFACE`"
    )]
    LinkLocal(IpAddr),
}

const ROUTE_USAGE: &str = "PREFIX [cpu LIST] [via [inet6] ADDRESS] [dev INTERFACE] [weight NUMBER]";
const ONE_USAGE: &str = "PREFIX [cpu LIST] [via ADDRESS] [dev INTERFACE]";
const SELECTOR_USAGE: &str = "[root|match|exact] PREFIX [via ADDRESS] [dev INTERFACE]";

/// Reads `PREFIX [cpu LIST] [via [inet6] ADDRESS] [dev INTERFACE] [weight NUMBER]`, in any order, or
/// several next hops, each behind `nexthop`. `family` is what `-4` or `-6` asked for.
///
/// # Errors
///
/// Names the first word that is wrong.
pub fn route(words: &[&str], family: Option<Family>) -> Result<Route, GrammarError> {
    let words = Words::read(words, Accept { usage: ROUTE_USAGE, matching: false, adding: true })?;
    let (_, prefix) = words.prefix.ok_or(GrammarError::NoPrefix(ROUTE_USAGE))?;
    if words.next_hops.iter().any(|it| it.via.is_none() && it.dev.is_none()) {
        return Err(GrammarError::NoNextHop { prefix: prefix.to_owned() });
    }
    let via = words.next_hops.iter().find_map(|next_hop| next_hop.via.as_ref());
    let implied = family.or(via.map(|via| Family::of(via.address)));
    let prefix = parse_prefix(prefix, family, implied.unwrap_or(Family::Inet))?;
    let mut next_hops: Vec<NextHop> = Vec::with_capacity(words.next_hops.len());
    for words::NextHop { via, dev, weight } in words.next_hops {
        if let Some(via) = &via {
            check_gateway(&prefix, via, dev.is_some())?;
        }
        let next_hop =
            NextHop { via: via.map(|via| via.address), dev, weight: weight.unwrap_or(1) };
        if next_hops.iter().any(|it| (it.via, &it.dev) == (next_hop.via, &next_hop.dev)) {
            let one = NextHop { weight: 1, ..next_hop };
            return Err(GrammarError::NextHopTwice(super::describe(&[one])));
        }
        next_hops.push(next_hop);
    }
    Ok(Route { prefix, next_hops: next_hops.into(), cpus: words.cpus })
}

/// Reads `[[root|match|exact] PREFIX] [via ADDRESS] [dev INTERFACE]`. A prefix alone means it and
/// nothing else, as in iproute2; `all` means everything.
///
/// # Errors
///
/// Names the first word that is wrong.
pub fn selector(words: &[&str], family: Option<Family>) -> Result<Selector, GrammarError> {
    let selector = any_selector(words, family, SELECTOR_USAGE)?;
    match selector.cpus {
        None => Ok(selector),
        Some(_) => Err(unsupported("cpu", "routes are shown and flushed for all CPUs together")),
    }
}

/// Reads the selector of `route del`: one prefix, what its route must have, and CPUs.
///
/// # Errors
///
/// Names the first word that is wrong.
pub fn exact(words: &[&str], family: Option<Family>) -> Result<Selector, GrammarError> {
    let selector = any_selector(words, family, ONE_USAGE)?;
    match selector.prefix {
        Some(PrefixMatch::Exact(_)) => Ok(selector),
        None => Err(GrammarError::NoPrefix(ONE_USAGE)),
        Some(PrefixMatch::Root(_)) => Err(one_only("root")),
        Some(PrefixMatch::Match(_)) => Err(one_only("match")),
    }
}

fn any_selector(
    words: &[&str],
    family: Option<Family>,
    usage: &'static str,
) -> Result<Selector, GrammarError> {
    let words = match words {
        ["all"] => &[],
        words => words,
    };
    let mut words = Words::read(words, Accept { usage, matching: true, adding: false })?;
    let next_hop = words.next_hops.pop().unwrap_or_default();
    let via = next_hop.via.map(|via| via.address);
    let mut ipv4 = family.map(|family| family == Family::Inet);
    let prefix = match words.prefix {
        None => None,
        Some((how, word)) => {
            let implied = family.or(via.map(Family::of));
            let prefix = parse_prefix(word, family, implied.unwrap_or(Family::Inet))?;
            ipv4 = None;
            Some(match how {
                Matching::Exact => PrefixMatch::Exact(prefix),
                Matching::Root => PrefixMatch::Root(prefix),
                Matching::Match => PrefixMatch::Match(prefix),
            })
        }
    };
    Ok(Selector { ipv4, prefix, via, dev: next_hop.dev, skipped: false, cpus: words.cpus })
}

/// Reads one address, as `route get` takes it.
///
/// # Errors
///
/// Refuses what is no address, or not one of the family that was asked for.
pub fn address(word: &str, family: Option<Family>) -> Result<IpAddr, GrammarError> {
    let address = word.parse().map_err(|_| GrammarError::Address(word.to_owned()))?;
    match family {
        Some(wanted) if wanted != Family::of(address) => Err(foreign(word, wanted)),
        _ => Ok(address),
    }
}

/// Reads the name of an interface.
///
/// # Errors
///
/// Refuses what the kernel would not take as a name (`dev_valid_name`).
pub fn interface(word: &str) -> Result<String, GrammarError> {
    let bad = |character: char| character.is_whitespace() || matches!(character, '/' | ':' | '\0');
    let length = 1..=INTERFACE_NAME_MAX;
    if !length.contains(&word.len()) || matches!(word, "." | "..") || word.contains(bad) {
        return Err(GrammarError::Interface(word.to_owned()));
    }
    Ok(word.to_owned())
}

/// `default`, or something that looks so much like a prefix that its error helps more than
/// "not understood".
fn may_be_prefix(word: &str) -> bool {
    matches!(word, "default" | "any" | "all") || word.contains(['.', ':', '/'])
}

fn parse_prefix(
    word: &str,
    family: Option<Family>,
    implied: Family,
) -> Result<Prefix, GrammarError> {
    let prefix = match word {
        "default" | "any" | "all" => Prefix::default_of(implied),
        // iproute2's short form of the default route of a family.
        "0/0" => Prefix::default_of(Family::Inet),
        word => word.parse::<Prefix>()?,
    };
    match family {
        Some(wanted) if wanted != prefix.family() => Err(foreign(word, wanted)),
        _ => Ok(prefix),
    }
}

fn check_gateway(prefix: &Prefix, via: &Via, has_dev: bool) -> Result<(), GrammarError> {
    let address = via.address;
    let limited_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    if address.is_unspecified()
        || address.is_multicast()
        || address.is_loopback()
        || limited_broadcast
    {
        return Err(GrammarError::NotAGateway(address));
    }
    match (prefix.family(), Family::of(address)) {
        (Family::Inet6, Family::Inet) => {
            return Err(GrammarError::Ipv4Gateway { prefix: prefix.to_string(), via: address });
        }
        (Family::Inet, Family::Inet6) if !via.explicit => {
            return Err(GrammarError::ForeignGateway { prefix: prefix.to_string(), via: address });
        }
        _ => {}
    }
    let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    if link_local && !has_dev { Err(GrammarError::LinkLocal(address)) } else { Ok(()) }
}

fn foreign(word: &str, family: Family) -> GrammarError {
    let asked = if family == Family::Inet { "-4" } else { "-6" };
    GrammarError::Family { word: word.to_owned(), family, asked }
}

fn unsupported(word: &str, why: &'static str) -> GrammarError {
    GrammarError::Unsupported { word: word.to_owned(), why }
}

fn one_only(word: &str) -> GrammarError {
    unsupported(word, "this command takes one route away; `route flush` takes several")
}

#[cfg(test)]
pub(crate) mod tests;
