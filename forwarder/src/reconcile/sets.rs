//! Sets of next hops: a route id each, its words, and the buckets of its groups.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use foldhash::fast::RandomState;
use forwarder_common::{
    abi::{BUCKETS_MAX, BucketRange, ROUTE_IDS_FIRST, RouteId, RouteWord},
    verdict::Reason,
};

use super::{
    Table, TableError, Words,
    group::{Group, Seed},
    hops::Hops,
    ranges::Ranges,
    spread,
};
use crate::{
    ids::Ids,
    paths::{Hop, Member, Paths},
    rib::Rib,
};

#[derive(Debug)]
pub(super) struct Sets {
    // Looked into for each prefix of a load.
    ids: HashMap<Arc<Paths>, RouteId, RandomState>,
    installed: HashMap<RouteId, InstalledSet, RandomState>,
    free: Ids,
    buckets: Ranges,
    /// How many there may be.
    max: u32,
}

#[derive(Debug)]
struct InstalledSet {
    paths: Arc<Paths>,
    /// Prefixes that lead here.
    prefixes: u64,
    /// `None` before the first is written.
    words: Option<Words>,
    /// By the next hops that they consist of: CPUs that have the same share a group.
    groups: BTreeMap<Vec<Member>, Group>,
}

impl Sets {
    pub(super) fn new(max: u32) -> Self {
        Self {
            ids: HashMap::default(),
            installed: HashMap::default(),
            free: Ids::new(ROUTE_IDS_FIRST, ROUTE_IDS_FIRST + max),
            buckets: Ranges::new(BUCKETS_MAX),
            max,
        }
    }

    pub(super) fn id(&self, paths: &Arc<Paths>) -> Option<RouteId> {
        self.ids.get(paths).copied()
    }

    pub(super) fn prefixes(&self, route: RouteId) -> u64 {
        self.installed.get(&route).map_or(0, |set| set.prefixes)
    }

    pub(super) fn paths(&self, route: RouteId) -> Option<&Paths> {
        self.installed.get(&route).map(|set| &*set.paths)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (RouteId, &Paths, u64)> + '_ {
        self.installed.iter().map(|(route, set)| (*route, &*set.paths, set.prefixes))
    }

    pub(super) fn hops(&self, route: RouteId) -> Vec<Hop> {
        self.installed.get(&route).map_or(Vec::new(), |set| set.paths.hops().collect())
    }

    /// One prefix more leads there. Words and all that they lead to are written before this returns.
    /// A set that is new keeps flows where they are in the one that the prefix has led to `before`.
    pub(super) fn take(
        &mut self,
        paths: &Arc<Paths>,
        before: Option<RouteId>,
        rib: &Rib,
        hops: &mut Hops,
        table: &mut impl Table,
    ) -> Result<RouteId, TableError> {
        if let Some(route) = self.ids.get(paths) {
            if let Some(set) = self.installed.get_mut(route) {
                set.prefixes += 1;
            }
            return Ok(*route);
        }
        let route = self.free.take(|| table.grace()).ok_or(TableError::RouteIds(self.max))?;
        let paths = Arc::clone(paths);
        self.ids.insert(Arc::clone(&paths), route);
        let set = InstalledSet {
            paths: Arc::clone(&paths),
            prefixes: 1,
            words: None,
            groups: BTreeMap::new(),
        };
        self.installed.insert(route, set);
        let written = paths
            .hops()
            .try_for_each(|hop| hops.take(hop, route, rib.way(hop), table))
            .and_then(|()| self.make_groups(route, before, &paths, table))
            .and_then(|()| self.update(route, hops, table));
        match written {
            Ok(()) => Ok(route),
            Err(error) => {
                self.give_back(route, hops);
                Err(error)
            }
        }
    }

    /// One prefix less leads there.
    pub(super) fn give_back(&mut self, route: RouteId, hops: &mut Hops) {
        let Some(set) = self.installed.get_mut(&route) else { return };
        set.prefixes -= 1;
        if set.prefixes > 0 {
            return;
        }
        if let Some(set) = self.installed.remove(&route) {
            self.ids.remove(&set.paths);
            self.free.give_back(route);
            for group in set.groups.values() {
                self.buckets.give_back(group.start, group.size());
            }
            for hop in set.paths.hops() {
                hops.release(hop, route);
            }
        }
    }

    fn make_groups(
        &mut self,
        route: RouteId,
        before: Option<RouteId>,
        paths: &Paths,
        table: &mut impl Table,
    ) -> Result<(), TableError> {
        for (cpu, members) in paths.keyed().filter(|(_, members)| members.len() > 1) {
            if self.installed.get(&route).is_some_and(|set| set.groups.contains_key(members)) {
                continue;
            }
            let seed = self.seed(before, cpu, members);
            let group = self.make_group(members, &seed, table).ok_or(TableError::Buckets)?;
            if let Some(set) = self.installed.get_mut(&route) {
                set.groups.insert(members.to_vec(), group);
            }
        }
        Ok(())
    }

    /// With as many buckets as before if it had more than it needs, so that none of them has to
    /// stand for several; but not where there are no more.
    fn make_group(
        &mut self,
        members: &[Member],
        seed: &Seed,
        table: &mut impl Table,
    ) -> Option<Group> {
        let weights: Vec<u16> = members.iter().map(|member| member.weight).collect();
        let needed = spread::size(&weights);
        let size = needed.max(seed.size());
        let larger = (size > needed).then(|| self.buckets.take(size, || table.grace())).flatten();
        if let Some(start) = larger {
            return Some(Group::new(start, &weights, size, seed));
        }
        let start = self.buckets.take(needed, || table.grace())?;
        Some(Group::new(start, &weights, needed, seed))
    }

    /// Where the flows are that a new group is to take over.
    fn seed(&self, before: Option<RouteId>, cpu: Option<u32>, members: &[Member]) -> Seed {
        let seed = || {
            let set = self.installed.get(&before?)?;
            let same = set.groups.get_key_value(members);
            same.or_else(|| set.groups.get_key_value(set.paths.of(cpu)))
        };
        seed().map_or_else(Seed::default, |(former, group)| Seed::of(group, former, members))
    }

    /// Makes buckets and words lead where the hops lead now. What is written is recorded, so after
    /// an error the same again does the rest.
    pub(super) fn update(
        &mut self,
        route: RouteId,
        hops: &Hops,
        table: &mut impl Table,
    ) -> Result<(), TableError> {
        let Some(InstalledSet { paths, words, groups, .. }) = self.installed.get_mut(&route) else {
            return Ok(());
        };
        for (members, group) in groups.iter_mut() {
            if members.iter().any(|member| hops.adjacency(member.hop).is_ok()) {
                group.update(members, hops, table)?;
            }
        }
        let mut wanted = Words::from(word(paths.members(), groups, hops));
        for (cpu, members) in paths.cpus() {
            let own = word(members, groups, hops);
            if own != wanted.all {
                wanted.on.insert(*cpu, own);
            }
        }
        if words.as_ref() != Some(&wanted) {
            table.set_words(route, &wanted)?;
            *words = Some(wanted);
        }
        // No word leads to these any more.
        for (members, group) in groups.iter_mut() {
            if members.iter().all(|member| hops.adjacency(member.hop).is_err()) {
                group.clear(table)?;
            }
        }
        Ok(())
    }
}

/// Where these next hops lead.
fn word(members: &[Member], groups: &BTreeMap<Vec<Member>, Group>, hops: &Hops) -> RouteWord {
    let ways = || members.iter().map(|member| hops.adjacency(member.hop));
    match members {
        [] => RouteWord::unusable(Reason::NoRoute),
        [only] => hops.adjacency(only.hop).map_or_else(RouteWord::unusable, RouteWord::via),
        [first, ..] => match groups.get(members) {
            Some(group) if ways().any(|way| way.is_ok()) => {
                RouteWord::group(BucketRange::new(group.start, group.size()))
            }
            // One that may yet come is more to the point than one that has failed.
            _ if ways().any(|way| way == Err(Reason::NeighbourPending)) => {
                RouteWord::unusable(Reason::NeighbourPending)
            }
            _ => RouteWord::unusable(hops.adjacency(first.hop).err().unwrap_or(Reason::Punt)),
        },
    }
}
