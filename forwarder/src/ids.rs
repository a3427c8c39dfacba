//! Indexes into maps that programs read: one is used again only when no CPU can still hold it.

/// So many wait for a grace period before one is asked for, though others have never been used:
/// numbers stay low, which the FIB keeps in less memory, and few changes wait.
const QUARANTINE_MAX: usize = 64;

/// Hands out the numbers of a range, the lowest first.
#[derive(Debug)]
pub struct Ids {
    next: u32,
    end: u32,
    /// Known to nobody.
    free: Vec<u32>,
    /// Unlinked, but a packet on its way may have read them before.
    quarantine: Vec<u32>,
}

impl Ids {
    /// Numbers from `first` up to `end`, which is not one of them.
    pub fn new(first: u32, end: u32) -> Self {
        Self { next: first, end, free: Vec::new(), quarantine: Vec::new() }
    }

    /// `None` where all are in use. `grace` is called where nothing else is left, or many wait for
    /// it: it returns when every packet that was on its way has left, and `false` where it cannot
    /// know.
    pub fn take(&mut self, grace: impl FnOnce() -> bool) -> Option<u32> {
        if let Some(id) = self.free.pop() {
            return Some(id);
        }
        let enough = if self.next < self.end { QUARANTINE_MAX } else { 1 };
        if self.quarantine.len() >= enough && grace() {
            self.free.append(&mut self.quarantine);
            self.free.sort_unstable_by(|one, other| other.cmp(one));
            return self.free.pop();
        }
        if self.next < self.end {
            self.next += 1;
            return Some(self.next - 1);
        }
        None
    }

    /// Takes back a number that no map mentions any more.
    pub fn give_back(&mut self, id: u32) {
        self.quarantine.push(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_low_however_many_come_and_go() {
        let mut ids = Ids::new(3, u32::MAX);
        let mut periods = 0;
        for _ in 0..10_000 {
            let id = ids.take(|| {
                periods += 1;
                true
            });
            assert!(id < Some(3 + 64 + 1), "{id:?}");
            ids.give_back(id.unwrap());
        }
        assert!(periods <= 10_000 / 64, "{periods} grace periods");
        // And where none comes, those that were never used are taken.
        let last = (0..64).map(|_| ids.take(|| false).inspect(|id| ids.give_back(*id))).last();
        assert!(last.unwrap().is_some());
    }

    #[test]
    fn a_number_comes_back_only_after_a_grace_period() {
        let mut ids = Ids::new(2, 4);
        let no_grace = || panic!("asked while numbers were left");
        assert_eq!((ids.take(no_grace), ids.take(no_grace)), (Some(2), Some(3)));
        assert_eq!(
            ids.take(no_grace),
            None,
            "nothing is quarantined, so there is nothing to wait for"
        );
        ids.give_back(3);
        assert_eq!(ids.take(|| false), None, "no grace period, no number");
        assert_eq!(ids.take(|| true), Some(3));
        assert_eq!(ids.take(no_grace), None);
    }
}
