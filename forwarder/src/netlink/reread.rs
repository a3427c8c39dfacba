//! When a list is read again.

use std::time::Duration;

use tokio::time::Instant;

/// Whoever asks gets a list that is read no earlier than asked for. However many ask, it is read
/// no more often than the longest time that they ask for.
#[derive(Debug, Default)]
pub(super) struct Reread {
    at: Option<Instant>,
    /// Somebody has asked for a later time meanwhile.
    again: Option<Instant>,
}

impl Reread {
    pub(super) fn ask(&mut self, now: Instant, after: Duration) {
        let asked = now + after;
        match self.at {
            None => self.at = Some(asked),
            Some(at) if at >= asked => {}
            Some(_) => self.again = self.again.max(Some(asked)),
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.at
    }

    /// Whether the time has come; it is up to the caller to read then.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.at.is_some_and(|at| at <= now);
        if is_due {
            self.at = self.again.take();
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(200);

    #[test]
    fn a_list_is_read_after_the_last_that_asked_and_soon_after_the_first() {
        let mut reread = Reread::default();
        assert_eq!(reread.next(), None);
        let start = Instant::now();
        let (mut reads, mut asks) = (Vec::new(), Vec::new());
        for step in 0..100u32 {
            let now = start + WAIT / 10 * step;
            if step < 25 {
                reread.ask(now, WAIT);
                asks.push(now);
            }
            if reread.is_due(now) {
                reads.push(now);
            }
        }
        assert_eq!(reads.first(), Some(&(start + WAIT)), "who asks on does not put it off");
        assert!(*reads.last().unwrap() >= *asks.last().unwrap() + WAIT);
        assert!(reads.len() <= 4, "{}", reads.len());
        assert_eq!(reread.next(), None);
    }
}
