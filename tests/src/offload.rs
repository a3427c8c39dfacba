//! What `ethtool -K` does, without ethtool: the interface's offloads, by the old ioctl.

use std::{io, os::fd::AsRawFd};

use anyhow::{Context, Result};
use socket2::{Domain, Socket, Type};

/// The ioctl's command that sets one feature (see `linux/ethtool.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Offload {
    /// `tx`: leaves checksums to hardware, which on veth means: unfinished.
    TxChecksum = 0x17,
    /// `gro`: on veth it switches on NAPI, without which nothing can be redirected to the peer.
    Gro = 0x2c,
}

/// Switches one offload of an interface of this thread's namespace.
pub fn set(interface: &str, offload: Offload, on: bool) -> Result<()> {
    ethtool(interface, offload as u32, on)
        .with_context(|| format!("set {offload:?} of {interface} to {on}"))
}

fn ethtool(interface: &str, command: u32, on: bool) -> io::Result<()> {
    /// `struct ethtool_value`.
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let mut value = Value { command, data: on.into() };
    let mut name = [0; libc::IFNAMSIZ];
    if interface.len() >= name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in name.iter_mut().zip(interface.bytes()) {
        *to = from.cast_signed();
    }
    let mut request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: (&raw mut value).cast() },
    };
    // SAFETY: the request and the value that it points to outlive the call, and have the layout
    // that `SIOCETHTOOL` and the two commands expect.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
