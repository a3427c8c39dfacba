//! How a daemon ends, and what is left of it: nothing, or after kill -9 what goes on forwarding for
//! a while and can be found and removed.

use std::{io, path::PathBuf, process::Stdio, time::Duration};

use forwarder::tracepoints::Tracepoint;
use forwarder_common::verdict::{Reason, SLOT_REDIRECTED, SLOT_RX};
use forwarder_tests::{
    crossing::{Crossing, ROUTES},
    daemon::{Daemon, Forwarder, binary},
    footprint::{Attached, Footprint, files, xdp},
    kernel::Forwarded,
    lab::Lab,
    process::{Process, die_with_us},
    require, skip,
    wait::wait_until,
};
use nix::sys::signal::Signal;

const SOON: Duration = Duration::from_secs(10);
const NO_FILES: [PathBuf; 0] = [];
const STEERED: &str = "--steer cpus=0,1";
/// The index of eth0's counters: it is named first.
const ETH0: u32 = 1;

fn lab() -> Lab {
    Lab::router().forwarding(false).static_neighbours().build().unwrap()
}

/// A daemon that forwards between A and B, and what it has in the kernel.
struct Running {
    daemon: Daemon,
    crossing: Crossing,
    footprint: Footprint,
}

fn run(lab: &Lab, forwarder: Forwarder, options: &str) -> Running {
    let daemon = forwarder.start(&format!("--iface eth0,eth1 {options}")).unwrap();
    let crossing = Crossing::open(lab).unwrap();
    Crossing::route(daemon.forwarder()).unwrap();
    crossing.check(200).unwrap();
    let footprint = Footprint::of(&lab.router, "eth0").unwrap();
    let queues = if options.contains("cpus=0,1") { 2 } else { 0 };
    assert_eq!(footprint.queue_threads().unwrap().len(), queues, "{options}");
    let tracepoints = Tracepoint::ALL.len();
    let expected = (2 + tracepoints, 2 + tracepoints);
    assert_eq!(footprint.size(), expected, "two programs and interfaces, and the tracepoints");
    assert!(!files(daemon.forwarder()).is_empty());
    Running { daemon, crossing, footprint }
}

/// Once nobody has anything of the daemon.
fn assert_nothing_is_left(lab: &Lab, footprint: &Footprint, forwarder: &Forwarder) {
    for interface in ["eth0", "eth1"] {
        assert_eq!(xdp(&lab.router, interface).unwrap(), None, "{interface}");
    }
    assert_eq!(files(forwarder), NO_FILES);
    footprint.gone().unwrap();
}

/// In each mode, with steering and without.
fn leaves_nothing(end: impl Fn(Daemon) -> (i32, Forwarder)) {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let lab = lab();
    for mode in ["native", "generic"] {
        for steer in ["", STEERED] {
            let options = format!("--mode {mode} {steer}");
            let forwarder = Forwarder::new(&lab.router).unwrap();
            let Running { daemon, footprint, .. } = run(&lab, forwarder, &options);
            for interface in ["eth0", "eth1"] {
                let Attached { generic, .. } = xdp(&lab.router, interface).unwrap().unwrap();
                assert_eq!(generic, mode == "generic", "{interface}");
            }
            let (code, forwarder) = end(daemon);
            assert_eq!(code, 0, "{options}");
            // The daemon has waited for these.
            assert_eq!(footprint.queue_threads().unwrap(), [""; 0], "{options}");
            assert_nothing_is_left(&lab, &footprint, &forwarder);
        }
    }
}

#[test]
fn nothing_is_left_after_ctrl_c() {
    leaves_nothing(|daemon| {
        let (finished, forwarder) = daemon.stop(Signal::SIGINT).unwrap();
        assert!(finished.stderr.ends_with("nothing is left behind\n"), "{}", finished.stderr);
        (finished.code(), forwarder)
    });
}

#[test]
fn nothing_is_left_after_sigterm() {
    leaves_nothing(|daemon| {
        let (finished, forwarder) = daemon.stop(Signal::SIGTERM).unwrap();
        (finished.code(), forwarder)
    });
}

#[test]
fn nothing_is_left_after_unload() {
    leaves_nothing(|daemon| {
        let unload = daemon.forwarder().call("unload").unwrap();
        assert_eq!(unload.code(), 0, "{}", unload.stderr);
        assert!(unload.stderr.contains("the forwarder is unloaded"), "{}", unload.stderr);
        let (finished, forwarder) = daemon.ended().unwrap();
        (finished.code(), forwarder)
    });
}

#[test]
fn after_kill_9_forwarding_goes_on_until_the_next_run() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let lab = lab();
    let forwarder = Forwarder::new(&lab.router).unwrap();
    let first = run(&lab, forwarder, STEERED);
    let (finished, forwarder) = first.daemon.stop(Signal::SIGKILL).unwrap();
    assert_eq!(finished.code(), 137);
    first.crossing.check(500).unwrap();
    let status = forwarder.call("status").unwrap();
    assert_eq!(status.code(), 3);
    assert!(status.stderr.contains("one has died and left "), "{}", status.stderr);

    // What it left is not foreign, and is replaced.
    let daemon = forwarder.start("--iface eth0,eth1").unwrap();
    let stderr = daemon.stderr();
    let says = "a forwarder of this name was killed: removing what it left";
    assert!(stderr.contains(says), "{stderr}");
    first.footprint.gone().unwrap();
    assert_eq!(daemon.ok("route show").unwrap(), "", "routes are not taken over");
    Crossing::route(daemon.forwarder()).unwrap();
    first.crossing.check(200).unwrap();
    let footprint = Footprint::of(&lab.router, "eth0").unwrap();
    let (finished, forwarder) = daemon.stop(Signal::SIGTERM).unwrap();
    assert_eq!(finished.code(), 0);
    assert_nothing_is_left(&lab, &footprint, &forwarder);
}

#[test]
fn unload_removes_what_kill_9_has_left() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let lab = lab();
    for options in [STEERED, "--mode generic"] {
        let running = run(&lab, Forwarder::new(&lab.router).unwrap(), options);
        let (_, forwarder) = running.daemon.stop(Signal::SIGKILL).unwrap();
        assert!(!files(&forwarder).is_empty());
        let unload = forwarder.call("unload").unwrap();
        assert_eq!(unload.code(), 0, "{}", unload.stderr);
        let says = "removed what a killed forwarder left: it was attached to 2 interfaces";
        assert!(unload.stderr.contains(says), "{}", unload.stderr);
        assert_nothing_is_left(&lab, &running.footprint, &forwarder);

        let again = forwarder.call("unload").unwrap();
        assert_eq!(again.code(), 3, "{}", again.stderr);
        let name = forwarder.name().unwrap();
        let says = format!("no forwarder named '{name}' is running, and none has left anything");
        assert!(again.stderr.contains(&says), "{}", again.stderr);
    }
}

#[test]
fn a_second_daemon_in_a_namespace_is_refused() {
    require!(skip::forwarder());
    let lab = lab();
    let first = run(&lab, Forwarder::new(&lab.router).unwrap(), "");
    let program = xdp(&lab.router, "eth0").unwrap();
    let second = Forwarder::new(&lab.router).unwrap();
    for forwarder in [first.daemon.forwarder(), &second] {
        let refused = forwarder.call("run --iface eth0,eth1 --metrics off").unwrap();
        assert_eq!(refused.code(), 1);
        let says = "a forwarder is running in this network namespace: see it with `forwarder \
                    status`, end it with `forwarder unload`";
        assert!(refused.stderr.contains(says), "{}", refused.stderr);
    }
    // Nor does one that is looked for elsewhere lose anything by it.
    let unload = second.call("unload").unwrap();
    assert_eq!(unload.code(), 1, "{}", unload.stderr);
    assert!(unload.stderr.contains("a forwarder is running in this network namespace"));
    assert_eq!(files(&second), NO_FILES);
    assert_eq!(xdp(&lab.router, "eth0").unwrap(), program);
    first.daemon.ok("status").unwrap();
    first.crossing.check(100).unwrap();
}

#[test]
fn a_name_that_is_taken_is_refused_in_another_namespace() {
    require!(skip::forwarder());
    let (here, there) = (lab(), lab());
    let first = run(&here, Forwarder::new(&here.router).unwrap(), "");
    let before = files(first.daemon.forwarder());
    let name = first.daemon.forwarder().name().unwrap();
    let mut command = there.router.command(binary());
    command.env("FORWARDER_RUN_DIR", first.daemon.forwarder().run_dir());
    command.args(["run", "--name", name, "--iface", "eth0,eth1", "--metrics", "off"]);
    let refused = Process::spawn(command, Signal::SIGTERM).unwrap().finish(SOON).unwrap();
    assert_eq!(refused.code(), 1);
    let says = format!(
        "the name '{name}' is taken by a forwarder in another network namespace: choose another \
         with --name"
    );
    assert!(refused.stderr.contains(&says), "{}", refused.stderr);
    assert_eq!(xdp(&there.router, "eth0").unwrap(), None);
    assert_eq!(files(first.daemon.forwarder()), before);
    first.daemon.ok("status").unwrap();
    first.crossing.check(100).unwrap();
    // By another name it is welcome.
    let second = run(&there, Forwarder::new(&there.router).unwrap(), "");
    second.crossing.check(100).unwrap();
    first.crossing.check(100).unwrap();
}

#[test]
fn a_daemon_that_nobody_listens_to_goes_on() {
    require!(skip::forwarder());
    let lab = lab();
    // It has something to say now, and later.
    lab.router.ip("route add default via 198.18.2.2").unwrap();
    let forwarder = Forwarder::new(&lab.router).unwrap();
    let mut command = forwarder.command("run --iface eth0,eth1 --metrics off --routes static");
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    command.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
    die_with_us(&mut command, Signal::SIGTERM);
    let mut child = command.spawn().unwrap();
    drop(command);
    let running = || Ok(forwarder.call("status")?.status.success().then_some(()));
    wait_until("the daemon to be ready", SOON, running).unwrap();
    Crossing::route(&forwarder).unwrap();
    Crossing::open(&lab).unwrap().check(100).unwrap();
    let footprint = Footprint::of(&lab.router, "eth0").unwrap();
    forwarder.ok("unload").unwrap();
    let ended = wait_until("the daemon to end", SOON, || Ok(child.try_wait()?)).unwrap();
    assert_eq!(ended.code(), Some(0));
    assert_nothing_is_left(&lab, &footprint, &forwarder);
}

#[test]
fn without_a_daemon_everything_is_passed_up_when_the_lease_ends() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    // Both leases run out at the same time.
    let killed = ["", STEERED].map(|steer| {
        let lab = lab();
        let forwarder = Forwarder::new(&lab.router).unwrap();
        let running = run(&lab, forwarder, &format!("--grace 3 {steer}"));
        let (_, forwarder) = running.daemon.stop(Signal::SIGKILL).unwrap();
        running.crossing.check(100).unwrap();
        (lab, running.crossing, running.footprint, forwarder)
    });
    for (lab, crossing, footprint, _forwarder) in &killed {
        let packets = |slot| footprint.packets(ETH0, slot).unwrap();
        wait_until("the lease to end", SOON, || {
            crossing.send(2)?;
            Ok((packets(Reason::LeaseExpired.slot()) > 0).then_some(()))
        })
        .unwrap();
        crossing.arrived().unwrap();

        let slots = [SLOT_RX, Reason::LeaseExpired.slot(), SLOT_REDIRECTED];
        let before = slots.map(packets);
        crossing.send(40).unwrap();
        let received = || Ok((packets(SLOT_RX) == before[0] + 40).then_some(()));
        wait_until("40 frames to come in", SOON, received).unwrap();
        assert_eq!(slots.map(packets), [before[0] + 40, before[1] + 40, before[2]]);
        assert_eq!(crossing.arrived().unwrap(), 0, "Linux does not forward");

        lab.router.sysctl("ipv4/ip_forward", "1").unwrap();
        lab.router.sysctl("ipv6/conf/all/forwarding", "1").unwrap();
        for route in ROUTES {
            lab.router.ip(&format!("route add {route}")).unwrap();
        }
        let linux = Forwarded::of(&lab.router).unwrap();
        crossing.check(100).unwrap();
        let forwarded = Forwarded::of(&lab.router).unwrap().since(linux);
        assert_eq!(forwarded, Forwarded { v4: 50, v6: 50 });
        assert_eq!(packets(SLOT_REDIRECTED), before[2]);
    }
}
