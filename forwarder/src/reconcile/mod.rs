//! Desired minus installed: the only way by which routes get into maps.
//!
//! What is new is written before anything points to it, and what is old is unlinked before it is
//! given back, so a packet sees the old way or the new one.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
};

use forwarder_common::{
    abi::{
        ADJACENCIES_MAX, ADJACENCY_NONE, Adjacency, ROUTE_IDS_FIRST, ROUTE_IDS_MAX, ROUTE_LOCAL,
        ROUTE_PUNT, RouteId, RouteWord,
    },
    verdict::Reason,
};

use crate::{
    ids::Ids,
    prefix::Prefix,
    rib::{Dirty, Hop, Rib, Target, Way},
};

/// The maps that routes lie in.
pub trait Table {
    fn insert(&mut self, prefix: Prefix, route: RouteId) -> io::Result<()>;
    fn remove(&mut self, prefix: Prefix) -> io::Result<()>;
    /// Marks a prefix, or unmarks it, as one whose addresses are no sources to forward from.
    fn set_local(&mut self, prefix: Prefix, is_local: bool) -> io::Result<()>;
    /// On every CPU.
    fn set_word(&mut self, route: RouteId, word: RouteWord) -> io::Result<()>;
    fn set_adjacency(&mut self, index: u32, adjacency: Adjacency) -> io::Result<()>;
    /// Returns when every packet that was on its way has left; `false` where it cannot know.
    fn grace(&mut self) -> bool;
    /// Called now and then in a large change.
    fn show_life(&mut self);
}

#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("all {} sets of next hops are in use", ROUTE_IDS_MAX - ROUTE_IDS_FIRST)]
    RouteIds,
    #[error("all {} adjacencies are in use", ADJACENCIES_MAX - 1)]
    Adjacencies,
    #[error("cannot install {prefix}: {error}")]
    Prefix { prefix: Prefix, error: io::Error },
    #[error("cannot write a map: {0}")]
    Map(io::Error),
}

// Not its source: the message has the cause, and whoever prints both would print it twice.
impl From<io::Error> for TableError {
    fn from(error: io::Error) -> Self {
        Self::Map(error)
    }
}

/// What could not be done, and why the first of it could not.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unfinished {
    pub error: TableError,
    pub dirty: Dirty,
}

#[derive(Debug, Default)]
struct Failures {
    first: Option<TableError>,
    dirty: Dirty,
}

impl Failures {
    fn note(&mut self, result: Result<(), TableError>, keep: impl FnOnce(&mut Dirty) -> bool) {
        if let Err(error) = result {
            keep(&mut self.dirty);
            self.first.get_or_insert(error);
        }
    }

    fn into_result(self) -> Result<(), Unfinished> {
        match self.first {
            Some(error) => Err(Unfinished { error, dirty: self.dirty }),
            None => Ok(()),
        }
    }
}

/// A large change takes seconds: the lease must not run out meanwhile.
const PREFIXES_BETWEEN_SIGNS: usize = 4096;

#[derive(Debug)]
struct InstalledHop {
    route: RouteId,
    way: Way,
    /// [`ADJACENCY_NONE`] where the way is none.
    adjacency: u32,
    /// Prefixes that lead here.
    prefixes: u64,
}

/// What we have written.
#[derive(Debug)]
pub struct Installed {
    prefixes: BTreeMap<Prefix, Target>,
    hops: HashMap<Hop, InstalledHop>,
    routes: Ids,
    adjacencies: Ids,
}

impl Installed {
    /// Nothing but the two routes that every table has.
    pub fn new(table: &mut impl Table) -> Result<Self, TableError> {
        table.set_word(ROUTE_PUNT, RouteWord::unusable(Reason::Punt))?;
        table.set_word(ROUTE_LOCAL, RouteWord::unusable(Reason::Local))?;
        Ok(Self {
            prefixes: BTreeMap::new(),
            hops: HashMap::new(),
            routes: Ids::new(ROUTE_IDS_FIRST, ROUTE_IDS_MAX),
            adjacencies: Ids::new(ADJACENCY_NONE + 1, ADJACENCIES_MAX),
        })
    }

    /// Makes what is dirty as the rib wants it. One thing that fails keeps nothing else from being
    /// done; the same again with what is unfinished is safe, since all that was written is recorded.
    pub fn reconcile(
        &mut self,
        rib: &Rib,
        dirty: &Dirty,
        table: &mut impl Table,
    ) -> Result<(), Unfinished> {
        let mut failures = Failures::default();
        let is_dirty =
            |hop: &Hop| dirty.all || dirty.links.contains(&hop.ifindex) || dirty.hops.contains(hop);
        let hops: Vec<Hop> = self.hops.keys().filter(|hop| is_dirty(hop)).copied().collect();
        for hop in hops {
            let result = self.update_hop(rib, hop, table);
            failures.note(result, |unfinished| unfinished.hops.insert(hop));
        }
        let all: BTreeSet<Prefix>;
        let prefixes = if dirty.all {
            all = self.prefixes.keys().copied().chain(rib.prefixes()).collect();
            &all
        } else {
            &dirty.prefixes
        };
        // What is for this host must not be forwarded for want of room, so it comes first.
        let (locals, others): (Vec<Prefix>, Vec<Prefix>) =
            prefixes.iter().partition(|prefix| rib.target(**prefix) == Some(Target::Local));
        for (done, prefix) in locals.into_iter().chain(others).enumerate() {
            if done % PREFIXES_BETWEEN_SIGNS == 0 {
                table.show_life();
            }
            let result = self.update_prefix(rib, prefix, table);
            failures.note(result, |unfinished| unfinished.prefixes.insert(prefix));
        }
        failures.into_result()
    }

    /// Hops that routes lead over, with their route ids and where they lead.
    pub fn hops(&self) -> impl Iterator<Item = (Hop, RouteId, Way, u64)> + '_ {
        self.hops.iter().map(|(hop, it)| (*hop, it.route, it.way, it.prefixes))
    }

    pub fn way(&self, hop: Hop) -> Option<Way> {
        self.hops.get(&hop).map(|installed| installed.way)
    }

    fn update_prefix(
        &mut self,
        rib: &Rib,
        prefix: Prefix,
        table: &mut impl Table,
    ) -> Result<(), TableError> {
        let (wanted, installed) = (rib.target(prefix), self.prefixes.get(&prefix).copied());
        if wanted == installed {
            return Ok(());
        }
        let failed = |error| TableError::Prefix { prefix, error };
        match wanted {
            Some(Target::Local) => {
                table.insert(prefix, ROUTE_LOCAL).map_err(failed)?;
                table.set_local(prefix, true).map_err(failed)?;
            }
            Some(Target::Hop(hop)) => {
                let route = self.take_hop(rib, hop, table)?;
                if let Err(error) = table.insert(prefix, route) {
                    self.give_back_hop(hop);
                    return Err(failed(error));
                }
            }
            None => table.remove(prefix).map_err(failed)?,
        }
        match wanted {
            Some(target) => self.prefixes.insert(prefix, target),
            None => self.prefixes.remove(&prefix),
        };
        match installed {
            Some(Target::Local) => table.set_local(prefix, false).map_err(failed)?,
            Some(Target::Hop(hop)) => self.give_back_hop(hop),
            None => {}
        }
        Ok(())
    }

    fn take_hop(
        &mut self,
        rib: &Rib,
        hop: Hop,
        table: &mut impl Table,
    ) -> Result<RouteId, TableError> {
        if !self.hops.contains_key(&hop) {
            let route = self.routes.take(|| table.grace()).ok_or(TableError::RouteIds)?;
            let way = Err(Reason::NeighbourPending);
            let unused = InstalledHop { route, way, adjacency: ADJACENCY_NONE, prefixes: 0 };
            self.hops.insert(hop, unused);
            let written = table
                .set_word(route, RouteWord::unusable(Reason::NeighbourPending))
                .map_err(TableError::from)
                .and_then(|()| self.update_hop(rib, hop, table));
            if let Err(error) = written {
                self.forget_hop(hop);
                return Err(error);
            }
        }
        let Some(installed) = self.hops.get_mut(&hop) else { return Err(TableError::RouteIds) };
        installed.prefixes += 1;
        Ok(installed.route)
    }

    fn update_hop(
        &mut self,
        rib: &Rib,
        hop: Hop,
        table: &mut impl Table,
    ) -> Result<(), TableError> {
        let way = rib.way(hop);
        let Some(installed) = self.hops.get_mut(&hop) else { return Ok(()) };
        if way == installed.way {
            return Ok(());
        }
        let (adjacency, word) = match way {
            Ok(way) => {
                let taken = self.adjacencies.take(|| table.grace());
                let index = taken.ok_or(TableError::Adjacencies)?;
                if let Err(error) = table.set_adjacency(index, way) {
                    self.adjacencies.give_back(index);
                    return Err(error.into());
                }
                (index, RouteWord::via(index))
            }
            Err(reason) => (ADJACENCY_NONE, RouteWord::unusable(reason)),
        };
        let (unlinked, result) = match table.set_word(installed.route, word) {
            Ok(()) => {
                installed.way = way;
                (std::mem::replace(&mut installed.adjacency, adjacency), Ok(()))
            }
            Err(error) => (adjacency, Err(error.into())),
        };
        if unlinked != ADJACENCY_NONE {
            self.adjacencies.give_back(unlinked);
        }
        result
    }

    fn give_back_hop(&mut self, hop: Hop) {
        if let Some(installed) = self.hops.get_mut(&hop) {
            installed.prefixes -= 1;
            if installed.prefixes == 0 {
                self.forget_hop(hop);
            }
        }
    }

    fn forget_hop(&mut self, hop: Hop) {
        if let Some(installed) = self.hops.remove(&hop) {
            self.routes.give_back(installed.route);
            if installed.adjacency != ADJACENCY_NONE {
                self.adjacencies.give_back(installed.adjacency);
            }
        }
    }
}
