//! The first promise: what leaves by XDP, Linux would have sent out too, to the last byte.
//!
//! Two labs are alike but for who forwards. The same frames go through both; each that came out of
//! the one without Linux's forwarding must have come out of the one without the forwarder.

use std::{
    collections::HashMap,
    net::Ipv6Addr,
    ops::Range,
    time::{Duration, Instant},
};

use forwarder_common::testing::{Random, random_frame};

use crate::{
    daemon::Daemon,
    lab::{Lab, host4, host6, router_mac},
    wire::Wire,
};

const SOON: Duration = Duration::from_secs(10);
const BURST: usize = 32;
/// Behind the neighbour B, for both families.
const FAR4: &str = "198.19.0.0/16";
const FAR6: &str = "2001:db8:ff00::/40";

/// Compares the two on a frame for each seed, the daemon attached in this mode. Returns how many
/// frames were sent, and how many of them left by XDP.
pub fn compare_with_linux(mode: &str, seeds: Range<u64>) -> (usize, usize) {
    let frames = random_frames(seeds);
    let by_linux = {
        let lab = Lab::router().static_neighbours().build().unwrap();
        for far in [format!("{FAR4} via {}", host4(1)), format!("{FAR6} via {}", host6(1))] {
            lab.router.ip(&format!("route add {far}")).unwrap();
        }
        received(&lab, &frames)
    };
    let lab = Lab::router().forwarding(false).static_neighbours().build().unwrap();
    let daemon = Daemon::start(&lab.router, &format!("--iface eth0,eth1 --mode {mode}")).unwrap();
    for route in [
        format!("{FAR4} via {} dev eth1 --wait 3", host4(1)),
        format!("{FAR6} via {} dev eth1 --wait 3", host6(1)),
        "198.18.2.0/24 dev eth1".to_owned(),
        "2001:db8:2::/64 dev eth1".to_owned(),
    ] {
        daemon.ok(&format!("route add {route}")).unwrap();
    }
    let by_xdp = received(&lab, &frames);

    let mut count = 0;
    for (packet, times) in &by_xdp {
        let linux = by_linux.get(packet).copied().unwrap_or(0);
        assert!(*times <= linux, "{mode}: {times} by XDP, {linux} by Linux: {packet:02x?}");
        count += times;
    }
    (frames.len(), count)
}

fn random_frames(seeds: Range<u64>) -> Vec<Vec<u8>> {
    let octets6 = |address: &str| address.parse::<Ipv6Addr>().unwrap().octets();
    let to4 = [host4(1).octets(), [198, 19, 0, 9], [198, 19, 255, 1]];
    let to6 = [host6(1).octets(), octets6("2001:db8:ff12::9"), octets6("2001:db8:ffff:ffff::1")];
    let frames = seeds.map(|seed| random_frame(&mut Random::new(seed), router_mac(0), &to4, &to6));
    // What a socket sends has an Ethernet header, and no more behind it than the MTU.
    frames.filter(|frame| (15..=1514).contains(&frame.len())).collect()
}

/// The IP packets that B receives, with their Ethernet header and without padding, and how often.
fn received(lab: &Lab, frames: &[Vec<u8>]) -> HashMap<Vec<u8>, usize> {
    let (a, b) = (lab.a().wire("eth0").unwrap(), lab.b().wire("eth0").unwrap());
    let mut packets = HashMap::new();
    for (number, burst) in (0_u32..).zip(frames.chunks(BURST)) {
        for frame in burst {
            a.send(frame).unwrap();
        }
        // What was sent before it has arrived when it arrives, or never will.
        let marker =
            Lab::frame4(0, 1).udp(7, 7).payload(&[b"marker", &number.to_be_bytes()[..]].concat());
        a.send(&marker.bytes()).unwrap();
        for frame in until(&b, &Lab::forwarded(&marker, 1)) {
            *packets.entry(without_padding(frame)).or_default() += 1;
        }
    }
    packets
}

fn until(wire: &Wire, last: &[u8]) -> Vec<Vec<u8>> {
    let deadline = Instant::now() + SOON;
    let mut frames = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let frame = wire.receive(left).unwrap().expect("the marker, after what was sent before it");
        if frame == last {
            return frames;
        }
        frames.push(frame);
    }
}

fn without_padding(mut frame: Vec<u8>) -> Vec<u8> {
    let word = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let len = match word(12) {
        0x0800 => 14 + word(16),
        0x86dd => 54 + word(18),
        _ => frame.len(),
    };
    frame.truncate(len);
    frame
}
