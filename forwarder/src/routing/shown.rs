//! What there is, in words: routes with their states, next hops, and why a command is refused.

use std::{fmt::Write as _, net::IpAddr};

use forwarder_common::{abi::ROUTE_PUNT, verdict::Reason};

use super::{Routing, change::Conflict};
use crate::{
    engine::{Refusal, RoutePage},
    netlink::event::{NeighbourState, Next, Skip},
    paths::{Hop, Member, Paths},
    prefix::{Family, Prefix},
    reconcile::Table,
    rib::Lead,
    route::{
        LinuxRoute, NEXT_HOPS_MAX, NeighbourEntry, NextHop, PrefixMatch, Route, RouteEntry,
        RouteState, Selector, describe, protocol::FORWARDER,
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
        let prefixes = self.rib.routed_from(first).filter(|prefix| Some(*prefix) != after);
        for (looked, prefix) in prefixes.enumerate() {
            if selector.ends_before(&prefix) {
                break;
            }
            if selector.matches_prefix(&prefix) {
                page.entries.extend(self.matching_entries(selector, prefix));
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
        let Some((prefix, lead)) = self.rib.longest_match(destination) else { return Vec::new() };
        let mut entries = match self.rib.route(prefix) {
            Some(ours) => self.entries(prefix, ours),
            None => self.linux_entries(prefix).take(1).collect(),
        };
        if let (Some(ifindex), [entry]) = (lead.connected(), &mut entries[..]) {
            entry.states = vec![self.state(Hop { ifindex, via: Some(destination) })];
        }
        entries
    }

    /// The route of a prefix that counts, ours or Linux's.
    pub fn first_entry(&self, prefix: Prefix) -> Option<RouteEntry> {
        let ours = self.rib.route(prefix).map(|paths| self.entries(prefix, paths));
        let ours = ours.and_then(|entries| entries.into_iter().next());
        ours.or_else(|| self.linux_entries(prefix).next())
    }

    /// Whether there is a route of ours alone, of the prefix that is meant.
    pub fn has_own(&self, selector: &Selector) -> bool {
        match selector.prefix {
            Some(PrefixMatch::Exact(prefix)) => self.rib.route(prefix).is_some(),
            _ => false,
        }
    }

    /// Where Linux's route of a prefix that we have made leads.
    pub fn linux_members(&self, prefix: Prefix) -> Option<&[Member]> {
        let mut routes = self.rib.mirror().routes(prefix);
        match &routes.find(|route| route.protocol == FORWARDER)?.next {
            Next::Members(members) => Some(members),
            Next::Object(_) => None,
        }
    }

    /// Prefixes of those that match which Linux has from this protocol.
    pub fn linux_prefixes(&self, selector: &Selector, protocol: u8) -> Vec<Prefix> {
        let is_of_it = |entry: &RouteEntry| {
            entry.linux.as_ref().is_some_and(|linux| linux.protocol == protocol)
                && selector.matches(&entry.route)
        };
        let matches = |prefix: &Prefix| {
            selector.matches_prefix(prefix) && self.linux_entries(*prefix).any(|it| is_of_it(&it))
        };
        let first = selector.first_prefix().unwrap_or(Prefix::default_of(Family::Inet));
        self.rib.mirror().prefixes_from(first).filter(matches).collect()
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

    /// Of a prefix, whichever of its routes match: ours first, then Linux's in their order.
    fn matching_entries(&self, selector: &Selector, prefix: Prefix) -> Vec<RouteEntry> {
        let ours = self.rib.route(prefix).filter(|_| !selector.skipped);
        let ours = ours.filter(|paths| self.matches(selector, prefix, paths));
        let mut entries = ours.map_or_else(Vec::new, |paths| self.entries(prefix, paths));
        let is_skipped = |entry: &RouteEntry| {
            entry.linux.as_ref().is_some_and(|linux| linux.skip.is_some() && !linux.shadowed)
        };
        let matches = |entry: &RouteEntry| {
            selector.matches(&entry.route) && (!selector.skipped || is_skipped(entry))
        };
        entries.extend(self.linux_entries(prefix).filter(matches));
        entries
    }

    /// What Linux has for a prefix, the one that counts first.
    fn linux_entries(&self, prefix: Prefix) -> impl Iterator<Item = RouteEntry> + '_ {
        let mirror = self.rib.mirror();
        let has_ours = self.rib.route(prefix).is_some();
        mirror.routes(prefix).enumerate().map(move |(at, route)| {
            let shadowed = has_ours || at > 0;
            let skip = if shadowed { route.skip } else { self.skip(prefix) };
            let members = mirror.members(&route.next).unwrap_or_default();
            let states = members.iter().map(|member| self.state_in(prefix, member.hop)).collect();
            let nhid = match route.next {
                Next::Object(id) => Some(id),
                Next::Members(_) => None,
            };
            let linux =
                LinuxRoute { protocol: route.protocol, metric: route.metric, nhid, skip, shadowed };
            let next_hops = self.next_hops(&members).into();
            let route = Route { prefix, next_hops, cpus: None };
            RouteEntry { route, states, linux: Some(linux) }
        })
    }

    /// Why packets to a prefix that Linux has a route for are left to it.
    fn skip(&self, prefix: Prefix) -> Option<Skip> {
        match self.rib.lead(prefix)? {
            Lead::Left(skip) => Some(skip),
            // It can be expressed, and is not: there was no room.
            Lead::Via(_) => (self.table.route(prefix) == Some(ROUTE_PUNT)).then_some(Skip::Room),
        }
    }

    fn state_in(&self, prefix: Prefix, hop: Hop) -> RouteState {
        if self.rib.is_hidden(prefix) {
            return RouteState::Unusable { reason: Reason::Local.label().to_owned() };
        }
        self.state(hop)
    }

    fn matches(&self, selector: &Selector, prefix: Prefix, paths: &Paths) -> bool {
        let matches = |hop: Hop| selector.matches_next_hop(hop.via, Some(&self.name(hop.ifindex)));
        selector.matches_prefix(&prefix)
            && (!selector.asks_for_next_hop() || paths.hops().any(matches))
    }

    /// Of the CPUs without next hops of their own, then of those that have some.
    pub(super) fn entries(&self, prefix: Prefix, paths: &Paths) -> Vec<RouteEntry> {
        let entry = |cpus, members: &[Member]| {
            let state = |member: &Member| self.state_in(prefix, member.hop);
            let route = Route { prefix, next_hops: self.next_hops(members).into(), cpus };
            RouteEntry { route, states: members.iter().map(state).collect(), linux: None }
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

    pub fn describe(&self, members: &[Member]) -> String {
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
