//! What has happened between two moments.

use super::{
    After, Count, CpuCounters, Dequeued, Enqueued, InterfaceCounters, LossCounts, NicCounters,
    RouteCounters, Snapshot,
};

impl Snapshot {
    /// This one less an earlier one, counter by counter. What has been added since was zero; a
    /// daemon that has been started anew has counted all of it since.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        // Its counters began again.
        if self.uptime_ms < before.uptime_ms {
            return self.clone();
        }
        let interface = |now: &InterfaceCounters| match before
            .interfaces
            .iter()
            .find(|then| then.ifindex == now.ifindex)
        {
            Some(then) => now.since(then),
            None => now.clone(),
        };
        let enqueued = |now: &Enqueued| {
            let is_it = |then: &&Enqueued| (then.cpu, then.worker) == (now.cpu, now.worker);
            let then = before.enqueued.iter().find(is_it);
            let (frames, dropped) = then.map_or((0, 0), |then| (then.frames, then.dropped));
            Enqueued {
                frames: now.frames.saturating_sub(frames),
                dropped: now.dropped.saturating_sub(dropped),
                ..*now
            }
        };
        let dequeued = |now: &Dequeued| {
            let then = before.dequeued.iter().find(|then| then.cpu == now.cpu);
            let (frames, lost) = then.map_or((0, 0), |then| (then.frames, then.lost));
            Dequeued {
                frames: now.frames.saturating_sub(frames),
                lost: now.lost.saturating_sub(lost),
                ..*now
            }
        };
        let route = |now: &RouteCounters| {
            let then = before.routes.iter().find(|then| then.next_hops == now.next_hops);
            let zero = Vec::new();
            let cpus = each(&now.cpus, then.map_or(&zero, |then| &then.cpus), |a, b| a.since(*b));
            RouteCounters { cpus, ..now.clone() }
        };
        Self {
            uptime_ms: self.uptime_ms,
            cpus_online: self.cpus_online.clone(),
            interfaces: self.interfaces.iter().map(interface).collect(),
            routes: self.routes.iter().map(route).collect(),
            enqueued: self.enqueued.iter().map(enqueued).collect(),
            dequeued: self.dequeued.iter().map(dequeued).collect(),
            missing: self.missing.clone(),
        }
    }
}

impl InterfaceCounters {
    fn since(&self, before: &Self) -> Self {
        let counters = |now: &[CpuCounters], then: &[CpuCounters]| {
            each(now, then, |now, then| CpuCounters(each(&now.0, &then.0, |a, b| a.since(*b))))
        };
        let nic = match (self.nic, before.nic) {
            (Some(now), Some(then)) => Some(now.since(then)),
            _ => None,
        };
        Self {
            ingress: counters(&self.ingress, &before.ingress),
            worker: counters(&self.worker, &before.worker),
            after: each(&self.after, &before.after, After::since),
            nic,
            ..self.clone()
        }
    }
}

impl After {
    fn since(&self, before: &Self) -> Self {
        let losses = |now: &LossCounts, then: &LossCounts| {
            LossCounts(each(&now.0, &then.0, |now, then| now.saturating_sub(*then)))
        };
        Self {
            lost_to_port: losses(&self.lost_to_port, &before.lost_to_port),
            lost_to_cpu: losses(&self.lost_to_cpu, &before.lost_to_cpu),
            sent: self.sent.saturating_sub(before.sent),
            unsent: losses(&self.unsent, &before.unsent),
        }
    }
}

impl NicCounters {
    fn since(self, before: Self) -> Self {
        Self::from_array(std::array::from_fn(|at| {
            self.to_array()[at].saturating_sub(before.to_array()[at])
        }))
    }
}

impl Count {
    fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

/// Pair by pair; zeros where the earlier list is shorter.
fn each<T: Clone + Default>(now: &[T], before: &[T], less: impl Fn(&T, &T) -> T) -> Vec<T> {
    let zero = T::default();
    let before = before.iter().chain(std::iter::repeat(&zero));
    now.iter().zip(before).map(|(now, then)| less(now, then)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(uptime_ms: u64, base: u64) -> Snapshot {
        let mut counters = CpuCounters::default();
        counters.0[1] = Count { packets: base, bytes: base * 100 };
        let mut after = After { sent: base, ..After::default() };
        after.unsent.0[2] = base;
        after.lost_to_port.0[1] = base;
        let interface = InterfaceCounters {
            name: "eth0".to_owned(),
            ifindex: 2,
            generic: false,
            ingress: vec![counters.clone()],
            worker: vec![counters],
            after: vec![after],
            nic: Some(NicCounters::from_array([base; 7])),
        };
        Snapshot {
            uptime_ms,
            interfaces: vec![interface],
            enqueued: vec![Enqueued { cpu: 0, worker: 1, frames: base, dropped: base }],
            dequeued: vec![Dequeued { cpu: 1, frames: base, lost: base }],
            routes: vec![RouteCounters {
                next_hops: vec![],
                cpus: vec![Count { packets: base, bytes: base * 100 }],
            }],
            ..Snapshot::default()
        }
    }

    #[test]
    fn every_counter_is_less_by_what_it_was() {
        assert_eq!(snapshot(2000, 12).since(&snapshot(1000, 5)), snapshot(2000, 7));
    }

    #[test]
    fn what_was_not_there_was_zero() {
        let before = Snapshot { uptime_ms: 1000, ..Snapshot::default() };
        assert_eq!(snapshot(2000, 12).since(&before), snapshot(2000, 12));
        let mut grown = snapshot(2000, 12);
        let another = Enqueued { cpu: 3, worker: 1, frames: 4, dropped: 0 };
        grown.enqueued.push(another);
        grown.interfaces[0].after.push(After { sent: 9, ..After::default() });
        let since = grown.since(&snapshot(1000, 5));
        assert_eq!((since.enqueued[1], since.interfaces[0].after[1].sent), (another, 9));
    }

    #[test]
    fn a_daemon_that_was_started_anew_has_counted_all_since() {
        assert_eq!(snapshot(500, 3).since(&snapshot(1000, 5)), snapshot(500, 3));
    }
}
