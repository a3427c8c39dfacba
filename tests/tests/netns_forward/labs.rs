//! More than one lab, and labs of more than two links.

use forwarder_tests::{
    kernel::Forwarded,
    lab::Lab,
    require, skip,
    testbed::{SOON, Testbed, beyond4, beyond6},
};

#[test]
fn two_forwarders_in_two_namespaces_know_nothing_of_each_other() {
    require!(skip::forwarder());
    // Alike in all that an interface has: name, index, addresses.
    let layout = Lab::router().forwarding(false).static_neighbours().ifindex(0, 70).ifindex(1, 71);
    let one = Testbed::with_routes(&layout, "--steer off").unwrap();
    let other = Testbed::with_routes(&layout, "--steer off").unwrap();
    let frames = vec![Testbed::frame4(0, 1).udp(1, 2).payload(b"one"); 30];
    let expected = vec![Testbed::forwarded(&frames[0], 1); 30];

    let (of_other, of_one) = one
        .counted(|| {
            let (received, of_other) = other.counted(|| other.send(0, 1, &frames[..20]))?;
            assert_eq!(received, expected[..20]);
            Ok(of_other)
        })
        .unwrap();
    assert_eq!((of_one.xdp.redirected(), of_other.xdp.redirected()), (0, 20));
    let (received, of_one) = one.counted(|| one.send(0, 1, &frames)).unwrap();
    assert_eq!(received, expected);
    assert_eq!(of_one.xdp.redirected(), 30);

    let Testbed { daemon, wires, lab: _one } = one;
    daemon.ok("unload").unwrap();
    let (finished, _forwarder) = daemon.ended().unwrap();
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    wires[0].send(&frames[0].bytes()).unwrap();
    let (received, of_other) = other.counted(|| other.send(0, 1, &frames)).unwrap();
    assert_eq!(received, expected);
    assert_eq!(of_other.xdp.redirected(), 30);
    assert_eq!(wires[1].arrived(|_| true).unwrap(), [[0; 0]; 0], "nobody forwards here any more");
}

#[test]
fn of_three_links_each_gets_what_its_routes_say() {
    require!(skip::forwarder());
    let layout = Lab::router().links(3).forwarding(false).static_neighbours();
    let testbed = Testbed::with_routes(&layout, "--steer off").unwrap();
    // The upper half of what is beyond B is beyond C.
    testbed.route("198.19.2.128/25 via 198.18.3.2 dev eth2").unwrap();
    testbed.route("2001:db8:102:8000::/49 via 2001:db8:3::2 dev eth2").unwrap();
    let upper = "2001:db8:102:8000::1".parse().unwrap();
    let destinations = [
        (beyond4(1, 1), beyond6(1, 1), 1),
        (beyond4(1, 129), upper, 2),
        (beyond4(2, 1), beyond6(2, 1), 2),
        (beyond4(1, 127), beyond6(1, 2), 1),
    ];
    let mut expected = [vec![], vec![], vec![]];
    let mut frames = Vec::new();
    for (number, (v4, v6, to)) in (0..60_u8).zip(destinations.into_iter().cycle()) {
        let frame = if number % 3 == 0 {
            Testbed::frame6(0, 1).v6(|ip| ip.destination = v6)
        } else {
            Testbed::frame4(0, 1).v4(|ip| ip.destination = v4)
        };
        let frame = frame.udp(1, 2).payload(&[number]);
        expected[usize::from(to)].push(Testbed::forwarded(&frame, to));
        frames.push(frame);
    }
    // To C last, so that all is there when all of C's is.
    frames.push(Testbed::frame4(0, 2).udp(1, 2).payload(b"last"));
    expected[2].push(Testbed::forwarded(frames.last().unwrap(), 2));
    let send = || {
        frames.iter().try_for_each(|frame| testbed.wire(0).send(&frame.bytes()))?;
        let collect = |to: u8, count| testbed.wire(to).collect(count, SOON, |_| true);
        anyhow::Ok([vec![], collect(1, expected[1].len())?, collect(2, expected[2].len())?])
    };
    let (received, counted) = testbed.counted(send).unwrap();
    assert_eq!(received, expected);
    for wire in &testbed.wires {
        assert_eq!(wire.arrived(|_| true).unwrap(), [[0; 0]; 0]);
    }
    assert_eq!(counted.xdp.interface("eth0").redirected(), frames.len() as u64);
    assert_eq!(counted.xdp.redirected(), frames.len() as u64);
    assert_eq!(counted.linux, Forwarded::default());
}
