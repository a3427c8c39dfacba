//! Every packet accounted for, after the programs have returned too: exactly so many frames go in,
//! and what came out and what was lost, as the counters tell, is as many. That what is left to
//! Linux is counted too, for every reason, is in `netns_forward/passed.rs`.

mod balance;
mod faults;
mod foreign;
mod queues;
mod shown;

use anyhow::{Result, ensure};
use forwarder_common::verdict::{SLOT_RX, SLOT_STEERED};
use forwarder_tests::{
    cpu,
    footprint::Footprint,
    frame::Frame,
    stats::Stats,
    testbed::{SOON, Testbed},
    wait::wait_until,
    wire::{WINDOW, Wire},
};
use nix::sys::signal::Signal;

/// Sends frames from the host at a link on one CPU, and waits until the router has had each of
/// them, wherever they go: not until they have come out.
fn send(
    wires: &[Wire],
    footprint: &Footprint,
    (link, on): (u8, usize),
    frames: &[Frame],
) -> Result<()> {
    // Counters of interfaces are numbered from 1.
    let slot = u32::from(link) + 1;
    cpu::on(on, || {
        for burst in frames.chunks(WINDOW) {
            let before = footprint.packets(slot, SLOT_RX)?;
            for frame in burst {
                wires[usize::from(link)].send(&frame.bytes())?;
            }
            let all = before + burst.len() as u64;
            wait_until("the router to have all frames", SOON, || {
                let steered = footprint.packets(slot, SLOT_STEERED)?;
                let arrived = footprint.worker_packets(slot, SLOT_RX)?;
                let (rx, is_through) = (footprint.packets(slot, SLOT_RX)?, arrived <= steered);
                Ok((rx == all && is_through).then_some(()))
            })?;
        }
        Ok(())
    })
}

/// Does something while the daemon stands still, so that it does not see what changes.
fn behind_its_back<T>(testbed: &Testbed, work: impl FnOnce() -> Result<T>) -> Result<T> {
    testbed.daemon.signal(Signal::SIGSTOP)?;
    let done = work();
    testbed.daemon.signal(Signal::SIGCONT)?;
    done
}

/// Whether the daemon itself finds nothing missing, since its start.
fn assert_nothing_is_unaccounted(testbed: &Testbed) {
    let stats: Stats = testbed.daemon.stats().unwrap();
    let all = ["A", "B", "C", "D", "E", "F"].map(|equation| (equation.to_owned(), 0));
    assert_eq!(stats.unaccounted, all.into(), "{:?}", stats.open());
}

/// As many frames as `count` from beyond one link to beyond another, no two of which are equal, of
/// as many flows, IPv4 and IPv6 in turn.
fn frames(from: u8, to: u8, count: u16) -> Vec<Frame> {
    let frame = |number: u16| {
        let like = if number.is_multiple_of(2) { Testbed::frame4 } else { Testbed::frame6 };
        like(from, to).udp(1024 + number, 9).payload(&number.to_be_bytes())
    };
    (0..count).map(frame).collect()
}

/// All frames that came out by a link are those that the oracle expects, in any order.
fn ensure_received(mut received: Vec<Vec<u8>>, mut expected: Vec<Vec<u8>>) -> Result<()> {
    received.sort();
    expected.sort();
    ensure!(received == expected, "{} frames, not {}", received.len(), expected.len());
    Ok(())
}
