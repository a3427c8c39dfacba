//! The kernel's links, addresses and neighbours change under a running daemon, which follows.

use forwarder_common::verdict::Reason;
use forwarder_tests::{
    frame::{Frame, Mac, mac_text},
    lab::{Lab, host_mac, host4, host6, router_mac},
    offload::Offload,
    require, skip,
    testbed::{SOON, Testbed, beyond4, beyond6},
    wait::wait_until,
};
use serde_json::Value;

use crate::{forwarded, forwards, passes, wait_for_state, wait_for_way};

const OTHER_MAC: Mac = [2, 0, 0, 0, 9, 9];
const PREFIXES: [&str; 2] = ["198.19.2.0/24", "2001:db8:102::/48"];

#[test]
fn a_neighbour_that_changes_its_mac_address() {
    require!(skip::forwarder());
    let testbed = Testbed::with_routes(&Lab::router().forwarding(false), "").unwrap();
    let Lab { router, hosts } = &testbed.lab;
    // B tells everybody, and Linux believes it even if it has just heard another address.
    hosts[1].sysctl("ipv4/conf/eth0/arp_notify", "1").unwrap();
    hosts[1].sysctl("ipv6/conf/eth0/ndisc_notify", "1").unwrap();
    router.sysctl("ipv4/neigh/eth1/locktime", "0").unwrap();
    for frame in frames(1) {
        forwards(&testbed, &frame, 1);
    }
    hosts[1].ip(&format!("link set eth0 address {}", mac_text(OTHER_MAC))).unwrap();
    for (frame, address) in frames(1).iter().zip(addresses(1)) {
        wait_for_way(&testbed, &address, &mac_text(OTHER_MAC));
        let bytes = forwarded(&testbed, frame, 1);
        assert_eq!(bytes, frame.forwarded(router_mac(1), OTHER_MAC));
    }
}

#[test]
fn a_neighbour_that_is_given_another_mac_address() {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false).static_neighbours();
    let testbed = Testbed::with_routes(&layout, "").unwrap();
    for (frame, (address, host)) in frames(1).iter().zip(addresses(1).into_iter().zip(hosts(1))) {
        forwards(&testbed, frame, 1);
        let mac = mac_text(OTHER_MAC);
        let neighbour = format!("neigh replace {host} lladdr {mac} dev eth1 nud permanent");
        testbed.lab.router.ip(&neighbour).unwrap();
        wait_for_way(&testbed, &address, &mac);
        let bytes = forwarded(&testbed, frame, 1);
        assert_eq!(bytes, frame.forwarded(router_mac(1), OTHER_MAC));
    }
}

#[test]
fn an_interface_that_changes_its_mac_address() {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false).static_neighbours();
    let testbed = Testbed::with_routes(&layout, "").unwrap();
    let mac = mac_text(OTHER_MAC);
    for port in ["eth0", "eth1"] {
        testbed.lab.router.ip(&format!("link set {port} address {mac}")).unwrap();
        wait_for_interface(&testbed, port, "mac", &mac.clone().into());
    }
    for frame in frames(1) {
        passes(&testbed, &frame, Reason::ForeignMac);
        let frame = frame.macs(host_mac(0), OTHER_MAC);
        let bytes = forwarded(&testbed, &frame, 1);
        assert_eq!(bytes, frame.forwarded(OTHER_MAC, host_mac(1)));
    }
}

#[test]
fn an_egress_that_is_down() {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false).static_neighbours();
    let mut testbed = Testbed::with_routes(&layout, "").unwrap();
    testbed.lab.b().ip("link set eth0 down").unwrap();
    for (frame, prefix) in frames(1).iter().zip(PREFIXES) {
        wait_for_state(&testbed, prefix, "unusable", "egress_down");
        passes(&testbed, frame, Reason::EgressDown);
    }
    testbed.lab.b().ip("link set eth0 up").unwrap();
    // The socket of a wire does not survive this.
    testbed.wires[1] = testbed.lab.b().wire("eth0").unwrap();
    for (frame, address) in frames(1).iter().zip(addresses(1)) {
        wait_for_way(&testbed, &address, &mac_text(host_mac(1)));
        forwards(&testbed, frame, 1);
    }
}

#[test]
fn an_egress_that_is_switched_off_here() {
    require!(skip::forwarder());
    let testbed = Testbed::with_routes(&Lab::router().forwarding(false), "").unwrap();
    testbed.lab.router.ip("link set eth1 down").unwrap();
    let [frame, _] = frames(1);
    wait_for_state(&testbed, PREFIXES[0], "unusable", "egress_down");
    passes(&testbed, &frame, Reason::EgressDown);
    testbed.lab.router.ip("link set eth1 up").unwrap();
    // Linux has forgotten its neighbours there, and is asked for this one.
    wait_for_way(&testbed, &addresses(1)[0], &mac_text(host_mac(1)));
    forwards(&testbed, &frame, 1);
}

#[test]
fn an_egress_that_takes_no_frames() {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false).static_neighbours();
    let testbed = Testbed::with_routes(&layout, "").unwrap();
    // A veth takes them only while its peer polls.
    let poll = |on| testbed.lab.b().offload("eth0", Offload::Gro, on).unwrap();
    poll(false);
    for (frame, prefix) in frames(1).iter().zip(PREFIXES) {
        wait_for_state(&testbed, prefix, "unusable", "no_xmit");
        passes(&testbed, frame, Reason::NoXmit);
    }
    poll(true);
    for (frame, address) in frames(1).iter().zip(addresses(1)) {
        wait_for_way(&testbed, &address, &mac_text(host_mac(1)));
        forwards(&testbed, frame, 1);
    }
}

#[test]
fn an_egress_that_changes_its_mtu() {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false).static_neighbours();
    let testbed = Testbed::with_routes(&layout, "").unwrap();
    for mtu in [1500_u16, 1300, 1400] {
        testbed.lab.router.ip(&format!("link set eth1 mtu {mtu}")).unwrap();
        wait_for_interface(&testbed, "eth1", "mtu", &mtu.into());
        for frame in frames(1) {
            forwards(&testbed, &frame.clone().ip_length(mtu.into()), 1);
            if mtu < 1500 {
                passes(&testbed, &frame.ip_length(usize::from(mtu) + 1), Reason::TooBig);
            }
        }
    }
}

/// Linux has no IPv6 there, and drops what comes in by it.
#[test]
fn an_interface_whose_mtu_is_too_small_for_ipv6() {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false).static_neighbours();
    let testbed = Testbed::with_routes(&layout, "").unwrap();
    let [v4, v6] = frames(1);
    for port in ["eth0", "eth1"] {
        testbed.lab.router.ip(&format!("link set {port} mtu 1279")).unwrap();
        wait_for_interface(&testbed, port, "mtu", &1279.into());
        forwards(&testbed, &v4, 1);
        passes(&testbed, &v6, Reason::NoIpv6);
        testbed.lab.router.ip(&format!("link set {port} mtu 1500")).unwrap();
        wait_for_interface(&testbed, port, "mtu", &1500.into());
        if port == "eth0" {
            forwards(&testbed, &v6, 1);
        }
    }
}

#[test]
fn an_address_of_the_router_that_comes_and_goes() {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false).static_neighbours();
    let testbed = Testbed::with_routes(&layout, "").unwrap();
    for (frame, address) in frames(1).iter().zip(addresses(1)) {
        let get = format!("route get {address}");
        let is_forwarded = || testbed.daemon.forwarder().call(&get).map(|it| it.code() == 0);
        forwards(&testbed, frame, 1);
        testbed.lab.router.ip(&format!("address add {address} dev lo")).unwrap();
        wait_until("it to be local", SOON, || Ok((!is_forwarded()?).then_some(()))).unwrap();
        passes(&testbed, frame, Reason::Local);
        testbed.lab.router.ip(&format!("address del {address} dev lo")).unwrap();
        wait_until("it to be remote", SOON, || Ok(is_forwarded()?.then_some(()))).unwrap();
        forwards(&testbed, frame, 1);
    }
}

#[test]
fn an_egress_that_is_removed() {
    require!(skip::forwarder());
    let layout = Lab::router().links(3).forwarding(false).static_neighbours();
    let testbed = Testbed::with_routes(&layout, "").unwrap();
    testbed.lab.router.ip("link del eth1").unwrap();
    for (frame, prefix) in frames(1).iter().zip(PREFIXES) {
        wait_for_state(&testbed, prefix, "unusable", "no_port");
        passes(&testbed, frame, Reason::NoPort);
    }
    for frame in frames(2) {
        forwards(&testbed, &frame, 2);
    }
}

fn frames(to: u8) -> [Frame; 2] {
    [Testbed::frame4(0, to).udp(1, 2), Testbed::frame6(0, to).udp(1, 2)]
}

/// Where these frames go.
fn addresses(to: u8) -> [String; 2] {
    [beyond4(to, 1).to_string(), beyond6(to, 1).to_string()]
}

fn hosts(link: u8) -> [String; 2] {
    [host4(link).to_string(), host6(link).to_string()]
}

/// Waits until the daemon knows this of an interface.
fn wait_for_interface(testbed: &Testbed, port: &str, key: &str, value: &Value) {
    wait_until(&format!("the {key} of {port} to be {value}"), SOON, || {
        let status = testbed.daemon.forwarder().json("status")?;
        let interfaces = status["interfaces"].as_array().into_iter().flatten();
        let mut found = interfaces.filter(|it| it["name"] == port);
        Ok(found.any(|it| it[key] == *value).then_some(()))
    })
    .unwrap();
}
