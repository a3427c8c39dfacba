//! The right answers, found without anything of the FIB: a hash table for each prefix length, asked
//! from the longest down.

use std::collections::HashMap;

use forwarder_common::abi::{ROUTE_NONE, RouteId};

use super::{Net, Table};

#[derive(Clone, Debug)]
pub struct Oracle {
    by_length: Vec<HashMap<u128, RouteId>>,
    /// Lengths that there are, longest first.
    lengths: Vec<u8>,
}

impl Oracle {
    pub fn of(table: &Table) -> Self {
        let mut oracle = Self { by_length: vec![HashMap::new(); 129], lengths: Vec::new() };
        for route in &table.routes {
            oracle.set(route.net, Some(route.id));
        }
        oracle
    }

    pub fn set(&mut self, net: Net, route: Option<RouteId>) {
        let routes = &mut self.by_length[usize::from(net.len)];
        match route {
            Some(route) => {
                if routes.is_empty() {
                    self.lengths.push(net.len);
                    self.lengths.sort_unstable_by(|a, b| b.cmp(a));
                    self.lengths.dedup();
                }
                routes.insert(net.bits, route);
            }
            None => drop(routes.remove(&net.bits)),
        }
    }

    pub fn get(&self, net: Net) -> Option<RouteId> {
        self.by_length[usize::from(net.len)].get(&net.bits).copied()
    }

    pub fn lookup(&self, bits: u128) -> RouteId {
        self.longest(bits, 128).map_or(ROUTE_NONE, |(_, route)| route)
    }

    /// The longest prefix of at most `len` bits that holds an address.
    pub fn longest(&self, bits: u128, len: u8) -> Option<(Net, RouteId)> {
        self.lengths.iter().filter(|at| **at <= len).find_map(|len| {
            let net = Net::new(bits, *len);
            Some((net, self.get(net)?))
        })
    }
}
