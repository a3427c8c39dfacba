//! Signals end a daemon at any moment of its life, and nothing of it is left.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use forwarder_tests::{
    crossing::Crossing,
    daemon::{Daemon, Forwarder},
    footprint::{Footprint, files, xdp},
    lab::Lab,
    process::Process,
    require, skip,
    wait::wait_until,
};
use nix::sys::signal::Signal;

const SOON: Duration = Duration::from_secs(10);
const NO_FILES: [PathBuf; 0] = [];
/// Moments of a start, from its first to a little after its last.
const MOMENTS: u32 = 25;
/// Starts that are ended as soon as there is something to be left.
const AT_THE_FIRST_FILE: usize = 5;
const RUN: &str = "run --iface eth0,eth1 --metrics off --steer cpus=0,1";

fn lab() -> Lab {
    Lab::router().forwarding(false).static_neighbours().build().unwrap()
}

#[test]
fn nothing_is_left_of_a_start_that_a_signal_ends() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let lab = lab();
    let begin = Instant::now();
    let daemon = Daemon::start(&lab.router, "--iface eth0,eth1 --steer cpus=0,1").unwrap();
    let start = begin.elapsed();
    drop(daemon);
    let signals = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
    let spread = (0..MOMENTS).map(|moment| Some(start * moment / (MOMENTS - 5)));
    let mut early = 0;
    for (round, moment) in [None; AT_THE_FIRST_FILE].into_iter().chain(spread).enumerate() {
        let signal = signals[round % signals.len()];
        let forwarder = Forwarder::new(&lab.router).unwrap();
        let begin = Instant::now();
        let process = Process::spawn(forwarder.command(RUN), Signal::SIGTERM).unwrap();
        match moment {
            // This waits for nothing: the moment is what is tried.
            Some(moment) => thread::sleep(moment),
            None => {
                while files(&forwarder).is_empty() {
                    assert!(begin.elapsed() < SOON, "no file: {}", process.stderr());
                }
            }
        }
        early += u32::from(!process.stderr().contains("forwarder: ready"));
        process.signal(signal).unwrap();
        let finished = process.finish(SOON).unwrap();
        let stderr = &finished.stderr;
        let what = format!("{signal} at {moment:?}: {stderr}");
        // Before its first step it ends at once.
        let unheard = finished.code() == 128 + signal as i32 && stderr.is_empty();
        let done = finished.code() == 0 && stderr.ends_with("nothing is left behind\n");
        assert_eq!(files(&forwarder), NO_FILES, "{what}");
        for interface in ["eth0", "eth1"] {
            assert_eq!(xdp(&lab.router, interface).unwrap(), None, "{what}");
        }
        assert!(unheard || done, "{} after {what}", finished.code());
    }
    assert!(early > MOMENTS / 3, "only {early} signals came before the daemon was ready");
}

#[test]
fn a_hangup_ends_a_daemon_as_ctrl_c_does() {
    require!(skip::forwarder());
    let lab = lab();
    let daemon = Daemon::start(&lab.router, "--iface eth0,eth1").unwrap();
    let footprint = Footprint::of(&lab.router, "eth0").unwrap();
    let (finished, forwarder) = daemon.stop(Signal::SIGHUP).unwrap();
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    assert_eq!(files(&forwarder), NO_FILES);
    footprint.gone().unwrap();
}

#[test]
fn a_daemon_under_nohup_survives_a_hangup() {
    require!(skip::forwarder());
    require!(skip::command("nohup", "--version"));
    let lab = lab();
    let forwarder = Forwarder::new(&lab.router).unwrap();
    let inner = forwarder.command("run --iface eth0,eth1 --metrics off --routes static");
    let mut command = lab.router.command("nohup");
    command.arg(inner.get_program()).args(inner.get_args());
    command.env("FORWARDER_RUN_DIR", forwarder.run_dir());
    let process = Process::spawn(command, Signal::SIGTERM).unwrap();
    let ready = || Ok(process.stderr().contains("forwarder: ready").then_some(()));
    wait_until("the daemon to be ready", SOON, ready).unwrap();
    let footprint = Footprint::of(&lab.router, "eth0").unwrap();

    process.signal(Signal::SIGHUP).unwrap();
    Crossing::route(&forwarder).unwrap();
    Crossing::open(&lab).unwrap().check(100).unwrap();
    process.signal(Signal::SIGTERM).unwrap();
    let finished = process.finish(SOON).unwrap();
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    assert_eq!(files(&forwarder), NO_FILES);
    footprint.gone().unwrap();
}
