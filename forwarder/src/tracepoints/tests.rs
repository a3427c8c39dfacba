use std::fs;

use super::*;
use crate::btf::testing::Builder;

/// A kernel with all that is needed, but for what `without` names; arguments of
/// `xdp_cpumap_kthread` as in `kthread`: structures by their names, words by an empty one.
fn kernel(without: &str, kthread: &[&str]) -> Vec<u8> {
    let mut btf = Builder::new();
    let name = |name: &'static str| if name == without { "another" } else { name };
    let word = btf.add("u32", 1, 0, 4, &[32]);
    let common = btf.members(4, "ns_common", &[(name("inum"), word, 0)]);
    let net = btf.members(4, "net", &[("ns", common, 64)]);
    let net = btf.add("", 2, 0, net, &[]);
    let possible = btf.members(4, "possible_net_t", &[("net", net, 0)]);
    let device =
        btf.members(4, "net_device", &[(name("ifindex"), word, 32), ("nd_net", possible, 640)]);
    let aux = btf.members(4, "bpf_prog_aux", &[(name("id"), word, 96)]);
    let aux = btf.add("", 2, 0, aux, &[]);
    let program = btf.members(4, "bpf_prog", &[("aux", aux, 128)]);
    let [device, program] = [device, program].map(|to| btf.add("", 2, 0, to, &[]));
    let void = btf.add("", 2, 0, 0, &[]);
    let words = |arguments: &[&str]| -> Vec<u32> {
        arguments
            .iter()
            .map(|argument| match *argument {
                "net_device" => device,
                "bpf_prog" => program,
                "void" => void,
                _ => word,
            })
            .collect()
    };
    let all: [(&str, &[&str]); 5] = [
        ("xdp_redirect_err", &["net_device", "bpf_prog", "void", "", "", "", ""]),
        ("xdp_exception", &["net_device", "bpf_prog", ""]),
        ("xdp_devmap_xmit", &["net_device", "net_device", "", "", ""]),
        ("xdp_cpumap_enqueue", &["", "", "", ""]),
        ("xdp_cpumap_kthread", kthread),
    ];
    for (tracepoint, arguments) in all {
        let parameters: Vec<u32> =
            [void].into_iter().chain(words(arguments)).flat_map(|id| [0, id]).collect();
        let count = u32::try_from(parameters.len() / 2).unwrap();
        let function = btf.add("", 13, count, 0, &parameters);
        let pointer = btf.add("", 2, 0, function, &[]);
        if tracepoint != without {
            btf.add(&format!("btf_trace_{tracepoint}"), 8, 0, pointer, &[]);
        }
    }
    btf.bytes()
}

/// Five arguments, as kernels from 6.1 on have them.
const KTHREAD: [&str; 5] = ["", "", "", "", "void"];

fn missing(plan: &Plan) -> Vec<(&'static str, &str)> {
    plan.missing.iter().map(|it| (it.tracepoint.name(), it.why.as_str())).collect()
}

#[test]
fn where_all_is_there_all_are_followed() {
    let plan = Plan::new(&kernel("", &KTHREAD));
    let offsets = Offsets {
        net_device_ifindex: 4,
        net_device_net: 80,
        net_inum: 8,
        bpf_prog_aux: 16,
        bpf_prog_aux_id: 12,
    };
    assert_eq!(plan, Plan { offsets, missing: vec![] });
}

#[test]
fn a_field_that_is_missing_disables_the_tracepoints_that_need_it() {
    let plan = Plan::new(&kernel("inum", &KTHREAD));
    let why = "the kernel has no field ns.inum of struct net";
    let expected = [("xdp_redirect_err", why), ("xdp_exception", why), ("xdp_devmap_xmit", why)];
    assert_eq!(missing(&plan), expected);

    let plan = Plan::new(&kernel("id", &KTHREAD));
    let why = "the kernel has no field id of struct bpf_prog_aux";
    assert_eq!(missing(&plan), [("xdp_exception", why)]);
    assert_eq!(plan.offsets.net_device_ifindex, 4);
}

#[test]
fn a_tracepoint_that_is_missing_or_another_is_disabled_alone() {
    for tracepoint in Tracepoint::ALL {
        let plan = Plan::new(&kernel(tracepoint.name(), &KTHREAD));
        let why = format!("the kernel has no tracepoint {}", tracepoint.name());
        assert_eq!(missing(&plan), [(tracepoint.name(), why.as_str())]);
    }
    let kthread = "xdp_cpumap_kthread";
    let other = [(kthread, "the kernel's tracepoint xdp_cpumap_kthread is of another type")];
    for arguments in [&["", ""][..], &["void", "", ""], &["", "net_device", "", "", ""]] {
        assert_eq!(missing(&Plan::new(&kernel("", arguments))), other, "{arguments:?}");
    }
    // What is behind those that are read may be anything.
    assert_eq!(missing(&Plan::new(&kernel("", &["", "", "", "void", "", ""]))), []);
}

#[test]
fn without_btf_none_is_followed_and_the_reason_told() {
    let plan = Plan::new(b"nothing");
    assert_eq!(plan.missing.len(), Tracepoint::ALL.len());
    let note = plan.missing[0].note();
    assert!(note.contains("xdp_redirect_err is not followed (the kernel's BTF cannot"), "{note}");
    assert!(note.contains("are not counted"), "{note}");
}

#[test]
fn this_kernel_has_all() {
    let Ok(bytes) = fs::read("/sys/kernel/btf/vmlinux") else {
        return println!("SKIP: this kernel has no BTF");
    };
    assert_eq!(Plan::new(&bytes).missing, []);
}
