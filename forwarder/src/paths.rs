//! Where a prefix leads: next hops with their weights, the same for all CPUs or not. Equal ones are
//! kept once, however many prefixes lead there.

use std::{
    collections::{BTreeMap, HashSet},
    hash::Hash,
    net::IpAddr,
    sync::Arc,
};

use foldhash::fast::RandomState;

/// One way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hop {
    /// Interface index of the egress.
    pub ifindex: u32,
    /// `None`: connected, each destination is a neighbour itself.
    pub via: Option<IpAddr>,
}

/// A next hop of several, and how many flows it gets in comparison with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    pub hop: Hop,
    pub weight: u16,
}

/// A set of next hops: what shares a route id. Lists are in the order of hops, and have none twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Paths {
    members: Vec<Member>,
    /// CPUs with next hops of their own; none of these lists is empty.
    cpus: BTreeMap<u32, Vec<Member>>,
}

impl Paths {
    pub fn single(hop: Hop) -> Self {
        Self { members: vec![Member { hop, weight: 1 }], cpus: BTreeMap::new() }
    }

    /// The same for all CPUs; no member may be there twice.
    pub fn several(mut members: Vec<Member>) -> Self {
        members.sort_unstable();
        Self { members, cpus: BTreeMap::new() }
    }

    /// Of every CPU without next hops of its own. May be empty: there Linux decides.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// CPUs with next hops of their own.
    pub fn cpus(&self) -> &BTreeMap<u32, Vec<Member>> {
        &self.cpus
    }

    /// The CPUs that share next hops of their own, each list of next hops once.
    pub fn by_cpus(&self) -> Vec<(Vec<u32>, &[Member])> {
        let mut lists: Vec<(Vec<u32>, &[Member])> = Vec::new();
        for (cpu, own) in &self.cpus {
            match lists.iter_mut().find(|(_, members)| members == own) {
                Some((cpus, _)) => cpus.push(*cpu),
                None => lists.push((vec![*cpu], own)),
            }
        }
        lists
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.cpus.is_empty()
    }

    /// The interface, where destinations are neighbours themselves.
    pub fn connected(&self) -> Option<u32> {
        match self.members[..] {
            [Member { hop: Hop { ifindex, via: None }, .. }] => Some(ifindex),
            _ => None,
        }
    }

    /// Of all CPUs; some perhaps several times.
    pub fn hops(&self) -> impl Iterator<Item = Hop> + '_ {
        self.lists().flatten().map(|member| member.hop)
    }

    /// Those of all CPUs, each once.
    pub fn all(&self) -> Vec<Member> {
        let mut all: Vec<Member> = self.lists().flatten().copied().collect();
        all.sort_unstable();
        all.dedup_by_key(|member| member.hop);
        all
    }

    /// The next hops of every CPU, some perhaps several times.
    pub fn lists(&self) -> impl Iterator<Item = &[Member]> {
        self.keyed().map(|(_, members)| members)
    }

    /// Likewise, and for whom: a CPU, or all others.
    pub fn keyed(&self) -> impl Iterator<Item = (Option<u32>, &[Member])> {
        let own = self.cpus.iter().map(|(cpu, members)| (Some(*cpu), &members[..]));
        std::iter::once((None, &self.members[..])).chain(own)
    }

    /// Where packets go on one CPU, or on those without next hops of their own.
    pub fn of(&self, cpu: Option<u32>) -> &[Member] {
        let own = cpu.and_then(|cpu| self.cpus.get(&cpu));
        own.unwrap_or(&self.members)
    }

    /// Of one CPU, or of those without next hops of their own.
    pub fn own(&self, cpu: Option<u32>) -> &[Member] {
        match cpu {
            None => &self.members,
            Some(cpu) => self.cpus.get(&cpu).map_or(&[], Vec::as_slice),
        }
    }

    /// Likewise, to be replaced. No member may be there twice.
    pub fn set(&mut self, cpu: Option<u32>, mut members: Vec<Member>) {
        members.sort_unstable();
        match cpu {
            None => self.members = members,
            Some(cpu) if members.is_empty() => drop(self.cpus.remove(&cpu)),
            Some(cpu) => drop(self.cpus.insert(cpu, members)),
        }
    }
}

/// What is in use, each once.
#[derive(Debug)]
pub struct Interned<T> {
    values: HashSet<Arc<T>, RandomState>,
    /// When there are so many, those that nobody uses any more go.
    sweep_at: usize,
}

/// Fewer are not worth a sweep.
const SWEEP_MIN: usize = 1024;

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { values: HashSet::default(), sweep_at: 0 }
    }
}

impl<T: Eq + Hash> Interned<T> {
    pub fn intern(&mut self, value: T) -> Arc<T> {
        if let Some(known) = self.values.get(&value) {
            return Arc::clone(known);
        }
        if self.values.len() >= self.sweep_at {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = SWEEP_MIN.max(2 * self.values.len());
        }
        let value = Arc::new(value);
        self.values.insert(Arc::clone(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(ifindex: u32, weight: u16) -> Member {
        Member { hop: Hop { ifindex, via: "198.18.1.2".parse().ok() }, weight }
    }

    #[test]
    fn cpus_with_the_same_next_hops_are_told_together() {
        let mut paths = Paths::default();
        paths.set(None, vec![member(2, 1)]);
        for (cpu, ifindex) in [(0, 3), (1, 4), (2, 3), (5, 3)] {
            paths.set(Some(cpu), vec![member(ifindex, 1)]);
        }
        let (three, four) = ([member(3, 1)], [member(4, 1)]);
        assert_eq!(paths.by_cpus(), [(vec![0, 2, 5], &three[..]), (vec![1], &four[..])]);
        assert_eq!(paths.lists().count(), 5);
        paths.set(Some(1), Vec::new());
        assert_eq!(paths.by_cpus().len(), 1);
    }

    #[test]
    fn the_order_in_which_next_hops_are_given_makes_no_difference() {
        let (mut one, mut other) = (Paths::default(), Paths::default());
        one.set(None, vec![member(2, 1), member(3, 2)]);
        other.set(None, vec![member(3, 2), member(2, 1)]);
        let mut interned = Interned::default();
        assert!(Arc::ptr_eq(&interned.intern(one), &interned.intern(other)));
    }

    #[test]
    fn what_nobody_uses_any_more_goes() {
        let mut interned = Interned::default();
        let kept = interned.intern(Paths::single(member(1, 1).hop));
        for ifindex in 0..10_000 {
            interned.intern(Paths::single(member(ifindex, 1).hop));
        }
        assert!(interned.values.len() <= SWEEP_MIN, "{}", interned.values.len());
        assert!(Arc::ptr_eq(&interned.intern(Paths::single(member(1, 1).hop)), &kept));
    }
}
