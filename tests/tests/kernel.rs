//! The same frames through the kernel and through the library. Needs CAP_BPF and CAP_NET_ADMIN.

use std::thread;

use aya::{
    Ebpf, EbpfLoader,
    maps::{
        Array, DevMapHash, HashMap, LpmTrie, MapData, PerCpuArray, PerCpuValues, lpm_trie::Key,
    },
    programs::{TestRun as _, TestRunOptions, Xdp},
    util::nr_cpus,
};
use forwarder_common::{
    abi::{
        ADJACENCY_FRAGS, Adjacency, Interface, InterfaceCounters, ROUTE_LOCAL, ROUTE_PUNT, RouteId,
        RouteWord, name,
    },
    forward::{Ingress, forward},
    lookup::Unsteered,
    packet::Packet,
    testing::{NaiveTables, Random, random_frame},
    verdict::{Reason, SLOT_REDIRECTED, SLOT_RX, Verdict},
};
use forwarder_tests::object;
use nix::sched::{CloneFlags, unshare};

const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
/// What BPF_PROG_RUN gives a frame as its interface: the loopback of the caller's namespace.
const INGRESS: u32 = 1;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Runs in a network namespace of its own, whose loopback belongs to it alone.
fn in_own_namespace<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace (needs root)");
            run()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The kernel refuses a CPUMAP of more CPUs than it was built for.
fn loader() -> EbpfLoader<'static> {
    let mut loader = EbpfLoader::new();
    loader.map_max_entries(name::CPUS, u32::try_from(nr_cpus().unwrap()).unwrap());
    loader
}

#[test]
fn the_verifier_accepts_every_program() {
    for (steer, count_routes) in [(0u32, 0u32), (1, 0), (0, 1), (1, 1)] {
        let mut ebpf = loader()
            .override_global(name::STEER, &steer, true)
            .override_global(name::COUNT_ROUTES, &count_routes, true)
            .load(&object())
            .unwrap();
        let mut names = Vec::new();
        for (program, loaded) in ebpf.programs_mut() {
            let loaded: &mut Xdp = loaded.try_into().unwrap();
            loaded.load().unwrap_or_else(|error| panic!("{program}: {error:?}"));
            let instructions = loaded.info().unwrap().verified_instruction_count();
            println!("{program}, steer {steer}: {instructions:?} instructions verified");
            names.push(program.to_owned());
        }
        names.sort();
        assert_eq!(names, [name::INGRESS, name::WORKER]);
    }
}

/// A map that holds a program that reads the map is a cycle: the kernel never frees it.
#[test]
fn the_worker_does_not_reach_the_map_that_holds_it() {
    let mut ebpf = loader().load(&object()).unwrap();
    let map_id = |ebpf: &Ebpf, name| {
        let aya::maps::Map::CpuMap(map) = ebpf.map(name).unwrap() else { panic!("{name}") };
        map.info().unwrap().id()
    };
    let cpus = map_id(&ebpf, name::CPUS);
    let mut maps = |program| {
        let program: &mut Xdp = ebpf.program_mut(program).unwrap().try_into().unwrap();
        program.load().unwrap();
        program.info().unwrap().map_ids().unwrap().unwrap()
    };
    assert!(!maps(name::WORKER).contains(&cpus));
    assert!(maps(name::INGRESS).contains(&cpus), "or the test sees nothing");
}

/// The library's tables and the kernel's maps, filled alike.
struct Twin {
    tables: NaiveTables,
    ebpf: Ebpf,
}

impl Twin {
    fn new() -> Self {
        let mut ebpf = loader().load(&object()).unwrap();
        let program: &mut Xdp = ebpf.program_mut(name::INGRESS).unwrap().try_into().unwrap();
        program.load().unwrap();
        let mut twin = Self { tables: NaiveTables::default(), ebpf };

        let interface = Interface { slot: 3, mac: MAC, padding: [0; 2] };
        let mut interfaces: HashMap<_, u32, Interface> = twin.map(name::INTERFACES);
        interfaces.insert(INGRESS, interface, 0).unwrap();
        let mut lease: Array<_, u64> = twin.map(name::LEASE);
        lease.set(0, u64::MAX, 0).unwrap();

        twin.word(ROUTE_PUNT, RouteWord::unusable(Reason::Punt));
        twin.word(ROUTE_LOCAL, RouteWord::unusable(Reason::Local));
        twin
    }

    fn map<'a, M>(&'a mut self, name: &str) -> M
    where
        M: TryFrom<&'a mut aya::maps::Map, Error = aya::maps::MapError>,
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
        let mut fib: LpmTrie<_, [u8; 4], RouteId> = self.map(name::FIB4);
        fib.insert(&Key::new(len.into(), prefix), route, 0).unwrap();
        self.tables.routes4.insert((prefix, len), route);
    }

    fn route6(&mut self, prefix: [u8; 16], len: u8, route: RouteId) {
        let mut fib: LpmTrie<_, [u8; 16], RouteId> = self.map(name::FIB6);
        fib.insert(&Key::new(len.into(), prefix), route, 0).unwrap();
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
        let interface = Interface { slot: 3, mac: MAC, padding: [0; 2] };
        let ingress = Ingress { ifindex: INGRESS, interface: &interface };
        forward(&mut Packet::from_slice(frame), &ingress, &self.tables, &Unsteered)
    }

    /// Packets of a slot, over all CPUs.
    fn counted(&mut self, interface: u32, slot: u32) -> u64 {
        let counters: PerCpuArray<_, InterfaceCounters> = self.map(name::COUNTERS);
        let copies = counters.get(&interface, 0).unwrap();
        copies.iter().map(|copy| copy.0[slot as usize].packets).sum()
    }
}

const TO4: [[u8; 4]; 7] = [
    [198, 18, 2, 9],
    [198, 18, 3, 9],
    [198, 18, 3, 129],
    [198, 18, 4, 4],
    [198, 18, 5, 5],
    [198, 18, 1, 1],
    [198, 19, 0, 1],
];
const fn to6(subnet: u8, host: u8) -> [u8; 16] {
    [0x20, 1, 0x0d, 0xb8, 0, subnet, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]
}

fn twin() -> Twin {
    let mut twin = Twin::new();
    let adjacency = |port, mtu, flags| Adjacency {
        port,
        mtu,
        destination_mac: [2, 0, 0, 0, 1, 1],
        source_mac: [2, 0, 0, 0, 1, 2],
        flags,
    };
    twin.adjacency(1, adjacency(1001, 1500, ADJACENCY_FRAGS));
    twin.adjacency(2, adjacency(70, 1400, 0));
    twin.adjacency(3, adjacency(INGRESS, 1500, 0));
    twin.adjacency(4, adjacency(999_999, 1500, 0));
    for port in [1001, 70, INGRESS] {
        twin.port(port);
    }
    for (route, adjacency) in [(2, 1), (3, 2), (4, 3), (5, 4)] {
        twin.word(route, RouteWord::via(adjacency));
    }
    twin.word(6, RouteWord::unusable(Reason::NeighbourPending));
    for (subnet, route) in [(2, 2), (3, 3), (4, 4), (5, 5), (6, 6)] {
        twin.route4([198, 18, subnet, 0], 24, route);
        twin.route6(to6(subnet, 0), 48, route);
    }
    twin.route4([198, 18, 3, 128], 25, 2);
    twin.route4([198, 18, 1, 1], 32, ROUTE_LOCAL);
    twin.route6(to6(1, 1), 128, ROUTE_LOCAL);
    twin.local4([198, 18, 1, 1], 32);
    twin.local4([198, 18, 1, 255], 32);
    twin
}

#[test]
fn kernel_and_library_agree_on_every_frame() {
    in_own_namespace(|| {
        let mut twin = twin();
        let to6 = [to6(2, 9), to6(3, 9), to6(4, 4), to6(5, 5), to6(6, 6), to6(1, 1), to6(9, 9)];
        let (mut redirected, mut sent) = (0, 0);
        for seed in 0..20_000 {
            let mut random = Random::new(seed);
            let frame = random_frame(&mut random, MAC, &TO4, &to6);
            // The kernel refuses to run what is shorter than an Ethernet header.
            if frame.len() < 14 {
                continue;
            }
            let mut expected = frame.clone();
            let verdict = twin.library(&mut expected);
            let action = match verdict {
                Verdict::Redirect { .. } => XDP_REDIRECT,
                Verdict::Pass(_) => XDP_PASS,
                Verdict::Steer { .. } => unreachable!("steering is off"),
            };
            assert_eq!(twin.kernel(&frame), (action, expected), "seed {seed}: {verdict:?}");
            sent += 1;
            redirected += u64::from(action == XDP_REDIRECT);
        }
        assert!(redirected > 1_500, "only {redirected} of {sent} frames were redirected");

        assert_eq!(twin.counted(3, SLOT_RX), sent);
        assert_eq!(twin.counted(3, SLOT_REDIRECTED), redirected);
        let passed: u64 = Reason::ALL.iter().map(|reason| twin.counted(3, reason.slot())).sum();
        assert_eq!(passed, sent - redirected);
    });
}
