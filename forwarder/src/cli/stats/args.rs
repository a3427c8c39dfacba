//! What can be typed after `stats`.

use std::time::Duration;

use clap::Args;

use super::{Lines, Watch};

/// A day.
const WATCH_MAX_S: i64 = 86_400;

#[derive(Clone, Copy, Debug, Args)]
pub struct StatsArgs {
    /// A line for each CPU
    #[arg(long)]
    pub per_cpu: bool,
    /// A line for each interface, in rates; totals always have them
    #[arg(long)]
    pub per_interface: bool,
    /// Look again each so many seconds, and show what happened between, by the second
    #[arg(short, long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=WATCH_MAX_S))]
    pub watch: Option<u32>,
    /// How often to look again, each second unless -w says otherwise; without it, until Ctrl-C
    #[arg(short = 'n', long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,
    /// Show the means over all of that time alone, at its end
    #[arg(long, requires = "count")]
    pub summary: bool,
}

impl StatsArgs {
    /// `None` where totals are asked for.
    pub fn watch(&self) -> Option<Watch> {
        let Self { per_cpu, per_interface, watch, count, summary } = *self;
        let seconds = watch.or(count.map(|_| 1))?;
        let every = Duration::from_secs(seconds.into());
        Some(Watch { every, count, summary, lines: Lines { per_interface, per_cpu } })
    }
}
