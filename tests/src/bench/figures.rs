//! What was measured.

use std::{collections::BTreeMap, time::Duration};

use forwarder::prefix::Family;
use forwarder_tests::{programs::Candidate, tables::trace::Kind};

/// Everything about one table.
pub(crate) struct Figures {
    pub(crate) family: Family,
    pub(crate) source: String,
    pub(crate) is_real: bool,
    pub(crate) routes: usize,
    /// Answers that were not the oracle's, by candidate, and how many there were.
    pub(crate) wrong: Vec<(Candidate, usize, usize)>,
    pub(crate) speed: Speed,
    pub(crate) memory: Memory,
    pub(crate) load: Load,
    pub(crate) update: Update,
    pub(crate) live: Live,
}

/// A program; `None` is the empty one.
pub(crate) type Program = Option<Candidate>;

/// Nanoseconds a packet, one for each round.
#[derive(Default)]
pub(crate) struct Speed {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) samples: BTreeMap<(Program, usize), Vec<f64>>,
    /// Cache lines of the FIB that a lookup looks at, by kind.
    pub(crate) lines: Vec<f64>,
    /// What a system call costs beside its runs; taken off already.
    pub(crate) fixed: Duration,
}

pub(crate) struct Memory {
    pub(crate) nodes: u64,
    /// Pages of the root that differ from an empty one's.
    pub(crate) root: u64,
}

/// From parsed routes to a table that can be asked.
pub(crate) struct Load {
    pub(crate) replace: Duration,
    pub(crate) apply: Duration,
    /// LPM_TRIE, a system call a route.
    pub(crate) lpm: Duration,
}

pub(crate) struct Update {
    pub(crate) replace: Quantiles,
    pub(crate) delete: Quantiles,
    pub(crate) insert: Quantiles,
}

#[derive(Clone, Copy)]
pub(crate) struct Quantiles {
    pub(crate) median: Duration,
    pub(crate) p99: Duration,
}

/// While another CPU looks up.
pub(crate) struct Live {
    pub(crate) replaces: f64,
    /// Replacements, deletions and insertions alike.
    pub(crate) mixed: f64,
    /// Lookups a second meanwhile.
    pub(crate) lookups: f64,
}

impl Speed {
    pub(crate) fn at(&self, kind: Kind) -> Option<usize> {
        self.kinds.iter().position(|at| *at == kind)
    }

    pub(crate) fn ns(&self, program: Program, kind: usize) -> f64 {
        median(&self.samples[&(program, kind)])
    }

    /// Largest less smallest of the rounds, over the median.
    pub(crate) fn spread(&self, program: Program, kind: usize) -> f64 {
        let samples = &self.samples[&(program, kind)];
        let (min, max) = samples
            .iter()
            .fold((f64::MAX, 0.0_f64), |(min, max), sample| (min.min(*sample), max.max(*sample)));
        (max - min) / median(samples)
    }

    /// How many times as long the one takes as the other: the median of the rounds.
    pub(crate) fn ratio(&self, one: Program, other: Program, kind: usize) -> f64 {
        let (one, other) = (&self.samples[&(one, kind)], &self.samples[&(other, kind)]);
        let ratios: Vec<f64> = one.iter().zip(other).map(|(one, other)| one / other).collect();
        median(&ratios)
    }
}

impl Memory {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub(crate) fn per_route(&self, routes: usize) -> f64 {
        (self.nodes + self.root) as f64 / routes as f64
    }
}

impl Load {
    pub(crate) fn ratio(&self) -> f64 {
        self.lpm.as_secs_f64() / self.replace.as_secs_f64()
    }
}

impl Quantiles {
    pub(crate) fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        let at = |share: usize| samples[(samples.len() * share / 100).min(samples.len() - 1)];
        Self { median: at(50), p99: at(99) }
    }
}

pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// As reports name it.
pub(crate) fn label(program: Program) -> &'static str {
    match program {
        None => "empty program",
        Some(Candidate::Walk) => "all but the lookup",
        Some(Candidate::Fib) => "compact FIB",
        Some(Candidate::Lpm) => "LPM_TRIE",
        Some(Candidate::Kernel) => "bpf_fib_lookup",
    }
}

/// In the order of reports.
pub(crate) const PROGRAMS: [Program; 5] = [
    None,
    Some(Candidate::Walk),
    Some(Candidate::Fib),
    Some(Candidate::Lpm),
    Some(Candidate::Kernel),
];
