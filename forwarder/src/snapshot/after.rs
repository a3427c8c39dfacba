//! What the kernel did with frames after the programs had returned, as its tracepoints tell. They
//! know no lengths: frames are counted, not bytes.

use forwarder_common::loss::{LOSSES, Loss, Target};
use serde::{Deserialize, Serialize};

/// Frames by [`Loss`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossCounts(pub Vec<u64>);

impl Default for LossCounts {
    fn default() -> Self {
        Self(vec![0; LOSSES as usize])
    }
}

impl LossCounts {
    pub fn of(&self, loss: Loss) -> u64 {
        self.0.get(loss.slot()).copied().unwrap_or_default()
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Those that happened.
    pub fn some(&self) -> impl Iterator<Item = (Loss, u64)> + '_ {
        Loss::ALL.into_iter().map(|loss| (loss, self.of(loss))).filter(|(_, count)| *count != 0)
    }

    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(&other.0) {
            *sum += *count;
        }
    }
}

/// What happened on one CPU to frames of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct After {
    /// Frames that came in by it, and that the kernel did not take for an interface…
    pub lost_to_port: LossCounts,
    /// … or for a CPU.
    pub lost_to_cpu: LossCounts,
    /// Frames that left by it. Not told in generic mode.
    pub sent: u64,
    /// Frames that were to leave by it, and that its driver did not send.
    pub unsent: LossCounts,
}

impl After {
    pub fn lost_to(&self, target: Target) -> &LossCounts {
        match target {
            Target::Port => &self.lost_to_port,
            Target::Cpu => &self.lost_to_cpu,
        }
    }

    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    pub fn add(&mut self, other: &Self) {
        self.lost_to_port.add(&other.lost_to_port);
        self.lost_to_cpu.add(&other.lost_to_cpu);
        self.sent += other.sent;
        self.unsent.add(&other.unsent);
    }
}

impl<'a> std::iter::Sum<&'a Self> for After {
    fn sum<I: Iterator<Item = &'a Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, after| {
            sum.add(after);
            sum
        })
    }
}

/// Frames that one CPU gave to the queue of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enqueued {
    /// Where they came in.
    pub cpu: u32,
    /// Whose queue it is.
    pub worker: u32,
    /// With those that there was no room for.
    pub frames: u64,
    pub dropped: u64,
}

/// Frames that a worker took out of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dequeued {
    pub cpu: u32,
    pub frames: u64,
    /// Of those that it passed: for these Linux had no memory.
    pub lost: u64,
}
