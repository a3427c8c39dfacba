//! Routes of a load as they are sent: what many routes have in common is written once a frame, and
//! kept once in the daemon.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use foldhash::fast::RandomState;
use forwarder_common::abi::CPUS_MAX;
use serde::{Deserialize, Serialize};

use super::protocol::ITEMS_PER_FRAME;
use crate::{
    prefix::Prefix,
    route::{NEXT_HOPS_MAX, NextHop, Route},
};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    next_hops: Vec<Arc<[NextHop]>>,
    /// A prefix, and by their index its next hops.
    routes: Vec<(Prefix, u32)>,
    /// By their index, the routes that are for some CPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cpus: Vec<(u32, Vec<u32>)>,
}

/// Next hops that were met before.
pub type Shared = HashSet<Arc<[NextHop]>, RandomState>;

impl Chunk {
    /// Routes in it.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// `None` where it has no routes, or a route has next hops that are not in it, or CPUs belong to
    /// no route, or a list is longer than any may be. Of what came, only what routes use is kept.
    pub fn into_routes(self, shared: &mut Shared) -> Option<Vec<Route>> {
        let is_too_long = |cpus: &Vec<u32>| cpus.len() > CPUS_MAX as usize;
        if self.routes.is_empty()
            || self.next_hops.iter().any(|next_hops| next_hops.len() > NEXT_HOPS_MAX)
            || self.cpus.len() > self.routes.len()
            || self.cpus.iter().any(|(_, cpus)| is_too_long(cpus))
        {
            return None;
        }
        let route = |(prefix, at): (Prefix, u32)| {
            let next_hops = self.next_hops.get(at as usize)?;
            let next_hops = if let Some(known) = shared.get(next_hops) {
                Arc::clone(known)
            } else {
                shared.insert(Arc::clone(next_hops));
                Arc::clone(next_hops)
            };
            Some(Route { prefix, next_hops, cpus: None })
        };
        let mut routes = self.routes.into_iter().map(route).collect::<Option<Vec<Route>>>()?;
        for (at, cpus) in self.cpus {
            routes.get_mut(at as usize)?.cpus = Some(cpus);
        }
        Some(routes)
    }
}

impl From<&[Route]> for Chunk {
    fn from(routes: &[Route]) -> Self {
        let mut chunk = Self::default();
        let mut known: HashMap<&[NextHop], u32, RandomState> = HashMap::default();
        for (index, route) in (0..).zip(routes) {
            let next = u32::try_from(chunk.next_hops.len()).unwrap_or(u32::MAX);
            let at = *known.entry(&route.next_hops).or_insert_with(|| {
                chunk.next_hops.push(Arc::clone(&route.next_hops));
                next
            });
            chunk.routes.push((route.prefix, at));
            chunk.cpus.extend(route.cpus.clone().map(|cpus| (index, cpus)));
        }
        chunk
    }
}

/// Parts of a load, each of which fits into a frame.
pub fn load_chunks(routes: &[Route]) -> impl Iterator<Item = &[Route]> {
    let mut rest = routes;
    std::iter::from_fn(move || {
        let mut room = ITEMS_PER_FRAME;
        let fits = |route: &&Route| {
            let left = room.checked_sub(route.items());
            room = left.unwrap_or(0);
            left.is_some()
        };
        // Whatever its length: the daemon refuses what is too long, and says so.
        let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
        let (chunk, others) = rest.split_at(count);
        rest = others;
        (!chunk.is_empty()).then_some(chunk)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_routes_share_is_sent_and_kept_once() {
        let route = |text: &str| {
            let words: Vec<&str> = text.split_whitespace().collect();
            crate::route::grammar::route(&words, None).unwrap()
        };
        let routes = [
            route("198.18.2.0/24 via 198.18.1.2"),
            route("198.18.3.0/24 via 198.18.1.3"),
            route("198.18.4.0/24 cpu 1,3 via 198.18.1.2"),
        ];
        let chunk = Chunk::from(&routes[..]);
        assert_eq!((chunk.next_hops.len(), chunk.len()), (2, 3));
        let mut shared = Shared::default();
        let first = chunk.clone().into_routes(&mut shared).unwrap();
        let second = chunk.into_routes(&mut shared).unwrap();
        assert_eq!(first, routes);
        assert!(Arc::ptr_eq(&first[0].next_hops, &second[2].next_hops));
        assert_eq!(shared.len(), 2);
    }

    #[test]
    fn what_points_beyond_the_chunk_is_refused() {
        let prefix: Prefix = "198.18.2.0/24".parse().unwrap();
        let next_hops: Arc<[NextHop]> = [].into();
        for (at, cpu_of) in [(1, 0), (0, 1), (u32::MAX, 0)] {
            let chunk = Chunk {
                next_hops: vec![Arc::clone(&next_hops)],
                routes: vec![(prefix, at)],
                cpus: vec![(cpu_of, vec![0])],
            };
            assert_eq!(chunk.into_routes(&mut Shared::default()), None);
        }
    }

    #[test]
    fn what_no_route_uses_is_not_kept_and_what_is_too_long_is_refused() {
        let prefix: Prefix = "198.18.2.0/24".parse().unwrap();
        let next_hops = |count| -> Arc<[NextHop]> {
            vec![NextHop { via: None, dev: None, weight: 1 }; count].into()
        };
        let mut shared = Shared::default();
        let lists = vec![next_hops(1), next_hops(2), next_hops(NEXT_HOPS_MAX)];
        let good = Chunk { next_hops: lists.clone(), routes: vec![(prefix, 2)], cpus: vec![] };
        assert!(good.clone().into_routes(&mut shared).is_some());
        assert_eq!(shared.len(), 1);
        let too_many_cpus = vec![0; CPUS_MAX as usize + 1];
        for bad in [
            Chunk { routes: vec![], ..good.clone() },
            Chunk { next_hops: vec![next_hops(NEXT_HOPS_MAX + 1)], ..good.clone() },
            Chunk { cpus: vec![(0, vec![0]), (0, vec![1])], ..good.clone() },
            Chunk { cpus: vec![(0, too_many_cpus)], ..good },
        ] {
            assert_eq!(bad.into_routes(&mut shared), None);
        }
        assert_eq!(shared.len(), 1);
    }
}
