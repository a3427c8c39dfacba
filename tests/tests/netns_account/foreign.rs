//! Others on the machine use XDP too, and what they lose is theirs.

use forwarder_common::loss::Loss;
use forwarder_tests::{
    daemon::Daemon,
    footprint::Footprint,
    foreign::Foreign,
    lab::Lab,
    offload::Offload,
    require, skip,
    stats::Stats,
    testbed::{Counted, SOON, Testbed},
    wait::wait_until,
};
use nix::net::if_::if_nametoindex;

use super::{assert_nothing_is_unaccounted, behind_its_back, ensure_received, frames, send};

const FRAMES: u16 = 128;

/// A second forwarder, in a namespace of its own, whose interfaces have the same numbers.
#[test]
fn another_forwarder_on_the_machine() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let layout = Lab::router().forwarding(false).static_neighbours().ifindex(0, 65).ifindex(1, 66);
    let [ours, theirs] = ["native", "native"].map(|mode| {
        Testbed::with_routes(&layout, &format!("--mode {mode} --steer cpus=1")).unwrap()
    });
    let [here, there] = [&ours, &theirs].map(|it| Footprint::of(&it.lab.router, "eth0").unwrap());
    let frames = frames(0, 1, FRAMES);
    let before = ours.daemon.stats().unwrap();

    let forward = || send(&theirs.wires, &there, (0, 0), &frames);
    let ((), Counted { xdp, .. }) = theirs.counted(forward).unwrap();
    assert_eq!((xdp.after("eth1").sent, xdp.lost()), (u64::from(FRAMES), 0), "{xdp:#?}");
    let losing = || {
        behind_its_back(&theirs, || {
            theirs.lab.b().offload("eth0", Offload::Gro, false)?;
            send(&theirs.wires, &there, (0, 0), &frames)
        })
    };
    let ((), Counted { xdp, .. }) = theirs.counted(losing).unwrap();
    assert_eq!(xdp.after("eth0").lost_to_port(Loss::NoXmit), u64::from(FRAMES), "{xdp:#?}");
    assert_eq!(ours.daemon.stats().unwrap(), before, "none of that was ours");

    // And the other way round.
    let before = theirs.daemon.stats().unwrap();
    let forward = || send(&ours.wires, &here, (0, 0), &frames);
    let ((), Counted { xdp, .. }) = ours.counted(forward).unwrap();
    assert_eq!((xdp.after("eth1").sent, xdp.lost()), (u64::from(FRAMES), 0), "{xdp:#?}");
    assert_eq!(theirs.daemon.stats().unwrap(), before, "none of that was theirs");
    assert_nothing_is_unaccounted(&ours);
    assert_nothing_is_unaccounted(&theirs);
}

/// Beside ours, on an interface that we were not given, and out of one that we were.
#[test]
fn another_program_in_the_namespace() {
    for generic in [false, true] {
        another_program(generic);
    }
}

fn another_program(generic: bool) {
    require!(skip::forwarder());
    let layout = Lab::router().links(3).forwarding(false).static_neighbours();
    let lab = layout.build().unwrap();
    let mode = if generic { "generic" } else { "native" };
    let daemon = Daemon::start(&lab.router, &format!("--iface eth0,eth1 --mode {mode}")).unwrap();
    let wires = lab.hosts.iter().map(|host| host.wire("eth0").unwrap()).collect();
    let testbed = Testbed { daemon, wires, lab };
    let foreign = || {
        let [from, to] = ["eth2", "eth1"].map(if_nametoindex);
        Foreign::redirect(from?, to?, generic)
    };
    let _foreign = testbed.lab.router.run(foreign).unwrap();

    let frames = frames(2, 1, FRAMES);
    let sent: Vec<_> = frames.iter().map(forwarder_tests::frame::Frame::bytes).collect();
    let counters = |stats: &Stats| (stats.interfaces.clone(), stats.queues.clone());
    let before = counters(&testbed.daemon.stats().unwrap());
    let mut received = Vec::new();
    for burst in sent.chunks(32) {
        for frame in burst {
            testbed.wire(2).send(frame).unwrap();
        }
        let expected = received.len() + burst.len();
        wait_until("their frames to come out", SOON, || {
            received.extend(testbed.wire(1).arrived(|_| true)?);
            Ok((received.len() >= expected).then_some(()))
        })
        .unwrap();
    }
    ensure_received(received, sent.clone()).unwrap();
    assert_eq!(counters(&testbed.daemon.stats().unwrap()), before, "{mode}: they are theirs");

    // Nor is it ours when they lose them all.
    let losing = || {
        testbed.lab.router.ip("link set eth1 mtu 100")?;
        let long = Testbed::frame4(2, 1).udp(1, 2).ip_length(1000).bytes();
        (0..FRAMES).try_for_each(|_| testbed.wire(2).send(&long))?;
        testbed.lab.router.ip("link set eth1 mtu 1500").map(drop)
    };
    losing().unwrap();
    assert_eq!(testbed.wire(1).arrived(|_| true).unwrap(), [[0; 0]; 0]);
    assert_eq!(counters(&testbed.daemon.stats().unwrap()), before, "{mode}: they are theirs");
    assert_nothing_is_unaccounted(&testbed);
}
