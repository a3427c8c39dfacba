//! Which next hops are asked for, and when: the kernel's neighbour table is small (1,024 entries
//! where nobody has changed `gc_thresh3`) and shared by all network namespaces of the machine.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

/// Questions between two refills. An answer that does not come holds its entry for some seconds.
pub(super) const PROBES_MAX: usize = 64;
const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(32);

/// An address on an interface, by its index.
type Neighbour = (u32, IpAddr);

#[derive(Debug, Default)]
pub(super) struct Probes {
    asked: HashMap<Neighbour, Asked>,
    budget: usize,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    again: Instant,
    /// Doubles each time.
    wait: Duration,
}

impl Probes {
    /// Allows as many questions again; called once a tick.
    pub(super) fn refill(&mut self) {
        self.budget = PROBES_MAX;
    }

    /// Those of the unconfirmed that are to be asked now. Who waits longest comes first, and who
    /// has never been asked before all.
    pub(super) fn due(&mut self, unconfirmed: Vec<Neighbour>, now: Instant) -> Vec<Neighbour> {
        let before = std::mem::take(&mut self.asked);
        let mut due = Vec::new();
        for neighbour in unconfirmed {
            match before.get(&neighbour) {
                Some(asked) => {
                    self.asked.insert(neighbour, *asked);
                    if asked.again <= now {
                        due.push((Some(asked.again), neighbour));
                    }
                }
                None => due.push((None, neighbour)),
            }
        }
        due.sort_unstable();
        due.truncate(self.budget);
        self.budget -= due.len();
        let due: Vec<Neighbour> = due.into_iter().map(|(_, neighbour)| neighbour).collect();
        for neighbour in &due {
            let wait = self.asked.get(neighbour).map_or(WAIT_FIRST, |asked| asked.wait * 2);
            let wait = wait.min(WAIT_MAX);
            self.asked.insert(*neighbour, Asked { again: now + wait, wait });
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbours(count: u8) -> Vec<Neighbour> {
        (0..count).map(|host| (2, IpAddr::from([198, 18, 2, host]))).collect()
    }

    #[test]
    fn who_does_not_answer_is_asked_ever_less_often() {
        let (mut probes, start) = (Probes::default(), Instant::now());
        let mut asked_at = Vec::new();
        for second in 0..120 {
            probes.refill();
            let now = start + Duration::from_secs(second);
            if probes.due(neighbours(1), now) == neighbours(1) {
                asked_at.push(second);
            }
        }
        assert_eq!(asked_at, [0, 1, 3, 7, 15, 31, 63, 95]);
    }

    #[test]
    fn who_answered_and_falls_silent_again_is_asked_at_once() {
        let (mut probes, now) = (Probes::default(), Instant::now());
        probes.refill();
        assert_eq!(probes.due(neighbours(1), now).len(), 1);
        assert_eq!(probes.due(neighbours(1), now), []);
        assert_eq!(probes.due(Vec::new(), now), []);
        assert_eq!(probes.due(neighbours(1), now), neighbours(1));
    }

    #[test]
    fn there_are_never_more_questions_than_the_budget_and_everybody_has_a_turn() {
        let (mut probes, start) = (Probes::default(), Instant::now());
        let all = neighbours(200);
        assert_eq!(probes.due(all.clone(), start), [], "nothing before the first refill");
        let mut seen = std::collections::BTreeSet::new();
        for second in 0..4 {
            probes.refill();
            let now = start + Duration::from_secs(second);
            let asked = probes.due(all.clone(), now);
            assert!(asked.len() <= PROBES_MAX);
            assert_eq!(probes.due(all.clone(), now).len(), 0, "the budget is spent");
            seen.extend(asked);
        }
        assert_eq!(seen.len(), all.len());
    }
}
