//! The maps as collections. A lookup goes the way of the programs.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
};

use forwarder_common::{
    abi::{Adjacency, BucketRange, Leads, ROUTE_NONE, RouteId, RouteWord},
    verdict::Reason,
};

use crate::{
    prefix::{Family, Prefix},
    reconcile::{Table, Words},
};

/// Whether it leads somewhere, and where.
pub(super) type Way = Result<Adjacency, Reason>;

#[derive(Debug, Default)]
pub(super) struct FakeTable {
    pub(super) fib: BTreeMap<Prefix, RouteId>,
    pub(super) locals: BTreeSet<Prefix>,
    pub(super) words: BTreeMap<RouteId, Words>,
    pub(super) buckets: BTreeMap<u32, u32>,
    pub(super) adjacencies: BTreeMap<u32, Adjacency>,
    /// Writes that succeed before one fails; `None`: none fails.
    pub(super) fails_after: Option<u32>,
    /// Prefixes that cannot be written, nor removed.
    pub(super) refused: BTreeSet<Prefix>,
    /// How many prefixes there is room for; `None`: for all.
    pub(super) room: Option<usize>,
    /// How many IPv4 prefixes can be marked as local.
    pub(super) room_for_locals: Option<usize>,
    /// Families whose packets all go up.
    pub(super) punted: BTreeSet<Family>,
    pub(super) graces: u32,
    /// Batches that packets see at one instant.
    pub(super) swings: u32,
    pub(super) writes: Writes,
    pub(super) life: Cell<Life>,
}

/// Prefixes that were looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Life {
    pub(super) looked: u32,
    pub(super) since_a_sign: u32,
    /// The longest time that no sign of life was given.
    pub(super) silence: u32,
}

/// How many there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Writes {
    pub(super) prefixes: usize,
    pub(super) words: usize,
    pub(super) buckets: usize,
    pub(super) adjacencies: usize,
}

impl FakeTable {
    fn write(&mut self) -> io::Result<()> {
        match &mut self.fails_after {
            Some(0) => {
                self.fails_after = None;
                Err(io::ErrorKind::StorageFull.into())
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// On CPU 0, for a flow of hash 0.
    pub(super) fn lookup(&self, address: IpAddr) -> Option<Way> {
        self.lookup_on(0, address, 0)
    }

    pub(super) fn lookup_on(&self, cpu: u32, address: IpAddr, hash: u32) -> Option<Way> {
        Some(self.follow(self.word(self.longest(address)?, cpu), hash))
    }

    /// Where flows of every bucket go; `None` where there is no route.
    pub(super) fn spread(&self, cpu: u32, address: IpAddr) -> Option<Vec<Way>> {
        let word = self.word(self.longest(address)?, cpu);
        Some((0..1024).map(|bits| self.follow(word, bits << 16)).collect())
    }

    /// Where flows may go, each way once; `None` where there is no route.
    pub(super) fn ways(&self, cpu: u32, address: IpAddr) -> Option<BTreeSet<Result<u32, Reason>>> {
        let word = self.word(self.longest(address)?, cpu);
        let indexes = match word.resolve() {
            Ok(Leads::Adjacency(index)) => [index].into(),
            Ok(Leads::Group(buckets)) => self.in_buckets(buckets),
            Err(reason) => return Some([Err(reason)].into()),
        };
        let way = |index| if index == 0 { Err(Reason::Punt) } else { Ok(index) };
        Some(indexes.into_iter().map(way).collect())
    }

    /// The adjacencies that lie there.
    fn in_buckets(&self, buckets: BucketRange) -> BTreeSet<u32> {
        let first = buckets.pick(0);
        // Behind the last the first comes again.
        let picks = (1..1024).map(|bits| buckets.pick(bits << 16)).take_while(|at| *at != first);
        let mut reached = BTreeSet::new();
        let mut last = None;
        for at in std::iter::once(first).chain(picks) {
            let index = self.buckets[&at];
            if last.replace(index) != Some(index) {
                reached.insert(index);
            }
        }
        reached
    }

    fn longest(&self, address: IpAddr) -> Option<RouteId> {
        let matching = self.fib.iter().filter(|(prefix, _)| prefix.contains(address));
        matching.max_by_key(|(prefix, _)| prefix.len()).map(|(_, route)| *route)
    }

    fn follow(&self, word: RouteWord, hash: u32) -> Way {
        let index = match word.resolve()? {
            Leads::Adjacency(index) => index,
            Leads::Group(buckets) => self.buckets[&buckets.pick(hash)],
        };
        if index == 0 { Err(Reason::Punt) } else { Ok(self.adjacencies[&index]) }
    }

    fn word(&self, route: RouteId, cpu: u32) -> RouteWord {
        let words = &self.words[&route];
        *words.on.get(&cpu).unwrap_or(&words.all)
    }

    /// What packets may come to by these words.
    fn reached(&self, words: &Words) -> BTreeSet<u32> {
        let mut reached = BTreeSet::new();
        for word in words.on.values().chain([&words.all]) {
            match word.resolve() {
                Ok(Leads::Adjacency(index)) => drop(reached.insert(index)),
                Ok(Leads::Group(buckets)) => reached.extend(self.in_buckets(buckets)),
                Err(_) => {}
            }
        }
        reached
    }

    /// Every adjacency that packets may come to now.
    fn in_use(&self) -> BTreeSet<u32> {
        let routes: BTreeSet<RouteId> = self.fib.values().copied().collect();
        routes.iter().flat_map(|route| self.reached(&self.words[route])).collect()
    }

    fn check(&self, adjacencies: &BTreeSet<u32>) {
        for index in adjacencies {
            assert!(self.adjacencies.contains_key(index), "adjacency {index} is not written");
        }
    }

    fn set(&mut self, prefix: Prefix, route: Option<RouteId>) {
        self.writes.prefixes += 1;
        match route {
            Some(route) => {
                let words = &self.words.get(&route).expect("a prefix leads to a route with words");
                self.check(&self.reached(words));
                self.fib.insert(prefix, route);
            }
            None => assert!(self.fib.remove(&prefix).is_some(), "{prefix} was not there"),
        }
    }
}

impl Table for FakeTable {
    fn route(&self, prefix: Prefix) -> Option<RouteId> {
        let Life { looked, since_a_sign, silence } = self.life.get();
        let since_a_sign = since_a_sign + 1;
        let silence = silence.max(since_a_sign);
        self.life.set(Life { looked: looked + 1, since_a_sign, silence });
        self.fib.get(&prefix).copied()
    }

    fn lookup(&self, destination: IpAddr) -> RouteId {
        let holds = |(prefix, _): &(&Prefix, &RouteId)| prefix.contains(destination);
        let longest = self.fib.iter().filter(holds).max_by_key(|(prefix, _)| prefix.len());
        longest.map_or(ROUTE_NONE, |(_, route)| *route)
    }

    fn prefixes(&self) -> Vec<Prefix> {
        self.fib.keys().copied().collect()
    }

    fn apply(&mut self, changes: &[(Prefix, Option<RouteId>)]) -> io::Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        self.write()?;
        let each: BTreeSet<Prefix> = changes.iter().map(|(prefix, _)| *prefix).collect();
        assert_eq!(each.len(), changes.len(), "a prefix comes twice");
        if changes.iter().any(|(prefix, _)| self.refused.contains(prefix)) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let is_new = |change: &&(Prefix, _)| !self.fib.contains_key(&change.0);
        let new = changes.iter().filter(is_new).count();
        if new > 0 && self.room.is_some_and(|room| self.fib.len() + new > room) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        for (prefix, route) in changes {
            assert_ne!(self.fib.get(prefix).copied(), *route, "{prefix} is that already");
            self.set(*prefix, *route);
        }
        Ok(())
    }

    fn apply_at_once(&mut self, changes: &[(Prefix, Option<RouteId>)]) -> io::Result<()> {
        self.swings += 1;
        self.apply(changes)
    }

    fn set_local(&mut self, prefix: Prefix, is_local: bool) -> io::Result<()> {
        self.write()?;
        let is_full = |room| self.locals.iter().filter(|it| it.is_ipv4()).count() >= room;
        if is_local && prefix.is_ipv4() && self.room_for_locals.is_some_and(is_full) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if is_local {
            self.locals.insert(prefix)
        } else {
            self.locals.remove(&prefix)
        };
        Ok(())
    }

    fn set_words(&mut self, route: RouteId, words: &Words) -> io::Result<()> {
        self.write()?;
        self.writes.words += 1;
        let reached = self.reached(words);
        assert!(!reached.contains(&0), "a word leads to an empty bucket");
        self.check(&reached);
        self.words.insert(route, words.clone());
        Ok(())
    }

    fn set_bucket(&mut self, index: u32, adjacency: u32) -> io::Result<()> {
        self.write()?;
        self.writes.buckets += 1;
        if adjacency != 0 {
            self.check(&[adjacency].into());
        }
        let had = self.buckets.insert(index, adjacency).is_some_and(|had| had != 0);
        let is_lost = had && adjacency == 0 && self.in_use().contains(&0);
        assert!(!is_lost, "a bucket was emptied that flows come to");
        Ok(())
    }

    fn set_adjacency(&mut self, index: u32, adjacency: Adjacency) -> io::Result<()> {
        self.write()?;
        self.writes.adjacencies += 1;
        let is_new = !self.adjacencies.contains_key(&index);
        assert!(is_new || !self.in_use().contains(&index), "an adjacency in use was changed");
        self.adjacencies.insert(index, adjacency);
        Ok(())
    }

    fn set_punt_all(&mut self, family: Family, is_on: bool) {
        if is_on {
            self.punted.insert(family);
        } else {
            self.punted.remove(&family);
        }
    }

    fn grace(&mut self) -> bool {
        self.graces += 1;
        true
    }

    fn show_life(&mut self) {
        self.life.get_mut().since_a_sign = 0;
    }
}
