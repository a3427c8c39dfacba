//! Three interfaces at once, on both CPUs, all ways: each frame comes out, or is counted as lost.

use std::thread;

use anyhow::Result;
use forwarder_common::loss::Loss;
use forwarder_tests::{
    footprint::Footprint,
    frame::Frame,
    lab::Lab,
    require, skip,
    testbed::{Counted, SOON, Testbed},
    wait::wait_until,
    wire::Wire,
};

use super::{assert_nothing_is_unaccounted, behind_its_back, ensure_received, frames, send};

/// From each link to each other.
const FRAMES: u16 = 200;
const LINKS: u8 = 3;

#[test]
fn native() {
    balance("native", false);
}

#[test]
fn native_steered() {
    balance("native", true);
}

#[test]
fn generic() {
    balance("generic", false);
}

#[test]
fn generic_steered() {
    balance("generic", true);
}

fn balance(mode: &str, steered: bool) {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let layout = Lab::router().links(3).forwarding(false).static_neighbours();
    let steer = if steered { "cpus=0,1" } else { "off" };
    let testbed = Testbed::with_routes(&layout, &format!("--mode {mode} --steer {steer}")).unwrap();
    let footprint = Footprint::of(&testbed.lab.router, "eth0").unwrap();

    let all = || {
        interleaved(&testbed.wires, &footprint, &[(0, 0), (1, 1), (2, 0)])?;
        (0..LINKS).try_for_each(|to| receive(&testbed, &[0, 1, 2], to))
    };
    let ((), Counted { xdp, .. }) = testbed.counted(all).unwrap();
    let sent = 2 * u64::from(FRAMES);
    for (link, on) in [(0, 0), (1, 1), (2, 0)] {
        let port = xdp.interface(&format!("eth{link}"));
        assert_eq!(port.cpu(on).ingress.rx.packets, sent, "{xdp:#?}");
        assert_eq!((port.ingress().rx.packets, port.redirected()), (sent, sent), "{xdp:#?}");
        // Of the two others.
        let left = if mode == "native" { sent } else { 0 };
        assert_eq!(xdp.after(&port.name).sent, left, "{xdp:#?}");
    }
    assert_eq!(xdp.lost(), 0, "{xdp:#?}");
    assert!(steered == xdp.queues.iter().any(|queue| queue.dequeued > 0), "{xdp:#?}");

    one_egress_is_down(&testbed, &footprint, mode);
    assert_nothing_is_unaccounted(&testbed);
}

/// What goes there is lost, and nothing else.
fn one_egress_is_down(testbed: &Testbed, footprint: &Footprint, mode: &str) {
    let some = || {
        behind_its_back(testbed, || {
            testbed.lab.router.ip("link set eth2 down")?;
            interleaved(&testbed.wires, footprint, &[(0, 0), (1, 1)])
        })?;
        receive(testbed, &[1], 0)?;
        receive(testbed, &[0], 1)
    };
    let ((), Counted { xdp, .. }) = testbed.counted(some).unwrap();
    let count = u64::from(FRAMES);
    for link in [0, 1] {
        let port = xdp.interface(&format!("eth{link}"));
        assert_eq!(port.redirected(), 2 * count, "{xdp:#?}");
        let after = xdp.after(&port.name);
        assert_eq!(after.lost_to_port(Loss::EgressDown), count, "{xdp:#?}");
        assert_eq!(after.sent, if mode == "native" { count } else { 0 }, "{xdp:#?}");
    }
    assert_eq!((xdp.after("eth2").sent, xdp.lost()), (0, 2 * count), "{xdp:#?}");
}

/// From each of these links on its CPU to all others, in turn, at the same time.
fn interleaved(wires: &[Wire], footprint: &Footprint, from: &[(u8, usize)]) -> Result<()> {
    thread::scope(|scope| {
        let senders = from.iter().map(|&(link, on)| {
            let mut frames: Vec<_> = others(link).map(|to| frames(link, to, FRAMES)).collect();
            let second = frames.pop().unwrap_or_default();
            let first = frames.pop().unwrap_or_default();
            let turns: Vec<Frame> =
                first.into_iter().zip(second).flat_map(<[Frame; 2]>::from).collect();
            scope.spawn(move || send(wires, footprint, (link, on), &turns))
        });
        let senders: Vec<_> = senders.collect();
        senders.into_iter().try_for_each(|it| it.join().expect("nothing panics there"))
    })
}

/// All that these links have sent to that one has come out there, and nothing else.
fn receive(testbed: &Testbed, from: &[u8], to: u8) -> Result<()> {
    let from = from.iter().filter(|link| **link != to);
    let expected: Vec<_> = from
        .flat_map(|link| frames(*link, to, FRAMES))
        .map(|frame| Testbed::forwarded(&frame, to))
        .collect();
    let mut received = Vec::new();
    wait_until("all frames to come out", SOON, || {
        received.extend(testbed.wire(to).arrived(|_| true)?);
        Ok((received.len() >= expected.len()).then_some(()))
    })?;
    ensure_received(received, expected)
}

fn others(link: u8) -> impl Iterator<Item = u8> {
    (0..LINKS).filter(move |other| *other != link)
}
