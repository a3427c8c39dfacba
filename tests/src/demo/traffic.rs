//! Traffic of a known amount between two hosts, by ordinary sockets.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use forwarder_tests::{cpu, host::Host, wire::WINDOW};
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};

use crate::ping::Pinger;

const PATIENCE: Duration = Duration::from_secs(5);
const FLOWS: usize = 16;
const PORT: u16 = 9000;
const BUFFER: usize = 4 << 20;

/// Pings, and gives back how many packets must have been forwarded for it.
pub(super) fn pings(from: &Host, to: IpAddr, count: u16) -> Result<u64> {
    let pinger = from.run(|| Pinger::new(to))?;
    for sequence in 1..=count {
        pinger.ping(sequence, 1000)?;
    }
    Ok(2 * u64::from(count))
}

/// Sends so many datagrams in a few flows, each of which must arrive whole and in its order.
pub(super) fn datagrams(from: &Host, to: &Host, address: IpAddr, count: u32) -> Result<u64> {
    let any = unspecified(address);
    let sink = to.run(|| UdpSocket::bind((address, PORT)))?;
    sink.set_read_timeout(Some(PATIENCE))?;
    // Some kernels charge a page for every frame that comes by XDP.
    setsockopt(&sink, RcvBufForce, &BUFFER)?;
    let flows = from.run(|| {
        let flow = |_| {
            let socket = UdpSocket::bind((any, 0))?;
            socket.connect((address, PORT))?;
            Ok(socket)
        };
        (0..FLOWS).map(flow).collect::<Result<Vec<_>>>()
    })?;
    let sources =
        flows.iter().map(|flow| Ok(flow.local_addr()?.port())).collect::<Result<Vec<_>>>()?;
    let mut received = vec![Vec::new(); FLOWS];
    let numbers: Vec<_> = (0..count).collect();
    let mut buffer = [0; 512];
    for window in numbers.chunks(WINDOW) {
        // As a NIC would: a flow comes in on one CPU. If it changed over in the middle it could
        // overtake its own frames that wait in a queue between two CPUs.
        cpu::stay(|| {
            window.iter().try_for_each(|number| {
                buffer[..4].copy_from_slice(&number.to_be_bytes());
                flows[*number as usize % FLOWS].send(&buffer).map(drop)
            })
        })?;
        for _ in window {
            let (length, source) =
                sink.recv_from(&mut buffer).context("a datagram did not arrive")?;
            ensure!(length == buffer.len(), "a datagram of {length} bytes");
            let flow = sources.iter().position(|port| *port == source.port());
            let number = u32::from_be_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]);
            received[flow.context("a datagram from nowhere")?].push(number);
        }
    }
    for (flow, received) in received.iter().enumerate() {
        let in_order = numbers.iter().skip(flow).step_by(FLOWS).eq(received);
        ensure!(in_order, "flow {flow} was reordered: {received:?}");
    }
    Ok(count.into())
}

/// Sends so many bytes through a TCP connection, all of which must arrive as they were sent.
pub(super) fn stream(from: &Host, to: &Host, address: IpAddr, length: usize) -> Result<()> {
    let listener = to.run(|| TcpListener::bind((address, PORT)))?;
    let mut near =
        from.run(|| TcpStream::connect_timeout(&SocketAddr::new(address, PORT), PATIENCE))?;
    near.set_write_timeout(Some(PATIENCE))?;
    let (mut far, _) = listener.accept()?;
    far.set_read_timeout(Some(PATIENCE))?;
    let bytes: Vec<u8> = (0..=250).cycle().take(length).collect();
    let received = thread::scope(|scope| {
        let sending = scope.spawn(|| {
            near.write_all(&bytes)?;
            drop(near);
            anyhow::Ok(())
        });
        let mut received = Vec::with_capacity(length);
        far.read_to_end(&mut received)?;
        sending.join().expect("nothing panics there")?;
        anyhow::Ok(received)
    })?;
    ensure!(received == bytes, "{} of {length} bytes came, or other ones", received.len());
    Ok(())
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}
