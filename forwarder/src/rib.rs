//! What is wanted: routes as commanded, and the kernel's links, addresses and neighbours as last
//! heard. Pure: nothing here waits or writes a map.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use forwarder_common::{
    abi::{ADJACENCY_FRAGS, Adjacency},
    verdict::Reason,
};
use ipnet::IpNet;

use crate::{
    mirror::Mirror,
    netlink::event::{Address, Event, Link, Neighbour, NeighbourState, Skip},
    paths::{Hop, Interned, Paths},
    prefix::{Family, Prefix, PrefixMap},
};

/// Linux has no IPv6 on interfaces with a smaller MTU (RFC 8200, 5).
pub const IPV6_MTU_MIN: u32 = 1280;

/// What a prefix is to lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Local,
    Lead(Lead),
}

/// What the routes of a prefix lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lead {
    Via(Arc<Paths>),
    /// A route of Linux's that is left to Linux.
    Left(Skip),
}

impl Lead {
    /// The interface, where destinations are neighbours themselves.
    pub fn connected(&self) -> Option<u32> {
        match self {
            Self::Via(paths) => paths.connected(),
            Self::Left(_) => None,
        }
    }
}

/// Where a hop leads now: an Ethernet header and a port, or the reason why nowhere.
pub type Way = Result<Adjacency, Reason>;

/// What one change may have altered: to be compared with what is installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    /// In no order, and some perhaps several times: a million of them must not cost much.
    pub prefixes: Vec<Prefix>,
    pub hops: BTreeSet<Hop>,
    /// Interface indexes.
    pub links: BTreeSet<u32>,
    /// Too much to list: everything.
    pub all: bool,
}

impl Dirty {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn merge(&mut self, other: Self) {
        self.prefixes.extend(other.prefixes);
        self.hops.extend(other.hops);
        self.links.extend(other.links);
        self.all |= other.all;
    }
}

/// What an egress can do with frames that are redirected to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// It takes them at all (`NDO_XMIT`).
    pub xmit: bool,
    /// It takes those that span several buffers (`NDO_XMIT_SG`).
    pub frags: bool,
}

#[derive(Debug, Default)]
pub struct Rib {
    /// Ours alone: Linux does not have them.
    routes: PrefixMap<Arc<Paths>>,
    paths: Interned<Paths>,
    mirror: Mirror,
    locals: PrefixMap<()>,
    links: BTreeMap<u32, Link>,
    addresses: BTreeSet<Address>,
    /// By address first: those inside a prefix lie side by side.
    neighbours: BTreeMap<(IpAddr, u32), Neighbour>,
    /// The interfaces that we forward on.
    ports: BTreeMap<u32, Abilities>,
}

impl Rib {
    /// For interfaces with these indexes.
    pub fn new(ports: BTreeMap<u32, Abilities>) -> Self {
        Self { ports, ..Self::default() }
    }

    /// Takes in what a port can do now; no other interface becomes a port by it.
    pub fn set_abilities(&mut self, ifindex: u32, abilities: Abilities, dirty: &mut Dirty) {
        let known = self.ports.get_mut(&ifindex).filter(|known| **known != abilities);
        if let Some(known) = known {
            *known = abilities;
            dirty.links.insert(ifindex);
        }
    }

    /// What equal paths share.
    pub fn intern(&mut self, paths: Paths) -> Arc<Paths> {
        self.paths.intern(paths)
    }

    /// See [`Mirror::set_hashes_otherwise`].
    pub fn set_hashes_otherwise(&mut self, family: Family, is_so: bool, dirty: &mut Dirty) {
        dirty.all |= self.mirror.set_hashes_otherwise(family, is_so);
    }

    /// Gives back what was there before.
    pub fn insert(
        &mut self,
        prefix: Prefix,
        paths: Arc<Paths>,
        dirty: &mut Dirty,
    ) -> Option<Arc<Paths>> {
        let before = self.routes.insert(prefix, paths);
        self.touch_route(prefix, dirty);
        before
    }

    pub fn remove(&mut self, prefix: Prefix, dirty: &mut Dirty) -> Option<Arc<Paths>> {
        let paths = self.routes.remove(prefix)?;
        self.touch_route(prefix, dirty);
        Some(paths)
    }

    pub fn route(&self, prefix: Prefix) -> Option<&Arc<Paths>> {
        self.routes.get(prefix)
    }

    /// In the order of prefixes, IPv4 first; from this one on, whether it is there or not.
    pub fn routes_from(
        &self,
        first: Option<Prefix>,
    ) -> impl Iterator<Item = (Prefix, &Paths)> + '_ {
        let first = first.unwrap_or(Prefix::default_of(Family::Inet));
        self.routes.range(first..).map(|(prefix, paths)| (prefix, &**paths))
    }

    /// Every prefix with a route, ours or Linux's; from this one on, in their order.
    pub fn routed_from(&self, first: Option<Prefix>) -> impl Iterator<Item = Prefix> + '_ {
        let first = first.unwrap_or(Prefix::default_of(Family::Inet));
        let mut ours = self.routes.range(first..).map(|(prefix, _)| prefix).peekable();
        let mut linux = self.mirror.prefixes_from(first).peekable();
        std::iter::from_fn(move || {
            let next = match (ours.peek(), linux.peek()) {
                (Some(one), Some(other)) => *one.min(other),
                (one, other) => *one.or(other)?,
            };
            ours.next_if_eq(&next);
            linux.next_if_eq(&next);
            Some(next)
        })
    }

    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    pub fn links(&self) -> &BTreeMap<u32, Link> {
        &self.links
    }

    pub fn link_named(&self, name: &str) -> Option<&Link> {
        self.links.values().find(|link| link.name == name)
    }

    pub fn ports(&self) -> impl Iterator<Item = u32> + '_ {
        self.ports.keys().copied()
    }

    pub fn is_port(&self, ifindex: u32) -> bool {
        self.ports.contains_key(&ifindex)
    }

    pub fn addresses_of(&self, ifindex: u32) -> impl Iterator<Item = IpNet> + '_ {
        let of_it = move |address: &&Address| address.ifindex == ifindex;
        self.addresses.iter().filter(of_it).map(|address| address.address)
    }

    pub fn neighbour(&self, hop: Hop) -> Option<&Neighbour> {
        self.neighbours.get(&(hop.via?, hop.ifindex))
    }

    /// The longest prefix with a route that holds this address.
    pub fn longest_match(&self, address: IpAddr) -> Option<(Prefix, Lead)> {
        let ours = self.routes.longest_match(address).map(|(prefix, _)| prefix);
        let prefix = ours.max(self.mirror.longest_match(address))?;
        Some((prefix, self.lead(prefix)?))
    }

    /// What the routes of this very prefix lead to: ours come before Linux's.
    pub fn lead(&self, prefix: Prefix) -> Option<Lead> {
        if let Some(paths) = self.route(prefix) {
            return Some(Lead::Via(Arc::clone(paths)));
        }
        let decision = self.mirror.decision(prefix, |ifindex| self.is_port(ifindex))?;
        Some(decision.map_or_else(Lead::Left, |paths| Lead::Via(Arc::new(paths))))
    }

    /// Whether packets to this address are for this host.
    pub fn is_local(&self, address: IpAddr) -> bool {
        self.is_hidden(Prefix::host(address))
    }

    /// What this prefix is to lead to; `None` where it must not be installed.
    ///
    /// A prefix of the local table hides what is below it: so it is in Linux for IPv6, and for
    /// IPv4 as soon as there are rules. What is hidden goes up, which is right in any case.
    pub fn target(&self, prefix: Prefix) -> Option<Target> {
        if self.locals.contains(prefix) {
            return Some(Target::Local);
        }
        if self.is_hidden(prefix) {
            return None;
        }
        let host = self.host_route(prefix).map(Lead::Via);
        host.or_else(|| self.lead(prefix)).map(Target::Lead)
    }

    /// Every prefix that may have a target.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> + '_ {
        let hosts = self.neighbours.keys().map(|(address, _)| Prefix::host(*address));
        let routes = self.routes.keys().chain(self.mirror.prefixes());
        routes.chain(self.locals.keys()).chain(hosts)
    }

    /// Where a hop leads now.
    pub fn way(&self, hop: Hop) -> Way {
        let Some((abilities, link)) =
            self.ports.get(&hop.ifindex).zip(self.links.get(&hop.ifindex))
        else {
            return Err(Reason::NoPort);
        };
        if link.controller.is_some() {
            return Err(Reason::Enslaved);
        }
        if !link.up || !link.carrier {
            return Err(Reason::EgressDown);
        }
        if !abilities.xmit {
            return Err(Reason::NoXmit);
        }
        if hop.via.is_some_and(|via| via.is_ipv6()) && link.mtu < IPV6_MTU_MIN {
            return Err(Reason::NoIpv6);
        }
        let source_mac = link.mac.ok_or(Reason::NoPort)?;
        let Some(neighbour) = self.neighbour(hop) else { return Err(Reason::NeighbourPending) };
        match neighbour.mac.filter(|_| neighbour.state.is_valid()) {
            Some(destination_mac) => Ok(Adjacency {
                port: hop.ifindex,
                mtu: link.mtu,
                destination_mac,
                source_mac,
                flags: if abilities.frags { ADJACENCY_FRAGS } else { 0 },
            }),
            None if neighbour.state == NeighbourState::Failed => Err(Reason::NeighbourFailed),
            None => Err(Reason::NeighbourPending),
        }
    }

    /// Takes in what the kernel said.
    pub fn apply(&mut self, event: Event, dirty: &mut Dirty) {
        match event {
            Event::Links(links) => {
                self.links = links.into_iter().map(|link| (link.ifindex, link)).collect();
                self.ports.retain(|port, _| self.links.contains_key(port));
                dirty.all = true;
            }
            Event::Link(link) => {
                dirty.links.insert(link.ifindex);
                if !link.up {
                    self.touch_by_interface(link.ifindex, dirty);
                }
                self.links.insert(link.ifindex, link);
            }
            Event::LinkGone { ifindex } => {
                dirty.links.insert(ifindex);
                self.touch_by_interface(ifindex, dirty);
                self.links.remove(&ifindex);
                // For good: what has the index next is another interface.
                self.ports.remove(&ifindex);
            }
            Event::Addresses(addresses) => self.addresses = addresses.into_iter().collect(),
            Event::Address(address) => {
                self.addresses.insert(address);
            }
            Event::AddressGone(address) => {
                self.addresses.remove(&address);
            }
            Event::Locals(locals) => {
                self.locals = locals.into_iter().map(|local| (local, ())).collect();
                dirty.all = true;
            }
            Event::Local(prefix) => {
                self.locals.insert(prefix, ());
                self.touch_local(prefix, dirty);
            }
            Event::LocalGone(prefix) => {
                self.locals.remove(prefix);
                self.touch_local(prefix, dirty);
            }
            Event::Neighbours(neighbours) => {
                let key = |neighbour: &Neighbour| (neighbour.address, neighbour.ifindex);
                self.neighbours =
                    neighbours.into_iter().map(|neighbour| (key(&neighbour), neighbour)).collect();
                dirty.all = true;
            }
            Event::Neighbour(neighbour) => {
                let key = (neighbour.address, neighbour.ifindex);
                touch_neighbour(key, dirty);
                self.neighbours.insert(key, neighbour);
            }
            Event::NeighbourGone { ifindex, address } => {
                touch_neighbour((address, ifindex), dirty);
                self.neighbours.remove(&(address, ifindex));
            }
            route => self.apply_route(route, dirty),
        }
    }

    /// Likewise, of the main table and what it leads over.
    fn apply_route(&mut self, event: Event, dirty: &mut Dirty) {
        let touched = match event {
            Event::RoutesBegin(family) => {
                self.mirror.begin(family);
                Vec::new()
            }
            Event::Routes(routes) => {
                for (prefix, route) in routes {
                    if self.mirror.listed(prefix, route) {
                        self.touch_route(prefix, dirty);
                    }
                }
                Vec::new()
            }
            Event::RoutesEnd(family) => self.mirror.end(family),
            Event::Route { prefix, route, position } => {
                self.mirror.add(prefix, route, position);
                vec![prefix]
            }
            Event::RouteGone { prefix, route } => {
                self.mirror.remove(prefix, &route);
                vec![prefix]
            }
            Event::Nexthops(nexthops) => self.mirror.set_nexthops(nexthops),
            Event::Nexthop(nexthop) => self.mirror.set_nexthop(nexthop),
            Event::NexthopGone { id } => self.mirror.remove_nexthop(id),
            Event::Rules(rules) => {
                self.mirror.set_rules(rules);
                Vec::new()
            }
            // The rest is for `apply`.
            _ => Vec::new(),
        };
        for prefix in touched {
            self.touch_route(prefix, dirty);
        }
    }

    /// IPv4 routes that led by this interface alone go with it.
    fn touch_by_interface(&mut self, ifindex: u32, dirty: &mut Dirty) {
        let is_down =
            |other| other == ifindex || self.links.get(&other).is_some_and(|link| !link.up);
        for prefix in self.mirror.remove_by_interface(is_down) {
            self.touch_route(prefix, dirty);
        }
    }

    /// A neighbour inside a connected prefix is a route of its own, as Linux would reach it.
    fn host_route(&self, prefix: Prefix) -> Option<Arc<Paths>> {
        let address = prefix.address();
        if prefix != Prefix::host(address) {
            return None;
        }
        if is_link_local(address) {
            return None;
        }
        let (_, lead) = self.longest_match(address)?;
        let hop = Hop { ifindex: lead.connected()?, via: Some(address) };
        let is_valid = self.neighbour(hop).is_some_and(|neighbour| neighbour.state.is_valid());
        is_valid.then(|| Arc::new(Paths::single(hop)))
    }

    /// Whether a prefix of the local table holds this one.
    pub fn is_hidden(&self, prefix: Prefix) -> bool {
        self.locals.covering(prefix).next().is_some()
    }

    /// This prefix, and the hosts in it: a connected prefix makes them routes of their own.
    fn touch_route(&self, prefix: Prefix, dirty: &mut Dirty) {
        dirty.prefixes.push(prefix);
        let hosts =
            self.neighbours.range((prefix.address(), 0)..).map(|((address, _), _)| *address);
        dirty.prefixes.extend(hosts.take_while(|host| prefix.contains(*host)).map(Prefix::host));
    }

    /// Likewise, and the routes below it, which it hides.
    fn touch_local(&self, prefix: Prefix, dirty: &mut Dirty) {
        self.touch_route(prefix, dirty);
        let ours = self.routes.range(prefix..).map(|(below, _)| below);
        let is_below = |below: &Prefix| prefix.covers(below);
        dirty.prefixes.extend(ours.take_while(is_below));
        dirty.prefixes.extend(self.mirror.prefixes_from(prefix).take_while(is_below));
    }
}

/// Never forwarded, so no route is needed for it.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

fn touch_neighbour((address, ifindex): (IpAddr, u32), dirty: &mut Dirty) {
    dirty.prefixes.push(Prefix::host(address));
    dirty.hops.insert(Hop { ifindex, via: Some(address) });
}
