//! The program in the kernel and the library on the host, with the same tables: BPF_PROG_RUN must
//! give what the library gives. Needs CAP_BPF and CAP_NET_ADMIN.

use std::{net::IpAddr, ops::Range, thread};

use aya::{
    Ebpf, EbpfLoader,
    maps::{
        Array, DevMapHash, HashMap, LpmTrie, Map, MapData, MapError, PerCpuArray, PerCpuValues,
        lpm_trie::Key,
    },
    programs::{TestRun as _, TestRunOptions, Xdp},
    util::nr_cpus,
};
use forwarder::{
    dataplane::{Memory, fib_memory},
    fib::Fib,
    prefix::Prefix,
};
use forwarder_common::{
    abi::{
        ADJACENCY_FRAGS, Adjacency, BUCKETS_MAX, BucketRange, FIB_UNITS, Interface,
        InterfaceCounters, ROUTE_FILTERED, ROUTE_IDS_FIRST, ROUTE_LOCAL, ROUTE_NONE, ROUTE_PUNT,
        RouteId, RouteWord, name,
    },
    forward::{Ingress, forward},
    lookup::Unsteered,
    packet::Packet,
    testing::{NaiveTables, Random, random_frame},
    verdict::{Reason, SLOT_REDIRECTED, SLOT_RX, Verdict},
};
use ipnet::IpNet;
use nix::sched::{CloneFlags, unshare};

use crate::object;

const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
/// What BPF_PROG_RUN gives a frame as its interface: the loopback of the caller's namespace.
const INGRESS: u32 = 1;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Runs in a network namespace of its own, whose loopback belongs to it alone.
pub fn in_own_namespace<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace (needs root)");
            run()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
/// The counters of [`INGRESS`].
const SLOT: u32 = 3;

/// Makes the flow hashes those of the library's tables.
const SEED: u64 = 0x0123_4567_89ab_cdef;
/// Of the group that works.
const GROUP: (u32, u32) = (BUCKETS_MAX - 64, 64);

const TO4: [[u8; 4]; 10] = [
    [198, 18, 2, 9],
    [198, 18, 3, 9],
    [198, 18, 3, 129],
    [198, 18, 4, 4],
    [198, 18, 5, 5],
    [198, 18, 7, 7],
    [198, 18, 8, 8],
    [198, 18, 9, 9],
    [198, 18, 1, 1],
    [198, 19, 0, 1],
];
const fn to6(subnet: u8, host: u8) -> [u8; 16] {
    [0x20, 1, 0x0d, 0xb8, 0, subnet, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]
}

/// The kernel refuses a CPUMAP of more CPUs than it was built for.
pub fn loader() -> EbpfLoader<'static> {
    let mut loader = EbpfLoader::new();
    loader.map_max_entries(name::CPUS, u32::try_from(nr_cpus().unwrap()).unwrap());
    loader
}

/// The library's tables and the kernel's maps, filled alike.
pub struct Twin {
    tables: NaiveTables,
    fib: Fib<Memory>,
    ebpf: Ebpf,
    /// Where all frames come in.
    interface: Interface,
}

fn of(address: IpAddr, len: u8) -> Prefix {
    Prefix::new(IpNet::new(address, len).unwrap()).unwrap()
}

impl Twin {
    /// In a namespace of the caller's own: see [`in_own_namespace`].
    pub fn filled() -> Self {
        Self::with_flags(0)
    }

    /// Likewise, with these flags of the interface.
    pub fn with_flags(flags: u16) -> Self {
        let mut loader = loader();
        let mut ebpf =
            loader.override_global(name::HASH_SEED, &SEED, true).load(&object()).unwrap();
        let program: &mut Xdp = ebpf.program_mut(name::INGRESS).unwrap().try_into().unwrap();
        program.load().unwrap();
        let fib = Fib::new(fib_memory(&mut ebpf, FIB_UNITS).unwrap());
        let tables = NaiveTables { hash_seed: SEED, ..NaiveTables::default() };
        let interface = Interface { slot: SLOT, mac: MAC, flags };
        let mut twin = Self { tables, fib, ebpf, interface };
        let mut interfaces: HashMap<_, u32, Interface> = twin.map(name::INTERFACES);
        interfaces.insert(INGRESS, interface, 0).unwrap();
        let mut lease: Array<_, u64> = twin.map(name::LEASE);
        lease.set(0, u64::MAX, 0).unwrap();

        twin.word(ROUTE_PUNT, RouteWord::unusable(Reason::Punt));
        twin.word(ROUTE_LOCAL, RouteWord::unusable(Reason::Local));
        twin.word(ROUTE_NONE, RouteWord::unusable(Reason::NoRoute));
        twin.word(ROUTE_FILTERED, RouteWord::unusable(Reason::Filtered));
        twin.add_routes();
        twin
    }

    /// One for each thing that can become of a packet.
    fn add_routes(&mut self) {
        let adjacency = |port, mtu, flags| Adjacency {
            port,
            mtu,
            destination_mac: [2, 0, 0, 0, 1, 1],
            source_mac: [2, 0, 0, 0, 1, 2],
            flags,
        };
        self.adjacency(1, adjacency(1001, 1500, ADJACENCY_FRAGS));
        self.adjacency(2, adjacency(70, 1400, 0));
        self.adjacency(3, adjacency(INGRESS, 1500, 0));
        self.adjacency(4, adjacency(999_999, 1500, 0));
        for port in [1001, 70, INGRESS] {
            self.port(port);
        }
        let first = ROUTE_IDS_FIRST;
        for (route, adjacency) in (first..).zip(1..=4) {
            self.word(route, RouteWord::via(adjacency));
        }
        self.word(first + 4, RouteWord::unusable(Reason::NeighbourPending));
        self.add_groups();
        for (subnet, route) in (2..10).zip(first..) {
            self.route4([198, 18, subnet, 0], 24, route);
            self.route6(to6(subnet, 0), 48, route);
        }
        self.route4([198, 18, 3, 128], 25, first);
        self.route4([198, 18, 1, 1], 32, ROUTE_LOCAL);
        self.route6(to6(1, 1), 128, ROUTE_LOCAL);
        self.local4([198, 18, 1, 1], 32);
        self.local4([198, 18, 1, 255], 32);
    }

    /// One whose buckets lead by turns to two ports, to one that is gone and to nowhere; one that
    /// reaches beyond the last bucket; and one of a single bucket.
    fn add_groups(&mut self) {
        let (start, size) = GROUP;
        for (bucket, adjacency) in (start..start + size).zip([1, 2, 1, 4, 0, 1].iter().cycle()) {
            self.bucket(bucket, *adjacency);
        }
        let ranges = [(start, size), (start, 2 * size), (start + 1, 1)];
        for (route, (start, size)) in (ROUTE_IDS_FIRST + 5..).zip(ranges) {
            self.word(route, RouteWord::group(BucketRange::new(start, size)));
        }
    }

    fn bucket(&mut self, index: u32, adjacency: u32) {
        let mut buckets: Array<_, u32> = self.map(name::BUCKETS);
        buckets.set(index, adjacency, 0).unwrap();
        self.tables.buckets.insert(index, adjacency);
    }

    fn map<'a, M>(&'a mut self, name: &str) -> M
    where
        M: TryFrom<&'a mut Map, Error = MapError>,
    {
        self.ebpf.map_mut(name).unwrap().try_into().unwrap()
    }

    fn word(&mut self, route: RouteId, word: RouteWord) {
        let copies = PerCpuValues::try_from(vec![word; nr_cpus().unwrap()]).unwrap();
        let mut routes: PerCpuArray<_, RouteWord> = self.map(name::ROUTES);
        routes.set(route, copies, 0).unwrap();
        self.tables.words.insert(route, word);
    }

    fn adjacency(&mut self, index: u32, adjacency: Adjacency) {
        let mut adjacencies: Array<_, Adjacency> = self.map(name::ADJACENCIES);
        adjacencies.set(index, adjacency, 0).unwrap();
        self.tables.adjacencies.insert(index, adjacency);
    }

    fn port(&mut self, port: u32) {
        let mut ports: DevMapHash<&mut MapData> = self.map(name::PORTS);
        ports.insert(port, INGRESS, None, 0).unwrap();
        self.tables.ports.push(port);
    }

    fn route4(&mut self, prefix: [u8; 4], len: u8, route: RouteId) {
        self.fib.apply(&[(of(prefix.into(), len), Some(route))], &mut || false).unwrap();
        self.tables.routes4.insert((prefix, len), route);
    }

    fn route6(&mut self, prefix: [u8; 16], len: u8, route: RouteId) {
        self.fib.apply(&[(of(prefix.into(), len), Some(route))], &mut || false).unwrap();
        self.tables.routes6.insert((prefix, len), route);
    }

    fn local4(&mut self, prefix: [u8; 4], len: u8) {
        let mut locals: LpmTrie<_, [u8; 4], u32> = self.map(name::LOCALS4);
        locals.insert(&Key::new(len.into(), prefix), 1, 0).unwrap();
        self.tables.locals4.push((prefix, len));
    }

    /// What the kernel returns and leaves of a frame.
    fn kernel(&mut self, frame: &[u8]) -> (u32, Vec<u8>) {
        let program: &Xdp = self.ebpf.program(name::INGRESS).unwrap().try_into().unwrap();
        let mut out = vec![0; frame.len()];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ..TestRunOptions::default()
        };
        (program.test_run(options).unwrap().return_value, out)
    }

    fn library(&self, frame: &mut [u8]) -> Verdict {
        let ingress = Ingress { ifindex: INGRESS, interface: &self.interface };
        forward(&mut Packet::from_slice(frame), &ingress, &self.tables, &Unsteered)
    }

    /// Sends a frame for each seed both ways. All must agree, and so must the counters in the end;
    /// returns how many were redirected.
    pub fn agree_on(&mut self, seeds: Range<u64>) -> u64 {
        let to6: Vec<_> = (1..11).map(|subnet| to6(subnet, subnet)).collect();
        let before = self.counted(SLOT_RX);
        let (mut sent, mut redirected) = (0, 0);
        for seed in seeds {
            let frame = random_frame(&mut Random::new(seed), MAC, &TO4, &to6);
            // The kernel refuses to run what is shorter than an Ethernet header.
            if frame.len() < 14 {
                continue;
            }
            let mut expected = frame.clone();
            let verdict = self.library(&mut expected);
            let action = match verdict {
                Verdict::Redirect { .. } => XDP_REDIRECT,
                Verdict::Pass(_) => XDP_PASS,
                Verdict::Steer { .. } => unreachable!("steering is off"),
            };
            assert_eq!(self.kernel(&frame), (action, expected), "seed {seed}: {verdict:?}");
            sent += 1;
            redirected += u64::from(action == XDP_REDIRECT);
        }
        assert_eq!(self.counted(SLOT_RX) - before, sent);
        let passed: u64 = Reason::ALL.iter().map(|reason| self.counted(reason.slot())).sum();
        assert_eq!(self.counted(SLOT_RX), self.counted(SLOT_REDIRECTED) + passed);
        redirected
    }

    /// Packets of a slot, over all CPUs.
    fn counted(&mut self, slot: u32) -> u64 {
        let counters: PerCpuArray<_, InterfaceCounters> = self.map(name::COUNTERS);
        let copies = counters.get(&SLOT, 0).unwrap();
        copies.iter().map(|copy| copy.0[slot as usize].packets).sum()
    }
}
