//! Lookups by the program in the kernel, and by an oracle that knows nothing of the FIB.

use anyhow::{Result, ensure};
use forwarder::{
    fib::{Change, Fib},
    prefix::Family,
};
use forwarder_common::{
    abi::{FIB_UNITS, ROUTE_IDS_FIRST, ROUTE_NONE, RouteId},
    testing::Random,
};

use crate::{
    netns::Namespace,
    programs::{Candidate, Programs, Shared, object},
    tables::{
        NEXT_HOPS, Net, Table, bits_of,
        oracle::Oracle,
        synthetic,
        trace::{self, Kind},
    },
};

/// The sets of addresses that answers are compared for.
pub const SETS: [Kind; 3] = [Kind::Uniform, Kind::Prefixes, Kind::Edges];

pub struct Sizes {
    pub routes: usize,
    /// Of each set.
    pub addresses: usize,
    /// Random changes between two comparisons.
    pub updates: usize,
}

/// The same routes in the kernel and in an oracle.
pub struct Agreement {
    programs: Programs,
    fib: Fib<Shared>,
    table: Table,
    oracle: Oracle,
}

impl Agreement {
    /// Compares before and after random changes.
    pub fn check(family: Family, sizes: &Sizes) {
        let namespace = Namespace::new().expect("a network namespace (needs root)");
        namespace.run(|| {
            let mut agreement = Self::of(synthetic::table(family, sizes.routes, 1));
            agreement.agree(sizes.addresses, 1);
            agreement.update(sizes.updates);
            agreement.agree(sizes.addresses, 2);
        });
    }

    fn of(table: Table) -> Self {
        let programs = Programs::load(&object().unwrap(), 0).unwrap();
        let mut fib = programs.new_fib(FIB_UNITS);
        fib.replace(table.prefixes(), &mut || true).unwrap();
        let oracle = Oracle::of(&table);
        Self { programs, fib, table, oracle }
    }

    fn agree(&self, addresses: usize, seed: u64) {
        for kind in SETS {
            let destinations = trace::trace(&self.table, kind, addresses, seed);
            let expected: Vec<_> = destinations.iter().map(|at| self.oracle.lookup(*at)).collect();
            let family = self.table.family;
            let wrong =
                mismatches(&self.programs, Candidate::Fib, family, &destinations, &expected);
            let wrong = wrong.unwrap();
            println!("{}, {}: {wrong} of {addresses} differ", self.table.family, kind.label());
            assert_eq!(wrong, 0, "{}, {}", self.table.family, kind.label());
        }
    }

    /// Adds, replaces and deletes at random, one by one.
    fn update(&mut self, updates: usize) {
        let mut random = Random::new(3);
        for _ in 0..updates {
            let at = usize::try_from(random.below(self.table.routes.len() as u64)).unwrap();
            let net = self.table.routes[at].net;
            let id = ROUTE_IDS_FIRST + u32::try_from(random.below(NEXT_HOPS.into())).unwrap();
            let (net, id) = match random.below(3) {
                0 => (net, None),
                1 => (net, Some(id)),
                _ => {
                    let max = u64::from(bits_of(self.table.family));
                    let len = u64::from(net.len) + random.below(max + 1 - u64::from(net.len));
                    let len = u8::try_from(len).unwrap();
                    (Net::new(net.pick(&mut random), len), Some(id))
                }
            };
            let change: Change = (net.prefix(self.table.family), id);
            self.fib.apply(&[change], &mut || true).unwrap();
            self.oracle.set(net, id);
        }
    }
}

/// How many answers of a program are not what they should be.
pub fn mismatches(
    programs: &Programs,
    candidate: Candidate,
    family: Family,
    destinations: &[u128],
    expected: &[RouteId],
) -> Result<usize> {
    let answers = programs.answers(candidate, family, destinations)?;
    let routed = answers.iter().filter(|answer| **answer != ROUTE_NONE).count();
    ensure!(routed * 100 > answers.len(), "only {routed} of {} have a route", answers.len());
    Ok(answers.iter().zip(expected).filter(|(answer, expected)| answer != expected).count())
}
