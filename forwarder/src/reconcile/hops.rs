//! The adjacencies of next hops: each hop has one while it leads somewhere, whoever uses it.

use std::collections::{BTreeSet, HashMap};

use forwarder_common::{
    abi::{ADJACENCIES_MAX, ADJACENCY_NONE, RouteId},
    verdict::Reason,
};

use super::{Table, TableError};
use crate::{
    ids::Ids,
    paths::Hop,
    rib::{Dirty, Way},
};

#[derive(Debug)]
pub(super) struct Hops {
    installed: HashMap<Hop, InstalledHop>,
    /// Adjacencies of before, which words or buckets may still have.
    replaced: Vec<(Hop, u32)>,
    adjacencies: Ids,
}

#[derive(Debug)]
struct InstalledHop {
    way: Way,
    /// [`ADJACENCY_NONE`] where the way is none.
    adjacency: u32,
    /// The sets that it is in.
    users: BTreeSet<RouteId>,
}

impl Hops {
    pub(super) fn new() -> Self {
        let adjacencies = Ids::new(ADJACENCY_NONE + 1, ADJACENCIES_MAX);
        Self { installed: HashMap::new(), replaced: Vec::new(), adjacencies }
    }

    pub(super) fn way(&self, hop: Hop) -> Option<Way> {
        self.installed.get(&hop).map(|installed| installed.way)
    }

    pub(super) fn users(&self) -> impl Iterator<Item = (Hop, &BTreeSet<RouteId>)> + '_ {
        self.installed.iter().map(|(hop, installed)| (*hop, &installed.users))
    }

    /// The index of a hop's adjacency, or the reason why there is none.
    pub(super) fn adjacency(&self, hop: Hop) -> Result<u32, Reason> {
        let installed = self.installed.get(&hop).ok_or(Reason::NeighbourPending)?;
        installed.way.map(|_| installed.adjacency)
    }

    pub(super) fn dirty(&self, dirty: &Dirty) -> Vec<Hop> {
        let is_dirty =
            |hop: &Hop| dirty.all || dirty.links.contains(&hop.ifindex) || dirty.hops.contains(hop);
        self.installed.keys().filter(|hop| is_dirty(hop)).copied().collect()
    }

    /// Writes where a hop leads now. The sets that are to be updated for it come back; until they
    /// are, its old adjacency stays.
    pub(super) fn update(
        &mut self,
        hop: Hop,
        way: Way,
        table: &mut impl Table,
    ) -> Result<Vec<RouteId>, TableError> {
        let Some(installed) = self.installed.get_mut(&hop) else { return Ok(Vec::new()) };
        if way == installed.way {
            return Ok(Vec::new());
        }
        let adjacency = write(&mut self.adjacencies, way, table)?;
        let replaced = std::mem::replace(&mut installed.adjacency, adjacency);
        installed.way = way;
        if replaced != ADJACENCY_NONE {
            self.replaced.push((hop, replaced));
        }
        Ok(installed.users.iter().copied().collect())
    }

    /// After all sets but these have been updated.
    pub(super) fn give_back_replaced(&mut self, failed: &BTreeSet<RouteId>) {
        let Self { installed, replaced, adjacencies } = self;
        replaced.retain(|(hop, adjacency)| {
            let users = installed.get(hop).map(|hop| &hop.users);
            let is_written_somewhere = users.is_some_and(|users| !users.is_disjoint(failed));
            if !is_written_somewhere {
                adjacencies.give_back(*adjacency);
            }
            is_written_somewhere
        });
    }

    /// A set begins to use a hop, which leads there.
    pub(super) fn take(
        &mut self,
        hop: Hop,
        user: RouteId,
        way: Way,
        table: &mut impl Table,
    ) -> Result<(), TableError> {
        if let Some(installed) = self.installed.get_mut(&hop) {
            installed.users.insert(user);
            return Ok(());
        }
        let adjacency = write(&mut self.adjacencies, way, table)?;
        self.installed.insert(hop, InstalledHop { way, adjacency, users: [user].into() });
        Ok(())
    }

    /// A set does not use a hop any more.
    pub(super) fn release(&mut self, hop: Hop, user: RouteId) {
        let Some(installed) = self.installed.get_mut(&hop) else { return };
        installed.users.remove(&user);
        if installed.users.is_empty() {
            if installed.adjacency != ADJACENCY_NONE {
                self.adjacencies.give_back(installed.adjacency);
            }
            self.installed.remove(&hop);
        }
    }
}

/// A new adjacency, or [`ADJACENCY_NONE`] where there is no way.
fn write(adjacencies: &mut Ids, way: Way, table: &mut impl Table) -> Result<u32, TableError> {
    let Ok(adjacency) = way else { return Ok(ADJACENCY_NONE) };
    let index = adjacencies.take(|| table.grace()).ok_or(TableError::Adjacencies)?;
    match table.set_adjacency(index, adjacency) {
        Ok(()) => Ok(index),
        Err(error) => {
            adjacencies.give_back(index);
            Err(error.into())
        }
    }
}
