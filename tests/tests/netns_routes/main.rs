//! Routes on command, and what the kernel says of links and neighbours: proved by frames.

mod following;
mod load;
mod multipath;
mod next_hops;
mod per_cpu;
mod running;
mod shown;
mod stopped;

use std::slice::from_ref;

use anyhow::{Context, Result};
use forwarder_common::verdict::Reason;
use forwarder_tests::{
    frame::Frame,
    testbed::{Counted, SOON, Testbed},
    wait::wait_until,
};
use serde_json::Value;

/// What `route show` tells of a prefix: there must be a route.
fn route(testbed: &Testbed, prefix: &str) -> Result<Value> {
    let routes = testbed.daemon.forwarder().json(&format!("route show exact {prefix}"))?;
    routes.get(0).cloned().with_context(|| format!("no route {prefix} in {routes}"))
}

/// Waits until packets to this address are forwarded to this MAC address.
fn wait_for_way(testbed: &Testbed, address: &str, mac: &str) {
    let what = format!("the way to {address} to lead to {mac}");
    wait_until(&what, SOON, || {
        let routes = testbed.daemon.forwarder().json(&format!("route get {address}"))?;
        Ok((routes[0]["lladdr"] == mac).then_some(()))
    })
    .unwrap();
}

/// Waits until a route has this state, for this reason.
fn wait_for_state(testbed: &Testbed, prefix: &str, state: &str, reason: &str) {
    let what = format!("{prefix} to be {state}: {reason}");
    wait_until(&what, SOON, || {
        let route = route(testbed, prefix)?;
        Ok((route["state"] == state && route["reason"] == reason).then_some(()))
    })
    .unwrap();
}

/// XDP alone forwards this frame from A to the host at this link, as the oracle expects.
fn forwards(testbed: &Testbed, frame: &Frame, to: u8) {
    let expected = Testbed::forwarded(frame, to);
    assert_eq!(forwarded(testbed, frame, to), expected, "{frame:?}");
}

/// Likewise, and gives back what came.
fn forwarded(testbed: &Testbed, frame: &Frame, to: u8) -> Vec<u8> {
    let send = || testbed.send(0, to, from_ref(frame));
    let (mut received, Counted { xdp, linux }) = testbed.counted(send).unwrap();
    let port = xdp.interface("eth0");
    assert_eq!((port.redirected(), linux.v4 + linux.v6), (1, 0), "{frame:?}\n{port:#?}");
    received.remove(0)
}

/// The frame goes up for this reason.
fn passes(testbed: &Testbed, frame: &Frame, reason: Reason) {
    let before = testbed.daemon.stats().unwrap();
    testbed.wire(0).send(&frame.bytes()).unwrap();
    let what = format!("a frame to be passed as {}", reason.label());
    wait_until(&what, SOON, || {
        let since = testbed.daemon.stats()?.since(&before);
        Ok((since.interface("eth0").passed(reason) == 1).then_some(()))
    })
    .unwrap();
}
