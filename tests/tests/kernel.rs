//! The programs in the kernel: what the verifier says, what they reach, and whether they do what the
//! library does. Needs CAP_BPF and CAP_NET_ADMIN.

use std::fs;

use aya::{
    Btf, Ebpf,
    maps::Map,
    programs::{BtfTracePoint, Program, Xdp},
};
use forwarder::{
    dataplane::Grace,
    tracepoints::{Plan, Tracepoint},
};
use forwarder_common::abi::{
    INTERFACE_HASH_ADDRESSES4, INTERFACE_HASH_ADDRESSES6, INTERFACE_LOOSE,
    INTERFACE_NO_FORWARDING4, INTERFACE_NO_FORWARDING6, INTERFACE_STRICT, name,
};
use forwarder_tests::{
    object,
    twin::{Twin, in_own_namespace, loader},
};

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
            if let Program::Xdp(loaded) = loaded {
                loaded.load().unwrap_or_else(|error| panic!("{program}: {error:?}"));
                let instructions = loaded.info().unwrap().verified_instruction_count();
                println!("{program}, steer {steer}: {instructions:?} instructions verified");
                names.push(program.to_owned());
            }
        }
        names.sort();
        assert_eq!(names, [name::INGRESS, name::WORKER]);
    }
}

#[test]
fn the_verifier_accepts_the_programs_for_tracepoints() {
    let plan = Plan::new(&fs::read("/sys/kernel/btf/vmlinux").unwrap());
    assert_eq!(plan.missing, [], "or there is nothing to load");
    let offsets = plan.offsets;
    let mut loader = loader();
    for (name, offset) in [
        (name::NET_DEVICE_IFINDEX, &offsets.net_device_ifindex),
        (name::NET_DEVICE_NET, &offsets.net_device_net),
        (name::NET_INUM, &offsets.net_inum),
        (name::BPF_PROG_AUX, &offsets.bpf_prog_aux),
        (name::BPF_PROG_AUX_ID, &offsets.bpf_prog_aux_id),
    ] {
        loader.override_global(name, offset, true);
    }
    let mut ebpf = loader.load(&object()).unwrap();
    let btf = Btf::from_sys_fs().unwrap();
    for tracepoint in Tracepoint::ALL.map(Tracepoint::name) {
        let program: &mut BtfTracePoint = ebpf.program_mut(tracepoint).unwrap().try_into().unwrap();
        program.load(tracepoint, &btf).unwrap_or_else(|error| panic!("{tracepoint}: {error:?}"));
        let instructions = program.info().unwrap().verified_instruction_count();
        println!("{tracepoint}: {instructions:?} instructions verified");
    }
}

/// A map that holds a program that reads the map is a cycle: the kernel never frees it.
#[test]
fn the_worker_does_not_reach_the_map_that_holds_it() {
    let mut ebpf = loader().load(&object()).unwrap();
    let map_id = |ebpf: &Ebpf, name| {
        let Map::CpuMap(map) = ebpf.map(name).unwrap() else { panic!("{name}") };
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

/// Membarrier is refused on some kernels, and does not wait on others.
#[test]
fn a_grace_period_comes_without_membarrier_too() {
    let mut ebpf = loader().load(&object()).unwrap();
    let mut grace = Grace::take(&mut ebpf).unwrap();
    assert!(grace.wait());
    for _ in 0..3 {
        grace.wait_by_map().unwrap();
    }
}

#[test]
fn kernel_and_library_agree_whatever_an_interface_asks_for() {
    let by_addresses = INTERFACE_HASH_ADDRESSES4 | INTERFACE_HASH_ADDRESSES6;
    in_own_namespace(|| {
        let agree = |flags| Twin::with_flags(flags).agree_on(0..5_000);
        let [all, strict, loose] = [by_addresses, INTERFACE_STRICT, INTERFACE_LOOSE].map(agree);
        assert!(all > 300 && loose > 100 && strict < loose, "{all}, {strict}, {loose}");
        let off = agree(INTERFACE_NO_FORWARDING4);
        assert!(off > 0 && off < all, "IPv6 alone: {off} of {all}");
        assert_eq!(agree(INTERFACE_NO_FORWARDING4 | INTERFACE_NO_FORWARDING6), 0);
    });
}

#[test]
fn kernel_and_library_agree_on_every_frame() {
    in_own_namespace(|| {
        let redirected = Twin::filled().agree_on(0..20_000);
        assert!(redirected > 1_500, "only {redirected} frames were redirected");
    });
}
