//! Who made a route: numbers and names (`rtnetlink.h`, and iproute2's `rt_protos`).

use std::borrow::Cow;

/// Routes that Linux does not have.
pub const XDP: &str = "xdp";
/// `RTPROT_*` of the routes that we make in Linux's table.
pub const FORWARDER: u8 = 246;

const NAMES: &[(u8, &str)] = &[
    (0, "unspec"),
    (1, "redirect"),
    (2, "kernel"),
    (3, "boot"),
    (4, "static"),
    (8, "gated"),
    (9, "ra"),
    (10, "mrt"),
    (11, "zebra"),
    (12, "bird"),
    (13, "dnrouted"),
    (14, "xorp"),
    (15, "ntk"),
    (16, "dhcp"),
    (17, "mrouted"),
    (18, "keepalived"),
    (42, "babel"),
    (99, "openr"),
    (186, "bgp"),
    (187, "isis"),
    (188, "ospf"),
    (189, "rip"),
    (192, "eigrp"),
    (FORWARDER, "forwarder"),
];

/// The name, or the number where there is none.
pub fn name(protocol: u8) -> Cow<'static, str> {
    let known = NAMES.iter().find(|known| known.0 == protocol);
    known.map_or_else(|| protocol.to_string().into(), |known| known.1.into())
}

/// Whether somebody is so called.
pub fn is_known(name: &str) -> bool {
    name == XDP || name.parse::<u8>().is_ok() || NAMES.iter().any(|known| known.1 == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_has_a_name_or_is_its_number() {
        assert_eq!(name(FORWARDER), "forwarder");
        assert_eq!(name(12), "bird");
        assert_eq!(name(77), "77");
        for (name, known) in
            [("xdp", true), ("bird", true), ("77", true), ("256", false), ("", false)]
        {
            assert_eq!(is_known(name), known, "{name}");
        }
    }
}
