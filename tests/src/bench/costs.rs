//! What a table costs beside lookups: memory, loading, updates.

use std::{
    sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use forwarder::{
    fib::{Change, Fib},
    prefix::Family,
};
use forwarder_common::{
    abi::{FIB_UNITS, ROUTE_IDS_FIRST, ROUTE_NONE},
    fib::{ACTIVE_AT, LEAF, ROOT4_AT, ROOT6_AT, SLOTS4, SLOTS6},
    testing::Random,
};
use forwarder_tests::{
    cpu,
    programs::{Programs, Shared, fill_lpm},
    tables::{
        NEXT_HOPS, Table,
        trace::{self, Kind},
    },
};
use rustix::thread::{MembarrierCommand, membarrier};

use crate::figures::{Live, Load, Memory, Quantiles, Update};

/// Words of a page.
const PAGE: usize = 1024;

/// As the daemon waits for one.
pub(crate) fn grace() -> bool {
    membarrier(MembarrierCommand::Global).is_ok()
}

pub(crate) fn changes(table: &Table) -> Vec<Change> {
    table.prefixes().into_iter().map(|(prefix, id)| (prefix, Some(id))).collect()
}

/// The FIB, in both of the ways to fill it, beside an LPM_TRIE.
pub(crate) fn load(programs: &mut Programs, table: &Table) -> Result<Load> {
    let (prefixes, changes) = (table.prefixes(), changes(table));
    let mut replaces = Vec::new();
    let mut applies = Vec::new();
    for _ in 0..3 {
        let mut fib = programs.new_fib(FIB_UNITS);
        let begin = Instant::now();
        fib.replace(prefixes.iter().copied(), &mut grace)?;
        replaces.push(begin.elapsed());
        drop(fib);
        let mut fib = programs.new_fib(FIB_UNITS);
        let begin = Instant::now();
        fib.apply(&changes, &mut grace)?;
        applies.push(begin.elapsed());
    }
    let begin = Instant::now();
    fill_lpm(programs, table)?;
    let lpm = begin.elapsed();
    replaces.sort_unstable();
    applies.sort_unstable();
    Ok(Load { replace: replaces[1], apply: applies[1], lpm })
}

pub(crate) fn memory(fib: &Fib<Shared>, words: &[AtomicU32], table: &Table) -> Memory {
    let active = words[ACTIVE_AT as usize].load(Relaxed);
    let (at, slots) = match table.family {
        Family::Inet => (ROOT4_AT + active * SLOTS4, SLOTS4),
        Family::Inet6 => (ROOT6_AT + active * SLOTS6, SLOTS6),
    };
    let root = &words[at as usize..(at + slots) as usize];
    let is_touched =
        |page: &&[AtomicU32]| page.iter().any(|word| word.load(Relaxed) != LEAF | ROUTE_NONE);
    let touched = root.chunks(PAGE).filter(is_touched).count();
    Memory { nodes: fib.reached(), root: touched as u64 * PAGE as u64 * 4 }
}

/// Each update alone, as the daemon makes them.
pub(crate) fn updates(fib: &mut Fib<Shared>, table: &Table, count: usize) -> Result<Update> {
    let mut random = Random::new(5);
    let mut timed = |change: Change| {
        let begin = Instant::now();
        let done = fib.apply(&[change], &mut grace);
        done.map(|()| begin.elapsed())
    };
    let mut replace = Vec::with_capacity(count);
    let (mut delete, mut insert) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for _ in 0..count {
        let (prefix, id) = replacement(table, &mut random);
        replace.push(timed((prefix, Some(id)))?);
    }
    for _ in 0..count {
        let (prefix, id) = replacement(table, &mut random);
        delete.push(timed((prefix, None))?);
        insert.push(timed((prefix, Some(id)))?);
    }
    Ok(Update {
        replace: Quantiles::of(replace),
        delete: Quantiles::of(delete),
        insert: Quantiles::of(insert),
    })
}

fn replacement(
    table: &Table,
    random: &mut Random,
) -> (forwarder::prefix::Prefix, forwarder_common::abi::RouteId) {
    let at = usize::try_from(random.below(table.routes.len() as u64)).expect("an index");
    let id =
        ROUTE_IDS_FIRST + u32::try_from(random.below(NEXT_HOPS.into())).expect("there are few");
    (table.routes[at].net.prefix(table.family), id)
}

/// Updates at full speed, grace periods and all, by the next CPU while this one looks up.
pub(crate) fn live(
    programs: &Programs,
    fib: &mut Fib<Shared>,
    table: &Table,
    time: Duration,
    cpu: usize,
) -> Result<Live> {
    let destinations = trace::trace(table, Kind::Prefixes, trace::LEN, 9);
    programs.set_trace(table.family, &destinations);
    let (stop, looked_up) = (AtomicBool::new(false), AtomicU64::new(0));
    let name = forwarder_tests::programs::Candidate::Fib.program(table.family);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            cpu::on(cpu, || -> Result<()> {
                while !stop.load(SeqCst) {
                    programs.run(&name, table.family, 1 << 18)?;
                    looked_up.fetch_add(1 << 18, SeqCst);
                }
                Ok(())
            })
        });
        let rates = cpu::on(cpu + 1, || -> Result<_> {
            let mut random = Random::new(6);
            let begin = Instant::now();
            let replaces = rate(time, || {
                let (prefix, id) = replacement(table, &mut random);
                fib.apply(&[(prefix, Some(id))], &mut grace)?;
                Ok(1)
            })?;
            let mixed = rate(time, || {
                let (prefix, id) = replacement(table, &mut random);
                fib.apply(&[(prefix, None)], &mut grace)?;
                fib.apply(&[(prefix, Some(id))], &mut grace)?;
                let (prefix, id) = replacement(table, &mut random);
                fib.apply(&[(prefix, Some(id))], &mut grace)?;
                Ok(3)
            })?;
            Ok((replaces, mixed, begin.elapsed()))
        });
        stop.store(true, SeqCst);
        reader.join().ok().context("the reader")??;
        let (replaces, mixed, time) = rates?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let lookups = looked_up.load(SeqCst) as f64 / time.as_secs_f64();
        Ok(Live { replaces, mixed, lookups })
    })
}

fn rate(time: Duration, mut update: impl FnMut() -> Result<u32>) -> Result<f64> {
    let begin = Instant::now();
    let mut count = 0_u32;
    while begin.elapsed() < time {
        for _ in 0..16 {
            count += update()?;
        }
    }
    Ok(f64::from(count) / begin.elapsed().as_secs_f64())
}
