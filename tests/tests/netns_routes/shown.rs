//! What commands print of the routes of a running daemon.

use forwarder_tests::{
    frame::mac_text,
    lab::{Lab, host_mac},
    require, skip,
    testbed::Testbed,
};
use serde_json::json;

#[test]
fn routes_are_shown_as_they_were_given() {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false).static_neighbours();
    let testbed = Testbed::start(&layout, "").unwrap();
    let forwarder = testbed.daemon.forwarder();
    for route in [
        "198.19.2.0/24 via 198.18.2.2 dev eth1",
        "198.19.2.7 via 198.18.1.2",
        "198.19.3.0/24 via inet6 2001:db8:2::2",
        "198.18.2.0/24 dev eth1",
        "default via 2001:db8:2::2 dev eth1",
    ] {
        forwarder.ok(&format!("route add {route}")).unwrap();
    }
    assert_eq!(
        forwarder.ok("route show").unwrap(),
        "\
198.18.2.0/24 dev eth1 proto xdp
198.19.2.0/24 via 198.18.2.2 dev eth1 proto xdp
198.19.2.7 via 198.18.1.2 dev eth0 proto xdp
198.19.3.0/24 via inet6 2001:db8:2::2 dev eth1 proto xdp
default via 2001:db8:2::2 dev eth1 proto xdp
"
    );
    assert_eq!(forwarder.ok("-6 route").unwrap(), "default via 2001:db8:2::2 dev eth1 proto xdp\n");
    assert_eq!(
        forwarder.ok("route show root 198.19.2.0/24 dev eth0").unwrap(),
        "198.19.2.7 via 198.18.1.2 dev eth0 proto xdp\n"
    );
    let (a, b) = (mac_text(host_mac(0)), mac_text(host_mac(1)));
    for (address, expected) in [
        (
            "198.19.2.7",
            json!([{
                "dst": "198.19.2.7", "gateway": "198.18.1.2", "dev": "eth0", "protocol": "xdp",
                "flags": [], "state": "forwarding", "lladdr": a
            }]),
        ),
        (
            "198.19.3.9",
            json!([{
                "dst": "198.19.3.0/24", "via": { "family": "inet6", "host": "2001:db8:2::2" },
                "dev": "eth1", "protocol": "xdp", "flags": [], "state": "forwarding", "lladdr": b
            }]),
        ),
        // The host's own way, by the network's route.
        (
            "198.18.2.2",
            json!([{
                "dst": "198.18.2.0/24", "dev": "eth1", "protocol": "xdp", "flags": [],
                "state": "forwarding", "lladdr": b
            }]),
        ),
    ] {
        assert_eq!(forwarder.json(&format!("route get {address}")).unwrap(), expected);
    }
    assert_eq!(
        forwarder.ok("route get 2001:db8::9").unwrap(),
        "default via 2001:db8:2::2 dev eth1 proto xdp\n"
    );
}

#[test]
fn what_is_not_there_is_refused() {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false).static_neighbours();
    let testbed = Testbed::with_routes(&layout, "").unwrap();
    let before = testbed.daemon.ok("route show").unwrap();
    for (command, code, message) in [
        ("get 198.18.1.1", 1, "no route to 198.18.1.1: Linux decides"),
        ("get 198.19.99.1", 1, "no route to 198.19.99.1: Linux decides"),
        ("add 198.19.2.0/24 via 198.18.1.2", 1, "route 198.19.2.0/24 exists already"),
        ("add 198.19.9.0/24 via 198.18.9.2", 1, "next hop 198.18.9.2 is on no interface"),
        ("add 198.19.9.0/24 via 198.18.2.2 dev eth0", 1, "is in no subnet of eth0"),
        ("add 198.19.9.0/24 via 198.18.2.2 dev eth7", 1, "there is no interface eth7"),
        ("add 198.19.9.0/24 via 198.18.2.1", 1, "it is an address of this host"),
        ("add 198.19.9.1/24 via 198.18.2.2", 2, "198.19.9.0/24"),
        ("add 198.19.9.0/33 via 198.18.2.2", 2, "198.19.9.0/33"),
        ("del 198.19.9.0/24", 1, "no such route: 198.19.9.0/24"),
        ("del 198.19.2.0/24 via 198.18.2.7", 1, "it is via 198.18.2.2 dev eth1"),
        ("flush", 2, "nothing says which routes to remove"),
    ] {
        let refused = testbed.daemon.forwarder().call(&format!("route {command}")).unwrap();
        assert_eq!((refused.code(), refused.stdout.as_str()), (code, ""), "{command}");
        let stderr = refused.stderr;
        assert!(stderr.starts_with("error: ") && stderr.contains(message), "{command}: {stderr}");
    }
    assert_eq!(testbed.daemon.ok("route show").unwrap(), before);
}
