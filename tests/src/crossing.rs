//! Frames that must cross the router from host A to host B, byte by byte as the oracle has it.

use std::{
    cell::Cell,
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use anyhow::{Result, ensure};

use crate::{
    daemon::Forwarder,
    frame::Frame,
    lab::{Lab, host_mac, host4, host6, router_mac},
    wire::Wire,
};

/// Networks behind host B, which takes what comes for them and answers nothing.
pub const ROUTES: [&str; 2] =
    ["198.19.0.0/16 via 198.18.2.2 dev eth1", "2001:db8:f::/48 via 2001:db8:2::2 dev eth1"];
/// Each frame is followed by its number in two bytes.
const PAYLOAD: &[u8] = b"across ";
const SOON: Duration = Duration::from_secs(10);

/// The wires at both ends.
#[derive(Debug)]
pub struct Crossing {
    a: Wire,
    b: Wire,
    /// No two frames are alike.
    next: Cell<u16>,
}

impl Crossing {
    pub fn open(lab: &Lab) -> Result<Self> {
        Ok(Self { a: lab.a().wire("eth0")?, b: lab.b().wire("eth0")?, next: Cell::new(0) })
    }

    /// Adds [`ROUTES`] to a forwarder.
    pub fn route(forwarder: &Forwarder) -> Result<()> {
        for route in ROUTES {
            forwarder.ok(&format!("route add {route} --wait 5"))?;
        }
        Ok(())
    }

    /// Sends so many frames of as many flows, IPv4 and IPv6 in turn. Each must arrive, none twice,
    /// and as a router must have changed it.
    pub fn check(&self, count: usize) -> Result<()> {
        let frames = self.frames(count);
        let sent: Vec<_> = frames.iter().map(Frame::bytes).collect();
        // Steered flows overtake each other.
        let mut received = self.a.stream(&sent, &self.b, SOON, is_ours)?;
        received.sort_by(|one, other| number(one).cmp(number(other)));
        let expected: Vec<_> = frames.iter().map(|frame| Lab::forwarded(frame, 1)).collect();
        for (received, expected) in received.iter().zip(&expected) {
            ensure!(received == expected, "received {received:02x?}, not {expected:02x?}");
        }
        let more = self.arrived()?;
        ensure!(more == 0, "{more} frames came twice");
        Ok(())
    }

    /// Sends so many, and waits for nothing.
    pub fn send(&self, count: usize) -> Result<()> {
        self.frames(count).iter().try_for_each(|frame| self.a.send(&frame.bytes()))
    }

    /// How many have arrived, apart from those that were checked.
    pub fn arrived(&self) -> Result<usize> {
        Ok(self.b.arrived(is_ours)?.len())
    }

    fn frames(&self, count: usize) -> Vec<Frame> {
        (0..count).map(|_| frame(self.next.replace(self.next.get().wrapping_add(1)))).collect()
    }
}

fn frame(number: u16) -> Frame {
    let [high, low] = number.to_be_bytes();
    let frame = if number.is_multiple_of(2) {
        Frame::ipv4(host4(0), Ipv4Addr::new(198, 19, high, low))
    } else {
        Frame::ipv6(host6(0), Ipv6Addr::new(0x2001, 0xdb8, 0xf, 0, 0, 0, 0, number))
    };
    let payload = [PAYLOAD, &number.to_be_bytes()].concat();
    frame.macs(host_mac(0), router_mac(0)).udp(number | 1024, 9).payload(&payload)
}

fn is_ours(frame: &[u8]) -> bool {
    frame.len() > PAYLOAD.len() + 2 && frame[..frame.len() - 2].ends_with(PAYLOAD)
}

fn number(frame: &[u8]) -> &[u8] {
    &frame[frame.len() - 2..]
}
