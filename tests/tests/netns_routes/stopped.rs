//! Where an address of this host cannot be written to the maps, nothing of its family is forwarded.

use std::{fmt::Write as _, fs, net::Ipv4Addr};

use forwarder_common::{abi::LOCALS_MAX, verdict::Reason};
use forwarder_tests::{
    lab::Lab,
    require, skip,
    testbed::{SOON, Testbed},
    wait::wait_until,
};

use crate::{forwards, passes};

const ROUTES: u32 = 10_000;
const LOADS: usize = 4;

#[test]
fn a_family_that_could_be_for_this_host_goes_up_and_the_other_goes_on() {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false).static_neighbours();
    let testbed = Testbed::with_routes(&layout, "").unwrap();
    let router = &testbed.lab.router;
    let frames = [Testbed::frame4(0, 1).udp(1, 2), Testbed::frame6(0, 1).udp(1, 2)];
    for frame in &frames {
        forwards(&testbed, frame, 1);
    }

    // The map has room for as many, and Linux has some already.
    let folder = tempfile::tempdir().unwrap();
    let (locals, many) = (folder.path().join("locals"), folder.path().join("routes"));
    let mut lines = String::new();
    for number in 0..LOCALS_MAX {
        writeln!(lines, "route add local {} dev lo table local", beyond(number)).unwrap();
    }
    fs::write(&locals, lines).unwrap();
    router.ip(&format!("-batch {}", locals.display())).unwrap();
    let note = |family| format!("no {family} is forwarded in XDP: an address of this host could");
    let wait_for = |is_stopped: bool| {
        wait_until("IPv4 to be stopped, or to go on", SOON, || {
            let status = testbed.daemon.ok("status")?;
            assert!(!status.contains(&note("IPv6")), "{status}");
            Ok((status.contains(&note("IPv4")) == is_stopped).then_some(()))
        })
        .unwrap();
    };
    wait_for(true);
    passes(&testbed, &frames[0], Reason::Punt);
    forwards(&testbed, &frames[1], 1);

    // Nothing else that is written, however long it takes, starts it again.
    let mut lines = String::new();
    for number in 0..ROUTES {
        let via = "via 198.18.2.2 dev eth1";
        writeln!(lines, "{} {via}", beyond(LOCALS_MAX + number)).unwrap();
    }
    fs::write(&many, lines).unwrap();
    for _ in 0..LOADS {
        testbed.daemon.ok(&format!("route load {}", many.display())).unwrap();
        passes(&testbed, &frames[0], Reason::Punt);
        testbed.daemon.ok("route flush root 198.18.128.0/17").unwrap();
        passes(&testbed, &frames[0], Reason::Punt);
        forwards(&testbed, &frames[1], 1);
    }

    for number in 0..10 {
        router.ip(&format!("route del local {} table local", beyond(number))).unwrap();
    }
    wait_for(false);
    for frame in &frames {
        forwards(&testbed, frame, 1);
    }
}

fn beyond(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 128, 0).to_bits() + number)
}
