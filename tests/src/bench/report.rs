//! Figures as text and as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    figures::{Figures, PROGRAMS, Quantiles, label},
    floors,
};
use forwarder_tests::programs::Candidate;

const OURS: Option<Candidate> = Some(Candidate::Fib);

pub(crate) fn print(figures: &Figures) {
    let Figures { family, source, routes, speed, .. } = figures;
    println!("\n## {family}, {routes} routes ({source})\n");
    print!("| ns a packet (spread of the rounds) |");
    for kind in &speed.kinds {
        print!(" {} |", kind.label());
    }
    println!("\n|---|{}", "---|".repeat(speed.kinds.len()));
    for program in PROGRAMS {
        print!("| {} |", label(program));
        for kind in 0..speed.kinds.len() {
            let spread = speed.spread(program, kind) * 100.0;
            print!(" {:.1} ({spread:.0} %) |", speed.ns(program, kind));
        }
        println!();
    }
    for program in PROGRAMS.into_iter().filter(|program| *program != OURS) {
        let (over, under) = if program.is_none() { (OURS, program) } else { (program, OURS) };
        print!("| {} / {} |", label(over), label(under));
        for kind in 0..speed.kinds.len() {
            print!(" {:.2}x |", speed.ratio(over, under, kind));
        }
        println!();
    }
    print!("| cache lines of the FIB a lookup |");
    for lines in &speed.lines {
        print!(" {lines:.2} |");
    }
    println!("\n");
    costs(figures);
}

/// What is to be reached, and whether it was.
pub(crate) fn checks(figures: &Figures) {
    println!();
    for check in floors::checks(figures) {
        let verdict = match (check.is_met(), check.reaches_goal()) {
            (false, _) => "MISSED",
            (true, Some(true)) => "met, and the goal",
            (true, Some(false)) => "met, the goal not",
            (true, None) => "met",
        };
        let goal = check.goal.map_or_else(String::new, |goal| format!(", goal {goal}"));
        println!(
            "- {}: {:.2} {} (floor {}{goal}): {verdict}",
            check.what, check.measured, check.unit, check.floor
        );
    }
}

fn costs(figures: &Figures) {
    let Figures { memory, load, update, live, routes, wrong, speed, .. } = figures;
    for (candidate, wrong, of) in wrong {
        println!("answers of {}: {wrong} of {of} are not the oracle's", label(Some(*candidate)));
    }
    println!(
        "memory: {:.2} MB of nodes, {:.2} MB of touched root, {:.2} B a route",
        mb(memory.nodes),
        mb(memory.root),
        memory.per_route(*routes)
    );
    println!(
        "loading: {} at once, {} as changes; LPM_TRIE {} ({:.1}x)",
        ms(load.replace),
        ms(load.apply),
        ms(load.lpm),
        load.ratio()
    );
    let quantiles = |q: Quantiles| format!("{} / {} ns", q.median.as_nanos(), q.p99.as_nanos());
    println!(
        "one update, median / p99: replace {}, delete {}, insert {}",
        quantiles(update.replace),
        quantiles(update.delete),
        quantiles(update.insert)
    );
    println!(
        "live updates a second, beside {:.1} million lookups: {:.0} replacements, {:.0} of all kinds",
        live.lookups / 1e6,
        live.replaces,
        live.mixed
    );
    println!("a system call costs {} µs beside its runs, taken off above", speed.fixed.as_micros());
}

pub(crate) fn json(figures: &Figures) -> Value {
    let Figures { speed, memory, load, update, live, .. } = figures;
    let quantiles =
        |q: Quantiles| json!({ "median": q.median.subsec_nanos(), "p99": q.p99.subsec_nanos() });
    let mut lookups = Vec::new();
    for (kind, trace) in speed.kinds.iter().enumerate() {
        for program in PROGRAMS {
            lookups.push(json!({
                "program": label(program),
                "trace": trace.label(),
                "ns": speed.ns(program, kind),
                "over_ours": speed.ratio(program, OURS, kind),
                "rounds": speed.samples[&(program, kind)],
            }));
        }
    }
    let checks = floors::checks(figures).into_iter().map(|check| {
        json!({
            "what": check.what, "measured": check.measured, "unit": check.unit,
            "floor": check.floor, "goal": check.goal, "met": check.is_met(),
        })
    });
    let wrong = figures.wrong.iter().map(|(candidate, wrong, of)| {
        json!({ "program": label(Some(*candidate)), "wrong": wrong, "of": of })
    });
    json!({
        "family": figures.family.to_string(),
        "source": figures.source,
        "routes": figures.routes,
        "lookups": lookups,
        "cache_lines": speed.lines,
        "answers": wrong.collect::<Vec<_>>(),
        "memory_bytes": { "nodes": memory.nodes, "root_touched": memory.root },
        "load_s": {
            "replace": load.replace.as_secs_f64(),
            "apply": load.apply.as_secs_f64(),
            "lpm_trie": load.lpm.as_secs_f64(),
        },
        "update_ns": {
            "replace": quantiles(update.replace),
            "delete": quantiles(update.delete),
            "insert": quantiles(update.insert),
        },
        "live_per_s": {
            "replacements": live.replaces, "of_all_kinds": live.mixed, "lookups": live.lookups,
        },
        "checks": checks.collect::<Vec<_>>(),
    })
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn ms(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}
