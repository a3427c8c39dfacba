//! `forwarder stats -w`: looks again and again, or often and then once at the means.

use std::{io::Write, time::Duration};

use super::{
    super::{error::CliError, output::Output},
    rates::{self, Lines},
};
use crate::snapshot::Snapshot;

/// What `-w`, `-n` and `--summary` ask for.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// Between two looks.
    pub every: Duration,
    /// How often; `None`: for ever.
    pub count: Option<u32>,
    /// The means over all of them alone.
    pub summary: bool,
    pub lines: Lines,
}

impl Watch {
    /// `look` asks the daemon, `wait` lets time go by.
    pub(in super::super) fn run<W: Write>(
        &self,
        mut look: impl FnMut() -> Result<Snapshot, CliError>,
        mut wait: impl FnMut(Duration),
        output: &mut Output<W>,
    ) -> Result<(), CliError> {
        let first = look()?;
        let mut before = first.clone();
        let mut looks = 0;
        while self.count.is_none_or(|count| looks < count) {
            wait(self.every);
            let now = look()?;
            if !self.summary {
                self.show(&now, &before, output)?;
            }
            before = now;
            looks += 1;
        }
        if self.summary {
            self.show(&before, &first, output)?;
        }
        Ok(())
    }

    fn show<W: Write>(
        &self,
        now: &Snapshot,
        before: &Snapshot,
        output: &mut Output<W>,
    ) -> Result<(), CliError> {
        let difference = now.since(before);
        let elapsed_ms = now.uptime_ms.saturating_sub(before.uptime_ms);
        let json = rates::as_json(&difference, elapsed_ms);
        Ok(output.document(&json, || rates::render(&difference, elapsed_ms, self.lines))?)
    }
}
