//! Sets of next hops: a route id each, its words, and the buckets of its groups.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use forwarder_common::{
    abi::{ADJACENCY_NONE, BUCKETS_MAX, BucketRange, ROUTE_IDS_FIRST, RouteId, RouteWord},
    verdict::Reason,
};

use super::{
    Table, TableError, Words,
    hops::Hops,
    ranges::Ranges,
    spread::{self, Share},
};
use crate::{
    ids::Ids,
    paths::{Hop, Member, Paths},
    rib::Rib,
};

#[derive(Debug)]
pub(super) struct Sets {
    ids: HashMap<Arc<Paths>, RouteId>,
    installed: HashMap<RouteId, InstalledSet>,
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

/// Several next hops, and the buckets that flows choose them by.
#[derive(Debug)]
struct Group {
    start: u32,
    /// The member that each bucket belongs to.
    homes: Vec<u16>,
    /// The member that each has.
    owners: Vec<u16>,
    /// The adjacency that lies in each.
    written: Vec<u32>,
}

impl Sets {
    pub(super) fn new(max: u32) -> Self {
        Self {
            ids: HashMap::new(),
            installed: HashMap::new(),
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

    pub(super) fn iter(&self) -> impl Iterator<Item = (RouteId, &Paths, u64)> + '_ {
        self.installed.iter().map(|(route, set)| (*route, &*set.paths, set.prefixes))
    }

    pub(super) fn hops(&self, route: RouteId) -> Vec<Hop> {
        self.installed.get(&route).map_or(Vec::new(), |set| set.paths.hops().collect())
    }

    /// One prefix more leads there. Words and all that they lead to are written before this returns.
    pub(super) fn take(
        &mut self,
        paths: &Arc<Paths>,
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
            .and_then(|()| self.make_groups(route, &paths, table))
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
        paths: &Paths,
        table: &mut impl Table,
    ) -> Result<(), TableError> {
        let Some(set) = self.installed.get_mut(&route) else { return Ok(()) };
        for members in paths.lists().filter(|members| members.len() > 1) {
            if set.groups.contains_key(members) {
                continue;
            }
            let weights: Vec<u16> = members.iter().map(|member| member.weight).collect();
            let size = spread::size(&weights);
            let start = self.buckets.take(size, || table.grace()).ok_or(TableError::Buckets)?;
            set.groups.insert(members.to_vec(), Group::new(start, &weights, size));
        }
        Ok(())
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

impl Group {
    fn new(start: u32, weights: &[u16], size: u32) -> Self {
        let homes = spread::homes(weights, size);
        let written = vec![UNWRITTEN; homes.len()];
        Self { start, owners: homes.clone(), homes, written }
    }

    fn size(&self) -> u32 {
        u32::try_from(self.homes.len()).unwrap_or(0)
    }

    /// At least one of the members can be used.
    fn update(
        &mut self,
        members: &[Member],
        hops: &Hops,
        table: &mut impl Table,
    ) -> Result<(), TableError> {
        let adjacencies: Vec<Option<u32>> =
            members.iter().map(|member| hops.adjacency(member.hop).ok()).collect();
        let share = |(member, way): (&Member, &Option<u32>)| Share {
            weight: member.weight,
            usable: way.is_some(),
        };
        let shares: Vec<Share> = members.iter().zip(&adjacencies).map(share).collect();
        self.owners = spread::spread(&self.homes, &shares, &self.owners);
        let adjacency = |owner: &u16| adjacencies.get(usize::from(*owner)).copied().flatten();
        let wanted = self.owners.iter().map(adjacency).map(|way| way.unwrap_or(ADJACENCY_NONE));
        write(self.start, &mut self.written, wanted, table)
    }

    /// Leads nowhere, so that its adjacencies can be used for others.
    fn clear(&mut self, table: &mut impl Table) -> Result<(), TableError> {
        write(self.start, &mut self.written, std::iter::repeat(ADJACENCY_NONE), table)
    }
}

/// In no bucket: what lies there is unknown before the first write.
const UNWRITTEN: u32 = u32::MAX;

/// Each bucket is one aligned store, and is recorded as soon as it is done.
fn write(
    start: u32,
    written: &mut [u32],
    wanted: impl Iterator<Item = u32>,
    table: &mut impl Table,
) -> Result<(), TableError> {
    for ((index, written), wanted) in (start..).zip(written).zip(wanted) {
        if *written != wanted {
            table.set_bucket(index, wanted)?;
            *written = wanted;
        }
    }
    Ok(())
}
