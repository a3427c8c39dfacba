//! The words of a route, one after the other; prefixes are read last, when the family is known.

use std::net::IpAddr;

use super::{GrammarError, NEXT_HOPS_MAX, WEIGHT_MAX, interface, may_be_prefix, unsupported};
use crate::{config::cpus::parse_cpus, prefix::Family, route::protocol};

/// The words by what they mean.
#[derive(Default)]
pub(super) struct Words<'a> {
    pub(super) prefix: Option<(Matching, &'a str)>,
    pub(super) cpus: Option<Vec<u32>>,
    /// At least one, which may be empty.
    pub(super) next_hops: Vec<NextHop>,
}

#[derive(Default)]
pub(super) struct NextHop {
    pub(super) via: Option<Via>,
    pub(super) dev: Option<String>,
    pub(super) weight: Option<u16>,
}

pub(super) struct Via {
    pub(super) address: IpAddr,
    /// Its family was given: `via inet6 ADDRESS`.
    pub(super) explicit: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Matching {
    Exact,
    Root,
    Match,
}

pub(super) struct Accept {
    pub(super) usage: &'static str,
    /// `root`, `match` and `exact` may stand before the prefix.
    pub(super) matching: bool,
    /// Several next hops, and weights, make sense.
    pub(super) adding: bool,
}

impl<'a> Words<'a> {
    pub(super) fn read(words: &[&'a str], accept: Accept) -> Result<Self, GrammarError> {
        let mut read = Self { next_hops: vec![NextHop::default()], ..Self::default() };
        // Behind the first `nexthop` every word is of a next hop, as in iproute2.
        let mut several = false;
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            let last = read.next_hops.len() - 1;
            let next_hop = &mut read.next_hops[last];
            match word {
                "via" => set_once(&mut next_hop.via, via(&mut words)?, "via")?,
                "dev" | "oif" => {
                    let name = value(&mut words, word, "the name of an interface")?;
                    set_once(&mut next_hop.dev, interface(name)?, "dev")?;
                }
                "weight" if accept.adding => {
                    let number = value(&mut words, word, "a number")?;
                    set_once(&mut next_hop.weight, weight(number)?, word)?;
                }
                "nexthop" if accept.adding => {
                    if several {
                        read.next_hops.push(NextHop::default());
                    } else if let Some(word) = next_hop.first_word() {
                        return Err(GrammarError::BeforeNextHop(word));
                    }
                    if read.next_hops.len() > NEXT_HOPS_MAX {
                        return Err(GrammarError::NextHops);
                    }
                    several = true;
                }
                word if several => {
                    let why = why_unsupported(word);
                    let usage = "nexthop via ADDRESS [dev INTERFACE] [weight NUMBER] …";
                    return Err(why.map_or_else(
                        || GrammarError::Unknown { word: word.to_owned(), usage },
                        |why| unsupported(word, why),
                    ));
                }
                "nexthop" => {
                    let why = "name one next hop with `via` and `dev`, or the prefix alone";
                    return Err(unsupported(word, why));
                }
                "cpu" => {
                    let cpus = value(&mut words, word, "a list of CPUs, for example 0-3,6,")?;
                    set_once(&mut read.cpus, parse_cpus(cpus)?, word)?;
                }
                "proto" | "protocol" => {
                    let name = value(&mut words, word, "the name of a protocol")?;
                    if ![protocol::XDP, "forwarder"].contains(&name) {
                        let why = "routes are made here under the name of forwarder";
                        return Err(unsupported("proto", why));
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
}

impl NextHop {
    fn first_word(&self) -> Option<&'static str> {
        let via = self.via.as_ref().map(|_| "via");
        let dev = self.dev.as_ref().map(|_| "dev");
        via.or(dev).or(self.weight.map(|_| "weight"))
    }
}

fn via<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<Via, GrammarError> {
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
    Ok(Via { address, explicit: given.is_some() })
}

fn weight(word: &str) -> Result<u16, GrammarError> {
    // Without this, "+3" would be a number.
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    let number = word.parse().ok().filter(|number| digits && (1..=WEIGHT_MAX).contains(number));
    number.ok_or_else(|| GrammarError::Weight(word.to_owned()))
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

/// Words of iproute2 that mean something we cannot do, and why.
fn why_unsupported(word: &str) -> Option<&'static str> {
    Some(match word {
        "metric" | "preference" | "priority" => "a prefix has one route here",
        "nhid" => "next hops are written out here",
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
        "weight" => "which next hop is told by `via` and `dev` alone",
        "pref" | "expires" | "pervasive" | "ttl-propagate" => {
            "a route here has a prefix and next hops, and nothing else"
        }
        "blackhole" | "unreachable" | "prohibit" | "throw" | "local" | "broadcast"
        | "multicast" | "anycast" | "nat" | "unicast" => {
            "routes here forward; leave the other types to Linux (`ip route`)"
        }
        _ => return None,
    })
}
