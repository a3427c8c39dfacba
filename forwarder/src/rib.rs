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
    netlink::event::{Address, Event, Link, Neighbour, NeighbourState},
    paths::{Hop, Interned, Paths},
    prefix::{Family, Prefix, PrefixMap},
};

/// Linux has no IPv6 on interfaces with a smaller MTU (RFC 8200, 5).
pub const IPV6_MTU_MIN: u32 = 1280;

/// What a prefix is to lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Local,
    Via(Arc<Paths>),
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
    routes: PrefixMap<Arc<Paths>>,
    paths: Interned,
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
    pub fn longest_match(&self, address: IpAddr) -> Option<(Prefix, &Paths)> {
        self.routes.longest_match(address).map(|(prefix, paths)| (prefix, &**paths))
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
        self.host_route(prefix).or_else(|| self.route(prefix).cloned()).map(Target::Via)
    }

    /// Every prefix that may have a target.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> + '_ {
        let hosts = self.neighbours.keys().map(|(address, _)| Prefix::host(*address));
        self.routes.keys().chain(self.locals.keys()).chain(hosts)
    }

    /// Where a hop leads now.
    pub fn way(&self, hop: Hop) -> Way {
        let Some((abilities, link)) =
            self.ports.get(&hop.ifindex).zip(self.links.get(&hop.ifindex))
        else {
            return Err(Reason::NoPort);
        };
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
                self.links.insert(link.ifindex, link);
            }
            Event::LinkGone { ifindex } => {
                dirty.links.insert(ifindex);
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
        }
    }

    /// A neighbour inside a connected prefix is a route of its own, as Linux would reach it.
    fn host_route(&self, prefix: Prefix) -> Option<Arc<Paths>> {
        let address = prefix.address();
        if prefix != Prefix::host(address) {
            return None;
        }
        let (_, paths) = self.longest_match(address)?;
        let hop = Hop { ifindex: paths.connected()?, via: Some(address) };
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
        let below = self.routes.range(prefix..).map(|(below, _)| below);
        dirty.prefixes.extend(below.take_while(|below| prefix.covers(below)));
    }
}

fn touch_neighbour((address, ifindex): (IpAddr, u32), dirty: &mut Dirty) {
    dirty.prefixes.push(Prefix::host(address));
    dirty.hops.insert(Hop { ifindex, via: Some(address) });
}
