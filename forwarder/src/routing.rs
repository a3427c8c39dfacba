//! Routes on command, over the rib and what is installed: each command is done whole or not at all.

mod audit;
mod change;
mod shown;

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use foldhash::fast::RandomState;
use forwarder_common::abi::{ROUTE_DISCARD, ROUTE_IDS_FIRST, ROUTE_IDS_MAX, ROUTE_PUNT};

use self::change::{Conflict, Without};
pub use self::{
    audit::{Answer, Difference, edges},
    shown::mac_text,
};
use crate::{
    config::cpus,
    engine::Refusal,
    netlink::event::Event,
    next_hop,
    paths::{Member, Paths},
    prefix::{Family, Prefix},
    reconcile::{Installed, Instants, Prefixes, Table, TableError},
    rib::{Abilities, Dirty, Rib},
    route::{Existing, NextHop, PrefixMatch, Route, RouteEntry, Selector, WEIGHT_MAX},
};

/// Sets of next hops: as many as there are route ids for them.
pub const SETS_MAX: u32 = ROUTE_IDS_MAX - ROUTE_IDS_FIRST;

/// How many routes there may be, and which CPUs.
#[derive(Clone, Debug)]
pub struct Limits {
    pub routes4: u32,
    pub routes6: u32,
    /// Sets of next hops: [`SETS_MAX`] at most.
    pub sets: u32,
    /// Those that this machine may ever have.
    pub cpus: Vec<u32>,
}

/// Routes of each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub routes4: u64,
    pub routes6: u64,
}

#[derive(Debug)]
pub struct Routing<T> {
    rib: Rib,
    installed: Installed,
    table: T,
    limits: Limits,
    counts: Counts,
    /// What the kernel has not let us do: tried again at every occasion.
    unfinished: Dirty,
}

impl<T: Table> Routing<T> {
    pub fn new(rib: Rib, mut table: T, limits: Limits) -> Result<Self, TableError> {
        let installed = Installed::new(&mut table, limits.sets)?;
        let (counts, unfinished) = (Counts::default(), Dirty::default());
        Ok(Self { rib, installed, table, limits, counts, unfinished })
    }

    pub fn rib(&self) -> &Rib {
        &self.rib
    }

    pub fn installed(&self) -> &Installed {
        &self.installed
    }

    pub fn table_mut(&mut self) -> &mut T {
        &mut self.table
    }

    /// Prefixes that have a route of ours, and those that have one of Linux's.
    pub fn counts(&self) -> Counts {
        let mirror = self.rib.mirror();
        Counts {
            routes4: self.counts.routes4 + mirror.count(Family::Inet),
            routes6: self.counts.routes6 + mirror.count(Family::Inet6),
        }
    }

    /// Takes in what the kernel said, in the order in which it was said.
    pub fn apply(&mut self, events: impl IntoIterator<Item = Event>) -> Result<(), TableError> {
        let mut dirty = Dirty::default();
        for event in events {
            self.rib.apply(event, &mut dirty);
        }
        self.follow(dirty)
    }

    /// Takes in what the kernel said, for [`Self::catch_up`] to do.
    pub fn note(&mut self, event: Event) {
        self.rib.apply(event, &mut self.unfinished);
    }

    /// Takes in whether Linux spreads flows by a hash that is not ours.
    pub fn set_hashes_otherwise(&mut self, family: Family, is_so: bool) -> Result<(), TableError> {
        let mut dirty = Dirty::default();
        self.rib.set_hashes_otherwise(family, is_so, &mut dirty);
        if dirty.is_empty() { Ok(()) } else { self.follow(dirty) }
    }

    /// Does what has been noted, and what could not be done before.
    pub fn catch_up(&mut self) -> Result<(), TableError> {
        self.follow(Dirty::default())
    }

    /// Takes in what the ports can do now.
    pub fn set_abilities(
        &mut self,
        ports: impl IntoIterator<Item = (u32, Abilities)>,
    ) -> Result<(), TableError> {
        let mut dirty = Dirty::default();
        for (ifindex, abilities) in ports {
            self.rib.set_abilities(ifindex, abilities, &mut dirty);
        }
        self.follow(dirty)
    }

    /// Whether all packets of a family go up, since some that are for this host might be forwarded
    /// otherwise: one of its addresses could not be written.
    pub fn is_blind(&self, family: Family) -> bool {
        // What lies below an address of this host, and could not be taken away, leads elsewhere.
        let is_lost = |prefix: &Prefix| {
            prefix.family() == family && (self.rib.is_hidden(*prefix) || self.is_stale(*prefix))
        };
        self.unfinished.prefixes.iter().any(is_lost)
    }

    /// Whether packets may go another way than Linux's route of this prefix says, since it could
    /// not be written, or not be taken away.
    fn is_stale(&self, prefix: Prefix) -> bool {
        if self.rib.route(prefix).is_some() {
            return false;
        }
        match self.table.route(prefix) {
            None => self.rib.mirror().contains(prefix),
            Some(written) => ![ROUTE_PUNT, ROUTE_DISCARD].contains(&written),
        }
    }

    /// Whether all packets of a family go up, and why does not matter here.
    fn is_punted(&self, family: Family) -> bool {
        self.is_blind(family) || self.rib.mirror().rules(family).next().is_some()
    }

    /// Does what is dirty, and what could not be done before.
    fn follow(&mut self, mut dirty: Dirty) -> Result<(), TableError> {
        dirty.merge(std::mem::take(&mut self.unfinished));
        let Self { installed, rib, table, .. } = self;
        let done = installed.reconcile(rib, &dirty, table, Prefixes::AsManyAsPossible);
        let done = done.map_err(|unfinished| {
            self.unfinished = unfinished.dirty;
            unfinished.error
        });
        for family in Family::ALL {
            let is_punted = self.is_punted(family);
            self.table.set_punt_all(family, is_punted);
        }
        done
    }

    pub fn add(&mut self, route: Route, existing: Existing) -> Result<RouteEntry, Refusal> {
        let (prefix, cpus) = (route.prefix, route.cpus.clone());
        self.load(vec![route], existing).map_err(|refusal| Refusal::new(refusal.message))?;
        let cpu = cpus.and_then(|cpus| cpus.first().copied());
        let paths = self.rib.route(prefix).filter(|paths| !paths.own(cpu).is_empty());
        let paths = paths.ok_or_else(|| Refusal::new("the route is gone again"))?;
        let of_it = |entry: &RouteEntry| match (&entry.route.cpus, cpu) {
            (Some(cpus), Some(cpu)) => cpus.contains(&cpu),
            (of_entry, cpu) => of_entry.is_none() && cpu.is_none(),
        };
        let entry = self.entries(prefix, paths).into_iter().find(of_it);
        entry.ok_or_else(|| Refusal::new("the route is gone again"))
    }

    /// All of these routes, or none. A refusal names one that is at fault.
    pub fn load(&mut self, routes: Vec<Route>, existing: Existing) -> Result<u64, Refusal> {
        let count = routes.len() as u64;
        let resolved = self.resolve_all(&routes)?;
        // Side by side in the table, they are side by side in memory; and of two routes of one
        // prefix the first in the file comes first.
        let mut order: Vec<(Prefix, usize)> =
            routes.iter().enumerate().map(|(at, route)| (route.prefix, at)).collect();
        order.sort_unstable();
        let mut change = Commanded::default();
        let (existing, instants) = if existing == Existing::Flush {
            self.remove_all(&mut change);
            (Existing::Refuse, Instants::One)
        } else {
            (existing, Instants::OneEach)
        };
        let removed = change.before.len();
        for (_, at) in order {
            let added = self.add_to_rib(&routes[at], &resolved, existing, &mut change, removed);
            if let Err(message) = added {
                self.undo(change);
                return Err(Refusal { message, index: Some(at as u64) });
            }
        }
        drop(routes);
        self.install_at(change, instants).map(|()| count)
    }

    /// The next hops of routes, each set of them looked at once.
    fn resolve_all(&mut self, routes: &[Route]) -> Result<Resolved, Refusal> {
        let mut resolved = Resolved::default();
        for (index, route) in (0..).zip(routes) {
            let at_fault = |message| Refusal { message, index: Some(index) };
            self.check_cpus(route.prefix, route.cpus.as_deref()).map_err(at_fault)?;
            if let Entry::Vacant(unknown) = resolved.entry(Arc::as_ptr(&route.next_hops)) {
                let members = self.resolve(route).map_err(at_fault)?;
                let alone = change::with(None, &members, None, Existing::Refuse).ok();
                let alone = alone.map(|paths| self.rib.intern(paths));
                unknown.insert(Ways { members, alone, _kept: Arc::clone(&route.next_hops) });
            }
        }
        Ok(resolved)
    }

    pub fn delete(&mut self, selector: &Selector) -> Result<RouteEntry, Refusal> {
        let Some(PrefixMatch::Exact(prefix)) = selector.prefix else {
            return Err(Refusal::new("say which prefix: 'route del PREFIX'"));
        };
        let Some(before) = self.rib.route(prefix).cloned() else {
            return Err(Refusal::new(format!("no such route: {prefix}")));
        };
        let matches = |member: &Member| {
            let dev = self.name(member.hop.ifindex);
            selector.matches_next_hop(member.hop.via, Some(&dev))
        };
        let rest = match change::without(&before, selector.cpus.as_deref(), matches) {
            Without::Rest(rest) => rest,
            Without::NothingOwn { cpu } => {
                let message = format!("CPU {cpu} has no next hops of its own for {prefix}");
                return Err(Refusal::new(message));
            }
            Without::NoMatch => return Err(self.no_such_next_hop(prefix, &before, selector)),
            Without::Ambiguous(members) => {
                return Err(Refusal::new(format!(
                    "{prefix}: several next hops match ({}): say which one with 'via' and 'dev', \
                     or take the route away without either",
                    self.describe(&members)
                )));
            }
        };
        let gone = self.entries(prefix, &before);
        let mut change = Commanded::default();
        if rest.is_empty() {
            self.remove(prefix, &mut change);
        } else {
            self.insert(prefix, rest, &mut change);
        }
        self.install(change)?;
        gone.into_iter().next().ok_or_else(|| Refusal::new("the route was empty"))
    }

    /// Whole routes: one next hop that matches is enough.
    pub fn flush(&mut self, selector: &Selector) -> Result<u64, Refusal> {
        let matching: Vec<Prefix> = self.matching(selector).map(|(prefix, _)| prefix).collect();
        let mut change = Commanded::default();
        for prefix in &matching {
            self.remove(*prefix, &mut change);
        }
        self.install(change)?;
        Ok(matching.len() as u64)
    }

    /// Everything that can be known before the first write.
    fn add_to_rib(
        &mut self,
        route: &Route,
        resolved: &Resolved,
        existing: Existing,
        change: &mut Commanded,
        removed: usize,
    ) -> Result<(), String> {
        let prefix = route.prefix;
        let Some(ways) = resolved.get(&Arc::as_ptr(&route.next_hops)) else {
            return Err(format!("{prefix}: its next hops are unknown"));
        };
        let before = self.rib.route(prefix).cloned();
        match (&ways.alone, &before, &route.cpus) {
            (Some(alone), None, None) => self.insert_interned(prefix, Arc::clone(alone), change),
            (_, before, cpus) => {
                let with =
                    change::with(before.as_deref(), &ways.members, cpus.as_deref(), existing);
                let paths = with.map_err(|conflict| match conflict {
                    Conflict::There { .. } if change.has_added(prefix, removed) => {
                        format!("route {prefix} is there twice")
                    }
                    conflict => self.conflict(prefix, conflict),
                })?;
                self.insert(prefix, paths, change);
            }
        }
        match self.limits.exceeded_by(self.counts).filter(|_| before.is_none()) {
            Some(message) => Err(message),
            None => Ok(()),
        }
    }

    /// Its next hops as members, or why there is one that cannot be.
    pub fn resolve(&self, route: &Route) -> Result<Vec<Member>, String> {
        if route.next_hops.is_empty() {
            return Err(format!("{}: a route needs a next hop", route.prefix));
        }
        let member = |next_hop: &NextHop| {
            let weight = next_hop.weight;
            if !(1..=WEIGHT_MAX).contains(&weight) {
                return Err(format!(
                    "{weight} is not a weight: write a number from 1 to {WEIGHT_MAX}"
                ));
            }
            let hop = next_hop::resolve(&self.rib, route.prefix, next_hop);
            Ok(Member { hop: hop.map_err(|refusal| refusal.message)?, weight })
        };
        route.next_hops.iter().map(member).collect()
    }

    /// A CPU that is offline may have next hops of its own: it may come.
    fn check_cpus(&self, prefix: Prefix, cpus: Option<&[u32]>) -> Result<(), String> {
        let possible = &self.limits.cpus;
        match cpus {
            Some([]) => Err(format!("{prefix}: 'cpu' needs the number of a CPU")),
            Some(cpus) => {
                cpus::check_cpus(cpus, possible, possible).map_err(|error| error.to_string())
            }
            None => Ok(()),
        }
    }

    fn remove_all(&mut self, change: &mut Commanded) {
        let all: Vec<Prefix> = self.rib.routes_from(None).map(|(prefix, _)| prefix).collect();
        for prefix in all {
            self.remove(prefix, change);
        }
    }

    fn install(&mut self, change: Commanded) -> Result<(), Refusal> {
        self.install_at(change, Instants::OneEach)
    }

    /// Makes what is in the rib installed, or takes it back.
    fn install_at(&mut self, change: Commanded, instants: Instants) -> Result<(), Refusal> {
        let Self { installed, rib, table, .. } = self;
        let how = Prefixes::AllOrNone(instants);
        let done = installed.reconcile(rib, &change.dirty, table, how);
        done.map_err(|error| {
            self.undo(change);
            Refusal::new(format!("{error}: nothing was changed"))
        })
    }

    /// In the rib: nothing of it was installed.
    fn undo(&mut self, change: Commanded) {
        for (prefix, before) in change.before.into_iter().rev() {
            let mut ignored = Commanded::default();
            match before {
                Some(paths) => self.insert_interned(prefix, paths, &mut ignored),
                None => self.remove(prefix, &mut ignored),
            }
        }
    }

    fn insert(&mut self, prefix: Prefix, paths: Paths, change: &mut Commanded) {
        let paths = self.rib.intern(paths);
        self.insert_interned(prefix, paths, change);
    }

    fn insert_interned(&mut self, prefix: Prefix, paths: Arc<Paths>, change: &mut Commanded) {
        let before = self.rib.insert(prefix, paths, &mut change.dirty);
        if before.is_none() {
            self.counts.add(prefix);
        }
        change.before.push((prefix, before));
    }

    fn remove(&mut self, prefix: Prefix, change: &mut Commanded) {
        if let Some(before) = self.rib.remove(prefix, &mut change.dirty) {
            self.counts.subtract(prefix);
            change.before.push((prefix, Some(before)));
        }
    }
}

/// By where they lie.
type Resolved = HashMap<*const [NextHop], Ways, RandomState>;

/// What the next hops of routes are.
struct Ways {
    members: Vec<Member>,
    /// Of a route that has no others; `None` where that cannot be.
    alone: Option<Arc<Paths>>,
    /// As long as it is kept, nothing else lies there.
    _kept: Arc<[NextHop]>,
}

/// What a command has changed in the rib, and not yet in the maps.
#[derive(Debug, Default)]
struct Commanded {
    dirty: Dirty,
    /// In the order of the changes.
    before: Vec<(Prefix, Option<Arc<Paths>>)>,
}

impl Commanded {
    /// Whether it is one of those that were added, after so many were removed.
    fn has_added(&self, prefix: Prefix, removed: usize) -> bool {
        let added = self.before.get(removed..).unwrap_or_default();
        // A load goes through prefixes in their order.
        added.binary_search_by_key(&prefix, |(changed, _)| *changed).is_ok()
    }
}

impl Counts {
    fn of(&mut self, prefix: Prefix) -> &mut u64 {
        if prefix.is_ipv4() { &mut self.routes4 } else { &mut self.routes6 }
    }

    fn add(&mut self, prefix: Prefix) {
        *self.of(prefix) += 1;
    }

    fn subtract(&mut self, prefix: Prefix) {
        *self.of(prefix) -= 1;
    }
}

impl Limits {
    fn exceeded_by(&self, counts: Counts) -> Option<String> {
        let full = |family, option, max| {
            format!("the {family} table is full ({max} routes): start the daemon with '{option} N'")
        };
        if counts.routes4 > self.routes4.into() {
            return Some(full("IPv4", "--routes4-max", self.routes4));
        }
        (counts.routes6 > self.routes6.into()).then(|| full("IPv6", "--routes6-max", self.routes6))
    }
}

#[cfg(test)]
mod tests;
