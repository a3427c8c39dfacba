//! Long proofs, for `cargo xtask soak`: summary in docs/soak.md.

use std::time::{Duration, Instant};

use forwarder_common::testing::Random;
use forwarder_tests::{
    comparison::compare_with_linux,
    crossing::Crossing,
    daemon::Forwarder,
    footprint::{Footprint, files},
    lab::Lab,
    require, skip,
    testbed::Testbed,
    twin::{Twin, in_own_namespace},
};
use nix::sys::signal::Signal;

#[test]
#[ignore = "long: part of `cargo xtask soak`"]
fn soak_kernel_and_library_agree_on_two_million_frames() {
    in_own_namespace(|| {
        // Beyond the seeds of every day.
        let redirected = Twin::filled().agree_on(1_000_000..3_000_000);
        println!("{redirected} of 2,000,000 frames were redirected, none differed");
        assert!(redirected > 150_000, "only {redirected} frames were redirected");
    });
}

#[test]
#[ignore = "long: part of `cargo xtask soak`"]
fn soak_linux_would_have_sent_each_of_300_000_frames() {
    require!(skip::forwarder());
    for (mode, seeds) in [("native", 1_000_000..1_250_000), ("generic", 1_250_000..1_300_000)] {
        let (sent, by_xdp) = compare_with_linux(mode, seeds);
        println!("{mode}: {sent} frames, {by_xdp} of them by XDP, none differed");
        assert!(by_xdp > sent / 5, "{mode}: only {by_xdp} of {sent} frames left by XDP");
    }
}

/// Starts and ends in every way, and looks each time whether anything is left.
#[test]
#[ignore = "long: part of `cargo xtask soak`"]
fn soak_a_hundred_daemons_leave_nothing() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let lab = Lab::router().forwarding(false).static_neighbours().build().unwrap();
    let crossing = Crossing::open(&lab).unwrap();
    let mut forwarder = Forwarder::new(&lab.router).unwrap();
    let options = ["", "--steer cpus=0,1", "--mode generic", "--mode generic --steer cpus=1"];
    for round in 0..100 {
        let daemon = forwarder
            .start(&format!("--iface eth0,eth1 {}", options[round % options.len()]))
            .unwrap();
        Crossing::route(daemon.forwarder()).unwrap();
        crossing.check(64).unwrap();
        let footprint = Footprint::of(&lab.router, "eth0").unwrap();
        let killed = round % 3 == 2;
        let signal = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGKILL][round % 3];
        let (_, ended) = daemon.stop(signal).unwrap();
        if killed {
            crossing.check(64).unwrap();
            // Every other time the next daemon finds it.
            if round % 2 == 0 {
                ended.ok("unload").unwrap();
            }
        }
        if !killed || round % 2 == 0 {
            footprint.gone().unwrap();
            assert_eq!(files(&ended), Vec::<std::path::PathBuf>::new(), "round {round}");
        }
        forwarder = ended;
    }
}

/// Routes come and go at full speed while frames flow and are steered. None may come twice or
/// changed in a wrong way; each is accounted for; and in the end the table is what it was told.
#[test]
#[ignore = "long: part of `cargo xtask soak`"]
fn soak_routes_churn_under_traffic() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let layout = Lab::router().links(3).forwarding(false).static_neighbours();
    let testbed = Testbed::with_routes(&layout, "--steer cpus=0,1").unwrap();
    let mut random = Random::new(1);
    let mut changes = 0;
    let begin = Instant::now();
    let ((), counted) = testbed
        .counted(|| {
            while begin.elapsed() < Duration::from_mins(3) {
                let (prefix, link) = (random.below(4096), random.pick(&[1u8, 2]));
                let prefix = format!("198.18.{}.{}/28", 128 + prefix / 64, prefix % 16 * 16);
                let via = format!("via 198.18.{}.2 dev eth{link}", link + 1);
                // To add what is there, or to delete what is not, is an error, and no harm.
                let command = random.pick(&["add", "replace", "del"]);
                let next_hop = if command == "del" { "" } else { &via };
                testbed.daemon.forwarder().call(&format!("route {command} {prefix} {next_hop}"))?;
                changes += 1;
                let frames = [Testbed::frame4(0, 1).udp(1000 + changes, 9).payload(b"x")];
                let received = testbed.send(0, 1, &frames)?;
                assert_eq!(received, [Testbed::forwarded(&frames[0], 1)]);
            }
            Ok(())
        })
        .unwrap();
    println!("{changes} changes, {} frames redirected", counted.xdp.redirected());
    assert_eq!(counted.xdp.redirected(), u64::from(changes));
    assert!(counted.xdp.closes());

    testbed.daemon.ok("route flush root 198.18.128.0/17").unwrap();
    let left = testbed.daemon.ok("route show").unwrap();
    assert_eq!(left.lines().count(), 6, "{left}");
}
