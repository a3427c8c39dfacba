//! What Linux's main table says: its routes, its nexthop objects, its rules. Pure.

mod prefix_routes;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use self::prefix_routes::PrefixRoutes;
use crate::{
    netlink::event::{KernelRoute, Next, Nexthop, NexthopWay, Position, Rule, Skip},
    paths::{Interned, Member, Paths},
    prefix::{Family, Prefix, PrefixMap},
};

/// More next hops than this are left to Linux.
pub const MEMBERS_MAX: usize = 256;

/// What Linux does with packets to a prefix.
pub type Decision = Result<Paths, Skip>;

#[derive(Debug, Default)]
pub struct Mirror {
    routes: PrefixMap<Entry>,
    interned: Interned<KernelRoute>,
    nexthops: BTreeMap<u32, NexthopWay>,
    rules: Vec<Rule>,
    /// Of the last list of each family that began.
    generations: [u32; 2],
    /// Families whose flows Linux spreads by a hash that is not ours.
    hashes_otherwise: [bool; 2],
}

#[derive(Debug)]
struct Entry {
    routes: PrefixRoutes,
    /// Of the list that named it last.
    generation: u32,
}

impl Mirror {
    pub fn begin(&mut self, family: Family) {
        let generation = self.generation(family);
        *generation = generation.wrapping_add(1);
    }

    /// Takes in what a list says; whether it is news.
    pub fn listed(&mut self, prefix: Prefix, route: KernelRoute) -> bool {
        let generation = *self.generation(prefix.family());
        let route = self.interned.intern(route);
        match self.routes.get_mut(prefix) {
            None => {
                let routes = PrefixRoutes::One(route);
                self.routes.insert(prefix, Entry { routes, generation });
                true
            }
            // The first of the list is alone until the next comes.
            Some(entry) if entry.generation != generation => {
                entry.generation = generation;
                entry.routes.set(vec![route])
            }
            Some(entry) => {
                let mut routes = entry.routes.to_vec();
                routes.push(route);
                entry.routes.set(routes)
            }
        }
    }

    /// What the list did not name goes.
    pub fn end(&mut self, family: Family) -> Vec<Prefix> {
        let generation = *self.generation(family);
        let of_family = self
            .routes
            .range(Prefix::default_of(family)..)
            .take_while(|(prefix, _)| prefix.family() == family);
        let gone: Vec<Prefix> = of_family
            .filter(|(_, entry)| entry.generation != generation)
            .map(|(prefix, _)| prefix)
            .collect();
        for prefix in &gone {
            self.routes.remove(*prefix);
        }
        gone
    }

    pub fn add(&mut self, prefix: Prefix, route: KernelRoute, position: Position) {
        let generation = *self.generation(prefix.family());
        let route = self.interned.intern(route);
        if let Some(entry) = self.routes.get_mut(prefix) {
            entry.routes.add(route, position, prefix.family());
        } else {
            let routes = PrefixRoutes::One(route);
            self.routes.insert(prefix, Entry { routes, generation });
        }
    }

    pub fn remove(&mut self, prefix: Prefix, route: &KernelRoute) {
        let Some(entry) = self.routes.get_mut(prefix) else { return };
        let rest = match prefix.family() {
            Family::Inet => entry.routes.without(route),
            Family::Inet6 => {
                let interned = &mut self.interned;
                entry.routes.without_members(route, |rest| interned.intern(rest))
            }
        };
        if rest.is_empty() {
            self.routes.remove(prefix);
        } else {
            entry.routes.set(rest);
        }
    }

    /// Gives back the prefixes that may lead elsewhere now.
    pub fn set_nexthops(&mut self, nexthops: Vec<Nexthop>) -> Vec<Prefix> {
        let nexthops = nexthops.into_iter().map(|it| (it.id, it.way)).collect();
        let before = std::mem::replace(&mut self.nexthops, nexthops);
        let is_other = |id: u32| before.get(&id) != self.nexthops.get(&id);
        self.users(|mirror, id| {
            is_other(id) || mirror.members_of(id).iter().any(|it| is_other(*it))
        })
    }

    pub fn set_nexthop(&mut self, nexthop: Nexthop) -> Vec<Prefix> {
        let Nexthop { id, way } = nexthop;
        self.nexthops.insert(id, way);
        self.users_of(id)
    }

    /// Linux takes its routes away with an object, without a word for each; and it from its groups.
    pub fn remove_nexthop(&mut self, id: u32) -> Vec<Prefix> {
        self.nexthops.remove(&id);
        let mut touched = self.users(|_, it| it == id);
        for prefix in &touched {
            let Some(entry) = self.routes.get_mut(*prefix) else { continue };
            let rest: Vec<_> =
                entry.routes.iter().filter(|it| it.next != Next::Object(id)).cloned().collect();
            if rest.is_empty() {
                self.routes.remove(*prefix);
            } else {
                entry.routes.set(rest);
            }
        }
        for way in self.nexthops.values_mut() {
            if let NexthopWay::Group(members) = way {
                members.retain(|member| member.0 != id);
            }
        }
        touched.extend(self.users(|mirror, group| mirror.members_of(group).is_empty()));
        touched
    }

    pub fn set_rules(&mut self, rules: Vec<Rule>) {
        self.rules = rules;
    }

    /// Whether Linux spreads a family's flows by a hash that is not ours. Says whether it is news.
    pub fn set_hashes_otherwise(&mut self, family: Family, is_so: bool) -> bool {
        std::mem::replace(&mut self.hashes_otherwise[index(family)], is_so) != is_so
    }

    /// Rules by which packets of a family may go another way than by the main table: then none of
    /// them is forwarded.
    pub fn rules(&self, family: Family) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.is_ipv4 == (family == Family::Inet))
    }

    /// When an interface goes down Linux takes IPv4 routes away that lead nowhere else, and says
    /// nothing (`fib_sync_down_dev()`). Gives back their prefixes.
    pub fn remove_by_interface(&mut self, is_down: impl Fn(u32) -> bool) -> Vec<Prefix> {
        let leads_nowhere = |mirror: &Self, route: &KernelRoute| {
            let members = mirror.members(&route.next).unwrap_or_default();
            !members.is_empty() && members.iter().all(|member| is_down(member.hop.ifindex))
        };
        let ipv4 = self.routes.range(Prefix::default_of(Family::Inet)..);
        let touched: Vec<(Prefix, Vec<Arc<KernelRoute>>)> = ipv4
            .take_while(|(prefix, _)| prefix.is_ipv4())
            .filter(|(_, entry)| entry.routes.iter().any(|route| leads_nowhere(self, route)))
            .map(|(prefix, entry)| {
                let rest = entry.routes.iter().filter(|route| !leads_nowhere(self, route));
                (prefix, rest.cloned().collect())
            })
            .collect();
        let mut prefixes = Vec::with_capacity(touched.len());
        for (prefix, rest) in touched {
            prefixes.push(prefix);
            if rest.is_empty() {
                self.routes.remove(prefix);
            } else if let Some(entry) = self.routes.get_mut(prefix) {
                entry.routes.set(rest);
            }
        }
        prefixes
    }

    /// Prefixes of a family.
    pub fn count(&self, family: Family) -> u64 {
        self.routes.count(family)
    }

    pub fn contains(&self, prefix: Prefix) -> bool {
        self.routes.contains(prefix)
    }

    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.routes.keys()
    }

    /// From this one on, whether it is there or not.
    pub fn prefixes_from(&self, first: Prefix) -> impl Iterator<Item = Prefix> {
        self.routes.range(first..).map(|(prefix, _)| prefix)
    }

    pub fn longest_match(&self, address: IpAddr) -> Option<Prefix> {
        self.routes.longest_match(address).map(|(prefix, _)| prefix)
    }

    /// The routes of a prefix, the one that counts first.
    pub fn routes(&self, prefix: Prefix) -> impl Iterator<Item = &Arc<KernelRoute>> {
        self.routes.get(prefix).into_iter().flat_map(|entry| entry.routes.iter())
    }

    /// What Linux does with packets to a prefix that it has routes for. `is_port` tells the
    /// interfaces that we forward on.
    pub fn decision(&self, prefix: Prefix, is_port: impl Fn(u32) -> bool) -> Option<Decision> {
        let routes = &self.routes.get(prefix)?.routes;
        Some(self.decide(routes, prefix.family(), is_port))
    }

    fn decide(
        &self,
        routes: &PrefixRoutes,
        family: Family,
        is_port: impl Fn(u32) -> bool,
    ) -> Decision {
        // What holds for some packets alone makes all others doubtful too.
        let some = |it: &&Arc<KernelRoute>| matches!(it.skip, Some(Skip::Tos | Skip::Source));
        if let Some(skip) = routes.iter().find(some).and_then(|it| it.skip) {
            return Err(skip);
        }
        let mut in_order = routes.iter();
        let Some(first) = in_order.next() else { return Err(Skip::Type) };
        let is_as_good = |it: &Arc<KernelRoute>| it.metric == first.metric;
        if family == Family::Inet6 && in_order.next().is_some_and(is_as_good) {
            return Err(Skip::Ambiguous);
        }
        if let Some(skip) = first.skip {
            return Err(skip);
        }
        let members = self.members(&first.next)?;
        let is_foreign = |member: &Member| !is_port(member.hop.ifindex);
        match &members[..] {
            [] => Err(Skip::Nexthop),
            [only] => Ok(Paths::single(only.hop)),
            several if several.iter().any(is_foreign) => Err(Skip::Egress),
            several if several.iter().any(|it| it.hop.via.is_none()) => Err(Skip::Type),
            several if several.len() > MEMBERS_MAX => Err(Skip::Members),
            _ if self.hashes_otherwise[index(family)] => Err(Skip::Hash),
            _ => Ok(Paths::several(members)),
        }
    }

    /// Ascending; where a hop is there twice it has both weights.
    pub fn members(&self, next: &Next) -> Result<Vec<Member>, Skip> {
        let mut members = match next {
            Next::Members(members) => members.clone(),
            Next::Object(id) => self.object_members(*id)?,
        };
        members.sort_unstable();
        members.dedup_by(|second, first| {
            let is_same = second.hop == first.hop;
            if is_same {
                first.weight = first.weight.saturating_add(second.weight);
            }
            is_same
        });
        Ok(members)
    }

    fn object_members(&self, id: u32) -> Result<Vec<Member>, Skip> {
        match self.nexthops.get(&id).ok_or(Skip::Nexthop)? {
            NexthopWay::Skip(skip) => Err(*skip),
            NexthopWay::Hop(hop) => Ok(vec![Member { hop: *hop, weight: 1 }]),
            NexthopWay::Group(group) => {
                let member = |(id, weight): &(u32, u16)| match self.nexthops.get(id) {
                    Some(NexthopWay::Hop(hop)) => Ok(Member { hop: *hop, weight: *weight }),
                    Some(NexthopWay::Skip(skip)) => Err(*skip),
                    // The kernel has no groups of groups.
                    Some(NexthopWay::Group(_)) | None => Err(Skip::Nexthop),
                };
                group.iter().map(member).collect()
            }
        }
    }

    /// The objects of a group; none of another object.
    fn members_of(&self, id: u32) -> Vec<u32> {
        match self.nexthops.get(&id) {
            Some(NexthopWay::Group(members)) => members.iter().map(|member| member.0).collect(),
            _ => Vec::new(),
        }
    }

    fn users_of(&self, id: u32) -> Vec<Prefix> {
        self.users(|mirror, it| it == id || mirror.members_of(it).contains(&id))
    }

    /// Prefixes with a route over such an object.
    fn users(&self, is_meant: impl Fn(&Self, u32) -> bool) -> Vec<Prefix> {
        let leads_there = |route: &Arc<KernelRoute>| match route.next {
            Next::Object(id) => is_meant(self, id),
            Next::Members(_) => false,
        };
        let all = self.routes.range(Prefix::default_of(Family::Inet)..);
        let using = all.filter(|(_, entry)| entry.routes.iter().any(leads_there));
        using.map(|(prefix, _)| prefix).collect()
    }

    fn generation(&mut self, family: Family) -> &mut u32 {
        &mut self.generations[index(family)]
    }
}

fn index(family: Family) -> usize {
    usize::from(family == Family::Inet6)
}

#[cfg(test)]
mod tests;
