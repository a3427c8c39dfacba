//! A raw socket on an interface: frames go out as they are, and come in as they arrived.

#![expect(clippy::cast_possible_truncation, reason = "C constants of 32 bits for fields of 16")]

use std::{
    io::{self, IoSliceMut},
    mem::offset_of,
    os::fd::{AsFd, AsRawFd},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    net::if_::if_nametoindex,
    setsockopt_impl, sockopt_impl,
    sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt::RcvBufForce},
};
use socket2::{Domain, SockAddr, SockAddrStorage, Socket, Type, socklen_t};

/// Frames that may be on their way at once: veth's ring holds 256, and drops what is beyond.
pub const WINDOW: usize = 64;
/// Longest frame that is received whole.
const FRAME_MAX: usize = 66 << 10;
const BUFFER: usize = 64 << 20;
/// Where a VLAN tag is: behind the two MAC addresses.
const MACS: usize = 12;

sockopt_impl!(IgnoreOutgoing, SetOnly, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, bool);
sockopt_impl!(Auxdata, SetOnly, libc::SOL_PACKET, libc::PACKET_AUXDATA, bool);

#[derive(Debug)]
pub struct Wire {
    socket: Socket,
    interface: String,
}

impl Wire {
    /// Of an interface in this thread's namespace; the wire itself can be used from any thread.
    pub fn open(interface: &str) -> Result<Self> {
        // Without a protocol nothing arrives before `bind`, and then only from this interface.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        setsockopt(&socket.as_fd(), RcvBufForce, &BUFFER)?;
        setsockopt(&socket.as_fd(), IgnoreOutgoing, &true)?;
        setsockopt(&socket.as_fd(), Auxdata, &true)?;
        let index = if_nametoindex(interface)?;
        socket.bind(&every_protocol(index))?;
        Ok(Self { socket, interface: interface.into() })
    }

    pub fn send(&self, frame: &[u8]) -> Result<()> {
        let length = frame.len();
        let sent = self
            .socket
            .send(frame)
            .with_context(|| format!("send {length} bytes by {}", self.interface))?;
        if sent == length { Ok(()) } else { bail!("sent {sent} bytes of {length}") }
    }

    /// The next frame; none if there is none in time.
    pub fn receive(&self, timeout: Duration) -> Result<Option<Vec<u8>>> {
        // A timeout of zero would wait for ever.
        self.socket.set_read_timeout(Some(timeout.max(Duration::from_micros(1))))?;
        match receive_whole(&self.socket) {
            Ok(frame) => Ok(Some(frame)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error).context(format!("receive from {}", self.interface)),
        }
    }

    /// Waits until so many wanted frames have come, in their order; others are ignored.
    pub fn collect(
        &self,
        count: usize,
        timeout: Duration,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Vec<u8>>> {
        let deadline = Instant::now() + timeout;
        let mut frames = Vec::new();
        let mut ignored = 0;
        while frames.len() < count {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.receive(left)? {
                Some(frame) if wanted(&frame) => frames.push(frame),
                Some(_) => ignored += 1,
                None => bail!(
                    "{} of {count} frames came by {} in {timeout:?}, and {ignored} others",
                    frames.len(),
                    self.interface
                ),
            }
        }
        Ok(frames)
    }

    /// What has arrived so far and is wanted, without waiting for more.
    pub fn arrived(&self, wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        while let Some(frame) = self.receive(Duration::ZERO)? {
            if wanted(&frame) {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    /// Sends all, and collects as many from the far wire, never more than [`WINDOW`] on their way.
    pub fn stream(
        &self,
        frames: &[Vec<u8>],
        far: &Self,
        timeout: Duration,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Vec<u8>>> {
        let mut received = Vec::new();
        for burst in frames.chunks(WINDOW) {
            for frame in burst {
                self.send(frame)?;
            }
            received.extend(far.collect(burst.len(), timeout, &wanted)?);
        }
        Ok(received)
    }
}

/// Receives a frame, and puts its outermost VLAN tag back, which Linux has taken out of it.
fn receive_whole(socket: &Socket) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; FRAME_MAX];
    let mut control = nix::cmsg_space!(libc::tpacket_auxdata);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let flags = MsgFlags::empty();
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
    if message.flags.contains(MsgFlags::MSG_TRUNC) {
        return Err(io::Error::other(format!("a frame of more than {FRAME_MAX} bytes")));
    }
    let tag = message.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::Unknown(auxdata) => vlan_tag(&auxdata.data_bytes),
        _ => None,
    });
    let length = message.bytes;
    let mut frame = buffer[..length].to_vec();
    if let Some(tag) = tag {
        frame.splice(MACS..MACS, tag);
    }
    Ok(frame)
}

/// The tag that `struct tpacket_auxdata` tells of, as it was on the wire.
fn vlan_tag(auxdata: &[u8]) -> Option<[u8; 4]> {
    let status = u32::from_ne_bytes(auxdata.get(..4)?.try_into().ok()?);
    let half = |at: usize| Some(u16::from_ne_bytes(auxdata.get(at..at + 2)?.try_into().ok()?));
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let [a, b] = half(offset_of!(libc::tpacket_auxdata, tp_vlan_tpid))?.to_be_bytes();
    let [c, d] = half(offset_of!(libc::tpacket_auxdata, tp_vlan_tci))?.to_be_bytes();
    Some([a, b, c, d])
}

/// `struct sockaddr_ll` for every protocol on one interface.
fn every_protocol(index: u32) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: `sockaddr_ll` is an address of the platform.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index.cast_signed();
    // SAFETY: this is the length of the address that has just been written there.
    unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as socklen_t) }
}
