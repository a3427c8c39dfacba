//! The programs that ask a FIB and nothing else (forwarder-ebpf/src/bench), with their maps: for
//! benchmarks, and for tests that want to know what a lookup in the kernel gives.
//!
//! They run by BPF_PROG_RUN, in the network namespace of the thread that asks for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, LpmTrie, Map, MapData, MapError, PerCpuArray, PerCpuValues, lpm_trie::Key},
    programs::{TestRun as _, TestRunOptions, Xdp},
    util::nr_cpus,
};
use forwarder::{
    dataplane::{Memory, fib_memory},
    fib::Fib,
    prefix::Family,
};
use forwarder_common::{
    abi::{Adjacency, FIB_UNITS, ROUTE_IDS_FIRST, ROUTE_NONE, RouteId, RouteWord},
    fib::words,
    testing::{ipv4, ipv6},
    verdict::Reason,
};
use nix::time::{ClockId, clock_gettime};

use crate::tables::{NEXT_HOPS, Table, high32, trace};

/// Names the built object.
pub const OBJECT: &str = "FORWARDER_BENCH_OBJECT";

/// What a program asks for the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Candidate {
    /// Nothing: all but the lookup.
    Walk,
    Fib,
    Lpm,
    Kernel,
}

impl Candidate {
    pub const ALL: [Self; 4] = [Self::Walk, Self::Fib, Self::Lpm, Self::Kernel];

    /// The program that forwards by it.
    pub fn program(self, family: Family) -> String {
        let name = match self {
            Self::Walk => "walk",
            Self::Fib => "fib",
            Self::Lpm => "lpm",
            Self::Kernel => "kernel",
        };
        format!("{name}{}", if family == Family::Inet { 4 } else { 6 })
    }
}

pub struct Programs {
    ebpf: Ebpf,
    fib: Arc<Memory>,
    traces: [Memory; 2],
    answers: Memory,
    expected: Memory,
    state: Memory,
}

/// Memory that several look at, or its first words.
#[derive(Clone, Debug)]
pub struct Shared {
    memory: Arc<Memory>,
    words: usize,
}

impl AsRef<[AtomicU32]> for Shared {
    fn as_ref(&self) -> &[AtomicU32] {
        &(*self.memory).as_ref()[..self.words]
    }
}

/// Of wrong answers: how many, and the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub count: u32,
    /// Index of the destination.
    pub at: u32,
    pub route: RouteId,
}

/// The object, as `cargo xtask` builds it.
pub fn object() -> Result<Vec<u8>> {
    let path = std::env::var_os(OBJECT).map_or_else(
        || concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bpf/forwarder-bench.o").into(),
        std::path::PathBuf::from,
    );
    std::fs::read(&path).with_context(|| format!("read {} (cargo xtask build)", path.display()))
}

impl Programs {
    /// Frames seem to come in by `ingress`, an interface index, where the kernel is asked.
    pub fn load(object: &[u8], ingress: u32) -> Result<Self> {
        let mut ebpf =
            EbpfLoader::new().override_global("INGRESS_IFINDEX", &ingress, true).load(object)?;
        for (name, program) in ebpf.programs_mut() {
            let name = name.to_owned();
            let program: &mut Xdp = program.try_into()?;
            program.load().with_context(|| format!("load {name}"))?;
        }
        let fib = Arc::new(fib_memory(&mut ebpf, FIB_UNITS)?);
        let mut mapped = |name: &str, words| {
            let Some(Map::Array(map)) = ebpf.take_map(name) else {
                anyhow::bail!("the object has no {name}");
            };
            Ok(Memory::of(&map, words)?)
        };
        let traces = [mapped("TRACE4", trace::LEN)?, mapped("TRACE6", 4 * trace::LEN)?];
        let answers = mapped("ANSWERS", trace::LEN)?;
        let expected = mapped("EXPECTED", 2 * trace::LEN)?;
        let state = mapped("STATE", 4)?;
        let mut programs = Self { ebpf, fib, traces, answers, expected, state };
        programs.fill_levels()?;
        Ok(programs)
    }

    /// An empty FIB of at most [`FIB_UNITS`] in the programs' memory. What was in one before is
    /// forgotten.
    pub fn new_fib(&self, units: u32) -> Fib<Shared> {
        let words = usize::try_from(words(units)).expect("it is mapped");
        Fib::new(Shared { memory: self.fib.clone(), words })
    }

    /// The memory of the FIB.
    pub fn fib_words(&self) -> &[AtomicU32] {
        (*self.fib).as_ref()
    }

    pub fn take_lpm4(&mut self) -> Result<LpmTrie<MapData, [u8; 4], u32>> {
        Ok(self.ebpf.take_map("LPM4").context("the object has no LPM4")?.try_into()?)
    }

    pub fn take_lpm6(&mut self) -> Result<LpmTrie<MapData, [u8; 16], u32>> {
        Ok(self.ebpf.take_map("LPM6").context("the object has no LPM6")?.try_into()?)
    }

    /// Destinations, as the first bits of 128; there are at most [`trace::LEN`].
    pub fn set_trace(&self, family: Family, destinations: &[u128]) {
        let words = self.traces[usize::from(family == Family::Inet6)].as_ref();
        match family {
            Family::Inet => {
                for (word, bits) in words.iter().zip(destinations) {
                    word.store(high32(*bits).to_be(), Relaxed);
                }
            }
            Family::Inet6 => {
                for (words, bits) in words.chunks_exact(4).zip(destinations) {
                    for (word, octets) in words.iter().zip(bits.to_be_bytes().as_chunks().0) {
                        word.store(u32::from_ne_bytes(*octets), Relaxed);
                    }
                }
            }
        }
    }

    /// For each destination, the routes that it may have.
    pub fn set_expected(&self, expected: &[[RouteId; 4]]) {
        for (words, [a, b, c, d]) in self.expected.as_ref().chunks_exact(2).zip(expected) {
            words[0].store(a | b << 16, Relaxed);
            words[1].store(c | d << 16, Relaxed);
        }
    }

    /// The routes that a lookup in the kernel gives for these destinations.
    pub fn answers(
        &self,
        candidate: Candidate,
        family: Family,
        destinations: &[u128],
    ) -> Result<Vec<RouteId>> {
        self.set_trace(family, destinations);
        self.state.as_ref()[0].store(0, Relaxed);
        let repeat = u32::try_from(destinations.len())?;
        self.run(&format!("{}_answer", candidate.program(family)), family, repeat)?;
        let answers = self.answers.as_ref().iter().take(destinations.len());
        Ok(answers.map(|answer| answer.load(Relaxed)).collect())
    }

    /// Goes through the trace from its start, comparing: see [`Self::set_expected`].
    pub fn compare(&self, family: Family, repeat: u32) -> Result<Wrong> {
        self.state.as_ref()[..2].iter().for_each(|word| word.store(0, Relaxed));
        self.run(&format!("{}_expect", Candidate::Fib.program(family)), family, repeat)?;
        let state = |at: usize| self.state.as_ref()[at].load(Relaxed);
        Ok(Wrong { count: state(1), at: state(2), route: state(3) })
    }

    /// Runs a program so many times. Gives back how much of this thread's time that took.
    pub fn run(&self, name: &str, family: Family, repeat: u32) -> Result<Duration> {
        let program = self.ebpf.program(name).with_context(|| format!("there is no {name}"))?;
        let program: &Xdp = program.try_into()?;
        let frame = match family {
            Family::Inet => ipv4([2; 6], [198, 18, 0, 1], [198, 18, 0, 2], 64, 18),
            Family::Inet6 => ipv6([2; 6], [0x20; 16], [0x20; 16], 64, 18),
        };
        let options = TestRunOptions { data_in: Some(&frame), repeat, ..TestRunOptions::default() };
        let before = thread_time();
        program.test_run(options).with_context(|| format!("run {name}"))?;
        Ok(thread_time().saturating_sub(before))
    }

    /// Every route has an adjacency of its own, whose MAC address ends with the route's id.
    fn fill_levels(&mut self) -> Result<()> {
        let cpus = nr_cpus().map_err(|(_, error)| error)?;
        for route in ROUTE_IDS_FIRST..=(ROUTE_IDS_FIRST + NEXT_HOPS) {
            let word = RouteWord::via(route);
            let mut routes: PerCpuArray<_, RouteWord> = self.map("ROUTES")?;
            routes.set(route, PerCpuValues::try_from(vec![word; cpus])?, 0)?;
            let mut shared: Array<_, RouteWord> = self.map("SHARED_ROUTES")?;
            shared.set(route, word, 0)?;
            let adjacency = Adjacency {
                port: 1,
                mtu: 1500,
                destination_mac: mac(route),
                source_mac: [2, 0, 0, 0, 0, 1],
                flags: 0,
            };
            let mut adjacencies: Array<_, Adjacency> = self.map("ADJACENCIES")?;
            adjacencies.set(route, adjacency, 0)?;
        }
        let word = RouteWord::unusable(Reason::NoRoute);
        let mut routes: PerCpuArray<_, RouteWord> = self.map("ROUTES")?;
        routes.set(ROUTE_NONE, PerCpuValues::try_from(vec![word; cpus])?, 0)?;
        Ok(())
    }

    /// Writes a route word as the daemon does: all copies by one system call.
    pub fn route_words(&mut self) -> Result<PerCpuArray<MapData, RouteWord>> {
        Ok(self.ebpf.take_map("ROUTES").context("the object has no ROUTES")?.try_into()?)
    }

    fn map<'a, M>(&'a mut self, name: &str) -> Result<M>
    where
        M: TryFrom<&'a mut Map, Error = MapError>,
    {
        let map = self.ebpf.map_mut(name).with_context(|| format!("the object has no {name}"))?;
        Ok(map.try_into()?)
    }
}

/// The MAC address of a route's next hop.
pub fn mac(route: RouteId) -> [u8; 6] {
    let [_, _, high, low] = route.to_be_bytes();
    [2, 0, 0, 0, high, low]
}

/// Fills an LPM_TRIE, a system call a route.
pub fn fill_lpm(programs: &mut Programs, table: &Table) -> Result<()> {
    match table.family {
        Family::Inet => {
            let mut lpm = programs.take_lpm4()?;
            for route in &table.routes {
                let key = Key::new(route.net.len.into(), high32(route.net.bits).to_be_bytes());
                lpm.insert(&key, route.id, 0)?;
            }
        }
        Family::Inet6 => {
            let mut lpm = programs.take_lpm6()?;
            for route in &table.routes {
                let key = Key::new(route.net.len.into(), route.net.bits.to_be_bytes());
                lpm.insert(&key, route.id, 0)?;
            }
        }
    }
    Ok(())
}

/// What this thread has used of its CPU.
pub fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Into::into)
}
