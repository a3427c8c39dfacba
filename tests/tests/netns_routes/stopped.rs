//! Where an address of this host cannot be written to the maps, nothing is forwarded.

use std::{fmt::Write as _, fs, net::Ipv4Addr};

use anyhow::Result;
use forwarder_common::{abi::LOCALS_MAX, verdict::Reason};
use forwarder_tests::{
    footprint::Footprint,
    lab::Lab,
    require, skip,
    testbed::{SOON, Testbed},
    wait::wait_until,
};

use crate::{forwards, passes};

const ROUTES: u32 = 10_000;
const LOADS: usize = 10;

#[test]
fn a_large_load_does_not_start_what_was_stopped() {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false).static_neighbours();
    let testbed = Testbed::with_routes(&layout, "").unwrap();
    let router = &testbed.lab.router;
    let footprint = Footprint::of(router, "eth0").unwrap();
    let frame = Testbed::frame4(0, 1).udp(1, 2);
    forwards(&testbed, &frame, 1);

    // The map has room for as many, and Linux has some already.
    let folder = tempfile::tempdir().unwrap();
    let (locals, many) = (folder.path().join("locals"), folder.path().join("routes"));
    let mut lines = String::new();
    for number in 0..LOCALS_MAX {
        writeln!(lines, "route add local {} dev lo table local", beyond(number)).unwrap();
    }
    fs::write(&locals, lines).unwrap();
    router.ip(&format!("-batch {}", locals.display())).unwrap();
    let is_stopped = || -> Result<_> {
        let status = testbed.daemon.ok("status")?;
        Ok((status.contains("nothing is forwarded in XDP"), footprint.lease_ns()? == 0))
    };
    let stopped = || Ok((is_stopped()? == (true, true)).then_some(()));
    wait_until("forwarding to be stopped", SOON, stopped).unwrap();
    passes(&testbed, &frame, Reason::LeaseExpired);

    let mut lines = String::new();
    for number in 0..ROUTES {
        let via = "via 198.18.2.2 dev eth1";
        writeln!(lines, "{} {via}", beyond(LOCALS_MAX + number)).unwrap();
    }
    fs::write(&many, lines).unwrap();
    for _ in 0..LOADS {
        testbed.daemon.ok(&format!("route load {}", many.display())).unwrap();
        assert_eq!(footprint.lease_ns().unwrap(), 0);
        testbed.daemon.ok("route flush root 198.18.128.0/17").unwrap();
        assert_eq!(footprint.lease_ns().unwrap(), 0);
    }
    passes(&testbed, &frame, Reason::LeaseExpired);

    for number in 0..10 {
        router.ip(&format!("route del local {} table local", beyond(number))).unwrap();
    }
    let goes_on = || Ok((is_stopped()? == (false, false)).then_some(()));
    wait_until("forwarding to go on", SOON, goes_on).unwrap();
    forwards(&testbed, &frame, 1);
}

fn beyond(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 128, 0).to_bits() + number)
}
