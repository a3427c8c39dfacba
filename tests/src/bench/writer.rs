//! What the per-CPU route map buys: lookups on one CPU while another rewrites route words at full
//! speed, in copies of its own, in one array for all, and in all copies as the daemon does it.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use aya::{
    maps::{MapData, PerCpuArray, PerCpuValues},
    util::nr_cpus,
};
use forwarder::prefix::Family;
use forwarder_common::abi::{FIB_UNITS, ROUTE_IDS_FIRST, RouteWord};
use forwarder_tests::{
    cpu,
    programs::Programs,
    tables::{
        NEXT_HOPS, Table,
        trace::{self, Kind},
    },
};
use serde_json::{Value, json};

use crate::{
    costs,
    figures::median,
    speed::{Plan, fixed},
};

const KINDS: [Kind; 3] = [Kind::Hot, Kind::Flows64, Kind::Zipf];

/// Who writes what meanwhile, and by which program is looked up.
const CASES: [(&str, Writer, &str); 5] = [
    ("per-CPU map, nobody writes", Writer::Nobody, "fib4"),
    ("shared array, nobody writes", Writer::Nobody, "shared4"),
    ("per-CPU map, another CPU rewrites its own copies", Writer::Program("write_own"), "fib4"),
    ("shared array, another CPU rewrites it", Writer::Program("write_shared"), "shared4"),
    ("per-CPU map, a system call a word rewrites all copies", Writer::SystemCalls, "fib4"),
];

/// Of a program that rewrites 256 words.
const RUNS: u32 = 10_000;

#[derive(Clone, Copy)]
enum Writer {
    Nobody,
    Program(&'static str),
    SystemCalls,
}

pub(crate) struct Case {
    name: &'static str,
    /// Nanoseconds a packet, by trace.
    ns: Vec<Vec<f64>>,
    /// Route words a second, in millions.
    written: Vec<f64>,
}

pub(crate) fn measure(object: &[u8], table: &Table, plan: &Plan, cpu: usize) -> Result<Vec<Case>> {
    let mut programs = Programs::load(object, 0)?;
    let mut fib = programs.new_fib(FIB_UNITS);
    fib.replace(table.prefixes(), &mut costs::grace)?;
    let mut words = programs.route_words()?;
    let fixed = fixed(&programs, table)?;
    let case = |(name, ..): (&'static str, Writer, &str)| Case {
        name,
        ns: vec![Vec::new(); KINDS.len()],
        written: Vec::new(),
    };
    let mut cases = CASES.map(case);
    for (kind, of) in KINDS.into_iter().enumerate() {
        programs.set_trace(table.family, &trace::trace(table, of, trace::LEN, 1));
        for round in 0..plan.rounds {
            for turn in 0..CASES.len() {
                let at = (round + turn) % CASES.len();
                let (_, writer, program) = CASES[at];
                let look_up = || cpu::on(cpu, || sample(&programs, program, plan.runs));
                let (took, written) =
                    beside(&look_up, || cpu::on(cpu + 1, || write(&programs, &mut words, writer)))?;
                let took = took.saturating_sub(fixed);
                cases[at].ns[kind].push(took.as_secs_f64() * 1e9 / f64::from(plan.runs));
                cases[at].written.push(written / 1e6);
            }
        }
    }
    Ok(cases.into())
}

/// Behind a warm-up.
fn sample(programs: &Programs, program: &str, runs: u32) -> Result<Duration> {
    programs.run(program, Family::Inet, runs)?;
    programs.run(program, Family::Inet, runs)
}

/// Looks up on a thread of its own while this one writes. Gives back the time of the one, and the
/// rate of the other.
fn beside(
    look_up: &(impl Fn() -> Result<Duration> + Sync),
    mut write: impl FnMut() -> Result<u32>,
) -> Result<(Duration, f64)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let took = look_up();
            stop.store(true, SeqCst);
            took
        });
        let (begin, mut written) = (Instant::now(), 0.0);
        while !stop.load(SeqCst) {
            written += f64::from(write()?);
        }
        let rate = written / begin.elapsed().as_secs_f64();
        Ok((reader.join().ok().context("the reader")??, rate))
    })
}

/// Writes for some milliseconds at most; gives back how many words.
fn write(
    programs: &Programs,
    words: &mut PerCpuArray<MapData, RouteWord>,
    writer: Writer,
) -> Result<u32> {
    match writer {
        Writer::Nobody => {
            thread::sleep(Duration::from_millis(1));
            Ok(0)
        }
        Writer::Program(name) => {
            programs.run(name, Family::Inet, RUNS)?;
            Ok(RUNS * 256)
        }
        Writer::SystemCalls => {
            for route in ROUTE_IDS_FIRST..ROUTE_IDS_FIRST + NEXT_HOPS {
                let word = vec![RouteWord::via(route); nr_cpus().map_err(|(_, error)| error)?];
                words.set(route, PerCpuValues::try_from(word)?, 0)?;
            }
            Ok(NEXT_HOPS)
        }
    }
}

pub(crate) fn print(cases: &[Case]) {
    print!("\n| IPv4, compact FIB: ns a packet |");
    for kind in KINDS {
        print!(" {} |", kind.label());
    }
    println!(" words written a second |\n|---|{}", "---|".repeat(KINDS.len() + 1));
    for case in cases {
        print!("| {} |", case.name);
        for ns in &case.ns {
            print!(" {:.1} |", median(ns));
        }
        println!(" {:.1} million |", median(&case.written));
    }
}

pub(crate) fn json(cases: &[Case]) -> Value {
    let case = |case: &Case| {
        let ns = KINDS.iter().zip(&case.ns).map(|(kind, ns)| (kind.label().to_owned(), json!(ns)));
        json!({
            "case": case.name,
            "ns": ns.collect::<serde_json::Map<_, _>>(),
            "million_words_per_s": case.written,
        })
    };
    cases.iter().map(case).collect()
}
