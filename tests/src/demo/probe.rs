//! Packets that a router must answer. They are built by hand, so that no tool need be installed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use forwarder_tests::{
    frame::{Frame, Icmp, Ip, Packet},
    lab::{Lab, host4, host6, router4, router6},
};

const PATIENCE: Duration = Duration::from_secs(5);
/// Where traceroute begins: ports on which nobody listens.
const PORT: u16 = 33434;

/// The first hop must be the router, the second host B. Gives back what it has shown.
pub(super) fn traceroute(lab: &Lab, to_b: Frame) -> Result<String> {
    let (router, b) = addresses(&to_b);
    println!("traceroute from A to {b}");
    let v4 = matches!(to_b.ip, Ip::V4(_));
    let (expired, unreachable) = if v4 { ((11, 0), (3, 3)) } else { ((3, 0), (1, 4)) };
    for (hops, expected, from) in [(1, expired, &router), (2, unreachable, &b)] {
        let probe = to_b.clone().ttl(hops).udp(PORT, PORT + u16::from(hops)).payload(&[0; 32]);
        let (packet, time) = answer(lab, &probe).with_context(|| format!("hop {hops} to {b}"))?;
        println!("  {hops}  {}  {time:.2?}", packet.source);
        let icmp = packet.icmp().context("not ICMP")?;
        let right = (icmp.kind, icmp.code) == expected && packet.source.to_string() == *from;
        ensure!(right, "traceroute to {b}: hop {hops} is {}, {icmp:?}", packet.source);
    }
    Ok(format!("traceroute to {b} shows the router, then the host"))
}

/// Linux must say which MTU the next link has. Gives back what it has shown.
pub(super) fn too_big(lab: &Lab, to_b: Frame, mtu: u32) -> Result<String> {
    let (router, b) = addresses(&to_b);
    println!("ping from A to {b} with packets of 1500 bytes");
    let kind = if matches!(to_b.ip, Ip::V4(_)) { (3, 4) } else { (2, 0) };
    let (packet, _) = answer(lab, &to_b.echo(1, 1).ip_length(1500))
        .with_context(|| format!("a ping too big for the way to {b}"))?;
    let icmp = packet.icmp().context("not ICMP")?;
    println!("  {}: too big, the MTU is {}", packet.source, icmp.word);
    let right = (icmp.kind, icmp.code, icmp.word) == (kind.0, kind.1, mtu);
    ensure!(right && packet.source.to_string() == router, "too big for {b}: {icmp:?}");
    Ok(format!("a ping to {b} that is too big is told the MTU, {mtu}"))
}

/// Sends a frame from A, and waits for the ICMP error that quotes it.
fn answer(lab: &Lab, frame: &Frame) -> Result<(Packet, Duration)> {
    let wire = lab.a().wire("eth0")?;
    let sent = Packet::of_ip(&frame.ip_packet())?;
    let quoted = |icmp: Icmp<'_>| {
        Packet::of_ip(icmp.content).is_ok_and(|quoted| {
            (quoted.source, quoted.destination) == (sent.source, sent.destination)
                && !quoted.body.is_empty()
                && sent.body.starts_with(&quoted.body)
        })
    };
    let start = Instant::now();
    wire.send(&frame.bytes())?;
    let received = wire.collect(1, PATIENCE, |frame| {
        Packet::of_frame(frame).is_ok_and(|packet| packet.icmp().is_some_and(quoted))
    })?;
    let time = start.elapsed();
    let packet = Packet::of_frame(&received[0])?;
    ensure!(packet.is_sound(), "the answer has {:?}", packet.problems());
    Ok((packet, time))
}

/// Of the router as A sees it, and of B.
fn addresses(frame: &Frame) -> (String, String) {
    match frame.ip {
        Ip::V4(_) => (router4(0).to_string(), host4(1).to_string()),
        Ip::V6(_) => (router6(0).to_string(), host6(1).to_string()),
    }
}
