//! Routes on command, over the rib and what is installed: each command is done whole or not at all.

use std::{collections::HashSet, fmt::Write as _, net::IpAddr};

use forwarder_common::verdict::Reason;

use crate::{
    engine::Refusal,
    netlink::event::{Event, NeighbourState},
    next_hop,
    prefix::Prefix,
    reconcile::{Installed, Table, TableError},
    rib::{Abilities, Dirty, Hop, Rib, Target},
    route::{
        Existing, NeighbourEntry, NextHop, PrefixMatch, Route, RouteEntry, RouteState, Selector,
    },
};

/// How many routes there may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub routes4: u32,
    pub routes6: u32,
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
        let installed = Installed::new(&mut table)?;
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

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes in what the kernel said, in the order in which it was said.
    pub fn apply(&mut self, events: impl IntoIterator<Item = Event>) -> Result<(), TableError> {
        let mut dirty = Dirty::default();
        for event in events {
            self.rib.apply(event, &mut dirty);
        }
        self.follow(dirty)
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

    /// Whether packets to this host might be forwarded, since one of its addresses could not be
    /// written.
    pub fn is_blind(&self) -> bool {
        let mut unfinished = self.unfinished.prefixes.iter();
        unfinished.any(|prefix| self.rib.target(*prefix) == Some(Target::Local))
    }

    /// Does what is dirty, and what could not be done before.
    fn follow(&mut self, mut dirty: Dirty) -> Result<(), TableError> {
        dirty.merge(std::mem::take(&mut self.unfinished));
        self.installed.reconcile(&self.rib, &dirty, &mut self.table).map_err(|unfinished| {
            self.unfinished = unfinished.dirty;
            unfinished.error
        })
    }

    pub fn add(&mut self, route: Route, existing: Existing) -> Result<RouteEntry, Refusal> {
        let prefix = route.prefix;
        self.load(vec![route], existing).map_err(|refusal| Refusal::new(refusal.message))?;
        let hop = self.rib.route(prefix).ok_or_else(|| Refusal::new("the route is gone again"))?;
        Ok(self.entry(prefix, hop))
    }

    /// All of these routes, or none.
    pub fn load(&mut self, routes: Vec<Route>, existing: Existing) -> Result<u64, Refusal> {
        let hops = self.check(&routes, existing)?;
        let count = hops.len() as u64;
        let mut dirty = Dirty::default();
        let mut undo = Vec::with_capacity(hops.len());
        for (route, hop) in routes.iter().zip(hops) {
            undo.push((route.prefix, self.rib.route(route.prefix)));
            self.insert(route.prefix, hop, &mut dirty);
        }
        let Err(error) = self.installed.reconcile(&self.rib, &dirty, &mut self.table) else {
            return Ok(count);
        };
        for (prefix, before) in undo.into_iter().rev() {
            match before {
                Some(hop) => self.insert(prefix, hop, &mut dirty),
                None => {
                    self.remove(prefix, &mut dirty);
                }
            }
        }
        let message = match self.installed.reconcile(&self.rib, &dirty, &mut self.table) {
            Ok(()) => format!("{error}: nothing was changed"),
            Err(again) => format!("{error}, and undoing it failed: {again}"),
        };
        Err(Refusal::new(message))
    }

    pub fn delete(&mut self, selector: &Selector) -> Result<RouteEntry, Refusal> {
        let Some(PrefixMatch::Exact(prefix)) = selector.prefix else {
            return Err(Refusal::new("say which prefix: 'route del PREFIX'"));
        };
        let hop = self.rib.route(prefix).filter(|hop| selector.matches(&self.route(prefix, *hop)));
        let Some(hop) = hop else {
            return Err(Refusal::new(self.no_such_route(prefix, selector)));
        };
        let entry = self.entry(prefix, hop);
        self.remove_all(&[prefix])?;
        Ok(entry)
    }

    pub fn flush(&mut self, selector: &Selector) -> Result<u64, Refusal> {
        let matching: Vec<Prefix> = self.matching(selector).map(|(prefix, _)| prefix).collect();
        self.remove_all(&matching)?;
        Ok(matching.len() as u64)
    }

    pub fn show(&self, selector: &Selector) -> Vec<RouteEntry> {
        self.matching(selector).map(|(prefix, hop)| self.entry(prefix, hop)).collect()
    }

    /// The route that a packet to this destination takes; `None` where Linux decides.
    pub fn get(&self, destination: IpAddr) -> Option<RouteEntry> {
        if self.rib.is_local(destination) {
            return None;
        }
        let (prefix, hop) = self.rib.longest_match(destination)?;
        let host = Hop { via: hop.via.or(Some(destination)), ..hop };
        let mut entry = self.entry(prefix, hop);
        if hop.via.is_none() {
            entry.state = self.state(host);
        }
        Some(entry)
    }

    /// The next hops that routes lead over, and what the kernel knows of them.
    pub fn neighbours(&self) -> Vec<NeighbourEntry> {
        let with_gateway = self.installed.hops().filter_map(|(hop, _, _, routes)| {
            let neighbour = self.rib.neighbour(hop);
            let state = neighbour.map_or(NeighbourState::None, |neighbour| neighbour.state);
            Some(NeighbourEntry {
                address: hop.via?,
                dev: self.name(hop.ifindex),
                mac: neighbour.and_then(|neighbour| neighbour.mac).map(mac_text),
                nud: state.name().to_owned(),
                routes,
            })
        });
        let mut entries: Vec<NeighbourEntry> = with_gateway.collect();
        entries.sort_by(|a, b| (a.address, &a.dev).cmp(&(b.address, &b.dev)));
        entries
    }

    /// Routes that do not forward for now, connected ones aside.
    pub fn waiting(&self) -> u64 {
        let waits =
            |(hop, _, way, _): &(Hop, u32, _, u64)| hop.via.is_some() && Result::is_err(way);
        self.installed.hops().filter(waits).map(|(_, _, _, routes)| routes).sum()
    }

    /// Next hops that the kernel must be asked to resolve, or to confirm, or else packets would
    /// wait for them one day: Linux confirms only what it forwards itself.
    pub fn unconfirmed(&self) -> Vec<(u32, IpAddr)> {
        let mut unconfirmed = Vec::new();
        for (hop, ..) in self.installed.hops() {
            let state = self.rib.neighbour(hop).map(|neighbour| neighbour.state);
            let ask = matches!(
                state,
                None | Some(NeighbourState::None | NeighbourState::Stale | NeighbourState::Failed)
            );
            if let Some(via) = hop.via.filter(|_| ask) {
                unconfirmed.push((hop.ifindex, via));
            }
        }
        unconfirmed
    }

    pub fn name(&self, ifindex: u32) -> String {
        let link = self.rib.links().get(&ifindex);
        link.map_or_else(|| format!("if{ifindex}"), |link| link.name.clone())
    }

    /// What a hop is in a route's words.
    pub fn next_hop(&self, hop: Hop) -> NextHop {
        NextHop { via: hop.via, dev: Some(self.name(hop.ifindex)) }
    }

    /// Everything that can be known before the first write.
    fn check(&self, routes: &[Route], existing: Existing) -> Result<Vec<Hop>, Refusal> {
        let mut hops = Vec::with_capacity(routes.len());
        let mut seen = HashSet::with_capacity(routes.len());
        let mut counts = self.counts;
        for (index, route) in (0..).zip(routes) {
            let at_fault = |message| Refusal { message, index: Some(index) };
            let prefix = route.prefix;
            let hop =
                next_hop::resolve(&self.rib, route).map_err(|refusal| at_fault(refusal.message))?;
            let before = self.rib.route(prefix);
            let repeated = !seen.insert(prefix);
            if existing == Existing::Refuse && (before.is_some() || repeated) {
                return Err(at_fault(self.exists(prefix, before)));
            }
            if before.is_none() && !repeated {
                counts.add(prefix);
            }
            if let Some(message) = self.limits.exceeded_by(counts) {
                return Err(at_fault(message));
            }
            hops.push(hop);
        }
        Ok(hops)
    }

    fn remove_all(&mut self, prefixes: &[Prefix]) -> Result<(), Refusal> {
        let mut dirty = Dirty::default();
        let mut undo = Vec::with_capacity(prefixes.len());
        for prefix in prefixes {
            undo.extend(self.remove(*prefix, &mut dirty).map(|hop| (*prefix, hop)));
        }
        let Err(error) = self.installed.reconcile(&self.rib, &dirty, &mut self.table) else {
            return Ok(());
        };
        for (prefix, hop) in undo {
            self.insert(prefix, hop, &mut dirty);
        }
        let message = match self.installed.reconcile(&self.rib, &dirty, &mut self.table) {
            Ok(()) => format!("{error}: nothing was changed"),
            Err(again) => format!("{error}, and undoing it failed: {again}"),
        };
        Err(Refusal::new(message))
    }

    fn insert(&mut self, prefix: Prefix, hop: Hop, dirty: &mut Dirty) {
        if self.rib.route(prefix).is_none() {
            self.counts.add(prefix);
        }
        self.rib.insert(prefix, hop, dirty);
    }

    fn remove(&mut self, prefix: Prefix, dirty: &mut Dirty) -> Option<Hop> {
        let hop = self.rib.remove(prefix, dirty)?;
        self.counts.subtract(prefix);
        Some(hop)
    }

    fn matching(&self, selector: &Selector) -> impl Iterator<Item = (Prefix, Hop)> + '_ {
        let selector = selector.clone();
        self.rib.routes().filter(move |(prefix, hop)| selector.matches(&self.route(*prefix, *hop)))
    }

    fn route(&self, prefix: Prefix, hop: Hop) -> Route {
        Route { prefix, next_hop: self.next_hop(hop) }
    }

    fn entry(&self, prefix: Prefix, hop: Hop) -> RouteEntry {
        let state = if self.rib.is_hidden(prefix) {
            RouteState::Unusable { reason: Reason::Local.label().to_owned() }
        } else {
            self.state(hop)
        };
        RouteEntry { route: self.route(prefix, hop), state }
    }

    fn state(&self, hop: Hop) -> RouteState {
        let way = self.installed.way(hop).unwrap_or_else(|| self.rib.way(hop));
        match way {
            Ok(adjacency) => RouteState::Forwarding { mac: mac_text(adjacency.destination_mac) },
            Err(Reason::NeighbourPending) if hop.via.is_none() => RouteState::Connected,
            Err(Reason::NeighbourPending) => RouteState::Pending { on: "neighbour".to_owned() },
            Err(reason) => RouteState::Unusable { reason: reason.label().to_owned() },
        }
    }

    fn exists(&self, prefix: Prefix, before: Option<Hop>) -> String {
        match before {
            Some(hop) => format!(
                "route {prefix} exists already ({}): use 'route replace', or delete it first",
                describe(&self.next_hop(hop))
            ),
            None => format!("route {prefix} is there twice"),
        }
    }

    fn no_such_route(&self, prefix: Prefix, selector: &Selector) -> String {
        let wanted = NextHop { via: selector.via, dev: selector.dev.clone() };
        match self.rib.route(prefix) {
            Some(hop) => format!(
                "no such route: {prefix} {}; it is {}",
                describe(&wanted),
                describe(&self.next_hop(hop))
            ),
            None => format!("no such route: {prefix}"),
        }
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
    fn exceeded_by(self, counts: Counts) -> Option<String> {
        let full = |family, option, max| {
            format!("the {family} table is full ({max} routes): start the daemon with '{option} N'")
        };
        if counts.routes4 > self.routes4.into() {
            return Some(full("IPv4", "--routes4-max", self.routes4));
        }
        (counts.routes6 > self.routes6.into()).then(|| full("IPv6", "--routes6-max", self.routes6))
    }
}

/// `02:00:00:00:00:01`.
pub fn mac_text(mac: [u8; 6]) -> String {
    let mut text = String::with_capacity(17);
    for (index, byte) in mac.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{}{byte:02x}", if index == 0 { "" } else { ":" });
    }
    text
}

fn describe(next_hop: &NextHop) -> String {
    let via = next_hop.via.map(|via| format!("via {via}"));
    let dev = next_hop.dev.as_ref().map(|dev| format!("dev {dev}"));
    [via, dev].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
