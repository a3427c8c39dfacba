//! What there is, in words: routes with their states, next hops, and why a command is refused.

use std::{fmt::Write as _, net::IpAddr};

use forwarder_common::verdict::Reason;

use super::{Routing, change::Conflict};
use crate::{
    engine::{Refusal, RoutePage},
    netlink::event::NeighbourState,
    paths::{Hop, Member, Paths},
    prefix::Prefix,
    reconcile::Table,
    route::{
        NEXT_HOPS_MAX, NeighbourEntry, NextHop, Route, RouteEntry, RouteState, Selector, describe,
    },
};

/// Entries of a page: as many fit into a frame. One prefix may have some more.
const PAGE_ENTRIES: usize = 256;
/// Prefixes that are looked at for a page: some milliseconds.
const PAGE_PREFIXES: usize = 16_384;

impl<T: Table> Routing<T> {
    /// All entries of some of the prefixes that match: few enough that nobody waits for long.
    pub fn page(&self, selector: &Selector, after: Option<Prefix>) -> RoutePage {
        let mut page = RoutePage::default();
        let first = after.or_else(|| selector.first_prefix());
        let routes = self.rib.routes_from(first).filter(|(prefix, _)| Some(*prefix) != after);
        for (looked, (prefix, paths)) in routes.enumerate() {
            if selector.ends_before(&prefix) {
                break;
            }
            if self.matches(selector, prefix, paths) {
                page.entries.extend(self.entries(prefix, paths));
            }
            if page.entries.len() >= PAGE_ENTRIES || looked + 1 == PAGE_PREFIXES {
                page.more_after = Some(prefix);
                break;
            }
        }
        page
    }

    /// The route that a packet to this destination takes, on every CPU; empty where Linux decides.
    pub fn get(&self, destination: IpAddr) -> Vec<RouteEntry> {
        if self.rib.is_local(destination) {
            return Vec::new();
        }
        let Some((prefix, paths)) = self.rib.longest_match(destination) else { return Vec::new() };
        let mut entries = self.entries(prefix, paths);
        if let (Some(ifindex), [entry]) = (paths.connected(), &mut entries[..]) {
            entry.states = vec![self.state(Hop { ifindex, via: Some(destination) })];
        }
        entries
    }

    /// The next hops that routes lead over, and what the kernel knows of them.
    pub fn neighbours(&self) -> Vec<NeighbourEntry> {
        let with_gateway = self.installed.hops().filter_map(|(hop, routes)| {
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

    /// Routes that some CPU does not forward by for now, connected ones aside.
    pub fn waiting(&self) -> u64 {
        let leads = |member: &Member| self.installed.way(member.hop).is_some_and(|way| way.is_ok());
        let waits = |paths: &Paths| {
            let mut lists = paths.lists().filter(|members| !members.is_empty());
            paths.connected().is_none() && lists.any(|members| !members.iter().any(leads))
        };
        let waiting = self.installed.sets().filter(|(_, paths, _)| waits(paths));
        waiting.map(|(_, _, prefixes)| prefixes).sum()
    }

    /// Next hops that the kernel must be asked to resolve, or to confirm, or else packets would
    /// wait for them one day: Linux confirms only what it forwards itself.
    pub fn unconfirmed(&self) -> Vec<(u32, IpAddr)> {
        let mut unconfirmed = Vec::new();
        for (hop, _) in self.installed.hops() {
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

    /// What next hops are in a route's words.
    pub fn next_hops(&self, members: &[Member]) -> Vec<NextHop> {
        let next_hop = |Member { hop, weight }: &Member| NextHop {
            via: hop.via,
            dev: Some(self.name(hop.ifindex)),
            weight: *weight,
        };
        members.iter().map(next_hop).collect()
    }

    pub(super) fn matching(&self, selector: &Selector) -> impl Iterator<Item = (Prefix, &Paths)> {
        let selector = selector.clone();
        self.rib
            .routes_from(None)
            .filter(move |(prefix, paths)| self.matches(&selector, *prefix, paths))
    }

    fn matches(&self, selector: &Selector, prefix: Prefix, paths: &Paths) -> bool {
        let matches = |hop: Hop| selector.matches_next_hop(hop.via, Some(&self.name(hop.ifindex)));
        selector.matches_prefix(&prefix)
            && (!selector.asks_for_next_hop() || paths.hops().any(matches))
    }

    /// Of the CPUs without next hops of their own, then of those that have some.
    pub(super) fn entries(&self, prefix: Prefix, paths: &Paths) -> Vec<RouteEntry> {
        let is_hidden = self.rib.is_hidden(prefix);
        let entry = |cpus, members: &[Member]| {
            let state = |member: &Member| {
                if is_hidden {
                    return RouteState::Unusable { reason: Reason::Local.label().to_owned() };
                }
                self.state(member.hop)
            };
            let route = Route { prefix, next_hops: self.next_hops(members).into(), cpus };
            RouteEntry { route, states: members.iter().map(state).collect() }
        };
        let all = (!paths.members().is_empty()).then(|| entry(None, paths.members()));
        let own = paths.by_cpus().into_iter().map(|(cpus, members)| entry(Some(cpus), members));
        all.into_iter().chain(own).collect()
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

    pub(super) fn describe(&self, members: &[Member]) -> String {
        describe(&self.next_hops(members))
    }

    pub(super) fn conflict(&self, prefix: Prefix, conflict: Conflict) -> String {
        match conflict {
            Conflict::There { cpu: None, members } => format!(
                "route {prefix} exists already ({}): use 'route replace', or delete it first",
                self.describe(&members)
            ),
            Conflict::There { cpu: Some(cpu), members } => format!(
                "CPU {cpu} has next hops of its own for {prefix} already ({}): use 'route replace \
                 {prefix} cpu {cpu} …', or take them back with 'route del {prefix} cpu {cpu}'",
                self.describe(&members)
            ),
            Conflict::Twice { cpu, member } => {
                let on = cpu.map_or(String::new(), |cpu| format!(" on CPU {cpu}"));
                let next_hop = self.describe(&[Member { weight: 1, ..member }]);
                format!("File exists: {prefix} would lead {next_hop} twice{on}")
            }
            Conflict::TooMany => {
                format!("{prefix}: a route has at most {NEXT_HOPS_MAX} next hops")
            }
            Conflict::ConnectedBeside => format!(
                "{prefix}: a route without a gateway leads nowhere else and is the same on all \
                 CPUs: give every next hop its 'via ADDRESS'"
            ),
        }
    }

    pub(super) fn no_such_next_hop(
        &self,
        prefix: Prefix,
        paths: &Paths,
        selector: &Selector,
    ) -> Refusal {
        let wanted = NextHop { via: selector.via, dev: selector.dev.clone(), weight: 1 };
        let there: Vec<Member> = match &selector.cpus {
            None => paths.members().to_vec(),
            Some(cpus) => cpus.iter().flat_map(|cpu| paths.own(Some(*cpu))).copied().collect(),
        };
        let wanted = describe(std::slice::from_ref(&wanted));
        let there = match &there[..] {
            [] => "only single CPUs have next hops for it".to_owned(),
            there => format!("it is {}", self.describe(there)),
        };
        Refusal::new(format!("no such route: {prefix} {wanted}; {there}"))
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
