//! Rules of netfilter, of whatever tool, in the few terms that matter here: which interfaces and
//! family they are for, where they lead, and whether they do anything. And a walk over them, as a
//! packet between our interfaces may take it.
//!
//! Whatever a rule tests besides, a packet may pass the test: what is not known to be without
//! effect counts.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use super::{Families, Finding, Kind, Port};

/// Bytes of an interface's name as rules compare it, padded with zeros (`IFNAMSIZ`).
pub const NAME_LEN: usize = 16;
/// Chains that are walked, each time from another scope, before we give up.
pub(super) const WALKS_MAX: usize = 1 << 16;
/// Chains that lead to each other: the kernel's own limit is 16 (`NFT_JUMP_STACK_SIZE`).
pub(super) const DEPTH_MAX: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    pub chains: BTreeMap<ChainId, Chain>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId {
    /// As the tool has it: "ip", "inet", …
    pub family: String,
    pub table: String,
    pub name: String,
}

impl fmt::Display for ChainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { family, table, name } = self;
        write!(f, "{family} {table} {name}")
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// `None`: packets come here by other chains alone.
    pub entry: Option<Entry>,
    pub rules: Vec<Rule>,
}

/// Where forwarded packets enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub families: Families,
    /// What of the packets is told by interfaces: none, or those that it is bound to.
    pub bound: Option<(Direction, Vec<Which>)>,
    /// What happens at the chain's end is no mere acceptance.
    pub policy: Option<Named>,
}

/// What a finding says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub what: String,
    pub remedy: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// `what` has a place for what it does: see [`EFFECTS`].
    pub named: Named,
    pub steps: Vec<Step>,
}

/// Stands in [`Rule::named`] where the effects of the rule belong.
pub const EFFECTS: &str = "{}";

/// A condition or a deed of a rule. A condition that does not hold ends the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Goes on for packets that come in, or leave, by one of these; or by another than these.
    If {
        direction: Direction,
        which: Vec<Which>,
        negated: bool,
    },
    /// Goes on for packets of these families.
    Family(Families),
    /// Something that Linux would do, in the tool's word.
    Does(String),
    Goes(ChainId),
    /// What happens depends on an interface.
    Dispatch(Direction, Vec<(Which, Option<Verdict>)>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Does(String),
    Goes(ChainId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    In,
    Out,
}

/// An interface as a rule names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    Index(u32),
    /// The first bytes of the name, padded with zeros: with a zero at the end it is one name, else
    /// all names that begin so.
    Name(Vec<u8>),
}

impl Which {
    /// All interfaces of this very name.
    pub fn exactly(name: &str) -> Self {
        let mut bytes = name.as_bytes().to_vec();
        bytes.push(0);
        Self::Name(bytes)
    }

    fn is(&self, port: &Port) -> bool {
        match self {
            Self::Index(ifindex) => *ifindex == port.ifindex,
            Self::Name(first) => {
                let mut name = [0; NAME_LEN];
                let bytes = port.name.as_bytes();
                let len = bytes.len().min(NAME_LEN);
                name[..len].copy_from_slice(&bytes[..len]);
                name.get(..first.len()).is_some_and(|name| name == first)
            }
        }
    }
}

/// Extensions of iptables that only look at a packet. What looks at its connection, or keeps
/// count, is none of them.
pub const PURE_MATCHES: [&str; 31] = [
    "addrtype",
    "ah",
    "cgroup",
    "comment",
    "dccp",
    "devgroup",
    "dscp",
    "ecn",
    "esp",
    "eui64",
    "frag",
    "hl",
    "icmp",
    "icmp6",
    "iprange",
    "ipv6header",
    "length",
    "mac",
    "mark",
    "multiport",
    "owner",
    "physdev",
    "pkttype",
    "realm",
    "rpfilter",
    "sctp",
    "tcp",
    "tcpmss",
    "tos",
    "ttl",
    "udp",
];

/// What is bypassed of these rules between these interfaces.
pub fn findings(ruleset: &Ruleset, ports: &[Port]) -> Vec<Finding> {
    let mut walk = Walk { ruleset, ports, seen: HashSet::new(), found: BTreeMap::new() };
    for (id, chain) in &ruleset.chains {
        let Some(entry) = &chain.entry else { continue };
        let everything = vec![true; ports.len()];
        let mut scope =
            Scope { families: entry.families, ins: everything.clone(), outs: everything };
        if let Some((direction, which)) = &entry.bound {
            scope.narrow(*direction, ports, |port| which.iter().any(|which| which.is(port)));
        }
        if scope.is_empty() {
            continue;
        }
        if let Some(policy) = &entry.policy {
            walk.note(policy, scope.families, "");
        }
        walk.chain(id, &scope, 0);
    }
    let mut found: Vec<_> = walk.found.into_values().collect();
    found.sort_by_key(|found| found.order);
    found
        .into_iter()
        .map(|found| Finding {
            kind: Kind::Netfilter,
            families: found.families,
            what: found.named.what.replace(EFFECTS, &found.effects.join(", ")),
            remedy: found.named.remedy.clone(),
        })
        .collect()
}

/// Which packets are still meant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Scope {
    families: Families,
    /// By port.
    ins: Vec<bool>,
    outs: Vec<bool>,
}

impl Scope {
    fn narrow(&mut self, direction: Direction, ports: &[Port], holds: impl Fn(&Port) -> bool) {
        let side = match direction {
            Direction::In => &mut self.ins,
            Direction::Out => &mut self.outs,
        };
        for (is_meant, port) in side.iter_mut().zip(ports) {
            *is_meant &= holds(port);
        }
    }

    /// Nothing is forwarded to where it came from.
    fn is_empty(&self) -> bool {
        let is_pair = |at: usize| {
            self.ins[at] && self.outs.iter().enumerate().any(|(to, is_meant)| *is_meant && to != at)
        };
        self.families.is_empty() || !(0..self.ins.len()).any(is_pair)
    }
}

struct Found<'a> {
    /// As they were met.
    order: usize,
    named: &'a Named,
    families: Families,
    effects: Vec<String>,
}

struct Walk<'a> {
    ruleset: &'a Ruleset,
    ports: &'a [Port],
    seen: HashSet<(&'a ChainId, Scope)>,
    /// By the text, each once.
    found: BTreeMap<(&'a str, &'a str), Found<'a>>,
}

impl<'a> Walk<'a> {
    fn note(&mut self, named: &'a Named, families: Families, effect: &str) {
        let order = self.found.len();
        let found = self.found.entry((&named.what, &named.remedy)).or_insert_with(|| Found {
            order,
            named,
            families: Families::default(),
            effects: Vec::new(),
        });
        found.families = found.families | families;
        if !effect.is_empty() && !found.effects.iter().any(|known| known == effect) {
            found.effects.push(effect.to_owned());
        }
    }

    fn chain(&mut self, id: &'a ChainId, scope: &Scope, depth: usize) {
        if !self.seen.insert((id, scope.clone())) {
            return;
        }
        let Some(chain) = self.ruleset.chains.get(id) else { return };
        for rule in &chain.rules {
            self.rule(rule, scope.clone(), depth);
        }
    }

    fn rule(&mut self, rule: &'a Rule, mut scope: Scope, depth: usize) {
        for step in &rule.steps {
            match step {
                Step::If { direction, which, negated } => {
                    let is_one = |port: &Port| which.iter().any(|which| which.is(port));
                    scope.narrow(*direction, self.ports, |port| is_one(port) != *negated);
                }
                Step::Family(families) => scope.families = scope.families & *families,
                Step::Does(effect) => self.note(&rule.named, scope.families, effect),
                Step::Goes(chain) => self.go(rule, chain, &scope, depth),
                Step::Dispatch(direction, verdicts) => {
                    for (which, verdict) in verdicts {
                        let mut scope = scope.clone();
                        scope.narrow(*direction, self.ports, |port| which.is(port));
                        match verdict.as_ref().filter(|_| !scope.is_empty()) {
                            Some(Verdict::Does(effect)) => {
                                self.note(&rule.named, scope.families, effect);
                            }
                            Some(Verdict::Goes(chain)) => self.go(rule, chain, &scope, depth),
                            None => {}
                        }
                    }
                }
            }
            if scope.is_empty() {
                return;
            }
        }
    }

    fn go(&mut self, rule: &'a Rule, chain: &'a ChainId, scope: &Scope, depth: usize) {
        let is_known = self.ruleset.chains.contains_key(chain);
        if is_known && depth < DEPTH_MAX && self.seen.len() < WALKS_MAX {
            self.chain(chain, scope, depth + 1);
        } else {
            // It leads where we cannot follow.
            self.note(&rule.named, scope.families, "jump");
        }
    }
}
