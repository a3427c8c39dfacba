//! The built programs against the shared types. All but the last test need no privileges.

use std::{env, fs};

use aya::{EbpfLoader, programs::Xdp, util::nr_cpus};
use aya_obj::{Object, ProgramSection};
use forwarder::tracepoints::Tracepoint;
use forwarder_common::{
    abi::{
        ADJACENCIES_MAX, Adjacency, BUCKETS_MAX, COUNTER_SLOTS_MAX, CPUS_MAX, Counter, Dequeued,
        Enqueued, FIB_UNITS, INTERFACES_MAX, Interface, InterfaceCounters, LOCALS_MAX, OURS,
        ROUTE_IDS_MAX, RedirectLosses, RouteWord, STEERING_BUCKETS, Transmits, name,
    },
    fib,
};
use forwarder_tests::{netns::Namespace, object, require, skip};

/// By which programs that were built with feature `trace` send their lines.
const LOG: &str = "AYA_LOGS";

#[test]
fn maps_have_the_shared_shape() {
    let elf = object();
    let object = Object::parse(&elf).unwrap();
    let size = |bytes: usize| u32::try_from(bytes).unwrap();
    let shapes = [
        (name::FIB, 4, fib::words(FIB_UNITS) * 4, 1),
        (name::LOCALS4, 8, 4, LOCALS_MAX),
        (name::ROUTES, 4, size(size_of::<RouteWord>()), ROUTE_IDS_MAX),
        (name::BUCKETS, 4, 4, BUCKETS_MAX),
        (name::ADJACENCIES, 4, size(size_of::<Adjacency>()), ADJACENCIES_MAX),
        (name::INTERFACES, 4, size(size_of::<Interface>()), INTERFACES_MAX),
        (name::STEERING, 4, 4, STEERING_BUCKETS),
        (name::LEASE, 4, 8, 1),
        (name::GRACE, 4, 4, 1),
        (name::CPUS, 4, 8, CPUS_MAX),
        (name::PORTS, 4, 8, INTERFACES_MAX),
        (name::COUNTERS, 4, size(size_of::<InterfaceCounters>()), COUNTER_SLOTS_MAX),
        (name::WORKER_COUNTERS, 4, size(size_of::<InterfaceCounters>()), COUNTER_SLOTS_MAX),
        (name::ROUTE_COUNTERS, 4, size(size_of::<Counter>()), ROUTE_IDS_MAX),
        (name::REDIRECT_LOSSES, 4, size(size_of::<RedirectLosses>()), COUNTER_SLOTS_MAX),
        (name::TRANSMITS, 4, size(size_of::<Transmits>()), COUNTER_SLOTS_MAX),
        (name::ENQUEUED, 4, size(size_of::<Enqueued>()), CPUS_MAX),
        (name::DEQUEUED, 4, size(size_of::<Dequeued>()), 1),
        (name::COUNTED, 4, 4, INTERFACES_MAX),
        (name::OURS, 4, 4, OURS),
    ];
    for (name, key, value, entries) in shapes {
        let map = &object.maps[name];
        assert_eq!(
            (map.key_size(), map.value_size(), map.max_entries()),
            (key, value, entries),
            "{name}"
        );
    }
    let mut programs: Vec<&str> = object.programs.keys().map(String::as_str).collect();
    programs.sort_unstable();
    let mut expected = Tracepoint::ALL.map(Tracepoint::name).to_vec();
    expected.extend([name::INGRESS, name::WORKER]);
    expected.sort_unstable();
    assert_eq!(programs, expected);
}

/// Each program is for the tracepoint of its name: a BTF program that was built for another would
/// read arguments of the wrong kind.
#[test]
fn programs_for_tracepoints_are_what_they_are_named() {
    let elf = object();
    let object = Object::parse(&elf).unwrap();
    for tracepoint in Tracepoint::ALL {
        let program = &object.programs[tracepoint.name()];
        assert!(matches!(program.section, ProgramSection::BtfTracePoint), "{program:?}");
    }
    // By its section, which aya does not keep.
    for tracepoint in Tracepoint::ALL {
        let section = format!("tp_btf/{}\0", tracepoint.name());
        assert!(elf.windows(section.len()).any(|window| window == section.as_bytes()), "{section}");
    }
}

#[test]
fn every_constant_that_the_daemon_sets_is_there() {
    let elf = object();
    let object = Object::parse(&elf).unwrap();
    for constant in [
        name::STEER,
        name::COUNT_ROUTES,
        name::FIB_UNITS_MASK,
        name::HASH_SEED,
        name::NAMESPACE,
        name::NET_DEVICE_IFINDEX,
        name::NET_DEVICE_NET,
        name::NET_INUM,
        name::BPF_PROG_AUX,
        name::BPF_PROG_AUX_ID,
    ] {
        let symbol = format!("\0{constant}\0");
        assert!(elf.windows(symbol.len()).any(|window| window == symbol.as_bytes()), "{constant}");
    }
    assert!(object.maps.contains_key(".rodata"));
}

#[test]
fn no_program_can_panic() {
    let elf = object();
    let mangled = b"9panicking";
    assert!(!elf.windows(mangled.len()).any(|window| window == mangled));
}

#[test]
fn what_is_released_logs_nothing() {
    let elf = object();
    let object = Object::parse(&elf).unwrap();
    assert!(!object.maps.contains_key(LOG));
}

#[test]
fn programs_that_trace_have_a_log_and_pass_the_verifier() {
    let built = "FORWARDER_EBPF_TRACE_OBJECT";
    let Some(path) = env::var_os(built).filter(|path| fs::exists(path).unwrap_or(false)) else {
        return skip::skip(&format!("needs the object with feature trace, named in {built}"));
    };
    require!(Namespace::new().map(drop).map_err(|error| format!("needs root: {error}")));
    let elf = fs::read(path).unwrap();
    assert!(Object::parse(&elf).unwrap().maps.contains_key(LOG));
    for (steer, count_routes) in [(0_u32, 0_u32), (1, 1)] {
        let mut ebpf = EbpfLoader::new()
            .map_max_entries(name::CPUS, u32::try_from(nr_cpus().unwrap()).unwrap())
            .override_global(name::STEER, &steer, true)
            .override_global(name::COUNT_ROUTES, &count_routes, true)
            .load(&elf)
            .unwrap();
        for program in [name::INGRESS, name::WORKER] {
            let loaded: &mut Xdp = ebpf.program_mut(program).unwrap().try_into().unwrap();
            loaded.load().unwrap_or_else(|error| panic!("{program}, steer {steer}: {error:?}"));
        }
    }
}
