//! What leaves by XDP, Linux sends too, byte by byte.

use forwarder_tests::{comparison::compare_with_linux, require, skip};

#[test]
fn what_leaves_by_xdp_linux_sends_too_byte_by_byte() {
    require!(skip::forwarder());
    for mode in ["native", "generic"] {
        let (sent, by_xdp) = compare_with_linux(mode, 0..6_000);
        assert!(by_xdp > sent / 5, "{mode}: only {by_xdp} of {sent} frames left by XDP");
    }
}
