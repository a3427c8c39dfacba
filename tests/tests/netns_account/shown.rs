//! What `forwarder stats` makes of it for people.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use forwarder_tests::{
    footprint::Footprint,
    frame::Frame,
    lab::Lab,
    process::die_with_us,
    require, skip,
    testbed::{SOON, Testbed},
    wait::wait_until,
};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{behind_its_back, frames, send};

const FRAMES: u16 = 300;

/// Differences, not totals: what is sent after the first line is in the other lines, to the frame.
#[test]
fn rates_are_of_what_happened_meanwhile() {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false).static_neighbours();
    let testbed = Testbed::with_routes(&layout, "--mode native --steer off").unwrap();
    let footprint = Footprint::of(&testbed.lab.router, "eth0").unwrap();
    send(&testbed.wires, &footprint, (0, 0), &frames(0, 1, 50)).unwrap();

    let mut command: Command = testbed.daemon.forwarder().command("-j stats -w 1 -n 3");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    die_with_us(&mut command, Signal::SIGTERM);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = line();
    send(&testbed.wires, &footprint, (0, 0), &frames(0, 1, FRAMES)).unwrap();
    let (second, third) = (line(), line());
    assert!(child.wait().unwrap().success());
    assert!(lines.next().is_none(), "so many lines as were asked for");

    let rx = |of: &Value| -> u64 {
        let cpus = of["interfaces"][0]["cpus"].as_array().unwrap();
        cpus.iter().map(|cpu| cpu["ingress"]["rx"]["packets"].as_u64().unwrap()).sum()
    };
    assert_eq!((rx(&first), rx(&second) + rx(&third)), (0, FRAMES.into()));
    for of in [&second, &third] {
        let elapsed = of["elapsed_ms"].as_u64().unwrap();
        assert!((900..5000).contains(&elapsed), "{elapsed}");
        let rate = of["per_second"]["rx"].as_u64().unwrap();
        assert_eq!(rate, (rx(of) * 1000 + elapsed / 2) / elapsed);
    }
    let text = testbed.daemon.ok("stats -w 1 -n 1 --summary --per-interface").unwrap();
    let columns: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(columns[..2], ["interface", "rx/s"], "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
}

/// In generic mode nobody tells us what a driver did not send; its own counters do.
#[test]
fn the_interface_s_own_counters_stand_beside_ours() {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false).static_neighbours();
    let testbed = Testbed::with_routes(&layout, "--mode generic --steer off").unwrap();
    let footprint = Footprint::of(&testbed.lab.router, "eth0").unwrap();
    let lost: Vec<Frame> = frames(0, 1, 40);
    let losing = || {
        behind_its_back(&testbed, || {
            testbed.lab.b().ip("link set eth0 down")?;
            send(&testbed.wires, &footprint, (0, 0), &lost)
        })
    };
    let ((), counted) = testbed.counted(losing).unwrap();
    assert_eq!((counted.xdp.redirected(), counted.xdp.lost()), (40, 0));
    let own = wait_until("the driver to count them", SOON, || {
        let link = testbed.lab.router.ip("-j -s -s link show dev eth1")?;
        let link: Value = serde_json::from_str(&link)?;
        let of = |way: &str, name: &str| link[0]["stats64"][way][name].as_u64().unwrap_or_default();
        Ok((of("tx", "dropped") >= 40).then_some((of("tx", "dropped"), of("rx", "dropped"))))
    })
    .unwrap();
    let json = testbed.daemon.forwarder().json("stats").unwrap();
    let nic = &json["interfaces"][1]["nic"];
    assert_eq!(
        (nic["tx_dropped"].as_u64(), nic["rx_dropped"].as_u64()),
        (Some(own.0), Some(own.1))
    );
    assert_eq!(nic["rx_missed"].as_u64(), Some(0));
    let text = testbed.daemon.ok("stats").unwrap();
    let line =
        text.lines().find(|line| line.contains("tx_dropped")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.starts_with("eth1") && line.contains(&own.0.to_string()), "{line}");
}
