//! Desired minus installed: the only way by which routes get into maps.
//!
//! What is new is written before anything points to it, and what is old is unlinked before it is
//! given back, so a packet sees the old way or the new one.

mod group;
mod hops;
mod ranges;
mod sets;
mod spread;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
};

use forwarder_common::{
    abi::{
        ADJACENCIES_MAX, Adjacency, BUCKETS_MAX, ROUTE_DISCARD, ROUTE_FILTERED, ROUTE_LOCAL,
        ROUTE_NONE, ROUTE_PUNT, RouteId, RouteWord,
    },
    verdict::Reason,
};

use self::{hops::Hops, sets::Sets};
use crate::{
    netlink::event::Skip,
    paths::{Hop, Paths},
    prefix::{Family, Prefix},
    rib::{Dirty, Lead, Rib, Target, Way},
};

/// The maps that routes lie in.
pub trait Table {
    /// What is written for this very prefix.
    fn route(&self, prefix: Prefix) -> Option<RouteId>;
    /// What a packet to this address finds.
    fn lookup(&self, destination: IpAddr) -> RouteId;
    /// Every prefix for which something is written.
    fn prefixes(&self) -> Vec<Prefix>;
    /// Writes or, for `None`, removes: all of them, or after an error none. No prefix comes twice.
    fn apply(&mut self, changes: &[(Prefix, Option<RouteId>)]) -> io::Result<()>;
    /// Likewise; where there is room for it, every packet sees all of them or none.
    fn apply_at_once(&mut self, changes: &[(Prefix, Option<RouteId>)]) -> io::Result<()>;
    /// Marks a prefix, or unmarks it, as one whose addresses are no sources to forward from.
    fn set_local(&mut self, prefix: Prefix, is_local: bool) -> io::Result<()>;
    fn set_words(&mut self, route: RouteId, words: &Words) -> io::Result<()>;
    fn set_bucket(&mut self, index: u32, adjacency: u32) -> io::Result<()>;
    fn set_adjacency(&mut self, index: u32, adjacency: Adjacency) -> io::Result<()>;
    /// Passes everything of a family up, or looks at its routes again. Cannot fail: there is
    /// nothing left to do if it did.
    fn set_punt_all(&mut self, family: Family, is_on: bool);
    /// Returns when every packet that was on its way has left; `false` where it cannot know.
    fn grace(&mut self) -> bool;
    /// Called now and then in a large change.
    fn show_life(&mut self);
}

/// The copies of a route's word: one for all CPUs, but for some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    pub all: RouteWord,
    pub on: BTreeMap<u32, RouteWord>,
}

impl From<RouteWord> for Words {
    fn from(all: RouteWord) -> Self {
        Self { all, on: BTreeMap::new() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error(
        "all {0} sets of next hops are in use: let routes share them, or remove routes that need one of their own"
    )]
    RouteIds(u32),
    #[error("all {} adjacencies are in use", ADJACENCIES_MAX - 1)]
    Adjacencies,
    #[error(
        "all {BUCKETS_MAX} buckets are in use: too many routes have several next hops of their own"
    )]
    Buckets,
    #[error("cannot install {prefix}: {error}")]
    Prefix { prefix: Prefix, error: io::Error },
    #[error("cannot install {count} prefixes: {error}")]
    Prefixes { count: usize, error: io::Error },
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
    fn note(&mut self, error: TableError) {
        self.first.get_or_insert(error);
    }

    fn note_hops(&mut self, hops: impl IntoIterator<Item = Hop>, error: TableError) {
        self.dirty.hops.extend(hops);
        self.note(error);
    }

    fn note_prefix(&mut self, prefix: Prefix, error: TableError) {
        self.dirty.prefixes.push(prefix);
        self.note(error);
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

/// What is to become of prefixes when one of them cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefixes {
    /// Nothing is changed. For commands, which change nothing but prefixes.
    AllOrNone(Instants),
    /// The others are written.
    AsManyAsPossible,
}

/// When packets see changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instants {
    /// Each change by itself.
    OneEach,
    /// All of them together, if there is room for a second table.
    One,
}

/// What we have written. What a prefix leads to is the table's to know.
#[derive(Debug)]
pub struct Installed {
    hops: Hops,
    sets: Sets,
    /// Prefixes whose addresses are marked as no sources.
    locals: BTreeSet<Prefix>,
    /// Sets whose words or buckets could not all be written.
    unfinished: BTreeSet<RouteId>,
}

/// The route of a prefix that is left to Linux.
fn left(skip: Skip) -> RouteId {
    match skip {
        Skip::Blackhole | Skip::Unreachable | Skip::Prohibit | Skip::Throw => ROUTE_DISCARD,
        _ => ROUTE_PUNT,
    }
}

/// A prefix that does not lead where it should.
struct Change {
    prefix: Prefix,
    before: Option<RouteId>,
    /// Counted as in use already.
    wanted: Option<RouteId>,
}

impl Installed {
    /// Nothing but the four routes that every table has. `sets_max` is how many sets of next hops
    /// there may be.
    pub fn new(table: &mut impl Table, sets_max: u32) -> Result<Self, TableError> {
        table.set_words(ROUTE_PUNT, &RouteWord::unusable(Reason::Punt).into())?;
        table.set_words(ROUTE_LOCAL, &RouteWord::unusable(Reason::Local).into())?;
        table.set_words(ROUTE_NONE, &RouteWord::unusable(Reason::NoRoute).into())?;
        table.set_words(ROUTE_DISCARD, &RouteWord::unusable(Reason::Discard).into())?;
        table.set_words(ROUTE_FILTERED, &RouteWord::unusable(Reason::Filtered).into())?;
        let (hops, sets) = (Hops::new(), Sets::new(sets_max));
        Ok(Self { hops, sets, locals: BTreeSet::new(), unfinished: BTreeSet::new() })
    }

    /// Makes what is dirty as the rib wants it. The same again with what is unfinished is safe,
    /// since all that was written is recorded.
    pub fn reconcile(
        &mut self,
        rib: &Rib,
        dirty: &Dirty,
        table: &mut impl Table,
        prefixes: Prefixes,
    ) -> Result<(), Unfinished> {
        let mut failures = Failures::default();
        if prefixes == Prefixes::AsManyAsPossible {
            self.update_hops(rib, dirty, table, &mut failures);
        }
        self.update_prefixes(rib, dirty, table, prefixes, &mut failures);
        failures.into_result()
    }

    /// The next hops that routes lead over, and how many prefixes lead over each.
    pub fn hops(&self) -> impl Iterator<Item = (Hop, u64)> + '_ {
        self.hops
            .users()
            .map(|(hop, sets)| (hop, sets.iter().map(|route| self.sets.prefixes(*route)).sum()))
    }

    /// The set of next hops that has this id.
    pub fn paths(&self, route: RouteId) -> Option<&Paths> {
        self.sets.paths(route)
    }

    /// The sets of next hops that routes lead to, and how many prefixes lead to each.
    pub fn sets(&self) -> impl Iterator<Item = (RouteId, &Paths, u64)> + '_ {
        self.sets.iter()
    }

    pub fn way(&self, hop: Hop) -> Option<Way> {
        self.hops.way(hop)
    }

    /// New adjacencies first, then each set that has one, then the old ones are given back.
    fn update_hops(
        &mut self,
        rib: &Rib,
        dirty: &Dirty,
        table: &mut impl Table,
        failures: &mut Failures,
    ) {
        let mut affected = std::mem::take(&mut self.unfinished);
        for hop in self.hops.dirty(dirty) {
            match self.hops.update(hop, rib.way(hop), table) {
                Ok(users) => affected.extend(users),
                Err(error) => failures.note_hops([hop], error),
            }
        }
        for route in affected {
            if let Err(error) = self.sets.update(route, &self.hops, table) {
                failures.note_hops(self.sets.hops(route), error);
                self.unfinished.insert(route);
            }
        }
        self.hops.give_back_replaced(&self.unfinished);
    }

    fn update_prefixes(
        &mut self,
        rib: &Rib,
        dirty: &Dirty,
        table: &mut impl Table,
        prefixes: Prefixes,
        failures: &mut Failures,
    ) {
        let mut changes = self.changes(rib, dirty, table, prefixes, failures);
        if prefixes != Prefixes::AsManyAsPossible && failures.first.is_some() {
            self.abandon(&changes);
            return;
        }
        if changes.is_empty() {
            return;
        }
        let all: Vec<_> = changes.iter().map(|it| (it.prefix, it.wanted)).collect();
        let applied = match prefixes {
            Prefixes::AllOrNone(Instants::One) => table.apply_at_once(&all),
            _ => table.apply(&all),
        };
        if let Err(error) = applied {
            if prefixes != Prefixes::AsManyAsPossible {
                let error = match all[..] {
                    [(prefix, _)] => TableError::Prefix { prefix, error },
                    _ => TableError::Prefixes { count: all.len(), error },
                };
                failures.note(error);
                self.abandon(&changes);
                return;
            }
            changes.retain(|change| {
                let Change { prefix, wanted, .. } = *change;
                let applied = table.apply(&[(prefix, wanted)]);
                if let Err(error) = applied {
                    let error = TableError::Prefix { prefix, error };
                    failures.note_prefix(prefix, error);
                    self.give_back(wanted);
                    return false;
                }
                true
            });
        }
        for Change { prefix, before, wanted } in changes {
            self.give_back(before);
            self.mark(prefix, wanted == Some(ROUTE_LOCAL), table, failures);
        }
    }

    /// Everything that prefixes are to lead to is there afterwards. What is for this host comes
    /// first: it must not be forwarded for want of room.
    fn changes(
        &mut self,
        rib: &Rib,
        dirty: &Dirty,
        table: &mut impl Table,
        how: Prefixes,
        failures: &mut Failures,
    ) -> Vec<Change> {
        let prefixes = if dirty.all {
            in_order(table.prefixes().into_iter().chain(rib.prefixes()).collect::<Vec<_>>().into())
        } else {
            in_order(Cow::Borrowed(&dirty.prefixes))
        };
        let mut locals = Vec::new();
        let mut others = Vec::new();
        for (done, prefix) in prefixes.iter().copied().enumerate() {
            if done % PREFIXES_BETWEEN_SIGNS == 0 {
                table.show_life();
            }
            if how != Prefixes::AsManyAsPossible && failures.first.is_some() {
                break;
            }
            let before = table.route(prefix);
            let wanted = match rib.target(prefix) {
                None => None,
                Some(Target::Local) => Some(ROUTE_LOCAL),
                Some(Target::Lead(Lead::Left(skip))) => Some(left(skip)),
                Some(Target::Lead(Lead::Via(paths))) => match self.sets.id(&paths) {
                    Some(route) if before == Some(route) => before,
                    _ => match self.sets.take(&paths, before, rib, &mut self.hops, table) {
                        Ok(route) => Some(route),
                        Err(error) => {
                            failures.note_prefix(prefix, error);
                            if how != Prefixes::AsManyAsPossible {
                                continue;
                            }
                            // Whatever a shorter prefix has, its packets must not take.
                            Some(ROUTE_PUNT)
                        }
                    },
                },
            };
            let is_local = wanted == Some(ROUTE_LOCAL);
            if is_local || wanted == before {
                // Before it is written; or what a try has left that failed.
                self.mark(prefix, is_local, table, failures);
            }
            if wanted != before {
                let changes = if is_local { &mut locals } else { &mut others };
                changes.push(Change { prefix, before, wanted });
            }
        }
        locals.append(&mut others);
        locals
    }

    /// Marks a prefix of the local table, or takes the mark from one that is none.
    fn mark(
        &mut self,
        prefix: Prefix,
        is_local: bool,
        table: &mut impl Table,
        failures: &mut Failures,
    ) {
        if is_local == self.locals.contains(&prefix) {
            return;
        }
        match table.set_local(prefix, is_local) {
            Ok(()) if is_local => drop(self.locals.insert(prefix)),
            Ok(()) => drop(self.locals.remove(&prefix)),
            Err(error) => {
                let error = TableError::Prefix { prefix, error };
                failures.note_prefix(prefix, error);
            }
        }
    }

    fn abandon(&mut self, changes: &[Change]) {
        for change in changes {
            self.give_back(change.wanted);
        }
    }

    fn give_back(&mut self, route: Option<RouteId>) {
        if let Some(route) = route {
            self.sets.give_back(route, &mut self.hops);
        }
    }
}

/// Each once, and side by side what lies side by side in memory. Those of a load are so already.
fn in_order(mut prefixes: Cow<'_, [Prefix]>) -> Cow<'_, [Prefix]> {
    if !prefixes.is_sorted_by(|one, other| one < other) {
        let all = prefixes.to_mut();
        all.sort_unstable();
        all.dedup();
    }
    prefixes
}
