//! Work on a chosen CPU. A veth has frames received on the CPU that sends them: whoever chooses
//! one chooses where a frame arrives.

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity},
    unistd::Pid,
};

const THIS_THREAD: Pid = Pid::from_raw(0);

/// Does the work while this thread, and whatever it starts meanwhile, runs on this CPU alone.
pub fn on<T>(cpu: usize, work: impl FnOnce() -> T) -> T {
    let _pinned = Pinned::to(cpu);
    work()
}

/// Does the work without leaving the CPU that this thread is on.
pub fn stay<T>(work: impl FnOnce() -> T) -> T {
    on(sched_getcpu().expect("a thread may ask where it is"), work)
}

/// Where this thread may run when it is no longer pinned.
struct Pinned(CpuSet);

impl Pinned {
    fn to(cpu: usize) -> Self {
        let before = sched_getaffinity(THIS_THREAD).expect("a thread may ask where it runs");
        let mut only = CpuSet::new();
        only.set(cpu).expect("a CPU number within the kernel's bounds");
        sched_setaffinity(THIS_THREAD, &only)
            .unwrap_or_else(|error| panic!("run on CPU {cpu}: {error}"));
        Self(before)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // It can only fail when all of those CPUs went offline meanwhile.
        let _ = sched_setaffinity(THIS_THREAD, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_may_go_where_it_might_before() {
        let allowed = || {
            let set = sched_getaffinity(THIS_THREAD).unwrap();
            (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap()).collect::<Vec<_>>()
        };
        let before = allowed();
        let last = *before.last().unwrap();
        assert_eq!(on(last, allowed), [last]);
        assert_eq!(allowed(), before);
    }
}
