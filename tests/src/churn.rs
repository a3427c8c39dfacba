//! One thread changes routes at full speed, another runs the loaded program, which compares what it
//! finds with everything that the destination may lead to. Every prefix flips between two routes of
//! its own, and some come and go: an answer that is neither of the prefix nor of the one that
//! covers it was read where something else had been written meanwhile.

use std::{
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use forwarder::{
    fib::{Fib, Grace},
    prefix::Family,
};
use forwarder_common::{
    abi::{FIB_UNITS, ROUTE_IDS_FIRST, ROUTE_IDS_MAX, ROUTE_NONE, RouteId},
    testing::Random,
};
use rustix::thread::{MembarrierCommand, membarrier};

use crate::{
    cpu,
    netns::Namespace,
    programs::{Programs, Shared, object},
    tables::{
        Net, Route, Table,
        oracle::Oracle,
        synthetic,
        trace::{self, Kind},
    },
};

/// What is changed, and looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Eight prefixes that leave and enter each other's memory.
    Hot,
    /// The same, with so little memory that what is given up is used again at once.
    HotAndTight,
    /// A table of this many routes.
    Table(usize),
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub lookups: u64,
    pub wrong: u64,
    pub updates: u64,
    pub time: Duration,
    /// The last wrong answer: the destination, what was found, and what it might have been.
    pub last: Option<(u128, RouteId, [RouteId; 4])>,
}

/// As the daemon waits for a grace period.
pub fn membarrier_grace() -> bool {
    membarrier(MembarrierCommand::Global).is_ok()
}

/// Looks up until so many lookups were made, or one went wrong where that is wanted.
pub fn churn(
    family: Family,
    set: Set,
    grace: fn() -> bool,
    lookups: u64,
    until_wrong: bool,
) -> Outcome {
    let namespace = Namespace::new().expect("a network namespace (needs root)");
    namespace.run(|| {
        let mut churn = Churn::of(family, set);
        churn.run(grace, |outcome| outcome.lookups >= lookups || until_wrong && outcome.wrong > 0)
    })
}

struct Churn {
    programs: Programs,
    fib: Fib<Shared>,
    family: Family,
    flipping: Vec<Flipping>,
    destinations: Vec<u128>,
    expected: Vec<[RouteId; 4]>,
}

/// A prefix that flips between two routes.
struct Flipping {
    net: Net,
    ids: [RouteId; 2],
    comes_and_goes: bool,
    is_there: bool,
}

impl Churn {
    fn of(family: Family, set: Set) -> Self {
        let table = match set {
            Set::Hot | Set::HotAndTight => hot(family),
            Set::Table(routes) => synthetic::table(family, routes, 1),
        };
        let flipping = flipping(&table);
        let destinations = trace::trace(&table, Kind::Prefixes, trace::LEN, 1);
        let expected = expected(&table, &flipping, &destinations);
        let programs = Programs::load(&object().unwrap(), 0).unwrap();
        let mut fib = programs.new_fib(if set == Set::HotAndTight { 40 } else { FIB_UNITS });
        let all = flipping.iter().filter(|flipping| flipping.is_there);
        let all: Vec<_> = all.map(|at| (at.net.prefix(family), at.ids[0])).collect();
        fib.replace(all, &mut || true).unwrap();
        programs.set_trace(family, &destinations);
        programs.set_expected(&expected);
        Self { programs, fib, family, flipping, destinations, expected }
    }

    fn run(&mut self, grace: fn() -> bool, is_enough: impl Fn(&Outcome) -> bool + Send) -> Outcome {
        let Self { programs, fib, family, flipping, destinations, expected } = self;
        let (programs, family) = (&*programs, *family);
        let (stop, updates) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut outcome =
            Outcome { lookups: 0, wrong: 0, updates: 0, time: Duration::ZERO, last: None };
        let begin = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                cpu::on(1, || {
                    let mut random = Random::new(1);
                    while !stop.load(SeqCst) {
                        let at = random.below(flipping.len() as u64);
                        let at = &mut flipping[usize::try_from(at).unwrap()];
                        updates.fetch_add(
                            at.change(fib, family, &mut random, &mut || grace()),
                            Relaxed,
                        );
                    }
                });
            });
            cpu::on(0, || {
                while !is_enough(&outcome) {
                    let wrong = programs.compare(family, 1 << 20).unwrap();
                    outcome.lookups += 1 << 20;
                    outcome.wrong += u64::from(wrong.count);
                    if wrong.count > 0 {
                        let at = wrong.at as usize;
                        outcome.last = Some((destinations[at], wrong.route, expected[at]));
                    }
                }
            });
            stop.store(true, SeqCst);
        });
        outcome.time = begin.elapsed();
        outcome.updates = updates.load(SeqCst);
        outcome
    }
}

impl Flipping {
    /// Gives back how many updates were made: where memory is tight, none may be.
    fn change(
        &mut self,
        fib: &mut Fib<Shared>,
        family: Family,
        random: &mut Random,
        grace: Grace<'_>,
    ) -> u64 {
        let leaves = self.comes_and_goes && self.is_there && random.below(2) == 0;
        let id = (!leaves).then(|| random.pick(&self.ids));
        let done = fib.apply(&[(self.net.prefix(family), id)], grace);
        if done.is_ok() {
            self.is_there = !leaves;
        }
        u64::from(done.is_ok())
    }
}

/// Below slots of their own, but at the same bytes: whoever stands in the node of one while that
/// becomes the node of another finds the other's route.
fn hot(family: Family) -> Table {
    let route = |at: u8| {
        let net = match family {
            Family::Inet => {
                let bits = u128::from_be_bytes(
                    [[198, 18 + at, 64, 64], [0; 4], [0; 4], [0; 4]].concat().try_into().unwrap(),
                );
                Net::new(bits, [24, 24, 22, 20, 28, 26, 32, 30][usize::from(at)])
            }
            Family::Inet6 => {
                let mut octets = [0x40; 16];
                octets[..3].copy_from_slice(&[0x20, 0x01, 0x10 + at]);
                Net::new(
                    u128::from_be_bytes(octets),
                    [32, 29, 40, 36, 48, 44, 56, 64][usize::from(at)],
                )
            }
        };
        Route { net, id: ROUTE_NONE }
    };
    Table { family, source: "hot".to_owned(), routes: (0..8).map(route).collect() }
}

/// No prefix comes and goes below one that does: what covers it is always the same.
fn flipping(table: &Table) -> Vec<Flipping> {
    let mut random = Random::new(2);
    let mut above: Vec<(Net, bool)> = Vec::new();
    let ids = u64::from(ROUTE_IDS_MAX - ROUTE_IDS_FIRST) / 2;
    let mut flipping = Vec::with_capacity(table.routes.len());
    for (route, number) in table.routes.iter().zip(0..) {
        while above.pop_if(|(net, _)| !net.holds(route.net.bits)).is_some() {}
        let is_below = above.last().is_some_and(|(_, comes_and_goes)| *comes_and_goes);
        let comes_and_goes = !is_below && (table.routes.len() < 100 || random.below(2) == 0);
        above.push((route.net, comes_and_goes));
        // Its own, as long as there are enough.
        let first = ROUTE_IDS_FIRST + 2 * u32::try_from(number % ids).unwrap();
        let is_there = table.routes.len() > 100;
        flipping.push(Flipping {
            net: route.net,
            ids: [first, first + 1],
            comes_and_goes,
            is_there,
        });
    }
    flipping
}

/// Everything that each destination may lead to.
fn expected(table: &Table, flipping: &[Flipping], destinations: &[u128]) -> Vec<[RouteId; 4]> {
    let routes = table.routes.iter().zip(0..).map(|(route, id)| Route { id, ..*route }).collect();
    let by_index = Oracle::of(&Table { routes, ..table.clone() });
    let of = |destination: &u128| {
        let (net, at) = by_index.longest(*destination, 128).expect("of a prefix of the table");
        let at = &flipping[at as usize];
        let [a, b] = at.ids;
        if !at.comes_and_goes {
            return [a, b, a, b];
        }
        let cover = net.len.checked_sub(1).and_then(|len| by_index.longest(*destination, len));
        let [c, d] = cover.map_or([ROUTE_NONE; 2], |(_, cover)| flipping[cover as usize].ids);
        [a, b, c, d]
    };
    destinations.iter().map(of).collect()
}
