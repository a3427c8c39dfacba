//! Ordinary sockets on both sides of the forwarder.

use std::{
    io::{Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
};

use anyhow::{Result, ensure};
use forwarder_tests::{
    kernel::Forwarded,
    lab::{Lab, host4, host6},
    require, skip,
    testbed::{SOON, Testbed},
};

const PORT: u16 = 9000;
/// Each way. Even if all of it were on its way at once, no queue of the forwarder would overflow.
const BYTES: usize = 1_000_000;
/// What a segment carries at most.
const SEGMENT: usize = 1460;

#[test]
fn tcp_both_ways() {
    tcp("--steer off");
}

#[test]
fn tcp_both_ways_steered() {
    require!(skip::cpus(2));
    tcp("--steer cpus=0,1");
}

#[test]
fn a_datagram_in_fragments_arrives_whole() {
    require!(skip::forwarder());
    let testbed = testbed("--steer off");
    for b in [host4(1).into(), host6(1).into()] {
        let ((), counted) = testbed.counted(|| datagram(&testbed.lab, b, 4000)).unwrap();
        assert_eq!(counted.xdp.redirected(), 3, "fragments");
        assert_eq!(counted.linux, Forwarded::default());
    }
}

fn tcp(arguments: &str) {
    require!(skip::forwarder());
    let testbed = testbed(arguments);
    for b in [host4(1).into(), host6(1).into()] {
        let ((), counted) = testbed.counted(|| exchange(&testbed.lab, b)).unwrap();
        assert_eq!(counted.linux, Forwarded::default());
        for name in ["eth0", "eth1"] {
            let port = counted.xdp.interface(name);
            let passed = (port.ingress().passed_all(), port.worker().passed_all());
            assert_eq!(passed, (0, 0), "{port:#?}");
            assert!(port.redirected() >= (BYTES / SEGMENT) as u64, "{port:#?}");
        }
    }
}

/// A lab with routes between the two hosts themselves.
fn testbed(arguments: &str) -> Testbed {
    let layout = Lab::router().forwarding(false).static_neighbours();
    let testbed = Testbed::start(&layout, arguments).unwrap();
    for link in [0, 1] {
        testbed.route(&format!("{0} via {0} dev eth{link}", host4(link))).unwrap();
        testbed.route(&format!("{0} via {0} dev eth{link}", host6(link))).unwrap();
    }
    testbed
}

/// A connection from A to B with as many bytes each way, all of which must arrive as they were.
fn exchange(lab: &Lab, b: IpAddr) -> Result<()> {
    let to = SocketAddr::new(b, PORT);
    let listener = lab.b().run(|| TcpListener::bind(to))?;
    let near = lab.a().run(|| TcpStream::connect_timeout(&to, SOON))?;
    let (far, _) = listener.accept()?;
    let content = |start: u8| (0..=250_u8).cycle().skip(start.into()).take(BYTES);
    let (from_a, from_b): (Vec<_>, Vec<_>) = (content(0).collect(), content(7).collect());
    let (at_b, at_a) = thread::scope(|scope| {
        let writers = [scope.spawn(|| write(&near, &from_a)), scope.spawn(|| write(&far, &from_b))];
        let at_b = scope.spawn(|| read(&far));
        let at_a = read(&near);
        for writer in writers {
            writer.join().expect("nothing panics there")?;
        }
        anyhow::Ok((at_b.join().expect("nothing panics there")?, at_a?))
    })?;
    ensure!(at_b == from_a, "B got {} bytes, or other ones", at_b.len());
    ensure!(at_a == from_b, "A got {} bytes, or other ones", at_a.len());
    Ok(())
}

fn write(mut stream: &TcpStream, bytes: &[u8]) -> Result<()> {
    stream.set_write_timeout(Some(SOON))?;
    stream.write_all(bytes)?;
    Ok(stream.shutdown(Shutdown::Write)?)
}

fn read(mut stream: &TcpStream) -> Result<Vec<u8>> {
    stream.set_read_timeout(Some(SOON))?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// One datagram from A to B.
fn datagram(lab: &Lab, b: IpAddr, length: usize) -> Result<()> {
    let sink = lab.b().run(|| UdpSocket::bind((b, PORT)))?;
    sink.set_read_timeout(Some(SOON))?;
    let content: Vec<_> = (0..=250_u8).cycle().take(length).collect();
    lab.a().run(|| {
        let any = if b.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        UdpSocket::bind(any)?.send_to(&content, (b, PORT))
    })?;
    let mut buffer = vec![0; length + 1];
    let received = sink.recv(&mut buffer)?;
    ensure!(buffer[..received] == content, "{received} bytes of {length}, or other ones");
    Ok(())
}
