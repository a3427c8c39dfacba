//! iproute2's grammar of routes: words in, a [`Route`] or a [`Selector`] out.
//!
//! Whatever is not understood is refused by name: a word that is skipped would make another route
//! than the one that was asked for.

use std::net::IpAddr;

use super::{NextHop, PrefixMatch, Route, Selector};
use crate::prefix::{Family, Prefix, PrefixError};

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

const ROUTE_USAGE: &str = "PREFIX [via [inet6] ADDRESS] [dev INTERFACE]";
const SELECTOR_USAGE: &str = "[root|match|exact] PREFIX [via ADDRESS] [dev INTERFACE]";

/// Reads `PREFIX [via [inet6] ADDRESS] [dev INTERFACE]`, in any order. `family` is what `-4` or
/// `-6` asked for.
///
/// # Errors
///
/// Names the first word that is wrong.
pub fn route(words: &[&str], family: Option<Family>) -> Result<Route, GrammarError> {
    let words = Words::read(words, Accept { usage: ROUTE_USAGE, matching: false })?;
    let (_, prefix) = words.prefix.ok_or(GrammarError::NoPrefix(ROUTE_USAGE))?;
    if words.via.is_none() && words.dev.is_none() {
        return Err(GrammarError::NoNextHop { prefix: prefix.to_owned() });
    }
    let implied = family.or(words.via.as_ref().map(|via| Family::of(via.address)));
    let prefix = parse_prefix(prefix, family, implied.unwrap_or(Family::Inet))?;
    if let Some(via) = &words.via {
        check_gateway(&prefix, via, words.dev.is_some())?;
    }
    let next_hop = NextHop { via: words.via.map(|via| via.address), dev: words.dev };
    Ok(Route { prefix, next_hop })
}

/// Reads `[[root|match|exact] PREFIX] [via ADDRESS] [dev INTERFACE]`. A prefix alone means it and
/// nothing else, as in iproute2; `all` means everything.
///
/// # Errors
///
/// Names the first word that is wrong.
pub fn selector(words: &[&str], family: Option<Family>) -> Result<Selector, GrammarError> {
    let words = match words {
        ["all"] => &[],
        words => words,
    };
    let words = Words::read(words, Accept { usage: SELECTOR_USAGE, matching: true })?;
    let mut ipv4 = family.map(|family| family == Family::Inet);
    let prefix = match words.prefix {
        None => None,
        Some((how, word)) => {
            let implied = family.or(words.via.as_ref().map(|via| Family::of(via.address)));
            let prefix = parse_prefix(word, family, implied.unwrap_or(Family::Inet))?;
            ipv4 = None;
            Some(match how {
                Matching::Exact => PrefixMatch::Exact(prefix),
                Matching::Root => PrefixMatch::Root(prefix),
                Matching::Match => PrefixMatch::Match(prefix),
            })
        }
    };
    Ok(Selector { ipv4, prefix, via: words.via.map(|via| via.address), dev: words.dev })
}

/// Reads the selector of `route del`: one prefix, and what its route must have.
///
/// # Errors
///
/// Names the first word that is wrong.
pub fn exact(words: &[&str], family: Option<Family>) -> Result<Selector, GrammarError> {
    let selector = selector(words, family)?;
    match selector.prefix {
        Some(PrefixMatch::Exact(_)) => Ok(selector),
        None => Err(GrammarError::NoPrefix(ROUTE_USAGE)),
        Some(PrefixMatch::Root(_)) => Err(one_only("root")),
        Some(PrefixMatch::Match(_)) => Err(one_only("match")),
    }
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

/// The words by what they mean; prefixes are read last, when the family is known.
#[derive(Default)]
struct Words<'a> {
    prefix: Option<(Matching, &'a str)>,
    via: Option<Via>,
    dev: Option<String>,
}

struct Via {
    address: IpAddr,
    /// Its family was given: `via inet6 ADDRESS`.
    explicit: bool,
}

#[derive(Clone, Copy)]
enum Matching {
    Exact,
    Root,
    Match,
}

struct Accept {
    usage: &'static str,
    /// `root`, `match` and `exact` may stand before the prefix.
    matching: bool,
}

impl<'a> Words<'a> {
    fn read(words: &[&'a str], accept: Accept) -> Result<Self, GrammarError> {
        let mut read = Self::default();
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            match word {
                "via" => read.set_via(&mut words)?,
                "dev" | "oif" => {
                    let name = value(&mut words, word, "the name of an interface")?;
                    set_once(&mut read.dev, interface(name)?, "dev")?;
                }
                "proto" | "protocol" => {
                    let name = value(&mut words, word, "the name of a protocol")?;
                    if name != "xdp" {
                        return Err(unsupported("proto", "routes here are all of protocol xdp"));
                    }
                }
                "to" => read.set_prefix(Matching::Exact, value(&mut words, word, "a prefix")?)?,
                "exact" if accept.matching => {
                    read.set_prefix(Matching::Exact, value(&mut words, word, "a prefix")?)?;
                }
                "root" if accept.matching => {
                    read.set_prefix(Matching::Root, value(&mut words, word, "a prefix")?)?;
                }
                "match" if accept.matching => {
                    read.set_prefix(Matching::Match, value(&mut words, word, "a prefix")?)?;
                }
                word => match why_unsupported(word) {
                    Some(why) => return Err(unsupported(word, why)),
                    None if read.prefix.is_none() && may_be_prefix(word) => {
                        read.set_prefix(Matching::Exact, word)?;
                    }
                    None => {
                        let word = word.to_owned();
                        return Err(GrammarError::Unknown { word, usage: accept.usage });
                    }
                },
            }
        }
        Ok(read)
    }

    fn set_prefix(&mut self, matching: Matching, word: &'a str) -> Result<(), GrammarError> {
        set_once(&mut self.prefix, (matching, word), word)
    }

    fn set_via(&mut self, words: &mut impl Iterator<Item = &'a str>) -> Result<(), GrammarError> {
        let mut word = value(words, "via", "an address")?;
        let given = [Family::Inet, Family::Inet6].into_iter().find(|f| f.keyword() == word);
        if let Some(family) = given {
            word = value(words, family.keyword(), "an address")?;
        }
        let address = word.parse().map_err(|_| GrammarError::Address(word.to_owned()))?;
        if let Some(family) = given.filter(|family| *family != Family::of(address)) {
            let asked = if family == Family::Inet { "`inet`" } else { "`inet6`" };
            return Err(GrammarError::Family { word: word.to_owned(), family, asked });
        }
        set_once(&mut self.via, Via { address, explicit: given.is_some() }, "via")
    }
}

fn value<'a>(
    words: &mut impl Iterator<Item = &'a str>,
    word: &str,
    what: &'static str,
) -> Result<&'a str, GrammarError> {
    words.next().ok_or_else(|| GrammarError::NoValue { word: word.to_owned(), what })
}

fn set_once<T>(slot: &mut Option<T>, value: T, word: &str) -> Result<(), GrammarError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(GrammarError::Twice(word.to_owned())),
    }
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

/// Words of iproute2 that mean something we cannot do, and why.
fn why_unsupported(word: &str) -> Option<&'static str> {
    Some(match word {
        "metric" | "preference" | "priority" => "a prefix has one route here",
        "nexthop" | "nhid" => "a route has one next hop here",
        "encap" => "routes here forward plain IP",
        "table" | "vrf" => "there is one table here",
        "tos" | "dsfield" => "routes here do not depend on the type of service",
        "onlink" => "the next hop must be reached through an address of its interface",
        "src" | "from" => {
            "source addresses are chosen by Linux, for the packets that it sends itself"
        }
        "mtu" | "advmss" | "hoplimit" | "rtt" | "rttvar" | "window" | "cwnd" | "initcwnd"
        | "initrwnd" | "ssthresh" | "realms" | "rto_min" | "quickack" | "congctl" | "features"
        | "fastopen_no_cookie" | "reordering" => "a route here has no attributes of its own",
        "scope" => "it follows from whether the route has a gateway",
        "pref" | "expires" | "weight" | "pervasive" | "ttl-propagate" => {
            "a route here has a prefix and a next hop, and nothing else"
        }
        "blackhole" | "unreachable" | "prohibit" | "throw" | "local" | "broadcast"
        | "multicast" | "anycast" | "nat" | "unicast" => {
            "routes here forward; leave the other types to Linux (`ip route`)"
        }
        _ => return None,
    })
}

#[cfg(test)]
pub(crate) mod tests;
