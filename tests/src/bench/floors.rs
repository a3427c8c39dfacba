//! What the figures must not fall below, and what they are to reach.

use forwarder::prefix::Family;
use forwarder_tests::{programs::Candidate, tables::trace::Kind};

use crate::figures::{Figures, label};

pub(crate) struct Check {
    pub(crate) what: String,
    pub(crate) measured: f64,
    pub(crate) unit: &'static str,
    pub(crate) floor: f64,
    pub(crate) goal: Option<f64>,
    /// Whether smaller is better.
    is_cost: bool,
}

impl Check {
    pub(crate) fn is_met(&self) -> bool {
        self.meets(self.floor)
    }

    pub(crate) fn reaches_goal(&self) -> Option<bool> {
        self.goal.map(|goal| self.meets(goal))
    }

    fn meets(&self, bound: f64) -> bool {
        if self.is_cost { self.measured <= bound } else { self.measured >= bound }
    }
}

/// Ratios: the candidate's time over ours; floor, then goal.
type Ratios = &'static [(Candidate, Kind, f64, Option<f64>)];

const RATIOS4: Ratios = &[
    (Candidate::Kernel, Kind::Hot, 4.0, Some(4.4)),
    (Candidate::Kernel, Kind::Zipf, 8.0, Some(10.0)),
    (Candidate::Kernel, Kind::Uniform, 8.0, Some(11.0)),
    (Candidate::Kernel, Kind::Prefixes, 10.0, Some(15.0)),
    (Candidate::Lpm, Kind::Hot, 3.5, None),
    (Candidate::Lpm, Kind::Zipf, 10.0, None),
    (Candidate::Lpm, Kind::Uniform, 10.0, None),
];

const RATIOS6: Ratios = &[
    (Candidate::Kernel, Kind::Hot, 5.0, Some(5.8)),
    (Candidate::Kernel, Kind::Zipf, 8.0, Some(13.0)),
    (Candidate::Kernel, Kind::Prefixes, 8.0, Some(13.0)),
    (Candidate::Lpm, Kind::Hot, 2.5, None),
    (Candidate::Lpm, Kind::Zipf, 5.0, None),
    (Candidate::Lpm, Kind::Prefixes, 5.0, None),
];

pub(crate) fn checks(figures: &Figures) -> Vec<Check> {
    let (ratios, bytes, update_ns) = match figures.family {
        Family::Inet => (RATIOS4, 4.0, 2000.0),
        Family::Inet6 => (RATIOS6, 28.0, 4000.0),
    };
    let ours = Some(Candidate::Fib);
    let mut checks: Vec<Check> = ratios
        .iter()
        .filter_map(|(candidate, kind, floor, goal)| {
            let measured = figures.speed.ratio(Some(*candidate), ours, figures.speed.at(*kind)?);
            let what = format!("{} over ours, {}", label(Some(*candidate)), kind.label());
            Some(Check { what, measured, unit: "x", floor: *floor, goal: *goal, is_cost: false })
        })
        .collect();
    let mut add = |what: &str, measured, unit, floor, is_cost| {
        checks.push(Check { what: what.to_owned(), measured, unit, floor, goal: None, is_cost });
    };
    let ns = |duration: std::time::Duration| duration.as_secs_f64() * 1e9;
    add("memory a route", figures.memory.per_route(figures.routes), "B", bytes, true);
    if figures.family == Family::Inet {
        add("loading, LPM_TRIE over ours", figures.load.ratio(), "x", 15.0, false);
        add("live updates, replacements", figures.live.replaces / 1e3, "k/s", 300.0, false);
        add("live updates, of all kinds", figures.live.mixed / 1e3, "k/s", 300.0, false);
    }
    add("one replacement, median", ns(figures.update.replace.median), "ns", update_ns, true);
    add("one deletion, median", ns(figures.update.delete.median), "ns", update_ns, true);
    add("one insertion, median", ns(figures.update.insert.median), "ns", update_ns, true);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let wrong = figures.wrong.iter().map(|(_, wrong, _)| *wrong).sum::<usize>() as f64;
    add("answers that are not the oracle's", wrong, "", 0.0, true);
    checks
}
