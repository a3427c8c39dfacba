//! The local table's routes, counted by prefix: a prefix is ours as long as one of them is left.

use std::{
    collections::{BTreeMap, HashSet},
    net::IpAddr,
};

use super::event::Event;
use crate::prefix::Prefix;

/// What tells one route of the local table from another with the same prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LocalRoute {
    pub(super) prefix: Prefix,
    /// `RTN_*`.
    pub(super) kind: u8,
    pub(super) tos: u8,
    pub(super) ifindex: Option<u32>,
    pub(super) priority: Option<u32>,
    pub(super) source: Option<IpAddr>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LocalRoutes(BTreeMap<Prefix, HashSet<LocalRoute>>);

impl LocalRoutes {
    /// [`Event::Local`] if it is the first of its prefix.
    pub(super) fn insert(&mut self, route: LocalRoute) -> Option<Event> {
        let routes = self.0.entry(route.prefix).or_default();
        let first = routes.is_empty();
        routes.insert(route);
        first.then_some(Event::Local(route.prefix))
    }

    /// [`Event::LocalGone`] if it was the last of its prefix.
    pub(super) fn remove(&mut self, route: &LocalRoute) -> Option<Event> {
        let routes = self.0.get_mut(&route.prefix)?;
        routes.remove(route);
        if !routes.is_empty() {
            return None;
        }
        self.0.remove(&route.prefix);
        Some(Event::LocalGone(route.prefix))
    }

    pub(super) fn list(&self) -> Event {
        Event::Locals(self.0.keys().copied().collect())
    }
}

impl FromIterator<LocalRoute> for LocalRoutes {
    fn from_iter<I: IntoIterator<Item = LocalRoute>>(routes: I) -> Self {
        let mut locals = Self::default();
        for route in routes {
            locals.insert(route);
        }
        locals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(prefix: &str, ifindex: u32) -> LocalRoute {
        LocalRoute {
            prefix: prefix.parse().unwrap(),
            kind: libc::RTN_LOCAL,
            tos: 0,
            ifindex: Some(ifindex),
            priority: None,
            source: None,
        }
    }

    #[test]
    fn a_prefix_is_local_until_its_last_route_is_gone() {
        let (one, two) = (route("ff00::/8", 1), route("ff00::/8", 2));
        let mut locals = LocalRoutes::default();
        assert_eq!(locals.insert(one), Some(Event::Local(one.prefix)));
        assert_eq!(locals.insert(two), None);
        assert_eq!(locals.insert(two), None, "the kernel may tell of a route twice");
        assert_eq!(locals.remove(&one), None);
        assert_eq!(locals.remove(&one), None);
        assert_eq!(locals.remove(&two), Some(Event::LocalGone(one.prefix)));
        assert_eq!(locals.remove(&two), None);
        assert_eq!(locals, LocalRoutes::default());
    }

    #[test]
    fn a_list_names_each_prefix_once_and_in_order() {
        let routes = [route("ff00::/8", 1), route("198.18.0.1", 2), route("ff00::/8", 2)];
        let Event::Locals(list) = routes.into_iter().collect::<LocalRoutes>().list() else {
            unreachable!("list() gives Locals")
        };
        assert_eq!(list, ["198.18.0.1".parse().unwrap(), "ff00::/8".parse().unwrap()]);
    }
}
