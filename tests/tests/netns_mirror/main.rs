//! Linux's routes are followed: what goes by them leaves by XDP as Linux would have sent it, and
//! what cannot be followed is left to Linux. Proved by frames, and by who forwarded them.

mod audit;
mod commands;
mod followed;
mod skipped;
mod sysctls;

use std::slice::from_ref;

use anyhow::Result;
use forwarder_common::verdict::Reason;
use forwarder_tests::{
    frame::{Frame, Packet},
    kernel::Forwarded,
    lab::{Lab, Layout},
    testbed::{Counted, SOON, Testbed, is_traffic},
    wait::wait_until,
};
use serde_json::Value;

/// A router on which Linux forwards, whose neighbours are known, and a forwarder that follows it.
fn follower(layout: Layout) -> Testbed {
    Testbed::start(&layout.static_neighbours(), "--routes kernel").unwrap()
}

fn two_links() -> Testbed {
    follower(Lab::router())
}

/// Runs `ip` on the router.
fn ip(testbed: &Testbed, arguments: &str) {
    testbed.lab.router.ip(arguments).unwrap();
}

/// What `route show` tells of a prefix, the route that counts first.
fn shown(testbed: &Testbed, prefix: &str) -> Result<Value> {
    testbed.daemon.forwarder().json(&format!("route show exact {prefix}"))
}

/// Waits until `route show` tells this of a prefix.
fn wait_for(testbed: &Testbed, prefix: &str, what: &str, is_so: impl Fn(&Value) -> bool) {
    let mut last = Value::Null;
    let waited = wait_until(what, SOON, || {
        last = shown(testbed, prefix)?;
        Ok(is_so(&last).then_some(()))
    });
    assert!(waited.is_ok(), "{what}, of {prefix}: {last:#}");
}

/// Waits until there is no route of this prefix any more, or one whose first next hop is this.
fn wait_for_gateway(testbed: &Testbed, prefix: &str, gateway: Option<&str>) {
    let what = format!("{prefix} to lead to {gateway:?}");
    wait_for(testbed, prefix, &what, |routes| match gateway {
        None => routes.get(0).is_none(),
        Some(gateway) => routes[0]["gateway"] == gateway,
    });
}

/// XDP alone forwards this frame from A to the host at this link.
fn forwards(testbed: &Testbed, frame: &Frame, to: u8) {
    let send = || testbed.send(0, to, from_ref(frame));
    let (received, Counted { xdp, linux }) = testbed.counted(send).unwrap();
    assert_eq!(received, [Testbed::forwarded(frame, to)], "{frame:?}");
    let port = xdp.interface("eth0");
    assert_eq!((port.redirected(), linux.v4 + linux.v6), (1, 0), "{frame:?}\n{port:#?}");
}

/// The frame goes up for this reason, and Linux forwards it to the host at this link, with the same
/// bytes as XDP would.
fn left_to_linux(testbed: &Testbed, frame: &Frame, reason: Reason, to: u8) {
    let send = || testbed.send(0, to, from_ref(frame));
    let (received, Counted { xdp, linux }) = testbed.counted(send).unwrap();
    assert_eq!(received, [Testbed::forwarded(frame, to)], "{frame:?}");
    let port = xdp.interface("eth0");
    assert_eq!((port.passed(reason), linux.v4 + linux.v6), (1, 1), "{frame:?}\n{port:#?}");
}

/// The frame goes up for this reason, and nobody forwards it.
fn nobody_forwards(testbed: &Testbed, frame: &Frame, reason: Reason) {
    let send = || {
        testbed.wire(0).send(&frame.bytes())?;
        let before = testbed.daemon.stats()?;
        // It is counted as soon as it has come up; what Linux does with it, it does then.
        wait_until("the frame to come in", SOON, || {
            let now = testbed.daemon.stats()?;
            let passed =
                |stats: &forwarder_tests::stats::Stats| stats.interface("eth0").passed(reason);
            Ok((passed(&now) > passed(&before) || passed(&before) > 0).then_some(()))
        })
    };
    let before = testbed.daemon.stats().unwrap().interface("eth0").passed(reason);
    let linux = Forwarded::of(&testbed.lab.router).unwrap();
    send().unwrap();
    wait_until("the frame to be passed", SOON, || {
        let now = testbed.daemon.stats()?.interface("eth0").passed(reason);
        Ok((now == before + 1).then_some(()))
    })
    .unwrap();
    for wire in &testbed.wires[1..] {
        let mut arrived = wire.arrived(is_traffic).unwrap();
        // Linux may answer the sender, by whatever route it has to there.
        arrived.retain(|bytes| Packet::of_frame(bytes).is_ok_and(|it| it.icmp().is_none()));
        assert_eq!(arrived, Vec::<Vec<u8>>::new(), "{frame:?}");
    }
    let linux = Forwarded::of(&testbed.lab.router).unwrap().since(linux);
    assert_eq!((linux.v4, linux.v6), (0, 0), "{frame:?}");
}
