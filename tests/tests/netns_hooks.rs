//! BPF programs of others on the way of a packet: found at the start and while it runs. In a binary
//! of its own: the kernel does not say in which namespace a program is on netfilter's hooks, so
//! every forwarder of the machine stops for it.

use std::time::{Duration, Instant};

use forwarder_common::verdict::Reason;
use forwarder_tests::{
    hook::Hook,
    lab::Lab,
    require, skip,
    testbed::{SOON, Testbed},
    wait::wait_until,
};

const SECOND: Duration = Duration::from_secs(1);

/// While the hook is there nothing is forwarded, and a start is refused.
fn stops(testbed: &Testbed, hook: impl FnOnce() -> Hook, what: &str, kind: &str) {
    let waits = |is_stopped: bool| {
        let since = Instant::now();
        wait_until("forwarding to stop, or to go on", SOON, || {
            let status = testbed.daemon.ok("status")?;
            Ok((status.contains(what) == is_stopped).then_some(()))
        })
        .unwrap();
        assert!(since.elapsed() < SECOND, "{:?}", since.elapsed());
    };
    let send = || {
        let before = testbed.daemon.stats().unwrap();
        for frame in [Testbed::frame4(0, 1), Testbed::frame6(0, 1)] {
            testbed.wire(0).send(&frame.udp(1, 2).bytes()).unwrap();
        }
        wait_until("two frames to be counted", SOON, || {
            let since = testbed.daemon.stats()?.since(&before);
            let port = since.interface("eth0");
            let filtered = port.passed(Reason::Filtered);
            Ok((filtered + port.redirected() == 2).then_some(filtered))
        })
        .unwrap()
    };
    waits(false);
    assert_eq!(send(), 0);
    let hook = hook();
    waits(true);
    assert_eq!(send(), 2);
    let remedy = format!("or start again with --bypass={kind}");
    let status = testbed.daemon.ok("status").unwrap();
    assert!(status.contains(&remedy), "{status}");
    drop(hook);
    waits(false);
    assert_eq!(send(), 0);
}

#[test]
fn a_program_of_somebody_else_stops_forwarding() {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false).static_neighbours().ifindex(0, 1077);
    let testbed = Testbed::with_routes(&layout, "").unwrap();
    let router = &testbed.lab.router;
    let tcx = || router.run(|| Hook::tcx(1077)).unwrap();
    stops(&testbed, tcx, "on eth0, tcx ingress", "tc");
    if let Err(error) = router.run(Hook::netfilter) {
        return skip::skip(&format!("needs BPF on netfilter's hooks: {error}"));
    }
    let netfilter = || router.run(Hook::netfilter).unwrap();
    stops(&testbed, netfilter, "on a hook of netfilter", "netfilter");
}
