//! Nanoseconds a packet, by BPF_PROG_RUN.
//!
//! Every sample comes behind a warm-up of the same program that is as long, so that no program
//! begins with what another left in the caches; the order changes every round; time is what the
//! thread used of its CPU, less what a system call takes that runs next to nothing.

use std::time::Duration;

use anyhow::Result;
use forwarder_tests::{
    agreement::{SETS, mismatches},
    programs::{Candidate, Programs},
    tables::{
        Table,
        oracle::Oracle,
        trace::{self, Kind},
    },
};

use crate::{
    figures::{PROGRAMS, Program, Speed},
    lines,
};

const KINDS: [Kind; 5] = [Kind::Hot, Kind::Flows64, Kind::Zipf, Kind::Uniform, Kind::Prefixes];

/// How much is measured.
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    /// Runs of a program whose lookup is fast.
    pub(crate) runs: u32,
    /// Addresses of each set that answers are compared for.
    pub(crate) compared: usize,
    /// Updates of each kind.
    pub(crate) updates: usize,
    /// How long updates are made while another CPU looks up.
    pub(crate) live: Duration,
}

impl Plan {
    pub(crate) fn full(rounds: usize) -> Self {
        Self {
            rounds,
            runs: 1 << 19,
            compared: trace::LEN,
            updates: 200_000,
            live: Duration::from_secs(3),
        }
    }

    pub(crate) fn brief() -> Self {
        Self {
            rounds: 1,
            runs: 1 << 14,
            compared: 1 << 14,
            updates: 1000,
            live: Duration::from_millis(200),
        }
    }
}

/// Compares the answers of every candidate with an oracle's.
pub(crate) fn wrong(
    programs: &Programs,
    table: &Table,
    plan: &Plan,
) -> Result<Vec<(Candidate, usize, usize)>> {
    let oracle = Oracle::of(table);
    let mut wrong = [Candidate::Fib, Candidate::Lpm, Candidate::Kernel].map(|at| (at, 0, 0));
    for (seed, kind) in (100..).zip(SETS) {
        let destinations = trace::trace(table, kind, plan.compared, seed);
        let expected: Vec<_> = destinations.iter().map(|at| oracle.lookup(*at)).collect();
        for (candidate, wrong, of) in &mut wrong {
            *wrong += mismatches(programs, *candidate, table.family, &destinations, &expected)?;
            *of += destinations.len();
        }
    }
    Ok(wrong.into())
}

pub(crate) fn measure(programs: &Programs, table: &Table, plan: &Plan) -> Result<Speed> {
    let fixed = fixed(programs, table)?;
    let mut speed = Speed { kinds: KINDS.into(), fixed, ..Speed::default() };
    let traces = KINDS.map(|kind| trace::trace(table, kind, trace::LEN, 1));
    let lines = |trace: &Vec<u128>| lines::a_lookup(programs.fib_words(), table.family, trace);
    speed.lines = traces.iter().map(lines).collect();
    for round in 0..plan.rounds {
        for (at, trace) in traces.iter().enumerate() {
            programs.set_trace(table.family, trace);
            for turn in 0..PROGRAMS.len() {
                let program = PROGRAMS[(round + turn) % PROGRAMS.len()];
                let ns = sample(programs, table, program, plan.runs, fixed)?;
                speed.samples.entry((program, at)).or_default().push(ns);
            }
        }
        eprintln!("round {} of {}", round + 1, plan.rounds);
    }
    Ok(speed)
}

fn sample(
    programs: &Programs,
    table: &Table,
    program: Program,
    runs: u32,
    fixed: Duration,
) -> Result<f64> {
    let name = program.map_or_else(|| "empty".to_owned(), |at| at.program(table.family));
    let is_slow = matches!(program, Some(Candidate::Lpm | Candidate::Kernel));
    let runs = if is_slow { runs / 2 } else { runs };
    // The warm-up.
    programs.run(&name, table.family, runs)?;
    let took = programs.run(&name, table.family, runs)?.saturating_sub(fixed);
    Ok(took.as_secs_f64() * 1e9 / f64::from(runs))
}

/// What a system call takes beside its runs: more than one run in a call makes the kernel rewrite
/// code of its own.
pub(crate) fn fixed(programs: &Programs, table: &Table) -> Result<Duration> {
    let mut samples = Vec::new();
    for _ in 0..11 {
        samples.push(programs.run("empty", table.family, 2)?);
    }
    samples.sort_unstable();
    Ok(samples[samples.len() / 2])
}
