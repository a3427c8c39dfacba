//! What XDP would bypass: rules that Linux has for packets between our interfaces, and that never
//! see a packet that is forwarded before it is one of Linux's.
//!
//! Pure: the rules come from `netlink` and `dataplane`, who read them; what is found goes to
//! `preflight`, who refuses, and to the engine, who stops a family.

pub mod rules;
pub mod stops;

use std::{
    collections::BTreeSet,
    fmt,
    ops::{BitAnd, BitOr},
};

use crate::prefix::Family;

/// What a user can say that nobody needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// nftables, iptables of both kinds, BPF on netfilter's hooks; connection tracking by them.
    Netfilter,
    /// Filters and queueing disciplines.
    Tc,
    /// IPsec policies.
    Xfrm,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Netfilter, Self::Tc, Self::Xfrm];

    /// Its word in `--bypass`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Netfilter => "netfilter",
            Self::Tc => "tc",
            Self::Xfrm => "xfrm",
        }
    }
}

/// IPv4, IPv6, both or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Families {
    pub v4: bool,
    pub v6: bool,
}

impl Families {
    pub const V4: Self = Self { v4: true, v6: false };
    pub const V6: Self = Self { v4: false, v6: true };
    pub const BOTH: Self = Self { v4: true, v6: true };

    pub fn has(self, family: Family) -> bool {
        match family {
            Family::Inet => self.v4,
            Family::Inet6 => self.v6,
        }
    }

    /// As it reads behind a negation.
    pub fn or(self) -> &'static str {
        if self == Self::BOTH { "IPv4 or IPv6" } else { self.name() }
    }

    fn name(self) -> &'static str {
        match (self.v4, self.v6) {
            (true, true) => "IPv4 and IPv6",
            (true, false) => "IPv4",
            (false, true) => "IPv6",
            (false, false) => "nothing",
        }
    }

    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl BitOr for Families {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self { v4: self.v4 | other.v4, v6: self.v6 | other.v6 }
    }
}

impl BitAnd for Families {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self { v4: self.v4 & other.v4, v6: self.v6 & other.v6 }
    }
}

impl fmt::Display for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One thing that XDP would bypass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub kind: Kind,
    pub families: Families,
    /// For example "rule 4 (masquerade) of nftables chain ip nat postrouting".
    pub what: String,
    /// What removes it, for example "`nft delete rule ip nat postrouting handle 4`".
    pub remedy: String,
}

/// An interface that we forward on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    pub ifindex: u32,
    pub name: String,
}

/// Findings that a list of them names; of more it gives the number.
pub const LISTED_MAX: usize = 50;

/// Each kind once whose findings nobody has allowed.
pub fn kinds(findings: &[Finding]) -> BTreeSet<Kind> {
    findings.iter().map(|finding| finding.kind).collect()
}

/// "netfilter,tc", as `--bypass` takes it.
pub fn words(kinds: &BTreeSet<Kind>) -> String {
    kinds.iter().map(|kind| kind.word()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
