//! Routes of the main table, nexthop objects and rules, as the kernel has them.

use serde::{Deserialize, Serialize};

use crate::paths::{Hop, Member};

/// One route of a prefix. Linux may have several for it, of which the first that can be used counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelRoute {
    /// `RTA_PRIORITY`: the lowest comes first.
    pub metric: u32,
    /// Not zero: it holds for packets with this TOS alone, and comes before those for all.
    pub tos: u8,
    /// Who made it (`RTPROT_*`).
    pub protocol: u8,
    pub next: Next,
    /// Why its packets are left to Linux, whatever its next hops are.
    pub skip: Option<Skip>,
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// The nexthop object with this id: it changes without its routes.
    Object(u32),
    /// In the kernel's order; none where the route's type needs none.
    Members(Vec<Member>),
}

/// Where a new route stands among those of its prefix that have the same metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    First,
    Last,
    /// In the place of the first of them.
    Replace,
}

/// A nexthop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nexthop {
    pub id: u32,
    pub way: NexthopWay,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NexthopWay {
    Hop(Hop),
    /// Ids of other objects, and their weights.
    Group(Vec<(u32, u16)>),
    Skip(Skip),
}

/// A policy rule that is none of the three which every machine has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    pub is_ipv4: bool,
    pub priority: u32,
    /// As `ip rule` would write it, in short.
    pub text: String,
}

macro_rules! skips {
    ($($(#[$doc:meta])* $name:ident, $label:literal, $sentence:literal;)*) => {
        /// Why a route of Linux's is not forwarded in XDP: its packets go up, and shorter prefixes
        /// do not get them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Skip {
            $($(#[$doc])* #[serde(rename = $label)] $name,)*
        }

        impl Skip {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// One word for JSON.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }
        }
    };
}

skips! {
    Blackhole, "blackhole", "Linux drops what goes there";
    Unreachable, "unreachable", "Linux answers that the host is unreachable";
    Prohibit, "prohibit", "Linux answers that it is prohibited";
    Throw, "throw", "Linux looks in the next table";
    Type, "type", "a type of route that only Linux knows";
    Encapsulation, "encap", "encapsulates packets";
    Tos, "tos", "holds for one TOS alone";
    Source, "source", "holds for some source addresses alone";
    Mtu, "mtu", "has an MTU of its own";
    Expires, "expires", "runs out by itself";
    Ambiguous, "ambiguous", "several routes with one metric, between which Linux chooses";
    Members, "members", "has too many next hops";
    Egress, "egress", "has next hops on interfaces that the forwarder was not given";
    Hash, "hash",
        "Linux spreads flows by a hash that is not ours (`sysctl net.ipv4.fib_multipath_hash_policy`, `net.ipv6...`)";
    Nexthop, "nexthop", "its nexthop object is not known";
    Room, "room", "there is no room left for its next hops";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_skip_has_a_word_of_its_own_that_json_has_too() {
        for (at, skip) in Skip::ALL.iter().enumerate() {
            assert_eq!(serde_json::to_value(skip).unwrap(), skip.label(), "{skip:?}");
            assert!(Skip::ALL[..at].iter().all(|other| other.label() != skip.label()));
        }
    }
}
