//! The FIB as a plain list of prefixes.

use super::*;

#[derive(Clone, Debug, Default)]
pub(super) struct Oracle(BTreeMap<Prefix, RouteId>);

impl Oracle {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn apply(&mut self, changes: &[Change]) {
        for (prefix, route) in changes {
            match route {
                Some(route) => self.0.insert(*prefix, *route),
                None => self.0.remove(prefix),
            };
        }
    }

    pub(super) fn lookup(&self, address: IpAddr) -> RouteId {
        let longest = (0..=Prefix::host(address).len()).rev().find_map(|len| {
            let prefix = Prefix::new(IpNet::new(address, len).unwrap().trunc()).unwrap();
            self.0.get(&prefix)
        });
        longest.copied().unwrap_or(ROUTE_NONE)
    }

    /// First and last address of each prefix, and their neighbours outside.
    pub(super) fn edges(&self) -> Vec<IpAddr> {
        self.0.keys().flat_map(|prefix| edges_of(*prefix)).collect()
    }

    pub(super) fn check(&self, fib: &Fib<Plain>, addresses: impl IntoIterator<Item = IpAddr>) {
        for address in addresses {
            let found = reader::lookup(fib.memory.as_ref(), address);
            assert_eq!(found, self.lookup(address), "{address}");
        }
    }

    /// Takes out everything, one by one, and sees to it that nothing is left.
    pub(super) fn empty(&self, fib: &mut Fib<Plain>) {
        for prefix in self.0.keys() {
            assert_eq!(fib.route(*prefix), self.0.get(prefix).copied());
            fib.apply(&[(*prefix, None)], &mut at_once).unwrap();
            assert_eq!(fib.route(*prefix), None);
        }
        // A change that changes nothing gives back what waits for a grace period.
        fib.pool.release();
        assert_eq!(fib.usage().used, 0, "blocks were lost");
        assert_eq!((fib.count(Family::Inet), fib.count(Family::Inet6)), (0, 0));
        assert_eq!(fib.prefixes(), []);
        Self::default().check(fib, self.edges());
    }
}

pub(super) fn edges_of(prefix: Prefix) -> [IpAddr; 4] {
    let (first, last) = match IpNet::new(prefix.address(), prefix.len()).unwrap() {
        IpNet::V4(net) => (IpAddr::V4(net.network()), IpAddr::V4(net.broadcast())),
        IpNet::V6(net) => (IpAddr::V6(net.network()), IpAddr::V6(net.broadcast())),
    };
    [first, last, neighbour(first, -1), neighbour(last, 1)]
}

fn neighbour(address: IpAddr, distance: i32) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            Ipv4Addr::from(u32::from(address).wrapping_add_signed(distance)).into()
        }
        IpAddr::V6(address) => {
            Ipv6Addr::from(u128::from(address).wrapping_add_signed(distance.into())).into()
        }
    }
}
