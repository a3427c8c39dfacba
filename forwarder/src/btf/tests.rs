use std::fs;

use proptest::prelude::*;

use super::{testing::Builder, *};

/// A device with its index inside two structures without a name, and its namespace behind a
/// typedef; and a tracepoint that hands on a device, a program and a number.
fn kernel() -> Vec<u8> {
    let mut btf = Builder::new();
    let int = btf.add("unsigned int", 1, 0, 4, &[32]);
    let u32_ = btf.add("u32", 8, 0, int, &[]);
    let u64_ = btf.add("u64", 1, 0, 8, &[64]);
    let common = btf.members(4, "ns_common", &[("stashed", u64_, 0), ("inum", u32_, 64)]);
    let net = btf.members(4, "net", &[("count", int, 0), ("ns", common, 128)]);
    let net_pointer = btf.add("", 2, 0, net, &[]);
    let possible = btf.members(4, "", &[("net", net_pointer, 0)]);
    let possible = btf.add("possible_net_t", 8, 0, possible, &[]);
    let inner = btf.members(4, "", &[("pad", int, 0), ("ifindex", int, 32)]);
    let outer = btf.members(5, "", &[("", inner, 0), ("other", u64_, 0)]);
    let device = btf.members(
        4,
        "net_device",
        &[("flags", u64_, 0), ("", outer, 64), ("nd_net", possible, 256)],
    );
    let const_device = btf.add("", 10, 0, device, &[]);
    let device_pointer = btf.add("", 2, 0, const_device, &[]);
    let program = btf.add("bpf_prog", 7, 0, 0, &[]);
    let program_pointer = btf.add("", 2, 0, program, &[]);
    let void_pointer = btf.add("", 2, 0, 0, &[]);
    let parameters = [0, void_pointer, 0, device_pointer, 0, program_pointer, 0, u32_, 0, u64_];
    let function = btf.add("", 13, 5, 0, &parameters);
    let pointer = btf.add("", 2, 0, function, &[]);
    btf.add("btf_trace_event", 8, 0, pointer, &[]);
    // A structure with bit fields: 3 bits at 0, then a whole word at 32.
    let word = btf.string("word");
    let few = btf.string("few");
    btf.add("bits", 4 | 0x80, 2, 8, &[few, int, 3 << 24, word, int, 32]);
    btf.bytes()
}

#[test]
fn a_field_is_found_through_typedefs_and_what_has_no_name() {
    let bytes = kernel();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.field("net_device", &["ifindex"]), Ok((12, Value::Word)));
    let net = Value::Pointer("net".to_owned());
    assert_eq!(btf.field("net_device", &["nd_net", "net"]), Ok((32, net)));
    assert_eq!(btf.field("net", &["ns", "inum"]), Ok((24, Value::Word)));
    assert_eq!(btf.field("net_device", &["flags"]), Ok((0, Value::Other)));
    assert_eq!(btf.field("bits", &["word"]), Ok((4, Value::Word)));
}

#[test]
fn what_is_not_there_is_named() {
    let bytes = kernel();
    let btf = Btf::parse(&bytes).unwrap();
    let message = |structure, path: &[&str]| btf.field(structure, path).unwrap_err().to_string();
    assert_eq!(message("sk_buff", &["len"]), "the kernel has no struct sk_buff");
    assert_eq!(
        message("net_device", &["nd_net", "inet"]),
        "the kernel has no field nd_net.inet of struct net_device"
    );
    // A bit field has no address.
    assert_eq!(message("bits", &["few"]), "the kernel has no field few of struct bits");
    assert_eq!(
        btf.arguments("nothing").unwrap_err().to_string(),
        "the kernel has no tracepoint nothing"
    );
}

#[test]
fn a_tracepoint_tells_what_it_hands_on() {
    let bytes = kernel();
    let arguments = Btf::parse(&bytes).unwrap().arguments("event").unwrap();
    let pointer = |name: &str| Value::Pointer(name.to_owned());
    assert_eq!(arguments, [pointer("net_device"), pointer(""), Value::Word, Value::Other]);
}

#[test]
fn what_leads_in_a_circle_ends() {
    let mut btf = Builder::new();
    btf.add("a", 8, 0, 2, &[]);
    btf.add("b", 8, 0, 1, &[]);
    // A structure that holds itself, without a name, very often.
    let mut members = vec![("", 3, 0); 5000];
    members.push(("ifindex", 1, 0));
    btf.members(4, "net_device", &members);
    let bytes = btf.bytes();
    let btf = Btf::parse(&bytes).unwrap();
    assert!(btf.field("net_device", &["ifindex"]).is_err());
    assert!(btf.field("net_device", &["nothing"]).is_err());
}

/// Asks for all that the forwarder asks for.
fn ask(bytes: &[u8]) {
    if let Ok(btf) = Btf::parse(bytes) {
        let _ = btf.field("net_device", &["ifindex"]);
        let _ = btf.field("net_device", &["nd_net", "net"]);
        let _ = btf.field("net", &["ns", "inum"]);
        let _ = btf.arguments("event");
    }
}

#[test]
fn every_cut_is_an_error_or_harmless() {
    let bytes = kernel();
    for len in 0..bytes.len() {
        ask(&bytes[..len]);
        assert!(Btf::parse(&bytes[..len]).is_err(), "{len}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn hostile_bytes_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..16)) {
        let mut bytes = kernel();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        ask(&bytes);
    }

    #[test]
    fn any_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..256)) {
        ask(&body);
        // Behind a header that is right.
        let len = u32::try_from(body.len()).unwrap();
        let mut bytes = kernel()[..24].to_vec();
        bytes[12..16].copy_from_slice(&len.to_ne_bytes());
        bytes[16..24].fill(0);
        bytes.extend(body);
        ask(&bytes);
    }
}

#[test]
fn this_kernel_has_what_programs_read() {
    let Ok(bytes) = fs::read("/sys/kernel/btf/vmlinux") else {
        return println!("SKIP: this kernel has no BTF");
    };
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.field("net_device", &["ifindex"]).unwrap().1, Value::Word);
    // The oldest field there is, and the layout that the user API fixes.
    assert_eq!(btf.field("xdp_md", &["data_end"]), Ok((4, Value::Word)));
    assert_eq!(btf.field("xdp_md", &["ingress_ifindex"]), Ok((12, Value::Word)));
}
