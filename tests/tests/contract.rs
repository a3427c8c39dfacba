//! The built programs against the shared types. Needs no privileges.

use aya_obj::Object;
use forwarder_common::abi::{
    ADJACENCIES_MAX, Adjacency, COUNTER_SLOTS_MAX, CPUS_MAX, Counter, INTERFACES_MAX, Interface,
    InterfaceCounters, LOCALS_MAX, ROUTE_IDS_MAX, ROUTES4_MAX, ROUTES6_MAX, RouteWord,
    STEERING_BUCKETS, name,
};
use forwarder_tests::object;

#[test]
fn maps_have_the_shared_shape() {
    let elf = object();
    let object = Object::parse(&elf).unwrap();
    let size = |bytes: usize| u32::try_from(bytes).unwrap();
    let shapes = [
        (name::FIB4, 8, 4, ROUTES4_MAX),
        (name::FIB6, 20, 4, ROUTES6_MAX),
        (name::LOCALS4, 8, 4, LOCALS_MAX),
        (name::ROUTES, 4, size(size_of::<RouteWord>()), ROUTE_IDS_MAX),
        (name::ADJACENCIES, 4, size(size_of::<Adjacency>()), ADJACENCIES_MAX),
        (name::INTERFACES, 4, size(size_of::<Interface>()), INTERFACES_MAX),
        (name::STEERING, 4, 4, STEERING_BUCKETS),
        (name::LEASE, 4, 8, 1),
        (name::CPUS, 4, 8, CPUS_MAX),
        (name::PORTS, 4, 8, INTERFACES_MAX),
        (name::COUNTERS, 4, size(size_of::<InterfaceCounters>()), COUNTER_SLOTS_MAX),
        (name::WORKER_COUNTERS, 4, size(size_of::<InterfaceCounters>()), COUNTER_SLOTS_MAX),
        (name::ROUTE_COUNTERS, 4, size(size_of::<Counter>()), ROUTE_IDS_MAX),
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
    assert_eq!(programs, [name::INGRESS, name::WORKER]);
}

#[test]
fn no_program_can_panic() {
    let elf = object();
    let mangled = b"9panicking";
    assert!(!elf.windows(mangled.len()).any(|window| window == mangled));
}
