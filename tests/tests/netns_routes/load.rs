//! Many routes at once, all or none.

use std::{
    fmt::Write as _,
    fs::{self, File},
    net::{Ipv4Addr, Ipv6Addr},
    path::PathBuf,
};

use forwarder_tests::{frame::Frame, lab::Lab, process::Finished, require, skip, testbed::Testbed};

use crate::forwards;

/// Of IPv4: each goes the other way than its neighbours.
const ROUTES4: u16 = 10_000;
const ROUTES6: u16 = 100;
/// Every so many a frame is sent.
const SPOT: usize = 397;

#[test]
fn ten_thousand_routes() {
    require!(skip::forwarder());
    let layout = Lab::router().links(3).forwarding(false).static_neighbours();
    // Room for these and no more.
    let arguments = format!("--routes4-max {ROUTES4} --routes6-max {ROUTES6}");
    let testbed = Testbed::start(&layout, &arguments).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, lines: String| -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, lines).unwrap();
        path
    };

    let routes = file("routes", lines(0));
    let load = |path: &PathBuf| format!("route load {}", path.display());
    testbed.daemon.ok(&load(&routes)).unwrap();
    assert_eq!(counts(&testbed), [ROUTES4, ROUTES6]);
    spot_checks(&testbed, 0);

    // The same, and one line more, each wrong in its own way.
    let before = testbed.daemon.ok("route show").unwrap();
    assert_eq!(before.lines().count(), usize::from(ROUTES4 + ROUTES6));
    let number = ROUTES4 + ROUTES6 + 1;
    for (line, message) in [
        ("198.19.300.0/24 via 198.18.2.2", "198.19.300.0/24"),
        ("198.19.255.0/24 via 198.18.99.2", "next hop 198.18.99.2 is on no interface"),
        ("198.19.255.0/24 via 198.18.2.2", "the IPv4 table is full (10000 routes)"),
        ("2001:db8:ff::/48 via 2001:db8:2::2", "the IPv6 table is full (100 routes)"),
    ] {
        let wrong = file("wrong", lines(1) + line + "\n");
        let refused = testbed.daemon.forwarder().call(&(load(&wrong) + " --replace")).unwrap();
        let Finished { stdout, stderr, .. } = &refused;
        assert_eq!((refused.code(), stdout.as_str()), (1, ""), "{line}: {stderr}");
        let place = format!("{}:{number}: ", wrong.display());
        assert!(stderr.contains(&place) && stderr.contains(message), "{line}: {stderr}");
        assert!(stderr.contains("nothing was changed"), "{line}: {stderr}");
        assert_eq!(testbed.daemon.ok("route show").unwrap(), before);
    }
    let again = testbed.daemon.forwarder().call(&load(&routes)).unwrap();
    let first = format!("{}:1: route 198.19.0.0/30 exists already", routes.display());
    assert!(again.code() == 1 && again.stderr.contains(&first), "{}", again.stderr);
    spot_checks(&testbed, 0);

    // The other way round, from standard input.
    let swapped = File::open(file("swapped", lines(1))).unwrap();
    let mut command = testbed.daemon.forwarder().command("route load - --replace");
    let loaded = command.stdin(swapped).output().unwrap();
    assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
    assert_eq!(counts(&testbed), [ROUTES4, ROUTES6]);
    spot_checks(&testbed, 1);

    testbed.daemon.ok("-4 route flush all").unwrap();
    assert_eq!(counts(&testbed), [0, ROUTES6]);
    // What is shown can be loaded again.
    testbed.daemon.ok("route flush all").unwrap();
    testbed.daemon.ok(&load(&file("shown", before.clone()))).unwrap();
    assert_eq!(testbed.daemon.ok("route show").unwrap(), before);
    spot_checks(&testbed, 0);
}

/// Routes to B and to C by turns; `first` says which comes first.
fn lines(first: u16) -> String {
    let mut lines = String::new();
    for number in 0..ROUTES4 {
        let link = link(number, first);
        writeln!(lines, "{}/30 via 198.18.{}.2 dev eth{link}", network4(number), link + 1).unwrap();
    }
    for number in 0..ROUTES6 {
        let link = link(number, first);
        writeln!(lines, "{}/64 via 2001:db8:{}::2", network6(number), link + 1).unwrap();
    }
    lines
}

fn link(number: u16, first: u16) -> u8 {
    if number % 2 == first { 1 } else { 2 }
}

fn network4(number: u16) -> Ipv4Addr {
    let [high, low] = (number << 2).to_be_bytes();
    Ipv4Addr::new(198, 19, high, low)
}

fn network6(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x200, number, 0, 0, 0, 0)
}

/// Frames to some of the networks come out where they should.
fn spot_checks(testbed: &Testbed, first: u16) {
    for number in (0..ROUTES4).step_by(SPOT) {
        let destination = Ipv4Addr::from_bits(network4(number).to_bits() | 3);
        let frame: Frame = Testbed::frame4(0, 1).v4(|ip| ip.destination = destination);
        forwards(testbed, &frame.udp(1, 2), link(number, first));
    }
    for number in [0, 1, ROUTES6 - 1] {
        let destination = Ipv6Addr::from_bits(network6(number).to_bits() | 9);
        let frame = Testbed::frame6(0, 1).v6(|ip| ip.destination = destination);
        forwards(testbed, &frame.udp(1, 2), link(number, first));
    }
}

/// Routes of IPv4 and of IPv6.
fn counts(testbed: &Testbed) -> [u16; 2] {
    let status = testbed.daemon.forwarder().json("status").unwrap();
    ["routes4", "routes6"].map(|key| status[key].as_u64().unwrap().try_into().unwrap())
}
