//! The routes of one prefix, in the order in which Linux looks at them.

use std::{cmp::Reverse, sync::Arc};

use crate::{
    netlink::event::{KernelRoute, Next, Position, Skip},
    paths::Member,
    prefix::Family,
};

/// `RTPROT_RA`: routes of router advertisements are never joined to one with several next hops.
const PROTOCOL_RA: u8 = 9;

/// Nearly always it is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PrefixRoutes {
    One(Arc<KernelRoute>),
    /// By rank; those with the same as Linux has them.
    Several(Box<[Arc<KernelRoute>]>),
}

impl PrefixRoutes {
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Arc<KernelRoute>> {
        match self {
            Self::One(route) => std::slice::from_ref(route).iter(),
            Self::Several(routes) => routes.iter(),
        }
    }

    pub(super) fn to_vec(&self) -> Vec<Arc<KernelRoute>> {
        self.iter().cloned().collect()
    }

    /// Whether they are others than before. There must be one.
    pub(super) fn set(&mut self, mut routes: Vec<Arc<KernelRoute>>) -> bool {
        let routes = match routes.pop() {
            Some(only) if routes.is_empty() => Self::One(only),
            Some(last) => {
                routes.push(last);
                Self::Several(routes.into())
            }
            None => return false,
        };
        let is_news = *self != routes;
        *self = routes;
        is_news
    }

    pub(super) fn add(&mut self, route: Arc<KernelRoute>, position: Position, family: Family) {
        let mut routes = self.to_vec();
        let is_as_good = |it: &Arc<KernelRoute>| rank(it) == rank(&route);
        let first = routes.partition_point(|it| rank(it) < rank(&route));
        let after = routes.partition_point(|it| rank(it) <= rank(&route));
        let joined = routes.iter().position(|it| is_as_good(it) && joins(it) == joins(&route));
        match (family, position) {
            // The message tells all next hops, those too that were there before.
            (Family::Inet6, _) if joins(&route) && joined.is_some() => {
                routes[joined.unwrap_or(first)] = route;
            }
            (Family::Inet6, Position::Replace) => match joined {
                Some(at) => routes[at] = route,
                None if first < after => routes[first] = route,
                None => routes.insert(first, route),
            },
            // A route is told again so when its nexthop object changes; one in the place of another
            // that is there already is not possible.
            (Family::Inet, Position::Replace) if first < after => {
                if !routes.contains(&route) {
                    routes[first] = route;
                }
            }
            (Family::Inet, Position::First | Position::Replace) => {
                if !routes.contains(&route) {
                    routes.insert(first, route);
                }
            }
            (Family::Inet, Position::Last) | (Family::Inet6, _) => {
                if !routes.contains(&route) {
                    routes.insert(after, route);
                }
            }
        }
        self.set(routes);
    }

    /// The rest; of IPv4, where a message names the route as it is.
    pub(super) fn without(&self, route: &KernelRoute) -> Vec<Arc<KernelRoute>> {
        let mut routes = self.to_vec();
        let leads_there = |it: &Arc<KernelRoute>| {
            rank(it) == rank(route) && it.next == route.next && it.skip == route.skip
        };
        if let Some(at) = routes.iter().position(leads_there) {
            routes.remove(at);
        }
        routes
    }

    /// The rest; of IPv6, where a message names the next hops that go.
    pub(super) fn without_members(
        &self,
        route: &KernelRoute,
        intern: impl FnOnce(KernelRoute) -> Arc<KernelRoute>,
    ) -> Vec<Arc<KernelRoute>> {
        let mut routes = self.to_vec();
        let has = |it: &Arc<KernelRoute>| {
            it.metric == route.metric
                && match (&it.next, &route.next) {
                    (Next::Members(all), Next::Members(gone)) => {
                        gone.iter().all(|gone| all.iter().any(|it| it.hop == gone.hop))
                            && (!gone.is_empty() || all.is_empty())
                    }
                    (one, other) => one == other,
                }
        };
        let Some(at) = routes.iter().position(has) else { return routes };
        let rest = match (&routes[at].next, &route.next) {
            (Next::Members(all), Next::Members(gone)) => {
                let stays = |it: &&Member| gone.iter().all(|gone| gone.hop != it.hop);
                let mut rest: Vec<Member> = all.iter().filter(stays).copied().collect();
                // Lists say nothing of the weight of one alone.
                if let [only] = &mut rest[..] {
                    only.weight = 1;
                }
                rest
            }
            _ => Vec::new(),
        };
        if rest.is_empty() {
            routes.remove(at);
        } else {
            let next = Next::Members(rest);
            routes[at] = intern(KernelRoute { next, ..(*routes[at]).clone() });
        }
        routes
    }
}

/// The lowest comes first.
fn rank(route: &KernelRoute) -> (Reverse<u8>, u32) {
    (Reverse(route.tos), route.metric)
}

/// Whether Linux joins it with others of its prefix and metric (`rt6_qualify_for_ecmp()`).
fn joins(route: &KernelRoute) -> bool {
    let has_gateways = match &route.next {
        Next::Members(members) => {
            !members.is_empty() && members.iter().all(|member| member.hop.via.is_some())
        }
        Next::Object(_) => false,
    };
    has_gateways && route.protocol != PROTOCOL_RA && route.skip != Some(Skip::Source)
}
