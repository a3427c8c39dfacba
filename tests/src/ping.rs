//! Echo requests through the kernel's ping sockets, so that nothing need be installed.

use std::{
    env,
    io::Read,
    net::{IpAddr, SocketAddr},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use forwarder_tests::netns::Namespace;
use socket2::{Domain, Protocol, Socket, Type};

use crate::shell;

const TIMEOUT: Duration = Duration::from_secs(2);
/// Type and code of an echo request; the kernel fills in identifier and checksum.
const REQUEST4: [u8; 2] = [8, 0];
const REQUEST6: [u8; 2] = [128, 0];

/// Pings from the host A of the lab that this process is in.
pub(crate) fn from_a(destination: IpAddr, count: u16) -> Result<ExitCode> {
    let path = env::var_os(shell::variable("A")).context(shell::NOT_IN_A_LAB)?;
    let pinger = Namespace::open(path.as_ref())?.run(|| Pinger::new(destination))?;
    for sequence in 1..=count {
        let time = pinger.ping(sequence, 56)?;
        println!("64 bytes from {destination}: seq={sequence} time={time:.2?}");
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug)]
pub(crate) struct Pinger {
    socket: Socket,
    destination: IpAddr,
}

impl Pinger {
    /// In this thread's network; the lab's hosts let everybody have such a socket.
    pub(crate) fn new(destination: IpAddr) -> Result<Self> {
        let (domain, protocol) = match destination {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
        };
        let socket = Socket::new(domain, Type::DGRAM, Some(protocol))?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.connect(&SocketAddr::new(destination, 0).into())?;
        Ok(Self { socket, destination })
    }

    /// Sends one echo request with so many bytes of payload, and waits for its answer.
    pub(crate) fn ping(&self, sequence: u16, payload: usize) -> Result<Duration> {
        let head = if self.destination.is_ipv4() { REQUEST4 } else { REQUEST6 };
        let mut request = [head.as_slice(), &[0; 4], &sequence.to_be_bytes()].concat();
        request.resize(request.len() + payload, sequence.to_be_bytes()[1]);
        let start = Instant::now();
        self.socket.send(&request)?;
        let mut answer = vec![0; request.len() + 1];
        let length = (&self.socket)
            .read(&mut answer)
            .map_err(|_| anyhow!("no answer from {} in {TIMEOUT:?}", self.destination))?;
        // From the sequence number on it must come back as it was sent.
        ensure!(answer[6..length] == request[6..], "a wrong answer from {}", self.destination);
        Ok(start.elapsed())
    }
}
